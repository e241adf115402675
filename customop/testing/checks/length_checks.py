"""Check that operators do to long arrays what they do to short ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from customop.core.builtin_kinds import AUTOGRAD
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.testing.checks.memory_checks import check_end
from customop.testing.checks.session import Session
from customop.testing.checks.smooth import made_gradients, why_no_derivative
from customop.testing.faults import Fault
from customop.testing.inputs.sample_values import Array, arrays_in, replaced
from customop.testing.inputs.search import NOISY

# Kernels often take another way from a power of two on, such as 1,024 or 65,536. These
# lengths lie behind it and are not multiples of the width of a vector. Keys are axes.
_LONG: Final = {0: 70_001, -1: 8_209}
# Those for arguments that the user gives. Gradients are left out, too: opcheck of one
# call takes 10 ms, and more would take a third of that.
_LONG_OF_GIVEN: Final = {0: 4_099}
# The length at which a kernel must keep to the memory of its arrays.
_IN_PAGES: Final = 1_027
# Copies of a sample from which its law is read. The last ones test it.
_SHORT: Final = (1, 2, 3, 9)
# How long the arrays of other numbers of axes are, at most.
_MOST: Final = 80_000


def check_long_arrays(session: Session) -> None:
    """Check the first samples, repeated along an axis to a great length."""
    if session.op.sees_seed or session.op.schema.written:
        return
    for sample in _suitable(session):
        for axis in _lengths_for(session):
            _check_along(session, sample, axis)


def is_long(op: Operator[..., Any], sample: Sample, usual: Sample) -> bool:
    """Return whether the arrays of a sample were made long here, beside a usual one."""
    size, known = (sum(x.size for _, x, _ in arrays_in(op, s)) for s in (sample, usual))
    return bool(size >= _LENGTHENED * max(known, _FEW))


def _lengths_for(session: Session) -> dict[int, int]:
    return _LONG_OF_GIVEN if session.keeps_shapes else _LONG


def _suitable(session: Session) -> Iterator[Sample]:
    """Yield a sample for each number of axes, the largest of those that are short."""
    by_ranks = {}
    for sample in session.samples:
        arrays = [x for _, x, _ in arrays_in(session.op, sample)]
        if arrays and all(0 < x.size <= _FEW for x in arrays):
            by_ranks[tuple(x.ndim for x in arrays)] = sample
    yield from sorted(by_ranks.values(), key=lambda s: -_size(session, s))[:_SAMPLES]


def _size(session: Session, sample: Sample) -> int:
    return sum(x.size for _, x, _ in arrays_in(session.op, sample))


_FEW = 64
# Arrays of so many times the elements of others are those that were made long.
_LENGTHENED: Final = 8
_SAMPLES = 2


def _check_along(session: Session, sample: Sample, axis: int) -> None:
    """Check a sample whose arrays are repeated along an axis."""
    made = _Repeated.of(session, sample, axis)
    if made is None:
        return
    laws = _laws_of([made.outputs(count) for count in _SHORT])
    _check_length(made, laws)
    in_pages = made.count_for(_IN_PAGES)
    if axis == 0 and laws and _is_quick(made, in_pages):
        check_end(session, made.sample_of(in_pages))
    if any(law is not None and law.is_total for law in laws):
        made = made._replace(has_tail=True)
        _check_length(made, _laws_of([made.outputs(count) for count in _SHORT]))


def _check_length(made: _Repeated, laws: Sequence[_Law | None]) -> None:
    """Check that results for many copies are as the laws say."""
    count = made.count_for(_lengths_for(made.session)[made.axis])
    has_law = any(law is not None for law in laws)
    if not has_law or count <= _SHORT[-1] or not _is_quick(made, count):
        return
    found = made.outputs(count)
    if found is None or len(found) != len(laws):
        return
    for i, (law, out) in enumerate(zip(laws, found, strict=True)):
        if law is not None and not law.holds(count, out):
            raise _fault(made, i, law, count)


def _is_quick(made: _Repeated, count: int) -> bool:
    """Return whether a call for many copies is quick, by the time of shorter calls.

    Solving equations, say, takes a time that grows with the cube of the length.
    """
    before, seconds = 0.0, 0.0
    for part in (count // 16, count // 4):
        start = time.process_time()
        if part > _SHORT[-1] and made.outputs(part) is None:
            return False
        before, seconds = seconds, time.process_time() - start
        if seconds * 4 > _LONGEST:
            break
    if seconds * max(seconds / max(before, 1e-3), 4.0) <= _LONGEST:
        return True
    made.session.notes.append(f"without long arrays: a fourth takes {seconds:.2g} s")
    return False


# The processor time that one call may take, in seconds.
_LONGEST: Final = 0.5


class _Repeated(NamedTuple):
    """A sample whose arrays can be repeated along an axis.

    Attributes
    ----------
    session : Session
    sample : Sample
    arrays : dict
        The arrays to repeat, by place.
    axis : int
    has_tail : bool
        Whether larger numbers follow at the end, where a kernel may not look.
    """

    session: Session
    sample: Sample
    arrays: dict[str, Array]
    axis: int
    has_tail: bool = False

    @classmethod
    def of(cls, session: Session, sample: Sample, axis: int) -> _Repeated | None:
        """Return the sample with the arrays that have its length, or None."""
        arrays = {
            place: x
            for place, x, _ in arrays_in(session.op, sample)
            if x.ndim and x.dtype.kind in "fiub"
        }
        if not arrays or (axis == -1 and all(x.ndim < 2 for x in arrays.values())):
            return None
        length = next(iter(arrays.values())).shape[axis]
        along = {p: x for p, x in arrays.items() if x.shape[axis] == length}
        return cls(session, sample, along, axis)

    def count_for(self, size: int) -> int:
        """Return how many copies make arrays of about this length."""
        x = max(self.arrays.values(), key=lambda x: x.size)
        length = x.shape[self.axis]
        return int(min(size, _MOST // (x.size // length)) // length)

    def sample_of(self, count: int) -> Sample:
        """Return the sample with its arrays repeated."""
        new = {p: self._tiled(x, count) for p, x in self.arrays.items()}
        note = f"repeated {count} times along axis {self.axis}"
        return replaced(self.session.op, self.sample, new, note)

    def _tiled(self, x: Array, count: int) -> Array:
        counts = [1] * x.ndim
        counts[self.axis] = count
        out = np.tile(x, counts)
        if not self.has_tail:
            return out
        last = (x * 1.5).astype(x.dtype) if x.dtype.kind == "f" else x
        return np.concatenate([out, last], self.axis)

    def outputs(self, count: int) -> list[Array] | None:
        """Return results and gradients for so many copies, or None if it refuses."""
        session, made = self.session, self.sample_of(count)
        is_short = count <= _SHORT[-1]
        if is_short and not session.oracle(self.sample).takes(made, NOISY):
            return None
        try:
            found = session.expected(made).out
        except Exception:  # noqa: BLE001  # long arrays that the kernel refuses
            return None
        if not all(isinstance(v, np.ndarray | np.generic) for v in found):
            return None
        found = [*map(np.asarray, found)]
        op = session.op
        if session.keeps_shapes or op.find_rule(AUTOGRAD) is None:
            return found
        if not why_no_derivative(session, made):
            with suppress(Exception):  # test_gradients reports it
                found += made_gradients(session, made).values()
        return found


def _laws_of(seen: Sequence[list[Array] | None]) -> list[_Law | None]:
    """Return the law of each result for growing numbers of copies, where it has one."""
    rows = [row for row in seen if row is not None]
    if len(rows) < len(seen) or len({len(row) for row in rows}) > 1:
        return []
    return [_law_of([row[i] for row in rows]) for i in range(len(rows[0]))]


def _fault(made: _Repeated, i: int, law: _Law, count: int) -> Fault:
    op = made.session.op
    places = arrays_in(op, made.sample_of(count))
    shown = " and ".join(f"'{p}' of shape {x.shape}" for p, x, _ in places)
    results = len(made.session.expected(made.sample).out)
    name = f"output {i}" if i < results else "a gradient"
    return Fault(
        f"gives other results for long arrays than for short ones: {name} on {shown}",
        f"for these arrays repeated up to {_SHORT[-1]} times, {law.text}",
        f"for {count} times it is not so",
        do="look at what the kernel does from some length on: blocks, threads, or indices"
        " of few bits",
        parameter=places[0].name,
    )


# ---- laws: how results change as arrays are repeated ----


class _Law(NamedTuple):
    """How an output depends on the number of copies: ``start + count * growth``.

    `expected` returns the output for a number of copies. `text` says it in words.
    `is_total` says that it is of the same shape for all, such as a sum or a maximum.
    """

    text: str
    expected: Callable[[int], Array]
    is_total: bool = False

    def holds(self, count: int, out: Array) -> bool:
        """Return whether an output for this many copies is as the law says."""
        with np.errstate(all="ignore"):
            return _are_near(out, self.expected(count), 1e-4)


def _are_near(a: Array, b: Array, bound: float = 1e-7) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "iub":
        return bool(np.array_equal(a, b))
    scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    apart = np.abs(np.where(a == b, 0.0, a - b))
    is_close = (apart <= bound * scale) | (np.isnan(a) & np.isnan(b))
    return bool(np.all(is_close))


def _law_of(outs: Sequence[Array]) -> _Law | None:
    """Return the law that all outputs follow, or None."""
    if any(out.dtype.kind not in "fiub" for out in outs):
        return None
    if len({out.shape for out in outs}) == 1:
        return _law_of_numbers(outs)
    return _law_of_axes(outs)


def _law_of_numbers(outs: Sequence[Array]) -> _Law | None:
    """Return the law of outputs of one shape: sums, means and extremes."""
    first = outs[0]
    if first.size == 0:
        return None
    if all(_are_near(out, first) for out in outs):
        return _Law("the output stays as it is", lambda count: first, is_total=True)
    if first.dtype.kind == "b":
        return None
    growth = outs[1] - first

    def expected(count: int) -> Array:
        found: Array = first + (count - 1) * growth
        return found

    pairs = zip(_SHORT, outs, strict=True)
    if all(_are_near(out, expected(count)) for count, out in pairs):
        return _Law(
            "the output grows by the same with each copy", expected, is_total=True
        )
    return None


def _law_of_axes(outs: Sequence[Array]) -> _Law | None:
    """Return the law of outputs that grow along an axis: maps and running sums."""
    first = outs[0]
    growing = [
        axis
        for axis in range(first.ndim)
        if all(
            out.ndim == first.ndim and out.shape[axis] == first.shape[axis] * count
            for count, out in zip(_SHORT, outs, strict=True)
        )
        and first.shape[axis] > 0
    ]
    for axis in growing:
        growth: Array
        if first.dtype.kind == "b":
            growth = np.zeros(first.shape)
        else:
            second = np.take(
                outs[1], range(first.shape[axis], 2 * first.shape[axis]), axis
            )
            if second.shape != first.shape:
                continue
            growth = second - first

        def expected(count: int, axis: int = axis, growth: Array = growth) -> Array:
            copies = [count if k == axis else 1 for k in range(first.ndim)]
            parts = np.tile(first, copies)
            if not growth.any():
                return parts
            length = first.shape[axis]
            shape = [1] * first.ndim
            shape[axis] = count * length
            numbers = np.repeat(np.arange(count), length).reshape(shape)
            found: Array = parts + numbers.astype(first.dtype) * np.tile(growth, copies)
            return found

        pairs = zip(_SHORT, outs, strict=True)
        if all(_are_near(out, expected(count)) for count, out in pairs):
            return _Law("each copy is computed like the first", expected)
    return None
