"""A child of opcheck that is kept for later calls knows when anything has changed."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.testing import opcheck
from customop.testing.checks import child_reuse
from customop.testing.checks.child_reuse import Reach
from customop.testing.processes.child import Child
from tests.beside import beside

FACTOR = 2.0
TABLE = [2.0]


class Scale:
    """A class with a function that a kernel calls."""

    @staticmethod
    def by(x: np.ndarray) -> np.ndarray:
        return x * 2


SETTINGS = ModuleType("settings_of_a_user")
SETTINGS.factor = 2.0  # type: ignore[attr-defined]


def _half(x: np.ndarray) -> np.ndarray:
    return x * 0.5


def scaled(x: np.ndarray) -> np.ndarray:
    """Read a global."""
    return x * FACTOR


def through_a_function(x: np.ndarray) -> np.ndarray:
    """Call a function of this module, by a class, a module and a name."""
    return _half(x) + Scale.by(x) * SETTINGS.factor


def with_default(x: np.ndarray, k: float = 2.0, *, m: float = 1.0) -> np.ndarray:
    """Have defaults."""
    return x * k * m


def from_a_list(x: np.ndarray) -> np.ndarray:
    """Read a list, whose content may change."""
    return x * TABLE[0]


_LIBRARY = ctypes.CDLL(None)


def in_c(x: np.ndarray) -> np.ndarray:
    """Call a function in C."""
    _LIBRARY.abs(1)
    return x * 2


def _operator(kernel: Callable[..., Any], **options: Any) -> Any:
    op = co.custom_op(f"kept::{kernel.__name__}", mutates_args=(), **options)(kernel)
    op.register_fake(_fake)
    return op


def _fake(x: Any, *rest: Any, **more: Any) -> Any:
    return co.fake_like(x, dtype=np.result_type(x.dtype, 1.0))


@pytest.fixture(autouse=True)
def _no_child_before() -> Iterator[None]:
    child_reuse.close_kept()
    yield
    child_reuse.close_kept()


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each child that is forked."""
    seen: list[int] = []
    start = Child.start

    def counted(child: Child) -> None:
        seen.append(1)
        start(child)

    monkeypatch.setattr(Child, "start", counted)
    return seen


_CHECKS = ("test_layouts", "test_determinism", "test_sizes")


def _check(op: Any, *args: Any) -> list[str]:
    given = args or (np.arange(1.0, 4.0),)
    return opcheck(op, given, test_utils=_CHECKS, raise_exception=False).failed


