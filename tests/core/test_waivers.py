"""Checks of opcheck that an operator fails on purpose."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.samples import CHECK_NAMES
from customop.errors import ArgumentError, OpCheckError, RegistrationError
from customop.testing import opcheck
from customop.testing.checks.check_jobs import CHECKS

_REASON = "a straight-through estimator"
_INPUT = (np.array([0.6, 1.7]),)


def _rounded() -> Any:
    """An operator whose gradient is not that of its values."""

    def rounded(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind != "f":
            raise TypeError("of floats")
        return np.round(x)

    op = co.custom_op("waivers::rounded", mutates_args=())(rounded)
    op.register_fake(lambda x: co.fake_like(x))
    return op.register_autograd(lambda ctx, g: g)


def test_names_are_those_of_opcheck() -> None:
    """Who adds a check to the table adds its name to the list of those to waive."""
    assert tuple(check.name for check in CHECKS) == CHECK_NAMES


def test_waived_fault_does_not_fail() -> None:
    """The table has the reason, and the result keeps the fault."""
    op = _rounded()
    with pytest.raises(OpCheckError, match="test_gradients"):
        opcheck(op, _INPUT)
    assert op.waive("test_gradients", reason=f"  {_REASON}\n ") is op
    found = opcheck(op, _INPUT)
    assert found["test_gradients"] == f"WAIVED: {_REASON}"
    assert found.failed == []
    assert isinstance(found.waived["test_gradients"], OpCheckError)
    assert f"\n  test_gradients              WAIVED   {_REASON}\n" in str(found)


def test_waiver_that_is_not_needed_is_noted() -> None:
    """A check that passes says so; one that proves nothing does not."""
    op = _rounded().waive("test_schema", reason="x").waive("test_vmap", reason="x")
    found = opcheck(op, _INPUT, raise_exception=False)
    assert found["test_schema"] == "SUCCESS"
    assert found.notes["test_schema"] == (
        "the waiver is not needed: remove waive('test_schema', ...)"
    )
    assert found["test_vmap"] == "SKIPPED: no vmap rule: a loop is exact"
    assert found.failed == ["test_gradients"]


def test_crash_is_not_waived() -> None:
    def fragile(x: np.ndarray) -> np.ndarray:
        if not x.size:
            ctypes.string_at(0)
        return x.copy()

    op = co.custom_op("waivers::fragile", mutates_args=())(fragile)
    op.register_fake(lambda x: co.fake_like(x))
    op.waive("test_layouts", reason="never called without elements")
    assert opcheck(op, _INPUT, raise_exception=False).failed == ["test_layouts"]


def test_new_definition_has_no_waivers() -> None:
    assert _rounded().waive("test_gradients", reason="x").waivers
    assert _rounded().waivers == {}


@pytest.mark.parametrize("reason", ["", " \n", None])
def test_reason_is_required(reason: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        _rounded().waive("test_gradients", reason=reason)
    assert str(caught.value) == (
        f"waivers::rounded: the waiver of test_gradients has reason={reason!r}\n"
        "  waivers::rounded(Array x) -> Array\n"
        "  do: say why it is meant to fail: rounded.waive('test_gradients',"
        ' reason="a straight-through estimator")'
    )


def test_unknown_check() -> None:
    with pytest.raises(ArgumentError) as caught:
        _rounded().waive("test_gradient", reason=_REASON)
    assert str(caught.value) == (
        "waivers::rounded: there is no check 'test_gradient' to waive (did you mean"
        " 'test_gradients'?)\n"
        "  waivers::rounded(Array x) -> Array\n"
        f"  known: {', '.join(map(repr, CHECK_NAMES))}\n"
        '  do: rounded.waive("test_gradients", reason="...")'
    )


def test_second_waiver_of_a_check() -> None:
    op = _rounded().waive("test_gradients", reason=_REASON)
    with pytest.raises(RegistrationError) as caught:
        op.waive("test_gradients", reason="other")
    assert str(caught.value) == (
        "waivers::rounded: test_gradients is waived already:"
        " 'a straight-through estimator'\n"
        "  waivers::rounded(Array x) -> Array\n"
        "  do: remove one of the waivers, or pass override=True"
    )
    op.waive("test_gradients", reason="other", override=True)
    assert op.waivers == {"test_gradients": "other"}
