"""The hooks that mypy calls, and how the plugin answers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from mypy.errorcodes import ErrorCode
from mypy.nodes import Context, Expression, MemberExpr, MypyFile
from mypy.options import Options
from mypy.plugin import (
    AttributeContext,
    FunctionContext,
    FunctionSigContext,
    MethodContext,
    MethodSigContext,
    Plugin,
    ReportConfigContext,
)
from mypy.types import (
    CallableType,
    FunctionLike,
    Instance,
    NoneType,
    Overloaded,
    Type,
    get_proper_type,
)

from customop.arrays.kinds import DEFAULT, FAKE
from customop.core.builtin_kinds import AUTOGRAD, JVP, VMAP
from customop.core.operator import Operator
from customop.core.registry import check_name, unknown
from customop.core.rule_kind import RuleKind
from customop.errors import RegistrationError
from customop.library.library import kind_of_key
from customop.library.ops import (
    Namespaces,
    OperatorNamespace,
    OperatorPacket,
    unknown_operator,
)
from customop.mypy import records
from customop.mypy.definitions import (
    Draft,
    declared,
    declared_record,
    overloads_of,
    plain_operator,
    schema_of,
    split_off,
    typed_as,
    with_overloads,
)
from customop.mypy.hints import is_ours, own_name
from customop.mypy.kernel_checks import with_kinds
from customop.mypy.program import Program, is_operator, may_define
from customop.mypy.records import (
    AnyContext,
    Call,
    Record,
    checker,
    copied,
    misshapen,
    mixed,
    recall,
    remember,
)
from customop.mypy.rule_checks import Registered, check_kinds
from customop.mypy.source import (
    Function,
    Surveys,
    function_of,
    implementation_of,
    innermost_decorator,
)
from customop.mypy.transform_calls import (
    TRANSFORMS,
    check_positions,
    check_rule,
    check_vmap,
    for_any_call,
    is_arithmetic,
    is_numpy_function,
    is_refused,
    is_ufunc_call,
    result_of_arithmetic,
    result_of_function,
    result_of_own,
    result_of_transform,
    result_of_ufunc,
    signature_of_own,
)

# ---- the plugin ----
# mypy calls its hooks for functions and methods of this package.


class CustomOpPlugin(Plugin):
    """Answers mypy's questions; see `customop.mypy`.

    Knowledge about operators is kept in their types. What the plugin itself remembers
    is dropped when mypy reads a module again.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.surveys = Surveys()
        self.program = Program(self.surveys)
        self._is_daemon = options.fine_grained_incremental
        # The call of a transform that mypy asked about last, and whether it is wrong.
        self._refused: tuple[Context | None, bool] = (None, False)

    def set_modules(self, modules: dict[str, MypyFile]) -> None:
        """Remember all modules of the program; mypy calls this once."""
        super().set_modules(modules)
        self.program.imports.modules = modules

    def get_function_hook(
        self, fullname: str
    ) -> Callable[[FunctionContext], Type] | None:
        """Return the answer for a call of a function or class, or None."""
        if is_numpy_function(fullname):
            return result_of_function
        return self._hook(FUNCTIONS.get(own_name(fullname)))

    def get_function_signature_hook(
        self, fullname: str
    ) -> Callable[[FunctionSigContext], FunctionLike] | None:
        """Return the answer for the overloads of a transform, or None."""
        name = own_name(fullname)
        return partial(self._overload, name) if name in TRANSFORMS else None

    def _overload(self, name: str, context: FunctionSigContext) -> FunctionLike:
        """Return an overload as it is, or one for any call after a report.

        mypy asks for each overload of a call in turn, and lists all if none fits.
        """
        call, api = context.context, checker(context)
        if is_ours(api.tree.fullname):
            return context.default_signature
        if self._refused[0] is not call:
            self._refused = call, is_refused(api, name, context)
        default = context.default_signature
        return for_any_call(default) if self._refused[1] else default

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """Return the answer for a call of a method, or None."""
        if is_ufunc_call(fullname):
            return result_of_ufunc
        if is_arithmetic(fullname):
            return result_of_arithmetic
        return self._hook(METHODS.get(own_name(fullname)))

    def get_attribute_hook(
        self, fullname: str
    ) -> Callable[[AttributeContext], Type] | None:
        """Return the answer for an attribute of `ops`, a namespace or a packet."""
        answer = attribute_of(own_name(fullname))
        return None if answer is None else partial(answer, self.program)

    def get_method_signature_hook(
        self, fullname: str
    ) -> Callable[[MethodSigContext], FunctionLike] | None:
        """Return the answer for the call signature of an operator or packet."""
        answer = call_of(own_name(fullname))
        return None if answer is None else partial(answer, self.program)

    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        """Return no dependencies; mypy has read a module, so forget what was known."""
        self.program.forget(file.fullname)
        if may_define(file):
            split_off(file)
        return []

    def report_config_data(self, ctx: ReportConfigContext) -> Any:
        """Return data for mypy's cache of a module; mypy calls this before writing it.

        mypy uses a cache only if the answer equals the data in it. When asked for that,
        the answer is None, so a module with data in its cache is always checked again.
        """
        module = self.program.imports.modules.get(ctx.id)
        if ctx.is_check or module is None or not may_define(module):
            return None
        self.program.imports.seal(module)
        return self.program.places_shown(module)

    def get_additional_indirect_deps(self, file: MypyFile) -> set[str]:
        """Return no dependencies; note that the daemon has checked a module."""
        if self._is_daemon and may_define(file):
            self.program.imports.seal(file)
            self.program.look_again(file)
        return set()

    def _hook(self, answer: Answer | None) -> Callable[[Any], Type] | None:
        return None if answer is None else partial(self._answer, answer)

    def _answer(self, answer: Answer, context: AnyContext) -> Type:
        api = checker(context)
        # Users only wait for their own modules; those of this package are right.
        if records.has_failed(api) or is_ours(api.tree.fullname):
            return context.default_return_type
        asked = Asked(self.program, self.surveys, context)
        self.program.check_imports(asked.api)
        return answer(asked)


