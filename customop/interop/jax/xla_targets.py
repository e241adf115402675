"""Kernels that XLA calls without Python, through its FFI: those that numba compiles.

A callback takes 100 us and Python's lock, a handler takes 2 us. Only the NumPy kernels of
operators are called this way, and only on CPUs. Their derivatives are JAX programs that
call them.

A program says in an attribute of each such call which operator it calls, and how. So
another process that loads it can make the same handler.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from typing import Any, NamedTuple, TypeGuard

import jax
import numpy as np

from customop.arrays.kinds import CPU
from customop.core.dispatch import find_kernel
from customop.core.numba_kernels import compiled_of
from customop.core.operator import Operator
from customop.core.recipes import Recipe, recipe_by_name
from customop.core.table import RuleTable, changing
from customop.errors import ArgumentError, MissingRuleError
from customop.interop.jax.jax_calls import ArraySlot, OperatorCall

_FIELDS = 5  # of a recipe, those before its body
_CONSTANTS = (bool, int, float, complex, str, type(None))


class _Target(NamedTuple):
    """The description of a call of a kernel in a program.

    Attributes
    ----------
    recipe : list
        The fields of the recipe of the operator.
    values : list
        The values of its parameters: the index of an array, or a list with a constant.
    inputs, outputs : list of (str, int)
        The dtype and the number of axes of each array.
    narrows : bool
        Whether 64-bit results are rounded to 32 bits.
    number : int
        It tells kernels apart that are equal in text.
    """

    recipe: Any
    values: Any
    inputs: Any
    outputs: Any
    narrows: bool
    number: int

    @property
    def text(self) -> str:
        """The attribute of the call in a program."""
        return urlsafe_b64encode(json.dumps(self).encode()).decode()

    @property
    def name(self) -> str:
        """The name under which XLA finds the handler."""
        named = re.sub(r"\W+", "_", self.recipe[0])
        return f"customop_{named}_{sha256(self.text.encode()).hexdigest()[:16]}"


# The kernel of each handler, and the handlers. XLA keeps using them until the process ends.
_registered: dict[str, tuple[Any, Any]] = {}


def has_target(call: object) -> TypeGuard[OperatorCall]:
    """Return whether XLA may call the kernel of a call without Python, on a CPU."""
    return isinstance(call, OperatorCall) and _kernel_of(call.op) is not None


def call_target(
    call: OperatorCall, arrays: Sequence[Any], results: Sequence[Any]
) -> list[Any] | None:
    """Call a compiled kernel in a JAX program; return None if only Python can call it.

    Parameters
    ----------
    call : OperatorCall
    arrays : sequence of traced array
    results : sequence of ShapeDtypeStruct
    """
    given = tuple([(np.dtype(x.dtype).str, x.ndim) for x in arrays])
    wanted = tuple([(np.dtype(y.dtype).str, len(y.shape)) for y in results])
    is_wide = jax.config.read("jax_enable_x64")
    target = _target(call, given, wanted, changing.count, is_wide)
    if target is None:
        return None
    called = jax.ffi.ffi_call(target.name, results)
    return [*called(*arrays, customop=target.text)]


def is_fixed(op: RuleTable) -> bool:
    """Return whether the kernel has fixed signatures, and so takes only writable arrays."""
    kernel = _kernel_of(op)
    if kernel is None:
        return False
    framework = import_module("customop.interop.numba.njit_calls")
    return bool(framework.has_fixed_types(kernel))


@lru_cache(maxsize=4096)
def _target(
    call: OperatorCall,
    given: Sequence[tuple[str, int]],
    wanted: Sequence[tuple[str, int]],
    changes: int,
    is_wide: bool,
) -> _Target | None:
    """Register a handler for a call with XLA and describe it; None if there is none.

    `changes` is part of the cache key, so that new kernels are taken into account.
    """
    kernel = _kernel_of(call.op)
    values = call.places.filled([ArraySlot(i) for i in range(call.places.count)])
    if kernel is None or not all(map(_can_be_given, values)):
        return None
    recipe = [*recipe_by_name(call.op)[:_FIELDS]]
    texts = [v.index if isinstance(v, ArraySlot) else [_written(v)] for v in values]
    target = _Target(recipe, texts, given, wanted, not is_wide, 0)
    while target.name in _registered and _registered[target.name][0] is not kernel:
        target = target._replace(number=target.number + 1)
    if target.name in _registered or _register(target, call.op):
        return target
    return None


def _register(target: _Target, op: RuleTable) -> bool:
    """Register the handler of an operator; return whether there is one."""
    kernel = _kernel_of(op)
    if kernel is None:
        return False
    schema = op.schema
    names = [p.name for p in schema.parameters]
    handlers = import_module("customop.interop.numba.njit_calls")
    arrays = [
        [handlers.BufferType(np.dtype(text), ndim) for text, ndim in listed]
        for listed in (target.inputs, target.outputs)
    ]
    call = handlers.HandlerCall(
        kernel,
        op.qualname,
        tuple([v if isinstance(v, int) else (_read(v[0]),) for v in target.values]),
        tuple([p.name for p in schema.keyword_only]),
        tuple([names.index(name) for name in schema.written]),
        kernel is not compiled_of(find_kernel(op, CPU.name)),
        target.narrows,
    )
    handler = handlers.handler_of(call, *arrays)
    if handler is None:
        return False
    capsule = jax.ffi.pycapsule(ctypes.c_void_p(handler.address))
    jax.ffi.register_ffi_target(target.name, capsule, platform="cpu", api_version=1)
    _registered[target.name] = kernel, handler
    return True


def _can_be_given(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(v, _CONSTANTS) for v in value)
    return isinstance(value, (ArraySlot, *_CONSTANTS))


def _written(value: Any) -> Any:
    """Return a constant as JSON has it."""
    if isinstance(value, tuple):
        return {"tuple": [*map(_written, value)]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return value


def _read(value: Any) -> Any:
    """Return the constant that was written."""
    if not isinstance(value, dict):
        return value
    ((kind, parts),) = value.items()
    return complex(*parts) if kind == "complex" else tuple(map(_read, parts))


def _kernel_of(op: RuleTable) -> Any:
    """Return the kernel for NumPy arrays if numba has compiled it, otherwise None."""
    if "numba" not in sys.modules:
        return None
    kernel = find_kernel(op, CPU.name)
    kernel = compiled_of(getattr(kernel, "gufunc", kernel))
    framework = import_module("customop.interop.numba.njit_calls")
    return kernel if framework.is_compiled(kernel) else None


# ---- programs from elsewhere ----


def register_kernels(exported: Any) -> list[Operator[..., Any]]:
    """Register with XLA the kernels that a program of ``jax.export`` calls.

    A process calls it once for a program that it has loaded, before it runs the program.
    The modules that define the operators must be importable there, or the script must
    define them.

    Parameters
    ----------
    exported : jax.export.Exported
        What ``jax.export.deserialize`` returns.

    Returns
    -------
    list of Operator
        The operators whose kernels it calls.

    Raises
    ------
    ArgumentError
        If `exported` is something else.
    MissingRuleError
        If an operator is not here, or has no kernel that numba compiles.
    RegistrationError
        If an operator has another schema or kernel than where the program was made.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numba, customop as co
    >>> from customop.interop.jax import export, register_kernels
    >>> @co.custom_op(
    ...     "export_docs::double", mutates_args=(), schema="(Array x) -> Array",
    ...     tags=(co.Tag.pointwise,),
    ... )
    ... @numba.vectorize
    ... def double(x):
    ...     return x + x
    >>> every = jax.export.DisabledSafetyCheck.custom_call("ALL")
    >>> made = jax.export.export(jax.jit(export(double)), disabled_checks=[every])
    >>> program = made(jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), "float32"))
    >>> register_kernels(program)  # in another process: of jax.export.deserialize(data)
    [<Operator export_docs::double(Array x) -> Array>]
    >>> program.call(jnp.ones(2, "float32"))
    Array([2., 2.], dtype=float32)
    """
    if not isinstance(exported, jax.export.Exported):
        raise ArgumentError(
            f"register_kernels: expects a program of jax.export, got {type(exported).__name__}",
            do="pass jax.export.deserialize(data)",
        )
    program = exported.mlir_module()
    on_host = re.search(r"customop_(\w+)_runs_on_the_host", program)
    if on_host is not None:
        raise MissingRuleError(
            f"{exported.fun_name} of jax.export calls {on_host[1]}, which runs on the host,"
            " for arrays of any size, and JAX calls nothing there for those",
            do="let numba compile its kernel, or register one for 'jax'; or export the"
            " program for fixed sizes, once for each",
            op=on_host[1],
        )
    found: list[Operator[..., Any]] = []
    for text in dict.fromkeys(_ATTRIBUTE.findall(program)):
        target = _Target(*json.loads(urlsafe_b64decode(text)))
        qualname, module, schema, python, rows = target.recipe
        digests = tuple([(name, digest) for name, digest in rows])
        recipe = Recipe(qualname, module, schema, python, digests)
        try:
            op = recipe.find(kernel_alone=True)
        except Exception as error:
            error.add_note(f"  called by the program {exported.fun_name} of jax.export")
            raise
        if target.name not in _registered and not _register(target, op):
            raise op.error(
                MissingRuleError,
                f" has no kernel that numba compiles, which {exported.fun_name} calls",
                do="put @numba.njit or @numba.vectorize between @custom_op and the function",
                kind="cpu",
            )
        found.append(op)
    return [*dict.fromkeys(found)]


_ATTRIBUTE = re.compile(r'customop = "([\w=-]+)"')
