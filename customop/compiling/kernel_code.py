"""Groups of pointwise calls as kernels: functions of one element, in C.

Only what gives the bits of the ufunc is in the table: arithmetic, comparisons, rounding
to whole numbers and square roots, which IEEE 754 defines to the last bit, and integers
that wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU, device_kind
from customop.compiling.numpy_backend.elementwise_runs import runs_of
from customop.compiling.report import NodeGroup
from customop.core.dispatch import find_kernel
from customop.core.table import RuleTable
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, ITEM, PLACEHOLDER, Node
from customop.graph.subgraphs import split_graph
from customop.shapes.sizes import same_shape

# ---- kernels: groups of pointwise calls that run as one piece of machine code ----


class Kernel(GraphModule):
    """The graph of a group, and a function that computes the same at once.

    Parameters
    ----------
    group : GraphModule
    fused : callable
        Takes the inputs of the group, then its constants, and returns its only result.
    can_run : callable
        Of the same: whether `fused` gives what the calls give, one after the other; if
        not, those are made.
    """

    def __init__(
        self,
        group: GraphModule,
        fused: Callable[..., Any],
        can_run: Callable[..., bool],
    ) -> None:
        super().__init__(group.graph, name=group.name, place=group.place)
        self.fused: Callable[..., Any] = fused
        self._can_run = can_run
        self._constants = tuple(
            group.graph.constants[n.target]
            for n in group.graph.nodes
            if n.op == CONSTANT
        )

    def with_graph(self, graph: Graph) -> GraphModule:
        """Return the kernel itself: passes that simplify its graph keep its results."""
        return self

    def run(self, *leaves: Any) -> Any:
        """Compute the result of the group."""
        given = (*leaves, *self._constants)
        if not self._can_run(*given):
            return super().run(*leaves)
        try:
            return self.fused(*given)
        except FloatingPointError:
            # The calls themselves warn or raise, each by its own name.
            return super().run(*leaves)


# ---- pointwise calls as expressions of scalars, in C ----


class Pointwise(NamedTuple):
    """The scalar expression that a call computes for each element.

    Attributes
    ----------
    text : str
        An expression of C with ``{0}`` and so on for the operands, in the dtypes of
        `operands`.
    operands : tuple of dtype
        What the operands are converted to.
    result : dtype
        What the value of the expression is converted to.
    """

    text: str
    operands: tuple[np.dtype[Any], ...]
    result: np.dtype[Any]


class _Expression(NamedTuple):
    """An expression, and the kinds of dtypes for which its bits are those of a ufunc."""

    kinds: str
    text: str


def _wrapping(text: str) -> _Expression:
    """Write arithmetic of integers, which C defines for unsigned ones alone."""
    text = text.replace("{0}", f"({_WIDE}){{0}}").replace("{1}", f"({_WIDE}){{1}}")
    return _Expression("iu", f"({text})")


_WIDE = "unsigned long long"
# Ufunc -> expressions; the first whose kinds have that of the operands.
_ROWS: Mapping[str, Sequence[_Expression]] = {
    "add": [
        _Expression("f", "{0} + {1}"),
        _wrapping("{0} + {1}"),
        _Expression("b", "{0} | {1}"),
    ],
    "subtract": [_Expression("f", "{0} - {1}"), _wrapping("{0} - {1}")],
    "multiply": [
        _Expression("f", "{0} * {1}"),
        _wrapping("{0} * {1}"),
        _Expression("b", "{0} & {1}"),
    ],
    "divide": [_Expression("f", "{0} / {1}")],
    "square": [_Expression("f", "{0} * {0}"), _wrapping("{0} * {0}")],
    "reciprocal": [_Expression("f", "1 / {0}")],
    "negative": [_Expression("f", "-{0}"), _wrapping("0 - {0}")],
    "positive": [_Expression("iuf", "{0}")],
    "absolute": [
        _Expression("f", "fabs({0})"),
        _Expression("i", f"({{0}} < 0 ? 0 - ({_WIDE}){{0}} : ({_WIDE}){{0}})"),
        _Expression("bu", "{0}"),
    ],
    "sqrt": [_Expression("f", "sqrt({0})")],
    "floor": [
        _Expression("f", "floor({0})"),
        _Expression("biu", "{0}"),
    ],
    "ceil": [_Expression("f", "ceil({0})"), _Expression("biu", "{0}")],
    "trunc": [
        _Expression("f", "trunc({0})"),
        _Expression("biu", "{0}"),
    ],
    "rint": [_Expression("f", "rint({0})")],
    "equal": [_Expression("biuf", "{0} == {1}")],
    "not_equal": [_Expression("biuf", "{0} != {1}")],
    "less": [_Expression("biuf", "{0} < {1}")],
    "less_equal": [_Expression("biuf", "{0} <= {1}")],
    "greater": [_Expression("biuf", "{0} > {1}")],
    "greater_equal": [_Expression("biuf", "{0} >= {1}")],
    "logical_and": [_Expression("b", "{0} & {1}")],
    "logical_or": [_Expression("b", "{0} | {1}")],
    "logical_xor": [_Expression("b", "{0} ^ {1}")],
    "logical_not": [_Expression("b", "!{0}")],
    "bitwise_and": [_Expression("biu", "{0} & {1}")],
    "bitwise_or": [_Expression("biu", "{0} | {1}")],
    "bitwise_xor": [_Expression("biu", "{0} ^ {1}")],
    "invert": [_Expression("iu", "~{0}"), _Expression("b", "!{0}")],
    "isnan": [_Expression("f", "{0} != {0}")],
    # Of floats, which of -0.0 and 0.0 is the greater one depends on the processor.
    "maximum": [_Expression("biu", "({0} >= {1} ? {0} : {1})")],
    "minimum": [_Expression("biu", "({0} <= {1} ? {0} : {1})")],
}

# What CuPy computes with functions of CUDA, of floats alone; there the same expression in
# another kernel gives the same bits. Source: the routines of CuPy's ufuncs.
_NAN = "NAN"
_ON_DEVICE: Mapping[str, tuple[_Expression, ...]] = {
    **{
        name: (_Expression("f", f"{name.replace('arc', 'a')}({{0}})"),)
        for name in (
            *("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "expm1", "log"),
            *("log2", "log10", "log1p", "cbrt", "arcsin", "arccos", "arctan"),
            *("arcsinh", "arccosh", "arctanh"),
        )
    },
    "hypot": (_Expression("f", "hypot({0}, {1})"),),
    "arctan2": (_Expression("f", "atan2({0}, {1})"),),
    "power": (_Expression("f", "pow({0}, {1})"),),
    "maximum": (
        _Expression(
            "f", f"({{0}} != {{0}} | {{1}} != {{1}} ? {_NAN} : fmax({{0}}, {{1}}))"
        ),
    ),
    "minimum": (
        _Expression(
            "f", f"({{0}} != {{0}} | {{1}} != {{1}} ? {_NAN} : fmin({{0}}, {{1}}))"
        ),
    ),
}
_CHOICE = Pointwise("({0} ? {1} : {2})", (), np.dtype(bool))
_NUMBERS = (bool, int, float)
_WEAK = (int, float)


def pointwise_of(node: Node, kind: str = CPU.name) -> Pointwise | None:
    """Return the expression of a call on arrays of a kind; None if it is not in the table.

    For ``"cuda"`` there are functions more.
    """
    op = node.target
    if node.op != CALL or not isinstance(op, RuleTable) or op.namespace != "np":
        return None
    val, values = node.val, node.values()
    if (
        not isinstance(val, FakeArray)
        or not val.shape
        or device_kind(val.device) != kind
    ):
        return None
    dtypes = [operand_dtype(value) for value in values]
    if not all(_is_known(dtype) for dtype in dtypes if isinstance(dtype, np.dtype)):
        return None
    if op.name in _OTHERS:
        return _OTHERS[op.name](values, dtypes, val.dtype)
    rows = [
        *_ROWS.get(op.name, ()),
        *(_ON_DEVICE.get(op.name, ()) * (kind != CPU.name)),
    ]
    ufunc = getattr(np, op.name, None)
    # A kernel that somebody registered computes something else.
    if not rows or find_kernel(op, kind) is not ufunc:
        return None
    return _of_ufunc(rows, ufunc, values, dtypes)


def operand_dtype(value: Any) -> Any:
    """Return the dtype of an operand, the class of a Python number, None for others."""
    if isinstance(value, Node):
        return value.val.dtype if isinstance(value.val, FakeArray) else None
    if type(value) in _NUMBERS:
        return np.dtype(bool) if type(value) is bool else type(value)
    return value.dtype if isinstance(value, np.generic) else None


def _of_ufunc(
    rows: Sequence[_Expression],
    ufunc: Any,
    values: Sequence[Any],
    dtypes: Sequence[Any],
) -> Pointwise | None:
    if any(dtype is None for dtype in dtypes):
        return None
    *operands, result = ufunc.resolve_dtypes((*dtypes, None))
    kinds = {dtype.kind for dtype in operands}
    if len(kinds) != 1 or not all(_is_known(d) for d in (*operands, result)):
        return None
    (kind,) = kinds
    row = next((row for row in rows if kind in row.kinds), None)
    if row is None or not _fits(values, operands[0]):
        return None
    return Pointwise(row.text, tuple(operands), result)


def _of_choice(
    values: Sequence[Any], dtypes: Sequence[Any], wanted: np.dtype[Any]
) -> Pointwise | None:
    """Return the line of np.where."""
    if any(dtype is None for dtype in dtypes) or not _is_known(wanted):
        return None
    if dtypes[0] != np.dtype(bool) or not _fits(values[1:], wanted):
        return None
    return _CHOICE._replace(operands=(dtypes[0], wanted, wanted), result=wanted)


def _of_conversion(
    values: Sequence[Any], dtypes: Sequence[Any], wanted: np.dtype[Any]
) -> Pointwise | None:
    """Return the line of a conversion whose value is defined for all numbers."""
    given = dtypes[0]
    if given is None or not _is_known(wanted):
        return None
    is_lossy = wanted.kind == "b" or (given.kind == "f" and wanted.kind in "iu")
    if is_lossy and given != wanted:
        return None
    return Pointwise("{0}", (wanted,), wanted)


def _of_view(
    values: Sequence[Any], dtypes: Sequence[Any], wanted: np.dtype[Any]
) -> Pointwise | None:
    """Return the line of np.broadcast_to, whose elements are those of its operand."""
    return Pointwise("{0}", (wanted,), wanted) if _is_known(wanted) else None


_Find = Callable[[Sequence[Any], Sequence[Any], np.dtype[Any]], Pointwise | None]
_OTHERS: Mapping[str, _Find] = {
    "where": _of_choice,
    "astype": _of_conversion,
    "broadcast_to": _of_view,
}


def _is_known(dtype: np.dtype[Any]) -> bool:
    return (
        dtype.isnative
        and dtype.kind in "biuf"
        and dtype.itemsize <= 8
        and (dtype.kind != "f" or dtype.itemsize >= 4)
    )


def _fits(values: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether Python's numbers among values have a value in a dtype."""
    if dtype.kind not in "iu":
        return True
    limits = np.iinfo(dtype)
    weak = [value for value in values if type(value) in _WEAK]
    return all(type(v) is int and limits.min <= v <= limits.max for v in weak)


