"""Comparisons of arrays, on any device."""

from typing import Any

def assert_allclose(
    actual: Any,
    desired: Any,
    rtol: float = 1e-07,
    atol: float = 0,
    equal_nan: bool = True,
    err_msg: str = "",
    verbose: bool = True,
    *,
    strict: bool = False,
) -> None: ...  # CuPy 14
def assert_array_equal(
    actual: Any,
    desired: Any,
    err_msg: str = "",
    verbose: bool = True,
    *,
    strict: bool = False,
    strides_check: bool = False,
) -> None: ...  # CuPy 14

# ---- written by stubs/generate.py ----

from collections.abc import Callable
from cupy import _ArrayLike, _DType, _FunctionT, _Operand, _Order, _Shape
from unittest import TestCase

def AssertFunctionIsCalled(
    *args: Any, times_called: _Operand = 1, **kwargs: Any
) -> Any: ...

class NumpyAliasBasicTestBase(TestCase):
    def test_argspec(self) -> Any: ...
    def test_docstring(self) -> Any: ...
    @property
    def func(self) -> Any: ...
    @property
    def cupy_func(self) -> Any: ...
    @property
    def numpy_func(self) -> Any: ...

class NumpyAliasValuesTestBase(TestCase):
    def test_values(self) -> Any: ...
    @property
    def func(self) -> Any: ...
    @property
    def cupy_func(self) -> Any: ...
    @property
    def numpy_func(self) -> Any: ...

def assert_array_almost_equal(
    actual: Any,
    desired: Any,
    decimal: _Operand = 6,
    err_msg: str = "",
    verbose: bool = True,
) -> None: ...  # CuPy 14
def assert_array_almost_equal_nulp(x: Any, y: Any, nulp: _Operand = 1) -> None: ...
def assert_array_less(
    x: Any, y: Any, err_msg: str = "", verbose: bool = True, *, strict: bool = False
) -> None: ...  # CuPy 14
def assert_array_list_equal(
    xlist: Any, ylist: Any, err_msg: str = "", verbose: bool = True
) -> None: ...
def assert_array_max_ulp(
    a: Any, b: Any, maxulp: _Operand = 1, dtype: _DType | None = None
) -> None: ...
def assert_warns(expected: Any) -> Any: ...
def fix_random() -> Callable[[_FunctionT], _FunctionT]: ...
def for_CF_orders(name: str = "order") -> Callable[[_FunctionT], _FunctionT]: ...
def for_all_dtypes(
    name: str = "dtype",
    no_float16: bool = False,
    no_bool: bool = False,
    no_complex: bool = False,
) -> Callable[[_FunctionT], _FunctionT]: ...
def for_all_dtypes_combination(
    names: Any = ("dtyes",),
    no_float16: bool = False,
    no_bool: bool = False,
    full: bool | None = None,
    no_complex: bool = False,
) -> Callable[[_FunctionT], _FunctionT]: ...
def for_complex_dtypes(name: str = "dtype") -> Callable[[_FunctionT], _FunctionT]: ...
def for_contiguous_axes(name: str = "axis") -> Callable[[_FunctionT], _FunctionT]: ...
def for_dtypes(
    dtypes: Any, name: str = "dtype"
) -> Callable[[_FunctionT], _FunctionT]: ...
def for_dtypes_combination(
    types: Any, names: Any = ("dtype",), full: bool | None = None
) -> Callable[[_FunctionT], _FunctionT]: ...
def for_float_dtypes(
    name: str = "dtype", no_float16: bool = False
) -> Callable[[_FunctionT], _FunctionT]: ...
def for_int_dtypes(
    name: str = "dtype", no_bool: bool = False
) -> Callable[[_FunctionT], _FunctionT]: ...
def for_int_dtypes_combination(
    names: Any = ("dtype",), no_bool: bool = False, full: bool | None = None
) -> Callable[[_FunctionT], _FunctionT]: ...
def for_orders(
    orders: Any, name: str = "order"
) -> Callable[[_FunctionT], _FunctionT]: ...
def for_signed_dtypes(name: str = "dtype") -> Callable[[_FunctionT], _FunctionT]: ...
def for_signed_dtypes_combination(
    names: Any = ("dtype",), full: bool | None = None
) -> Callable[[_FunctionT], _FunctionT]: ...
def for_unsigned_dtypes(name: str = "dtype") -> Callable[[_FunctionT], _FunctionT]: ...
def for_unsigned_dtypes_combination(
    names: Any = ("dtype",), full: bool | None = None
) -> Callable[[_FunctionT], _FunctionT]: ...
def generate_matrix(
    shape: _Shape,
    xp: Any = ...,
    dtype: _DType | None = ...,
    *,
    singular_values: _ArrayLike | None = None,
) -> Any: ...
def generate_seed() -> Any: ...
def installed(*specifiers: Any) -> bool: ...
def multi_gpu(gpu_num: Any) -> Callable[[_FunctionT], _FunctionT]: ...
def numpy_cupy_allclose(
    rtol: Any = 1e-07,
    atol: Any = 0,
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
    contiguous_check: bool = True,
    *,
    _check_sparse_format: bool = True,
) -> Callable[[_FunctionT], _FunctionT]: ...
def numpy_cupy_array_almost_equal(
    decimal: _Operand = 6,
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[_FunctionT], _FunctionT]: ...
def numpy_cupy_array_almost_equal_nulp(
    nulp: _Operand = 1,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[_FunctionT], _FunctionT]: ...
