"""Settings, files and environment variables that a captured function reads."""

from __future__ import annotations

import dis
import io
import os
import stat
import sys
import threading
import time
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from functools import partial, wraps
from itertools import pairwise
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Self

import numpy as np

from customop.core.code_names import all_names_in, codes_in
from customop.core.reach import GONE, HeldName, content, is_installed, module_of
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
    **dict.fromkeys(("getlocale", "localeconv"), "locale"),
    "isenabled": "gc",
    "active_count": "threading",
    "getdefaulttimeout": "_socket",
}


# Methods of locks and events that say how they are -> modules of their classes.
OF_LOCKS: Mapping[str, Sequence[str]] = {
    "is_set": ("threading", "asyncio.locks"),
    "locked": ("_thread", "threading", "asyncio.locks"),
}


def reads_settings_before(code: CodeType) -> bool:
    """Return whether code looks at what `np.seterr` returns, but to set that again."""
    if "seterr" not in code.co_names:
        return any(reads_settings_before(c) for c in codes_in(code) if c is not code)
    steps = [*dis.get_instructions(code)]
    kept: set[str] = set()
    for i, step in enumerate(steps):
        if step.argval != "seterr" or step.opname not in (
            *_BY_NAME,
            *_BY_ATTRIBUTE[:2],
        ):
            continue
        calls = (j for j in range(i, len(steps)) if steps[j].opname.startswith("CALL"))
        after = steps[next(calls, i) + 1]
        if after.opname == "STORE_FAST":
            kept.add(after.argval)
        elif after.opname != "POP_TOP":
            return True
    return any(
        now.opname.startswith("LOAD_FAST")
        and now.argval in kept
        and after.opname != "DICT_MERGE"
        for now, after in pairwise(steps)
    )


def draws_from_system(value: Any) -> bool:
    """Return whether a value is a function that gives random bytes of the system."""
    is_function = isinstance(value, BuiltinFunctionType | FunctionType)
    return is_function and _SYSTEM.get(value.__name__, "") == value.__module__


def _tells_time(value: Any) -> bool:
    """Return whether a value is a function that gives the time."""
    is_builtin = isinstance(value, BuiltinFunctionType)
    return is_builtin and value.__module__ == "time" and value.__name__ in _CLOCKS


def lines_of_clocks(fn: FunctionType) -> Iterator[tuple[str, str]]:
    """Yield the functions by which code of a function asks for the time, and the places."""
    known = {**fn.__globals__}
    known.update(
        zip(fn.__code__.co_freevars, map(content, fn.__closure__ or ()), strict=True)
    )
    names = all_names_in(fn.__code__)[1]
    if _ASKED.isdisjoint(names) and not any(_tells_time(known.get(n)) for n in names):
        return
    for code in codes_in(fn.__code__):
        owner: Any = None
        line = code.co_firstlineno
        for step in dis.get_instructions(code):
            name = step.argval
            line = (step.positions and step.positions.lineno) or line
            if step.opname == "IMPORT_NAME":
                owner = sys.modules.get(name)
                continue
            if step.opname == "STORE_FAST" and owner is not None:
                known[name] = owner
            is_of_date = _is_date(owner) and name in _OF_DATES
            if step.opname in _BY_NAME:
                owner = known.get(name)
            elif step.opname in _BY_ATTRIBUTE and isinstance(owner, ModuleType):
                owner = vars(owner).get(name)
            else:
                owner = None
            if is_of_date or (_tells_time(owner) and step.opname != "IMPORT_FROM"):
                yield (
                    name if is_of_date else owner.__name__,
                    f"{code.co_filename}:{line}",
                )


def _is_date(value: Any) -> bool:
    """Return whether a value is a class of dates."""
    is_class = isinstance(value, type) and value.__module__ == "datetime"
    return is_class and value.__name__ in ("date", "datetime")


_BY_NAME = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST")
_BY_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
_SYSTEM = {
    **dict.fromkeys(("urandom", "getrandom"), os.name if os.name == "nt" else "posix"),
    **dict.fromkeys(("uuid1", "uuid4"), "uuid"),
}
_CLOCKS = frozenset(
    name + ending
    for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time")
    for ending in ("", "_ns")
) | {"localtime", "gmtime", "ctime", "strftime", "asctime"}
# Methods of dates that ask for the time.
_OF_DATES = frozenset(("now", "utcnow", "today"))
_ASKED = _CLOCKS | _OF_DATES


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


