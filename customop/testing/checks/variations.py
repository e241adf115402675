"""Checks of the same values in other layouts and dtypes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import to_fake
from customop.arrays.kinds import (
    FAKE,
    is_array,
    is_fake,
)
from customop.arrays.nested import flat, map_nested
from customop.core.dispatch import find_kernel
from customop.core.samples import Sample
from customop.errors import ContractError
from customop.schema.tags import Tag
from customop.testing.checks.agreement import compare_fake
from customop.testing.checks.behavior import check_determinism
from customop.testing.checks.session import (
    Run,
    Session,
    arrays_of,
    host,
    outputs_of,
    split_call,
)
from customop.testing.fault import Fault
from customop.testing.inputs.variations import dtypes, layouts

__all__ = ["check_dtypes", "check_layouts", "in_dtypes", "in_layouts"]


# ---- test_layouts ----


def in_layouts(session: Session, sample: Sample) -> Iterator[Sample]:
    """The sample in other layouts.

    The shapes of the arguments of a call belong together, unless the operator says
    which others it takes.
    """
    op = session.op
    declares = op.schema.has_shapes or op.tags.intersection(_OF_ANY_SHAPE)
    return layouts(op, sample, keeps_shapes=session.keeps_shapes and not declares)


# Tags of operators that take arrays of any shape.
_OF_ANY_SHAPE = (Tag.pointwise, Tag.reduction)


def check_layouts(session: Session, sample: Sample) -> str:
    """A call does the same however its arrays lie in memory."""
    plain = [map_nested(value, _in_c_order) for value in session.values(sample)]
    try:
        expected = session.call(plain)
    except Exception:  # noqa: BLE001  # it refuses these values in any layout
        return "the kernel refuses these values"
    try:
        found = session.call(session.values(sample))
    except Exception:  # noqa: BLE001  # refused, which is not a wrong answer
        return "the kernel refuses this layout"
    try:
        session.compare(
            found,
            expected,
            f"between {sample.note or 'this layout'} and C order",
            do="go through arrays by their strides, as NumPy does, or tag the operator"
            f" with {Tag.needs_contiguous}",
        )
    except Fault:
        if _is_unsteady(session, sample):
            return _UNSTEADY
        raise
    return _check_fake_of(session, sample, found)


_UNSTEADY = "equal calls give other results, see test_determinism"


def _is_unsteady(session: Session, sample: Sample) -> bool:
    """Whether results differ without another layout or dtype."""
    try:
        check_determinism(session, sample)
    except Fault:
        return True
    return False


def _in_c_order(leaf: Any) -> Any:
    return leaf.copy(order="C") if isinstance(leaf, np.ndarray) else leaf


def _check_fake_of(session: Session, sample: Sample, found: Run) -> str:
    """The fake kernel, if there is one, is right for a variation too."""
    fake = find_kernel(session.op, FAKE)
    values = session.bound(sample)
    arrays = arrays_of(values)
    # NumPy returns results in the machine's byte order, which fake kernels cannot know.
    is_native = all(x.dtype.isnative for x in arrays if isinstance(x, np.ndarray))
    if fake is None or not arrays or not is_native:
        return ""
    if not _matches(session, fake, values, found):
        compare_fake(session, session.values(sample), fake)
    return ""


def _matches(session: Session, fake: Any, values: Sequence[Any], found: Run) -> bool:
    """Whether results have the outlines of their fakes: 30 us less than the proof."""
    try:
        out = split_call(session.op, fake, [map_nested(v, to_fake) for v in values])
    except Exception:  # noqa: BLE001  # the proof says what is wrong
        return False
    reals, fakes = flat(found.out), flat(outputs_of(session.op, out))
    return len(reals) == len(fakes) and all(map(_has_outline, reals, fakes))


def _has_outline(real: Any, fake: Any) -> bool:
    return (
        is_array(real)
        and is_fake(fake)
        and fake.shape == real.shape
        and fake.dtype == real.dtype
        and fake.strides == real.strides
    )


# ---- test_dtypes ----


def in_dtypes(session: Session, sample: Sample) -> Iterator[Sample]:
    """The sample in other dtypes, with a note where the fake kernel is wrong for one.

    Most kernels on floats turn integers into floats, and most of their fake kernels
    are `fake_like`. This is worth a note, and not a fault.
    """
    left_out: list[Sample] = []
    yield from dtypes(session.op, sample, left_out)
    session.notes += [
        f"for {other.note} the kernel returns another dtype than its fake kernel"
        for other in left_out[:1]
    ]


def check_dtypes(session: Session, sample: Sample) -> str:
    """A call on another dtype refuses it, or gives the same numbers."""
    values = session.values(sample)
    try:
        found = session.call(values)
    except Exception:  # noqa: BLE001  # refused, which is not a wrong answer
        return "the kernel refuses this dtype"
    letters = {leaf.dtype.kind for leaf in flat(values) if isinstance(leaf, np.ndarray)}
    wider = [(letters & {"f", "c"}, _wide_floats), (letters & {"i"}, _wide_numbers)]
    for wide in (fn for is_used, fn in wider if is_used):
        others = [map_nested(value, wide) for value in session.values(sample)]
        try:
            _compare_numbers(session, sample, found, others)
        except Fault:
            if _is_unsteady(session, sample):
                return _UNSTEADY
            raise
    try:
        return _check_fake_of(session, sample, found)
    except ContractError as error:
        if "dtype" not in error.where[0]:
            raise
        raise Fault(
            error.what.removeprefix(f"{session.op.qualname}: "),
            *error.where[:1],
            do="give the fake kernel the dtype that the kernel returns, such as"
            " np.result_type(x, float), or raise a TypeError in both for dtypes that"
            " the operator does not take",
        ) from None


def _wide_floats(leaf: Any) -> Any:
    """Short floats as float64, short complex numbers as complex128."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "fc":
        return leaf
    wide = np.result_type(leaf.dtype, np.float64)
    return leaf.astype(wide) if wide.itemsize > leaf.dtype.itemsize else leaf


