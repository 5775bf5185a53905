"""A changed picture changes the text that nbval compares."""

import base64
import re
import struct

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Text

from lantern_embed import EmbeddingLayer, chars
from lantern_embed.lesson import figures
from lantern_embed.lesson.figures import Bars, Heatmap

LAYER = EmbeddingLayer(vocab_size=24, block_size=32, C=16)
TABLE = np.array([[0.5, -2.0, 0.25], [0.0, 0.0, 0.0]])


@pytest.fixture
def shown(monkeypatch):
    """Collect what a call displays, instead of displaying it."""
    calls = []

    def display(data, metadata, raw):
        calls.append((data, metadata))

    monkeypatch.setattr(figures, "display", display)
    monkeypatch.setattr(figures, "PNG_DPI", 20)  # only the SVG is compared

    def show(*maps, **options):
        figures.show_heatmaps(*maps, **{"label": "weight"} | options)
        return calls[-1]

    return show


def fingerprint(call):
    return re.search(r"fingerprint: (\w+)$", call[0]["text/plain"])[1]


def small(**changes):
    options = {"title": "t", "values": TABLE, "row_axis": "position"}
    return Heatmap(**options | changes)


def test_the_same_picture_has_the_same_text_and_bytes(shown):
    assert shown(small()) == shown(small())


def test_a_heatmap_draws_each_entry_in_its_place(monkeypatch):
    # On the identity matrix, whose right picture anyone knows.
    with figures._style():
        fig, _ = figures.draw_heatmaps(
            small(values=np.eye(4, 3)), label="weight"
        )
    ax = fig.axes[0]
    (mesh,) = [c for c in ax.collections if c.get_array() is not None]
    assert np.array_equal(mesh.get_array(), np.eye(4, 3))
    bottom, top = ax.get_ylim()
    assert bottom > top  # row 0 on top
    assert ax.get_xlim() == (0, 3)


def test_the_signed_scale_is_symmetric_with_white_at_zero():
    with figures._style():
        fig, _ = figures.draw_heatmaps(small(), label="weight")
    mesh = fig.axes[0].collections[0]
    assert mesh.get_clim() == (-2.0, 2.0)
    assert np.allclose(mesh.to_rgba(0.0)[:3], 1.0, atol=0.04)


def test_magnitudes_start_at_zero():
    with figures._style():
        fig, _ = figures.draw_heatmaps(
            small(values=abs(TABLE)), label="error", signed=False
        )
    assert fig.axes[0].collections[0].get_clim() == (0.0, 2.0)


def test_all_is_labelled():
    with figures._style():
        fig, _ = figures.draw_heatmaps(
            Heatmap("E", LAYER.E, "character", chars),
            label="weight",
            bars=Bars("uses", np.arange(24)),
        )
    ax, colour_bar, bars = fig.axes
    assert ax.get_title() == "E"
    assert ax.get_xlabel() == "channel"
    assert ax.get_ylabel() == "character"
    assert colour_bar.get_ylabel() == "weight"
    named = list(zip(np.arange(24) + 0.5, ["␣", *chars[1:]], strict=True))
    for panel in (ax, bars):
        # What bar_label writes stands behind the left edge, at the bars.
        names = [t for t in panel.texts if type(t) is Text]
        assert [(t.get_position()[1], t.get_text()) for t in names] == named


# Each is a way for a figure to go wrong unseen.
PLANTED = {
    "a transposed table": {"values": TABLE.T},
    "reversed rows": {"values": TABLE[::-1]},
    "a changed entry": {"values": TABLE + [[0, 0, 0.25], [0, 0, 0]]},
    "a wrong title": {"title": "u"},
    "a wrong axis": {"row_axis": "character"},
    "named rows": {"rows": ["a", "b"]},
    "other names": {"rows": ["b", "a"]},
    "marked zeros": {"mark_zeros": True},
}


def test_each_planted_change_of_a_heatmap_has_its_own_fingerprint(shown):
    prints = [fingerprint(shown(small(**p))) for p in PLANTED.values()]
    assert len({fingerprint(shown(small())), *prints}) == len(PLANTED) + 1


@pytest.mark.parametrize(
    "options",
    [
        {"label": "gradient"},
        {"signed": False},
        {"limit": 3.0},
        {"height": 3.0},
        {"joins": ("+",)},
        {"bars": Bars("uses", np.array([2, 0]))},
    ],
    ids=str,
)
def test_each_option_shows_in_the_fingerprint(shown, options):
    rows = {"rows": ["a", "b"]}
    plain = shown(small(**rows), small(**rows))
    changed = shown(small(**rows), small(**rows), **options)
    assert fingerprint(changed) != fingerprint(plain)


@pytest.mark.parametrize(
    "name",
    ["SIGNED_MAP", "HATCH", "INK", "WIDTH", "STYLE"],
)
def test_a_changed_look_shows_in_the_fingerprint(shown, monkeypatch, name):
    marked = small(mark_zeros=True)
    before = fingerprint(shown(marked))
    other = {
        "SIGNED_MAP": "PuOr",
        "HATCH": figures.HATCH | {"hatch": "...."},
        "INK": "#444444",
        "WIDTH": 8.0,
        "STYLE": figures.STYLE | {"font.size": 12, "axes.labelsize": 12},
    }[name]
    monkeypatch.setattr(figures, name, other)
    assert fingerprint(shown(marked)) != before


