"""Operators of probed functions, and the shapes of their samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import customop as co
from customop.testing import Sample
from customop.testing.inputs.sample_values import arrays_in


def operator(fn: Callable[..., Any], fake: Any = None, **options: Any) -> Any:
    """Make an operator of a function; each test makes its own."""
    given = {"mutates_args": (), **options}
    op = co.custom_op(f"probed::{fn.__name__.strip('_')}", fn, **given)
    return op if fake is None else op.register_fake(fake, override=True)


def shapes_of(op: Any, sample: Sample) -> list[tuple[int, ...]]:
    return [x.shape for _, x, _ in arrays_in(op, sample)]
