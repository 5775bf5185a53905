import numpy as np
import pytest

from lantern_embed import scatter_add
from lantern_embed.scatter import scatter_add_flat

V, C = 7, 3
# Row 4 repeats within and across rows; rows 3, 5 and 6 stay unused.
IDX = np.array([[4, 0, 4, 2], [1, 4, 1, 0]])
# So many ids that the table is small beside them, which has its own path.
MANY = np.tile(IDX, (4, 1))
few_or_many = pytest.mark.parametrize("idx", [IDX, MANY], ids=["few", "many"])


@pytest.fixture(autouse=True)
def no_batch_is_too_small(monkeypatch):
    monkeypatch.setattr("lantern_embed.scatter.FEWEST", 1)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def outcome(add, table, idx, rows):
    """What is left of a copy of table, and the error if there is one."""
    if isinstance(table, np.ndarray):
        table = table.copy(order="K")
    error = None
    try:
        with np.errstate(all="ignore"):
            assert add(table, idx, rows) is None
    except Exception as caught:
        error = type(caught), str(caught)
    return np.asarray(table).tobytes(), error


def check_same(table, idx, rows, fails=False):
    expected = outcome(np.add.at, table, idx, rows)
    assert (expected[1] is not None) == fails  # else the case is idle
    assert outcome(scatter_add, table, idx, rows) == expected


def test_every_repeat_is_added():
    table = np.zeros((3, 2))
    scatter_add(table, np.array([2, 0, 2]), np.array([[1, 2], [3, 4], [5, 6]]))
    assert table.tolist() == [[3, 4], [0, 0], [6, 8]]


def test_it_adds_to_what_is_there():
    table = np.ones((3, 2))
    scatter_add(table, np.array([1]), np.array([[5.0, 7.0]]))
    assert table.tolist() == [[1, 1], [6, 8], [1, 1]]


@pytest.mark.parametrize(
    ("idx", "rows"),
    [
        pytest.param(IDX, normal(2, 4, C), id="2-d"),
        pytest.param(MANY, normal(8, 4, C), id="many"),
        pytest.param(MANY - V, normal(8, 4, C), id="many negative ids"),
        pytest.param(IDX.ravel(), normal(8, C), id="1-d"),
        pytest.param(IDX.reshape(2, 1, 4), normal(2, 1, 4, C), id="3-d"),
        pytest.param(np.array(4), normal(C), id="0-d"),
        pytest.param(np.zeros((2, 0), int), normal(2, 0, C), id="empty"),
        pytest.param(IDX - V, normal(2, 4, C), id="negative ids"),
        pytest.param(IDX.T, normal(4, 2, C), id="transposed idx"),
        pytest.param(IDX[::-1, ::-2], normal(2, 2, C), id="negative stride"),
        pytest.param(np.asfortranarray(IDX), normal(2, 4, C), id="F idx"),
        pytest.param(IDX, np.asfortranarray(normal(2, 4, C)), id="F rows"),
        pytest.param(IDX, normal(2, 4, 2 * C)[..., ::2], id="strided rows"),
        pytest.param(IDX, normal(C), id="one row for all ids"),
        pytest.param(IDX, normal(2, 4, 1), id="one column for all"),
        pytest.param(IDX, 2.5, id="one number for all"),
        # np.add.at reads these in its own way: so must we.
        pytest.param(IDX.tolist(), normal(2, 4, C).tolist(), id="lists"),
        pytest.param([], normal(0, C), id="empty list"),
        pytest.param(2, normal(C), id="int"),
        pytest.param(([4, 0, 4], [1, 2, 1]), normal(3), id="pair of lists"),
        pytest.param((0, 1), 2.5, id="pair of ints"),
        pytest.param(slice(1, 6, 2), normal(3, C), id="slice"),
        pytest.param(..., 2.5, id="ellipsis"),
        pytest.param(None, 2.5, id="new axis"),
        pytest.param(np.arange(V) % 2 == 0, normal(4, C), id="mask"),
    ],
)
def test_same_bytes_as_add_at_for_every_idx_and_rows(idx, rows):
    check_same(normal(V, C, seed=1), idx, rows)


@pytest.mark.parametrize(
    "idx_dtype", [*np.typecodes["AllInteger"], ">i4", ">u2"]
)
def test_same_bytes_for_every_integer_dtype(idx_dtype):
    # uint8: 16 * C overflows 8 bits if the flat index is not widened.
    idx = (IDX * 4).astype(idx_dtype)
    check_same(normal(4 * V, 21), idx, normal(2, 4, 21))


