"""Answer to an exercise: right, not written yet, or what is wrong with it.

Every check prints one paragraph and returns None. It raises no error of its
own: an error in the learner's code is shown as theirs, with its line.
"""

import functools
import re
import sysconfig
import textwrap
import traceback
from pathlib import Path

import numpy as np

from ..corpus import chars, data
from ..diagnosis import (
    diagnose_dE,
    diagnose_dP,
    diagnose_out,
    diagnose_unchanged,
)
from ..gradcheck import check_gradients
from ..layer import EmbeddingLayer
from .mystery import mystery_layers

# Sizes (vocab_size, block_size, C), a seed, names, and batches to run one
# after the other. B, T, C and the sizes all differ, ids repeat within a row
# and across rows, and some rows of E are unused. In the first case the second
# batch has the shape of the first, so a reused array shows; the third is
# shorter, so what is left over from the second shows.
_CASES = (
    (
        (24, 32, 5),
        7,
        chars,
        (
            data[:21].reshape(3, 7),
            data[60:81].reshape(3, 7),
            data[40:48].reshape(2, 4),
        ),
    ),
    (
        (9, 11, 6),
        8,
        None,
        (
            np.array([[2, 7, 2, 5, 0], [7, 7, 0, 1, 2], [3, 2, 8, 8, 1]]),
            # 4 is used more often than anybody counts by hand.
            np.array([[4, 4, 4, 1, 4, 4, 4, 4], [4, 4, 0, 4, 4, 4, 4, 4]]),
        ),
    ),
)
_NOT_THEIRS = (
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(p) for p in ("stdlib", "purelib", "platlib")),
    "<frozen",
    "<__array_function__",
)


class _Stop(Exception):  # noqa: N818
    """Ends a check with the paragraph to print."""


def _not_written(text):
    raise _Stop(f"not written yet: {text}")


def _not_yet(text):
    raise _Stop(f"not yet: {text}")


def _insist(*verdicts):
    for verdict in verdicts:
        if not verdict.passed:
            _not_yet(verdict.reason)


def _answers(check):
    """Print what a check finds; show an error that the learner's code raised.

    The check returns what it has checked, or stops with a reason.
    """

    @functools.wraps(check)
    def answer(given=None):
        code = ""
        try:
            text = f"correct: {check(given)}"
        except _Stop as stop:
            text = str(stop)
        except NotImplementedError:
            text = "not written yet: the code still raises NotImplementedError"
        except Exception as error:
            text, code = _their_error(error)
        print(_fill(text) + code)

    return answer


def _fill(text):
    # Code in backticks and shapes in parentheses stay on one line.
    whole = r"`[^`]*`|\([^()]{,20}\)"
    text = re.sub(whole, lambda code: code[0].replace(" ", "\0"), text)
    text = textwrap.fill(
        text, 79, break_long_words=False, break_on_hyphens=False
    )
    return text.replace("\0", " ")


def _their_error(error):
    """Return a paragraph, and the last line of the learner's that ran."""
    try:
        message = re.sub(r" at 0x[0-9a-fA-F]+", "", str(error))
    except Exception:
        message = ""
    said = " ".join(f"{type(error).__name__}: {message}".split())
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_NOT_THEIRS)
    ]
    if not frames and isinstance(error, TypeError):
        hint = "compare its `def` line with the one you were given"
        return f"not yet: your code could not be called: {said}; {hint}", ""
    if not frames:
        return f"not yet: what your code left cannot be checked: {said}", ""
    last = frames[-1]
    where = f"\n    line {last.lineno} of your code: {last.line or ''}"
    said = "; ".join([said, *getattr(error, "__notes__", [])])
    return f"not yet: {last.name} raised {said}", where.rstrip(": ")


def _empty(answer):
    return answer is None or answer is ...


def _require_class(given, *methods):
    """Stop unless given is the learner's class with a method of its own."""
    name = type(given).__name__
    if _empty(given):
        _not_written("there is no class to check")
    if isinstance(given, EmbeddingLayer):
        _not_yet(f"hand over the class itself, {name}, not a layer made of it")
    if not isinstance(given, type) or not issubclass(given, EmbeddingLayer):
        kind = "a class" if isinstance(given, type) else f"of type {name}"
        _not_yet(
            f"this answer is {kind}; it should be a class that starts "
            "with `class YourName(EmbeddingLayer):`"
        )
    if all(getattr(given, m) is getattr(EmbeddingLayer, m) for m in methods):
        _not_written(f"{given.__name__} has no {methods[0]} of its own")


