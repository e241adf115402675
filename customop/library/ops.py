"""Operators by attribute: `ops.namespace.name.overload`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import repeat
from types import ModuleType
from typing import Any, NoReturn

from customop.arrays.kinds import is_array
from customop.arrays.nested import abbreviated
from customop.core.codegen import without_signature
from customop.core.operator import Operator
from customop.core.registry import (
    all_operators,
    in_namespace,
    namespaces,
    operators_of,
)
from customop.errors import (
    ArgumentError,
    RegistrationError,
    ShapeError,
    UnknownNameError,
    did_you_mean,
    quoted,
)
from customop.later import later
from customop.plugins import OPERATORS, plugins_of
from customop.schema.coerce import ARGUMENTS, exact_class
from customop.schema.types import ARRAY, MISSING, Base, holds_arrays

explain: ModuleType = later(import_module, "customop.core.explain")


class Namespaces:
    """All operators, by namespace and name.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.ops.np.sin(np.zeros(2))
    array([0., 0.])
    >>> "sin" in dir(co.ops.np)
    True
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> OperatorNamespace:
        if not operators_of(name):
            raise _unknown("namespace", f"ops.{name}", name, namespaces)
        return OperatorNamespace(name)

    def __dir__(self) -> list[str]:
        all_operators()
        return [*dict.fromkeys([*namespaces, *plugins_of(OPERATORS)])]

    def __repr__(self) -> str:
        return "ops"


class OperatorNamespace:
    """The operators of one namespace."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> OperatorPacket:
        known = operators_of(self._name, name)
        if name not in known:
            raise unknown_operator(f"{self._name}::{name}", known)
        return OperatorPacket(self._name, name)

    def __dir__(self) -> list[str]:
        return [*in_namespace(self._name)]

    def __repr__(self) -> str:
        return f"ops.{self._name}"


class OperatorPacket:
    """All overloads of one name.

    A call uses the first overload, in the order of definition, that fits the arguments
    without conversion. If there is none, it uses the first one that fits after numbers
    are converted. Overloads are attributes; `.default` is the operator without an
    overload name.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.ops.np.sin
    <OperatorPacket np::sin: default>
    >>> co.ops.np.sin.default
    <Operator np::sin(Array x) -> Array>
    """

    __slots__ = ("_name", "_namespace")

    def __init__(self, namespace: str, name: str) -> None:
        self._namespace = namespace
        self._name = name

    @property
    def qualname(self) -> str:
        """``"namespace::name"``."""
        return f"{self._namespace}::{self._name}"

    def _operators(self) -> dict[str, Operator[..., Any]]:
        found = in_namespace(self._namespace).get(self._name, {})
        return {overload or "default": op for overload, op in found.items()}

    def overloads(self) -> list[str]:
        """Return the names of the overloads, in the order of definition.

        Returns
        -------
        list of str

        Examples
        --------
        >>> import customop as co
        >>> with co.Library("doc_overloads", "DEF") as lib:
        ...     names = lib.define("f(Array x) -> Array"), lib.define("f.int(int n) -> int")
        ...     co.ops.doc_overloads.f.overloads()
        ['default', 'int']
        """
        return [*self._operators()]

    def resolve(self, /, *args: Any, **kwargs: Any) -> Operator[..., Any]:
        """Return the overload that a call with these arguments uses.

        Parameters
        ----------
        *args, **kwargs : object
            The arguments of the call.

        Returns
        -------
        Operator

        Raises
        ------
        ArgumentError
            If no overload fits; the message says why for each of them.
        UnknownNameError
            If the operator has been removed.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> co.ops.np.sin.resolve(np.zeros(2))
        <Operator np::sin(Array x) -> Array>
        """
        found = in_namespace(self._namespace).get(self._name, {})
        candidates = [*found.values()]
        if len(candidates) == 1:
            return candidates[0]
        fits = [False] if kwargs else map(_fits, candidates, repeat(args))
        for op, fit in zip(candidates, fits, strict=False):
            if fit:
                return op
            if fit is None:
                break
        return self._resolve(candidates, args, kwargs)

    def _resolve(
        self,
        candidates: Sequence[Operator[..., Any]],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Operator[..., Any]:
        """Find the overload by binding the arguments to each one."""
        converted = None
        reasons = []
        for op in candidates:
            values, reason = _bound(op, args, kwargs)
            reasons.append(f"{op.schema.show(op.qualname)}: {reason}")
            if values is not None and _is_exact(op, values, args, kwargs):
                return op
            if values is not None and converted is None:
                converted = op
        if converted is None:
            raise self._no_fit(reasons, args, kwargs)
        return converted

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the overload that fits the arguments."""
        return self.resolve(*args, **kwargs)(*args, **kwargs)

    def _no_fit(
        self, reasons: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Exception:
        if not reasons:
            return self._gone()
        given = [_shown(v) for v in args]
        given += [f"{name}={_shown(v)}" for name, v in kwargs.items()]
        return ArgumentError(
            f"no overload of {self.qualname} fits ({', '.join(given)})",
            *reasons,
            do=f"change the arguments, or call one: ops.{self._namespace}.{self._name}"
            f".{self.overloads()[0]}(...)",
            op=self.qualname,
        )

    def _gone(self) -> Exception:
        return unknown_operator(self.qualname, in_namespace(self._namespace))

    def __getattr__(self, name: str) -> Operator[..., Any]:
        known = self._operators()
        if not known:
            raise self._gone()
        if name not in known:
            raise unknown_overload(f"{self.qualname}.{name}", known)
        return known[name]

    def __dir__(self) -> list[str]:
        return [*self._operators(), "overloads", "qualname", "resolve"]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OperatorPacket):
            return NotImplemented
        return self.qualname == other.qualname

    def __hash__(self) -> int:
        return hash(self.qualname)

    def __reduce__(self) -> tuple[Any, ...]:
        return (OperatorPacket, (self._namespace, self._name))

    def __setattr__(self, name: str, value: object) -> None:
        if name not in OperatorPacket.__slots__:
            self._refuse(name)
        object.__setattr__(self, name, value)

    def _refuse(self, name: str) -> NoReturn:
        raise ArgumentError(
            f"{self.qualname}.{name} cannot be set",
            do=f'define it: custom_op("{self.qualname}.{name}", ...)',
            op=self.qualname,
        )

    def __repr__(self) -> str:
        return f"<OperatorPacket {self.qualname}: {', '.join(self.overloads())}>"

    def _repr_html_(self) -> str:
        return str(explain.operator_html(*self._operators().values()))


