"""The parts of numba that are used, or an error that says what to install."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = [
    "NumbaError",
    "has_fixed_types",
    "intrinsic",
    "ir",
    "is_compiled",
    "njit",
    "numba",
    "type_in_code",
    "typeof_impl",
    "types",
]


def _imported() -> Any:
    try:
        return import_module("numba.extending")
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        raise ModuleNotFoundError(
            "customop.interop.numba needs numba, which is not installed\n"
            "  do: pip install 'customop[numba]'",
            name="numba",
        ) from None


_extending: Any = _imported()
typeof_impl: Any = _extending.typeof_impl
intrinsic: Callable[[Callable[..., Any]], Any] = _extending.intrinsic
numba: Any = import_module("numba")
njit: Callable[[Callable[..., Any]], Any] = numba.njit
types: Any = numba.types
ir: Any = import_module("llvmlite.ir")
NumbaError: Any = import_module("numba.core.errors").NumbaError


def type_in_code(value: Any) -> Any:
    """The type of a function in compiled code; raise NumbaError for others."""
    target = import_module("numba.core.registry").cpu_target
    return target.typing_context.resolve_value_type(value)


_Dispatcher: Any = import_module("numba.core.dispatcher").Dispatcher
_DUFunc: Any = import_module("numba.np.ufunc.dufunc").DUFunc
_GUFunc: Any = import_module("numba.np.ufunc.gufunc").GUFunc


def is_compiled(fn: Any) -> bool:
    """Whether compiled code can call a function, from any thread at any time."""
    if isinstance(fn, _Dispatcher):
        # The threads of parallel code may be asked for by one caller at a time.
        options = fn.targetoptions
        return not (options.get("parallel") or options.get("forceobj"))
    return isinstance(fn, _DUFunc | _GUFunc)


def has_fixed_types(fn: Any) -> bool:
    """Whether a function of njit has signatures: it takes no read-only arrays then."""
    return isinstance(fn, _Dispatcher) and not getattr(fn, "_can_compile", True)
