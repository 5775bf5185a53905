"""The sliders redraw, speak for themselves, and can be done without."""

import sys

import ipywidgets
import pytest

from lantern_embed.lesson import explore

PNG = b"\x89PNG"


@pytest.mark.parametrize("box", [explore.batch_box, explore.character_box])
def test_the_picture_stands_there_before_a_slider_is_moved(box):
    *sliders, picture, facts = box(ipywidgets).children
    assert bytes(picture.value).startswith(PNG)
    assert facts.value.startswith("heatmap: ")
    labels = [slider.description for slider in sliders]
    assert labels in (["B, batch", "T, length"], ["character"])


def test_T_decides_which_rows_of_dP_are_zero():
    _, T, picture, facts = explore.batch_box(ipywidgets).children
    before = picture.value
    T.value = 5
    assert "zero rows: 5..31" in facts.value
    T.value = 32
    assert facts.value.count("zero rows: none") == 1
    assert picture.value != before


def test_a_larger_B_uses_more_rows_of_dE():
    B, _, _, facts = explore.batch_box(ipywidgets).children
    B.value = 1
    few = facts.value.splitlines()[0]
    B.value = 8
    assert len(facts.value) < len(few)  # fewer zero rows to name


def test_every_setting_of_the_sliders_can_be_drawn():
    B, T, _, _ = explore.batch_box(ipywidgets).children
    assert (B.min, B.max, T.min, T.max) == (1, 8, 1, 32)
    B.value, T.value = B.max, T.max
    B.value, T.value = B.min, T.min


def test_a_character_shows_its_slices_and_their_sum():
    slider, _, facts = explore.character_box(ipywidgets).children
    slider.value = "e"
    assert "'e', uses in the batch: 4; 6 rows" in facts.value
    slider.value = "y"
    assert "'y', uses in the batch: 0; 2 rows" in facts.value
    assert "zero rows: dE" in facts.value


def test_without_ipywidgets_a_sentence_says_what_to_install(
    monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    explore.explore_batch()
    explore.explore_character()
    said = capsys.readouterr().out
    assert said.count("pip install ipywidgets") == 2
