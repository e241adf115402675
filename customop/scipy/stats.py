"""`scipy.stats` on traced, fake and plain arrays: distributions.

The methods of a distribution have SciPy's names and parameters. Plain arrays are passed to
SciPy. Values outside the support have the density 0, parameters out of range give nan, as
in SciPy. Discrete distributions have derivatives by their parameters only.

Examples
--------
>>> import numpy as np, customop as co
>>> from customop.scipy import stats
>>> samples = np.array([1.0, 2.0, 3.0])
>>> co.grad(lambda mean: np.sum(stats.norm.logpdf(samples, mean)))(1.0)
np.float64(3.0)
>>> co.grad(lambda scale: stats.gamma(2.0, scale=scale).sf(1.0))(1.0).round(6)
np.float64(0.367879)
>>> co.grad(stats.poisson.logpmf, argnums=1)(3.0, 2.0)
np.float64(0.5)
>>> co.grad(lambda x: stats.multivariate_normal.logpdf(x, cov=np.eye(2)))(np.ones(2))
array([-1., -1.])
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special as _special

from customop import ArgumentError, Array, ShapeError
from customop.numpy.arguments import as_array
from customop.scipy import special_ufuncs
from customop.scipy.distributions import (
    Continuous,
    Discrete,
    Distribution,
    Formulas,
    FrozenDistribution,
    as_double,
    both,
    stats,
    unknown_method,
)
from customop.scipy.linalg import solve_triangular
from customop.scipy.ufunc_rules import is_plain

__all__ = [
    "Continuous",
    "Discrete",
    "Distribution",
    "Formulas",
    "FrozenDistribution",
    "MultivariateNormal",
    "bernoulli",
    "beta",
    "binom",
    "cauchy",
    "chi2",
    "expon",
    "gamma",
    "laplace",
    "logistic",
    "lognorm",
    "multivariate_normal",
    "norm",
    "poisson",
    "t",
    "uniform",
]

# Importing the module has registered the operators.
del special_ufuncs
# pyright infers types from SciPy's code and gets some of them wrong.
special: Any = _special

_LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)
_NORMAL_ENTROPY = _LOG_ROOT_2PI + 0.5


def _positive(*shapes: Any) -> Any:
    found: Any = True
    for shape in shapes:
        found = both(found, shape > 0)
    return found


# ---- distributions on the line ----


def _normal_density(x: Any) -> Any:
    return -0.5 * x * x - _LOG_ROOT_2PI


norm: Continuous = Continuous(
    "norm",
    Formulas(
        _normal_density,
        cdf=special.ndtr,
        sf=lambda x: special.ndtr(-x),
        logcdf=special.log_ndtr,
        logsf=lambda x: special.log_ndtr(-x),
        ppf=special.ndtri,
        isf=lambda q: -special.ndtri(q),
        mean=lambda: 0.0,
        var=lambda: 1.0,
        entropy=lambda: _NORMAL_ENTROPY,
    ),
)
"""The normal distribution: `loc` is its mean, `scale` its standard deviation.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.norm.logpdf)(3.0, loc=1.0, scale=2.0)
np.float64(-0.5)
>>> co.grad(lambda scale: stats.norm.cdf(1.0, scale=scale))(2.0).round(6)
np.float64(-0.088016)
"""


def _student_density(x: Any, df: Any) -> Any:
    """Return the log of the density of Student's t, which is normal for infinite `df`."""
    is_normal = np.equal(df, math.inf)
    df = np.where(is_normal, 1.0, df)
    powers = 0.5 * (df + 1.0) * np.log1p(x * x / df)
    factor = np.log(special.poch(0.5 * df, 0.5)) - 0.5 * (
        np.log(df) + math.log(math.pi)
    )
    return np.where(is_normal, _normal_density(x), factor - powers)


def _student_variance(df: Any) -> Any:
    finite = 1.0 / (1.0 - 2.0 / np.where(df > 2, df, 3.0))
    return np.where(df > 2, finite, np.where(df > 1, math.inf, math.nan))


