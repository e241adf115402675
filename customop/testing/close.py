"""assert_close compares nested arrays; Space turns arrays into vectors of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import TypeIs

from customop.arrays.array import dtype_of, is_complex, strides_of
from customop.arrays.convert import from_host, to_host
from customop.arrays.kinds import device_of, is_array, is_fake, is_traced
from customop.arrays.nested import abbreviated, describe, flatten, show
from customop.errors import ArgumentError, OpCheckError

# ---- assert_close: arrays of every kind, also inside containers ----


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    check_device: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Assert that arrays are close to others, also inside containers.

    Parameters
    ----------
    actual : array, number, or sequence, mapping or pytree of them
        Arrays of any kind. Of fake arrays all but the values is compared.
    expected : array, number, or sequence, mapping or pytree of them
        Nested as `actual`; sequences may be of different classes.
    rtol, atol : float, optional
        Elements are close within ``atol + rtol * abs(expected)``. Give both or none;
        the defaults depend on the dtypes, see Notes.
    equal_nan : bool
        Whether nan is close to nan.
    check_dtype : bool
        Whether dtypes must be the same. A Python number fits every dtype of an array.
    check_device : bool
        Whether devices must be the same.
    check_stride : bool
        Whether strides must be the same.
    msg : str or callable, optional
        The message of the error, or a function that makes it from the usual message.

    Raises
    ------
    OpCheckError
        If something is not close; an AssertionError. It names the path inside the
        containers, how many elements are off, and where by how much.
    ArgumentError
        If a value is neither array, number nor container, or is traced, or one of
        `rtol` and `atol` is given alone.

    Notes
    -----
    Defaults of (rtol, atol): float16 (1e-3, 1e-5), bfloat16 (1.6e-2, 1e-5), float32
    and complex64 (1.3e-6, 1e-5), longer ones (1e-7, 1e-7), others (0, 0); of two
    dtypes the looser. Source: ``torch.testing.assert_close``, torch 2.13.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.assert_close({"w": np.array([0.1 + 0.2])}, {"w": np.array([0.3])})
    >>> co.assert_close(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    Traceback (most recent call last):
    ...
    customop.OpCheckError: assert_close: 1 of 2 elements (50.0 %) are not close
      actual f64[2], expected f64[2]
      greatest absolute difference: 0.5 at [1] (2.5 and 2.0), atol=1e-07
      greatest relative difference: 0.25 at [1] (2.5 and 2.0), rtol=1e-07
      do: correct the elements, or pass rtol and atol that allow for the difference
    >>> co.assert_close(np.array([1.0, 2.5]), np.array([1.0, 2.0]), rtol=0.0, atol=0.5)
    >>> co.assert_close(np.array([np.nan]), np.array([np.nan]), equal_nan=True)
    >>> co.assert_close(np.array([1.0]), np.array([1], int), check_dtype=False)
    """
    __tracebackhide__ = True
    check_bounds("assert_close", rtol, atol)
    how = _Comparison(rtol, atol, equal_nan, check_dtype, check_device, check_stride)
    faults = list(_faults("", actual, expected, how))
    if not faults:
        return
    what, where = faults[0]
    more = [f"also: {text}" for text, _ in faults[1:_SHOWN]]
    rest = len(faults) - _SHOWN
    error = OpCheckError(
        f"assert_close: {what}",
        *where,
        *more,
        *([f"and {rest} more"] if rest > 0 else []),
        do="correct the elements, or pass rtol and atol that allow for the difference"
        if "elements" in what
        else "compare values of the same nesting and form, or switch that check off",
    )
    if msg is not None:
        raise OpCheckError(msg(str(error)) if callable(msg) else msg)
    raise error


def check_bounds(function: str, rtol: float | None, atol: float | None) -> None:
    """Raise unless both bounds are given or none, and neither is negative."""
    if (rtol is None) is not (atol is None):
        given, left = ("rtol", "atol") if atol is None else ("atol", "rtol")
        raise ArgumentError(
            f"{function}: {given} is given without {left}",
            do=f"pass both, as {left}=0.0, or none",
        )
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not value >= 0:
            raise ArgumentError(
                f"{function}: {name}={value!r} is out of range",
                do=f"pass {name} >= 0",
            )


# How many differences a message names.
_SHOWN = 6


