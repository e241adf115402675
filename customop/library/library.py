"""Libraries: registrations that are removed when the library closes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, overload

from customop.arrays.kinds import DEFAULT, FAKE, is_known_device, known_kinds
from customop.core.builtin_kinds import AUTOGRAD, JVP, VMAP, Formula
from customop.core.operator import Operator
from customop.core.registration import Registration
from customop.core.registry import (
    add_registration,
    check_name,
    forget_registrations,
    in_namespace,
    operators,
    remove_operator,
    tables_changed,
)
from customop.core.rule_kind import (
    COMPOSITE,
    Row,
    RuleKind,
    fallthrough_kernel,
    rule_kind,
)
from customop.core.table import changing, fallbacks, finalized
from customop.errors import (
    RegistrationError,
    check_flag,
    did_you_mean,
    place,
    quoted,
    shown,
    user_frame,
)
from customop.later import later
from customop.library.define import conservative, declare, place_of, read_definition
from customop.schema.schema import Schema
from customop.schema.tags import Tag

if TYPE_CHECKING:
    from customop.core.rule_types import KernelFn, ShortKernelFn

difflib: ModuleType = later(import_module, "difflib")

# ---- libraries: registrations that are removed when the library closes ----


class KeysetOptions(TypedDict, total=False):
    """Options of `Library.impl`."""

    with_keyset: bool
    allow_override: bool


class Library:
    """Registrations for one namespace, which closing the library removes.

    Parameters
    ----------
    ns : str
        The namespace, the part of an operator's name before ``::``. ``"_"`` means all
        namespaces and is used with `fallback`.
    kind : str
        ``"DEF"`` owns the namespace and defines operators in it; only one can be open.
        ``"FRAGMENT"`` also defines operators, and any number can be open. ``"IMPL"``
        registers for operators that others define.
    dispatch_key : str or RuleKind
        The default for the key of `impl`: a dispatch key of torch in any letter case, a
        kind of array, or a rule kind. If it is empty, `impl` registers the operator's
        body, ``"CompositeImplicitAutograd"``.

    Raises
    ------
    RegistrationError
        If the namespace is malformed or has another owner, or `kind` or `dispatch_key`
        is unknown.

    Notes
    -----
    A library closes when `close` is called, when its ``with`` block ends, or when it is
    garbage-collected. Libraries may close in any order; the newest registration that is
    still open counts. The keys mean:

    ================================ ============================================
    ``CPU``, ``CUDA``, ``"mykind"``  kernel for that kind of array
    ``CompositeExplicitAutograd``    kernel for all kinds, same as ``"default"``
    ``Meta``                         fake kernel
    ``CompositeImplicitAutograd``    body made of operators; it serves every kind, and
                                     transforms see its operators; graphs do too,
                                     unless there is a kernel for ``CPU``
    ``Autograd``                     a `Formula`, or a function that replaces the
                                     operator while gradients are computed
    ``FuncTorchBatched``             batching rule, as for `register_vmap`
    ================================ ============================================

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> with co.Library("doc_lib", "DEF") as lib:
    ...     name = lib.define("twice(Array x) -> Array")
    ...     lib.impl(name, lambda x: x + x)
    ...     print(co.ops.doc_lib.twice(np.ones(2)))
    [2. 2.]
    """

    def __init__(
        self,
        ns: str,
        kind: Literal["DEF", "IMPL", "FRAGMENT"],
        dispatch_key: str | RuleKind = "",
    ) -> None:
        check_arguments(ns, kind)
        self._key: str | RuleKind = dispatch_key
        if not isinstance(dispatch_key, str) or dispatch_key:
            self._key = kind_of_key(f"Library('{ns}')", dispatch_key)
        in_namespace(ns)  # what the library adds comes on top
        self._scope = Scope(ns, kind, user_frame())
        with finalized, changing:
            if kind == "DEF":
                claim(self._scope)
        self._finalizer = weakref.finalize(self, _close_later, self._scope)
        self._finalizer.atexit = False

    @property
    def ns(self) -> str:
        """The namespace."""
        return self._scope.namespace

    @property
    def kind(self) -> str:
        """``"DEF"``, ``"IMPL"`` or ``"FRAGMENT"``."""
        return self._scope.kind

    def __repr__(self) -> str:
        state = "" if self._scope.is_open else ", closed"
        return f"<Library {self.ns} ({self.kind}{state}) at {self._scope.place}>"

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything that was registered; closing again does nothing.

        Examples
        --------
        >>> import customop as co
        >>> lib = co.Library("doc_closed", "DEF")
        >>> lib.close()
        >>> lib
        <Library doc_closed (DEF, closed) at ...>
        """
        self._scope.close()

    def define(
        self, schema: str, alias_analysis: str = "", *, tags: Iterable[Tag] | Tag = ()
    ) -> str:
        """Define an operator by its schema.

        Parameters
        ----------
        schema : str
            For example ``"name(Array x, float k=1.0) -> Array"``; the name may have an
            overload: ``name.overload``.
        alias_analysis : str
            ``""`` or ``"FROM_SCHEMA"``: the schema says which arrays share memory.
            ``"CONSERVATIVE"``: any array may share memory with any other.
        tags : Tag or iterable of Tag
            Properties that the schema cannot express.

        Returns
        -------
        str
            The name, with its overload.

        Raises
        ------
        SchemaError
            If the schema cannot be parsed.
        RegistrationError
            If the name is already defined, or this library is of the kind IMPL.

        Examples
        --------
        >>> import customop as co
        >>> with co.Library("doc_define", "DEF") as lib:
        ...     lib.define("scale.int(Array x, int k) -> Array")
        'scale.int'
        """
        scope = self._check_open()
        if scope.kind == "IMPL":
            raise RegistrationError(
                f"library '{self.ns}' is of the kind IMPL, which cannot define operators",
                f"made at {scope.place}",
                do=f'Library("{self.ns}", "FRAGMENT")',
            )
        check_alias_analysis(self.ns, alias_analysis)
        qualname, found = read_definition(schema, self.ns)
        if alias_analysis == "CONSERVATIVE":
            found = conservative(found)
        self.declare(qualname, found, tags)
        return qualname.partition("::")[2]

    def declare(
        self, qualname: str, schema: Schema, tags: Iterable[Tag] | Tag
    ) -> Operator[..., Any]:
        """Define an operator by a `Schema`, in any namespace.

        Parameters
        ----------
        qualname : str
            The whole name, such as ``"mylib::scale"``. Closing the library removes it.
        schema : Schema
        tags : Tag or iterable of Tag

        Returns
        -------
        Operator

        Raises
        ------
        RegistrationError
            If the name is already defined.

        Examples
        --------
        >>> import customop as co
        >>> with co.Library("doc_declare", "FRAGMENT") as lib:
        ...     lib.declare("doc_declare::scale", co.Schema.parse("(Array x) -> Array"), ())
        <Operator doc_declare::scale(Array x) -> Array>
        """
        scope = self._check_open()
        frame = user_frame()
        with finalized, changing:
            check_undefined(qualname, place_of(frame))
            op = declare(qualname, schema, tags, frame)
            scope.defined.append(op)
        return op

    @overload
    def impl(
        self,
        name: str | Operator[..., Any],
        fn: ShortKernelFn,
        dispatch_key: str | RuleKind = "",
        **options: Unpack[KeysetOptions],
    ) -> None: ...
    @overload
    def impl(
        self,
        name: str | Operator[..., Any],
        fn: KernelFn | Formula,
        dispatch_key: str | RuleKind = "",
        **options: Unpack[KeysetOptions],
    ) -> None: ...
    def impl(
        self,
        name: str | Operator[..., Any],
        fn: Callable[..., Any] | Formula,
        dispatch_key: str | RuleKind = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = True,
    ) -> None:
        """Register a kernel or rule for an operator of the namespace.

        The newest registration counts. The operator need not be defined yet.

        Parameters
        ----------
        name : str or Operator
            The name, with or without the namespace.
        fn : callable or Formula
            The kernel or rule. `fallthrough_kernel` hides earlier registrations.
        dispatch_key : str or RuleKind
            The key to register for; by default the key of the library.
        with_keyset : bool
            Pass `fn` the kernel or rule below it as its first argument: ``below(x)``, or
            ``below.redispatch(x)``.
        allow_override : bool
            Whether `fn` may cover an earlier registration of the same kind.

        Raises
        ------
        RegistrationError
            If `fn` does not fit the operator, the name is in another namespace, or
            `allow_override` is False and `fn` would cover an earlier registration.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> with co.Library("np", "IMPL") as lib:
        ...     lib.impl("sin", lambda below, x: below(x) + 1.0, "CPU", with_keyset=True)
        ...     print(co.ops.np.sin(np.zeros(1)))
        [1.]
        """
        self._check_open()
        check_flag("with_keyset", with_keyset)
        check_flag("allow_override", allow_override)
        is_empty = isinstance(dispatch_key, str) and dispatch_key == ""
        key = self._key if is_empty else dispatch_key
        what = (
            f"impl of '{self.ns}::{name}'"
            if isinstance(name, str)
            else f"{shown(name)}"
        )
        kind = (
            COMPOSITE if isinstance(key, str) and key == "" else kind_of_key(what, key)
        )
        qualname = qualified_in(name, self.ns)
        self.add(qualname, kind, fn, override=allow_override, with_below=with_keyset)

    def add(
        self,
        qualname: str,
        kind: str | RuleKind,
        fn: Any,
        *,
        override: bool,
        with_below: bool = False,
    ) -> None:
        """Register a kernel or rule for an operator of any namespace.

        `impl` does the same by the names of dispatch keys, and checks the namespace.

        Parameters
        ----------
        qualname : str
            The whole name, such as ``"mylib::scale"``. It need not be defined yet.
        kind : str or RuleKind
            The row: the name of a kind of array, ``"fake"``, ``"default"``, or a rule kind.
        fn : callable or Formula
            The kernel or rule.
        override : bool
            Whether `fn` may cover an earlier registration of the same kind.
        with_below : bool
            Pass `fn` the kernel or rule below it as its first argument.

        Raises
        ------
        RegistrationError
            If `fn` does not fit the operator, or covers another one without `override`.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> with co.Library("doc_add", "FRAGMENT") as lib:
        ...     lib.add("np::sin", "cpu", lambda x: x + 1.0, override=True)
        ...     print(co.ops.np.sin(np.zeros(1)))
        [1.]
        """
        scope = self._check_open()
        with finalized, changing:
            new = Registration(qualname, kind, fn, scope, with_below=with_below)
            add_registration(new, override=override)
            scope.names.add(qualname)

    def fallback(
        self, fn: Callable[..., Any], dispatch_key: str | RuleKind = ""
    ) -> None:
        """Register a kernel or rule for all operators that have none of that kind.

        An operator's own kernels and rules, its default kernel and its body come first.

        Parameters
        ----------
        fn : callable
            ``fn(op, *args, **keyword_only)``: the operator, then the arguments of a rule
            of that kind. `fallthrough_kernel` hides an earlier fallback.
        dispatch_key : str or RuleKind
            The key to register for; by default the key of the library.

        Raises
        ------
        RegistrationError
            If the namespace is not ``"_"``, no key is given, or `fn` is not a function.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> with co.Library("_", "IMPL") as lib:
        ...     lib.fallback(lambda op, x: co.fake_like(x), "Meta")
        """
        scope = self._check_open()
        if self.ns != "_":
            raise RegistrationError(
                f"a fallback serves all namespaces, but this library serves '{self.ns}'",
                do='Library("_", "IMPL").fallback(fn, "CPU")',
            )
        is_empty = isinstance(dispatch_key, str) and dispatch_key == ""
        key = self._key if is_empty else dispatch_key
        if isinstance(key, str) and key == "":
            raise RegistrationError(
                "a fallback needs a dispatch key", do='lib.fallback(fn, "CPU")'
            )
        kind = kind_of_key("fallback", key)
        rule_kind(kind).check_given("fallback", fn)
        with finalized, changing:
            rows = fallbacks.get(kind, ())
            fallbacks[kind] = (*rows, Row(_for_each(kind, fn), place(fn), scope))
            tables_changed()

    def _check_open(self) -> Scope:
        if not self._scope.is_open:
            raise RegistrationError(
                f"library '{self.ns}' is closed",
                f"made at {self._scope.place}",
                do=f'make a new one: Library("{self.ns}", "{self.kind}")',
            )
        return self._scope


