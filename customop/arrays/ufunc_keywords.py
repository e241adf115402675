"""Keywords of ufuncs, and results that are written into the array of `out`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from customop.arrays.array import dtype_of, in_byte_order, read_dtype
from customop.arrays.kinds import is_array, is_fake, is_traced
from customop.arrays.nested import describe
from customop.arrays.refusals import numpy_name
from customop.errors import ArgumentError, ShapeError
from customop.later import later

corrections: ModuleType = later(import_module, "customop.arrays.corrections")

# ---- keywords of ufuncs: where, dtype, signature, casting, order, subok ----


# Keyword of ufuncs -> the value that is the same as leaving it out.
_DEFAULTS: dict[str, Any] = {
    "where": True,
    "casting": "same_kind",
    "order": "K",
    "dtype": None,
    "signature": None,
    "subok": True,
}
_CASTS = ("dtype", "signature", "casting")
_LEAVE = "leave KEYWORD= away"
_INSTEAD = {
    "where": "pass out= too, an array with the other elements: out=np.zeros_like(x)",
    "order": "use order='C', 'F' or 'K'",
}


def call_with(
    fn: Callable[..., Any],
    ufunc: np.ufunc,
    inputs: Sequence[Any],
    keywords: Mapping[str, Any],
) -> Any:
    """Call the operator of a ufunc as the ufunc is called with these keywords.

    Parameters
    ----------
    fn : callable
        What is registered for the ufunc. A keyword that it names is its own.
    ufunc : ufunc
    inputs : sequence of array or number
    keywords : mapping
        Without `out`.

    Returns
    -------
    array or tuple of array

    Raises
    ------
    ArgumentError
        For ``where=``, which leaves elements without a value, and for a keyword that
        operators do not have.
    TypeError
        NumPy's own, where the inputs cannot be cast.
    """
    given = {k: v for k, v in keywords.items() if not _is_default(k, v)}
    if not given:
        return fn(*inputs)
    own = _named(fn, given)
    for name in given:
        if name not in (*own, *_CASTS, "order", "subok"):
            raise _refused(ufunc, name)
    order: Any = "K" if "order" in own else given.get("order", "K")
    order = order.upper() if isinstance(order, str) else order
    if order not in ("K", "C", "F"):
        raise _refused(ufunc, "order")
    if any(name in given and name not in own for name in _CASTS):
        inputs = _cast_inputs(ufunc, inputs, given)
    found = fn(*inputs, **own)
    if order == "K":
        return found
    if isinstance(found, tuple):
        return tuple([np.copy(x, order=order) for x in found])
    return np.copy(found, order=order)


def _is_default(name: str, value: Any) -> bool:
    known = _DEFAULTS.get(name, _DEFAULTS)
    return value is known or (isinstance(value, str) and value == known)


def _named(fn: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that a function names, or all if it takes any."""
    # The signature of an operator itself is that of its kernel, often the ufunc.
    parameters = inspect.signature(getattr(fn, "call", fn)).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(given)
    return {name: value for name, value in given.items() if name in parameters}


def _refused(ufunc: np.ufunc, name: str) -> ArgumentError:
    return ArgumentError(
        f"{numpy_name(ufunc)}({name}=...) has no operator for traced or fake arrays",
        do=_INSTEAD.get(name, _LEAVE.replace("KEYWORD", name)),
    )


# ---- dtypes ----


def _cast_inputs(
    ufunc: np.ufunc, inputs: Sequence[Any], given: Mapping[str, Any]
) -> list[Any]:
    """Cast the inputs to the dtypes of the loop that NumPy picks."""
    kinds = [dtype_of(x) if is_array(x) else _kind(x) for x in inputs]
    signature, nones = _signature(ufunc, given), [None] * ufunc.nout
    # Two steps: with classes of numbers, NumPy 2.4.6 crashes where a cast is an error.
    loop = ufunc.resolve_dtypes((*kinds, *nones), signature=signature, casting="unsafe")
    exact = [_taken_for(k, d) for k, d in zip(kinds, loop, strict=False)]
    casting = given.get("casting", "same_kind")
    dtypes = ufunc.resolve_dtypes(
        (*exact, *nones), signature=signature, casting=casting
    )
    wanted = dtypes[: ufunc.nin]
    pairs = zip(inputs, kinds, wanted, strict=True)
    same = len(set(wanted)) == 1
    return [_as(x, kind, dtype, weak=same) for x, kind, dtype in pairs]


