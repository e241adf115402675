"""Derivatives as linear functions and as matrices: linearize, hvp, jacobians, hessian."""

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
    TypeAlias,
    TypeVar,
    TypeVarTuple,
    final,
    overload,
)

import numpy as np

from customop.arrays.array import is_inexact, is_real_float
from customop.arrays.kinds import device_of, is_array
from customop.arrays.nested import (
    Structure,
    abbreviated,
    flatten,
    map_leaves,
    placed,
    show,
    unflatten,
)
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.stand_ins import entered
from customop.core.contract import copied
from customop.errors import GradientError, check_function
from customop.shapes.sizes import product
from customop.synonyms import OF_DERIVATIVES, takes_names_of_others
from customop.transforms.autograd.grad import gradient_of, pull_back, vjp
from customop.transforms.autograd.reverse import GradInterpreter, interpreter_for
from customop.transforms.jvp import jvp, push_forward
from customop.transforms.runs import subject_of
from customop.transforms.values import (
    NO_INTEGERS,
    Carrier,
    Fresh,
    NeedsCarrier,
    as_input,
    as_tangent,
    call_reading,
    carries,
    check_nested_alike,
    check_numbers,
    chosen,
    note_inputs,
    position_in,
    positions,
)
from customop.transforms.vmap import vmap

# ---- derivatives as linear functions: linearize and Hessian-vector products ----


R = TypeVar("R")
T = TypeVar("T", bound=Any)
Aux = TypeVar("Aux")
Ts = TypeVarTuple("Ts")


