"""The error for values that a graph file cannot hold."""

from __future__ import annotations

__all__ = ["NotWritable"]


class NotWritable(Exception):
    """Files have no form for a value; the text says why."""
