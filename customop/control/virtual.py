"""Arrays whose elements are not known: loops run their bodies once on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import make_fake
from customop.arrays.kinds import device_of, is_array, is_fake, is_traced
from customop.arrays.nested import map_nested
from customop.arrays.pytree import leaves, map_leaves
from customop.arrays.strides import packed_strides
from customop.control.leaf_types import is_number
from customop.control.rows import has_no_elements
from customop.core.interpreter import Mode, current_mode
from customop.core.observe import open_modes
from customop.core.table import RuleTable
from customop.transforms.fake_mode import FakeMode
from customop.transforms.generators import restored, sources, states_of
from customop.transforms.trace.interpreter import Trace

__all__ = ["as_fake", "as_unknown", "is_faked", "is_virtual", "shapes_of"]


def is_virtual(tree: Any) -> bool:
    """Whether arrays without elements are computed with."""
    if not open_modes and _is_plain(tree):
        return False
    mode = current_mode.get()
    while mode is not None and not isinstance(mode, Trace):
        if is_faked(mode):
            return True
        mode = mode.outer
    return any(map(has_no_elements, leaves(tree)))


_PLAIN = frozenset((np.ndarray, np.float64, float, int, type(None)))


def _is_plain(tree: Any) -> bool:
    """Whether a pytree has only plain arrays and numbers: a quick answer for most."""
    cls = type(tree)
    if cls is tuple:
        for item in tree:  # noqa: SIM110  # half the time
            if not _is_plain(item):
                return False
        return True
    return cls in _PLAIN


def is_faked(mode: Mode) -> bool:
    """Whether a mode is one of fake arrays."""
    return mode.alive and mode.kind is FakeMode.kind


class _Shapes(FakeMode):
    """Fake mode that also takes traced values by their shapes alone."""

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the fake kernel."""
        return super().process(op, [map_nested(value, as_fake) for value in args])


def as_fake(leaf: Any) -> Any:
    """The fake array of any array; other values as they are."""
    if not is_array(leaf) or is_fake(leaf):
        return leaf
    shape, dtype = tuple(leaf.shape), leaf.dtype
    strides = packed_strides(shape, range(len(shape)), dtype.itemsize)
    return make_fake(shape, dtype, strides, device_of(leaf))


def as_unknown(leaf: Any) -> Any:
    """A leaf whose elements are not known: numbers and plain arrays become fake."""
    if is_traced(leaf):
        return leaf
    return as_fake(np.asarray(leaf) if is_number(leaf) else leaf)


def shapes_of(fn: Callable[..., Any], *args: Any) -> Any:
    """The result of a function as fake arrays; it draws no random numbers."""
    states = states_of(sources(fn, args))
    with _Shapes(), restored(states):
        found = fn(*map_leaves(as_fake, args))
    return map_leaves(as_fake, found)
