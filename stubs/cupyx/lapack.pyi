"""Types of cupyx.lapack."""

# ---- written by stubs/generate.py ----

from cupy import ndarray

def gels(a: ndarray, b: ndarray) -> ndarray: ...
def gesv(a: ndarray, b: ndarray) -> None: ...
def posv(a: ndarray, b: ndarray) -> ndarray: ...
def potrs(L: ndarray, b: ndarray, lower: bool) -> ndarray: ...  # CuPy 14
