"""What is checked of kernels and rules when they are registered."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from customop.arrays.kinds import DEFAULT, FAKE, known_devices
from customop.core.codegen import RESERVED
from customop.core.table import Definition, RuleKind
from customop.errors import (
    RegistrationError,
    SchemaError,
    did_you_mean,
    place,
    quoted,
)
from customop.schema.schema import Schema
from customop.schema.signatures import check_callable, check_parameters, has_exactly
from customop.schema.tags import Tag
from customop.schema.types import holds_arrays

__all__ = [
    "check_autocast",
    "check_backward",
    "check_device_types",
    "check_factory",
    "check_has_gradient",
    "check_kernel",
    "check_kind",
    "check_name",
    "check_names",
    "check_setup",
    "checked_tags",
]

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)


def check_kernel(op: Definition, fn: Any, what: str) -> None:
    """Raise unless `fn` can be a kernel of the operator."""
    if getattr(fn, "definition", None) is op:
        raise RegistrationError(
            f"{op.qualname}: the {what} is the operator itself, which would call"
            " itself for ever",
            do="register the function that computes the result",
            op=op.qualname,
        )
    check_callable(op.qualname, what, fn)
    check_parameters(
        f"{op.qualname}: the {what}",
        fn,
        [p.name for p in op.schema.positional],
        [p.name for p in op.schema.keyword_only],
        do=f"write the parameters of {op.schema.show(op.qualname)}",
    )


def check_kind(qualname: str, kind: object) -> None:
    """Raise unless `kind` is a kind of rule."""
    if not isinstance(kind, RuleKind):
        raise RegistrationError(
            f"{qualname}: {kind!r} is no RuleKind",
            do='make one: RuleKind("inverse", takes="(out, *inputs)")',
            op=qualname,
        )


def check_has_gradient(op: Definition) -> None:
    """Raise for an operator that cannot have a gradient."""
    if op.schema.written or not op.schema.returns:
        why = "writes its arguments" if op.schema.written else "returns nothing"
        raise RegistrationError(
            f"{op.qualname} {why}, so it has no gradient",
            op.schema.show(op.qualname, *op.schema.written[:1]),
            do="register autograd on an operator that returns fresh arrays",
            op=op.qualname,
            kind="autograd",
        )


def check_backward(op: Definition, backward: Any) -> None:
    """Raise unless this takes what a backward formula of the operator is given."""
    check_callable(op.qualname, "backward formula", backward, kind="autograd")
    grads = [f"grad_{r.name or i}" for i, r in enumerate(op.schema.returns)]
    check_parameters(
        f"{op.qualname}: backward",
        backward,
        ["ctx", *grads],
        [],
        free=1 + len(grads),
        do=f"write def backward(ctx, {', '.join(grads)}): one gradient an output",
    )


def check_setup(op: Definition, setup_context: Any) -> None:
    """Raise unless this takes what a setup function of the operator is given."""
    check_callable(op.qualname, "setup_context", setup_context, kind="autograd")
    names = ["ctx", "inputs"]
    names += ["keyword_only_inputs"] if op.schema.keyword_only else []
    names += ["output"]
    if has_exactly(setup_context, names, []):
        return
    try:
        parameters = inspect.signature(setup_context).parameters
    except (TypeError, ValueError):
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    needed = {n for n, p in parameters.items() if p.default is p.empty}
    wrong = sorted(needed - set(names)) or [n for n in names if n not in parameters]
    if wrong:
        near = did_you_mean(wrong[0], names) if wrong[0] not in names else ""
        has = "has the parameter" if wrong[0] in parameters else "lacks the parameter"
        raise RegistrationError(
            f"{op.qualname}: setup_context {has} '{wrong[0]}'{near}",
            f"at {place(setup_context)}",
            do=f"write def setup_context({', '.join(names)}): it is called by name",
            op=op.qualname,
            kind="autograd",
        )


def check_autocast(op: Definition, device_type: Any, dtype: Any) -> np.dtype[Any]:
    """The dtype that the floats of an operator can be cast to; raise for others."""
    what = f"{op.qualname}: register_autocast"
    if not isinstance(device_type, str):
        raise RegistrationError(
            f"{what} takes one kind of array, got {device_type!r}",
            do='write register_autocast("cpu", np.float32)',
            op=op.qualname,
            kind="autocast",
        )
    check_device_types(op.qualname, device_type)
    bound = [p.name for p in op.schema.parameters if p.alias is not None]
    if bound:
        written = op.schema.written
        why = "writes" if written else "returns a view of"
        raise RegistrationError(
            f"{what}: it {why} its argument '{(written or bound)[0]}', in place of which"
            " a cast would hand over a copy",
            op.schema.show(op.qualname, (written or bound)[0]),
            do="register autocast on an operator that returns fresh arrays",
            op=op.qualname,
            kind="autocast",
        )
    found: np.dtype[Any] | None
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    # By name, for the floats of other packages, such as bfloat16, are of kind "V".
    if dtype is None or found is None or "float" not in found.name:
        raise RegistrationError(
            f"{what}: {dtype!r} is no dtype of floats",
            do="pass one, such as np.float16 or np.float32",
            op=op.qualname,
            kind="autocast",
        )
    return found


def check_device_types(
    qualname: str, device_types: str | Iterable[str] | None
) -> tuple[str, ...]:
    """Names of kinds of array, each known; the default for None."""
    if device_types is None:
        return (DEFAULT,)
    if not isinstance(device_types, Iterable):
        raise RegistrationError(
            f"{qualname}: device_types={device_types!r} names no kind of array",
            do='write "cpu", ("cpu", "cuda"), or None for all kinds',
            op=qualname,
        )
    kinds = [device_types] if isinstance(device_types, str) else list(device_types)
    if not kinds:
        raise RegistrationError(
            f"{qualname}: device_types is empty, so the kernel would serve nothing",
            do='write "cpu", ("cpu", "cuda"), or None for all kinds',
            op=qualname,
        )
    known = known_devices()
    for kind in kinds:
        if kind not in known:
            hint = did_you_mean(str(kind), known)
            raise RegistrationError(
                f"{qualname}: unknown device type {kind!r}{hint}",
                f"known: {quoted(known)}",
                do="register_fake for a fake kernel"
                if kind == FAKE
                else "use a known one, or register_array_type first",
                op=qualname,
            )
    return tuple(kinds)


def check_names(qualname: str, schema: Schema) -> None:
    """Raise unless the generated call can be written with these names."""
    names = [qualname.partition("::")[2].partition(".")[0]]
    names += [p.name for p in schema.parameters]
    for name in names:
        taken = name in RESERVED or name == "__debug__" or keyword.iskeyword(name)
        if taken or not name.isidentifier():
            raise SchemaError(
                f"{qualname}: '{name}' cannot be a name in a call",
                schema.show(qualname),
                do="use another name",
            )


def check_name(what: str, name: object) -> None:
    """Raise unless `name` can be the qualified name of an operator."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return
    if isinstance(name, str) and "::" not in name:
        raise RegistrationError(
            f"{what}: the name {name!r} has no namespace",
            do=f'write "mylib::{name}", with the name of your package',
        )
    raise RegistrationError(
        f"{what}: {name!r} is no name of an operator",
        do='write "namespace::name", or "namespace::name.overload", in ASCII letters,'
        " digits and underscores",
    )


def check_factory(name: str, schema: Schema, kinds: tuple[str, ...]) -> None:
    """Raise if kernels are chosen by a kind of array that no argument tells."""
    has_array = any(holds_arrays(p.type) for p in schema.parameters)
    if has_array or schema.device_slot is not None or kinds == (DEFAULT,):
        return
    raise RegistrationError(
        f"{name}: has kernels for {', '.join(kinds)}, but no array and no 'device' to"
        " choose by",
        schema.show(name),
        do="add a parameter device: Device, or leave device_types out",
        op=name,
    )


def checked_tags(name: str, tags: Iterable[Tag] | Tag) -> frozenset[Tag]:
    """Tags of an operator, each known."""
    given: Any = tags
    several = isinstance(given, Iterable) and not isinstance(given, str)
    found: list[Any] = list(given) if several else [given]
    for tag in found:
        if not isinstance(tag, Tag):
            names = [str(t) for t in Tag]
            near = did_you_mean(f"Tag.{tag}", names) if isinstance(tag, str) else ""
            raise RegistrationError(
                f"{name}: {tag!r} is no tag{near}",
                do=f"use one of {', '.join(str(t) for t in Tag)}",
                op=name,
            )
    return frozenset(found)
