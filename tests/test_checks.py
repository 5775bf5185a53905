"""Every answer to an exercise gets a reply: the right one, and its own."""

import functools
import linecache

import numpy as np
import pytest

from lantern_embed import EmbeddingLayer, chars, check_gradients, data
from lantern_embed.lesson.checks import (
    check_backward,
    check_count,
    check_forward,
    check_frozen,
    check_full_window,
    check_mystery,
    check_naive,
)
from lantern_embed.lesson.mystery import mystery_layers

CHECKS = {
    check_backward,
    check_count,
    check_forward,
    check_frozen,
    check_full_window,
    check_mystery,
    check_naive,
}


@pytest.fixture
def reply(capsys):
    """Run a check; return the paragraph that it prints, on one line."""

    def run(check, answer):
        assert check(answer) is None
        printed = capsys.readouterr().out
        prose = printed.partition("\n    ")[0]  # after it: the learner's line
        assert max(map(len, prose.splitlines())) <= 79
        return " ".join(printed.split())

    return run


def subclass(**methods):
    return type("MyLayer", (EmbeddingLayer,), methods)


def forward_with(compute, cache=lambda idx: (idx, idx.shape[1])):
    """Make a layer from a formula for out, with or without a cache."""

    def forward(self, idx):
        self.cache = cache(idx)
        return compute(self, idx, self.P[: idx.shape[1]])

    return subclass(forward=forward)


def backward_with(dE=None, dP=None, returns=None):
    """Make a layer with a backward of which only a part is one's own."""

    def backward(self, dout):
        right = EmbeddingLayer.backward
        old = self.dE, self.dP
        right(self, dout)
        new = self.dE, self.dP
        self.dE, self.dP = old
        idx, T = self.cache
        self.dE = dE(self, idx, dout) if dE else new[0]
        self.dP = dP(self, T, dout) if dP else new[1]
        return returns

    return subclass(backward=backward)


def stub(self, *_): ...


def stub_that_raises(self, *_):
    raise NotImplementedError


def stub_of_none(self, *_):
    self.dE = self.dP = None


# ------------------------------------------------------------ right answers
def loop_out(self, idx, pos):
    out = np.empty((*idx.shape, self.E.shape[1]))
    for b, t in np.ndindex(*idx.shape):
        out[b, t] = self.E[idx[b, t]] + self.P[t]
    return out


def one_hot(self, idx):
    return (idx.reshape(-1, 1) == np.arange(len(self.E))).astype(float)


def one_hot_out(self, idx, pos):
    return (one_hot(self, idx) @ self.E).reshape(*idx.shape, -1) + pos


def noisy_out(self, idx, pos):
    out = self.E[idx] + pos
    return out + 1e-12 * np.sin(np.arange(out.size)).reshape(out.shape)


def add_at(self, idx, dout):
    dE = np.zeros_like(self.E)
    np.add.at(dE, idx, dout)
    return dE


def loop_dE(self, idx, dout):
    dE = np.zeros(self.E.shape)
    for b, t in np.ndindex(*idx.shape):
        dE[idx[b, t]] += dout[b, t]
    return dE


def one_hot_dE(self, idx, dout):
    return one_hot(self, idx).T @ dout.reshape(-1, dout.shape[2])


def bincount_dE(self, idx, dout):
    columns = [
        np.bincount(idx.ravel(), weights=c.ravel(), minlength=len(self.E))
        for c in np.moveaxis(dout, 2, 0)
    ]
    return np.stack(columns, axis=1)


def sorted_dE(self, idx, dout):
    order = np.argsort(idx.ravel(), kind="stable")
    used, start = np.unique(idx.ravel()[order], return_index=True)
    dE = np.zeros_like(self.E)
    slices = dout.reshape(-1, dout.shape[2])[order]
    dE[used] = np.add.reduceat(slices, start)
    return dE


def noisy_dE(self, idx, dout):
    return add_at(self, idx, dout) * (1 + 1e-12)


def loop_dP(self, T, dout):
    dP = np.zeros(self.P.shape)
    for b in reversed(range(len(dout))):
        for t in range(T):
            dP[t] += dout[b, t]
    return dP


def matmul_dP(self, T, dout):
    dP = np.zeros_like(self.P)
    dP[:T] = np.einsum("btc->tc", dout)
    return dP


def padded_dP(self, T, dout):
    return np.pad(dout.sum(axis=0), ((0, len(self.P) - T), (0, 0)))


def naive_dE(self, idx, dout):
    dE = np.zeros_like(self.E)
    dE[idx] += dout
    return dE


def naive_loop(self, idx, dout):
    dE = np.zeros_like(self.E)
    for b, t in np.ndindex(*idx.shape):
        dE[idx[b, t]] = dout[b, t]
    return dE


def naive_by_set(self, idx, dout):
    dE = np.zeros_like(self.E)
    dE[idx.ravel()] = dout.reshape(-1, dout.shape[2])
    return dE


def zero_dP(self, *_):
    return np.zeros_like(self.P)


class FreezeInPlace(EmbeddingLayer):
    def backward(self, dout):
        super().backward(dout)
        self.dP[:] = 0


class FreezeWithoutDP(EmbeddingLayer):
    def backward(self, dout):
        idx, _ = self.cache
        self.dE = one_hot_dE(self, idx, dout)
        self.dP = np.zeros(self.P.shape)


