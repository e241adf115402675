"""The cost of checking an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import peers
import pytest
from table import at_most, ratio
from timing import Statement

import customop as co
from customop.testing import opcheck


def _define() -> Any:
    """Scale by a number, with fake, autograd and vmap rules."""

    @co.custom_op("bench::checked", mutates_args=())
    def scale(x: np.ndarray, factor: float) -> np.ndarray:
        return x * factor

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor = inputs[1]

    scale.register_fake(
        lambda x, factor: co.fake_like(x, dtype=np.result_type(x.dtype, factor))
    )
    scale.register_autograd(lambda ctx, g: (g * ctx.factor, None), setup_context=keep)
    scale.register_vmap(lambda info, in_dims, x, factor: (scale(x, factor), in_dims[0]))
    return scale


# The checks that torch's opcheck runs by default have these names.
_OF_TORCH = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_dynamic",
)


@pytest.mark.parametrize("names", ["ALL", _OF_TORCH], ids=["all", "of torch"])
def test_opcheck(compare: Callable[..., None], names: Any) -> None:
    """One sample of an operator with fake, autograd and vmap rules."""
    values = {"opcheck": opcheck, "op": _define(), "x": np.ones(3), "names": names}
    ours = Statement("opcheck(op, (x, 2.0), test_utils=names)", values)
    statements = {"ours": ours, **peers.checked(np.ones(3))}
    title = f"opcheck, one sample, {'all' if names == 'ALL' else len(names)} checks"
    compare(title, statements, at_most(5e-3), ratio("torch", 0.1), rounds=15)
