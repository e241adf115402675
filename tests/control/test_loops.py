"""while_loop and fori_loop: values, derivatives, batches, and the carry that is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([0.3, 1.7, 12.0])


def halved(x: Any) -> Any:
    return co.while_loop(
        lambda c: np.sum(c[0]) > 1, lambda c: (c[0] / 2, c[1] + 1), (x, 0)
    )


def plain(x: Any) -> Any:
    count = 0
    while np.sum(x) > 1:
        x, count = x / 2, count + 1
    return x, count


def newton(a: Any) -> Any:
    """The square root of a, by steps until it stays."""

    def step(c: Any) -> Any:
        x, _ = c
        return (x + a / x) / 2, x

    return co.while_loop(lambda c: np.abs(c[0] - c[1]) > 1e-12, step, (a, 0 * a))[0]


def test_values() -> None:
    """The carry of the Python loop; numbers stay numbers."""
    found, count = halved(X)
    want = plain(X)
    np.testing.assert_array_equal(found, want[0])
    assert count == want[1]
    assert type(count) is int
    assert halved(0 * X)[1] == 0


def test_derivatives() -> None:
    """Through as many steps as there were, to second order."""
    a = np.array(2.0)
    np.testing.assert_allclose(newton(a), np.sqrt(2))
    np.testing.assert_allclose(co.grad(newton)(a), 0.5 / np.sqrt(2))
    np.testing.assert_allclose(co.jvp(newton, (a,), (a,))[1], 1 / np.sqrt(2))
    np.testing.assert_allclose(co.grad(co.grad(newton))(a), -0.25 * 2**-1.5)
    np.testing.assert_allclose(co.hessian(newton)(a), -0.25 * 2**-1.5)


def test_batches() -> None:
    """Rows that are done keep their carry, and their gradients."""
    x = np.array([0.5, 9.0, 2.0, 100.0])
    value, count = co.vmap(halved)(x)
    np.testing.assert_array_equal(value, [plain(v)[0] for v in x])
    np.testing.assert_array_equal(count, [plain(v)[1] for v in x])
    np.testing.assert_allclose(co.vmap(newton)(x), np.sqrt(x))
    slopes = 0.5 / np.sqrt(x)
    np.testing.assert_allclose(co.vmap(co.grad(newton))(x), slopes)
    total = co.grad(lambda x: np.sum(co.vmap(newton)(x)))
    np.testing.assert_allclose(total(x), slopes)
    jacobian = co.jacrev(co.vmap(newton))(x)
    np.testing.assert_allclose(jacobian, np.diag(slopes), atol=1e-15)
    assert halved(np.zeros((0,)))[1] == 0
    assert co.vmap(halved)(np.zeros((0, 2)))[0].shape == (0, 2)


def test_rows_that_are_done_are_safe() -> None:
    """A finished row is not computed with its own values, which the body may not take."""

    def one(x: Any) -> Any:
        return co.while_loop(lambda x: x > 0.1, lambda x: np.log(1 + 1 / x) / 9, x)

    x = np.array([0.0, 1.0, -1.0])
    with np.errstate(all="raise"):
        value, slope = co.vmap(co.value_and_grad(one))(x)
    np.testing.assert_allclose(value, [0, np.log(2) / 9, -1])
    np.testing.assert_allclose(slope, [1, (1 / 2 - 1) / 9, 1])


def test_fori_loop() -> None:
    """The Python loop over a range, with limits of any kind of int."""

    def power(n: Any) -> Any:
        return lambda x: co.fori_loop(0, n, lambda i, c: c * x + i, np.ones_like(x))

    def want(n: int, x: Any) -> Any:
        c = np.ones_like(x)
        for i in range(n):
            c = c * x + i
        return c

    for n in (0, 1, 5, np.int8(3), np.array(4), -2):
        np.testing.assert_array_equal(power(n)(X), want(int(n), X))
    h = 1e-20
    slope = want(5, X + 1j * h).imag / h
    np.testing.assert_allclose(co.grad(lambda x: power(5)(x).sum())(X), slope)
    counts = np.array([3, 0, 5])
    rows = co.vmap(lambda n, x: power(n)(x))(counts, X)
    np.testing.assert_allclose(
        rows, [want(n, x) for n, x in zip(counts, X, strict=True)]
    )
    grads = co.vmap(co.grad(lambda x, n: power(n)(x)))(X, counts)
    pairs = zip(counts, X, strict=True)
    slopes = [want(int(n), x + 1j * h).imag / h for n, x in pairs]
    np.testing.assert_allclose(grads, slopes)
    assert co.fori_loop(2, 5, lambda i, c: (*c[1:], i), (7, 8)) == (3, 4)


def test_numbers_take_the_dtype_of_the_first_step() -> None:
    """A Python number in the first carry is weak, as in arithmetic."""
    x = np.ones(3, np.float32)
    found = co.fori_loop(0, 2, lambda i, c: c + x.sum(), 0)
    assert found.dtype == np.float32
    half = co.while_loop(lambda c: c < 1, lambda c: c + 0.5, 0)
    assert half == 1.0


def test_the_first_carry_stays() -> None:
    """A body that writes in place does not write the arrays of the caller."""
    x, y = np.zeros(2), np.zeros((2, 2))[:1]

    def body(i: int, c: Any) -> Any:
        a, b = c
        a += 1
        b[0] *= 2
        return a, b

    found = co.fori_loop(0, 3, body, (x, y))
    np.testing.assert_array_equal(found[0], [3, 3])
    np.testing.assert_array_equal(x, [0, 0])
    gradient = co.grad(lambda y: co.fori_loop(0, 3, body, (x, y))[1].sum())(y)
    np.testing.assert_array_equal(gradient, [[8, 8]])


def test_fake_arrays() -> None:
    """The body runs once."""
    calls = []

    def body(i: Any, c: Any) -> Any:
        calls.append(i)
        return c @ c

    found = co.eval_shape(lambda x: co.fori_loop(0, 10, body, x), np.zeros((3, 3)))
    assert found.shape == (3, 3)
    assert len(calls) == 1
    value, count = co.eval_shape(halved, X)
    assert (value.shape, count.shape, count.dtype) == ((3,), (), np.int64)
    assert co.eval_shape(co.grad(lambda x: halved(x)[0].sum()), X).shape == (3,)
    assert co.eval_shape(co.vmap(halved), X)[0].shape == (3,)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (
            lambda c: {**c, "h": c["h"].astype(np.float32)},
            "while_loop: carry['h'] goes in as f64[3], and comes out as f32[3]",
        ),
        (
            lambda c: {**c, "h": c["h"][:2]},
            "while_loop: carry['h'] goes in as f64[3], and comes out as f64[2]",
        ),
        (
            lambda c: {**c, "n": "one"},
            "while_loop: carry['n'] goes in as the int 0, and comes out as str 'one'",
        ),
        (
            lambda c: (c["h"], c["n"]),
            "while_loop: the carry goes in as {'h': *, 'n': *}, and comes out as (*, *)",
        ),
    ],
)
def test_a_carry_that_changes(body: Any, what: str) -> None:
    """The error names the leaf, what went in and what came out, and the body."""
    with pytest.raises(co.ArgumentError) as caught:
        co.while_loop(lambda c: True, body, {"h": X, "n": 0})
    lines = str(caught.value).splitlines()
    assert lines[0] == what
    assert lines[1].startswith("  the body is at ")
    assert lines[2] == (
        "  do: return a carry of the structure, shapes and dtypes of the one that came in"
    )


def test_a_carry_that_changes_later() -> None:
    """It is noticed at the end, or when a later step fails."""
    with pytest.raises(co.ArgumentError, match=r"f64\[3\], and comes out as f64\[2\]"):
        co.fori_loop(0, 3, lambda i, c: c[:2] if i == 2 else c, X)
    with pytest.raises(co.ArgumentError, match=r"f64\[3\], and comes out as f64\[2\]"):
        co.fori_loop(0, 3, lambda i, c: c[:2] if i == 1 else c + X, X)
    with pytest.raises(ValueError, match="of the user"):
        co.fori_loop(0, 3, lambda i, c: int("of the user") if i else c, X)


def test_what_is_not_a_condition_or_a_limit() -> None:
    """Errors say what it is."""
    with pytest.raises(co.ShapeError, match=r"what cond_fn returns is bool\[3\]"):
        co.while_loop(lambda c: c > 1, lambda c: c, X)
    with pytest.raises(
        co.ArgumentError, match=r"fori_loop: upper is float 2\.5, must be"
    ):
        co.fori_loop(0, 2.5, lambda i, c: c, X)
    with pytest.raises(co.ArgumentError, match=r"lower is f64\[3\], must be an int"):
        co.vmap(lambda n: co.fori_loop(n, 9, lambda i, c: c, 0))(np.ones((2, 3)))
    with pytest.raises(co.ArgumentError, match="fori_loop: None is not a function"):
        co.fori_loop(0, 1, None, X)  # type: ignore[arg-type]  # the mistake


class Hidden(co.Tracer):
    is_concrete = False


class Hiding(co.Interpreter):
    """A transform whose values Python must not branch on."""

    kind = co.RuleKind("hiding")
    tracer_class = Hidden

    def process(self, op: Any, args: Any) -> Any:
        return self.wrap(op.invoke(self.unwrap(args)))


def test_a_condition_that_a_transform_hides() -> None:
    """A loop cannot go on without it, and does not stop either; a branch selects."""
    with Hiding() as hiding:
        x = hiding.wrap(X)
        with pytest.raises(co.DataDependentError, match=r"bool\(\) of Hidden"):
            co.while_loop(lambda c: np.sum(c) > 1, lambda c: c / 2, x)
        found = hiding.unwrap([co.cond(np.sum(x) > 1, np.sin, np.cos, x)])[0]
    np.testing.assert_array_equal(found, np.sin(X))


def test_compiled_loops_without_steps() -> None:
    """The check of the fake kernel runs the body, which calls kernels, on fake arrays."""

    def f(x: Any) -> Any:
        half = co.while_loop(lambda c: c.sum() > 100.0, lambda c: c[[1, 0]] * 0.5, x)
        return np.sum(half * np.arange(1.0, 3.0))

    none, one = np.array([1.0, 2.0]), np.array([100.0, 2.0])  # by their steps
    value = co.compile(f)
    assert [value(none), value(one)] == [5.0, 101.0]
    for slopes in (co.grad(co.compile(f)), co.compile(co.grad(f))):
        assert slopes(none).tolist() == [1.0, 2.0]
        assert slopes(one).tolist() == [1.0, 0.5]
