"""pyproject.toml, environment.yml, README and .ci/run tell one story."""

import re
import tomllib
from pathlib import Path

import lantern_embed

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "project"
]
EXTRAS = PROJECT["optional-dependencies"]


def conda_pins():
    """Read the pip part of environment.yml, a plain list of name==version."""
    lines = (ROOT / "environment.yml").read_text("utf-8").splitlines()
    start = lines.index("  - pip:")
    items = [line.strip().removeprefix("- ") for line in lines[start + 1 :]]
    assert items[-1] == "-e ."
    return dict(item.split("==") for item in items[:-1])


def test_conda_gets_the_versions_that_the_tests_ran_with():
    tested = dict(pin.split("==") for pin in EXTRAS["test"])
    pins = conda_pins()
    assert tested.items() <= pins.items()


def test_conda_gets_what_the_lab_needs_within_its_range():
    pins = conda_pins()
    for requirement in EXTRAS["lab"]:
        name, low, high = re.fullmatch(
            r"([\w-]+)>=([\d.]+),<(\d+)", requirement
        ).groups()
        version = [int(n) for n in pins[name].split(".")]
        assert [int(n) for n in low.split(".")] <= version < [int(high)]


def test_conda_gets_nothing_else():
    names = {
        re.split("[=<>]", r)[0] for e in ("lab", "test") for r in EXTRAS[e]
    }
    assert set(conda_pins()) == names


def test_conda_gets_a_supported_python():
    text = (ROOT / "environment.yml").read_text("utf-8")
    minor = int(re.search(r"- python=3\.(\d+)$", text, re.M)[1])
    assert minor >= 11


def test_pytest_alone_is_strict_and_runs_everything():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    settings = settings["tool"]["pytest"]["ini_options"]
    assert "--nbval" in settings["addopts"]
    assert not [o for o in settings["addopts"] if "lax" in o or "saniti" in o]
    assert settings["testpaths"] == ["tests", "lantern_embed", "notebooks"]
    assert settings["filterwarnings"][0] == "error"


def test_ci_runs_the_test_command_of_readme():
    readme = (ROOT / "README.md").read_text("utf-8")
    block = readme.split("<!-- test command -->\n```sh\n")[1]
    assert block.splitlines()[0].split(" && ") == [
        "python3 -m venv .venv",
        '.venv/bin/pip install -e ".[test]"',
        ".venv/bin/pytest",
    ]
    assert "test command" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_readme_links_lead_somewhere():
    readme = (ROOT / "README.md").read_text("utf-8")
    for target in re.findall(r"\]\((?!http)(.*?)\)", readme):
        assert (ROOT / target).exists()


def test_the_library_asks_only_for_ranges():
    assert PROJECT["dependencies"] == ["numpy>=2.0,<3", "matplotlib>=3.9"]
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_version_is_said_once_more_and_the_same():
    assert lantern_embed.__version__ == PROJECT["version"]


def test_readme_counts_the_lines_of_the_layer():
    counted = sum(
        len(path.read_text("utf-8").splitlines())
        for path in (ROOT / "lantern_embed").glob("*.py")
    )
    assert f"{counted:,} lines" in (ROOT / "README.md").read_text("utf-8")


def test_no_file_names_an_index_or_a_download():
    for path in ROOT.glob("*"):
        if path.is_file() and not path.name.startswith(".git"):
            text = path.read_text("utf-8")
            assert not re.search(
                r"/simple\b|\.whl|files\.python|index-url", text
            )
