"""Check a backward pass with nothing but forward passes."""

import copy
from dataclasses import dataclass, replace

import numpy as np

from .diagnosis import (
    Verdict,
    diagnose_dE,
    diagnose_dP,
    diagnose_out,
    diagnose_unchanged,
)

# An entry passes if either error is within its tolerance.
ABS_TOL = 1e-8
REL_TOL = 1e-5


def scalar_loss(out, G):
    """Reduce an output to one number whose gradient is G.

    Parameters
    ----------
    out, G : ndarray, same shape
        Output of a layer, and the upstream gradient to test it with.

    Returns
    -------
    float
        ``np.sum(out * G)``. Elementwise on purpose: the last digit of a
        BLAS product depends on the processor.

    Raises
    ------
    ValueError
        If the shapes differ; NumPy would broadcast.

    Examples
    --------
    >>> scalar_loss(np.array([1.0, 2.0]), np.array([10.0, 100.0]))
    210.0
    """
    return _loss(out, G)


def _loss(out, G, product=None):
    if np.shape(out) != np.shape(G):
        raise ValueError(
            f"G has shape {np.shape(G)}, but the output has {np.shape(out)}"
        )
    return float(np.sum(np.multiply(out, G, out=product)))


def rel_err(a, b):
    """Compare two arrays; the largest relative error over all entries.

    Parameters
    ----------
    a, b : array, same shape
        For example an analytic and a numeric gradient.

    Returns
    -------
    float
        ``max(|a - b| / max(1e-12, |a| + |b|))``, without a unit: 0 for
        equal arrays, never more than 1 for finite ones (nan if |a| + |b|
        overflows).

    Raises
    ------
    TypeError
        If an array does not hold real numbers.
    ValueError
        If the shapes differ.

    Examples
    --------
    >>> rel_err([1.0, 2.0], [1.0, 6.0])
    0.5
    """
    return float(np.max(_rel_errs(*_same_shape(a, b)), initial=0.0))


def numeric_grad(layer, idx, table, G, eps=1e-6):
    """Measure the gradient of the loss by central differences.

    Parameters
    ----------
    layer : EmbeddingLayer
        Anything with `forward`, `E` and `P`.
    idx : array of int, shape (B, T)
        The batch.
    table : ndarray
        ``layer.E`` or ``layer.P`` itself, float64. Each entry is moved by
        eps both ways, then put back exactly, even if forward raises;
        ``layer.cache`` is put back, too.
    G : array, shape (B, T, C)
        Upstream gradient: the loss is ``scalar_loss(layer.forward(idx), G)``.
    eps : float, optional
        The step, in the units of the table.

    Returns
    -------
    ndarray, shape of table
        ``(loss(entry + eps) - loss(entry - eps)) / (2 * eps)``, the entries
        one by one.

    Raises
    ------
    TypeError
        If the table is not float64, or eps is not a number.
    ValueError
        If the table is not the layer's own, if eps is not positive and
        finite, or if G is not shaped like the output.

    References
    ----------
    The central difference formula, for example Press et al., "Numerical
    Recipes", section 5.7.

    Examples
    --------
    >>> from lantern_embed import EmbeddingLayer
    >>> layer = EmbeddingLayer(vocab_size=3, block_size=2, C=1)
    >>> G = np.ones((1, 2, 1))
    >>> numeric_grad(layer, [[0, 0]], layer.E, G).round(6)
    array([[2.],
           [0.],
           [0.]])
    """
    _check_measurable(layer, table)
    eps, cache = _checked_eps(eps), layer.cache
    try:
        return _measure(layer, idx, table, range(len(table)), G, eps)
    finally:
        layer.cache = cache


def _measure(layer, idx, table, rows, G, eps):
    G = np.asarray(G, np.float64)
    product = np.empty_like(G)  # made once: fresh memory can cost more than *

    def loss():
        return _loss(layer.forward(idx), G, product)

    slopes = [
        _slope(loss, table, (row, col), eps)
        for row in rows
        for col in range(table.shape[1])
    ]
    return np.array(slopes).reshape(-1, table.shape[1])  # (rows, C)


def _slope(loss, table, entry, eps):
    here = table[entry]
    try:
        table[entry] = here + eps
        above = loss()
        table[entry] = here - eps
        below = loss()
    finally:
        table[entry] = here
    return (above - below) / (2 * eps)


