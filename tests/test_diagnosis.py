"""A diagnosis is never wrong: not about right answers, not about mistakes."""

import numpy as np
import pytest

from lantern_embed import EmbeddingLayer, check_gradients
from lantern_embed.diagnosis import (
    diagnose_dE,
    diagnose_dP,
    diagnose_out,
    diagnose_unchanged,
)

# Ids repeat within a row and across rows, 'k' and others are unused, the
# sizes differ pairwise, and ids stay below block_size, so that P[idx] exists.
NAMES = "abcdefghijk"
V, N, C, B, T = 11, 13, 4, 3, 5
idx = np.array([[1, 2, 1, 7, 2], [9, 1, 3, 3, 1], [1, 0, 9, 5, 8]])
rng = np.random.default_rng(0)
E = rng.standard_normal((V, C))
P = rng.standard_normal((N, C))
dout = rng.standard_normal((B, T, C))
OLD_DE = rng.standard_normal((V, C))
OLD_DP = rng.standard_normal((N, C))
count = np.bincount(idx.ravel(), minlength=V)


def scatter(ids, rows, start=None):
    table = np.zeros((V, C)) if start is None else start.copy()
    np.add.at(table, ids, rows)
    return table


def written(ids, rows, start=None):
    table = np.zeros((V, C)) if start is None else start.copy()
    table[ids] += rows
    return table


def first_rows(rows, start=0):
    table = np.zeros((N, C))
    table[start : start + len(rows)] = rows
    return table


def one_by_one(ids, slices, keep):
    table, seen = np.zeros((V, C)), np.zeros(V, int)
    for i, piece in zip(ids.ravel(), slices.reshape(-1, C), strict=True):
        table[i] += piece * keep(seen[i])
        seen[i] += 1
    return table


OUT, DE, DP = E[idx] + P[:T], scatter(idx, dout), first_rows(dout.sum(axis=0))


def out_of(answer, **more):
    return diagnose_out(answer, idx, E, P, names=NAMES, **more)


def dE_of(answer, **more):
    return diagnose_dE(answer, idx, dout, E, names=NAMES, **more)


def dP_of(answer, **more):
    return diagnose_dP(answer, idx, dout, P, **more)


def into_E(add):
    table = E.copy()
    add(table)
    return table[idx]


def add_into(table):
    table[idx] += P[:T]


# The answer that a mistake gives, and what its sentence has to say.
OUT_MISTAKES = {
    "ids into P": (E[idx] + P[idx], "P[:T], not P[idx]", "added P[1]"),
    "wrong axis": (E[idx] + P[:B, None], "wrong axis", "out[0, 1] got P[0]"),
    "reversed": (E[idx] + P[:T][::-1], "in reverse", "got P[4]"),
    "from the end": (E[idx] + P[::-1][:T], "in reverse", "got P[12]"),
    "last rows": (E[idx] + P[-T:], "the last T rows", "P[8:13]"),
    "shifted": (E[idx] + P[1 : T + 1], "was added", "P[1:6]"),
    "one row": (E[idx] + P[T], "the one row P[5]", "position 0"),
    "no P": (E[idx], "P was forgotten", "out[0, 0] is row 'b' of E"),
    "no E": (
        np.tile(P[:T], (B, 1, 1)),
        "E was forgotten",
        "out[0, 0] is P[0]",
    ),
    "E scaled": (
        E[idx] * np.sqrt(C) + P[:T],
        "E is scaled",
        "row 'b' of E times 2 = sqrt(C)",
    ),
    "E negated": (P[:T] - E[idx], "E is scaled", "row 'b' of E times -1"),
    "P scaled": (E[idx] + 0.1 * P[:T], "P is scaled", "P[0] times 0.1"),
    "P subtracted": (E[idx] - P[:T], "P is scaled", "P[0] times -1"),
    "all scaled": (OUT / 2, "out is scaled", "0.5 times the sum"),
    "product": (E[idx] * P[:T], "add them", "row 'b' of E times P[0]"),
    "concatenated": (
        np.concatenate([E[idx], np.tile(P[:T], (B, 1, 1))], axis=-1),
        "do not concatenate",
        "8 channels",
    ),
    "concatenated, P first": (
        np.concatenate([np.tile(P[:T], (B, 1, 1)), E[idx]], axis=-1),
        "add tokens to positions instead",
        "8 channels",
    ),
    "no batch": (OUT[0], "batch axis is gone", "(5, 4)"),
    "flat": (OUT.reshape(-1, C), "flattened", "(15, 4)"),
    "swapped": (OUT.swapaxes(0, 1), "B and T are swapped", "(5, 3, 4)"),
    "P into E": (into_E(add_into), "into E itself", "row 'c' look alike"),
    "P piled into E": (
        into_E(lambda table: np.add.at(table, idx, P[:T])),
        "hold all their positions",
        "row 'b'",
    ),
    "other shape": (OUT[..., :3], "has shape (3, 5, 3)", "(3, 5, 4)"),
    "float32": (OUT.astype(np.float32), "dtype float32", "float64"),
    "other values": (OUT + (OUT > 1), "out[0, 0, 2] should be", "got"),
}
by_sequence, by_position = np.zeros((2, V, C))
for b in range(B):
    by_sequence[idx[b]] += dout[b]
