"""Matrices of derivatives, from vjp, jvp and vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar, overload

import numpy as np

from customop.arrays.describe import abbreviated, show
from customop.arrays.dtypes import is_inexact, is_real_float
from customop.arrays.kinds import device_of, is_array
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.pytree import flatten, map_leaves, unflatten
from customop.errors import GradientError, check_function
from customop.shapes.sizes import product
from customop.transforms.autograd.grad import vjp
from customop.transforms.carrier import carries
from customop.transforms.jvp import jvp
from customop.transforms.reading import call_reading, note_inputs
from customop.transforms.values import (
    NO_INTEGERS,
    Fresh,
    as_input,
    chosen,
    positions,
)
from customop.transforms.vmap import vmap

__all__ = ["hessian", "jacfwd", "jacrev"]

P = ParamSpec("P")
R = TypeVar("R")
Aux = TypeVar("Aux")

# Their overloads need a `has_aux` that is known before the program runs.
_either_vjp: Any = vjp
_either_jvp: Any = jvp


def _of_chosen(
    fn: Callable[..., Any], args: Sequence[Any], at: Sequence[int], kwargs: Any
) -> Callable[..., Any]:
    """A function of the chosen arguments; the others are fixed."""

    def of_chosen(*chosen: Any) -> Any:
        given = list(args)
        for position, value in zip(at, chosen, strict=True):
            given[position] = value
        return call_reading(fn, describe, args, kwargs, at, given)

    def describe() -> str:
        return f"a derivative of {getattr(fn, '__name__', 'the function')}"

    note_inputs(of_chosen, (args, kwargs))
    return of_chosen


def _basis(leaves: Sequence[Any]) -> list[Any]:
    """Unit vectors of a list of arrays: for each array, its part of all of them."""
    sizes = [product(leaf.shape) for leaf in leaves]
    total = sum(sizes)
    start = 0
    found = []
    for leaf, size in zip(leaves, sizes, strict=True):
        # The columns of the identity for this array; each row is a unit vector.
        columns = call_numpy(
            np.eye, total, size, -start, leaf.dtype, device=device_of(leaf)
        )
        start += size
        found.append(call_numpy(np.reshape, columns, (total, *leaf.shape)))
    return found


def _as_floats(leaves: Sequence[Any], what: str) -> list[Any]:
    """The outputs as arrays of floats; raise where one has no derivative."""
    arrays = [np.asarray(v) if isinstance(v, float | complex) else v for v in leaves]
    for leaf in arrays:
        if not is_array(leaf) or not is_inexact(leaf.dtype):
            seen = abbreviated(leaf) if is_array(leaf) else show(leaf)
            raise GradientError(
                f"{what}: the output is {seen}, must be an array of floats",
                do=f"{NO_INTEGERS}, or use has_aux=True for other results",
            )
    return arrays


def _check_linear(name: str, sources: Sequence[Any], targets: Sequence[Any]) -> None:
    """Raise for derivatives that no complex-linear matrix describes.

    Reverse mode starts from the outputs and forward mode from the inputs: unit vectors
    of real arrays cannot carry complex derivatives.
    """
    if any(is_real_float(s.dtype) for s in sources) and not all(
        is_real_float(t.dtype) for t in targets
    ):
        other = "jacfwd" if name == "jacrev" else "jacrev"
        raise GradientError(
            f"{name}: complex derivatives of real arrays have no such matrix",
            do=f"take {other}, or the real and imaginary parts one by one",
        )


def _split(value: Any, leaves: Sequence[Any], axis: int) -> list[Any]:
    """Parts of a Jacobian along the axis of all unit vectors, shaped as the arrays."""
    parts = []
    start = 0
    for leaf in leaves:
        size = product(leaf.shape)
        key = (slice(None),) * axis + (slice(start, start + size),)
        part = value[key]
        shape = (*value.shape[:axis], *leaf.shape, *value.shape[axis + 1 :])
        parts.append(call_numpy(np.reshape, part, shape))
        start += size
    return parts


@overload
def jacrev(
    fn: Callable[P, R],
    argnums: int | Sequence[int] = 0,
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Callable[P, Any]: ...
@overload
def jacrev(
    fn: Callable[P, tuple[R, Aux]],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: Literal[True],
    chunk_size: int | None = None,
) -> Callable[P, tuple[Any, Aux]]: ...
def jacrev(
    fn: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[P, Any]:
    """Make a function that gives the Jacobian of `fn`, by reverse mode.

    Use it where the output is smaller than the input.

    Parameters
    ----------
    fn : callable
        Returns an array or a pytree of arrays.
    argnums : int or sequence of int
        Positions of the arguments to differentiate by, pytrees of arrays of floats.
    has_aux : bool
        Whether `fn` returns ``(output, aux)``.
    chunk_size : int, optional
        Rows of the Jacobian to compute at a time; all by default.

    Returns
    -------
    callable
        Returns an array of shape s + t for an output of shape s and an input of shape t,
        nested as the output, then as the input. With `has_aux`, ``(jacobian, aux)``.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    GradientError
        From the function: if an argument is not an array of floats.
    MissingRuleError
        From the function: if an operator on the way has no autograd rule.

    Notes
    -----
    For a complex function of complex arrays it is the complex derivative, which is
    complete only if the function is holomorphic. The same holds for `jacfwd` and
    `hessian`.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.jacrev(lambda x: x ** 2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    check_function("jacrev", fn)
    what = f"jacrev of {getattr(fn, '__name__', 'function')}"
    wanted, is_single = positions(what, argnums)

    @wraps(fn)
    @carries
    def jacobian(*args: P.args, **kwargs: P.kwargs) -> Any:
        at = chosen(what, wanted, len(args))
        primals = tuple(args[i] for i in at)
        inputs = [as_input(x, f"{what}: the argument") for x in flatten(primals)[0]]
        found = _either_vjp(_of_chosen(fn, args, at, kwargs), *primals, has_aux=has_aux)
        leaves, structure = flatten(found[0])
        leaves = _as_floats(leaves, what)
        _check_linear("jacrev", inputs, leaves)
        if not leaves or not inputs:
            empty = primals[0] if is_single else primals
            result = map_leaves(lambda _: empty, found[0])
            return (result, found[2]) if has_aux else result

        def pull(*basis: Any) -> Any:
            return found[1](unflatten(structure, list(basis)))

        rows = vmap(pull, chunk_size=chunk_size)(*_basis(leaves))
        nested = [map_leaves(lambda g: g, row) for row in rows]
        grads = nested[0] if is_single else tuple(nested)
        result = map_leaves(Fresh(), _by_output(grads, leaves, structure))
        return (result, found[2]) if has_aux else result

    return jacobian


def _by_output(grads: Any, leaves: Sequence[Any], structure: Any) -> Any:
    """Split gradients that are batched over all outputs; nest them as the outputs."""
    inputs, inner = flatten(grads)
    columns = [_split(grad, leaves, 0) for grad in inputs]
    rows = [unflatten(inner, list(row)) for row in zip(*columns, strict=True)]
    return unflatten(structure, rows)


@overload
def jacfwd(
    fn: Callable[P, R],
    argnums: int | Sequence[int] = 0,
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Callable[P, Any]: ...
@overload
def jacfwd(
    fn: Callable[P, tuple[R, Aux]],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: Literal[True],
    chunk_size: int | None = None,
) -> Callable[P, tuple[Any, Aux]]: ...
def jacfwd(
    fn: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[P, Any]:
    """Make a function that gives the Jacobian of `fn`, by forward mode.

    Use it where the input is smaller than the output.

    Parameters
    ----------
    fn : callable
        Returns an array or a pytree of arrays.
    argnums : int or sequence of int
        Positions of the arguments to differentiate by, pytrees of arrays of floats.
    has_aux : bool
        Whether `fn` returns ``(output, aux)``.
    chunk_size : int, optional
        Columns of the Jacobian to compute at a time; all by default.

    Returns
    -------
    callable
        The same as for `jacrev`.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    GradientError
        From the function: if an argument is not an array of floats.
    MissingRuleError
        From the function: if an operator on the way has neither a jvp rule nor an
        autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.jacfwd(lambda x: x ** 2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    check_function("jacfwd", fn)
    what = f"jacfwd of {getattr(fn, '__name__', 'function')}"
    wanted, is_single = positions(what, argnums)

    @wraps(fn)
    @carries
    def jacobian(*args: P.args, **kwargs: P.kwargs) -> Any:
        at = chosen(what, wanted, len(args))
        of_chosen = _of_chosen(fn, args, at, kwargs)
        inputs, structure = flatten(tuple(args[i] for i in at))
        inputs = [as_input(x, f"{what}: the argument") for x in inputs]
        primals = unflatten(structure, inputs)
        if not inputs:
            return map_leaves(lambda _: primals[0], of_chosen(*primals))

        def push(*basis: Any) -> Any:
            directions = unflatten(structure, list(basis))
            pushed = _either_jvp(of_chosen, primals, directions, has_aux)
            outputs = _as_floats(flatten(pushed[0])[0], what)
            _check_linear("jacfwd", outputs, inputs)
            return pushed[1:] if has_aux else (pushed[1],)

        dims = (-1, None) if has_aux else (-1,)
        found = vmap(push, out_dims=dims, chunk_size=chunk_size)(*_basis(inputs))

        def nest(column: Any) -> Any:
            parts = _split(column, inputs, len(column.shape) - 1)
            nested = unflatten(structure, parts)
            return nested[0] if is_single else nested

        result = map_leaves(Fresh(), map_leaves(nest, found[0]))
        return (result, found[1]) if has_aux else result

    return jacobian


def hessian(fn: Callable[P, R], argnums: int | Sequence[int] = 0) -> Callable[P, Any]:
    """Make a function that gives the matrix of second derivatives of `fn`.

    Parameters
    ----------
    fn : callable
        Returns a real array, usually without axes.
    argnums : int or sequence of int
        Positions of the arguments to differentiate by, pytrees of arrays of floats.

    Returns
    -------
    callable
        Returns an array of shape t + t for an input of shape t, nested twice as the input.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    GradientError
        From the function: if an argument is not an array of floats.
    MissingRuleError
        From the function: if an operator on the way has no autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.hessian(lambda x: (x ** 3).sum())(np.array([1.0, 2.0]))
    array([[ 6.,  0.],
           [ 0., 12.]])
    """
    check_function("hessian", fn)
    return jacfwd(jacrev(fn, argnums), argnums)
