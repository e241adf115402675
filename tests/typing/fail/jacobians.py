"""Overloads that `jacrev`, `jacfwd` and `hessian` could have, and where they are wrong.

A Jacobian is nested like the output, then like the input, and its arrays have the axes of
both. Annotations name no such class, so the results are Any without the plugin. These are
the two ways to say more of the most frequent calls, and what both checkers make of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

import numpy as np
import numpy.typing as npt

import customop as co

P = ParamSpec("P")
T = TypeVar("T", bound=Any)
Axes = TypeVar("Axes", bound=tuple[int, ...])
D = TypeVar("D", bound=np.generic)
Tree = dict[str, npt.NDArray[np.float64]]

if TYPE_CHECKING:
    from typing import reveal_type

    Line = np.ndarray[tuple[int], np.dtype[np.float64]]
    Array = np.ndarray[Axes, np.dtype[D]]

    def of_tree(x: Tree) -> Tree: ...
    def of_line(x: Line) -> Line: ...

    # ---- the class of the argument, as `grad` has it ----
    # A type variable takes every class: also trees, whose Jacobians are nested twice, and
    # arrays with a known number of axes, whose Jacobians have twice as many.

    def like_input(
        fn: Callable[Concatenate[T, P], T],
    ) -> Callable[Concatenate[T, P], T]: ...

    reveal_type(like_input(of_tree))
    # by mypy: def (dict[str, ndarray[tuple[Any, ...], dtype[float64]]]) -> dict[str, ndarray[tuple[Any, ...], dtype[float64]]]
    # by pyright: (dict[str, ndarray[tuple[Any, ...], dtype[float64]]]) -> dict[str, ndarray[tuple[Any, ...], dtype[float64]]]
    reveal_type(like_input(of_line))
    # by mypy: def (ndarray[tuple[int], dtype[float64]]) -> ndarray[tuple[int], dtype[float64]]
    # by pyright: (ndarray[tuple[int], dtype[float64]]) -> ndarray[tuple[int], dtype[float64]]

    # ---- arrays of NumPy in an overload, Any for other classes ----
    # Lambdas fit the first overload too. Then they are functions of NumPy's arrays, and
    # calls of them with numbers are reported.

    @overload
    def of_arrays(
        fn: Callable[Concatenate[Array[Axes, D], P], npt.NDArray[Any]],
    ) -> Callable[Concatenate[Array[Axes, D], P], npt.NDArray[D]]: ...
    @overload
    def of_arrays(fn: Callable[P, Any]) -> Callable[P, Any]: ...
    def of_arrays(fn: Callable[P, Any]) -> Callable[P, Any]: ...

    of_arrays(lambda x: x**2)(3.0)
    # by mypy: no-untyped-call
    # by pyright: reportArgumentType, reportOperatorIssue, reportUnknownLambdaType
    co.jacrev(lambda x: x**2)(3.0)


def nested_twice() -> None:
    """Show the Jacobians of the functions above, which those overloads name wrongly."""
    of_dict: Any = co.jacrev(lambda p: {"a": p["a"] * 2})({"a": np.ones(3)})
    assert of_dict["a"]["a"].shape == (3, 3)
    of_axis: Any = co.jacrev(lambda x: x * 2)(np.ones(3))
    assert of_axis.ndim == 2
