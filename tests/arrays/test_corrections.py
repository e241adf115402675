"""Errors show the user's expression and the same expression corrected."""

# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

import importlib
import linecache
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays import corrections

X = np.array([0.5, 2.0, 1.5])
TABLE = np.arange(10.0) ** 2
A = np.arange(9.0).reshape(3, 3)
_numbers = count()


def grad(f: Any) -> Any:
    return co.vjp(f, X)[1](np.ones_like(f(X)))[0]


def vmap(f: Any) -> Any:
    return co.vmap(f)(np.stack([X, X]))[0]


RUNS: dict[str, Callable[[Any], Any]] = {
    "grad": grad,
    "vmap": vmap,
    "make_fx": lambda f: co.make_fx(f)(X)(X),
    "eval_shape": lambda f: co.eval_shape(f, X),
}


def made(source: str) -> Any:
    """Define a function ``f`` by its source, which is found as that of a file is."""
    name = f"<corrections {next(_numbers)}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    names: dict[str, Any] = {
        "np": np,
        "co": co,
        "math": math,
        "table": TABLE,
        "A": A,
        "rows": [1.0, 2.0, 4.0],
        "costs": {0: 3.0, 1: 5.0, 2: 4.0},
        "prices": {"a": 3.0, "b": 5.0},
        "grid": SimpleNamespace(a=A),
        "__name__": "user",
    }
    exec(compile(source, name, "exec"), names)
    return names["f"]


def advice(source: str, run: str) -> str:
    """Return what the error says to do, without the rest of it."""
    with pytest.raises((co.DataDependentError, co.ArgumentError)) as caught:
        RUNS[run](made(source))
    do: str = caught.value.do
    return re.sub(r", or (stop_gradient\(x\) for|call with real).*", "", do)


