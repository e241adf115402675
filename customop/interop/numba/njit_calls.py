"""Call operators in code that numba compiles, and compile kernels for XLA."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from customop.arrays.kinds import DEFAULT
from customop.core.codegen import generate
from customop.core.numba_kernels import compiled_of
from customop.core.operator import Operator
from customop.errors import MissingRuleError
from customop.frozen import Frozen

# ---- the import of numba ----


def _imported() -> Any:
    try:
        return import_module("numba.extending")
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        raise ModuleNotFoundError(
            "customop.interop.numba needs numba, which is not installed\n"
            "  do: pip install 'customop[numba]'",
            name="numba",
        ) from None


_extending: Any = _imported()
typeof_impl: Any = _extending.typeof_impl
intrinsic: Callable[[Callable[..., Any]], Any] = _extending.intrinsic
numba: Any = import_module("numba")
njit: Callable[[Callable[..., Any]], Any] = numba.njit
types: Any = numba.types
ir: Any = import_module("llvmlite.ir")
NumbaError: Any = import_module("numba.core.errors").NumbaError


def type_in_code(value: Any) -> Any:
    """Return the type of a function in compiled code; raise NumbaError if it has none."""
    target = import_module("numba.core.registry").cpu_target
    return target.typing_context.resolve_value_type(value)


_Dispatcher: Any = import_module("numba.core.dispatcher").Dispatcher
_DUFunc: Any = import_module("numba.np.ufunc.dufunc").DUFunc
_GUFunc: Any = import_module("numba.np.ufunc.gufunc").GUFunc


def is_compiled(fn: Any) -> bool:
    """Return whether compiled code can call a function from any thread at any time."""
    if isinstance(fn, _Dispatcher):
        # Only one caller at a time may use the threads of parallel code.
        options = fn.targetoptions
        return not (options.get("parallel") or options.get("forceobj"))
    return isinstance(fn, _DUFunc | _GUFunc)


def has_fixed_types(fn: Any) -> bool:
    """Return whether an njit function has fixed signatures (only for writable arrays)."""
    return isinstance(fn, _Dispatcher) and not getattr(fn, "_can_compile", True)


# ---- operators in code that numba compiles ----
# Calling an operator there calls its kernel.


def register_type() -> None:
    """Tell numba that the type of an operator is the type of its kernel."""
    typeof_impl.register(Operator)(_type_of)


def _type_of(op: Operator[..., Any], context: Any) -> Any:
    row = op.rows.get("cpu") or op.rows.get(DEFAULT)
    try:
        if row is not None:
            return type_in_code(compiled_of(row.fn))
    except (NumbaError, ValueError):
        pass  # numba does not support it; the error below says so
    raise op.error(
        MissingRuleError,
        " has no kernel that numba can call in compiled code",
        do="put @numba.njit or @numba.vectorize between @custom_op and the function",
        kind="cpu",
    )


# ---- handlers: functions around compiled kernels that XLA calls without Python ----
# XLA passes one pointer to a struct of 64-bit words. The struct is either a question
# about the handler, or a call with the memory of arguments and results. The places of
# the words are those of ``xla/ffi/api/c_api.h``, versions 0.1 to 0.3. XLA keeps a
# version for a year after a change.


_INTERNAL = 13  # the code of the error in absl::StatusCode

# Indices of words in the structs.
_EXTENSION, _API, _ARGS, _RESULTS = 1, 2, 9, 14  # in a call
_DATA, _DIMS = 3, 5  # in a buffer
_KIND, _METADATA, _VERSION = 1, 3, 3  # in a question, and the place of its answer
_API_VERSION, _ERROR_CREATE = 4, 6  # in the table of XLA's functions


class BufferType(Frozen):
    """The dtype and the number of axes of an array."""

    dtype: np.dtype[Any]
    ndim: int


class HandlerCall(Frozen):
    """A call of a compiled kernel.

    Attributes
    ----------
    kernel : function of numba
    name : str
        The name of the operator, for errors.
    values : tuple
        The values of the parameters: an int is the index of an array among the
        arguments, and a tuple holds a constant.
    named : tuple of str
        Names of the last parameters, which are passed by keyword.
    written : tuple of int
        Indices in `values` of arrays that the kernel writes to. They are the last
        results.
    fills : bool
        Whether the kernel is a gufunc, which takes its results as arguments.
    narrows : bool
        Whether 64-bit results are rounded to 32 bits.
    """

    kernel: Callable[..., Any]
    name: str
    values: tuple[Any, ...]
    named: tuple[str, ...] = ()
    written: tuple[int, ...] = ()
    fills: bool = False
    narrows: bool = False


def handler_of(
    call: HandlerCall, inputs: Sequence[BufferType], outputs: Sequence[BufferType]
) -> Any:
    """Return the compiled handler of a call, or None if numba cannot compile it.

    Parameters
    ----------
    call : HandlerCall
    inputs, outputs : sequence of BufferType

    Returns
    -------
    numba CFunc or None
        Its ``address`` is valid as long as the object lives.
    """
    if not is_compiled(call.kernel):
        return None
    # Kernels with fixed signatures do not accept read-only arrays, so they get copies.
    for is_copied in (False, True):
        try:
            return _compiled(call, inputs, outputs, is_copied)
        except (NumbaError, KeyError):  # KeyError: a dtype that numba lacks
            continue
    return None


def _compiled(
    call: HandlerCall,
    inputs: Sequence[BufferType],
    outputs: Sequence[BufferType],
    is_copied: bool,
) -> Any:
    names: dict[str, Any] = {
        "_kernel": call.kernel,
        "_words": _words,
        "_as_asked": _as_asked,
        "_error": _error,
        "_carray": numba.carray,
        "_shape": np.shape,
        "_check_dtype": _check_of(call.narrows),
        "_fixed": _fixed if not is_copied else np.copy,
        "_raised": _message(f"{call.name}: its kernel has raised an exception"),
        "_misshapen": _message(
            f"{call.name}: a result of its kernel has another shape than that of its fake"
            " kernel"
        ),
    }
    lines = [
        "def handler(frame):",
        "    if _as_asked(frame): return 0",
        f"    args, results = _words(frame[{_ARGS}]), _words(frame[{_RESULTS}])",
        *_views("args", "x", inputs, names),
        *_views("results", "y", outputs, names),
        *_body(call, len(outputs), names),
        "    return 0",
    ]
    made = generate(f"{call.name} for XLA", "\n".join(lines), "handler", names)
    signature = types.int64(types.CPointer(types.int64))
    found = numba.cfunc(signature)(made)
    found.messages = names["_raised"], names["_misshapen"]
    return found


def _views(
    struct: str, letter: str, arrays: Sequence[BufferType], names: dict[str, Any]
) -> list[str]:
    """Return lines of code that make arrays over XLA's memory."""
    lines = []
    for i, array in enumerate(arrays):
        name = f"{letter}{i}"
        names[f"_p{name}"] = _pointer(array.dtype)
        lengths = "".join(f"d{name}[{k}], " for k in range(array.ndim))
        view = f"_carray(_p{name}(b{name}[{_DATA}]), ({lengths}))"
        lines += [
            f"    b{name} = _words({struct}[{i}])",
            f"    d{name} = _words(b{name}[{_DIMS}])",
            f"    {name} = {view if letter == 'y' else f'_fixed({view})'}",
        ]
    return lines


