"""Kinds of rules, and the definitions of operators that rules belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from customop.arrays.kinds import DEFAULT, FAKE, is_known_device, known_devices
from customop.errors import (
    CustomOpError,
    MissingRuleError,
    RegistrationError,
    did_you_mean,
    items_of,
    place,
    quoted,
    shown,
)
from customop.frozen import Frozen
from customop.schema.agreement import (
    check_callable,
    check_parameters,
    check_returns_at_once,
    contradiction,
)
from customop.schema.schema import Schema
from customop.schema.tags import Tag
from customop.schema.types import holds_arrays

if TYPE_CHECKING:
    from customop.core.table import RuleTable

# ---- kinds of rules: what can be registered for an operator, and what checks it ----


class RuleKind:
    """A kind of rule: its name, and what its functions take and return.

    Parameters
    ----------
    name : str
        What error messages and tables call it.
    takes : str
        Parameters of a rule. `*inputs` means all parameters of the operator, the
        keyword-only ones by name; `**keywords` means only those. Rules are checked
        against this when they are registered. ``"(...)"`` checks nothing.
    returns : str
        What a rule returns, in words.
    derive : callable, optional
        ``derive(op)`` returns a rule for an operator without one, or None.

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
    # Whether `fallthrough_kernel` can be registered.
    falls_through: ClassVar[bool] = False
    # How a transform runs an operator without a rule; empty if it raises.
    last_resort: ClassVar[str] = ""
    # A shorter remedy where a rule is missing, with the {name} of the operator.
    shorter: ClassVar[str] = ""
    # How messages say that a rule of another kind is used instead.
    how_instead: ClassVar[str] = ""
    # Whether a rule returns a tuple of two.
    returns_pair: ClassVar[bool] = False
    # The name of a call under the transform, where it is not that of the rule.
    call_title: ClassVar[str] = ""

    def __init__(
        self,
        name: str,
        takes: str = "(...)",
        returns: str = "anything",
        *,
        derive: Callable[[RuleTable], Any] | None = None,
    ) -> None:
        _check_kind(name, takes, derive)
        if name in _OWN and type(self) is RuleKind:
            raise RegistrationError(
                f"'{name}' is the name of a rule kind of customop",
                do=f"register such a rule by op.{_OWN[name]}, or choose another name",
                kind=name,
            )
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

    def __repr__(self) -> str:
        return (
            f"RuleKind({self.name!r}, takes={self.takes!r}, returns={self.returns!r})"
        )

    @property
    def key(self) -> RuleKind | str:
        """The key of its row in the table of an operator."""
        return self

    @property
    def title(self) -> str:
        """The name of a rule of this kind in messages."""
        return f"{self.name} rule"

    # ---- registration ----

    def check_given(self, qualname: str, fn: Any) -> None:
        """Raise unless `fn` can be registered for some operator."""
        check_callable(qualname, self.title, fn, kind=self.name)
        if fn is fallthrough_kernel and not self.falls_through:
            raise RegistrationError(
                f"{qualname}: '{self.name}' cannot fall through: nothing that follows"
                " knows its values",
                do="register a rule, or leave the row empty",
                op=qualname,
                kind=self.name,
            )

    def check(self, definition: Definition, fn: Any) -> None:
        """Raise unless `fn` can be called as a rule of this kind for the operator."""
        if self.leading is None:
            return
        schema = definition.schema
        positional = list(self.leading)
        keywords: list[str] = []
        if self.with_inputs:
            positional += [p.name for p in schema.positional]
        if self.with_keywords:
            keywords = [p.name for p in schema.keyword_only]
        if self.returns_pair:
            check_returns_at_once(definition.qualname, self.title, fn)
        # Users may rename the leading parameters.
        check_parameters(
            f"{definition.qualname}: the {self.title}",
            fn,
            positional,
            keywords,
            free=len(self.leading),
            do=lambda: f"write def {_signature_text(positional, keywords)}",
        )

    def place_of(self, fn: Any) -> str:
        """Return the file and line that messages name for a registration."""
        return place(fn)

    def accept(self, op: RuleTable, fn: Any, *, with_below: bool) -> Any:
        """Return the rule that enters the table for what was registered."""
        return Below(op, self.key, fn).rule if with_below else fn

    def check_new(self, op: RuleTable, new: Row) -> None:
        """Raise for a second rule from another place."""
        known = op.rows.get(self.key)
        if known is not None and not same_place(known.place, new.place):
            raise self.second(op, f"a rule for '{self.name}'", known, new)
        if known is None and self.name not in _OWN:
            self._check_name(op, new)

    def _check_name(self, op: RuleTable, new: Row) -> None:
        """Raise if the operator has a rule of another kind of the same name."""
        for kind, row in op.rows.items():
            is_twin = isinstance(kind, RuleKind) and kind.name == self.name
            if is_twin and not same_place(row.place, new.place):
                raise op.error(
                    RegistrationError,
                    f" has a rule of another kind that is called '{self.name}' too, from"
                    f" {row.place}",
                    f"the second is at {new.place}",
                    do="use the first RuleKind, or give the second one another name",
                    parameter=None,
                    kind=self.name,
                )

    def second(
        self, op: RuleTable, what: str, known: Row, new: Row
    ) -> RegistrationError:
        """Return the error for a rule that the operator has already."""
        return op.error(
            RegistrationError,
            f" has {what} already, from {known.place}",
            f"the second is at {new.place}",
            do="remove one of them, or register with override=True",
            parameter=None,
            kind=self.name,
        )

    def rows_below(
        self, rows: Sequence[Row], new: Row, *, keeps_below: bool
    ) -> tuple[Row, ...]:
        """Return the rows that stay below a new one that is never taken back.

        Most can never come back, so they go, unless the new one calls what is below
        it. A line that runs again replaces what it registered.

        Parameters
        ----------
        rows : sequence of Row
            All that are registered, the newest last.
        new : Row
        keeps_below : bool
            Whether the new one calls what is below it.

        Returns
        -------
        tuple of Row
        """
        if not keeps_below:
            return ()
        return tuple(row for row in rows if row.owner or row.place != new.place)

    def merge(self, rows: Sequence[Row]) -> Row | None:
        """Return the row that counts among all that are registered, or None."""
        return None if not rows or rows[-1].fn is fallthrough_kernel else rows[-1]

    def entries(self, row: Row) -> list[tuple[str, tuple[str, ...]]]:
        """List the entries of a row: a name or nothing, and the places of each."""
        return [("", (row.place,))]

    # ---- calls ----

    def why_not(self, array_kind: str | None) -> str:
        """Explain why a call does not take this row, given the kind of array of its kernel."""
        return f"no argument is a value of {self.name}"

    def has_rule(self, op: RuleTable) -> bool:
        """Return whether a call uses a rule of this kind, or of the kind that replaces it."""
        # The row of a mode over a kind of array, such as FakeMode, is that kind's.
        if self in op.rows or self.name in op.rows:
            return True
        if self.instead in op.rows:
            return True
        return self.derive is not None and self.derive(op) is not None

    @property
    def instead(self) -> RuleKind | None:
        """Another kind whose rule can be used instead; see `how_instead`."""
        return None


