"""The table of an operator: its rules, what is worked out from them, and its lock."""

from __future__ import annotations

from _thread import RLock  # `threading` takes 0.5 ms more to import
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from customop.arrays.kinds import DEFAULT, FAKE, find_kind
from customop.core.rule_kind import (
    COMPOSITE,
    Definition,
    ErrorT,
    Row,
    RuleKind,
    fallthrough_kernel,
    rule_kind,
)
from customop.errors import MissingRuleError, RegistrationError, place
from customop.forks import free_after_fork
from customop.schema.schema import Schema
from customop.schema.tags import Tag
from customop.schema.types import MISSING

# ---- the table of an operator: its rules, and what is worked out from them ----


class CallWriter(Protocol):
    """The protocol of objects that write a call of a plain function to a graph file."""

    # The name of what it captures, for messages.
    part: str

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return a key that is equal for calls that are written in the same way."""
        ...

    def operator(self, key: str) -> tuple[RuleTable, list[Any]]:
        """Return the operator that the file calls, and its arguments after the first.

        `key` is a name for the call.
        """
        ...

    def again(self, key: str) -> tuple[RuleTable, list[Any]]:
        """Return the same for a call inside the graphs of the call of this name."""
        ...


class Plans:
    """Results computed from a table, kept until the table changes."""

    __slots__ = (
        "alone",
        "bind",
        "by_tracer",
        "derived",
        "fake",
        "fallbacks",
        "is_closed",
        "is_elementwise",
        "kernel",
        "patterns",
        "proven_rows",
        "rule_names",
        "vmap",
    )

    def __init__(self) -> None:
        # Class of tracer -> function of interpreter and arguments.
        self.by_tracer: dict[type, Callable[[Any, Sequence[Any]], Any]] = {}
        # Returns the values of all parameters for the arguments of a call.
        self.bind: Callable[..., Sequence[Any]] | None = None
        # The kernel for arrays of NumPy, once it needs no proof and no look at the others.
        self.kernel: Callable[..., Any] | None = None
        # Rules by tags and shapes; MISSING until they are asked for.
        self.fake: Any = MISSING
        self.vmap: Any = MISSING
        self.fallbacks: dict[RuleKind | str, Callable[..., Any]] = {}
        # Function of a kind of array -> the kernel that it derives.
        self.derived: dict[Callable[..., Any], Callable[..., Any] | None] = {}
        # The `in_dims` for which the vmap rule has returned rows of the right shapes.
        self.proven_rows: set[tuple[int | None, ...]] = set()
        # Inputs that opcheck has found.
        self.patterns: Any = None
        # Whether the table has changed since, for those who keep this object.
        self.is_closed: bool = False
        # Whether vmap may call the kernel for rows of plain arrays, as it does for arrays.
        self.is_elementwise: bool = False
        # Shape and axis of a batch -> what vmap calls for rows alone, and the axis after.
        self.alone: dict[Any, tuple[Callable[..., Any], int]] = {}
        # Names of the operator and of a kernel or rule, as the profiler shows them.
        self.rule_names: dict[Any, tuple[str, str]] = {}

    def close(self) -> None:
        """Note that the table has changed."""
        self.is_closed = True
        self.is_elementwise = False
        self.alone = {}


class _NewPlans:
    """A descriptor that makes the plans of a table at their first use."""

    def __get__(self, table: RuleTable | None, owner: type) -> Any:
        # Threads that ask at the same time get the same object.
        return self if table is None else vars(table).setdefault("plans", Plans())


# One object for all tables: an empty set takes 216 bytes.
_NOBODY: Final[frozenset[str]] = frozenset()


class RuleTable:
    """The schema of an operator and its rules, from which a call picks one.

    `Operator` adds the call and the registration.
    """

    definition: Definition
    schema: Schema
    tags: frozenset[Tag]
    qualname: str
    namespace: str
    name: str
    overload: str
    # The function of a call, and how rules call the operator with the values of all its
    # parameters, one by one or as a sequence.
    call: Callable[..., Any]
    run: Callable[..., Any]
    invoke: Callable[[Sequence[Any]], Any]
    # All registrations of each kind, the newest last; and those that count.
    stacks: dict[RuleKind | str, tuple[Row, ...]]
    rows: dict[RuleKind | str, Row]
    # Whether the library that defined it has closed.
    closed: bool
    disabled: frozenset[str]
    # Kinds of array whose kernel has proven its contract.
    proven: frozenset[str]
    # Those whose kernel must prove it again where a call is drawn.
    sampled: frozenset[str]
    # Those whose kernel returns memory of others, which is copied.
    copied: frozenset[str]
    # Checks of opcheck that it fails on purpose -> why.
    waivers: Mapping[str, str]
    # The results that were computed from the current table.
    if TYPE_CHECKING:
        plans: Plans
    else:
        plans = _NewPlans()
    # The kernel that transforms call for plain NumPy arrays.
    fast: FastKernel
    # As in the schema.
    array_slots: tuple[int, ...]
    nested_slots: tuple[int, ...]
    positional_count: int
    is_plain: bool
    is_unary: bool
    is_factory: bool
    list_slot: int
    view_slot: int
    # Whether results are views of arguments, or the written arguments themselves.
    has_aliases: bool
    sees_seed: bool
    needs_contiguous: bool

    def __init__(self, definition: Definition) -> None:
        self.define(definition)

    def writer(self, args: Sequence[Any], sizes: Any) -> CallWriter | None:
        """Return the writer of a call to a graph file; None for an operator."""
        return None

    def define(self, definition: Definition) -> None:
        """Take this definition, with an empty table."""
        schema = definition.schema
        changing.count += 1
        namespace, _, rest = definition.qualname.partition("::")
        name, _, overload = rest.partition(".")
        nobody = _NOBODY
        # All at once: users may not assign some of these, so each assignment costs a test.
        vars(self).update(
            definition=definition,
            schema=schema,
            tags=definition.tags,
            qualname=definition.qualname,
            namespace=namespace,
            name=name,
            overload=overload,
            closed=False,
            stacks={},
            rows={},
            disabled=nobody,
            proven=nobody,
            sampled=nobody,
            copied=nobody,
            waivers={},
            array_slots=schema.array_slots,
            nested_slots=schema.nested_slots,
            positional_count=len(schema.positional),
            is_plain=schema.is_plain,
            list_slot=schema.list_slot,
            is_factory=schema.is_factory,
            is_unary=schema.is_unary,
            view_slot=schema.view_slot,
            has_aliases=schema.view_slot >= 0 or bool(schema.written),
            sees_seed=Tag.nondeterministic_seeded in definition.tags
            or schema.has_generator,
            needs_contiguous=Tag.needs_contiguous in definition.tags,
        )
        self._forget_plans()

    # ---- errors ----

    def error(
        self,
        cls: type[ErrorT],
        what: str,
        *where: str,
        do: str,
        parameter: str | None = "",
        kind: str | None = None,
    ) -> ErrorT:
        """Build an error about the operator; see `Schema.error`."""
        return self.definition.error(
            cls, what, *where, do=do, parameter=parameter, kind=kind
        )

    def missing_rule(self, kind: RuleKind, *where: str) -> MissingRuleError:
        """Build the error for a rule that the operator does not have."""
        if self.closed:
            return self.closed_error()
        method = f"register_{kind.name}"
        do = f"@{self.name}.{method}" if hasattr(self, method) else ""
        do += kind.shorter.format(name=self.name)
        return self.error(
            MissingRuleError,
            f" has no '{kind.name}' rule",
            *where,
            f"at {self.definition.place}",
            do=do or f"@{self.name}.register({kind.name})",
            kind=kind.name,
        )

    def closed_error(self) -> MissingRuleError:
        """Build the error for a call of an operator that its library removed."""
        return self.error(
            MissingRuleError,
            " was removed: the library that defined it is closed",
            f"defined at {self.definition.place}",
            do="keep the library open while its operators are used, or define it again",
        )

    # ---- reading ----

    def find_rule(self, kind: RuleKind) -> Any:
        """Return the rule of a kind: registered, derived, a fallback, or None."""
        row = self.rows.get(kind)
        if row is not None:
            return row.fn
        derived = None if kind.derive is None else kind.derive(self)
        return self.fallback_for(kind) if derived is None else derived

    def derived_for(self, kind: str) -> Callable[..., Any] | None:
        """Return the kernel that a kind of array derives for the operator, or None."""
        derive = None if kind == FAKE else find_kind(kind).derive
        if derive is None or self.closed:
            return None
        known = self.plans.derived
        if derive not in known:
            known[derive] = derive(self)
        return known[derive]

    def fallback_for(self, kind: RuleKind | str) -> Callable[..., Any] | None:
        """Return the fallback of a kind for the operator, or None."""
        # One object for as long as the table holds: a kernel is proven once. Read before
        # the fallbacks, whose change replaces it.
        known = self.plans.fallbacks
        rows = fallbacks.get(kind)
        if not rows or rows[-1].fn is fallthrough_kernel or self.closed:
            return None
        if kind not in known:
            known[kind] = rows[-1].fn(self)
        return known[kind]

    def find_below(
        self, kind: RuleKind | str, fn: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return the rule that would run without a registration and all newer ones."""
        rows = self.stacks.get(kind, ())
        at = next((i for i, row in enumerate(rows) if row.fn is fn), len(rows))
        below: Callable[..., Any] = rows[at - 1].fn if at else fallthrough_kernel
        if below is not fallthrough_kernel:
            return below
        if isinstance(kind, str):
            return self._kernel_without(kind)
        derived = None if kind.derive is None else kind.derive(self)
        if derived is None:
            derived = self.fallback_for(kind)
        if derived is None:
            raise self.missing_rule(kind, f"below the one at {place(fn)}")
        return derived

    def _kernel_without(self, kind: str) -> Callable[..., Any]:
        """Return the kernel for a kind of array as if it had no row."""
        derived = None if kind == DEFAULT else self.derived_for(kind)
        if derived is not None:
            return derived
        for other in (DEFAULT, COMPOSITE):
            row = self.rows.get(other)
            if row is not None and (other is COMPOSITE or kind not in (FAKE, other)):
                kernel: Callable[..., Any] = row.fn
                return kernel
        found = self.fallback_for(kind)
        if found is None:
            raise self.error(
                MissingRuleError,
                f" has no kernel below the one for '{kind}'",
                f"at {self.definition.place}",
                do='register one first, or as "default":'
                f' impl("{self.qualname}", "default")',
                kind=kind,
            )
        return found

    # ---- writing: the table is replaced whole ----

    def enter(
        self,
        kind: RuleKind | str,
        row: Row,
        *,
        override: bool = True,
        keeps_below: bool = False,
    ) -> None:
        """Put a row on top of those of its kind."""
        with finalized, changing:
            if self.closed:
                raise self.error(
                    RegistrationError,
                    " was removed: the library that defined it is closed",
                    f"the registration is at {row.place}",
                    do="define it again first",
                    parameter=None,
                )
            asked = rule_kind(kind)
            if not override:
                asked.check_new(self, row)
            rows = self.stacks.get(kind, ())
            if row.owner is None:
                rows = asked.rows_below(rows, row, keeps_below=keeps_below)
            self._set_rows(kind, (*rows, row))

    def leave(self, owner: object) -> None:
        """Take back all rows of an owner, wherever among the others they are."""
        with finalized, changing:
            for kind, rows in self.stacks.items():
                left = tuple(row for row in rows if row.owner is not owner)
                if len(left) < len(rows):
                    self._set_rows(kind, left)

    def _set_rows(self, kind: RuleKind | str, rows: tuple[Row, ...]) -> None:
        asked = rule_kind(kind)
        found = asked.merge(rows)
        table, stacks = {**self.rows}, {**self.stacks}
        table.pop(kind, None)
        stacks.pop(kind, None)
        if found is not None:
            table[kind] = found
        else:
            self.disabled -= {kind}
        if rows:
            stacks[kind] = rows
        vars(self).update(stacks=stacks, rows=table)
        self.changed(is_kernel=asked.is_kernel)

    def set_disabled(self, kind: str, disabled: bool) -> None:
        """Disable the kernel of a kind of array, or enable it."""
        with finalized, changing:
            rest = self.disabled - {kind}
            self.disabled = rest | {kind} if disabled and kind in self.rows else rest
            self.changed(is_kernel=True)

    def close(self) -> None:
        """Mark the operator as closed: later calls raise."""
        self.closed = True
        self.stacks = {}
        self.rows = {}
        self.disabled = frozenset()
        self.changed(is_kernel=True)

    def changed(self, *, is_kernel: bool) -> None:
        """Forget what was worked out from the table before."""
        changing.count += 1
        self._forget_plans()
        if is_kernel:
            self.forget_proofs()

    def _forget_plans(self) -> None:
        old: Plans | None = vars(self).pop("plans", None)
        if old is not None:
            old.close()

    def forget_proofs(self) -> None:
        """Have every kernel prove its contract again."""
        vars(self).update(proven=_NOBODY, sampled=_NOBODY, copied=_NOBODY)

    def redraw(self) -> None:
        """Follow a change of `config.sample_checks`, if calls are generated."""


