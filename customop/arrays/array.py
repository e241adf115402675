"""The annotation for arrays; dtypes, classes of elements, and strides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np

from customop.frozen import Frozen
from customop.later import later
from customop.shapes.sizes import made

sizes: ModuleType = later(import_module, "customop.shapes.sizes")


# ---- the annotation for arrays of any kind ----


class _Operations(Protocol):
    """The operations that all arrays share: NumPy's, CuPy's and ours, for type checkers."""

    def __add__(self, other: Any, /) -> Computed: ...
    def __radd__(self, other: Any, /) -> Computed: ...
    def __sub__(self, other: Any, /) -> Computed: ...
    def __rsub__(self, other: Any, /) -> Computed: ...
    def __mul__(self, other: Any, /) -> Computed: ...
    def __rmul__(self, other: Any, /) -> Computed: ...
    def __truediv__(self, other: Any, /) -> Computed: ...
    def __rtruediv__(self, other: Any, /) -> Computed: ...
    def __floordiv__(self, other: Any, /) -> Computed: ...
    def __mod__(self, other: Any, /) -> Computed: ...
    def __pow__(self, other: Any, /) -> Computed: ...
    def __rpow__(self, other: Any, /) -> Computed: ...
    def __matmul__(self, other: Any, /) -> Computed: ...
    def __rmatmul__(self, other: Any, /) -> Computed: ...
    def __neg__(self) -> Computed: ...
    def __lt__(self, other: Any, /) -> Computed: ...
    def __le__(self, other: Any, /) -> Computed: ...
    def __gt__(self, other: Any, /) -> Computed: ...
    def __ge__(self, other: Any, /) -> Computed: ...
    def __getitem__(self, key: Any, /) -> Computed: ...
    @property
    def T(self) -> Computed: ...  # noqa: N802  # NumPy's name
    @property
    def size(self) -> Any: ...
    def sum(self, *args: Any, **kwargs: Any) -> Computed: ...
    def mean(self, *args: Any, **kwargs: Any) -> Computed: ...
    def max(self, *args: Any, **kwargs: Any) -> Computed: ...
    def min(self, *args: Any, **kwargs: Any) -> Computed: ...
    def reshape(self, *args: Any, **kwargs: Any) -> Computed: ...
    def transpose(self, *args: Any) -> Computed: ...
    def astype(self, dtype: Any, /) -> Computed: ...
    def copy(self) -> Computed: ...


# `x * 2.0` and `np.exp(x)` have to fit where a function of an ArrayT returns an ArrayT, and
# NumPy's stubs do not allow for that. (mypy 2.4, pyright 1.1.414, NumPy 2.4)
if TYPE_CHECKING:
    import numpy.typing as npt

    _Base = np.generic

    def _any_for_pyright(cls: Any) -> Any:
        """Hide a class from pyright, which takes it for what its decorator returns."""

    # mypy --strict refuses to return Any, but not a class with the base Any. The numbers
    # make it look at `__rmul__` of the class before the `__mul__` of float.
    @_any_for_pyright
    class Computed(_Operations, int, float, complex, Any, Protocol):  # type: ignore[misc]  # as checkers see it
        """The result of operations with an array of any kind."""

    HintT = TypeVar("HintT", bound="ArrayHint")
else:
    _Base = Protocol


class ArrayHint(_Base):
    """The base of `Array` alone, by which overloads tell it from classes of arrays.

    For type checkers it is a scalar of NumPy: the first overload of each ufunc takes that,
    and returns Any.
    """


class Array(_Operations, ArrayHint, Protocol):  # type: ignore[misc]  # as checkers see it
    """Annotate an array of any kind in an operator.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::twice", mutates_args=())
    ... def twice(x: co.Array) -> co.Array:
    ...     return x + x
    >>> twice(np.array([1.0, 2.0]))
    array([2., 4.])
    """

    @property
    def shape(self) -> Any:
        """Lengths of the axes."""

    @property
    def dtype(self) -> Any:
        """The type of the elements."""

    @property
    def ndim(self) -> int:  # type: ignore[override]  # a scalar of NumPy has none
        """Number of axes."""
        ...

    # For type checkers: NumPy's functions accept what has this method.
    def __array__(self, *args: Any, **kwargs: Any) -> npt.NDArray[Any]: ...  # type: ignore[override]  # of any copy


ArrayT = TypeVar("ArrayT", bound=Array)


# ---- dtypes, and the classes of elements that a schema can ask for: `float[m, k]` ----


class Elements(Frozen):
    """One class of elements.

    Attributes
    ----------
    kinds : str
        Letters of ``dtype.kind``. Asking for one of them takes 50 ns, ``np.isdtype``
        1300 ns (NumPy 2.4).
    dtypes : tuple of type
        NumPy's dtypes; the first is the default.
    others : tuple of str
        How the names of dtypes begin that other packages add.
    scalar : type or None
        NumPy's class for them, as in ``NDArray[np.floating]``.
    """

    kinds: str
    dtypes: tuple[type[np.generic], ...]
    others: tuple[str, ...]
    scalar: type[np.generic] | None


# ---- one row for each class that has no parts ----
_PLAIN: Final = {
    "bool": Elements("b", (np.bool_,), (), np.bool_),
    "int": Elements(
        "i",
        (np.int64, np.int32, np.int16, np.int8),
        ("int2", "int4"),
        np.signedinteger,
    ),
    "uint": Elements(
        "u",
        (np.uint64, np.uint32, np.uint16, np.uint8),
        ("uint2", "uint4"),
        np.unsignedinteger,
    ),
    "float": Elements(
        "f",
        (np.float64, np.float32, np.float16, np.longdouble),
        ("bfloat16", "float8", "float4", "float6"),
        np.floating,
    ),
    "complex": Elements(
        "c",
        (np.complex128, np.complex64, np.clongdouble),
        (),
        np.complexfloating,
    ),
}
# ---- classes made of others; the default is that of the first ----
_UNIONS: Final[dict[str, tuple[tuple[str, ...], type[np.generic] | None]]] = {
    "integer": (("int", "uint"), np.integer),
    "inexact": (("float", "complex"), np.inexact),
    "real": (("float", "int", "uint"), None),
    "num": (("float", "int", "uint", "complex"), np.number),
}
_SINGLE: Final = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "longdouble",
    "complex64",
    "complex128",
    "clongdouble",
    "bfloat16",
    "int2",
    "int4",
    "uint2",
    "uint4",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float4_e2m1fn",
]


def _union(names: Iterable[str], scalar: type[np.generic] | None) -> Elements:
    rows = [_PLAIN[name] for name in names]
    return Elements(
        "".join(row.kinds for row in rows),
        tuple(d for row in rows for d in row.dtypes),
        tuple(o for row in rows for o in row.others),
        scalar,
    )


def _single(name: str) -> Elements:
    """Make the row of one dtype, which NumPy may lack."""
    found = getattr(np, name, None)
    return Elements("", (found,) if found else (), (), None)


# Name in a schema -> class of elements.
ELEMENTS: Final[dict[str, Elements]] = {
    "Array": Elements("", (), (), None),
    **_PLAIN,
    **{name: _union(*row) for name, row in _UNIONS.items()},
    **{name: _single(name) for name in _SINGLE},
}
# The answer to an unknown name.
KNOWN_ELEMENTS: Final = (
    "Array, bool, int, uint, integer, float, complex, inexact, real, num, and names of"
    " dtypes such as float32"
)


# ---- dtypes of arrays ----


def dtype_of(x: Any) -> np.dtype[Any]:
    """Return NumPy's dtype of an array; other libraries' dtypes are known by name."""
    dtype = x.dtype
    return dtype if isinstance(dtype, np.dtype) else np.dtype(_name(dtype))


def read_dtype(value: Any) -> np.dtype[Any]:
    """Return the dtype that a value names, also one of the classes `np.dtypes`."""
    # ``np.dtype(np.dtypes.Float32DType)`` is that of objects.
    is_class = isinstance(value, _DTYPE_CLASS)
    found: np.dtype[Any] = np.empty(0, value).dtype if is_class else np.dtype(value)
    return found


_DTYPE_CLASS = type(np.dtype)


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def is_inexact(dtype: Any) -> bool:
    """Return whether values of a dtype have derivatives: real and complex floats."""
    kind = getattr(dtype, "kind", None)
    if kind is None:
        return "float" in str(dtype) or "complex" in str(dtype)
    return kind in "fc"


def is_real_float(dtype: Any) -> bool:
    """Return whether a dtype is of real floats."""
    kind = getattr(dtype, "kind", None)
    return kind == "f" if kind is not None else "float" in str(dtype)


def is_complex(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is of complex numbers."""
    return dtype.kind == "c"


