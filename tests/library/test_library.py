"""Libraries: defining by schema, registering by key, and taking it all back."""
# ruff: noqa: ISC004 - a message stands in the table line by line

from __future__ import annotations

import gc
import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([0.5, 1.0, 2.0])
_numbers = itertools.count()


def line(offset: int = 0) -> str:
    """File and line of the caller, or one some lines away."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + offset}"


def at(fn: Callable[..., Any]) -> str:
    """File and line of a function of this module."""
    return f"{__file__}:{fn.__code__.co_firstlineno}"


@pytest.fixture
def lib() -> Iterator[co.Library]:
    """Open a library with a namespace of its own, and close it."""
    with co.Library(f"libtest{next(_numbers)}", "DEF") as made:
        yield made


def operator(lib: co.Library, name: str) -> co.Operator[..., Any]:
    """Return an operator of a library."""
    found = getattr(getattr(co.ops, lib.ns), name).default
    assert isinstance(found, co.Operator)
    return found


class Toy:
    """An array of a kind of its own."""

    def __init__(self, base: Any) -> None:
        self.base = base
        self.shape = base.shape
        self.dtype = base.dtype
        self.ndim = base.ndim


# ---- define ----


@pytest.mark.parametrize(
    ("text", "name", "schema"),
    [
        ("f(Array x) -> Array", "f", "(Array x) -> Array"),
        ("f.out(Tensor x) -> Tensor", "f.out", "(Array x) -> Array"),
        (" f (Array x, float k=2.0)->Array", "f", "(Array x, float k=2.0) -> Array"),
        ("f(Array(a!) x, *, int n=1) -> ()", "f", "(Array(a!) x, *, int n=1) -> ()"),
    ],
)
def test_define_reads_name_and_schema(
    lib: co.Library, text: str, name: str, schema: str
) -> None:
    """A definition is a name, with an overload or without, and a schema."""
    assert lib.define(text) == name
    base, _, overload = name.partition(".")
    packet = getattr(getattr(co.ops, lib.ns), base)
    assert str(getattr(packet, overload or "default").schema) == schema


def test_define_takes_its_namespace(lib: co.Library) -> None:
    """The name may have the namespace in front."""
    assert lib.define(f"{lib.ns}::f(Array x) -> Array") == "f"
    assert operator(lib, "f").qualname == f"{lib.ns}::f"


def test_define_takes_tags(lib: co.Library) -> None:
    """Tags are those of the operator."""
    lib.define("f(Array x) -> Array", tags=co.Tag.pointwise)
    assert co.Tag.pointwise in operator(lib, "f").tags


def test_a_defined_operator_has_a_signature(lib: co.Library) -> None:
    """`inspect.signature` shows the parameters of the schema."""
    lib.define("f(Array x, /, float k=2.0, *, int? n=None) -> Array")
    op = operator(lib, "f")
    assert str(inspect.signature(op)) == "(x, /, k=2.0, *, n=None)"
    assert op.__name__ == "f"
    assert op.__doc__ == f"{op.qualname}{op.schema}"


def test_conservative_aliases_are_allowed(lib: co.Library) -> None:
    """With alias_analysis="CONSERVATIVE" a result may be an argument."""
    lib.define("strict(Array x) -> Array")
    lib.define("loose(Array x) -> Array", "CONSERVATIVE")
    for name in ("strict", "loose"):
        lib.impl(name, lambda x: x, "CPU")
    with pytest.raises(co.ContractError):
        operator(lib, "strict")(X)
    assert operator(lib, "loose")(X) is X


def test_free_define_and_impl_in_call_form(lib: co.Library) -> None:
    """`define` and `impl` take a qualified name and a library."""
    name = f"{lib.ns}::free"
    op = co.define(name, "(Array x) -> Array", lib=lib, tags=[co.Tag.pointwise])
    assert co.impl(name, "CPU", lambda x: x + 1, lib=lib) is None
    np.testing.assert_array_equal(op(X), X + 1)
    assert co.Tag.pointwise in op.tags


def test_free_impl_in_decorator_form(lib: co.Library) -> None:
    """Without a function `impl` is a decorator that returns its function."""
    op = co.define(f"{lib.ns}::free", "(Array x) -> Array", lib=lib)

    def kernel(x: Any) -> Any:
        return x * 2

    assert co.impl(op, ("cpu", "CUDA"), lib=lib)(kernel) is kernel
    np.testing.assert_array_equal(op(X), X * 2)
    assert co.get_kernel(op, "cuda") is kernel


def test_a_library_as_first_argument_decorates(lib: co.Library) -> None:
    """`define(lib, ...)` and `impl(lib, ...)` are decorators."""

    @co.define(lib, "f(Array x) -> Array")
    def body(x: Any) -> Any:
        return np.exp(x)

    @co.impl(lib, "f", "CPU")
    def kernel(x: Any) -> Any:
        return x - 1

    op = operator(lib, "f")
    np.testing.assert_array_equal(op(X), X - 1)
    np.testing.assert_allclose(co.grad(lambda x: op(x).sum())(X), np.exp(X))
    assert co.get_kernel(op, "CompositeImplicitAutograd") is body


# ---- keys ----


def one(x: Any) -> Any:
    return x * 0 + 1


@pytest.mark.parametrize(
    ("key", "row"),
    [
        ("CPU", "cpu"),
        ("cpu", "cpu"),
        ("CUDA", "cuda"),
        ("Cuda", "cuda"),
        ("Meta", "fake"),
        ("CompositeExplicitAutograd", "default"),
        ("compositeexplicitautograd", "default"),
        ("default", "default"),
    ],
)
def test_a_key_names_a_kind_of_array(lib: co.Library, key: str, row: str) -> None:
    """Names of backends in torch, in any letter case, are names of our kinds."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, key)
    assert [k for k in operator(lib, "f").rows if isinstance(k, str)] == [row]


