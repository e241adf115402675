"""Kernels with a second form for calls whose lists and numbers are known before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from customop.core.table import RuleTable
from customop.errors import RegistrationError
from customop.schema.types import Base, ListOf, Maybe, SchemaType

__all__ = [
    "again",
    "constants_key",
    "find_prepare",
    "fixed",
    "has_arrays_first",
    "prepared",
]

KernelT = TypeVar("KernelT", bound=Callable[..., Any])
# Takes the values of all parameters after the arrays.
Prepare = Callable[..., Callable[..., Any]]

_prepares: WeakKeyDictionary[Any, Prepare] = WeakKeyDictionary()


def prepared(kernel: KernelT, prepare: Prepare, /) -> KernelT:
    """Give a kernel a form for many calls with the same numbers and lists.

    Captured graphs and `vmap` know these values before a call. They use the form where
    the kernel is registered for NumPy's arrays, and the arrays come before all other
    parameters.

    Parameters
    ----------
    kernel : function
        The kernel, to be registered as it is.
    prepare : callable
        Takes the values of all parameters but the arrays. Returns a function of the
        arrays that does what the kernel does with these values.

    Returns
    -------
    function
        The kernel.

    Raises
    ------
    RegistrationError
        If one of them is not a function.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from functools import partial
    >>> def power(x: np.ndarray, exponent: int) -> np.ndarray:
    ...     return x**exponent
    >>> def prepare(exponent: int):
    ...     return np.square if exponent == 2 else lambda x: x**exponent
    >>> op = co.custom_op("doc::power", co.prepared(power, prepare), mutates_args=())
    >>> graph = co.make_fx(lambda x: op(x, 2))(np.ones(2))
    >>> graph(np.array([2.0, 3.0]))  # calls np.square
    array([4., 9.])
    """
    if type(kernel) is not FunctionType or not callable(prepare):
        raise RegistrationError(
            "prepared takes a function for the kernel, and one that makes functions",
            do="write prepared(kernel, lambda axis: lambda x: ...)",
        )
    _prepares[kernel] = prepare
    return kernel


def find_prepare(kernel: Any) -> Prepare | None:
    """The function that makes the second form of a kernel, or None."""
    return _prepares.get(kernel) if type(kernel) is FunctionType else None


def fixed(kernel: Callable[..., Any], constants: Sequence[Any]) -> Callable[..., Any]:
    """The kernel as a function of its arrays, which come first."""
    own = [again(value) for value in constants]  # the caller may change its lists
    prepare = find_prepare(kernel)
    if prepare is not None:
        return prepare(*own)
    if list not in map(type, own):
        return lambda *arrays: kernel(*arrays, *own)
    return lambda *arrays: kernel(*arrays, *map(again, own))  # so may the kernel


def again(value: Any) -> Any:
    """A constant with lists of its own."""
    return [again(item) for item in value] if type(value) is list else value


def has_arrays_first(op: RuleTable) -> bool:
    """Whether the parameters are arrays and then others, none of them by name only."""
    count = len(op.array_slots)
    is_first = op.array_slots == (*range(count),)
    return bool(count and is_first and not (op.nested_slots or op.schema.keyword_only))


def constants_key(op: RuleTable) -> list[str] | None:
    """Texts of hashable values made of those of the other parameters, ``v1`` and so on.

    None where a parameter may have values that are equal but not the same, or none that
    can be hashed.
    """
    first = len(op.array_slots)
    texts = []
    for slot, parameter in enumerate(op.schema.parameters[first:], first):
        text = _key_text(f"v{slot}", parameter.type)
        if text is None:
            return None
        texts.append(text)
    return texts


def _key_text(name: str, declared: SchemaType) -> str | None:
    if isinstance(declared, Maybe):
        text = _key_text(name, declared.item)
        return None if text is None else f"{name} if {name} is None else {text}"
    if isinstance(declared, ListOf):
        item = declared.item
        if isinstance(item, ListOf) and _is_exact(item.item):
            return f"tuple(map(tuple, {name}))"
        return f"tuple({name})" if _is_exact(item) else None
    return name if _is_exact(declared) else None


def _is_exact(declared: SchemaType) -> bool:
    """Whether equal values of a type are the same value."""
    item = declared.item if isinstance(declared, Maybe) else declared
    return isinstance(item, Base) and item.name in ("int", "bool", "str")
