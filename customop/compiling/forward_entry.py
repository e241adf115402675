"""Compiled functions under `vmap` and `jvp`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar

from customop.compiling.entries import CallArguments, calls_text
from customop.compiling.forward import CONSTANT, MOVING, WithinJvp, WithinVmap
from customop.compiling.level_entry import LevelEntry, TakenApart
from customop.compiling.within import PLAIN, Result
from customop.core.tracer import Tracer
from customop.transforms.batch import BatchTracer
from customop.transforms.jvp import JvpTracer

if TYPE_CHECKING:
    from customop.compiling.levels import Levels

__all__ = ["JvpEntry", "VmapEntry"]


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
