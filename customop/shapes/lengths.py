"""The lengths of the names in shapes, found from the arrays of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from customop.errors import ShapeError, quoted
from customop.later import later
from customop.shapes.notation import Axis, Loop, Shape, affine, names_in
from customop.shapes.sizes import made

sizes: ModuleType = later(import_module, "customop.shapes.sizes")


class AxisFault(Exception):
    """An array does not fit its shape.

    Attributes
    ----------
    who : str
        The name of the array.
    reason : str
        Such as ``"has 5 for axis 'k', which is 4 by 'x'"``.
    do : str
        How to fix it.
    """

    def __init__(self, who: str, reason: str, do: str) -> None:
        super().__init__(reason)
        self.who = who
        self.reason = reason
        self.do = do


class Sizes:
    """Names of axes, with the lengths known so far and where they come from.

    Attributes
    ----------
    lengths : dict
        Name -> length.
    loops : dict
        Name such as ``*batch`` -> lengths of its axes.

    Examples
    --------
    >>> from customop.shapes.lengths import Sizes
    >>> from customop.shapes.notation import parse_shape
    >>> sizes = Sizes({})
    >>> sizes.add("x", parse_shape("n+1 m"), (5, 2))
    >>> sizes.settle()
    >>> sizes.lengths
    {'m': 2, 'n': 4}
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.lengths: dict[str, int] = dict(numbers)
        self.loops: dict[str, tuple[int, ...]] = {}
        self._origins = {name: f"the number '{name}'" for name in numbers}
        self._spread: dict[str, bool] = {}
        self._pending: list[tuple[str, Axis, int]] = []

    def add(self, who: str, shape: Shape, lengths: Sequence[int]) -> None:
        """Bind the names of a shape to the lengths of an array.

        Raises
        ------
        AxisFault
            If they have other lengths already, or the number of axes is wrong.
        """
        check_rank(who, shape, len(lengths))
        front = len(shape.before)
        back = len(lengths) - len(shape.after)
        for i, axis in enumerate(shape.before):
            self._add_axis(who, axis, i, lengths[i])
        for i, axis in enumerate(shape.after, back):
            self._add_axis(who, axis, i, lengths[i])
        if shape.loop is not None and shape.loop.name:
            self._add_loop(who, shape.loop, tuple(lengths[front:back]))

    def _add_axis(self, who: str, axis: Axis, index: int, length: int) -> None:
        wanted = axis.length
        if wanted is None or (axis.is_broadcast and _is_one(length)):
            return
        if isinstance(wanted, tuple):
            self._pending.append((who, axis, length))
        elif isinstance(wanted, int):
            if length != wanted:
                reason = f"has {length} for axis {index}, must have {axis}"
                raise AxisFault(who, reason, f"pass an array with {wanted} there")
        elif self.lengths.setdefault(wanted, length) != length:
            raise AxisFault(
                who,
                f"has {length} for axis '{axis}', which is {self._by(wanted)}",
                f"pass arrays with one length for '{wanted}'"
                + (", or with 1" if axis.is_broadcast else ""),
            )
        else:
            self._origins.setdefault(wanted, who)

    def _by(self, name: str) -> str:
        """Write a length and where it comes from."""
        return f"{self.lengths[name]} by {self._origins[name]}"

    # ---- any number of axes ----

    def _add_loop(self, who: str, loop: Loop, lengths: tuple[int, ...]) -> None:
        name = loop.name
        known = self.loops.get(name)
        if known is None:
            self.loops[name], self._spread[name] = lengths, loop.is_broadcast
            self._origins[f"*{name}"] = who
            return
        joint = broadcast([known, lengths])
        may_grow, may_differ = self._spread[name], loop.is_broadcast
        if joint is None or not (
            (may_grow or joint == known) and (may_differ or joint == lengths)
        ):
            raise AxisFault(
                who,
                f"has {lengths} for axes '{loop}', which are {known} by"
                f" {self._origins[f'*{name}']}",
                f"pass arrays whose axes '*{name}' NumPy can broadcast"
                if loop.is_broadcast
                else f"pass arrays with one shape for '*{name}'",
            )
        self.loops[name] = joint
        self._spread[name] = may_grow and may_differ

    # ---- sums ----

    def settle(self) -> None:
        """Check the axes that are sums, and find names that only sums have.

        Raises
        ------
        AxisFault
            If a sum has another length, or no length of a name fits.
        """
        while True:
            waiting = self._pending
            self._pending = [item for item in waiting if not self._settle(*item)]
            if len(self._pending) == len(waiting):
                return

    def _settle(self, who: str, axis: Axis, length: int) -> bool:
        """Return whether all names of a sum are known now."""
        assert axis.length is not None
        unknown = {n for n in names_in(axis.length) if n not in self.lengths}
        if len(unknown) > 1:
            return False
        name = unknown.pop() if unknown else ""
        form = affine(axis.length, name, self.lengths)
        if form is None:
            return False
        factor, rest = form
        if not factor:
            if length != rest:
                raise self._unequal(who, axis, length, rest)
            return not name
        found, left = divmod(length - rest, factor)
        if _is_nonzero(left) or _is_negative(found):
            raise AxisFault(
                who,
                f"has {length} for axis '{axis}', but no length '{name}' gives that",
                f"pass an array with a length that '{axis}' can have",
            )
        self.lengths[name] = found
        self._origins[name] = who
        return True

    def _unequal(self, who: str, axis: Axis, length: int, value: int) -> AxisFault:
        names = dict.fromkeys(names_in(axis.length))
        return AxisFault(
            who,
            f"has {length} for axis '{axis}', which is {value}, since {self._why(axis)}",
            f"pass arrays that agree on {quoted(names)}",
        )

    def _why(self, axis: Axis) -> str:
        """Write the lengths of the names of an axis, and where they come from."""
        names = dict.fromkeys(names_in(axis.length))
        return " and ".join(f"'{n}' is {self._by(n)}" for n in names)

    def negative(self, shapes: Iterable[Shape]) -> str:
        """Explain why no array has one of these shapes, or return nothing."""
        for axis in (axis for shape in shapes for axis in shape.axes):
            if any(n not in self.lengths for n in names_in(axis.length)):
                continue
            _, value = affine(axis.length or 0, "", self.lengths) or (0, 0)
            if _is_negative(value):
                is_name = isinstance(axis.length, str)
                by = self._by(str(axis.length)) if is_name else value
                since = "" if is_name else f", since {self._why(axis)}"
                return f"of the length '{axis}', which is {by}{since}"
        return ""