def check_reachable(qualname: str) -> None:
    """Raise for a name that `ops` has for something else, such as ``__init__``."""
    namespace, _, rest = qualname.partition("::")
    name, _, overload = rest.partition(".")
    for holder, part in (
        (Namespaces, namespace),
        (OperatorNamespace, name),
        (OperatorPacket, overload),
    ):
        if part and (hasattr(holder, part) or part == overload == "default"):
            raise RegistrationError(
                f"{qualname}: ops could not find it, since every {_WORDS[holder]} has an"
                f" attribute '{part}'",
                do="use another name",
                op=qualname,
            )


_WORDS = {
    Namespaces: "list of namespaces",
    OperatorNamespace: "namespace",
    OperatorPacket: "operator",
}


def _fits(op: Operator[..., Any], args: Sequence[Any]) -> bool | None:
    """Return whether positional arguments fit by their classes; None if that is not known.

    This takes a tenth of the time of `_bound` and decides most calls.
    """
    positional = op.schema.positional
    rest = (*positional[len(args) :], *op.schema.keyword_only)
    if len(args) > len(positional) or any(p.default is MISSING for p in rest):
        return False
    for p, value in zip(positional, args, strict=False):
        declared = p.type
        if declared == ARRAY:
            if not is_array(value):
                return False
        elif isinstance(declared, Base) and declared.name in _BY_CLASS:
            if type(value) is not exact_class(declared):
                return False
        else:
            return None
    return True


# Schema types for which the class of a value decides.
_BY_CLASS = ("int", "float", "bool", "complex", "str")


def _bound(
    op: Operator[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, str]:
    """Return the values of all parameters, or None and why the arguments do not fit."""
    try:
        values = op.bind(*args, **kwargs)
    except (ArgumentError, ShapeError) as error:
        return None, error.what.removeprefix(f"{op.qualname}: ")
    except TypeError as error:
        return None, without_signature(op.call, error)
    for p, value in zip(op.schema.parameters, values, strict=True):
        reason = ARGUMENTS.fault(value, p.type) if holds_arrays(p.type) else ""
        if reason:
            return None, f"argument '{p.name}' {reason}"
    return values, ""


def _is_exact(
    op: Operator[..., Any],
    values: Sequence[Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> bool:
    """Return whether no argument was converted."""
    pairs = [*zip(args, values, strict=False)]
    pairs += [(given, values[op.schema.index(name)]) for name, given in kwargs.items()]
    return all(type(given) is type(value) for given, value in pairs)


def _shown(value: Any) -> str:
    return abbreviated(value) if is_array(value) else repr(value)


def unknown_operator(qualname: str, known: Iterable[str]) -> UnknownNameError:
    """Build the error for a name that no operator of its namespace has."""
    namespace, _, name = qualname.partition("::")
    return _unknown("operator", f"ops.{namespace}.{name}", name, known)


def unknown_overload(qualname: str, names: Iterable[str]) -> UnknownNameError:
    """Return the error for an overload that does not exist, where others do."""
    path, _, name = qualname.replace("::", ".").rpartition(".")
    return _unknown("overload", f"ops.{path}.{name}", name, names)


def _unknown(what: str, path: str, name: str, known: Any) -> UnknownNameError:
    near = did_you_mean(name, known)
    listed = []
    if known and not near:
        more = ", ..." if len(known) > 8 else ""
        listed.append(f"there are {quoted(sorted(known)[:8])}{more}")
    return UnknownNameError(
        f"{path}: there is no such {what}{near}",
        *listed,
        do="import the module that defines it first",
    )


ops: Namespaces = Namespaces()
