"""Operators and batches on xarray objects, which keep dims, coordinates and attributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import optree

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat, map_outline, register_node
from customop.core.operator import Operator
from customop.core.shape_rules import result_types
from customop.core.table import RuleTable
from customop.errors import ArgumentError, RegistrationError, ShapeError, shown
from customop.schema.coerce import typed_arrays
from customop.schema.tags import Tag
from customop.schema.types import MISSING, shapes_in
from customop.shapes.notation import Axis, Shape
from customop.transforms.vmap import vmap as vmap_axes

# ---- the import of xarray ----


def _imported() -> Any:
    try:
        return import_module("xarray")
    except ModuleNotFoundError as error:
        if error.name != "xarray":
            raise
        raise ModuleNotFoundError(
            "customop.interop.xarray needs xarray, which is not installed\n"
            "  do: pip install 'customop[xarray]'",
            name="xarray",
        ) from None


xarray: Any = _imported()


# ---- operators on DataArrays ----
# Most of the work is to find which dims the axes of the schema's shapes are.

Dims = tuple[Hashable, ...]


def export(op: Operator[..., Any]) -> Callable[..., Any]:
    """Make a function of DataArrays from an operator.

    Parameters
    ----------
    op : Operator
        It has the tag ``Tag.pointwise``, or its schema has shapes for its results.

    Returns
    -------
    callable
        Takes the arguments of `op`, with DataArrays for arrays. An axis that the schema
        names is the dim of that name; axes without such a dim are the last dims. All
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
    _result_shapes(op)  # raise here, not in the first call
    signature = _signature(op)

    @wraps(op)
    def call(*args: Any, **keywords: Any) -> Any:
        bound = signature.bind(*args, **keywords)
        bound.apply_defaults()
        return call_on_arrays(op, list(bound.arguments.values()))

    return call


def call_on_arrays(op: RuleTable, values: Sequence[Any]) -> Any:
    """Call an operator with the values of all parameters, some of them DataArrays."""
    return _OfDataArrays(op, _result_shapes(op))(values)


def _signature(op: Operator[..., Any]) -> inspect.Signature:
    """Return the signature of an operator, with the defaults of its schema."""
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
    """Return the shapes of the results, or None for each result of a pointwise operator."""
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
    """Marks the place of an array among the values of a call."""


class _NamedAxes(NamedTuple):
    """An array of a call, with its parameter, its place in words, and its shape."""

    name: str
    place: str
    array: Any
    shape: Shape | None

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.shape.axes if self.shape is not None else ()


class _OfDataArrays:
    """Calls an operator on DataArrays through ``xarray.apply_ufunc``."""

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
    """Return the arrays, broadcast against each other if the kernel does not broadcast."""
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
    """Finds the dims that are the axes of a call.

    An axis is the dim of its name. Axes without such a dim are the last of the
    remaining dims. An axis that occurs in several arrays is the same dim in all of
    them.
    """

    def __init__(self, op: RuleTable) -> None:
        self.op = op
        # The key is the length of an axis, and how often it came before in the same
        # shape.
        self.known: dict[tuple[Any, int], Hashable] = {}

    def dims(
        self, given: Sequence[_NamedAxes], results: Sequence[Shape | None]
    ) -> tuple[list[Dims], list[Dims]]:
        """Return the core dims of the arrays and of the results."""
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
        """Return the dims of axes in plain arrays and results; new dims get schema names."""
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


# ---- operators that are called directly on xarray objects ----


def call_operator(op: RuleTable, values: Sequence[Any]) -> Any:
    """Call an operator on DataArrays; the dims follow from the shapes of the schema.

    Raises
    ------
    ArgumentError
        If an argument is a Dataset, a DataTree or a Variable.
    RegistrationError
        If the schema does not say which dims the results have.
    """
    for leaf in flat(list(values)):
        for cls, remedy in _HOW.items():
            if isinstance(leaf, cls):
                raise op.error(
                    ArgumentError,
                    f" takes arrays and DataArrays, got a {cls.__name__}",
                    do=remedy,
                    parameter=None,
                )
    return call_on_arrays(op, values)


