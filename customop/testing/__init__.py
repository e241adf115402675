"""Checks for tests: opcheck, gradcheck, assert_close, and inputs to check with.

May import `transforms` and all below it. Start with `opcheck`: its table names the
checks, which lie in `checks/`; `inputs/` finds and varies what they run on.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from customop.arrays.convert import as_kind, devices_at_hand
from customop.core.samples import Sample
from customop.testing.close import assert_close
from customop.testing.gradcheck import gradcheck, gradgradcheck
from customop.testing.opcheck import OpCheckResult, opcheck

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
    from customop.testing import strategies
else:
    # Type checkers do not see this function: with it, they accept every misspelled name.
    def __getattr__(name: str) -> Any:
        # Strategies need hypothesis, which only those who ask for them have to have.
        if name != "strategies":
            raise AttributeError(f"module 'customop.testing' has no attribute '{name}'")
        return importlib.import_module("customop.testing.strategies")
