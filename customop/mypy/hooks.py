"""What mypy asks about calls of this package, and who answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from mypy.errorcodes import ErrorCode
from mypy.nodes import Context, Expression, MemberExpr, MypyFile
from mypy.options import Options
from mypy.plugin import (
    AttributeContext,
    FunctionContext,
    MethodContext,
    MethodSigContext,
    Plugin,
)
from mypy.types import (
    CallableType,
    FunctionLike,
    Instance,
    NoneType,
    Type,
    get_proper_type,
)

from customop.arrays.kinds import DEFAULT, FAKE
from customop.core.checks import check_name
from customop.core.kinds import AUTOGRAD, JVP, VMAP
from customop.core.table import RuleKind
from customop.errors import RegistrationError, quoted
from customop.library.entry import kind_of_key
from customop.library.ops import Namespaces, OperatorNamespace, OperatorPacket
from customop.mypy import codes
from customop.mypy.arguments import Argument, Call, checker
from customop.mypy.calls import different_arrays
from customop.mypy.constants import constant_or
from customop.mypy.definitions import Draft, Said, check_schema
from customop.mypy.functions import Function, function_of, innermost_decorator
from customop.mypy.names import own_name
from customop.mypy.program import Program, is_operator
from customop.mypy.records import Record, copied, recall, remember
from customop.mypy.rules import Registered, check_kinds
from customop.mypy.shapes import misshapen
from customop.mypy.trees import Decorators

__all__ = ["CustomOpPlugin"]

AnyContext: TypeAlias = FunctionContext | MethodContext
# An operator and its type, None where it has none.
Subject: TypeAlias = tuple[Record, Type | None]
Answer: TypeAlias = Callable[["Asked"], Type]


class Asked:
    """A call that mypy asks about.

    Attributes
    ----------
    api : TypeChecker
    call : Call
        Its arguments.
    result : Type
        What mypy takes for its result.
    context : Context
        Where it stands.
    object : Type or None
        Of what it is a method.
    program : Program
    """

    def __init__(self, plugin: CustomOpPlugin, context: AnyContext) -> None:
        self._decorators = plugin.decorators
        self.program = plugin.program
        self.api = checker(context)
        self.call = Call(context)
        self.result = context.default_return_type
        self.context: Context = context.context
        self.object = context.type if isinstance(context, MethodContext) else None

    def function(self, given: Argument | None) -> Function | None:
        """The function that is given, or that the call decorates."""
        if given is not None and not isinstance(get_proper_type(given.type), NoneType):
            module = self.api.tree.fullname
            return function_of(given.type, given.expression, self.context, module)
        if given is not None or not isinstance(self.context, Expression):
            return None
        decorated = self._decorators.find(self.api.tree, self.context)
        if decorated is None:
            return None
        node = innermost_decorator(decorated, self.context)
        kind = None if node is None else get_proper_type(self.api.function_type(node))
        return Function(kind, node) if isinstance(kind, CallableType) else None

    def text(self, given: Argument | None) -> str:
        """The string that is given, or nothing where it is none or not known."""
        found = constant_or(given.expression if given is not None else None, None)
        return found if isinstance(found, str) else ""

    def place(self, given: Argument | None) -> Context:
        """Where an argument stands."""
        found = None if given is None else given.expression
        return self.context if found is None else found

    def is_named(self, what: str, given: Argument | None) -> bool:
        """Whether a name can be one of an operator; report one that cannot."""
        try:
            check_name(what, self.text(given))
        except RegistrationError as error:
            codes.tell(self.api, error, self.place(given), codes.NAME)
            return False
        return True

    def registered(
        self, record: Record, op: Type | None, given: Argument | None
    ) -> Registered | None:
        """What is registered for an operator, or None where it is not known."""
        function = self.function(given)
        if function is None or record.schema is None:
            return None
        return Registered(self.api, record, op, function, self.place(given))

    def operator(self, given: Argument | None) -> tuple[Record, Type | None] | None:
        """The operator that is given, itself or by its name, and its type."""
        if given is None:
            return None
        record = recall(given.type)
        if record is not None and record.schema is not None:
            return record, given.type
        name = self.text(given)
        return self.program.find(self.api, name) if name else None


# ---- definitions ----


def _custom_op(asked: Asked) -> Type:
    call, name = asked.call, asked.text(asked.call.at(0))
    function = asked.function(call.at(1))
    if not _is_text(call.at(0)) or not asked.is_named("custom_op", call.at(0)):
        return asked.result
    if function is None:
        return asked.result
    words = ("mutates_args", "device_types", "schema", "tags")
    said = Said(name, *(call.value(word) for word in words))
    draft = Draft(asked.api, said, function, asked.context)
    draft.check()
    place = f"{asked.api.path}:{asked.context.line}"
    is_sure = asked.program.is_sure(asked.api, name, asked.context)
    record = Record(name, draft.outline, tuple(draft.unsure), place, is_sure)
    asked.program.check_alone(asked.api, record, asked.context)
    return _remembering(asked, record)


def _is_text(given: Argument | None) -> bool:
    expression = None if given is None else given.expression
    return isinstance(constant_or(expression, None), str)


def _remembering(asked: Asked, record: Record) -> Type:
    if record.schema is None:
        return asked.result
    result = get_proper_type(asked.result)
    if isinstance(result, CallableType):
        made = remember(asked.api, result.ret_type, record)
        return result.copy_modified(ret_type=made)
    return remember(asked.api, result, record)


def _define(asked: Asked) -> Type:
    given, text = asked.call.at(0), asked.call.at(1)
    if given is None or not _is_text(given):
        return asked.result
    if asked.is_named("define", given) and text is not None and text.expression:
        name = asked.text(given)
        outline = check_schema(asked.api, name, text.expression, is_whole=True)
        place = f"{asked.api.path}:{asked.context.line}"
        is_sure = asked.program.is_sure(asked.api, name, asked.context)
        record = Record(name, outline, (), place, is_sure)
        asked.program.check_alone(asked.api, record, asked.context)
    return asked.result


def _library(asked: Asked) -> Type:
    name, key = asked.text(asked.call.at(0)), asked.call.at(2)
    if not name or (key is not None and not _is_text(key)):
        return asked.result
    words = {"key": asked.text(key)}
    return remember(asked.api, asked.result, Record(name, words=words))


def _define_in(asked: Asked) -> Type:
    library, text = recall(asked.object), asked.call.at(0)
    if library is not None and text is not None and text.expression is not None:
        check_schema(asked.api, library.name, text.expression, is_whole=False)
    return asked.result


def _rule_kind(asked: Asked) -> Type:
    name, takes = asked.text(asked.call.at(0)), asked.call.at(1)
    if not name or (takes is not None and not _is_text(takes)):
        return asked.result
    words = {"takes": asked.text(takes) or "(...)"}
    return remember(asked.api, asked.result, Record(name, words=words))


def _config_type(asked: Asked) -> Type:
    given = asked.call.at(0)
    proper = None if given is None else get_proper_type(given.type)
    made = proper.ret_type if isinstance(proper, CallableType) else None
    kind = get_proper_type(made)
    if isinstance(kind, Instance):
        kind.type.metadata["customop"] = {"is_registered": True}
    return asked.result


# ---- registrations: each for a method, and for the function of that name ----


def _kernel(asked: Asked, op: Subject, at: int) -> None:
    given = asked.call.at(at)
    kinds = constant_or(given.expression if given is not None else None, "?")
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    names = (DEFAULT,) if kinds is None else tuple(kinds)
    if not check_kinds(asked.api, op[0].name, names, asked.place(given)):
        return
    found = asked.registered(*op, asked.call.at(at + 1))
    what = "kernel" if names == ("?",) else f"kernel for {quoted(names)}"
    if found is not None:
        found.check_kernel(what, codes.KERNEL)


def _fake(asked: Asked, op: Subject, at: int) -> None:
    found = asked.registered(*op, asked.call.at(at))
    if found is not None:
        found.check_kernel("fake kernel", codes.FAKE)


def _autograd(asked: Asked, op: Subject, at: int) -> None:
    setup = asked.call.named("setup_context")
    found = asked.registered(*op, asked.call.at(at))
    if found is not None:
        found.check_backward(None if setup is None else asked.function(setup))


def _jvp(asked: Asked, op: Subject, at: int) -> None:
    found = asked.registered(*op, asked.call.at(at))
    if found is not None:
        found.check_rule(JVP, codes.JVP)


def _vmap(asked: Asked, op: Subject, at: int) -> None:
    found = asked.registered(*op, asked.call.at(at))
    if found is not None:
        found.check_rule(VMAP, codes.VMAP)


def _rule(asked: Asked, op: Subject, at: int) -> None:
    given = asked.call.at(at)
    kind = None if given is None else recall(given.type)
    found = asked.registered(*op, asked.call.at(at + 1))
    if found is None or kind is None or "takes" not in kind.words:
        return
    try:
        made = RuleKind(kind.name, kind.words["takes"])
    except RegistrationError as error:
        codes.tell(asked.api, error, asked.context, codes.RULE)
        return
    found.check_rule(made, codes.RULE)


_RULES: dict[str, Callable[[Asked, Subject, int], None]] = {
    "register_kernel": _kernel,
    "register_fake": _fake,
    "register_autograd": _autograd,
    "register_jvp": _jvp,
    "register_vmap": _vmap,
    "register": _rule,
}


def _method(check: Callable[[Asked, Subject, int], None], asked: Asked) -> Type:
    record = recall(asked.object)
    if record is None or record.schema is None or asked.object is None:
        return asked.result
    check(asked, (record, asked.object), 0)
    return copied(asked.object, asked.result)


def _by_name(
    what: str, check: Callable[[Asked, Subject, int], None], asked: Asked
) -> Type:
    given = asked.call.at(0)
    found = asked.operator(given)
    if _is_text(given) and not asked.is_named(what, given):
        return asked.result
    if found is None:
        return asked.result
    check(asked, found, 1)
    gives_operator = is_operator(asked.result) and is_operator(found[1])
    return found[1] if gives_operator and found[1] is not None else asked.result


# ---- torch's form of registering ----


def _impl(asked: Asked) -> Type:
    given, types = asked.call.at(0), asked.call.at(1)
    if given is None or types is None:
        return asked.result
    if _is_text(given) and not asked.is_named("impl", given):
        return asked.result
    op = asked.operator(given)
    if op is not None:
        keys = constant_or(types.expression, ())
        keys = (keys,) if isinstance(keys, str) else keys
        _check_keys(asked, op, keys, asked.call.at(2))
    return asked.result


def _impl_in(asked: Asked) -> Type:
    library, given = recall(asked.object), asked.call.at(0)
    if library is None or given is None:
        return asked.result
    name = asked.text(given)
    name = name if "::" in name else f"{library.name}::{name}"
    op = asked.program.find(asked.api, name) if _is_text(given) else None
    key = asked.call.at(2)
    if op is not None and (key is None or _is_text(key)):
        found = asked.text(key) or library.words["key"] or "CompositeImplicitAutograd"
        _check_keys(asked, op, (found,), asked.call.at(1))
    return asked.result


# Kind -> code; all others are kernels.
_CODES: dict[str | RuleKind, ErrorCode] = {
    FAKE: codes.FAKE,
    AUTOGRAD: codes.AUTOGRAD,
    JVP: codes.JVP,
    VMAP: codes.VMAP,
}


def _check_keys(asked: Asked, op: Subject, keys: Any, given: Argument | None) -> None:
    found = asked.registered(*op, given)
    below = constant_or(asked.call.value("with_keyset"), False)
    if found is None or not isinstance(below, bool):
        return
    for key in keys:
        try:
            kind = kind_of_key("impl", key)
        except RegistrationError:
            continue  # perhaps one that the program registers
        code = _CODES.get(kind, codes.KERNEL)
        found.check_entry(kind, code, with_below=below)


# ---- calls ----


def _called(asked: Asked) -> Type:
    record = recall(asked.object)
    if record is not None and record.schema is not None:
        error = different_arrays(asked.call, record)
        if error is not None:
            codes.tell(asked.api, error, asked.context, codes.MIXED)
        for place, fault in misshapen(asked.call, record):
            at = asked.place(asked.call.at(place))
            codes.tell(asked.api, fault, at, codes.SHAPE)
    return asked.result


_FUNCTIONS: dict[str, Answer] = {
    "custom_op": _custom_op,
    "define": _define,
    "impl": _impl,
    "Library": _library,
    "RuleKind": _rule_kind,
    "register_config_type": _config_type,
    **{name: partial(_by_name, name, check) for name, check in _RULES.items()},
}
_METHODS: dict[str, Answer] = {
    "Library.define": _define_in,
    "Library.impl": _impl_in,
    "Operator.__call__": _called,
    **{f"Operator.{name}": partial(_method, check) for name, check in _RULES.items()},
}


# ---- operators by attribute ----


def _namespace(plugin: CustomOpPlugin, context: AttributeContext) -> Type:
    if not isinstance(context.context, MemberExpr):
        return context.default_attr_type
    name = Record(context.context.name)
    return remember(checker(context), context.default_attr_type, name)


def _packet(plugin: CustomOpPlugin, context: AttributeContext) -> Type:
    namespace = recall(context.type)
    if namespace is None or not isinstance(context.context, MemberExpr):
        return context.default_attr_type
    name = Record(f"{namespace.name}::{context.context.name}")
    return remember(checker(context), context.default_attr_type, name)


def _overload(plugin: CustomOpPlugin, context: AttributeContext) -> Type:
    packet = recall(context.type)
    if packet is None or not isinstance(context.context, MemberExpr):
        return context.default_attr_type
    overload = context.context.name
    name = packet.name if overload == "default" else f"{packet.name}.{overload}"
    found = plugin.program.find(checker(context), name)
    if found is None or not is_operator(found[1]):
        return context.default_attr_type
    return found[1]


def _packet_call(plugin: CustomOpPlugin, context: MethodSigContext) -> FunctionLike:
    packet, api = recall(context.type), checker(context)
    if packet is None:
        return context.default_signature
    items = plugin.program.signatures(api, packet.name)
    return items or context.default_signature


_ATTRIBUTES = {
    Namespaces.__name__: _namespace,
    OperatorNamespace.__name__: _packet,
    OperatorPacket.__name__: _overload,
}


class CustomOpPlugin(Plugin):
    """Answers what mypy asks.

    Nothing that it keeps outlives what mypy keeps: a module that is read anew is looked
    into anew.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.decorators = Decorators()
        self.program = Program()

    def get_function_hook(
        self, fullname: str
    ) -> Callable[[FunctionContext], Type] | None:
        """The answer for a call of a function or a class."""
        return self._hook(_FUNCTIONS.get(own_name(fullname)))

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """The answer for a call of a method."""
        return self._hook(_METHODS.get(own_name(fullname)))

    def get_attribute_hook(
        self, fullname: str
    ) -> Callable[[AttributeContext], Type] | None:
        """The answer for an attribute of `ops` and of what it gives."""
        answer = _ATTRIBUTES.get(own_name(fullname).rpartition(".")[0])
        return None if answer is None else partial(answer, self)

    def get_method_signature_hook(
        self, fullname: str
    ) -> Callable[[MethodSigContext], FunctionLike] | None:
        """The answer for what a packet of overloads takes and gives."""
        is_packet = own_name(fullname) == OperatorPacket.__call__.__qualname__
        return partial(_packet_call, self) if is_packet else None

    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        """Nothing more; a module was read, so what is known of others may be old."""
        self.program.forget()
        return []

    def _hook(self, answer: Answer | None) -> Callable[[Any], Type] | None:
        return None if answer is None else partial(self._answer, answer)

    def _answer(self, answer: Answer, context: AnyContext) -> Type:
        if codes.has_failed(checker(context)):
            return context.default_return_type
        asked = Asked(self, context)
        self.program.check_imports(asked.api)
        return answer(asked)
