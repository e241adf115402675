"""Messages about kernels that do not do what their schema says."""
# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co
from tests.errors._operators import Row, at


def kernel_call(schema: str, fn: Any, fake: Any = None, **kwargs: Any) -> Any:
    """A call of an operator whose kernel is `fn`, by its first call."""

    def call() -> Any:
        made = co.custom_op(
            "errors_test::kernel",
            fn,
            **{"mutates_args": (), "schema": schema, **kwargs},
        )
        if fake is not None:
            made.register_fake(fake)
        return made(np.array([1.0, 2.0]))

    return call


def broken(fn: Any, schema: str, what: str) -> str:
    return (
        f"errors_test::kernel: the 'cpu' kernel {what}\n"
        f"  errors_test::kernel{schema}\n  kernel at {at(fn)}\n"
        "  do: return what the schema says, or change the annotation of the result"
    )


def gives_list(x: Any) -> Any:
    return x.tolist()


def gives_float(x: Any) -> Any:
    return 1.5


def gives_one(x: Any) -> Any:
    return x.copy()


def gives_three(x: Any) -> Any:
    return x + 1, x + 2, x + 3


def gives_same(x: Any) -> Any:
    return x


def gives_twins(x: Any) -> Any:
    y = x.copy()
    return y, y[:1]


def writes(x: Any) -> Any:
    x[0] = 5.0
    return x.copy()


def fake_shape(x: Any) -> Any:
    return co.fake_like(x, shape=(3,))


def fake_fails(x: Any) -> Any:
    raise KeyError("shape")


ONE, TWO = "(Array x) -> Array", "(Array x) -> (Array, Array)"
CONTRACTS: dict[str, Row] = {
    "list for an array": (
        kernel_call(ONE, gives_list),
        co.ContractError,
        broken(gives_list, ONE, "returns output 0 as list [1.0, 2.0], must be an array"),
    ),
    "float for an int": (
        kernel_call("(Array x) -> int", gives_float),
        co.ContractError,
        broken(gives_float, "(Array x) -> int", "returns output 0 as float 1.5, must be int"),
    ),
    "something for nothing": (
        kernel_call("(Array x) -> ()", gives_one),
        co.ContractError,
        broken(gives_one, "(Array x) -> ()", "returns ndarray of shape (2,), must return None"),
    ),
    "one for two": (
        kernel_call(TWO, gives_one),
        co.ContractError,
        broken(gives_one, TWO, "returns ndarray of shape (2,), must return a tuple of 2"),
    ),
    "three for two": (
        kernel_call(TWO, gives_three),
        co.ContractError,
        broken(gives_three, TWO, "returns 3 items, must return a tuple of 2"),
    ),
    "an argument": (
        kernel_call(ONE, gives_same),
        co.ContractError,
        "errors_test::kernel: the 'cpu' kernel returns output 0 that shares memory with argument 'x'\n"
        "  which its schema does not say\n"
        f"  errors_test::kernel{ONE}\n  kernel at {at(gives_same)}\n"
        "  do: return a copy: out.copy()",
    ),
    "one memory twice": (
        kernel_call(TWO, gives_twins),
        co.ContractError,
        "errors_test::kernel: the 'cpu' kernel returns output 1 that shares memory with output 0\n"
        "  which its schema does not say\n"
        f"  errors_test::kernel{TWO}\n  kernel at {at(gives_twins)}\n"
        "  do: return a copy: out.copy()",
    ),
    "a write that is not declared": (
        kernel_call(ONE, writes),
        co.ContractError,
        "errors_test::kernel: the 'cpu' kernel writes argument 'x'\n"
        "  that mutates_args=() does not name\n"
        f"  errors_test::kernel{ONE}\n"
        "                      ^^^^^^^\n"
        f"  kernel at {at(writes)}\n"
        "  do: name it in mutates_args, or write into x.copy()",
    ),
    "a fake kernel of another shape": (
        kernel_call(ONE, gives_one, fake_shape),
        co.ContractError,
        "errors_test::kernel: the 'cpu' kernel returns f64[2] with strides (8,) on cpu as output 0,"
        " its fake kernel f64[3] with strides (8,) on cpu\n"
        f"  they differ in shape; fake kernel at {at(fake_shape)}\n"
        f"  errors_test::kernel{ONE}\n  kernel at {at(gives_one)}\n"
        "  do: return fake_like(x, shape=..., dtype=...) with what the kernel returns",
    ),
    "a fake kernel that fails": (
        kernel_call(ONE, gives_one, fake_fails),
        co.ContractError,
        "errors_test::kernel: the 'cpu' kernel succeeds where the fake kernel raises KeyError: 'shape'\n"
        f"  fake kernel at {at(fake_fails)}\n"
        f"  errors_test::kernel{ONE}\n  kernel at {at(gives_one)}\n"
        "  do: make the fake kernel accept what the kernel accepts",
    ),
}  # fmt: skip