_HOW = {
    xarray.Dataset: "call it on its variables: dataset.map(op)",
    xarray.DataTree: "call it on its variables: tree.map_over_datasets(lambda dataset:"
    " dataset.map(op))",
    xarray.Variable: "make a DataArray of it: xarray.DataArray(variable)",
}


# ---- batches over a dim ----


def vmap(fn: Callable[..., Any], dim: Hashable) -> Callable[..., Any]:
    """Batch a function over a dim: write it for one place, and call it for all of them.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees. It gets the arguments without the dim and without the
        coordinates along it.
    dim : hashable
        The name of a dim of some argument. Arguments without it are the same for all
        places.

    Returns
    -------
    callable
        Takes the arguments of `fn`, with the dim. The results have the dim first, with
        its coordinates; plain arrays have it as their first axis.

    Raises
    ------
    ArgumentError
        If no argument has the dim.
    ShapeError
        If a result of `fn` already has a dim of that name.

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
        ] = []  # the structure of the result, and the labels of its leaves

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
    """Flatten a pytree, with whole xarray objects as leaves."""
    leaves, structure = optree.tree_flatten(
        tree, is_leaf=_is_labelled, namespace="customop"
    )
    return leaves, structure


class _BatchedDim:
    """An argument that has the dim.

    Attributes
    ----------
    arrays : list of arrays
    axes : list of int or None
        The axis of each array that is the dim.
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
        """Return the argument at one place of the dim, holding `arrays`."""
        return self._row.filled(arrays)


def _coordinates(found: Sequence[Any], dim: Hashable) -> Any:
    """Return the coordinates along the dim; raise if they differ between arguments."""
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
    """Return a result for all places, with the dim and its coordinates."""
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


# ---- xarray objects as pytrees ----
# Their arrays are the leaves, and their labels are the structure.


def register_trees() -> None:
    """Register the classes of xarray as pytrees."""
    register_node(xarray.DataArray, _flatten_one, _filled)
    register_node(xarray.Variable, _flatten_one, _filled)
    register_node(xarray.Dataset, _flatten_all, _filled)


class Labelling:
    """An xarray object without its data: dims, coordinates, names and attributes.

    Attributes
    ----------
    empty : DataArray, Variable or Dataset
        The object filled with zeros that take no memory.
    """

    __slots__ = ("empty",)

    def __init__(self, value: Any) -> None:
        self.empty: Any = value.copy(deep=False, data=_zeros(value))

    def __eq__(self, other: object) -> bool:
        """Return whether dims, coordinates and variable names agree; attributes may differ."""
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
        """Return the object with `leaves` as its data."""
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
            do="for batches over a dim call customop.interop.xarray.vmap(fn, dim); for"
            " Jacobians, Hessians and co.compile pass the array:"
            " co.hessian(lambda a: f(x.copy(data=a)).data)(x.data)",
        )


def _flatten_one(value: Any) -> tuple[list[Any], Labelling]:
    return arrays_of(value), Labelling(value)


def _flatten_all(value: Any) -> tuple[list[Any], Labelling, tuple[Any, ...]]:
    return arrays_of(value), Labelling(value), tuple(value.data_vars)


def arrays_of(value: Any) -> list[Any]:
    """Return the arrays of an xarray object: one, or those of a Dataset's variables."""
    if isinstance(value, xarray.Dataset):
        return [x.data for x in value.data_vars.values()]
    return [value.data]


def _zeros(value: Any) -> Any:
    if isinstance(value, xarray.Dataset):
        return {name: _zeros(x) for name, x in value.data_vars.items()}
    return np.broadcast_to(np.float64(0.0), value.shape)


def _with_shape(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "shape") else np.asarray(leaf, object)


def _filled(labels: Labelling, leaves: Any) -> Any:
    return labels.filled(leaves)
