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


# The answer that a mistake gives, and its sentence.
OUT_MISTAKES = {
    "ids into P": (
        E[idx] + P[idx],
        "out[0, 0] added P[1], the row of its id: P goes by position, use "
        "P[:T], not P[idx]",
    ),
    "wrong axis": (
        E[idx] + P[:B, None],
        "P was added along the wrong axis: out[0, 1] got P[0] for its "
        "sequence, not P[1] for its position",
    ),
    "reversed": (
        E[idx] + P[:T][::-1],
        "P was added in reverse: position 0 got P[4]: position 0 should get "
        "P[0]",
    ),
    "from the end": (
        E[idx] + P[::-1][:T],
        "P was added in reverse: position 0 got P[12]: position 0 should get "
        "P[0]",
    ),
    "last rows": (
        E[idx] + P[-T:],
        "P[8:13] (the last T rows) was added: position 0 should get P[0], use "
        "P[:T]",
    ),
    "shifted": (
        E[idx] + P[1 : T + 1],
        "P[1:6] was added: position 0 should get P[0], use P[:T]",
    ),
    "one row": (
        E[idx] + P[T],
        "every position got the one row P[5]: position 0 should get P[0], use "
        "the slice P[:T]",
    ),
    "no P": (
        E[idx],
        "P was forgotten: out[0, 0] is row 'b' of E and nothing else",
    ),
    "no E": (
        np.tile(P[:T], (B, 1, 1)),
        "E was forgotten: out[0, 0] is P[0] and nothing else",
    ),
    "E scaled": (
        E[idx] * np.sqrt(C) + P[:T],
        "E is scaled: out[0, 0] holds row 'b' of E times 2 = sqrt(C); add it "
        "as it is",
    ),
    "E negated": (
        P[:T] - E[idx],
        "E is scaled: out[0, 0] holds row 'b' of E times -1; add it as it is",
    ),
    "P scaled": (
        E[idx] + 0.1 * P[:T],
        "P is scaled: out[0, 0] holds P[0] times 0.1; add it as it is",
    ),
    "P subtracted": (
        E[idx] - P[:T],
        "P is scaled: out[0, 0] holds P[0] times -1; add it as it is",
    ),
    "all scaled": (OUT / 2, "out is scaled: out[0, 0] is 0.5 times the sum"),
    "product": (
        E[idx] * P[:T],
        "out[0, 0] is row 'b' of E times P[0]: add them",
    ),
    "concatenated": (
        np.concatenate([E[idx], np.tile(P[:T], (B, 1, 1))], axis=-1),
        "out has shape (3, 5, 8), not (3, 5, 4): tokens and positions were "
        "joined to 8 channels: add them, do not concatenate",
    ),
    "concatenated, P first": (
        np.concatenate([np.tile(P[:T], (B, 1, 1)), E[idx]], axis=-1),
        "out has shape (3, 5, 8), not (3, 5, 4): tokens and positions were "
        "joined to 8 channels: add tokens to positions instead",
    ),
    "no batch": (
        OUT[0],
        "out has shape (5, 4), not (3, 5, 4): the batch axis is gone: keep "
        "one (T, C) block per sequence",
    ),
    "flat": (
        OUT.reshape(-1, C),
        "out has shape (15, 4), not (3, 5, 4): B and T were flattened into "
        "one axis: keep both",
    ),
    "swapped": (
        OUT.swapaxes(0, 1),
        "out has shape (5, 3, 4), not (3, 5, 4): B and T are swapped",
    ),
    "P into E": (
        into_E(add_into),
        "P was added into E itself, so all uses of row 'c' look alike: add "
        "P[:T] to the copy E[idx]",
    ),
    "P piled into E": (
        into_E(lambda table: np.add.at(table, idx, P[:T])),
        "P was added into E itself, so all uses of row 'b' look alike and "
        "hold all their positions: add P[:T] to the copy E[idx]",
    ),
    "other shape": (OUT[..., :3], "out has shape (3, 5, 3), not (3, 5, 4)"),
    "float32": (OUT.astype(np.float32), "out has dtype float32, not float64"),
    "other values": (
        OUT + (OUT > 1),
        "out[0, 0, 2] should be 2.76202, got 3.76202",
    ),
}
by_sequence, by_position = np.zeros((2, V, C))
for b in range(B):
    by_sequence[idx[b]] += dout[b]
