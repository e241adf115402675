"""Parts of generated code: pytrees taken apart and built, and symbolic sizes.

For one structure, which a graph knows, straight lines are ten times as fast as optree:
0.4 us for three dicts of two arrays. Dicts, lists, tuples and named tuples are taken
apart by lines; classes with functions of their own go to optree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from customop.arrays.fake import FakeArray
from customop.arrays.nested import (
    Structure,
    flatten,
    key_orders,
    leaf_classes,
    unflatten,
)
from customop.core.codegen import generate
from customop.errors import GuardError, ShapeError
from customop.graph.node import Node, solved
from customop.shapes.conditions import Guard, side_value
from customop.shapes.size_context import SizeContext
from customop.shapes.sizes import Symbolic
from customop.shapes.symbolic import SymBool, SymInt, as_side

# ---- generated code that takes pytrees apart and builds them ----


Unpack = Callable[[tuple[Any, ...], dict[str, Any]], list[Any] | None]
Pack = Callable[[Sequence[Any]], Any]


def unpacker(
    structure: Structure,
    title: str,
    *,
    checks_leaves: bool = True,
    example: Any = None,
) -> Unpack:
    """Generate the function that takes the arguments of a call apart.

    Parameters
    ----------
    structure : Structure
        Of the pair of positional and keyword arguments.
    title : str
        Of the generated file, for tracebacks.
    checks_leaves : bool
        False where the caller checks that leaves are not lists and the like.
    example : object, optional
        The pair: other dicts must have their keys in its order. Without it, in any.

    Returns
    -------
    callable
        Takes the tuple of positional and the dict of keyword arguments. Returns a new
        list of the leaves, or None for arguments that may have another structure: for
        these ask `flatten`, which knows classes of leaves that this does not.

    Examples
    --------
    >>> from customop.arrays.nested import flatten
    >>> unpack = unpacker(flatten((({"w": 1.0, "b": 2.0},), {}))[1], "an example")
    >>> unpack(({"w": 3.0, "b": 4.0},), {})
    [4.0, 3.0]
    >>> unpack(([3.0, 4.0],), {})
    """
    lines = _Unpacking()
    args, kwargs = structure.children()
    positional, named = (None, None) if example is None else example
    lines.sequence("args", args, positional)
    lines.mapping("kwargs", kwargs, named)
    text = lines.text(checks_leaves=checks_leaves)
    return generate(title, text, "unpack", lines.names)  # type: ignore[no-any-return]  # this function


def packer(structure: Structure, title: str) -> Pack:
    """Generate the function that builds a pytree.

    Parameters
    ----------
    structure : Structure
    title : str
        Of the generated file, for tracebacks.

    Returns
    -------
    callable
        Takes a list or tuple of as many leaves as the structure has.

    Examples
    --------
    >>> from customop.arrays.nested import flatten
    >>> packer(flatten({"w": 1.0, "b": (2.0, None)})[1], "an example")([3.0, 4.0])
    {'w': 4.0, 'b': (3.0, None)}
    """
    lines = _Packing(structure.num_leaves)
    example = unflatten(structure, range(lines.count))
    text = lines.text(lines.value(structure, example))
    return generate(title, text, "pack", lines.names)  # type: ignore[no-any-return]  # this function


class _Bound:
    """Global names of the objects that generated code uses."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}

    def bind(self, value: Any, wanted: str) -> str:
        """A name for an object."""
        name = f"{wanted}_{len(self.names)}"
        self.names[name] = value
        return name

    def key(self, key: Any) -> str:
        """The text of a key of a dict."""
        if type(key) in (str, int, bool) or (type(key) is float and math.isfinite(key)):
            return repr(key)
        return self.bind(key, "key")


