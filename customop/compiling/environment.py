"""Environment variables that a function reads while it is captured."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

from customop.compiling.watched import GONE, WatchedName, is_installed

__all__ = ["EnvironmentReads"]


class EnvironmentReads:
    """Notes which variables code of the user reads while it is open.

    ``os.environ`` turns each name that it looks up into bytes by a function of its own. So
    reads by ``os.getenv`` and in other modules are seen, and other calls pay nothing.

    Attributes
    ----------
    names : list of WatchedName
        What was read, in order.
    """

    def __init__(self) -> None:
        self.names: list[WatchedName] = []
        self._encode: Callable[[str], str] = os.environ.encodekey
        self._before: dict[str, str] = {**os.environ}
        self._found: dict[str, None] = {}

    def __enter__(self) -> Self:
        encode = self._encode
        found, thread = self._found, threading.get_ident()

        def noting(name: str) -> str:
            if threading.get_ident() == thread and _is_of_user(sys._getframe(1)):
                found[name] = None
            return encode(name)

        os.environ.encodekey = noting
        return self

    def __exit__(self, *exc: object) -> None:
        os.environ.encodekey = self._encode
        self.names = [
            WatchedName(
                os.environ,
                name,
                self._before.get(name, GONE),
                f"the environment variable '{name}'",
            )
            for name in self._found
        ]


# Modules that read variables for their callers.
_READERS = ("os", "collections.abc", __name__)


def _is_of_user(frame: FrameType | None) -> bool:
    """Whether a frame that looks a name up runs for code of the user.

    A module that is imported meanwhile reads its variables once, as without capturing.
    """
    while frame is not None and frame.f_globals.get("__name__") in _READERS:
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == "<module>":
        return False
    return not is_installed(frame.f_globals.get("__name__") or "")
