"""Threads of compiled functions: the same bits, warnings and errors as with one."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import customop as co
from customop.compiling.numpy_backend.elementwise_runs import limits
from customop.compiling.team import Team
from customop.compiling.team import team as shared
from tests.compiling._array_programs import bits, outcome
from tests.compiling.test_blocks import SHAPES, chain, noisy, normal
from tests.compiling.test_numpy_backend import built, check_programs

SMALL = {
    "elements": 2,
    "work": 2,
    "certain": 2,
    "whole": 512,
    "alone": 512,
    "most": 512,
    "least": 512,
    "share": 1,
    "most_shared": 512,
}


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    """Three threads for arrays of any size, in blocks of 64 elements."""
    for name, value in SMALL.items():
        monkeypatch.setattr(limits, name, value)
    monkeypatch.setattr(co.config, "compile_threads", 3)
    shared.stop()


@pytest.fixture
def team():
    found = Team()
    yield found
    found.stop()


# ---- compiled functions ----


def test_random_programs_have_eagers_bits_and_warnings() -> None:
    assert check_programs(range(100, 130), SHAPES) == 90


@pytest.mark.exhaustive
def test_many_random_programs_have_eagers_bits_and_warnings() -> None:
    assert check_programs(range(5000, 5150), SHAPES, 16) == 450


@pytest.mark.parametrize("mode", ["ignore", "warn", "raise", "call"])
def test_flags_of_all_threads_are_reported_in_the_order_of_the_calls(mode) -> None:
    x = normal(1400)
    x[::130] = 0.0
    code, module = built(noisy, x)

    def heard(run):
        told = []
        with np.errstate(call=lambda *a: told.append(a)):
            return bits(outcome(run, all=mode)), told

    assert heard(lambda: code(x)) == heard(lambda: module.run_list(x))


def test_callers_in_threads_share_the_helpers() -> None:
    inputs = [normal(3000, seed=i) for i in range(6)]
    code, _ = built(chain, inputs[0], inputs[0])
    wants = [bits([chain(x, x)]) for x in inputs]
    wrong = []

    def work(i):
        wrong.extend(
            i for _ in range(40) if bits(code(inputs[i], inputs[i])) != wants[i]
        )

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    helpers = [t for t in threading.enumerate() if t.name == "customop helper"]
    assert len(helpers) == 2


def test_the_number_of_threads_may_change_between_calls(monkeypatch) -> None:
    x = normal(2000)
    code, _ = built(chain, x, x)
    for count in (1, 2, 5, None, 1):
        monkeypatch.setattr(co.config, "compile_threads", count)
        assert bits(code(x, x)) == bits([chain(x, x)])


# ---- the team ----


def both(team, first, second):
    """Run one function in this thread and another in a helper, at one time."""
    started = threading.Barrier(2, timeout=20)
    caller = threading.get_ident()

    def work():
        started.wait()
        (first if threading.get_ident() == caller else second)()

    team.run(work, 2)


def nothing(*_):
    pass


def test_a_helper_has_the_settings_of_the_caller(team) -> None:
    seen = []
    with np.errstate(over="raise", invalid="call", call=nothing):
        both(team, nothing, lambda: seen.append((np.geterr(), np.geterrcall())))
        assert seen == [(np.geterr(), nothing)]


def test_an_error_of_a_helper_is_raised_by_the_caller(team) -> None:
    def fail():
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        both(team, nothing, fail)
    both(team, nothing, nothing)  # and the helper is there again


def test_the_caller_does_not_wait_for_helpers_that_are_busy(team) -> None:
    go_on, entered = threading.Event(), threading.Event()

    def hold():
        entered.set()
        go_on.wait(20)

    other = threading.Thread(target=both, args=(team, nothing, hold))
    other.start()
    assert entered.wait(20)
    done = []
    team.run(lambda: done.append(threading.get_ident()), 2)
    assert done == [threading.get_ident()]
    go_on.set()
    other.join()


@pytest.fixture
def interrupts():
    """Let SIGINT raise, which a program in the background ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_the_call_and_the_next_one_works(team, interrupts) -> None:
    with pytest.raises(KeyboardInterrupt):
        both(team, lambda: signal.raise_signal(signal.SIGINT), nothing)
    both(team, nothing, nothing)


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt])
def test_an_error_waits_for_the_helpers_that_write(team, kind) -> None:
    raised, left, seen = threading.Event(), threading.Event(), []

    def fail():
        raised.set()
        raise kind

    def write():
        raised.wait(20)
        seen.append(left.wait(0.1))  # False: the error has not left the call

    with pytest.raises(kind):
        both(team, fail, write)
    left.set()
    assert seen == [False]
    both(team, nothing, nothing)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of POSIX")
def test_an_interrupt_of_the_wait_waits_too(team, interrupts) -> None:
    handled, left, seen = threading.Event(), threading.Event(), []

    def interrupt(*_):
        handled.set()
        raise KeyboardInterrupt

    def write():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        seen.append((handled.wait(20), left.wait(0.1)))

    signal.signal(signal.SIGINT, interrupt)
    with pytest.raises(KeyboardInterrupt):
        both(team, nothing, write)
    left.set()
    assert seen == [(True, False)]
    both(team, nothing, nothing)


def test_without_more_threads_the_caller_does_it_all(team, monkeypatch) -> None:
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = []
    team.run(lambda: done.append(1), 4)
    assert done == [1]


# ---- processes ----


def printed(program):
    """What a program writes in a new process, where warnings are errors."""
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.stderr == ""
    assert found.returncode == 0
    return found.stdout.split()


# In a process without libraries that warn of a fork: Python warns of other threads.
FORK = """
import os, sys, threading
import numpy as np
import customop as co
co.config.compile_threads = 3
x = np.ones(3_000_000)
f = co.compile(lambda x: (x * 2.0 + 1.0) * x - x, backend="numpy")
def show():
    # In one piece, since two processes write.
    sys.stdout.write(f"{f(x)[-1]} {threading.active_count()}\\n")
    sys.stdout.flush()
show()
child = os.fork()
show()
if not child:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_has_threads_of_its_own() -> None:
    assert printed(FORK) == ["2.0", "3"] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_runs_the_tables_of_its_parent() -> None:
    values = printed(FORK.replace('"numpy"', '"native"'))[::2]
    assert values == ["2.0"] * 3


PROGRAM = """
import atexit
import numpy as np
import customop as co
co.config.compile_threads = 3
x = np.ones(3_000_000)
f = co.compile(lambda x: (x * 2.0 + 1.0) * x - x, backend="numpy")
atexit.register(lambda: print(f(x)[-1]))
print(f(x)[0])
"""


@pytest.mark.exhaustive
def test_a_program_ends_with_its_threads() -> None:
    assert printed(PROGRAM) == ["2.0", "2.0"]
