"""Plain arrays that a program overwrites between their use and the gradient.

The oracle is plain: either the gradient is that of the values at the call, by finite
differences, or there is an error that names the array and the line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import customop as co
from tests.transforms.autograd._operators import X, define

ONES = np.ones(3)


def coefficient(x: Any) -> Any:
    b = np.ones(3)
    total = 0.0
    for _ in range(3):
        total = total + np.sum(x * b)
        b *= 2.0
    return total


def index_array(x: Any) -> Any:
    at, total = np.zeros(1, int), 0.0
    for k in range(3):
        at[0] = k
        total = total + np.sum(x[at] * k)
    return total


def scratch(x: Any) -> Any:
    buffer, total = np.empty(3), 0.0
    for k in range(3):
        np.multiply(ONES, k, out=buffer)
        total = total + np.sum(x * buffer)
    return total


def weights(x: Any) -> Any:
    w = np.eye(3)
    y = w @ x
    w *= 0.0
    return np.sum(y)


def mask(x: Any) -> Any:
    m = np.array([True, False, True])
    y = np.where(m, x, 0.0)
    m[:] = False
    return np.sum(y)


def base_of_a_view(x: Any) -> Any:
    b = np.ones((2, 3))
    y = x * b[1]
    b[:] = 0.0
    return np.sum(y)


def in_a_list(x: Any) -> Any:
    b = np.ones(3)
    y = np.stack([x, x * b])
    b += 1.0
    return np.sum(y)


PROGRAMS = [coefficient, index_array, scratch, weights, mask, base_of_a_view, in_a_list]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_an_array_overwritten_in_the_function(program: Any) -> None:
    """The error names the argument, the line of the call, and a copy."""
    with pytest.raises(co.GradientError) as caught:
        co.grad(program)(X)
    text = str(caught.value)
    assert "was overwritten after the call, and backward needs its old values" in text
    assert ".copy(), or write after backward" in text
    line = int(text.partition(f"called at {__file__}:")[2].split()[0])
    first = program.__code__.co_firstlineno
    assert first < line < first + 8


def test_the_error_word_for_word() -> None:
    """What, where, and what to do."""
    with pytest.raises(co.GradientError) as caught:
        co.grad(coefficient)(X)
    line = coefficient.__code__.co_firstlineno + 4
    assert str(caught.value) == (
        "np::multiply: argument 'x2', f64[3], was overwritten after the call, and"
        " backward needs its old values\n"
        "  np::multiply(Array|Scalar x1, Array|Scalar x2) -> Array\n"
        "                                ^^^^^^^^^^^^^^^\n"
        f"  called at {__file__}:{line}\n"
        "  do: pass x2.copy(), or write after backward"
    )


def test_with_copies_the_programs_are_right() -> None:
    """The advice of the error leads to NumPy's gradient."""

    def program(x: Any) -> Any:
        b, total = np.ones(3), 0.0
        for _ in range(3):
            total = total + np.sum(x * b.copy())
            b *= 2.0
        return total

    assert_array_equal(co.grad(program)(X), 7.0 * ONES)


def test_an_input_overwritten_after_vjp() -> None:
    """The point of the derivative must stay until the pullback has run."""
    x = X.copy()
    _, pull = co.vjp(lambda v: v * v, x)
    x[:] = 9.0
    with pytest.raises(co.GradientError, match=r"argument 'x1', f64\[3\], was over"):
        pull(ONES)


def test_an_input_overwritten_between_two_pullbacks() -> None:
    """The first pull is right, the second one raises."""
    x = X.copy()
    _, pull = co.vjp(lambda v: v * v, x)
    assert_array_equal(pull(ONES)[0], 2.0 * X)
    x[:] = 9.0
    with pytest.raises(co.GradientError, match="was overwritten"):
        pull(ONES)


@pytest.mark.parametrize(
    "program",
    [np.exp, lambda v: np.exp(v).T, lambda v: v],
    ids=["exp", "a view of exp", "the input"],
)
def test_the_result_of_vjp_may_be_written(program: Any) -> None:
    """What vjp hands out is not what formulas have saved."""
    x = X.copy()
    y, pull = co.vjp(program, x)
    right = pull(ONES)[0].copy()
    y[:] = 100.0
    assert_array_equal(pull(ONES)[0], right)
    assert_array_equal(x, X)


