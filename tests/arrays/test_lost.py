"""Traced and fake values written into plain arrays: NumPy asks for the value."""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([1.0, 2.0, 4.0])

# How a function meets traced or fake values.
RUNS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "grad": lambda f: co.grad(f)(X),
    "jvp": lambda f: co.jvp(f, (X,), (X,)),
    "vmap": lambda f: co.vmap(f)(np.stack([X, X])),
    "fake": lambda f: co.eval_shape(f, X),
    "grad of grad": lambda f: co.grad(lambda x: np.sum(co.grad(f)(x)))(X),
    "grad inside": lambda f: co.grad(lambda x: f(x) * co.grad(np.sum)(X)[0])(X),
    "vmap of grad": lambda f: co.vmap(co.grad(f))(np.stack([X, X])),
    "hessian": lambda f: co.hessian(f)(X),
}

TARGETS: dict[str, Callable[[Path], Any]] = {
    **{
        name: lambda _, name=name: np.zeros(3, name)
        for name in ("f8", "f4", "f2", "g", "c16", "i8", "u1", "i4,f8")
    },
    "masked": lambda _: np.ma.zeros(3),
    "memmap": lambda folder: np.memmap(folder / "m", mode="w+", shape=3),
}

WRITES: dict[str, Callable[[Any, Any], None]] = {
    "an element": lambda out, x: operator.setitem(out, 0, x[0]),
    "an element by a tuple": lambda out, x: operator.setitem(out, (0,), x[0]),
    "an array for an element": lambda out, x: operator.setitem(out, 0, x),
    "a slice": lambda out, x: operator.setitem(out, slice(0, 3), x),
    "all": lambda out, x: operator.setitem(out, ..., x),
    "a list": lambda out, x: operator.setitem(out, slice(0, 2), [x[0], x[1]]),
    "some": lambda out, x: operator.setitem(out, [0, 2], x[:2]),
}


@pytest.mark.usefixtures("unadapted")
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_value_for_a_plain_array(run: str, target: str, tmp_path: Path) -> None:
    """The error is ours, though NumPy puts another in its place for some targets."""
    out = TARGETS[target](tmp_path)

    def store(x: Any) -> Any:
        out[0] = x[0]
        return np.sum(x)

    with pytest.raises(co.DataDependentError) as caught:
        RUNS[run](store)
    assert caught.value.what.startswith("out[key] = value, with a plain array out, is")
    # Only a usual array of numbers has a copy that takes traced values.
    do = "use np.stack([...]) to join values, or make out with np.zeros_like(x) or np.zeros"
    if target not in ("i4,f8", "masked", "memmap"):
        do = "write new = np.array(out, like=x), and new in place of out in the line out[0]"
    assert caught.value.do.startswith(do)
    assert caught.value.__cause__ is None
    lines = [f.line for f in traceback.extract_tb(caught.value.__traceback__)]
    assert "out[0] = x[0]" in lines


@pytest.mark.parametrize("run", [run for run in RUNS if run != "fake"])
def test_a_value_for_a_flat_iterator(run: str) -> None:
    """NumPy drops our error there, so the transform keeps it; fake arrays have none."""

    def store(x: Any) -> Any:
        np.zeros((3, 1)).flat[0] = x[0]

    with pytest.raises(co.DataDependentError, match=r"^out\[key\] = value"):
        RUNS[run](store)
    with pytest.raises(ValueError, match="single item"):
        RUNS["fake"](store)


@pytest.mark.parametrize("run", [run for run in RUNS if run != "fake"])
def test_a_value_for_nditer(run: str) -> None:
    """NumPy replaces our error by one about flags, so the transform keeps it."""

    def read(x: Any) -> Any:
        return sum(np.nditer(x))

    with pytest.raises(
        co.DataDependentError, match=r"^np\.array\(\), or a NumPy kernel"
    ):
        RUNS[run](read)