for t in range(T):
    by_position[idx[:, t]] += dout[:, t]
DE_MISTAKES = {
    "last wins": (
        written(idx, dout),
        "row 'b' was used 5 times but kept only its last slice: `dE[idx] += "
        "dout`, like `=`, writes each row once; use np.add.at",
    ),
    "first wins": (
        one_by_one(idx, dout, lambda seen: seen < 1),
        "row 'b' was used 5 times but kept only its first slice: each use "
        "must add its own",
    ),
    "first two": (
        one_by_one(idx, dout, lambda seen: seen < 2),
        "row 'b' was used 5 times but kept only its first two slices: each "
        "use must add its own",
    ),
    "mean": (
        DE / np.maximum(count, 1)[:, None],
        "row 'b' of dE is the mean of its 5 slices, not their sum: do not "
        "divide by the count",
    ),
    "+= a sequence": (
        by_sequence,
        "row 'b' was used 5 times but kept one slice per sequence: `+=` loses "
        "the repeats within a sequence; use np.add.at",
    ),
    "+= a position": (
        by_position,
        "row 'b' was used 5 times but kept one slice per position: `+=` loses "
        "an id that several sequences have there; use np.add.at",
    ),
    "first sequence": (
        scatter(idx[0], dout[0]),
        "only the first sequence was added: uses of row 'a' in the whole "
        "batch: 1",
    ),
    "last sequence": (
        scatter(idx[-1], dout[-1]),
        "only the last sequence was added: uses of row 'b' in the whole "
        "batch: 5",
    ),
    "idx transposed": (
        scatter(idx.T.ravel(), dout.reshape(-1, C)),
        "B and T were swapped: row 'a' of dE got slices of other ids: idx.T "
        "does not go with dout",
    ),
    "dout transposed": (
        scatter(idx.ravel(), dout.swapaxes(0, 1).reshape(-1, C)),
        "B and T were swapped: row 'a' of dE got slices of other ids: idx "
        "does not go with a transposed dout",
    ),
    "counted": (
        scatter(idx, np.ones_like(dout)),
        "row 'a' of dE holds 1, how often it was used: add slices of dout, "
        "not ones",
    ),
    "from E": (
        scatter(idx, dout, E),
        "dE started from a copy of E, so row 'a' still holds weights: start "
        "from np.zeros_like(E)",
    ),
    "gathered": (
        dout.copy(),
        "dE has shape (3, 5, 4), not (11, 4): it has a row for each use, like "
        "E[idx]: it was gathered, not scattered; add the slices into "
        "np.zeros_like(E)",
    ),
    "sign": (-DE, "the sign of dE is flipped, see row 'a'"),
    "zeros": (
        np.zeros((V, C)),
        "dE is all zeros: nothing was added, not even to row 'a'",
    ),
    "batch mean": (
        DE / B,
        "row 'a' is the mean over the batch of 3: take the sum",
    ),
    "doubled": (DE * 2, "dE is 2 times what it should be, see row 'a'"),
    "unused row": (
        DE + 1e-30 * (np.arange(V) == 10)[:, None],
        "dE[10, 0] should be 0, got 1e-30: row 'k' was not used, so it must "
        "stay exactly 0",
    ),
    "other shape": (DE[:-1], "dE has shape (10, 4), not (11, 4)"),
    "float32": (DE.astype(np.float32), "dE has dtype float32, not float64"),
    "other values": (
        DE + (count == 2)[:, None],
        "dE[2, 0] should be 0.426981, got 1.42698",
    ),
}
DP_MISTAKES = {
    "first sequence": (
        first_rows(dout[0]),
        "row 0 of dP holds only the first of 3 sequences: sum over the batch, "
        "dout.sum(axis=0)",
    ),
    "last sequence": (
        first_rows(dout[-1]),
        "row 0 of dP holds only the last of 3 sequences: sum over the batch, "
        "dout.sum(axis=0)",
    ),
    "mean": (
        DP / B,
        "row 0 of dP is the mean over the batch of 3: take the sum",
    ),
    "(T, C)": (
        DP[:T],
        "dP has shape (5, 4), not (13, 4): it has only the T = 5 rows in use: "
        "put them into np.zeros_like(P)",
    ),
    "unsummed": (
        dout.copy(),
        "dP has shape (3, 5, 4), not (13, 4): it was not summed over the "
        "batch: use dout.sum(axis=0)",
    ),
    "shifted": (
        first_rows(DP[:T], 1),
        "dP is shifted: the gradient of position 0 is in row 1; write into "
        "dP[:T]",
    ),
    "last rows": (
        first_rows(DP[:T], N - T),
        "dP is shifted: the gradient of position 0 is in row 8; write into "
        "dP[:T]",
    ),
    "reversed": (
        first_rows(DP[:T][::-1]),
        "row 0 of dP is wrong because dP[:T] is in reverse",
    ),
    "beyond T": (
        DP + (np.arange(N) == 6)[:, None],
        "dP[6, 0] should be 0, got 1: row 6 was not used, so it must stay "
        "exactly 0",
    ),
    "swapped": (
        first_rows(dout.sum(axis=1)),
        "B and T were swapped: row 0 of dP was summed over positions; sum "
        "over the batch, axis 0",
    ),
    "reshaped": (
        first_rows(dout.reshape(T, B, C).sum(axis=1)),
        "B and T were swapped by a reshape: row 0 of dP mixes positions; sum "
        "dout itself",
    ),
    "all positions": (
        first_rows(np.tile(dout.sum(axis=(0, 1)), (T, 1))),
        "row 0 of dP was summed over positions too: sum over the batch only, "
        "axis 0",
    ),
    "by id": (
        np.concatenate([DE, np.zeros((N - V, C))]),
        "dP was scattered by id: row 0 of dP holds the uses of id 0, not of "
        "position 0",
    ),
    "from P": (
        P + DP,
        "dP started from a copy of P, so row 0 of dP still holds weights: "
        "start from np.zeros_like(P)",
    ),
    "sign": (-DP, "the sign of dP is flipped, see row 0 of dP"),
    "zeros": (
        np.zeros((N, C)),
        "dP is all zeros: nothing was added, not even to row 0 of dP",
    ),
    "other shape": (DP[:-1], "dP has shape (12, 4), not (13, 4)"),
    "float32": (DP.astype(np.float32), "dP has dtype float32, not float64"),
    "other values": (DP + (DP > 2), "dP[0, 0] should be 2.98426, got 3.98426"),
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


@pytest.mark.parametrize(("diagnose", "answer", "sentence"), ALL)
def test_a_mistake_gets_its_sentence_and_no_other(diagnose, answer, sentence):
    verdict = diagnose(answer)
    assert not verdict.passed
    assert verdict.reason == sentence


@pytest.mark.parametrize(("diagnose", "answer", "sentence"), ALL)
def test_where_is_the_first_wrong_entry(diagnose, answer, sentence):
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
    ("diagnose", "answer", "previous", "sentence"),
    [
        (
            dE_of,
            OLD_DE + DE,
            OLD_DE,
            "row 'a' was added to the previous call's gradient: start dE from "
            "zeros every time",
        ),
        (
            dE_of,
            np.where(count[:, None] > 0, DE, OLD_DE),
            OLD_DE,
            "row 'e' is unused now, yet holds the previous call's gradient: "
            "start dE from zeros every time",
        ),
        (
            dE_of,
            OLD_DE + written(idx, dout),
            OLD_DE,
            "row 'a' was added to the previous call's gradient: start dE from "
            "zeros every time, and use np.add.at",
        ),
        (
            dE_of,
            np.where(count[:, None] > 0, written(idx, dout), OLD_DE),
            OLD_DE,
            "see row 'b': unused rows hold the previous call's gradient: "
            "start dE from zeros every time; used ones keep one slice, use "
            "np.add.at",
        ),
        (
            dP_of,
            OLD_DP + DP,
            OLD_DP,
            "row 0 of dP was added to the previous call's gradient: start "
            "dP from zeros every time",
        ),
        (
            dP_of,
            np.concatenate([DP[:T], OLD_DP[T:]]),
            OLD_DP,
            "row 5 of dP is unused now, yet holds the previous call's "
            "gradient: start dP from zeros every time",
        ),
    ],
)
def test_gradients_of_the_previous_call_are_recognised(
    diagnose, answer, previous, sentence
):
    assert diagnose(answer, previous=previous).reason == sentence
    # Without `previous` there is nothing to compare with.
    assert sentence not in diagnose(answer).reason


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


