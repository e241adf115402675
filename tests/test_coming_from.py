"""The tables of calls in "Coming from torch, JAX or autograd": both sides are run."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co

PAGE = Path(__file__).parent.parent / "examples" / "guide" / "coming_from.md"
TEXT = PAGE.read_text(encoding="utf-8")
# The values and functions of the page.
START = next(
    iter(re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
)


def calls(library: str) -> list[tuple[str, str]]:
    """The rows of the table `in LIBRARY` and `here`."""
    table = TEXT.partition(f"| in {library} | here |\n| --- | --- |\n")[2]
    rows = table.partition("\n\n")[0].splitlines()
    found = [re.fullmatch(r"\| `(.*)` \| `(.*)` \|", row) for row in rows]
    assert all(found)
    return [(row[1], row[2]) for row in found if row is not None]


def value_of(code: str, names: dict[str, Any]) -> list[Any]:
    """The leaves of what the last statement gives, as arrays of NumPy."""
    *before, last = ast.parse(code).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(before, []), "row", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "row", "eval"), names)
    return [np.asarray(leaf) for leaf in co.tree.leaves(value)]


def start() -> dict[str, Any]:
    """The names of the page."""
    names: dict[str, Any] = {}
    exec(START, names)
    return names


# ---- the names of the page in other libraries ----


def of_torch() -> dict[str, Any]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    importlib.import_module("torch.utils.checkpoint")
    make_fx = importlib.import_module("torch.fx.experimental.proxy_tensor").make_fx
    values = {name: torch.tensor(start()[name]) for name in ("x", "v", "rows")}
    return values | {
        "torch": torch,
        "make_fx": make_fx,
        "f": lambda x: torch.sum(torch.sin(x) ** 2),
        "g": lambda x: torch.exp(-x) * x[0],
    }


def of_jax() -> dict[str, Any]:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    importlib.import_module("jax.flatten_util")
    jnp = jax.numpy
    values = {name: jnp.array(start()[name]) for name in ("x", "v", "rows")}
    return values | {
        "jax": jax,
        "jnp": jnp,
        "f": lambda x: jnp.sum(jnp.sin(x) ** 2),
        "g": lambda x: jnp.exp(-x) * x[0],
    }


def of_autograd() -> dict[str, Any]:
    autograd = pytest.importorskip("autograd", reason="autograd is not installed")
    numpy = importlib.import_module("autograd.numpy")
    return start() | {
        "autograd": autograd,
        "np": numpy,
        "f": lambda x: numpy.sum(numpy.sin(x) ** 2),
        "g": lambda x: numpy.exp(-x) * x[0],
    }


LIBRARIES: dict[str, Callable[[], dict[str, Any]]] = {
    "torch": of_torch,
    "JAX": of_jax,
    "autograd": of_autograd,
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_calls_here_run(library: str) -> None:
    """The right side of every row gives numbers."""
    rows = calls(library)
    assert len(rows) > 7
    for _, here in rows:
        assert value_of(here, start()), here


@pytest.mark.exhaustive
# Of torch and JAX themselves.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("library", LIBRARIES)
def test_calls_give_the_same_numbers(library: str) -> None:
    """Both sides of every row."""
    theirs = LIBRARIES[library]
    theirs()  # skips where it is not installed
    for there, here in calls(library):
        found, expected = value_of(here, start()), value_of(there, theirs())
        assert len(found) == len(expected), there
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=2e-5, atol=1e-6, err_msg=there)
