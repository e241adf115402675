"""The axes of a mesh over which arrays vary inside of ``jax.shard_map``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.core import ShapedArray
from jax.sharding import NamedSharding, PartitionSpec


def _axes_of(aval: Any) -> frozenset[Any]:
    found = getattr(aval, "manual_axis_type", None)  # new in JAX 0.10
    return frozenset() if found is None else frozenset(found.varying)


def alike(arrays: Sequence[Any]) -> list[Any]:
    """Let arrays vary over the same axes; then cotangents of equal arrays are summed."""
    axes = [_axes_of(jax.typeof(x)) for x in arrays]
    every = frozenset[Any]().union(*axes)
    return [
        jax.lax.pcast(x, tuple(every - own), to="varying") if every - own else x
        for x, own in zip(arrays, axes, strict=True)
    ]


def varying(avals: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Return the types of results that vary as the arguments do."""
    given = next((aval for aval in avals if _axes_of(aval)), None)
    if given is None:
        return [*results]
    return [
        ShapedArray(
            y.shape,
            y.dtype,
            sharding=NamedSharding(
                given.sharding.mesh, PartitionSpec(*[None] * y.ndim)
            ),
            manual_axis_type=given.manual_axis_type,
        )
        for y in results
    ]