def _close_later(scope: Scope) -> None:
    """Close from a finalizer, which may run while a registration is under way."""
    changing.run_later(scope.close)


def _for_each(kind: str | RuleKind, fn: Any) -> Any:
    """Return a function that makes the fallback of an operator."""
    if fn is fallthrough_kernel:
        return fn
    accept = rule_kind(kind).accept
    return lambda op: accept(op, partial(fn, op), with_below=False)


def check_library(lib: object) -> None:
    """Raise unless `lib` is a library or None."""
    if lib is not None and not isinstance(lib, Library):
        raise RegistrationError(
            f"lib={shown(lib)} is not a library",
            do='make one: lib = Library("mylib", "FRAGMENT")',
        )


# ---- the registrations of an open library, and the owners of namespaces ----


class Scope:
    """Everything that a library has registered, while it is open."""

    def __init__(self, namespace: str, kind: str, frame: FrameType) -> None:
        self.namespace: str = namespace
        self.kind: str = kind
        self.place: str = place_of(frame)
        self.code: CodeType = frame.f_code
        self.defined: list[Operator[..., Any]] = []
        # Qualified names that it has registered kernels or rules for.
        self.names: set[str] = set()
        self.is_open: bool = True

    def close(self) -> None:
        """Remove all registrations and definitions."""
        with finalized, changing:
            if not self.is_open:
                return
            self.is_open = False
            if owners.get(self.namespace) is self:
                del owners[self.namespace]
            for name in self.names:
                self._leave(name)
            for op in self.defined:
                remove_operator(op)
            self._leave_fallbacks()
            self.defined.clear()
            self.names.clear()

    def _leave(self, qualname: str) -> None:
        forget_registrations(qualname, self)
        op = operators.get(qualname)
        if op is not None:
            op.leave(self)

    def _leave_fallbacks(self) -> None:
        mine = [
            k for k, rows in fallbacks.items() if any(r.owner is self for r in rows)
        ]
        for kind in mine:
            fallbacks[kind] = tuple(r for r in fallbacks[kind] if r.owner is not self)
        if mine:
            tables_changed()


