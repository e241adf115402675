"""`custom_vjp` and `custom_jvp`: plain functions with derivatives written by hand."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache, update_wrapper
from operator import index
from types import BuiltinFunctionType, MethodType
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import flatten, show, spread
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.stand_ins import entered
from customop.core.contract import readonly
from customop.errors import (
    ArgumentError,
    GradientError,
    LeakedTracerError,
    MissingRuleError,
    RegistrationError,
    check_function,
    place,
)
from customop.transforms.autograd.grad import pull_back
from customop.transforms.autograd.reverse import GradInterpreter
from customop.transforms.autograd.tape import GradTracer, UnaryNode, inexact
from customop.transforms.functions.function_calls import (
    Forward,
    FunctionCall,
    FunctionTable,
    Parts,
    Rows,
    are_plain,
    check_closed,
    enter,
    explain_outlived,
    moves,
    sealed_inputs,
)
from customop.transforms.functions.given import Given, explain_written, unwritten_inputs
from customop.transforms.values import Carrier, as_tangent
from customop.transforms.vmap_interpreter import BatchInterpreter

# ---- calls with a rule for one mode ----
# The other mode transposes it.


Arrays = Sequence[Any]


class VjpCall(FunctionCall):
    """A call with rules for reverse mode; forward mode transposes them, or has its own."""

    def batched(self, batch: BatchInterpreter, dims: Sequence[int | None]) -> VjpCall:
        """Return the call for a batch."""
        return _BatchedVjp(self, batch, dims)


class JvpCall(FunctionCall):
    """A call with a rule for forward mode; reverse mode transposes it."""

    def forward(self, inputs: Arrays, wanted: Sequence[bool]) -> Forward:
        """Compute the outputs, and record how tangents depend on tangents of the inputs."""
        outputs: list[Any] = []

        def push(*tangents: Any) -> Any:
            given = iter(tangents)
            moved = [next(given) if w else None for w in wanted]
            found = self.push(inputs, moved)
            outputs.extend(found[0])
            return list(found[1])

        at = [x for x, w in zip(inputs, wanted, strict=True) if w]
        carrier = Carrier()  # never closed: the pullback uses it later
        zeros = carrier.carry(tuple([call_numpy(np.zeros_like, x) for x in at]))
        interpreter = GradInterpreter()
        interpreter.title = self.table.qualname
        tangents, pullback, _ = pull_back(interpreter, push, zeros)
        check_closed(self.table, interpreter, outputs)
        tangents = carrier.uncarry(tangents)

        def carried_pullback(cotangents: Any) -> Any:
            return carrier.uncarry(pullback(carrier.carry(cotangents)))

        # Tangents are returned as saved values, so that they are checked like results:
        # they may depend on a value from outside.
        is_moved = [t is not None for t in tangents]
        rest = (carried_pullback, wanted, is_moved)
        return Forward(outputs, [t for t in tangents if is_traced(t)], rest)

    def backward(self, saved: Arrays, rest: Any, cotangents: Arrays) -> Arrays:
        """Return the gradients of the inputs, by transposing the recorded tangents."""
        pullback, wanted, is_moved = rest
        pairs = zip(cotangents, is_moved, strict=True)
        found = iter(pullback([g if moved else None for g, moved in pairs]))
        return [next(found) if w else None for w in wanted]

    def batched(self, batch: BatchInterpreter, dims: Sequence[int | None]) -> JvpCall:
        """Return the call for a batch."""
        return _BatchedJvp(self, batch, dims)


# ---- batches ----


CallT = TypeVar("CallT", bound=FunctionCall)


class _BatchOf(FunctionCall, Generic[CallT]):
    """A batch of a call."""

    def __init__(
        self, inner: CallT, batch: BatchInterpreter, dims: Sequence[int | None]
    ) -> None:
        self.table: FunctionTable = inner.table
        self.inner: CallT = inner
        self.rows: Rows = Rows(self.table, batch, dims)

    @property
    def identity(self) -> tuple[Any, ...]:
        rows = self.rows
        return (
            type(self),
            rows.batch.info.batch_size,
            *rows.dims,
            *self.inner.identity,
        )

    @property
    def has_rule(self) -> bool:
        return self.inner.has_rule

    @property
    def has_push(self) -> bool:
        return self.inner.has_push

    def run(self, inputs: Arrays) -> Arrays:
        rows = self.rows.around(*inputs)
        return [rows.front(v) for v in self.inner.run(rows.of(inputs))]

    def push(self, primals: Arrays, tangents: Arrays) -> tuple[Arrays, Arrays]:
        """Compute the outputs of all rows and their tangents."""
        rows = self.rows.around(*primals, *tangents)
        outputs, moved = self.inner.push(rows.of(primals), rows.of(tangents))
        return [rows.front(v) for v in outputs], [rows.front(t) for t in moved]


class _BatchedVjp(_BatchOf[VjpCall], VjpCall):
    def forward(self, inputs: Arrays, wanted: Sequence[bool]) -> Forward:
        rows = self.rows.around(*inputs)
        found = self.inner.forward(rows.of(inputs), wanted)
        outputs = [rows.front(v) for v in found.outputs]
        if rows.outer is not None:
            check_closed(self.table, rows.outer, found.saved)
        dims = [rows.batch.dim_of(v) for v in found.saved]
        return Forward(
            outputs, [rows.batch.lower(v) for v in found.saved], (dims, found.rest)
        )

    def backward(self, saved: Arrays, rest: Any, cotangents: Arrays) -> Arrays:
        rows = self.rows.around(*saved, *cotangents)
        dims, inner_rest = rest
        given = rows.of(cotangents, [0] * len(cotangents))
        found = self.inner.backward(rows.of(saved, dims), inner_rest, given)
        pairs = zip(found, self.rows.dims, strict=True)
        return [rows.gradient(g, dim) for g, dim in pairs]


class _BatchedJvp(_BatchOf[JvpCall], JvpCall):
    """A batch of a call with a rule for forward mode."""


# ---- custom_vjp and custom_jvp ----


P = ParamSpec("P")
R = TypeVar("R")
FnT = TypeVar("FnT", bound=Callable[..., Any])
CustomT = TypeVar("CustomT", bound="CustomFunction[..., Any]")


# ---- shared code of both decorators ----


class CustomFunction(ABC, Generic[P, R]):
    """A function with derivatives written by hand."""

    title = ""

    def __init__(
        self, fn: Callable[P, R], nondiff_argnums: int | Sequence[int] = ()
    ) -> None:
        check_function(self.title, fn)
        self.fn: Callable[P, R] = fn
        self.table: FunctionTable = FunctionTable(self.title, fn)
        self.nondiff_argnums: tuple[int, ...] = _argnums(self.title, nondiff_argnums)
        self.jvp: Callable[..., Any] | None = None
        update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function; transforms use its custom rules."""
        leaves = args
        if kwargs or not _LEAVES.issuperset(map(type, args)):
            leaves = flatten((args, kwargs))[0]  # type: ignore[assignment]  # a list
        if not any(map(is_traced, leaves)):
            return self.fn(*args, **kwargs)
        values = self._positional(args, kwargs)
        constants: dict[int, Any] = {}
        moving = values
        if self.nondiff_argnums:
            at = self._constant_places(len(values))
            constants = {i: self._constant(values[i], i) for i in at}
            moving = [value for i, value in enumerate(values) if i not in constants]
        given = Given(self.table, moving)
        outputs = enter(self._called(given, constants), given.arrays)
        return given.result(outputs)  # type: ignore[no-any-return]  # as fn

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def defjvp(self, jvp: FnT) -> FnT:
        """Register the rule for tangents.

        Parameters
        ----------
        jvp : callable
            ``jvp(primals, tangents)``, with two tuples; returns ``(output, tangent)``.
            The tangent of an argument is an array of zeros if it does not move, 0.0 for
            a number or an array of integers, and None for any other value. Arguments in
            `nondiff_argnums` come first.

        Returns
        -------
        callable
            The rule itself, so that this method can be used as a decorator.

        Raises
        ------
        ArgumentError
            If it is not a function.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_jvp
        ... def square(x):
        ...     return x * x
        >>> @square.defjvp
        ... def _(primals, tangents):
        ...     (x,), (t,) = primals, tangents
        ...     return square(x), 2.0 * x * t
        >>> co.jvp(square, (np.array([3.0]),), (np.array([1.0]),))
        (array([9.]), array([6.]))
        """
        check_function("defjvp", jvp)
        self.jvp = jvp
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Register a rule for each argument of a function with one output.

        Parameters
        ----------
        *jvps : callable or None
            ``jvp(t, out, *args)`` returns the tangent of the output for the tangent `t`
            of this argument. None if the derivative is zero.

        Raises
        ------
        ArgumentError
            If one is not a function.
        RegistrationError
            If some arguments are in `nondiff_argnums`.
        """
        for fn in jvps:
            if fn is not None:
                check_function("defjvps", fn)
        if self.nondiff_argnums:
            raise RegistrationError(
                f"{self.table.qualname}: defjvps does not take nondiff_argnums",
                do="register one rule by defjvp",
            )

        call: Any = self  # called with tracers, which do not have the types in P

        def jvp(primals: Any, tangents: Any) -> Any:
            out = call(*primals)
            total = call_numpy(np.zeros_like, out)
            for fn, t in zip(jvps, tangents, strict=True):
                if fn is not None and is_array(t):
                    total = total + entered(fn)(t, out, *primals)
            return out, total

        self.jvp = jvp

    @abstractmethod
    def _called(self, given: Given, constants: dict[int, Any]) -> FunctionCall:
        """Return the call, as transforms handle it."""

    def _positional(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Return all arguments by position, because rules take them that way."""
        if not kwargs and len(args) == _count(self.fn):
            return list(args)
        signature = _signature(self.fn)
        if signature is None and not kwargs:
            return list(args)
        bound = (signature or inspect.signature(self.fn)).bind(*args, **kwargs)
        if bound.kwargs:
            raise self.table.error(
                ArgumentError,
                f" has the keyword-only argument '{next(iter(bound.kwargs))}', which its"
                " rules cannot take",
                f"defined at {self.table.definition.place}",
                do="make it an argument by position",
                parameter=None,
            )
        bound.apply_defaults()
        return list(bound.args)

    def _constant_places(self, count: int) -> list[int]:
        found = [i + count if i < 0 else i for i in self.nondiff_argnums]
        return sorted(i for i in found if 0 <= i < count)

    def _constant(self, value: Any, at: int) -> Any:
        if any(is_traced(v) for v in flatten(value)[0]):
            raise self.table.error(
                ArgumentError,
                f" gets a traced value for argument {at}, which is in nondiff_argnums",
                f"defined at {self.table.definition.place}",
                do="leave it out of nondiff_argnums, and give it no gradient in the rule",
                parameter=None,
            )
        return value

    def missing(self, method: str) -> MissingRuleError:
        """Return the error for a function without a rule for derivatives."""
        return self.table.error(
            MissingRuleError,
            " has no rule for derivatives",
            f"defined at {self.table.definition.place}",
            do=f"register one: {self.table.name}.{method}",
            parameter=None,
        )


