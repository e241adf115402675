"""Values, error settings, generators and operators of a function that is captured."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

import numpy as np

from customop.arrays.fake import FakeArray, make_fake
from customop.arrays.nested import describe, map_nested
from customop.core.interpreter import Interpreter
from customop.core.operator import Operator
from customop.core.registry import find_operator
from customop.core.rule_kind import COMPOSITE
from customop.core.table import RuleTable
from customop.core.tracer import Tracer
from customop.errors import (
    ArgumentError,
    DataDependentError,
    GraphError,
    caller_place,
    check_function,
    shown,
)
from customop.graph.graph import Graph
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    PLACEHOLDER,
    Node,
    makes_sizes,
    nodes_in,
)
from customop.graph.passes import frozen_key
from customop.library.define import custom_op
from customop.library.ops import OperatorPacket, ops
from customop.transforms.autograd.tape import GradTracer
from customop.transforms.generators import DrawWatch, is_generator, name_of
from customop.transforms.random_draws import drawing_class, refused

if TYPE_CHECKING:
    from customop.transforms.trace.recorder import Trace


# ---- operators that are only called in graphs ----


def _assign(target: Any, value: Any) -> None:
    target[...] = value


# Writes the new value of an input, at the end of a graph; transforms see the body.
assign: Operator[..., Any] = custom_op(
    "customop::assign",
    _assign,
    mutates_args=("target",),
    schema="(Array(a!) target, Array value) -> ()",
)
assign.register(COMPOSITE, _assign)


def _set_slice(target: Any, value: Any, key: Sequence[Sequence[int | None]]) -> None:
    entries = [slice(*e) if len(e) == 3 else e[0] if e else None for e in key]
    target[tuple(entries)] = value


# Writes to a view; the key has the form of the key of ``np::slice``.
set_slice: Operator[..., Any] = custom_op(
    "customop::set_slice",
    _set_slice,
    mutates_args=("target",),
    schema="(Array(a!) target, Array value, int?[][] key) -> ()",
)
set_slice.register(COMPOSITE, _set_slice)


def _lay_out(x: Any, strides: Sequence[int]) -> Any:
    pairs = [*zip(x.shape, strides, strict=True)]
    if any(n > 1 and 0 < abs(step) < x.itemsize for n, step in pairs):
        raise ValueError(f"strides {tuple(strides)} let elements of {x.dtype} overlap")
    steps = [(n - 1) * step for n, step in pairs]
    first = -sum(step for step in steps if step < 0)
    memory = np.empty(first + sum(map(max, steps, [0] * len(steps))) + x.itemsize, "u1")
    out: Any = np.ndarray(x.shape, x.dtype, memory, first, strides)
    new = np.empty_like(out)
    if new.strides == out.strides:  # the layout has no gaps
        out = new
    out[...] = x
    return out


# Copies an array to the layout of NumPy's array that was written in place.
lay_out: Operator[..., Any] = custom_op(
    "customop::lay_out",
    _lay_out,
    mutates_args=(),
    schema="(Array x, int[] strides) -> Array",
)


@lay_out.register_fake
def _(x: Any, strides: Sequence[int]) -> Any:
    return FakeArray(x.shape, x.dtype, tuple(strides))


def _number(value: Any, dtype: Any) -> Any:
    return np.array(value, dtype)


# Converts a Python number that may differ between calls to the dtype of an operand.
number: Operator[..., Any] = custom_op(
    "customop::number",
    _number,
    mutates_args=(),
    schema="(Scalar value, dtype dtype) -> Array",
)


@number.register_fake
def _(value: Any, dtype: Any) -> Any:
    return FakeArray((), np.dtype(dtype))


# ---- the tracer ----


_OUTSIDE = "variables that were made outside of it are constants of the graph"


class GraphTracer(Tracer):
    """A value that a graph computes.

    Attributes
    ----------
    node : Node
        The node that has the value.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def f(x):
    ...     y = np.sin(x)
    ...     print(type(y).__name__, y.shape, y.node)
    ...     return y
    >>> graph = co.make_fx(f)(np.zeros(3))
    GraphTracer (3,) sin
    """

    __slots__ = ("node",)
    is_concrete = False

    def __init__(self, interpreter: Interpreter, value: Any, node: Node) -> None:
        self.interpreter: Interpreter = interpreter
        self.below: Any = value
        self.box_place: Any = None
        self.box_views: Any = None
        self.node: Node = node

    def __bool__(self) -> bool:
        raise self._lost(
            "bool() of",
            "cond(pred, f, g, *operands) or np.where(mask, a, b) in place of a branch",
        )

    def backward(self, gradient: Any = None) -> NoReturn:
        """Raise, because the value does not depend on a variable made in the function."""
        trace: Any = self.interpreter
        known = [v for v in trace.graph.constants.values() if type(v) is GradTracer]
        outside = " that was made in the function" if known else ""
        do = "make variables in the function, w = variable(w), or capture make_fx(grad(f))"
        if known:
            do = (
                "pass their arrays as arguments, and make the variables in the function:"
                " w = variable(w)"
            )
        raise GraphError(
            f"backward() of {describe(self)}, a value of {trace.describe()}, which depends"
            f" on no variable{outside}",
            f"at {caller_place()}",
            *([_OUTSIDE] if known else []),
            do=do,
        )

    def _refused(self, asked: str, do: str) -> DataDependentError:
        return DataDependentError(
            f"{asked} {describe(self)}, a value of {self.interpreter.describe()}",
            f"asked at {caller_place()}",
            "every later run of the graph would use the value of this one",
            do=do,
        )


def _noted(name: str, text: str, ufunc: str) -> Callable[..., Any]:
    """Return a method for a Python operator that records in the node how it was written.

    NumPy's scalars have their own arithmetic: ``a ** b`` may differ from np.power(a, b)
    in the last bit, and its warnings say "scalar power"; ``a < b`` never warns.
    """
    usual = getattr(Tracer, name)

    def method(self: GraphTracer, *others: Any) -> Any:
        out = usual(self, *others)
        trace: Any = self.interpreter
        if self.shape or trace.settings is None:
            return out
        if type(out) is not GraphTracer or out.shape:
            return out
        node = out.node
        is_own = node.op == CALL and node.target.qualname == ufunc
        if is_own and all(map(_is_as_in_graph, (self, *others))):
            node.meta["written"] = text
        return out

    return method


def _is_as_in_graph(value: Any) -> bool:
    """Return whether a value without axes stays a scalar, or an array, when the graph runs.

    Calls return scalars, except copies of arrays without axes that were written to.
    """
    if not isinstance(value, GraphTracer) or value.box_is_scalar:
        return True
    node = value.node
    return node.op in (CONSTANT, PLACEHOLDER) or node.target is ops.np.copy.default


# Methods, their source text, and the operators that they call.
_WRITTEN = (
    *(
        ((f"__{name}__", f"__r{name}__"), f"{{0}} {symbol} {{1}}", ufunc)
        for name, symbol, ufunc in (
            *(("add", "+", "add"), ("sub", "-", "subtract"), ("mul", "*", "multiply")),
            *(("truediv", "/", "divide"), ("floordiv", "//", "floor_divide")),
            *(("mod", "%", "remainder"), ("pow", "**", "power")),
        )
    ),
    *(
        ((f"__{name}__",), f"{{0}} {symbol} {{1}}", ufunc)
        for name, symbol, ufunc in (
            *(("lt", "<", "less"), ("le", "<=", "less_equal"), ("eq", "==", "equal")),
            *(("gt", ">", "greater"), ("ge", ">=", "greater_equal")),
            ("ne", "!=", "not_equal"),
        )
    ),
    (("__neg__",), "-{0}", "negative"),
    (("__abs__",), "{0}.__abs__()", "absolute"),
)
for _names, _text, _ufunc in _WRITTEN:
    for _name in _names:
        setattr(GraphTracer, _name, _noted(_name, _text, f"np::{_ufunc}"))


# ---- a separate fake array for each value ----
# Tracing shares one fake array between many values of the same layout. But a fake
# kernel whose result has a data-dependent size may store that size on its argument, as
# np.nonzero does. For such kernels each value needs its own fake array.


class Values:
    """Finds nodes that have the same value, and gives each value its own fake array.

    Two calls of an operator with the same arguments have the same value: in
    ``x[~mask] = x[~mask] * 2`` both masks select the same number of elements.
    """

    def __init__(self) -> None:
        self._fakes: dict[Node, FakeArray] = {}
        self._first: dict[Node, Node] = {}
        self._by_key: dict[Hashable, Node] = {}
        self._has_writes = False

    def see_write(self) -> None:
        """Record that an operator writes to an array, so that nodes may have new values."""
        self._fakes.clear()
        self._has_writes = True

    def fake(self, entry: Any, fake: Any) -> Any:
        """Return the fake array of a node's value; return any other `fake` unchanged."""
        if type(entry) is not Node or type(fake) is not FakeArray:
            return fake
        first = entry if self._has_writes else self._first_of(entry)
        if first not in self._fakes:
            parts = fake.shape, fake.dtype, fake.strides, fake.device
            self._fakes[first] = make_fake(*parts)
        return self._fakes[first]

    def _first_of(self, node: Node) -> Node:
        """Return the first node with the same value."""
        waiting = [node]
        while waiting:  # no recursion: chains may be long
            last = waiting[-1]
            before = [n for n in _sources(last) if n not in self._first]
            if before:
                waiting += before
                continue
            self._first[last] = self._by_key.setdefault(self._key(last), last)
            waiting.pop()
        return self._first[node]

    def _key(self, node: Node) -> Hashable:
        if not _sources(node):
            return node
        given = map_nested(_values(node), self._known)
        return node.op, id(node.target), frozen_key(given)

    def _known(self, value: Any) -> Any:
        return self._first[value] if type(value) is Node else value