class _Unpacking(_Bound):
    """Lines that take values apart; the leaves they have found so far."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._leaves: list[str] = []
        self._count: int = 0
        self._depth: int = 0

    def text(self, *, checks_leaves: bool) -> str:
        """The whole function."""
        check = " if are_leaves(map(type, leaves)) else None" if checks_leaves else ""
        self.names["are_leaves"] = leaf_classes.issuperset
        return "\n".join(
            [
                "def unpack(args, kwargs):",
                "    try:",
                *[f"        {line}" for line in self._lines],
                "    except KeyError:",
                "        return None",
                f"    leaves = [{', '.join(self._leaves)}]",
                f"    return leaves{check}",
                "",
            ]
        )

    def _unless(self, condition: str) -> None:
        self._lines.append(f"if not ({condition}): return None")

    def _new(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def value(self, name: str, structure: Structure, example: Any = None) -> None:
        """Write the lines for the value of a variable."""
        cls = structure.type
        if cls is None:
            self._leaves.append(name)
        elif cls is type(None):
            self._unless(f"{name} is None")
        elif self._depth == _DEEPEST or not _has_lines(structure):
            self._other(name, structure, example)
        else:
            own = cls.__name__ if cls in _BUILTIN else self.bind(cls, "named")
            self._unless(f"type({name}) is {own}")
            write = self.mapping if cls is dict else self.sequence
            self._depth += 1
            write(name, structure, example)
            self._depth -= 1

    def sequence(self, name: str, structure: Structure, example: Any = None) -> None:
        """Write the lines for a tuple or list."""
        parts = structure.children()
        self._unless(f"len({name}) == {len(parts)}")
        if all(part.type is None for part in parts):
            self._leaves.append(f"*{name}")
            return
        names = [self._new() for _ in parts]
        self._lines.append(f"{', '.join(names)}, = {name}")
        items = [None] * len(parts) if example is None else example
        for own, part, item in zip(names, parts, items, strict=True):
            self.value(own, part, item)

    def mapping(self, name: str, structure: Structure, example: Any = None) -> None:
        """Write the lines for a dict: of this length, it has no other keys."""
        parts = structure.children()
        if example is None or len(parts) <= 1:
            self._unless(f"len({name}) == {len(parts)}")
        else:
            self._unless(f"[*{name}] == [{', '.join(map(self.key, example))}]")
        for key, part in zip(structure.entries(), parts, strict=True):
            own = self._new()
            self._lines.append(f"{own} = {name}[{self.key(key)}]")
            self.value(own, part, None if example is None else example[key])

    def _other(self, name: str, structure: Structure, example: Any) -> None:
        """Write the lines for a class that optree takes apart."""
        orders = None if example is None else key_orders(example)
        part = self.bind(_OtherTree(structure, orders).leaves, "leaves_of")
        own = self._new()
        self._lines.append(f"{own} = {part}({name})")
        self._unless(f"{own} is not None")
        self._leaves.append(f"*{own}")


class _Packing(_Bound):
    """Text of an expression that builds a value from leaves, which are taken in order."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count: int = count
        self._used: int = 0

    def text(self, value: str) -> str:
        """The whole function."""
        names = "".join(f"v{i}, " for i in range(self.count))
        taken = [f"    {names}= leaves"] if self.count else []
        return "\n".join(["def pack(leaves):", *taken, f"    return {value}", ""])

    def value(self, structure: Structure, example: Any, depth: int = 0) -> str:
        """The text of a value; the example has the keys of dicts in order."""
        cls = structure.type
        if cls is None:
            self._used += 1
            return f"v{self._used - 1}"
        if cls is type(None):
            return "None"
        if depth == _DEEPEST or not _has_lines(structure):
            return self._other(structure)
        if cls is dict:
            return self._dict(structure, example, depth + 1)
        pairs = zip(structure.children(), example, strict=True)
        parts = "".join([f"{self.value(*pair, depth + 1)}, " for pair in pairs])
        if cls is list:
            return f"[{parts}]"
        return f"({parts})" if cls is tuple else f"{self.bind(cls, 'named')}({parts})"

    def _dict(self, structure: Structure, example: dict[Any, Any], depth: int) -> str:
        # The leaves are in the order of the entries, the dict has its own.
        parts = zip(structure.entries(), structure.children(), strict=True)
        texts = {key: self.value(part, example[key], depth) for key, part in parts}
        return f"{{{', '.join([f'{self.key(k)}: {texts[k]}' for k in example])}}}"

    def _other(self, structure: Structure) -> str:
        """The text of a value of a class that optree builds."""
        first, self._used = self._used, self._used + structure.num_leaves
        leaves = "".join([f"v{i}, " for i in range(first, self._used)])
        return f"{self.bind(_OtherTree(structure).make, 'make')}(({leaves}))"


