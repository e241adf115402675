"""Runs over blocks, with the warnings and errors of calls that run one by one.

NumPy tells a function of ours which flags each call of a block raises. After the last
block every flag of a call is reported once, in the order of the calls.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from customop.arrays.fake import FakeArray
from customop.compiling.numpy_backend.call_text import out_of
from customop.compiling.numpy_backend.elementwise_runs import (
    CallRun,
    is_worth_it,
    limits,
)
from customop.compiling.numpy_backend.run_plans import (
    BlockBody,
    Plan,
    cuts_of,
    fold_arrays,
    packed_order,
    strides_of,
)
from customop.core.codegen import generate
from customop.graph.node import Node

# ---- flags of the processor ----
# Warnings and errors of a run, as if its calls ran one by one.


_Mode = Literal["ignore", "warn", "raise", "call"]
# In the order in which NumPy reports them.
_TEXTS: Mapping[str, str] = {
    "divide": "divide by zero",
    "over": "overflow",
    "under": "underflow",
    "invalid": "invalid value",
}


class Errors(NamedTuple):
    """How the user wants floating-point flags reported: arguments of `numpy.errstate`.

    Attributes
    ----------
    modes : mapping
        As the user has set them.
    strict, recording : dict
        With errors, and with calls, where they are not ignored.
    """

    modes: Mapping[str, str]
    strict: dict[str, Any]
    recording: dict[str, Any]


_known: dict[tuple[str, ...], Errors] = {}


def usual_errors() -> Errors | None:
    """Return the user's settings; None if flags are printed, logged or go to a function."""
    key: Any = (*np.geterr().values(),)
    found = _known.get(key)
    if found is None:
        modes = dict(zip(_TEXTS, key, strict=True))
        if not {"ignore", "warn", "raise"}.issuperset(key):
            return None
        strict = {k: "ignore" if v == "ignore" else "raise" for k, v in modes.items()}
        calls = {k: "ignore" if v == "ignore" else "call" for k, v in modes.items()}
        found = _known[key] = Errors(modes, strict, calls)
    return found


class Flags:
    """The flags of the calls of a function.

    Attributes
    ----------
    found : dict
        Line -> texts of its flags.
    """

    def __init__(self, function: Any, nodes: Mapping[int, Node]) -> None:
        self._code: Any = function.__code__
        self._nodes: Mapping[int, Node] = nodes
        self.found: dict[int, set[str]] = {}

    def note(self, text: str, _: int) -> None:
        """Note a flag; NumPy calls this."""
        frame = sys._getframe(1)  # the line that NumPy was called from
        assert frame.f_code is self._code
        self.found.setdefault(frame.f_lineno, set()).add(text)

    def report(self, errors: Errors) -> None:
        """Warn of the flags, or raise, as NumPy would have done at each call."""
        known: dict[Node, set[str]] = {}
        for line in sorted(self.found):
            known.setdefault(self._nodes[line], set()).update(self.found[line])
        for node, texts in known.items():
            for name, text in _TEXTS.items():
                if text in texts:
                    _report(
                        node,
                        f"{text} encountered in {_called(node)}",
                        errors.modes[name],
                    )


def _called(node: Node) -> str:
    """Return the name of a call in NumPy's messages."""
    return "cast" if node.target.name == "astype" else str(node.target.name)


def _report(node: Node, text: str, mode: str) -> None:
    if mode == "raise":
        error = FloatingPointError(text)
        place = node.meta.get("place", "an unknown place")
        error.add_note(f"in the node '{node.name}', traced at {place}")
        raise error
    # The line of the generated code, as for the other calls.
    warnings.warn(text, RuntimeWarning, stacklevel=4)


# ---- runs over blocks ----
# Each block of the operands goes through all calls while it is in cache.
#
# It is decided at each call, by the sizes and strides that come, and once for those.


_MOST_PLANS: Final = 64

