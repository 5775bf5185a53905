"""What holds for the notebooks as files; nbval holds what they print."""

import base64
import hashlib
import inspect
import io
import re
import textwrap
import tomllib
from contextlib import redirect_stdout
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import matplotlib.image
import nbformat
import numpy as np
import pytest
from refresh import PICTURE, canonical, picture

from lantern_embed import EmbeddingLayer
from lantern_embed.lesson import explore, figures
from lantern_embed.lesson.source import _without_docstring
from lantern_embed.scatter import scatter_add_flat

ROOT = Path(__file__).resolve().parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EXPECTED = Path(__file__).parent / "expected"

with open(ROOT / "pyproject.toml", "rb") as _file:
    _pins = tomllib.load(_file)["project"]["optional-dependencies"]["test"]
TESTED_WITH = dict(p.split("==") for p in _pins)["matplotlib"]

# Numbers in prose that no output of the notebook shows, and why they may
# stand there all the same.
SETTINGS = {
    "1_class": {
        "20": "minutes",
        "50257": "GPT-2's vocabulary, in a question",
        "1024": "GPT-2's block_size, in a question",
        "768": "GPT-2's C, in a question",
        "4": "the number of stages",
    },
    "2_forward": {
        "25": "minutes",
        "4": "the number of stages",
        "10000": "the constant of the published formula",
    },
    "3_backward": {"40": "minutes", "0.02": "the scale at the start"},
    "4_verify": {"35": "minutes"},
}


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [c for c in notebook.cells if c.cell_type == "code"]


def prose(notebook):
    cells = [c for c in notebook.cells if c.cell_type == "markdown"]
    return "\n\n".join(c.source for c in cells)


def outputs(notebook):
    return [o for c in code_cells(notebook) for o in c.outputs]


def text_of(output):
    return output.get("text", "") + output.get("data", {}).get(
        "text/plain", ""
    )


def printed(notebook):
    return "\n".join(map(text_of, outputs(notebook)))


def test_there_are_four_stages():
    stages = ["1_class", "2_forward", "3_backward", "4_verify"]
    assert [path.stem for path in PATHS] == stages


def test_the_lines_that_never_change_stand_in_the_output(path, notebook):
    wanted = (EXPECTED / f"{path.stem}.txt").read_text().splitlines()
    lines = printed(notebook).splitlines()
    assert [line for line in wanted if line not in lines] == []


def test_the_contract_itself_is_what_the_course_fixed():
    lines = b"".join(p.read_bytes() for p in sorted(EXPECTED.glob("*.txt")))
    assert len(lines.splitlines()) == 16
    digest = hashlib.sha256(lines).hexdigest()
    assert digest.startswith("ea3dedb19f22ded5")


def test_every_cell_was_run_in_order(notebook):
    # nbval does not compare a cell whose count is missing.
    counts = [c.execution_count for c in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))


def test_every_cell_that_prints_has_its_output(notebook):
    speaks = re.compile(
        r"^ *(print|show_\w+|check_(?!gradients)\w+|explore_\w+)\(", re.M
    )
    silent = [
        c.id
        for c in code_cells(notebook)
        if speaks.search(c.source) and not c.outputs
    ]
    assert silent == []


def test_no_picture_without_its_fingerprint(notebook):
    for output in outputs(notebook):
        if "image/png" in output.get("data", {}):
            text, about = output.data["text/plain"], output.metadata
            alt, last = text.rsplit("\n", 1)
            assert re.fullmatch("fingerprint: [0-9a-f]{12}", last)
            assert about["image/png"]["alt"] == alt


def test_outputs_are_of_kinds_that_are_compared(notebook):
    # nbval skips pictures and unknown kinds; the next test has the pictures.
    kinds = {kind for o in outputs(notebook) for kind in o.get("data", {})}
    assert kinds <= {"text/plain", "text/markdown", "image/png"}


@pytest.mark.skipif(
    matplotlib.__version__ != TESTED_WITH,
    reason="pixels are compared where the saved ones were drawn",
)
def test_the_saved_pictures_are_the_ones_that_are_drawn(notebook, monkeypatch):
    drawn, saved = [], []
    monkeypatch.setattr(
        figures, "display", lambda data, metadata, raw: drawn.append(data)
    )
    monkeypatch.setattr(explore, "explore_batch", lambda: None)
    monkeypatch.setattr(explore, "explore_character", lambda: None)
    names = {}
    with redirect_stdout(io.StringIO()):
        for cell in code_cells(notebook):
            exec(compile(cell.source, cell.id, "exec"), names)
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    saved.append((cell.id, output.data["image/png"]))
    assert len(saved) == len(drawn)
    changed = [
        cell_id
        for (cell_id, old), new in zip(saved, drawn, strict=True)
        if not np.array_equal(pixels(old), pixels(new["image/png"]))
    ]
    assert changed == []  # ids of the cells whose picture is another now


def pixels(png):
    return matplotlib.image.imread(io.BytesIO(base64.b64decode(png)))


def test_no_output_depends_on_the_run(notebook):
    # Addresses, paths, kernels' file names, clocks, warnings.
    volatile = re.compile(
        r"0x[0-9a-f]{6,}|(?<![\w.])(/\w+){2,}|[A-Z]:\\|ipykernel"
        r"|\d\d:\d\d|\d ?(ms|µs|seconds)\b|Warning"
    )
    for output in outputs(notebook):
        assert output.output_type != "error"
        assert output.get("name") != "stderr"
        assert not volatile.search(text_of(output))


