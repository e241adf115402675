"""The cost of making an operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import peers
import pytest
from table import at_most, ratio
from timing import Statement

import customop as co

_numbers = itertools.count()


def _kernel(x: np.ndarray, k: float = 1.0) -> np.ndarray:
    return x * k


def _fake(x: co.FakeArray, k: float = 1.0) -> co.FakeArray:
    return co.fake_like(x)


def _backward(ctx: Any, g: Any) -> Any:
    return g, None


def _batch(info: Any, in_dims: Any, x: Any, k: float) -> Any:
    return x, in_dims[0]


def _bare() -> None:
    co.custom_op(f"bench_many::bare{next(_numbers)}", _kernel, mutates_args=())


def _full() -> None:
    (
        co.custom_op(f"bench_many::full{next(_numbers)}", _kernel, mutates_args=())
        .register_fake(_fake)
        .register_autograd(_backward)
        .register_vmap(_batch)
    )


@pytest.mark.parametrize("has_rules", [False, True])
def test_register(compare: Callable[..., None], *, has_rules: bool) -> None:
    """A function with hints, alone and with three rules."""
    ours = Statement("register()", {"register": _full if has_rules else _bare})
    statements = {"ours": ours, **peers.registered(has_rules=has_rules)}
    rules = "with fake, autograd, vmap rules" if has_rules else "alone"
    # Operators live as long as the process, so only a few are made.
    limits = at_most(150e-6), ratio("torch", 0.2)
    compare(f"register an operator, {rules}", statements, *limits, rounds=10)
