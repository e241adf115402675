"""A graph as Python text: lines with types for the reader, which also run."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.nested import abbreviated, flat, flatten, nests, unflatten
from customop.arrays.python_text import PythonText, dtype_text
from customop.core.registry import operators
from customop.core.table import RuleTable
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, Node, sizes_in, solved
from customop.shapes.conditions import Guard, Size, names_in_side, side_value
from customop.shapes.size_context import SizeContext
from customop.shapes.sizes import Symbolic
from customop.shapes.symbolic import as_side

if TYPE_CHECKING:
    from customop.graph.module import GraphModule


# ---- symbolic sizes in the text of a graph ----


class SizesInText:
    """The lines for the sizes of a graph: where they come from, and what must hold."""

    def __init__(self, sizes: SizeContext | None, *, tells_fixed: bool) -> None:
        self._known: set[str] = set()
        # A second capture takes every length of its examples for a symbolic size.
        self._tells_fixed: bool = tells_fixed
        self._waiting: list[Guard] = [*sizes.guards, *sizes.checks] if sizes else []

    def of_inputs(self, inputs: Sequence[tuple[Node, str]]) -> Iterator[str]:
        """The lines for inputs, with their names."""
        rest: list[tuple[str, Any]] = []
        for node, name in inputs:
            for path, size in _sizes_of(node.val):
                line = self._named(f"{name}{path}", size)
                if line:
                    yield line
                elif is_array(node.val):
                    rest.append((f"{name}{path}", size))
            if self._tells_fixed:
                rest += [(f"{name}{path}", n) for path, n in _fixed_of(node.val)]
        yield from self._same(rest)
        yield from self._ready()

    def _same(self, lengths: Sequence[tuple[str, Any]]) -> Iterator[str]:
        """How lengths are related: who captures the text again, learns it from this."""
        rest: list[tuple[str, Any]] = []
        for length, size in lengths:
            found = None if type(size) is int else solved(size, self._known)
            if found is not None:
                self._known.add(found.name)
                yield f"{found.name} = {found.text(length)}"
            if found is None or found.factor != 1:
                rest.append((length, size))
        groups: dict[str, list[str]] = {}
        for length, size in rest:
            known = sizes_in([size]) <= self._known
            same = groups.setdefault(str(size), [str(size)] if known else [])
            same.insert(0, length)
        for same in groups.values():
            if len(same) > 1:
                yield f"assert {' == '.join(same)}"

    def of_result(self, node: Node, name: str) -> Iterator[str]:
        """The lines for the sizes that a call brings."""
        lines = [self._named(f"{name}{path}", n) for path, n in _sizes_of(node.val)]
        if any(lines):
            yield from filter(None, lines)
            yield from self._ready()

    def _named(self, length: str, size: Any) -> str:
        """The line that gives a size its name, where the length is a whole new size."""
        text = str(size)
        if not text.isidentifier() or text in self._known:
            return ""
        self._known.add(text)
        return f"{text} = {length}"

    def _ready(self) -> Iterator[str]:
        ready = [guard for guard in self._waiting if guard.names <= self._known]
        self._waiting = [g for g in self._waiting if not g.names <= self._known]
        for guard in ready:
            yield f"assert {guard.text}  # {guard.place}"


def _sizes_of(val: Any) -> list[tuple[str, Any]]:
    """The symbolic sizes of a value, with the text that leads to each."""
    if isinstance(val, Symbolic):
        return [("", val)]
    if is_array(val):
        sizes = [(f".shape[{i}]", size) for i, size in enumerate(val.shape)]
        return [(path, size) for path, size in sizes if isinstance(size, Symbolic)]
    if isinstance(val, list | tuple):
        parts = [(f"[{i}]", part) for i, part in enumerate(val)]
        return [(f"{a}{b}", size) for a, part in parts for b, size in _sizes_of(part)]
    return []


def _fixed_of(val: Any) -> list[tuple[str, int]]:
    """The lengths of an array that are the same for all sizes."""
    shape = enumerate(val.shape if is_array(val) else ())
    return [(f".shape[{i}]", n) for i, n in shape if not isinstance(n, Symbolic)]


def length_then(size: Any) -> int:
    """The length that an axis had; a size that depends on data is at least 2 there."""
    if not isinstance(size, Symbolic):
        return int(size)
    side = as_side(size)
    assert side is not None
    sizes = size.context.sizes
    lengths = {name: _usual(sizes[name]) for name in names_in_side(side)}
    return int(side_value(side, lengths))


def _usual(size: Size) -> int:
    return max(2, size.bounds[0]) if size.hint is None else size.hint


# ---- a graph as Python text: lines with types for the reader, which also run ----


# Elements of a constant that is written as numbers; larger ones are named.
_MOST: Final = 100
_RESERVED: Final = ("np", "co", "inf", "nan", "customop", "constants", "getattr")


def readable(module: GraphModule) -> str:
    """The text of a graph module, and of those in it."""
    return GraphText(module).text()


def named_constants(module: GraphModule) -> dict[str, Any]:
    """The constants that the text of a module takes from a dict, by name."""
    text = GraphText(module)
    text.text()
    return text.named


def type_text(value: Any) -> str:
    """The type of a value, in short: ``f64[s0, 3]``."""
    if is_array(value):
        return abbreviated(value)
    if value is None:
        return "None"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(type_text, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside}{',' if len(value) == 1 else ''})"
    return type(value).__name__


class GraphText(PythonText):
    """The text of a graph module.

    Attributes
    ----------
    named : dict
        Name -> value that the text takes from the dict ``constants``.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__()
        self.named: dict[str, Any] = {}
        self._module = module
        self._functions: dict[int, str] = {}
        self._graphs: dict[int, str] = {}
        self._bodies: list[str] = []
        nodes = [node for m in _all_modules(module) for node in m.graph.nodes]
        self.taken.update({*_RESERVED, *(n.name for n in nodes if n.op != CONSTANT)})
        self._sizes = [m.graph.sizes for m in _all_modules(module)]
        own: tuple[str, ...] = _RESERVED
        if any(getattr(m.graph.sizes, "sizes", None) for m in _all_modules(module)):
            own += (
                "abs",
                "complex",
                "float",
                "int",
                "max",
                "min",
            )  # texts of sizes call them
        self._names = _NodeNames(self.taken, own)

    def text(self) -> str:
        """The whole text."""
        self._function(self._module)
        special = "from numpy import inf, nan\n" if self.uses_special else ""
        own = [line for line in self.imports if line != "import customop.testing"]
        own += ["import customop.testing"] * (len(own) < len(self.imports))
        head = "".join(f"{line}\n" for line in sorted(own))
        blocks = [f"import numpy as np\n{special}\nimport customop as co\n{head}"]
        if self.named:
            blocks.append(f"# Values for this text: {_HOW}\n")
        if self.lines:
            blocks.append("".join(f"{line}\n" for line in self.lines))
        return "\n".join([*blocks, *(f"\n{body}" for body in self._bodies)])

    # ---- values ----

    def leaf(self, value: Any, name: str) -> str | None:
        """Nodes, sizes, graphs, and what has to be named."""
        if isinstance(value, Node):
            return self._of_node(value)
        if _is_module(value):
            return self._graph_argument(value)
        if isinstance(value, Symbolic):
            is_own = any(value.context is sizes for sizes in self._sizes)
            return str(value) if is_own else self._named(value, "size", str(value))
        return None if is_writable(value) else self._named(value, name)

    def _of_node(self, node: Node) -> str:
        if node.op != CONSTANT:
            return self._names.of(node)
        return self.value(node.graph.constants[node.target], node.name)

    def class_name(self, cls: type) -> str:
        """The name of a class; one that cannot be imported has to be named."""
        if _is_importable(cls):
            return super().class_name(cls)
        return self._named(cls, cls.__name__)

    def _named(self, value: Any, name: str, note: str = "") -> str:
        """A value that the reader has to give: large, or without a text."""

        def lines(chosen: str) -> list[str]:
            self.named[chosen] = value
            said = abbreviated(value) if is_array(value) else note
            return [f"{chosen} = constants[{chosen!r}]{f'  # {said}' * bool(said)}"]

        return self.add(name, lines, value)

    # ---- functions ----

    def _function(self, module: GraphModule) -> str:
        """Write the function of a module, once; its name."""
        known = self._functions.get(id(module))
        if known is not None:
            return known
        name = _as_name(module.__name__, "graph")
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        self._functions[id(module)] = name
        body = "".join(f"    {line}\n" for line in self._body(module))
        head = f"def {name}({', '.join(self._parameters(module))}):"
        place = f"  # {module.place}" if module.place else ""
        self._bodies.append(f"{head}{place}\n{body}")
        return name

    def _parameters(self, module: GraphModule) -> list[str]:
        inputs = module.inputs
        positional, named = _signature(module)
        if _is_flat(module, positional, named):
            return [f"{self._names.of(n)}: {_type_of(n)}" for n in inputs]
        return [*positional, *(["*", *named] if named else [])]

    def _graph_argument(self, module: GraphModule) -> str:
        """The name of a graph that is an argument: its function is captured again."""
        if id(module) not in self._graphs:
            function = self._function(module)
            name = f"{function}_graph"
            while name in self.taken:
                name += "_"
            self.taken.add(name)
            self._graphs[id(module)] = name
            mode = "symbolic" if _is_symbolic(module) else "fake"
            given = ", ".join(self._example(node.val) for node in module.inputs)
            self._bodies.append(f"{name} = co.make_fx({function}, {mode!r})({given})\n")
        return self._graphs[id(module)]

    def _example(self, val: Any) -> str:
        """An array without data of the shape and dtype of an input."""
        if not is_array(val):
            return self.value(val, "value")
        shape = tuple([length_then(size) for size in val.shape])
        return f"co.FakeArray({shape}, {dtype_text(val.dtype)})"

    def _body(self, module: GraphModule) -> Iterator[str]:
        yield from self._input_lines(module)
        tells_fixed = module is not self._module and _is_symbolic(module)
        sizes = SizesInText(module.graph.sizes, tells_fixed=tells_fixed)
        names = [(node, self._names.of(node)) for node in module.inputs]
        yield from self._guard_lines(names)
        yield from sizes.of_inputs(names)
        last = _last_uses(module)
        for node in module.graph.nodes:
            if node.op == OUTPUT:
                yield f"return {self._result(module, node)}"
            elif node.op in (CALL, ITEM):
                yield self._line(node, last.get(node, ()))
                yield from sizes.of_result(node, self._names.of(node))

    def _input_lines(self, module: GraphModule) -> Iterator[str]:
        """Lines that take nested arguments apart."""
        positional, named = _signature(module)
        if _is_flat(module, positional, named):
            return
        pairs = ", ".join(f"{name!r}: {name}" for name in named)
        inside = "".join(f"{name}, " for name in positional)
        names = [self._names.of(node) for node in module.inputs]
        if names:
            tree = f"(({inside.rstrip() if inside else ''}), {{{pairs}}})"
            yield f"{', '.join(names)}, = co.tree.leaves({tree})"
        for node in module.inputs:
            yield f"# {self._names.of(node)}: {_type_of(node)[1:-1]}"

    def _guard_lines(self, inputs: Sequence[tuple[Node, str]]) -> Iterator[str]:
        """The conditions on inputs that are not arrays."""
        for node, name in inputs:
            if node.val is not None and not any(map(is_array, flat(node.val))):
                yield f"# {name} must be {node.val!r}"

    def _line(self, node: Node, dead: Sequence[Node]) -> str:
        name = self._names.of(node)
        own = {node} & {*dead}
        freed = ", ".join(self._names.of(n) for n in dead if n not in own or node.users)
        free = f"; del {freed}" if freed else ""
        place = node.meta.get("place")
        note = f"  # {place}" if place else ""
        return f"{name}: {_type_of(node)} = {self._computed(node)}{free}{note}"

    def _computed(self, node: Node) -> str:
        if node.op == ITEM:
            parent, index = node.args
            return f"{self._names.of(parent)}[{index!r}]"
        args = [self.value(v, f"{node.name}_{i}") for i, v in enumerate(node.args)]
        args += [
            f"{k}={self.value(v, f'{node.name}_{k}')}" for k, v in node.kwargs.items()
        ]
        return f"{self._target(node.target)}({', '.join(args)})"

    def _target(self, target: Any) -> str:
        if _is_module(target):
            return self._function(target)
        if id(operators.get(target.qualname)) != id(target):
            # The function of a user, with derivatives of its own.
            note = f"{target.qualname}, defined at {target.definition.place}"
            return self._named(target.run, f"run_{target.name}", note)
        text = "co.ops"
        for part in (target.namespace, target.name, target.overload or "default"):
            text = f"getattr({text}, {part!r})" if iskeyword(part) else f"{text}.{part}"
        return text

    def _result(self, module: GraphModule, node: Node) -> str:
        leaves = node.args[0]
        if module.out_spec is not None:
            return self.value(unflatten(module.out_spec, leaves), "out")
        return self.value(leaves[0] if len(leaves) == 1 else leaves, "out")


