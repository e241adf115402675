"""The graph of a compiled function inside one transform, for that transform's tracers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from customop.arrays.kinds import is_traced
from customop.arrays.pytree import flatten
from customop.compiling.calls import Call, CallLines, give_miss, symbolic_axes
from customop.compiling.capturing import CapturedCall
from customop.compiling.checked import captured_alone
from customop.compiling.entries import CallArguments, Entry, may_draw
from customop.compiling.free import fixed_numbers, free_axes, free_numbers
from customop.compiling.own_results import own_results
from customop.compiling.parameters import Parameters, identifier
from customop.compiling.within import PLAIN, Pattern, Result, Within
from customop.core.boxes import Pinned, frozen, is_scalar, pin
from customop.core.generated import generate
from customop.core.tracer import Tracer
from customop.errors import GraphError
from customop.graph.module import GraphModule
from customop.graph.unpack import packer

if TYPE_CHECKING:
    from customop.compiling.levels import Levels

__all__ = ["LevelEntry", "TakenApart", "below", "lowered"]

W = TypeVar("W", bound=Within)


class TakenApart:
    """The leaves of arguments at the level of the innermost transform.

    Attributes
    ----------
    top : Interpreter
        That transform.
    leaves : list
        Tracers of it, and other values.
    pattern : tuple of int
        Which they are, see `Within`.
    pinned : tuple of int
        Numbers of tracers without axes that are arrays of their own.
    values : list
        What is below tracers; other values as they are.
    more : list
        Further values below: tangents.
    is_nested : bool
        Whether there are values of other transforms among all these.
    """

    __slots__ = ("is_nested", "leaves", "more", "pattern", "pinned", "top", "values")

    def __init__(
        self,
        top: Any,
        leaves: Sequence[Any],
        pattern: Pattern,
        more: Sequence[Any] = (),
    ) -> None:
        self.top: Any = top
        self.leaves: Sequence[Any] = leaves
        self.pattern: Pattern = pattern
        self.values: Sequence[Any] = [below(v, top) for v in leaves]
        self.more: Sequence[Any] = more
        self.is_nested: bool = any(map(is_traced, (*self.values, *more)))
        if self.is_nested:
            self.values = [*map(frozen, self.values)]
            self.more = [*map(frozen, more)]
        self.pinned: tuple[int, ...] = tuple(
            [i for i, v in enumerate(leaves) if pattern[i] != PLAIN and _is_pinned(v)]
        )

    @property
    def has_places(self) -> bool:
        """Whether a tracer with axes is a view, or was written."""
        pairs = zip(self.leaves, self.pattern, strict=True)
        own = [leaf for leaf, code in pairs if code != PLAIN]
        return any(v.box_place is not None and v.shape for v in own)


def _is_pinned(box: Any) -> bool:
    return not box.shape and box.box_place is not None and not is_scalar(box)


class LevelEntry(Entry, Generic[W]):
    """The graph of a function inside a transform, for one kind of arguments.

    Attributes
    ----------
    word : str
        What `explain` calls it.
    tracer_class : type
    within : Within
        What was captured.
    call : callable
        Takes the arguments of the function, with tracers; other arguments go to the slow
        path. Not for values of other transforms.
    tried : callable
        As `call`, and returns MISS in place of the slow path.
    guarded : callable
        Takes the values below; MISS for values that are otherwise.
    lifted : callable
        The same for values of other transforms.
    """

    word: ClassVar[str]
    tracer_class: ClassVar[type[Tracer]]
    within_class: ClassVar[type[Any]]
    # Of the arguments, with the order of keys, and of the tracers.
    key: Any
    family: Any
    kind: Any
    arguments: dict[str, str]
    found: CapturedCall | None
    refused: BaseException | None
    code_of_backend: Any
    lifted: Call
    record: Call

    def __init__(
        self,
        owner: Levels,
        given: CallArguments,
        taken: TakenApart,
        around: Any,
    ) -> None:
        within = self.make_within(owner, given, taken)
        super().__init__(given, within.run, around)
        self.owner: Levels = owner
        self.within: W = within
        self.is_nested: bool = taken.is_nested
        texts = self.arguments.items()
        self.arguments = {key: t.removeprefix("FakeArray ") for key, t in texts}
        self.pattern: Pattern = taken.pattern
        self.pinned: Collection[int] = taken.pinned
        pairs = enumerate(zip(taken.leaves, taken.pattern, strict=True))
        self._scalars: set[int] = {
            i for i, (v, p) in pairs if p != PLAIN and not v.shape
        }
        self.guarded: Call = give_miss
        self.call: Call = give_miss
        self.tried: Call = give_miss
        self._free: Mapping[int, Sequence[int]] = {}

    # ---- what a transform adds ----

    def make_within(self, owner: Levels, given: CallArguments, taken: TakenApart) -> W:
        """The function inside the transform, to be captured."""
        within: W = self.within_class(
            owner.fn, taken.pattern, taken.pinned, may_view=owner.is_lift
        )
        return within

    def tracer_tests(self, leaves: Sequence[str]) -> Iterator[str]:
        """Conditions for tracers whose class and interpreter are right."""
        return iter(())

    def more_values(self, leaves: Sequence[str]) -> list[str]:
        """Texts of further values below: tangents."""
        return []

    def record_lines(self) -> list[str]:
        """Lines of `record` before its results."""
        return []

    def tracer_text(self, number: int, result: Result) -> str:
        """The text of the tracer for a result, from the outputs ``_o0, _o1, ...``."""
        raise NotImplementedError

    def take_graph(self, module: GraphModule) -> GraphModule:
        """The graph that gives the results, from the captured one."""
        return module

    def place_tests(
        self, leaves: Sequence[str], bind: Callable[[str, Any], str]
    ) -> Iterator[str]:
        """Conditions for what is known of the memory of tracers."""
        has_strides = self.found is not None and self.found.has_strides
        for i, name in enumerate(leaves):
            if i in self.pinned:
                yield f"not {bind('is_scalar', is_scalar)}({name})"
            elif i in self._scalars:
                scalar = f"{bind('is_scalar', is_scalar)}({name})"
                yield f"({name}.box_place is None or {scalar})"
            elif has_strides and self.pattern[i] != PLAIN:
                yield f"{name}.box_place is None"

    # ---- making it ----

    def capture(self, given: CallArguments, entries: Sequence[Entry]) -> None:
        """Capture the function; note the reason if it cannot be done."""
        try:
            self._capture(given, entries)
        except Exception as error:  # noqa: BLE001  # any of the function
            self.refuse(error)
        self.guarded = self._flat_guards(given)

    def _capture(self, given: CallArguments, entries: Sequence[Entry]) -> None:
        owner, within = self.owner, self.within
        found = captured_alone(
            within.run,
            owner.title,
            given,
            self.surroundings,
            self.sizes(),
            free_axes(entries, given.shapes),
            free_numbers(entries, given.numbers),
            within.finish,
        )
        if found.written:
            raise GraphError("it writes its arguments")
        if any(map(is_traced, found.module.constants.values())):
            raise GraphError("it uses a value of a running transform")
        if self.is_nested:
            within.check_nested(found.module)
        module = own_results(self.take_graph(found.module), self.surroundings)
        self.found = found._replace(
            module=module, fixed={**fixed_numbers(entries), **found.fixed}
        )
        if found.numbers:
            self.family = given.kind
        self._free = symbolic_axes(module)
        if self.is_nested:
            self.lifted = owner.lift(module)
            self.code_of_backend = _give_nothing
        else:
            self.code_of_backend = owner.code(module)
        self.module: GraphModule | None = module
        self._write_record()

    def sizes(self) -> Mapping[str, Any] | None:
        """Names for sizes, where the values below have the axes of the arguments."""
        return None

    # ---- generated code ----

    def _flat_guards(self, given: CallArguments) -> Call:
        """The code for the values below."""
        names = tuple([f"v{i}" for i in range(len(given.leaves))])
        title = identifier(self.owner.title)
        parameters = Parameters(", ".join(names), names, {}, title, False)
        lines = CallLines(parameters, give_miss)
        lines.leaves = [*names]
        self._guard(lines, given)
        run = _give_none if self.module is None else self.code_of_backend
        return lines.made_flat(run)

    def _guard(self, lines: CallLines, given: CallArguments) -> None:
        found = self.found
        if found is None or self.module is None:
            free = {i: range(len(shape)) for i, shape in enumerate(given.shapes)}
            lines.check_leaves(given.leaves, free)
            return
        lines.check_leaves(given.leaves, self._free, found.numbers)
        lines.check_surroundings(self.surroundings)
        lines.check_sizes(self.module)
        if found.has_strides:
            lines.check_strides(given.leaves, self._free)

    def make_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], given: CallArguments
    ) -> None:
        """Generate `call`, which takes tracers."""
        owner = self.owner
        lines = CallLines(owner.parameters, owner.slow)
        lines.take_apart(args, kwargs)
        leaves = lines.leaves
        lines.check_tracers(self)
        if self.module is not None and may_draw(self.module):
            lines.check_outside_of_vmap()
        at = len(flatten(args)[0])
        lines.leaves[at:at] = self.more_values(leaves)
        self._guard(lines, given)
        if self.module is None:
            self.call, self.tried = lines.made_eager(owner.fn)
        else:
            names = {"_record": self.record, "_run": self.code_of_backend}
            outs = f"_run({', '.join(lines.leaves)})"
            call = f"_record(_top, {outs}, {', '.join(leaves)})"
            self.call, self.tried = lines.made_of(call, names)

    def _write_record(self) -> None:
        """Generate `record`: the result from the outputs of the graph."""
        within = self.within
        assert within.structure is not None
        lines = self.record_lines()
        for i, result in enumerate(within.results):
            count = len(self.pattern)
            if result.place < 0:
                source = result.source
                text = f"v{source}" if source < count else f"_r{source - count}"
            elif result.is_tracer:
                text = self.tracer_text(i, result)
            else:
                text = f"_o{result.place}"
            lines.append(f"_r{i} = {text}")
            if result.is_pinned:
                lines.append(f"_pin(_r{i})")
        found = "".join([f"_r{i}, " for i in range(len(within.results))])
        is_single = within.structure.type is None
        lines.append("return _r0" if is_single else f"return _pack([{found}])")
        leaves = "".join([f", v{i}" for i in range(len(self.pattern))])
        outs = "".join([f"_o{i}, " for i in range(self._output_count())])
        head = [f"{outs}= _outs"] if outs else []
        text = "\n".join([f"    {line}" for line in [*head, *lines]])
        title = self.owner.title
        names = {
            "_Tracer": self.tracer_class,
            "_pack": packer(within.structure, f"result of {title}"),
            "_pin": _pin,
            "_entry": self,
            "_frozen": frozen,
            **self.record_names(),
        }
        self.record = generate(
            f"tracers of {title}",
            f"def record(_top, _outs{leaves}):\n{text}\n",
            "record",
            names,
        )

    def _output_count(self) -> int:
        assert self.module is not None
        return len(self.module.graph.output_node.args[0])

    def record_names(self) -> dict[str, Any]:
        """Further names for the lines of `record`."""
        return {}


def _pin(result: Any) -> None:
    """Note that a result is an array of its own; one that is read-only stays so."""
    value = lowered(result)
    if type(value) is np.ndarray and not value.flags.writeable:
        result.box_place = Pinned(value.strides, is_sealed=True)
    else:
        pin(result)


def lowered(leaf: Any) -> Any:
    """Return the value below a tracer of any transform; other values as they are."""
    return leaf.below if is_traced(leaf) else leaf


def below(leaf: Any, top: Any) -> Any:
    """Return the value below a tracer of one transform; other values as they are."""
    return leaf.below if is_traced(leaf) and leaf.interpreter is top else leaf


def _give_nothing(*leaves: Any) -> tuple[Any, ...]:
    """The code of an entry for values of other transforms, which are not the leaves."""
    return ()


def _give_none(*leaves: Any) -> None:
    """The code of an entry for which the function runs as it is."""
