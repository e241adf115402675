"""Types of cupy.lib.stride_tricks."""

# ---- written by stubs/generate.py ----

from cupy import _ArrayLike, _Axis, _Shape, ndarray

def as_strided(
    x: ndarray, shape: _Shape | None = None, strides: _Shape | None = None
) -> ndarray: ...
def sliding_window_view(
    x: _ArrayLike,
    window_shape: _Shape,
    axis: _Axis = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> ndarray: ...