def _sources(node: Node) -> list[Node]:
    """Return the nodes that determine the value of a node; none if other things matter."""
    is_made = node.op in (CALL, ITEM)
    if not is_made or node.has_effects or node.must_run or makes_sizes(node):
        return []
    return nodes_in(_values(node))


def _values(node: Node) -> list[Any]:
    return list(node.values() if node.op == CALL else node.args)


# ---- error settings ----
# Detects which settings a captured function makes with `np.errstate`.


class ErrorSettings:
    """Sets unique settings for floating-point errors, so that changes are detected.

    Even a function that sets the same settings as outside is detected.
    """

    def __init__(self) -> None:
        self._outside: Any = {}
        self._own: Any = None

    def __enter__(self) -> Self:
        self._outside = np.geterr()
        self._own = np.errstate(all="call", call=self._note)
        self._own.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._own.__exit__(*exc)

    def _note(self, text: str, _: int) -> None:
        """Handle a floating-point error during capture as the outer settings say."""
        names = {"divide by zero": "divide", "invalid value": "invalid"}
        how = self._outside[names.get(text, text.removesuffix("flow"))]
        if how == "raise":
            raise FloatingPointError(f"{text} encountered")
        if how != "ignore":
            warnings.warn(f"{text} encountered", RuntimeWarning, stacklevel=3)

    def changed(self) -> dict[str, Any]:
        """Return the settings that the function has changed so far, for np.errstate."""
        now: Any = np.geterr()
        call = np.geterrcall()
        if call != self._note:
            return {**now, "call": call}
        return {k: v for k, v in now.items() if v != "call"}

    def check_same(self, name: str) -> None:
        """Raise if the function has left the settings changed.

        Raises
        ------
        GraphError
            If the settings have changed.
        """
        if self.changed():
            self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise GraphError(
            f"compile: {name} changes what NumPy does about floating-point errors, which"
            " its graph would not do",
            do="write with np.errstate(...): in place of np.seterr(...)",
        )


