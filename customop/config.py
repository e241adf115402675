"""Settings of the package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING, Any

from customop.errors import (
    ArgumentError,
    UnknownNameError,
    did_you_mean,
    quoted,
    shown,
)

_CHECKS = ("first", "always", "never")
_ALIASING = ("error", "warn", "copy")
_ON_FAILURE = ("error", "warn")


class Config:
    """Settings for the whole process.

    Attributes
    ----------
    checks : str
        When the contract of a kernel is checked, and whether arrays that a gradient
        needs are overwritten before: ``"first"``, on the first call of the kernel and
        the first gradient of the function (the default), ``"always"`` or ``"never"``.
    aliasing : str
        What to do when that check finds a result that shares memory with an argument
        or another result, and the schema does not say so: ``"error"`` (the default),
        ``"warn"``, or ``"copy"``: every later call of that kernel copies such results.
    sample_checks : float
        Share of the later calls and gradients that are checked too, chosen at random,
        from 0 (the default) to 1: 0.001 is one call in a thousand.
    sample_seed : int or None
        Seed of that choice. Setting it starts the same sequence of choices again; with
        None (the default) the sequence differs in every process.
    on_failure : str
        What to do when such a sampled check finds a fault: ``"error"`` (the default) or
        ``"warn"``. With ``"warn"`` the kernel gets the arguments themselves, so that the
        call works as without a check.
    check_nans : bool
        Whether each call of an operator, and each backward formula, raises `NanError` if
        its result has nan and nothing that it was given has one. It costs nothing while
        it is False (the default). NumPy on plain arrays is not seen.
    adapt : bool
        Whether transforms run a function of plain Python in a copy that takes traced
        values where NumPy has no hook, as `traceable` does: ``table[i]``,
        ``np.array([x, y])``, ``math.sin(x)``, ``out[i] = x``. False by default. It is
        for the function and the Python functions that it calls, but not for those of
        the standard library, NumPy (but `numpy.polynomial`), JAX, torch, numba,
        matplotlib and pytest. For those of installed packages it is for calls with
        traced values.
    compile_threads : int or None
        How many threads run elementwise calls of a compiled function on large arrays,
        with the one that calls it, where llvmlite is installed: None (the default) is
        one for each processor that the process may use. The numbers are the same for all.
    opcheck_seconds : float
        How many seconds the checks of an operator may take together, 10.0 by default. A
        check of a slow kernel stops between two calls, and `opcheck` says which inputs
        are left out.
    opcheck_memory : int
        How many bytes `opcheck` may take for copies and variations of the arrays, and for
        matrices of derivatives, 2**30 by default.

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
        "_adapt",
        "_aliasing",
        "_check_nans",
        "_checks",
        "_compile_threads",
        "_listeners",
        "_on_failure",
        "_opcheck_memory",
        "_opcheck_seconds",
        "_random",
        "_seed",
        "_share",
    )

    def __init__(self) -> None:
        self._adapt = False
        self._checks = "first"
        self._aliasing = "error"
        self._share = 0.0
        self._on_failure = "error"
        self._check_nans = False
        self._compile_threads: int | None = None
        self._opcheck_memory = 1 << 30
        self._opcheck_seconds = 10.0
        self._random: Any = None
        self._seed: int | None = None
        self._listeners: list[Callable[[], None]] = []

    if not TYPE_CHECKING:  # a type checker knows the names

        def __getattr__(self, name: str) -> Any:
            raise _unknown(name)

        def __setattr__(self, name: str, value: Any) -> None:
            if not hasattr(Config, name):
                raise _unknown(name)
            super().__setattr__(name, value)

    @property
    def checks(self) -> str:
        """The time when the contract of a kernel is checked."""
        return self._checks

    @checks.setter
    def checks(self, value: str) -> None:
        _check_value("checks", value, _CHECKS)
        self._checks = value
        self._tell()

    @property
    def aliasing(self) -> str:
        """Return whether undeclared shared memory raises, warns, or is copied."""
        return self._aliasing

    @aliasing.setter
    def aliasing(self, value: str) -> None:
        _check_value("aliasing", value, _ALIASING)
        self._aliasing = value
        self._tell()

    @property
    def sample_checks(self) -> float:
        """Share of the calls after the first that are checked too."""
        return self._share

    @sample_checks.setter
    def sample_checks(self, value: float) -> None:
        if not _is_share(value):
            raise ArgumentError(
                f"config.sample_checks is {shown(value)}, must be a number from 0 to 1",
                do="set it to 0.001 for one call in a thousand, 0 for none, 1 for all",
            )
        self._share = float(value)
        self._tell()

    @property
    def sample_seed(self) -> int | None:
        """Seed of the choice of calls to check."""
        return self._seed

    @sample_seed.setter
    def sample_seed(self, value: int | None) -> None:
        if value is not None and type(value) is not int:
            raise ArgumentError(
                f"config.sample_seed is {shown(value)}, must be an int or None",
                do="set an int, or None for a choice that differs in every process",
            )
        self._seed = value
        if self._random is not None:
            self._random.seed(value)

    @property
    def on_failure(self) -> str:
        """Return whether a fault that a sampled check finds raises or warns."""
        return self._on_failure

    @on_failure.setter
    def on_failure(self, value: str) -> None:
        _check_value("on_failure", value, _ON_FAILURE)
        self._on_failure = value

    @property
    def check_nans(self) -> bool:
        """Return whether results with nan raise."""
        return self._check_nans

    @check_nans.setter
    def check_nans(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise ArgumentError(
                f"config.check_nans is {shown(value)}", do="set it to True or False"
            )
        self._check_nans = value
        self._tell()

    @property
    def adapt(self) -> bool:
        """Return whether transforms run adapted copies of plain Python."""
        return self._adapt

    @adapt.setter
    def adapt(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise ArgumentError(
                f"config.adapt is {shown(value)}", do="set it to True or False"
            )
        self._adapt = value
        self._tell()

    @property
    def compile_threads(self) -> int | None:
        """The number of threads for large elementwise calls of a compiled function."""
        return self._compile_threads

    @compile_threads.setter
    def compile_threads(self, value: int | None) -> None:
        if value is not None and (type(value) is not int or value < 1):
            raise ArgumentError(
                f"config.compile_threads is {shown(value)}, must be an int above 0 or None",
                do="set it to 1 for no more threads, None for one for each processor",
            )
        self._compile_threads = value

    @property
    def opcheck_seconds(self) -> float:
        """Return how many seconds the checks of an operator may take together."""
        return self._opcheck_seconds

    @opcheck_seconds.setter
    def opcheck_seconds(self, value: float) -> None:
        _check_positive("opcheck_seconds", value, "10.0")
        self._opcheck_seconds = float(value)

    @property
    def opcheck_memory(self) -> int:
        """Return how many bytes opcheck may take for arrays of its own."""
        return self._opcheck_memory

    @opcheck_memory.setter
    def opcheck_memory(self, value: int) -> None:
        _check_positive("opcheck_memory", value, "2**30 for a gigabyte")
        self._opcheck_memory = int(value)

    @property
    def random(self) -> Callable[[], float]:
        """The function that returns a random number from 0 to 1; safe in any thread."""
        if self._random is None:
            # A separate generator, so that a program draws the same numbers with checks
            # and without. Its module takes 1 ms to import, and few programs need it.
            self._random = importlib.import_module("random").Random(self._seed)
        found: Callable[[], float] = self._random.random
        return found

    def draws(self) -> bool:
        """Choose whether this call is checked."""
        return self.random() < self._share

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    def __repr__(self) -> str:
        names = ["checks", "aliasing", "sample_checks", "sample_seed", "on_failure"]
        names += ["check_nans", "compile_threads", "opcheck_seconds", "opcheck_memory"]
        names += ["adapt"]
        return f"config({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"


def _check_positive(name: str, value: Any, example: str) -> None:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not float(value) > 0:
        raise ArgumentError(
            f"config.{name} is {shown(value)}, must be a number above 0",
            do=f"set it to {example}",
        )


def _is_share(value: Any) -> bool:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return is_number and 0 <= float(value) <= 1


def _unknown(name: str) -> UnknownNameError:
    named = vars(Config).items()
    known = [key for key, value in named if getattr(value, "fset", None)]
    return UnknownNameError(
        f"config has no setting '{name}'{did_you_mean(name, known)}",
        do=f"use one of {quoted(sorted(known))}",
    )


def _check_value(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        near = did_you_mean(str(value), known)
        raise ArgumentError(
            f"config.{name} is {shown(value)}{near}",
            do=f"set it to one of {quoted(known)}",
        )


def _switch_nans() -> None:
    """Open or close what looks for nan; it is imported when it is first turned on."""
    module = sys.modules.get(_NANS)
    if config.check_nans and module is None:
        module = importlib.import_module(_NANS)
    if module is not None:
        module.switch(config.check_nans)


_NANS = "customop.transforms.modes"
config: Config = Config()
config.on_change(_switch_nans)
