"""Arrays from outside that a function writes with the bytes that they hold already.

The oracle is the function itself, after somebody else has written the array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.certain_writes import certainly_written

X = np.ones(2)
table = np.zeros(2)
space = SimpleNamespace(table=table, inner=SimpleNamespace(table=table))


class Model:
    """Holds an array, which it writes."""

    def __init__(self) -> None:
        self.table: np.ndarray = table

    def clear(self) -> None:
        self.table[...] = 0.0

    def __call__(self, x: Any) -> Any:
        self.table[:] = 0.0
        return x + self.table

    def by_method(self, x: Any) -> Any:
        self.clear()
        return x + self.table


model = Model()


def clear() -> None:
    table[:] = 0.0


def by_name(x: Any) -> Any:
    table[:] = 0.0
    return x + table


def by_item(x: Any) -> Any:
    table[0] = 0.0
    table[1] = 0.0
    return x + table


def by_attribute(x: Any) -> Any:
    space.inner.table[...] = 0.0
    return x + table[::-1]


def after_a_branch(x: Any, n: int = 2) -> Any:
    y = x
    if n > 1:
        y = y * n
    for _ in range(n):
        y = y + 1.0
    table[:] = 0.0 if n > 3 else 0.0 * n
    return y + table


def by_filling(x: Any) -> Any:
    table.fill(0.0)
    return x + table


def by_part(x: Any) -> Any:
    table[0:1] = 0.0
    return x + table


def by_sorting(x: Any) -> Any:
    space.table.sort()
    return x + table


def by_function(x: Any) -> Any:
    clear()
    return x + table


def by_method(x: Any) -> Any:
    model.clear()
    return x + model.table


def _closing() -> Callable[..., Any]:
    kept = table

    def wipe() -> None:
        kept[:] = 0.0

    def by_closure(x: Any) -> Any:
        wipe()
        return x + kept

    return by_closure


def after_a_use(x: Any) -> Any:
    y = x + table
    table[:] = 0.0
    return y


def after_a_function(x: Any) -> Any:
    y = by_use(x)
    clear()
    return y


def by_use(x: Any) -> Any:
    return x + table


def twice(x: Any) -> Any:
    model.table[...] = 2.0
    table[:] = 0.0
    return x + table


FIRST: dict[str, Callable[..., Any]] = {
    "name": by_name,
    "attribute": by_attribute,
    "twice": twice,
    "fill": by_filling,
    "function": by_function,
    "method of an object": by_method,
    "closure": _closing(),
    "object": model,
    "own method": model.by_method,
}
# What is left in the array, or its order, depends on what it held; or it is used before.
OTHERS: dict[str, Callable[..., Any]] = {
    "item": by_item,
    "part": by_part,
    "sort": by_sorting,
    "after a branch": after_a_branch,
    "after a use": after_a_use,
    "after a function": after_a_function,
}
CERTAIN = {**FIRST, **OTHERS}


@contextmanager
def _kept(values: Any = 0.0) -> Iterator[None]:
    table[:] = values
    try:
        yield
    finally:
        table[:] = 0.0


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", FIRST)
def test_graphs_keep_what_is_written(name: str, mode: Any) -> None:
    fn = FIRST[name]
    graph = co.make_fx(fn, mode)(X)
    again = co.make_fx(fn, mode)(X)  # the second capture of a function watches less
    for values in (0.0, [3.0, 5.0]):
        with _kept(values):
            found = graph(X), again(X)
            expected = fn(X)
        np.testing.assert_array_equal(found, [expected, expected])


def test_graphs_look_up_what_is_not_written() -> None:
    """The other elements of an array of which a part is written are those of its owner."""
    part = table[:1]

    def padded(x: Any) -> Any:
        table[0] = 0.0
        return x + table

    def of_a_view(x: Any) -> Any:
        part[:] = 0.0
        return x + table

    for fn in (padded, of_a_view, after_a_use, after_a_function):
        graph = co.make_fx(fn)(X)
        with _kept([0.0, 5.0]):
            found = graph(X)  # before the function writes it
            np.testing.assert_array_equal(found, fn(X))


@pytest.mark.parametrize("name", CERTAIN)
def test_compiled_functions_refuse_it(name: str) -> None:
    with pytest.raises(co.GraphError, match=r"writes to .* do not depend on its arg"):
        co.compile(CERTAIN[name])(X)
    assert not table.any()


@pytest.mark.parametrize("name", CERTAIN)
def test_the_array_is_found(name: str) -> None:
    assert all(found is table for found in certainly_written(CERTAIN[name]))
    assert certainly_written(CERTAIN[name])
    assert bool(certainly_written(CERTAIN[name], is_first=True)) is (name in FIRST)


# ---- what runs only sometimes ----


def _later() -> Iterator[int]:
    table[:] = 0.0
    yield 1


def _holder() -> None:
    table[:] = 0.0


_holder.count = lambda *numbers: len(numbers)  # type: ignore[attr-defined]  # any name


def in_a_branch(x: Any) -> Any:
    if len(x) > 5:
        table[:] = 0.0
    return x + table


def in_a_loop(x: Any) -> Any:
    for _ in range(len(x) - 2):
        table[:] = 0.0
    return x + table


def after_a_return(x: Any) -> Any:
    if len(x) == 2:
        return x + table
    table[:] = 0.0
    return x


def after_a_return_in_a_loop(x: Any) -> Any:
    for i in range(len(x)):
        if i:
            return x + table
    table[:] = 0.0
    return x


def by_a_short_cut(x: Any) -> Any:
    _ = len(x) > 5 and clear()
    return x + table


def by_a_choice(x: Any) -> Any:
    (clear if len(x) > 5 else dict)()
    return x + table


def where_it_fails(x: Any) -> Any:
    try:
        _ = [0][len(x)]
        table[:] = 0.0
    except IndexError:
        pass
    return x + table


def after_a_handler(x: Any) -> Any:
    try:
        _ = [0][len(x)]
    except IndexError:
        return x + table
    table[:] = 0.0
    return x


def of_a_local(x: Any) -> Any:
    def inner() -> None:
        table[:] = 0.0

    space = SimpleNamespace(table=np.zeros(2))
    space.table[:] = 0.0
    return x + globals()["table"] + len(inner.__name__)


def of_a_generator(x: Any) -> Any:
    _later()
    return x + table


def of_an_attribute(x: Any) -> Any:
    return x + table + _holder.count(*(1, 2))  # type: ignore[attr-defined]  # as above


def _chosen(x: Any, place: Any = table) -> Any:
    (place if len(x) < 5 else np.zeros(2)).sum()
    (np.zeros(2) if len(x) < 5 else table)[:] = 0.0
    return x + place


UNCERTAIN: list[Callable[..., Any]] = [
    *(in_a_branch, in_a_loop, after_a_return, after_a_return_in_a_loop),
    *(by_a_short_cut, by_a_choice, where_it_fails, after_a_handler, of_a_local),
    *(of_a_generator, of_an_attribute, _chosen),
]


@pytest.mark.parametrize("fn", UNCERTAIN)
def test_what_runs_only_sometimes_is_no_write(fn: Callable[..., Any]) -> None:
    graph, compiled = co.make_fx(fn)(X), co.compile(fn)
    for values in (0.0, [3.0, 5.0]):
        with _kept(values):
            expected = fn(X)
            for call in (graph, compiled):
                np.testing.assert_array_equal(call(X), expected)
    assert not certainly_written(fn)


def test_names_that_the_code_assigns_lead_elsewhere() -> None:
    def renamed(self: Any) -> Any:
        self = SimpleNamespace(table=np.zeros(2))
        self.table[:] = 0.0

    def replaced(self: Any) -> None:
        self.table = np.zeros(2)
        self.table[:] = 0.0

    for fn in (renamed, replaced):
        assert not certainly_written(fn, (model,))
    assert certainly_written(Model.clear, (model,)) == [table]


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_traced_values_are_not_stored_into_arrays_from_outside(mode: Any) -> None:
    """So a store into one is one of plain values, which no graph has."""

    def store(x: Any) -> Any:
        table[:] = x
        return x + table

    def fill(x: Any) -> Any:
        table.fill(x[0])
        return x + table

    def put(x: Any) -> Any:
        table.put(0, x[0])
        return x + table

    for fn in (store, fill, put):
        with pytest.raises(co.CustomOpError):
            co.make_fx(fn, mode)(X)
        with pytest.raises(co.CustomOpError):
            co.compile(fn)(X)
        assert not table.any()