class StatReads:
    """Notes which files code of the user asks about while it is open.

    `os.path.exists`, the methods of `Path` and others ask by `os.stat` and `os.lstat`, which
    are other functions meanwhile.

    Parameters
    ----------
    is_on : bool
        Whether to note anything.

    Attributes
    ----------
    names : list of HeldName
        What the answers were, in order.
    """

    def __init__(self, *, is_on: bool) -> None:
        self.names: list[HeldName] = []
        self._is_on = is_on
        self._thread = threading.get_ident()
        self._before: Any = (os.stat, os.lstat)

    def __enter__(self) -> Self:
        if self._is_on:
            os.stat, os.lstat = map(self._noting, self._before)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._is_on:
            os.stat, os.lstat = self._before

    def _noting(self, stat: Callable[..., Any]) -> Any:
        @wraps(stat)
        def noting(path: Any, *args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            if threading.get_ident() == self._thread and not isinstance(path, int):
                ask = partial(stat, os.fsdecode(path), *args, **kwargs)
                if _is_of_user(frame, _passes_files):
                    self._note(ask, os.fsdecode(path), frame)
            return stat(path, *args, **kwargs)

        return noting

    def _note(self, ask: Callable[[], Any], path: str, frame: FrameType | None) -> None:
        """Note the kind of a file if code asks for no more, else all that differs."""
        callers = set()
        while frame is not None and _passes_files(
            frame.f_globals.get("__name__") or ""
        ):
            callers.add(frame.f_code.co_name)
            frame = frame.f_back
        is_kind = not callers.isdisjoint(_KINDS)
        what = "the kind" if is_kind else "the state"
        name = name_of_answer(partial(_stat_of, ask, is_kind), f"{what} of '{path}'")
        if all(name.key != other.key for other in self.names):
            self.names.append(name)


def _stat_of(ask: Callable[[], Any], is_kind: bool) -> Any:  # by partial
    """Return what a file is, and when it was written, or None for no file."""
    try:
        found = ask()
    except (OSError, ValueError):
        return None
    kind = stat.S_IFMT(found.st_mode)
    if is_kind:
        return kind
    return found.st_mode, found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


# Functions that ask what a file is, and no more.
_KINDS = frozenset(
    (
        *("exists", "lexists", "isfile", "isdir", "islink", "ismount"),
        *("is_file", "is_dir", "is_symlink", "is_mount"),
    )
)
# Names in code that asks about files.
ASKING = _KINDS | {
    "stat",
    "lstat",
    "getmtime",
    "getsize",
    "getctime",
    "getatime",
    "owner",
}


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


# ---- what cannot be watched ----

# Marks what may read any name, among values that cannot be watched.
ANYTHING: object = object()
# Modules of the iterators that a function can only use up.
ITERATORS = (
    "builtins",
    "itertools",
    "_collections",
    "_csv",
    "queue",
    "_queue",
    "numpy",
)


def refuse_hidden(
    title: str,
    around: str,
    hidden: Iterable[tuple[Any, str]],
    line_of: Callable[[Any], str],
) -> None:
    """Raise for values that cannot be watched, which a graph would keep as they are.

    Parameters
    ----------
    title, around : str
        The name of the function that uses them, and its place.
    hidden : iterable of pairs
        Values, with labels.
    line_of : callable
        Returns the place where a value is used, or "".
    """
    for value, label in hidden:
        if value is ANYTHING:
            is_attribute = label.endswith("__") or label.startswith("f_")
            what = f"{label if is_attribute else label + '()'}, which may read any name"
            do = "call it outside, and pass what it returns as an argument"
        elif any(value is f for f in (np.geterr, np.geterrcall, np.seterr)):
            what = f"{label}, and a function that is captured has other settings"
            do = "call it outside, and pass what it returns as an argument"
        elif draws_from_system(value):
            what = f"{label or value.__name__}: its graph would use the same bytes again and"
            what += " again"
            do = "call it outside, and pass what it returns as an argument"
        elif isinstance(value, io.IOBase):
            what = f"{label or 'an open file'}, a {type(value).__name__}, whose bytes would"
            what += " be constants of its graph"
            do = "read it outside, and pass what it holds as an argument"
        elif isinstance(value, Iterator) or module_of(type(value)) in ITERATORS:
            what = f"{label}, a {type(value).__name__}: its graph"
            what += " would use the same items again and again"
            do = "call next() outside, and pass what it returns as an argument; or pass a"
            do += " list"
        else:
            what = (
                f"{label}, a {type(value).__name__}, whose numbers would be constants"
            )
            what += " of its graph"
            do = "pass its numbers as plain arrays, such as np.asarray(x)"
        raise GraphError(
            f"compile: '{title}' uses {what}",
            f"it is used at {line_of(value) or around}",
            do=do,
        )


def lines_of_names(code: CodeType, names: Container[str]) -> Iterator[str]:
    """Yield files and lines where a code object, or one inside it, loads one of these names."""
    for step in dis.get_instructions(code):
        is_name = step.opname.startswith("LOAD_") and step.opname != "LOAD_CONST"
        if is_name and step.argval in names:
            line = step.positions.lineno if step.positions else None
            yield f"{code.co_filename}:{line or code.co_firstlineno}"
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from lines_of_names(value, names)
