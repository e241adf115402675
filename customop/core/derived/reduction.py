"""Rules from `Tag.reduction`, by the parameters `axis` and `keepdims`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from customop.arrays.dtypes import dtype_of
from customop.arrays.fake import FakeArray
from customop.arrays.kinds import device_of
from customop.arrays.numpy_functions import call_numpy
from customop.core.derived.pointwise import move_batch_first
from customop.core.table import RuleTable
from customop.errors import ShapeError
from customop.schema.tags import Tag
from customop.schema.types import ListOf, Maybe, is_array_type
from customop.shapes.sizes import product

__all__ = ["derive_fake", "derive_vmap"]


def _is_derivable(op: RuleTable) -> bool:
    """Whether the operator takes one array and returns arrays."""
    arrays = len(op.array_slots) == 1 and not op.nested_slots
    returns = op.schema.returns
    return (
        Tag.reduction in op.tags
        and arrays
        and bool(returns)
        and all(is_array_type(r.type) for r in returns)
    )


def derive_fake(op: RuleTable) -> Callable[..., Any] | None:
    """A fake kernel of a reduction, or None for other operators."""
    return partial(_reduced, op) if _is_derivable(op) else None


def _reduced(op: RuleTable, *args: Any, **keywords: Any) -> Any:
    """Fake results without the reduced axes, of the dtype of the input."""
    named = _named(op, (*args, *keywords.values()))
    x = args[0]
    axes = _axes(op, named["axis"], len(x.shape))
    kept = [1 if i in axes else n for i, n in enumerate(x.shape)]
    gone = [n for i, n in enumerate(x.shape) if i not in axes]
    shape = kept if named.get("keepdims") else gone
    out = FakeArray(shape, dtype_of(x), device=device_of(x))
    return (out,) * len(op.schema.returns) if op.schema.is_tuple else out


def _named(op: RuleTable, values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip([p.name for p in op.schema.parameters], values, strict=True))


def _axes(op: RuleTable, axis: Any, rank: int) -> tuple[int, ...]:
    """The reduced axes, counted from the front."""
    if axis is None:
        return tuple(range(rank))
    wanted = axis if isinstance(axis, list | tuple) else (axis,)
    for one in wanted:
        if not -rank <= one < rank:
            raise ShapeError(
                f"{op.qualname}: axis {one} of an array of {rank} axes",
                op.schema.show(op.qualname, "axis"),
                do=f"use an axis from {-rank} to {rank - 1}"
                if rank
                else "use axis=None for an array without axes",
                op=op.qualname,
                parameter="axis",
            )
    return tuple([one % rank for one in wanted])


def derive_vmap(op: RuleTable) -> Callable[..., Any] | None:
    """The batching rule of a reduction, or None for other operators."""
    return partial(_batch, op) if _is_derivable(op) else None


def _batch(
    op: RuleTable, info: Any, in_dims: Sequence[Any], *args: Any, **keywords: Any
) -> tuple[Any, Any]:
    """Reduce one axis further back, with the batch in front."""
    x = move_batch_first(args[0], in_dims[0])
    named = _named(op, (*args, *keywords.values()))
    axis, rank = named["axis"], len(x.shape) - 1
    many = op.schema.is_tuple
    dims = (0,) * len(op.schema.returns) if many else 0
    if axis is not None:
        axes = [i + 1 for i in _axes(op, axis, rank)]
        named["axis"] = axes if isinstance(axis, list | tuple) else axes[0]
        return op.invoke(_values(op, named, x)), dims
    # All axes of a row as one, which `axis` can name whatever its type.
    flat = call_numpy(np.reshape, x, (x.shape[0], product(x.shape[1:])))
    is_list = isinstance(_item(op), ListOf)
    keep = named.get("keepdims")
    named |= {"axis": [1] if is_list else 1} | ({"keepdims": False} if keep else {})
    out = op.invoke(_values(op, named, flat))
    if keep:
        shape = (x.shape[0], *(1,) * rank)
        outs = [call_numpy(np.reshape, o, shape) for o in (out if many else (out,))]
        out = tuple(outs) if many else outs[0]
    return out, dims


def _item(op: RuleTable) -> Any:
    declared = next(p.type for p in op.schema.parameters if p.name == "axis")
    return declared.item if isinstance(declared, Maybe) else declared


def _values(op: RuleTable, named: dict[str, Any], x: Any) -> list[Any]:
    """Values of all parameters in order, with another first array."""
    return [x, *[named[p.name] for p in op.schema.parameters[1:]]]
