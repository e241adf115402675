"""Timings of statements that run in turn, so that all see the same machine load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from timeit import Timer
from typing import Any

__all__ = ["Statement", "alternate"]

ROUNDS = 40
ROUND_SECONDS = 1.5e-3


@dataclass(frozen=True, slots=True)
class Statement:
    """Source text of one call, and the names in it."""

    text: str
    names: Mapping[str, Any]

    def timer(self) -> Timer:
        """A loop around the text, without a function call."""
        return Timer(self.text, globals=dict(self.names))

    def __call__(self) -> Any:
        return eval(self.text, dict(self.names))


def alternate(
    statements: Mapping[str, Statement], rounds: int = ROUNDS
) -> dict[str, float]:
    """Seconds of each statement: the best of many short rounds taken in turn.

    Other processes can only make a round slower, so the best one is the least
    disturbed. The loop costs the same for each statement, so differences of times are
    exact, and ratios of times under 1 us are not.
    """
    timers = {name: statement.timer() for name, statement in statements.items()}
    numbers = {name: _number(timer) for name, timer in timers.items()}
    best = dict.fromkeys(timers, float("inf"))
    for _ in range(rounds):
        for name, timer in timers.items():
            seconds = timer.timeit(numbers[name]) / numbers[name]
            best[name] = min(best[name], seconds)
    return best


def _number(timer: Timer) -> int:
    """The number of loops that fill one round, after two calls to warm up."""
    timer.timeit(2)
    number = 1
    while (seconds := timer.timeit(number)) < ROUND_SECONDS / 4:
        number *= 4
    return max(1, round(number * ROUND_SECONDS / seconds))
