"""Casting the float arguments of operators to a chosen dtype."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import customop as co

_numbers = itertools.count()
F32 = np.array([0.5, 1.0, 1.5], np.float32)
HALF = np.float16


def save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def cube() -> Any:
    """A pointwise operator with all its rules, cast to float16 on the cpu."""
    op = co.custom_op(
        f"autocast::op{next(_numbers)}",
        lambda x: x * x * x,
        mutates_args=(),
        schema="(Array x) -> Array",
        tags=co.Tag.pointwise,
    )
    op.register_fake(lambda x: co.fake_like(x))
    op.register_autograd(
        lambda ctx, g: g * (3.0 * ctx.saved_arrays[0] ** 2), setup_context=save
    )
    return op.register_autocast("cpu", HALF)


def define(fn: Any, schema: str) -> Any:
    """Make an operator of a new name."""
    name = f"autocast::op{next(_numbers)}"
    return co.custom_op(name, fn, mutates_args=(), schema=schema)


# ---- what is cast ----


DTYPES = [
    ("float32", "float16"),
    ("float16", "float16"),
    ("float64", "float64"),
    ("longdouble", np.dtype(np.longdouble).name),
    ("int64", "int64"),
    ("bool", "bool"),
    ("complex64", "complex64"),
]


@pytest.mark.parametrize(("given", "expected"), DTYPES)
def test_dtypes_that_are_cast(given: str, expected: str) -> None:
    """Only floats shorter than float64 are cast."""
    op = define(lambda x: x.copy(), "(Array x) -> Array").register_autocast("cpu", HALF)
    with co.autocast("cpu"):
        assert op(np.ones(2, given)).dtype == np.dtype(expected)
    assert op(np.ones(2, given)).dtype == np.dtype(given)


def test_values_are_those_of_the_cast_arguments() -> None:
    """The kernel computes on arguments that NumPy has rounded."""
    op = cube()
    x = np.array([1.0001, 3.3], np.float32)
    half = x.astype(HALF)
    with co.autocast():
        np.testing.assert_array_equal(op(x), half * half * half)


def test_widening() -> None:
    """The registered dtype may be the longer one."""
    op = define(lambda x: x.sum(), "(Array x) -> Array").register_autocast("cpu", "f4")
    with co.autocast():
        assert op(np.ones(2, HALF)).dtype == np.float32


def test_lists_are_cast() -> None:
    """Arrays inside lists are cast, each by its own dtype."""
    op = define(lambda many: [x.copy() for x in many], "(Array[] many) -> Array[]")
    op.register_autocast("cpu", HALF)
    with co.autocast():
        found = op([F32, np.ones(2), np.ones(2, int)])
    assert [x.dtype.name for x in found] == ["float16", "float64", "int64"]


def test_keyword_only_arrays_are_cast() -> None:
    """Keyword-only arrays are cast, and other arguments stay as they are."""
    op = define(
        lambda x, k=2.0, *, y: x * k + y, "(Array x, float k=2.0, *, Array y) -> Array"
    )
    op.register_autocast("cpu", HALF)
    with co.autocast():
        out = op(F32, y=F32)
    assert out.dtype == HALF
    np.testing.assert_array_equal(out, (F32 * 3).astype(HALF))


def test_numpy_scalar_is_cast() -> None:
    """A NumPy scalar is an array without axes here too."""
    op = cube()
    with co.autocast():
        assert op(np.float32(2.0)).dtype == HALF


def test_operator_without_registration_is_left_alone() -> None:
    """Only operators that say so are cast."""
    op = define(lambda x: x * 2, "(Array x) -> Array")
    with co.autocast():
        assert op(F32).dtype == np.float32


def test_other_kind_is_left_alone() -> None:
    """A mode for one kind of array does not touch another's."""
    op = cube().register_autocast("cuda", np.float32)
    with co.autocast("cuda"):
        assert op(F32).dtype == np.float32


def test_registering_again_replaces() -> None:
    """The last dtype that is registered for a kind counts."""
    op = cube().register_autocast("cpu", np.float32)
    with co.autocast():
        assert op(np.ones(2, HALF)).dtype == np.float32


def test_free_function() -> None:
    """The free function registers for a name, and gives the operator."""
    op = define(lambda x: x * 2, "(Array x) -> Array")
    assert co.register_autocast(op.qualname, "cpu", HALF) is op
    with co.autocast():
        assert op(F32).dtype == HALF


# ---- when ----


def test_it_ends_with_the_block() -> None:
    """After the block, and after an exception in it, nothing is cast."""
    op = cube()
    with pytest.raises(ZeroDivisionError), co.autocast():
        1 / (op(F32).dtype == np.float32)
    assert op(F32).dtype == np.float32


def test_disabled_inside_enabled() -> None:
    """An inner block switches autocast off for its kind, and on again."""
    op = cube()
    with co.autocast():
        with co.autocast(enabled=False):
            assert op(F32).dtype == np.float32
            with co.autocast():
                assert op(F32).dtype == HALF
        assert op(F32).dtype == HALF


