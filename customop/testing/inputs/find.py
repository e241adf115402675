"""Inputs of an operator that nobody has given: those registered, or found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from customop.core.kernels import find_kernel
from customop.core.samples import Sample
from customop.errors import ArgumentError, place
from customop.schema.parameters import KEYWORD_ONLY, POSITIONAL_ONLY
from customop.schema.schema import Schema
from customop.testing.inputs.oracle import (
    CLEAN,
    NOISY,
    Oracle,
    Trial,
    arrays_of,
    build,
    random_state_kept,
    strict_numbers,
)
from customop.testing.inputs.patterns import Finding, Pattern, distinct, find_patterns
from customop.testing.inputs.templates import OMITTED, Node, Seeded

__all__ = ["base_samples", "call_of", "patterns_of", "sample_of"]


def base_samples(op: Any, count: int = 10, seed: int = 0) -> list[Sample]:
    """Arguments that an operator runs on, small ones first.

    Parameters
    ----------
    op : Operator
    count : int
        How many, at most.
    seed : int
        Other numbers in the arrays for each.

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
    given = op.sample_inputs()
    if given:
        return [_checked(op, sample) for sample in given[:count]]
    found = patterns_of(op)
    oracle = Oracle(op, 1.0, uses_fake=found.uses_fake)
    samples = list(_taken(oracle, _trials(found.patterns), count, seed))
    if not samples:
        raise _none_found(op, oracle.error)
    return samples


def patterns_of(op: Any) -> Finding:
    """Patterns of arguments that an operator accepts, found once for its table.

    Raises
    ------
    ArgumentError
        If there are none.
    """
    plans = op.plans
    if plans.patterns is None:
        plans.patterns = find_patterns(op)
    found: Finding = plans.patterns
    if not found.patterns:
        raise _none_found(op, found.error)
    return found


def _none_found(op: Any, error: Exception | None) -> ArgumentError:
    said = "" if error is None else f"; the last error was {type(error).__name__}: "
    text = "" if error is None else str(error).partition("\n")[0]
    return ArgumentError(
        f"{op.qualname}: no inputs are found that its kernels accept{said}{text}",
        op.schema.show(op.qualname),
        f"at {place(find_kernel(op, 'cpu') or op.__wrapped__)}",
        do=f"@{op.name}.register_sample_inputs, a function that returns a list of"
        " tuples of arguments, or pass args",
        op=op.qualname,
    )


def _checked(op: Any, sample: Sample) -> Sample:
    """A registered sample whose arguments fit the schema."""
    try:
        op.bind(*sample.args, **sample.kwargs)
    except ArgumentError:
        raise
    except TypeError as error:
        raise ArgumentError(
            f"{op.qualname}: a sample of register_sample_inputs does not fit: {error}",
            op.schema.show(op.qualname),
            do="give it the arguments of a call",
            op=op.qualname,
        ) from None
    return sample


# ---- samples of patterns ----


def _trials(patterns: Sequence[Pattern]) -> Iterator[Trial]:
    """Trials to take samples of: one of each sort of pattern, then the next ones."""
    sorts = [
        [distinct(p) for p in patterns if p.why == why]
        for why in ("axes", "broadcast", "options", "values")
    ]
    for row in zip_longest(*sorts):
        yield from (trial for trial in row if trial is not None)


def _taken(
    oracle: Oracle, trials: Iterator[Trial], count: int, seed: int
) -> Iterator[Sample]:
    """Samples of the trials that are accepted, no two the same, small ones first."""
    found: tuple[dict[Any, Trial], ...] = ({}, {})
    with strict_numbers(), random_state_kept():
        for trial in trials:
            if len(found[CLEAN]) == count:
                break
            key = (_text(trial.form), trial.fillings)
            if oracle.fits_fake(trial):
                outcome = oracle.outcome(trial, seed)
                if outcome <= NOISY:
                    found[outcome].setdefault(key, trial)
    # Those with complaints only where there are no others.
    chosen = [*(found[CLEAN] or found[NOISY]).values()][:count]
    for trial in sorted(chosen, key=lambda t: t.size):
        yield sample_of(oracle.op, trial, seed)


def _text(template: Any) -> str:
    """What tells a template from others."""
    if type(template) is tuple or type(template) is Node:
        items = template.items if type(template) is Node else template
        return f"({', '.join(map(_text, items))})"
    return repr(template) if not isinstance(template, Seeded) else "generator"


def sample_of(op: Any, trial: Trial, seed: int = 0) -> Sample:
    """The call of a trial: what it leaves out is left out."""
    arrays = iter(arrays_of(trial, seed))
    row = [
        template if template is OMITTED else build(template, arrays, seed)
        for template in trial.form
    ]
    return call_of(op.schema, row)


def call_of(schema: Schema, row: Sequence[Any]) -> Sample:
    """The call that gives parameters these values; some are left out.

    What follows one that is left out comes by name, as users write it.
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
