"""The memory of a compiled graph: planned once, and used again after a value's last use."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

# Blocks begin at a multiple of this, and so do NumPy's own large arrays: loops are not
# slower, and a place in a vector register is never half of one block and half of another.
_ALIGNED: Final = 64
# Inputs and results up to this many bytes are copied; of larger ones the table is given
# the addresses.
COPIED: Final = 4096
# Small blocks lie side by side in chunks.
_CHUNK: Final = 1 << 16
_SMALL: Final = 1 << 12
# The smallest blocks that were freed last are not used again yet: rows of numbers can come
# before or after others only as long as they do not share memory.
_RESTING: Final = 16


class Block:
    """A piece of memory for one value at a time.

    Attributes
    ----------
    chunk : array of uint8
        Holds the memory.
    offset : int
        Where the block begins in it.
    size : int, bytes
        A multiple of 64.
    uses : int
        Values that lie in it and are still to be read.
    largest : int, bytes
        The size of the largest value that has lain in it.
    """

    __slots__ = ("chunk", "largest", "offset", "size", "uses")

    def __init__(self, chunk: np.ndarray[Any, Any], offset: int, size: int) -> None:
        self.chunk: np.ndarray[Any, Any] = chunk
        self.offset: int = offset
        self.size: int = size
        self.uses: int = 0
        self.largest: int = 0

    def array(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...] | None = None,
    ) -> np.ndarray[Any, Any]:
        """Return an array at the beginning of the block; C order without `strides`."""
        return np.ndarray(shape, dtype, self.chunk, self.offset, strides)


class MemoryPlan:
    """The blocks of the tables of one graph.

    Attributes
    ----------
    nbytes : int
        The size of all blocks.
    chunks : list of array of uint8
        The memory of all blocks.
    """

    def __init__(self) -> None:
        self.nbytes: int = 0
        self.chunks: list[np.ndarray[Any, Any]] = []
        self._free: dict[int, list[Block]] = {}
        self._chunk: np.ndarray[Any, Any] = _aligned(0)
        self._end: int = 0

    def take(self, nbytes: int) -> Block:
        """Return a block that is free, or a new one."""
        size = max(-(-nbytes // _ALIGNED) * _ALIGNED, _ALIGNED)
        free = self._free.get(size, [])
        rest = _RESTING if size == _ALIGNED else 0
        block = free.pop(-1 - rest) if len(free) > rest else self.new(size)
        block.largest = max(block.largest, nbytes)
        return block

    def new(self, nbytes: int) -> Block:
        """Return a block that was never used."""
        size = max(-(-nbytes // _ALIGNED) * _ALIGNED, _ALIGNED)
        self.nbytes += size
        if size > _SMALL:
            block = Block(self._new_chunk(size), 0, size)
        else:
            if self._end + size > len(self._chunk):
                self._chunk, self._end = self._new_chunk(_CHUNK), 0
            block = Block(self._chunk, self._end, size)
            self._end += size
        block.largest = nbytes
        return block

    def _new_chunk(self, size: int) -> np.ndarray[Any, Any]:
        self.chunks.append(_aligned(size))
        return self.chunks[-1]

    def release(self, block: Block) -> None:
        """Note that a value in a block was read for the last time."""
        block.uses -= 1
        if block.uses == 0:
            self._free.setdefault(block.size, []).append(block)


def _aligned(size: int) -> np.ndarray[Any, Any]:
    whole = np.empty(size + _ALIGNED, np.uint8)
    start = -address_of(whole) % _ALIGNED
    return whole[start : start + size]


# The place of the address in the struct of an array, which is part of NumPy's interface
# for C; reading it takes a tenth of the time of ``array.ctypes.data``.
_DATA: Final = 16
_word: Any = ctypes.c_size_t.from_address


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Return where the first item of an array lies."""
    found: int = _word(id(array) + _DATA).value
    return found


def span_of(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return where the memory of an array begins and ends."""
    low = high = address_of(array)
    if not array.size:
        return low, low
    for length, step in zip(array.shape, array.strides, strict=True):
        if step < 0:
            low += step * (length - 1)
        else:
            high += step * (length - 1)
    return low, high + array.itemsize
