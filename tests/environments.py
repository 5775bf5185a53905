"""Say which printed line, if any, another environment would change.

``python tests/environments.py`` builds the oldest and the newest supported
set in throw-away environments, runs the tests there and every notebook, and
prints each line that differs from the saved one. Give the interpreters if
they are not on the path: ``oldest=/path/to/python newest=/path/to/python``.

``python tests/environments.py here`` runs the notebooks in this environment
under other BLAS kernels, thread counts, SIMD targets, locales, time zones,
hash seeds, working directories, and with ``-O``.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The package's own lower bounds, and what pip thinks newest.
SETS = {
    "oldest": (
        ["python3.11"],
        # pyparsing as old as matplotlib: a newer one warns about it.
        ["numpy==2.0.*", "matplotlib==3.9.*", "pyparsing==3.1.*"],
    ),
    "newest": (
        ["python3.14", "python3.13", "python3.12", "python3.11"],
        ["numpy", "matplotlib"],
    ),
}
TOOLS = [
    "ipykernel",
    "ipywidgets",
    "nbclient",
    "nbval",
    "pytest",
    "hypothesis",
]
VARIATIONS = {
    "as it is": {},
    "OpenBLAS kernel Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "OpenBLAS kernel Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
    "one thread": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    "two threads": {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    "no optional SIMD": {"NPY_DISABLE_CPU_FEATURES": None},  # filled in below
    "Turkish locale, Tokyo time": {
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "Asia/Tokyo",
    },
    "hash seed 1": {"PYTHONHASHSEED": "1"},
    "python -O": {"PYTHONOPTIMIZE": "1"},
}


def differing_lines():
    """Run each notebook here; compare what it prints with what is saved.

    Returns
    -------
    count : int
        How many lines were compared.
    found : list of str
        Notebook, cell and both lines, where they differ.
    """
    import nbformat
    from nbclient import NotebookClient
    from refresh import canonical

    count, found = 0, []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        saved = nbformat.read(path, as_version=4)
        now = nbformat.read(path, as_version=4)
        NotebookClient(
            now, kernel_name="python3", coalesce_streams=True
        ).execute()
        canonical(now)
        for old, new in zip(saved.cells, now.cells, strict=True):
            for was, is_ in zip_longest(lines(old), lines(new)):
                count += 1
                if was != is_:
                    found.append(f"{path.stem}, {old.id}: {was!r} -> {is_!r}")
    return count, found


def lines(cell):
    """Return all lines of text that a cell shows."""
    outputs = cell.get("outputs", [])
    texts = [o.get("text") or o["data"]["text/plain"] for o in outputs]
    return "\n".join(texts).splitlines()


def simd_names(python):
    """Return the optional SIMD targets that this NumPy found."""
    code = (
        "import numpy._core._multiarray_umath as m;"
        "print(*(f for f in m.__cpu_dispatch__ if m.__cpu_features__[f]))"
    )
    run = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return run.stdout.strip()


def build(folder, python, packages):
    """Make an environment for the package; return its interpreter."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    ours = str(Path(folder) / "bin" / "python")
    install = [ours, "-m", "pip", "install", "--quiet", *packages, *TOOLS]
    subprocess.run([*install, "-e", str(ROOT)], check=True)
    return ours


def compare(python, title, env, cwd):
    """Run the notebooks with one interpreter; print what differs."""
    run = subprocess.run(
        [python, __file__, "compare"],
        env=os.environ | env,
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    if run.returncode:
        print(f"{title}: did not run: {run.stderr.strip().splitlines()[-1]}")
        return
    count, *found = run.stdout.splitlines()
    print(f"{title}: {len(found)} of {count} lines differ")
    print(*(f"  {line}\n" for line in found), sep="", end="", flush=True)


def run_set(name, python, packages):
    """Build one set, run the tests and the notebooks in it."""
    with tempfile.TemporaryDirectory() as folder:
        ours = build(folder, python, packages)
        code = (
            "import sys, numpy, matplotlib as m;"
            "print(sys.version.split()[0], numpy.__version__, m.__version__)"
        )
        used = subprocess.check_output([ours, "-c", code], text=True).split()
        print("{}: Python {}, NumPy {}, matplotlib {}".format(name, *used))
        tests = [ours, "-m", "pytest", "-q", "tests", "lantern_embed"]
        run = subprocess.run(tests, cwd=ROOT, capture_output=True, text=True)
        print(f"tests: {run.stdout.strip().splitlines()[-1]}")
        compare(ours, "notebooks", {}, folder)


def main(arguments):
    """Do what the arguments ask; see the top of the file."""
    if arguments == ["compare"]:
        count, found = differing_lines()
        print(count, *found, sep="\n")
    elif arguments == ["here"]:
        for title, env in VARIATIONS.items():
            if "NPY_DISABLE_CPU_FEATURES" in env:
                env = {"NPY_DISABLE_CPU_FEATURES": simd_names(sys.executable)}
            compare(sys.executable, title, env, "/")
    else:
        given = dict(argument.split("=") for argument in arguments)
        for name, (candidates, packages) in SETS.items():
            found = filter(None, map(shutil.which, candidates))
            run_set(name, given.get(name) or next(found), packages)


if __name__ == "__main__":
    main(sys.argv[1:])
