"""Let patterns grow: a simulation in plain NumPy, compiled.

It needs more than NumPy: ``pip install -e '.[examples]'``. Then run it with::

    python examples/patterns.py

Two substances spread and react, as on the skin of a fish: the first is fed, the second
eats it and dies. The simulation is written as one writes it in NumPy. `co.compile` captures
a step once for each size of the grid, and runs its arithmetic over blocks that stay in the
cache: the numbers are the same to the last bit. With ``jax`` installed, the same function
runs by it too, for comparison.

It saves a picture in the temporary directory, or where ``--picture`` says: the pattern, and
the time of a step by the size of the grid.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import customop as co

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise SystemExit(f"{error}\n  do: pip install -e '.[examples]'") from None

Floats = NDArray[Any]
Step = Callable[[Floats, Floats], tuple[Floats, Floats]]

# ---- the simulation ----
#
# The substances u and v obey (Gray and Scott, 1984; Pearson, 1993)
#
#     u' = 0.16 lap u - u v^2 + F (1 - u),      v' = 0.08 lap v + u v^2 - (F + k) v
#
# with the rate F at which u is fed, and k at which v dies. The grid wraps around.

FEED, DEATH = 0.037, 0.06


def around(x: Floats) -> Floats:
    """Return the grid with a border of one cell, which comes from the other side."""
    wide = np.concatenate([x[-1:], x, x[:1]], axis=0)
    return np.concatenate([wide[:, -1:], wide, wide[:, :1]], axis=1)


def laplacian(x: Floats) -> Floats:
    """Sum of the four neighbors of each cell, less four times the cell."""
    w = around(x)
    return w[:-2, 1:-1] + w[2:, 1:-1] + w[1:-1, :-2] + w[1:-1, 2:] - 4.0 * x


def step(u: Floats, v: Floats) -> tuple[Floats, Floats]:
    """Return both substances one unit of time later."""
    eaten = u * v * v
    return (
        u + 0.16 * laplacian(u) - eaten + FEED * (1.0 - u),
        v + 0.08 * laplacian(v) + eaten - (FEED + DEATH) * v,
    )


def start(size: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Return a grid full of the first substance, with spots of the second."""
    rng = np.random.default_rng(seed)
    u, v = np.ones((size, size)), np.zeros((size, size))
    for i, j in rng.integers(0, size - 6, (max(size // 8, 1), 2)):
        u[i : i + 6, j : j + 6], v[i : i + 6, j : j + 6] = 0.5, 0.25
    return u, v


def run(one: Step, size: int, steps: int) -> tuple[Floats, Floats]:
    """Return the state after some steps."""
    u, v = start(size)
    for _ in range(steps):
        u, v = one(u, v)
    return u, v


# ---- times ----


def ways() -> dict[str, Step]:
    """Return the step as it is, compiled, and compiled by JAX where it is installed."""
    found: dict[str, Step] = {"NumPy": step, "compiled": co.compile(step)}
    if importlib.util.find_spec("jax") is not None:
        found["compiled by jax"] = co.compile(step, backend="jax")
    return found


def seconds(one: Step, size: int, repeats: int) -> float:
    """Return the median time of a step."""
    state = start(size)
    one(*one(*state))  # compiles
    found = []
    for _ in range(repeats):
        before = time.perf_counter()
        state = one(*state)
        found.append(time.perf_counter() - before)
    return statistics.median(found)


# ---- the program ----


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Grow a pattern, and time it.")
    parser.add_argument("--steps", type=int, default=2500, help="of the pattern (2500)")
    parser.add_argument("--largest", type=int, default=1536, help="grid to time (1536)")
    default = Path(tempfile.gettempdir()) / "patterns.png"
    parser.add_argument("--picture", type=Path, default=default, help=f"({default})")
    return parser.parse_args(arguments)


def save_picture(
    path: Path, pattern: Floats, sizes: Sequence[int], times: dict[str, list[float]]
) -> None:
    """Draw the pattern, and time against size."""
    # A Figure without pyplot is drawn by Agg, which needs no screen.
    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.imshow(pattern, cmap="magma")
    left.set(title="the second substance", xticks=[], yticks=[])
    for name, values in times.items():
        cells = [n * n for n in sizes]
        each = [1e9 * t / n for t, n in zip(values, cells, strict=True)]
        right.loglog(cells, each, "o-", label=name)
    right.set(xlabel="cells", ylabel="ns for a cell", title="time of a step")
    right.legend(frameon=False)
    right.grid(which="major", alpha=0.3)
    figure.savefig(path, dpi=80)


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Grow, time and draw; returns the times."""
    chosen = options(arguments)
    fast = co.compile(step)
    for plain, compiled in zip(run(step, 64, 20), run(fast, 64, 20), strict=True):
        assert np.array_equal(plain, compiled)  # every bit
    _, pattern = run(fast, 160, chosen.steps)

    sizes = [n for n in (48, 96, 192, 384, 768, 1536) if n <= chosen.largest]
    times = {
        name: [seconds(one, n, 30 if n < 500 else 7) for n in sizes]
        for name, one in ways().items()
    }
    for name, values in times.items():
        cells = ", ".join([f"{1e3 * t:.3g}" for t in values])
        print(f"{name}: {cells} ms for grids of {', '.join(map(str, sizes))}")
    print(fast.explain())
    save_picture(chosen.picture, pattern, sizes, times)
    print(f"picture: {chosen.picture}")
    return times


if __name__ == "__main__":
    main()
