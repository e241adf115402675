"""The page that shows the nodes of a graph with their facts and costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.core.table import RuleTable
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, Node
from customop.graph.text import type_text
from customop.pages.html import application, frame, mono, visible
from customop.shapes.sizes import is_symbolic, typical
from customop.shapes.symbolic import SymInt

if TYPE_CHECKING:
    from customop.graph.module import GraphModule


# ---- texts about a node, for pictures ----


_LONGEST = 60


def graphs_in(node: Node) -> list[tuple[str, GraphModule]]:
    """Return the graphs that a node calls or has as arguments, each with a name."""
    if node.op != CALL:
        return []
    # Asking an operator for an unknown attribute takes 3 ms, to suggest a name.
    if not isinstance(node.target, RuleTable):
        return [(str(node.target.__name__), node.target)]
    names = [p.name for p in node.target.schema.positional]
    values = [*zip(names, node.args, strict=False), *node.kwargs.items()]
    return [
        (name, leaf)
        for name, value in values
        for leaf in flat(value)
        if hasattr(leaf, "in_spec")
    ]


def target_text(node: Node) -> str:
    """Return the operator of a call as users know it: ``sin`` for ``np::sin``."""
    name: str = node.target.qualname
    return name.removeprefix("np::")


def type_of(node: Node) -> str:
    """Return the short type of a node's value."""
    if node.op == OUTPUT:
        return ""
    return type_text(val_of(node))


def val_of(node: Node) -> Any:
    """Return the value of a constant, or what `meta` knows of a node's value."""
    found = node.meta.get("val")
    if found is None and node.op == CONSTANT:
        return node.graph.constants.get(node.target)
    return found


def argument_text(value: Any) -> str:
    """Return an argument of a call as text, with nodes by name."""
    if isinstance(value, Node):
        return value.name
    if hasattr(value, "in_spec"):
        return f"<graph {value.__name__}>"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(argument_text, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside}{',' if len(value) == 1 else ''})"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


# ---- the cost of a node ----
# Operations if a formula is known; otherwise elements of its result.
#
# Symbolic sizes count as in the captured call, or as 2 if that is unknown.


class Cost(NamedTuple):
    """The cost of a node.

    Attributes
    ----------
    number : int
    is_flops : bool
        Whether it counts additions and multiplications; otherwise it counts elements.
    """

    number: int
    is_flops: bool


def cost_of(node: Node) -> Cost:
    """Return the cost of a node. Inputs, constants and parts of results are free."""
    if node.op != CALL:
        return Cost(0, is_flops=False)
    out = node.meta.get("val")
    formula = _FORMULAS.get(node.target.qualname)
    if formula is not None:
        try:
            found = formula(_CostedCall(node))
        except (LookupError, ValueError):  # facts that the formula needs are missing
            found = None
        if found is not None:
            return Cost(int(found), is_flops=True)
    return Cost(sum(math.prod(shape_of(x)) for x in _arrays(out)), is_flops=False)


def bytes_of(val: Any) -> int:
    """Return the bytes of the arrays in a value."""
    arrays = _arrays(val)
    return sum(math.prod(shape_of(x)) * int(x.dtype.itemsize) for x in arrays)


def is_estimate(val: Any) -> bool:
    """Return whether a value has symbolic sizes, so that its numbers are estimates."""
    return any(is_symbolic(x.shape) for x in _arrays(val))


def _arrays(val: Any) -> list[Any]:
    return [leaf for leaf in flat(val) if is_array(leaf)]


def shape_of(x: Any) -> tuple[int, ...]:
    """Return the lengths of the axes as numbers."""
    return tuple([_number(length) for length in x.shape])


def _number(length: Any) -> int:
    if type(length) is not SymInt:
        return int(length)
    return typical(length) if length.hint is None else int(length.hint)


# ---- formulas ----


class _CostedCall:
    """The arguments of a call, with what is known about their arrays."""

    def __init__(self, node: Node) -> None:
        self.values: list[Any] = node.values()
        self.out: Any = node.meta.get("val")

    def array(self, value: Any) -> Any:
        """Return an argument if it is an array; raise LookupError otherwise."""
        found = value.meta.get("val") if isinstance(value, Node) else value
        if not is_array(found):
            raise LookupError
        return found

    def shape(self, position: int) -> tuple[int, ...]:
        """Return the shape of an argument."""
        return shape_of(self.array(self.values[position]))

    @property
    def results(self) -> list[Any]:
        """The arrays among the results."""
        return _arrays(self.out)

    @property
    def factor(self) -> int:
        """Return how many real operations one multiplication and one addition take."""
        return 8 if any(x.dtype.kind == "c" for x in self.results) else 2

    @property
    def stacked(self) -> int:
        """The number of matrices in the first argument."""
        return math.prod(self.shape(0)[:-2])


