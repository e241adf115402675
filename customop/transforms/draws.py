"""Draws from NumPy's generators under ``vmap(f, randomness="different")``.

NumPy draws once for all rows, where each row should have its own numbers. Random operators
draw for each row, from the same generators; so the states are compared between their calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from customop.core.interpreter import current_mode
from customop.errors import VmapError
from customop.transforms.generators import DrawWatch, name_of, watching
from customop.transforms.randomness import RandomnessMode
from customop.transforms.runs import Subject

__all__ = ["watched_between"]


def watched_between(
    fn: Callable[..., Any], subject: Subject, name: str
) -> Callable[..., Any]:
    """The function; one that watches its run, if `config.checks` wants that of it."""
    return watching(fn, subject, lambda source: _drawn(name, source), _let_mode_look)


def _let_mode_look(watch: DrawWatch) -> None:
    """Have the mode look before each random operator, and restart after it."""
    mode = current_mode.get()
    if isinstance(mode, RandomnessMode):
        mode.watch = watch


def _drawn(name: str, source: Any) -> VmapError:
    return VmapError(
        f"vmap of {name}: the function draws from {name_of(source)}, with"
        " randomness='different'",
        "NumPy draws once, so all rows get the same numbers",
        do="draw a batch outside and pass it, or draw in an operator that takes the"
        " generator as an argument",
    )
