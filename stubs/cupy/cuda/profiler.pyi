"""Types of cupy.cuda.profiler."""

# ---- written by stubs/generate.py ----

from cupy.cuda.runtime import profilerStart as start, profilerStop as stop
