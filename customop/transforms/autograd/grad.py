"""Gradients of functions: grad, value_and_grad, vjp; and native rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    TypeVarTuple,
    overload,
)

import numpy as np

from customop.arrays.array import is_inexact, is_real_float
from customop.arrays.corrections import result_correction
from customop.arrays.kinds import is_array
from customop.arrays.nested import (
    abbreviated,
    children,
    flat,
    flatten,
    like,
    map_leaves,
    map_nested,
    map_paths,
    outline,
    show,
    structure_text,
    unflatten,
)
from customop.arrays.stand_ins import entered
from customop.core.builtin_kinds import GradCall, GradRule, check_has_gradient
from customop.core.contract import copied
from customop.core.rule_kind import Definition
from customop.core.tracer import Tracer, frozen
from customop.errors import GradientError, check_function, place
from customop.synonyms import OF_DERIVATIVES, takes_names_of_others
from customop.transforms.autograd.reverse import GradInterpreter, interpreter_for
from customop.transforms.autograd.sweep import sweep
from customop.transforms.autograd.tape import GradTracer, Leaf, emptied, end_of
from customop.transforms.runs import subject_of
from customop.transforms.values import (
    NO_INTEGERS,
    Carrier,
    Fresh,
    NeedsCarrier,
    as_cotangent,
    as_input,
    call_reading,
    carried,
    carry_for,
    check_carried,
    check_numbers,
    check_outputs,
    chosen,
    inputs_of,
    one_like,
    or_zeros,
    position_in,
    positions,
    split_aux,
)

P = ParamSpec("P")
R = TypeVar("R")
# With the bound pyright (1.1.414) takes the parameter of a lambda as Any, like mypy:
# in grad(lambda x: op(x)) nothing else gives it a type.
T = TypeVar("T", bound=Any)
U = TypeVar("U", bound=Any)
V = TypeVar("V", bound=Any)
W = TypeVar("W", bound=Any)
Aux = TypeVar("Aux")
G_co = TypeVar("G_co", covariant=True)
Ts = TypeVarTuple("Ts")


if TYPE_CHECKING:

    class Transformed(Generic[P, G_co]):
        """A function with other results, where the other overloads return callables.

        mypy calls two overloads ambiguous if both fit and the function has an Any in its
        types, as each bare ``np.ndarray`` has. It then makes one type of both results. Of
        two callables it makes a function without annotations, and ``--strict`` refuses to
        call that (mypy 2.4).
        """

        def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> G_co:
            """Call the function."""
            raise NotImplementedError


# Arguments to differentiate by are passed by position (Concatenate): their gradients have
# their types. Only the plugin for mypy types the gradients of positions further back, of
# those counted from the end, and of longer tuples.
@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
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
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, P], R],
    argnums: Literal[1],
    has_aux: Literal[False] = False,
) -> Callable[Concatenate[T, U, P], U]: ...


@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, P], tuple[R, Aux]],
    argnums: Literal[1],
    has_aux: Literal[True],
) -> Callable[Concatenate[T, U, P], tuple[U, Aux]]: ...


@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, P], R],
    argnums: Literal[2],
    has_aux: Literal[False] = False,
) -> Callable[Concatenate[T, U, V, P], V]: ...


@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, P], tuple[R, Aux]],
    argnums: Literal[2],
    has_aux: Literal[True],
) -> Callable[Concatenate[T, U, V, P], tuple[V, Aux]]: ...


@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, W, P], R],
    argnums: Literal[3],
    has_aux: Literal[False] = False,
) -> Callable[Concatenate[T, U, V, W, P], W]: ...


@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, W, P], tuple[R, Aux]],
    argnums: Literal[3],
    has_aux: Literal[True],
) -> Callable[Concatenate[T, U, V, W, P], tuple[W, Aux]]: ...


@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, P], R],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: Literal[False] = False,
) -> Callable[Concatenate[T, U, P], tuple[T, U]]: ...


@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, P], tuple[R, Aux]],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: Literal[True],
) -> Callable[Concatenate[T, U, P], tuple[tuple[T, U], Aux]]: ...


@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, P], R],
    argnums: tuple[Literal[0], Literal[2]],
    has_aux: Literal[False] = False,
) -> Callable[Concatenate[T, U, V, P], tuple[T, V]]: ...


@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, P], tuple[R, Aux]],
    argnums: tuple[Literal[0], Literal[2]],
    has_aux: Literal[True],
) -> Callable[Concatenate[T, U, V, P], tuple[tuple[T, V], Aux]]: ...


@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, P], R],
    argnums: tuple[Literal[1], Literal[2]],
    has_aux: Literal[False] = False,
) -> Callable[Concatenate[T, U, V, P], tuple[U, V]]: ...


@overload
def grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, P], tuple[R, Aux]],
    argnums: tuple[Literal[1], Literal[2]],
    has_aux: Literal[True],
) -> Callable[Concatenate[T, U, V, P], tuple[tuple[U, V], Aux]]: ...


@overload
def grad(
    fn: Callable[P, R],
    argnums: int,
    has_aux: Literal[False] = False,
) -> Transformed[P, Any]: ...


@overload
def grad(
    fn: Callable[P, R],
    argnums: Sequence[int],
    has_aux: Literal[False] = False,
) -> Transformed[P, tuple[Any, ...]]: ...


@overload
def grad(
    fn: Callable[P, tuple[R, Aux]],
    argnums: int | Sequence[int],
    has_aux: Literal[True],
) -> Transformed[P, tuple[Any, Aux]]: ...


@takes_names_of_others(**OF_DERIVATIVES)
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
        Whether `fn` returns ``(value, aux)``; `aux` is not differentiated.

    Returns
    -------
    callable
        Takes the arguments of `fn`; returns the gradient, with the structure, shapes
        and dtypes of the argument, or ``(gradient, aux)``.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    GradientError
        From the function: if an argument is not an array of floats, or the value is
        not a real array without axes.
    MissingRuleError
        From the function: if an operator on the way has no autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.grad(lambda x: (x ** 3).sum())(np.array([1.0, 2.0]))
    array([ 3., 12.])

    By other arguments, and by several; keyword arguments are bound by a lambda:

    >>> co.grad(lambda x, k: k * x**2, argnums=1)(3.0, 2.0)
    np.float64(9.0)
    >>> co.grad(lambda x, k: k * x**2, argnums=(0, 1))(3.0, 2.0)
    (np.float64(12.0), np.float64(9.0))
    >>> co.grad(lambda k: np.var([1.0, 3.0] * k, ddof=1))(2.0)
    np.float64(8.0)

    A function that returns more than its value:

    >>> co.grad(lambda x: (x**2, {"x": x}), has_aux=True)(3.0)
    (np.float64(6.0), {'x': np.float64(3.0)})

    By a tree of arrays:

    >>> co.grad(lambda p: p["a"] * p["b"][0])({"a": 2.0, "b": [3.0]})
    {'a': np.float64(3.0), 'b': [np.float64(2.0)]}
    """
    found: Callable[P, Any] = wraps(fn)(gradient_of(fn, argnums, has_aux))
    return found