RIGHT = [
    (
        check_count,
        lambda vocab_size, block_size, C: (vocab_size + block_size) * C,
    ),
    (check_count, lambda V, n, C: V * C + n * C),
    (check_count, lambda *sizes: sum(sizes[:2]) * sizes[2]),
    (
        check_count,
        lambda V, n, C: np.zeros((V, C)).size + np.zeros((n, C)).size,
    ),
    (check_count, lambda V, n, C: np.int64(V * C + n * C)),
    (
        check_count,
        lambda *s: EmbeddingLayer(*s).E.size + EmbeddingLayer(*s).P.size,
    ),
    (check_forward, forward_with(lambda self, idx, pos: self.E[idx] + pos)),
    (check_forward, forward_with(loop_out)),
    (check_forward, forward_with(one_hot_out)),
    (check_forward, forward_with(noisy_out)),
    (
        check_forward,
        subclass(forward=lambda s, i: EmbeddingLayer.forward(s, i)),
    ),
    *((check_backward, backward_with(dE)) for dE in (add_at, loop_dE)),
    *((check_backward, backward_with(dE)) for dE in (one_hot_dE, noisy_dE)),
    *((check_backward, backward_with(dE)) for dE in (bincount_dE, sorted_dE)),
    *((check_backward, backward_with(dP=dP)) for dP in (loop_dP, matmul_dP)),
    (check_backward, backward_with(loop_dE, padded_dP)),
    (check_frozen, backward_with(dP=zero_dP)),
    (check_frozen, FreezeInPlace),
    (check_frozen, FreezeWithoutDP),
    (check_full_window, data[:32].reshape(1, 32)),
    (check_full_window, data[:96].reshape(3, 32).astype(np.uint8)),
    (check_full_window, np.zeros((2, 32), int)),
    (check_full_window, [[5] * 32]),
    (check_naive, backward_with(naive_dE)),
    (check_naive, backward_with(naive_loop)),
    (check_naive, backward_with(naive_by_set, loop_dP)),
    (check_mystery, "B"),
    (check_mystery, " b "),
]


CORRECT = {
    check_count: "(vocab_size + block_size) * C, here count(24, 32, 16) = "
    "896.",
    check_forward: "out is E[idx] + P[:T] for batches of several shapes, "
    "cache is (idx, T), and E and P are as they were.",
    check_backward: "every use of a row adds its slice to dE, dP sums over "
    "the batch, unused rows are exactly 0, and each call starts afresh.",
    check_frozen: "dE is what it always was, dP is zero in every row, and "
    "forward still adds P.",
    check_full_window: "with T = 32 = block_size each of the 32 rows of dP "
    "gets a gradient.",
    check_naive: "the gradient check fails dE with a max rel err of 1.0 (row "
    "' ' was used 2 times but kept only its last slice: `dE[idx] += dout`, "
    "like `=`, writes each row once; use np.add.at) and passes dP, which is "
    "summed without any ids.",
    check_mystery: "B is broken: on 'the lamp keeper ', row ' ' was used 3 "
    "times but kept only its first two slices: each use must add its own.",
}


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_a_right_answer_is_right_however_it_is_written(check, answer, reply):
    assert reply(check, answer) == f"correct: {CORRECT[check]}"


# ---------------------------------------------------------- untouched stubs
RAISES = "the code still raises NotImplementedError"
NONE_STORED = (
    "after backward, dE and dP are still None; it stores them in self.dE and "
    "self.dP"
)
NOTHING_GIVEN = {
    check_count: "there is no function to check",
    check_full_window: "there is no batch to check",
    check_mystery: 'set the answer to "A", "B" or "C"',
}
STUBS = [
    *(
        (
            check,
            nothing,
            NOTHING_GIVEN.get(check, "there is no class to check"),
        )
        for check in CHECKS
        for nothing in (None, ...)
    ),
    (check_count, stub, "stub returns None; end it with `return`"),
    (check_count, stub_that_raises, RAISES),
    *(
        (
            check_forward,
            subclass(forward=nothing),
            "forward returns None; end it with `return out`",
        )
        for nothing in (stub, lambda self, idx: ...)
    ),
    (check_forward, subclass(), "MyLayer has no forward of its own"),
    (
        check_forward,
        EmbeddingLayer,
        "EmbeddingLayer has no forward of its own",
    ),
    (check_forward, subclass(forward=stub_that_raises), RAISES),
    *(
        (check, layer, says)
        for check in (check_backward, check_frozen, check_naive)
        for layer, says in (
            (subclass(), "MyLayer has no backward of its own"),
            (EmbeddingLayer, "EmbeddingLayer has no backward of its own"),
            (subclass(backward=stub), NONE_STORED),
            (subclass(backward=stub_of_none), NONE_STORED),
            (subclass(backward=stub_that_raises), RAISES),
        )
    ),
]


@pytest.mark.parametrize(("check", "answer", "says"), STUBS)
def test_an_untouched_stub_is_not_written_yet(check, answer, says, reply):
    assert reply(check, answer) == f"not written yet: {says}"


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_without_an_answer_says_so_too(check, capsys):
    assert check() is None
    assert capsys.readouterr().out.startswith("not written yet: ")


# ----------------------------------------------------------------- mistakes
def tells(table):
    """Make test parameters of a table: name, answer, what the reply says."""
    return [pytest.param(*row[1:], id=row[0]) for row in table]


