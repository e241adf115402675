"""When a kernel must prove its contract, and what its errors look like."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.codegen import is_open
from tests.core._contracts import define, fresh

_PACKAGE = str(Path(co.__file__).parent)

# ---- when kernels are proven ----


class Views:
    """A kernel that notes whether it got read-only arrays."""

    def __init__(self) -> None:
        self.proofs: list[bool] = []

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.proofs.append(not x.flags.writeable)
        return x * 2


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ("first", [True, False, False]),
        ("always", [True, True, True]),
        ("never", [False, False, False]),
    ],
)
def test_settings(checks: str, expected: list[bool]) -> None:
    """Calls under proof: the first, all, or none."""
    co.config.checks = checks
    kernel = Views()
    op = define("(Array x) -> Array", kernel)
    for _ in range(3):
        op(fresh())
    assert kernel.proofs == expected


def test_each_kernel_proves_itself() -> None:
    """A kernel registered later is proven by its own first call."""
    first, second = Views(), Views()
    op = define("(Array x) -> Array", first)
    op(fresh())
    op(fresh())
    op.register_kernel("cpu", second)
    op(fresh())
    op(fresh())
    assert (first.proofs, second.proofs) == ([True, False], [True, False])


def test_disabled_and_enabled_kernels_prove_themselves_again() -> None:
    """Whatever changes which kernel runs, the one that runs next is proven."""
    origin, own = Views(), Views()
    op = define("(Array x) -> Array", origin).register_kernel("cpu", own)
    op(fresh())
    with op.set_kernel_enabled("cpu", False):
        op(fresh())
        op(fresh())
    op(fresh())
    assert origin.proofs == [True, False]
    assert own.proofs == [True, True]


def test_fake_kernel_registered_later_is_compared() -> None:
    """A new fake kernel makes the kernel prove itself again."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    op(fresh())
    op.register_fake(lambda x: co.fake_like(x, dtype=int))
    with pytest.raises(co.ContractError, match="dtype"):
        op(fresh())


def test_failing_kernel_is_not_proven() -> None:
    """A call that raises proves nothing."""
    kernel = Views()

    def sometimes(x: np.ndarray) -> np.ndarray:
        out = kernel(x)
        if x.size == 0:
            raise KeyError
        return out

    op = define("(Array x) -> Array", sometimes)
    for _ in range(2):
        with pytest.raises(KeyError):
            op(np.zeros(0))
    op(fresh())
    op(fresh())
    assert kernel.proofs == [True, True, True, False]


def test_a_wrong_kernel_fails_again() -> None:
    """A kernel that broke its contract is under proof at the next call too."""
    op = define("(Array x) -> Array", lambda x: x)
    for _ in range(3):
        with pytest.raises(co.ContractError):
            op(fresh())


def test_fast_path_opens_after_the_proof() -> None:
    """A proven kernel is called by the fast path, and by nothing else."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    assert not is_open(op.call)
    op(fresh())
    assert is_open(op.call)
    op.register_kernel("cpu", lambda x: x * 3)
    assert not is_open(op.call)
    op(fresh())
    assert is_open(op.call)
    np.testing.assert_array_equal(op(fresh()), fresh() * 3)


def test_always_keeps_the_fast_path_closed() -> None:
    """Changing the setting closes the fast path of operators that were proven."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    op(fresh())
    co.config.checks = "always"
    assert not is_open(op.call)
    op(fresh())
    assert not is_open(op.call)
    co.config.checks = "first"
    op(fresh())
    assert is_open(op.call)


def test_never_lets_a_wrong_kernel_pass() -> None:
    """Without checks the result comes as the kernel gave it."""
    co.config.checks = "never"
    x = fresh()
    assert define("(Array x) -> Array", lambda x: x)(x) is x


@pytest.mark.parametrize("kind", ["cpu", "contracts_box"])
def test_every_kind_is_proven(kind: str) -> None:
    """A kernel of another kind proves its results as well."""
    op = define("(Array x) -> Array", lambda x: 3.0)
    with pytest.raises(co.ContractError, match=f"the '{kind}' kernel"):
        op(fresh() if kind == "cpu" else Box())


