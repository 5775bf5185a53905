import ast
import graphlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lantern_embed

ROOM = Path(lantern_embed.__file__).parent
MODULES = sorted(ROOM.glob("*.py"))  # the layer; lesson/ is the other room
PUBLIC = {
    "CORPUS",
    "chars",
    "vocab_size",
    "stoi",
    "itos",
    "data",
    "encode",
    "decode",
    "EmbeddingLayer",
    "scatter_add",
    "scalar_loss",
    "rel_err",
    "numeric_grad",
    "check_gradients",
    "softmax",
    "self_attention",
}


def run(*arguments, cwd, **variables):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_every_public_name_is_there_and_listed():
    assert set(lantern_embed.__all__) >= PUBLIC
    for name in lantern_embed.__all__:
        assert hasattr(lantern_embed, name), name


def test_the_list_of_public_names_is_sorted_and_without_repeats():
    assert lantern_embed.__all__ == sorted(set(lantern_embed.__all__))


def test_every_public_function_says_what_it_does():
    for name in lantern_embed.__all__:
        value = getattr(lantern_embed, name)
        if callable(value):
            assert value.__doc__, name


def test_importing_the_package_loads_nothing_that_only_a_lesson_needs(
    tmp_path,
):
    code = "import lantern_embed, sys; print(*sys.modules)"
    loaded = set(run("-I", "-c", code, cwd=tmp_path).split())
    heavy = {"matplotlib", "IPython", "ipywidgets", "lantern_embed.lesson"}
    assert "lantern_embed.layer" in loaded
    assert not loaded & heavy


def imports(module):
    """The names that a module imports, siblings with a leading dot."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is None:
            yield from ("." + alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + node.module


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_the_layer_imports_numpy_and_its_siblings_only(module):
    siblings = {"." + path.stem for path in MODULES}
    for name in imports(module):
        top = name.split(".")[0]
        assert (
            name in siblings
            or top == "numpy"
            or top in sys.stdlib_module_names
        ), name


def test_modules_import_each_other_in_one_direction():
    graph = {"." + path.stem: set(imports(path)) for path in MODULES}
    graphlib.TopologicalSorter(graph).prepare()  # raises on a cycle


ERROR_LINES = """\
max rel err  dE: 2.4590216652835383e-10
max rel err  dP: 4.654007604730881e-11
"""
PRINT_ERROR_LINES = """
import numpy as np
from lantern_embed import EmbeddingLayer, data, numeric_grad, rel_err
layer, idx = EmbeddingLayer(24, 32, 8), data[:10].reshape(2, 5)
G = np.random.default_rng(0).standard_normal((2, 5, 8))
layer.forward(idx)
layer.backward(G)
for name, table, grad in ("dE", layer.E, layer.dE), ("dP", layer.P, layer.dP):
    error = rel_err(grad, numeric_grad(layer, idx, table, G))
    print(f"max rel err  {name}: {error}")
"""


def simd_targets():
    """What this NumPy would choose among on this CPU."""
    umath = np._core._multiarray_umath
    return [f for f in umath.__cpu_dispatch__ if umath.__cpu_features__.get(f)]


@pytest.mark.parametrize(
    ("flags", "variables"),
    [
        pytest.param([], {}, id="as it is"),
        pytest.param(
            ["-W", "error"],  # NumPy warns of a target that it does not know
            {"NPY_DISABLE_CPU_FEATURES": " ".join(simd_targets())},
            id="no SIMD beyond the baseline",
        ),
        *(
            pytest.param(
                ["-W", "error"],
                {"NPY_DISABLE_CPU_FEATURES": target},
                id=f"no {target}",
            )
            for target in simd_targets()[-1:]
        ),
        pytest.param([], {"OMP_NUM_THREADS": "1"}, id="1 thread"),
        pytest.param([], {"OMP_NUM_THREADS": "2"}, id="2 threads"),
        pytest.param([], {"OPENBLAS_CORETYPE": "Haswell"}, id="Haswell"),
        pytest.param([], {"OPENBLAS_CORETYPE": "Prescott"}, id="Prescott"),
        pytest.param([], {"PYTHONHASHSEED": "1"}, id="hash seed"),
        pytest.param(["-O"], {}, id="-O"),
        pytest.param(["-OO"], {}, id="-OO"),
        pytest.param(
            [], {"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Tokyo"}, id="elsewhere"
        ),
        pytest.param(["-X", "utf8=0"], {"LC_ALL": "C"}, id="plain C locale"),
    ],
)
def test_the_two_error_lines_do_not_depend_on_the_machine(
    flags, variables, tmp_path
):
    # Always from another directory: the package must be an installed one.
    out = run(*flags, "-c", PRINT_ERROR_LINES, cwd=tmp_path, **variables)
    assert out == ERROR_LINES
