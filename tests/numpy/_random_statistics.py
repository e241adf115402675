"""Random calls of ufuncs with keywords, of their methods, and of statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # it imports this module
    from tests.numpy._random_programs import Draw, Program

UFUNCS = sorted(
    {f.__name__ for f in vars(np).values() if isinstance(f, np.ufunc)}
    - {"matmul", "vecdot", "matvec", "vecmat"}
)
# NumPy 2.4 reduces power and arctan2 wrongly on some processors: see `_REDUCED_WRONGLY`.
# ldexp has two arguments of two dtypes, which not all integers can be.
REDUCING = [
    name
    for name in UFUNCS
    if (getattr(np, name).nin, getattr(np, name).nout) == (2, 1)
    and name not in ("power", "arctan2", "ldexp")
]
METHODS = [
    "inverted_cdf",
    "averaged_inverted_cdf",
    "closest_observation",
    "interpolated_inverted_cdf",
    "hazen",
    "weibull",
    "linear",
    "median_unbiased",
    "normal_unbiased",
    "lower",
    "higher",
    "midpoint",
    "nearest",
]


def _mask(draw: Draw, shape: tuple[int, ...]) -> Any:
    """A mask that broadcasts to a shape, but for one in twenty."""
    return draw.array(draw.fitting(shape), "?")


def keywords_of_ufunc(draw: Draw) -> Program:
    """Any ufunc, beside an array or a number, with a dtype, a casting or an order."""
    name, x = draw.choice(UFUNCS), draw.array()
    ufunc = getattr(np, name)
    given: dict[str, Any] = {}
    if draw.random() < 0.3:
        given["dtype"] = draw.choice(["f4", "f8", "i4", "c16", "?"])
    if draw.random() < 0.2:
        given["casting"] = draw.choice(["no", "safe", "unsafe"])
    if draw.random() < 0.1:
        given["order"] = draw.choice("CF")
    told = f"np.{name} {given}"
    if ufunc.nin == 1:
        return told, lambda x: ufunc(x, **given), [x]
    more, of = draw.other(x)
    if draw.random() < 0.4:
        return (
            f"{told}, reflected",
            lambda x, *ys: ufunc(of(ys), x, **given),
            [x, *more],
        )
    return told, lambda x, *ys: ufunc(x, of(ys), **given), [x, *more]


def written(draw: Draw) -> Program:
    """A ufunc that computes where a mask is set, into an array."""
    name = draw.choice(["log", "sqrt", "arcsin", "arccosh", "reciprocal", "exp"])
    ufunc = getattr(np, name)
    x = np.atleast_1d(draw.array(dtype=draw.choice(["f4", "f8", "c16"])))
    mask = draw.array(x.shape, "?")

    def fn(x: Any) -> Any:
        out = np.full_like(x, 0.5)
        return ufunc(x, where=mask, out=out) * out

    return f"np.{name} where", fn, [x]


def method(draw: Draw) -> Program:
    """reduce, accumulate, reduceat or outer of a ufunc."""
    name, x = draw.choice(REDUCING), draw.array()
    ufunc, axis = getattr(np, name), draw.axis(x.ndim, many=False)
    dtype = draw.choice([None, None, None, "f4", "f8", "?", "i4"])
    chance = draw.random()
    if chance < 0.35:
        return _reduction(draw, name, x)
    if chance < 0.6:
        told = f"np.{name}.accumulate {axis} {dtype}"
        return told, lambda x: ufunc.accumulate(x, axis, dtype), [x]
    if chance < 0.85:
        length = x.shape[axis or 0] if x.ndim and -x.ndim <= (axis or 0) < x.ndim else 2
        places = [draw.randint(0, length - 1) for _ in range(3 if length else 0)]
        told = f"np.{name}.reduceat {places} {axis}"
        return told, lambda x: ufunc.reduceat(x, places, axis), [x]
    y = draw.array(draw.choice([(), (2,), (2, 2)]))
    return f"np.{name}.outer", lambda x, y: ufunc.outer(x, y), [x, y]


def _reduction(draw: Draw, name: str, x: Any) -> Program:
    given: dict[str, Any] = {"axis": draw.axis(x.ndim)}
    if draw.random() < 0.3:
        given["keepdims"] = True
    if draw.random() < 0.3:
        given["initial"] = draw.choice([0, 1, 2.5, True])
    if draw.random() < 0.3:
        given["where"] = _mask(draw, x.shape)
    reduce = getattr(np, name).reduce
    return f"np.{name}.reduce {given}", lambda x: reduce(x, **given), [x]


def selected(draw: Draw) -> Program:
    """A reduction of selected elements, or without nan."""
    plain = ["sum", "prod", "max", "min", "any", "all", "mean", "var", "std"]
    names = [*plain, *(f"nan{n}" for n in plain if n not in ("any", "all"))]
    name, x = draw.choice(names), draw.array()
    given: dict[str, Any] = {"axis": draw.axis(x.ndim)}
    if draw.random() < 0.6:
        given["where"] = _mask(draw, x.shape)
    takes_start = name.removeprefix("nan") in ("sum", "prod", "max", "min")
    if takes_start and draw.random() < 0.6:
        given["initial"] = draw.choice([0, 1, 2.5, -3, True])
    if draw.random() < 0.3:
        given["keepdims"] = True
    if name[-3:] in ("var", "std") and draw.random() < 0.5:
        given[draw.choice(["ddof", "correction"])] = draw.choice([0, 1, 0.5, 3])
    return f"np.{name} {given}", lambda x: getattr(np, name)(x, **given), [x]


def without_nan(draw: Draw) -> Program:
    """A place, a median or a running total without nan."""
    x = draw.array()
    axis = draw.axis(x.ndim, many=False)
    places, running = ["nanargmax", "nanargmin"], ["nancumsum", "nancumprod"]
    sums = ["cumulative_sum", "cumulative_prod"]
    name = draw.choice([*places, *running, *sums, "nanmedian"])
    more = {"include_initial": draw.random() < 0.5} if name in sums else {}
    fn = getattr(np, name)
    return f"np.{name}({axis}, {more})", lambda x: fn(x, axis=axis, **more), [x]


def quantile(draw: Draw) -> Program:
    """Quantiles by any method, of all elements or of those that are not nan."""
    x = draw.array()
    name = draw.choice(["quantile", "percentile", "nanquantile", "nanpercentile"])
    scale = 100 if "percent" in name else 1
    q = draw.choice([0, 1, 0.5, 0.25, [0.1, 0.5, 0.9], np.array([0.3, 0.6]), 1.5])
    given = {"axis": draw.axis(x.ndim, many=False), "method": draw.choice(METHODS)}
    if draw.random() < 0.2:
        weights = np.array([draw.uniform(0.1, 2) for _ in range(x.size)])
        given |= {"method": "inverted_cdf", "weights": weights.reshape(x.shape)}
    points = np.multiply(q, scale) if isinstance(q, list) else q * scale
    fn = getattr(np, name)
    return f"np.{name}({points}, {given})", lambda x: fn(x, points, **given), [x]


def covariance(draw: Draw) -> Program:
    """np.cov or np.corrcoef, with weights and a second array."""
    x = draw.array(draw.choice([(4,), (2, 5), (3, 4), (1, 4), ()]))
    rowvar = draw.random() < 0.7
    if draw.random() < 0.3:
        told = f"np.corrcoef({rowvar})"
        return told, lambda x: np.corrcoef(x, rowvar=rowvar), [x]
    given: dict[str, Any] = {"rowvar": rowvar, "ddof": draw.choice([None, 0, 1, 2])}
    count = np.atleast_2d(x).shape[1 if rowvar or x.ndim < 2 else 0]
    if draw.random() < 0.3:
        given["fweights"] = np.array([draw.randint(1, 3) for _ in range(count)])
    if draw.random() < 0.3:
        given["aweights"] = np.array([draw.uniform(0.1, 2) for _ in range(count)])
    y = [draw.array(x.shape)] if draw.random() < 0.3 else []
    return f"np.cov({given})", lambda x, *y: np.cov(x, *y, **given), [x, *y]


KINDS: tuple[Callable[[Draw], Program], ...] = (
    keywords_of_ufunc,
    written,
    method,
    selected,
    without_nan,
    quantile,
    covariance,
)
