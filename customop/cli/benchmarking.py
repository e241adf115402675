"""``customop bench``: how long an operator takes, beside its plain kernel."""

from __future__ import annotations

import statistics
import timeit
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.fake import fake_like
from customop.arrays.kinds import is_array
from customop.arrays.pytree import flatten
from customop.cli import arguments
from customop.cli.command import Command, UsageError
from customop.cli.finding import find_operator
from customop.cli.output import Output
from customop.cli.rules import rules_of
from customop.cli.showing import call_text
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import CustomOpError
from customop.testing.inputs.find import base_samples
from customop.testing.inputs.memory import fresh, map_arrays
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp
from customop.transforms.vmap import vmap

__all__ = ["COMMAND"]

# Rows of the batch that is timed.
_ROWS = 8
_RUNS = 7
_UNITS = ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s"))


class _Call(NamedTuple):
    """Something to time: a function and what it is called with."""

    fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: dict[str, Any]


# ---- what is timed ----


def _kernel(op: Operator[..., Any], sample: Sample) -> _Call:
    """The kernel alone, with the values that the operator would give it."""
    values = op.bind(*sample.args, **sample.kwargs)
    kernel, args, keywords, _ = op.select(values)
    return _Call(kernel, args, keywords)


def _operator(op: Operator[..., Any], sample: Sample) -> _Call:
    return _Call(op, sample.args, dict(sample.kwargs))


def _function(op: Operator[..., Any], sample: Sample) -> _Call:
    return _Call(op.call, sample.args, dict(sample.kwargs))


def _fake(op: Operator[..., Any], sample: Sample) -> _Call:
    fake = map_arrays(lambda v: fake_like(v) if is_array(v) else v, sample)
    return _Call(op, fake.args, dict(fake.kwargs))


def _gradient(op: Operator[..., Any], sample: Sample) -> _Call:
    """Forwards and backwards."""
    fn, primals = _moving(op, sample)
    cotangent = _ones(op(*sample.args, **sample.kwargs))

    def both(*values: Any) -> Any:
        _, pullback = vjp(fn, *values)
        return pullback(cotangent)

    return _Call(both, primals, {})


def _forward(op: Operator[..., Any], sample: Sample) -> _Call:
    fn, primals = _moving(op, sample)
    tangents = tuple(_ones(primal) for primal in primals)
    return _Call(lambda *values: jvp(fn, values, tangents), primals, {})


def _batch(op: Operator[..., Any], sample: Sample) -> _Call:
    """Rows that are the sample, stacked along a first axis of each array."""
    stacked = map_arrays(lambda v: np.stack([v] * _ROWS) if is_array(v) else v, sample)
    moves = [_has_arrays(value) for value in sample.args]
    dims = 0 if all(moves) else tuple(0 if moving else None for moving in moves)
    names = [name for name, value in sample.kwargs.items() if _has_arrays(value)]
    still = {k: v for k, v in sample.kwargs.items() if k not in names}
    fn = partial(op, **still) if still else op
    named = {name: stacked.kwargs[name] for name in names}
    return _Call(vmap(fn, dims), stacked.args, named)


def _has_arrays(value: Any) -> bool:
    return any(is_array(leaf) for leaf in flatten(value)[0])