def numpy_cupy_array_equal(
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
    strides_check: bool = False,
) -> Callable[[_FunctionT], _FunctionT]: ...
def numpy_cupy_array_less(
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[_FunctionT], _FunctionT]: ...
def numpy_cupy_array_list_equal(
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[_FunctionT], _FunctionT]: ...
def numpy_cupy_array_max_ulp(
    maxulp: _Operand = 1,
    dtype: _DType | None = None,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    scipy_name: str | None = None,
) -> Callable[[_FunctionT], _FunctionT]: ...
def numpy_cupy_equal(
    name: str = "xp", sp_name: str | None = None, scipy_name: str | None = None
) -> Callable[[_FunctionT], _FunctionT]: ...
def numpy_cupy_raises(
    name: str = "xp",
    sp_name: str | None = None,
    scipy_name: str | None = None,
    accept_error: Any = ...,
) -> Callable[[_FunctionT], _FunctionT]: ...
def numpy_satisfies(version_range: str) -> bool: ...
def parameterize(*params: Any, **kwargs: Any) -> Callable[[_FunctionT], _FunctionT]: ...
def product(parameter: Any) -> list[dict[str, Any]]: ...
def product_dict(*parameters: Any) -> Any: ...
def shaped_arange(
    shape: _Shape, xp: Any = ..., dtype: _DType | None = ..., order: _Order = "C"
) -> Any: ...
def shaped_linspace(
    start: _Operand,
    stop: _Operand,
    shape: _Shape,
    xp: Any = ...,
    dtype: _DType | None = ...,
) -> Any: ...
def shaped_random(
    shape: _Shape,
    xp: Any = ...,
    dtype: _DType | None = ...,
    scale: _Operand = 10,
    seed: _Operand = 0,
    order: _Order = "C",
) -> Any: ...
def shaped_reverse_arange(
    shape: _Shape, xp: Any = ..., dtype: _DType | None = ...
) -> Any: ...
def shaped_sparse_random(
    shape: _Shape,
    sp: Any = None,
    dtype: _DType | None = ...,
    density: _Operand = 0.01,
    format: str = "coo",
    seed: _Operand = 0,
) -> Any: ...  # CuPy 14
def slow(*args: Any, **kwargs: Any) -> Any: ...
def with_requires(*requirements: Any) -> Callable[[_FunctionT], _FunctionT]: ...
