"""A double of CuPy: its names and parameters, with elements that NumPy computes.

It is as strict as CuPy. A function is there if CuPy has it and takes the parameters that
CuPy's takes (`table.json`, written by `make_table.py`). A ufunc has CuPy's loops and
methods. NumPy's arrays are refused, except where CuPy copies them to the device.

It does not know which values of a parameter CuPy refuses, and computes what NumPy does
where the two libraries differ in a value.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import numpy as np

from tests.cupy_double import kernels

_TABLE: dict[str, Any] = json.loads(
    Path(__file__).with_name("table.json").read_text("utf-8")
)
_MODULES: dict[str, dict[str, Any]] = _TABLE["modules"]
_NUMBERS = (int, float, complex, bool, np.generic)


# ---- to NumPy and back ----


def _inner(value: Any) -> Any:
    """Replace arrays of the double by those that hold their elements."""
    if isinstance(value, ndarray):
        return value._array
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(map(_inner, value))
    if isinstance(value, dict):
        return {key: _inner(v) for key, v in value.items()}
    return value


def _outer(value: Any, sources: Iterable[Any] = ()) -> Any:
    """Make arrays of the double of NumPy's arrays and scalars, as CuPy returns them."""
    if isinstance(value, np.ndarray | np.generic):
        return ndarray._of(np.asarray(value), sources)
    if isinstance(value, list | tuple):
        parts = [_outer(v, sources) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _memory(array: np.ndarray) -> Any:
    """Return the array that owns the memory of an array of NumPy."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _refuse_numpy(values: Iterable[Any], what: str) -> None:
    """Raise for arrays of NumPy among arguments, and for arrays of other libraries."""
    for value in values:
        if isinstance(value, list | tuple):
            _refuse_numpy(value, what)
        elif isinstance(value, np.ndarray) or (
            hasattr(value, "__array_ufunc__")
            and not isinstance(value, ndarray | np.generic)
        ):
            raise TypeError(f"{what}: Unsupported type {type(value)}")


def _checked_dtype(array: np.ndarray) -> np.ndarray:
    if array.dtype.char not in "?bBhHiIlLqQefdFD":
        raise ValueError(f"Unsupported dtype {array.dtype}")
    return array


# What each recording of a stream that is open has to do again.
_recordings: list[list[Callable[[], None]]] = []


def _note(action: Callable[[], None]) -> None:
    for recording in _recordings:
        recording.append(action)


def _done(
    compute: Callable[[], Any], out: Any = None, sources: Iterable[Any] = ()
) -> Any:
    """Compute a result; a recorded graph computes it again into the same memory."""
    found = compute()
    if out is None:
        result = _outer(found, sources)
        if isinstance(found, np.ndarray | np.generic):
            _note(lambda: _write(result, compute()))
        elif isinstance(found, tuple):
            _note(lambda: _write_all(result, compute()))
        return result
    if not isinstance(out, ndarray):
        raise TypeError("return arrays must be of ArrayType")
    if not np.can_cast(found.dtype, out.dtype, "same_kind"):
        raise TypeError(f"an output of dtype {out.dtype} cannot hold {found.dtype}")
    _write(out, found)
    _note(lambda: _write(out, compute()))
    return out


def _write(target: Any, value: Any) -> None:
    target._array[...] = value


def _write_all(targets: Any, values: Any) -> None:
    for target, value in zip(targets, values, strict=True):
        if isinstance(target, ndarray):
            _write(target, value)


def _signature(parameters: str) -> inspect.Signature:
    found: Callable[..., Any] = eval(f"lambda {parameters}: None")  # our table
    return inspect.signature(found)


# ---- ufuncs ----

# The dtypes of `ufunc.at`. Source: _scatter_op_default in cupy/_core/_routines_indexing.pyx
# of CuPy 14.
_AT = {
    "add": "iIlLqQefd",
    "sub": "iI",
    "max": "iIlLqQfd",
    "min": "iIlLqQfd",
    "and": "iIlLqQ",
    "or": "iIlLqQ",
    "xor": "iIlLqQ",
}


class ufunc:  # noqa: N801  # CuPy's name
    """A function of elements, with the loops and methods that CuPy has."""

    def __init__(self, name: str, row: dict[str, Any], numpys: Any) -> None:
        self.__name__ = name
        self.name: str = row["name"]
        self.types: list[str] = row["loops"]
        self.nin = len(self.types[0].partition("->")[0])
        self.nout = len(self.types[0].partition("->")[2])
        self._numpys = numpys
        self._at = row["at"]

    def __repr__(self) -> str:
        return f"<ufunc '{self.name}'>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for value in args:
            if hasattr(value, "__cupy_override_elementwise_kernel__"):
                return value.__cupy_override_elementwise_kernel__(self, *args, **kwargs)
        out = kwargs.pop("out", None)
        out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
        dtype = kwargs.pop("dtype", None)
        kwargs.pop("casting", None)
        if kwargs:
            raise TypeError(f"Wrong arguments {kwargs}")
        if not self.nin <= len(args) <= self.nin + self.nout:
            raise TypeError(f"Wrong number of arguments for {self.name!r}")
        inputs, outs = args[: self.nin], args[self.nin :]
        for value in inputs:
            if not isinstance(value, (ndarray, *_NUMBERS)):
                raise TypeError(f"Unsupported type {type(value)}")
        loop = self._loop(inputs) if dtype is None else None
        return self._run(inputs, outs[0] if outs else out, dtype, loop)

    def _run(self, inputs: Any, out: Any, dtype: Any, loop: str | None) -> Any:
        given = [_inner(x) for x in inputs]

        def compute() -> Any:
            with np.errstate(all="ignore"):
                more = {} if dtype is None else {"dtype": dtype}
                found = self._numpys(*given, **more)
            results = found if isinstance(found, tuple) else (found,)
            if loop is not None:
                results = tuple(
                    np.asarray(r).astype(t, copy=False)
                    for r, t in zip(results, loop, strict=True)
                )
            return results if self.nout > 1 else results[0]

        return _done(compute, out)

    def _loop(self, inputs: Any) -> str:
        """Return the dtypes of the results of the first loop that takes these inputs.

        Source: _Ops._guess_routine_from_in_types in cupy/_core/_kernel.pyx of CuPy 14.
        """
        is_weak = [type(x) in (int, float, complex, bool) for x in inputs]
        dtypes = [
            x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype for x in inputs
        ]
        weak = [_score(d) for d, w in zip(dtypes, is_weak, strict=True) if w]
        strong = [_score(d) for d, w in zip(dtypes, is_weak, strict=True) if not w]
        uses_weak = bool(weak) and bool(strong) and max(strong) >= max(weak)
        for loop in self.types:
            takes, _, gives = loop.partition("->")
            if all(
                np.can_cast(d, t)
                or (uses_weak and w and np.result_type(type(x)(0), np.dtype(t)) == t)
                for x, d, w, t in zip(inputs, dtypes, is_weak, takes, strict=True)
            ):
                return gives
        raise TypeError(f"Wrong type ({dtypes}) of arguments for {self.name}")

    def outer(self, a: Any, b: Any, **kwargs: Any) -> Any:
        """Apply the ufunc to all pairs of elements."""
        a, b = array(a), array(b)
        rows = a.reshape(a.shape + (1,) * b.ndim)
        return self(rows, b.reshape((1,) * a.ndim + b.shape), **kwargs)

    def at(self, a: Any, indices: Any, b: Any = None) -> None:
        """Apply the ufunc in place at the given places."""
        if self._at is None:
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        if a.dtype.char not in _AT[self._at]:
            raise TypeError(f"{self.name}.at does not support {a.dtype} as data type")
        b = array(b, dtype=a.dtype)
        self._numpys.at(a._array, _inner(indices), _inner(b))

    def reduce(
        self,
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
    ) -> Any:
        """Reduce an array along axes."""
        if self.__name__ == "add":
            return array.sum(axis, dtype, out, keepdims)
        if self.__name__ == "multiply":
            return array.prod(axis, dtype, out, keepdims)
        raise NotImplementedError(f"`{self.name}.reduce` is not supported yet")

    def accumulate(
        self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None
    ) -> Any:
        """Accumulate an array along an axis."""
        if self.__name__ == "add":
            return array.cumsum(axis, dtype, out)
        if self.__name__ == "multiply":
            return array.cumprod(axis, dtype, out)
        raise NotImplementedError(f"`{self.name}.accumulate` is not supported yet")

    def reduceat(
        self,
        array: Any,
        indices: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
    ) -> Any:
        """Reduce parts of an array."""
        if self.__name__ == "add":
            found = np.add.reduceat(_inner(array), _inner(indices), axis, dtype)
            return _outer(found)
        raise NotImplementedError(f"`{self.name}.reduceat` is not supported yet")


def _score(dtype: Any) -> int:
    """Return the rank of a dtype when CuPy decides whether Python numbers are weak."""
    return "?iuf".find({"b": "?", "u": "i", "c": "f"}.get(dtype.kind, dtype.kind))


# ---- functions ----

# Functions that copy arrays of NumPy to the device.
_COPIES = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
# Parameters that NumPy's functions do not have.
_OF_CUPY = ("blocking", "stream", "allow_singular")


def _function(name: str, parameters: str, numpys: Callable[..., Any]) -> Any:
    """Make a function with CuPy's parameters that computes what NumPy does."""
    signature = _signature(parameters)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"cupy.{name}() {error}") from None
        _refuse_numpy((*args, *kwargs.values()), f"cupy.{name}")
        out = kwargs.pop("out", None)
        given = (
            _inner(args),
            _inner({k: v for k, v in kwargs.items() if k not in _OF_CUPY}),
        )

        def compute() -> Any:
            with np.errstate(all="ignore"):
                return numpys(*given[0], **given[1])

        return _done(compute, out, [*_arrays_in(args)])

    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    call.__module__ = "cupy"
    return call


