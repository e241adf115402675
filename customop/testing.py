"""Checks for tests: gradients against differences, and arrays against arrays."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from customop.checking import OpCheckResult, opcheck
from customop.closeness import assert_close
from customop.numericcheck import gradcheck, gradgradcheck
from customop.samples import Sample
from customop.vectors import as_kind, devices_at_hand

__all__ = [
    "OpCheckResult",
    "Sample",
    "as_kind",
    "assert_close",
    "devices_at_hand",
    "gradcheck",
    "gradgradcheck",
    "opcheck",
    "strategies",
]

if TYPE_CHECKING:
    from customop import strategies


def __getattr__(name: str) -> Any:
    # Strategies need hypothesis, which only those who ask for them have to have.
    if name != "strategies":
        raise AttributeError(f"module 'customop.testing' has no attribute '{name}'")
    return importlib.import_module("customop.strategies")