def _check_cache(layer, idx, after):
    T, cache = idx.shape[1], layer.cache
    want = f"cache should be the tuple (idx, T), here T = {T}"
    if _empty(cache):
        _not_yet(
            f"cache is still None {after}: backward will not know which rows "
            f"were used; {want}"
        )
    if type(cache) is not tuple or len(cache) != 2:
        kind = type(cache).__name__
        size = f" of {len(cache)}" if type(cache) is tuple else ""
        _not_yet(f"{want}, {after} it is a {kind}{size}")
    ids = cache[0]
    if not (
        isinstance(ids, np.ndarray)
        and ids.dtype.kind in "iu"
        and np.array_equal(ids, idx)
    ):
        _not_yet(f"{want}, {after} its first entry is not the batch idx")
    if not isinstance(cache[1], int | np.integer) or cache[1] != T:
        _not_yet(f"{want}, {after} its second entry is {cache[1]!r}")


def _call(method, argument, layer, idx):
    """Call the learner's method; an error of theirs leaves with the sizes."""
    try:
        return method(argument)
    except Exception as error:
        (B, T), (V, C), n = idx.shape, layer.E.shape, len(layer.P)
        error.add_note(
            f"here B = {B}, T = {T}, C = {C}, vocab_size = {V}, "
            f"block_size = {n}"
        )
        raise


def _run_forward(layer, idx, names):
    """Run forward; stop if it is wrong or has changed a table."""
    given, before = idx.copy(), (layer.E.copy(), layer.P.copy())
    out = _call(layer.forward, given, layer, idx)
    if not np.array_equal(given, idx):
        _not_yet("forward changed idx itself: only read it")
    if _empty(out):
        _not_written("forward returns None; end it with `return out`")
    rows = {"P[:T]": before[1][: idx.shape[1]]}
    _insist(
        diagnose_unchanged(
            layer.E, before[0], "E", names=names, idx=idx, rows=rows
        ),
        diagnose_unchanged(layer.P, before[1], "P"),
        diagnose_out(out, idx, *before, names=names),
    )
    return out


def _run_backward(layer, idx, dout, names):
    """Run forward and backward; stop if a table, cache or dout changed."""
    _run_forward(layer, idx, names)
    _check_cache(layer, idx, "after forward")
    given, before = dout.copy(), (layer.E.copy(), layer.P.copy())
    try:
        back = _call(layer.backward, given, layer, idx)
    except TypeError as error:
        if layer.dE is None or layer.dP is None:
            error.add_note(
                "dE and dP are None until backward sets them: start from "
                "zeros, shaped like E and P"
            )
        raise
    _insist(
        diagnose_unchanged(
            layer.E,
            before[0],
            "E",
            names=names,
            idx=idx,
            rows={"dout": dout},
        ),
        diagnose_unchanged(layer.P, before[1], "P"),
    )
    if not np.array_equal(given, dout):
        _not_yet("backward changed dout itself: only read it")
    if _empty(layer.dE) and _empty(layer.dP):
        if not _empty(back):
            _not_yet(
                "backward returns its result, and dE and dP stay None: store "
                "the gradients in self.dE and self.dP"
            )
        _not_written(
            "after backward, dE and dP are still None; it stores them in "
            "self.dE and self.dP"
        )
    _check_cache(layer, idx, "after backward")
    return back


def _cases():
    """Yield sizes, seed, names and the batches with their dout."""
    rng = np.random.default_rng(1)
    for sizes, seed, names, batches in _CASES:
        C = sizes[2]
        pairs = [(i, rng.standard_normal((*i.shape, C))) for i in batches]
        yield sizes, seed, names, pairs


@_answers
def check_count(count):
    """Check ``count(vocab_size, block_size, C)``: how many parameters.

    Parameters
    ----------
    count : callable
        The learner's function.
    """
    if _empty(count):
        _not_written("there is no function to check")
    if not callable(count):
        _not_yet(
            "hand over the function itself, check_count(count), not what it "
            "returns"
        )
    triples = ((24, 32, 16), (7, 5, 3), (11, 2, 13))
    got = [count(*sizes) for sizes in triples]
    name = getattr(count, "__name__", "")
    name = name if name.isidentifier() else "count"  # a lambda has none
    call = f"{name}(24, 32, 16)"
    if any(_empty(n) for n in got):
        _not_written(f"{name} returns None; end it with `return`")
    for n in got:
        if isinstance(n, bool) or not isinstance(n, int | np.integer):
            _not_yet(
                f"{call} is of type {type(n).__name__}: a number of "
                "parameters is a whole number, an int"
            )
    right = [(V + n) * C for V, n, C in triples]
    if got == right:
        return f"(vocab_size + block_size) * C, here {call} = {right[0]}."
    for formula, wrong in {
        "E alone, vocab_size * C: P has block_size * C more": (
            lambda V, n, C: V * C
        ),
        "P alone, block_size * C: E has vocab_size * C more": (
            lambda V, n, C: n * C
        ),
        "all three sizes multiplied: the two tables stand side by side, so "
        "add their sizes": lambda V, n, C: V * n * C,
        "vocab_size * block_size: no table has that shape; E is "
        "(vocab_size, C), P is (block_size, C)": lambda V, n, C: V * n,
        "the number of rows, vocab_size + block_size: each row holds C "
        "numbers": lambda V, n, C: V + n,
        "vocab_size * C + block_size: the rows of P hold C numbers "
        "each, too": lambda V, n, C: V * C + n,
        "vocab_size + block_size * C: the rows of E hold C numbers "
        "each, too": lambda V, n, C: V + n * C,
    }.items():
        if got == [wrong(*sizes) for sizes in triples]:
            _not_yet(f"{call} gives {got[0]}, which is {formula}")
    if len(set(got)) == 1:
        _not_yet(
            f"{name} gives {got[0]} for all sizes tried: compute it from the "
            "three arguments"
        )
    for sizes, n, wanted in zip(triples, got, right, strict=True):
        if n != wanted:
            _not_yet(
                f"{name}{sizes} gives {n}: E has {sizes[0]} rows, P has "
                f"{sizes[1]}, and each row holds {sizes[2]} numbers"
            )


