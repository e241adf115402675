"""Arrays in a file of their own, in the format of safetensors.

It is eight bytes that give the length of a header, the header in JSON, and the elements
of all arrays one after another. Reading one needs no other package, and takes from the
file only what is used. Source: the description of the format in the safetensors project,
version 0.5.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from customop.errors import GraphFileError, quoted, shown
from customop.graph.files.dtypes import stored_dtype, written_dtype
from customop.graph.files.fields import as_entries, as_integer, as_list
from customop.graph.files.layout import element_chunks, read_shape

__all__ = ["WeightsReader", "can_be_outside", "write_weights"]

# Dtype as graph files have it -> its name in safetensors.
_NAMES: dict[str, str] = {
    "|b1": "BOOL",
    "|u1": "U8",
    "|i1": "I8",
    "<u2": "U16",
    "<i2": "I16",
    "<f2": "F16",
    "<u4": "U32",
    "<i4": "I32",
    "<f4": "F32",
    "<u8": "U64",
    "<i8": "I64",
    "<f8": "F64",
    "<c8": "C64",
    "ml_dtypes.bfloat16": "BF16",
    "ml_dtypes.float8_e4m3fn": "F8_E4M3",
    "ml_dtypes.float8_e5m2": "F8_E5M2",
}
_LONGEST_HEADER = 100_000_000


def _name(dtype: Any) -> str | None:
    """The name of a dtype, given as the JSON of graph files."""
    written = dtype.get("name") if isinstance(dtype, dict) else dtype
    return _NAMES.get(written) if isinstance(written, str) else None


def can_be_outside(x: np.ndarray[Any, Any]) -> bool:
    """Whether the format has a form for an array, repeated elements aside."""
    repeats = 0 in x.strides and x.size > 1
    return not repeats and _name(written_dtype(x.dtype)) is not None


# ---- writing ----


def write_weights(file: IO[bytes], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write arrays; those with the largest elements first, so that all are aligned."""
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": {"format": "np"}}
    start = 0
    for name in order:
        x = arrays[name]
        end = start + x.nbytes
        header[name] = {
            "dtype": _name(written_dtype(x.dtype)),
            "shape": [*x.shape],
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for name in order:
        for chunk in element_chunks(arrays[name]):
            file.write(chunk)


# ---- reading ----


class WeightsReader:
    """A safetensors file whose header has been checked.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path)
        try:
            with self.path.open("rb") as file:
                self._start, header = _read_header(file)
        except FileNotFoundError as error:
            raise GraphFileError(
                f"the weights {shown(str(path))} are missing",
                do='give their path: load_graph(path, weights="model.safetensors")',
            ) from error
        except GraphFileError as error:
            raise self._error(error.what) from error
        header.pop("__metadata__", None)
        self._header: dict[str, Any] = header

    def check_names(self, expected: set[str]) -> None:
        """Raise if the file has arrays of other names, too."""
        more = set(self._header) - expected
        if more:
            raise self._error(f"the graph has no {quoted(sorted(more)[:8])}")

    def read(
        self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> np.ndarray[Any, Any]:
        """An array, whose elements are read when they are used.

        Raises
        ------
        GraphFileError
            If the file has no array of the name, or another dtype or shape.
        """
        entry = self._header.get(name)
        if entry is None:
            raise self._error(f"they lack '{name}'")
        wanted = _name(written_dtype(dtype))
        if entry["dtype"] != wanted or tuple(entry["shape"]) != shape:
            raise self._error(
                f"'{name}' is {entry['dtype']} {entry['shape']} there, and"
                f" {wanted} {[*shape]} in the graph"
            )
        begin, end = entry["data_offsets"]
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise self._error(f"'{name}' has {end - begin} bytes")
        if begin == end:
            return np.empty(shape, dtype)
        # Changes are not written back to the file.
        mapped = np.memmap(
            self.path, np.uint8, "c", self._start + begin, (end - begin,)
        )
        found = np.asarray(mapped).view(stored_dtype(dtype)).view(dtype).reshape(shape)
        return found if found.flags.aligned else found.copy()

    def _error(self, what: str) -> GraphFileError:
        return GraphFileError(
            f"the weights {shown(str(self.path))} do not fit the graph: {what}",
            do="use the file that was saved with the graph, or one with the same arrays",
        )


def _read_header(file: IO[bytes]) -> tuple[int, dict[str, Any]]:
    """Where the elements begin, and the checked header."""
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    first = file.read(8)
    count = struct.unpack("<Q", first)[0] if len(first) == 8 else length
    if count > min(length - 8, _LONGEST_HEADER):
        raise GraphFileError("it is not a safetensors file")
    try:
        header = json.loads(file.read(count))
    except (ValueError, RecursionError) as error:
        raise GraphFileError("its header is not JSON") from error
    if not isinstance(header, dict):
        raise GraphFileError("its header is not an object of JSON")
    for name, entry in header.items():
        if name != "__metadata__":
            _check_entry(name, entry, length - 8 - count)
    return 8 + count, header


def _check_entry(name: str, written: Any, length: int) -> None:
    entry = as_entries(written, f"'{name}'", "dtype shape data_offsets")
    read_shape(entry["shape"])
    offsets = as_list(entry["data_offsets"], "data_offsets", 2)
    begin, end = (as_integer(n, "an offset", length + 1) for n in offsets)
    if begin > end:
        raise GraphFileError(f"'{name}' ends before it begins")
