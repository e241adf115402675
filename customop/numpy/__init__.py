"""NumPy's functions as operators, in the namespace ``np``.

Imports only the public names of `customop`, and NumPy. Start with `elementwise`, the
simplest table; `rules` and `fakes` have what the tables share. A new function is an
operator in the file of its theme.
"""

from customop.numpy import (
    arrange,
    choose,
    create,
    einsum,
    elementwise,
    fft,
    index,
    join,
    keys,
    masked,
    norms,
    pad,
    pairs,
    products,
    reduce,
    running,
    selected,
    shape,
    shares,
    sort,
    statistics,
    ufunc_methods,
    write,
    writers,
)

__all__ = [
    "arrange",
    "choose",
    "create",
    "einsum",
    "elementwise",
    "fft",
    "index",
    "join",
    "keys",
    "masked",
    "norms",
    "pad",
    "pairs",
    "products",
    "reduce",
    "running",
    "selected",
    "shape",
    "shares",
    "sort",
    "statistics",
    "ufunc_methods",
    "write",
    "writers",
]
