"""Operators on DataArrays: which dims the axes of the schema's shapes are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple

from customop.arrays.kinds import is_array
from customop.arrays.nested import map_outline
from customop.core.derived.shape_fake import result_types
from customop.core.operator import Operator
from customop.core.table import RuleTable
from customop.errors import ArgumentError, RegistrationError, ShapeError, shown
from customop.interop.xarray.framework import xarray
from customop.schema.fit import typed_arrays
from customop.schema.parameters import MISSING
from customop.schema.tags import Tag
from customop.schema.types import shapes_in
from customop.shapes.notation import Axis, Shape

__all__ = ["DimNames", "call_on_arrays", "export"]

Dims = tuple[Hashable, ...]


def export(op: Operator[..., Any]) -> Callable[..., Any]:
    """Make a function of DataArrays from an operator.

    Parameters
    ----------
    op : Operator
        Pointwise by its tags, or with shapes for its results.

    Returns
    -------
    callable
        Takes what `op` takes, with DataArrays for arrays. An axis that the schema names
        is the dim of that name; if no dim has the name, the axes are the last dims. All
        other dims are matched by their names. Coordinates must be the same.

    Raises
    ------
    RegistrationError
        If the schema does not say which axes the results have, or the operator writes
        into its arguments.

    Examples
    --------
    >>> import numpy as np, xarray as xr, customop as co
    >>> from customop.interop.xarray import export
    >>> @co.custom_op(
    ...     "doc::total", mutates_args=(), schema="(float[..., n] x) -> float[...]"
    ... )
    ... def total(x):
    ...     return np.sum(x, axis=-1)
    >>> x = xr.DataArray(np.ones((2, 3)), dims=("n", "place"))
    >>> export(total)(x)
    <xarray.DataArray (place: 3)> Size: 24B
    array([2., 2., 2.])
    Dimensions without coordinates: place
    """
    _result_shapes(op)  # an error comes here, not with the first call
    signature = _signature(op)

    @wraps(op)
    def call(*args: Any, **keywords: Any) -> Any:
        bound = signature.bind(*args, **keywords)
        bound.apply_defaults()
        return call_on_arrays(op, list(bound.arguments.values()))

    return call


def call_on_arrays(op: RuleTable, values: Sequence[Any]) -> Any:
    """Call an operator with the values of all parameters, DataArrays among them."""
    return _OfDataArrays(op, _result_shapes(op))(values)


def _signature(op: Operator[..., Any]) -> inspect.Signature:
    """The signature of an operator, with the defaults of its schema."""
    given = inspect.signature(op)
    defaults = {
        p.name: p.default for p in op.schema.parameters if p.default is not MISSING
    }
    return given.replace(
        parameters=[
            p.replace(default=defaults.get(name, inspect.Parameter.empty))
            for name, p in given.parameters.items()
        ]
    )


def _result_shapes(op: RuleTable) -> list[Shape | None]:
    """The shapes of the results; None for those of a pointwise operator."""
    if op.schema.written:
        raise op.error(
            RegistrationError,
            f"export: {op.qualname} writes '{op.schema.written[0]}'",
            do="return new arrays",
            parameter=op.schema.written[0],
        )
    if Tag.pointwise in op.tags:
        return [None] * len(op.schema.returns)
    results = result_types(op.schema)
    if results is None:
        raise op.error(
            RegistrationError,
            " does not say which dims its results have",
            do='give shapes in the schema, such as "(float[...,n] x) -> float[...]", or'
            " tags=(Tag.pointwise,)",
        )
    shapes = [t.shape for t in results]
    own = [shape for p in op.schema.parameters for shape in shapes_in(p.type)]
    if not all(s.leads for s in (*own, *shapes) if s is not None and s.loop):
        raise op.error(
            RegistrationError,
            " has '...' behind other axes, where dims cannot be put",
            do='begin the shapes with it, such as "float[...,n]"',
        )
    return shapes


class _DataSlot:
    """The place of an array among the values of a call."""


class _NamedAxes(NamedTuple):
    """An array of a call: its parameter, its place in words, and its axes."""

    name: str
    place: str
    array: Any
    shape: Shape | None

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.shape.axes if self.shape is not None else ()


class _OfDataArrays:
    """An operator with shapes or of single elements, by ``xarray.apply_ufunc``."""

    def __init__(self, op: RuleTable, results: list[Shape | None]) -> None:
        self.op = op
        self.results = results

    def __call__(self, values: Sequence[Any]) -> Any:
        given = self._given(values)
        if not any(isinstance(x.array, xarray.DataArray) for x in given):
            return self.op.invoke(values)
        pattern = [
            map_outline(value, lambda x: _DataSlot() if _is_data(x) else x)
            for value in values
        ]
        inputs, outputs = DimNames(self.op).dims(given, self.results)
        if any(_is_chunked(x.array) for x in given):
            import_module("customop.interop.dask")

        def on_data(*data: Any) -> Any:
            rest = iter(data)
            filled = [
                map_outline(value, lambda x: next(rest) if type(x) is _DataSlot else x)
                for value in pattern
            ]
            return self.op.invoke(filled)

        return xarray.apply_ufunc(
            on_data,
            *_same_loops(given, inputs),
            input_core_dims=inputs,
            output_core_dims=outputs,
            dask="allowed",
            keep_attrs="override",
        )

    def _given(self, values: Sequence[Any]) -> list[_NamedAxes]:
        is_pointwise = Tag.pointwise in self.op.tags
        return [
            _NamedAxes(
                p.name,
                f"argument '{p.name}'{where}",
                x,
                None if is_pointwise else t.shape,
            )
            for p, value in zip(self.op.schema.parameters, values, strict=True)
            for where, x, t in typed_arrays(value, p.type)
            if _is_data(x)
        ]


def _is_data(x: Any) -> bool:
    return isinstance(x, xarray.DataArray) or is_array(x)


def _is_chunked(x: Any) -> bool:
    return isinstance(x, xarray.DataArray) and x.chunks is not None


def _has_loop(shape: Shape | None) -> bool:
    return shape is not None and shape.loop is not None


def _same_loops(given: Sequence[_NamedAxes], inputs: Sequence[Dims]) -> list[Any]:
    """The arrays; spread over each other's dims where the kernel does not broadcast."""
    arrays = [x.array for x in given]
    loops = [x.shape.loop for x in given if x.shape is not None and x.shape.loop]
    places = [i for i, x in enumerate(given) if isinstance(x.array, xarray.DataArray)]
    own = {frozenset(arrays[i].dims) - frozenset(inputs[i]) for i in places}
    if len(own) > 1 and not all(loop.is_broadcast for loop in loops):
        core = {dim for dims in inputs for dim in dims}
        looped = [i for i in places if _has_loop(given[i].shape)]
        same = [arrays[i] for i in looped]  # broadcast alone would fill gaps with NaN
        same = xarray.align(*same, join="exact", copy=False, exclude=core)
        spread = xarray.broadcast(*same, exclude=core)
        for i, x in zip(looped, spread, strict=True):
            arrays[i] = x
    return arrays


