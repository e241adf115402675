"""Inputs for an operator: those registered, or inputs that its kernels accept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from customop.core.codegen import without_signature
from customop.core.dispatch import find_kernel
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import ArgumentError, place
from customop.testing.inputs.oracle import (
    CLEAN,
    NOISY,
    Oracle,
)
from customop.testing.inputs.patterns import (
    Pattern,
    Patterns,
    distinct,
    find_patterns,
    other_lengths,
)
from customop.testing.inputs.trials import Trial, call_of
from customop.testing.quiet import random_state_kept, strict_numbers

__all__ = ["base_samples", "patterns_of", "registered_samples"]


def base_samples(
    op: Operator[..., Any], count: int = 10, seed: int = 0
) -> list[Sample]:
    """Arguments that an operator runs on, small ones first.

    Parameters
    ----------
    op : Operator
    count : int
        How many, at most.
    seed : int
        Each seed gives other numbers in the arrays.

    Returns
    -------
    list of Sample
        Those of `Operator.register_sample_inputs`; where there are none, arguments
        that the kernels of the operator accept. They are found by asking the fake
        kernel, which decides which shapes fit, and the kernel.

    Raises
    ------
    ArgumentError
        If none are found, or those registered do not fit the schema.
    """
    return registered_samples(op, count) or _found(op, count, seed)


def registered_samples(op: Operator[..., Any], count: int = 10) -> list[Sample]:
    """Return those of `Operator.register_sample_inputs`; raise if they do not fit."""
    return [_checked(op, sample) for sample in op.sample_inputs()[:count]]


def _found(op: Operator[..., Any], count: int, seed: int) -> list[Sample]:
    found = patterns_of(op)
    oracle = Oracle(op, uses_fake=found.uses_fake)
    trials = _accepted(oracle, _trials(found.patterns), count, seed)
    if not trials:
        raise _none_found(op, oracle.error)
    trials.sort(key=lambda trial: trial.size)
    return [call_of(op.schema, t.row(t.arrays(seed), seed)) for t in trials]


def patterns_of(op: Operator[..., Any]) -> Patterns:
    """Patterns of arguments that an operator accepts, found once for its table.

    Raises
    ------
    ArgumentError
        If there are none.
    """
    plans = op.plans
    if plans.patterns is None:
        plans.patterns = find_patterns(op)
    found: Patterns = plans.patterns
    if not found.patterns:
        raise _none_found(op, found.error)
    return found


def _none_found(op: Operator[..., Any], error: Exception | None) -> ArgumentError:
    last = "" if error is None else f"; the last error was {type(error).__name__}: "
    text = "" if error is None else str(error).partition("\n")[0]
    return op.error(
        ArgumentError,
        f"no inputs are found that its kernels accept{last}{text}",
        f"at {place(find_kernel(op, 'cpu') or op.__wrapped__)}",
        do=f"@{op.name}.register_sample_inputs, a function that returns a list of"
        " tuples of arguments, or pass args",
    )


def _checked(op: Operator[..., Any], sample: Sample) -> Sample:
    """A registered sample whose arguments fit the schema."""
    try:
        op.bind(*sample.args, **sample.kwargs)
    except ArgumentError:
        raise
    except TypeError as error:
        raise op.error(
            ArgumentError,
            "a sample of register_sample_inputs does not fit: "
            + without_signature(op.call, error),
            do="give it the arguments of a call",
        ) from None
    return sample


# ---- samples of patterns ----


def _trials(patterns: Sequence[Pattern]) -> Iterator[Trial]:
    """Trials to take samples of: one of each sort of pattern, then the next ones."""
    sorts = [
        [distinct(p) for p in patterns if p.why == why]
        for why in ("axes", "broadcast", "options", "values")
    ]
    sorts.insert(1, other_lengths(patterns))
    for row in zip_longest(*sorts):
        yield from (trial for trial in row if trial is not None)


def _accepted(
    oracle: Oracle, trials: Iterator[Trial], count: int, seed: int
) -> list[Trial]:
    """Different trials that the kernels accept; noisy ones where there are no others."""
    found: tuple[dict[Trial, None], ...] = ({}, {})
    with strict_numbers(), random_state_kept():
        for trial in trials:
            if len(found[CLEAN]) == count:
                break
            if oracle.fits_trial(trial):
                outcome = oracle.outcome(trial, seed)
                if outcome <= NOISY:
                    found[outcome][trial] = None
    return [*(found[CLEAN] or found[NOISY])][:count]
