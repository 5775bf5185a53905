"""Sliders for "what if", each over a picture that also stands still.

Only the sliders need ipywidgets. Without it they say so, and the rest of the
lesson works.
"""

import numpy as np
from IPython.display import display

from ..corpus import chars, data, stoi, vocab_size
from ..layer import EmbeddingLayer
from .figures import WIDTH, Heatmap, heatmaps_png


def batch_heatmaps(layer, B, T):
    """Run a batch of the corpus both ways; return dE and dP as heatmaps.

    Parameters
    ----------
    layer : EmbeddingLayer
        Its cache and gradients are those of this batch afterwards.
    B, T : int
        Batch size and sequence length: the first B * T characters.

    Returns
    -------
    tuple of Heatmap
    """
    out = layer.forward(data[: B * T].reshape(B, T))
    layer.backward(np.random.default_rng(0).standard_normal(out.shape))
    size = f"B = {B}, T = {T}"
    return (
        Heatmap(f"dE, {size}", layer.dE, "character", chars, mark_zeros=True),
        Heatmap(f"dP, {size}", layer.dP, "position", mark_zeros=True),
    )


def character_heatmap(layer, idx, dout, character):
    """Line up a character's row of E, its slices of dout, and their sum.

    Parameters
    ----------
    layer : EmbeddingLayer
        For its E; backward has run on `dout`.
    idx : ndarray of int, shape (1, T)
        One sequence.
    dout : ndarray, shape (1, T, C)
        The upstream gradient.
    character : str
        One of `chars`.

    Returns
    -------
    Heatmap
        The row of E stands first, divided by 0.02 to fit on one scale.
    """
    row = stoi[character]
    places = np.flatnonzero(idx[0] == row)
    return Heatmap(
        f"{character!r}, uses in the batch: {len(places)}",
        np.vstack([layer.E[row] / 0.02, dout[0, places], layer.dE[row]]),
        "row",
        ["E / 0.02", *(f"dout[0, {t}]" for t in places), "dE"],
        mark_zeros=True,
    )


def explore_batch():
    """Show dE and dP under a slider for B and one for T."""
    _show(batch_box)


def explore_character():
    """Show what a character's row of dE collects, under a slider."""
    _show(character_box)


def batch_box(widgets):
    """Build what `explore_batch` shows.

    Parameters
    ----------
    widgets : module
        ipywidgets.

    Returns
    -------
    ipywidgets.VBox
        The sliders, the picture and its facts.
    """
    layer = EmbeddingLayer(vocab_size, block_size=32, C=16)

    def draw(B, T):
        return heatmaps_png(*batch_heatmaps(layer, B, T), label="gradient")

    B = widgets.IntSlider(3, min=1, max=8, description="B, batch")
    T = widgets.IntSlider(8, min=1, max=32, description="T, length")
    return _box(widgets, draw, B=B, T=T)


def character_box(widgets):
    """Build what `explore_character` shows; as `batch_box`."""
    layer = EmbeddingLayer(vocab_size, block_size=32, C=16)
    idx = data[:16].reshape(1, 16)
    out = layer.forward(idx)
    dout = np.random.RandomState(42).randn(*out.shape)
    layer.backward(dout)

    def draw(character):
        heatmap = character_heatmap(layer, idx, dout, character)
        return heatmaps_png(heatmap, label="value", height=2.6)

    character = widgets.SelectionSlider(
        options=[(repr(c), c) for c in chars],
        value="p",
        description="character",
    )
    return _box(widgets, draw, character=character)


def _box(widgets, draw, **sliders):
    """Put sliders over the picture that `draw` makes of their values."""
    picture = widgets.Image(format="png", width=100 * WIDTH)  # as it is
    facts = widgets.HTML()

    def redraw(_=None):
        values = {name: slider.value for name, slider in sliders.items()}
        picture.value, alt = draw(**values)
        facts.value = "<br>".join(alt.splitlines())

    for slider in sliders.values():
        slider.observe(redraw, names="value")
    redraw()
    return widgets.VBox([*sliders.values(), picture, facts])


def _show(build):
    try:
        import ipywidgets
    except ImportError:
        print(
            "The sliders need ipywidgets: `pip install ipywidgets`, then "
            "restart the kernel. The figure above shows one setting."
        )
        return
    print("Run this cell to get the sliders, also in a reopened notebook.")
    # The usual text of a widget, its repr, would help no reader.
    display(
        {
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": build(ipywidgets).model_id,
            },
            "text/plain": "(sliders)",
        },
        raw=True,
    )
