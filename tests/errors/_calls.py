"""Messages about calls with wrong arguments."""
# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

from typing import Any

import customop as co
from tests.errors._operators import (
    PLAIN,
    XS,
    ZEROS,
    Row,
    X,
    at,
    every_op,
    plain,
    plain_op,
    zeros,
    zeros_op,
)

EVERY = f"errors_test::every{every_op.schema}"


def refused(name: str, value: Any, why: str, do: str) -> Row:
    """A call of `every` with a wrong argument, and what it says."""
    parameter = str(every_op.schema.parameters[every_op.schema.index(name)])
    text = (
        f"errors_test::every: argument '{name}' {why}\n"
        f"  {EVERY}\n"
        f"  {' ' * EVERY.index(parameter)}{'^' * len(parameter)}\n"
        f"  do: {do}"
    )
    arguments = {"x": X, "xs": XS, name: value}
    return lambda: every_op(**arguments), co.ArgumentError, text


ARRAY = "pass an array, such as np.asarray(x)"
NUMBER = f"{ARRAY}, or declare x: np.ndarray | int"
ARRAYS = "pass arrays, such as [np.asarray(x), ...]"
DEVICE = "pass the name of a known device, such as 'cpu'"

CALLS: dict[str, Row] = {
    "number for an array": refused("x", 3, "expects Array, got int 3", NUMBER),
    "list for an array": refused("x", [1.0], "expects Array, got list [1.0]", ARRAY),
    "None for an array": refused("x", None, "expects Array, got None", "pass an array, or declare x: Array | None"),
    "number for an optional array": refused("o", 3, "expects Array, got int 3", ARRAY),
    "array for a list": refused("xs", X, "expects Array[], a list, got ndarray of shape (2,)", "pass a list of Array"),
    "None for a list": refused("xs", None, "expects Array[], a list, got None", "pass a value, or annotate xs with '... | None'"),
    "number in a list": refused("xs", [X, 3], "at index 1 expects Array, got int 3", ARRAYS),
    "None in a list": refused("xs", [None], "at index 0 expects Array, got None", ARRAYS),
    "whole float for an int": refused("n", 2.0, "expects int, got float 2.0", "pass int(2.0)"),
    "float for an int": refused("n", 2.5, "expects int, got float 2.5", "pass an int, or declare n: float"),
    "string for an int": refused("n", "a", "expects int, got str 'a'", "pass a value of type int"),
    "None for an int": refused("n", None, "expects int, got None", "pass a value, or annotate n with '... | None'"),
    "array for an int": refused("n", X, "expects int, got ndarray of shape (2,)", "pass a Python number, or annotate n: np.ndarray | int"),
    "two for a bool": refused("b", 2, "expects bool, got int 2", "pass a value of type bool"),
    "number for a string": refused("s", 3, "expects str, got int 3", "pass a value of type str"),
    "string for a number": refused("c", "1", "expects Scalar, got str '1'", "pass a value of type Scalar"),
    "no dtype": refused("d", "flot", "expects dtype, got str 'flot'", "pass a dtype, such as np.float32"),
    "no device": refused("v", "cdua", "is an unknown device 'cdua' (did you mean 'cuda'?); known: 'cpu', 'cuda'", DEVICE),
    "number for a list of numbers": refused("shape", 3, "expects int[], a list, got int 3", "pass a list of int"),
    "float in a list of ints": refused("shape", [1, 2.5], "at index 1 expects int, got float 2.5", "pass a list of int"),
    "missing kernel": (
        lambda: zeros_op(2, device="cuda"),
        co.MissingRuleError,
        "errors_test::zeros has no kernel for 'cuda'; it has 'cpu'\n"
        f"  {ZEROS}\n  at {at(zeros)}\n"
        '  do: @zeros.register_kernel("cuda")',
    ),
    "missing fake kernel": (
        lambda: plain_op(co.FakeArray((2,), float)),
        co.MissingRuleError,
        f"errors_test::plain has no fake kernel\n  {PLAIN}\n  at {at(plain)}\n"
        "  do: @plain.register_fake, a function that returns fake_like(...)",
    ),
    "missing rule": (
        lambda: plain_op.rule(co.RuleKind("inverse")),
        co.MissingRuleError,
        f"errors_test::plain has no 'inverse' rule\n  {PLAIN}\n  at {at(plain)}\n"
        "  do: @plain.register(inverse)",
    ),
    "arrays of different kinds": (
        lambda: every_op(X, [co.FakeArray((2,), float, device="cuda")]),
        co.DeviceMismatchError,
        "errors_test::every: arrays of different kinds: 'x' is on cpu, 'xs' is on cuda\n"
        f"  {EVERY}\n  do: bring them to one device: cupy.asarray(x), or x.get()",
    ),
}  # fmt: skip
