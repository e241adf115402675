"""NumPy's functions as operators, in the namespace ``np``."""

from customop.numpy import (
    arrange,
    create,
    elementwise,
    index,
    join,
    linalg,
    reduce,
    shape,
)

__all__ = [
    "arrange",
    "create",
    "elementwise",
    "index",
    "join",
    "linalg",
    "reduce",
    "shape",
]