def _taken_for(kind: Any, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of an input; a Python number takes the loop's, if it fits."""
    if isinstance(kind, np.dtype):
        return kind
    return dtype if dtype.kind in _FITS[kind] else np.dtype(kind)


# Class of Python numbers -> kinds of dtypes that its numbers take.
_FITS: dict[Any, str] = {int: "iufc", float: "fc", complex: "c"}


def _kind(value: Any) -> Any:
    """Return the class of a Python number, or the dtype that NumPy gives a value."""
    plain = type(value)
    return plain if plain in (int, float, complex) else np.asarray(value).dtype


def _as(x: Any, kind: Any, dtype: Any, *, weak: bool) -> Any:
    if not is_array(x):
        # A number of Python takes the dtype of the others, of any kind of array.
        weak = weak and not isinstance(kind, np.dtype) and dtype.kind in _FITS[kind]
        return x if weak else np.asarray(x).astype(dtype)
    return x if kind == dtype else x.astype(dtype)


def _signature(ufunc: np.ufunc, given: Mapping[str, Any]) -> Any:
    if "dtype" not in given:
        return given.get("signature", (None,) * ufunc.nargs)
    if "signature" in given:
        raise TypeError("cannot specify both 'signature' and 'dtype'")
    return (*[None] * ufunc.nin, *[read_dtype(given["dtype"])] * ufunc.nout)


# ---- elements that are not computed ----

# Ufunc -> a number where it and its derivatives have values; 1 for the others.
_SAFE = {"arcsin": 0, "arccos": 0, "arctanh": 0, "arccosh": 2}


def hide(
    ufunc: np.ufunc, inputs: Sequence[Any], where: Any, outs: Sequence[Any]
) -> list[Any]:
    """Put a harmless number where the ufunc does not compute.

    So neither warnings nor gradients that are not finite come from there.
    """
    if any(out is None for out in outs):
        raise _refused(ufunc, "where")
    mask = where if is_array(where) else np.asarray(where, bool)
    if mask.dtype != bool:
        raise ArgumentError(
            f"{numpy_name(ufunc)}: where= is an array of {mask.dtype}, must be of bool",
            do="pass where=mask != 0",
        )
    safe = _SAFE.get(ufunc.__name__, 1)
    return [
        np.where(mask, x, np.full_like(x, safe)) if is_array(x) else x for x in inputs
    ]


# ---- reductions that are written into an array ----

_METHODS = ("reduce", "accumulate", "reduceat")
_TAKE_DTYPE = (np.sum, np.prod, np.cumsum, np.cumprod)
_REDUCTIONS: frozenset[Any] = frozenset(
    (*_TAKE_DTYPE, np.max, np.min, np.amax, np.amin, np.any, np.all)
)
_LOGICAL = (np.logical_and, np.logical_or, np.logical_xor)


def is_reduction(function: Any) -> bool:
    """Return whether a NumPy function casts its results to any dtype of `out`."""
    if isinstance(function, tuple):
        return function[1] in _METHODS
    return function in _REDUCTIONS


def for_out(
    out: Any, function: Any, args: Sequence[Any], keywords: dict[str, Any]
) -> Sequence[Any]:
    """Return the arguments of a reduction in a dtype that holds those of `out`."""
    if isinstance(function, tuple):
        is_chosen = function[0] not in _LOGICAL
    else:
        is_chosen = function in _TAKE_DTYPE
    if is_chosen and args and is_array(args[0]) and keywords.get("dtype") is None:
        wide = np.result_type(dtype_of(args[0]), dtype_of(out))
        if len(args) > 2 and not isinstance(function, tuple):
            return (*args[:2], wide if args[2] is None else args[2], *args[3:])
        keywords["dtype"] = wide
    return args


# ---- results that are written into an array: cast and broadcast as NumPy does ----


def fit_into(
    box: Any, new: Any, name: str, casting: Any = "same_kind", *, widens: bool = True
) -> Any:
    """Cast and broadcast a result to the array that it is written into.

    Ufuncs broadcast it there (`widens`), other functions do not.

    Raises
    ------
    ArgumentError
        If NumPy does not cast it by this rule.
    ShapeError
        If it does not broadcast to the array.
    """
    if not hasattr(new, "shape"):
        new = np.asarray(new)
    if new.dtype != box.dtype:
        new = _cast_result(box, new, name, casting)
    if tuple(new.shape) == tuple(box.shape):
        return new
    return _widened(box, new, name, widens=widens)


def _cast_result(box: Any, new: Any, name: str, casting: Any) -> Any:
    if not np.can_cast(new.dtype, box.dtype, casting):
        raise ArgumentError(
            f"{name}: cannot cast the result of dtype {new.dtype} to the dtype"
            f" {box.dtype} of the array that it is written into (casting={casting!r})",
            do=f"use a new array: x = {name}(...), or write x[...] = value, which"
            " casts",
        )
    return new.astype(box.dtype)


def _widened(box: Any, new: Any, name: str, *, widens: bool) -> Any:
    shape, own = tuple(box.shape), tuple(new.shape)
    try:
        fits = widens and np.broadcast_shapes(own, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{name}: the result of shape {own} cannot be broadcast to the shape {shape}"
            " of the array that it is written into",
            do=f"use a new array: x = {name}(...)",
        )
    # A broadcast array alone would be read-only, and its elements one in memory.
    return np.copy(np.broadcast_to(new, shape), order="C")


def check_outs(outs: tuple[Any, ...], name: str, value: Any) -> None:
    """Raise for an array of ``out=`` that cannot take a value like this one."""
    for out in outs:
        if out is None:
            continue
        if not is_traced(out) and not is_fake(out):
            raise plain_refused(f"{name}(out=...)", value)
        if out.box_is_scalar:
            raise ArgumentError(
                f"{name}(out=...) is given {describe(out)}, a scalar, which never"
                " changes",
                do="use the result",
            )


def write_out(
    out: Any, new: Any, name: str, casting: Any, where: Any, *, widens: bool
) -> None:
    """Write the result of a NumPy function into the array of ``out=``."""
    fitted = fit_into(out, new, name, casting, widens=widens)
    if where is not True:
        fitted = in_byte_order(np.where(where, fitted, out), out.dtype)
    out.box_write(fitted)


def plain_refused(name: str, value: Any) -> ArgumentError:
    """Make the error for a traced or fake value written into a plain array."""
    return ArgumentError(
        f"{name} would write {describe(value)} into a plain array",
        do=corrections.correction()
        or "make the array by np.zeros_like(x) of a traced x, or by np.zeros(shape,"
        " like=x); or use the result: x = x + y instead of x += y or out=x",
    )
