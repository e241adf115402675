"""Operators, clocks and programs that the tests of the profiler share."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import customop as co
from tests.nesting.test_words import (
    AT,
    TRANSFORMS,
)

X = np.array([1.0, 2.0, 3.0])


class Clock:
    """A clock that moves only when a kernel or rule moves it."""

    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


class Ticks:
    """A clock that advances by one each time it is read."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1000)

    def __call__(self) -> int:
        return next(self.numbers)


CLOCK = Clock()
inverse = co.RuleKind("inverse", takes="(out, *inputs)")


def define(name: str, fn: Callable[..., Any], **kwargs: Any) -> co.Operator[..., Any]:
    return co.custom_op(f"profiled::{name}", fn, mutates_args=(), **kwargs)


def _square(x: co.Array, k: float = 1.0) -> co.Array:
    CLOCK.now += 5
    return x * x


def _square_setup(ctx: Any, inputs: Any, output: Any) -> None:
    CLOCK.now += 2
    ctx.save_for_backward(inputs[0])


def _square_backward(ctx: Any, g: Any) -> Any:
    CLOCK.now += 7
    return g * (ctx.saved_arrays[0] * 2.0), None


# It has every rule.
square = define("square", _square)
square.register_autograd(_square_backward, setup_context=_square_setup)
square.register_fake(lambda x, k: co.fake_like(x))


@square.register_vmap
def _(info: Any, in_dims: Any, x: Any, k: Any) -> Any:
    CLOCK.now += 3
    return square(x, k), in_dims[0]


square.register(inverse, lambda out, x, k: np.sqrt(out))

# It has a kernel and nothing else.
bare = define("bare", lambda x: x + 1.0, schema="(Array x) -> Array")
both = define("both", lambda x, y: x + y, schema="(Array x, Array y) -> Array")
both.register_kernel("cpu", lambda x, y: x + y)
tangential = define("tangential", lambda x: x * 3.0, schema="(Array x) -> Array")
tangential.register_jvp(lambda primals, tangents: (primals[0] * 3, tangents[0] * 3))
named = define(
    "named",
    lambda x, *, y, n: (x + y, x * n),
    schema="(Array x, *, Array y, int n) -> (Array, Array)",
)
named.register_autograd(
    lambda ctx, g, h: {"x": g + h * ctx.n, "y": g},
    setup_context=lambda ctx, inputs, keyword_only_inputs, output: setattr(
        ctx, "n", float(keyword_only_inputs["n"])
    ),
)
total = define("total", lambda xs: sum(xs), schema="(Array[] xs) -> Array")
doubled = define("doubled", lambda x: np.sin(x) * 2.0, schema="(Array x) -> Array")
doubled.register_autograd(co.native)
made = define(
    "made",
    lambda n, device=None: np.zeros(n),
    schema="(int n, device? device=None) -> Array",
)
halved = define("halved", lambda x: x * np.float16(0.5), schema="(Array x) -> Array")
halved.register_autocast("cpu", np.float16)
masked = define("masked", lambda x: x * 2.0, schema="(Array x) -> Array")
masked.register_array_dispatch(np.ma.MaskedArray, lambda op, args, kwargs: args[0] * 2)
composed = co.define("profiled::composed", "(Array x) -> Array")


@co.impl("profiled::composed", "CompositeImplicitAutograd")
def _(x: Any) -> Any:
    CLOCK.now += 1
    return square(square(x))


def counts(p: Any) -> dict[tuple[str, str], int]:
    """Calls of this file's operators, by operator and rule."""
    return {
        (row.operator.partition("::")[2], row.rule): row.count
        for row in p.rows
        if row.operator.startswith("profiled::")
    }


def row_of(p: Any, operator: str, rule: str) -> Any:
    """The row of an operator of this file."""
    (found,) = [
        r for r in p.rows if (r.operator, r.rule) == (f"profiled::{operator}", rule)
    ]
    return found


class Through(co.Interpreter):
    """Passes operators on unchanged."""

    kind = inverse

    def process(self, op: Any, args: Any) -> Any:
        return self.wrap(op.invoke(self.unwrap(args)))


def through(op: Any, *args: Any) -> Any:
    """Call an operator on a value of an interpreter that a user wrote."""
    with Through() as interpreter:
        return interpreter.lower(op(interpreter.wrap(args[0]), *args[1:]))


def loss(x: Any) -> Any:
    """One operator of this file; the rest is NumPy's."""
    return np.sum(square(x))


def in_context(context: Any, fn: Callable[[], Any]) -> Any:
    with context:
        return fn()


FORWARD = {("square", "autograd forward"): 1, ("square", "setup_context"): 1}
GRAD = {**FORWARD, ("square", "autograd backward"): 1, ("square", "default kernel"): 1}

