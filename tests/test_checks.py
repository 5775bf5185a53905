"""Every answer to an exercise gets a reply: the right one, and its own."""

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


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_a_right_answer_is_right_however_it_is_written(check, answer, reply):
    said = reply(check, answer)
    assert said.startswith("correct: ")
    assert said.endswith(".")


# ---------------------------------------------------------- untouched stubs
STUBS = [
    *((check, None) for check in CHECKS),
    *((check, ...) for check in CHECKS),
    (check_count, stub),
    (check_count, stub_that_raises),
    (check_forward, subclass()),
    (check_forward, subclass(forward=stub)),
    (check_forward, subclass(forward=lambda self, idx: ...)),
    (check_forward, subclass(forward=stub_that_raises)),
    (check_forward, EmbeddingLayer),
    *(
        (check, layer)
        for check in (check_backward, check_frozen, check_naive)
        for layer in (
            subclass(),
            subclass(backward=stub),
            subclass(backward=stub_that_raises),
            subclass(backward=stub_of_none),
            EmbeddingLayer,
        )
    ),
]


@pytest.mark.parametrize(("check", "answer"), STUBS)
def test_an_untouched_stub_is_not_written_yet(check, answer, reply):
    assert reply(check, answer).startswith("not written yet: ")


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_without_an_answer_says_so_too(check, capsys):
    assert check() is None
    assert capsys.readouterr().out.startswith("not written yet: ")


# ----------------------------------------------------------------- mistakes
def tells(table):
    """Make test parameters of a table: name, answer, what the reply says."""
    return [pytest.param(*row[1:], id=row[0]) for row in table]


COUNT_MISTAKES = [
    ("E", lambda V, n, C: V * C, "384, which is E alone"),
    ("P", lambda V, n, C: n * C, "512, which is P alone"),
    ("product", lambda V, n, C: V * n * C, "12288, which is all three sizes"),
    ("V * n", lambda V, n, C: V * n, "768, which is vocab_size * block_size"),
    ("no C", lambda V, n, C: V + n, "56, which is the number of rows"),
    ("C for E", lambda V, n, C: V * C + n, "vocab_size * C + block_size"),
    ("C for P", lambda V, n, C: V + n * C, "vocab_size + block_size * C"),
    ("float", lambda V, n, C: (V + n) * C / 1, "is of type float"),
    ("string", lambda V, n, C: str((V + n) * C), "is of type str"),
    ("bool", lambda V, n, C: True, "is of type bool"),
    ("array", lambda V, n, C: np.array([896]), "is of type ndarray"),
    ("constant", lambda V, n, C: 896, "896 for all sizes tried"),
    (
        "one off",
        lambda V, n, C: (V + n) * C + 1,
        "count(24, 32, 16) gives 897",
    ),
    (
        "right once",
        lambda V, n, C: 896 if C == 16 else 30,
        "count(7, 5, 3) gives 30",
    ),
    ("called", 896, "hand over the function itself"),
    ("arguments", lambda V, n: V * n, "takes 2 positional arguments but 3"),
]


