"""Types that `survey.py` gives to names and to words of docstrings."""

from __future__ import annotations

# Public modules, those that define a name before those that export it again.
_MODULES = """
cupy.exceptions cupy.typing
cupy.cuda.runtime cupy.cuda.device cupy.cuda.stream cupy.cuda.graph cupy.cuda.memory
cupy.cuda.memory_hook cupy.cuda.memory_hooks cupy.cuda.pinned_memory cupy.cuda.function
cupy.cuda.compiler cupy.cuda.texture cupy.cuda.nvtx cupy.cuda.profiler cupy.cuda
cupy
cupy.fft cupy.lib.stride_tricks cupy.lib cupy.linalg cupy.polynomial.polynomial
cupy.polynomial.polyutils cupy.polynomial cupy.random cupy.testing
cupyx.jit.cg cupyx.jit.cub cupyx.jit.thrust cupyx.jit cupyx.distributed cupyx.lapack
cupyx.linalg.sparse cupyx.linalg cupyx.optimizing cupyx.profiler cupyx.time
cupyx.scipy.special cupyx.scipy.fft cupyx.scipy.fftpack cupyx.scipy.interpolate
cupyx.scipy.linalg cupyx.scipy.ndimage cupyx.scipy.signal.windows cupyx.scipy.signal
cupyx.scipy.sparse.csgraph cupyx.scipy.sparse.linalg cupyx.scipy.sparse
cupyx.scipy.spatial.distance cupyx.scipy.spatial cupyx.scipy.stats cupyx.scipy
cupyx.signal cupyx
"""
MODULES = _MODULES.split()

# ---- types of parameters ----

# A parameter's name -> its type, whatever its docstring says.
PARAMETERS = {
    "accept_error": "Any",
    "axis": "_Axis",
    "axes": "_Axis",
    "dtype": "_DType | None",
    "extrapolate": "Any",
    "idx": "Any",
    "out": "ndarray | None",
    "casting": "_Casting",
    "p": "Any",
    "shape": "_Shape",
    "stream": "cuda.Stream | None",
    "window": "Any",
}

_MANY = r"(scalar|number|float|int|sequence|list|tuple)"
# Words of docstrings and C types of Cython: the first pattern that fits decides.
WORDS = (
    (r".*(callable|function)", "Callable[..., Any]"),
    (r".*(sparse|dense|matrix|object|dict|list|numpy\.ndarray)|\{.*\d", "Any"),
    (rf"array_?[- ]?like|.*{_MANY}.*array|.*array.*{_MANY}", "_ArrayLike"),
    (r".*(cupy\.)?nd-?array", "ndarray"),
    (r"~?cupy\.cuda\.(\w*\.)?(Stream|Device|Event|MemoryPointer)$", r"cuda.\2"),
    (r"(int or )?(a )?(tuple|sequence|list)s? of ints?|int or .*ints?$", "_Shape"),
    (r"bool(ean)?\b", "bool"),
    (r"(int|integer|intptr_t|size_t|long|unsigned|u?int\d+_t|Py_ssize_t)\b", "_Int"),
    (r"(float|double|scalar|number|real)\b", "_Operand"),
    (r"(str|string|basestring)\b|[\"{']", "str"),
    (r"bytes$", "bytes"),
)

# In these modules docstrings, or the names above, say less than functions accept.
WIDER = (
    (r"cupyx\.scipy\.interpolate", "ndarray", "_ArrayLike"),
    (r"cupyx\.scipy\.(interpolate|ndimage|signal)", "_Operand", "_ArrayLike"),
    (r"cupy\.cuda\.runtime", r"cuda\.Stream \| None", "int"),
    (r"cupy\.testing", "_Int", "_Operand"),
)

# The class of a default -> types that accept it.
ACCEPTING = {
    "bool": {"bool"},
    "int": {"_ArrayLike", "_Axis", "_Int", "_Operand", "_Shape"},
    "float": {"_ArrayLike", "_Operand"},
    "str": {"_Casting", "_DType | None", "_Order", "str"},
    "tuple": {"_ArrayLike", "_Axis", "_Shape"},
    "NoneType": {"_Axis"},
}

# ---- types of results ----

