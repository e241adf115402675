"""Where in the user's code an operator is called."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType

import numpy as np

from customop.errors import GENERATED

__all__ = ["place_here"]

# This package, and Python code of NumPy that calls operators, such as np.broadcast_to.
_OURS = (
    GENERATED,
    str(Path(__file__).parents[2]),
    str(Path(np.__file__).parent),
)


class _Files(dict[str, bool]):
    """File name of code -> whether it is not the user's."""

    def __missing__(self, name: str) -> bool:
        if len(self) > _MOST_FILES:  # of generated code, for example
            self.clear()
        self[name] = ours = name.startswith(_OURS)
        return ours


_MOST_FILES = 10_000
_is_ours = _Files()


def place_here() -> tuple[CodeType, int]:
    """The running instruction of the user's code; its line is looked up later."""
    frame = sys._getframe(1)
    while _is_ours[frame.f_code.co_filename] and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti
