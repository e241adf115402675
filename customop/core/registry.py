"""Registration of kernels and rules, and all operators by name.

Such a function takes its results as its last arguments, and may have loops for some
dtypes alone, so the kernel allocates the results.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.numpy_functions import load_all, load_namespace, load_operator
from customop.core.rule_kind import (
    Definition,
    Row,
    RuleKind,
    fallthrough_kernel,
    rule_kind,
)
from customop.core.table import RuleTable, changing
from customop.errors import (
    ArgumentError,
    MissingRuleError,
    RegistrationError,
    check_flag,
    did_you_mean,
    quoted,
)
from customop.later import later
from customop.plugins import OPERATORS, load

if TYPE_CHECKING:
    from customop.core.operator import Operator

njit_kernels: ModuleType = later(import_module, "customop.core.njit_kernels")


# ---- gufuncs ----
# Functions of `numba.guvectorize` as kernels, which is known from their attributes.


def as_kernel(fn: Any) -> Any:
    """The kernel that a gufunc is; another function as it is."""
    if not hasattr(fn, "gufunc_builder"):
        return fn
    if fn.gufunc_builder.writable_args:
        raise RegistrationError(
            f"{fn.__name__} is a function of guvectorize that writes its inputs",
            do="leave writable_args out, and give what it writes as a result",
        )
    return GufuncKernel(fn)


class GufuncKernel:
    """A kernel of a gufunc, which allocates the results.

    Attributes
    ----------
    gufunc : numba GUFunc
    schema : str
        The schema of an operator with this kernel: names and shapes of the gufunc.
    """

    def __init__(self, gufunc: Any) -> None:
        self.gufunc: Any = gufunc
        self.__name__: str = gufunc.__name__
        self.__doc__ = gufunc.__doc__
        self.__wrapped__: Any = gufunc.gufunc_builder.py_func
        self._inputs, self._outputs = map(_cores, gufunc.signature.split("->"))
        self._names = [*inspect.signature(self.__wrapped__).parameters][
            : len(self._inputs)
        ]
        pairs = zip(self._names, self._inputs, strict=True)
        typed = ", ".join([f"{_type(core)} {name}" for name, core in pairs])
        results = ", ".join(map(_type, self._outputs))
        is_single = len(self._outputs) == 1
        self.schema: str = f"({typed}) -> {results if is_single else f'({results})'}"

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(n, kind) for n in self._names])

    def __repr__(self) -> str:
        return f"<kernel of {self.__name__}>"

    def __call__(self, *arrays: Any) -> Any:
        """Compute the results."""
        loops: list[Any] = []
        sizes: dict[str, int] = {}
        for x, core in zip(arrays, self._inputs, strict=True):
            loops.append(x.shape[: x.ndim - len(core)])
            sizes.update(zip(core, x.shape[x.ndim - len(core) :], strict=True))
        loop = np.broadcast_shapes(*loops)
        dtypes = self.dtypes(arrays)
        shapes = [(*loop, *[sizes[axis] for axis in core]) for core in self._outputs]
        out = [np.empty(n, t) for n, t in zip(shapes, dtypes, strict=True)]
        self.gufunc(*arrays, *out)
        return out[0] if len(out) == 1 else tuple(out)

    @property
    def has_loops(self) -> bool:
        """Whether the dtypes are fixed; numba compiles for all dtypes otherwise."""
        return not self.gufunc.is_dynamic

    def dtypes(self, arrays: Sequence[Any]) -> list[np.dtype[Any]]:
        """The dtypes of the results: those of the first loop that takes the arrays."""
        given = [np.dtype(x.dtype) for x in arrays]
        if not self.has_loops:
            return [np.result_type(*given)] * len(self._outputs)
        for loop in self.gufunc.types:
            inputs, outputs = loop.split("->")
            if all(map(np.can_cast, given, inputs)):
                return [np.dtype(letter) for letter in outputs]
        raise ArgumentError(
            f"{self.__name__} has no loop for {quoted(map(str, given))}; it has"
            f" {', '.join(self.gufunc.types)}",
            do="convert the arguments: x.astype(np.float64)",
        )

    def fake(self, derived: Callable[..., Any]) -> Callable[..., Any]:
        """The fake kernel, of one that knows the shapes."""

        def kernel(*arrays: Any) -> Any:
            found = derived(*arrays)
            results = (found,) if len(self._outputs) == 1 else found
            pairs = zip(results, self.dtypes(arrays), strict=True)
            made = [FakeArray(y.shape, dtype, device=y.device) for y, dtype in pairs]
            return made[0] if len(made) == 1 else tuple(made)

        kernel.__signature__ = self.__signature__  # type: ignore[attr-defined]  # as inspect reads
        return kernel


def _cores(text: str) -> list[list[str]]:
    """The axes in each bracket of one side of a signature."""
    return [
        [axis.strip() for axis in part.split(",") if axis.strip()]
        for part in re.findall(r"\(([^)]*)\)", text)
    ]


def _type(core: Sequence[str]) -> str:
    return f"Array[{','.join(['...', *core])}]"


# ---- registration: the one way in which kernels and rules enter tables ----


class Registration:
    """A kernel or rule for the operator of a name, which may not be defined yet.

    Attributes
    ----------
    qualname : str
        Name of the operator.
    key : RuleKind or str
        A kind of rule, or the name of a kind of array.
    fn : object
        What is registered, as its kind takes it.
    owner : object
        Whose closing takes it back; None where it stays.
    with_below : bool
        Whether `fn` takes the function below as its first argument.
    kind : RuleKind
        The kind of rule.
    place : str
        File and line that messages name.
    """

    __slots__ = ("fn", "key", "kind", "owner", "place", "qualname", "with_below")

    def __init__(
        self,
        qualname: str,
        key: RuleKind | str,
        fn: Any,
        owner: object = None,
        *,
        with_below: bool = False,
    ) -> None:
        self.qualname: str = qualname
        self.key: RuleKind | str = key
        self.fn: Any = as_kernel(fn) if isinstance(key, str) else fn
        self.owner: object = owner
        self.with_below: bool = with_below
        self.kind: RuleKind = rule_kind(key)
        self.place: str = self.kind.place_of(fn)

    def check(self, definition: Definition) -> None:
        """Raise unless it fits a definition of the operator."""
        fn = self.fn
        if fn is fallthrough_kernel:
            return
        takes_below = self.with_below and callable(fn)
        self.kind.check(definition, partial(fn, None) if takes_below else fn)

    def row(self, op: RuleTable) -> Row:
        """The row that it makes in the table of an operator."""
        fn = table_kernel(op, self.fn) if isinstance(self.key, str) else self.fn
        rule = self.kind.accept(op, fn, with_below=self.with_below)
        return Row(rule, self.place, self.owner)

    def enter(self, op: RuleTable, *, override: bool = True) -> None:
        """Put it on top of the operator's rows of its kind."""
        row = self.row(op)
        op.enter(
            self.key,
            row,
            override=override,
            keeps_below=self.with_below or row.fn is fallthrough_kernel,
        )