class DimNames:
    """The dims that the axes of a call are, as far as they are found.

    An axis is the dim of its name. Other axes are the last dims that are left, and the
    same axis of another array is the same dim.
    """

    def __init__(self, op: RuleTable) -> None:
        self.op = op
        # By the length of an axis and how often it came before in the same shape.
        self.known: dict[tuple[Any, int], Hashable] = {}

    def dims(
        self, given: Sequence[_NamedAxes], results: Sequence[Shape | None]
    ) -> tuple[list[Dims], list[Dims]]:
        """The core dims of the arrays and of the results."""
        found = [
            self._of_labelled(x) if isinstance(x.array, xarray.DataArray) else None
            for x in given
        ]
        inputs = [
            self._of_plain(x) if dims is None else dims
            for x, dims in zip(given, found, strict=True)
        ]
        return inputs, [self._written(s.axes if s else ()) for s in results]

    def _of_labelled(self, x: _NamedAxes) -> Dims:
        keys = _keys(x.axes)
        dims: list[Any] = [self._dim(key, x) for key in keys]
        rest = [dim for dim in x.array.dims if dim not in dims]
        missing = [i for i, dim in enumerate(dims) if dim is None]
        has_loop = _has_loop(x.shape)
        if len(missing) > len(rest) or (
            0 < len(missing) < len(dims) and has_loop and len(rest) > len(missing)
        ):
            raise self._unknown(x, [keys[i][0] for i in missing])
        for i, dim in zip(missing, rest[len(rest) - len(missing) :], strict=True):
            dims[i] = dim
        for key, dim in zip(keys, dims, strict=True):
            self.known.setdefault(key, dim)
        return tuple(dims)

    def _dim(self, key: tuple[Any, int], x: _NamedAxes) -> Hashable:
        length, number = key
        if length is None or isinstance(length, int):
            return None
        if key in self.known:
            if self.known[key] not in x.array.dims:
                raise self._unknown(x, [length])
            return self.known[key]
        return length if length in x.array.dims and not number else None

    def _unknown(self, x: _NamedAxes, lengths: Sequence[Any]) -> ShapeError:
        names = ", ".join([f"'{length}'" for length in lengths])
        same = [
            f"'{key[0]}' is {shown(dim)} of another argument"
            for key, dim in self.known.items()
            if key[0] in lengths
        ]
        because = f" ({', '.join(same)})" if same else ""
        return self.op.error(
            ShapeError,
            f"{x.place} has the dims {x.array.dims}: which is {names} of its shape"
            f" '{x.shape}' is not clear{because}",
            do=f"{x.name}.rename(...), so that its dims have the names of the schema",
            parameter=x.name,
        )

    def _of_plain(self, x: _NamedAxes) -> Dims:
        if len(x.array.shape) == len(x.axes):
            return self._written(x.axes)
        raise self.op.error(
            ArgumentError,
            f"{x.place} has shape {tuple(x.array.shape)} and no dims, beside a DataArray",
            do=f"xarray.DataArray({x.name}, dims=(...))",
            parameter=x.name,
        )

    def _written(self, axes: Sequence[Axis]) -> Dims:
        """The dims of axes without names of their own; new ones have the schema's."""
        return tuple(
            [
                self.known.get(
                    key, f"dim_{i}" if isinstance(key[0], int) else str(axis)
                )
                for i, (key, axis) in enumerate(zip(_keys(axes), axes, strict=True))
            ]
        )


def _keys(axes: Sequence[Axis]) -> list[tuple[Any, int]]:
    lengths = [axis.length for axis in axes]
    return [(length, lengths[:i].count(length)) for i, length in enumerate(lengths)]
