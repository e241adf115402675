"""Functions made of source text, whose lines tracebacks and debuggers show."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from customop.errors import GENERATED

__all__ = ["GlobalNames", "generate"]

_versions = itertools.count(1)
# Files of functions that are gone. A function may go at any time, also while the standard
# library goes over the files, which fails if one is missing then (Python 3.11).
_gone: deque[str] = deque()


class GlobalNames:
    """The names that a generated function uses.

    Parameters
    ----------
    taken : iterable of str
        Those of its parameters.

    Attributes
    ----------
    names : dict
        Name -> value.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self.names: dict[str, Any] = {}
        self.taken: set[str] = {*taken}

    def bind(self, name: str, value: Any) -> str:
        """A name for a value that no parameter hides."""
        while name in self.taken:
            name = f"_{name}"
        self.names[name] = value
        return name


def generate(title: str, text: str, name: str, names: dict[str, Any]) -> Any:
    """Run source text and return one name that it defines; tracebacks show its lines."""
    # A NUL is an error, and a line break ends a line of tracebacks.
    if not title.isprintable():
        title = repr(title)[1:-1]
    filename = f"{GENERATED}{title} {next(_versions)}>"
    exec(compile(text, filename, "exec"), names)  # noqa: S102  # text of our own
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    made = names[name]
    weakref.finalize(made, _gone.append, filename).atexit = False
    _forget_files()
    return made


def _forget_files() -> None:
    with suppress(IndexError):  # there are no more
        while True:
            linecache.cache.pop(_gone.popleft(), None)
