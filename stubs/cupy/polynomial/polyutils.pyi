"""Types of cupy.polynomial.polyutils."""

# ---- written by stubs/generate.py ----

from cupy import _Operand, ndarray
from typing import Any

def as_series(alist: Any, trim: bool = True) -> list[ndarray]: ...
def trimcoef(c: ndarray, tol: _Operand = 0) -> ndarray: ...
def trimseq(seq: ndarray) -> ndarray: ...
