"""What `Tag.inplace` and `Tag.out` say, and what follows from it.

An in-place operator writes its first array and returns it; an out operator writes the
arrays that it takes by keyword alone and returns them in order. So their results are
arguments: the schema says it, a fake kernel and a batching rule need nothing more.
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
    """Places of the arguments that are the results; none without the tags."""
    if Tag.inplace not in op.tags and Tag.out not in op.tags:
        return []
    return [i for i, p in enumerate(op.schema.parameters) if p.is_written]


def _returned(op: RuleTable, values: Sequence[Any]) -> Any:
    """The arguments among these values that are the result, as it is returned."""
    found = tuple(values[slot] for slot in returned_slots(op))
    return found if op.schema.is_tuple else found[0]


def derive_fake(op: RuleTable) -> Callable[..., Any] | None:
    """A fake kernel of an operator that returns its arguments, or nothing at all."""
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
    """Write all rows, and return the very arrays that were given."""
    pairs = pairs_of(in_dims, args, keywords)
    if Tag.pointwise in op.tags and not op.nested_slots:
        rank = rank_of_rows(pairs)
        op.invoke([align(value, dim, rank) for value, dim in pairs])
    else:
        run_rows(op, pairs, info.batch_size)
    values, dims = zip(*pairs, strict=True)
    return _returned(op, values), _returned(op, dims)
