"""Rules from `Tag.inplace` and `Tag.out`.

An in-place operator writes its first array and returns it. An out operator writes its
keyword-only arrays and returns them in order. Since the results are arguments, a fake
kernel and a batching rule follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from customop.core.derived.pointwise import align, rank_of_rows
from customop.core.derived.rows import pairs_of, run_rows
from customop.core.table import RuleTable
from customop.schema.tags import Tag

__all__ = [
    "derive_fake",
    "derive_vmap",
    "returned_slots",
]


def returned_slots(op: RuleTable) -> list[int]:
    """Numbers of the arguments that are returned; empty without the tags."""
    if Tag.inplace not in op.tags and Tag.out not in op.tags:
        return []
    return [i for i, p in enumerate(op.schema.parameters) if p.is_written]


def _returned(op: RuleTable, values: Sequence[Any]) -> Any:
    """The result of a call: those of its arguments that are returned."""
    found = tuple(values[slot] for slot in returned_slots(op))
    return found if op.schema.is_tuple else found[0]


def derive_fake(op: RuleTable) -> Callable[..., Any] | None:
    """A fake kernel of an operator that returns its arguments or nothing, or None."""
    if returned_slots(op):
        return lambda *args, **keywords: _returned(op, (*args, *keywords.values()))
    return None if op.schema.returns else _return_nothing


def _return_nothing(*args: Any, **keywords: Any) -> None:
    """The fake kernel of an operator without a result."""


def derive_vmap(op: RuleTable) -> Callable[..., Any] | None:
    """The batching rule of an operator that returns its arguments, or None."""
    if not returned_slots(op) or op.sees_seed:
        return None
    return partial(_batch, op)


def _batch(
    op: RuleTable, info: Any, in_dims: Sequence[Any], *args: Any, **keywords: Any
) -> tuple[Any, Any]:
    """Write all rows, and return the arguments themselves."""
    pairs = pairs_of(in_dims, args, keywords)
    if Tag.pointwise in op.tags and not op.nested_slots:
        rank = rank_of_rows(pairs)
        op.invoke([align(value, dim, rank) for value, dim in pairs])
    else:
        run_rows(op, pairs, info.batch_size)
    values, dims = zip(*pairs, strict=True)
    return _returned(op, values), _returned(op, dims)