@pytest.mark.usefixtures("built_in_kinds")
def test_a_registered_kind_is_a_key(lib: co.Library) -> None:
    """A kind of array from `register_array_type` is a key as it is."""
    co.register_array_type("libtoy", Toy)
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: Toy(x.base * 3), "libtoy")
    np.testing.assert_array_equal(operator(lib, "f")(Toy(X)).base, X * 3)


def test_a_rule_kind_is_a_key(lib: co.Library) -> None:
    """A RuleKind registers for itself."""
    inverse = co.RuleKind("inverse", takes="(out, *inputs)")
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda out, x: np.log(out), inverse)
    np.testing.assert_array_equal(operator(lib, "f").rule(inverse)(X, None), np.log(X))


def test_the_key_of_a_library_is_the_default() -> None:
    """`impl` without a key registers for the key of the library."""
    with co.Library(f"libtest{next(_numbers)}", "DEF", "CPU") as lib:
        lib.define("f(Array x) -> Array")
        lib.impl("f", one)
        assert [*operator(lib, "f").rows] == ["cpu"]


# ---- CompositeImplicitAutograd: a body that everything sees ----


class Watch(co.Mode):
    """Notes the operators that it sees."""

    kind = co.RuleKind("watch")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def process(self, op: Any, args: Any) -> Any:
        self.seen.append(op.qualname)
        return op.invoke(args)


@pytest.fixture
def composite(lib: co.Library) -> co.Operator[..., Any]:
    """Return k sin(x), whose body is made of operators."""
    lib.define("ksin(Array x, *, float k=2.0) -> Array")
    lib.impl("ksin", lambda x, k: np.sin(x) * k)
    return operator(lib, "ksin")


def test_a_composite_body_is_a_kernel(composite: Any) -> None:
    """Called plainly, the body computes."""
    np.testing.assert_allclose(composite(X, k=3.0), 3 * np.sin(X))


def test_a_composite_body_is_differentiated(composite: Any) -> None:
    """Gradients flow through the body, to any order, backward and forward."""
    total = lambda x: composite(x).sum()
    np.testing.assert_allclose(co.grad(total)(X), 2 * np.cos(X))
    np.testing.assert_allclose(co.hessian(total)(X), np.diag(-2 * np.sin(X)))
    _, tangent = co.jvp(composite, (X,), (np.ones(3),))
    np.testing.assert_allclose(tangent, 2 * np.cos(X))


def test_a_composite_body_is_differentiated_by_a_tape(composite: Any) -> None:
    """A variable's gradient flows through the body."""
    x = co.variable(X)
    composite(x).sum().backward()
    np.testing.assert_allclose(x.grad, 2 * np.cos(X))


def test_a_composite_body_is_batched(composite: Any) -> None:
    """Vmap sees the body, without a rule and without a loop."""
    rows = np.arange(6.0).reshape(3, 2)
    out = co.vmap(composite, in_dims=1, out_dims=1)(rows)
    np.testing.assert_allclose(out, 2 * np.sin(rows))


def test_a_composite_body_is_nested(composite: Any) -> None:
    """Transforms nest through the body."""
    slopes = co.vmap(co.grad(lambda x: composite(x, k=3.0)))(X)
    np.testing.assert_allclose(slopes, 3 * np.cos(X))


def test_a_composite_body_has_a_shape(composite: Any) -> None:
    """Fake arrays go through the body."""
    assert co.eval_shape(composite, X).shape == (3,)
    assert composite(co.fake_like(X)).shape == (3,)


def test_a_mode_sees_the_inner_operators(lib: co.Library) -> None:
    """A mode is given the operators of the body in place of the whole."""
    np_ops = co.ops.np
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: np_ops.multiply(np_ops.sin(x), x))
    with Watch() as watch:
        operator(lib, "f")(X)
    assert watch.seen == ["np::sin", "np::multiply"]


def test_a_composite_body_without_arrays_is_fake_under_a_mode(lib: co.Library) -> None:
    """Under FakeMode the operators of a body are fake, though no argument is."""
    lib.define("pair(int n) -> Array")
    lib.impl("pair", lambda n: co.ops.np.sin(np.zeros(n)))
    with co.FakeMode():
        out = operator(lib, "pair")(4)
    assert isinstance(out, co.FakeArray)
    assert out.shape == (4,)


def test_an_own_rule_comes_before_the_body(lib: co.Library) -> None:
    """A transform takes the operator's own rule where there is one."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: np.sin(x))
    f = operator(lib, "f")
    lib.impl("f", co.Formula(lambda ctx, g: g * 7.0, None), "Autograd")
    np.testing.assert_array_equal(co.grad(lambda x: f(x).sum())(X), [7.0] * 3)
    lib.impl("f", lambda info, in_dims, x: (x * 5.0, in_dims[0]), "FuncTorchBatched")
    np.testing.assert_array_equal(co.vmap(f)(X), X * 5)
    lib.impl("f", lambda x: x * 11.0, "CPU")
    np.testing.assert_array_equal(f(X), X * 11)
    lib.impl("f", lambda x: co.fake_like(x, shape=(9,)), "Meta")
    assert co.eval_shape(f, X).shape == (9,)


def test_a_jvp_takes_the_formula_before_the_body(lib: co.Library) -> None:
    """A backward formula says what the derivative is, forward as well."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: np.sin(x))
    lib.impl("f", co.Formula(lambda ctx, g: g * 7.0, None), "Autograd")
    _, tangent = co.jvp(operator(lib, "f"), (X,), (np.ones(3),))
    np.testing.assert_array_equal(tangent, [7.0] * 3)