@lru_cache(maxsize=256)
def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function; None for C functions, to keep their defaults."""
    if isinstance(fn, np.ufunc | BuiltinFunctionType):
        return None
    try:
        return inspect.signature(fn)
    except ValueError:
        return None


# Classes of arguments without others in them, as most are.
_LEAVES = frozenset((np.ndarray, GradTracer))


@lru_cache(maxsize=256)
def _count(fn: Callable[..., Any]) -> int | None:
    """Return how many arguments a function takes, if all may come by position."""
    signature = _signature(fn)
    if signature is None:
        return None
    given = signature.parameters.values()
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return len(given) if all(p.kind in kinds for p in given) else None


def _argnums(title: str, given: Any) -> tuple[int, ...]:
    try:
        return (index(given),)
    except TypeError:
        pass
    try:
        return tuple(index(i) for i in given)
    except TypeError:
        raise RegistrationError(
            f"{title}: nondiff_argnums={given!r} must be an int or a sequence of ints",
            do="write nondiff_argnums=(0,)",
        ) from None


def _with_constants(args: Sequence[Any], constants: dict[int, Any]) -> list[Any]:
    """Return all arguments in order: `args`, with the constants inserted."""
    found = list(args)
    for i in sorted(constants):
        found.insert(i, constants[i])
    return found


class CallOfUser(FunctionCall, Generic[CustomT]):
    """A call of a function that the user gave a rule."""

    def __init__(
        self, custom: CustomT, given: Given, constants: dict[int, Any]
    ) -> None:
        self.table: FunctionTable = custom.table
        self.custom: CustomT = custom
        self.given: Given = given
        self.constants: dict[int, Any] = constants

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return a key that is equal for calls that do the same."""
        constants = tuple(self.constants.items())
        return (self.custom, self.given.parts.identity, constants)

    @property
    def first(self) -> list[Any]:
        """The arguments that are not differentiated, which rules get first."""
        return [self.constants[i] for i in sorted(self.constants)]

    def with_all(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fn` as a function of only the arguments that are differentiated."""
        return lambda *args: fn(*_with_constants(args, self.constants))

    def run(self, inputs: Arrays) -> Arrays:
        """Call the function itself."""
        result = self.given.call(self.with_all(entered(self.custom.fn)), inputs)
        return self.given.outputs(result, inputs)

    def push(self, primals: Arrays, tangents: Arrays) -> tuple[Arrays, Arrays]:
        """Compute the outputs and their tangents by the user's rule."""
        rule = self.custom.jvp
        if rule is None:
            raise self.custom.missing("defjvp(rule)")
        run = entered(rule)
        directions = self.given.parts.beside(
            [_direction(t, x) for t, x in zip(tangents, primals, strict=True)]
        )
        found = self.given.call(
            lambda *args: run(*self.first, args, directions), primals
        )
        if not isinstance(found, tuple) or len(found) != 2:
            raise self._wrong_tangents(
                f"returned {show(found)}", "return (output, tangent)"
            )
        outputs = self.given.outputs(found[0], primals)
        return outputs, self._tangents(outputs, found[1])

    def _tangents(self, outputs: Arrays, tangent: Any) -> list[Any]:
        """Return the tangents as a flat list; raise if they do not fit the outputs."""
        results = self.given.results
        assert results is not None
        try:
            leaves = spread(tangent, results.tree(outputs))
        except ValueError:
            what = "returned a tangent that is not nested as the output"
            raise self._wrong_tangents(
                what, "return a tangent for each output"
            ) from None
        found = []
        for i, out in zip(results.at, outputs, strict=True):
            t = leaves[i]
            what = f"{self.table.qualname}: tangent of output {i}"
            found.append(
                as_tangent(t, out, what) if moves(out) and t is not None else None
            )
        return found

    def _wrong_tangents(self, what: str, do: str) -> GradientError:
        rule: Any = self.custom.jvp
        return GradientError(
            f"{self.table.qualname}: the rule {what}", f"rule at {place(rule)}", do=do
        )


# ---- reverse mode by hand ----


class custom_vjp(CustomFunction[P, R]):  # noqa: N801  # JAX's name
    """Give a plain function a custom gradient.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees of arrays.
    nondiff_argnums : int or sequence of int
        Positions of arguments that are not differentiated, such as functions. They may
        not contain traced values, and they come first among the arguments of `bwd`.

    Attributes
    ----------
    fn : callable
        As given.
    nondiff_argnums : tuple of int
        As given.

    Notes
    -----
    Use it if the gradient that follows from the operators inside `fn` is unstable,
    slow, or not the one you want. For code that transforms cannot see into, such as a C
    library, make an operator with `custom_op`.

    The function may not write to its arguments. Under a transform its results do not
    share memory with arguments or each other. A traced value that is not an argument is
    an error if it belongs to the transform that needs the gradient. Forward mode uses
    the rule of `defjvp` if there is one, else the transpose of `bwd`; `linearize` always
    the transpose. Names and signatures are those of JAX.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_vjp
    ... def clipped(x, limit):
    ...     return x * 1.0
    >>> def fwd(x, limit):
    ...     return clipped(x, limit), limit
    >>> def bwd(limit, g):
    ...     return np.clip(g, -limit, limit), None
    >>> clipped.defvjp(fwd, bwd)
    >>> co.grad(lambda x: (100.0 * clipped(x, 1.0)).sum())(np.ones(2))
    array([1., 1.])

    A rule for tangents too, where the transpose of `bwd` is slow or not wanted:

    >>> @clipped.defjvp
    ... def _(primals, tangents):
    ...     return clipped(*primals), tangents[0]
    >>> co.jvp(lambda x: clipped(x, 1.0), (np.ones(2),), (np.full(2, 100.0),))[1]
    array([100., 100.])
    """

    title = "custom_vjp"

    def __init__(
        self, fn: Callable[P, R], nondiff_argnums: int | Sequence[int] = ()
    ) -> None:
        super().__init__(fn, nondiff_argnums)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None

    # pyright infers the parameters of a lambda by number, not from an ellipsis.
    @overload
    def defvjp(
        self, fwd: Callable[P, tuple[R, Any]], bwd: Callable[[Any, Any], Any]
    ) -> None: ...
    @overload
    def defvjp(  # type: ignore[overload-cannot-match]  # longer lambdas match it
        self, fwd: Callable[P, tuple[R, Any]], bwd: Callable[..., Any]
    ) -> None: ...
    def defvjp(self, fwd: Callable[P, tuple[R, Any]], bwd: Callable[..., Any]) -> None:
        """Register the two halves of the gradient.

        Parameters
        ----------
        fwd : callable
            Takes the arguments of the function; returns ``(output, residuals)``. The
            residuals are any pytree, and go to `bwd`.
        bwd : callable
            ``bwd(residuals, g)``, where `g` is the gradient of the output and is nested
            like it. Returns a tuple with a gradient for each argument, None for zero.
            Arguments in `nondiff_argnums` come first, and have no gradient.

        Raises
        ------
        ArgumentError
            If either is not a function.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_vjp
        ... def square(x):
        ...     return x * x
        >>> square.defvjp(lambda x: (x * x, x), lambda x, g: (2.0 * x * g,))
        >>> co.grad(square)(np.array(3.0))
        array(6.)
        """
        check_function("defvjp", fwd)
        check_function("defvjp", bwd)
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function; transforms use its custom rules."""
        kinds = [*map(type, args)]
        if (
            kwargs
            or kinds.count(GradTracer) != 1
            or not _LEAVES.issuperset(kinds)
            or self.fwd is None
            or self.nondiff_argnums
            or len(args) != _count(self.fn)
        ):
            return super().__call__(*args, **kwargs)
        at = kinds.index(GradTracer)
        x: Any = args[at]
        if x.node is None or not are_plain(x.interpreter, args):
            return super().__call__(*args, **kwargs)
        return self._taped(args, at, x)  # type: ignore[no-any-return]  # as fn

    def _taped(self, args: Sequence[Any], at: int, x: Any) -> Any:
        """Call `fwd` for one tracked array beside plain ones, without trees and lists.

        It does the same as a call of many arrays, in a fifth of the time.
        """
        given = list(args)
        given[at] = x.below
        try:
            found = entered(self.fwd)(*map(readonly, given))
        except GradientError:
            general: Any = super().__call__
            return general(*args)
        except ValueError as error:
            explain_written(self.table, error)
            raise
        if type(found) is tuple and len(found) == 2:
            out, rest = found
            saved = rest if type(rest) is tuple else (rest,)
            if (
                type(out) is np.ndarray
                and inexact[out.dtype]
                and out.flags.writeable
                and _ARRAY.issuperset(map(type, saved))
                and not any(np.may_share_memory(out, value) for value in given)
            ):
                node = _TapedNode(x.node)
                node.node_shape, node.node_dtype = out.shape, out.dtype
                node.node_op, node.node_rule = self.table, self.table.rule
                node.node_custom, node.node_top = self, x.interpreter
                node.node_at, node.node_count = at, len(args)
                node.saved_arrays, node.node_is_tuple = saved, saved is rest
                return GradTracer(x.interpreter, out, node)
        call = _VjpOfUser(self, Given(self.table, args), {})
        call.found = [found]
        return call.given.result(enter(call, call.given.arrays))

    def _called(self, given: Given, constants: dict[int, Any]) -> FunctionCall:
        return _VjpOfUser(self, given, constants)


class _TapedNode(UnaryNode):
    """The node of a call that has one tracked array and one result."""

    __slots__ = (
        "node_at",
        "node_count",
        "node_custom",
        "node_is_tuple",
        "node_op",
        "node_rule",
        "node_top",
    )

    node_custom: custom_vjp[..., Any]
    node_top: GradInterpreter
    # The place of the tracked array among the arguments, and their number.
    node_at: int
    node_count: int
    # Whether `fwd` returned a tuple of arrays to save, in place of one.
    node_is_tuple: bool

    @staticmethod
    def node_backward(node: _TapedNode, g: Any) -> Any:
        """Return the gradient of the array."""
        custom, saved = node.node_custom, node.saved_arrays
        origin: Any = node.node_edges  # as in all unary nodes
        rule: Any = custom.bwd
        sealed = [*map(readonly, saved)]
        rest = tuple(sealed) if node.node_is_tuple else sealed[0]
        try:
            grads = entered(rule)(rest, readonly(g))
        except (LeakedTracerError, ValueError) as error:
            explain_written(custom.table, error)
            explain_outlived(custom.table, node.node_top, error)
            raise
        if type(grads) is tuple and len(grads) == node.node_count:
            found = grads[node.node_at]
            if (
                _ARRAY.issuperset(map(type, grads))
                and found.shape == origin.node_shape
                and found.dtype == origin.node_dtype
            ):
                return found
        like = np.broadcast_to(np.zeros((), origin.node_dtype), origin.node_shape)
        call = _VjpOfUser(custom, Given(custom.table, [like] * node.node_count), {})
        wanted = [i == node.node_at for i in range(node.node_count)]
        found = call.gradients(grads, wanted)[node.node_at]
        check_closed(custom.table, node.node_top, [] if found is None else [found])
        return found


class _VjpOfUser(CallOfUser["custom_vjp[..., Any]"], VjpCall):
    # What `fwd` has returned, if it has run.
    found: Sequence[Any] = ()

    @property
    def has_rule(self) -> bool:
        return self.custom.fwd is not None

    @property
    def has_push(self) -> bool:
        return self.custom.jvp is not None

    def forward(self, inputs: Arrays, wanted: Sequence[bool]) -> Forward:
        if self.custom.fwd is None:
            raise self.custom.missing("defvjp(fwd, bwd)")
        if self.found:
            [found], self.found = self.found, ()
        else:
            found = self.given.call(self.with_all(entered(self.custom.fwd)), inputs)
        if not isinstance(found, tuple) or len(found) != 2:
            raise self._wrong(self.custom.fwd, f"fwd returned {show(found)}", _PAIR)
        outputs = self.given.outputs(found[0], inputs)
        residuals, saved = Parts.of(found[1])
        return Forward(outputs, saved, (residuals, self.given.results, wanted))

    def backward(self, saved: Arrays, rest: Any, cotangents: Arrays) -> Arrays:
        residuals, results, wanted = rest
        assert self.custom.bwd is not None
        with unwritten_inputs(self.table):
            grads = entered(self.custom.bwd)(
                *self.first,
                residuals.tree(sealed_inputs(saved)),
                results.beside(_sealed_or_none(cotangents)),
            )
        return self.gradients(grads, wanted)

    def gradients(self, grads: Any, wanted: Sequence[bool]) -> list[Any]:
        """Return the gradients as a flat list; raise if they do not fit the arguments."""
        parts = self.given.parts
        tree = parts.tree(self.given.arrays)
        bwd: Any = self.custom.bwd
        if not isinstance(grads, tuple | list) or len(grads) != len(tree):
            seen = (
                f"{len(grads)} gradients" if isinstance(grads, tuple) else show(grads)
            )
            raise self._wrong(
                bwd, f"bwd returned {seen} for {len(tree)} arguments", _TUPLE
            )
        try:
            is_flat = len(tree) == len(parts.at) and _ARRAY.issuperset(map(type, grads))
            leaves = grads if is_flat else spread(tuple(grads), tree)
        except ValueError:
            what = "bwd returned gradients that are not nested as the arguments"
            raise self._wrong(bwd, what, _TUPLE) from None
        found = []
        for i, like, is_wanted in zip(parts.at, self.given.arrays, wanted, strict=True):
            g = leaves[i]
            what = f"{self.table.qualname}: gradient {i} of bwd"
            found.append(
                as_tangent(g, like, what) if is_wanted and g is not None else None
            )
        return found

    def _wrong(self, fn: Callable[..., Any], what: str, do: str) -> GradientError:
        return GradientError(
            f"{self.table.qualname}: {what}", f"rule at {place(fn)}", do=do
        )


_ARRAY = frozenset((np.ndarray,))
_PAIR = "return (output, residuals)"
_TUPLE = "return a tuple with a gradient for each argument, None for zero"


def _sealed_or_none(values: Arrays) -> list[Any]:
    return [None if v is None else sealed_inputs([v])[0] for v in values]


# ---- forward mode by hand ----


# ---- custom_jvp: plain functions with a forward-mode derivative written by hand ----


class custom_jvp(CustomFunction[P, R]):  # noqa: N801  # JAX's name
    """Give a plain function a custom derivative, by a rule for tangents.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees of arrays.
    nondiff_argnums : int or sequence of int
        Positions of arguments that are not differentiated, such as functions. They may
        not contain traced values, and they come first among the arguments of the rule.

    Attributes
    ----------
    fn : callable
        As given.
    nondiff_argnums : tuple of int
        As given.

    Notes
    -----
    Gradients use the transpose of the rule, so the tangent that it returns must be
    linear in the tangents that it gets. The notes of `custom_vjp` about arguments and
    results apply here too. Names and signatures are those of JAX.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_jvp
    ... def log1pexp(x):
    ...     return np.log(1.0 + np.exp(x))
    >>> @log1pexp.defjvp
    ... def _(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return log1pexp(x), (1.0 - 1.0 / (1.0 + np.exp(x))) * t
    >>> co.grad(log1pexp)(np.array(0.0))
    np.float64(0.5)
    """

    title = "custom_jvp"

    def _called(self, given: Given, constants: dict[int, Any]) -> FunctionCall:
        return _JvpOfUser(self, given, constants)


class _JvpOfUser(CallOfUser[custom_jvp[..., Any]], JvpCall):
    @property
    def has_rule(self) -> bool:
        return self.custom.jvp is not None


def _direction(tangent: Any, primal: Any) -> Any:
    """Return a tangent as rules get it: zeros for an array of floats that does not move."""
    if tangent is None:
        return call_numpy(np.zeros_like, primal) if moves(primal) else None
    return sealed_inputs([tangent])[0]
