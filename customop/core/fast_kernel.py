"""The kernel that generated code may call at once for plain arrays of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["FastKernel", "Never"]


class Never:
    """A class without objects: a guard for it always fails."""


class FastKernel:
    """The kernel of an operator that plans of transforms call without the operator.

    A plan tests ``type(x) is fast.array``, and that no mode is open.

    Attributes
    ----------
    array : type
        The class of arrays that the kernel takes: NumPy's, or one without objects while
        calls must go to the operator.
    kernel : callable
        It has proven its contract.
    """

    __slots__ = ("_is_drawn", "_is_open", "array", "kernel")

    def __init__(self) -> None:
        self.array: type = Never
        self.kernel: Callable[..., Any] | None = None
        self._is_open: bool = False
        self._is_drawn: bool = False

    def set(self, kernel: Callable[..., Any] | None) -> None:
        """Open the way to a kernel, or close it with None."""
        # Closed first, and the kernel never removed: a thread that is past the guard
        # calls the old kernel or the new one, never None.
        self.array = Never
        self._is_open = kernel is not None
        if kernel is not None:
            self.kernel = kernel
            self._let()

    def draw(self, is_drawn: bool) -> None:
        """Note whether a share of calls is drawn: then each call goes to the operator."""
        self._is_drawn = is_drawn
        self._let()

    def _let(self) -> None:
        self.array = np.ndarray if self._is_open and not self._is_drawn else Never
