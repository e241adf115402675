"""The generated function of a compiled one: parameters, guards, then the graph's code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.arrays.nested import (
    Structure,
    describe,
    flatten,
    key_orders,
    leaf_classes,
    unflatten,
)
from customop.compiling.backends import Backend
from customop.compiling.surroundings import (
    Surroundings,
    family_of,
    kind_of_leaf,
    leaf_tests,
)
from customop.core.codegen import generate
from customop.core.interpreter import current_mode
from customop.core.observe import open_modes
from customop.core.tracer import share
from customop.errors import shown
from customop.graph.code_parts import unpacker
from customop.graph.module import GraphModule
from customop.graph.node import CONSTANT, Node
from customop.graph.passes import frozen_key
from customop.library.ops import ops
from customop.shapes.symbolic import SymInt
from customop.transforms.generators import is_generator
from customop.transforms.trace.make_fx import paths_of

# ---- how a compiled function takes its arguments ----
# By the parameters of the function.


Call = Callable[..., Any]
_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
# What the lines of generated functions call: a parameter of the name would hide it.
_CALLED = frozenset(
    ("all", "bool", "bytes", "complex", "float", "int", "len", "map", "str", "type")
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

    @property
    def passed(self) -> str:
        """The text of the arguments, for a call that passes them on."""
        return "*args, **kwargs" if self.names is None else ", ".join(self.names)

    def binder(self) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
        """Return a function of these parameters that returns the arguments in order."""
        text = f"def {self.title}({self.text}):\n    return {self.given}\n"
        return generate(  # type: ignore[no-any-return]  # the function in the text
            f"arguments of {self.title}", text, self.title, dict(self.defaults)
        )


def identifier(name: str) -> str:
    """Return a name for generated code: the function's, if it is an identifier."""
    return name if name.isidentifier() else "compiled"


def parameters_of(fn: Callable[..., Any]) -> Parameters:
    """Return the parameters of a function; ``*args, **kwargs`` unless all are positional.

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
    hidden = [p for p in found if p.name.startswith("_") or p.name in _CALLED]
    if hidden or any(p.kind not in _POSITIONAL for p in found):
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


# ---- what a compiled function is given: arguments, and the function itself ----


class CallArguments:
    """The arguments of a call, taken apart.

    Attributes
    ----------
    args, kwargs
        As the generated function passes them on.
    leaves : list
    structure : Structure
    """

    __slots__ = ("__dict__", "args", "kwargs", "leaves", "structure")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args: tuple[Any, ...] = args
        self.kwargs: dict[str, Any] = kwargs
        self.leaves: list[Any]
        self.structure: Structure
        self.leaves, self.structure = flatten((args, kwargs))

    @cached_property
    def family(self) -> Any:
        """Equal for arguments that differ in the lengths of axes alone."""
        return (self.structure, *map(family_of, self.leaves))

    @cached_property
    def kind(self) -> Any:
        """Equal also for arguments that differ in ints and floats of Python."""
        return (self.structure, *map(kind_of_leaf, self.leaves))

    @property
    def numbers(self) -> dict[int, Any]:
        """Number of a leaf that is an int or float -> what is equal for the same one."""
        pairs = enumerate(self.leaves)
        return {i: frozen_key(v) for i, v in pairs if type(v) in (int, float)}

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the arrays; of other leaves an empty one."""
        return [tuple(v.shape) if is_array(v) else () for v in self.leaves]

    def copied(self) -> CallArguments:
        """Return the same with copies of arrays and generators."""
        copies = [
            deepcopy(v) if is_array(v) or is_generator(v) else v for v in self.leaves
        ]
        return CallArguments(*unflatten(self.structure, copies))

    def objects(self, fn: Callable[..., Any]) -> list[tuple[Any, str]]:
        """Return leaves that may hold functions and values, as the user writes them."""
        if all(is_array(v) or type(v) in leaf_classes for v in self.leaves):
            return []
        paths = [path.text for path in paths_of(fn, self.structure)]
        pairs = zip(self.leaves, paths, strict=True)
        return [(v, text) for v, text in pairs if not is_array(v)]

    def described(self, fn: Callable[..., Any]) -> dict[str, str]:
        """Return for each leaf, as the user writes it, what it is."""
        paths = [path.text for path in paths_of(fn, self.structure)]
        pairs = zip(paths, self.leaves, strict=True)
        return {p: _described(v) if is_array(v) else shown(v) for p, v in pairs}


def _described(array: Any) -> str:
    text = describe(array)
    return text.removeprefix("ndarray ").removeprefix("FakeArray ")


