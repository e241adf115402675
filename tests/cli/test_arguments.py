"""Arguments of operators, written on the command line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co
from customop.cli import targets

X = np.zeros((3, 4))


READ: dict[str, Any] = {
    "2": 2,
    "-1.5": -1.5,
    "-inf": -np.inf,
    "None": None,
    "True": True,
    "'2'": "2",
    "word": "word",
    "two words": "two words",
    "a-b": "a-b",
    "[1, -2]": [1, -2],
    "(1, [None, nan_])": (1, [None, "nan_"]),
    "{'a': 1}": {"a": 1},
    "{[1]: 2}": "{[1]: 2}",
    "{**a}": "{**a}",
    "co.ops": "co.ops",
    "\ud800": "\ud800",
    "a\0b": "a\0b",
    "[" * 300: "[" * 300,
    "9" * 5000: "9" * 5000,
    "1j": 1j,
    "f64[3,4]": X,
    "float64[3, 4]": X,
    "c64[0]": np.zeros(0, np.complex64),
    "i8[]": np.zeros((), np.int8),
    "u16[2,]": np.zeros(2, np.uint16),
    "bool[ ]": np.zeros((), bool),
    "cpu.f16[1]": np.zeros(1, np.float16),
}


@pytest.mark.parametrize("text", READ, ids=lambda text: ascii(text)[:20])
def test_arguments_are_read(text: str) -> None:
    """Literals, words and short arrays become Python values."""
    value = READ[text]
    (found,), keywords = targets.parse([text], targets.zeros)
    assert type(found) is type(value)
    assert repr(found) == repr(value)
    assert keywords == {}
    assert targets.parse([f"k={text}"], targets.zeros)[1].keys() == {"k"}


def test_arrays_inside_lists_and_fake_ones() -> None:
    """Lists may hold arrays, and `fake.` makes a fake array."""
    ((first, second), fake), _ = targets.parse(
        ["[f64[2], i64[]]", "fake.f32[2,3]"], targets.zeros
    )
    assert (first.shape, second.dtype) == ((2,), np.int64)
    assert isinstance(fake, co.FakeArray)
    assert (fake.shape, fake.dtype) == ((2, 3), np.float32)


def test_ramp() -> None:
    """Floats go from 0.5 to 1.5; integers are 1."""
    x = targets.ramp((2, 3), np.dtype("f4"))
    assert (x.shape, x.dtype, x.min(), x.max()) == ((2, 3), np.float32, 0.5, 1.5)
    assert targets.ramp((2,), np.dtype("i4")).tolist() == [1, 1]
    assert targets.ramp((0,), np.dtype("f8")).shape == (0,)
