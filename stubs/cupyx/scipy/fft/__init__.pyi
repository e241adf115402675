"""Types of cupyx.scipy.fft."""

# ---- written by stubs/generate.py ----

from cupy import _ArrayLike, _Axis, _Int, _Operand, _Shape, ndarray
from typing import Any
from cupy.fft import (
    fftfreq as fftfreq,
    fftshift as fftshift,
    ifftshift as ifftshift,
    rfftfreq as rfftfreq,
)

def dct(
    x: ndarray,
    type: Any = 2,
    n: _Int | None = None,
    axis: _Axis = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> ndarray: ...
def dctn(
    x: ndarray,
    type: Any = 2,
    s: _ArrayLike | None = None,
    axes: _Axis = None,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> ndarray: ...
def dst(
    x: ndarray,
    type: Any = 2,
    n: _Int | None = None,
    axis: _Axis = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> ndarray: ...
def dstn(
    x: ndarray,
    type: Any = 2,
    s: _ArrayLike | None = None,
    axes: _Axis = None,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> ndarray: ...
def fft(
    x: ndarray,
    n: _Int | None = None,
    axis: _Axis = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def fft2(
    x: ndarray,
    s: _Shape | None = None,
    axes: _Axis = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def fftn(
    x: ndarray,
    s: _Shape | None = None,
    axes: _Axis = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def fht(
    a: ndarray,
    dln: _Operand,
    mu: _Operand,
    offset: _Operand = 0.0,
    bias: _Operand = 0.0,
) -> ndarray: ...
def get_fft_plan(
    a: ndarray, shape: _Shape | None = None, axes: _Axis = None, value_type: str = "C2C"
) -> Any: ...
def hfft(
    x: Any,
    n: _Int | None = None,
    axis: _Axis = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def hfft2(
    x: ndarray,
    s: _Shape | None = None,
    axes: _Axis = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def hfftn(
    x: ndarray,
    s: _Shape | None = None,
    axes: _Axis = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def idct(
    x: ndarray,
    type: Any = 2,
    n: _Int | None = None,
    axis: _Axis = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> ndarray: ...
def idctn(
    x: ndarray,
    type: Any = 2,
    s: _ArrayLike | None = None,
    axes: _Axis = None,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> ndarray: ...
def idst(
    x: ndarray,
    type: Any = 2,
    n: _Int | None = None,
    axis: _Axis = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> ndarray: ...
def idstn(
    x: ndarray,
    type: Any = 2,
    s: _ArrayLike | None = None,
    axes: _Axis = None,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> ndarray: ...
def ifft(
    x: ndarray,
    n: _Int | None = None,
    axis: _Axis = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def ifft2(
    x: ndarray,
    s: _Shape | None = None,
    axes: _Axis = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def ifftn(
    x: ndarray,
    s: _Shape | None = None,
    axes: _Axis = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def ifht(
    A: ndarray,
    dln: _Operand,
    mu: _Operand,
    offset: _Operand = 0.0,
    bias: _Operand = 0.0,
) -> ndarray: ...
def ihfft(
    x: Any,
    n: _Int | None = None,
    axis: _Axis = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def ihfft2(
    x: ndarray,
    s: _Shape | None = None,
    axes: _Axis = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def ihfftn(
    x: ndarray,
    s: _Shape | None = None,
    axes: _Axis = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def irfft(
    x: ndarray,
    n: _Int | None = None,
    axis: _Axis = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def irfft2(
    x: Any,
    s: _Shape | None = None,
    axes: _Axis = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def irfftn(
    x: Any,
    s: _Shape | None = None,
    axes: _Axis = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def next_fast_len(target: _Int, real: bool = False) -> int: ...
def rfft(
    x: ndarray,
    n: _Int | None = None,
    axis: _Axis = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def rfft2(
    x: Any,
    s: _Shape | None = None,
    axes: _Axis = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
def rfftn(
    x: Any,
    s: _Shape | None = None,
    axes: _Axis = None,
    norm: str | None = None,
    overwrite_x: bool = False,
    *,
    plan: Any = None,
) -> ndarray: ...
