"""Variables, backward, no_grad, enable_grad, stop_gradient."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import customop as co
from tests.transforms.autograd._operators import (
    BINARY,
    UNARY,
    X,
    Y,
    define,
    product,
    square,
    total,
)

# ---- variables ----


def test_backward_brings_gradients() -> None:
    """Backward adds the gradient of a value to the variables that it depends on."""
    x, y = co.variable(X), co.variable(Y)
    assert x.grad is None
    np.sum(product(x, y)).backward()
    assert_array_equal(x.grad, Y)
    assert_array_equal(y.grad, X)


def test_backward_is_also_a_function() -> None:
    """Backward(y) is y.backward()."""
    x = co.variable(X)
    co.backward(np.sum(square(x)))
    assert_array_equal(x.grad, 2.0 * X)


def test_gradients_of_several_backwards_are_summed() -> None:
    """x.grad grows until it is reset."""
    x = co.variable(X)
    np.sum(square(x)).backward()
    np.sum(3.0 * x).backward()
    assert_array_equal(x.grad, 2.0 * X + 3.0)
    x.grad = None
    np.sum(3.0 * x).backward()
    assert_array_equal(x.grad, np.full(3, 3.0))


def test_a_gradient_may_be_set() -> None:
    """x.grad starts from what it is set to."""
    x = co.variable(X)
    x.grad = np.ones(3)
    np.sum(square(x)).backward()
    assert_array_equal(x.grad, 2.0 * X + 1.0)


def test_backward_of_a_variable_itself() -> None:
    """The gradient of x by x is one."""
    x = co.variable(3.0)
    x.backward()
    assert x.grad == 1.0


def test_backward_with_a_gradient() -> None:
    """A value with axes takes a gradient of its shape."""
    x = co.variable(X)
    square(x).backward(Y)
    assert_array_equal(x.grad, 2.0 * X * Y)


def test_backward_with_a_number() -> None:
    """A value without axes takes a Python float as gradient."""
    x = co.variable(X)
    np.sum(square(x)).backward(0.5)
    assert_array_equal(x.grad, X)


def test_a_value_with_axes_needs_a_gradient() -> None:
    """The message says what to write."""
    with pytest.raises(co.GradientError) as caught:
        square(co.variable(X)).backward()
    assert str(caught.value) == (
        "backward: f64[3] is not a real float without axes, so it needs a gradient\n"
        "  do: call backward(np.sum(np.real(y))), or backward(y, gradient)"
    )


def test_a_complex_value_needs_a_gradient() -> None:
    """A complex value needs a cotangent to define its gradient."""
    with pytest.raises(co.GradientError, match=r"complex|c128"):
        np.sum(square(co.variable(1j * X))).backward()


@pytest.mark.parametrize(
    "gradient", [np.ones(2), np.ones(3, np.float32), [1.0, 1.0, 1.0], 1.0, "s"]
)
def test_a_wrong_gradient_is_refused(gradient: Any) -> None:
    """It has the shape and dtype of the value, which the message shows."""
    with pytest.raises(co.GradientError, match=r"must be f64\[3\]"):
        square(co.variable(X)).backward(gradient)


@pytest.mark.parametrize("value", [X, 3.0, "s", None], ids=repr)
def test_backward_of_what_depends_on_no_variable(value: Any) -> None:
    """A plain value has no variables to bring gradients to."""
    with pytest.raises(co.GradientError, match="depends on no variable"):
        co.backward(value)


def test_backward_of_another_transforms_value() -> None:
    """A value of grad alone depends on no variable."""

    def f(x: Any) -> Any:
        y = np.sum(x)
        with pytest.raises(co.GradientError, match="no variable"):
            y.backward()
        return y

    co.grad(f)(X)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.arange(3), "variable: x has dtype int64, which has no derivative"),
        ([1.0], "variable: x must be an array of floats, got list [1.0]"),
        (3, "variable: x must be an array of floats, got int 3"),
    ],
)
def test_variables_are_arrays_of_floats(value: Any, message: str) -> None:
    """Values without a derivative cannot be variables."""
    with pytest.raises(co.GradientError) as caught:
        co.variable(value)
    assert caught.value.what == message


def test_only_a_variable_has_a_gradient() -> None:
    """A computed value has no grad, and it cannot be set."""
    y = square(co.variable(X))
    assert y.grad is None
    with pytest.raises(co.GradientError, match="is not a variable"):
        y.grad = X


def test_a_second_backward_is_refused() -> None:
    """Backward frees saved arrays; the message names the remedy."""
    x = co.variable(X)
    y = square(x)
    y.backward(np.ones(3))
    with pytest.raises(co.GradientError) as caught:
        y.backward(np.ones(3))
    assert caught.value.what == (
        "grads::square: backward runs a second time through a call whose saved arrays"
        " are freed"
    )
    assert caught.value.do == "call backward(y, retain_graph=True) the first time"
    assert_array_equal(x.grad, 2.0 * X)


def test_retain_graph_allows_a_second_backward() -> None:
    """Gradients of both are summed; the last one frees."""
    x = co.variable(X)
    y = np.sum(square(x))
    y.backward(retain_graph=True)
    co.backward(y, retain_graph=True)
    y.backward()
    assert_array_equal(x.grad, 6.0 * X)
    with pytest.raises(co.GradientError, match="second time"):
        y.backward()


def test_two_values_that_share_a_call() -> None:
    """A call shared by two values is freed with the first unless it is retained."""
    x = co.variable(X)
    shared = square(x)
    np.sum(shared).backward(retain_graph=True)
    np.sum(3.0 * shared).backward()
    assert_array_equal(x.grad, 8.0 * X)


@pytest.mark.parametrize("schema", [UNARY, BINARY])
def test_backward_frees_what_was_saved(schema: str) -> None:
    """Saved arrays are freed by the last sweep, while the result stays."""
    kept = []

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        array = inputs[0].copy()
        kept.append(weakref.ref(array))
        ctx.save_for_backward(array)

    op = define(
        lambda *xs: xs[0] * 1.0,
        lambda ctx, *gs: (gs[0], None)[: schema.count(",") + 1],
        setup,
        schema=schema,
    )
    y = op(*[co.variable(X)] * len(op.schema.parameters))
    assert kept[0]() is not None
    y.backward(np.ones(3), retain_graph=True)
    assert kept[0]() is not None
    y.backward(np.ones(3))
    assert kept[0]() is None


def test_the_gradient_is_an_array_of_its_own() -> None:
    """x.grad may be written: it is neither the seed nor another gradient."""
    copy_of = define(lambda x: x.copy(), lambda ctx, g: g)
    add = define(lambda x, y: x + y, lambda ctx, g: (g, g), schema=BINARY)
    seed = np.ones(3)
    x, y, z = co.variable(X), co.variable(X), co.variable(X)
    copy_of(x).backward(seed)
    add(y, z).backward(seed)
    for v in (x, y, z):
        v.grad += 1.0
        assert_array_equal(v.grad, np.full(3, 2.0))
    assert_array_equal(seed, np.ones(3))


def test_the_gradient_of_a_sum_may_be_written() -> None:
    """x.grad is not a broadcast view of the seed."""
    x = co.variable(X)
    np.sum(x).backward()
    x.grad *= 0.5
    assert_array_equal(x.grad, np.full(3, 0.5))


def test_variables_inside_of_grad() -> None:
    """A gradient that depends on a variable can be differentiated by it: d/dw 6 w = 6."""
    w = co.variable(2.0)
    slope_ = co.grad(lambda v: w * v * v)(3.0)
    slope_.backward()
    assert w.grad == 9.0 - 3.0


def test_grad_of_a_variable() -> None:
    """Second derivatives of variables: grad gives x -> 3 x^2, backward 6 x."""
    x = co.variable(3.0)
    co.grad(lambda v: v**3)(x).backward()
    assert x.grad == 18.0


def test_vmap_over_a_variable() -> None:
    """Rows of a variable bring their gradients to it."""
    x = co.variable(X)
    np.sum(co.vmap(lambda row: square(row) * row)(x)).backward()
    assert_allclose(x.grad, 3.0 * X**2)


def test_variables_in_threads() -> None:
    """Each thread's variables have their own gradients."""
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        x = co.variable(X * k)
        for _ in range(10):
            np.sum(square(x)).backward()
        found[k] = x.grad

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        assert_allclose(found[k], 20.0 * X * k)


def test_gradient_descent() -> None:
    """A typical use of the imperative form: minimize (x - 3)^2."""
    x = np.array(0.0)
    for _ in range(100):
        v = co.variable(x)
        square(v - 3.0).backward()
        x = x - 0.1 * v.grad
    assert_allclose(x, 3.0, atol=1e-8)


# ---- no_grad, enable_grad, stop_gradient ----


def is_tracked(value: Any) -> bool:
    return isinstance(value, co.GradTracer)


def test_no_grad_is_for_its_block() -> None:
    """Tracking goes on when the block ends."""
    x = co.variable(X)
    with co.no_grad():
        assert not is_tracked(square(x))
        assert not is_tracked(np.sin(x))
        assert not is_tracked(x + 1.0)
    assert is_tracked(square(x))


def test_no_grad_ends_with_an_exception() -> None:
    """Tracking goes on after an exception."""
    x = co.variable(X)
    with pytest.raises(KeyError, match="mine"), co.no_grad():
        raise KeyError("mine")
    assert is_tracked(square(x))


def test_no_grad_decorates() -> None:
    """As a decorator it applies to each call, also recursive ones."""

    @co.no_grad()
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else square(power(x, n - 1))

    x = co.variable(X)
    assert_array_equal(power(x, 2), X**4)
    assert not is_tracked(power(x, 2))
    assert is_tracked(square(x))


