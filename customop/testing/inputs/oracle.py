"""Asking the kernels of an operator whether they accept arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from customop.arrays.fake import to_c_order, to_fake
from customop.arrays.nested import flat
from customop.arrays.sizes import with_numbers
from customop.core.derived.find import find_fake
from customop.core.dispatch import find_kernel
from customop.core.fake_context import FakeCall
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import DataDependentError
from customop.testing.inputs.memory import fresh, map_values, plain_copies
from customop.testing.inputs.trials import Trial, call_of
from customop.testing.quiet import strict_numbers
from customop.testing.watch import about_to_run

__all__ = [
    "CLEAN",
    "NOISY",
    "REJECTED",
    "Oracle",
    "announced",
    "outcome_of",
]

# How a kernel takes arguments: silently; with a warning or with results that are not
# finite; not at all.
CLEAN, NOISY, REJECTED = range(3)

# Calls of kernels after which a search stops. The hardest function of the tests
# needs 2,000.
_CALLS = 10_000
# Seconds after which it stops too. Kernels of a millisecond stay far below on a busy
# machine, so that only slow kernels have fewer inputs for it.
_SECONDS = 5.0


class Oracle:
    """Tells whether the kernels of an operator accept arguments.

    Parameters
    ----------
    op : Operator
    uses_fake : bool
        Whether the fake kernel is asked before the kernel.

    Attributes
    ----------
    error : Exception or None
        The last error of a kernel.
    """

    def __init__(self, op: Operator[..., Any], *, uses_fake: bool = True) -> None:
        self.op = op
        self.kernel: Callable[..., Any] | None = find_kernel(op, "cpu")
        self.fake: Callable[..., Any] | None = find_fake(op) if uses_fake else None
        self.error: Exception | None = None
        self._left = _CALLS
        self._end = perf_counter() + _SECONDS

    @classmethod
    def around(cls, op: Operator[..., Any], sample: Sample) -> Oracle:
        """An oracle that asks the fake kernel only if it accepts the sample itself."""
        made = cls(op)
        if not made.fits(made.bound(sample)):
            made.fake = None
        return made

    @property
    def exhausted(self) -> bool:
        """Whether the kernels were asked often enough."""
        return self._left < 0 or perf_counter() > self._end

    def bound(self, sample: Sample) -> Sequence[Any]:
        """The values of all parameters, in arrays that a kernel may write."""
        copies = None if sample.kwargs else plain_copies(sample.args)
        if copies is not None:
            return self.op.bind(*copies)
        own = fresh(sample)
        return self.op.bind(*own.args, **own.kwargs)

    def _call(self, fn: Callable[..., Any], values: Sequence[Any]) -> Any:
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
        """Whether annotations and fake kernel accept arrays of these shapes."""
        return self._fits(map_values(to_fake, values))

    def _fits(self, fakes: Sequence[Any]) -> bool:
        try:
            if self.op.schema.has_shapes:
                self._call(self.op.bind, fakes)
            if self.fake is not None:
                self._call_fake(self.fake, fakes)
        except Exception as error:  # noqa: BLE001  # whatever a kernel raises
            self.error = error
            # A fake kernel that asks for values cannot tell: the kernel must.
            return isinstance(error, DataDependentError)
        return True

    def fits_trial(self, trial: Trial) -> bool:
        """Whether annotations and fake kernel accept a trial."""
        if self.fake is None and not self.op.schema.has_shapes:
            return True
        return self._fits(trial.values(self.op.schema, trial.fakes()))

    def fits_sample(self, sample: Sample) -> bool:
        """Whether annotations and fake kernel accept a sample, of which these are right."""
        return self.fits(self.op.bind(*sample.args, **sample.kwargs))

    # ---- the kernel ----

    def outcome_of(self, values: Sequence[Any]) -> int:
        """How the kernel takes values, which it may change."""
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
        """How the kernel takes a trial."""
        schema = self.op.schema
        about_to_run(lambda: call_of(schema, trial.row(trial.arrays(seed), seed)))
        return self.outcome_of(trial.values(self.op.schema, trial.arrays(seed), seed))

    # ---- both ----

    def accepts(self, trial: Trial, worst: int = CLEAN) -> bool:
        """Whether the kernels take a trial."""
        return self.fits_trial(trial) and self.outcome(trial) <= worst

    def takes(self, sample: Sample, worst: int = CLEAN) -> bool:
        """Whether the kernels take a sample."""
        return self._taken(sample)[0] <= worst

    def takes_as_announced(self, sample: Sample) -> bool:
        """Whether the kernels take a sample, and the fake one is right about it."""
        outcome, values, out = self._taken(sample)
        return outcome == CLEAN and self.announces(values, out) is not False

    def _taken(self, sample: Sample) -> tuple[int, Sequence[Any], Any]:
        """How the kernels take a sample, its values, and the results."""
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
        """How the kernel takes a sample, within `strict_numbers`, and its results."""
        about_to_run(lambda: sample)
        try:
            values = self.bound(sample)
        except Exception:  # noqa: BLE001  # annotations, or a constructor, refuse it
            return REJECTED, None
        return (CLEAN, None) if self.kernel is None else self._run(values)

    def agrees(self, values: Callable[[], Sequence[Any]]) -> bool | None:
        """Whether the fake kernel announces the shapes and dtypes of the results.

        None where the fake kernel announces nothing.
        """
        with strict_numbers():
            out = None if self.kernel is None else self._run(values())[1]
        return self.announces(values(), out)

    def announces(self, values: Sequence[Any], out: Any) -> bool | None:
        """As `agrees`, for results that are known."""
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
        """Shapes and dtypes of the results of a kernel; None where it raises."""
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
    """Results of a fake kernel, and the context of sizes that depend on data, if any."""
    sizes: list[Any] = []
    return FakeCall(op, values, sizes).run(fake), sizes


def outcome_of(
    call: Callable[[], Any], note: Callable[[Exception], None] = lambda error: None
) -> tuple[int, Any]:
    """How a kernel takes a call, within `strict_numbers`, and its results."""
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
    if type(value) is np.ndarray:  # as below, in half of the time
        return b"\0" not in np.isfinite(value).tobytes()
    return bool(np.isfinite(value).all())
