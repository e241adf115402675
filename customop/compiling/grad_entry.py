"""A compiled function under reverse mode: its forward and backward graph for one kind of arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import CPU, device_of, is_array
from customop.arrays.pytree import Structure, unflatten
from customop.compiling.checked import captured_alone, capturing, outside_of_modes
from customop.compiling.entries import CallArguments, calls_text
from customop.compiling.joint import CONSTANT, Arrived, Joint, JointHalves
from customop.compiling.level_entry import LevelEntry, TakenApart, lowered
from customop.compiling.tape import BackwardCode
from customop.compiling.within import PLAIN, Result
from customop.core.tracer import Tracer
from customop.errors import GradientError, counted
from customop.graph.module import GraphModule
from customop.transforms.autograd.node import Output
from customop.transforms.autograd.tracer import GradTracer
from customop.transforms.trace.interpreter import fake_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from customop.compiling.levels import Levels

__all__ = ["GradEntry"]


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
            if code == CONSTANT:
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
