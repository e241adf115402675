"""The generated function of a compiled one: parameters, guards, then the graph's code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.arrays.nested import Structure, flatten, key_orders
from customop.compiling.joint_graphs import PLAIN
from customop.compiling.surroundings import Surroundings, leaf_tests
from customop.core.codegen import generate
from customop.core.interpreter import current_mode
from customop.core.observe import open_modes
from customop.core.tracer import share
from customop.graph.code_parts import packer, unpacker
from customop.graph.module import GraphModule
from customop.graph.node import CONSTANT, Node
from customop.library.ops import ops
from customop.shapes.symbolic import SymInt

if TYPE_CHECKING:
    from customop.compiling.level_entries import LevelEntry


# ---- how a compiled function takes its arguments ----
# By the parameters of the function.


_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


class Parameters(NamedTuple):
    """The parameters in the text of a generated function.

    Attributes
    ----------
    text : str
        As they stand in a ``def``.
    names : tuple of str or None
        Names of the parameters, if all are positional. Else the function takes
        ``*args`` and ``**kwargs``.
    defaults : dict
        Name in the text -> default value.
    title : str
        The name of the function.
    takes_any : bool
        Whether it takes keywords of any name, and may see their order.
    """

    text: str
    names: tuple[str, ...] | None
    defaults: dict[str, Any]
    title: str
    takes_any: bool = True

    @property
    def given(self) -> str:
        """The text of the positional and keyword arguments, for a call."""
        if self.names is None:
            return "args, kwargs"
        return f"({''.join(f'{name}, ' for name in self.names)}), {{}}"

    def binder(self) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
        """A function of these parameters that returns the arguments in order."""
        text = f"def {self.title}({self.text}):\n    return {self.given}\n"
        return generate(  # type: ignore[no-any-return]  # the function in the text
            f"arguments of {self.title}", text, self.title, dict(self.defaults)
        )


def identifier(name: str) -> str:
    """A name for generated code: that of the function, if it can be one."""
    return name if name.isidentifier() else "compiled"


def parameters_of(fn: Callable[..., Any]) -> Parameters:
    """The parameters of a function; ``*args, **kwargs`` if they are not just positional.

    What a wrapper says of the function in it is not read: it may look at names.
    """
    title = identifier(getattr(fn, "__name__", ""))
    general = Parameters("*args, **kwargs", None, {}, title)
    try:
        found = inspect.signature(fn, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):  # of a ufunc, say
        return general
    takes_any = any(p.kind is p.VAR_KEYWORD for p in found)
    general = general._replace(takes_any=takes_any)
    if any(p.kind not in _POSITIONAL or p.name.startswith("_") for p in found):
        return general
    parts: list[str] = []
    defaults: dict[str, Any] = {}
    for p in found:
        if p.default is p.empty:
            parts.append(p.name)
        elif is_array(p.default):  # it may be another one by now
            return general
        else:
            defaults[f"_default_{p.name}"] = p.default
            parts.append(f"{p.name}=_default_{p.name}")
    only = sum(p.kind is inspect.Parameter.POSITIONAL_ONLY for p in found)
    if only:
        parts.insert(only, "/")
    return Parameters(", ".join(parts), tuple(p.name for p in found), defaults, title)


# ---- the generated function of a compiled one: guards, then the code of its graph ----
# It has the parameters of the function. Where a guard does not hold, it hands its
# arguments to a slow path. A guard costs about 100 ns an array (CPython 3.11).


Call = Callable[..., Any]
# Names of settings that ask for a look at each call of an operator.
strict_settings: list[str] = []


class _Miss:
    """The result of a call whose arguments do not meet the guards."""


MISS = _Miss()


def give_miss(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The slow path of a call that is tried."""
    return MISS