def test_blocks_of_two_kinds() -> None:
    """A block for another kind leaves the one around it as it is."""
    op = cube()
    with co.autocast("cpu"), co.autocast("cuda"):
        assert op(F32).dtype == HALF
    with co.autocast("cpu"), co.autocast("cuda"), co.autocast("cpu", enabled=False):
        assert op(F32).dtype == np.float32
    with co.autocast("cpu"), co.autocast("cpu", enabled=False), co.autocast("cuda"):
        assert op(F32).dtype == np.float32


def test_kernel_runs_with_autocast_off() -> None:
    """Operators called inside a kernel are not cast again."""
    inner = cube()
    seen = []

    def kernel(x: np.ndarray) -> np.ndarray:
        seen.append(inner(x.astype(np.float32)).dtype)
        return x * 2

    outer = define(kernel, "(Array x) -> Array").register_autocast("cpu", HALF)
    with co.autocast():
        assert outer(F32).dtype == HALF
    assert seen == [np.dtype(np.float32)]


def test_operator_of_operators_is_cast_inside() -> None:
    """A body made of operators is seen by the mode."""
    inner = cube()
    library = co.Library("autocast_body", "DEF")
    library.define("twice(Array x) -> Array")
    library.impl("twice", lambda x: inner(x) + inner(x))
    try:
        with co.autocast():
            assert co.ops.autocast_body.twice(F32).dtype == HALF
    finally:
        library.close()


# ---- with the transforms ----


def gradient_of_cube(x: np.ndarray) -> np.ndarray:
    """3 x^2, in float64."""
    return 3.0 * x.astype(np.float64) ** 2


def test_grad_inside() -> None:
    """Gradients flow back through the cast, in the dtype of the input."""
    op = cube()
    with co.autocast():
        value, found = co.value_and_grad(lambda x: op(x).sum())(F32)
    assert value.dtype == HALF
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, gradient_of_cube(F32), rtol=2e-3)


def test_formula_sees_the_cast_arguments_and_gradients() -> None:
    """A formula may return its gradient: the cast widens it again."""
    seen = []

    def backward(ctx: Any, g: Any) -> Any:
        seen.append((g.dtype, ctx.saved_arrays[0].dtype))
        return g

    op = define(lambda x: x * 1, "(Array x) -> Array").register_autocast("cpu", HALF)
    op.register_autograd(backward, setup_context=save)
    with co.autocast():
        found = co.grad(lambda x: op(x).sum())(F32)
    assert seen == [(HALF, HALF)]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.ones(3))


def test_grad_outside() -> None:
    """The same holds where the differentiated function opens the block."""
    op = cube()

    def loss(x: Any) -> Any:
        with co.autocast():
            return op(x).sum()

    found = co.grad(loss)(F32)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, gradient_of_cube(F32), rtol=2e-3)


def test_second_derivative() -> None:
    """Second derivatives flow back through the casts too."""
    op = cube()
    with co.autocast():
        found = co.grad(lambda x: co.grad(lambda y: op(y).sum())(x).sum())(F32)
    np.testing.assert_allclose(found, 6.0 * F32, rtol=5e-3)


def test_jvp() -> None:
    """The tangent of a cast is the cast of the tangent."""
    op = cube()
    with co.autocast():
        out, tangent = co.jvp(op, (F32,), (np.ones_like(F32),))
    assert out.dtype == tangent.dtype == HALF
    np.testing.assert_allclose(tangent, gradient_of_cube(F32), rtol=2e-3)


@pytest.mark.parametrize("inside", [True, False])
def test_vmap(inside: bool) -> None:
    """Batches are cast as rows are, whichever is opened first."""
    op = cube()
    x = np.stack([F32, 2 * F32])

    def row(v: Any) -> Any:
        with co.autocast():
            return op(v)

    if inside:
        out = co.vmap(row)(x)
    else:
        with co.autocast():
            out = co.vmap(op)(x)
    half = x.astype(HALF)
    assert out.dtype == HALF
    np.testing.assert_array_equal(out, half * half * half)


def test_grad_of_vmap() -> None:
    """Nested transforms see the casts."""
    op = cube()
    x = np.stack([F32, 2 * F32])
    with co.autocast():
        found = co.vmap(co.grad(lambda row: op(row).sum()))(x)
    np.testing.assert_allclose(found, gradient_of_cube(x), rtol=2e-3)


def test_fake_arrays() -> None:
    """Fake arrays are cast, so that they have the right dtypes."""
    op = cube()
    with co.autocast():
        assert op(co.FakeArray(3, np.float32)).dtype == HALF
        assert co.eval_shape(op, F32).dtype == HALF
    with co.FakeMode(), co.autocast():
        assert op(F32).dtype == HALF