def _check_measurable(layer, table):
    if table is not layer.E and table is not layer.P:
        raise ValueError(
            "table must be layer.E or layer.P itself: moving an entry of a "
            "copy does not move the loss"
        )
    if table.dtype != np.float64:
        raise TypeError(
            f"the table must be float64, got {table.dtype}: in float32 a "
            "step of 1e-6 drowns in rounding, and a right gradient would fail"
        )


def _checked_eps(eps):
    number = isinstance(eps, int | float | np.integer | np.floating)
    if not number or isinstance(eps, bool):
        raise TypeError(f"eps must be a number, got {eps!r}")
    if not 0 < eps < np.inf:
        raise ValueError(f"eps must be positive and finite, got {eps}")
    return float(eps)  # a float32 would pull the slopes down to float32


def _checked_sample(sample):
    if isinstance(sample, bool) or not isinstance(sample, int | np.integer):
        raise TypeError(f"sample must be an integer or None, got {sample!r}")
    if sample < 1:
        raise ValueError(f"sample must be at least 1, got {sample}")


def _same_shape(a, b):
    a, b = np.asarray(a), np.asarray(b)
    for x in (a, b):
        if x.dtype.kind not in "iuf":
            raise TypeError(f"rel_err wants real numbers, got {x.dtype}")
    a, b = a.astype(np.float64), b.astype(np.float64)  # in uint8, 1 - 3 is 254
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    return a, b


def _rel_errs(a, b):
    # inf - inf is nan, inf / inf too, and nan fails.
    with np.errstate(invalid="ignore", over="ignore"):
        return np.abs(a - b) / np.maximum(1e-12, np.abs(a) + np.abs(b))


@dataclass(frozen=True)
class TableCheck:
    """What the check found for one table.

    Attributes
    ----------
    name : str
        "dE" or "dP".
    rows_checked, rows : int
        How many rows were measured, and how many the table has.
    passed : bool
        Whether every measured entry passed.
    max_rel, max_abs : float
        Largest relative and absolute error of the measured entries; nan if
        the output or the gradient has the wrong shape or type, so that
        nothing was.
    row, col : int or None
        The worst entry: the furthest beyond what passes or, if all pass, the
        nearest to it.
    analytic, numeric : float
        What backward says there, and what the differences say.
    reason : str
        The diagnosis, when the check failed; otherwise empty.
    """

    name: str
    rows_checked: int
    rows: int
    passed: bool
    max_rel: float = np.nan
    max_abs: float = np.nan
    row: int | None = None
    col: int | None = None
    analytic: float = np.nan
    numeric: float = np.nan
    reason: str = ""


@dataclass(frozen=True)
class GradientReport:
    """What `check_gradients` found; print it to read it.

    Attributes
    ----------
    tables : tuple of TableCheck
        One for dE, one for dP.
    blind : tuple of str
        Why this batch could not have shown some mistake.
    passed : bool
        Whether both tables passed.
    """

    tables: tuple
    blind: tuple = ()

    @property
    def passed(self):
        """Whether both tables passed."""
        return all(table.passed for table in self.tables)

    def __str__(self):
        """Return the report as an aligned table and its remarks."""
        lines = [
            "       rows     max rel   max abs   worst entry"
            "     analytic      numeric"
        ]
        for t in self.tables:
            rows = f"{t.rows_checked}/{t.rows}"
            worst = "-" if t.row is None else f"[{t.row}, {t.col}]"
            lines.append(
                f"{t.name}  {rows:>7}  {t.max_rel:>10.2e}{t.max_abs:>10.2e}"
                f"   {worst:<11}{t.analytic:>13.6g}{t.numeric:>13.6g}"
                f"   {'pass' if t.passed else 'FAIL'}"
            )
        lines += [f"{t.name}: {t.reason}" for t in self.tables if t.reason]
        lines += [f"blind: {reason}" for reason in self.blind]
        return "\n".join(lines)


