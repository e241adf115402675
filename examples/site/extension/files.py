"""Write files that changed, so that Sphinx reads only these again."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write", "write_bytes"]


def write(path: Path, text: str) -> None:
    """Write a text where it differs from what is there."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes where they differ from what is there."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
