"""Checks for tests: gradients against differences, and arrays against arrays."""

from __future__ import annotations

from customop.closeness import assert_close
from customop.numericcheck import gradcheck, gradgradcheck

__all__ = ["assert_close", "gradcheck", "gradgradcheck"]