# ---- groups of pointwise calls, each with one result: parts of runs, see `elementwise_runs` ----
# Back ends that make one kernel of a group take what `pointwise` has an expression of.


def find_groups(graph: Graph, kind: str = CPU.name) -> dict[Node, str]:
    """Find pointwise calls that can run as one, element by element.

    Parameters
    ----------
    graph : Graph
    kind : str
        Of the arrays.

    Returns
    -------
    dict
        Call -> the name of its group. Each group has at least two calls of the same
        shape, and one result: the others are used in the group alone.
    """
    found: dict[Node, str] = {}
    for run in runs_of(graph, lambda node: _is_pointwise(node, kind), _is_pure):
        for root, members in _trees(run.members):
            if len(members) > 1 and _spans(root, members):
                found |= dict.fromkeys(members, graph.name_for(f"fused_{root.name}"))
    return found


def _is_pointwise(node: Node, kind: str) -> bool:
    is_call = node.op == CALL and not node.is_checked
    return is_call and pointwise_of(node, kind) is not None


def _is_pure(node: Node) -> bool:
    """Return whether it makes no difference if a node comes before a group."""
    return node.op in (CALL, ITEM) and not node.has_effects


def _trees(calls: Sequence[Node]) -> Iterator[tuple[Node, list[Node]]]:
    """Yield the results of a run, each with the calls that it alone needs."""
    root_of: dict[Node, Node] = {}
    members: dict[Node, list[Node]] = {}
    for node in reversed(calls):
        roots = {root_of.get(user) for user in node.users}
        root = roots.pop() if len(roots) == 1 else None
        if root is None or len(members[root]) >= _MOST_CALLS:
            if node.target.name == "broadcast_to":
                continue  # a view costs nothing
            root = node
        root_of[node] = root
        members.setdefault(root, []).append(node)
    yield from members.items()


