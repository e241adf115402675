"""Values, settings, generators and operators of a program that is captured."""

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
from customop.transforms.generators import DrawWatch, name_of, sources
from customop.transforms.random_draws import drawing_class, refused

if TYPE_CHECKING:
    from customop.transforms.trace.recorder import Trace


# ---- operators that only graphs call ----


def _assign(target: Any, value: Any) -> None:
    target[...] = value


# Writes what a function has written into an input; transforms see the body.
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


# Writes a view, whose key is that of ``np::slice``.
set_slice: Operator[..., Any] = custom_op(
    "customop::set_slice",
    _set_slice,
    mutates_args=("target",),
    schema="(Array(a!) target, Array value, int?[][] key) -> ()",
)
set_slice.register(COMPOSITE, _set_slice)


def _lay_out(x: Any, strides: Sequence[int]) -> Any:
    steps = [(n - 1) * step for n, step in zip(x.shape, strides, strict=True)]
    first = -sum(step for step in steps if step < 0)
    memory = np.empty(first + sum(map(max, steps, [0] * len(steps))) + x.itemsize, "u1")
    out: Any = np.ndarray(x.shape, x.dtype, memory, first, strides)
    new = np.empty_like(out)
    if new.strides == out.strides:  # there are no gaps
        out = new
    out[...] = x
    return out


# A copy that lies in memory as NumPy's array, which was written in place, does.
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


# A number of Python that differs between calls, in the dtype of the array beside it.
number: Operator[..., Any] = custom_op(
    "customop::number",
    _number,
    mutates_args=(),
    schema="(Scalar value, dtype dtype) -> Array",
)


@number.register_fake
def _(value: Any, dtype: Any) -> Any:
    return FakeArray((), np.dtype(dtype))


# ---- a value that a graph computes, as a program sees it while it is captured ----


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
        """Refused: a value of variables made in the capture is not one of the graph."""
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

    def _refused(self, asked: str, instead: str) -> DataDependentError:
        return DataDependentError(
            f"{asked} {describe(self)}, a value of {self.interpreter.describe()}",
            f"asked at {caller_place()}",
            "every later run of the graph would use the value of this one",
            do=f"use {instead}",
        )


def _noted(name: str, text: str, ufunc: str) -> Callable[..., Any]:
    """The method of an operator of Python, which notes in the node that it was called.

    NumPy's scalars have arithmetic of their own: ``a ** b`` may differ in the last bit
    from np.power(a, b), and warns of "scalar power"; ``a < b`` never warns.
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
    """Whether a value without axes is a scalar, or an array, where the graph runs too.

    Calls give scalars, but for the copies of arrays without axes that were written.
    """
    if not isinstance(value, GraphTracer) or value.box_is_scalar:
        return True
    node = value.node
    return node.op in (CONSTANT, PLACEHOLDER) or node.target is ops.np.copy.default


# Methods, their text in code, and the operators that they call.
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


# ---- fake arrays that stand for one value each ----
# Tracing gives one fake array to many values of one layout. A fake kernel whose result
# has a size that depends on the data may keep that size on its argument, as np.nonzero
# does: for it each value has a fake array of its own.


class Values:
    """Which nodes of a graph that is being made have one value, and its fake array.

    Two calls of one operator with the same arguments have one value: in
    ``x[~mask] = x[~mask] * 2`` both masks take the same number of elements.
    """

    def __init__(self) -> None:
        self._fakes: dict[Node, FakeArray] = {}
        self._first: dict[Node, Node] = {}
        self._by_key: dict[Hashable, Node] = {}
        self._has_writes = False

    def see_write(self) -> None:
        """Note that an operator writes an array: a node may have another value now."""
        self._fakes.clear()
        self._has_writes = True

    def fake(self, entry: Any, fake: Any) -> Any:
        """The fake array of a node's value; anything else as it is."""
        if type(entry) is not Node or type(fake) is not FakeArray:
            return fake
        first = entry if self._has_writes else self._first_of(entry)
        if first not in self._fakes:
            parts = fake.shape, fake.dtype, fake.strides, fake.device
            self._fakes[first] = make_fake(*parts)
        return self._fakes[first]

    def _first_of(self, node: Node) -> Node:
        """The first node that was seen with the value of a node."""
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
    """The nodes that the value of a node follows from alone; none if there is more."""
    is_made = node.op in (CALL, ITEM)
    if not is_made or node.has_effects or node.must_run or makes_sizes(node):
        return []
    return nodes_in(_values(node))


