"""Settings of the package."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from numbers import Real
from typing import Any

from customop.errors import ArgumentError, did_you_mean, quoted

__all__ = ["config"]

_CHECKS = ("first", "always", "never")
_ALIASING = ("error", "warn", "copy")
_ON_BREACH = ("error", "warn")


class Config:
    """Settings that hold for the whole process.

    Attributes
    ----------
    checks : str
        When a kernel must prove its contract: ``"first"``, on its first call (the
        default), ``"always"`` or ``"never"``.
    aliasing : str
        What happens when that proof finds a result on the memory of an argument, or
        of another result, without the schema saying so: ``"error"`` (the default),
        ``"warn"``, or ``"copy"``: from then on every call of that kernel copies such
        results.
    sample_checks : float
        Share of the calls after the first that must prove the contract too, from 0 (the
        default) to 1, each drawn by chance: 0.001 is one call in a thousand.
    sample_seed : int or None
        What the drawing starts from: setting it begins the same row of draws again.
        None (the default) is another row in every process.
    on_breach : str
        What happens when such a sampled proof finds a breach: ``"error"`` (the default)
        or ``"warn"``. With ``"warn"`` the proof looks on and hands over the very
        arguments, so that a call does what it does without proof.

    Examples
    --------
    >>> import customop as co
    >>> co.config.checks
    'first'
    >>> co.config.checks = "sometimes"
    Traceback (most recent call last):
        ...
    customop.ArgumentError: config.checks is 'sometimes'
      do: set it to one of 'first', 'always', 'never'
    """

    __slots__ = (
        "_aliasing",
        "_checks",
        "_listeners",
        "_on_breach",
        "_random",
        "_seed",
        "_share",
    )

    def __init__(self) -> None:
        self._checks = "first"
        self._aliasing = "error"
        self._share = 0.0
        self._on_breach = "error"
        self._random: Any = None
        self._seed: int | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def checks(self) -> str:
        """When a kernel must prove its contract."""
        return self._checks

    @checks.setter
    def checks(self, value: str) -> None:
        _check_value("checks", value, _CHECKS)
        self._checks = value
        self._tell()

    @property
    def aliasing(self) -> str:
        """What happens to results that share memory undeclared."""
        return self._aliasing

    @aliasing.setter
    def aliasing(self, value: str) -> None:
        _check_value("aliasing", value, _ALIASING)
        self._aliasing = value
        self._tell()

    @property
    def sample_checks(self) -> float:
        """Share of the calls after the first that must prove the contract."""
        return self._share

    @sample_checks.setter
    def sample_checks(self, value: float) -> None:
        if not _is_share(value):
            raise ArgumentError(
                f"config.sample_checks is {value!r}, no share from 0 to 1",
                do="set it to 0.001 for one call in a thousand, 0 for none, 1 for all",
            )
        self._share = float(value)
        self._tell()

    @property
    def sample_seed(self) -> int | None:
        """What the drawing of calls starts from."""
        return self._seed

    @sample_seed.setter
    def sample_seed(self, value: int | None) -> None:
        if value is not None and type(value) is not int:
            raise ArgumentError(
                f"config.sample_seed is {value!r}, no whole number",
                do="set it to one, or to None for draws that differ in every process",
            )
        self._seed = value
        if self._random is not None:
            self._random.seed(value)

    @property
    def on_breach(self) -> str:
        """What happens when a sampled proof finds a breach."""
        return self._on_breach

    @on_breach.setter
    def on_breach(self, value: str) -> None:
        _check_value("on_breach", value, _ON_BREACH)
        self._on_breach = value

    @property
    def random(self) -> Callable[[], float]:
        """Gives the next number from 0 to 1 of those that draw calls; in any thread."""
        if self._random is None:
            # Its own, so that the numbers that a program draws stay what they are; made
            # late, for few programs draw calls and its module takes 1 ms to import.
            self._random = importlib.import_module("random").Random(self._seed)
        found: Callable[[], float] = self._random.random
        return found

    def draws(self) -> bool:
        """Whether the call that asks is drawn for a proof."""
        return self.random() < self._share

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    def __repr__(self) -> str:
        names = ("checks", "aliasing", "sample_checks", "sample_seed", "on_breach")
        return f"config({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"


def _is_share(value: Any) -> bool:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return is_number and 0 <= float(value) <= 1


def _check_value(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        near = did_you_mean(str(value), known)
        raise ArgumentError(
            f"config.{name} is {value!r}{near}",
            do=f"set it to one of {quoted(known)}",
        )


config: Config = Config()
