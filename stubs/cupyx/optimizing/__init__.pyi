"""Types of cupyx.optimizing."""

# ---- written by stubs/generate.py ----

from typing import Any

def optimize(
    *,
    key: str | None = None,
    path: str | None = None,
    readonly: bool = False,
    **config_dict: Any,
) -> Any: ...
