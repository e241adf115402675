"""A call that mypy asks the plugin about, and what its arguments mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mypy.nodes import Context, Expression
from mypy.plugin import MethodContext
from mypy.types import (
    CallableType,
    NoneType,
    Overloaded,
    Type,
    get_proper_type,
)

from customop.core.define import check_name
from customop.core.registry import unknown
from customop.errors import RegistrationError
from customop.mypy import codes
from customop.mypy.calls import AnyContext, Call, checker
from customop.mypy.functions import (
    Function,
    function_of,
    implementation_of,
    innermost_decorator,
)
from customop.mypy.program import Program
from customop.mypy.records import Record, recall
from customop.mypy.rules import Registered
from customop.mypy.trees import Surveys

__all__ = ["Answer", "Asked", "Subject"]

# An operator and its type, None if the type is not known.
Subject: TypeAlias = tuple[Record, Type | None]
# What a hook returns for a call.
Answer: TypeAlias = Callable[["Asked"], Type]


class Asked:
    """A call that mypy asks about.

    Attributes
    ----------
    api : TypeChecker
    survey : Survey
        Of the module that has the call.
    call : Call
        Its arguments.
    result : Type
        The type that mypy gives it.
    context : Context
        Where it stands.
    object : Type or None
        The object that a method is called on.
    program : Program
    """

    def __init__(self, program: Program, surveys: Surveys, context: AnyContext) -> None:
        self.program = program
        self.api = checker(context)
        self.survey = surveys.of(self.api.tree)
        self.call = Call(context)
        self.result = context.default_return_type
        self.context: Context = context.context
        self.object = context.type if isinstance(context, MethodContext) else None

    def function(self, parameter: int | str) -> Function | None:
        """The function that is passed, or that the call decorates."""
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
        """Where a message about an argument stands."""
        return self.call.expression(parameter) or self.context

    def name(self, what: str, parameter: int) -> str:
        """The name of an operator that is passed; report a wrong one and return ""."""
        name = self.call.text(parameter)
        if name is None:
            return ""
        try:
            check_name(what, name)
        except RegistrationError as error:
            codes.report(self.api, error, self.place(parameter), codes.NAME)
            return ""
        return name

    def defined(self, draft: Callable[..., Record], name: str) -> Record:
        """The record of a definition here; report a name that is taken."""
        number = self.survey.number(name, self.context)
        origin = f"{self.api.tree.fullname}#{number}"
        is_sure = self.program.is_sure(self.api, name, self.context)
        record = draft(origin=origin, is_sure=is_sure)
        self.program.check_alone(self.api, record, self.context)
        return record

    def registered(self, op: Subject, parameter: int) -> Registered | None:
        """The function that is registered for an operator, if both are known."""
        function = self.function(parameter)
        if function is None or not op[0].has_schema:
            return None
        at = self.place(parameter)
        return Registered(self.api, self.survey, *op, function, at)

    def operator(self, what: str, parameter: int) -> Subject | None:
        """The operator that is passed, itself or by name, if it is known."""
        given = self.call.get(parameter)
        record = None if given is None else recall(given.type)
        if given is not None and record is not None and record.has_schema:
            return record, given.type
        name = self.name(what, parameter)
        found = self.program.find(self.api, name) if name else None
        if found is None and name and what != "impl":
            error = self.program.misspelled(self.api, name, unknown)
            if error is not None:
                codes.report(self.api, error, self.place(parameter), codes.NAME)
        return found
