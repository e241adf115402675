"""What is registered for a name: torch's names of kinds, and what stands in rows."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from customop.arrays.kinds import DEFAULT, FAKE, known_kinds
from customop.core.array_classes import with_rule
from customop.core.changes import changing
from customop.core.checks import check_autocast, check_kernel
from customop.core.grad_rules import GradRule, as_rule
from customop.core.kernels import kernel_below
from customop.core.kinds import (
    ARRAY_CLASS,
    AUTOCAST,
    AUTOGRAD,
    COMPOSITE,
    JVP,
    MERGED,
    VMAP,
)
from customop.core.operator import Operator, operators, registrations
from customop.core.table import Definition, RuleKind, fallthrough_kernel
from customop.errors import (
    RegistrationError,
    quoted,
)
from customop.schema.signatures import check_callable

__all__ = ["KEYS", "Entry", "add_entry", "check_function", "kind_of_key"]

# torch's dispatch keys as names of kinds, and the names that the kinds have here.
KEYS: dict[str, str | RuleKind] = {
    "CPU": "cpu",
    "CUDA": "cuda",
    "Meta": FAKE,
    "Fake": FAKE,
    "default": DEFAULT,
    "CompositeExplicitAutograd": DEFAULT,
    "CompositeImplicitAutograd": COMPOSITE,
    "composite": COMPOSITE,
    "Autograd": AUTOGRAD,
    "FuncTorchBatched": VMAP,
    "vmap": VMAP,
    "jvp": JVP,
}
_BY_LOWER = {name.lower(): kind for name, kind in KEYS.items()}


def kind_of_key(what: str, key: Any) -> str | RuleKind:
    """The kind that a dispatch key names, in any letter case; a RuleKind is itself."""
    if isinstance(key, RuleKind) or key in known_kinds():
        return key  # type: ignore[no-any-return]
    found = _BY_LOWER.get(key.lower()) if isinstance(key, str) else None
    if found is None:
        names = [*KEYS, *(k for k in known_kinds() if k.lower() not in _BY_LOWER)]
        lower = {name.lower(): name for name in names}
        close = get_close_matches(str(key).lower(), lower, n=1)
        near = f" (did you mean '{lower[close[0]]}'?)" if close else ""
        raise RegistrationError(
            f"{what}: unknown dispatch key {key!r}{near}",
            f"known: {quoted(names)}",
            do="use a known one, a RuleKind, or register_array_type first",
        )
    return found


# ---- what a registration adds to a function ----


class Below:
    """What a kernel or rule stands on; first argument of one `with_keyset`.

    It is called as the function below is: `below(x)`, or `below.redispatch(x)`.
    """

    __slots__ = ("_kind", "_op", "fn")

    def __init__(self, op: Operator[..., Any], kind: str | RuleKind) -> None:
        self._op = op
        self._kind = kind
        self.fn: object = None

    def redispatch(self, *args: Any, **kwargs: Any) -> Any:
        """Call what would run without this registration and those above it."""
        return kernel_below(self._op, self._kind, self.fn)(*args, **kwargs)

    __call__ = redispatch


@dataclass(slots=True, eq=False)
class Entry:
    """A kernel or rule for a name; see `customop.core.operator.Registration`."""

    qualname: str
    kind: str | RuleKind
    fn: Any
    place: str
    owner: object = None
    with_below: bool = False

    def check(self, op: Definition) -> None:
        """Raise unless the function fits the operator, or a definition of one."""
        kind, fn = self.kind, self.fn
        if fn is fallthrough_kernel:
            return
        if kind is AUTOCAST:
            for device_type, dtype in fn.items():
                check_autocast(op, device_type, dtype)
            return
        if kind is ARRAY_CLASS:
            for rule in fn.values():
                ARRAY_CLASS.check(op.qualname, op.schema, rule)
            return
        if kind is AUTOGRAD:
            as_rule(fn, self.with_below).check(op)
            return
        if self.with_below:
            fn = partial(fn, None)
        if isinstance(kind, str) or kind is COMPOSITE:
            check_kernel(op, fn, _title(kind))
        else:
            kind.check(op.qualname, op.schema, fn)

    def enter(self, op: Operator[..., Any], *, override: bool = True) -> None:
        """Put it on top of the operator's rows of its kind."""
        rule = self.fn
        if self.kind is ARRAY_CLASS:
            ((array_class, fn),) = rule.items()
            rule = with_rule(op, array_class, fn, override)
            override = True
        elif self.kind is AUTOGRAD:
            rule = as_rule(rule, self.with_below)
        elif self.with_below:
            below = Below(op, self.kind)
            rule = below.fn = partial(self.fn, below)
        op.enter(
            self.kind,
            rule,
            self.place,
            override=override,
            owner=self.owner,
            keeps_below=self.with_below or rule is fallthrough_kernel,
        )
        if self.owner is None:
            _forget(self)


def _title(kind: str | RuleKind) -> str:
    if kind is COMPOSITE:
        return "composite body"
    return "fake kernel" if kind == FAKE else f"kernel for '{kind}'"


def _forget(entry: Entry) -> None:
    left = [e for e in registrations.get(entry.qualname, ()) if e is not entry]
    if left:
        registrations[entry.qualname] = left
    else:
        registrations.pop(entry.qualname, None)


def check_function(qualname: str, kind: str | RuleKind, fn: Any) -> None:
    """Raise unless something can be registered at all, whatever the schema."""
    name = kind if isinstance(kind, str) else kind.name
    if not isinstance(fn, GradRule):
        check_callable(qualname, f"function for '{name}'", fn, kind=name)
    passes = isinstance(kind, str) or kind in (AUTOGRAD, COMPOSITE)
    if fn is fallthrough_kernel and not passes:
        raise RegistrationError(
            f"{qualname}: '{name}' cannot fall through: nothing that follows knows its"
            " values",
            do="register a rule, or leave the row empty",
            op=qualname,
            kind=name,
        )


def add_entry(entry: Entry, *, override: bool = True) -> None:
    """Register for a name: at once, and for every definition of it to come."""
    with changing:
        if entry.kind not in MERGED:
            check_function(entry.qualname, entry.kind, entry.fn)
        op = operators.get(entry.qualname)
        if op is not None:
            entry.check(op.definition)
            entry.enter(op, override=override)
        if op is None or entry.owner is not None:
            registrations.setdefault(entry.qualname, []).append(entry)
