"""What a user reads when something is wrong, word for word."""
# ruff: noqa: ISC004 - a message stands in the table line by line

from __future__ import annotations

import functools
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any, Literal, Optional

import numpy as np
import pytest

import customop as co
from customop import errors
from customop.errors import CustomOpError, caret, did_you_mean, innermost, place, quoted

pytestmark = pytest.mark.usefixtures("built_in_kinds")

X = np.array([1.0, 2.0])
XS = [X]


def at(fn: Callable[..., Any]) -> str:
    """File and line of a function of this module."""
    return f"{__file__}:{fn.__code__.co_firstlineno}"


# ---- operators that the errors are about ----


def scaled(x: np.ndarray, k: float = 2.0, *, shift: float = 0.0) -> np.ndarray:
    return x * k + shift


op = co.custom_op("errors_test::scaled", scaled, mutates_args=(), device_types="cpu")
SCALED = "errors_test::scaled(Array x, float k=2.0, *, float shift=0.0) -> Array"


def plain(x: np.ndarray) -> np.ndarray:
    return x.copy()


plain_op = co.custom_op("errors_test::plain", plain, mutates_args=())
PLAIN = "errors_test::plain(Array x) -> Array"


def every(
    x: co.Array,
    xs: list[co.Array],
    n: int = 1,
    b: bool = True,
    s: str = "a",
    d: co.DType = np.float32,
    v: co.Device = "cpu",
    shape: list[int] = (1,),  # type: ignore[assignment]
    o: co.Array | None = None,
    c: co.Scalar = 1,
) -> co.Array:
    return x + 0


every_op = co.custom_op("errors_test::every", every, mutates_args=())


def written(x: np.ndarray) -> None:
    x += 1


written_op = co.custom_op("errors_test::written", written, mutates_args=("x",))
WRITTEN = "errors_test::written(Array(a!) x) -> ()"


def zeros(n: int, device: co.Device = "cpu") -> np.ndarray:
    return np.zeros(n)


zeros_op = co.custom_op(
    "errors_test::zeros", zeros, mutates_args=(), device_types="cpu"
)
ZEROS = 'errors_test::zeros(int n, device device="cpu") -> Array'


