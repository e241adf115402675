"""Random programs of NumPy's functions: calls with arrays of all dtypes, shapes and layouts."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.numpy import _random_edits, _random_statistics

Program = tuple[str, Callable[..., Any], list[Any]]

DTYPES = [
    "?",
    "i1",
    "i2",
    "i4",
    "i8",
    "u1",
    "u2",
    "u4",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
]
SHAPES: list[tuple[int, ...]] = [
    (),
    (0,),
    (1,),
    (3,),
    (2, 3),
    (3, 3),
    (1, 3),
    (2, 1),
    (0, 3),
    (2, 0),
    (2, 3, 4),
    (2, 2, 2),
    (4, 1, 3),
    (0, 2, 3),
    (2, 3, 1, 2),
]
UNARY = [
    "negative",
    "positive",
    "square",
    "reciprocal",
    "sqrt",
    "cbrt",
    "conjugate",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "deg2rad",
    "rad2deg",
    "absolute",
    "fabs",
    "sign",
    "floor",
    "ceil",
    "trunc",
    "fix",
    "rint",
    "signbit",
    "isnan",
    "isinf",
    "isfinite",
    "logical_not",
    "invert",
]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "float_power",
    "remainder",
    "fmod",
    "hypot",
    "arctan2",
    "logaddexp",
    "logaddexp2",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "floor_divide",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
]
OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "and_",
    "or_",
    "xor",
    "lshift",
]
REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "max",
    "min",
    "var",
    "std",
    "any",
    "all",
    "argmax",
    "argmin",
    "ptp",
    "nansum",
    "nanmean",
    "median",
    "count_nonzero",
    "average",
]
WITH_DTYPE = ("sum", "prod", "mean", "var", "std", "nansum", "nanmean")
ONE_AXIS = ("argmax", "argmin", "cumsum", "cumprod", "sort")


class Draw(random.Random):
    """Draws the parts of a program."""

    def array(self, shape: Any = None, dtype: Any = None) -> Any:
        """An array: small numbers, extreme integers, now and then nan and infinity."""
        shape = self.choice(SHAPES) if shape is None else shape
        kind = np.dtype(dtype or self.choice(DTYPES))
        wild = self.random() < 0.1
        flat = [self._number(kind, wild) for _ in range(math.prod(shape))]
        return self._laid_out(np.array(flat, kind).reshape(shape))

    def _number(self, dtype: Any, wild: bool) -> Any:
        if dtype.kind == "b":
            return self.random() < 0.5
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            low, high = (limits.min, limits.max) if wild else (max(limits.min, -5), 6)
            return self.randint(low, high)
        if dtype.kind == "c":
            return complex(self._float(wild), self._float(wild))
        return self._float(wild)

    def _float(self, wild: bool) -> float:
        if wild and self.random() < 0.3:
            return self.choice([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf])
        return self.uniform(-2, 2)

    def _laid_out(self, array: Any) -> Any:
        """The same numbers in another order in memory, or with gaps."""
        if not array.ndim or self.random() < 0.6:
            return array
        ways: list[Callable[[Any], Any]] = [
            np.asfortranarray,
            lambda a: np.ascontiguousarray(a[::-1])[::-1],
            lambda a: np.repeat(a, 2, -1)[..., ::2],
        ]
        return self.choice(ways)(array)

    def fitting(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts with another one, but for one in twenty."""
        if self.random() < 0.05:
            return self.choice(SHAPES)
        lengths = [1 if self.random() < 0.2 else n for n in shape]
        return tuple(lengths[self.randint(0, len(lengths)) :] if lengths else lengths)

    def axis(self, rank: int, *, many: bool = True, none: bool = True) -> Any:
        """An axis, a tuple of them or None; one in twenty-five does not exist."""
        chance = self.random()
        if chance < 0.04:
            return self.choice([rank, -rank - 1])
        if none and chance < 0.3:
            return None
        if many and chance < 0.45:
            return tuple(self.sample(range(rank), self.randint(0, rank)))
        return self.randrange(-rank, rank) if rank else self.choice([0, -1])

    def number(self) -> Any:
        """A number of Python or NumPy."""
        value = self.choice([0, 1, 2, -1, 0.5, -1.5, 1j, True, 300, -200])
        if self.random() < 0.7:
            return value
        return self.choice([np.float32, np.float64, np.int8, np.complex64])(1)

    def other(self, x: Any) -> tuple[list[Any], Callable[[tuple[Any, ...]], Any]]:
        """A second operand: traced arrays, and what gives the operand of them."""
        if self.random() < 0.3:
            number = self.number()
            return [], lambda traced: number
        y = self.array(self.fitting(x.shape), x.dtype if self.random() < 0.4 else None)
        if self.random() < 0.5:
            return [y], lambda traced: traced[0]
        return [], lambda traced: y

    def item(self, length: int) -> Any:
        """One item of a key, for an axis of this length."""
        chance = self.random()
        if chance < 0.2:
            return self.randint(-length, length - 1) if length else 0
        if chance < 0.5:
            ends = [
                self.choice([None, self.randint(-length - 1, length + 1)]) for _ in "ab"
            ]
            return slice(*ends, self.choice([None, 1, 2, -1, -2]))
        if chance < 0.65:
            return np.array([self.random() < 0.5 for _ in range(length)], bool)
        shape = self.choice([(2,), (1,), (2, 2), (), (0,)])
        if not length:
            return np.zeros((0,), int)
        places = [self.randint(-length, length - 1) for _ in range(math.prod(shape))]
        array = np.array(places, int).reshape(shape)
        return array.tolist() if array.ndim and self.random() < 0.4 else array

    def key(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """A key of items for some axes, with new axes and an Ellipsis between them."""
        items: list[Any] = [self.item(n) for n in shape]
        if self.random() < 0.4:
            at = self.randint(0, len(items))
            items[at : at + self.randint(0, 2)] = [Ellipsis]
        for _ in range(2):
            if self.random() < 0.15:
                items.insert(self.randint(0, len(items)), self.choice([None, True]))
        return tuple(items)


# ---- programs ----


def unary(draw: Draw) -> Program:
    """A function of each element."""
    name, x = draw.choice(UNARY), draw.array()
    return f"np.{name}", getattr(np, name), [x]


def binary(draw: Draw) -> Program:
    """A ufunc or an operator of Python, from either side."""
    x = draw.array()
    more, of = draw.other(x)
    name = draw.choice(BINARY + OPERATORS)
    fn = getattr(np if name in BINARY else operator, name)
    if draw.random() < 0.3:
        return f"{name}, reflected", lambda x, *ys: fn(of(ys), x), [x, *more]
    return name, lambda x, *ys: fn(x, of(ys)), [x, *more]


def reduction(draw: Draw) -> Program:
    """A reduction, as a function."""
    name, x = draw.choice(REDUCTIONS), draw.array()
    keywords: dict[str, Any] = {"axis": draw.axis(x.ndim, many=name not in ONE_AXIS)}
    if draw.random() < 0.3:
        keywords["keepdims"] = True
    if name in WITH_DTYPE and draw.random() < 0.3:
        # The mean of nothing is nan, which has no integer.
        keywords["dtype"] = draw.choice(DTYPES[9:] if "mean" in name else DTYPES)
    if name in ("var", "std") and draw.random() < 0.3:
        keywords["ddof"] = draw.choice([1, 0.5])
    if name in ("sum", "max", "nansum") and draw.random() < 0.1:
        keywords["initial"] = draw.choice([0, True, 5.5])
    if name == "average" and draw.random() < 0.6:
        weights = draw.array(x.shape)
        return (
            f"np.average({keywords}, weights)",
            lambda x, w: np.average(x, weights=w, **keywords),
            [x, weights],
        )
    return f"np.{name}({keywords})", lambda x: getattr(np, name)(x, **keywords), [x]


def running(draw: Draw) -> Program:
    """A running sum or product, a sorted array, or a reduction of a ufunc."""
    x = draw.array()
    axis = draw.axis(x.ndim, many=False)
    name = draw.choice(["cumsum", "cumprod", "sort", "argsort", "add", "maximum"])
    if name in ("add", "maximum"):
        ufunc = getattr(np, name)
        return f"np.{name}.reduce({axis})", lambda x: ufunc.reduce(x, axis), [x]
    more = {"kind": "stable"} if name == "argsort" else {}
    return f"np.{name}({axis})", lambda x: getattr(np, name)(x, axis, **more), [x]


def choice(draw: Draw) -> Program:
    """np.clip, np.where or np.select."""
    x = draw.array()
    more, of = draw.other(x)
    bounds = [draw.choice([None, 0, -1, 300, 0.5, draw.array(x.shape)]) for _ in "ab"]
    mask = draw.array(draw.fitting(x.shape), draw.choice(["?", "i1"]))
    options: list[tuple[str, Callable[..., Any]]] = [
        (f"np.clip({bounds})", lambda x, *ys: np.clip(x, *bounds)),
        ("np.where", lambda x, *ys: np.where(mask, x, of(ys))),
        (
            "np.select",
            lambda x, *ys: np.select([x > 1, x < 0], [of(ys), x], 1.5),
        ),
    ]
    return *draw.choice(options), [x, *more]


def rearranged(draw: Draw) -> Program:
    """A function that moves, repeats or casts elements."""
    x = draw.array()
    one, some = draw.axis(x.ndim, many=False, none=False), draw.axis(x.ndim)
    two = draw.axis(x.ndim, many=False, none=False)
    start, step = draw.randint(-x.ndim, x.ndim), draw.choice([0, 1, -1, 5])
    shape = draw.choice([(-1,), (2, -1), x.shape[::-1], (1, -1), (0,), ()])
    order, dtype = draw.choice("CF"), draw.choice(DTYPES)
    counts = draw.choice([2, 0, [2], (2, 1), (), (1, 2, 2)])
    width = draw.choice([1, 0, (1, 2), [(0, 1)] * x.ndim])
    mode = draw.choice(["constant", "edge", "reflect", "symmetric", "wrap"])
    options: dict[str, Callable[[Any], Any]] = {
        f"reshape {shape} {order}": lambda x: np.reshape(x, shape, order=order),
        f"ravel {order}": lambda x: np.ravel(x, order),
        f"moveaxis {one} {two}": lambda x: np.moveaxis(x, one, two),
        f"rollaxis {one} {start}": lambda x: np.rollaxis(x, one, start),
        f"swapaxes {one} {two}": lambda x: np.swapaxes(x, one, two),
        f"expand_dims {one}": lambda x: np.expand_dims(x, one),
        f"squeeze {some}": lambda x: np.squeeze(x, some),
        f"flip {some}": lambda x: np.flip(x, some),
        f"roll {step} {one}": lambda x: np.roll(x, step, one),
        f"tril {step}": lambda x: np.tril(x, step),
        f"diag {step}": lambda x: np.diag(x, step),
        f"trace {step} {dtype}": lambda x: np.trace(x, step, dtype=dtype),
        f"diagonal {step} {one} {two}": lambda x: np.diagonal(x, step, one, two),
        f"astype {dtype}": lambda x: x.astype(dtype),
        f"round {step}": lambda x: np.round(x, step),
        f"tile {counts}": lambda x: np.tile(x, counts),
        f"repeat {counts} {one}": lambda x: np.repeat(x, counts, one),
        f"pad {width} {mode}": lambda x: np.pad(x, width, mode),
        f"full_like {dtype}": lambda x: np.full_like(x, 1.5, dtype=dtype),
        f"unstack {one}": lambda x: np.unstack(x, axis=one),
        f"array_split {one}": lambda x: np.array_split(x, 2, one),
        "imag": lambda x: x.imag,
        "argwhere": np.argwhere,
        "atleast_3d": np.atleast_3d,
        "rot90": np.rot90,
    }
    name = draw.choice(list(options))
    return name, options[name], [x]


def indexed(draw: Draw) -> Program:
    """x[key], or np.take and its kin."""
    x = draw.array()
    axis = draw.axis(x.ndim, many=False)
    places = [draw.randint(-2, 2) for _ in range(2)]
    mode = draw.choice(["raise", "wrap", "clip"])
    key = draw.key(x.shape)
    options: list[tuple[str, Callable[[Any], Any]]] = [
        (f"x[{key}]", lambda x: x[key]),
        (f"take {places} {axis} {mode}", lambda x: np.take(x, places, axis, mode=mode)),
        (f"compress {axis}", lambda x: np.compress([True, False], x, axis)),
    ]
    return *draw.choices(options, [6, 1, 1])[0], [x]


def joined(draw: Draw) -> Program:
    """Two arrays joined."""
    x = draw.array()
    axis = draw.axis(x.ndim, many=False)
    y = draw.array(x.shape, x.dtype if draw.random() < 0.5 else None)
    at = draw.randint(-x.ndim - 1, x.ndim)
    options: list[tuple[str, Callable[..., Any]]] = [
        (f"concatenate {axis}", lambda x, y: np.concatenate([x, y, x], axis)),
        (f"stack {at}", lambda x, y: np.stack([x, y], at)),
        (f"append {axis}", lambda x, y: np.append(x, y, axis)),
        ("vstack", lambda x, y: np.vstack([x, y])),
        ("column_stack", lambda x, y: np.column_stack([x, y])),
        ("meshgrid", lambda x, y: np.meshgrid(x, y)),
        ("broadcast_arrays", lambda x, y: np.broadcast_arrays(x, y)),
    ]
    return *draw.choice(options), [x, y]


def product(draw: Draw) -> Program:
    """A product of matrices or arrays, or a norm."""
    n, dtype = draw.randint(0, 3), draw.choice(DTYPES)
    a = draw.array(draw.choice([(n,), (2, n), (3, n), (2, 2, n), ()]), dtype)
    shape = draw.choice([(n,), (n, 2), (n, 3), (2, n, 2), ()])
    b = draw.array(shape, dtype if draw.random() < 0.6 else None)
    order, axis = draw.choice([None, 0, 1, 2, 3, np.inf, "fro"]), draw.axis(a.ndim)
    options: list[tuple[str, Callable[..., Any]]] = [
        ("matmul", lambda a, b: np.matmul(a, b)),
        ("dot", lambda a, b: np.dot(a, b)),
        ("inner", lambda a, b: np.inner(a, b)),
        ("outer", lambda a, b: np.outer(a, b)),
        ("vdot", lambda a, b: np.vdot(a, b)),
        ("kron", lambda a, b: np.kron(a, b)),
        ("tensordot 1", lambda a, b: np.tensordot(a, b, 1)),
        ("tensordot -1 -2", lambda a, b: np.tensordot(a, b, ((-1,), (-2,)))),
        ("einsum ij,jk->ki", lambda a, b: np.einsum("ij,jk->ki", a, b)),
        ("einsum ii", lambda a, b: np.einsum("ii", a)),
        (f"norm {order} {axis}", lambda a, b: np.linalg.norm(a, order, axis)),
    ]
    return *draw.choice(options), [a, b]


KINDS = (
    unary,
    binary,
    reduction,
    running,
    choice,
    rearranged,
    indexed,
    joined,
    product,
    *_random_edits.KINDS,
    *_random_statistics.KINDS,
)


def program(draw: Draw) -> Program:
    """A program of one call, or of two, one after the other."""
    name, fn, arrays = draw.choice(KINDS)(draw)
    if draw.random() < 0.85:
        return name, fn, arrays
    then, last, more = draw.choice([unary, binary, reduction, rearranged, indexed])(
        draw
    )

    def both(*args: Any) -> Any:
        found = fn(*args[: len(arrays)])
        first = found[0] if isinstance(found, tuple | list) else found
        return last(first, *args[len(arrays) :])

    return f"{name} | {then}", both, [*arrays, *more[1:]]
