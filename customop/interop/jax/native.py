"""Functions of JAX for the operators of NumPy: what runs on a device, and is compiled.

Each gives NumPy's dtype, which is not always JAX's: operands are converted as NumPy does,
and results to what the fake kernel says. Operators that are not here run on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from customop.numpy.slices import key_of

__all__ = ["NATIVE", "ON_HOST_IF_COMPLEX"]

# XLA drops the sign of a zero imaginary part, which chooses the side of a branch cut
# (jaxlib 0.10.2).
ON_HOST_IF_COMPLEX = frozenset(("sqrt", "arcsin", "arccos", "arcsinh", "arccosh"))


def _of_ufunc(name: str) -> Callable[..., Any]:
    """A ufunc of JAX on operands that are converted to NumPy's loop."""
    ufunc, function = getattr(np, name), getattr(jnp, name)

    def run(*operands: Any) -> Any:
        dtypes = [_asked(x) for x in operands]
        loop = ufunc.resolve_dtypes((*dtypes, *[None] * ufunc.nout))
        pairs = zip(operands, loop, strict=False)
        return function(*[jnp.asarray(x, _known(t)) for x, t in pairs])

    return run


def _asked(value: Any) -> Any:
    """The type of an operand for NumPy: its dtype, or the class of a number of Python."""
    if type(value) in (int, float, complex):
        return type(value)
    return np.dtype(bool) if type(value) is bool else np.dtype(value.dtype)


def _known(dtype: Any) -> Any:
    """A dtype as JAX has it: of 32 bits, unless 64 are on."""
    return jax.dtypes.canonicalize_dtype(dtype)


def _promoted(arrays: Sequence[Any]) -> list[Any]:
    """Arrays of the dtype that NumPy finds for all of them."""
    dtype = _known(np.result_type(*[np.dtype(x.dtype) for x in arrays]))
    return [jnp.asarray(x, dtype) for x in arrays]


def _places(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([slice(None) if i is None else i for i in indices])


def _unslice(g: Any, shape: Any, key: Any) -> Any:
    return jnp.zeros(shape, g.dtype).at[key_of(key)].set(g)


def _scatter_add(g: Any, shape: Any, indices: Any) -> Any:
    return jnp.zeros(shape, g.dtype).at[_places(indices)].add(g)


def _square(x: Any) -> Any:
    """NumPy takes one row for all rows of a square."""
    return x if x.ndim > 1 else jnp.broadcast_to(x, (x.size, x.size))


def _full_like(x: Any, value: Any, dtype: Any, shape: Any) -> Any:
    wanted = x.dtype if dtype is None else _known(dtype)
    return jnp.full(x.shape if shape is None else tuple(shape), value, wanted)


def _tensordot(a: Any, b: Any, axes_a: Any, axes_b: Any) -> Any:
    first, second = _promoted([a, b])
    return jnp.tensordot(first, second, axes=(tuple(axes_a), tuple(axes_b)))


def _reduced(name: str) -> Callable[..., Any]:
    function = getattr(jnp, name)

    def run(x: Any, axis: Any, keepdims: Any) -> Any:
        axes = tuple(axis) if isinstance(axis, list) else axis
        return function(x, axis=axes, keepdims=keepdims)

    return run


def _spread(name: str) -> Callable[..., Any]:
    """np.var and np.std."""
    function = getattr(jnp, name)

    def run(x: Any, axis: Any, keepdims: Any, ddof: Any, dtype: Any) -> Any:
        axes = tuple(axis) if isinstance(axis, list) else axis
        wide = x if dtype is None else x.astype(_known(dtype))
        wide = wide if jnp.issubdtype(wide.dtype, jnp.inexact) else wide.astype(float)
        return function(wide, axis=axes, keepdims=keepdims, ddof=ddof)

    return run


_UFUNCS = (
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
# Name of an operator of NumPy -> a function of the values of all its parameters.
NATIVE: Mapping[str, Callable[..., Any]] = {
    **{name: _of_ufunc(name) for name in _UFUNCS},
    **{name: _reduced(name) for name in ("sum", "prod", "mean", "max", "min")},
    **{name: _reduced(name) for name in ("any", "all", "argmax", "argmin")},
    **{name: _spread(name) for name in ("var", "std")},
    "reshape": lambda x, shape: jnp.reshape(x, tuple(shape)),
    "transpose": lambda x, axes: jnp.transpose(x, tuple(axes)),
    "broadcast_to": lambda x, shape: jnp.broadcast_to(x, tuple(shape)),
    "expand_dims": lambda x, axis: jnp.expand_dims(x, tuple(axis)),
    "squeeze": lambda x, axis: jnp.squeeze(x, tuple(axis)),
    "ravel": jnp.ravel,
    "copy": jnp.copy,
    "real": jnp.real,
    "imag": jnp.imag,
    "astype": lambda x, dtype: x.astype(_known(dtype)),
    "concatenate": lambda arrays, axis: jnp.concatenate(_promoted(arrays), axis),
    "stack": lambda arrays, axis: jnp.stack(_promoted(arrays), axis),
    "where": jnp.where,
    "matmul": lambda a, b: jnp.matmul(*_promoted([a, b])),
    "tensordot": _tensordot,
    "slice": lambda x, key: x[key_of(key)],
    "unslice": _unslice,
    "index": lambda x, indices, packed: jnp.asarray(x)[_places(indices)],
    "scatter_add": _scatter_add,
    "full_like": _full_like,
    "flip": lambda x, axis: jnp.flip(x, tuple(axis)),
    "roll": lambda x, shift, axis: jnp.roll(x, tuple(shift), tuple(axis)),
    "cumsum": jnp.cumsum,
    "tril": lambda x, k: jnp.tril(_square(x), k),
    "triu": lambda x, k: jnp.triu(_square(x), k),
    "diagonal": jnp.diagonal,
    "det": lambda a: jnp.linalg.det(_inexact(a)),
    "solve": lambda a, b: jnp.linalg.solve(*_promoted([_inexact(a), _inexact(b)])),
    "cholesky": lambda a, upper: jnp.linalg.cholesky(
        _inexact(a), upper=upper, symmetrize_input=False
    ),
}


def _inexact(x: Any) -> Any:
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)
