"""Arrays written after they were saved for backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import customop as co
from tests.transforms.autograd._operators import (
    X,
    add_one,
    define,
    save_inputs,
    square,
    square_backward,
    total,
    writer,
)

# ---- arrays written after they were saved ----

WRITES = {
    "itself": lambda a: a,
    "a view": lambda a: a[1:],
    "a reshaped view": lambda a: a.reshape(3, 1),
    "a view of a view": lambda a: a[::2][:1],
}


@pytest.mark.parametrize("checks", ["first", "always", "never"])
@pytest.mark.parametrize("name", WRITES)
def test_a_saved_array_written_since_is_refused(name: str, checks: Any) -> None:
    """A write by an operator, also through a view, is seen by its version number."""
    co.config.checks = checks
    a = X.copy()
    y = np.sum(square(co.variable(a)))
    writer()(WRITES[name](a))
    with pytest.raises(co.GradientError) as caught:
        y.backward()
    assert str(caught.value) == (
        "grads::square: array 0 saved for backward, f64[3], was written by an operator"
        " since\n"
        "  grads::square(Array x) -> Array\n"
        "  do: save a copy, or write after backward"
    )


def test_a_saved_view_whose_base_is_written() -> None:
    """A write to the base of a saved view is noticed too."""
    a = np.arange(6.0)
    y = np.sum(square(co.variable(a[2:5])))
    writer()(a)
    with pytest.raises(co.GradientError, match="was written by an operator since"):
        y.backward()


def test_writes_before_and_after() -> None:
    """An array written before it was saved and again since is refused too."""
    write = writer()
    a = X.copy()
    write(a)
    write(a)
    y = np.sum(square(co.variable(a)))
    write(a)
    with pytest.raises(co.GradientError, match="was written by an operator since"):
        y.backward()


@pytest.mark.parametrize("nested", [False, True])
def test_an_attribute_written_since_is_refused(nested: bool) -> None:
    """An array kept as a plain attribute is watched as a saved one is, also in a list."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.kept = [inputs[0]] if nested else inputs[0]

    def backward(ctx: Any, g: Any) -> Any:
        return 2.0 * g * (ctx.kept[0] if nested else ctx.kept)

    op = define(lambda x: x * x, backward, setup)
    a = X.copy()
    y = np.sum(op(co.variable(a)))
    writer()(a)
    with pytest.raises(co.GradientError, match="was written by an operator since"):
        y.backward()


def test_an_array_written_by_setup_context_and_then_saved() -> None:
    """A buffer that setup_context fills by an operator counts as written before."""
    write = writer()

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        buffer = inputs[0] - 1.0
        write(buffer)
        ctx.save_for_backward(buffer)

    op = define(lambda x: x * x, square_backward, setup)
    x = co.variable(X)
    np.sum(op(x)).backward()
    assert_array_equal(x.grad, 2.0 * X)


def test_a_write_before_saving_is_fine() -> None:
    """Only writes after the call count."""
    a = X.copy()
    writer()(a)
    x = co.variable(a)
    np.sum(square(x)).backward()
    assert_array_equal(x.grad, 2.0 * (X + 1.0))


def test_a_write_after_backward_is_fine() -> None:
    """After backward, saved arrays may be written."""
    a = X.copy()
    x = co.variable(a)
    np.sum(square(x)).backward()
    writer()(a)
    assert_array_equal(x.grad, 2.0 * X)


def test_a_saved_copy_may_be_written_around() -> None:
    """A formula that saved a copy allows writes to the original."""
    op = define(
        lambda x: x * x,
        square_backward,
        lambda ctx, inputs, output: ctx.save_for_backward(inputs[0].copy()),
    )
    a = X.copy()
    x = co.variable(a)
    y = np.sum(op(x))
    writer()(a)
    y.backward()
    assert_array_equal(x.grad, 2.0 * X)


def test_another_array_written_is_fine() -> None:
    """A write to something else does not count."""
    a, other = X.copy(), X.copy()
    x = co.variable(a)
    y = np.sum(square(x))
    writer()(other)
    y.backward()
    assert_array_equal(x.grad, 2.0 * X)


def test_arrays_of_a_list_written_since() -> None:
    """A write to the arrays of a list argument counts as well."""

    def add_all(xs: Any) -> None:
        for x in xs:
            add_one(x)

    write = define(add_all, schema="(Array(a!)[] xs) -> ()", mutates=("xs",))
    a = X.copy()
    y = np.sum(square(co.variable(a)))
    write([np.zeros(2), a])
    with pytest.raises(co.GradientError, match="was written by an operator since"):
        y.backward()


def test_a_write_of_a_tracked_value_is_refused() -> None:
    """A write has no gradient; the message names no_grad."""
    op = writer()
    with pytest.raises(co.GradientError) as caught:
        op(co.variable(X.copy()))
    assert caught.value.what == (
        f"{op.qualname} writes its argument 'x' under variable(x): a write has"
        " no gradient"
    )
    assert "no_grad()" in caught.value.do


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_a_variable_may_be_written_in_no_grad(checks: Any) -> None:
    """Inside of no_grad an operator may update a variable in place."""
    co.config.checks = checks
    a = X.copy()
    x = co.variable(a)
    with co.no_grad():
        writer()(x)
    assert_array_equal(a, X + 1.0)


def test_a_kernel_that_writes_into_its_own_arrays() -> None:
    """A kernel may write to arrays that it made."""

    def kernel(x: Any) -> Any:
        y = x.copy()
        y *= y
        return y

    op = define(kernel, square_backward, save_inputs)
    assert_allclose(co.hessian(total(_pointwise(op)))(X), np.diag(np.full(3, 2.0)))


def _pointwise(op: Any) -> Any:
    return op.register_vmap(lambda info, in_dims, x: (op(x), in_dims[0]))
