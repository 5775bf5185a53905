"""Name the mistake behind a wrong output or a wrong gradient.

Each well-known mistake stands here as one sentence beside the array that it
would give. An answer that equals such an array, up to rounding, made it.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right; if not, why, in one sentence, and where.

    `where` is the index of the first wrong entry, or None if there is none
    or the answer has the wrong shape or type.
    """

    passed: bool
    reason: str = ""
    where: tuple | None = None


def diagnose_out(out, idx, E, P, *, names=None):
    """Say whether an output is ``E[idx] + P[:T]``, and if not, why.

    Parameters
    ----------
    out : object
        The answer. Whatever it is, it raises no error.
    idx : array of int, shape (B, T)
        The batch.
    E, P : ndarray, shapes (vocab_size, C) and (block_size, C)
        The tables as they were before forward.
    names : sequence of str, optional
        What to call the rows of E.

    Returns
    -------
    Verdict

    Examples
    --------
    >>> E, P, idx = np.eye(3), np.eye(4, 3) + 1, np.array([[0, 2]])
    >>> diagnose_out(E[idx], idx, E, P, names="abc").reason
    "P was forgotten: out[0, 0] is row 'a' of E and nothing else"
    """
    idx = np.asarray(idx)
    (B, T), (n, C) = idx.shape, P.shape
    tok, pos = E[idx], np.broadcast_to(P[:T], (B, T, C))
    right = tok + pos
    shapes = {
        (B * T, C): "B and T were flattened into one axis: keep both",
        (T, C): "the batch axis is gone: keep one (T, C) block per sequence",
        (T, B, C): "B and T are swapped",
    }

    def mistakes(at):
        if at is None:
            added = f"tokens and positions were joined to {2 * C} channels: "
            return {
                added + "add them, do not concatenate": _join(tok, pos),
                added + "add tokens to positions instead": _join(pos, tok),
            }
        (b, t, _), steps = at, np.arange(T)
        row, here = _row(idx[b, t], names), f"out[{b}, {t}]"
        # The row of P that the first position seems to have got.
        k = np.argmin(np.abs(P - (out - tok)[0, 0]).sum(axis=1))
        last = " (the last T rows)" if k == n - T else ""
        once, piled = E.copy(), E.copy()
        once[idx] += P[:T]
        np.add.at(piled, idx, P[:T])
        into_E = f"P was added into E itself, so all uses of {row} look alike"
        s_E, s_P = _factor(out - pos, tok), _factor(out - tok, pos)
        s = _factor(out, right)
        return {
            f"{here} added P[{idx[b, t]}], the row of its id: P goes by "
            f"position, use P[:T], not P[idx]": (
                tok + P[idx] if idx.max() < n else None
            ),
            f"P was added along the wrong axis: {here} got P[{b}] for its "
            f"sequence, not P[{t}] for its position": (
                tok + P[:B, None] if B <= n else None
            ),
            f"P was added along the wrong axis: {here} got column {t} of P, "
            "not the row; do not transpose": tok + P[:T].T if T == C else None,
            f"P[{k}:{k + T}]{last} was added: position {t} should get "
            f"P[{t}], use P[:T]": tok + P[(k + steps) % n],
            f"P was added in reverse: position 0 got P[{k}]: position {t} "
            f"should get P[{t}]": tok + P[(k - steps) % n] if T > 1 else None,
            f"every position got the one row P[{k}]: position {t} should "
            f"get P[{t}], use the slice P[:T]": tok + P[k],
            f"{here} is {row} of E times P[{t}]: add them": tok * pos,
            f"{into_E}: add P[:T] to the copy E[idx]": once[idx],
            f"{into_E} and hold all their positions: add P[:T] to the copy "
            "E[idx]": piled[idx],
            f"P was forgotten: {here} is {row} of E and nothing else": tok,
            f"E was forgotten: {here} is P[{t}] and nothing else": pos,
            f"E is scaled: {here} holds {row} of E times {s_E:.6g}"
            f"{' = sqrt(C)' if np.isclose(s_E, C**0.5) else ''}; add it as "
            "it is": s_E * tok + pos if abs(s_E) > 1e-9 else None,
            f"P is scaled: {here} holds P[{t}] times {s_P:.6g}; add it as "
            "it is": tok + s_P * pos if abs(s_P) > 1e-9 else None,
            f"out is scaled: {here} is {s:.6g} times the sum": s * right,
        }

    with np.errstate(all="ignore"):
        mass = np.abs(tok) + np.abs(pos)
        return _judge("out", out, right, mass, shapes, mistakes)


