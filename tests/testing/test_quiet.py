"""Warnings and errors of numbers while operators are checked."""

from __future__ import annotations

import random
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.testing import opcheck, quiet
from customop.testing.quiet import (
    Allowance,
    quieted,
    random_state_kept,
    strict_numbers,
)


def _noise() -> None:
    warnings.warn("far off", RuntimeWarning, stacklevel=2)


@pytest.mark.parametrize("is_inside", [True, False])
def test_strict_numbers_raise_for_a_while(*, is_inside: bool) -> None:
    def check() -> None:
        with strict_numbers():
            with pytest.raises(RuntimeWarning):
                _noise()
            with pytest.raises(FloatingPointError):
                np.log(np.zeros(1))
            warnings.warn("old", DeprecationWarning, stacklevel=1)
            warnings.warn("new", FutureWarning, stacklevel=1)

    if is_inside:
        with quieted():
            check()
            _noise()
            np.log(np.zeros(1))
    else:
        check()
    with pytest.raises(RuntimeWarning, match="far off"):
        _noise()


def test_strict_numbers_raise_after_a_kernel_has_put_a_filter_before() -> None:
    with quieted():
        warnings.simplefilter("ignore")
        with strict_numbers(), pytest.raises(RuntimeWarning):
            _noise()


def test_strict_numbers_raise_what_was_shown_before() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        _noise()
        with quieted(), strict_numbers(), pytest.raises(RuntimeWarning):
            _noise()
    assert len(shown) == 1


def _settings() -> tuple[object, ...]:
    state = np.random.get_state()[1]  # type: ignore[index]  # noqa: NPY002
    return list(warnings.filters), random.getstate(), state.tobytes()


def test_all_is_put_back() -> None:
    before = _settings()
    with quieted(), random_state_kept():
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002  # as kernels may
        warnings.simplefilter("error")
        assert _settings() != before
    assert _settings() == before


def _draw() -> float:
    return random.random() + float(np.random.random())  # noqa: NPY002  # as kernels may


@pytest.mark.parametrize("inputs", ["given", "registered", "found"])
def test_opcheck_puts_random_states_back(inputs: str) -> None:
    """Those that a kernel draws from, also after a fault, and what makes its inputs."""

    @co.custom_op(f"quiet::draws_{inputs}", mutates_args=())
    def draws(x: np.ndarray) -> np.ndarray:
        _draw()
        return x * 2.0

    draws.register_fake(lambda x: co.fake_like(x, dtype=np.result_type(x.dtype, 1.0)))
    if inputs == "registered":
        draws.register_sample_inputs(lambda: [(np.full(3, _draw()),)])
    before = _settings()
    given = ((np.ones(3),),) if inputs == "given" else ()
    for _ in range(2):
        table = opcheck(draws, *given, raise_exception=False)
        assert "test_mutation" in table.failed
        assert _settings() == before


def test_threads_take_turns() -> None:
    """Operators are checked right in many threads: each sees its own filters alone."""

    @co.custom_op("quiet::noisy", mutates_args=())
    def noisy(x: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("noise", RuntimeWarning, stacklevel=1)
        time.sleep(1e-4)  # lets other threads run
        return x.copy()

    noisy.register_fake(lambda x: co.fake_like(x))
    failed: list[list[str]] = []

    def check() -> None:
        for _ in range(2):
            table = opcheck(noisy, (np.ones(3),), raise_exception=False)
            failed.append(table.failed)

    before = list(warnings.filters)
    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [[]] * 8
    assert list(warnings.filters) == before


@pytest.mark.parametrize("normals", [0, 1, 2, 3])
def test_random_numbers_go_on_as_without_checks(normals: int) -> None:
    """Also the second of a pair of normal numbers, which NumPy keeps."""
    drawn = []
    for is_checked in (True, False):
        np.random.seed(7)  # noqa: NPY002  # as kernels may
        np.random.standard_normal(normals)  # noqa: NPY002
        if is_checked:
            with random_state_kept():
                np.random.standard_normal(2 + normals)  # noqa: NPY002
        drawn.append(np.random.standard_normal(3).tolist())  # noqa: NPY002
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("name", ["PCG64", "MT19937"])
def test_global_generator_is_put_back(name: str) -> None:
    """Whatever its class, and though a kernel has put another in its place."""
    mtrand: Any = np.random
    before = mtrand.get_bit_generator()
    own = getattr(np.random, name)(3)
    try:
        mtrand.set_bit_generator(own)
        expected = getattr(np.random, name)(3).random_raw(4).tolist()
        with random_state_kept():
            np.random.random(5)  # noqa: NPY002
            mtrand.set_bit_generator(np.random.PCG64(1))
        assert mtrand.get_bit_generator() is own
        assert own.random_raw(4).tolist() == expected
    finally:
        mtrand.set_bit_generator(before)


# ---- the time for a search ----


class _Machine:
    """A clock, and how long a thread has waited for a processor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.waited = 0.0
        monkeypatch.setattr(quiet, "perf_counter", lambda: self.now)
        monkeypatch.setattr(quiet, "_scheduled", lambda thread: (1.0, self.waited))

    def passes(self, seconds: float, *, busy: float = 0.0) -> float:
        """Let time pass, in a part of which other processes run."""
        self.now += seconds
        self.waited += seconds * busy
        return self.now


def test_time_of_other_processes_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten seconds of work take forty where three of four seconds go to others."""
    machine = _Machine(monkeypatch)
    allowed = Allowance(10.0)
    over = [allowed.is_over(machine.passes(1.0, busy=0.75)) for _ in range(45)]
    assert over.index(True) in range(30, 42)
    assert allowed.was_over


def test_time_is_over_on_a_quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _Machine(monkeypatch)
    allowed = Allowance(10.0)
    assert not any(allowed.is_over(machine.passes(1.0)) for _ in range(10))
    assert not allowed.was_over
    assert allowed.left() == 0.0
    assert allowed.is_over(machine.passes(0.5))


def test_the_system_says_how_long_a_thread_waited() -> None:
    """Both numbers are times of this thread, which only grow."""
    before = quiet._scheduled(threading.get_native_id())
    sum(range(100_000))
    after = quiet._scheduled(threading.get_native_id())
    assert 0 < before[0] <= after[0]
    assert 0 <= before[1] <= after[1]
