"""``customop bench``: times of an operator, compared with its plain kernel."""

from __future__ import annotations

import statistics
import timeit
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

from customop.arrays.fake import fake_like
from customop.arrays.kinds import is_array
from customop.arrays.nested import leaves, map_leaves
from customop.cli import command_pages, targets
from customop.cli.command_pages import BENCH_COLUMNS
from customop.cli.output import watched
from customop.cli.plain import Command, Plain, UsageError
from customop.cli.targets import find_operator
from customop.compiling.compile import compile as compiled
from customop.core.dispatch import select
from customop.core.explain import rules_of
from customop.core.operator import Operator
from customop.core.samples import Sample, call_text
from customop.errors import CustomOpError
from customop.profiling.profile import show_time
from customop.progress import Progress
from customop.testing.inputs.input_patterns import base_samples
from customop.testing.inputs.sample_values import fresh, map_arrays
from customop.transforms.autograd.grad import vjp
from customop.transforms.jvp import jvp
from customop.transforms.vmap import vmap

# ---- the command ----

# How many rows the batch for vmap has.
_ROWS = 8
_RUNS = 7


def _run(options: Namespace, output: Plain) -> int:
    op = find_operator(options.name)
    document: list[dict[str, Any]] = []
    with np.errstate(all="ignore"):
        samples = _samples(options, op)
        measures = _measures_of(op, options)
        total = len(samples) * len(measures)
        with watched(options, f"bench {op.qualname}", total) as shown:
            for sample in samples:
                _try(op, sample)
                found = _found(op, sample, measures, options.time, shown)
                document.append(found)
                with shown.hidden():
                    _show(found, output, is_first=len(document) == 1)
    output.document({"operator": op.qualname, "samples": document})
    tables = [(found, _rows(found)) for found in document]
    output.page(lambda: command_pages.bench_page(op.qualname, tables))
    return 0


def _found(
    op: Operator[..., Any],
    sample: Sample,
    measures: Sequence[Measure],
    budget: float,
    shown: Progress,
) -> dict[str, Any]:
    """Return the times of all measures for one input."""
    call = call_text(op.qualname, sample)
    times = []
    for measure in measures:
        shown.stage(f"{call}: {measure[0]}")
        times.append(_measured(op, sample, measure, budget))
        shown.advance()
    return {"call": call, "note": sample.note, "times": times}


def _samples(options: Namespace, op: Operator[..., Any]) -> list[Sample]:
    if options.args:
        args, keywords = targets.parse(options.args, targets.ramp)
        return [Sample(tuple(args), keywords)]
    return base_samples(op, count=options.samples)


def _try(op: Operator[..., Any], sample: Sample) -> None:
    """Raise if the operator does not run on this sample."""
    again = fresh(sample)
    try:
        op(*again.args, **again.kwargs)
    except CustomOpError:
        raise
    except Exception as error:
        raise UsageError(
            f"{call_text(op.qualname, sample)} raises {type(error).__name__}: {error}",
            do="pass arguments that it takes, or fix it; --traceback shows where",
        ) from error


def _show(found: dict[str, Any], output: Plain, *, is_first: bool) -> None:
    if not is_first:
        output.line()
    note = f"  # {found['note']}" if found["note"] else ""
    output.heading(f"{found['call']}{note}")
    output.table(BENCH_COLUMNS, _rows(found))


def _rows(found: dict[str, Any]) -> list[list[str]]:
    times = {m["what"]: m["seconds"] for m in found["times"]}
    return [_row(measure, times["kernel"]) for measure in found["times"]]


def _add_arguments(parser: ArgumentParser) -> None:
    targets.add_call(parser)
    parser.add_argument(
        "--samples",
        type=_at_least_one,
        default=3,
        metavar="N",
        help="use at most N inputs (3)",
    )
    parser.add_argument(
        "--time",
        type=_positive,
        default=0.2,
        metavar="SECONDS",
        help="how long to measure each call (0.2)",
    )

    parser.add_argument(
        "--compile",
        action="store_true",
        help="time the operator and its gradient under customop.compile, too, by each back"
        " end that is installed",
    )


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


COMMAND = Command(
    "bench",
    "times of an operator, next to its plain kernel",
    "Time an operator next to its plain kernel: the call, the fake call, and the transforms\n"
    "for which it has rules. Without ARG, inputs are the registered samples, or are\n"
    f"searched. Each time is the median of {_RUNS} runs of many calls.",
    '{"operator": str, "samples": [{"call": str, "note": str, "times": [{"what": str,\n'
    '  "seconds": float | null, "reason": str | null}]}]}',
    _add_arguments,
    _run,
)


# ---- the calls ----

# A function with the arguments to time it with.
Call = partial[Any]


def _kernel(op: Operator[..., Any], sample: Sample) -> Call:
    """Return the call of the kernel alone, with the values that the operator passes."""
    values = op.bind(*sample.args, **sample.kwargs)
    kernel, args, keywords, _ = select(op, values)
    return partial(kernel, *args, **keywords)


def _operator(op: Operator[..., Any], sample: Sample) -> Call:
    return partial(op, *sample.args, **sample.kwargs)


def _function(op: Operator[..., Any], sample: Sample) -> Call:
    return partial(op.call, *sample.args, **sample.kwargs)


def _fake(op: Operator[..., Any], sample: Sample) -> Call:
    return _operator(
        op, map_arrays(lambda v: fake_like(v) if is_array(v) else v, sample)
    )


