"""Types for CuPy, which has none: the names that this project uses.

tests/typing/test_cupy_stubs.py compares the stub with CuPy. A result is `Any` if its type
depends on values, such as the dtype of elements or the source of a kernel.
"""

from builtins import bool as _bool
from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType, ModuleType
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    SupportsIndex,
    TypeAlias,
    final,
    overload,
)

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
from typing_extensions import TypeVar, disjoint_base

from cupy import cuda as cuda
from cupy import linalg as linalg
from cupy import random as random
from cupy import testing as testing

_DType: TypeAlias = npt.DTypeLike
_Int: TypeAlias = SupportsIndex
_Shape: TypeAlias = _Int | Sequence[_Int]
_Axis: TypeAlias = _Int | Sequence[_Int] | None
# NumPy arrays are not operands: CuPy does not copy them to a device by itself.
_Operand: TypeAlias = ndarray | numpy.generic | complex
_Key: TypeAlias = (
    SupportsIndex | slice[Any, Any, Any] | EllipsisType | ndarray | Sequence[Any] | None
)
_Order: TypeAlias = Literal["C", "F", "A", "K", "c", "f", "a", "k"] | None
_ArrayLike: TypeAlias = _Operand | Sequence[Any] | poly1d
_Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
_Sections: TypeAlias = int | Sequence[int]

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])

__version__: str

class _Flags:
    @property
    def c_contiguous(self) -> _bool: ...
    @property
    def f_contiguous(self) -> _bool: ...
    @property
    def owndata(self) -> _bool: ...
    @property
    def fnc(self) -> _bool: ...
    @property
    def forc(self) -> _bool: ...
    def __getitem__(self, name: str) -> _bool: ...

_ShapeT_co = TypeVar("_ShapeT_co", default=Any, covariant=True)
_DTypeT_co = TypeVar("_DTypeT_co", default=Any, covariant=True)

# The parameters are for annotations, as in `cupy.typing.NDArray`: results have none.
class ndarray(Generic[_ShapeT_co, _DTypeT_co]):
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
    @property
    def cstruct(self) -> Any: ...
    @property
    def mT(self) -> ndarray: ...  # CuPy 14
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: _bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    # ---- to the host, and between dtypes ----
    def get(
        self,
        stream: cuda.Stream | None = None,
        order: _Order = "C",
        out: npt.NDArray[Any] | None = None,
        blocking: _bool = True,
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
        subok: _bool | None = None,
        copy: _bool = True,
    ) -> ndarray: ...
    def copy(self, order: _Order = "C") -> ndarray: ...
    def view(
        self, dtype: _DType | None = None, type: type[ndarray] | None = None
    ) -> ndarray: ...
    def fill(self, value: _Operand) -> None: ...
    def byteswap(self, inplace: _bool = False) -> ndarray: ...  # CuPy 14
    def reduced_view(self, dtype: _DType | None = None) -> ndarray: ...
    def toDlpack(self) -> Any: ...
    def dump(self, file: Any) -> None: ...
    def dumps(self) -> bytes: ...
    def __copy__(self) -> ndarray: ...
    def __deepcopy__(self, memo: Any) -> ndarray: ...
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
    def repeat(self, repeats: _Shape | ndarray, axis: int | None = None) -> ndarray: ...
    def nonzero(self) -> tuple[ndarray, ...]: ...
    def choose(
        self, choices: Any, out: ndarray | None = None, mode: str = "raise"
    ) -> ndarray: ...
    def compress(
        self, condition: Any, axis: int | None = None, out: ndarray | None = None
    ) -> ndarray: ...
    def put(self, indices: _Key, values: _ArrayLike, mode: str = "wrap") -> None: ...
    def searchsorted(
        self, v: ndarray, side: Literal["left", "right"] = "left", sorter: Any = None
    ) -> ndarray: ...
    def partition(self, kth: int | Sequence[int], axis: int = -1) -> None: ...
    def argpartition(
        self, kth: int | Sequence[int], axis: int | None = -1
    ) -> ndarray: ...
    def scatter_add(self, slices: _Key, value: _Operand) -> None: ...
    def scatter_max(self, slices: _Key, value: _Operand) -> None: ...
    def scatter_min(self, slices: _Key, value: _Operand) -> None: ...
    def sort(self, axis: int = -1, *, kind: str | None = None) -> None: ...
    def argsort(self, axis: int | None = -1, *, kind: str | None = None) -> ndarray: ...
    # ---- reductions: arrays without axes where NumPy gives scalars ----
    def sum(
        self,
        axis: _Axis = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
        keepdims: _bool = False,
    ) -> ndarray: ...
    def prod(
        self,
        axis: _Axis = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
        keepdims: _bool | None = None,
    ) -> ndarray: ...
    def mean(
        self,
        axis: _Axis = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
        keepdims: _bool = False,
    ) -> ndarray: ...
    def std(
        self,
        axis: _Axis = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
        ddof: int = 0,
        keepdims: _bool = False,
    ) -> ndarray: ...
    def var(
        self,
        axis: _Axis = None,
        dtype: _DType | None = None,
        out: ndarray | None = None,
        ddof: int = 0,
        keepdims: _bool = False,
    ) -> ndarray: ...
    def max(
        self, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
    ) -> ndarray: ...
    def min(
        self, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
    ) -> ndarray: ...
    def argmax(
        self,
        axis: int | None = None,
        out: ndarray | None = None,
        dtype: _DType | None = None,
        keepdims: _bool = False,
    ) -> ndarray: ...
    def argmin(
        self,
        axis: int | None = None,
        out: ndarray | None = None,
        dtype: _DType | None = None,
        keepdims: _bool = False,
    ) -> ndarray: ...
    def all(
        self, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
    ) -> ndarray: ...
    def any(
        self, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
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
    def conjugate(self) -> ndarray: ...
    def ptp(
        self, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
    ) -> ndarray: ...
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
    def __bool__(self) -> _bool: ...
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
        keepdims: _bool = False,
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
        keepdims: _bool = False,
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
        translate_cucomplex: _bool = False,
        *,
        enable_cooperative_groups: _bool = False,
        jitify: _bool | None = None,
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
        translate_cucomplex: _bool = False,
        enable_cooperative_groups: _bool = False,
        name_expressions: Sequence[str] | None = None,
        jitify: _bool | None = None,
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
        reduce_dims: _bool = True,
        preamble: str = "",
        no_return: _bool = False,
        return_tuple: _bool = False,
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
        reduce_dims: _bool = True,
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
        keepdims: _bool = False,
        stream: cuda.Stream | None = None,
    ) -> Any: ...

