"""Arguments that share memory: a program that writes them gives NumPy's numbers or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

Program = Callable[[Any, Any], Any]


def scaled(a: Any, b: Any) -> Any:
    a *= 2.0
    return a * b


def one_element(a: Any, b: Any) -> Any:
    b[0] = 7.0
    return a * b


def each_other(a: Any, b: Any) -> Any:
    b += a
    a -= 1.0
    return a * b


def through_a_view(a: Any, b: Any) -> Any:
    tail = a[1:]
    tail *= b[0]
    return a * b


def through_ravel(a: Any, b: Any) -> Any:
    a.reshape(1, -1)[0, 0] = 5.0
    b.ravel()[1] = 6.0  # a copy, if b has gaps
    return a * b


def out(a: Any, b: Any) -> Any:
    np.multiply(a, b, out=a)
    return a + b


def copied_into(a: Any, b: Any) -> Any:
    np.copyto(b, a[::-1])
    return a * b


def sorted_in_place(a: Any, b: Any) -> Any:
    a.sort()
    return a * b


def masked(a: Any, b: Any) -> Any:
    a[b > 0] = 0.5
    return a * b


def repeated_places(a: Any, b: Any) -> Any:
    np.add.at(a, [0, 0], b[:2])
    return a * b


def exchanged(a: Any, b: Any) -> Any:
    a, b = b, a
    a *= 3.0
    return a * b


def only_read(a: Any, b: Any) -> Any:
    c = a * 1.0
    c *= b
    return c


PROGRAMS: list[Program] = [
    scaled,
    one_element,
    each_other,
    through_a_view,
    through_ravel,
    out,
    copied_into,
    sorted_in_place,
    masked,
    repeated_places,
    exchanged,
    only_read,
]


def line() -> np.ndarray:
    return np.array([1.5, -2.0, 0.5, 0.7, -1.2, 0.3])


def read_only(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


# Functions of a new array: the two arguments.
PAIRS: dict[str, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "one array": lambda x: ((y := x[:3]), y),
    "two views": lambda x: (x[:3], x[:3]),
    "overlap": lambda x: (x[:3], x[1:4]),
    "reversed": lambda x: (x[:3], x[2::-1]),
    "every second": lambda x: (x[::2], x[1::2]),
    "steps that meet": lambda x: (x[:4:2], x[2:5:2]),
    "read-only": lambda x: (x[:3], read_only(x[:3])),
    "apart": lambda x: (x[:3], x[3:]),
}


def first(found: tuple[Any, ...]) -> Any:
    return found[0]


def with_aux(fn: Program) -> Callable[..., Any]:
    return lambda a, b: (np.sum(y := fn(a, b)), y)


def as_tree(fn: Program) -> Callable[[Any], Any]:
    return lambda tree: fn(tree["a"], *tree["rest"])


def nested(fn: Program) -> Program:
    return lambda a, b: co.vjp(fn, a, b)[0]


WAYS: dict[str, Callable[[Program, Any, Any], Any]] = {
    "jvp": lambda fn, a, b: first(co.jvp(fn, (a, b), (a, b))),
    "vjp": lambda fn, a, b: first(co.vjp(fn, a, b)),
    "grad": lambda fn, a, b: co.grad(with_aux(fn), has_aux=True)(a, b)[1],
    "grad by the second": lambda fn, a, b: co.grad(with_aux(fn), 1, True)(a, b)[1],
    "tree": lambda fn, a, b: first(co.vjp(as_tree(fn), {"a": a, "rest": [b]})),
    "grad of a tree": lambda fn, a, b: co.grad(
        lambda tree: (np.sum(y := as_tree(fn)(tree)), y), has_aux=True
    )({"a": a, "rest": [b]})[1],
    "jacrev": lambda fn, a, b: co.jacrev(
        lambda a, b: ((y := fn(a, b)), y), has_aux=True
    )(a, b)[1],
    "jacfwd": lambda fn, a, b: co.jacfwd(
        lambda a, b: ((y := fn(a, b)), y), 1, has_aux=True
    )(a, b)[1],
    "linearize": lambda fn, a, b: first(co.linearize(fn, a, b)),
    "vjp of vjp": lambda fn, a, b: first(co.vjp(nested(fn), a, b)),
    "jvp of vjp": lambda fn, a, b: first(co.jvp(nested(fn), (a, b), (a, b))),
    "vjp of vmap": lambda fn, a, b: first(co.vjp(co.vmap(fn), a[None], b[None]))[0],
    "vjp of the first alone": lambda fn, a, b: first(
        co.vjp(lambda a, b: first(co.vjp(lambda a: fn(a, b), a)), a, b)
    ),
    "real graph": lambda fn, a, b: co.make_fx(fn, "real")(a, b)(a, b),
    "fake graph": lambda fn, a, b: co.make_fx(fn, "fake")(a, b)(a, b),
    "compile": lambda fn, a, b: co.compile(fn)(a, b),
}
# They write the arguments, as the program does.
WRITE = ("real graph", "fake graph", "compile")
# They follow one argument; the other one is read-only.
PARTIAL = ("grad", "grad by the second", "jacrev", "jacfwd", "vjp of the first alone")
# Rows count as packed, so that ravel is a view.
PACKED = (("vjp of vmap", through_ravel),)


def check(way: str, fn: Program, pair: str) -> None:
    if (way, fn) in PACKED and pair in ("every second", "steps that meet", "reversed"):
        return
    expected: Any = None
    error: Exception | None = None
    try:
        expected = fn(*PAIRS[pair](line()))
    except ValueError as found:
        error = found
    memory = line()
    a, b = PAIRS[pair](memory)
    try:
        value = WAYS[way](fn, a, b)
    except (co.CustomOpError, ValueError):
        assert pair != "apart" or way in PARTIAL
    else:
        assert error is None, (way, fn.__name__, pair)
        np.testing.assert_allclose(
            value, expected, err_msg=f"{way}, {fn.__name__}, {pair}"
        )
    if way not in WRITE:
        np.testing.assert_array_equal(memory, line())


@pytest.mark.parametrize("way", WAYS)
def test_a_write_to_one_of_two(way: str) -> None:
    for pair in ("one array", "overlap", "apart"):
        check(way, scaled, pair)


@pytest.mark.exhaustive
@pytest.mark.parametrize("fn", PROGRAMS)
def test_programs_that_write(fn: Program) -> None:
    for pair in PAIRS:
        for way in WAYS:
            check(way, fn, pair)


def test_a_graph_keeps_the_gaps_of_its_arguments() -> None:
    """The copy that a real capture works on has none; whether ravel copies depends on it."""

    def program(x: Any) -> Any:
        x.ravel()[0] = 9.0
        return x * 1.0

    for x in (line()[::2], line()[::-1], line()[:3]):
        expected = program(x.copy() if x.flags.c_contiguous else x)
        np.testing.assert_array_equal(co.make_fx(program, "real")(x)(x), expected)
