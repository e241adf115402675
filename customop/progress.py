"""Progress of long work: a bar in a terminal, a line now and then in a pipe.

`progress` opens it. What works far below tells a `Channel` how far it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from importlib import import_module
from importlib.util import find_spec
from time import monotonic
from typing import Any, Protocol, Self, TextIO, TypeVar

T = TypeVar("T")
# Seconds without a line in a pipe: before the first one, and between two.
_QUIET = 2.0
# Seconds between two drawings of a bar: a drawing takes 1 ms with rich 15.
_FRAME = 0.05


class _Display(Protocol):
    """Shows a state somewhere."""

    def show(self, state: Progress) -> None:
        """Show a new state."""
        ...

    def end(self, state: Progress, *, is_done: bool) -> None:
        """Show the last state, and leave the stream as it was."""
        ...

    def line(self, text: str) -> None:
        """Write a line that stays."""
        ...

    def hidden(self) -> AbstractContextManager[Any]:
        """Return a context in which others may write to the terminal."""
        ...


class Progress:
    """Work that is under way; open it with ``with``.

    Attributes
    ----------
    title : str
    text : str
        What runs now.
    done : int
        How much of it is done.
    total : int or None
        How much there is; None where that is not known.
    seconds : float
        How long it has been open.
    """

    def __init__(
        self,
        title: str,
        total: int | None,
        display: _Display,
        channel: Channel | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.title: str = title
        self.text: str = ""
        self.done: int = 0
        self.total: int | None = total
        self._display: _Display = display
        self._channel: Channel | None = channel
        self._clock: Callable[[], float] = clock
        self._began: float = clock()
        self._token: Token[Progress | None] | None = None

    @property
    def seconds(self) -> float:
        """The seconds for which it has been open."""
        return self._clock() - self._began

    def __enter__(self) -> Self:
        if self._channel is not None:
            self._token = self._channel.open(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if self._channel is not None and self._token is not None:
            self._channel.close(self._token)
        self._display.end(self, is_done=kind is None)

    def stage(self, text: str, total: int | None = None) -> None:
        """Say what runs now; with `total`, it is counted from zero."""
        self.text = text
        if total is not None:
            self.done, self.total = 0, total
        self._display.show(self)

    def advance(self, count: int = 1) -> None:
        """Say that some of it is done."""
        self.done += count
        self._display.show(self)

    def line(self, text: str) -> None:
        """Write a line that stays."""
        self._display.line(text)

    def hidden(self) -> AbstractContextManager[Any]:
        """Return a context in which others may write to the terminal."""
        return self._display.hidden()

    def counted(self) -> str:
        """Write how much is done: ``"3 of 40"``."""
        return f"{self.done}" if self.total is None else f"{self.done} of {self.total}"


class Channel:
    """A way to watch one sort of work; only those who asked see its progress.

    A watcher sees the thread or task in which it was opened.
    """

    def __init__(self, name: str) -> None:
        self._watcher: ContextVar[Progress | None] = ContextVar(name, default=None)

    @property
    def is_watched(self) -> bool:
        """Return whether work is watched."""
        return self._watcher.get() is not None

    def open(self, watcher: Progress) -> Token[Progress | None]:
        """Let `watcher` watch, until `close`."""
        return self._watcher.set(watcher)

    def close(self, token: Token[Progress | None]) -> None:
        """Let the watcher before watch again."""
        self._watcher.reset(token)

    def stage(self, text: str, total: int | None = None) -> None:
        """Say what runs now; see `Progress.stage`."""
        watcher = self._watcher.get()
        if watcher is not None:
            watcher.stage(text, total)

    def advance(self) -> None:
        """Say that one more is done."""
        watcher = self._watcher.get()
        if watcher is not None:
            watcher.advance()

    def each(self, items: Iterable[T], text: str, total: int) -> Iterable[T]:
        """Yield items, each of which counts as done when the next one is asked for."""
        watcher = self._watcher.get()
        return items if watcher is None else _counting(items, watcher, text, total)


def _counting(
    items: Iterable[T], watcher: Progress, text: str, total: int
) -> Iterator[T]:
    watcher.stage(text, total)
    for item in items:
        yield item
        watcher.advance()


# The checks of opcheck, and the nodes of graphs that are compiled.
check_channel: Channel = Channel("checks")
node_channel: Channel = Channel("nodes")


def progress(
    title: str,
    total: int | None = None,
    *,
    channel: Channel | None = None,
    stream: TextIO | None = None,
    is_quiet: bool = False,
) -> Progress:
    """Show how far work is, on standard error by default.

    In a terminal it is a bar of rich or tqdm, which goes away at the end. Elsewhere, and
    without them, it is a line every two seconds and a last one; short work has none.

    Parameters
    ----------
    title : str
    total : int, optional
    channel : Channel, optional
        What else tells it how far the work is.
    stream : file, optional
    is_quiet : bool
        Whether nothing is shown.

    Returns
    -------
    Progress
    """
    display = _display(stream or sys.stderr, is_quiet=is_quiet)
    return Progress(title, total, display, channel)


def _display(stream: TextIO, *, is_quiet: bool) -> _Display:
    if is_quiet:
        return _NoDisplay()
    if stream.isatty():
        if find_spec("rich") is not None:
            return _RichBar(stream)
        if find_spec("tqdm") is not None:
            return _TqdmBar(stream)
    return ProgressLines(stream)


# ---- displays ----


class _NoDisplay:
    """Shows nothing."""

    def show(self, state: Progress) -> None:
        """Show nothing."""

    def end(self, state: Progress, *, is_done: bool) -> None:
        """Show nothing."""

    def line(self, text: str) -> None:
        """Write nothing."""

    def hidden(self) -> AbstractContextManager[Any]:
        """Hide nothing, since nothing is shown."""
        return nullcontext()


class ProgressLines(_NoDisplay):
    """Whole lines, not too many, for pipes and files."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: float = 0.0
        self._has_written: bool = False

    def show(self, state: Progress) -> None:
        """Write a line if the last one is old enough."""
        seconds = state.seconds
        if seconds - self._last < _QUIET:
            return
        self._last = seconds
        self._write(f"{state.title}: {state.counted()}, {state.text}, {seconds:.0f} s")

    def end(self, state: Progress, *, is_done: bool) -> None:
        """Write a last line if there was one before."""
        if self._has_written:
            word = "done" if is_done else "stopped"
            self._write(
                f"{state.title}: {word}, {state.counted()}, {state.seconds:.1f} s"
            )

    def line(self, text: str) -> None:
        """Write a line at once."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def _write(self, line: str) -> None:
        self._has_written = True
        self._stream.write(f"{_one_line(line)}\n")
        self._stream.flush()


class _Bar:
    """A bar in a terminal, drawn a few times in a second.

    Neither library may start a thread: `opcheck` forks.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        # Short work draws nothing.
        self._drawn: float = 0.0

    def show(self, state: Progress) -> None:
        """Draw the bar if the last drawing is old enough."""
        now = state.seconds
        if now - self._drawn >= _FRAME:
            self._drawn = now
            self._draw(state)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Take the bar away; a later state draws it again."""
        self._clear()
        yield

    def line(self, text: str) -> None:
        """Write a line where the bar was."""
        with self.hidden():
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def end(self, state: Progress, *, is_done: bool) -> None:
        """Take the bar away."""
        self._clear()

    def _draw(self, state: Progress) -> None:
        raise NotImplementedError

    def _clear(self) -> None:
        raise NotImplementedError


class _RichBar(_Bar):
    """A bar of rich."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        rich: Any = import_module("rich.progress")
        text: Any = import_module("rich.text")
        console: Any = import_module("rich.console")
        self._plain: Callable[[str], Any] = text.Text
        self._rich = rich
        self._console = console.Console(file=stream)
        self._bar: Any = None
        self._task: Any = None

    def _draw(self, state: Progress) -> None:
        if self._bar is None:
            rich = self._rich
            self._bar = rich.Progress(
                rich.TextColumn("{task.fields[title]}", markup=False),
                rich.BarColumn(bar_width=24),
                rich.TextColumn("{task.fields[counted]}", style="cyan", markup=False),
                rich.TimeElapsedColumn(),
                rich.TextColumn("{task.fields[text]}", style="dim", markup=False),
                console=self._console,
                transient=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bar.start()
            fields = {"title": state.title, "text": "", "counted": ""}
            self._task = self._bar.add_task("", **fields)
        self._bar.update(
            self._task,
            total=state.total,
            completed=state.done,
            text=_one_line(state.text),
            counted=state.counted(),
        )
        self._bar.refresh()

    def _clear(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class _TqdmBar(_Bar):
    """A bar of tqdm."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._tqdm: Any = import_module("tqdm").tqdm
        self._bar: Any = None

    def _draw(self, state: Progress) -> None:
        if self._bar is None:
            # A class of our own, since its monitor would be a thread.
            cls = type("_Quiet", (self._tqdm,), {"monitor_interval": 0})
            self._bar = cls(
                file=self._stream,
                leave=False,
                mininterval=0.0,
                dynamic_ncols=True,
                desc=state.title,
            )
        self._bar.total, self._bar.n = state.total, state.done
        self._bar.set_postfix_str(_one_line(state.text), refresh=True)

    def _clear(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _one_line(text: str) -> str:
    """Return a text that cannot end the line of a bar, or change the terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
