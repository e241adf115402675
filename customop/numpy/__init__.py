"""NumPy's functions as operators, in the namespace ``np``.

Imports only the public names of `customop`, and NumPy. Start with `ufuncs`, the
simplest table; `rules` has what the tables share. A new function is an
operator in the file of its theme, and a name in the table below.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["MODULES"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise AttributeError(
            f"module 'customop.numpy' has no attribute '{name}'"
            "\n  do: import numpy as np: its functions work in transforms"
        )


# Module -> the NumPy functions that it registers. A module is imported when a traced or
# fake array first meets one of them, or when operators are listed; `ufuncs` even makes its
# operators one by one, see `ON_DEMAND` there. ".at" is that method of every ufunc.
MODULES: dict[str, str] = {
    "arrange": "flip flipud fliplr rot90 roll tril triu copy astype real imag diagonal diag"
    " diagflat trace",
    "choose": "where select clip apply_along_axis apply_over_axes piecewise choose",
    "create": "array asarray asanyarray ascontiguousarray asfortranarray require"
    " fromfunction full_like zeros_like ones_like empty_like zeros ones empty full"
    " eye",
    "cumulative": "prod cumsum cumprod cumulative_sum cumulative_prod",
    "differences": "diff ediff1d trapezoid unwrap cross interp gradient",
    "edit": "delete insert resize trim_zeros extract block pad",
    "eigen": "linalg.eigh linalg.eigvalsh linalg.eig linalg.eigvals linalg.svd"
    " linalg.svdvals",
    "einsum": "einsum einsum_path",
    "elementwise": "isclose allclose array_equal array_equiv isreal iscomplex isposinf isneginf"
    " can_cast common_type min_scalar_type lib.scimath.sqrt lib.scimath.log"
    " lib.scimath.log2 lib.scimath.log10 lib.scimath.arccos lib.scimath.arcsin"
    " lib.scimath.arctanh lib.scimath.logn lib.scimath.power sinc i0 angle"
    " nan_to_num real_if_close round around fix modf frexp divmod",
    "fft": "fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft fft.fftn fft.fft2"
    " fft.ifftn fft.ifft2 fft.rfftn fft.rfft2 fft.irfftn fft.irfft2 fft.fftshift"
    " fft.ifftshift convolve correlate",
    "histogram": "bincount digitize histogram_bin_edges histogram histogramdd histogram2d",
    "index_operators": "",
    "indexing": "_operator.getitem _operator.setitem take take_along_axis compress",
    "join": "concatenate append stack vstack hstack dstack column_stack split array_split"
    " hsplit vsplit dsplit unstack tile repeat",
    "least_squares": "linalg.pinv linalg.lstsq linalg.matrix_rank linalg.cond linalg.norm"
    " linalg.matrix_norm linalg.vector_norm",
    "matrices": "matmul tensordot dot inner vdot outer kron vecdot matvec vecmat"
    " linalg.multi_dot linalg.vecdot linalg.matmul linalg.tensordot linalg.outer"
    " linalg.cross linalg.diagonal linalg.trace linalg.matrix_transpose",
    "places": "nonzero flatnonzero argwhere ravel_multi_index unravel_index ix_"
    " tril_indices_from triu_indices_from diag_indices_from packbits unpackbits"
    " lib.stride_tricks.sliding_window_view",
    "polynomial": "polyval polyadd polysub polymul polydiv polyder polyint roots poly vander"
    " polyfit polynomial.polynomial.polyval2d polynomial.polynomial.polygrid2d"
    " polynomial.polynomial.polyvalnd",
    "quantiles": "quantile percentile nanquantile nanpercentile median nanmedian",
    "ranges": "linspace logspace geomspace arange identity tri",
    "reductions": "sum mean max amax min amin any all",
    "rules": "",
    "shape": "expand_dims squeeze broadcast_to broadcast_arrays meshgrid ndim shape"
    " iscomplexobj isrealobj size result_type reshape ravel atleast_1d atleast_2d"
    " atleast_3d transpose moveaxis swapaxes rollaxis matrix_transpose",
    "solve": "linalg.det linalg.slogdet linalg.inv linalg.solve linalg.matrix_power"
    " linalg.tensorsolve linalg.tensorinv linalg.cholesky linalg.qr",
    "sort": "partition argpartition lexsort sort_complex searchsorted unique unique_all"
    " unique_counts unique_inverse unique_values union1d intersect1d setxor1d"
    " setdiff1d isin argmax argmin sort argsort",
    "statistics": "cov corrcoef nansum nanprod nancumsum nancumprod nanmax nanmin nanargmax"
    " nanargmin nanmean nanvar nanstd var std count_nonzero ptp average",
    "ufunc_methods": ".reduce .accumulate .reduceat .outer",
    "ufuncs": "add subtract multiply divide negative positive square reciprocal sqrt cbrt"
    " conjugate copysign ldexp nextafter heaviside power float_power remainder"
    " fmod hypot arctan2 logaddexp logaddexp2 maximum minimum fmax fmin absolute"
    " fabs sign exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos"
    " arctan sinh cosh tanh arcsinh arccosh arctanh deg2rad rad2deg radians"
    " degrees floor ceil trunc rint signbit"
    " isnan isinf isfinite isnat spacing bitwise_count equal not_equal less"
    " less_equal greater greater_equal logical_and logical_or logical_xor"
    " logical_not bitwise_and bitwise_or bitwise_xor invert left_shift right_shift"
    " gcd lcm floor_divide",
    "writers": "copyto putmask place put fill_diagonal put_along_axis .at .__setitem__",
}
