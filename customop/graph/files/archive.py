"""The zip of a graph file, its arrays, and arrays in a separate file."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from customop.errors import ArgumentError, GraphFileError, quoted, shown
from customop.graph.files.fields import (
    as_entries,
    as_integer,
    as_list,
    read_dtype,
    stored_dtype,
    written_dtype,
)

# ---- the zip ----
# Equal graphs give equal bytes, and reading a zip is safe.


_CHUNK = 1 << 20
# What `zipfile` raises for a file that breaks the format.
_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    IndexError,
    KeyError,
    RuntimeError,  # an encrypted part; NotImplementedError for an unknown compression
    ValueError,
    OverflowError,
)


# ---- writing ----


class ArchiveWriter:
    """A zip that is being written. Its parts are not compressed and have no dates."""

    def __init__(self, zipped: zipfile.ZipFile) -> None:
        self._zipped = zipped

    def add(self, name: str, chunks: Iterator[bytes | memoryview], size: int) -> None:
        """Write one part of `size` bytes."""
        part = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
        part.create_system = 3  # otherwise it would name the operating system
        part.external_attr = 0o644 << 16
        part.file_size = size  # zipfile uses it to decide whether 4 GB are enough
        with self._zipped.open(part, "w") as file:
            for chunk in chunks:
                file.write(chunk)


def is_file(target: Any, method: str) -> bool:
    """Return whether a target is an open file; otherwise it must be a path."""
    if hasattr(target, method):
        return True
    if not isinstance(target, str | os.PathLike):
        raise ArgumentError(
            f"{shown(target)} is neither a path nor a file open for {method[:4]}ing bytes",
            do='write a path, such as "model.graph"',
        )
    return False


@contextmanager
def writing(target: Any) -> Iterator[ArchiveWriter]:
    """Write a zip to a path, or to a file open for writing bytes.

    Nothing reaches the target until the block has ended without an error.
    """
    if is_file(target, "write"):
        with tempfile.TemporaryFile() as whole:
            with _zip(whole) as archive:
                yield archive
            whole.seek(0)
            shutil.copyfileobj(whole, target, _CHUNK)
        return
    with replacing(target) as file, _zip(file) as archive:
        yield archive


@contextmanager
def _zip(file: IO[bytes]) -> Iterator[ArchiveWriter]:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as zipped:
        yield ArchiveWriter(zipped)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a new file that replaces `path` if the block ends without an error."""
    final = Path(os.path.realpath(path))  # a link keeps pointing at the file
    beside = final.with_name(f"{final.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            shutil.copymode(final, beside)
        beside.replace(final)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


# ---- reading ----


class ArchiveReader:
    """A zip whose names, sizes and compression have been checked."""

    def __init__(
        self, zipped: zipfile.ZipFile, parts: Mapping[str, zipfile.ZipInfo]
    ) -> None:
        self._zipped = zipped
        self.parts: Mapping[str, zipfile.ZipInfo] = parts

    def size(self, name: str) -> int:
        """Return the number of bytes in a part."""
        return self._part(name).file_size

    def _part(self, name: str) -> zipfile.ZipInfo:
        if name not in self.parts:
            raise GraphFileError(f"the part '{name}' is missing")
        return self.parts[name]

    def read(self, name: str) -> bytes:
        """Return all bytes of a part."""
        with self.open(name) as read:
            return read(self.size(name))

    @contextmanager
    def open(self, name: str) -> Iterator[Callable[[int], bytes]]:
        """Open a part; yield a function that reads a given number of bytes.

        Each call returns exactly as many bytes as were requested, and together the
        calls must read the whole part.
        """
        part = self._part(name)
        with _faults(f"the part '{name}' cannot be read"):
            file = self._zipped.open(part)

        def read(count: int) -> bytes:
            with _faults(f"the part '{name}' cannot be read"):
                found = file.read(count)
            if len(found) != count:
                raise GraphFileError(f"the part '{name}' is too short")
            return found

        with file:
            yield read
            with _faults(f"the part '{name}' cannot be read"):
                rest = file.read(1)  # the checksum is compared at the end
            if rest:
                raise GraphFileError(f"the part '{name}' is too long")


@contextmanager
def reading(source: Any, limit: int) -> Iterator[ArchiveReader]:
    """Open a zip from a path, or from a file open for reading bytes.

    Raises
    ------
    GraphFileError
        If it is not a zip, or not one that `writing` could have made. Parts that are
        compressed, as other programs write them, may unpack to `limit` bytes in all.
    """
    with (
        nullcontext(source)
        if is_file(source, "read")
        else Path(source).open("rb") as file
    ):
        with _faults("the file is not a graph file"):
            length = file.seek(0, os.SEEK_END)
            zipped = zipfile.ZipFile(file)
        with zipped:
            parts = zipped.infolist()
            _check_names(parts)
            _check_sizes(parts, length, limit)
            yield ArchiveReader(zipped, {part.filename: part for part in parts})


@contextmanager
def _faults(what: str) -> Iterator[None]:
    try:
        yield
    except _FAULTS as error:
        raise GraphFileError(f"{what}: {shown_error(error)}") from error


def shown_error(error: BaseException) -> str:
    """Return the text of an error of the standard library, which may quote the file."""
    return shown(error.args[0]) if error.args else type(error).__name__


def _check_names(parts: Sequence[zipfile.ZipInfo]) -> None:
    seen = set()
    for part in parts:
        if part.filename in seen:
            raise GraphFileError(f"two parts have the name {shown(part.filename)}")
        seen.add(part.filename)


def _check_sizes(parts: Sequence[zipfile.ZipInfo], length: int, limit: int) -> None:
    """Raise unless all parts together fit into the file and the limit."""
    stored = unpacked = 0
    for part in parts:
        if not 0 <= part.header_offset < length:
            raise GraphFileError(f"the part {shown(part.filename)} is outside the file")
        if part.compress_type == zipfile.ZIP_STORED:
            stored += part.file_size
            if part.compress_size != part.file_size:
                raise GraphFileError(
                    f"the part {shown(part.filename)} has two different sizes"
                )
        elif part.compress_type == zipfile.ZIP_DEFLATED:
            stored += part.compress_size
            unpacked += part.file_size
        else:
            raise GraphFileError(
                f"the part {shown(part.filename)} is compressed by method"
                f" {part.compress_type}",
                do="pack the file without compression",
            )
    if stored > length:
        raise GraphFileError(
            f"the parts have {stored} bytes, and the file has {length}"
        )
    if unpacked > limit:
        raise GraphFileError(
            f"the compressed parts have {unpacked} bytes, more than the limit of {limit}",
            do=f"if you trust the file: load_graph(path, limit={unpacked})",
        )


# ---- arrays in a graph file: npy parts, and their memory layout in the JSON ----
# NumPy's sums depend on the order of axes in memory. So an array is read with the
# strides that it had when it was written.


_MAGIC = b"\x93NUMPY"
_LAYOUT_CHUNK = 1 << 22
# Gaps between elements are kept if the memory is at most this many times the elements.
_SPARSEST = 16
_MOST_AXES = 64


# ---- writing ----


def described_array(x: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the JSON form of an array: dtype, shape, and strides unless in C order.

    Raises
    ------
    ValueError
        If files have no form for the dtype.
    """
    found = {"dtype": written_dtype(x.dtype), "shape": [*x.shape]}
    if not x.flags.c_contiguous:
        found["strides"] = [*_strides(x)]
    return found


def _strides(x: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """Return the strides of an array, or those of a dense copy if it has large gaps."""
    if _extent(x.shape, x.strides, x.itemsize) <= _roomy(
        x.shape, x.strides, x.itemsize
    ):
        return x.strides
    return np.empty_like(x, subok=False).strides


def _extent(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes from the first to the last element in memory."""
    steps = zip(shape, strides, strict=True)
    return sum((length - 1) * abs(step) for length, step in steps) + itemsize


def _roomy(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    return _SPARSEST * math.prod(_core(shape, strides)) * itemsize + 4096


def _core(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the shape to store: an axis that repeats one element is stored once."""
    if strides is None:
        return shape
    steps = zip(shape, strides, strict=True)
    return tuple(min(length, 1) if step == 0 else length for length, step in steps)


def _stored(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the elements of an array that are stored."""
    strides = None if x.flags.c_contiguous else _strides(x)
    if strides is not None and x.size:
        x = x[tuple(slice(n) for n in _core(x.shape, strides))]
    return x.view(stored_dtype(x.dtype))


def npy_size(x: np.ndarray[Any, Any]) -> int:
    """Return the number of bytes in the npy part of an array."""
    stored = _stored(x)
    return len(_header(stored.dtype, stored.shape)) + stored.nbytes


def npy_chunks(x: np.ndarray[Any, Any]) -> Iterator[bytes]:
    """Yield the bytes of an array's npy part, in C order."""
    stored = _stored(x)
    yield _header(stored.dtype, stored.shape)
    yield from element_chunks(stored)


def element_chunks(x: np.ndarray[Any, Any]) -> Iterator[bytes]:
    """Yield the elements of an array as bytes in C order, in pieces."""
    stored = x.view(stored_dtype(x.dtype))
    if stored.size == 0:
        return
    pieces = np.nditer(
        stored,
        flags=["external_loop", "buffered", "zerosize_ok"],
        buffersize=max(_LAYOUT_CHUNK // stored.itemsize, 1),
        order="C",
    )
    for piece in pieces:
        yield piece.tobytes("C")  # type: ignore[attr-defined]  # an array, not a tuple


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the npy header of an array in C order.

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
    """Return a shape of whole numbers from its JSON form."""
    shape = as_list(written, "a shape")
    if len(shape) > _MOST_AXES:
        raise GraphFileError(f"a shape has {len(shape)} axes")
    return tuple(as_integer(length, "a length of a shape") for length in shape)


def read_npy(
    written: Any, size: int, read: Callable[[int], bytes]
) -> np.ndarray[Any, Any]:
    """Read an array of `size` bytes that its JSON form describes.

    Memory is allocated only if the number of elements matches the number of bytes.
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
    """Read the elements of an array in pieces."""
    memory = flat.view(np.uint8)
    for start in range(0, len(memory), _LAYOUT_CHUNK):
        piece = memory[start : start + _LAYOUT_CHUNK]
        piece[:] = np.frombuffer(read(len(piece)), np.uint8)


def read_strides(
    written: Any, shape: tuple[int, ...], itemsize: int
) -> tuple[int, ...] | None:
    """Return strides without large gaps, or None for an array in C order."""
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
    """Return an array with these strides that has the elements of `core`."""
    if strides is None or 0 in shape:
        return core.reshape(shape)
    memory = np.zeros(_extent(shape, strides, core.itemsize), np.uint8)
    steps = zip(shape, strides, strict=True)
    first = sum((length - 1) * -step for length, step in steps if step < 0)
    found: np.ndarray[Any, Any] = np.ndarray(shape, core.dtype, memory, first, strides)
    found[tuple(slice(n) for n in core.shape)] = core
    return found


# ---- arrays in a separate file, in the safetensors format ----
# The file has eight bytes for the length of the header, the header as JSON, and the
# elements of all arrays one after another. Reading it needs no other package, and only
# what is used is read. Source: the description of the format in the safetensors
# project, version 0.5.


# Dtype as in graph files -> its name in safetensors.
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
    """Return the safetensors name of a dtype from its JSON form, or None."""
    written = dtype.get("name") if isinstance(dtype, dict) else dtype
    return _NAMES.get(written) if isinstance(written, str) else None


def can_be_outside(x: np.ndarray[Any, Any]) -> bool:
    """Return whether an array can be in a separate file; repeated elements cannot."""
    repeats = 0 in x.strides and x.size > 1
    return not repeats and _name(written_dtype(x.dtype)) is not None


# ---- writing ----


def write_weights(file: IO[bytes], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write arrays, those with the largest elements first, so that all are aligned."""
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
    """Reads a safetensors file whose header has been checked.

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
        """Raise if the file contains arrays that the graph does not have."""
        more = set(self._header) - expected
        if more:
            raise self._error(f"the graph has no {quoted(sorted(more)[:8])}")

    def read(
        self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> np.ndarray[Any, Any]:
        """Return an array whose elements are read from the file when they are used.

        Raises
        ------
        GraphFileError
            If the file has no such array, or its dtype or shape differs.
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
    """Return the position of the elements, and the checked header."""
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
