"""SciPy's functions as operators. Import this module by name, after ``pip install scipy``.

The functions in `special`, `linalg`, `sparse`, `fft`, `signal` and `stats` work on
traced, fake and plain arrays. After this import, the ufuncs of `scipy.special` itself
work too. Other functions of SciPy fail for traced values, because they need real arrays.
Start with `special_ufuncs`.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from customop.scipy import linalg, sparse, special

if TYPE_CHECKING:
    from customop.scipy import fft, signal, stats

__all__ = ["fft", "linalg", "signal", "sparse", "special", "stats"]


def __getattr__(name: str) -> ModuleType:
    """Import a module when it is asked for: `scipy.stats` alone takes half a second."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