def linearize(fn: Callable[[*Ts], R], *primals: *Ts) -> tuple[R, Callable[[*Ts], R]]:
    """Return the value of a function, and its derivative there as a linear function.

    Use it for many directions at one point: `jvp` runs the function for each direction,
    while this runs it only once.

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
        Takes a tangent for each primal, with the same structure, shapes and dtypes.
        Returns the derivative of the output in that direction. It may be called many
        times.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    GradientError
        If a primal is not an array of floats. From the pushforward: if tangents do not
        fit the primals.
    MissingRuleError
        If an operator that `fn` calls has no autograd rule.

    Notes
    -----
    The backward pass is recorded and transposed, because the transpose of the pullback
    is the pushforward. So each operator needs an autograd rule whose formula uses only
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
    check_numbers(fn, primals)
    interpreter = interpreter_for(subject_of(fn))
    interpreter.title, interpreter.fn = "linearize", fn
    call: Callable[..., Any] = entered(
        fn
    )  # called with tracers, not with the types in Ts

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
        return pullback(unflatten(out_structure, placed(zeros, at, cotangents)))

    carrier = Carrier()  # never closed: the pushforward uses it later
    transposed = GradInterpreter()
    transposed.title = "linearize"
    starts = carrier.carry(tuple([zeros[i] for i in at]))
    _, push, _ = pull_back(transposed, pull, starts)

    def pushforward(*tangents: *Ts) -> Any:
        given = _tangents(tangents, models, structure)
        found = carrier.uncarry(push(carrier.carry(unflatten(structure, given))))
        fresh = Fresh(*zeros)
        every = placed(zeros, at, found)
        return unflatten(out_structure, [fresh(t) for t in every])

    return map_leaves(copied, value), pushforward


def _carried_linearize(fn: Any, primals: Any) -> Any:
    """Do what `linearize` does, with carriers around the primals and the tangents."""
    carrier = Carrier()  # never closed: the pushforward uses it later
    value, push = linearize(fn, *carrier.carry(primals))

    def carried_push(*tangents: Any) -> Any:
        return carrier.uncarry(push(*carrier.carry(tangents)))

    return carrier.uncarry(value), carried_push


def _as_array(value: Any) -> Any:
    is_number = isinstance(value, int | float | complex)
    return np.asarray(value)[()] if is_number and not is_array(value) else value


def _tangents(given: Any, primals: list[Any], structure: Structure) -> list[Any]:
    """Return the tangents as a flat list; raise if they do not fit the primals."""
    leaves, other = flatten(given)
    if other != structure:
        points = unflatten(structure, primals)
        check_nested_alike("linearize: tangent", given, points, position_in)
    pairs = enumerate(zip(leaves, primals, strict=True))
    return [
        as_tangent(t, _as_array(x), "linearize: tangent", i, structure, position_in)
        for i, (t, x) in pairs
    ]


_TUPLES = "leave it out: primals and tangents may be tuples, with all arguments"


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
@takes_names_of_others(**{**OF_DERIVATIVES, "argnum": _TUPLES, "argnums": _TUPLES})
def hvp(
    fn: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False
) -> Any:
    """Multiply the matrix of second derivatives of a function with a vector.

    The matrix itself, the Hessian, is not computed: this product takes only a few times
    as long as the gradient.

    Parameters
    ----------
    fn : callable
        Returns a real array without axes.
    primals : pytree of array
        The point of the derivative; arrays of floats. A tuple holds all arguments of
        `fn`; anything else is the only argument.
    tangents : pytree of array
        The vector, with the structure, shapes and dtypes of `primals`.
    has_aux : bool
        Whether `fn` returns ``(value, aux)``; `aux` is not differentiated.

    Returns
    -------
    product : pytree of array
        It has the structure, shapes and dtypes of `primals`.
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
        If an operator that `fn` calls has no autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.hvp(lambda x: (x ** 3).sum(), np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    array([  6., 120.])
    >>> co.hvp(lambda x, y: x * x * y, (3.0, 2.0), (1.0, 0.0))
    (np.float64(4.0), np.float64(6.0))
    >>> co.hvp(lambda x: (x**3, "aux"), 2.0, 1.0, has_aux=True)
    (np.float64(12.0), 'aux')
    """
    check_function("hvp", fn)
    is_single = type(primals) is not tuple
    points = (primals,) if is_single else primals
    check_numbers(fn, points)
    directions = (tangents,) if is_single else tangents
    is_alone = len(points) == 1
    gradient = gradient_of(fn, 0 if is_alone else tuple(range(len(points))), has_aux)
    _, product, *aux = push_forward("hvp", gradient, points, directions, has_aux, fn)
    if is_alone and not is_single:
        product = (product,)
    return (product, *aux) if has_aux else product


# ---- matrices of derivatives, by vjp, jvp and vmap ----


P = ParamSpec("P")

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import ParamSpec as ParameterVariable
    from typing_extensions import TypeVar as TypeVariable

    from customop.arrays.fake import FakeArray

    # A lambda's parameter is Any for pyright with the default, and Unknown without.
    A = TypeVariable("A", bound=Any, default=Any)
    B = TypeVariable("B", bound=Any, default=Any)
    C = TypeVariable("C", bound=Any, default=Any)
    E = TypeVariable("E", bound=Any, default=Any)
    Y = TypeVariable("Y", default=Any)
    Rest = ParameterVariable("Rest", default=...)
    Q = ParamSpec("Q")
    Like_co = TypeVar("Like_co", covariant=True)
    Other_co = TypeVar("Other_co", covariant=True)
    D = TypeVar("D", bound=np.generic)
    D2 = TypeVar("D2", bound=np.generic)
    Array: TypeAlias = np.ndarray[Any, np.dtype[D]]
    Number: TypeAlias = np.ndarray[Any, Any] | np.inexact[Any] | float

    @final
    class Unknown:
        """The class of nothing: a type that fits it is Any."""

    class Jacobian(Generic[P, Like_co, Other_co]):
        """A function of Jacobians: nested like the output, then like the input.

        Annotations name no such class, but overloads can ask for the classes of both:
        of the one whose dtype the Jacobian has, and of the other. Trees of arrays have
        results of Any.
        """

        @overload
        def __call__(
            self: Jacobian[Q, Unknown, Any], /, *args: Q.args, **kwargs: Q.kwargs
        ) -> Any: ...
        @overload
        def __call__(
            self: Jacobian[Q, Any, Unknown], /, *args: Q.args, **kwargs: Q.kwargs
        ) -> Any: ...
        @overload
        def __call__(
            self: Jacobian[Q, Array[D], Number], /, *args: Q.args, **kwargs: Q.kwargs
        ) -> npt.NDArray[D]: ...
        @overload
        def __call__(  # type: ignore[overload-overlap]  # a float is a Number, too
            self: Jacobian[Q, float, float], /, *args: Q.args, **kwargs: Q.kwargs
        ) -> float: ...
        @overload
        def __call__(
            self: Jacobian[Q, float, Number], /, *args: Q.args, **kwargs: Q.kwargs
        ) -> npt.NDArray[np.float64]: ...
        @overload
        def __call__(
            self: Jacobian[Q, FakeArray, FakeArray | float],
            /,
            *args: Q.args,
            **kwargs: Q.kwargs,
        ) -> FakeArray: ...
        @overload
        def __call__(
            self: Jacobian[Q, tuple[Array[D], Array[D2]], Number],
            /,
            *args: Q.args,
            **kwargs: Q.kwargs,
        ) -> tuple[npt.NDArray[D], npt.NDArray[D2]]: ...
        @overload
        def __call__(
            self: Jacobian[Q, Array[D], tuple[Number, Number]],
            /,
            *args: Q.args,
            **kwargs: Q.kwargs,
        ) -> tuple[npt.NDArray[D], npt.NDArray[D]]: ...
        @overload
        def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...
        def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
            """Call the function."""
            raise NotImplementedError


# Typed as Any, since the overloads need a literal `has_aux`.
_either_vjp: Any = vjp
_either_jvp: Any = jvp


def _of_chosen(
    fn: Callable[..., Any], args: Sequence[Any], at: Sequence[int], kwargs: Any
) -> Callable[..., Any]:
    """Return `fn` as a function of the chosen arguments only; the others are fixed."""

    def of_chosen(*chosen: Any) -> Any:
        given = list(args)
        for position, value in zip(at, chosen, strict=True):
            given[position] = value
        return call_reading(fn, describe, args, kwargs, at, given)

    def describe() -> str:
        return f"a derivative of {getattr(fn, '__name__', 'the function')}"

    of_chosen.watched_as = fn  # type: ignore[attr-defined]  # see runs.subject_of
    note_inputs(of_chosen, (args, kwargs))
    return of_chosen


def _basis(leaves: Sequence[Any]) -> list[Any]:
    """Return, for each array, its parts of all unit vectors, stacked in one array."""
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
    """Return the outputs as arrays of floats; raise if one cannot have a derivative."""
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
    """Raise if the derivative cannot be described by a complex-linear matrix.

    `sources` are the arrays that the mode starts from: the outputs in reverse mode, the
    inputs in forward mode. Unit vectors of real arrays cannot carry complex
    derivatives.
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
    """Split an axis of unit vectors into one part for each array, shaped like the array."""
    parts = []
    start = 0
    for leaf in leaves:
        before = (slice(None),) * axis
        if not leaf.shape:
            parts.append(value[(*before, start)])  # a scalar of a line
            start += 1
            continue
        size = product(leaf.shape)
        part = value[(*before, slice(start, start + size))]
        shape = (*value.shape[:axis], *leaf.shape, *value.shape[axis + 1 :])
        parts.append(call_numpy(np.reshape, part, shape))
        start += size
    return parts


@overload
def jacrev(
    fn: Callable[Concatenate[A, Rest], Y],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, Rest], A, Y]: ...
