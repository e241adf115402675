"""The array API standard: its functions and namespaces by what NumPy's functions mean.

Source of names and signatures: the Python array API standard, 2024.12.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partialmethod
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from customop.arrays.array import dtype_of
from customop.arrays.kinds import speaks_standard_only
from customop.arrays.nested import flat, map_nested
from customop.arrays.refusals import numpy_name
from customop.errors import MissingRuleError

# ---- functions of the array API standard by what NumPy's functions mean ----


EnclosedT = TypeVar("EnclosedT", bound="Enclosed")


class Enclosed:
    """An array of the standard in another object, which has NumPy's dtype."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array: Any = array

    def made(self, array: Any) -> Self:
        """Enclose another array as this one."""
        return type(self)(array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of NumPy of that name."""
        return dtype_of(self.array)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.array.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.array.size)

    @property
    def space(self) -> Any:
        """The namespace of the array."""
        return self.array.__array_namespace__()

    @property
    def real(self) -> Self:
        """The real parts."""
        return self if self.dtype.kind != "c" else call_one(self, "real")

    def astype(self, dtype: Any, **kwargs: Any) -> Self:
        """Cast the elements to another dtype."""
        if self.dtype.kind == "c" and np.dtype(dtype).kind != "c":
            return self.real.astype(dtype)
        return call_one(self, "astype", np.dtype(dtype))


# ---- arrays of the standard, as kernels made of NumPy's functions see them ----
# Such arrays take part in none of NumPy's protocols. A kernel gets each of them in a
# `Standard`, which does: it calls the function of that meaning in the namespace of the
# array.


@lru_cache(maxsize=4096)
def on_standard(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Make a kernel for all kinds of one for NumPy's arrays or the standard's."""

    def run(*args: Any, **kwargs: Any) -> Any:
        given = [map_nested(v, _enclosed) for v in args]
        named = {key: map_nested(v, _enclosed) for key, v in kwargs.items()}
        return map_nested(kernel(*given, **named), _taken_out)

    return run


def _enclosed(value: Any) -> Any:
    return Standard(value) if speaks_standard_only(type(value)) else value


def _taken_out(value: Any) -> Any:
    return value.array if type(value) is Standard else value


class Standard(Enclosed, NDArrayOperatorsMixin):
    """An array of the standard that NumPy's functions can be called with, too."""

    __slots__ = ()
    __array_priority__: ClassVar[float] = 100.0
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # == is elementwise

    # ---- what kernels ask an array for ----

    @property
    def T(self) -> Standard:  # noqa: N802  # NumPy's name
        """The array with its axes reversed."""
        return permuted(self)

    @property
    def imag(self) -> Standard:
        """The imaginary parts."""
        return call_one(self, "imag")

    def copy(self, order: str = "C") -> Standard:
        """Copy the array."""
        return Standard(self.space.asarray(self.array, copy=True))

    def conj(self) -> Standard:
        """Return the complex conjugates."""
        return self if self.dtype.kind != "c" else call_one(self, "conj")

    def __bool__(self) -> bool:
        return bool(self.array)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Standard:
        return Standard(self.array[full_key(self, key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[full_key(self, key)] = lowered(self, value)

    def _method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(np, name)(self, *args, **kwargs)

    # Any: type checkers know no partialmethod of these.
    sum: Any = partialmethod(_method, "sum")
    prod: Any = partialmethod(_method, "prod")
    mean: Any = partialmethod(_method, "mean")
    std: Any = partialmethod(_method, "std")
    max: Any = partialmethod(_method, "max")
    min: Any = partialmethod(_method, "min")
    any: Any = partialmethod(_method, "any")
    all: Any = partialmethod(_method, "all")
    squeeze: Any = partialmethod(_method, "squeeze")
    take: Any = partialmethod(_method, "take")
    ravel: Any = partialmethod(_method, "ravel")
    round: Any = partialmethod(_method, "round")
    cumsum: Any = partialmethod(_method, "cumsum")
    cumprod: Any = partialmethod(_method, "cumprod")
    argsort: Any = partialmethod(_method, "argsort")
    clip: Any = partialmethod(_method, "clip")

    def reshape(self, *shape: Any) -> Any:
        """Return the array with other lengths."""
        return self._method("reshape", shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Any:
        """Return the array with its axes in another order."""
        return permuted(self, (axes[0] if len(axes) == 1 else axes) or None)

    # ---- protocols ----

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return _Namespace(self)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if method == "reduce" and ufunc in REDUCED:
            return reduced(REDUCED[ufunc], *inputs, **kwargs)
        if method != "__call__" or kwargs:
            raise missing_in(self, (ufunc, method))
        return elementwise(self, ufunc, inputs)

    def __array_function__(
        self, function: Any, classes: Any, args: Any, kwargs: Any
    ) -> Any:
        return call_numpy_function(self, function, args, kwargs)


class _Namespace:
    """The namespace of an array, with functions that take and return `Standard`."""

    __slots__ = ("_like",)

    def __init__(self, like: Standard) -> None:
        self._like = like

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._like.space, name)
        if not callable(found) or isinstance(found, type):
            return found
        return lambda *args, **kwargs: call(self._like, name, *args, **kwargs)


# ---- values on their way in and out ----


def lowered(like: Enclosed, value: Any) -> Any:
    """Convert a value to what functions of the namespace take."""

    def lower(leaf: Any) -> Any:
        if isinstance(leaf, Enclosed):
            return leaf.array
        if isinstance(leaf, np.ndarray | np.generic):
            return like.space.asarray(np.asarray(leaf))
        return getattr(like.space, leaf.name) if isinstance(leaf, np.dtype) else leaf

    return map_nested(value, lower)


def full_key(like: Enclosed, key: Any) -> Any:
    """Complete a key: the standard wants all axes, or an Ellipsis for the rest."""
    items = key if isinstance(key, tuple) else (key,)
    found = tuple([lowered(like, item) for item in items])
    if len(items) == 1 and getattr(items[0], "dtype", None) == np.bool_:
        return found[0]
    named = [item for item in items if item is not None and item is not Ellipsis]
    has_rest = any(item is Ellipsis for item in items)
    return found if has_rest or len(named) == like.ndim else (*found, Ellipsis)


def _by_name(
    function: Any, args: Sequence[Any], count: int
) -> tuple[list[Any], dict[str, Any]]:
    """Return the leading arrays of a call, and other arguments by NumPy's names.

    The standard takes options by name only. Those that are None are left out. At least
    `count` arguments are leading ones.
    """
    while count < len(args) and _is_operand(args[count]):
        count += 1
    if count == len(args):
        return list(args), {}
    pairs = zip(_parameters(function)[count:], args[count:], strict=False)
    return list(args[:count]), {key: v for key, v in pairs if v is not None}


def _is_operand(value: Any) -> bool:
    return any(isinstance(leaf, Enclosed | np.ndarray) for leaf in flat(value))


@lru_cache(maxsize=1024)
def _parameters(function: Any) -> list[str]:
    return [*inspect.signature(function).parameters]


def _raised(like: Enclosed, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple([_raised(like, v) for v in value])
    return like.made(value) if speaks_standard_only(type(value)) else value


def _function(like: Enclosed, name: str) -> Any:
    """Return a function of the namespace or of an extension of it."""
    found = like.space
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def call(like: Enclosed, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function of the namespace."""
    fn = _function(like, name)
    if fn is None:
        raise missing_in(like, name)
    given = [lowered(like, v) for v in args]
    named = {key: lowered(like, v) for key, v in kwargs.items()}
    return _raised(like, fn(*given, **named))


def call_one(x: EnclosedT, name: str, *args: Any, **kwargs: Any) -> EnclosedT:
    """Call a function of an array that returns one."""
    found = call(x, name, x, *args, **kwargs)
    assert isinstance(found, type(x))
    return found


def missing_in(like: Enclosed, function: Any) -> MissingRuleError:
    """Make the error for what the namespace of an array lacks."""
    name = function if isinstance(function, str) else numpy_name(function)
    space = getattr(like.space, "__name__", "the array API standard")
    return MissingRuleError(
        f"{space} has no function for {name}",
        do="register a kernel for this kind of array",
    )


# ---- NumPy's ufuncs by the names of the standard ----

_RENAMED: dict[str, str] = {
    **{
        f"arc{name}": f"a{name}"
        for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")
    },
    "absolute": "abs",
    "arctan2": "atan2",
    "concatenate": "concat",
    "conjugate": "conj",
    "fabs": "abs",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "true_divide": "divide",
}


# A bool has a dtype; other numbers take that of the arrays.
_CLASSES: dict[type, Any] = {
    bool: np.dtype(bool),
    int: int,
    float: float,
    complex: complex,
}


@lru_cache(maxsize=4096)
def _loop(ufunc: np.ufunc, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the dtypes of the loop that NumPy runs for such operands."""
    return ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout))


def elementwise(like: Enclosed, ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
    """Call a function on operands cast as NumPy casts them: the standard refuses mixtures."""
    name = ufunc.__name__
    fn = _function(like, _RENAMED.get(name, name))
    if fn is None or ufunc.nout > 1:
        raise missing_in(like, ufunc)
    values = [
        like.made(lowered(like, v)) if isinstance(v, np.ndarray | np.generic) else v
        for v in inputs
    ]
    kinds = [v.dtype if isinstance(v, Enclosed) else _CLASSES[type(v)] for v in values]
    loop = _loop(ufunc, tuple(kinds))
    given = [
        (v if v.dtype == dtype else v.astype(dtype)).array
        if isinstance(v, Enclosed)
        else like.space.asarray(v, dtype=lowered(like, dtype))
        for v, dtype in zip(values, loop, strict=False)
    ]
    out = like.made(fn(*given))
    return out if out.dtype == loop[-1] else out.astype(loop[-1])


# ---- functions with other parameters than NumPy's ----

# Function -> number of its parameters without a name.
_POSITIONAL: dict[str, int] = {"moveaxis": 3, "tile": 2, "repeat": 2}


def _ordered(name: str) -> Callable[..., Any]:
    def order(
        x: Any, axis: Any = -1, kind: Any = None, order: None = None, **kwargs: Any
    ) -> Any:
        line = call_one(x, "reshape", (-1,)) if axis is None else x
        return call(x, name, line, axis=-1 if axis is None else axis)

    return order


def _diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    last = call(x, "moveaxis", x, (axis1, axis2), (-2, -1))
    return call(x, "linalg.diagonal", last, offset=offset)


def _of_lower(name: str) -> Callable[..., Any]:
    """Make a function of symmetric matrices: the standard reads either half."""

    def of_lower(a: Any, UPLO: str = "L") -> Any:  # noqa: N803  # NumPy's name
        if UPLO != "L":
            raise missing_in(a, f"np.{name}(UPLO={UPLO!r})")
        return call(a, name, a)

    return of_lower


def _singular(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, **kwargs: Any
) -> Any:
    if not compute_uv:
        return call(a, "linalg.svdvals", a)
    return call(a, "linalg.svd", a, full_matrices=full_matrices)


REDUCED: dict[Any, str] = {
    np.add: "sum",
    np.multiply: "prod",
    np.maximum: "max",
    np.minimum: "min",
    np.logical_and: "all",
    np.logical_or: "any",
}


@lru_cache(maxsize=1024)
def _sum_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Return the dtype that NumPy reduces in."""
    if name in ("any", "all", "max", "min", "argmax", "argmin"):
        return dtype  # type: ignore[no-any-return]  # as it is given
    return getattr(np, name)(np.ones(1, dtype)).dtype  # type: ignore[no-any-return]  # a dtype


def reduced(
    name: str, x: Any, axis: Any = None, keepdims: Any = False, **kwargs: Any
) -> Any:
    """Reduce in the dtype that NumPy reduces in."""
    given = {key: v for key, v in kwargs.items() if v is not None and v is not True}
    if given:
        raise missing_in(x, f"{name}({', '.join(given)}=)")
    wide = _sum_dtype(name, x.dtype)
    value = x if x.dtype == wide else x.astype(wide)
    return call(x, name, value, axis=axis, keepdims=keepdims)


def permuted(x: EnclosedT, axes: Any = None) -> EnclosedT:
    """Return the array with its axes in another order, or reversed."""
    order = range(x.ndim)[::-1] if axes is None else axes
    return call_one(x, "permute_dims", tuple(order))


def _expanded(x: Any, axis: Any) -> Any:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    rank = x.ndim + len(axes)
    new = sorted(a % rank for a in axes)
    shape = list(x.shape)
    for at in new:
        shape.insert(at, 1)
    return call_one(x, "reshape", tuple(shape))


def _swapped(x: Any, axis1: int, axis2: int) -> Any:
    order = list(range(x.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return permuted(x, order)


def _like(name: str) -> Callable[..., Any]:
    def make(
        x: Any, *values: Any, dtype: Any = None, shape: Any = None, **kwargs: Any
    ) -> Any:
        lengths = x.shape if shape is None else tuple(shape)
        kind = x.dtype if dtype is None else np.dtype(dtype)
        found = call(x, name, lengths, *values, dtype=kind)
        assert isinstance(found, Enclosed)
        return found

    return make


def _chosen(condition: Any, x: Any, y: Any) -> Any:
    like = next(v for v in (condition, x, y) if isinstance(v, Enclosed))
    values = [
        v
        if isinstance(v, Enclosed)
        else like.made(like.space.asarray(np.asarray(v)[()]))
        for v in (condition, x, y)
    ]
    kinds = [
        v.dtype if isinstance(given, Enclosed) else getattr(given, "dtype", given)
        for v, given in zip(values[1:], (x, y), strict=True)
    ]
    dtype = np.result_type(*kinds)
    test = values[0].astype(bool) if values[0].dtype != bool else values[0]
    return call(like, "where", test, *[v.astype(dtype) for v in values[1:]])


def _of_first(name: str) -> Callable[..., Any]:
    """Make a function of a list of arrays, which get the dtype that fits all."""

    def join(arrays: Any, axis: Any = 0, **kwargs: Any) -> Any:
        like = next(v for v in arrays if isinstance(v, Enclosed))
        dtype = np.result_type(*[v.dtype for v in arrays])
        cast = [like.made(lowered(like, v)).astype(dtype) for v in arrays]
        return call(like, name, cast, axis=axis)

    return join


def _along(x: Any, indices: Any, axis: int = 0, **kwargs: Any) -> Any:
    return call(x, "take", x, indices, axis=axis)


def _product(name: str) -> Callable[..., Any]:
    def multiply(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        like = a if isinstance(a, Enclosed) else b
        dtype = np.result_type(a.dtype, b.dtype)
        pair = [like.made(lowered(like, v)).astype(dtype) for v in (a, b)]
        if "axes" not in kwargs and args:
            kwargs["axes"] = args[0]
        return call(like, name, *pair, **kwargs)

    return multiply


def _padded(x: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Any:
    if mode != "constant":
        raise missing_in(x, f"np.pad(mode={mode!r})")
    value = kwargs.get("constant_values", 0)
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    values = np.broadcast_to(np.asarray(value), (x.ndim, 2)).tolist()
    for axis, (before, after) in enumerate(widths):
        ends = [
            np.full_like(x, v, shape=(*x.shape[:axis], n, *x.shape[axis + 1 :]))
            for n, v in zip((before, after), values[axis], strict=True)
        ]
        x = np.concatenate([ends[0], x, ends[1]], axis=axis)
    return x


def _flipped(x: Any, axis: Any = None) -> Any:
    return call(x, "flip", x, axis=axis)


def _running(name: str) -> Callable[..., Any]:
    def run(x: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
        return call(x, name, x, axis=axis, dtype=dtype)

    return run


_OWN: Mapping[Any, Callable[..., Any]] = {
    **{
        getattr(np, name): (
            lambda x, *args, name=name, **kw: reduced(name, x, *args, **kw)
        )
        for name in (
            "sum",
            "prod",
            "mean",
            "max",
            "min",
            "any",
            "all",
            "argmax",
            "argmin",
        )
    },
    **{
        getattr(np, f"{name}_like"): _like(name)
        for name in ("zeros", "ones", "empty", "full")
    },
    np.transpose: permuted,
    np.expand_dims: _expanded,
    np.swapaxes: _swapped,
    np.where: _chosen,
    np.concatenate: _of_first("concat"),
    np.stack: _of_first("stack"),
    np.take: _along,
    np.tensordot: _product("tensordot"),
    np.flip: _flipped,
    np.cumsum: _running("cumulative_sum"),
    np.cumprod: _running("cumulative_prod"),
    np.ravel: lambda x, order="C": call_one(x, "reshape", (-1,)),
    np.copy: lambda x, *args, **kwargs: x.copy(),
    np.pad: _padded,
    np.sort: _ordered("sort"),
    np.argsort: _ordered("argsort"),
    np.diagonal: _diagonal,
    np.linalg.eigh: _of_lower("linalg.eigh"),
    np.linalg.eigvalsh: _of_lower("linalg.eigvalsh"),
    np.linalg.svd: _singular,
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.real: operator.attrgetter("real"),
    np.imag: operator.attrgetter("imag"),
}


def call_numpy_function(like: Enclosed, function: Any, args: Any, kwargs: Any) -> Any:
    """Call the function of the standard that means what one of NumPy does."""
    own = _OWN.get(function)
    if own is not None:
        return own(*args, **kwargs)
    name = numpy_name(function).removeprefix("np.")
    name = _RENAMED.get(name, name)
    if _function(like, name) is None:
        raise missing_in(like, function)
    first, named = _by_name(function, args, _POSITIONAL.get(name, 0))
    return call(like, name, *first, **named, **kwargs)