_HOW = 'exec(text, {"constants": module.named_constants()})'


class _NodeNames:
    """Names of nodes in the text: their own, unless the text needs that."""

    def __init__(self, taken: set[str], reserved: Sequence[str]) -> None:
        self._taken = taken
        self._reserved = reserved
        self._known: dict[Node, str] = {}

    def of(self, node: Node) -> str:
        """The name of a node."""
        if node.name not in self._reserved:
            return node.name
        if node not in self._known:
            name = f"{node.name}_"
            while name in self._taken:
                name += "_"
            self._taken.add(name)
            self._known[node] = name
        return self._known[node]


def _type_of(node: Node) -> str:
    return f'"{type_text(node.meta.get("val"))}"'


def _as_name(text: str, otherwise: str) -> str:
    return text if text.isidentifier() and not iskeyword(text) else otherwise


def _is_module(value: Any) -> bool:
    """Whether a value is a graph module, whose class cannot be imported here."""
    return not isinstance(value, Node | RuleTable) and hasattr(value, "in_spec")


def _all_modules(module: GraphModule) -> Iterator[GraphModule]:
    """A module and those in it."""
    yield module
    for node in module.graph.nodes:
        for value in (node.target, *node.args, *node.kwargs.values()):
            for inner in flat(value):
                if _is_module(inner):
                    yield from _all_modules(inner)


