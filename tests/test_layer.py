import numpy as np
import pytest

from lantern_embed import EmbeddingLayer

# All sizes differ and T < block_size, so that a swapped axis cannot pass.
VOCAB, BLOCK, B, T, C = 11, 7, 2, 5, 3
# 4, 9 and 1 repeat, within a row and across rows; 3 and 5 to 8 are unused.
IDX = np.array([[4, 0, 4, 9, 2], [9, 4, 1, 1, 10]])
NAMES = ("E", "P", "cache", "dE", "dP")


def a_layer():
    return EmbeddingLayer(VOCAB, BLOCK, C, seed=7)


def a_dout(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape or (B, T, C))


def by_formula(dout, idx=IDX, dtype=np.float64):
    dE, dP = np.zeros((VOCAB, C), dtype), np.zeros((BLOCK, C), dtype)
    np.add.at(dE, idx, dout)
    dP[: idx.shape[1]] = dout.sum(axis=0)
    return dE, dP


def assert_same_bytes(a, b):
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert a.tobytes() == b.tobytes()


# The tables


def test_E_then_P_come_from_one_generator():
    layer, rng = a_layer(), np.random.default_rng(7)
    assert_same_bytes(layer.E, rng.standard_normal((VOCAB, C)) * 0.02)
    assert_same_bytes(layer.P, rng.standard_normal((BLOCK, C)) * 0.02)


def test_the_seed_is_42_unless_given():
    layer, rng = EmbeddingLayer(VOCAB, BLOCK, C), np.random.default_rng(42)
    assert_same_bytes(layer.E, rng.standard_normal((VOCAB, C)) * 0.02)


def test_the_global_generator_is_not_touched():
    before = np.random.get_state()[1].tobytes()  # noqa: NPY002
    a_layer()
    assert np.random.get_state()[1].tobytes() == before  # noqa: NPY002


def test_a_new_layer_holds_two_tables_and_nothing_else():
    layer = EmbeddingLayer(vocab_size=VOCAB, block_size=BLOCK, C=C)
    assert set(vars(layer)) == set(NAMES)
    assert layer.cache is layer.dE is layer.dP is None


@pytest.mark.parametrize("n", [np.int8(3), np.uint64(3), np.array(3)])
def test_numpy_integers_are_sizes_too(n):
    assert EmbeddingLayer(n, 5, 2).E.shape == (3, 2)
    assert EmbeddingLayer(5, n, 2).P.shape == (3, 2)
    assert EmbeddingLayer(5, 2, n).P.shape == (2, 3)


def test_one_is_a_size():
    layer = EmbeddingLayer(1, 1, 1)
    assert layer.forward([[0]]).shape == (1, 1, 1)


@pytest.mark.parametrize("name", ["vocab_size", "block_size", "C"])
@pytest.mark.parametrize(
    ("n", "error"),
    [
        (0, ValueError),
        (-3, ValueError),
        (2.0, TypeError),
        ("3", TypeError),
        (None, TypeError),
        (np.array([3, 4]), TypeError),
        (True, TypeError),  # an int to Python, a slip to everybody else
        (np.True_, TypeError),
    ],
)
def test_a_bad_size_is_named(name, n, error):
    sizes = {"vocab_size": VOCAB, "block_size": BLOCK, "C": C, name: n}
    with pytest.raises(error) as caught:
        EmbeddingLayer(**sizes)
    assert str(caught.value) == f"{name} must be a positive integer, got {n!r}"


# Forward


def test_forward_is_E_of_idx_plus_the_first_rows_of_P():
    layer = a_layer()
    assert_same_bytes(layer.forward(IDX), layer.E[IDX] + layer.P[:T])


def test_forward_agrees_with_a_plain_loop():
    layer = a_layer()
    out = layer.forward(IDX)
    for b in range(B):
        for t in range(T):
            assert_same_bytes(out[b, t], layer.E[IDX[b, t]] + layer.P[t])


def test_a_full_block_uses_every_row_of_P():
    layer, idx = a_layer(), np.arange(BLOCK)[None]
    assert_same_bytes(layer.forward(idx), layer.E[idx] + layer.P)


