"""The parts of graph files: a zip, values as JSON, arrays as npy, classes by name.

May import `node`, `core` and all below them. Start with ``graph/save.py`` and
``graph/load.py``, which put the parts together; `file_values` has both directions
of values.
"""
