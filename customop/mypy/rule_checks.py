"""Check rules, their contexts and gradients, as registration checks them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from mypy.errorcodes import ErrorCode
from mypy.nodes import (
    ConditionalExpr,
    DictExpr,
    Expression,
    FloatExpr,
    IntExpr,
    LambdaExpr,
    ListExpr,
    NameExpr,
    OpExpr,
    RefExpr,
    StarExpr,
    StrExpr,
    TupleExpr,
    UnaryExpr,
    Var,
)
from mypy.nodes import Context as nodes_Context
from mypy.types import Instance, NoneType, TupleType, Type, get_proper_type

from customop.arrays.kinds import FAKE, known_devices
from customop.core.builtin_kinds import Formula
from customop.core.registration import Registration
from customop.core.rule_kind import (
    COMPOSITE,
    RuleKind,
    check_device_types,
    check_kernel,
    rule_kind,
)
from customop.core.rule_types import Context
from customop.errors import CustomOpError, RegistrationError
from customop.mypy import records
from customop.mypy.hints import is_array
from customop.mypy.kernel_checks import other_shape, other_type, types_of
from customop.mypy.records import Record
from customop.mypy.source import Function, SourceOfFunction, Survey, returned_by
from customop.schema.schema import Schema
from customop.schema.types import MISSING, Parameter, holds_arrays
from customop.transforms.autograd.sweep import (
    wrong_count,
    wrong_input,
    wrong_list,
    wrong_name,
    wrong_single,
)
from customop.transforms.autograd.tape import GradNode

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

# ---- rules ----
# Check kernels and rules against their operator, as registration does.


@dataclass(frozen=True)
class Registered:
    """A function that is registered for an operator.

    Attributes
    ----------
    api : TypeChecker
    survey : Survey
        The survey of the module.
    record : Record
        The operator.
    op : Type or None
        The type of the operator, or None if it is unknown.
    function : Function
    context : Context
        Where messages about the function are shown.
    """

    api: TypeChecker
    survey: Survey
    record: Record
    op: Type | None
    function: Function
    context: nodes_Context

    def _report(
        self, code: ErrorCode, what: str, do: str, at: nodes_Context | None = None
    ) -> None:
        error = RegistrationError(f"{self.record.name}: {what}", do=do)
        records.report(self.api, error, at or self.context, code)

    def _passes(self, code: ErrorCode, check: Callable[[], None]) -> bool:
        """Run a check of the runtime; report its error and return whether it passed."""
        try:
            check()
        except CustomOpError as error:
            at = self.function.place(error.parameter, self.context)
            records.report(self.api, error, at, code)
            return False
        return True

    def check_kernel(self, key: str, code: ErrorCode) -> None:
        """Report a kernel whose parameters, types or shapes differ from the operator's.

        `key` names a kind of array. It is empty if the kind is unknown.
        """
        fn, op = self._stand_in(), self.record.definition
        title = rule_kind(key).title if key.isidentifier() else "kernel"
        if self._passes(code, lambda: check_kernel(op, fn, title)):
            self._check_types(title, code, leading=0)
            self._check_shapes(title)

    def check_entry(
        self, kind: str | RuleKind, code: ErrorCode, *, with_below: bool
    ) -> None:
        """Report a function that `impl` would refuse for this kind."""
        fn, op = self._stand_in(), self.record.definition
        new = Registration(op.qualname, kind, fn, with_below=with_below)
        is_kernel = (isinstance(kind, str) or kind == COMPOSITE) and not with_below
        if self._passes(code, lambda: new.check(op)) and is_kernel:
            self._check_types(new.kind.title, code, leading=0)

    def _stand_in(self) -> Callable[..., Any]:
        """Return the function with its annotations, where they can be compared."""
        fn = self.function
        return fn.annotated(self.api) if self.record.is_declared else fn.stand_in()

    def check_rule(self, kind: RuleKind, code: ErrorCode) -> None:
        """Report a rule whose parameters or types differ from what its kind takes."""
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

        `is_known` is False if there is a `setup_context` that mypy cannot see.
        """
        if not {"return", "mutates_args"}.isdisjoint(self.record.unsure):
            return
        setup = None if setup_context is None else setup_context.stand_in()
        rule, op = Formula(self.function.stand_in(), setup), self.record.definition
        if self._passes(records.AUTOGRAD, lambda: rule.check(op)):
            for wrong in wrong_gradients(self.api, self.function, op.schema):
                self._report_return("backward", wrong, records.AUTOGRAD)
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
            at = nodes_Context(unset.line, unset.column)
            self._report(records.AUTOGRAD, what, do, at)

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
            records.SHAPE,
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
    api: TypeChecker, qualname: str, kinds: Iterable[str], context: nodes_Context
) -> bool:
    """Return whether kernels can be for these kinds of array; report mistaken names.

    The program can register other kinds. So only "fake", "gpu", and known names written
    in capitals are mistaken.
    """
    kinds = [*kinds]
    if kinds and not any(_is_mistaken(kind) for kind in kinds):
        return True
    try:
        check_device_types(qualname, kinds)
    except CustomOpError as error:
        records.report(api, error, context, records.KERNEL)
    return False


