"""The hooks of the plugin, which mypy calls for functions and methods of this package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mypy.nodes import MypyFile
from mypy.options import Options
from mypy.plugin import (
    AttributeContext,
    FunctionContext,
    MethodContext,
    MethodSigContext,
    Plugin,
    ReportConfigContext,
)
from mypy.types import FunctionLike, Type

from customop.mypy import codes
from customop.mypy.answers import FUNCTIONS, METHODS
from customop.mypy.asked import Answer, Asked
from customop.mypy.attributes import attribute_of, call_of
from customop.mypy.calls import AnyContext, checker
from customop.mypy.imports import may_define
from customop.mypy.names import is_ours, own_name
from customop.mypy.numpy_calls import (
    is_arithmetic,
    is_numpy_function,
    is_ufunc_call,
    result_of_arithmetic,
    result_of_function,
    result_of_ufunc,
)
from customop.mypy.overloads import split_off
from customop.mypy.program import Program
from customop.mypy.trees import Surveys

__all__ = ["CustomOpPlugin"]


class CustomOpPlugin(Plugin):
    """Answers what mypy asks; see `customop.mypy`.

    Types keep what it knows of operators. What it keeps itself it drops when mypy reads a
    module again.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.surveys = Surveys()
        self.program = Program(self.surveys)
        self._is_daemon = options.fine_grained_incremental

    def set_modules(self, modules: dict[str, MypyFile]) -> None:
        """Keep all modules of the program; mypy calls this once."""
        super().set_modules(modules)
        self.program.imports.modules = modules

    def get_function_hook(
        self, fullname: str
    ) -> Callable[[FunctionContext], Type] | None:
        """The answer for a call of a function or a class."""
        if is_numpy_function(fullname):
            return result_of_function
        return self._hook(FUNCTIONS.get(own_name(fullname)))

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """The answer for a call of a method."""
        if is_ufunc_call(fullname):
            return result_of_ufunc
        if is_arithmetic(fullname):
            return result_of_arithmetic
        return self._hook(METHODS.get(own_name(fullname)))

    def get_attribute_hook(
        self, fullname: str
    ) -> Callable[[AttributeContext], Type] | None:
        """The answer for an attribute of `ops`, a namespace, a packet or an operator."""
        answer = attribute_of(own_name(fullname))
        return None if answer is None else partial(answer, self.program)

    def get_method_signature_hook(
        self, fullname: str
    ) -> Callable[[MethodSigContext], FunctionLike] | None:
        """The answer for the type of the call of an operator or a packet."""
        answer = call_of(own_name(fullname))
        return None if answer is None else partial(answer, self.program)

    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        """No dependencies; a module was read, so what is known may be out of date."""
        self.program.forget(file.fullname)
        if may_define(file):
            split_off(file)
        return []

    def report_config_data(self, ctx: ReportConfigContext) -> Any:
        """Data that mypy keeps with the cache of a module; it calls this before it writes it.

        A cache is used only if the answer is the same as when it was written. None is
        the answer to that question, so a module with other data is always checked again.
        """
        module = self.program.imports.modules.get(ctx.id)
        if ctx.is_check or module is None or not may_define(module):
            return None
        self.program.imports.seal(module)
        return self.program.places_shown(module)

    def get_additional_indirect_deps(self, file: MypyFile) -> set[str]:
        """No dependencies; the daemon has checked a module, and writes no cache."""
        if self._is_daemon and may_define(file):
            self.program.imports.seal(file)
            self.program.look_again(file)
        return set()

    def _hook(self, answer: Answer | None) -> Callable[[Any], Type] | None:
        return None if answer is None else partial(self._answer, answer)

    def _answer(self, answer: Answer, context: AnyContext) -> Type:
        api = checker(context)
        # A program takes the time of its own modules alone; those here are right.
        if codes.has_failed(api) or is_ours(api.tree.fullname):
            return context.default_return_type
        asked = Asked(self.program, self.surveys, context)
        self.program.check_imports(asked.api)
        return answer(asked)
