"""Types of CuPy arrays for annotations."""

from typing import Any, TypeAlias, TypeVar

import numpy
from numpy.typing import ArrayLike as ArrayLike, DTypeLike as DTypeLike
from numpy.typing import NBitBase as NBitBase

from cupy import ndarray

_ScalarT = TypeVar("_ScalarT", bound=numpy.generic)

NDArray: TypeAlias = ndarray[Any, numpy.dtype[_ScalarT]]
