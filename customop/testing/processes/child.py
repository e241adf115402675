"""Child processes that run what may crash, forked or new, and how they ended."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import os
import pickle
import queue
import random
import re
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import spawn
from types import MappingProxyType, TracebackType
from typing import IO, Any, Final, NamedTuple, NoReturn, Self, TypeAlias

import numpy as np

from customop.errors import is_ours
from customop.forks import free_after_fork
from customop.testing.inputs.sample_values import laid_out

# macOS has fork, but its own libraries do not survive it.
CAN_FORK: Final = hasattr(os, "fork") and sys.platform != "darwin"

Send: TypeAlias = Callable[[Any], None]


class Ended(NamedTuple):
    """The last message of a child about a piece of work.

    Attributes
    ----------
    error : BaseException or None
        The exception that ended the work.
    text : str
        The text of its traceback.
    """

    error: BaseException | None = None
    text: str = ""

    def check(self) -> None:
        """Raise the exception that ended the work, if there is one."""
        if self.error is not None:
            raise unpacked(self.error, self.text)


class ChildGoneError(Exception):
    """A child that was waiting for work has ended."""


# ---- a child with a queue of jobs, and one of what it sends ----

# What a child does: ``job(send, *args)``.
Job: TypeAlias = Callable[..., None]


class Worker(ABC):
    """A child process that does jobs in turn, for a ``with`` block or until `close`.

    Leaving the block ends the child and all processes it started.

    Attributes
    ----------
    crash : Crash or None
        How the child ended, if not by finishing its work.
    is_waiting : bool
        Whether it has done its work and waits for more.
    """

    __slots__ = ("_patience", "crash", "is_waiting")

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.crash: Crash | None = None
        self.is_waiting: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End the child and all processes that it started."""

    def ask(self, job: Job, *args: Any, at_once: bool = False, **named: Any) -> None:
        """Give a job to the waiting child; `messages` yields the results.

        Parameters
        ----------
        job : callable
            A function of a module: ``job(send, *args)`` runs in the child.
        *args : object
            Arguments for `job`, sent as copies. The job has to start its own clock.
        at_once : bool
            Whether each result is sent at once, so that a crash leaves those before it;
            else all are sent in one piece, which takes a tenth of the time.

        Raises
        ------
        ChildGoneError
            If the child has ended meanwhile.
        """
        self.is_waiting = False
        try:
            self._give(self._packed((job, args, at_once)))
        except OSError:
            raise ChildGoneError from None

    def messages(self) -> Iterator[Any]:
        """Yield what the child sends for a job. After a crash, `crash` says how."""
        while block := self._next():
            for message in self._unpacked(block):
                match message:
                    case Ended():
                        self.is_waiting = message.error is None
                        message.check()
                        return
                    case Crash():
                        self.crash = message
                        return
                yield message
        self.crash = crash_of(*self._end(), self._patience)

    def last(self) -> Any:
        """Return the last message about a job, or None."""
        last = None
        for message in self.messages():
            last = message
        return last

    def _packed(self, value: Any) -> bytes:
        return dumps(value)

    def _unpacked(self, block: bytes) -> Any:
        return loads(block)

    @abstractmethod
    def _give(self, block: bytes) -> None:
        """Write a block to the child."""

    @abstractmethod
    def _next(self) -> bytes:
        """Return the next block of the child, or b"" if it has ended."""

    @abstractmethod
    def _end(self) -> tuple[int, str]:
        """Wait for the end of the child; return its exit code and its last words."""


def _framed(block: bytes) -> bytes:
    return len(block).to_bytes(_PREFIX, "little") + block


def _do_jobs(
    next_job: Callable[[], Any],
    write: Callable[[list[Any]], None],
    result: Ended | Crash,
) -> None:
    """Do the jobs of a queue in a child until one fails or the queue ends."""
    is_well = result == Ended()
    while is_well and (found := next_job()) is not None:
        job, args, at_once = found
        sent: list[Any] = []
        send = _one_by_one(write) if at_once else sent.append
        ended = result_of(lambda send: job(send, *args), send)  # noqa: B023  # called at once
        start_clock(0.0)
        write([*sent, ended])
        is_well = ended == Ended()


def _one_by_one(write: Callable[[list[Any]], None]) -> Send:
    return lambda value: write([value])


# ---- a forked child that runs what may crash ----

