"""The sample that an operator is about to run on, for whoever watches this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from customop.core.samples import Sample

__all__ = ["Watcher", "about_to_run", "watched"]

# Gets a function that makes the sample, since most watchers do not need it.
Watcher: TypeAlias = Callable[[Callable[[], Sample]], None]

_watchers: list[Watcher] = []


def about_to_run(sample: Callable[[], Sample]) -> None:
    """Say which sample the operator runs on next: it may not come back from it."""
    for watcher in _watchers:
        watcher(sample)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` before each sample inside the block."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)
