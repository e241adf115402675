"""The door: a function in machine code that runs a program for the arrays of one call.

It checks each argument beside what was planned, copies small arrays into the program's
memory and has the pointers of tables go to large ones, makes the results, and runs the
table. If anything differs from the plan it calls the fallback with a code and the arguments
instead, and nothing has happened.

Who holds what: the caller holds the arguments during the call. The function holds the
header as its ``__self__``, the header the program, and the program all memory and objects
that tables, records and results point to. After a call, pointers still go to arrays of that
call; they are set again before they are read.

One program runs once at a time. The mark for that is set and looked at under the GIL, and
a call that finds it set (from another thread while the GIL was released or Python ran, or
from a call of Python in the table) takes the fallback.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from customop.compiling.native_backend import tables
from customop.compiling.native_backend.driver import (
    FLAGS_UP,
    INTERRUPTED,
    clear_flags,
    driver,
    flag_declarations,
)
from customop.compiling.native_backend.iteration import BUFFER
from customop.compiling.native_backend.machine_code import MachineFunction, build
from customop.compiling.native_backend.memory import address_of
from customop.compiling.native_backend.object_layout import (
    ALIGNED,
    BYTE_ORDER,
    DATA,
    DTYPE,
    FLAGS,
    LENGTHS,
    METADATA,
    NDIM,
    NUMBER,
    STEPS,
    TYPE,
    WRITEABLE,
    error_settings,
    floating_point_flags,
    numpy_function,
    pointer,
    python_function,
)
from customop.compiling.native_backend.tables import NativeProgram, Table

# ---- what calls take and give ----

# Codes for the fallback: an argument differs from the plan; the program runs already; flags
# are up that NumPy reports; a loop or a call of Python left the call to NumPy; the settings
# for errors are not the accepted ones.
CHANGED, RUNNING, FLAGGED, DECLINED, UNSETTLED = range(5)


class DoorInput(NamedTuple):
    """An argument of each call.

    Attributes
    ----------
    kind : str
        "array"; "scalar" for a scalar of NumPy; "float", "int" or "bool" for Python's;
        "unread" for an object of which only the class is checked.
    dtype : dtype
        For "int" int64; other numbers take the fallback.
    shape, strides : tuple
        Of the array. A stride that is None may be any one.
    address : int
        Where the program has its place for the argument.
    low, high : int
        Pointers to ``low <= p < high`` are pointers into this argument.
    is_copied : bool
        Whether the argument is copied to its place. Such an array is dense.
    is_written : bool
        Whether the array must be writeable.
    unread_class : type or None
        Of an "unread" one.
    """

    kind: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int | None, ...]
    address: int
    low: int
    high: int
    is_copied: bool
    is_written: bool = False
    unread_class: type | None = None


class DoorResult(NamedTuple):
    """A result of each call.

    Attributes
    ----------
    kind : str
        "new" for an array of its own, "scalar" for a scalar of NumPy, "input" for an
        argument as it is, "object" for the same object in each call.
    dtype : dtype
    shape : tuple of int
    strides : tuple of int or None
        None for C order. The array is dense.
    address : int
        Where the table writes the result.
    low, high : int
        Pointers to ``low <= p < high`` are pointers into this result.
    is_copied : bool
        Whether the result is copied from its place when the table has run; else pointers
        go to the memory of the new array.
    number : int
        Of the argument, for "input".
    value : object
        For "object".
    """

    kind: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None
    address: int = 0
    low: int = 0
    high: int = 0
    is_copied: bool = True
    number: int = -1
    value: object = None


def make_door(
    program: NativeProgram,
    table: Table,
    inputs: Sequence[DoorInput],
    results: Sequence[DoorResult],
    fallback: Callable[..., object],
    *,
    last: Table | None = None,
    releases_gil: bool = False,
) -> Callable[..., Any]:
    """Return the function that runs a program; its tables are complete.

    Parameters
    ----------
    program : NativeProgram
    table : Table
    inputs : sequence of DoorInput
    results : sequence of DoorResult
    fallback : callable
        Called with a code and the arguments when the program cannot run or has to be run
        again by NumPy; its result is the result.
    last : Table, optional
        Runs after `table`, when it is known that no flag counts: what writes to arguments.
    releases_gil : bool, optional
        Whether other threads of Python may go on meanwhile.

    Returns
    -------
    callable
        Takes one argument for each input, and returns a list of the results.

    Raises
    ------
    ValueError
        If the GIL is to be released, and a row needs it.
    """
    if releases_gil and table.needs_gil:
        raise ValueError("a row of the table needs the GIL")
    program.seal()
    header = program.header
    of_inputs = _input_words(program, inputs)
    of_results = _result_words(program, results)
    made = np.zeros(max(len(results), 1), np.int64)
    for held in (of_inputs, of_results, made, fallback, results):
        program.hold(held)
    header[tables.WORK_LIMIT] = _WORK_RELEASED if releases_gil else _WORK_HELD
    header[tables.RELEASES] = releases_gil
    header[tables.N_INPUTS : tables.INPUTS + 1] = len(inputs), address_of(of_inputs)
    header[tables.N_ROWS : tables.ROWS + 1] = len(table), table.address
    header[tables.N_RESULTS : tables.RESULTS + 1] = len(results), address_of(of_results)
    if last is not None:
        header[tables.N_LAST_ROWS : tables.LAST_ROWS + 1] = len(last), last.address
    header[tables.FALLBACK] = id(fallback)
    header[tables.MADE] = address_of(made)
    accept_errstate(program)
    holder = header.view(_Header)
    holder.program = program
    return _new_function(ctypes.addressof(_method()), holder, None)  # type: ignore[no-any-return]


class _Header(np.ndarray[Any, Any]):
    """The header of a program, which it keeps alive."""

    program: NativeProgram


# Work between two looks for Ctrl-C: at most 30 ms. While the GIL is released a look may
# wait 5 ms for another thread.
_WORK_HELD: Final = 1 << 20
_WORK_RELEASED: Final = 1 << 22


def accept_errstate(program: NativeProgram) -> bool:
    """Let a program run under the settings for floating-point errors of this moment.

    Returns
    -------
    bool
        False if it cannot: the buffers of NumPy's iterator are not those of the plan.
    """
    settings = error_settings().get()
    if np.getbufsize() != BUFFER:
        return False
    flags = floating_point_flags() or {}
    now = np.geterr()
    counted = sum(flags[name] for name, how in now.items() if how != "ignore")
    program.hold_errstate(settings)
    program.header[tables.COUNTED] = counted | program.always_counted
    program.header[tables.ERRSTATE] = id(settings)
    return True


def _input_words(
    program: NativeProgram, inputs: Sequence[DoorInput]
) -> np.ndarray[Any, Any]:
    """Return the words of all inputs, as `_check` and `_bring` read them."""
    words: list[int] = []
    for given in inputs:
        cells = np.empty((0, 2), np.int64)
        if given.kind == "array" and not given.is_copied:
            cells = program.pointer_cells(given.low, given.high)
            cells[:, 1] += given.low - given.address
            program.hold(cells)
        program.hold(given.dtype)
        kind: Any = np.ndarray if given.kind == "array" else given.dtype.type
        kind = {"float": float, "int": int, "bool": bool}.get(given.kind, kind)
        kind = given.unread_class or kind
        program.hold(kind)
        nbytes = given.dtype.itemsize
        for length in given.shape:
            nbytes *= length
        words += (
            _INPUT_KINDS.index(given.kind),
            id(kind),
            id(given.dtype),
            len(given.shape),
            nbytes,
            given.address,
            len(cells),
            address_of(cells),
            int(given.is_copied),
            ALIGNED | (WRITEABLE if given.is_written else 0),
            given.dtype.num,
            _INPUT_WORDS + 2 * len(given.shape),
        )
        for length, step in zip(given.shape, given.strides, strict=True):
            words += (length, _ANY if step is None else step)
    return np.array(words or [0], np.int64)


_INPUT_KINDS: Final = ("array", "scalar", "float", "int", "bool", "unread")
_INPUT_WORDS: Final = 12
_ANY: Final = -(1 << 63)


def _result_words(
    program: NativeProgram, results: Sequence[DoorResult]
) -> np.ndarray[Any, Any]:
    """Return the words of all results, as `_make` and `_give` read them."""
    words: list[int] = []
    for given in results:
        cells = np.empty((0, 2), np.int64)
        if given.kind == "new" and not given.is_copied:
            cells = program.pointer_cells(given.low, given.high)
            cells[:, 1] += given.low - given.address
            program.hold(cells)
        shape = np.array(given.shape, np.int64)
        strides = None if given.strides is None else np.array(given.strides, np.int64)
        program.hold((given.dtype, shape, strides, given.value))
        nbytes = given.dtype.itemsize
        for length in given.shape:
            nbytes *= length
        words += (
            _RESULT_KINDS.index(given.kind),
            id(given.dtype),
            len(given.shape),
            address_of(shape),
            0 if strides is None else address_of(strides),
            given.address,
            nbytes,
            len(cells),
            address_of(cells),
            int(given.is_copied),
            given.number,
            id(given.value),
        )
    return np.array(words or [0], np.int64)


_RESULT_KINDS: Final = ("new", "scalar", "input", "object")
_RESULT_WORDS: Final = 12


# ---- the function of Python ----


class _MethodRecord(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL: Final = 0x0080
_new_function: Any = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype = ctypes.py_object
_new_function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]


@cache
def _method() -> _MethodRecord:
    run = driver().run
    functions = [_enter(run), _fall(), _check(), _same_dtype(), _bring(), _point()]
    functions += [_make(), _give()]
    made = build(functions, further=flag_declarations(), quick=True)
    record = _MethodRecord(b"run", made["enter"], _FASTCALL, None)
    _records.append(record)
    return record


# Functions point to them, also to that of a second thread that came at the same moment.
_records: list[_MethodRecord] = []


# ---- machine code ----


def _enter(run: int) -> MachineFunction:
    """Run a program for the arguments of a call."""
    code = MachineFunction("enter", "ptr %self, ptr %arguments, i64 %count", "ptr")
    header = code.load("ptr", code.moved("%self", DATA))
    given = f"ptr {header}, ptr %arguments"
    _begin(code, header, given)
    code.set_word(header, tables.RAISED, 0)
    code.set_word(header, tables.WORK, 0)
    status = code.variable("i32", code.call("i32", "@make", f"ptr {header}"))
    with code.when(code.test("eq", code.load("i32", status), 0, "i32")):
        clear_flags(code, code.room("i32", 1))
        _run_table(code, run, header, status)
    result = code.variable("ptr", "null")
    reason = code.variable("i64", -1)
    _end(code, run, header, given, (status, result, reason))
    _drop_results(code, header)
    code.set_word(header, tables.BUSY, 0)
    with code.when(code.test("sge", code.load("i64", reason), 0)):
        _leave(code, given, code.load("i64", reason))
    code.give("ptr", code.load("ptr", result))
    return code


def _leave(code: MachineFunction, given: str, reason: int | str) -> None:
    """Leave the call to the fallback."""
    result = code.call("ptr", "@fall", f"{given}, i64 %count, i64 {reason}")
    code.give("ptr", result)


def _begin(code: MachineFunction, header: str, given: str) -> None:
    """Check that the program can run, mark it, and bring the arguments to their places."""
    enough = code.test("eq", code.word(header, tables.N_INPUTS), "%count")
    fits = code.variable("i32", 0)
    with code.when(enough):
        code.store("i32", code.call("i32", "@check", given), fits)
    with code.when(code.test("eq", code.load("i32", fits), 0, "i32")):
        _leave(code, given, CHANGED)
    settings = code.room("ptr", 1)
    variable = pointer(id(error_settings()))
    arguments = f"ptr {variable}, ptr null, ptr {settings}"
    found = code.call("i32", python_function("PyContextVar_Get"), arguments)
    with code.when(code.test("ne", found, 0, "i32")):
        code.give("ptr", "null")
    current = code.load("ptr", settings)
    code.do(f"call void {python_function('Py_DecRef')}(ptr {current})")
    accepted = code.word(header, tables.ERRSTATE, "ptr")
    with code.when(code.let(f"icmp ne ptr {current}, {accepted}")):
        _leave(code, given, UNSETTLED)
    with code.when(code.test("ne", code.word(header, tables.BUSY), 0)):
        _leave(code, given, RUNNING)
    code.set_word(header, tables.BUSY, 1)
    with code.when(code.test("eq", code.call("i32", "@bring", given), 0, "i32")):
        code.set_word(header, tables.BUSY, 0)
        _leave(code, given, CHANGED)


def _end(
    code: MachineFunction,
    run: int,
    header: str,
    given: str,
    variables: tuple[str, str, str],
) -> None:
    """Set the result, or the reason to leave the call to the fallback, or neither."""
    status, result, reason = variables
    ended = code.load("i32", status)
    raised = code.word(header, tables.RAISED)
    up = code.let(f"and i64 {raised}, {code.word(header, tables.COUNTED)}")
    unflagged = code.test("eq", up, 0)
    # A loop may have set an exception and gone on.
    error = code.call("ptr", python_function("PyErr_Occurred"), "")
    clean = code.let(f"icmp eq ptr {error}, null")
    for bit in (code.test("eq", ended, 0, "i32"), unflagged):
        clean = code.let(f"and i1 {clean}, {bit}")
    with code.either(clean) as otherwise:
        rows = code.word(header, tables.N_LAST_ROWS)
        start = code.word(header, tables.LAST_ROWS, "ptr")
        table = f"ptr {header}, i64 {rows}, ptr {start}"
        wrote = code.call("i32", pointer(run), table)
        with code.when(code.test("eq", wrote, 0, "i32")):
            code.store("ptr", code.call("ptr", "@give", given), result)
        otherwise()
        # An exception of a call of Python is raised, unless NumPy would have warned before:
        # then NumPy runs all again and does both. One of Ctrl-C is always raised.
        interrupted = code.test("eq", ended, INTERRUPTED, "i32")
        passes = code.let(f"or i1 {interrupted}, {unflagged}")
        passes = code.let(f"and i1 {passes}, {code.test('slt', ended, 0, 'i32')}")
        with code.either(passes) as again:
            again()
            code.do(f"call void {python_function('PyErr_Clear')}()")
            declined = code.test("ne", ended, FLAGS_UP, "i32")
            declined = code.let(f"and i1 {declined}, {unflagged}")
            code.store("i64", code.choose(declined, "i64", DECLINED, FLAGGED), reason)


def _run_table(code: MachineFunction, run: int, header: str, status: str) -> None:
    """Run the main table, without the GIL if the header says so."""
    rows = code.word(header, tables.N_ROWS)
    start = code.word(header, tables.ROWS, "ptr")
    given = f"ptr {header}, i64 {rows}, ptr {start}"
    releases = code.test("ne", code.word(header, tables.RELEASES), 0)
    with code.either(releases) as otherwise:
        thread = code.call("ptr", python_function("PyEval_SaveThread"), "")
        code.set_word(header, tables.THREAD, thread, "ptr")
        code.store("i32", code.call("i32", pointer(run), given), status)
        thread = code.word(header, tables.THREAD, "ptr")
        code.do(f"call void {python_function('PyEval_RestoreThread')}(ptr {thread})")
        code.set_word(header, tables.THREAD, 0)
        otherwise()
        code.store("i32", code.call("i32", pointer(run), given), status)


def _fall() -> MachineFunction:
    """Call the fallback with a code and the arguments."""
    code = MachineFunction(
        "fall", "ptr %header, ptr %arguments, i64 %count, i64 %reason", "ptr"
    )
    all_count = code.add("%count", 1)
    stack = code.let(f"alloca ptr, i64 {all_count}")
    number = code.call("ptr", python_function("PyLong_FromLongLong"), "i64 %reason")
    with code.when(code.let(f"icmp eq ptr {number}, null")):
        code.give("ptr", "null")
    code.store("ptr", number, stack)
    code.copy(code.word_at(stack, 1), "%arguments", code.mul("%count", 8))
    function = code.word("%header", tables.FALLBACK, "ptr")
    # The function may be dropped while it runs, with the program that holds it.
    code.do(f"call void {python_function('Py_IncRef')}(ptr {function})")
    result = code.call(
        "ptr",
        python_function("PyObject_Vectorcall"),
        f"ptr {function}, ptr {stack}, i64 {all_count}, ptr null",
    )
    code.do(f"call void {python_function('Py_DecRef')}(ptr {function})")
    code.do(f"call void {python_function('Py_DecRef')}(ptr {number})")
    code.give("ptr", result)
    return code


def _check() -> MachineFunction:
    """Return 1 if all arguments are as planned; nothing changes."""
    code = MachineFunction("check", "ptr %header, ptr %arguments")
    given = code.variable("ptr", code.word("%header", tables.INPUTS, "ptr"))
    with code.each(code.word("%header", tables.N_INPUTS)) as number:
        words = code.load("ptr", given)
        value = code.word("%arguments", number, "ptr")
        kind = code.load("ptr", code.moved(value, TYPE))
        _require(code, code.let(f"icmp eq ptr {kind}, {code.word(words, 1, 'ptr')}"))
        with code.when(code.test("eq", code.word(words, 0), 0)):
            _check_array(code, words, value)
        code.store("ptr", code.word_at(words, code.word(words, 11)), given)
    code.give("i32", 1)
    return code


def _require(code: MachineFunction, bit: str) -> None:
    """Return 0 unless a bit is set."""
    with code.either(bit) as otherwise:
        otherwise()
        code.give("i32", 0)


def _check_array(code: MachineFunction, words: str, value: str) -> None:
    dtype = code.load("ptr", code.moved(value, DTYPE))
    wanted = code.word(words, 2, "ptr")
    with code.when(code.let(f"icmp ne ptr {dtype}, {wanted}")):
        same = code.call("i32", "@same_dtype", f"ptr {words}, ptr {dtype}")
        _require(code, code.test("ne", same, 0, "i32"))
    axes = code.let(f"sext i32 {code.load('i32', code.moved(value, NDIM))} to i64")
    _require(code, code.test("eq", axes, code.word(words, 3)))
    flags = code.let(f"zext i32 {code.load('i32', code.moved(value, FLAGS))} to i64")
    needed = code.word(words, 9)
    _require(code, code.test("eq", code.let(f"and i64 {flags}, {needed}"), needed))
    lengths = code.load("ptr", code.moved(value, LENGTHS))
    steps = code.load("ptr", code.moved(value, STEPS))
    with code.each(axes) as k:
        axis = code.word_at(words, code.add(code.mul(k, 2), _INPUT_WORDS))
        _require(code, code.test("eq", code.word(lengths, k), code.word(axis, 0)))
        step = code.word(axis, 1)
        same_step = code.test("eq", code.word(steps, k), step)
        any_step = code.test("eq", step, _ANY)
        _require(code, code.let(f"or i1 {same_step}, {any_step}"))


def _same_dtype() -> MachineFunction:
    """Return 1 if another object is the dtype, too: its number, order and no metadata."""
    code = MachineFunction("same_dtype", "ptr %words, ptr %dtype")
    number = code.load("i32", code.moved("%dtype", NUMBER))
    wanted = code.let(f"trunc i64 {code.word('%words', 10)} to i32")
    _require(code, code.test("eq", number, wanted, "i32"))
    order = code.load("i8", code.moved("%dtype", BYTE_ORDER))
    _require(code, code.test("ne", order, ord(">"), "i8"))
    metadata = code.load("ptr", code.moved("%dtype", METADATA))
    _require(code, code.let(f"icmp eq ptr {metadata}, null"))
    code.give("i32", 1)
    return code


def _bring() -> MachineFunction:
    """Bring the arguments to their places; return 0 if a number does not fit."""
    code = MachineFunction("bring", "ptr %header, ptr %arguments")
    given = code.variable("ptr", code.word("%header", tables.INPUTS, "ptr"))
    overflow = code.room("i32", 1)
    with code.each(code.word("%header", tables.N_INPUTS)) as number:
        words = code.load("ptr", given)
        value = code.word("%arguments", number, "ptr")
        kind = code.word(words, 0)
        place = code.word(words, 5, "ptr")
        with code.when(code.test("eq", kind, 0)):
            start = code.load("ptr", code.moved(value, DATA))
            with code.either(code.test("ne", code.word(words, 8), 0)) as otherwise:
                code.copy(place, start, code.word(words, 4))
                otherwise()
                cells = f"i64 {code.word(words, 6)}, ptr {code.word(words, 7, 'ptr')}"
                code.do(f"call void @point({cells}, ptr {start})")
        with code.when(code.test("eq", kind, 1)):
            code.do(f"call void {numpy_function(62)}(ptr {value}, ptr {place})")
        with code.when(code.test("eq", kind, 2)):
            number_of = python_function("PyFloat_AsDouble")
            code.store("double", code.call("double", number_of, f"ptr {value}"), place)
        with code.when(code.test("eq", kind, 3)):
            number_of = python_function("PyLong_AsLongLongAndOverflow")
            whole = code.call("i64", number_of, f"ptr {value}, ptr {overflow}")
            over = code.load("i32", overflow)
            _require(code, code.test("eq", over, 0, "i32"))
            code.store("i64", whole, place)
        with code.when(code.test("eq", kind, 4)):
            is_true = code.let(f"icmp eq ptr {value}, {pointer(id(True))}")
            code.store("i8", code.let(f"zext i1 {is_true} to i8"), place)
        code.store("ptr", code.word_at(words, code.word(words, 11)), given)
    code.give("i32", 1)
    return code


def _point() -> MachineFunction:
    """Have cells point to the memory of an array: cell, bytes from its beginning."""
    code = MachineFunction("point", "i64 %count, ptr %cells, ptr %start", "void")
    with code.each("%count") as i:
        cell, offset = code.words(
            code.word_at("%cells", code.mul(i, 2)), ("ptr", "i64")
        )
        code.store("ptr", code.moved("%start", offset), cell)
    code.do("ret void")
    return code


def _make() -> MachineFunction:
    """Make the arrays of results; return -1 if memory runs out."""
    code = MachineFunction("make", "ptr %header")
    made = code.word("%header", tables.MADE, "ptr")
    with code.each(code.word("%header", tables.N_RESULTS)) as number:
        results = code.word("%header", tables.RESULTS, "ptr")
        words = code.word_at(results, code.mul(number, _RESULT_WORDS))
        with code.when(code.test("eq", code.word(words, 0), 0)):
            dtype = code.word(words, 1, "ptr")
            code.do(f"call void {python_function('Py_IncRef')}(ptr {dtype})")
            axes = code.let(f"trunc i64 {code.word(words, 2)} to i32")
            lengths, steps = code.word(words, 3, "ptr"), code.word(words, 4, "ptr")
            array = code.call(
                "ptr",
                numpy_function(94),
                f"ptr {numpy_function(2)}, ptr {dtype}, i32 {axes}, ptr {lengths}, "
                f"ptr {steps}, ptr null, i32 0, ptr null",
            )
            with code.when(code.let(f"icmp eq ptr {array}, null")):
                code.give("i32", -1)
            code.set_word(made, number, array, "ptr")
            start = code.load("ptr", code.moved(array, DATA))
            cells = f"i64 {code.word(words, 7)}, ptr {code.word(words, 8, 'ptr')}"
            code.do(f"call void @point({cells}, ptr {start})")
    code.give("i32", 0)
    return code


def _give() -> MachineFunction:
    """Return the list of the results; null if memory runs out."""
    code = MachineFunction("give", "ptr %header, ptr %arguments", "ptr")
    made = code.word("%header", tables.MADE, "ptr")
    count = code.word("%header", tables.N_RESULTS)
    found = code.call("ptr", python_function("PyList_New"), f"i64 {count}")
    with code.when(code.let(f"icmp eq ptr {found}, null")):
        code.give("ptr", "null")
    with code.each(count) as number:
        results = code.word("%header", tables.RESULTS, "ptr")
        words = code.word_at(results, code.mul(number, _RESULT_WORDS))
        kind, place = code.word(words, 0), code.word(words, 5, "ptr")
        item = code.variable("ptr", "null")
        with code.when(code.test("eq", kind, 0)):
            array = code.word(made, number, "ptr")
            code.set_word(made, number, "null", "ptr")
            with code.when(code.test("ne", code.word(words, 9), 0)):
                start = code.load("ptr", code.moved(array, DATA))
                code.copy(start, place, code.word(words, 6))
            code.store("ptr", array, item)
        with code.when(code.test("eq", kind, 1)):
            dtype = code.word(words, 1, "ptr")
            given = f"ptr {place}, ptr {dtype}, ptr null"
            code.store("ptr", code.call("ptr", numpy_function(60), given), item)
        with code.when(code.test("sge", kind, 2)):
            # An argument or an object that the program holds.
            is_given = code.test("eq", kind, 2)
            at = code.choose(is_given, "i64", code.word(words, 10), 0)
            argument = code.variable("ptr", code.word(words, 11, "ptr"))
            with code.when(is_given):
                code.store("ptr", code.word("%arguments", at, "ptr"), argument)
            value = code.load("ptr", argument)
            code.do(f"call void {python_function('Py_IncRef')}(ptr {value})")
            code.store("ptr", value, item)
        value = code.load("ptr", item)
        with code.when(code.let(f"icmp eq ptr {value}, null")):
            code.do(f"call void {python_function('Py_DecRef')}(ptr {found})")
            code.give("ptr", "null")
        code.call(
            "i32",
            python_function("PyList_SetItem"),
            f"ptr {found}, i64 {number}, ptr {value}",
        )
    code.give("ptr", found)
    return code


def _drop_results(code: MachineFunction, header: str) -> None:
    """Let go of the arrays that were made and are not given."""
    made = code.word(header, tables.MADE, "ptr")
    with code.each(code.word(header, tables.N_RESULTS)) as number:
        array = code.word(made, number, "ptr")
        with code.when(code.let(f"icmp ne ptr {array}, null")):
            code.set_word(made, number, "null", "ptr")
            code.do(f"call void {python_function('Py_DecRef')}(ptr {array})")
