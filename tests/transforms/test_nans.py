"""config.check_nans: the call or formula that makes a nan is named."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.observe import open_modes

X = np.array([1.0, -2.0])
ZERO = np.array([0.0, 1.0])


@pytest.fixture(autouse=True)
def _checked() -> Iterator[None]:
    with np.errstate(all="ignore"):
        co.config.check_nans = True
        yield
        co.config.check_nans = False


@co.custom_op("nans::log", mutates_args=())
def log(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.log(x)
    return result


@log.register_autograd
def _(ctx: Any, g: Any) -> Any:
    return g * np.nan


@co.custom_op("nans::root_", mutates_args=("x",))
def root_(x: np.ndarray) -> None:
    np.sqrt(x, out=x)


def line(of: str) -> int:
    """Return the number of the line of this file that ends in a comment."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(i for i, text in enumerate(lines, 1) if text.endswith(f"# {of}"))


def test_forward() -> None:
    """The operator, the line and the arguments are named; it is a FloatingPointError."""

    def loss(x: Any) -> Any:
        y = x + 1.0
        return np.sum(np.log(y))  # here

    with pytest.raises(FloatingPointError) as caught:
        co.grad(loss)(X)
    assert str(caught.value) == (
        "np::log returns nan, and nothing that it was given has one\n"
        f"  called at {__file__}:{line('here')}\n"
        "  x: f64[2] from -1 to 2\n"
        "  do: keep the arguments where it is defined, such as by"
        " np.where(x > 0, x, 1.0) before the call"
    )
    assert isinstance(caught.value, co.NanError)


def test_backward() -> None:
    """The formula and the line of the call in the forward pass are named."""

    def loss(x: Any) -> Any:
        y = log(x)  # there
        return np.sum(y)

    with pytest.raises(co.NanError) as caught:
        co.grad(loss)(np.ones(2))
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "nans::log: the backward formula returns nan, and neither the gradient nor what"
        " it saved has one"
    )
    assert lines[1] == f"  the operator was called at {__file__}:{line('there')}"
    assert lines[2].startswith(f"  backward at {__file__}:")


CASES: dict[str, tuple[Any, str]] = {
    "plain call": (lambda: log(X), "nans::log returns nan"),
    "written": (lambda: root_(X.copy()), "nans::root_ returns nan"),
    "tangent": (
        lambda: co.jvp(np.sqrt, (ZERO,), (0 * ZERO,)),
        "np::sqrt has a tangent that is nan",
    ),
    "batch": (lambda: co.vmap(np.log)(X), "np::log returns nan"),
    "where": (
        lambda: co.grad(lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0)))(ZERO),
        "np::sqrt: the backward formula returns nan",
    ),
    "second order": (
        lambda: co.grad(lambda x: co.grad(np.sqrt)(x) * 0.0)(np.array(0.0)),
        "np::",
    ),
    "variable": (
        lambda: np.sum(log(co.variable(np.ones(2)))).backward(),
        "nans::log: the backward formula returns nan",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    """Every kind of call and formula is seen."""
    run, text = CASES[name]
    with pytest.raises(co.NanError) as caught:
        run()
    assert str(caught.value).startswith(text)


def test_nan_that_was_there() -> None:
    """A nan that comes in is no fault, nor is an infinity."""
    given = np.array([np.nan, 1.0])
    co.vmap(np.sin)(given)
    co.grad(lambda x: np.sum(np.sin(x) * x))(given)
    co.grad(lambda x: np.sum(x * np.nan))(np.ones(2))
    co.jvp(np.sin, (given,), (given,))
    log(given)
    log(np.zeros(2))
    root_(given.copy())
    co.eval_shape(np.log, X)
    co.vmap(lambda x: x > 0)(X)


def test_all_threads() -> None:
    """Threads that start later are seen too."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with np.errstate(all="ignore"):
                log(X)
        except co.NanError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(errors) == 1


def test_functions_with_rules() -> None:
    """A rule of custom_vjp is named like a formula."""
    f = co.custom_vjp(np.sin)
    f.defvjp(lambda x: (np.sin(x), None), lambda _, g: (g * np.inf * 0,))
    with pytest.raises(co.NanError, match=r"np::multiply|custom_vjp::sin"):
        co.grad(lambda x: np.sum(f(x)))(X)


def test_off_leaves_nothing() -> None:
    """While it is off no mode or observer is open, so calls take the fast path."""
    assert len(open_modes) == 1
    co.config.check_nans = False
    assert open_modes == []
    assert np.isnan(log(X)[1])
    co.config.check_nans = True
    co.config.check_nans = True
    assert len(open_modes) == 1


def test_beside_other_observers() -> None:
    """Other observers get an error for what has raised."""
    seen: list[Any] = []

    class Names(co.Observer):
        def enter(self, op: Any, by: Any, fn: Any, args: Any) -> Any:
            return op.qualname

        def fail(self, entered: Any, error: BaseException, *, again: bool) -> None:
            seen.append((entered, type(error)))

    with Names(), pytest.raises(co.NanError):
        log(X)
    assert seen in ([("nans::log", co.NanError)], [])


def test_setting() -> None:
    """Only True and False are taken."""
    with pytest.raises(co.ArgumentError) as caught:
        co.config.check_nans = "yes"  # type: ignore[assignment]  # on purpose
    assert str(caught.value) == (
        "config.check_nans is 'yes'\n  do: set it to True or False"
    )