# Namespace -> the open DEF library that owns it.
owners: dict[str, Scope] = {}


def claim(scope: Scope) -> None:
    """Make a DEF library the owner of its namespace, unless another one is."""
    known = owners.get(scope.namespace)
    if (
        known is not None
        and known.place == scope.place
        and known.code is not scope.code
    ):
        # The same line with a new code object: a module or cell is running again.
        known.close()
        known = None
    if known is not None:
        raise RegistrationError(
            f"the namespace '{scope.namespace}' is defined already, at {known.place}",
            f"the second definition is at {scope.place}",
            do=f'Library("{scope.namespace}", "FRAGMENT") adds to it; or close the first',
        )
    owners[scope.namespace] = scope


# ---- checks of the arguments of libraries ----


_ALIAS_ANALYSES = ("", "FROM_SCHEMA", "CONSERVATIVE")
_KINDS = ("DEF", "IMPL", "FRAGMENT")
_OWN_NAMESPACE = "np"


def check_arguments(ns: object, kind: object) -> None:
    """Raise unless a library can have this namespace and kind."""
    if not isinstance(kind, str) or kind not in _KINDS:
        near = did_you_mean(kind.upper(), _KINDS) if isinstance(kind, str) else ""
        raise RegistrationError(
            f"Library: unknown kind {shown(kind)}{near}",
            do=f"use one of {quoted(_KINDS)}",
        )
    if not isinstance(ns, str) or not ns.isidentifier() or not ns.isascii():
        raise RegistrationError(
            f"Library: {shown(ns)} cannot be a namespace",
            do="use ASCII letters, digits and underscores: the name of your package",
        )
    if ns == _OWN_NAMESPACE and kind == "DEF":
        raise RegistrationError(
            f"the namespace '{ns}' belongs to customop",
            do=f'Library("{ns}", "IMPL") registers for its operators',
        )


