"""Types of cupyx.scipy.fftpack."""

# ---- written by stubs/generate.py ----

from cupy import _Axis, _Int, _Shape, ndarray
from typing import Any
from cupyx.scipy.fft import get_fft_plan as get_fft_plan

def fft(
    x: ndarray,
    n: _Int | None = None,
    axis: _Axis = -1,
    overwrite_x: bool = False,
    plan: Any = None,
) -> ndarray: ...
def fft2(
    x: ndarray,
    shape: _Shape | None = None,
    axes: _Axis = (-2, -1),
    overwrite_x: bool = False,
    plan: Any = None,
) -> ndarray: ...
def fftn(
    x: ndarray,
    shape: _Shape | None = None,
    axes: _Axis = None,
    overwrite_x: bool = False,
    plan: Any = None,
) -> ndarray: ...
def ifft(
    x: ndarray,
    n: _Int | None = None,
    axis: _Axis = -1,
    overwrite_x: bool = False,
    plan: Any = None,
) -> ndarray: ...
def ifft2(
    x: ndarray,
    shape: _Shape | None = None,
    axes: _Axis = (-2, -1),
    overwrite_x: bool = False,
    plan: Any = None,
) -> ndarray: ...
def ifftn(
    x: ndarray,
    shape: _Shape | None = None,
    axes: _Axis = None,
    overwrite_x: bool = False,
    plan: Any = None,
) -> ndarray: ...
def irfft(
    x: ndarray, n: _Int | None = None, axis: _Axis = -1, overwrite_x: bool = False
) -> ndarray: ...
def rfft(
    x: ndarray,
    n: _Int | None = None,
    axis: _Axis = -1,
    overwrite_x: bool = False,
    plan: Any = None,
) -> ndarray: ...
