"""Types of cupy.polynomial."""

# ---- written by stubs/generate.py ----

from cupy.polynomial import polynomial as polynomial, polyutils as polyutils
