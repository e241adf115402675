"""Samples become small and keep failing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from customop.testing import Sample
from customop.testing.inputs.input_patterns import base_samples
from customop.testing.inputs.shrink import shrink

from . import probed
from .sampling import operator, shapes_of

# ---- shrinking ----


def shrunk(op: Any, sample: Sample, fails: Callable[..., bool]) -> Sample:
    return shrink(op, sample, lambda s: fails(*s.args, **s.kwargs))


def big() -> Sample:
    rng = np.random.default_rng(0)
    return Sample((rng.uniform(1, 2, (7, 5, 6)), rng.uniform(1, 2, (7, 6, 8))))


@pytest.mark.parametrize(
    ("fails", "shapes"),
    [
        (lambda a, b: True, [(1, 1, 1), (1, 1, 1)]),
        (lambda a, b: a.shape[1] > 2, [(1, 3, 1), (1, 1, 1)]),
        (lambda a, b: b.shape[2] > 1 and a.shape[0] > 1, [(2, 1, 1), (2, 1, 2)]),
        (lambda a, b: a.size + b.size > 20, [(1, 1, 1), (1, 1, 20)]),
    ],
)
def test_shrinks_to_the_smallest_arrays(
    fails: Callable[..., bool], shapes: list[Any]
) -> None:
    """Axes become as short as the failure and the kernel allow."""
    op = operator(probed.batched_matmul)
    found = shrunk(op, big(), fails)
    assert fails(*found.args)
    sizes = [x.size for x in found.args]
    assert sum(sizes) <= sum(int(np.prod(s)) for s in shapes)


def test_shrinking_drops_axes() -> None:
    """Axes that the operator does not need are dropped."""
    op = operator(probed.scale)
    found = shrunk(op, Sample((np.ones((3, 4, 5)) * 1.5, 2.5)), lambda x, k: k > 1)
    assert found.args[0].shape == ()


def test_shrinking_keeps_the_layout_that_fails() -> None:
    """Negative strides stay if the failure needs them, with fewer elements."""
    op = operator(probed.arcsin)
    x = np.linspace(0.1, 0.9, 9)[::-1]
    found = shrunk(op, Sample((x,)), lambda x: x.ndim == 1 and x.strides[0] < 0)
    assert found.args[0].strides == (-8,)
    assert found.args[0].size <= 2


@pytest.mark.parametrize(
    ("fails", "note"),
    [
        (lambda x, k: x.dtype == np.float16, "float16 in all arrays"),
        (lambda x, k: x.size > 0, ""),
    ],
    ids=["it matters", "it does not"],
)
def test_shrinking_keeps_a_note_that_is_true(fails: Any, note: str) -> None:
    """The note of a sample stays only as long as it is true."""
    x = np.array([1.0, 2.0, 3.0], np.float16)
    sample = Sample((x, 2.5), note="float16 in all arrays")
    found = shrunk(operator(probed.scale), sample, fails)
    assert found.note == note


def test_shrinking_plains_what_does_not_matter() -> None:
    """Layout, dtype, options and numbers become plain where they do not matter."""
    op = operator(probed.layer_norm)
    x = np.asfortranarray(np.linspace(0.1234, 0.9876, 12).reshape(3, 4).astype("f4"))
    given = Sample((x,), {"weight": np.ones(4, "f4"), "bias": None})
    found = shrunk(op, given, lambda x, **_: x.ndim == 2 and x.shape[1] > 1)
    assert found.kwargs == {}
    (x,) = found.args
    assert (x.shape, x.dtype.name, x.flags.c_contiguous) == ((1, 2), "float64", True)
    assert [len(str(v)) <= 4 for v in x.ravel()] == [True, True]


def test_shrinking_makes_scalars_simple() -> None:
    """Numbers, lists and config objects become simple."""
    op = operator(probed.polynomial)
    given = Sample((np.array([0.5]), [3.5, -2.25, 7.125]))
    found = shrunk(op, given, lambda x, coefficients: len(coefficients) > 1)
    assert found.args[1] == [0.0, 0.0]
    smooth = operator(probed.smooth)
    window = probed.Window(np.ones(3), 12, 7.5)
    found = shrunk(
        smooth, Sample((np.ones(4), window)), lambda x, window: window.shift > 4
    )
    assert (found.args[1].shift, found.args[1].gain) == (5, 0.0)


def test_shrinking_gives_only_what_the_kernel_takes() -> None:
    """A smaller sample must be accepted by the kernel."""
    op = operator(probed.quaternion_multiply)
    sample = base_samples(op)[-1]
    found = shrunk(op, sample, lambda p, q: True)
    assert shapes_of(op, found) == [(4,), (4,)]


def test_shrinking_keeps_numbers_apart() -> None:
    """Distinct numbers stay distinct and away from zero, to avoid kinks."""
    op = operator(probed.arcsin)
    x = np.array([0.1234, 0.1267, 0.0123])
    found = shrunk(op, Sample((x,)), lambda x: x.size > 2)
    assert len(np.unique(found.args[0])) == 3
    assert (found.args[0] != 0).all()


def test_shrinking_ends() -> None:
    """It ends after the given number of tries, with a sample that fails."""
    op = operator(probed.scale)
    asked = []

    def fails(s: Sample) -> bool:
        asked.append(s)
        return True

    sample = Sample((np.ones((4, 5)), 2.5))
    assert shrink(op, sample, fails, tries=0) is sample
    assert asked == []
