"""An operator's table: kinds of rules, rows, and what is worked out from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

from customop.core.changes import changing
from customop.errors import CustomOpError, MissingRuleError, RegistrationError
from customop.schema.parameters import MISSING
from customop.schema.schema import Schema
from customop.schema.signatures import check_callable, check_parameters
from customop.schema.tags import Tag
from customop.schema.types import GENERATOR, parts

__all__ = [
    "Definition",
    "MergedKind",
    "Plans",
    "Row",
    "RuleKind",
    "RuleTable",
    "fallbacks",
    "fallthrough_kernel",
    "same_place",
]

ErrorT = TypeVar("ErrorT", bound=CustomOpError)


class RuleKind:
    """Name a kind of rule and describe the functions that can serve as one.

    Parameters
    ----------
    name : str
        What error messages and tables call it.
    takes : str
        Parameters of a rule. `*inputs` stands for the positional parameters of the
        operator, after which its keyword-only parameters follow by name;
        `**keywords` stands for the latter alone. Rules are checked against this when
        they are registered. ``"(...)"`` checks nothing.
    returns : str
        What a rule returns, in words.
    derive : callable, optional
        ``derive(op)`` gives a rule for an operator that has none, or None.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> inverse = co.RuleKind("inverse", takes="(out, *inputs)", returns="input 0")
    >>> @co.custom_op("doc::my_exp", mutates_args=())
    ... def my_exp(x: np.ndarray) -> np.ndarray:
    ...     return np.exp(x)
    >>> @my_exp.register(inverse)
    ... def _(out, x):
    ...     return np.log(out)
    >>> my_exp.rule(inverse)(np.array([1.0]), None)
    array([0.])
    """

    __slots__ = (
        "derive",
        "leading",
        "name",
        "returns",
        "takes",
        "with_inputs",
        "with_keywords",
    )
    # Whether a rule runs in place of a kernel.
    is_kernel: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        takes: str = "(...)",
        returns: str = "anything",
        *,
        derive: Callable[[RuleTable], Any] | None = None,
    ) -> None:
        _check_kind(name, takes, derive)
        self.name: str = name
        self.takes: str = takes
        self.returns: str = returns
        self.derive: Callable[[RuleTable], Any] | None = derive
        names = [part.strip() for part in takes.strip("() ").split(",") if part.strip()]
        self.with_inputs: bool = "*inputs" in names
        self.with_keywords: bool = self.with_inputs or "**keywords" in names
        self.leading: tuple[str, ...] | None = (
            None if names == ["..."] else _leading(name, takes, names)
        )

    def merge(self, rows: Sequence[Row]) -> Row | None:
        """The row that counts of all that are registered; None where none does."""
        return _top(rows)

    def __repr__(self) -> str:
        return (
            f"RuleKind({self.name!r}, takes={self.takes!r}, returns={self.returns!r})"
        )

    def check(self, qualname: str, schema: Schema, fn: Any) -> None:
        """Raise unless `fn` can be called as a rule of this kind for the operator."""
        check_callable(qualname, f"{self.name} rule", fn, kind=self.name)
        if self.leading is None:
            return
        positional = list(self.leading)
        keywords: list[str] = []
        if self.with_inputs:
            positional += [p.name for p in schema.positional]
        if self.with_keywords:
            keywords = [p.name for p in schema.keyword_only]
        # Leading names are the library's words: users call them as they like.
        check_parameters(
            f"{qualname}: the {self.name} rule",
            fn,
            positional,
            keywords,
            free=len(self.leading),
            do=f"write def {_signature_text(positional, keywords)}",
        )


class MergedKind(RuleKind):
    """A kind whose rows are dicts: all of them count, newer entries first."""

    __slots__ = ()

    def merge(self, rows: Sequence[Row]) -> Row | None:
        """One row with the entries of all."""
        if not rows:
            return None
        merged = {name: rule for row in rows for name, rule in row.fn.items()}
        return Row(merged, rows[-1].place)


def _check_kind(name: object, takes: object, derive: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise RegistrationError(
            f"{name!r} is no name for a kind of rule",
            do='use an identifier: RuleKind("inverse", takes="(out, *inputs)")',
        )
    if not isinstance(takes, str):
        raise RegistrationError(
            f"rule kind '{name}': takes={takes!r} is no string",
            do='write the parameters of a rule: takes="(out, *inputs)"',
            kind=name,
        )
    if derive is not None:
        check_callable(f"rule kind '{name}'", "derive", derive, kind=name)


def _leading(name: str, takes: str, names: list[str]) -> tuple[str, ...]:
    starred = ("*inputs", "**keywords")
    if not all(part in starred or part.isidentifier() for part in names):
        raise RegistrationError(
            f"rule kind '{name}': cannot read takes={takes!r}",
            do='write names and "*inputs", as in "(out, *inputs)", or "(...)"',
            kind=name,
        )
    return tuple(part for part in names if part not in starred)


def _signature_text(positional: Sequence[str], keywords: Sequence[str]) -> str:
    names = [*positional, *(["*", *keywords] if keywords else [])]
    return f"rule({', '.join(names)}): ..."


class Row(NamedTuple):
    """A registration: what stands in an operator's table under a kind.

    Attributes
    ----------
    fn : object
        The kernel or rule.
    place : str
        File and line that messages name.
    owner : object
        Whose closing takes it back; None where it stays.
    """

    fn: Any
    place: str
    owner: object = None


def fallthrough_kernel(*args: Any, **kwargs: Any) -> NoReturn:
    """Stand for a kernel that is not there: the call goes on to the next row.

    It is registered and never called. For a kind of array the default kernel follows,
    then the composite body; for autograd the operator below, whose result is not
    tracked.

    Parameters
    ----------
    *args, **kwargs : object
        Never read.

    Raises
    ------
    MissingRuleError
        Always.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::halve", mutates_args=())
    ... def halve(x: np.ndarray) -> np.ndarray:
    ...     return x / 2
    >>> with co.Library("doc", "IMPL", "CPU") as lib:
    ...     lib.impl("halve", lambda x: x * 0)
    ...     lib.impl("halve", co.fallthrough_kernel)
    ...     print(halve(np.ones(2)))
    [0.5 0.5]
    """
    raise MissingRuleError(
        "fallthrough_kernel is called: it only marks a row to skip",
        do='register it: lib.impl("name", fallthrough_kernel, "CPU")',
    )


class Definition(NamedTuple):
    """All that a definition of an operator says."""

    qualname: str
    fn: Callable[..., Any]
    schema: Schema
    tags: frozenset[Tag]
    place: str
    module: str

    @property
    def name(self) -> str:
        """The name without namespace and overload."""
        return self.qualname.partition("::")[2].partition(".")[0]

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
        return self.schema.error(
            cls, self.qualname, what, *where, do=do, parameter=parameter, kind=kind
        )

    def show(self, *parameters: str) -> str:
        """The schema with the name in front, and carets under parameters."""
        return self.schema.show(self.qualname, *parameters)


class Plans:
    """What is worked out from a table, kept for as long as the table holds."""

    __slots__ = (
        "bind",
        "by_tracer",
        "fake",
        "fallbacks",
        "patterns",
        "proven_rows",
        "rule_names",
        "vmap",
    )

    def __init__(self) -> None:
        # Class of tracer -> function of interpreter and arguments.
        self.by_tracer: dict[type, Callable[[Any, Sequence[Any]], Any]] = {}
        # Gives the values of all parameters for the arguments of a call.
        self.bind: Callable[..., Sequence[Any]] | None = None
        # Rules by tags and shapes; MISSING until somebody asks.
        self.fake: Any = MISSING
        self.vmap: Any = MISSING
        self.fallbacks: dict[RuleKind | str, Callable[..., Any]] = {}
        # The `in_dims` for which the vmap rule has returned rows of the right shapes.
        self.proven_rows: set[tuple[int | None, ...]] = set()
        # Inputs that opcheck has found.
        self.patterns: Any = None
        # Names of the operator and of a kernel or rule, as the profiler shows them.
        self.rule_names: dict[Any, tuple[str, str]] = {}


class RuleTable:
    """The schema of an operator and its rules: what a rule or kernel is picked from.

    `Operator` adds the call and the registration.
    """

    definition: Definition
    schema: Schema
    tags: frozenset[Tag]
    qualname: str
    namespace: str
    name: str
    overload: str
    # The function of a call, and how rules call the operator with all its values.
    call: Callable[..., Any]
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
    plans: Plans
    # Kernel, positional and keyword values, and the proof of a call, or None.
    select: Callable[
        [Sequence[Any]],
        tuple[Callable[..., Any], Sequence[Any], dict[str, Any], Any],
    ]

    def __init__(self, definition: Definition) -> None:
        self.define(definition)

    def define(self, definition: Definition) -> None:
        """Take this definition, with an empty table."""
        schema = definition.schema
        self.definition = definition
        self.schema = schema
        self.tags = definition.tags
        self.qualname = definition.qualname
        self.namespace, _, rest = definition.qualname.partition("::")
        self.name, _, self.overload = rest.partition(".")
        self.closed = False
        self.stacks = {}
        self.rows = {}
        self.disabled = frozenset()
        self.proven = self.sampled = self.copied = frozenset()
        self.plans = Plans()
        self.array_slots: tuple[int, ...] = schema.array_slots
        self.nested_slots: tuple[int, ...] = schema.nested_slots
        self.positional_count: int = len(schema.positional)
        # Whether a call is arrays in, one array out: most calls of most programs.
        self.is_plain: bool = (
            schema.single_return
            and not schema.nested_slots
            and not schema.written
            and not schema.keyword_only
        )
        # Whether its only array comes first, all else having defaults.
        self.is_unary: bool = self.array_slots == (0,) and all(
            p.default is not MISSING for p in schema.parameters[1:]
        )
        self.sees_seed: bool = Tag.nondeterministic_seeded in definition.tags or any(
            GENERATOR in parts(p.type) for p in schema.parameters
        )
        self.needs_contiguous: bool = Tag.needs_contiguous in definition.tags

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
        """The error for a rule that the operator does not have."""
        if self.closed:
            return self.closed_error()
        method = f"register_{kind.name}"
        do = f"@{self.name}.{method}" if hasattr(self, method) else ""
        return self.error(
            MissingRuleError,
            f" has no '{kind.name}' rule",
            *where,
            f"at {self.definition.place}",
            do=do or f"@{self.name}.register({kind.name})",
            kind=kind.name,
        )

    def closed_error(self) -> MissingRuleError:
        """The error for a call of an operator that its library has taken back."""
        return self.error(
            MissingRuleError,
            " is no more: the library that defined it is closed",
            f"defined at {self.definition.place}",
            do="keep the library open while its operators are used, or define it again",
        )

    # ---- reading ----

    def find_rule(self, kind: RuleKind) -> Any:
        """The rule of a kind: registered, derived, or a fallback; or None."""
        row = self.rows.get(kind)
        if row is not None:
            return row.fn
        derived = None if kind.derive is None else kind.derive(self)
        return self.fallback_for(kind) if derived is None else derived

    def fallback_for(self, kind: RuleKind | str) -> Callable[..., Any] | None:
        """The fallback of a kind for the operator, or None."""
        rows = fallbacks.get(kind)
        if not rows or rows[-1].fn is fallthrough_kernel or self.closed:
            return None
        # One object for as long as the table holds: a kernel is proven once.
        known = self.plans.fallbacks
        if kind not in known:
            known[kind] = rows[-1].fn(self)
        return known[kind]

    # ---- writing: the table is replaced whole ----

    def enter(
        self,
        kind: RuleKind | str,
        fn: Any,
        where: str,
        *,
        override: bool = True,
        owner: object = None,
        keeps_below: bool = False,
    ) -> None:
        """Put a row on top of those of its kind."""
        with changing:
            if self.closed:
                raise self.error(
                    RegistrationError,
                    " is no more: the library that defined it is closed",
                    f"the registration is at {where}",
                    do="define it again first",
                    parameter=None,
                )
            known = self.rows.get(kind)
            if (
                known is not None
                and not override
                and not same_place(known.place, where)
            ):
                name = kind if isinstance(kind, str) else kind.name
                raise self.error(
                    RegistrationError,
                    f" has a '{name}' rule already, from {known.place}",
                    f"the second is at {where}",
                    do="remove one of them, or register with override=True",
                    parameter=None,
                    kind=name,
                )
            rows = self.stacks.get(kind, ())
            new = Row(fn, where, owner)
            if owner is None:
                rows = _left_below(rows, kind, new, keeps_below=keeps_below)
            self._set_rows(kind, (*rows, new))

    def leave(self, owner: object) -> None:
        """Take back all rows of an owner, wherever among the others they are."""
        with changing:
            for kind, rows in self.stacks.items():
                left = tuple(row for row in rows if row.owner is not owner)
                if len(left) < len(rows):
                    self._set_rows(kind, left)

    def _set_rows(self, kind: RuleKind | str, rows: tuple[Row, ...]) -> None:
        found = _top(rows) if isinstance(kind, str) else kind.merge(rows)
        table = {k: row for k, row in self.rows.items() if k != kind}
        if found is not None:
            table[kind] = found
        else:
            self.disabled -= {kind}
        stacks = {k: row for k, row in self.stacks.items() if k != kind}
        self.stacks = {**stacks, kind: rows} if rows else stacks
        self.rows = table
        self.changed(is_kernel=isinstance(kind, str) or kind.is_kernel)

    def set_disabled(self, kind: str, disabled: bool) -> None:
        """Disable the kernel of a kind of array, or enable it."""
        with changing:
            rest = self.disabled - {kind}
            self.disabled = rest | {kind} if disabled and kind in self.rows else rest
            self.forget_proofs()

    def close(self) -> None:
        """Mark the operator as closed: later calls raise."""
        self.closed = True
        self.stacks = {}
        self.rows = {}
        self.disabled = frozenset()
        self.changed(is_kernel=True)

    def changed(self, *, is_kernel: bool) -> None:
        """Forget what was worked out from the table before."""
        self.plans = Plans()
        if is_kernel:
            self.forget_proofs()

    def forget_proofs(self) -> None:
        """Have every kernel prove its contract again."""
        self.proven = self.sampled = self.copied = frozenset()


# Kind -> what makes the fallback of an operator, the newest last. Replaced whole, as
# tables are.
fallbacks: dict[RuleKind | str, tuple[Row, ...]] = {}


def _top(rows: Sequence[Row]) -> Row | None:
    """The newest row, or None where it falls through."""
    return None if not rows or rows[-1].fn is fallthrough_kernel else rows[-1]


def _left_below(
    rows: tuple[Row, ...], kind: RuleKind | str, new: Row, *, keeps_below: bool
) -> tuple[Row, ...]:
    """The rows that stay below a new one that stays for good.

    They can never come back, so they go, unless the new one calls what is below it. A
    line that runs again replaces what it registered.
    """
    if isinstance(kind, MergedKind):
        return tuple(row for row in rows if not row.fn.keys() <= new.fn.keys())
    if not keeps_below:
        return ()
    return tuple(row for row in rows if row.owner or row.place != new.place)


def same_place(first: str, second: str) -> bool:
    """Whether two places are one, so that a second registration is a second run.

    Cells of a notebook have no file that stays: any two of them count as one place.
    """
    return first == second or (_is_interactive(first) and _is_interactive(second))


def _is_interactive(where: str) -> bool:
    return where.startswith("<") or "ipykernel_" in where
