"""Messages about definitions of operators."""
# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

import customop as co
from tests.errors._operators import (
    AGREE,
    DEVICES,
    EXAMPLE,
    GIVE,
    KNOWN,
    NAME,
    PLAIN,
    SUPPORTED,
    TAGS,
    WRITES,
    Holder,
    NoSignature,
    Row,
    at,
    define,
    literal,
    literal_result,
    mixed,
    none_default,
    optional,
    plain,
    plain_op,
    scaled,
    starred,
    unannotated,
    unknown_name,
    unreturned,
)

DEFINITIONS: dict[str, Row] = {
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
            f"custom_op: {name!r} cannot be the name of an operator{NAME}",
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
        "m::x: custom_op expects a function, got 3\n"
        "  do: pass the function that computes the result",
    ),
    "an operator": (
        define("m::x", plain_op),
        co.RegistrationError,
        f"m::x: custom_op expects a function, got <Operator {PLAIN}>\n"
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
        f"m::x: device_types=3 does not name a kind of array{DEVICES}",
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
        "  do: add a parameter device: Device, or name no kinds of array",
    ),
    "a tag by its name": (
        define("m::x", plain, tags="pointwise"),
        co.RegistrationError,
        f"m::x: 'pointwise' is not a tag (did you mean 'Tag.pointwise'?){TAGS}",
    ),
    "a tag that is a number": (
        define("m::x", plain, tags=[3]),
        co.RegistrationError,
        f"m::x: 3 is not a tag{TAGS}",
    ),
    "mutates_args is a string": (
        define("m::x", plain, mutates_args="x"),
        co.SchemaError,
        "m::x: mutates_args='x' is neither names nor 'unknown'\n"
        "  do: write mutates_args=() or mutates_args=('x',)",
    ),
    "mutates_args is missing": (
        lambda: co.custom_op("m::x", plain),  # type: ignore[call-overload]
        co.SchemaError,
        "m::x: custom_op needs mutates_args, the arguments that the kernel writes to\n"
        "  do: write mutates_args=() if it writes to none, else mutates_args=('x',)",
    ),
    "a decorator without arguments": (
        lambda: co.custom_op(plain),  # type: ignore[call-overload]
        co.RegistrationError,
        "custom_op: the function 'plain' is given in the place of a name\n"
        '  do: write @custom_op("mylib::name", mutates_args=())',
    ),
    "mutates_args is a number": (
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
    "mutates_args without arrays": (
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
        "  do: write x: np.ndarray, or its type",
    ),
    "a lambda": (
        define("m::x", (hintless := lambda x: x)),
        co.SchemaError,
        "m::x: <lambda>: parameter 'x' has no annotation\n"
        "  <lambda>(x)\n"
        "           ^\n"
        f"  at {at(hintless)}\n"
        f"  do: annotate every parameter, such as x: np.ndarray, or {GIVE}",
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
        "  do: write -> np.ndarray, or its type, or -> None",
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
    "schema is a number": (
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
        "m::x: the function plain takes (x) by position, but is called with (x, y)\n"
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