# Held while a new pipe's end is open in this process: a child that another thread forks
# meanwhile would keep that end open.
_forking = free_after_fork(threading.RLock())


class Child(Worker):
    """A forked child of this process.

    The child has copies of everything. Whatever it writes, prints, draws or breaks
    stays inside it. After its work it waits a few seconds for more; see `ask`.

    Parameters
    ----------
    work : callable
        The first job: ``work(send)`` runs in the child, which sends each result at once.
    patience : float
        Seconds after which the system ends the child, unless it calls `start_clock` again.
    shared : iterable
        Values that this process keeps alive until the end. The child can send them even
        if they cannot be pickled.
    """

    __slots__ = ("_buffer", "_errors", "_jobs", "_pid", "_pipe", "_shared", "_work")

    def __init__(
        self,
        work: Callable[[Send], None],
        patience: float,
        shared: Iterable[Any] = (),
    ) -> None:
        super().__init__(patience)
        self._work = work
        self._shared = {id(value): value for value in shared}
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Fork the child and start its work."""
        limits = _limits()
        limits.openmp_of_packages(len(sys.modules))  # looked up once, for all children
        self._errors = _unnamed_file()
        state = random.getstate()  # Python reseeds this in every child
        with _forking:
            self._pipe, end = os.pipe()
            asked, self._jobs = socket.socketpair()
            self._pid = os.fork()
            if self._pid:
                os.close(end)
                asked.close()
        if not self._pid:
            random.setstate(state)
            self._live(end, asked, limits)
        with suppress(OSError):  # the child does the same; either may come first
            os.setpgid(self._pid, self._pid)

    def close(self) -> None:
        """End the child and all processes that it started."""
        os.close(self._pipe)
        self._jobs.close()
        if self._pid:
            with suppress(ProcessLookupError):  # it was already waited for
                os.killpg(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                self._reap()
        os.close(self._errors)

    # ---- in the child ----

    def _live(self, pipe: int, jobs: socket.socket, limits: Any) -> None:
        """Do the work and end the process, without the parent's cleanup."""
        status = 1
        try:
            gc.freeze()  # the parent's garbage is the parent's to collect
            os.close(self._pipe)
            self._jobs.close()
            limits.apply(self._errors)
            limits.start_clock(self._patience)
            result = result_of(self._work, lambda value: self._write(pipe, [value]))
            limits.start_clock(0.0)
            self._write(pipe, [result])
            self._shared = {}  # later work gets its own copies
            _do_jobs(lambda: _next_job(jobs), lambda v: self._write(pipe, v), result)
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())  # for `crash`
            raise
        finally:
            os._exit(status)

    def _write(self, pipe: int, messages: list[Any]) -> None:
        left = memoryview(_framed(dumps(messages, self._shared)))
        while left:
            left = left[os.write(pipe, left) :]

    # ---- in the parent ----

    def _give(self, block: bytes) -> None:
        # With a pipe, the default effect of SIGPIPE would end this process.
        self._jobs.sendall(_framed(block), socket.MSG_NOSIGNAL)

    def _unpacked(self, block: bytes) -> Any:
        return loads(block, self._shared)

    def _end(self) -> tuple[int, str]:
        return self._reap(), _text_in(self._errors)

    def _next(self) -> bytes:
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        is_over = False
        while True:
            if found := _taken_from(self._buffer):
                return found
            if poll.poll(0 if is_over else _MILLISECONDS):
                block = os.read(self._pipe, _BLOCK)
                self._buffer += block
                if not block:
                    return b""
            elif is_over:
                return b""
            else:  # a process started by the child may hold the pipe open
                is_over = self._has_ended()

    def _has_ended(self) -> bool:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, options) is not None

    def _reap(self) -> int:
        """Wait for the child, end what it started, and return its exit code."""
        os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        # Until its status is read, the system does not reuse the process number.
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)


def _taken_from(buffer: bytearray) -> bytes:
    """Take the first block out of a buffer; return b"" if it is incomplete."""
    end = _PREFIX + int.from_bytes(buffer[:_PREFIX], "little")
    if len(buffer) < max(end, _PREFIX + 1):
        return b""
    block = bytes(buffer[_PREFIX:end])
    del buffer[:end]
    return block


