"""Types of cupy.exceptions."""

# ---- written by stubs/generate.py ----

from numpy.exceptions import (
    AxisError as AxisError,
    ComplexWarning as ComplexWarning,
    ModuleDeprecationWarning as ModuleDeprecationWarning,
    RankWarning as RankWarning,
    TooHardError as TooHardError,
    VisibleDeprecationWarning as VisibleDeprecationWarning,
)