def _signature(module: GraphModule) -> tuple[list[str], list[str]]:
    """Names of the positional and keyword parameters."""
    spec: Any = module.in_spec
    if spec is None:
        return [node.name for node in module.inputs], []
    args, kwargs = unflatten(spec, module.inputs)
    positional = [_parameter_of(value, i) for i, value in enumerate(args)]
    while len({*positional}) < len(positional):
        positional = [f"{name}_{i}" for i, name in enumerate(positional)]
    return positional, list(kwargs)


def _parameter_of(value: Any, number: int) -> str:
    """The user's name of an argument, from where its inputs come from."""
    nodes = [leaf for leaf in flatten(value)[0] if isinstance(leaf, Node)]
    for node in nodes:
        source = str(node.meta.get("source", ""))
        found = source.partition("[")[0].partition(".")[0]
        if found.isidentifier() and found not in _RESERVED:
            return found
    return nodes[0].name if len(nodes) == 1 else f"input_{number}"


def _is_flat(
    module: GraphModule, positional: Sequence[str], named: Sequence[str]
) -> bool:
    """Whether each input is one positional argument."""
    if module.in_spec is None:
        return True
    if named or len(positional) != len(module.inputs):
        return False
    leaves = (*range(len(positional)),)
    return bool(module.in_spec == flatten((leaves, {}))[1])