# Ufuncs that take several times the time of a sum while their operands are in cache.
_SLOW: Final = frozenset(
    (
        *("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "log"),
        *("log2", "log10", "log1p", "cbrt", "arcsin", "arccos", "arctan", "arcsinh"),
        *("arccosh", "arctanh", "hypot", "arctan2", "power", "float_power"),
        *("logaddexp", "logaddexp2"),
        *("divide", "sqrt", "reciprocal", "floor_divide", "remainder"),
    )
)


class BlockRun:
    """A run as a function of a list of its operands, which it empties.

    Parameters
    ----------
    run : CallRun

    Attributes
    ----------
    one_by_one : callable
        Does the same by one call of NumPy after the other.
    first : callable or None
        Gives the values of the small calls, from the same list.
    """

    def __init__(self, run: CallRun) -> None:
        self.run: CallRun = run
        self.one_by_one: Callable[[list[Any]], Sequence[Any]] = list
        self.first: Callable[[list[Any]], Sequence[Any]] | None = None
        self._body: BlockBody = BlockBody(run)
        self._reusing: BlockBody = BlockBody(run, reuses_results=True)
        # Results are written to memory at the last call, or at the first one if they are
        # scratch: the slower one hides it better. (sqrt(x * x + y * y) takes 8 % more time
        # with its result as scratch, a chain of sums and products 5 % less.)
        self._ends_slower: bool = any(
            _is_slow(m) > _is_slow(run.members[0]) for m in self._body.results
        )
        held = {n: i for i, n in enumerate([*run.given, *run.before])}
        picks = [held[n] for n in self._body.given]
        # None where all are taken in order.
        self._picks: list[int] | None = picks if picks != [*range(len(held))] else None
        own = {n: i for i, n in enumerate([*self._body.results, *run.before])}
        self._returns: list[int] = [own[n] for n in run.results]
        # Result -> number of the operand that takes it.
        self._written: dict[Node, int] = {
            node: self._body.given.index(out)
            for node in self._body.results
            if (out := out_of(node)) is not None
        }
        self._plans: dict[Any, Plan | None] = {}
        # Body -> its function.
        self._functions: dict[BlockBody, Any] = {}

    def __call__(self, given: list[Any]) -> Sequence[Any]:
        """Run it."""
        errors = usual_errors()
        if errors is None:
            return self.one_by_one(given)
        first: Sequence[Any] = ()
        if self.first is not None:
            try:
                with np.errstate(**errors.strict):
                    first = self.first(given)
            except Exception:  # noqa: BLE001  # it comes again, in its turn
                return self.one_by_one(given)
        held = [*given, *first]
        values = held if self._picks is None else [held[i] for i in self._picks]
        plan = self._plan_for(values)
        if plan is None:
            del held, values
            return self.one_by_one(given)
        del held
        outs, are_new = self._outs(plan, values, given)
        given.clear()
        function = self._function_of(plan.body)
        flags = Flags(function, plan.body.nodes)
        with np.errstate(**errors.recording, call=flags.note):
            plan.go(function, values, outs, are_new)
        if flags.found:
            flags.report(errors)
        return [[*outs, *first][i] for i in self._returns]

    # ---- plans ----

    def _plan_for(self, values: Sequence[Any]) -> Plan | None:
        key = tuple(
            [(v.shape, v.strides) if type(v) is np.ndarray else type(v) for v in values]
        )
        try:
            return self._plans[key]
        except KeyError:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._plan(values)
            return plan

    def _plan(self, values: Sequence[Any]) -> Plan | None:
        """Return how to go over such operands; None to run the calls one by one."""
        arrays = [v for v in values if type(v) is np.ndarray and v.ndim]
        if not arrays or any(type(v) in (int, float) for v in values):
            return None  # of a number of Python, NumPy may warn that it overflows
        shape = np.broadcast_shapes(*[v.shape for v in arrays])
        size = math.prod(shape)
        new = [m for m in self._body.results if m not in self._written]
        bytes_ = sum(v.nbytes for v in arrays)
        bytes_ += size * sum(m.val.dtype.itemsize for m in new)
        if not is_worth_it(bytes_, len(self.run.members)):
            return None
        if self._written and size < limits.in_place:
            return None
        orders = {*self._orders(values, shape), *self._orders_written(values, shape)}
        if len(orders) != 1 or None in orders:
            return None
        (order,) = orders
        assert order is not None
        pairs = [(v.shape, v.strides) for v in arrays]
        sizes = strides_of([shape[i] for i in order], 1)
        out = tuple(sizes[np.argsort(order)].tolist())
        lengths, folds = fold_arrays(shape, order, [*pairs, (shape, out)])
        rest = iter(folds)
        of_values = [
            next(rest) if type(v) is np.ndarray and v.ndim else None for v in values
        ]
        widest: int = max(m.val.dtype.itemsize for m in self.run.members)
        count = len(arrays) + len(self._body.results)
        body, usual, most = self._blocks(size, widest, count)
        cuts = cuts_of(lengths, usual, most)
        if cuts is None:
            return None
        return Plan(shape, order, of_values, folds[-1], cuts, body)

    def _orders(
        self, values: Sequence[Any], shape: tuple[int, ...]
    ) -> Iterator[tuple[int, ...] | None]:
        """Go through the results, with the order of axes that NumPy would give each."""
        if len(shape) == 1 or all(_is_in_c_order(v) for v in values):
            ones = [i for i, n in enumerate(shape) if n == 1]
            yield (*ones, *[i for i, n in enumerate(shape) if n != 1])
            return
        known: dict[Node, Any] = {
            node: FakeArray(v.shape, v.dtype, v.strides)
            if type(v) is np.ndarray
            else FakeArray((), node.val.dtype)
            for node, v in zip(self._body.given, values, strict=True)
        }
        for member in self.run.members:
            operands = [known[v] if isinstance(v, Node) else v for v in member.values()]
            found = known[member] = member.target.run(*operands)
            if member in self._body.results:
                yield packed_order(found.shape, found.strides, found.dtype.itemsize)

    def _orders_written(
        self, values: Sequence[Any], shape: tuple[int, ...]
    ) -> Iterator[tuple[int, ...] | None]:
        """Go through arrays that are written, with the order of their axes, or None."""
        for at in self._written.values():
            v = values[at]
            is_whole = type(v) is np.ndarray and v.shape == shape
            yield packed_order(shape, v.strides, v.itemsize) if is_whole else None

    def _blocks(self, size: int, widest: int, count: int) -> tuple[BlockBody, int, int]:
        """Return the body, how many elements a block has, and how many it may have."""
        body = self._reusing
        is_alone = not body.scratch and size * widest * count <= limits.alone
        if is_alone or size * widest <= limits.whole:
            return body, size, size  # what is written stays in cache
        body = self._body if self._ends_slower else body
        share = limits.together // (count + len(body.scratch))
        usual = max(min(share, limits.most), limits.least) // widest
        return body, usual, max(limits.together // widest, usual)

    # ---- running ----

    def _outs(
        self, plan: Plan, values: list[Any], given: list[Any]
    ) -> tuple[list[np.ndarray[Any, Any]], bool]:
        """Return arrays for the results, and whether all are new."""
        outs: list[np.ndarray[Any, Any]] = []
        taken: set[int] = set()
        for node, takes in zip(self._body.results, self._body.takes, strict=True):
            found = values[self._written[node]] if node in self._written else None
            for i in () if found is not None else takes:
                # Held by `given`, by `values`, and by the argument of the call.
                is_free = i not in taken and sys.getrefcount(values[i]) == _HELD
                if is_free and _is_like_result(values[i], plan, node.val.dtype):
                    found = values[i]
                    taken.add(i)
                    break
            outs.append(plan.empty(node.val.dtype) if found is None else found)
        return outs, not taken and not self._written

    def _function_of(self, body: BlockBody) -> Any:
        if body not in self._functions:
            title = f"blocks of {self.run.members[-1].name}"
            made = generate(title, body.text, "body", body.names)
            self._functions[body] = made
        return self._functions[body]


def _is_slow(member: Node) -> bool:
    return member.target.name in _SLOW


def _held_by_run() -> int:
    """Return the count of references to a value that nothing but a run holds."""
    given = [np.empty(1)]
    values = [*given]
    return sys.getrefcount(values[0])


# Versions of Python count differently.
_HELD: Final = _held_by_run()


def _is_in_c_order(value: Any) -> bool:
    """Return whether an operand leaves the results in C order."""
    return type(value) is not np.ndarray or value.flags.c_contiguous


def _is_like_result(value: Any, plan: Plan, dtype: np.dtype[Any]) -> bool:
    """Return whether an operand is an array of its own, laid out as the results."""
    if type(value) is not np.ndarray or value.base is not None:
        return False
    if value.shape != plan.shape or value.dtype != dtype or not value.flags.writeable:
        return False
    return packed_order(value.shape, value.strides, dtype.itemsize) == plan.order