def test_variables() -> None:
    """The imperative form collects gradients of the dtype of the variable."""
    op = cube()
    x = co.variable(F32)
    with co.autocast():
        y = op(x).sum()
    y.backward()
    assert x.grad.dtype == np.float32
    np.testing.assert_allclose(x.grad, gradient_of_cube(F32), rtol=2e-3)


# ---- errors ----


def writer() -> Any:
    """An operator that writes its argument."""

    def clear(x: np.ndarray) -> None:
        x[...] = 0

    return co.custom_op("autocast::clear", clear, mutates_args=("x",))


def viewer() -> Any:
    """An operator that returns a view."""
    schema = "(Array(a) x) -> Array(a)"
    return co.custom_op("autocast::v", lambda x: x[0], mutates_args=(), schema=schema)


def plain() -> Any:
    """An operator that can be cast."""
    schema = "(Array x) -> Array"
    return co.custom_op("autocast::f", lambda x: x * 1, mutates_args=(), schema=schema)


ERRORS = [
    (
        plain,
        (3, HALF),
        (
            "autocast::f: register_autocast takes one kind of array, got 3"
            '\n  do: write register_autocast("cpu", np.float32)'
        ),
    ),
    (
        plain,
        ("cpu", np.int32),
        (
            "autocast::f: register_autocast: <class 'numpy.int32'> is not a floating-point dtype"
            "\n  do: pass one, such as np.float16 or np.float32"
        ),
    ),
    (
        plain,
        ("cpu", "complex64"),
        (
            "autocast::f: register_autocast: 'complex64' is not a floating-point dtype"
            "\n  do: pass one, such as np.float16 or np.float32"
        ),
    ),
    (
        plain,
        ("cpu", "single_precision"),
        (
            "autocast::f: register_autocast: 'single_precision' is not a floating-point dtype"
            "\n  do: pass one, such as np.float16 or np.float32"
        ),
    ),
    (
        plain,
        ("cpu", None),
        (
            "autocast::f: register_autocast: None is not a floating-point dtype"
            "\n  do: pass one, such as np.float16 or np.float32"
        ),
    ),
    (
        writer,
        ("cpu", HALF),
        (
            "autocast::clear: register_autocast: it writes its argument 'x', in place of"
            " which a cast would hand over a copy"
            "\n  autocast::clear(Array(a!) x) -> ()"
            "\n                  ^^^^^^^^^^^"
            "\n  do: register autocast on an operator that returns fresh arrays"
        ),
    ),
    (
        viewer,
        ("cpu", HALF),
        (
            "autocast::v: register_autocast: it returns a view of its argument 'x', in place"
            " of which a cast would hand over a copy"
            "\n  autocast::v(Array(a) x) -> Array(a)"
            "\n              ^^^^^^^^^^"
            "\n  do: register autocast on an operator that returns fresh arrays"
        ),
    ),
]


@pytest.mark.parametrize(("make", "given", "text"), ERRORS)
def test_refused_registration(make: Any, given: Any, text: str) -> None:
    """A dtype or operator that cannot be cast is refused at registration."""
    with pytest.raises(co.RegistrationError) as caught:
        make().register_autocast(*given)
    assert str(caught.value) == text


@pytest.mark.usefixtures("built_in_kinds")
def test_unknown_kind() -> None:
    """A kind of array that nobody has registered is an error, with the near name."""
    with pytest.raises(co.RegistrationError) as caught:
        plain().register_autocast("cup", HALF)
    assert str(caught.value) == (
        "autocast::f: unknown device type 'cup' (did you mean 'cpu'?)"
        "\n  known: 'cpu', 'cuda'"
        "\n  do: use a known one, or register_array_type first"
    )
    with pytest.raises(co.ArgumentError) as also:
        co.autocast("cup")
    assert str(also.value) == (
        "autocast: unknown device type 'cup' (did you mean 'cpu'?)"
        "\n  known: 'cpu', 'cuda'"
        "\n  do: use a known one, or register_array_type first"
    )


def test_mode_for_no_name() -> None:
    """The mode names its kind of array."""
    with pytest.raises(co.ArgumentError) as caught:
        co.autocast(np.float16)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "autocast: device_type=<class 'numpy.float16'> is not a name of a kind of array"
        '\n  do: write autocast("cpu")'
    )


def test_mode_for_a_dtype() -> None:
    """It has none: torch's second parameter is a dtype."""
    with pytest.raises(co.ArgumentError) as caught:
        co.autocast("cpu", np.float16)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "autocast: enabled=<class 'numpy.float16'> is a dtype, which each operator"
        ' registers for itself\n  do: write op.register_autocast("cpu", dtype), and'
        ' autocast("cpu")'
    )
    with pytest.raises(co.ArgumentError, match="enabled=1 is neither True nor False"):
        co.autocast("cpu", enabled=1)  # type: ignore[arg-type]


def test_opened_twice() -> None:
    """A block can be opened once, like any mode."""
    mode = co.autocast()
    with mode:
        pass
    with pytest.raises(
        co.RegistrationError, match=r"autocast\('cpu'\) is opened a sec"
    ):
        mode.__enter__()