for t in range(T):
    by_position[idx[:, t]] += dout[:, t]
DE_MISTAKES = {
    "last wins": (written(idx, dout), "only its last slice", "'b' was used 5"),
    "first wins": (
        one_by_one(idx, dout, lambda seen: seen < 1),
        "only its first slice",
        "row 'b' was used 5 times",
    ),
    "first two": (
        one_by_one(idx, dout, lambda seen: seen < 2),
        "only its first two slices",
        "row 'b' was used 5 times",
    ),
    "mean": (
        DE / np.maximum(count, 1)[:, None],
        "do not divide by the count",
        "row 'b' of dE is the mean of its 5",
    ),
    "+= a sequence": (by_sequence, "one slice per sequence", "row 'b'"),
    "+= a position": (by_position, "one slice per position", "row 'b'"),
    "first sequence": (
        scatter(idx[0], dout[0]),
        "only the first sequence",
        "uses of row 'a' in the whole batch: 1",
    ),
    "last sequence": (
        scatter(idx[-1], dout[-1]),
        "only the last sequence",
        "uses of row 'b' in the whole batch: 5",
    ),
    "idx transposed": (
        scatter(idx.T.ravel(), dout.reshape(-1, C)),
        "idx.T does not go with dout",
        "row 'a'",
    ),
    "dout transposed": (
        scatter(idx.ravel(), dout.swapaxes(0, 1).reshape(-1, C)),
        "a transposed dout",
        "row 'a'",
    ),
    "counted": (
        scatter(idx, np.ones_like(dout)),
        "not ones",
        "row 'a' of dE holds 1",
    ),
    "from E": (scatter(idx, dout, E), "copy of E", "row 'a'"),
    "gathered": (dout.copy(), "gathered", "(3, 5, 4)"),
    "sign": (-DE, "sign of dE is flipped", "row 'a'"),
    "zeros": (np.zeros((V, C)), "dE is all zeros", "row 'a'"),
    "batch mean": (DE / B, "mean over the batch of 3", "row 'a'"),
    "doubled": (DE * 2, "2 times what it should be", "row 'a'"),
    "unused row": (
        DE + 1e-30 * (np.arange(V) == 10)[:, None],
        "was not used, so it must stay exactly 0",
        "row 'k'",
    ),
    "other shape": (DE[:-1], "has shape (10, 4)", "(11, 4)"),
    "float32": (DE.astype(np.float32), "dtype float32", "float64"),
    "other values": (DE + (count == 2)[:, None], "dE[2, 0] should be", "got"),
}
DP_MISTAKES = {
    "first sequence": (first_rows(dout[0]), "the first of 3", "row 0 of dP"),
    "last sequence": (first_rows(dout[-1]), "the last of 3", "row 0 of dP"),
    "mean": (DP / B, "mean over the batch of 3", "row 0 of dP"),
    "(T, C)": (DP[:T], "only the T = 5 rows", "(5, 4)"),
    "unsummed": (dout.copy(), "not summed over the batch", "(3, 5, 4)"),
    "shifted": (first_rows(DP[:T], 1), "shifted", "in row 1"),
    "last rows": (first_rows(DP[:T], N - T), "shifted", "in row 8"),
    "reversed": (first_rows(DP[:T][::-1]), "in reverse", "row 0 of dP"),
    "beyond T": (
        DP + (np.arange(N) == 6)[:, None],
        "was not used, so it must stay exactly 0",
        "row 6",
    ),
    "swapped": (first_rows(dout.sum(axis=1)), "B and T were swap", "row 0"),
    "reshaped": (
        first_rows(dout.reshape(T, B, C).sum(axis=1)),
        "by a reshape",
        "row 0",
    ),
    "all positions": (
        first_rows(np.tile(dout.sum(axis=(0, 1)), (T, 1))),
        "over positions too",
        "row 0",
    ),
    "by id": (
        np.concatenate([DE, np.zeros((N - V, C))]),
        "scattered by id",
        "uses of id 0",
    ),
    "from P": (P + DP, "copy of P", "row 0 of dP"),
    "sign": (-DP, "sign of dP is flipped", "row 0"),
    "zeros": (np.zeros((N, C)), "dP is all zeros", "row 0"),
    "other shape": (DP[:-1], "has shape (12, 4)", "(13, 4)"),
    "float32": (DP.astype(np.float32), "dtype float32", "float64"),
    "other values": (DP + (DP > 2), "should be", "got"),
}
ALL = [
    pytest.param(diagnose, *mistake, id=f"{diagnose.__name__}: {name}")
    for diagnose, mistakes in (
        (out_of, OUT_MISTAKES),
        (dE_of, DE_MISTAKES),
        (dP_of, DP_MISTAKES),
    )
    for name, mistake in mistakes.items()
]


