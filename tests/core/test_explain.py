"""`op.explain(...)`: what a call takes, and why not the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([1.0, 2.0, 3.0])


def at(fn: Callable[..., Any]) -> str:
    """File and line of a function of this module."""
    return f"{__file__}:{fn.__code__.co_firstlineno}"


def cpu(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    return x * k


def default(x: Any, k: float) -> Any:
    return x * k


def wrapper(x: Any, k: float) -> Any:
    return x * k


def fake(x: Any, k: float) -> Any:
    return co.fake_like(x)


def backward(ctx: Any, grad: Any) -> Any:
    return grad, None


def batch(info: Any, in_dims: Any, x: Any, k: float) -> Any:
    return x * k, in_dims[0]


def nested(xs: list[np.ndarray], named: dict[str, np.ndarray]) -> np.ndarray:
    return np.zeros(3)


def body(x: Any, k: float) -> Any:
    return np.multiply(x, k)


@pytest.fixture
def op() -> Iterator[co.Operator[..., Any]]:
    """Make an operator with many rows, and take it back."""
    with co.Library("explain_test", "DEF") as lib:
        lib.define("f(Array x, float k=2.0) -> Array")
        lib.impl("f", cpu, "CPU")
        lib.impl("f", default, "default")
        lib.impl("f", fake, "Meta")
        lib.impl("f", co.Formula(backward, None), "Autograd")
        lib.impl("f", batch, "vmap")
        yield co.ops.explain_test.f.default


CALL = (
    "explain_test::f(f64[3], 2.0)\n  explain_test::f(Array x, float k=2.0) -> Array\n"
)


def test_a_call_on_arrays(op: Any) -> None:
    """The kernel of their kind is taken; the rest say what they wait for."""
    assert str(op.explain(X)) == (
        CALL
        + f"  takes the kernel for 'cpu' from {at(cpu)}: 'x' is an array of the kind"
        " 'cpu'\n"
        f"  not the default kernel from {at(default)}: 'cpu' has its own kernel\n"
        f"  not the fake kernel from {at(fake)}: no argument is a FakeArray\n"
        f"  not the autograd rule from {at(backward)}: no argument is a value of"
        " autograd\n"
        f"  not the vmap rule from {at(batch)}: no argument is a value of vmap"
    )


def test_fields(op: Any) -> None:
    """What is printed stands in fields too."""
    why = op.explain(X, k=3)
    assert why.call == "explain_test::f(f64[3], 3.0)"
    assert why.schema == "explain_test::f(Array x, float k=2.0) -> Array"
    assert why.taken == co.Candidate(
        "kernel for 'cpu'", "'x' is an array of the kind 'cpu'", at(cpu), cpu
    )
    assert why.error is None
    assert [other.fn for other in why.others[:2]] == [default, fake]


def test_nothing_runs() -> None:
    """Explaining calls no kernel."""
    calls: list[int] = []

    def kernel(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return x.copy()

    op = co.custom_op("explain_test_quiet::f", kernel, mutates_args=())
    op.explain(X)
    assert calls == []


def test_a_hidden_registration_names_the_one_above(op: Any) -> None:
    """A registration that a newer one covers says which."""
    with co.Library("explain_test", "IMPL") as lib:
        lib.impl("f", wrapper, "CPU")
        why = op.explain(X)
    assert why.taken.place == at(wrapper)
    hidden = f"kernel for 'cpu' from {at(cpu)}: hidden by the one at {at(wrapper)}"
    assert hidden in [str(other) for other in why.others]


def taken(op: Any, *args: Any) -> Any:
    """Explain a call inside a transform, and give what it takes."""
    return op.explain(*args).taken


def test_a_tracked_value_takes_the_formula(op: Any) -> None:
    """Under a gradient the autograd rule is taken, and the kernels come after."""
    seen = []
    co.grad(lambda x: (seen.append(op.explain(x)), op(x).sum())[1])(X)
    (why,) = seen
    assert why.taken.name == "autograd rule"
    assert why.taken.why.startswith("'x' is a value of autograd (level ")
    (kernel,) = [other for other in why.others if other.fn is cpu]
    assert kernel.why.startswith("autograd (level ")
    assert kernel.why.endswith(") comes first")


def test_a_row_takes_the_batching_rule(op: Any) -> None:
    """Under vmap the batching rule is taken."""
    seen: list[Any] = []
    co.vmap(lambda x: (seen.append(taken(op, x)), op(x))[1])(np.ones((2, 3)))
    assert (seen[0].name, seen[0].fn) == ("vmap rule", batch)


def test_the_innermost_transform_comes_first(op: Any) -> None:
    """With several transforms the one of the highest level takes the call."""
    seen: list[Any] = []
    inner = co.grad(lambda x: (seen.append(taken(op, x)), op(x).sum())[1])
    co.vmap(inner)(np.ones((2, 3)))
    assert seen[0].name == "autograd rule"


def test_jvp_transposes_the_formula(op: Any) -> None:
    """Without a jvp rule the backward formula is transposed."""
    seen: list[Any] = []
    co.jvp(lambda x: (seen.append(taken(op, x)), op(x))[1], (X,), (X,))
    assert seen[0].name == "autograd rule"
    assert seen[0].why.endswith("; it is transposed for jvp")


def test_a_fake_array_takes_the_fake_kernel(op: Any) -> None:
    """Fake arrays and FakeMode take the fake kernel."""
    assert taken(op, co.fake_like(X)).fn is fake
    with co.FakeMode():
        why = taken(op, X)
    assert why.fn is fake
    assert why.why.endswith("is open")


def test_a_kind_without_a_kernel_takes_the_default(op: Any) -> None:
    """Kinds that have no kernel of their own take the default one."""
    other = co.custom_op(
        "explain_test_default::f",
        default,
        mutates_args=(),
        schema="(Array x, float k) -> Array",
    )
    found = taken(other, X, 1.0)
    assert found.name == "default kernel"
    assert (
        found.why
        == "'x' is an array of the kind 'cpu', which does not have its own kernel"
    )


def test_a_disabled_kernel_gives_way(op: Any) -> None:
    """A disabled kernel says so, and the operator's function is taken."""
    made = co.custom_op("explain_test_switch::f", cpu, mutates_args=())
    made.register_kernel("cpu", wrapper)
    with made.set_kernel_enabled("cpu", False):
        why = made.explain(X)
    assert why.taken is not None
    assert why.taken.name == "function that the operator was made from"
    assert why.taken.fn is cpu
    assert [(c.fn, c.why) for c in why.others if c.fn is wrapper] == [
        (wrapper, "it is disabled")
    ]


