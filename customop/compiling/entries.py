"""Entries: what a compiled function has for one kind of arguments, captured under checks."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from types import FrameType
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.nested import Structure, describe, flatten, leaf_classes, unflatten
from customop.compiling.backends import Backend
from customop.compiling.call_code import (
    Call,
    CallLines,
    Parameters,
    own_results,
    symbolic_axes,
)
from customop.compiling.capture import Axes, CapturedCall, Finish, captured
from customop.compiling.surroundings import (
    GONE,
    Surroundings,
    WatchedName,
    family_of,
    is_installed,
    kind_of_leaf,
)
from customop.core.interpreter import current_mode
from customop.errors import GraphError, counted, place, shown
from customop.graph.code_parts import packer
from customop.graph.module import GraphModule
from customop.graph.node import CALL
from customop.graph.passes import frozen_key
from customop.transforms.generators import is_generator
from customop.transforms.trace.make_fx import paths_of

# ---- entries: what a compiled function has for one kind of arguments ----


class CallArguments:
    """The arguments of a call, taken apart.

    Attributes
    ----------
    args, kwargs
        As the generated function passes them on.
    leaves : list
    structure : Structure
    """

    __slots__ = ("args", "kwargs", "leaves", "structure")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args: tuple[Any, ...] = args
        self.kwargs: dict[str, Any] = kwargs
        self.leaves: list[Any]
        self.structure: Structure
        self.leaves, self.structure = flatten((args, kwargs))

    @property
    def family(self) -> Any:
        """Equal for arguments that differ in the lengths of axes alone."""
        return (self.structure, *map(family_of, self.leaves))

    @property
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
        """The same with copies of arrays and generators."""
        copies = [
            deepcopy(v) if is_array(v) or is_generator(v) else v for v in self.leaves
        ]
        return CallArguments(*unflatten(self.structure, copies))

    def objects(self, fn: Callable[..., Any]) -> list[tuple[Any, str]]:
        """Leaves that may hold functions and values, as the user writes them."""
        if all(is_array(v) or type(v) in leaf_classes for v in self.leaves):
            return []
        paths = [path.text for path in paths_of(fn, self.structure)]
        pairs = zip(self.leaves, paths, strict=True)
        return [(v, text) for v, text in pairs if not is_array(v)]

    def described(self, fn: Callable[..., Any]) -> dict[str, str]:
        """Each leaf as the user writes it, and what it is."""
        paths = [path.text for path in paths_of(fn, self.structure)]
        pairs = zip(paths, self.leaves, strict=True)
        return {
            p: describe(v).removeprefix("ndarray ") if is_array(v) else shown(v)
            for p, v in pairs
        }


class Entry:
    """A graph for one kind of arguments, and its code.

    Attributes
    ----------
    module : GraphModule or None
        None where the function itself runs.
    call : callable
        Takes the arguments; where a guard does not hold, they go to the slow path.
    tried : callable
        As `call`, and returns MISS where a guard does not hold.
    run : callable
        Runs it for leaves, whatever the guards say.
    found : CapturedCall or None
    surroundings : Surroundings
    shapes : list
        Of the arrays that it was captured for.
    numbers : dict
        Number of a leaf -> the int or float that it was captured for.
    arguments : dict
        What it was captured for, in words.
    why : str
        Why there was no entry for them.
    skipped : str
        Why the function itself has run although there is a graph.
    number : int
        1 for the first that was compiled.
    cannot : str
        What is not possible where the function itself runs.
    word : str
        The transform that it is for; empty for plain values.
    """

    cannot: ClassVar[str] = "it cannot be captured"
    word: ClassVar[str] = ""
    module: GraphModule | None
    call: Call
    tried: Call
    run: Callable[[CallArguments], Any]
    code: str
    code_of_backend: Any

    def __init__(
        self, given: CallArguments, fn: Callable[..., Any], surroundings: Surroundings
    ) -> None:
        self.family: Any = given.family
        self.shapes: list[tuple[int, ...]] = given.shapes
        self.numbers: dict[int, Any] = given.numbers
        self.arguments: dict[str, str] = given.described(fn)
        self.surroundings: Surroundings = surroundings
        self.found: CapturedCall | None = None
        self.module = None
        self.why: str = ""
        self.skipped: str = ""
        self.number: int = 0
        self.refused: BaseException | None = None

    def refuse(self, error: BaseException) -> None:
        """Note why the function runs as it is.

        The frames of the error are let go: they hold the values of all callers.
        """
        self.refused, self.module = error, None
        found: BaseException | None = error
        while found is not None:
            found.__traceback__ = None
            found = found.__cause__ or found.__context__

    @property
    def size(self) -> str:
        """How many operators its graph calls; empty without a graph."""
        return "" if self.module is None else calls_text(self.module)

    @property
    def text(self) -> str:
        """The Python code of its graphs; empty without one."""
        if self.module is None:
            return ""
        return code_of(self.code_of_backend, self.module)


def code_of(run: Any, module: GraphModule) -> str:
    """The Python code of a graph: of the back end, if it shows any."""
    return str(getattr(run, "code", None) or module.code)


def calls_text(module: GraphModule) -> str:
    """How many operators a graph calls."""
    return counted(sum(node.op == CALL for node in module.graph.nodes), "call")


def may_draw(module: GraphModule) -> bool:
    """Whether a graph draws random numbers, or runs graphs that have effects."""
    calls = [node for node in module.graph.nodes if node.op == CALL]
    return any(
        node.target.sees_seed or any(g.has_effects for g in node.subgraphs)
        for node in calls
    )


def make_entry(
    given: CallArguments,
    found: CapturedCall,
    surroundings: Surroundings,
    parameters: Parameters,
    fn: Callable[..., Any],
    backend: Backend,
    slow: Call,
    *,
    is_checked: bool,
) -> Entry:
    """Make the entry of a graph; see whether its code returns a list if asked for."""
    entry = Entry(given, fn, surroundings)
    found = found._replace(module=own_results(found.module, surroundings))
    entry.found, entry.module = found, found.module
    if found.numbers:
        entry.family = given.kind
    code = backend(found.module)
    entry.code_of_backend = code
    out_spec = found.module.out_spec
    assert out_spec is not None
    run = checked_code(code, out_spec) if is_checked else code
    free = symbolic_axes(found.module)
    surroundings.leave_out_constants(_constants(found.module))
    lines = _guards(given, parameters, slow, surroundings, free, found.numbers)
    lines.check_sizes(found.module)
    lines.check_same(found.same)
    if may_draw(found.module):
        lines.check_outside_of_vmap()
    if found.has_strides:
        lines.check_strides(given.leaves, free)
    if found.written:
        lines.check_writable(found.written)
        _check_apart(lines, given.leaves, found)
    entry.call, entry.tried = lines.made(run, out_spec)
    pack = packer(out_spec, f"result of {parameters.title}")
    entry.run = lambda given: pack(run(*given.leaves))
    return entry


def _constants(module: GraphModule) -> Iterator[Any]:
    """The constants of a graph and of those inside it."""
    yield from module.constants.values()
    for node in module.graph.nodes:
        for graph in node.subgraphs:
            yield from graph.constants.values()


def eager_entry(
    given: CallArguments,
    error: BaseException,
    surroundings: Surroundings,
    parameters: Parameters,
    fn: Callable[..., Any],
    slow: Call,
) -> Entry:
    """Make an entry that runs the function itself, whatever the shapes."""
    entry = Entry(given, fn, surroundings)
    entry.refuse(error)
    free = {i: range(len(shape)) for i, shape in enumerate(given.shapes)}
    lines = _guards(given, parameters, slow, Surroundings([]), free)
    entry.call, entry.tried = lines.made_eager(fn)
    entry.run = lambda given: fn(*given.args, **given.kwargs)
    return entry


def _guards(
    given: CallArguments,
    parameters: Parameters,
    slow: Call,
    surroundings: Surroundings,
    free: Mapping[int, Collection[int]],
    numbers: Collection[int] = (),
) -> CallLines:
    lines = CallLines(parameters, slow)
    lines.take_apart(given.args, given.kwargs)
    lines.check_leaves(given.leaves, free, numbers)
    lines.check_surroundings(surroundings)
    return lines


def _check_apart(lines: CallLines, leaves: Sequence[Any], found: CapturedCall) -> None:
    """Have the call look whether written arrays share memory with others."""
    arrays = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, np.ndarray) and i not in found.same
    ]
    pairs = {(min(i, j), max(i, j)) for i in found.written for j in arrays if i != j}
    written = [i for i in found.written if i in arrays]
    held = found.module.constants.values()
    constants = [v for v in held if isinstance(v, np.ndarray) and v.ndim]
    lines.check_apart(
        sorted(pair for pair in pairs if {*pair} <= {*arrays}),
        dict.fromkeys(written, constants),
    )


def checked_code(code: Callable[..., Any], out_spec: Structure) -> Callable[..., Any]:
    """The code of a back end as a function that returns a list of leaves."""
    count = out_spec.num_leaves

    def run(*leaves: Any) -> Any:
        out = code(*leaves)
        if type(out) is list or type(out) is tuple:
            return out
        return [out] if count == 1 else [*out]

    return run


# ---- environment variables that a function reads while it is captured ----


class EnvironmentReads:
    """Notes which variables code of the user reads while it is open.

    ``os.environ`` turns each name that it looks up into bytes by a function of its own. So
    reads by ``os.getenv`` and in other modules are seen, and other calls pay nothing.

    Attributes
    ----------
    names : list of WatchedName
        What was read, in order.
    """

    def __init__(self) -> None:
        self.names: list[WatchedName] = []
        self._encode: Callable[[str], str] = os.environ.encodekey
        self._before: dict[str, str] = {**os.environ}
        self._found: dict[str, None] = {}

    def __enter__(self) -> Self:
        encode = self._encode
        found, thread = self._found, threading.get_ident()

        def noting(name: str) -> str:
            if threading.get_ident() == thread and _is_of_user(sys._getframe(1)):
                found[name] = None
            return encode(name)

        os.environ.encodekey = noting
        return self

    def __exit__(self, *exc: object) -> None:
        os.environ.encodekey = self._encode
        self.names = [
            WatchedName(
                os.environ,
                name,
                self._before.get(name, GONE),
                f"the environment variable '{name}'",
            )
            for name in self._found
        ]


# Modules that read variables for their callers.
_READERS = ("os", "collections.abc", __name__)


def _is_of_user(frame: FrameType | None) -> bool:
    """Whether a frame that looks a name up runs for code of the user.

    A module that is imported meanwhile reads its variables once, as without capturing.
    """
    while frame is not None and frame.f_globals.get("__name__") in _READERS:
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == "<module>":
        return False
    return not is_installed(frame.f_globals.get("__name__") or "")


# ---- capture a function, and see that it does nothing but compute meanwhile ----


# One function is captured at a time: two locks could wait for each other.
capturing: AbstractContextManager[bool] = threading.RLock()


@contextmanager
def outside_of_modes() -> Iterator[None]:
    """Capture for later calls, too: the mode of a vmap around this one is not seen."""
    token = current_mode.set(None)
    try:
        yield
    finally:
        current_mode.reset(token)


def captured_alone(
    fn: Callable[..., Any],
    title: str,
    given: CallArguments,
    surroundings: Surroundings,
    sizes: Mapping[str, Any] | None,
    free: Axes,
    numbers: Collection[int] = (),
    finish: Finish | None = None,
) -> CapturedCall:
    """Capture a function; raise if it has assigned or written what a graph would not.

    Parameters
    ----------
    fn : callable
    title : str
        Its name for messages.
    given : CallArguments
    surroundings : Surroundings
        What it can reach. What it has assigned is put back.
    sizes, free, numbers, finish
        As for `captured`.
    """
    _refuse_iterators(fn, title, surroundings)
    arrays = surroundings.contents_of_arrays()
    leaves = given.leaves
    with EnvironmentReads() as reads:
        found = captured(
            fn, given.args, given.kwargs, leaves, sizes, free, numbers, finish
        )
    surroundings.add_names(reads.names)
    _check_unchanged(fn, title, surroundings)
    _check_unwritten(fn, title, arrays)
    return found


def _check_unchanged(
    fn: Callable[..., Any], title: str, surroundings: Surroundings
) -> None:
    """Raise if the function has assigned what a graph would not assign."""
    changed = surroundings.changed()
    for slot, _ in changed:
        slot.restore()
    if changed:
        _refuse_assignment(fn, title, changed[0][0])
    emptied = surroundings.emptied()
    for contents in emptied:
        contents.restore()
    if emptied:
        raise GraphError(
            f"compile: '{title}' takes something out of {emptied[0].label}, which its"
            " graph would not do",
            f"it is at {place(fn)}",
            do="take it out before the call, and pass it as an argument",
        )
    surroundings.leave_out_written()


def _refuse_iterators(
    fn: Callable[..., Any], title: str, surroundings: Surroundings
) -> None:
    """Raise for iterators: the graph would keep the items of the first call."""
    for iterator, label in surroundings.iterators:
        raise GraphError(
            f"compile: '{title}' uses {label}, a {type(iterator).__name__}: its graph"
            " would use the same items again and again",
            f"it is used at {surroundings.line_of(iterator) or place(fn)}",
            do="call next() outside, and pass what it returns as an argument; or pass a list",
        )


def _check_unwritten(
    fn: Callable[..., Any], title: str, arrays: Sequence[tuple[str, Any, Any]]
) -> None:
    """Raise if the function has written to an array from outside of it."""
    for label, array, before in arrays:
        if array.tobytes() != before.tobytes():
            array[...] = before
            raise GraphError(
                f"compile: '{title}' writes to {label} by values that do not"
                " depend on its arguments, which its graph would not do",
                f"it is at {place(fn)}",
                do="pass the array as an argument",
            )


def _refuse_assignment(
    fn: Callable[..., Any], title: str, slot: WatchedName
) -> NoReturn:
    raise GraphError(
        f"compile: '{title}' assigns {slot.label}, which its graph would not do",
        f"it is at {place(fn)}",
        do="return the new value, and pass it as an argument",
    )


# ---- which lengths and numbers differ between the calls that were compiled ----


def free_axes(entries: Sequence[Entry], shapes: Sequence[tuple[int, ...]]) -> Axes:
    """The axes whose lengths differ between calls."""
    found: dict[int, set[int]] = {}
    for entry in entries:
        for i, (now, before) in enumerate(zip(shapes, entry.shapes, strict=True)):
            for axis, (n, m) in enumerate(zip(now, before, strict=True)):
                if n != m and n > 1 and m > 1:
                    found.setdefault(i, set()).add(axis)
    return found


def free_numbers(entries: Sequence[Entry], numbers: Mapping[int, Any]) -> list[int]:
    """The ints and floats that differ between calls, and whose values nothing asks for."""
    fixed = fixed_numbers(entries)
    return [
        i
        for i, key in numbers.items()
        if i not in fixed and any(entry.numbers[i] != key for entry in entries)
    ]


def fixed_numbers(entries: Sequence[Entry]) -> dict[int, str]:
    """Those whose values were asked for, and why."""
    known = [entry.found.fixed for entry in entries if entry.found is not None]
    return {i: why for fixed in known for i, why in fixed.items()}
