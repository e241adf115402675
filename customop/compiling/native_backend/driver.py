"""The driver: machine code that runs tables of rows, with no Python between the rows.

After each row it gathers the floating-point flags that the row raised, and now and then it
looks for Ctrl-C and lets other threads go on. It stops at the first row that fails; pointers that it moved are then back
where they were, so that the next run begins as the first one did.

The state of a run lies in the header of the program, never in globals: programs may run in
several threads at once. One program runs once at a time; see `door`.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from customop.compiling.native_backend import tables
from customop.compiling.native_backend.machine_code import MachineFunction, build
from customop.compiling.native_backend.object_layout import (
    is_arm,
    pointer,
    python_function,
    thread_functions,
)

# What every inner loop takes.
LOOP_PARAMETERS: Final = (
    "ptr %context, ptr %data, ptr %dims, ptr %strides, ptr %auxdata"
)

# Results of rows besides 0 and -1: what a loop was given is left to NumPy; the flags of an
# earlier row count, so that a call of Python has not been made; a call of Python has
# asked to leave the whole call to NumPy; Ctrl-C.
LEFT: Final = 1
FLAGS_UP: Final = 2
REFUSED: Final = 3
INTERRUPTED: Final = -2

# Work of a row and of a step beside their items: as many items as take their time.
_WORK_OF_ROW: Final = 16
_WORK_OF_STEP: Final = 64


class DriverFunctions:
    """Addresses of the functions of the driver, built at their first use."""

    @property
    def run(self) -> int:
        """Runs the rows of a table."""
        return _built_for_rows()["run"]

    @property
    def island(self) -> int:
        """Calls a function of Python."""
        return _built_for_tables()["island"]

    @property
    def repeat(self) -> int:
        """Runs a table again and again."""
        return _built_for_tables()["repeat"]

    @property
    def choose(self) -> int:
        """Runs one of some tables."""
        return _built_for_tables()["choose"]

    @property
    def share(self) -> int:
        """Runs some tables at the same time."""
        return _built_for_tables()["share"]


@cache
def driver() -> DriverFunctions:
    """Return the driver."""
    return DriverFunctions()


@cache
def _built_for_rows() -> dict[str, int]:
    functions = [_run(), _nest(), _go_back(), _look()]
    return build(functions, further=flag_declarations())


@cache
def _built_for_tables() -> dict[str, int]:
    functions = [_moves(), _island(), _repeat(), _choose(), _share(), _help()]
    return build(functions, further=flag_declarations(), quick=True)


def _function(name: str) -> str:
    """Return the address of a function behind rows, as an operand."""
    return pointer(_built_for_rows()[name])


# ---- rows ----


def _run() -> MachineFunction:
    """Run the rows of a table, one after the other."""
    code = MachineFunction("run", "ptr %header, i64 %count, ptr %rows")
    start = code.word("%header", tables.WORK)
    limit = code.word("%header", tables.WORK_LIMIT)
    work = code.variable("i64", start)
    room = code.room("i32", 1)
    result = code.variable("i32", 0)
    with code.each("%count") as number:
        row = code.moved("%rows", code.mul(number, 8 * tables.WORDS))
        kinds = ("ptr", "ptr", "ptr", "ptr", "ptr", "ptr", "i64")
        function, context, data, dims, strides, auxdata, axes = code.words(row, kinds)
        is_plain = code.test("eq", axes, 0)
        with code.either(is_plain) as otherwise:
            given = (
                f"ptr {context}, ptr {data}, ptr {dims}, ptr {strides}, ptr {auxdata}"
            )
            code.store("i32", code.call("i32", function, given), result)
            otherwise()
            code.store("i32", code.call("i32", "@nest", f"ptr {row}"), result)
        _return_failure(code, code.load("i32", result))
        note = code.word(row, 9)
        watched = code.test("eq", code.let(f"and i64 {note}, 3"), tables.WATCHED)
        with code.when(watched):
            gather_flags(code, room)
        cleared = code.test("eq", code.let(f"and i64 {note}, 3"), tables.CLEARED)
        with code.when(cleared):
            clear_flags(code, room)
        own = code.add(code.let(f"lshr i64 {note}, 2"), _WORK_OF_ROW)
        done = code.add(code.load("i64", work), own)
        code.store("i64", done, work)
        with code.when(code.test("sgt", done, limit)):
            _return_failure(code, code.call("i32", "@look", "ptr %header"))
            code.store("i64", 0, work)
    code.set_word("%header", tables.WORK, code.load("i64", work))
    code.give("i32", 0)
    return code


def _nest() -> MachineFunction:
    """Call the loop of a row for each place on the axes around it."""
    code = MachineFunction("nest", "ptr %row")
    kinds = ("ptr", "ptr", "ptr", "ptr", "ptr", "ptr", "i64", "ptr", "i64")
    function, context, data, dims, strides, auxdata, count, axes, pointers = code.words(
        "%row", kinds
    )
    words = code.add(pointers, 2)
    number = code.variable("i64", 0)
    axis = code.variable("ptr", axes)
    with code.endless():
        given = f"ptr {context}, ptr {data}, ptr {dims}, ptr {strides}, ptr {auxdata}"
        result = code.call("i32", function, given)
        with code.when(code.test("ne", result, 0, "i32")):
            code.do("call void @go_back(ptr %row)")
            code.give("i32", result)
        code.store("i64", 0, number)
        code.store("ptr", axes, axis)
        with code.endless() as moved:
            here = code.load("ptr", axis)
            place = code.word(here, 1)
            following = code.add(place, 1)
            goes_on = code.test("slt", following, code.word(here, 0))
            back = code.sub(0, place)
            code.set_word(here, 1, code.choose(goes_on, "i64", following, 0))
            _shift(code, data, here, pointers, code.choose(goes_on, "i64", 1, back))
            code.leave(moved, goes_on)
            ended = code.add(code.load("i64", number), 1)
            with code.when(code.test("eq", ended, count)):
                code.give("i32", 0)
            code.store("i64", ended, number)
            code.store("ptr", code.word_at(here, words), axis)
    code.do("unreachable")
    return code


def _go_back() -> MachineFunction:
    """Move the pointers of a row back to where they were before it ran."""
    code = MachineFunction("go_back", "ptr %row", "void")
    data = code.word("%row", 2, "ptr")
    count = code.word("%row", 6)
    axes = code.word("%row", 7, "ptr")
    pointers = code.word("%row", 8)
    words = code.add(pointers, 2)
    with code.each(count) as number:
        here = code.word_at(axes, code.mul(number, words))
        _shift(code, data, here, pointers, code.sub(0, code.word(here, 1)))
        code.set_word(here, 1, 0)
    code.do("ret void")
    return code


def _shift(
    code: MachineFunction, data: str, axis: str, pointers: str, steps: str
) -> None:
    """Move all pointers some steps along an axis."""
    with code.each(pointers) as j:
        by = code.mul(code.word(axis, code.add(j, 2)), steps)
        code.set_word(data, j, code.add(code.word(data, j), by))


def _return_failure(code: MachineFunction, result: str) -> None:
    with code.when(code.test("ne", result, 0, "i32")):
        code.give("i32", result)


# ---- Ctrl-C ----


def _look() -> MachineFunction:
    """Let other threads of Python go on, and Python look for signals."""
    code = MachineFunction("look", "ptr %header")
    code.set_word("%header", tables.WORK, 0)
    save, restore = map(python_function, ("PyEval_SaveThread", "PyEval_RestoreThread"))
    thread = code.variable("ptr", code.word("%header", tables.THREAD, "ptr"))
    released = code.let(f"icmp ne ptr {code.load('ptr', thread)}, null")
    with code.either(released) as otherwise:
        otherwise()
        code.store("ptr", code.call("ptr", save, ""), thread)
    code.do(f"call void {restore}(ptr {code.load('ptr', thread)})")
    result = code.call("i32", python_function("PyErr_CheckSignals"), "")
    with code.when(released):
        code.set_word("%header", tables.THREAD, code.call("ptr", save, ""), "ptr")
    with code.when(code.test("ne", result, 0, "i32")):
        code.give("i32", INTERRUPTED)
    code.give("i32", 0)
    return code


# ---- floating-point flags ----


def flag_declarations() -> str:
    """Return the text of LLVM that functions with flags need."""
    if is_arm():
        return ""
    return "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)\n"


# All flags: of MXCSR, and of FPSR.
_ALL_X86: Final = 0x3F
_ALL_ARM: Final = 0x9F
# Those that NumPy looks at, so that it is worth to clear them.
_SEEN_X86: Final = 0x1D
_SEEN_ARM: Final = 0x0F


def gather_flags(code: MachineFunction, room: str) -> None:
    """Add the flags that are up to those in the header; `room` is for an i32."""
    old = code.word("%header", tables.RAISED)
    flags = code.let(f"zext i32 {read_flags(code, room)} to i64")
    code.set_word("%header", tables.RAISED, code.let(f"or i64 {old}, {flags}"))


def clear_flags(code: MachineFunction, room: str) -> None:
    """Lower the flags, if one is up that NumPy looks at."""
    flags = read_flags(code, room)
    seen = code.let(f"and i32 {flags}, {_SEEN_ARM if is_arm() else _SEEN_X86}")
    with code.when(code.test("ne", seen, 0, "i32")):
        down = code.let(f"and i32 {flags}, {~(_ALL_ARM if is_arm() else _ALL_X86)}")
        if is_arm():  # not tried on a machine of ARM yet
            wide = code.let(f"zext i32 {down} to i64")
            code.do(f'call void asm sideeffect "msr fpsr, $0", "r"(i64 {wide})')
        else:
            code.do('call void asm sideeffect "fnclex", ""()')
            code.store("i32", down, room)
            code.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {room})")


def raise_flags(code: MachineFunction, room: str, flags: str) -> None:
    """Have flags up that were up before, as `read_flags` gave them."""
    if is_arm():  # not tried on a machine of ARM yet
        now = code.let('call i64 asm sideeffect "mrs $0, fpsr", "=r"()')
        both = code.let(f"or i64 {now}, {code.let(f'zext i32 {flags} to i64')}")
        code.do(f'call void asm sideeffect "msr fpsr, $0", "r"(i64 {both})')
        return
    code.do(f"call void @llvm.x86.sse.stmxcsr(ptr {room})")
    old = code.let(f"and i32 {flags}, {_ALL_X86}")
    code.store("i32", code.let(f"or i32 {code.load('i32', room)}, {old}"), room)
    code.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {room})")


def read_flags(code: MachineFunction, room: str) -> str:
    """Return an i32 with the flags that are up; `room` is for another one."""
    if is_arm():  # not tried on a machine of ARM yet
        wide = code.let('call i64 asm sideeffect "mrs $0, fpsr", "=r"()')
        return code.let(f"trunc i64 {wide} to i32")
    # The vector unit and the old x87 unit have flags of their own, with the same bits: the C
    # library raises some, as the overflow of exp, in the latter alone.
    old = code.let('call i16 asm sideeffect "fnstsw $0", "={ax}"()')
    code.do(f"call void @llvm.x86.sse.stmxcsr(ptr {room})")
    raised = code.let(f"and i16 {old}, {_ALL_X86}")
    wide = code.let(f"zext i16 {raised} to i32")
    return code.let(f"or i32 {code.load('i32', room)}, {wide}")


# ---- calls of Python ----


def _island() -> MachineFunction:
    """Call a function of Python, unless flags count already that were raised before."""
    code = MachineFunction("island", LOOP_PARAMETERS)
    raised = code.word("%context", tables.RAISED)
    counted = code.word("%context", tables.COUNTED)
    up = code.let(f"and i64 {raised}, {counted}")
    with code.when(code.test("ne", up, 0)):
        code.give("i32", FLAGS_UP)
    result = code.call("ptr", python_function("PyObject_CallNoArgs"), "ptr %auxdata")
    with code.when(code.let(f"icmp eq ptr {result}, null")):
        code.give("i32", -1)
    code.do(f"call void {python_function('Py_DecRef')}(ptr {result})")
    refused = code.let(f"icmp eq ptr {result}, {pointer(id(True))}")
    code.give("i32", code.choose(refused, "i32", REFUSED, 0))
    return code


# ---- loops and branches over tables ----


def _repeat() -> MachineFunction:
    """Run a table again and again; see `Table.repeat`."""
    code = MachineFunction("repeat", LOOP_PARAMETERS)
    count = code.variable("i64", code.word("%data", 0))
    count_at = code.word("%data", 1, "ptr")
    with code.when(code.let(f"icmp ne ptr {count_at}, null")):
        code.store("i64", code.load("i64", count_at), count)
    steps = code.load("i64", count)
    last = code.sub(steps, 1)
    reverses = code.test("ne", code.word("%data", 2), 0)
    limit = code.word("%context", tables.WORK_LIMIT)
    # The words of the record do not change while it runs.
    test = _table_of(code, 3)
    byte = code.word("%data", 5, "ptr")
    moves_in, points = _table_of(code, 6), _table_of(code, 8)
    index, first, growth = (code.word("%data", 10, "ptr"), *_pair(code, 11))
    body, moves_out, carry = (_table_of(code, place) for place in (13, 15, 17))
    has_test = code.let(f"icmp ne ptr {byte}, null")
    has_index = code.let(f"icmp ne ptr {index}, null")
    with code.each(steps) as i:
        at = code.choose(reverses, "i64", code.sub(last, i), i)
        with code.when(has_index):
            code.store("i64", code.add(first, code.mul(at, growth)), index)
        with code.when(has_test):
            _return_failure(
                code, code.call("i32", _function("run"), f"ptr %context, {test}")
            )
            with code.when(code.test("eq", code.load("i8", byte), 0, "i8")):
                code.give("i32", 0)
        code.do(f"call void @moves({moves_in}, i64 {at})")
        _aim(code, points, at)
        _return_failure(
            code, code.call("i32", _function("run"), f"ptr %context, {body}")
        )
        code.do(f"call void @moves({moves_out}, i64 {at})")
        code.do(f"call void @moves({carry}, i64 0)")
        done = code.add(code.word("%context", tables.WORK), _WORK_OF_STEP)
        code.set_word("%context", tables.WORK, done)
        with code.when(code.test("sgt", done, limit)):
            _return_failure(code, code.call("i32", _function("look"), "ptr %context"))
    code.give("i32", 0)
    return code


def _table_of(code: MachineFunction, place: int) -> str:
    """Return two words of the record, a number and an address, as arguments."""
    return (
        f"i64 {code.word('%data', place)}, ptr {code.word('%data', place + 1, 'ptr')}"
    )


def _pair(code: MachineFunction, place: int) -> tuple[str, str]:
    return code.word("%data", place), code.word("%data", place + 1)


def _aim(code: MachineFunction, points: str, at: str) -> None:
    """Set the pointers that follow the steps: cell, place in step 0, step."""
    count, start = (part.split()[-1] for part in points.split(","))
    with code.each(count) as j:
        point = code.moved(start, code.mul(j, 24))
        cell, base, step = code.words(point, ("ptr", "i64", "i64"))
        code.store("i64", code.add(base, code.mul(step, at)), cell)


def _moves() -> MachineFunction:
    """Copy memory: target, source, bytes, and the steps of both."""
    code = MachineFunction("moves", "i64 %count, ptr %moves, i64 %at", "void")
    with code.each("%count") as i:
        move = code.moved("%moves", code.mul(i, 40))
        target, source, nbytes, target_step, source_step = code.words(
            move, ("ptr", "ptr", "i64", "i64", "i64")
        )
        to = code.moved(target, code.mul(target_step, "%at"))
        start = code.moved(source, code.mul(source_step, "%at"))
        with code.either(code.test("eq", nbytes, 8)) as otherwise:
            code.store("i64", code.load("i64", start, ", align 1"), to, ", align 1")
            otherwise()
            code.copy(to, start, nbytes)
    code.do("ret void")
    return code


def _choose() -> MachineFunction:
    """Run one of some tables; see `Table.choose`."""
    code = MachineFunction("choose", LOOP_PARAMETERS)
    address, kind, count = code.words("%data", ("ptr", "i64", "i64"))
    number = code.variable("i64", 0)
    with code.either(code.test("eq", kind, 0)) as otherwise:
        is_set = code.test("ne", code.load("i8", address), 0, "i8")
        code.store("i64", code.let(f"zext i1 {is_set} to i64"), number)
        otherwise()
        code.store("i64", code.load("i64", address), number)
    given = code.load("i64", number)
    low = code.choose(code.test("slt", given, 0), "i64", 0, given)
    last = code.sub(count, 1)
    place = code.choose(code.test("sgt", low, last), "i64", last, low)
    pair = code.word_at("%data", code.add(code.mul(place, 2), 3))
    rows, start = code.words(pair, ("i64", "ptr"))
    result = code.call(
        "i32", _function("run"), f"ptr %context, i64 {rows}, ptr {start}"
    )
    code.give("i32", result)
    return code


# ---- threads ----

# Words of a part that a thread runs: its rows, where they lie, its header, the thread, and
# the result.
_PART: Final = 5


def _share() -> MachineFunction:
    """Run some tables at the same time; see `Table.share`."""
    code = MachineFunction("share", LOOP_PARAMETERS)
    count, parts = code.words("%data", ("i64", "ptr"))
    others = code.sub(count, 1)
    begin, wait = thread_functions() or ("null", "null")
    result = code.variable("i32", 0)
    for_thread = code.room("i64", 1)
    with code.each(others) as i:
        part = code.word_at(parts, code.mul(code.add(i, 1), _PART))
        given = f"ptr {for_thread}, ptr null, ptr @help, ptr {part}"
        failed = code.test("ne", code.call("i32", begin, given), 0, "i32")
        code.set_word(part, 3, code.load("i64", for_thread))
        code.set_word(part, 4, 0)
        with code.when(failed):  # no thread: this one does its work
            code.set_word(part, 3, 0)
            code.call("ptr", "@help", f"ptr {part}")
    rows, start = code.words(parts, ("i64", "ptr"))
    own = code.call("i32", _function("run"), f"ptr %context, i64 {rows}, ptr {start}")
    code.store("i32", own, result)
    with code.each(others) as i:
        part = code.word_at(parts, code.mul(code.add(i, 1), _PART))
        thread = code.word(part, 3)
        with code.when(code.test("ne", thread, 0)):
            code.call("i32", wait, f"i64 {thread}, ptr null")
        header = code.word(part, 2, "ptr")
        raised = code.word("%context", tables.RAISED)
        raised = code.let(f"or i64 {raised}, {code.word(header, tables.RAISED)}")
        code.set_word("%context", tables.RAISED, raised)
        with code.when(code.test("eq", code.load("i32", result), 0, "i32")):
            found = code.let(f"trunc i64 {code.word(part, 4)} to i32")
            code.store("i32", found, result)
    code.give("i32", code.load("i32", result))
    return code


def _help() -> MachineFunction:
    """Run the table of a part; what a thread begins with."""
    code = MachineFunction("help", "ptr %part", "ptr")
    rows, start, header = code.words("%part", ("i64", "ptr", "ptr"))
    clear_flags(code, code.room("i32", 1))
    code.set_word(header, tables.RAISED, 0)
    code.set_word(header, tables.WORK, 0)
    result = code.call(
        "i32", _function("run"), f"ptr {header}, i64 {rows}, ptr {start}"
    )
    code.set_word("%part", 4, code.let(f"sext i32 {result} to i64"))
    code.give("ptr", "null")
    return code