def _body(call: HandlerCall, count: int, names: dict[str, Any]) -> list[str]:
    """Return lines of code that call the kernel and copy its results into XLA's memory."""
    texts, lines = [], []
    first_written = count - len(call.written)
    for i, value in enumerate(call.values):
        if i in call.written:
            text = f"y{first_written + call.written.index(i)}"
            lines.append(f"    {text}[...] = x{value}")
        elif isinstance(value, int):
            text = f"x{value}"
        else:
            text = f"_constant{i}"
            names[text] = value[0]
        texts.append(text)
    split = len(texts) - len(call.named)
    keywords = [f"{n}={t}" for n, t in zip(call.named, texts[split:], strict=True)]
    own = [f"y{i}" for i in range(first_written)]
    if call.fills:
        return [
            *lines,
            "    try:",
            f"        _kernel({', '.join([*texts, *own])})",
            *_failed(),
        ]
    called = f"_kernel({', '.join([*texts[:split], *keywords])})"
    found = ", ".join([f"r{i}" for i in range(first_written)])
    lines += [
        "    try:",
        f"        {f'{found} = ' if found else ''}{called}",
        *_failed(),
    ]
    for i in range(first_written):
        wrong = "return _error(frame, _misshapen.ctypes.data)"
        lines += [
            f"    if _shape(r{i}) != y{i}.shape: {wrong}",
            f"    _check_dtype(r{i}, y{i})",
            f"    y{i}[...] = r{i}",
        ]
    return lines


