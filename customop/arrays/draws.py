"""Advice for a draw with traced parameters: ``rng.normal(mean, scale)``.

NumPy's generators take plain numbers. A draw that is moved and scaled afterwards has the same
distribution, and derivatives by its parameters. Source: the formulas of the distributions in
numpy.random, NumPy 2.4; Kingma and Welling, "Auto-encoding variational Bayes", 2014.
"""

from __future__ import annotations

__all__ = ["instead_of_draw"]

_MOVED = "loc + scale * rng.{0}(size=shape)"
_SCALED = "scale * rng.{0}(size=shape)"
_OPERATOR = "an operator of rng.{0} that takes rng as an argument, since its draws "
_FIXED = f"{_OPERATOR}have no derivative by that parameter"
_WHOLE = f"{_OPERATOR}are whole numbers"

# Method of a generator -> what to write.
_INSTEAD: dict[str, str] = {
    **dict.fromkeys(("normal", "laplace", "gumbel", "logistic"), _MOVED),
    **dict.fromkeys(("exponential", "rayleigh"), _SCALED),
    "uniform": "low + (high - low) * rng.uniform(size=shape)",
    "lognormal": "np.exp(mean + sigma * rng.normal(size=shape))",
    "weibull": "rng.exponential(size=shape) ** (1 / a)",
    "pareto": "np.expm1(rng.exponential(size=shape) / a)",
    "power": "(-np.expm1(-rng.exponential(size=shape))) ** (1 / a)",
    "multivariate_normal": "mean + np.linalg.cholesky(cov) @ rng.normal(size=len(mean))",
    "gamma": "scale * rng.gamma(k, size=shape) with a plain k",
    # ---- elements of an array ----
    "choice": "x[rng.choice(len(x), size=n)]",
    "permutation": "x[rng.permutation(len(x))]",
    "permuted": "np.take_along_axis(x, np.argsort(rng.random(x.shape), axis), axis)",
    "shuffle": "x[...] = x[rng.permutation(len(x))]",
    # ---- without a derivative ----
    **dict.fromkeys(
        (
            *("beta", "chisquare", "dirichlet", "f", "noncentral_chisquare"),
            *("noncentral_f", "standard_gamma", "standard_t", "triangular"),
            *("vonmises", "wald"),
        ),
        _FIXED,
    ),
    **dict.fromkeys(
        (
            *("binomial", "geometric", "hypergeometric", "integers", "logseries"),
            *("multinomial", "multivariate_hypergeometric", "negative_binomial"),
            *("poisson", "randint", "random_integers", "zipf"),
        ),
        _WHOLE,
    ),
}


def instead_of_draw(method: str) -> str | None:
    """Advice for a method of a generator that is given a traced array."""
    text = _INSTEAD.get(method)
    return None if text is None else text.format(method)