@overload
def jacrev(
    fn: Callable[Concatenate[A, B, Rest], Y],
    argnums: Literal[1],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, Rest], B, Y]: ...
@overload
def jacrev(
    fn: Callable[Concatenate[A, B, C, Rest], Y],
    argnums: Literal[2],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, C, Rest], C, Y]: ...
@overload
def jacrev(
    fn: Callable[Concatenate[A, B, C, E, Rest], Y],
    argnums: Literal[3],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, C, E, Rest], E, Y]: ...
@overload
def jacrev(
    fn: Callable[Concatenate[A, B, Rest], Y],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, Rest], tuple[A, B], Y]: ...
@overload
def jacrev(
    fn: Callable[Concatenate[A, B, C, Rest], Y],
    argnums: tuple[Literal[0], Literal[2]],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, C, Rest], tuple[A, C], Y]: ...
@overload
def jacrev(
    fn: Callable[Concatenate[A, B, C, Rest], Y],
    argnums: tuple[Literal[1], Literal[2]],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, C, Rest], tuple[B, C], Y]: ...
@overload
def jacrev(
    fn: Callable[Concatenate[T, P], R],
    argnums: int | Sequence[int],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Callable[Concatenate[T, P], Any]: ...
@overload
def jacrev(
    fn: Callable[Concatenate[T, P], tuple[R, Aux]],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: Literal[True],
    chunk_size: int | None = None,
) -> Callable[Concatenate[T, P], tuple[Any, Aux]]: ...
@takes_names_of_others(**OF_DERIVATIVES)
def jacrev(
    fn: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[P, Any]:
    """Make a function that computes the Jacobian of `fn` by reverse mode.

    Use it if the output is smaller than the input.

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
        nested like the output, then like the input. With `has_aux`, ``(jacobian,
        aux)``.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    GradientError
        From the function: if an argument is not an array of floats.
    MissingRuleError
        From the function: if an operator that `fn` calls has no autograd rule.

    Notes
    -----
    For a complex function of complex arrays, this is the complex derivative. It
    describes the function completely only if the function is holomorphic. The same is
    true for `jacfwd` and `hessian`.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.jacrev(lambda x: x ** 2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])

    By several arguments, one row at a time to save memory:

    >>> by_both = co.jacrev(np.matmul, argnums=(0, 1), chunk_size=1)
    >>> da, db = by_both(np.ones((2, 3)), np.ones(3))
    >>> da.shape, db.shape
    ((2, 2, 3), (2, 3))

    A function that returns more than its output, and a dict of arrays:

    >>> co.jacrev(lambda p: (p["a"] * p["b"], "aux"), has_aux=True)({"a": 2.0, "b": 3.0})
    ({'a': np.float64(3.0), 'b': np.float64(2.0)}, 'aux')
    """
    check_function("jacrev", fn)
    what = f"jacrev of {getattr(fn, '__name__', 'function')}"
    wanted, is_single = positions(what, argnums)

    @wraps(fn)
    @carries
    def jacobian(*args: P.args, **kwargs: P.kwargs) -> Any:
        check_numbers(fn, args)
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

        pull.watched_as = fn  # type: ignore[attr-defined]  # see runs.subject_of
        rows = vmap(pull, chunk_size=chunk_size)(*_basis(leaves))
        nested = [map_leaves(lambda g: g, row) for row in rows]
        grads = nested[0] if is_single else tuple(nested)
        result = map_leaves(Fresh(), _by_output(grads, leaves, structure))
        return (result, found[2]) if has_aux else result

    return jacobian


def _by_output(grads: Any, leaves: Sequence[Any], structure: Any) -> Any:
    """Split gradients that are batched over all outputs; nest them like the outputs."""
    inputs, inner = flatten(grads)
    columns = [_split(grad, leaves, 0) for grad in inputs]
    rows = [unflatten(inner, list(row)) for row in zip(*columns, strict=True)]
    return unflatten(structure, rows)


@overload
def jacfwd(
    fn: Callable[Concatenate[A, Rest], Y],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, Rest], Y, A]: ...
@overload
def jacfwd(
    fn: Callable[Concatenate[A, B, Rest], Y],
    argnums: Literal[1],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, Rest], Y, B]: ...
