"""What operators say about the axes of their chunks, and checks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from customop.core.rule_kind import COMPOSITE
from customop.core.shape_rules import result_types
from customop.core.table import RuleTable
from customop.errors import RegistrationError, did_you_mean, quoted, shown
from customop.frozen import Frozen
from customop.schema.types import shapes_in

# An axis: its name in the shapes of the schema, or its number where there are none.
AxisName: TypeAlias = str | int
# How many elements before and after its own place an element of the result depends on.
Reach: TypeAlias = int | tuple[int, int]

COMBINATIONS = ("sum", "max", "min")
BOUNDARIES = ("none", "periodic", "reflect", "nearest")


class Declaration(Frozen):
    """What an operator says about the axes of its chunks; see `register_chunks`.

    Attributes
    ----------
    overlap : dict
        Axis -> reach, or a function that returns it.
    boundary : dict
        Axis -> kind of boundary.
    combine : dict
        Axis -> how the results of chunks along it are combined.
    on_all : int, tuple or None
        The reach along every axis of every array.
    kind : object
        The kind of boundary of axes that `boundary` does not name.
    gradient : str
        What computes gradients: "chunks" or "formula".
    """

    overlap: Mapping[AxisName, Any]
    boundary: Mapping[AxisName, Any]
    combine: Mapping[AxisName, str]
    on_all: Any
    kind: Any
    gradient: str

    @property
    def axes(self) -> tuple[AxisName, ...]:
        """All axes that are named."""
        return (*self.overlap, *self.combine)

    @property
    def has_gradient(self) -> bool:
        """Whether the gradient of the result is made of gradients of chunks."""
        return self.gradient == "chunks" and all(
            how == "sum" for how in self.combine.values()
        )


def declaration(
    op: RuleTable, overlap: Any, boundary: Any, combine: Any, gradient: str
) -> Declaration:
    """Return the declaration, whose parts are of the right classes."""
    by_axis = dict(overlap) if isinstance(overlap, Mapping) else {}
    on_all = None if isinstance(overlap, Mapping) else overlap
    kinds = dict(boundary) if isinstance(boundary, Mapping) else {}
    kind = "none" if isinstance(boundary, Mapping) else boundary
    combined = dict(combine or {})
    if not by_axis and on_all is None and not combined:
        raise _refused(op, "says nothing", 'write overlap={"n": 1}, or combine=')
    if on_all is not None and combined:
        raise _refused(
            op,
            "says that it reaches along all axes, and that it combines some",
            "name the axes of the overlap: overlap={...}",
        )
    for reach in [*by_axis.values(), *([] if on_all is None else [on_all])]:
        if not callable(reach):
            pair_of(op, reach)
    for each in (kind, *kinds.values()):
        is_number = isinstance(each, int | float | complex) and type(each) is not bool
        if not is_number and each not in BOUNDARIES:
            near = did_you_mean(each, BOUNDARIES) if isinstance(each, str) else ""
            raise _refused(
                op,
                f"has the boundary {shown(each)}{near}",
                f"write one of {quoted(BOUNDARIES)}, or a number",
            )
    for each in combined.values():
        if each not in COMBINATIONS:
            near = did_you_mean(each, COMBINATIONS) if isinstance(each, str) else ""
            raise _refused(
                op,
                f"combines chunks by {shown(each)}{near}",
                f"write one of {quoted(COMBINATIONS)}; for results that are concatenated"
                " write overlap={axis: 0}",
            )
    if gradient not in ("chunks", "formula"):
        raise _refused(
            op,
            f"computes gradients by {shown(gradient)}",
            'write gradient="chunks" or gradient="formula"',
        )
    found = Declaration(by_axis, kinds, combined, on_all, kind, gradient)
    _check_axes(op, found)
    return found


def pair_of(op: RuleTable, reach: Any) -> tuple[int, int]:
    """Return a reach as two numbers; raise if it is not one."""
    pair = (reach, reach) if isinstance(reach, int | np.integer) else reach
    if not (
        isinstance(pair, tuple)
        and len(pair) == 2
        and all(isinstance(n, int | np.integer) and n >= 0 for n in pair)
        and not any(isinstance(n, bool) for n in pair)
    ):
        raise _refused(
            op,
            f"reaches {shown(reach)} elements along an axis",
            "write a number of elements, 0 or more, or two: (before, after)",
        )
    return int(pair[0]), int(pair[1])


def _check_axes(op: RuleTable, declared: Declaration) -> None:
    """Raise unless the operator has the axes that are named."""
    if COMPOSITE in op.rows or op.schema.written:
        why = "writes its arguments" if op.schema.written else "is made of operators"
        raise _refused(op, f"{why}, so it does not run on chunks", "leave it out")
    strangers = [axis for axis in declared.boundary if axis not in declared.overlap]
    if strangers:
        raise _refused(
            op,
            f"has a boundary along {shown(strangers[0])}, which overlap= does not name",
            "write the axis in overlap= too",
        )
    if not op.schema.has_shapes:
        _check_numbers(op, declared)
        return
    if declared.on_all is not None:
        raise _refused(
            op,
            "has names for its axes",
            'say how far it reaches along each: overlap={"n": 1}',
        )
    types = result_types(op.schema)
    if types is None:
        raise _refused(
            op, "has a result without a shape", "write the shape of each result"
        )
    given = [s for p in op.schema.parameters for s in shapes_in(p.type)]
    known = names_of(given)
    for axis in declared.axes:
        if axis not in known:
            near = did_you_mean(axis, known) if isinstance(axis, str) else ""
            raise _refused(
                op,
                f"has no axis {shown(axis)}{near}",
                f"name an axis of its arguments: {quoted(known)}",
            )
        results = [t.shape for t in types if t.shape is not None]
        having = [axis in names_of([shape]) for shape in results]
        if axis in declared.overlap and not all(having):
            raise _refused(
                op,
                f"has a result without the axis '{axis}', so chunks along it cannot be"
                " concatenated",
                f'write combine={{"{axis}": "sum"}} if they are added',
            )
        if axis in declared.combine and any(having):
            raise _refused(
                op,
                f"has a result with the axis '{axis}', so chunks along it are not"
                f" combined by {declared.combine[axis]}",
                f'write overlap={{"{axis}": 0}} if they are concatenated',
            )


def _check_numbers(op: RuleTable, declared: Declaration) -> None:
    """Raise unless all axes are numbers."""
    for axis in declared.axes:
        if type(axis) is not int:
            raise _refused(
                op,
                f"has no axis {shown(axis)}: its schema has no shapes",
                "write the shapes of its arrays in the schema, or the number of the axis",
            )
    if declared.overlap and declared.combine:
        raise _refused(
            op,
            "combines chunks along some axes and concatenates them along others",
            "write the shapes of its arrays in the schema, and name the axes",
        )


def names_of(shapes: Sequence[Any]) -> list[str]:
    """Return the names that are the length of an axis."""
    found = [axis.length for shape in shapes for axis in shape.axes]
    return list(dict.fromkeys(n for n in found if isinstance(n, str)))


def _refused(op: RuleTable, what: str, do: str) -> RegistrationError:
    return op.error(
        RegistrationError,
        f"register_chunks: the operator {what}",
        do=do,
        parameter=None,
        kind="dask",
    )