def _arrays_in(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _arrays_in(value)
        elif isinstance(value, ndarray):
            yield value


def array(obj: Any, dtype: Any = None, copy: Any = True, **kwargs: Any) -> Any:
    """Copy a value to the device."""
    if isinstance(obj, ndarray) and not copy and dtype in (None, obj.dtype):
        return obj
    kwargs.pop("blocking", None)
    return _outer(_checked_dtype(np.array(_inner(obj), dtype=dtype, **kwargs)))


def asarray(a: Any, dtype: Any = None, order: Any = None, **kwargs: Any) -> Any:
    """Copy a value to the device unless it is there."""
    return array(a, dtype, kwargs.pop("copy", None), order=order, **kwargs)


def asnumpy(a: Any, *args: Any, **kwargs: Any) -> Any:
    """Copy an array to NumPy."""
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Select elements; a ufunc does it, which arrays of other libraries can override."""
    if (x is None) != (y is None):
        raise ValueError("Must provide both 'x' and 'y' or neither.")
    if x is None:
        return condition.nonzero()
    if isinstance(condition, *_SCALARS):
        condition = asarray(condition)
    return _WHERE(condition.astype("?", copy=False), x, y)


_SCALARS = (_NUMBERS,)
_LOOPS = "?bBhHiIlLqQefdFD"
_WHERE = ufunc(
    "where",
    {"name": "cupy_where", "loops": [f"?{c}{c}->{c}" for c in _LOOPS], "at": None},
    np.where,
)


# ---- arrays ----


class ndarray:  # noqa: N801  # CuPy's name
    """An array with CuPy's methods and protocols."""

    __slots__ = ("__weakref__", "_array", "base")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]  # == is elementwise
    __module__ = "cupy"

    _array: Any
    base: ndarray | None

    def __new__(cls, shape: Any, dtype: Any = float, **kwargs: Any) -> Self:
        """Make an array with any elements."""
        return cls._of(np.empty(shape, dtype, kwargs.get("order", "C")))

    @classmethod
    def _of(cls, array: np.ndarray, sources: Iterable[Any] = ()) -> ndarray:
        made = object.__new__(cls)
        made._array = array
        memory = _memory(array)
        owner = next((s for s in sources if _memory(s._array) is memory), None)
        is_view = owner is not None and owner.base is not None
        made.base = owner.base if is_view else owner
        if owner is not None and not array.flags.writeable:
            array.flags.writeable = True  # CuPy's views can be written
        return made

    # ---- structure ----

    shape = property(lambda self: self._array.shape)
    dtype = property(lambda self: self._array.dtype)
    ndim = property(lambda self: self._array.ndim)
    size = property(lambda self: self._array.size)
    itemsize = property(lambda self: self._array.itemsize)
    nbytes = property(lambda self: self._array.nbytes)
    strides = property(lambda self: self._array.strides)
    flags = property(lambda self: self._array.flags)
    device = property(lambda _: cuda.Device())
    T = property(lambda self: _outer(self._array.T, [self]))
    mT = property(lambda self: _outer(self._array.mT, [self]))  # noqa: N815  # NumPy's name
    flat = property(lambda self: self.ravel())

    @property
    def real(self) -> Any:
        """The real parts."""
        return _outer(self._array.real, [self])

    @property
    def imag(self) -> Any:
        """The imaginary parts."""
        return _outer(self._array.imag, [self])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self._array.__array_interface__)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return array, (self.get(),)

    # ---- to the host ----

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to"
            " construct a NumPy array explicitly."
        )

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Copy the array to NumPy."""
        return self._array.copy()

    def item(self) -> Any:
        """Return the only element as a number of Python."""
        return self._array.item()

    def tolist(self) -> Any:
        """Return the elements as nested lists."""
        return self._array.tolist()

    def __bool__(self) -> bool:
        return bool(self._array)

    def __int__(self) -> int:
        return int(self._array)

    def __float__(self) -> float:
        return float(self._array)

    def __complex__(self) -> complex:
        return complex(self._array)

    def __index__(self) -> int:
        return self._array.__index__()

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return repr(self._array)

    # ---- elements ----

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if all(isinstance(k, _BASIC) for k in parts) and ... not in parts:
            return _outer(self._array[(*parts, ...)], [self])
        inner = _inner(key)
        return _done(lambda: self._array[inner], sources=[self])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.shape:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        inner, new = _inner(key), _inner(value)

        def write() -> None:
            self._array[inner] = new

        write()
        _note(write)

    # ---- NumPy's protocols ----
    # Source: cupy/_core/core.pyx of CuPy 14.

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        values = inputs
        if "out" in kwargs:
            if len(kwargs["out"]) != 1:
                raise ValueError(
                    "The 'out' parameter must have exactly one array value"
                )
            values += kwargs["out"]
            kwargs["out"] = kwargs["out"][0]
        name = ufunc.__name__
        found = getattr(_module, name, None) or getattr(_special(), name, None)
        found = found if method == "__call__" else getattr(found, method, None)
        if found is None:
            return NotImplemented
        for value in values:
            if not isinstance(value, (*_NUMBERS, ndarray, np.ndarray)):
                return NotImplemented
        if name.startswith(("greater", "less", "equal", "not_equal")):
            inputs = tuple(_item_of(x) for x in inputs)
        return found(*inputs, **kwargs)

    def __array_function__(
        self, function: Any, classes: Any, args: Any, kwargs: Any
    ) -> Any:
        path = [*function.__module__.split(".")[1:], function.__name__]
        try:
            found = functools.reduce(getattr, path, _module)
        except AttributeError:
            return NotImplemented
        if found is function:
            return NotImplemented
        if not all(issubclass(cls, ndarray | np.ndarray) for cls in classes):
            return NotImplemented
        return found(*args, **kwargs)


_BASIC = (int, slice, type(None), type(...), np.integer)


def _item_of(value: Any) -> Any:
    is_number = isinstance(value, np.ndarray) and not value.shape
    return value.item() if is_number else value


def _operator(numpys: Any, *, is_reflected: bool) -> Any:
    def operate(self: Any, other: Any) -> Any:
        if not isinstance(other, ndarray):
            protocol = getattr(other, "__array_ufunc__", numpys)
            if protocol is None:
                return NotImplemented
            if protocol is numpys and getattr(other, "__array_priority__", 0) > 100:
                return NotImplemented
        return numpys(other, self) if is_reflected else numpys(self, other)

    return operate


def _in_place(numpys: Any) -> Any:
    def operate(self: Any, other: Any) -> Any:
        if not isinstance(other, (ndarray, *_NUMBERS)):
            return NotImplemented
        return numpys(self, other, out=self)

    return operate


def _method(name: str, parameters: str) -> Any:
    signature = _signature(parameters)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"cupy.ndarray.{name}() {error}") from None
        if name != "fill":
            _refuse_numpy((*args, *kwargs.values()), f"cupy.ndarray.{name}")
        out = kwargs.pop("out", None)
        given = _inner(args), _inner(kwargs)
        return _done(
            lambda: getattr(self._array, name)(*given[0], **given[1]), out, [self]
        )

    return call


def _complete_class() -> None:
    """Give the class of arrays Python's operators, and the methods of the table."""
    binary = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "truediv": np.true_divide,
        "floordiv": np.floor_divide,
        "mod": np.remainder,
        "pow": np.power,
        "matmul": np.matmul,
        "lshift": np.left_shift,
        "rshift": np.right_shift,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "divmod": np.divmod,
    }
    for name, function in binary.items():
        setattr(ndarray, f"__{name}__", _operator(function, is_reflected=False))
        setattr(ndarray, f"__r{name}__", _operator(function, is_reflected=True))
        setattr(ndarray, f"__i{name}__", _in_place(function))
    compare = {"lt": np.less, "le": np.less_equal, "gt": np.greater}
    compare |= {"ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}
    for name, function in compare.items():
        setattr(ndarray, f"__{name}__", _operator(function, is_reflected=False))
    unary = {"neg": np.negative, "pos": np.positive, "abs": np.absolute}
    for name, function in {**unary, "invert": np.invert}.items():
        setattr(ndarray, f"__{name}__", lambda x, u=function: u(x))
    for name, row in _TABLE["ndarray"].items():
        if row and not hasattr(ndarray, name) and hasattr(np.ndarray, name):
            setattr(ndarray, name, _method(name, row["parameters"]))


_complete_class()


# ---- kernels that users write ----


class ElementwiseKernel:
    """A kernel of one element, in CUDA C."""

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        *,
        preamble: str = "",
        options: tuple[str, ...] = (),
    ) -> None:
        self._inputs = [tuple(p.split()) for p in in_params.split(", ")]
        self._output = tuple(out_params.split())
        self._operation, self._preamble, self.name = operation, preamble, name

    def __call__(self, *args: Any) -> Any:
        for (dtype, name), value in zip(self._inputs, args, strict=True):
            if not isinstance(value, (ndarray, *_NUMBERS)):
                raise TypeError(f"Unsupported type {type(value)}")
            if isinstance(value, ndarray) and value.dtype != dtype:
                raise TypeError(f"Type is mismatched. {name} {value.dtype} {dtype}")
        given = [_inner(v) for v in args]
        return _done(
            lambda: kernels.run_elements(
                self._inputs, self._output, self._operation, self._preamble, given
            )
        )


