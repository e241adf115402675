"""The alias for parameters that are dtypes.

In a module of its own, since `numpy.typing` takes 0.4 ms to import.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy.typing as npt

from customop.schema.annotations import Meaning

DType: TypeAlias = Annotated[npt.DTypeLike, Meaning("dtype")]
