"""What is used of numba, or what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["NumbaError", "type_in_code", "typeof_impl"]


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


typeof_impl: Any = _imported().typeof_impl
NumbaError: Any = import_module("numba.core.errors").NumbaError


def type_in_code(value: Any) -> Any:
    """The type of a function in compiled code; raise NumbaError for others."""
    target = import_module("numba.core.registry").cpu_target
    return target.typing_context.resolve_value_type(value)
