"""Guards: what a graph checks of its inputs, and of results that it has as constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from customop.arrays.array import (
    all_plain,
    axis_order,
    dtype_of,
    packed_strides,
    strides_of,
)
from customop.arrays.fake import FakeArray
from customop.arrays.kinds import check_own_rules, has_own_rules, is_array, is_traced
from customop.arrays.nested import abbreviated, describe, show
from customop.core.tracer import strides_of_box
from customop.errors import GuardError
from customop.frozen import Frozen
from customop.graph.node import CALL, ITEM, PLACEHOLDER, Node, caller_of
from customop.shapes.sizes import Symbolic

# ---- guards: what a graph checks of its inputs before it runs ----


class AnyGenerator:
    """Marks an input that may be any random generator."""

    def __repr__(self) -> str:
        return "a random generator"


GENERATOR = AnyGenerator()


class InputGuard(Frozen):
    """The condition that an input must meet.

    Attributes
    ----------
    source : str
        The input as the user would write it, such as ``x`` or ``params['w']``.
    expected : object
        A `FakeArray` for an array, else the value itself.
    place : str
        Where the graph was traced.
    has_strides : bool
        Whether its strides have decided what is a view, and must be the same.
    """

    source: str
    expected: Any
    place: str = ""
    has_strides: bool = False

    def __str__(self) -> str:
        return f"{self.source} is {self._text_of(self.expected)}"

    def _text_of(self, value: Any) -> str:
        shown = _shown(value)
        if not self.has_strides or not is_array(value):
            return shown
        return f"{shown} with strides {_strides(value)}"

    def holds(self, value: Any) -> bool:
        """Return whether a value may be the input."""
        return not self.reason(value)

    def reason(self, value: Any) -> str:
        """Return why a value cannot be the input; empty if it can."""
        expected = self.expected
        if expected is None:
            return ""
        if isinstance(expected, Symbolic):
            is_right = type(value) is type(expected.hint)
            return "" if is_right else "another kind of number"
        if isinstance(expected, AnyGenerator):
            is_right = isinstance(value, np.random.Generator)
            return "" if is_right else "what is not a random generator"
        if not isinstance(expected, FakeArray):
            return "" if _is_same(value, expected) else "another value"
        misfit = _misfit(value, expected)
        if misfit or not self.has_strides:
            return misfit
        return "other strides" if _lies_otherwise(value, expected) else ""

    def check(self, value: Any) -> None:
        """Raise unless a value may be the input."""
        reason = self.reason(value)
        check_own_rules(value, f"the graph's argument {self.source}", GuardError)
        if reason:
            raise GuardError(
                f"the graph is called with {reason}: {self.source} is"
                f" {self._text_of(value)}",
                f"it was traced with {self._text_of(self.expected)}"
                + (f" at {self.place}" if self.place else ""),
                *([_WHY_STRIDES] if self.has_strides else []),
                do="trace the function again for such arguments",
            )


_WHY_STRIDES = "strides decide whether a result that is written is a view"


def _shown(value: Any) -> str:
    """Return a value in a message; of an array the dtype and shape."""
    if isinstance(value, FakeArray):
        return abbreviated(value)
    return describe(value) if is_array(value) else show(value)


def _misfit(value: Any, expected: FakeArray) -> str:
    """Return why a value does not fit the array that was traced; empty if it does."""
    if not is_array(value):
        return "what is not an array"
    if has_own_rules(type(value)):
        return "another class of array"
    if dtype_of(value) != expected.dtype:
        return "another dtype"
    if len(value.shape) != len(expected.shape):
        return "another number of axes"
    pairs = zip(value.shape, expected.shape, strict=True)
    is_fit = all(type(b) is not int or a == b for a, b in pairs)
    return "" if is_fit else "another shape"


def _strides(value: Any) -> Sequence[Any]:
    found: Sequence[Any] = (
        strides_of_box(value) if is_traced(value) else strides_of(value)
    )
    return found


def _lies_otherwise(value: Any, expected: FakeArray) -> bool:
    """Return whether an array of the right shape has other strides."""
    shape, wanted = tuple(value.shape), expected.strides
    if not all_plain((*expected.shape, *shape)):  # it was traced with a dense array
        order = axis_order(expected.shape, wanted)
        wanted = packed_strides(shape, order, expected.dtype.itemsize)
    if any(type(n) is int and n == 0 for n in shape):
        return False
    triples = zip(shape, _strides(value), wanted, strict=True)
    return any(n != 1 and a != b for n, a, b in triples)


def _is_same(value: Any, expected: Any) -> bool:
    """Return whether a value equals the traced one, nan included."""
    if value is expected:
        return True
    if type(value) is not type(expected):
        return False
    both_nan = value != value and expected != expected  # noqa: PLR0124  # nan
    return bool(value == expected or both_nan)


def guards_of(inputs: Sequence[Node], place: str) -> list[InputGuard]:
    """Return the guards of the inputs of a graph, in order."""
    return [
        InputGuard(
            node.meta.get("source", node.name),
            node.val,
            place,
            node.meta.get("has_strides", False),
        )
        for node in inputs
    ]


def guard_strides(nodes: Iterable[Node]) -> None:
    """Have a graph check all strides that those of some of its nodes depend on.

    The strides of these nodes have decided what is a view. They follow from those of
    inputs, and of results of operators whose fake kernels are not the package's.
    """
    waiting = [*nodes]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if isinstance(node.val, FakeArray):
            if node.op == PLACEHOLDER:
                node.meta["has_strides"] = True
            elif not _is_proven(node):
                node.meta["must_lie"] = node.val
        new = [n for n in node.inputs if n not in seen]
        seen.update(new)
        waiting += new


# Namespaces of operators whose fake kernels give the strides that the kernels give:
# the tests of the package compare all of them.
_PROVEN = ("np", "scipy")


def _is_proven(node: Node) -> bool:
    """Return whether the strides of a node are known without a look at the array."""
    if node.op not in (CALL, ITEM):
        return True  # constants are the graph's own
    return getattr(caller_of(node).target, "namespace", "") in _PROVEN


class ApartGuard(Frozen):
    """Inputs that are written at the end, which must not share memory with others.

    Attributes
    ----------
    sources : sequence of str
        The inputs as the user would write them: first those that are written.
    written : int
        How many of them are written.
    place : str
        Where the graph was traced.
    """

    sources: Sequence[str]
    written: int
    place: str = ""

    def check(self, *values: Any) -> None:
        """Raise if a written input shares memory with another one."""
        for i, value in enumerate(values[: self.written]):
            for j in range(i + 1, len(values)):
                if _is_shared(value, values[j]):
                    raise GuardError(
                        f"{self.sources[i]}, which the graph writes, and {self.sources[j]}"
                        " share memory",
                        "they did not when it was traced"
                        + (f", at {self.place}" if self.place else ""),
                        do="pass a copy of one of them",
                    )


def _is_shared(a: Any, b: Any) -> bool:
    """Return whether two arrays of NumPy may lie in the same memory."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    if a is not b and a.flags.owndata and b.flags.owndata:
        return False
    return bool(np.may_share_memory(a, b) and np.shares_memory(a, b))