def _spans(root: Node, members: list[Node]) -> bool:
    """Return whether the operands from outside together have the shape of the result."""
    inside = {*members}
    given = {n for member in members for n in member.inputs if n not in inside}
    if len(given) > _MOST_OPERANDS:
        return False
    shapes = [node.val.shape for node in given]
    if any(same_shape(shape, root.val.shape) for shape in shapes):
        return True
    is_known = all(type(n) is int for shape in shapes for n in shape)
    return is_known and np.broadcast_shapes(*shapes) == root.val.shape


# Compilers take more than linear time.
_MOST_CALLS = 64
# NumPy's iterator takes 64; the result is one.
_MOST_OPERANDS = 32


# ---- what a group computes ----


class Line(NamedTuple):
    """One call of a group.

    Attributes
    ----------
    name : str
        The variable of its value.
    pointwise : Pointwise
    operands : tuple
        For each a pair: the name of a variable and its dtype, or the bytes of a number of
        the dtype that the pointwise takes and None. 0.0 equals -0.0, their bytes do not.
    """

    name: str
    pointwise: Pointwise
    operands: tuple[tuple[str | bytes, np.dtype[Any] | None], ...]


class ElementProgram(NamedTuple):
    """The calls of a group, in order; the last one gives the result."""

    inputs: tuple[tuple[str, np.dtype[Any]], ...]
    lines: tuple[Line, ...]

    @property
    def result(self) -> np.dtype[Any]:
        """The dtype of the result."""
        return self.lines[-1].pointwise.result


