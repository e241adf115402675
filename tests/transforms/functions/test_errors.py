"""Messages of functions with derivatives of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([1.0, 2.0])


def said(error: type[Exception], run: Callable[[], Any]) -> str:
    """Return the message of an error, with short places."""
    with pytest.raises(error) as caught:
        run()
    lines = str(caught.value).splitlines()
    return "\n".join(
        line.partition(" at ")[0] + " at PLACE" if " at /" in line else line
        for line in lines
    )


def with_rules(fwd: Any, bwd: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return x * y

    custom = co.custom_vjp(f)
    custom.defvjp(fwd, bwd or np.sin)
    return lambda: co.grad(lambda x: np.sum(custom(x, 2.0)))(X)


def with_rule(jvp: Any) -> Any:
    def f(x: Any) -> Any:
        return x * 2.0

    custom = co.custom_jvp(f)
    custom.defjvp(jvp)
    return lambda: co.jvp(custom, (X,), (X,))


def fwd(x: Any, y: Any) -> Any:
    return x * y, None


NESTED = (
    "\n  rule at PLACE\n"
    "  do: return a tuple with a gradient for each argument, None for zero"
)
LIKE = "\n  do: pass an array of the shape and dtype of the primal"
WRONG: dict[str, Any] = {
    "custom_vjp::f: fwd returned ndarray of shape (2,)\n"
    "  rule at PLACE\n"
    "  do: return (output, residuals)": with_rules(lambda x, y: x, None),
    "custom_vjp::f: bwd returned ndarray of shape (2,) for 2 arguments" + NESTED: (
        with_rules(fwd, lambda r, g: g)
    ),
    "custom_vjp::f: bwd returned 1 gradients for 2 arguments" + NESTED: (
        with_rules(fwd, lambda r, g: (g,))
    ),
    "custom_vjp::f: gradient 0 of bwd is f64[1], must be f64[2] like the primal"
    + LIKE: (with_rules(fwd, lambda r, g: (g[:1], None))),
    "custom_vjp::f: bwd returned gradients that are not nested as the arguments"
    + NESTED: with_rules(fwd, lambda r, g: ({"a": g}, None)),
    "custom_jvp::f: the rule returned ndarray of shape (2,)\n"
    "  rule at PLACE\n"
    "  do: return (output, tangent)": with_rule(lambda p, t: t[0]),
    "custom_jvp::f: tangent of output 0 is f64[1], must be f64[2] like the primal"
    + LIKE: with_rule(lambda p, t: (p[0], t[0][:1])),
    "custom_jvp::f: the rule returned a tangent that is not nested as the output\n"
    "  rule at PLACE\n"
    "  do: return a tangent for each output": with_rule(
        lambda p, t: (p[0], [t[0], t[0]])
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_rules(text: str) -> None:
    """What a rule returns is compared with the arguments and results."""
    assert said(co.GradientError, WRONG[text]) == text


def test_missing_rules() -> None:
    """A function without rules runs, and has no derivative."""
    custom = co.custom_vjp(np.sin)
    assert custom(0.0) == 0.0
    np.testing.assert_array_equal(co.vmap(custom)(X), np.sin(X))
    with pytest.raises(co.MissingRuleError) as caught:
        co.grad(custom)(np.array(1.0))
    assert caught.value.what == "custom_vjp::sin has no rule for derivatives"
    assert caught.value.do == "register one: sin.defvjp(fwd, bwd)"
    with pytest.raises(co.MissingRuleError, match="defjvp"):
        co.grad(co.custom_jvp(np.sin))(np.array(1.0))


def test_values_from_outside() -> None:
    """A value of the transform that is not an argument would have no derivative."""

    def through(make: Any) -> Any:
        return co.grad(lambda w: np.sum(make(w)(w * 2.0)))(X)

    def by_vjp(w: Any) -> Any:
        f = co.custom_vjp(lambda x: x * w)
        f.defvjp(lambda x: (x * w, None), lambda r, g: (g,))
        return f

    def by_jvp(w: Any) -> Any:
        f = co.custom_jvp(lambda x: x * w)
        f.defjvp(lambda p, t: (p[0] * 1.0, t[0] * w))
        return f

    def by_bwd(w: Any) -> Any:
        f = co.custom_vjp(lambda x: x * 1.0)
        f.defvjp(lambda x: (x * 1.0, None), lambda r, g: (g * w,))
        return f

    # The function itself is searched for the name.
    for make, name in ((by_vjp, "'w'"), (by_jvp, "'w'"), (by_bwd, "")):
        with pytest.raises(co.GradientError) as caught:
            through(make)
        used = f"{name}, a value" if name else "a value"
        assert f" uses {used} of grad(<lambda>) that is not among its arguments" in str(
            caught.value
        )
        assert caught.value.do == f"pass {name or 'the value'} as an argument"


def of_inner_value(make: Any) -> Any:
    """The argument belongs to the outer gradient, the value from outside to the inner."""

    def outer(x: Any) -> Any:
        inner = co.grad(lambda w: np.sum(make(lambda v: v * w * w)(x)))
        return np.sum(inner(X))  # sum of 2 x w

    return co.grad(outer)(X)


def test_inner_values_from_outside() -> None:
    """A value of an inner transform is an error too; a checkpoint takes it."""

    def by_vjp(f: Any) -> Any:
        custom = co.custom_vjp(f)
        custom.defvjp(lambda v: (f(v), None), lambda r, g: (g,))
        return custom

    def by_jvp(f: Any) -> Any:
        custom = co.custom_jvp(f)
        custom.defjvp(lambda p, t: (f(*p), t[0]))
        return custom

    for make in (by_vjp, by_jvp):
        with pytest.raises(co.GradientError, match="that is not among its arguments"):
            of_inner_value(make)
        with pytest.raises(co.GradientError, match="that is not among its arguments"):
            co.vmap(lambda x, m=make: co.grad(lambda w: m(lambda v: v * w)(x))(1.0))(X)
    np.testing.assert_allclose(of_inner_value(co.checkpoint), 2 * X)


def test_checkpoint_inside_forward_mode() -> None:
    """A checkpoint takes values from outside in reverse mode only."""
    with pytest.raises(
        co.GradientError, match=r"a value of jvp\(<lambda>\) that is not among"
    ):
        co.jvp(lambda w: co.checkpoint(lambda x: x * w)(w), (X,), (X,))


def test_outer_values_from_outside() -> None:
    """A value of a transform outside the one that uses the rules is followed."""

    def outer(w: Any) -> Any:
        f = co.custom_vjp(lambda x: x * w)
        f.defvjp(lambda x: (x * w, None), lambda r, g: (g * w,))
        return np.sum(co.grad(lambda x: np.sum(f(x) ** 2))(X))  # sum of 2 x w^2

    np.testing.assert_allclose(co.grad(outer)(X), 4 * X * X)


def test_written_arguments() -> None:
    """Arguments cannot be written, under any transform and in any rule."""

    def writes(x: Any) -> Any:
        x *= 2.0
        return x

    for make in (co.custom_vjp, co.custom_jvp):
        f: Any = make(writes)
        with pytest.raises(co.ArgumentError) as caught:
            co.vmap(f)(X)
        assert str(caught.value).endswith("do: write a copy: x = x.copy()")
    kept = co.checkpoint(writes)
    with pytest.raises(co.ArgumentError, match="writes its argument in place"):
        co.grad(lambda x: np.sum(kept(x)))(X)
    np.testing.assert_array_equal(X, [1.0, 2.0])


def test_output_that_depends_on_tangents() -> None:
    """A rule whose output is made of tangents is refused under reverse mode."""
    f = co.custom_jvp(lambda x: x)
    f.defjvp(lambda p, t: (t[0], t[0]))
    with pytest.raises(co.GradientError, match="uses a value of custom_jvp::<lambda>"):
        co.grad(lambda x: np.sum(f(x)))(X)


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (lambda: co.custom_vjp(3), "custom_vjp: 3 is not a function"),  # type: ignore[arg-type]  # on purpose
        (lambda: co.checkpoint(None), "checkpoint: None is not a function"),  # type: ignore[arg-type]  # on purpose
        (lambda: co.custom_jvp(np.sin).defjvp(1), "defjvp: 1 is not a function"),  # type: ignore[type-var]  # on purpose
        (lambda: co.custom_vjp(np.sin).defvjp(1, 2), "defvjp: 1 is not a function"),  # type: ignore[arg-type]  # on purpose
    ],
    ids=["custom_vjp", "checkpoint", "defjvp", "defvjp"],
)
def test_not_functions(run: Any, text: str) -> None:
    """Rules and functions are functions."""
    with pytest.raises(co.ArgumentError) as caught:
        run()
    assert caught.value.what == text


def test_wrong_argnums() -> None:
    """nondiff_argnums is an int or ints, and defjvps does not take it."""
    with pytest.raises(
        co.RegistrationError, match="nondiff_argnums='x' must be an int"
    ):
        co.custom_vjp(np.sin, nondiff_argnums="x")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(co.RegistrationError, match="defjvps does not take nondiff"):
        co.custom_jvp(np.add, (0,)).defjvps(None)
