"""Batches over a dim, by its name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from typing import Any

import optree

from customop.errors import ArgumentError, ShapeError, shown
from customop.interop.xarray.framework import xarray
from customop.interop.xarray.trees import Labelling, arrays_of
from customop.transforms.vmap import vmap as vmap_axes

__all__ = ["vmap"]


def vmap(fn: Callable[..., Any], dim: Hashable) -> Callable[..., Any]:
    """Call a function once for all places along a dim, as if for one place at a time.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees. What has the dim in the call comes without it, and
        without the coordinates along it.
    dim : hashable
        The name of a dim of some argument. Other arguments are the same for all places.

    Returns
    -------
    callable
        Takes what `fn` takes. The results have the dim first, with its coordinates;
        plain arrays have it as their first axis.

    Raises
    ------
    ArgumentError
        If no argument has the dim.
    ShapeError
        If a result of `fn` has a dim of that name too.

    Examples
    --------
    >>> import xarray as xr
    >>> from customop.interop.xarray import vmap
    >>> x = xr.DataArray([[1.0, 2.0], [3.0, 6.0]], dims=("time", "x"))
    >>> vmap(lambda row: row - row.max(), "x")(x).values
    array([[-2.,  0.],
           [-4.,  0.]])
    """

    @wraps(fn)
    def batched(*args: Any) -> Any:
        leaves, structure = _flat(args)
        found = [x for x in leaves if _has(x, dim)]
        coordinates = _coordinates(found, dim)
        batches = [_BatchedDim(x, dim) for x in found]
        shapes: list[
            Any
        ] = []  # of the result: its structure and the labels of its leaves

        def one_place(given: list[list[Any]]) -> list[Any]:
            rows = iter([b.row(x) for b, x in zip(batches, given, strict=True)])
            inputs = [next(rows) if _has(x, dim) else x for x in leaves]
            out, spec = _flat(fn(*optree.tree_unflatten(structure, inputs)))
            shapes[:] = [spec, [Labelling(x) if _is_labelled(x) else None for x in out]]
            return [arrays_of(x) if _is_labelled(x) else [x] for x in out]

        axes = [b.axes for b in batches]
        out = vmap_axes(one_place, in_dims=(axes,))([b.arrays for b in batches])
        spec, labels = shapes
        return optree.tree_unflatten(
            spec,
            [
                arrays[0] if own is None else _joined(own, arrays, dim, coordinates)
                for own, arrays in zip(labels, out, strict=True)
            ],
        )

    return batched


def _is_labelled(x: Any) -> bool:
    return isinstance(x, xarray.DataArray | xarray.Variable | xarray.Dataset)


def _has(x: Any, dim: Hashable) -> bool:
    return _is_labelled(x) and dim in x.dims


def _flat(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a pytree, among them whole objects of xarray."""
    leaves, structure = optree.tree_flatten(
        tree, is_leaf=_is_labelled, namespace="customop"
    )
    return leaves, structure


class _BatchedDim:
    """An argument with the dim.

    Attributes
    ----------
    arrays : list of arrays
    axes : list of int or None
        Where each array has the dim.
    """

    def __init__(self, x: Any, dim: Hashable) -> None:
        self.arrays: list[Any] = arrays_of(x)
        own = Labelling(x)
        self.axes = [dims.index(dim) if dim in dims else None for dims in own.dims]
        coords = getattr(own.empty, "coords", {})
        along = [name for name, c in coords.items() if dim in c.dims]
        rest = own.empty.drop_vars(along) if along else own.empty
        self._row = Labelling(rest.isel({dim: 0}))

    def row(self, arrays: list[Any]) -> Any:
        """The argument at one place."""
        return self._row.filled(arrays)


def _coordinates(found: Sequence[Any], dim: Hashable) -> Any:
    """The coordinates along the dim, which must be the same in all arguments."""
    if not found:
        raise ArgumentError(
            f"vmap: no argument has the dim {shown(dim)}",
            do="pass a DataArray or Dataset with this dim",
        )
    lengths = sorted({x.sizes[dim] for x in found})
    if len(lengths) > 1 or not lengths[0]:
        raise ShapeError(
            f"vmap: the dim {shown(dim)} has the length {' and '.join(map(str, lengths))}",
            do="select the same places of all arguments, at least one",
        )
    own = [
        Labelling(x).empty.coords for x in found if not isinstance(x, xarray.Variable)
    ]
    along = [
        coords.to_dataset()[[name for name, c in coords.items() if c.dims == (dim,)]]
        for coords in own
    ]
    others = [x[[dim]] for x in along if dim in x.coords]
    if any(not x.equals(others[0]) for x in others):
        raise ShapeError(
            f"vmap: the arguments have different coordinates along {shown(dim)}",
            do='align them: xarray.align(a, b, join="inner")',
        )
    return xarray.merge(along, compat="override", join="override").coords


def _joined(
    own: Labelling, arrays: Sequence[Any], dim: Hashable, coordinates: Any
) -> Any:
    """A result at all places."""
    if dim in own.empty.dims or dim in getattr(own.empty, "coords", ()):
        raise ShapeError(
            f"vmap: a result has a dim or coordinate {shown(dim)} of its own",
            do="rename it in the function",
        )
    if isinstance(own.empty, xarray.Variable):
        (data,) = arrays
        return xarray.Variable((dim, *own.empty.dims), data, own.empty.attrs)
    size = arrays[0].shape[0] if arrays else 1
    wider = own.empty.expand_dims({dim: size}).assign_coords(coordinates)
    return Labelling(wider).filled(arrays)