@pytest.mark.parametrize(("diagnose", "answer", "says", "cites"), ALL)
def test_a_mistake_gets_its_sentence_and_a_row(diagnose, answer, says, cites):
    verdict = diagnose(answer)
    assert not verdict.passed
    assert says in verdict.reason
    assert cites in verdict.reason
    assert "same result here" not in verdict.reason  # the data tells apart


@pytest.mark.parametrize(("diagnose", "answer", "says", "cites"), ALL)
def test_where_is_the_first_wrong_entry(diagnose, answer, says, cites):
    right = {out_of: OUT, dE_of: DE, dP_of: DP}[diagnose]
    where = diagnose(answer).where
    if answer.shape != right.shape or answer.dtype != right.dtype:
        assert where is None
    else:
        first = np.argwhere(np.abs(answer - right) > 1e-9 * (right != 0))[0]
        assert where == tuple(first)


@pytest.mark.parametrize(
    ("diagnose", "mistakes"),
    [(out_of, OUT_MISTAKES), (dE_of, DE_MISTAKES), (dP_of, DP_MISTAKES)],
)
def test_different_mistakes_get_different_sentences(diagnose, mistakes):
    reasons = [diagnose(answer).reason for answer, *_ in mistakes.values()]
    assert len(set(reasons)) == len(mistakes)


@pytest.mark.parametrize(
    ("diagnose", "answer", "previous", "says", "cites"),
    [
        (
            dE_of,
            OLD_DE + DE,
            OLD_DE,
            "added to the previous call's",
            "'a'",
        ),
        (
            dE_of,
            np.where(count[:, None] > 0, DE, OLD_DE),
            OLD_DE,
            "unused now, yet holds",
            "row 'e'",
        ),
        (
            dE_of,
            OLD_DE + written(idx, dout),
            OLD_DE,
            "from zeros every time, and use np.add.at",
            "row 'a'",
        ),
        (
            dE_of,
            np.where(count[:, None] > 0, written(idx, dout), OLD_DE),
            OLD_DE,
            "used ones keep one slice",
            "row 'b'",
        ),
        (
            dP_of,
            OLD_DP + DP,
            OLD_DP,
            "added to the previous call's",
            "row 0",
        ),
        (
            dP_of,
            np.concatenate([DP[:T], OLD_DP[T:]]),
            OLD_DP,
            "unused now, yet holds",
            "row 5",
        ),
    ],
)
def test_gradients_of_the_previous_call_are_recognised(
    diagnose, answer, previous, says, cites
):
    reason = diagnose(answer, previous=previous).reason
    assert says in reason
    assert cites in reason
    assert "same result here" not in reason
    # Without `previous` there is nothing to compare with.
    assert says not in diagnose(answer).reason