def test_a_default_kernel_comes_before_the_body(lib: co.Library) -> None:
    """Arrays take the default kernel, transforms the body."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: np.sin(x))
    lib.impl("f", lambda x: np.sin(x) + 100.0, "CompositeExplicitAutograd")
    f = operator(lib, "f")
    np.testing.assert_array_equal(f(X), np.sin(X) + 100)
    np.testing.assert_allclose(co.grad(lambda x: f(x).sum())(X), np.cos(X))


def test_a_body_registered_late_is_seen(lib: co.Library) -> None:
    """A call that was generated before there was a body sees into it after."""
    lib.define("f(Array x) -> Array")
    f = operator(lib, "f")
    lib.impl("f", lambda x: np.sin(x), "CPU")
    call = f.compile()
    f(X)
    with co.Library(lib.ns, "IMPL") as body:
        body.impl("f", lambda x: np.cos(x))
        got = co.grad(lambda x: call(x).sum())(X)
        np.testing.assert_allclose(got, -np.sin(X))
    with pytest.raises(co.MissingRuleError, match="no 'autograd' rule"):
        co.grad(lambda x: call(x).sum())(X)


def test_a_body_is_checked_under_a_transform(lib: co.Library) -> None:
    """What a body returns under a transform fits the schema, or it is an error."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: (x, x))
    f = operator(lib, "f")
    with pytest.raises(co.ContractError, match="returns output 0"):
        co.grad(lambda x: f(x).sum())(X)


# ---- Autograd: a function in place of the operator ----


def test_an_autograd_function_stands_in_place_of_the_operator(
    lib: co.Library,
) -> None:
    """Under a gradient the function is called on the tracked values."""
    lib.define("f(Array x, Array[] ys, *, float k=2.0) -> Array")
    lib.impl("f", lambda x, ys, k: x * 0, "CPU")
    lib.impl("f", lambda x, ys, k: np.sin(x) * ys[0] * ys[1] * k, "Autograd")
    f = operator(lib, "f")
    np.testing.assert_array_equal(f(X, [X, X]), X * 0)

    def total(x: Any, y: Any) -> Any:
        return f(x, [y, X], k=3.0).sum()

    dx, dy = co.grad(total, argnums=(0, 1))(X, X)
    np.testing.assert_allclose(dx, 3 * np.cos(X) * X * X)
    np.testing.assert_allclose(dy, 3 * np.sin(X) * X)


def test_an_autograd_function_serves_jvp(lib: co.Library) -> None:
    """Forward mode differentiates the function too."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x * 0, "CPU")
    lib.impl("f", lambda x: np.sin(x), "Autograd")
    out, tangent = co.jvp(operator(lib, "f"), (X,), (np.ones(3),))
    np.testing.assert_allclose(out, np.sin(X))
    np.testing.assert_allclose(tangent, np.cos(X))


def test_below_an_autograd_function_is_the_operator_untracked(
    lib: co.Library,
) -> None:
    """With a keyset the operator below is called, and its result not tracked."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x * x, "CPU")
    lib.impl(
        "f", lambda below, x: below.redispatch(x) * x, "Autograd", with_keyset=True
    )
    f = operator(lib, "f")
    np.testing.assert_allclose(co.grad(lambda x: f(x).sum())(X), X * X)


def test_a_gradient_falls_through_untracked(lib: co.Library) -> None:
    """A fallthrough for Autograd runs the operator below and tracks nothing."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x * x, "CPU")
    lib.impl("f", co.fallthrough_kernel, "Autograd")
    f = operator(lib, "f")
    np.testing.assert_allclose(co.grad(lambda x: (f(x) * x).sum())(X), X * X)


def test_native_is_an_autograd_rule(lib: co.Library) -> None:
    """A rule of the package's own, such as `native`, stands in the row as it is."""
    op = co.custom_op(
        f"{lib.ns}::f",
        lambda x: np.sin(x),
        mutates_args=(),
        schema="(Array x) -> Array",
    )
    lib.impl("f", co.native, "Autograd")
    np.testing.assert_allclose(co.grad(lambda x: op(x).sum())(X), np.cos(X))


# ---- the newest counts; what is below comes back ----


def test_registrations_stack_and_come_back(lib: co.Library) -> None:
    """Closing a library brings back what was there before it."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x + 1, "CPU")
    f = operator(lib, "f")
    seen = [f(X) - X]
    with co.Library(lib.ns, "IMPL") as second:
        second.impl("f", lambda x: x + 2, "CPU")
        seen.append(f(X) - X)
    seen.append(f(X) - X)
    np.testing.assert_array_equal(seen, [[1] * 3, [2] * 3, [1] * 3])


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_libraries_close_in_any_order(lib: co.Library, order: Any) -> None:
    """At every moment the newest open registration counts, for every kind of rule."""
    lib.define("f(Array x) -> Array")
    lib.define("g(Array x) -> Array")
    f, g = operator(lib, "f"), operator(lib, "g")
    libraries = [co.Library(lib.ns, "IMPL") for _ in range(3)]
    for k, each in enumerate(libraries):
        each.impl("f", lambda x, k=k: x + k, "CPU")
        each.impl("g", lambda x, k=k: co.fake_like(x, shape=(k,)), "Meta")
        each.impl("f", co.Formula(lambda ctx, g, k=k: g * k, None), "Autograd")
        each.impl("f", lambda info, d, x, k=k: (x * k, 0), "FuncTorchBatched")
    still = {0, 1, 2}
    for k in order:
        newest = max(still)
        np.testing.assert_array_equal(f(X), X + newest)
        assert co.eval_shape(g, X).shape == (newest,)
        got = co.grad(lambda x: f(x).sum())(X)
        np.testing.assert_array_equal(got, [newest] * 3)
        np.testing.assert_array_equal(co.vmap(f)(X), X * newest)
        libraries[k].close()
        still.remove(k)
    with pytest.raises(co.MissingRuleError, match="no kernel for 'cpu'"):
        f(X)


def test_a_lasting_registration_goes_on_top(lib: co.Library) -> None:
    """What is registered without a library counts, and stays when others close."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    second = co.Library(lib.ns, "IMPL")
    second.impl("f", lambda x: x + 2, "CPU")
    op.register_kernel("cpu", lambda x: x + 3)
    np.testing.assert_array_equal(op(X), X + 3)
    second.close()
    np.testing.assert_array_equal(op(X), X + 3)


