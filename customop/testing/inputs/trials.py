"""Trials: calls to try, described by a form and by what fills its arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray, make_fake
from customop.arrays.strides import c_strides
from customop.core.samples import Sample
from customop.schema.parameters import KEYWORD_ONLY, POSITIONAL_ONLY
from customop.schema.schema import Schema
from customop.testing.inputs.numbers import families, fill
from customop.testing.inputs.places import Array
from customop.testing.inputs.templates import OMITTED, Form, build

__all__ = ["Filling", "Trial", "call_of"]


@dataclass(frozen=True, slots=True)
class Filling:
    """Shape, dtype and family of numbers of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    family: str = "wide"

    def of_family(self, family: str) -> Filling:
        """The same with numbers of another family, where the dtype has it."""
        is_known = family in families(self.dtype.kind)
        return replace(self, family=family) if is_known else self


@dataclass(frozen=True, slots=True)
class Trial:
    """The form of a call, and what fills its arrays."""

    form: Form
    fillings: tuple[Filling, ...]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of each array."""
        return [f.shape for f in self.fillings]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Number of axes of each array."""
        return tuple(map(len, self.shapes))

    @property
    def size(self) -> int:
        """Number of elements of all arrays."""
        return sum(int(np.prod(shape, dtype=int)) for shape in self.shapes)

    @property
    def index_limit(self) -> int:
        """The bound of numbers that may be indices: the shortest axis of the others."""
        floats = [f for f in self.fillings if f.dtype.kind not in "iu"]
        return max(1, min([n for f in floats for n in f.shape if n > 0], default=2))

    def with_shapes(self, shapes: Sequence[tuple[int, ...]]) -> Trial:
        """The same with arrays of other shapes."""
        pairs = zip(self.fillings, shapes, strict=True)
        return Trial(self.form, tuple(replace(f, shape=s) for f, s in pairs))

    def arrays(self, seed: int = 0) -> list[Array]:
        """Make the arrays."""
        limit = self.index_limit
        return [
            fill(f.family, f.shape, f.dtype, seed * 16 + i, limit).copy()
            for i, f in enumerate(self.fillings)
        ]

    def fakes(self) -> list[FakeArray]:
        """Make fake arrays of the same shapes and dtypes."""
        return [_fake(f.shape, f.dtype) for f in self.fillings]

    def values(self, schema: Schema, arrays: Iterable[Any], seed: int = 0) -> list[Any]:
        """The values of all parameters, for a kernel."""
        pairs = zip(schema.parameters, self.row(arrays, seed), strict=True)
        return [p.default if v is OMITTED else v for p, v in pairs]

    def row(self, arrays: Iterable[Any], seed: int = 0) -> list[Any]:
        """The value of each parameter, or OMITTED."""
        left = iter(arrays)
        return [build(template, left, seed) for template in self.form]


@lru_cache(maxsize=1024)
def _fake(shape: tuple[int, ...], dtype: np.dtype[Any]) -> FakeArray:
    return make_fake(shape, dtype, c_strides(shape, dtype.itemsize), "cpu")


def call_of(schema: Schema, row: Sequence[Any]) -> Sample:
    """The call that gives parameters these values.

    Parameters that are OMITTED are left out; those behind them are passed by name.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    given = [v is not OMITTED for v in row]
    for i, (p, value) in enumerate(zip(schema.parameters, row, strict=True)):
        if p.kind == POSITIONAL_ONLY and any(given[i:]) and len(args) == i:
            args.append(p.default if value is OMITTED else value)
        elif value is OMITTED:
            continue
        elif p.kind == KEYWORD_ONLY or len(args) < i:
            kwargs[p.name] = value
        else:
            args.append(value)
    return Sample(tuple(args), kwargs)
