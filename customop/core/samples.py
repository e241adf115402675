"""What opcheck knows of an operator: samples to run it on, and checks that may fail."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from customop.arrays.nested import show_values
from customop.core.table import RuleTable
from customop.errors import (
    ArgumentError,
    RegistrationError,
    did_you_mean,
    place,
    quoted,
)
from customop.frozen import Frozen

# ---- samples: the arguments of one call ----


class Sample(Frozen, compare=()):
    """The arguments of one call of an operator.

    Parameters
    ----------
    args : tuple
        Positional arguments.
    kwargs : dict
        Arguments by name.
    note : str
        What is special about it, such as ``"negative strides of 'x'"``.

    Examples
    --------
    >>> import numpy as np
    >>> from customop.testing import Sample
    >>> Sample((np.arange(3.0),), {"k": 2})
    Sample(args=(array([0., 1., 2.]),), kwargs={'k': 2}, note='')
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    note: str

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None = None,
        note: str = "",
    ) -> None:
        put = object.__setattr__  # a third of the time of `Frozen.__init__`
        put(self, "args", args)
        put(self, "kwargs", {} if kwargs is None else kwargs)
        put(self, "note", note)


def call_text(qualname: str, sample: Sample) -> str:
    """Write a call with short texts for arrays: ``mylib::scale(f64[3], k=2.0)``."""
    texts = [show_values([value]) for value in sample.args]
    texts += [f"{name}={show_values([v])}" for name, v in sample.kwargs.items()]
    return f"{qualname}({', '.join(texts)})"


def as_samples(qualname: str, fn: Any, found: Any) -> tuple[Sample, ...]:
    """Convert what a function returned to samples: samples, tuples, or a strategy of them.

    Raises
    ------
    ArgumentError
        If it is something else.
    """
    if _is_strategy(found):
        found = _drawn(found)
    if not isinstance(found, Iterable) or isinstance(found, str | Sample | Mapping):
        raise _no_samples(qualname, fn, f"gives {type(found).__name__}")
    return tuple(_as_sample(qualname, fn, item) for item in found)


def _as_sample(qualname: str, fn: Any, item: Any) -> Sample:
    if isinstance(item, Sample):
        return item
    if type(item) is tuple:
        return Sample(item)
    raise _no_samples(qualname, fn, f"gives an item of type {type(item).__name__}")


def _no_samples(qualname: str, fn: Any, reason: str) -> ArgumentError:
    return ArgumentError(
        f"{qualname}: the function of register_sample_inputs {reason}",
        f"at {place(fn)}",
        do="return a list of tuples of arguments, of Sample(args, kwargs), or a"
        " hypothesis strategy of these",
        op=qualname,
    )


def _is_strategy(value: Any) -> bool:
    hypothesis = sys.modules.get("hypothesis.strategies")
    return hypothesis is not None and isinstance(value, hypothesis.SearchStrategy)


def _drawn(strategy: Any, count: int = 10) -> list[Any]:
    """Draw from a strategy: the same items each time, the simplest first."""
    import hypothesis  # noqa: PLC0415  # whoever made a strategy has imported it

    found: list[Any] = []

    @hypothesis.settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        # A slow or wasteful strategy is not an error here.
        suppress_health_check=[
            hypothesis.HealthCheck.filter_too_much,
            hypothesis.HealthCheck.too_slow,
            hypothesis.HealthCheck.data_too_large,
        ],
    )
    @hypothesis.given(strategy)
    def collect(item: Any) -> None:
        found.append(item)

    collect()
    return found


# ---- waivers ----
# Checks of opcheck that an operator fails on purpose, each with a reason.


# The checks of `customop.testing.opcheck`, in their order. They are here so that a name
# is checked where it is waived, without an import of what checks it.
CHECK_NAMES: Final = (
    "test_schema",
    "test_mutation",
    "test_autograd_registration",
    "test_faketensor",
    "test_sizes",
    "test_kernels_agree",
    "test_vmap",
    "test_jvp",
    "test_gradients",
    "test_aot_dispatch_static",
    "test_aot_dispatch_dynamic",
    "test_layouts",
    "test_dtypes",
    "test_determinism",
    "test_out_variant",
    "test_pickle",
    "test_threads",
)


def with_waiver(
    op: RuleTable, check: str, reason: str, *, override: bool
) -> Mapping[str, str]:
    """Check a new waiver, and return it with those that the operator has.

    Raises
    ------
    ArgumentError
        If there is no such check, or `reason` is not a text with something in it.
    RegistrationError
        If the check is waived already.
    """
    if check not in CHECK_NAMES:
        raise op.error(
            ArgumentError,
            f"there is no check {check!r} to waive"
            f"{did_you_mean(str(check), CHECK_NAMES)}",
            f"known: {quoted(CHECK_NAMES)}",
            do=f'{op.name}.waive("test_gradients", reason="...")',
        )
    if not isinstance(reason, str) or not reason.strip():
        raise op.error(
            ArgumentError,
            f"the waiver of {check} has reason={reason!r}",
            do=f"say why it is meant to fail: {op.name}.waive({check!r},"
            ' reason="a straight-through estimator")',
        )
    if check in op.waivers and not override:
        raise op.error(
            RegistrationError,
            f"{check} is waived already: {op.waivers[check]!r}",
            do="remove one of the waivers, or pass override=True",
        )
    return {**op.waivers, check: " ".join(reason.split())}
