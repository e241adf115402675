"""Arguments that a transform does not follow: a function can only read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.pytree import flatten
from customop.core.given import explain_read_only, given_by_name

__all__ = ["call_reading", "inputs_of", "note_inputs", "read_only"]


# Attribute of a function that fixes some arguments of another one: all of them.
_ALL = "customop: all arguments"


def note_inputs(fn: Callable[..., Any], inputs: Any) -> None:
    """Note all arguments of a call of which `fn` fixes some: they may share memory."""
    vars(fn)[_ALL] = inputs


def inputs_of(fn: Callable[..., Any], given: Any) -> Any:
    """All arguments of a call of a function that is given some."""
    return getattr(fn, _ALL, given)


def call_reading(
    fn: Callable[..., Any],
    describe: Callable[[], str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    at: Sequence[int],
    followed: Sequence[Any],
) -> Any:
    """Call a function so that no array changes outside which it is not followed by.

    Parameters
    ----------
    fn : callable
    describe : callable
        Gives the name of the transform, for messages.
    args, kwargs : sequence, mapping
        What the transformed function got.
    at : sequence of int
        Positions of the arguments that the transform follows.
    followed : sequence
        The arguments by position, with tracers at these positions.
    """
    swaps: _Swaps = []
    given = [v if i in at else _unwritten(v, swaps) for i, v in enumerate(followed)]
    named = {key: _unwritten(v, swaps) for key, v in kwargs.items()} if kwargs else {}
    try:
        return fn(*given, **named)
    except ValueError as error:
        plain = [v for i, v in enumerate(args) if i not in at] + [*kwargs.values()]
        names = _names(given_by_name(fn, args, kwargs), plain)
        way = "differentiate by it too, with argnums"
        explain_read_only(error, describe(), names, way)
        raise
    finally:
        if swaps:
            _put_back(swaps)


def _names(given: Mapping[str, Any], plain: Iterable[Any]) -> list[str]:
    """The arguments with arrays among these values."""
    known = {id(value) for value in plain}
    return [
        name
        for name, value in given.items()
        if id(value) in known and any(map(is_array, flatten(value)[0]))
    ]


# A list or dict, and by identity the views that stand in it for a while, with the arrays.
_Swaps = list[tuple[Any, dict[int, tuple[Any, Any]]]]


def _unwritten(value: Any, swaps: _Swaps) -> Any:
    """A value whose arrays can only be read.

    Lists and dicts stay, since a function may add to them. They hold views until
    `_put_back`.
    """
    if isinstance(value, np.ndarray):
        return read_only(value)
    if isinstance(value, float | int):
        return value
    if type(value) is tuple:
        return tuple([_unwritten(v, swaps) for v in value])
    if type(value) is list or type(value) is dict:
        swapped = {}
        for key, item in [*_items(value)]:
            if isinstance(item, np.ndarray) and not item.flags.writeable:
                continue  # of an outer transform, say
            view = _unwritten(item, swaps)
            if view is not item:
                swapped[id(view)] = view, item
                value[key] = view
        if swapped:
            swaps.append((value, swapped))
    return value


def read_only(array: Any) -> Any:
    """A view of an array that can only be read; other values as they are."""
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.setflags(write=False)
    return view


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if type(value) is dict else enumerate(value)


def _put_back(swaps: _Swaps) -> None:
    """Put the arrays of lists and dicts back, wherever in these they are now."""
    for value, swapped in swaps:
        for key, item in [*_items(value)]:
            if id(item) in swapped:
                value[key] = swapped[id(item)][1]