def test_a_lasting_registration_replaces_the_one_before(lib: co.Library) -> None:
    """Registered over and over, an operator keeps one kernel of a kind."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    for k in range(5):
        op.register_kernel("cpu", lambda x, k=k: x + k)
        op.register_kernel("cpu", lambda x, k=k: x - k)
    assert len(op.stacks["cpu"]) == 1


def test_a_closed_library_leaves_no_disabled_kernel(lib: co.Library) -> None:
    """A kernel that was disabled and has gone is not disabled when one comes back."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, "default")
    f = operator(lib, "f")
    with co.Library(lib.ns, "IMPL") as second:
        second.impl("f", lambda x: x + 2, "CPU")
        f.set_kernel_enabled("cpu", False)
        np.testing.assert_array_equal(f(X), np.ones(3))
    lib.impl("f", lambda x: x + 4, "CPU")
    np.testing.assert_array_equal(f(X), X + 4)


def test_below_is_the_registration_before(lib: co.Library) -> None:
    """With a keyset each registration calls the one it stands on."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x + 1, "CPU")
    lib.impl("f", lambda below, x: below(x) * 2, "CPU", with_keyset=True)
    lib.impl("f", lambda below, x: below.redispatch(x) ** 2, "CPU", with_keyset=True)
    np.testing.assert_array_equal(operator(lib, "f")(X), ((X + 1) * 2) ** 2)


@pytest.mark.parametrize("key", ["default", "CompositeImplicitAutograd"])
def test_below_the_first_kernel_is_the_general_one(lib: co.Library, key: str) -> None:
    """Below the only kernel of a kind are the default kernel and the body."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: np.sin(x), key)
    lib.impl("f", lambda below, x: below(x) * 2, "CPU", with_keyset=True)
    np.testing.assert_allclose(operator(lib, "f")(X), 2 * np.sin(X))


def test_below_a_batching_rule_is_the_rule_before(lib: co.Library) -> None:
    """A rule of any kind can stand on another."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, "CPU")
    lib.impl("f", lambda info, d, x: (x * 3.0, d[0]), "FuncTorchBatched")

    def doubled(below: Any, info: Any, d: Any, x: Any) -> Any:
        out, dim = below(info, d, x)
        return out * 2, dim

    lib.impl("f", doubled, "FuncTorchBatched", with_keyset=True)
    np.testing.assert_array_equal(co.vmap(operator(lib, "f"))(X), X * 6)


def test_what_is_below_may_close(lib: co.Library) -> None:
    """A wrapper goes on over what is left when what it stood on closes."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x + 1, "CPU")
    middle = co.Library(lib.ns, "IMPL")
    middle.impl("f", lambda below, x: below(x) + 10, "CPU", with_keyset=True)
    lib.impl("f", lambda below, x: below(x) * 2, "CPU", with_keyset=True)
    f = operator(lib, "f")
    np.testing.assert_array_equal(f(X), (X + 11) * 2)
    middle.close()
    np.testing.assert_array_equal(f(X), (X + 1) * 2)


def test_a_wrapper_registered_again_wraps_once(lib: co.Library) -> None:
    """A lasting wrapper from one line replaces itself: a cell may run again."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    for _ in range(3):
        co.impl(op, "default", lambda below, x: below(x) * 2, with_keyset=True)
    np.testing.assert_array_equal(op(X), [2.0] * 3)


def test_a_lasting_wrapper_stands_on_a_library(lib: co.Library) -> None:
    """A wrapper that stays calls a library's kernel until the library closes."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    second = co.Library(lib.ns, "IMPL")
    second.impl("f", lambda x: x + 2, "CPU")
    co.impl(op, "CPU", lambda below, x: below(x) * 2, with_keyset=True)
    np.testing.assert_array_equal(op(X), (X + 2) * 2)
    second.close()
    np.testing.assert_array_equal(op(X), [2.0] * 3)


def test_a_kernel_falls_through(lib: co.Library) -> None:
    """A fallthrough hides the kernel of a kind: the default one follows."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x + 1, "CPU")
    lib.impl("f", lambda x: x + 2, "default")
    lib.impl("f", co.fallthrough_kernel, "CPU")
    np.testing.assert_array_equal(operator(lib, "f")(X), X + 2)


# ---- registering by the free functions, for as long as a library is open ----


@pytest.mark.parametrize("decorating", [False, True])
@pytest.mark.parametrize(
    ("register", "before", "inside"),
    [
        (
            lambda op, lib, *fn: co.register_kernel(op, "cpu", *fn, lib=lib),
            lambda op: op(X)[0],
            (lambda x: x * 0 + 5, 5.0),
        ),
        (
            lambda op, lib, *fn: co.register_fake(op, *fn, lib=lib, override=True),
            lambda op: co.eval_shape(op, X).shape[0],
            (lambda x: co.fake_like(x, shape=(5,)), 5),
        ),
        (
            lambda op, lib, *fn: co.register_vmap(op, *fn, lib=lib, override=True),
            lambda op: co.vmap(op)(X)[0],
            (lambda info, d, x: (x * 0 + 5, 0), 5.0),
        ),
        (
            lambda op, lib, *fn: co.register_jvp(op, *fn, lib=lib, override=True),
            lambda op: co.jvp(op, (X,), (X,))[1][0],
            (lambda primals, tangents: (primals[0], tangents[0] * 10), 5.0),
        ),
    ],
)
def test_free_functions_register_for_a_library(
    lib: co.Library, register: Any, before: Any, inside: Any, decorating: bool
) -> None:
    """With `lib=` a registration goes when the library closes."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    op.register_fake(lambda x: co.fake_like(x))
    op.register_vmap(lambda info, d, x: (x, 0)).register_jvp(lambda p, t: (p[0], t[0]))
    rule, expected = inside
    was = before(op)
    with co.Library(lib.ns, "IMPL") as second:
        if decorating:
            assert register(op, second)(rule) is rule
        else:
            assert register(op, second, rule) is op
        assert before(op) == expected != was
    assert before(op) == was