_BUILTIN = (dict, list, tuple)
# Python's parser takes 200 brackets in each other; deeper parts go to optree.
_DEEPEST = 50


def _has_lines(structure: Structure) -> bool:
    """Whether a pytree is taken apart and built by lines of code."""
    cls = structure.type
    is_plain = getattr(cls, "__iter__", None) is tuple.__iter__
    return cls in _BUILTIN or (structure.kind.name == "NAMEDTUPLE" and is_plain)


class _OtherTree:
    """A part of a pytree whose class optree takes apart."""

    def __init__(
        self, structure: Structure, orders: list[list[Any]] | None = None
    ) -> None:
        self._structure = structure
        self._orders = orders

    def leaves(self, value: Any) -> list[Any] | None:
        """Leaves of a value; None if it has another structure or dicts of another order."""
        leaves, structure = flatten(value)
        if structure != self._structure:
            return None
        return leaves if self._orders in (None, key_orders(value)) else None

    def make(self, leaves: Sequence[Any]) -> Any:
        """The part with these leaves."""
        return unflatten(self._structure, leaves)


# ---- symbolic sizes in generated code ----
# Where they come from, and what is checked of them.


Bind = Callable[[str, Any], str]


class SizeLines:
    """Writes the lines for the sizes of a graph.

    Parameters
    ----------
    sizes : SizeContext
    place : str
        Where the graph was traced.
    bind : callable
        Gives the global name of an object.
    """

    def __init__(self, sizes: SizeContext, place: str, bind: Bind) -> None:
        self._sizes: SizeContext = sizes
        self._place: str = place
        self._bind: Bind = bind
        # Names of sizes with lines that have given them values.
        self._known: set[str] = set()
        self._waiting: list[Guard] = [*sizes.guards, *sizes.checks]

    def of_inputs(self, inputs: Sequence[tuple[Node, str]]) -> Iterator[str]:
        """Lines for the inputs, each with the name of its variable; then the guards."""
        rest: list[tuple[Node, str, int, SymInt]] = []
        for node, name, axis, size in _axes(inputs):
            symbol = _symbol(size)
            if symbol is None or symbol in self._known:
                rest.append((node, name, axis, size))
            else:
                self._known.add(symbol)
                yield f"{symbol} = {name}.shape[{axis}]"
        for symbol, name in _numbers(inputs):
            self._known.add(symbol)
            yield f"{symbol} = {name}"
        for _, name, axis, size in rest:
            found = solved(size, self._known)
            if found is not None:
                self._known.add(found.name)
                yield f"{found.name} = {found.text(f'{name}.shape[{axis}]')}"
        for node, name, axis, size in rest:
            if not size.expr.names <= self._known:
                continue
            source = f"{node.meta.get('source', node.name)}.shape[{axis}]"
            fail = self._bind("wrong_size", _WrongSize(self._place))
            yield (
                f"if {name}.shape[{axis}] != {size}:"
                f" {fail}({source!r}, {name}.shape[{axis}], {str(size)!r}, {size})"
            )
        yield from self._ready()

    def of_result(self, node: Node, name: str) -> Iterator[str]:
        """Lines for the sizes that a call brings, after which checks are possible."""
        if not self._has_new():
            return
        found = False
        for path, size in _sizes_in(node.val):
            symbol = _symbol(size)
            if symbol is not None and symbol not in self._known:
                self._known.add(symbol)
                found = True
                yield f"{symbol} = {name}{path}"
                yield from self._bounds(symbol)
        if found:
            yield from self._ready()

    def _has_new(self) -> bool:
        return len(self._known) < len(self._sizes.sizes)

    def _bounds(self, symbol: str) -> Iterator[str]:
        low, high = self._sizes.sizes[symbol].bounds
        tests = [f"{symbol} < {low}"] if low else []
        tests += [f"{symbol} > {high}"] if high is not None else []
        if tests:
            origin = self._sizes.sizes[symbol].origin
            fail = self._bind("outside", _OutOfBounds(symbol, low, high, origin))
            yield f"if {' or '.join(tests)}: {fail}({symbol})"

    def _ready(self) -> Iterator[str]:
        """Lines of the guards whose sizes are known by now."""
        ready = [g for g in self._waiting if g.names <= self._known]
        self._waiting = [g for g in self._waiting if not g.names <= self._known]
        for guard in ready:
            names = sorted(guard.names)
            sources = {name: _source_of(self._sizes, name) for name in names}
            fail = self._bind("guard", _BrokenGuard(guard, sources, self._place))
            yield f"if not ({guard.text}): {fail}({', '.join(names)})"


