import numpy as np
import pytest

from lantern_embed import (
    EmbeddingLayer,
    chars,
    check_gradients,
    data,
    encode,
    numeric_grad,
    rel_err,
    scalar_loss,
)
from lantern_embed.gradcheck import GradientReport, TableCheck

# All sizes differ and T < block_size, so that a swapped axis cannot pass.
VOCAB, BLOCK, B, T, C = 11, 7, 2, 5, 3
# 4, 9 and 1 repeat, within a row and across rows; 3 and 5 to 8 are unused.
IDX = np.array([[4, 0, 4, 9, 2], [9, 4, 1, 1, 10]])
G = np.random.default_rng(3).standard_normal((B, T, C))


def a_layer(kind=EmbeddingLayer, *args):
    return kind(VOCAB, BLOCK, C, *args)


def snapshot(layer):
    """Every attribute: the object itself, and its bytes."""
    return {
        name: (value, value.tobytes() if hasattr(value, "tobytes") else value)
        for name, value in vars(layer).items()
    }


def assert_unchanged(layer, before):
    assert vars(layer).keys() == before.keys()
    for name, (value, held) in before.items():
        now = getattr(layer, name)
        assert now is value, name
        assert held == (now.tobytes() if hasattr(now, "tobytes") else now)


# The two lines that never change


def course_errors():
    layer, idx = EmbeddingLayer(24, 32, 8), data[:10].reshape(2, 5)
    G = np.random.default_rng(0).standard_normal((2, 5, 8))
    layer.forward(idx)
    layer.backward(G)
    return (
        rel_err(layer.dE, numeric_grad(layer, idx, layer.E, G)),
        rel_err(layer.dP, numeric_grad(layer, idx, layer.P, G)),
    )


def test_the_two_error_lines_hold_to_the_last_digit():
    dE_err, dP_err = course_errors()
    assert f"max rel err  dE: {dE_err}" == (
        "max rel err  dE: 2.4590216652835383e-10"
    )
    assert f"max rel err  dP: {dP_err}" == (
        "max rel err  dP: 4.654007604730881e-11"
    )


def dyadic(rng, *shape):
    """Random multiples of 1/64: sums and products of them are exact."""
    return rng.integers(-64, 65, shape) / 64


def test_with_dyadic_fractions_the_error_is_zero_and_not_just_small():
    rng, layer = np.random.default_rng(5), a_layer()
    layer.E, layer.P = dyadic(rng, VOCAB, C), dyadic(rng, BLOCK, C)
    G = dyadic(rng, B, T, C)
    layer.forward(IDX)
    layer.backward(G)
    for table, grad in [(layer.E, layer.dE), (layer.P, layer.dP)]:
        assert np.any(grad != 0)
        numeric = numeric_grad(layer, IDX, table, G, eps=2**-10)
        assert np.array_equal(numeric, grad)
        assert rel_err(numeric, grad) == 0.0


# scalar_loss


def test_the_loss_is_the_sum_of_products_taken_one_by_one():
    out = np.random.default_rng(4).standard_normal((B, T, C))
    loss = scalar_loss(out, G)
    assert type(loss) is float
    assert loss == np.sum(out * G)


@pytest.mark.parametrize("shape", [(1, T, C), (T, C), (), (B, T, C, 1)])
def test_the_loss_refuses_a_G_that_NumPy_would_broadcast(shape):
    with pytest.raises(ValueError) as caught:
        scalar_loss(np.ones((B, T, C)), np.ones(shape))
    assert str(caught.value) == (
        f"G has shape {shape}, but the output has (2, 5, 3)"
    )


# rel_err


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param([1.0, 2.0], [1.0, 6.0], 0.5, id="the worst entry"),
        pytest.param([1.0, 2.0], [1.0, 2.0], 0.0, id="equal"),
        pytest.param([1.0], [-1.0], 1.0, id="opposite signs"),
        pytest.param([3.0], [0.0], 1.0, id="one of them zero"),
        pytest.param([0.0], [0.0], 0.0, id="both zero"),
        pytest.param([0.0], [1e-13], 0.1, id="below the floor of 1e-12"),
        pytest.param([[1.0], [3.0]], [[1.0], [1.0]], 0.5, id="2-d"),
        pytest.param(1, 3, 0.5, id="plain numbers"),
        pytest.param([], [], 0.0, id="nothing to compare"),
        # In 8 bits, 1 - 3 is 254 and 100 - -100 is -56.
        pytest.param(np.uint8([1]), np.uint8([3]), 0.5, id="unsigned"),
        pytest.param(np.int8([100]), np.int8([-100]), 1.0, id="8 bits"),
    ],
)
def test_rel_err_of(a, b, expected):
    assert rel_err(a, b) == pytest.approx(expected, rel=1e-15, abs=0)
    assert rel_err(b, a) == rel_err(a, b)
    assert type(rel_err(a, b)) is float