# ---- random generators ----
# A generator is an input or a constant of the graph, and each draw is a call of an
# operator. So the graph draws again whenever it runs, in the same order. While tracing,
# numbers are drawn from a copy.


@cache
def _class() -> type[Any]:
    class TracedGenerator(drawing_class()):  # type: ignore[misc]  # made at run time
        """A generator whose draws are calls in a graph."""

        when = "while a graph is traced"
        state = "its bits and its state would be constants of the graph"
        error_class = GraphError
        trace: Trace
        node: Any

        def begin(self, name: str) -> None:
            if not self.trace.alive:
                raise refused(
                    self, name, "after the trace has ended", "use the generator itself"
                )

    return TracedGenerator


def traced_generator(trace: Trace, node: Any, copy: np.random.Generator) -> Any:
    """Return a generator whose draws are recorded by a trace.

    Parameters
    ----------
    trace : Trace
    node : Node
        The input or constant that is the generator.
    copy : Generator
        Draws the numbers that are needed while tracing.
    """
    made = _class()(copy.bit_generator)
    made.trace, made.node, made.source = trace, node, copy
    return made


# ---- other draws ----


def check_undrawn(watch: DrawWatch, what_runs: str, graph: Graph) -> None:
    """Raise if the function made draws that would be constants of the graph.

    `what_runs` names the capture, such as ``make_fx of loss``.
    """
    # The operators of the graph may draw from a generator that the function makes.
    watch.look(is_over=not any(map(is_generator, graph.constants.values())))
    if watch.drawn:
        what = name_of(watch.drawn[0])
        raise GraphError(
            f"{what_runs}: the function draws from {what}, whose numbers would be"
            " constants of the graph",
            do="pass a np.random.Generator as an argument, and draw from it",
        )


