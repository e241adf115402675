"""The cost of checking an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import peers
from table import at_most
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


def test_opcheck(compare: Callable[..., None]) -> None:
    """All checks on one sample, of an operator with fake, autograd and vmap rules."""
    names = {"opcheck": opcheck, "op": _define(), "x": np.ones(3)}
    ours = Statement("opcheck(op, (x, 2.0))", names)
    statements = {"ours": ours, **peers.checked(np.ones(3))}
    compare("opcheck, one sample", statements, at_most(5e-3), rounds=15)
