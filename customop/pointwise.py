"""What `Tag.pointwise` gives for free: batching by broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from customop.dispatch import is_array
from customop.kinds import Tag
from customop.protocols import call_numpy

__all__ = ["derive_vmap", "move_batch_first"]


def derive_vmap(op: Any) -> Callable[..., Any] | None:
    """The batching rule of a pointwise operator, or None for other operators."""
    if Tag.pointwise not in op.tags or op.nested_slots:
        return None
    return partial(_batch_pointwise, op)


def _batch_pointwise(
    op: Any, info: Any, in_dims: Sequence[Any], *args: Any, **keywords: Any
) -> tuple[Any, Any]:
    """Put batches first and pad, so that NumPy's broadcasting pairs the rows."""
    values = (*args, *keywords.values())
    dims = (*in_dims, *(None,) * (len(values) - len(in_dims)))
    pairs = list(zip(values, dims, strict=True))
    rank = max(
        (v.ndim - (d is not None) for v, d in pairs if is_array(v)),
        default=0,
    )
    out = op.invoke([_align(v, d, rank) for v, d in pairs])
    return out, (0,) * len(op.schema.returns) if op.schema.is_tuple else 0


def _align(value: Any, dim: int | None, rank: int) -> Any:
    if dim is None:
        return value
    first = move_batch_first(value, dim)
    missing = rank - (first.ndim - 1)
    if not missing:
        return first
    shape = (first.shape[0], *(1,) * missing, *first.shape[1:])
    return call_numpy(np.reshape, first, shape)


def move_batch_first(value: Any, dim: int) -> Any:
    """The array with its batch axis at the front."""
    return value if dim == 0 else call_numpy(np.moveaxis, value, dim, 0)
