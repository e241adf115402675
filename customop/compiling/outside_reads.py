"""Settings, files and environment variables that a captured function reads."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType
from typing import Any, Self

from customop.core.reach import GONE, HeldName, is_installed, module_of
from customop.errors import GraphError

# ---- answers ----
# What a function answers, or how an object is, as a text: each look makes new objects.


class Answer:
    """A text that a function gives, as a namespace with one name.

    Parameters
    ----------
    ask : callable
        Returns an object; its `repr` is compared.
    """

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask

    def __getitem__(self, key: str) -> str:
        return repr(self._ask())

    def get(self, key: str, _: Any) -> str:
        """Return the text."""
        return self[key]


def name_of_answer(ask: Callable[[], Any], label: str) -> HeldName:
    """Return a name that holds what a function answers now."""
    answer = Answer(ask)
    return HeldName(answer, label, answer[label], label)


def setting_asked_by(value: Any) -> Callable[[], Any] | None:
    """Return a function that tells the setting which a value reads, or None."""
    if isinstance(value, BuiltinFunctionType | FunctionType):
        if _SETTINGS.get(value.__name__, "") == value.__module__:
            return value
        is_decimal = value.__module__ == "decimal"
    else:
        is_type = isinstance(value, type)
        is_decimal = module_of(value if is_type else type(value)) == "decimal"
        if is_decimal and type(value).__name__ == "Context":
            return partial(_precision, value)
    return _present_precision if is_decimal else None


def _present_precision() -> list[Any]:
    return _precision(sys.modules["decimal"].getcontext())


def _precision(context: Any) -> list[Any]:
    """List the settings of a context of `decimal`, without the flags that each use sets."""
    keys = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
    return [getattr(context, key) for key in keys]


# Functions that ask for a setting -> their modules.
_SETTINGS = {
    **dict.fromkeys(
        ("getrecursionlimit", "get_int_max_str_digits", "getswitchinterval"), "sys"
    ),
    **dict.fromkeys(("getcwd", "getcwdb"), os.name if os.name == "nt" else "posix"),
    **dict.fromkeys(("get_printoptions", "getbufsize"), "numpy"),
    "isenabled": "gc",
    "getdefaulttimeout": "_socket",
}


# ---- what is read while a function is captured ----


class EnvironmentReads:
    """Notes which variables code of the user reads while it is open.

    ``os.environ`` turns each name that it looks up into bytes by a function of its own. So
    reads by ``os.getenv`` and in other modules are seen, and other calls pay nothing.

    Attributes
    ----------
    names : list of HeldName
        What was read, in order.
    """

    def __init__(self) -> None:
        self.names: list[HeldName] = []
        self._encode: Callable[[str], str] = os.environ.encodekey
        self._before: dict[str, str] = {**os.environ}
        self._found: dict[str, None] = {}

    def __enter__(self) -> Self:
        encode = self._encode
        found, thread = self._found, threading.get_ident()

        def noting(name: str) -> str:
            if threading.get_ident() == thread and _is_of_user(
                sys._getframe(1), _READERS.__contains__
            ):
                found[name] = None
            return encode(name)

        os.environ.encodekey = noting
        return self

    def __exit__(self, *exc: object) -> None:
        os.environ.encodekey = self._encode
        self.names = [
            HeldName(
                os.environ,
                name,
                self._before.get(name, GONE),
                f"the environment variable '{name}'",
            )
            for name in self._found
        ]


class FileReads:
    """Notes which files and folders code of the user reads while it is open.

    Python reports each file that is opened to its audit hooks, for functions written in C,
    too. A hook cannot be taken away, so the first function whose code names one of
    `READING` adds it.

    Parameters
    ----------
    is_on : bool
        Whether to note anything.

    Attributes
    ----------
    names : list of HeldName
        A state of each file, in order.
    """

    def __init__(self, *, is_on: bool) -> None:
        self.names: list[HeldName] = []
        self._is_on = is_on
        self._thread = threading.get_ident()

    def __enter__(self) -> Self:
        if self._is_on:
            if not _is_heard:
                sys.addaudithook(_hear)
                _is_heard.append(True)
            _open.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._is_on:
            _open.remove(self)

    def note(self, path: Any, mode: Any, flags: int) -> None:
        """Note a file or folder that is opened, unless it is opened to write only."""
        makes = os.O_WRONLY | os.O_CREAT
        is_written = flags & makes if mode is None else "r" not in mode
        if (
            threading.get_ident() != self._thread
            or isinstance(path, int)
            or is_written
            or not _is_of_user(sys._getframe(2), _passes_files)
        ):
            return
        file = Path() if path is None else Path(os.fsdecode(path))
        _wait_for_tick(file)
        name = name_of_answer(partial(_state_of, file), f"the file '{file}'")
        if all(name.key != other.key for other in self.names):
            self.names.append(name)


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if _open and event in _EVENTS:
        for reads in [*_open]:
            mode, flags = args[1:] if event == "open" else ("r", 0)
            reads.note(args[0], mode, flags)


_is_heard: list[bool] = []
_open: list[FileReads] = []
_EVENTS = ("open", "os.listdir", "os.scandir")
# Names in code that reads files or folders. Others that read some are not followed.
READING = frozenset(
    (
        *("open", "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "DataSource"),
        *("read_text", "read_bytes", "listdir", "scandir", "glob", "iglob", "rglob"),
        *("iterdir", "walk", "loadmat", "read", "imread", "read_csv", "read_table"),
        *("open_text", "open_binary", "getlines", "getline", "load_npz", "File"),
    )
)
# A file system may give two writes within so many nanoseconds the same time.
_TICK = 20_000_000


def _state_of(path: Path) -> Any:
    """Return values that a write to a file changes, or None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise GraphError(
            f"compile: a function reads '{path}', a device or pipe, whose bytes would be"
            " constants of its graph",
            do="read it outside, and pass what it holds as an argument",
        )
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


def _wait_for_tick(path: Path) -> None:
    """Wait until the next write to a file will change its time."""
    with suppress(OSError):
        while 0 <= (age := time.time_ns() - path.stat().st_mtime_ns) < _TICK:
            time.sleep((_TICK - age) / 1e9)


# Modules that read variables for their callers.
_READERS = ("os", "collections.abc", __name__)


def _passes_files(module: str) -> bool:
    """Return whether a module may open files for its callers."""
    root = module.partition(".")[0]
    others = ("customop", "importlib", "_frozen_importlib", "linecache", "zipimport")
    return module == __name__ or (is_installed(module) and root not in others)


def _is_of_user(frame: FrameType | None, passes: Callable[[str], bool]) -> bool:
    """Return whether a frame that looks something up runs for code of the user.

    A module that is imported meanwhile reads its variables once, as without capturing.
    """
    while frame is not None and passes(frame.f_globals.get("__name__") or ""):
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == "<module>":
        return False
    return not is_installed(frame.f_globals.get("__name__") or "")


# ---- open files ----


def may_read(value: Any, names: Collection[str]) -> bool:
    """Return whether code that uses these names may read an open file."""
    return bool(value.readable()) and (
        not _OF_READERS.isdisjoint(names) or _OF_WRITERS.isdisjoint(names)
    )


_OF_READERS = frozenset(
    (
        *("read", "read1", "readline", "readlines", "readinto", "peek", "tell"),
        *("getvalue", "getbuffer"),
    )
)
_OF_WRITERS = frozenset(("write", "writelines", "print", "dump", "savetxt", "save"))
