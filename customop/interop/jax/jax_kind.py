"""JAX's arrays as a kind: operators and NumPy's functions run on them.

Each gives NumPy's dtype, which is not always JAX's: operands are converted as NumPy does,
and results to what the fake kernel says. Operators that are not here run on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from customop.arrays.convert import register_array_type
from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.arrays.nested import flat, map_outline, map_result
from customop.core.operator import Operator
from customop.core.table import RuleTable, changing
from customop.errors import ArgumentError
from customop.interop.jax.jax_export import ArraySlot, CallPlaces, JaxFunction, is_fixed
from customop.numpy.index_operators import key_of

# ---- functions of JAX for the operators of NumPy ----
# What runs on a device, and is compiled.


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


# ---- JAX's arrays as a kind: operators and NumPy's functions run on them ----


def register_jax_arrays() -> None:
    """Make arrays of JAX, also traced ones, a kind of array with the name ``"jax"``.

    Operators of NumPy run as functions of JAX where it has them; all others run on the
    host, by a callback where JAX traces.
    """
    for cls in (type(jnp.zeros(())), Tracer):
        register_array_type(
            "jax",
            cls,
            from_numpy=_from_numpy,
            to_numpy=np.asarray,
            accepts=("cpu",),
            immutable=True,
            derive=_kernel,
            checked=False,  # JAX warns that its threads end where a process forks
        )


def _from_numpy(x: Any) -> Any:
    with jax.enable_x64(True):
        return jnp.asarray(x)


def _wide(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that keeps 64 bits of its arguments where JAX has 32 by default."""

    def run(*values: Any, **named: Any) -> Any:
        leaves = flat([*values, *named.values()])
        dtypes = [np.dtype(leaf.dtype) for leaf in leaves if is_array(leaf)]
        if jax.config.read("jax_enable_x64") or not any(map(_is_wide, dtypes)):
            return kernel(*values, **named)
        with jax.enable_x64(True):
            return kernel(*values, **named)

    return run


def _is_wide(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize >= (16 if dtype.kind == "c" else 8)


def _kernel(op: RuleTable) -> Callable[..., Any] | None:
    """The kernel of an operator for JAX's arrays; None if it makes arrays of nothing."""
    assert isinstance(op, Operator)
    if op.is_factory:
        return None
    if op.schema.written or op.sees_seed:
        return _refusing(op)
    native = NATIVE.get(op.name) if op.namespace == "np" else None
    on_host = _on_host(op)
    if native is None:
        return _wide(on_host)
    run = native

    def kernel(*values: Any) -> Any:
        arrays: list[Any] = []

        def slot(leaf: Any) -> Any:
            if not is_array(leaf):
                return leaf
            arrays.append(leaf)
            return ArraySlot(len(arrays) - 1)

        places = CallPlaces([map_outline(value, slot) for value in values])
        types = tuple([(tuple(x.shape), np.dtype(x.dtype)) for x in arrays])
        if op.name in ON_HOST_IF_COMPLEX and arrays[0].dtype.kind == "c":
            return on_host(*values)
        wanted = _result_dtype(op, places, types, changing.count)
        found = run(*values)
        return found.astype(jax.dtypes.canonicalize_dtype(wanted))

    return _wide(kernel)


def _on_host(op: Operator[..., Any]) -> Callable[..., Any]:
    """NumPy's kernel: at once for arrays with values, by a callback for traced ones."""
    in_program = JaxFunction(op)

    def kernel(*values: Any, **named: Any) -> Any:
        leaves = flat([*values, *named.values()])
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return in_program(*values, **named)
        convert = _to_copy if is_fixed(op) else _to_numpy
        given = [map_outline(value, convert) for value in values]
        others = {name: map_outline(value, convert) for name, value in named.items()}
        return map_result(op.invoke([*given, *others.values()]), jnp.asarray)

    return kernel


def _to_numpy(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf


def _to_copy(leaf: Any) -> Any:
    return np.array(leaf) if isinstance(leaf, jax.Array) else leaf


def _refusing(op: RuleTable) -> Callable[..., Any]:
    """Return a kernel that raises: JAX's arrays cannot be written, and do not draw."""

    def refuse(*values: Any, **named: Any) -> Any:
        if op.schema.written:
            raise op.error(
                ArgumentError,
                "arrays of JAX cannot be written",
                do="call customop.interop.jax.export(op), which returns what it wrote",
            )
        raise op.error(
            ArgumentError,
            "random numbers are not drawn for arrays of JAX",
            do="draw before the call, and pass the numbers as an array",
        )

    return refuse


@lru_cache(maxsize=4096)
def _result_dtype(
    op: RuleTable, places: CallPlaces, types: Sequence[Any], changes: int
) -> Any:
    """The dtype that NumPy gives; asked again after a rule was registered."""
    values = places.filled([FakeArray(shape, dtype) for shape, dtype in types])
    (found,) = flat(op.invoke(values))
    return found.dtype