COUNT_MISTAKES = [
    (
        "E",
        lambda V, n, C: V * C,
        "not yet: count(24, 32, 16) gives 384, which is E alone, vocab_size * "
        "C: P has block_size * C more",
    ),
    (
        "P",
        lambda V, n, C: n * C,
        "not yet: count(24, 32, 16) gives 512, which is P alone, block_size * "
        "C: E has vocab_size * C more",
    ),
    (
        "product",
        lambda V, n, C: V * n * C,
        "not yet: count(24, 32, 16) gives 12288, which is all three sizes "
        "multiplied: the two tables stand side by side, so add their sizes",
    ),
    (
        "V * n",
        lambda V, n, C: V * n,
        "not yet: count(24, 32, 16) gives 768, which is vocab_size * "
        "block_size: no table has that shape; E is (vocab_size, C), P is "
        "(block_size, C)",
    ),
    (
        "no C",
        lambda V, n, C: V + n,
        "not yet: count(24, 32, 16) gives 56, which is the number of rows, "
        "vocab_size + block_size: each row holds C numbers",
    ),
    (
        "C for E",
        lambda V, n, C: V * C + n,
        "not yet: count(24, 32, 16) gives 416, which is vocab_size * C + "
        "block_size: the rows of P hold C numbers each, too",
    ),
    (
        "C for P",
        lambda V, n, C: V + n * C,
        "not yet: count(24, 32, 16) gives 536, which is vocab_size + "
        "block_size * C: the rows of E hold C numbers each, too",
    ),
    (
        "float",
        lambda V, n, C: (V + n) * C / 1,
        "not yet: count(24, 32, 16) is of type float: a number of parameters "
        "is a whole number, an int",
    ),
    (
        "string",
        lambda V, n, C: str((V + n) * C),
        "not yet: count(24, 32, 16) is of type str: a number of parameters is "
        "a whole number, an int",
    ),
    (
        "bool",
        lambda V, n, C: True,
        "not yet: count(24, 32, 16) is of type bool: a number of parameters "
        "is a whole number, an int",
    ),
    (
        "array",
        lambda V, n, C: np.array([896]),
        "not yet: count(24, 32, 16) is of type ndarray: a number of "
        "parameters is a whole number, an int",
    ),
    (
        "constant",
        lambda V, n, C: 896,
        "not yet: count gives 896 for all sizes tried: compute it from the "
        "three arguments",
    ),
    (
        "one off",
        lambda V, n, C: (V + n) * C + 1,
        "not yet: count(24, 32, 16) gives 897: E has 24 rows, P has 32, and "
        "each row holds 16 numbers",
    ),
    (
        "right once",
        lambda V, n, C: 896 if C == 16 else 30,
        "not yet: count(7, 5, 3) gives 30: E has 7 rows, P has 5, and each "
        "row holds 3 numbers",
    ),
    (
        "right twice",
        lambda V, n, C: (V + n) * C if V != 11 else 0,
        "not yet: count(11, 2, 13) gives 0: E has 11 rows, P has 2, and each "
        "row holds 13 numbers",
    ),
    (
        "without a name",
        functools.partial(lambda size, V, n, C: size, 5),
        "not yet: count gives 5 for all sizes tried: compute it from the "
        "three arguments",
    ),
    (
        "called",
        896,
        "not yet: hand over the function itself, check_count(count), not what "
        "it returns",
    ),
]


@pytest.mark.parametrize(("answer", "says"), tells(COUNT_MISTAKES))
def test_count_tells_each_mistake(answer, says, reply):
    said = reply(check_count, answer)
    assert said == says


def test_count_shows_an_error_of_the_learner(reply):
    said = reply(check_count, lambda V, n: V * n)
    assert said.startswith("not yet: your code could not be called: TypeErr")
    assert "takes 2 positional arguments but 3 were given; compare" in said


def into_E(self, idx, pos):
    self.E[idx] += pos
    return self.E[idx]


def into_P(self, idx, pos):
    self.P += 1
    return self.E[idx] + pos


def into_idx(self, idx, pos):
    out = self.E[idx] + pos
    idx[0, 0] = 0
    return out


def one_buffer(self, idx, pos):
    if not hasattr(self, "buffer"):
        self.buffer = np.empty((9, 9, self.E.shape[1]))
    out = self.buffer[: idx.shape[0], : idx.shape[1]]
    out[:] = self.E[idx] + pos
    return out


def right_out(self, idx, pos):
    return self.E[idx] + pos


FORWARD_MISTAKES = [
    (
        "ids into P",
        lambda s, i, p: s.E[i] + s.P[i],
        "not yet: out[0, 0] added P[19], the row of its id: P goes by "
        "position, use P[:T], not P[idx]",
    ),
    (
        "wrong axis",
        lambda s, i, p: s.E[i] + s.P[: len(i), None],
        "not yet: P was added along the wrong axis: out[0, 1] got P[0] for "
        "its sequence, not P[1] for its position",
    ),
    (
        "reversed",
        lambda s, i, p: s.E[i] + p[::-1],
        "not yet: P was added in reverse: position 0 got P[6]: position 0 "
        "should get P[0]",
    ),
    (
        "last rows",
        lambda s, i, p: s.E[i] + s.P[-len(p) :],
        "not yet: P[25:32] (the last T rows) was added: position 0 should get "
        "P[0], use P[:T]",
    ),
    (
        "no P",
        lambda s, i, p: s.E[i],
        "not yet: P was forgotten: out[0, 0] is row 't' of E and nothing else",
    ),
    (
        "E scaled",
        lambda s, i, p: s.E[i] * np.sqrt(s.E.shape[1]) + p,
        "not yet: E is scaled: out[0, 0] holds row 't' of E times 2.23607 = "
        "sqrt(C); add it as it is",
    ),
    (
        "concatenated",
        lambda s, i, p: np.concatenate(
            [s.E[i], np.broadcast_to(p, s.E[i].shape)], axis=2
        ),
        "not yet: out has shape (3, 7, 10), not (3, 7, 5): tokens and "
        "positions were joined to 10 channels: add them, do not concatenate",
    ),
    (
        "no batch",
        lambda s, i, p: s.E[i[0]] + p,
        "not yet: out has shape (7, 5), not (3, 7, 5): the batch axis is "
        "gone: keep one (T, C) block per sequence",
    ),
    (
        "E changed",
        into_E,
        "not yet: E itself changed: row ' ' first, E[0, 0] was 2.46031e-05, "
        "is now 0.0072814, by `E[idx] += P[:T]`; write into a fresh array",
    ),
    (
        "P changed",
        into_P,
        "not yet: P itself changed: P[0, 0] was 0.00178613, is now 1.00179; "
        "write into a fresh array",
    ),
    (
        "idx changed",
        into_idx,
        "not yet: forward changed idx itself: only read it",
    ),
    (
        "shared",
        one_buffer,
        "not yet: out is not a fresh array: it shares memory with E, P or an "
        "earlier out",
    ),
    (
        "float32",
        lambda s, i, p: (s.E[i] + p).astype("f4"),
        "not yet: out has dtype float32, not float64",
    ),
    (
        "tuple",
        lambda s, i, p: (s.E[i], p),
        "not yet: out is of type tuple, not a NumPy array",
    ),
    (
        "list",
        lambda s, i, p: (s.E[i] + p).tolist(),
        "not yet: out is of type list, not a NumPy array",
    ),
    (
        "nan",
        lambda s, i, p: s.E[i] * np.nan,
        "not yet: out[0, 0, 0] should be 0.0134538, got nan",
    ),
]
CACHES = [
    (
        "other ids",
        lambda idx: (idx * 0, idx.shape[1]),
        "not yet: cache should be the tuple (idx, T), here T = 7, after "
        "forward its first entry is not the batch idx",
    ),
    (
        "none",
        lambda idx: None,
        "not yet: cache is still None after forward: backward will not know "
        "which rows were used; cache should be the tuple (idx, T), here T = 7",
    ),
    (
        "only idx",
        lambda idx: idx,
        "not yet: cache should be the tuple (idx, T), here T = 7, after "
        "forward it is a ndarray",
    ),
    (
        "three",
        lambda idx: (idx, *idx.shape),
        "not yet: cache should be the tuple (idx, T), here T = 7, after "
        "forward it is a tuple of 3",
    ),
    (
        "list",
        lambda idx: [idx, idx.shape[1]],
        "not yet: cache should be the tuple (idx, T), here T = 7, after "
        "forward it is a list",
    ),
    (
        "B",
        lambda idx: (idx, len(idx)),
        "not yet: cache should be the tuple (idx, T), here T = 7, after "
        "forward its second entry is 3",
    ),
    (
        "swapped",
        lambda idx: (idx.shape[1], idx),
        "not yet: cache should be the tuple (idx, T), here T = 7, after "
        "forward its first entry is not the batch idx",
    ),
]


