"""Draw a map of mountains: a Gaussian process on 200 heights, fitted by its gradient.

It needs more than NumPy: ``pip install -e '.[examples]'``. Then run it with::

    python examples/terrain.py

The heights are those around the Jacksboro fault in Tennessee, a sample of elevations that
comes with matplotlib. Everything below is plain NumPy: ``co.value_and_grad`` and
``co.hessian`` differentiate through ``np.linalg.cholesky``, ``solve`` and ``slogdet``.

The program learns from 200 places how heights vary, and draws the map in between, with
its uncertainty. It saves a picture in the temporary directory or where ``--picture`` says.
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
    from matplotlib import cbook
    from matplotlib.figure import Figure
    from scipy.optimize import minimize
except ImportError as error:
    raise SystemExit(f"{error}\n  do: pip install -e '.[examples]'") from None

Floats = NDArray[Any]

# ---- how heights vary ----
#
# A Gaussian process says how much the heights of two places have in common: the more, the
# nearer they are. Mountains are long and narrow, so distances count differently along
# some direction and across it. There are five parameters: the logarithms of the two
# lengths (km), the direction (radians), and the logarithms of the standard deviations of
# heights and of what is too small for the map (m).

START = np.array([1.0, 1.0, 0.5, 5.0, 3.0])


def covariance(theta: Any, places: Any, others: Any) -> Any:
    """Compute how heights vary together, for places (n, 2) and others (m, 2), in km.

    Notes
    -----
    The Matern covariance of order 3/2, for terrain that has slopes but is not smooth.
    Source: Rasmussen and Williams, Gaussian processes for machine learning, eq. 4.17.
    """
    cosine, sine = np.cos(theta[2]), np.sin(theta[2])
    east = places[:, None, 0] - others[None, :, 0]
    north = places[:, None, 1] - others[None, :, 1]
    along = (east * cosine + north * sine) / np.exp(theta[0])
    across = (north * cosine - east * sine) / np.exp(theta[1])
    # A square root has no slope at zero, where a place meets itself.
    distance = np.sqrt(3.0 * (along**2 + across**2) + 1e-12)
    return np.exp(2.0 * theta[3]) * (1.0 + distance) * np.exp(-distance)


def of_heights(theta: Any, places: Any) -> Any:
    """Compute the covariance matrix of measured heights, noise included."""
    noise = np.exp(2.0 * theta[4]) * np.eye(len(places))
    return covariance(theta, places, places) + noise


def loss(theta: Any, places: Any, heights: Any) -> Any:
    """Compute minus the logarithm of the probability of the heights, eq. 2.30."""
    factor = np.linalg.cholesky(of_heights(theta, places))
    white = np.linalg.solve(factor, heights)
    log_det = 2.0 * np.sum(np.log(np.diagonal(factor)))
    return 0.5 * (white @ white + log_det + len(heights) * np.log(2.0 * np.pi))


def fit(places: Floats, heights: Floats) -> tuple[Floats, Floats]:
    """Find the most likely parameters; returns them and their standard deviations."""
    # SciPy's optimizer takes the value and its gradient from one function.
    found = minimize(co.value_and_grad(loss), START, (places, heights), jac=True)
    # Near its minimum the loss is a parabola, so that the parameters have about a normal
    # distribution. The inverse of the matrix of second derivatives is its covariance.
    spread = np.linalg.inv(co.hessian(loss)(found.x, places, heights))
    return found.x, np.sqrt(np.diagonal(spread))


# ---- the map ----


def predict(
    theta: Any, places: Any, heights: Any, targets: Any
) -> tuple[Floats, Floats]:
    """Compute the heights of other places and their standard deviations, eq. 2.25."""
    factor = np.linalg.cholesky(of_heights(theta, places))
    shared = covariance(theta, targets, places)
    white = np.linalg.solve(factor, np.column_stack([heights, shared.T]))
    mean = white[:, 1:].T @ white[:, 0]
    own = np.exp(2.0 * theta[3]) + np.exp(2.0 * theta[4])
    return mean, np.sqrt(own - np.sum(white[:, 1:] ** 2, axis=0))


def slopes(theta: Any, places: Any, heights: Any, targets: Any) -> Floats:
    """Compute the gradient of the map at places: how steep it is, and which way."""
    weights = np.linalg.solve(of_heights(theta, places), heights)

    def height(place: Any) -> Any:
        return (covariance(theta, place[None], places) @ weights)[0]

    return np.asarray(co.vmap(co.grad(height))(targets))


# ---- the program ----


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Draw a map from a few heights.")
    picture = Path(tempfile.gettempdir(), "terrain.png")
    parser.add_argument("--places", type=int, default=200, help="heights to learn from")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice")
    parser.add_argument("--picture", type=Path, default=picture, help="the picture")
    return parser.parse_args(arguments)


def load_terrain() -> tuple[Floats, Floats]:
    """Load places (rows, columns, 2), in km east and north, and their heights in m."""
    data: Any = cbook.get_sample_data("jacksboro_fault_dem.npz")
    heights = data["elevation"][::6, ::6].astype(float)
    step = 6 * float(data["dx"]) * 111.2  # degrees, of 111.2 km from north to south
    rows, columns = heights.shape
    east = np.arange(columns) * step * np.cos(np.radians(36.6))
    north = np.arange(rows)[::-1] * step
    return np.stack(np.meshgrid(east, north), axis=-1), heights


def check_gradient(theta: Floats, places: Floats, heights: Floats) -> None:
    """Check the gradient of the loss against its formula, eq. 5.9, and by slogdet."""
    inverse = np.linalg.inv(of_heights(theta, places))
    weights = inverse @ heights
    by_theta = co.jacfwd(of_heights)(theta, places)
    expected = 0.5 * np.einsum(
        "ij,ijk->k", inverse - np.outer(weights, weights), by_theta
    )
    grad = co.grad(loss)(theta, places, heights)
    assert np.allclose(grad, expected, rtol=1e-6, atol=1e-6)

    def log_det(theta: Any) -> Any:
        return np.linalg.slogdet(of_heights(theta, places)).logabsdet

    expected = np.einsum("ij,ijk->k", inverse, by_theta)
    assert np.allclose(co.grad(log_det)(theta), expected, rtol=1e-6, atol=1e-6)


def save_picture(
    path: Path,
    grid: Floats,
    images: Sequence[Floats],
    places: Floats,
    arrows: tuple[Floats, Floats],
) -> None:
    """Draw the terrain, the map with arrows downhill, and the uncertainty."""
    # A Figure without pyplot is drawn by Agg, which needs no screen.
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    axes = figure.subplots(1, 3, sharex=True, sharey=True)
    titles = (
        "the terrain",
        f"the map from {len(places)} heights",
        "standard deviation",
    )
    low, high = images[0].min(), images[0].max()
    ranges: list[dict[str, Any]] = [{"cmap": "gist_earth", "vmin": low, "vmax": high}]
    styles = [*ranges, *ranges, {"cmap": "magma"}]
    extent = (0.0, grid[..., 0].max(), 0.0, grid[..., 1].max())
    for axis, image, title, style in zip(axes, images, titles, styles, strict=True):
        drawn = axis.imshow(image, extent=extent, **style)
        axis.set(title=title, xlabel="km east", xlim=extent[:2], ylim=extent[2:])
        figure.colorbar(drawn, ax=axis, label="m", shrink=0.8)
    starts, uphill = arrows
    axes[1].quiver(*starts.T, *-uphill.T, width=0.004)
    axes[2].plot(*places.T, ".", color="white", markersize=2)
    axes[0].set_ylabel("km north")
    figure.savefig(path, dpi=80)


def main(arguments: Sequence[str] | None = None) -> float:
    """Fit, measure, and draw the map; returns the root mean square error in m."""
    chosen = options(arguments)
    grid, terrain = load_terrain()
    points, truth = grid.reshape(-1, 2), terrain.ravel()
    rng = np.random.default_rng(chosen.seed)
    order = rng.permutation(len(points))
    seen, unseen = order[: chosen.places], order[chosen.places :]
    middle = truth[seen].mean()
    places, heights = points[seen], truth[seen] - middle

    theta, spread = fit(places, heights)
    check_gradient(theta, places, heights)
    for name, i in (("along", 0), ("across", 1)):
        length, error = np.exp(theta[i]), np.exp(theta[i]) * spread[i]
        print(f"length {name} the mountains: {length:.1f} +- {error:.1f} km")
    direction, error = np.degrees(theta[2]) % 180.0, np.degrees(spread[2])
    print(f"direction: {direction:.0f} +- {error:.0f} degrees from east to north")

    mean, deviation = predict(theta, places, heights, points)
    off = np.abs(mean + middle - truth)[unseen]
    wrong = float(np.sqrt(np.mean(off**2)))
    print(f"error at {len(unseen)} unseen places: {wrong:.0f} m,", end=" ")
    print(f"of a map with one height: {np.std(truth[unseen]):.0f} m")
    inside = float(np.mean(off < 2.0 * deviation[unseen]))
    print(f"within two standard deviations: {inside:.0%}")

    arrows = grid[3::6, 3::6].reshape(-1, 2)
    shape = terrain.shape
    images = (terrain, (mean + middle).reshape(shape), deviation.reshape(shape))
    steepness = slopes(theta, places, heights, arrows)
    save_picture(chosen.picture, grid, images, places, (arrows, steepness))
    print(f"picture: {chosen.picture}")

    assert wrong < 0.75 * np.std(truth[unseen])
    assert 0.9 < inside < 0.99
    return wrong


if __name__ == "__main__":
    main()
