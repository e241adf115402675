"""Kernels and rules, checked against their operator as registration checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mypy.errorcodes import ErrorCode
from mypy.nodes import Context
from mypy.types import Type

from customop.arrays.kinds import FAKE, known_devices
from customop.core.definition import check_device_types
from customop.core.grad_rules import Formula
from customop.core.registration import Registration
from customop.core.rule_kind import RuleKind, check_kernel, rule_kind
from customop.errors import CustomOpError, RegistrationError
from customop.mypy import codes
from customop.mypy.contexts import known_attribute, unset_attributes
from customop.mypy.functions import Function
from customop.mypy.gradients import WrongReturn, wrong_gradients, wrong_pairs
from customop.mypy.kernels import other_shape, other_type
from customop.mypy.notes import types_of
from customop.mypy.records import Record
from customop.mypy.trees import Survey

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["Registered", "check_kinds"]


@dataclass(frozen=True)
class Registered:
    """A function that is registered for an operator.

    Attributes
    ----------
    api : TypeChecker
    survey : Survey
        Of the module.
    record : Record
        The operator.
    op : Type or None
        Its type, if it is known.
    function : Function
    context : Context
        Where messages about the function stand.
    """

    api: TypeChecker
    survey: Survey
    record: Record
    op: Type | None
    function: Function
    context: Context

    def _report(
        self, code: ErrorCode, what: str, do: str, at: Context | None = None
    ) -> None:
        error = RegistrationError(f"{self.record.name}: {what}", do=do)
        codes.report(self.api, error, at or self.context, code)

    def _passes(self, code: ErrorCode, check: Callable[[], None]) -> bool:
        """Whether a check of the run time raises nothing; report its error."""
        try:
            check()
        except CustomOpError as error:
            at = self.function.place(error.parameter, self.context)
            codes.report(self.api, error, at, code)
            return False
        return True

    def check_kernel(self, key: str, code: ErrorCode) -> None:
        """Report a kernel with other parameters, types or shapes than the operator.

        `key` names a kind of array; it is empty if that is not known.
        """
        fn, op = self.function.stand_in(), self.record.definition
        title = rule_kind(key).title if key.isidentifier() else "kernel"
        if self._passes(code, lambda: check_kernel(op, fn, title)):
            self._check_types(title, code, leading=0)
            self._check_shapes(title)

    def check_entry(
        self, kind: str | RuleKind, code: ErrorCode, *, with_below: bool
    ) -> None:
        """Report a function that `impl` would refuse for a kind."""
        fn, op = self.function.stand_in(), self.record.definition
        new = Registration(op.qualname, kind, fn, with_below=with_below)
        self._passes(code, lambda: new.check(op))

    def check_rule(self, kind: RuleKind, code: ErrorCode) -> None:
        """Report a rule with other parameters or types than its kind takes."""
        fn, op = self.function.stand_in(), self.record.definition
        if not self._passes(code, lambda: kind.check(op, fn)):
            return
        if kind.returns_pair:
            for wrong in wrong_pairs(self.function, kind.returns):
                self._report_return(f"the {kind.title}", wrong, code)
        if kind.with_inputs and kind.leading is not None:
            self._check_types(kind.title, code, leading=len(kind.leading))

    def check_backward(self, setup_context: Function | None, *, is_known: bool) -> None:
        """Report a backward formula with wrong parameters or gradients.

        `is_known` is False if there is a `setup_context` that mypy does not see.
        """
        if not {"return", "mutates_args"}.isdisjoint(self.record.unsure):
            return
        setup = None if setup_context is None else setup_context.stand_in()
        rule, op = Formula(self.function.stand_in(), setup), self.record.definition
        if self._passes(codes.AUTOGRAD, lambda: rule.check(op)):
            for wrong in wrong_gradients(self.function, op.schema):
                self._report_return("backward", wrong, codes.AUTOGRAD)
            if is_known:
                self._check_context(setup_context)

    def _check_context(self, setup_context: Function | None) -> None:
        for unset in unset_attributes(self.function, setup_context, self.survey):
            what = f"{unset.by} reads ctx.{unset.name}, which nothing sets"
            near = known_attribute(unset.name)
            do = (
                f"write ctx.{near}"
                if near
                else f"set ctx.{unset.name} in setup_context"
            )
            at = Context(unset.line, unset.column)
            self._report(codes.AUTOGRAD, what, do, at)

    def _report_return(self, who: str, wrong: WrongReturn, code: ErrorCode) -> None:
        self._report(code, f"{who} {wrong.what}", wrong.do, wrong.expression)

    def _check_types(self, what: str, code: ErrorCode, *, leading: int) -> None:
        other = other_type(self.api, self.op, self.function, leading)
        if other:
            do = "use the operator's types; only the class of arrays may differ"
            self._report(code, f"the {what} {other}", do)

    def _check_shapes(self, what: str) -> None:
        schema = self.record.schema
        if not schema.has_shapes:
            return
        other = other_shape(schema, types_of(self.function, self.api, self.survey))
        if other is None:
            return
        whose = "the result" if other.name == "return" else f"'{other.name}'"
        self._report(
            codes.SHAPE,
            f"the {what} has the axes {other.mine!r} for {whose}, the operator"
            f" {other.its!r}",
            "write the operator's axes, or leave the shape out",
            self.function.place(other.name, self.context),
        )


def _is_mistaken(kind: str) -> bool:
    known = known_devices()
    return kind in (FAKE, "gpu") or (
        kind not in known and kind.lower() in (*known, "gpu")
    )


def check_kinds(
    api: TypeChecker, qualname: str, kinds: Iterable[str], context: Context
) -> bool:
    """Whether kernels may be for these kinds of array; report those that may not.

    The program can register other kinds, so names pass but for "fake", "gpu", and those
    that differ from a known name by capitals.
    """
    kinds = [*kinds]
    if kinds and not any(_is_mistaken(kind) for kind in kinds):
        return True
    try:
        check_device_types(qualname, kinds)
    except CustomOpError as error:
        codes.report(api, error, context, codes.KERNEL)
    return False
