"""Arrays without data: shape, dtype, strides and device."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from operator import index
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Self, overload

import numpy as np

from customop.arrays.array import (
    Array,
    all_plain,
    axis_order,
    c_strides,
    dtype_of,
    like_strides,
    packed_strides,
    read_dtype,
    strides_of,
)
from customop.arrays.kinds import (
    FAKE_ARRAY,
    add_array_class,
    device_of,
    has_data,
    has_memory,
    is_array,
    is_fake,
    is_traced,
    normalize_device,
)
from customop.arrays.nested import (
    abbreviated,
    add_leaf_class,
    add_own_node,
    describe,
    flat,
    map_nested,
)
from customop.arrays.numpy_protocol import ArrayMethods
from customop.arrays.refusals import (
    FIXED,
    SETITEM,
    asked_by_setitem,
    installed_caller,
    refuse_setting,
)
from customop.errors import (
    ArgumentError,
    DataDependentError,
    ShapeError,
    counted,
    items_of,
    shown,
)
from customop.later import later
from customop.shapes.sizes import Symbolic, SymShape, is_size

if TYPE_CHECKING:
    import numpy.typing as npt

    from customop.arrays.array import HintT
    from customop.pages.html import Child
    from customop.shapes.size_context import SizeContext

ufunc_keywords: ModuleType = later(import_module, "customop.arrays.ufunc_keywords")
# Only captures with symbolic sizes need it.
size_context: ModuleType = later(import_module, "customop.shapes.size_context")
# Only errors need it.
corrections: ModuleType = later(import_module, "customop.arrays.corrections")
# Only notebooks need it.
html: ModuleType = later(import_module, "customop.pages.html")


class _Settable(ArrayMethods):
    """A fake array that is being made: its parts can be set."""

    __slots__ = (
        "__weakref__",
        "device",
        "dtype",
        "nonzero_count",
        "shape",
        "strides",
    )

    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]
    device: str
    # The number of elements that are not zero, once asked: a size that depends on data.
    nonzero_count: Any


class FakeArray(_Settable):
    """An array with shape, dtype, strides and device, and no data.

    Parameters
    ----------
    shape : int or sequence of int
        Lengths of the axes.
    dtype : dtype
        Type of the elements.
    strides : sequence of int, bytes, optional
        Distance in memory along each axis; C order by default.
    device : str
        Device of the array.
    order : sequence of int, optional
        In place of `strides`, for a dense array: the axes from the slowest in memory to
        the fastest. ``(1, 0)`` is Fortran order.

    Raises
    ------
    ShapeError
        If a length is negative, strides and shape differ in length, or `order` does not
        name each axis once.
    ArgumentError
        If both `strides` and `order` are given.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.FakeArray((2, 3), np.float32)
    >>> np.sum(x * 2.0, axis=1)
    FakeArray(f32[2], device='cpu')
    >>> co.FakeArray((2, 3), np.float32, order=(1, 0)).strides
    (4, 8)
    """

    __slots__ = ()

    nonzero_count: Any  # for type checkers, which see it written here

    def __new__(
        cls,
        shape: int | Sequence[int],
        dtype: Any = np.float64,
        strides: Sequence[int] | None = None,
        device: str = "cpu",
        *,
        order: Sequence[int] | None = None,
    ) -> Self:
        """Check the parts, and make the array."""
        lengths = as_shape(shape, "FakeArray")
        dtype = _as_dtype(dtype, "FakeArray")
        if order is not None:
            _check_one_given(strides)
            strides = _ordered_strides(
                lengths, _numbers(order, "order"), dtype.itemsize
            )
        elif strides is None:
            strides = c_strides(lengths, dtype.itemsize)
        else:
            strides = _numbers(strides, "strides")
        if len(strides) != len(lengths):
            raise ShapeError(
                f"{len(strides)} strides do not fit the shape {lengths}",
                do="give a stride for each axis",
            )
        is_cpu = isinstance(device, str) and device == "cpu"
        where = device if is_cpu else normalize_device(device)
        made: Any = make_fake(lengths, dtype, tuple(strides), where)
        return made  # type: ignore[no-any-return]  # of this class, which has no others

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FIXED:
            refuse_setting(self, name)
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return make_fake, (self.shape, self.dtype, self.strides, self.device)

    def __repr__(self) -> str:
        return f"FakeArray({abbreviated(self)}, device={self.device!r})"

    def _repr_html_(self) -> str:
        return _page_of(self)

    def _no_data(self, asked: str) -> DataDependentError:
        asked, do = f"{asked} of", "compute with shapes and dtypes only"
        if asked_by_setitem():
            asked, instead = SETITEM
            do = f"use {instead}"
        do = corrections.correction() or do
        return DataDependentError(
            f"{asked} {describe(self)}, which has no data",
            do=f"{do}, or call with real arrays",
        )

    @property
    def box_is_scalar(self) -> bool:
        """Return whether NumPy's value may be a scalar: data would be needed to know."""
        return not self.shape

    def box_write(self, new: Any) -> None:
        """Write a whole new value of this shape and dtype: there is no data to change."""
        if is_traced(new):
            raise ufunc_keywords.plain_refused("a write", new)
        self.nonzero_count = None

    def box_like(self, constant: Any) -> Any:
        """Make an array that takes values like this one."""
        return to_fake(constant)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        caller = installed_caller()
        called = "or a NumPy kernel" if caller is None else f"in {caller},"
        raise self._no_data(f"np.asarray() {called}")

    def __bool__(self) -> bool:
        raise self._no_data("bool()")

    def __float__(self) -> float:
        raise self._no_data("float()")

    def __int__(self) -> int:
        raise self._no_data("int()")

    def __complex__(self) -> complex:
        raise self._no_data("complex()")

    def __index__(self) -> int:
        raise self._no_data("int()")

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._no_data(f"format({spec!r})")
        return repr(self)

    def item(self, *args: Any) -> NoReturn:
        """Raise: there is no data."""
        raise self._no_data("item()")

    def tolist(self) -> NoReturn:
        """Raise: there is no data."""
        raise self._no_data("tolist()")


