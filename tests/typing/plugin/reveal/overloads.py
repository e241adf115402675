"""Operators of functions with overloads: calls, registrations, and contradictions."""

from __future__ import annotations

from typing import Any, Literal, overload, reveal_type

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Names = Literal["float", "int"]


# ---- the decorated implementation ----


@overload
def cast(x: F64, to: Literal["int"]) -> I64: ...
@overload
def cast(x: F64, to: Literal["float"] = "float") -> F64: ...
@co.custom_op("plugin_overloads::cast", mutates_args=())
def cast(x: F64, to: Names = "float") -> npt.NDArray[Any]:
    return x.astype(to)


@cast.register_kernel("cuda")
# by mypy: attr-defined, untyped-decorator
# by plugin: customop-kernel
# by pyright: reportFunctionMemberAccess
def _(x: F64, too: Names) -> npt.NDArray[Any]:
    return x.astype(too)


@co.register_fake("plugin_overloads::cast")
def _(x: co.FakeArray, to: Names) -> co.FakeArray:
    return co.fake_like(x, dtype=to)


# ---- the function and the operator ----


@overload
def total(x: F64, *, axis: int) -> F64: ...
@overload
def total(x: F64, *, axis: None = None) -> co.Scalar: ...
@overload
def total(x: F64, axis: str) -> F64: ...
# by plugin: customop-schema
def total(x: F64, axis: Any = None) -> Any:
    return x.sum(axis)


summed = co.custom_op(
    "plugin_overloads::total",
    total,
    mutates_args=(),
    schema="(Array x, int? axis=None) -> Array|Scalar",
).register_fake(lambda x, axis: x)


# ---- calls ----


def decorated(x: F64) -> None:
    reveal_type(cast(x, "int"))
    # by mypy: ndarray[tuple[Any, ...], dtype[signedinteger[_64Bit]]]
    # by pyright: ndarray[tuple[Any, ...], dtype[signedinteger[_64Bit]]]
    reveal_type(cast(x))
    # by mypy: ndarray[tuple[Any, ...], dtype[float64]]
    # by pyright: ndarray[tuple[Any, ...], dtype[float64]]
    cast(x, "bool")  # mypy: call-overload  pyright: reportArgumentType, reportCallIssue


def called(x: F64) -> None:
    reveal_type(summed(x, axis=1))
    # by mypy: ndarray[tuple[Any, ...], dtype[float64]]
    # by pyright: ndarray[tuple[Any, ...], dtype[float64]]
    reveal_type(summed(x))
    # by mypy: call-arg, ndarray[tuple[Any, ...], dtype[float64]]
    # by pyright: int | float | bool | complex
    # by plugin: int | float | complex
    reveal_type(summed.call(x))
    # by mypy: call-arg, ndarray[tuple[Any, ...], dtype[float64]]
    # by pyright: int | float | bool | complex
    # by plugin: int | float | complex
    reveal_type(summed.dispatch(x))
    # by mypy: call-arg, ndarray[tuple[Any, ...], dtype[float64]]
    # by pyright: int | float | bool | complex
    # by plugin: int | float | complex
    reveal_type(co.register_fake(summed, lambda x, axis: x, override=True)(x))
    # by mypy: call-arg, ndarray[tuple[Any, ...], dtype[float64]]
    # by pyright: int | float | bool | complex
    # by plugin: int | float | complex
    reveal_type(co.ops.plugin_overloads.total(x))
    # by mypy: Any
    # by pyright: Any
    # by plugin: int | float | complex
    reveal_type(co.ops.plugin_overloads.total.default(x))
    # by mypy: Any
    # by pyright: Any
    # by plugin: int | float | complex
    summed(x, 1, 2)  # mypy: call-arg  pyright: reportCallIssue  plugin: call-overload


# The parameters of the operator are those of the implementation. For mypy without the
# plugin and for pyright, the name of a decorated function has its overloads alone.
reveal_type(cast)
# by mypy: Overload(def (x: ndarray[tuple[Any, ...], dtype[float64]], to: Literal['int']) -> ndarray[tuple[Any, ...], dtype[signedinteger[_64Bit]]], def (x: ndarray[tuple[Any, ...], dtype[float64]], to: Literal['float'] =) -> ndarray[tuple[Any, ...], dtype[float64]])
# by pyright: Overload[(x: ndarray[tuple[Any, ...], dtype[float64]], to: Literal['int']) -> ndarray[tuple[Any, ...], dtype[signedinteger[_64Bit]]], (x: ndarray[tuple[Any, ...], dtype[float64]], to: Literal['float'] = "float") -> ndarray[tuple[Any, ...], dtype[float64]]]
# by plugin: Operator[[x: ndarray[tuple[Any, ...], dtype[float64]], to: Literal['float'] | Literal['int'] =], ndarray[tuple[Any, ...], dtype[Any]]]