# ---- making arrays ----

def array(
    obj: Any,
    dtype: _DType | None = None,
    copy: _bool = True,
    order: _Order = "K",
    subok: _bool = False,
    ndmin: int = 0,
    *,
    blocking: _bool = False,
) -> ndarray: ...
def asarray(
    a: Any,
    dtype: _DType | None = None,
    order: _Order = None,
    *,
    copy: _bool | None = None,
    blocking: _bool = False,
) -> ndarray: ...  # CuPy 14
def ascontiguousarray(a: Any, dtype: _DType | None = None) -> ndarray: ...
def asfortranarray(a: Any, dtype: _DType | None = None) -> ndarray: ...
def asnumpy(
    a: Any,
    stream: cuda.Stream | None = None,
    order: _Order = "C",
    out: npt.NDArray[Any] | None = None,
    *,
    blocking: _bool = True,
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
    N: int, M: int | None = None, k: int = 0, dtype: _DType = ..., order: _Order = "C"
) -> ndarray: ...
def identity(n: int, dtype: _DType = ...) -> ndarray: ...
def arange(
    start: _Operand,
    stop: _Operand | None = None,
    step: _Operand | None = 1,
    dtype: _DType | None = None,
) -> ndarray: ...
@overload
def linspace(
    start: _Operand | Sequence[Any],
    stop: _Operand | Sequence[Any],
    num: _Int = 50,
    endpoint: _bool = True,
    retstep: Literal[False] = False,
    dtype: _DType | None = None,
    axis: int = 0,
) -> ndarray: ...
@overload
def linspace(
    start: _Operand | Sequence[Any],
    stop: _Operand | Sequence[Any],
    num: _Int = 50,
    endpoint: _bool = True,
    *,
    retstep: Literal[True],
    dtype: _DType | None = None,
    axis: int = 0,
) -> tuple[ndarray, Any]: ...

# ---- shape ----

def reshape(
    a: ndarray, newshape: _Shape, order: _Order = "C", *, copy: _bool | None = None
) -> ndarray: ...  # CuPy 14
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
def repeat(
    a: ndarray, repeats: _Shape | ndarray, axis: int | None = None
) -> ndarray: ...
def tile(A: ndarray, reps: _Shape) -> ndarray: ...
def pad(
    array: ndarray,
    pad_width: Any,
    mode: str | Callable[..., None] = "constant",
    **kwargs: Any,
) -> ndarray: ...

# ---- reductions, order, choice ----

