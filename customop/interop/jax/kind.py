"""JAX's arrays as a kind: operators and NumPy's functions run on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.arrays.nested import flat, map_outline, map_result
from customop.arrays.registering import register_array_type
from customop.core.changes import changing
from customop.core.operator import Operator
from customop.core.table import RuleTable
from customop.errors import ArgumentError
from customop.interop.jax.export import JaxFunction
from customop.interop.jax.ffi import is_fixed
from customop.interop.jax.native import NATIVE, ON_HOST_IF_COMPLEX
from customop.interop.jax.places import ArraySlot, CallPlaces

__all__ = ["register_jax_arrays"]


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
