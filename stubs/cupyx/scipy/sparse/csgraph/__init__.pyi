"""Types of cupyx.scipy.sparse.csgraph."""

# ---- written by stubs/generate.py ----

from typing import Any

def connected_components(
    csgraph: Any,
    directed: bool = True,
    connection: str = "weak",
    return_labels: bool = True,
) -> tuple[Any, ...]: ...
