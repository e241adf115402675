"""The arguments of a function that is transformed, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from customop.arrays.pytree import flatten
from customop.errors import quoted

__all__ = ["explain_read_only", "given_by_name", "name_of"]


def given_by_name(
    fn: Callable[..., Any] | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by the names of the parameters; by numbers where a function hides them."""
    try:
        assert fn is not None
        return dict(inspect.signature(fn).bind(*args, **kwargs).arguments)
    except (AssertionError, TypeError, ValueError):
        return {**{f"{i}": value for i, value in enumerate(args)}, **kwargs}


def name_of(array: Any, fn: Callable[..., Any] | None, inputs: Any) -> str:
    """The argument that is an array or holds it, as in ``argument 'x'``.

    `inputs` are the arguments, or a pair of those by position and those by name.
    """
    is_pair = len(inputs) == 2 and type(inputs[1]) is dict
    args, kwargs = inputs if is_pair and type(inputs[0]) is tuple else (inputs, {})
    if not args and not kwargs:  # the usual case: it is the only argument
        args = (array,)
    for name, value in given_by_name(fn, args, kwargs).items():
        if any(leaf is array for leaf in flatten(value)[0]):
            return f"argument {name}" if name.isdigit() else f"argument '{name}'"
    return "an argument"


def explain_read_only(
    error: ValueError, what: str, names: Sequence[str], do: str
) -> None:
    """Add to NumPy's error what is read-only and what to write instead."""
    if "read-only" in str(error) and names:
        is_one = len(names) == 1
        error.add_note(
            f"inside {what} {quoted(names)} {'is' if is_one else 'are'} read-only, as a"
            f" write would change {'it' if is_one else 'them'} outside\n"
            f"  do: write to a copy, {names[0]} = {names[0]}.copy(); or {do}"
        )
