"""Defining and removing operators."""

from __future__ import annotations

import keyword
import re
import weakref
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

from customop.arrays.on_demand import load_namespace
from customop.config import config
from customop.core.changes import changing
from customop.core.codegen import RESERVED
from customop.core.definition import Definition, Row, same_place
from customop.core.operator import Operator
from customop.core.registration import table_kernel
from customop.core.registry import (
    forget_registrations,
    namespaces,
    operators,
    registrations,
    taken,
)
from customop.errors import (
    RegistrationError,
    SchemaError,
    did_you_mean,
    items_of,
    shown,
    warn_caller,
)
from customop.later import later
from customop.schema.schema import Schema
from customop.schema.tags import Tag, apply_tags

__all__ = [
    "check_name",
    "check_names",
    "checked_tags",
    "define_operator",
    "remove_operator",
    "tables_changed",
]

# For names that are defined again.
holders: ModuleType = later(import_module, "customop.core.holders")
rerun: ModuleType = later(import_module, "customop.core.rerun")

_NAME = later(re.compile, r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)

# Operators of closed libraries that are still referenced: a new definition reuses them.
_retired: weakref.WeakValueDictionary[str, Operator[..., Any]] = (
    weakref.WeakValueDictionary()
)


def define_operator(
    definition: Definition, kinds: Iterable[str] = ()
) -> Operator[..., Any]:
    """Make the operator of a definition, or give an old one its new definition.

    A cell run again and a module loaded again replace the operator in place, so that
    every reference to it goes on working. Another definition can take the name only
    when nobody holds the operator any more, and never from a second file. The function
    of the definition becomes the kernel of `kinds`; registrations of open libraries come
    on top.
    """
    name = definition.qualname
    schema = apply_tags(name, definition.schema, definition.tags)
    if schema is not definition.schema:
        definition = definition.replaced(schema=schema)
    load_namespace(name.partition("::")[0], asked_by=definition.module)
    with changing:
        # Nothing here may hold the old operator while its holders are counted.
        is_second = name in operators and _is_second(operators[name], definition)
        if is_second and holders.is_held(name):
            raise _second(operators[name].definition, definition)
        waiting = registrations.get(name, ())
        for registration in waiting:
            registration.check(definition)
        op = None if is_second else operators.get(name) or _retired.pop(name, None)
        if op is None:
            op = _new_operator(definition)
        else:
            op.define(definition)
        for kind in kinds:
            kernel = table_kernel(op, definition.fn)
            op.enter(kind, Row(kernel, definition.place))
        for registration in tuple(waiting):
            registration.enter(op)
        forget_registrations(name, None)
        operators[name] = op
        by_name = namespaces.setdefault(op.namespace, {})
        by_name.setdefault(op.name, {})[op.overload] = op
    return op


def _is_second(op: Operator[..., Any], new: Definition) -> bool:
    """Whether a definition makes another operator than the one that has its name."""
    old = op.definition
    old_file, new_file = (d.place.rpartition(":")[0] for d in (old, new))
    if old_file != new_file and not same_place(old.place, new.place):
        raise taken(new.qualname, old.place, new.place)
    if rerun.same_definition(old, new):
        return False
    if not rerun.runs_again(old, new):
        return True
    if rerun.is_doubtful(old, new):
        warn_caller(
            f"{new.qualname} was defined in another cell, at {old.place}: the operator"
            " made there runs this function too from now on. If you mean two operators,"
            " give each its own name"
        )
    return False


def _second(old: Definition, new: Definition) -> RegistrationError:
    """The error for two operators of one name that are both in use."""
    other = rerun.difference(old.fn, new.fn)
    if not other:
        return taken(new.qualname, old.place, new.place)
    name = other.split("'")[1]
    return new.error(
        RegistrationError,
        f" is defined already, with another value of '{name}', and still in use",
        f"both definitions are at {new.place}: {other}",
        do=f'give each its own name, such as custom_op(f"{new.qualname}_{{number}}", ...),'
        f" or make '{name}' a parameter",
        parameter=None,
    )


def _new_operator(definition: Definition) -> Operator[..., Any]:
    # help() shows the text of the operator only if its class has another one.
    text = {"__doc__": f"The class of {definition.qualname}."}
    cls = type(definition.qualname.partition("::")[2], (Operator,), text)
    op: Operator[..., Any] = cls(definition)
    return op


def remove_operator(op: Operator[..., Any]) -> None:
    """Free the name of an operator; later calls of the operator raise."""
    with changing:
        if operators.get(op.qualname) is not op:
            return
        del operators[op.qualname]
        by_name = namespaces[op.namespace]
        del by_name[op.name][op.overload]
        if not by_name[op.name]:
            del by_name[op.name]
        if not by_name:
            del namespaces[op.namespace]
        op.close()
        _retired[op.qualname] = op


def tables_changed() -> None:
    """Forget what was worked out for all operators, after a change that concerns all."""
    with changing:
        for op in list(operators.values()):
            op.changed(is_kernel=True)


# ---- checks of definitions ----


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
            f"{what}: the name {shown(name)} has no namespace",
            do=f'write "mylib::{name}", with the name of your package',
        )
    raise RegistrationError(
        f"{what}: {shown(name)} cannot be the name of an operator",
        do='write "namespace::name", or "namespace::name.overload", in ASCII letters,'
        " digits and underscores",
    )


def checked_tags(name: str, tags: Iterable[Tag] | Tag) -> frozenset[Tag]:
    """The tags of an operator as a set; raise for anything else."""
    listed = items_of(tags)
    found: list[Any] = [tags] if listed is None else listed
    for tag in found:
        if not isinstance(tag, Tag):
            names = [str(t) for t in Tag]
            near = did_you_mean(f"Tag.{tag}", names) if isinstance(tag, str) else ""
            raise RegistrationError(
                f"{name}: {shown(tag)} is not a tag{near}",
                do=f"use one of {', '.join(str(t) for t in Tag)}",
                op=name,
            )
    return frozenset(found)


config.on_change(tables_changed)
