"""Rules that follow from an operator's tags and shapes when none is registered."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from customop.arrays.kinds import FAKE
from customop.core.table import RuleTable
from customop.errors import CustomOpError, DataDependentError, MissingRuleError
from customop.later import later
from customop.schema.tags import BY_DATA, Tag
from customop.schema.types import MISSING, has_shape

# Imported once a rule is asked for.
shape_rules: ModuleType = later(import_module, "customop.core.shape_rules")
tag_rules: ModuleType = later(import_module, "customop.core.tag_rules")


# ---- fake kernels ----


def find_fake(op: RuleTable) -> Callable[..., Any] | None:
    """Return the operator's fake kernel: its own, a derived one, or None."""
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
    exact: Callable[..., Any] | None = tag_rules.fake_of_written(op)
    if exact is not None or op.tags.intersection(BY_DATA):
        return exact
    guess = (
        tag_rules.fake_of_reduction(op)
        or shape_rules.fake_of_shapes(op)
        or tag_rules.fake_of_pointwise(op)
    )
    return None if guess is None else Guess(guess)


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


def missing_fake(op: RuleTable) -> CustomOpError | None:
    """Build the error that says why tags and shapes give no fake kernel; None without any."""
    shown = op.schema.show(op.qualname)
    fields = {"op": op.qualname, "kind": FAKE}
    by_data = [tag for tag in BY_DATA if tag in op.tags]
    if by_data:
        return DataDependentError(
            f"{op.qualname} has no fake kernel: {tag_rules.reason_by_data(op)}",
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
    """Say why there is no guess or how a call disproved it; empty without tags and shapes."""
    guess = op.plans.fake
    if isinstance(guess, Guess):
        tags = [str(t) for t in (Tag.pointwise, Tag.reduction) if t in op.tags]
        source = tags[0] if tags else "its schema"
        return f"{source} gives none, since {guess.fault}"
    if any(has_shape(r.type) for r in op.schema.returns):
        return f"its schema gives none, since {shape_rules.why_no_fake(op.schema)}"
    return ""


def source_of(rule: Any) -> str:
    """Return the source of a derived rule, for messages: "tags" or "shapes"."""
    inside = rule.__wrapped__ if isinstance(rule, Guess) else rule
    module = getattr(getattr(inside, "func", None), "__module__", "")
    return "shapes" if module == shape_rules.__name__ else "tags"


# ---- batching rules ----


def derive_vmap(op: RuleTable) -> Callable[..., Any] | None:
    """Return the batching rule that tags or shapes of an operator give, or None."""
    plans = op.plans  # kept as long as the operator's table: every batched call asks
    if plans.vmap is MISSING:
        plans.vmap = _derive_vmap(op)
    found: Callable[..., Any] | None = plans.vmap
    return found


def _derive_vmap(op: RuleTable) -> Callable[..., Any] | None:
    found: Callable[..., Any] | None = (
        tag_rules.vmap_of_written(op)
        or tag_rules.vmap_of_reduction(op)
        or shape_rules.vmap_of_shapes(op)
        or tag_rules.vmap_of_pointwise(op)
        or tag_rules.vmap_by_data(op)
    )
    return found
