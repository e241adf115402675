"""`scipy.special` on traced, fake and plain arrays.

The ufuncs here are SciPy's own; they call operators after this module is imported. The
functions have SciPy's parameters.

Examples
--------
>>> import numpy as np, customop as co
>>> from customop.scipy import special
>>> co.grad(special.erf)(0.0).round(6)
np.float64(1.128379)

Entropies, and how far one distribution is from another:

>>> p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
>>> co.grad(lambda p: np.sum(special.entr(p)))(p).round(6)
array([-0.306853, -0.306853])
>>> co.grad(lambda q: np.sum(special.rel_entr(p, q)))(q).round(6)
array([-2.      , -0.666667])
>>> co.grad(lambda q: np.sum(special.kl_div(p, q)))(q).round(6)
array([-1.      ,  0.333333])
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special as _special
from scipy.special import (  # the ufuncs of this namespace
    beta,
    betainc,
    betaincc,
    betaincinv,
    betaln,
    boxcox,
    cbrt,
    cosdg,
    cosm1,
    cotdg,
    dawsn,
    digamma,
    entr,
    erf,
    erfc,
    erfcinv,
    erfcx,
    erfi,
    erfinv,
    exp1,
    exp2,
    exp10,
    expi,
    expit,
    expm1,
    expn,
    exprel,
    fresnel,
    gamma,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    gammaln,
    gammasgn,
    huber,
    hyp0f1,
    hyp1f1,
    hyp2f1,
    i0,
    i0e,
    i1,
    i1e,
    iv,
    ive,
    j0,
    j1,
    jv,
    k0,
    k0e,
    k1,
    k1e,
    kl_div,
    kn,
    kv,
    kve,
    log1p,
    log_expit,
    log_ndtr,
    loggamma,
    logit,
    ndtr,
    ndtri,
    ndtri_exp,
    poch,
    pseudo_huber,
    psi,
    rel_entr,
    rgamma,
    round,  # noqa: A004  # SciPy's name
    shichi,
    sici,
    sindg,
    spence,
    stdtr,
    stdtrit,
    tandg,
    xlog1py,
    xlogy,
    y0,
    y1,
    yn,
    yv,
)

from customop import ArgumentError, Array, stop_gradient
from customop.numpy.rules import dtype_kind, in_c_order
from customop.scipy import special_ufuncs
from customop.scipy.special_ufuncs import hurwitz
from customop.scipy.ufunc_rules import is_plain

__all__ = [
    "beta",
    "betainc",
    "betaincc",
    "betaincinv",
    "betaln",
    "boxcox",
    "cbrt",
    "cosdg",
    "cosm1",
    "cotdg",
    "dawsn",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfi",
    "erfinv",
    "exp1",
    "exp2",
    "exp10",
    "expi",
    "expit",
    "expm1",
    "expn",
    "exprel",
    "fresnel",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammainccinv",
    "gammaincinv",
    "gammaln",
    "gammasgn",
    "huber",
    "hyp0f1",
    "hyp1f1",
    "hyp2f1",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "iv",
    "ive",
    "j0",
    "j1",
    "jv",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "kl_div",
    "kn",
    "kv",
    "kve",
    "log1p",
    "log_expit",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "ndtri_exp",
    "poch",
    "polygamma",
    "pseudo_huber",
    "psi",
    "rel_entr",
    "rgamma",
    "round",
    "shichi",
    "sici",
    "sindg",
    "softmax",
    "spence",
    "stdtr",
    "stdtrit",
    "tandg",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
    "yn",
    "yv",
    "zeta",
]

# Importing the module has registered the operators.
del special_ufuncs
# pyright infers types from SciPy's code and gets some of them wrong.
special: Any = _special


def zeta(x: Any, q: Any = None) -> Array:
    """Compute the Riemann or Hurwitz zeta function, as `scipy.special.zeta` does.

    Parameters
    ----------
    x : array
        Above 1. The derivative with respect to `x` is not available.
    q : array, optional
        1 by default.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import special
    >>> co.grad(lambda q: special.zeta(2.0, q))(np.array(1.0))
    np.float64(-2.40411380631...)
    >>> co.grad(lambda q: special.zeta(3.0, q=q))(2.0).round(6)
    np.float64(-0.24697)
    """
    if is_plain(x, q):
        return special.zeta(x, q)
    return hurwitz(x, 1.0 if q is None else q)


def polygamma(n: Any, x: Any) -> Array:
    """Compute derivatives of the digamma function, as `scipy.special.polygamma` does.

    Parameters
    ----------
    n : int or array of int
        Order, 0 or more; not traced.
    x : array
        Real.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError
        If `n` is traced.

    Notes
    -----
    Source: NIST Digital Library of Mathematical Functions, 25.11.12.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import special
    >>> co.grad(lambda x: special.polygamma(1, x))(np.array(1.0))
    np.float64(-2.40411380631...)
    """
    if is_plain(n, x):
        return special.polygamma(n, x)
    if not is_plain(n):
        raise ArgumentError(
            "polygamma: the order n is traced",
            do="pass a plain int, or loop over orders",
        )
    order = np.asarray(n)
    factor = (-1.0) ** (order + 1) * special.gamma(order + 1.0)
    found = factor * hurwitz(np.where(order == 0, 2, order + 1), x)
    return np.where(order == 0, special.digamma(x), found)


def multigammaln(a: Any, d: int) -> Array:
    """Compute the log of the multivariate gamma function, as `scipy.special.multigammaln`.

    Parameters
    ----------
    a : array
        Above (d - 1) / 2, which is not checked for traced values.
    d : int
        Dimension.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import special
    >>> co.grad(lambda a: special.multigammaln(a, 2))(np.array(2.0))
    np.float64(0.45927430907...)
    """
    if is_plain(a):
        return special.multigammaln(a, d)
    # A double, so that single precision gives doubles, as in SciPy.
    total: Any = np.float64((d * (d - 1) * 0.25) * math.log(math.pi))
    for j in range(1, d + 1):
        total = total + special.gammaln(a - (j - 1.0) / 2)
    return in_c_order(total)


# ---- sums of exponentials ----


def logsumexp(
    a: Any,
    axis: Any = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
) -> Any:
    """Compute the logarithm of a sum of exponentials, as `scipy.special.logsumexp` does.

    Parameters
    ----------
    a : array
        Real.
    axis : int or tuple of int, optional
        All axes by default.
    b : array, optional
        Factors of the exponentials.
    keepdims : bool
        Whether to keep the reduced axes, with length 1.
    return_sign : bool
        Whether to return the sign of the sum too. Without it, a negative sum gives nan.

    Returns
    -------
    array, or tuple of two arrays with `return_sign`

    Raises
    ------
    ArgumentError
        If traced values are complex.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import special
    >>> co.grad(special.logsumexp)(np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    >>> special.logsumexp(np.zeros((2, 3)), axis=1, b=[1.0, 1.0, 2.0]).round(6)
    array([1.386294, 1.386294])
    """
    if is_plain(a, b):
        return special.logsumexp(a, axis, b, keepdims, return_sign)
    a, b = _real("logsumexp", a), b if b is None else _real("logsumexp", b)
    if b is not None:
        a, b = np.broadcast_arrays(a, b)
        a = np.where(np.equal(b, 0), -np.inf, a)
    top = _finite_top(a, axis)
    terms = np.exp(a - top)
    total = np.sum(terms if b is None else b * terms, axis=axis, keepdims=keepdims)
    lifted = top if keepdims else np.squeeze(top, axis=axis)
    if return_sign:
        return np.log(np.absolute(total)) + lifted, np.sign(total)
    return np.log(total) + lifted


def _real(name: str, x: Any) -> Any:
    x = x if hasattr(x, "dtype") else np.asarray(x)
    if dtype_kind(x.dtype) == "c":
        raise ArgumentError(
            f"{name}: complex values have no operator", do="take their real parts"
        )
    return x if dtype_kind(x.dtype) == "f" else x.astype(np.float64)


def _finite_top(a: Any, axis: Any) -> Any:
    """Return the maxima along an axis as constants; 0 where they are not finite."""
    top = stop_gradient(np.max(a, axis=axis, keepdims=True, initial=-np.inf))
    return np.where(np.isfinite(top), top, 0.0).astype(a.dtype)


def softmax(x: Any, axis: Any = None) -> Array:
    """Divide exponentials by their sum, as `scipy.special.softmax` does.

    Parameters
    ----------
    x : array
        Real.
    axis : int or tuple of int, optional
        All axes by default.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import special
    >>> co.jacrev(special.softmax)(np.zeros(2))
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])
    >>> special.softmax(np.zeros((2, 4)), axis=0)
    array([[0.5, 0.5, 0.5, 0.5],
           [0.5, 0.5, 0.5, 0.5]])
    """
    if is_plain(x):
        return special.softmax(x, axis)
    x = _real("softmax", x)
    terms = np.exp(x - _finite_top(x, axis))
    return terms / np.sum(terms, axis=axis, keepdims=True)


def log_softmax(x: Any, axis: Any = None) -> Array:
    """Compute the logarithm of the softmax, as `scipy.special.log_softmax` does.

    Parameters
    ----------
    x : array
        Real.
    axis : int or tuple of int, optional
        All axes by default.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import special
    >>> co.jacrev(special.log_softmax)(np.zeros(2))
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    >>> special.log_softmax(np.zeros((2, 3)), axis=0).round(6)
    array([[-0.693147, -0.693147, -0.693147],
           [-0.693147, -0.693147, -0.693147]])
    """
    if is_plain(x):
        return special.log_softmax(x, axis)
    x = _real("log_softmax", x)
    moved = x - _finite_top(x, axis)
    return moved - np.log(np.sum(np.exp(moved), axis=axis, keepdims=True))
