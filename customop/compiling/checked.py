"""Capture a function, and see that it does nothing but compute meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

from customop.compiling.capturing import Axes, CapturedCall, Finish, captured
from customop.compiling.entries import CallArguments
from customop.compiling.environment import EnvironmentReads
from customop.compiling.surroundings import Surroundings, WatchedName
from customop.core.interpreter import current_mode
from customop.errors import GraphError, place

__all__ = ["captured_alone", "capturing", "outside_of_modes"]

# One function is captured at a time: two locks could wait for each other.
capturing: AbstractContextManager[bool] = threading.RLock()


@contextmanager
def outside_of_modes() -> Iterator[None]:
    """Capture for later calls, too: the mode of a vmap around this one is not seen."""
    token = current_mode.set(None)
    try:
        yield
    finally:
        current_mode.reset(token)


def captured_alone(
    fn: Callable[..., Any],
    title: str,
    given: CallArguments,
    surroundings: Surroundings,
    sizes: Mapping[str, Any] | None,
    free: Axes,
    numbers: Collection[int] = (),
    finish: Finish | None = None,
) -> CapturedCall:
    """Capture a function; raise if it has assigned or written what a graph would not.

    Parameters
    ----------
    fn : callable
    title : str
        Its name for messages.
    given : CallArguments
    surroundings : Surroundings
        What it can reach. What it has assigned is put back.
    sizes, free, numbers, finish
        As for `captured`.
    """
    _refuse_iterators(fn, title, surroundings)
    arrays = surroundings.contents_of_arrays()
    leaves = given.leaves
    with EnvironmentReads() as reads:
        found = captured(
            fn, given.args, given.kwargs, leaves, sizes, free, numbers, finish
        )
    surroundings.add_names(reads.names)
    _check_unchanged(fn, title, surroundings)
    _check_unwritten(fn, title, arrays)
    return found


def _check_unchanged(
    fn: Callable[..., Any], title: str, surroundings: Surroundings
) -> None:
    """Raise if the function has assigned what a graph would not assign."""
    changed = surroundings.changed()
    for slot, _ in changed:
        slot.restore()
    if changed:
        _refuse_assignment(fn, title, changed[0][0])
    emptied = surroundings.emptied()
    for contents in emptied:
        contents.restore()
    if emptied:
        raise GraphError(
            f"compile: '{title}' takes something out of {emptied[0].label}, which its"
            " graph would not do",
            f"it is at {place(fn)}",
            do="take it out before the call, and pass it as an argument",
        )
    surroundings.leave_out_written()


def _refuse_iterators(
    fn: Callable[..., Any], title: str, surroundings: Surroundings
) -> None:
    """Raise for iterators: the graph would keep the items of the first call."""
    for iterator, label in surroundings.iterators:
        raise GraphError(
            f"compile: '{title}' uses {label}, a {type(iterator).__name__}: its graph"
            " would use the same items again and again",
            f"it is used at {surroundings.line_of(iterator) or place(fn)}",
            do="call next() outside, and pass what it returns as an argument; or pass a list",
        )


def _check_unwritten(
    fn: Callable[..., Any], title: str, arrays: Sequence[tuple[str, Any, Any]]
) -> None:
    """Raise if the function has written to an array from outside of it."""
    for label, array, before in arrays:
        if array.tobytes() != before.tobytes():
            array[...] = before
            raise GraphError(
                f"compile: '{title}' writes to {label} by values that do not"
                " depend on its arguments, which its graph would not do",
                f"it is at {place(fn)}",
                do="pass the array as an argument",
            )


def _refuse_assignment(
    fn: Callable[..., Any], title: str, slot: WatchedName
) -> NoReturn:
    raise GraphError(
        f"compile: '{title}' assigns {slot.label}, which its graph would not do",
        f"it is at {place(fn)}",
        do="return the new value, and pass it as an argument",
    )
