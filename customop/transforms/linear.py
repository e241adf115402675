"""Derivatives as linear functions: linearize and Hessian-vector products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

import numpy as np

from customop.arrays.dtypes import is_inexact
from customop.arrays.kinds import is_array
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.pytree import Structure, flatten, map_leaves, unflatten
from customop.core.contract.memory import copied
from customop.errors import check_function
from customop.transforms.autograd.grad import gradient_of, pull_back
from customop.transforms.autograd.interpreter import GradInterpreter, interpreter_for
from customop.transforms.carrier import Carrier, NeedsCarrier
from customop.transforms.jvp import push_forward
from customop.transforms.runs import subject_of
from customop.transforms.values import (
    Fresh,
    as_tangent,
    check_nested_alike,
    position_in,
)

__all__ = ["hvp", "linearize"]

R = TypeVar("R")
T = TypeVar("T", bound=Any)
Aux = TypeVar("Aux")
Ts = TypeVarTuple("Ts")


def linearize(fn: Callable[[*Ts], R], *primals: *Ts) -> tuple[R, Callable[[*Ts], R]]:
    """Return the value of a function, and its derivative there as a linear function.

    Use it for many directions at one point: `jvp` runs the function for each direction,
    and this runs it once.

    Parameters
    ----------
    fn : callable
        Takes `primals`; returns an array or a pytree of arrays.
    *primals : pytree of array
        The point of the derivative; arrays of floats.

    Returns
    -------
    output : pytree of array
    pushforward : callable
        Takes a tangent for each primal, of its structure, shapes and dtypes; returns the
        derivative of the output in that direction. It may be called many times.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    GradientError
        If a primal is not an array of floats; from the pushforward, if tangents do not
        fit the primals.
    MissingRuleError
        If an operator on the way has no autograd rule.

    Notes
    -----
    The backward pass is recorded and transposed, because the transpose of the pullback
    is the pushforward. So each operator needs an autograd rule whose formula is made of
    NumPy functions and operators. Source: Townsend, "A new trick for calculating
    Jacobian vector products", 2017.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> y, push = co.linearize(np.sin, np.zeros(2))
    >>> push(np.array([1.0, 3.0])), push(np.array([0.0, 2.0]))
    (array([1., 3.]), array([0., 2.]))
    """
    check_function("linearize", fn)
    interpreter = interpreter_for(subject_of(fn))
    interpreter.title, interpreter.fn = "linearize", fn
    call: Callable[..., Any] = fn  # with tracers, which are not of the types in Ts

    def arrays(*args: Any) -> Any:
        return map_leaves(_as_array, call(*args))

    try:
        value, pullback, _ = pull_back(interpreter, arrays, primals)
    except NeedsCarrier:
        return _carried_linearize(fn, primals)  # type: ignore[no-any-return]  # a pair
    outputs, out_structure = flatten(value)
    zeros = [call_numpy(np.zeros_like, y) for y in outputs]
    at = [i for i, zero in enumerate(zeros) if is_inexact(zero.dtype)]
    models, structure = flatten(primals)

    def pull(*cotangents: Any) -> tuple[Any, ...]:
        return pullback(unflatten(out_structure, _placed(zeros, at, cotangents)))

    carrier = Carrier()  # without an end, for the pushforward
    transposed = GradInterpreter()
    transposed.title = "linearize"
    starts = carrier.carry(tuple([zeros[i] for i in at]))
    _, push, _ = pull_back(transposed, pull, starts)

    def pushforward(*tangents: *Ts) -> Any:
        given = _tangents(tangents, models, structure)
        found = carrier.uncarry(push(carrier.carry(unflatten(structure, given))))
        fresh = Fresh(*zeros)
        placed = _placed(zeros, at, found)
        return unflatten(out_structure, [fresh(t) for t in placed])

    return map_leaves(copied, value), pushforward


def _carried_linearize(fn: Any, primals: Any) -> Any:
    """As `linearize`, of arrays that are carried; the pushforward carries too."""
    carrier = Carrier()  # without an end, for the pushforward
    value, push = linearize(fn, *carrier.carry(primals))

    def carried_push(*tangents: Any) -> Any:
        return carrier.uncarry(push(*carrier.carry(tangents)))

    return carrier.uncarry(value), carried_push


def _as_array(value: Any) -> Any:
    is_number = isinstance(value, int | float | complex)
    return np.asarray(value)[()] if is_number and not is_array(value) else value


def _placed(values: Sequence[Any], at: Sequence[int], new: Sequence[Any]) -> list[Any]:
    """A list with other values at some places."""
    found = list(values)
    for place, value in zip(at, new, strict=True):
        found[place] = value
    return found


def _tangents(given: Any, primals: list[Any], structure: Structure) -> list[Any]:
    """The tangents one by one; raise unless they fit the primals."""
    leaves, other = flatten(given)
    if other != structure:
        points = unflatten(structure, primals)
        check_nested_alike("linearize: tangent", given, points, position_in)
    pairs = enumerate(zip(leaves, primals, strict=True))
    return [
        as_tangent(t, _as_array(x), "linearize: tangent", i, structure, position_in)
        for i, (t, x) in pairs
    ]


@overload
def hvp(
    fn: Callable[[*Ts], Any],
    primals: tuple[*Ts],
    tangents: tuple[*Ts],
    has_aux: Literal[False] = False,
) -> tuple[*Ts]: ...
@overload
def hvp(
    fn: Callable[[*Ts], tuple[Any, Aux]],
    primals: tuple[*Ts],
    tangents: tuple[*Ts],
    has_aux: Literal[True],
) -> tuple[tuple[*Ts], Aux]: ...
@overload
def hvp(
    fn: Callable[[T], Any], primals: T, tangents: T, has_aux: Literal[False] = False
) -> T: ...
@overload
def hvp(
    fn: Callable[[T], tuple[Any, Aux]], primals: T, tangents: T, has_aux: Literal[True]
) -> tuple[T, Aux]: ...
def hvp(
    fn: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False
) -> Any:
    """Multiply the matrix of second derivatives of a function with a vector.

    The matrix is not computed: it takes a few times as long as the gradient.

    Parameters
    ----------
    fn : callable
        Returns a real array without axes.
    primals : pytree of array
        The point of the derivative; arrays of floats. A tuple has the arguments of `fn`;
        anything else is its only argument.
    tangents : pytree of array
        The vector, with the structure, shapes and dtypes of `primals`.
    has_aux : bool
        Whether `fn` returns ``(value, aux)``; `aux` is not differentiated.

    Returns
    -------
    product : pytree of array
        Of the structure, shapes and dtypes of `primals`.
    aux : object
        Only with `has_aux`.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    GradientError
        If a primal is not an array of floats, tangents do not fit the primals, or the
        value is not a real array without axes.
    MissingRuleError
        If an operator on the way has no autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.hvp(lambda x: (x ** 3).sum(), np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    array([  6., 120.])
    >>> co.hvp(lambda x, y: x * x * y, (3.0, 2.0), (1.0, 0.0))
    (np.float64(4.0), np.float64(6.0))
    """
    check_function("hvp", fn)
    is_single = type(primals) is not tuple
    points = (primals,) if is_single else primals
    directions = (tangents,) if is_single else tangents
    is_alone = len(points) == 1
    gradient = gradient_of(fn, 0 if is_alone else tuple(range(len(points))), has_aux)
    _, product, *aux = push_forward("hvp", gradient, points, directions, has_aux, fn)
    if is_alone and not is_single:
        product = (product,)
    return (product, *aux) if has_aux else product
