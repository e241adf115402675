"""NumPy's functions as operators, in the namespace ``np``.

Imports only the public names of `customop`, and NumPy. Start with `elementwise`, the
simplest table; `rules` and `fakes` have what the tables share. A new function is an
operator in the file of its theme, and a name in the table below.
"""

__all__ = ["MODULES"]

# Module -> the NumPy functions that it registers. A module is imported when a traced or
# fake array first meets one of them, or when operators are listed. ".at" is that method
# of every ufunc.
MODULES: dict[str, str] = {
    "arrange": "flip flipud fliplr rot90 roll tril triu copy astype real imag",
    "bins": "bincount digitize",
    "broadcasting": "expand_dims squeeze broadcast_to broadcast_arrays meshgrid ndim shape"
    " iscomplexobj isrealobj size result_type",
    "choose": "where select clip",
    "checked": "",
    "compare": "isclose allclose array_equal array_equiv isreal iscomplex isposinf"
    " isneginf can_cast common_type min_scalar_type",
    "convert": "array asarray asanyarray ascontiguousarray asfortranarray require"
    " fromfunction",
    "covariance": "cov corrcoef",
    "create": "full_like zeros_like ones_like empty_like zeros ones empty full eye",
    "differences": "diff ediff1d trapezoid unwrap cross",
    "diagonals": "diagonal diag diagflat trace",
    "edit": "delete insert resize trim_zeros extract block",
    "determinant": "linalg.det linalg.slogdet",
    "eigen": "linalg.eigh linalg.eigvalsh linalg.eig linalg.eigvals",
    "einsum": "einsum einsum_path",
    "elementwise": "add subtract multiply divide negative positive square reciprocal"
    " sqrt cbrt conjugate copysign ldexp nextafter heaviside power float_power remainder"
    " fmod hypot arctan2 logaddexp logaddexp2 maximum minimum fmax fmin absolute fabs"
    " sign",
    "exponentials": "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan"
    " sinh cosh tanh arcsinh arccosh arctanh deg2rad rad2deg radians degrees",
    "factors": "prod",
    "fft": "fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft fft.fftn fft.fft2"
    " fft.ifftn fft.ifft2 fft.rfftn fft.rfft2 fft.irfftn fft.irfft2 fft.fftshift"
    " fft.ifftshift",
    "functional": "apply_along_axis apply_over_axes piecewise choose",
    "histogram": "histogram_bin_edges histogram histogramdd histogram2d",
    "index": "",
    "interpolate": "interp",
    "join": "concatenate append stack vstack hstack dstack column_stack split"
    " array_split hsplit vsplit dsplit unstack",
    "keys": "_operator.getitem _operator.setitem",
    "least_squares": "linalg.pinv linalg.lstsq linalg.matrix_rank linalg.cond",
    "masked": "",
    "matrices": "",
    "nan_reductions": "nansum nanprod nancumsum nancumprod nanmax nanmin nanargmax"
    " nanargmin nanmean nanvar nanstd",
    "nonzero": "nonzero flatnonzero argwhere",
    "norms": "linalg.norm linalg.matrix_norm linalg.vector_norm",
    "pad": "pad",
    "pairs": "modf frexp divmod",
    "partition": "partition argpartition lexsort sort_complex searchsorted",
    "places": "ravel_multi_index unravel_index ix_ tril_indices_from triu_indices_from"
    " diag_indices_from packbits unpackbits",
    "polynomial": "polyval polyadd polysub polymul polydiv polyder polyint",
    "products": "matmul tensordot dot inner vdot outer kron",
    "quantiles": "quantile percentile nanquantile nanpercentile median nanmedian",
    "ranges": "linspace logspace geomspace arange identity tri",
    "reduce": "sum mean max amax min amin any all",
    "repeats": "tile repeat",
    "roots": "roots poly vander polyfit",
    "running": "cumsum cumprod cumulative_sum cumulative_prod",
    "scimath": "lib.scimath.sqrt lib.scimath.log lib.scimath.log2 lib.scimath.log10"
    " lib.scimath.arccos lib.scimath.arcsin lib.scimath.arctanh lib.scimath.logn"
    " lib.scimath.power",
    "selected": "",
    "series": "polynomial.polynomial.polyval2d polynomial.polynomial.polygrid2d"
    " polynomial.polynomial.polyvalnd",
    "sets": "unique unique_all unique_counts unique_inverse unique_values union1d"
    " intersect1d setxor1d setdiff1d isin",
    "shape": "reshape ravel atleast_1d atleast_2d atleast_3d transpose moveaxis swapaxes"
    " rollaxis matrix_transpose",
    "shares": "",
    "signal": "convolve correlate",
    "singular": "linalg.svd linalg.svdvals",
    "slopes": "gradient",
    "solve": "linalg.inv linalg.solve linalg.matrix_power linalg.tensorsolve"
    " linalg.tensorinv",
    "slices": "",
    "sort": "argmax argmin sort argsort",
    "special": "sinc i0 angle nan_to_num real_if_close",
    "statistics": "var std count_nonzero ptp average",
    "steps": "round around floor ceil trunc fix rint signbit isnan isinf isfinite isnat"
    " spacing bitwise_count equal not_equal less less_equal greater greater_equal"
    " logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor"
    " invert left_shift right_shift gcd lcm floor_divide",
    "taking": "take take_along_axis compress",
    "triangles": "linalg.cholesky linalg.qr",
    "ufunc_methods": ".reduce .accumulate .reduceat .outer",
    "vectors": "vecdot matvec vecmat linalg.multi_dot linalg.vecdot linalg.matmul"
    " linalg.tensordot linalg.outer linalg.cross linalg.diagonal linalg.trace"
    " linalg.matrix_transpose",
    "write": "",
    "windows": "lib.stride_tricks.sliding_window_view",
    "writers": "copyto putmask place put fill_diagonal put_along_axis .at .__setitem__",
}
