"""Formats inside graph files: a zip, values as JSON, arrays as npy, classes by name.

May import `node`, `core` and all below them. Start with ``graph/save.py`` and
``graph/load.py``, which use these formats. `file_values` converts values in both
directions.
"""
