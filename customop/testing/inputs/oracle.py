"""Finding arguments that an operator accepts, by asking its kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray, c_strides, make_fake, to_c_order, to_fake
from customop.arrays.nested import flat, map_nested
from customop.core.derived.find import find_fake
from customop.core.kernels import find_kernel
from customop.errors import CustomOpWarning
from customop.testing.inputs.numbers import fill
from customop.testing.inputs.templates import OMITTED, Form, Node, Seeded, Slot, slots

__all__ = [
    "CLEAN",
    "NOISY",
    "REJECTED",
    "Filling",
    "Oracle",
    "Trial",
    "arrays_of",
    "build",
    "index_limit",
    "random_state_kept",
    "slots_of",
    "strict_numbers",
    "values_of",
]


@dataclass(frozen=True, slots=True)
class Filling:
    """What fills a place for an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    family: str = "wide"


@dataclass(frozen=True, slots=True)
class Trial:
    """A form of a call, and what fills its places."""

    form: Form
    fillings: tuple[Filling, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Number of axes of each array."""
        return tuple(len(f.shape) for f in self.fillings)

    @property
    def size(self) -> int:
        """Number of elements of all arrays."""
        return sum(int(np.prod(f.shape, dtype=int)) for f in self.fillings)

    def with_shapes(self, shapes: Sequence[tuple[int, ...]]) -> Trial:
        """The same with arrays of other shapes."""
        pairs = zip(self.fillings, shapes, strict=True)
        return Trial(self.form, tuple(replace(f, shape=s) for f, s in pairs))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of each array."""
        return [f.shape for f in self.fillings]


# ---- values of trials ----


def build(template: Any, arrays: Iterator[Any], seed: int = 0) -> Any:
    """The value of a template, its places filled with arrays, one after the other."""
    if isinstance(template, Slot):
        return next(arrays)
    if type(template) is Node:
        return template.make([build(item, arrays, seed) for item in template.items])
    return np.random.default_rng(seed) if isinstance(template, Seeded) else template


def arrays_of(trial: Trial, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """New arrays that fill the places of a trial."""
    limit = index_limit(trial)
    return [
        fill(f.family, f.shape, f.dtype, seed * 16 + i, limit).copy()
        for i, f in enumerate(trial.fillings)
    ]


def index_limit(trial: Trial) -> int:
    """The bound of numbers that may be indices: the shortest axis of the others."""
    lengths = [n for f in trial.fillings if f.dtype.kind not in "iu" for n in f.shape]
    return max(1, min([n for n in lengths if n > 0], default=2))


@lru_cache(maxsize=1024)
def _fake(shape: tuple[int, ...], dtype: np.dtype[Any]) -> FakeArray:
    return make_fake(shape, dtype, c_strides(shape, dtype.itemsize), "cpu")


def values_of(op: Any, form: Form, arrays: Iterator[Any], seed: int = 0) -> list[Any]:
    """Values of all parameters of an operator, as its kernels get them."""
    pairs = zip(op.schema.parameters, form, strict=True)
    return [
        p.default if template is OMITTED else build(template, arrays, seed)
        for p, template in pairs
    ]


# ---- asking the kernels ----

# How a kernel takes arguments: without a complaint; with a warning or with numbers
# that are not finite; not at all.
CLEAN, NOISY, REJECTED = range(3)


class Oracle:
    """Tells whether the kernels of an operator accept arguments.

    Parameters
    ----------
    op : Operator
    seconds : float
        Time after which it is `exhausted`.
    uses_fake : bool
        Whether the fake kernel is asked before the kernel.
    """

    def __init__(self, op: Any, seconds: float, *, uses_fake: bool = True) -> None:
        self.op = op
        self.kernel: Callable[..., Any] | None = find_kernel(op, "cpu")
        self.fake: Callable[..., Any] | None = find_fake(op) if uses_fake else None
        self._end = thread_time() + seconds
        self._latest = perf_counter() + 10 * seconds
        self.error: Exception | None = None

    @property
    def exhausted(self) -> bool:
        """Whether the time is over: that of this thread, so that others cost none."""
        return thread_time() > self._end or perf_counter() > self._latest

    def _call(self, fn: Callable[..., Any], values: Sequence[Any]) -> Any:
        positional, keywords = self.op.schema.split(values)
        return fn(*positional, **keywords)

    def fits_fake(self, trial: Trial) -> bool:
        """Whether annotations and fake kernel take arrays of these shapes."""
        if self.fake is None and not self.op.schema.has_shapes:
            return True
        fakes = iter([_fake(f.shape, f.dtype) for f in trial.fillings])
        return self._fake_takes(values_of(self.op, trial.form, fakes))

    def fake_takes(self, values: Sequence[Any]) -> bool:
        """Whether the fake kernel takes arrays of the shapes and dtypes of these."""
        return self._fake_takes([map_nested(v, to_fake) for v in values])

    def _fake_takes(self, values: Sequence[Any]) -> bool:
        try:
            if self.op.schema.has_shapes:
                self._call(self.op.bind, values)
            if self.fake is not None:
                self._call(self.fake, values)
        except Exception as error:  # noqa: BLE001  # whatever a kernel raises
            self.error = error
            # One that asks for values cannot tell: the kernel must.
            return type(error).__name__ == "DataDependentError"
        return True

    def outcome(self, trial: Trial, seed: int = 0) -> int:
        """How the kernel takes a trial."""
        if self.kernel is None:
            return CLEAN if self.fake is not None else REJECTED
        return self.outcome_of(
            values_of(self.op, trial.form, iter(arrays_of(trial, seed)), seed)
        )

    def outcome_of(self, values: Sequence[Any]) -> int:
        """How the kernel takes values, which it may change."""
        assert self.kernel is not None
        if self.op.needs_contiguous:
            values = [map_nested(v, to_c_order) for v in values]
        try:
            out = self._call(self.kernel, values)
        except (Warning, FloatingPointError) as error:
            self.error = error
            return NOISY
        except Exception as error:  # noqa: BLE001  # whatever a kernel raises
            self.error = error
            return REJECTED
        return CLEAN if all(map(_is_finite, flat(out))) else NOISY

    def accepts(self, trial: Trial, worst: int = CLEAN) -> bool:
        """Whether the kernels take a trial."""
        return self.fits_fake(trial) and self.outcome(trial) <= worst

    def agrees(self, trial: Trial) -> bool:
        """Whether the fake kernel tells the shapes and dtypes that the kernel gives."""
        fakes = iter([_fake(f.shape, f.dtype) for f in trial.fillings])
        told = self.told(values_of(self.op, trial.form, fakes))
        reals = values_of(self.op, trial.form, iter(arrays_of(trial)))
        return told is not None and told == self.given(reals)

    def told(self, values: Sequence[Any]) -> list[Any] | None:
        """Shapes and dtypes that the fake kernel tells; None where it tells none."""
        if self.fake is None:
            return None
        try:
            return _outline(
                self._call(self.fake, [map_nested(v, to_fake) for v in values])
            )
        except Exception:  # noqa: BLE001  # whatever a kernel raises
            return None

    def given(self, values: Sequence[Any]) -> list[Any] | None:
        """Shapes and dtypes that the kernel gives; None where it gives none."""
        if self.kernel is None:
            return None
        try:
            return _outline(self._call(self.kernel, values))
        except Exception:  # noqa: BLE001  # whatever a kernel raises
            return None


def _outline(out: Any) -> list[Any]:
    return [(getattr(v, "shape", None), getattr(v, "dtype", None)) for v in flat(out)]


def _is_finite(value: Any) -> bool:
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return kind not in ("f", "c") or bool(np.isfinite(value).all())


@contextmanager
def strict_numbers() -> Iterator[None]:
    """Let warnings and floating-point errors be raised as errors, for a while."""
    with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
        warnings.simplefilter("error")
        # What says nothing of the numbers.
        for category in (DeprecationWarning, FutureWarning, CustomOpWarning):
            warnings.simplefilter("ignore", category)
        yield


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Let kernels draw from NumPy's global generator, and put its state back."""
    before = np.random.get_state()  # noqa: NPY002  # what kernels may use
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def slots_of(form: Form) -> list[Slot]:
    """The places for arrays of a form, in order."""
    return [slot for template in form for slot in slots(template)]
