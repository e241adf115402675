"""Messages of NumPy's functions on traced and fake arrays."""

# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

import numpy as np

import customop as co
from tests.transforms.errors._operators import (
    F,
    G,
    M,
    N,
    Table,
    X,
    batched,
    graded,
)

# ---- NumPy's functions on traced and fake arrays ----

NUMPY: Table = {
    "flipud": (
        lambda: graded(lambda x: np.flipud(x.sum())),
        co.ShapeError,
        ValueError,
        "Input must be >= 1-d.\n"
        "  np.flipud(float64[])\n"
        "  do: use np.flip",
    ),
    "fliplr": (
        lambda: graded(np.fliplr),
        co.ShapeError,
        ValueError,
        "Input must be >= 2-d.\n"
        "  np.fliplr(float64[2])\n"
        "  do: use np.flip",
    ),
    "roll": (
        lambda: np.roll(F, [[1]], 0),
        co.ShapeError,
        ValueError,
        "'shift' and 'axis' should be scalars or 1D sequences\n"
        "  np.roll(float64[2], [[1]], 0)\n"
        "  do: give ints or lists",
    ),
    "round into an array": (
        lambda: graded(lambda x: x.round(out=X)),
        co.ArgumentError,
        TypeError,
        "np.round(out=...) would write GradTracer f64[2] into a plain array\n"
        "  do: make the array by np.zeros_like(x) of a traced x, or by np.zeros(shape,"
        " like=x); or use the result: x = x + y instead of x += y or out=x",
    ),
    "a mask under vmap": (
        lambda: batched(lambda x: x[x > 1.0]),
        co.DataDependentError,
        TypeError,
        "x[mask] under vmap is used as an array: each row takes another number of elements\n"
        "  do: use np.where(mask, x, 0), which keeps the shape; or map(f, rows), which runs f"
        " once for each row",
    ),
    "an element of a mask under vmap": (
        lambda: batched(lambda x: x[x > 1.0][0]),
        co.DataDependentError,
        TypeError,
        "x[mask] under vmap is indexed: each row takes another number of elements\n"
        "  do: use np.where(mask, x, 0), which keeps the shape; or map(f, rows), which runs f"
        " once for each row",
    ),
    "take by floats": (
        lambda: np.take(F, [0.5]),
        co.ArgumentError,
        TypeError,
        "np.take: indices of dtype float64, must be integers\n"
        "  do: use indices.astype(int), or np.where(mask, x, 0) for a mask",
    ),
    "take by a mask": (
        lambda: np.take(F, F > 0),
        co.ArgumentError,
        TypeError,
        "np.take: indices of dtype bool, must be integers\n"
        "  do: use indices.astype(int), or np.where(mask, x, 0) for a mask",
    ),
    "take in another mode": (
        lambda: np.take(F, [0], mode="nearest"),
        co.ArgumentError,
        TypeError,
        "np.take: mode='nearest' is not supported for traced or fake arrays\n"
        "  do: use mode='raise' or 'wrap' or 'clip'",
    ),
    "take_along_axis": (
        lambda: np.take_along_axis(G, N, 1),
        co.ShapeError,
        ValueError,
        "`indices` and `arr` must have the same number of dimensions\n"
        "  np.take_along_axis(float64[2, 3], int64[2], 1)\n"
        "  do: give indices with the axes of the array",
    ),
    "diag": (
        lambda: np.diag(np.sum(F)),
        co.ShapeError,
        ValueError,
        "Input must be 1- or 2-d.\n"
        "  np.diag(float64[])\n"
        "  do: use np.atleast_1d(x) first",
    ),
    "where": (
        lambda: np.where(F > 0, F),
        co.ShapeError,
        ValueError,
        "either both or neither of x and y should be given\n"
        "  np.where(True, 1)\n"
        "  do: write np.where(condition, x, y)",
    ),
    "select": (
        lambda: np.select([F > 0], [F, F]),
        co.ShapeError,
        ValueError,
        "list of cases must be same length as list of conditions\n"
        "  np.select([bool[2]], [float64[2], float64[2]])\n"
        "  do: give a choice for each condition",
    ),
    "select of nothing": (
        lambda: co.vmap(lambda x: np.select([], [x]))(M),
        co.ShapeError,
        ValueError,
        "list of cases must be same length as list of conditions\n"
        "  np.select([], [float64[2]])\n"
        "  do: give a choice for each condition",
    ),
    "concatenate": (
        lambda: np.concatenate([G, co.FakeArray((2, 2, 2), float)]),
        co.ShapeError,
        ValueError,
        "np.concatenate: arrays of the shapes (2, 3), (2, 2, 2) do not fit\n"
        "  do: join arrays that have the same lengths except along the joined axis",
    ),
    "concatenate of other shapes": (
        lambda: np.concatenate([G, F.reshape(1, 2)]),
        co.ShapeError,
        ValueError,
        "np.concatenate: arrays of the shapes (2, 3), (1, 2) do not fit\n"
        "  do: join arrays that have the same lengths except along the joined axis",
    ),
    "concatenate of no axes": (
        lambda: np.concatenate([F, np.sum(F)]),
        co.ShapeError,
        ValueError,
        "all the input arrays must have same number of dimensions, but the"
        " array at index 0 has 1 dimension(s) and the array at index 1 has 0"
        " dimension(s)\n"
        "  np.concatenate([float64[2], float64[]])\n"
        "  do: use np.stack, or np.atleast_1d on each",
    ),
    "concatenate with a cast": (
        lambda: np.concatenate([F, F], dtype=int, casting="unsafe"),
        co.ArgumentError,
        TypeError,
        "np.concatenate: casting='unsafe' is not supported for traced or fake arrays\n"
        "  do: use casting='same_kind'",
    ),
    "stack of other shapes": (
        lambda: np.stack([F, G]),
        co.ShapeError,
        ValueError,
        "np.stack: arrays of the shapes (2,), (2, 3) do not fit\n"
        "  do: join arrays that have the same lengths except along the joined axis",
    ),
    "split in unequal parts": (
        lambda: np.split(G, 2, axis=1),
        co.ShapeError,
        ValueError,
        "array split does not result in an equal division\n"
        "  np.split(float64[2, 3], 2, axis=1)\n"
        "  do: use np.array_split, or give the places to cut",
    ),
    "split in no parts": (
        lambda: np.array_split(G, 0),
        co.ShapeError,
        ValueError,
        "number sections must be larger than 0.\n"
        "  np.array_split(float64[2, 3], 0, axis=0)\n"
        "  do: give the places to cut, or a positive number of parts",
    ),
    "hsplit": (
        lambda: np.hsplit(np.sum(F), 1),
        co.ShapeError,
        ValueError,
        "hsplit only works on arrays of 1 or more dimensions\n"
        "  np.hsplit(float64[], 1)\n"
        "  do: use np.atleast_1d(x) first",
    ),
    "vsplit": (
        lambda: np.vsplit(F, 2),
        co.ShapeError,
        ValueError,
        "vsplit only works on arrays of 2 or more dimensions\n"
        "  np.vsplit(float64[2], 1)\n"
        "  do: use np.split",
    ),
    "dsplit": (
        lambda: np.dsplit(G, 2),
        co.ShapeError,
        ValueError,
        "dsplit only works on arrays of 3 or more dimensions\n"
        "  np.dsplit(float64[2, 3], 1)\n"
        "  do: use np.split",
    ),
    "pad by a function": (
        lambda: np.pad(F, 1, mode=print),
        co.ArgumentError,
        TypeError,
        "np.pad: mode is a function, which writes into slices of plain arrays\n"
        "  do: pad with mode='constant', and write into the result",
    ),
    "pad with an end value": (
        lambda: np.pad(F, 1, mode="edge", end_values=1),
        co.ArgumentError,
        TypeError,
        "np.pad: mode='edge' does not take end_values=\n  do: leave end_values= away",
    ),
    "pad by a reflection of another type": (
        lambda: np.pad(F, 1, mode="reflect", reflect_type="other"),
        co.ArgumentError,
        TypeError,
        "np.pad: reflect_type='other' is not supported for traced or fake arrays\n"
        "  do: use reflect_type='even' or 'odd'",
    ),
    "insert at places that are not known": (
        lambda: np.insert(F, G, 1.0),
        co.DataDependentError,
        TypeError,
        "np.insert: the places are FakeArray, and must be known to find the shape of the"
        " result\n  do: give plain integers, or write np.where(mask, a, b), which keeps the"
        " shape",
    ),
    "unique under vmap": (
        lambda: batched(np.unique),
        co.DataDependentError,
        TypeError,
        "np.unique, or a function of sets, under vmap of 2 rows: the shape of the result"
        " depends on data\n  do: keep the shape: s = np.sort(x), and s[1:] != s[:-1] marks the"
        " new elements; or map(f, rows), which runs f once for each row",
    ),
    "partition beyond the axis": (
        lambda: np.partition(F, 9),
        co.ShapeError,
        ValueError,
        "kth(=9) out of bounds (2)\n"
        "  np.partition along axis -1 of an array of shape (2,)\n"
        "  do: give places that the axis has",
    ),
    "block of a tuple": (
        lambda: np.block([F, (F, F)]),
        co.ArgumentError,
        TypeError,
        "arrays[1] is a tuple. Only lists can be used to arrange blocks, and"
        " np.block does not allow implicit conversion from tuple to ndarray.\n"
        "  np.block([float64[2], (float64[2], float64[2])])\n"
        "  do: nest all arrays in equally many lists, not tuples",
    ),
    "pad by floats": (
        lambda: np.pad(F, 1.5),
        co.ArgumentError,
        TypeError,
        "`pad_width` must be of integral type.\n"
        "  np.pad(float64[2], 1.5)\n"
        "  do: give ints: ((before, after), ...)",
    ),
    "pad by less": (
        lambda: np.pad(F, -1),
        co.ShapeError,
        ValueError,
        "index can't contain negative values\n"
        "  np.pad(float64[2], -1)\n"
        "  do: slice the array to make it shorter",
    ),
    "reshape": (
        lambda: G.reshape(4),
        co.ShapeError,
        ValueError,
        "cannot reshape array of size 6 into shape (4,)\n"
        "  do: give lengths whose product is the number of elements",
    ),
    "reshape by two unknowns": (
        lambda: G.reshape(-1, -1),
        co.ShapeError,
        ValueError,
        "cannot reshape array of size 6 into shape (-1, -1)\n"
        "  do: give lengths whose product is the number of elements",
    ),
    "reshape in an order": (
        lambda: np.reshape(G, 6, order="A"),
        co.ArgumentError,
        TypeError,
        "np.reshape: order='A' is not supported for traced or fake arrays\n"
        "  do: use order='C' or 'F'",
    ),
    "ravel in an order": (
        lambda: np.ravel(G, order="K"),
        co.ArgumentError,
        TypeError,
        "np.ravel: order='K' is not supported for traced or fake arrays\n"
        "  do: use order='C' or 'F'",
    ),
    "transpose": (
        lambda: np.transpose(G, (0,)),
        co.ShapeError,
        ValueError,
        "axes don't match array\n"
        "  np.transpose(float64[2, 3], (0,))\n"
        "  do: name each axis once",
    ),
    "moveaxis": (
        lambda: np.moveaxis(G, (0, 1), 0),
        co.ShapeError,
        ValueError,
        "`source` and `destination` arguments must have the same number of"
        " elements\n"
        "  np.moveaxis(float64[2, 3], (0, 1), (0,))\n"
        "  do: give a destination for each axis",
    ),
    "squeeze": (
        lambda: np.squeeze(G, 0),
        co.ShapeError,
        ValueError,
        "cannot select an axis to squeeze out which has size not equal to one\n"
        "  np.squeeze(float64[2, 3], (0,))\n"
        "  do: name axes of length one",
    ),
    "broadcast_to": (
        lambda: np.broadcast_to(G, (2, 2)),
        co.ShapeError,
        ValueError,
        "operands could not be broadcast together: an array of shape (2, 3) into the shape (2, 2)\n"
        "  in the call of np.broadcast_to\n"
        "  do: give lengths that are equal, or one in the array",
    ),
    "broadcast_to a subclass": (
        lambda: np.broadcast_to(F, (2, 2), subok=True),
        co.ArgumentError,
        TypeError,
        "np.broadcast_to: subok=True is not supported for traced or fake arrays\n"
        "  do: use subok=False",
    ),
    "broadcast_arrays of a subclass": (
        lambda: np.broadcast_arrays(F, F, subok=True),
        co.ArgumentError,
        TypeError,
        "np.broadcast_arrays: subok=True is not supported for traced or fake arrays\n"
        "  do: use subok=False",
    ),
    "meshgrid": (
        lambda: np.meshgrid(F, F, indexing="ab"),
        co.ArgumentError,
        TypeError,
        "np.meshgrid: indexing='ab' is not supported for traced or fake arrays\n"
        "  do: use indexing='xy' or 'ij'",
    ),
    "copy in an order": (
        lambda: np.copy(F, order="X"),
        co.ArgumentError,
        TypeError,
        "np.copy: order='X' is not supported for traced or fake arrays\n"
        "  do: use order='K' or 'C' or 'F' or 'A'",
    ),
    "astype in an order": (
        lambda: F.astype(int, order="A"),
        co.ArgumentError,
        TypeError,
        "astype: order='A' is not supported for traced or fake arrays\n"
        "  do: use order='K' or 'C' or 'F'",
    ),
    "astype with a cast": (
        lambda: F.astype(int, casting="safe"),
        co.ArgumentError,
        TypeError,
        "cannot cast an array from float64 to int64 (casting='safe')\n"
        "  do: use casting='unsafe'",
    ),
    "astype to a subclass": (
        lambda: F.astype(int, subok=None),
        co.ArgumentError,
        TypeError,
        "astype: subok=None is not supported for traced or fake arrays\n"
        "  do: use subok=True or False",
    ),
    "sum into an array": (
        lambda: graded(lambda x: x.sum(out=X)),
        co.ArgumentError,
        TypeError,
        "np.sum(out=...) would write GradTracer f64[2] into a plain array\n"
        "  do: make the array by np.zeros_like(x) of a traced x, or by np.zeros(shape,"
        " like=x); or use the result: x = x + y instead of x += y or out=x",
    ),
    "max of a mask": (
        lambda: np.max(F, where=F > 0),
        co.ShapeError,
        ValueError,
        "reduction operation 'maximum' does not have an identity, so to use a"
        " where mask one has to specify 'initial'\n"
        "  in the call of np.max\n"
        "  np.maximum.reduce(float64[1], where=False)\n"
        "  do: give initial=",
    ),
    "mask of integers": (
        lambda: np.sum(F, where=np.array([0, 1])),
        co.ArgumentError,
        TypeError,
        "where= is an array of int64, must be of bool\n"
        "  in the call of np.sum\n"
        "  do: pass where=mask != 0",
    ),
    "mask that does not fit": (
        lambda: np.sum(F, where=np.ones((3, 1), bool)),
        co.ShapeError,
        ValueError,
        "where= of shape (3, 1) cannot be broadcast to the shape (2,) of the array\n"
        "  in the call of np.sum\n"
        "  do: give a mask of the shape of the array",
    ),
    "start of many values": (
        lambda: np.sum(F, initial=np.ones(2)),
        co.ShapeError,
        ValueError,
        "initial= has the shape (2,), must be a single value\n"
        "  in the call of np.sum\n"
        "  do: combine the result with the array: np.add(np.sum(x), initial)",
    ),
    "argmax into an array": (
        lambda: graded(lambda x: x.argmax(out=X)),
        co.ArgumentError,
        TypeError,
        "np.argmax(out=...) would write GradTracer f64[2] into a plain array\n"
        "  do: make the array by np.zeros_like(x) of a traced x, or by np.zeros(shape,"
        " like=x); or use the result: x = x + y instead of x += y or out=x",
    ),
    "cumsum into an array": (
        lambda: graded(lambda x: x.cumsum(out=X)),
        co.ArgumentError,
        TypeError,
        "np.cumsum(out=...) would write GradTracer f64[2] into a plain array\n"
        "  do: make the array by np.zeros_like(x) of a traced x, or by np.zeros(shape,"
        " like=x); or use the result: x = x + y instead of x += y or out=x",
    ),
    "sort by fields": (
        lambda: np.sort(F, order="a"),
        co.ArgumentError,
        TypeError,
        "np.sort(order='a') has no operator for traced or fake arrays\n"
        "  do: leave order= away",
    ),
    "sort by heaps": (
        lambda: np.sort(F, kind="heapsort"),
        co.ArgumentError,
        TypeError,
        "np.sort(kind='heapsort') has no operator for traced or fake arrays\n"
        "  do: leave kind out, or use kind='stable'",
    ),
    "argsort by heaps": (
        lambda: np.argsort(F, kind="heapsort"),
        co.ArgumentError,
        TypeError,
        "np.argsort(kind='heapsort') has no operator for traced or fake arrays\n"
        "  do: leave kind out, or use kind='stable'",
    ),
    "average by other weights": (
        lambda: np.average(G, 0, np.ones(3)),
        co.ShapeError,
        ValueError,
        "np.average: weights of shape (3,) do not fit an array of shape (2, 3) along axis 0\n"
        "  do: give weights of the shape of the array, or of the axes averaged over",
    ),
    "average by weights without an axis": (
        lambda: np.average(G, None, np.ones(3)),
        co.ArgumentError,
        TypeError,
        "np.average: weights of shape (3,) do not fit an array of shape (2, 3) along axis None\n"
        "  do: give weights of the shape of the array, or of the axes averaged over",
    ),
    "dot into an array": (
        lambda: graded(lambda x: x.dot(x, out=X)),
        co.ArgumentError,
        TypeError,
        "np.dot(out=...) would write GradTracer f64[2] into a plain array\n"
        "  do: make the array by np.zeros_like(x) of a traced x, or by np.zeros(shape,"
        " like=x); or use the result: x = x + y instead of x += y or out=x",
    ),
    "einsum to a narrower dtype": (
        lambda: np.einsum("i->", F, dtype=np.float32),
        co.ArgumentError,
        TypeError,
        "np.einsum: float64 is not cast to dtype=float32 with casting='safe'\n"
        "  do: give casting='unsafe', or leave dtype= away",
    ),
    "einsum in an order": (
        lambda: np.einsum("i->", F, order="A"),
        co.ArgumentError,
        TypeError,
        "np.einsum: order='A' is not supported for traced or fake arrays\n"
        "  do: use order='K' or 'C' or 'F'",
    ),
    "einsum by lists": (
        lambda: np.einsum(F, [52]),
        co.ArgumentError,
        TypeError,
        "np.einsum: 52 in a list of axes\n  do: number axes from 0 to 51",
    ),
    "matrix norm": (
        lambda: np.linalg.norm(G, 3),
        co.ArgumentError,
        TypeError,
        "np.linalg.norm(ord=3) has no operator for traced or fake arrays of 2 axes\n"
        "  do: use ord=None, 'fro', 'nuc', 1, -1, 2, -2, inf or -inf",
    ),
    "norm of a number": (
        lambda: np.linalg.norm(np.sum(F), 1),
        co.ArgumentError,
        TypeError,
        "np.linalg.norm(ord=1) has no operator for traced or fake arrays of 0 axes\n"
        "  do: use ord=None, 'fro', 'nuc', 1, -1, 2, -2, inf or -inf",
    ),
    "nuclear norm": (
        lambda: np.linalg.norm(G, "nuclear"),
        co.ArgumentError,
        TypeError,
        "np.linalg.norm(ord='nuclear') has no operator for traced or fake arrays of 2 axes\n"
        "  do: use ord=None, 'fro', 'nuc', 1, -1, 2, -2, inf or -inf",
    ),
    "norm of a stack": (
        lambda: np.linalg.norm(co.FakeArray((2, 2, 2), float), 1),
        co.ArgumentError,
        TypeError,
        "np.linalg.norm(ord=1) has no operator for traced or fake arrays of 3 axes\n"
        "  do: use ord=None, 'fro', 'nuc', 1, -1, 2, -2, inf or -inf",
    ),
    "matmul of no axes": (
        lambda: np.matmul(np.sum(F), F),
        co.ShapeError,
        ValueError,
        "np.matmul: an array without axes has no matrix product\n"
        "  do: use x * y",
    ),
    "matmul of other lengths": (
        lambda: np.matmul(G, F),
        co.ShapeError,
        ValueError,
        "np.matmul: shapes (2, 3) and (2,) differ in the summed axis\n"
        "  do: transpose or reshape one of them",
    ),
    "tensordot of other lengths": (
        lambda: np.tensordot(G, G, 1),
        co.ShapeError,
        ValueError,
        "np.tensordot: shapes (2, 3) and (2, 3) differ along the summed axes (1,) and (0,)\n"
        "  do: name pairs of axes of one length",
    ),
    "inv of a rectangle": (
        lambda: np.linalg.inv(co.FakeArray((2, 3), float)),
        co.ShapeError,
        ValueError,
        "np.linalg.inv takes square matrices, got shape (2, 3)\n"
        "  do: give an array whose last two axes have one length",
    ),
    "svd of a vector": (
        lambda: np.linalg.svd(F),
        co.ShapeError,
        ValueError,
        "np.linalg.svd takes matrices, got an array of shape (2,)\n"
        "  do: give an array of at least two axes",
    ),
    "solve of other lengths": (
        lambda: np.linalg.solve(np.eye(3), F),
        co.ShapeError,
        ValueError,
        "np.linalg.solve: shapes (3, 3) and (2,) do not fit\n"
        "  do: give b as a vector, or as matrices with as many rows as those of a",
    ),
    "lstsq of other lengths": (
        lambda: np.linalg.lstsq(np.eye(3), F),
        co.ShapeError,
        ValueError,
        "np.linalg.lstsq: shapes (3, 3) and (2,) do not fit\n"
        "  do: give a matrix, and a vector or a matrix with as many rows",
    ),
    "inv of short floats": (
        lambda: np.linalg.inv(co.FakeArray((2, 2), np.float16)),
        co.ArgumentError,
        TypeError,
        "array type float16 is unsupported in np.linalg\n"
        "  in the call of np.linalg.inv\n"
        "  do: cast first: x.astype(float)",
    ),
    "qr by reflectors": (
        lambda: np.linalg.qr(np.linalg.inv(co.FakeArray((2, 2), float)), "raw"),
        co.ArgumentError,
        TypeError,
        "np.linalg.qr(mode='raw') has no derivative: it is LAPACK's form of the factors\n"
        "  do: use mode='reduced', 'complete' or 'r'",
    ),
    "eigh of a third triangle": (
        lambda: np.linalg.eigh(co.FakeArray((2, 2), float), "M"),
        co.ArgumentError,
        TypeError,
        "UPLO must be 'L' or 'U', got 'M'\n"
        "  in the call of np.linalg.eigh\n"
        "  do: name the triangle to read",
    ),
    "phase of an eigenvector": (
        lambda: co.grad(
            lambda x: np.imag(np.linalg.eigh(np.array([[1, 1j], [-1j, 3]]) * x)[1][0, 0])
        )(np.array(1.0)),
        co.GradientError,
        ValueError,
        "np.linalg.eigh: the gradient depends on the phases of complex eigenvectors, which"
        " are arbitrary\n"
        "  do: use functions that phases do not change, such as np.abs(v) or v @ v.conj().T",
    ),
    "rotation of completing vectors": (
        lambda: co.grad(lambda x: np.linalg.svd(x * np.ones((4, 1)))[0][0, 2])(
            np.array(1.0)
        ),
        co.GradientError,
        ValueError,
        "np.linalg.svd(full_matrices=True): the gradient depends on the singular vectors"
        " after those of full_matrices=False, which are arbitrary\n"
        "  do: use full_matrices=False, or functions that a rotation of these vectors does"
        " not change",
    ),
    "a cutoff of large singular values": (
        lambda: graded(lambda x: np.sum(np.linalg.pinv(np.diag([1.0, 0.1]) * x, 0.5))),
        co.GradientError,
        ValueError,
        "np.linalg.pinv: the gradient is not known where rcond drops singular values that"
        " are more than rounding\n"
        "  do: use a smaller rcond, or the sum of u / s * vh over the singular values to"
        " keep",
    ),
    "chain of stacks": (
        lambda: np.linalg.multi_dot([np.ones((2, 2, 2)), np.linalg.inv(
            co.FakeArray((2, 2), float)
        )]),
        co.ShapeError,
        ValueError,
        "np.linalg.multi_dot takes two or more matrices, and vectors at the ends; got"
        " arrays of [3, 2] axes\n"
        "  do: use x @ y for stacks of matrices",
    ),
    "einsum of other operands": (
        lambda: np.einsum("i,i->", F),
        co.ShapeError,
        ValueError,
        "np.einsum: 'i,i->' names 2 operands, got 1\n"
        "  do: give a term for each operand",
    ),
    "einsum of other axes": (
        lambda: np.einsum("ij->", F),
        co.ShapeError,
        ValueError,
        "np.einsum: 'ij' in 'ij->' does not fit an operand of 1 axes\n"
        "  do: name each axis once, or write '...' for the rest",
    ),
    "einsum of other lengths": (
        lambda: np.einsum("i,i->", F, np.ones(3)),
        co.ShapeError,
        ValueError,
        "np.einsum: 'i' in 'i,i->' is 2 and 3 long\n"
        "  do: use one letter only for axes of one length",
    ),
}  # fmt: skip