def _moving(
    op: Operator[..., Any], sample: Sample
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of the arguments that are floats throughout, and these."""
    args, keywords = sample.args, sample.kwargs
    slots = [i for i, value in enumerate(args) if _is_float(value)]
    if not slots:
        raise UsageError("no argument by position is an array of floats")
    primals = tuple(args[slot] for slot in slots)
    if slots == [*range(len(args))]:
        return (partial(op, **keywords) if keywords else op), primals

    def fn(*values: Any) -> Any:
        given = list(args)
        for slot, value in zip(slots, values, strict=True):
            given[slot] = value
        return op(*given, **keywords)

    return fn, primals


def _is_float(value: Any) -> bool:
    leaves, _ = flatten(value)
    return bool(leaves) and all(is_array(x) and x.dtype.kind in "fc" for x in leaves)


def _ones(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)([_ones(v) for v in value])
    return np.ones_like(value)


# Title, the rule that it needs, and what makes the call.
_MEASURES = (
    ("kernel", "", _kernel),
    ("op(...)", "", _operator),
    ("op.call(...)", "", _function),
    ("fake", "fake", _fake),
    ("forward and backward", "autograd", _gradient),
    ("jvp", "jvp", _forward),
    (f"vmap, {_ROWS} rows", "vmap", _batch),
)


# ---- timing ----


def _seconds(call: _Call, budget: float) -> float:
    """Median time of a call, of runs that share the budget."""
    names = {f"a{i}": value for i, value in enumerate(call.args)}
    keywords = {f"k{i}": value for i, value in enumerate(call.kwargs.values())}
    given = [*names, *[f"{n}={k}" for n, k in zip(call.kwargs, keywords, strict=True)]]
    timer = timeit.Timer(
        f"fn({', '.join(given)})", globals={"fn": call.fn, **names, **keywords}
    )
    # The first call compiles and proves, the second tells how long one takes.
    timer.timeit(1)
    once = max(timer.timeit(1), 1e-8)
    number = max(1, int(budget / _RUNS / once))
    return statistics.median(timer.repeat(_RUNS, number)) / number


def _measured(
    op: Operator[..., Any], sample: Sample, budget: float
) -> Iterator[dict[str, Any]]:
    """Each measure with its time, or the reason why there is none."""
    names = {rule.name for rule in rules_of(op) if rule.origin != "loop"}
    for title, rule, make in _MEASURES:
        if rule and rule not in names:
            continue
        seconds, reason = None, None
        try:
            # Operators that write leave what they are given changed.
            seconds = _seconds(make(op, fresh(sample)), budget)
        except CustomOpError as error:
            reason = error.what
        except Exception as error:  # noqa: BLE001  # a rule of the user's: it is shown
            reason = f"{type(error).__name__}: {error}"
        yield {"what": title, "seconds": seconds, "reason": reason}


def time_text(seconds: float) -> str:
    """Three digits and a unit: ``"91.2 ns"``."""
    for scale, unit in reversed(_UNITS):
        if seconds >= scale or unit == "ns":
            value = seconds / scale
            return f"{value:.{max(0, 2 - int(np.log10(max(value, 1))))}f} {unit}"
    raise AssertionError


def _row(measure: dict[str, Any], kernel: float | None) -> list[str]:
    seconds = measure["seconds"]
    if seconds is None:
        return [measure["what"], "-", "", measure["reason"].partition("\n")[0]]
    if kernel is None or measure["what"] == "kernel":
        return [measure["what"], time_text(seconds), "", ""]
    over = seconds - kernel
    sign = "-" if over < 0 else "+"
    return [
        measure["what"],
        time_text(seconds),
        f"{sign}{time_text(abs(over))}",
        f"{seconds / kernel:.3g} x",
    ]


# ---- the command ----


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise ArgumentTypeError(f"{text} is not above zero")
    return value


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ArgumentTypeError(f"{text} is less than one")
    return value


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="namespace::name, or namespace::name.overload"
    )
    parser.add_argument("args", nargs="*", metavar="ARG", help=arguments.HELP)
    parser.add_argument(
        "--samples",
        type=_at_least_one,
        default=3,
        metavar="N",
        help="how many inputs, at most (3)",
    )
    parser.add_argument(
        "--time",
        type=_positive,
        default=0.2,
        metavar="SECONDS",
        help="time for each figure (0.2)",
    )


def _samples(options: Namespace, op: Operator[..., Any]) -> list[Sample]:
    if options.args:
        args, keywords = arguments.parse(options.args, arguments.ramp)
        return [Sample(tuple(args), keywords)]
    return base_samples(op, count=options.samples)


def _try(op: Operator[..., Any], sample: Sample) -> None:
    """Raise where the operator does not run, before anything is timed."""
    again = fresh(sample)
    try:
        op(*again.args, **again.kwargs)
    except CustomOpError:
        raise
    except Exception as error:
        raise UsageError(
            f"{call_text(op, sample)} raises {type(error).__name__}: {error}",
            do="give arguments on which it runs, or mend it; --traceback shows where",
        ) from error


def _run(options: Namespace, output: Output) -> int:
    op = find_operator(options.name)
    document: list[dict[str, Any]] = []
    with np.errstate(all="ignore"):
        for sample in _samples(options, op):
            _try(op, sample)
            measures = list(_measured(op, sample, options.time))
            document.append(
                {"call": call_text(op, sample), "note": sample.note, "times": measures}
            )
            if not options.json:
                _show(document[-1], output, is_first=len(document) == 1)
    if options.json:
        output.document({"operator": op.qualname, "samples": document})
    return 0


def _show(found: dict[str, Any], output: Output, *, is_first: bool) -> None:
    if not is_first:
        output.line()
    note = f"  # {found['note']}" if found["note"] else ""
    output.heading(f"{found['call']}{note}")
    times = {m["what"]: m["seconds"] for m in found["times"]}
    rows = [_row(measure, times["kernel"]) for measure in found["times"]]
    output.table(["what", "median", "over the kernel", "of the kernel"], rows)


COMMAND = Command(
    "bench",
    "how long an operator takes, beside its plain kernel",
    "Time an operator beside its plain kernel: the call, the fake call, and its\n"
    "transforms where there are rules. Inputs are those given, else the registered\n"
    "samples, else found by trial. A figure is the median of"
    f" {_RUNS} runs of many calls.",
    '{"operator": str, "samples": [{"call": str, "note": str, "times": [{"what": str,\n'
    '  "seconds": float | null, "reason": str | null}]}]}',
    _add_arguments,
    _run,
)
