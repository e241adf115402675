"""scipy.fft and scipy.signal: errors, corners, and what SciPy's own functions give way to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

theirs: Any = pytest.importorskip("scipy.fft", reason="SciPy is not installed")

pytestmark = pytest.mark.exhaustive
from customop.scipy import fft, signal  # noqa: E402  # after the test for SciPy

X = np.arange(6.0).reshape(2, 3) ** 1.5


def _slope(fn: Any) -> Any:
    return co.grad(lambda x: np.sum(np.abs(fn(x))))(X)


def test_options_of_cosine_transforms_are_checked() -> None:
    """Types, norms, lengths and axes that SciPy does not have."""
    with pytest.raises(co.ArgumentError, match="type=5 does not exist"):
        _slope(lambda x: fft.dct(x, 5))
    with pytest.raises(co.ArgumentError, match="norm='none' is not known"):
        _slope(lambda x: fft.dst(x, norm="none"))
    with pytest.raises(co.ShapeError, match="of type 1 needs at least 2"):
        _slope(lambda x: fft.dct(x, 1, 1))
    with pytest.raises(co.ShapeError, match=r"s=\(2,\) and axes=\(0, 1\) do not fit"):
        _slope(lambda x: fft.dctn(x, s=(2,), axes=(0, 1)))
    with pytest.raises(co.ShapeError, match="do not fit"):
        _slope(lambda x: fft.idstn(x, axes=(0, 0)))


@pytest.mark.parametrize("name", ["dct", "idct", "dst", "idst"])
def test_complex_numbers_are_two_real_ones(name: str) -> None:
    """`orthogonalize` holds for complex numbers too; SciPy 1.17 ignores it there."""
    z, own = X + 1j * X[::-1], getattr(fft, name)
    for norm in (None, "ortho"):
        for weighted in (True, False):
            options = {"norm": norm, "orthogonalize": weighted}
            want = own(z.real, **options) + 1j * own(z.imag, **options)
            np.testing.assert_allclose(own(z, **options), want, rtol=1e-14)
            found, _ = co.jvp(lambda z, o=options: own(z, **o), (z,), (z,))
            np.testing.assert_array_equal(found, own(z, **options))


def test_arguments_of_convolutions_are_checked() -> None:
    """Modes, methods and shapes that SciPy refuses."""
    with pytest.raises(co.ArgumentError, match="mode='half' does not exist"):
        _slope(lambda x: signal.convolve(x, x, "half"))
    with pytest.raises(co.ArgumentError, match="method='slow' does not exist"):
        _slope(lambda x: signal.correlate(x, x, method="slow"))
    with pytest.raises(co.ShapeError, match="arrays of 2 and 1 axes"):
        _slope(lambda x: signal.convolve(x, x[0]))
    with pytest.raises(co.ShapeError, match="neither of the shapes"):
        _slope(lambda x: signal.fftconvolve(x, x.T, "valid"))
    with pytest.raises(co.ShapeError, match="have no elements"):
        _slope(lambda x: signal.convolve(x, x[:, :0]))


def test_method_is_that_of_scipy() -> None:
    """Long arrays are convolved by Fourier transforms, short ones and integers are not."""
    long, short = np.ones((40, 40)), np.ones((2, 2))
    for a, method in ((long, "fft"), (short, "direct"), (long.astype(int), "direct")):
        graph = co.make_fx(lambda a: signal.convolve(a, a))(a)
        (node,) = [n for n in graph.graph.nodes if "convolve" in str(n.target)]
        assert method in map(str, node.args)


def test_plain_code_of_scipy_follows() -> None:
    """SciPy's own transforms give way to these in code that is followed."""
    own = lambda x: np.sum(theirs.dct(x) ** 2)
    want = co.grad(lambda x: np.sum(fft.dct(x) ** 2))(X)
    np.testing.assert_array_equal(co.grad(co.traceable(own))(X), want)


@pytest.mark.parametrize("method", ["direct", "fft"])
def test_the_operator_of_convolutions_without_elements(method: str) -> None:
    """The kernel and the fake kernel refuse them alike, and a result may have no axes."""
    op: Any = co.ops.scipy.convolve.default
    empty, one = np.zeros(0), np.array([0.5])
    for call in (
        op,
        lambda *args: co.eval_shape(lambda a, v: op(a, v, *args[2:]), *args[:2]),
    ):
        with pytest.raises(co.ShapeError, match="there are no elements"):
            call(empty, one, 1, "valid", method)
        assert call(np.array(2.0), np.array(3.0), 0, "valid", method).shape == ()
