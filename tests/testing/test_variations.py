"""Samples in other layouts and dtypes, and copies of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.builtin_kinds import AUTOGRAD
from customop.testing import Sample
from customop.testing.checks.session import Session
from customop.testing.checks.smooth import at_special_values
from customop.testing.inputs.input_patterns import base_samples
from customop.testing.inputs.sample_values import fresh
from customop.testing.inputs.variations import dtypes, layouts

from . import probed
from .sampling import operator, shapes_of

# ---- layouts ----

X = np.array([1.5, -2.5])
SPECIAL = ("no axes", "no length", "broadcast")


def notes(found: list[Sample]) -> set[str]:
    return {s.note.partition(" of ")[0].partition(" in ")[0] for s in found}


@pytest.fixture
def pair() -> tuple[Any, Sample]:
    op = operator(probed.batched_matmul)
    return op, base_samples(op)[-1]


def test_layouts_have_equal_values(pair: tuple[Any, Sample]) -> None:
    """A layout changes only strides and flags."""
    op, sample = pair
    kept = [s for s in layouts(op, sample) if not s.note.startswith(SPECIAL)]
    assert len(kept) > 15
    for varied in kept:
        for a, b in zip(varied.args, sample.args, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


@pytest.mark.parametrize(
    ("note", "holds"),
    [
        ("non-contiguous", lambda x: not x.flags.forc),
        ("rows with gaps between", lambda x: not x.flags.forc),
        ("negative strides", lambda x: all(s < 0 for s in x.strides)),
        ("Fortran order", lambda x: x.flags.f_contiguous and not x.flags.c_contiguous),
        ("last axis first in memory", lambda x: x.strides[-1] == max(x.strides)),
        ("unaligned", lambda x: not x.flags.aligned),
        ("read-only", lambda x: not x.flags.writeable),
        ("broadcast", lambda x: 0 in x.strides),
    ],
)
def test_layouts_are_what_they_say(
    pair: tuple[Any, Sample], note: str, holds: Callable[[Any], bool]
) -> None:
    """Each layout is used for each array alone and for all, as its note says."""
    op, sample = pair
    found = {s.note: s for s in layouts(op, sample) if s.note.startswith(note)}
    assert set(found) == {f"{note} of {w}" for w in ("'a'", "'b'", "all arrays")}
    assert holds(found[f"{note} of 'a'"].args[0])
    assert found[f"{note} of 'a'"].args[1] is sample.args[1]
    assert holds(found[f"{note} of 'b'"].args[1])
    assert all(map(holds, found[f"{note} of all arrays"].args))


def test_other_shapes_are_those_that_are_accepted(pair: tuple[Any, Sample]) -> None:
    """Empty axes are equal where the operator needs that; arrays keep their axes."""
    op, sample = pair
    found = [s for s in layouts(op, sample) if s.note.startswith(("no length", "no a"))]
    shapes = [shapes_of(op, s) for s in found]
    (n, i, j), (_, _, k) = shapes_of(op, sample)
    assert sorted(shapes) == sorted(
        [
            [(0, i, j), (0, j, k)],
            [(n, 0, j), (n, j, k)],
            *[[(n, i, 0), (n, 0, k)]] * 3,
            [(n, i, j), (n, j, 0)],
            *[[(n, 0, j), (n, j, k)], [(n, i, j), (n, j, 0)]],
        ]
    )


def test_arrays_without_axes() -> None:
    """An array without axes has a value of the sample."""
    op = operator(probed.arcsin)
    sample = base_samples(op)[-1]
    (found,) = (s for s in layouts(op, sample) if s.note.startswith("no axes"))
    assert found.args[0].shape == ()
    assert found.args[0] == sample.args[0].flat[0]


def test_written_arrays_are_never_read_only() -> None:
    """A written array is never read-only or broadcast."""

    def add_to(x: np.ndarray, y: np.ndarray) -> None:
        x += y

    op = operator(add_to, mutates_args=("x",))
    for sample in base_samples(op):
        for varied in layouts(op, sample):
            assert varied.args[0].flags.writeable
            assert 0 not in varied.args[0].strides or not varied.args[0].size


def test_layouts_reach_into_config_objects() -> None:
    """Arrays in lists and config objects get layouts too."""
    op = operator(probed.smooth)
    sample = base_samples(op)[-1]
    found = {s.note: s for s in layouts(op, sample)}
    varied = found["negative strides of 'window.taps'"]
    assert varied.args[1].taps.strides == (-8,)
    assert varied.args[1].shift == sample.args[1].shift
    lists = operator(probed.stack)
    names = {s.note for own in base_samples(lists) for s in layouts(lists, own)}
    assert "Fortran order of 'arrays[1]'" in names


def test_layouts_leave_the_sample_alone(pair: tuple[Any, Sample]) -> None:
    """The arrays of the user are never changed."""
    op, sample = pair
    before = [x.copy() for x in sample.args]
    for varied in (*layouts(op, sample), *dtypes(op, sample)):
        for x in varied.args:
            if x.flags.writeable and not any(x is y for y in sample.args):
                x[...] = 0
    for x, y in zip(sample.args, before, strict=True):
        np.testing.assert_array_equal(x, y)


def test_memory_around_a_layout_is_other() -> None:
    """The memory around a layout holds other numbers."""
    op = operator(probed.arcsin)
    sample = Sample((np.array([0.1, 0.2, 0.3]),))
    for varied in layouts(op, sample):
        x = fresh(varied).args[0]
        if x.flags.c_contiguous or x.size < 3 or not x.flags.aligned:
            continue
        start = x.ctypes.data
        read = np.ctypeslib.as_array(
            (np.ctypeslib.ctypes.c_double * 3).from_address(start)
        )
        assert read[0] == 0.1
        assert not np.array_equal(read, sample.args[0])
        assert read[1] > 1e100 or read[1] in sample.args[0]


# ---- dtypes ----


def test_dtypes_of_any_number() -> None:
    """An operator that takes any number gets each dtype, and the other byte order."""

    def opposite(x: np.ndarray) -> np.ndarray:
        return 0 - x

    op = operator(opposite)
    found = {s.args[0].dtype.str for s in dtypes(op, Sample((np.array([1.5, -2.5]),)))}
    own = {"f4", "f2", "f16", "c8", "c16", "i8", "i4", "i2", "u8", "u4", "u2"}
    assert {name[1:] for name in found} >= own | {"i1", "u1", "b1"}
    swapped = np.dtype("f8").newbyteorder("S").str
    assert swapped in found


def test_dtypes_keep_values() -> None:
    """Values are the same as far as the dtype can hold them."""
    op = operator(probed.scale)
    values = [1.5, -2.25]
    expected = {"f": values, "c": values, "i": [2, -3], "u": [2, 3], "b": [1, 0]}
    for varied in dtypes(op, Sample((np.array(values), 2.0))):
        x, factor = varied.args
        if varied.note.startswith("large "):
            continue
        np.testing.assert_array_equal(x.real, expected.pop(x.dtype.kind, x.real))
        assert factor == 2.0
    assert expected == {}


def test_indices_and_masks_keep_their_dtype() -> None:
    """Indices get other integer dtypes; masks stay masks."""
    op = operator(probed.embedding)
    found = {s.args[1].dtype.kind for s in dtypes(op, base_samples(op)[0])}
    assert found == {"i"}

    def keep(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return np.where(mask, x, 0)

    masked = operator(keep)
    kinds = {s.args[1].dtype.kind for s in dtypes(masked, base_samples(masked)[0])}
    assert kinds == {"b"}


def test_dtypes_that_an_operator_is_not_meant_for() -> None:
    """A dtype is left out if the fake kernel refuses it, and not if it is wrong for it."""

    def root(x: np.ndarray) -> np.ndarray:
        return np.sqrt(x)

    def fake(x: Any) -> Any:
        if x.dtype.kind not in "fc":
            raise TypeError("floats")
        return co.fake_like(x)

    sample = Sample((np.array([1.5, 2.5]),))
    every = {"f", "c", "i", "u", "b"}
    for given in (None, lambda x: co.fake_like(x)):
        found = dtypes(operator(root, given), sample)
        assert {s.args[0].dtype.kind for s in found} == every
    found = dtypes(operator(root, fake), sample)
    assert {s.args[0].dtype.kind for s in found} == {"f", "c"}


def test_dtypes_of_one_array_need_consent() -> None:
    """Another dtype of one array alone is left out if the fake kernel is wrong for it."""

    def added(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x + y

    sample = Sample((np.array([1.5, 2.5]), np.array([0.5, 1.0])))
    found = dtypes(operator(added, lambda x, y: co.fake_like(x)), sample)
    alone = {s.note for s in found if s.note.endswith("in 'x'")}
    assert alone == {"complex128 in 'x'", "other byte order in 'x'"}


def test_dtypes_with_imaginary_parts_and_large_integers() -> None:
    """Complex numbers are not real ones, and integers of a byte are large."""

    def opposite(x: np.ndarray) -> np.ndarray:
        return 0 - x

    found = {s.note: s.args[0] for s in dtypes(operator(opposite), Sample((X,)))}
    assert (found["complex128 in all arrays"].imag != 0).all()
    assert found["large int8 in all arrays"].tolist() == [80, -120]


# ---- copies ----


def test_fresh_keeps_layout_and_identity() -> None:
    """A copy has the strides and flags of its original, in new memory."""
    op = operator(probed.batched_matmul)
    sample = base_samples(op)[-1]
    for varied in layouts(op, sample):
        own = fresh(varied)
        for a, b in zip(own.args, varied.args, strict=True):
            assert a.strides == b.strides
            assert a.flags == b.flags or a.flags.owndata != b.flags.owndata
            assert a.flags.aligned == b.flags.aligned
            assert a.flags.writeable == b.flags.writeable
            np.testing.assert_array_equal(a, b)
            assert not np.shares_memory(a, b)


def test_fresh_keeps_one_array_one() -> None:
    """An array that is passed twice is passed twice in the copy too."""
    x = np.ones(2)
    own = fresh(Sample((x, x)))
    assert own.args[0] is own.args[1]
    assert own.args[0] is not x


def test_fresh_generators_draw_alike() -> None:
    """A Generator is copied with its state."""
    sample = Sample((np.random.default_rng(3),))
    first, second = (fresh(sample).args[0].random() for _ in range(2))
    assert first == second == sample.args[0].random()


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([1.0, 1.0], ["zeros", "large numbers", "complex numbers"]),
        ([1.0, 2.0], ["zeros", "large numbers", "complex numbers", "equal numbers"]),
        # Its derivatives are checked beside the kink, and there at zero itself.
        ([0.0, 0.0], ["zeros", "large numbers", "complex numbers", "equal numbers"]),
    ],
)
def test_special_values_are_not_those_that_are_checked_already(
    x: list[float], expected: list[str]
) -> None:
    @co.custom_op("vary::positive", mutates_args=())
    def positive(x: np.ndarray) -> np.ndarray:
        return np.where(np.real(x) > 0, x, 0.0)

    positive.register_autograd(
        lambda ctx, g: g * ctx.mask,
        setup_context=lambda ctx, inputs, output: setattr(
            ctx, "mask", np.real(inputs[0]) > 0
        ),
    )
    sample = Sample((np.array(x),))
    session = Session(positive, [sample])
    found = [s.note for s in at_special_values(AUTOGRAD, session, sample) if s.note]
    kinds = [note.removesuffix(" in all arrays") for note in found]
    assert [note for note in kinds if not note.startswith("longer")] == expected
