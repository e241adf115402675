"""Fourier transforms: derivatives known by theory, arguments, errors, results in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

_rng = np.random.default_rng(5)
X = _rng.standard_normal((3, 6))
Z = X + 1j * _rng.standard_normal((3, 6))
COMPLEX = ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn")
FROM_REAL = ("rfft", "ihfft", "rfft2", "rfftn")
TO_REAL = ("irfft", "hfft", "irfft2", "irfftn")

WAYS: dict[str, Callable[..., Any]] = {
    "grad": lambda fn, x: co.grad(lambda x: np.sum(np.abs(fn(x))))(x),
    "vmap": lambda fn, x: co.vmap(fn)(x[None]),
    "fake": co.eval_shape,
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)

# ---- derivatives ----


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_transforms_are_symmetric(name: str) -> None:
    """The gradient of the sum of weighted results is the transform of the weights."""
    fn = getattr(np.fft, name)
    _, pullback = co.vjp(fn, Z)
    g = np.conj(Z)[::-1]
    np.testing.assert_allclose(pullback(g)[0], fn(g), atol=1e-14)


@pytest.mark.parametrize("n", [5, 6])
def test_energy_of_a_spectrum_has_the_gradient_of_the_signal(n: int) -> None:
    """Parseval: the energy of the whole spectrum is n times that of the signal."""

    def energy(x: Any) -> Any:
        half = np.abs(np.fft.rfft(x)) ** 2
        last = half[-1] if n % 2 == 0 else 0.0
        return 2 * np.sum(half) - half[0] - last

    x = X[0, :n]
    np.testing.assert_allclose(co.grad(energy)(x), 2 * n * x, rtol=1e-13)
    np.testing.assert_allclose(
        co.hessian(energy)(x), 2 * n * np.eye(n), rtol=1e-13, atol=1e-12
    )


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("n", [1, 4, 5, 6, 9])
def test_inverse_of_real_transform_has_gradient_one(n: int, norm: Any) -> None:
    """A signal that goes to its spectrum and back is itself, cut or padded."""

    def there_and_back(x: Any) -> Any:
        return np.fft.irfft(np.fft.rfft(x, n, norm=norm), n, norm=norm)

    jacobian = co.jacrev(there_and_back)(X[0])
    np.testing.assert_allclose(jacobian, np.eye(n, 6), atol=1e-14)
    jacobian = co.jacfwd(there_and_back)(X[0])
    np.testing.assert_allclose(jacobian, np.eye(n, 6), atol=1e-14)


def test_imaginary_parts_that_irfft_ignores_have_gradient_zero() -> None:
    """The first and the last element of a half spectrum count by their real parts."""
    spectrum = np.fft.rfft(X[0])
    g = co.grad(lambda z: np.sum(np.fft.irfft(z) ** 3))(spectrum)
    assert g.imag[[0, -1]].tolist() == [0.0, 0.0]
    assert np.all(g.imag[1:-1] != 0)
    # Elements beyond n // 2 + 1 are not read.
    cut = co.grad(lambda z: np.sum(np.fft.irfft(z, 3) ** 3))(spectrum)
    assert cut[2:].tolist() == [0.0, 0.0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*COMPLEX, *FROM_REAL[::2], *TO_REAL[::2]])
@pytest.mark.parametrize("norm", ["backward", "ortho"])
def test_gradient_is_that_of_jax(name: str, norm: str) -> None:
    """JAX has the same convention for gradients by complex numbers."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jax.config.update("jax_enable_x64", True)
    x = X if name in FROM_REAL else Z

    def size(module: Any) -> Callable[[Any], Any]:
        return lambda x: module.sum(
            module.abs(getattr(module.fft, name)(x, norm=norm)) ** 3
        )

    expected = np.asarray(jax.jit(jax.grad(size(jax.numpy)))(x))
    np.testing.assert_allclose(co.grad(size(np))(x), expected, rtol=1e-10)


# ---- dtypes ----


@pytest.mark.parametrize("name", [*COMPLEX, *FROM_REAL, *TO_REAL])
@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.float16, np.float32, np.longdouble]
)
def test_dtypes_are_those_of_numpy(name: str, dtype: Any) -> None:
    """Each precision gives what NumPy 2 gives."""
    fn, x = getattr(np.fft, name), np.ones((2, 3), dtype)
    expected = fn(x).dtype
    assert co.eval_shape(fn, x).dtype == expected
    assert co.vmap(fn)(x[None]).dtype == expected


