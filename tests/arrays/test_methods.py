"""Methods of arrays, called on traced values as on arrays of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import customop as co

X = np.array([[1.25, -2.5, 3.0], [4.75, 0.5, -1.0]])
MASK = np.array([[True, False, True]])


def chosen(places: Any, choices: Any, **keywords: Any) -> Any:
    """The method `choose`; the function where the places are a plain array."""
    if isinstance(places, np.ndarray):
        return np.choose(places, choices, **keywords)
    return places.choose(choices, **keywords)


# Name of a method -> calls with the arguments that it takes, by place and by name.
CALLS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "all": (lambda x: x.all(0), lambda x: x.all(axis=1, keepdims=True, where=MASK)),
    "any": (lambda x: x.any(1), lambda x: (x > 3).any(where=MASK)),
    "argmax": (lambda x: x.argmax(), lambda x: x.argmax(1, keepdims=True)),
    "argmin": (lambda x: x.argmin(0),),
    "argpartition": (lambda x: np.sort(x.argpartition(1, axis=1)[:, :1]),),
    "argsort": (lambda x: x.argsort(0), lambda x: x.argsort(kind="stable")),
    "astype": (
        lambda x: x.astype("f4", casting="same_kind", order="F"),
        lambda x: x.astype(int, copy=False),
    ),
    "choose": (
        lambda x: chosen(x > 0, [x, 2 * x]),
        lambda x: chosen(x.astype(int), [x, [[7.0], [8.0]]], mode="wrap"),
        lambda x: chosen(x.astype(int) + 9, [x, 1.0], mode="clip"),
    ),
    "clip": (lambda x: x.clip(0), lambda x: x.clip(max=1.0), lambda x: x.clip(-1, 2)),
    "compress": (lambda x: x.compress([True, False, True], axis=1),),
    "conj": (lambda x: (x * 1j).conj(),),
    "conjugate": (lambda x: x.conjugate(),),
    "copy": (lambda x: x.copy(), lambda x: x.copy("F")),
    "cumprod": (lambda x: x.cumprod(), lambda x: x.cumprod(0, "f4")),
    "cumsum": (lambda x: x.cumsum(1), lambda x: x.cumsum(dtype=complex)),
    "diagonal": (lambda x: x.diagonal(1), lambda x: x.diagonal(axis1=1, axis2=0)),
    "dot": (lambda x: x.dot(X.T),),
    "flatten": (lambda x: x.flatten(), lambda x: x.flatten("F")),
    "max": (lambda x: x.max(), lambda x: x.max(1, initial=2.0, where=MASK)),
    "mean": (lambda x: x.mean(0), lambda x: x.mean(1, "f4", keepdims=True, where=MASK)),
    "min": (lambda x: x.min(axis=0, keepdims=True),),
    "nonzero": (lambda x: np.size(x.nonzero),),
    "prod": (lambda x: x.prod(1, "f4"), lambda x: x.prod(initial=2, where=MASK)),
    "ravel": (lambda x: x.ravel(), lambda x: x.ravel("F")),
    "repeat": (lambda x: x.repeat(2), lambda x: x.repeat([1, 2], axis=0)),
    "reshape": (lambda x: x.reshape(3, -1), lambda x: x.reshape((3, 2), order="F")),
    "round": (lambda x: x.round(), lambda x: x.round(decimals=1)),
    "searchsorted": (lambda x: x[0].searchsorted([0.0, 2.0], side="right"),),
    "squeeze": (lambda x: x[:, None].squeeze(1),),
    "std": (lambda x: x.std(ddof=1), lambda x: x.std(1, where=MASK)),
    "sum": (lambda x: x.sum(1, "f4"), lambda x: x.sum(initial=4, where=MASK)),
    "swapaxes": (lambda x: x.swapaxes(0, 1),),
    "take": (lambda x: x.take([0, -1], 1), lambda x: x.take([7], mode="wrap")),
    "to_device": (lambda x: x.to_device("cpu"),),
    "trace": (lambda x: x.trace(), lambda x: x.trace(1, 0, 1, "f4")),
    "transpose": (lambda x: x.transpose(), lambda x: x.transpose(1, 0)),
    "var": (lambda x: x.var(1, keepdims=True), lambda x: x.var(mean=0.5)),
}


def changed(name: str, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """A call of a method that changes a copy, which is returned."""

    def call(x: Any) -> Any:
        y = x.copy()
        assert getattr(y, name)(*args, **kwargs) is None
        return y

    return call


CALLS |= {
    "fill": (changed("fill", 7.5),),
    "partition": (lambda x: np.sort(changed("partition", 1)(x)[:, :1]),),
    "put": (changed("put", [0, -1], [7.0, 8.0]), changed("put", [9], 1, mode="clip")),
    "sort": (changed("sort"), changed("sort", axis=0, kind="stable")),
}
# Methods that give numbers and lists of Python, which a transform cannot follow.
VALUES = {"item", "tolist"}


def test_every_method_has_a_call() -> None:
    """The table has all methods of NumPy's arrays that traced values have."""
    found: set[str] = set()

    def note(x: Any) -> Any:
        names = [n for n in dir(np.ndarray) if not n.startswith("_")]
        found.update(n for n in names if callable(getattr(x, n, None)))
        return np.sum(x)

    co.grad(note)(X)
    assert found - VALUES == set(CALLS)


def graded(call: Callable[[Any], Any]) -> Any:
    """The result under vjp."""
    return co.vjp(lambda x: (x * 1, call(x)), X)[0][1]


def batched(call: Callable[[Any], Any]) -> Any:
    """The result for one row of a batch."""
    rows = np.stack([X + 1, X])
    return optree.tree_map(lambda found: found[1], co.vmap(call)(rows))


ALL = [(name, i) for name, calls in CALLS.items() for i in range(len(calls))]


@pytest.mark.parametrize(("name", "number"), ALL)
def test_method_is_numpys(name: str, number: int) -> None:
    """Values, shapes and dtypes are NumPy's; fake arrays have the latter two."""
    call = CALLS[name][number]
    expected = np.asarray(call(X))
    for way in (graded, batched):
        np.testing.assert_array_equal(np.asarray(way(call)), expected, strict=True)
    fake = co.eval_shape(call, X)
    if hasattr(fake, "shape"):
        assert (fake.shape, fake.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("order", ["C", "F"])
def test_order_in_memory(order: Any) -> None:
    """Copies and casts lie in memory as they are asked to, fake arrays too."""
    for x in (X, X.T):
        for call in (
            lambda x: x.copy(order),
            lambda x: x.astype("f4", order=order),
            lambda x: np.copy(x, order),
        ):
            assert co.eval_shape(call, x).strides == call(x).strides


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "astype": (lambda x: x.astype(int, casting="safe"), "use casting='unsafe'"),
    "to_device": (lambda x: x.to_device("cuda"), "pass arguments that are on"),
    "clip": (lambda x: x.clip(0, 1, where=MASK), "select with np.where"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_arguments(name: str) -> None:
    """An argument that is not possible is an error that says what to write."""
    call, do = REFUSED[name]
    for run in (graded, batched, lambda call: co.eval_shape(call, X)):
        with pytest.raises(co.ArgumentError) as caught:
            run(call)
        assert do in caught.value.do
