"""Types of cupyx.linalg."""

# ---- written by stubs/generate.py ----

from cupy import ndarray
from typing import Any
from cupyx.linalg import sparse as sparse

def cho_solve(
    c_and_lower: Any, b: ndarray, overwrite_b: bool = False, check_finite: bool = True
) -> ndarray: ...  # CuPy 14
def invh(a: ndarray) -> ndarray: ...
