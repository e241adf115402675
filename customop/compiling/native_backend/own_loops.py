"""Inner loops for which NumPy has no ufunc: copies, casts, choices, rows by their number.

They have the form of NumPy's own loops and are made when they are first needed. Casts that C
leaves undefined, numbers of rows that are out of bounds and the like stop the run, so that
NumPy does the whole call and warns or raises as it does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np

from customop.compiling.native_backend.driver import LEFT, LOOP_PARAMETERS
from customop.compiling.native_backend.machine_code import (
    MachineFunction,
    build,
    in_each_lane,
    splat,
    vector,
)
from customop.compiling.native_backend.object_layout import pointer
from customop.compiling.native_backend.tables import (
    CLEARED,
    QUIET,
    WATCHED,
    InnerLoop,
)

# ---- copies and choices ----


@cache
def copy_loop(itemsize: int) -> InnerLoop:
    """Return the loop that copies items: data are source and target."""
    kind = _WORDS.get(itemsize)

    def body(code: MachineFunction, places: list[str], lanes: int) -> None:
        source, target = places
        if kind is None:
            code.copy(target, source, itemsize)
        else:
            note = _aligned(itemsize)
            value = code.load(vector(kind, lanes), source, note)
            code.store(vector(kind, lanes), value, target, note)

    sizes = (itemsize, itemsize)
    lanes = 1 if kind is None else _LANES
    return InnerLoop(elementwise_loop("copy", sizes, body, lanes=lanes), flags=QUIET)


@cache
def where_loop(itemsize: int) -> InnerLoop | None:
    """Return the loop of ``where``: data are the condition, two values and the result.

    Returns
    -------
    InnerLoop or None
        None if items have an unusual size.
    """
    kind = _WORDS.get(itemsize)
    if kind is None:
        return None

    def body(code: MachineFunction, places: list[str], lanes: int) -> None:
        condition, a, b, target = places
        note, items = _aligned(itemsize), vector(kind, lanes)
        bits = _is_not_zero(
            code, code.load(vector("i8", lanes), condition, ", align 1"), lanes
        )
        first, second = code.load(items, a, note), code.load(items, b, note)
        value = code.let(
            f"select {vector('i1', lanes)} {bits}, {items} {first}, {items} {second}"
        )
        code.store(items, value, target, note)

    sizes = (1, itemsize, itemsize, itemsize)
    return InnerLoop(elementwise_loop("where", sizes, body), flags=QUIET)


@cache
def move_loop() -> InnerLoop:
    """Return the loop that copies memory: data are source and target, dims the bytes."""
    code = MachineFunction("move", LOOP_PARAMETERS)
    source, target = code.words("%data", ("ptr", "ptr"))
    code.copy(target, source, code.load("i64", "%dims"))
    code.give("i32", 0)
    return InnerLoop(build([code])["move"], flags=QUIET)


_WORDS: Final = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "i128"}


def _aligned(itemsize: int) -> str:
    return f", align {min(itemsize, 8)}"


# Items that one step of a loop handles where all operands are contiguous.
_LANES: Final = 8
_DECLARED: Final = f"declare i1 @llvm.vector.reduce.or.v{_LANES}i1(<{_LANES} x i1>)"

LoopBody: TypeAlias = Callable[[MachineFunction, list[str], int], "str | None"]


def _is_not_zero(code: MachineFunction, value: str, lanes: int) -> str:
    """Return the bits of bytes that are not 0."""
    return code.let(f"icmp ne {vector('i8', lanes)} {value}, zeroinitializer")


def elementwise_loop(
    name: str,
    sizes: tuple[int, ...],
    body: LoopBody,
    declared: str = _DECLARED,
    lanes: int = _LANES,
) -> int:
    """Return the address of a loop over items, of these sizes in bytes.

    Contiguous items are handled some at once, up to those that are left at the end.

    Parameters
    ----------
    name : str
    sizes : tuple of int
        For each operand.
    body : callable
        Writes the code for some neighboring items, given where each operand has them, and
        how many there are. It may return a bit for each that says that it is left to
        NumPy.
    declared : str, optional
        What the body needs to be declared in the text of LLVM.
    lanes : int, optional
        How many items it handles at once.
    """
    code = MachineFunction(name, LOOP_PARAMETERS)
    count = code.load("i64", "%dims")
    starts = [code.word("%data", i, "ptr") for i in range(len(sizes))]
    steps = [code.word("%strides", i) for i in range(len(sizes))]
    done = code.variable("i64", 0)
    left = code.variable("i1", "false")

    def handle(number: str, width: int) -> None:
        places = [
            code.moved(start, code.mul(step, number))
            for start, step in zip(starts, steps, strict=True)
        ]  # of `starts` at that moment
        bits = body(code, places, width)
        if bits is not None:
            if width > 1:
                bits = code.let(
                    f"call i1 @llvm.vector.reduce.or.v{width}i1(<{width} x i1> {bits})"
                )
            code.store("i1", code.let(f"or i1 {code.load('i1', left)}, {bits}"), left)

    if lanes > 1:
        groups = code.let(f"udiv i64 {count}, {lanes}")
        is_plain = code.test("sgt", groups, 0)
        for number, (step, size) in enumerate(zip(steps, sizes, strict=True)):
            fits = code.test("eq", step, size)
            if number < len(sizes) - 1:
                fits = code.let(f"or i1 {fits}, {code.test('eq', step, 0)}")
            is_plain = code.let(f"and i1 {is_plain}, {fits}")
        with code.when(is_plain):
            single, starts = starts, _spread_places(code, starts, steps, sizes, lanes)
            with code.each(groups) as group:
                handle(code.mul(group, lanes), lanes)
            starts = single
            code.store("i64", code.mul(groups, lanes), done)
    start = code.load("i64", done)
    with code.each(code.sub(count, start)) as i:
        handle(code.add(start, i), 1)
    code.give("i32", code.choose(code.load("i1", left), "i32", LEFT, 0))
    return build([code], further=declared)[name]


def _spread_places(
    code: MachineFunction,
    starts: list[str],
    steps: list[str],
    sizes: tuple[int, ...],
    lanes: int,
) -> list[str]:
    """Return where to read some items at once: one that is the same for all is copied."""
    found = []
    for start, step, size in zip(starts[:-1], steps, sizes, strict=False):
        place = code.variable("ptr", start)
        room = code.room("i128", -(-size * lanes // 16))
        with code.when(code.test("eq", step, 0)):
            for lane in range(lanes):
                code.copy(code.moved(room, lane * size), start, size)
            code.store("ptr", room, place)
        found.append(code.load("ptr", place))
    return [*found, starts[-1]]


# ---- powers of scalars ----


@cache
def scalar_power_loop(char: str) -> InnerLoop | None:
    """Return the loop of ``x ** y`` for scalars of NumPy, which is not that of arrays.

    Data are both operands and the result.

    Returns
    -------
    InnerLoop or None
        None if the function of the C library has other results than NumPy's operator.
    """
    kind, name, number = _POWERS[char]
    try:
        function: Any = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # there is none of this name
        return None
    function.restype, function.argtypes = number, [number] * 2
    dtype: Any = np.dtype(char).type
    with np.errstate(all="ignore"):
        for x in _BASES:
            for y in _EXPONENTS:
                expected, found = dtype(x) ** dtype(y), dtype(function(x, y))
                if not np.array_equal(expected, found, equal_nan=True):
                    return None
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    size = np.dtype(char).itemsize

    def body(code: MachineFunction, places: list[str], lanes: int) -> None:
        x, y = (code.load(kind, place) for place in places[:2])
        given = f"{kind} {x}, {kind} {y}"
        code.store(kind, code.call(kind, pointer(address), given), places[2])

    return InnerLoop(elementwise_loop("powers", (size,) * 3, body, lanes=1))


_POWERS: Final = {
    "d": ("double", "pow", ctypes.c_double),
    "f": ("float", "powf", ctypes.c_float),
}
_BASES: Final = (0.0, -0.0, 0.1, 0.7, 1.0, 1.3, 2.9, 17.3, 1e30, -1.7, float("inf"))
_EXPONENTS: Final = (-3.0, -1.7, -1.0, 0.0, 0.3, 0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 7.1)

# ---- casts ----


@cache
def cast_loop(source: np.dtype[Any], target: np.dtype[Any]) -> InnerLoop | None:
    """Return the loop that casts items: data are source and target.

    Floats that an integer cannot hold are left to NumPy.

    Returns
    -------
    InnerLoop or None
        None for dtypes that are not booleans, integers, float32, float64, complex64 or
        complex128.
    """
    if source == target:
        return copy_loop(source.itemsize)
    if not (_is_plain(source) and _is_plain(target)):
        return None
    if source.kind == "c" and target.kind != "c":
        return None  # NumPy warns that it discards imaginary parts

    def body(code: MachineFunction, places: list[str], lanes: int) -> str | None:
        start, goal = places
        if source.kind != "c":
            value = code.load(vector(_kind_of(source), lanes), start, _note(source))
            made, left = _cast(code, value, source, _real(target), lanes)
            kind = _kind_of(_real(target))
            code.store(vector(kind, lanes), made, goal, _note(_real(target)))
            if target.kind == "c":
                code.store(kind, "0.0", code.moved(goal, target.itemsize // 2))
            return left
        for part in range(2):
            place = code.moved(start, part * source.itemsize // 2)
            value = code.load(_kind_of(_real(source)), place)
            made, _ = _cast(code, value, _real(source), _real(target), lanes)
            place = code.moved(goal, part * target.itemsize // 2)
            code.store(_kind_of(_real(target)), made, place)
        return None

    sizes = (source.itemsize, target.itemsize)
    flags = QUIET
    if source.kind in "fc" and target.kind == source.kind:
        flags = WATCHED
    elif source.kind == "f" and target.kind in "iu":
        flags = CLEARED  # code for unsigned numbers may raise some that mean nothing
    lanes = 1 if target.kind == "c" else _LANES
    return InnerLoop(elementwise_loop("cast", sizes, body, lanes=lanes), flags=flags)


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype.isnative and dtype.char in "?bBhHiIlLqQfdFD"


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the parts of complex numbers; any other one as it is."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def _kind_of(dtype: np.dtype[Any]) -> str:
    """Return the type of LLVM for items in memory."""
    if dtype.kind == "f":
        return "float" if dtype.itemsize == 4 else "double"
    return f"i{8 * dtype.itemsize}"


def _note(dtype: np.dtype[Any]) -> str:
    return f", align {dtype.itemsize}"


def _cast(
    code: MachineFunction,
    value: str,
    source: np.dtype[Any],
    target: np.dtype[Any],
    lanes: int,
) -> tuple[str, str | None]:
    """Return the code of a cast, and bits for values that are left to NumPy."""
    given, wanted = vector(_kind_of(source), lanes), vector(_kind_of(target), lanes)
    if target.kind == "b":
        how = "fcmp une" if source.kind == "f" else "icmp ne"
        bits = code.let(f"{how} {given} {value}, zeroinitializer")
        return code.let(f"zext {vector('i1', lanes)} {bits} to {wanted}"), None
    if source.kind == "b":
        bits = _is_not_zero(code, value, lanes)
        value = code.let(f"zext {vector('i1', lanes)} {bits} to {given}")
    if source.kind == "f" and target.kind in "iu":
        return _cast_to_integer(code, value, source, target, lanes)
    conversion = _conversion(source, target)
    if conversion is None:
        return value, None
    return code.let(f"{conversion} {given} {value} to {wanted}"), None


def _conversion(source: np.dtype[Any], target: np.dtype[Any]) -> str | None:
    """Return the instruction that casts a number; None if its bits stay."""
    if target.kind == "f" and source.kind != "f":
        return "sitofp" if source.kind == "i" else "uitofp"
    if target.itemsize == source.itemsize:
        return None
    if target.kind == "f":
        return "fpext" if target.itemsize > source.itemsize else "fptrunc"
    if target.itemsize < source.itemsize:
        return "trunc"
    return "sext" if source.kind == "i" else "zext"


def _cast_to_integer(
    code: MachineFunction,
    value: str,
    source: np.dtype[Any],
    target: np.dtype[Any],
    lanes: int,
) -> tuple[str, str]:
    """Cast a float that the integer can hold; the bit says that it cannot."""
    one, given = _kind_of(source), vector(_kind_of(source), lanes)
    bits = vector("i1", lanes)
    limits = np.iinfo(target)
    least = float(limits.min)

    def compared(how: str, limit: float) -> str:
        bound = splat(one, _constant(limit), lanes)
        return code.let(f"fcmp {how} {given} {value}, {bound}")

    # Both bounds are powers of 2, or 0, so that they are exact in either dtype. A value
    # between them and the next integer is rounded towards 0.
    above = compared("olt", float(limits.max + 1))
    if np.dtype(source).type(least - 1.0) == least:
        below = compared("oge", least)
    else:
        below = compared("ogt", least - 1.0)
    fits = code.let(f"and {bits} {above}, {below}")
    zero = "zeroinitializer"
    safe = code.let(f"select {bits} {fits}, {given} {value}, {given} {zero}")
    how = "fptosi" if target.kind == "i" else "fptoui"
    made = code.let(f"{how} {given} {safe} to {vector(_kind_of(target), lanes)}")
    all_set = splat("i1", "true", lanes)
    return made, code.let(f"xor {bits} {fits}, {all_set}")


def _constant(value: float) -> str:
    """Return a number as LLVM writes it: the bits of the float64."""
    return f"0x{np.float64(value).view(np.uint64):016X}"


# ---- places ----


@cache
def place_loop(char: str, *, is_least: bool) -> InnerLoop | None:
    """Return the loop of `argmax` or `argmin`: data are the items and an int64.

    Of equal items it takes the first, and the first nan before all others.

    Parameters
    ----------
    char : str
        Of the dtype.
    is_least : bool
    """
    dtype = np.dtype(char)
    if dtype.kind not in "biuf" or char not in _COMPARED:
        return None
    kind = {"f": "float", "d": "double"}.get(char, f"i{8 * dtype.itemsize}")
    is_float = dtype.kind == "f"
    how = ("l" if is_least else "g") + "t"
    how = f"u{how}" if is_float or dtype.kind in "bu" else f"s{how}"
    name = f"{'argmin' if is_least else 'argmax'}_{dtype.name}"
    code = MachineFunction(name, LOOP_PARAMETERS)
    source, target = code.words("%data", ("ptr", "ptr"))
    step = code.word("%strides", 0)
    note = f", align {dtype.itemsize}"
    best = code.variable(kind, code.load(kind, source, note))
    place = code.variable("i64", 0)
    with code.each(code.word("%dims", 0)) as i:
        value = code.load(kind, code.moved(source, code.mul(i, step)), note)
        old = code.load(kind, best)
        word = "fcmp" if is_float else "icmp"
        better = code.let(f"{word} {how} {kind} {value}, {old}")
        if is_float:  # a nan is better than all, and nothing is better than it
            known = code.let(f"fcmp ord {kind} {old}, {old}")
            better = code.let(f"and i1 {better}, {known}")
        code.store(kind, code.choose(better, kind, value, old), best)
        at = code.choose(better, "i64", i, code.load("i64", place))
        code.store("i64", at, place)
    code.store("i64", code.load("i64", place), target)
    code.give("i32", 0)
    return InnerLoop(build([code])[name], flags=CLEARED)


# Dtypes whose items are compared.
_COMPARED: Final = "?bBhHiIlLfd"

# ---- rows by their number ----


def take_loop(axes: int, nbytes: int) -> InnerLoop:
    """Return the loop that copies rows of a table, chosen by numbers.

    Data are the arrays of numbers (int64), one for each axis, then the table and the
    result. Dims are the rows to copy, for each axis its length and its step in bytes, and
    the bytes of a row. Strides are those of the numbers, one that is not read, and that of
    the result.

    Parameters
    ----------
    axes : int
    nbytes : int
        Of a row.
    """
    return InnerLoop(_copying("take", axes, _whole_word(nbytes)), flags=QUIET)


def put_loop(axes: int, nbytes: int) -> InnerLoop:
    """Return the loop that copies rows into a table; operands as in `take_loop`."""
    return InnerLoop(_copying("put", axes, _whole_word(nbytes)), flags=QUIET)


def _whole_word(nbytes: int) -> int:
    """Return the size of a row that is moved as one word; 0 for others."""
    return nbytes if nbytes in _WORDS else 0


@cache
def _copying(name: str, axes: int, word: int) -> int:
    def body(code: MachineFunction, row: str, given: str, nbytes: str) -> None:
        pair = (row, given) if name == "put" else (given, row)
        if word:
            note = ", align 1"
            value = code.load(_WORDS[word], pair[1], note)
            code.store(_WORDS[word], value, pair[0], note)
        else:
            code.copy(*pair, nbytes)

    return _rows(name, axes, body)


@cache
def add_at_loop(dtype: np.dtype[Any], axes: int) -> InnerLoop | None:
    """Return the loop that adds rows to those of a table, one row after the other.

    Operands are as in `take_loop`: the rows that are added are the last one.

    Returns
    -------
    InnerLoop or None
        None for other dtypes than integers, float32, float64 and complex ones.
    """
    if not _is_plain(dtype) or dtype.kind == "b":
        return None
    real = _real(dtype)
    kind = _kind_of(real)
    how = "fadd" if real.kind == "f" else "add"

    def body(code: MachineFunction, row: str, given: str, nbytes: str) -> None:
        count = code.let(f"udiv i64 {nbytes}, {real.itemsize}")
        with code.each(count) as i:
            a = code.let(f"getelementptr {kind}, ptr {row}, i64 {i}")
            b = code.let(f"getelementptr {kind}, ptr {given}, i64 {i}")
            old, more = code.load(kind, a), code.load(kind, b)
            code.store(kind, code.let(f"{how} {kind} {old}, {more}"), a)

    flags = WATCHED if real.kind == "f" else QUIET
    return InnerLoop(_rows("add_at", axes, body), flags=flags)


def _rows(
    name: str, axes: int, body: Callable[[MachineFunction, str, str, str], None]
) -> int:
    """Return the address of a loop over rows of a table, chosen by numbers.

    The places of some rows are computed at once where the numbers are contiguous.
    """
    code = MachineFunction(name, LOOP_PARAMETERS)
    numbers = [code.word("%data", j, "ptr") for j in range(axes)]
    table, given = (code.word("%data", axes + j, "ptr") for j in range(2))
    strides = [code.word("%strides", j) for j in range(axes)]
    given_step = code.word("%strides", axes + 1)
    count, *pairs, nbytes = (code.word("%dims", j) for j in range(2 + 2 * axes))

    def places(first: str, lanes: int) -> tuple[str, str]:
        """Return how far rows are from the first one, and bits for those that are none."""
        items, bits = vector("i64", lanes), vector("i1", lanes)
        zero = splat("i64", "0", lanes)
        offset, bad = zero, splat("i1", "false", lanes)
        for j, (place, stride) in enumerate(zip(numbers, strides, strict=True)):
            length, step = (
                in_each_lane(code, "i64", word, lanes)
                for word in pairs[2 * j : 2 * j + 2]
            )
            at = code.moved(place, code.mul(stride, first))
            number = code.load(items, at, ", align 8")
            negative = code.test("slt", number, zero, items)
            more = code.let(
                f"select {bits} {negative}, {items} {length}, {items} {zero}"
            )
            number = code.let(f"add {items} {number}, {more}")
            outside = code.test("uge", number, length, items)
            bad = code.let(f"or {bits} {bad}, {outside}")
            far = code.let(f"mul {items} {number}, {step}")
            offset = code.let(f"add {items} {offset}, {far}")
        return offset, bad

    groups = code.let(f"udiv i64 {count}, {_LANES}")
    for stride in strides:
        fits = code.test("eq", stride, 8)
        groups = code.choose(fits, "i64", groups, 0)
    with code.each(groups) as group:
        first = code.mul(group, _LANES)
        offsets, bad = places(first, _LANES)
        some = f"<{_LANES} x i1> {bad}"
        with code.when(code.let(f"call i1 @llvm.vector.reduce.or.v{_LANES}i1({some})")):
            code.give("i32", LEFT)
        for lane in range(_LANES):
            offset = code.let(f"extractelement <{_LANES} x i64> {offsets}, i64 {lane}")
            own = code.moved(given, code.mul(given_step, code.add(first, lane)))
            body(code, code.moved(table, offset), own, nbytes)
    done = code.mul(groups, _LANES)
    with code.each(code.sub(count, done)) as i:
        number = code.add(done, i)
        offset, bad = places(number, 1)
        with code.when(bad):
            code.give("i32", LEFT)
        own = code.moved(given, code.mul(given_step, number))
        body(code, code.moved(table, offset), own, nbytes)
    code.give("i32", 0)
    return build([code], further=_DECLARED)[name]
