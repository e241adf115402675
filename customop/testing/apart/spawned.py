"""A child without a fork: a new process that imports what it needs."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import spawn
from types import TracebackType
from typing import IO, Any, Final, NoReturn, Self

from customop.testing.apart import transport
from customop.testing.apart.child import (
    ChildGoneError,
    Ended,
    Send,
    apply_limits,
    result_of,
    start_clock,
)
from customop.testing.apart.crash import Crash, crash_of
from customop.testing.apart.transport import dumps, loads

__all__ = ["SpawnedChild", "is_spawned", "main"]

_PREFIX: Final = 8
# How often to look whether a silent child is still there.
_SECONDS: Final = 0.5
_MOST_TEXT: Final = 1 << 16
# What `multiprocessing` says of the main script.
_MAIN: Final = ("init_main_from_name", "init_main_from_path")
_RUN: Final = """
import sys
sys.path[:] = {path!r}
from customop.testing.apart.spawned import main
main()
"""


class SpawnedChild:
    """A new process that waits for work, for a ``with`` block or until `close`.

    What it gets and sends is pickled by name. It shares nothing else with this process.

    Parameters
    ----------
    with_main : bool
        Whether it imports the main script, as children of `multiprocessing` do.
    patience : float
        Seconds after which the system ends it, for messages.

    Attributes
    ----------
    crash : Crash or None
        How the child ended, if not by finishing its work.
    is_waiting : bool
        Whether it waits for work.
    with_main : bool
    """

    def __init__(self, *, with_main: bool, patience: float) -> None:
        self.crash: Crash | None = None
        self.is_waiting: bool = True
        self.with_main: bool = with_main
        self._patience = patience
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
        self._write(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child, and the processes that it has started."""
        with contextlib.suppress(OSError, AttributeError):  # Windows has no groups
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()

    def ask(self, work: Callable[..., None], *args: Any) -> None:
        """Give work to the child; see `Child.ask`."""
        self.is_waiting = False
        self._write((work, args))

    def _write(self, value: Any) -> None:
        block = dumps(value, by_name=True)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(len(block).to_bytes(_PREFIX, "little") + block)
            self._process.stdin.flush()
        except OSError:
            raise ChildGoneError from None

    def _read(self) -> None:
        """Queue what comes, in a thread: not every system can wait for pipes."""
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # it was closed
            while block := _block_from(self._process.stdout):
                self._found.put(block)
        self._found.put(b"")

    def messages(self) -> Iterator[Any]:
        """Yield what the child sends until its work is done; see `Child.messages`."""
        while block := self._next():
            message = loads(block)
            if isinstance(message, Ended):
                self.is_waiting = True
                message.check()
                return
            if isinstance(message, Crash):
                self.crash = message
                return
            yield message
        code = self._process.wait()
        self.crash = crash_of(code, self._text(), self._patience)

    def last_words(self) -> str:
        """The last line that the child has written."""
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
    """The next block of a stream; nothing at its end."""
    size = int.from_bytes(file.read(_PREFIX), "little")
    return file.read(size) if size else b""


# ---- in the child ----

_spawned: list[bool] = []


def is_spawned() -> bool:
    """Whether this process is such a child."""
    return bool(_spawned)


def main() -> NoReturn:
    """Do the work that comes in, until there is no more."""
    _spawned.append(True)
    transport.use_names_only()
    jobs, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")

    def send(value: Any) -> None:
        block = dumps(value)
        out.write(len(block).to_bytes(_PREFIX, "little") + block)
        out.flush()

    apply_limits(2)
    data = loads(_block_from(jobs))
    begun = result_of(lambda send: spawn.prepare(data), send)
    while block := _block_from(jobs):
        if begun != Ended():  # the main script cannot be imported
            send(begun)
            continue
        work, args = loads(block)
        done = result_of(partial(_run, work, args), send)
        start_clock(0.0)
        send(done)
    os._exit(0)


def _run(work: Callable[..., None], args: Sequence[Any], send: Send) -> None:
    work(send, *args)
