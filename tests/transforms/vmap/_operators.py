"""Shared by the tests of vmap."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

_numbers = itertools.count()
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3))
Y = RNG.normal(size=(3, 4))

loops = pytest.mark.filterwarnings("ignore::customop.errors.CustomOpWarning")


def define(
    schema: str, fn: Callable[..., Any], written: tuple[str, ...] = (), **kwargs: Any
) -> co.Operator[..., Any]:
    """Make an operator of a new name."""
    name = f"batches::op{next(_numbers)}"
    return co.custom_op(name, fn, mutates_args=written, schema=schema, **kwargs)


def rows(fn: Callable[..., Any], *batches: Any) -> np.ndarray:
    """The results of a plain loop."""
    return np.stack([fn(*row) for row in zip(*batches, strict=True)])


looped = define("(Array x, Array y, float k=2.0) -> Array", lambda x, y, k: x * k + y)


def copy_into(x: np.ndarray, y: np.ndarray) -> None:
    x[...] = y
