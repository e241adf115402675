"""The body of a run: what is done for one block, written into scratch arrays.

Each value has a place: a block of a result, or a scratch array, which later values take
over when it is not needed any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop.compiling.numpy_backend.calls import (
    is_array_node,
    out_of,
    strong_operands,
)
from customop.compiling.numpy_backend.known import ufunc_of
from customop.compiling.numpy_backend.runs import CallRun, is_reusable
from customop.graph.node import Node, nodes_in

__all__ = ["BlockBody"]


class BlockBody:
    """The text of the body of a run, and what it needs.

    Parameters
    ----------
    run : CallRun
    reuses_results : bool
        Whether results serve as scratch until they are written, so that less memory is in
        use.

    Attributes
    ----------
    given : list of Node
        The operands from outside; values computed before the run are among them.
    results : list of Node
        The members whose values are used outside.
    scratch : list of dtype
        Of the scratch arrays.
    takes : list of tuple
        For each result the numbers of operands whose memory it may take over.
    names : dict
        The globals of the function.
    text : str
        The function `body` of a block of each operand, result and scratch array.
    nodes : dict
        Line of the text -> the member that it runs.
    """

    def __init__(self, run: CallRun, reuses_results: bool = False) -> None:
        self.run: CallRun = run
        own = set(run.members)
        used = [n for m in run.members for n in nodes_in(m.values())]
        used += [out for m in run.members if (out := out_of(m)) is not None]
        self.given: list[Node] = [*dict.fromkeys(n for n in used if n not in own)]
        self.results: list[Node] = [m for m in run.results if m in own]
        self.scratch: list[np.dtype[Any]] = []
        self._free: dict[np.dtype[Any], list[str]] = {}
        self._masks: dict[np.dtype[Any], str] = {}
        # Value -> the variable of its block.
        self._places: dict[Node, str] = {n: f"x{i}" for i, n in enumerate(self.given)}
        self._places |= {m: f"out{i}" for i, m in enumerate(self.results)}
        # Where results that serve as scratch arrays will be.
        self._result_at: dict[str, Node] = {}
        self._position: dict[Node, int] = {m: i for i, m in enumerate(run.members)}
        self._last: dict[Node, int] = {}
        for m in run.members:
            for n in nodes_in(m.values()):
                self._last[n] = self._position[m]
        self.takes: list[tuple[int, ...]] = [*map(self._takes, self.results)]
        for m, takes in zip(self.results, self.takes, strict=True):
            if reuses_results and not takes and out_of(m) is None:
                self._free.setdefault(m.val.dtype, []).append(self._places[m])
                self._result_at[self._places[m]] = m
        self.names: dict[str, Any] = {"copyto": np.copyto}
        self.nodes: dict[int, Node] = {}
        self._lines: list[str] = [self._head()]
        self._write(own)
        self._lines[0] = self._head()
        self.text: str = "\n".join([*self._lines, ""])

    def _takes(self, result: Node) -> tuple[int, ...]:
        """Operands that are not read after a result is written."""
        at = self._position[result]
        found = [
            i
            for i, node in enumerate(self.given)
            if is_array_node(node)
            and node.val.dtype == result.val.dtype
            and self._last.get(node, at + 1) <= at - (not _is_at_once(result))
            and is_reusable(node, self.run)
        ]
        return tuple(found)

    def _write(self, own: set[Node]) -> None:
        for at, member in enumerate(self.run.members):
            ending = [
                n for n in dict.fromkeys(nodes_in(member.values()))
                if n in own and self._last[n] == at and n not in self.results
            ]  # fmt: skip
            if member not in self._places:
                self._places[member] = self._scratch(member, ending)
            else:
                self._end_of_scratch(member)
            self._write_member(member)
            for node in ending:
                if self._places[node] != self._places[member]:
                    self._free.setdefault(node.val.dtype, []).append(self._places[node])

    def _end_of_scratch(self, result: Node) -> None:
        """Let nothing else use the memory of a result, which is written now."""
        free, place = self._free.get(result.val.dtype, []), self._places[result]
        if place in free:
            free.remove(place)
        self._result_at.pop(place, None)

    def _scratch(self, member: Node, ending: Sequence[Node]) -> str:
        """A scratch array for a value: that of an operand that ends, if it can."""
        dtype = member.val.dtype
        if _is_at_once(member):
            for node in ending:
                if node.val.dtype == dtype and self._fits(member, self._places[node]):
                    return self._places[node]
        free = self._free.get(dtype, [])
        for place in reversed(free):
            if self._fits(member, place):
                free.remove(place)
                return place
        self.scratch.append(dtype)
        return f"t{len(self.scratch) - 1}"

    def _fits(self, member: Node, place: str) -> bool:
        """Whether a value ends before a result is written to its place."""
        result = self._result_at.get(place)
        if result is None:
            return True
        at = self._position
        last = self._last.get(member, at[member])
        return last <= at[result] - (not _is_at_once(result))

    # ---- lines ----

    def _write_member(self, member: Node) -> None:
        out = self._places[member]
        name = member.target.qualname
        values = member.values()
        if name == "np::astype":
            self._add(f"copyto({out}, {self._text(values[0])}, 'unsafe')", member)
        elif name == "np::where":
            condition, x, y = [*values[:1], *_of_dtype(values[1:], member.val.dtype)]
            if is_array_node(condition) and _are_words((x, y), member.val.dtype):
                parts = [self._condition(condition), self._text(x), self._text(y), out]
                parts.append(self._spread(member.val.dtype))
                self.names["select"] = _select
                self._add(f"select({', '.join(parts)})", member)
                return
            self._add(f"copyto({out}, {self._text(y)}, 'unsafe')", member)
            where = self._condition(condition)
            self._add(f"copyto({out}, {self._text(x)}, 'unsafe', {where})", member)
        else:
            ufunc = ufunc_of(member.target)
            assert ufunc is not None
            texts = [self._text(v) for v in strong_operands(ufunc, values)]
            self.names[ufunc.__name__] = ufunc
            # NumPy 2.4 warns of three positional arguments of these.
            is_extreme = ufunc in (np.maximum, np.minimum)
            texts.append(f"out={out}" if is_extreme else out)
            self._add(f"{ufunc.__name__}({', '.join(texts)})", member)

    def _add(self, line: str, member: Node) -> None:
        self._lines.append(f"    {line}")
        self.nodes[len(self._lines)] = member

    def _text(self, value: Any) -> str:
        if isinstance(value, Node):
            return self._places[value]
        if type(value) in (bool, int):
            return repr(value)
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def _spread(self, dtype: np.dtype[Any]) -> str:
        """A scratch array for masks, of integers as wide as a dtype."""
        words = np.dtype(f"i{dtype.itemsize}")
        if words not in self._masks:
            self._masks[words] = f"t{len(self.scratch)}"
            self.scratch.append(words)
        return self._masks[words]

    def _condition(self, condition: Any) -> str:
        text = self._text(condition)
        is_mask = condition.val.dtype == np.dtype(bool)
        return text if is_mask else f"{text} != 0"

    def _head(self) -> str:
        given = [f"x{i}" for i in range(len(self.given))]
        results = [f"out{i}" for i in range(len(self.results))]
        scratch = [f"t{i}" for i in range(len(self.scratch))]
        return f"def body({', '.join([*given, *results, *scratch])}):"


def _is_at_once(member: Node) -> bool:
    """Whether each element is read before it is written: by one ufunc."""
    return member.target.qualname not in {"np::where", "np::astype"}


def _are_words(values: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    """Whether values have a dtype, whose elements are as wide as some integers."""
    own = [v.val.dtype if isinstance(v, Node) else v.dtype for v in values]
    return dtype.itemsize <= 8 and all(d == dtype for d in own)


def _select(mask: Any, x: Any, y: Any, out: Any, spread: Any) -> None:
    """Write what `numpy.where` gives to an array, with another one as scratch.

    Where a mask changes from one element to the next, a processor that has guessed wrong
    waits, for about 10 ns. So elements of such masks are taken as bits, which takes the same
    time for all of them: a tenth of `numpy.where` for a random mask.
    """
    changes = np.count_nonzero(mask[..., 1:] != mask[..., :-1])
    if changes * 32 < mask.size:
        np.copyto(out, y)
        np.copyto(out, x, where=mask)
        return
    np.copyto(spread, mask)
    np.negative(spread, spread)  # all bits are set where the mask is true
    words = spread.dtype
    bits, others = out.view(words), y.view(words)
    np.bitwise_xor(x.view(words), others, bits)
    np.bitwise_and(bits, spread, bits)
    np.bitwise_xor(bits, others, bits)


def _of_dtype(values: Sequence[Any], dtype: np.dtype[Any]) -> list[Any]:
    return [v if isinstance(v, Node) else np.array(v, dtype) for v in values]
