"""Broadcast arrays that remember what they are made of.

A gradient of a sum is one number in the shape of what was summed. dask would cut it into as
many chunks as the other arrays have, each with a task. A pointwise operator takes the number
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat, map_nested

__all__ = ["broadcast", "on_sources"]

# The attribute of a broadcast array that holds the array before.
_SOURCE = "customop_source"


def broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    """An array in a larger shape, with a note of itself."""
    out = da.broadcast_to(x, shape)
    if out is not x:
        setattr(out, _SOURCE, source(x))
    return out


def source(x: Any) -> Any:
    """What an array was broadcast from; other values as they are."""
    return getattr(x, _SOURCE, x) if isinstance(x, da.Array) else x


def on_sources(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of a pointwise operator that runs on arrays before they were broadcast."""

    def run(*args: Any, **keywords: Any) -> Any:
        values = [*args, *keywords.values()]
        arrays = [v for value in values for v in flat(value) if is_array(v)]
        if not any(hasattr(v, _SOURCE) for v in arrays) or _is_open(arrays):
            return kernel(*args, **keywords)
        given = [map_nested(v, source) for v in args]
        named = {name: map_nested(v, source) for name, v in keywords.items()}
        shape = np.broadcast_shapes(*[tuple(v.shape) for v in arrays])
        out = kernel(*given, **named)
        return map_nested(out, lambda x: x if x.shape == shape else broadcast(x, shape))

    return run


def _is_open(arrays: list[Any]) -> bool:
    """Whether the length of an axis is not known."""
    return any(type(n) is float for v in arrays for n in v.shape)
