"""Code that asks whether a traced array is one of NumPy's is told once, with its line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays.trampolines import IS_KNOWN

pytestmark = pytest.mark.skipif(not IS_KNOWN, reason="this Python's code is not known")

X = np.ones(2)
USES: dict[str, Callable[[Any], Any]] = {
    "grad": lambda fn: co.grad(fn),
    "vmap": lambda fn: co.vmap(fn),
    "jvp": lambda fn: lambda x: co.jvp(fn, (x,), (x,)),
    "make_fx": lambda fn: co.make_fx(fn),
    "compile": lambda fn: co.compile(fn),
}


def made(text: str, name: str) -> Any:
    """Make a function of its own, whose lines no warning has named."""
    scope: dict[str, Any] = {"np": np, "co": co, "__name__": "asking"}
    exec(compile(text, f"asking of {name}", "exec", dont_inherit=True), scope)
    return scope["run"]


PLAIN = (
    "def run(x):\n    return (x * 2.0 if isinstance(x, np.ndarray) else x * 3.0).sum()"
)
TUPLE = PLAIN.replace("np.ndarray", "(list, np.ndarray)")
INNER = (
    "def run(x):\n    def inner(v):\n"
    "        return v * 2.0 if isinstance(v, np.ndarray | float) else v\n"
    "    return inner(x).sum()"
)
METHOD = (
    "class M:\n    def run(self, x):\n"
    "        return x.sum() if isinstance(x, np.ndarray) else (x * 3.0).sum()\n"
    "run = M().run"
)
HELPER = (
    "def helper(x): return x if isinstance(x, np.ndarray) else x * 2.0\n"
    "def run(x): return helper(x).sum()"
)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("text", [PLAIN, TUPLE, INNER, METHOD])
def test_it_is_told_once(text: str, use: str) -> None:
    name = f"{use} {len(text)}"
    fn = made(text, name)
    line = text[: text.index("isinstance")].count("\n") + 1
    with pytest.warns(
        co.CustomOpWarning, match=f"is False for a .*, at asking of {name}:{line}\n"
    ):
        USES[use](fn)(X)
    USES[use](fn)(X)


@pytest.mark.parametrize("use", ["make_fx", "compile"])
def test_captures_see_other_functions(use: str) -> None:
    with pytest.warns(co.CustomOpWarning, match=f"at asking of a helper in {use}:1\n"):
        USES[use](made(HELPER, f"a helper in {use}"))(X)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("np.ndarray", "np.ndarray | co.Tracer"),
        PLAIN.replace("isinstance(x", "isinstance(np.ones(2)"),
        PLAIN.replace("isinstance(x", "isinstance('ndarray'"),
        PLAIN.replace("np.ndarray", "float") + "\n    np.ndarray",
    ],
)
def test_other_questions_are_not_told(text: str, use: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        USES[use](made(text, "others"))(X)


def test_traceable_functions_are_told_that_it_is_one() -> None:
    fn = co.traceable(made(PLAIN, "traceable"))
    np.testing.assert_array_equal(co.grad(fn)(X), [2.0, 2.0])
