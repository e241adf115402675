"""Long work shows how far it is: bars in terminals, lines in pipes."""

from __future__ import annotations

import io
import os
import re
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn, TextIO

import numpy as np
import pytest

import customop as co
from customop import progress as progress_module
from customop.graph.writer import GraphLines
from customop.progress import Channel, Progress, ProgressLines, progress
from tests.cli._commands import FILES, forget


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now: float = 0.0

    def __call__(self) -> float:
        return self.now


def in_pipe(total: int | None) -> tuple[Progress, Clock, io.StringIO]:
    clock, stream = Clock(), io.StringIO()
    return Progress("work", total, ProgressLines(stream), clock=clock), clock, stream


def stop(error: BaseException) -> NoReturn:
    raise error


# ---- in a pipe ----


def test_lines_are_few_and_whole() -> None:
    """Many steps make a line every two seconds, and a last one that says all."""
    work, clock, stream = in_pipe(1000)
    with work:
        for i in range(1000):
            work.stage(f"part {i}")
            clock.now = (i + 1) / 100
            work.advance()
    assert stream.getvalue().splitlines() == [
        "work: 200 of 1000, part 199, 2 s",
        "work: 400 of 1000, part 399, 4 s",
        "work: 600 of 1000, part 599, 6 s",
        "work: 800 of 1000, part 799, 8 s",
        "work: 1000 of 1000, part 999, 10 s",
        "work: done, 1000 of 1000, 10.0 s",
    ]


def test_short_work_says_nothing() -> None:
    """What ends within two seconds leaves no line."""
    work, clock, stream = in_pipe(3)
    with work:
        clock.now += 1.9
        work.advance(3)
    assert stream.getvalue() == ""


def test_work_that_fails_says_so() -> None:
    """The last line says how far it came; a text cannot end the line."""
    work, clock, stream = in_pipe(None)
    with suppress(KeyError), work:
        clock.now = 3.0
        work.stage("a\nb\x1b[31m")
        stop(KeyError())
    assert stream.getvalue().splitlines() == [
        "work: 0, a b [31m, 3 s",
        "work: stopped, 0, 3.0 s",
    ]


# ---- channels ----


def test_a_channel_tells_its_watcher_alone() -> None:
    """What works on another channel, or after the end, is not counted."""
    first, other = Channel("first"), Channel("other")
    stream = io.StringIO()
    work = Progress("work", None, ProgressLines(stream), first)
    with work:
        assert list(first.each("abc", "letters", 3)) == ["a", "b", "c"]
        assert list(other.each("abc", "letters", 3)) == ["a", "b", "c"]
        other.advance()
        assert not other.is_watched
    assert (work.text, work.done, work.total) == ("letters", 3, 3)
    first.advance()
    assert work.done == 3
    assert not first.is_watched


# ---- in a terminal ----


class Terminal:
    """A terminal, and what was written to it."""

    def __init__(self) -> None:
        self._ours, theirs = os.openpty()
        tty.setraw(theirs)
        termios.tcsetwinsize(theirs, (24, 100))
        self.stream: TextIO = os.fdopen(theirs, "w", encoding="utf-8")

    def read(self) -> str:
        self.stream.flush()
        os.set_blocking(self._ours, False)
        parts = []
        while True:
            try:
                parts.append(os.read(self._ours, 65536))
            except BlockingIOError:
                return b"".join(parts).decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self._ours)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(progress_module, "_FRAME", 0.0)
    found = Terminal()
    yield found
    found.close()


def without_rich(name: str) -> object:
    return None if name == "rich" else True


SHOWN, HIDDEN = "\x1b[?25h", "\x1b[?25l"


