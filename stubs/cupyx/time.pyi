"""Types of cupyx.time."""

# ---- written by stubs/generate.py ----

from collections.abc import Callable
from cupy import _Int, _Operand
from typing import Any

def repeat(
    func: Callable[..., Any],
    args: Any = (),
    kwargs: Any = ...,
    n_repeat: _Int = 10000,
    *,
    name: str | None = None,
    n_warmup: _Int = 10,
    max_duration: _Operand = ...,
    devices: Any = None,
) -> Any: ...