@pytest.mark.parametrize(("answer", "says"), tells(COUNT_MISTAKES))
def test_count_tells_each_mistake(answer, says, reply):
    said = reply(check_count, answer)
    assert said.startswith("not yet: ")
    assert says in said


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
        "out[0, 0] added P[19], the row of its id",
    ),
    (
        "wrong axis",
        lambda s, i, p: s.E[i] + s.P[: len(i), None],
        "out[0, 1] got P[0] for its sequence",
    ),
    (
        "reversed",
        lambda s, i, p: s.E[i] + p[::-1],
        "reverse: position 0 got P[6]",
    ),
    (
        "last rows",
        lambda s, i, p: s.E[i] + s.P[-len(p) :],
        "P[25:32] (the last T rows) was added",
    ),
    ("no P", lambda s, i, p: s.E[i], "out[0, 0] is row 't' of E and nothing"),
    (
        "E scaled",
        lambda s, i, p: s.E[i] * np.sqrt(s.E.shape[1]) + p,
        "row 't' of E times 2.23607 = sqrt(C)",
    ),
    (
        "concatenated",
        lambda s, i, p: np.concatenate(
            [s.E[i], np.broadcast_to(p, s.E[i].shape)], axis=2
        ),
        "joined to 10 channels",
    ),
    ("no batch", lambda s, i, p: s.E[i[0]] + p, "the batch axis is gone"),
    ("E changed", into_E, "row ' ' first, E[0, 0] was"),
    ("P changed", into_P, "P itself changed: P[0, 0] was"),
    ("idx changed", into_idx, "forward changed idx itself"),
    ("shared", one_buffer, "out is not a fresh array"),
    (
        "float32",
        lambda s, i, p: (s.E[i] + p).astype("f4"),
        "out has dtype float32, not float64",
    ),
    ("tuple", lambda s, i, p: (s.E[i], p), "out is of type tuple"),
    ("list", lambda s, i, p: (s.E[i] + p).tolist(), "out is of type list"),
    (
        "nan",
        lambda s, i, p: s.E[i] * np.nan,
        "should be 0.0134538, got nan",
    ),
    (
        "fixed shape",
        lambda s, i, p: (s.E[i] + p).reshape(3, 7, 5),
        "cannot reshape array of size 40",
    ),
]
CACHES = [
    ("none", lambda idx: None, "cache is still None after forward"),
    ("only idx", lambda idx: idx, "it is a ndarray"),
    ("three", lambda idx: (idx, *idx.shape), "it is a tuple of 3"),
    ("list", lambda idx: [idx, idx.shape[1]], "it is a list"),
    ("B", lambda idx: (idx, len(idx)), "its second entry is 3"),
    (
        "swapped",
        lambda idx: (idx.shape[1], idx),
        "first entry is not the batch",
    ),
]


@pytest.mark.parametrize(("compute", "says"), tells(FORWARD_MISTAKES))
def test_forward_tells_each_mistake(compute, says, reply):
    said = reply(check_forward, forward_with(compute))
    assert said.startswith("not yet: ")
    assert says in said


@pytest.mark.parametrize(("cache", "says"), tells(CACHES))
def test_forward_tells_what_is_wrong_with_the_cache(cache, says, reply):
    said = reply(check_forward, forward_with(right_out, cache))
    assert said.startswith("not yet: ")
    assert says in said


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
        "row ' ' was used 3 times but kept only its",
    ),
    ("= in a loop", naive_loop, None, "kept only its last slice"),
    ("first wins", first_wins, None, "kept only its first slice"),
    ("mean", mean_dE, None, "row ' ' of dE is the mean of its 3 slices"),
    ("swapped", swapped_dE, None, "B and T were swapped: row ' ' of dE"),
    ("gathered", lambda s, i, d: s.E[i], None, "gathered, not scattered"),
    ("sign", negative(add_at), None, "sign of dE is flipped, see row ' '"),
    ("added to old", plus_old, None, "added to the previous call's gradient"),
    ("not cleared", keep_old, None, "row 'k' is unused now, yet holds"),
    ("zeros", lambda s, i, d: s.E * 0, None, "dE is all zeros"),
    ("no dE", lambda s, i, d: None, None, "dE is still None"),
    ("float32", lambda *a: add_at(*a).astype("f4"), None, "dtype float32"),
    ("list", lambda *a: add_at(*a).tolist(), None, "dE is of type list"),
    ("first row", None, rows(lambda d: d[0]), "only the first of 3 sequences"),
    ("mean", None, rows(lambda d: d.mean(0)), "mean over the batch of 3"),
    ("(T, C)", None, lambda s, T, d: d.sum(0), "only the T = 7 rows in use"),
    ("shifted", None, shifted_dP, "gradient of position 0 is in row 1"),
    (
        "beyond T",
        None,
        beyond_T,
        "row 7 was not used, so it must stay exactly 0",
    ),
    ("swapped", None, rows(lambda d: d.sum(1)), "summed over positions; sum"),
    (
        "sign",
        None,
        negative(matmul_dP),
        "the sign of dP is flipped, see row 0",
    ),
    (
        "added to old",
        None,
        plus_old_dP,
        "row 0 of dP was added to the previous",
    ),
    ("not cleared", None, keep_old_dP, "row 4 of dP is unused now, yet holds"),
    ("no dP", None, lambda s, T, d: None, "dP is still None"),
]