def test_an_id_that_is_just_outside_P_is_no_trouble():
    n = idx.max()  # P has no row of that number
    out, dP = E[idx] + P[:T], dout.sum(axis=0)
    dP = np.concatenate([dP, np.zeros((n - T, C))])
    assert "flipped" in diagnose_dP(-dP, idx, dout, P[:n]).reason
    assert "0.5 times" in diagnose_out(out / 2, idx, E, P[:n]).reason


def test_as_many_sequences_as_P_has_rows_can_go_along_the_wrong_axis():
    ids, part, short = idx[:, :2], dout[:, :2], P[:B]
    out = E[ids] + short[:, None]
    assert "wrong axis" in diagnose_out(out, ids, E, short).reason
    dP = part.sum(axis=1)
    assert "summed over positions;" in diagnose_dP(dP, ids, part, short).reason


def test_uses_of_an_id_are_told_from_those_of_the_position():
    # Id 0 stands at position 0: there, scattering by id does no harm.
    ids, part = np.array([[0, 2, 1]]), dout[:1, :3]
    by_id = np.zeros((N, C))
    by_id[ids[0]] = part[0]
    assert diagnose_dP(by_id, ids, part, P).reason == (
        "dP was scattered by id: row 1 of dP holds the uses of id 1, not of "
        "position 1"
    )


