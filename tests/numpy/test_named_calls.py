"""Errors from functions inside of NumPy's name the function that the user has called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

MASKS = np.array([[True, False], [True, True]])
ROWS = np.array([[1.0, 2.0], [2.0, 2.0]])


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda m, x: np.compress(m, x), "np.compress"),
        (lambda m, x: np.extract(m, x), "np.extract"),
        (lambda m, x: np.union1d(x, x), "np.union1d"),
        (lambda m, x: np.argwhere(x), "np.argwhere"),
        (lambda m, x: np.split(ROWS, x.astype(int)), "np.split"),
        # Those that the message names anyway have no such line.
        (lambda m, x: np.nonzero(x), ""),
        (lambda m, x: np.unique(x), ""),
    ],
    ids=["compress", "extract", "union1d", "argwhere", "split", "nonzero", "unique"],
)
def test_under_vmap(call: Any, line: str) -> None:
    with pytest.raises(co.DataDependentError) as error:
        co.vmap(call)(MASKS, ROWS)
    lines = str(error.value).splitlines()
    named = [text for text in lines if "in the call of" in text]
    assert named == ([f"  in the call of {line}"] if line else [])
