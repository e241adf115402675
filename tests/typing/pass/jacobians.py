"""Results of `jacrev`, `jacfwd` and `hessian`, for arrays, numbers, trees and lambdas.

A Jacobian is nested like the output, then like the input. Its arrays have the axes of
both, so an array with one axis has a Jacobian with two.
"""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]
F32 = npt.NDArray[np.float32]
Line = np.ndarray[tuple[int], np.dtype[np.float64]]
Tree = dict[str, F64]


def square(x: F64, k: float = 1.0) -> F64:
    return k * x**2


def mixed(x: F32, y: F64, z: F64, w: F64) -> F64:
    return x * y * z * w


def of_line(x: Line) -> Line:
    return x * 2.0


def of_number(x: float) -> float:
    return x * x


def to_number(x: F64) -> float:
    return float(x.size)


def by_number(x: float, y: F64) -> F64:
    return x * y


def of_tree(p: Tree) -> F64:
    return p["a"] * 2.0


def to_tree(x: F64) -> Tree:
    return {"a": x}


def of_bare(x: np.ndarray, k: float = 1.0) -> np.ndarray:
    return x * k


@co.custom_op("typing::of_any_kind", mutates_args=())
def of_any_kind(x: co.ArrayT, k: float = 1.0) -> co.ArrayT:
    result: co.ArrayT = x * k
    return result


of_any_kind.register_autograd(lambda ctx, grad: (grad, None))

x = np.ones(3)
short = np.ones(3, np.float32)


def positions() -> None:
    args = (short, x, x, x)
    assert_type(co.jacrev(mixed)(*args), F32)
    assert_type(co.jacfwd(mixed)(*args), F64)
    assert_type(co.jacrev(mixed, 1)(*args), F64)
    assert_type(co.jacrev(mixed, 2)(*args), F64)
    assert_type(co.jacfwd(mixed, 3)(*args), F64)
    assert_type(co.jacrev(mixed, (0, 1))(*args), tuple[F32, F64])
    assert_type(co.jacfwd(mixed, (0, 2))(*args), tuple[F64, F64])
    assert_type(co.jacrev(mixed, argnums=(1, 2))(*args), tuple[F64, F64])
    assert co.jacrev(mixed)(*args).dtype == np.float32
    assert co.jacfwd(mixed)(*args).dtype == np.float64
    by_first, by_second = co.jacrev(mixed, (0, 1))(*args)
    assert by_first.dtype == np.float32
    assert by_second.dtype == np.float64


def classes() -> None:
    assert_type(co.jacrev(square)(x, k=2.0), F64)
    assert_type(co.jacrev(of_line)(x), F64)
    assert co.jacrev(of_line)(x).ndim == 2
    assert_type(co.jacfwd(of_number)(2.0), float)
    assert_type(co.hessian(of_number)(2.0), float)
    assert_type(co.jacfwd(by_number)(2.0, x), F64)
    assert_type(co.jacrev(by_number)(2.0, x), F64)
    assert isinstance(co.jacrev(by_number)(2.0, x), np.ndarray)
    given: F64 = co.jacrev(of_bare)(x, 2.0)
    assert given.shape == (3, 3)


def trees() -> None:
    of_dict: Any = co.jacrev(of_tree)({"a": x})
    assert of_dict["a"].shape == (3, 3)
    to_dict: Any = co.jacfwd(to_tree)(x)
    assert to_dict["a"].shape == (3, 3)


def transformed_again() -> None:
    assert_type(co.jacrev(co.jacfwd(square))(x), F64)
    assert_type(co.vmap(co.jacrev(square))(np.ones((2, 3))), F64)
    assert_type(co.compile(co.hessian(square))(x), F64)


def of_lambdas() -> None:
    slope: float = co.jacrev(lambda x: x**2)(3.0)
    assert slope == 6.0
    matrix = co.jacrev(lambda x: square(x, 2.0))(x)
    assert matrix.shape == (3, 3)
    kept = co.jacrev(of_any_kind)(x, k=1.0)
    assert kept.shape == (3, 3)


positions()
classes()
trees()
transformed_again()
of_lambdas()
