"""Functions of numpy.polynomial that NumPy hands over: polyval2d, polygrid2d, polyvalnd.

NumPy's own code runs, since it is made of other functions that have operators. All other
functions of numpy.polynomial are called through `customop.traceable`.
"""

from __future__ import annotations

from types import FunctionType

from numpy.polynomial import polynomial

from customop import register_numpy_function, traceable

__all__: list[str] = []

for _name in ("polyval2d", "polygrid2d", "polyvalnd"):
    _function = getattr(polynomial, _name, None)  # polyvalnd is new in NumPy 2.5
    # Before NumPy 2.2 they were plain functions, which nobody else sees.
    if _function is not None and not isinstance(_function, FunctionType):
        register_numpy_function(_function, traceable(_function))
