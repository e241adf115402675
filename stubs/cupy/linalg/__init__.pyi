"""Linear algebra on a device."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from cupy import ndarray

_Axis: TypeAlias = int | Sequence[int] | None

def norm(
    x: ndarray,
    ord: float | Literal["fro", "nuc"] | None = None,
    axis: _Axis = None,
    keepdims: bool = False,
) -> ndarray: ...
def inv(a: ndarray) -> ndarray: ...
def solve(a: ndarray, b: ndarray) -> ndarray: ...
def det(a: ndarray) -> ndarray: ...
def slogdet(a: ndarray) -> tuple[ndarray, ndarray]: ...
def cholesky(a: ndarray) -> ndarray: ...
def eigh(a: ndarray, UPLO: Literal["L", "U"] = "L") -> tuple[ndarray, ndarray]: ...
def pinv(a: ndarray, rcond: float = 1e-15) -> ndarray: ...
def matrix_power(M: ndarray, n: int) -> ndarray: ...

# ---- written by stubs/generate.py ----

from cupy import _ArrayLike, _Int, _Operand
from typing import Any
from cupy import (
    matmul as matmul,  # CuPy 14
)

def cond(x: ndarray, p: Any = None) -> ndarray: ...  # CuPy 14
def cross(
    x1: ndarray, x2: _ArrayLike, /, *, axis: _Axis = -1
) -> ndarray: ...  # CuPy 14
def eig(a: ndarray) -> tuple[ndarray, ndarray]: ...  # CuPy 14
def eigvals(a: ndarray) -> ndarray: ...  # CuPy 14
def eigvalsh(a: ndarray, UPLO: str = "L") -> ndarray: ...
def lstsq(
    a: ndarray, b: ndarray, rcond: _Operand | None = None
) -> tuple[Any, ...]: ...  # CuPy 14
def matrix_rank(M: ndarray, tol: _Operand | None = None) -> ndarray: ...
def matrix_transpose(a: Any) -> ndarray: ...  # CuPy 14
def qr(a: ndarray, mode: str = "reduced") -> Any: ...
def svd(
    a: ndarray, full_matrices: bool = True, compute_uv: bool = True
) -> tuple[ndarray, ...]: ...
def tensorinv(a: ndarray, ind: _Int = 2) -> ndarray: ...
def tensorsolve(a: ndarray, b: ndarray, axes: _Axis = None) -> ndarray: ...
