"""Messages about registrations of kernels and rules."""
# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

import functools

import customop as co
from tests.errors._operators import (
    DEVICES,
    KNOWN,
    NOT_A_FUNCTION,
    PLAIN,
    SCALED,
    WRITTEN,
    Row,
    at,
    bad_setup,
    few,
    many,
    misspelt,
    no_shift,
    op,
    other,
    plain_op,
    scaled,
    short_setup,
    unsaved,
    written_op,
)

PARAMETERS = f"  do: write the parameters of {SCALED}"
SETUP = "  do: write def setup_context(ctx, inputs, keyword_only_inputs, output): it is called by name"

REGISTRATIONS: dict[str, Row] = {
    "kernel of another name": (
        lambda: plain_op.register_kernel("cpu", other),
        co.RegistrationError,
        "errors_test::plain: the kernel for 'cpu' has the parameter 'y' where the schema has 'x' (position 0)\n"
        f"  at {at(other)}\n  do: write the parameters of {PLAIN}",
    ),
    "kernel of too few parameters": (
        lambda: op.register_kernel("cpu", few),
        co.RegistrationError,
        "errors_test::scaled: the kernel for 'cpu' takes (x) by position, but is called with (x, k)\n"
        f"  at {at(few)}\n" + PARAMETERS,
    ),
    "kernel of too many parameters": (
        lambda: op.register_kernel(("cpu", "cuda"), many),
        co.RegistrationError,
        "errors_test::scaled: the kernel for 'cpu' takes (x, k, z) by position, but is called with (x, k)\n"
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
        "errors_test::scaled: the kernel for 'cpu' takes (x) by position, but is called with (x, k)\n"
        f"  at {at(few)}\n" + PARAMETERS,
    ),
    "kernel that is a number": (
        lambda: op.register_kernel("cpu", 3),  # type: ignore[call-overload]
        co.RegistrationError,
        f"errors_test::scaled: the kernel for 'cpu' must be a function, got 3\n  do: {NOT_A_FUNCTION}",
    ),
    "kernel that is the operator": (
        lambda: plain_op.register_kernel("cpu", plain_op),
        co.RegistrationError,
        "errors_test::plain: the kernel for 'cpu' is the operator itself, which would call itself forever\n"
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
        "errors_test::plain: the fake kernel is the operator itself, which would call itself forever\n"
        "  do: register the function that computes the result",
    ),
    "vmap rule": (
        lambda: op.register_vmap(few),
        co.RegistrationError,
        "errors_test::scaled: the vmap rule takes (x) by position, but is called with (info, in_dims, x, k)\n"
        f"  at {at(few)}\n  do: write def rule(info, in_dims, x, k, *, shift): ...",
    ),
    "jvp rule": (
        lambda: op.register_jvp(few),
        co.RegistrationError,
        "errors_test::scaled: the jvp rule takes (x) by position, but is called with (primals, tangents)\n"
        f"  at {at(few)}\n  do: write def rule(primals, tangents, *, shift): ...",
    ),
    "jvp rule that is a number": (
        lambda: op.register_jvp(3),  # type: ignore[call-overload]
        co.RegistrationError,
        f"errors_test::scaled: the jvp rule must be a function, got 3\n  do: {NOT_A_FUNCTION}",
    ),
    "rule of a user-defined kind": (
        lambda: op.register(co.RuleKind("inverse", takes="(out, *inputs)"), few),
        co.RegistrationError,
        "errors_test::scaled: the inverse rule takes (x) by position, but is called with (out, x, k)\n"
        f"  at {at(few)}\n  do: write def rule(out, x, k, *, shift): ...",
    ),
    "kind by its name": (
        lambda: op.register("vmap", few),  # type: ignore[call-overload]
        co.RegistrationError,
        "errors_test::scaled: 'vmap' is not a RuleKind\n"
        '  do: make one: RuleKind("inverse", takes="(out, *inputs)")',
    ),
    "backward of too few parameters": (
        lambda: op.register_autograd(few),
        co.RegistrationError,
        "errors_test::scaled: backward takes (x) by position, but is called with (ctx, grad_0)\n"
        f"  at {at(few)}\n  do: write def backward(ctx, grad_0): one gradient for each output",
    ),
    "backward reads what nothing saves": (
        lambda: op.register_autograd(unsaved),
        co.RegistrationError,
        "errors_test::scaled: backward reads ctx.saved_arrays, and there is no setup_context"
        f" that saves any\n  at {at(unsaved)}\n"
        "  do: def setup_context(ctx, inputs, output): ctx.save_for_backward(...), and"
        " register_autograd(backward, setup_context=setup_context)",
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
        "errors_test::scaled: 3 is not a RuleKind\n"
        '  do: make one: RuleKind("inverse", takes="(out, *inputs)")',
    ),
    "backward that is a number": (
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
        "3 cannot be the name of a rule kind\n"
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
        "rule kind 'inverse': takes=3 is not a string\n"
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
