"""Random programs of elementwise functions, views and reductions, of all dtypes and layouts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

UNARY = (
    *("negative", "positive", "absolute", "square", "sqrt", "exp", "log", "sin", "cos"),
    *(
        "tanh",
        "sign",
        "reciprocal",
        "floor",
        "isnan",
        "logical_not",
        "conjugate",
        "expm1",
    ),
)
BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "less", "equal"),
    *("greater_equal", "logical_and", "floor_divide", "remainder", "power", "hypot"),
    *("arctan2", "bitwise_and", "left_shift", "fmin", "copysign", "not_equal"),
)
DTYPES = (
    *(
        "f8",
        "f8",
        "f8",
        "f4",
        "f4",
        "c16",
        "c8",
        "i8",
        "i4",
        "i1",
        "u1",
        "u4",
        "?",
        "f2",
    ),
)
NAMES = (
    *("unary", "binary", "where", "astype", "clip", "sum", "max", "keepsum"),
    *("T", "reverse", "flat", "row", "wide", "ones"),
)
SHARES = (0.3, 0.45, 0.07, 0.04, 0.04, 0.015, 0.015, 0.01, *(0.01,) * 6)
SCALARS = (0, 1, 2, -1, 3, 0.5, -0.0, 1.0, 1e300, 2.5, 1j, True, 7)


def array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Random elements, with zeros, infinities and nan where the dtype has them."""
    x: Any = rng.standard_normal(shape) * rng.choice([1.0, 3.0, 100.0])
    kind = np.dtype(dtype).kind
    if kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    with np.errstate(all="ignore"):
        x = np.array(x > 0 if kind == "?" else abs(x) if kind == "u" else x).astype(
            dtype
        )
    if kind in "fc" and rng.random() < 0.4:
        for special in (0.0, -0.0, np.inf, np.nan, -1e30):
            with np.errstate(all="ignore"):
                x[rng.random(shape) < 0.1] = special
    return x


def laid_out(rng: np.random.Generator, x: Any) -> Any:
    """The same elements in some other layout."""
    way = rng.integers(7)
    if way == 0 and x.ndim:
        wide = np.repeat(x, 2, axis=-1)
        return wide[..., ::2]
    if way == 1:
        return np.asfortranarray(x)
    if way == 2 and x.ndim:
        return x[::-1].copy()[::-1]
    if way == 3 and x.ndim > 1:
        return np.ascontiguousarray(np.swapaxes(x, 0, 1)).swapaxes(0, 1)
    return x


def operand_shape(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts into another one."""
    way = rng.integers(6)
    if way == 0:
        return ()
    if way == 1:
        return shape[1:]
    if way == 2:
        return tuple([n if rng.random() < 0.5 else 1 for n in shape])
    return shape


class Program:
    """A random function and its arguments; the same for the same seed."""

    def __init__(self, seed: int, shapes: Any, length: int = 12) -> None:
        rng = np.random.default_rng(seed)
        self.shape: tuple[int, ...] = shapes[rng.integers(len(shapes))]
        count = int(rng.integers(1, 5))
        pool = DTYPES if rng.random() < 0.5 else (str(rng.choice(DTYPES)),)
        self.args: list[Any] = [
            laid_out(
                rng,
                array(
                    rng,
                    self.shape if i == 0 else operand_shape(rng, self.shape),
                    str(rng.choice(pool)),
                ),
            )
            for i in range(count)
        ]
        if count > 1 and self.args[0].ndim and rng.random() < 0.2:
            self.args[1] = self.args[0][::-1]  # operands that overlap
        self.steps: list[Any] = []
        made = count
        for _ in range(int(rng.integers(2, length))):
            self.steps.append(self._step(rng, made))
            made += 1
        last = [made - 1]
        if rng.random() < 0.4:
            last += [int(i) for i in rng.integers(count, made, 2)]
        self.results: list[int] = [*dict.fromkeys(last)]

    def _step(self, rng: np.random.Generator, made: int) -> Any:
        def pick() -> Any:
            if rng.random() < 0.6:
                return ("value", max(0, made - 1 - int(rng.integers(3))))
            return ("value", int(rng.integers(made)))

        name = str(rng.choice(NAMES, p=SHARES))
        if name == "unary":
            return (str(rng.choice(UNARY)), pick())
        if name == "binary":
            second = pick()
            if rng.random() < 0.35:
                second = ("scalar", SCALARS[rng.integers(len(SCALARS))])
            pair = (pick(), second)
            pair = pair if rng.random() < 0.7 else pair[::-1]
            return (str(rng.choice(BINARY)), *pair)
        if name == "where":
            return ("where", pick(), pick(), ("scalar", SCALARS[rng.integers(6)]))
        if name == "astype":
            return ("astype", pick(), ("dtype", str(rng.choice(DTYPES))))
        bounds = (("scalar", -1), ("scalar", 2)) if name == "clip" else ()
        return (name, pick(), *bounds)

    def __call__(self, *args: Any) -> list[Any]:
        """Run the program; a step that NumPy refuses gives its first operand."""
        values = [*args]
        for name, *given in self.steps:
            operands = [values[v] if kind == "value" else v for kind, v in given]
            values.append(self._run(name, operands))
        return [values[i] for i in self.results]

    def _run(self, name: str, operands: list[Any]) -> Any:
        special = SPECIAL.get(name)
        try:
            if special is not None:
                return special(*operands)
            return getattr(np, name)(*operands)
        except (
            TypeError,
            ValueError,
            OverflowError,
            IndexError,
            np.exceptions.AxisError,
        ):
            return operands[0] if hasattr(operands[0], "shape") else operands[-1]


SPECIAL: dict[str, Callable[..., Any]] = {
    "where": lambda c, x, y: np.where(c, x, y),
    "astype": lambda x, dtype: x.astype(dtype),
    "sum": lambda x: np.sum(x, axis=-1),
    "keepsum": lambda x: np.sum(x, axis=0, keepdims=True),
    "max": np.max,
    "T": np.transpose,
    "reverse": lambda x: x[::-1],
    "flat": lambda x: np.reshape(x, -1),
    "row": lambda x: x[0],
    "wide": lambda x: np.broadcast_to(x, (2, *x.shape)),
    "ones": lambda x: np.ones_like(x),
}


def outcome(run: Callable[[], Any], **errors: str) -> tuple[Any, list[str]]:
    """The results, or the error, and the texts of the warnings in order."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(**errors):
        warnings.simplefilter("always")
        try:
            found = run()
        except Exception as error:  # noqa: BLE001  # it is compared
            found = (type(error), str(error))
    return found, [str(w.message) for w in caught]


def bits(value: Any) -> Any:
    """What two equal results share: class, dtype, shape, strides and bits."""
    if isinstance(value, list | tuple):
        return [bits(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        strides = tuple(
            s for n, s in zip(value.shape, value.strides, strict=True) if n > 1
        )
        is_base = isinstance(value, np.ndarray) and value.base is None
        return (
            type(value),
            value.dtype,
            value.shape,
            strides if value.size else 0,
            value.flags.writeable,
            is_base,
            value.tobytes(),
        )
    return value
