"""Gradients of functions: vjp, value_and_grad, grad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from operator import index
from typing import Any, Concatenate, Literal, TypeVar, TypeVarTuple, overload

import numpy as np
from typing_extensions import ParamSpec

from customop.arrays.describe import abbreviated, show
from customop.arrays.dtypes import is_inexact, is_real_float
from customop.arrays.kinds import has_memory, is_array
from customop.arrays.numpy_protocol import call_numpy
from customop.arrays.pytree import flatten, map_leaves, unflatten
from customop.errors import GradientError, check_function
from customop.transforms.autograd.interpreter import GradInterpreter
from customop.transforms.autograd.node import Leaf
from customop.transforms.autograd.sweep import sweep
from customop.transforms.autograd.tracer import GradTracer, end_of

__all__ = [
    "Fresh",
    "as_cotangent",
    "as_input",
    "grad",
    "value_and_grad",
    "vjp",
]

P = ParamSpec("P")
R = TypeVar("R")
# The bound lets pyright (1.1.414) take the parameter of a lambda for anything, as mypy
# does: grad(lambda x: op(x)) has no other type for it.
T = TypeVar("T", bound=Any)
Aux = TypeVar("Aux")
Ts = TypeVarTuple("Ts")


def as_input(value: Any, what: str) -> Any:
    """An input of a transform: an array of floats, or a Python float as one."""
    if isinstance(value, float | complex) and not isinstance(value, np.generic):
        return np.asarray(value)
    if not is_array(value):
        raise GradientError(
            f"{what} must be an array of floats, got {show(value)}",
            do="pass an array of floats; bind what is none: lambda x: f(x, n)",
        )
    if not is_inexact(value.dtype):
        raise GradientError(
            f"{what} has dtype {value.dtype}, which has no derivative",
            do="pass x.astype(float)",
        )
    return value


@overload
def vjp(
    fn: Callable[[*Ts], R], *primals: *Ts, has_aux: Literal[False] = False
) -> tuple[R, Callable[[R], tuple[*Ts]]]: ...
@overload
def vjp(
    fn: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Literal[True]
) -> tuple[R, Callable[[R], tuple[*Ts]], Aux]: ...
def vjp(fn: Callable[[*Ts], Any], *primals: *Ts, has_aux: bool = False) -> Any:
    """Value of a function, and a function that pulls cotangents back.

    Parameters
    ----------
    fn : callable
        Takes `primals`; returns an array or a pytree of arrays.
    *primals : pytree of array
        Where the derivative is taken; arrays of floats.
    has_aux : bool
        Whether `fn` returns ``(output, aux)`` with something not to differentiate.

    Returns
    -------
    output : pytree of array
    pullback : callable
        Takes a cotangent for the output, of the same structure, shapes and dtypes;
        returns a tuple with a gradient for each primal. It may be called many times.
    aux : object
        Only with `has_aux`.

    Raises
    ------
    ArgumentError
        If `fn` is no function.
    GradientError
        If a primal is no array of floats, or a cotangent does not fit the output.
    MissingRuleError
        From the pullback, if an operator on the way has no autograd rule.

    Notes
    -----
    For complex values the convention is JAX's: the pullback is the transpose of the
    complex-linear derivative, without conjugation.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> y, pullback = co.vjp(np.sin, np.zeros(2))
    >>> pullback(np.ones(2))
    (array([1., 1.]),)
    """
    check_function("vjp", fn)
    call: Callable[..., Any] = fn  # on tracers in the place of primals
    interpreter = GradInterpreter()
    leaves, structure = flatten(primals)
    values = [as_input(leaf, f"vjp: primal {i}") for i, leaf in enumerate(leaves)]
    tracers = [interpreter.variable(value) for value in values]
    with interpreter:
        result = call(*unflatten(structure, tracers))
    out, aux = _split_aux(result, has_aux, "vjp")
    out_leaves, out_structure = flatten(out)
    check_outputs(out_leaves, "vjp")
    ends = [end_of(leaf, interpreter) for leaf in out_leaves]
    lowered = [interpreter.lower(leaf) for leaf in out_leaves]
    starts = [tracer.node for tracer in tracers]

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        """Gradients of the primals for a cotangent of the output."""
        given, given_structure = flatten(cotangent)
        if given_structure != out_structure:
            raise GradientError(
                f"pullback: a cotangent of structure {given_structure} does not fit the"
                f" output, {out_structure}",
                do="pass a cotangent for each array of the output",
            )
        pairs = zip(given, lowered, strict=True)
        cotangents = [
            as_cotangent(g, y, f"pullback: cotangent {i}")
            for i, (g, y) in enumerate(pairs)
        ]
        seeds = [
            (end, g) for end, g in zip(ends, cotangents, strict=True) if end is not None
        ]
        found = sweep(seeds, retain=True)
        fresh = Fresh(*cotangents)
        pairs = zip(starts, values, strict=True)
        grads = [fresh(_or_zeros(found.get(s), v)) for s, v in pairs]
        return unflatten(structure, grads)  # type: ignore[no-any-return]

    value = unflatten(out_structure, lowered)
    if has_aux:
        return value, pullback, map_leaves(interpreter.lower, aux)
    return value, pullback


def _split_aux(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise GradientError(
            f"{name}: with has_aux=True the function must return (output, aux), got"
            f" {show(result)}",
            do="return a pair, or leave has_aux out",
        )
    return result


def check_outputs(leaves: Sequence[Any], name: str) -> None:
    """Raise unless a transformed function returned arrays."""
    for i, leaf in enumerate(leaves):
        if not is_array(leaf) and not isinstance(leaf, int | float | complex):
            raise GradientError(
                f"{name}: output {i} is {show(leaf)}, must be an array",
                do="return arrays, or other things as aux with has_aux=True",
            )


def as_cotangent(given: Any, output: Any, what: str) -> Any:
    """A cotangent of the shape and dtype of an output; numbers become arrays."""
    if isinstance(given, float | int | complex) and not isinstance(given, np.generic):
        given = np.asarray(given, getattr(output, "dtype", None))
    shape, dtype = getattr(output, "shape", ()), getattr(output, "dtype", None)
    if (
        not is_array(given)
        or tuple(given.shape) != tuple(shape)
        or given.dtype != dtype
    ):
        seen = abbreviated(given) if is_array(given) else show(given)
        want = abbreviated(output) if is_array(output) else show(output)
        raise GradientError(
            f"{what} is {seen}, must be {want} as the output is",
            do="pass an array of the shape and dtype of the output",
        )
    return given


def _or_zeros(grad: Any, value: Any) -> Any:
    """A gradient; zeros for an input that the output does not depend on."""
    return call_numpy(np.zeros_like, value) if grad is None else grad


# What is differentiated goes by position, hence Concatenate: the gradient by the first
# argument has its type, gradients by others have types that cannot be written.
@overload
def value_and_grad(  # type: ignore[overload-overlap]  # 0 is an int
    fn: Callable[Concatenate[T, P], R], argnums: Literal[0] = 0, has_aux: bool = False
) -> Callable[Concatenate[T, P], tuple[R, T]]: ...
@overload
def value_and_grad(
    fn: Callable[P, R], argnums: int, has_aux: bool = False
) -> Callable[P, tuple[R, Any]]: ...
@overload
def value_and_grad(
    fn: Callable[P, R], argnums: Sequence[int], has_aux: bool = False
) -> Callable[P, tuple[R, tuple[Any, ...]]]: ...
def value_and_grad(
    fn: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[P, tuple[Any, Any]]:
    """Make a function that gives the value of `fn` and its gradient.

    Parameters
    ----------
    fn : callable
        Returns a real array without axes.
    argnums : int or sequence of int
        Positions of the arguments to differentiate by, each a pytree of arrays of
        floats. Negative positions count from the end.
    has_aux : bool
        Whether `fn` returns ``(value, aux)`` with something not to differentiate.

    Returns
    -------
    callable
        Takes what `fn` takes; returns ``(value, gradient)``, or
        ``((value, aux), gradient)``. The gradient has the structure of the argument;
        it is a tuple of them where `argnums` is a sequence.

    Raises
    ------
    ArgumentError
        If `fn` is no function.
    GradientError
        From the function: if an argument is no array of floats, or the value is not a
        real array without axes.
    MissingRuleError
        From the function: if an operator on the way has no autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    check_function("grad", fn)
    name = getattr(fn, "__name__", "function")
    what = f"grad of {name}"
    # As the tracers stand in for what P says, its types hold no longer.
    call: Callable[..., Any] = fn
    wanted, is_single = positions(what, argnums)

    @wraps(fn)
    def value_and_grad_of(*args: P.args, **kwargs: P.kwargs) -> tuple[Any, Any]:
        interpreter = GradInterpreter()
        given: list[Any] = list(args)
        inputs: list[Any] = []
        for at in chosen(what, wanted, len(given)):
            given[at] = _tracked(interpreter, given[at], name, at, inputs)
        with interpreter:
            result = call(*given, **kwargs)
        out, aux = _split_aux(result, has_aux, "grad") if has_aux else (result, None)
        found = _gradients(interpreter, out, name)
        fresh = Fresh()
        grads = tuple([_collect(item, found, fresh) for item in inputs])
        value: Any = interpreter.lower(out)
        if has_aux:
            value = (value, map_leaves(interpreter.lower, aux))
        return value, grads[0] if is_single else grads

    return value_and_grad_of