def program_of(graph: Graph, kind: str = CPU.name) -> ElementProgram:
    """Return the program of a group: ``a0``, ... are its inputs, ``v0``, ... its values.

    The same program is the same for groups of other names.
    """
    names: dict[Node, str] = {}
    inputs: list[tuple[str, np.dtype[Any]]] = []
    lines: list[Line] = []
    for node in graph.nodes:
        if node.op in (PLACEHOLDER, CONSTANT):
            names[node] = f"a{len(inputs)}"
            inputs.append((names[node], node.val.dtype))
        elif node.op == CALL:
            pointwise = pointwise_of(node, kind)
            assert pointwise is not None
            pairs = zip(node.values(), pointwise.operands, strict=False)
            operands = [_operand(value, dtype, names) for value, dtype in pairs]
            names[node] = f"v{len(lines)}"
            lines.append(Line(names[node], pointwise, tuple(operands)))
    return ElementProgram(tuple(inputs), tuple(lines))


def _operand(
    value: Any, dtype: np.dtype[Any], names: dict[Node, str]
) -> tuple[str | bytes, np.dtype[Any] | None]:
    if isinstance(value, Node):
        return names[value], value.val.dtype
    return np.asarray(value).astype(dtype).tobytes(), None


def with_kernels(
    module: GraphModule,
    kernel_for: Callable[[GraphModule, ElementProgram], Kernel],
    kind: str = CPU.name,
) -> GraphModule:
    """Return a module in which each group of pointwise calls is one call of a kernel."""
    groups = find_groups(module.graph, kind)
    if not groups:
        return module
    found = split_graph(module, groups)
    names = {*groups.values()}
    for node in found.graph.nodes:
        if node.op == CALL and node.name in names:
            node.target = kernel_for(node.target, program_of(node.target.graph, kind))
    return found


def kernels_of(module: GraphModule, title: str) -> list[NodeGroup]:
    """Describe each kernel of a module for reports, such as that it is one ufunc."""
    targets = [node.target for node in module.graph.nodes if node.op == CALL]
    return [
        NodeGroup([node.name for node in calls], f"one {title} of {len(calls)} calls")
        for target in targets
        if isinstance(target, Kernel)
        for calls in [[n for n in target.graph.nodes if n.op == CALL]]
    ]


# ---- the program of a group as a function of one element: in Python, and in C ----


C_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}


def in_c(program: ElementProgram, result: str) -> str:
    """Return statements that compute one element, and assign it to `result`.

    They hold for C++ and CUDA, where ``sqrt`` and the like are those of the operand.
    """
    lines = []
    for name, pointwise, operands in program.lines:
        texts = [
            _c_literal(np.frombuffer(value, wanted)[0])
            if isinstance(value, bytes)
            else value
            if dtype == wanted
            else _cast(value, wanted)
            for (value, dtype), wanted in zip(operands, pointwise.operands, strict=True)
        ]
        kind = C_TYPES[pointwise.result.name]
        expression = _cast(pointwise.text.format(*texts), pointwise.result)
        lines.append(f"const {kind} {name} = {expression};")
    return "\n".join([*lines, f"{result} = {program.lines[-1].name};"])


def _cast(text: str, dtype: np.dtype[Any]) -> str:
    return f"({C_TYPES[dtype.name]})({text})"


def _c_literal(value: Any) -> str:
    """Return a number in C with its type, since a plain one may have another type."""
    kind, name = value.dtype.kind, C_TYPES[value.dtype.name]
    if kind == "b":
        return "true" if value else "false"
    if kind == "f":
        text = repr(float(value)) if math.isfinite(value) else _infinite(float(value))
    elif kind == "u":
        text = f"{value}ULL"
    else:  # the least one has no literal of its own
        text = f"(-{-(int(value) + 1)}LL - 1)" if value < 0 else f"{value}LL"
    return f"(({name}){text})"


def _infinite(value: float) -> str:
    if math.isnan(value):
        return "(0.0 / 0.0)"
    return "(1.0 / 0.0)" if value > 0 else "(-1.0 / 0.0)"