def _wide_numbers(leaf: Any) -> Any:
    """Signed integers as floats too; unsigned ones, which wrap around, stay."""
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "i":
        return leaf.astype(np.float64)
    return _wide_floats(leaf)


# Elements that a message shows.
_SHOWN = 10


def _compare_numbers(
    session: Session, sample: Sample, found: Run, others: Sequence[Any]
) -> None:
    """The same numbers as float64 give the same results, as far as dtypes can hold."""
    if session.op.schema.written:  # a written array keeps its dtype
        return
    try:
        expected = session.call(others)
    except Exception:  # noqa: BLE001  # integers that are indices, say
        return
    given = [_loosest(x.dtype) for x in arrays_of(session.bound(sample))]
    for (name, a), (_, b) in zip(found.effects, expected.effects, strict=True):
        short, wide = host(a), host(b)
        if _same_numbers(short, wide, max(given, default=0.0)):
            continue
        raise Fault(
            f"{name} has other values for {sample.note or 'this dtype'} than for"
            " the same numbers as float64",
            f"{short.tolist()} and {wide.tolist()}"
            if short.size < _SHOWN
            else f"{short.dtype} and {wide.dtype}",
            do="compute in the dtype of the arguments, or raise a TypeError for"
            " dtypes that the kernel does not take",
        )


def _same_numbers(short: Any, wide: Any, bound: float) -> bool:
    """Whether results are equal, as far as the dtype of the first can hold.

    `bound` is that of the arguments: a result may be wider than what it is made of.
    """
    if not (is_array(short) and is_array(wide)):
        return True
    if short.dtype.kind not in "ifc" or not short.dtype.isnative:
        return True
    if short.shape != wide.shape or wide.dtype.kind not in "ifc":
        return bool(short.shape == wide.shape)
    if short.dtype.kind == wide.dtype.kind == "f":
        wide = wide.astype(short.dtype)  # too large a number becomes infinite
    if np.array_equal(short, wide):
        return True
    finite = wide[np.isfinite(wide)]
    scale = max(1.0, float(np.abs(finite).max(initial=0.0)))
    bound = 1.0 if short.dtype.kind == "i" else max(bound, _loosest(short.dtype))
    return bool(
        np.allclose(short, wide, rtol=bound, atol=bound * scale, equal_nan=True)
    )


# How far results may be off, relative to the greatest of them; integers by one. Loose:
# memory that is read as another dtype is off by far.
_LOOSE = {2: 1e-1, 4: 1e-2}


def _loosest(dtype: np.dtype[Any]) -> float:
    if dtype.kind not in "fc":
        return 0.0
    return _LOOSE.get(dtype.itemsize // (2 if dtype.kind == "c" else 1), 1e-3)
