"""Docstrings of public names have the sections and parameters of their signatures."""

from __future__ import annotations

import ast
import inspect
import textwrap
import warnings
from typing import Any

import pytest

import customop as co

pytest.importorskip("numpydoc", reason="numpydoc is in the extra 'dev'")
# numpydoc imports Sphinx, which causes deprecation warnings.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from numpydoc.docscrape import FunctionDoc, NumpyDocString

pytestmark = pytest.mark.exhaustive

# Names of values, which are documented where they are defined.
VALUES = {
    "ArrayT",
    "DType",
    "Device",
    "Scalar",
    "config",
    "native",
    "ops",
    "sizes",
    "tree",
    "is_view",
    "write_back",
}


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
# Methods that call a NumPy function have one line.
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
    """Whether the body of a function contains a `raise`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


def test_every_name_is_explained() -> None:
    """Every public name is a value or is in PUBLIC."""
    assert {name for name in co.__all__ if name not in PUBLIC} == VALUES


@pytest.mark.parametrize("name", PUBLIC)
def test_summary(name: str) -> None:
    """The docstring of a public name starts with a sentence on one line."""
    first, _, rest = (inspect.getdoc(PUBLIC[name]) or "").partition("\n")
    assert first.endswith((".", ":")), first
    assert not rest.partition("\n")[0], "the first line goes on"


@pytest.mark.parametrize("name", FULL)
def test_parameters_are_those_of_the_signature(name: str) -> None:
    """The section Parameters has the parameters in order."""
    assert documented(FunctionDoc(FULL[name])) == parameters_of(FULL[name])


@pytest.mark.parametrize("name", FULL)
def test_raises_is_there(name: str) -> None:
    """A function that raises has a section Raises."""
    needs = raises_by_itself(FULL[name])
    assert bool(FunctionDoc(FULL[name])["Raises"]) or not needs


@pytest.mark.parametrize("name", FULL)
def test_returns_is_there(name: str) -> None:
    """A function that returns something has a section Returns."""
    gives = inspect.signature(FULL[name]).return_annotation not in ("None", "NoReturn")
    assert bool(FunctionDoc(FULL[name])["Returns"]) is gives


# Methods of tables, graphs and interpreters have theirs in the docstring of the class.
FUNCTIONS = {name: value for name, value in FULL.items() if "." not in name} | {
    f"sizes.{name}": getattr(co.sizes, name)
    for name in co.sizes.__all__
    if inspect.isfunction(getattr(co.sizes, name))
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_are_there(name: str) -> None:
    """Every public function shows a call of it; tests/test_docs.py runs the examples."""
    assert name.rpartition(".")[2] in "".join(FunctionDoc(FUNCTIONS[name])["Examples"])


# Options that most users of a function need.
MAIN_OPTIONS = {
    "grad": ("argnums", "has_aux"),
    "value_and_grad": ("argnums", "has_aux"),
    "jacrev": ("argnums", "has_aux", "chunk_size"),
    "jacfwd": ("argnums", "has_aux", "chunk_size"),
    "hessian": ("argnums",),
    "vjp": ("has_aux",),
    "jvp": ("has_aux",),
    "hvp": ("has_aux",),
    "vmap": ("in_dims", "out_dims", "randomness", "chunk_size"),
    "compile": ("backend", "sizes", "fallback"),
    "make_fx": ("tracing_mode", "sizes", "decompose"),
    "scan": ("length", "reverse", "checkpoint"),
    "opcheck": ("test_utils", "raise_exception"),
    "gradcheck": ("raise_exception", "check_forward_ad", "fast_mode"),
    "assert_close": ("rtol", "atol", "equal_nan", "check_dtype"),
}


@pytest.mark.parametrize("name", MAIN_OPTIONS)
def test_examples_of_the_main_options(name: str) -> None:
    """The examples of a function use its main options."""
    shown = "".join(FunctionDoc(PUBLIC[name])["Examples"])
    missing = [option for option in MAIN_OPTIONS[name] if f"{option}=" not in shown]
    assert missing == []


CLASSES = {
    name: value
    for name, value in PUBLIC.items()
    if inspect.isclass(value)
    and "__init__" in vars(value)
    and "Parameters" in value.__doc__
}


@pytest.mark.parametrize("name", CLASSES)
def test_parameters_of_a_class(name: str) -> None:
    """A class that documents parameters documents all of them."""
    found = NumpyDocString(inspect.getdoc(CLASSES[name]) or "")
    assert documented(found) == parameters_of(CLASSES[name].__init__)