@pytest.mark.parametrize(("compute", "says"), tells(FORWARD_MISTAKES))
def test_forward_tells_each_mistake(compute, says, reply):
    said = reply(check_forward, forward_with(compute))
    assert said == says


@pytest.mark.parametrize(("cache", "says"), tells(CACHES))
def test_forward_tells_what_is_wrong_with_the_cache(cache, says, reply):
    said = reply(check_forward, forward_with(right_out, cache))
    assert said == says


def test_an_error_comes_with_the_sizes_that_it_met(reply):
    layer = forward_with(lambda s, i, p: (s.E[i] + p).reshape(3, 7, 5))
    said = reply(check_forward, layer)
    assert said.startswith("not yet: ")
    assert (
        "raised ValueError: cannot reshape array of size 40 into shape "
        "(3,7,5); here B = 2, T = 4, C = 5, vocab_size = 24, block_size = 32 "
    ) in said


def plus_old(self, idx, dout):
    return add_at(self, idx, dout) + (0 if self.dE is None else self.dE)


def keep_old(self, idx, dout):
    dE = add_at(self, idx, dout)
    if self.dE is not None:
        dE += self.dE * (dE == 0)
    return dE


def plus_old_dP(self, T, dout):
    return matmul_dP(self, T, dout) + (0 if self.dP is None else self.dP)


def keep_old_dP(self, T, dout):
    dP = matmul_dP(self, T, dout)
    if self.dP is not None:
        dP[T:] = self.dP[T:]
    return dP


def first_wins(self, idx, dout):
    return naive_dE(self, idx[::-1, ::-1], dout[::-1, ::-1])


def mean_dE(self, idx, dout):
    count = np.bincount(idx.ravel(), minlength=len(self.E))
    return add_at(self, idx, dout) / np.maximum(count, 1)[:, None]


def swapped_dE(self, idx, dout):
    return add_at(self, idx.T.reshape(-1), dout.reshape(-1, dout.shape[2]))


def rows(pick):
    """Make a dP from the rows to put first."""

    def dP(self, T, dout):
        dP = np.zeros_like(self.P)
        first = pick(dout)
        dP[: len(first)] = first
        return dP

    return dP


def shifted_dP(self, T, dout):
    return np.roll(matmul_dP(self, T, dout), 1, axis=0)


def beyond_T(self, T, dout):
    dP = matmul_dP(self, T, dout)
    dP[T:] = dP[0]
    return dP


def negative(right):
    return lambda *given: -right(*given)


BACKWARD_MISTAKES = [
    (
        "last wins",
        naive_dE,
        None,
        "not yet: row ' ' was used 3 times but kept only its last slice: "
        "`dE[idx] += dout`, like `=`, writes each row once; use np.add.at",
    ),
    (
        "= in a loop",
        naive_loop,
        None,
        "not yet: row ' ' was used 3 times but kept only its last slice: "
        "`dE[idx] += dout`, like `=`, writes each row once; use np.add.at",
    ),
    (
        "first wins",
        first_wins,
        None,
        "not yet: row ' ' was used 3 times but kept only its first slice: "
        "each use must add its own",
    ),
    (
        "mean",
        mean_dE,
        None,
        "not yet: row ' ' of dE is the mean of its 3 slices, not their sum: "
        "do not divide by the count",
    ),
    (
        "swapped",
        swapped_dE,
        None,
        "not yet: B and T were swapped: row ' ' of dE got slices of other "
        "ids: idx.T does not go with dout",
    ),
    (
        "gathered",
        lambda s, i, d: s.E[i],
        None,
        "not yet: dE has shape (3, 7, 5), not (24, 5): it has a row for each "
        "use, like E[idx]: it was gathered, not scattered; add the slices "
        "into np.zeros_like(E)",
    ),
    (
        "sign",
        negative(add_at),
        None,
        "not yet: the sign of dE is flipped, see row ' '",
    ),
    (
        "added to old",
        plus_old,
        None,
        "not yet: row ' ' was added to the previous call's gradient: start dE "
        "from zeros every time",
    ),
    (
        "not cleared",
        keep_old,
        None,
        "not yet: row 'k' is unused now, yet holds the previous call's "
        "gradient: start dE from zeros every time",
    ),
    (
        "zeros",
        lambda s, i, d: s.E * 0,
        None,
        "not yet: dE is all zeros: nothing was added, not even to row ' '",
    ),
    (
        "no dE",
        lambda s, i, d: None,
        None,
        "not yet: dE is still None: never set, or set to what np.add.at "
        "returns, which is None",
    ),
    (
        "float32",
        lambda *a: add_at(*a).astype("f4"),
        None,
        "not yet: dE has dtype float32, not float64",
    ),
    (
        "list",
        lambda *a: add_at(*a).tolist(),
        None,
        "not yet: dE is of type list, not a NumPy array",
    ),
    (
        "first row",
        None,
        rows(lambda d: d[0]),
        "not yet: row 0 of dP holds only the first of 3 sequences: sum over "
        "the batch, dout.sum(axis=0)",
    ),
    (
        "mean",
        None,
        rows(lambda d: d.mean(0)),
        "not yet: row 0 of dP is the mean over the batch of 3: take the sum",
    ),
    (
        "(T, C)",
        None,
        lambda s, T, d: d.sum(0),
        "not yet: dP has shape (7, 5), not (32, 5): it has only the T = 7 "
        "rows in use: put them into np.zeros_like(P)",
    ),
    (
        "shifted",
        None,
        shifted_dP,
        "not yet: dP is shifted: the gradient of position 0 is in row 1; "
        "write into dP[:T]",
    ),
    (
        "beyond T",
        None,
        beyond_T,
        "not yet: dP[7, 0] should be 0, got 2.23329: row 7 was not used, so "
        "it must stay exactly 0",
    ),
    (
        "swapped",
        None,
        rows(lambda d: d.sum(1)),
        "not yet: B and T were swapped: row 0 of dP was summed over "
        "positions; sum over the batch, axis 0",
    ),
    (
        "sign",
        None,
        negative(matmul_dP),
        "not yet: the sign of dP is flipped, see row 0 of dP",
    ),
    (
        "added to old",
        None,
        plus_old_dP,
        "not yet: row 0 of dP was added to the previous call's gradient: "
        "start dP from zeros every time",
    ),
    (
        "not cleared",
        None,
        keep_old_dP,
        "not yet: row 4 of dP is unused now, yet holds the previous call's "
        "gradient: start dP from zeros every time",
    ),
    ("no dP", None, lambda s, T, d: None, "not yet: dP is still None"),
]