# Name -> program, and its calls of this file's operators.
PROGRAMS: dict[str, tuple[Callable[[], Any], dict[tuple[str, str], int]]] = {
    "call": (lambda: [square(X) for _ in range(4)], {("square", "default kernel"): 4}),
    "coerced": (lambda: square(X, 2), {("square", "default kernel"): 1}),
    "scalar": (lambda: square(np.float64(2)), {("square", "default kernel"): 1}),
    "slow": (lambda: square.dispatch(X), {("square", "default kernel"): 1}),
    "invoke": (lambda: square.invoke([X, 1.0]), {("square", "default kernel"): 1}),
    "plain": (lambda: square.call(X), {("square", "default kernel"): 1}),
    "cpu": (lambda: both(X, X), {("both", "cpu kernel"): 1}),
    "list": (lambda: total([X, X]), {("total", "default kernel"): 1}),
    "keywords": (lambda: named(X, y=X, n=2), {("named", "default kernel"): 1}),
    "factory": (lambda: made(3), {("made", "default kernel"): 1}),
    "array class": (
        lambda: masked(np.ma.masked_array([1.0])),
        {("masked", "array rule"): 1},
    ),
    "fake": (lambda: square(co.FakeArray((3,))), {("square", "fake kernel"): 1}),
    "fake mode": (
        lambda: co.eval_shape(square, X),
        {("square", "fake mode"): 1, ("square", "fake kernel"): 1},
    ),
    "grad": (lambda: co.grad(loss)(X), GRAD),
    "grad, keywords": (
        lambda: co.grad(lambda x: np.sum(named(x, y=x, n=2)[0]))(X),
        {
            ("named", "autograd forward"): 1,
            ("named", "setup_context"): 1,
            ("named", "default kernel"): 1,
            ("named", "autograd backward"): 1,
        },
    ),
    "grad of grad": (
        lambda: co.grad(lambda x: np.sum(co.grad(loss)(x)))(X),
        # The outer gradient uses what the inner formula saved.
        {**GRAD, ("square", "autograd forward"): 2, ("square", "setup_context"): 2},
    ),
    "no_grad": (
        lambda: in_context(co.no_grad(), lambda: square(co.variable(X))),
        {("square", "no_grad mode"): 1, ("square", "default kernel"): 1},
    ),
    "native": (
        lambda: co.grad(lambda x: np.sum(doubled(x)))(X),
        {("doubled", "autograd forward"): 1, ("doubled", "autograd backward"): 1},
    ),
    "vmap": (
        lambda: co.vmap(square)(np.ones((4, 3))),
        {("square", "vmap rule"): 1, ("square", "default kernel"): 1},
    ),
    "vmap of grad": (
        lambda: co.vmap(co.grad(loss))(np.ones((4, 3))),
        {**GRAD, ("square", "vmap rule"): 1},
    ),
    "vmap, loop": (
        lambda: co.vmap(bare)(np.ones((4, 3))),
        {("bare", "vmap loop"): 1, ("bare", "default kernel"): 4},
    ),
    "jvp": (lambda: co.jvp(tangential, (X,), (X,)), {("tangential", "jvp rule"): 1}),
    "jvp, transposed": (
        lambda: co.jvp(square, (X,), (X,)),
        {**GRAD, ("square", "jvp by autograd"): 1},
    ),
    "composite": (
        lambda: composed(X),
        {("composed", "composite body"): 1, ("square", "default kernel"): 2},
    ),
    "composite, traced": (
        lambda: co.vmap(composed)(np.ones((4, 3))),
        {
            ("composed", "composite body"): 1,
            ("square", "vmap rule"): 2,
            ("square", "default kernel"): 2,
        },
    ),
    "autocast": (
        lambda: in_context(co.autocast("cpu"), lambda: halved(np.ones(2, np.float32))),
        {("halved", "autocast mode"): 1, ("halved", "default kernel"): 1},
    ),
    "interpreter, rule": (
        lambda: through(square, X),
        {("square", "inverse rule"): 1, ("square", "default kernel"): 1},
    ),
    "interpreter, no rule": (
        lambda: through(bare, X),
        {("bare", "inverse interpreter"): 1, ("bare", "default kernel"): 1},
    ),
    "disabled": (
        lambda: in_context(both.set_kernel_enabled("cpu", False), lambda: both(X, X)),
        {("both", "wrapped function"): 1},
    ),
    "bound only": (lambda: square.explain(X), {}),
}


KERNEL = ("square", "default kernel")


def _raises(x: co.Array) -> co.Array:
    raise KeyError("kernel")


def value_of(word: str, polynomial: Any) -> Any:
    """The value at AT of the function that a word of transforms makes."""
    f = polynomial
    for letter in reversed(word):
        f = TRANSFORMS[letter][0](f)
    return f(np.array(AT))


def trace_of(p: Any, folder: Path) -> dict[str, Any]:
    """What is written for Chrome, read back."""
    p.save(folder / "trace.json")
    text = (folder / "trace.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def events_of(p: Any, folder: Path) -> list[dict[str, Any]]:
    """Complete events of a trace, whole nanoseconds, each with its depth of nesting.

    As a viewer nests them: of a thread, by their times. Raises where they overlap.
    """
    found = [e for e in trace_of(p, folder)["traceEvents"] if e["ph"] == "X"]
    open_until: dict[Any, list[int]] = {}
    for event in found:
        event["ts"], event["dur"] = (round(event[k] * 1000) for k in ("ts", "dur"))
        ends = open_until.setdefault(event["tid"], [])
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        end = event["ts"] + event["dur"]
        assert not ends or end <= ends[-1], "events of a thread overlap"
        event["depth"] = len(ends)
        ends.append(end)
    return found