add_array_class(FAKE_ARRAY, FakeArray)
add_leaf_class(FakeArray)


def _check_one_given(strides: object) -> None:
    if strides is not None:
        raise ArgumentError(
            "FakeArray: both strides and order are given",
            do="leave one out: strides may have gaps, an order makes a dense array",
        )


def make_fake(
    shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...], device: str
) -> FakeArray:
    """Make a FakeArray of parts that fit, without the checks for users."""
    fake: Any = object.__new__(_Settable)
    fake.shape = shape
    fake.dtype = dtype
    fake.strides = strides
    fake.device = device
    fake.__class__ = FakeArray
    return fake  # type: ignore[no-any-return]  # the class is set above


@overload
def fake_like(
    x: HintT,
    shape: int | Sequence[int] | None = None,
    dtype: npt.DTypeLike | None = None,
    device: str | None = None,
) -> HintT: ...
@overload
def fake_like(  # type: ignore[overload-cannot-match]  # arrays lack the base
    x: Array,
    shape: int | Sequence[int] | None = None,
    dtype: npt.DTypeLike | None = None,
    device: str | None = None,
) -> FakeArray: ...
def fake_like(
    x: Any,
    shape: int | Sequence[int] | None = None,
    dtype: npt.DTypeLike | None = None,
    device: str | None = None,
) -> Any:
    """Make a fake array like another array, fake or real.

    Parameters
    ----------
    x : array
        Its shape, dtype, device and order of axes are taken. A number is an array
        without axes.
    shape : int or sequence of int, optional
    dtype : dtype, optional
    device : str, optional

    Returns
    -------
    FakeArray
        With the strides of ``numpy.empty_like(x, dtype, shape=shape)``: the order of
        the axes of `x` is kept if the number of axes is the same. For an array in C
        order, write ``FakeArray(shape, x.dtype, device=x.device)``. For type checkers it
        is of the type of an `x` that is annotated with `Array` or `ArrayT`.

    Raises
    ------
    ArgumentError
        If `x` is neither an array nor a number.
    ShapeError
        If a length is negative.

    Notes
    -----
    Source: `order="K"` of ``numpy.empty_like``, NumPy 2.4.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.fake_like(np.zeros((2, 3)), dtype=np.int64)
    FakeArray(i64[2, 3], device='cpu')
    >>> co.fake_like(np.zeros((2, 3)), (2, 5))
    FakeArray(f64[2, 5], device='cpu')
    """
    if type(x) is FakeArray and shape is None and device is None:
        own = x.dtype
        new = own if dtype is None or dtype is own else _as_dtype(dtype, "fake_like")
        strides = like_strides(x.shape, x.strides, own.itemsize, x.shape, new.itemsize)
        return make_fake(x.shape, new, strides, x.device)
    if type(x) in (bool, int, float, complex):
        x = np.asarray(x)
    if not is_array(x):
        raise ArgumentError(
            f"fake_like: {shown(x)} is not an array",
            do="pass an array: fake_like(x, shape=...)",
        )
    if shape is None:
        length = tuple(x.shape)
        length = length if all_plain(length) else SymShape(length)
    else:
        length = as_shape(shape, "fake_like")
    kind = dtype_of(x) if dtype is None else _as_dtype(dtype, "fake_like")
    before = dtype_of(x).itemsize
    strides = like_strides(tuple(x.shape), strides_of(x), before, length, kind.itemsize)
    where = device_of(x) if device is None else normalize_device(device)
    return make_fake(length, kind, strides, where)


