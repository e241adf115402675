"""Derivatives of the ufuncs of `scipy.special`.

Each row names a ufunc, its parameters and their formulas. A formula is None if the
derivative has no closed form. Sources: NIST Digital Library of Mathematical Functions,
sections 5.4, 5.9 (gamma), 6.2 (integrals), 7.2 (error functions), 8.17 (beta), 10.6,
10.29 (Bessel), 13.3, 15.5 (hypergeometric), 25.11 (zeta).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import special

from customop import (
    FakeArray,
    NoDerivativeError,
    Operator,
    custom_op,
    ops,
    register_numpy_function,
)
from customop.numpy.arguments import typical
from customop.numpy.rules import device_of, is_complex, no_gradient, register_formulas
from customop.scipy.ufunc_rules import (
    Formula,
    no_formula,
    register_ufunc,
    ufunc_operator,
)

# ---- formulas ----


_PI = math.pi
_ROOT_PI = math.sqrt(math.pi)
_ROOT_2PI = math.sqrt(2 * math.pi)
_LN2, _LN10 = math.log(2.0), math.log(10.0)
_DEGREE = math.pi / 180.0


# SciPy's zeta is a Python function around a private ufunc.
def _zeta(x: Any, q: Any) -> Any:
    return special.zeta(x, q)


hurwitz: Operator[..., Any] = ufunc_operator("zeta", _zeta, ["x", "q"])
register_formulas(
    hurwitz,
    ("x", "q"),
    (no_formula("zeta", "x"), lambda g, x, q: -g * x * hurwitz(x + 1, q)),
)


def _trigamma(x: Any) -> Any:
    if is_complex(x):
        raise NoDerivativeError(
            "scipy.special.digamma has no derivative at complex numbers: SciPy has no"
            " complex polygamma",
            do="keep to real numbers, or wrap the function with custom_jvp",
        )
    return hurwitz(2.0, x)


def _rgamma(g: Any, x: Any) -> Any:
    """Return the gradient of 1 / gamma.

    Left of 1/2 it uses 1 / gamma(x) = gamma(1 - x) sin(pi x) / pi. So neither it nor
    its derivatives have poles at the zeros of the function.
    """
    if is_complex(x):
        return -g * special.rgamma(x) * special.digamma(x)
    is_left = np.less(x, 0.5)
    left, right = np.where(is_left, x, 0.0), np.where(is_left, 1.0, x)
    turn = np.cos(_PI * left) - special.digamma(1.0 - left) * np.sin(_PI * left) / _PI
    there = special.gamma(1.0 - left) * turn
    return g * np.where(is_left, there, -special.rgamma(right) * special.digamma(right))


def _gamma_density(a: Any, x: Any) -> Any:
    return np.exp(special.xlogy(a - 1.0, x) - x - special.gammaln(a))


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    powers = special.xlogy(a - 1.0, x) + special.xlog1py(b - 1.0, -x)
    return np.exp(powers - special.betaln(a, b))


def _student_density(df: Any, t: Any) -> Any:
    factor = special.poch(0.5 * df, 0.5) / np.sqrt(_PI * df)
    return factor * np.exp(-0.5 * (df + 1.0) * np.log1p(t * t / df))


def _psi_between(g: Any, y: Any, a: Any, b: Any) -> Any:
    """Return ``g y (psi(a) - psi(a + b))``."""
    return g * y * (special.digamma(a) - special.digamma(a + b))


def _is_pole(x: Any) -> Any:
    """Return whether gamma has a pole at x.

    ``1 / gamma(x) == 0`` would not tell: it also holds for large x.
    """
    return np.less_equal(x, 0) & np.equal(np.floor(x), x)


def _poch_base(g: Any, z: Any, m: Any, y: Any) -> Any:
    """Return ``g y (psi(z + m) - psi(z))``; poles of psi cancel zeros or each other.

    Here poch(z, m) is gamma(z + m) / gamma(z), which is 1 for m = 0 and any z. If both
    z and z + m are poles, psi(1 - z) has the same differences.
    """
    is_one, at_pole = np.equal(m, 0), _is_pole(z)
    ends_there = at_pole & _is_pole(z + m)
    is_zero = at_pole & ~ends_there
    low, high = np.where(at_pole, 0.5, z), np.where(at_pole, 0.5, z + m)
    usual = y * (special.digamma(high) - special.digamma(low))
    low, high = np.where(ends_there, z, 0.0), np.where(ends_there, z + m, 0.0)
    between = y * (special.digamma(1.0 - high) - special.digamma(1.0 - low))
    low, high = np.where(is_zero, z, 0.0), np.where(is_zero, z + m, 1.0)
    slope = special.digamma(high) * special.rgamma(low) + _rgamma(1.0, low)
    there = special.gamma(high) * slope
    found = np.where(is_zero, there, np.where(ends_there, between, usual))
    return g * np.where(is_one, 0.0, found)


def _expn_before(n: Any, x: Any) -> Any:
    """Return the exponential integral of order n - 1; SciPy has none below order 0."""
    is_first = np.equal(n, 0)
    known = special.expn(np.where(is_first, 0, n - 1), x)
    return np.where(is_first, np.exp(-x) * (1.0 + x) / (x * x), known)


def _hyp2f1(g: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    """Return the gradient for x, whose slope at 0 is a b / c.

    For a b = 0 the function is 1 for any c, but SciPy gives (1 - x)^-b for a = c = 0.
    """
    is_zero = np.equal(a * b, 0)
    slope = a * b / np.where(is_zero, 1.0, c)
    slope = np.where(is_zero & np.equal(a, c), b, slope)
    beyond = special.hyp2f1(a + 1, b + 1, c + 1, x)
    return g * np.where(np.equal(slope, 0), 0.0, slope * beyond)


# Coefficients (2 k - 1)!! of the asymptotic series of erfcx and dawsn, from k = 1.
_TAIL = [float(math.prod(range(1, 2 * k, 2))) for k in range(1, 17)]


def _tail(is_far: Any, x: Any, sign: float) -> Any:
    """Return the sum of (2 k - 1)!! (sign / 2 x^2)^k, for x far from 0."""
    far = np.where(is_far, x, 16.0)
    u = sign * 0.5 / far / far
    total = np.zeros_like(u)
    for c in reversed(_TAIL):
        total = (total + c) * u
    return total


def _erfcx(g: Any, x: Any, y: Any) -> Any:
    """Return 2 x y - 2 / sqrt(pi), whose terms cancel for large x."""
    is_far = np.greater(np.real(x), _FAR)
    near = np.where(is_far, 0.0, x)
    found = np.where(is_far, _tail(is_far, x, -1.0), _ROOT_PI * near * y - 1.0)
    return g * (2.0 / _ROOT_PI) * found


def _dawsn(g: Any, x: Any, y: Any) -> Any:
    """Return 1 - 2 x y, whose terms cancel for large x."""
    is_far = np.greater(np.real(x * x), _FAR * _FAR)
    near = np.where(is_far, 0.0, x)
    return g * np.where(is_far, -_tail(is_far, x, 1.0), 1.0 - 2.0 * near * y)


# Beyond this distance from 0, 16 terms of the series give 16 digits.
_FAR = 10.0


def _mills(x: Any) -> Any:
    """Return the normal distribution divided by its density, times sqrt(2 / pi)."""
    return special.erfcx(x * -math.sqrt(0.5))


def _log_ndtr(g: Any, x: Any, y: Any) -> Any:
    """Return the gradient of log_ndtr: density / distribution, by `_mills` left of 0."""
    is_left = np.less(np.real(x), 0.0)
    left, right = np.where(is_left, x, 0.0), np.where(is_left, 0.0, x)
    log = -0.5 * right * right - np.where(is_left, 0.0, y)
    found = np.where(is_left, 2.0 / _mills(left), np.exp(log))
    return g * found / _ROOT_2PI


# Below this distance from 0, the derivative of exprel is computed as a series with
# coefficients (k + 1) / (k + 2)!.
_NEAR = 0.5
_SERIES = [(k + 1) / math.factorial(k + 2) for k in range(16)]


def _exprel(g: Any, x: Any, y: Any) -> Any:
    is_near = np.less(np.absolute(x), _NEAR)
    near, far = np.where(is_near, x, 0.0), np.where(is_near, 1.0, x)
    total = np.zeros_like(near)
    for c in reversed(_SERIES):
        total = total * near + c
    return g * np.where(is_near, total, (np.exp(far) - np.where(is_near, 0.0, y)) / far)


def _boxcox_power(g: Any, x: Any, lmbda: Any) -> Any:
    """Return the derivative of log(x) exprel(lmbda log(x))."""
    log = np.log(x)
    power = lmbda * log
    return _exprel(g * log * log, power, special.exprel(power))


def _scaled_i(g: Any, v: Any, x: Any, y: Any) -> Any:
    """Return the derivative of exp(-|x|) I_v(x)."""
    if is_complex(x):
        raise NoDerivativeError(
            "scipy.special.ive has no derivative at complex numbers: it is not holomorphic",
            do="keep to real numbers, or use iv(v, x)",
        )
    around = 0.5 * (special.ive(v - 1, x) + special.ive(v + 1, x))
    return g * (around - np.sign(x) * y)


def _scaled_k(g: Any, v: Any, x: Any, y: Any) -> Any:
    """Return the derivative of exp(x) K_v(x)."""
    return g * (y - 0.5 * (special.kve(v - 1, x) + special.kve(v + 1, x)))


def _pseudo_huber(g: Any, delta: Any, r: Any) -> Any:
    # With s for the root, this is 2 (s - 1) - (s^2 - 1) / s, written without
    # cancellation.
    s = _root_of(r, delta)
    above = np.square(r / delta) / (s + 1.0)
    return g * delta * above * above / s


def _root_of(r: Any, delta: Any) -> Any:
    return np.sqrt(1.0 + np.square(r / delta))


UFUNCS: dict[str, Mapping[str, Formula]] = {
    # ---- error functions and normal distribution ----
    "erf": {"x": lambda g, x: g * (2.0 / _ROOT_PI) * np.exp(-x * x)},
    "erfc": {"x": lambda g, x: g * (-2.0 / _ROOT_PI) * np.exp(-x * x)},
    "erfcx": {"x": _erfcx},
    "erfi": {"x": lambda g, x: g * (2.0 / _ROOT_PI) * np.exp(x * x)},
    "dawsn": {"x": _dawsn},
    "erfinv": {"x": lambda g, y: g * (_ROOT_PI / 2.0) * np.exp(y * y)},
    "erfcinv": {"x": lambda g, y: g * (-_ROOT_PI / 2.0) * np.exp(y * y)},
    "ndtr": {"x": lambda g, x: g * np.exp(-0.5 * x * x) / _ROOT_2PI},
    "ndtri": {"x": lambda g, y: g * _ROOT_2PI * np.exp(0.5 * y * y)},
    "log_ndtr": {"x": _log_ndtr},
    "ndtri_exp": {"x": lambda g, y: g * (_ROOT_2PI / 2.0) * _mills(y)},
    # ---- logistic and entropy functions ----
    "expit": {"x": lambda g, y: g * y * (1.0 - y)},
    "logit": {"x": lambda g, x: g / (x * (1.0 - x))},
    "log_expit": {"x": lambda g, x: g * special.expit(-x)},
    "entr": {"x": lambda g, x: -g * (np.log(x) + 1.0)},
    "rel_entr": {
        "x": lambda g, x, v: g * (np.log(x / v) + 1.0),
        "v": lambda g, x, v: -g * x / v,
    },
    "kl_div": {
        "x": lambda g, x, v: g * np.log(x / v),
        "v": lambda g, x, v: g * (1.0 - x / v),
    },
    "xlogy": {"x": lambda g, v: g * np.log(v), "v": lambda g, x, v: g * x / v},
    "xlog1py": {
        "x": lambda g, v: g * np.log1p(v),
        "v": lambda g, x, v: g * x / (1.0 + v),
    },
    "huber": {
        "delta": lambda g, delta, r: g * np.maximum(np.absolute(r) - delta, 0.0),
        "r": lambda g, delta, r: g * np.clip(r, -delta, delta),
    },
    "pseudo_huber": {
        "delta": _pseudo_huber,
        "r": lambda g, delta, r: g * r / _root_of(r, delta),
    },
    # ---- gamma and beta functions ----
    "gamma": {"x": lambda g, x, y: g * y * special.digamma(x)},
    "gammaln": {"x": lambda g, x: g * special.digamma(x)},
    "loggamma": {"x": lambda g, x: g * special.digamma(x)},
    "rgamma": {"x": _rgamma},
    "digamma": {"x": lambda g, x: g * _trigamma(x)},
    "psi": {"x": lambda g, x: g * _trigamma(x)},
    "beta": {
        "a": lambda g, a, b, y: _psi_between(g, y, a, b),
        "b": lambda g, a, b, y: _psi_between(g, y, b, a),
    },
    "betaln": {
        "a": lambda g, a, b: _psi_between(g, 1.0, a, b),
        "b": lambda g, a, b: _psi_between(g, 1.0, b, a),
    },
    "poch": {
        "z": _poch_base,
        "m": lambda g, z, m, y: g * y * special.digamma(z + m),
    },
    "gammainc": {"a": None, "x": lambda g, a, x: g * _gamma_density(a, x)},
    "gammaincc": {"a": None, "x": lambda g, a, x: -g * _gamma_density(a, x)},
    "gammaincinv": {"a": None, "p": lambda g, a, y: g / _gamma_density(a, y)},
    "gammainccinv": {"a": None, "p": lambda g, a, y: -g / _gamma_density(a, y)},
    "betainc": {
        "a": None,
        "b": None,
        "x": lambda g, a, b, x: g * _beta_density(a, b, x),
    },
    "betaincc": {
        "a": None,
        "b": None,
        "x": lambda g, a, b, x: -g * _beta_density(a, b, x),
    },
    "betaincinv": {
        "a": None,
        "b": None,
        "p": lambda g, a, b, y: g / _beta_density(a, b, y),
    },
    "stdtr": {"df": None, "t": lambda g, df, t: g * _student_density(df, t)},
    "stdtrit": {"df": None, "p": lambda g, df, y: g / _student_density(df, y)},
    # ---- Bessel functions ----
    "j0": {"x": lambda g, x: -g * special.j1(x)},
    "j1": {"x": lambda g, x: g * 0.5 * (special.j0(x) - special.jv(2, x))},
    "y0": {"x": lambda g, x: -g * special.y1(x)},
    "y1": {"x": lambda g, x: g * 0.5 * (special.y0(x) - special.yv(2, x))},
    "i0": {"x": lambda g, x: g * special.i1(x)},
    "i1": {"x": lambda g, x: g * 0.5 * (special.i0(x) + special.iv(2, x))},
    "i0e": {"x": lambda g, x, y: g * (special.i1e(x) - np.sign(x) * y)},
    "i1e": {"x": lambda g, x, y: _scaled_i(g, 1, x, y)},
    "k0": {"x": lambda g, x: -g * special.k1(x)},
    "k1": {"x": lambda g, x: g * -0.5 * (special.k0(x) + special.kv(2, x))},
    "k0e": {"x": lambda g, x, y: g * (y - special.k1e(x))},
    "k1e": {"x": lambda g, x, y: _scaled_k(g, 1, x, y)},
    "jv": {
        "v": None,
        "x": lambda g, v, x: g * 0.5 * (special.jv(v - 1, x) - special.jv(v + 1, x)),
    },
    "yv": {
        "v": None,
        "x": lambda g, v, x: g * 0.5 * (special.yv(v - 1, x) - special.yv(v + 1, x)),
    },
    "iv": {
        "v": None,
        "x": lambda g, v, x: g * 0.5 * (special.iv(v - 1, x) + special.iv(v + 1, x)),
    },
    "kv": {
        "v": None,
        "x": lambda g, v, x: g * -0.5 * (special.kv(v - 1, x) + special.kv(v + 1, x)),
    },
    # `yn` and `kn` are those of whole orders.
    "yn": {
        "n": None,
        "x": lambda g, n, x: g * 0.5 * (special.yv(n - 1, x) - special.yv(n + 1, x)),
    },
    "kn": {
        "n": None,
        "x": lambda g, n, x: g * -0.5 * (special.kv(n - 1, x) + special.kv(n + 1, x)),
    },
    # ---- exponential integrals ----
    "exp1": {"x": lambda g, x: -g * np.exp(-x) / x},
    "expi": {"x": lambda g, x: g * np.exp(x) / x},
    "expn": {"n": None, "x": lambda g, n, x: -g * _expn_before(n, x)},
    "exprel": {"x": _exprel},
    "spence": {"x": lambda g, x: -g * _log_over(x)},
    # ---- hypergeometric functions ----
    "hyp0f1": {"b": None, "x": lambda g, b, x: g * special.hyp0f1(b + 1, x) / b},
    "hyp1f1": {
        "a": None,
        "b": None,
        "x": lambda g, a, b, x: g * (a / b) * special.hyp1f1(a + 1, b + 1, x),
    },
    "hyp2f1": {
        "a": None,
        "b": None,
        "c": None,
        "x": _hyp2f1,
    },
    # ---- powers and angles ----
    "cbrt": {"x": lambda g, y: g / (3.0 * y * y)},
    "exp2": {"x": lambda g, y: g * (y * _LN2)},
    "exp10": {"x": lambda g, y: g * (y * _LN10)},
    "expm1": {"x": lambda g, y: g * (y + 1.0)},
    "log1p": {"x": lambda g, x: g / (x + 1.0)},
    "cosm1": {"x": lambda g, x: -g * np.sin(x)},
    "sindg": {"x": lambda g, x: g * _DEGREE * special.cosdg(x)},
    "cosdg": {"x": lambda g, x: -g * _DEGREE * special.sindg(x)},
    "tandg": {"x": lambda g, y: g * _DEGREE * (1.0 + y * y)},
    "cotdg": {"x": lambda g, y: -g * _DEGREE * (1.0 + y * y)},
    "boxcox": {
        "x": lambda g, x, lmbda: g * np.power(x, lmbda - 1.0),
        "lmbda": _boxcox_power,
    },
}


def _log_over(x: Any) -> Any:
    """Return log(x) / (x - 1), which is 1 / exprel(log(x)); near 1 by a series."""
    if not is_complex(x):
        return 1.0 / special.exprel(np.log(x))
    d = x - 1.0
    is_near = np.less(np.absolute(d), _CLOSE)
    near, far = np.where(is_near, d, 0.0), np.where(is_near, 1.0, d)
    total = np.zeros_like(near)
    for k in range(16, 0, -1):
        total = 1.0 / k - total * near
    return np.where(is_near, total, np.log(far + 1.0) / far)


# Below this distance from 1, the series gives 16 digits.
_CLOSE = 0.1


def _register() -> None:
    done: list[Any] = []
    for name, formulas in UFUNCS.items():
        ufunc = getattr(special, name)
        if not any(ufunc is known for known in done):  # psi is digamma
            register_ufunc(name, formulas)
            done.append(ufunc)


_register()
# Scaled Bessel functions are not holomorphic, so they are for real arguments only.
SCALED: dict[str, Any] = {"ive": _scaled_i, "kve": _scaled_k}
for _name, _formula in SCALED.items():
    register_ufunc(_name, {"v": None, "x": _formula})


@ops.scipy.stdtrit.default.register_sample_inputs
def _() -> list[Any]:
    # Below one degree of freedom, SciPy's kernel for single precision is inexact.
    return [(np.array([2.0, 3.0, 5.0]), np.array([0.2, 0.4, 0.9]))]


# ---- step functions ----

STEPS = ("gammasgn", "round")
for _name in STEPS:
    _step = ufunc_operator(_name, getattr(special, _name), ["x"])
    register_numpy_function(getattr(special, _name), no_gradient(_step))


# ---- ufuncs with two results: sine and cosine integrals, Fresnel integrals ----
#
# Source: NIST Digital Library of Mathematical Functions, sections 6.2 and 7.2.


Slopes = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _register_pairs(name: str, slopes: Slopes) -> None:
    """Register a ufunc with the derivatives of both results."""
    ufunc = getattr(special, name)

    def kernel(x: Any) -> tuple[Any, Any]:
        first, second = ufunc(x)
        return first, second

    op = custom_op(
        f"scipy::{name}",
        kernel,
        mutates_args=(),
        schema="(Array x) -> (Array, Array)",
        device_types="cpu",
    )

    @op.register_fake
    def _(x: Any) -> tuple[Any, Any]:
        made = ufunc(np.ones(1, x.dtype))[0].dtype
        strides = typical(x.strides)
        axes = sorted(range(len(x.shape)), key=lambda i: -abs(strides[i]))
        first, second = (
            FakeArray(x.shape, made, order=axes, device=device_of(x)) for _ in range(2)
        )
        return first, second

    def backward(ctx: Any, *grads: Any) -> Any:
        # A slope may be infinite at a place where only the other result has a gradient.
        pairs = [(g, s) for g, s in zip(grads, slopes, strict=True) if g is not None]
        parts = [g * slope(ctx.saved_arrays[0]) for g, slope in pairs]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def jvp(primals: Any, tangents: Any) -> Any:
        moved = [tangents[0] * slope(primals[0]) for slope in slopes]
        return op(*primals), tuple(moved)

    op.register_autograd(backward, setup_context=_keep)
    op.register_jvp(jvp)
    op.register_vmap(lambda info, in_dims, x: (op(x), (in_dims[0], in_dims[0])))
    register_numpy_function(ufunc, op)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.set_materialize_grads(False)


def _over(x: Any, y: Any, at_zero: float) -> Any:
    """Return y / x, and its limit at 0."""
    is_zero = np.equal(x, 0)
    return np.where(is_zero, at_zero, y / np.where(is_zero, 1.0, x))


PAIRS: dict[str, Slopes] = {
    "sici": (lambda x: _over(x, np.sin(x), 1.0), lambda x: np.cos(x) / x),
    "shichi": (lambda x: _over(x, np.sinh(x), 1.0), lambda x: np.cosh(x) / x),
    "fresnel": (
        lambda x: np.sin((0.5 * math.pi) * x * x),
        lambda x: np.cos((0.5 * math.pi) * x * x),
    ),
}
for _name_pairs, _slopes in PAIRS.items():
    _register_pairs(_name_pairs, _slopes)
