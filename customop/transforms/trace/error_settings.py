"""The settings that a function makes by ``np.errstate``, seen while it is captured."""

from __future__ import annotations

import warnings
from typing import Any, NoReturn, Self

import numpy as np

from customop.errors import GraphError

__all__ = ["ErrorSettings"]


class ErrorSettings:
    """Settings for floating-point errors that nobody else has.

    A function that sets what is set outside of it already is seen to do so.
    """

    def __init__(self) -> None:
        self._outside: Any = {}
        self._own: Any = None

    def __enter__(self) -> Self:
        self._outside = np.geterr()
        self._own = np.errstate(all="call", call=self._note)
        self._own.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._own.__exit__(*exc)

    def _note(self, text: str, _: int) -> None:
        """Do what is set outside for an error: of what is computed while capturing."""
        names = {"divide by zero": "divide", "invalid value": "invalid"}
        how = self._outside[names.get(text, text.removesuffix("flow"))]
        if how == "raise":
            raise FloatingPointError(f"{text} encountered")
        if how != "ignore":
            warnings.warn(f"{text} encountered", RuntimeWarning, stacklevel=3)

    def changed(self) -> dict[str, Any]:
        """The settings that the function has made by now, as arguments of np.errstate."""
        now: Any = np.geterr()
        call = np.geterrcall()
        if call != self._note:
            return {**now, "call": call}
        return {k: v for k, v in now.items() if v != "call"}

    def check_same(self, name: str) -> None:
        """Raise if the function has left other settings than it found.

        Raises
        ------
        GraphError
            If it has.
        """
        if self.changed():
            self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise GraphError(
            f"compile: {name} changes what NumPy does about floating-point errors, which"
            " its graph would not do",
            do="write with np.errstate(...): in place of np.seterr(...)",
        )