# ---- a call that mypy asks about ----

# An operator and its type, which is None if unknown.
Subject: TypeAlias = tuple[Record, Type | None]
# Computes the type of a call for mypy.
Answer: TypeAlias = Callable[["Asked"], Type]


class Asked:
    """A call that mypy asks the plugin about.

    Attributes
    ----------
    api : TypeChecker
    survey : Survey
        The survey of the module that contains the call.
    call : Call
        The arguments of the call.
    result : Type
        The type that mypy would give the call.
    context : Context
        Where the call is.
    object : Type or None
        The object whose method is called.
    hook : FunctionContext or MethodContext
        What mypy passes to the plugin.
    program : Program
    """

    def __init__(self, program: Program, surveys: Surveys, context: AnyContext) -> None:
        self.program = program
        self.api = checker(context)
        self.survey = surveys.of(self.api.tree)
        self.call = Call(context)
        self.result = context.default_return_type
        self.context: Context = context.context
        self.hook = context
        self.object = context.type if isinstance(context, MethodContext) else None

    def function(self, parameter: int | str) -> Function | None:
        """Return the function that is passed, or that the call decorates."""
        given = self.call.get(parameter)
        if given is not None and not isinstance(get_proper_type(given.type), NoneType):
            overloaded, module = get_proper_type(given.type), self.api.tree.fullname
            if isinstance(overloaded, Overloaded):
                return implementation_of(self.api, overloaded, given.expression)
            return function_of(given.type, given.expression, self.context, module)
        if given is not None or not isinstance(self.context, Expression):
            return None
        decorated = self.survey.decorated_by(self.context)
        if decorated is None:
            return None
        node = innermost_decorator(decorated, self.context)
        proper = None if node is None else get_proper_type(self.api.function_type(node))
        return Function(proper, node) if isinstance(proper, CallableType) else None

    def place(self, parameter: int | str) -> Context:
        """Return where to show a message about an argument."""
        return self.call.expression(parameter) or self.context

    def name(self, what: str, parameter: int) -> str:
        """Return the operator name that is passed; report a wrong one and return ""."""
        name = self.call.text(parameter)
        if name is None:
            return ""
        try:
            check_name(what, name)
        except RegistrationError as error:
            records.report(self.api, error, self.place(parameter), records.NAME)
            return ""
        return name

    def defined(self, draft: Callable[..., Record], name: str) -> Record:
        """Return the record of a new definition; report a name that is taken."""
        number = self.survey.number(name, self.context)
        origin = f"{self.api.tree.fullname}#{number}"
        is_sure = self.program.is_sure(self.api, name, self.context)
        record = draft(origin=origin, is_sure=is_sure)
        self.program.check_alone(self.api, record, self.context)
        return record

    def registered(self, op: Subject, parameter: int) -> Registered | None:
        """Return the function registered for an operator, or None if unknown."""
        function = self.function(parameter)
        if function is None or not op[0].has_schema:
            return None
        at = self.place(parameter)
        return Registered(self.api, self.survey, *op, function, at)

    def operator(self, what: str, parameter: int) -> Subject | None:
        """Return the operator that is passed, as an object or by name, or None."""
        given = self.call.get(parameter)
        record = None if given is None else recall(given.type)
        if given is not None and record is not None and record.has_schema:
            return record, given.type
        name = self.name(what, parameter)
        found = self.named(name) if name else None
        if found is None and name and what != "impl":
            error = self.program.misspelled(self.api, name, unknown)
            if error is not None:
                records.report(self.api, error, self.place(parameter), records.NAME)
        return found

    def named(self, name: str) -> Subject | None:
        """Return the operator of a name, or None if it is unknown."""
        found = self.program.find(self.api, name)
        if found is not None:
            return found
        record = declared(self.api, self.survey, name)
        return None if record is None else (record, None)


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
        schema = schema_of(asked.api, text, name=name)
        draft = partial(Record, name)
        if schema is not None:
            draft = partial(declared_record, name, schema)
        record = asked.defined(draft, name)
        return remember(asked.api, asked.result, record)
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