def diagnose_dE(  # noqa: N802
    dE, idx, dout, E, *, previous=None, names=None
):
    """Say whether a gradient of E is right, and if not, why.

    Parameters
    ----------
    dE : object
        The answer. Whatever it is, it raises no error. Rows that the batch
        does not use must be exactly 0.
    idx : array of int, shape (B, T)
        The batch.
    dout : array, shape (B, T, C)
        Upstream gradient.
    E : ndarray, shape (vocab_size, C)
        The table as it was before forward.
    previous : ndarray, optional
        The dE of an earlier call, to tell whether the calls were added up.
    names : sequence of str, optional
        What to call the rows of E.

    Returns
    -------
    Verdict

    Examples
    --------
    >>> idx, dout, E = np.array([[1, 1]]), np.ones((1, 2, 1)), np.ones((3, 1))
    >>> diagnose_dE(np.array([[0.0], [5.0], [0.0]]), idx, dout, E)
    Verdict(passed=False, reason='dE[1, 0] should be 2, got 5', where=(1, 0))
    """
    idx, dout = np.asarray(idx), np.asarray(dout, E.dtype)
    (B, T), C = idx.shape, E.shape[1]
    flat, slices = idx.reshape(-1), dout.reshape(-1, C)  # (B*T), (B*T, C)
    count = np.bincount(flat, minlength=len(E))
    shapes = {
        dout.shape: "it has a row for each use, like E[idx]: it was gathered, "
        "not scattered; add the slices into np.zeros_like(E)"
    }

    def scatter(ids, rows):
        table = np.zeros_like(E)
        np.add.at(table, ids, rows)
        return table

    right = scatter(idx, dout)

    def mistakes(at):
        if at is None or not idx.size:
            return {}
        row, n = _row(at[0], names), count[at[0]]
        used = f"{row} was used {n} times but kept"
        last, by_b, by_t = np.zeros((3, *E.shape))
        last[flat] = slices
        for b in range(B):
            by_b[idx[b]] += dout[b]
        for t in range(T):
            by_t[idx[:, t]] += dout[:, t]
        if _same(by_b, last):  # then the first sentence below says it all
            by_b = None
        if _same(by_t, last):
            by_t = None
        order = _order(flat, count)[:, None]
        swapped = f"B and T were swapped: {row} of dE got slices of other ids"
        return {
            f"{used} only its last slice: `dE[idx] += dout`, like `=`, "
            "writes each row once; use np.add.at": last,
            f"{used} only its first slice: each use must add its own": scatter(
                flat, slices * (order < 1)
            ),
            f"{used} only its first two slices: each use must "
            "add its own": scatter(flat, slices * (order < 2)),
            f"{row} of dE is the mean of its {n} slices, not their sum: do "
            "not divide by the count": right / np.maximum(count, 1)[:, None],
            f"{used} one slice per sequence: `+=` loses the repeats within a "
            "sequence; use np.add.at": by_b,
            f"{used} one slice per position: `+=` loses an id that several "
            "sequences have there; use np.add.at": by_t,
            f"only the first sequence was added: uses of {row} in the whole "
            f"batch: {n}": scatter(idx[0], dout[0]),
            f"only the last sequence was added: uses of {row} in the whole "
            f"batch: {n}": scatter(idx[-1], dout[-1]),
            f"{swapped}: idx.T does not go with dout": scatter(
                idx.T.reshape(-1), slices
            ),
            f"{swapped}: idx does not go with a transposed dout": scatter(
                flat, _flip(dout).reshape(-1, C)
            ),
            f"{row} of dE holds {n}, how often it was used: add slices of "
            "dout, not ones": scatter(idx, np.ones_like(dout)),
            f"dE started from a copy of E, so {row} still holds weights: "
            "start from np.zeros_like(E)": E + right,
            **_uncleared("dE", row, right, last, count > 0, previous),
            **_multiple("dE", row, dE, right, B),
        }

    with np.errstate(all="ignore"):
        mass = scatter(idx, np.abs(dout))
        return _judge(
            "dE", dE, right, mass, shapes, mistakes, count > 0, names
        )


