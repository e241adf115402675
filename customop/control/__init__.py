"""Control flow as functions: `cond`, `while_loop`, `scan`, `map` and `fori_loop`.

On plain arrays they are the Python loop or branch, also under grad and jvp. Under vmap,
on fake arrays and in captured graphs they do what Python cannot. It may import transforms
and what is below. Start reading in ``functions.py``.
"""

from customop.control import (
    batches,
    forward,
    reverse,
    reverse_loops,
)  # they register rules
from customop.control.functions import (
    cond,
    fori_loop,
    map,  # noqa: A004  # JAX's name
    scan,
    while_loop,
)

__all__ = [
    "batches",
    "cond",
    "fori_loop",
    "forward",
    "map",
    "reverse",
    "reverse_loops",
    "scan",
    "while_loop",
]