def test_the_aux_of_vjp_may_be_written() -> None:
    """The same for what is not differentiated."""

    def program(x: Any) -> Any:
        y = np.exp(x)
        return y * y, {"y": y}

    _, pull, aux = co.vjp(program, X, has_aux=True)
    aux["y"][:] = 0.0
    assert_allclose(pull(ONES)[0], 2.0 * np.exp(2.0 * X))


def test_a_copy_keeps_its_order_in_memory() -> None:
    """The copy of a result lies in memory as the result does."""
    y, _ = co.vjp(lambda v: np.exp(v), np.asfortranarray(np.ones((2, 3))))
    assert y.flags.f_contiguous


def test_a_variable_overwritten_before_backward() -> None:
    """The imperative form is watched from `variable` to `backward`."""
    a = X.copy()
    x = co.variable(a)
    y = np.sum(x * x)
    a[:] = 0.0
    with pytest.raises(co.GradientError, match="was overwritten"):
        y.backward()


def test_the_pass_after_the_first_backward_is_watched() -> None:
    """A variable made once: the passes of the loop around it are watched too."""
    x, b = co.variable(X), np.ones(3)
    for step in range(2):
        y = np.sum(x * b)
        if step == 1:
            b *= 2.0
            with pytest.raises(co.GradientError, match="was overwritten"):
                y.backward()
        else:
            y.backward()


def test_an_array_overwritten_under_a_nested_gradient() -> None:
    """Values that outer transforms track are looked through."""
    b = np.ones(3)

    def inner(x: Any) -> Any:
        y = np.sum(x * x * b)
        b[:] = 2.0 * b
        return y

    with pytest.raises(co.GradientError, match="was overwritten"):
        co.grad(lambda x: np.sum(co.grad(inner)(x)))(X)


def test_an_array_overwritten_under_vmap() -> None:
    """Rows of a batch as well."""
    b = np.ones(3)

    def program(x: Any) -> Any:
        y = np.sum(x * b)
        b[:] = 2.0 * b
        return y

    with pytest.raises(co.GradientError, match="was overwritten"):
        co.vmap(co.grad(program))(np.ones((2, 3)))


