"""The generated function of a compiled one: guards, then the code of its graph.

It has the parameters of the function. Where a guard does not hold, it hands its arguments
to a slow path. A guard costs about 100 ns an array (CPython 3.11).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.pytree import Structure, flatten, key_orders
from customop.compiling.leaf_guards import leaf_tests
from customop.compiling.parameters import Parameters
from customop.compiling.surroundings import Surroundings
from customop.compiling.within import PLAIN
from customop.core.generated import generate
from customop.core.interpreter import current_mode
from customop.core.observe import open_modes
from customop.core.overlaps import share
from customop.graph.module import GraphModule
from customop.graph.node import Node
from customop.graph.unpack import packer, unpacker
from customop.shapes.symbolic import SymInt

if TYPE_CHECKING:
    from customop.compiling.level_entry import LevelEntry

__all__ = [
    "MISS",
    "Call",
    "CallLines",
    "strict_settings",
    "symbolic_axes",
]

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