def test_rel_err_never_exceeds_one():
    rng = np.random.default_rng(0)
    a = rng.standard_normal(999) * 10.0 ** rng.integers(-300, 300, 999)
    assert rel_err(a, rng.permutation(a)) <= 1


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1.0, np.nan, 1.0], [1.0, 1.0, 1.0]),
        ([np.nan], [np.nan]),
        ([np.inf], [np.inf]),
        ([np.inf], [1.0]),
        ([1.7e308], [-1.7e308]),  # the difference overflows
    ],
)
def test_rel_err_is_nan_where_it_has_no_value_and_nan_fails(a, b):
    assert np.isnan(rel_err(a, b))
    assert not rel_err(a, b) <= 1


def test_rel_err_refuses_arrays_that_NumPy_would_broadcast():
    with pytest.raises(ValueError) as caught:
        rel_err(np.ones((2, 3)), np.ones(3))
    assert str(caught.value) == "shapes differ: (2, 3) and (3,)"


# numeric_grad


class Recorder(EmbeddingLayer):
    """Raises `error` at the n-th forward; n is None: never."""

    n = error = None
    seen = ()

    def forward(self, idx):
        self.seen += ((self.E.copy(), self.P.copy()),)
        if len(self.seen) == self.n:
            raise self.error
        return super().forward(idx)


@pytest.mark.parametrize("table", ["E", "P"])
def test_one_entry_at_a_time_moves_by_eps_each_way(table):
    layer = a_layer(Recorder)
    start = getattr(layer, table).copy()
    numeric_grad(layer, IDX, getattr(layer, table), G, eps=0.125)
    moved = [(E if table == "E" else P) - start for E, P in layer.seen]
    kept = [P if table == "E" else E for E, P in layer.seen]
    assert len(moved) == 2 * start.size
    for i in range(start.size):
        expected = np.zeros(start.size)
        expected[i] = 0.125
        expected = expected.reshape(start.shape)
        np.testing.assert_allclose(moved[2 * i], expected, rtol=1e-15)
        np.testing.assert_allclose(moved[2 * i + 1], -expected, rtol=1e-15)
    assert all(k.tobytes() == kept[0].tobytes() for k in kept)


@pytest.mark.parametrize("table", ["E", "P"])
def test_every_entry_is_put_back_exactly(table):
    # Adding eps and taking it away again would lose last digits.
    layer = a_layer()
    before = layer.E.tobytes(), layer.P.tobytes()
    numeric_grad(layer, IDX, getattr(layer, table), G, eps=0.1)
    assert (layer.E.tobytes(), layer.P.tobytes()) == before


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("n", [1, 2, 7, 8])  # odd: entry up; even: down
@pytest.mark.parametrize("table", ["E", "P"])
def test_every_entry_is_put_back_also_when_forward_raises(table, n, error):
    layer = a_layer(Recorder)
    layer.n, layer.error = n, error
    before = layer.E.tobytes(), layer.P.tobytes()
    with pytest.raises(error):
        numeric_grad(layer, IDX, getattr(layer, table), G, eps=0.1)
    assert len(layer.seen) == n
    assert (layer.E.tobytes(), layer.P.tobytes()) == before


def test_a_G_of_another_shape_is_refused_with_the_table_put_back():
    layer = a_layer()
    before = layer.E.tobytes()
    with pytest.raises(ValueError, match=r"G has shape \(5, 3\)"):
        numeric_grad(layer, IDX, layer.E, G[0], eps=0.1)
    assert layer.E.tobytes() == before


def test_signed_zeros_and_nan_payloads_are_put_back_too():
    layer = a_layer()
    layer.E[3, 0], layer.E[5, 1] = -0.0, -np.nan
    before = layer.E.tobytes()
    numeric_grad(layer, IDX, layer.E, G)
    assert layer.E.tobytes() == before


def test_the_step_is_a_millionth_unless_given():
    layer = a_layer()
    assert np.array_equal(
        numeric_grad(layer, IDX, layer.E, G),
        numeric_grad(layer, IDX, layer.E, G, 1e-6),
    )


def test_lists_do_for_idx_and_G():
    layer = a_layer()
    assert np.array_equal(
        numeric_grad(layer, IDX.tolist(), layer.E, G.tolist()),
        numeric_grad(layer, IDX, layer.E, G),
    )


def test_G_may_hold_integers():
    layer, ones = EmbeddingLayer(VOCAB, BLOCK, C), np.ones((B, T, C))
    np.testing.assert_array_equal(
        numeric_grad(layer, IDX, layer.E, ones.astype(int)),
        numeric_grad(layer, IDX, layer.E, ones),
    )


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda layer: layer.E.copy(), id="copy"),
        pytest.param(lambda layer: layer.E[:], id="view"),
        pytest.param(lambda layer: a_layer().P, id="another layer's"),
    ],
)
def test_a_table_that_is_not_the_layers_own_is_refused(other):
    layer = a_layer()
    with pytest.raises(ValueError) as caught:
        numeric_grad(layer, IDX, other(layer), G)
    assert str(caught.value) == (
        "table must be layer.E or layer.P itself: moving an entry of a "
        "copy does not move the loss"
    )


FLOAT32 = (
    "the table must be float64, got float32: in float32 a step of 1e-6 "
    "drowns in rounding, and a right gradient would fail"
)