def to_fake(value: Any) -> Any:
    """Return the fake array of a real one; other values as they are."""
    if type(value) is np.ndarray:  # as below, in a fifth of the time
        return make_fake(value.shape, value.dtype, value.strides, "cpu")
    if not is_array(value) or not has_data(value):
        return value
    return make_fake(
        tuple(value.shape), dtype_of(value), tuple(strides_of(value)), device_of(value)
    )


def to_c_order(value: Any) -> Any:
    """Return an array, fake or real, in C order; other values as they are.

    As code in C reads it: aligned, and in the byte order of the machine.
    """
    if is_fake(value):
        dtype = _native(value.dtype)
        order = c_strides(value.shape, dtype.itemsize)
        return make_fake(value.shape, dtype, order, value.device)
    if not has_memory(value):
        return value
    flags = getattr(value, "flags", None)
    if flags is None:  # a kind that has only one order
        return value
    if isinstance(value, np.ndarray) and not (flags.aligned and value.dtype.isnative):
        return value.astype(_native(value.dtype), order="C")
    return value if flags.c_contiguous else value.copy(order="C")


def _native(dtype: Any) -> Any:
    return dtype if getattr(dtype, "isnative", True) else dtype.newbyteorder("=")


def is_symbolic_call(values: Sequence[Any]) -> bool:
    """Return whether an argument is or has a symbolic size."""
    leaves = [leaf for value in values for leaf in flat(value)]
    return any(
        not all_plain((*v.shape, *v.strides)) if is_fake(v) else isinstance(v, Symbolic)
        for v in leaves
    )


def dense_fake(
    shape: tuple[Any, ...], dtype: Any, order: Sequence[int], device: str
) -> FakeArray:
    """Make a dense FakeArray of lengths that are not negative, perhaps symbolic."""
    return make_fake(shape, dtype, packed_strides(shape, order, dtype.itemsize), device)


def _ordered_strides(
    shape: tuple[int, ...], order: tuple[int, ...], itemsize: int
) -> tuple[int, ...]:
    """Return the strides of a dense array in an order that a user gave."""
    is_right = all(map(_is_whole, order)) and {*order} == {*range(len(shape))}
    if len(order) != len(shape) or not is_right:
        raise ShapeError(
            f"the order {order} does not name each axis of the shape {shape} once",
            do="give the axes from the slowest in memory to the fastest: order=(1, 0)",
        )
    return packed_strides(shape, order, itemsize)


