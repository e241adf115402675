"""The zip around a graph: the same bytes each time, and no surprise when it is read."""

from __future__ import annotations

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

from customop.errors import ArgumentError, GraphFileError, shown

__all__ = ["ArchiveReader", "ArchiveWriter", "reading", "writing"]

_CHUNK = 1 << 20
# What `zipfile` raises for a file that is not as the format says.
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
    """A zip that is being written: parts are stored as they are, without dates."""

    def __init__(self, zipped: zipfile.ZipFile) -> None:
        self._zipped = zipped

    def add(self, name: str, chunks: Iterator[bytes | memoryview], size: int) -> None:
        """Write one part of `size` bytes."""
        part = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
        part.create_system = 3  # otherwise it says on which system the file was made
        part.external_attr = 0o644 << 16
        part.file_size = size  # zipfile decides by it whether 4 GB are enough
        with self._zipped.open(part, "w") as file:
            for chunk in chunks:
                file.write(chunk)


def is_file(target: Any, method: str) -> bool:
    """Whether a target is an open file; if not, it must be a path."""
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
    """Write a zip to a path or to a file open for writing bytes.

    Nothing reaches the target before the block has ended without an error.
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
    """A new file that takes the place of `path` if the block ends without an error."""
    final = Path(os.path.realpath(path))  # a link goes on to point at the file
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
    """A zip whose parts have been checked: names, sizes and compression."""

    def __init__(
        self, zipped: zipfile.ZipFile, parts: Mapping[str, zipfile.ZipInfo]
    ) -> None:
        self._zipped = zipped
        self.parts: Mapping[str, zipfile.ZipInfo] = parts

    def size(self, name: str) -> int:
        """Number of bytes of a part."""
        return self._part(name).file_size

    def _part(self, name: str) -> zipfile.ZipInfo:
        if name not in self.parts:
            raise GraphFileError(f"the part '{name}' is missing")
        return self.parts[name]

    def read(self, name: str) -> bytes:
        """All bytes of a part."""
        with self.open(name) as read:
            return read(self.size(name))

    @contextmanager
    def open(self, name: str) -> Iterator[Callable[[int], bytes]]:
        """Read a part piece by piece: gives a function of the number of bytes.

        Each piece has exactly as many bytes as were asked for, and the pieces must be all
        of the part.
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
                rest = file.read(1)  # at its end the checksum is compared
            if rest:
                raise GraphFileError(f"the part '{name}' is too long")


@contextmanager
def reading(source: Any, limit: int) -> Iterator[ArchiveReader]:
    """Open a zip from a path or from a file open for reading bytes.

    Raises
    ------
    GraphFileError
        If it is not a zip, or if it is not such a one as `writing` makes. Parts that are
        compressed, as other programs write them, may have `limit` bytes in all.
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
    """The text of an error of the standard library, which may quote the file."""
    return shown(error.args[0]) if error.args else type(error).__name__


def _check_names(parts: Sequence[zipfile.ZipInfo]) -> None:
    seen = set()
    for part in parts:
        if part.filename in seen:
            raise GraphFileError(f"two parts have the name {shown(part.filename)}")
        seen.add(part.filename)


def _check_sizes(parts: Sequence[zipfile.ZipInfo], length: int, limit: int) -> None:
    """Raise unless all parts together fit in the file, or in the limit."""
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
