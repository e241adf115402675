"""Operators and gradients in the actors of Ray.

It needs Ray: ``pip install ray``. Run it with::

    python examples/cluster/ray_actors.py

Each actor holds some rows of a table. The program sends the weights, and gets losses and
gradients back. Arrays that Ray hands over are read-only, which operators and transforms
accept. The operator is one of this script: `cloudpickle`, which Ray uses, sends it whole,
with its rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import customop as co

try:
    import ray
except ImportError as error:
    raise SystemExit(f"{error}\n  do: pip install ray") from None

Floats = NDArray[np.floating[Any]]


@co.custom_op("cluster::softplus", mutates_args=(), tags=co.Tag.pointwise)
def softplus(x: Floats) -> Floats:
    """Return log(1 + exp(x))."""
    return np.logaddexp(x, x.dtype.type(0.0))


softplus.register_fake(lambda x: co.fake_like(x))
softplus.register_autograd(
    lambda ctx, g: g / (1.0 + np.exp(-ctx.saved_arrays[0])),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def loss(weights: Floats, rows: Floats, signs: Floats) -> Any:
    """Return the logistic loss of some rows."""
    return np.sum(softplus(-signs * (rows @ weights)))


class Part:
    """Some rows of the table, in a process of its own."""

    def __init__(self, rows: Floats, signs: Floats) -> None:
        self.rows, self.signs = rows, signs

    def slope(self, weights: Floats) -> Any:
        """Return the loss of these rows and its gradient."""
        return co.value_and_grad(loss)(weights, self.rows, self.signs)


def main() -> None:
    """Fit weights to a table that two actors hold."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3))
    signs = np.sign(rows @ [1.0, -2.0, 0.5])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        actor = ray.remote(Part)
        halves = zip(np.split(rows, 2), np.split(signs, 2), strict=True)
        parts = [actor.remote(*half) for half in halves]
        weights = np.zeros(3)
        for _ in range(20):
            found = ray.get([part.slope.remote(weights) for part in parts])
            weights -= 0.01 * sum(slope for _, slope in found)
        values = co.value_and_grad(loss)(weights, rows, signs)
        found = ray.get([part.slope.remote(weights) for part in parts])
        np.testing.assert_allclose(sum(value for value, _ in found), values[0])
        np.testing.assert_allclose(sum(slope for _, slope in found), values[1])
    finally:
        ray.shutdown()
    direction = weights / np.linalg.norm(weights)
    print(f"loss: {values[0]:.1f}, direction: {direction.round(2)}")


if __name__ == "__main__":
    main()