def test_a_shifted_tick_and_an_asymmetric_limit_show(shown, monkeypatch):
    before = fingerprint(shown(small()))
    ticks = figures._ticks
    with monkeypatch.context() as patch:
        patch.setattr(
            figures,
            "_ticks",
            lambda *a, **k: (
                ([x + 1 for x in ticks(*a, **k)[0]],) + ticks(*a, **k)[1:]
            ),
        )
        assert fingerprint(shown(small())) != before
    with monkeypatch.context() as patch:
        patch.setattr(
            figures,
            "Normalize",
            lambda low, high: mpl.colors.Normalize(low / 2, high),
        )
        assert fingerprint(shown(small())) != before


def test_the_text_says_what_was_drawn(shown):
    text = shown(small(mark_zeros=True))[0]["text/plain"]
    assert text.splitlines()[:2] == [
        "heatmap: t; 2 rows (position) by 3 columns (channel); values from "
        "-2 to 0.5; zero rows: 1",
        "colours: weight, from -2 to 2",
    ]


def test_the_alt_text_travels_with_the_picture(shown):
    data, metadata = shown(small())
    alt = metadata["image/png"]["alt"]
    assert data["text/plain"].startswith(alt)
    assert "fingerprint" not in alt


def test_the_png_is_finer_than_it_is_shown_and_opaque(shown, monkeypatch):
    monkeypatch.setattr(figures, "PNG_DPI", 150)
    data, metadata = shown(small(), height=3.0)
    png = base64.b64decode(data["image/png"])
    size = struct.unpack(">II", png[16:24])
    shown_size = (
        metadata["image/png"]["width"],
        metadata["image/png"]["height"],
    )
    assert shown_size == (900, 300)
    assert size == (1350, 450)
    with figures._style():
        fig, _ = figures.draw_heatmaps(small(), label="weight")
        assert fig.get_facecolor() == (1, 1, 1, 1)


def test_text_has_enough_contrast():
    # WCAG: 4.5 to 1 for text of this size.
    def luminance(colour):
        rgb = np.array(mpl.colors.to_rgb(colour))
        linear = np.where(
            rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4
        )
        return linear @ [0.2126, 0.7152, 0.0722]

    assert 1.05 / (luminance(figures.INK) + 0.05) >= 4.5


def test_the_readers_own_settings_do_not_matter(shown):
    before = shown(small())
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path"}):
        assert shown(small()) == before
        assert mpl.rcParams["font.size"] == 30  # and are left alone


def test_an_all_zero_table_can_be_drawn(shown):
    text = shown(small(values=np.zeros((2, 3))))[0]["text/plain"]
    assert "values from 0 to 0; zero rows: 0 1" in text


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_without_a_colour_is_named_with_its_place(value):
    values = TABLE.copy()
    values[1, 2] = value
    with pytest.raises(ValueError, match=f"t holds {value} at row 1, column"):
        figures.draw_heatmaps(small(), small(values=values), label="weight")


@pytest.mark.parametrize("rows", [["a"], ["a", "b", "c"]])
def test_a_wrong_number_of_names_is_refused(rows):
    with pytest.raises(ValueError, match=f"2 rows, but {len(rows)} names"):
        figures.draw_heatmaps(small(rows=rows), label="weight")


def test_dollar_signs_and_counts_of_zero_can_be_drawn(shown):
    heatmap = small(title="in $ and $", rows=["$_$", "$x$"])
    text = shown(heatmap, bars=Bars("uses", np.zeros(2, int)))[0]["text/plain"]
    assert "heatmap: in $ and $" in text
    assert "bars: uses; counts 0 0" in text


def test_a_long_run_of_zero_rows_is_said_in_short(shown):
    values = np.zeros((32, 3))
    values[:16] = 1.0
    assert "zero rows: 16..31" in shown(small(values=values))[0]["text/plain"]


def test_curves_keep_their_own_markers_and_facts(monkeypatch):
    calls = []
    monkeypatch.setattr(
        figures, "display", lambda data, metadata, raw: calls.append(data)
    )

    def draw(**changes):
        options = {
            "x": np.array([0.1, 1.0, 10.0]),
            "curves": {"a": [1.0, 0.0, 4.0], "b": [0.0, 0.0, 0.0]},
            "title": "t",
            "x_label": "step",
            "y_label": "error",
            "log": True,
        }
        figures.show_curves(**options | changes)
        return calls[-1]["text/plain"]

    text = draw()
    assert "  a: 2 of 3 points, first 1, last 4, lowest 1 at 0.1" in text
    assert "  b: none of 3 points can be drawn" in text
    assert draw(title="u") != text
    assert draw(curves={"a": [1.0, 0.0, 4.1], "b": [0.0] * 3}) != text
    # A point at x = 0 has no place on a logarithmic axis either.
    assert "  a: 1 of 3 points" in draw(x=[0.0, 1.0, 10.0])
    assert "  a: 3 of 3 points" in draw(log=False)
    five = draw(curves=dict.fromkeys("abcde", [1.0, 2.0, 4.0]))
    assert five.count("3 of 3 points") == 5
