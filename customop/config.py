"""Settings of the package."""

from __future__ import annotations

from collections.abc import Callable

from customop.errors import ArgumentError, did_you_mean, quoted

__all__ = ["config"]

_CHECKS = ("first", "always", "never")


class Config:
    """Settings that hold for the whole process.

    Attributes
    ----------
    checks : str
        When a kernel must prove its contract: ``"first"``, on its first call (the
        default), ``"always"`` or ``"never"``.

    Examples
    --------
    >>> import customop as co
    >>> co.config.checks
    'first'
    >>> co.config.checks = "sometimes"
    Traceback (most recent call last):
        ...
    customop.errors.ArgumentError: config.checks is 'sometimes'
      do: set it to one of 'first', 'always', 'never'
    """

    __slots__ = ("_checks", "_listeners")

    def __init__(self) -> None:
        self._checks = "first"
        self._listeners: list[Callable[[], None]] = []

    @property
    def checks(self) -> str:
        """When a kernel must prove its contract."""
        return self._checks

    @checks.setter
    def checks(self, value: str) -> None:
        if value not in _CHECKS:
            near = did_you_mean(str(value), _CHECKS)
            raise ArgumentError(
                f"config.checks is {value!r}{near}",
                do=f"set it to one of {quoted(_CHECKS)}",
            )
        self._checks = value
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    def __repr__(self) -> str:
        return f"config(checks={self._checks!r})"


config = Config()