def _student_entropy(df: Any) -> Any:
    """Return the entropy of Student's t; the exact formula loses digits for large `df`."""
    is_small = df < 100.0
    half = 0.5 * np.where(is_small, df, 1.0)
    slope = special.psi(half + 0.5) - special.psi(half)
    exact = (half + 0.5) * slope + 0.5 * np.log(2.0 * half) + special.betaln(half, 0.5)
    r = 1.0 / np.where(is_small, 100.0, df)
    terms = 1.0 + r * (0.25 + r * (-1 / 6 + r * (-1 / 8 + r * (0.3 + r / 4))))
    return np.where(is_small, exact, _NORMAL_ENTROPY + r * terms)


t: Continuous = Continuous(
    "t",
    Formulas(
        _student_density,
        cdf=lambda x, df: special.stdtr(df, x),
        sf=lambda x, df: special.stdtr(df, -x),
        ppf=lambda q, df: special.stdtrit(df, q),
        isf=lambda q, df: -special.stdtrit(df, q),
        mean=lambda df: np.where(df > 1, 0.0, math.inf),
        var=_student_variance,
        entropy=_student_entropy,
    ),
    ("df",),
    is_valid=_positive,
)
"""Student's t distribution with `df` degrees of freedom.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.t.logpdf)(1.0, 3.0)
np.float64(-1.0)
>>> co.grad(lambda df: stats.t.logpdf(1.0, df))(3.0).round(6)
np.float64(0.049306)
"""


def _cauchy_quantile(q: Any) -> Any:
    return np.tan(math.pi * (q - 0.5))


cauchy: Continuous = Continuous(
    "cauchy",
    Formulas(
        lambda x: -math.log(math.pi) - 2.0 * np.log(np.hypot(1.0, x)),
        cdf=lambda x: np.arctan2(1.0, -x) / math.pi,
        sf=lambda x: np.arctan2(1.0, x) / math.pi,
        ppf=_cauchy_quantile,
        isf=lambda q: -_cauchy_quantile(q),
        mean=lambda: math.nan,
        var=lambda: math.nan,
        entropy=lambda: math.log(4.0 * math.pi),
    ),
)
"""The Cauchy distribution: `loc` is its median, `scale` half of its width at half height.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.cauchy.logpdf)(1.0).round(6)
np.float64(-1.0)
>>> co.grad(stats.cauchy.cdf)(1.0).round(6)
np.float64(0.159155)
"""


def _laplace_sf(x: Any) -> Any:
    half = 0.5 * np.exp(-np.absolute(x))
    return np.where(np.greater(x, 0), half, 1.0 - half)


def _laplace_quantile(q: Any) -> Any:
    tail = np.log(2.0 * np.minimum(q, 1.0 - q))
    return np.where(np.greater(q, 0.5), -tail, tail)


laplace: Continuous = Continuous(
    "laplace",
    Formulas(
        lambda x: math.log(0.5) - np.absolute(x),
        cdf=lambda x: _laplace_sf(-x),
        sf=_laplace_sf,
        ppf=_laplace_quantile,
        isf=lambda q: -_laplace_quantile(q),
        mean=lambda: 0.0,
        var=lambda: 2.0,
        entropy=lambda: math.log(2.0) + 1.0,
    ),
)
"""The Laplace distribution, which falls exponentially to both sides of `loc`.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.laplace.logpdf)(3.0, scale=2.0)
np.float64(-0.5)
>>> co.grad(stats.laplace.ppf)(0.25)
np.float64(4.0)
"""


def _logistic_density(x: Any) -> Any:
    tail = -np.absolute(x)
    return tail - 2.0 * np.log1p(np.exp(tail))


logistic: Continuous = Continuous(
    "logistic",
    Formulas(
        _logistic_density,
        cdf=special.expit,
        sf=lambda x: special.expit(-x),
        logcdf=special.log_expit,
        logsf=lambda x: special.log_expit(-x),
        ppf=special.logit,
        isf=lambda q: -special.logit(q),
        mean=lambda: 0.0,
        var=lambda: math.pi**2 / 3.0,
        entropy=lambda: 2.0,
    ),
)
"""The logistic distribution: `loc` is its mean, its `cdf` is the sigmoid function.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.logistic.cdf)(0.0)
np.float64(0.25)
>>> co.grad(stats.logistic.logpdf)(1.0).round(6)
np.float64(-0.462117)
"""

# ---- distributions of positive numbers, and between bounds ----