def test_nothing_tells_nbval_to_look_away(notebook):
    markers = re.compile("nbval_|nbval-|pytest_validate", re.IGNORECASE)
    for cell in notebook.cells:
        assert not markers.search(cell.source)
        assert set(cell.metadata.get("tags", [])) <= {"exercise", "solution"}


def test_cell_ids_are_unique_and_say_something(notebook):
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert not [i for i in ids if re.fullmatch(r"[0-9a-f]{8}", i)]


def test_the_file_is_in_canonical_form(path, notebook):
    nbformat.validate(notebook)
    before = nbformat.writes(notebook)
    canonical(notebook)
    assert nbformat.writes(notebook) == before
    assert path.read_text(encoding="utf-8") == before + "\n"


def test_every_cell_has_a_slide_type(notebook):
    allowed = {"slide", "subslide", "fragment", "skip", "notes", "-"}
    types = [c.metadata["slideshow"]["slide_type"] for c in notebook.cells]
    assert set(types) <= allowed


def test_headings_go_down_one_level_at_a_time(notebook):
    # One way of writing headings, so that none escapes.
    assert not re.search(r"^(=+|--)$|<h\d", prose(notebook), re.M)
    levels = [len(m) for m in re.findall(r"^(#+) ", prose(notebook), re.M)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_the_frame_is_the_same_everywhere(notebook):
    headings = re.findall(r"^## (.*)$", prose(notebook), re.M)
    frame = ["What you'll do", "What you'll learn", "What you'll need"]
    assert headings[:3] == frame
    assert headings[-2:] == ["Recap", "On your own"]
    assert len(re.findall(r"^---$", prose(notebook), re.M)) == 2


def test_the_last_line_leads_back_and_on(path, notebook):
    stages = [p.name for p in PATHS]
    here = stages.index(path.name)
    around = [*stages[max(here - 1, 0) : here], *stages[here + 1 : here + 2]]
    if here == len(stages) - 1:
        around.append(stages[0])
    last_paragraph = notebook.cells[-1].source.split("\n\n")[-1]
    assert re.findall(r"\]\((.*?)\)", last_paragraph) == around
    assert f"stage {here + 1} of {len(stages)}" in notebook.cells[0].source


def test_no_other_link_leads_nowhere(path, notebook):
    for target in re.findall(r"\]\((.*?)\)", prose(notebook)):
        assert (path.parent / target).exists()


def test_all_imports_stand_in_the_first_code_cell(notebook):
    first, *others = code_cells(notebook)
    assert first.source.startswith("import")
    statement = re.compile(r"^\s*(import|from \S+ import)\b", re.M)
    assert not [c.id for c in others if statement.search(c.source)]
    assert not re.search(r"import \*|sys\.path", first.source)


def test_code_fits_a_projector(notebook):
    lines = [ln for c in code_cells(notebook) for ln in c.source.splitlines()]
    assert max(map(len, lines)) <= 79
    assert not [ln for ln in lines if ln.startswith(("%", "!"))]


def test_every_code_cell_follows_a_sentence(notebook):
    # Except the check below a stub and the sliders below a still figure.
    for before, cell in pairwise(notebook.cells):
        if cell.cell_type == before.cell_type == "code":
            tags = before.metadata.get("tags", [])
            assert "exercise" in tags or cell.source.startswith("explore_")


def test_shown_source_is_the_packaged_source(notebook):
    known = {f.__name__: f for f in (EmbeddingLayer, scatter_add_flat)}
    for cell in code_cells(notebook):
        for name in re.findall(r"show_source\(([\w.]+)\)", cell.source):
            shown = attrgetter(name)(SimpleNamespace(**known))
            source = textwrap.dedent(inspect.getsource(shown))
            (output,) = cell.outputs
            assert output.data["text/plain"] == _without_docstring(source)


def test_a_measured_number_in_prose_is_printed_by_the_notebook(path, notebook):
    number = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w]|\.\d)")
    text = re.sub(r"\$.*?\$|\]\(.*?\)", "", prose(notebook), flags=re.S)
    shown = set(number.findall(printed(notebook)))
    allowed = SETTINGS.get(path.stem, {})
    measured = set(number.findall(text)) - set(allowed)
    assert sorted(measured - shown) == []
    # No entry of the list outlives its reason.
    assert sorted(set(allowed) & shown) == []


def test_each_exercise_has_stub_check_hints_and_folded_solution(notebook):
    cells = {cell.id: cell for cell in notebook.cells}
    names = [i.removeprefix("stub-") for i in cells if i.startswith("stub-")]
    assert names
    for name in names:
        assert "exercise" in cells[f"stub-{name}"].metadata["tags"]
        check = cells[f"check-{name}"]
        assert "not written yet" in text_of(check.outputs[0])
        assert 1 <= cells[f"hints-{name}"].source.count("<details>") <= 2
        solution = cells[f"solution-{name}"]
        assert "correct:" in text_of(solution.outputs[0])
        # The solution faces the very check that the learner faces.
        function = check.source.split("(")[0]
        assert f"{function}(" in solution.source


def test_solutions_are_tagged_and_folded(notebook):
    for cell in notebook.cells:
        is_solution = cell.id.startswith("solution-")
        assert ("solution" in cell.metadata.get("tags", [])) == is_solution
        # Its output would tell, and so would its first line.
        hidden = {"source_hidden": True, "outputs_hidden": True}
        if is_solution and cell.cell_type == "code":
            assert cell.metadata["jupyter"] == hidden
            assert cell.source.startswith("# One solution.")
        else:
            assert "jupyter" not in cell.metadata


def test_readme_shows_the_heatmap_of_the_first_stage():
    first = nbformat.read(PATHS[0], as_version=4)
    assert PICTURE.read_bytes() == picture(first)
