"""Arrays in a graph file: npy parts, and the layout in memory beside them.

The sums of NumPy depend on the order of axes in memory, so an array is read with the
strides that it was written with.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from customop.errors import GraphFileError
from customop.graph.files.dtypes import read_dtype, stored_dtype, written_dtype
from customop.graph.files.fields import as_entries, as_integer, as_list

__all__ = [
    "described_array",
    "element_chunks",
    "laid_out",
    "npy_chunks",
    "npy_size",
    "read_npy",
    "read_shape",
    "read_strides",
]

_MAGIC = b"\x93NUMPY"
_CHUNK = 1 << 22
# Memory between the elements is kept up to this many times that of the elements.
_SPARSEST = 16
_MOST_AXES = 64


# ---- writing ----


def described_array(x: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The JSON of an array: its dtype, its shape, and its strides unless in C order.

    Raises
    ------
    ValueError
        If files have no form for its dtype.
    """
    found = {"dtype": written_dtype(x.dtype), "shape": [*x.shape]}
    if not x.flags.c_contiguous:
        found["strides"] = [*_strides(x)]
    return found


def _strides(x: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """The strides of an array, or those of a dense copy if it has large gaps."""
    if _extent(x.shape, x.strides, x.itemsize) <= _roomy(
        x.shape, x.strides, x.itemsize
    ):
        return x.strides
    return np.empty_like(x, subok=False).strides


def _extent(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Bytes from the first to the last element in memory."""
    steps = zip(shape, strides, strict=True)
    return sum((length - 1) * abs(step) for length, step in steps) + itemsize


def _roomy(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    return _SPARSEST * math.prod(_core(shape, strides)) * itemsize + 4096


def _core(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> tuple[int, ...]:
    """The shape of what is stored: an axis that repeats one element is stored once."""
    if strides is None:
        return shape
    steps = zip(shape, strides, strict=True)
    return tuple(min(length, 1) if step == 0 else length for length, step in steps)


def _stored(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements of an array that are stored."""
    strides = None if x.flags.c_contiguous else _strides(x)
    if strides is not None and x.size:
        x = x[tuple(slice(n) for n in _core(x.shape, strides))]
    return x.view(stored_dtype(x.dtype))


def npy_size(x: np.ndarray[Any, Any]) -> int:
    """Number of bytes of the npy part of an array."""
    stored = _stored(x)
    return len(_header(stored.dtype, stored.shape)) + stored.nbytes


def npy_chunks(x: np.ndarray[Any, Any]) -> Iterator[bytes]:
    """The npy part of an array, in C order."""
    stored = _stored(x)
    yield _header(stored.dtype, stored.shape)
    yield from element_chunks(stored)


def element_chunks(x: np.ndarray[Any, Any]) -> Iterator[bytes]:
    """The elements of an array in C order, some at a time."""
    stored = x.view(stored_dtype(x.dtype))
    if stored.size == 0:
        return
    pieces = np.nditer(
        stored,
        flags=["external_loop", "buffered", "zerosize_ok"],
        buffersize=max(_CHUNK // stored.itemsize, 1),
        order="C",
    )
    for piece in pieces:
        yield piece.tobytes("C")  # type: ignore[attr-defined]  # an array, not a tuple


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The bytes in front of the elements, for an array in C order.

    Source: numpy.lib.format, versions 2.0 and 3.0 of the npy format.
    """
    text = _header_text(dtype, shape)
    coded = text.encode("utf-8")
    version = 2 if text.isascii() else 3
    padding = -(len(_MAGIC) + 2 + 4 + len(coded) + 1) % 64
    line = coded + b" " * padding + b"\n"
    return _MAGIC + bytes((version, 0)) + struct.pack("<I", len(line)) + line


def _header_text(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    described = np.lib.format.dtype_to_descr(dtype)
    return f"{{'descr': {described!r}, 'fortran_order': False, 'shape': {shape!r}, }}"


# ---- reading ----


def read_shape(written: Any) -> tuple[int, ...]:
    """A shape of whole numbers."""
    shape = as_list(written, "a shape")
    if len(shape) > _MOST_AXES:
        raise GraphFileError(f"a shape has {len(shape)} axes")
    return tuple(as_integer(length, "a length of a shape") for length in shape)


def read_npy(
    written: Any, size: int, read: Callable[[int], bytes]
) -> np.ndarray[Any, Any]:
    """Read an array of `size` bytes as its JSON describes it.

    Nothing is allocated before the number of elements fits the number of bytes.
    """
    entries = as_entries(written, "an array", "dtype shape", "strides")
    dtype, shape = read_dtype(entries["dtype"]), read_shape(entries["shape"])
    strides = read_strides(entries.get("strides"), shape, dtype.itemsize)
    core = _core(shape, strides)
    stored = stored_dtype(dtype)
    header = _header(stored, core)
    if size != len(header) + math.prod(core) * dtype.itemsize:
        raise GraphFileError(
            f"an array of the shape {core} and dtype {dtype} has {size} bytes"
        )
    if math.prod(max(n, 1) for n in shape) * dtype.itemsize >= 2**63:
        raise GraphFileError(f"the shape {shape} is too large")
    if read(len(header)) != header:
        raise GraphFileError("the header of an npy part differs from graph.json")
    flat = np.empty(math.prod(core), stored)
    fill(flat, read)
    return laid_out(flat.view(dtype).reshape(core), shape, strides)


def fill(flat: np.ndarray[Any, Any], read: Callable[[int], bytes]) -> None:
    """Read the elements of an array piece by piece."""
    memory = flat.view(np.uint8)
    for start in range(0, len(memory), _CHUNK):
        piece = memory[start : start + _CHUNK]
        piece[:] = np.frombuffer(read(len(piece)), np.uint8)


def read_strides(
    written: Any, shape: tuple[int, ...], itemsize: int
) -> tuple[int, ...] | None:
    """Strides that leave no large gaps; None for an array in C order."""
    if written is None:
        return None
    given = as_list(written, "the strides", len(shape))
    strides = tuple(as_integer(n, "a stride", 2**62, -(2**62)) for n in given)
    if 0 in shape:
        return strides
    if _extent(shape, strides, itemsize) > _roomy(shape, strides, itemsize):
        raise GraphFileError(f"the strides {strides} are too large for {shape}")
    return strides


def laid_out(
    core: np.ndarray[Any, Any], shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> np.ndarray[Any, Any]:
    """The array of these strides whose elements are those of `core`."""
    if strides is None or 0 in shape:
        return core.reshape(shape)
    memory = np.zeros(_extent(shape, strides, core.itemsize), np.uint8)
    steps = zip(shape, strides, strict=True)
    first = sum((length - 1) * -step for length, step in steps if step < 0)
    found: np.ndarray[Any, Any] = np.ndarray(shape, core.dtype, memory, first, strides)
    found[tuple(slice(n) for n in core.shape)] = core
    return found