expon: Continuous = Continuous(
    "expon",
    Formulas(
        lambda x: -x,
        cdf=lambda x: -np.expm1(-x),
        sf=lambda x: np.exp(-x),
        logsf=lambda x: -x,
        ppf=lambda q: -np.log1p(-q),
        isf=lambda q: -np.log(q),
        mean=lambda: 1.0,
        var=lambda: 1.0,
        entropy=lambda: 1.0,
    ),
    low=0.0,
    middle=1.0,
)
"""The exponential distribution: `scale` is its mean, one over its rate.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(lambda mean: stats.expon.logpdf(3.0, scale=mean))(2.0)
np.float64(0.25)
>>> co.grad(stats.expon.ppf)(0.5)
np.float64(2.0)
"""


def _gamma_entropy(a: Any) -> Any:
    """Return the entropy; the exact formula loses digits for large `a`."""
    is_small = a < 250.0
    small = np.where(is_small, a, 1.0)
    exact = small * (1.0 - special.psi(small)) + special.gammaln(small)
    exact = exact + special.psi(small)
    large = np.where(is_small, 250.0, a)
    r = 1.0 / large
    terms = r * (1 / 3 + r * (1 / 12 + r * (1 / 90 - r / 120)))
    return np.where(is_small, exact, _NORMAL_ENTROPY + 0.5 * np.log(large) - terms)


gamma: Continuous = Continuous(
    "gamma",
    Formulas(
        lambda x, a: special.xlogy(a - 1.0, x) - x - special.gammaln(a),
        cdf=lambda x, a: special.gammainc(a, x),
        sf=lambda x, a: special.gammaincc(a, x),
        ppf=lambda q, a: special.gammaincinv(a, q),
        isf=lambda q, a: special.gammainccinv(a, q),
        mean=lambda a: a,
        var=lambda a: a,
        entropy=_gamma_entropy,
    ),
    ("a",),
    low=0.0,
    middle=1.0,
    is_valid=_positive,
)
"""The gamma distribution of shape `a`, with the mean `a` times `scale`.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.gamma.logpdf)(1.0, 3.0)
np.float64(1.0)
>>> co.grad(lambda a: stats.gamma.logpdf(1.0, a))(3.0).round(6)
np.float64(-0.922784)
"""


def _chi2_density(x: Any, df: Any) -> Any:
    half = 0.5 * df
    powers = special.xlogy(half - 1.0, x) - 0.5 * x
    return powers - special.gammaln(half) - half * math.log(2.0)


chi2: Continuous = Continuous(
    "chi2",
    Formulas(
        _chi2_density,
        cdf=lambda x, df: special.gammainc(0.5 * df, 0.5 * x),
        sf=lambda x, df: special.gammaincc(0.5 * df, 0.5 * x),
        ppf=lambda q, df: 2.0 * special.gammaincinv(0.5 * df, q),
        isf=lambda q, df: 2.0 * special.gammainccinv(0.5 * df, q),
        mean=lambda df: df,
        var=lambda df: 2.0 * df,
        entropy=lambda df: _gamma_entropy(0.5 * df) + math.log(2.0),
    ),
    ("df",),
    low=0.0,
    middle=1.0,
    is_valid=_positive,
)
"""The chi-squared distribution with `df` degrees of freedom.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.chi2.logpdf)(1.0, 4.0)
np.float64(0.5)
>>> co.grad(stats.chi2.sf)(1.0, 4.0).round(6)
np.float64(-0.151633)
"""


def _lognormal_density(x: Any, s: Any) -> Any:
    log = np.log(x)
    return -0.5 * (log / s) ** 2 - log - np.log(s) - _LOG_ROOT_2PI


lognorm: Continuous = Continuous(
    "lognorm",
    Formulas(
        _lognormal_density,
        cdf=lambda x, s: special.ndtr(np.log(x) / s),
        sf=lambda x, s: special.ndtr(-np.log(x) / s),
        logcdf=lambda x, s: special.log_ndtr(np.log(x) / s),
        logsf=lambda x, s: special.log_ndtr(-np.log(x) / s),
        ppf=lambda q, s: np.exp(s * special.ndtri(q)),
        isf=lambda q, s: np.exp(-s * special.ndtri(q)),
        mean=lambda s: np.exp(0.5 * s * s),
        var=lambda s: np.expm1(s * s) * np.exp(s * s),
        entropy=lambda s: _NORMAL_ENTROPY + np.log(s),
    ),
    ("s",),
    low=0.0,
    middle=1.0,
    is_valid=_positive,
    is_open=True,
)
"""The distribution of the exponential of a normal value with standard deviation `s`.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.lognorm.logpdf)(1.0, 0.5)
np.float64(-1.0)
>>> co.grad(lambda s: stats.lognorm.cdf(2.0, s))(0.5).round(6)
np.float64(-0.423135)
"""