def test_rows_have_numbers_without_names():
    reason = diagnose_dE(written(idx, dout), idx, dout, E).reason
    assert reason.startswith("row 1 was used 5 times")
    reason = diagnose_dE(written(idx, dout), idx, dout, E, names="a").reason
    assert reason.startswith("row 1 was used 5 times")


def test_one_sentence_is_enough_where_two_loops_lose_the_same():
    # With one sequence, or one position, the loop is the whole mistake.
    for ids, part in ((idx[:1], dout[:1]), (idx[:, :1], dout[:, :1])):
        reason = diagnose_dE(written(ids, part), ids, part, E).reason
        assert "only its last slice" in reason
        assert "same result here" not in reason


def test_reverse_is_not_said_of_a_single_position():
    ids = idx[:, :1]
    assert "reverse" not in diagnose_out(E[ids] + P[3], ids, E, P).reason


def test_numbers_that_look_alike_get_all_their_digits():
    answer = DE.copy()
    answer[1, 0] += 1e-7
    should, got = dE_of(answer).reason.split("should be ")[1].split(", got ")
    assert float(should) == DE[1, 0]
    assert float(got) == answer[1, 0]


def test_a_block_size_below_the_ids_and_the_batch_is_no_trouble():
    P, ids = np.ones((2, C)), idx[:, :2]
    out = E[ids] + P
    assert diagnose_out(out, ids, E, P).passed
    assert "P was forgotten" in diagnose_out(E[ids], ids, E, P).reason
    dP = dout[:, :2].sum(axis=0)
    assert "flipped" in diagnose_dP(-dP, ids, dout[:, :2], P).reason


def test_a_previous_gradient_of_another_layer_is_left_out():
    assert "flipped" in dE_of(-DE, previous=np.ones((2, 2))).reason
    assert "flipped" in dP_of(-DP, previous=np.ones((2, 2))).reason


def test_transposed_positions_are_named_where_the_shapes_allow_it():
    ids = idx[:, :C]
    out = E[ids] + P[:C].T
    reason = diagnose_out(out, ids, E, P, names=NAMES).reason
    assert "out[0, 0] got column 0 of P" in reason


def right_dEs(ids, dout):
    """Yield right answers, each written in another way."""
    flat, slices = ids.ravel(), dout.reshape(-1, dout.shape[-1])
    yield scatter(ids, dout)
    loop = np.zeros((V, C))
    for b, t in np.ndindex(*ids.shape):
        loop[ids[b, t]] += dout[b, t]
    yield loop
    backwards = np.zeros((V, C))
    for i, piece in zip(flat[::-1], slices[::-1], strict=True):
        backwards[i] += piece
    yield backwards
    yield (flat == np.arange(V)[:, None]) @ slices  # one-hot matmul
    yield np.stack(
        [np.bincount(flat, weights=w, minlength=V) for w in slices.T], axis=1
    )
    order = np.argsort(flat, kind="stable")
    used, start = np.unique(flat[order], return_index=True)
    by_sorting = np.zeros((V, C))
    by_sorting[used] = np.add.reduceat(slices[order], start)
    yield by_sorting
    unused = ~np.isin(np.arange(V), ids)[:, None]
    noise = np.random.default_rng(1).standard_normal((V, C)) * 1e-12
    yield np.where(unused, 0, loop + noise * np.abs(dout).max())
    yield np.asfortranarray(loop)