def check_gradients(
    layer, idx, G=None, *, eps=1e-6, sample=None, seed=0, names=None
):
    """Check dE and dP of a layer against central differences.

    An entry passes when its absolute error is at most 1e-8 or its relative
    error at most 1e-5. A row that the batch does not use must be zero:
    exactly, not within a tolerance. The layer is left as it was.

    Parameters
    ----------
    layer : EmbeddingLayer
        Anything with `forward`, `backward`, `E`, `P`, `dE`, `dP`.
    idx : array of int, shape (B, T)
        The batch.
    G : array, shape (B, T, C), optional
        Upstream gradient; by default standard normal, drawn with `seed`.
    eps : float, optional
        The step of the differences, in the units of the tables.
    sample : int, optional
        Measure this many of the used rows of each table, drawn with `seed`,
        instead of every row.
    seed : int, optional
        Seed of G and of the sample.
    names : sequence of str, optional
        What to call the rows of E in a diagnosis, for example `chars`.

    Returns
    -------
    GradientReport
        ``report.passed`` says whether all is well, ``print(report)`` why
        not: one line per table, the diagnosis of a failure, and the mistakes
        to which this batch is blind.

    Raises
    ------
    TypeError
        If a table is not float64, G does not hold real numbers, eps is not
        a number or `sample` not an integer.
    ValueError
        If `sample` is not positive, eps not positive and finite, or G has a
        wrong shape.

    Examples
    --------
    >>> from lantern_embed import EmbeddingLayer
    >>> layer = EmbeddingLayer(vocab_size=24, block_size=32, C=16)
    >>> check_gradients(layer, [[1, 2, 1], [1, 3, 3]]).passed
    True
    """
    for table in (layer.E, layer.P):
        _check_measurable(layer, table)
    eps = _checked_eps(eps)
    if sample is not None:
        _checked_sample(sample)
    names = None if names is None else list(names)
    rng = np.random.default_rng(seed)
    E, P = layer.E, layer.P

    # All runs go over copies: layer, idx and G are left as they were.
    tried, measured = copy.deepcopy(layer), copy.deepcopy(layer)
    given = copy.deepcopy(idx)
    out = tried.forward(given)
    idx = np.array(idx)
    if idx.size == 0:
        idx = idx.astype(np.intp)  # to NumPy, [[]] holds floats
    forward = _diagnose_forward(out, idx, E, P, names)
    if np.shape(out) != (*idx.shape, E.shape[1]):  # no loss to speak of
        tables = [("dE", E), ("dP", P)]
        return GradientReport(
            tuple(
                TableCheck(name, 0, len(table), False, reason=forward.reason)
                for name, table in tables
            )
        )
    G = rng.standard_normal(out.shape) if G is None else np.array(G)
    if G.dtype.kind not in "iuf":
        raise TypeError(f"G must hold real numbers, got dtype {G.dtype}")
    scalar_loss(out, G)  # a G of another shape stops here
    dout = G.copy()
    tried.backward(3 * G)  # what this leaves behind must not matter next
    used_E, used_P = np.unique(idx), np.arange(idx.shape[1])
    dE_before = _rows_of(tried.dE, E, used_E)
    dP_before = _rows_of(tried.dP, P, used_P)
    out = tried.forward(given)
    tried.backward(dout)

    kept_E = diagnose_unchanged(tried.E, E, "E", names=names)
    kept_P = diagnose_unchanged(tried.P, P, "P")
    read_only = (
        _same(given, idx, "forward changed idx itself: only read it"),
        _same(dout, G, "backward changed dout itself: only read it"),
    )

    def check(name, table, grad, used, kept, verdict):
        # Whatever the numbers say, a table, idx and dout are only read.
        unharmed = all(v.passed for v in (kept, *read_only))
        verdicts = (kept, *read_only, verdict, forward, kept_E, kept_P)
        reasons = [v.reason for v in verdicts if not v.passed]
        if not _comparable(grad, table):
            return TableCheck(name, 0, len(table), False, reason=reasons[0])
        rows = _rows_to_measure(grad, used, sample, rng)
        numeric = _measure(measured, idx, table, rows, G, eps)
        return _judge(name, grad, rows, numeric, used, unharmed, reasons)

    dE = diagnose_dE(tried.dE, idx, G, E, previous=dE_before, names=names)
    dP = diagnose_dP(tried.dP, idx, G, P, previous=dP_before)
    return GradientReport(
        tables=(
            check("dE", measured.E, tried.dE, used_E, kept_E, dE),
            check("dP", measured.P, tried.dP, used_P, kept_P, dP),
        ),
        blind=_blind_spots(idx, G, len(E), len(P), sample),
    )


