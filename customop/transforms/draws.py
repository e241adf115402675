"""Draws from NumPy's generators under ``vmap(f, randomness="different")``.

NumPy draws once for all rows, where each row should have its own numbers. Random operators
draw for each row, from the same generators; so the states are compared between their calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from customop.core.interpreter import current_mode
from customop.errors import VmapError
from customop.transforms.generators import name_of, sources, states_of
from customop.transforms.randomness import RandomnessMode
from customop.transforms.runs import Subject, is_watched, report

__all__ = ["DrawWatch", "watched_between"]


class DrawWatch:
    """Notes the generators whose states change outside of random operators.

    Attributes
    ----------
    drawn : list
        These generators.
    """

    def __init__(self, found: Sequence[Any]) -> None:
        self.drawn: list[Any] = []
        self._sources = found
        self._states = states_of(found)

    def look(self) -> None:
        """Compare the states with those of the last `restart`."""
        now = states_of(self._sources)
        pairs = zip(self._states, now, strict=True)
        self.drawn += [source for (source, a), (_, b) in pairs if not _is_same(a, b)]

    def restart(self) -> None:
        """Take the states as they are."""
        self._states = states_of(self._sources)


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return all(_is_same(value, b[key]) for key, value in a.items())
    if isinstance(a, tuple | list):
        return all(_is_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


def watched_between(
    fn: Callable[..., Any], subject: Subject, name: str
) -> Callable[..., Any]:
    """The function; one that watches its run, if `config.checks` wants that of it."""
    if not is_watched(subject):
        return fn
    is_sampled = subject.is_sampled

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        mode = current_mode.get()
        found = sources(fn, (*args, *kwargs.values()))
        watch = DrawWatch(found)
        if isinstance(mode, RandomnessMode):
            mode.watch = watch
        out = fn(*args, **kwargs)
        watch.look()
        if watch.drawn:
            report(_drawn(name, watch.drawn[0]), is_sampled=is_sampled)
        subject.note_watched()
        return out

    return run


def _drawn(name: str, source: Any) -> VmapError:
    return VmapError(
        f"vmap of {name}: the function draws from {name_of(source)}, with"
        " randomness='different'",
        "NumPy draws once, so all rows get the same numbers",
        do="draw a batch outside and pass it, or draw in an operator that takes the"
        " generator as an argument",
    )
