"""Kinds of arrays while a module of tests runs; the other tests do not see them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def dask_kind(own_kinds: None) -> Any:
    """The bridge, imported for these tests: it registers the kind."""
    pytest.importorskip("dask.array", reason="dask is not installed")
    return importlib.import_module("customop.interop.dask")


@pytest.fixture
def nothing_computed(dask_kind: Any) -> Iterator[None]:
    """A scheduler that raises: only ``compute(scheduler=...)`` computes."""
    dask = importlib.import_module("dask")

    def refuse(*args: Any, **keywords: Any) -> Any:
        pytest.fail("a graph ran while another was built")

    with dask.config.set(scheduler=refuse):
        yield
