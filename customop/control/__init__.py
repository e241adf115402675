"""Control flow as functions, such as `cond`, `while_loop` and `scan`.

On plain arrays, and under grad and jvp, they run as a Python loop or branch. They also
work where Python loops and branches cannot: under vmap, on fake arrays and in captured
graphs. This folder may import transforms and the rows below. Start reading in
``flow.py``.
"""

from customop.control import flow_batches, flow_derivatives
from customop.control.associative import associative_scan
from customop.control.flow import (
    cond,
    fori_loop,
    map,  # noqa: A004  # JAX's name
    scan,
    while_loop,
)

__all__ = [
    "associative_scan",
    "cond",
    "flow_batches",
    "flow_derivatives",
    "fori_loop",
    "map",
    "scan",
    "while_loop",
]
