"""Inverses and solutions of triangular matrices, for ``compile(exact=False)``.

NumPy's functions take any matrix, and factor it again: three times the work.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from customop.compiling.native_backend.driver import LOOP_PARAMETERS
from customop.compiling.native_backend.machine_code import MachineFunction, build
from customop.compiling.native_backend.memory import address_of
from customop.compiling.native_backend.planning import AnyArray, TablePlan
from customop.compiling.native_backend.tables import InnerLoop
from customop.core.table import RuleTable
from customop.graph.node import Node

# Items of a vector, and vectors that are computed together.
_LANES: Final = 8
_GROUPS: Final = 4
_ITEMS: Final = f"<{_LANES} x double>"
_BITS: Final = f"<{_LANES} x i1>"
_NUMBERS: Final = ", ".join(f"i64 {i}" for i in range(_LANES))
_DECLARED: Final = (
    f"declare {_ITEMS} @llvm.masked.load.v{_LANES}f64.p0(ptr, i32, {_BITS}, {_ITEMS})\n"
    f"declare void @llvm.masked.store.v{_LANES}f64.p0({_ITEMS}, ptr, i32, {_BITS})\n"
    f"declare {_ITEMS} @llvm.fmuladd.v{_LANES}f64({_ITEMS}, {_ITEMS}, {_ITEMS})\n"
    f"declare double @llvm.vector.reduce.fadd.v{_LANES}f64(double, {_ITEMS})\n"
)
# Rows from which on a matrix is not in the cache, where LAPACK goes over it in blocks.
_MOST_ROWS: Final = 320


def planned_inverse(plan: TablePlan, node: Node, a: AnyArray) -> bool:
    """Emit the inverse of a triangular matrix; return whether that can be done."""
    lower = _lower(node.args[0], a)
    if lower is None or lower[1]:
        return False
    found = plan.result(node, a.shape, a.dtype)
    plan.table.emit(
        InnerLoop(_inverse_loop()),
        [address_of(a), address_of(found)],
        [len(a)],
        [a.strides[0], found.strides[0]],
        work=a.size * len(a) // 6,
    )
    return True


def planned_solution(plan: TablePlan, node: Node, a: AnyArray, b: AnyArray) -> bool:
    """Emit the solution for a triangular matrix and a vector, if that can be done."""
    given = _lower(node.args[0], a)
    if given is None or b.ndim != 1 or b.dtype != a.dtype:
        return False
    lower, is_turned = given
    found = plan.result(node, b.shape, b.dtype)
    plan.copy(b, found)
    plan.table.emit(
        InnerLoop(_solution_loop(is_turned=is_turned)),
        [address_of(lower), address_of(found)],
        [len(lower)],
        [lower.strides[0]],
        work=lower.size,
    )
    return True


def _lower(value: Any, a: AnyArray) -> tuple[AnyArray, bool] | None:
    """Return a lower triangle with contiguous rows, and whether it was transposed.

    None if it is not known to be one, or LAPACK is as good.
    """
    if a.dtype != np.float64 or a.ndim != 2 or not 0 < len(a) <= _MOST_ROWS:
        return None
    is_turned = False
    while _name(value) == "np::transpose":
        value, axes = value.values()[:2]
        is_turned ^= [*axes] == [1, 0]
    if _name(value) != "np::cholesky" or any(value.values()[1:]):
        return None
    lower = a.T if is_turned else a
    return (lower, is_turned) if lower.strides[1] == lower.itemsize else None


def _name(value: Any) -> str:
    """Return the name of the operator that computes a value; empty if none does."""
    op = value.target if isinstance(value, Node) else None
    return op.qualname if isinstance(op, RuleTable) else ""


# ---- machine code ----


def _mask(code: MachineFunction, first: str, end: str) -> str:
    """Return the bits of the items from a first one on that come before the end."""
    left = code.sub(end, first)
    start = code.let(f"insertelement <{_LANES} x i64> poison, i64 {left}, i64 0")
    whole = code.let(
        f"shufflevector <{_LANES} x i64> {start}, <{_LANES} x i64> poison, "
        f"<{_LANES} x i32> zeroinitializer"
    )
    return code.let(f"icmp slt <{_LANES} x i64> <{_NUMBERS}>, {whole}")


def _spread(code: MachineFunction, value: str) -> str:
    first = code.let(f"insertelement {_ITEMS} poison, double {value}, i64 0")
    return code.let(
        f"shufflevector {_ITEMS} {first}, {_ITEMS} poison, "
        f"<{_LANES} x i32> zeroinitializer"
    )


def _read(code: MachineFunction, address: str, mask: str) -> str:
    return code.let(
        f"call {_ITEMS} @llvm.masked.load.v{_LANES}f64.p0(ptr {address}, i32 8, "
        f"{_BITS} {mask}, {_ITEMS} zeroinitializer)"
    )


def _write(code: MachineFunction, value: str, address: str, mask: str) -> None:
    code.do(
        f"call void @llvm.masked.store.v{_LANES}f64.p0({_ITEMS} {value}, "
        f"ptr {address}, i32 8, {_BITS} {mask})"
    )


def _added(code: MachineFunction, a: str, b: str, old: str) -> str:
    """Return a times b plus a sum."""
    given = f"{_ITEMS} {a}, {_ITEMS} {b}, {_ITEMS} {old}"
    return code.call(_ITEMS, f"@llvm.fmuladd.v{_LANES}f64", given)


def _item(code: MachineFunction, line: str, index: str) -> str:
    """Return the address of an item of a line."""
    return code.moved(line, code.mul(index, 8))


@cache
def _inverse_loop() -> int:
    """Return the loop for an inverse, made row by row: each is a sum of those above."""
    code = MachineFunction("triangular_inverse", LOOP_PARAMETERS)
    a, out = code.words("%data", ("ptr", "ptr"))
    n = code.word("%dims", 0)
    a_step, out_step = code.words("%strides", ("i64", "i64"))
    wide = _LANES * _GROUPS
    parts = code.let(f"udiv i64 {code.add(n, wide - 1)}, {wide}")
    sums = [code.variable(_ITEMS, "zeroinitializer") for _ in range(_GROUPS)]
    with code.each(n) as i:
        line = code.moved(a, code.mul(i, a_step))
        target = code.moved(out, code.mul(i, out_step))
        diagonal = code.load("double", _item(code, line, i))
        inverse = code.let(f"fdiv double 1.0, {diagonal}")
        factor = _spread(code, inverse)
        with code.each(parts) as part:
            start = code.mul(part, wide)
            starts = [code.add(start, g * _LANES) for g in range(_GROUPS)]
            masks = [_mask(code, first, n) for first in starts]
            for own in sums:
                code.store(_ITEMS, "zeroinitializer", own)
            with code.each(code.sub(i, start)) as step:
                k = code.add(start, step)
                one = code.load("double", _item(code, line, k))
                by = _spread(code, code.let(f"fneg double {one}"))
                above = code.moved(out, code.mul(k, out_step))
                for own, first, mask in zip(sums, starts, masks, strict=True):
                    given = _read(code, _item(code, above, first), mask)
                    more = _added(code, by, given, code.load(_ITEMS, own))
                    code.store(_ITEMS, more, own)
            for own, first, mask in zip(sums, starts, masks, strict=True):
                whole = code.load(_ITEMS, own)
                value = code.let(f"fmul {_ITEMS} {whole}, {factor}")
                _write(code, value, _item(code, target, first), mask)
        code.store("double", inverse, _item(code, target, i))
    code.give("i32", 0)
    return build([code], further=_DECLARED)["triangular_inverse"]


@cache
def _solution_loop(*, is_turned: bool) -> int:
    """Return the loop that turns a vector into the solution, in its place."""
    code = MachineFunction("triangular_solution", LOOP_PARAMETERS)
    a, x = code.words("%data", ("ptr", "ptr"))
    n, step = code.word("%dims", 0), code.word("%strides", 0)
    total = code.variable(_ITEMS, "zeroinitializer")
    with code.each(n) as number:
        i = code.sub(code.sub(n, 1), number) if is_turned else number
        line = code.moved(a, code.mul(i, step))
        diagonal = code.load("double", _item(code, line, i))
        place = _item(code, x, i)
        parts = code.let(f"udiv i64 {code.add(i, _LANES - 1)}, {_LANES}")
        code.store(_ITEMS, "zeroinitializer", total)
        factor = ""
        if is_turned:
            found = code.let(f"fdiv double {code.load('double', place)}, {diagonal}")
            code.store("double", found, place)
            factor = _spread(code, code.let(f"fneg double {found}"))
        with code.each(parts) as part:
            first = code.mul(part, _LANES)
            mask = _mask(code, first, i)
            given = _read(code, _item(code, line, first), mask)
            own = _read(code, _item(code, x, first), mask)
            if is_turned:
                value = _added(code, factor, given, own)
                _write(code, value, _item(code, x, first), mask)
            else:
                more = _added(code, given, own, code.load(_ITEMS, total))
                code.store(_ITEMS, more, total)
        if not is_turned:
            name = f"@llvm.vector.reduce.fadd.v{_LANES}f64"
            whole = code.load(_ITEMS, total)
            known = code.let(
                f"call reassoc double {name}(double 0.0, {_ITEMS} {whole})"
            )
            left = code.let(f"fsub double {code.load('double', place)}, {known}")
            code.store("double", code.let(f"fdiv double {left}, {diagonal}"), place)
    code.give("i32", 0)
    return build([code], further=_DECLARED)["triangular_solution"]
