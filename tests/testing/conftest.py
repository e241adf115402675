"""Fixtures of several modules: a kind of array with its own operators."""

from __future__ import annotations

from typing import Any

import pytest

from customop.core.registry import all_operators
from tests.strict_arrays import StrictArray, register_kernels, to_numpy, to_strict


@pytest.fixture
def strict(built_in_kinds: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kind 'strict', with arrays that can be read."""
    register_kernels(dict(all_operators()))
    monkeypatch.setattr(
        StrictArray, "__dlpack__", lambda x, **kw: to_numpy(x).__dlpack__(**kw), False
    )
    monkeypatch.setattr(StrictArray, "__dlpack_device__", lambda x: (1, 0), False)
    return to_strict
