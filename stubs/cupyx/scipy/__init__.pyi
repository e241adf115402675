"""Types of cupyx.scipy."""

# ---- written by stubs/generate.py ----

from types import ModuleType
from typing import Any
from cupyx.scipy import (
    fft as fft,
    fftpack as fftpack,
    interpolate as interpolate,
    linalg as linalg,
    ndimage as ndimage,
    signal as signal,
    sparse as sparse,
    spatial as spatial,
    special as special,
    stats as stats,
)

def get_array_module(*args: Any) -> ModuleType: ...