def test_two_numbers_are_enough_to_tell_a_multiple():
    ids, ones = np.array([[1]]), np.array([[[1.0, 2.0]]])
    dE = np.array([[0, 0], [3.0, 6.0], [0, 0]])
    verdict = diagnose_dE(dE, ids, ones, np.zeros((3, 2)))
    assert verdict.reason == "dE is 3 times what it should be, see row 1"


def test_a_float32_dE_is_summed_in_float32():
    low = E.astype(np.float32)
    dE = np.zeros_like(low)
    np.add.at(dE, idx, dout.astype(np.float32))
    assert diagnose_dE(dE, idx, dout, low).passed


def test_an_entry_is_measured_by_its_own_row_of_out():
    # One id and one position with small weights, which meet in out[1, 2].
    small_E, small_P = E.copy(), P.copy()
    small_E[3] *= 1e-9
    small_P[2] *= 1e-9
    out = small_E[idx] + small_P[:T]
    out[1, 2, 0] += 1e-10
    assert diagnose_out(out, idx, small_E, small_P).where == (1, 2, 0)


def test_tiny_gradients_are_not_all_alike():
    answer = 1e-12 * (DE + (count == 2)[:, None])
    reason = diagnose_dE(answer, idx, 1e-12 * dout, E).reason
    assert reason.startswith("dE[2, 0] should be ")
    reason = diagnose_dE(-1e-12 * DE, idx, 1e-12 * dout, E).reason
    assert "sign of dE is flipped" in reason


def test_a_previous_gradient_of_another_layer_is_left_out():
    assert "flipped" in dE_of(-DE, previous=np.ones((2, 2))).reason
    assert "flipped" in dP_of(-DP, previous=np.ones((2, 2))).reason


