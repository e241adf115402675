"""Kinds of arrays while a module of tests runs; the other tests do not see them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import JAX, whose threads do not like forks, only where its tests run."""
    is_of_jax = collection_path.name.startswith("test_jax")
    is_default = config.getoption("markexpr") == "not exhaustive"
    return True if is_of_jax and is_default else None


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
