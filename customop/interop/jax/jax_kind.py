"""JAX arrays as a kind: operators and NumPy functions run on them.

Results have the dtypes of NumPy, which sometimes differ from those of JAX. So operands
are converted as NumPy does, and results to the dtype of the fake kernel. Operators that
are not listed here run on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
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
from customop.interop.counterparts import TABLE, Dialect
from customop.interop.jax.jax_calls import ArraySlot, CallPlaces
from customop.interop.jax.jax_export import JaxFunction, check_not_key
from customop.interop.jax.xla_targets import is_fixed

# ---- JAX arrays as a kind ----


def register_jax_arrays() -> None:
    """Register JAX arrays, including traced ones, as the kind of array ``"jax"``.

    NumPy operators run as JAX functions where JAX has them. All others run on the host,
    by a callback if JAX is tracing.

    Examples
    --------
    >>> import customop as co, jax.numpy as jnp, numpy as np
    >>> from customop.interop.jax import register_jax_arrays
    >>> register_jax_arrays()
    >>> co.grad(lambda x: np.sum(np.sin(x)))(jnp.zeros(2, "float32"))
    Array([1., 1.], dtype=float32)
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
            checked=False,  # opcheck forks, and JAX warns about that
        )


def _from_numpy(x: Any) -> Any:
    with jax.enable_x64(True):
        return jnp.asarray(x)


def _wide(op: Operator[..., Any], kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that keeps 64-bit arguments, which JAX rounds to 32 bits by default."""

    def run(*values: Any, **named: Any) -> Any:
        arrays = [leaf for leaf in flat([*values, *named.values()]) if is_array(leaf)]
        for array in arrays:
            if not isinstance(array.dtype, np.dtype):
                check_not_key(op.qualname, array)
        dtypes = [np.dtype(array.dtype) for array in arrays]
        if jax.config.read("jax_enable_x64") or not any(map(is_wide, dtypes)):
            return kernel(*values, **named)
        with jax.enable_x64(True):
            return kernel(*values, **named)

    return run


def is_wide(dtype: np.dtype[Any]) -> bool:
    """Return whether JAX lacks a dtype as long as it has 32 bits."""
    return dtype.itemsize >= (16 if dtype.kind == "c" else 8)


def _kernel(op: RuleTable) -> Callable[..., Any] | None:
    """Return the kernel of an operator for JAX arrays; None if it creates arrays."""
    assert isinstance(op, Operator)
    if op.is_factory:
        return None
    if op.schema.written or op.sees_seed:
        return _refusing(op)
    native = _function_of(op)
    on_host = _on_host(op)
    if native is None:
        return _wide(op, on_host)
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

    return _wide(op, kernel)


def _function_of(op: RuleTable) -> Callable[..., Any] | None:
    found = TABLE.get(op.name) if op.namespace == "np" else None
    return None if found is None else partial(found, _DIALECT)


def has_function(op: Operator[..., Any], dtypes: Sequence[np.dtype[Any]]) -> bool:
    """Return whether JAX runs an operator as NumPy does, also where NumPy raises.

    Parameters
    ----------
    op : Operator
    dtypes : sequence of dtype
        Those of the arrays of a call.
    """
    if op.schema.written or op.sees_seed or op.name in RAISING:
        return False
    if op.is_factory:
        return True
    is_complex = any(t.kind == "c" for t in dtypes)
    is_whole = all(t.kind in "biu" for t in dtypes)
    is_left_out = (is_complex and op.name in ON_HOST_IF_COMPLEX) or (
        is_whole and op.name == "power"  # NumPy refuses a negative exponent
    )
    return _function_of(op) is not None and not is_left_out


def _on_host(op: Operator[..., Any]) -> Callable[..., Any]:
    """Return a kernel that runs the NumPy kernel: directly, or by a callback in a trace."""
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
    """Return a kernel that raises: JAX arrays cannot be written to, and do not draw."""

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
    """Return the dtype that NumPy gives.

    `changes` is part of the cache key, so that new rules are taken into account.
    """
    values = places.filled([FakeArray(shape, dtype) for shape, dtype in types])
    (found,) = flat(op.invoke(values))
    return found.dtype


def run_for_all_sizes(op: Operator[..., Any], values: Sequence[Any], val: Any) -> Any:
    """Run an operator on arrays of symbolic shapes, which only JAX's functions take.

    Parameters
    ----------
    op : Operator
    values : sequence
        The values of all parameters.
    val : FakeArray
        The result, as this package knows it.
    """
    if "jax" in op.rows:
        positional, named = op.schema.split(values)
        return op.rows["jax"].fn(*positional, **named)
    run = _function_of(op)
    if run is not None:
        return run(*values).astype(jax.dtypes.canonicalize_dtype(val.dtype))
    if op.is_factory:
        raise op.error(
            ArgumentError,
            f" makes an array of the shape {tuple(val.shape)}, traced for all sizes",
            do="make it like another array: np.zeros_like(x), np.full_like(x, 1.0)",
        )
    positional, named = op.schema.split(values)
    return JaxFunction(op)(*positional, **named)


# ---- JAX functions for the operators of NumPy ----
# They run on the device and are compiled.

# XLA drops the sign of a zero imaginary part, which selects the side of a branch cut
# (jaxlib 0.10.2).
ON_HOST_IF_COMPLEX = frozenset(("sqrt", "arcsin", "arccos", "arcsinh", "arccosh"))


# NumPy raises for indices out of bounds and for singular matrices, which XLA does not.
RAISING = frozenset(("index", "scatter_add", "solve", "cholesky"))


def _known(dtype: Any) -> Any:
    """Return the dtype that JAX uses instead: it has 32 bits unless 64 are enabled."""
    return jax.dtypes.canonicalize_dtype(dtype)


def _places(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([slice(None) if i is None else i for i in indices])


_DIALECT = Dialect(
    jnp,
    asarray=lambda x, dtype: jnp.asarray(x, _known(dtype)),
    dtype_of=lambda x: np.dtype(x.dtype),
    put=lambda x, key, value: jnp.asarray(x).at[key].set(value),
    zeros=lambda g, shape: jnp.zeros(shape, g.dtype),
    add_at=lambda x, indices, g: x.at[_places(indices)].add(g),
    take_at=lambda x, indices: jnp.asarray(x)[_places(indices)],
    cholesky=lambda a, upper: jnp.linalg.cholesky(
        a, upper=upper, symmetrize_input=False
    ),
)
