"""Where machine code may run."""

from __future__ import annotations

import numpy as np
import pytest

import customop as co
from customop.compiling.native_backend import object_layout


def test_a_numpy_of_another_version_is_left_to_its_own_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sums of other versions may go over axes in another order."""
    assert object_layout.why_not_native() is None
    monkeypatch.setattr(np, "__version__", "2.9.1")
    why = object_layout.why_not_native.__wrapped__()
    assert why == "the order in which NumPy 2.9.1 adds is not known"
    monkeypatch.setattr(object_layout, "why_not_native", lambda: why)
    monkeypatch.setattr(
        "customop.compiling.native_backend.native_code.why_not_native", lambda: why
    )
    f = co.compile(lambda x: np.sum(x * 2.0), backend="native")
    assert f(np.ones(3)) == 6.0
    assert why in str(f.explain())
