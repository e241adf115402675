"""Kinds of rule, and the functions that can serve as one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.schema.agreement import (
    check_parameters,
    has_exactly,
    mismatch,
    parameters_of,
)


@co.custom_op("kinds_test::scale", mutates_args=())
def scale(x: np.ndarray, k: float, *, shift: float = 0.0) -> np.ndarray:
    return x * k + shift


@pytest.mark.parametrize(
    ("takes", "parameters"),
    [
        ("(out, *inputs)", "out, x, k, *, shift"),
        ("(*inputs)", "x, k, *, shift"),
        ("(primals, tangents, **keywords)", "primals, tangents, *, shift"),
        ("(out)", "out"),
        ("()", ""),
    ],
)
def test_a_rule_takes_what_its_kind_says(takes: str, parameters: str) -> None:
    """`*inputs` means all parameters, `**keywords` the keyword-only ones."""
    kind = co.RuleKind("sample", takes=takes)
    names: dict[str, Any] = {}
    exec(
        f"def good({parameters}): ...\ndef bad({parameters}{', ' * bool(parameters)}more): ...",
        names,
    )
    kind.check(scale.definition, names["good"])
    with pytest.raises(co.RegistrationError):
        kind.check(scale.definition, names["bad"])


def test_a_kind_may_check_nothing() -> None:
    """Without `takes`, any function can be a rule."""
    kind = co.RuleKind("anything")
    kind.check(scale.definition, lambda one, two, three: None)


def test_the_words_of_the_library_may_be_called_otherwise() -> None:
    """Only parameters of the operator must keep their names."""
    kind = co.RuleKind("inverse", takes="(out, *inputs)")
    kind.check(scale.definition, lambda y, x, k, *, shift: y)


def test_a_kind_is_read_back() -> None:
    """`op.rule(kind)` returns the registered rule."""
    kind = co.RuleKind("inverse", takes="(out, *inputs)", returns="input 0")

    def rule(out: Any, x: Any, k: Any, *, shift: Any) -> Any:
        return (out - shift) / k

    scale.register(kind, rule)
    assert scale.rule(kind) is rule


def test_a_formula_unpacks_into_its_functions() -> None:
    """The rule of autograd can be taken apart, and made again from its functions."""

    def backward(ctx: Any, grad: Any) -> Any:
        return grad

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.inputs = inputs

    formula = co.Formula(backward, keep)
    assert (*formula,) == (backward, keep)
    assert co.Formula(*formula) == formula


def test_kinds_of_one_name_are_kinds_of_their_own() -> None:
    """Two kinds of the same name are different."""
    one, two = co.RuleKind("same"), co.RuleKind("same")
    scale.register(one, lambda: 1)
    with pytest.raises(co.MissingRuleError):
        scale.rule(two)


def test_a_kind_may_derive_its_rule() -> None:
    """Without a rule, the operator uses the one that the kind derives."""
    kind = co.RuleKind("name_of", derive=lambda op: op.qualname)
    assert scale.rule(kind) == "kinds_test::scale"


def test_a_kind_that_derives_nothing_has_no_rule() -> None:
    """If `derive` returns None, the rule is missing."""
    with pytest.raises(co.MissingRuleError):
        scale.rule(co.RuleKind("nothing", derive=lambda op: None))


def test_a_kind_prints_what_it_is() -> None:
    """The repr of a kind is the call that makes it."""
    kind = co.RuleKind("inverse", takes="(out, *inputs)", returns="input 0")
    assert (
        repr(kind) == "RuleKind('inverse', takes='(out, *inputs)', returns='input 0')"
    )


# ---- parameters ----


def twice(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


# Function -> why it cannot be called with `x, k` by position and `a` by name.
FUNCTIONS: list[tuple[Any, str]] = [
    (lambda x, k, *, a: 0, ""),
    (lambda x, k, a: 0, ""),
    (lambda x, k, *, a=1: 0, ""),
    (lambda x, k, *, a, b=1: 0, ""),
    (lambda x, k, z=1, *, a: 0, ""),
    (lambda *args, **kwargs: 0, ""),
    (lambda x, *rest, a: 0, ""),
    (lambda x, k, **kwargs: 0, ""),
    (lambda _first, _second, *, a: 0, ""),
    (lambda one, two, /, *, a: 0, ""),
    (twice(lambda x, k, *, a: 0), ""),
    (functools.partial(lambda x, k, z, *, a: 0, z=1), ""),
    (lambda x: 0, "takes (x) by position, but is called with (x, k)"),
    (lambda: 0, "takes () by position, but is called with (x, k)"),
    (lambda x, k, z, *, a: 0, "takes (x, k, z) by position, but is called with (x, k)"),
    (lambda k, x, *, a: 0, "has the parameter 'k' where the schema has 'x' (position 0)"),
    (lambda x, q, *, a: 0, "has the parameter 'q' where the schema has 'k' (position 1)"),
    (lambda x, k: 0, "lacks the keyword-only parameter 'a' of the schema"),
    (lambda x, k, *, aa=1: 0, "lacks the keyword-only parameter 'a' of the schema, has 'aa'"),
    (lambda x, k, *, aa: 0, "needs the keyword-only parameter 'aa', not in the schema (did you mean 'a'?)"),
    (lambda x, k, a, /: 0, "lacks the keyword-only parameter 'a' of the schema"),
    (twice(lambda x: 0), "takes (x) by position, but is called with (x, k)"),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "problem"), FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_parameters_are_compared(fn: Any, problem: str) -> None:
    """The message names the first difference."""
    given = parameters_of(fn)
    assert given is not None
    assert mismatch(given, ["x", "k"], ["a"]) == problem


@pytest.mark.parametrize(("fn", "problem"), FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_the_quick_look_never_lets_a_fault_through(fn: Any, problem: str) -> None:
    """The quick check accepts no function that the check by signature refuses."""
    assert not (has_exactly(fn, ["x", "k"], ["a"]) and problem)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x, k, *, a: 0, True),
        (lambda y, k, *, a: 0, False),
        (lambda x, k=2, *, a=1: 0, True),
        (lambda x, k, *args, a: 0, False),
        (twice(lambda x, k, *, a: 0), False),
        (np.sin, False),
    ],
    ids=["the same", "a name", "defaults", "star", "wrapped", "ufunc"],
)
def test_the_quick_look_sees_plain_functions_alone(fn: Any, expected: bool) -> None:
    """The quick check accepts only plain functions with exactly these names."""
    assert has_exactly(fn, ["x", "k"], ["a"]) is expected


def test_the_quick_look_respects_declared_signatures() -> None:
    """`__signature__` counts more than the code of a function."""

    def shown(x: Any, k: Any, *, a: Any) -> Any: ...

    shown.__signature__ = inspect.signature(lambda y: 0)  # type: ignore[attr-defined]
    assert not has_exactly(shown, ["x", "k"], ["a"])
    with pytest.raises(co.RegistrationError):
        check_parameters("rule", shown, ["x", "k"], ["a"])


def test_a_function_without_parameters_is_refused() -> None:
    """A function without parameters is refused."""
    with pytest.raises(co.RegistrationError):
        check_parameters("rule", lambda: 0, ["x"], [])


def test_free_names_are_not_compared() -> None:
    """The first parameters may have any names, but all must be there."""
    assert has_exactly(lambda y, x: 0, ["out", "x"], [], 1)
    check_parameters("rule", lambda y, x=1: 0, ["out", "x"], [], free=1)
    with pytest.raises(co.RegistrationError):
        check_parameters("rule", lambda y, z: 0, ["out", "x"], [], free=1)


@pytest.mark.parametrize("fn", [np.sin, max], ids=["ufunc", "builtin"])
def test_functions_without_a_signature_pass(fn: Any) -> None:
    """Built-in functions without a signature are accepted."""
    assert parameters_of(fn) is None
    check_parameters("rule", fn, ["x"], [])
