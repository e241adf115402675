"""scan and map: values, derivatives, batches, rows in place, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

RNG = np.random.default_rng(3)
W = RNG.normal(size=(3, 3)) / 2
XS = RNG.normal(size=(6, 3))
H = RNG.normal(size=3)


NO_AXIS = (
    "  do: pass arrays with one row for each step, and take what is the same for all"
    " steps from the closure of the function"
)


def step(h: Any, x: Any) -> Any:
    h = np.tanh(W @ h + x)
    return h, {"y": h * x, "n": np.sum(h)}


def plain(h: Any, xs: Any, reverse: bool = False) -> Any:
    """The loop, by hand."""
    ys: list[Any] = [None] * len(xs)
    for i in reversed(range(len(xs))) if reverse else range(len(xs)):
        h, ys[i] = step(h, xs[i])
    return h, {k: np.stack([y[k] for y in ys]) for k in ("y", "n")}


def loss(out: Any) -> Any:
    h, ys = out
    return np.sum(h**2) + np.sum(ys["y"]) + np.sum(ys["n"] ** 3)


def slope(of: Any, x: Any) -> Any:
    """The gradient of a function, by complex steps."""
    found = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[i] += 1e-30j
        found[i] = of(moved).imag / 1e-30
    return found


@pytest.mark.parametrize("reverse", [False, True])
def test_values_and_gradients(reverse: bool) -> None:
    """Those of the loop, with respect to the carry, the rows and a closure."""
    found, want = co.scan(step, H, XS, reverse=reverse), plain(H, XS, reverse)
    np.testing.assert_array_equal(found[0], want[0])
    np.testing.assert_array_equal(found[1]["y"], want[1]["y"])
    np.testing.assert_array_equal(found[1]["n"], want[1]["n"])
    for checkpoint in (False, True):

        def of(h: Any, xs: Any, checkpoint: bool = checkpoint) -> Any:
            return loss(co.scan(step, h, xs, reverse=reverse, checkpoint=checkpoint))

        grads = co.grad(of, argnums=(0, 1))(H, XS)
        np.testing.assert_allclose(
            grads[0], slope(lambda h: loss(plain(h, XS, reverse)), H)
        )
        np.testing.assert_allclose(
            grads[1], slope(lambda x: loss(plain(H, x, reverse)), XS)
        )
        pushed = co.jvp(of, (H, XS), (H, XS))[1]
        np.testing.assert_allclose(pushed, np.sum(grads[0] * H) + np.sum(grads[1] * XS))


def test_second_order() -> None:
    """The Hessian is the derivative of the gradient."""

    def of(h: Any) -> Any:
        return loss(co.scan(step, h, XS))

    def gradient(h: Any) -> Any:
        return slope(lambda h: loss(plain(h, XS)), h)

    found = co.hessian(of)(H)
    e = 1e-5
    rows = [(gradient(H + e * d) - gradient(H - e * d)) / (2 * e) for d in np.eye(3)]
    np.testing.assert_allclose(found, rows, rtol=1e-6, atol=1e-8)


def test_batches() -> None:
    """Batches of carries, of rows, and of both; gradients of each sample."""
    hs, xss = RNG.normal(size=(4, 3)), RNG.normal(size=(6, 4, 3))

    def of(h: Any, xs: Any) -> Any:
        return loss(co.scan(step, h, xs))

    for in_dims in ((0, 1), (0, None), (None, 1)):
        rows = [
            (
                hs[i] if in_dims[0] == 0 else H,
                xss[:, i] if in_dims[1] == 1 else XS,
            )
            for i in range(4)
        ]
        given = (hs if in_dims[0] == 0 else H, xss if in_dims[1] == 1 else XS)
        found = co.vmap(of, in_dims=in_dims)(*given)
        np.testing.assert_allclose(found, [loss(plain(*row)) for row in rows])
        grads = co.vmap(co.grad(of), in_dims=in_dims)(*given)
        want = [slope(lambda h, xs=xs: loss(plain(h, xs)), h) for h, xs in rows]
        np.testing.assert_allclose(grads, want)


def test_without_arrays() -> None:
    """A length in place of rows; results that are None; no steps at all."""
    assert co.scan(lambda c, x: (c + 1, None), 0, None, length=4) == (4, None)
    carry, ys = co.scan(
        lambda c, x: (c, c + x["a"]), 1.5, {"a": np.arange(3), "b": None}
    )
    assert carry == 1.5
    np.testing.assert_array_equal(ys, [1.5, 2.5, 3.5])
    h, ys = co.scan(step, H, XS[:0])
    np.testing.assert_array_equal(h, H)
    assert {k: v.shape for k, v in ys.items()} == {"y": (0, 3), "n": (0,)}
    assert ys["y"].dtype == np.float64
    grads = co.grad(lambda h, xs: loss(co.scan(step, h, xs)), argnums=(0, 1))(H, XS[:0])
    np.testing.assert_array_equal(grads[0], 2 * H)
    assert grads[1].shape == (0, 3)
    assert co.vmap(lambda h: co.scan(step, h, XS[:0])[1]["n"])(XS).shape == (6, 0)


def test_no_steps_draw_nothing() -> None:
    """The shapes of results are found without changing a generator."""
    rng = np.random.default_rng(0)
    co.scan(lambda c, x: (c, x + rng.normal()), 0, np.zeros(0))
    assert rng.normal() == np.random.default_rng(0).normal()


def test_draws_come_in_order() -> None:
    """A body that draws gets the numbers of the loop."""
    a, b = np.random.default_rng(5), np.random.default_rng(5)
    found = co.scan(lambda c, x: (c, x * a.normal()), 0, np.ones(4))[1]
    np.testing.assert_array_equal(found, [b.normal() for _ in range(4)])


def test_results_of_one_array_in_place() -> None:
    """Each step's result is what it was at its step, though the body writes on."""

    def body(c: Any, x: Any) -> Any:
        c += x
        return c, c

    want = np.cumsum(XS, 0)
    init = np.zeros(3)
    np.testing.assert_allclose(co.scan(body, init, XS)[1], want)
    np.testing.assert_array_equal(init, np.zeros(3))

    def of(xs: Any) -> Any:
        return co.scan(body, 0 * xs[0], xs)[1]

    traced = co.jvp(of, (XS,), (XS,))
    np.testing.assert_allclose(traced[0], want)
    np.testing.assert_allclose(traced[1], want)
    rows = co.vmap(of)(XS[None])
    np.testing.assert_allclose(rows[0], want)