def check_alias_analysis(ns: str, given: object) -> None:
    """Raise unless a definition can have this argument."""
    if not isinstance(given, str) or given not in _ALIAS_ANALYSES:
        known = _ALIAS_ANALYSES[1:]
        near = did_you_mean(given.upper(), known) if isinstance(given, str) else ""
        raise RegistrationError(
            f"library '{ns}': alias_analysis={shown(given)} is unknown{near}",
            do=f"use one of {quoted(_ALIAS_ANALYSES)}; the schema says which"
            " arrays share memory: Array(a)",
        )


def check_undefined(qualname: str, where: str) -> None:
    """Raise if an operator has this name."""
    known = operators.get(qualname)
    if known is not None:
        raise RegistrationError(
            f"{qualname} is defined already, at {known.definition.place}",
            f"the second definition is at {where}",
            do="give one of them another name, or an overload: name.other(...)",
            op=qualname,
        )


def qualified_in(name: Any, ns: str) -> str:
    """Return the qualified name of an operator in the namespace."""
    qualname = name.qualname if isinstance(name, Operator) else name
    if isinstance(qualname, str) and "::" not in qualname:
        qualname = f"{ns}::{qualname}"
    check_name("impl", qualname)
    if qualname.partition("::")[0] != ns:
        raise RegistrationError(
            f"library '{ns}' cannot register for '{qualname}'",
            do=f'make Library("{qualname.partition("::")[0]}", "IMPL")',
            op=qualname,
        )
    return str(qualname)


# ---- Torch's names of dispatch keys, and the kinds that they mean here ----


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
    """Return the kind that a dispatch key names; letter case does not matter."""
    if isinstance(key, RuleKind) or (isinstance(key, str) and key in known_kinds()):
        return key
    found = _BY_LOWER.get(key.lower()) if isinstance(key, str) else None
    if found is None and isinstance(key, str) and is_known_device(key):
        return key
    if found is None:
        names = [*KEYS, *(k for k in known_kinds() if k.lower() not in _BY_LOWER)]
        lower = {name.lower(): name for name in names}
        close = (
            difflib.get_close_matches(key.lower(), lower)
            if isinstance(key, str)
            else ()
        )
        near = f" (did you mean '{lower[close[0]]}'?)" if close else ""
        raise RegistrationError(
            f"{what}: unknown dispatch key {shown(key)}{near}",
            f"known: {quoted(names)}",
            do="use a known one, a RuleKind, or register_array_type first",
        )
    return found