def _numbers(given: Any, what: str) -> tuple[int, ...]:
    listed = items_of(given)
    is_order = what == "order"  # whose numbers are compared with the axes later
    if listed is None or not (is_order or all(map(_is_whole, listed))):
        raise ArgumentError(
            f"FakeArray: {what}={shown(given)} is not a sequence of whole numbers",
            do=f"give one for each axis: {what}=(1, 0)",
        )
    return tuple(listed)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) or is_size(value)


def _as_dtype(dtype: Any, what: str) -> np.dtype[Any]:
    if isinstance(dtype, np.dtype):
        return dtype
    try:
        found = read_dtype(dtype)
    except Exception:  # noqa: BLE001  # NumPy evaluates text, and asks the object
        raise ArgumentError(
            f"{what}: {shown(dtype)} is not a dtype",
            do="pass a dtype, such as np.float32",
        ) from None
    return found


_INT = {int}


def as_shape(shape: Any, what: str) -> tuple[int, ...]:
    """Return the lengths of the axes, from one length or several.

    Raises
    ------
    ShapeError
        If it is neither a length nor lengths, or one is negative.
    """
    is_plain = type(shape) is tuple and _INT.issuperset(map(type, shape))
    if is_plain and (not shape or min(shape) >= 0):
        return shape  # type: ignore[no-any-return]  # a tuple of ints
    try:
        lengths = _as_lengths(shape)
    except TypeError:
        raise ShapeError(
            f"{what}: {shown(shape)} is not a shape",
            do="give whole numbers: (2, 3)",
        ) from None
    for length in lengths:
        # A symbolic length may depend on data.
        if length < 0 if type(length) is int else (length < 0) is True:
            raise ShapeError(
                f"{what}: a shape has no negative lengths, got {lengths}",
                do="give the length of each axis",
            )
    return lengths if all_plain(lengths) else SymShape(lengths)


def _as_lengths(shape: Any) -> tuple[Any, ...]:
    if type(shape) is not tuple:
        try:
            return (_as_length(shape),)
        except TypeError:
            pass
    return tuple([n if type(n) is int else _as_length(n) for n in shape])


def _as_length(value: Any) -> Any:
    return value if is_size(value) else index(value)


# ---- fake arrays with symbolic sizes ----


def with_sizes(
    fake: FakeArray,
    names: Sequence[str | int | None],
    source: str,
    context: SizeContext,
) -> FakeArray:
    """Make a fake array with symbolic sizes for the axes that have names.

    Parameters
    ----------
    fake : FakeArray
    names : sequence of str, int or None
        None, or the length itself, for an axis whose length is a number.
    source : str
        The array in messages and generated code, such as ``x``.
    context : SizeContext
        The sizes of the capture.

    Returns
    -------
    FakeArray
        Dense, with the same order of axes.

    Raises
    ------
    ShapeError
        If the names do not fit the shape.
    ArgumentError
        If a name cannot be used.
    """
    if len(names) != len(fake.shape):
        raise ShapeError(
            f"sizes={shown(names)} has {len(names)}"
            f" {'entry' if len(names) == 1 else 'entries'} for {abbreviated(fake)}",
            do="give one for each axis, None where it is a number",
        )
    found = [
        _size(context, f"{source}.shape[{axis}]", length, name)
        for axis, (length, name) in enumerate(zip(fake.shape, names, strict=True))
    ]
    return _with_shape(fake, tuple(found))


def _size(context: SizeContext, source: str, length: int, name: Any) -> Any:
    if name is None:
        return length
    if isinstance(name, str):
        return context.input_size(length, source, name)
    if type(name) is not int:
        raise ArgumentError(
            f"{shown(name)} is not a size", do='give a name such as "batch", or None'
        )
    if name != length:
        raise ShapeError(
            f"{source} is {length}, and sizes say {name}",
            do=f"write {length}, None or a name",
        )
    return length


