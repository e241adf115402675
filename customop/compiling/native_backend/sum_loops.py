"""Sums of contiguous numbers that are given block by block, in the order of NumPy's sum.

NumPy halves an array until 128 items or fewer are left, and sums those in eight lines: the
items are read in their order. A state in memory holds where in this the sum is, so that the
blocks of an array can be given one after the other.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from customop.compiling.native_backend.driver import LOOP_PARAMETERS
from customop.compiling.native_backend.machine_code import (
    MachineFunction,
    build,
    vector,
)
from customop.compiling.native_backend.tables import QUIET, InnerLoop
from customop.compiling.native_backend.ufunc_loops import call_loop

# Items that NumPy sums in lines, and how many lines there are.
_LEAF: Final = 128
LINES: Final = 8
# Words of the state: eight lines, items left in this leaf, entries of the stack; an entry
# is the number of items of a second half that is to come, or 0 and the sum of a first half.
_LEFT: Final = 8
_DEPTH: Final = 9
_STACK: Final = 10
STATE_WORDS: Final = _STACK + 2 * 64


def halves(count: int, parts: int) -> list[tuple[int, int]]:
    """Return where the parts of a sum begin, and their lengths: 1, 2, 4 ... parts."""
    found = [(0, count)]
    while len(found) < parts:
        found = [
            half
            for start, length in found
            for half in (
                (start, _first_half(length)),
                (start + _first_half(length), length - _first_half(length)),
            )
        ]
    return found


def _first_half(length: int) -> int:
    return length // 2 // LINES * LINES


@cache
def sum_loops(char: str) -> tuple[InnerLoop, InnerLoop] | None:
    """Return the loops that begin a sum and that take a block, for "f" or "d".

    The data of the first are the state, its dims the items of all blocks. Those of the
    second are the result, to which the sum is added at the end, the block and the state,
    its dims the items of the block. All blocks but the last have a multiple of 8 items,
    and all together more than 128.

    Returns
    -------
    tuple of InnerLoop or None
        None if NumPy sums in another order.
    """
    kind = {"d": "double", "f": "float"}[char]
    made = build([_descend(), _begin(kind), _take(kind)])
    begin, take = InnerLoop(made["begin"], flags=QUIET), InnerLoop(made["take"])
    return (begin, take) if _is_order_of_numpy(char, begin, take) else None


def _descend() -> MachineFunction:
    """Begin a part of the sum: its second halves wait on the stack."""
    code = MachineFunction("descend", "ptr %state, i64 %count", "void")
    left = code.variable("i64", "%count")
    depth = code.variable("i64", code.word("%state", _DEPTH))
    with code.endless() as ended:
        count = code.load("i64", left)
        code.leave(ended, code.test("sle", count, _LEAF))
        half = code.let(f"and i64 {code.let(f'lshr i64 {count}, 1')}, {-LINES}")
        code.store("i64", half, left)
        place = code.load("i64", depth)
        entry = code.word_at("%state", code.add(code.mul(place, 2), _STACK))
        code.set_word(entry, 0, code.sub(count, half))
        code.store("i64", code.add(place, 1), depth)
    code.set_word("%state", _LEFT, code.load("i64", left))
    code.set_word("%state", _DEPTH, code.load("i64", depth))
    code.do("ret void")
    return code


def _begin(kind: str) -> MachineFunction:
    code = MachineFunction("begin", LOOP_PARAMETERS)
    state = code.load("ptr", "%data")
    code.store(vector(kind, LINES), _nothing(kind), state, ", align 8")
    code.set_word(state, _DEPTH, 0)
    code.do(f"call void @descend(ptr {state}, i64 {code.load('i64', '%dims')})")
    code.give("i32", 0)
    return code


def _nothing(kind: str) -> str:
    """Return numbers to which others are added without a change: -0.0."""
    return f"<{', '.join([f'{kind} -0.0'] * LINES)}>"


def _take(kind: str) -> MachineFunction:
    """Go on with the items of a block."""
    code = MachineFunction("take", LOOP_PARAMETERS)
    result, source, state = code.words("%data", ("ptr", "ptr", "ptr"))
    count = code.load("i64", "%dims")
    size = 8 if kind == "double" else 4
    items, note = vector(kind, LINES), f", align {size}"
    done = code.variable("i64", 0)
    with code.endless() as ended:
        at = code.load("i64", done)
        code.leave(ended, code.test("sge", at, count))
        left, rest = code.word(state, _LEFT), code.sub(count, at)
        most = code.choose(code.test("slt", left, rest), "i64", left, rest)
        groups = code.let(f"lshr i64 {most}, 3")
        lines = code.variable(items, code.load(items, state, ", align 8"))
        start = code.let(f"getelementptr {kind}, ptr {source}, i64 {at}")
        with code.each(groups) as group:
            place = code.moved(start, code.mul(group, LINES * size))
            more = code.load(items, place, note)
            old = code.load(items, lines)
            code.store(items, code.let(f"fadd {items} {old}, {more}"), lines)
        taken = code.mul(groups, LINES)
        left = code.sub(left, taken)
        code.store("i64", code.add(at, taken), done)
        goes_on = code.test("sgt", left, code.sub(rest, taken))
        with code.either(goes_on) as otherwise:  # in the next block
            code.store(items, code.load(items, lines), state, ", align 8")
            code.set_word(state, _LEFT, left)
            otherwise()
            total = code.variable(kind, _sum_of_lines(code, kind, lines))
            place = code.moved(start, code.mul(taken, size))
            with code.each(left) as number:
                one = code.load(kind, code.moved(place, code.mul(number, size)), note)
                old = code.load(kind, total)
                code.store(kind, code.let(f"fadd {kind} {old}, {one}"), total)
            code.store("i64", code.add(code.load("i64", done), left), done)
            code.store(items, _nothing(kind), state, ", align 8")
            _end_leaf(code, kind, state, result, total)
    code.give("i32", 0)
    return code


def _sum_of_lines(code: MachineFunction, kind: str, lines: str) -> str:
    value = code.load(vector(kind, LINES), lines)
    parts = [
        code.let(f"extractelement {vector(kind, LINES)} {value}, i64 {k}")
        for k in range(LINES)
    ]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [code.let(f"fadd {kind} {a}, {b}") for a, b in pairs]
    return parts[0]


def _end_leaf(
    code: MachineFunction, kind: str, state: str, result: str, total: str
) -> None:
    """Add the sums of halves that are complete, and begin the next half."""
    depth = code.variable("i64", code.word(state, _DEPTH))
    with code.endless() as ended:
        place = code.load("i64", depth)
        with code.when(code.test("eq", place, 0)):
            old, new = code.load(kind, result), code.load(kind, total)
            code.store(kind, code.let(f"fadd {kind} {old}, {new}"), result)
            code.set_word(state, _LEFT, 1 << 62)
        code.leave(ended, code.test("eq", place, 0))
        entry = code.word_at(state, code.add(code.mul(place, 2), _STACK - 2))
        waiting, of_first = code.word(entry, 0), code.word_at(entry, 1)
        comes = code.test("ne", waiting, 0)
        with code.when(comes):
            code.set_word(entry, 0, 0)
            code.store(kind, code.load(kind, total), of_first)
            code.set_word(state, _DEPTH, place)
            code.do(f"call void @descend(ptr {state}, i64 {waiting})")
        code.leave(ended, comes)
        first, second = code.load(kind, of_first), code.load(kind, total)
        code.store(kind, code.let(f"fadd {kind} {first}, {second}"), total)
        code.store("i64", code.sub(place, 1), depth)


def _is_order_of_numpy(char: str, begin: InnerLoop, take: InnerLoop) -> bool:
    """Return whether sums of some lengths have NumPy's bits."""
    rng = np.random.default_rng(0)
    for length in (129, 1000, 4099, 20_015):
        items = rng.normal(size=length).astype(char)
        state, total = np.zeros(STATE_WORDS, np.int64), np.zeros(1, char)
        call_loop(begin, [state], length)
        for start in range(0, length, 1000):
            count = min(1000, length - start)
            call_loop(take, [total, items[start:], state], count)
        if total[0] != np.sum(items):
            return False
    return True