@pytest.mark.parametrize("way", ["formula", "partials"])
def test_rules_of_an_operator_are_within_its_reach(
    way: str, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    op = _operator(with_default)
    if way == "formula":
        op.register_autograd(lambda ctx, g: (g * FACTOR, None, None))
    else:
        op.register_autograd(co.partials({"x": lambda x, k, m: FACTOR}))
    op.register_vmap(lambda info, dims, x, k, *, m: (op(x, k, m=m), dims[0]))
    _check(op)
    _check(op)
    assert len(forks) == 1
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    _check(op)
    assert len(forks) == 2


def test_later_calls_share_a_child(forks: list[int]) -> None:
    """Also those of other operators, and on other arrays."""
    first, second = _operator(scaled), _operator(through_a_function)
    for op in (first, first, second, first):
        assert _check(op) == []
    assert _check(first, np.ones((2, 2), np.float32)) == []
    assert len(forks) == 1


@pytest.mark.parametrize("names", [_CHECKS, "test_layouts", "ALL"])
def test_verbose_calls_share_a_child(
    names: Any, forks: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines that are shown do not end the outcomes too early."""
    op = _operator(scaled)
    for _ in range(2):
        opcheck(op, (np.ones(3),), test_utils=names, verbose=True)
    assert capsys.readouterr().err.count("kept::scaled\n") == 2
    opcheck(op, (np.ones(3),), test_utils=names)
    assert len(forks) == 1


def _redefine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "FACTOR", 3.0)


def _patch_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "_half", lambda x: x * 0.25)


def _patch_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_half, "__code__", (lambda x: x * 4).__code__)


def _patch_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scale, "by", staticmethod(lambda x: x))


def _patch_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SETTINGS, "factor", 3.0)


def _patch_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(with_default, "__defaults__", (3.0,))


def _patch_keyword(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_default.__kwdefaults__ is not None
    monkeypatch.setitem(with_default.__kwdefaults__, "m", 3.0)


def _set_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_VARIABLE_OF_A_KERNEL", "1")


def _register(monkeypatch: pytest.MonkeyPatch) -> None:
    co.ops.kept.scaled.default.register_vmap(lambda info, dims, x: (x * 2, dims[0]))


def _define_another(monkeypatch: pytest.MonkeyPatch) -> None:
    _operator(in_c)


_CHANGES = (
    (scaled, _redefine),
    (through_a_function, _patch_function),
    (through_a_function, _patch_code),
    (through_a_function, _patch_class),
    (through_a_function, _patch_module),
    (with_default, _patch_defaults),
    (with_default, _patch_keyword),
    (scaled, _set_environment),
    (scaled, _register),
    (scaled, _define_another),
)


@pytest.mark.parametrize(("kernel", "change"), _CHANGES)
def test_changes_are_seen(
    kernel: Any, change: Any, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    op = _operator(kernel)
    _operator(scaled)
    _check(op)
    _check(op)
    assert len(forks) == 1
    change(monkeypatch)
    _check(op)
    assert len(forks) == 2


def test_change_of_a_closure_is_seen(forks: list[int]) -> None:
    factor = 2.0

    def by_closure(x: np.ndarray) -> np.ndarray:
        return x * factor

    op = _operator(by_closure)
    _check(op)
    _check(op)
    assert len(forks) == 1
    factor = 3.0
    _check(op)
    assert len(forks) == 2


def test_change_makes_a_fault_that_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    op = _operator(through_a_function)
    assert _check(op) == _check(op) == []
    monkeypatch.setitem(globals(), "_half", lambda x: x * x.flags.c_contiguous)
    assert _check(op) == ["test_layouts"]
    monkeypatch.undo()
    assert _check(op) == []


@pytest.mark.parametrize("kernel", [from_a_list, in_c])
def test_kernels_with_state_have_a_child_each_time(
    kernel: Any, forks: list[int]
) -> None:
    """Nobody sees when the content of a list changes, or what C code keeps."""
    op = _operator(kernel)
    assert not Reach(op).is_fixed
    _check(op)
    _check(op)
    assert len(forks) == 2


def test_block_of_checks_shares_a_child(forks: list[int]) -> None:
    """Between its checks nothing else runs, so that C code keeps what it has."""
    ops = [_operator(kernel) for kernel in (in_c, scaled, from_a_list)]
    with child_reuse.undisturbed():
        for op in ops[:2] * 2:
            assert _check(op) == []
        assert len(forks) == 1
        assert _check(ops[2]) == []  # it keeps a list between calls
    assert len(forks) == 2


def test_search_for_inputs_shares_the_child_of_the_checks(forks: list[int]) -> None:
    op = _operator(scaled)
    opcheck(op, test_utils=_CHECKS)
    assert len(forks) == 1


# ---- what a kept child finds is found again by a new one ----


def test_faults_are_those_of_a_new_child(forks: list[int]) -> None:
    """What an operator before has left behind is not held against the next."""

    def leaves_an_error_state(x: np.ndarray) -> np.ndarray:
        if not x.size:
            np.seterr(all="raise")
        return x * 2

    def divides(x: np.ndarray) -> np.ndarray:
        return x / 0.0

    first, second = _operator(leaves_an_error_state), _operator(divides)
    assert _check(first) == []
    alone = opcheck(second, (np.ones(3),), test_utils=_CHECKS, raise_exception=False)
    child_reuse.close_kept()
    expected = opcheck(second, (np.ones(3),), test_utils=_CHECKS, raise_exception=False)
    assert dict(alone) == dict(expected)


def test_state_that_the_search_for_inputs_leaves_is_not_that_of_the_checks() -> None:
    """The kernel changes the program when it first runs, which is in the search."""

    def shown(x: np.ndarray) -> np.ndarray:
        np.set_printoptions(precision=3)
        return x + x

    op = _operator(shown)
    with np.printoptions():  # the search runs in this process
        table = opcheck(op, test_utils="test_mutation", raise_exception=False)
    assert "changes np.get_printoptions()" in str(table["test_mutation"])


def test_crash_in_a_kept_child_is_one_of_a_new_child(forks: list[int]) -> None:
    def ends(x: np.ndarray) -> np.ndarray:
        if not x.size:
            os.abort()
        return x * 2

    fine, op = _operator(scaled), _operator(ends)
    assert _check(fine) == []
    for _ in range(2):
        table = opcheck(op, (np.ones(3),), test_utils=_CHECKS, raise_exception=False)
        assert table.failed == ["test_layouts"]
        assert "the kernel crashed (signal SIGABRT) on 'x' of shape (0,)" in str(
            table["test_layouts"]
        )


def test_child_that_has_ended_is_replaced(
    forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("customop.testing.processes.child._IDLE", 0.05)
    op = _operator(scaled)
    _check(op)
    time.sleep(0.3)
    assert _check(op) == []
    assert len(forks) == 2


_SCRIPT = """
import os, subprocess, sys
import numpy as np
import customop as co

@co.custom_op("kept::alone", mutates_args=())
def alone(x: np.ndarray) -> np.ndarray:
    return x + x

from customop.testing.processes import child
child._IDLE = 60.0  # on a busy machine the child would end before it is asked again

alone.register_fake(lambda x: co.fake_like(x))
co.opcheck(alone, (np.ones(3),))
children = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
print(open(children).read().strip(), flush=True)
if os.fork() == 0:  # a copy of this process has no part in the child
    co.opcheck(alone, (np.ones(3),))
    sys.exit()
os.wait()
co.opcheck(alone, (np.ones(3),))
print(open(children).read().strip(), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_child_ends_with_its_parent() -> None:
    """And a copy of the parent leaves it alone."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.split()
    assert first == second
    for _ in range(50):
        if not os.path.exists(f"/proc/{first}"):  # noqa: PTH110
            return
        time.sleep(0.1)
    pytest.fail("the child is still there")


@pytest.mark.exhaustive
def test_other_threads_define_operators_meanwhile() -> None:
    """No error of a dict that changes while it is read."""

    def come_and_go(number: int) -> None:
        with co.Library("beside", "FRAGMENT") as library:
            library.define(f"op{number}(Array x) -> Array")

    op = co.custom_op("beside::op", mutates_args=())(scaled)
    with co.Library("beside", "FRAGMENT") as many:
        for number in range(1000):
            many.define(f"one_of_many{number}(Array x) -> Array")
        with beside(come_and_go):
            found = [child_reuse.World(op) for _ in range(200)]
    assert len(found) == 200
