"""Flags of the processor: warnings and errors of a run, as if its calls ran one by one.

NumPy tells a function of ours which flags each call of a block raises. After the last
block every flag of a call is reported once, in the order of the calls.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from customop.graph.node import Node

__all__ = ["Errors", "Flags", "usual_errors"]

_Mode = Literal["ignore", "warn", "raise", "call"]
# In the order in which NumPy reports them.
_TEXTS: Mapping[str, str] = {
    "divide": "divide by zero",
    "over": "overflow",
    "under": "underflow",
    "invalid": "invalid value",
}


class Errors(NamedTuple):
    """How the user wants floating-point flags reported: arguments of `numpy.errstate`.

    Attributes
    ----------
    modes : mapping
        As the user has set them.
    strict, recording : dict
        With errors, and with calls, where they are not ignored.
    """

    modes: Mapping[str, str]
    strict: dict[str, Any]
    recording: dict[str, Any]


_known: dict[tuple[str, ...], Errors] = {}


def usual_errors() -> Errors | None:
    """Return the user's settings; None if flags are printed, logged or go to a function."""
    key: Any = (*np.geterr().values(),)
    found = _known.get(key)
    if found is None:
        modes = dict(zip(_TEXTS, key, strict=True))
        if not {"ignore", "warn", "raise"}.issuperset(key):
            return None
        strict = {k: "ignore" if v == "ignore" else "raise" for k, v in modes.items()}
        calls = {k: "ignore" if v == "ignore" else "call" for k, v in modes.items()}
        found = _known[key] = Errors(modes, strict, calls)
    return found


class Flags:
    """The flags of the calls of a function.

    Attributes
    ----------
    found : dict
        Line -> texts of its flags.
    """

    def __init__(self, function: Any, nodes: Mapping[int, Node]) -> None:
        self._code: Any = function.__code__
        self._nodes: Mapping[int, Node] = nodes
        self.found: dict[int, set[str]] = {}

    def note(self, text: str, _: int) -> None:
        """Note a flag; NumPy calls this."""
        frame = sys._getframe(1)  # the line that NumPy was called from
        assert frame.f_code is self._code
        self.found.setdefault(frame.f_lineno, set()).add(text)

    def report(self, errors: Errors) -> None:
        """Warn of the flags, or raise, as NumPy would have done at each call."""
        known: dict[Node, set[str]] = {}
        for line in sorted(self.found):
            known.setdefault(self._nodes[line], set()).update(self.found[line])
        for node, texts in known.items():
            for name, text in _TEXTS.items():
                if text in texts:
                    _report(
                        node,
                        f"{text} encountered in {_called(node)}",
                        errors.modes[name],
                    )


def _called(node: Node) -> str:
    """Return the name of a call in NumPy's messages."""
    return "cast" if node.target.name == "astype" else str(node.target.name)


def _report(node: Node, text: str, mode: str) -> None:
    if mode == "raise":
        error = FloatingPointError(text)
        place = node.meta.get("place", "an unknown place")
        error.add_note(f"in the node '{node.name}', traced at {place}")
        raise error
    # The line of the generated code, as for the other calls.
    warnings.warn(text, RuntimeWarning, stacklevel=4)