def _beta_density(x: Any, a: Any, b: Any) -> Any:
    powers = special.xlog1py(b - 1.0, -x) + special.xlogy(a - 1.0, x)
    return powers - special.betaln(a, b)


def _psi_over_log(x: Any) -> Any:
    """Return ``psi(x) - log(x)``, with all digits for large `x`."""
    is_small = x < 100.0
    small = np.where(is_small, x, 1.0)
    r = 1.0 / np.where(is_small, 100.0, x)
    large = -r * (0.5 + r * (1 / 12 - r * r * (1 / 120 - r * r / 252)))
    return np.where(is_small, special.psi(small) - np.log(small), large)


def _beta_entropy(a: Any, b: Any) -> Any:
    whole = _psi_over_log(a + b)
    found = special.betaln(a, b)
    for x, other in ((a, b), (b, a)):
        found = found + (x - 1.0) * (np.log1p(other / x) + whole - _psi_over_log(x))
    return found


beta: Continuous = Continuous(
    "beta",
    Formulas(
        _beta_density,
        cdf=lambda x, a, b: special.betainc(a, b, x),
        sf=lambda x, a, b: special.betaincc(a, b, x),
        ppf=lambda q, a, b: special.betaincinv(a, b, q),
        isf=lambda q, a, b: 1.0 - special.betaincinv(b, a, q),
        mean=lambda a, b: a / (a + b),
        var=lambda a, b: a * b / ((a + b) ** 2 * (a + b + 1.0)),
        entropy=_beta_entropy,
    ),
    ("a", "b"),
    low=0.0,
    high=1.0,
    middle=0.5,
    is_valid=_positive,
)
"""The beta distribution on the numbers from 0 to 1, of shapes `a` and `b`.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.beta.logpdf)(0.25, 2.0, 3.0).round(6)
np.float64(1.333333)
>>> co.grad(stats.beta.logpdf, argnums=1)(0.25, 2.0, 3.0).round(6)
np.float64(-0.302961)
"""

uniform: Continuous = Continuous(
    "uniform",
    Formulas(
        lambda x: 0.0 * x,  # nan stays nan
        cdf=lambda x: x,
        sf=lambda x: 1.0 - x,
        ppf=lambda q: q,
        isf=lambda q: 1.0 - q,
        mean=lambda: 0.5,
        var=lambda: 1.0 / 12.0,
        entropy=lambda: 0.0,
    ),
    low=0.0,
    high=1.0,
    middle=0.5,
)
"""The uniform distribution from `loc` to `loc` plus `scale`.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.uniform.cdf)(1.0, scale=4.0)
np.float64(0.25)
>>> co.grad(lambda width: stats.uniform.logpdf(1.0, scale=width))(4.0)
np.float64(-0.25)
"""

# ---- distributions of whole numbers ----

poisson: Discrete = Discrete(
    "poisson",
    Formulas(
        lambda k, mu: special.xlogy(k, mu) - special.gammaln(k + 1.0) - mu,
        cdf=lambda k, mu: special.gammaincc(k + 1.0, mu),
        sf=lambda k, mu: special.gammainc(k + 1.0, mu),
        mean=lambda mu: mu,
        var=lambda mu: mu,
    ),
    ("mu",),
    low=0.0,
    is_valid=lambda mu: mu >= 0,
)
"""The Poisson distribution of mean `mu`.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.poisson.logpmf, argnums=1)(3.0, 2.0)
np.float64(0.5)
>>> co.grad(stats.poisson.cdf, argnums=1)(3.0, 2.0).round(6)
np.float64(-0.180447)
"""


def _binomial(k: Any, n: Any, p: Any) -> Any:
    ways = special.gammaln(n + 1.0) - special.gammaln(k + 1.0)
    ways = ways - special.gammaln(n - k + 1.0)
    return ways + special.xlogy(k, p) + special.xlog1py(n - k, -p)