def other(y: Any) -> Any: ...
def few(x: Any) -> Any: ...
def many(x: Any, k: Any, z: Any, *, shift: Any) -> Any: ...
def no_shift(x: Any, k: Any) -> Any: ...
def misspelt(x: Any, k: Any, *, shfit: Any) -> Any: ...
def fake_one(x: Any) -> Any: ...
def fake_two(x: Any) -> Any: ...
def bad_setup(ctx: Any, inptus: Any, output: Any) -> None: ...
def short_setup(ctx: Any, inputs: Any) -> None: ...
def unannotated(x, y: int) -> None: ...
def unreturned(x: int): ...
def starred(*xs: int) -> None: ...
def literal(x: Literal["a", 1]) -> None: ...
def literal_result(x: int) -> Literal["a", 1]: ...
def unknown_name(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def mixed(max: int, x: int, y: co.Array) -> None: ...  # noqa: A002
def none_default(x: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
def optional(x: Optional[int]) -> None: ...  # noqa: UP045


class Holder:
    def method(self, x: co.Array) -> co.Array: ...  # type: ignore[empty-body]


def define(name: str, fn: Any, **kwargs: Any) -> Any:
    return lambda: co.custom_op(name, fn, **{"mutates_args": (), **kwargs})


NAME = (
    '\n  do: write "namespace::name", or "namespace::name.overload", in ASCII letters,'
    " digits and underscores"
)
SUPPORTED = (
    "  supported: Array (or a class of arrays), bool, int, float, complex, str, Scalar,"
    " DType, Device, np.random.Generator, Literal, Enum, frozen dataclasses, NamedTuple,"
    " TypedDict, and Optional, list, Sequence, tuple and dict[str, ...] of these"
)
EXAMPLE = '  do: write it like "(Array x, int y=1, *, float? z=None) -> Array"'
AGREE = "  do: use the names and defaults of the schema, in its order, with its '*'"
WRITES = "  do: make them agree: 'Array(a!) x' is an array that is written"
TAGS = "\n  do: use one of " + ", ".join(str(tag) for tag in co.Tag)
KNOWN = "\n  known: 'cpu', 'cuda'\n  do: use a known one, or register_array_type first"
DEVICES = '\n  do: write "cpu", ("cpu", "cuda"), or None for all kinds'
GIVE = 'give the schema as a string: schema="(Array x) -> Array"'


class NoSignature:
    __signature__ = 3  # what `inspect` cannot read

    def __call__(self, x: Any) -> Any: ...

    def __repr__(self) -> str:
        return "<max>"


NOT_A_FUNCTION = "pass a function, or use the method as a decorator"

# ---- definitions ----

DEFINITIONS: dict[str, tuple[Any, type, str]] = {
    "no namespace": (
        define("x", plain),
        co.RegistrationError,
        "custom_op: the name 'x' has no namespace\n"
        '  do: write "mylib::x", with the name of your package',
    ),
    **{
        f"name {name!r}": (
            define(name, plain),
            co.RegistrationError,
            f"custom_op: {name!r} is no name of an operator{NAME}",
        )
        for name in ("my-lib::x", "::x", "x::", "m::é", "m:: x", "1::x", "a::b::c", "m::x.", 3, None)
    },
    "name is a keyword": (
        define("m::if", plain),
        co.SchemaError,
        "m::if: 'if' cannot be a name in a call\n  m::if(Array x) -> Array\n  do: use another name",
    ),
    "no function": (
        define("m::x", 3),
        co.RegistrationError,
        "m::x: custom_op makes an operator of a function, got 3\n"
        "  do: pass the function that computes the result",
    ),
    "an operator": (
        define("m::x", plain_op),
        co.RegistrationError,
        f"m::x: custom_op makes an operator of a function, got <Operator {PLAIN}>\n"
        "  do: pass the function that computes the result",
    ),
    "unknown device": (
        define("m::x", plain, device_types="cdua"),
        co.RegistrationError,
        f"m::x: unknown device type 'cdua' (did you mean 'cuda'?){KNOWN}",
    ),
    "unknown device among others": (
        define("m::x", plain, device_types=("cpu", "cdua")),
        co.RegistrationError,
        f"m::x: unknown device type 'cdua' (did you mean 'cuda'?){KNOWN}",
    ),
    "fake as a device": (
        define("m::x", plain, device_types="fake"),
        co.RegistrationError,
        "m::x: unknown device type 'fake'\n  known: 'cpu', 'cuda'\n"
        "  do: register_fake for a fake kernel",
    ),
    "device_types is a number": (
        define("m::x", plain, device_types=3),
        co.RegistrationError,
        f"m::x: device_types=3 names no kind of array{DEVICES}",
    ),
    "device_types is empty": (
        define("m::x", plain, device_types=()),
        co.RegistrationError,
        f"m::x: device_types is empty, so the kernel would serve nothing{DEVICES}",
    ),
    "nothing to choose a device by": (
        define("m::x", lambda n: n, schema="(int n) -> Array", device_types="cpu"),
        co.RegistrationError,
        "m::x: has kernels for cpu, but no array and no 'device' to choose by\n"
        "  m::x(int n) -> Array\n"
        "  do: add a parameter device: Device, or leave device_types out",
    ),
    "a tag by its name": (
        define("m::x", plain, tags="pointwise"),
        co.RegistrationError,
        f"m::x: 'pointwise' is no tag (did you mean 'Tag.pointwise'?){TAGS}",
    ),
    "no tag": (
        define("m::x", plain, tags=[3]),
        co.RegistrationError,
        f"m::x: 3 is no tag{TAGS}",
    ),
    "mutates_args is a string": (
        define("m::x", plain, mutates_args="x"),
        co.SchemaError,
        "m::x: mutates_args='x' is neither names nor 'unknown'\n"
        "  do: write mutates_args=() or mutates_args=('x',)",
    ),
    "mutates_args is no name": (
        define("m::x", plain, mutates_args=3),
        co.SchemaError,
        "m::x: mutates_args=3 is neither names nor 'unknown'\n"
        "  do: write mutates_args=() or mutates_args=('x',)",
    ),
    "mutates_args names nothing": (
        define("m::x", scaled, mutates_args=("shfit",)),
        co.SchemaError,
        "m::x: scaled: mutates_args names 'shfit', which is not a parameter (did you mean 'shift'?)\n"
        "  scaled(x: np.ndarray, k: float = 2.0, *, shift: float = 0.0) -> np.ndarray\n"
        f"  at {at(scaled)}\n"
        "  do: name array parameters: 'x'",
    ),
    "mutates_args names no array": (
        define("m::x", mixed, mutates_args=("x",)),
        co.SchemaError,
        "m::x: mixed: mutates_args names 'x', which is not an array\n"
        "  mixed(max: int, x: int, y: co.Array) -> None\n"
        "                  ^^^^^^\n"
        f"  at {at(mixed)}\n"
        "  do: name array parameters: 'y'",
    ),
    "mutates_args where there is no array": (
        define("m::x", optional, mutates_args=("x",)),
        co.SchemaError,
        "m::x: optional: mutates_args names 'x', which is not an array\n"
        "  optional(x: Optional[int]) -> None\n"
        "           ^^^^^^^^^^^^^^^^\n"
        f"  at {at(optional)}\n"
        "  do: name array parameters: there are none",
    ),
    "no annotation": (
        define("m::x", unannotated),
        co.SchemaError,
        "m::x: unannotated: parameter 'x' has no annotation\n"
        "  unannotated(x, y: int) -> None\n"
        "              ^\n"
        f"  at {at(unannotated)}\n"
        "  do: write x: Array, or its type",
    ),
    "a lambda": (
        define("m::x", (hintless := lambda x: x)),
        co.SchemaError,
        "m::x: <lambda>: parameter 'x' has no annotation\n"
        "  <lambda>(x)\n"
        "           ^\n"
        f"  at {at(hintless)}\n"
        f"  do: annotate every parameter, or {GIVE}",
    ),
    "a method": (
        define("m::x", Holder.method),
        co.SchemaError,
        "m::x: method: parameter 'self' has no annotation\n"
        "  method(self, x: co.Array) -> co.Array\n"
        "         ^^^^\n"
        f"  at {at(Holder.method)}\n"
        "  do: use a function or a static method, which have no self",
    ),
    "a function without a signature": (
        define("m::x", NoSignature()),
        co.SchemaError,
        f"m::x: <max> has no signature that Python can read\n  do: {GIVE}",
    ),
    "no annotation of the result": (
        define("m::x", unreturned),
        co.SchemaError,
        "m::x: unreturned: the result has no annotation\n"
        "  unreturned(x: int)\n"
        f"  at {at(unreturned)}\n"
        "  do: write -> Array, or -> None",
    ),
    "star arguments": (
        define("m::x", starred),
        co.SchemaError,
        "m::x: starred: parameter '*xs' has no fixed number of arguments\n"
        "  starred(*xs: int) -> None\n"
        "          ^^^^^^^^\n"
        f"  at {at(starred)}\n"
        "  do: write xs: list[Array], or separate parameters",
    ),
    "an annotation without a type": (
        define("m::x", literal),
        co.SchemaError,
        "m::x: literal: parameter 'x' has annotation Literal['a', 1], which has no schema type\n"
        "  literal(x: Literal['a', 1]) -> None\n"
        "          ^^^^^^^^^^^^^^^^^^\n"
        f"  at {at(literal)}\n"
        f"{SUPPORTED}\n"
        "  do: give values that are all str, all int or all bool",
    ),
    "a result without a type": (
        define("m::x", literal_result),
        co.SchemaError,
        "m::x: literal_result: the result has annotation Literal['a', 1], which has no schema type\n"
        "  literal_result(x: int) -> Literal['a', 1]\n"
        "                         ^^^^^^^^^^^^^^^^^^\n"
        f"  at {at(literal_result)}\n"
        f"{SUPPORTED}\n"
        "  do: give values that are all str, all int or all bool",
    ),
    "an annotation that names nothing": (
        define("m::x", unknown_name),
        co.SchemaError,
        "m::x: unknown_name: annotation names 'Missing', which is not defined there\n"
        "  unknown_name(x: Missing) -> None\n"
        "                  ^^^^^^^\n"
        f"  at {at(unknown_name)}\n"
        "  do: define or import Missing before the operator",
    ),
    "a default of None": (
        define("m::x", none_default),
        co.SchemaError,
        "m::x: none_default: parameter 'x' has the default None:"
        " only an Optional parameter has the default None\n"
        "  none_default(x: int = None) -> None\n"
        "               ^^^^^^^^^^^^^\n"
        f"  at {at(none_default)}\n"
        "  do: write x: Optional[int] = None",
    ),
    "schema is no string": (
        define("m::x", plain, schema=3),
        co.SchemaError,
        'm::x: a schema is a string, got 3\n  do: write "(Array x) -> Array"',
    ),
    "schema of an unknown type": (
        define("m::x", plain, schema="(Arrai x) -> Array"),
        co.SchemaError,
        "m::x: schema string: unknown type 'Arrai' (did you mean 'Array'?)\n"
        "  (Arrai x) -> Array\n"
        "   ^^^^^\n" + EXAMPLE,
    ),
    "schema of other names": (
        define("m::x", plain, schema="(Array y) -> Array"),
        co.SchemaError,
        "m::x: the function plain has the parameter 'x' where the schema has 'y' (position 0)\n"
        f"  (Array y) -> Array\n  at {at(plain)}\n" + AGREE,
    ),
    "schema of another number": (
        define("m::x", plain, schema="(Array x, int y) -> Array"),
        co.SchemaError,
        "m::x: the function plain takes (x) by position, is given (x, y)\n"
        f"  (Array x, int y) -> Array\n  at {at(plain)}\n" + AGREE,
    ),
    "schema of another default": (
        define("m::x", scaled, schema="(Array x, float k=3.0, *, float shift=0.0) -> Array"),
        co.SchemaError,
        "m::x: the function scaled has the default k=2.0 where the schema says float k=3.0\n"
        f"  (Array x, float k=3.0, *, float shift=0.0) -> Array\n  at {at(scaled)}\n" + AGREE,
    ),
    "schema without a default": (
        define("m::x", scaled, schema="(Array x, float k, *, float shift=0.0) -> Array"),
        co.SchemaError,
        "m::x: the function scaled has the default k=2.0 where the schema has none\n"
        f"  (Array x, float k, *, float shift=0.0) -> Array\n  at {at(scaled)}\n" + AGREE,
    ),
    "schema that writes": (
        define("m::x", plain, schema="(Array(a!) x) -> Array"),
        co.SchemaError,
        "m::x: mutates_args names nothing, the schema marks 'x' as written\n"
        "  (Array(a!) x) -> Array\n" + WRITES,
    ),
    "schema that does not write": (
        define("m::x", plain, schema="(Array x) -> Array", mutates_args=("x",)),
        co.SchemaError,
        "m::x: mutates_args names 'x', the schema marks nothing as written\n"
        "  (Array x) -> Array\n" + WRITES,
    ),
}  # fmt: skip

# ---- registrations ----

PARAMETERS = f"  do: write the parameters of {SCALED}"
SETUP = "  do: write def setup_context(ctx, inputs, keyword_only_inputs, output): it is called by name"

REGISTRATIONS: dict[str, tuple[Any, type, str]] = {
    "kernel of another name": (
        lambda: plain_op.register_kernel("cpu", other),
        co.RegistrationError,
        "errors_test::plain: the kernel for 'cpu' has the parameter 'y' where the schema has 'x' (position 0)\n"
        f"  at {at(other)}\n  do: write the parameters of {PLAIN}",
    ),
    "kernel of too few parameters": (
        lambda: op.register_kernel("cpu", few),
        co.RegistrationError,
        "errors_test::scaled: the kernel for 'cpu' takes (x) by position, is given (x, k)\n"
        f"  at {at(few)}\n" + PARAMETERS,
    ),
    "kernel of too many parameters": (
        lambda: op.register_kernel(("cpu", "cuda"), many),
        co.RegistrationError,
        "errors_test::scaled: the kernel for 'cpu' takes (x, k, z) by position, is given (x, k)\n"
        f"  at {at(many)}\n" + PARAMETERS,
    ),
    "kernel without a keyword": (
        lambda: op.register_kernel("cpu", no_shift),
        co.RegistrationError,
        "errors_test::scaled: the kernel for 'cpu' lacks the keyword-only parameter 'shift' of the schema\n"
        f"  at {at(no_shift)}\n" + PARAMETERS,
    ),
    "kernel of a misspelt keyword": (
        lambda: op.register_kernel("cpu", misspelt),
        co.RegistrationError,
        "errors_test::scaled: the kernel for 'cpu' needs the keyword-only parameter 'shfit',"
        " not in the schema (did you mean 'shift'?)\n"
        f"  at {at(misspelt)}\n" + PARAMETERS,
    ),
    "kernel through a decorator": (
        lambda: op.register_kernel("cpu")(functools.partial(few)),
        co.RegistrationError,
        "errors_test::scaled: the kernel for 'cpu' takes (x) by position, is given (x, k)\n"
        f"  at {at(few)}\n" + PARAMETERS,
    ),
    "kernel that is no function": (
        lambda: op.register_kernel("cpu", 3),  # type: ignore[call-overload]
        co.RegistrationError,
        f"errors_test::scaled: the kernel for 'cpu' must be a function, got 3\n  do: {NOT_A_FUNCTION}",
    ),
    "kernel that is the operator": (
        lambda: plain_op.register_kernel("cpu", plain_op),
        co.RegistrationError,
        "errors_test::plain: the kernel for 'cpu' is the operator itself, which would call itself for ever\n"
        "  do: register the function that computes the result",
    ),
    "kernel for an unknown device": (
        lambda: op.register_kernel("cdua", scaled),
        co.RegistrationError,
        f"errors_test::scaled: unknown device type 'cdua' (did you mean 'cuda'?){KNOWN}",
    ),
    "kernel for no device": (
        lambda: op.register_kernel((), scaled),
        co.RegistrationError,
        f"errors_test::scaled: device_types is empty, so the kernel would serve nothing{DEVICES}",
    ),
    "fake kernel of another name": (
        lambda: plain_op.register_fake(other),
        co.RegistrationError,
        "errors_test::plain: the fake kernel has the parameter 'y' where the schema has 'x' (position 0)\n"
        f"  at {at(other)}\n  do: write the parameters of {PLAIN}",
    ),
    "fake kernel that is the operator": (
        lambda: plain_op.register_fake(plain_op),
        co.RegistrationError,
        "errors_test::plain: the fake kernel is the operator itself, which would call itself for ever\n"
        "  do: register the function that computes the result",
    ),
    "vmap rule": (
        lambda: op.register_vmap(few),
        co.RegistrationError,
        "errors_test::scaled: the vmap rule takes (x) by position, is given (info, in_dims, x, k)\n"
        f"  at {at(few)}\n  do: write def rule(info, in_dims, x, k, *, shift): ...",
    ),
    "jvp rule": (
        lambda: op.register_jvp(few),
        co.RegistrationError,
        "errors_test::scaled: the jvp rule takes (x) by position, is given (primals, tangents)\n"
        f"  at {at(few)}\n  do: write def rule(primals, tangents, *, shift): ...",
    ),
    "jvp rule that is no function": (
        lambda: op.register_jvp(3),  # type: ignore[call-overload]
        co.RegistrationError,
        f"errors_test::scaled: the jvp rule must be a function, got 3\n  do: {NOT_A_FUNCTION}",
    ),
    "rule of a kind of one's own": (
        lambda: op.register(co.RuleKind("inverse", takes="(out, *inputs)"), few),
        co.RegistrationError,
        "errors_test::scaled: the inverse rule takes (x) by position, is given (out, x, k)\n"
        f"  at {at(few)}\n  do: write def rule(out, x, k, *, shift): ...",
    ),
    "kind by its name": (
        lambda: op.register("vmap", few),  # type: ignore[call-overload]
        co.RegistrationError,
        "errors_test::scaled: 'vmap' is no RuleKind\n"
        '  do: make one: RuleKind("inverse", takes="(out, *inputs)")',
    ),
    "backward of too few parameters": (
        lambda: op.register_autograd(few),
        co.RegistrationError,
        "errors_test::scaled: backward takes (x) by position, is given (ctx, grad_0)\n"
        f"  at {at(few)}\n  do: write def backward(ctx, grad_0): one gradient an output",
    ),
    "setup_context of a misspelt parameter": (
        lambda: op.register_autograd(lambda ctx, g: g, setup_context=bad_setup),
        co.RegistrationError,
        "errors_test::scaled: setup_context has the parameter 'inptus' (did you mean 'inputs'?)\n"
        f"  at {at(bad_setup)}\n" + SETUP,
    ),
    "setup_context without a parameter": (
        lambda: op.register_autograd(lambda ctx, g: g, setup_context=short_setup),
        co.RegistrationError,
        "errors_test::scaled: setup_context lacks the parameter 'keyword_only_inputs'\n"
        f"  at {at(short_setup)}\n" + SETUP,
    ),
    "gradient of what is written": (
        lambda: written_op.register_autograd(lambda ctx, g: g),
        co.RegistrationError,
        "errors_test::written writes its arguments, so it has no gradient\n"
        f"  {WRITTEN}\n"
        "                       ^^^^^^^^^^^\n"
        "  do: register autograd on an operator that returns fresh arrays",
    ),
    "switch of an unknown device": (
        lambda: op.set_kernel_enabled("cdua", False),
        co.RegistrationError,
        f"errors_test::scaled: unknown device type 'cdua' (did you mean 'cuda'?){KNOWN}",
    ),
    "switch of two devices": (
        lambda: op.set_kernel_enabled(["cpu", "cuda"]),  # type: ignore[arg-type]
        co.RegistrationError,
        "errors_test::scaled: set_kernel_enabled takes one kind of array, got ['cpu', 'cuda']\n"
        '  do: write set_kernel_enabled("cpu", False)',
    ),
    "rule of an unknown device": (
        lambda: op.rule("cdua"),
        co.RegistrationError,
        f"errors_test::scaled: unknown device type 'cdua' (did you mean 'cuda'?){KNOWN}",
    ),
    "rule of no kind": (
        lambda: op.rule(3),  # type: ignore[arg-type]
        co.RegistrationError,
        "errors_test::scaled: 3 is no RuleKind\n"
        '  do: make one: RuleKind("inverse", takes="(out, *inputs)")',
    ),
    "backward that is no function": (
        lambda: op.register_autograd(3),  # type: ignore[arg-type]
        co.RegistrationError,
        f"errors_test::scaled: the backward formula must be a function, got 3\n  do: {NOT_A_FUNCTION}",
    ),
    "unknown operator": (
        lambda: co.register_kernel("errors_test::scald", "cpu", scaled),
        co.MissingRuleError,
        "no operator is named 'errors_test::scald' (did you mean 'errors_test::scaled'?)\n"
        "  do: import the module that defines it first",
    ),
    "no operator at all": (
        lambda: co.register_vmap(3, few),  # type: ignore[arg-type]
        co.RegistrationError,
        'expected an operator or its name, got 3\n  do: pass "namespace::name"',
    ),
    "kind of rule without a name": (
        lambda: co.RuleKind(3),  # type: ignore[arg-type]
        co.RegistrationError,
        "3 is no name for a kind of rule\n"
        '  do: use an identifier: RuleKind("inverse", takes="(out, *inputs)")',
    ),
    "kind of rule that takes no names": (
        lambda: co.RuleKind("inverse", takes="(out, 3)"),
        co.RegistrationError,
        "rule kind 'inverse': cannot read takes='(out, 3)'\n"
        '  do: write names and "*inputs", as in "(out, *inputs)", or "(...)"',
    ),
    "kind of rule that takes no string": (
        lambda: co.RuleKind("inverse", takes=3),  # type: ignore[arg-type]
        co.RegistrationError,
        "rule kind 'inverse': takes=3 is no string\n"
        '  do: write the parameters of a rule: takes="(out, *inputs)"',
    ),
    "kind of rule that derives by no function": (
        lambda: co.RuleKind("inverse", derive=3),  # type: ignore[arg-type]
        co.RegistrationError,
        f"rule kind 'inverse': the derive must be a function, got 3\n  do: {NOT_A_FUNCTION}",
    ),
    "setting": (
        lambda: setattr(co.config, "checks", "frist"),
        co.ArgumentError,
        "config.checks is 'frist' (did you mean 'first'?)\n"
        "  do: set it to one of 'first', 'always', 'never'",
    ),
}  # fmt: skip

# ---- calls ----

EVERY = f"errors_test::every{every_op.schema}"


def refused(name: str, value: Any, why: str, do: str) -> tuple[Any, type, str]:
    """A call of `every` with a wrong argument, and what it says."""
    parameter = str(every_op.schema.parameters[every_op.schema.index(name)])
    text = (
        f"errors_test::every: argument '{name}' {why}\n"
        f"  {EVERY}\n"
        f"  {' ' * EVERY.index(parameter)}{'^' * len(parameter)}\n"
        f"  do: {do}"
    )
    arguments = {"x": X, "xs": XS, name: value}
    return lambda: every_op(**arguments), co.ArgumentError, text


ARRAY = "pass an array, such as np.asarray(x)"
ARRAYS = "pass arrays, such as [np.asarray(x), ...]"
DEVICE = "pass the name of a known device, such as 'cpu'"

CALLS: dict[str, tuple[Any, type, str]] = {
    "number for an array": refused("x", 3, "expects Array, got int 3", ARRAY),
    "list for an array": refused("x", [1.0], "expects Array, got list [1.0]", ARRAY),
    "None for an array": refused("x", None, "expects Array, got None", "pass an array, or declare x: Array | None"),
    "number for an optional array": refused("o", 3, "expects Array, got int 3", ARRAY),
    "array for a list": refused("xs", X, "expects Array[], a list, got ndarray of shape (2,)", "pass a list of Array"),
    "None for a list": refused("xs", None, "expects Array[], a list, got None", "pass a value, or make xs Optional"),
    "number in a list": refused("xs", [X, 3], "at index 1 expects Array, got int 3", ARRAYS),
    "None in a list": refused("xs", [None], "at index 0 expects Array, got None", ARRAYS),
    "whole float for an int": refused("n", 2.0, "expects int, got float 2.0", "pass int(2.0)"),
    "float for an int": refused("n", 2.5, "expects int, got float 2.5", "make n a float"),
    "string for an int": refused("n", "a", "expects int, got str 'a'", "pass a value of type int"),
    "None for an int": refused("n", None, "expects int, got None", "pass a value, or make n Optional"),
    "array for an int": refused("n", X, "expects int, got ndarray of shape (2,)", "pass a Python number, or make n an Array"),
    "two for a bool": refused("b", 2, "expects bool, got int 2", "pass a value of type bool"),
    "number for a string": refused("s", 3, "expects str, got int 3", "pass a value of type str"),
    "string for a number": refused("c", "1", "expects Scalar, got str '1'", "pass a value of type Scalar"),
    "no dtype": refused("d", "flot", "expects dtype, got str 'flot'", "pass a dtype, such as np.float32"),
    "no device": refused("v", "cdua", "is an unknown device 'cdua' (did you mean 'cuda'?); known: 'cpu', 'cuda'", DEVICE),
    "number for a list of numbers": refused("shape", 3, "expects int[], a list, got int 3", "pass a list of int"),
    "float in a list of ints": refused("shape", [1, 2.5], "at index 1 expects int, got float 2.5", "pass a list of int"),
    "missing kernel": (
        lambda: zeros_op(2, device="cuda"),
        co.MissingRuleError,
        "errors_test::zeros has no kernel for 'cuda'; it has 'cpu'\n"
        f"  {ZEROS}\n  at {at(zeros)}\n"
        '  do: @zeros.register_kernel("cuda")',
    ),
    "missing fake kernel": (
        lambda: plain_op(co.FakeArray((2,), float)),
        co.MissingRuleError,
        f"errors_test::plain has no fake kernel\n  {PLAIN}\n  at {at(plain)}\n"
        "  do: @plain.register_fake, a function that returns fake_like(...)",
    ),
    "missing rule": (
        lambda: plain_op.rule(co.RuleKind("inverse")),
        co.MissingRuleError,
        f"errors_test::plain has no 'inverse' rule\n  {PLAIN}\n  at {at(plain)}\n"
        "  do: @plain.register(inverse)",
    ),
    "arrays of different kinds": (
        lambda: every_op(X, [co.FakeArray((2,), float, device="cuda")]),
        co.DeviceMismatchError,
        "errors_test::every: arrays of different kinds: 'x' is on cpu, 'xs' is on cuda\n"
        f"  {EVERY}\n  do: bring them to one device: cupy.asarray(x), or x.get()",
    ),
}  # fmt: skip


# ---- contracts ----


def kernel_call(schema: str, fn: Any, fake: Any = None, **kwargs: Any) -> Any:
    """A call of an operator whose kernel is `fn`, by its first call."""

    def call() -> Any:
        made = co.custom_op(
            "errors_test::kernel",
            fn,
            **{"mutates_args": (), "schema": schema, **kwargs},
        )
        if fake is not None:
            made.register_fake(fake)
        return made(np.array([1.0, 2.0]))

    return call


def breach(fn: Any, schema: str, what: str) -> str:
    return (
        f"errors_test::kernel: the 'cpu' kernel {what}\n"
        f"  errors_test::kernel{schema}\n  kernel at {at(fn)}\n"
        "  do: return what the schema says, or change the annotation of the result"
    )


def gives_list(x: Any) -> Any:
    return x.tolist()


def gives_float(x: Any) -> Any:
    return 1.5


def gives_one(x: Any) -> Any:
    return x.copy()


def gives_three(x: Any) -> Any:
    return x + 1, x + 2, x + 3


def gives_same(x: Any) -> Any:
    return x


def gives_twins(x: Any) -> Any:
    y = x.copy()
    return y, y[:1]


def writes(x: Any) -> Any:
    x[0] = 5.0
    return x.copy()


def fake_shape(x: Any) -> Any:
    return co.fake_like(x, shape=(3,))


def fake_fails(x: Any) -> Any:
    raise KeyError("shape")


ONE, TWO = "(Array x) -> Array", "(Array x) -> (Array, Array)"
BREACHES: dict[str, tuple[Any, type, str]] = {
    "list for an array": (
        kernel_call(ONE, gives_list),
        co.ContractError,
        breach(gives_list, ONE, "returns output 0 as list [1.0, 2.0], must be an array"),
    ),
    "float for an int": (
        kernel_call("(Array x) -> int", gives_float),
        co.ContractError,
        breach(gives_float, "(Array x) -> int", "returns output 0 as float 1.5, must be int"),
    ),
    "something for nothing": (
        kernel_call("(Array x) -> ()", gives_one),
        co.ContractError,
        breach(gives_one, "(Array x) -> ()", "returns ndarray of shape (2,), must return None"),
    ),
    "one for two": (
        kernel_call(TWO, gives_one),
        co.ContractError,
        breach(gives_one, TWO, "returns ndarray of shape (2,), must return a tuple of 2"),
    ),
    "three for two": (
        kernel_call(TWO, gives_three),
        co.ContractError,
        breach(gives_three, TWO, "returns 3 items, must return a tuple of 2"),
    ),
    "an argument": (
        kernel_call(ONE, gives_same),
        co.ContractError,
        "errors_test::kernel: the 'cpu' kernel returns output 0 that shares memory with argument 'x'\n"
        "  which its schema does not say\n"
        f"  errors_test::kernel{ONE}\n  kernel at {at(gives_same)}\n"
        "  do: return a copy: out.copy()",
    ),
    "one memory twice": (
        kernel_call(TWO, gives_twins),
        co.ContractError,
        "errors_test::kernel: the 'cpu' kernel returns output 1 that shares memory with output 0\n"
        "  which its schema does not say\n"
        f"  errors_test::kernel{TWO}\n  kernel at {at(gives_twins)}\n"
        "  do: return a copy: out.copy()",
    ),
    "a write that is not declared": (
        kernel_call(ONE, writes),
        co.ContractError,
        "errors_test::kernel: the 'cpu' kernel writes argument 'x'\n"
        "  that mutates_args=() does not name\n"
        f"  errors_test::kernel{ONE}\n"
        "                      ^^^^^^^\n"
        f"  kernel at {at(writes)}\n"
        "  do: name it in mutates_args, or write into x.copy()",
    ),
    "a fake kernel of another shape": (
        kernel_call(ONE, gives_one, fake_shape),
        co.ContractError,
        "errors_test::kernel: the 'cpu' kernel returns f64[2] with strides (8,) on cpu as output 0,"
        " its fake kernel f64[3] with strides (8,) on cpu\n"
        f"  they differ in shape; fake kernel at {at(fake_shape)}\n"
        f"  errors_test::kernel{ONE}\n  kernel at {at(gives_one)}\n"
        "  do: return fake_like(x, shape=..., dtype=...) with what the kernel returns",
    ),
    "a fake kernel that fails": (
        kernel_call(ONE, gives_one, fake_fails),
        co.ContractError,
        "errors_test::kernel: the 'cpu' kernel succeeds where the fake kernel raises KeyError: 'shape'\n"
        f"  fake kernel at {at(fake_fails)}\n"
        f"  errors_test::kernel{ONE}\n  kernel at {at(gives_one)}\n"
        "  do: make the fake kernel accept what the kernel accepts",
    ),
}  # fmt: skip

TABLE = {
    f"{group}: {name}": row
    for group, rows in {
        "definition": DEFINITIONS,
        "registration": REGISTRATIONS,
        "call": CALLS,
        "contract": BREACHES,
    }.items()
    for name, row in rows.items()
}


def caught(act: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as found:
        act()
    return found.value


@pytest.mark.parametrize("name", TABLE)
def test_the_message_is(name: str) -> None:
    """Every message says what was wrong, where, and what to do."""
    act, kind, text = TABLE[name]
    error = caught(act)
    assert str(error) == text
    assert type(error) is kind


@pytest.mark.parametrize("name", TABLE)
def test_an_error_pickles(name: str) -> None:
    """An error goes to another process and back with all that it says."""
    error = caught(TABLE[name][0])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


BUILTIN = {
    co.SchemaError: (ValueError, TypeError),
    co.ArgumentError: (TypeError,),
    co.ShapeError: (ValueError,),
    co.DeviceMismatchError: (TypeError,),
    co.RegistrationError: (RuntimeError,),
    co.MissingRuleError: (NotImplementedError,),
    co.ContractError: (RuntimeError,),
    co.GradientError: (ValueError,),
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
    """Each error is a CustomOpError and the builtin that Python users catch."""
    assert issubclass(error, (CustomOpError,))
    assert all(issubclass(error, builtin) for builtin in builtins)


def test_every_error_is_in_the_table_above() -> None:
    """No exception of the package is left out."""
    found = {
        v
        for v in vars(errors).values()
        if inspect.isclass(v) and issubclass(v, CustomOpError)
    }
    assert found == {CustomOpError, *BUILTIN}


def test_an_error_knows_what_it_is_about() -> None:
    """Operator, parameter and kind can be read from an error."""
    error: Any = caught(lambda: every_op(X, XS, 2.5))
    assert (error.op, error.parameter, error.kind) == ("errors_test::every", "n", None)
    error = caught(lambda: zeros_op(2, device="cuda"))
    assert (error.op, error.parameter, error.kind) == (
        "errors_test::zeros",
        None,
        "cuda",
    )


# ---- what Python itself says ----


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: co.custom_op("m::x", plain), "custom_op() missing 1 required keyword-only argument: 'mutates_args'"),  # type: ignore[call-overload]
        (lambda: op(), "errors_test::scaled() missing 1 required positional argument: 'x'"),  # type: ignore[call-arg]
        (lambda: op(X, 1.0, 2.0), "errors_test::scaled() takes from 1 to 2 positional arguments but 3 were given"),  # type: ignore[misc]
        (lambda: op(X, gain=1.0), "errors_test::scaled() got an unexpected keyword argument 'gain'"),  # type: ignore[call-arg]
        (lambda: op(X, x=X), "errors_test::scaled() got multiple values for argument 'x'"),  # type: ignore[misc]
    ],
    ids=["no mutates_args", "missing", "extra", "unknown", "twice"],
)  # fmt: skip
def test_a_call_that_fits_no_signature_is_pythons_error(act: Any, text: str) -> None:
    """Missing, extra and unknown arguments are TypeErrors as of any function."""
    error = caught(act)
    assert type(error) is TypeError
    assert str(error) == text


# ---- second registrations ----


def test_a_second_rule_names_both_places() -> None:
    """A rule from another place is refused, unless it is to replace the first."""
    made = co.custom_op("errors_test::second", plain, mutates_args=())
    made.register_fake(fake_one)
    error = caught(lambda: made.register_fake(fake_two))
    assert str(error) == (
        f"errors_test::second has a 'fake' rule already, from {at(fake_one)}\n"
        f"  the second is at {at(fake_two)}\n"
        "  do: remove one of them, or register with override=True"
    )
    assert made.register_fake(fake_one).rule("fake") is fake_one
    assert made.register_fake(fake_two, override=True).rule("fake") is fake_two


def test_a_second_definition_elsewhere_names_both_places() -> None:
    """Two files that fight for one name are told of one another."""
    co.custom_op("errors_test::fought", plain, mutates_args=())
    names: dict[str, Any] = {"co": co, "np": np}
    text = "def plain(x: np.ndarray) -> np.ndarray: ...\n"
    exec(compile(text, "/elsewhere.py", "exec"), names)
    act = define("errors_test::fought", names["plain"])
    error = caught(act)
    assert type(error) is co.RegistrationError
    assert str(error) == (
        f"errors_test::fought is defined already, at {at(plain)}\n"
        "  the second definition is at /elsewhere.py:1\n"
        "  do: give one of them another name"
    )


# ---- frames of the package ----


def test_one_frame_stands_above_a_kernel() -> None:
    """A traceback shows one frame of the package, that of the generated call."""

    def failing(x: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError

    made = co.custom_op("errors_test::failing", failing, mutates_args=())
    caught(lambda: made(X))  # the first call compiles
    trace = caught(lambda: made(X)).__traceback__
    files = []
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    assert len([f for f in files if "customop" in f and f != __file__]) == 1


# ---- parts of messages ----


def test_an_error_of_one_part_is_that_part() -> None:
    """Without place or remedy the text is what was wrong."""
    assert str(CustomOpError("it is wrong")) == "it is wrong"


def test_lines_of_places_are_set_in() -> None:
    """Each line behind the first is set in by two."""
    error = CustomOpError("wrong", "one\ntwo", "three", do="mend it")
    assert str(error) == "wrong\n  one\n  two\n  three\n  do: mend it"


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
    """A fragment within a longer word is not meant."""
    assert caret(text, fragment, start) == (text if mark is None else f"{text}\n{mark}")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("bata", " (did you mean 'beta'?)"), ("zzz", ""), ("", "")],
)
def test_near_names_are_offered(name: str, hint: str) -> None:
    """The nearest known name is offered, where one is near."""
    assert did_you_mean(name, ["alpha", "beta"]) == hint


def test_names_stand_in_quotes() -> None:
    """Names are quoted with commas between."""
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
    """Decorators, partials, methods and callable objects are looked through."""
    assert innermost(fn) is found
    assert place(fn) == at(found)


@pytest.mark.parametrize(
    ("fn", "text"),
    [(np.sin, "ufunc sin"), (len, "builtin_function_or_method len"), (int, "type int")],
)
def test_what_has_no_place_is_named(fn: Any, text: str) -> None:
    """Builtins have no file and line: they are named instead."""
    assert place(fn) == text


def test_no_module_of_the_package_is_a_caller() -> None:
    """The place of a caller is outside the package."""
    line = sys._getframe().f_lineno + 1
    assert errors.caller_place() == f"{__file__}:{line}"