def _diagnose_forward(out, idx, E, P, names):
    verdict = diagnose_out(out, idx, E, P, names=names)
    reason = f"forward is not E[idx] + P[:T]: {verdict.reason}"
    return verdict if verdict.passed else replace(verdict, reason=reason)


def _same(after, before, reason):
    same = np.array_equal(after, before, equal_nan=True)
    return Verdict(same, "" if same else reason)


def _comparable(grad, table):
    return (
        type(grad) is np.ndarray  # a mask would hide entries
        and grad.shape == table.shape
        and grad.dtype.kind in "iuf"
    )


def _rows_of(grad, table, used):
    """Return a copy with the used rows only: the others should be zero."""
    if not _comparable(grad, table):
        return None
    rows = np.zeros_like(grad)
    rows[used] = grad[used]
    return rows


def _rows_to_measure(grad, used, sample, rng):
    everything = np.arange(len(grad))
    if sample is None:
        return everything
    pool = used if len(used) else everything  # an empty batch uses no row
    rows = rng.choice(pool, size=min(sample, len(pool)), replace=False)
    unused = np.setdiff1d(everything, used)
    touched = unused[np.any(grad[unused] != 0, axis=1)]
    # One touched row is enough to fail, and to be shown as the worst entry.
    return np.union1d(rows, touched[:1])


def _judge(name, grad, rows, numeric, used, unharmed, reasons):
    analytic = grad[rows]
    abs_errs = np.abs(analytic - numeric)
    rel_errs = _rel_errs(analytic, numeric)
    # How far each entry is from passing: up to 1 it passes.
    excess = np.minimum(abs_errs / ABS_TOL, rel_errs / REL_TOL)
    unused = ~np.isin(rows, used)
    excess[unused[:, None] & (analytic != 0)] = np.inf
    excess[np.isnan(excess)] = np.inf
    row, col = np.unravel_index(np.argmax(excess), excess.shape)
    passed = unharmed and bool(excess[row, col] <= 1)
    if not passed and not reasons:
        reasons = [
            "backward and forward both follow their formulas, so the "
            "measured slopes are at fault: is G finite, does forward read "
            "E and P themselves? Then try a larger eps"
        ]
    return TableCheck(
        name,
        rows_checked=len(rows),
        rows=len(grad),
        passed=passed,
        max_rel=float(np.max(rel_errs)),
        max_abs=float(np.max(abs_errs)),
        row=int(rows[row]),
        col=int(col),
        analytic=float(analytic[row, col]),
        numeric=float(numeric[row, col]),
        reason="" if passed else reasons[0],
    )


def _blind_spots(idx, G, vocab_size, block_size, sample):
    """Say which mistakes would not show on this batch."""
    B, T = idx.shape
    used = len(np.unique(idx))
    spots = {
        "the batch is empty: any zero gradient passes": idx.size == 0,
        "G is the same at every (b, t): a mix-up of both passes": (
            idx.size > 0 and np.all(G == G[:1, :1])
        ),
        f"G is tiny: an absolute error of {ABS_TOL} passes": (
            idx.size > 0 and np.max(np.abs(G)) < 1e3 * ABS_TOL
        ),
        "G is the same in every sequence: a mix-up of sequences passes": (
            B > 1 and np.all(G == G[:1]) and not np.all(G == G[:1, :1])
        ),
        "no id repeats: a scatter that loses repeats passes": used == idx.size,
        "no id is used three times: a scatter that loses the third passes": (
            np.max(np.unique(idx, return_counts=True)[1], initial=0) == 2
        ),
        "B is 1: a dP that leaves out sequences passes": B == 1,
        "T is 1: a mix-up of positions passes": T == 1,
        "every row of E is used: none has to stay zero": used == vocab_size,
        "T is block_size: no row of P has to stay zero": T == block_size,
        "a sample of the used rows: a mistake in the others passes": (
            sample is not None and sample < max(used, T)
        ),
    }
    return tuple(spot for spot, blind in spots.items() if blind)