def apart_guard(
    inputs: Sequence[Node], written: Sequence[Node], place: str
) -> tuple[list[Node], ApartGuard] | None:
    """Return the guard of inputs that are written and its nodes, if one is needed."""
    arrays = [node for node in inputs if isinstance(node.val, FakeArray)]
    first = [node for node in arrays if node in written]
    if not first or len(arrays) < 2:  # two arrays can share memory
        return None
    ordered = [*first, *[node for node in arrays if node not in first]]
    sources = [node.meta.get("source", node.name) for node in ordered]
    return ordered, ApartGuard(sources, len(first), place)


def guard_line(
    name: str, guard: InputGuard, check: str, bind: Callable[[str, Any], str]
) -> str:
    """Return the line that checks an input, the variable `name`.

    The usual case is a condition, others are a call of `check`.
    """
    fast = _fast(name, guard, bind)
    return f"if not ({fast}): {check}({name})" if fast else f"{check}({name})"


def _fast(name: str, guard: InputGuard, bind: Callable[[str, Any], str]) -> str:
    """Return a condition for which an input is as expected; others may be, too."""
    expected = guard.expected
    if not isinstance(expected, FakeArray):
        return ""
    array, dtype = bind("ndarray", np.ndarray), bind("dtype", expected.dtype)
    # A variable of the graph may be named as the builtin.
    class_of = bind("type", type)
    parts = [f"{class_of}({name}) is {array}", f"{name}.dtype is {dtype}"]
    shape: Sequence[Any] = expected.shape
    if all(type(n) is int for n in shape):
        parts.append(f"{name}.shape == {expected.shape}")
        if guard.has_strides:
            parts.append(f"{name}.strides == {expected.strides}")
        return " and ".join(parts)
    if guard.has_strides:
        if axis_order(expected.shape, expected.strides) != [*range(len(shape))]:
            return ""
        parts.append(f"{name}.flags.c_contiguous")
    parts.append(f"{bind('len', len)}({name}.shape) == {len(shape)}")
    parts += [
        f"{name}.shape[{axis}] == {n}" for axis, n in enumerate(shape) if type(n) is int
    ]
    return " and ".join(parts)


