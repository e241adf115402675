"""Operators that write their arguments, under torch.vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from customop.errors import GradientError, VmapError
from customop.interop.steps import Batch, Step, steps_of, text_of_steps
from customop.interop.torch.framework import (
    TransformType,
    transform_of_torch,
    unwrap_batched,
)
from customop.transforms.vmap import vmap

if TYPE_CHECKING:
    from customop.interop.torch.exported import Exported

__all__ = ["rows_of", "run_written"]


def run_written(
    exported: Exported,
    steps: Sequence[Step],
    leaves: Sequence[Any],
    arrays: Sequence[Any],
) -> None:
    """Run a batch of an operator, and write what it has written into the arrays."""
    for at, new in zip(
        _written_arrays(exported, leaves),
        _new(exported, steps, leaves, arrays),
        strict=True,
    ):
        if arrays[at] is None:
            continue
        target = arrays[at]
        for step in reversed(steps):
            assert isinstance(step, Batch)
            axis = step.axes[at]
            assert axis is not None
            target = np.moveaxis(target, axis, 0)
            break
        target[...] = new


def _written_arrays(exported: Exported, leaves: Sequence[Any]) -> list[int]:
    """Places of the written arrays in the flat list."""
    found: list[int] = []
    at = 0
    for i, leaf in enumerate(exported.signature.leaves):
        if leaf.is_array:
            count = (leaves[i] or 0) if leaf.is_list else 1
            if i in exported.signature.written:
                found += range(at, at + count)
            at += count
    return found


def _new(
    exported: Exported,
    steps: Sequence[Step],
    leaves: Sequence[Any],
    arrays: Sequence[Any],
) -> Sequence[Any]:
    """The new values of the written arrays, each with the axis of the last batch first."""
    written = _written_arrays(exported, leaves)
    if not steps:
        args, keywords = exported.signature.arguments(
            exported.filled(leaves, arrays)[0]
        )
        exported.op(*args, **keywords)
        return [arrays[at] for at in written]
    *before, step = steps
    assert isinstance(step, Batch)
    given = [i for i, value in enumerate(arrays) if value is not None]

    def of_rows(*rows: Any) -> tuple[Any, ...]:
        all_rows: list[Any] = [None] * len(arrays)
        for i, row in zip(given, rows, strict=True):
            all_rows[i] = row
        found = _new(exported, before, leaves, all_rows)
        return tuple(value for value in found if value is not None)

    axes = tuple(step.axes[i] for i in given)
    randomness: Any = step.randomness
    found = iter(
        vmap(of_rows, in_dims=axes, randomness=randomness)(*[arrays[i] for i in given])
    )
    return [None if arrays[at] is None else next(found) for at in written]


def rows_of(exported: Exported, *, is_first: bool) -> Callable[..., Any]:
    """The kernel of an operator that writes, under functional transforms of torch."""

    def transform(*args: Any, **keywords: Any) -> None:
        interpreter = transform_of_torch()
        if interpreter.key() != TransformType.Vmap:
            raise exported.op.error(
                GradientError,
                f" writes '{exported.op.schema.written[0]}' under torch.func: a write has"
                " no derivative",
                do="use an operator that returns a new array",
                parameter=exported.op.schema.written[0],
            )
        if is_first:
            steps: tuple[Step, ...] = ()
            values = exported.signature.values(*args, **keywords)
        else:
            steps, values = steps_of(args[0]), args[1:]
        leaves, tensors = exported.taken_out(values)
        level = interpreter.level()
        unwrap = unwrap_batched
        pairs = [(x, None) if x is None else unwrap(x, level) for x in tensors]
        with interpreter.lower():
            below = [value for value, _ in pairs]
            if all(axis is None for _, axis in pairs):
                _call_again(exported, steps, leaves, below)
                return
            for at in _written_arrays(exported, leaves):
                if tensors[at] is not None and pairs[at][1] is None:
                    raise _unbatched(exported)
            step = Batch(tuple(axis for _, axis in pairs), interpreter.randomness())
            _call_again(exported, (*steps, step), leaves, below)

    return transform


def _call_again(
    exported: Exported, steps: tuple[Step, ...], leaves: Sequence[Any], tensors: Any
) -> None:
    filled, _ = exported.filled(leaves, tensors)
    if steps:
        exported.rows(text_of_steps(steps), *filled)
        return
    positional, keywords = exported.signature.split(filled)
    exported.overload(*positional, **keywords)


def _unbatched(exported: Exported) -> VmapError:
    name = exported.op.schema.written[0]
    return exported.op.error(
        VmapError,
        f" writes '{name}', which is the same for all rows, under torch.vmap",
        do="give what is written an axis in in_dims",
        parameter=name,
    )
