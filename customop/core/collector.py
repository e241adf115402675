"""Fewer scans by Python's collector of cycles while a tape or a graph grows.

The collector looks for garbage whenever 700 objects more are alive than at its last scan.
A tape is made of objects that stay alive and form no cycles, so while one grows each scan
is in vain: that is 10 to 60 % of the time of a gradient of many small calls (Python 3.11).

Here the collector is never switched off. A scan that finds that a tape, a graph or the
table of operators has grown lets the next one wait for more objects. The end of a backward
sweep gives the collector its own threshold again, and so does a scan before which nothing
has grown: after an error in a function, the second one.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from customop.core.contract import moments

# Called for each new node of a graph, and for each new operator: nodes of tapes count
# themselves.
grow: Callable[[], int] = moments.__next__
# Objects between two scans while a tape grows; a number that nobody else sets. A tape of
# more objects is scanned once: 200 ns for each, a tenth of the time to make it.
_PATIENT = 199_999
# A tape has grown if it got a node for each so many new objects. A node of a tape has five
# objects: itself, its edges, what it saves and the value.
_PER_NODE = 50
# The thresholds that are not ours, as last seen. They are kept, so that an interrupt or
# another thread at any line cannot lose them.
_own: list[tuple[int, int, int]] = [gc.get_threshold()]
# The moment of the last scan or sweep.
last_moment: list[int] = [0]
# Has an item where `quicken` has something to do.
calmed: list[bool] = []
# Has an item for each block of `patient` that runs, in any thread.
_held: list[None] = []


@contextmanager
def patient() -> Iterator[None]:
    """Let the collector wait longer for each scan while a block makes large graphs."""
    try:
        _held.append(None)
        _calm()
        yield
    finally:
        if _held:
            _held.pop()
        quicken()


def _calm() -> None:
    before = gc.get_threshold()
    if 0 < before[0] < _PATIENT:  # 0: it is switched off
        _own[0] = before
        gc.set_threshold(_PATIENT, *before[1:])
        calmed[:] = [True]


def quicken() -> None:
    """Give the collector its own thresholds again, unless someone has set others."""
    if _held:
        return
    if gc.get_threshold()[0] == _PATIENT:
        gc.set_threshold(*_own[0])
    calmed.clear()


def _on_scan(phase: str, info: dict[str, int]) -> None:
    """Look at a scan of new objects that begins: whether they are those of a tape."""
    if phase != "start" or info["generation"] > 1:
        return
    moment = grow()
    count, last_moment[0] = moment - last_moment[0], moment
    if count * _PER_NODE < gc.get_threshold()[0]:
        quicken()
    else:
        _calm()


gc.callbacks.append(_on_scan)
# Blocks of other threads do not go on in a forked process.
os.register_at_fork(after_in_child=_held.clear)
