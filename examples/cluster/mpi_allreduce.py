"""Sums over the processes of MPI as an operator, with a gradient.

It needs an MPI: ``pip install mpi4py mpich``, or the one of your cluster. Run it with::

    mpirun -n 2 python examples/cluster/mpi_allreduce.py

Each process (a rank, in MPI's words) has some rows of a table. The loss compares each row
with the mean over the rows of all ranks, so a gradient must cross from rank to rank: the
formula of `allreduce` says how. All ranks call the same operators in the same order, as
everywhere in MPI.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import customop as co

try:
    from mpi4py import MPI
except ImportError as error:
    raise SystemExit(f"{error}\n  do: pip install mpi4py mpich") from None

Floats = NDArray[np.floating[Any]]
RANKS = MPI.COMM_WORLD


# ---- the operator ----


@co.custom_op("mpi::allreduce", mutates_args=())
def allreduce(x: Floats) -> Floats:
    """Return the sum of the arrays of all ranks, on each rank."""
    out = np.empty(x.shape, x.dtype)
    RANKS.Allreduce(np.array(x, order="C", copy=None), out)
    return out


@allreduce.register_fake
def _(x: co.FakeArray) -> co.FakeArray:
    return co.FakeArray(x.shape, x.dtype)


# The loss of a program is the sum of what the ranks compute. What a rank puts in reaches
# the results of all ranks, so its gradient is the sum of their gradients.
@allreduce.register_autograd
def _(ctx: Any, g: Floats) -> Floats:
    return allreduce(g)


@allreduce.register_vmap
def _(info: Any, in_dims: Any, x: Floats) -> tuple[Floats, Any]:
    return allreduce(x), in_dims[0]


# ---- a program that uses it ----


def spread(weights: Floats, rows: Floats, count: int) -> Any:
    """Return the squared distances of some rows from the mean over all ranks."""
    values = rows @ weights
    mean = allreduce(np.sum(values)) / count
    return np.sum((values - mean) ** 2)


def main() -> None:
    """Differentiate the spread over all ranks, and compare it with that of one process."""
    table = np.random.default_rng(0).normal(size=(12, 3))
    own = np.array_split(table, RANKS.size)[RANKS.rank]
    weights = np.array([1.0, -2.0, 0.5])

    value, slope = co.value_and_grad(spread)(weights, own, len(table))
    value, slope = allreduce(np.asarray(value)), allreduce(slope)

    values = table @ weights
    centered = values - values.mean()
    np.testing.assert_allclose(value, np.sum(centered**2))
    np.testing.assert_allclose(slope, 2.0 * centered @ table)

    rows = np.stack([own, own + 1.0])  # a batch of tables; a constant changes no spread
    batch = allreduce(co.vmap(spread, in_dims=(None, 0, None))(weights, rows, 12))
    np.testing.assert_allclose(batch, value)
    assert co.eval_shape(allreduce, co.FakeArray((2, 3), "float32")).shape == (2, 3)
    if RANKS.rank == 0:
        print(f"ranks: {RANKS.size}, spread: {value:.3f}, slope: {slope.round(3)}")


if __name__ == "__main__":
    main()
