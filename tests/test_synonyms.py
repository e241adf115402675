"""Names of other libraries: errors name what is here, by meaning."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.synonyms import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    """The error for a name of another library says what to write."""
    with pytest.raises(AttributeError) as caught:
        getattr(co, name)
    assert str(caught.value) == (
        f"module 'customop' has no attribute '{name}'\n  do: write {NAMES[name]}"
    )


def test_advice_names_what_there_is() -> None:
    """Every `co.name` of the advice is a public name, with the attributes in the advice."""
    found = re.findall(r"\bco\.(\w+)(?:\.(\w+))?", " ".join(NAMES.values()))
    assert len(found) > 25
    for name, attribute in found:
        assert name in co.__all__
        assert not attribute or hasattr(getattr(co, name), attribute)
    assert not {*NAMES} & {*co.__all__}


def test_advice_for_other_names_is_by_spelling() -> None:
    """Names that are near to one of ours, and names that are near to none."""
    with pytest.raises(AttributeError, match=r"'grda' \(did you mean 'grad'\?\)$"):
        getattr(co, "grda")  # noqa: B009  # type checkers know the names
    with pytest.raises(AttributeError, match=r"no attribute 'qqqq'$"):
        getattr(co, "qqqq")  # noqa: B009  # as above


@pytest.mark.parametrize(
    ("make", "theirs", "ours"),
    [
        (co.grad, "argnum", "argnums"),
        (co.value_and_grad, "argnum", "argnums"),
        (co.jacrev, "argnum", "argnums"),
        (co.jacfwd, "argnum", "argnums"),
        (co.hessian, "argnum", "argnums"),
        (co.vmap, "in_axes", "in_dims"),
        (co.vmap, "out_axes", "out_dims"),
    ],
)
def test_parameters(make: Callable[..., Any], theirs: str, ours: str) -> None:
    """The error for a parameter of another library names ours, with the value."""
    with pytest.raises(co.ArgumentError) as caught:
        make(np.sin, **{theirs: 1})
    assert str(caught.value) == (
        f"{make.__name__} has no parameter '{theirs}'\n  do: write {ours}=1"
    )
    assert isinstance(caught.value, TypeError)
    assert ours in inspect.signature(make).parameters


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ("static_argnums", "leave it out: what is not an array is a constant"),
        ("static_argnames", "leave it out: what is not an array is a constant"),
        ("donate_argnums", "leave it out"),
        ("fullgraph", "fallback=True"),
        ("dynamic", 'sizes={"x": ("n", None)}'),
    ],
)
def test_parameters_that_have_no_counterpart(theirs: str, words: str) -> None:
    """The error says why they are not needed, and a call without them does it."""
    with pytest.raises(co.ArgumentError, match=re.escape(words)) as caught:
        co.compile(np.sin, **{theirs: 1})  # type: ignore[call-overload]
    assert str(caught.value).startswith(f"compile has no parameter '{theirs}'\n")


def test_other_parameters_are_pythons_error() -> None:
    """A parameter that no library has is refused as Python refuses it."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'argument'"):
        co.grad(np.sum, argument=1)  # type: ignore[call-overload]
