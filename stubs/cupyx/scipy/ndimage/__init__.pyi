"""Types of cupyx.scipy.ndimage."""

# ---- written by stubs/generate.py ----

from collections.abc import Callable
from cupy import _ArrayLike, _Axis, _Int, _Shape, ndarray
from typing import Any

def affine_transform(
    input: ndarray,
    matrix: ndarray,
    offset: _ArrayLike = 0.0,
    output_shape: _Shape | None = None,
    output: ndarray | None = None,
    order: _Int = 3,
    mode: str = "constant",
    cval: _ArrayLike = 0.0,
    prefilter: bool = True,
    *,
    texture_memory: bool = False,
    float64_coords: bool = False,
) -> Any: ...  # CuPy 14
def binary_closing(
    input: ndarray,
    structure: _ArrayLike | None = None,
    iterations: _Int = 1,
    output: ndarray | None = None,
    origin: _Shape = 0,
    mask: ndarray | None = None,
    border_value: _Int = 0,
    brute_force: bool = False,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def binary_dilation(
    input: ndarray,
    structure: _ArrayLike | None = None,
    iterations: _Int = 1,
    mask: ndarray | None = None,
    output: ndarray | None = None,
    border_value: _Int = 0,
    origin: _Shape = 0,
    brute_force: bool = False,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def binary_erosion(
    input: ndarray,
    structure: _ArrayLike | None = None,
    iterations: _Int = 1,
    mask: ndarray | None = None,
    output: ndarray | None = None,
    border_value: _Int = 0,
    origin: _Shape = 0,
    brute_force: bool = False,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def binary_fill_holes(
    input: ndarray,
    structure: ndarray | None = None,
    output: ndarray | None = None,
    origin: _Int = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def binary_hit_or_miss(
    input: ndarray,
    structure1: ndarray | None = None,
    structure2: ndarray | None = None,
    output: ndarray | None = None,
    origin1: _Shape = 0,
    origin2: _Shape | None = None,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def binary_opening(
    input: ndarray,
    structure: _ArrayLike | None = None,
    iterations: _Int = 1,
    output: ndarray | None = None,
    origin: _Shape = 0,
    mask: ndarray | None = None,
    border_value: _Int = 0,
    brute_force: bool = False,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def binary_propagation(
    input: ndarray,
    structure: ndarray | None = None,
    mask: ndarray | None = None,
    output: ndarray | None = None,
    border_value: _Int = 0,
    origin: _Shape = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def black_tophat(
    input: ndarray,
    size: _Shape | None = None,
    footprint: _ArrayLike | None = None,
    structure: _ArrayLike | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _ArrayLike = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def center_of_mass(
    input: ndarray, labels: ndarray | None = None, index: _Shape | None = None
) -> Any: ...
def convolve(
    input: ndarray,
    weights: ndarray,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _ArrayLike = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def convolve1d(
    input: ndarray,
    weights: ndarray,
    axis: _Axis = -1,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Int = 0,
) -> ndarray: ...
def correlate(
    input: ndarray,
    weights: ndarray,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _ArrayLike = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def correlate1d(
    input: ndarray,
    weights: ndarray,
    axis: _Axis = -1,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Int = 0,
) -> ndarray: ...
def distance_transform_edt(
    image: _ArrayLike,
    sampling: _ArrayLike | None = None,
    return_distances: bool = True,
    return_indices: bool = False,
    distances: ndarray | None = None,
    indices: ndarray | None = None,
    *,
    block_params: Any = None,
    float64_distances: bool = True,
) -> ndarray: ...
def extrema(
    input: ndarray, labels: ndarray | None = None, index: _Shape | None = None
) -> tuple[Any, ...]: ...
def find_objects(input: _ArrayLike, max_label: _Int = 0) -> Any: ...  # CuPy 14
def fourier_ellipsoid(
    input: ndarray,
    size: _ArrayLike,
    n: _Int = -1,
    axis: _Axis = -1,
    output: ndarray | None = None,
) -> ndarray: ...
def fourier_gaussian(
    input: ndarray,
    sigma: _ArrayLike,
    n: _Int = -1,
    axis: _Axis = -1,
    output: ndarray | None = None,
) -> ndarray: ...
def fourier_shift(
    input: ndarray,
    shift: _ArrayLike,
    n: _Int = -1,
    axis: _Axis = -1,
    output: ndarray | None = None,
) -> ndarray: ...
def fourier_uniform(
    input: ndarray,
    size: _ArrayLike,
    n: _Int = -1,
    axis: _Axis = -1,
    output: ndarray | None = None,
) -> ndarray: ...
def gaussian_filter(
    input: ndarray,
    sigma: _ArrayLike,
    order: _Int = 0,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    truncate: _ArrayLike = 4.0,
    radius: _Int | None = None,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def gaussian_filter1d(
    input: ndarray,
    sigma: _ArrayLike,
    axis: _Axis = -1,
    order: _Int = 0,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    truncate: _ArrayLike = 4.0,
) -> ndarray: ...
def gaussian_gradient_magnitude(
    input: ndarray,
    sigma: _ArrayLike,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    *,
    axes: _Axis = None,
    **kwargs: Any,
) -> ndarray: ...  # CuPy 14
def gaussian_laplace(
    input: ndarray,
    sigma: _ArrayLike,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    *,
    axes: _Axis = None,
    **kwargs: Any,
) -> ndarray: ...  # CuPy 14
def generate_binary_structure(rank: _Int, connectivity: _Int) -> ndarray: ...
def generic_filter(
    input: ndarray,
    function: Any,
    size: _Shape | None = None,
    footprint: ndarray | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _ArrayLike = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def generic_filter1d(
    input: ndarray,
    function: Any,
    filter_size: _Int,
    axis: _Axis = -1,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Int = 0,
) -> ndarray: ...
def generic_gradient_magnitude(
    input: ndarray,
    derivative: Callable[..., Any],
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    extra_arguments: Any = (),
    extra_keywords: Any = None,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def generic_laplace(
    input: ndarray,
    derivative2: Callable[..., Any],
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    extra_arguments: Any = (),
    extra_keywords: Any = None,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def grey_closing(
    input: ndarray,
    size: _Shape | None = None,
    footprint: _ArrayLike | None = None,
    structure: _ArrayLike | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _ArrayLike = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def grey_dilation(
    input: ndarray,
    size: _Shape | None = None,
    footprint: _ArrayLike | None = None,
    structure: _ArrayLike | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _ArrayLike = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def grey_erosion(
    input: ndarray,
    size: _Shape | None = None,
    footprint: _ArrayLike | None = None,
    structure: _ArrayLike | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _ArrayLike = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def grey_opening(
    input: ndarray,
    size: _Shape | None = None,
    footprint: _ArrayLike | None = None,
    structure: _ArrayLike | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _ArrayLike = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def histogram(
    input: ndarray,
    min: _Int,
    max: _Int,
    bins: _Int,
    labels: ndarray | None = None,
    index: _Shape | None = None,
) -> ndarray: ...
def iterate_structure(
    structure: _ArrayLike, iterations: _Int, origin: _Shape | None = None
) -> Any: ...
def label(
    input: ndarray, structure: _ArrayLike | None = None, output: ndarray | None = None
) -> Any: ...
def labeled_comprehension(
    input: ndarray,
    labels: ndarray,
    index: _Int,
    func: Callable[..., Any],
    out_dtype: Any,
    default: _Int,
    pass_positions: bool = False,
) -> ndarray: ...
def laplace(
    input: ndarray,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def map_coordinates(
    input: ndarray,
    coordinates: _ArrayLike,
    output: ndarray | None = None,
    order: _Int = 3,
    mode: str = "constant",
    cval: _ArrayLike = 0.0,
    prefilter: bool = True,
) -> ndarray: ...
def maximum(
    input: ndarray, labels: ndarray | None = None, index: _ArrayLike | None = None
) -> ndarray: ...
def maximum_filter(
    input: ndarray,
    size: _Shape | None = None,
    footprint: ndarray | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Shape = 0,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def maximum_filter1d(
    input: ndarray,
    size: _Int,
    axis: _Axis = -1,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Int = 0,
) -> ndarray: ...
def maximum_position(
    input: ndarray, labels: ndarray | None = None, index: _ArrayLike | None = None
) -> Any: ...
def mean(
    input: ndarray, labels: ndarray | None = None, index: ndarray | None = None
) -> ndarray: ...
def median(
    input: ndarray, labels: ndarray | None = None, index: _ArrayLike | None = None
) -> ndarray: ...
def median_filter(
    input: ndarray,
    size: _Shape | None = None,
    footprint: ndarray | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Shape = 0,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def minimum(
    input: ndarray, labels: ndarray | None = None, index: _ArrayLike | None = None
) -> ndarray: ...
def minimum_filter(
    input: ndarray,
    size: _Shape | None = None,
    footprint: ndarray | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Shape = 0,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def minimum_filter1d(
    input: ndarray,
    size: _Int,
    axis: _Axis = -1,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Int = 0,
) -> ndarray: ...
def minimum_position(
    input: ndarray, labels: ndarray | None = None, index: _ArrayLike | None = None
) -> Any: ...
def morphological_gradient(
    input: ndarray,
    size: _Shape | None = None,
    footprint: _ArrayLike | None = None,
    structure: _ArrayLike | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _ArrayLike = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def morphological_laplace(
    input: ndarray,
    size: _Shape | None = None,
    footprint: _ArrayLike | None = None,
    structure: _ArrayLike | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _ArrayLike = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def percentile_filter(
    input: ndarray,
    percentile: _ArrayLike,
    size: _Shape | None = None,
    footprint: ndarray | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Shape = 0,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def prewitt(
    input: ndarray,
    axis: _Axis = -1,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
) -> ndarray: ...
def rank_filter(
    input: ndarray,
    rank: _Int,
    size: _Shape | None = None,
    footprint: ndarray | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Shape = 0,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def rotate(
    input: ndarray,
    angle: _ArrayLike,
    axes: _Axis = (1, 0),
    reshape: bool = True,
    output: ndarray | None = None,
    order: _Int = 3,
    mode: str = "constant",
    cval: _ArrayLike = 0.0,
    prefilter: bool = True,
) -> Any: ...
def shift(
    input: ndarray,
    shift: _ArrayLike,
    output: ndarray | None = None,
    order: _Int = 3,
    mode: str = "constant",
    cval: _ArrayLike = 0.0,
    prefilter: bool = True,
) -> Any: ...
def sobel(
    input: ndarray,
    axis: _Axis = -1,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
) -> ndarray: ...
def spline_filter(
    input: ndarray, order: _Int = 3, output: Any = ..., mode: str = "mirror"
) -> ndarray: ...
def spline_filter1d(
    input: ndarray,
    order: _Int = 3,
    axis: _Axis = -1,
    output: Any = ...,
    mode: str = "mirror",
) -> ndarray: ...
def standard_deviation(
    input: ndarray, labels: ndarray | None = None, index: ndarray | None = None
) -> ndarray: ...
def sum(
    input: ndarray, labels: ndarray | None = None, index: ndarray | None = None
) -> ndarray: ...
def sum_labels(
    input: ndarray, labels: ndarray | None = None, index: ndarray | None = None
) -> ndarray: ...
def uniform_filter(
    input: ndarray,
    size: _Shape = 3,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Shape = 0,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def uniform_filter1d(
    input: ndarray,
    size: _Int,
    axis: _Axis = -1,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _Int = 0,
) -> ndarray: ...
def value_indices(
    arr: _ArrayLike,
    *,
    ignore_value: _Int | None = None,
    adaptive_index_dtype: bool = False,
) -> Any: ...
def variance(
    input: ndarray, labels: ndarray | None = None, index: ndarray | None = None
) -> ndarray: ...
def white_tophat(
    input: ndarray,
    size: _Shape | None = None,
    footprint: _ArrayLike | None = None,
    structure: _ArrayLike | None = None,
    output: ndarray | None = None,
    mode: str = "reflect",
    cval: _ArrayLike = 0.0,
    origin: _ArrayLike = 0,
    *,
    axes: _Axis = None,
) -> ndarray: ...  # CuPy 14
def zoom(
    input: ndarray,
    zoom: _ArrayLike,
    output: ndarray | None = None,
    order: _Int = 3,
    mode: str = "constant",
    cval: _ArrayLike = 0.0,
    prefilter: bool = True,
    *,
    grid_mode: bool = False,
) -> Any: ...
