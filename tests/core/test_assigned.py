"""Attributes that cannot be assigned, since nothing would follow, or all would break."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co


@co.custom_op("assigned::scale", mutates_args=())
def scale(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    """Multiply."""
    return x * k


@pytest.mark.parametrize("name", ["name", "qualname", "schema", "tags", "namespace"])
def test_what_a_definition_says(name: str) -> None:
    before = getattr(scale, name)
    with pytest.raises(co.RegistrationError) as error:
        setattr(scale, name, "other")
    assert f"assigned::scale: the attribute '{name}' cannot be" in str(error.value)
    assert str(error.value).endswith("do: define another operator")
    assert getattr(scale, name) == before


def test_a_method_that_is_assigned_in_place_of_being_called() -> None:
    op: Any = scale
    with pytest.raises(co.RegistrationError, match=r"do: call it: op.register_fake\("):
        op.register_fake = lambda x, k: co.fake_like(x)
    op.note = "users may keep notes"
    assert op.note == "users may keep notes"


@pytest.mark.parametrize("name", ["call", "run", "invoke"])
def test_the_functions_that_a_call_runs(name: str) -> None:
    """A call does not look at them, and a graph does: they would differ in silence."""
    op: Any = co.custom_op(
        "assigned::twice",
        lambda x: x * 2.0,
        schema="(Array x) -> Array",
        mutates_args=(),
    )
    for _ in range(2):  # before the first call, and after it
        with pytest.raises(
            co.RegistrationError, match=r"do: register a kernel"
        ) as error:
            setattr(op, name, lambda *args: 0.0)
        assert f"the attribute '{name}' cannot be assigned" in str(error.value)
        np.testing.assert_array_equal(op(np.ones(2)), [2.0, 2.0])
        np.testing.assert_array_equal(op.invoke([np.ones(2)]), [2.0, 2.0])


def test_two_kinds_of_one_name() -> None:
    """Messages could not tell them apart; on other operators they do not meet."""
    first, second = co.RuleKind("adjoint"), co.RuleKind("adjoint")
    op = co.custom_op(
        "assigned::turn",
        lambda x: x.copy(),
        schema="(Array x) -> Array",
        mutates_args=(),
    )
    op.register(first, lambda g: g)
    with pytest.raises(co.RegistrationError) as error:
        op.register(second, lambda g: g * 2.0)
    lines = str(error.value).splitlines()
    assert "has a rule of another kind that is called 'adjoint' too, from" in lines[0]
    assert "test_assigned.py" in lines[0]
    assert lines[-1].endswith(
        "do: use the first RuleKind, or give the second one another name"
    )
    assert op.rule(first) is not None
    other = co.custom_op(
        "assigned::back",
        lambda x: x.copy(),
        schema="(Array x) -> Array",
        mutates_args=(),
    )
    other.register(second, lambda g: g)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("vmap", r"op.register_vmap\(fn\)"),
        ("fake", r"op.register_fake\(fn\)"),
        ("cpu", r'op.register_kernel\("cpu", fn\)'),
    ],
)
def test_a_kind_by_the_name_of_one_that_exists(name: str, instead: str) -> None:
    with pytest.raises(
        co.RegistrationError, match=rf"'{name}' is the name of a rule"
    ) as e:
        co.RuleKind(name)
    e.match(instead)


def test_another_graph_of_a_module_is_what_it_runs() -> None:
    x = np.ones(2)
    module, other = co.make_fx(np.sin)(x), co.make_fx(np.cos)(x)
    np.testing.assert_array_equal(module(x), np.sin(x))
    module.graph = other.graph
    np.testing.assert_array_equal(module(x), np.cos(x))
    unknown: Any = "cos"
    with pytest.raises(
        co.ArgumentError, match=r"sin.graph is str 'cos', must be a Graph"
    ):
        module.graph = unknown


def test_the_back_end_of_a_compiled_function() -> None:
    f: Any = co.compile(np.sin)
    with pytest.raises(AttributeError, match="backend"):
        f.backend = "eager"
