"""The global random state of NumPy, read and written in its memory.

`np.random.get_state` and `set_state` take 40 us each, as long as thirty calls.
"""

from __future__ import annotations

import ctypes
import pickle
from functools import cache
from typing import Any, NamedTuple

import numpy as np

__all__ = ["NumpyState", "numpy_state", "set_numpy_state"]

# The functions with a global state, which kernels may use.
_random: Any = np.random
# Of a Mersenne Twister: 624 words of the key, and the position in it.
_Words: Any = ctypes.c_uint32 * 625


class NumpyState(NamedTuple):
    """The state of `np.random`.

    Attributes
    ----------
    bits : BitGenerator
    content : bytes
        The memory of `bits`; a pickle of its state if it is of an unknown class.
    normal : float or None
        The second of a pair of normal numbers, which is drawn next.
    """

    bits: Any
    content: bytes
    normal: float | None


def numpy_state() -> NumpyState:
    """Read the state; the normal number that is kept is taken out of it."""
    bits = _random.get_bit_generator()
    words = _words_of(bits)
    if words is None:
        state = _random.get_state(legacy=False)
        return NumpyState(bits, pickle.dumps(state), None)
    normal = _taken_normal(words)
    return NumpyState(bits, bytes(words), normal)


def set_numpy_state(state: NumpyState) -> None:
    """Put the state back that `numpy_state` has read."""
    if _random.get_bit_generator() is not state.bits:
        _random.set_bit_generator(state.bits)
    words = _words_of(state.bits)
    if words is None:
        _random.set_state(pickle.loads(state.content))  # noqa: S301  # our own bytes
        return
    _taken_normal(words)
    ctypes.memmove(words, state.content, len(state.content))
    if state.normal is not None:
        found: Any = _random.get_state(legacy=False)
        _random.set_state({**found, "has_gauss": 1, "gauss": state.normal})


def _taken_normal(words: Any) -> float | None:
    """Take out the normal number that is kept, if there is one.

    NumPy tells of it only with all of the state. To draw another one changes no words
    where one is kept, and makes a pair where none is.
    """
    before = bytes(words)
    first: float = _random.standard_normal()
    if bytes(words) == before:
        return first
    _random.standard_normal()
    ctypes.memmove(words, before, len(before))
    return None


def _words_of(bits: Any) -> Any:
    """The memory of a generator; None where it is not known how it is laid out."""
    if type(bits) is not np.random.MT19937 or not _is_as_known():
        return None
    return _Words.from_address(bits.ctypes.state_address)


@cache
def _is_as_known() -> bool:
    """Whether this NumPy keeps the state of a Mersenne Twister as expected."""
    bits = np.random.MT19937(1)
    state: Any = bits.state["state"]
    words = _Words.from_address(bits.ctypes.state_address)
    return [*words] == [*state["key"].tolist(), state["pos"]]
