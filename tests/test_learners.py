"""What learners do to notebooks: it works, or a sentence says what to do."""

import functools
import io
import re
import socket
from contextlib import redirect_stdout
from pathlib import Path

import nbformat
import pytest

from lantern_embed.lesson import explore, figures

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
STAGES = ["1_class", "2_forward", "3_backward", "4_verify"]


def code_cells(stage):
    notebook = nbformat.read(NOTEBOOKS / f"{stage}.ipynb", as_version=4)
    return {c.id: c.source for c in notebook.cells if c.cell_type == "code"}


EXERCISES = [
    (stage, cell.removeprefix("stub-"))
    for stage in STAGES
    for cell in code_cells(stage)
    if cell.startswith("stub-")
]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    # nbval looks at the pictures; here they would only cost time.
    def nothing(*args, **options):
        pass

    monkeypatch.setattr(figures, "show_heatmaps", nothing)
    monkeypatch.setattr(figures, "show_curves", nothing)
    monkeypatch.setattr(explore, "explore_batch", nothing)
    monkeypatch.setattr(explore, "explore_character", nothing)


def run(cells):
    """Run cells in order, in one namespace; return what each printed."""
    names, printed = {}, {}
    for cell, source in cells.items():
        with redirect_stdout(io.StringIO()) as out:
            exec(compile(source, cell, "exec"), names)
        printed[cell] = out.getvalue()
    return printed


@functools.cache
def printed_untouched(stage):
    return run(code_cells(stage))


def written_by_a_learner(cells, exercise):
    """Put the solution into the stub, under the learner's name for it."""
    stub, solution = cells[f"stub-{exercise}"], cells[f"solution-{exercise}"]
    name = re.search(r"^(?:class |def )?(\w+)", stub, re.M)[1]
    theirs = re.search(rf"\b{name}_?[Ss]olution\b", solution)[0]
    return cells | {f"stub-{exercise}": f"{solution}\n{name} = {theirs}\n"}


def test_there_are_seven_exercises():
    assert len(EXERCISES) == 7


@pytest.mark.parametrize(("stage", "exercise"), EXERCISES)
def test_a_solved_stub_changes_its_check_and_nothing_else(stage, exercise):
    cells, untouched = code_cells(stage), printed_untouched(stage)
    solved = run(written_by_a_learner(cells, exercise))
    check = f"check-{exercise}"
    assert untouched[check].startswith("not written yet: ")
    assert solved[check].startswith("correct: ")
    for cell in set(cells) - {check, f"stub-{exercise}"}:
        assert solved[cell] == untouched[cell]


@pytest.mark.parametrize("stage", STAGES)
def test_every_cell_may_run_twice(stage):
    cells = code_cells(stage)
    printed = run({f"{c} {n}": s for c, s in cells.items() for n in "12"})
    once = printed_untouched(stage)
    # All but training: to train again is to train further.
    for cell in set(cells) - {"train"}:
        assert printed[f"{cell} 1"] == printed[f"{cell} 2"] == once[cell]


@pytest.mark.parametrize("stage", STAGES)
def test_a_lesson_needs_no_network(stage, monkeypatch):
    def refuse(*args):
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    run(code_cells(stage))


@pytest.mark.parametrize("stage", STAGES)
def test_a_lesson_writes_no_file(stage, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run(code_cells(stage))
    assert list(tmp_path.iterdir()) == []


def test_a_removed_solution_is_not_missed():
    # The student edition is the lesson without its solutions.
    for stage in STAGES:
        cells = code_cells(stage)
        run({c: s for c, s in cells.items() if not c.startswith("solution-")})