# Kind -> what makes the fallback of an operator, the newest last. Replaced whole, as
# tables are.
fallbacks: dict[RuleKind | str, tuple[Row, ...]] = {}


# ---- the kernel that generated code may call at once for plain arrays of NumPy ----


class Never:
    """A class without objects, so that a guard for it always fails."""


class FastKernel:
    """The kernel of an operator that plans of transforms call without the operator.

    A plan tests ``type(x) is fast.array``, and that no mode is open.

    Attributes
    ----------
    array : type
        The class of arrays that the kernel takes: NumPy's, or one without objects while
        calls must go to the operator.
    kernel : callable
        It has proven its contract.
    """

    __slots__ = ("_is_drawn", "_is_open", "array", "kernel")

    def __init__(self) -> None:
        self.array: type = Never
        self.kernel: Callable[..., Any] | None = None
        self._is_open: bool = False
        self._is_drawn: bool = False

    def set(self, kernel: Callable[..., Any] | None) -> None:
        """Open the way to a kernel, or close it with None."""
        # Closed first, and the kernel never removed: a thread that is past the guard
        # calls the old kernel or the new one, never None.
        self.array = Never
        self._is_open = kernel is not None
        if kernel is not None:
            self.kernel = kernel
            self._let()

    def draw(self, is_drawn: bool) -> None:
        """Note whether a share of calls is drawn: then each call goes to the operator."""
        self._is_drawn = is_drawn
        self._let()

    def _let(self) -> None:
        self.array = np.ndarray if self._is_open and not self._is_drawn else Never


# ---- the lock held while tables of operators change ----


class _ChangeLock(RLock):  # type: ignore[misc]  # final only for type checkers
    """A lock that finalizers may request at any moment.

    The garbage collector runs finalizers between any two lines, also while this thread
    holds the lock. Their work waits until the lock is free. It is taken by
    ``with finalized, changing``: no interrupt comes between the methods of a lock written
    in C and the block, as one may before the first line of an `__exit__` in Python.
    """

    def __init__(self) -> None:
        super().__init__()
        self._later: deque[Callable[[], None]] = deque()
        # The number of changes of any table so far.
        self.count: int = 0

    def run_later(self, work: Callable[[], None]) -> None:
        """Run the work of a finalizer, at the end of the block if this thread is in one."""
        self._later.append(work)
        self.run_waiting()

    def run_waiting(self) -> None:
        """Run the work that waits, unless this thread holds the lock."""
        while self._later and not self._is_owned():  # type: ignore[attr-defined]  # threading.Condition uses it, too
            with self:
                if self._later:
                    self._later.popleft()()


class _Finalized:
    """Runs what finalizers have asked for meanwhile when a block ends."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        changing.run_waiting()


# Held while a table changes or a kernel is marked as proven; calls never wait for it.
changing: _ChangeLock = free_after_fork(_ChangeLock())
finalized: _Finalized = _Finalized()