def result_of(work: Callable[[Send], None], send: Send) -> Ended | Crash:
    """Do work in a child and return how it ended."""
    try:
        work(send)
    except Exception as error:  # noqa: BLE001  # the parent raises it
        return Ended(*packed(error))
    except BaseException as error:  # noqa: BLE001  # a kernel tried to exit
        return ended_by(error)
    return Ended()


# How many seconds a child waits for more work.
_IDLE = 2.0


def _next_job(jobs: socket.socket) -> Any:
    """Return the next job for this child, or None if none comes in time."""
    found = bytearray()
    poll = select.poll()
    poll.register(jobs, select.POLLIN)
    while not (block := _taken_from(found)):
        if not poll.poll(1000 * _IDLE):
            return None
        part = jobs.recv(_BLOCK)
        if not part:
            return None
        found += part
    return loads(block)


def start_clock(seconds: float) -> None:
    """End this child process after `seconds`, unless called again; 0 stops the clock."""
    if hasattr(signal, "setitimer"):
        _limits().start_clock(seconds)
    elif seconds:
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    else:
        faulthandler.cancel_dump_traceback_later()


def begin_clock(seconds: float) -> None:
    """Do as `start_clock`, and write the seconds down for the message of a crash."""
    os.write(2, f"{_PATIENCE}{seconds:.6g}\n".encode())
    start_clock(seconds)


# A line that a child writes for `crash_of`.
_PATIENCE: Final = "opcheck gives the next call seconds: "


def apply_limits(errors: int) -> None:
    """Set up this process, a child: limit what it may do, and silence it."""
    if os.name == "posix":
        _limits().apply(errors)
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nowhere, number)
    faulthandler.enable(2, all_threads=False)


def _limits() -> Any:
    # Windows lacks modules that `limits` imports.
    from customop.testing.processes import limits  # noqa: PLC0415  # not on Windows

    return limits


_PREFIX = 8
# The capacity of a pipe. For more, each message would take memory from the system.
_BLOCK = 1 << 16
# How often to check whether a silent child is still alive.
_MILLISECONDS = 100
_MOST_TEXT = 1 << 16