# ---- which operators stay nodes, and which are traced through ----


Operators: TypeAlias = Iterable[Operator[..., Any] | str] | Callable[[Any], bool]
Table: TypeAlias = (
    Mapping[Operator[..., Any] | str, Callable[..., Any]]
    | Iterable[Operator[..., Any] | str]
)
Chosen: TypeAlias = Callable[[RuleTable], bool]


def as_chosen(given: Any, name: str) -> Chosen | None:
    """Return a test for operators from a list or function; None if the list is empty."""
    if callable(given) and not isinstance(given, Operator | OperatorPacket):
        return lambda op: bool(given(op))
    chosen = frozenset([_operator(v, name) for v in _items(given, name)])
    return chosen.__contains__ if chosen else None


def as_table(given: Any, name: str) -> dict[RuleTable, Callable[..., Any]]:
    """Return a dict from operators to the functions that replace them.

    The default function is the operator's own body.
    """
    if isinstance(given, Mapping):
        for fn in given.values():
            check_function(name, fn)
        return {_operator(key, name): fn for key, fn in given.items()}
    found = [_operator(value, name) for value in _items(given, name)]
    return {op: op.definition.fn for op in found}


def _items(given: Any, name: str) -> list[Any]:
    if isinstance(given, Operator | OperatorPacket | str):
        return [given]
    try:
        return [*given]
    except TypeError:
        raise ArgumentError(
            f"{name}: {shown(given)} is not a list of operators",
            do='write ["mylib::op"], with operators or their names',
        ) from None


def _operator(given: Any, name: str) -> Operator[..., Any]:
    if isinstance(given, Operator):
        return given
    if isinstance(given, OperatorPacket):
        given = given.qualname
    if isinstance(given, str):
        return find_operator(given)
    raise ArgumentError(
        f"{name}: {shown(given)} is not an operator",
        do="pass operators or their names, such as 'mylib::op'",
    )