class _Comparison(NamedTuple):
    """The settings of a comparison."""

    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_dtype: bool
    check_device: bool
    check_stride: bool

    def bounds(self, *dtypes: np.dtype[Any]) -> tuple[float, float]:
        """Return the given tolerances, or else the loosest of these dtypes."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        known = [
            _TOLERANCES.get(d.name, _OTHER_FLOATS if d.kind in "fc" else (0.0, 0.0))
            for d in dtypes
        ]
        return max(r for r, _ in known), max(a for _, a in known)


# dtype -> (rtol, atol). Other dtypes are compared exactly. Source: the table of
# torch.testing.assert_close, torch 2.13.
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
# For floats of other sizes, whose names depend on the machine.
_OTHER_FLOATS = (1e-7, 1e-7)

_Fault = tuple[str, list[str]]


def _faults(path: str, a: Any, e: Any, how: _Comparison) -> Iterator[_Fault]:
    """Yield the differences between two nested values."""
    if a is None and e is None:
        return
    if _is_value(a) and _is_value(e):
        yield from _value_faults(path, a, e, how)
    elif isinstance(a, Mapping) and isinstance(e, Mapping):
        yield from _mapping_faults(path, a, e, how)
    elif _is_sequence(a) and _is_sequence(e):
        yield from _sequence_faults(path, a, e, how)
    elif _is_node(a) and _is_node(e):
        yield from _node_faults(path, a, e, how)
    else:
        for value in (a, e):
            _check_comparable(path, value)
        yield f"{show(a)} is compared with {show(e)}{_at(path)}", []


def _at(path: str) -> str:
    return f", at actual{path}" if path else ""


def _is_value(value: Any) -> bool:
    return is_array(value) or isinstance(value, int | float | complex)


def _is_sequence(value: Any) -> TypeIs[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_node(value: Any) -> bool:
    """Return whether a value is a pytree with leaves other than itself."""
    found = flatten(value)[0]
    return not (len(found) == 1 and found[0] is value)


def _check_comparable(path: str, value: Any) -> None:
    known = value is None or _is_value(value) or isinstance(value, Mapping)
    if not known and not _is_sequence(value) and not _is_node(value):
        raise ArgumentError(
            f"assert_close: {show(value)}{_at(path)} is not an array, number or container",
            do="compare other values with ==, and pass arrays here",
        )


def _mapping_faults(
    path: str, a: Mapping[Any, Any], e: Mapping[Any, Any], how: _Comparison
) -> Iterator[_Fault]:
    if a.keys() != e.keys():
        missing = [repr(key) for key in e if key not in a]
        extra = [repr(key) for key in a if key not in e]
        yield (
            f"mappings have different keys{_at(path)}",
            [
                f"{side}: {', '.join(keys)}"
                for side, keys in (("only expected", missing), ("only actual", extra))
                if keys
            ],
        )
    for key in a:
        if key in e:
            yield from _faults(f"{path}[{key!r}]", a[key], e[key], how)


def _sequence_faults(
    path: str, a: Sequence[Any], e: Sequence[Any], how: _Comparison
) -> Iterator[_Fault]:
    if len(a) != len(e):
        yield f"{len(a)} items are compared with {len(e)}{_at(path)}", []
        return
    for i, (left, right) in enumerate(zip(a, e, strict=True)):
        yield from _faults(f"{path}[{i}]", left, right, how)


def _node_faults(path: str, a: Any, e: Any, how: _Comparison) -> Iterator[_Fault]:
    (left, form), (right, other) = flatten(a), flatten(e)
    if form != other:
        yield f"structures differ{_at(path)}", [f"actual {form}", f"expected {other}"]
        return
    places = [accessor.codify(path) for accessor in form.accessors()]
    for at, x, y in zip(places, left, right, strict=True):
        yield from _faults(at, x, y, how)


def _value_faults(path: str, a: Any, e: Any, how: _Comparison) -> Iterator[_Fault]:
    for side, value in (("actual", a), ("expected", e)):
        if is_traced(value):
            raise ArgumentError(
                f"assert_close: {side}{path} is {describe(value)}, which a transform"
                " follows",
                do="compare what the transform returns, or stop_gradient(x)",
            )
    faults = list(_form_faults(a, e, how))
    where = [f"actual {_brief(a)}, expected {_brief(e)}"]
    for text in faults:
        yield f"{text}{_at(path)}", where
    shapes = (tuple(getattr(value, "shape", ())) for value in (a, e))
    if faults or is_fake(a) or is_fake(e) or len({*shapes}) > 1:
        return
    text, lines = _element_faults(a, e, how)
    if text:
        yield f"{text}{_at(path)}", [*where, *lines]


def _brief(value: Any) -> str:
    return abbreviated(value) if is_array(value) else show(value)


def _form_faults(a: Any, e: Any, how: _Comparison) -> Iterator[str]:
    """Yield differences in anything but the values."""
    shapes = [tuple(getattr(value, "shape", ())) for value in (a, e)]
    if shapes[0] != shapes[1]:
        yield f"shapes {shapes[0]} and {shapes[1]} differ"
    if is_array(a) and is_array(e):
        yield from _array_faults(a, e, how)
    elif (
        how.check_dtype
        and not is_array(a)
        and not is_array(e)
        and type(a) is not type(e)
    ):
        yield f"types {type(a).__name__} and {type(e).__name__} differ"


def _array_faults(a: Any, e: Any, how: _Comparison) -> Iterator[str]:
    dtypes = [dtype_of(value) for value in (a, e)]
    if how.check_dtype and dtypes[0] != dtypes[1]:
        yield f"dtypes {dtypes[0]} and {dtypes[1]} differ"
    devices = [device_of(value) for value in (a, e)]
    if how.check_device and devices[0] != devices[1]:
        yield f"devices '{devices[0]}' and '{devices[1]}' differ"
    strides = [tuple(strides_of(value)) for value in (a, e)]
    if how.check_stride and a.shape == e.shape and strides[0] != strides[1]:
        yield f"strides {strides[0]} and {strides[1]} differ"


def _element_faults(a: Any, e: Any, how: _Comparison) -> _Fault:
    """Describe how many elements of two arrays of one shape differ, and by how much."""
    left, right = (to_host(v) if is_array(v) else np.asarray(v) for v in (a, e))
    rtol, atol = how.bounds(*(v.dtype for v in _typed(a, e, left, right)))
    equal = left == right
    if how.equal_nan:
        equal |= (left != left) & (right != right)  # noqa: PLR0124  # nan
    if np.all(equal):
        return "", []
    if not (_is_number(left) and _is_number(right)):
        return _counted(~equal), []
    # This is exact for all but the longest integers. Short floats could overflow.
    wide = np.result_type(left, right, np.float64)
    wide = wide if wide.kind == "c" else np.result_type(wide, np.longdouble)
    far, near = left.astype(wide), right.astype(wide)
    with np.errstate(all="ignore"):
        apart = np.abs(far - near)
        relative = apart / np.abs(near)
        close = equal | (np.isfinite(apart) & (apart <= atol + rtol * np.abs(near)))
    if np.all(close):
        return "", []
    lines = [
        _greatest("absolute", apart, equal, left, right, f"atol={atol}"),
        _greatest("relative", relative, equal, left, right, f"rtol={rtol}"),
    ]
    if np.any(np.isnan(far) & np.isnan(near) & ~equal):
        lines.append("nan is close to nan with equal_nan=True alone")
    return _counted(~close), lines


def _typed(a: Any, e: Any, left: Vector, right: Vector) -> list[Vector]:
    """Return the arrays among two values; a number takes the dtype of the array."""
    pairs = [v for given, v in ((a, left), (e, right)) if is_array(given)]
    return pairs or [left, right]


def _is_number(values: Vector) -> bool:
    return values.dtype.kind in "biufc" or values.dtype.name in _TOLERANCES


def _counted(off: Vector) -> str:
    count = int(np.count_nonzero(off))
    return f"{count} of {off.size} elements ({count / off.size:.1%}) are not close".replace(
        "%", " %"
    )


def _greatest(
    name: str, apart: Vector, equal: Vector, left: Vector, right: Vector, bound: str
) -> str:
    # Equal elements must not win. argmax treats nan as the greatest value.
    order = np.where(equal, -1.0, apart)
    at = np.unravel_index(int(np.argmax(order)), apart.shape)
    place_of = f" at [{', '.join(str(int(i)) for i in at)}]" if at else ""
    pair = f"{left[at]} and {right[at]}"
    return f"greatest {name} difference: {float(apart[at]):.6g}{place_of} ({pair}), {bound}"


# ---- arrays of every kind as vectors of real numbers, and back ----

Vector = np.ndarray[Any, np.dtype[Any]]


class Space:
    """Arrays seen as one vector of real numbers; a complex element takes two places.

    Over these numbers every differentiable function has a Jacobian, even one that is
    not holomorphic, such as abs.

    Attributes
    ----------
    labels : tuple of str
        How messages name the arrays.
    arrays : tuple of array
    widths : list of int
        Numbers in each element, by array.
    blocks : list of slice
        Where each array lies in the vector.
    size : int
        Length of the vector.
    is_plain : bool
        Whether all arrays are C-contiguous float64 arrays of NumPy.
    """

    __slots__ = ("arrays", "blocks", "is_plain", "labels", "size", "widths")

    def __init__(self, labels: Iterable[str], arrays: Iterable[Any]) -> None:
        self.labels: tuple[str, ...] = tuple(labels)
        self.arrays: tuple[Any, ...] = tuple(arrays)
        # NumPy's own float64 arrays take a third of the time.
        self.is_plain: bool = all(map(is_plain, self.arrays))
        if self.is_plain:
            self.widths: list[int] = [1] * len(self.arrays)
            lengths = [x.size for x in self.arrays]
        else:
            self.widths = [2 if is_complex(dtype_of(x)) else 1 for x in self.arrays]
            pairs = zip(self.arrays, self.widths, strict=True)
            lengths = [prod(x.shape) * width for x, width in pairs]
        ends = list(accumulate(lengths))
        self.blocks: list[slice] = [
            slice(end - n, end) for end, n in zip(ends, lengths, strict=True)
        ]
        self.size: int = sum(lengths)

    def vector(self, arrays: Sequence[Any]) -> Vector:
        """Flatten arrays into one vector."""
        if len(arrays) == 1 and is_plain(arrays[0]):
            return arrays[0].flatten()  # type: ignore[no-any-return]  # a vector
        if arrays and all(map(is_plain, arrays)):
            return np.concatenate([x.reshape(-1) for x in arrays])
        parts = [_components(to_host(x)) for x in arrays]
        if len(parts) == 1 and parts[0].dtype == np.float64:
            return parts[0].copy()
        return np.concatenate([np.zeros(0), *parts])

    def split(self, vector: Vector) -> list[Any]:
        """Split a vector into arrays with the kind, shape and dtype of this space."""
        if self.is_plain and vector.dtype is _DOUBLE:
            if len(self.arrays) == 1:
                return [_filled(self.arrays[0].shape, vector)]
            return [
                _filled(x.shape, vector[block])
                for block, x in zip(self.blocks, self.arrays, strict=True)
            ]
        pairs = zip(self.blocks, self.arrays, strict=True)
        return [from_host(_elements(vector[block], x), x) for block, x in pairs]

    def blockwise(self, vector: Vector) -> list[Vector]:
        """Return one vector for each array: zero outside the block of that array."""
        found = []
        for block in self.blocks:
            part = np.zeros_like(vector)
            part[block] = vector[block]
            found.append(part)
        return found

    def unit(self, i: int) -> Vector:
        """Return the unit vector along a component."""
        unit = np.zeros(self.size)
        unit[i] = 1.0
        return unit

    def units(self) -> Iterator[Vector]:
        """Iterate over the unit vectors."""
        return map(self.unit, range(self.size))

    def random(self, rng: np.random.Generator) -> Vector:
        """Return a random direction, with no component near zero."""
        return random_vector(self.size, rng)

    def starts(self) -> list[int]:
        """Return the position in the vector at which each element begins."""
        pairs = zip(self.blocks, self.widths, strict=True)
        return [i for b, w in pairs for i in range(b.start, b.stop, w)]

    def holder(self, component: int) -> int:
        """Return the index of the array that a component belongs to."""
        return next(i for i, block in enumerate(self.blocks) if component < block.stop)

    def name(self, component: int) -> str:
        """Name a component, as in ``imaginary part of inputs[0][1, 2]``."""
        i = self.holder(component)
        width = self.widths[i]
        element, part = divmod(component - self.blocks[i].start, width)
        name = f"{self.labels[i]}{_index_text(element, self.arrays[i].shape)}"
        return f"{_PARTS[part]} part of {name}" if width == 2 else name


def random_vector(size: int, rng: np.random.Generator) -> Vector:
    """Return a random vector with no component near zero."""
    signs: Vector = rng.choice([-1.0, 1.0], size)
    return signs * rng.uniform(0.5, 1.5, size)


_PARTS = ("real", "imaginary")


def _index_text(element: int, shape: Any) -> str:
    """Return the index of an element as text, such as ``[1, 2]``; "" without axes."""
    index = np.unravel_index(element, tuple(shape)) if shape else ()
    return f"[{', '.join(str(int(i)) for i in index)}]" if index else ""


_DOUBLE = np.dtype(np.float64)


def is_plain(x: Any) -> bool:
    """Return whether an array is a C-contiguous float64 array of NumPy."""
    return type(x) is np.ndarray and x.dtype is _DOUBLE and x.flags.c_contiguous


def _filled(shape: tuple[int, ...], components: Vector) -> Vector:
    if len(shape) == 1:
        return components.copy()
    out = np.empty(shape)
    out.reshape(-1)[:] = components
    return out


def _components(values: Vector) -> Vector:
    flat = np.ascontiguousarray(values).reshape(-1)
    if is_complex(flat.dtype):
        flat = flat.view(np.finfo(flat.dtype).dtype)
    return flat if flat.dtype == np.longdouble else flat.astype(np.float64, copy=False)


def _elements(components: Vector, like: Any) -> Vector:
    """Make an array with the shape and dtype of `like` from its components."""
    dtype = dtype_of(like)
    if dtype == components.dtype:
        return components.reshape(like.shape)
    if is_complex(dtype):
        pairs = components.astype(np.finfo(dtype).dtype)
        return pairs.view(dtype).reshape(like.shape)
    return components.astype(dtype).reshape(like.shape)
