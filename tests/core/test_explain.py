"""`op.explain(...)`: which kernel or rule a call uses, and why."""

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
    """Make an operator with many rows, and remove it."""
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
    """The kernel of the arrays' kind is used; the others say when they would be."""
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
    """The explanation has fields with the printed facts."""
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
    """A covered registration names the newer one."""
    with co.Library("explain_test", "IMPL") as lib:
        lib.impl("f", wrapper, "CPU")
        why = op.explain(X)
    assert why.taken.place == at(wrapper)
    hidden = f"kernel for 'cpu' from {at(cpu)}: hidden by the one at {at(wrapper)}"
    assert hidden in [str(other) for other in why.others]


def taken(op: Any, *args: Any) -> Any:
    """Explain a call inside a transform, and return the name of the chosen row."""
    return op.explain(*args).taken


def test_a_tracked_value_takes_the_formula(op: Any) -> None:
    """While gradients are computed, the autograd rule is used before the kernels."""
    seen = []
    co.grad(lambda x: (seen.append(op.explain(x)), op(x).sum())[1])(X)
    (why,) = seen
    assert why.taken.name == "autograd rule"
    assert why.taken.why == "'x' is a value of grad(<lambda>)"
    (kernel,) = [other for other in why.others if other.fn is cpu]
    assert kernel.why == "grad(<lambda>) comes first"


def test_a_row_takes_the_batching_rule(op: Any) -> None:
    """Under vmap, the batching rule is used."""
    seen: list[Any] = []
    co.vmap(lambda x: (seen.append(taken(op, x)), op(x))[1])(np.ones((2, 3)))
    assert (seen[0].name, seen[0].fn) == ("vmap rule", batch)


def test_the_innermost_transform_comes_first(op: Any) -> None:
    """Of several transforms, the one with the highest level handles the call."""
    seen: list[Any] = []
    inner = co.grad(lambda x: (seen.append(taken(op, x)), op(x).sum())[1])
    co.vmap(inner)(np.ones((2, 3)))
    assert seen[0].name == "autograd rule"


def test_jvp_transposes_the_formula(op: Any) -> None:
    """Without a jvp rule, the backward formula is transposed."""
    seen: list[Any] = []
    co.jvp(lambda x: (seen.append(taken(op, x)), op(x))[1], (X,), (X,))
    assert seen[0].name == "autograd rule"
    assert seen[0].why.endswith("; it is transposed for jvp")


def test_a_fake_array_takes_the_fake_kernel(op: Any) -> None:
    """Fake arrays and FakeMode use the fake kernel."""
    assert taken(op, co.fake_like(X)).fn is fake
    with co.FakeMode():
        why = taken(op, X)
    assert why.fn is fake
    assert why.why.endswith("is open")


def test_a_kind_without_a_kernel_takes_the_default(op: Any) -> None:
    """Kinds without a kernel use the default kernel."""
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
    """While a kernel is disabled, the operator's function is used."""
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
    """Without other rules, arrays and transforms use the body."""
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


DERIVED: dict[str, tuple[dict[str, Any], str]] = {
    "pointwise": ({"tags": co.Tag.pointwise}, "tags"),
    "reduction": (
        {"schema": "(Array x, int axis=0) -> Array", "tags": co.Tag.reduction},
        "tags",
    ),
    "shapes": ({"schema": "(Array[..., n] x) -> Array[..., n]"}, "shapes"),
}
FUNCTIONS: dict[str, Any] = {
    "pointwise": cpu,
    "reduction": lambda x, axis: np.sum(x, axis),
    "shapes": np.negative,
}


@pytest.mark.parametrize("name", DERIVED)
def test_derived_rules_say_so(name: str) -> None:
    """A rule that follows from a tag or from shapes is shown as derived."""
    arguments, source = DERIVED[name]
    qualname = f"explain_test_derived::{name}"
    made = co.custom_op(qualname, FUNCTIONS[name], mutates_args=(), **arguments)
    seen: list[Any] = []
    co.vmap(lambda x: (seen.append(taken(made, x)), made(x))[1])(np.ones((2, 3)))
    assert seen[0].name == "vmap rule"
    assert seen[0].why.endswith(f"; derived by its {source}")
    assert seen[0].place == ""


def test_no_rule_is_a_loop_under_vmap() -> None:
    """Without a batching rule, vmap loops over the rows."""
    made = co.custom_op("explain_test_loop::f", cpu, mutates_args=())
    seen: list[Any] = []
    co.vmap(lambda x: (seen.append(taken(made, x)), x)[1])(X)
    assert seen[0].name == "loop over the rows"


def test_a_fallback_is_named() -> None:
    """A fallback for all operators is shown as a fallback."""

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
    """If nothing can run, the explanation shows the error of the call."""
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
    """Without a formula, the explanation shows the error of the gradient."""
    made = co.custom_op("explain_test_missing::f", cpu, mutates_args=())
    seen: list[Any] = []
    co.grad(lambda x: (seen.append(made.explain(x)), x.sum())[1])(X)
    assert seen[0].taken is None
    assert str(seen[0].error).startswith(
        "explain_test_missing::f has no 'autograd' rule"
    )


@pytest.mark.parametrize("args", [("a",), (X, "b"), (), (X, 1.0, 2.0)])
def test_arguments_that_do_not_fit_raise(op: Any, args: Any) -> None:
    """Wrong arguments raise the same error as the call."""
    with pytest.raises(TypeError) as of_call:
        op(*args)
    with pytest.raises(TypeError) as of_explain:
        op.explain(*args)
    assert str(of_explain.value) == str(of_call.value)


def test_an_operator_without_arrays() -> None:
    """For an operator without arrays, the device decides."""
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
