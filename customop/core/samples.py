"""Samples: the arguments of one call."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from customop.arrays.describe import show_values
from customop.errors import ArgumentError, place
from customop.frozen import Frozen

__all__ = ["Sample", "as_samples", "call_text"]


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
    """A call with its arrays in short: ``mylib::scale(f64[3], k=2.0)``."""
    texts = [show_values([value]) for value in sample.args]
    texts += [f"{name}={show_values([v])}" for name, v in sample.kwargs.items()]
    return f"{qualname}({', '.join(texts)})"


def as_samples(qualname: str, fn: Any, found: Any) -> tuple[Sample, ...]:
    """Samples of what a function gives: samples, tuples, or a strategy of them.

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