def _gradient(op: Operator[..., Any], sample: Sample) -> Call:
    """Return a call that runs forward and backward."""
    fn, primals = _differentiable(op, sample)
    cotangent = map_leaves(np.ones_like, op(*sample.args, **sample.kwargs))

    def both(*values: Any) -> Any:
        _, pullback = vjp(fn, *values)
        return pullback(cotangent)

    return partial(both, *primals)


def _forward(op: Operator[..., Any], sample: Sample) -> Call:
    fn, primals = _differentiable(op, sample)
    tangents = map_leaves(np.ones_like, primals)
    return partial(lambda *values: jvp(fn, values, tangents), *primals)


def _batch(op: Operator[..., Any], sample: Sample) -> Call:
    """Return a call of vmap over copies of the sample, stacked along a first axis."""
    stacked = map_arrays(lambda v: np.stack([v] * _ROWS) if is_array(v) else v, sample)
    moves = [_has_arrays(value) for value in sample.args]
    dims = 0 if all(moves) else tuple(0 if moving else None for moving in moves)
    names = [name for name, value in sample.kwargs.items() if _has_arrays(value)]
    still = {k: v for k, v in sample.kwargs.items() if k not in names}
    fn = partial(op, **still) if still else op
    named = {name: stacked.kwargs[name] for name in names}
    return partial(vmap(fn, dims), *stacked.args, **named)


def _has_arrays(value: Any) -> bool:
    return any(is_array(leaf) for leaf in leaves(value))


def _differentiable(
    op: Operator[..., Any], sample: Sample
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the operator as a function of its float arguments, and these arguments."""
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
    found = leaves(value)
    return bool(found) and all(is_array(x) and x.dtype.kind in "fc" for x in found)


def _compiled(
    op: Operator[..., Any], sample: Sample, backend: str | None = None
) -> Call:
    fn = compiled(op.__call__, backend=backend)
    return partial(fn, *sample.args, **sample.kwargs)


def _compiled_gradient(
    op: Operator[..., Any], sample: Sample, backend: str | None = None
) -> Call:
    both = _gradient(op, sample)
    return partial(compiled(both.func, backend=backend), *both.args)


# Title, the rule that the measure needs, and the function that makes the call.
Measure: TypeAlias = tuple[str, str, Callable[[Operator[..., Any], Sample], Call]]
_MEASURES: tuple[Measure, ...] = (
    ("kernel", "", _kernel),
    ("op(...)", "", _operator),
    ("op.call(...)", "", _function),
    ("fake", "fake", _fake),
    ("forward and backward", "autograd", _gradient),
    ("jvp", "jvp", _forward),
    (f"vmap, {_ROWS} rows", "vmap", _batch),
)
# Back ends whose packages may be installed.
_BACKENDS = ("jax",)


def _measures(*, is_compiled: bool) -> Iterator[Measure]:
    """Yield the measures above and, if requested, those of each back end of compile."""
    yield from _MEASURES
    if not is_compiled:
        return
    both = "forward and backward, compiled"
    yield "compiled", "fake", _compiled
    yield both, "autograd", _compiled_gradient
    for name in _BACKENDS:
        if find_spec(name) is not None:
            yield f"compiled by {name}", "fake", partial(_compiled, backend=name)
            gradient = partial(_compiled_gradient, backend=name)
            yield f"{both} by {name}", "autograd", gradient


# ---- timing ----


def _seconds(call: Call, budget: float) -> float:
    """Return the median time of a call over several runs that share the budget."""
    names = {f"a{i}": value for i, value in enumerate(call.args)}
    keywords = {f"k{i}": value for i, value in enumerate(call.keywords.values())}
    given = [
        *names,
        *[f"{n}={k}" for n, k in zip(call.keywords, keywords, strict=True)],
    ]
    timer = timeit.Timer(
        f"fn({', '.join(given)})", globals={"fn": call.func, **names, **keywords}
    )
    # The first call compiles and proves the kernel. The second shows how many fit.
    timer.timeit(1)
    once = max(timer.timeit(1), 1e-8)
    number = max(1, int(budget / _RUNS / once))
    return statistics.median(timer.repeat(_RUNS, number)) / number


def _measures_of(op: Operator[..., Any], options: Namespace) -> list[Measure]:
    """Return the measures that the operator has rules for."""
    names = {rule.name for rule in rules_of(op) if rule.origin != "loop"}
    measures = _measures(is_compiled=options.compile)
    return [m for m in measures if not m[1] or m[1] in names]


def _measured(
    op: Operator[..., Any], sample: Sample, measure: Measure, budget: float
) -> dict[str, Any]:
    """Return the time of a measure, or the reason why it cannot be timed."""
    title, _, make = measure
    seconds, reason = None, None
    try:
        # Use a copy, because operators may write to their arguments.
        seconds = _seconds(make(op, fresh(sample)), budget)
    except CustomOpError as error:
        reason = error.what
    except Exception as error:  # noqa: BLE001  # the user's rule: print its error
        reason = f"{type(error).__name__}: {error}"
    return {"what": title, "seconds": seconds, "reason": reason}


def _row(measure: dict[str, Any], kernel: float | None) -> list[str]:
    what, seconds = measure["what"], measure["seconds"]
    if seconds is None:
        return [what, "-", "", measure["reason"].partition("\n")[0]]
    if kernel is None or what == "kernel":
        return [what, _time(seconds), "", ""]
    over = seconds - kernel
    more = f"{'-' if over < 0 else '+'}{_time(abs(over))}"
    return [what, _time(seconds), more, f"{seconds / kernel:.3g} x"]


def _time(seconds: float) -> str:
    return show_time(1e9 * seconds)
