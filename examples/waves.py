"""Look inside a body: the speed of sound everywhere, from waves heard around it.

It needs more than NumPy: ``pip install -e '.[examples]'``. Then run it with::

    python examples/waves.py

The simulation is written as one writes it in NumPy: fields that are updated in place,
slice by slice. `co.value_and_grad` differentiates it as it is. There are no custom
operators here.

Speakers around a body play, and microphones listen; both are simulated. From what they
hear the program finds the speed of sound at each place: it goes down the gradient of the
misfit. It saves a picture in the temporary directory, or where ``--picture`` says.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import customop as co

try:
    from matplotlib.figure import Figure
    from scipy.optimize import minimize
except ImportError as error:
    raise SystemExit(f"{error}\n  do: pip install -e '.[examples]'") from None

Floats = NDArray[Any]

# ---- waves ----
#
# The pressure p obeys p'' = c^2 (p_xx + p_yy). A grid has one value of p per cell of 2 mm.
# In a step of 0.6 us water's 1500 m/s make 0.45 cells, which is the number that `speed`
# holds for each cell. A step takes the pressure of two moments and writes the next moment
# into the older one.

SIZE, STEPS, WATER = 44, 130, 0.45
METERS_PER_SECOND = 1500.0 / WATER
BORDER = 6  # cells in which waves fade, so that the edges do not reflect them


def fading() -> Floats:
    """Return how much of a wave is left after a step in each cell: 1 but for the border."""
    depth = np.minimum(np.arange(SIZE), np.arange(SIZE)[::-1])
    line = 1.0 - 0.15 * np.clip(1.0 - depth / BORDER, 0.0, 1.0) ** 2
    return np.asarray(np.minimum(line[:, None], line))


def devices() -> tuple[Floats, Floats]:
    """Cells of the speakers (8, 2) and of the microphones (48, 2), on a circle."""
    angles = np.linspace(0.0, 2.0 * np.pi, 48, endpoint=False)
    circle = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    cells = np.rint(SIZE / 2 - 0.5 + (SIZE / 2 - 7.5) * circle).astype(int)
    return cells[::6], cells


def pulse() -> Floats:
    """Return what a speaker plays: one short wave (Ricker's)."""
    phase = (0.055 * np.pi * (np.arange(STEPS) - 22.0)) ** 2
    return np.asarray((1.0 - 2.0 * phase) * np.exp(-phase))


FADING, PULSE = fading(), pulse()
SPEAKERS, MICROPHONES = devices()


def listen(speed: Any, speaker: Any) -> Any:
    """Return what microphones hear of a speaker, (steps, microphones)."""
    # `like` makes buffers that a transform can follow: under vmap, one for each speaker.
    before, now = [np.zeros((SIZE, SIZE), like=speaker) for _ in range(2)]
    heard = np.empty((STEPS, len(MICROPHONES)), like=speaker)
    inner = speed[1:-1, 1:-1] ** 2
    for step in range(STEPS):
        after = before
        after *= -FADING
        after += 2.0 * now
        after[1:-1, 1:-1] += inner * (
            now[2:, 1:-1]
            + now[:-2, 1:-1]
            + now[1:-1, 2:]
            + now[1:-1, :-2]
            - 4.0 * now[1:-1, 1:-1]
        )
        np.add.at(after, tuple(speaker), PULSE[step])
        after *= FADING
        heard[step] = after[tuple(MICROPHONES.T)]
        before, now = now, after
    return heard


# One simulation becomes one for each speaker: the fields get an axis in front.
listen_to_all = co.vmap(listen, in_dims=(None, 0))


def misfit(speed: Any, heard: Any) -> Any:
    """Return how far the sounds of a body with such speeds are from those that were heard."""
    return 0.5 * np.sum((listen_to_all(speed, SPEAKERS) - heard) ** 2)


# ---- what is inside? ----


def phantom() -> Floats:
    """Return the body: soft tissue, with something hard and something softer in it."""
    rows, columns = np.mgrid[:SIZE, :SIZE] - (SIZE / 2 - 0.5)
    speed = np.full((SIZE, SIZE), WATER)
    for row, column, height, width, change in (
        (0.0, 0.0, 12.0, 11.0, 0.02),
        (-3.0, -4.0, 5.0, 3.5, 0.08),
        (4.0, 4.5, 3.5, 4.5, -0.06),
    ):
        far = ((rows - row) / height) ** 2 + ((columns - column) / width) ** 2
        speed += WATER * change / (1.0 + np.exp(12.0 * (np.sqrt(far) - 1.0)))
    return speed


def find(heard: Floats, rounds: int) -> tuple[Floats, list[float]]:
    """Go down the gradient from water everywhere; returns speeds, and misfits."""
    gradient = co.value_and_grad(lambda flat: misfit(flat.reshape(SIZE, SIZE), heard))
    start, misfits = np.full(SIZE * SIZE, WATER), []

    def value_and_gradient(flat: Floats) -> tuple[float, Floats]:
        value, slope = gradient(flat)
        misfits.append(float(value))
        return float(value), slope

    found = minimize(
        value_and_gradient,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.8 * WATER, 1.2 * WATER)] * start.size,
        options={"maxiter": rounds},
    )
    return found.x.reshape(SIZE, SIZE), misfits


