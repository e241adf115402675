"""A process that is forked while another thread works can work, too."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable

import pytest

from customop import forks
from customop.forks import free_after_fork, importing

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="has no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]


def succeeds_in_child(work: Callable[[], object]) -> bool:
    """Return whether a forked child can run a function in ten seconds."""
    pid = os.fork()
    if not pid:
        done = 1
        try:
            work()
            done = 0
        finally:
            os._exit(done)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


def held_meanwhile(hold: Callable[[Callable[[], None]], object]) -> threading.Thread:
    """Start a thread that holds something for a moment, and wait until it does."""
    begun = threading.Event()

    def rest() -> None:
        begun.set()
        time.sleep(0.05)

    thread = threading.Thread(target=hold, args=(rest,))
    thread.start()
    begun.wait()
    return thread


def test_lock_is_free_in_a_child() -> None:
    """A lock that another thread holds at the fork is free in the child and the parent."""
    lock = free_after_fork(threading.RLock())

    def hold(rest: Callable[[], None]) -> None:
        with lock:
            rest()

    thread = held_meanwhile(hold)
    assert succeeds_in_child(lock.acquire)
    thread.join()
    assert succeeds_in_child(lock.acquire)


def test_holder_of_a_lock_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that holds some locks forks while another one waits for them."""
    # A pool of threads has a lock of its own taken at each fork, if it was imported.
    monkeypatch.setattr(forks, "_PATIENCE", 0.2)
    first, second = (free_after_fork(threading.RLock()) for _ in range(2))
    done = []

    def hold(rest: Callable[[], None]) -> None:
        with second:
            rest()
            done.append(succeeds_in_child(first.acquire))

    with first:
        thread = held_meanwhile(hold)
    assert succeeds_in_child(second.acquire)
    thread.join()
    assert done == [True]


def test_import_on_demand_is_complete_in_a_child() -> None:
    """A fork waits for the imports of other threads, and for none of its own."""
    ended = []

    def hold(rest: Callable[[], None]) -> None:
        importing(rest)
        ended.append(1)

    thread = held_meanwhile(hold)
    assert succeeds_in_child(lambda: ended[0])
    thread.join()
    assert importing(lambda: succeeds_in_child(lambda: importing(int)))


@pytest.mark.exhaustive
def test_fork_while_another_thread_compiles() -> None:
    """Ten children compile, of a process where a thread compiles all the time."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "10 children\n"


PROGRAM = textwrap.dedent("""
    import threading
    import numpy as np
    import customop as co
    from tests.test_forks import succeeds_in_child

    def work():
        f = co.compile(lambda x: np.sin(x) + np.cumsum(x) * 2)
        x = np.ones(3)
        assert np.array_equal(f(x), np.sin(x) + np.cumsum(x) * 2)

    def loop():
        while not stop:
            work()

    stop = []
    thread = threading.Thread(target=loop)
    thread.start()
    done = 0
    for i in range(10):
        if not succeeds_in_child(work):
            break
        done += 1
    stop.append(1)
    thread.join()
    print(done, "children")
""")


@pytest.mark.exhaustive
def test_two_threads_fork_beside_a_lock_of_another_library() -> None:
    """Each has a lock that the other waits for; the fork that waits for ours goes on."""
    run = subprocess.run(
        [sys.executable, "-c", FORKS_OF_TWO],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "True [True]\n"


FORKS_OF_TWO = textwrap.dedent("""
    import os
    import threading
    from customop.forks import free_after_fork
    from tests.test_forks import held_meanwhile, succeeds_in_child

    ours, theirs = free_after_fork(threading.RLock()), threading.Lock()
    free = theirs.release
    os.register_at_fork(before=theirs.acquire, after_in_parent=free, after_in_child=free)
    done = []

    def hold(rest):
        with ours:
            rest()
            done.append(succeeds_in_child(ours.acquire))

    thread = held_meanwhile(hold)
    works = succeeds_in_child(ours.acquire)
    thread.join()
    print(works, done)
""")
