"""Functions of other libraries for the operators of NumPy.

There is one table. The functions of a library are reached through a `Dialect`, which has
NumPy's names and meanings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from customop.numpy.index_operators import key_of


class Dialect:
    """The functions of a library under NumPy's names.

    Parameters
    ----------
    module : module
        The library.
    asarray : callable
        ``asarray(x, dtype)`` converts an array or a number to a dtype of NumPy.
    dtype_of : callable
        Returns NumPy's dtype for that of an array.
    put : callable
        ``put(x, key, value)`` returns a copy of `x` with a slice replaced.
    zeros : callable
        ``zeros(g, shape)`` returns zeros of the dtype of `g`.
    add_at : callable
        ``add_at(x, indices, g)`` returns `x` after ``np.add.at``; an index may be None.
    take_at : callable
        ``take_at(x, indices)`` returns elements; an index may be None.
    **own : callable
        Functions that the library lacks, or that differ from NumPy's.
    """

    def __init__(
        self,
        module: ModuleType,
        *,
        asarray: Callable[[Any, Any], Any],
        dtype_of: Callable[[Any], np.dtype[Any]],
        put: Callable[[Any, Any, Any], Any],
        zeros: Callable[[Any, Any], Any],
        add_at: Callable[[Any, Any, Any], Any],
        take_at: Callable[[Any, Any], Any],
        **own: Callable[..., Any],
    ) -> None:
        self._module = module
        self.asarray: Callable[[Any, Any], Any] = asarray
        self.dtype_of: Callable[[Any], np.dtype[Any]] = dtype_of
        self.put: Callable[[Any, Any, Any], Any] = put
        self.zeros: Callable[[Any, Any], Any] = zeros
        self.add_at: Callable[[Any, Any, Any], Any] = add_at
        self.take_at: Callable[[Any, Any], Any] = take_at
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


# ---- dtypes ----
# Operands are converted as NumPy does, which other libraries do not.

_NUMBERS = (int, float, complex)


def _asked(m: Dialect, value: Any) -> Any:
    """Return the dtype of an operand, or the class of a Python number."""
    if type(value) in _NUMBERS:
        return type(value)
    return np.dtype(bool) if type(value) is bool else m.dtype_of(value)


@lru_cache(maxsize=4096)
def _loop(name: str, dtypes: tuple[Any, ...]) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes of the loop that a ufunc of NumPy runs."""
    ufunc: np.ufunc = getattr(np, name)
    return ufunc.resolve_dtypes((*dtypes, *[None] * ufunc.nout))


def _of_ufunc(name: str) -> Callable[..., Any]:
    """Return the function for a ufunc."""

    def run(m: Dialect, *operands: Any) -> Any:
        loop = _loop(name, tuple([_asked(m, x) for x in operands]))
        pairs = zip(operands, loop, strict=False)
        return getattr(m, name)(*[m.asarray(x, t) for x, t in pairs])

    return run


def _promoted(m: Dialect, arrays: Sequence[Any]) -> list[Any]:
    """Convert arrays and numbers to the dtype to which NumPy promotes them."""
    asked = [x if type(x) in _NUMBERS else _asked(m, x) for x in arrays]
    dtype = np.result_type(*asked)
    return [m.asarray(x, dtype) for x in arrays]


def _inexact(m: Dialect, x: Any) -> Any:
    return x if m.dtype_of(x).kind in "fc" else m.asarray(x, np.dtype(float))


# ---- functions of the values of all parameters ----


def _reduced(name: str) -> Callable[..., Any]:
    def run(m: Dialect, x: Any, axis: Any, keepdims: Any) -> Any:
        axes = tuple(axis) if isinstance(axis, list) else axis
        return getattr(m, name)(x, axis=axes, keepdims=keepdims)

    return run


def _spread(name: str) -> Callable[..., Any]:
    """Return the function for `np.var` or `np.std`."""

    def run(m: Dialect, x: Any, axis: Any, keepdims: Any, ddof: Any, dtype: Any) -> Any:
        axes = tuple(axis) if isinstance(axis, list) else axis
        wide = _inexact(m, x if dtype is None else m.asarray(x, dtype))
        return getattr(m, name)(wide, axis=axes, keepdims=keepdims, ddof=ddof)

    return run


def _square(m: Dialect, x: Any) -> Any:
    """Repeat a vector as all rows of a square matrix, as `np.tril` does."""
    return x if x.ndim > 1 else m.broadcast_to(x, (x.shape[0], x.shape[0]))


def _full_like(m: Dialect, x: Any, value: Any, dtype: Any, shape: Any) -> Any:
    wanted = m.dtype_of(x) if dtype is None else dtype
    lengths = tuple(x.shape if shape is None else shape)
    return m.broadcast_to(m.asarray(value, wanted), lengths)