# ---- guards of results ----


class ResultGuard(Frozen):
    """The result that a call must give, because the rest of the graph has it as a constant.

    Attributes
    ----------
    title : str
        The operator that was called.
    expected : object
        A `FakeArray` for a shape that depends on data, else the value itself.
    place : str
        The user's line.
    """

    title: str
    expected: Any
    place: str = ""

    def holds(self, value: Any) -> bool:
        """Return whether the result is as it was when the graph was traced."""
        if not isinstance(self.expected, FakeArray):
            return _is_same(value, self.expected)
        return is_array(value) and bool(value.shape == self.expected.shape)

    def check(self, value: Any) -> None:
        """Raise unless the result is as it was when the graph was traced."""
        if self.holds(value):
            return
        expected = self.expected
        is_shape = isinstance(expected, FakeArray)
        what = "a shape that depends on data" if is_shape else "a number"
        raise GuardError(
            f"{self.title} gives {what}: {_shown(value)}",
            f"it was {_shown(expected)} when the graph was traced"
            + (f", at {self.place}" if self.place else ""),
            do="trace with tracing_mode='symbolic'"
            if is_shape
            else "return an array from the operator, whose values the graph follows",
        )


class LayoutGuard(Frozen):
    """The strides that a result must have, since they have decided what is a view.

    Attributes
    ----------
    title : str
        The operator that was called.
    expected : FakeArray
        What was known of the result when the graph was traced.
    place : str
        The user's line.
    """

    title: str
    expected: FakeArray
    place: str = ""

    def holds(self, value: Any) -> bool:
        """Return whether the result has the strides that it had in the trace."""
        return not _lies_otherwise(value, self.expected)

    def check(self, value: Any) -> None:
        """Raise unless the result has the strides that it had in the trace."""
        if self.holds(value):
            return
        raise GuardError(
            f"{self.title} gives {_shown(value)} with strides {tuple(_strides(value))}",
            f"it was traced as {abbreviated(self.expected)} with strides"
            f" {self.expected.strides}" + (f" at {self.place}" if self.place else ""),
            _WHY_STRIDES,
            do="register a fake kernel that gives the strides that the kernel gives:"
            " FakeArray(shape, dtype) lies in C order, as np.empty(shape) does",
        )


def result_guards(node: Node) -> dict[str, ResultGuard | LayoutGuard]:
    """Return the guards of a result, by the facts in `meta` that they follow from."""
    if not node.is_checked:
        return {}
    found: dict[str, ResultGuard | LayoutGuard] = {}
    called = caller_of(node)
    title, where = called.target.qualname, called.meta.get("place", "")
    if "must_be" in node.meta:
        found["must_be"] = ResultGuard(title, node.meta["must_be"], where)
    if "must_lie" in node.meta:
        found["must_lie"] = LayoutGuard(title, node.meta["must_lie"], where)
    return found


def result_line(
    name: str,
    guard: ResultGuard | LayoutGuard,
    check: str,
    bind: Callable[[str, Any], str],
) -> str:
    """Return the line that checks a result; usual strides are compared without a call."""
    expected = guard.expected
    if not isinstance(guard, LayoutGuard) or not all_plain(expected.strides):
        return f"{check}({name})"
    array, class_of = bind("ndarray", np.ndarray), bind("type", type)
    fast = f"{class_of}({name}) is {array} and {name}.strides == {expected.strides}"
    return f"if not ({fast}): {check}({name})"