def right_dPs(ids, dout):
    T = ids.shape[1]
    yield first_rows(dout.sum(axis=0))
    loop = np.zeros((N, C))
    for t in range(T):
        for b in range(len(ids))[::-1]:
            loop[t] += dout[b, t]
    yield loop
    yield first_rows(np.einsum("btc->tc", dout))
    yield first_rows(np.ones(len(ids)) @ dout.swapaxes(0, 1))
    noise = np.random.default_rng(1).standard_normal((T, C)) * 1e-12
    yield first_rows(dout.sum(axis=0) + noise * np.abs(dout).max())


def right_outs(ids):
    T = ids.shape[1]
    yield E[ids] + P[:T]
    yield np.array([[E[i] + P[t] for t, i in enumerate(row)] for row in ids])
    yield np.eye(V)[ids] @ E + np.eye(N)[:T] @ P
    yield E.take(ids, axis=0) + P[None, np.arange(T)]
    noise = np.random.default_rng(1).standard_normal((*ids.shape, C))
    yield E[ids] + P[:T] + 1e-12 * noise


@pytest.mark.parametrize("scale", [1, 1e6, 1e-6, 1e-200, 0])
@pytest.mark.parametrize("seed", range(40))
def test_no_right_answer_is_called_wrong(seed, scale):
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 6), rng.integers(1, N + 1)
    ids = rng.integers(V, size=shape)
    dout = rng.standard_normal((*shape, C)) * scale
    for out in right_outs(ids):
        assert diagnose_out(out, ids, E, P).passed
    for dE in right_dEs(ids, dout):
        assert diagnose_dE(dE, ids, dout, E, previous=OLD_DE).passed
    for dP in right_dPs(ids, dout):
        assert diagnose_dP(dP, ids, dout, P, previous=OLD_DP).passed


@pytest.mark.parametrize("scale", [1, 1e6, 1e-6])
@pytest.mark.parametrize("seed", range(20))
def test_no_wrong_answer_is_called_right(seed, scale):
    rng = np.random.default_rng(seed)
    dout = rng.standard_normal((B, T, C)) * scale
    dE, dP = scatter(idx, dout), first_rows(dout.sum(axis=0))
    for answer, diagnose, table in (
        (dE, diagnose_dE, E),
        (dP, diagnose_dP, P),
    ):
        at = rng.integers(len(answer)), rng.integers(C)
        answer[at] += 1e-7 * scale
        verdict = diagnose(answer, idx, dout, table)
        assert not verdict.passed
        assert verdict.where == at


def test_the_rounding_of_other_rows_is_forgiven():
    # Sums as differences of a running sum: big rows leave noise in small ones.
    part = dout.copy()
    part[0, 3] *= 1e-8  # the only use of 'h'
    order = np.argsort(idx.ravel(), kind="stable")
    running = np.cumsum(part.reshape(-1, C)[order], axis=0)
    used, start = np.unique(idx.ravel()[order], return_index=True)
    ends = running[np.append(start[1:], idx.size) - 1]
    dE = np.zeros((V, C))
    dE[used] = np.diff(ends, axis=0, prepend=0)
    assert np.any(np.abs(dE[7] - part[0, 3]) > 1e-9 * np.abs(part[0, 3]).max())
    assert diagnose_dE(dE, idx, part, E).passed


def test_a_small_slice_lost_beside_huge_ones_is_seen():
    big = dout.copy()
    big[1, 0] *= 1e-5  # one of the two uses of 'j'
    big[0] *= 1e5
    lost = big.copy()
    lost[1, 0] = 0
    verdict = diagnose_dE(scatter(idx, lost), idx, big, E)
    assert verdict.where == (9, 0)