@pytest.mark.parametrize(("dE", "dP", "says"), tells(BACKWARD_MISTAKES))
def test_backward_tells_each_mistake(dE, dP, says, reply):
    said = reply(check_backward, backward_with(dE, dP))
    assert said.startswith("not yet: ")
    assert says in said


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
        "np.add.at(E",
    ),
    ("E step", lambda self, _: self.E.__isub__(self.dE), "E itself changed"),
    ("P", lambda self, _: self.P.fill(3), "P itself changed: P[0, 0] was"),
    (
        "cache",
        lambda self, _: setattr(self, "cache", None),
        "cache is still None",
    ),
    ("dout", lambda self, dout: dout.fill(0), "backward changed dout itself"),
]


@pytest.mark.parametrize(("change", "says"), tells(CHANGES))
def test_backward_tells_what_else_it_changed(change, says, reply):
    said = reply(check_backward, changes(change))
    assert said.startswith("not yet: ")
    assert says in said


def test_backward_says_politely_that_it_returns_something(reply):
    said = reply(check_backward, backward_with(returns=1))
    assert said.startswith("not yet: dE and dP are right; only, ")

    def backward(self, dout):
        return add_at(self, self.cache[0], dout), np.zeros_like(self.P)

    said = reply(check_backward, subclass(backward=backward))
    assert "store the gradients in self.dE and self.dP" in said


def test_backward_uses_the_forward_of_the_learner_if_there_is_one(reply):
    layer = type(
        "Both",
        (forward_with(lambda s, i, p: s.E[i]),),
        {"backward": EmbeddingLayer.__dict__["backward"]},
    )
    layer.backward = lambda self, dout: EmbeddingLayer.backward(self, dout)
    assert "P was forgotten" in reply(check_backward, layer)


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
    ("None", backward_with(dP=stub), "dP is None"),
    (
        "ordinary",
        subclass(backward=lambda s, d: EmbeddingLayer.backward(s, d)),
        "dP is the ordinary gradient",
    ),
    (
        "dE too",
        backward_with(lambda s, i, d: s.E * 0, zero_dP),
        "dE is all zeros, so E is frozen as well",
    ),
    ("P zero", subclass(__init__=zeroed), "P itself is zero"),
    ("P zeroed", subclass(backward=zero_P_late), "P itself is zero"),
    (
        "forward",
        type("L", (FreezeInPlace,), {"forward": without_P}),
        "P was forgotten",
    ),
    (
        "shape",
        backward_with(dP=lambda s, T, d: np.zeros_like(d[0])),
        "it has only the T = 7 rows",
    ),
    ("number", backward_with(dP=lambda s, T, d: 0), "dP is of type int"),
    (
        "half",
        backward_with(dP=lambda s, T, d: matmul_dP(s, T, d) * 0.5),
        "dP[0, 0] should be 0",
    ),
    ("naive dE", backward_with(naive_dE, zero_dP), "only its last slice"),
]


@pytest.mark.parametrize(("layer", "says"), tells(FROZEN_MISTAKES))
def test_frozen_tells_each_mistake(layer, says, reply):
    said = reply(check_frozen, layer)
    assert said.startswith("not yet: ")
    assert says in said