class SizeValues:
    """The sizes of one call of a graph, which is run without generated code.

    It reads and checks what `SizeLines` has lines for.
    """

    def __init__(self, sizes: SizeContext) -> None:
        self._sizes: SizeContext = sizes
        self._waiting: list[Guard] = [*sizes.guards, *sizes.checks]
        # Name -> the number that it has.
        self.numbers: dict[str, Any] = {}

    def of(self, value: Any) -> Any:
        """The number that a size, a float or a condition has."""
        if isinstance(value, SymBool):
            return value.condition.holds(self.numbers)
        side = as_side(value)
        assert side is not None
        return side_value(side, self.numbers)

    def read_inputs(self, inputs: Sequence[tuple[Node, Any]]) -> None:
        """Read the sizes of the inputs, each with its value; check them and the guards."""
        self.numbers.update(_numbers(inputs))
        rest = []
        for node, value, axis, size in _axes(inputs):
            symbol = _symbol(size)
            if symbol is None or symbol in self.numbers:
                rest.append((node, value, axis, size))
            else:
                self.numbers[symbol] = value.shape[axis]
        for _, value, axis, size in rest:
            found = solved(size, self.numbers)
            if found is not None:
                self.numbers[found.name] = found.value(value.shape[axis])
        for node, value, axis, size in rest:
            if not size.expr.names <= self.numbers.keys():
                continue
            length, expected = value.shape[axis], self.of(size)
            if length != expected:
                source = f"{node.meta.get('source', node.name)}.shape[{axis}]"
                _WrongSize("")(source, length, str(size), expected)
        self._check_ready()

    def read_result(self, node: Node, value: Any) -> None:
        """Read the sizes that a call brings, and check them."""
        if len(self.numbers) == len(self._sizes.sizes):
            return
        found = [
            (symbol, number)
            for size, number in _numbers_in(node.val, value)
            if (symbol := _symbol(size)) is not None and symbol not in self.numbers
        ]
        for symbol, number in found:
            self.numbers[symbol] = number
            size = self._sizes.sizes[symbol]
            low, high = size.bounds
            if number < low or (high is not None and number > high):
                _OutOfBounds(symbol, low, high, size.origin)(number)
        if found:
            self._check_ready()

    def _check_ready(self) -> None:
        """Check the guards whose sizes are known by now."""
        known = self.numbers.keys()
        for guard in self._waiting:
            if guard.names <= known and not guard.holds(self.numbers):
                names = sorted(guard.names)
                sources = {name: _source_of(self._sizes, name) for name in names}
                _BrokenGuard(guard, sources, "")(*map(self.numbers.__getitem__, names))
        self._waiting = [g for g in self._waiting if not g.names <= known]


def _source_of(sizes: SizeContext, name: str) -> str:
    size = sizes.sizes[name]
    return size.sources[0] if size.sources else size.origin


def _symbol(size: Any) -> str | None:
    """The name of a size that is a single symbol."""
    names: frozenset[str] = size.expr.names
    if len(names) == 1 and str(size) in names:
        return str(size)
    return None


_Named = TypeVar("_Named")


