"""Logistic regression of 1e6 x 50 in dask: our gradient beside one written by hand.

Run it with ``python -m tests.benchmarks.dask_logistic``; it needs the extra 'dask'. Both
compute the loss and its gradient in one call of ``dask.compute``. `--cluster` runs them on
two worker processes, otherwise they run in this one, where CPU time is measured.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np

import customop as co
import customop.interop.dask

ROWS, COLUMNS, CHUNK = 1_000_000, 50, 50_000


@co.custom_op("daskbenchmark::softplus", mutates_args=(), tags=co.Tag.pointwise)
def softplus(x: co.Array) -> co.Array:
    """log(1 + exp(x))."""
    return np.logaddexp(0.0, x)


softplus.register_autograd(co.partials({"x": lambda g, x: g / (1.0 + np.exp(-x))}))


def loss(w: Any, x: Any, y: Any) -> Any:
    """Mean logistic loss, in NumPy code with an operator."""
    z = x @ w
    return np.mean(softplus(z) - y * z)


def by_hand(w: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The loss and its gradient, as one writes them in dask."""
    z = x @ w
    p = 1.0 / (1.0 + da.exp(-z))
    return da.mean(da.logaddexp(0.0, z) - y * z), x.T @ ((p - y) / x.shape[0])


def plain_loss(w: Any, x: Any, y: Any) -> Any:
    """The same in NumPy's functions alone."""
    z = x @ w
    return np.mean(np.logaddexp(0.0, z) - y * z)


# The loss and its gradient.
OURS = {
    "ours": co.value_and_grad(plain_loss),
    "with an operator": co.value_and_grad(loss),
}


def seconds(fn: Callable[..., Any], *args: Any, clock: Callable[[], float]) -> float:
    """Time to build and to compute."""
    start = clock()
    dask.compute(*fn(*args))
    return clock() - start


def compare(rounds: int, scheduler: Any, clock: Callable[[], float]) -> None:
    """Print the medians of both, and of their ratios in each round."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((ROWS, COLUMNS))
    w, flags = rng.standard_normal(COLUMNS), (values[:, 0] > 0).astype(float)
    x = da.from_array(values, chunks=(CHUNK, -1))
    y = da.from_array(flags, chunks=CHUNK)
    if scheduler is None:
        x, y = x.persist(), y.persist()
    with dask.config.set(scheduler=scheduler):
        for name, ours in OURS.items():
            both = [dask.compute(*fn(w, x, y)) for fn in (ours, by_hand)]
            for found, wanted in zip(*both, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
            pairs = [
                [seconds(fn, w, x, y, clock=clock) for fn in (ours, by_hand)]
                for _ in range(rounds)
            ]
            first, second = zip(*pairs, strict=True)
            ratio = statistics.median(a / b for a, b in pairs)
            mine, other = statistics.median(first), statistics.median(second)
            sys.stdout.write(
                f"{name} {mine:.3f} s  by hand {other:.3f} s  {ratio:.2f} (1.1)\n"
            )


def main() -> None:
    """Compare in this process, or on a cluster."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cluster", action="store_true")
    chosen = parser.parse_args()
    if not chosen.cluster:
        compare(chosen.rounds, "sync", time.process_time)
        return
    from distributed import Client, LocalCluster  # noqa: PLC0415  # only for a cluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        compare(chosen.rounds, None, time.perf_counter)


if __name__ == "__main__":
    main()