# Source of an expression of x -> a run that refuses it, and the correction.
EXPRESSIONS: dict[str, tuple[str, str]] = {
    # ---- subscripts ----
    "table[np.argmax(x)]": ("vmap", "co.getitem(table, np.argmax(x))"),
    "A[np.argmax(x), 1:]": ("make_fx", "co.getitem(A, np.s_[np.argmax(x), 1:])"),
    "grid.a[np.argmax(x), 1]": (
        "eval_shape",
        "co.getitem(grid.a, (np.argmax(x), 1))",
    ),
    "rows[np.argmin(x)]": ("vmap", "co.getitem(np.array(rows), np.argmin(x))"),
    "[3.0, 4.0, 5.0][np.argmin(x)]": (
        "make_fx",
        "co.getitem(np.array([3.0, 4.0, 5.0]), np.argmin(x))",
    ),
    "table[int(x[1])]": ("grad", "co.getitem(table, x[1].astype(int))"),
    "table[2 * int(np.argmax(x)) + 1]": (
        "vmap",
        "co.getitem(table, 2 * np.argmax(x).astype(int) + 1)",
    ),
    "A[1:, int(np.argmax(x))]": (
        "make_fx",
        "co.getitem(A, np.s_[1:, np.argmax(x).astype(int)])",
    ),
    "rows[int(np.argmin(x))]": (
        "vmap",
        "co.getitem(np.array(rows), np.argmin(x).astype(int))",
    ),
    "x[int(np.argmin(x))]": ("vmap", "x[np.argmin(x).astype(int)]"),
    "costs[int(np.argmax(x))]": (
        "make_fx",
        "co.getitem(np.array([*costs.values()]), np.argmax(x).astype(int))",
    ),
    "np.r_[x, x[0], 1.0]": ("grad", "np.hstack([x, x[0], [1.0]])"),
    "np.c_[x, x ** 2]": ("vmap", "np.column_stack([x, x ** 2])"),
    # ---- functions of NumPy ----
    "np.array([x[0], 2.0 * x[1]])": ("grad", "co.array([x[0], 2.0 * x[1]])"),
    "np.array([x[0], 1.0], dtype=float)": (
        "vmap",
        "co.array([x[0], 1.0], dtype=float)",
    ),
    "np.asarray(x)": ("grad", "np.asarray(x, like=x)"),
    "np.asarray(x * 2.0)": ("eval_shape", "co.array(x * 2.0)"),
    "np.full(3, x[0])": ("grad", "np.full(3, x[0], like=x)"),
    "np.sum([x[0], x[1]])": ("grad", "np.sum(co.array([x[0], x[1]]))"),
    "np.mean([v ** 2 for v in x], axis=0)": (
        "vmap",
        "np.mean(co.array([v ** 2 for v in x]), axis=0)",
    ),
    "np.exp((x[0], x[1]))": ("grad", "np.exp(co.array((x[0], x[1])))"),
    "np.dot([x[0], x[1]], [1.0, 2.0])": (
        "make_fx",
        "np.dot(co.array([x[0], x[1]]), [1.0, 2.0])",
    ),
    "np.sin(x, out=np.zeros(3))": ("grad", "np.sin(x)"),
    # ---- methods ----
    "A.dot(x)": ("grad", "A @ x"),
    "(A + 1.0).dot(x + 1.0)": ("vmap", "(A + 1.0) @ (x + 1.0)"),
    "A.take(np.argmax(x))": ("vmap", "co.getitem(A.ravel(), np.argmax(x))"),
    "np.take(table, np.argmax(x))": ("vmap", "co.getitem(table, np.argmax(x))"),
    "np.take(A, np.argmax(x), axis=0)": ("make_fx", "co.getitem(A, np.argmax(x))"),
    "table.searchsorted(x)": ("vmap", "np.searchsorted(table, x)"),
    "x[0].item()": ("grad", "x[0].reshape(())"),
    # ---- functions of Python ----
    "math.sin(x[0])": ("grad", "np.sin(x[0])"),
    "math.atan2(x[0], x[1])": ("vmap", "np.arctan2(x[0], x[1])"),
    "math.asinh(x[0])": ("vmap", "np.arcsinh(x[0])"),
    "math.pow(x[0], 3)": ("vmap", "np.power(x[0], 3)"),
    "math.log(x[0], 2)": ("make_fx", "np.log(x[0]) / np.log(2)"),
    "float(x[0])": ("grad", "x[0]"),
    "int(x[0])": ("vmap", "x[0].astype(int)"),
    "complex(x[0])": ("make_fx", "x[0].astype(complex)"),
    "max(x)": ("vmap", "np.max(x)"),
    "min(x[0], x[1])": ("vmap", "np.min(co.array([x[0], x[1]]))"),
    "sorted(x)": ("make_fx", "np.sort(x)"),
    "any(x > 1.0)": ("vmap", "np.any(co.array(x > 1.0))"),
    # ---- tests ----
    "x[0] if x[0] > 1 else x[1]": ("vmap", "np.where(x[0] > 1, x[0], x[1])"),
    "0 < x[0] < 1": ("make_fx", "(0 < x[0]) & (x[0] < 1)"),
    "x[0] > 0 and x[1] > 0": ("vmap", "(x[0] > 0) & (x[1] > 0)"),
    "x[0] > 9 or 1 < x[1] < 3": (
        "eval_shape",
        "(x[0] > 9) | ((1 < x[1]) & (x[1] < 3))",
    ),
    "not x[0] > 0": ("vmap", "np.logical_not(x[0] > 0)"),
    "x[0] if x[0] > 0 and x[1] > 0 else x[1]": (
        "vmap",
        "np.where((x[0] > 0) & (x[1] > 0), x[0], x[1])",
    ),
}


@pytest.mark.usefixtures("unadapted")
@pytest.mark.parametrize("old", EXPRESSIONS)
def test_an_expression(old: str) -> None:
    """The error names it and what to write; that runs and gives NumPy's value."""
    run, new = EXPRESSIONS[old]
    source = f"def f(x):\n    return {old}\n"
    assert advice(source, run) == f"write {new} in place of {old}"
    corrected = made(source.replace(old, new))
    expected = made(source)(X)
    found = RUNS[run](corrected)
    if run == "grad":
        found = co.make_fx(corrected)(X)(X)
        assert RUNS[run](corrected).shape == X.shape
    if run == "eval_shape":
        assert found.shape == np.shape(expected)
    else:
        np.testing.assert_allclose(found, expected)


