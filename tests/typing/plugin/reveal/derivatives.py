"""Types of derivatives that only the plugin knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, reveal_type

import customop as co
from customop import FakeArray

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def of_tree(x: dict[str, FakeArray], y: list[FakeArray]) -> FakeArray:
    return x["a"]


def of_last(x: FakeArray, y: float = 1.0) -> FakeArray:
    return x


def of_three(x: FakeArray, y: float, z: complex) -> tuple[FakeArray, str]:
    return x, ""


def of_any_number(*xs: FakeArray) -> FakeArray:
    return xs[0]


def two_outputs(x: FakeArray, y: float) -> tuple[FakeArray, dict[str, float]]:
    return x, {}


@co.custom_op("plugin_reveal::mixed", mutates_args=())
def mixed(x: co.ArrayT, y: co.ArrayT) -> co.ArrayT:
    return x


mixed.register_autograd(lambda ctx, grad: (grad, grad))

if TYPE_CHECKING:
    One = np.ndarray[tuple[int], np.dtype[np.float64]]

    def of_one_axis(x: One) -> One: ...
    def to_doubles(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]: ...
    def of_anything(x: Any) -> Any: ...


# ---- gradients ----

reveal_type(co.grad(of_last, -1))
# by mypy: Transformed[[x: FakeArray, y: float =], Any]
# by pyright: Transformed[(x: FakeArray, y: float = 1), Any]
# by plugin: Overload(def (FakeArray, float) -> float, def (FakeArray, *, y: float =) -> FakeArray)
reveal_type(co.grad(of_three, -1, True))
# by mypy: Transformed[[x: FakeArray, y: float, z: complex], tuple[Any, str]]
# by pyright: Transformed[(x: FakeArray, y: float, z: complex), tuple[Any, str]]
# by plugin: Overload(def (FakeArray, float, complex) -> tuple[complex, str], def (FakeArray, float, *, z: complex) -> tuple[float, str], def (FakeArray, *, y: float, z: complex) -> tuple[FakeArray, str])
reveal_type(co.grad(of_three, (0, 1, 2), has_aux=True))
# by mypy: Transformed[[x: FakeArray, y: float, z: complex], tuple[Any, str]]
# by pyright: Transformed[(x: FakeArray, y: float, z: complex), tuple[Any, str]]
# by plugin: def (FakeArray, float, complex) -> tuple[tuple[FakeArray, float, complex], str]
reveal_type(co.grad(of_three, [2, 0], has_aux=True))
# by mypy: Transformed[[x: FakeArray, y: float, z: complex], tuple[Any, str]]
# by pyright: Transformed[(x: FakeArray, y: float, z: complex), tuple[Any, str]]
# by plugin: def (FakeArray, float, complex) -> tuple[tuple[complex, FakeArray], str]
reveal_type(co.value_and_grad(of_last, (1, 0)))
# by mypy: Transformed[[x: FakeArray, y: float =], tuple[FakeArray, tuple[Any, ...]]]
# by pyright: Transformed[(x: FakeArray, y: float = 1), tuple[FakeArray, tuple[Any, ...]]]
# by plugin: def (FakeArray, float) -> tuple[FakeArray, tuple[float, FakeArray]]
reveal_type(co.grad(of_any_number, (0, 2)))
# by mypy: def (FakeArray, FakeArray, FakeArray, *xs: FakeArray) -> tuple[FakeArray, FakeArray]
# by pyright: (FakeArray, FakeArray, FakeArray, *xs: FakeArray) -> tuple[FakeArray, FakeArray]
reveal_type(co.grad(mixed, (1, 0)))
# by mypy: Transformed[[x: R, y: R], tuple[Any, ...]]
# by pyright: Transformed[(x: ArrayT@mixed, y: ArrayT@mixed), tuple[Any, ...]]
# by plugin: def [R <: Array] (R, R) -> tuple[R, R]

# ---- Jacobians: nested like the output, then like the input ----

reveal_type(co.jacrev(of_last))
# by mypy: Jacobian[[FakeArray, y: float =], FakeArray, FakeArray]
# by pyright: Jacobian[(FakeArray, y: float = 1), FakeArray, FakeArray]
# by plugin: def (FakeArray, y: float =) -> FakeArray
reveal_type(co.jacfwd(of_last, (0, 1)))
# by mypy: Jacobian[[FakeArray, float], FakeArray, tuple[FakeArray, float]]
# by pyright: Jacobian[(FakeArray, float), FakeArray, tuple[FakeArray, float]]
# by plugin: def (FakeArray, float) -> tuple[FakeArray, FakeArray]
reveal_type(co.jacrev(of_tree, (0, 1)))
# by mypy: Jacobian[[dict[str, FakeArray], list[FakeArray]], tuple[dict[str, FakeArray], list[FakeArray]], FakeArray]
# by pyright: Jacobian[(dict[str, FakeArray], list[FakeArray]), tuple[dict[str, FakeArray], list[FakeArray]], FakeArray]
# by plugin: def (dict[str, FakeArray], list[FakeArray]) -> tuple[dict[str, FakeArray], list[FakeArray]]
reveal_type(co.jacrev(two_outputs, (0, 1)))
# by mypy: Jacobian[[FakeArray, float], tuple[FakeArray, float], tuple[FakeArray, dict[str, float]]]
# by pyright: Jacobian[(FakeArray, float), tuple[FakeArray, float], tuple[FakeArray, dict[str, float]]]
# by plugin: def (FakeArray, float) -> tuple[tuple[FakeArray, FakeArray], dict[str, tuple[FakeArray, float]]]
reveal_type(co.jacfwd(of_three, 0, has_aux=True))
# by mypy: def (FakeArray, y: float, z: complex) -> tuple[Any, str]
# by pyright: (FakeArray, y: float, z: complex) -> tuple[Any, str]
# by plugin: def (FakeArray, y: float, z: complex) -> tuple[FakeArray, str]
reveal_type(co.hessian(of_tree))
# by mypy: Jacobian[[dict[str, FakeArray], y: list[FakeArray]], dict[str, FakeArray], FakeArray]
# by pyright: Jacobian[(dict[str, FakeArray], y: list[FakeArray]), dict[str, FakeArray], FakeArray]
# by plugin: def (dict[str, FakeArray], y: list[FakeArray]) -> dict[str, dict[str, FakeArray]]
reveal_type(co.hessian(of_last, (0, 1)))
# by mypy: def (FakeArray, y: float =) -> Any
# by pyright: (FakeArray, y: float = 1) -> Any
# by plugin: def (FakeArray, float) -> tuple[tuple[FakeArray, FakeArray], tuple[FakeArray, FakeArray]]

# A Jacobian has other axes than its array, so a type variable says nothing about it.
reveal_type(co.jacrev(mixed))
# by mypy: Jacobian[[A, y: A], A, A]
# by pyright: Jacobian[(ArrayT@mixed, y: ArrayT@mixed), ArrayT@mixed, ArrayT@mixed]
# by plugin: def [R <: Array] (R, y: R) -> Any
if TYPE_CHECKING:
    reveal_type(co.jacrev(of_one_axis))
    # by mypy: Jacobian[[ndarray[tuple[int], dtype[float64]]], ndarray[tuple[int], dtype[float64]], ndarray[tuple[int], dtype[float64]]]
    # by pyright: Jacobian[(ndarray[tuple[int], dtype[float64]]), ndarray[tuple[int], dtype[float64]], ndarray[tuple[int], dtype[float64]]]
    # by plugin: def (ndarray[tuple[int], dtype[float64]]) -> ndarray[tuple[Any, ...], dtype[float64]]
    reveal_type(co.jacrev(to_doubles))
    # by mypy: Jacobian[[ndarray[tuple[Any, ...], dtype[floating[_32Bit]]]], ndarray[tuple[Any, ...], dtype[floating[_32Bit]]], ndarray[tuple[Any, ...], dtype[float64]]]
    # by pyright: Jacobian[(ndarray[tuple[Any, ...], dtype[floating[_32Bit]]]), ndarray[tuple[Any, ...], dtype[floating[_32Bit]]], ndarray[tuple[Any, ...], dtype[float64]]]
    # by plugin: def (ndarray[tuple[Any, ...], dtype[floating[_32Bit]]]) -> ndarray[tuple[Any, ...], dtype[floating[_32Bit]]]
    reveal_type(co.jacfwd(to_doubles))
    # by mypy: Jacobian[[ndarray[tuple[Any, ...], dtype[floating[_32Bit]]]], ndarray[tuple[Any, ...], dtype[float64]], ndarray[tuple[Any, ...], dtype[floating[_32Bit]]]]
    # by pyright: Jacobian[(ndarray[tuple[Any, ...], dtype[floating[_32Bit]]]), ndarray[tuple[Any, ...], dtype[float64]], ndarray[tuple[Any, ...], dtype[floating[_32Bit]]]]
    # by plugin: def (ndarray[tuple[Any, ...], dtype[floating[_32Bit]]]) -> ndarray[tuple[Any, ...], dtype[float64]]
    reveal_type(co.jacrev(of_anything))
    # by mypy: Jacobian[[Any], Any, Any]
    # by pyright: Jacobian[(Any), Any, Any]
    # by plugin: def (Any) -> Any