@_answers
def check_forward(MyLayer):
    """Check a `forward` of one's own: output, tables and cache.

    Parameters
    ----------
    MyLayer : type
        The learner's subclass of EmbeddingLayer.
    """
    _require_class(MyLayer, "forward")
    for sizes, seed, names, batches in _cases():
        layer, outs = MyLayer(*sizes, seed=seed), []
        for idx, _ in batches:
            outs.append(_run_forward(layer, idx, names))
            _check_cache(layer, idx, "after forward")
            for other in (layer.E, layer.P, *outs[:-1]):
                if np.shares_memory(outs[-1], other):
                    _not_yet(
                        "out is not a fresh array: it shares memory with E, "
                        "P or an earlier out"
                    )
    return (
        "out is E[idx] + P[:T] for batches of several shapes, cache is "
        "(idx, T), and E and P are as they were."
    )


@_answers
def check_backward(MyLayer):
    """Check a `backward` of one's own: dE, dP, and what must not change.

    Parameters
    ----------
    MyLayer : type
        The learner's subclass of EmbeddingLayer.
    """
    _require_class(MyLayer, "backward")
    for sizes, seed, names, batches in _cases():
        layer, dE, dP = MyLayer(*sizes, seed=seed), None, None
        for idx, dout in batches:
            back = _run_backward(layer, idx, dout, names)
            _insist(
                diagnose_dE(
                    layer.dE, idx, dout, layer.E, previous=dE, names=names
                ),
                diagnose_dP(layer.dP, idx, dout, layer.P, previous=dP),
            )
            dE, dP = layer.dE.copy(), layer.dP.copy()
            if back is not None:
                _not_yet(
                    "dE and dP are right; only, backward returns something "
                    "too. Ids are integers and have no gradient, so it "
                    "returns None: leave the return line out"
                )
    return (
        "every use of a row adds its slice to dE, dP sums over the batch, "
        "unused rows are exactly 0, and each call starts afresh."
    )


@_answers
def check_frozen(FrozenPositions):
    """Check a layer whose position table does not learn.

    Parameters
    ----------
    FrozenPositions : type
        The learner's subclass of EmbeddingLayer.
    """
    _require_class(FrozenPositions, "backward", "forward", "__init__")
    for sizes, seed, names, batches in _cases():
        layer = FrozenPositions(*sizes, seed=seed)
        P, dE = EmbeddingLayer(*sizes, seed=seed).P, None
        for idx, dout in batches:
            try:
                _insist(diagnose_unchanged(layer.P, P, "P"))
                _run_backward(layer, idx, dout, names)
            except _Stop:
                if type(layer.P) is np.ndarray and not np.any(layer.P):
                    _not_yet(
                        "P itself is zero, so positions are gone: frozen "
                        "means that P keeps its values and dP is zero"
                    )
                raise
            if isinstance(layer.dE, np.ndarray) and not np.any(layer.dE):
                _not_yet(
                    "dE is all zeros, so E is frozen as well: only dP "
                    "should be 0"
                )
            _insist(
                diagnose_dE(
                    layer.dE, idx, dout, layer.E, previous=dE, names=names
                )
            )
            dE, dP = layer.dE.copy(), layer.dP
            if _empty(dP):
                _not_yet(
                    "dP is None: whoever updates P needs an array to "
                    f"subtract, zeros of the shape of P, {P.shape}"
                )
            if diagnose_dP(dP, idx, dout, P).passed:
                _not_yet(
                    "dP is the ordinary gradient, so nothing is frozen yet: "
                    f"its rows 0 to {idx.shape[1] - 1} should be 0 too"
                )
            # A dout of zeros asks for a dP of zeros.
            _insist(diagnose_dP(dP, idx, dout * 0, P))
    return (
        "dE is what it always was, dP is zero in every row, and forward "
        "still adds P."
    )