def test_an_array_overwritten_inside_a_native_operator() -> None:
    """The body that `native` differentiates is watched too."""

    def body(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        b = np.ones(3)
        y: np.ndarray[Any, Any] = x * b
        b *= 2.0
        return y

    with co.Library("overwritten_native", "FRAGMENT"):
        op = co.custom_op("overwritten_native::body", body, mutates_args=())
        op.register_autograd(co.native)
        with pytest.raises(co.GradientError, match="was overwritten"):
            co.grad(lambda x: np.sum(op(x)))(X)


def test_what_a_rule_saved_is_named() -> None:
    """An array that is no argument is called as it is kept."""
    table = np.ones(3)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.table = table

    op = define(lambda x: x * table, lambda ctx, g: g * ctx.table, setup)

    def program(x: Any) -> Any:
        y = np.sum(op(x))
        table[:] = 5.0
        return y

    with pytest.raises(co.GradientError, match=r"ctx\.table, f64\[3\], was overwr"):
        co.grad(program)(X)


@pytest.mark.parametrize("change", ["item", "length"])
def test_a_list_of_numbers_that_changes(change: str) -> None:
    """A list that a rule keeps is compared as an array is."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factors = inputs[1]

    def scale(x: np.ndarray[Any, Any], factors: list[float]) -> np.ndarray[Any, Any]:
        return x * float(np.prod(factors))

    def backward(ctx: Any, g: Any) -> Any:
        return g * float(np.prod(ctx.factors)), None

    op = define(scale, backward, setup, schema="(Array x, float[] factors) -> Array")

    def program(x: Any) -> Any:
        factors = [2.0, 3.0]
        y = np.sum(op(x, factors))
        if change == "item":
            factors[1] = 5.0
        else:
            factors.append(5.0)
        return y

    with pytest.raises(co.GradientError) as caught:
        co.grad(program)(X)
    assert "argument 'factors', a list, was overwritten after" in str(caught.value)
    assert "pass factors.copy(), or write after backward" in str(caught.value)


def test_a_kernel_that_returns_its_own_buffer_is_found() -> None:
    """The result of the first call is overwritten by the second."""
    buffer = np.empty(3)

    def into_buffer(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        np.exp(x, out=buffer)
        return buffer

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    op = define(into_buffer, lambda ctx, g: g * ctx.saved_arrays[0], setup)
    with pytest.raises(co.GradientError, match=r"the result, f64\[3\], was overwr"):
        co.grad(lambda x: np.sum(op(op(x))))(X)


def test_a_formula_that_writes_what_it_saved() -> None:
    """It would change the caller's array, or the next pullback."""

    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_arrays
        x *= 2.0
        return g * x

    op = define(
        lambda x: x * x,
        backward,
        lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    with pytest.raises(co.ContractError, match="backward writes into array 0"):
        co.grad(lambda x: np.sum(op(x)))(X.copy())


def test_a_formula_may_keep_a_state_in_its_ctx() -> None:
    """A counter in an array of its own is neither saved nor an argument."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.runs = np.zeros(1)

    def backward(ctx: Any, g: Any) -> Any:
        ctx.runs += 1
        ctx.last = g
        return g * 2.0

    op = define(lambda x: x * 2.0, backward, setup)
    _, pull = co.vjp(op, X)
    for _ in range(3):
        assert_array_equal(pull(ONES)[0], 2.0 * ONES)


SAFE: dict[str, Callable[[Any, Any], Any]] = {
    # Each writes `b` after the call, but no gradient needs the old values.
    "a sum": lambda x, b: x + b,
    "a difference": lambda x, b: b - x,
    "a comparison": lambda x, b: np.where(b > 0.0, x, 0.0 * x),
    "a copy": lambda x, b: x * b.copy(),
    "a number": lambda x, b: x * float(b[0]),
}


@pytest.mark.parametrize("name", SAFE)
def test_a_write_that_no_gradient_depends_on(name: str) -> None:
    """No false alarm."""
    b = np.ones(3)

    def program(x: Any) -> Any:
        y = SAFE[name](x, b)
        b[:] = 7.0
        return np.sum(y)

    sign = -1.0 if name == "a difference" else 1.0
    assert_array_equal(co.grad(program)(X), sign * ONES)


def test_equal_values_are_not_a_write() -> None:
    """Writing what is already there changes no gradient; nan counts as equal."""
    b = np.array([1.0, np.nan, 2.0])

    def program(x: Any) -> Any:
        y = np.sum(x * b)
        b[:] = b.copy()
        return y

    assert_array_equal(co.grad(program)(X), b)


# ---- which runs are watched ----


def late(state: dict[str, int]) -> Callable[..., Any]:
    """A function that overwrites from its second run on."""

    def program(x: Any) -> Any:
        b = np.ones(3)
        y = np.sum(x * b)
        state["runs"] += 1
        if state["runs"] > 1:
            b *= 2.0
        return y

    return program


def test_checks_always_watches_every_run() -> None:
    co.config.checks = "always"
    f = co.grad(late({"runs": 0}))
    assert_array_equal(f(X), ONES)
    with pytest.raises(co.GradientError, match="was overwritten"):
        f(X)


def test_checks_never_watches_none() -> None:
    co.config.checks = "never"
    f = co.grad(coefficient)
    assert f(X).shape == (3,)


def test_sample_checks_watch_some_later_runs() -> None:
    """With the share 1 each run is watched."""
    co.config.sample_checks = 1.0
    try:
        f = co.grad(late({"runs": 0}))
        f(X)
        with pytest.raises(co.GradientError, match="was overwritten"):
            f(X)
        co.config.on_failure = "warn"
        with pytest.warns(
            co.CustomOpWarning, match=r"was overwritten(.|\n)*sample_checks"
        ):
            assert_array_equal(f(X), 2.0 * ONES)
    finally:
        co.config.sample_checks, co.config.on_failure = 0.0, "error"


def test_a_run_that_failed_is_watched_again() -> None:
    """The error comes at each run until the program is right."""
    f = co.grad(mask)
    for _ in range(3):
        with pytest.raises(co.GradientError, match="was overwritten"):
            f(X)


def branching(state: dict[str, int], constants: int) -> Callable[..., Any]:
    """A function whose value is a constant at first, and that then overwrites."""

    def program(x: Any) -> Any:
        b = np.ones(3)
        y = np.sum(x * b)
        b *= 2.0
        state["runs"] += 1
        return 0.0 if state["runs"] <= constants else y

    return program


def test_runs_with_a_constant_value_leave_a_function_watched() -> None:
    """Its backward had nothing to show; after 8 such runs the function is trusted."""
    f = co.grad(branching({"runs": 0}, 7))
    for _ in range(7):
        assert_array_equal(f(X), np.zeros(3))
    with pytest.raises(co.GradientError, match="was overwritten"):
        f(X)
    f = co.grad(branching({"runs": 0}, 8))
    for _ in range(8):
        f(X)
    assert f(X).shape == (3,)


def right(x: Any) -> Any:
    return np.sum(x * x)


def apply(fn: Any, x: Any) -> Any:
    return fn(x)


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "closure": lambda fn: lambda x: fn(x),
    "default": lambda fn: lambda x, fn=fn: fn(x),
    "partial": lambda fn: partial(apply, fn),
    "callable object": lambda fn: type(
        "Call", (), {"__call__": lambda self, x: fn(x)}
    )(),
    "grad": lambda fn: lambda x: np.sum(co.grad(fn)(x)),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers_with_one_code_are_told_apart(name: str) -> None:
    """A helper that differentiates many functions is watched for each of them."""
    wrap = WRAPPED[name]
    assert co.grad(wrap(right))(X).shape == (3,)
    with pytest.raises(co.GradientError, match="was overwritten"):
        co.grad(wrap(scratch))(X)


class Loss:
    """Applies a function that it holds."""

    def __init__(self, fn: Any) -> None:
        self.layers = [fn]

    def __call__(self, x: Any) -> Any:
        return self.layers[0](x)

    def value(self, x: Any) -> Any:
        return self.layers[0](x)


class Other(Loss):
    """Another class, whose method is found by its name."""

    def value(self, x: Any) -> Any:
        return np.square(x)


# Of two functions with one code, the second needs its argument for backward.
PAIRS: dict[str, Any] = {
    "ufuncs": [np.negative, np.square],
    "callable objects": [Loss(np.negative), Loss(np.square)],
    "partials": [partial(apply, np.negative), partial(apply, np.square)],
    "methods": [Loss(np.negative).value, Loss(np.square).value],
    "operators": [co.ops.np.negative, co.ops.np.square],
    "compiled functions": [co.compile(np.negative), co.compile(np.square)],
    "objects of two classes": [
        lambda x, held=held: held.value(x)
        for held in (Loss(np.negative), Other(np.negative))
    ],
    "names": [
        lambda x, name=name: getattr(np, name)(x) for name in ("negative", "square")
    ],
    "keyword defaults": [lambda x, *, fn=fn: fn(x) for fn in (np.negative, np.square)],
}


@pytest.mark.parametrize("name", PAIRS)
def test_functions_that_hold_others_are_told_apart(name: str) -> None:
    """Each is watched the first time, though the lambda below has one code."""

    def pulled(loss: Any) -> Any:
        x = X.copy()
        _, pull = co.vjp(lambda v: loss(v), x)  # what is tried
        x[:] = 100.0
        return pull(ONES)

    first, second = PAIRS[name]
    np.testing.assert_array_equal(pulled(first)[0], -ONES)
    with pytest.raises(co.GradientError, match="was overwritten"):
        pulled(second)


loss: Any = np.negative


def test_a_global_that_is_another_function_is_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pulled() -> Any:
        x = X.copy()
        _, pull = co.vjp(lambda v: loss(v), x)  # what is tried
        x[:] = 100.0
        return pull(ONES)

    pulled()
    monkeypatch.setitem(globals(), "loss", np.square)
    with pytest.raises(co.GradientError, match="was overwritten"):
        pulled()


def test_operators_are_told_apart() -> None:
    """Each operator is a program of its own."""
    b = np.ones(3)

    def late_write(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(b)

    square = define(lambda x: x * x, lambda ctx, g: g * 2.0)
    wrong = define(lambda x: x * b, lambda ctx, g: g * ctx.saved_arrays[0], late_write)
    for op in (square, wrong):
        _, pull = co.vjp(op, X)
        if op is wrong:
            b[:] = 4.0
            with pytest.raises(co.GradientError, match="was overwritten"):
                pull(ONES)
        else:
            pull(ONES)


def test_threads_watch_their_own_runs() -> None:
    """Runs at the same time do not disturb each other."""
    found: list[str] = []

    def run(program: Any) -> None:
        for _ in range(20):
            try:
                assert_array_equal(co.grad(program)(X), 2.0 * X)
            except co.GradientError:
                found.append(program.__name__)

    threads = [threading.Thread(target=run, args=(p,)) for p in (right, weights) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["weights"] * 40


def test_calls_of_an_operator_that_ran_before_are_watched() -> None:
    """The first run of a function is watched whatever ran before it."""
    co.grad(lambda v: np.sum(np.cos(v) * v))(X)
    for fn in (np.cos, lambda v: v * v):
        x = X.copy()
        _, pullback = co.vjp(fn, x)
        x[:] = 5.0
        with pytest.raises(co.GradientError, match="was overwritten"):
            pullback(np.ones(3))
