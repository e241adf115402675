"""Types of cupyx.linalg.sparse."""

# ---- written by stubs/generate.py ----

from cupy import ndarray
from typing import Any

def lschol(A: Any, b: ndarray) -> ndarray: ...