def _tensordot(m: Dialect, a: Any, b: Any, axes_a: Any, axes_b: Any) -> Any:
    first, second = _promoted(m, [a, b])
    return m.tensordot(first, second, (tuple(axes_a), tuple(axes_b)))


def _clip(m: Dialect, a: Any, low: Any, high: Any) -> Any:
    return TABLE["minimum"](m, TABLE["maximum"](m, a, low), high)


# ---- the table ----

UFUNCS = (
    *("add", "subtract", "multiply", "divide", "negative", "positive", "square"),
    *("reciprocal", "sqrt", "cbrt", "conjugate", "copysign", "power", "hypot"),
    *("float_power", "arctan2", "logaddexp", "logaddexp2", "maximum", "minimum"),
    *("fmax", "fmin", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin"),
    *("cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh"),
    *("arccosh", "arctanh", "deg2rad", "rad2deg", "absolute", "fabs", "rint", "floor"),
    *("ceil", "trunc", "signbit", "isnan", "isinf", "isfinite", "equal", "not_equal"),
    *("less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or"),
    *("logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("invert", "heaviside", "nextafter"),
)
# Name of a NumPy operator -> a function of a dialect and the values of all parameters.
TABLE: Mapping[str, Callable[..., Any]] = {
    **{name: _of_ufunc(name) for name in UFUNCS},
    **{name: _reduced(name) for name in ("sum", "prod", "mean", "max", "min")},
    **{name: _reduced(name) for name in ("any", "all", "argmax", "argmin")},
    **{name: _spread(name) for name in ("var", "std")},
    "reshape": lambda m, x, shape: m.reshape(x, tuple(shape)),
    "transpose": lambda m, x, axes: m.transpose(x, tuple(axes)),
    "broadcast_to": lambda m, x, shape: m.broadcast_to(x, tuple(shape)),
    "expand_dims": lambda m, x, axis: m.expand_dims(x, tuple(axis)),
    "squeeze": lambda m, x, axis: m.squeeze(x, tuple(axis)),
    "ravel": lambda m, x: m.ravel(x),
    "copy": lambda m, x: m.copy(x),
    "c_copy": lambda m, x: m.copy(x),
    "packed_like": lambda m, out, x: out,  # the library chooses the layout
    "real": lambda m, x: m.real(x),
    "imag": lambda m, x: m.imag(x),
    "astype": lambda m, x, dtype: m.asarray(x, dtype),
    "concatenate": lambda m, arrays, axis: m.concatenate(_promoted(m, arrays), axis),
    "stack": lambda m, arrays, axis: m.stack(_promoted(m, arrays), axis),
    "where": lambda m, condition, x, y: m.where(condition, *_promoted(m, [x, y])),
    "sign": lambda m, x: m.sign(x),
    "clip": _clip,
    "repeat": lambda m, x, count, axis: m.repeat(x, count, axis),
    "pad": lambda m, x, widths, value: m.pad(x, widths, constant_values=value),
    "trace": lambda m, x, *axes: m.trace(x, *axes),
    "matmul": lambda m, a, b: m.matmul(*_promoted(m, [a, b])),
    "tensordot": _tensordot,
    "outer": lambda m, a, b: m.outer(*_promoted(m, [a, b])),
    "einsum": lambda m, subscripts, operands, optimize: m.einsum(
        subscripts, *_promoted(m, operands)
    ),
    "slice": lambda m, x, key: x[key_of(key)],
    "unslice": lambda m, g, shape, key: m.put(m.zeros(g, shape), key_of(key), g),
    "slice_set": lambda m, x, v, key: m.put(
        x, key_of(key), m.asarray(v, m.dtype_of(x))
    ),
    "index": lambda m, x, indices, packed: m.take_at(x, indices),
    "scatter_add": lambda m, g, shape, indices: m.add_at(m.zeros(g, shape), indices, g),
    "full_like": _full_like,
    "flip": lambda m, x, axis: m.flip(x, tuple(axis)),
    "roll": lambda m, x, shift, axis: m.roll(x, tuple(shift), tuple(axis)),
    "cumsum": lambda m, x, axis: m.cumsum(x, axis),
    "tril": lambda m, x, k: m.tril(_square(m, x), k),
    "triu": lambda m, x, k: m.triu(_square(m, x), k),
    "diagonal": lambda m, x, *axes: m.diagonal(x, *axes),
    "det": lambda m, a: m.linalg.det(_inexact(m, a)),
    "solve": lambda m, a, b: m.linalg.solve(
        *_promoted(m, [_inexact(m, a), _inexact(m, b)])
    ),
    "cholesky": lambda m, a, upper: m.cholesky(_inexact(m, a), upper),
}