class Box:
    """An array of another kind."""

    shape = (2,)
    dtype = np.dtype(float)


co.register_array_type("contracts_box", Box)


def test_proofs_of_kinds_are_separate() -> None:
    """Proving the cpu kernel proves no other."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    op.register_kernel("contracts_box", lambda x: 3.0)
    op(fresh())
    with pytest.raises(co.ContractError, match="'contracts_box'"):
        op(Box())


def test_threads_prove_at_the_same_time() -> None:
    """First calls from many threads all give the right result."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    barrier = threading.Barrier(8)
    results: list[Any] = []

    def call(i: int) -> None:
        barrier.wait()
        results.append((i, op(np.full(3, float(i)))))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for i, out in results:
        np.testing.assert_array_equal(out, np.full(3, 2.0 * i))


# ---- exceptions of kernels ----


def frames_of_ours(error: BaseException) -> list[str]:
    """Functions of the package in a traceback, generated ones included."""
    return [
        frame.name
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith((_PACKAGE, "<customop"))
    ]


class BoomError(Exception):
    """An error of a user's own."""


def boom(x: np.ndarray, k: float = 1.0, *, c: np.ndarray | None = None) -> np.ndarray:
    if x.size == 0:
        raise BoomError("of the kernel")
    return x * k


@pytest.mark.parametrize("checks", ["first", "always", "never"])
@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("k", [1.0, 2])
def test_exception_of_a_kernel(checks: str, before: int, k: float) -> None:
    """It comes through unchanged, past one frame of the package."""
    co.config.checks = checks
    op = define("(Array x, float k=1.0, *, Array? c=None) -> Array", boom)
    for _ in range(before):
        op(fresh())
    with pytest.raises(BoomError, match=r"^of the kernel$") as caught:
        op(np.zeros(0), k)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert len(frames_of_ours(caught.value)) == 1


def test_exception_of_a_kernel_that_speaks_of_read_only() -> None:
    """An error of the user's about something read-only is left as it is."""

    def kernel(x: np.ndarray) -> Any:
        raise OSError("the disk is read-only")

    op = define("(Array x) -> Array", kernel)
    with pytest.raises(OSError, match="the disk is read-only") as caught:
        op(fresh())
    assert len(frames_of_ours(caught.value)) == 1


@pytest.mark.parametrize(
    "wrong",
    [("a",), (None,), (fresh(), "k"), (co.FakeArray((2,)),)],
    ids=["no array", "none", "no number", "no fake kernel"],
)
def test_fault_of_a_call(wrong: tuple[Any, ...]) -> None:
    """An error about arguments shows one frame of the package."""
    op = define("(Array x, float k=1.0) -> Array", lambda x, k=1.0: x * k)
    with pytest.raises(co.CustomOpError) as caught:
        op(*wrong)
    assert len(frames_of_ours(caught.value)) == 1


def test_exception_of_a_fake_kernel() -> None:
    """The error of a fake kernel comes through past one frame too."""

    def fake(x: Any) -> Any:
        raise BoomError("of the fake")

    op = define("(Array x) -> Array", lambda x: x * 1).register_fake(fake)
    with pytest.raises(BoomError) as caught:
        op(co.FakeArray((2,)))
    assert len(frames_of_ours(caught.value)) == 1


def test_exception_of_a_kernel_in_c() -> None:
    """It comes through past one frame, also where the call is under proof."""
    op = define("(Array x, Array y) -> Array", np.add)
    for _ in range(3):
        with pytest.raises(ValueError, match="could not be broadcast") as caught:
            op(np.zeros(2), np.zeros(3))
        assert len(frames_of_ours(caught.value)) == 1
        op(np.zeros(2), np.zeros(2))


def test_interrupt_passes() -> None:
    """KeyboardInterrupt is not caught."""

    def kernel(x: np.ndarray) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        define("(Array x) -> Array", kernel)(fresh())
