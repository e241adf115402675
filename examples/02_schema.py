"""Read and write schemas: what they hold, and how they are checked.

The schema of an operator says what goes in, what comes out, and which arguments are
written. It comes from type hints. Kernels and calls are checked against it.
"""

import enum
import sys
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

import customop as co

# Each hint becomes a schema type. There are types for numbers, strings, dtypes, lists,
# optional values and tuples. Defaults and keyword-only parameters are kept.


@co.custom_op("shop::smooth", mutates_args=())
def smooth(
    x: np.ndarray,
    window: int = 3,
    weights: list[float] | None = None,
    *,
    mode: str = "same",
) -> np.ndarray:
    """Convolve a series with a window."""
    kernel = np.full(window, 1.0 / window) if weights is None else np.array(weights)
    return np.convolve(x, kernel, mode)


print(smooth.schema)
series = np.array([0.0, 0.0, 6.0, 0.0, 0.0])
print(smooth(series), smooth(series, weights=[0.25, 0.5, 0.25], mode="valid"))

# A printed schema can be parsed, and gives the same schema.
assert co.Schema.parse(str(smooth.schema)) == smooth.schema

# `np.ndarray` says that a kernel takes NumPy arrays. `co.Array` is an array of any kind.
# `co.ArrayT` is any kind too, the same in arguments and results. In a schema all three
# are written "Array".


@co.custom_op("shop::extremes", mutates_args=())
def extremes(x: co.ArrayT, axis: int = -1) -> tuple[co.ArrayT, co.ArrayT]:
    """Compute the smallest and the largest value along an axis."""
    return np.min(x, axis=axis), np.max(x, axis=axis)


print(extremes.schema)
low, high = extremes(np.array([[3.0, 1.0], [2.0, 8.0]]))
print(low, high)

# A schema can use Python's own types: Literal, Enum, frozen dataclasses, NamedTuples and
# TypedDicts. A call checks their fields, and transforms see arrays in the fields.


class Window(enum.Enum):
    """How neighbors are weighted."""

    FLAT = "flat"
    TRIANGLE = "triangle"


@dataclass(frozen=True)
class Filter:
    """A window, and what happens at the edges."""

    taps: np.ndarray
    window: Window = Window.FLAT
    edge: Literal["same", "valid"] = "same"


class Summary(NamedTuple):
    """A series in two parts."""

    smooth: np.ndarray
    rest: np.ndarray


@co.custom_op("shop::split", mutates_args=())
def split(x: np.ndarray, by: Filter, scales: dict[str, float] | None = None) -> Summary:
    """Split a series into a smooth part and the rest."""
    weights = by.taps if by.window is Window.FLAT else np.convolve(by.taps, by.taps)
    smooth = np.convolve(x, weights / weights.sum(), by.edge) * (scales or {}).get(
        "x", 1
    )
    return Summary(smooth, x - smooth)


print(split.schema)
parts = split(series, Filter(np.ones(3)), {"x": 1})
print(parts.smooth, parts.rest)
assert co.Schema.parse(str(split.schema)) == split.schema

# For a function without hints, such as a ufunc, pass the schema as text.
hypotenuse = co.custom_op(
    "shop::hypotenuse",
    np.hypot,
    mutates_args=(),
    schema="(Array a, Array b) -> Array",
)
print(hypotenuse(np.array([3.0]), np.array([4.0])))

# An operator that writes an argument must name it. The schema marks it with (a!).


@co.custom_op("shop::accumulate", mutates_args={"total"})
def accumulate(total: np.ndarray, x: np.ndarray) -> None:
    """Add an array to a total in place."""
    total += x


print(accumulate.schema)
total = np.zeros(5)
accumulate(total, series)
print(total)

# The first call of a kernel checks that it does what its schema says. Here the result
# shares memory with the input, which the schema does not allow.


@co.custom_op("shop::first_half", mutates_args=())
def first_half(x: np.ndarray) -> np.ndarray:
    return x[: len(x) // 2]


# A hint that has no schema type raises an error when the operator is defined.
def define_wrong():
    @co.custom_op("shop::wrong", mutates_args=())
    def wrong(x: np.ndarray, options: dict) -> np.ndarray:
        return x


messages = {}
for name, action in {
    "alias": lambda: first_half(series),
    "hint": define_wrong,
    "field": lambda: split(series, Filter(np.ones(3), edge="sane")),
}.items():
    try:
        action()
    except co.CustomOpError as error:
        messages[name] = str(error)
        print(f"\n{type(error).__name__}: {error}")

assert str(smooth.schema) == (
    '(Array x, int window=3, float[]? weights=None, *, str mode="same") -> Array'
)
assert str(split.schema) == (
    f"(Array x, {__name__}.Filter by, Dict(str, float)? scales=None) -> {__name__}.Summary"
)
np.testing.assert_allclose(parts.smooth, [0, 2, 2, 2, 0])
np.testing.assert_allclose(parts.rest, [0, -2, 4, -2, 0])
assert "at field 'edge' expects str{" in messages["field"]
assert "did you mean 'same'?" in messages["field"]
assert str(extremes.schema) == "(Array x, int axis=-1) -> (Array, Array)"
assert str(accumulate.schema) == "(Array(a!) total, Array x) -> ()"
np.testing.assert_array_equal(smooth(series, mode="same"), [0, 2, 2, 2, 0])
np.testing.assert_array_equal(total, series)
assert low.tolist() == [1.0, 2.0]
assert high.tolist() == [3.0, 8.0]
assert "memory" in messages["alias"]
assert "dict" in messages["hint"]

# ---- a picture: python 02_schema.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    days = np.arange(120.0)
    walk = np.cumsum(np.random.default_rng(1).normal(size=120))
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(days, walk, ".", markersize=3, label="a series")
    for window in (Window.FLAT, Window.TRIANGLE):
        label = f"smooth: {window.value} window"
        axes.plot(days, split(walk, Filter(np.ones(9), window)).smooth, label=label)
    axes.legend()
    figure.savefig(sys.argv[-1])