def test_register_autograd_for_a_library(lib: co.Library) -> None:
    """A formula goes when its library closes."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    with co.Library(lib.ns, "IMPL") as second:

        def keep(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        given = co.register_autograd(
            op,
            lambda ctx, g: g * ctx.saved_arrays[0],
            setup_context=keep,
            lib=second,
        )
        assert given is op
        np.testing.assert_array_equal(co.grad(lambda x: op(x).sum())(X), X)
    with pytest.raises(co.MissingRuleError):
        co.grad(lambda x: op(x).sum())(X)


def test_register_any_kind_for_a_library(lib: co.Library) -> None:
    """A rule of a user's own kind goes when its library closes."""
    inverse = co.RuleKind("inverse", takes="(out, *inputs)")
    with co.Library("np", "IMPL") as second:
        co.register("np::sin", inverse, lambda out, x: np.arcsin(out), lib=second)
        assert co.ops.np.sin.default.find_rule(inverse) is not None
    assert co.ops.np.sin.default.find_rule(inverse) is None


class Marked(np.ndarray):
    """A class of arrays that rules are registered for."""


class More(np.ndarray):
    """Another one."""


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_rules_for_classes_close_in_any_order(lib: co.Library, order: Any) -> None:
    """Rules for classes of arrays stand beside each other, and go alone."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    op.register_array_dispatch(Marked, lambda op, args, kwargs: "lasting")
    first, second = co.Library(lib.ns, "IMPL"), co.Library(lib.ns, "IMPL")
    rule = lambda op, args, kwargs: "first"
    assert co.register_array_dispatch(op, Marked, rule, lib=first, override=True) is op
    decorate = co.register_array_dispatch(op, More, lib=second)
    decorate(lambda op, args, kwargs: "second")
    said = lambda cls: str(op(X.view(cls))[:7])
    expected = {0: "first", 1: "second"}
    for k in order:
        assert said(Marked) == expected.get(0, "lasting")
        assert said(More) == expected.get(1, "[1. 1. 1.]")
        (first, second)[k].close()
        del expected[k]
    assert (said(Marked), said(More)) == ("lasting", "[1. 1. 1.]")


def test_message_of_a_second_rule_for_a_class(lib: co.Library) -> None:
    """A class that has a rule from elsewhere keeps it, also against a library."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    rules = [
        lambda op, args, kwargs: "first",
        lambda op, args, kwargs: "second",
    ]
    op.register_array_dispatch(Marked, rules[0])
    with pytest.raises(co.RegistrationError) as caught:
        co.register_array_dispatch(op, Marked, rules[1], lib=lib)
    assert str(caught.value) == (
        f"{lib.ns}::f has a rule for {Marked.__module__}.Marked already, from"
        f" {at(rules[0])}\n"
        f"  the second is at {at(rules[1])}\n"
        "  do: remove one of them, or register with override=True"
    )


def test_autocast_for_a_library(lib: co.Library) -> None:
    """A dtype for autocast goes when its library closes; others stay."""
    op = co.custom_op(
        f"{lib.ns}::f", lambda x: x + 0, mutates_args=(), schema="(Array x) -> Array"
    )
    op.register_autocast("cuda", np.float16)
    with co.Library(lib.ns, "IMPL") as second:
        assert co.register_autocast(op, "cpu", np.float32, lib=second) is op
        with co.autocast("cpu"):
            assert op(X.astype(np.float16)).dtype == np.float32
    with co.autocast("cpu"):
        assert op(X.astype(np.float16)).dtype == np.float16


# ---- operators of others ----


def test_a_built_in_operator_is_extended(lib: co.Library) -> None:
    """NumPy's operators take registrations by name, and give them back."""
    # The public function does not pass through the operator; tracers do.
    sin = co.ops.np.sin.default
    with co.Library("np", "IMPL") as second:
        second.impl("sin", lambda below, x: below(x) + 1, "CPU", with_keyset=True)
        np.testing.assert_allclose(sin(X), np.sin(X) + 1)
        _, pullback = co.vjp(np.sin, X)
        np.testing.assert_allclose(pullback(np.ones(3))[0], np.cos(X))
    np.testing.assert_array_equal(sin(X), np.sin(X))


def test_get_kernel_gives_the_original_to_wrap(lib: co.Library) -> None:
    """A kernel that was fetched works on, whatever is registered or closed after."""
    sin = co.ops.np.sin.default
    original = co.get_kernel("np::sin", "CPU")
    second = co.Library("np", "IMPL")
    co.register_kernel("np::sin", "cpu", lambda x: original(x) * 2, lib=second)
    wrapped = co.get_kernel(sin, "cpu")
    np.testing.assert_array_equal(sin(X), 2 * np.sin(X))
    second.close()
    np.testing.assert_array_equal(sin(X), np.sin(X))
    np.testing.assert_array_equal(wrapped(X), 2 * np.sin(X))


@pytest.mark.parametrize(("key", "index"), [("Meta", 0), ("FuncTorchBatched", 1)])
def test_get_kernel_takes_any_key(lib: co.Library, key: str, index: int) -> None:
    """Fake kernels and rules are fetched by their keys."""
    rules: list[Any] = [lambda x: co.fake_like(x), lambda info, d, x: (x, 0)]
    lib.define("f(Array x) -> Array")
    lib.impl("f", rules[index], key)
    assert co.get_kernel(co.ops.__getattr__(lib.ns).f, key) is rules[index]


# ---- before the definition ----