class MergedKind(RuleKind):
    """A kind whose rows are dicts: all of them count, newer entries first."""

    __slots__ = ()

    def rows_below(
        self, rows: Sequence[Row], new: Row, *, keeps_below: bool
    ) -> tuple[Row, ...]:
        """Return the rows with entries that the new one does not have."""
        return tuple(row for row in rows if not row.fn.keys() <= new.fn.keys())

    def merge(self, rows: Sequence[Row]) -> Row | None:
        """Merge the entries of all rows into one row."""
        if not rows:
            return None
        merged = {name: rule for row in rows for name, rule in row.fn.items()}
        return Row(merged, rows[-1].place)


# ---- kernels ----


class KernelKind(RuleKind):
    """The kernels for one kind of array; the table has them under its name."""

    __slots__ = ()
    is_kernel: ClassVar[bool] = True
    falls_through: ClassVar[bool] = True

    @property
    def key(self) -> RuleKind | str:
        """The name of the kind of array."""
        return self.name

    @property
    def title(self) -> str:
        """The name of a kernel of this kind in messages."""
        if self.name in (FAKE, DEFAULT):
            return f"{self.name} kernel"
        return f"kernel for '{self.name}'"

    def why_not(self, array_kind: str | None) -> str:
        """Explain why a call does not take this row, given the kind of array of its kernel."""
        if self.name == FAKE:
            return "no argument is a FakeArray"
        if self.name == DEFAULT:
            return f"'{array_kind}' has its own kernel"
        if self.name == array_kind:
            return "it is disabled"
        return f"no argument is an array of the kind '{self.name}'"

    def check(self, definition: Definition, fn: Any) -> None:
        """Raise unless `fn` can be a kernel of the operator."""
        check_kernel(definition, fn, self.title)
        if self.name != FAKE:
            check_factory(definition.qualname, definition.schema, (self.name,))


