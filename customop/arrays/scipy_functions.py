"""Functions of SciPy that run compiled code, on traced and fake arrays.

Each is looked up by itself. SciPy is not imported here: its functions are found in its
modules once a program has imported those.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np

from customop.arrays.array_methods import first_virtual
from customop.later import later

_read: set[str] = set()


def new_stand_ins() -> dict[Any, Callable[..., Any]]:
    """Return what stands in for functions of SciPy's modules imported since."""
    found: dict[Any, Callable[..., Any]] = {}
    for module, names in _STAND_INS.items():
        if module not in _read and module in sys.modules:
            for name, make in names.items():
                function = attrgetter(name)(sys.modules[module])
                found[function] = _of_traced(function, make(name))
            _read.add(module)
    return found


def is_of_scipy(f: Any) -> bool:
    """Return whether a function is one of SciPy's."""
    return str(getattr(f, "__module__", None)).startswith("scipy.")


def _of_traced(
    function: Callable[..., Any], traced: Callable[..., Any]
) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_plain = first_virtual([*args, *kwargs.values()]) is None
        return (function if is_plain else traced)(*args, **kwargs)

    return call


def _array(value: Any) -> Any:
    """Return a value that is not an array as one."""
    like = first_virtual(value) if type(value) in (list, tuple) else None
    return np.asarray(value) if like is None else np.array(value, like=like)


def _one(value: Any) -> Any:
    return value if hasattr(value, "shape") else _array(value)


# ---- scipy.linalg ----


def _norm(
    a: Any,
    ord: Any = None,  # noqa: A002  # SciPy's name
    axis: Any = None,
    keepdims: bool = False,
    check_finite: bool = True,
) -> Any:
    return np.linalg.norm(_one(a), ord=ord, axis=axis, keepdims=keepdims)


# ---- scipy.spatial.distance ----


def _cdist(
    function: Callable[..., Any],
    XA: Any,  # noqa: N803  # SciPy's names
    XB: Any,  # noqa: N803
    metric: Any = "euclidean",
    **kwargs: Any,
) -> Any:
    first, second = _one(XA), _one(XB)
    measure = _METRICS.get(metric) if isinstance(metric, str) else None
    is_known = first.ndim == second.ndim == 2 and first.shape[1] == second.shape[1]
    is_real = first.dtype.kind in "biuf" and second.dtype.kind in "biuf"
    is_named = kwargs.keys() <= ({"p"} if metric == "minkowski" else set())
    if measure is None or not (is_known and is_real and is_named):
        return function(XA, XB, metric, **kwargs)  # which says what it lacks
    # SciPy computes with this type alone.
    first, second = first.astype(np.float64), second.astype(np.float64)
    return measure(first[:, None, :] - second[None, :, :], **kwargs)


_METRICS: dict[str, Callable[..., Any]] = {
    "chebyshev": lambda d: np.max(np.abs(d), axis=-1),
    "cityblock": lambda d: np.sum(np.abs(d), axis=-1),
    "euclidean": lambda d: np.linalg.norm(d, axis=-1),
    "minkowski": lambda d, p=2: np.linalg.norm(d, ord=p, axis=-1),
    "sqeuclidean": lambda d: np.sum(d * d, axis=-1),
}


def _distances(name: str) -> Callable[..., Any]:
    return partial(_cdist, getattr(sys.modules["scipy.spatial.distance"], name))


# ---- functions and methods of `customop.scipy`, which is imported when one runs ----


def _of(module: ModuleType) -> Callable[[str], Callable[..., Any]]:
    def counterpart(name: str) -> Callable[..., Any]:
        find = attrgetter(name)
        return lambda *args, **kwargs: find(module)(*args, **kwargs)

    return counterpart


_linalg = _of(later(import_module, "customop.scipy.linalg"))
_fft = _of(later(import_module, "customop.scipy.fft"))
_signal = _of(later(import_module, "customop.scipy.signal"))
_stats = _of(later(import_module, "customop.scipy.stats"))

_SOLVERS = (
    *("block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "det", "expm"),
    *("hankel", "inv", "lu", "lu_factor", "lu_solve", "solve", "solve_banded"),
    *("solve_sylvester", "solve_triangular", "sqrtm", "toeplitz"),
)
_TRANSFORMS = (
    *("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2"),
    *("irfft2", "fftn", "ifftn", "rfftn", "irfftn", "dct", "idct", "dst", "idst"),
    *("dctn", "idctn", "dstn", "idstn"),
)
_CONTINUOUS = (
    *("norm", "t", "cauchy", "laplace", "logistic", "expon", "gamma", "chi2"),
    *("lognorm", "beta", "uniform"),
)
_DENSITIES = ("logpdf", "pdf", "ppf", "isf", "median")
_DISCRETE = ("poisson", "binom", "bernoulli")
_PROBABILITIES = ("cdf", "sf", "logcdf", "logsf", "mean", "var", "std", "entropy")
_METHODS = (
    *(f"{d}.{m}" for d in _CONTINUOUS for m in _DENSITIES),
    *(f"{d}.{m}" for d in _DISCRETE for m in ("logpmf", "pmf")),
    *(f"{d}.{m}" for d in (*_CONTINUOUS, *_DISCRETE) for m in _PROBABILITIES),
    *(f"multivariate_normal.{m}" for m in ("logpdf", "pdf", "entropy")),
)
# The module that users know -> the names in it, and what makes their stand-ins.
_STAND_INS: dict[str, dict[str, Callable[[str], Callable[..., Any]]]] = {
    "scipy.linalg": {"norm": lambda _: _norm, **dict.fromkeys(_SOLVERS, _linalg)},
    "scipy.fft": dict.fromkeys(_TRANSFORMS, _fft),
    "scipy.signal": dict.fromkeys(("convolve", "correlate", "fftconvolve"), _signal),
    "scipy.stats": dict.fromkeys(_METHODS, _stats),
    "scipy.spatial.distance": {"cdist": _distances},
}
