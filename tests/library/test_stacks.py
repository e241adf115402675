"""Several registrations for one operator: the newest counts, and closing removes it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.library._libraries import X, at, one, operator

# ---- the newest counts; what is below comes back ----


def test_registrations_stack_and_come_back(lib: co.Library) -> None:
    """Closing a library brings back the registrations from before it."""
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
    """The newest registration of an open library counts, for every kind of rule."""
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
    """A registration without a library counts, and stays when libraries close."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    second = co.Library(lib.ns, "IMPL")
    second.impl("f", lambda x: x + 2, "CPU")
    op.register_kernel("cpu", lambda x: x + 3)
    np.testing.assert_array_equal(op(X), X + 3)
    second.close()
    np.testing.assert_array_equal(op(X), X + 3)


def test_a_lasting_registration_replaces_the_one_before(lib: co.Library) -> None:
    """However often kernels are registered without a library, one of each kind is kept."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    for k in range(5):
        op.register_kernel("cpu", lambda x, k=k: x + k)
        op.register_kernel("cpu", lambda x, k=k: x - k)
    assert len(op.stacks["cpu"]) == 1


def test_a_closed_library_leaves_no_disabled_kernel(lib: co.Library) -> None:
    """If a disabled kernel is removed, the next one of that kind is enabled."""
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
    """With a keyset, each registration can call the one below it."""
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
    """A rule of any kind can call the one below it."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, "CPU")
    lib.impl("f", lambda info, d, x: (x * 3.0, d[0]), "FuncTorchBatched")

    def doubled(below: Any, info: Any, d: Any, x: Any) -> Any:
        out, dim = below(info, d, x)
        return out * 2, dim

    lib.impl("f", doubled, "FuncTorchBatched", with_keyset=True)
    np.testing.assert_array_equal(co.vmap(operator(lib, "f"))(X), X * 6)


def test_what_is_below_may_close(lib: co.Library) -> None:
    """When the registration below a wrapper closes, the wrapper calls the next one."""
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
    """A wrapper that is registered again from the same line replaces itself."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    for _ in range(3):
        co.impl(op, "default", lambda below, x: below(x) * 2, with_keyset=True)
    np.testing.assert_array_equal(op(X), [2.0] * 3)


def test_a_lasting_wrapper_stands_on_a_library(lib: co.Library) -> None:
    """A wrapper without a library calls a library's kernel until that library closes."""
    op = co.custom_op(f"{lib.ns}::f", one, mutates_args=(), schema="(Array x) -> Array")
    second = co.Library(lib.ns, "IMPL")
    second.impl("f", lambda x: x + 2, "CPU")
    co.impl(op, "CPU", lambda below, x: below(x) * 2, with_keyset=True)
    np.testing.assert_array_equal(op(X), (X + 2) * 2)
    second.close()
    np.testing.assert_array_equal(op(X), [2.0] * 3)


def test_a_kernel_falls_through(lib: co.Library) -> None:
    """A fallthrough hides the kernel of a kind, so the default kernel runs."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x + 1, "CPU")
    lib.impl("f", lambda x: x + 2, "default")
    lib.impl("f", co.fallthrough_kernel, "CPU")
    np.testing.assert_array_equal(operator(lib, "f")(X), X + 2)


# ---- registering by name for a library ----


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
    """With `lib=`, closing the library removes the registration."""
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
    """Closing a library removes a backward formula."""
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
    """Closing a library removes a rule of a user-defined kind."""
    inverse = co.RuleKind("inverse", takes="(out, *inputs)")
    with co.Library("np", "IMPL") as second:
        co.register("np::sin", inverse, lambda out, x: np.arcsin(out), lib=second)
        assert co.ops.np.sin.default.find_rule(inverse) is not None
    assert co.ops.np.sin.default.find_rule(inverse) is None


class Marked(np.ndarray):
    """A class of arrays with a rule."""


class More(np.ndarray):
    """Another one."""


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_rules_for_classes_close_in_any_order(lib: co.Library, order: Any) -> None:
    """Each library removes only its own rules for classes of arrays."""
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
    """A second rule for a class is refused, also from a library."""
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
    """Closing a library removes its dtype for autocast and no others."""
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


# ---- NumPy's operators ----


def test_a_built_in_operator_is_extended(lib: co.Library) -> None:
    """A library can register for NumPy's operators, and closing it restores them."""
    # The public function does not pass through the operator; tracers do.
    sin = co.ops.np.sin.default
    with co.Library("np", "IMPL") as second:
        second.impl("sin", lambda below, x: below(x) + 1, "CPU", with_keyset=True)
        np.testing.assert_allclose(sin(X), np.sin(X) + 1)
        _, pullback = co.vjp(np.sin, X)
        np.testing.assert_allclose(pullback(np.ones(3))[0], np.cos(X))
    np.testing.assert_array_equal(sin(X), np.sin(X))


def test_get_kernel_gives_the_original_to_wrap(lib: co.Library) -> None:
    """A fetched kernel stays usable after other registrations and after closing."""
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
    """`get_kernel` returns fake kernels and rules by their keys."""
    rules: list[Any] = [lambda x: co.fake_like(x), lambda info, d, x: (x, 0)]
    lib.define("f(Array x) -> Array")
    lib.impl("f", rules[index], key)
    assert co.get_kernel(co.ops.__getattr__(lib.ns).f, key) is rules[index]


# ---- fallbacks ----


def test_a_fallback_serves_operators_without_a_kernel(lib: co.Library) -> None:
    """A fallback receives the operator, and is used only if nothing else is registered."""
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
    """A fallback for Meta serves operators without a fake kernel."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, "CPU")
    with co.Library("_", "IMPL") as every:
        every.fallback(lambda op, x: co.fake_like(x, shape=(1, *x.shape)), "Meta")
        assert co.eval_shape(operator(lib, "f"), X).shape == (1, 3)


def test_a_fallback_for_autograd_stands_in_place(lib: co.Library) -> None:
    """A fallback for Autograd replaces operators without a formula."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, "CPU")
    f = operator(lib, "f")
    with co.Library("_", "IMPL") as every:
        every.fallback(lambda op, x: x * x, "Autograd")
        np.testing.assert_allclose(co.grad(lambda x: f(x).sum())(X), 2 * X)
    with pytest.raises(co.MissingRuleError):
        co.grad(lambda x: f(x).sum())(X)


def test_a_fallback_for_vmap_is_a_rule(lib: co.Library) -> None:
    """A fallback for FuncTorchBatched is used instead of the loop."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, "CPU")
    with co.Library("_", "IMPL") as every:
        every.fallback(lambda op, info, d, x: (x * info.batch_size, d[0]), "vmap")
        np.testing.assert_array_equal(co.vmap(operator(lib, "f"))(X), X * 3)


def test_the_newest_fallback_counts(lib: co.Library) -> None:
    """The newest fallback counts, a fallthrough hides it, and closing restores it."""
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
