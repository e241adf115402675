"""How a child ended that did not finish its work."""

from __future__ import annotations

import re
import signal
import sysconfig
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["Crash", "crash_of", "ended_by"]


class Crash(NamedTuple):
    """How a child ended.

    Attributes
    ----------
    how : str
        ``"crashed (signal SIGSEGV)"``, ``"ended the process (exit status 3)"``.
    lines : tuple of str
        More about it: where it was in Python, and what it wrote.
    hangs : bool
        Whether it was ended because it took too long.
    """

    how: str
    lines: tuple[str, ...] = ()
    hangs: bool = False


def crash_of(code: int, text: str, patience: float) -> Crash:
    """The crash for an exit code, with what the child wrote as it ended."""
    lines = (*_said(text), *_places(text))
    if _LATE.search(text):
        return Crash(f"did not end within {patience:.3g} s", lines, hangs=True)
    if code in _OF_WINDOWS:
        return Crash(f"crashed ({_OF_WINDOWS[code]})", lines)
    if code >= 0:
        return Crash(f"ended the process (exit status {code})", lines)
    name = _name(-code)
    if name == "SIGALRM":
        return Crash(f"did not end within {patience:.3g} s", lines, hangs=True)
    if name == "SIGKILL":
        more = "the system kills processes when memory runs out"
        return Crash(f"was killed (signal {name})", (*lines, more))
    return Crash(f"crashed (signal {name})", lines)


def ended_by(error: BaseException) -> Crash:
    """The crash for an exception that is meant to end a program."""
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    return Crash(f"tried to end the process ({text})")


# Exit codes of Windows for crashes, and what faulthandler writes when time is over.
_OF_WINDOWS: Final = {
    0xC0000005: "access violation",
    0xC0000374: "heap corruption",
    0xC00000FD: "stack overflow",
    0xC0000409: "abort",
}
_LATE: Final = re.compile(r"^Timeout \(", re.MULTILINE)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


# ---- what faulthandler and the C library write ----

_FRAME: Final = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_STANDARD: Final = sysconfig.get_path("stdlib")
_PACKAGES: Final = "site-packages"
# The first line of faulthandler for a crash; the first for a process that takes too long
# is that of its thread.
_BEGIN: Final = re.compile(
    r"^(Fatal Python error: |Current thread |Stack )", re.MULTILINE
)
_MOST_SAID = 3


def _said(text: str) -> list[str]:
    """Lines that C code wrote before it crashed, such as ``free(): invalid pointer``."""
    begin = _BEGIN.search(text)
    before = text[: begin.start()] if begin else text
    lines = [line.strip() for line in before.splitlines() if line.strip()]
    return [f"it wrote: {line}" for line in lines[-_MOST_SAID:]]


def _places(text: str) -> Iterator[str]:
    """The innermost line of Python that is not of the standard library."""
    for file, line, name in _FRAME.findall(text):
        if _PACKAGES in file or not file.startswith(_STANDARD):
            yield f"at {file}:{line}, in {name}"
            return
