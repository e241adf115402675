"""The session that all checks share: it runs an operator and compares results."""

from __future__ import annotations

import functools
import gc
import locale
import math
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter
from types import FunctionType, MethodType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from customop.arrays.array import is_inexact
from customop.arrays.convert import to_host
from customop.arrays.kinds import has_device, is_array, kind_of
from customop.arrays.nested import children, flat, map_nested
from customop.config import config
from customop.core.contract import written_of
from customop.core.dispatch import find_kernel, select
from customop.core.kernel_proof import Proof
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.core.shape_guards import argument_check
from customop.errors import OpCheckError, innermost
from customop.schema.tags import Tag
from customop.testing.close import assert_close
from customop.testing.faults import Fault
from customop.testing.inputs.sample_values import (
    CONSTANT,
    fresh,
    leaves_in,
    plain_copies,
)
from customop.testing.inputs.search import Oracle
from customop.testing.inputs.templates import call_of
from customop.testing.quiet import (
    Allowance,
    OutOfTimeError,
    about_to_run,
    numpy_state,
    tick,
)

_Restore: TypeAlias = Callable[[], object]


# ---- the session that all checks share ----
# It runs an operator on a sample and compares results.


class Session:
    """One run of opcheck on an operator.

    Attributes
    ----------
    op : Operator
    samples : list of Sample
        The inputs of the checks, smallest first.
    rtol, atol : float or None
        How close results must be; by default their dtypes decide.
    is_given : bool
        Whether the user passed or registered the samples; otherwise they were found.
    keeps_shapes : bool
        Whether the shapes of a sample belong together, because it was given as a call.
    notes : list of str
        Remarks of the running check, for the table.
    fixed : frozenset of str
        Places of arguments that the running check holds constant, because the operator
        declares no derivative by them.
    is_kept : list of bool
        For each parameter, whether the operator must not write to its argument.
    by_content : dict
        Content of arguments -> what a check found for them.
    has_overwritten : bool
        Whether the kernel was seen to write outside of its arrays.
    """

    __slots__ = (
        "_bound",
        "_check",
        "_has_one_result",
        "_known",
        "_start",
        "allowed",
        "atol",
        "began",
        "by_content",
        "costs_left",
        "fixed",
        "has_overwritten",
        "is_given",
        "is_kept",
        "keeps_shapes",
        "left_out",
        "notes",
        "op",
        "pace",
        "rtol",
        "samples",
        "seconds_left",
    )

    def __init__(
        self,
        op: Operator[..., Any],
        samples: Sequence[Sample],
        rtol: float | None = None,
        atol: float | None = None,
        *,
        is_given: bool = True,
        keeps_shapes: bool = False,
        start: KernelState | None = None,
        begins_later: bool = False,
        began: float | None = None,
        pace: float = 0.0,
    ) -> None:
        self.op: Operator[..., Any] = op
        self.samples: list[Sample] = list(samples)
        self.rtol: float | None = rtol
        self.atol: float | None = atol
        self.is_given: bool = is_given
        self.keeps_shapes: bool = keeps_shapes
        self._start: KernelState | None = start
        if not begins_later:
            self.begin()
        self.notes: list[str] = []
        # When opcheck began, with the search for inputs.
        self.began: float = perf_counter() if began is None else began
        # The time of the running check, and what is left for the checks after it.
        self.allowed: Allowance | None = None
        self.seconds_left: float = math.inf
        self.costs_left: list[CheckCost] = []
        # What the checks leave out of the samples, or nothing.
        self.left_out: str = ""
        # How long a call takes, as far as is known.
        self.pace: float = pace
        self.fixed: frozenset[str] = frozenset()
        self.has_overwritten: bool = False
        schema = op.schema
        # Raises as a call does if arguments do not fit their dtypes and shapes.
        self._check = argument_check(op.qualname, schema)
        self._has_one_result: bool = schema.single_return and not schema.written
        # Content of arguments -> what a check found for them.
        self.by_content: dict[Any, Any] = {}
        # Whether each argument must not be written.
        self.is_kept: list[bool] = [not p.is_written for p in schema.parameters]
        # Purpose and identity of a sample -> the sample and a result. The sample is kept
        # so that no other sample gets its identity.
        self._known: dict[tuple[str, int], tuple[Sample, Any]] = {}
        # Identity of a sample -> the sample and its values.
        self._bound: dict[int, tuple[Sample, Sequence[Any]]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Send what another process needs to begin the session there."""
        made = functools.partial(
            Session,
            self.op,
            self.samples,
            self.rtol,
            self.atol,
            is_given=self.is_given,
            keeps_shapes=self.keeps_shapes,
            began=self.began,
            pace=self.pace,
        )
        return made, ()

    def begin(self) -> None:
        """Remember the state of kernel and program, if this is the first call."""
        if self._start is None:
            self._start = KernelState(self.op)

    @property
    def start(self) -> KernelState:
        """The state of the kernel and of the program when the session began."""
        assert self._start is not None
        return self._start

    # ---- running ----

    def bound(self, sample: Sample) -> Sequence[Any]:
        """Return the values of all parameters in a call, which must not be written."""
        known = self._bound.get(id(sample))
        if known is None:
            values = self.op.bind(*sample.args, **sample.kwargs)
            known = self._bound[id(sample)] = sample, values
        return known[1]

    def values(self, sample: Sample) -> list[Any]:
        """Return copies of the values of all parameters for one call."""
        known = self._bound.get(id(sample))
        copies = plain_copies(self.bound(sample) if known is None else known[1])
        if copies is not None:
            return copies
        own = fresh(sample)
        return list(self.op.bind(*own.args, **own.kwargs))

    def check_time(self) -> None:
        """Raise if the time of the running check is up; call it before the operator."""
        now = perf_counter()
        tick(now)
        if self.allowed is not None and self.allowed.is_over(now):
            raise OutOfTimeError

    def affords(self, calls: int) -> bool:
        """Return whether the running check has time for more calls, and note if not."""
        if self.allowed is None or self.pace * calls < self.allowed.left():
            return True
        self.notes.append(f"the kernel is slow: {calls} calls more are left out")
        return False

    def has_room(self, sample: Sample) -> bool:
        """Return whether there is memory for variations of a sample, and note if not."""
        size = sum(x.nbytes for x in arrays_of(self.bound(sample)))
        if size * _COPIES <= config.opcheck_memory:
            return True
        self.notes.append(
            f"its arrays of {size / 1e6:.0f} MB have no variations: config.opcheck_memory"
            f" is {config.opcheck_memory / 1e6:.0f} MB"
        )
        return False

    def forget(self, sample: Sample) -> None:
        """Drop what is known of a variation, if its arrays are large."""
        if id(sample) not in self._bound:
            return
        size = sum(x.nbytes for x in arrays_of(self.bound(sample)))
        if size > _MOST_BYTES:
            self._bound.pop(id(sample), None)
            for key in [key for key in self._known if key[1] == id(sample)]:
                del self._known[key]

    def plan(self, costs: Iterable[CheckCost]) -> None:
        """Divide the time that opcheck has left among checks, by their calls.

        The search for inputs, and a child that has found a fault, take half at most.
        """
        self.costs_left = list(costs)
        calls, count = sum(c.calls for c in self.costs_left), len(self.samples)
        whole = config.opcheck_seconds
        if self.pace * calls > (whole - (perf_counter() - self.began)) / _PARTS:
            self._note_pace()
        left = whole - (perf_counter() - self.began)
        self.seconds_left = max(left, whole / 2)
        one = self.pace * calls
        few = max(1, int(self.seconds_left / one)) if one else count
        if few < count:
            self.samples = self.samples[:few]
            self.left_out = f"the kernel is slow: inputs checked are {few} of {count}"

    def _note_pace(self) -> None:
        """Time a call again: a first one may compile, and the search counts fakes."""
        with suppress(Exception):  # the checks report it
            for _ in range(1 if self.is_given else 2):
                start = perf_counter()
                self.call(self.values(self.samples[0]))
                self.pace = perf_counter() - start

    @contextmanager
    def timed(self, cost: CheckCost) -> Iterator[None]:
        """Give the check inside the block its share of the time that is left.

        This is what one input costs each check, in proportion; or more, as most checks
        take less, if enough remains for one input of each check after it.

        Raises
        ------
        OutOfTimeError
            If one input would take the time of checks after it that find more.
        """
        left, needed, after = self.seconds_left, self.pace * cost.calls, self.costs_left
        count = max(1, len(after))
        with suppress(ValueError):  # a check that was not planned
            after.remove(cost)
        kept = sum(c.calls for c in after if c.worth > cost.worth)
        if after and needed > max(0.0, left - _CERTAIN * self.pace * kept):
            raise OutOfTimeError(
                f"a call takes {self.pace:.2g} s, and one input {cost.calls} calls"
            )
        # Between equal shares and a third of what is left.
        more = left * (1 / count + 1 / min(count, _PARTS)) / 2
        calls = sum(c.calls for c in after)
        more = min(more, left - _SPARE * self.pace * calls)
        own = cost.calls + 1  # checks that call nothing ask for the time, too
        share = max(left * own / (own + calls), more, needed)
        share = max(min(share, left), config.opcheck_seconds / _LEAST)
        self.allowed = allowed = Allowance(share)
        try:
            yield
        finally:
            self.allowed = None
            self.seconds_left -= share - allowed.left()

    def call(
        self,
        values: Sequence[Any],
        kernel: Callable[..., Any] | None = None,
        *,
        is_announced: bool = False,
    ) -> Run:
        """Run a kernel, by default the one that a call would use.

        What the schema refuses does not reach it, as in a call; there are no other checks.
        """
        op = self.op
        if self._check is not None:
            self._check(values)
        if not is_announced:
            about_to_run(lambda: call_of(op.schema, values))
        if self.allowed is not None and self.allowed.is_over(perf_counter()):
            raise OutOfTimeError
        if op.sees_seed:
            self.seed()
        chosen, positional, keywords, proof = select(op, values)
        if kernel is None and not isinstance(proof, Proof):
            out = chosen(*positional, **keywords)
            return self.run_of(out, [*positional, *keywords.values()])
        given = [*positional, *keywords.values()]
        if isinstance(proof, Proof):
            given = list(proof.args)
        out = split_call(op, chosen if kernel is None else kernel, given)
        return self.run_of(out, given)

    def seed(self) -> None:
        """Make a random operator draw the same numbers again."""
        if self.op.sees_seed:
            np.random.seed(_RUN_SEED)  # noqa: NPY002  # what operators may use
            self.start.reseed()

    def run_of(self, out: Any, values: Sequence[Any]) -> Run:
        """Return the run of a call: its results and what it wrote."""
        is_leaf = type(out) is np.ndarray or children(out) is None
        if is_leaf and self._has_one_result:
            return Run([out], [("the output", out)])
        outs = outputs_of(self.op, out)
        names = [f"output {i}" for i in range(len(outs))]
        named = list(zip(names, outs, strict=True))
        if len(outs) == 1:
            named = [("the output", outs[0])]
        if self.op.schema.written:
            written = written_of(self.op.schema, values)
            names = [f"argument '{name}'" for name in self.op.schema.written]
            named += zip(names, written, strict=True)
        return Run(outs, [pair for n, v in named for pair in leaves_in(v, n)])

    def expected(self, sample: Sample) -> Run:
        """Return the run of the operator on a sample; computed once."""
        run: Run = self.once("run", sample, lambda: self.call(self.values(sample)))
        return run

    def accepts(self, sample: Sample) -> bool:
        """Return whether the operator runs on a sample without an exception."""
        try:
            self.expected(sample)
        except Exception:  # noqa: BLE001  # whatever the kernel raises
            return False
        return True

    def oracle(self, sample: Sample) -> Oracle:
        """Return the oracle for arguments like those of a sample."""
        found: Oracle = self.once(
            "oracle", sample, lambda: Oracle.around(self.op, sample)
        )
        found.check_time = self.check_time
        return found

    def is_steady(self, sample: Sample) -> bool:
        """Return whether equal calls give equal results, if tags allow others."""
        if Tag.nondeterministic_seeded not in self.op.tags:
            return True
        steady: bool = self.once("steady", sample, lambda: self._repeats(sample))
        return steady

    def _repeats(self, sample: Sample) -> bool:
        again = self.call(self.values(sample))
        pairs = zip(self.expected(sample).effects, again.effects, strict=True)
        return all(same_bits(a, b) for (_, a), (_, b) in pairs)

    def floats(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments by which the operator has derivatives, by place."""
        found = floats_of(self.op, values)
        for place in self.fixed:
            found.pop(place, None)
        return found

    @contextmanager
    def without(self, places: Iterable[str]) -> Iterator[None]:
        """Hold these arguments constant inside the block, and ignore older results."""
        fixed, known, by_content = self.fixed, self._known, self.by_content
        self.fixed, self._known, self.by_content = frozenset(places), {}, {}
        try:
            yield
        finally:
            self.fixed, self._known, self.by_content = fixed, known, by_content

    def once(self, what: str, sample: Sample, work: Callable[[], Any]) -> Any:
        """Return the result of `work` for a sample, which runs only once."""
        key = (what, id(sample))
        if key not in self._known:
            self._known[key] = (sample, work())
        return self._known[key][1]

    # ---- comparing ----

    def compare(
        self,
        found: Run,
        expected: Run,
        what: str,
        *,
        do: str,
        exact: bool = False,
    ) -> None:
        """Raise unless two runs did the same.

        `what` names the two ways to run the operator: ``"between two calls"``.
        """
        pairs = (found.effects, expected.effects)
        if len(pairs[0]) != len(pairs[1]):
            counts = f"{len(pairs[0])} and {len(pairs[1])}"
            raise Fault(f"gives {counts} results {what}", do=do)
        for (name, a), (_, b) in zip(*pairs, strict=True):
            self.compare_leaf(name, a, b, what, do=do, exact=exact)

    def compare_leaf(
        self,
        name: str,
        a: Any,
        b: Any,
        what: str,
        *,
        do: str,
        exact: bool = False,
    ) -> None:
        """Raise unless two results are equal or close."""
        if same_bits(a, b):
            return
        are_arrays = is_array(a) and is_array(b)
        if not are_arrays and (exact or not (_is_number(a) and _is_number(b))):
            if a is b or a == b:
                return
            raise Fault(f"{name} differs {what}: {a!r} and {b!r}", do=do)
        is_exact = exact and Tag.nondeterministic_bitwise not in self.op.tags
        try:
            assert_close(
                np.asarray(a) if not are_arrays else a,
                np.asarray(b) if not are_arrays else b,
                rtol=0.0 if is_exact else self.rtol,
                atol=0.0 if is_exact else self.atol,
                equal_nan=True,
                check_dtype=are_arrays,
                check_device=False,
            )
        except OpCheckError as error:
            text = error.what.removeprefix("assert_close: ")
            raise Fault(f"{name} differs {what}: {text}", *error.where, do=do) from None


# How many copies of a sample are in memory at once, at most.
_COPIES = 24
# The part of the time that is left which the first of many checks may take, about.
_PARTS = 3
# What is kept for the checks after one, compared with the calls for one input.
_SPARE = 1.5
# The part of these calls that checks surely make.
_CERTAIN = 0.75
# The part of the whole time that any check gets.
_LEAST = 200
# Seed of NumPy's global state before each run of an operator that draws from it.
_RUN_SEED = 20


class CheckCost(NamedTuple):
    """About how many calls a check makes for one input, and what these are worth."""

    calls: int
    worth: float


class Run(NamedTuple):
    """The results of a call, and its effects: results and written arguments by name."""

    out: list[Any]
    effects: list[tuple[str, Any]]


# ---- calling ----


def split_call(
    op: Operator[..., Any], kernel: Callable[..., Any], values: Sequence[Any]
) -> Any:
    """Call a kernel with the values of all parameters."""
    positional, keywords = op.schema.split(values)
    return kernel(*positional, **keywords)


def outputs_of(op: Operator[..., Any], out: Any) -> list[Any]:
    """Return the results of a call as a list."""
    if not op.schema.returns:
        return []
    return list(out) if op.schema.is_tuple and isinstance(out, tuple) else [out]


def prove(
    op: Operator[..., Any],
    values: Sequence[Any],
    fake: Callable[..., Any] | None = None,
) -> tuple[Proof, Any]:
    """Run the kernel of a call under proof; return the open proof and the result."""
    kernel, positional, keywords, first = select(op, values)
    given = [*positional, *keywords.values()]
    if isinstance(first, Proof):  # its views are read-only, which hides writes
        given = list(first.args)
    proof = Proof(op, kernel, _kind_among(given), given, fake, lambda _: None)
    positional, keywords = op.schema.split(proof.values)
    return proof, proof.attempt(kernel, positional, keywords)


def _kind_among(values: Sequence[Any]) -> str:
    array_kinds = (kind_of[type(leaf)] for leaf in flat(list(values)))
    return next((k.name for k in array_kinds if k is not None and k.has_device), "cpu")


# ---- values ----


def arrays_of(values: Sequence[Any]) -> list[Any]:
    """Return the arrays among the arguments, including nested ones."""
    found = []
    for value in values:
        if type(value) is np.ndarray:
            found.append(value)
        elif type(value) not in CONSTANT:
            found += [leaf for leaf in flat(value) if is_array(leaf)]
    return found


def floats_of(op: Operator[..., Any], values: Sequence[Any]) -> dict[str, Any]:
    """Return the floating-point arrays among the arguments, by place: ``arrays[0]``."""
    found = {}
    for p, value in zip(op.schema.parameters, values, strict=True):
        if type(value) is np.ndarray:
            if value.dtype.kind in "fc":
                found[p.name] = value
        elif type(value) not in CONSTANT:
            leaves = leaves_in(value, p.name)
            found.update((place, leaf) for place, leaf in leaves if is_floats(leaf))
    return found


def is_floats(leaf: Any) -> bool:
    """Return whether a leaf is an array that can have derivatives."""
    if type(leaf) is np.ndarray:
        return leaf.dtype.kind in "fc"
    return has_device(leaf) and is_inexact(leaf.dtype)


def placer(
    values: Sequence[Any], is_wanted: Callable[[Any], bool]
) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that puts arrays in place of the wanted leaves of values."""
    others = [i for i, value in enumerate(values) if type(value) not in CONSTANT]
    if not [
        i
        for i in others
        if type(values[i]) is not np.ndarray and children(values[i]) is not None
    ]:
        places = [i for i in others if is_wanted(values[i])]

        def put_flat(arrays: Sequence[Any]) -> list[Any]:
            out = list(values)
            for i, x in zip(places, arrays, strict=True):
                out[i] = x
            return out

        return put_flat

    def put(arrays: Sequence[Any]) -> list[Any]:
        left = iter(arrays)

        def replaced(leaf: Any) -> Any:
            return next(left) if is_wanted(leaf) else leaf

        return [map_nested(value, replaced) for value in values]

    return put


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex | np.number)


# A union would be made again in each call.
_OF_NUMPY = (np.ndarray, np.generic)


def same_bits(a: Any, b: Any) -> bool:
    """Return whether two results are bitwise equal, including nan."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, _OF_NUMPY):
        return False
    if a.shape != b.shape or a.dtype != b.dtype or a.dtype.hasobject:
        return False
    return bool(a.tobytes() == b.tobytes())


def same_runs(a: Run, b: Run) -> bool:
    """Return whether two runs have bitwise equal effects."""
    if len(a.effects) != len(b.effects):
        return False
    for (_, x), (_, y) in zip(a.effects, b.effects, strict=True):
        if not same_bits(x, y):
            return False
    return True


def host(value: Any) -> Any:
    """Convert an array of any kind to NumPy; return other values unchanged."""
    if type(value) is np.ndarray:
        return value
    return to_host(value) if is_array(value) else value


# ---- what a kernel keeps ----

_STATE_SEED = 21
# How deep to search through functions and objects, starting at the kernel.
_DEPTH = 3
# Arrays up to this many bytes may be scratch memory or a table to restore.
_MOST_BYTES = 1 << 16


class KernelState:
    """A snapshot of the state that a kernel can change and read again.

    It covers dicts, lists, sets, small arrays, random generators and objects of the
    kernel's module. They are found in its closure, globals and defaults, and in those
    of functions it calls. State in C is not seen.
    """

    __slots__ = ("_holders", "_program", "_saved", "_seeds")

    def __init__(self, op: Operator[..., Any]) -> None:
        kernel = find_kernel(op, "cpu")
        found = [] if kernel is None else _reached(kernel)
        drawn = [v for v in found if isinstance(v, _GENERATORS)]
        self._holders: list[Any] = [v for v in found if not isinstance(v, _GENERATORS)]
        self._saved: list[_Restore] = self._save()
        self._seeds: list[_Restore] = [*map(_saved, drawn)]
        self._program: dict[str, Any] = program_state()

    def _save(self) -> list[_Restore]:
        return [_saved(value) for value in self._holders]

    @property
    def holds_any(self) -> bool:
        """Whether the kernel keeps anything between calls."""
        return bool(self._holders or self._seeds)

    def reseed(self) -> None:
        """Restore the random generators of the kernel."""
        for restore in self._seeds:
            restore()

    @contextmanager
    def rewound(self) -> Iterator[bool]:
        """Restore all state inside the block; yield False if there is none."""
        now = self._save()
        for restore in self._saved:
            restore()
        try:
            yield bool(now)
        finally:
            for restore in now:
                restore()

    def effects_of(self, call: Callable[[], object], *, may_draw: bool) -> list[str]:
        """Return the names of program state that a call, or one before it, changed."""
        known = _SETTINGS if may_draw else {**_SETTINGS, **_RANDOM}
        with warnings.catch_warnings(), np.errstate(all="call", call=_nothing):
            # Settings that nobody else would make, so that every change is seen.
            warnings.filterwarnings("ignore", message="(?s).*")
            random.seed(_STATE_SEED)
            np.random.seed(_STATE_SEED)  # noqa: NPY002  # what kernels may use
            before = {name: read() for name, read in known.items()}
            call()
            now = {name: read() for name, read in {**known, **_LASTING}.items()}
        before |= self._program
        return [name for name, value in now.items() if value != before[name]]


_GENERATORS = (
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    random.Random,
)
_CONTAINERS = (dict, list, set, bytearray)
_CACHE = type(functools.cache(len))


def _reached(kernel: Any) -> list[Any]:
    """Return the values with state that a kernel can reach, each once."""
    module = getattr(innermost(kernel), "__module__", None)
    seen: dict[int, Any] = {}
    left: list[Any] = [kernel]
    for _ in range(_DEPTH):
        new = [v for value in left for v in _inside(value)]
        left = [v for v in new if id(v) not in seen and _has_state(v, module)]
        seen.update((id(v), v) for v in left)
    return [v for v in seen.values() if not isinstance(v, FunctionType)]


def _has_state(value: Any, module: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.nbytes <= _MOST_BYTES and value.flags.writeable
    if isinstance(value, FunctionType):
        return value.__module__ == module
    if isinstance(value, (*_GENERATORS, *_CONTAINERS)):
        return True
    is_own = getattr(type(value), "__module__", None) == module
    return isinstance(value, _CACHE) or (is_own and hasattr(value, "__dict__"))


def _inside(value: Any) -> Iterable[Any]:
    """Return the values that a function or an object can read."""
    if isinstance(value, MethodType):
        return [value.__self__, *_inside(value.__func__)]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, FunctionType):
        return _read_by(value)
    if isinstance(value, (*_GENERATORS, *_CONTAINERS, np.ndarray, _CACHE)):
        return []
    return getattr(value, "__dict__", {}).values()


def _read_by(fn: FunctionType) -> Iterator[Any]:
    """Yield the values in closure, defaults, attributes and globals of a function."""
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the name is not bound yet
            continue
    yield from fn.__defaults__ or ()
    yield from (fn.__kwdefaults__ or {}).values()
    yield from vars(fn).values()
    for name in fn.__code__.co_names:
        if name in fn.__globals__:
            yield fn.__globals__[name]


def _saved(value: Any) -> _Restore:
    """Return a function that restores the present content of a value."""
    if isinstance(value, _GENERATORS):
        return _saved_seed(value)
    if isinstance(value, _CACHE):
        return value.cache_clear  # cached results can be computed again
    if isinstance(value, np.ndarray):
        return functools.partial(np.copyto, value, value.copy())
    if isinstance(value, list | bytearray):
        return functools.partial(value.__setitem__, slice(None), value[:])
    items = value if isinstance(value, dict | set) else value.__dict__
    return functools.partial(_refill, items, items.copy())


def _saved_seed(value: Any) -> _Restore:
    if isinstance(value, np.random.Generator):
        return _saved_seed(value.bit_generator)
    if isinstance(value, np.random.BitGenerator):
        bits: Any = value
        return functools.partial(setattr, bits, "state", bits.state)
    if isinstance(value, np.random.RandomState):
        return functools.partial(value.set_state, value.get_state())
    return functools.partial(value.setstate, value.getstate())


def _refill(items: Any, before: Any) -> None:
    items.clear()
    items.update(before)


# ---- the state of the program ----


def _nothing(kind: str, flag: int) -> None:
    """Ignore a floating-point error."""


def _environment() -> Any:
    """Return the encoded content of `os.environ`; decoding it would take 15 us."""
    kept = [v.copy() for v in vars(os.environ).values() if isinstance(v, dict)]
    return kept or dict(os.environ)


# What a call may leave behind, and how to read it. The first table is compared with the
# state before all calls, because a second call would not change it again.
_LASTING: dict[str, Callable[[], Any]] = {
    "np.get_printoptions()": np.get_printoptions,
    "os.environ": _environment,
    "os.getcwd()": os.getcwd,
}


def _arithmetic() -> tuple[str, ...]:
    """Return results that depend on how the processor rounds and treats tiny numbers."""
    one, three, tiny = _NUMBERS
    # As text, since a processor that flushes to zero takes tiny numbers for zero.
    return tuple(map(float.hex, (one / three, (one + one) / three, tiny * one)))


# Names, so that Python does not compute with them in advance.
_NUMBERS = [1.0, 3.0, 5e-324]

_LASTING |= {
    "how the processor rounds": _arithmetic,
    "gc.isenabled()": gc.isenabled,
    "sys.getrecursionlimit()": sys.getrecursionlimit,
    "locale.setlocale(LC_ALL)": lambda: locale.setlocale(locale.LC_ALL),
}
_SETTINGS: dict[str, Callable[[], Any]] = {
    "np.geterr()": lambda: (np.geterr(), np.geterrcall()),
    "warnings.filters": lambda: list(warnings.filters),
}
_RANDOM: dict[str, Callable[[], Any]] = {
    "np.random.get_state()": numpy_state,
    "random.getstate()": random.getstate,
}


def program_state() -> dict[str, Any]:
    """Return the present state of the program that outlives a call."""
    return {name: read() for name, read in _LASTING.items()}


# The state of the program when this child process began.
_first: list[dict[str, Any]] = []


def note_program() -> None:
    """Remember the state of the program when a child begins its work."""
    if not _first:
        _first.append(program_state())


def is_program_as_noted() -> bool:
    """Return whether the state of the program is unchanged since this child began."""
    return _first == [program_state()]
