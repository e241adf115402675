"""What is written is true: README and docstrings run, and fit the signatures."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest

import customop as co

# numpydoc brings Sphinx, which warns of its own dependencies' deprecations.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from numpydoc.docscrape import FunctionDoc, NumpyDocString

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS


def modules() -> list[str]:
    """Return the names of all modules of the package."""
    found = pkgutil.walk_packages(co.__path__, "customop.")
    return ["customop", *(module.name for module in found)]


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


# ---- docstrings that fit ----


# Names that stand for a value: what they mean is said beside their definition.
VALUES = {"ArrayT", "DType", "Device", "Scalar", "config", "native", "ops"}


def public() -> dict[str, Any]:
    """Return public functions and classes, and public methods of those classes."""
    found: dict[str, Any] = {}
    for name in co.__all__:
        value = getattr(co, name)
        if name in VALUES:
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            found[name] = value
        if inspect.isclass(value):
            methods = vars(value).items()
            found |= {
                f"{name}.{method}": fn
                for method, fn in methods
                if inspect.isfunction(fn) and not method.startswith("_")
            }
    return found


PUBLIC = public()
# Methods that stand for a NumPy function say so in one line.
SHORT = {
    name
    for name, value in PUBLIC.items()
    if "." in name and len((value.__doc__ or "").strip().splitlines()) == 1
}
FULL = {
    name: value
    for name, value in PUBLIC.items()
    if inspect.isfunction(value) and name not in SHORT
}


def parameters_of(fn: Any) -> list[str]:
    """Return the parameters that the docstring of a function has to explain."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    signature = inspect.signature(fn).parameters.values()
    return [stars.get(p.kind, "") + p.name for p in signature if p.name != "self"]


def documented(docstring: NumpyDocString) -> list[str]:
    """Return the parameters that a docstring explains, one by one."""
    return [
        name.strip() for row in docstring["Parameters"] for name in row.name.split(",")
    ]


def raises_by_itself(fn: Any) -> bool:
    """Whether a `raise` stands in the body of a function."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


def test_every_name_is_explained() -> None:
    """Every public name is a value, or a function or class that PUBLIC holds."""
    assert {name for name in co.__all__ if name not in PUBLIC} == VALUES


@pytest.mark.parametrize("name", PUBLIC)
def test_summary(name: str) -> None:
    """A public name has a docstring whose first line is a sentence, on one line."""
    first, _, rest = (inspect.getdoc(PUBLIC[name]) or "").partition("\n")
    assert first.endswith((".", ":")), first
    assert not rest.partition("\n")[0], "the first line goes on"


@pytest.mark.parametrize("name", FULL)
def test_parameters_are_those_of_the_signature(name: str) -> None:
    """The section Parameters names the parameters, in their order."""
    assert documented(FunctionDoc(FULL[name])) == parameters_of(FULL[name])


@pytest.mark.parametrize("name", FULL)
def test_raises_is_there(name: str) -> None:
    """A function that raises says what and when."""
    needs = raises_by_itself(FULL[name])
    assert bool(FunctionDoc(FULL[name])["Raises"]) or not needs


@pytest.mark.parametrize("name", FULL)
def test_returns_is_there(name: str) -> None:
    """A function that gives something says what."""
    gives = inspect.signature(FULL[name]).return_annotation not in ("None", "NoReturn")
    assert bool(FunctionDoc(FULL[name])["Returns"]) is gives


CLASSES = {
    name: value
    for name, value in PUBLIC.items()
    if inspect.isclass(value)
    and "__init__" in vars(value)
    and "Parameters" in value.__doc__
}


@pytest.mark.parametrize("name", CLASSES)
def test_parameters_of_a_class(name: str) -> None:
    """A class that explains parameters explains all of them."""
    found = NumpyDocString(inspect.getdoc(CLASSES[name]) or "")
    assert documented(found) == parameters_of(CLASSES[name].__init__)
