"""The program of a group as a function of one element: in Python, and in C."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from customop.compiling.groups import ElementProgram

__all__ = ["C_TYPES", "in_c", "in_python"]

C_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}


def in_python(program: ElementProgram) -> tuple[str, dict[str, Any]]:
    """The text of a function ``fused`` of one element of each input, and its names."""
    names: dict[str, Any] = {"np": np}

    def cast(text: str, dtype: np.dtype[Any]) -> str:
        names[dtype.name] = dtype.type
        return f"{dtype.name}({text})"

    def literal(value: Any) -> str:
        name = f"c{len(names)}"
        names[name] = value
        return name

    lines = [f"def fused({', '.join([name for name, _ in program.inputs])}):"]
    pairs = _expressions(program, "python", cast, literal)
    lines += [f"    {name} = {expression}" for name, expression in pairs]
    lines += [f"    return {program.lines[-1].name}", ""]
    return "\n".join(lines), names


def in_c(program: ElementProgram, result: str) -> str:
    """Statements that compute one element, and assign it to `result`.

    They hold for C++ and CUDA, where ``sqrt`` and the like are those of the operand.
    """

    def cast(text: str, dtype: np.dtype[Any]) -> str:
        return f"({C_TYPES[dtype.name]})({text})"

    lines = [
        f"const {C_TYPES[line.pointwise.result.name]} {name} = {expression};"
        for line, (name, expression) in zip(
            program.lines, _expressions(program, "c", cast, _c_literal), strict=True
        )
    ]
    return "\n".join([*lines, f"{result} = {program.lines[-1].name};"])


def _expressions(
    program: ElementProgram,
    language: str,
    cast: Callable[[str, np.dtype[Any]], str],
    literal: Callable[[Any], str],
) -> list[tuple[str, str]]:
    """Name and expression of each line."""
    found = []
    for name, pointwise, operands in program.lines:
        texts = []
        for (value, dtype), wanted in zip(operands, pointwise.operands, strict=True):
            if isinstance(value, bytes):
                texts.append(literal(np.frombuffer(value, wanted)[0]))
            else:
                texts.append(value if dtype == wanted else cast(value, wanted))
        form: str = getattr(pointwise, language)
        one = literal(pointwise.result.type(1)) if "{one}" in form else ""
        found.append((name, cast(form.format(*texts, one=one), pointwise.result)))
    return found


def _c_literal(value: Any) -> str:
    """A number in C; its type is told, since numbers without one are of another."""
    kind, name = value.dtype.kind, C_TYPES[value.dtype.name]
    if kind == "b":
        return "true" if value else "false"
    if kind == "f":
        text = repr(float(value)) if math.isfinite(value) else _infinite(float(value))
    elif kind == "u":
        text = f"{value}ULL"
    else:  # the least one has no literal of its own
        text = f"(-{-(int(value) + 1)}LL - 1)" if value < 0 else f"{value}LL"
    return f"(({name}){text})"


def _infinite(value: float) -> str:
    if math.isnan(value):
        return "(0.0 / 0.0)"
    return "(1.0 / 0.0)" if value > 0 else "(-1.0 / 0.0)"
