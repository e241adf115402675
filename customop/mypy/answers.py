"""Answers to mypy for calls of functions and methods of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from mypy.errorcodes import ErrorCode
from mypy.types import CallableType, Instance, NoneType, Type, get_proper_type

from customop.arrays.kinds import DEFAULT, FAKE
from customop.core.kinds import AUTOGRAD, JVP, VMAP
from customop.core.rule_kind import RuleKind
from customop.errors import RegistrationError
from customop.library.keys import kind_of_key
from customop.mypy import codes
from customop.mypy.asked import Answer, Asked, Subject
from customop.mypy.calls import misshapen, mixed
from customop.mypy.definitions import Draft, schema_of
from customop.mypy.overloads import plain_operator, typed_as, with_overloads
from customop.mypy.program import is_operator
from customop.mypy.records import Record, copied, recall, remember
from customop.mypy.rules import Registered, check_kinds
from customop.mypy.transforms import (
    TRANSFORMS,
    check_positions,
    check_rule,
    check_vmap,
    result_of_transform,
)

__all__ = ["FUNCTIONS", "METHODS"]


# ---- definitions ----


def _custom_op(asked: Asked) -> Type:
    name, function = asked.name("custom_op", 0), asked.function(1)
    given, result = asked.call.get(1), plain_operator(asked.result)
    result = with_overloads(typed_as(result, function), given and given.type)
    if not name or function is None:
        return result
    draft = Draft(asked.api, asked.survey, name, asked.call, function, asked.context)
    record = asked.defined(draft.record, name)
    if not record.has_schema:
        return result
    decorator = get_proper_type(result)
    if isinstance(decorator, CallableType):
        made = remember(asked.api, decorator.ret_type, record)
        return decorator.copy_modified(ret_type=made)
    return remember(asked.api, result, record)


def _define(asked: Asked) -> Type:
    text = asked.call.expression(1)
    name = asked.name("define", 0)
    if name and text is not None:
        schema_of(asked.api, text, name=name)
        asked.defined(partial(Record, name), name)
    return asked.result


def _library(asked: Asked) -> Type:
    name, key = asked.call.text(0), asked.call.get(2)
    if not name or (key is not None and asked.call.text(2) is None):
        return asked.result
    record = Record(name, key=asked.call.text(2) or "")
    return remember(asked.api, asked.result, record)


def _define_in(asked: Asked) -> Type:
    library = recall(asked.object)
    if library is not None:
        schema_of(asked.api, asked.call.expression(0), namespace=library.name)
    return asked.result


def _rule_kind(asked: Asked) -> Type:
    name, takes = asked.call.text(0), asked.call.get(1)
    if not name or (takes is not None and asked.call.text(1) is None):
        return asked.result
    record = Record(name, takes=asked.call.text(1) or "(...)")
    return remember(asked.api, asked.result, record)


def _config_type(asked: Asked) -> Type:
    given = asked.call.get(0)
    proper = None if given is None else get_proper_type(given.type)
    made = proper.ret_type if isinstance(proper, CallableType) else None
    instance = get_proper_type(made)
    if isinstance(instance, Instance):
        instance.type.metadata["customop"] = {"is_registered": True}
    return asked.result


# ---- registrations: for the method and the function of a name ----


def _kernel(asked: Asked, op: Subject, at: int) -> None:
    is_default = asked.call.constant(at, "") is None
    names = (DEFAULT,) if is_default else asked.call.texts(at)
    if names is not None and not check_kinds(
        asked.api, op[0].name, names, asked.place(at)
    ):
        return
    found = asked.registered(op, at + 1)
    if found is not None:
        found.check_kernel(names[0] if names else "", codes.KERNEL)


def _function(
    check: Callable[[Registered], None], asked: Asked, op: Subject, at: int
) -> None:
    found = asked.registered(op, at)
    if found is not None:
        check(found)


def _autograd(asked: Asked, op: Subject, at: int) -> None:
    found = asked.registered(op, at)
    if found is None:
        return
    given = asked.call.get("setup_context")
    is_none = given is None or isinstance(get_proper_type(given.type), NoneType)
    setup = None if is_none else asked.function("setup_context")
    found.check_backward(setup, is_known=is_none or setup is not None)


def _rule(asked: Asked, op: Subject, at: int) -> None:
    given = asked.call.get(at)
    kind = None if given is None else recall(given.type)
    found = asked.registered(op, at + 1)
    if found is None or kind is None or not kind.takes:
        return
    try:
        made = RuleKind(kind.name, kind.takes)
    except RegistrationError as error:
        codes.report(asked.api, error, asked.context, codes.RULE)
        return
    found.check_rule(made, codes.RULE)


_Check: TypeAlias = Callable[[Asked, Subject, int], None]
_RULES: dict[str, _Check] = {
    "register_kernel": _kernel,
    "register_fake": partial(
        _function, lambda found: found.check_kernel(FAKE, codes.FAKE)
    ),
    "register_autograd": _autograd,
    "register_jvp": partial(_function, lambda found: found.check_rule(JVP, codes.JVP)),
    "register_vmap": partial(
        _function, lambda found: found.check_rule(VMAP, codes.VMAP)
    ),
    "register": _rule,
}


def _method(check: _Check, asked: Asked) -> Type:
    record = recall(asked.object)
    if record is None or not record.has_schema or asked.object is None:
        return asked.result
    check(asked, (record, asked.object), 0)
    return copied(asked.object, asked.result)


def _by_name(what: str, check: _Check, asked: Asked) -> Type:
    found = asked.operator(what, 0)
    if found is None:
        return asked.result
    check(asked, found, 1)
    gives_operator = is_operator(asked.result) and is_operator(found[1])
    return found[1] if gives_operator and found[1] is not None else asked.result


# ---- registrations as torch writes them ----


def _impl(asked: Asked) -> Type:
    op = asked.operator("impl", 0)
    if op is not None:
        _check_keys(asked, op, asked.call.texts(1) or (), 2)
    return asked.result


def _impl_in(asked: Asked) -> Type:
    library, name = recall(asked.object), asked.call.text(0)
    if library is None or name is None:
        return asked.result
    name = name if "::" in name else f"{library.name}::{name}"
    op, key = asked.program.find(asked.api, name), asked.call.text(2)
    if op is not None and (asked.call.get(2) is None or key is not None):
        keys = (key or library.key or "CompositeImplicitAutograd",)
        _check_keys(asked, op, keys, 1)
    return asked.result


# Kind -> code; every other kind is of kernels.
_CODES: dict[str | RuleKind, ErrorCode] = {
    FAKE: codes.FAKE,
    AUTOGRAD: codes.AUTOGRAD,
    JVP: codes.JVP,
    VMAP: codes.VMAP,
}


def _check_keys(asked: Asked, op: Subject, keys: Sequence[str], at: int) -> None:
    found = asked.registered(op, at)
    below = asked.call.constant("with_keyset", False)
    if found is None or not isinstance(below, bool):
        return
    for key in keys:
        try:
            kind = kind_of_key("impl", key)
        except RegistrationError:
            continue  # the program may register it
        code = _CODES.get(kind, codes.KERNEL)
        found.check_entry(kind, code, with_below=below)


# ---- calls ----


def _called(asked: Asked) -> Type:
    record = recall(asked.object)
    if record is not None and record.has_schema:
        error = mixed(asked.call, record)
        if error is not None:
            codes.report(asked.api, error, asked.context, codes.MIXED)
        for wrong, given in misshapen(asked.call, record):
            at = given.expression or asked.context
            codes.report(asked.api, wrong, at, codes.SHAPE)
    return asked.result


# ---- transforms ----


def _transform(name: str, asked: Asked) -> Type:
    check_positions(asked.api, asked.call, name)
    if TRANSFORMS[name]:
        check_rule(asked.api, asked.survey, asked.call, asked.context)
    return result_of_transform(asked.call, name, asked.result)


def _vmap(asked: Asked) -> Type:
    check_vmap(asked.api, asked.call)
    return result_of_transform(asked.call, "vmap", asked.result)


FUNCTIONS: dict[str, Answer] = {
    "vmap": _vmap,
    **{name: partial(_transform, name) for name in TRANSFORMS},
    "custom_op": _custom_op,
    "define": _define,
    "impl": _impl,
    "Library": _library,
    "RuleKind": _rule_kind,
    "register_config_type": _config_type,
    **{name: partial(_by_name, name, check) for name, check in _RULES.items()},
}
METHODS: dict[str, Answer] = {
    "Library.define": _define_in,
    "Library.impl": _impl_in,
    "Operator.__call__": _called,
    **{f"Operator.{name}": partial(_method, check) for name, check in _RULES.items()},
}
