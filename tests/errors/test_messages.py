"""The messages that a user reads when something is wrong, word for word."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.errors._calls import CALLS
from tests.errors._contracts import CONTRACTS
from tests.errors._definitions import DEFINITIONS
from tests.errors._operators import (
    X,
    at,
    caught,
    define,
    fake_one,
    fake_two,
    op,
    plain,
)
from tests.errors._registrations import REGISTRATIONS

pytestmark = pytest.mark.usefixtures("built_in_kinds")

TABLE = {
    f"{group}: {name}": row
    for group, rows in {
        "definition": DEFINITIONS,
        "registration": REGISTRATIONS,
        "call": CALLS,
        "contract": CONTRACTS,
    }.items()
    for name, row in rows.items()
}


@pytest.mark.parametrize("name", TABLE)
def test_the_error_is(name: str) -> None:
    """Every message says what was wrong, where, and what to do, also after a pickle."""
    act, kind, text = TABLE[name]
    error = caught(act)
    assert str(error) == text
    assert type(error) is kind
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == text
    assert vars(again) == vars(error)


# ---- Python's own errors ----

SIGNATURE = "errors_test::scaled(x, k=2.0, *, shift=0.0): scaled() "


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: op(), SIGNATURE + "missing 1 required positional argument: 'x'"),  # type: ignore[call-arg]
        (lambda: op(X, 1.0, 2.0), SIGNATURE + "takes from 1 to 2 positional arguments but 3 were given"),  # type: ignore[misc]
        (lambda: op(X, gain=1.0), SIGNATURE + "got an unexpected keyword argument 'gain'"),  # type: ignore[call-arg]
        (lambda: op(X, x=X), SIGNATURE + "got multiple values for argument 'x'"),  # type: ignore[misc]
    ],
    ids=["missing", "extra", "unknown", "twice"],
)  # fmt: skip
def test_a_call_that_fits_no_signature_is_pythons_error(act: Any, text: str) -> None:
    """Missing, extra and unknown arguments raise the TypeErrors of ordinary functions.

    They begin with what the operator takes. Python 3.13 adds names that are near.
    """
    error = caught(act)
    assert type(error) is TypeError
    assert str(error).partition(". Did you mean")[0] == text


# ---- second registrations ----


def test_a_second_rule_names_both_places() -> None:
    """A second rule from another place is refused without override=True."""
    made = co.custom_op("errors_test::second", plain, mutates_args=())
    made.register_fake(fake_one)
    error = caught(lambda: made.register_fake(fake_two))
    assert str(error) == (
        f"errors_test::second has a rule for 'fake' already, from {at(fake_one)}\n"
        f"  the second is at {at(fake_two)}\n"
        "  do: remove one of them, or register with override=True"
    )
    assert made.register_fake(fake_one).rule("fake") is fake_one
    assert made.register_fake(fake_two, override=True).rule("fake") is fake_two


def test_a_second_definition_elsewhere_names_both_places() -> None:
    """The error for a name that two files define names both files."""
    co.custom_op("errors_test::fought", plain, mutates_args=())
    names: dict[str, Any] = {"co": co, "np": np}
    text = "def plain(x: np.ndarray) -> np.ndarray: ...\n"
    exec(compile(text, "/elsewhere.py", "exec"), names)
    act = define("errors_test::fought", names["plain"])
    error = caught(act)
    assert type(error) is co.RegistrationError
    assert str(error) == (
        f"errors_test::fought is defined already, at {at(plain)}\n"
        "  the second definition is at /elsewhere.py:1\n"
        "  do: give one of them another name"
    )


# ---- frames of the package ----


def test_one_frame_stands_above_a_kernel() -> None:
    """A traceback shows one frame of the package, that of the generated call."""

    def failing(x: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError

    made = co.custom_op("errors_test::failing", failing, mutates_args=())
    caught(lambda: made(X))  # the first call compiles
    trace = caught(lambda: made(X)).__traceback__
    files = []
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    assert len([f for f in files if "customop" in f and f != __file__]) == 1