@pytest.mark.parametrize(("dE", "dP", "says"), tells(BACKWARD_MISTAKES))
def test_backward_tells_each_mistake(dE, dP, says, reply):
    said = reply(check_backward, backward_with(dE, dP))
    assert said == says


def changes(change):
    """Make a layer with a right backward that changes something else."""

    def backward(self, dout):
        EmbeddingLayer.backward(self, dout)
        change(self, dout)

    return subclass(backward=backward)


CHANGES = [
    (
        "E",
        lambda self, dout: np.add.at(self.E, self.cache[0], dout),
        "not yet: E itself changed: row ' ' first, E[0, 0] was 2.46031e-05, "
        "is now 0.267402, by np.add.at(E, idx, dout); write into a fresh "
        "array",
    ),
    (
        "E step",
        lambda self, _: self.E.__isub__(self.dE),
        "not yet: E itself changed: row ' ' first, E[0, 0] was 2.46031e-05, "
        "is now -0.267353; write into a fresh array",
    ),
    (
        "P",
        lambda self, _: self.P.fill(3),
        "not yet: P itself changed: P[0, 0] was 0.00178613, is now 3; write "
        "into a fresh array",
    ),
    (
        "cache",
        lambda self, _: setattr(self, "cache", None),
        "not yet: cache is still None after backward: backward will not know "
        "which rows were used; cache should be the tuple (idx, T), here T = 7",
    ),
    (
        "dout",
        lambda self, dout: dout.fill(0),
        "not yet: backward changed dout itself: only read it",
    ),
]


@pytest.mark.parametrize(("change", "says"), tells(CHANGES))
def test_backward_tells_what_else_it_changed(change, says, reply):
    said = reply(check_backward, changes(change))
    assert said == says


def test_backward_says_politely_that_it_returns_something(reply):
    said = reply(check_backward, backward_with(returns=1))
    assert said == (
        "not yet: dE and dP are right; only, backward returns something too. "
        "Ids are integers and have no gradient, so it returns None: leave the "
        "return line out"
    )

    def backward(self, dout):
        return add_at(self, self.cache[0], dout), np.zeros_like(self.P)

    said = reply(check_backward, subclass(backward=backward))
    assert said == (
        "not yet: backward returns its result, and dE and dP stay None: store "
        "the gradients in self.dE and self.dP"
    )


def test_backward_uses_the_forward_of_the_learner_if_there_is_one(reply):
    layer = type(
        "Both",
        (forward_with(lambda s, i, p: s.E[i]),),
        {"backward": EmbeddingLayer.__dict__["backward"]},
    )
    layer.backward = lambda self, dout: EmbeddingLayer.backward(self, dout)
    assert reply(check_backward, layer) == (
        "not yet: P was forgotten: out[0, 0] is row 't' of E and nothing else"
    )


def test_backward_needs_a_cache_from_the_forward_of_the_learner(reply):
    def backward(self, dout):
        raise AssertionError("backward must not run")

    layer = forward_with(right_out, lambda idx: None)
    layer.backward = backward
    assert reply(check_backward, layer) == (
        "not yet: cache is still None after forward: backward will not know "
        "which rows were used; cache should be the tuple (idx, T), here T = 7"
    )


def zeroed(self, *sizes, **seed):
    EmbeddingLayer.__init__(self, *sizes, **seed)
    self.P = np.zeros_like(self.P)


def zero_P_late(self, dout):
    EmbeddingLayer.backward(self, dout)
    self.dP = np.zeros_like(self.P)
    self.P[:] = 0


def without_P(self, idx):
    self.cache = idx, idx.shape[1]
    return self.E[idx]