def table_kernel(op: RuleTable, fn: Any) -> Any:
    """A kernel as the table holds it."""
    # A function of njit; numba is not imported to ask for its class.
    if hasattr(fn, "typeof_pyval") and hasattr(fn, "targetoptions"):
        return njit_kernels.in_native_order(op, fn)
    return fn


def register(op: RuleTable, registration: Registration, *, override: bool) -> None:
    """Check a registration against an operator, and put it into the table."""
    check_flag("override", override)
    with changing:
        registration.kind.check_given(op.qualname, registration.fn)
        registration.check(op.definition)
        registration.enter(op, override=override)


def chained(answer: object, fn: Any, enter: Callable[[Any], object]) -> Any:
    """Enter `fn` and return the answer; without `fn` return a decorator.

    `@op.register_fake` without brackets looks like a call with a function, so the
    decorated name becomes the operator.
    """
    if fn is not None:
        enter(fn)
        return answer

    def decorator(given: Any) -> Any:
        enter(given)
        return given

    return decorator


# ---- all operators by name, and what is registered for names ----


# Without those of modules that are imported on demand, as the next one: look names up
# with the functions below.
operators: dict[str, Operator[..., Any]] = {}
# Namespace -> name -> overload -> operator: the same ones, as `ops` finds them.
namespaces: dict[str, dict[str, dict[str, Operator[..., Any]]]] = {}
# By name, in order: they enter the table of every definition of that name.
registrations: dict[str, list[Registration]] = {}


class AbsentOperator:
    """An operator of the main script in a process that does not run the script.

    An error while a task is read would end a worker process without a word. So this
    takes the place of the operator, and says at its first use what is missing.
    """

    __slots__ = ("_qualname",)

    def __init__(self, qualname: str) -> None:
        self._qualname = qualname

    def __reduce__(self) -> tuple[Any, ...]:
        return (find_operator, (self._qualname, "__main__"))

    def __repr__(self) -> str:
        return f"<AbsentOperator {self._qualname}>"

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise: there is no operator."""
        raise self._error()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._error()

    def _error(self) -> MissingRuleError:
        return MissingRuleError(
            f"{self._qualname} was defined in the main script, which this process does"
            " not run",
            f"in process {os.getpid()}",
            do="define the operator in a module, which every process can import",
            op=self._qualname,
        )


def find_operator(qualname: str, module: str = "") -> Operator[..., Any]:
    """The operator of a name; imports the module that defines it where needed.

    Raises
    ------
    MissingRuleError
        If no operator has that name.
    """
    load_operator(qualname)
    if qualname not in operators and module and module not in sys.modules:
        importlib.import_module(module)
    found = operators.get(qualname) or _known(qualname)
    if found is None and load_namespace_plugin(qualname.partition("::")[0]):
        found = operators.get(qualname)
    if found is None and module == "__main__":
        absent: Any = AbsentOperator(qualname)
        return absent  # type: ignore[no-any-return]  # it raises at its first use
    if found is None:
        raise unknown(qualname, operators, module)
    return found


def _known(qualname: str) -> Operator[..., Any] | None:
    """The operator of a name; imports the modules of its namespace where needed."""
    load_namespace(qualname.partition("::")[0])
    return operators.get(qualname)


def all_operators() -> dict[str, Operator[..., Any]]:
    """All operators by name; imports what is left to import on demand."""
    load_all()
    return operators


def in_namespace(namespace: str) -> dict[str, dict[str, Operator[..., Any]]]:
    """The operators of a namespace, as `namespaces` has them."""
    load_namespace(namespace)
    return namespaces.get(namespace, {})


def operators_of(
    namespace: str, name: str = ""
) -> dict[str, dict[str, Operator[..., Any]]]:
    """As `in_namespace`; loads the plug-in of the namespace if it lacks the name."""
    known = in_namespace(namespace)
    if not known or (name and name not in known and not name.startswith("__")):
        load_namespace_plugin(namespace)
        known = in_namespace(namespace)
    return known


def load_namespace_plugin(namespace: str) -> bool:
    """Load the plug-in for a namespace; return whether the namespace has operators."""
    return load(OPERATORS, namespace, lambda name: bool(namespaces.get(name)))


def unknown(qualname: str, known: Iterable[str], module: str = "") -> MissingRuleError:
    """The error for a name that no operator has; near ones are offered."""
    return MissingRuleError(
        f"no operator is named '{qualname}'{did_you_mean(qualname, known)}",
        do=f"import {module or 'the module that defines it'} first",
        op=qualname,
    )


def check_registration(registration: Registration, *, override: bool) -> None:
    """Raise where `add_registration` would, and change nothing."""
    op = _known(registration.qualname)
    registration.kind.check_given(registration.qualname, registration.fn)
    if op is not None:
        registration.check(op.definition)
        if not override:
            registration.kind.check_new(op, registration.row(op))


def add_registration(registration: Registration, *, override: bool = True) -> None:
    """Register for a name: at once, and for every definition of it to come."""
    name = registration.qualname
    load_namespace(name.partition("::")[0])  # before the lock is taken
    with changing:
        op = operators.get(name)
        if op is not None:
            register(op, registration, override=override)
        else:
            registration.kind.check_given(name, registration.fn)
        if op is None or registration.owner is not None:
            registrations.setdefault(name, []).append(registration)


def forget_registrations(qualname: str, owner: object) -> None:
    """Drop what an owner has registered for the definitions of a name to come."""
    left = [r for r in registrations.get(qualname, ()) if r.owner is not owner]
    if left:
        registrations[qualname] = left
    else:
        registrations.pop(qualname, None)


def taken(qualname: str, first: str, second: str) -> RegistrationError:
    """The error for two operators of one name, by the places of their definitions."""
    return RegistrationError(
        f"{qualname} is defined already, at {first}",
        f"the second definition is at {second}",
        do="give one of them another name",
        op=qualname,
    )
