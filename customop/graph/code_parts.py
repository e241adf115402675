"""Parts of generated code: pytrees taken apart and built, and symbolic sizes.

For one structure, which a graph knows, straight lines are ten times as fast as optree:
0.4 us for three dicts of two arrays. Dicts, lists, tuples and named tuples are taken
apart by lines; classes with functions of their own go to optree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from customop.arrays.kinds import is_array
from customop.arrays.nested import (
    Structure,
    flatten,
    key_orders,
    leaf_classes,
    unflatten,
)
from customop.core.codegen import generate
from customop.errors import GuardError, ShapeError
from customop.graph.node import Node, Solved, solved
from customop.shapes.conditions import Guard, side_value
from customop.shapes.size_context import SizeContext
from customop.shapes.sizes import Symbolic
from customop.shapes.symbolic import SymBool, as_side

T = TypeVar("T")


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
        """Return a name for an object."""
        name = f"{wanted}_{len(self.names)}"
        self.names[name] = value
        return name

    def key(self, key: Any) -> str:
        """Return the text of a key of a dict."""
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
        """Return the whole function."""
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
        """Return the whole function."""
        names = "".join(f"v{i}, " for i in range(self.count))
        taken = [f"    {names}= leaves"] if self.count else []
        return "\n".join(["def pack(leaves):", *taken, f"    return {value}", ""])

    def value(self, structure: Structure, example: Any, depth: int = 0) -> str:
        """Return the text of a value; the example has the keys of dicts in order."""
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
        """Return the text of a value of a class that optree builds."""
        first, self._used = self._used, self._used + structure.num_leaves
        leaves = "".join([f"v{i}, " for i in range(first, self._used)])
        return f"{self.bind(_OtherTree(structure).make, 'make')}(({leaves}))"


_BUILTIN = (dict, list, tuple)
# Python's parser takes 200 brackets in each other; deeper parts go to optree.
_DEEPEST = 50


def _has_lines(structure: Structure) -> bool:
    """Return whether a pytree is taken apart and built by lines of code."""
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
        """Return the leaves of a value; None for another structure or order of keys."""
        leaves, structure = flatten(value)
        if structure != self._structure:
            return None
        return leaves if self._orders in (None, key_orders(value)) else None

    def make(self, leaves: Sequence[Any]) -> Any:
        """Return the part with these leaves."""
        return unflatten(self._structure, leaves)


# ---- the symbolic sizes of a graph ----
# Which are read off inputs and results, and what is checked of them: one walk for code,
# for text and for runs without generated code.


class Length(NamedTuple):
    """A place with a size: an axis of an input or result, or a number itself.

    Attributes
    ----------
    source : object
        The variable of the input or result as text, or its value.
    path : tuple of int
        Leads to the part of a nested result.
    axis : int or None
        None for a number.
    """

    source: Any
    path: tuple[int, ...]
    axis: int | None

    @property
    def text(self) -> str:
        """The expression that gives its number."""
        part = "".join([self.source, *[f"[{i}]" for i in self.path]])
        return part if self.axis is None else f"{part}.shape[{self.axis}]"

    @property
    def number(self) -> Any:
        """Its number, where the source is a value."""
        part = self.source
        for i in self.path:
            part = part[i]
        return part if self.axis is None else part.shape[self.axis]


def _lengths(
    val: Any, source: Any, path: tuple[int, ...] = ()
) -> Iterator[tuple[Length, Any]]:
    """Go through the lengths in a value that was traced, and their sizes."""
    if isinstance(val, Symbolic):
        yield Length(source, path, None), val
    elif is_array(val):
        for axis, size in enumerate(val.shape):
            yield Length(source, path, axis), size
    elif isinstance(val, list | tuple):
        for i, part in enumerate(val):
            yield from _lengths(part, source, (*path, i))


class SizeWalk(ABC, Generic[T]):
    """Goes with a walk over a graph; gives what a dialect makes of each step.

    Parameters
    ----------
    sizes : SizeContext or None

    Attributes
    ----------
    known : set of str
        Names of the sizes that were read so far.
    """

    def __init__(self, sizes: SizeContext | None) -> None:
        self.sizes: SizeContext | None = sizes
        self.known: set[str] = set()
        self._waiting: list[Guard] = [*sizes.guards, *sizes.checks] if sizes else []

    def of_inputs(self, inputs: Sequence[tuple[Node, Any]]) -> Iterator[T]:
        """Read the sizes of inputs, each with its source; check them and the guards."""
        rest: list[tuple[Node, Length, Any]] = []
        for node, source in inputs:
            for length, size in self.lengths_of(node, source):
                name = self._new_name(size)
                if name:
                    yield self.read(name, length)
                elif length.axis is not None:
                    rest.append((node, length, size))
        more: list[tuple[Node, Length, Any]] = []
        for node, length, size in rest:
            found = None if type(size) is int else solved(size, self.known)
            if found is not None:
                self.known.add(found.name)
                yield self.solve(found, length)
            if found is None or found.factor != 1:
                more.append((node, length, size))
        yield from self.compare(more)
        yield from self._ready()

    def of_result(self, node: Node, source: Any) -> Iterator[T]:
        """Read the sizes that a call brings, after which more guards can be checked."""
        if self.sizes is not None and len(self.known) == len(self.sizes.sizes):
            return
        found = False
        for length, size in _lengths(node.val, source):
            name = self._new_name(size)
            if name:
                found = True
                yield self.read(name, length)
                yield from self.check_bounds(name)
        if found:
            yield from self._ready()

    def lengths_of(self, node: Node, source: Any) -> Iterator[tuple[Length, Any]]:
        """Go through the lengths of an input that have a part in this."""
        for length, size in _lengths(node.val, source):
            if isinstance(size, Symbolic):
                yield length, size

    def _new_name(self, size: Any) -> str:
        """Note and return the name of a new size that a length is; or an empty text."""
        if type(size) is int:
            return ""
        text = str(size)
        if text in self.known or not text.isidentifier():
            return ""
        self.known.add(text)
        return text

    def _ready(self) -> Iterator[T]:
        """Check the guards whose sizes are known by now."""
        if self._waiting:
            ready = [g for g in self._waiting if g.names <= self.known]
            self._waiting = [g for g in self._waiting if not g.names <= self.known]
            yield from map(self.guard, ready)

    # ---- what a dialect says ----

    @abstractmethod
    def read(self, name: str, length: Length) -> T:
        """Give a size the number of a length."""

    @abstractmethod
    def solve(self, found: Solved, length: Length) -> T:
        """Give a size the number that follows from a length."""

    @abstractmethod
    def compare(self, rest: Sequence[tuple[Node, Length, Any]]) -> Iterator[T]:
        """Check lengths of inputs that give no size; each with its node and size."""

    def check_bounds(self, name: str) -> Iterator[T]:
        """Check the bounds of a size that a result has brought."""
        return iter(())

    @abstractmethod
    def guard(self, guard: Guard) -> T:
        """Check a condition on sizes that are all known."""

    # ---- names and errors of all dialects ----

    def bounds_of(self, name: str) -> _OutOfBounds:
        """Return the bounds of a size."""
        assert self.sizes is not None
        size = self.sizes.sizes[name]
        return _OutOfBounds(name, *size.bounds, size.origin)

    def broken(self, guard: Guard, place: str) -> _BrokenGuard:
        """Return what raises the error of a guard, given its sizes in order of names."""
        assert self.sizes is not None
        found = {name: self.sizes.sizes[name] for name in sorted(guard.names)}
        sources = {n: s.sources[0] if s.sources else s.origin for n, s in found.items()}
        return _BrokenGuard(guard, sources, place)


Bind = Callable[[str, Any], str]


class SizeLines(SizeWalk[str]):
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
        super().__init__(sizes)
        self._place: str = place
        self._bind: Bind = bind

    def read(self, name: str, length: Length) -> str:
        """Write an assignment."""
        return f"{name} = {length.text}"

    def solve(self, found: Solved, length: Length) -> str:
        """Write an assignment."""
        return f"{found.name} = {found.text(length.text)}"

    def compare(self, rest: Sequence[tuple[Node, Length, Any]]) -> Iterator[str]:
        """Write conditions, each with a call that raises."""
        for node, length, size in rest:
            if size.expr.names <= self.known:
                fail = self._bind("wrong_size", _WrongSize(self._place))
                yield (
                    f"if {length.text} != {size}: {fail}({_source(node, length)!r},"
                    f" {length.text}, {str(size)!r}, {size})"
                )

    def check_bounds(self, name: str) -> Iterator[str]:
        """Write a condition."""
        bounds = self.bounds_of(name)
        tests = [f"{name} < {bounds.low}"] if bounds.low else []
        tests += [f"{name} > {bounds.high}"] if bounds.high is not None else []
        if tests:
            yield f"if {' or '.join(tests)}: {self._bind('outside', bounds)}({name})"

    def guard(self, guard: Guard) -> str:
        """Write a condition."""
        fail = self._bind("guard", self.broken(guard, self._place))
        return f"if not ({guard.text}): {fail}({', '.join(sorted(guard.names))})"


class SizeValues(SizeWalk[None]):
    """The sizes of one call of a graph, which is run without generated code.

    Attributes
    ----------
    numbers : dict
        Name -> the number that it has.
    """

    def __init__(self, sizes: SizeContext) -> None:
        super().__init__(sizes)
        self.numbers: dict[str, Any] = {}

    def of(self, value: Any) -> Any:
        """Return the number that a size, a float or a condition has."""
        if isinstance(value, SymBool):
            return value.condition.holds(self.numbers)
        side = as_side(value)
        assert side is not None
        return side_value(side, self.numbers)

    def read_inputs(self, inputs: Sequence[tuple[Node, Any]]) -> None:
        """Read and check the sizes of the inputs, each with its value."""
        for _ in self.of_inputs(inputs):
            pass

    def read_result(self, node: Node, value: Any) -> None:
        """Read and check the sizes that a call brings."""
        for _ in self.of_result(node, value):
            pass

    def read(self, name: str, length: Length) -> None:
        """Note the number."""
        self.numbers[name] = length.number

    def solve(self, found: Solved, length: Length) -> None:
        """Note the number."""
        self.numbers[found.name] = found.value(length.number)

    def compare(self, rest: Sequence[tuple[Node, Length, Any]]) -> Iterator[None]:
        """Raise for a length that is not as it should be."""
        for node, length, size in rest:
            if size.expr.names <= self.known and length.number != self.of(size):
                fail = _WrongSize("")
                fail(_source(node, length), length.number, str(size), self.of(size))
        yield from ()

    def check_bounds(self, name: str) -> Iterator[None]:
        """Raise for a size that is not within its bounds."""
        bounds, number = self.bounds_of(name), self.numbers[name]
        if number < bounds.low or (bounds.high is not None and number > bounds.high):
            bounds(number)
        yield from ()

    def guard(self, guard: Guard) -> None:
        """Raise where it does not hold."""
        if not guard.holds(self.numbers):
            values = [self.numbers[name] for name in sorted(guard.names)]
            self.broken(guard, "")(*values)


def _source(node: Node, length: Length) -> str:
    """Return a length as the user would write it."""
    return f"{node.meta.get('source', node.name)}.shape[{length.axis}]"


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
        self.low: int = low
        self.high: int | None = high
        self._name, self._origin = name, origin

    def __call__(self, size: Any) -> None:
        most = "" if self.high is None else f" and at most {self.high}"
        raise ShapeError(
            f"the size {self._name} is {size}, and the fake kernel says at least"
            f" {self.low}{most}",
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
