"""Answers to mypy for operators by attribute, and for the types of their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mypy.nodes import MemberExpr
from mypy.plugin import AttributeContext, MethodSigContext
from mypy.types import FunctionLike, Overloaded, Type

from customop.core.operator import Operator
from customop.library.ops import (
    Namespaces,
    OperatorNamespace,
    OperatorPacket,
    unknown_operator,
)
from customop.mypy import codes
from customop.mypy.calls import checker
from customop.mypy.kinds import with_kinds
from customop.mypy.overloads import overloads_of
from customop.mypy.program import Program, is_operator
from customop.mypy.records import Record, recall, remember

__all__ = ["attribute_of", "call_of"]


def _namespace(program: Program, context: AttributeContext) -> Type:
    if not isinstance(context.context, MemberExpr):
        return context.default_attr_type
    name = Record(context.context.name)
    return remember(checker(context), context.default_attr_type, name)


def _packet(program: Program, context: AttributeContext) -> Type:
    namespace = recall(context.type)
    if namespace is None or not isinstance(context.context, MemberExpr):
        return context.default_attr_type
    name = Record(f"{namespace.name}::{context.context.name}")
    error = program.misspelled(checker(context), name.name, unknown_operator)
    if error is not None:
        codes.report(checker(context), error, context.context, codes.NAME)
    return remember(checker(context), context.default_attr_type, name)


def _overload(program: Program, context: AttributeContext) -> Type:
    packet = recall(context.type)
    if packet is None or not isinstance(context.context, MemberExpr):
        return context.default_attr_type
    overload = context.context.name
    name = packet.name if overload == "default" else f"{packet.name}.{overload}"
    found = program.find(checker(context), name)
    if found is None and not hasattr(OperatorPacket, overload):
        error = program.wrong_overload(checker(context), f"{packet.name}.{overload}")
        if error is not None:
            codes.report(checker(context), error, context.context, codes.NAME)
    if found is None or not is_operator(found[1]):
        return context.default_attr_type
    return found[1]


def _packet_call(program: Program, context: MethodSigContext) -> FunctionLike:
    packet, api = recall(context.type), checker(context)
    if packet is None:
        return context.default_signature
    items = program.signatures(api, packet.name)
    return items or context.default_signature


def _call(program: Program, context: MethodSigContext) -> FunctionLike:
    """The overloads of an operator's function, which take the kinds with a kernel."""
    record = recall(context.type)
    found = overloads_of(context.type) or context.default_signature
    if record is None or not record.kinds:
        return found
    api = checker(context)
    items = [with_kinds(api, item, record.kinds) for item in found.items]
    return items[0] if len(items) == 1 else Overloaded(items)


def _attribute(program: Program, context: AttributeContext) -> Type:
    """The type of `Operator.call`."""
    return overloads_of(context.type) or context.default_attr_type


_Attribute: TypeAlias = Callable[[Program, AttributeContext], Type]
_Call: TypeAlias = Callable[[Program, MethodSigContext], FunctionLike]
_OPERATOR = Operator.__name__
# Class -> the answer for its attributes.
_ATTRIBUTES: dict[str, _Attribute] = {
    Namespaces.__name__: _namespace,
    OperatorNamespace.__name__: _packet,
    OperatorPacket.__name__: _overload,
}
_CALLS: dict[str, _Call] = {
    OperatorPacket.__call__.__qualname__: _packet_call,
    f"{_OPERATOR}.__call__": _call,
    f"{_OPERATOR}.dispatch": _call,
}


def attribute_of(name: str) -> _Attribute | None:
    """The answer for an attribute such as ``Operator.call``."""
    if name == f"{_OPERATOR}.call":
        return _attribute
    return _ATTRIBUTES.get(name.rpartition(".")[0])


def call_of(name: str) -> _Call | None:
    """The answer for the type of a method such as ``Operator.__call__``."""
    return _CALLS.get(name)