def in_byte_order(x: Any, dtype: Any) -> Any:
    """Return the array in the byte order of a dtype that differs in nothing else.

    NumPy computes in the machine's order, so a derivative comes in that one, also of
    values in another.
    """
    own = x.dtype
    if own == dtype or not isinstance(own, np.dtype) or not isinstance(dtype, np.dtype):
        return x
    if own != dtype.newbyteorder(own.byteorder):
        return x
    # A scalar of NumPy has no byte order.
    return np.asarray(x, dtype) if isinstance(x, np.generic) else x.astype(dtype)


# ---- dtypes and classes of elements ----


@lru_cache(maxsize=1024)
def is_element(element: str, dtype: Any) -> bool:
    """Return whether a dtype of any library is in a class of elements.

    The name of one dtype means native byte order: kernels in C rely on it.
    """
    if element == "Array":
        return True
    if isinstance(dtype, np.dtype):
        if element == dtype.type.__name__:
            return bool(dtype.isnative)
        kind, name = dtype.kind, dtype.type.__name__
    else:
        name = _name(dtype)
        try:
            kind = np.dtype(name).kind
        except TypeError:  # NumPy lacks it: bfloat16
            kind = "V"
    row = ELEMENTS[element]
    return element == name or kind in row.kinds or name.startswith(row.others)