class Original:
    """A function that is compiled, and how: what its entries share.

    Attributes
    ----------
    fn : callable
    title : str
        Its name for messages.
    parameters : Parameters
    sizes : mapping or None
        Names for sizes that are symbolic.
    slow : callable
        The slow path of calls.
    is_lift : bool
        Whether it is a graph without draws, whose results nobody writes.
    """

    def __init__(
        self,
        fn: Call,
        backend: Backend,
        sizes: Mapping[str, Any] | None,
        slow: Call,
        lift: Callable[[Call], Call],
        *,
        is_checked: bool,
        is_lift: bool,
    ) -> None:
        self.fn: Call = fn
        self.title: str = getattr(fn, "__name__", type(fn).__name__)
        self.parameters: Parameters = parameters_of(fn)
        self.sizes: Mapping[str, Any] | None = sizes
        self.slow: Call = slow
        self.is_lift: bool = is_lift
        self._backend: Backend = backend
        self._is_checked: bool = is_checked
        self._lift: Callable[[Call], Call] = lift

    def build(self, module: GraphModule) -> tuple[Any, Call]:
        """Return what the back end makes of a graph, and that as a function to a list."""
        code = self._backend(module)
        assert module.out_spec is not None
        return code, _checked(code, module.out_spec) if self._is_checked else code

    def lift(self, module: GraphModule) -> Call:
        """Return a graph as a compiled function, for values of other transforms."""
        return self._lift(lambda *values: module.run_list(*values))


def _checked(code: Call, out_spec: Structure) -> Call:
    """Return the code of a back end as a function that returns a list of leaves."""
    count = out_spec.num_leaves

    def run(*leaves: Any) -> Any:
        out = code(*leaves)
        if type(out) is list or type(out) is tuple:
            return out
        return [out] if count == 1 else [*out]

    return run


# ---- the generated function of a compiled one: guards, then the code of its graph ----
# It has the parameters of the function. Where a guard does not hold, it hands its
# arguments to a slow path. A guard costs about 100 ns an array (CPython 3.11).


# Names of settings that ask for a look at each call of an operator.
strict_settings: list[str] = []


class _Miss:
    """The result of a call whose arguments do not meet the guards."""


MISS = _Miss()


def give_miss(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer a call that is only tried: a guard does not hold."""
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
        """Return a global name for an object."""
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

    def add(self, *lines: str) -> None:
        """Write lines."""
        self._lines += lines

    def begin_try(self) -> None:
        """Let the lines that follow stand in a block that `end_try` ends."""
        self._outside: list[str] = [*self._lines, "try:"]
        self._lines = []

    def end_try(self, *lines: str) -> None:
        """End the block, and write what handles its errors."""
        inside = [f"    {line}" for line in self._lines]
        self._lines = [*self._outside, *inside, *lines]

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

    def skip_places(self, tests: Sequence[str]) -> None:
        """Let ``_skip`` have the arguments unless all conditions hold."""
        if tests:
            given = self.parameters.given
            self.add(f"if not ({' and '.join(tests)}): return _skip({given})")

    def check_outside_of_vmap(self) -> None:
        """Write the condition that no vmap runs, which must know of draws."""
        self.unless([f"{self.bind('mode', current_mode.get)}() is None"])

    # ---- the function ----

    def made(self, names: Mapping[str, Any]) -> tuple[Call, Call]:
        """Return two functions: with the slow path, and one that returns MISS for it.

        `names` are further ones in the lines.
        """
        self.names |= names
        title = self.parameters.title
        lines = [f"    {line}" for line in self._lines]
        text = "\n".join([f"def {title}({self.parameters.text}):", *lines, ""])
        made = generate(f"compiled {title}", text, title, self.names)
        names = {**self.names, "_slow": give_miss, "_modes": (), "_strict": ()}
        tried = FunctionType(made.__code__, names, title, made.__defaults__)
        return made, tried


def symbolic_axes(module: GraphModule) -> dict[int, list[int]]:
    """Return for inputs, by their numbers, the axes of symbolic size."""
    found: dict[int, list[int]] = {}
    for i, axis, _ in _sizes_of(module.inputs):
        found.setdefault(i, []).append(axis)
    return found


def _sizes_of(inputs: Sequence[Node]) -> Iterator[tuple[int, int, Any]]:
    """Yield the number of the input, the axis and its symbolic size."""
    for i, node in enumerate(inputs):
        if isinstance(node.val, FakeArray):
            shape: Sequence[Any] = node.val.shape
            for axis, size in enumerate(shape):
                if isinstance(size, SymInt):
                    yield i, axis, size


def _size_text(
    sizes: Sequence[tuple[int, int, Any]], module: GraphModule
) -> tuple[str, dict[str, Any]]:
    """Return the text of a function that says whether lengths meet the guards."""
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
    """Return the graph with copies in place of results that the function has made.

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
    return isinstance(value, np.ndarray) and not surroundings.has_memory_of(value)