@_answers
def check_full_window(idx):
    """Check a batch of ids that leaves no row of dP at zero.

    Parameters
    ----------
    idx : array of int
        The learner's batch, for ``EmbeddingLayer(24, 32, 16)``.
    """
    layer = EmbeddingLayer(24, 32, 16)
    n = len(layer.P)
    if _empty(idx):
        _not_written("there is no batch to check")
    if type(idx) not in (np.ndarray, list, tuple):
        kind = type(idx).__name__
        _not_yet(f"this is of type {kind}, not a batch of ids, shape (B, T)")
    try:
        ids = np.array(idx)
    except ValueError:
        _not_yet("the sequences in this list are not all of one length")
    if ids.size == 0:
        _not_yet("this batch is empty: no row of dP gets a gradient")
    if ids.dtype.kind not in "iu":
        _not_yet(
            f"these ids have dtype {ids.dtype}: they name rows, so they must "
            "be integers"
        )
    if ids.shape == (n,):
        _not_yet(
            f"shape {ids.shape} is one sequence without a batch axis: "
            f"reshape it to (1, {n})"
        )
    if ids.ndim != 2:
        _not_yet(f"a batch has two axes, (B, T), this one has {ids.ndim}")
    B, T = ids.shape
    if T > n:
        _not_yet(
            f"T = {T} is longer than block_size = {n}: P has no row {n}, so "
            "forward refuses"
        )
    try:
        layer.forward(ids)
    except IndexError as error:
        _not_yet(str(error))
    layer.backward(np.ones((B, T, 16)))
    zero = np.flatnonzero(~layer.dP.any(axis=1))
    if len(zero):
        rows = f"rows {zero[0]} to {n - 1} of dP stay"
        if len(zero) == 1:
            rows = f"row {zero[0]} of dP stays"
        why = f"T is {T}"
        if T == 1:
            why = f"shape ({B}, 1) means {B} sequences of one token: T is 1"
        elif B * T == n:
            why = f"{n} tokens in {B} sequences, so T is only {T}"
        _not_yet(f"{rows} zero: {why}")
    return (
        f"with T = {T} = block_size each of the {n} rows of dP gets a "
        "gradient."
    )


@_answers
def check_naive(NaiveLayer):
    """Check that a naive scatter was planted, and show how it is caught.

    Parameters
    ----------
    NaiveLayer : type
        The learner's subclass of EmbeddingLayer.
    """
    _require_class(NaiveLayer, "backward")
    for sizes, seed, names, batches in _cases():
        layer, previous = NaiveLayer(*sizes, seed=seed), None
        for idx, dout in batches:
            _run_backward(layer, idx, dout, names)
            dE = diagnose_dE(
                layer.dE, idx, dout, layer.E, previous=previous, names=names
            )
            if dE.passed:
                _not_yet(
                    "dE is still right, so the scatter is not naive yet: put "
                    "`dE[idx] += dout` instead of np.add.at"
                )
            if "only its last slice" not in dE.reason:
                _not_yet(
                    f"dE is wrong, but not by the naive scatter: {dE.reason}"
                )
            dP = diagnose_dP(layer.dP, idx, dout, layer.P)
            if not dP.passed:
                _not_yet(f"dE is naive, but leave dP alone: {dP.reason}")
            previous = layer.dE.copy()
    report = check_gradients(
        NaiveLayer(24, 32, 8), data[:10].reshape(2, 5), names=chars
    )
    dE, dP = report.tables
    if dE.passed:
        _not_yet("the scatter is naive for some sizes only: leave no cases")
    return (
        f"the gradient check fails dE with a max rel err of {dE.max_rel:.1f} "
        f"({dE.reason}) and passes dP, which is summed without any ids."
    )


@_answers
def check_mystery(answer):
    """Check which of the three mystery layers is the broken one.

    Parameters
    ----------
    answer : str
        "A", "B" or "C".
    """
    if _empty(answer):
        _not_written('set the answer to "A", "B" or "C"')
    layers = mystery_layers()
    if not isinstance(answer, str) or answer.strip().upper() not in layers:
        _not_yet('the answer is one letter, "A", "B" or "C"')
    name = answer.strip().upper()
    idx = data[:16].reshape(1, 16)  # 'the lamp keeper ': four e's
    report = check_gradients(layers[name], idx, names=chars)
    if report.passed:
        _not_yet(
            f"{name} is right: on 'the lamp keeper ', where 'e' comes four "
            "times, its dE and its dP pass the gradient check. Run the "
            "check on the other two, with a batch like that"
        )
    reasons = [t.reason for t in report.tables if not t.passed]
    return f"{name} is broken: on 'the lamp keeper ', {reasons[0]}."