# What functions and methods of a name return, whatever their docstrings say. A name with
# its module goes before one without.
RESULTS = {
    "ndarray": """
        angle asanyarray choose convolve correlate cumproduct expm frombuffer
        fromfile fromfunction fromiter fromstring genfromtxt in1d isin loadtxt nan_to_num
        polyval product random_integers real_if_close round_ row_stack zmap zscore
        canberra chebyshev cityblock correlation cosine euclidean hamming hellinger
        jensenshannon kl_divergence minkowski russellrao sqeuclidean
        cupyx.scipy.ndimage.histogram
    """,
    # CuPy 13 gives lists, CuPy 14 tuples.
    "Sequence[ndarray]": "broadcast_arrays meshgrid",
    "list[ndarray]": "array_split dsplit hsplit vsplit",
    "list[dict[str, Any]]": "cupy.testing.product",
    "tuple[ndarray, ...]": "diag_indices diag_indices_from tril_indices_from",
    "tuple[ndarray, ndarray]": """
        ca_cfar coherence csd eig freqs freqs_zpk freqz freqz_sos freqz_zpk histogram istft
        lu_factor periodogram slogdet welch
    """,
    "tuple[ndarray, ndarray, ndarray]": "histogram2d spectrogram stft",
    "tuple[ndarray, ndarray, ndarray, ndarray]": "tf2ss",
    "tuple[Any, ...]": "bandwidth complex_cepstrum extrema",
    "tuple[ndarray, dict[str, Any]]": "find_peaks",
    "tuple[ndarray, list[ndarray]]": "histogramdd",
    "bool": "__bool__ __eq__ __ge__ __gt__ __le__ __lt__ __ne__ can_cast isscalar",
    "float": "__float__",
    "int": "__hash__ __int__ __len__",
    "str": """
        __repr__ __str__ array2string array_str base_repr binary_repr
        format_float_positional format_float_scientific
    """,
    # The arguments decide.
    "Any": """
        center_of_mass iterate_structure label logsumexp maximum_position
        minimum_position cupyx.scipy.interpolate.solve
    """,
    "type[Any]": "common_type obj2sctype",
    "numpy.dtype[Any]": "min_scalar_type",
    "Iterator[Any]": "__iter__",
    "ModuleType": "get_array_module",
    "PinnedMemoryPointer": "alloc_pinned_memory",
    "RandomState": "get_random_state",
    "Callable[[_FunctionT], _FunctionT]": """
        fix_random for_all_dtypes for_all_dtypes_combination for_CF_orders
        for_complex_dtypes for_contiguous_axes for_dtypes for_dtypes_combination
        for_float_dtypes for_int_dtypes for_int_dtypes_combination for_orders
        for_signed_dtypes for_signed_dtypes_combination for_unsigned_dtypes
        for_unsigned_dtypes_combination multi_gpu numpy_cupy_allclose
        numpy_cupy_array_almost_equal numpy_cupy_array_almost_equal_nulp
        numpy_cupy_array_equal numpy_cupy_array_less numpy_cupy_array_list_equal
        numpy_cupy_array_max_ulp numpy_cupy_equal numpy_cupy_raises parameterize
        with_requires
    """,
    "Self": "__enter__",
    "None": """
        __exit__ __init__ add_xi assert_array_almost_equal assert_array_almost_equal_nulp
        assert_array_less assert_array_list_equal assert_array_max_ulp check_status
        copyto destroySurfaceObject destroyTextureObject deviceDisablePeerAccess
        deviceEnablePeerAccess deviceSetLimit deviceSetMemPool eventDestroy eventRecord
        eventSynchronize freeArray freeAsync freeHost graphDestroy graphExecDestroy
        gesv graphLaunch graphUpload hostRegister hostUnregister ipcCloseMemHandle
        launchHostFunc memAdvise memcpy2D memcpy2DAsync memcpy2DFromArray
        memcpy2DFromArrayAsync memcpy2DToArray memcpy2DToArrayAsync memcpy3D
        memcpy3DAsync memcpyPeer memcpyPeerAsync memPoolDestroy memPoolSetAttribute
        memPoolTrimTo memPrefetchAsync profilerStart profilerStop
        set_pinned_memory_allocator set_smoothing_factor set_yi streamAddCallback streamBeginCapture streamDestroy
        streamSynchronize streamWaitEvent fill_diagonal free launch Mark MarkC memcpy memcpyAsync
        memset memsetAsync place put put_along_axis putmask RangeEnd RangePop RangePush
        RangePushC reset_states save savetxt savez savez_compressed seed
        set_random_state set_string_function show_config shuffle synchronize upload
    """,
}
RESULT_OF = {name: text for text, names in RESULTS.items() for name in names.split()}

_ARRAY = "(ndarray|ndarry|_ndarray_base)"
_SAME = "|, same shape as .*"
# Words of docstrings: the first pattern that fits decides.
RETURNS = (
    (r"tuples? of (cupy\.)?(nd)?arrays?$", "tuple[ndarray, ...]"),
    (r"lists? of (cupy\.)?(nd)?arrays?$", "list[ndarray]"),
    (
        rf"\(?\w* ?\(?~?(cupy\.)?{_ARRAY}\)?( of \w+( \w+)?{_SAME})?( \([^)]*\))?\)?$",
        "ndarray",
    ),
    (r"\((N|M|numtaps)(, ?\w+)*,?\) ndarray|[12N]-?D (nd)?array$", "ndarray"),
    (r"bool(ean)?$", "bool"),
    (r"\(?(int|intptr_t|size_t|unsigned int|u?int\d+_t)\)?$", "int"),
    (r"str$", "str"),
    (r"tuple of ints$|Tuple\[int, int\]$", "tuple[int, ...]"),
    (r"(numpy\.)?dtype$", "numpy.dtype[Any]"),
    (r"(MemoryPointer|Device|Stream|Event)$", r"cuda.\1"),
    (r"tuple", "tuple[Any, ...]"),
    (r"list$", "list[Any]"),
    (r"dict$", "dict[Any, Any]"),
    (r"(None|bytes)$", r"\1"),
)

# Modules whose functions give an array where the docstring says nothing.
ARRAYS = {"cupy.random", "cupyx.scipy.special", "cupyx.scipy.ndimage", "cupyx.signal"}

# A property's name -> its type, whatever its docstring says.
PROPERTIES = {
    "T": "Self",
    "device": "cuda.Device",
    "device_id": "int",
    "dtype": "numpy.dtype[Any]",
    "id": "int",
    "ndim": "int",
    "ptr": "int",
    "shape": "tuple[int, ...]",
    "size": "int",
}

# ---- members of classes ----

# Methods of Python whose arguments users may give by keyword.
BY_KEYWORD = {"__array__", "__call__", "__init__"}

# Members of all objects, of pickling, and of Python's own bookkeeping.
_SKIPPED = """
__abstractmethods__ __annotations__ __array_priority__ __array_ufunc__ __del__ __dict__
__doc__ __getattr__ __module__ __orig_bases__ __parameters__ __pyx_capi__ __pyx_vtable__
__reduce_cython__ __setstate__ __setstate_cython__ __slots__ __test__ __weakref__
"""
SKIPPED = set(dir(object)) - {"__init__", "__eq__", "__ne__"} | set(_SKIPPED.split())
