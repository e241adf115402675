"""Examples of arguments of the functions that make, sort and edit arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

X = np.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]])

# Arguments of an example, where they are not just the array.
EXAMPLES: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "arange": lambda x: (5,),
    "block": lambda x: ([x, X],),
    "can_cast": lambda x: (x, np.float64),
    "delete": lambda x: (x, 1),
    "diag_indices_from": lambda x: (x[:, :2],),
    "extract": lambda x: (X > 1, x),
    "fromfunction": lambda x: (np.add, (2, 3)),
    "identity": lambda x: (3,),
    "insert": lambda x: (x, 1, 7.0),
    "ix_": lambda x: (x[0].astype(int), [0, 1]),
    "lexsort": lambda x: ((x, X),),
    "packbits": lambda x: (x > 1,),
    "ravel_multi_index": lambda x: ((x[0].astype(int), [1, 0, 1]), (3, 2)),
    "resize": lambda x: (x, (3, 3)),
    "searchsorted": lambda x: (x[0], X),
    "tri": lambda x: (3,),
    "unpackbits": lambda x: (x.astype(np.uint8),),
    "unravel_index": lambda x: (x.astype(int), (2, 9)),
}
EXAMPLES |= {name: (lambda x: (x, 1)) for name in ("partition", "argpartition")}
EXAMPLES |= {
    name: (lambda x: (x, 9.0)) for name in ("linspace", "logspace", "geomspace")
}
EXAMPLES |= {
    name: (lambda x: (x, X))
    for name in (
        "allclose",
        "array_equal",
        "array_equiv",
        "intersect1d",
        "isclose",
        "isin",
        "setdiff1d",
        "setxor1d",
        "union1d",
    )
}

# Examples of the arguments that have a default, by their names.
VALUES: dict[str, tuple[Any, ...]] = {
    "assume_unique": (True,),
    "atol": (2.0,),
    "base": (2.0, X[0]),
    "bitorder": ("little",),
    "count": (3, -2),
    "endpoint": (False,),
    "equal_nan": (True,),
    "invert": (True,),
    "ndmax": (2,),
    "ndmin": (3,),
    "num": (3,),
    "requirements": (["C"], ["F"], ["O"]),
    "retstep": (True,),
    "return_counts": (True,),
    "return_index": (True,),
    "return_indices": (True,),
    "return_inverse": (True,),
    "rtol": (0.1,),
    "side": ("right",),
    "sorted": (False,),
    "sorter": (np.array([0, 1, 2]),),
    "step": (2,),
    "stop": (9,),
    "trim": ("f", "b"),
    "writeable": (False, True),
}

# Functions that need values to find the shape of their result.
UNEVEN = (
    np.extract,
    np.intersect1d,
    np.setdiff1d,
    np.setxor1d,
    np.trim_zeros,
    np.unique,
    np.unique_all,
    np.unique_counts,
    np.unique_inverse,
    np.unique_values,
    np.union1d,
)
