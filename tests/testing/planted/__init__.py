"""Operators with planted faults, by the module of checks that finds them.

Each row makes an operator that is wrong in one thing, and its twin that is right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

import customop as co
from customop.arrays.nested import map_nested

A = np.ndarray
POINTWISE = (co.Tag.pointwise, co.Tag.flexible_layout)


class Row(NamedTuple):
    """A fault: a function that makes the operator, and what each check says of it.

    Words that depend on chance are left out: "".
    """

    build: Callable[[bool], Any]
    says: dict[str, str]


class Miss(NamedTuple):
    """A fault that no check finds: a function that makes the operator, and why."""

    build: Callable[[bool], Any]
    reason: str


ROWS: list[Row] = []
MISSES: list[Miss] = []


def planted(**says: str) -> Callable[[Callable[[bool], Any]], Callable[[bool], Any]]:
    """Enter a row; its function makes the operator, wrong or right."""

    def enter(build: Callable[[bool], Any]) -> Callable[[bool], Any]:
        ROWS.append(Row(build, says))
        return build

    return enter


def missed(
    reason: str,
) -> Callable[[Callable[[bool], Any]], Callable[[bool], Any]]:
    """Enter a fault that no check finds yet, with the reason."""

    def enter(build: Callable[[bool], Any]) -> Callable[[bool], Any]:
        MISSES.append(Miss(build, reason))
        return build

    return enter


@dataclass(frozen=True)
class Window:
    """A config object that holds an array."""

    taps: A
    gain: float = 2.0


def square(x: A) -> A:
    return x * x


numbers = itertools.count()


def define(
    fn: Callable[..., Any],
    mutates_args: Any = (),
    tags: Any = co.Tag.flexible_layout,
    **settings: Any,
) -> Any:
    """Make an operator under a new name."""
    settings = {"device_types": "cpu", **settings}
    name = f"planted::{fn.__name__}{next(numbers)}"
    return co.custom_op(name, fn, mutates_args=mutates_args, tags=tags, **settings)


def modeled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a right fake kernel: it runs `fn` on arrays of ones."""

    def real(leaf: Any) -> Any:
        return np.ones(leaf.shape, leaf.dtype) if type(leaf) is co.FakeArray else leaf

    def fake(leaf: Any) -> Any:
        is_array = isinstance(leaf, A | np.generic)
        return co.FakeArray(leaf.shape, leaf.dtype) if is_array else leaf

    @wraps(fn)
    def model(*args: Any) -> Any:
        return map_nested(fn(*[map_nested(value, real) for value in args]), fake)

    return model


def kept(*names: str) -> Callable[..., None]:
    """Make a `setup_context` that keeps all inputs by name, and the output."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        for name, value in zip(names, inputs, strict=False):
            setattr(ctx, name, value)
        ctx.out = output

    return setup
