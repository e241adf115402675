"""The array namespace of traced and fake arrays: NumPy, whose conversions keep them.

``np.asarray(x)`` itself asks ``x.__array__``, which has to return a plain array: NumPy
offers no other hook, except ``np.asarray(x, like=x)``. Code written for the array API
standard takes its functions from ``x.__array_namespace__()``, which are these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from types import ModuleType
from typing import Any

import numpy as np

from customop.arrays.kinds import is_fake, is_traced

__all__ = [
    "CONVERSIONS",
    "KeepingNamespace",
    "first_virtual",
    "keeping",
    "namespace_of",
]

CONVERSIONS = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")


class KeepingNamespace(ModuleType):
    """The functions of a module, of which the conversions keep traced and fake arrays.

    It equals the module: array-api-compat compares the namespaces of its arguments.
    """

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__, module.__doc__)
        self._module: ModuleType = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name in CONVERSIONS:
            found = keeping(name, found)
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return dir(self._module)

    def __repr__(self) -> str:
        return repr(self._module)

    def __eq__(self, other: object) -> bool:
        return self is other or self._module == other

    def __hash__(self) -> int:
        return hash(self._module)


def keeping(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A conversion that calls the operator for traced and fake arrays."""

    @wraps(function)
    def convert(obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        like = first_virtual(obj)
        if like is None or "like" in kwargs:
            return function(obj, *args, **kwargs)
        return getattr(np, name)(obj, *args, **kwargs, like=like)

    return convert


def first_virtual(value: Any) -> Any:
    """The first traced or fake array among nested values, or None."""
    if isinstance(value, list | tuple):
        return next((x for x in map(first_virtual, value) if x is not None), None)
    return value if is_traced(value) or is_fake(value) else None


@lru_cache(8)
def namespace_of(module: ModuleType) -> ModuleType:
    """The namespace of traced and fake arrays that has the functions of a module."""
    return KeepingNamespace(module)