def diagnose_dP(dP, idx, dout, P, *, previous=None):  # noqa: N802
    """Say whether a gradient of P is right, and if not, why.

    Parameters
    ----------
    dP : object
        The answer. Whatever it is, it raises no error. Rows T.. must be
        exactly 0.
    idx, dout, previous
        As for `diagnose_dE`.
    P : ndarray, shape (block_size, C)
        The table as it was before forward.

    Returns
    -------
    Verdict

    Examples
    --------
    >>> idx, P = np.array([[2, 2]]), np.ones((3, 1))
    >>> dout = np.array([[[1.0], [4.0]]])
    >>> diagnose_dP(np.array([[0.0], [1.0], [4.0]]), idx, dout, P).reason
    'dP is shifted: the gradient of position 0 is in row 1; write into dP[:T]'
    """
    idx, dout = np.asarray(idx), np.asarray(dout, P.dtype)
    (B, T), (n, C) = idx.shape, P.shape
    used = np.arange(n) < T * (B > 0)
    shapes = {
        dout.shape: "it was not summed over the batch: use dout.sum(axis=0)",
        (T, C): f"it has only the T = {T} rows in use: put them into "
        "np.zeros_like(P)",
    }

    def table(rows):
        return np.concatenate([rows, np.zeros((n - len(rows), C), P.dtype)])

    right = table(dout.sum(axis=0))

    def mistakes(at):
        if at is None or not idx.size:
            return {}
        row = f"row {at[0]} of dP"
        # The row where the gradient of position 0 seems to have gone.
        k = np.argmin(np.abs(dP - right[0]).sum(axis=1))
        total, by_id = dout.sum(axis=(0, 1)), None
        if idx.max() < n:
            by_id = np.zeros_like(P)
            np.add.at(by_id, idx, dout)
        return {
            f"{row} holds only the first of {B} sequences: sum over the "
            "batch, dout.sum(axis=0)": table(dout[0]),
            f"{row} holds only the last of {B} sequences: sum over the "
            "batch, dout.sum(axis=0)": table(dout[-1]),
            f"dP is shifted: the gradient of position 0 is in row {k}; write "
            "into dP[:T]": np.roll(right, k, axis=0),
            f"{row} is wrong because dP[:T] is in reverse": table(
                right[:T][::-1]
            ),
            f"B and T were swapped: {row} was summed over positions; sum "
            "over the batch, axis 0": (
                table(dout.sum(axis=1)) if B <= n else None
            ),
            f"B and T were swapped by a reshape: {row} mixes positions; sum "
            "dout itself": table(dout.reshape(T, B, C).sum(axis=1)),
            f"{row} was summed over positions too: sum over the batch only, "
            "axis 0": table(np.tile(total, (T, 1))),
            f"dP was scattered by id: {row} holds the uses of id {at[0]}, "
            f"not of position {at[0]}": by_id,
            f"dP started from a copy of P, so {row} still holds weights: "
            "start from np.zeros_like(P)": P + right,
            **_uncleared("dP", row, right, right, used, previous),
            **_multiple("dP", row, dP, right, B),
        }

    with np.errstate(all="ignore"):
        mass = table(np.abs(dout).sum(axis=0))
        return _judge("dP", dP, right, mass, shapes, mistakes, used)


def diagnose_unchanged(after, before, name, *, names=None, idx=None, rows=()):
    """Say whether a table is still what it was.

    Parameters
    ----------
    after : object
        The table now. Whatever it is, it raises no error.
    before : ndarray, shape (rows, C)
        A copy taken before.
    name : str
        "E" or "P".
    names : sequence of str, optional
        What to call the rows.
    idx : array of int, optional
        The batch, and
    rows : dict of str to array, optional
        what could have been added there, by its name in code.

    Returns
    -------
    Verdict

    Examples
    --------
    >>> diagnose_unchanged(np.ones((2, 1)), np.zeros((2, 1)), "P").reason
    'P itself changed: P[0, 0] was 0, is now 1; write into a fresh array'
    """
    mend = "; write into a fresh array"
    if type(after) is not np.ndarray:
        kind = type(after).__name__
        return Verdict(False, f"{name} itself became a {kind}{mend}")
    if (after.shape, after.dtype) != (before.shape, before.dtype):
        kind = f"an array of shape {after.shape} and dtype {after.dtype}"
        return Verdict(False, f"{name} itself became {kind}{mend}")
    changed = ~_close(after, before, 0)
    if not changed.any():
        return Verdict(True)
    at = _first(changed)
    was, now = _numbers(before[at], after[at])
    reason = f"{name}{list(at)} was {was}, is now {now}"
    if names is not None:
        reason = f"{_row(at[0], names)} first, {reason}"
    reason = f"{name} itself changed: {reason}"
    for code, added in dict(rows).items():
        once, piled = before.copy(), before.copy()
        once[idx] += added
        np.add.at(piled, idx, added)
        if _same(after, once):
            reason += f", by `{name}[idx] += {code}`"
        elif _same(after, piled):
            reason += f", by np.add.at({name}, idx, {code})"
    return Verdict(False, reason + mend, at)


