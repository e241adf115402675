"""The samples on arrays of symbolic sizes: their fake results, at these and other sizes.

The sizes of the arrays become symbols. In one form each axis has a symbol of its own, so
that every question about sizes becomes a guard. In the other equal lengths share a name,
so that no guard may arise; the samples that need one there are listed in
``refused_sizes.txt``.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import customop as co
from customop.arrays.array import axis_order
from customop.shapes.expressions import value_of
from customop.shapes.size_context import SizeContext, set_active
from tests.conformance import checks
from tests.conformance.samples import Sample

# Forms of symbolic sizes: a symbol for each axis, or a name for each length.
FORMS = ("fresh", "named")


class Sized:
    """A sample whose arrays are fake and of symbolic sizes.

    Parameters
    ----------
    sample : Sample
        With arrays of NumPy.
    form : str
        One of `FORMS`.
    """

    def __init__(self, sample: Sample, form: str) -> None:
        self.given = sample
        self.form = form
        self.context = SizeContext()
        args = tuple(self._arg(i, a) for i, a in enumerate(sample.args))
        self.sample: Sample = dataclasses.replace(sample, args=args)

    def _arg(self, position: int, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        shape = [
            self._size(n, f"x{position}.shape[{axis}]")
            for axis, n in enumerate(value.shape)
        ]
        return co.FakeArray(
            shape, value.dtype, order=axis_order(value.shape, value.strides)
        )

    def _size(self, length: int, source: str) -> Any:
        if self.form == "fresh":
            return self.context.input_size(length, source)
        # Nobody gives a name to an axis of length one that is to broadcast.
        if length == 1:
            return 1
        return self.context.input_size(length, source, name=f"n{length}")

    def run(self, fn: Callable[..., Any], *args: Any) -> list[Any]:
        """The results of a function on fake arrays, of these sizes."""
        before = set_active(self.context)
        try:
            with co.FakeMode():
                return checks.leaves(fn(*args))
        finally:
            set_active(before)

    # ---- other sizes ----

    def assignments(self, count: int) -> Iterator[dict[str, int]]:
        """Some other sizes that keep the guards."""
        hints = {n: s.hint for n, s in self.context.sizes.items() if s.kind != "data"}
        equal = self.context.knowledge.equal
        for step in itertools.islice(_steps(sorted({*hints.values()})), 60):
            values = {name: step[hint] for name, hint in hints.items()}
            try:
                for name, same in equal.items():
                    values[name] = value_of(same, values)
            except KeyError:  # of data
                continue
            if values == hints or min(values.values(), default=0) < 0:
                continue
            if all(guard.holds(values) for guard in self.context.guards):
                yield values
                count -= 1
                if not count:
                    return

    def at(self, values: Mapping[str, int]) -> Sample:
        """The sample with arrays of NumPy of these sizes."""
        pairs = zip(self.sample.args, self.given.args, strict=True)
        args = [
            resized(real, shape_at(fake.shape, values)) if fake is not real else real
            for fake, real in pairs
        ]
        return dataclasses.replace(self.given, args=tuple(args))


def _steps(lengths: Sequence[int]) -> Iterator[dict[int, int]]:
    """New lengths for old ones; the larger first, which keep indices in bounds."""
    for more in (1, 2, 3, 5):
        yield {n: n + more for n in lengths}
    for one in lengths:
        for more in (1, 2, -1, 4):
            yield {n: n + more * (n == one) for n in lengths}
    for factor in (2, 3):
        yield {n: n * factor for n in lengths}
    for fixed in (1, 2, 0):
        yield dict.fromkeys(lengths, fixed)
    random = np.random.default_rng(7)
    while True:
        yield {n: int(random.integers(0, 7)) for n in lengths}


def resized(x: Any, shape: tuple[int, ...]) -> Any:
    """An array of another shape with the elements of one, in turns."""
    if tuple(x.shape) == shape:
        return x
    new = np.resize(x, shape) if x.size else np.ones(shape, x.dtype)
    if x.ndim < 2 or x.dtype.kind not in "fc":
        return new
    # What was a matrix of full rank, or a regular, symmetric or positive one, stays so.
    rng = np.random.default_rng(5)
    new = new + (rng.normal(size=shape) * 0.1).astype(x.dtype)
    if shape[-1] != shape[-2]:
        return new
    flipped = np.swapaxes(x, -1, -2).conj()
    if x.shape == flipped.shape and np.allclose(x, flipped):
        new = new @ np.swapaxes(new, -1, -2).conj()
    return (new + 2 * shape[-1] * np.eye(shape[-1])).astype(x.dtype)


def shape_at(shape: Sequence[Any], values: Mapping[str, int]) -> tuple[int, ...]:
    """A symbolic shape at some sizes."""
    return tuple(size_at(n, values) for n in shape)


def size_at(n: Any, values: Mapping[str, int]) -> int:
    """A size at some sizes."""
    return n if type(n) is int else value_of(n.expr, values)


def agree(fakes: Sequence[Any], reals: Sequence[Any], sizes: Mapping[str, int]) -> None:
    """Raise unless fake results have, at some sizes, the shapes and dtypes of others.

    A size that depends on data is taken from the first result that has it.
    """
    values = dict(sizes)
    assert len(fakes) == len(reals)
    for fake, real in zip(fakes, reals, strict=True):
        if not isinstance(fake, co.FakeArray):
            continue  # made of constants alone
        shape = np.shape(real)
        assert len(fake.shape) == len(shape)
        for n, length in zip(fake.shape, shape, strict=True):
            if is_data(n) and str(n).isalnum():
                values.setdefault(str(n), length)
            if not is_data(n) or n.expr.names <= values.keys():
                assert size_at(n, values) == length, f"{fake} is {shape} at {values}"
        assert fake.dtype == np.asarray(real).dtype


def is_data(n: Any) -> bool:
    """Whether a size depends on data."""
    return isinstance(n, co.SymInt) and n.hint is None


def has_data_sizes(fake: Any) -> bool:
    """Whether a size of an array depends on data."""
    return any(map(is_data, fake.shape))


def hints(sized: Sized) -> dict[str, int]:
    """The sizes of a sample as it is given."""
    kept = sized.context.sizes.items()
    return {name: size.hint for name, size in kept if size.hint is not None}


# ---- ways ----


def fake_results(sized: Sized) -> list[Any]:
    """The fake results of a sample."""
    return sized.run(lambda: checks.call(sized.sample, *sized.sample.args))


def plain_results(sized: Sized) -> list[Any]:
    """The fake results of a sample at the sizes that it has, as numbers."""
    args = [
        a
        if not isinstance(a, np.ndarray)
        else co.FakeArray(a.shape, a.dtype, order=axis_order(a.shape, a.strides))
        for a in sized.given.args
    ]
    return sized.run(lambda: checks.call(sized.given, *args))


def gradients(sized: Sized) -> tuple[list[Any], list[Any]]:
    """Fake gradients by reverse mode, and the arrays whose shapes they must have."""
    primals = checks.primals_of(sized.sample)

    def pull() -> Any:
        out, pullback = co.vjp(checks.partial_of(sized.sample), *primals)
        return pullback(tuple(co.fake_like(y) for y in out))

    return sized.run(pull), primals


def tangents(sized: Sized) -> tuple[list[Any], list[Any]]:
    """Fake tangents of the results, and the results."""
    primals = tuple(checks.primals_of(sized.sample))

    def push() -> Any:
        directions = tuple(co.fake_like(x) for x in primals)
        return co.jvp(checks.partial_of(sized.sample), primals, directions)

    found = sized.run(push)
    count = len(found) // 2
    return found[count:], found[:count]


def rows(sized: Sized) -> list[Any]:
    """Fake results of a batch of a symbolic number of rows, which comes first."""
    size = sized.context.input_size(3, "rows", name="rows")
    at = checks.array_positions(sized.given)
    args = [
        co.FakeArray((size, *a.shape), a.dtype) if i in at else a
        for i, a in enumerate(sized.sample.args)
    ]
    dims = tuple(0 if i in at else None for i in range(len(args)))
    batched = co.vmap(lambda *a: checks.call(sized.sample, *a), in_dims=dims)
    return sized.run(batched, *args)