def test_a_body_is_taken_where_there_is_no_rule() -> None:
    """Transforms see into the body of an operator without rules, arrays run it."""
    with co.Library("explain_test_body", "DEF") as lib:
        lib.define("f(Array x, float k=2.0) -> Array")
        lib.impl("f", body)
        f = co.ops.explain_test_body.f.default
        assert taken(f, X).name == "composite body"
        assert taken(f, X).why.endswith("of the kind 'cpu', which has no kernel")
        seen: list[Any] = []
        co.grad(lambda x: (seen.append(taken(f, x)), f(x).sum())[1])(X)
        assert seen[0].fn is body
        end = "which has no rule for the operator and so sees into its body"
        assert seen[0].why.endswith(end)


def test_derived_rules_say_so() -> None:
    """A rule that a tag gives is named as derived."""
    made = co.custom_op(
        "explain_test_tag::f", cpu, mutates_args=(), tags=co.Tag.pointwise
    )
    seen: list[Any] = []
    co.vmap(lambda x: (seen.append(taken(made, x)), made(x))[1])(X)
    assert seen[0].name == "vmap rule"
    assert seen[0].why.endswith("; derived by its tags")
    assert seen[0].place == ""


def test_no_rule_is_a_loop_under_vmap() -> None:
    """Without a batching rule the rows are looped over."""
    made = co.custom_op("explain_test_loop::f", cpu, mutates_args=())
    seen: list[Any] = []
    co.vmap(lambda x: (seen.append(taken(made, x)), x)[1])(X)
    assert seen[0].name == "loop over the rows"


def test_a_fallback_is_named() -> None:
    """A fallback for all operators is named as one."""

    def every(op: Any, x: Any) -> Any:
        return x + 1

    with (
        co.Library("explain_test_every", "DEF") as lib,
        co.Library("_", "IMPL", "CPU") as all_of_them,
    ):
        lib.define("f(Array x) -> Array")
        all_of_them.fallback(every)
        found = taken(co.ops.explain_test_every.f.default, X)
    assert (found.name, found.place) == ("fallback for 'cpu'", at(every))


def test_a_call_that_would_raise_says_what() -> None:
    """Where nothing can run, the error of the call is the explanation."""
    made = co.custom_op(
        "explain_test_cuda::f", cpu, mutates_args=(), device_types="cuda"
    )
    why = made.explain(X)
    assert why.taken is None
    assert isinstance(why.error, co.MissingRuleError)
    assert str(why) == (
        "explain_test_cuda::f(f64[3], 2.0)\n"
        "  explain_test_cuda::f(Array x, float k=2.0) -> Array\n"
        "  raises explain_test_cuda::f has no kernel for 'cpu'; it has 'cuda'\n"
        "      explain_test_cuda::f(Array x, float k=2.0) -> Array\n"
        f"      at {at(cpu)}\n"
        '      do: @f.register_kernel("cpu")\n'
        f"  not the kernel for 'cuda' from {at(cpu)}: no argument is an array of the kind"
        " 'cuda'"
    )


def test_a_missing_formula_is_an_error() -> None:
    """Under a gradient an operator without a formula says so."""
    made = co.custom_op("explain_test_missing::f", cpu, mutates_args=())
    seen: list[Any] = []
    co.grad(lambda x: (seen.append(made.explain(x)), x.sum())[1])(X)
    assert seen[0].taken is None
    assert str(seen[0].error).startswith(
        "explain_test_missing::f has no 'autograd' rule"
    )


@pytest.mark.parametrize("args", [("a",), (X, "b"), (), (X, 1.0, 2.0)])
def test_arguments_that_do_not_fit_raise(op: Any, args: Any) -> None:
    """Arguments that no call could have raise as the call would."""
    with pytest.raises(TypeError) as of_call:
        op(*args)
    with pytest.raises(TypeError) as of_explain:
        op.explain(*args)
    assert str(of_explain.value) == str(of_call.value)


def test_an_operator_without_arrays() -> None:
    """A factory is explained by its device."""
    made = co.custom_op(
        "explain_test_zeros::f",
        lambda n, device: np.zeros(n),
        mutates_args=(),
        schema='(int n, device device="cpu") -> Array',
        device_types="cpu",
    )
    assert taken(made, 3).why == "'device' names the kind 'cpu'"


def test_arrays_within_others_are_shown_in_short() -> None:
    """Lists and dicts show dtypes and shapes, not the numbers of their arrays."""
    op = co.custom_op("explain_test_nested::f", nested, mutates_args=())
    why = op.explain([np.ones(100), X], {"a": X})
    assert why.call == "explain_test_nested::f([f64[100], f64[3]], {'a': f64[3]})"
