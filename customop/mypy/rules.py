"""Registrations: kernels and rules against the operator that they are for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mypy.errorcodes import ErrorCode
from mypy.nodes import Context, Expression, ListExpr, RefExpr, TupleExpr
from mypy.types import Type

from customop.arrays.kinds import FAKE
from customop.core.checks import check_device_types, check_kernel
from customop.core.grad_rules import Formula
from customop.core.kinds import JVP, VMAP
from customop.core.table import RuleKind
from customop.errors import CustomOpError
from customop.library.entry import Entry
from customop.mypy import codes
from customop.mypy.functions import Function
from customop.mypy.gradients import (
    is_one_value,
    names_of,
    returned,
    returned_tuples,
    returns_array,
)
from customop.mypy.notes import types_of
from customop.mypy.records import Outline, Record
from customop.mypy.shapes import other_shape
from customop.mypy.signatures import misfit
from customop.transforms.autograd.node import (
    wrong_count,
    wrong_list,
    wrong_name,
    wrong_single,
)

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["Registered", "check_kinds"]


@dataclass(frozen=True)
class Registered:
    """A function that is registered for an operator.

    Attributes
    ----------
    api : TypeChecker
    record : Record
        The operator.
    op : Type or None
        Its type, if it has one.
    function : Function
    context : Context
        Where messages about the function stand.
    """

    api: TypeChecker
    record: Record
    op: Type | None
    function: Function
    context: Context

    @property
    def schema(self) -> Outline:
        """The schema of the operator."""
        assert self.record.schema is not None
        return self.record.schema

    def tell(self, error: CustomOpError, code: ErrorCode) -> None:
        """Report an error about the function, at the parameter that it is about."""
        at = self.function.place(error.parameter, self.context)
        codes.tell(self.api, error, at, code)

    def check_kernel(self, what: str, code: ErrorCode) -> bool:
        """Report a kernel that does not fit, by its names, else by its types."""
        try:
            check_kernel(self.record, self.function.stand_in(), what)  # type: ignore[arg-type]  # a record has what is read
        except CustomOpError as error:
            self.tell(error, code)
            return False
        self._check_types(what, code, 0)
        self._check_shapes(what)
        return True

    def _check_shapes(self, what: str) -> None:
        if not self.schema.shapes:
            return
        other = other_shape(self.schema, types_of(self.function, self.api))
        if other is None:
            return
        it = "the result" if other.name == "return" else f"'{other.name}'"
        text = (
            f"{self.record.name}: the {what} has the axes {other.mine!r} for {it}, the"
            f" operator {other.theirs!r}"
        )
        at = self.function.place(other.name, self.context)
        do = "write the operator's axes, or leave the shape out"
        codes.say(self.api, text, do, at, codes.SHAPE)

    def check_entry(
        self, kind: str | RuleKind, code: ErrorCode, *, with_below: bool
    ) -> None:
        """Report a function that does not fit what `impl` registers it for."""
        fn = self.function.stand_in()
        try:
            Entry(self.record.name, kind, fn, "", with_below=with_below).check(
                self.record  # type: ignore[arg-type]  # a record has what is read
            )
        except CustomOpError as error:
            self.tell(error, code)

    def _check_types(self, what: str, code: ErrorCode, skip: int) -> None:
        if self.op is None:
            return
        name = self.record.name
        wrong = misfit(self.api, self.op, f"{name}: the {what}", self.function, skip)
        if wrong:
            do = "give it the operator's types: arrays alone may be of another class"
            codes.say(self.api, wrong, do, self.context, code)

    def check_rule(self, kind: RuleKind, code: ErrorCode) -> None:
        """Report a rule that does not take what its kind says."""
        try:
            kind.check(self.record.name, self.schema, self.function.stand_in())  # type: ignore[arg-type]  # an outline has what is read
        except CustomOpError as error:
            self.tell(error, code)
            return
        if kind in (JVP, VMAP):
            self._check_pairs(kind, code)
        if kind.with_inputs and kind.leading is not None:
            self._check_types(f"{kind.name} rule", code, len(kind.leading))

    def _check_pairs(self, kind: RuleKind, code: ErrorCode) -> None:
        for found in returned_tuples(self.function):
            if len(found.items) != 2 and isinstance(found, TupleExpr):
                many = f"{len(found.items)} values"
                what = f"{self.record.name}: the {kind.name} rule returned {many}"
                codes.say(self.api, what, f"return {kind.returns}", found, code)

    def check_backward(self, setup_context: Function | None) -> None:
        """Report a backward formula that does not fit."""
        if "return" in self.record.unsure or "mutates_args" in self.record.unsure:
            return
        setup = None if setup_context is None else setup_context.stand_in()
        try:
            Formula(self.function.stand_in(), setup).check(self.record)  # type: ignore[arg-type]  # a record has what is read
        except CustomOpError as error:
            self.tell(error, codes.AUTOGRAD)
            return
        is_array = returns_array(self.function)
        for found in returned_tuples(self.function):
            self._tell_gradients(self._wrong_items(found), found)
        for expression in returned(self.function):
            self._tell_gradients(self._wrong_value(expression, is_array), expression)

    def _tell_gradients(self, words: tuple[str, str] | None, context: Context) -> None:
        if words is not None:
            what = f"{self.record.name}: backward {words[0]}"
            codes.say(self.api, what, words[1], context, codes.AUTOGRAD)

    def _wrong_items(self, found: TupleExpr | ListExpr) -> tuple[str, str] | None:
        names = self.schema.by_position
        if isinstance(found, ListExpr):
            return wrong_list(len(found.items), names)
        count = len(found.items)
        return None if self._is_count(count) else wrong_count(count, names)

    def _wrong_value(self, found: Expression, is_array: bool) -> tuple[str, str] | None:
        """What is wrong with a gradient that stands alone, or those of a dict."""
        names = self.schema.by_position
        known = [*names, *self.schema.by_name]
        for name in names_of(found):
            if name not in known:
                return wrong_name(name, known)
        is_one = is_one_value(found) or (is_array and isinstance(found, RefExpr))
        if is_one and len(names) > 1 and not self._is_count(1):
            return wrong_single(names)
        return None

    def _is_count(self, count: int) -> bool:
        """Whether that many gradients can be right; the last may be left out."""
        names = self.schema.by_position
        if count in (len(names), len(names) + len(self.schema.by_name)):
            return True
        return all(name in self.schema.optional for name in names[count:]) and (
            count < len(names)
        )


def check_kinds(
    api: TypeChecker, qualname: str, kinds: Iterable[str], context: Context
) -> bool:
    """Report kinds that no kernel can be registered for.

    Which kinds of array there are, the running program alone knows.
    """
    if FAKE not in kinds and [*kinds]:
        return True
    try:
        check_device_types(qualname, kinds)
    except CustomOpError as error:
        codes.tell(api, error, context, codes.KERNEL)
    return False
