"""Rules derived from tags and shapes, for operators that did not register one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from customop.arrays.kinds import FAKE
from customop.core.derived import pointwise
from customop.core.derived.rows import Uneven, pairs_of, run_rows, stack_rows
from customop.core.table import RuleTable
from customop.errors import (
    CustomOpError,
    DataDependentError,
    MissingRuleError,
    VmapError,
)
from customop.later import later
from customop.schema.parameters import MISSING
from customop.schema.tags import BY_DATA, Tag
from customop.schema.types import has_shape

__all__ = ["Guess", "derive_vmap", "find_fake", "missing_fake", "source_of"]

# Imported once a rule is asked for.
mutation: ModuleType = later(import_module, "customop.core.derived.inplace")
reduction: ModuleType = later(import_module, "customop.core.derived.reduction")
shaperules: ModuleType = later(import_module, "customop.core.derived.shape_fake")
shapebatch: ModuleType = later(import_module, "customop.core.derived.shape_vmap")

# ---- fake kernels ----


class Guess:
    """A fake kernel derived from tags or shapes, which a call of a kernel may disprove.

    Attributes
    ----------
    fault : str
        How a call disproved it, or nothing.
    has_answered : bool
        Whether an answer was used: then a disproof is an error.
    """

    __slots__ = ("__wrapped__", "fault", "has_answered")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.__wrapped__: Callable[..., Any] = fn
        self.fault: str = ""
        self.has_answered: bool = False

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Run the derived fake kernel."""
        out = self.__wrapped__(*args, **keywords)
        self.has_answered = True
        return out


def find_fake(op: RuleTable) -> Callable[..., Any] | None:
    """The fake kernel of an operator: its own, one by tags or shapes, or None."""
    row = op.rows.get(FAKE)
    if row is not None:
        kernel: Callable[..., Any] = row.fn
        return kernel
    plans = op.plans
    if plans.fake is MISSING:
        plans.fake = _derive_fake(op)
    found: Callable[..., Any] | None = plans.fake
    return None if isinstance(found, Guess) and found.fault else found


def _derive_fake(op: RuleTable) -> Callable[..., Any] | None:
    exact: Callable[..., Any] | None = mutation.derive_fake(op)
    if exact is not None or op.tags.intersection(BY_DATA):
        return exact
    guess = (
        reduction.derive_fake(op)
        or shaperules.derive_fake(op)
        or pointwise.derive_fake(op)
    )
    return None if guess is None else Guess(guess)


def missing_fake(op: RuleTable) -> CustomOpError | None:
    """Why tags and shapes of an operator give no fake kernel, where they might."""
    shown = op.schema.show(op.qualname)
    fields = {"op": op.qualname, "kind": FAKE}
    by_data = [tag for tag in BY_DATA if tag in op.tags]
    if by_data:
        return DataDependentError(
            f"{op.qualname} has no fake kernel: {_reason(op)}",
            shown,
            f"at {op.definition.place}",
            do=f"@{op.name}.register_fake, a function that says how large the result is",
            **fields,
        )
    why = _why_no_guess(op)
    if why:
        return MissingRuleError(
            f"{op.qualname} has no fake kernel: {why}",
            shown,
            f"at {op.definition.place}",
            do=f"@{op.name}.register_fake, a function that returns fake_like(...)",
            **fields,
        )
    return None


def _why_no_guess(op: RuleTable) -> str:
    """Why there is no guess, or how a call disproved it; empty without tags and shapes."""
    guess = op.plans.fake
    if isinstance(guess, Guess):
        tags = [str(t) for t in (Tag.pointwise, Tag.reduction) if t in op.tags]
        source = tags[0] if tags else "its schema"
        return f"{source} gives none, since {guess.fault}"
    if any(has_shape(r.type) for r in op.schema.returns):
        return f"its schema gives none, since {shaperules.why_no_fake(op.schema)}"
    return ""


def source_of(rule: Any) -> str:
    """The source of a derived rule in messages: "tags" or "shapes"."""
    inside = rule.__wrapped__ if isinstance(rule, Guess) else rule
    module = getattr(getattr(inside, "func", None), "__module__", "")
    by_shapes = (shaperules.__name__, shapebatch.__name__)
    return "shapes" if module in by_shapes else "tags"


def _reason(op: RuleTable) -> str:
    """The part of the result that depends on data, according to the tags."""
    if Tag.dynamic_output_shape in op.tags:
        return f"the shape of its result depends on data ({Tag.dynamic_output_shape})"
    return f"its result depends on data ({Tag.data_dependent_output})"


# ---- batching ----


def derive_vmap(op: RuleTable) -> Callable[..., Any] | None:
    """The batching rule that tags or shapes of an operator give, or None."""
    plans = op.plans  # kept as long as the operator's table: every batched call asks
    if plans.vmap is MISSING:
        plans.vmap = _derive_vmap(op)
    found: Callable[..., Any] | None = plans.vmap
    return found


def _derive_vmap(op: RuleTable) -> Callable[..., Any] | None:
    found = (
        mutation.derive_vmap(op)
        or reduction.derive_vmap(op)
        or shapebatch.derive_vmap(op)
        or pointwise.derive_vmap(op)
    )
    if found is None and op.tags.intersection(BY_DATA) and not op.sees_seed:
        return partial(_batch_by_data, op)
    return found


def _batch_by_data(
    op: RuleTable, info: Any, in_dims: Sequence[Any], *args: Any, **keywords: Any
) -> tuple[Any, Any]:
    """Row by row: the results stack if their shapes are equal."""
    if not info.batch_size:
        raise _unstackable(op, "no row says what")
    rows = run_rows(op, pairs_of(in_dims, args, keywords), info.batch_size)
    try:
        return stack_rows(rows)
    except Uneven as why:
        raise _unstackable(op, f"the rows give {why}") from None


def _unstackable(op: RuleTable, seen: str) -> VmapError:
    return VmapError(
        f"{op.qualname} under vmap: {_reason(op)}, and {seen}",
        op.schema.show(op.qualname),
        do=f"pad to a fixed shape in another operator, or @{op.name}.register_vmap",
        op=op.qualname,
        kind="vmap",
    )
