"""Random numbers that a function draws from NumPy or Python, which no operator sees."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any

import numpy as np

from customop.arrays.bits import bits_of
from customop.errors import VmapError
from customop.transforms.reach import within_reach
from customop.transforms.runs import Subject, is_watched, report

__all__ = [
    "DrawWatch",
    "is_generator",
    "name_of",
    "plain_generator",
    "restored",
    "set_states",
    "sources",
    "states_of",
    "watched",
    "watching",
]


class DrawWatch:
    """Notes the generators whose states change.

    Reading the states takes 1 us for each generator, and 30 us for a Mersenne Twister
    (NumPy 2.4).

    Attributes
    ----------
    drawn : list
        These generators.
    """

    def __init__(self, found: Sequence[Any]) -> None:
        self.drawn: list[Any] = []
        self._sources = found
        self._states = self._read()

    def _read(self) -> list[str]:
        return [repr(_state(source)) for source in self._sources]

    def look(self) -> None:
        """Compare the states with those of the last `restart`."""
        triples = zip(self._sources, self._states, self._read(), strict=True)
        self.drawn += [source for source, before, now in triples if before != now]

    def restart(self) -> None:
        """Take the states as they are."""
        self._states = self._read()


def watched(fn: Callable[..., Any], subject: Subject, name: str) -> Callable[..., Any]:
    """The function; one that watches its run, if `config.checks` wants that of it."""
    return watching(fn, subject, lambda source: _drawn(name, source))


def watching(
    fn: Callable[..., Any],
    subject: Subject,
    error: Callable[[Any], VmapError],
    begin: Callable[[DrawWatch], None] | None = None,
) -> Callable[..., Any]:
    """As `watched`, with an error for a generator, and what to do with the watch first."""
    if not is_watched(subject):
        return fn
    is_sampled = subject.is_sampled

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        watch = DrawWatch(sources(fn, (*args, *kwargs.values())))
        if begin is not None:
            begin(watch)
        out = fn(*args, **kwargs)
        watch.look()
        for source in {id(source): source for source in watch.drawn}.values():
            report(error(source), is_sampled=is_sampled)
        subject.note_watched()
        return out

    return run


def _drawn(name: str, source: Any) -> VmapError:
    return VmapError(
        f"vmap of {name}: the function draws from {name_of(source)}, with"
        " randomness='error'",
        "NumPy draws once, so all rows get the same numbers",
        do="draw a batch outside and pass it, or write vmap(f, randomness='same') if"
        " the same numbers are meant",
    )


def name_of(source: Any) -> str:
    """A generator for messages."""
    if isinstance(source, ModuleType):
        return "np.random" if source is np.random else f"Python's {source.__name__}"
    return f"a {type(source).__name__}"


def _state(source: Any) -> Any:
    """A state that can be compared by its repr."""
    state = _raw_state(source)
    return [*map(_plain, state)] if source is np.random else _plain(state)


def _raw_state(source: Any) -> Any:
    if source is np.random:
        return np.random.get_state()  # noqa: NPY002  # what is watched
    if hasattr(source, "getstate"):  # Python's
        return source.getstate()
    known = bits_of(source)
    return known.get_state() if hasattr(known, "get_state") else known.state


@contextmanager
def restored(states: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """Draw again from the states of some generators; after it they are as before."""
    before = states_of([source for source, _ in states])
    set_states(states)
    try:
        yield
    finally:
        set_states(before)


def states_of(found: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Generators with their states, for `restored`."""
    return [(source, copy.deepcopy(_raw_state(source))) for source in found]


def set_states(states: Sequence[tuple[Any, Any]]) -> None:
    """Set generators to states from `states_of`."""
    for source, state in states:
        if hasattr(source, "set_state"):  # np.random, or a RandomState
            source.set_state(state)
        elif hasattr(source, "setstate"):  # Python's
            source.setstate(state)
        else:
            bits_of(source).state = copy.deepcopy(state)


def _plain(state: Any) -> Any:
    """A state with bytes in place of arrays, of which repr leaves the middle out."""
    if isinstance(state, dict):
        return {key: _plain(item) for key, item in state.items()}
    if isinstance(state, tuple | list):
        return [_plain(item) for item in state]
    return state.tobytes() if isinstance(state, np.ndarray) else state


def sources(fn: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    """Generators among the arguments and within reach of a function."""
    return within_reach((fn, *args), _is_source)


def is_generator(value: Any) -> bool:
    """Whether a value is a generator of NumPy."""
    module: Any = sys.modules.get("numpy.random")  # imported by whoever has one
    return module is not None and isinstance(value, module.Generator)


def plain_generator(value: Any) -> Any:
    """The user's generator, given one that draws for each row; other values unchanged."""
    return getattr(value, "plain", value)


def _is_source(item: Any) -> bool:
    if item is None:
        return False
    python: Any = sys.modules.get("random")
    if python is not None and (item is python or isinstance(item, python.Random)):
        return True
    # NumPy imports it at the first use, which takes 10 ms: before, nothing can draw.
    module: Any = sys.modules.get("numpy.random")
    if module is None:
        return False
    classes = (module.Generator, module.RandomState, module.BitGenerator)
    return item is module or isinstance(item, classes)
