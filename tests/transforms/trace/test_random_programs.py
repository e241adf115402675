"""Random programs as graphs: on other values, on other sizes, in place, transformed, in threads.

The oracle is the function itself, which runs on plain arrays.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from tests.numpy._random_programs import Draw, program
from tests.transforms import test_in_place_programs as in_place

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("ignore"),
]
# Where a shape depends on data, or a function looks at values, there is no graph.
REFUSED = (co.DataDependentError, co.MissingRuleError)
# Other lengths of axes for all arguments at once.
OTHERS = [{2: 3, 3: 4}, {3: 5}, {1: 2}, {2: 1, 3: 1, 4: 1}, {1: 0, 2: 0, 3: 0}, {4: 6}]


def copied(values: list[Any]) -> list[Any]:
    return [np.copy(v) if isinstance(v, np.ndarray) else v for v in values]


def run(fn: Callable[..., Any], args: list[Any]) -> tuple[Any, Exception | None]:
    """The leaves of a result, or the error."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return optree.tree_leaves(fn(*copied(args))), None
        except Exception as error:  # noqa: BLE001  # any error is compared
            return None, error


def assert_near(found: Any, expected: Any, told: str) -> None:
    """Raise unless results agree; operators may sum in another order than NumPy."""
    assert len(found) == len(expected), told
    for a, b in zip(map(np.asarray, found), map(np.asarray, expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), told
        if a.dtype.kind not in "fc":
            np.testing.assert_array_equal(a, b, told)
            continue
        near = 1e-9 if np.finfo(a.dtype).eps < 1e-9 else 2e-2
        np.testing.assert_allclose(a, b, near, near, err_msg=told)


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("start", [0, 300])
def test_values(start: int, mode: Any) -> None:
    """Results are those of the function."""
    for seed in range(start, start + 300):
        told, fn, arrays = program(Draw(seed))
        expected, error = run(fn, arrays)
        if error is not None:
            continue
        try:
            graph = co.make_fx(fn, mode)(*arrays)
        except REFUSED:
            continue
        found, error = run(graph, arrays)
        assert error is None, (seed, told, error)
        assert_near(found, expected, f"{seed} {told}")


def resized(value: Any, lengths: dict[int, int]) -> Any:
    """An array with other lengths of axes."""
    if not isinstance(value, np.ndarray):
        return value
    shape = tuple(lengths.get(n, n) for n in value.shape)
    found = np.resize(value, shape) if value.size else np.zeros(shape)
    return found.astype(value.dtype)


@pytest.mark.parametrize("start", [0, 120])
def test_other_sizes(start: int) -> None:
    """A graph with symbolic sizes is right for sizes that meet its guards, or raises."""
    compared = 0
    for seed in range(start, start + 80):
        told, fn, arrays = program(Draw(seed))
        if run(fn, arrays)[1] is not None:
            continue
        try:
            graph = co.make_fx(fn, "symbolic")(*arrays)
        except (*REFUSED, AttributeError, IndexError):  # of empty arrays
            continue
        assert run(graph, arrays)[1] is None, (seed, told)
        for lengths in OTHERS:
            other = [resized(v, lengths) for v in arrays]
            found, error = run(graph, other)
            expected, plain_error = run(fn, other)
            if error is None and plain_error is None:
                assert_near(found, expected, f"{seed} {told} {lengths}")
                compared += 1
    assert compared > 200


def check_in_place(seed: int, mode: Any) -> bool:
    """Compare a program that writes to its input, and its transforms, with the function.

    False for a program that cannot be traced, or whose shapes depend on data.
    """
    steps, x = in_place.program(seed)
    fn, loss = in_place.results(steps), in_place.loss(steps)
    try:
        graph = co.make_fx(fn, mode)(x)
        slope = co.make_fx(co.grad(loss), mode)(x)
        rows = co.make_fx(co.vmap(co.grad(loss)), mode)(np.stack([x, -x]))
    except REFUSED:
        return False
    if any(node.name.startswith("nonzero") for node in graph.graph.nodes):
        return False
    for number in range(3):
        y = np.random.default_rng(number).normal(size=x.shape)
        a, b = y.copy(), y.copy()
        expected = fn(b)
        told = f"{seed} {mode} {number}"
        assert_near([*graph(a), a], [*expected, b], told)
        batch = np.stack([y, 0.5 * y])
        assert_near([slope(y)], [co.grad(loss)(y)], told)
        assert_near([rows(batch)], [co.vmap(co.grad(loss))(batch)], told)
        assert_near(list(co.vmap(graph)(batch)), list(co.vmap(fn)(batch)), told)
    return True


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_in_place_programs(mode: Any) -> None:
    """Writes to arguments and views are replayed, also under transforms."""
    count = 0
    for seed in range(24):
        try:
            count += check_in_place(seed, mode)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert count >= 5


def test_threads() -> None:
    """Graphs are traced and run in several threads at once."""
    seeds = random.Random(0).sample(range(1000), 12)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: check_in_place(seed, "fake"), seeds))