@pytest.mark.parametrize("name", ["E", "P"])
def test_a_float32_table_is_refused_and_told_why(name):
    layer = a_layer()
    setattr(layer, name, getattr(layer, name).astype("f4"))
    before = snapshot(layer)
    with pytest.raises(TypeError) as caught:
        numeric_grad(layer, IDX, getattr(layer, name), G)
    assert str(caught.value) == FLOAT32
    with pytest.raises(TypeError) as caught:
        check_gradients(layer, IDX, G)
    assert str(caught.value) == FLOAT32
    assert_unchanged(layer, before)


@pytest.mark.parametrize("eps", [0, 0.0, -1e-6, np.inf, np.nan])
def test_an_eps_that_is_no_step_is_refused(eps):
    layer = a_layer()
    before = snapshot(layer)
    for call in (
        lambda: numeric_grad(layer, IDX, layer.P, G, eps=eps),
        lambda: check_gradients(layer, IDX, G, eps=eps),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == (
            f"eps must be positive and finite, got {eps}"
        )
    assert_unchanged(layer, before)


# check_gradients: right layers


@pytest.mark.parametrize(
    "G",
    [None, G, G.tolist(), 1e6 * G],
    ids=["default", "array", "list", "huge"],
)
def test_a_right_layer_passes(G):
    report = check_gradients(a_layer(), IDX, G)
    assert report.passed
    assert report.blind == ()
    for table, rows in zip(report.tables, (VOCAB, BLOCK), strict=True):
        assert table.passed
        assert table.reason == ""
        assert (table.rows_checked, table.rows) == (rows, rows)
        assert 0 < table.max_rel < 1e-6


def test_both_tables_are_named():
    report = check_gradients(a_layer(), IDX, G)
    assert [t.name for t in report.tables] == ["dE", "dP"]


def test_the_report_agrees_with_numeric_grad():
    layer = a_layer()
    report = check_gradients(layer, IDX, G)
    layer.forward(IDX)
    layer.backward(G)
    for found, table, grad in zip(
        report.tables,
        (layer.E, layer.P),
        (layer.dE, layer.dP),
        strict=True,
    ):
        numeric = numeric_grad(layer, IDX, table, G)
        assert found.max_rel == rel_err(grad, numeric)
        assert found.max_abs == np.max(np.abs(grad - numeric))
        assert found.analytic == grad[found.row, found.col]
        assert found.numeric == numeric[found.row, found.col]


def test_eps_reaches_both_tables():
    # With dyadic data and a dyadic eps nothing is left to round.
    rng, layer = np.random.default_rng(5), a_layer()
    layer.E, layer.P = dyadic(rng, VOCAB, C), dyadic(rng, BLOCK, C)
    report = check_gradients(layer, IDX, dyadic(rng, B, T, C), eps=2**-10)
    assert [t.max_abs for t in report.tables] == [0.0, 0.0]
    assert [t.max_rel for t in report.tables] == [0.0, 0.0]


@pytest.mark.parametrize("calls", ["", "forward", "forward, backward"])
def test_the_layer_is_left_as_it_was(calls):
    layer = a_layer()
    if "forward" in calls:
        layer.forward(IDX[:1, :2])
    if "backward" in calls:
        layer.backward(G[:1, :2])
    before = snapshot(layer)
    check_gradients(layer, IDX, G)
    assert_unchanged(layer, before)


def test_read_only_tables_can_be_checked():
    # The check moves entries of a copy, never of the layer itself.
    layer = a_layer()
    layer.E.flags.writeable = layer.P.flags.writeable = False
    assert check_gradients(layer, IDX, G).passed


class RaisesInBackward(EmbeddingLayer):
    def backward(self, dout):
        super().backward(dout)
        self.E += 1
        raise ZeroDivisionError


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_layer_is_left_as_it_was_when_its_forward_raises(n, error):
    layer = a_layer(Recorder)
    layer.n, layer.error = n, error
    before = snapshot(layer)
    with pytest.raises(error):
        # The first call is the check's own, the others are differences.
        check_gradients(layer, IDX, G)
    assert_unchanged(layer, before)


def test_the_layer_is_left_as_it_was_when_its_backward_raises():
    layer = a_layer(RaisesInBackward)
    before = snapshot(layer)
    with pytest.raises(ZeroDivisionError):
        check_gradients(layer, IDX, G)
    assert_unchanged(layer, before)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"G": G[0]}, ValueError, "G has shape .*, but the output has"),
        ({"G": G[:1]}, ValueError, "G has shape .*, but the output has"),
        ({"idx": [[99]]}, IndexError, "id 99"),
        ({"sample": 0}, ValueError, "^sample must be at least 1, got 0$"),
        ({"sample": -1}, ValueError, "^sample must be at least 1, got -1$"),
        ({"sample": 1.5}, TypeError, "integer"),
    ],
)
def test_bad_arguments_are_refused_and_change_nothing(
    arguments, error, message
):
    layer = a_layer()
    before = snapshot(layer)
    with pytest.raises(error, match=message):
        check_gradients(layer, **{"idx": IDX, **arguments})
    assert_unchanged(layer, before)