@pytest.mark.parametrize("rows_dtype", ["f8", "f4", "f2", "i8", "c16", ">f8"])
@pytest.mark.parametrize(
    "dtype", ["f8", "f4", "f2", "c8", "c16", "i8", "u1", "?", ">f8", ">f4"]
)
def test_same_bytes_for_every_pair_of_dtypes(dtype, rows_dtype):
    table = (9 * normal(V, C, seed=1)).astype("i1").astype(dtype)
    rows = (9 * normal(2, 4, C)).astype("i1").astype(rows_dtype)
    # Complex into real is a warning, hence an error where warnings are.
    lossy = rows.dtype.kind == "c" and table.dtype.kind not in "cb"
    check_same(table, IDX, rows, fails=lossy)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(np.asfortranarray(normal(V, C)), id="Fortran-ordered"),
        pytest.param(normal(V, 2 * C)[:, ::2], id="every other column"),
        pytest.param(normal(2 * V, C)[::-2], id="rows backwards"),
        pytest.param(normal(C, V).T, id="transposed"),
    ],
)
def test_a_table_that_is_not_contiguous_is_changed_in_place(table):
    check_same(table, IDX, normal(2, 4, C))
    # outcome() works on copies, which would hide a copy made inside.
    expected = table.copy()
    np.add.at(expected, IDX, normal(2, 4, C))
    scatter_add(table, IDX, normal(2, 4, C))
    assert table.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        pytest.param(normal(V), normal(2, 4), id="1-d"),
        pytest.param(normal(V, C, 2), normal(2, 4, C, 2), id="3-d"),
        pytest.param(normal(V, 0), normal(2, 4, 0), id="no columns"),
        pytest.param(normal(V, 1), normal(2, 4, 1), id="one column"),
    ],
)
def test_same_bytes_for_tables_of_other_shapes(table, rows):
    check_same(table, IDX, rows)


def test_a_table_without_rows_takes_no_ids():
    check_same(normal(0, C), np.zeros(0, int), normal(0, C))


SPECIAL = [0.0, -0.0, np.inf, -np.inf, 1e308, 5e-324, np.nan]


@few_or_many
def test_same_bytes_for_infinities_signed_zeros_and_huge_and_tiny(idx):
    rng = np.random.default_rng(0)
    for _ in range(50):
        table = rng.choice(SPECIAL, (V, C))
        check_same(table, idx, rng.choice(SPECIAL, (*idx.shape, C)))


@few_or_many
def test_a_sum_that_becomes_nan_is_warned_of_once(idx):
    rows = np.full((*idx.shape, C), np.inf)
    rows[0] = -np.inf
    with pytest.warns(RuntimeWarning, match="invalid value") as caught:
        scatter_add(np.zeros((V, C)), idx, rows)
    assert len(caught) == 1


def test_minus_zero_plus_minus_zero_stays_minus_zero():
    table = np.full((V, C), -0.0)
    scatter_add(table, IDX, np.full((2, 4, C), -0.0))
    assert np.all(np.signbit(table))


@pytest.mark.parametrize("in_table", [True, False])
@pytest.mark.parametrize("in_rows", [True, False])
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "c16"])
@few_or_many
def test_nan_payloads_survive_as_in_add_at(idx, dtype, in_table, in_rows):
    # Of two nans one survives: which one depends on NumPy's inner loop.
    def some_nans(array, first):
        array = array.astype(dtype)
        bits = array.view(f"u{array.real.itemsize}")
        payloads = np.arange(first, first + bits.size).reshape(bits.shape)
        nan = np.array(np.nan, array.real.dtype).view(bits.dtype)
        bits[..., ::2] = nan + payloads[..., ::2].astype(bits.dtype)
        return array

    table, rows = normal(V, C, seed=1), normal(*idx.shape, C)
    table = some_nans(table, 1) if in_table else table.astype(dtype)
    rows = some_nans(rows, 100) if in_rows else rows.astype(dtype)
    check_same(table, idx, rows)


