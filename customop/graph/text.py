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
from customop.graph.code_parts import Length, SizeWalk
from customop.graph.node import CONSTANT, Node, Solved, sizes_in
from customop.graph.writer import GraphWriter
from customop.shapes.conditions import Guard, Size, names_in_side, side_value
from customop.shapes.size_context import SizeContext
from customop.shapes.sizes import Symbolic
from customop.shapes.symbolic import as_side

if TYPE_CHECKING:
    from customop.graph.module import GraphModule


# ---- a graph as Python text: lines with types for the reader, which also run ----


# Elements of a constant that is written as numbers; larger ones are named.
_MOST: Final = 100
_RESERVED: Final = ("np", "co", "inf", "nan", "customop", "constants", "getattr")
_CALLED_BY_SIZES: Final = {"abs", "complex", "float", "int", "max", "min"}


def readable(module: GraphModule) -> str:
    """Return the text of a graph module, and of those in it."""
    return GraphText(module).text()


def named_constants(module: GraphModule) -> dict[str, Any]:
    """Return the constants that the text of a module takes from a dict, by name."""
    text = GraphText(module)
    text.text()
    return text.named


def type_text(value: Any) -> str:
    """Return the type of a value, in short: ``f64[s0, 3]``."""
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
        self._reserved: set[str] = {*_RESERVED}
        if any(getattr(m.graph.sizes, "sizes", None) for m in _all_modules(module)):
            self._reserved |= _CALLED_BY_SIZES
        self._renamed: dict[Node, str] = {}

    def text(self) -> str:
        """Return the whole text."""
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
        """Return the text of a node, size or graph, or a name that the reader gives."""
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
            return self.local(node)
        return self.value(node.graph.constants[node.target], node.name)

    def class_name(self, cls: type) -> str:
        """Return the name of a class; one that cannot be imported has to be named."""
        if _is_importable(cls):
            return super().class_name(cls)
        return self._named(cls, cls.__name__)

    def _named(self, value: Any, name: str, note: str = "") -> str:
        """Return a value that the reader has to give: large, or without a text."""

        def lines(chosen: str) -> list[str]:
            self.named[chosen] = value
            said = abbreviated(value) if is_array(value) else note
            return [f"{chosen} = constants[{chosen!r}]{f'  # {said}' * bool(said)}"]

        return self.add(name, lines, value)

    # ---- names ----

    def _free(self, name: str) -> str:
        """Return a name that nothing else in the text has."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def local(self, node: Node) -> str:
        """Return the name of a node: its own, unless the text needs that."""
        if node.name not in self._reserved:
            return node.name
        if node not in self._renamed:
            self._renamed[node] = self._free(f"{node.name}_")
        return self._renamed[node]

    # ---- functions ----

    def _function(self, module: GraphModule) -> str:
        """Write the function of a module, once; its name."""
        known = self._functions.get(id(module))
        if known is not None:
            return known
        name = self._free(_as_name(module.__name__, "graph"))
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
            return [f"{self.local(n)}: {_type_of(n)}" for n in inputs]
        return [*positional, *(["*", *named] if named else [])]

    def _graph_argument(self, module: GraphModule) -> str:
        """Return the name of a graph argument, whose function is captured again."""
        if id(module) not in self._graphs:
            function = self._function(module)
            name = self._free(f"{function}_graph")
            self._graphs[id(module)] = name
            mode = "symbolic" if _is_symbolic(module) else "fake"
            given = ", ".join(self._example(node.val) for node in module.inputs)
            self._bodies.append(f"{name} = co.make_fx({function}, {mode!r})({given})\n")
        return self._graphs[id(module)]

    def _example(self, val: Any) -> str:
        """Return an array without data of the shape and dtype of an input."""
        if not is_array(val):
            return self.value(val, "value")
        shape = tuple([length_then(size) for size in val.shape])
        return f"co.FakeArray({shape}, {dtype_text(val.dtype)})"

    def _body(self, module: GraphModule) -> list[str]:
        tells_fixed = module is not self._module and _is_symbolic(module)
        body = _ReadableBody(self, module, tells_fixed=tells_fixed)
        names = [(node, self.local(node)) for node in module.inputs]
        body.lines += self._input_lines(module)
        body.lines += self._guard_lines(names)
        body.lines += body.sizes.of_inputs(names)
        body.write_nodes()
        return body.lines

    def _input_lines(self, module: GraphModule) -> Iterator[str]:
        """Write lines that take nested arguments apart."""
        positional, named = _signature(module)
        if _is_flat(module, positional, named):
            return
        pairs = ", ".join(f"{name!r}: {name}" for name in named)
        inside = "".join(f"{name}, " for name in positional)
        names = [self.local(node) for node in module.inputs]
        if names:
            tree = f"(({inside.rstrip() if inside else ''}), {{{pairs}}})"
            yield f"{', '.join(names)}, = co.tree.leaves({tree})"
        for node in module.inputs:
            yield f"# {self.local(node)}: {_type_of(node)[1:-1]}"

    def _guard_lines(self, inputs: Sequence[tuple[Node, str]]) -> Iterator[str]:
        """Go through the conditions on inputs that are not arrays."""
        for node, name in inputs:
            if node.val is not None and not any(map(is_array, flat(node.val))):
                yield f"# {name} must be {node.val!r}"

    def callee(self, target: Any) -> str:
        """Return an operator by its attributes, or the name of a function."""
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

    def result(self, module: GraphModule, node: Node) -> str:
        """Return the text of a result, nested as it is."""
        leaves = node.args[0]
        if module.out_spec is not None:
            return self.value(unflatten(module.out_spec, leaves), "out")
        return self.value(leaves[0] if len(leaves) == 1 else leaves, "out")


_HOW = 'exec(text, {"constants": module.named_constants()})'


class _ReadableBody(GraphWriter):
    """The lines of one function: each has a type, and says what is freed and where it was."""

    def __init__(
        self, text: GraphText, module: GraphModule, *, tells_fixed: bool
    ) -> None:
        super().__init__(module.graph)
        self.lines: list[str] = []
        self.sizes: _SizesInText = _SizesInText(
            module.graph.sizes, tells_fixed=tells_fixed
        )
        self._text = text
        self._module = module

    def add(self, line: str) -> None:
        """Add a line."""
        self.lines.append(line)

    def local(self, node: Node) -> str:
        """Return the name of a node in the whole text."""
        return self._text.local(node)

    def callee(self, target: Any) -> str:
        """Return an operator by its attributes, or the name of a function."""
        return self._text.callee(target)

    def arguments(self, node: Node) -> list[str]:
        """Return the texts of the arguments that are not defaults."""
        value, name = self._text.value, node.name
        args = [value(v, f"{name}_{i}") for i, v in enumerate(node.args)]
        return args + [f"{k}={value(v, f'{name}_{k}')}" for k, v in node.kwargs.items()]

    def write_value(self, node: Node, text: str, unused: list[Node]) -> None:
        """Write an assignment with a type, then where the sizes of the value come from."""
        name = self.local(node)
        freed = self.locals_of([n for n in unused if n is not node])
        free = f"; del {freed}" if freed else ""
        place = node.meta.get("place")
        note = f"  # {place}" if place else ""
        self.add(f"{name}: {_type_of(node)} = {text}{free}{note}")
        self.lines += self.sizes.of_result(node, name)

    def result(self, node: Node) -> str:
        """Return the text of the result."""
        return self._text.result(self._module, node)


def _type_of(node: Node) -> str:
    return f'"{type_text(node.meta.get("val"))}"'


def _as_name(text: str, otherwise: str) -> str:
    return text if text.isidentifier() and not iskeyword(text) else otherwise


def _is_module(value: Any) -> bool:
    """Return whether a value is a graph module, whose class cannot be imported here."""
    return not isinstance(value, Node | RuleTable) and hasattr(value, "in_spec")


def _all_modules(module: GraphModule) -> Iterator[GraphModule]:
    """Go through a module and those in it."""
    yield module
    for node in module.graph.nodes:
        for value in (node.target, *node.args, *node.kwargs.values()):
            for inner in flat(value):
                if _is_module(inner):
                    yield from _all_modules(inner)


def _signature(module: GraphModule) -> tuple[list[str], list[str]]:
    """Return the names of the positional and keyword parameters."""
    spec: Any = module.in_spec
    if spec is None:
        return [node.name for node in module.inputs], []
    args, kwargs = unflatten(spec, module.inputs)
    positional = [_parameter_of(value, i) for i, value in enumerate(args)]
    while len({*positional}) < len(positional):
        positional = [f"{name}_{i}" for i, name in enumerate(positional)]
    return positional, list(kwargs)


def _parameter_of(value: Any, number: int) -> str:
    """Return the user's name of an argument, from where its inputs come from."""
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
    """Return whether each input is one positional argument."""
    if module.in_spec is None:
        return True
    if named or len(positional) != len(module.inputs):
        return False
    leaves = (*range(len(positional)),)
    return bool(module.in_spec == flatten((leaves, {}))[1])