def as_element(element: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype itself, or the one of a class of elements that it becomes."""
    row = ELEMENTS[element]
    if not row.kinds or dtype.kind in row.kinds:
        return dtype
    if element == "complex" and dtype.kind == "f":
        return np.result_type(dtype, np.complex64)
    if "f" in row.kinds and dtype.kind == "c":
        return np.real(np.empty(0, dtype)).dtype
    return np.dtype(row.dtypes[0])


def element_of_scalar(scalar: Any) -> str:
    """Return the class of elements for a NumPy class: "float" for `np.floating`."""
    for name, row in ELEMENTS.items():
        if row.scalar is not None and row.scalar is scalar:
            return name
    name = getattr(scalar, "__name__", "")
    return name if isinstance(scalar, type) and name in ELEMENTS else "Array"


# Finds the plain class of a name such as bfloat16 or float8_e5m2.
_PLAIN_NAME = later(re.compile, r"b?(bool|uint|int|float|complex)")


def element_of_names(given: Iterable[str]) -> str | None:
    """Return the class of elements that has exactly these dtypes, or None."""
    names = set(given)
    if len(names) == 1:
        (name,) = names
        return name if name in ELEMENTS else None
    matches = [_PLAIN_NAME.match(name) for name in names]
    found = {match[1] if match else "" for match in matches}
    if not all(name in _PLAIN and names >= _fixed_names(name) for name in found):
        return None
    for name, (parts, _) in _UNIONS.items():
        if found == {*parts}:
            return name
    return found.pop() if len(found) == 1 else None


def _fixed_names(element: str) -> set[str]:
    """Return the names of NumPy's dtypes that have one length on all machines."""
    names = {dtype.__name__ for dtype in _PLAIN[element].dtypes}
    return names - {"longdouble", "clongdouble"}


# ---- strides of arrays that NumPy makes ----
# Dense in C order, or in the order of another array.


def strides_of(x: Any) -> tuple[int, ...]:
    """Return the strides in bytes; C order for arrays without strides."""
    strides = getattr(x, "strides", None)
    return (
        c_strides(tuple(x.shape), dtype_of(x).itemsize) if strides is None else strides
    )


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a new array in C order; zeros if it is empty (NumPy 2.4).

    Those of a symbolic shape are products, as if it were not empty.
    """
    if not made or all_plain(shape):
        return _c_strides(shape, itemsize)
    return packed_strides(shape, range(len(shape)), itemsize)


@lru_cache(maxsize=4096)
def _c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return packed_strides(shape, range(len(shape)), itemsize)


_INT = {int}


def all_plain(sizes: Sequence[Any]) -> bool:
    """Return whether all sizes are numbers and none is symbolic."""
    return not made or _INT.issuperset(map(type, sizes))


def like_strides(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    itemsize: int,
    new_shape: tuple[int, ...],
    new_itemsize: int,
) -> tuple[int, ...]:
    """Return the strides of ``np.empty_like`` for an array of `shape` and `strides`."""
    if not made or all_plain((*shape, *new_shape, *strides)):
        return _known_like_strides(shape, strides, itemsize, new_shape, new_itemsize)
    if shape is new_shape and itemsize == new_itemsize:
        dense = packed_strides(shape, range(len(shape)), itemsize)
        if all(map(sizes.is_known, strides, dense)):
            return dense
    return _like_strides(shape, strides, itemsize, new_shape, new_itemsize)


def _like_strides(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    itemsize: int,
    new_shape: tuple[int, ...],
    new_itemsize: int,
) -> tuple[int, ...]:
    order = _like_order(shape, strides, itemsize, len(new_shape))
    return packed_strides(new_shape, order, new_itemsize)


_known_like_strides = lru_cache(maxsize=4096)(_like_strides)


def _like_order(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, ndim: int
) -> Sequence[int]:
    """Return the axes of an array made like another one, slowest in memory first."""
    order: Sequence[int] = range(ndim)
    if len(shape) == ndim and not _is_packed(shape, strides, order, itemsize):
        if _is_packed(shape, strides, order[::-1], itemsize):
            return order[::-1]
        return axis_order(shape, strides)
    return order


def _is_packed(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    order: Sequence[int],
    itemsize: int,
) -> bool:
    """Return whether an array is dense in this order of axes."""
    dense = packed_strides(shape, order, itemsize)
    return all(
        a is b or sizes.is_known(a, b) or sizes.is_known(length, 1)
        for a, b, length in zip(strides, dense, shape, strict=True)
    )


def axis_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Sort the axes from the slowest in memory to the fastest; ties stay in C order."""
    if not all_plain(strides):
        strides = tuple(map(sizes.typical, strides))
    return sorted(range(len(shape)), key=lambda axis: -abs(strides[axis]))


def packed_strides(
    shape: tuple[int, ...], order: Sequence[int], itemsize: int
) -> tuple[int, ...]:
    """Return the strides of a dense array whose axes lie in memory in this order."""
    strides = [0] * len(shape)
    for length in shape:
        if type(length) is int and not length:
            return tuple(strides)
    step, last = itemsize, 0
    for i, axis in enumerate(reversed(order)):
        if i:
            step *= shape[last]
        strides[axis], last = step, axis
    return tuple(strides)