def test_results_become_traced_later() -> None:
    """The first result of a carry that is a constant does not depend on the input."""
    for reverse in (False, True):

        def of(x: Any, reverse: bool = reverse) -> Any:
            return co.scan(
                lambda c, _: (c * x + 1, c), np.ones(3), None, length=3, reverse=reverse
            )[1]

        value, tangent = co.jvp(of, (H,), (np.ones(3),))
        want = [np.ones(3), H + 1, H * H + H + 1]
        slopes = [0 * H, 0 * H + 1, 2 * H + 1]
        order = slice(None, None, -1 if reverse else 1)
        np.testing.assert_allclose(value, want[order])
        np.testing.assert_allclose(tangent, slopes[order])


def test_map() -> None:
    """One call for each row."""
    xs = (XS, np.arange(6))
    found = co.map(lambda x: x[0].sum() * x[1], xs)
    np.testing.assert_allclose(found, XS.sum(1) * np.arange(6))
    assert co.map(np.sin, np.zeros((0, 2))).shape == (0, 2)
    gradient = co.grad(lambda x: co.map(lambda r: np.sum(r**2), x).sum())(XS)
    np.testing.assert_allclose(gradient, 2 * XS)


def test_fake_arrays() -> None:
    """The body runs once, and results have the axis of the steps."""
    calls = []

    def counted(h: Any, x: Any) -> Any:
        calls.append(1)
        return step(h, x)

    h, ys = co.eval_shape(lambda h, xs: co.scan(counted, h, xs), H, XS)
    assert len(calls) == 1
    assert (h.shape, ys["y"].shape, ys["n"].shape) == ((3,), (6, 3), (6,))
    grads = co.eval_shape(
        co.grad(lambda h, xs: loss(co.scan(step, h, xs)), argnums=(0, 1)), H, XS
    )
    assert [g.shape for g in grads] == [(3,), (6, 3)]
    out = co.eval_shape(co.vmap(lambda xs: co.scan(step, H, xs)), np.zeros((5, 0, 3)))
    assert (out[0].shape, out[1]["y"].shape) == ((5, 3), (5, 0, 3))