def positions(what: str, argnums: Any) -> tuple[tuple[int, ...], bool]:
    """The positions that `argnums` names, and whether it is one alone."""
    try:
        return (index(argnums),), True
    except TypeError:
        pass
    try:
        return tuple(index(position) for position in argnums), False
    except TypeError:
        raise GradientError(
            f"{what}: argnums={argnums!r} is neither a position nor several",
            do="write argnums=0, or argnums=(0, 1)",
        ) from None


def chosen(what: str, wanted: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The positions in a call of `count` positional arguments, from the front."""
    for position in wanted:
        if not -count <= position < count:
            raise GradientError(
                f"{what}: argnums names argument {position}, the call has"
                f" {count} positional arguments",
                do="pass that argument by position, or change argnums",
            )
    found = tuple([p + count if p < 0 else p for p in wanted])
    if len(found) > 1 and len(set(found)) < len(found):
        raise GradientError(
            f"{what}: argnums={wanted} names an argument twice",
            do="name each argument once",
        )
    return found


def _tracked(
    interpreter: GradInterpreter, argument: Any, name: str, at: int, inputs: list[Any]
) -> Any:
    """An argument with its leaves tracked; notes structure and leaves in `inputs`."""
    if type(argument) is np.ndarray and argument.dtype.kind in "fc":
        tracer = interpreter.variable(argument)
        inputs.append((None, tracer.node, argument))
        return tracer
    leaves, structure = flatten(argument)
    what = f"grad of {name}: argument {at}"
    values = [as_input(leaf, what) for leaf in leaves]
    tracers = [interpreter.variable(value) for value in values]
    inputs.append((structure, [tracer.node for tracer in tracers], values))
    return unflatten(structure, tracers)


def _collect(item: Any, found: dict[Leaf, Any], fresh: Fresh) -> Any:
    structure, nodes, values = item
    if structure is None:
        return fresh(_or_zeros(found.get(nodes), values))
    pairs = zip(nodes, values, strict=True)
    return unflatten(structure, [fresh(_or_zeros(found.get(n), v)) for n, v in pairs])


class Fresh:
    """Makes gradients the caller's own: no two share memory, each can be written.

    A formula may return its cotangent itself, twice, or broadcast to a read-only view.
    An array that it has saved and returns as it is, with no factor of the cotangent, is
    no linear formula's, and is not told apart here.
    """

    __slots__ = ("_seen",)

    def __init__(self, *given: Any) -> None:
        self._seen = [id(value) for value in given]

    def __call__(self, grad: Any) -> Any:
        """The gradient, or a copy where it may be somebody else's."""
        if getattr(grad, "base", self) is None and id(grad) not in self._seen:
            self._seen.append(id(grad))
            return grad
        return grad.copy() if has_memory(grad) else grad


def one_like(value: Any) -> Any:
    """The cotangent one of a value without axes."""
    if isinstance(value, np.generic):  # as reductions give; an operator takes 7 us
        return value.dtype.type(1)
    return call_numpy(np.ones_like, value)


def _gradients(interpreter: GradInterpreter, out: Any, name: str) -> dict[Leaf, Any]:
    """Gradients of a value without axes, by leaf."""
    if type(out) is GradTracer and out.interpreter is interpreter:
        value = out.value
        if value.shape == () and is_real_float(value.dtype):
            return sweep([(out.node, one_like(value))], retain=False)
    _check_value(out, name)
    return {}


def _check_value(out: Any, name: str) -> None:
    """Raise unless `out` is a real float without axes."""
    if not is_array(out) and not isinstance(out, float | int):
        raise GradientError(
            f"grad of {name}: the value is {show(out)}, must be an array without axes",
            do="return one array: sum the losses, or use has_aux=True for the rest",
        )
    shape, dtype = getattr(out, "shape", ()), getattr(out, "dtype", np.dtype(float))
    if tuple(shape) != () or not is_real_float(dtype):
        is_complex = "complex" in str(dtype)
        hint = "return x.sum()" if tuple(shape) else "return x.astype(float)"
        hint = "use real(x) or abs(x)" if is_complex else hint
        raise GradientError(
            f"grad of {name}: the value is {abbreviated(out)}, must be a real float"
            " without axes",
            do=f"{hint}, or take vjp or jacrev",
        )


@overload
def grad(  # type: ignore[overload-overlap]  # 0 is an int
    fn: Callable[Concatenate[T, P], R],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
) -> Callable[Concatenate[T, P], T]: ...
@overload
def grad(
    fn: Callable[Concatenate[T, P], tuple[R, Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
) -> Callable[Concatenate[T, P], tuple[T, Aux]]: ...
@overload
def grad(
    fn: Callable[P, R], argnums: int, has_aux: Literal[False] = False
) -> Callable[P, Any]: ...
@overload
def grad(
    fn: Callable[P, R], argnums: Sequence[int], has_aux: Literal[False] = False
) -> Callable[P, tuple[Any, ...]]: ...
@overload
def grad(
    fn: Callable[P, tuple[R, Aux]],
    argnums: int | Sequence[int],
    has_aux: Literal[True],
) -> Callable[P, tuple[Any, Aux]]: ...
def grad(
    fn: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[P, Any]:
    """Make a function that gives the gradient of `fn`.

    Parameters
    ----------
    fn : callable
        Returns a real array without axes.
    argnums : int or sequence of int
        Positions of the arguments to differentiate by, each a pytree of arrays of
        floats. Negative positions count from the end.
    has_aux : bool
        Whether `fn` returns ``(value, aux)`` with something not to differentiate.

    Returns
    -------
    callable
        Takes what `fn` takes; returns the gradient, with the structure, shapes and
        dtypes of the argument, or ``(gradient, aux)``.

    Raises
    ------
    ArgumentError
        If `fn` is no function.
    GradientError
        From the function: if an argument is no array of floats, or the value is not a
        real array without axes.
    MissingRuleError
        From the function: if an operator on the way has no autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.grad(lambda x: (x ** 3).sum())(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    make: Any = value_and_grad  # no overload is for either kind of `argnums`
    both = make(fn, argnums, has_aux)

    @wraps(fn)
    def grad_of(*args: P.args, **kwargs: P.kwargs) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return grad_of
