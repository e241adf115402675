"""Pointwise calls as expressions of scalars, in Python and in C.

Only what gives the bits of the ufunc is in the table: arithmetic, comparisons, rounding
to whole numbers and square roots, which IEEE 754 defines to the last bit, and integers
that wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU, device_kind
from customop.core.dispatch import find_kernel
from customop.core.table import RuleTable
from customop.graph.node import CALL, Node

__all__ = ["Pointwise", "operand_dtype", "pointwise_of"]


class Pointwise(NamedTuple):
    """The scalar expression that a call computes for each element.

    Attributes
    ----------
    python, c : str
        Expressions with ``{0}`` and so on for the operands, in the dtypes of `operands`.
    operands : tuple of dtype
        What the operands are converted to.
    result : dtype
        What the value of the expression is converted to.
    """

    python: str
    c: str
    operands: tuple[np.dtype[Any], ...]
    result: np.dtype[Any]


class _Expression(NamedTuple):
    """An expression, and the kinds of dtypes for which its bits are those of a ufunc."""

    kinds: str
    python: str
    c: str = ""


def _wrapping(python: str, c: str) -> _Expression:
    """Arithmetic of integers, which C defines for unsigned ones alone."""
    text = c.replace("{0}", f"({_WIDE}){{0}}").replace("{1}", f"({_WIDE}){{1}}")
    return _Expression("iu", python, f"({text})")


_WIDE = "unsigned long long"
# Ufunc -> expressions; the first whose kinds have that of the operands.
_ROWS: Mapping[str, Sequence[_Expression]] = {
    "add": [
        _Expression("f", "{0} + {1}"),
        _wrapping("{0} + {1}", "{0} + {1}"),
        _Expression("b", "{0} | {1}"),
    ],
    "subtract": [_Expression("f", "{0} - {1}"), _wrapping("{0} - {1}", "{0} - {1}")],
    "multiply": [
        _Expression("f", "{0} * {1}"),
        _wrapping("{0} * {1}", "{0} * {1}"),
        _Expression("b", "{0} & {1}"),
    ],
    "divide": [_Expression("f", "{0} / {1}")],
    "square": [_Expression("f", "{0} * {0}"), _wrapping("{0} * {0}", "{0} * {0}")],
    "reciprocal": [_Expression("f", "{one} / {0}", "1 / {0}")],
    "negative": [_Expression("f", "-{0}"), _wrapping("-{0}", "0 - {0}")],
    "positive": [_Expression("iuf", "{0}")],
    "absolute": [
        _Expression("f", "abs({0})", "fabs({0})"),
        _Expression(
            "i", "abs({0})", f"({{0}} < 0 ? 0 - ({_WIDE}){{0}} : ({_WIDE}){{0}})"
        ),
        _Expression("bu", "{0}"),
    ],
    "sqrt": [_Expression("f", "np.sqrt({0})", "sqrt({0})")],
    "floor": [
        _Expression("f", "np.floor({0})", "floor({0})"),
        _Expression("biu", "{0}"),
    ],
    "ceil": [_Expression("f", "np.ceil({0})", "ceil({0})"), _Expression("biu", "{0}")],
    "trunc": [
        _Expression("f", "np.trunc({0})", "trunc({0})"),
        _Expression("biu", "{0}"),
    ],
    "rint": [_Expression("f", "np.rint({0})", "rint({0})")],
    "equal": [_Expression("biuf", "{0} == {1}")],
    "not_equal": [_Expression("biuf", "{0} != {1}")],
    "less": [_Expression("biuf", "{0} < {1}")],
    "less_equal": [_Expression("biuf", "{0} <= {1}")],
    "greater": [_Expression("biuf", "{0} > {1}")],
    "greater_equal": [_Expression("biuf", "{0} >= {1}")],
    "logical_and": [_Expression("b", "{0} & {1}")],
    "logical_or": [_Expression("b", "{0} | {1}")],
    "logical_xor": [_Expression("b", "{0} ^ {1}")],
    "logical_not": [_Expression("b", "{0} ^ True", "!{0}")],
    "bitwise_and": [_Expression("biu", "{0} & {1}")],
    "bitwise_or": [_Expression("biu", "{0} | {1}")],
    "bitwise_xor": [_Expression("biu", "{0} ^ {1}")],
    "invert": [_Expression("iu", "~{0}"), _Expression("b", "{0} ^ True", "!{0}")],
    "isnan": [_Expression("f", "{0} != {0}")],
    # Of floats, which of -0.0 and 0.0 is the greater one depends on the processor.
    "maximum": [
        _Expression("biu", "({0} if {0} >= {1} else {1})", "({0} >= {1} ? {0} : {1})")
    ],
    "minimum": [
        _Expression("biu", "({0} if {0} <= {1} else {1})", "({0} <= {1} ? {0} : {1})")
    ],
}

# What CuPy computes with functions of CUDA, of floats alone; there the same expression in
# another kernel gives the same bits. Source: the routines of CuPy's ufuncs.
_NAN = "NAN"
_ON_DEVICE: Mapping[str, tuple[_Expression, ...]] = {
    **{
        name: (_Expression("f", "", f"{name.replace('arc', 'a')}({{0}})"),)
        for name in (
            *("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "expm1", "log"),
            *("log2", "log10", "log1p", "cbrt", "arcsin", "arccos", "arctan"),
            *("arcsinh", "arccosh", "arctanh"),
        )
    },
    "hypot": (_Expression("f", "", "hypot({0}, {1})"),),
    "arctan2": (_Expression("f", "", "atan2({0}, {1})"),),
    "power": (_Expression("f", "", "pow({0}, {1})"),),
    "maximum": (
        _Expression(
            "f", "", f"({{0}} != {{0}} | {{1}} != {{1}} ? {_NAN} : fmax({{0}}, {{1}}))"
        ),
    ),
    "minimum": (
        _Expression(
            "f", "", f"({{0}} != {{0}} | {{1}} != {{1}} ? {_NAN} : fmin({{0}}, {{1}}))"
        ),
    ),
}
_CHOICE = Pointwise("({1} if {0} else {2})", "({0} ? {1} : {2})", (), np.dtype(bool))
_NUMBERS = (bool, int, float)
_WEAK = (int, float)


def pointwise_of(node: Node, kind: str = CPU.name) -> Pointwise | None:
    """Return the expression of a call on arrays of a kind; None if it is not in the table.

    For ``"cuda"`` there are functions more, which have an expression in C alone.
    """
    op = node.target
    if node.op != CALL or not isinstance(op, RuleTable) or op.namespace != "np":
        return None
    val, values = node.val, node.values()
    if (
        not isinstance(val, FakeArray)
        or not val.shape
        or device_kind(val.device) != kind
    ):
        return None
    dtypes = [operand_dtype(value) for value in values]
    if not all(_is_known(dtype) for dtype in dtypes if isinstance(dtype, np.dtype)):
        return None
    if op.name in _OTHERS:
        return _OTHERS[op.name](values, dtypes, val.dtype)
    rows = [
        *_ROWS.get(op.name, ()),
        *(_ON_DEVICE.get(op.name, ()) * (kind != CPU.name)),
    ]
    ufunc = getattr(np, op.name, None)
    # A kernel that somebody registered computes something else.
    if not rows or find_kernel(op, kind) is not ufunc:
        return None
    return _of_ufunc(rows, ufunc, values, dtypes)


def operand_dtype(value: Any) -> Any:
    """The dtype of an operand; the class of a number of Python; None for others."""
    if isinstance(value, Node):
        return value.val.dtype if isinstance(value.val, FakeArray) else None
    if type(value) in _NUMBERS:
        return np.dtype(bool) if type(value) is bool else type(value)
    return value.dtype if isinstance(value, np.generic) else None


def _of_ufunc(
    rows: Sequence[_Expression],
    ufunc: Any,
    values: Sequence[Any],
    dtypes: Sequence[Any],
) -> Pointwise | None:
    if any(dtype is None for dtype in dtypes):
        return None
    *operands, result = ufunc.resolve_dtypes((*dtypes, None))
    kinds = {dtype.kind for dtype in operands}
    if len(kinds) != 1 or not all(_is_known(d) for d in (*operands, result)):
        return None
    (kind,) = kinds
    row = next((row for row in rows if kind in row.kinds), None)
    if row is None or not _fits(values, operands[0]):
        return None
    return Pointwise(row.python, row.c or row.python, tuple(operands), result)


def _of_choice(
    values: Sequence[Any], dtypes: Sequence[Any], wanted: np.dtype[Any]
) -> Pointwise | None:
    """Of np.where."""
    if any(dtype is None for dtype in dtypes) or not _is_known(wanted):
        return None
    if dtypes[0] != np.dtype(bool) or not _fits(values[1:], wanted):
        return None
    return _CHOICE._replace(operands=(dtypes[0], wanted, wanted), result=wanted)


def _of_conversion(
    values: Sequence[Any], dtypes: Sequence[Any], wanted: np.dtype[Any]
) -> Pointwise | None:
    """Of conversions whose value is defined for all numbers."""
    given = dtypes[0]
    if given is None or not _is_known(wanted):
        return None
    is_lossy = wanted.kind == "b" or (given.kind == "f" and wanted.kind in "iu")
    if is_lossy and given != wanted:
        return None
    return Pointwise("{0}", "{0}", (wanted,), wanted)


def _of_view(
    values: Sequence[Any], dtypes: Sequence[Any], wanted: np.dtype[Any]
) -> Pointwise | None:
    """Of np.broadcast_to, whose elements are those of its operand."""
    return Pointwise("{0}", "{0}", (wanted,), wanted) if _is_known(wanted) else None


_Find = Callable[[Sequence[Any], Sequence[Any], np.dtype[Any]], Pointwise | None]
_OTHERS: Mapping[str, _Find] = {
    "where": _of_choice,
    "astype": _of_conversion,
    "broadcast_to": _of_view,
}


def _is_known(dtype: np.dtype[Any]) -> bool:
    return (
        dtype.isnative
        and dtype.kind in "biuf"
        and dtype.itemsize <= 8
        and (dtype.kind != "f" or dtype.itemsize >= 4)
    )


def _fits(values: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    """Whether Python's numbers among values have a value in a dtype."""
    if dtype.kind not in "iu":
        return True
    limits = np.iinfo(dtype)
    weak = [value for value in values if type(value) in _WEAK]
    return all(type(v) is int and limits.min <= v <= limits.max for v in weak)
