"""Pictures that a regression run can compare.

nbval skips images. So every figure here is shown with text that says what
was drawn, read off the drawing itself, and a fingerprint of it: a changed
picture changes the text.
"""

import base64
import hashlib
import io
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle

import matplotlib as mpl
import numpy as np
from IPython.display import display
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.ticker import LogFormatter
from matplotlib.transforms import Affine2D, offset_copy

DPI = 100
# More pixels at the same size on the page: sharp on a projector.
PNG_DPI = 150
SIGNED_MAP = "RdBu_r"  # diverging, colour-blind safe, white at zero
MAGNITUDE_MAP = "cividis"  # perceptually uniform, colour-blind safe
INK = "#222222"
HATCH = {"hatch": "////", "facecolor": "none", "edgecolor": "#767676", "lw": 0}
WIDTH = 9.0  # inches, as the heights

STYLE = {
    "figure.facecolor": "white",  # opaque: readable on a dark page too
    "savefig.facecolor": "white",
    "font.family": "DejaVu Sans",  # ships with matplotlib
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "hatch.linewidth": 0.6,
    "text.parse_math": False,  # a name may hold a dollar sign
    # A deterministic SVG: no random ids, text kept as text.
    "svg.hashsalt": "lantern",
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Heatmap:
    """A table to draw: one coloured cell per entry, row 0 on top.

    Attributes
    ----------
    title : str
        What the table is.
    values : ndarray, shape (rows, columns)
        The table.
    row_axis : str
        What a row is, for example "position".
    rows : sequence of str, optional
        A name for each row; by default its number.
    mark_zeros : bool
        Hatch the rows that are zero throughout, and draw a 0 beside them.
    """

    title: str
    values: np.ndarray
    row_axis: str
    rows: tuple | None = None
    mark_zeros: bool = False


@dataclass(frozen=True)
class Bars:
    """Counts to draw as bars beside a heatmap, one per row.

    Attributes
    ----------
    title : str
        What is counted.
    counts : ndarray of int, shape (rows,)
        One count per row of the heatmap.
    """

    title: str
    counts: np.ndarray


def show_heatmaps(*maps, **options):
    """Draw tables side by side on one colour scale, and show them.

    Takes what `draw_heatmaps` takes.
    """
    with _style():
        show(*draw_heatmaps(*maps, **options))


def draw_heatmaps(
    *maps, label, signed=True, limit=None, joins=(), bars=None, height=4.2
):
    """Draw tables side by side on one colour scale.

    Parameters
    ----------
    *maps : Heatmap
        The tables, from left to right.
    label : str
        What the colours measure; stands at the colour bar.
    signed : bool
        Whether the sign matters: then the scale is symmetric, with white at
        zero. Otherwise it starts at zero.
    limit : float, optional
        End of the scale, in the units of the tables; by default the largest
        magnitude in any of them.
    joins : sequence of str, optional
        What to write between the panels, for example ("+", "=").
    bars : Bars, optional
        Counts to draw on the right, aligned with the rows.
    height : float
        Height of the figure in inches; the width is 9.

    Returns
    -------
    fig : matplotlib.figure.Figure
    alt : str
        What the picture shows, a line per panel, read off the drawing.

    Raises
    ------
    ValueError
        If a table holds a nan or an infinity, or has a name too many or too
        few.
    """
    for heatmap in maps:
        _check(heatmap)
    if limit is None:
        limit = max(np.max(np.abs(m.values), initial=0.0) for m in maps)
    limit = limit or 1.0  # an all-zero table still needs a scale
    norm = Normalize(-limit if signed else 0.0, limit)
    colours = SIGNED_MAP if signed else MAGNITUDE_MAP

    fig = Figure(figsize=(WIDTH, height), dpi=DPI)
    axes = _place_panels(fig, maps, joins, bars)
    facts = []
    for ax, heatmap in zip(axes, maps, strict=False):
        mesh = _draw_heatmap(ax, heatmap, norm, colours)
        facts.append(_heatmap_facts(ax, mesh, heatmap.rows))
    if bars is not None:
        facts.append(_draw_bars(axes[-1], bars, maps[-1]))
    colour_bar = fig.colorbar(mesh, cax=axes[len(maps)], label=label)
    # Kept as vectors: an embedded image would tie the SVG to one zlib.
    colour_bar.solids.set_rasterized(False)
    low, high = mesh.get_clim()
    facts.append(f"colours: {label}, from {low:.3g} to {high:.3g}")
    return fig, "\n".join(facts)


def _check(heatmap):
    values, title = np.asarray(heatmap.values), heatmap.title
    for row, column in np.argwhere(~np.isfinite(values)):
        raise ValueError(
            f"{title} holds {values[row, column]} at row {row}, column "
            f"{column}: only finite values have a colour"
        )
    if heatmap.rows is not None and len(heatmap.rows) != len(values):
        raise ValueError(
            f"{title} has {len(values)} rows, but {len(heatmap.rows)} names"
        )


def _place_panels(fig, maps, joins, bars):
    """Add axes for the maps, the colour bar and the bars, left to right.

    By hand, in inches: a layout engine draws everything twice, and would tie
    the picture to how it measures text.
    """
    # For each panel: the space left of it, its width, the space right of it;
    # None is an equal share of what is left.
    panels = []
    signs = [0.35 if 0 < n <= len(joins) else 0.0 for n in range(len(maps))]
    for sign, heatmap in zip(signs, maps, strict=True):
        longest = max(map(len, heatmap.rows)) if heatmap.rows else 2
        panels.append((sign + 0.45 + 0.09 * longest, None, 0.2))
    panels.append((0.15, 0.18, 0.8))
    if bars is not None:
        panels.append((0.35, None, 0.1))
    width, height = fig.get_size_inches()
    left_over = width - sum(a + (w or 0) + z for a, w, z in panels)
    share = left_over / sum(w is None for _, w, _ in panels)
    axes, x = [], 0.0
    for n, (before, w, behind) in enumerate(panels):
        w = share if w is None else w
        box = (x + before, 0.55, w, height - 0.9)
        ax = fig.add_axes(np.divide(box, (width, height) * 2))
        # Left to itself, matplotlib measures every tick label several times
        # to find a place for the labels of the axes.
        ax.xaxis.set_label_coords(0.5, -0.3 / (height - 0.9))
        if n < len(maps):
            ax.yaxis.set_label_coords((signs[n] + 0.22 - before) / w, 0.5)
        axes.append(ax)
        if 0 < n <= len(joins):
            fig.text(x / width, 0.5, joins[n - 1], fontsize=22)
        x += before + w + behind
    return axes


def _draw_heatmap(ax, heatmap, norm, colours):
    n_rows, n_cols = heatmap.values.shape
    mesh = ax.pcolormesh(heatmap.values, norm=norm, cmap=colours)
    ax.set_title(heatmap.title, y=1.0)
    ax.set(xlabel="channel", ylabel=heatmap.row_axis, ylim=(n_rows, 0))
    ax.set_xticks(*_ticks(range(n_cols), at_most=4))
    if heatmap.rows is None:
        ax.set_yticks(*_ticks(range(n_rows), at_most=8))
    else:
        _name_rows(ax, heatmap.rows)
    if heatmap.mark_zeros:
        _mark_rows(ax, _zero_rows(heatmap.values), n_cols)
    return mesh


def _name_rows(ax, names):
    """Write a name at each row: one artist, where a tick would be five."""
    ax.set_yticks([])
    left = offset_copy(
        ax.get_yaxis_transform(), ax.figure, x=-5, units="points"
    )
    for row, name in enumerate(_printable(names)):
        ax.text(
            0,
            row + 0.5,
            name,
            transform=left,
            ha="right",
            va="center_baseline",
            fontsize=9,
            fontfamily="DejaVu Sans Mono",
        )


def _mark_rows(ax, rows, n_cols):
    """Hatch rows and draw a 0, an oval, beside them: text would be slow."""
    boxes = [
        [(0, row), (n_cols, row), (n_cols, row + 1), (0, row + 1)]
        for row in rows
    ]
    ax.add_collection(PolyCollection(boxes, **HATCH), autolim=False)
    ax.plot(
        [n_cols] * len(rows),
        [row + 0.5 for row in rows],
        transform=offset_copy(ax.transData, ax.figure, x=8, units="points"),
        marker=Path.unit_circle().transformed(Affine2D().scale(0.6, 1)),
        markersize=4.5,
        markeredgewidth=0.8,
        markerfacecolor="none",
        markeredgecolor=INK,
        linestyle="none",
        clip_on=False,
        scalex=False,
        scaley=False,
    )


def _draw_bars(ax, bars, heatmap):
    rows = np.arange(len(bars.counts))
    drawn = ax.barh(rows + 0.5, bars.counts, height=0.8, color="#4c72b0")
    ax.bar_label(drawn, padding=3, fontsize=9)
    ax.set_title(bars.title, y=1.0)
    ax.set(
        xlabel="count",
        ylim=(len(rows), 0),
        xlim=(0, 1.15 * max(1, *bars.counts)),
    )
    ax.xaxis.get_major_locator().set_params(integer=True)
    _name_rows(ax, heatmap.rows)
    ax.spines[["top", "right"]].set_visible(False)
    counts = [int(bar.get_width()) for bar in drawn]
    return f"bars: {ax.get_title()}; counts {' '.join(map(str, counts))}"


def show_curves(x, curves, *, title, x_label, y_label, log=False, height=4.0):
    """Draw curves over one x axis, and show them.

    Parameters
    ----------
    x : array, shape (n,)
        Where the points are.
    curves : dict of str to array, shape (n,)
        The curves by name, drawn with a marker of their own each (the
        markers start over after four).
    title, x_label, y_label : str
        What it is and what the axes measure.
    log : bool
        Logarithmic axes. Points at zero cannot stand on one: they are left
        out of the curve, and the alt text says how many.
    height : float
        Height of the figure in inches.
    """
    x = np.asarray(x, float)
    with _style():
        fig = Figure(figsize=(WIDTH, height), dpi=DPI)
        ax = fig.add_axes((0.1, 0.16, 0.88, 0.74))
        ax.set_title(title, y=1.0)
        ax.set(xlabel=x_label, ylabel=y_label)
        ax.xaxis.set_label_coords(0.5, -0.12)
        ax.yaxis.set_label_coords(-0.08, 0.5)
        if log:
            ax.set(xscale="log", yscale="log")
            for axis in (ax.xaxis, ax.yaxis):  # 1e-06, as in code
                axis.set_major_formatter(LogFormatter())
                axis.set_minor_formatter(LogFormatter())
        facts = [f"curves: {ax.get_title()}"]
        looks = cycle(zip("os^v", ("-", "--", ":", "-."), strict=True))
        for (name, y), (marker, line) in zip(
            curves.items(), looks, strict=False
        ):
            seen = np.asarray(y, float)
            if log:
                seen = np.where((seen > 0) & (x > 0), seen, np.nan)
            (drawn,) = ax.plot(
                x, seen, marker=marker, linestyle=line, label=name
            )
            facts.append(_curve_facts(drawn))
        ax.legend()
        ax.grid(color="#dddddd")
        ax.spines[["top", "right"]].set_visible(False)
        show(fig, "\n".join(facts))


def show(fig, alt):
    """Display a figure as a PNG together with text that nbval compares.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        Drawn within the style of this module.
    alt : str
        What a reader who cannot see the picture should know.
    """
    svg = _rendered(fig, "svg", metadata={"Date": None, "Creator": None})
    png = _rendered(fig, "png", dpi=PNG_DPI, metadata={"Software": None})
    fingerprint = hashlib.sha256(svg).hexdigest()[:12]
    width, height = (fig.get_size_inches() * DPI).astype(int).tolist()
    display(
        {
            "image/png": base64.b64encode(png).decode(),
            "text/plain": f"{alt}\nfingerprint: {fingerprint}",
        },
        metadata={"image/png": {"alt": alt, "width": width, "height": height}},
        raw=True,
    )


def heatmaps_png(*maps, **options):
    """Draw what `show_heatmaps` would show; return PNG bytes and alt text.

    For a slider: one picture, at screen resolution, without a fingerprint.
    """
    with _style():
        fig, alt = draw_heatmaps(*maps, **options)
        return _rendered(fig, "png"), alt


def _rendered(fig, kind, **options):
    buffer = io.BytesIO()
    fig.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


@contextmanager
def _style():
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the reader's own settings are
        mpl.rcParams.update(STYLE)
        yield


def _heatmap_facts(ax, mesh, names):
    drawn = np.asarray(mesh.get_array())
    zeros = _listed(_zero_rows(drawn), names)
    return (
        f"heatmap: {ax.get_title()}; {drawn.shape[0]} rows "
        f"({ax.get_ylabel()}) by {drawn.shape[1]} columns "
        f"({ax.get_xlabel()}); values from {drawn.min():.3g} to "
        f"{drawn.max():.3g}; zero rows: {zeros}"
    )


def _curve_facts(drawn):
    x, y = drawn.get_data()
    seen = np.isfinite(y)
    if not seen.any():
        return f"  {drawn.get_label()}: none of {len(y)} points can be drawn"
    low = np.nanargmin(y)
    return (
        f"  {drawn.get_label()}: {seen.sum()} of {len(y)} points, first "
        f"{y[seen][0]:.2g}, last {y[seen][-1]:.2g}, lowest {y[low]:.2g} "
        f"at {x[low]:.2g}"
    )


def _zero_rows(table):
    return np.flatnonzero(~table.any(axis=1)).tolist()


def _listed(rows, names):
    """List rows by name; a long run of numbered rows as first..last."""
    if not rows:
        return "none"
    if names is not None:
        return " ".join(_printable(names)[row] for row in rows)
    if len(rows) > 2 and rows == list(range(rows[0], rows[-1] + 1)):
        return f"{rows[0]}..{rows[-1]}"
    return " ".join(map(str, rows))


def _printable(names):
    return ["\u2423" if name == " " else name for name in names]


def _ticks(numbers, at_most):
    step = -(-len(numbers) // at_most)
    shown = numbers[::step]
    return [n + 0.5 for n in shown], [str(n) for n in shown]