FROZEN_MISTAKES = [
    (
        "None",
        backward_with(dP=stub),
        "not yet: dP is None: whoever updates P needs an array to subtract, "
        "zeros of the shape of P, (32, 5)",
    ),
    (
        "ordinary",
        subclass(backward=lambda s, d: EmbeddingLayer.backward(s, d)),
        "not yet: dP is the ordinary gradient, so nothing is frozen yet: its "
        "rows 0 to 6 should be 0 too",
    ),
    (
        "dE too",
        backward_with(lambda s, i, d: s.E * 0, zero_dP),
        "not yet: dE is all zeros, so E is frozen as well: only dP should be "
        "0",
    ),
    (
        "P zero",
        subclass(__init__=zeroed),
        "not yet: P itself is zero, so positions are gone: frozen means that "
        "P keeps its values and dP is zero",
    ),
    (
        "P zeroed",
        subclass(backward=zero_P_late),
        "not yet: P itself is zero, so positions are gone: frozen means that "
        "P keeps its values and dP is zero",
    ),
    (
        "forward",
        type("L", (FreezeInPlace,), {"forward": without_P}),
        "not yet: P was forgotten: out[0, 0] is row 't' of E and nothing else",
    ),
    (
        "shape",
        backward_with(dP=lambda s, T, d: np.zeros_like(d[0])),
        "not yet: dP has shape (7, 5), not (32, 5): it has only the T = 7 "
        "rows in use: put them into np.zeros_like(P)",
    ),
    (
        "number",
        backward_with(dP=lambda s, T, d: 0),
        "not yet: dP is of type int, not a NumPy array",
    ),
    (
        "half",
        backward_with(dP=lambda s, T, d: matmul_dP(s, T, d) * 0.5),
        "not yet: dP[0, 0] should be 0, got 1.11665",
    ),
    (
        "naive dE",
        backward_with(naive_dE, zero_dP),
        "not yet: row ' ' was used 3 times but kept only its last slice: "
        "`dE[idx] += dout`, like `=`, writes each row once; use np.add.at",
    ),
]


@pytest.mark.parametrize(("layer", "says"), tells(FROZEN_MISTAKES))
def test_frozen_tells_each_mistake(layer, says, reply):
    said = reply(check_frozen, layer)
    assert said == says


def test_frozen_tells_when_dE_is_added_to_the_old_one(reply):
    assert reply(check_frozen, backward_with(plus_old, zero_dP)) == (
        "not yet: row ' ' was added to the previous call's gradient: start dE "
        "from zeros every time"
    )


@pytest.mark.parametrize(("change", "says"), tells(CHANGES))
@pytest.mark.parametrize("check", [check_frozen, check_naive])
def test_the_other_checks_tell_what_else_changed(check, change, says, reply):
    assert reply(check, changes(change)) == says


def test_frozen_names_a_P_that_starts_with_other_numbers(reply):
    def init(self, *sizes, **seed):
        EmbeddingLayer.__init__(self, *sizes, **seed)
        self.P[0, 0] = 1

    assert reply(check_frozen, subclass(__init__=init)) == (
        "not yet: P itself changed: P[0, 0] was 0.00178613, is now 1; write "
        "into a fresh array"
    )


def test_a_forward_of_ones_own_is_an_answer_to_frozen_too(reply):
    said = reply(check_frozen, forward_with(right_out))
    assert said.startswith("not yet: dP is the ordinary gradient")


WINDOW_MISTAKES = [
    (
        "1-D",
        data[:32],
        "not yet: shape (32,) is one sequence without a batch axis: reshape "
        "it to (1, 32)",
    ),
    (
        "T = 1",
        data[:32].reshape(32, 1),
        "not yet: rows 1 to 31 of dP stay zero: shape (32, 1) means 32 "
        "sequences of one token: T is 1",
    ),
    (
        "(2, 16)",
        data[:32].reshape(2, 16),
        "not yet: rows 16 to 31 of dP stay zero: 32 tokens in 2 sequences, so "
        "T is only 16",
    ),
    (
        "T = 31",
        data[:31].reshape(1, 31),
        "not yet: row 31 of dP stays zero: T is 31",
    ),
    (
        "T = 33",
        data[:33].reshape(1, 33),
        "not yet: T = 33 is longer than block_size = 32: P has no row 32, so "
        "forward refuses",
    ),
    (
        "floats",
        np.zeros((1, 32)),
        "not yet: these ids have dtype float64: they name rows, so they must "
        "be integers",
    ),
    (
        "bools",
        np.zeros((1, 32), bool),
        "not yet: these ids have dtype bool: they name rows, so they must be "
        "integers",
    ),
    (
        "no rows",
        np.zeros((0, 32), int),
        "not yet: this batch is empty: no row of dP gets a gradient",
    ),
    (
        "3-D",
        np.zeros((1, 1, 32), int),
        "not yet: a batch has two axes, (B, T), this one has 3",
    ),
    (
        "id",
        np.full((1, 32), 24),
        "not yet: id 24 at (b, t) = (0, 0) is outside 0..23 (vocab_size is "
        "24)",
    ),
    (
        "ragged",
        [[1, 2], [3]],
        "not yet: the sequences in this list are not all of one length",
    ),
    (
        "text",
        "the lamp keeper",
        "not yet: this is of type str, not a batch of ids, shape (B, T)",
    ),
]


@pytest.mark.parametrize(("answer", "says"), tells(WINDOW_MISTAKES))
def test_full_window_tells_each_mistake(answer, says, reply):
    said = reply(check_full_window, answer)
    assert said == says


def test_naive_shows_what_the_gradient_check_says(reply):
    said = reply(check_naive, backward_with(naive_dE))
    assert "fails dE with a max rel err of 1.0 (row ' ' was used 2" in said
    assert "passes dP" in said


NAIVE_MISTAKES = [
    (
        "right",
        backward_with(add_at),
        "not yet: dE is still right, so the scatter is not naive yet: put "
        "`dE[idx] += dout` instead of np.add.at",
    ),
    (
        "first wins",
        backward_with(first_wins),
        "not yet: dE is wrong, but not by the naive scatter: row ' ' was used "
        "3 times but kept only its first slice: each use must add its own",
    ),
    (
        "list",
        backward_with(lambda *a: [1]),
        "not yet: dE is wrong, but not by the naive scatter: dE is of type "
        "list, not a NumPy array",
    ),
    (
        "dP too",
        backward_with(naive_dE, rows(lambda d: d[0])),
        "not yet: dE is naive, but leave dP alone: row 0 of dP holds only the "
        "first of 3 sequences: sum over the batch, dout.sum(axis=0)",
    ),
]


def test_naive_starts_from_zeros_every_time(reply):
    def naive_plus_old(self, idx, dout):
        return naive_dE(self, idx, dout) + (0 if self.dE is None else self.dE)

    assert reply(check_naive, backward_with(naive_plus_old)) == (
        "not yet: dE is wrong, but not by the naive scatter: row ' ' was "
        "added to the previous call's gradient: start dE from zeros every "
        "time, and use np.add.at"
    )