class RawKernel:
    """A kernel of one thread, in CUDA C."""

    def __init__(self, code: str, name: str, **kwargs: Any) -> None:
        self._code, self._name = code, name

    def __call__(self, grid: Any, block: Any, args: Any) -> None:
        _refuse_numpy(args, f"cupy.RawKernel {self._name}")
        given = [_inner(v) for v in args]

        def run() -> None:
            kernels.run_threads(self._code, self._name, grid, block, given)

        run()
        _note(run)


# ---- streams and graphs ----


class Stream:
    """A stream, whose work is done when it is asked for."""

    def __init__(self, **kwargs: Any) -> None:
        self._recording: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        _streams.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _streams.remove(self)

    def synchronize(self) -> None:
        """Wait for nothing, unless the stream records: CUDA raises there."""
        if any(self._recording is r for r in _recordings):
            raise RuntimeError("cudaErrorStreamCaptureUnsupported")

    def record(self) -> object:
        """Return an event."""
        return object()

    def wait_event(self, event: object) -> None:
        """Wait for nothing."""

    def begin_capture(self) -> None:
        """Record the work from here on."""
        self._recording = []
        _recordings.append(self._recording)

    def end_capture(self) -> Any:
        """Return the work since the beginning of the recording, as a graph."""
        recording = self._recording
        _recordings[:] = [r for r in _recordings if r is not recording]
        return SimpleNamespace(launch=lambda stream=None: [do() for do in recording])


