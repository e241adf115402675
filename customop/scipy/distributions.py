"""Distributions of `scipy.stats` as formulas of operators.

A formula is for location 0 and scale 1, and for values inside the support. The classes
add the location, the scale, the values outside, and those of parameters out of range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy import stats as _stats

from customop import ArgumentError, Array, UnknownNameError, stop_gradient
from customop.numpy.arguments import as_array, dtype_of
from customop.scipy.ufunc_rules import is_plain

# pyright infers types from SciPy's code and gets some of them wrong.
stats: Any = _stats

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Formulas:
    """Functions of a distribution, each of a value and the shape parameters.

    Attributes
    ----------
    log_density : callable
        Of a continuous distribution; of a discrete one, the log of the probability.
    cdf, sf : callable
        The probability of values up to this one, and of larger ones.
    logcdf, logsf, ppf, isf : callable, optional
        The logs of these, and their inverses.
    mean, var, entropy : callable, optional
        Of the shape parameters alone.

    Examples
    --------
    A distribution of SciPy that is not here; plain arrays are still passed to SciPy:

    >>> import numpy as np, customop as co
    >>> from customop.scipy import stats
    >>> formulas = stats.Formulas(
    ...     lambda x: np.log(x) - 0.5 * x**2,
    ...     cdf=lambda x: -np.expm1(-0.5 * x**2),
    ...     sf=lambda x: np.exp(-0.5 * x**2),
    ... )
    >>> rayleigh = stats.Continuous("rayleigh", formulas, low=0.0, middle=1.0, is_open=True)
    >>> co.grad(rayleigh.logpdf)(2.0)
    np.float64(-1.5)
    >>> rayleigh.cdf(2.0).round(6)
    np.float64(0.864665)
    """

    log_density: Function
    cdf: Function
    sf: Function
    logcdf: Function | None = None
    logsf: Function | None = None
    ppf: Function | None = None
    isf: Function | None = None
    mean: Function | None = None
    var: Function | None = None
    entropy: Function | None = None


def _always(*shapes: Any) -> Any:
    return True


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of `scipy.stats`, for arrays, traced values and fake arrays.

    Attributes
    ----------
    name : str
        SciPy's name of the distribution.
    formulas : Formulas
        For location 0 and scale 1.
    shapes : tuple of str
        Names of its shape parameters.
    low, high, middle : float or callable
        The ends of the support, and a value between them; functions of the shape
        parameters if they depend on those.
    is_valid : callable
        Returns whether shape parameters are in their range.
    is_open : bool
        Whether the density is 0 at the lower end.

    Examples
    --------
    >>> import customop as co
    >>> from customop.scipy import stats
    >>> stats.gamma.shapes
    ('a',)
    >>> co.grad(stats.gamma.cdf)(2.0, 1.0).round(6)  # the density, for a = 1
    np.float64(0.135335)
    """

    name: str
    formulas: Formulas
    shapes: tuple[str, ...] = ()
    low: Any = -math.inf
    high: Any = math.inf
    middle: Any = 0.0
    is_valid: Callable[..., Any] = _always
    is_open: bool = False
    _parameters: tuple[str, ...] = field(default=("loc", "scale"), kw_only=True)

    def __call__(self, *args: Any, **kwargs: Any) -> FrozenDistribution:
        """Return the distribution with these parameters, as SciPy does."""
        self._bound(args, kwargs)
        return FrozenDistribution(self, args, kwargs)

    def cdf(self, x: Any, *args: Any, **kwargs: Any) -> Array:
        """Compute the probability of values up to `x`; parameters are SciPy's."""
        return self._probability("cdf", x, args, kwargs, (0.0, 1.0))

    def sf(self, x: Any, *args: Any, **kwargs: Any) -> Array:
        """Compute the probability of values above `x`; parameters are SciPy's."""
        return self._probability("sf", x, args, kwargs, (1.0, 0.0))

    def logcdf(self, x: Any, *args: Any, **kwargs: Any) -> Array:
        """Compute the log of the probability of values up to `x`."""
        return self._probability("logcdf", x, args, kwargs, (-math.inf, 0.0))

    def logsf(self, x: Any, *args: Any, **kwargs: Any) -> Array:
        """Compute the log of the probability of values above `x`."""
        return self._probability("logsf", x, args, kwargs, (0.0, -math.inf))

    def mean(self, *args: Any, **kwargs: Any) -> Array:
        """Compute the mean; parameters are SciPy's."""
        return self._of_parameters("mean", args, kwargs)

    def var(self, *args: Any, **kwargs: Any) -> Array:
        """Compute the variance; parameters are SciPy's."""
        return self._of_parameters("var", args, kwargs)

    def std(self, *args: Any, **kwargs: Any) -> Array:
        """Compute the standard deviation; parameters are SciPy's."""
        return np.sqrt(self.var(*args, **kwargs))

    def entropy(self, *args: Any, **kwargs: Any) -> Array:
        """Compute the differential entropy, or that of the probabilities, in nats."""
        return self._of_parameters("entropy", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        """Raise the error for methods that only SciPy has."""
        raise unknown_method(self.name, name)

    # ---- parts ----

    def _plain(
        self, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """Return SciPy's method, where it can compute with the arguments."""
        if not is_plain(*args, *kwargs.values()):
            return None
        found: Callable[..., Any] = getattr(getattr(stats, self.name), method)
        return found

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters by name, with defaults."""
        names = (*self.shapes, *self._parameters)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        missing = [name for name in self.shapes if name not in given]
        if (
            len(args) > len(names)
            or len(given) < len(args) + len(kwargs)
            or not {*given} <= {*names}
            or missing
        ):
            got = [*(["one value"] * len(args)), *kwargs]
            raise ArgumentError(
                f"scipy.stats.{self.name} takes the parameters {', '.join(names)},"
                f" got {', '.join(got) or 'none'}",
                do=f"give {', '.join(missing) or 'each of them once'}",
            )
        defaults = {"loc": 0.0, "scale": 1.0}
        return {name: _parameter(given.get(name, defaults.get(name))) for name in names}

    def _in_range(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], Any, Any, Any]:
        """Return shapes, location, scale, and whether all of them are in range.

        Where they are not, others take their place, so that no formula gives a warning.
        """
        bound = self._bound(args, kwargs)
        shapes = [bound[name] for name in self.shapes]
        scale = bound.get("scale", 1.0)
        is_valid = both(self.is_valid(*shapes), scale > 0)
        shapes = [_chosen(is_valid, s, 0.5) for s in shapes]
        return shapes, bound["loc"], _chosen(is_valid, scale, 1.0), is_valid

    def _ends(self, shapes: Sequence[Any]) -> list[Any]:
        """Return the ends of the support and the value between them."""
        found = [self.low, self.high, self.middle]
        return [end(*shapes) if callable(end) else end for end in found]

    def _probability(
        self,
        method: str,
        x: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        outside: tuple[float, float],
    ) -> Any:
        """Compute a cumulative probability; `outside` has the values at both ends."""
        function = self._plain(method, (as_array(x), *args), kwargs)
        if function is not None:
            return function(x, *args, **kwargs)
        shapes, loc, scale, is_valid = self._in_range(args, kwargs)
        low, high, middle = self._ends(shapes)
        z, is_below = self._counted(_standard(x, loc, scale), low)
        is_above = np.greater_equal(z, high)
        inner = _chosen(~(is_below | is_above), z, middle)
        formula = getattr(self.formulas, method)
        if formula is None:
            formula = _log_of(getattr(self.formulas, method.removeprefix("log")))
        found = formula(inner, *shapes)
        found = _chosen(~is_below, _chosen(~is_above, found, outside[1]), outside[0])
        return _chosen(is_valid, found, math.nan)

    def _of_parameters(
        self, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Compute the mean, the variance or the entropy."""
        function = self._plain(method, args, kwargs)
        if function is not None:
            return function(*args, **kwargs)
        formula = getattr(self.formulas, method)
        if formula is None:
            raise unknown_method(self.name, method)
        shapes, loc, scale, is_valid = self._in_range(args, kwargs)
        found = formula(*[as_double(as_array(shape)) for shape in shapes])
        loc, scale = (as_double(as_array(value)) for value in (loc, scale))
        if method == "mean":
            found = found * scale + loc
        else:
            found = found * scale * scale if method == "var" else found + np.log(scale)
        return np.where(both(is_valid, np.equal(loc, loc)), found, math.nan)

    def _counted(self, z: Any, low: Any) -> tuple[Any, Any]:
        """Return a value as the formulas take it, and whether it has probability 0."""
        return z, np.less_equal(z, low)


def unknown_method(distribution: str, name: str) -> AttributeError:
    """Return the error for a method that has no formula here."""
    if name.startswith("_") or not hasattr(getattr(stats, distribution), name):
        return AttributeError(name)
    return UnknownNameError(
        f"scipy.stats.{distribution} has no method {name!r} for traced or fake arrays",
        do=_INSTEAD.get(
            name, f"call scipy.stats.{distribution}.{name} outside of transforms"
        ),
    )


_DRAWS = "draw outside of transforms, or call ppf(rng.random(size)) of one that has ppf"
# Methods of SciPy -> what a program can use in their place.
_INSTEAD = {
    "entropy": "sum -pmf(k) * logpmf(k) over the values k",
    "fit": "minimize the negative sum of logpdf",
    "interval": "call ppf with both probabilities",
    "rvs": _DRAWS,
}


def _log_of(function: Function) -> Function:
    return lambda *args: np.log(function(*args))


def _parameter(value: Any) -> Any:
    return value if type(value) in (int, float) else as_array(value)


def both(first: Any, second: Any) -> Any:
    """Return a condition that both hold; a plain one that holds everywhere is left out."""
    if _holds(first):
        return second
    return first if _holds(second) else first & second


def _holds(condition: Any) -> bool:
    """Return whether a condition holds everywhere, if it is of plain values."""
    is_plain = type(condition) in (bool, np.bool_, np.ndarray)
    return is_plain and bool(np.all(condition))


def _standard(x: Any, loc: Any, scale: Any) -> Any:
    """Return a value for location 0 and scale 1."""
    x = as_double(as_array(x))
    moved = x if type(loc) in (int, float) and loc == 0 else x - loc
    return moved if _is_one(scale) else moved / scale


def as_double(x: Any) -> Any:
    """Return an array in double precision or more, as SciPy computes."""
    dtype = np.result_type(dtype_of(x), np.float64)
    return x if dtype_of(x) == dtype else x.astype(dtype)


def _is_one(x: Any) -> bool:
    return type(x) in (int, float) and bool(x == 1)


def _chosen(condition: Any, x: Any, other: Any) -> Any:
    """Return `x` where a condition holds, else `other`."""
    return x if _holds(condition) else np.where(condition, x, other)


@dataclass(frozen=True, slots=True)
class Continuous(Distribution):
    """A continuous distribution of `scipy.stats`.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import stats
    >>> def misfit(p, x):
    ...     return -np.sum(stats.norm.logpdf(x, p["mean"], np.exp(p["log_scale"])))
    >>> co.grad(misfit)({"mean": 0.0, "log_scale": 0.0}, np.array([1.0, 2.0]))
    {'mean': np.float64(-3.0), 'log_scale': np.float64(-3.0)}
    >>> co.vmap(co.grad(stats.norm.ppf))(np.array([0.1, 0.5])).round(4)
    array([5.6981, 2.5066])
    """

    def logpdf(self, x: Any, *args: Any, **kwargs: Any) -> Array:
        """Compute the log of the density at `x`; parameters are SciPy's."""
        function = self._plain("logpdf", (as_array(x), *args), kwargs)
        if function is not None:
            return function(x, *args, **kwargs)
        shapes, loc, scale, is_valid = self._in_range(args, kwargs)
        z = _standard(x, loc, scale)
        low, high, middle = self._ends(shapes)
        is_low = np.less_equal(z, low) if self.is_open else np.less(z, low)
        is_inside = ~(is_low | np.greater(z, high))
        found = self.formulas.log_density(_chosen(is_inside, z, middle), *shapes)
        found = found if _is_one(scale) else found - np.log(scale)
        found = _chosen(is_inside, found, -math.inf)
        return _chosen(is_valid, found, math.nan)

    def pdf(self, x: Any, *args: Any, **kwargs: Any) -> Array:
        """Compute the density at `x`; parameters are SciPy's."""
        function = self._plain("pdf", (as_array(x), *args), kwargs)
        if function is not None:
            return function(x, *args, **kwargs)
        return np.exp(self.logpdf(x, *args, **kwargs))

    def ppf(self, q: Any, *args: Any, **kwargs: Any) -> Array:
        """Compute the value up to which the probability is `q`; parameters are SciPy's."""
        return self._inverse("ppf", q, args, kwargs)

    def median(self, *args: Any, **kwargs: Any) -> Array:
        """Compute the value with equal probabilities on both sides."""
        return self.ppf(0.5, *args, **kwargs)

    def isf(self, q: Any, *args: Any, **kwargs: Any) -> Array:
        """Compute the value above which the probability is `q`; parameters are SciPy's."""
        return self._inverse("isf", q, args, kwargs)

    def _inverse(
        self, method: str, q: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        function = self._plain(method, (as_array(q), *args), kwargs)
        if function is not None:
            return function(q, *args, **kwargs)
        shapes, loc, scale, is_valid = self._in_range(args, kwargs)
        q = as_double(as_array(q))
        low, high, _ = self._ends(shapes)
        first, last = (low, high) if method == "ppf" else (high, low)
        is_inside = np.greater(q, 0) & np.less(q, 1)
        found = getattr(self.formulas, method)(_chosen(is_inside, q, 0.5), *shapes)
        edge = np.where(np.equal(q, 0), first, np.where(np.equal(q, 1), last, math.nan))
        found = _chosen(is_inside, found, edge)
        return _chosen(is_valid, found * scale + loc, math.nan)


@dataclass(frozen=True, slots=True)
class Discrete(Distribution):
    """A discrete distribution of `scipy.stats`. It has no derivatives by the value.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import stats
    >>> counts = np.array([2, 0, 4])
    >>> co.grad(lambda mean: np.sum(stats.poisson.logpmf(counts, mean)))(1.0)
    np.float64(3.0)
    """

    _parameters: tuple[str, ...] = field(default=("loc",), kw_only=True)

    def logpmf(self, k: Any, *args: Any, **kwargs: Any) -> Array:
        """Compute the log of the probability of `k`; parameters are SciPy's."""
        function = self._plain("logpmf", (as_array(k), *args), kwargs)
        if function is not None:
            return function(k, *args, **kwargs)
        shapes, loc, scale, is_valid = self._in_range(args, kwargs)
        z = stop_gradient(_standard(k, loc, scale))
        low, high, middle = self._ends(shapes)
        is_outside = np.less(z, low) | np.greater(z, high)
        is_inside = ~(is_outside | np.not_equal(np.floor(z), z)) | np.isnan(z)
        found = self.formulas.log_density(_chosen(is_inside, z, middle), *shapes)
        return _chosen(is_valid, _chosen(is_inside, found, -math.inf), math.nan)

    def pmf(self, k: Any, *args: Any, **kwargs: Any) -> Array:
        """Compute the probability of `k`; parameters are SciPy's."""
        function = self._plain("pmf", (as_array(k), *args), kwargs)
        if function is not None:
            return function(k, *args, **kwargs)
        return np.exp(self.logpmf(k, *args, **kwargs))

    def _counted(self, z: Any, low: Any) -> tuple[Any, Any]:
        return np.floor(stop_gradient(z)), np.less(z, low)


@dataclass(frozen=True, slots=True)
class FrozenDistribution:
    """A distribution with its parameters, as SciPy's functions return it when called.

    Attributes
    ----------
    distribution : Distribution or MultivariateNormal
        Its methods are those of this object.
    args : tuple
        Parameters by position.
    kwargs : mapping
        Parameters by name.

    Examples
    --------
    >>> import customop as co
    >>> from customop.scipy import stats
    >>> co.grad(lambda mean: stats.norm(mean, scale=2.0).logpdf(3.0))(1.0)
    np.float64(0.5)
    """

    distribution: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method that needs the value alone, or nothing."""
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self.distribution, name)
        return partial(_with_parameters, method, self.args, self.kwargs)


def _with_parameters(
    method: Function, args: Sequence[Any], kwargs: Mapping[str, Any], *x: Any
) -> Any:
    return method(*x, *args, **kwargs)