def sum(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: _bool = False,
) -> ndarray: ...
def prod(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: _bool = False,
) -> ndarray: ...
def mean(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: _bool = False,
) -> ndarray: ...
def std(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    ddof: int = 0,
    keepdims: _bool = False,
) -> ndarray: ...
def var(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    ddof: int = 0,
    keepdims: _bool = False,
) -> ndarray: ...
def max(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
) -> ndarray: ...
def min(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
) -> ndarray: ...
def argmax(
    a: ndarray,
    axis: int | None = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: _bool = False,
) -> ndarray: ...
def argmin(
    a: ndarray,
    axis: int | None = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: _bool = False,
) -> ndarray: ...
def all(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
) -> ndarray: ...
def any(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
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
    equal_nan: _bool = False,
) -> ndarray: ...
def allclose(
    a: ndarray,
    b: _Operand,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: _bool = False,
) -> ndarray: ...
def array_equal(a1: ndarray, a2: ndarray, equal_nan: _bool = False) -> ndarray: ...
def shares_memory(a: ndarray, b: ndarray, max_work: int | None = None) -> _bool: ...
def may_share_memory(a: ndarray, b: ndarray, max_work: int | None = None) -> _bool: ...
def result_type(*arrays_and_dtypes: Any) -> numpy.dtype[Any]: ...

# ---- the package ----

def get_array_module(*args: object) -> ModuleType: ...
def is_available() -> _bool: ...
def get_default_memory_pool() -> cuda.MemoryPool: ...
def get_default_pinned_memory_pool() -> cuda.PinnedMemoryPool: ...
def clear_memo() -> None: ...
def memoize(for_each_device: _bool = False) -> Callable[[_FunctionT], _FunctionT]: ...

# Both `@fuse` and `@fuse(kernel_name="name")`.
@overload
def fuse(fn: _FunctionT, /) -> _FunctionT: ...
@overload
def fuse(*, kernel_name: str | None = None) -> Callable[[_FunctionT], _FunctionT]: ...

# ---- classes as in NumPy ----

@disjoint_base
class poly1d:
    variable: str
    def __init__(
        self, c_or_r: _ArrayLike | poly1d, r: _bool = False, variable: str | None = None
    ) -> None: ...
    @property
    def coeffs(self) -> ndarray: ...
    @coeffs.setter
    def coeffs(self, value: ndarray) -> None: ...
    @property
    def c(self) -> ndarray: ...
    @property
    def coef(self) -> ndarray: ...
    @property
    def coefficients(self) -> ndarray: ...
    @property
    def order(self) -> int: ...
    @property
    def o(self) -> int: ...
    @property
    def roots(self) -> ndarray: ...
    @property
    def r(self) -> ndarray: ...
    def __call__(self, val: Any, /) -> Any: ...
    def __add__(self, other: Any, /) -> poly1d: ...
    def __radd__(self, other: Any, /) -> poly1d: ...
    def __sub__(self, other: Any, /) -> poly1d: ...
    def __rsub__(self, other: Any, /) -> poly1d: ...
    def __mul__(self, other: Any, /) -> poly1d: ...
    def __rmul__(self, other: Any, /) -> poly1d: ...
    def __truediv__(self, other: Any, /) -> poly1d: ...
    def __pow__(self, exponent: int, mod: None = None, /) -> poly1d: ...
    def __neg__(self) -> poly1d: ...
    def __pos__(self) -> poly1d: ...
    def __eq__(self, other: object, /) -> _bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[ndarray]: ...
    def __getitem__(self, power: int, /) -> ndarray: ...
    def __setitem__(self, power: int, value: _Operand, /) -> None: ...
    def __array__(self, dtype: _DType | None = None) -> NoReturn: ...
    def deriv(self, m: int = 1) -> poly1d: ...
    def integ(self, m: int = 1, k: Any = 0) -> poly1d: ...
    def get(
        self, stream: cuda.Stream | None = None, out: Any = None
    ) -> numpy.poly1d: ...
    def set(self, polyin: numpy.poly1d, stream: cuda.Stream | None = None) -> None: ...

@final
class broadcast:
    def __init__(self, *arrays: _Operand) -> None: ...
    @property
    def values(self) -> tuple[ndarray, ...]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def size(self) -> int: ...
    @property
    def nd(self) -> int: ...

# ---- written by stubs/generate.py ----