# ---- the program ----


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Find what is inside, by sound.")
    picture = Path(tempfile.gettempdir(), "waves.png")
    parser.add_argument("--rounds", type=int, default=10, help="steps of the descent")
    parser.add_argument("--picture", type=Path, default=picture, help="the picture")
    return parser.parse_args(arguments)


def check_gradient(speed: Floats, heard: Floats) -> None:
    """Check the gradient against the difference of two simulations."""
    way = np.random.default_rng(0).normal(size=speed.shape)
    ahead, behind = (misfit(speed + h * way, heard) for h in (1e-6, -1e-6))
    slope = np.sum(co.grad(misfit)(speed, heard) * way)
    assert np.allclose(slope, (ahead - behind) / 2e-6, rtol=1e-5)


def error_inside(found: Floats, speed: Floats) -> float:
    """Return the root mean square error inside the circle of devices, in m/s."""
    rows, columns = np.mgrid[:SIZE, :SIZE] - (SIZE / 2 - 0.5)
    inside = np.hypot(rows, columns) < SIZE / 2 - 8.0
    wrong = METERS_PER_SECOND * (found - speed)[inside]
    return float(np.sqrt(np.mean(wrong**2)))


def save_picture(path: Path, heard: Floats, speed: Floats, found: Floats) -> None:
    """Draw what was heard of one speaker, the body, and what was found."""
    # A Figure without pyplot is drawn by Agg, which needs no screen.
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    left, *others = figure.subplots(1, 3)
    left.imshow(heard.T, aspect="auto", cmap="RdBu", vmin=-0.3, vmax=0.3)
    left.set(title="heard of one speaker", xlabel="time step", ylabel="microphone")
    scale = {"vmin": 1400.0, "vmax": 1650.0, "cmap": "viridis"}
    for axis, image, title in zip(
        others, (speed, found), ("speed of sound", "found by gradients"), strict=True
    ):
        drawn = axis.imshow(METERS_PER_SECOND * image, **scale)
        axis.plot(*MICROPHONES.T[::-1], ".", color="white", markersize=3)
        axis.set(title=title, xticks=[], yticks=[])
        figure.colorbar(drawn, ax=axis, label="m/s", shrink=0.8)
    figure.savefig(path, dpi=80)


def main(arguments: Sequence[str] | None = None) -> float:
    """Listen, look inside, and draw; returns the error of the speeds in m/s."""
    chosen = options(arguments)
    speed, water = phantom(), np.full((SIZE, SIZE), WATER)
    heard = np.asarray(listen_to_all(speed, SPEAKERS))
    check_gradient(water, heard)

    found, misfits = find(heard, chosen.rounds)
    before, after = error_inside(water, speed), error_inside(found, speed)
    print(f"misfit: {misfits[0]:.2f}, then {misfits[-1]:.2f}")
    print(f"error of the speeds: {before:.0f} m/s, then {after:.0f} m/s")
    save_picture(chosen.picture, heard[0], speed, found)
    print(f"picture: {chosen.picture}")

    assert misfits[-1] < 0.05 * misfits[0]
    assert after < before / 3.0
    return after


if __name__ == "__main__":
    main()
