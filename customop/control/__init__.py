"""Control flow as functions: `cond`, `while_loop`, `scan`, `map` and `fori_loop`.

On plain arrays they are the Python loop or branch, also under grad and jvp. Under vmap,
on fake arrays and in captured graphs they do what Python cannot. It may import transforms
and what is below. Start reading in ``flow.py``.
"""

from customop.control import flow_batches, flow_derivatives
from customop.control.flow import (
    cond,
    fori_loop,
    map,  # noqa: A004  # JAX's name
    scan,
    while_loop,
)

__all__ = [
    "cond",
    "flow_batches",
    "flow_derivatives",
    "fori_loop",
    "map",
    "scan",
    "while_loop",
]
