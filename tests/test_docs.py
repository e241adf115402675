"""What is written is true: README and docstrings run, and fit the signatures."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import customop as co

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS


def modules() -> list[Any]:
    """Return the modules of the package; those of the mypy plugin import mypy."""
    names = [m.name for m in pkgutil.walk_packages(co.__path__, "customop.", print)]
    of_mypy = [pytest.mark.exhaustive]
    return ["customop"] + [
        pytest.param(name, marks=of_mypy * name.startswith("customop.mypy"))
        for name in names
    ]


def run_doctest(test: doctest.DocTest) -> list[str]:
    """Run one doctest; return the report of each failure."""
    said: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(
        test, out=said.append, clear_globs=False
    )
    return said


# ---- README.md ----


def test_readme_code_runs() -> None:
    """All Python of README.md runs from top to bottom, and prints what it shows."""
    names: dict[str, Any] = {}
    for language, text in BLOCKS:
        line = README[: README.index(text)].count("\n")
        if language == "python":
            code = compile("\n" * line + text, "README.md", "exec")
            exec(code, names)
        if language == "pycon":
            parser = doctest.DocTestParser()
            test = parser.get_doctest(text, names, "README.md", "README.md", line)
            assert run_doctest(test) == []
            names = test.globs


def test_readme_languages() -> None:
    """Every block of README.md is run, or is what mypy reads and says."""
    assert {language for language, _ in BLOCKS} == {
        *("sh", "python", "pycon"),
        *("ini", "py", "text"),
    }


@pytest.mark.exhaustive
def test_readme_mistakes_are_found(tmp_path: Path) -> None:
    """The mistakes in README.md are found by mypy, so configured, in these words."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    blocks = dict(BLOCKS)
    (tmp_path / "mypy.ini").write_text(blocks["ini"], encoding="utf-8")
    (tmp_path / "gauss.py").write_text(blocks["py"], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "gauss.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == blocks["text"], done.stderr


def test_readme_commands_are_those_of_the_gate() -> None:
    """The commands that README.md gives first are run by .ci/run, as they stand."""
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = next(text for language, text in BLOCKS if language == "sh")
    run = re.findall(r'^command_of_readme "(.*)"$', gate, re.MULTILINE)
    assert commands.splitlines() == run
    assert run == [
        "pip install -e . && python examples/01_first_operator.py",
        "pip install -e '.[test]' && python -m pytest",
    ]


def test_readme_names_exist() -> None:
    """Every `co.name` in README.md is a public name, or the public module."""
    used = set(re.findall(r"\bco\.(\w+)", README))
    assert used - {*co.__all__, "testing"} == set()


# ---- docstrings that run ----


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name: str) -> None:
    """Examples in the docstrings of a module give what they show."""
    module = importlib.import_module(name)
    failures = [
        "".join(said)
        for test in doctest.DocTestFinder().find(module)
        if (said := run_doctest(test))
    ]
    assert failures == []