def test_the_first_and_the_last_id_are_inside():
    layer = a_layer()
    out = layer.forward([[0, VOCAB - 1]])
    assert_same_bytes(out[0, 1], layer.E[-1] + layer.P[1])


def test_forward_returns_an_array_of_its_own():
    layer = a_layer()
    E, P = layer.E.copy(), layer.P.copy()
    out = layer.forward(IDX)
    out[:] = 99
    assert_same_bytes(layer.E, E)
    assert_same_bytes(layer.P, P)
    assert not np.shares_memory(out, layer.forward(IDX))


def test_the_cache_is_idx_and_T_and_nothing_else():
    layer = a_layer()
    layer.forward(IDX)
    assert type(layer.cache) is tuple
    idx, cached_T = layer.cache
    assert np.array_equal(idx, IDX)
    assert (cached_T, type(cached_T)) == (T, int)
    assert set(vars(layer)) == set(NAMES)
    assert layer.dE is layer.dP is None


def test_the_cache_is_that_of_the_last_forward():
    layer = a_layer()
    layer.forward(IDX)
    layer.forward(IDX[:1, :2])
    assert layer.cache[0].tolist() == [[4, 0]]
    assert layer.cache[1] == 2


@pytest.mark.parametrize("dtype", [np.intp, np.int8])
def test_changing_idx_afterwards_changes_nothing(dtype):
    # intp is the dtype that needs no conversion: the easy one to forget.
    layer, idx = a_layer(), IDX.astype(dtype)
    layer.forward(idx)
    idx[:] = 0
    assert np.array_equal(layer.cache[0], IDX)
    layer.backward(a_dout())
    assert_same_bytes(layer.dE, by_formula(a_dout())[0])


def read_only(a):
    a.flags.writeable = False
    return a


IDX_FORMS = [
    *(pytest.param(IDX.astype(d), id=d) for d in np.typecodes["AllInteger"]),
    pytest.param(IDX.astype(">i4"), id="big-endian"),
    pytest.param(IDX.tolist(), id="lists"),
    pytest.param(tuple(map(tuple, IDX.tolist())), id="tuples"),
    pytest.param(list(IDX), id="list of arrays"),
    pytest.param(read_only(IDX.copy()), id="read-only"),
    pytest.param(np.repeat(IDX, 2, axis=1)[:, ::2], id="strided"),
    pytest.param(IDX[::-1, ::-1].copy()[::-1, ::-1], id="backwards"),
    pytest.param(np.asfortranarray(IDX), id="Fortran-ordered"),
    pytest.param(IDX.T.copy().T, id="transposed"),
    pytest.param(np.ma.masked_array(IDX), id="subclass"),
]


@pytest.mark.parametrize("idx", IDX_FORMS)
def test_every_form_of_the_same_ids_gives_the_same_bytes(idx):
    layer = a_layer()
    out = layer.forward(idx)
    assert type(out) is np.ndarray
    assert_same_bytes(out, layer.E[IDX] + layer.P[:T])
    layer.backward(a_dout())
    dE, dP = by_formula(a_dout())
    assert_same_bytes(layer.dE, dE)
    assert_same_bytes(layer.dP, dP)


@pytest.mark.parametrize(
    ("idx", "shape"),
    [
        (np.zeros((0, 5), np.int64), (0, 5)),
        (np.zeros((2, 0), np.uint8), (2, 0)),
        (np.zeros((0, 0), np.int64), (0, 0)),
        ([[]], (1, 0)),  # NumPy alone would make floats of these two
        ([[], []], (2, 0)),
        (((), ()), (2, 0)),
    ],
)
def test_an_empty_batch_works_and_its_gradients_are_zero(idx, shape):
    layer = a_layer()
    assert layer.forward(idx).shape == (*shape, C)
    assert layer.cache[0].shape == shape
    layer.backward(np.zeros((*shape, C)))
    assert_same_bytes(layer.dE, np.zeros((VOCAB, C)))
    assert_same_bytes(layer.dP, np.zeros((BLOCK, C)))


# Backward


def test_backward_follows_its_formula():
    layer = a_layer()
    layer.forward(IDX)
    assert layer.backward(a_dout()) is None  # ids have no gradient
    dE, dP = by_formula(a_dout())
    assert_same_bytes(layer.dE, dE)
    assert_same_bytes(layer.dP, dP)