class BodyKind(RuleKind):
    """Bodies made of operators: they run where an operator has no kernel."""

    __slots__ = ()
    is_kernel: ClassVar[bool] = True
    falls_through: ClassVar[bool] = True

    @property
    def title(self) -> str:
        """The name of a body in messages."""
        return "composite body"

    def why_not(self, array_kind: str | None) -> str:
        """Explain why a call does not take this row, given the kind of array of its kernel."""
        return f"'{array_kind}' has a kernel"

    def check(self, definition: Definition, fn: Any) -> None:
        """Raise unless `fn` can be a body of the operator."""
        check_kernel(definition, fn, self.title)


class Below:
    """The function below a kernel or rule; first argument of one `with_keyset`.

    Call it as the function below is called: `below(x)`, or `below.redispatch(x)`.

    Attributes
    ----------
    rule : callable
        The kernel or rule with this first argument.
    """

    __slots__ = ("_key", "_op", "rule")

    def __init__(
        self, op: RuleTable, key: RuleKind | str, fn: Callable[..., Any]
    ) -> None:
        self._op = op
        self._key = key
        self.rule: Callable[..., Any] = partial(fn, self)

    def redispatch(self, *args: Any, **kwargs: Any) -> Any:
        """Call what would run without this registration and those above it."""
        return self._op.find_below(self._key, self.rule)(*args, **kwargs)

    __call__ = redispatch


def check_kernel(definition: Definition, fn: Any, what: str) -> None:
    """Raise unless `fn` can be a kernel of the operator."""
    if getattr(fn, "definition", None) is definition:
        raise definition.error(
            RegistrationError,
            f"the {what} is the operator itself, which would call itself forever",
            do="register the function that computes the result",
            parameter=None,
        )
    check_returns_at_once(definition.qualname, what, fn)
    check_parameters(
        f"{definition.qualname}: the {what}",
        fn,
        [p.name for p in definition.schema.positional],
        [p.name for p in definition.schema.keyword_only],
        do=lambda: f"write the parameters of {definition.show()}",
    )
    found = contradiction(fn, definition.schema, with_shapes=False)
    if found is not None:
        raise definition.error(
            RegistrationError,
            f"the {what} contradicts the schema: {found.place} is {found.given} in the"
            f" schema, and {found.annotated} in its annotation",
            f"at {place(fn)}",
            do="write the type of the schema, or no annotation",
            parameter=found.parameter or "return",
        )


def check_kind(qualname: str, kind: object) -> None:
    """Raise unless `kind` is a kind of rule."""
    if not isinstance(kind, RuleKind):
        raise RegistrationError(
            f"{qualname}: {shown(kind)} is not a RuleKind",
            do='make one: RuleKind("inverse", takes="(out, *inputs)")',
            op=qualname,
        )


class OwnKind(RuleKind):
    """A kind of this package without a behavior of its own."""

    __slots__ = ()


# Names of kinds of this package -> the method that registers for the kind.
_OWN = {
    **{
        name: f"register_{name}(fn)"
        for name in ("autocast", "autograd", "fake", "jvp", "sample_inputs", "vmap")
    },
    **{name: f'register_kernel("{name}", fn)' for name in ("cpu", "cuda")},
    "array_class": "register_array_dispatch(cls, fn)",
}