def _is_symbolic(module: GraphModule) -> bool:
    """Return whether the inputs of a graph have symbolic sizes."""
    return bool(sizes_in([node.val for node in module.inputs]))


# ---- symbolic sizes in the text of a graph ----


class _SizesInText(SizeWalk[str]):
    """Writes the lines for the sizes of a graph: where they come from, and what must hold."""

    def __init__(self, sizes: SizeContext | None, *, tells_fixed: bool) -> None:
        super().__init__(sizes)
        # A second capture takes every length of its examples for a symbolic size.
        self._tells_fixed: bool = tells_fixed

    def lengths_of(self, node: Node, source: Any) -> Iterator[tuple[Length, Any]]:
        """Go through the symbolic lengths of an input, then through the fixed ones."""
        yield from super().lengths_of(node, source)
        if self._tells_fixed and is_array(node.val):
            for axis, n in enumerate(node.val.shape):
                if not isinstance(n, Symbolic):
                    yield Length(source, (), axis), n

    def read(self, name: str, length: Length) -> str:
        """Write an assignment."""
        return f"{name} = {length.text}"

    def solve(self, found: Solved, length: Length) -> str:
        """Write an assignment."""
        return f"{found.name} = {found.text(length.text)}"

    def compare(self, rest: Sequence[tuple[Node, Length, Any]]) -> Iterator[str]:
        """Say which lengths are equal: who captures the text again, learns it from this."""
        groups: dict[str, list[str]] = {}
        for _, length, size in rest:
            known = sizes_in([size]) <= self.known
            same = groups.setdefault(str(size), [str(size)] if known else [])
            same.insert(0, length.text)
        for same in groups.values():
            if len(same) > 1:
                yield f"assert {' == '.join(same)}"

    def guard(self, guard: Guard) -> str:
        """Write an assertion."""
        return f"assert {guard.text}  # {guard.place}"


def length_then(size: Any) -> int:
    """Return the length that an axis had; at least 2 where it depends on data."""
    if not isinstance(size, Symbolic):
        return int(size)
    side = as_side(size)
    assert side is not None
    sizes = size.context.sizes
    lengths = {name: _usual(sizes[name]) for name in names_in_side(side)}
    return int(side_value(side, lengths))


def _usual(size: Size) -> int:
    return max(2, size.bounds[0]) if size.hint is None else size.hint


# ---- what can be written ----


def is_writable(value: Any) -> bool:
    """Return whether the text can make a value: not if it is large or unknown."""
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
