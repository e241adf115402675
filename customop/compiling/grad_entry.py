"""A compiled function under reverse mode: its forward and backward graph for one kind of arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU, device_of, is_array, is_traced
from customop.arrays.pytree import Structure, key_orders, unflatten
from customop.compiling.calls import Call, CallLines, give_miss, symbolic_axes
from customop.compiling.capturing import CapturedCall
from customop.compiling.checked import captured_alone, capturing, outside_of_modes
from customop.compiling.entries import CallArguments, Entry, calls_text
from customop.compiling.free import fixed_numbers, free_axes, free_numbers
from customop.compiling.joint import Arrived, Joint, JointHalves, Pattern
from customop.compiling.lifts import Lift
from customop.compiling.parameters import Parameters, identifier
from customop.compiling.tape import BackwardCode, CompiledNode
from customop.core.boxes import Pinned, frozen, pin
from customop.errors import GradientError, GraphError, counted
from customop.graph.module import GraphModule
from customop.graph.unpack import Pack, Unpack, packer, unpacker
from customop.transforms.autograd.interpreter import GradInterpreter
from customop.transforms.autograd.node import Output
from customop.transforms.autograd.tracer import GradTracer
from customop.transforms.trace.interpreter import fake_of

if TYPE_CHECKING:
    from customop.compiling.gradients import Gradients

__all__ = ["GradEntry"]


class GradEntry(Entry):
    """The two graphs for one kind of arguments.

    Attributes
    ----------
    pattern : tuple of int
        Which arguments have gradients.
    joint : Joint
    halves : JointHalves or None
        None where the function itself runs.
    """

    cannot = "its gradient cannot be compiled"
    pack: Pack
    kind: Any
    family: Any
    arguments: dict[str, str]
    found: CapturedCall | None
    refused: BaseException | None
    code_of_backend: Any

    def __init__(
        self,
        owner: Gradients,
        given: CallArguments,
        pattern: Pattern,
        is_nested: bool,
        around: Any,
    ) -> None:
        super().__init__(given, owner.fn, around)
        self.owner: Gradients = owner
        # Whether it is for values of other transforms, which are fake arrays here.
        self._is_nested: bool = is_nested
        texts = self.arguments.items()
        self.arguments = {key: t.removeprefix("FakeArray ") for key, t in texts}
        self.pattern: Pattern = pattern
        self.joint: Joint = Joint(owner.fn, pattern, may_view=owner.is_lift)
        self.halves: JointHalves | None = None
        self.guarded: Call = give_miss
        # Arguments without their data, to capture the function once more.
        self._like: list[Any] = [_without_data(v) for v in given.leaves]
        self._structure: Structure = given.structure
        # Takes the arguments apart; None for others.
        example: Any = (given.args, given.kwargs)
        has_order = any(len(keys) > 1 for keys in key_orders(example))
        self.unpack: Unpack = unpacker(
            given.structure,
            f"arguments of {owner.title}",
            example=example if has_order else None,
        )
        # For gradients of all results, and no sums.
        self.usual: BackwardCode | None = None
        # What a backward graph is given, and shapes -> its code.
        self._backward: dict[Any, BackwardCode] = {}
        self._free: Mapping[int, Sequence[int]] = {}

    @property
    def size(self) -> str:
        """How many operators both graphs call, and how many arrays the first one saves."""
        if self.halves is None:
            return ""
        forward, backward = map(calls_text, self.halves[:2])
        saved = counted(len(self.halves.saved), "array")
        where = ", inside of other transforms" if self._is_nested else ""
        return f"{forward} forward, which save {saved}, and {backward} backward{where}"

    @property
    def text(self) -> str:
        """The Python code of its graphs; empty without one."""
        if self.halves is None:
            return ""
        codes = [code.text for code in [*self._backward.values()]]
        return "\n".join([super().text, *codes])

    # ---- making it ----

    def capture(self, given: CallArguments, entries: Sequence[Entry]) -> None:
        """Capture and split the function; note the reason if it cannot be done."""
        try:
            self._capture(given, entries)
        except Exception as error:  # noqa: BLE001  # any of the function
            self.refused = error
            self.halves = self.module = None
        lines = self._guards(given)
        run = _give_none if self.halves is None else self.code_of_backend
        self.guarded = lines.made_flat(run)

    def _capture(self, given: CallArguments, entries: Sequence[Entry]) -> None:
        owner = self.owner
        free = free_axes(entries, given.shapes)
        numbers = free_numbers(entries, given.numbers)
        found = captured_alone(
            self.joint.run,
            owner.title,
            given,
            self.surroundings,
            owner.sizes,
            free,
            numbers,
            self.joint.finish,
        )
        if found.written:
            raise GraphError("it writes its arguments")
        self.halves = halves = self.joint.halves(found.module)
        self.found = found._replace(
            module=halves.forward, fixed={**fixed_numbers(entries), **found.fixed}
        )
        if found.numbers:
            self.family = given.kind
        self.module = halves.forward
        self._free = symbolic_axes(halves.forward)
        if self._is_nested:
            self.joint.check_nested(found.module)
            self.lifted: Lift = owner.lift(halves.forward)
            self.code_of_backend = _give_nothing
        else:
            self.code_of_backend = owner.code(halves.forward)
        assert self.joint.structure is not None
        self.pack = packer(self.joint.structure, f"result of {owner.title}")

    def _guards(self, given: CallArguments) -> CallLines:
        names = tuple([f"v{i}" for i in range(len(given.leaves))])
        title = identifier(self.owner.title)
        parameters = Parameters(", ".join(names), names, {}, title, False)
        lines = CallLines(parameters, give_miss)
        lines.leaves = [*names]
        found = self.found
        if found is None or self.module is None:
            free = {i: range(len(shape)) for i, shape in enumerate(given.shapes)}
            lines.check_leaves(given.leaves, free)
            return lines
        lines.check_leaves(given.leaves, self._free, found.numbers)
        lines.check_surroundings(self.surroundings)
        lines.check_sizes(self.module)
        if found.has_strides:
            lines.check_strides(given.leaves, self._free)
        return lines

    # ---- running it ----

    def record(
        self, top: GradInterpreter, leaves: Sequence[Any], outs: Sequence[Any]
    ) -> Any:
        """The result, from the values of the forward graph; notes how to go back."""
        joint, found = self.joint, list[Any]()
        node = self._node(top, leaves, outs) if joint.ends else None
        metas: list[Any] = []
        for place, source, moves, is_tracer, is_pinned in joint.results:
            if place < 0:
                count = len(leaves)
                found.append(
                    leaves[source] if source < count else found[source - count]
                )
                continue
            value = outs[place]
            if moves and node is not None:
                end = self._end(node, value, metas)
                value = GradTracer(top, value, end)
            elif is_tracer:
                value = GradTracer(top, value, None)
            if is_pinned:
                _pin(value)
            found.append(value)
        return self.pack(found)

    def _end(self, node: CompiledNode, value: Any, metas: list[Any]) -> Any:
        """What gradients of a result come to: the node, or one of its outputs."""
        ends = self.joint.ends
        if len(ends) == 1:
            node.node_shape, node.node_dtype = value.shape, value.dtype
            return node
        number = len(metas)
        metas.append((value.shape, value.dtype, ends[number]))
        node.node_metas = metas
        return Output(node, number, metas[number])

    def _node(
        self, top: GradInterpreter, leaves: Sequence[Any], outs: Sequence[Any]
    ) -> CompiledNode:
        """The node of a call, with what the backward graph needs."""
        assert self.halves is not None
        joint = self.joint
        node = self.owner.nodes([(i, (), leaves[i].node) for i in joint.moving])
        node.node_entry = self
        kept = [frozen(_below(leaves[i], top)) for i in self.halves.kept]
        node.saved_arrays = (*kept, *outs[joint.count :])
        node.node_is_nested = self._is_nested
        if self._free:
            node.node_shapes = tuple([_shape_of(_lowered(v)) for v in leaves])
        return node

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
        joint, module, key = self.joint, self.halves.backward, arrived
        if not all(arrived.cotangents) or any(arrived.sums):
            joint = Joint(self.owner.fn, self.pattern, arrived)
            module, key = self._captured_again(joint, arrived, shapes)
        count = len(module.inputs)
        lift = self.owner.lift(module)
        run = module.run_list if self._is_nested else self.owner.code(module)
        title, gets = self.owner.title, joint.has_gradient
        code = BackwardCode(module, run, count, title, gets, lift)
        self._backward[key] = code
        if joint is self.joint:
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


def _pin(result: Any) -> None:
    """Note that a result is an array of its own; one that is read-only stays so."""
    below = _lowered(result)
    if type(below) is np.ndarray and not below.flags.writeable:
        result.box_place = Pinned(below.strides, is_sealed=True)
    else:
        pin(result)


def _lowered(leaf: Any) -> Any:
    return leaf.below if is_traced(leaf) else leaf


def _below(leaf: Any, top: GradInterpreter) -> Any:
    return leaf.below if is_traced(leaf) and leaf.interpreter is top else leaf


def _shape_of(value: Any) -> tuple[int, ...]:
    return value.shape if is_array(value) else ()


def _without_data(value: Any) -> Any:
    return fake_of(value) if is_array(value) and value.shape else value


def _of_shape(like: Any, shape: Sequence[int]) -> Any:
    """An array that nobody reads; arrays of symbolic sizes lie in memory in C order."""
    if device_of(like) == CPU.name:
        return np.empty(shape, like.dtype)
    return FakeArray(shape, like.dtype, device=device_of(like))


def _give_nothing(*leaves: Any) -> tuple[Any, ...]:
    """The code of an entry for values of other transforms, which are not the leaves."""
    return ()


def _give_none(*leaves: Any) -> None:
    """The code of an entry for which the function runs as it is."""
