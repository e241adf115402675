"""NumPy's functions as operators, in the namespace ``np``.

Made of the names that `customop` exports, and of NumPy. Start with `elementwise`, the
simplest table; `rules` and `fakes` have what the tables share.
"""

from customop.numpy import (
    arrange,
    choose,
    create,
    einsum,
    elementwise,
    index,
    join,
    keys,
    linalg,
    norms,
    pad,
    reduce,
    running,
    shape,
    sort,
    statistics,
)

__all__ = [
    "arrange",
    "choose",
    "create",
    "einsum",
    "elementwise",
    "index",
    "join",
    "keys",
    "linalg",
    "norms",
    "pad",
    "reduce",
    "running",
    "shape",
    "sort",
    "statistics",
]