@pytest.mark.parametrize(
    "idx", [np.zeros((0, 5), int), np.zeros((2, 0), int), [[]], [[], []]]
)
@pytest.mark.parametrize("sample", [None, 2])
def test_an_empty_batch_is_checked_too(idx, sample):
    report = check_gradients(a_layer(), idx, sample=sample)
    assert report.passed
    assert report.blind[0] == "the batch is empty: any zero gradient passes"


class KeepsDout(EmbeddingLayer):
    douts = []  # of the class: the check works on copies of the layer

    def backward(self, dout):
        self.douts.append(dout)
        super().backward(dout)


@pytest.mark.parametrize(("arguments", "seed"), [({}, 0), ({"seed": 5}, 5)])
def test_G_is_standard_normal_with_a_seed_unless_given(arguments, seed):
    check_gradients(a_layer(KeepsDout), IDX, **arguments)
    expected = np.random.default_rng(seed).standard_normal((B, T, C))
    assert np.array_equal(KeepsDout.douts[-1], expected)


# check_gradients: planted bugs


def adding(name, row, col, amount):
    """A layer whose backward is right but for one entry."""

    class OneEntryOff(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            getattr(self, name)[row, col] += amount

    return a_layer(OneEntryOff)


@pytest.mark.parametrize(
    ("name", "row", "col"),
    [
        ("dE", 4, 1),
        ("dE", 0, 0),
        ("dE", 10, 2),
        ("dP", 0, 2),
        ("dP", 4, 0),
    ],
)
def test_one_wrong_entry_is_found_and_shown(name, row, col):
    layer = adding(name, row, col, 1.0)
    report = check_gradients(layer, IDX, G)
    assert not report.passed
    bad, good = report.tables if name == "dE" else report.tables[::-1]
    assert (bad.passed, good.passed) == (False, True)
    assert (bad.name, bad.row, bad.col) == (name, row, col)
    right = a_layer()
    right.forward(IDX)
    right.backward(G)
    value = getattr(right, name)[row, col]
    assert bad.analytic == value + 1
    assert bad.numeric == pytest.approx(value, abs=1e-8)
    assert bad.max_abs == pytest.approx(1, abs=1e-8)
    assert bad.max_rel == pytest.approx(
        1 / (abs(value + 1) + abs(value)), rel=1e-6
    )
    assert f"{name}[{row}, {col}]" in bad.reason
    assert good.reason == ""


@pytest.mark.parametrize(
    ("name", "row", "col"),
    # The first unused row, the last, and one in between.
    [("dE", 3, 1), ("dE", 8, 2), ("dE", 6, 0), ("dP", 5, 2), ("dP", 6, 0)],
)
@pytest.mark.parametrize("amount", [1e-300, -1e-300, 5e-324])
def test_an_unused_row_must_be_zero_and_not_just_small(name, row, col, amount):
    report = check_gradients(adding(name, row, col, amount), IDX, G)
    bad = report.tables[name == "dP"]
    assert not bad.passed
    assert (bad.row, bad.col) == (row, col)
    assert (bad.analytic, bad.numeric) == (amount, 0.0)
    assert bad.reason


def test_a_speck_in_an_unused_row_outranks_a_used_row_that_is_far_off():
    class TwoEntriesOff(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            self.dE[4, 1] += 100
            self.dE[8, 2] = 1e-300

    bad = check_gradients(a_layer(TwoEntriesOff), IDX, G).tables[0]
    assert (bad.row, bad.col) == (8, 2)


ZERO_AT = G.copy()
ZERO_AT[0, 4] = 0  # the one use of row 2


@pytest.mark.parametrize(
    ("amount", "passes"),
    [(1e-8, True), (-1e-8, True), (np.nextafter(1e-8, 1), False)],
)
def test_the_absolute_tolerance_is_1e_8_and_included(amount, passes):
    # Of a used row whose gradient is exactly 0, so that nothing rounds.
    layer = adding("dE", 2, 1, amount)
    dE = check_gradients(layer, IDX, ZERO_AT).tables[0]
    assert dE.passed is passes
    assert (dE.max_abs, dE.max_rel) == (abs(amount), 1.0)


@pytest.mark.parametrize(
    ("factor", "passes"), [(1 + 1.99e-5, True), (1 + 2.01e-5, False)]
)
def test_the_relative_tolerance_is_1e_5(factor, passes):
    # |a - b| / (|a| + |b|) is 1e-5 at a factor of 1 + 2e-5.
    class Scaled(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            self.dP *= factor

    dP = check_gradients(a_layer(Scaled), IDX, 1e3 * G).tables[1]
    assert dP.max_abs > 1e-3  # so the absolute tolerance is no help
    assert dP.passed is passes


class AddsUnsafely(EmbeddingLayer):
    def backward(self, dout):
        super().backward(dout)
        self.dE = np.zeros_like(self.E)
        self.dE[self.cache[0]] += dout


def test_a_scatter_that_loses_repeats_fails_on_dE_alone():
    dE, dP = check_gradients(a_layer(AddsUnsafely), IDX, G).tables
    assert (dE.passed, dP.passed) == (False, True)
    assert dE.row in (1, 4, 9)  # the ids that repeat
    assert dE.reason


def test_the_diagnosis_calls_rows_by_their_names():
    layer = EmbeddingLayer(24, 32, C)
    layer.__class__ = AddsUnsafely
    idx = [encode("the lamp keeper ")]
    reason = check_gradients(layer, idx, names=chars).tables[0].reason
    assert any(f"row {c!r}" in reason for c in " eap")


@pytest.mark.parametrize(
    "grad",
    [
        pytest.param(lambda g: None, id="None"),
        pytest.param(lambda g: g[:-1], id="a row short"),
        pytest.param(lambda g: g.T, id="transposed"),
        pytest.param(lambda g: g[None], id="3-d"),
        pytest.param(lambda g: g.tolist(), id="list"),
        pytest.param(lambda g: g.astype(complex), id="complex"),
        pytest.param(lambda g: g.astype(object), id="objects"),
        pytest.param(lambda g: g != 0, id="booleans"),
    ],
)
@pytest.mark.parametrize("name", ["dE", "dP"])
def test_a_gradient_that_cannot_be_compared_fails_with_a_reason(name, grad):
    class Odd(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            setattr(self, name, grad(getattr(self, name)))

    report = check_gradients(a_layer(Odd), IDX, G)
    bad, good = report.tables if name == "dE" else report.tables[::-1]
    assert (bad.passed, good.passed) == (False, True)
    assert bad.reason
    assert (bad.name, bad.row, bad.col) == (name, None, None)
    assert (bad.rows_checked, bad.rows) == (0, VOCAB if name == "dE" else 7)
    assert np.isnan([bad.max_rel, bad.max_abs]).all()
    assert "nan" in str(report)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_fails_and_is_shown(value):
    class NotFinite(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            self.dE[9, 2] = value

    dE = check_gradients(a_layer(NotFinite), IDX, G).tables[0]
    assert not dE.passed
    assert (dE.row, dE.col) == (9, 2)
    assert dE.reason


def test_of_two_entries_beyond_all_measure_the_first_is_shown():
    class TwoEntriesOff(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            self.dE[3, 2] = 1e-300  # unused: must be exactly zero
            self.dE[9, 1] = np.nan

    dE = check_gradients(a_layer(TwoEntriesOff), IDX, G).tables[0]
    assert (dE.row, dE.col) == (3, 2)


def test_an_integer_gradient_is_compared_like_any_other():
    class Whole(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            self.dP = self.dP.astype(int)

    whole = (8 * G).round()
    assert check_gradients(a_layer(Whole), IDX, whole).tables[1].max_abs < 1e-6


@pytest.mark.parametrize("name", ["E", "P"])
@pytest.mark.parametrize("method", ["forward", "backward"])
def test_a_layer_that_changes_its_table_fails_on_that_table(name, method):
    def spoil(self, argument):
        result = getattr(EmbeddingLayer, method)(self, argument)
        getattr(self, name)[4, 1] *= 1.5
        return result

    layer = a_layer(type("Spoils", (EmbeddingLayer,), {method: spoil}))
    report = check_gradients(layer, IDX, G, names="abcdefghijk")
    bad, other = report.tables if name == "E" else report.tables[::-1]
    assert not bad.passed
    assert bad.reason.startswith(f"{name} itself changed")
    assert (name == "E") == ("row 'e'" in bad.reason)  # P has no names
    # The numbers are right after a backward: that it changed must do.
    assert (bad.max_rel < 1e-5) == (method == "backward")
    assert other.passed == (method == "backward")
    assert other.passed or other.reason == bad.reason


def test_a_forward_that_is_wrong_fails():
    class ForgetsP(EmbeddingLayer):
        def forward(self, idx):
            return super().forward(idx) - self.P[: idx.shape[1]]

    names = "abcdefghijk"
    dE, dP = check_gradients(a_layer(ForgetsP), IDX, G, names=names).tables
    assert dE.passed  # E does its part
    assert not dP.passed
    assert dP.reason.startswith(
        "forward is not E[idx] + P[:T]: P was forgotten"
    )
    assert "row 'e'" in dP.reason


def test_a_forward_that_is_scaled_fails_both_tables():
    class Doubles(EmbeddingLayer):
        def forward(self, idx):
            return 2 * super().forward(idx)

    for table in check_gradients(a_layer(Doubles), IDX, G).tables:
        assert not table.passed
        assert table.reason.startswith(
            "forward is not E[idx] + P[:T]: out is scaled"
        )


def test_when_only_the_differences_are_wrong_the_report_says_so():
    # A step so small that it vanishes beside the entry moves nothing.
    report = check_gradients(a_layer(), IDX, G, eps=1e-30)
    for table in report.tables:
        assert not table.passed
        assert table.numeric == 0
        assert table.reason == (
            "backward and forward both follow their formulas, so the "
            "measured slopes are at fault: is G finite, does forward read "
            "E and P themselves? Then try a larger eps"
        )


# check_gradients: a sample


def test_a_sample_measures_as_many_used_rows_as_asked():
    for sample in range(1, 5):
        dE, dP = check_gradients(a_layer(), IDX, G, sample=sample).tables
        assert (dE.rows_checked, dE.rows) == (sample, VOCAB)
        assert (dP.rows_checked, dP.rows) == (sample, BLOCK)


def test_a_sample_may_be_larger_than_the_table():
    dE, dP = check_gradients(a_layer(), IDX, G, sample=999).tables
    assert (dE.rows_checked, dP.rows_checked) == (6, T)  # the used rows
    assert dE.passed and dP.passed


def test_a_sample_may_be_a_NumPy_integer():
    report = check_gradients(a_layer(), IDX, G, sample=np.int8(2))
    assert report.tables[0].rows_checked == 2


def test_a_sample_holds_used_rows_only_and_in_the_end_all_of_them():
    rows = {"dE": set(), "dP": set()}
    for seed in range(40):
        for table in check_gradients(
            a_layer(), IDX, G, sample=1, seed=seed
        ).tables:
            rows[table.name].add(table.row)
    assert rows == {"dE": set(IDX.flat), "dP": set(range(T))}


def test_a_sample_is_drawn_with_its_seed():
    reports = [
        str(check_gradients(a_layer(), IDX, G, sample=2, seed=seed))
        for seed in (1, 1, 2)
    ]
    assert reports[0] == reports[1] != reports[2]


def test_a_sample_reads_the_values_of_the_rows_it_drew():
    for seed in range(10):
        layer = adding("dE", 4, 1, 1.0)
        dE = check_gradients(layer, IDX, G, sample=3, seed=seed).tables[0]
        if dE.passed:  # row 4 was not drawn
            assert dE.row != 4
        else:
            assert (dE.row, dE.col) == (4, 1)
            assert dE.max_abs == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize(
    ("name", "row", "col"),
    [("dE", 3, 1), ("dE", 8, 2), ("dP", 5, 2), ("dP", 6, 0)],
)
def test_a_sample_still_sees_an_unused_row_that_was_touched(name, row, col):
    layer = adding(name, row, col, 1e-300)
    bad = check_gradients(layer, IDX, G, sample=1).tables[name == "dP"]
    assert not bad.passed
    assert (bad.row, bad.col) == (row, col)
    assert bad.rows_checked == 2  # the one asked for, and this one


def test_a_sample_shows_the_first_of_many_touched_rows():
    class FillsAll(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            self.dE += 1

    dE = check_gradients(a_layer(FillsAll), IDX, G, sample=1).tables[0]
    assert (dE.row, dE.col, dE.rows_checked) == (3, 0, 2)


# check_gradients: what a batch cannot show

G_IS_FLAT = "G is the same at every (b, t): a mix-up of both passes"
G_REPEATS = "G is the same in every sequence: a mix-up of sequences passes"
NO_REPEAT = "no id repeats: a scatter that loses repeats passes"
B_IS_1 = "B is 1: a dP that leaves out sequences passes"
TWICE = "no id is used three times: a scatter that loses the third passes"
T_IS_1 = "T is 1: a mix-up of positions passes"
ALL_USED = "every row of E is used: none has to stay zero"
FULL_BLOCK = "T is block_size: no row of P has to stay zero"
EMPTY = "the batch is empty: any zero gradient passes"


@pytest.mark.parametrize(
    ("idx", "G", "blind"),
    [
        # vocab_size 5, block_size 4
        pytest.param([[0, 1, 0], [0, 2, 2]], None, (), id="sees all"),
        pytest.param(
            [[0, 1, 0], [0, 2, 2]], np.ones((2, 3, C)), (G_IS_FLAT,), id="ones"
        ),
        pytest.param(
            [[0, 1, 0], [0, 2, 2]],
            np.tile([1.0, -2.0, 3.0], (2, 3, 1)),
            (G_IS_FLAT,),
            id="the same row everywhere",
        ),
        pytest.param(
            [[0, 1, 0], [0, 2, 2]],
            np.repeat([[[1.0]], [[2.0]]], 3, axis=1).repeat(C, axis=2),
            (),
            id="constant along t only",
        ),
        pytest.param(
            [[0, 1, 0], [0, 2, 2], [1, 1, 2]],
            np.tile(np.arange(9.0).reshape(1, 3, C), (3, 1, 1)),
            (G_REPEATS,),
            id="the same G for each sequence",
        ),
        pytest.param(
            [[0, 1, 0], [0, 2, 2]],
            np.tile(np.arange(9.0).reshape(1, 3, C), (2, 1, 1)),
            (G_REPEATS,),
            id="the same G for both sequences",
        ),
        pytest.param([[0, 1], [2, 3]], None, (NO_REPEAT,), id="no repeat"),
        pytest.param([[0, 1, 0]], None, (TWICE, B_IS_1), id="one sequence"),
        pytest.param(
            [[0, 1, 2], [2, 3, 4]], None, (TWICE, ALL_USED), id="all ids"
        ),
        pytest.param(
            [[0, 1, 2, 2], [2, 3, 2, 0]], None, (FULL_BLOCK,), id="full block"
        ),
        pytest.param(
            [[3]],
            None,
            (G_IS_FLAT, NO_REPEAT, B_IS_1, T_IS_1),
            id="a single id",
        ),
        pytest.param(
            np.zeros((2, 0), int), None, (EMPTY, NO_REPEAT), id="empty"
        ),
    ],
)
def test_blind_spots_are_reported_exactly_where_there_are_some(idx, G, blind):
    layer = EmbeddingLayer(5, 4, C)
    report = check_gradients(layer, idx, G)
    assert report.passed
    assert report.blind == blind


# The report


def test_the_report_prints_as_an_aligned_table():
    report = GradientReport(
        tables=(
            TableCheck("dE", 11, 11, True, 4.5e-11, 6e-12, 1, 2, 0.5, 0.5),
            TableCheck(
                "dP",
                100,
                256,
                False,
                1.0,
                float("inf"),
                255,
                63,
                -1.23456789e-05,
                0.0,
                "row 255 was not used",
            ),
            TableCheck("dP", 0, 7, False, reason="dP is None"),
        ),
        blind=("B is 1", "no id repeats"),
    )
    assert not report.passed
    assert str(report).split("\n") == [
        "       rows     max rel   max abs   worst entry"
        "     analytic      numeric",
        "dE    11/11    4.50e-11  6.00e-12   [1, 2]     "
        "          0.5          0.5   pass",
        "dP  100/256    1.00e+00       inf   [255, 63]  "
        " -1.23457e-05            0   FAIL",
        "dP      0/7         nan       nan   -          "
        "          nan          nan   FAIL",
        "dP: row 255 was not used",
        "dP: dP is None",
        "blind: B is 1",
        "blind: no id repeats",
    ]


def test_a_report_of_a_right_layer_is_three_lines():
    lines = str(check_gradients(a_layer(), IDX, G)).split("\n")
    assert len(lines) == 3
    assert [line.split()[0] for line in lines[1:]] == ["dE", "dP"]
    assert all(line.endswith("   pass") for line in lines[1:])


@pytest.mark.parametrize("name", ["dE", "dP"])
def test_the_report_passes_only_if_both_tables_do(name):
    report = check_gradients(adding(name, 0, 0, 1.0), IDX, G)
    assert report.passed is False
    assert f"\n{name}: " in str(report)


def test_a_report_cannot_be_edited():
    report = check_gradients(a_layer(), IDX, G)
    for part in (report, report.tables[0]):
        with pytest.raises(AttributeError):
            part.blind = part.reason = ""


# What a layer may only read


@pytest.mark.parametrize("change", [2.0, 0.0], ids=["doubled", "zeroed"])
def test_a_backward_that_changes_dout_fails_and_cannot_reach_G(change):
    # Both sides of the comparison would else shrink or grow alike.
    class Changes(EmbeddingLayer):
        def backward(self, dout):
            dout *= change
            super().backward(dout)

    given = G.copy()
    report = check_gradients(a_layer(Changes), IDX, given)
    assert not any(table.passed for table in report.tables)
    assert report.tables[0].reason.startswith("backward changed dout itself")
    assert given.tobytes() == G.tobytes()


def test_a_forward_that_changes_idx_fails_and_cannot_reach_the_callers():
    class Changes(EmbeddingLayer):
        def forward(self, idx):
            out = super().forward(idx)
            idx[:] = 0
            return out

    given = IDX.copy()
    report = check_gradients(a_layer(Changes), given, G)
    assert not any(table.passed for table in report.tables)
    assert report.tables[1].reason.startswith("forward changed idx itself")
    assert np.array_equal(given, IDX)


@pytest.mark.parametrize(
    "answer",
    [None, [1, 2, 3], np.zeros((B, T, 2 * C)), np.zeros((T, C))],
    ids=["None", "a list", "two wide", "no batch"],
)
def test_an_output_of_another_shape_fails_and_says_so(answer):
    class Odd(EmbeddingLayer):
        def forward(self, idx):
            super().forward(idx)
            return answer

    report = check_gradients(a_layer(Odd), IDX)
    for table in report.tables:
        assert not table.passed
        assert table.reason.startswith("forward is not E[idx] + P[:T]: ")
    assert str(report).count("FAIL") == 2


def test_a_masked_gradient_cannot_hide_a_wrong_entry():
    class Masks(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            self.dE[4] += 1
            self.dE = np.ma.masked_where(
                np.arange(VOCAB * C).reshape(-1, C) // C == 4, self.dE
            )

    assert not check_gradients(a_layer(Masks), IDX, G).passed


def test_numeric_grad_puts_the_cache_back():
    layer = a_layer()
    layer.forward([[1, 2]])
    cache = layer.cache
    numeric_grad(layer, IDX, layer.E, G)
    assert layer.cache is cache


@pytest.mark.parametrize("eps", [np.float32(1e-6), np.float16(1e-3), 1])
def test_eps_of_any_kind_gives_float64_slopes(eps):
    layer = a_layer()
    assert numeric_grad(layer, IDX, layer.P, G, eps).dtype == np.float64
    assert check_gradients(layer, IDX, G, eps=eps).passed


@pytest.mark.parametrize("eps", ["1e-6", None, [1e-6], 1j, True])
def test_an_eps_that_is_no_number_is_refused(eps):
    with pytest.raises(TypeError, match="eps must be a number, got"):
        check_gradients(a_layer(), IDX, G, eps=eps)


@pytest.mark.parametrize("sample", [1.5, "a", True, [2]])
def test_a_sample_that_is_no_integer_is_refused(sample):
    with pytest.raises(TypeError, match="sample must be an integer or None"):
        check_gradients(a_layer(), IDX, G, sample=sample)


@pytest.mark.parametrize("odd", [[1j], ["a"], [True], [None]])
def test_rel_err_wants_real_numbers(odd):
    with pytest.raises(TypeError, match="rel_err wants real numbers, got"):
        rel_err([1.0], odd)
    with pytest.raises(TypeError, match="rel_err wants real numbers, got"):
        rel_err(odd, [1.0])


def test_names_may_come_from_a_generator():
    class Doubles(EmbeddingLayer):
        def backward(self, dout):
            super().backward(2 * dout)

    names = (c for c in "abcdefghijk")
    report = check_gradients(a_layer(Doubles), IDX, G, names=names)
    assert "row 'a'" in report.tables[0].reason


@pytest.mark.parametrize(
    ("scale", "blind"), [(1e-9, True), (0.0, True), (1e-3, False)]
)
def test_a_tiny_G_is_said_to_hide_everything(scale, blind):
    spots = check_gradients(a_layer(), IDX, scale * G).blind
    assert any(spot.startswith("G is tiny") for spot in spots) == blind


@pytest.mark.parametrize(
    ("sample", "blind"), [(None, False), (1, True), (5, True), (6, False)]
)
def test_a_sample_of_the_rows_is_said_to_be_one(sample, blind):
    # Six rows of E are used, and five of P.
    spots = check_gradients(a_layer(), IDX, G, sample=sample).blind
    assert any(spot.startswith("a sample") for spot in spots) == blind


def test_an_output_of_another_shape_leaves_nothing_to_measure():
    class Flat(EmbeddingLayer):
        def forward(self, idx):
            return super().forward(idx)[0]

    report = check_gradients(Flat(VOCAB, BLOCK, C), IDX)
    reason = report.tables[0].reason
    # As text: a nan is not equal to itself.
    assert repr(report.tables) == repr(
        (
            TableCheck("dE", 0, VOCAB, False, reason=reason),
            TableCheck("dP", 0, BLOCK, False, reason=reason),
        )
    )
    assert all(table.passed is False for table in report.tables)


def test_nan_in_G_is_not_taken_for_a_change():
    holey = np.ones((B, T, C))
    holey[0, 0, 0] = np.nan
    report = check_gradients(EmbeddingLayer(VOCAB, BLOCK, C), IDX, holey)
    assert not any("changed" in table.reason for table in report.tables)


def test_a_nested_list_of_ids_is_left_as_it_was():
    class Writes(EmbeddingLayer):
        def forward(self, idx):
            out = super().forward(idx)
            idx[0][0] = 0
            return out

    ids = [[1, 2], [2, 1]]
    check_gradients(Writes(VOCAB, BLOCK, C), ids)
    assert ids == [[1, 2], [2, 1]]


@pytest.mark.parametrize(
    ("size", "blind"), [(1e-6, True), (1e3 * 1e-8, False)]
)
def test_a_tiny_G_on_a_single_id_is_a_blind_spot(size, blind):
    layer, one = EmbeddingLayer(VOCAB, BLOCK, C), np.ones((1, 1, C))
    report = check_gradients(layer, [[1]], size * one)
    assert any("G is tiny" in spot for spot in report.blind) == blind


def test_gradients_that_are_never_cleared_are_caught_and_named():
    # One backward call alone would look right.
    class Adds(EmbeddingLayer):
        def backward(self, dout):
            old = self.dE, self.dP
            super().backward(dout)
            if old[0] is not None:
                self.dE, self.dP = self.dE + old[0], self.dP + old[1]

    dE, dP = check_gradients(a_layer(Adds), IDX, G).tables
    for table, name in ((dE, "dE"), (dP, "dP")):
        assert not table.passed
        assert f"start {name} from zeros every time" in table.reason


def test_a_layer_that_forgets_its_cache_after_backward_is_fine():
    class Forgets(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            self.cache = None

    assert check_gradients(a_layer(Forgets), IDX, G).passed


@pytest.mark.parametrize("odd", [1j, True, "x", None])
def test_a_G_that_is_not_real_is_refused(odd):
    with pytest.raises(TypeError, match="G must hold real numbers, got"):
        check_gradients(a_layer(), IDX, np.full((B, T, C), odd))


def test_the_corpus_cannot_be_written_to_through_a_view():
    # idx is often a view of data: a slip there would reach everyone.
    with pytest.raises(ValueError, match="read-only"):
        data[:10].reshape(2, 5)[0, 0] = 3


def test_an_unused_row_that_always_holds_a_one_is_not_called_old():
    class Ones(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            self.dE[3] = 1

    dE, _ = check_gradients(a_layer(Ones), IDX, G).tables
    assert dE.reason.endswith("row 3 was not used, so it must stay exactly 0")
