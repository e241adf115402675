"""What a profile counts, times, shows and writes; and that it changes nothing else."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays import kinds
from customop.core.observe import observers, open_modes
from customop.profiling.report import show_bytes, show_time
from customop.transforms.autograd import interpreter
from tests.nesting.test_words import (
    AT,
    COEFFICIENTS,
    TRANSFORMS,
    WORDS,
    Identity,
    by_numpy,
    by_operator,
)

X = np.array([1.0, 2.0, 3.0])


class Clock:
    """A clock that stands still until somebody lets time pass."""

    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


class Ticks:
    """A clock that is one later at every look."""

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


# Every rule, in plain NumPy where the values are plain.
square = define("square", _square)
square.register_autograd(_square_backward, setup_context=_square_setup)
square.register_fake(lambda x, k: co.fake_like(x))


@square.register_vmap
def _(info: Any, in_dims: Any, x: Any, k: Any) -> Any:
    CLOCK.now += 3
    return square(x, k), in_dims[0]


square.register(inverse, lambda out, x, k: np.sqrt(out))

# Kernels and nothing else.
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
    """Calls by operator and rule, of this file's operators alone."""
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
    """Lets operators pass."""

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


# ---- counts ----

FORWARD = {("square", "autograd forward"): 1, ("square", "setup_context"): 1}
GRAD = {**FORWARD, ("square", "autograd backward"): 1, ("square", "default kernel"): 1}

# What runs, and the calls that it makes of this file's operators.
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
        # The outer gradient goes by what the inner formula saved, not by the value.
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


