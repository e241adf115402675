"""Costs of looking an operator up, choosing an overload, and a config object."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import peers
import pytest
from table import ratio
from timing import Statement

import customop as co

X = np.array([0.1, 0.2, 0.3])


@dataclasses.dataclass(frozen=True)
class Config:
    """Three settings in one argument."""

    a: float
    b: int
    c: bool


def configured(x: np.ndarray, y: np.ndarray, config: Config) -> np.ndarray:
    """Two arrays and a config object of three fields."""
    return x * y


@pytest.fixture
def library() -> Iterator[co.Library]:
    """An operator with two overloads."""
    with co.Library("bench_overloads", "DEF") as library:
        library.define("plus.Array(Array x, Array y) -> Array")
        library.define("plus.Scalar(Array x, float y) -> Array")
        library.impl("plus.Array", lambda x, y: x + y, "CPU")
        library.impl("plus.Scalar", lambda x, y: x + y, "CPU")
        yield library


def test_look_up(compare: Callable[..., None]) -> None:
    """An operator by its dotted name, looked up before."""
    ours = Statement("ops.np.sin.default", {"ops": co.ops})
    statements = {"ours": ours, **peers.looked_up()}
    compare("ops.ns.name.overload", statements, ratio("torch", None))


@pytest.mark.parametrize("second", [2.0, X], ids=["number", "array"])
def test_overload(
    compare: Callable[..., None], library: co.Library, second: object
) -> None:
    """A packet that chooses among two overloads, the second and the first."""
    packet = co.ops.bench_overloads.plus
    ours = Statement("op(x, y)", {"op": packet, "x": X, "y": second})
    statements = {"ours": ours, **peers.overloaded(X, second)}
    which = "number" if isinstance(second, float) else "array"
    compare(f"overload by a second {which}", statements, ratio("torch", None))


def test_config_object(compare: Callable[..., None]) -> None:
    """Five values, three of them in a config object; torch takes them one by one."""
    op = co.custom_op("bench::configured", configured, mutates_args=())
    names = {"op": op, "x": X, "y": X, "config": Config(2.0, 3, c=True)}
    ours = Statement("op(x, y, config)", names)
    others = {k: v for k, v in peers.five(configured, X, X).items() if k == "torch"}
    title = "call, 2 arrays and a config object of 3"
    compare(title, {"ours": ours, **others}, ratio("torch", None))