WINDOW_MISTAKES = [
    ("1-D", data[:32], "one sequence without a batch axis"),
    ("T = 1", data[:32].reshape(32, 1), "rows 1 to 31 of dP stay zero: shape"),
    ("(2, 16)", data[:32].reshape(2, 16), "rows 16 to 31 of dP stay zero: 32"),
    ("T = 31", data[:31].reshape(1, 31), "row 31 of dP stays zero: T is 31"),
    (
        "T = 33",
        data[:33].reshape(1, 33),
        "P has no row 32, so forward refuses",
    ),
    (
        "floats",
        np.zeros((1, 32)),
        "these ids have dtype float64: they name rows",
    ),
    (
        "bools",
        np.zeros((1, 32), bool),
        "these ids have dtype bool: they name rows",
    ),
    ("no rows", np.zeros((0, 32), int), "this batch is empty"),
    ("3-D", np.zeros((1, 1, 32), int), "this one has 3"),
    ("id", np.full((1, 32), 24), "id 24 at (b, t) = (0, 0) is outside 0..23"),
    ("ragged", [[1, 2], [3]], "not all of one length"),
    ("text", "the lamp keeper", "of type str"),
]


@pytest.mark.parametrize(("answer", "says"), tells(WINDOW_MISTAKES))
def test_full_window_tells_each_mistake(answer, says, reply):
    said = reply(check_full_window, answer)
    assert said.startswith("not yet: ")
    assert says in said


def test_naive_shows_what_the_gradient_check_says(reply):
    said = reply(check_naive, backward_with(naive_dE))
    assert "fails dE with a max rel err of 1.0 (row ' ' was used 2" in said
    assert "passes dP" in said


NAIVE_MISTAKES = [
    ("right", backward_with(add_at), "dE is still right"),
    (
        "first wins",
        backward_with(first_wins),
        "not by the naive scatter: row ' ' was used 3 times but kept only its",
    ),
    ("list", backward_with(lambda *a: [1]), "dE is of type list"),
    (
        "dP too",
        backward_with(naive_dE, rows(lambda d: d[0])),
        "leave dP alone: row 0 of dP holds only the first",
    ),
]


@pytest.mark.parametrize(("layer", "says"), tells(NAIVE_MISTAKES))
def test_naive_tells_each_mistake(layer, says, reply):
    said = reply(check_naive, layer)
    assert said.startswith("not yet: ")
    assert says in said


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("A", "A is right"),
        ("C", "C is right"),
        ("D", '"A", "B" or'),
        (1, '"A",'),
    ],
)
def test_mystery_explains_a_wrong_answer(answer, says, reply):
    said = reply(check_mystery, answer)
    assert said.startswith("not yet: ")
    assert says in said


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
    assert str(code.__code__.co_firstlineno)[:-2] in last
    assert ".py" not in printed
    assert "/" not in printed


def test_an_error_message_shows_no_address(reply):
    def forward(self, idx):
        raise ValueError(f"cannot use {object()}")

    said = reply(check_forward, subclass(forward=forward))
    assert "ValueError: cannot use <object object>" in said


def test_an_error_that_cannot_be_printed_does_not_stop_the_check(reply):
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError

    def forward(self, idx):
        raise MuteError

    assert "forward raised MuteError" in reply(
        check_forward, subclass(forward=forward)
    )


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
        (EmbeddingLayer(3, 4, 5), "hand over the class itself"),
        (len, "should be a class that starts with"),
        (int, "should be a class that starts with"),
        ("MyLayer", "should be a class that starts with"),
        (
            subclass(forward=lambda self: 1, backward=lambda self: 1),
            "could not be called: TypeError",
        ),
        (
            subclass(__init__=lambda self: None, backward=stub, forward=stub),
            "unexpected keyword argument 'seed'",
        ),
        (
            subclass(forward=None, backward=None),
            "could not be called: TypeError",
        ),
    ],
)
@pytest.mark.parametrize(
    "check", [check_forward, check_backward, check_frozen, check_naive]
)
def test_what_is_no_class_of_ones_own_is_named(check, answer, says, reply):
    said = reply(check, answer)
    assert said.startswith("not yet: ")
    assert says in said


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

    assert "naive for some sizes only" in reply(check_naive, Sometimes)


def test_a_learners_error_comes_with_the_sizes_of_the_check(reply):
    class Whole(EmbeddingLayer):
        def forward(self, idx):
            return self.E[idx] + self.P

    said = reply(check_forward, Whole)
    assert "operands could not be broadcast" in said
    assert "B = 3, T = 7, C = 5, vocab_size = 24, block_size = 32" in said


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