def test_an_implementation_may_come_first(lib: co.Library) -> None:
    """What is registered for a name enters the operator that is defined later."""
    first = co.Library(lib.ns, "IMPL")
    first.impl("later", lambda x: x + 1, "CPU")
    first.impl("later", co.Formula(lambda ctx, g: g * 5, None), "Autograd")
    co.impl(f"{lib.ns}::later", "Meta", lambda x: co.fake_like(x))
    lib.define("later(Array x) -> Array")
    later = operator(lib, "later")
    np.testing.assert_array_equal(later(X), X + 1)
    np.testing.assert_array_equal(co.grad(lambda x: later(x).sum())(X), [5.0] * 3)
    assert co.eval_shape(later, X).shape == (3,)
    first.close()
    with pytest.raises(co.MissingRuleError, match="no kernel for 'cpu'"):
        later(X)


def test_an_implementation_closed_before_the_definition_is_gone(
    lib: co.Library,
) -> None:
    """A library that closes takes back what was never defined."""
    with co.Library(lib.ns, "IMPL") as first:
        first.impl("later", one, "CPU")
    lib.define("later(Array x) -> Array")
    assert operator(lib, "later").rows == {}


def test_an_implementation_covers_the_kernel_of_a_definition(lib: co.Library) -> None:
    """A library's kernel stands above that of a definition, also of one run again."""
    first = co.Library(lib.ns, "IMPL")
    first.impl("f", lambda x: x + 1, "CPU")
    for _ in range(2):
        op = co.custom_op(
            f"{lib.ns}::f",
            one,
            mutates_args=(),
            schema="(Array x) -> Array",
            device_types="cpu",
        )
        np.testing.assert_array_equal(op(X), X + 1)
    first.close()
    np.testing.assert_array_equal(op(X), np.ones(3))


def test_a_definition_run_again_keeps_what_libraries_registered(
    lib: co.Library,
) -> None:
    """A redefinition drops what stays for ever, not what an open library holds."""

    def define() -> co.Operator[..., Any]:
        name = f"{lib.ns}::f"
        return co.custom_op(name, one, mutates_args=(), schema="(Array x) -> Array")

    co.impl(f"{lib.ns}::f", "Meta", lambda x: co.fake_like(x))
    op = define()
    assert co.eval_shape(op, X).shape == (3,)
    lib.impl("f", lambda x: x + 1, "CPU")
    assert define() is op
    np.testing.assert_array_equal(op(X), X + 1)
    with pytest.raises(co.MissingRuleError, match="has no fake kernel"):
        co.eval_shape(op, X)


def test_an_implementation_that_does_not_fit_stops_the_definition(
    lib: co.Library,
) -> None:
    """A definition that what waits for it does not fit leaves nothing behind."""
    with co.Library(lib.ns, "IMPL") as first:
        first.impl("later", lambda x, y: x, "CPU")
        with pytest.raises(co.RegistrationError, match=r"takes \(x, y\) by position"):
            lib.define("later(Array x) -> Array")
    lib.define("later(Array x) -> Array")
    assert operator(lib, "later").rows == {}


# ---- fallbacks ----


def test_a_fallback_serves_operators_without_a_kernel(lib: co.Library) -> None:
    """A fallback is given the operator, and comes last."""
    lib.define("f(Array x, *, float k=2.0) -> Array")
    lib.define("g(Array x) -> Array")
    lib.impl("g", one, "default")
    with co.Library("_", "IMPL", "CPU") as every:
        every.fallback(lambda op, x, **named: x + len(op.name) + sum(named.values()))
        np.testing.assert_array_equal(operator(lib, "f")(X), X + 3)
        np.testing.assert_array_equal(operator(lib, "g")(X), np.ones(3))
    with pytest.raises(co.MissingRuleError):
        operator(lib, "f")(X)


def test_a_fallback_for_fake_arrays(lib: co.Library) -> None:
    """A fallback for Meta gives shapes to operators without a fake kernel."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, "CPU")
    with co.Library("_", "IMPL") as every:
        every.fallback(lambda op, x: co.fake_like(x, shape=(1, *x.shape)), "Meta")
        assert co.eval_shape(operator(lib, "f"), X).shape == (1, 3)


def test_a_fallback_for_autograd_stands_in_place(lib: co.Library) -> None:
    """A fallback for Autograd is called in place of operators without a formula."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, "CPU")
    f = operator(lib, "f")
    with co.Library("_", "IMPL") as every:
        every.fallback(lambda op, x: x * x, "Autograd")
        np.testing.assert_allclose(co.grad(lambda x: f(x).sum())(X), 2 * X)
    with pytest.raises(co.MissingRuleError):
        co.grad(lambda x: f(x).sum())(X)


def test_a_fallback_for_vmap_is_a_rule(lib: co.Library) -> None:
    """A fallback for FuncTorchBatched replaces the loop."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, "CPU")
    with co.Library("_", "IMPL") as every:
        every.fallback(lambda op, info, d, x: (x * info.batch_size, d[0]), "vmap")
        np.testing.assert_array_equal(co.vmap(operator(lib, "f"))(X), X * 3)


def test_the_newest_fallback_counts(lib: co.Library) -> None:
    """Fallbacks stack, a fallthrough hides them, and closing brings them back."""
    lib.define("f(Array x) -> Array")
    f = operator(lib, "f")
    with co.Library("_", "IMPL", "CPU") as every:
        every.fallback(lambda op, x: x + 1)
        with co.Library("_", "IMPL", "CPU") as second:
            second.fallback(lambda op, x: x + 2)
            np.testing.assert_array_equal(f(X), X + 2)
            second.fallback(co.fallthrough_kernel)
            with pytest.raises(co.MissingRuleError):
                f(X)
        np.testing.assert_array_equal(f(X), X + 1)


# ---- a library as an object ----


def test_a_library_shows_itself(lib: co.Library) -> None:
    """A library says what it is and where it was made."""
    with co.Library(lib.ns, "FRAGMENT") as fragment:
        here = line(-1)
        assert repr(fragment) == f"<Library {lib.ns} (FRAGMENT) at {here}>"
        assert (fragment.ns, fragment.kind) == (lib.ns, "FRAGMENT")
    assert repr(fragment) == f"<Library {lib.ns} (FRAGMENT, closed) at {here}>"


def test_fragments_share_a_namespace(lib: co.Library) -> None:
    """Any number of fragments define operators of one namespace."""
    with co.Library(lib.ns, "FRAGMENT") as a, co.Library(lib.ns, "FRAGMENT") as b:
        a.define("f(Array x) -> Array")
        b.define("g(Array x) -> Array")
        assert {"f", "g"} <= set(dir(getattr(co.ops, lib.ns)))
    assert lib.ns not in dir(co.ops)


def test_a_closed_namespace_is_free() -> None:
    """After a DEF library closes another may own its namespace."""
    for _ in range(2):
        with co.Library("libtest_free", "DEF") as lib:
            lib.define("f(Array x) -> Array")


def test_closing_twice_does_nothing(lib: co.Library) -> None:
    """A second close is no error, also inside a with block."""
    with co.Library(lib.ns, "FRAGMENT") as fragment:
        fragment.close()
        fragment.close()


def test_a_library_that_nobody_holds_closes(lib: co.Library) -> None:
    """Registrations live as long as their library does."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x + 1, "CPU")
    lost = co.Library(lib.ns, "IMPL")
    lost.impl("f", lambda x: x + 2, "CPU")
    np.testing.assert_array_equal(operator(lib, "f")(X), X + 2)
    del lost
    gc.collect()
    np.testing.assert_array_equal(operator(lib, "f")(X), X + 1)


