"""Types of cupyx.jit.cub."""

# ---- written by stubs/generate.py ----

from typing import Any

BlockReduce: Any
Max: Any
Min: Any
Sum: Any
WarpReduce: Any