from numpy.exceptions import (
    AxisError as AxisError,
    ComplexWarning as ComplexWarning,
    ModuleDeprecationWarning as ModuleDeprecationWarning,
    RankWarning as RankWarning,
    TooHardError as TooHardError,
    VisibleDeprecationWarning as VisibleDeprecationWarning,
)
from numpy import (
    bool as bool,  # CuPy 14
    broadcast_shapes as broadcast_shapes,
    byte as byte,
    cdouble as cdouble,
    complexfloating as complexfloating,
    csingle as csingle,
    double as double,
    dtype as dtype,
    euler_gamma as euler_gamma,
    finfo as finfo,
    floating as floating,
    generic as generic,
    get_printoptions as get_printoptions,
    half as half,
    iinfo as iinfo,
    index_exp as index_exp,
    inexact as inexact,
    int_ as int_,
    intc as intc,
    integer as integer,
    isdtype as isdtype,  # CuPy 14
    issubdtype as issubdtype,
    iterable as iterable,
    long as long,  # CuPy 14
    longlong as longlong,
    mintypecode as mintypecode,
    ndindex as ndindex,
    number as number,
    printoptions as printoptions,
    promote_types as promote_types,
    s_ as s_,
    set_printoptions as set_printoptions,
    short as short,
    signedinteger as signedinteger,
    single as single,
    typename as typename,
    ubyte as ubyte,
    uint as uint,
    uintc as uintc,
    uintp as uintp,
    ulong as ulong,  # CuPy 14
    ulonglong as ulonglong,
    unsignedinteger as unsignedinteger,
    ushort as ushort,
)
from cupy import (
    exceptions as exceptions,
    fft as fft,
    lib as lib,
    polynomial as polynomial,
    typing as typing,
)

Inf: float
Infinity: float
NAN: float
NINF: float
NZERO: float
NaN: float
PINF: float
PZERO: float
acos: _Unary  # CuPy 14
acosh: _Unary  # CuPy 14

def amax(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
) -> ndarray: ...
def amin(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
) -> ndarray: ...
def angle(z: Any, deg: _bool = False) -> ndarray: ...
def append(arr: _ArrayLike, values: _ArrayLike, axis: _Axis = None) -> ndarray: ...
def apply_along_axis(
    func1d: Callable[..., Any], axis: _Axis, arr: ndarray, *args: Any, **kwargs: Any
) -> ndarray: ...
def apply_over_axes(
    func: Callable[..., Any], a: _ArrayLike, axes: _Axis
) -> ndarray: ...  # CuPy 14
def argpartition(a: ndarray, kth: _Shape, axis: _Axis = -1) -> ndarray: ...
def argwhere(a: ndarray) -> ndarray: ...
def around(a: ndarray, decimals: _Int = 0, out: ndarray | None = None) -> ndarray: ...
def array2string(a: Any, *args: Any, **kwargs: Any) -> str: ...
def array_equiv(a1: ndarray, a2: ndarray) -> ndarray: ...
def array_repr(
    arr: _ArrayLike,
    max_line_width: _Int | None = None,
    precision: _Int | None = None,
    suppress_small: _bool | None = None,
) -> str: ...
def array_split(
    ary: Any, indices_or_sections: Any, axis: _Axis = 0
) -> list[ndarray]: ...
def array_str(
    arr: _ArrayLike,
    max_line_width: _Int | None = None,
    precision: _Int | None = None,
    suppress_small: _bool | None = None,
) -> str: ...
def asanyarray(
    a: Any,
    dtype: _DType | None = None,
    order: _Order = None,
    *,
    copy: Any = None,
    blocking: _bool = False,
) -> ndarray: ...  # CuPy 14
def asarray_chkfinite(
    a: _ArrayLike, dtype: _DType | None = None, order: _Order = None
) -> ndarray: ...
def asfarray(a: ndarray, dtype: _DType | None = ...) -> ndarray: ...
def astype(
    x: ndarray, dtype: _DType | None, /, *, copy: _bool = True
) -> ndarray: ...  # CuPy 14
def atleast_1d(*arys: Any) -> Any: ...
def atleast_2d(*arys: Any) -> Any: ...
def atleast_3d(*arys: Any) -> Any: ...
def average(
    a: ndarray,
    axis: _Axis = None,
    weights: ndarray | None = None,
    returned: _bool = False,
    *,
    keepdims: _bool = False,
) -> Any: ...
def bartlett(M: _Int) -> ndarray: ...
def base_repr(number: Any, base: Any = 2, padding: Any = 0) -> str: ...
def binary_repr(num: Any, width: Any = None) -> str: ...
def bincount(
    x: ndarray, weights: ndarray | None = None, minlength: _Int | None = None
) -> ndarray: ...

bitwise_count: _Unary  # CuPy 14
bitwise_invert: _Unary  # CuPy 14
bitwise_left_shift: _Binary  # CuPy 14
bitwise_right_shift: _Binary  # CuPy 14

def blackman(M: _Int) -> ndarray: ...
def broadcast_arrays(*args: Any) -> Sequence[ndarray]: ...
def byte_bounds(a: ndarray) -> tuple[int, ...]: ...

