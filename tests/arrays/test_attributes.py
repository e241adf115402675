"""Attributes that NumPy's arrays have: each is there, or the error says what to use."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays.nested import describe

X = np.array([[1.25, -2.5], [4.75, 0.5]])

RUNS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "grad": lambda f: co.grad(lambda x: (f(x), np.sum(x))[1])(X),
    "jvp": lambda f: co.jvp(lambda x: (f(x), x)[1], (X,), (X,)),
    "vmap": lambda f: co.vmap(lambda x: (f(x), x)[1])(np.stack([X, X])),
    "fake": lambda f: f(co.fake_like(X)),
}

OPS = {f"{name[2:]}" for name in dir(np.ndarray) if f"__i{name[2:]}" in dir(np.ndarray)}
# Python and NumPy look for these themselves, and do without them.
HOOKS = {
    "__array_finalize__",
    "__array_wrap__",
    "__buffer__",
    "__class_getitem__",
    "__copy__",
    "__deepcopy__",
    "__delitem__",
    "__getformat__",
    "__getnewargs__",
    "__setstate__",
    *(name for name in dir(np.ndarray) if name.startswith("__i") and name[3:] in OPS),
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("kind", [np.ndarray, np.float64, np.complex128])
def test_every_attribute_of_numpy(run: str, kind: type) -> None:
    """An attribute of arrays and scalars is there, or its error names another way."""
    missing: list[str] = []

    def look(x: Any) -> None:
        for name in sorted({*dir(kind)} - HOOKS):
            is_private = name.startswith("_") and not name.startswith("__")
            if not is_private and not hasattr(x, name):
                with pytest.raises(co.UnknownNameError) as caught:
                    getattr(x, name)
                assert f"has no attribute '{name}'" in caught.value.what
                assert caught.value.do
                missing.append(name)

    RUNS[run](look)
    assert missing, "the table is not asked"


@pytest.mark.parametrize("run", RUNS)
def test_an_unknown_attribute(run: str) -> None:
    """Other names are errors as Python words them; hasattr and getattr see them."""

    def look(x: Any) -> None:
        assert not hasattr(x, "ctypes")
        assert getattr(x, "unknown", 3) == 3
        with pytest.raises(AttributeError, match="object has no attribute 'sums'") as e:
            _ = x.sums
        assert e.value.name == "sums"
        assert e.value.obj is x

    RUNS[run](look)


TEXTS = {
    "view": "use x.astype(dtype) for the numbers in another dtype",
    "tobytes": "return the value from the function, and write it there",
    "value": "use stop_gradient(x)",
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str) -> None:
    """The error names the value and the way."""
    with pytest.raises(co.UnknownNameError) as caught:
        co.grad(lambda x: getattr(x, name))(X)
    assert caught.value.what == f"GradTracer f64[2, 2] has no attribute '{name}'"
    assert caught.value.do.startswith(TEXTS[name])


FIXED = {
    "shape": ((4, 1), "use x = np.reshape(x, shape)"),
    "dtype": (np.float32, "use x = x.astype(dtype)"),
    "strides": ((8, 16), "leave it out: operators choose how arrays lie in memory"),
    "device": ("cpu", "pass arguments that are on that device"),
}


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("run", RUNS)
def test_what_cannot_be_set(run: str, name: str) -> None:
    """NumPy's ways to change an array without a copy are errors, and change nothing."""
    given, instead = FIXED[name]

    def look(x: Any) -> None:
        before = repr(x)
        with pytest.raises(co.UnknownNameError) as caught:
            setattr(x, name, given)
        assert caught.value.what == f"the {name} of {describe(x)} cannot be set"
        assert caught.value.do == instead
        assert repr(x) == before

    RUNS[run](look)


@pytest.mark.parametrize("run", ["grad", "jvp", "vmap"])
def test_the_shape_of_a_stale_view_cannot_be_set(run: str) -> None:
    """A view that a write to its base has emptied gives the same error."""

    def look(x: Any) -> None:
        base = x * 1.0
        view = base[0]
        base[0, 0] = 5.0
        with pytest.raises(co.UnknownNameError, match=r"shape of .* cannot be set"):
            view.shape = (1, 2)

    RUNS[run](look)


def test_copies_and_pickles_of_fake_arrays() -> None:
    """They have the same parts."""
    x = co.FakeArray((2, 3), np.float32, order=(1, 0))
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert (other.shape, other.dtype, other.strides, other.device) == (
            (x.shape, x.dtype, x.strides, x.device)
        )
        assert type(other) is co.FakeArray


ROUNDINGS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "round": (round, lambda x: x - np.floor(x)),
    "round to digits": (lambda x: round(x, 1), np.square),
    "floor": (math.floor, np.square),
    "ceil": (math.ceil, np.square),
    "trunc": (math.trunc, np.square),
}


@pytest.mark.parametrize("name", ROUNDINGS)
def test_rounding(name: str) -> None:
    """Python's rounding works on single numbers; the gradient through it is zero."""
    cut, rest = ROUNDINGS[name]
    for number in (2.5, -1.26, 3.5):
        at = np.float64(number)
        value, slope = co.value_and_grad(lambda x: cut(x) + rest(x))(at)
        assert value == cut(at) + rest(at)
        assert slope == pytest.approx((rest(at + 1e-6) - rest(at - 1e-6)) / 2e-6)
    rows = co.vmap(cut)(np.array([2.5, -1.26]))
    np.testing.assert_array_equal(rows, [cut(2.5), cut(-1.26)])
    with pytest.raises(co.ArgumentError, match="single number"):
        co.grad(lambda x: cut(x))(X)


@pytest.mark.parametrize("run", ["grad", "fake"])
def test_contains(run: str) -> None:
    """`in` asks for any equal element, as NumPy does."""
    if run == "fake":
        with pytest.raises(co.DataDependentError):
            _ = 4.75 in co.fake_like(X)
        return
    seen = []
    RUNS[run](lambda x: seen.extend([4.75 in x, 9.0 in x]))
    assert seen == [4.75 in X, 9.0 in X] == [True, False]