# ---- results in place ----


@pytest.mark.parametrize("name", [*COMPLEX, *FROM_REAL, *TO_REAL])
def test_out_is_written(name: str) -> None:
    """The array of `out` holds the transform, and is what the function returns."""
    fn = getattr(np.fft, name)
    start = X if name in FROM_REAL else Z

    def through_buffer(x: Any) -> Any:
        expected = fn(x)
        buffer = np.zeros_like(expected)
        assert fn(x, out=buffer) is buffer
        return buffer * 2.0

    out, pullback = co.vjp(through_buffer, start)
    np.testing.assert_array_equal(out, 2.0 * fn(start))
    plain = co.vjp(fn, start)[1]
    g = np.ones_like(out)
    np.testing.assert_allclose(pullback(g)[0], 2.0 * plain(g)[0], rtol=1e-14)


def test_out_of_a_wrong_shape_is_refused() -> None:
    """As in NumPy, it is not broadcast."""

    def wrong(x: Any) -> Any:
        np.fft.fft(x, out=np.zeros_like(x, shape=(2, 3, 6), dtype=complex))
        return np.sum(x)

    with pytest.raises(ValueError, match=r"shape \(3, 6\) cannot be broadcast"):
        co.grad(wrong)(X)


# ---- errors ----

WRONG: dict[str, Callable[[Any], Any]] = {
    "no points": lambda x: np.fft.fft(x, 0),
    "norm": lambda x: np.fft.rfft(x, norm="whole"),  # type: ignore[arg-type]  # wrong
    "norm of hfft": lambda x: np.fft.hfft(x, norm="whole"),  # type: ignore[arg-type]  # wrong
    "lengths": lambda x: np.fft.fft2(x, (3, 3, 3)),
    "one to real": lambda x: np.fft.irfft(x[:, :1]),
    "one axis of none": lambda x: np.fft.fft(x[0, 0]),
    "axis": lambda x: np.fft.fft(x, 4, 2),
}


@pytest.mark.parametrize("name", WRONG)
@ways
def test_what_numpy_refuses_is_refused(way: Any, name: str) -> None:
    """In its words, by an exception that a handler of NumPy's catches."""
    with pytest.raises((ValueError, IndexError)) as numpys:
        WRONG[name](X)
    with pytest.raises((ValueError, IndexError)) as ours:
        way(WRONG[name], X)
    assert isinstance(ours.value, ValueError | IndexError)
    if not isinstance(ours.value, IndexError):  # AxisError names the axis
        words = str(numpys.value).replace('",', '", ').replace(",  ", ", ")
        assert words in str(ours.value).replace('",', '", ').replace(",  ", ", ")


@ways
def test_complex_numbers_have_no_real_transform(way: Any) -> None:
    """Their transform is that of np.fft.fft."""
    with pytest.raises(TypeError, match="rfft_n"):
        way(np.fft.rfft, Z)


@ways
def test_one_axis_of_a_function_of_several(way: Any) -> None:
    """Like NumPy, they take sequences of axes and lengths only."""
    with pytest.raises(TypeError):
        np.fft.fftn(X, axes=0)  # type: ignore[arg-type]  # wrong
    with pytest.raises(TypeError):
        way(lambda x: np.fft.fftn(x, axes=0), X)  # type: ignore[arg-type]  # wrong


def test_deprecated_arguments_warn() -> None:
    """As NumPy does, at the line of the user."""
    some: Any = (2, None)
    for call in (
        lambda x: np.fft.fftn(x, (2, 2)),
        lambda x: np.fft.fftn(x, some, (0, 1)),
    ):
        with pytest.warns(DeprecationWarning, match="eprecated in NumPy 2.0"):
            expected = call(X)
        with pytest.warns(DeprecationWarning, match="eprecated in NumPy 2.0") as seen:
            out = co.vmap(call)(X[None])
        np.testing.assert_array_equal(out[0], expected)
        assert seen[0].filename == __file__


def test_frequencies_take_a_traced_spacing() -> None:
    """They are plain code of NumPy, which runs on traced values."""
    for fn in (np.fft.fftfreq, np.fft.rfftfreq):
        jacobian = co.jacrev(lambda d, fn=fn: fn(5, d))(0.1)
        np.testing.assert_allclose(jacobian, -fn(5, 0.1) / 0.1)
