"""The cost of operators that are exported to torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from table import over, ratio
from timing import Statement

import customop as co

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
bridge: Any = pytest.importorskip("customop.interop.torch")

BY_HAND = "torch.library by hand"


@pytest.fixture(scope="module")
def scales() -> Iterator[tuple[Any, Any]]:
    """Multiply by a number: exported, and written for torch.library around NumPy."""

    @co.custom_op("bench::scaled", mutates_args=())
    def scaled(x: np.ndarray, k: float) -> np.ndarray:
        return x * k

    scaled.register_fake(lambda x, k: co.fake_like(x))

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.k = inputs[1]

    scaled.register_autograd(lambda ctx, g: (g * ctx.k, None), setup_context=keep)

    def body(x: Any, k: float) -> Any:
        return torch.from_numpy(x.numpy(force=True) * k)

    schema = "(Tensor x, float k) -> Tensor"
    made = [
        torch.library.custom_op(f"bench::{name}", body, mutates_args=(), schema=schema)
        for name in ("by_hand", "by_hand_backward")
    ]
    made[0].register_autograd(
        lambda ctx, g: (made[1](g, ctx.k), None), setup_context=keep
    )
    yield bridge.export(scaled), made[0]
    bridge.remove_export(scaled)


@pytest.mark.parametrize("is_tracked", [False, True])
def test_call(
    compare: Callable[..., None], scales: tuple[Any, Any], *, is_tracked: bool
) -> None:
    """A call on a tensor, without and with a gradient to come."""
    ours, by_hand = scales
    x = torch.ones(3, requires_grad=is_tracked)
    statements = {
        "ours": Statement("op(x, 2.0)", {"op": ours, "x": x}),
        BY_HAND: Statement("op(x, 2.0)", {"op": by_hand, "x": x}),
    }
    tracked = ", which requires a gradient" * is_tracked
    what = f"torch operator on 3 elements{tracked}"
    compare(what, statements, ratio(BY_HAND, 1.3))


def test_backward(compare: Callable[..., None], scales: tuple[Any, Any]) -> None:
    """Forward and backward; the backward alone is the difference to forward."""
    ours, by_hand = scales
    x = torch.ones(3, requires_grad=True)
    names = {"x": x, "g": torch.ones(3), "grad": torch.autograd.grad}
    text = "grad(op(x, 2.0), x, g)"
    statements = {
        "ours": Statement(text, {**names, "op": ours}),
        "forward": Statement("op(x, 2.0)", {"x": x, "op": ours}),
        BY_HAND: Statement(text, {**names, "op": by_hand}),
    }
    limits = over("forward", 100e-6), ratio(BY_HAND, None)
    compare("forward and backward of a torch operator", statements, *limits)