def test_rows_are_read_only() -> None:
    """A row of a plain array cannot be written: it would change the caller's array."""

    def body(c: Any, x: Any) -> Any:
        x *= 2
        return c, x

    with pytest.raises(ValueError, match="read-only") as caught:
        co.scan(body, 0, XS)
    (note,) = caught.value.__notes__
    assert note == (
        "inside scan of body 'x' is read-only, as a write would change it outside\n"
        "  do: write x = x * 2 in place of x *= 2; or put it in the carry"
    )


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        (
            lambda: co.scan(step, H, (XS, XS[:4])),
            (
                "scan: xs[1] is f64[4, 3], with 4 rows, and xs[0] says 6",
                "  do: pass arrays with one row for each step",
            ),
        ),
        (
            lambda: co.scan(step, H, XS, length=5),
            (
                "scan: xs is f64[6, 3], with 6 rows, and length says 5",
                "  do: pass arrays with one row for each step",
            ),
        ),
        (
            lambda: co.scan(step, H, None),
            (
                "scan: xs has no arrays, so it does not say how many steps there are",
                "  do: pass length=n",
            ),
        ),
        (
            lambda: co.scan(step, H, None, length=-1),
            (
                "scan: length is int -1, must be an int that is not negative",
                "  do: pass the number of steps, or leave length out",
            ),
        ),
        (
            lambda: co.map(np.sin, {"a": 3.0}),
            (
                "map: xs['a'] is the float 3.0, which has no axis to go along",
                NO_AXIS,
            ),
        ),
    ],
)
def test_rows_that_do_not_fit(call: Any, lines: Any) -> None:
    """The error names the leaf."""
    with pytest.raises(co.CustomOpError) as caught:
        call()
    assert tuple(str(caught.value).splitlines()) == lines


def test_results_that_do_not_fit() -> None:
    """Carries, pairs, and results that change from step to step."""
    with pytest.raises(co.ArgumentError) as caught:
        co.scan(lambda c, x: c, H, XS)
    assert str(caught.value).splitlines()[0] == (
        "scan: f returned ndarray of shape (3,), must be a pair"
    )
    with pytest.raises(co.ArgumentError, match=r"carry goes in as f64\[3\], and comes"):
        co.scan(lambda c, x: (c[:1], None), H, XS)
    with pytest.raises(co.ArgumentError) as caught:
        co.scan(lambda n, x: (n + 1, [x[:n]]), 0, XS[:3])
    assert str(caught.value).splitlines()[0] == (
        "scan: y[0] is f64[2] in a later step, and f64[0] in the first"
    )
    with pytest.raises(
        co.ArgumentError, match=r"y is \* in a later step, and \(\*, \*\)"
    ):
        co.scan(lambda n, x: (n + 1, n or (n, n)), 0, XS[:3])
    with pytest.raises(co.ArgumentError, match="reverse=3 is neither True nor False"):
        co.scan(step, H, XS, reverse=3)  # type: ignore[arg-type]  # the mistake
