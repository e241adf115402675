"""The collector of cycles while a tape grows: it scans less, and is never switched off."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.collector import patient, quicken

_THRESHOLDS = (700, 10, 10)
_X = np.array([0.5, 1.0])


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    """Run with Python's own thresholds, whatever other tests have left."""
    co.grad(_long)(_X, count=2)
    before, was_on = gc.get_threshold(), gc.isenabled()
    gc.enable()
    gc.collect()
    gc.set_threshold(*_THRESHOLDS)
    yield
    gc.set_threshold(*before)
    if not was_on:
        gc.disable()


def _long(
    x: Any, inside: Callable[[], object] = lambda: None, count: int = 6000
) -> Any:
    for _ in range(count):
        x = np.sin(x)
    inside()
    return np.sum(x)


def _scans(run: Callable[[], object]) -> int:
    """Count the scans during a call."""
    found = []
    gc.callbacks.append(lambda phase, info: found.append(phase))
    try:
        run()
    finally:
        gc.callbacks.pop()
    return found.count("start")


def _fill(count: int) -> list[list[int]]:
    """Make objects that the collector counts."""
    return [[0] for _ in range(count)]


def test_few_scans_while_a_tape_grows() -> None:
    """A tape of 30,000 objects is scanned once, not forty times."""
    assert _scans(lambda: co.grad(_long)(_X)) <= 3
    assert gc.get_threshold() == _THRESHOLDS
    assert gc.isenabled()


def test_scans_of_other_objects() -> None:
    """Objects of the caller are scanned as always, also after a gradient."""
    assert _scans(lambda: _fill(7000)) >= 9
    co.grad(_long)(_X)
    assert _scans(lambda: _fill(7000)) >= 9


def test_variables() -> None:
    """The sweep of variables gives the thresholds back."""
    x = co.variable(_X)
    total = _long(x)
    assert gc.get_threshold() != _THRESHOLDS
    total.backward()
    assert gc.get_threshold() == _THRESHOLDS


def test_thresholds_of_the_caller() -> None:
    """Thresholds that the function sets stay, and 0 stays."""
    co.grad(lambda x: _long(x, lambda: gc.set_threshold(500, 5, 5)))(_X)
    assert gc.get_threshold() == (500, 5, 5)
    gc.set_threshold(0)
    co.grad(_long)(_X)
    assert gc.get_threshold()[0] == 0


def test_collector_that_is_switched_off() -> None:
    """It stays off."""
    gc.disable()
    co.grad(_long)(_X)
    assert not gc.isenabled()
    assert gc.get_threshold() == _THRESHOLDS


def test_after_an_error() -> None:
    """After an error, the second scan at the latest gives the thresholds back."""

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        co.grad(lambda x: _long(x, fail))(_X)
    _fill(410_000)
    assert gc.get_threshold() == _THRESHOLDS


def test_cycles_are_found_while_a_tape_grows() -> None:
    """Garbage of the function is freed during a long gradient."""
    freed: list[int] = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            freed.append(1)

    def inside() -> None:
        Cycle()
        _fill(210_000)
        assert freed

    co.grad(lambda x: _long(x, inside))(_X)
    assert freed


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::customop.CustomOpWarning")
def test_graphs() -> None:
    """A long graph is captured, compiled, run and loaded with few scans."""
    module: Any = None

    def run() -> None:
        nonlocal module
        module = co.make_fx(_long)(_X)
        module(_X)
        co.compile(lambda x: _long(x, count=2100), backend="numpy")(_X)

    run()  # imports what captures and compilers need
    assert _scans(run) <= 12
    _fill(410_000)
    assert gc.get_threshold() == _THRESHOLDS


def test_blocks_inside_blocks() -> None:
    """The last block that ends gives the thresholds back, in whatever thread."""
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with patient():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    with patient():
        thread.start()
        inside.wait(60)
        with patient():
            assert gc.get_threshold() != _THRESHOLDS
        quicken()
        assert gc.get_threshold() != _THRESHOLDS
    assert gc.get_threshold() != _THRESHOLDS
    leave.set()
    thread.join()
    assert gc.get_threshold() == _THRESHOLDS


def test_threads() -> None:
    """Gradients in threads leave the thresholds as they were."""
    threads = [threading.Thread(target=lambda: co.grad(_long)(_X)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _fill(210_000)
    assert gc.get_threshold() == _THRESHOLDS


def test_many_operators() -> None:
    """Operators that are defined in a loop are scanned a few times, not a hundred."""

    def run() -> None:
        for i in range(2000):
            co.custom_op(
                f"collector::op{i}",
                np.sin,
                mutates_args=(),
                schema="(Array x) -> Array",
            )

    assert _scans(run) <= 4
