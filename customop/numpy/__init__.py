"""NumPy's functions as operators, in the namespace ``np``."""

from customop.numpy import create, elementwise, index, linalg, reduce, shape

__all__ = ["create", "elementwise", "index", "linalg", "reduce", "shape"]