def _is_probability(p: Any) -> Any:
    return both(p >= 0, p <= 1)


def _is_binomial(n: Any, p: Any) -> Any:
    return both(both(n >= 0, n // 1 == n), _is_probability(p))


binom: Discrete = Discrete(
    "binom",
    Formulas(
        _binomial,
        cdf=lambda k, n, p: special.betaincc(k + 1.0, n - k, p),
        sf=lambda k, n, p: special.betainc(k + 1.0, n - k, p),
        mean=lambda n, p: n * p,
        var=lambda n, p: n * p * (1.0 - p),
    ),
    ("n", "p"),
    low=0.0,
    high=lambda n, p: n,
    is_valid=_is_binomial,
)
"""The binomial distribution: how many of `n` trials have a result of probability `p`.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.binom.logpmf, argnums=2)(3.0, 10, 0.25).round(6)
np.float64(2.666667)
>>> co.grad(stats.binom.sf, argnums=2)(3.0, 10, 0.25).round(6)
np.float64(2.335968)
"""

bernoulli: Discrete = Discrete(
    "bernoulli",
    Formulas(
        lambda k, p: special.xlogy(k, p) + special.xlog1py(1.0 - k, -p),
        cdf=lambda k, p: 1.0 - p + 0.0 * k,  # nan stays nan
        sf=lambda k, p: p + 0.0 * k,
        mean=lambda p: p,
        var=lambda p: p * (1.0 - p),
        entropy=lambda p: special.entr(p) + special.entr(1.0 - p),
    ),
    ("p",),
    low=0.0,
    high=1.0,
    is_valid=_is_probability,
)
"""The distribution of 1, with probability `p`, and 0.

Examples
--------
>>> import customop as co
>>> from customop.scipy import stats
>>> co.grad(stats.bernoulli.logpmf, argnums=1)(1.0, 0.25)
np.float64(4.0)
>>> co.grad(stats.bernoulli.logpmf, argnums=1)(0.0, 0.25).round(6)
np.float64(-1.333333)
"""

# ---- the multivariate normal distribution ----


class MultivariateNormal:
    """The multivariate normal distribution, as `scipy.stats.multivariate_normal`.

    Only the lower triangle of a covariance matrix is read, so the gradient is in that
    triangle.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import stats
    >>> rows = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> co.grad(lambda m: np.sum(stats.multivariate_normal.logpdf(rows, m)))(np.zeros(2))
    array([1., 2.])
    >>> stats.multivariate_normal.pdf(rows, np.zeros(2), [1.0, 4.0]).round(6)
    array([0.048266, 0.048266])
    """

    __slots__ = ()

    def __call__(self, mean: Any = None, cov: Any = 1) -> FrozenDistribution:
        """Return the distribution with these parameters, as SciPy does.

        Parameters
        ----------
        mean, cov : array
            As `logpdf` takes them.

        Returns
        -------
        FrozenDistribution
        """
        return FrozenDistribution(self, (mean, cov), {})

    def __getattr__(self, name: str) -> Any:
        """Raise the error for methods that only SciPy has."""
        raise unknown_method("multivariate_normal", name)

    def entropy(self, mean: Any = None, cov: Any = 1) -> Array:
        """Compute the differential entropy, which does not depend on the mean.

        Parameters
        ----------
        mean, cov : array
            As `logpdf` takes them.

        Returns
        -------
        array, shape ()
        """
        mean, cov = (v if v is None else as_array(v) for v in (mean, cov))
        if is_plain(mean, cov):
            return stats.multivariate_normal.entropy(mean, cov)
        mean, cov = (v if v is None else as_double(v) for v in (mean, cov))
        size = _size_of(mean, cov)
        return size * _NORMAL_ENTROPY + 0.5 * _log_determinant(cov, size)

    def logpdf(
        self, x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False
    ) -> Array:
        """Compute the log of the density at `x`, whose last axis has the components.

        Parameters
        ----------
        x : array, shape (..., n)
            For one dimension, any shape.
        mean : array, shape (n,), optional
            Zeros by default.
        cov : array, shape (n, n) or (n,) or ()
            The covariance matrix, its diagonal, or a number on that.
        allow_singular : bool
            For plain arrays only.

        Returns
        -------
        array

        Raises
        ------
        ArgumentError
            If `allow_singular` is set for traced or fake arrays.
        ShapeError
            If the shapes do not fit.
        """
        x = as_array(x)
        mean, cov = (v if v is None else as_array(v) for v in (mean, cov))
        if is_plain(x, mean, cov):
            return stats.multivariate_normal.logpdf(x, mean, cov, allow_singular)
        _refuse_singular(allow_singular)
        x, mean, cov = (v if v is None else as_double(v) for v in (x, mean, cov))
        x, size = _with_components(x, mean, cov)
        centered = x if mean is None else x - np.reshape(mean, (-1,))
        if cov.ndim == 2:
            factor = np.linalg.cholesky(cov)
            rows = np.transpose(np.reshape(centered, (-1, size)))
            scaled = solve_triangular(factor, rows, lower=True)
            squares = np.reshape(np.sum(scaled * scaled, axis=0), x.shape[:-1])
            logs = 2.0 * np.sum(np.log(np.diagonal(factor)))
        else:
            squares = np.sum(centered * centered / cov, axis=-1)
            logs = np.sum(np.log(cov)) if cov.ndim else size * np.log(cov)
        return -0.5 * (size * (2.0 * _LOG_ROOT_2PI) + logs + squares)

    def pdf(
        self, x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False
    ) -> Array:
        """Compute the density at `x`; the parameters are those of `logpdf`.

        Parameters
        ----------
        x, mean, cov : array
            As `logpdf` takes them.
        allow_singular : bool
            For plain arrays only.

        Returns
        -------
        array
        """
        x = as_array(x)
        if is_plain(x, *[v if v is None else as_array(v) for v in (mean, cov)]):
            return stats.multivariate_normal.pdf(x, mean, cov, allow_singular)
        return np.exp(self.logpdf(x, mean, cov, allow_singular))


def _refuse_singular(allow_singular: bool) -> None:
    if allow_singular:
        raise ArgumentError(
            "multivariate_normal: allow_singular is not supported for traced or fake"
            " arrays",
            do="add a small multiple of the identity to the covariance",
        )


def _log_determinant(cov: Any, size: Any) -> Any:
    """Return the log of the determinant of a covariance, given as `logpdf` takes it."""
    if cov.ndim == 2:
        return 2.0 * np.sum(np.log(np.diagonal(np.linalg.cholesky(cov))))
    return np.sum(np.log(cov)) if cov.ndim else size * np.log(cov)


def _size_of(mean: Any, cov: Any) -> Any:
    """Return the number of components, which mean and covariance must agree on."""
    size = cov.shape[0] if cov.ndim else 1
    if mean is not None:
        size = mean.shape[0] if mean.ndim else 1
    if cov.ndim > 2 or any((n == size) is False for n in cov.shape):
        raise ShapeError(
            f"multivariate_normal: a mean of {size} elements and a covariance of shape"
            f" {tuple(cov.shape)}",
            do="give a square matrix with as many rows as the mean has elements",
        )
    return size


def _with_components(x: Any, mean: Any, cov: Any) -> tuple[Any, Any]:
    """Return the values with their components last, and the number of those."""
    size = _size_of(mean, cov)
    if (size == 1) is True and (x.ndim < 2 or x.shape[-1] != 1):
        x = x[..., None]
    if not x.ndim or (x.shape[-1] == size) is False:
        raise ShapeError(
            f"multivariate_normal: values of shape {tuple(x.shape)} do not have"
            f" {size} components along their last axis",
            do="put the components last",
        )
    return x, size


multivariate_normal: MultivariateNormal = MultivariateNormal()
"""The normal distribution of vectors, of a mean and a covariance.

Examples
--------
>>> import numpy as np, customop as co
>>> from customop.scipy import stats
>>> x, cov = np.array([1.0, 2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
>>> co.grad(lambda x: stats.multivariate_normal.logpdf(x, cov=cov))(x).round(6)
array([ 0., -2.])
>>> co.grad(lambda c: stats.multivariate_normal.logpdf(x, cov=c))(cov).round(6)
array([[-0.285714,  0.      ],
       [ 0.285714,  1.428571]])
"""
