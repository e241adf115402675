"""Fixtures of the tests of libraries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import customop as co
from tests.library._libraries import numbers


@pytest.fixture
def lib() -> Iterator[co.Library]:
    """Open a library with its own namespace, and close it."""
    with co.Library(f"libtest{next(numbers)}", "DEF") as made:
        yield made
