"""Sharpen a photograph: take out blur and noise by gradients through np.fft.

It needs more than NumPy: ``pip install -e '.[examples]'``. Then run it with::

    python examples/deblur.py

The photograph is the one of a Chinese temple that comes with scikit-learn. The program
blurs it as a moving camera would, adds noise, and then looks for the image that, once
blurred, is closest to what the camera saw. There are no custom operators here: the model
is plain NumPy code, and `co.value_and_grad` differentiates it, Fourier transforms
included.

It saves a picture in the temporary directory, or where ``--picture`` says: the photograph,
what the camera saw, what dividing the spectra gives, and what the program found.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import customop as co

try:
    from matplotlib.figure import Figure
    from sklearn.datasets import load_sample_image
except ImportError as error:
    raise SystemExit(f"{error}\n  do: pip install -e '.[examples]'") from None

Floats = NDArray[Any]

# ---- the camera ----
#
# Each point of the scene leaves a short line on the image: the image is the scene
# convolved with that line. A convolution is a product of spectra, so it takes two Fourier
# transforms whatever the length of the line. It goes around at the borders.


def motion(shape: tuple[int, int], length: float, angle: float) -> Floats:
    """Draw the line that a point leaves, (h, w); its center is the first pixel."""
    rows, columns = np.meshgrid(
        *(np.fft.fftfreq(n, 1 / n) for n in shape), indexing="ij"
    )
    along = columns * np.cos(angle) + rows * np.sin(angle)
    across = rows * np.cos(angle) - columns * np.sin(angle)
    inside = np.clip((length + 1) / 2 - np.abs(along), 0, 1)
    line = inside * np.clip(1 - np.abs(across), 0, 1)
    return np.asarray(line / line.sum())


def blur(image: Any, kernel: Any) -> Any:
    """Convolve each color (c, h, w) with a kernel (h, w)."""
    spectrum = np.fft.rfft2(image) * np.fft.rfft2(kernel)
    return np.fft.irfft2(spectrum, s=image.shape[-2:])


def take_picture(scene: Floats, kernel: Floats, rng: np.random.Generator) -> Floats:
    """Blur a scene, and add the noise of a camera: one percent of full brightness."""
    return np.asarray(blur(scene, kernel) + 0.01 * rng.normal(size=scene.shape))


# ---- what is a good image? ----
#
# Dividing the spectra undoes the blur exactly, and makes the noise a thousand times
# stronger where the spectrum of the line is small. So the image must do two things: fit
# the picture once it is blurred, and be smooth, except at edges. The total length of its
# steps from pixel to pixel measures the second. A step is given a small extra length, so
# that the sum has a gradient where the image is flat.

EXTRA = 0.02


def steps(image: Any) -> Any:
    """Return the differences to the pixels below and to the right."""
    return np.roll(image, -1, -2) - image, np.roll(image, -1, -1) - image


def roughness(image: Any) -> Any:
    """Add up the lengths of all steps, of the colors together."""
    down, right = steps(image)
    return np.sum(np.sqrt(np.sum(down**2 + right**2, axis=0) + EXTRA**2))


def misfit(image: Any, picture: Any, kernel: Any) -> Any:
    """Half the squared distance of the blurred image from the picture."""
    return 0.5 * np.sum((blur(image, kernel) - picture) ** 2)


def cost(image: Any, picture: Any, kernel: Any, weight: float) -> Any:
    """Return the sum that the best image makes smallest."""
    return misfit(image, picture, kernel) + weight * roughness(image)


def divided(picture: Floats, kernel: Floats) -> Floats:
    """Divide the spectra, the textbook answer, where that does not divide by zero."""
    below = np.fft.rfft2(kernel)
    size = np.abs(below) ** 2
    spectrum = np.fft.rfft2(picture) * np.conj(below) / np.maximum(size, 1e-4)
    return np.asarray(np.fft.irfft2(spectrum, s=picture.shape[-2:]))


# ---- descent ----


def descend(
    value_and_grad: Callable[..., Any], start: Floats, step: float, count: int
) -> tuple[Floats, list[float]]:
    """Go down the gradient with momentum; returns the end, and the costs on the way.

    Source: Nesterov, "A method of solving a convex programming problem with convergence
    rate O(1/k^2)", 1983.
    """
    image, ahead, costs = start, start, []
    for k in range(count):
        value, gradient = value_and_grad(ahead)
        costs.append(float(value))
        before, image = image, ahead - step * gradient
        ahead = image + k / (k + 3) * (image - before)
    return image, costs


def deblur(
    picture: Floats, kernel: Floats, weight: float, count: int
) -> tuple[Floats, list[float]]:
    """Find the image with the least cost, from the picture itself."""
    gradient = co.value_and_grad(lambda x: cost(x, picture, kernel, weight))
    # The steepest slope of the gradient: of the misfit 1, of a step 8 over its length.
    return descend(gradient, picture, 1 / (1 + 8 * weight / EXTRA), count)


def quality(image: Floats, scene: Floats) -> float:
    """Measure the signal against the error, in decibels (the peak is 1)."""
    return float(-10 * np.log10(np.mean((image - scene) ** 2)))


# ---- the program ----


def load_scene(is_quick: bool) -> Floats:
    """Load a part of the photograph, colors first, at half its resolution."""
    pixels = load_sample_image("china.jpg") / 255
    halves = pixels[:426].reshape(213, 2, 320, 2, 3).mean(axis=(1, 3))
    part = halves[:64, 100:180] if is_quick else halves[:160, 40:264]
    return np.ascontiguousarray(np.moveaxis(part, -1, 0))


def save_picture(path: Path, images: dict[str, Floats]) -> None:
    """Draw images in a grid of two columns, each under its title."""
    # A Figure without pyplot is drawn by Agg, which needs no screen.
    figure = Figure(figsize=(6.4, 5), layout="tight")
    for axis, (title, image) in zip(
        figure.subplots(2, 2).flat, images.items(), strict=True
    ):
        axis.imshow(np.clip(np.moveaxis(image, 0, -1), 0, 1))
        axis.set_title(title)
        axis.set_axis_off()
    figure.savefig(path, dpi=80)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Take the blur out of a photograph.")
    picture = Path(tempfile.gettempdir(), "deblurred.png")
    parser.add_argument(
        "--length", type=float, default=11, help="of the blur, in pixels"
    )
    parser.add_argument(
        "--angle", type=float, default=0.5, help="of the blur, in radians"
    )
    parser.add_argument("--weight", type=float, default=0.001, help="of smoothness")
    parser.add_argument("--steps", type=int, default=150, help="of the descent")
    parser.add_argument("--picture", type=Path, default=picture, help="the picture")
    parser.add_argument("--quick", action="store_true", help="a small part, few steps")
    return parser.parse_args(arguments)


def check_gradient(image: Floats, picture: Floats, kernel: Floats) -> None:
    """Check the gradient against the one that a textbook derives by hand."""
    gradient = co.grad(misfit)(image, picture, kernel)
    missed = np.fft.rfft2(blur(image, kernel) - picture)
    by_hand = np.fft.irfft2(missed * np.conj(np.fft.rfft2(kernel)), s=image.shape[-2:])
    assert np.allclose(gradient, by_hand)


def main(arguments: Sequence[str] | None = None) -> float:
    """Blur, deblur, and show; returns the quality of the result, in decibels."""
    chosen = options(arguments)
    scene = load_scene(chosen.quick)
    kernel = motion(scene.shape[1:], chosen.length, chosen.angle)
    picture = take_picture(scene, kernel, np.random.default_rng(0))
    count = min(chosen.steps, 25) if chosen.quick else chosen.steps
    found, costs = deblur(picture, kernel, chosen.weight, count)

    images = {
        "the scene": scene,
        "the picture": picture,
        "spectra divided": divided(picture, kernel),
        "found by gradients": found,
    }
    for name, image in list(images.items())[1:]:
        print(f"{name + ':':19} {quality(image, scene):5.1f} dB")
    save_picture(chosen.picture, images)
    print(f"picture: {chosen.picture}")

    check_gradient(found, picture, kernel)
    assert costs[-1] < costs[0]
    assert quality(found, scene) > quality(picture, scene) + 1
    assert chosen.picture.stat().st_size > 0
    return quality(found, scene)


if __name__ == "__main__":
    main()