def _elements(call: _CostedCall) -> int:
    """Count one operation for each element of the result."""
    return math.prod(shape_of(call.results[0]))


def _elements_or_parts(complex_parts: int) -> Callable[[_CostedCall], int]:
    """Return a counter like `_elements`, with more operations for complex numbers."""

    def count(call: _CostedCall) -> int:
        is_complex = call.results[0].dtype.kind == "c"
        return _elements(call) * (complex_parts if is_complex else 1)

    return count


def _inputs(call: _CostedCall) -> int:
    """Count one operation for each element of the argument."""
    return math.prod(call.shape(0))


def _matmul(call: _CostedCall) -> int:
    return call.factor * _elements(call) * call.shape(0)[-1]


def _tensordot(call: _CostedCall) -> int:
    axes: list[int] = call.values[2]
    return call.factor * _elements(call) * math.prod(call.shape(0)[n] for n in axes)


def _einsum(call: _CostedCall) -> int:
    inputs = call.values[0].replace(" ", "").partition("->")[0].split(",")
    lengths: dict[str, int] = {}
    rest = 1
    for letters, value in zip(inputs, call.values[1], strict=True):
        shape = shape_of(call.array(value))
        before, dots, after = letters.partition("...")
        if dots:
            end = len(shape) - len(after)
            rest = max(rest, math.prod(shape[len(before) : end]))
            shape = shape[: len(before)] + shape[end:]
        for letter, length in zip(before + after, shape, strict=True):
            lengths[letter] = max(lengths.get(letter, 1), length)
    return max(len(inputs), 1) * call.factor // 2 * math.prod(lengths.values()) * rest


def _convolve(call: _CostedCall) -> int:
    return call.factor * math.prod(call.shape(0)) * math.prod(call.shape(1))


def _fourier(call: _CostedCall, each: float, shape: Sequence[int]) -> float:
    """Count an FFT. Source: benchFFT, 5 n log2(n) operations for n complex numbers."""
    number = math.prod(shape)
    return each * number * math.log2(max(number, 2))


def _matrices(cube: float) -> Callable[[_CostedCall], float]:
    """Return a counter of `cube` times n^3 operations for each matrix of shape (n, n).

    Source: Golub and Van Loan, Matrix computations, 4th ed., tables of chapters 3 to 8.
    """

    def count(call: _CostedCall) -> float:
        return cube * call.factor / 2 * call.shape(0)[-1] ** 3 * call.stacked

    return count


def _rectangles(square: float, cube: float) -> Callable[[_CostedCall], float]:
    """Return a counter of operations for m n^2 and n^3, where n is the shorter side."""

    def count(call: _CostedCall) -> float:
        n, m = sorted(call.shape(0)[-2:])
        return call.factor / 2 * (square * m * n**2 + cube * n**3) * call.stacked

    return count


def _solve(call: _CostedCall) -> float:
    n, columns = call.shape(0)[-1], math.prod(call.shape(1)[-1:])
    return call.factor / 2 * (2 / 3 * n**3 + 2 * n**2 * columns) * call.stacked


_ADD = _elements_or_parts(2)
_MULTIPLY = _elements_or_parts(6)

# Operator -> how many operations on numbers it takes.
_FORMULAS: dict[str, Callable[[_CostedCall], float]] = {
    **dict.fromkeys(("np::add", "np::subtract", "np::negative"), _ADD),
    **dict.fromkeys(("np::multiply", "np::square"), _MULTIPLY),
    **dict.fromkeys(
        (
            *("np::divide", "np::reciprocal", "np::sqrt", "np::absolute", "np::sign"),
            *("np::maximum", "np::minimum", "np::fmax", "np::fmin"),
        ),
        _elements,
    ),
    **dict.fromkeys(
        (
            *("np::sum", "np::prod", "np::mean", "np::max", "np::min"),
            *("np::cumsum", "np::cumprod"),
        ),
        _inputs,
    ),
    "np::matmul": _matmul,
    "np::tensordot": _tensordot,
    "np::einsum": _einsum,
    "np::convolve": _convolve,
    "np::fftn": lambda call: _fourier(call, 5, call.shape(0)),
    "np::ifftn": lambda call: _fourier(call, 5, call.shape(0)),
    "np::rfftn": lambda call: _fourier(call, 2.5, call.shape(0)),
    "np::irfftn": lambda call: _fourier(call, 2.5, shape_of(call.results[0])),
    "np::cholesky": _matrices(1 / 3),
    "np::det": _matrices(2 / 3),
    "np::slogdet": _matrices(2 / 3),
    "np::inv": _matrices(2),
    "np::solve": _solve,
    "np::eigvalsh": _matrices(4 / 3),
    "np::eigh": _matrices(9),
    "np::eigvals": _matrices(10),
    "np::eig": _matrices(25),
    "np::qr": _rectangles(4, -4 / 3),
    "np::svdvals": _rectangles(4, -4 / 3),
    "np::svd": _rectangles(14, 8),
}