@overload
def value_and_grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, P], R],
    argnums: Literal[0] = 0,
    has_aux: bool = False,
) -> Callable[Concatenate[T, P], tuple[R, T]]: ...


@overload
def value_and_grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, P], R],
    argnums: Literal[1],
    has_aux: bool = False,
) -> Callable[Concatenate[T, U, P], tuple[R, U]]: ...


@overload
def value_and_grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, P], R],
    argnums: Literal[2],
    has_aux: bool = False,
) -> Callable[Concatenate[T, U, V, P], tuple[R, V]]: ...


@overload
def value_and_grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, W, P], R],
    argnums: Literal[3],
    has_aux: bool = False,
) -> Callable[Concatenate[T, U, V, W, P], tuple[R, W]]: ...


@overload
def value_and_grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, P], R],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: bool = False,
) -> Callable[Concatenate[T, U, P], tuple[R, tuple[T, U]]]: ...


@overload
def value_and_grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, P], R],
    argnums: tuple[Literal[0], Literal[2]],
    has_aux: bool = False,
) -> Callable[Concatenate[T, U, V, P], tuple[R, tuple[T, V]]]: ...


@overload
def value_and_grad(  # type: ignore[overload-overlap]  # each is an int
    fn: Callable[Concatenate[T, U, V, P], R],
    argnums: tuple[Literal[1], Literal[2]],
    has_aux: bool = False,
) -> Callable[Concatenate[T, U, V, P], tuple[R, tuple[U, V]]]: ...


