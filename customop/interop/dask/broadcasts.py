"""Arrays that remember what they are made of: one array in a larger shape, or constants.

A gradient of a sum is one number in the shape of what was summed. dask would cut it into as
many chunks as the other arrays have, each with a task. A pointwise operator takes the number
itself; where it is known, as the 1 that a gradient begins with is, there is no task at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat, map_nested
from customop.core.table import RuleTable

__all__ = ["broadcast", "filled", "on_sources"]

# The attribute of an array that holds its name, and the array before or a constant.
_SOURCE = "customop_source"


def broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    """An array in a larger shape, with a note of itself."""
    out = da.broadcast_to(x, shape)
    return out if out is x else _noted(out, source(x))


def filled(out: Any, value: Any) -> Any:
    """An array with a note of the number that all its elements are."""
    return _noted(out, np.asarray(value, out.dtype))


def _noted(out: Any, found: Any) -> Any:
    setattr(out, _SOURCE, (out.name, found))
    return out


def source(x: Any) -> Any:
    """The array that another one was made from; other values as they are."""
    name, found = getattr(x, _SOURCE, ("", x)) if isinstance(x, da.Array) else ("", x)
    # An array that was written to since has another name.
    return found if found is x or name == x.name else x


def _own_source(x: Any) -> Any:
    """Return the source of an array; one without axes as a scalar, part of each task.

    As an array it would be a task that every worker waits for.
    """
    found = source(x)
    return found[()] if isinstance(found, np.ndarray) else found


def on_sources(op: RuleTable, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of a pointwise operator that runs on what arrays were made from."""

    def run(*args: Any, **keywords: Any) -> Any:
        values = [*args, *keywords.values()]
        arrays = [v for value in values for v in flat(value) if is_array(v)]
        if all(source(v) is v for v in arrays) or _is_open(arrays):
            return kernel(*args, **keywords)
        shape = np.broadcast_shapes(*[tuple(v.shape) for v in arrays])
        given = [map_nested(v, _own_source) for v in args]
        named = {name: map_nested(v, _own_source) for name, v in keywords.items()}
        if not any(isinstance(source(v), da.Array) for v in arrays):
            found = op.invoke([*given, *named.values()])
            return map_nested(found, lambda y: _constant(y, shape))
        out = kernel(*given, **named)
        return map_nested(out, lambda x: x if x.shape == shape else broadcast(x, shape))

    return run


def _constant(value: Any, shape: tuple[int, ...]) -> Any:
    """A constant of NumPy in a larger shape, as an array of dask."""
    number = np.asarray(value)
    if number.ndim:
        return broadcast(da.from_array(number), shape)
    return broadcast(filled(da.asarray(number), number), shape)


def _is_open(arrays: list[Any]) -> bool:
    """Whether the length of an axis is not known."""
    return any(type(n) is float for v in arrays for n in v.shape)