@pytest.mark.parametrize(
    "share",
    [
        pytest.param(lambda t: (t, t[:, 0], t), id="all three"),
        pytest.param(lambda t: (t, IDX.ravel()[:6], t[1:]), id="rows"),
        pytest.param(lambda t: (t, IDX.ravel()[:V], t[::-1]), id="backwards"),
        pytest.param(lambda t: (t[1:], IDX.ravel()[:6], t[:-1]), id="shifted"),
        pytest.param(lambda t: (t[:1], np.zeros(V, int), t), id="into one"),
        pytest.param(lambda t: (t, t[:, 1], t + 1), id="ids, a column"),
        pytest.param(lambda t: (t, t, np.ones((V, C, C), int)), id="ids, all"),
    ],
)
def test_same_bytes_when_the_arguments_share_memory(share):
    # The sum must not depend on what it has itself just written.
    ours = np.arange(V * C).reshape(V, C) % V
    numpys = ours.copy()
    scatter_add(*share(ours))
    np.add.at(*share(numpys))
    assert ours.tobytes() == numpys.tobytes()


@pytest.mark.parametrize(
    ("idx", "rows"),
    [
        pytest.param(np.array([0, V]), normal(2, C), id="just above"),
        # Both would land inside the flat table, in a wrong row.
        pytest.param(np.array([0, -V - 1]), normal(2, C), id="just below"),
        pytest.param(np.array([-1, -99]), normal(2, C), id="far below"),
        pytest.param(
            np.array([0, 2**63], np.uint64), normal(2, C), id="beyond 63 bits"
        ),
        pytest.param(np.array([0.0, 1.0]), normal(2, C), id="floats"),
        pytest.param([0.0, 1], normal(2, C), id="list with a float"),
        pytest.param(np.array(["a"]), normal(1, C), id="strings"),
        pytest.param(np.array([True]), normal(1, C), id="short mask"),
        pytest.param(np.array([0, 1]), normal(3, C), id="a row too many"),
        pytest.param(np.array([0, 1]), normal(2, C + 1), id="too wide"),
        pytest.param(np.array([0, 1]), "a", id="rows of text"),
        pytest.param(np.array([0, 1]), None, id="rows None"),
    ],
)
def test_same_error_and_an_unchanged_table_for_bad_input(idx, rows):
    table = normal(V, C, seed=1)
    check_same(table, idx, rows, fails=True)
    assert outcome(scatter_add, table, idx, rows)[0] == table.tobytes()


@pytest.mark.parametrize(
    "table", [[[1.0, 2.0]], 3.0, np.array(3.0)], ids=["list", "float", "0-d"]
)
def test_same_error_for_a_table_that_is_none(table):
    check_same(table, np.array([0]), normal(1, 2), fails=True)


def test_a_read_only_table_stays_as_it_is():
    table = normal(V, C)
    table.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        scatter_add(table, IDX, normal(2, 4, C))
    assert table.tobytes() == normal(V, C).tobytes()


def test_idx_and_rows_are_only_read():
    idx, rows = IDX.copy(), normal(2, 4, C)
    scatter_add(normal(V, C), idx, rows)
    assert idx.tobytes() == IDX.tobytes()
    assert rows.tobytes() == normal(2, 4, C).tobytes()


@pytest.mark.parametrize("subclass", [np.matrix, np.ma.MaskedArray])
def test_an_array_subclass_keeps_its_own_indexing(subclass):
    with pytest.MonkeyPatch.context() as m:
        m.setattr("warnings.filters", [])  # np.matrix is on its way out
        table = normal(V, C).view(subclass)
        check_same(table, np.array([4, 0, 4]), normal(3, C))


@pytest.fixture
def flat_calls(monkeypatch):
    """Count how often the flat loop is taken."""
    calls = []

    def recorded(*args):
        calls.append(args)
        scatter_add_flat(*args)

    monkeypatch.setattr("lantern_embed.scatter.scatter_add_flat", recorded)
    return calls


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("width", [C, C + 1])
@few_or_many
def test_usual_input_takes_the_flat_loop(flat_calls, idx, width, dtype):
    # Were all left to np.add.at, every other test here would still pass.
    # The time itself is benchmark.py's: a clock has no place in a suite.
    table, rows = normal(V, width), normal(*idx.shape, width)
    scatter_add(table.astype(dtype), idx, rows.astype(dtype))
    assert len(flat_calls) == 1


@pytest.mark.parametrize(("fewest", "calls"), [(24, 1), (25, 0)])
def test_a_small_batch_does_not(flat_calls, monkeypatch, fewest, calls):
    monkeypatch.setattr("lantern_embed.scatter.FEWEST", fewest)
    check_same(normal(V, C), IDX, normal(2, 4, C))  # 24 values
    assert len(flat_calls) == calls
