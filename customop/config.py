"""Settings of the package."""

from __future__ import annotations

from collections.abc import Callable

from customop.errors import ArgumentError, did_you_mean, quoted

__all__ = ["config"]

_CHECKS = ("first", "always", "never")
_ALIASING = ("error", "warn", "copy")


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

    __slots__ = ("_aliasing", "_checks", "_listeners")

    def __init__(self) -> None:
        self._checks = "first"
        self._aliasing = "error"
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

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    def __repr__(self) -> str:
        return f"config(checks={self._checks!r}, aliasing={self._aliasing!r})"


def _check_value(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        near = did_you_mean(str(value), known)
        raise ArgumentError(
            f"config.{name} is {value!r}{near}",
            do=f"set it to one of {quoted(known)}",
        )


config: Config = Config()
