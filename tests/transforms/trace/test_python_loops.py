"""Python loops over symbolic sizes: a guard, and an error that names the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.arange(6.0).reshape(3, 2)


def by_number(x: Any) -> Any:
    total = 0 * x[0]
    for i in range(x.shape[0]):  # here
        total = total + i * x[i]
    return total


def by_row(x: Any) -> Any:
    total = 0 * x[0]
    for row in x:  # here
        total = total + row
    return total


def numbered(x: Any) -> Any:
    total = 0 * x[0]
    for i, row in enumerate(x):  # here
        total = total + i * row
    return total


def in_steps(x: Any) -> Any:
    return sum([x[i] for i in range(0, len(x), 2)])  # here


def unpacked(x: Any) -> Any:
    first, *_, last = x  # here
    return first * last


def backwards(x: Any) -> Any:
    return np.stack([row * 2 for row in reversed(x)])  # here


FUNCTIONS: list[Callable[[Any], Any]] = [
    by_number,
    by_row,
    numbered,
    in_steps,
    unpacked,
    backwards,
]


def line_of(fn: Any) -> str:
    """The line that asks."""
    first = fn.__code__.co_firstlineno
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    at = next(i for i in range(first, len(lines)) if "# here" in lines[i])
    return f"{__file__}:{at + 1}"


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_a_guard(fn: Any) -> None:
    """The loop is in the graph as often as it ran; another length is an error."""
    graph: Any = co.make_fx(fn, "symbolic")(X)
    np.testing.assert_array_equal(graph(X - 2), fn(X - 2))
    np.testing.assert_array_equal(
        graph(X[:, :1]), fn(X[:, :1])
    )  # the other axis is free
    assert [guard.kind for guard in graph.graph.sizes.guards] == ["number"]
    for length in (0, 2, 4):
        with pytest.raises(co.GuardError) as caught:
            graph(np.ones((length, 2)))
        lines = str(caught.value).splitlines()
        assert lines[0] == (
            f"the graph holds only where s0 == 3: s0 = x.shape[0] is {length}"
        )
        assert lines[1] == f"  asked at {line_of(fn)}"
        assert lines[-1] == (
            "  do: trace the function again for such sizes; or keep the size there:"
            " co.scan(f, init, x) or co.fori_loop(0, n, ...) in place of a loop over it,"
            " np.arange(n, like=x)"
        )


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_a_size_with_a_name(fn: Any) -> None:
    """It cannot become a number, and the error names the line."""
    with pytest.raises(co.SizeError) as caught:
        co.make_fx(fn, sizes={"x": ("n", 2)})(X)
    lines = str(caught.value).splitlines()
    assert lines[0] == "the number n is asked, and n may be any size"
    assert lines[1] == f"  at {line_of(fn)}"


def test_the_ways_out() -> None:
    """What the errors say keeps the size."""

    def fn(x: Any) -> Any:
        n = x.shape[0]
        rows = co.scan(lambda total, row: (total + row, None), 0 * x[0], x)[0]
        counted = co.fori_loop(0, n, lambda i, total: total + i, np.sum(x[0]) * 0)
        return rows * counted + np.sum(np.arange(n, like=x))

    graph: Any = co.make_fx(fn, sizes={"x": ("n", 2)})(X)
    for length in (1, 3, 5):
        x = np.random.default_rng(length).normal(size=(length, 2))
        numbers = length * (length - 1) // 2
        np.testing.assert_allclose(graph(x), np.sum(x, 0) * numbers + numbers)


def test_files_keep_the_reason(tmp_path: Path) -> None:
    """A loaded graph says the same."""
    graph: Any = co.make_fx(by_row, "symbolic")(X)
    graph.save(tmp_path / "f.graph")
    again: Any = co.load_graph(tmp_path / "f.graph")
    messages = []
    for each in (graph, again):
        with pytest.raises(co.GuardError) as caught:
            each(np.ones((5, 2)))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