c_: Any

def can_cast(from_: Any, to: Any, casting: _Casting = "safe") -> _bool: ...
def choose(
    a: Any, choices: Any, out: ndarray | None = None, mode: str = "raise"
) -> ndarray: ...
def column_stack(tup: _ArrayLike) -> ndarray: ...
def common_type(*arrays: Any) -> type[Any]: ...
def compress(
    condition: Any, a: ndarray, axis: _Axis = None, out: ndarray | None = None
) -> ndarray: ...
def convolve(a: ndarray, v: ndarray, mode: str = "full") -> ndarray: ...
def copyto(
    dst: ndarray,
    src: ndarray,
    casting: _Casting = "same_kind",
    where: ndarray | None = None,
) -> None: ...
def corrcoef(
    a: ndarray,
    y: ndarray | None = None,
    rowvar: _bool = True,
    bias: Any = None,
    ddof: Any = None,
    *,
    dtype: _DType | None = None,
) -> ndarray: ...
def correlate(a: ndarray, v: ndarray, mode: str = "valid") -> ndarray: ...
def cov(
    a: ndarray,
    y: ndarray | None = None,
    rowvar: _bool = True,
    bias: _bool = False,
    ddof: _Int | None = None,
    fweights: _ArrayLike | None = None,
    aweights: ndarray | None = None,
    *,
    dtype: _DType | None = None,
) -> ndarray: ...
def cross(
    a: ndarray,
    b: ndarray,
    axisa: _Int = -1,
    axisb: _Int = -1,
    axisc: _Int = -1,
    axis: _Axis = None,
) -> ndarray: ...
def cumproduct(
    a: Any, axis: _Axis = None, dtype: _DType | None = None, out: ndarray | None = None
) -> ndarray: ...
def cumulative_prod(
    x: ndarray,
    /,
    *,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    include_initial: _bool = False,
) -> ndarray: ...  # CuPy 14
def cumulative_sum(
    x: ndarray,
    /,
    *,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    include_initial: _bool = False,
) -> ndarray: ...  # CuPy 14
def delete(arr: ndarray, indices: _ArrayLike, axis: _Axis = None) -> ndarray: ...
def diag_indices(n: _Int, ndim: _Int = 2) -> tuple[ndarray, ...]: ...
def diag_indices_from(arr: ndarray) -> tuple[ndarray, ...]: ...
def diagflat(v: _ArrayLike, k: _Int = 0) -> ndarray: ...
def diagonal(
    a: ndarray, offset: _Int = 0, axis1: _Int = 0, axis2: _Int = 1
) -> ndarray: ...
def digitize(x: ndarray, bins: ndarray, right: _bool = False) -> ndarray: ...

disable_experimental_feature_warning: _bool

def disp(*args: Any, **kwds: Any) -> Any: ...
def dsplit(ary: Any, indices_or_sections: Any) -> list[ndarray]: ...
def dstack(tup: _ArrayLike) -> ndarray: ...
def ediff1d(
    arr: ndarray, to_end: ndarray | None = None, to_begin: ndarray | None = None
) -> ndarray: ...
def extract(condition: _ArrayLike, a: ndarray) -> ndarray: ...
def fill_diagonal(a: ndarray, val: _Operand, wrap: _bool = False) -> None: ...
def find_common_type(*args: Any, **kwds: Any) -> Any: ...

fix: _Unary