def _judge(name, got, right, mass, shapes, mistakes, used=None, names=None):
    if got is None:
        hint = ": never set, or set to what np.add.at returns, which is None"
        return Verdict(False, f"{name} is still None{hint * (name == 'dE')}")
    if type(got) is not np.ndarray:
        kind = type(got).__name__
        return Verdict(False, f"{name} is of type {kind}, not a NumPy array")
    if got.shape != right.shape:
        reason = f"{name} has shape {got.shape}, not {right.shape}"
        more = _recognise(got, right, mistakes(None)) or shapes.get(got.shape)
        return Verdict(False, f"{reason}: {more}" if more else reason)
    if got.dtype.type is not right.dtype.type:
        reason = f"{name} has dtype {got.dtype}, not {right.dtype}"
        return Verdict(False, reason)
    wrong = ~_close(got, right, _tolerance(mass, used))
    if not wrong.any():
        return Verdict(True)
    at = _first(wrong)
    should, is_ = _numbers(right[at], got[at])
    reason = _recognise(got, right, mistakes(at))
    if not reason:
        reason = f"{name}{list(at)} should be {should}, got {is_}"
        if used is not None and not used[at[0]]:
            row = _row(at[0], names)
            reason += f": {row} was not used, so it must stay exactly 0"
    return Verdict(False, reason, at)


def _recognise(got, right, mistakes):
    """Join the sentences of the mistakes that give just this answer."""
    # On some batches a mistake does no harm: there it explains nothing.
    return "; or, with the same result here: ".join(
        sentence
        for sentence, wrong in mistakes.items()
        if _same(got, wrong) and not _same(right, wrong)
    )


def _uncleared(name, row, right, last, used, previous):
    if np.shape(previous) != right.shape:
        return {}
    used = used[:, None]
    old = f"the previous call's gradient: start {name} from zeros every time"
    mistakes = {f"{row} was added to {old}": previous + right}
    if last is not right:
        added = f"{row} was added to {old}, and use np.add.at"
        mistakes[added] = previous + last
    if np.any(previous[~used[:, 0]]):
        stale = f"{row} is unused now, yet holds {old}"
        mistakes[stale] = np.where(used, right, previous)
        if last is not right:
            both = (
                f"see {row}: unused rows hold {old}; used ones keep one "
                "slice, use np.add.at"
            )
            mistakes[both] = np.where(used, last, previous)
    return mistakes


def _multiple(name, row, got, right, B):
    s = _factor(got, right)
    sentence = f"{name} is {s:.10g} times what it should be, see {row}"
    if np.isclose(s, 1 / B):
        sentence = f"{row} is the mean over the batch of {B}: take the sum"
    if np.isclose(s, -1):
        sentence = f"the sign of {name} is flipped, see {row}"
    if abs(s) < 1e-9:
        sentence = f"{name} is all zeros: nothing was added, not even to {row}"
    return {sentence: s * right}


def _factor(got, base):
    """Return the s for which s * base comes nearest to got."""
    finite = np.isfinite(base)
    got, base = got[finite], base[finite]
    if np.count_nonzero(base) < 2:
        return np.nan  # a single number is a multiple of any other
    return np.sum(got * base) / np.sum(base * base)


def _order(flat, count):
    """Return which use of its id each entry is: 0 for the first, then 1."""
    place = np.argsort(flat, kind="stable")
    order = np.empty(len(flat), dtype=int)
    order[place] = np.arange(len(flat)) - np.repeat(
        np.cumsum(count) - count, count
    )
    return order


def _tolerance(mass, used=None):
    """Return how far off an entry may be, by the size of what it sums."""
    mass = np.where(np.isfinite(mass), mass, 0)
    tol = 1e-9 * np.max(mass, axis=-1, keepdims=True, initial=0)
    tol = tol + 1e-12 * np.max(mass, initial=0)  # rounding of other rows
    return tol if used is None else tol * used[:, None]  # unused: exactly 0


def _same(got, wrong):
    if (
        wrong is None
        or got.shape != wrong.shape
        or got.dtype.kind not in "iuf"
    ):
        return False
    finite = np.isfinite(wrong)  # if none is, the mistake does not apply
    tol = 1e-9 * np.max(np.abs(wrong), where=finite, initial=0)
    return bool(finite.any() and np.all(_close(got, wrong, tol)))


def _close(a, b, tol):
    with np.errstate(all="ignore"):
        return (a == b) | (np.abs(a - b) <= tol) | (np.isnan(a) & np.isnan(b))


def _join(a, b):
    return np.concatenate([a, b], axis=2)


def _flip(dout):
    return dout.swapaxes(0, 1)  # (T, B, C)


def _first(wrong):
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def _numbers(a, b):
    short = f"{a:.6g}", f"{b:.6g}"
    return short if short[0] != short[1] else (f"{a:.17g}", f"{b:.17g}")


def _row(i, names):
    known = names is not None and i < len(names)
    return f"row {str(names[i])!r}" if known else f"row {i}"