def test_a_format() -> None:
    """Text without digits is what a value has that isn't known yet."""
    old, new = "f'{x[0]:.3f} of {len(x)}'", "f'{x[0]} of {len(x)}'"
    source = "def f(x):\n    return x, OLD\n"
    expected = f"write {new} in place of {old}"
    assert advice(source.replace("OLD", old), "make_fx") == expected
    assert made(source.replace("OLD", new))(X)[1] == "0.5 of 3"


# Body of a function of x -> a run, and what the error says to write.
STATEMENTS: dict[str, tuple[str, str]] = {
    "    out = np.zeros(3)\n    out[0] = x[0]\n    return out": (
        "grad",
        "write out = np.zeros(3, like=x) in place of out = np.zeros(3) (line 2)",
    ),
    "    out = np.zeros((3, 1))\n    out[0][0] = x[0]\n    return out": (
        "vmap",
        "write out = np.zeros((3, 1), like=x) in place of out = np.zeros((3, 1))"
        " (line 2)",
    ),
    "    out = np.ones(3, like=table)\n    out[:2] += x[:2]\n    return out": (
        "make_fx",
        "write out = np.ones(3, like=x) in place of out = np.ones(3, like=table)"
        " (line 2)",
    ),
    "    out = A[0].copy()\n    out[1] = x[0]\n    return out": (
        "eval_shape",
        "write out = np.array(out, like=x) before the line out[1] = x[0]",
    ),
    "    out = np.ones(3)\n    out *= x\n    return out": (
        "grad",
        "write out = out * x in place of out *= x",
    ),
    "    out = np.ones(3)\n    np.add(x, 1.0, out=out)\n    return out": (
        "grad",
        "write out = np.add(x, 1.0) in place of np.add(x, 1.0, out=out)",
    ),
    "    if x[0] > 1:\n        return x[0]\n    return x[1]": (
        "vmap",
        "write return np.where(x[0] > 1, x[0], x[1]) in place of if x[0] > 1:",
    ),
    "    y = x[1]\n    if x[0] > 1:\n        y = x[0]\n    return y": (
        "vmap",
        "write y = np.where(x[0] > 1, x[0], y) in place of if x[0] > 1:",
    ),
    "    if x[0] > 1:\n        y = x[0]\n    else:\n        y = x[1]\n    return y": (
        "make_fx",
        "write y = np.where(x[0] > 1, x[0], x[1]) in place of if x[0] > 1:",
    ),
    "    if x[0] > 1:\n        y = x[0]\n        z = y\n    return x": (
        "make_fx",
        "write co.cond(x[0] > 1, f, g, x) in place of if x[0] > 1:, where f(x) and g(x)"
        " return the results of the two branches",
    ),
    "    y = x[0]\n    while y > 1e-3:\n        y = y * 0.5\n    return y": (
        "make_fx",
        "write y = co.while_loop(more, body, y) in place of while y > 0.001:, where"
        " more(y) returns y > 0.001 and body(y) the next y",
    ),
    "    y, n = x[0], 0\n    while 0 < y < 9:\n        y = y * 2\n        n += 1\n"
    "    return y": (
        "vmap",
        "write (n, y) = co.while_loop(more, body, (n, y)) in place of while 0 < y < 9:,"
        " where more(state) returns (0 < y) & (y < 9) and body(state) the next (n, y)",
    ),
    "    for i in range(np.argmax(x)):\n        x = x * 2\n    return x": (
        "vmap",
        "write co.fori_loop(0, np.argmax(x), body, state) in place of"
        " range(np.argmax(x)), where body(i, state) returns the next state",
    ),
    "    return math.erf(x[0])": (
        "grad",
        "write scipy.special.erf(x[0]) in place of math.erf(x[0]), after import"
        " customop.scipy",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("unadapted")
@pytest.mark.parametrize("body", STATEMENTS)
def test_a_statement(body: str) -> None:
    """The error says which line to change; a changed line that makes an array works."""
    run, expected = STATEMENTS[body]
    source = f"def f(x):\n{body}\n"
    assert advice(source, run) == expected
    found = re.fullmatch(r"write (out = .*) in place of (.*?)( \(line 2\))?", expected)
    if found is not None:
        corrected = made(source.replace(found[2], found[1]))
        np.testing.assert_allclose(co.make_fx(corrected)(X)(X), made(source)(X))
        RUNS[run](corrected)


_PLAIN = "a size must be known: pass int(x[1]) as a plain number, from outside"
_LARGEST = (
    "; or make y of the largest size n, and use np.where(np.arange(n) < {}, y, 0)"
)
_TURNS = (
    "write co.fori_loop(0, x[1].astype(int), body, state) in place of range(int(x[1])),"
    " where body(i, state) returns the next state"
)
_ROWS = (
    "put the values of prices in an array a, one row for each key, and write"
    " co.getitem(a, i) for the row i in place of prices[{}], since the key of a"
    " dict must be known"
)

# Function of x -> what the error says under vmap, and functions that follow that, in one
# of which k is the number from outside.
KNOWN: dict[str, tuple[str, list[str]]] = {
    "def f(x):\n    for i in range(int(x[1])):\n        x = x * 2\n    return x": (
        _TURNS,
        [
            "def f(x, k):\n    return co.fori_loop("
            "0, x[1].astype(int), lambda i, state: state * 2, x)"
        ],
    ),
    "def f(x):\n    return x[0] * sum(range(int(x[1])))": (
        _TURNS,
        [
            "def f(x, k):\n    return x[0] * co.fori_loop("
            "0, x[1].astype(int), lambda i, state: state + i, 0)"
        ],
    ),
    "def f(x):\n    return x[0] * np.sum(np.linspace(0, 1, num=int(x[1]) + 1))": (
        _PLAIN.replace("int(x[1])", "int(x[1]) + 1"),
        ["def f(x, k):\n    return x[0] * np.sum(np.linspace(0, 1, num=k + 1))"],
    ),
    "def f(x):\n    return x[0] * np.sum(np.arange(int(x[1])))": (
        _PLAIN + _LARGEST.format("x[1].astype(int)"),
        [
            "def f(x, k):\n    return x[0] * np.sum(np.arange(k))",
            "def f(x, k):\n    n = 9\n    y = np.arange(n)\n"
            "    y = np.where(np.arange(n) < x[1].astype(int), y, 0)\n"
            "    return x[0] * np.sum(y)",
        ],
    ),
    "def f(x):\n    return x[0] * np.sum(np.ones((int(x[1]), 1)))": (
        _PLAIN + _LARGEST.format("x[1].astype(int)"),
        ["def f(x, k):\n    return x[0] * np.sum(np.ones((k, 1)))"],
    ),
    "def f(x):\n    return x[0] * np.sum(np.ones(x[1].astype(int)))": (
        (_PLAIN + _LARGEST.format("x[1].astype(int)")).replace(
            "int(x[1])", "x[1].astype(int)", 1
        ),
        ["def f(x, k):\n    return x[0] * np.sum(np.ones(k))"],
    ),
    "def f(x):\n    return x[0] * np.sum(table[: int(x[1])])": (
        _PLAIN + _LARGEST.format("x[1].astype(int)"),
        [
            "def f(x, k):\n    return x[0] * np.sum(table[:k])",
            "def f(x, k):\n    n = len(table)\n"
            "    y = np.where(np.arange(n) < x[1].astype(int), table, 0)\n"
            "    return x[0] * np.sum(y)",
        ],
    ),
    "def f(x):\n    return x[0] * np.sum(table[: x[1].astype(int)])": (
        (_PLAIN + _LARGEST.format("x[1].astype(int)")).replace(
            "int(x[1])", "x[1].astype(int)", 1
        ),
        ["def f(x, k):\n    return x[0] * np.sum(table[:k])"],
    ),
    "def f(x):\n    return x[0] * sum([2.0] * int(x[1]))": (
        _PLAIN + _LARGEST.format("x[1].astype(int)"),
        ["def f(x, k):\n    return x[0] * sum([2.0] * k)"],
    ),
}  # fmt: skip


@pytest.mark.usefixtures("unadapted")
@pytest.mark.parametrize("source", KNOWN)
def test_what_must_be_a_known_number(source: str) -> None:
    """The advice ends in a program that gives NumPy's value, in one step."""
    do, programs = KNOWN[source]
    assert advice(source, "vmap") == do
    expected = made(source)(X)
    for program in programs:
        corrected = made(program)
        found = co.vmap(corrected, in_dims=(0, None))(np.stack([X, X]), 2)
        np.testing.assert_allclose(found, np.stack([expected, expected]))
        np.testing.assert_allclose(co.compile(corrected)(X, 2), expected)


@pytest.mark.usefixtures("unadapted")
def test_keys_of_dicts() -> None:
    """Python's error for a key without a hash ends in our advice."""
    source = "def f(x):\n    return x[0] * OLD\n"
    for key in ("np.argmax(x)", "x[0]"):
        old = f"costs[{key}]"
        new = f"co.getitem(np.array([*costs.values()]), {key})"
        with pytest.raises(TypeError, match="unhashable") as caught:
            co.vmap(made(source.replace("OLD", old)))(np.stack([X, X]))
        assert caught.value.__notes__ == [f"  do: write {new} in place of {old}"]
    found = co.vmap(made(source.replace("OLD", new.replace("x[0]", "np.argmax(x)"))))
    expected = made(source.replace("OLD", "costs[np.argmax(x)]"))(X)
    np.testing.assert_allclose(found(np.stack([X, X])), [expected, expected])
    with pytest.raises(TypeError, match="unhashable") as caught:
        co.vmap(made(source.replace("OLD", "prices[np.argmax(x)]")))(np.stack([X, X]))
    assert caught.value.__notes__ == ["  do: " + _ROWS.format("np.argmax(x)")]


def test_an_array_of_an_outer_scope_gets_another_name() -> None:
    """An assignment to its own name would make it local."""
    body = "    table[0] = x[0]\n    return table"
    expected = (
        "write new = np.array(table, like=x), and new in place of table in the line"
        " table[0] = x[0]"
    )
    assert advice(f"def f(x):\n{body}\n", "grad") == expected


@pytest.mark.usefixtures("unadapted")
def test_the_names_of_the_user() -> None:
    """NumPy and this package are called what the user's module calls them."""
    source = (
        "import numpy as xp\nfrom customop import getitem as take\ndel np, co\n"
        "def f(x):\n    return table[xp.argmax(x)] + xp.sum([x[0]])\n"
    )
    assert advice(source, "vmap") == (
        "write take(table, xp.argmax(x)) in place of table[xp.argmax(x)]"
    )
    source = source.replace("table[xp.argmax(x)]", "1.0")
    expected = "write xp.sum(customop.array([x[0]])) in place of xp.sum([x[0]])"
    assert advice(source, "vmap") == expected


@pytest.mark.usefixtures("unadapted")
def test_code_without_source_gets_general_words() -> None:
    names: dict[str, Any] = {"math": math, "__name__": "user"}
    exec("def f(x):\n    return math.sin(x[0])", names)
    with pytest.raises(co.DataDependentError) as caught:
        co.grad(names["f"])(X)
    assert caught.value.do.startswith("use np.sin in place of math.sin")


@pytest.mark.usefixtures("unadapted")
def test_long_code_gets_general_words() -> None:
    long = " + ".join(["x[0]"] * 100)
    text = advice(f"def f(x):\n    return math.sin({long})\n", "grad")
    assert text.startswith("use np.sin in place of math.sin")


def test_a_write_to_an_argument_that_is_not_followed() -> None:
    """A plain copy would refuse the traced value again."""

    def f(x: Any, out: Any) -> Any:
        out[0] = x[0]
        return np.sum(out)

    with pytest.raises(ValueError, match="read-only") as caught:
        co.grad(f)(X, np.zeros(3))
    assert caught.value.__notes__ == [
        "inside grad(f) 'out' is read-only, as a write would change it outside\n"
        "  do: write out = np.array(out, like=x) before the line out[0] = x[0]; or"
        " differentiate by it too, with argnums"
    ]

    def corrected(x: Any, out: Any) -> Any:
        out = np.array(out, like=x)
        return f(x, out)

    assert co.grad(corrected)(X, np.zeros(3)).tolist() == [1.0, 0.0, 0.0]


@dataclass
class Weights:
    w: Any


def test_classes_that_are_not_registered() -> None:
    """Errors for a dataclass say how transforms see its arrays."""
    do = "put @customop.register_dataclass above class Weights"
    with pytest.raises(co.GradientError) as caught:
        co.grad(lambda d: np.sum(d.w))(Weights(X))
    assert caught.value.do == do
    calls: list[Any] = [(lambda d: d.w, Weights(X)), (Weights, X)]
    for f, x in calls:
        with pytest.raises(co.VmapError) as wrong:
            co.vmap(f)(x)
        assert wrong.value.do == do
    known = co.register_dataclass(Weights)
    assert co.grad(lambda d: np.sum(d.w))(known(X)).w.tolist() == [1.0, 1.0, 1.0]


def _doubled(w: Any) -> Any:
    return w * 2.0


def _bounded(w: Any, bound: float = 3.0) -> Any:
    if bound > 4.0:
        return w
    return w * 2.0


def _with_more(w: Any) -> Any:
    out = w * 2.0
    return out, w


class _Model:
    def loss(self, w: Any) -> Any:
        return w.T


ONE = np.ones(1)


@pytest.mark.parametrize(
    ("f", "x", "has_aux", "expected"),
    [
        (_doubled, ONE, False, "(w * 2.0)[0] or np.sum(w * 2.0) in place of w * 2.0"),
        (
            _doubled,
            np.ones((1, 1)),
            False,
            "(w * 2.0)[0, 0] or np.sum(w * 2.0) in place of w * 2.0",
        ),
        (_doubled, X, False, "np.sum(w * 2.0) in place of w * 2.0"),
        (lambda v: v.T, X, False, "np.sum(v.T) in place of v.T"),
        (
            co.checkpoint(_doubled),
            ONE,
            False,
            "(w * 2.0)[0] or np.sum(w * 2.0) in place of w * 2.0",
        ),
        (_Model().loss, ONE, False, "w.T[0] or np.sum(w.T) in place of w.T"),
        (_with_more, ONE, True, "out[0] or np.sum(out) in place of out"),
        (_bounded, ONE, False, "_bounded(w, bound)[0] or np.sum(_bounded(w, bound))"),
        (np.sin, X, False, "np.sum(value)"),
        (np.sin, ONE, False, "value[0] or np.sum(value)"),
    ],
)
def test_the_gradient_of_an_array(f: Any, x: Any, has_aux: bool, expected: str) -> None:
    """The error shows the expression that the function returns, and the same without axes."""
    graded: Any = co.grad  # its overloads know has_aux as a constant
    with pytest.raises(co.GradientError) as caught:
        graded(f, has_aux=has_aux)(x)
    assert caught.value.do == f"return {expected}, or take vjp or jacrev"


# ---- other packages ----


@pytest.mark.usefixtures("unadapted")
def test_functions_of_scipy() -> None:
    """A function in Python is for `traceable`, or has a counterpart; others have neither."""
    linalg = pytest.importorskip("scipy.linalg", reason="SciPy is not installed")
    stats = pytest.importorskip("scipy.stats")
    fft = pytest.importorskip("scipy.fft")
    interpolate = pytest.importorskip("scipy.interpolate")
    ndimage = pytest.importorskip("scipy.ndimage")
    wanted: dict[Callable[[Any], Any], str] = {
        lambda x: linalg.solve(A, x): (
            "write customop.scipy.linalg.solve(A, x) in place of linalg.solve(A, x),"
            " after import customop.scipy"
        ),
        lambda x: stats.skew(x): (
            "write co.traceable(stats.skew)(x) in place of stats.skew(x)"
        ),
        lambda x: stats.norm.logpdf(x): (
            "write co.traceable(stats.norm.logpdf)(x) in place of stats.norm.logpdf(x)"
        ),
        lambda x: fft.fft(x): (
            "write customop.scipy.fft.fft(x) in place of fft.fft(x), after import"
            " customop.scipy"
        ),
        lambda x: ndimage.gaussian_filter1d(x, 1.0): (
            "make an operator, with custom_op, of the code that calls"
            " ndimage.gaussian_filter1d, which calls code that is not written in Python"
        ),
        lambda x: interpolate.interp1d(x, x): (
            "call interpolate.interp1d in a function f(x), and write co.traceable(f)(x)"
        ),
    }
    for f, expected in wanted.items():
        with pytest.raises(co.DataDependentError) as caught:
            co.grad(f)(X)
        end = ", or stop_gradient(x) for the value alone"
        assert caught.value.do == f"{expected}{end}"


def test_counterparts_are_those_of_the_package() -> None:
    """Their names are read from the source, without an import."""
    linalg = pytest.importorskip("scipy.linalg", reason="SciPy is not installed")
    ours: Any = importlib.import_module("customop.scipy")
    for name in ours.linalg.__all__:
        own = corrections._counterpart(getattr(linalg, name))
        assert own == f"customop.scipy.linalg.{name}"
    assert corrections._counterpart(linalg.norm) is None


def test_no_error_advises_what_was_just_done() -> None:
    """A function that `traceable` follows, and that still fails, is for an operator."""
    linalg = pytest.importorskip("scipy.linalg", reason="SciPy is not installed")
    with pytest.raises(co.DataDependentError) as caught:
        co.grad(co.traceable(linalg.norm))(X)
    assert "make an operator, with custom_op, of the function" in caught.value.do
    assert "use customop.traceable" not in caught.value.do


def test_callbacks_of_compiled_code() -> None:
    """SciPy's root finder goes on after our error; ours comes out, with its advice."""
    optimize = pytest.importorskip("scipy.optimize", reason="SciPy is not installed")
    integrate = pytest.importorskip("scipy.integrate")

    def root(x: Any) -> Any:
        return optimize.brentq(lambda v: v - x[0], 0.0, 5.0)

    def area(x: Any) -> Any:
        return integrate.quad(lambda v: v * x[0], 0.0, 1.0)[0]

    for f, name in ((root, "optimize.brentq"), (area, "integrate.quad")):
        for run in (co.grad(f), lambda x, f=f: co.jvp(f, (x,), (x,))):
            with pytest.raises(co.DataDependentError) as caught:
                run(X)
            assert caught.value.what.startswith("float() of")
            assert caught.value.do == (
                "make an operator, with custom_op, of the code that calls"
                f" {name}, which calls code that is not written in Python, or"
                " stop_gradient(x) for the value alone"
            )


def test_errors_of_compiled_functions() -> None:
    """Numba does not know traced arrays; its error stays, and ends in our advice."""
    numba = pytest.importorskip("numba", reason="numba is not installed")
    compiled = numba.njit(lambda x: x.sum())
    with pytest.raises(numba.TypingError) as caught:
        co.vmap(co.grad(lambda x: compiled(x)))(np.stack([X, X]))
    assert caught.value.__notes__ == [
        "  do: make an operator, with custom_op, of the code that calls compiled, which"
        " is not written in Python"
    ]


def test_an_error_of_a_users_class_stays_as_it_is() -> None:
    class Stopped(Exception):
        pass

    def f(x: Any) -> Any:
        raise Stopped(str(x))

    with pytest.raises(Stopped) as caught:
        co.grad(f)(X)
    assert not hasattr(caught.value, "__notes__")
    assert "customop.arrays.corrections" in sys.modules