def _check_kind(name: object, takes: object, derive: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise RegistrationError(
            f"{shown(name)} cannot be the name of a rule kind",
            do='use an identifier: RuleKind("inverse", takes="(out, *inputs)")',
        )
    if not isinstance(takes, str):
        raise RegistrationError(
            f"rule kind '{name}': takes={shown(takes)} is not a string",
            do='write the parameters of a rule: takes="(out, *inputs)"',
            kind=name,
        )
    if derive is not None:
        check_callable(f"rule kind '{name}'", "derive", derive, kind=name)


def _leading(name: str, takes: str, names: list[str]) -> tuple[str, ...]:
    starred = ("*inputs", "**keywords")
    if not all(part in starred or part.isidentifier() for part in names):
        raise RegistrationError(
            f"rule kind '{name}': cannot read takes={shown(takes)}",
            do='write names and "*inputs", as in "(out, *inputs)", or "(...)"',
            kind=name,
        )
    return tuple(part for part in names if part not in starred)


def _signature_text(positional: Sequence[str], keywords: Sequence[str]) -> str:
    names = [*positional, *(["*", *keywords] if keywords else [])]
    return f"rule({', '.join(names)}): ..."


# Transforms without a rule run the body, and so does a kind of array without a kernel.
COMPOSITE = BodyKind("composite", "(*inputs)", "what the operator returns")

_kernel_kind = cache(KernelKind)


def rule_kind(key: RuleKind | str) -> RuleKind:
    """Return the rule kind of a row; for the name of a kind of array, the kind of its kernels."""
    return _kernel_kind(key) if isinstance(key, str) else key


# ---- the definition of an operator, and the rows of its table ----


ErrorT = TypeVar("ErrorT", bound=CustomOpError)


class Site(Frozen):
    """The run of a module, script or cell in which an operator is defined.

    Attributes
    ----------
    code : CodeType
        Its code. A module that is reloaded and a cell that runs again have a new one.
    namespace : int
        The identity of its globals.
    """

    code: CodeType
    namespace: int

    @classmethod
    def of(cls, frame: FrameType) -> Site:
        """Return the site of a running frame; in a thread, that of the function it runs."""
        while frame.f_code.co_name != "<module>" and frame.f_back is not None:
            frame = frame.f_back
        return cls(frame.f_code, id(frame.f_globals))


class Definition(Frozen, compare=()):
    """The definition of an operator."""

    qualname: str
    fn: Callable[..., Any]
    schema: Schema
    tags: frozenset[Tag]
    place: str
    module: str
    site: Site | None = None

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
        """Show the schema with the name in front, and carets under parameters."""
        return self.schema.show(self.qualname, *parameters)


class Row:
    """A registration: one row of an operator's table.

    Attributes
    ----------
    fn : object
        The kernel or rule.
    place : str
        File and line that messages name.
    owner : object
        Whose closing takes it back; None where it stays.
    """

    __slots__ = ("fn", "owner", "place")

    def __init__(self, fn: Any, place: str, owner: object = None) -> None:
        self.fn: Any = fn
        self.place: str = place
        self.owner: object = owner


def fallthrough_kernel(*args: Any, **kwargs: Any) -> NoReturn:
    """Mark a row to skip: a call goes on to the next row.

    Register it; it is never called. For a kind of array the default kernel follows,
    then the composite body. For autograd the operator below follows, and its result is
    not tracked.

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


def same_place(first: str, second: str) -> bool:
    """Return whether two places are the same, so that one line ran twice.

    Any two cells of notebooks count as the same place, since their files change.
    """
    return first == second or (is_interactive(first) and is_interactive(second))


def is_interactive(where: str) -> bool:
    """Return whether a place is in a notebook or at a prompt, not in a file."""
    return where.startswith("<") or "ipykernel_" in where


# ---- kinds of array that have kernels ----


def check_device_types(
    qualname: str, device_types: str | Iterable[str] | None
) -> tuple[str, ...]:
    """Return the names of kinds of array, and check that each is known; None is the default."""
    if device_types is None:
        return (DEFAULT,)
    kinds = [device_types] if isinstance(device_types, str) else items_of(device_types)
    if kinds is None:
        raise RegistrationError(
            f"{qualname}: device_types={shown(device_types)} does not name a kind of array",
            do='write "cpu", ("cpu", "cuda"), or None for all kinds',
            op=qualname,
        )
    if not kinds:
        raise RegistrationError(
            f"{qualname}: device_types is empty, so the kernel would serve nothing",
            do='write "cpu", ("cpu", "cuda"), or None for all kinds',
            op=qualname,
        )
    for kind in kinds:
        if not isinstance(kind, str) or not is_known_device(kind):
            known = known_devices()
            hint = did_you_mean(kind, known) if isinstance(kind, str) else ""
            raise RegistrationError(
                f"{qualname}: unknown device type {shown(kind)}{hint}",
                f"known: {quoted(known)}",
                do="register_fake for a fake kernel"
                if isinstance(kind, str) and kind == FAKE
                else "use a known one, or register_array_type first",
                op=qualname,
            )
    return tuple(kinds)


def check_factory(name: str, schema: Schema, kinds: tuple[str, ...]) -> None:
    """Raise if there are kernels by kind of array, but nothing to choose one by."""
    has_array = any(holds_arrays(p.type) for p in schema.parameters)
    if has_array or schema.device_slot is not None or kinds == (DEFAULT,):
        return
    raise RegistrationError(
        f"{name}: has kernels for {', '.join(kinds)}, but no array and no 'device' to"
        " choose by",
        schema.show(name),
        do="add a parameter device: Device, or name no kinds of array",
        op=name,
    )
