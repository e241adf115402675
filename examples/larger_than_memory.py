"""Fit more data than fits: a model on a cluster whose workers cannot hold it.

It needs more than NumPy: ``pip install -e '.[dask,draw]'``. Then run it with::

    python examples/larger_than_memory.py

Two worker processes of dask get 350 MB each. The table has 800 MB: 2,000,000 rows that are
made, used and forgotten chunk by chunk in each pass. The loss is plain NumPy code with an
operator of our own. `co.value_and_grad` of it is a graph of tasks: nothing is computed until
``dask.compute``, and no worker ever holds more than a few chunks.

The program fits a logistic regression by gradients with momentum. It saves a picture of what
the workers did in the temporary directory, or where ``--picture`` says.
"""

from __future__ import annotations

import argparse
import logging
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import customop as co
import customop.interop.dask  # registers dask's arrays

try:
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster, get_task_stream
    from matplotlib.figure import Figure
except ImportError as error:
    raise SystemExit(f"{error}\n  do: pip install -e '.[dask,draw]'") from None

WORKERS, COLUMNS, ROWS_OF_CHUNK = 2, 50, 25_000
TRUE = np.sin(np.arange(COLUMNS))
MB = 1e6


# ---- an operator ----
#
# It runs on each chunk, since it is pointwise. Other processes cannot import what a script
# defines, so all of it travels with the tasks.


@co.custom_op("larger::softplus", mutates_args=(), tags=co.Tag.pointwise)
def softplus(x: co.Array) -> co.Array:
    """log(1 + exp(x))."""
    return np.logaddexp(0.0, x)


softplus.register_autograd(co.partials({"x": lambda g, x: g / (1.0 + np.exp(-x))}))


# ---- data that is made where it is used ----


def features(block_info: Any = None) -> Any:
    """Return one chunk of the table, shape (rows, COLUMNS), the same each time it is made."""
    place = block_info[None]["chunk-location"][0]
    shape = block_info[None]["chunk-shape"]
    return np.random.default_rng(place).random(shape) * 3.4 - 1.7


def table(rows: int) -> tuple[Any, Any]:
    """Lazy features (rows, COLUMNS), and flags (rows,) that depend on them."""
    x = da.map_blocks(
        features,
        chunks=(da.core.normalize_chunks(ROWS_OF_CHUNK, (rows,))[0], (COLUMNS,)),
        dtype=float,
        meta=np.empty((0, 0)),
    )
    return x, (x @ TRUE > 0.3 * np.sin(5.0 * x[:, 0])).astype(float)


# ---- the model ----


def loss(w: Any, x: Any, y: Any) -> Any:
    """Mean logistic loss."""
    z = x @ w
    return np.mean(softplus(z) - y * z)


def fit(x: Any, y: Any, steps: int) -> tuple[Any, list[float]]:
    """Weights after gradient steps with momentum, and the loss before each."""
    w = speed = np.zeros(COLUMNS)
    losses = []
    for _ in range(steps):
        graph = co.value_and_grad(loss)(w + 0.8 * speed, x, y)
        value, slope = dask.compute(*graph)
        speed = 0.8 * speed - 4.0 * slope
        w = w + speed
        losses.append(float(value))
    return w, losses


def direction_error(w: Any) -> float:
    """Return one minus the cosine between weights and the true ones."""
    cosine = w @ TRUE / np.linalg.norm(w) / np.linalg.norm(TRUE)
    return float(1.0 - cosine)


# ---- what the workers did ----


def peak() -> float:
    """Most memory that a process has had, in MB; runs on the workers."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB


def kind_of(task: Any) -> str:
    """Return the beginning of the key of a task, which names its work."""
    key = task["key"]
    return str(dask.utils.key_split(key))


def save_picture(path: Path, tasks: Sequence[Any]) -> None:
    """Draw each task as a bar in the line of its worker, colored by what it did."""
    figure = Figure(figsize=(10, 2.6), layout="constrained")
    axis = figure.subplots()
    workers = sorted({task["worker"] for task in tasks})
    start = min(part["start"] for task in tasks for part in task["startstops"])
    kinds = sorted({kind_of(task) for task in tasks})
    colors = {kind: f"C{i % 10}" for i, kind in enumerate(kinds)}
    for task in tasks:
        line = workers.index(task["worker"])
        for part in task["startstops"]:
            color = "0.8" if part["action"] == "transfer" else colors[kind_of(task)]
            span = (part["start"] - start, part["stop"] - part["start"])
            axis.broken_barh([span], (line - 0.4, 0.8), color=color)
    axis.set(
        title=f"{len(tasks)} tasks of {len(workers)} workers, colored by what they do",
        xlabel="seconds",
        yticks=range(len(workers)),
        yticklabels=[f"worker {i}" for i in range(len(workers))],
    )
    figure.savefig(path, dpi=80)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line: sizes, and where the picture goes."""
    default = Path(tempfile.gettempdir()) / "larger_than_memory.png"
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--limit", type=int, default=350, help="MB of each worker")
    parser.add_argument(
        "--picture", type=Path, default=default, help="path of the picture"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> float:
    """Fit and draw; returns the most memory of a worker in MB."""
    chosen = options(arguments)
    x, y = table(chosen.rows)
    print(f"data: {x.nbytes / MB:.0f} MB in {x.numblocks[0]} chunks")
    print(f"workers: {WORKERS} of {chosen.limit} MB")
    settings = {"distributed.worker.profile.enabled": False}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            processes=True,
            memory_limit=f"{chosen.limit}MB",
            dashboard_address=":0",
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster) as client,
    ):
        with get_task_stream(client) as stream:
            w, losses = fit(x, y, chosen.steps)
        most = max(client.run(peak).values())
    print(f"loss: {losses[0]:.3f}, then {losses[-1]:.3f}")
    print(f"error of the direction: {direction_error(w):.1e}")
    print(f"most memory of a worker: {most:.0f} MB")
    save_picture(chosen.picture, stream.data)
    print(f"picture: {chosen.picture}")

    assert x.nbytes > WORKERS * chosen.limit * MB
    assert most < chosen.limit
    assert losses[-1] < 0.5 * losses[0]
    return most


if __name__ == "__main__":
    main()
