"""The results of kernels and rules, compared with the schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from customop.arrays.describe import describe, show
from customop.arrays.fake import FakeArray, to_fake
from customop.arrays.kinds import (
    CPU,
    FAKE,
    SCALAR,
    TRACED,
    kind_of,
)
from customop.arrays.nested import map_nested
from customop.core.table import RuleTable
from customop.errors import (
    ContractError,
    place,
)
from customop.later import later
from customop.schema.base_types import exact_class
from customop.schema.fit import Mismatch, NestedType, Visitor
from customop.schema.schema import Schema
from customop.schema.types import (
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    SchemaType,
    TupleOf,
)

shape_check: ModuleType = later(import_module, "customop.schema.shape_check")

__all__ = [
    "COMPOSITE_RULE",
    "JVP_RULE",
    "VMAP_RULE",
    "check_returns",
    "check_shapes",
    "finish_fake",
]

VMAP_RULE, JVP_RULE, COMPOSITE_RULE = "vmap rule", "jvp rule", "rule"
_RULES = (VMAP_RULE, JVP_RULE, COMPOSITE_RULE)


def check_returns(
    op: RuleTable, kernel: Callable[..., Any], out: Any, kind: str
) -> list[Any]:
    """Results one by one, proven to fit the schema in number, type and kind.

    `kind` is that of the kernel's arrays, or one of `_RULES`, whose arrays may be of
    any.
    """
    schema: Schema = op.schema
    if not schema.returns:
        if out is not None:
            raise _wrong_return(
                op, kernel, kind, f"returns {show(out)}, must return None"
            )
        return []
    if not schema.is_tuple:
        values = [out]
    elif isinstance(out, tuple) and len(out) == len(schema.returns):
        values = list(out)
    else:
        got = f"{len(out)} items" if isinstance(out, tuple) else show(out)
        reason = f"returns {got}, must return a tuple of {len(schema.returns)}"
        raise _wrong_return(op, kernel, kind, reason)
    checker = _Results(kind)
    for i, (r, value) in enumerate(zip(schema.returns, values, strict=True)):
        reason = checker.fault(value, r.type)
        if reason:
            raise _wrong_return(op, kernel, kind, f"returns output {i} {reason}")
    return values


def check_shapes(
    op: RuleTable, kernel: Callable[..., Any], kind: str, args: Sequence[Any], out: Any
) -> None:
    """Raise unless results, which fit the schema in number and type, fit its shapes."""
    schema: Schema = op.schema
    values = list(out) if schema.is_tuple else [out] if schema.returns else []
    reason = shape_check.check_results(schema, args, values)
    if reason:
        raise _wrong_return(op, kernel, kind, f"returns {reason}")


def _wrong_return(
    op: RuleTable, kernel: Callable[..., Any], kind: str, reason: str
) -> ContractError:
    is_rule = kind in _RULES
    name = kind if is_rule else f"'{kind}' kernel"
    return op.error(
        ContractError,
        f"the {name} {reason}",
        f"{'rule' if is_rule else 'kernel'} at {place(kernel)}",
        do="return what the schema says"
        if is_rule
        else "return what the schema says, or change the annotation of the result",
        kind=kind,
    )


class _Results(Visitor):
    """Results of a kernel for one kind of array, or of a rule."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def array(self, value: Any, declared: ArrayType) -> None:
        found = kind_of[type(value)]
        if found is None:
            raise Mismatch(f"as {show(value)}, must be an array")
        # NumPy reductions and operators on 0-d arrays give NumPy scalars.
        if (
            self.kind in _RULES
            or found is TRACED
            or found.name == self.kind
            or (found is SCALAR and self.kind == "cpu")
            or (found in (CPU, SCALAR) and self.kind == FAKE)
        ):
            return
        raise Mismatch(
            f"as {describe(value)} of the kind '{found}', must be of the kind"
            f" '{self.kind}'"
        )

    def base(self, value: Any, declared: Base) -> None:
        exact = exact_class(declared)
        if isinstance(value, exact) and not (exact is int and isinstance(value, bool)):
            return
        if not isinstance(value, _FITTING.get(declared.name, ())):
            raise _unfit(value, declared)

    def choice(self, value: Any, declared: Choice) -> None:
        options = declared.options
        if type(value) is not type(options[0]) or value not in options:
            raise _unfit(value, declared)

    def member(self, value: Any, declared: ClassOf) -> None:
        if not isinstance(value, declared.cls):
            raise _unfit(value, declared)

    def open(self, value: Any, declared: NestedType) -> Any:
        if not _is_nested_as(value, declared):
            raise _unfit(value, declared)
        count = len(declared.items) if isinstance(declared, TupleOf) else None
        count = declared.length if isinstance(declared, ListOf) else count
        if count is not None and count != len(value):
            raise Mismatch(f"with {len(value)} items, must be {declared}")
        return value


# Type -> further classes of results.
_FITTING: dict[str, tuple[type, ...]] = {
    "Scalar": (int, float, complex, np.number),
    "int": (np.integer,),
    "bool": (np.bool_,),
}


def _unfit(value: Any, declared: SchemaType) -> Mismatch:
    return Mismatch(f"as {show(value)}, must be {declared}")


def _is_nested_as(value: Any, declared: NestedType) -> bool:
    """Whether a result is of the class that its type is made of."""
    if isinstance(declared, ListOf | TupleOf):
        return isinstance(value, list | tuple)
    if isinstance(declared, DictOf):
        return type(value) is dict and all(isinstance(key, str) for key in value)
    if declared.fields.is_dict:
        keys = set(value) if type(value) is dict else {None}
        return declared.fields.required <= keys <= set(declared.items)
    return type(value) is declared.cls


def finish_fake(op: RuleTable, kernel: Callable[..., Any], out: Any) -> Any:
    """The result of a fake kernel: right in number and type, and fake throughout."""
    if type(out) is FakeArray and op.schema.single_return:
        return out
    check_returns(op, kernel, out, FAKE)
    return map_nested(out, to_fake) if out is not None else None
