"""Libraries: defining by schema, registering by key, and closing."""

from __future__ import annotations

import gc
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.library._libraries import X, line, numbers, one, operator


class Toy:
    """An array that NumPy does not know."""

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
    """The name in a definition may start with the namespace."""
    assert lib.define(f"{lib.ns}::f(Array x) -> Array") == "f"
    assert operator(lib, "f").qualname == f"{lib.ns}::f"


def test_define_takes_tags(lib: co.Library) -> None:
    """`define` passes tags on to the operator."""
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
    """Torch's backend names mean our kinds of array, in any letter case."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, key)
    assert [k for k in operator(lib, "f").rows if isinstance(k, str)] == [row]


@pytest.mark.usefixtures("built_in_kinds")
def test_a_registered_kind_is_a_key(lib: co.Library) -> None:
    """The name of a registered kind of array is a key."""
    co.register_array_type("libtoy", Toy)
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: Toy(x.base * 3), "libtoy")
    np.testing.assert_array_equal(operator(lib, "f")(Toy(X)).base, X * 3)


def test_a_rule_kind_is_a_key(lib: co.Library) -> None:
    """A RuleKind is a key."""
    inverse = co.RuleKind("inverse", takes="(out, *inputs)")
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda out, x: np.log(out), inverse)
    np.testing.assert_array_equal(operator(lib, "f").rule(inverse)(X, None), np.log(X))


def test_the_key_of_a_library_is_the_default() -> None:
    """`impl` without a key registers for the key of the library."""
    with co.Library(f"libtest{next(numbers)}", "DEF", "CPU") as lib:
        lib.define("f(Array x) -> Array")
        lib.impl("f", one)
        assert [*operator(lib, "f").rows] == ["cpu"]


# ---- before the definition ----


def test_an_implementation_may_come_first(lib: co.Library) -> None:
    """A registration can come before the definition of its operator."""
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
    """Closing a library also removes registrations for undefined operators."""
    with co.Library(lib.ns, "IMPL") as first:
        first.impl("later", one, "CPU")
    lib.define("later(Array x) -> Array")
    assert operator(lib, "later").rows == {}


def test_an_implementation_covers_the_kernel_of_a_definition(lib: co.Library) -> None:
    """A library's kernel covers the kernel of a definition, even when that runs again."""
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
    """A redefinition removes registrations, except those of open libraries."""

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
    """A definition fails if an earlier registration does not fit it, and leaves no trace."""
    with co.Library(lib.ns, "IMPL") as first:
        first.impl("later", lambda x, y: x, "CPU")
        with pytest.raises(co.RegistrationError, match=r"takes \(x, y\) by position"):
            lib.define("later(Array x) -> Array")
    lib.define("later(Array x) -> Array")
    assert operator(lib, "later").rows == {}


# ---- a library as an object ----


def test_a_library_shows_itself(lib: co.Library) -> None:
    """The repr shows namespace, kind and where the library was made."""
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
    """After a DEF library closes, another can own its namespace."""
    for _ in range(2):
        with co.Library("libtest_free", "DEF") as lib:
            lib.define("f(Array x) -> Array")


def test_closing_twice_does_nothing(lib: co.Library) -> None:
    """Closing a second time does nothing, also inside a with block."""
    with co.Library(lib.ns, "FRAGMENT") as fragment:
        fragment.close()
        fragment.close()


def test_an_unreferenced_library_closes(lib: co.Library) -> None:
    """A library closes when it is garbage-collected."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x + 1, "CPU")
    lost = co.Library(lib.ns, "IMPL")
    lost.impl("f", lambda x: x + 2, "CPU")
    np.testing.assert_array_equal(operator(lib, "f")(X), X + 2)
    del lost
    gc.collect()
    np.testing.assert_array_equal(operator(lib, "f")(X), X + 1)


def test_a_module_that_is_loaded_again_owns_its_namespace(tmp_path: Path) -> None:
    """A file that runs again replaces its library, even if the old one is still referenced."""
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