def test_backward_agrees_with_a_plain_double_loop():
    layer, dout = a_layer(), a_dout()
    layer.forward(IDX)
    layer.backward(dout)
    dE, dP = np.zeros((VOCAB, C)), np.zeros((BLOCK, C))
    for b in range(B):
        for t in range(T):
            dE[IDX[b, t]] += dout[b, t]
            dP[t] += dout[b, t]
    assert_same_bytes(layer.dE, dE)
    assert_same_bytes(layer.dP, dP)


def test_rows_that_were_not_used_are_exactly_zero():
    layer = a_layer()
    layer.forward(IDX)
    layer.backward(a_dout())
    unused = np.setdiff1d(np.arange(VOCAB), IDX)
    assert unused.tolist() == [3, 5, 6, 7, 8]
    assert np.all(layer.dE[unused] == 0)
    assert np.all(layer.dP[T:] == 0)
    assert np.all(layer.dP[:T] != 0)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("many", [64, 1024])  # fewer ids than rows of E; more
def test_a_large_batch_gives_the_same_bytes(many, dtype):
    rng = np.random.default_rng(0)
    layer = EmbeddingLayer(vocab_size=100, block_size=16, C=48)
    layer.E, layer.P = layer.E.astype(dtype), layer.P.astype(dtype)
    idx = rng.integers(0, 100, (many // 16, 16))
    dout = rng.standard_normal((*idx.shape, 48)).astype(dtype)
    assert_same_bytes(layer.forward(idx), layer.E[idx] + layer.P)
    layer.backward(dout)
    dE = np.zeros_like(layer.E)
    np.add.at(dE, idx, dout)
    assert_same_bytes(layer.dE, dE)
    assert_same_bytes(layer.dP, dout.sum(axis=0))


def test_gradients_are_fresh_at_each_call():
    layer = a_layer()
    layer.forward(IDX)
    layer.backward(a_dout())
    old = layer.dE, layer.dP
    layer.backward(a_dout(seed=1))
    dE, dP = by_formula(a_dout(seed=1))
    assert_same_bytes(layer.dE, dE)  # never the sum of both calls
    assert_same_bytes(layer.dP, dP)
    dE, dP = by_formula(a_dout())
    assert_same_bytes(old[0], dE)  # whoever kept them still has them
    assert_same_bytes(old[1], dP)


def test_backward_leaves_tables_cache_and_dout_alone():
    layer, dout = a_layer(), a_dout()
    layer.forward(IDX)
    before = snapshot(layer)
    layer.backward(dout)
    assert_unchanged(layer, before, ("E", "P", "cache"))
    assert_same_bytes(dout, a_dout())


def test_a_shorter_batch_leaves_no_trace_of_a_longer_one():
    layer = a_layer()
    layer.forward(IDX)
    layer.backward(a_dout())
    layer.forward(IDX[:, :2])
    layer.backward(a_dout(B, 2, C))
    dE, dP = by_formula(a_dout(B, 2, C), IDX[:, :2])
    assert_same_bytes(layer.dE, dE)
    assert_same_bytes(layer.dP, dP)


WHOLE = np.arange(B * T * C).reshape(B, T, C) - 7


@pytest.mark.parametrize(
    "dout",
    [
        pytest.param(WHOLE.tolist(), id="lists"),
        *(
            pytest.param(WHOLE.astype(d), id=d)
            for d in ["i1", "i8", "f2", "f4", "f8", ">f8", "g"]
        ),
        pytest.param(read_only(WHOLE * 1.0), id="read-only"),
        pytest.param(np.asfortranarray(WHOLE * 1.0), id="Fortran-ordered"),
        pytest.param(
            np.repeat(WHOLE * 1.0, 2, axis=2)[..., ::2], id="strided"
        ),
    ],
)
def test_every_form_of_the_same_dout_gives_the_same_bytes(dout):
    # Whole numbers: their sums are exact in any order and precision.
    layer = a_layer()
    layer.forward(IDX)
    layer.backward(dout)
    dE, dP = by_formula(WHOLE * 1.0)
    assert_same_bytes(layer.dE, dE)
    assert_same_bytes(layer.dP, dP)


def test_a_small_integer_dout_does_not_overflow():
    layer = a_layer()
    layer.forward(IDX)
    layer.backward(np.full((B, T, C), 100, np.int8))
    assert np.all(layer.dE[4] == 300)
    assert np.all(layer.dP[:T] == 200)


def test_float32_tables_stay_float32():
    layer = a_layer()
    layer.E, layer.P = layer.E.astype("f4"), layer.P.astype("f4")
    out = layer.forward(IDX)
    assert_same_bytes(out, layer.E[IDX] + layer.P[:T])
    layer.backward(a_dout())
    dE, dP = by_formula(a_dout().astype("f4"), dtype="f4")
    assert_same_bytes(layer.dE, dE)
    assert_same_bytes(layer.dP, dP)


def test_two_layers_never_share_state():
    one, other = a_layer(), a_layer()
    one.forward(IDX)
    one.backward(a_dout())
    before = snapshot(one)
    other.forward(IDX[:, :2])
    other.backward(a_dout(B, 2, C))
    other.E += 1
    other.P += 1
    assert_unchanged(one, before)


def test_repeated_calls_give_the_same_bytes():
    layer = a_layer()
    first = layer.forward(IDX)
    layer.backward(a_dout())
    dE, dP = layer.dE, layer.dP
    assert_same_bytes(layer.forward(IDX), first)
    layer.backward(a_dout())
    assert_same_bytes(layer.dE, dE)
    assert_same_bytes(layer.dP, dP)


# Bad input


def snapshot(layer):
    """Every attribute: the object itself, and what it holds."""
    return {k: (v, contents(v)) for k, v in vars(layer).items()}


def contents(value):
    if isinstance(value, tuple):
        return [contents(v) for v in value]
    return value.tobytes() if isinstance(value, np.ndarray) else value


def assert_unchanged(layer, before, names=NAMES):
    for name in names:
        value, held = before[name]
        assert getattr(layer, name) is value, name
        assert contents(value) == held, name


def a_used_layer(calls):
    layer = a_layer()
    if "forward" in calls:
        layer.forward(IDX)
    if "backward" in calls:
        layer.backward(a_dout())
    return layer


def with_id(i, b, t, dtype=np.int64):
    idx = IDX.astype(dtype)
    idx[b, t] = i
    return idx


def outside(i, b, t):
    return f"id {i} at (b, t) = ({b}, {t}) is outside 0..10 (vocab_size is 11)"


def not_2d(shape, reshape):
    return (
        f"idx must have shape (B, T), got shape {shape}; "
        f"idx.reshape{reshape} has two dimensions"
    )


BAD_IDX = [
    *(
        pytest.param(
            np.zeros((2, 5), d),
            TypeError,
            f"idx must hold integers, got dtype {np.dtype(d)}",
            id=d,
        )
        for d in ["f8", "f2", "c16", "?", "U3", "S3", "O", "M8[s]"]
    ),
    pytest.param(
        [[1, 2.0]], TypeError, "idx must hold integers, got dtype float64"
    ),
    # Empty floats come from np.zeros((2, 0)): the dtype is still wrong.
    pytest.param(
        np.zeros((2, 0)),
        TypeError,
        "idx must hold integers, got dtype float64",
        id="empty floats",
    ),
    pytest.param(IDX[0], ValueError, not_2d((5,), (1, 5)), id="1-d"),
    pytest.param(np.array(4), ValueError, not_2d((), (1, 1)), id="0-d"),
    pytest.param(
        np.zeros((2, 3, 4), int),
        ValueError,
        not_2d((2, 3, 4), (6, 4)),
        id="3-d",
    ),
    pytest.param([], ValueError, not_2d((0,), (0, 0)), id="empty 1-d"),
    # NumPy would read these two from the end of the table.
    pytest.param(with_id(-1, 0, 3), IndexError, outside(-1, 0, 3), id="-1"),
    pytest.param(
        with_id(-11, 1, 0, np.int8), IndexError, outside(-11, 1, 0), id="-11"
    ),
    pytest.param(with_id(11, 1, 4), IndexError, outside(11, 1, 4), id="11"),
    pytest.param(
        with_id(2**63, 0, 0, np.uint64),
        IndexError,
        outside(2**63, 0, 0),
        id="beyond int64",
    ),
    # Reading order: the first in the batch is named, not the largest.
    pytest.param(
        [[0, 1], [12, -5], [99, 0]], IndexError, outside(12, 1, 0), id="many"
    ),
    pytest.param(
        np.zeros((2, 8), int),
        ValueError,
        "T = 8 is larger than block_size = 7",
        id="T one too long",
    ),
    pytest.param(
        np.zeros((0, 8), int),
        ValueError,
        "T = 8 is larger than block_size = 7",
        id="T too long, empty",
    ),
]


@pytest.mark.parametrize("calls", ["", "forward", "forward, backward"])
@pytest.mark.parametrize(("idx", "error", "message"), BAD_IDX)
def test_a_bad_idx_is_named_and_changes_nothing(calls, idx, error, message):
    layer = a_used_layer(calls)
    before = snapshot(layer)
    with pytest.raises(error) as caught:
        layer.forward(idx)
    assert str(caught.value) == message
    assert_unchanged(layer, before)


def test_T_above_a_block_size_of_one_is_no_broadcast():
    # E[idx] + P[:T] would add the one row of P to every position.
    layer = EmbeddingLayer(VOCAB, 1, C)
    with pytest.raises(ValueError, match="T = 5 is larger .* block_size = 1"):
        layer.forward(IDX)


def test_a_ragged_list_is_refused_and_changes_nothing():
    layer = a_used_layer("forward, backward")
    before = snapshot(layer)
    says = r"^idx must have shape \(B, T\): its sequences differ in length$"
    with pytest.raises(ValueError, match=says):
        layer.forward([[1, 2], [3]])
    assert_unchanged(layer, before)


def test_the_reshape_that_the_error_shows_mends_it():
    layer, idx = a_layer(), np.arange(5)
    with pytest.raises(ValueError) as caught:
        layer.forward(idx)
    mend = str(caught.value).split("; ")[1].split(" has")[0]
    assert layer.forward(eval(mend)).shape == (1, 5, C)


def wrong_shape(shape):
    return f"dout has shape {shape}, but forward returned (2, 5, 3)"


BAD_DOUT = [
    # NumPy would broadcast the first four without a word.
    (a_dout(1, T, C), ValueError, wrong_shape((1, 5, 3))),
    (a_dout(T, C), ValueError, wrong_shape((5, 3))),
    (a_dout(B, T, 1), ValueError, wrong_shape((2, 5, 1))),
    (1.0, ValueError, wrong_shape(())),
    (a_dout(T, B, C), ValueError, wrong_shape((5, 2, 3))),
    (a_dout(B, T, C, 1), ValueError, wrong_shape((2, 5, 3, 1))),
    (a_dout(0, T, C), ValueError, wrong_shape((0, 5, 3))),
    *(
        (
            np.zeros((B, T, C), d),
            TypeError,
            f"dout must hold real numbers, got dtype {np.dtype(d)}",
        )
        for d in ["c16", "?", "U3", "O", "m8[s]"]
    ),
    (None, TypeError, "dout must hold real numbers, got dtype object"),
]


@pytest.mark.parametrize("calls", ["forward", "forward, backward"])
@pytest.mark.parametrize(("dout", "error", "message"), BAD_DOUT)
def test_a_bad_dout_is_named_and_changes_nothing(calls, dout, error, message):
    layer = a_used_layer(calls)
    before = snapshot(layer)
    with pytest.raises(error) as caught:
        layer.backward(dout)
    assert str(caught.value) == message
    assert_unchanged(layer, before)


def test_backward_needs_a_forward_first():
    layer = a_layer()
    before = snapshot(layer)
    with pytest.raises(RuntimeError) as caught:
        layer.backward(a_dout())
    assert str(caught.value) == "backward needs a forward first: cache is None"
    assert_unchanged(layer, before)


def test_an_error_in_forward_leaves_backward_to_the_last_good_one():
    layer = a_used_layer("forward")
    with pytest.raises(IndexError):
        layer.forward([[99]])
    layer.backward(a_dout())
    assert_same_bytes(layer.dE, by_formula(a_dout())[0])