@pytest.mark.parametrize("seed", range(60))
def test_a_named_mistake_is_the_one_made_or_looks_just_like_it(seed):
    # Small batches, where mistakes coincide: B = 1, T = 1, no repeats.
    rng = np.random.default_rng(seed)
    shape = B, T = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    ids = rng.integers(4, size=shape)
    dout = rng.standard_normal((*shape, C))
    right = scatter(ids, dout)
    uses = np.bincount(ids.ravel(), minlength=V)[:, None]
    for wrong, says in (
        (written(ids, dout), "last slice"),
        (one_by_one(ids, dout, lambda n: n < 1), "first slice"),
        (scatter(ids[0], dout[0]), "first sequence"),
        (right / np.maximum(uses, 1), "mean of its"),
        (-right, "sign"),
        (right / B, "mean over the batch"),
    ):
        verdict = diagnose_dE(wrong, ids, dout, E)
        same = np.allclose(wrong, right, rtol=1e-9, atol=0)
        assert verdict.passed == same
        assert same or says in verdict.reason
    dP = first_rows(dout.sum(axis=0))
    for wrong, says in (
        (first_rows(dout[0]), "the first of"),
        (dP / B, "mean over the batch"),
        (first_rows(dP[:T][::-1]), "reverse"),
        (first_rows(dP[:T], 1), "shifted"),
    ):
        verdict = diagnose_dP(wrong, ids, dout, P)
        same = np.allclose(wrong, dP, rtol=1e-9, atol=0)
        assert verdict.passed == same
        assert same or says in verdict.reason
    out = E[ids] + P[:T]
    for wrong, says in (
        (E[ids] + P[ids], "not P[idx]"),
        (E[ids] + P[:T][::-1], "in reverse"),
        (E[ids] + P[-T:], "the last T rows"),
        (E[ids] + P[:B, None], "wrong axis"),
    ):
        verdict = diagnose_out(wrong, ids, E, P)
        same = np.allclose(wrong, out, rtol=1e-9, atol=0)
        assert verdict.passed == same
        assert same or says in verdict.reason


def test_mistakes_that_look_alike_are_both_named():
    # With ones for dout the last slice, the first and the mean are the same.
    ones = np.ones_like(dout)
    reason = diagnose_dE(written(idx, ones), idx, ones, E).reason
    assert "only its last slice" in reason
    assert "only its first slice" in reason
    assert "mean of its" in reason


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_compared_as_it_is(bad):
    broken = dout.copy()
    broken[1, 2, 3] = bad
    dE, dP = scatter(idx, broken), first_rows(broken.sum(axis=0))
    assert diagnose_dE(dE, idx, broken, E).passed
    assert diagnose_dP(dP, idx, broken, P).passed
    assert diagnose_dE(DE, idx, broken, E).where == (3, 3)
    assert diagnose_dP(DP, idx, broken, P).where == (2, 3)
    assert diagnose_dE(dE, idx, dout, E).where == (3, 3)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_an_empty_batch_wants_zeros(shape):
    ids, dout = np.zeros(shape, int), np.zeros((*shape, C))
    assert diagnose_out(dout, ids, E, P).passed
    assert diagnose_dE(np.zeros((V, C)), ids, dout, E).passed
    assert diagnose_dP(np.zeros((N, C)), ids, dout, P).passed
    assert "exactly 0" in diagnose_dE(E, ids, dout, E).reason
    assert "exactly 0" in diagnose_dP(P, ids, dout, P).reason


