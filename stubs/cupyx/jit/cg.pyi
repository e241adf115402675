"""Types of cupyx.jit.cg."""

# ---- written by stubs/generate.py ----

from typing import Any

memcpy_async: Any
sync: Any
this_grid: Any
this_thread_block: Any
wait: Any
wait_prior: Any