def _is_symbolic(module: GraphModule) -> bool:
    """Whether the inputs of a graph have symbolic sizes."""
    return bool(sizes_in([node.val for node in module.inputs]))


def _last_uses(module: GraphModule) -> dict[Node, list[Node]]:
    """For each node, the nodes whose values are not needed after it."""
    found: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(module.graph.nodes):
        for used in node.inputs:
            if used not in seen and used.op != CONSTANT:
                seen.add(used)
                found.setdefault(node, []).append(used)
        if node not in seen and node.op in (CALL, ITEM):
            found.setdefault(node, []).append(node)
    return found


# ---- what can be written ----


def is_writable(value: Any) -> bool:
    """Whether the text can make a value itself: not if it is large or unknown."""
    if is_array(value):
        return value.size <= _MOST and not _holds_objects(value)
    if value is None or isinstance(value, _SIMPLE):
        return True
    cls = type(value)
    return (
        cls in nests or hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")
    )


def _holds_objects(x: Any) -> bool:
    return bool(getattr(x.dtype, "hasobject", False))


_SIMPLE = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    list,
    tuple,
    dict,
    slice,
    range,
    enum.Enum,
    type(...),
    np.dtype,
    np.random.Generator,
)


def _is_importable(cls: type) -> bool:
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls
