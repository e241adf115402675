"""What a box, its views and its borders do: each is a program that went wrong once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([0.5, -1.25, 2.0])
M = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
Program = Callable[[Any], Any]


def slopes(fn: Program, x: Any, h: float = 1e-6) -> Any:
    """Central differences of a function of an array, which may write its argument."""
    found = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        found[i] = (fn(np.array(x + step)) - fn(np.array(x - step))) / (2 * h)
    return found


def assert_numpys(fn: Program, x: Any = X) -> None:
    """Value and gradient are NumPy's; so are rows, tangents and second derivatives."""
    given = x.copy()
    value, gradient = co.value_and_grad(fn)(given)
    expected = slopes(fn, x)
    np.testing.assert_allclose(value, fn(x.copy()), rtol=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6)
    _, tangent = co.jvp(fn, (given,), (x,))
    np.testing.assert_allclose(tangent, np.sum(expected * x), rtol=1e-6, atol=1e-6)
    rows = co.vmap(fn)(np.stack([x, 2.0 * x]))
    np.testing.assert_allclose(rows, [fn(x.copy()), fn(2.0 * x)], rtol=1e-12)
    each = co.grad(lambda b: np.sum(co.vmap(fn)(b)))(np.stack([x, x]))
    np.testing.assert_allclose(each, [gradient, gradient], rtol=1e-12, atol=1e-12)
    again = co.grad(lambda v: np.sum(co.grad(fn)(v) * x))(given)
    second = slopes(lambda v: np.sum(co.grad(fn)(v) * x), x)
    np.testing.assert_allclose(again, second, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(given, x)


# ---- views ----


def two_levels(x: Any) -> Any:
    y = x * 1.0
    rows = y.reshape(3, 1).T
    rows[0, 1:] *= y[:2]
    return np.sum(y * y * x)


def of_written_order(x: Any) -> Any:
    y = np.ones_like(x) * x
    flipped = y.T
    flipped += 1.0
    line = y.ravel()
    line[0] = 5.0 * x[0, 1]
    return np.sum(np.sin(y))


def ravel_of_steps(x: Any) -> Any:
    y = x * 1.0
    line = y[::2].ravel()
    line[0] = 100.0
    same = y[::2].reshape(-1)
    same[1] = y[0] * 7.0
    return np.sum(y * y)


def flatten_copies(x: Any) -> Any:
    y = x * 1.0
    line = y.flatten()
    line *= 3.0
    return np.sum(y * x)


def scalar_of_view(x: Any) -> Any:
    y = x * 1.0
    first, box = y[0], y[0, ...]
    first += 5.0
    box += 5.0
    return np.sum(y * y) * first


def not_of_a_scalar(x: Any) -> Any:
    total = np.sum(x)
    wide = np.expand_dims(total, 0)
    wide *= 2.0
    return total + np.sum(wide)


def diagonal_follows(x: Any) -> Any:
    square = x * 1.0 + np.zeros((3, 3))
    diagonal = np.diagonal(square)
    square[1] = x * x
    return np.sum(diagonal * x)


def rows_by_iteration(x: Any) -> Any:
    y = np.stack([x, x * x])
    for row in y:
        row *= x  # noqa: PLW2901  # the row is a view
    return np.sum(y)


def parts(x: Any) -> Any:
    y = x * 1.0
    first, rest = np.split(y, [1])
    rest += first
    first *= np.sum(rest)
    return np.sum(y * y)


def wide_follows(x: Any) -> Any:
    y = x * 1.0
    wide = np.broadcast_to(y, (2, 3))
    y *= x
    return np.sum(wide * x)


def grid_is_a_copy(x: Any) -> Any:
    y = x * 1.0
    grid, _ = np.meshgrid(y, y)
    y *= 3.0
    return np.sum(grid * x)


VIEWS = (
    two_levels,
    ravel_of_steps,
    flatten_copies,
    scalar_of_view,
    not_of_a_scalar,
    diagonal_follows,
    rows_by_iteration,
    parts,
    wide_follows,
    grid_is_a_copy,
)


@pytest.mark.parametrize("fn", VIEWS, ids=lambda fn: str(fn.__name__))
def test_views_are_numpys(fn: Program) -> None:
    """A view writes through and follows its base; a copy does neither."""
    assert_numpys(fn)


def test_a_transpose_keeps_the_order_in_memory() -> None:
    """A write through a transpose does not change which reshapes are views."""
    assert_numpys(of_written_order, M)


def test_complex_parts() -> None:
    """The real and imaginary parts are views, and can be set."""

    def fn(x: Any) -> Any:
        z = x * (1.0 + 2.0j)
        z.real *= x
        z.imag[0] = 3.0 * x[1]
        z.real[2] = 0.5
        return np.sum(np.real(z) * x) + np.sum(np.imag(z))

    np.testing.assert_allclose(co.grad(fn)(X), slopes(fn, X), rtol=1e-6)


def test_a_long_chain_of_views() -> None:
    """Views of views need no recursion, and time in proportion."""

    def fn(x: Any) -> Any:
        y = x * 1.0
        view = y
        for _ in range(2000):
            view = view[:]
        y *= 2.0
        view += x
        return np.sum(y * x)

    np.testing.assert_allclose(co.grad(fn)(X), 6.0 * X)


# ---- what was saved stays ----


def input_written(x: Any) -> Any:
    y = np.exp(x)
    x *= 2.0
    return np.sum(y * x)


def mask_of_outer(x: Any) -> Any:
    y = np.where(x > 0.0, x, 0.0)
    y[y > 1.0] *= 3.0
    return np.sum(y * x)


def constant_buffer(x: Any) -> Any:
    total = np.zeros_like(x)
    other = total + 1.0
    other[0] = x[1] * x[2]
    for i in range(len(x)):
        total[i] = np.sum(other) * x[i]
    return np.sum(total * total)


def last_wins(x: Any) -> Any:
    y = np.zeros(3, like=x)
    y[[0, 0, 1]] = x * x
    return np.sum(y * x)


def overlap(x: Any) -> Any:
    y = x * 1.0
    y[1:] = y[:-1]
    y[::-1] += y
    return np.sum(y * x)


SAVED = (input_written, mask_of_outer, constant_buffer, last_wins, overlap)


@pytest.mark.parametrize("fn", SAVED, ids=lambda fn: str(fn.__name__))
def test_saved_values_stay(fn: Program) -> None:
    """A write changes neither what formulas saved nor the array outside."""
    assert_numpys(fn)


def test_results_can_be_written_before_backward() -> None:
    """What vjp returns is not what a formula saved, plain or traced."""
    y, pull = co.vjp(np.exp, X)
    y *= 2.0
    np.testing.assert_allclose(pull(np.ones(3))[0], np.exp(X))

    def inner(x: Any) -> Any:
        y, pull = co.vjp(np.exp, x)
        y *= 2.0
        return np.sum(pull(np.ones(3))[0])

    np.testing.assert_allclose(co.grad(inner)(X), np.exp(X))


def test_an_outer_value_is_saved_as_it_was() -> None:
    """An inner gradient keeps the outer value that it met."""

    def outer(t: Any) -> Any:
        scale = t * 1.0
        y, pull = co.vjp(lambda x: x * scale, X)
        scale *= 100.0
        return np.sum(pull(np.ones(3))[0] * t) + np.sum(y)

    np.testing.assert_allclose(co.grad(outer)(X), 2.0 * X + X)


def test_stop_gradient_is_a_copy() -> None:
    """The value without tracking can be written."""

    def fn(x: Any) -> Any:
        y = np.exp(x)
        value = co.stop_gradient(y)
        value *= 0.0
        return np.sum(y)

    np.testing.assert_allclose(co.grad(fn)(X), np.exp(X))


def test_copies() -> None:
    """copy.copy and copy.deepcopy of a traced array are other arrays."""

    def fn(x: Any) -> Any:
        y = x * 1.0
        shallow, deep = copy.copy(y), copy.deepcopy([y])[0]
        y *= 5.0
        return np.sum(shallow * deep)

    np.testing.assert_allclose(co.grad(fn)(X), 2.0 * X)


def test_a_result_may_be_a_stale_view() -> None:
    """A view whose base was written last is taken again after the transform."""

    def fn(x: Any) -> Any:
        y = x * 1.0
        view = y[:2]
        y *= x
        return view

    np.testing.assert_array_equal(co.vjp(fn, X)[0], X[:2] ** 2)
    value, tangent = co.jvp(fn, (X,), (X,))
    np.testing.assert_array_equal(value, X[:2] ** 2)
    np.testing.assert_array_equal(tangent, 2 * X[:2] ** 2)
    np.testing.assert_array_equal(co.vmap(fn)(X[None])[0], X[:2] ** 2)


def test_buffers_are_constants() -> None:
    """What depends on a buffer alone needs no backward formula."""

    @co.custom_op("boxes::opaque", mutates_args=())
    def opaque(x: np.ndarray) -> np.ndarray:
        return x + 1.0

    def fn(x: Any) -> Any:
        return np.sum(opaque(np.zeros_like(x)) * x)

    np.testing.assert_array_equal(co.grad(fn)(X), np.ones(3))
    np.testing.assert_array_equal(co.grad(lambda x: np.sum(np.ones_like(x)))(X), 0 * X)


# ---- what is refused ----


def test_an_inner_value_does_not_go_out() -> None:
    """A value of an inner transform is not written into an outer array."""

    def sums(t: Any) -> Any:
        total = t * 1.0

        def row(x: Any) -> Any:
            nonlocal total
            total += x
            return np.sum(x)

        return np.sum(co.vmap(row)(np.ones((2, 3)))) + np.sum(total)

    with pytest.raises(co.ArgumentError, match="return the value from the inner"):
        co.grad(sums)(X)


def test_an_outer_array_is_not_written_for_each_row() -> None:
    """A write inside vmap that no row takes part in would run once: refused."""

    def count(t: Any) -> Any:
        total = t * 1.0

        def row(x: Any) -> Any:
            nonlocal total
            total += 1.0
            return np.sum(x)

        return np.sum(co.vmap(row)(np.ones((2, 3)))) + np.sum(total)

    with pytest.raises(co.VmapError, match="write it outside"):
        co.grad(count)(X)

    def made_inside(t: Any) -> Any:
        def row(x: Any) -> Any:
            own = t * 1.0
            own += 1.0
            return np.sum(own * x)

        return np.sum(co.vmap(row)(np.ones((2, 3))))

    np.testing.assert_array_equal(co.grad(made_inside)(X), np.full(3, 2.0))


def write_first(x: Any, y: Any) -> Any:
    x *= 2.0
    return np.sum(x * y)


SHARED: dict[str, Callable[[], Any]] = {
    "grad": lambda: co.grad(write_first, (0, 1))(X, X),
    "grad of one": lambda: co.grad(write_first)(X, X),
    "parts": lambda: co.grad(write_first)(X[:2], X[1:]),
    "vmap": lambda: co.vmap(write_first)(M, M),
    "jvp": lambda: co.jvp(write_first, (X, X), (X, X)),
    "vjp": lambda: co.vjp(write_first, X[:2], X[1:]),
    "traced": lambda: co.grad(lambda t: co.grad(write_first)(t, t)[0])(X),
}


@pytest.mark.parametrize("way", SHARED)
def test_arguments_that_share_memory(way: str) -> None:
    """Writing one of them is an error: NumPy would change the other too."""
    with pytest.raises(co.ArgumentError, match="shares its memory"):
        SHARED[way]()


def test_apart_arguments_and_shared_ones_that_are_read() -> None:
    """Both work."""
    np.testing.assert_allclose(co.grad(write_first)(X[:1], X[1:2]), 2.0 * X[1:2])
    np.testing.assert_allclose(co.grad(lambda x, y: np.sum(x * y))(X, X), X)


OTHERS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda y: co.grad(write_first, 1)(y, X),
    "vmap": lambda y: co.vmap(write_first, in_dims=(None, 0))(y, np.ones((2, 3))),
    "jacrev": lambda y: co.jacrev(write_first, 1)(y, X),
    "jacfwd": lambda y: co.jacfwd(write_first, 1)(y, X),
}


@pytest.mark.parametrize("way", OTHERS)
def test_other_arguments_are_read_only(way: str) -> None:
    """An argument that is not differentiated or batched does not change outside."""
    y = np.ones(3)
    with pytest.raises(ValueError, match="read-only"):
        OTHERS[way](y)
    np.testing.assert_array_equal(y, np.ones(3))
    assert y.flags.writeable


def test_views_that_numpy_makes_read_only() -> None:
    """So they are here."""
    for view in (
        lambda y: np.broadcast_to(y, (2, 3)),
        lambda y: np.diagonal(y + np.eye(3)),
    ):

        def fn(x: Any, view: Any = view) -> Any:
            v = view(x * 1.0)
            v += 1.0
            return np.sum(v)

        with pytest.raises(ValueError, match="read-only"):
            co.grad(fn)(X)


def test_formulas_do_not_write_their_gradient() -> None:
    """Also where it is traced: the formula is proven on what cannot be written."""
    op = co.custom_op(
        "boxes::twice", lambda x: x * 2.0, mutates_args=(), schema="(Array x) -> Array"
    )

    def backward(ctx: Any, g: Any) -> Any:
        g *= 2.0
        return g

    op.register_autograd(backward)
    with pytest.raises(co.ContractError, match="writes into a gradient"):
        co.grad(lambda v: np.sum(co.grad(lambda x: np.sum(op(x) * x))(v)))(X)


# ---- scalars ----


def test_a_float_is_a_scalar() -> None:
    """``x += 1`` of a Python float makes a new value, of an array it writes."""

    def fn(x: Any) -> Any:
        y = x
        x *= 3.0
        return x * y

    assert co.grad(fn)(2.0) == 12.0
    assert co.grad(fn)(np.array(2.0)) == 36.0
    assert co.jvp(fn, (2.0,), (1.0,)) == (12.0, 12.0)
    np.testing.assert_array_equal(co.vmap(fn)(np.array([2.0, 3.0])), [12.0, 27.0])


def test_arrays_without_axes() -> None:
    """What NumPy gives as an array without axes is written, also in rows."""

    def fn(x: Any) -> Any:
        total = np.zeros_like(np.sum(x))
        same, other = total, np.where(x[0] > 0.0, x[0], 0.5)
        total += np.sum(x)
        alias = other
        alias *= 2.0
        return same + other

    np.testing.assert_allclose(co.vmap(fn)(np.stack([X, -X])), [fn(X), fn(-X)])
    np.testing.assert_allclose(co.grad(fn)(X), slopes(fn, X), rtol=1e-6)


# ---- variables ----


def _overwritten(z: Any) -> Any:
    z.reshape(-1)[0] = 7.0
    return np.sum(z * 1.5)


def _scaled(z: Any) -> Any:
    view = z.reshape(1, 1)
    view *= 3.0
    return np.sum(z * z)


def _replaced(z: Any) -> Any:
    z[...] = z * z
    return np.sum(z * 1.5)


@pytest.mark.parametrize("fn", [_overwritten, _scaled, _replaced])
def test_an_argument_without_axes_is_written(fn: Program) -> None:
    """It is an array in captures too, not a scalar, which has no views."""
    z = np.array(2.0)
    expected = slopes(fn, z)
    ways: list[Program] = [
        co.grad(fn),
        co.compile(co.grad(fn)),
        co.make_fx(co.grad(fn))(z.copy()),
        co.grad(co.compile(fn)),
        lambda z: co.compile(lambda a: co.jvp(fn, (a,), (np.ones_like(a),))[1])(z),
        lambda z: co.compile(lambda a: co.vjp(fn, a)[1](1.0)[0])(z),
        lambda z: co.compile(co.jacfwd(fn))(z),
    ]
    found = [way(z.copy()) for way in ways]
    np.testing.assert_allclose(found, [expected] * len(ways), rtol=1e-6, atol=1e-6)
    second = (slopes(co.grad(fn), z), co.compile(co.hessian(fn))(z.copy()))
    np.testing.assert_allclose(second[1], second[0], rtol=1e-6, atol=1e-6)


def test_a_variable_is_written_inside_no_grad_only() -> None:
    """It stays a variable, and the array outside stays what it was."""
    w = co.variable(X)
    with pytest.raises(co.GradientError, match=r"inside no_grad\(\)"):
        w *= 2.0
    with co.no_grad():
        w -= 0.5
        w[0] = 3.0
    np.sum(w * w).backward()
    np.testing.assert_allclose(w.grad, 2.0 * np.array([3.0, -1.75, 1.5]))
    np.testing.assert_array_equal(X, [0.5, -1.25, 2.0])


def test_a_value_is_not_written_inside_no_grad() -> None:
    """Its gradient would not be that of its value."""
    w = co.variable(X)
    y = w * 2.0
    with co.no_grad(), pytest.raises(co.GradientError, match=r"outside no_grad\(\)"):
        y *= 2.0
    with co.no_grad(), pytest.raises(ValueError, match="read-only"):
        w[0:1] -= 1.0
    view = y[:1]
    y *= 3.0
    np.sum(view).backward()
    np.testing.assert_array_equal(w.grad, [6.0, 0.0, 0.0])


# ---- operators of users ----


def test_a_view_operator_of_a_user() -> None:
    """Its results follow the array; write_back says how they are written."""
    op = co.custom_op(
        "boxes::head",
        lambda x: x[:1],
        mutates_args=(),
        schema="(Array(a) x) -> Array(a)",
    )
    op.register_fake(lambda x: co.FakeArray((1, *x.shape[1:]), x.dtype, x.strides))
    op.register_autograd(
        lambda ctx, g: np.concatenate([g, np.zeros(ctx.n - 1)]),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "n", len(inputs[0])),
    )

    def follows(x: Any) -> Any:
        y = x * 1.0
        head = op(y)
        y *= x
        return np.sum(head)

    np.testing.assert_allclose(co.grad(follows)(X), [2 * X[0], 0.0, 0.0])

    def written(x: Any) -> Any:
        y = x * 1.0
        head = op(y)
        head *= 3.0
        return np.sum(y)

    with pytest.raises(co.MissingRuleError, match="'write_back'"):
        co.grad(written)(X)

    @op.register(co.write_back)
    def _(new: Any, x: Any) -> Any:
        return np.concatenate([new, x[1:]])

    np.testing.assert_allclose(co.grad(written)(X), [3.0, 1.0, 1.0])


def test_an_operator_that_writes_returns_the_same_array() -> None:
    """Under vmap too: a later write of its result is seen in the argument."""
    op = co.custom_op(
        "boxes::add_one_",
        lambda x: np.add(x, 1.0, out=x),
        mutates_args=("x",),
        schema="(Array(a!) x) -> Array(a!)",
        tags=(co.Tag.inplace, co.Tag.pointwise),
    )

    def fn(x: Any) -> Any:
        y = x * 1.0
        z = op(y)
        z *= 3.0
        return y

    np.testing.assert_array_equal(co.vmap(fn)(np.stack([X, X]))[0], fn(X))


def test_interpreters_of_users_have_boxes() -> None:
    """A tracer with content of its own keeps it in writes and views."""

    class Tagged(co.Tracer):
        __slots__ = ("tag",)

        def __init__(self, interpreter: Any, value: Any, tag: str) -> None:
            super().__init__(interpreter, value)
            self.tag = tag

    class Tags(co.Interpreter):
        kind = co.RuleKind("tags")
        tracer_class = Tagged

        def constant(self, value: Any) -> Any:
            return Tagged(self, value, "constant")

        def process(self, op: Any, args: Any) -> Any:
            return self.wrap(op.invoke(self.unwrap(args)), op.name)

    with Tags() as tags:
        x = tags.wrap(X.copy(), "input")
        view = x[1:]
        view *= 2.0
        assert x.tag == "slice_set"
        assert view.tag == "slice"
        np.testing.assert_array_equal(x.below, X * [1.0, 2.0, 2.0])
        np.testing.assert_array_equal(view.below, X[1:] * 2.0)