@overload
def value_and_grad(
    fn: Callable[P, R],
    argnums: int,
    has_aux: bool = False,
) -> Transformed[P, tuple[R, Any]]: ...


@overload
def value_and_grad(
    fn: Callable[P, R],
    argnums: Sequence[int],
    has_aux: bool = False,
) -> Transformed[P, tuple[R, tuple[Any, ...]]]: ...


@takes_names_of_others(**OF_DERIVATIVES)
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
        Whether `fn` returns ``(value, aux)``; `aux` is not differentiated.

    Returns
    -------
    callable
        Takes the arguments of `fn`; returns ``(value, gradient)``, or
        ``((value, aux), gradient)``. The gradient has the structure of the argument;
        for a sequence `argnums` it is a tuple of gradients.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    GradientError
        From the function: if an argument is not an array of floats, or the value is
        not a real array without axes.
    MissingRuleError
        From the function: if an operator on the way has no autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))

    By two arguments, with more than the value returned:

    >>> def loss(w, b, x):
    ...     y = w * x + b
    ...     return np.sum(y**2), {"y": y}
    >>> step = co.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    >>> (value, aux), (dw, db) = step(2.0, 1.0, np.array([0.0, 1.0]))
    >>> float(value), aux["y"], float(dw), float(db)
    (10.0, array([1., 3.]), 6.0, 8.0)
    """
    found: Callable[P, tuple[Any, Any]] = wraps(fn)(
        _value_and_grad_of(fn, argnums, has_aux)
    )
    return found


def gradient_of(
    fn: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool
) -> Callable[..., Any]:
    """Do what `grad` does, without copying name and docstring: 2 us less."""
    both = _value_and_grad_of(fn, argnums, has_aux, takes_value=False)

    def grad_of(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return grad_of


def _value_and_grad_of(
    fn: Callable[..., Any],
    argnums: int | Sequence[int],
    has_aux: bool,
    *,
    takes_value: bool = True,
) -> Callable[..., tuple[Any, Any]]:
    """Do what `value_and_grad` does; without the value, which takes up to 4 us to take out."""
    check_function("grad", fn)
    name = getattr(fn, "__name__", "function")
    what = f"grad of {name}"
    wanted, is_single = positions(what, argnums)
    subject = subject_of(fn)

    def value_and_grad_of(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        interpreter = interpreter_for(subject)
        interpreter.fn = fn
        given: list[Any] = list(args)
        inputs: list[Any] = []
        at = chosen(what, wanted, len(given))
        is_alone = len(given) == 1 and not kwargs
        try:
            if not is_alone or type(given[0]) is not np.ndarray:
                check_numbers(fn, args)
                interpreter.inputs = (args, kwargs)
            if not is_alone:
                for constant in (*given, *kwargs.values()):
                    check_carried(constant)
            for i in at:
                given[i] = _tracked(interpreter, given[i], name, i, inputs)
        except NeedsCarrier:
            return carried(value_and_grad_of, args, kwargs)  # type: ignore[no-any-return]  # a pair
        with interpreter:
            if is_alone:
                result = entered(fn)(*given)
            else:
                result = call_reading(fn, interpreter.describe, args, kwargs, at, given)
        out, aux = split_aux(result, has_aux, "grad") if has_aux else (result, None)
        found = _gradients(interpreter, out, name, has_aux)
        fresh = Fresh()
        grads = tuple([_collect(item, found, fresh) for item in inputs])
        value: Any = interpreter.take_out(out) if takes_value else None
        if value is out and _alone_in(out) is not None:
            value = map_leaves(interpreter.take_out, out)
        if has_aux:
            value = (value, map_leaves(interpreter.take_out, aux))
        return value, grads[0] if is_single else grads

    return value_and_grad_of


def _tracked(
    interpreter: GradInterpreter, argument: Any, name: str, at: int, inputs: list[Any]
) -> Any:
    """Track the leaves of an argument; add structure and leaves to `inputs`."""
    if type(argument) is np.ndarray and argument.dtype.kind in "fc":
        tracer = interpreter.variable(argument)
        inputs.append((None, tracer.node, argument))
        return tracer
    what = f"grad of {name}: argument {at}"
    if isinstance(argument, Tracer):  # of an outer transform: 3 us less
        value = as_input(argument, what)
        tracer = interpreter.variable(value)
        inputs.append((None, tracer.node, value))
        return tracer
    leaves, structure = flatten(argument)
    values = [as_input(leaf, what, i, structure) for i, leaf in enumerate(leaves)]
    tracers = [interpreter.variable(value) for value in values]
    inputs.append((structure, [tracer.node for tracer in tracers], values))
    return unflatten(structure, tracers)


def _collect(item: Any, found: dict[Leaf, Any], fresh: Fresh) -> Any:
    structure, nodes, values = item
    if structure is None:
        return fresh(or_zeros(found.get(nodes), values))
    pairs = zip(nodes, values, strict=True)
    return unflatten(structure, [fresh(or_zeros(found.get(n), v)) for n, v in pairs])


def _gradients(
    interpreter: GradInterpreter, out: Any, name: str, has_aux: bool
) -> dict[Leaf, Any]:
    """Return gradients of a value without axes, by leaf."""
    if isinstance(out, GradTracer) and out.interpreter is interpreter:
        value = out.below
        if out.node is None:
            interpreter.note_constant()
            return {}
        if value.shape == () and is_real_float(value.dtype):
            found = _swept(out.node, value)
            interpreter.note_backward()
            return found
    inner = _alone_in(out)
    if inner is not None:
        return _gradients(interpreter, inner, name, has_aux)
    _check_value(interpreter, out, name, has_aux)
    interpreter.note_constant()
    return {}


def _swept(node: Any, value: Any) -> dict[Leaf, Any]:
    """Return gradients of a value by the leaves behind its node."""
    if type(value) is np.float64:  # by far the most
        return sweep([(node, one_like(value))], retain=False)
    carrier = carry_for(value)
    if carrier is None:
        return sweep([(node, one_like(value))], retain=False)
    found = sweep([(node, one_like(carrier.carry(value)))], retain=False)
    return {leaf: carrier.uncarry(g) for leaf, g in found.items()}


def _alone_in(out: Any) -> Any:
    """Return the only leaf of an object of another library, such as a DataArray, or None."""
    if isinstance(out, Tracer | dict | list | tuple | float | int) or is_array(out):
        return None
    leaves = flatten(out)[0]
    return leaves[0] if len(leaves) == 1 and leaves[0] is not out else None


def _check_value(
    interpreter: GradInterpreter, out: Any, name: str, has_aux: bool
) -> None:
    """Raise unless `out` is a real float without axes."""
    if not is_array(out) and not isinstance(out, float | int):
        raise GradientError(
            f"grad of {name}: the value is {show(out)}, must be an array without axes",
            do="return one array: sum the losses, or use has_aux=True for the rest",
        )
    shape, dtype = getattr(out, "shape", ()), getattr(out, "dtype", np.dtype(float))
    if tuple(shape) != () or not is_real_float(dtype):
        raise GradientError(
            f"grad of {name}: the value is {abbreviated(out)}, must be a real float"
            " without axes",
            do=_real_value(interpreter, tuple(shape), dtype, has_aux),
        )


def _real_value(
    interpreter: GradInterpreter, shape: tuple[int, ...], dtype: Any, has_aux: bool
) -> str:
    """Return how a function can give a value that has a gradient."""
    if is_real_float(dtype):
        first = [f"{{operand}}[{', '.join(['0'] * len(shape))}]"]
        changes = first * (set(shape) == {1}) + ["{np}.sum({value})"]
        found = result_correction(interpreter.fn, changes, has_aux)
        return f"{found}, or take vjp or jacrev"
    if is_inexact(dtype):
        return "use real(x) or abs(x), or take vjp or jacrev"
    return NO_INTEGERS


# ---- vjp ----


@overload
def vjp(
    fn: Callable[[*Ts], R], *primals: *Ts, has_aux: Literal[False] = False
) -> tuple[R, Callable[[R], tuple[*Ts]]]: ...


@overload
def vjp(
    fn: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Literal[True]
) -> tuple[R, Callable[[R], tuple[*Ts]], Aux]: ...


def vjp(fn: Callable[[*Ts], Any], *primals: *Ts, has_aux: bool = False) -> Any:
    """Return the value of a function, and a function from its cotangents to gradients.

    Parameters
    ----------
    fn : callable
        Takes `primals`; returns an array or a pytree of arrays.
    *primals : pytree of array
        The point of the derivative; arrays of floats.
    has_aux : bool
        Whether `fn` returns ``(output, aux)``; `aux` is not differentiated.

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
        If `fn` is not a function.
    GradientError
        If a primal is not an array of floats, or a cotangent does not fit the output.
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

    Several arguments, and something that is not differentiated:

    >>> y, pullback, aux = co.vjp(lambda x, k: (k * x, "aux"), 3.0, 2.0, has_aux=True)
    >>> pullback(np.float64(10.0)), aux
    ((np.float64(20.0), np.float64(30.0)), 'aux')
    """
    check_function("vjp", fn)
    check_numbers(fn, primals)
    interpreter = interpreter_for(subject_of(fn))
    interpreter.title, interpreter.fn = "vjp", fn
    try:
        value, pullback, aux = pull_back(
            interpreter, fn, primals, has_aux=has_aux, finish=copied
        )
    except NeedsCarrier:
        return _carried_vjp(fn, primals, has_aux)
    return (value, pullback, map_leaves(copied, aux)) if has_aux else (value, pullback)


def _carried_vjp(fn: Any, primals: Any, has_aux: bool) -> Any:
    """Do what `vjp` does, of arrays that are carried; the pullback carries too."""
    carrier = Carrier()  # without an end, for the pullback
    plain: Any = vjp  # its overloads know no other form
    value, pullback, *rest = plain(fn, *carrier.carry(primals), has_aux=has_aux)

    def carried_pullback(cotangent: Any) -> Any:
        return carrier.uncarry(pullback(carrier.carry(cotangent)))

    return (carrier.uncarry(value), carried_pullback, *carrier.uncarry(rest))


def pull_back(
    interpreter: GradInterpreter,
    fn: Callable[..., Any],
    primals: tuple[Any, ...],
    *,
    has_aux: bool = False,
    finish: Callable[[Any], Any] | None = None,
) -> tuple[Any, Callable[[Any], tuple[Any, ...]], Any]:
    """Return value, pullback and aux of a function.

    The value may be an array that was saved, unless `finish` copies its arrays.
    """
    leaves, structure = flatten(primals)
    values = [
        as_input(leaf, "vjp: primal", i, structure, position_in)
        for i, leaf in enumerate(leaves)
    ]
    tracers = [interpreter.variable(value) for value in values]
    interpreter.inputs = inputs_of(fn, leaves)
    # Taken before the call, which may write its arguments.
    starts = [tracer.node for tracer in tracers]
    with interpreter:
        result = entered(fn)(*unflatten(structure, tracers))
    out, aux = split_aux(result, has_aux, "vjp")
    out_leaves, out_structure = flatten(out)
    check_outputs(out_leaves, out_structure, "vjp")
    ends = [end_of(leaf, interpreter) for leaf in out_leaves]
    lowered = [interpreter.take_out(leaf) for leaf in out_leaves]

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        """Return gradients of the primals for a cotangent of the output."""
        cotangents = _cotangents(cotangent, lowered, out_structure)
        carrier = carry_for(*cotangents)
        given = cotangents if carrier is None else carrier.carry(cotangents)
        pairs = zip(ends, given, strict=True)
        found = sweep([(end, g) for end, g in pairs if end is not None], retain=True)
        if carrier is not None:
            found = {leaf: carrier.uncarry(g) for leaf, g in found.items()}
        interpreter.note_backward()
        fresh = Fresh(*cotangents)
        pairs = zip(starts, values, strict=True)
        grads = [fresh(or_zeros(found.get(s), v)) for s, v in pairs]
        return unflatten(structure, grads)  # type: ignore[no-any-return]  # primals are a tuple

    parts = lowered if finish is None else [*map(finish, lowered)]
    value = unflatten(out_structure, parts)
    return value, pullback, map_leaves(interpreter.take_out, aux) if has_aux else None


def _cotangents(given: Any, outputs: Sequence[Any], structure: Any) -> list[Any]:
    """Return the cotangents of the outputs; raise unless they fit."""
    leaves, given_structure = flatten(given)
    if given_structure != structure:
        raise GradientError(
            f"pullback: the cotangent is nested as {structure_text(given_structure)}, must be"
            f" as {structure_text(structure)} like the output, where * is an array",
            do="pass a cotangent for each array of the output",
        )
    pairs = enumerate(zip(leaves, outputs, strict=True))
    what = "pullback: the cotangent"
    return [frozen(as_cotangent(g, y, what, i, structure)) for i, (g, y) in pairs]


# ---- native: the autograd rule that differentiates the body of an operator ----


class _Native(GradRule):
    """The rule that differentiates the kernel: ``register_autograd(native)``.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::softplus", mutates_args=())
    ... def softplus(x: np.ndarray) -> np.ndarray:
    ...     return np.log1p(np.exp(x))
    >>> op = softplus.register_autograd(co.native)
    >>> co.grad(op)(np.array(0.0))
    np.float64(0.5)
    """

    __slots__ = ()

    def __call__(self, ctx: Any, *grads: Any) -> Any:
        return self.backward(ctx, *grads)

    def forward(self, call: GradCall) -> Any:
        """Run the body on tracers of its own gradient."""
        op = call.op
        inner = interpreter_for(subject_of(op.definition.fn))
        leaves: list[Leaf] = []
        values = list(call.values)
        for slot, path, _ in call.edges:
            values[slot] = _replace(
                values[slot], path, lambda v: _track(inner, v, leaves)
            )
        positional, keywords = op.schema.split(values)
        with inner:
            out = entered(op.definition.fn)(*positional, **keywords)
        node = call.node()
        node.node_inputs = [emptied(value) for value in call.values]
        node.node_ends = [end_of(leaf, inner) for leaf in flat(out)]
        node.node_starts = leaves
        node.node_inner = inner
        return call.track(node, map_nested(out, inner.lower))

    def backward(self, ctx: Any, *grads: Any) -> dict[str, Any]:
        """Sweep back through the body."""
        seeds = [
            (end, grad)
            for end, grad in zip(ctx.node_ends, flat(list(grads)), strict=True)
            if end is not None and grad is not None
        ]
        swept = sweep(seeds, retain=True)
        ctx.node_inner.note_backward()
        pairs = zip(ctx.node_edges, ctx.node_starts, strict=True)
        found = {(edge[0], edge[1]): swept.get(leaf) for edge, leaf in pairs}
        slots = {slot for slot, _ in found}
        names = [p.name for p in ctx.node_op.schema.parameters]
        return {names[i]: _nested(ctx.node_inputs[i], i, found) for i in slots}

    def check(self, op: Definition) -> None:
        """Raise unless the operator can have a gradient."""
        check_has_gradient(op)

    @property
    def places(self) -> tuple[str, ...]:
        """The place of this rule; the body has the place of the operator."""
        return (place(self),)


native: _Native = _Native()


def _track(inner: GradInterpreter, value: Any, leaves: list[Leaf]) -> GradTracer:
    tracer = inner.variable(value)
    leaves.append(tracer.node)
    return tracer


def _replace(value: Any, path: tuple[int, ...], fn: Callable[[Any], Any]) -> Any:
    if not path:
        return fn(value)
    items = list(children(value) or ())
    items[path[0]] = _replace(items[path[0]], path[1:], fn)
    return like(value, items)


def _nested(shape: Any, slot: int, found: dict[Any, Any]) -> Any:
    """Return gradients nested as an argument is, with None for missing ones."""
    return map_paths(shape, lambda _, path: found.get((slot, path)), outline)
