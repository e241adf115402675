"""Types of cupy.lib."""

# ---- written by stubs/generate.py ----

from cupy.lib import stride_tricks as stride_tricks
