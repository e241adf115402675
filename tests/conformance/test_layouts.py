"""Fake results have the strides of real ones, for arrays of all layouts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays.fake import to_fake
from customop.arrays.nested import flat, map_nested
from customop.numpy.solve import inv
from tests.conformance import checks
from tests.conformance.samples import Sample

Array = np.ndarray[Any, Any]


def _gaps(x: Array) -> Array:
    """Return an array whose last axis runs backwards, with gaps."""
    out = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)[..., ::-2]
    out[...] = x
    return out


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "F": lambda x: x.copy(order="F"),
    "first axis fastest": lambda x: np.moveaxis(np.moveaxis(x, 0, -1).copy(), -1, 0),
    "last axes swapped": lambda x: (
        x if x.ndim < 3 else x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    ),
    "gaps": _gaps,
}
STACKS: dict[str, Callable[[Array], Array]] = {
    "as it is": lambda x: x,
    "columns": lambda x: np.stack([x, x], -1),
    "both": lambda x: np.stack([np.stack([x, x, x], -1)] * 2),
}


def _changed(value: Any, change: Callable[[Array], Array]) -> Any:
    """Return an argument with other arrays in the place of those that have axes."""
    if isinstance(value, np.ndarray) and value.ndim:
        return change(value)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(_changed(v, change) for v in value)
    return value


def _on(
    sample: Sample, change: Callable[[Array], Array], alone: bool
) -> Iterator[Sample]:
    """Yield a sample with all arrays changed, then with each argument alone if asked."""
    args = sample.args
    every = tuple(_changed(a, change) for a in args)
    moved = [i for i, (a, b) in enumerate(zip(args, every, strict=True)) if a is not b]
    if moved:
        yield replace(sample, args=every)
    for i in moved if alone and len(moved) > 1 else ():
        yield replace(sample, args=(*args[:i], every[i], *args[i + 1 :]))


@pytest.mark.parametrize("group", checks.groups_of(checks.all_samples()))
def test_fake_strides_are_real(group: list[Sample]) -> None:
    """Each operator that a sample calls, on stacks of its arrays in each layout."""
    faults = {sample.name: compare(sample).faults for sample in group}
    assert not any(faults.values()), faults


def test_a_singular_matrix_does_not_change_the_strides_of_inverses() -> None:
    """Inside `np.linalg.cond` it gives nan, and the others are inverted."""
    x = np.stack([np.eye(3), np.ones((3, 3)), 2.0 * np.eye(3), np.eye(3)])
    x = x.reshape(2, 2, 3, 3).copy("F")
    found = inv(x, nan_if_singular=True)
    assert found.strides == np.linalg.inv(np.full_like(x, np.eye(3))).strides
    assert np.isnan(found[0, 1]).all()
    np.testing.assert_array_equal(found[1, 0], np.linalg.inv(x[1, 0]))
    assert np.isnan(inv(np.ones((2, 2)), nan_if_singular=True)).all()


def calls(sample: Sample) -> Iterator[Sample]:
    """Yield a sample for stacks of its arrays that NumPy takes, in each layout."""
    for name, stack in STACKS.items():
        is_given = name == "as it is"
        for stacked in [sample] if is_given else _on(sample, stack, alone=True):
            try:
                checks.call(stacked, *stacked.args)
            except Exception:  # noqa: BLE001  # arrays of this rank are not for it
                continue
            for layout in LAYOUTS.values():
                yield from _on(stacked, layout, alone=is_given)


class Compared(co.Interpreter):
    """Runs each operator on real and on fake arrays, and compares strides.

    Attributes
    ----------
    faults : dict
        Operator -> the first of its calls whose results differ.
    count : int
        How many results were compared.
    """

    kind = co.RuleKind("compared")

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[str, str] = {}
        self.count = 0

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        """Run the operator on the arrays, and on fake ones like them."""
        values = self.unwrap(args)
        try:
            fakes = op.invoke([map_nested(v, to_fake) for v in values])
        except co.CustomOpError:
            fakes = None
        out = op.invoke(values)
        for real, fake in zip(_arrays(out), _arrays(fakes), strict=False):
            self.count += 1
            if lies_otherwise(real, fake):
                text = f"{[describe(v) for v in _arrays(values)]}: {describe(real)}"
                self.faults.setdefault(op.qualname, f"{text}, not {fake.strides}")
        return self.wrap(out)


def _arrays(value: Any) -> list[Any]:
    return [v for v in flat(value) if hasattr(v, "strides")]


def describe(x: Any) -> str:
    """Return the shape and strides of an array."""
    return f"{x.shape} {x.strides}"


def lies_otherwise(real: Any, fake: Any) -> bool:
    """Return whether elements lie otherwise in memory than a fake array says."""
    if real.shape != fake.shape or real.dtype != fake.dtype or not real.size:
        return False  # other tests compare these
    triples = zip(real.shape, real.strides, fake.strides, strict=True)
    return any(n > 1 and a != b for n, a, b in triples)


def compare(sample: Sample) -> Compared:
    """Run a sample in all layouts, and return what was compared."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), Compared() as compared:
        warnings.simplefilter("ignore")
        for call in calls(sample):
            args = [_changed(a, compared.wrap) for a in call.args]
            try:
                checks.call(call, *args)
            except (co.CustomOpError, ValueError, TypeError):
                continue  # it asks for values, or refuses what NumPy takes
    return compared