def symbolic_like(
    fake: FakeArray,
    source: str,
    context: SizeContext,
    axes: Collection[int] | None = None,
) -> FakeArray:
    """Make a fake array with a nameless symbolic size for each axis, or for some."""
    found = [
        context.input_size(length, f"{source}.shape[{axis}]")
        if axes is None or axis in axes
        else length
        for axis, length in enumerate(fake.shape)
    ]
    return _with_shape(fake, tuple(found))


def _with_shape(fake: FakeArray, shape: tuple[Any, ...]) -> FakeArray:
    """Make a dense array of another shape, with the order of axes of `fake`."""
    if 0 in fake.shape:  # NumPy gives no strides there
        order = list(range(len(shape)))
    else:
        order = axis_order(fake.shape, fake.strides)
    sizes = shape if all_plain(shape) else SymShape(shape)
    return dense_fake(sizes, fake.dtype, order, fake.device)


# ---- dynamic sizes and the sizes of real results ----


# As a pytree it is a tuple: its sizes are leaves.
add_own_node(SymShape, lambda shape: (tuple(shape), None), lambda _, sizes: (*sizes,))


def all_known(real: Any) -> bool:
    """Return whether all lengths are known; lazy arrays may have nan instead."""
    return all(n == n for n in real.shape)  # noqa: PLR0124  # nan differs from itself


def with_numbers(
    reals: Sequence[Any], expected: Any, context: SizeContext
) -> tuple[Any, str]:
    """Return fake results with the sizes of real ones in place of dynamic sizes.

    Also the fault of a size that is not within its bounds, or empty.
    """
    fakes = [v for v in flat(expected) if is_fake(v)]
    arrays = [v for v in reals if is_array(v)]
    shapes = [
        (fake.shape, tuple(real.shape))
        for fake, real in zip(fakes, arrays, strict=False)
        if len(fake.shape) == len(real.shape) and all_known(real)
    ]
    pairs = [pair for fake, real in shapes for pair in zip(fake, real, strict=True)]
    numbers = size_context.solve_names(pairs)
    fault = size_context.fault_of(context, numbers)

    def numbered(value: Any) -> Any:
        if not is_fake(value):
            return value
        shape = tuple(
            size_context.with_values(context, n, numbers) for n in value.shape
        )
        strides = tuple(
            size_context.with_values(context, n, numbers) for n in value.strides
        )
        if any(type(n) is int and n == 0 for n in shape):
            strides = (0,) * len(shape)
        return make_fake(shape, value.dtype, strides, value.device)

    return map_nested(expected, numbered), fault


# ---- fake arrays in notebooks ----


def _page_of(x: FakeArray) -> str:
    """Write a fake array as HTML for notebooks."""
    facts: list[tuple[str, Child]] = [
        ("shape", html.mono(_tuple_text(x.shape))),
        ("dtype", html.mono(str(x.dtype))),
        ("strides", html.mono(_tuple_text(x.strides))),
        ("layout", _layout(x)),
        ("size", f"{_count(x.size)}, {_bytes(x)}"),
        ("device", html.mono(x.device)),
    ]
    head = html.title(abbreviated(x), "FakeArray, no data")
    return str(html.in_notebook(html.card(head, html.fact_list(facts))))


def _tuple_text(lengths: tuple[Any, ...]) -> str:
    texts = [str(length) for length in lengths]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _count(size: Any) -> str:
    return counted(size, "element") if isinstance(size, int) else f"{size} elements"


def _bytes(x: FakeArray) -> str:
    return f"{x.nbytes:,} bytes" if isinstance(x.nbytes, int) else f"{x.nbytes} bytes"


def _layout(x: FakeArray) -> str:
    """Describe the order of the axes in memory."""
    if len(x.shape) < 2:
        return ""
    if str(x.strides) == str(c_strides(x.shape, x.dtype.itemsize)):
        return "C order: the last axis is dense"
    reverse = c_strides(x.shape[::-1], x.dtype.itemsize)[::-1]
    if str(x.strides) == str(reverse):
        return "Fortran order: the first axis is dense"
    return "neither C nor Fortran order"