# ---- a page that shows the nodes of a graph ----
# It can fold and search, and needs no network.


# The most nodes in a notebook, whose file stores everything it shows.
_MOST_IN_NOTEBOOK = 20_000


def page_html(module: GraphModule, most: int | None = None) -> str:
    """Return the page of a graph as HTML.

    Parameters
    ----------
    module : GraphModule
    most : int, optional
        The largest number of nodes to show.
    """
    files = ("graph.css", "graph.html", "graph.js")
    name = str(module.__name__)
    return application(
        name, "customop.graph.pictures", files, _Page(module, most).as_json()
    )


def notebook_html(module: GraphModule) -> str:
    """Return the page in a frame for notebooks."""
    text = page_html(module, _MOST_IN_NOTEBOOK)
    return frame(text, instead=[mono(repr(module))])


class _Page:
    """The data that the script of the page needs."""

    def __init__(self, module: GraphModule, most: int | None) -> None:
        self._module = module
        self._most = most
        self._rows: list[list[Any]] = []
        self._texts: dict[str, int] = {}
        # The graphs around the one that is being added.
        self._open: list[GraphModule] = []
        self._left_out = 0
        self._constants: dict[int, Any] = {}

    def as_json(self) -> dict[str, Any]:
        """Return the graph as data for the page's script."""
        self._add(self._module, -1, 0)
        calls = [row for row in self._rows if row[9]]
        note = f"{self._left_out} nodes are left out: draw('graph.html') has all"
        return {
            "title": visible(str(self._module.__name__)),
            "count": sum(row[2] != "graph" for row in self._rows),
            "flops": sum(row[8] for row in calls),
            "bytes": sum(row[7] for row in self._rows if row[2] != CONSTANT),
            "constants": sum(map(bytes_of, self._constants.values())),
            "note": note if self._left_out else "",
            "texts": [*self._texts],
            "rows": self._rows,
        }

    def _add(self, module: GraphModule, parent: int, level: int) -> None:
        if any(module is outer for outer in self._open):
            return
        self._open.append(module)
        self._constants.update((id(c), c) for c in module.constants.values())
        numbers: dict[Node, int] = {}
        depths: dict[Node, int] = {}
        for node in module.graph.nodes:
            if self._most is not None and len(self._rows) >= self._most:
                self._left_out += 1
                continue
            inputs = [n for n in node.inputs if n in numbers]
            depths[node] = 1 + max((depths[n] for n in inputs), default=-1)
            numbers[node] = len(self._rows)
            row = self._row(node, depths[node])
            self._rows.append([parent, level, *row])
            self._rows[-1][14] = [numbers[n] for n in inputs]
            for name, inner in graphs_in(node):
                self._add_part(name, inner, numbers[node], level + 1)
        self._open.pop()

    def _add_part(
        self, name: str, module: GraphModule, parent: int, level: int
    ) -> None:
        """Add a graph that is an argument of a node, below a row for the graph."""
        title = self._text(f"graph of {module.graph.count} nodes")
        none = self._text("")
        row = [parent, level, "graph", visible(name), title, none, "", 0, 0, 0, 0, none]
        self._rows.append([*row, 0, "", [], none])
        self._add(module, len(self._rows) - 1, level + 1)

    def _row(self, node: Node, depth: int) -> list[Any]:
        val = val_of(node)
        cost = cost_of(node)
        has_bytes = node.op not in (OUTPUT, ITEM)
        schema = (
            f"{node.target.qualname}{node.target.schema}" if node.op == CALL else ""
        )
        return [
            node.op,
            visible(node.name),
            self._text(_label(node)),
            self._text(type_of(node)),
            "x".join(map(str, shape_of(val))) if is_array(val) else "",
            bytes_of(val) if has_bytes else 0,
            cost.number,
            int(cost.is_flops),
            int(is_estimate(val)),
            self._text(str(node.meta.get("place") or "")),
            depth,
            visible(_arguments(node)),
            [],
            self._text(schema),
        ]

    def _text(self, text: str) -> int:
        """Return the number of a text; equal texts share one."""
        return self._texts.setdefault(visible(text), len(self._texts))


def _label(node: Node) -> str:
    if node.op == CALL:
        return target_text(node)
    return f"[{node.args[1]!r}]" if node.op == ITEM else str(node.op)


def _arguments(node: Node) -> str:
    if node.op not in (CALL, OUTPUT):
        return ""
    if node.op == OUTPUT:
        return argument_text(node.args[0])
    names = [p.name for p in node.target.schema.positional]
    pairs = [*zip(names, node.args, strict=False), *node.kwargs.items()]
    return "\n".join(f"{name} = {argument_text(value)}" for name, value in pairs)
