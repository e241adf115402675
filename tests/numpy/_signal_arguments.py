"""Arguments of the functions of signals and polynomials, for test_arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_X = np.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]])

EXAMPLES: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "apply_along_axis": lambda x: (np.cumsum, 0, x),
    "apply_over_axes": lambda x: (np.sum, x, (0, 1)),
    "bincount": lambda x: (np.array([0, 2, 1]), x[0]),
    "choose": lambda x: (np.array([0, 1, 1]), [x[0], _X[1]]),
    "convolve": lambda x: (x[0], _X[1]),
    "correlate": lambda x: (x[0], _X[1]),
    "cross": lambda x: (x, _X),
    "digitize": lambda x: (x, np.array([1.0, 2.0, 4.0])),
    "histogram2d": lambda x: (x[0], x[1]),
    "interp": lambda x: (x, _X[0], _X[1]),
    "logn": lambda x: (2, x),
    "piecewise": lambda x: (x, [_X > 3], [2.0, 1.0]),
    "polyadd": lambda x: (x[0], _X[1]),
    "polydiv": lambda x: (x[0], _X[1, :2]),
    "polyfit": lambda x: (x[0], x[1], 1),
    "polymul": lambda x: (x[0], _X[1]),
    "polygrid2d": lambda x: (x[0], x[1], _X),
    "polyval2d": lambda x: (x[0], x[1], _X),
    "polyvalnd": lambda x: ([x[0], x[1]], _X),
    "polysub": lambda x: (x[0], _X[1]),
    "polyval": lambda x: (x[0], _X),
    "poly": lambda x: (x[0],),
    "polyder": lambda x: (x[0],),
    "polyint": lambda x: (x[0],),
    "roots": lambda x: (x[0] + 1j,),
    "vander": lambda x: (x[0],),
}
VALUES: dict[str, tuple[Any, ...]] = {
    "N": (0, 2, 5),
    "bins": (3, 0, 2.5, [1.0, 2.0, 6.0], [3.0, 2.0], "auto", "other", (2, 3)),
    "cov": (True, "unscaled"),
    "density": (True, False),
    "full": (True, False),
    "increasing": (True, False),
    "append": (1.0, _X[:, :1], _X[:1]),
    "axisa": (0, -1),
    "axisb": (0, -1),
    "axisc": (0, -1, 2),
    "deg": (True, False),
    "discont": (0.1, 5.0),
    "k": (1, -1, [1.0, 2.0]),
    "left": (7.0, 3, _X[0, 0], 1j),
    "m": (0, 2, -1),
    "minlength": (5, 2, -1),
    "range": ((1.0, 4.0), (4.0, 1.0), (0, np.inf), ((1, 2), (1, 5)), [None, (0, 9)]),
    "rcond": (1e-3,),
    "right": (7.0, 3, True, False),
    "w": (_X[0], 1.0),
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
