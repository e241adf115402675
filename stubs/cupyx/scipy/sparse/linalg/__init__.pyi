"""Types of cupyx.scipy.sparse.linalg."""

# ---- written by stubs/generate.py ----

from collections.abc import Callable
from cupy import _ArrayLike, _Axis, _DType, _Int, _Operand, _Shape, ndarray
from typing import Any, Self

class LinearOperator:
    ndim: int
    def __init__(self, dtype: _DType | None, shape: _Shape) -> None: ...
    def matvec(self, x: Any) -> Any: ...
    def rmatvec(self, x: Any) -> Any: ...
    def matmat(self, X: Any) -> Any: ...
    def rmatmat(self, X: Any) -> Any: ...
    def __call__(self, x: Any) -> Any: ...
    def __mul__(self, x: Any, /) -> Any: ...
    def dot(self, x: Any) -> Any: ...
    def __matmul__(self, other: Any, /) -> Any: ...
    def __rmatmul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, x: Any, /) -> Any: ...
    def __pow__(self, p: Any, /) -> Any: ...
    def __add__(self, x: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __sub__(self, x: Any, /) -> Any: ...
    def adjoint(self) -> Any: ...
    @property
    def H(self) -> Any: ...
    def transpose(self) -> Any: ...
    @property
    def T(self) -> Self: ...

class SuperLU:
    def __init__(self, obj: Any) -> None: ...
    def solve(self, rhs: ndarray, trans: str = "N") -> ndarray: ...

def aslinearoperator(A: _ArrayLike) -> Any: ...
def bicgstab(
    A: Any,
    b: ndarray,
    x0: ndarray | None = None,
    *,
    rtol: Any = 1e-05,
    atol: Any = 0.0,
    maxiter: _Int | None = None,
    M: Any = None,
    callback: Callable[..., Any] | None = None,
) -> tuple[Any, ...]: ...  # CuPy 14
def cg(
    A: Any,
    b: ndarray,
    x0: ndarray | None = None,
    *,
    rtol: Any = 1e-05,
    atol: Any = 0.0,
    maxiter: _Int | None = None,
    M: Any = None,
    callback: Callable[..., Any] | None = None,
) -> tuple[Any, ...]: ...  # CuPy 14
def cgs(
    A: Any,
    b: ndarray,
    x0: ndarray | None = None,
    *,
    rtol: Any = 1e-05,
    atol: Any = 0.0,
    maxiter: _Int | None = None,
    M: Any = None,
    callback: Callable[..., Any] | None = None,
) -> tuple[Any, ...]: ...  # CuPy 14
def eigsh(
    a: Any,
    k: _Int = 6,
    *,
    which: str = "LM",
    v0: ndarray | None = None,
    ncv: _Int | None = None,
    maxiter: _Int | None = None,
    tol: _Operand = 0,
    return_eigenvectors: bool = True,
) -> tuple[Any, ...]: ...
def factorized(A: Any) -> Any: ...
def gmres(
    A: Any,
    b: ndarray,
    x0: ndarray | None = None,
    *,
    rtol: Any = 1e-05,
    atol: Any = 0.0,
    restart: _Int | None = None,
    maxiter: _Int | None = None,
    M: Any = None,
    callback: Callable[..., Any] | None = None,
    callback_type: str | None = None,
) -> tuple[Any, ...]: ...  # CuPy 14
def lobpcg(
    A: _ArrayLike,
    X: ndarray,
    B: _ArrayLike | None = None,
    M: _ArrayLike | None = None,
    Y: ndarray | None = None,
    tol: _Operand | None = None,
    maxiter: _Int | None = None,
    largest: bool = True,
    verbosityLevel: _Int = 0,
    retLambdaHistory: bool = False,
    retResidualNormsHistory: bool = False,
) -> tuple[Any, ...]: ...
def lsmr(
    A: Any,
    b: ndarray,
    x0: ndarray | None = None,
    damp: _Operand = 0.0,
    atol: Any = 1e-06,
    btol: Any = 1e-06,
    conlim: _Operand = 100000000.0,
    maxiter: _Int | None = None,
) -> tuple[Any, ...]: ...
def lsqr(A: Any, b: ndarray) -> tuple[Any, ...]: ...
def matrix_power(A: Any, power: _Int) -> Any: ...  # CuPy 14
def minres(
    A: Any,
    b: ndarray,
    x0: ndarray | None = None,
    shift: _Int | float = 0.0,
    tol: _Operand = 1e-05,
    maxiter: _Int | None = None,
    M: Any = None,
    callback: Callable[..., Any] | None = None,
    check: bool = False,
) -> tuple[Any, ...]: ...
def norm(x: Any, ord: Any = None, axis: _Axis = None) -> ndarray: ...
def spilu(
    A: Any,
    drop_tol: _Operand | None = None,
    fill_factor: _Operand | None = None,
    drop_rule: str | None = None,
    permc_spec: str | None = None,
    diag_pivot_thresh: _Operand | None = None,
    relax: _Int | None = None,
    panel_size: _Int | None = None,
    options: Any = ...,
) -> Any: ...
def splu(
    A: Any,
    permc_spec: str | None = None,
    diag_pivot_thresh: _Operand | None = None,
    relax: _Int | None = None,
    panel_size: _Int | None = None,
    options: Any = ...,
) -> Any: ...
def spsolve(A: Any, b: ndarray) -> ndarray: ...
def spsolve_triangular(
    A: Any,
    b: ndarray,
    lower: bool = True,
    overwrite_A: bool = False,
    overwrite_b: bool = False,
    unit_diagonal: bool = False,
) -> ndarray: ...
def svds(
    a: Any,
    k: _Int = 6,
    *,
    ncv: _Int | None = None,
    tol: _Operand = 0,
    which: str = "LM",
    maxiter: _Int | None = None,
    return_singular_vectors: bool = True,
) -> tuple[Any, ...]: ...