def test_a_module_that_is_loaded_again_owns_its_namespace(tmp_path: Path) -> None:
    """A file that runs again replaces its library, though the old one is held."""
    text = (
        "import customop as co\n"
        "lib = co.Library('libtest_again', 'DEF')\n"
        "lib.define('f(Array x) -> Array')\n"
        "lib.impl('f', lambda x: x + {}, 'CPU')\n"
    )
    path = tmp_path / "module.py"
    held = []
    for k in (1, 2):
        names: dict[str, Any] = {"__name__": "module"}
        exec(compile(text.format(k), str(path), "exec"), names)
        held.append(names["lib"])
        handle = co.ops.libtest_again.f.default
        np.testing.assert_array_equal(handle(X), X + k)
    assert repr(held[0]).startswith("<Library libtest_again (DEF, closed)")
    held[1].close()


# ---- what is refused, word for word ----


def impl_of(key: Any, fn: Any = one, name: str = "f", **kwargs: Any) -> Any:
    return lambda lib: lib.impl(name, fn, key, **kwargs)


KNOWN = (
    "  known: 'CPU', 'CUDA', 'Meta', 'Fake', 'default', 'CompositeExplicitAutograd',"
    " 'CompositeImplicitAutograd', 'composite', 'Autograd', 'FuncTorchBatched', 'vmap',"
    " 'jvp'\n"
    "  do: use a known one, a RuleKind, or register_array_type first"
)


@pytest.mark.usefixtures("built_in_kinds")
@pytest.mark.parametrize(
    ("act", "text"),
    [
        (
            lambda lib: co.Library(lib.ns, "DFE"),
            "Library: 'DFE' is no kind of library (did you mean 'DEF'?)\n"
            "  do: use one of 'DEF', 'IMPL', 'FRAGMENT'",
        ),
        (
            lambda lib: co.Library("my-lib", "DEF"),
            "Library: 'my-lib' is no name of a namespace\n"
            "  do: use ASCII letters, digits and underscores: the name of your package",
        ),
        (
            lambda lib: co.Library("np", "DEF"),
            "the namespace 'np' is defined already, by customop itself\n"
            '  do: Library("np", "IMPL") registers for its operators',
        ),
        (
            lambda lib: co.Library("anything", "IMPL", "CPUU"),
            "Library('anything'): unknown dispatch key 'CPUU' (did you mean 'CPU'?)\n"
            + KNOWN,
        ),
        (
            impl_of("autograd_cpu"),
            "impl of 'ns::f': unknown dispatch key 'autograd_cpu' (did you mean"
            " 'Autograd'?)\n" + KNOWN,
        ),
        (
            impl_of("CPU", 3),
            "ns::f: the kernel for 'cpu' must be a function, got 3\n"
            "  do: pass a function, or use the method as a decorator",
        ),
        (
            impl_of("CPU", lambda y: y),
            "ns::f: the kernel for 'cpu' has the parameter 'y' where the schema has 'x'"
            " (position 0)\n"
            "  at {at}\n"
            "  do: write the parameters of ns::f(Array x) -> Array",
        ),
        (
            impl_of("", lambda x, y: y),
            "ns::f: the composite body takes (x, y) by position, is given (x)\n"
            "  at {at}\n"
            "  do: write the parameters of ns::f(Array x) -> Array",
        ),
        (
            impl_of("Autograd", lambda x, y: y),
            "ns::f: the autograd function takes (x, y) by position, is given (x)\n"
            "  at {at}\n"
            "  do: write the parameters of ns::f(Array x) -> Array",
        ),
        (
            impl_of("CPU", lambda x: x, with_keyset=True),
            "ns::f: the kernel for 'cpu' takes () by position, is given (x)\n"
            "  at {at}\n"
            "  do: write the parameters of ns::f(Array x) -> Array",
        ),
        (
            impl_of("vmap", co.fallthrough_kernel),
            "ns::f: 'vmap' cannot fall through: nothing that follows knows its values\n"
            "  do: register a rule, or leave the row empty",
        ),
        (
            impl_of("CPU", one, "other::f"),
            "library 'ns' cannot register for 'other::f'\n"
            '  do: make Library("other", "IMPL")',
        ),
        (
            lambda lib: lib.define("other::g(Array x) -> Array"),
            "library 'ns' cannot define 'other::g'\n"
            '  do: leave the namespace out, or make Library("other", "FRAGMENT")',
        ),
        (
            lambda lib: lib.define("(Array x) -> Array"),
            "ns: '(Array x) -> Array' is no name with a schema\n"
            '  do: write "name(Array x, float k=1.0) -> Array"',
        ),
        (
            lambda lib: lib.define("g(Array x) -> Array", "PURE"),
            "library 'ns': alias_analysis='PURE' is unknown\n"
            "  do: use one of '', 'FROM_SCHEMA', 'CONSERVATIVE'; the schema says what"
            " shares memory: Array(a)",
        ),
        (
            lambda lib: co.Library(lib.ns, "IMPL").define("g(Array x) -> Array"),
            "library 'ns' is of the kind IMPL, which defines no operators\n"
            "  made at {here}\n"
            '  do: Library("ns", "FRAGMENT")',
        ),
        (
            lambda lib: lib.fallback(one, "CPU"),
            "a fallback is for all namespaces, this library for 'ns'\n"
            '  do: Library("_", "IMPL").fallback(fn, "CPU")',
        ),
        (
            lambda lib: co.Library("_", "IMPL").fallback(one),
            'a fallback needs a dispatch key\n  do: lib.fallback(fn, "CPU")',
        ),
        (
            lambda lib: co.define("ns::g", "g(Array x) -> Array"),
            "ns::g: the schema 'g(Array x) -> Array' does not begin with its parameters\n"
            '  do: write "(Array x, float k=1.0) -> Array": the name stands before it',
        ),
        (
            lambda lib: co.define("g", "(Array x) -> Array"),
            "define: the name 'g' has no namespace\n"
            '  do: write "mylib::g", with the name of your package',
        ),
        (
            lambda lib: co.impl("g", "CPU", one),
            "impl: the name 'g' has no namespace\n"
            '  do: write "mylib::g", with the name of your package',
        ),
        (
            lambda lib: co.fallthrough_kernel(X),
            "fallthrough_kernel is called: it only marks a row to skip\n"
            '  do: register it: lib.impl("name", fallthrough_kernel, "CPU")',
        ),
    ],
)
def test_message(act: Any, text: str, lib: co.Library) -> None:
    """What is wrong with a library is said word for word."""
    lib.define("f(Array x) -> Array")
    with pytest.raises(co.CustomOpError) as caught:
        act(lib)
    said = str(caught.value).replace(lib.ns, "ns")
    given = inspect.getclosurevars(act).nonlocals.get("fn", one)
    where = at(given) if hasattr(given, "__code__") else ""
    assert said == text.format(at=where, here=at(act))


