"""Arguments of the functions of np.linalg and np.einsum, for test_arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

X = np.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]])


def _square(x: Any) -> tuple[Any, ...]:
    """A symmetric matrix with different eigenvalues, in either triangle."""
    return (np.matmul(x[:, :2], 0.0 * X[:, :2]) + np.array([[4.0, 1.0], [1.0, 3.0]]),)


EXAMPLES: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "cholesky": _square,
    "cond": _square,
    "det": _square,
    "eig": _square,
    "eigh": _square,
    "eigvals": _square,
    "eigvalsh": _square,
    "einsum_path": lambda x: ("ij,jk", x, X.T),
    "inv": _square,
    "linalg.cross": lambda x: (x, X),
    "linalg.matmul": lambda x: (x, X.T),
    "linalg.outer": lambda x: (x[0], X[0]),
    "linalg.tensordot": lambda x: (x, X),
    "linalg.vecdot": lambda x: (x, X),
    "lstsq": lambda x: (x.T, X[0, :, None]),
    "matrix_power": lambda x: (x[:, :2], 2),
    "matrix_rank": _square,
    "matvec": lambda x: (x, X[0]),
    "multi_dot": lambda x: ([x, X.T, X],),
    "pinv": _square,
    "slogdet": _square,
    "solve": lambda x: (x[:, :2], X[:, 0]),
    "svd": _square,
    "vecmat": lambda x: (x[:, 0], X),
    "tensorinv": lambda x: (x[None, :, :2],),
    "tensorsolve": lambda x: (x[:, :2], X[:, 0]),
}

VALUES: dict[str, tuple[Any, ...]] = {
    "UPLO": ("U", "l", "X"),
    "einsum_call": (False, True),
    "compute_uv": (False,),
    "full_matrices": (False,),
    "hermitian": (True,),
    "ind": (1, 0),
    "p": (1, 2, -2, "fro", np.inf, "x"),
    "rcond": (1e-10, 1e-3),
    "rtol": (1e-10, 0.5),
    "upper": (True,),
}

# Functions that may add or multiply in another order than NumPy.
ROUNDED = {
    "cond",
    "lstsq",
    "pinv",
    "multi_dot",
    "svd",
    "vecdot",
}