def test_no_grad_nests_with_enable_grad() -> None:
    """The innermost block decides."""
    x = co.variable(X)
    seen = []
    with co.no_grad():
        seen.append(is_tracked(square(x)))
        with co.enable_grad():
            seen.append(is_tracked(square(x)))
            with co.no_grad():
                seen.append(is_tracked(square(x)))
            seen.append(is_tracked(square(x)))
        seen.append(is_tracked(square(x)))
    seen.append(is_tracked(square(x)))
    assert seen == [False, True, False, True, False, True]


def test_enable_grad_decorates() -> None:
    """A decorated function tracks wherever it is called."""
    tracking = co.enable_grad()(square)
    x = co.variable(X)
    with co.no_grad():
        assert is_tracked(tracking(x))


def test_no_grad_inside_of_grad() -> None:
    """A value computed in no_grad is a constant: d/dx (x^2 as c) x is c."""

    def f(x: Any) -> Any:
        with co.no_grad():
            c = square(x)
        return np.sum(c * x)

    assert_array_equal(co.grad(f)(X), X**2)


def test_grad_inside_of_no_grad() -> None:
    """A whole gradient can be taken inside of no_grad."""
    with co.no_grad():
        found = co.grad(total(square))(X)
    assert_array_equal(found, 2.0 * X)


def test_backward_inside_of_no_grad() -> None:
    """Backward works inside of no_grad on values tracked before."""
    x = co.variable(X)
    y = np.sum(square(x))
    with co.no_grad():
        y.backward()
    assert_array_equal(x.grad, 2.0 * X)


def test_no_grad_in_one_thread_alone() -> None:
    """Another thread goes on tracking."""
    seen = []
    x = co.variable(X)
    with co.no_grad():
        thread = threading.Thread(target=lambda: seen.append(is_tracked(square(x))))
        thread.start()
        thread.join()
    assert seen == [True]


def test_a_decorated_function_in_two_threads() -> None:
    """One decorated function may run in two threads whose calls overlap."""
    barrier = threading.Barrier(2)
    errors: list[BaseException] = []
    seen = []

    @co.no_grad()
    def overlapping(x: Any, last: bool) -> Any:
        barrier.wait()
        if last:
            barrier.wait()
        return square(x)

    def work(last: bool) -> None:
        try:
            x = co.variable(X)
            seen.append(is_tracked(overlapping(x, last)))
            seen.append(is_tracked(square(x)))
        except BaseException as error:  # noqa: BLE001  # raised in the main thread
            errors.append(error)
        if not last:
            barrier.wait()

    threads = [threading.Thread(target=work, args=(last,)) for last in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(seen) == [False, False, True, True]


def test_stop_gradient() -> None:
    """d/dx of x stop(x) is stop(x)."""
    assert co.grad(lambda x: x * co.stop_gradient(x))(3.0) == 3.0


def test_stop_gradient_of_a_tree() -> None:
    """Arrays lose their tracking, other leaves stay."""
    x = co.variable(X)
    found = co.stop_gradient({"a": x, "b": [1, "s", None], "c": (square(x),)})
    assert type(found["a"]) is np.ndarray
    assert_array_equal(found["a"], X)
    assert found["b"] == [1, "s", None]
    assert_array_equal(found["c"][0], X**2)


def test_stop_gradient_stops_all_levels() -> None:
    """The value is a constant to the outer transform as well."""
    f = co.grad(co.grad(lambda x: x**2 * co.stop_gradient(x) ** 3))
    assert f(2.0) == 2.0 * 8.0


def test_stop_gradient_keeps_batches() -> None:
    """Under vmap each row keeps its own value."""
    found = co.vmap(co.grad(lambda x: x * co.stop_gradient(x)))(X)
    assert_array_equal(found, X)


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_stop_gradient_gives_what_can_be_written(checks: Any) -> None:
    """The value without its tracking is the array itself, not a read-only view."""
    co.config.checks = checks
    assert co.stop_gradient(X.copy()).flags.writeable


def test_stop_gradient_of_a_buffer_is_a_plain_array() -> None:
    """A buffer of the transform that holds no traced value has nothing to stop."""

    def loss(x: Any) -> Any:
        buffer = np.zeros_like(x)
        assert_array_equal(np.asarray(co.stop_gradient(buffer)), np.zeros(3))
        buffer[:] = x
        assert_array_equal(np.asarray(co.stop_gradient(buffer)), X)
        return np.sum(buffer * x)

    assert_array_equal(co.grad(loss)(X), 2 * X)