class Hostile:
    """Raises at whatever is done with it."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    __len__ = __array__ = __eq__ = __iter__ = __repr__ = __bool__ = None


class Sub(np.ndarray):
    def __array_ufunc__(self, *args, **kwargs):
        raise RuntimeError


GARBAGE = [
    None,
    ...,
    0,
    1.5,
    "text",
    b"bytes",
    (),
    [[1, 2], [3]],
    {},
    int,
    len,
    Hostile(),
    OUT.view(Sub),
    DE.view(Sub),
    DE.view(np.recarray),
    np.ma.masked_array(DE, DE > 0),
    np.float64(3),
    np.array(None),
    np.array(3.0),
    np.zeros((0, 4)),
]
GARBAGE += [
    np.full(a.shape, a * 0, dtype=dtype)
    for a in (OUT, DE, DP, dout, DP[:T], OUT[0])
    for dtype in (bool, int, complex, "f2", "f4", "O", "U3", "S2", "g")
]
GARBAGE += [np.zeros(a.shape, "M8[s]") for a in (OUT, DE, DP)]
GARBAGE += [
    np.full(a.shape, bad) for a in (OUT, DE) for bad in (np.nan, 1e308)
]
GARBAGE += [np.concatenate([a, a], axis=-1) for a in (OUT, DE, DP)]
GARBAGE += [np.full((B, T, 2 * C), None)]
GARBAGE += [DE.tolist(), (OUT,), (DE, DP), np.zeros(DE.shape, "i4,f8")]


def test_no_object_makes_a_diagnosis_raise():
    # A loop, since pytest itself looks too closely at its parameters.
    rows = {"dout": dout, "P[:T]": P[:T]}
    for thing in GARBAGE:
        for verdict in (
            out_of(thing),
            dE_of(thing),
            dP_of(thing),
            dE_of(thing, previous=OLD_DE),
            diagnose_unchanged(thing, E, "E", names=NAMES),
            diagnose_unchanged(thing, E, "E", idx=idx, rows=rows),
        ):
            assert not verdict.passed
            assert verdict.reason
            assert " at 0x" not in verdict.reason


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (None, "dE is still None"),
        ((DE, DP), "dE is of type tuple, not a NumPy array"),
        (DE.tolist(), "dE is of type list, not a NumPy array"),
        (DE.view(Sub), "dE is of type Sub, not a NumPy array"),
        (DE.astype(complex), "dE has dtype complex128, not float64"),
        (DE * np.nan, "dE[0, 0] should be"),
    ],
)
def test_what_is_not_a_gradient_at_all_is_named(thing, says):
    assert says in dE_of(thing).reason


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda E: E.__setitem__((3, 2), 7), "row 'd' first, E[3, 2] was"),
        (lambda E: np.add.at(E, idx, dout), "by np.add.at(E, idx, dout)"),
        (add_into, "by `E[idx] += P[:T]`"),
        (lambda E: np.copyto(E, 0), "E[0, 0] was 0.12573, is now 0"),
    ],
)
def test_a_changed_table_is_named_with_its_first_row(change, says):
    after = E.copy()
    change(after)
    verdict = diagnose_unchanged(
        after,
        E,
        "E",
        names=NAMES,
        idx=idx,
        rows={"P[:T]": P[:T], "dout": dout},
    )
    assert says in verdict.reason
    assert "write into a fresh array" in verdict.reason
    assert verdict.where == tuple(np.argwhere(after != E)[0])


def test_an_unchanged_table_passes_even_with_nan():
    holey = E.copy()
    holey[2, 1] = np.nan
    assert diagnose_unchanged(holey.copy(), holey, "E").passed


def gradients(dE=DE, dP=DP):
    def backward(self, dout):
        self.dE, self.dP = dE, dP

    return backward


@pytest.mark.parametrize("name", DE_MISTAKES)
def test_the_gradient_check_says_the_same_of_dE(name):
    answer = DE_MISTAKES[name][0]
    layer = type("Buggy", (EmbeddingLayer,), {"backward": gradients(answer)})
    buggy = layer(V, N, C)
    buggy.E, buggy.P = E.copy(), P.copy()
    report = check_gradients(buggy, idx, dout, names=NAMES)
    if name == "float32":  # a right value in a wrong dtype
        return
    assert [t.passed for t in report.tables] == [False, True]
    assert report.tables[0].reason == dE_of(answer).reason


@pytest.mark.parametrize("name", DP_MISTAKES)
def test_the_gradient_check_says_the_same_of_dP(name):
    answer = DP_MISTAKES[name][0]
    layer = type(
        "Buggy", (EmbeddingLayer,), {"backward": gradients(dP=answer)}
    )
    buggy = layer(V, N, C)
    buggy.E, buggy.P = E.copy(), P.copy()
    report = check_gradients(buggy, idx, dout, names=NAMES)
    if name == "float32":
        return
    assert [t.passed for t in report.tables] == [True, False]
    assert report.tables[1].reason == dP_of(answer).reason