# ---- attributes of `ctx` that are read but never set ----

_KNOWN = {*dir(Context), *dir(GradNode)}


class Unset(NamedTuple):
    """A read of an unset attribute in `backward` or `setup_context`, with its place."""

    by: str
    name: str
    line: int
    column: int


class _Uses(NamedTuple):
    """How a function uses its first parameter: attributes that it reads and sets."""

    reads: list[ast.Attribute]
    sets: set[str]


def unset_attributes(
    backward: Function, setup_context: Function | None, survey: Survey
) -> Iterator[Unset]:
    """Yield reads of attributes that neither function sets, if uses are plain."""
    mine = _uses(backward, survey)
    theirs = _uses(setup_context, survey) if setup_context else _Uses([], set())
    if mine is None or theirs is None:
        return
    known = {*_KNOWN, *mine.sets, *theirs.sets}
    for by, uses in (("setup_context", theirs), ("backward", mine)):
        for read in uses.reads:
            if read.attr not in known:
                yield Unset(by, read.attr, read.lineno, read.col_offset)


def known_attribute(name: str) -> str:
    """Return an attribute of contexts with a similar name, or ""."""
    return "".join(get_close_matches(name, vars(Context), 1, cutoff=0.85))


def _uses(function: Function, survey: Survey) -> _Uses | None:
    """Return how a function uses its context, or None if the context goes elsewhere."""
    source = _source(function, survey)
    given = [*source.args.posonlyargs, *source.args.args] if source else []
    if source is None or not given:
        return None
    name, found = given[0].arg, _Uses([], set())
    seen: set[ast.AST] = set()
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute) and _is_name(node.value, name):
            seen.add(node.value)
            if isinstance(node.ctx, ast.Load):
                found.reads.append(node)
            else:
                found.sets.add(node.attr)
        elif isinstance(node, ast.Call) and _is_name(node.func, "setattr"):
            target, *rest = node.args
            if _is_name(target, name) and rest and isinstance(rest[0], ast.Constant):
                seen.add(target)
                found.sets.add(str(rest[0].value))
    names = [node for node in ast.walk(source) if _is_name(node, name)]
    return found if all(node in seen for node in names) else None


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _source(function: Function, survey: Survey) -> SourceOfFunction | None:
    node = function.node
    if node is None:
        return None
    kinds = ast.Lambda if isinstance(node, LambdaExpr) else ast.FunctionDef
    found = [f for f in survey.functions.get(node.line, []) if isinstance(f, kinds)]
    return found[0] if len(found) == 1 else None


# ---- wrong values that rules return ----
# They are gradients in a tuple, by name or alone, and pairs.

# Operators that arrays support but tuples, dicts and None do not.
_OF_NUMBERS = ("-", "/", "//", "@", "**", "%")


class WrongReturn(NamedTuple):
    """A wrong return: the expression if there is one, what is wrong, and what to do."""

    expression: Expression | None
    what: str
    do: str


def _returned(function: Function) -> Iterator[Expression]:
    """Yield the expressions that a function returns; a conditional gives both."""
    for expression in returned_by(function.node) if function.node is not None else ():
        yield from _branches(expression)


def _branches(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, ConditionalExpr):
        yield from _branches(expression.if_expr)
        yield from _branches(expression.else_expr)
    else:
        yield expression


def _is_written_out(expression: Expression) -> bool:
    """Return whether an expression is a tuple or list of known length."""
    return isinstance(expression, TupleExpr | ListExpr) and not any(
        isinstance(item, StarExpr) for item in expression.items
    )


def wrong_pairs(function: Function, returns: str) -> Iterator[WrongReturn]:
    """Yield tuples that a rule returns and that are not the required pair."""
    for found in _returned(function):
        if not isinstance(found, TupleExpr) or not _is_written_out(found):
            continue
        if len(found.items) != 2:
            what = f"returned {len(found.items)} values"
            yield WrongReturn(found, what, f"return {returns}")


