"""Tables of which the default tier takes a part; the exhaustive tier has the rest."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

exhaustive = pytest.mark.exhaustive


def is_in_fifth(name: str, fifth: int = 0) -> bool:
    """Return whether a name is in one of five parts, which are the same in every run."""
    return zlib.crc32(name.encode()) % 5 == fifth


def fifth_of(values: Iterable[Any], name_of: Callable[[Any], str] = str) -> list[Any]:
    """Return parameters, by their names, of which the default tier takes a fifth."""
    return [
        pytest.param(
            v, id=name_of(v), marks=() if is_in_fifth(name_of(v)) else exhaustive
        )
        for v in values
    ]


def all_but(values: Iterable[Any], kept: Iterable[Any]) -> list[Any]:
    """Return parameters of which the default tier takes those that are kept."""
    default = list(kept)
    return [pytest.param(v, marks=() if v in default else exhaustive) for v in values]
