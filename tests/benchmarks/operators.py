"""The operators that are measured."""

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co

LENGTH = 100


@co.custom_op("bench::sine", mutates_args=())
def sine(x: np.ndarray) -> np.ndarray:
    """Sine, with every rule."""
    return np.sin(x)


def save_input(ctx: Any, inputs: Any, output: Any) -> None:
    """Keep the input."""
    ctx.save_for_backward(inputs[0])


def sine_backward(ctx: Any, g: Any) -> Any:
    """Gradient of the sine."""
    (x,) = ctx.saved_arrays
    return g * np.cos(x)


sine.register_autograd(sine_backward, setup_context=save_input)


@sine.register_fake
def sine_fake(x: co.FakeArray) -> co.FakeArray:
    """Shape and dtype of the sine."""
    return co.fake_like(x)


@sine.register_vmap
def sine_vmap(info: Any, in_dims: Any, x: Any) -> Any:
    """Sine of all rows at once."""
    return sine(x), in_dims[0]


def chain(x: Any) -> Any:
    """Sine of sine of sine ..."""
    for _ in range(LENGTH):
        x = sine(x)
    return x


def loop(x: Any) -> Any:
    """Gradient of ``chain(x).sum()``, with the same NumPy calls written by hand."""
    saved = []
    for _ in range(LENGTH):
        saved.append(x)
        x = np.sin(x)
    np.sum(x)
    g = np.ones_like(x)
    for x in reversed(saved):
        g = g * np.cos(x)
    return g