class flatiter:
    def __init__(self, a: Any) -> None: ...
    def __setitem__(self, ind: Any, value: Any) -> Any: ...
    def __getitem__(self, ind: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def copy(self) -> Any: ...
    @property
    def base(self) -> ndarray: ...
    def __len__(self) -> int: ...

def flatnonzero(a: ndarray) -> ndarray: ...
def fliplr(a: ndarray) -> ndarray: ...
def flipud(a: ndarray) -> ndarray: ...
def format_float_positional(x: Any, *args: Any, **kwargs: Any) -> str: ...
def format_float_scientific(x: Any, *args: Any, **kwargs: Any) -> str: ...
def fromDlpack(dltensor: Any) -> ndarray: ...
def from_dlpack(
    array: Any, *, device: Any = None, copy: _bool | None = None
) -> ndarray: ...
def frombuffer(*args: Any, **kwargs: Any) -> ndarray: ...
def fromfile(*args: Any, **kwargs: Any) -> ndarray: ...
def fromfunction(*args: Any, **kwargs: Any) -> ndarray: ...
def fromiter(*args: Any, **kwargs: Any) -> ndarray: ...
def fromstring(*args: Any, **kwargs: Any) -> ndarray: ...
def genfromtxt(*args: Any, **kwargs: Any) -> ndarray: ...
def get_array_wrap(*args: Any, **kwds: Any) -> Any: ...
def gradient(
    f: ndarray, *varargs: Any, axis: _Axis = None, edge_order: Any = 1
) -> Any: ...
def hamming(M: _Int) -> ndarray: ...
def hanning(M: _Int) -> ndarray: ...
def histogram(
    x: ndarray,
    bins: _ArrayLike = 10,
    range: Any = None,
    density: _bool = False,
    weights: ndarray | None = None,
) -> tuple[ndarray, ndarray]: ...  # CuPy 14
def histogram2d(
    x: ndarray,
    y: ndarray,
    bins: _ArrayLike = 10,
    range: Any = None,
    weights: ndarray | None = None,
    density: _bool | None = None,
) -> tuple[ndarray, ndarray, ndarray]: ...
def histogramdd(
    sample: ndarray,
    bins: _ArrayLike = 10,
    range: Any = None,
    weights: ndarray | None = None,
    density: _bool = False,
) -> tuple[ndarray, list[ndarray]]: ...
def hsplit(ary: Any, indices_or_sections: Any) -> list[ndarray]: ...
def hstack(
    tup: _ArrayLike, *, dtype: _DType | None = None, casting: _Casting = "same_kind"
) -> ndarray: ...

i0: _Unary

def in1d(
    ar1: ndarray, ar2: ndarray, assume_unique: _bool = False, invert: _bool = False
) -> ndarray: ...
def indices(dimensions: Any, dtype: _DType | None = ...) -> ndarray: ...

infty: float

def inner(a: ndarray, b: ndarray) -> ndarray: ...
def interp(
    x: ndarray,
    xp: ndarray,
    fp: ndarray,
    left: _Operand | None = None,
    right: _Operand | None = None,
    period: _Operand | None = None,
) -> ndarray: ...
def intersect1d(
    arr1: ndarray,
    arr2: ndarray,
    assume_unique: _bool = False,
    return_indices: _bool = False,
) -> Any: ...
def iscomplex(x: ndarray) -> ndarray: ...
def iscomplexobj(x: ndarray) -> _bool: ...
def isfortran(a: ndarray) -> _bool: ...
def isin(
    element: ndarray,
    test_elements: ndarray,
    assume_unique: _bool = False,
    invert: _bool = False,
) -> ndarray: ...
def isneginf(x: ndarray, out: ndarray | None = None) -> ndarray: ...
def isposinf(x: ndarray, out: ndarray | None = None) -> ndarray: ...
def isreal(x: ndarray) -> ndarray: ...
def isrealobj(x: ndarray) -> _bool: ...
def isscalar(element: Any) -> _bool: ...
def issctype(rep: Any) -> _bool: ...
def issubclass_(arg1: Any, arg2: Any) -> Any: ...
def issubsctype(arg1: Any, arg2: Any) -> _bool: ...
def ix_(*args: Any) -> tuple[ndarray, ...]: ...
def kaiser(M: _Int, beta: _Operand) -> ndarray: ...
def kron(a: ndarray, b: ndarray) -> ndarray: ...
def lexsort(keys: ndarray) -> ndarray: ...
def load(
    file: Any, mmap_mode: Any = None, allow_pickle: _bool | None = None
) -> Any: ...
def loadtxt(*args: Any, **kwargs: Any) -> ndarray: ...
def logspace(
    start: Any,
    stop: Any,
    num: _Operand = 50,
    endpoint: _bool = True,
    base: _Operand = 10.0,
    dtype: _DType | None = None,
    axis: _Axis = 0,
) -> ndarray: ...
def make_aligned_dtype(
    dtype: _DType | None, *, alignment: _Int = -1, recurse: _bool = True
) -> numpy.dtype[Any]: ...  # CuPy 14
def mask_indices(
    n: _Int, mask_func: Callable[..., Any], k: _Operand = 0
) -> tuple[ndarray, ...]: ...
def matrix_transpose(x: ndarray, /) -> ndarray: ...  # CuPy 14
def median(
    a: ndarray,
    axis: _Axis = None,
    out: ndarray | None = None,
    overwrite_input: _bool = False,
    keepdims: _bool = False,
) -> ndarray: ...
def meshgrid(*xi: Any, **kwargs: Any) -> Sequence[ndarray]: ...

mgrid: Any

def min_scalar_type(a: Any) -> numpy.dtype[Any]: ...
def msort(a: ndarray) -> ndarray: ...
def nan_to_num(
    x: Any, copy: _bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> ndarray: ...
def nanargmax(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: _bool = False,
) -> ndarray: ...
def nanargmin(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: _bool = False,
) -> ndarray: ...
def nancumprod(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
) -> ndarray: ...
def nancumsum(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
) -> ndarray: ...
def nanmax(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
) -> ndarray: ...
def nanmean(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: _bool = False,
) -> ndarray: ...
def nanmedian(
    a: ndarray,
    axis: _Axis = None,
    out: ndarray | None = None,
    overwrite_input: _bool = False,
    keepdims: _bool = False,
) -> ndarray: ...
def nanmin(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
) -> ndarray: ...
def nanprod(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: _bool = False,
) -> ndarray: ...
def nanstd(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    ddof: Any = 0,
    keepdims: _bool = False,
) -> ndarray: ...
def nansum(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: _bool = False,
) -> ndarray: ...
def nanvar(
    a: ndarray,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    ddof: Any = 0,
    keepdims: _bool = False,
) -> ndarray: ...
def ndim(a: _ArrayLike) -> int: ...
def obj2sctype(rep: Any, default: Any = None) -> type[Any]: ...

ogrid: Any

def packbits(a: ndarray, axis: _Axis = None, bitorder: str = "big") -> ndarray: ...
def partition(a: ndarray, kth: _Shape, axis: _Axis = -1) -> ndarray: ...
def percentile(
    a: ndarray,
    q: _ArrayLike,
    axis: _Axis = None,
    out: ndarray | None = None,
    overwrite_input: _bool = False,
    method: str = "linear",
    keepdims: _bool = False,
    *,
    interpolation: str | None = None,
) -> ndarray: ...
def piecewise(x: ndarray, condlist: Any, funclist: Any) -> ndarray: ...
def place(arr: ndarray, mask: _ArrayLike, vals: _ArrayLike) -> None: ...
def poly(seq_of_zeros: ndarray) -> ndarray: ...
def polyadd(a1: _ArrayLike, a2: _ArrayLike) -> Any: ...
def polyfit(
    x: ndarray,
    y: ndarray,
    deg: _Int,
    rcond: _Operand | None = None,
    full: _bool = False,
    w: ndarray | None = None,
    cov: _bool = False,
) -> Any: ...
def polymul(a1: _ArrayLike, a2: _ArrayLike) -> Any: ...
def polysub(a1: _ArrayLike, a2: _ArrayLike) -> Any: ...
def polyval(p: Any, x: _ArrayLike) -> ndarray: ...

pow: _Binary  # CuPy 14

def product(
    a: Any,
    axis: _Axis = None,
    dtype: _DType | None = None,
    out: ndarray | None = None,
    keepdims: _bool = False,
) -> ndarray: ...
def ptp(
    a: ndarray, axis: _Axis = None, out: ndarray | None = None, keepdims: _bool = False
) -> ndarray: ...
def put(a: ndarray, ind: _ArrayLike, v: _ArrayLike, mode: str = "wrap") -> None: ...
def put_along_axis(
    arr: ndarray, indices: ndarray, values: _ArrayLike, axis: _Axis
) -> None: ...  # CuPy 14
def putmask(a: ndarray, mask: ndarray, values: _ArrayLike) -> None: ...
def quantile(
    a: ndarray,
    q: _ArrayLike,
    axis: _Axis = None,
    out: ndarray | None = None,
    overwrite_input: _bool = False,
    method: str = "linear",
    keepdims: _bool = False,
    *,
    interpolation: str | None = None,
) -> ndarray: ...

r_: Any

def ravel_multi_index(
    multi_index: _ArrayLike, dims: _Shape, mode: str = "wrap", order: _Order = "C"
) -> ndarray: ...
def real_if_close(a: Any, tol: Any = 100) -> ndarray: ...
def require(
    a: ndarray, dtype: _DType | None = None, requirements: Any = None
) -> ndarray: ...
def resize(a: _ArrayLike, new_shape: _Shape) -> ndarray: ...
def rollaxis(a: ndarray, axis: _Axis, start: _Int = 0) -> ndarray: ...
def roots(p: Any) -> ndarray: ...
def rot90(a: ndarray, k: _Int = 1, axes: _Axis = (0, 1)) -> ndarray: ...
def round_(a: Any, decimals: Any = 0, out: ndarray | None = None) -> ndarray: ...
def row_stack(
    tup: Any, *, dtype: _DType | None = None, casting: _Casting = "same_kind"
) -> ndarray: ...  # CuPy 14
def safe_eval(*args: Any, **kwds: Any) -> Any: ...
def save(file: Any, arr: _ArrayLike, allow_pickle: _bool | None = None) -> None: ...
def savetxt(fname: Any, X: Any, *args: Any, **kwargs: Any) -> None: ...
def savez(file: Any, *args: Any, **kwds: Any) -> None: ...
def savez_compressed(file: Any, *args: Any, **kwds: Any) -> None: ...
def sctype2char(sctype: Any) -> str: ...
def searchsorted(
    a: ndarray, v: ndarray, side: str = "left", sorter: Any = None
) -> ndarray: ...
def select(condlist: Any, choicelist: Any, default: _Operand = 0) -> ndarray: ...
def set_string_function(*args: Any, **kwds: Any) -> None: ...
def setdiff1d(ar1: ndarray, ar2: ndarray, assume_unique: _bool = False) -> ndarray: ...
def setxor1d(ar1: ndarray, ar2: ndarray, assume_unique: _bool = False) -> ndarray: ...
def shape(a: _ArrayLike) -> tuple[int, ...]: ...
def show_config(*, _full: _bool = False) -> None: ...
def size(a: ndarray, axis: _Axis = None) -> Any: ...
def sort_complex(a: ndarray) -> ndarray: ...
def take_along_axis(a: ndarray, indices: ndarray, axis: _Axis) -> ndarray: ...
def trace(
    a: ndarray,
    offset: _Int = 0,
    axis1: _Int = 0,
    axis2: _Int = 1,
    dtype: _DType | None = None,
    out: ndarray | None = None,
) -> ndarray: ...
def trapezoid(
    y: ndarray, x: ndarray | None = None, dx: _Operand = 1.0, axis: _Axis = -1
) -> ndarray: ...  # CuPy 14
def tri(
    N: _Int, M: _Int | None = None, k: _Int = 0, dtype: _DType | None = ...
) -> ndarray: ...
def tril_indices(
    n: _Int, k: _Int = 0, m: _Int | None = None
) -> tuple[ndarray, ...]: ...
def tril_indices_from(arr: ndarray, k: _Int = 0) -> tuple[ndarray, ...]: ...
def trim_zeros(filt: ndarray, trim: str = "fb") -> ndarray: ...
def triu_indices(
    n: _Int, k: _Int = 0, m: _Int | None = None
) -> tuple[ndarray, ...]: ...
def triu_indices_from(arr: ndarray, k: _Int = 0) -> tuple[ndarray, ...]: ...
def union1d(arr1: ndarray, arr2: ndarray) -> ndarray: ...
def unique(
    ar: _ArrayLike,
    return_index: _bool = False,
    return_inverse: _bool = False,
    return_counts: _bool = False,
    axis: _Axis = None,
    *,
    equal_nan: _bool = True,
) -> Any: ...
def unique_all(x: ndarray) -> Any: ...  # CuPy 14
def unique_counts(x: ndarray) -> Any: ...  # CuPy 14
def unique_inverse(x: ndarray) -> Any: ...  # CuPy 14
def unique_values(x: ndarray) -> ndarray: ...  # CuPy 14
def unpackbits(a: ndarray, axis: _Axis = None, bitorder: str = "big") -> ndarray: ...
def unravel_index(
    indices: ndarray, dims: _Shape, order: _Order = "C"
) -> tuple[ndarray, ...]: ...
def unwrap(
    p: Any,
    discont: _Operand | None = None,
    axis: _Axis = -1,
    *,
    period: _Operand = 6.283185307179586,
) -> ndarray: ...
def vander(
    x: _ArrayLike, N: _Int | None = None, increasing: _bool = False
) -> ndarray: ...
def vdot(a: ndarray, b: ndarray) -> ndarray: ...

class vectorize:
    def __init__(
        self,
        pyfunc: Callable[..., Any],
        otypes: Any = None,
        doc: str | None = None,
        excluded: Any = None,
        cache: _bool = False,
        signature: Any = None,
    ) -> None: ...
    def __call__(self, *args: Any) -> Any: ...

def vsplit(ary: Any, indices_or_sections: Any) -> list[ndarray]: ...
def vstack(
    tup: _ArrayLike, *, dtype: _DType | None = None, casting: _Casting = "same_kind"
) -> ndarray: ...
def who(vardict: Any = None) -> Any: ...

alltrue = all  # CuPy 14
asin = arcsin  # CuPy 14
asinh = arcsinh  # CuPy 14
atan = arctan  # CuPy 14
atan2 = arctan2  # CuPy 14
atanh = arctanh  # CuPy 14
bitwise_not = bitwise_invert  # CuPy 14
concat = concatenate  # CuPy 14
permute_dims = transpose  # CuPy 14
sometrue = any  # CuPy 14
trapz = trapezoid  # CuPy 14
