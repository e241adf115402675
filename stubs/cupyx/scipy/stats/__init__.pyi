"""Types of cupyx.scipy.stats."""

# ---- written by stubs/generate.py ----

from cupy import _ArrayLike, _Axis, _Int, _Operand, ndarray
from typing import Any

def boxcox_llf(lmb: _Operand, data: _ArrayLike) -> Any: ...
def entropy(
    pk: ndarray,
    qk: ndarray | None = None,
    base: _Operand | None = None,
    axis: _Axis = 0,
) -> ndarray: ...
def trim_mean(a: ndarray, proportiontocut: _Operand, axis: _Axis = 0) -> ndarray: ...
def zmap(
    scores: _ArrayLike,
    compare: _ArrayLike,
    axis: _Axis = 0,
    ddof: _Int = 0,
    nan_policy: str = "propagate",
) -> ndarray: ...
def zscore(
    a: _ArrayLike, axis: _Axis = 0, ddof: _Int = 0, nan_policy: str = "propagate"
) -> ndarray: ...