def wrong_gradients(
    api: TypeChecker, function: Function, schema: Schema
) -> Iterator[WrongReturn]:
    """Yield return values of a backward formula that cannot be the gradients."""
    result = get_proper_type(function.result)
    returns_array = isinstance(result, Instance) and is_array(result.type)
    if isinstance(result, NoneType) and not _is_count(1, schema):
        yield WrongReturn(None, *wrong_single([p.name for p in schema.positional]))
    reported: set[str] = set()
    for found in _returned(function):
        wrong = _wrong_value(found, schema, returns_array=returns_array)
        if wrong is not None:
            yield WrongReturn(found, *wrong)
            continue
        for p, given in _by_parameter(found, schema):
            text = _shown_value(api, given)
            if text and not holds_arrays(p.type):
                reported.add(p.name)
                yield WrongReturn(given, *wrong_input(text, p))
    if isinstance(result, TupleType):
        for p, item in zip(schema.positional, result.items, strict=False):
            text = _shown_class(item)
            if text and not holds_arrays(p.type) and p.name not in reported:
                yield WrongReturn(None, *wrong_input(text, p))


def _by_parameter(
    found: Expression, schema: Schema
) -> Iterator[tuple[Parameter, Expression]]:
    """Yield the parameters of an operator with the expressions of their gradients."""
    if isinstance(found, TupleExpr) and _is_written_out(found):
        yield from zip(schema.positional, found.items, strict=False)
    elif isinstance(found, DictExpr):
        parameters = {p.name: p for p in schema.parameters}
        for key, value in found.items:
            if isinstance(key, StrExpr) and key.value in parameters:
                yield parameters[key.value], value


def _shown_value(api: TypeChecker, expression: Expression) -> str:
    """Return the class of an expression that is an array or a number, else ""."""
    if isinstance(expression, NameExpr) and isinstance(expression.node, Var):
        return _shown_class(expression.node.type)
    if api.has_type(expression):  # mypy keeps no types of bodies but those of lambdas
        return _shown_class(api.lookup_type(expression))
    if isinstance(expression, FloatExpr | IntExpr):
        return repr(expression.value)
    if isinstance(expression, OpExpr) and expression.op not in ("and", "or"):
        sides = (expression.left, expression.right)
        is_sequence = any(isinstance(side, ListExpr | TupleExpr) for side in sides)
        return "" if is_sequence else _SOME_VALUE
    return _SOME_VALUE if _is_one_value(expression) else ""


def _shown_class(mypy_type: Type | None) -> str:
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance):
        return ""
    names = {base.fullname for base in proper.type.mro}
    is_number = not names.isdisjoint(_NUMBERS)
    return proper.type.name if is_number or is_array(proper.type) else ""


_SOME_VALUE = "an array or a number"
_NUMBERS = ("builtins.int", "builtins.float", "builtins.complex", "numpy.number")


def _wrong_value(
    found: Expression, schema: Schema, *, returns_array: bool
) -> tuple[str, str] | None:
    names = [p.name for p in schema.positional]
    if isinstance(found, TupleExpr | ListExpr):
        return _wrong_items(found, schema) if _is_written_out(found) else None
    if isinstance(found, DictExpr):
        known = [*names, *schema.keyword_names]
        keys = [key.value for key, _ in found.items if isinstance(key, StrExpr)]
        unknown = [key for key in keys if key not in known]
        return wrong_name(unknown[0], known) if unknown else None
    is_one = _is_one_value(found) or (returns_array and isinstance(found, RefExpr))
    if is_one and len(names) > 1 and not _is_count(1, schema):
        return wrong_single(names)
    return None


def _wrong_items(found: TupleExpr | ListExpr, schema: Schema) -> tuple[str, str] | None:
    names, count = [p.name for p in schema.positional], len(found.items)
    if isinstance(found, ListExpr):
        return wrong_list(count, names)
    return None if _is_count(count, schema) else wrong_count(count, names)


def _is_one_value(expression: Expression) -> bool:
    """Return whether an expression is a number or an array, whatever its names mean."""
    if isinstance(expression, UnaryExpr):
        return expression.op in ("-", "~")
    if not isinstance(expression, OpExpr):
        return False
    sides = (expression.left, expression.right)
    return expression.op in _OF_NUMBERS or (
        expression.op in ("*", "+")
        and any(isinstance(side, FloatExpr) or _is_one_value(side) for side in sides)
    )


def _is_count(count: int, schema: Schema) -> bool:
    """Return whether this many gradients can be right; defaults may be left out."""
    inputs = schema.positional
    if count >= len(inputs):
        return count in (len(inputs), len(schema.parameters))
    return all(p.default is not MISSING for p in inputs[count:])