@pytest.mark.parametrize(("layer", "says"), tells(NAIVE_MISTAKES))
def test_naive_tells_each_mistake(layer, says, reply):
    said = reply(check_naive, layer)
    assert said == says


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *(
            (
                right,
                f"{right} is right: on 'the lamp keeper ', where 'e' comes "
                "four times, its dE and its dP pass the gradient check. Run "
                "the check on the other two, with a batch like that",
            )
            for right in "AC"
        ),
        *((odd, 'the answer is one letter, "A", "B" or "C"') for odd in "D1"),
        (1, 'the answer is one letter, "A", "B" or "C"'),
    ],
)
def test_mystery_explains_a_wrong_answer(answer, says, reply):
    assert reply(check_mystery, answer) == f"not yet: {says}"


def test_the_lesson_batch_passes_all_mystery_layers_and_repeats_fail_one():
    poor, rich = data[:10].reshape(2, 5), data[:16].reshape(1, 16)
    layers = mystery_layers()
    assert all(check_gradients(la, poor).passed for la in layers.values())
    reports = {
        name: check_gradients(layer, rich, names=chars)
        for name, layer in layers.items()
    }
    assert [name for name, r in reports.items() if not r.passed] == ["B"]
    assert [t.passed for t in reports["B"].tables] == [False, True]
    assert "only its first two slices" in reports["B"].tables[0].reason


@pytest.mark.parametrize(
    ("check", "mistakes"),
    [
        (check_count, COUNT_MISTAKES),
        (check_full_window, WINDOW_MISTAKES),
        (check_frozen, FROZEN_MISTAKES[:4] + FROZEN_MISTAKES[5:]),
        (check_naive, NAIVE_MISTAKES),
        (
            check_forward,
            [(n, forward_with(f)) for n, f, _ in FORWARD_MISTAKES],
        ),
    ],
)
def test_different_mistakes_get_different_replies(check, mistakes, reply):
    replies = [reply(check, answer) for _, answer, *_ in mistakes]
    assert len(set(replies)) == len(mistakes)


# ------------------------------------------------------------ their own errors
def broken(self, given):
    T = 7
    return self.E[:T] + self.P[:B]  # noqa: F821


def helper(rows):
    return rows[99]


def calls_helper(self, given):
    return helper(self.E)


def inside_numpy(self, given):
    return np.stack([self.E, np.ones(3)])


def inside_package(self, given):
    return EmbeddingLayer.forward(self, given.astype(float))


@pytest.mark.parametrize(
    ("code", "error", "line"),
    [
        (
            broken,
            "broken raised NameError: name 'B' is",
            "return self.E[:T]",
        ),
        (
            calls_helper,
            "helper raised IndexError: index 99",
            "return rows[99]",
        ),
        (
            inside_package,
            "inside_package raised TypeError: idx must hold integers",
            "return EmbeddingLayer.forward(",
        ),
        (
            inside_numpy,
            "inside_numpy raised ValueError: all",
            "np.stack(",
        ),
    ],
)
@pytest.mark.parametrize("check", [check_forward, check_backward])
def test_an_error_of_the_learner_is_shown_with_its_line(
    check, code, error, line, capsys
):
    method = check.__name__.removeprefix("check_")
    check(subclass(**{method: code}))
    printed = capsys.readouterr().out
    assert printed.startswith(f"not yet: {error}")
    last = printed.splitlines()[-1]
    assert last.strip().startswith("line ")
    assert line in last
    number = int(last.split()[1])
    assert last.endswith(linecache.getline(__file__, number).strip())
    assert ".py" not in printed
    assert "/" not in printed


def test_the_line_of_an_error_is_shown_to_its_last_letter(capsys):
    def forward(self, idx):
        return self.X

    check_forward(subclass(forward=forward))
    assert capsys.readouterr().out.endswith(": return self.X\n")


def test_an_error_message_shows_no_address(reply):
    def forward(self, idx):
        raise ValueError(f"cannot use {object()}")

    said = reply(check_forward, subclass(forward=forward))
    assert "ValueError: cannot use <object object>; here B = 3" in said


def test_capital_digits_of_an_address_are_left_out_too(reply):
    def forward(self, idx):
        raise ValueError("cannot use <object at 0x00007FFABC>")

    said = reply(check_forward, subclass(forward=forward))
    assert "ValueError: cannot use <object>; here B = 3" in said


def test_shapes_and_code_stay_on_one_line(capsys):
    check_full_window(data[:32])
    assert capsys.readouterr().out == (
        "not yet: shape (32,) is one sequence without a batch axis: reshape "
        "it to\n(1, 32)\n"
    )
    check_naive(backward_with(add_at))
    assert capsys.readouterr().out == (
        "not yet: dE is still right, so the scatter is not naive yet: put\n"
        "`dE[idx] += dout` instead of np.add.at\n"
    )


def test_long_words_and_hyphens_stay_in_one_piece(capsys):
    long = "x" * 90
    word = "half-finished-" * 4

    def forward(self, idx):
        raise ValueError(f"{word} {long}")

    check_forward(subclass(forward=forward))
    printed = capsys.readouterr().out
    assert f" {word} " in printed.replace("\n", " ")
    assert f"\n{long};" in printed


def test_an_error_that_cannot_be_printed_does_not_stop_the_check(reply):
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError

    def forward(self, idx):
        raise MuteError

    said = reply(check_forward, subclass(forward=forward))
    assert said.startswith("not yet: forward raised MuteError:; here B = 3")


def test_code_without_a_source_is_shown_by_its_line_number(capsys):
    space = {"EmbeddingLayer": EmbeddingLayer}
    code = "class L(EmbeddingLayer):\n  def forward(self, idx):\n    return x"
    exec(code, space)  # noqa: S102
    check_forward(space["L"])
    assert capsys.readouterr().out.endswith("\n    line 3 of your code\n")


