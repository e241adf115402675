"""Classes and fields of errors, and the parts that make up a message."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

import numpy as np
import pytest

import customop as co
from customop import errors
from customop.errors import CustomOpError, caret, did_you_mean, innermost, place, quoted
from tests.errors._operators import (
    XS,
    Holder,
    X,
    at,
    caught,
    every_op,
    few,
    zeros_op,
)

pytestmark = pytest.mark.usefixtures("built_in_kinds")

BUILTIN = {
    co.SchemaError: (ValueError, TypeError),
    co.ArgumentError: (TypeError,),
    co.ShapeError: (ValueError,),
    co.SizeError: (RuntimeError,),
    co.DeviceMismatchError: (TypeError,),
    co.RegistrationError: (RuntimeError,),
    co.MissingRuleError: (NotImplementedError,),
    co.ContractError: (RuntimeError,),
    co.GradientError: (ValueError,),
    co.NoDerivativeError: (co.GradientError, ValueError),
    co.GraphError: (ValueError,),
    co.GraphFileError: (ValueError,),
    co.GuardError: (ValueError,),
    errors.GuessError: (co.GuardError, ValueError),
    co.NanError: (FloatingPointError,),
    co.VmapError: (ValueError,),
    co.DataDependentError: (TypeError,),
    co.LeakedTracerError: (RuntimeError,),
    co.OpCheckError: (AssertionError,),
    co.UnknownNameError: (AttributeError,),
}


@pytest.mark.parametrize(
    ("error", "builtins"), BUILTIN.items(), ids=lambda v: getattr(v, "__name__", None)
)
def test_an_error_is_the_builtin_that_is_expected(
    error: type, builtins: tuple[type, ...]
) -> None:
    """Each error is a CustomOpError and the built-in error that users expect."""
    assert issubclass(error, (CustomOpError,))
    assert all(issubclass(error, builtin) for builtin in builtins)


def test_every_error_is_in_the_table_above() -> None:
    """The table contains every exception of the package."""
    found = {
        v
        for v in vars(errors).values()
        if inspect.isclass(v) and issubclass(v, CustomOpError)
    }
    assert found == {CustomOpError, *BUILTIN}


def test_an_error_knows_what_it_is_about() -> None:
    """An error has the fields operator, parameter and kind."""
    error: Any = caught(lambda: every_op(X, XS, 2.5))
    assert (error.op, error.parameter, error.kind) == ("errors_test::every", "n", None)
    error = caught(lambda: zeros_op(2, device="cuda"))
    assert (error.op, error.parameter, error.kind) == (
        "errors_test::zeros",
        None,
        "cuda",
    )


# ---- parts of messages ----


def test_an_error_of_one_part_is_that_part() -> None:
    """Without place and advice, the text says only what is wrong."""
    assert str(CustomOpError("it is wrong")) == "it is wrong"


def test_lines_of_places_are_set_in() -> None:
    """Every line after the first is indented by two spaces."""
    error = CustomOpError("wrong", "one\ntwo", "three", do="fix it")
    assert str(error) == "wrong\n  one\n  two\n  three\n  do: fix it"


@pytest.mark.parametrize(
    ("text", "fragment", "start", "mark"),
    [
        ("f(x, y)", "y", 0, "     ^"),
        ("f(max: int, x: int)", "x: int", 0, "            ^^^^^^"),
        ("xx(x)", "x", 2, "   ^"),
        ("f(x)", "z", 0, None),
        ("f(x)", "", 0, None),
    ],
)
def test_carets_mark_whole_words(
    text: str, fragment: str, start: int, mark: str | None
) -> None:
    """A caret never marks part of a longer word."""
    assert caret(text, fragment, start) == (text if mark is None else f"{text}\n{mark}")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("bata", " (did you mean 'beta'?)"),
        ("gradient", " (did you mean 'grad'?)"),
        ("gradchek", " (did you mean 'gradcheck'?)"),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_near_names_are_offered(name: str, hint: str) -> None:
    """The most similar known name is suggested, if one is similar."""
    known = ["alpha", "beta", "stop_gradient", "grad", "gradcheck"]
    assert did_you_mean(name, known) == hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("op1234x", " (did you mean 'op1234'?)"),
        ("po1234", " (did you mean 'op1234'?)"),
        ("op4999", " (did you mean 'op999'?)"),
        ("oq1234", " (did you mean 'op1234'?)"),
        ("opp1234", " (did you mean 'op1234'?)"),
        ("op2999_backward", " (did you mean 'op2999'?)"),
        ("gradeint_of", " (did you mean 'gradient_of'?)"),
        ("gardientof", " (did you mean 'gradient_of'?)"),
        ("zzz", ""),
    ],
)
def test_near_names_among_many(name: str, hint: str) -> None:
    """Among thousands of names, one that is one edit away is found, or a similar one."""
    known = [f"op{i}" for i in range(3000)] + ["gradient_of"]
    assert did_you_mean(name, known) == hint


def test_names_stand_in_quotes() -> None:
    """Names are quoted and separated by commas."""
    assert quoted(["a", 1]) == "'a', '1'"


class CallMe:
    def __call__(self, x: Any) -> Any: ...


@pytest.mark.parametrize(
    ("fn", "found"),
    [
        (few, few),
        (functools.partial(few), few),
        (functools.partial(functools.partial(few)), few),
        (functools.wraps(few)(lambda x: x), few),
        (Holder().method, Holder.method),
        (staticmethod(few), few),
        (CallMe(), CallMe.__call__),
        (CallMe().__call__, CallMe.__call__),
    ],
    ids=range(8),
)
def test_a_place_is_that_of_the_function_inside(fn: Any, found: Any) -> None:
    """The place is that of the function inside decorators, partials and methods."""
    assert innermost(fn) is found
    assert place(fn) == at(found)


@pytest.mark.parametrize(
    ("fn", "text"),
    [(np.sin, "ufunc sin"), (len, "builtin_function_or_method len"), (int, "type int")],
)
def test_what_has_no_place_is_named(fn: Any, text: str) -> None:
    """Built-ins have no file and line, so their name is given."""
    assert place(fn) == text


def test_no_module_of_the_package_is_a_caller() -> None:
    """The place of a caller is outside the package."""
    line = sys._getframe().f_lineno + 1
    assert errors.caller_place() == f"{__file__}:{line}"
