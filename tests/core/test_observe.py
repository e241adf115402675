"""Observers see the kernels, rules and formulas of calls, and change nothing else."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.interpreter import Interpreter
from customop.core.observe import Observer, observed, observers, open_modes

X = np.array([1.0, 2.0])


@co.custom_op("observed::square", mutates_args=())
def square(x: np.ndarray, k: float = 1.0) -> np.ndarray:
    return x * x


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: Any, g: Any) -> Any:
    return g * 2.0 * ctx.saved_arrays[0], None


square.register_autograd(_backward, setup_context=_setup)


@co.custom_op("observed::fails", mutates_args=())
def fails(x: np.ndarray) -> np.ndarray:
    raise KeyError("kernel")


@co.custom_op("observed::picky", mutates_args=())
def picky(x: np.ndarray) -> np.ndarray:
    if not x.flags.writeable:
        raise ValueError("buffer source array is read-only")
    return x * 2.0


class Log(Observer):
    """An observer that records events in order."""

    def __init__(self, notes: list[Any], *, threads: bool = False) -> None:
        super().__init__(threads=threads)
        self.notes = notes

    def enter(
        self,
        op: co.Operator[..., Any],
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
    ) -> str:
        name = by if isinstance(by, str) else by.kind.name
        self.notes.append((name, op.name, args))
        return name

    def leave(self, entered: str, out: Any) -> None:
        self.notes.append(("leave", entered))

    def fail(self, entered: str, error: BaseException, *, again: bool) -> None:
        self.notes.append(("fail", entered, type(error), again))


def names_of(log: Log) -> list[Any]:
    """Return the recorded events without arguments."""
    return [note[:2] for note in log.notes]


def test_a_kernel_is_seen_with_the_values_of_all_parameters() -> None:
    """`leave` gets the value that `enter` returned; `enter` gets all arguments."""
    with Log([]) as log:
        square(X)
    (kernel, name, (x, k)), left = log.notes
    assert (kernel, name, k, left) == ("kernel", "square", 1.0, ("leave", "kernel"))
    assert x is X


def test_a_gradient_is_seen_inside_out() -> None:
    """Under grad, observers see the rule, the kernel, the setup function and the formula."""
    with Log([]) as log:
        square(co.variable(X)).backward(np.ones(2))
    assert names_of(log) == [
        ("autograd", "square"),
        ("kernel", "square"),
        ("leave", "kernel"),
        ("setup_context", "square"),
        ("leave", "setup_context"),
        ("leave", "autograd"),
        ("backward", "square"),
        ("leave", "backward"),
    ]


def test_a_setup_function_and_a_formula_show_what_they_are_given() -> None:
    """Observers see the inputs and output that `setup_context` gets, and the gradients."""
    with Log([]) as log:
        y = square(co.variable(X))
        y.backward(np.ones(2))
    given = {note[0]: note[2] for note in log.notes if len(note) == 3}
    inputs, out = given["setup_context"]
    assert inputs == (X, 1.0)
    assert out.tolist() == [1.0, 4.0]
    assert [g.tolist() for g in given["backward"]] == [[1.0, 1.0]]


def test_an_error_ends_what_was_entered() -> None:
    """`fail` gets the error, and the traceback is as long as without an observer."""
    with pytest.raises(KeyError) as alone:
        fails(X)
    with Log([]) as log, pytest.raises(KeyError) as caught:
        fails(X)
    assert log.notes[1:] == [("fail", "kernel", KeyError, False)]
    frames = [len(traceback.extract_tb(e.tb)) for e in (alone, caught)]
    assert frames[0] == frames[1]


def test_a_kernel_that_runs_again_says_so() -> None:
    """A retry is marked, and the kernel is entered a second time."""
    with Log([]) as log:
        picky(X.copy())
    assert [note[:1] + note[2:] for note in log.notes if note[0] != "kernel"] == [
        ("fail", ValueError, True),
        ("leave",),
    ]
    assert names_of(log).count(("kernel", "picky")) == 2


def test_the_observer_opened_first_is_outermost() -> None:
    """The observer that was opened first is entered first and leaves last."""
    notes: list[Any] = []
    with Log(notes), Log(notes):
        square(X)
    assert [note[0] for note in notes] == ["kernel", "kernel", "leave", "leave"]


def test_nothing_is_wrapped_without_observers() -> None:
    """Without an observer, the function itself is called."""
    with Log([]) as log:
        pass
    assert observed(square, "kernel", _setup, ()) is _setup
    assert (log.is_open, observers, open_modes) == (False, [], [])
