"""Types for CuPy, which has none: the names that this project uses.

tests/typing/test_cupy_stubs.py compares the stub with CuPy. A result is `Any` if its type
depends on values, such as the dtype of elements or the source of a kernel.
"""

from collections.abc import Iterator, Sequence
from types import EllipsisType, ModuleType
from typing import Any, ClassVar, Literal, NoReturn, SupportsIndex, TypeAlias, overload

import numpy
import numpy.typing as npt
# Dtypes and constants are those of NumPy.
from numpy import (
    bool_ as bool_,
    complex64 as complex64,
    complex128 as complex128,
    e as e,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    inf as inf,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    intp as intp,
    nan as nan,
    newaxis as newaxis,
    pi as pi,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from typing_extensions import disjoint_base

from cupy import cuda as cuda
from cupy import linalg as linalg
from cupy import random as random
from cupy import testing as testing

_DType: TypeAlias = npt.DTypeLike
_Shape: TypeAlias = int | Sequence[int]
_Axis: TypeAlias = int | Sequence[int] | None
# NumPy arrays are not operands: CuPy does not copy them to a device by itself.
_Operand: TypeAlias = ndarray | numpy.generic | complex
_Key: TypeAlias = (
    SupportsIndex | slice[Any, Any, Any] | EllipsisType | ndarray | Sequence[Any] | None
)
_Order: TypeAlias = Literal["C", "F", "A", "K"] | None
_Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
_Sections: TypeAlias = int | Sequence[int]

__version__: str

class _Flags:
    @property
    def c_contiguous(self) -> bool: ...
    @property
    def f_contiguous(self) -> bool: ...
    @property
    def owndata(self) -> bool: ...
    @property
    def fnc(self) -> bool: ...
    @property
    def forc(self) -> bool: ...
    def __getitem__(self, name: str) -> bool: ...

class ndarray:
    base: ndarray | None
    @property
    def data(self) -> cuda.MemoryPointer: ...
    @property
    def dtype(self) -> numpy.dtype[Any]: ...
    @property
    def size(self) -> int: ...
    def __init__(
        self,
        shape: _Shape,
        dtype: _DType = ...,
        memptr: cuda.MemoryPointer | None = None,
        strides: Sequence[int] | None = None,
        order: _Order = "C",
    ) -> None: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @shape.setter
    def shape(self, shape: _Shape) -> None: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def flags(self) -> _Flags: ...
    @property
    def device(self) -> cuda.Device: ...
    @property
    def T(self) -> ndarray: ...
    @property
    def real(self) -> ndarray: ...
    @real.setter
    def real(self, value: _Operand) -> None: ...
    @property
    def imag(self) -> ndarray: ...
    @imag.setter
    def imag(self, value: _Operand) -> None: ...
    @property
    def flat(self) -> Any: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    # ---- to the host, and between dtypes ----
    def get(
        self,
        stream: cuda.Stream | None = None,
        order: _Order = "C",
        out: npt.NDArray[Any] | None = None,
        blocking: bool = True,
    ) -> npt.NDArray[Any]: ...
    def set(self, arr: npt.NDArray[Any], stream: cuda.Stream | None = None) -> None: ...
    def item(self) -> Any: ...
    def tolist(self) -> Any: ...
    def tobytes(self, order: _Order = "C") -> bytes: ...
    def astype(
        self,
        dtype: _DType,
        order: _Order = "K",
        casting: _Casting | None = None,
        subok: bool | None = None,
        copy: bool = True,
    ) -> ndarray: ...
    def copy(self, order: _Order = "C") -> ndarray: ...
    def view(
        self, dtype: _DType | None = None, type: type[ndarray] | None = None
    ) -> ndarray: ...
    def fill(self, value: _Operand) -> None: ...
    # ---- shape ----
    @overload
    def reshape(self, shape: Sequence[int], /, *, order: _Order = "C") -> ndarray: ...
    @overload
    def reshape(self, *shape: int, order: _Order = "C") -> ndarray: ...
    @overload
    def transpose(self, axes: Sequence[int] | None, /) -> ndarray: ...
    @overload
    def transpose(self, *axes: int) -> ndarray: ...
    def ravel(self, order: _Order = "C") -> ndarray: ...
    def flatten(self, order: _Order = "C") -> ndarray: ...
    def squeeze(self, axis: _Axis = None) -> ndarray: ...
    def swapaxes(self, axis1: int, axis2: int) -> ndarray: ...
    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray: ...
    def take(
        self, indices: _Key, axis: int | None = None, out: ndarray | None = None
    ) -> ndarray: ...
    def repeat(
        self, repeats: int | Sequence[int], axis: int | None = None
    ) -> ndarray: ...
    def nonzero(self) -> tuple[ndarray, ...]: ...
    def sort(self, axis: int = -1, *, kind: str | None = None) -> None: ...
    def argsort(self, axis: int | None = -1, *, kind: str | None = None) -> ndarray: ...
    # ---- reductions: arrays without axes where NumPy gives scalars ----
    def sum(
        self,
        axis: _Axis = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
        keepdims: bool = False,
    ) -> ndarray: ...
    def prod(
        self,
        axis: _Axis = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
        keepdims: bool | None = None,
    ) -> ndarray: ...
    def mean(
        self,
        axis: _Axis = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
        keepdims: bool = False,
    ) -> ndarray: ...
    def std(
        self,
        axis: _Axis = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
        ddof: int = 0,
        keepdims: bool = False,
    ) -> ndarray: ...
    def var(
        self,
        axis: _Axis = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
        ddof: int = 0,
        keepdims: bool = False,
    ) -> ndarray: ...
    def max(
        self, axis: _Axis = None, out: ndarray | None = None, keepdims: bool = False
    ) -> ndarray: ...
    def min(
        self, axis: _Axis = None, out: ndarray | None = None, keepdims: bool = False
    ) -> ndarray: ...
    def argmax(
        self,
        axis: int | None = None,
        out: ndarray | None = None,
        dtype: _DType | None = None,
        keepdims: bool = False,
    ) -> ndarray: ...
    def argmin(
        self,
        axis: int | None = None,
        out: ndarray | None = None,
        dtype: _DType | None = None,
        keepdims: bool = False,
    ) -> ndarray: ...
    def all(
        self, axis: _Axis = None, out: ndarray | None = None, keepdims: bool = False
    ) -> ndarray: ...
    def any(
        self, axis: _Axis = None, out: ndarray | None = None, keepdims: bool = False
    ) -> ndarray: ...
    def cumsum(
        self,
        axis: int | None = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
    ) -> ndarray: ...
    def cumprod(
        self,
        axis: int | None = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
    ) -> ndarray: ...
    def trace(
        self,
        offset: int = 0,
        axis1: int = 0,
        axis2: int = 1,
        dtype: _DType | None = None,
        out: ndarray | None = None,
    ) -> ndarray: ...
    def clip(
        self,
        min: _Operand | None = None,
        max: _Operand | None = None,
        out: ndarray | None = None,
    ) -> ndarray: ...
    def round(self, decimals: int = 0, out: ndarray | None = None) -> ndarray: ...
    def conj(self) -> ndarray: ...
    def dot(self, b: ndarray, out: ndarray | None = None) -> ndarray: ...
    # ---- operators ----
    def __add__(self, other: _Operand, /) -> ndarray: ...
    def __radd__(self, other: _Operand, /) -> ndarray: ...
    def __iadd__(self, other: _Operand, /) -> ndarray: ...
    def __sub__(self, other: _Operand, /) -> ndarray: ...
    def __rsub__(self, other: _Operand, /) -> ndarray: ...
    def __isub__(self, other: _Operand, /) -> ndarray: ...
    def __mul__(self, other: _Operand, /) -> ndarray: ...
    def __rmul__(self, other: _Operand, /) -> ndarray: ...
    def __imul__(self, other: _Operand, /) -> ndarray: ...
    def __truediv__(self, other: _Operand, /) -> ndarray: ...
    def __rtruediv__(self, other: _Operand, /) -> ndarray: ...
    def __itruediv__(self, other: _Operand, /) -> ndarray: ...
    def __floordiv__(self, other: _Operand, /) -> ndarray: ...
    def __rfloordiv__(self, other: _Operand, /) -> ndarray: ...
    def __ifloordiv__(self, other: _Operand, /) -> ndarray: ...
    def __mod__(self, other: _Operand, /) -> ndarray: ...
    def __rmod__(self, other: _Operand, /) -> ndarray: ...
    def __imod__(self, other: _Operand, /) -> ndarray: ...
    def __divmod__(self, other: _Operand, /) -> tuple[ndarray, ndarray]: ...
    def __rdivmod__(self, other: _Operand, /) -> tuple[ndarray, ndarray]: ...
    def __pow__(self, other: _Operand, mod: None = None, /) -> ndarray: ...
    def __rpow__(self, other: _Operand, mod: None = None, /) -> ndarray: ...
    def __ipow__(self, other: _Operand, /) -> ndarray: ...  # type: ignore[misc]  # CuPy takes no third argument
    def __matmul__(self, other: ndarray, /) -> ndarray: ...
    def __rmatmul__(self, other: ndarray, /) -> ndarray: ...
    def __lshift__(self, other: _Operand, /) -> ndarray: ...
    def __rlshift__(self, other: _Operand, /) -> ndarray: ...
    def __rshift__(self, other: _Operand, /) -> ndarray: ...
    def __rrshift__(self, other: _Operand, /) -> ndarray: ...
    def __and__(self, other: _Operand, /) -> ndarray: ...
    def __rand__(self, other: _Operand, /) -> ndarray: ...
    def __iand__(self, other: _Operand, /) -> ndarray: ...
    def __or__(self, other: _Operand, /) -> ndarray: ...
    def __ror__(self, other: _Operand, /) -> ndarray: ...
    def __ior__(self, other: _Operand, /) -> ndarray: ...
    def __xor__(self, other: _Operand, /) -> ndarray: ...
    def __rxor__(self, other: _Operand, /) -> ndarray: ...
    def __ixor__(self, other: _Operand, /) -> ndarray: ...
    def __neg__(self) -> ndarray: ...
    def __pos__(self) -> ndarray: ...
    def __abs__(self) -> ndarray: ...
    def __invert__(self) -> ndarray: ...
    def __lt__(self, other: _Operand, /) -> ndarray: ...
    def __le__(self, other: _Operand, /) -> ndarray: ...
    def __gt__(self, other: _Operand, /) -> ndarray: ...
    def __ge__(self, other: _Operand, /) -> ndarray: ...
    # Comparison is elementwise, so arrays cannot be hashed.
    def __eq__(self, other: object, /) -> ndarray: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
    def __ne__(self, other: object, /) -> ndarray: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
    __hash__: ClassVar[None]  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleMethodOverride]
    def __getitem__(self, key: _Key, /) -> ndarray: ...
    def __setitem__(self, key: _Key, value: _Operand | Sequence[Any], /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[ndarray]: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    # It always raises: only `get` copies an array to the host.
    def __array__(self, dtype: _DType | None = None) -> NoReturn: ...

@disjoint_base
class ufunc:
    @property
    def name(self) -> str: ...
    @property
    def nin(self) -> int: ...
    @property
    def nout(self) -> int: ...
    @property
    def nargs(self) -> int: ...
    @property
    def types(self) -> list[str]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def at(self, a: ndarray, indices: _Key, b: _Operand | None = None) -> None: ...
    def reduce(
        self,
        array: ndarray,
        axis: _Axis = 0,
        dtype: _DType | None = None,
        out: ndarray | None = None,
        keepdims: bool = False,
    ) -> ndarray: ...
    def accumulate(
        self,
        array: ndarray,
        axis: int = 0,
        dtype: _DType | None = None,
        out: ndarray | None = None,
    ) -> ndarray: ...
    def outer(self, A: _Operand, B: _Operand, **kwargs: Any) -> ndarray: ...

# Operands may all be numbers; the result is on the current device.
class _Unary(ufunc):
    def __call__(
        self,
        x: _Operand,
        /,
        out: ndarray | None = None,
        *,
        casting: _Casting = "same_kind",
        dtype: _DType | None = None,
    ) -> ndarray: ...

class _Binary(ufunc):
    def __call__(
        self,
        x1: _Operand,
        x2: _Operand,
        /,
        out: ndarray | None = None,
        *,
        casting: _Casting = "same_kind",
        dtype: _DType | None = None,
    ) -> ndarray: ...

class _Matmul:
    def __call__(
        self,
        x1: ndarray,
        x2: ndarray,
        /,
        *,
        axes: Sequence[tuple[int, ...]] | None = None,
        axis: int | None = None,
        keepdims: bool = False,
        casting: _Casting = "same_kind",
        dtype: _DType | None = None,
        signature: Any = None,
        order: _Order = "K",
        out: ndarray | None = None,
    ) -> ndarray: ...

class _TwoOfOne(ufunc):
    def __call__(self, x: _Operand, /) -> tuple[ndarray, ndarray]: ...

class _TwoOfTwo(ufunc):
    def __call__(self, x1: _Operand, x2: _Operand, /) -> tuple[ndarray, ndarray]: ...

# ---- ufuncs ----

abs: _Unary
absolute: _Unary
arccos: _Unary
arccosh: _Unary
arcsin: _Unary
arcsinh: _Unary
arctan: _Unary
arctanh: _Unary
cbrt: _Unary
ceil: _Unary
conj: _Unary
conjugate: _Unary
cos: _Unary
cosh: _Unary
deg2rad: _Unary
degrees: _Unary
exp: _Unary
exp2: _Unary
expm1: _Unary
fabs: _Unary
floor: _Unary
invert: _Unary
isfinite: _Unary
isinf: _Unary
isnan: _Unary
log: _Unary
log10: _Unary
log1p: _Unary
log2: _Unary
logical_not: _Unary
negative: _Unary
positive: _Unary
rad2deg: _Unary
radians: _Unary
reciprocal: _Unary
rint: _Unary
sign: _Unary
signbit: _Unary
sin: _Unary
sinc: _Unary
sinh: _Unary
sqrt: _Unary
square: _Unary
tan: _Unary
tanh: _Unary
trunc: _Unary

add: _Binary
arctan2: _Binary
bitwise_and: _Binary
bitwise_or: _Binary
bitwise_xor: _Binary
copysign: _Binary
divide: _Binary
equal: _Binary
float_power: _Binary
floor_divide: _Binary
fmax: _Binary
fmin: _Binary
fmod: _Binary
gcd: _Binary
greater: _Binary
greater_equal: _Binary
heaviside: _Binary
hypot: _Binary
lcm: _Binary
ldexp: _Binary
left_shift: _Binary
less: _Binary
less_equal: _Binary
logaddexp: _Binary
logaddexp2: _Binary
logical_and: _Binary
logical_or: _Binary
logical_xor: _Binary
maximum: _Binary
minimum: _Binary
mod: _Binary
multiply: _Binary
nextafter: _Binary
not_equal: _Binary
power: _Binary
remainder: _Binary
right_shift: _Binary
subtract: _Binary
true_divide: _Binary

divmod: _TwoOfTwo
frexp: _TwoOfOne
modf: _TwoOfOne
matmul: _Matmul

# ---- kernels: their source decides what they return ----

@disjoint_base
class RawKernel:
    def __init__(
        self,
        code: str,
        name: str,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        *,
        enable_cooperative_groups: bool = False,
        jitify: bool | None = None,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def options(self) -> tuple[str, ...]: ...
    @property
    def attributes(self) -> dict[str, int]: ...
    @property
    def max_threads_per_block(self) -> int: ...
    def compile(self, log_stream: Any = None) -> None: ...
    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
    ) -> None: ...

@disjoint_base
class RawModule:
    def __init__(
        self,
        code: str | None = None,
        *,
        path: str | None = None,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Sequence[str] | None = None,
        jitify: bool | None = None,
    ) -> None: ...
    def get_function(self, name: str) -> RawKernel: ...
    def get_global(self, name: str) -> cuda.MemoryPointer: ...
    def compile(self, log_stream: Any = None) -> None: ...

@disjoint_base
class ElementwiseKernel:
    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        no_return: bool = False,
        return_tuple: bool = False,
        **kwargs: Any,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def nin(self) -> int: ...
    @property
    def nout(self) -> int: ...
    def __call__(
        self, *args: _Operand, size: int | None = None, block_size: int = 128
    ) -> Any: ...

@disjoint_base
class ReductionKernel:
    def __init__(
        self,
        in_params: str,
        out_params: str,
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: str | None,
        name: str = "reduce_kernel",
        reduce_type: str | None = None,
        reduce_dims: bool = True,
        preamble: str = "",
        options: tuple[str, ...] = (),
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def nin(self) -> int: ...
    @property
    def nout(self) -> int: ...
    def __call__(
        self,
        *args: _Operand,
        out: ndarray | None = None,
        axis: _Axis = None,
        keepdims: bool = False,
        stream: cuda.Stream | None = None,
    ) -> Any: ...

# ---- making arrays ----

def array(
    obj: Any,
    dtype: _DType | None = None,
    copy: bool = True,
    order: _Order = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> ndarray: ...
def asarray(
    a: Any,
    dtype: _DType | None = None,
    order: _Order = None,
    *,
    copy: bool | None = None,
    blocking: bool = False,
) -> ndarray: ...
def ascontiguousarray(a: Any, dtype: _DType | None = None) -> ndarray: ...
def asfortranarray(a: Any, dtype: _DType | None = None) -> ndarray: ...
def asnumpy(
    a: Any,
    stream: cuda.Stream | None = None,
    order: _Order = "C",
    out: npt.NDArray[Any] | None = None,
    *,
    blocking: bool = True,
) -> npt.NDArray[Any]: ...
def copy(a: ndarray, order: _Order = "K") -> ndarray: ...
def empty(shape: _Shape, dtype: _DType = ..., order: _Order = "C") -> ndarray: ...
def zeros(shape: _Shape, dtype: _DType = ..., order: _Order = "C") -> ndarray: ...
def ones(shape: _Shape, dtype: _DType = ..., order: _Order = "C") -> ndarray: ...
def full(
    shape: _Shape,
    fill_value: _Operand,
    dtype: _DType | None = None,
    order: _Order = "C",
) -> ndarray: ...
def empty_like(
    prototype: ndarray,
    dtype: _DType | None = None,
    order: _Order = "K",
    subok: None = None,
    shape: _Shape | None = None,
) -> ndarray: ...
def zeros_like(
    a: ndarray,
    dtype: _DType | None = None,
    order: _Order = "K",
    subok: None = None,
    shape: _Shape | None = None,
) -> ndarray: ...
def ones_like(
    a: ndarray,
    dtype: _DType | None = None,
    order: _Order = "K",
    subok: None = None,
    shape: _Shape | None = None,
) -> ndarray: ...
def full_like(
    a: ndarray,
    fill_value: _Operand,
    dtype: _DType | None = None,
    order: _Order = "K",
    subok: None = None,
    shape: _Shape | None = None,
) -> ndarray: ...
def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: _DType = ...,
    order: _Order = "C",
) -> ndarray: ...
def identity(n: int, dtype: _DType = ...) -> ndarray: ...
def arange(
    start: complex,
    stop: complex | None = None,
    step: complex | None = 1,
    dtype: _DType | None = None,
) -> ndarray: ...
def linspace(
    start: _Operand,
    stop: _Operand,
    num: int = 50,
    endpoint: bool = True,
    retstep: Literal[False] = False,
    dtype: _DType | None = None,
    axis: int = 0,
) -> ndarray: ...

# ---- shape ----

def reshape(
    a: ndarray, newshape: _Shape, order: _Order = "C", *, copy: bool | None = None
) -> ndarray: ...
def ravel(a: ndarray, order: _Order = "C") -> ndarray: ...
def transpose(a: ndarray, axes: Sequence[int] | None = None) -> ndarray: ...
def moveaxis(a: ndarray, source: _Shape, destination: _Shape) -> ndarray: ...
def swapaxes(a: ndarray, axis1: int, axis2: int) -> ndarray: ...
def expand_dims(a: ndarray, axis: _Shape) -> ndarray: ...
def squeeze(a: ndarray, axis: _Axis = None) -> ndarray: ...
def broadcast_to(array: ndarray, shape: _Shape) -> ndarray: ...
def concatenate(
    tup: Sequence[ndarray],
    axis: int | None = 0,
    out: ndarray | None = None,
    *,
    dtype: _DType | None = None,
    casting: _Casting = "same_kind",
) -> ndarray: ...
def stack(
    tup: Sequence[ndarray],
    axis: int = 0,
    out: ndarray | None = None,
    *,
    dtype: _DType | None = None,
    casting: _Casting = "same_kind",
) -> ndarray: ...
def split(
    ary: ndarray, indices_or_sections: _Sections, axis: int = 0
) -> list[ndarray]: ...
def flip(a: ndarray, axis: _Axis = None) -> ndarray: ...
def roll(a: ndarray, shift: _Shape, axis: _Axis = None) -> ndarray: ...
def repeat(a: ndarray, repeats: _Shape, axis: int | None = None) -> ndarray: ...
def tile(A: ndarray, reps: _Shape) -> ndarray: ...
def pad(
    array: ndarray, pad_width: Any, mode: str = "constant", **kwargs: Any
) -> ndarray: ...

# ---- reductions, order, choice ----

def sum(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: bool = False,
) -> ndarray: ...
def prod(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: bool = False,
) -> ndarray: ...
def mean(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: bool = False,
) -> ndarray: ...
def std(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    ddof: int = 0,
    keepdims: bool = False,
) -> ndarray: ...
def var(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    ddof: int = 0,
    keepdims: bool = False,
) -> ndarray: ...
def max(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: bool = False
) -> ndarray: ...
def min(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: bool = False
) -> ndarray: ...
def argmax(
    a: ndarray,
    axis: int | None = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: bool = False,
) -> ndarray: ...
def argmin(
    a: ndarray,
    axis: int | None = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: bool = False,
) -> ndarray: ...
def all(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: bool = False
) -> ndarray: ...
def any(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: bool = False
) -> ndarray: ...
def cumsum(
    a: ndarray,
    axis: int | None = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
) -> ndarray: ...
def cumprod(
    a: ndarray,
    axis: int | None = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
) -> ndarray: ...
def sort(a: ndarray, axis: int | None = -1, kind: str | None = None) -> ndarray: ...
def argsort(a: ndarray, axis: int | None = -1, kind: str | None = None) -> ndarray: ...
def count_nonzero(a: ndarray, axis: _Axis = None) -> ndarray: ...
def nonzero(a: ndarray) -> tuple[ndarray, ...]: ...
def clip(
    a: ndarray,
    a_min: _Operand | None,
    a_max: _Operand | None,
    out: ndarray | None = None,
) -> ndarray: ...
@overload
def where(
    condition: ndarray, x: None = None, y: None = None
) -> tuple[ndarray, ...]: ...
@overload
def where(condition: ndarray, x: _Operand, y: _Operand) -> ndarray: ...
def take(
    a: ndarray, indices: _Key, axis: int | None = None, out: ndarray | None = None
) -> ndarray: ...
def diff(
    a: ndarray,
    n: int = 1,
    axis: int = -1,
    prepend: _Operand | None = None,
    append: _Operand | None = None,
) -> ndarray: ...
def diag(v: ndarray, k: int = 0) -> ndarray: ...
def tril(m: ndarray, k: int = 0) -> ndarray: ...
def triu(m: ndarray, k: int = 0) -> ndarray: ...
def round(a: ndarray, decimals: int = 0, out: ndarray | None = None) -> ndarray: ...
def real(val: ndarray) -> ndarray: ...
def imag(val: ndarray) -> ndarray: ...

# ---- products ----

def dot(a: ndarray, b: ndarray, out: ndarray | None = None) -> ndarray: ...
def outer(a: ndarray, b: ndarray, out: ndarray | None = None) -> ndarray: ...
def tensordot(a: ndarray, b: ndarray, axes: Any = 2) -> ndarray: ...
def einsum(*operands: Any, **kwargs: Any) -> ndarray: ...

# ---- comparing ----

def isclose(
    a: ndarray,
    b: _Operand,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> ndarray: ...
def allclose(
    a: ndarray,
    b: _Operand,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> ndarray: ...
def array_equal(a1: ndarray, a2: ndarray, equal_nan: bool = False) -> ndarray: ...
def shares_memory(a: ndarray, b: ndarray, max_work: int | None = None) -> bool: ...
def may_share_memory(a: ndarray, b: ndarray, max_work: int | None = None) -> bool: ...
def result_type(*arrays_and_dtypes: Any) -> numpy.dtype[Any]: ...

# ---- the package ----

def get_array_module(*args: object) -> ModuleType: ...
def is_available() -> bool: ...
def get_default_memory_pool() -> cuda.MemoryPool: ...
