"""Products of sparse matrices with traced, fake and plain arrays.

The matrix is a constant, or its elements are an array that has gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
from scipy import sparse

from customop import (
    ArgumentError,
    Array,
    FakeArray,
    ShapeError,
    custom_op,
    fake_like,
    register_config_type,
)
from customop.numpy.arguments import product
from customop.numpy.rules import batch_first, fit
from customop.scipy.ufunc_rules import is_plain

__all__ = ["Matrix", "matmul", "with_data"]


# ---- operators ----


def _product_shape(shape: Any, x: Any) -> tuple[int, ...]:
    m, n = shape
    if len(x.shape) not in (1, 2) or x.shape[0] != n:
        raise ShapeError(
            f"sparse.matmul: shapes {(m, n)} and {tuple(x.shape)} do not fit",
            do=f"give an array of shape ({n},) or ({n}, k)",
        )
    return (m, *x.shape[1:])


def _by_columns(multiply: Any, x: Any, at: int) -> tuple[Any, int]:
    """Multiply by a batch, whose members become further columns of one array."""
    columns = np.moveaxis(x, at, -1)
    count = product(columns.shape[1:])
    found = multiply(np.reshape(columns, (columns.shape[0], count)))
    shape = (found.shape[0], *columns.shape[1:])
    return np.reshape(found, shape), len(shape) - 1


# ---- constant matrices ----


@register_config_type
class Fixed:
    """A constant sparse matrix.

    Attributes
    ----------
    value : sparse matrix of SciPy
    """

    def __init__(self) -> None:
        self.value: Any = None

    @classmethod
    def of(cls, value: Any) -> Fixed:
        """Wrap a matrix of SciPy."""
        made = cls()
        made.value = value
        return made


@custom_op(
    "scipy::fixed_matmul",
    mutates_args=(),
    schema=f"({Fixed.__module__}.Fixed matrix, Array x) -> Array",
    device_types="cpu",
)
def fixed_matmul(matrix: Fixed, x: Any) -> Any:
    """Return the product with an array of one or two axes."""
    return np.ascontiguousarray(matrix.value @ x)


@fixed_matmul.register_fake
def _(matrix: Fixed, x: Any) -> FakeArray:
    shape = _product_shape(matrix.value.shape, x)
    dtype = np.result_type(matrix.value.dtype, x.dtype)
    return FakeArray(shape, dtype, device=fake_like(x).device)


@fixed_matmul.register_sample_inputs
def _() -> list[Any]:
    matrix = sparse.csr_array([[0.0, 2.0, 0.0], [1.5, 0.0, -1.0]])
    return [(Fixed.of(matrix), np.array(x)) for x in _FACTORS]


# Samples of the other factor: a vector, and two matrices.
_FACTORS = (
    [1.0, -2.0, 0.5],
    [[1.0, 0.25], [-2.0, 3.0], [0.5, 1.5]],
    [[1.0], [2.0], [3.0]],
)


def _keep_matrix(ctx: Any, inputs: Any, output: Any) -> None:
    # A copy, since the matrix may be changed before backward.
    ctx.turned, ctx.like = Fixed.of(inputs[0].value.copy().T), inputs[1]


fixed_matmul.register_autograd(
    lambda ctx, g: (None, fit(fixed_matmul(ctx.turned, g), ctx.like)),
    setup_context=_keep_matrix,
)
fixed_matmul.register_jvp(
    lambda primals, tangents: (
        fixed_matmul(*primals),
        fixed_matmul(primals[0], tangents[1]),
    )
)
fixed_matmul.register_vmap(
    lambda info, in_dims, matrix, x: _by_columns(
        lambda x: fixed_matmul(matrix, x), x, in_dims[1]
    )
)

# ---- matrices with traced elements ----


@register_config_type
class SparsePattern:
    """The places of the elements of a sparse matrix.

    Attributes
    ----------
    rows, columns : array of int, shape (nnz,)
    shape : tuple of int
    """

    def __init__(self) -> None:
        self.rows: Any = None
        self.columns: Any = None
        self.shape: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, rows: Any, columns: Any, shape: tuple[int, int]) -> SparsePattern:
        """Make a pattern from rows, columns and a shape."""
        made = cls()
        made.rows, made.columns, made.shape = rows, columns, shape
        return made

    def turned(self) -> SparsePattern:
        """Return the pattern of the transposed matrix."""
        m, n = self.shape
        return SparsePattern.of(self.columns, self.rows, (n, m))

    def repeated(self, count: int) -> SparsePattern:
        """Return the pattern of a block-diagonal matrix with `count` copies of this one."""
        m, n = self.shape
        steps = np.arange(count)[:, None]
        rows = np.ravel(self.rows + m * steps)
        columns = np.ravel(self.columns + n * steps)
        return SparsePattern.of(rows, columns, (m * count, n * count))


@custom_op(
    "scipy::sparse_matmul",
    mutates_args=(),
    schema=f"(Array data, {SparsePattern.__module__}.SparsePattern pattern, Array x) -> Array",
    device_types="cpu",
)
def sparse_matmul(data: Any, pattern: SparsePattern, x: Any) -> Any:
    """Return the product with an array of one or two axes."""
    made = sparse.coo_array((data, (pattern.rows, pattern.columns)), pattern.shape)
    return np.ascontiguousarray(made.tocsr() @ x)


@sparse_matmul.register_fake
def _(data: Any, pattern: SparsePattern, x: Any) -> FakeArray:
    dtype = np.result_type(data.dtype, x.dtype)
    return FakeArray(
        _product_shape(pattern.shape, x), dtype, device=fake_like(x).device
    )


@sparse_matmul.register_sample_inputs
def _() -> list[Any]:
    pattern = SparsePattern.of(np.array([0, 1, 1]), np.array([1, 0, 2]), (2, 3))
    data = np.array([2.0, 1.5, -1.0])
    return [(data, pattern, np.array(x)) for x in _FACTORS]


def _at_places(pattern: SparsePattern, g: Any, x: Any) -> Any:
    """Return the elements of ``g @ x.T`` at the places of a pattern."""
    found = np.take(g, pattern.rows, axis=0) * np.take(x, pattern.columns, axis=0)
    return np.sum(found, axis=1) if len(found.shape) == 2 else found


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    data, ctx.pattern, x = inputs
    ctx.save_for_backward(data, x)


def _backward(ctx: Any, g: Any) -> Any:
    data, x = ctx.saved_arrays
    by_data = by_x = None
    if ctx.needs_input_grad[0]:
        by_data = fit(_at_places(ctx.pattern, g, x), data)
    if ctx.needs_input_grad[2]:
        by_x = fit(sparse_matmul(data, ctx.pattern.turned(), g), x)
    return by_data, None, by_x


sparse_matmul.register_autograd(_backward, setup_context=_keep)


@sparse_matmul.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    data, pattern, x = primals
    y = sparse_matmul(*primals)
    parts = []
    if tangents[0] is not None:
        parts.append(sparse_matmul(tangents[0], pattern, x))
    if tangents[2] is not None:
        parts.append(sparse_matmul(data, pattern, tangents[2]))
    return y, fit(sum(parts[1:], parts[0]), y)


@sparse_matmul.register_vmap
def _(info: Any, in_dims: Any, data: Any, pattern: SparsePattern, x: Any) -> Any:
    dim, _, at = in_dims
    if dim is None:
        return _by_columns(lambda x: sparse_matmul(data, pattern, x), x, at)
    # Each member of the batch becomes a block of one matrix.
    size = info.batch_size
    rows = batch_first(x, at, size)
    flat = np.reshape(rows, (size * rows.shape[1], *rows.shape[2:]))
    numbers = np.reshape(batch_first(data, dim), (-1,))
    found = sparse_matmul(numbers, pattern.repeated(size), flat)
    return np.reshape(found, (size, pattern.shape[0], *found.shape[1:])), 0


# ---- functions for users ----
# After this module is imported, SciPy's ``matrix @ x``, ``x @ matrix`` and
# ``matrix.dot(x)`` call operators if `x` is traced; SciPy alone would fail. `matmul` is
# the same as a function. The elements of a matrix have gradients if it is made by
# `with_data`.


class Matrix:
    """A sparse matrix whose elements may be traced; made by `with_data`.

    Attributes
    ----------
    data : array, shape (nnz,)
        The elements, in the order of `scipy.sparse.coo_array`.
    pattern : object
        Their places.
    shape : tuple of int

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from scipy.sparse import csr_array
    >>> from customop.scipy import sparse
    >>> a = csr_array(np.diag([1.0, 2.0]))
    >>> co.grad(lambda d: (sparse.with_data(a, d) @ np.array([3.0, 4.0])).sum())(a.data)
    array([3., 4.])
    """

    def __init__(self, data: Any, pattern: SparsePattern) -> None:
        self.data: Any = data
        self.pattern: SparsePattern = pattern

    @property
    def shape(self) -> tuple[int, int]:
        """The lengths of both axes."""
        return self.pattern.shape

    @property
    def T(self) -> Matrix:  # noqa: N802  # SciPy's name
        """The transposed matrix."""
        return Matrix(self.data, self.pattern.turned())

    def __matmul__(self, x: Any) -> Array:
        return matmul(self, x)

    def __rmatmul__(self, x: Any) -> Array:
        return matmul(x, self)

    # NumPy and traced arrays leave ``x @ matrix`` to the matrix.
    __array_ufunc__ = None


def _matrix(a: Any) -> Matrix:
    if isinstance(a, Matrix):
        return a
    coo = a.tocoo()
    return Matrix(coo.data, SparsePattern.of(coo.row, coo.col, tuple(coo.shape)))


def with_data(matrix: Any, data: Any) -> Matrix:
    """Make a sparse matrix with the places of another one and new elements.

    Parameters
    ----------
    matrix : sparse matrix or array of SciPy
        A matrix with two axes. Only its places are used.
    data : array, shape (nnz,)
        The elements, in the order of ``matrix.tocoo().data``, which for ``csr_array``
        is that of ``matrix.data``. They may be traced.

    Returns
    -------
    Matrix
        Can be used with ``@`` and `matmul`.

    Raises
    ------
    ShapeError
        If the number of elements differs from the number of places.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from customop.scipy import sparse
    >>> a = csr_array(np.eye(2))
    >>> sparse.with_data(a, np.array([2.0, 3.0])) @ np.ones(2)
    array([2., 3.])
    """
    pattern = _matrix(matrix).pattern
    count = len(pattern.rows)
    if tuple(data.shape) != (count,):
        raise ShapeError(
            f"with_data: numbers of shape {tuple(data.shape)} for {count} places",
            do=f"give an array of shape ({count},)",
        )
    return Matrix(data, pattern)


def _is_sparse(x: Any) -> bool:
    return isinstance(x, Matrix) or sparse.issparse(x)


def matmul(a: Any, b: Any) -> Array:
    """Multiply a sparse matrix and an array, in either order.

    Parameters
    ----------
    a, b : array or sparse matrix
        One of them is a sparse matrix, from SciPy or `with_data`. The other one is an
        array with one or two axes, which may be traced.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError
        If not exactly one of them is sparse.
    ShapeError
        If the shapes do not fit.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from scipy.sparse import csr_array
    >>> from customop.scipy import sparse
    >>> a = csr_array(np.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> co.grad(lambda x: sparse.matmul(a, x).sum())(np.ones(2))
    array([3., 3.])
    """
    if _is_sparse(a) == _is_sparse(b):
        raise ArgumentError(
            "sparse.matmul takes one sparse matrix and one array",
            do="multiply sparse matrices with @, and arrays with np.matmul",
        )
    if _is_sparse(b):
        if is_plain(a) and not isinstance(b, Matrix):
            return a @ b
        turned = np.swapaxes(a, 0, 1) if len(a.shape) == 2 else a
        found = matmul(b.T, turned)
        return np.swapaxes(found, 0, 1) if len(found.shape) == 2 else found
    if isinstance(a, Matrix):
        return sparse_matmul(a.data, a.pattern, b)
    return a @ b if is_plain(b) else fixed_matmul(Fixed.of(a), b)


# ---- methods of SciPy's matrices ----


def _serving(method: Callable[[Any, Any], Any], *, is_turned: bool) -> Any:
    """Return a method of SciPy's matrices that also accepts traced arrays."""

    @wraps(method)
    def serving(self: Any, other: Any) -> Any:
        if is_plain(other):
            return method(self, other)
        return matmul(other, self) if is_turned else matmul(self, other)

    return serving


def _serve(names: Sequence[str], classes: Sequence[type]) -> None:
    """Replace methods of SciPy's matrices by ones that accept traced arrays."""
    owners = {base for cls in classes for base in cls.__mro__}
    for owner in owners:
        for name in names:
            method = vars(owner).get(name)
            if method is not None and owner.__module__.startswith("scipy."):
                is_turned = name.startswith("__r")
                setattr(owner, name, _serving(method, is_turned=is_turned))


_FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
_serve(
    ("__matmul__", "__rmatmul__", "dot"),
    [getattr(sparse, f"{f}_array") for f in _FORMATS],
)
# The older matrix classes multiply with ``*``.
_serve(("__mul__", "__rmul__"), [sparse.spmatrix])