def test_message_of_a_second_definition(lib: co.Library) -> None:
    """A second DEF of a namespace names both places."""
    first = repr(lib).rpartition(" at ")[2].rstrip(">")
    with pytest.raises(co.RegistrationError) as caught:
        co.Library(lib.ns, "DEF")
    assert str(caught.value) == (
        f"the namespace '{lib.ns}' is defined already, at {first}\n"
        f"  the second definition is at {line(-3)}\n"
        f'  do: Library("{lib.ns}", "FRAGMENT") adds to it; or close the first'
    )


def test_message_of_an_operator_defined_twice(lib: co.Library) -> None:
    """A second definition of an operator names both places."""
    lib.define("f(Array x) -> Array")
    here = line(-1)
    with pytest.raises(co.RegistrationError) as caught:
        lib.define("f(Array x, int n) -> Array")
    assert str(caught.value) == (
        f"{lib.ns}::f is defined already, at {here}\n"
        f"  the second definition is at {line(-3)}\n"
        "  do: give one of them another name, or an overload: name.other(...)"
    )


def test_message_of_a_protected_registration(lib: co.Library) -> None:
    """With allow_override=False a registration that is there already is named."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, "CPU", allow_override=False)
    second = lambda x: x
    with pytest.raises(co.RegistrationError) as caught:
        lib.impl("f", second, "CPU", allow_override=False)
    assert str(caught.value) == (
        f"{lib.ns}::f has a 'cpu' rule already, from {at(one)}\n"
        f"  the second is at {at(second)}\n"
        "  do: remove one of them, or register with override=True"
    )
    assert co.get_kernel(operator(lib, "f"), "cpu") is one


def test_message_of_a_closed_library() -> None:
    """A closed library refuses everything, and says where it was made."""
    lib = co.Library("libtest_closed", "DEF")
    here = line(-1)
    lib.close()
    for act in (
        lambda: lib.define("f(Array x) -> Array"),
        lambda: lib.impl("f", one),
        lambda: lib.fallback(one, "CPU"),
        lib.__enter__,
    ):
        with pytest.raises(co.RegistrationError) as caught:
            act()
        assert str(caught.value) == (
            "library 'libtest_closed' is closed\n"
            f"  made at {here}\n"
            '  do: make a new one: Library("libtest_closed", "DEF")'
        )


def test_message_of_nothing_below(lib: co.Library) -> None:
    """A wrapper over nothing says so."""
    lib.define("f(Array x) -> Array")
    here = line(-1)
    lib.impl("f", lambda below, x: below(x), "CPU", with_keyset=True)
    with pytest.raises(co.MissingRuleError) as caught:
        operator(lib, "f")(X)
    assert str(caught.value) == (
        f"{lib.ns}::f has no kernel below the one for 'cpu'\n"
        f"  {lib.ns}::f(Array x) -> Array\n"
        f"  at {here}\n"
        f'  do: register one first, or as "default": impl("{lib.ns}::f", "default")'
    )


def test_message_of_a_schema_without_a_function(lib: co.Library) -> None:
    """A disabled kernel gives way to a function, and a schema has none."""
    lib.define("f(Array x) -> Array")
    here = line(-1)
    lib.impl("f", one, "CPU")
    f = operator(lib, "f")
    with (
        f.set_kernel_enabled("cpu", False),
        pytest.raises(co.MissingRuleError) as caught,
    ):
        f(X)
    assert str(caught.value) == (
        f"{lib.ns}::f was defined by its schema alone, so no function is left\n"
        f"  {lib.ns}::f(Array x) -> Array\n"
        f"  at {here}\n"
        f'  do: impl("{lib.ns}::f", "default", fn)'
    )