def _axes(
    inputs: Sequence[tuple[Node, _Named]],
) -> Iterator[tuple[Node, _Named, int, Any]]:
    """The symbolic sizes of inputs, each of which comes with its variable or value."""
    for node, name in inputs:
        if isinstance(node.val, FakeArray):
            shape: Sequence[Any] = node.val.shape
            for axis, size in enumerate(shape):
                if isinstance(size, SymInt):
                    yield node, name, axis, size


def _numbers(inputs: Sequence[tuple[Node, _Named]]) -> Iterator[tuple[str, _Named]]:
    """The names of inputs that are numbers, each with its variable or value."""
    for node, name in inputs:
        if isinstance(node.val, Symbolic):
            yield str(node.val), name


def _sizes_in(value: Any) -> list[tuple[str, Any]]:
    """The symbolic sizes of a result, with the text that leads to each."""
    if isinstance(value, SymInt):
        return [("", value)]
    if isinstance(value, FakeArray):
        shape: Sequence[Any] = value.shape
        return [
            (f".shape[{i}]", n) for i, n in enumerate(shape) if isinstance(n, SymInt)
        ]
    if isinstance(value, list | tuple):
        return [
            (f"[{i}]{path}", size)
            for i, part in enumerate(value)
            for path, size in _sizes_in(part)
        ]
    return []


def _numbers_in(expected: Any, value: Any) -> list[tuple[Any, Any]]:
    """The symbolic sizes of a result, with the numbers that they are."""
    if isinstance(expected, SymInt):
        return [(expected, value)]
    if isinstance(expected, FakeArray):
        shape: Sequence[Any] = expected.shape
        pairs = zip(shape, value.shape, strict=False)
        return [(n, length) for n, length in pairs if isinstance(n, SymInt)]
    if isinstance(expected, list | tuple):
        parts = zip(expected, value, strict=False)
        return [pair for each in parts for pair in _numbers_in(*each)]
    return []


# ---- errors ----


class _WrongSize:
    """Raises for a size that does not fit another one."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __call__(self, source: str, size: Any, text: str, expected: Any) -> None:
        raise GuardError(
            f"the graph is called with sizes that do not fit together: {source} is"
            f" {size}, must be {text}, which is {expected}",
            *_traced(self._place),
            do="pass arrays whose sizes agree as those that were traced",
        )


class _OutOfBounds:
    """Raises for a size of a result that is not within its bounds."""

    def __init__(self, name: str, low: int, high: int | None, origin: str) -> None:
        self._name, self._low, self._high, self._origin = name, low, high, origin

    def __call__(self, size: Any) -> None:
        most = "" if self._high is None else f" and at most {self._high}"
        raise ShapeError(
            f"the size {self._name} is {size}, and the fake kernel says at least"
            f" {self._low}{most}",
            *([f"it is of {self._origin}"] if self._origin else []),
            do="correct the bounds in the fake kernel",
        )


class _BrokenGuard:
    """Raises for sizes that do not meet a guard."""

    def __init__(self, guard: Guard, sources: dict[str, str], place: str) -> None:
        self._guard, self._sources, self._place = guard, sources, place

    def __call__(self, *values: Any) -> None:
        guard = self._guard
        pairs = zip(self._sources.items(), values, strict=True)
        now = ", ".join(f"{n} = {s or 'a size'} is {v}" for (n, s), v in pairs)
        if guard.kind == "check":
            raise ShapeError(
                guard.message or f"check({guard.text}) fails in the graph: {now}",
                f"checked at {guard.place}",
                do="pass arrays of other sizes, or change the check",
            )
        do = "trace the function again for such sizes"
        if guard.kind == "number":
            do += (
                "; or keep the size there: co.scan(f, init, x) or co.fori_loop(0, n, ...) in"
                " place of a loop over it, np.arange(n, like=x)"
            )
        raise GuardError(
            f"the graph holds only where {guard.text}: {now}",
            f"asked at {guard.place}",
            *_traced(self._place),
            do=do,
        )


def _traced(place: str) -> list[str]:
    return [f"traced at {place}"] if place else []
