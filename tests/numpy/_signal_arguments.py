"""Arguments of the functions of signals and polynomials, for test_arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_X = np.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]])

EXAMPLES: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "convolve": lambda x: (x[0], _X[1]),
    "correlate": lambda x: (x[0], _X[1]),
    "cross": lambda x: (x, _X),
}
VALUES: dict[str, tuple[Any, ...]] = {
    "append": (1.0, _X[:, :1], _X[:1]),
    "axisa": (0, -1),
    "axisb": (0, -1),
    "axisc": (0, -1, 2),
    "deg": (True, False),
    "discont": (0.1, 5.0),
    "dx": (0.5, _X[:, 1:]),
    "edge_order": (2, 3),
    "n": (0, 1, 2, 5, -1),
    "nan": (1.5, 1, 1j, _X),
    "neginf": (1.5, _X),
    "norm": ("ortho", "forward", "other"),
    "period": (2.0, 3, np.float32(1.5)),
    "posinf": (1.5, _X),
    "prepend": (1.0, _X[:, :1], _X[:1]),
    "s": ((4, 2), (2, -1), (3,)),
    "to_begin": (1.0, _X, 1j),
    "to_end": (1.0, _X, 1j),
    "tol": (0.5, 10),
    "x": (_X, _X[0]),
}
