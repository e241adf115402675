"""Kernels that write their arguments, or refuse read-only ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.codegen import is_open
from tests.core._contracts import define, fresh

# ---- writes ----


WRITES = [
    lambda x: x.__setitem__((0, 0), 5.0),
    lambda x: x.fill(0),
    lambda x: np.multiply(x, 2, out=x),
    lambda x: np.copyto(x, 0),
    lambda x: x.sort(),
    lambda x: np.add.at(x, 0, 1),
    lambda x: np.put(x, [0], 1),
    # The values stay as they are:
    lambda x: x.__imul__(1),
    lambda x: np.multiply(x, 1, out=x),
    lambda x: x.__setitem__(Ellipsis, x.copy()),
    lambda x: x[0].sort(),
    lambda x: np.copyto(x, x.copy()),
    lambda x: np.putmask(x, x > 9, 0),
    lambda x: x[0].partition(1),
    lambda x: x.byteswap(inplace=True).byteswap(inplace=True),
    lambda x: np.random.default_rng(0).shuffle(x[:1]),
    lambda x: np.clip(x, 0, 9, out=x),
    lambda x: np.cumsum(x[:1], axis=0, out=x[:1]),
    lambda x: np.einsum("ij->ij", x, out=x),
]


@pytest.mark.parametrize("index", range(len(WRITES)))
def test_undeclared_write(index: int) -> None:
    """A write that mutates_args does not name is an error, also of equal values."""
    write = WRITES[index]

    def kernel(x: np.ndarray) -> int:
        write(x)
        return 1

    op = define("(Array x) -> int", kernel)
    x = fresh()
    with pytest.raises(co.ContractError, match=r"writes.* argument") as caught:
        op(x)
    assert "mutates_args" in str(caught.value)
    np.testing.assert_array_equal(x, fresh())


def test_undeclared_write_of_an_item() -> None:
    """A write into an item of a list names the list."""
    op = define("(Array[] many) -> int", lambda many: many[1].fill(0) or 1)
    with pytest.raises(co.ContractError, match="writes argument 'many'"):
        op([fresh(), fresh()])


def test_undeclared_write_beside_a_declared_one() -> None:
    """The declared one is written as ever, the other one is named."""

    def kernel(x: np.ndarray, y: np.ndarray) -> None:
        x += 1
        y += 1

    op = define("(Array(a!) x, Array y) -> ()", kernel, ("x",))
    y = fresh()
    with pytest.raises(co.ContractError, match="writes argument 'y'"):
        op(fresh(), y)
    np.testing.assert_array_equal(y, fresh())


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_declared_write(checks: str) -> None:
    """What mutates_args names is written, in every setting, once a call."""
    co.config.checks = checks
    op = define(
        "(Array(a!) x) -> ()", lambda x: np.add(x, 1, out=x) is None or None, ("x",)
    )
    x = fresh()
    for _ in range(3):
        op(x)
    np.testing.assert_array_equal(x, fresh() + 3)


def test_writable_flag_of_the_caller_stays() -> None:
    """The caller's array is as writable after the proof as before it."""
    x = fresh()
    define("(Array x) -> Array", lambda x: x * 1)(x)
    assert x.flags.writeable


# ---- kernels that refuse read-only arrays ----


REFUSAL = "buffer source array is read-only"


def refusing(then: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    """A kernel such as Cython makes, which takes writable arrays only."""

    def kernel(x: np.ndarray) -> Any:
        if not x.flags.writeable:
            raise ValueError(REFUSAL)
        return then(x)

    return kernel


def test_kernel_that_refuses_read_only_arrays() -> None:
    """It runs, and is proven, if it writes nothing."""
    op = define("(Array x) -> Array", refusing(lambda x: x * 2))
    for _ in range(3):
        np.testing.assert_array_equal(op(fresh()), fresh() * 2)
    assert is_open(op.call)


def test_refusing_kernel_that_writes() -> None:
    """It is found out, and the caller's array keeps its values."""
    op = define("(Array x) -> int", refusing(lambda x: x.fill(9) or 1))
    x = fresh()
    with pytest.raises(co.ContractError, match="writes argument 'x'"):
        op(x)
    np.testing.assert_array_equal(x, fresh())


def test_refusing_kernel_that_returns_its_argument() -> None:
    """An alias is found out as well."""
    op = define("(Array x) -> Array", refusing(lambda x: x))
    with pytest.raises(co.ContractError, match="shares memory with argument 'x'"):
        op(fresh())


def test_refusing_kernel_with_nan() -> None:
    """A nan that stays nan does not count as written."""
    op = define("(Array x) -> float", refusing(lambda x: float(np.nansum(x))))
    assert op(np.array([np.nan, 1.0])) == 1.0


def test_refusing_kernel_that_writes_what_it_declares() -> None:
    """Declared writes reach the caller's array."""

    def kernel(x: np.ndarray, y: np.ndarray) -> None:
        if not y.flags.writeable:
            raise ValueError(REFUSAL)
        x += y

    op = define("(Array(a!) x, Array y) -> ()", kernel, ("x",))
    x = fresh()
    op(x, np.ones(3))
    op(x, np.ones(3))
    np.testing.assert_array_equal(x, fresh() + 2)


def test_failure_after_refusal_is_the_one_raised() -> None:
    """A kernel that fails on writable arrays too shows that failure."""

    def fail(x: np.ndarray) -> Any:
        raise KeyError("of the kernel")

    op = define("(Array x) -> Array", refusing(fail))
    with pytest.raises(KeyError, match="of the kernel"):
        op(fresh())


def test_read_only_array_of_the_caller_is_refused_on_every_call() -> None:
    """What the caller made read-only stays so: the kernel's own error comes through."""
    op = define("(Array x) -> Array", refusing(lambda x: x * 2))
    x = fresh()
    x.flags.writeable = False
    for _ in range(2):
        with pytest.raises(ValueError, match=REFUSAL):
            op(x)
    op(fresh())
    with pytest.raises(ValueError, match=REFUSAL):
        op(x)