def test_transposed_positions_are_named_where_the_shapes_allow_it():
    ids = idx[:, :C]
    out = E[ids] + P[:C].T
    assert diagnose_out(out, ids, E, P, names=NAMES).reason == (
        "P was added along the wrong axis: out[0, 0] got column 0 of P, not "
        "the row; do not transpose"
    )


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
    assert diagnose_dE(written(idx, ones), idx, ones, E).reason == (
        "row 1 was used 5 times but kept only its last slice: `dE[idx] += "
        "dout`, like `=`, writes each row once; use np.add.at; or, with the "
        "same result here: row 1 was used 5 times but kept only its first "
        "slice: each use must add its own; or, with the same result here: "
        "row 1 of dE is the mean of its 5 slices, not their sum: do not "
        "divide by the count"
    )


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
    reason = diagnose_dE(DE, idx, broken, E).reason
    assert reason.startswith("dE[3, 3] should be ")
    assert "sign" in diagnose_dE(-dE, idx, broken, E).reason


def test_what_is_not_finite_forgives_nothing_beside_it():
    tiny = 1e-12 * dout
    tiny[1, 2, 3] = np.inf
    dE = scatter(idx, tiny)
    dE[3, 0] += 1e-13
    assert diagnose_dE(dE, idx, tiny, E).where == (3, 0)


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
    np.full(a.shape, bad) for a in (OUT, DE, DP) for bad in (np.nan, 1e308)
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
            assert verdict.passed is False
            assert verdict.reason
            assert " at 0x" not in verdict.reason


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (
            None,
            "dE is still None: never set, or set to what np.add.at returns, "
            "which is None",
        ),
        ((DE, DP), "dE is of type tuple, not a NumPy array"),
        (DE.tolist(), "dE is of type list, not a NumPy array"),
        (DE.view(Sub), "dE is of type Sub, not a NumPy array"),
        (DE.astype(complex), "dE has dtype complex128, not float64"),
        (DE * np.nan, f"dE[0, 0] should be {DE[0, 0]:.6g}, got nan"),
    ],
)
def test_what_is_not_a_gradient_at_all_is_named(thing, says):
    assert dE_of(thing).reason == says


def test_the_hint_at_add_at_is_for_dE_alone():
    assert dP_of(None).reason == "dP is still None"
    assert out_of(None).reason == "out is still None"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda E: E.__setitem__((3, 2), 7),
            "row 'd' first, E[3, 2] was -1.24591, is now 7; write into a "
            "fresh array",
        ),
        (
            lambda E: np.add.at(E, idx, dout),
            "row 'a' first, E[0, 0] was 0.12573, is now 0.46535, by "
            "np.add.at(E, idx, dout); write into a fresh array",
        ),
        (
            add_into,
            "row 'a' first, E[0, 0] was 0.12573, is now 1.92737, by `E[idx] "
            "+= P[:T]`; write into a fresh array",
        ),
        (
            lambda E: np.copyto(E, 0),
            "row 'a' first, E[0, 0] was 0.12573, is now 0; write into a "
            "fresh array",
        ),
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
    assert verdict.passed is False
    assert verdict.reason == f"E itself changed: {says}"
    assert verdict.where == tuple(np.argwhere(after != E)[0])


def test_a_table_that_became_something_else_is_named():
    list_ = diagnose_unchanged(E.tolist(), E, "E").reason
    assert list_ == "E itself became a list; write into a fresh array"
    assert diagnose_unchanged(E[:2].astype("f4"), E, "E").reason == (
        "E itself became an array of shape (2, 4) and dtype float32; write "
        "into a fresh array"
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_unchanged_table_passes_even_if_not_finite(bad):
    holey = E.copy()
    holey[2, 1] = bad
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


def test_right_float32_gradients_of_float32_tables_pass():
    E, P = np.ones((5, 2), np.float32), np.ones((4, 2), np.float32)
    idx, dout = np.array([[1, 3, 1]]), np.ones((1, 3, 2))
    dP = np.array([[1, 1], [1, 1], [1, 1], [0, 0]], np.float32)
    assert diagnose_dP(dP, idx, dout, P).passed
    dE = np.array([[0, 0], [2, 2], [0, 0], [1, 1], [0, 0]], np.float32)
    assert diagnose_dE(dE, idx, dout, E).passed
