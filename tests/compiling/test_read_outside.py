"""What compiled functions read from outside: environment variables, bytes, iterators."""

from __future__ import annotations

import itertools
import os
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.ones(2)


@pytest.mark.parametrize(
    "read",
    [
        lambda: float(os.environ["CUSTOMOP_SCALE"]),
        lambda: float(os.getenv("CUSTOMOP_SCALE", "7")),
        lambda: "CUSTOMOP_SCALE" in os.environ,
        lambda: sum(float(v) for k, v in os.environ.items() if k == "CUSTOMOP_SCALE"),
    ],
    ids=["item", "getenv", "in", "items"],
)
def test_environment_variables_are_looked_at(
    read: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTOMOP_SCALE", "2.5")
    monkeypatch.setenv("CUSTOMOP_OTHER", "2")
    f = co.compile(lambda x: x * read())
    for value in ("2.5", "3.5"):
        monkeypatch.setenv("CUSTOMOP_SCALE", value)
        np.testing.assert_array_equal(f(X), X * read())
        np.testing.assert_array_equal(co.grad(lambda x: f(x).sum())(X), X * read())
    assert len(f.graphs) == 2
    assert "variable 'CUSTOMOP_SCALE' is '3.5', was '2.5'" in str(f.explain())


def test_variables_that_were_missing_or_are_of_no_concern(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUSTOMOP_SCALE", raising=False)
    f = co.compile(lambda x: x * float(os.environ.get("CUSTOMOP_SCALE", "5")))
    assert f(X).tolist() == [5, 5]
    monkeypatch.setenv("CUSTOMOP_OTHER", "1")
    assert f(X).tolist() == [5, 5]
    assert len(f.graphs) == 1
    monkeypatch.setenv("CUSTOMOP_SCALE", "4")
    assert f(X).tolist() == [4, 4]
    monkeypatch.delenv("CUSTOMOP_SCALE")
    assert f(X).tolist() == [5, 5]


def test_a_function_that_sets_a_variable_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUSTOMOP_SCALE", "2.5")

    def sets(x: Any) -> Any:
        os.environ["CUSTOMOP_SCALE"] = "3"
        return x * float(os.environ["CUSTOMOP_SCALE"])

    with pytest.raises(co.GraphError, match="assigns the environment variable"):
        co.compile(sets)(X)
    assert os.environ["CUSTOMOP_SCALE"] == "2.5"


SHORT = bytearray(b"\x01\x02")


@pytest.mark.parametrize(
    "values",
    [SHORT, array("d", [1.0, 2.0]), memoryview(SHORT)],
    ids=["bytearray", "array", "memoryview"],
)
def test_bytes_are_compared(values: Any) -> None:
    f = co.compile(lambda x: x * values[0])
    given = co.compile(lambda x, values: x * values[0])
    for first in (1, 5, 5):
        values[0] = first
        assert f(X).tolist() == given(X, values).tolist() == [first, first]
    assert len(f.graphs) == len(given.graphs) == 2
    assert "'values' of the closure of <lambda> was written" in str(f.explain())


class Counting:
    """Has an iterator as an attribute."""

    def __init__(self) -> None:
        self.numbers = itertools.count()

    def apply(self, x: Any) -> Any:
        return x + next(self.numbers)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: iter([1.0, 2.0, 3.0]), "a list_iterator"),
        (itertools.count, "a count"),
        (lambda: (n for n in range(9)), "a generator"),
        (lambda: zip([1.0, 2.0], [3.0, 4.0], strict=True), "a zip"),
    ],
    ids=["list", "count", "generator", "zip"],
)
def test_an_iterator_from_outside_is_refused_before_it_is_used(
    make: Callable[[], Any], kind: str
) -> None:
    """As a cell and as an argument; the message names the line that uses it."""
    numbers = make()

    def fn(x: Any) -> Any:
        y = x + 1.0
        return y + next(numbers)

    line = fn.__code__.co_firstlineno + 2
    with pytest.raises(co.GraphError, match=rf"{kind}: .*\n.*used at .*:{line}\n"):
        co.compile(fn)(X)
    with pytest.raises(co.GraphError, match=rf"uses numbers, {kind}: "):
        co.compile(lambda x, numbers: x + next(numbers))(X, numbers)
    assert next(numbers) == next(make())


def test_iterators_of_attributes_and_of_the_function_itself() -> None:
    counting = Counting()
    with pytest.raises(co.GraphError, match=r"uses Counting.numbers, a count: "):
        co.compile(counting.apply)(X)
    free = co.compile(counting.apply, fallback=True)
    assert [free(X)[0] for _ in range(3)] == [1, 2, 3]

    def sums(x: Any) -> Any:
        return sum(n * x for n in iter([1.0, 2.0]))

    own = co.compile(sums)
    assert own(X).tolist() == own(X).tolist() == [3, 3]


@pytest.mark.parametrize(
    ("held", "take"),
    [
        ([1.0, 2.0], list.pop),
        ({"a": 1.0, "b": 2.0}, lambda held: held.pop("b")),
        (deque([1.0, 2.0]), deque.popleft),
        ({2.0}, set.pop),
    ],
    ids=["list", "dict", "deque", "set"],
)
def test_taking_items_out_of_a_container_is_refused(held: Any, take: Any) -> None:
    before = held.copy()
    f = co.compile(lambda x: x * take(held))
    for _ in range(2):
        with pytest.raises(co.GraphError, match="takes something out of 'held' of the"):
            f(X)
        assert held == before


@pytest.mark.parametrize(
    ("held", "replace"),
    [
        ([1.0], lambda held: held.__setitem__(0, held[0] + 1.0)),
        ({"k": 1.0}, lambda held: held.update(k=held["k"] + 1.0)),
        (deque([1.0]), lambda held: held.__setitem__(0, held[0] + 1.0)),
        ([np.ones(2)], lambda held: held.__setitem__(0, held[0] + 1.0)),
    ],
    ids=["list", "dict", "deque", "array"],
)
def test_replacing_an_item_is_refused(held: Any, replace: Any) -> None:
    """A graph would use the first item for ever."""
    before = [*held.values()] if isinstance(held, dict) else [*held]

    def fn(x: Any) -> Any:
        replace(held)
        return x * np.sum(next(iter(held.values() if isinstance(held, dict) else held)))

    for _ in range(2):
        with pytest.raises(co.GraphError, match="replaces an item of 'held' of the"):
            co.compile(fn)(np.ones(3))
        now = [*held.values()] if isinstance(held, dict) else [*held]
        assert all(a is b for a, b in zip(before, now, strict=True))


@pytest.mark.parametrize(
    "held", [bytearray(b"12"), array("d", [1.0, 2.0])], ids=["bytearray", "array"]
)
def test_writing_bytes_is_refused(held: Any) -> None:
    before = bytes(held)

    def fn(x: Any) -> Any:
        held[0] += 1
        return x * held[0]

    with pytest.raises(co.GraphError, match="writes to 'held' of the closure"):
        co.compile(fn)(np.ones(3))
    assert bytes(held) == before


def test_an_equal_item_may_be_put_in_again() -> None:
    held = [2.0]

    def fn(x: Any) -> Any:
        held[0] = float("2.0")
        return x * held[0]

    np.testing.assert_array_equal(co.compile(fn)(np.ones(3)), np.full(3, 2.0))