class CallLines:
    """Writes the function for one graph.

    Parameters
    ----------
    parameters : Parameters
    slow : callable
        Takes the positional and the keyword arguments for which a guard does not hold.
    """

    def __init__(self, parameters: Parameters, slow: Call) -> None:
        self.parameters: Parameters = parameters
        self.names: dict[str, Any] = {
            **parameters.defaults,
            "_slow": slow,
            "_modes": open_modes,
            "_strict": strict_settings,
        }
        self._miss: str = f"return _slow({parameters.given})"
        self._lines: list[str] = [f"if _modes or _strict: {self._miss}"]
        # The variable of each leaf.
        self.leaves: list[str] = []

    def bind(self, wanted: str, value: Any) -> str:
        """A global name for an object."""
        clean = "".join(c if c.isalnum() else "_" for c in wanted)
        name = f"_{clean}"
        while name in self.names and self.names[name] is not value:
            name = f"_{clean}_{len(self.names)}"
        self.names[name] = value
        return name

    def unless(self, tests: Sequence[str]) -> None:
        """Go to the slow path unless all conditions hold."""
        if tests:
            self._lines.append(f"if not ({' and '.join(tests)}): {self._miss}")

    # ---- arguments ----

    def take_apart(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Write the lines that take the leaves out of the arguments, in optree's order."""
        names = self.parameters.names
        if names is None:
            same = f"len(kwargs) == {len(kwargs)}"
            if self.parameters.takes_any and len(kwargs) > 1:
                same = f"[*kwargs] == {[*kwargs]}"
            self.unless([f"len(args) == {len(args)}", same])
            names = tuple([f"_a{i}" for i in range(len(args))])
            if names:
                self._lines.append(f"{', '.join(names)}, = args")
        for name, value in zip(names, args, strict=True):
            self._take(name, value)
        for key in sorted(kwargs):  # as optree
            name = f"_k{len(self.leaves)}"
            self._lines.append(f"{name} = kwargs.get({key!r}, _slow)")
            self.unless([f"{name} is not _slow"])
            self._take(name, kwargs[key])

    def _take(self, name: str, value: Any) -> None:
        leaves, structure = flatten(value)
        if value is None:
            self.unless([f"{name} is None"])
        elif structure.type is None:
            self.leaves.append(name)
        else:
            self._unpack(name, value, len(leaves))

    def _unpack(self, name: str, value: Any, count: int) -> None:
        whole: Structure = flatten(((value,), {}))[1]
        title = f"arguments of {self.parameters.title}"
        has_order = any(len(keys) > 1 for keys in key_orders(value))
        example: Any = ((value,), {}) if has_order else None
        unpack = self.bind(f"unpack_{name}", unpacker(whole, title, example=example))
        first = len(self.leaves)
        own = [f"_v{first + i}" for i in range(count)]
        self._lines.append(f"_found = {unpack}(({name},), {{}})")
        self.unless(["_found is not None"])
        if own:
            self._lines.append(f"{', '.join(own)}, = _found")
        self.leaves += own

    # ---- guards ----

    def check_leaves(
        self,
        leaves: Sequence[Any],
        free: Mapping[int, Collection[int]],
        numbers: Collection[int] = (),
    ) -> None:
        """Write the conditions for the leaves; `numbers` may be any of their class."""
        tests: list[str] = []
        for i, (name, leaf) in enumerate(zip(self.leaves, leaves, strict=True)):
            axes, is_free = free.get(i, ()), i in numbers
            tests += leaf_tests(name, leaf, self.bind, axes, is_free=is_free)
        self.unless(tests)

    def check_tracers(self, entry: LevelEntry[Any]) -> None:
        """Write the conditions for tracers; the leaves are the values below from here on."""
        leaves, codes = self.leaves, entry.pattern
        own = [i for i, code in enumerate(codes) if code != PLAIN]
        cls = self.bind("Tracer", entry.tracer_class)
        first, *others = [leaves[i] for i in own]
        self.unless([f"type({first}) is {cls}"])
        self._lines.append(f"_top = {first}.interpreter")
        tests = [f"type({v}) is {cls} and {v}.interpreter is _top" for v in others]
        tests += [*entry.place_tests(leaves, self.bind), *entry.tracer_tests(leaves)]
        self.unless(["_top.runs_plans", *tests])
        values = [*leaves]
        for i in own:
            values[i] = f"_b{i}"
            self._lines.append(f"_b{i} = {leaves[i]}.below")
        self.leaves = values

    def check_same(self, same: Mapping[int, int]) -> None:
        """Write the conditions for leaves that are one array."""
        pairs = same.items()
        self.unless([f"{self.leaves[i]} is {self.leaves[j]}" for i, j in pairs])

    def check_strides(self, leaves: Sequence[Any], free: Collection[int]) -> None:
        """Write the conditions for the strides of arrays."""
        tests = []
        for i, (name, leaf) in enumerate(zip(self.leaves, leaves, strict=True)):
            if i in free:
                tests.append(f"{name}.flags.c_contiguous")
            elif isinstance(leaf, np.ndarray) and leaf.ndim:
                tests.append(f"{name}.strides == {leaf.strides}")
        self.unless(tests)

    def check_writable(self, written: Sequence[int]) -> None:
        """Write the conditions for arrays that are written."""
        names = [self.leaves[i] for i in written]
        self.unless([f"{name}.flags.writeable" for name in names])

    def check_apart(
        self, pairs: Sequence[tuple[int, int]], constants: Mapping[int, Sequence[Any]]
    ) -> None:
        """Write the conditions for arrays that are written to share no memory.

        Parameters
        ----------
        pairs : sequence of pairs
            Numbers of leaves that must lie apart.
        constants : mapping
            Number of a leaf -> arrays that it must lie apart from.
        """
        may, is_shared = (
            self.bind("may_share", np.may_share_memory),
            self.bind("share", share),
        )
        texts = [(self.leaves[i], self.leaves[j]) for i, j in pairs]
        for i, arrays in constants.items():
            texts += [(self.leaves[i], self.bind("array", array)) for array in arrays]
        # Arrays that own their memory share none: 0.1 us in place of 0.7 us.
        self.unless(
            [
                f"({a}.flags.owndata and {b}.flags.owndata and {a} is not {b}"
                f" or not ({may}({a}, {b}) and {is_shared}({a}, {b})))"
                for a, b in texts
            ]
        )

    def check_surroundings(self, surroundings: Surroundings) -> None:
        """Write the conditions for cells, globals, attributes and containers."""
        tests = [*surroundings.tests(self.bind)]
        if tests:
            self._lines.append("try:")
            condition = " and ".join(tests)
            self._lines.append(f"    if not ({condition}): {self._miss}")
            self._lines.append(f"except (KeyError, ValueError): {self._miss}")

    def check_sizes(self, module: GraphModule) -> None:
        """Write the conditions for symbolic sizes, which have a function of their own."""
        sizes = [*_sizes_of(module.inputs)]
        if not sizes:
            return
        text, scope = _size_text(sizes, module)
        holds = self.bind("sizes_hold", generate("sizes", text, "sizes_hold", scope))
        given = [f"{self.leaves[i]}.shape[{axis}]" for i, axis, _ in sizes]
        self.unless([f"{holds}({', '.join(given)})"])

    def check_outside_of_vmap(self) -> None:
        """Write the condition that no vmap runs, which must know of draws."""
        self.unless([f"{self.bind('mode', current_mode.get)}() is None"])

    # ---- the function ----

    def made(self, run: Call, out_spec: Structure) -> tuple[Call, Call]:
        """Two functions: with the slow path, and one that returns MISS for it."""
        self.names["_run"] = run
        call = f"_run({', '.join(self.leaves)})"
        if out_spec.type is None:
            self._lines += [f"_out, = {call}", "return _out"]
        else:
            self.names["_pack"] = packer(out_spec, f"result of {self.parameters.title}")
            self._lines.append(f"return _pack({call})")
        return self._generated()

    def made_flat(self, run: Call) -> Call:
        """A function of the leaves, which returns what the code does, or MISS."""
        self.names["_run"], self.names["_slow"] = run, give_miss
        self._lines.append(f"return _run({', '.join(self.leaves)})")
        return self._generated()[0]

    def made_eager(self, fn: Call) -> tuple[Call, Call]:
        """The same two functions, which run a function as it is."""
        self.names["_run"] = fn
        names = self.parameters.names
        given = "*args, **kwargs" if names is None else ", ".join(names)
        self._lines.append(f"return _run({given})")
        return self._generated()

    def made_of(self, call: str, names: Mapping[str, Any]) -> tuple[Call, Call]:
        """The same two functions, with the text of the call that gives the result."""
        self.names |= names
        self._lines.append(f"return {call}")
        return self._generated()

    def _generated(self) -> tuple[Call, Call]:
        title = self.parameters.title
        lines = [f"    {line}" for line in self._lines]
        text = "\n".join([f"def {title}({self.parameters.text}):", *lines, ""])
        made = generate(f"compiled {title}", text, title, self.names)
        names = {**self.names, "_slow": give_miss, "_modes": (), "_strict": ()}
        tried = FunctionType(made.__code__, names, title, made.__defaults__)
        return made, tried


def symbolic_axes(module: GraphModule) -> dict[int, list[int]]:
    """Number of an input -> its axes of symbolic size."""
    found: dict[int, list[int]] = {}
    for i, axis, _ in _sizes_of(module.inputs):
        found.setdefault(i, []).append(axis)
    return found


def _sizes_of(inputs: Sequence[Node]) -> Iterator[tuple[int, int, Any]]:
    """Number of the input, axis and symbolic size."""
    for i, node in enumerate(inputs):
        if isinstance(node.val, FakeArray):
            shape: Sequence[Any] = node.val.shape
            for axis, size in enumerate(shape):
                if isinstance(size, SymInt):
                    yield i, axis, size


def _size_text(
    sizes: Sequence[tuple[int, int, Any]], module: GraphModule
) -> tuple[str, dict[str, Any]]:
    """A function of the lengths that says whether they meet the guards."""
    names: list[str] = []
    tests: list[str] = []
    for number, (_, _, size) in enumerate(sizes):
        text = str(size)
        is_new = text.isidentifier() and text not in names
        names.append(text if is_new else f"_n{number}")
        if not is_new:
            tests.append(f"_n{number} == {text}")
        elif module.graph.sizes.sizes[text].kind != "named":
            tests.append(f"{text} > 1")  # 0 and 1 have graphs of their own
    known = frozenset(names)
    guards = [g for g in module.graph.sizes.guards if g.names <= known]
    tests += [f"({guard.text})" for guard in guards]
    held = " and ".join(tests) or "True"
    text = f"def sizes_hold({', '.join(names)}):\n    return {held}\n"
    return text, {"np": np}


# ---- own results ----
# Arrays that a function makes anew in each call, although they are constants of its
# graph.


def own_results(module: GraphModule, surroundings: Surroundings) -> GraphModule:
    """The graph, which returns copies of constants that the function has made.

    Plain NumPy makes ``np.zeros(3)`` in a function, so it is a constant. The function
    returns a new array in each call, and who gets it may write to it. An array that is
    there before the function runs is returned itself.
    """
    made = [
        (place, leaf)
        for place, leaf in enumerate(module.graph.output_node.args[0])
        if _is_made(leaf, module, surroundings)
    ]
    if not made:
        return module
    graph = module.graph.copy()
    output = graph.output_node
    leaves = [*output.args[0]]
    copies: dict[Node, Node] = {}
    for place, _ in made:
        leaf = leaves[place]
        if leaf not in copies:  # returned twice, it is one array
            with graph.inserting_before(output):
                copies[leaf] = graph.call(ops.np.copy.default, (leaf,))
            copies[leaf].note(leaf.val, leaf.meta.get("place"))
        leaves[place] = copies[leaf]
    output.args = (leaves,)
    return module.with_graph(graph)


def _is_made(leaf: Any, module: GraphModule, surroundings: Surroundings) -> bool:
    if not isinstance(leaf, Node) or leaf.op != CONSTANT:
        return False
    value = module.constants[leaf.target]
    return isinstance(value, np.ndarray) and not surroundings.holds(value)