def check_rank(who: str, shape: Shape, rank: int) -> None:
    """Raise if an array with this number of axes cannot have a shape.

    Raises
    ------
    AxisFault
    """
    wanted = len(shape.axes)
    if rank == wanted or (shape.loop is not None and rank > wanted):
        return
    least = "at least " if shape.loop else ""
    axes = f": {shape.text}" if shape.entries else ""
    count = "1 axis" if rank == 1 else f"{rank} axes"
    raise AxisFault(
        who,
        f"has {count}, must have {least}{wanted}{axes}",
        f"pass an array with the axes {shape.text}"
        if axes
        else "pass an array without axes, such as np.asarray(1.0)",
    )


def _is_one(length: Any) -> bool:
    return length == 1 if type(length) is int else sizes.was_one(length)


def _is_nonzero(length: Any) -> bool:
    return length != 0 if type(length) is int else sizes.is_nonzero(length)


def _is_negative(length: Any) -> bool:
    return length < 0 if type(length) is int else sizes.is_negative(length)


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape that NumPy broadcasts these to, or None."""
    if made and any(map(sizes.is_symbolic, shapes)):
        try:
            return sizes.broadcast_sizes(*shapes)  # type: ignore[no-any-return]  # a shape
        except ShapeError:
            return None
    first = shapes[0] if shapes else ()
    if shapes.count(first) == len(shapes):
        return first
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def unknown_names(
    arguments: Sequence[Shape], results: Sequence[Shape], numbers: Iterable[str]
) -> list[str]:
    """Return names in the shapes of results that no argument has, such as ``*batch``.

    Parameters
    ----------
    arguments, results : sequence of Shape
    numbers : iterable of str
        Names of the parameters that are whole numbers.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from customop.shapes.lengths import unknown_names
    >>> from customop.shapes.notation import parse_shape
    >>> unknown_names([parse_shape("n+1")], [parse_shape("*b n k")], ())
    ['k', '*b']
    """
    known, _ = known_names(arguments, numbers)
    known.update(str(s.loop).replace("#", "") for s in arguments if s.loop)
    named = [s.loop.name for s in results if s.loop and s.loop.name]
    names = [*(n for s in results for n in s.names), *(f"*{n}" for n in named)]
    return [name for name in dict.fromkeys(names) if name not in known]


def why_unknown(name: str) -> str:
    """Explain the fault of a name that `unknown_names` found."""
    what = "are not axes" if name.startswith("*") else "is not a length"
    return f"'{name}' of its result {what} of any argument"


def known_names(
    shapes: Iterable[Shape], numbers: Iterable[str]
) -> tuple[set[str], list[tuple[int, Axis]]]:
    """Return the names that arrays of these shapes determine, and the sums left over.

    Each sum comes with the index of its shape.
    """
    known = set(numbers)
    waiting: list[tuple[int, Axis]] = []
    for i, shape in enumerate(shapes):
        known.update(a.length for a in shape.axes if isinstance(a.length, str))
        waiting += [(i, a) for a in shape.axes if isinstance(a.length, tuple)]
    while True:
        before = waiting
        waiting = [(i, axis) for i, axis in before if not _learns(axis, known)]
        if len(waiting) == len(before):
            return known, waiting


def _learns(axis: Axis, known: set[str]) -> bool:
    """Return whether a sum has no unknown name, or one that its length determines."""
    assert axis.length is not None
    names = set(names_in(axis.length))
    unknown = names - known
    if not unknown:
        return True
    first = min(unknown)
    if len(unknown) > 1 or affine(axis.length, first, dict.fromkeys(names, 1)) is None:
        return False
    known.add(first)
    return True
