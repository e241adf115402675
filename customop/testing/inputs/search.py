"""Search for arguments that the kernels of an operator accept."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.array import is_element
from customop.arrays.fake import to_c_order, to_fake, with_numbers
from customop.arrays.nested import flat
from customop.config import config
from customop.core.derived_rules import find_fake
from customop.core.dispatch import find_kernel
from customop.core.fake_context import FakeCall
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import DataDependentError
from customop.schema.types import MISSING
from customop.shapes.notation import Shape
from customop.testing.inputs.sample_values import fresh, map_values, plain_copies
from customop.testing.inputs.templates import (
    OMITTED,
    SHAPED,
    Filling,
    Form,
    Slot,
    Trial,
    by_cost,
    call_of,
    choices,
    families,
    forms_of,
    slots_of,
)
from customop.testing.quiet import Allowance, about_to_run, strict_numbers

# ---- the search for arguments that the kernels of an operator accept ----
# Arrays with every number of axes are tried, in rounds. The first rounds use floats and
# axes of one length, which most operators accept if the numbers of axes fit. Later
# rounds try other dtypes, numbers and lengths.


class Search:
    """A search for trials that an oracle accepts."""

    def __init__(self, oracle: Oracle, tried: Sequence[Form]) -> None:
        self.oracle = oracle
        self.forms = tried
        self.slots: list[list[Slot]] = [slots_of(form) for form in tried]
        self.noisy: list[Trial] = []
        self.fitting: dict[Any, bool] = {}

    def run(self) -> list[Trial]:
        """Return trials of the first round that has any, or else noisy trials."""
        seen = set()
        # An array with one number may be accepted by luck: any rank, the right sign.
        single: list[Trial] = []
        for found_in in _ROUNDS:
            numbers = [
                found_in.numbers(s) if found_in.suits(s) else None for s in self.slots
            ]
            key = (found_in.length, found_in.last, *numbers)
            if key in seen:
                continue
            seen.add(key)
            found = self._round(found_in, numbers)
            if any(any(t.ranks) for t in found) or (found and not any(self.slots)):
                return found
            single = single or found
            if self.oracle.exhausted:
                break
        return single or self.noisy[:8]

    def _round(self, rules: _Round, numbers: Sequence[Any]) -> list[Trial]:
        found: list[Trial] = []
        left = _MORE
        for i, ranks in self._interleaved():
            if numbers[i] is None:
                continue
            rows = zip(self.slots[i], ranks, numbers[i], strict=True)
            fillings = tuple(
                Filling(rules.shape(j, slot, rank), dtype, family)
                for j, (slot, rank, (dtype, family)) in enumerate(rows)
            )
            trial = self._accepted(i, Trial(self.forms[i], fillings))
            if trial is not None:
                found.append(trial)
            left -= bool(found)
            if left < 0 or len(found) >= _ENOUGH or self.oracle.exhausted:
                break
        return found

    def _interleaved(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Return pairs of a form and ranks; the likely ones of both come first."""

        def pairs(i: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
            rows = _rank_rows_for(self.slots[i])
            return ((2 * i + j // 4, i, ranks) for j, ranks in enumerate(rows))

        merged = heapq.merge(*map(pairs, range(len(self.forms))))
        return ((i, ranks) for _, i, ranks in merged)

    def _accepted(self, i: int, trial: Trial) -> Trial | None:
        key = (i, *[(f.shape, f.dtype) for f in trial.fillings])
        if key not in self.fitting:
            self.fitting[key] = self.oracle.fits_trial(trial)
        return self._quietest(trial) if self.fitting[key] else None

    def _quietest(self, trial: Trial) -> Trial | None:
        """Return the trial with numbers that cause no warnings, or None."""
        outcome = self.oracle.outcome(trial)
        if outcome == CLEAN:
            return trial
        if outcome == NOISY:
            for other in _other_numbers(trial):
                if self.oracle.outcome(other) == CLEAN:
                    return other
            self.noisy.append(trial)
        return None


def forms(op: Operator[..., Any], *, with_defaults: bool) -> list[Form]:
    """Return forms of a call of an operator, the likeliest first."""
    columns = []
    for p in op.schema.parameters:
        is_free = with_defaults or p.default is MISSING
        columns.append(choices(p) if is_free else [OMITTED])
    return forms_of(columns, _FORMS)


# Limits: forms to try, rank combinations for each form, accepted trials of a round.
_FORMS = 80
_RANKS = 700
_ENOUGH = 40
# How many trials a round makes after its first accepted one.
_MORE = 150


def _other_numbers(trial: Trial) -> Iterator[Trial]:
    """Yield the trial with other numbers: in all arrays, then in single arrays."""
    names = families("f")[1:]
    count = families("i")[1]
    for name in (*names, count):
        yield _with_families(trial, name, range(len(trial.fillings)))
    if len(trial.fillings) > 1:
        for name in names:
            for i in range(len(trial.fillings)):
                yield _with_families(trial, name, [i])


def _with_families(trial: Trial, family: str, places: Sequence[int]) -> Trial:
    fillings = [
        f.of_family(family) if i in places else f for i, f in enumerate(trial.fillings)
    ]
    return replace(trial, fillings=tuple(fillings))


# ---- numbers of axes, the likeliest first ----

_RANK_COST = {1: 0, 2: 1, 0: 2, 3: 3, 4: 5}


@lru_cache(maxsize=16)
def rank_rows(count: int) -> tuple[tuple[int, ...], ...]:
    """Return combinations of ranks for several arrays; equal ranks come first."""
    rows = by_cost([tuple(_RANK_COST)] * count, _RANKS)
    return tuple(sorted(rows, key=_rank_cost))


def _rank_cost(ranks: Sequence[int]) -> int:
    spread = max(ranks, default=0) - min(ranks, default=0)
    return sum(_RANK_COST[r] for r in ranks) + spread


def _rank_rows_for(slots: Sequence[Slot]) -> Sequence[tuple[int, ...]]:
    """Return combinations of ranks that the annotations allow."""
    if all(slot.shape is None for slot in slots):
        return rank_rows(len(slots))
    return list(by_cost([_allowed_ranks(slot.shape) for slot in slots], _RANKS))


def _allowed_ranks(shape: Shape | None) -> tuple[int, ...]:
    if shape is None:
        return tuple(_RANK_COST)
    single = len(shape.axes)
    return (single,) if shape.loop is None else (single, single + 1, single + 2)


# ---- dtypes, the likeliest first ----

_FLOAT, _INT, _BOOL, _COMPLEX = (np.dtype(n) for n in ("f8", "i8", "?", "c16"))
_WORDS = {
    "index indices idx ids id labels label segments bins rows cols starts stops"
    " offsets lengths perm permutation codes tokens": _INT,
    "mask condition cond where keep valid flags select": _BOOL,
}
# Some kernels accept nothing else: images, audio samples, ...
_SHORT = [np.dtype(n) for n in ("u1", "f4", "i4", "u2", "i2", "c8")]
# The first of these that fits an annotation is used.
_COMMON = [
    np.dtype(name)
    for name in "f8 i8 ? c16 u8 f4 i4 f2 i2 i1 u4 u2 u1 c8".split()  # noqa: SIM905  # reads as a table
]


def _hinted(slot: Slot) -> np.dtype[Any]:
    """Return the dtype that an array's annotation requires, or its name suggests."""
    if slot.element != "Array":
        allowed = [d for d in _COMMON if is_element(slot.element, d)]
        return allowed[0] if allowed else _FLOAT
    words = set(slot.name.replace("0", "_").split("_"))
    found = [dtype for names, dtype in _WORDS.items() if words & set(names.split())]
    return found[0] if found else _FLOAT


def dtypes_for(slots: Sequence[Slot]) -> list[tuple[np.dtype[Any], ...]]:
    """Return combinations of dtypes to try in these slots, the likeliest first."""
    rows = [
        tuple(map(_hinted, slots)),
        *[(d,) * len(slots) for d in (_FLOAT, _BOOL, _INT)],
    ]
    return list(dict.fromkeys(rows))


# ---- rounds ----


class _Round(NamedTuple):
    """How a round fills the slots of a form.

    Attributes
    ----------
    length : int
        Length of all axes.
    dtype : dtype, optional
        By default annotations and names determine it.
    family : str
        Family of numbers for float arrays; by default the plainest.
    place : int, optional
        The only slot that gets `dtype` and `family`; by default all do.
    last : tuple of int, optional
        A slot whose last axis has another length, and that length.
    """

    length: int = 3
    dtype: np.dtype[Any] | None = None
    family: str = ""
    place: int | None = None
    last: tuple[int, int] | None = None

    def suits(self, slots: Sequence[Slot]) -> bool:
        """Return whether the round differs from the first one for these slots."""
        if self.place is not None:
            return self.place < len(slots)
        return bool(slots) or self.dtype is None

    def numbers(self, slots: Sequence[Slot]) -> tuple[tuple[Any, str], ...]:
        """Return a dtype and a family of numbers for each slot."""
        return tuple(self._numbers(i, slot) for i, slot in enumerate(slots))

    def _numbers(self, i: int, slot: Slot) -> tuple[Any, str]:
        is_chosen = self.place in (None, i)
        dtype = (self.dtype if is_chosen else None) or _hinted(slot)
        if is_chosen and self.family and dtype.kind == "f":
            return dtype, self.family
        return dtype, families(dtype.kind)[0]

    def shape(self, i: int, slot: Slot, rank: int) -> tuple[int, ...]:
        """Return the shape for a slot; its annotation overrides the round."""
        lengths = [self.length] * rank
        if rank and self.last is not None and self.last[0] == i:
            lengths[-1] = self.last[1]
        return tuple(lengths) if slot.shape is None else _lengths(slot.shape, lengths)


def _lengths(shape: Shape, lengths: Sequence[int]) -> tuple[int, ...]:
    length = max(lengths, default=3)
    sizes = dict.fromkeys(shape.names, length)
    count = len(lengths) - len(shape.axes)
    loops = {} if shape.loop is None else {shape.loop.name: (length,) * count}
    return shape.lengths(sizes, loops)


_LASTS = ((3, 2), (4, 3), (3, 4), (2, 3), (4, 2), (2, 4))

# The likeliest rounds come first.
_ROUNDS = (
    _Round(),
    _Round(dtype=_FLOAT),
    *(_Round(dtype=_INT, place=i) for i in (1, 0, 2, 3)),
    *(_Round(dtype=_BOOL, place=i) for i in (0, 1, 2, 3)),
    *(_Round(length=n) for n in (4, 2)),
    _Round(family="positive"),
    *(_Round(dtype=d) for d in (_INT, _BOOL, _COMPLEX)),
    *(_Round(family=name) for name in ("above one", *SHAPED)),
    *(_Round(dtype=_FLOAT, family=f, place=i) for f in SHAPED for i in range(3)),
    *(_Round(dtype=_COMPLEX, place=i) for i in range(3)),
    *(_Round(length=4, dtype=_INT, place=i) for i in (1, 0, 2)),
    *(_Round(length=n, last=(i, m)) for n, m in _LASTS for i in (1, 0, 2)),
    *(_Round(length=n) for n in (6, 1, 8)),
    *(_Round(length=4, family=name) for name in SHAPED),
    *(_Round(dtype=d) for d in _SHORT),
)


# ---- asking the kernels of an operator whether they accept arguments ----

# How a kernel takes arguments: without complaint; with a warning, or results that are
# not finite; not at all.
CLEAN, NOISY, REJECTED = range(3)

# The search stops after this many calls of kernels. The hardest function of the tests
# needs 2,000.
_CALLS = 10_000
# It also stops after this many seconds of work. Kernels of a millisecond stay far below,
# so only slow kernels get fewer inputs; the result of opcheck says so.
_SECONDS = 5.0


def _nothing() -> None:
    """Do nothing: the search has its own limits."""


class Oracle:
    """Finds out whether the kernels of an operator accept arguments.

    Parameters
    ----------
    op : Operator
    uses_fake : bool
        Whether to try the fake kernel before the kernel.

    Attributes
    ----------
    error : Exception or None
        The last error that a kernel raised.
    """

    def __init__(self, op: Operator[..., Any], *, uses_fake: bool = True) -> None:
        self.op = op
        self.kernel: Callable[..., Any] | None = find_kernel(op, "cpu")
        self.fake: Callable[..., Any] | None = find_fake(op) if uses_fake else None
        self.error: Exception | None = None
        # Raises if the time of the check that uses the oracle is up.
        self.check_time: Callable[[], None] = _nothing
        self._left = _CALLS
        self._start = perf_counter()
        self._allowed = Allowance(min(_SECONDS, config.opcheck_seconds / 4))

    @classmethod
    def around(cls, op: Operator[..., Any], sample: Sample) -> Oracle:
        """Return an oracle that uses the fake kernel only if it accepts the sample."""
        made = cls(op)
        if not made.fits(made.bound(sample)):
            made.fake = None
        return made

    @property
    def exhausted(self) -> bool:
        """Return whether the limit of calls or of time is reached."""
        return self._left < 0 or self._allowed.is_over(perf_counter())

    @property
    def was_slow(self) -> bool:
        """Return whether the limit of time was reached."""
        return self._allowed.is_over(perf_counter())

    @property
    def seconds_a_call(self) -> float:
        """Return how long a call of a kernel took so far, on average."""
        return (perf_counter() - self._start) / (_CALLS - self._left + 1)

    def bound(self, sample: Sample) -> Sequence[Any]:
        """Return the values of all parameters, as copies that a kernel may write to."""
        copies = None if sample.kwargs else plain_copies(sample.args)
        if copies is not None:
            return self.op.bind(*copies)
        own = fresh(sample)
        return self.op.bind(*own.args, **own.kwargs)

    def _call(self, fn: Callable[..., Any], values: Sequence[Any]) -> Any:
        self.check_time()
        self._left -= 1
        positional, keywords = self.op.schema.split(values)
        return fn(*positional, **keywords)

    # ---- the fake kernel ----

    def _call_fake(
        self, fake: Callable[..., Any], values: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        self._left -= 1
        return announced(self.op, fake, values)

    def fits(self, values: Sequence[Any]) -> bool:
        """Return whether annotations and fake kernel accept arrays like these."""
        return self._fits(map_values(to_fake, values))

    def _fits(self, fakes: Sequence[Any]) -> bool:
        try:
            if self.op.schema.has_shapes:
                self._call(self.op.bind, fakes)
            if self.fake is not None:
                self._call_fake(self.fake, fakes)
        except Exception as error:  # noqa: BLE001  # whatever a kernel raises
            self.error = error
            # A fake kernel that needs values cannot decide; the kernel must.
            return isinstance(error, DataDependentError)
        return True

    def fits_trial(self, trial: Trial) -> bool:
        """Return whether annotations and fake kernel accept a trial."""
        if self.fake is None and not self.op.schema.has_shapes:
            return True
        return self._fits(trial.values(self.op.schema, trial.fakes()))

    def fits_sample(self, sample: Sample) -> bool:
        """Return whether annotations and fake kernel accept a sample."""
        return self.fits(self.op.bind(*sample.args, **sample.kwargs))

    # ---- the kernel ----

    def outcome_of(self, values: Sequence[Any]) -> int:
        """Return how the kernel takes values; it may overwrite them."""
        if self.kernel is None:
            return CLEAN if self.fake is not None else REJECTED
        return self._run(values)[0]

    def _run(self, values: Sequence[Any]) -> tuple[int, Any]:
        if self.op.needs_contiguous:
            values = map_values(to_c_order, values)
        kernel: Any = self.kernel
        return outcome_of(lambda: self._call(kernel, values), self._note)

    def _note(self, error: Exception) -> None:
        self.error = error

    def outcome(self, trial: Trial, seed: int = 0) -> int:
        """Return how the kernel takes a trial."""
        schema = self.op.schema
        about_to_run(lambda: call_of(schema, trial.row(trial.arrays(seed), seed)))
        return self.outcome_of(trial.values(self.op.schema, trial.arrays(seed), seed))

    # ---- both ----

    def accepts(self, trial: Trial, worst: int = CLEAN) -> bool:
        """Return whether the kernels take a trial."""
        return self.fits_trial(trial) and self.outcome(trial) <= worst

    def takes(self, sample: Sample, worst: int = CLEAN) -> bool:
        """Return whether the kernels take a sample."""
        return self._taken(sample)[0] <= worst

    def takes_as_announced(self, sample: Sample) -> bool:
        """Return whether kernels take a sample and the fake kernel is right about it."""
        outcome, values, out = self._taken(sample)
        return outcome == CLEAN and self.announces(values, out) is not False

    def _taken(self, sample: Sample) -> tuple[int, Sequence[Any], Any]:
        """Return how the kernels take a sample, with its values and results."""
        about_to_run(lambda: sample)
        try:
            values = self.bound(sample)
        except Exception:  # noqa: BLE001  # annotations, or a constructor, refuse it
            return REJECTED, (), None
        if not self.fits(values):
            return REJECTED, (), None
        if self.kernel is None:
            return CLEAN, values, None
        with strict_numbers():
            outcome, out = self._run(values)
        return outcome, values, out

    def run(self, sample: Sample) -> tuple[int, Any]:
        """Return how the kernel takes a sample in `strict_numbers`, and its results."""
        about_to_run(lambda: sample)
        try:
            values = self.bound(sample)
        except Exception:  # noqa: BLE001  # annotations, or a constructor, refuse it
            return REJECTED, None
        return (CLEAN, None) if self.kernel is None else self._run(values)

    def agrees(self, values: Callable[[], Sequence[Any]]) -> bool | None:
        """Return whether the fake kernel announces the right shapes and dtypes.

        Return None if the fake kernel announces nothing.
        """
        with strict_numbers():
            out = None if self.kernel is None else self._run(values())[1]
        return self.announces(values(), out)

    def announces(self, values: Sequence[Any], out: Any) -> bool | None:
        """Do the same as `agrees`, for results that are known already."""
        if self.fake is None:
            return None
        try:
            found, sizes = self._call_fake(self.fake, map_values(to_fake, values))
        except Exception:  # noqa: BLE001  # whatever a kernel raises
            return None
        fault = ""
        if sizes:
            found, fault = with_numbers(flat(out), found, sizes[0])
        return not fault and _outline(found) == _outline(out)

    def outline(
        self, fn: Callable[..., Any] | None, values: Sequence[Any]
    ) -> list[tuple[Any, Any]] | None:
        """Return shapes and dtypes of a kernel's results, or None if it raises."""
        if fn is None:
            return None
        try:
            out = self._call(fn, values)
        except Exception:  # noqa: BLE001  # whatever a kernel raises
            return None
        return _outline(out)


def announced(
    op: Operator[..., Any], fake: Callable[..., Any], values: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """Run a fake kernel; return its results, and its data-dependent sizes if any."""
    sizes: list[Any] = []
    return FakeCall(op, values, sizes).run(fake), sizes


def outcome_of(
    call: Callable[[], Any], note: Callable[[Exception], None] = lambda error: None
) -> tuple[int, Any]:
    """Return how a kernel takes a call, and its results; use in `strict_numbers`."""
    try:
        out = call()
    except (Warning, FloatingPointError) as error:
        note(error)
        return NOISY, None
    except Exception as error:  # noqa: BLE001  # whatever a kernel raises
        note(error)
        return REJECTED, None
    return CLEAN if all(map(_is_finite, flat(out))) else NOISY, out


def _outline(out: Any) -> list[tuple[Any, Any]]:
    return [(getattr(v, "shape", None), getattr(v, "dtype", None)) for v in flat(out)]


def _is_finite(value: Any) -> bool:
    letter = getattr(getattr(value, "dtype", None), "kind", "")
    if letter not in ("f", "c"):
        return True
    if type(value) is np.ndarray:  # same as below, in half the time
        return b"\0" not in np.isfinite(value).tobytes()
    return bool(np.isfinite(value).all())