def _values(node: Node) -> list[Any]:
    return list(node.values() if node.op == CALL else node.args)


# ---- error settings ----
# The settings that a function makes by `np.errstate`, seen while it is captured.


class ErrorSettings:
    """Settings for floating-point errors that nobody else has.

    A function that sets what is set outside of it already is seen to do so.
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
        """Do what is set outside for an error: of what is computed while capturing."""
        names = {"divide by zero": "divide", "invalid value": "invalid"}
        how = self._outside[names.get(text, text.removesuffix("flow"))]
        if how == "raise":
            raise FloatingPointError(f"{text} encountered")
        if how != "ignore":
            warnings.warn(f"{text} encountered", RuntimeWarning, stacklevel=3)

    def changed(self) -> dict[str, Any]:
        """The settings that the function has made by now, as arguments of np.errstate."""
        now: Any = np.geterr()
        call = np.geterrcall()
        if call != self._note:
            return {**now, "call": call}
        return {k: v for k, v in now.items() if v != "call"}

    def check_same(self, name: str) -> None:
        """Raise if the function has left other settings than it found.

        Raises
        ------
        GraphError
            If it has.
        """
        if self.changed():
            self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise GraphError(
            f"compile: {name} changes what NumPy does about floating-point errors, which"
            " its graph would not do",
            do="write with np.errstate(...): in place of np.seterr(...)",
        )


# ---- random generators in a captured function: their draws are calls in the graph ----
# A generator is an input or a constant of the graph, and each draw the call of an
# operator. So the graph draws again whenever it runs, in the same order. Tracing draws
# from a copy.


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
    """A generator of a trace.

    Parameters
    ----------
    trace : Trace
    node : Node
        The input or constant.
    copy : Generator
        Draws what tracing needs.
    """
    made = _class()(copy.bit_generator)
    made.trace, made.node, made.source = trace, node, copy
    return made


# ---- other draws ----


def watch_of(fn: Callable[..., Any], leaves: Sequence[Any]) -> DrawWatch:
    """Notes generators that are drawn from so that no operator sees it."""
    return DrawWatch(sources(fn, leaves))


def check_undrawn(watch: DrawWatch, what_runs: str) -> None:
    """Raise for draws that would be constants of the graph.

    `what_runs` is such as ``make_fx of loss``.
    """
    watch.look()
    if watch.drawn:
        what = name_of(watch.drawn[0])
        raise GraphError(
            f"{what_runs}: the function draws from {what}, whose numbers would be"
            " constants of the graph",
            do="pass a np.random.Generator as an argument, and draw from it",
        )


# ---- which operators a graph keeps as nodes, and which it opens ----
# Takes their bodies apart.


Operators: TypeAlias = Iterable[Operator[..., Any] | str] | Callable[[Any], bool]
Table: TypeAlias = (
    Mapping[Operator[..., Any] | str, Callable[..., Any]]
    | Iterable[Operator[..., Any] | str]
)
Chosen: TypeAlias = Callable[[RuleTable], bool]


def as_chosen(given: Any, name: str) -> Chosen | None:
    """A test of operators, made of a list of them or of a function; None for no list."""
    if callable(given) and not isinstance(given, Operator | OperatorPacket):
        return lambda op: bool(given(op))
    chosen = frozenset([_operator(v, name) for v in _items(given, name)])
    return chosen.__contains__ if chosen else None


def as_table(given: Any, name: str) -> dict[RuleTable, Callable[..., Any]]:
    """Operator -> the function that takes its place: its own body if there is no other."""
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