def _unnamed_file() -> int:
    """Return a file that disappears when it is closed."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("opcheck")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _text_in(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    return os.read(file, _MOST_TEXT).decode(errors="replace")


# ---- a child without a fork: a new process that imports what it needs ----

# How often to check whether a silent child is still alive.
_SECONDS: Final = 0.5
# What `multiprocessing` calls the main script.
_MAIN: Final = ("init_main_from_name", "init_main_from_path")
_RUN: Final = """
import sys
sys.path[:] = {path!r}
from customop.testing.processes.child import main
main()
"""


class SpawnedChild(Worker):
    """A new process that waits for jobs.

    Jobs and results are pickled by name. Nothing else is shared with this process.

    Parameters
    ----------
    with_main : bool
        Whether it imports the main script, as children of `multiprocessing` do.
    patience : float
        Seconds after which the system ends it, for use in messages.

    Attributes
    ----------
    with_main : bool
    """

    def __init__(self, *, with_main: bool, patience: float) -> None:
        super().__init__(patience)
        self.is_waiting = True
        self.with_main: bool = with_main
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603  # our own
            [sys.executable, "-c", _RUN.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._found: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        data = spawn.get_preparation_data("opcheck")
        left_out = ("authkey",) if with_main else ("authkey", *_MAIN)
        data = {key: value for key, value in data.items() if key not in left_out}
        self._give(self._packed(data))

    def close(self) -> None:
        """End the child and all processes that it started."""
        with contextlib.suppress(OSError, AttributeError):  # Windows has no groups
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()

    def _packed(self, value: Any) -> bytes:
        return dumps(value, by_name=True)

    def _give(self, block: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(_framed(block))
        self._process.stdin.flush()

    def _read(self) -> None:
        """Queue incoming messages in a thread: not every system can wait for pipes."""
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # it was closed
            while block := _block_from(self._process.stdout):
                self._found.put(block)
        self._found.put(b"")

    def _end(self) -> tuple[int, str]:
        return self._process.wait(), self._text()

    def last_words(self) -> str:
        """Return the last line that the child wrote."""
        lines = self._text().strip().splitlines()
        return lines[-1] if lines else "without a word"

    def _text(self) -> str:
        self._errors.seek(0)
        return self._errors.read(_MOST_TEXT).decode(errors="replace")

    def _next(self) -> bytes:
        while True:
            try:
                return self._found.get(timeout=_SECONDS)
            except queue.Empty:
                if self._process.poll() is not None and self._found.empty():
                    return b""


def _block_from(file: IO[bytes]) -> bytes:
    """Return the next block of a stream, or b"" at its end."""
    size = int.from_bytes(file.read(_PREFIX), "little")
    return file.read(size) if size else b""


# ---- in the child ----

_spawned: list[bool] = []


def is_spawned() -> bool:
    """Return whether this process is a spawned child."""
    return bool(_spawned)


def main() -> NoReturn:
    """Do the work that comes in until the stream ends."""
    _spawned.append(True)
    use_names_only()
    jobs, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")

    def write(messages: list[Any]) -> None:
        out.write(_framed(dumps(messages)))
        out.flush()

    apply_limits(2)
    data = loads(_block_from(jobs))
    begun = result_of(lambda send: spawn.prepare(data), write)
    if begun != Ended():  # the main script cannot be imported
        _block_from(jobs)
        write([begun])
    _do_jobs(
        lambda: loads(block) if (block := _block_from(jobs)) else None, write, begun
    )
    os._exit(0)


# ---- how a child ended that did not finish its work ----


class Crash(NamedTuple):
    """How a child ended.

    Attributes
    ----------
    how : str
        ``"crashed (signal SIGSEGV)"``, ``"ended the process (exit status 3)"``.
    lines : tuple of str
        More about it: where it was in the Python code, and what it wrote.
    hangs : bool
        Whether it was ended because it took too long.
    """

    how: str
    lines: tuple[str, ...] = ()
    hangs: bool = False


def crash_of(code: int, text: str, patience: float) -> Crash:
    """Return the crash for an exit code and the last text that the child wrote."""
    given = _GIVEN.findall(text)
    patience = float(given[-1]) if given else patience
    text = _GIVEN.sub("", text)
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
    """Return the crash for an exception that ends programs, such as SystemExit."""
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    return Crash(f"tried to end the process ({text})")


# Windows exit codes of crashes, and the text of faulthandler when time is up.
_OF_WINDOWS: Final = {
    0xC0000005: "access violation",
    0xC0000374: "heap corruption",
    0xC00000FD: "stack overflow",
    0xC0000409: "abort",
}
_GIVEN: Final = re.compile(rf"^{_PATIENCE}(.*)\n", re.MULTILINE)
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
# The first line of faulthandler: of a crash, or of the thread that took too long.
_BEGIN: Final = re.compile(
    r"^(Fatal Python error: |Current thread |Stack )", re.MULTILINE
)
_MOST_SAID = 3


def _said(text: str) -> list[str]:
    """Return lines that C code wrote before a crash, as ``free(): invalid pointer``."""
    begin = _BEGIN.search(text)
    before = text[: begin.start()] if begin else text
    lines = [line.strip() for line in before.splitlines() if line.strip()]
    return [f"it wrote: {line}" for line in lines[-_MOST_SAID:]]


def _places(text: str) -> Iterator[str]:
    """Yield the innermost line of Python code outside of the standard library."""
    for file, line, name in _FRAME.findall(text):
        if _PACKAGES in file or not file.startswith(_STANDARD):
            yield f"at {file}:{line}, in {name}"
            return


# ---- values of a forked child as bytes for its parent ----


def dumps(
    value: Any,
    shared: Mapping[int, Any] = MappingProxyType({}),
    *,
    by_name: bool = False,
) -> bytes:
    """Pickle a value in a child, for `loads` in its parent.

    Arrays keep their layout. A forked child shares addresses with its parent: classes
    without an importable name and the values in `shared` are sent by address, so they
    need not be picklable. With `by_name` everything is pickled.
    """
    if by_name or _names_only:
        return _dumped(_ByName, value)
    if not shared:  # most values need no addresses; this takes half the time
        with suppress(Exception):  # whatever their __reduce__ raises
            return _dumped(_ByName, value)
    return _dumped(partial(_ByAddress, shared), value)


def loads(block: bytes, shared: Mapping[int, Any] = MappingProxyType({})) -> Any:
    """Return the value that `dumps` pickled."""
    return _Unpickler(io.BytesIO(block), shared).load()


def travels(value: Any, *, by_name: bool = False) -> bool:
    """Return whether a value can be pickled."""
    try:
        dumps(value, by_name=by_name)
    except Exception:  # noqa: BLE001  # whatever __reduce__ raises
        return False
    return True


def _dumped(pickler: Callable[[io.BytesIO], pickle.Pickler], value: Any) -> bytes:
    out = io.BytesIO()
    pickler(out).dump(value)
    return out.getvalue()


class ChildError(Exception):
    """Holds an exception of a child that cannot be pickled, or a traceback."""


_WHERE = "in a child of this process\n"

_names_only: list[bool] = []


def use_names_only() -> None:
    """Make this process, which was not forked, send names and never addresses."""
    _names_only.append(True)


# `persistent_id` is called for its own results too, which have these types.
_IN_ADDRESSES = (int, str)


class _ByName(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)

    def reducer_override(self, obj: Any) -> Any:
        """Keep the layout of arrays."""
        if type(obj) is not np.ndarray or obj.dtype.hasobject:
            return NotImplemented
        if obj.flags.carray:
            # This does the same as NumPy in half the time.
            is_number = obj.dtype.kind in "biufc"
            content = obj.shape, obj.dtype.str, obj.tobytes()
            return (_numbers, content) if is_number else NotImplemented
        once = tuple(slice(0, 1) if s == 0 else slice(None) for s in obj.strides)
        values = np.array(obj[once] if obj.size else obj, order="C")
        shift = obj.ctypes.data % obj.dtype.alignment
        return _array, (values, obj.shape, obj.strides, shift, obj.flags.writeable)


class _ByAddress(_ByName):
    def __init__(self, shared: Mapping[int, Any], file: io.BytesIO) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_id(self, obj: Any) -> tuple[int, str] | None:
        """Return the address of a value that the parent has, and a class's name."""
        if type(obj) in _IN_ADDRESSES:
            return None
        if id(obj) in self._shared:
            return id(obj), ""
        if isinstance(obj, type) and not _has_name(obj):
            return id(obj), obj.__qualname__
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: Mapping[int, Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: tuple[int, str]) -> Any:
        """Return the parent's value or class at an address."""
        address, name = pid
        return _class_at(address, name) if name else self._shared[address]


def _class_at(address: int, name: str) -> type:
    left: list[type] = [object]
    for cls in left:
        if id(cls) == address and cls.__qualname__ == name:
            return cls
        left += type.__subclasses__(cls)
    raise pickle.UnpicklingError(f"no class {name}")


def _has_name(cls: type) -> bool:
    found: object = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls


def _numbers(shape: tuple[int, ...], dtype: str, content: bytes) -> Any:
    return np.ndarray(shape, dtype, content).copy()


def _array(
    values: np.ndarray[Any, Any],
    shape: tuple[int, ...],
    strides: Sequence[int],
    shift: int,
    is_writeable: bool,
) -> np.ndarray[Any, Any]:
    out = laid_out(np.broadcast_to(values, shape), strides, shift)
    out.flags.writeable = is_writeable
    return out


# ---- exceptions ----


def packed(error: BaseException) -> tuple[BaseException, str]:
    """Return a picklable form of an exception, and the text of its traceback."""
    text = _traced(error)
    if _is_same_there(error):
        return error, text
    return ChildError(f"{type(error).__name__}: {error}"), text


def unpacked(error: BaseException, text: str) -> BaseException:
    """Return the exception of a child with its traceback text as the cause."""
    if text:
        error.__cause__ = ChildError(_WHERE + text)
    return error


def child_traceback(error: BaseException) -> str:
    """Return the traceback text of an exception that comes from a child, or ""."""
    is_remote = isinstance(error.__cause__, ChildError)
    return str(error.__cause__).removeprefix(_WHERE) if is_remote else ""


def _is_same_there(error: BaseException) -> bool:
    """Return whether an exception survives pickling unchanged."""
    try:
        again = loads(dumps(error))
        return type(again) is type(error) and str(again) == str(error)
    except Exception:  # noqa: BLE001  # whatever their methods raise
        return False  # the AxisError of NumPy loses what its text is made of


def _traced(error: BaseException) -> str:
    """Return the text of a traceback, starting at the first line of user code."""
    trace = error.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_globals):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace, chain=False)
    return "".join(lines) if trace is not None else ""
