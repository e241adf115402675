"""Conditions in generated code: whether an argument is as it was captured."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from customop.arrays.dtypes import dtype_of
from customop.arrays.kinds import device_of, is_array
from customop.graph.passes.common import frozen_key
from customop.transforms.generators import is_generator

__all__ = ["Bind", "family_of", "kind_of_leaf", "leaf_tests", "number_test"]

Bind = Callable[[str, Any], str]
_EXACT = (int, str, bytes)
# NumPy's scalars of these kinds have a class for each dtype.
_ONE_DTYPE = frozenset("biufc?")


def family_of(leaf: Any) -> Any:
    """Return a key that is equal for leaves that differ only in the lengths of axes."""
    if is_array(leaf):
        cls = type(leaf)
        return (cls, dtype_of(leaf), len(leaf.shape), device_of(leaf))
    if is_generator(leaf):
        return type(leaf)
    return _key(leaf)


def kind_of_leaf(leaf: Any) -> Any:
    """Return the same key, or the class of an int or float: its value does not count."""
    return type(leaf) if type(leaf) in (int, float) else family_of(leaf)


def _key(value: Any) -> Any:
    cls = type(value)
    if cls in (int, float, complex, bool, str, bytes) or _has_values(value):
        return frozen_key(value)
    return (cls, id(value))


def _has_values(value: Any) -> bool:
    """Whether objects that are equal mean the same, and are never changed."""
    if isinstance(value, np.dtype | Enum | slice | type):
        return not isinstance(value, slice)
    params = getattr(type(value), "__dataclass_params__", None)
    return is_dataclass(value) and params is not None and params.frozen


def leaf_tests(
    name: str,
    leaf: Any,
    bind: Bind,
    free: Collection[int] = (),
    *,
    is_free: bool = False,
) -> Iterator[str]:
    """Conditions for one argument; some hold only where those before them do.

    Parameters
    ----------
    name : str
        The variable that has the argument.
    leaf : object
        What it was when the function was captured.
    bind : callable
        Gives the global name of an object.
    free : collection of int
        Axes that may have another length.
    is_free : bool
        Whether an int or float may be another one.
    """
    if is_free:
        yield f"type({name}) is {type(leaf).__name__}"
    elif is_array(leaf):
        yield from _array_tests(name, leaf, bind, free)
    elif is_generator(leaf):
        yield f"type({name}) is {bind(type(leaf).__name__, type(leaf))}"
    else:
        yield number_test(name, leaf, bind)


def _array_tests(
    name: str, leaf: Any, bind: Bind, free: Collection[int]
) -> Iterator[str]:
    cls, dtype = type(leaf), dtype_of(leaf)
    yield f"type({name}) is {bind(cls.__name__, cls)}"
    if issubclass(cls, np.generic):
        if dtype.kind not in _ONE_DTYPE:
            yield f"{name}.dtype == {bind('dtype', dtype)}"
        return
    if cls is np.ndarray and dtype.isbuiltin == 1 and dtype.isnative:
        yield f"{name}.dtype is {bind('dtype', dtype)}"
    else:
        yield f"{name}.dtype == {bind('dtype', dtype)}"
    yield from _shape_tests(name, tuple(leaf.shape), free)
    if not isinstance(leaf, np.ndarray):
        yield f"{bind('device_of', device_of)}({name}) == {device_of(leaf)!r}"


def _shape_tests(
    name: str, shape: Sequence[int], free: Collection[int]
) -> Iterator[str]:
    if not free:
        yield f"{name}.shape == {shape}"
        return
    yield f"len({name}.shape) == {len(shape)}"
    for axis, length in enumerate(shape):
        if axis not in free:
            yield f"{name}.shape[{axis}] == {length}"


def number_test(name: str, value: Any, bind: Bind) -> str:
    """A condition for a value that is not an array."""
    cls = type(value)
    if value is None or cls is bool:
        return f"{name} is {value}"
    if cls in _EXACT:
        return f"type({name}) is {cls.__name__} and {name} == {bind('value', value)}"
    if cls is float and value == value and value != 0.0:  # noqa: PLR0124  # nan
        text = repr(value) if math.isfinite(value) else bind("value", value)
        return f"type({name}) is float and {name} == {text}"
    kept = bind("value", value)
    if cls in (float, complex) or isinstance(value, np.generic):
        same = bind("same", _Same(value))
        return f"({name} is {kept} or {same}({name}))"
    if _has_values(value):
        owner = bind(cls.__name__, cls)
        return f"({name} is {kept} or type({name}) is {owner} and {name} == {kept})"
    return f"{name} is {kept}"


class _Same:
    """Whether a number is the same to the last bit: -0.0 is not 0.0, and nan is nan."""

    def __init__(self, value: Any) -> None:
        self._key = frozen_key(value)

    def __call__(self, value: Any) -> bool:
        return frozen_key(value) == self._key