@pytest.mark.parametrize("library", ["rich", "tqdm"])
@pytest.mark.parametrize("is_stopped", [False, True], ids=["done", "interrupted"])
def test_a_bar_leaves_the_terminal_clean(
    library: str,
    is_stopped: bool,
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bar names the work and goes away, also with Ctrl-C; no thread is left."""
    pytest.importorskip(library)
    if library == "tqdm":
        monkeypatch.setattr(progress_module, "find_spec", without_rich)
    count = threading.active_count()
    try:
        with progress("check ops", 4, stream=terminal.stream) as work:
            for name in ("one", "[red]two", "three"):
                work.stage(name)
                work.advance()
            assert threading.active_count() == count
            if is_stopped:
                stop(KeyboardInterrupt())
    except KeyboardInterrupt:
        assert is_stopped
    seen = terminal.read()
    assert "check ops" in seen
    assert "[red]two" in seen
    assert re.search(r"3 of 4|3/4", seen)
    assert seen.rfind(SHOWN) >= seen.rfind(HIDDEN)
    # The last thing is that its line is cleared.
    left = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", seen).rpartition("\r")[2]
    assert left.strip() == ""
    assert threading.active_count() == count


def test_lines_stand_above_the_bar(terminal: Terminal) -> None:
    """Others write while the bar is hidden, so that no line is mixed with it."""
    pytest.importorskip("rich")
    with progress("work", 2, stream=terminal.stream) as work:
        work.stage("first")
        work.line("a line that stays")
        work.stage("second")
        with work.hidden():
            terminal.stream.write("another\n")
    seen = terminal.read()
    for line in ("a line that stays", "another"):
        before = seen.partition(line)[0]
        assert before.endswith(("\x1b[2K", "\n"))
        assert before.rfind(SHOWN) > before.rfind(HIDDEN)


def test_without_libraries_a_terminal_has_lines(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither rich nor tqdm is needed."""
    monkeypatch.setattr(progress_module, "find_spec", lambda name: None)
    monkeypatch.setattr(progress_module, "_QUIET", 0.0)
    with progress("work", 1, stream=terminal.stream) as work:
        work.stage("first")
    assert terminal.read().startswith("work: 0 of 1, first, 0 s\nwork: done, 0 of 1,")


# ---- what is long ----


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a line for each step."""
    monkeypatch.setattr(progress_module, "_QUIET", 0.0)


def test_a_verbose_opcheck_prints_its_table(capfd: Any) -> None:
    """Each check has its line at once, on standard error."""
    op = co.ops.np.sin.default
    checks = ("test_schema", "test_out_variant")
    found = co.opcheck(op, (np.ones(2),), test_utils=checks, verbose=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert re.sub(r" \d\.\d\d s ", "", err).split() == str(found).split()
    co.opcheck(op, (np.ones(2),), test_utils=checks)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("eager")
def test_a_verbose_compile_says_how_far_it_is(capfd: Any) -> None:
    """It captures, simplifies and writes code, and counts nodes."""

    def chain(x: Any) -> Any:
        for _ in range(20):
            x = np.sin(x) + 1.0
        return x

    f = co.compile(chain, backend="numpy", verbose=True)
    f(np.ones(2))
    lines = capfd.readouterr().err.splitlines()
    count = f.graphs[0].graph.count
    assert "compile chain: 30, capturing, 0 s" in lines
    assert f"compile chain: {count} of {count}, writing code, 0 s" in lines
    assert any(f"simplifying {count} nodes" in line for line in lines)
    assert lines[-1].startswith(f"compile chain: done, {count} of {count},")
    f(np.ones(2))
    co.compile(chain)(np.ones(2))
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("eager")
def test_commands_show_progress_on_standard_error(
    capfd: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output has what it has without; those who want quiet have it."""
    from customop.cli import main  # noqa: PLC0415  # 30 ms

    source = FILES["cli_checked.py"].replace("cli_checked", "cli_shown")
    (tmp_path / "cli_shown.py").write_text(source, "utf-8")
    monkeypatch.chdir(tmp_path)
    command = ["check", "cli_shown:right", "--test-utils", "test_schema,test_vmap"]
    assert main(command) == 0
    out, err = capfd.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("customop check: ")]
    assert lines[0] == "customop check: 0 of 1, cli_shown::right test_schema, 0 s"
    assert lines[-1].startswith("customop check: done, 1 of 1,")
    assert "customop check: " not in out
    for option in ("--quiet", "--no-progress", "--json", "--html"):
        assert main([*command, option]) == 0
        assert "customop check: " not in capfd.readouterr().err
    bench = ["bench", "np::sin", "f64[2]", "--time", "1e-6"]
    assert main(bench) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "bench np::sin: 0 of 7, np::sin(f64[2]): kernel, 0 s"
    assert lines[-1].startswith("bench np::sin: done, 7 of 7,")
    forget()


def test_names_are_found_without_a_walk() -> None:
    """The thousandth global name of one wish takes no more work than the first."""

    class Counting(set[str]):
        asked = 0

        def __contains__(self, name: object) -> bool:
            Counting.asked += 1
            return super().__contains__(name)

    lines = GraphLines(co.make_fx(np.sin)(np.ones(2)).graph)
    lines._taken = Counting(lines._taken)
    names = {lines.bind("constant", object()) for _ in range(1000)}
    assert len(names) == 1000
    assert Counting.asked < 3000


def test_the_import_loads_no_bar() -> None:
    """Rich and tqdm are loaded when a bar is drawn, not before."""
    code = "import sys, customop; assert not {'rich', 'tqdm'} & {*sys.modules}"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0