def _failed() -> list[str]:
    return [
        "    except Exception:",
        "        return _error(frame, _raised.ctypes.data)",
    ]


def _message(text: str) -> np.ndarray[Any, Any]:
    """Return the words of XLA_FFI_Error_Create_Args; the caller must keep them alive."""
    raw = ctypes.create_string_buffer(text.encode())
    _texts.append(raw)
    return np.array([32, 0, ctypes.addressof(raw), _INTERNAL], np.int64)


# Texts of errors. XLA keeps its handlers until the process ends, so these must stay.
_texts: list[Any] = []

# ---- pointers ----


def _as_pointer(signature: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return signature, generate


@intrinsic
def _words(context: Any, address: Any) -> Any:
    """Return a pointer to the 64-bit words at an address."""
    return _as_pointer(types.CPointer(types.int64)(types.int64))


@cache
def _pointer(dtype: np.dtype[Any]) -> Any:
    """Return a function that turns an address into a pointer to elements of a dtype."""
    element = numba.from_dtype(dtype)

    @intrinsic
    def pointer(context: Any, address: Any) -> Any:
        return _as_pointer(types.CPointer(element)(types.int64))

    return pointer


@intrinsic
def _fixed(context: Any, array: Any) -> Any:
    """Return a read-only view of an array."""
    return array.copy(readonly=True)(array), lambda c, builder, signature, args: args[0]


@cache
def _check_of(narrows: bool) -> Any:
    """Return a function that checks the dtype of a result while numba compiles."""

    @intrinsic
    def check(context: Any, result: Any, out: Any) -> Any:
        given = getattr(result, "dtype", result)
        narrowed = _NARROWED.get(given) if narrows else given
        if out.dtype not in (given, narrowed):
            raise NumbaError(f"a result of {given} in place of {out.dtype}")
        return types.void(result, out), lambda c, builder, signature, args: None

    return check


_NARROWED = {
    types.float64: types.float32,
    types.complex128: types.complex64,
    types.int64: types.int32,
    types.uint64: types.uint32,
}


@intrinsic
def _call_pointer(context: Any, address: Any, argument: Any) -> Any:
    """Call the C function at an address; it takes and returns an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = context.get_value_type(types.int64)
        function = ir.FunctionType(word, [word]).as_pointer()
        return builder.call(builder.inttoptr(args[0], function), [args[1]])

    return types.int64(types.int64, types.int64), generate


@njit
def _error(frame: Any, message: Any) -> Any:
    """Create an XLA error and return it."""
    return _call_pointer(_words(frame[_API])[_ERROR_CREATE], message)


@njit
def _as_asked(frame: Any) -> Any:
    """Answer XLA if it asks for the version of the handler; return whether it does."""
    if frame[_EXTENSION] == 0:
        return False
    question = _words(frame[_EXTENSION])
    if question[_KIND] & 0xFFFFFFFF != 1:
        return False
    # The places above are valid in all of version 0, so its number is returned.
    answer = _words(question[_METADATA])
    answer[_VERSION] = _words(frame[_API])[_API_VERSION]
    return True
