"""What must hold for any input, tried on a few hundred drawn ones each.

Derandomized, without a database: every run tries the same inputs.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lantern_embed import (
    EmbeddingLayer,
    chars,
    decode,
    encode,
    scatter_add,
)

try_many = settings(
    derandomize=True, deadline=None, database=None, max_examples=80
)
INTEGERS = [*np.typecodes["AllInteger"], ">i4", ">u2"]
FLOATS = ["f4", "f8"]


@st.composite
def layouts(draw, array):
    """The same values, laid out in memory in one way or another."""
    array = np.asarray(array)
    kind = draw(st.sampled_from("CFST-R"))
    if kind == "F":
        return np.asfortranarray(array)
    if kind == "S" and array.ndim:
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if kind == "T":
        return array.swapaxes(0, -1).copy().swapaxes(0, -1)
    if kind == "-":
        return np.ascontiguousarray(array[::-1])[::-1]
    array = array.copy()
    array.flags.writeable = kind != "R"
    return array


@st.composite
def layers(draw, values=None, dtype=None):
    """A layer whose tables hold drawn values, or the ones it starts with."""
    sizes = [draw(st.integers(1, n)) for n in (9, 7, 4)]
    layer = EmbeddingLayer(*sizes, seed=draw(st.integers(0, 99)))
    dtype = dtype or draw(st.sampled_from(FLOATS))
    layer.E, layer.P = layer.E.astype(dtype), layer.P.astype(dtype)
    if values is not None:
        for table in (layer.E, layer.P):
            table[:] = draw(hnp.arrays(dtype, table.shape, elements=values))
    return layer


@st.composite
def batches(draw, layer):
    """Ids for the layer: any dtype, any layout, now and then none at all."""
    vocab_size, block_size = len(layer.E), len(layer.P)
    shape = draw(st.integers(0, 4)), draw(st.integers(0, block_size))
    ids = st.integers(0, vocab_size - 1)
    dtype = draw(st.sampled_from(INTEGERS))
    return draw(layouts(draw(hnp.arrays(dtype, shape, elements=ids))))


def floats(width):
    """Huge, tiny, nan, inf, -0.0; four huge ones sum without overflow."""
    huge = 2.0 ** (125 if width == 32 else 1021)
    special = [np.nan, np.inf, -np.inf, -0.0, 2.0**-126, huge, -huge]
    return st.sampled_from(special) | st.floats(-huge, huge, width=width)


def douts(layer, idx, elements=None):
    dtype = layer.E.dtype
    if elements is None:
        elements = floats(8 * dtype.itemsize)
    shape = (*idx.shape, layer.E.shape[1])
    return hnp.arrays(dtype, shape, elements=elements).flatmap(layouts)


# 1/64ths: whatever is summed or multiplied below stays exact in float64.
dyadic = st.integers(-64, 64).map(lambda n: n / 64)


def assert_same_values(a, b):
    """Equal to the last bit, where any nan is as good as another."""
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    np.testing.assert_array_equal(a, b)
    number = ~np.isnan(a)
    assert np.array_equal(np.signbit(a[number]), np.signbit(b[number]))


@try_many
@given(st.data())
def test_forward_is_a_plain_double_loop(data):
    layer = data.draw(layers(values=floats(32)))
    idx = data.draw(batches(layer))
    expected = np.zeros((*idx.shape, layer.E.shape[1]), layer.E.dtype)
    with np.errstate(all="ignore"):
        for b, t in np.ndindex(idx.shape):
            for c in range(layer.E.shape[1]):
                expected[b, t, c] = layer.E[idx[b, t], c] + layer.P[t, c]
        out = layer.forward(idx)
    assert_same_values(out, expected)
    assert not np.shares_memory(out, layer.E)


def loop_backward(layer, idx, dout):
    dE, dP = np.zeros_like(layer.E), np.zeros_like(layer.P)
    for b, t in np.ndindex(idx.shape):
        for c in range(dout.shape[2]):
            dE[idx[b, t], c] += dout[b, t, c]
            dP[t, c] += dout[b, t, c]
    return dE, dP


@try_many
@given(st.data())
def test_backward_is_a_plain_double_loop(data):
    layer = data.draw(layers())
    idx = data.draw(batches(layer))
    dout = data.draw(douts(layer, idx))
    layer.forward(idx)
    with np.errstate(all="ignore"):
        dE, dP = loop_backward(layer, idx, dout)
        layer.backward(dout)
    assert_same_values(layer.dE, dE)
    # A sum over b may be taken in any order: its last digits are free.
    finite = np.isfinite(dP)
    assert_same_values(layer.dP[~finite], dP[~finite])
    size = np.zeros_like(dP)
    size[: idx.shape[1]] = np.abs(dout).sum(axis=0)
    room = 4 * np.finfo(dP.dtype).eps * size[finite]
    assert np.all(np.abs(layer.dP[finite] - dP[finite]) <= room)


@try_many
@given(st.data())
def test_both_gradients_are_exact_where_sums_are(data):
    layer = data.draw(layers())
    idx = data.draw(batches(layer))
    dout = data.draw(douts(layer, idx, dyadic))
    layer.forward(idx)
    layer.backward(dout)
    dE, dP = loop_backward(layer, idx, dout)
    assert np.array_equal(layer.dE, dE)
    assert np.array_equal(layer.dP, dP)
    assert layer.dE.dtype == layer.dP.dtype == layer.E.dtype


@try_many
@given(st.data())
def test_scatter_add_leaves_the_bytes_of_add_at(data):
    dtype = data.draw(st.sampled_from(["f2", "f4", "f8", "c16", "i8", "u1"]))
    V, C = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 4))
    idx = data.draw(
        hnp.arrays(
            data.draw(st.sampled_from(np.typecodes["Integer"])),
            hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
            elements=st.integers(-V, V - 1),
        ).flatmap(layouts)
    )
    rows = data.draw(hnp.arrays(dtype, (*idx.shape, C)).flatmap(layouts))
    table = data.draw(hnp.arrays(dtype, (V, C)))
    ours = data.draw(layouts(table).filter(lambda a: a.flags.writeable))
    numpys = ours.copy(order="K")
    with np.errstate(all="ignore"):
        scatter_add(ours, idx, rows)
        np.add.at(numpys, idx, rows)
    assert ours.tobytes() == numpys.tobytes()


@try_many
@given(st.text(st.sampled_from(chars)))
def test_decode_undoes_encode(s):
    ids = encode(s)
    assert len(ids) == len(s)
    assert decode(ids) == decode(np.array(ids, np.uint8)) == s


@try_many
@given(st.lists(st.integers(0, len(chars) - 1)))
def test_encode_undoes_decode(ids):
    assert encode(decode(ids)) == ids


@try_many
@given(st.text())
def test_encode_takes_the_alphabet_and_nothing_else(s):
    strangers = [(t, c) for t, c in enumerate(s) if c not in chars]
    if not strangers:
        assert decode(encode(s)) == s
        return
    t, c = strangers[0]
    with pytest.raises(ValueError) as caught:
        encode(s)
    assert f"character {c!r} at position {t} " in str(caught.value)


def gradients(layer, dout):
    layer.backward(dout)
    return layer.dE, layer.dP


@try_many
@given(st.data())
def test_backward_is_linear(data):
    layer = data.draw(layers(dtype="f8"))
    idx = data.draw(batches(layer))
    one, other = (data.draw(douts(layer, idx, dyadic)) for _ in range(2))
    k = data.draw(dyadic)
    layer.forward(idx)
    mixed = gradients(layer, one + k * other)
    ones, others = gradients(layer, one), gradients(layer, other)
    for m, a, b in zip(mixed, ones, others, strict=True):
        assert np.array_equal(m, a + k * b)


@try_many
@given(st.data())
def test_backward_is_the_exact_adjoint_of_forward(data):
    # Forward is linear in (E, P), so <forward(E, P), dout> is
    # <E, dE> + <P, dP>; on dyadic fractions there is no "almost".
    layer = data.draw(layers(values=dyadic, dtype="f8"))
    idx = data.draw(batches(layer))
    dout = data.draw(douts(layer, idx, dyadic))
    out = layer.forward(idx)
    layer.backward(dout)
    assert np.sum(out * dout) == (
        np.sum(layer.E * layer.dE) + np.sum(layer.P * layer.dP)
    )


def contents(value):
    if isinstance(value, tuple):
        return [contents(v) for v in value]
    return value.tobytes() if isinstance(value, np.ndarray) else value


def snapshot(layer):
    return {k: (v, contents(v)) for k, v in vars(layer).items()}


def assert_unchanged(layer, before):
    assert vars(layer).keys() == before.keys()
    for name, (value, held) in before.items():
        assert getattr(layer, name) is value
        assert contents(value) == held


def use(data, layer):
    """Nothing, or a forward, or a forward and a backward."""
    idx = data.draw(batches(layer))
    steps = data.draw(st.integers(0, 2))
    if steps > 0:
        layer.forward(idx)
    if steps > 1:
        layer.backward(data.draw(douts(layer, idx, dyadic)))


@try_many
@given(st.data())
def test_an_id_outside_is_named_and_leaves_the_layer_alone(data):
    layer = data.draw(layers())
    use(data, layer)
    V = len(layer.E)
    shape = (
        data.draw(st.integers(1, 4)),
        data.draw(st.integers(1, len(layer.P))),
    )
    idx = data.draw(hnp.arrays(int, shape, elements=st.integers(0, V - 1)))
    b, t = (data.draw(st.integers(0, n - 1)) for n in shape)
    idx[b, t] = data.draw(
        st.integers(-(2**31), -1) | st.integers(V, 2**31 - 1)
    )
    before = snapshot(layer)
    with pytest.raises(IndexError) as caught:
        layer.forward(idx)
    assert f"id {idx[b, t]} at (b, t) = ({b}, {t}) is " in str(caught.value)
    assert f" outside 0..{V - 1} " in str(caught.value)
    assert_unchanged(layer, before)


@try_many
@given(st.data())
def test_any_array_works_as_idx_or_leaves_the_layer_alone(data):
    layer = data.draw(layers())
    use(data, layer)
    shape = data.draw(
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=8)
    )
    dtype = data.draw(st.sampled_from(["i8", "u1", "f8", "?", "c16", "U1"]))
    idx = data.draw(hnp.arrays(dtype, shape))
    before = snapshot(layer)
    try:
        out = layer.forward(idx)
    except (TypeError, ValueError, IndexError):
        assert_unchanged(layer, before)
    else:
        assert idx.dtype.kind in "iu"
        assert out.shape == (*idx.shape, layer.E.shape[1])


@try_many
@given(st.data())
def test_any_array_works_as_dout_or_leaves_the_layer_alone(data):
    layer = data.draw(layers())
    idx = data.draw(batches(layer))
    layer.forward(idx)
    if data.draw(st.booleans()):
        layer.backward(data.draw(douts(layer, idx, dyadic)))
    good = (*idx.shape, layer.E.shape[1])
    shape = data.draw(
        st.just(good)
        | hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    )
    dtype = data.draw(st.sampled_from(["i8", "f4", "?", "c16", "U1"]))
    dout = np.zeros(shape, dtype)
    before = snapshot(layer)
    try:
        layer.backward(dout)
    except (TypeError, ValueError):
        assert shape != good or dout.dtype.kind not in "iuf"
        assert_unchanged(layer, before)
    else:
        assert shape == good
        assert layer.dE.shape == layer.E.shape
        assert layer.dP.shape == layer.P.shape


@try_many
@given(st.data())
def test_two_layers_never_share_state(data):
    one, other = data.draw(layers()), data.draw(layers())
    use(data, one)
    before = snapshot(one)
    use(data, other)
    other.E += 1
    other.P += 1
    assert_unchanged(one, before)


@try_many
@given(st.data())
def test_repeated_calls_give_the_same_bytes(data):
    layer = data.draw(layers())
    idx = data.draw(batches(layer))
    dout = data.draw(douts(layer, idx))
    seen = []
    with np.errstate(all="ignore"):
        for _ in range(2):
            out = layer.forward(idx)
            layer.backward(dout)
            seen.append([a.tobytes() for a in (out, layer.dE, layer.dP)])
    assert seen[0] == seen[1]
