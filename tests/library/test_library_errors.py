"""Messages about libraries, word for word."""
# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

import inspect
from typing import Any

import pytest

import customop as co
from tests.library._libraries import X, at, line, one, operator


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
            "Library: unknown kind 'DFE' (did you mean 'DEF'?)\n"
            "  do: use one of 'DEF', 'IMPL', 'FRAGMENT'",
        ),
        (
            lambda lib: co.Library("my-lib", "DEF"),
            "Library: 'my-lib' cannot be a namespace\n"
            "  do: use ASCII letters, digits and underscores: the name of your package",
        ),
        (
            lambda lib: co.Library("np", "DEF"),
            "the namespace 'np' belongs to customop\n"
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
            "ns::f: the composite body takes (x, y) by position, but is called with (x)\n"
            "  at {at}\n"
            "  do: write the parameters of ns::f(Array x) -> Array",
        ),
        (
            impl_of("Autograd", lambda x, y: y),
            "ns::f: the autograd function takes (x, y) by position, but is called with (x)\n"
            "  at {at}\n"
            "  do: write the parameters of ns::f(Array x) -> Array",
        ),
        (
            impl_of("CPU", lambda x: x, with_keyset=True),
            "ns::f: the kernel for 'cpu' takes () by position, but is called with (x)\n"
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
            "ns: '(Array x) -> Array' is not a name with a schema\n"
            '  do: write "name(Array x, float k=1.0) -> Array"',
        ),
        (
            lambda lib: lib.define("g(Array x) -> Array", "PURE"),
            "library 'ns': alias_analysis='PURE' is unknown\n"
            "  do: use one of '', 'FROM_SCHEMA', 'CONSERVATIVE'; the schema says which"
            " arrays share memory: Array(a)",
        ),
        (
            lambda lib: co.Library(lib.ns, "IMPL").define("g(Array x) -> Array"),
            "library 'ns' is of the kind IMPL, which cannot define operators\n"
            "  made at {here}\n"
            '  do: Library("ns", "FRAGMENT")',
        ),
        (
            lambda lib: lib.fallback(one, "CPU"),
            "a fallback serves all namespaces, but this library serves 'ns'\n"
            '  do: Library("_", "IMPL").fallback(fn, "CPU")',
        ),
        (
            lambda lib: co.Library("_", "IMPL").fallback(one),
            'a fallback needs a dispatch key\n  do: lib.fallback(fn, "CPU")',
        ),
        (
            lambda lib: co.define("ns::g", "g(Array x) -> Array"),
            "ns::g: the schema 'g(Array x) -> Array' does not begin with its parameters\n"
            '  do: write "(Array x, float k=1.0) -> Array", without the name',
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
    """Messages about wrong arguments are exact."""
    lib.define("f(Array x) -> Array")
    with pytest.raises(co.CustomOpError) as caught:
        act(lib)
    said = str(caught.value).replace(lib.ns, "ns")
    given = inspect.getclosurevars(act).nonlocals.get("fn", one)
    where = at(given) if hasattr(given, "__code__") else ""
    assert said == text.format(at=where, here=at(act))


def test_message_of_a_second_definition(lib: co.Library) -> None:
    """The error for a second DEF library names both places."""
    first = repr(lib).rpartition(" at ")[2].rstrip(">")
    with pytest.raises(co.RegistrationError) as caught:
        co.Library(lib.ns, "DEF")
    assert str(caught.value) == (
        f"the namespace '{lib.ns}' is defined already, at {first}\n"
        f"  the second definition is at {line(-3)}\n"
        f'  do: Library("{lib.ns}", "FRAGMENT") adds to it; or close the first'
    )


def test_message_of_an_operator_defined_twice(lib: co.Library) -> None:
    """The error for a second definition names both places."""
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
    """With allow_override=False, the error names the earlier registration."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", one, "CPU", allow_override=False)
    second = lambda x: x
    with pytest.raises(co.RegistrationError) as caught:
        lib.impl("f", second, "CPU", allow_override=False)
    assert str(caught.value) == (
        f"{lib.ns}::f has a rule for 'cpu' already, from {at(one)}\n"
        f"  the second is at {at(second)}\n"
        "  do: remove one of them, or register with override=True"
    )
    assert co.get_kernel(operator(lib, "f"), "cpu") is one


def test_message_of_a_closed_library() -> None:
    """Methods of a closed library raise, and say where it was made."""
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
    """A wrapper with no kernel below it raises."""
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
    """Disabling the only kernel of an operator without a function is an error at the call."""
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
        f"{lib.ns}::f has no default kernel: it was defined by its schema alone\n"
        f"  {lib.ns}::f(Array x) -> Array\n"
        f"  at {here}\n"
        f'  do: impl("{lib.ns}::f", "default", fn)'
    )
