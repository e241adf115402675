"""Why some functions of NumPy have no operator, and what to use instead.

Errors, ``customop coverage`` and the guide say it with these words.
"""

from __future__ import annotations

import sys
from typing import Any, Final, NamedTuple

import numpy as np

__all__ = ["Reason", "reason_of"]


class Reason(NamedTuple):
    """Why a function has no operator.

    Attributes
    ----------
    why : str
        A clause that follows "has no operator:".
    instead : str
        What to do, as errors say it.
    """

    why: str
    instead: str


_TEXT: Final = Reason(
    "text has no derivative",
    "call it outside of the transform, and pass numbers that are made of the text",
)
_DATES: Final = Reason(
    "dates have no derivative",
    "call it outside of the transform, and pass its result as a number",
)
_SAVES: Final = Reason(
    "a file takes values, and a traced or fake array may not have one",
    "return the array from the function, and save it there",
)
_READS: Final = Reason(
    "it reads text, memory or Python values, and never a traced or fake array",
    "leave like= away, and compute with its result",
)
_PRINTS: Final = Reason(
    "a traced or fake array may have no digits to print",
    "use print(x), which shows what is known, or print the result of the function",
)
_MEMORY: Final = Reason(
    "a traced or fake array has no memory of its own",
    "ask it of the plain arrays, outside of the transform",
)

_REASONS: dict[str, Reason] = {
    **dict.fromkeys(("array2string", "array_repr", "array_str"), _PRINTS),
    **dict.fromkeys(("save", "savetxt", "savez", "savez_compressed"), _SAVES),
    **dict.fromkeys(("may_share_memory", "shares_memory"), _MEMORY),
    **dict.fromkeys(
        ("busday_count", "busday_offset", "datetime_as_string", "is_busday"), _DATES
    ),
    **dict.fromkeys(
        ("frombuffer", "fromfile", "fromiter", "fromstring", "genfromtxt", "loadtxt"),
        _READS,
    ),
}


def reason_of(function: Any) -> Reason | None:
    """Why a function of NumPy has no operator; None where there is no special reason."""
    name = getattr(function, "__name__", "")
    if getattr(np, name, None) is function:
        return _REASONS.get(name)
    # NumPy imports this module at its first use.
    text = sys.modules.get("numpy.strings")
    return _TEXT if getattr(text, name, None) is function else None
