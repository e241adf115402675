"""A forked child that runs what may crash."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import select
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from customop.arrays.on_demand import loading_lock
from customop.testing.apart.crash import Crash, crash_of, ended_by
from customop.testing.apart.transport import dumps, loads, packed, unpacked

__all__ = [
    "CAN_FORK",
    "Child",
    "ChildGoneError",
    "Ended",
    "Send",
    "apply_limits",
    "result_of",
    "start_clock",
]

# macOS has fork, but its own libraries do not survive it.
CAN_FORK: Final = hasattr(os, "fork") and sys.platform != "darwin"

Send: TypeAlias = Callable[[Any], None]

# Held from the making of a pipe until its end in this process is closed: a child that
# another thread forks in between would keep that end open.
_forking = threading.Lock()


class Ended(NamedTuple):
    """The last message of a child about some work.

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
    """A child that waited for work has ended."""


class Child:
    """A forked child of this process, for a ``with`` block or until `close`.

    The child has copies of everything. What it writes, prints, draws or breaks stays in
    it. Leaving the block ends it and the processes that it has started.

    When it has done its work it waits for more, for some seconds: see `ask`.

    Parameters
    ----------
    work : callable
        ``work(send)`` runs in the child; the parent receives what it sends.
    patience : float
        Seconds after which the system ends the child, unless it calls `start_clock` again.
    shared : iterable
        Values that this process keeps until then. The child can send them, even if they
        cannot be pickled.

    Attributes
    ----------
    crash : Crash or None
        How the child ended, if not by finishing its work.
    """

    __slots__ = (
        "_buffer",
        "_errors",
        "_jobs",
        "_patience",
        "_pid",
        "_pipe",
        "_shared",
        "_work",
        "crash",
        "is_waiting",
    )

    def __init__(
        self,
        work: Callable[[Send], None],
        patience: float,
        shared: Iterable[Any] = (),
    ) -> None:
        self._work = work
        self._shared = {id(value): value for value in shared}
        self._patience = patience
        self._buffer = bytearray()
        self.crash: Crash | None = None
        self.is_waiting: bool = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Fork, and begin with the work."""
        limits = _limits()
        limits.openmp_of_packages(len(sys.modules))  # looked up once, not in each child
        self._errors = _unnamed_file()
        state = random.getstate()  # which Python seeds again in every child
        with loading_lock, _forking:
            self._pipe, end = os.pipe()
            asked, self._jobs = socket.socketpair()
            self._pid = os.fork()
            if self._pid:
                os.close(end)
                asked.close()
        if not self._pid:
            random.setstate(state)
            self._live(end, asked, limits)
        with suppress(OSError):  # the child does the same; whoever comes first
            os.setpgid(self._pid, self._pid)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child, and the processes that it has started."""
        os.close(self._pipe)
        self._jobs.close()
        if self._pid:
            with suppress(ProcessLookupError):  # somebody else has waited for it
                os.killpg(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                self._reap()
        os.close(self._errors)

    # ---- in the child ----

    def _live(self, pipe: int, jobs: socket.socket, limits: Any) -> None:
        """Do the work and end the process, without any of the parent's cleaning up."""
        status = 1
        try:
            gc.freeze()  # what is garbage in the parent is its own to collect
            os.close(self._pipe)
            self._jobs.close()
            limits.apply(self._errors)
            limits.start_clock(self._patience)
            result = result_of(
                self._work, lambda found: _write(pipe, self._message(found))
            )
            limits.start_clock(0.0)
            _write(pipe, self._message(result))
            self._shared = {}  # later work has copies of its own
            while result == Ended() and (work := _next_work(jobs)) is not None:
                # In one piece, as the parent has use for it only when all is done.
                found = bytearray()
                result = result_of(work, lambda v: found.extend(self._message(v)))  # noqa: B023  # called at once
                limits.start_clock(0.0)
                _write(pipe, found + self._message(result))
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())  # for `crash`
            raise
        finally:
            os._exit(status)

    def _message(self, value: Any) -> bytes:
        block = dumps(value, self._shared)
        return len(block).to_bytes(_PREFIX, "little") + block

    # ---- in the parent ----

    def ask(self, work: Callable[..., None], *args: Any) -> None:
        """Give more work to the child, which is waiting; `messages` are its results.

        Parameters
        ----------
        work : callable
            A function of a module: ``work(send, *args)`` runs in the child.
        *args : object
            What `work` gets, as copies. It has to start its clock.

        Raises
        ------
        ChildGoneError
            If the child has ended since.
        """
        self.is_waiting = False
        block = dumps((work, args))
        try:
            # A pipe would end this process where SIGPIPE has its default meaning.
            self._jobs.sendall(
                len(block).to_bytes(_PREFIX, "little") + block, socket.MSG_NOSIGNAL
            )
        except OSError:
            raise ChildGoneError from None

    def messages(self) -> Iterator[Any]:
        """Yield what the child sends until it ends; `crash` then says how, if it crashed."""
        while True:
            message = self._next()
            if message is None:
                code = self._reap()
                self.crash = crash_of(code, _text_in(self._errors), self._patience)
                return
            match message:
                case Ended():
                    message.check()
                    self.is_waiting = True
                    return
                case Crash():
                    self.crash = message
                    return
            yield message

    def _next(self) -> Any:
        """The next message, or None if the child has ended."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        is_over = False
        while True:
            found = self._taken()
            if found is not None:
                return found
            if poll.poll(0 if is_over else _MILLISECONDS):
                block = os.read(self._pipe, _BLOCK)
                self._buffer += block
                if not block:
                    return None
            elif is_over:
                return None
            else:  # a process that the child has started may hold the pipe open
                is_over = self._has_ended()

    def _taken(self) -> Any:
        """The message at the front of the buffer, or None if it is not there yet."""
        end = _PREFIX + int.from_bytes(self._buffer[:_PREFIX], "little")
        if len(self._buffer) < max(end, _PREFIX + 1):
            return None
        block = bytes(self._buffer[_PREFIX:end])
        del self._buffer[:end]
        return loads(block, self._shared)

    def _has_ended(self) -> bool:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, options) is not None

    def _reap(self) -> int:
        """Wait for the child, and end what it has started; its exit code."""
        os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        # As long as nobody has asked for its status, its number is not given again.
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)


def _write(pipe: int, message: bytes | bytearray) -> None:
    left = memoryview(message)
    while left:
        left = left[os.write(pipe, left) :]


def result_of(work: Callable[[Send], None], send: Send) -> Ended | Crash:
    """Do work in a child; how it ended."""
    try:
        work(send)
    except Exception as error:  # noqa: BLE001  # the parent raises it
        return Ended(*packed(error))
    except BaseException as error:  # noqa: BLE001  # a kernel wants to end it all
        return ended_by(error)
    return Ended()


# Seconds that a child waits for more work.
_IDLE = 2.0


def _next_work(jobs: socket.socket) -> Callable[[Send], None] | None:
    """The next work of this process, a child; None if there is none for a while."""
    found = bytearray()
    poll = select.poll()
    poll.register(jobs, select.POLLIN)
    while True:
        end = _PREFIX + int.from_bytes(found[:_PREFIX], "little")
        if len(found) >= max(end, _PREFIX + 1):
            work, args = loads(bytes(found[_PREFIX:end]))
            return lambda send: work(send, *args)
        if not poll.poll(1000 * _IDLE):
            return None
        block = jobs.recv(_BLOCK)
        if not block:
            return None
        found += block


def start_clock(seconds: float) -> None:
    """Give this process, a child, so much time until the next call; 0 for all of it."""
    if hasattr(signal, "setitimer"):
        _limits().start_clock(seconds)
    elif seconds:
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    else:
        faulthandler.cancel_dump_traceback_later()


def apply_limits(errors: int) -> None:
    """Set up this process, a child: what it may do, and that it prints nothing."""
    if os.name == "posix":
        _limits().apply(errors)
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nowhere, number)
    faulthandler.enable(2, all_threads=False)


def _limits() -> Any:
    # Windows lacks modules that it needs.
    from customop.testing.apart import limits  # noqa: PLC0415  # not on Windows

    return limits


_PREFIX = 8
# As much as a pipe holds; memory for more would come from the system for each message.
_BLOCK = 1 << 16
# How often to look whether a silent child is still there.
_MILLISECONDS = 100
_MOST_TEXT = 1 << 16


def _unnamed_file() -> int:
    """A file that is gone when it is closed."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("opcheck")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _text_in(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    return os.read(file, _MOST_TEXT).decode(errors="replace")