def test_as_strided_has_advice_of_its_own() -> None:
    """Nothing makes strides of a traced value; views do."""

    def windows(x: Any) -> Any:
        return np.lib.stride_tricks.as_strided(x, (2, 2), (8, 8))

    with pytest.raises(co.DataDependentError) as caught:
        RUNS["grad"](windows)
    assert "called by np.lib.stride_tricks.as_strided" in caught.value.what
    assert caught.value.do == (
        "use slices and reshape, np.broadcast_to for strides of 0, or"
        " np.lib.stride_tricks.sliding_window_view(x, n)[::step] for windows, or"
        " stop_gradient(x) for the value alone"
    )


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("write", WRITES)
def test_ways_to_write(run: str, write: str) -> None:
    """However it is written, the transform raises."""

    def store(x: Any) -> Any:
        WRITES[write](np.zeros(3), x)
        return np.sum(x)

    with pytest.raises(co.DataDependentError):
        RUNS[run](store)


@pytest.mark.usefixtures("unadapted")
def test_an_error_of_numpy_stays() -> None:
    """A ValueError that no refusal is behind comes out as it is, also after one."""

    def fn(x: Any) -> Any:
        out = np.zeros(3)
        with pytest.raises(ValueError, match="sequence"):
            out[0] = x[0]
        out[0] = [1.0, 2.0]
        return np.sum(x)

    for run in ("grad", "vmap", "jvp"):
        with pytest.raises(ValueError, match="sequence") as caught:
            RUNS[run](fn)
        assert type(caught.value) is ValueError


def test_a_variable() -> None:
    """No transform ends there: our error is the cause of NumPy's."""
    x, out = co.variable(X), np.zeros(3)
    with pytest.raises(ValueError, match="sequence") as caught:
        out[0] = x[0]
    cause = caught.value.__cause__
    assert isinstance(cause, co.DataDependentError)
    assert cause.do.startswith("write out = np.array(out, like=x) before the line")


@pytest.mark.usefixtures("unadapted")
def test_other_ways_to_lose_a_value() -> None:
    """The advice for a store is for stores alone."""

    def fn(x: Any) -> Any:
        out = np.zeros(3)
        out[0] = float(x[0])
        return np.sum(x)

    with pytest.raises(co.DataDependentError, match=r"float\(\) of") as caught:
        co.grad(fn)(X)
    assert caught.value.do == (
        "write x[0] in place of float(x[0]), or stop_gradient(x) for the value alone"
    )
    with pytest.raises(co.DataDependentError, match="an index"):
        co.vmap(lambda i: operator.setitem([0.0, 1.0], i, 1.0))(np.array([0, 1]))


@pytest.mark.usefixtures("unadapted")
def test_the_call_is_named() -> None:
    """Messages name the transform, its function and the line that called it."""

    def loss(x: Any) -> Any:
        return float(x[0])

    gradient = co.grad(loss)
    with pytest.raises(co.DataDependentError) as caught:
        gradient(X)  # the line
    lines = traceback.extract_tb(caught.value.__traceback__)
    number = lines[0].lineno
    assert lines[0].line == "gradient(X)  # the line"
    assert caught.value.what.endswith("a value of grad(loss)")
    assert caught.value.where[0] == f"grad(loss) is called at {__file__}:{number}"


@pytest.mark.usefixtures("unadapted")
@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("grad", "grad(fn)"),
        ("jvp", "jvp(fn)"),
        ("vmap", "vmap(fn)"),
        ("grad of grad", "grad(fn)"),
        ("hessian", "vjp"),
    ],
)
def test_names_of_transforms(run: str, name: str) -> None:
    """A function of the package itself, which the user does not know, is left out."""

    def fn(x: Any) -> Any:
        return float(x[0])

    with pytest.raises(co.DataDependentError) as caught:
        RUNS[run](fn)
    assert caught.value.what.endswith(f" of {name}")
    assert caught.value.where[0].startswith(f"{name} is called at {__file__}:")
