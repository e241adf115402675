"""Samples of the operators of scipy.special, where SciPy is installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from tests.conformance.samples import Sample

_rng = np.random.default_rng(11)

# Name of a ufunc -> ranges of its arguments, away from poles; an int is an order.
_RANGES: dict[str, tuple[Any, ...]] = {
    "erf": ((-2, 2),),
    "erfc": ((-2, 2),),
    "erfcx": ((-1, 2),),
    "erfi": ((-1, 1),),
    "dawsn": ((-2, 2),),
    "erfinv": ((-0.8, 0.8),),
    "erfcinv": ((0.2, 1.8),),
    "ndtr": ((-2, 2),),
    "ndtri": ((0.1, 0.9),),
    "log_ndtr": ((-9, 2),),
    "ndtri_exp": ((-4, -0.2),),
    "expit": ((-2, 2),),
    "logit": ((0.2, 0.8),),
    "log_expit": ((-2, 2),),
    "entr": ((0.2, 2),),
    "rel_entr": ((0.2, 2), (0.2, 2)),
    "kl_div": ((0.2, 2), (0.2, 2)),
    "xlogy": ((0.2, 2), (0.2, 2)),
    "xlog1py": ((0.2, 2), (0.2, 2)),
    "huber": ((0.5, 1), (1.2, 2)),
    "pseudo_huber": ((0.5, 1), (-2, 2)),
    "gamma": ((0.5, 3),),
    "gammaln": ((0.5, 3),),
    "loggamma": ((0.5, 3),),
    "rgamma": ((-0.9, 3),),
    "digamma": ((0.5, 3),),
    "psi": ((0.5, 3),),
    "beta": ((0.5, 3), (0.5, 3)),
    "betaln": ((0.5, 3), (0.5, 3)),
    "poch": ((0.5, 3), (0.5, 3)),
    "gammainc": (2, (0.5, 3)),
    "gammaincc": (2, (0.5, 3)),
    "gammaincinv": (2, (0.2, 0.8)),
    "gammainccinv": (2, (0.2, 0.8)),
    "betainc": (2, 3, (0.2, 0.8)),
    "betaincc": (2, 3, (0.2, 0.8)),
    "betaincinv": (2, 3, (0.2, 0.8)),
    "stdtr": (3, (-2, 2)),
    "stdtrit": (3, (0.2, 0.8)),
    "j0": ((-3, 3),),
    "j1": ((-3, 3),),
    "y0": ((0.5, 3),),
    "y1": ((0.5, 3),),
    "i0": ((-2, 2),),
    "i1": ((-2, 2),),
    "i0e": ((0.2, 2),),
    "i1e": ((-2, -0.2),),
    "k0": ((0.5, 2),),
    "k1": ((0.5, 2),),
    "k0e": ((0.5, 2),),
    "k1e": ((0.5, 2),),
    "jv": (2, (0.5, 3)),
    "yv": (1, (0.5, 3)),
    "yn": (1, (0.5, 3)),
    "iv": (2, (-2, 2)),
    "kv": (1, (0.5, 2)),
    "kn": (1, (0.5, 2)),
    "exp1": ((0.5, 2),),
    "expi": ((0.5, 2),),
    "expn": (3, (0.5, 2)),
    "exprel": ((-2, 2),),
    "spence": ((0.3, 2),),
    "hyp0f1": (2, (-1, 1)),
    "hyp1f1": (1, 2, (-1, 1)),
    "hyp2f1": (1, 2, 3, (-0.7, 0.7)),
    "cbrt": ((0.5, 2),),
    "exp2": ((-1, 1),),
    "exp10": ((-1, 1),),
    "expm1": ((-1, 1),),
    "log1p": ((0.5, 2),),
    "cosm1": ((-1, 1),),
    "sindg": ((-90, 90),),
    "cosdg": ((-90, 90),),
    "tandg": ((-40, 40),),
    "cotdg": ((20, 80),),
    "boxcox": ((0.5, 2), (0.5, 2)),
    "ive": (2, (0.2, 2)),
    "kve": (1, (0.5, 2)),
    "sici": ((0.5, 2),),
    "shichi": ((0.5, 2),),
    "fresnel": ((-1, 1),),
}
# Those that take complex numbers and have a complex derivative.
_COMPLEX = (
    "erf",
    "erfi",
    "dawsn",
    "ndtr",
    "gamma",
    "loggamma",
    "rgamma",
    "xlogy",
    "jv",
    "iv",
    "exp1",
    "hyp0f1",
    "expm1",
)


def _values(ranges: tuple[Any, ...], *shape: int) -> list[Any]:
    return [
        float(r) if isinstance(r, int) else np.asarray(_rng.uniform(r[0], r[1], shape))
        for r in ranges
    ]


def _sample(name: str, fn: Any, args: list[Any], **options: Any) -> Sample:
    moving = tuple(i for i, a in enumerate(args) if isinstance(a, np.ndarray))
    return Sample(f"special {name}", fn, tuple(args), diff=moving, **options)


def _ufuncs(special: Any) -> list[Sample]:
    found = []
    for name, ranges in _RANGES.items():
        fn = getattr(special, name)
        found.append(_sample(name, fn, _values(ranges, 2, 3)))
        if name in _COMPLEX:
            args = _values(ranges, 3)
            args[-1] = args[-1] + 1j * _rng.uniform(0.2, 0.6, 3)
            is_once = name in ("gamma", "loggamma", "rgamma")
            found.append(_sample(f"{name}-complex", fn, args, second=not is_once))
    row, column = _rng.uniform(0.5, 2, 3), _rng.uniform(0.5, 2, (2, 1))
    found.append(_sample("beta-broadcast", special.beta, [column, row]))
    found.append(_sample("erf-0d", special.erf, [np.array(0.3)]))
    found.append(_sample("beta-0d", special.beta, [np.array(0.3), np.array(1.3)]))
    found.append(_sample("erf-empty", special.erf, [np.zeros((0, 2))]))
    fortran = np.asfortranarray(_rng.uniform(0.5, 2, (2, 3)))
    found.append(_sample("xlogy-fortran", special.xlogy, [fortran, fortran.T.copy().T]))
    found.append(Sample("special gammasgn", special.gammasgn, (row,)))
    return found


def _functions(special: Any) -> list[Sample]:
    x, b = _rng.normal(size=(2, 3)), _rng.uniform(0.5, 2, (2, 3))
    found = [
        Sample("special polygamma", lambda x: special.polygamma(2, x), (b,), diff=(0,)),
        Sample(
            "special polygamma-orders",
            lambda x: special.polygamma(np.array([0, 1, 3]), x),
            (b,),
            diff=(0,),
        ),
        Sample("special zeta", lambda q: special.zeta(3.0, q), (b,), diff=(0,)),
        Sample(
            "multigammaln", lambda a: special.multigammaln(a, 3), (b + 2,), diff=(0,)
        ),
        Sample("special logsumexp", special.logsumexp, (x,), diff=(0,)),
        Sample("special softmax", special.softmax, (x,), diff=(0,)),
        Sample("special log_softmax", special.log_softmax, (x,), diff=(0,)),
    ]
    for axis in (0, -1, (0, 1)):
        for name in ("logsumexp", "softmax", "log_softmax"):
            fn = getattr(special, name)
            found.append(
                Sample(f"special {name}-axis {axis}", fn, (x,), {"axis": axis}, (0,))
            )
    signed = b * np.array([1.0, 1.0, -0.2])
    found += [
        Sample(
            "special logsumexp-weights",
            lambda a, b: special.logsumexp(a, 1, b, True),
            (x, b),
            diff=(0, 1),
        ),
        Sample(
            "special logsumexp-sign",
            lambda a, b: special.logsumexp(a, 1, b, return_sign=True),
            (x * 0.1, signed),
            diff=(0, 1),
        ),
    ]
    return found


# All names begin with one word: the default tier takes the first sample of each.
def _samples() -> list[Sample]:
    if importlib.util.find_spec("scipy") is None:
        return []
    special: Any = importlib.import_module("customop.scipy.special")
    return [*_ufuncs(special), *_functions(special)]


SAMPLES: list[Sample] = _samples()
