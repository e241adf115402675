"""Entries inside transforms: for tracers of reverse mode, vmap and jvp."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU, device_of, is_array, is_traced
from customop.arrays.nested import Structure, flatten, unflatten
from customop.compiling.call_code import (
    Call,
    CallLines,
    Parameters,
    give_miss,
    identifier,
    own_results,
    strict_settings,
    symbolic_axes,
)
from customop.compiling.capture import CapturedCall
from customop.compiling.entries import (
    CallArguments,
    Entry,
    calls_text,
    captured_alone,
    capturing,
    code_of,
    fixed_numbers,
    free_axes,
    free_numbers,
    may_draw,
    outside_of_modes,
)
from customop.compiling.joint_graphs import (
    CONSTANT,
    JOINT_CONSTANT,
    MOVING,
    PLAIN,
    Arrived,
    Joint,
    JointHalves,
    Pattern,
    Result,
    Within,
    WithinJvp,
    WithinVmap,
)
from customop.core.codegen import generate
from customop.core.observe import observers, open_modes
from customop.core.tracer import Pinned, Tracer, frozen, is_scalar, pin
from customop.errors import GradientError, GraphError, counted
from customop.graph.code_parts import packer
from customop.graph.module import GraphModule
from customop.graph.node import CALL
from customop.transforms.autograd.tape import GradNode, GradTracer, Output
from customop.transforms.jvp import JvpTracer
from customop.transforms.trace.recorder import fake_of
from customop.transforms.vmap_interpreter import BatchTracer

if TYPE_CHECKING:
    from customop.compiling.levels import Levels


# ---- level entry ----
# The graph of a compiled function inside one transform, for that transform's tracers.


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


# ---- a compiled function on the tape of reverse mode ----
# One node for all of its calls.


class BackwardCode:
    """The code of a backward graph.

    Parameters
    ----------
    module : GraphModule
        As it was captured.
    code : callable
        Of its inputs; returns a list of gradients.
    count : int
        How many inputs it has.
    title : str
    has_gradient : sequence of bool
        For each argument with a gradient, whether one is returned.
    lift : callable
        The graph on values of other transforms.

    Attributes
    ----------
    run : callable
        Takes a list of the inputs in reverse order, and empties it: so an array that
        nobody else has is freed after its last use.
    """

    def __init__(
        self,
        module: GraphModule,
        code: Callable[..., list[Any]],
        count: int,
        title: str,
        has_gradient: Sequence[bool],
        lift: Callable[..., list[Any]],
    ) -> None:
        nodes = [node for node in module.graph.nodes if node.op == CALL]
        # A graph that draws must be seen by a vmap around it.
        has_effects = any(node.has_effects for node in nodes)
        self.lift: Callable[..., list[Any]] | None = None if has_effects else lift
        self.module: GraphModule = module
        self.code: Callable[..., list[Any]] = code
        # Of the arguments with a gradient, the numbers of those that get one.
        self.numbers: list[int] = [i for i, has in enumerate(has_gradient) if has]
        # Python hands arguments of a call in this form over: the caller keeps none.
        given = ", ".join(["take()"] * count)
        text = f"def pull(given):\n    take = given.pop\n    return run({given})\n"
        name = f"gradient of {title}"
        self.run: Callable[[list[Any]], list[Any]] = generate(
            name, text, "pull", {"run": code}
        )

    @property
    def text(self) -> str:
        """The Python code of the graph."""
        return code_of(self.code, self.module)


class CompiledNode(GradNode):
    """One call of a compiled function under reverse mode."""

    __slots__ = ()
    node_takes_sums = True
    node_entry: GradEntry
    # Of the arguments, where sizes are symbolic.
    node_shapes: Any = None
    # Whether it was called with values of other transforms.
    node_is_nested: bool = False

    @staticmethod
    def node_pull(
        node: CompiledNode, grads: list[Any], sums: list[Any], retain: bool
    ) -> list[tuple[Any, Any]]:
        """The origin of each tracked argument, with its gradient."""
        edges = node.node_edges or ()
        is_nested = node.node_is_nested
        is_nested = is_nested or any(map(is_traced, grads)) or any(map(is_traced, sums))
        code = node.node_entry.backward(grads, sums, node.node_shapes)
        given = [v for v in (*node.saved_arrays, *grads, *sums) if v is not None]
        grads.clear()
        sums.clear()
        if not retain:
            node.node_edges = None
            node.saved_arrays = ()
        lift = code.lift
        if open_modes or strict_settings or observers or (is_nested and lift is None):
            found = code.module.run_list(*given)
        elif is_nested and lift is not None:
            found = lift(*given)
        else:
            given.reverse()
            found = code.run(given)
        origins = [edges[i][2] for i in code.numbers]
        return [*zip(origins, found, strict=True)]


# ---- a compiled function under reverse mode ----
# Its forward and backward graph for one kind of arguments.


class GradEntry(LevelEntry[Joint]):
    """The forward and the backward graph.

    Attributes
    ----------
    within : Joint
        The function with its backward pass.
    halves : JointHalves or None
        None where the function itself runs.
    """

    word: ClassVar[str] = "gradient"
    cannot: ClassVar[str] = "its gradient cannot be compiled"
    tracer_class: ClassVar[type[Tracer]] = GradTracer
    within_class: ClassVar[type[Joint]] = Joint

    def __init__(
        self, owner: Levels, given: CallArguments, taken: TakenApart, around: Any
    ) -> None:
        super().__init__(owner, given, taken, around)
        self.halves: JointHalves | None = None
        # Arguments without their data, to capture the function once more.
        self._like: list[Any] = [_without_data(v) for v in given.leaves]
        self._structure: Structure = given.structure
        # For gradients of all results, and no sums.
        self.usual: BackwardCode | None = None
        # What a backward graph is given, and shapes -> its code.
        self._backward: dict[Any, BackwardCode] = {}

    @property
    def size(self) -> str:
        """How many operators both graphs call, and how many arrays the first one saves."""
        if self.halves is None or self.module is None:
            return ""
        forward, backward = map(calls_text, self.halves[:2])
        saved = counted(len(self.halves.saved), "array")
        where = ", inside of other transforms" if self.is_nested else ""
        return f"{forward} forward, which save {saved}, and {backward} backward{where}"

    @property
    def text(self) -> str:
        """The Python code of its graphs; empty without one."""
        codes = [code.text for code in [*self._backward.values()]]
        return "\n".join([super().text, *codes])

    # ---- the forward graph ----

    def sizes(self) -> Mapping[str, Any] | None:
        """Those of the function."""
        return self.owner.sizes

    def take_graph(self, module: GraphModule) -> GraphModule:
        """The forward graph."""
        self.halves = self.within.halves(module)
        return self.halves.forward

    def tracer_tests(self, leaves: Sequence[str]) -> Iterator[str]:
        """The same tracers have gradients, and are one tracer."""
        for i, code in enumerate(self.pattern):
            if code == JOINT_CONSTANT:
                yield f"{leaves[i]}.node is None"
            elif code == i:
                yield f"{leaves[i]}.node is not None"
            elif code != PLAIN:
                yield f"{leaves[i]} is {leaves[code]}"
        moving = self.within.moving
        for at, i in enumerate(moving):
            for j in moving[:at]:
                yield f"{leaves[i]}.node is not {leaves[j]}.node"

    def record_lines(self) -> list[str]:
        """Lines that make the node of a call, with what the backward graph needs."""
        joint, halves = self.within, self.halves
        assert halves is not None
        if not joint.ends:
            return []
        edges = ", ".join([f"({i}, (), v{i}.node)" for i in joint.moving])
        kept = [self._kept_text(i) for i in halves.kept]
        kept += [f"_o{i}" for i in range(joint.count, self._output_count())]
        lines = [
            f"_node = _Node([{edges}])",
            "_node.node_entry = _entry",
            f"_node.saved_arrays = ({''.join(f'{text}, ' for text in kept)})",
        ]
        if self.is_nested:
            lines.append("_node.node_is_nested = True")
        if self._free:
            shapes = "".join(f"_shape(v{i}), " for i in range(len(self.pattern)))
            lines.append(f"_node.node_shapes = ({shapes})")
        ends = [r for r in joint.results if r.place >= 0 and r.extra >= 0]
        if len(ends) == 1:
            out = f"_o{ends[0].place}"
            lines.append(f"_node.node_shape = {out}.shape")
            lines.append(f"_node.node_dtype = {out}.dtype")
        else:
            pairs = zip(ends, joint.ends, strict=True)
            metas = [
                f"(_o{r.place}.shape, _o{r.place}.dtype, {device!r}), "
                for r, device in pairs
            ]
            lines.append(f"_node.node_metas = _metas = [{''.join(metas)}]")
        return lines

    def _kept_text(self, number: int) -> str:
        """An argument that the backward graph takes, below the transform."""
        text = f"v{number}" if self.pattern[number] == PLAIN else f"v{number}.below"
        return f"_frozen({text})" if self.is_nested else text

    def tracer_text(self, number: int, result: Result) -> str:
        """A value, and what gradients of it come to: the node, or one of its outputs."""
        end = "None"
        if result.extra >= 0 and len(self.within.ends) == 1:
            end = "_node"
        elif result.extra >= 0:
            ends = [r.place for r in self.within.results if r.extra >= 0 <= r.place]
            at = ends.index(result.place)
            end = f"_Output(_node, {at}, _metas[{at}])"
        return f"_Tracer(_top, _o{result.place}, {end})"

    def record_names(self) -> dict[str, Any]:
        """Further names for the lines of `record`."""
        return {"_Node": self.owner.nodes, "_Output": Output, "_shape": _shape_of}

    # ---- the backward graph ----

    def backward(
        self, grads: Sequence[Any], sums: Sequence[Any], shapes: Any
    ) -> BackwardCode:
        """The code of the backward graph for what has come to a node."""
        is_usual = not [g for g in grads if g is None]
        is_usual = is_usual and not [s for s in sums if s is not None]
        if is_usual and self.usual is not None:
            return self.usual
        arrived = Arrived(
            tuple([g is not None for g in grads]), tuple([s is not None for s in sums])
        )
        code = self._backward.get(arrived) or self._backward.get((arrived, shapes))
        if code is None:
            with capturing, outside_of_modes():
                code = self._new_backward(arrived, shapes)
        return code

    def _new_backward(self, arrived: Arrived, shapes: Any) -> BackwardCode:
        assert self.halves is not None
        joint, module, key = self.within, self.halves.backward, arrived
        if not all(arrived.cotangents) or any(arrived.sums):
            joint = Joint(self.owner.fn, self.pattern, self.pinned, arrived)
            module, key = self._captured_again(joint, arrived, shapes)
        count = len(module.inputs)
        lift = self.owner.lift(module)
        run = module.run_list if self.is_nested else self.owner.code(module)
        title, gets = self.owner.title, joint.has_gradient
        code = BackwardCode(module, run, count, title, gets, lift)
        self._backward[key] = code
        if joint is self.within:
            self.usual = code
        return code

    def _captured_again(
        self, joint: Joint, arrived: Arrived, shapes: Any
    ) -> tuple[GraphModule, Any]:
        """Another backward graph, and the key for which it holds."""
        owner, found = self.owner, self.found
        assert self.halves is not None
        assert found is not None
        assert self.module is not None
        if self.surroundings.changed():
            raise self._changed()
        leaves = self._like
        if shapes is not None:
            pairs = zip(leaves, shapes, strict=True)
            leaves = [_of_shape(v, shape) if shape else v for v, shape in pairs]
        given = CallArguments(*unflatten(self._structure, leaves))
        again = captured_alone(
            joint.run,
            owner.title,
            given,
            self.surroundings,
            owner.sizes,
            found.free,
            found.numbers,
            joint.finish,
        )
        module = joint.backward(again.module, self.halves)
        if module is None:
            raise self._changed()
        # The sizes that the backward pass asks for may differ in other calls.
        known = {guard.text for guard in self.module.graph.sizes.guards}
        is_same = known >= {guard.text for guard in module.graph.sizes.guards}
        is_same = is_same and again.free == found.free
        return module, arrived if is_same else (arrived, shapes)

    def _changed(self) -> GradientError:
        return GradientError(
            f"compile: what '{self.owner.title}' uses has changed since it was called, so"
            " that its gradient cannot be captured",
            do="take the gradient before, or pass what changes as an argument",
        )


def _shape_of(value: Any) -> tuple[int, ...]:
    value = lowered(value)
    return value.shape if is_array(value) else ()


def _without_data(value: Any) -> Any:
    return fake_of(value) if is_array(value) and value.shape else value


def _of_shape(like: Any, shape: Sequence[int]) -> Any:
    """An array that nobody reads; arrays of symbolic sizes lie in memory in C order."""
    if device_of(like) == CPU.name:
        return np.empty(shape, like.dtype)
    return FakeArray(shape, like.dtype, device=device_of(like))


# ---- compiled functions under `vmap` and `jvp` ----


class VmapEntry(LevelEntry[WithinVmap]):
    """The graph of a batch."""

    word: ClassVar[str] = "vmap"
    cannot: ClassVar[str] = "its vmap cannot be compiled"
    tracer_class: ClassVar[type[Tracer]] = BatchTracer
    within_class: ClassVar[type[WithinVmap]] = WithinVmap

    @property
    def size(self) -> str:
        """How many operators its graph calls, and where the rows are."""
        if self.module is None:
            return ""
        pairs = zip(self.arguments, self.pattern, strict=True)
        rows = ", ".join([f"{n} along {d}" for n, d in pairs if d != PLAIN])
        where = ", inside of other transforms" if self.is_nested else ""
        return f"{calls_text(self.module)} for rows of {rows}{where}"

    def tracer_tests(self, leaves: Sequence[str]) -> Iterator[str]:
        """The axes of the batches are as they were."""
        for name, dim in zip(leaves, self.pattern, strict=True):
            if dim != PLAIN:
                yield f"{name}.dim == {dim}"

    def tracer_text(self, number: int, result: Result) -> str:
        """A row of a batch."""
        return f"_Tracer(_top, _o{result.place}, {result.extra})"


class JvpEntry(LevelEntry[WithinJvp]):
    """The graph of values and their tangents."""

    word: ClassVar[str] = "jvp"
    cannot: ClassVar[str] = "its jvp cannot be compiled"
    tracer_class: ClassVar[type[Tracer]] = JvpTracer
    within_class: ClassVar[type[WithinJvp]] = WithinJvp

    def make_within(
        self, owner: Levels, given: CallArguments, taken: TakenApart
    ) -> WithinJvp:
        """The function that takes tangents too, as its signature says."""
        within = super().make_within(owner, given, taken)
        named: Any = within.run
        named.__signature__ = _with_tangents(owner.fn, len(given.args) - 1)
        return within

    @property
    def size(self) -> str:
        """How many operators its graph calls."""
        if self.module is None:
            return ""
        where = ", inside of other transforms" if self.is_nested else ""
        return f"{calls_text(self.module)} with tangents{where}"

    def tracer_tests(self, leaves: Sequence[str]) -> Iterator[str]:
        """The same arguments have tangents."""
        for name, code in zip(leaves, self.pattern, strict=True):
            if code == CONSTANT:
                yield f"{name}.tangent is None"

    def more_values(self, leaves: Sequence[str]) -> list[str]:
        """The tangents; a value without one meets no condition of an array."""
        pairs = zip(leaves, self.pattern, strict=True)
        return [f"{name}.tangent" for name, code in pairs if code == MOVING]

    def tracer_text(self, number: int, result: Result) -> str:
        """A value and its tangent."""
        tangent = f"_o{result.extra}" if result.extra >= 0 else None
        return f"_Tracer(_top, _o{result.place}, {tangent})"


def _with_tangents(fn: Callable[..., Any], count: int) -> Signature:
    """The first parameters of a function, and one for the tangents."""
    try:
        found = [p.name for p in signature(fn).parameters.values() if p.kind in _ONE]
    except (TypeError, ValueError):  # of a ufunc, say
        found = []
    names = [*found[:count], *(f"argument{i}" for i in range(len(found), count))]
    return Signature([Parameter(name, _ONE[1]) for name in (*names, "tangents")])


_ONE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