_streams: list[Stream] = [Stream()]


@contextmanager
def _using_allocator(allocator: Any) -> Iterator[None]:
    yield


class CUDARuntimeError(RuntimeError):
    """The error of CUDA's functions."""


class Device:
    """The only device."""

    id = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "<CUDA Device 0>"


cuda = SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError,
    Device=Device,
    MemoryPool=lambda: SimpleNamespace(malloc=None),
    Stream=Stream,
    get_current_stream=lambda: _streams[-1],
    runtime=SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError, getDeviceCount=lambda: 1
    ),
    using_allocator=_using_allocator,
)


# ---- the modules ----

# What is written above, by its name in CuPy.
_OWN = {
    "ElementwiseKernel": ElementwiseKernel,
    "RawKernel": RawKernel,
    "array": array,
    "asarray": asarray,
    "asanyarray": asarray,
    "asnumpy": asnumpy,
    "cuda": cuda,
    "ndarray": ndarray,
    "ufunc": ufunc,
    "where": where,
}


def _made(name: str, row: Any, numpys: ModuleType) -> Any:
    """Return what stands for a name of CuPy, or None where NumPy has nothing to do it."""
    own = getattr(numpys, name.rpartition(".")[2], None)
    if own is None:
        return None
    if row == "":
        return own
    if "loops" in row:
        return ufunc(name, row, own)
    return _function(name, row["parameters"], own)