@overload
def jacfwd(
    fn: Callable[Concatenate[A, B, C, Rest], Y],
    argnums: Literal[2],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, C, Rest], Y, C]: ...
@overload
def jacfwd(
    fn: Callable[Concatenate[A, B, C, E, Rest], Y],
    argnums: Literal[3],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, C, E, Rest], Y, E]: ...
@overload
def jacfwd(
    fn: Callable[Concatenate[A, B, Rest], Y],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, Rest], Y, tuple[A, B]]: ...
@overload
def jacfwd(
    fn: Callable[Concatenate[A, B, C, Rest], Y],
    argnums: tuple[Literal[0], Literal[2]],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, C, Rest], Y, tuple[A, C]]: ...
@overload
def jacfwd(
    fn: Callable[Concatenate[A, B, C, Rest], Y],
    argnums: tuple[Literal[1], Literal[2]],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Jacobian[Concatenate[A, B, C, Rest], Y, tuple[B, C]]: ...
@overload
def jacfwd(
    fn: Callable[Concatenate[T, P], R],
    argnums: int | Sequence[int],
    has_aux: Literal[False] = False,
    *,
    chunk_size: int | None = None,
) -> Callable[Concatenate[T, P], Any]: ...
@overload
def jacfwd(
    fn: Callable[Concatenate[T, P], tuple[R, Aux]],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: Literal[True],
    chunk_size: int | None = None,
) -> Callable[Concatenate[T, P], tuple[Any, Aux]]: ...
@takes_names_of_others(**OF_DERIVATIVES)
def jacfwd(
    fn: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[P, Any]:
    """Make a function that computes the Jacobian of `fn` by forward mode.

    Use it if the input is smaller than the output.

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
        From the function: if an operator that `fn` calls has neither a jvp rule nor an
        autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.jacfwd(lambda x: x ** 2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])

    By the second argument, two columns at a time, with more than the output returned:

    >>> def rotate(center, angle):
    ...     turned = co.array([np.cos(angle[0]), np.sin(angle[1])]) - center
    ...     return turned, {"turned": turned}
    >>> by_angle = co.jacfwd(rotate, argnums=1, has_aux=True, chunk_size=2)
    >>> jacobian, aux = by_angle(np.zeros(2), np.array([np.pi / 2, 0.0]))
    >>> jacobian.round(3) + 0.0, aux["turned"].round(3)
    (array([[-1.,  0.],
           [ 0.,  1.]]), array([0., 0.]))
    """
    check_function("jacfwd", fn)
    what = f"jacfwd of {getattr(fn, '__name__', 'function')}"
    wanted, is_single = positions(what, argnums)

    @wraps(fn)
    @carries
    def jacobian(*args: P.args, **kwargs: P.kwargs) -> Any:
        check_numbers(fn, args)
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

        push.watched_as = fn  # type: ignore[attr-defined]  # see runs.subject_of
        dims = (-1, None) if has_aux else (-1,)
        found = vmap(push, out_dims=dims, chunk_size=chunk_size)(*_basis(inputs))

        def nest(column: Any) -> Any:
            parts = _split(column, inputs, len(column.shape) - 1)
            nested = unflatten(structure, parts)
            return nested[0] if is_single else nested

        result = map_leaves(Fresh(), map_leaves(nest, found[0]))
        return (result, found[1]) if has_aux else result

    return jacobian


@overload
def hessian(
    fn: Callable[Concatenate[A, Rest], Y],
    argnums: Literal[0] = 0,
) -> Jacobian[Concatenate[A, Rest], A, Y]: ...
@overload
def hessian(
    fn: Callable[Concatenate[A, B, Rest], Y],
    argnums: Literal[1],
) -> Jacobian[Concatenate[A, B, Rest], B, Y]: ...
@overload
def hessian(
    fn: Callable[Concatenate[A, B, C, Rest], Y],
    argnums: Literal[2],
) -> Jacobian[Concatenate[A, B, C, Rest], C, Y]: ...
@overload
def hessian(
    fn: Callable[Concatenate[A, B, C, E, Rest], Y],
    argnums: Literal[3],
) -> Jacobian[Concatenate[A, B, C, E, Rest], E, Y]: ...
@overload
def hessian(
    fn: Callable[Concatenate[T, P], Any], argnums: int | Sequence[int]
) -> Callable[Concatenate[T, P], Any]: ...
@takes_names_of_others(**OF_DERIVATIVES)
def hessian(
    fn: Callable[Concatenate[T, P], R], argnums: int | Sequence[int] = 0
) -> Callable[Concatenate[T, P], Any]:
    """Make a function that computes the matrix of second derivatives of `fn`.

    Parameters
    ----------
    fn : callable
        Returns a real array, usually without axes.
    argnums : int or sequence of int
        Positions of the arguments to differentiate by, pytrees of arrays of floats.

    Returns
    -------
    callable
        Returns an array of shape t + t for an input of shape t, nested twice like the
        input.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    GradientError
        From the function: if an argument is not an array of floats.
    MissingRuleError
        From the function: if an operator that `fn` calls has no autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.hessian(lambda x: (x ** 3).sum())(np.array([1.0, 2.0]))
    array([[ 6.,  0.],
           [ 0., 12.]])

    By two arguments, a block for each pair of them:

    >>> blocks = co.hessian(lambda x, k: k * x**3, argnums=(0, 1))(2.0, 5.0)
    >>> [[float(block) for block in row] for row in blocks]
    [[60.0, 12.0], [12.0, 0.0]]
    """
    check_function("hessian", fn)
    return jacfwd(jacrev(fn, argnums), argnums)
