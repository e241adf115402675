"""Values as Python text: what the text makes is the value again, to the last bit."""

from __future__ import annotations

import enum
import struct
from typing import Any

import numpy as np
import pytest

from customop.arrays.python_text import PythonText


class Way(enum.Flag):
    """Flags, which may be set together."""

    UP = 1
    LEFT = 4


def made(value: Any) -> Any:
    """What the text of a value makes when it runs."""
    script = PythonText()
    text = script.value(value, "v")
    lines = ["import numpy as np", "from numpy import inf, nan", *script.imports]
    names: dict[str, Any] = {}
    exec("\n".join([*lines, *script.lines, f"found = {text}"]), names)
    return names["found"]


@pytest.mark.parametrize(
    "value",
    [
        complex(np.inf, np.nan),
        complex(-0.0, 1.0),
        complex(1.5, -0.0),
        1.5 + 2j,
        complex(0.0, -np.inf),
    ],
    ids=str,
)
def test_complex_numbers_keep_both_parts(value: complex) -> None:
    """Parts that are infinite, nan or minus zero stay what they are."""
    found = made(value)
    assert struct.pack("dd", found.real, found.imag) == struct.pack(
        "dd", value.real, value.imag
    )


@pytest.mark.parametrize(
    "values", [[complex(np.inf, 1)], [complex(-0.0, 2.0)], [complex(1, np.nan)], [1j]]
)
def test_complex_arrays_keep_both_parts(values: list[complex]) -> None:
    """The same in arrays."""
    x = np.array(values)
    assert made(x).tobytes() == x.tobytes()


def test_flags_that_are_set_together() -> None:
    """A member of a Flag that has no name of its own is made by its value."""
    assert made(Way.UP | Way.LEFT) is Way.UP | Way.LEFT
    assert made([Way.UP, {"a": Way.LEFT}]) == [Way.UP, {"a": Way.LEFT}]


def test_slices_and_text() -> None:
    """Values whose repr makes them are written so."""
    for value in (slice(1, None, -2), 'it\'s "so"\n\ud800', b"\x00'", ..., None):
        assert made(value) == value