@pytest.mark.filterwarnings("ignore:profiled..bare has no vmap rule")
@pytest.mark.parametrize("checks", ["first", "always", "never"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_counts_are_those_of_the_program(name: str, checks: str) -> None:
    """Each kernel, rule and formula that runs is counted once, proven or not."""
    program, expected = PROGRAMS[name]
    co.config.checks = checks
    with co.profile() as p:
        program()
    assert counts(p) == expected


@pytest.mark.filterwarnings("ignore:profiled..bare has no vmap rule")
@pytest.mark.parametrize("name", PROGRAMS)
def test_counts_add_up(name: str) -> None:
    """A program that has run before, outside, is counted as one that has not."""
    program, expected = PROGRAMS[name]
    program()
    with co.profile() as p:
        program()
        program()
    assert counts(p) == {key: 2 * count for key, count in expected.items()}


def test_fallbacks_have_rows() -> None:
    """What a library registers for all operators without a kernel is a rule too."""
    declared = co.define("profiled::declared", "(Array x) -> Array")
    with co.Library("_", "IMPL", "CPU") as lib:
        lib.fallback(lambda op, *args, **kwargs: args[0] + 1.0)
        with co.profile() as p:
            declared(X)
    assert counts(p) == {("declared", "cpu fallback"): 1}


def test_backward_of_calls_made_before() -> None:
    """A formula is seen also where its call was made before the profile was opened."""
    x = co.variable(X)
    y = np.sum(square(x))
    with co.profile() as p:
        y.backward()
    assert counts(p) == {("square", "autograd backward"): 1}
    np.testing.assert_array_equal(x.grad, 2 * X)


def test_operators_made_inside() -> None:
    """An operator that is defined, called and given a rule inside is counted."""
    with co.profile() as p:
        late = define("late", lambda x: x + 1.0, schema="(Array x) -> Array")
        late(X)
        late.register_kernel("cpu", lambda x: x + 2.0)
        late(X)
        late(X)
    assert counts(p) == {("late", "default kernel"): 1, ("late", "cpu kernel"): 2}


# ---- bytes and kinds ----

M = np.ones((4, 3))
# Operator and rule -> bytes in, bytes out, kinds.
SIZES: dict[str, tuple[Callable[[], Any], tuple[str, str], Any]] = {
    "array": (lambda: square(X), ("square", "default kernel"), (24, 24, ("cpu",))),
    "two": (
        lambda: both(X, M),
        ("both", "cpu kernel"),
        (X.nbytes + M.nbytes, M.nbytes, ("cpu",)),
    ),
    "view": (
        lambda: square(np.ones((6, 2))[::2, 1]),
        ("square", "default kernel"),
        (24, 24, ("cpu",)),
    ),
    "small floats": (
        lambda: bare(np.ones(5, np.float32)),
        ("bare", "default kernel"),
        (20, 20, ("cpu",)),
    ),
    "two results": (
        lambda: named(X, y=X, n=2),
        ("named", "default kernel"),
        (48, 48, ("cpu",)),
    ),
    "list": (
        lambda: total([X, M, M]),
        ("total", "default kernel"),
        (24 + 96 + 96, 96, ("cpu",)),
    ),
    "scalar": (
        lambda: square(np.float64(2)),
        ("square", "default kernel"),
        (8, 8, ("scalar",)),
    ),
    "no array": (lambda: made(3), ("made", "default kernel"), (0, 24, ("cpu",))),
    "fake": (
        lambda: square(co.FakeArray((10, 10), np.float32)),
        ("square", "fake kernel"),
        (400, 400, ("fake",)),
    ),
    "batch": (
        lambda: co.vmap(square)(M),
        ("square", "vmap rule"),
        (96, 96, ("vmap",)),
    ),
    "grad": (
        lambda: co.grad(loss)(X),
        ("square", "autograd forward"),
        (24, 24, ("autograd",)),
    ),
    "backward": (
        lambda: co.grad(loss)(X),
        ("square", "autograd backward"),
        (24, 24, ("cpu",)),
    ),
    "setup": (
        lambda: co.grad(loss)(X),
        ("square", "setup_context"),
        (48, 0, ("cpu",)),
    ),
    "nested": (
        lambda: co.vmap(co.grad(loss))(M),
        ("square", "autograd forward"),
        (96, 96, ("autograd",)),
    ),
    "own kind": (
        lambda: through(square, X),
        ("square", "inverse rule"),
        (24, 24, ("inverse",)),
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_bytes_are_those_of_the_arrays(name: str) -> None:
    """Bytes in and out are those that NumPy tells of the arrays; kinds by their names."""
    program, (operator, rule), expected = SIZES[name]
    with co.profile() as p:
        program()
        program()
    row = row_of(p, operator, rule)
    bytes_in, bytes_out, kinds = expected
    assert (row.bytes_in, row.bytes_out) == (2 * bytes_in, 2 * bytes_out)
    assert row.kinds == kinds


def test_kinds_of_other_arrays() -> None:
    """Arrays of a registered kind are of it, without bytes where they tell none."""

    class Column:
        shape = (3,)
        dtype = "text"

    co.register_array_type("profiled_column", Column)
    op = define("columns", lambda x: x, schema="(Array(a) x) -> Array(a)")
    op.register_kernel("profiled_column", lambda x: x)
    with co.profile() as p:
        op(Column())
    row = row_of(p, "columns", "profiled_column kernel")
    assert (row.kinds, row.bytes_in) == (("profiled_column",), 0)


# ---- times, by a clock that the kernels move ----


def test_times_of_one_kernel() -> None:
    """Shortest, mean and longest call, their sum, and the time that it was open."""
    waits = iter([5, 1, 3])

    def wait(x: co.Array) -> co.Array:
        CLOCK.now += next(waits)
        return x + 0.0

    op = define("waits", wait)
    with co.profile(clock=CLOCK) as p:
        for _ in range(3):
            op(X)
            CLOCK.now += 10
    row = row_of(p, "waits", "default kernel")
    times = (row.count, row.total_ns, row.self_ns, row.min_ns, row.mean_ns, row.max_ns)
    assert times == (3, 9, 9, 1, 3, 5)
    assert p.wall_ns == 39


def test_self_time_leaves_out_what_is_called() -> None:
    """The body of a composite operator takes 1 of its 11; two kernels take the rest."""
    with co.profile(clock=CLOCK) as p:
        composed(X)
    body, kernel = (
        row_of(p, "composed", "composite body"),
        row_of(p, "square", "default kernel"),
    )
    assert (body.total_ns, body.self_ns) == (11, 1)
    assert (kernel.total_ns, kernel.self_ns) == (10, 10)


def test_times_of_a_gradient() -> None:
    """Forward 7, of which the kernel takes 5 and the setup 2; the formula 7 by itself."""
    with co.profile(clock=CLOCK) as p:
        co.grad(loss)(X)
    found = {
        row.rule: (row.total_ns, row.self_ns)
        for row in p.rows
        if row.operator == "profiled::square"
    }
    assert found == {
        "autograd forward": (7, 0),
        "default kernel": (5, 5),
        "setup_context": (2, 2),
        "autograd backward": (7, 7),
    }


def test_an_operator_inside_itself_is_timed_once() -> None:
    """Total time counts the outermost call of a row alone; self time counts all."""

    def down(n: Any) -> Any:
        CLOCK.now += 1
        return deep(n - 1.0) if n > 0 else n + 0.0

    deep = define("deep", down, schema="(Array n) -> Array")
    with co.profile(clock=CLOCK) as p:
        deep(np.array(3.0))
    row = row_of(p, "deep", "default kernel")
    assert (row.count, row.total_ns, row.self_ns) == (4, 4, 4)
    # 4, 3, 2 and 1.
    assert (row.min_ns, row.mean_ns, row.max_ns) == (1, 2, 4)


def test_errors_are_calls_too() -> None:
    """A call that raises is counted with its time; what is around it goes on right."""

    def fail(x: co.Array) -> co.Array:
        CLOCK.now += 4
        raise ZeroDivisionError

    failing = define("failing", fail)

    def catch(x: Any) -> Any:
        CLOCK.now += 1
        with pytest.raises(ZeroDivisionError):
            failing(x)
        return square(x)

    catching = define("catching", catch, schema="(Array x) -> Array")
    with co.profile(clock=CLOCK) as p:
        catching(X)
        square(X)
    found = {
        row.operator.partition("::")[2]: (
            row.count,
            row.errors,
            row.total_ns,
            row.self_ns,
        )
        for row in p.rows
    }
    assert found == {
        "catching": (1, 0, 10, 1),
        "failing": (1, 1, 4, 4),
        "square": (2, 0, 10, 10),
    }


def test_a_kernel_that_runs_again_for_its_proof_is_one_call() -> None:
    """A compiled kernel may refuse read-only arrays: the failed attempt is no error."""

    def refuses(x: co.Array) -> co.Array:
        CLOCK.now += 1
        if not x.flags.writeable:
            raise ValueError("buffer source array is read-only")
        return x * 2.0

    op = define("refuses", refuses)
    with co.profile(clock=CLOCK) as p:
        op(X.copy())
    row = row_of(p, "refuses", "default kernel")
    assert (row.count, row.errors, row.total_ns, row.bytes_in) == (1, 0, 1, 24)


def test_the_time_around_a_kernel_that_runs_again() -> None:
    """What a body has spent in operators before such a kernel stays counted."""

    def refuses(x: co.Array) -> co.Array:
        if not x.flags.writeable:
            raise ValueError("buffer source array is read-only")
        return x * 2.0

    again = define("refuses_later", refuses)
    op = define("around", lambda x: again(square(x)), schema="(Array x) -> Array")
    with co.profile(clock=CLOCK) as p:
        op(X)
    row = row_of(p, "around", "default kernel")
    assert (row.total_ns, row.self_ns) == (5, 0)


@pytest.mark.parametrize("word", WORDS[:40])
def test_self_times_sum_to_the_time_in_operators(word: str, tmp_path: Path) -> None:
    """Under any nesting the self times of all rows are the time of outermost calls."""
    with co.profile(clock=Ticks()) as p:
        value_of(word, by_operator)
    outermost = [e for e in events_of(p, tmp_path) if e["depth"] == 0]
    assert sum(row.self_ns for row in p.rows) == sum(e["dur"] for e in outermost)


# ---- nothing else changes ----


def twice(fn: Callable[[], Any]) -> Any:
    """The second result, after a first call that opens fast paths."""
    fn()
    return fn()


def test_contiguous_arrays_are_made_for_who_needs_them() -> None:
    """`Tag.needs_contiguous` holds under profile."""
    op = define(
        "ordered",
        lambda x: np.array(float(x.flags.c_contiguous)),
        schema="(Array x) -> Array",
        tags=co.Tag.needs_contiguous,
    )
    with co.profile():
        assert twice(lambda: op(np.ones((4, 6))[::2, ::3])) == 1.0


def test_a_device_names_the_kernel() -> None:
    """A call without arrays goes to the kernel of its device, after another one too."""
    co.register_array_type("profiled_strip", type("Strip", (), {"shape": (3,)}))
    op = define(
        "empty",
        lambda n, device: "cpu" * n,
        schema="(int n, device device) -> str",
        device_types="cpu",
    )
    op.register_kernel("profiled_strip", lambda n, device: "strip" * n)
    with co.profile() as p:
        found = twice(lambda: (op(1, "cpu"), op(1, "profiled_strip")))
    assert found == ("cpu", "strip")
    assert counts(p) == {
        ("empty", "cpu kernel"): 2,
        ("empty", "profiled_strip kernel"): 2,
    }


def test_writes_are_noted() -> None:
    """Reverse mode refuses a formula whose array was written under profile."""

    @co.custom_op("profiled::fill", mutates_args=("x",))
    def fill(x: np.ndarray) -> None:
        x[...] = 0.0

    kept = X.copy()
    y = np.sum(square(co.variable(kept)))
    with co.profile():
        fill(np.ones(2))
        fill(kept)
    with pytest.raises(co.GradientError, match="was written by an operator since"):
        y.backward()


def test_a_kernel_that_is_switched_off_and_on() -> None:
    """The switch holds from the next call on, whatever has run before."""
    op = define("switched", lambda x: x + 1.0, schema="(Array x) -> Array")
    op.register_kernel("cpu", lambda x: x + 2.0)
    found = []
    with co.profile() as p:
        for enabled in (True, False, True):
            if p.rows:
                op.set_kernel_enabled("cpu", enabled)
            found += [float(op(np.zeros(()))) for _ in range(3)]
    assert found == [2.0] * 3 + [1.0] * 3 + [2.0] * 3
    assert counts(p) == {
        ("switched", "cpu kernel"): 6,
        ("switched", "wrapped function"): 3,
    }


def value_of(word: str, polynomial: Any) -> Any:
    """The value at AT of the function that a word of transforms makes."""
    f = polynomial
    for letter in reversed(word):
        f = TRANSFORMS[letter][0](f)
    return f(np.array(AT))


def exact(word: str) -> int:
    """The same by whole numbers."""
    coefficients = list(COEFFICIENTS)
    for letter in reversed(word):
        coefficients = TRANSFORMS[letter][1](coefficients)
    return sum(c * int(AT) ** k for k, c in enumerate(coefficients))


@pytest.mark.parametrize("polynomial", [by_operator, by_numpy])
@pytest.mark.parametrize("word", [*WORDS[:40], *WORDS[40::27]])
def test_words_under_profile_give_the_exact_polynomial(
    word: str, polynomial: Any
) -> None:
    """Transforms nested in any order give under profile what exact arithmetic gives."""
    with co.profile(threads=len(word) % 2 == 1):
        assert value_of(word, polynomial) == exact(word)


@pytest.mark.parametrize("word", WORDS[:40])
def test_interpreters_see_what_they_see_without(word: str) -> None:
    """The operators that a transform of a user's own handles are the same ones."""

    def seen() -> list[int]:
        found: list[int] = []

        def see(x: Any) -> Any:
            with Identity() as identity:
                y = identity.lower(by_operator(identity.wrap(x)))
            found.append(identity.seen)
            return y

        value_of(word, see)
        return found

    before = seen()
    with co.profile():
        assert seen() == before


def _writes(x: np.ndarray) -> np.ndarray:
    x += 1.0
    return x + 0.0


def _raises(x: co.Array) -> co.Array:
    raise KeyError("kernel")


FAULTS: dict[str, Callable[[], Any]] = {
    "argument": lambda: square("text"),
    "kernel": lambda: define("raises", _raises)(X),
    "kernel, keywords": lambda: named(X, y=np.ones(7), n=1),
    "contract": lambda: define("writes", _writes)(X.copy()),
    "no kernel": lambda: co.define("profiled::none", "(Array x) -> Array")(X),
    "no formula": lambda: co.grad(lambda x: np.sum(bare(x)))(X),
    "no jvp": lambda: co.jvp(bare, (X,), (X,)),
    "formula": lambda: co.grad(lambda x: np.sum(broken(x)))(X),
    "lost": lambda: co.grad(lambda x: float(square(x)))(X),
    "leaked": lambda: square(escaped()),
    "vmap": lambda: co.vmap(lambda x: x if square(x) > 0 else -x)(X),
    "vmap rule": lambda: co.vmap(broken)(X),
}
broken = define("broken", lambda x: x + 0.0, schema="(Array x) -> Array")
broken.register_autograd(lambda ctx, g: [g, g])
broken.register_vmap(lambda info, in_dims, x: x)


def escaped() -> Any:
    found: list[Any] = []
    co.grad(lambda x: found.append(x) or np.sum(x))(X)
    return found[0]


def fault(program: Callable[[], Any]) -> tuple[type, str, int]:
    """Class and text of an error, without levels and lines, and its frames."""
    with pytest.raises(Exception) as caught:  # any error is compared
        program()
    text = "".join(c for c in str(caught.value) if not c.isdigit())
    return caught.type, text, len(traceback.extract_tb(caught.tb))


@pytest.mark.parametrize("name", FAULTS)
def test_errors_are_those_without(name: str) -> None:
    """An error is of the same class and text; the slow path adds one frame."""
    cls, text, frames = fault(FAULTS[name])
    with co.profile():
        found = fault(FAULTS[name])
    assert found[:2] == (cls, text)
    assert frames <= found[2] <= frames + 1


def test_the_traceback_of_a_kernel_is_as_long_as_without() -> None:
    """Between the caller and a kernel that fails there are two frames, as ever."""
    op = define("raises_late", _raises)
    frames = fault(lambda: op(X))[2]
    with co.profile():
        assert fault(lambda: op(X))[2] == frames


def snapshot() -> dict[str, Any]:
    """All that a call goes by."""
    names = {
        op.qualname: {k: id(v) for k, v in op.call.__globals__.items()}
        for op in (square, both, composed, named, total)
    }
    codes = {op.qualname: op.call.__code__ for op in (square, composed)}
    plans = {
        op.qualname: op.plans.by_tracer[interpreter.GradTracer].__globals__.get("setup")
        for op in (square,)
    }
    return {"names": names, "codes": codes, "plans": plans}


@pytest.mark.parametrize("error", [None, KeyError])
def test_nothing_is_left_behind(error: type[Exception] | None) -> None:
    """After a profile, also one that an error leaves, calls go the way they went before."""
    programs = ("call", "cpu", "composite", "grad", "grad, keywords", "list")
    for name in programs:
        PROGRAMS[name][0]()
    before = snapshot()
    with pytest.raises(error) if error else nullcontext(), co.profile():
        assert snapshot() == before
        for name in programs:
            PROGRAMS[name][0]()
        if error is not None:
            raise error
    assert snapshot() == before
    assert observers == []
    assert open_modes == []


def test_a_setup_function_with_decorators_stays_what_it_is() -> None:
    """What a setup function wraps is not what runs after a profile."""
    said: list[str] = []

    @functools.wraps(_square_setup)
    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        said.append("wrapper")
        ctx.save_for_backward(inputs[0])

    op = define("wrapped", lambda x: x * x, schema="(Array x) -> Array")
    op.register_autograd(
        lambda ctx, g: g * ctx.saved_arrays[0] * 2.0, setup_context=setup
    )
    f = co.grad(lambda x: np.sum(op(x)))
    for _ in range(2):
        with co.profile():
            f(X)
        f(X)
    assert said == ["wrapper"] * 4


# ---- who is seen ----


def run_in_thread(fn: Callable[[], Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(fn).result()


KERNEL = ("square", "default kernel")


@pytest.mark.parametrize(("threads", "expected"), [(False, {}), (True, {KERNEL: 1})])
def test_other_threads(threads: bool, expected: Any) -> None:
    """What other threads run is seen with `threads` alone."""
    with co.profile(threads=threads) as p:
        run_in_thread(lambda: square(X))
    assert counts(p) == expected


def test_the_profile_of_another_thread() -> None:
    """A profile that another thread has open sees nothing of this one."""
    with ThreadPoolExecutor(1) as pool:
        p = co.profile()
        pool.submit(p.__enter__).result()
        square(X)
        pool.submit(square, X).result()
        pool.submit(p.__exit__, None, None, None).result()
    assert counts(p) == {KERNEL: 1}


def test_threads_count_apart_and_sum_up() -> None:
    """Eight threads at once lose no call, and each has its own nesting."""

    def work(_: int) -> None:
        for _ in range(50):
            composed(X)

    with co.profile(threads=True) as p, ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert counts(p) == {("composed", "composite body"): 400, KERNEL: 800}


def test_tasks_that_are_started_inside() -> None:
    """Tasks of one thread are seen where they were started inside, with those inside."""

    async def call() -> None:
        await asyncio.sleep(0)
        composed(X)

    async def watch() -> Any:
        outside = asyncio.create_task(call())
        with co.profile() as p:
            await asyncio.gather(call(), asyncio.create_task(call()), outside)
        return p

    assert counts(asyncio.run(watch())) == {
        ("composed", "composite body"): 2,
        KERNEL: 4,
    }


def test_a_task_that_outlives_the_profile() -> None:
    """A context that was copied while the profile was open counts nothing afterwards."""
    with co.profile() as p:
        context = contextvars.copy_context()
        context.run(square, X)
    context.run(square, X)
    with co.profile(threads=True) as other:
        context.run(square, X)
    assert (counts(p), counts(other)) == ({KERNEL: 1}, {KERNEL: 1})


def test_nested_profiles() -> None:
    """The outer profile sees what the inner one sees, and the rest."""
    with co.profile() as outer:
        square(X)
        with co.profile() as inner:
            co.grad(loss)(X)
        square(X)
    assert counts(inner) == GRAD
    assert counts(outer) == {**GRAD, KERNEL: 3}


def test_nested_profiles_of_all_threads() -> None:
    """A profile of all threads and one of this thread each count a call once."""
    with co.profile(threads=True) as everywhere, co.profile() as here:
        square(X)
        run_in_thread(lambda: square(X))
    assert (counts(everywhere), counts(here)) == ({KERNEL: 2}, {KERNEL: 1})


def test_profiles_that_overlap() -> None:
    """Profiles may close in any order."""
    first, second = co.profile(), co.profile()
    first.__enter__()
    square(X)
    second.__enter__()
    square(X)
    first.__exit__(None, None, None)
    square(X)
    second.__exit__(None, None, None)
    square(X)
    assert (counts(first), counts(second)) == ({KERNEL: 2}, {KERNEL: 2})


def test_generators_with_profiles_of_their_own() -> None:
    """Each sees what runs in the thread between its opening and its closing."""

    def calls() -> Iterator[Any]:
        with co.profile() as p:
            yield p
            square(X)
            yield p

    one, other = calls(), calls()
    p, q = next(one), next(other)
    next(one)
    one.close()
    next(other)
    other.close()
    square(X)
    assert (counts(p), counts(q)) == ({KERNEL: 1}, {KERNEL: 2})


def test_a_profile_opened_and_closed_inside_an_operator() -> None:
    """What is running when it opens is not counted, what still runs when it closes is."""
    p = co.profile(clock=CLOCK)
    open_it = define(
        "opens", lambda x: (p.__enter__(), square(x))[1], schema="(Array x) -> Array"
    )
    close_it = define(
        "closes",
        lambda x: (square(x), p.__exit__(None, None, None))[0],
        schema="(Array x) -> Array",
    )
    open_it(X)
    close_it(X)
    square(X)
    assert counts(p) == {KERNEL: 2, ("closes", "default kernel"): 1}
    assert row_of(p, "closes", "default kernel").self_ns == 0


def test_a_profile_opened_again_goes_on() -> None:
    """Two blocks of one profile count together, also after a thread has closed one."""
    p = co.profile(clock=CLOCK)
    p.__enter__()
    square(X)
    run_in_thread(lambda: p.__exit__(None, None, None))
    square(X)
    with p:
        square(X)
    assert (counts(p), p.wall_ns) == ({KERNEL: 2}, 10)


def test_it_can_be_read_while_it_is_open() -> None:
    """Calls that have ended are there; a call that is running is not."""
    seen: list[Any] = []

    def look(x: Any) -> Any:
        y = square(x)
        seen.append((counts(p), [r.self_ns for r in p.rows], p.wall_ns))
        return y

    op = define("looks", look, schema="(Array x) -> Array")
    with co.profile(clock=CLOCK) as p:
        op(X)
    assert seen == [({KERNEL: 1}, [5], 5)]
    assert counts(p) == {KERNEL: 1, ("looks", "default kernel"): 1}


def test_opened_twice() -> None:
    """A profile that is open cannot be opened, and stays open."""
    with co.profile() as p:
        with pytest.raises(co.RegistrationError) as caught:
            p.__enter__()
        square(X)
    assert counts(p) == {KERNEL: 1}
    assert str(caught.value) == (
        "profile is opened a second time\n  do: make a new one for the inner block"
    )


def test_closed_twice() -> None:
    """A profile that is closed cannot be closed."""
    with co.profile() as p:
        pass
    with pytest.raises(co.RegistrationError) as caught:
        p.__exit__(None, None, None)
    assert str(caught.value) == (
        "profile is closed, and was not open\n  do: open it by a with block"
    )


# ---- limits ----


@pytest.mark.parametrize("limit", [0, 1, 3, 5])
def test_the_limit_of_events(limit: int, tmp_path: Path) -> None:
    """The first calls to begin are in the timeline; the rows count all, and the rest."""
    with co.profile(max_events=limit, clock=Ticks()) as p:
        composed(X)
        composed(X)
    names = [e["name"].partition(" ")[0] for e in events_of(p, tmp_path)]
    began = ["composed", "square", "square"] * 2
    assert names == [f"profiled::{name}" for name in began[:limit]]
    assert counts(p) == {("composed", "composite body"): 2, KERNEL: 4}
    assert (p.dropped, p.to_dict()["dropped"]) == (6 - limit, 6 - limit)


@pytest.mark.parametrize("value", [-1, 1.5, True, None, "all"])
def test_a_limit_that_is_none(value: Any) -> None:
    """What is not a number of calls is refused."""
    with pytest.raises(co.ArgumentError) as caught:
        co.profile(max_events=value)
    assert str(caught.value) == (
        f"profile: max_events={value!r} is not a number of calls\n"
        "  do: pass a whole number, 0 for rows without a timeline"
    )


# ---- CUDA ----


class Stream:
    """Stands for CuPy's current stream."""

    def __init__(self) -> None:
        self.waits = 0

    def synchronize(self) -> None:
        self.waits += 1
        CLOCK.now += 50


class CudaArray:
    """Stands for an array of CuPy."""

    __module__ = "cupy"
    shape, dtype, nbytes = (3,), np.dtype("f4"), 12


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """The stream of a module that stands for CuPy."""
    found = Stream()
    cuda = type("cuda", (), {"get_current_stream": staticmethod(lambda: found)})
    cupy = type(sys)("cupy")
    cupy.ndarray, cupy.cuda = CudaArray, cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    kinds.kind_of.clear()
    yield found
    kinds.kind_of.clear()


@pytest.mark.parametrize(
    ("synchronize", "waits", "spent"), [(False, 0, 5), (True, 2, 55)]
)
def test_waiting_for_the_device(
    synchronize: bool, waits: int, spent: int, stream: Stream
) -> None:
    """With `synchronize` the stream is waited for before and after, and counts inside."""
    op = define("on_device", lambda x: x, schema="(Array(a) x) -> Array(a)")
    op.register_kernel("cuda", lambda x: (setattr(CLOCK, "now", CLOCK.now + 5), x)[1])
    co.config.checks = "never"
    with co.profile(synchronize=synchronize, clock=CLOCK) as p:
        op(CudaArray())
    row = row_of(p, "on_device", "cuda kernel")
    assert (stream.waits, row.total_ns) == (waits, spent)
    assert (row.bytes_in, row.kinds) == (12, ("cuda",))


def test_nothing_waits_for_arrays_elsewhere(stream: Stream) -> None:
    """Calls without CUDA arrays do not wait."""
    with co.profile(synchronize=True):
        co.grad(loss)(X)
    assert stream.waits == 0


# ---- the table ----


def test_the_table() -> None:
    """Rows by self time, aligned, with units, and a line about all of them."""
    with co.profile(clock=CLOCK) as p:
        composed(np.ones(1000))
        CLOCK.now += 1_234_567
    assert str(p) == (
        "operator            rule            count  total   self    min   mean    max"
        "       in      out  kinds\n"
        "profiled::square    default kernel      2  10 ns  10 ns   5 ns   5 ns   5 ns"
        "  16.0 kB  16.0 kB  cpu\n"
        "profiled::composed  composite body      1  11 ns   1 ns  11 ns  11 ns  11 ns"
        "  8.00 kB  8.00 kB  cpu\n"
        "3 calls, 11 ns of 1.23 ms"
    )


def test_the_table_of_a_program_with_errors() -> None:
    """Where calls have failed the table says how many."""
    op = define("raises_again", _raises)
    with co.profile(clock=CLOCK) as p:
        square(X)
        for _ in range(12):
            with pytest.raises(KeyError):
                op(X)
    head, *lines = [line.split() for line in str(p).splitlines()[:-1]]
    assert head[3:5] == ["errors", "total"]
    # The name of a rule is two words.
    assert [line[4:6] for line in lines] == [["0", "5"], ["12", "0"]]


@pytest.fixture
def ordered() -> Any:
    """A profile whose rows come in another order by each measure."""
    with co.profile(clock=CLOCK, max_events=2) as p:
        composed(X)
        bare(np.ones(1000))
        for _ in range(3):
            both(X, X)
    return p


ORDERS = {
    "self": ["square", "composed", "both", "bare"],
    "total": ["composed", "square", "both", "bare"],
    "count": ["both", "square", "composed", "bare"],
    "bytes": ["bare", "both", "square", "composed"],
}


@pytest.mark.parametrize("sort", ORDERS)
def test_the_order_of_the_table(sort: Any, ordered: Any) -> None:
    """Rows come by what is asked for, the largest first."""
    lines = ordered.table(sort=sort).splitlines()[1:-1]
    names = [line.split()[0].partition("::")[2] for line in lines]
    expected = ORDERS[sort]
    # What has no time stands in the order in which it was first met.
    assert sorted(names) == sorted(expected)
    assert names[:2] == expected[:2]


@pytest.mark.parametrize(("limit", "rest"), [(0, 4), (1, 3), (3, 1)])
def test_the_limit_of_the_table(limit: int, rest: int, ordered: Any) -> None:
    """Rows beyond the limit are counted."""
    lines = ordered.table(limit=limit).splitlines()
    assert len(lines) == 1 + limit + 2
    assert lines[-2] == f"... and {rest} more row{'s' * (rest != 1)}"


def test_a_limit_that_leaves_nothing_out(ordered: Any) -> None:
    """A limit of as many rows as there are says nothing of others."""
    assert ordered.table(limit=4) == ordered.table()


def test_the_table_says_what_the_timeline_lacks(ordered: Any) -> None:
    """The last line tells of calls that are not kept one by one."""
    assert (
        ordered.table().splitlines()[-1]
        == "7 calls, 11 ns of 11 ns; 5 not in the timeline"
    )


def test_an_empty_profile(tmp_path: Path) -> None:
    """A profile of nothing prints and is written."""
    with co.profile(clock=CLOCK) as p:
        pass
    assert str(p).splitlines()[1:] == ["0 calls, 0 ns of 0 ns"]
    assert (p.rows, p.dropped) == ([], 0)
    assert events_of(p, tmp_path) == []


def test_repr() -> None:
    """It says whether it is open and how much it has seen."""
    p = co.profile()
    with p:
        square(X)
        assert repr(p) == "<profile, open, 1 calls>"
    assert repr(p) == "<profile, closed, 1 calls>"


SORTS = "do: sort by one of 'self', 'total', 'count', 'bytes'"
SUFFIXES = "do: end the name in one of '.json', '.folded'"
MESSAGES: list[tuple[Callable[..., Any], str, str]] = [
    (
        lambda p, path: p.table(sort="slef"),
        "profile.table: sort is 'slef' (did you mean 'self'?)",
        SORTS,
    ),
    (lambda p, path: p.table(sort=3), "profile.table: sort is 3", SORTS),
    (
        lambda p, path: p.table(limit=-2),
        "profile.table: limit=-2 is not a number of rows",
        "do: pass a whole number, or None for all rows",
    ),
    (
        lambda p, path: p.save(path / "trace.txt"),
        "profile.save: 'trace.txt' has no known suffix",
        SUFFIXES,
    ),
    (
        lambda p, path: p.save(str(path / "trace")),
        "profile.save: 'trace' has no known suffix",
        SUFFIXES,
    ),
]


@pytest.mark.parametrize(("ask", "what", "do"), MESSAGES)
def test_messages(ask: Callable[..., Any], what: str, do: str, tmp_path: Path) -> None:
    """What cannot be shown is refused, with what can; no file is made."""
    with pytest.raises(co.ArgumentError) as caught:
        ask(co.profile(), tmp_path)
    assert str(caught.value) == f"{what}\n  {do}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "time", "size"),
    [
        (0, "0 ns", "0 B"),
        (999, "999 ns", "999 B"),
        (1000, "1.00 us", "1.00 kB"),
        (9994, "9.99 us", "9.99 kB"),
        (9996, "10.0 us", "10.0 kB"),
        (12345, "12.3 us", "12.3 kB"),
        (123456, "123 us", "123 kB"),
        (999499, "999 us", "999 kB"),
        (999600, "1.00 ms", "1.00 MB"),
        (5 * 10**9, "5.00 s", "5.00 GB"),
        (12 * 10**13, "120000 s", "120 TB"),
    ],
)
def test_units(number: int, time: str, size: str) -> None:
    """Times and sizes are shown with three digits in the unit that suits them."""
    assert (show_time(number), show_bytes(number)) == (time, size)


# ---- numbers and files ----


def test_rows_as_numbers(ordered: Any) -> None:
    """`to_dict` has what the rows have, in what JSON can hold."""
    found = ordered.to_dict()
    assert json.loads(json.dumps(found)) == found
    assert [row["operator"] for row in found["rows"]] == [
        r.operator for r in ordered.rows
    ]
    assert found["rows"][0] == {
        "operator": "profiled::square",
        "rule": "default kernel",
        "count": 2,
        "errors": 0,
        "total_ns": 10,
        "self_ns": 10,
        "min_ns": 5,
        "mean_ns": 5,
        "max_ns": 5,
        "bytes_in": 48,
        "bytes_out": 48,
        "kinds": ["cpu"],
    }
    rest = {key: value for key, value in found.items() if key != "rows"}
    assert rest == {"wall_ns": 11, "threads": 1, "dropped": 5}


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


NEEDED = {
    "M": {"name", "ph", "pid", "tid", "args"},
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "C": {"name", "ph", "ts", "pid", "args"},
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:profiled..bare has no vmap rule")
def test_traces_keep_the_rules_of_the_format(name: str, tmp_path: Path) -> None:
    """Known phases with all their fields, sorted, nested, beginning at zero."""
    with co.profile(clock=Ticks()) as p:
        PROGRAMS[name][0]()
    events = trace_of(p, tmp_path)["traceEvents"]
    assert all(set(event) == NEEDED[event["ph"]] for event in events)
    starts = [event["ts"] for event in events if event["ph"] != "M"]
    assert starts == sorted(starts)
    assert starts[:1] in ([], [0.0])
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = events_of(p, tmp_path)
    assert {event["tid"] for event in found} == set(named)
    assert set(named.values()) <= {threading.current_thread().name}


@pytest.mark.parametrize("word", ["gv", "vg", "gg", "gvi", "vgg"])
def test_a_trace_has_what_the_rows_have(word: str, tmp_path: Path) -> None:
    """As many events of a name as its row counts, with its times."""
    with co.profile(clock=Ticks()) as p:
        value_of(word, by_operator)
    spent: dict[str, list[int]] = {}
    for event in events_of(p, tmp_path):
        spent.setdefault(event["name"], []).append(event["dur"])
    rows = {
        f"{r.operator} ({r.rule})": (r.count, r.min_ns, r.max_ns, r.mean_ns)
        for r in p.rows
    }
    assert rows == {
        name: (len(all_of), min(all_of), max(all_of), sum(all_of) // len(all_of))
        for name, all_of in spent.items()
    }


def test_an_outer_event_comes_first(tmp_path: Path) -> None:
    """Where the clock shows no difference, what calls stands before what is called."""
    op = define("calls_bare", lambda x: bare(bare(x)), schema="(Array x) -> Array")
    with co.profile(clock=CLOCK) as p:
        op(X)
    names = [e["name"] for e in trace_of(p, tmp_path)["traceEvents"] if e["ph"] == "X"]
    assert [name.partition(" ")[0] for name in names] == [
        "profiled::calls_bare",
        "profiled::bare",
        "profiled::bare",
    ]


def test_the_arguments_of_an_event(tmp_path: Path) -> None:
    """An event shows the arrays that went in and came out, and the error that left."""
    with co.profile(clock=CLOCK) as p:
        named(X, y=np.ones(3, np.float32), n=2)
        with pytest.raises(KeyError):
            define("raises_anew", _raises)(np.ones((2, 0), bool))
    assert [event["args"] for event in events_of(p, tmp_path)] == [
        {"in": ["f64[3]", "f32[3]"], "out": ["f64[3]", "f64[3]"]},
        {"in": ["bool[2, 0]"], "out": [], "error": "KeyError"},
    ]


def test_the_counter_of_bytes(tmp_path: Path) -> None:
    """It grows by the arrays of calls that call no other, at the end of each."""
    with co.profile(clock=Ticks()) as p:
        composed(X)
        both(X, X)
    counters = [e for e in trace_of(p, tmp_path)["traceEvents"] if e["ph"] == "C"]
    assert [e["args"] for e in counters] == [
        {"in": 24, "out": 24},
        {"in": 48, "out": 48},
        {"in": 96, "out": 72},
    ]


def test_threads_have_rows_of_their_own_in_a_trace(tmp_path: Path) -> None:
    """Each thread is named, and its calls nest by themselves."""
    with co.profile(threads=True) as p:
        composed(X)
        thread = threading.Thread(target=composed, args=(X,), name="worker")
        thread.start()
        thread.join()
    events = trace_of(p, tmp_path)["traceEvents"]
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = [(named[e["tid"]], e["depth"]) for e in events_of(p, tmp_path)]
    main = threading.current_thread().name
    assert found == [
        (main, 0),
        (main, 1),
        (main, 1),
        ("worker", 0),
        ("worker", 1),
        ("worker", 1),
    ]


def test_collapsed_stacks(tmp_path: Path) -> None:
    """A line for each stack with its self time; what the timeline lacks is in it."""
    with co.profile(clock=CLOCK, max_events=0) as p:
        composed(X)
        square(X)
    p.save(str(tmp_path / "calls.folded"))
    assert (tmp_path / "calls.folded").read_text(encoding="utf-8") == (
        "profiled::composed (composite body) 1\n"
        "profiled::composed (composite body);profiled::square (default kernel) 10\n"
        "profiled::square (default kernel) 5\n"
    )


@pytest.mark.parametrize("word", ["gv", "vg", "ggg", "gvi"])
def test_collapsed_stacks_sum_up(word: str, tmp_path: Path) -> None:
    """Of each rule the lines that end in it sum to the self time of its row."""
    with co.profile(clock=Ticks()) as p:
        value_of(word, by_operator)
    p.save(tmp_path / "calls.folded")
    sums: dict[str, int] = {}
    for line in (tmp_path / "calls.folded").read_text(encoding="utf-8").splitlines():
        stack, _, own = line.rpartition(" ")
        name = stack.split(";")[-1]
        sums[name] = sums.get(name, 0) + int(own)
    assert sums == {f"{r.operator} ({r.rule})": r.self_ns for r in p.rows}
