"""Objects of xarray as pytrees: their arrays are the leaves, the labels the structure."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.arrays.pytree import register_node
from customop.errors import ShapeError
from customop.interop.xarray.framework import xarray

__all__ = ["Labelling", "arrays_of", "register_trees"]


class Labelling:
    """An object of xarray without its data: dims, coordinates, names and attributes.

    Attributes
    ----------
    empty : DataArray, Variable or Dataset
        The object, with zeros that take no memory.
    """

    __slots__ = ("empty",)

    def __init__(self, value: Any) -> None:
        self.empty: Any = value.copy(deep=False, data=_zeros(value))

    def __eq__(self, other: object) -> bool:
        """Dims, coordinates and names of variables are the same; attributes may differ."""
        if not isinstance(other, Labelling) or type(self.empty) is not type(
            other.empty
        ):
            return NotImplemented
        return self is other or bool(self.empty.equals(other.empty))

    def __hash__(self) -> int:
        return hash((type(self.empty), frozenset(self.empty.sizes.items())))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {n}" for name, n in self.empty.sizes.items())
        return f"{type(self.empty).__name__}({sizes})"

    @property
    def dims(self) -> list[tuple[Any, ...]]:
        """The dims of each leaf."""
        if isinstance(self.empty, xarray.Dataset):
            return [x.dims for x in self.empty.data_vars.values()]
        return [self.empty.dims]

    def filled(self, leaves: Any) -> Any:
        """The object with other data."""
        leaves = [_with_shape(leaf) for leaf in leaves]
        if not isinstance(self.empty, xarray.Dataset):
            self._check(self.empty, leaves[0])
            return self.empty.copy(deep=False, data=leaves[0])
        names = list(self.empty.data_vars)
        for name, leaf in zip(names, leaves, strict=True):
            self._check(self.empty[name], leaf)
        return self.empty.copy(deep=False, data=dict(zip(names, leaves, strict=True)))

    def _check(self, part: Any, leaf: Any) -> None:
        if tuple(leaf.shape) == part.shape:
            return
        name = f" '{part.name}'" if getattr(part, "name", None) is not None else ""
        raise ShapeError(
            f"{type(part).__name__}{name} has dims {part.dims} of lengths {part.shape},"
            f" and was to hold an array of shape {tuple(leaf.shape)}",
            do="for batches over a dim call customop.interop.xarray.vmap(fn, dim); in"
            " other transforms that change shapes pass x.data",
        )


def _zeros(value: Any) -> Any:
    if isinstance(value, xarray.Dataset):
        return {name: _zeros(x) for name, x in value.data_vars.items()}
    return np.broadcast_to(np.float64(0.0), value.shape)


def _with_shape(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "shape") else np.asarray(leaf, object)


def arrays_of(value: Any) -> list[Any]:
    """The data of an object of xarray: of a Dataset, those of its variables in order."""
    if isinstance(value, xarray.Dataset):
        return [x.data for x in value.data_vars.values()]
    return [value.data]


def _flatten_one(value: Any) -> tuple[list[Any], Labelling]:
    return arrays_of(value), Labelling(value)


def _flatten_all(value: Any) -> tuple[list[Any], Labelling, tuple[Any, ...]]:
    return arrays_of(value), Labelling(value), tuple(value.data_vars)


def _filled(labels: Labelling, leaves: Any) -> Any:
    return labels.filled(leaves)


def register_trees() -> None:
    """Make the classes of xarray pytrees."""
    register_node(xarray.DataArray, _flatten_one, _filled)
    register_node(xarray.Variable, _flatten_one, _filled)
    register_node(xarray.Dataset, _flatten_all, _filled)
