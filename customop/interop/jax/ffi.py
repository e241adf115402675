"""Kernels that XLA calls without Python: those that numba compiles, by XLA's FFI.

A callback takes 100 us and Python's lock, a handler 2 us. Only NumPy's kernels of
operators are called so, on CPUs; their derivatives are then programs of JAX that call
them.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeGuard

import jax
import numpy as np

from customop.arrays.kinds import CPU
from customop.core.changes import changing
from customop.core.dispatch import find_kernel
from customop.core.njit_kernels import compiled_of
from customop.core.table import RuleTable
from customop.interop.jax.functions import OperatorCall
from customop.interop.jax.places import ArraySlot

__all__ = [
    "call_target",
    "has_own_kernel",
    "has_target",
    "is_fixed",
    "run_own_kernel",
]

# The kind of JAX's arrays.
_KIND = "jax"
_CONSTANTS = (bool, int, float, complex, str, type(None))
# Handlers, which XLA keeps for as long as the process lives.
_handlers: list[Any] = []
_numbers = itertools.count()


# ---- kernels for JAX's arrays ----


def has_own_kernel(call: object) -> TypeGuard[OperatorCall]:
    """Whether the operator of a call has a kernel for arrays of JAX."""
    return isinstance(call, OperatorCall) and _KIND in call.op.rows


def run_own_kernel(call: OperatorCall, arrays: Sequence[Any]) -> list[Any]:
    """The arrays that this kernel gives."""
    positional, keywords = call.op.schema.split(call.places.filled(arrays))
    return call.leaves(call.op.rows[_KIND].fn(*positional, **keywords))


# ---- kernels of numba ----


def has_target(call: object) -> TypeGuard[OperatorCall]:
    """Whether XLA may call the kernel of a call without Python, on a CPU."""
    return isinstance(call, OperatorCall) and _kernel_of(call.op) is not None


def call_target(
    call: OperatorCall, arrays: Sequence[Any], results: Sequence[Any]
) -> list[Any] | None:
    """The results of a call in a program of JAX; None if Python has to call it.

    Parameters
    ----------
    call : OperatorCall
    arrays : sequence of traced array
    results : sequence of ShapeDtypeStruct
    """
    given = tuple([(np.dtype(x.dtype), x.ndim) for x in arrays])
    wanted = tuple([(np.dtype(y.dtype), len(y.shape)) for y in results])
    is_wide = jax.config.read("jax_enable_x64")
    target = _target(call, given, wanted, changing.count, is_wide)
    return None if target is None else [*jax.ffi.ffi_call(target, results)(*arrays)]


def is_fixed(op: RuleTable) -> bool:
    """Whether the kernel is compiled for fixed types: it takes no read-only arrays."""
    kernel = _kernel_of(op)
    if kernel is None:
        return False
    framework = import_module("customop.interop.numba.framework")
    return bool(framework.has_fixed_types(kernel))


@lru_cache(maxsize=4096)
def _target(
    call: OperatorCall,
    given: Sequence[tuple[Any, int]],
    wanted: Sequence[tuple[Any, int]],
    changes: int,
    is_wide: bool,
) -> str | None:
    """The name of a handler that XLA knows; asked again after a kernel was registered."""
    described = _described(call, is_wide)
    if described is None:
        return None
    handlers = import_module("customop.interop.numba.handlers")
    handler = handlers.handler_of(
        handlers.HandlerCall(*described),
        [handlers.BufferType(*x) for x in given],
        [handlers.BufferType(*y) for y in wanted],
    )
    if handler is None:
        return None
    _handlers.append(handler)
    name = f"customop_{call.op.name}_{next(_numbers)}"
    capsule = jax.ffi.pycapsule(ctypes.c_void_p(handler.address))
    jax.ffi.register_ffi_target(name, capsule, platform="cpu", api_version=1)
    return name


def _described(call: OperatorCall, is_wide: bool) -> Sequence[Any] | None:
    """Describe the handler of a call; None if it cannot be given some argument."""
    schema = call.op.schema
    kernel = _kernel_of(call.op)
    values = call.places.filled([ArraySlot(i) for i in range(call.places.count)])
    if kernel is None or not all(map(_can_be_given, values)):
        return None
    names = [p.name for p in schema.parameters]
    return (
        kernel,
        call.op.qualname,
        tuple([v.index if isinstance(v, ArraySlot) else (v,) for v in values]),
        tuple([p.name for p in schema.keyword_only]),
        tuple([names.index(name) for name in schema.written]),
        kernel is not compiled_of(find_kernel(call.op, CPU.name)),
        not is_wide,
    )


def _can_be_given(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(v, _CONSTANTS) for v in value)
    return isinstance(value, (ArraySlot, *_CONSTANTS))


def _kernel_of(op: RuleTable) -> Any:
    """The kernel for NumPy's arrays, if numba has compiled it; else None."""
    if "numba" not in sys.modules:
        return None
    kernel = find_kernel(op, CPU.name)
    kernel = compiled_of(getattr(kernel, "gufunc", kernel))
    framework = import_module("customop.interop.numba.framework")
    return kernel if framework.is_compiled(kernel) else None