def _module_of(path: str, numpys: ModuleType) -> ModuleType:
    """Make the double of a module."""
    found = ModuleType(path)
    prefix = path.removeprefix("cupy").lstrip(".")
    for name, row in _MODULES[path].items():
        value = _made(f"{prefix}.{name}" if prefix else name, row, numpys)
        if value is not None:
            setattr(found, name, value)
    return found


def _modules() -> dict[str, ModuleType]:
    """Make the modules of the double, by their names."""
    root = _module_of("cupy", np)
    vars(root).update(_OWN, __version__=f"{_TABLE['version']}.double", __path__=[])
    root.__spec__ = ModuleSpec("cupy", None)
    parts = {"cupy": root}
    for name in ("fft", "linalg", "random"):
        parts[f"cupy.{name}"] = _module_of(f"cupy.{name}", getattr(np, name))
        setattr(root, name, parts[f"cupy.{name}"])
    tricks = _module_of("cupy.lib.stride_tricks", np.lib.stride_tricks)
    vars(root)["lib"] = SimpleNamespace(stride_tricks=tricks)
    return parts


_MADE = _modules()
_module: Any = _MADE["cupy"]


@functools.cache
def _special() -> ModuleType:
    """Make cupyx.scipy.special, of which NumPy's ufuncs of that name are found."""
    return _module_of("cupyx.scipy.special", import_module("scipy.special"))


@contextmanager
def installed() -> Iterator[Any]:
    """Let ``import cupy`` give the double; restore what was there."""
    before = {name: sys.modules.get(name) for name in _MADE}
    sys.modules.update(_MADE)
    try:
        yield _module
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