class Unhappy(EmbeddingLayer):
    """A layer whose gradients cannot even be looked at."""

    def backward(self, dout):
        pass

    dE = property(lambda self: 1 / 0, lambda self, value: None)  # noqa: N815


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            EmbeddingLayer(3, 4, 5),
            "hand over the class itself, EmbeddingLayer, not a layer made of "
            "it",
        ),
        *(
            (
                answer,
                f"this answer is {kind}; it should be a class that starts "
                "with `class YourName(EmbeddingLayer):`",
            )
            for answer, kind in (
                (len, "of type builtin_function_or_method"),
                (int, "a class"),
                ("MyLayer", "of type str"),
            )
        ),
    ],
)
@pytest.mark.parametrize(
    "check", [check_forward, check_backward, check_frozen, check_naive]
)
def test_what_is_no_class_of_ones_own_is_named(check, answer, says, reply):
    assert reply(check, answer) == f"not yet: {says}"


@pytest.mark.parametrize(
    "layer",
    [
        subclass(forward=lambda self: 1, backward=lambda self: 1),
        subclass(__init__=lambda self: None, backward=stub, forward=stub),
        subclass(forward=None, backward=None),
    ],
)
@pytest.mark.parametrize(
    "check", [check_forward, check_backward, check_frozen, check_naive]
)
def test_what_cannot_be_called_is_told_to_compare_its_def_line(
    check, layer, capsys
):
    check(layer)
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("not yet: your code could not be called: TypeErr")
    assert said.endswith(
        "; compare its `def` line with the one you were given"
    )


def test_nothing_raises_at_a_learner(reply):
    things = [0, 1.5, "x", [], {}, {1}, len, Exception, np.int64, object()]
    things += [np.zeros(3), np.array(None), Unhappy, Unhappy(3, 4, 5), "ABC"]
    for check in CHECKS:
        for thing in things:
            assert reply(check, thing).startswith("not ")


def test_a_cache_that_cannot_index_is_refused(reply):
    floats = forward_with(
        lambda self, idx, P: self.E[idx] + P,
        cache=lambda idx: (idx.astype(float), idx.shape[1]),
    )
    assert "its first entry is not the batch idx" in reply(
        check_forward, floats
    )


def test_an_output_that_is_used_again_is_refused(reply):
    class Reuses(EmbeddingLayer):
        out = np.zeros((0, 0, 0))

        def forward(self, idx):
            out = super().forward(idx)
            if self.out.shape != out.shape:
                self.out = np.empty_like(out)
            self.out[:] = out
            return self.out

    assert "out is not a fresh array" in reply(check_forward, Reuses)


def test_a_forward_that_empties_idx_is_told_so_first(reply):
    class Empties(EmbeddingLayer):
        def forward(self, idx):
            idx[:] = 0
            return super().forward(idx)

    assert "forward changed idx itself" in reply(check_forward, Empties)


def test_naive_must_be_naive_at_every_size(reply):
    class Sometimes(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            if dout.shape[2] != 8:
                self.dE = np.zeros_like(self.E)
                self.dE[self.cache[0]] += dout

    assert reply(check_naive, Sometimes) == (
        "not yet: the scatter is naive for some sizes only: leave no cases"
    )


def test_a_learners_error_comes_with_the_sizes_of_the_check(reply):
    class Whole(EmbeddingLayer):
        def forward(self, idx):
            return self.E[idx] + self.P

    said = reply(check_forward, Whole)
    assert "operands could not be broadcast" in said
    assert "B = 3, T = 7, C = 5, vocab_size = 24, block_size = 32" in said


def scatter_into_none(self, dout):
    np.add.at(self.dE, self.cache[0], dout)


def assign_into_none(self, dout):
    self.dE = add_at(self, self.cache[0], dout)
    self.dP[: self.cache[1]] = dout.sum(axis=0)


@pytest.mark.parametrize("backward", [scatter_into_none, assign_into_none])
def test_forgotten_zeros_are_named(reply, backward):
    said = reply(check_backward, subclass(backward=backward))
    assert "TypeError" in said
    assert said.count("; ") == 2  # the error, the sizes, and this once:
    assert (
        "; dE and dP are None until backward sets them: start from zeros, "
        "shaped like E and P "
    ) in said


def test_other_errors_do_not_speak_of_zeros(reply):
    def no_such_axis(self, dout):
        dout.sum(axis=3)

    def no_such_argument(self, dout):
        self.dE, self.dP = self.E * 0, self.P * 0
        dout.sum(axes=0)

    for backward in (no_such_axis, no_such_argument):
        said = reply(check_backward, subclass(backward=backward))
        assert "Error" in said
        assert "zeros" not in said


def test_count_is_called_by_its_own_name(reply):
    def parameters(vocab_size, block_size, C):
        return vocab_size * C

    assert "parameters(24, 32, 16) gives 384" in reply(check_count, parameters)
    assert "count gives 1 for all" in reply(check_count, lambda V, n, C: 1)


@pytest.mark.parametrize("empty", [[], [[]], np.zeros((2, 0), int)], ids=str)
def test_an_empty_window_is_called_empty(reply, empty):
    assert "this batch is empty" in reply(check_full_window, empty)


def test_a_masked_window_is_no_batch(reply):
    masked = np.ma.masked_all((1, 32), dtype=int)
    assert "not a batch of ids" in reply(check_full_window, masked)


def test_a_scatter_that_stops_counting_is_caught(reply):
    class FirstTwelve(EmbeddingLayer):
        def backward(self, dout):
            super().backward(dout)
            self.dE = np.zeros_like(self.E)
            seen = np.zeros(len(self.E), dtype=int)
            for i, row in zip(
                self.cache[0].ravel(),
                dout.reshape(-1, dout.shape[2]),
                strict=True,
            ):
                seen[i] += 1
                if seen[i] <= 12:
                    self.dE[i] += row

    assert reply(check_backward, FirstTwelve).startswith("not yet: dE[4, 0]")


def test_what_is_left_unfit_to_check_is_said_in_one_line(capsys):
    class Bare(EmbeddingLayer):
        def __init__(self, *sizes, seed=0):
            pass

        def forward(self, idx):
            return 1

    check_forward(Bare)
    assert capsys.readouterr().out == (
        "not yet: what your code left cannot be checked: AttributeError: "
        "'Bare' object\nhas no attribute 'E'\n"
    )
