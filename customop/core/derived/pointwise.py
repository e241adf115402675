"""Rules from `Tag.pointwise`: batching by broadcasting, and fake kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from customop.arrays.describe import abbreviated
from customop.arrays.dtypes import dtype_of
from customop.arrays.fake import FakeArray, fake_like
from customop.arrays.kinds import FAKE, device_of, is_array
from customop.arrays.numpy_functions import call_numpy
from customop.core.derived.rows import pairs_of
from customop.core.table import RuleTable
from customop.errors import DataDependentError, ShapeError
from customop.schema.tags import Tag
from customop.schema.types import is_array_type
from customop.shapes.sizes import broadcast_sizes, same_shape

__all__ = ["align", "derive_fake", "derive_vmap", "move_batch_first", "rank_of_rows"]


def derive_vmap(op: RuleTable) -> Callable[..., Any] | None:
    """The batching rule of a pointwise operator, or None for other operators."""
    if Tag.pointwise not in op.tags or op.nested_slots:
        return None
    return partial(_batch_pointwise, op)


def _batch_pointwise(
    op: RuleTable, info: Any, in_dims: Sequence[Any], *args: Any, **keywords: Any
) -> tuple[Any, Any]:
    """Put batches first and pad, so that NumPy's broadcasting pairs the rows."""
    pairs = pairs_of(in_dims, args, keywords)
    rank = rank_of_rows(pairs)
    out = op.invoke([align(v, d, rank) for v, d in pairs])
    return out, (0,) * len(op.schema.returns) if op.schema.is_tuple else 0


def rank_of_rows(pairs: Sequence[tuple[Any, int | None]]) -> int:
    """Number of axes of the rows, given arrays and their batch axes."""
    ranks = [v.ndim - (d is not None) for v, d in pairs if is_array(v)]
    return max(ranks, default=0)


def align(value: Any, dim: int | None, rank: int) -> Any:
    """A view of the array with its batch axis in front of `rank` others."""
    if dim is None:
        return value
    first = move_batch_first(value, dim)
    missing = rank - (first.ndim - 1)
    if not missing:
        return first
    shape = (first.shape[0], *(1,) * missing, *first.shape[1:])
    if type(first) is np.ndarray:
        return first.reshape(shape)
    return call_numpy(np.reshape, first, shape)


def move_batch_first(value: Any, dim: int) -> Any:
    """The array with its batch axis at the front."""
    return value if dim == 0 else call_numpy(np.moveaxis, value, dim, 0)


# ---- shapes ----


def derive_fake(op: RuleTable) -> Callable[..., Any] | None:
    """A fake kernel of a pointwise operator that returns arrays, or None."""
    if Tag.pointwise not in op.tags or op.nested_slots:
        return None
    if not all(is_array_type(r.type) for r in op.schema.returns):
        return None
    return partial(_broadcast, op)


def _broadcast(op: RuleTable, *args: Any, **keywords: Any) -> Any:
    """Fake results with the shape and dtype of a sum of the arguments in NumPy."""
    values = (*args, *keywords.values())
    # As in NumPy, only the kind of a Python number affects the dtype.
    numbers = [v for v in values if type(v) in (int, float, complex)]
    arrays = [v for v in values if is_array(v)]
    if not arrays and not numbers:
        raise op.error(
            DataDependentError,
            " has no fake kernel for a call without arrays",
            do=f"@{op.name}.register_fake, a function that returns a FakeArray",
            kind=FAKE,
        )
    dtype = np.result_type(*[dtype_of(v) for v in arrays], *numbers)
    shape = _shape(op, arrays)
    like = next((v for v in arrays if same_shape(v.shape, shape)), None)
    if like is not None:
        out = fake_like(like, dtype=dtype, device=_device(arrays))
    else:
        out = FakeArray(shape, dtype, device=_device(arrays))
    return (out,) * len(op.schema.returns) if op.schema.is_tuple else out


def _shape(op: RuleTable, arrays: Sequence[Any]) -> tuple[int, ...]:
    try:
        return broadcast_sizes(*[v.shape for v in arrays])
    except ValueError:
        seen = ", ".join(abbreviated(v) for v in arrays)
        raise op.error(
            ShapeError,
            f"the shapes of {seen} do not fit together",
            do="pass arrays that NumPy can broadcast",
        ) from None


def _device(arrays: Sequence[Any]) -> str:
    """The device of a call; ``cuda:0`` is preferred to ``cuda``."""
    names = [device_of(v) for v in arrays]
    return max(names, key=lambda name: ":" in name, default="cpu")
