"""Shapes that hypothesis draws, what jaxtyping says of them, and a class with shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from hypothesis import strategies as st
from jaxtyping import Float, jaxtyped

some_shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
_USUAL = st.sampled_from(
    [
        "n",
        "m",
        "k",
        "n",
        "m",
        "_",
        "1",
        "2",
        "#n",
        "#m",
        "#2",
        "n+1",
        "m-1",
        "2*n",
        "m+n",
    ]
)


@st.composite
def some_spec(draw: st.DrawFn) -> str:
    axes = draw(st.lists(_USUAL, max_size=3))
    if draw(st.integers(0, 2)) == 0:
        place = draw(st.integers(0, len(axes)))
        axes.insert(place, draw(st.sampled_from(["...", "*b", "*b", "*#b"])))
    return " ".join(axes)


def by_jaxtyping(specs: list[str], shapes: list[tuple[int, ...]]) -> bool:
    """Whether jaxtyping takes arrays of these shapes for arguments of one call."""
    with jaxtyped("context"):
        return all(
            isinstance(np.zeros(shape), Float[np.ndarray, spec])
            for spec, shape in zip(specs, shapes, strict=True)
        )


@dataclass(frozen=True)
class Camera:
    """Fields with shapes."""

    rotation: Annotated[np.ndarray, "3 3"]
    points: Annotated[np.ndarray, "n 3"]
    focal: float = 1.0