# ---- registrations, by method and by function ----


def _kernel(asked: Asked, op: Subject, at: int) -> None:
    is_default = asked.call.constant(at, "") is None
    names = (DEFAULT,) if is_default else asked.call.texts(at)
    if names is not None and not check_kinds(
        asked.api, op[0].name, names, asked.place(at)
    ):
        return
    found = asked.registered(op, at + 1)
    if found is not None:
        found.check_kernel(names[0] if names else "", records.KERNEL)


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
        records.report(asked.api, error, asked.context, records.RULE)
        return
    found.check_rule(made, records.RULE)


_Check: TypeAlias = Callable[[Asked, Subject, int], None]
_RULES: dict[str, _Check] = {
    "register_kernel": _kernel,
    "register_fake": partial(
        _function, lambda found: found.check_kernel(FAKE, records.FAKE)
    ),
    "register_autograd": _autograd,
    "register_jvp": partial(
        _function, lambda found: found.check_rule(JVP, records.JVP)
    ),
    "register_vmap": partial(
        _function, lambda found: found.check_rule(VMAP, records.VMAP)
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


# ---- registrations in the style of torch ----


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
    op, key = asked.named(name), asked.call.text(2)
    if op is not None and (asked.call.get(2) is None or key is not None):
        keys = (key or library.key or "CompositeImplicitAutograd",)
        _check_keys(asked, op, keys, 1)
    return asked.result


# Kind -> error code; all other kinds are kinds of kernels.
_CODES: dict[str | RuleKind, ErrorCode] = {
    FAKE: records.FAKE,
    AUTOGRAD: records.AUTOGRAD,
    JVP: records.JVP,
    VMAP: records.VMAP,
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
            continue  # the program may register this key
        code = _CODES.get(kind, records.KERNEL)
        found.check_entry(kind, code, with_below=below)


# ---- calls ----


def _called(asked: Asked) -> Type:
    record = recall(asked.object)
    if record is not None and record.has_schema:
        error = mixed(asked.call, record)
        if error is not None:
            records.report(asked.api, error, asked.context, records.MIXED)
        for wrong, given in misshapen(asked.call, record):
            at = given.expression or asked.context
            records.report(asked.api, wrong, at, records.SHAPE)
    return asked.result


def _packet_called(asked: Asked) -> Type:
    packet = recall(asked.object)
    return asked.result if packet is None else result_of_own(packet.name, asked.hook)


# ---- transforms ----


def _transform(name: str, asked: Asked) -> Type:
    check_positions(asked.api, asked.call, name)
    if TRANSFORMS[name]:
        check_rule(asked.api, asked.survey, asked.call, asked.context)
    return result_of_transform(asked.api, asked.call, name, asked.result)


def _vmap(asked: Asked) -> Type:
    check_vmap(asked.api, asked.call)
    return result_of_transform(asked.api, asked.call, "vmap", asked.result)


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
    "OperatorPacket.__call__": _packet_called,
    **{f"Operator.{name}": partial(_method, check) for name, check in _RULES.items()},
}


# ---- answers for attributes of `ops`, and for the types of calls ----


def attribute_of(name: str) -> _Attribute | None:
    """Return the answer for an attribute such as ``Operator.call``."""
    if name == f"{_OPERATOR}.call":
        return _attribute
    return _ATTRIBUTES.get(name.rpartition(".")[0])


def call_of(name: str) -> _Call | None:
    """Return the answer for the type of a method such as ``Operator.__call__``."""
    return _CALLS.get(name)


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
        records.report(checker(context), error, context.context, records.NAME)
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
            records.report(checker(context), error, context.context, records.NAME)
    if found is None or not is_operator(found[1]):
        return context.default_attr_type
    return found[1]


def _packet_call(program: Program, context: MethodSigContext) -> FunctionLike:
    packet, api = recall(context.type), checker(context)
    if packet is None:
        return context.default_signature
    items = program.signatures(api, packet.name)
    items = items or signature_of_own(packet.name, context.default_signature)
    return items or context.default_signature


def _call(program: Program, context: MethodSigContext) -> FunctionLike:
    """Return the signature of an operator's call, for all kinds with a kernel."""
    record = recall(context.type)
    found = overloads_of(context.type) or context.default_signature
    if record is None or not record.kinds:
        return found
    api = checker(context)
    items = [with_kinds(api, item, record.kinds) for item in found.items]
    return items[0] if len(items) == 1 else Overloaded(items)


def _attribute(program: Program, context: AttributeContext) -> Type:
    """Return the type of `Operator.call`."""
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
