"""All operators by name: how they are found, defined and removed."""

from __future__ import annotations

import importlib
import inspect
import keyword
import os
import re
import sys
import weakref
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Final

from customop.arrays.kinds import DEFAULT
from customop.arrays.numpy_functions import load_all, load_namespace, load_operator
from customop.config import config
from customop.core.codegen import RESERVED
from customop.core.collector import grow
from customop.core.operator import Operator
from customop.core.registration import Registration, register, table_kernel
from customop.core.rule_kind import COMPOSITE, Definition, Row, same_place
from customop.core.table import changing, finalized
from customop.errors import (
    MissingRuleError,
    RegistrationError,
    SchemaError,
    did_you_mean,
    items_of,
    shown,
    warn_caller,
)
from customop.later import later
from customop.plugins import OPERATORS, load
from customop.schema.schema import Schema
from customop.schema.tags import Tag, apply_tags
from customop.schema.types import KEYWORD_ONLY, MISSING, POSITIONAL, POSITIONAL_ONLY

# For names that are defined again.
redefine: ModuleType = later(import_module, "customop.core.redefine")
# For operators that are pickled.
recipes: ModuleType = later(import_module, "customop.core.recipes")

# ---- all operators, and how they are found ----


# Without those of modules that are imported on demand, as the next one: look names up
# with the functions below.
operators: dict[str, Operator[..., Any]] = {}
# Namespace -> name -> overload -> operator: the same ones, as `ops` finds them.
namespaces: dict[str, dict[str, dict[str, Operator[..., Any]]]] = {}
# By name, in order: they enter the table of every definition of that name.
registrations: dict[str, list[Registration]] = {}


def find_operator(qualname: str, module: str = "") -> Operator[..., Any]:
    """Return the operator of a name; import the module that defines it if needed.

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
    """Return the operator of a name or None; import the modules of its namespace if needed."""
    if qualname not in operators:
        load_namespace(qualname.partition("::")[0])
    return operators.get(qualname)


def all_operators() -> dict[str, Operator[..., Any]]:
    """Return all operators by name; import all modules that are imported on demand."""
    load_all()
    return operators


def in_namespace(namespace: str) -> dict[str, dict[str, Operator[..., Any]]]:
    """Return the operators of a namespace by name and overload."""
    load_namespace(namespace)
    return namespaces.get(namespace, {})


def operators_of(
    namespace: str, name: str = ""
) -> dict[str, dict[str, Operator[..., Any]]]:
    """Return the operators of a namespace; load its plug-in if it lacks the name."""
    known = in_namespace(namespace)
    if not known or (name and name not in known and not name.startswith("__")):
        load_namespace_plugin(namespace)
        known = in_namespace(namespace)
    return known


def load_namespace_plugin(namespace: str) -> bool:
    """Load the plug-in for a namespace; return whether the namespace has operators."""
    return load(OPERATORS, namespace, lambda name: bool(namespaces.get(name)))


def unknown(qualname: str, known: Iterable[str], module: str = "") -> MissingRuleError:
    """Build the error for an unknown name, which offers similar ones."""
    return MissingRuleError(
        f"no operator is named '{qualname}'{did_you_mean(qualname, known)}",
        do=f"import {module or 'the module that defines it'} first",
        op=qualname,
    )


class AbsentOperator:
    """An operator that this process does not have, or that is another one here.

    An error while a task is read would end a worker process without a word. So this
    takes the place of the operator, and says at its first use what is missing.

    Attributes
    ----------
    qualname : str
    recipe : Recipe or None
        What was sent of the operator; None for its name alone, from the main script.
    """

    __slots__ = ("qualname", "recipe")

    def __init__(self, qualname: str, recipe: Any = None) -> None:
        self.qualname: str = qualname
        self.recipe: Any = recipe

    def __reduce__(self) -> tuple[Any, ...]:
        if self.recipe is None:
            return (find_operator, (self.qualname, "__main__"))
        return (recipes.received, (self.recipe,))

    def __repr__(self) -> str:
        return f"<AbsentOperator {self.qualname}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the operator if it is here by now; else raise."""
        return self._found()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._found(), name)

    def _found(self) -> Any:
        if self.recipe is None:
            raise self.error()
        return self.recipe.find()

    def error(self, why: str = "") -> MissingRuleError:
        """Build the error for an operator of which only the name was sent, and why."""
        return MissingRuleError(
            f"{self.qualname} was defined in the main script, which this process does"
            " not run",
            *filter(None, (why,)),
            f"in process {os.getpid()}",
            do="define the operator in a module, which every process can import",
            op=self.qualname,
        )


# ---- defining and removing operators ----


# Operators of closed libraries that are still referenced: a new definition reuses them.
_retired: weakref.WeakValueDictionary[str, Operator[..., Any]] = (
    weakref.WeakValueDictionary()
)


def define_operator(
    definition: Definition, kinds: Iterable[str] = ()
) -> Operator[..., Any]:
    """Make the operator of a definition, or give an old one its new definition.

    A cell run again and a module loaded again replace the operator in place, so that
    every reference to it goes on working. Another definition can take the name only
    when nobody holds the operator any more, and never from a second file. The function
    of the definition becomes the kernel of `kinds`; registrations of open libraries come
    on top.
    """
    name = definition.qualname
    schema = apply_tags(name, definition.schema, definition.tags)
    if schema is not definition.schema:
        definition = definition.replaced(schema=schema)
    load_namespace(name.partition("::")[0], asked_by=definition.module)
    with finalized, changing:
        if brought and operators.get(name) in brought:
            del operators[name]
        # Nothing here may hold the old operator while its holders are counted.
        is_second = name in operators and _is_second(operators[name], definition)
        if is_second and redefine.is_held(operators, name):
            raise _second(operators[name].definition, definition)
        waiting = registrations.get(name, ())
        for registration in waiting:
            registration.check(definition)
        op = None if is_second else operators.get(name) or _retired.pop(name, None)
        if op is None:
            op = new_operator(definition)
        else:
            op.define(definition)
        for kind in kinds:
            kernel = table_kernel(op, definition.fn)
            op.enter(kind, Row(kernel, definition.place))
        for registration in tuple(waiting):
            registration.enter(op)
        forget_registrations(name, None)
        _name(op)
    return op


def _is_second(op: Operator[..., Any], new: Definition) -> bool:
    """Return whether this is a second operator with a name already taken."""
    old = op.definition
    old_file, new_file = (d.place.rpartition(":")[0] for d in (old, new))
    if old_file != new_file and not same_place(old.place, new.place):
        raise taken(new.qualname, old.place, new.place)
    if redefine.same_definition(old, new):
        return False
    if not redefine.runs_again(old, new):
        return True
    if redefine.is_doubtful(old, new):
        warn_caller(
            f"{new.qualname} was defined in another cell, at {old.place}: the operator"
            " made there runs this function too from now on. If you mean two operators,"
            " give each its own name"
        )
    return False


def _second(old: Definition, new: Definition) -> RegistrationError:
    """Build the error for two operators with one name that are both in use."""
    other = redefine.difference(old.fn, new.fn)
    if not other:
        return taken(new.qualname, old.place, new.place)
    name = other.split("'")[1]
    return new.error(
        RegistrationError,
        f" is defined already, with another value of '{name}', and still in use",
        f"both definitions are at {new.place}: {other}",
        do=f'give each its own name, such as custom_op(f"{new.qualname}_{{number}}", ...),'
        f" or make '{name}' a parameter",
        parameter=None,
    )


class _Found(Operator[..., Any]):
    """The class of an operator that is found by its name, until its first call."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _reduce(self)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # dask names the result of a call after it.
        return (self.qualname, recipes.token_of(self))


def new_operator(definition: Definition) -> Operator[..., Any]:
    """Make an operator; it is not found by its name yet."""
    grow()
    return _Found(definition)


# The pickler of dask and others, and Ray's copy of it.
PICKLERS = ("cloudpickle", "ray.cloudpickle")


def _reduce(op: Operator[..., Any]) -> tuple[Any, ...]:
    """Pickle an operator as its name and the module that defines it.

    cloudpickle gets more, so that the operator travels between machines.
    """
    if any(name in sys.modules for name in PICKLERS):
        found: tuple[Any, ...] = recipes.reduce_operator(op)
        return found
    return (find_operator, (op.qualname, op.definition.module))


def adopt(op: Operator[..., Any]) -> None:
    """Let a name find an operator that came from another process, if none is defined."""
    with finalized, changing:
        known = operators.get(op.qualname)
        brought.add(op)
        if known is None or known in brought:
            _name(op)


# Operators that came from other processes; they give way to definitions.
brought: weakref.WeakSet[Operator[..., Any]] = weakref.WeakSet()


def _name(op: Operator[..., Any]) -> None:
    operators[op.qualname] = op
    by_name = namespaces.setdefault(op.namespace, {})
    by_name.setdefault(op.name, {})[op.overload] = op


def remove_operator(op: Operator[..., Any]) -> None:
    """Free the name of an operator; later calls of the operator raise."""
    with finalized, changing:
        if operators.get(op.qualname) is not op:
            return
        del operators[op.qualname]
        by_name = namespaces[op.namespace]
        del by_name[op.name][op.overload]
        if not by_name[op.name]:
            del by_name[op.name]
        if not by_name:
            del namespaces[op.namespace]
        op.close()
        _retired[op.qualname] = op


def tables_changed() -> None:
    """Forget what was worked out for all operators, after a change that concerns all."""
    with finalized, changing:
        for op in list(operators.values()):
            op.changed(is_kernel=True)


def taken(qualname: str, first: str, second: str) -> RegistrationError:
    """Build the error for two operators with one name, which shows both places."""
    return RegistrationError(
        f"{qualname} is defined already, at {first}",
        f"the second definition is at {second}",
        do="give one of them another name",
        op=qualname,
    )


# ---- registrations by name, also for operators that are not defined yet ----


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
    _known(name)  # imports what defines it, before the lock is taken
    with finalized, changing:
        op = operators.get(name)
        if op is not None:
            register(op, registration, override=override)
        else:
            registration.kind.check_given(name, registration.fn)
        if op is None or registration.owner is not None:
            registrations.setdefault(name, []).append(registration)


def forget_registrations(qualname: str, owner: object) -> None:
    """Drop what an owner registered for future definitions of a name."""
    left = [r for r in registrations.get(qualname, ()) if r.owner is not owner]
    if left:
        registrations[qualname] = left
    else:
        registrations.pop(qualname, None)


# ---- operators that are defined by a schema alone ----


class Declared:
    """The function of an operator that was defined by a schema alone."""

    # For comparisons of definitions, in `redefine`.
    is_declared: ClassVar[bool] = True

    def __init__(self, qualname: str, schema: Schema) -> None:
        self._qualname = qualname
        self.__name__: str = qualname.partition("::")[2].partition(".")[0]
        self.__qualname__ = self.__name__
        self.__doc__ = schema.show(qualname)
        self.__signature__: inspect.Signature = _signature(schema)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the default kernel or the body; called while a kernel is disabled."""
        op = operators[self._qualname]
        row = op.rows.get(DEFAULT) or op.rows.get(COMPOSITE)
        if row is None:
            raise MissingRuleError(
                f"{op.qualname} has no default kernel: it was defined by its schema alone",
                op.schema.show(op.qualname),
                f"at {op.definition.place}",
                do=f'impl("{op.qualname}", "default", fn)',
                op=op.qualname,
            )
        return row.fn(*args, **kwargs)


_PARAMETER_KINDS = {
    POSITIONAL_ONLY: inspect.Parameter.POSITIONAL_ONLY,
    POSITIONAL: inspect.Parameter.POSITIONAL_OR_KEYWORD,
    KEYWORD_ONLY: inspect.Parameter.KEYWORD_ONLY,
}


def _signature(schema: Schema) -> inspect.Signature:
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(
                p.name,
                _PARAMETER_KINDS[p.kind],
                default=empty if p.default is MISSING else p.default,
            )
            for p in schema.parameters
        ]
    )


# ---- checks of definitions ----


_NAME = later(re.compile, r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)


def check_names(qualname: str, schema: Schema) -> None:
    """Raise unless the generated call can be written with these names."""
    names = [qualname.partition("::")[2].partition(".")[0]]
    names += [p.name for p in schema.parameters]
    for name in names:
        taken = name in RESERVED or name == "__debug__" or keyword.iskeyword(name)
        if taken or not name.isidentifier():
            raise SchemaError(
                f"{qualname}: '{name}' cannot be a name in a call",
                schema.show(qualname),
                do="use another name",
            )


def check_name(what: str, name: object) -> None:
    """Raise unless `name` can be the qualified name of an operator."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return
    if isinstance(name, str) and "::" not in name:
        raise RegistrationError(
            f"{what}: the name {shown(name)} has no namespace",
            do=f'write "mylib::{name}", with the name of your package',
        )
    raise RegistrationError(
        f"{what}: {shown(name)} cannot be the name of an operator",
        do='write "namespace::name", or "namespace::name.overload", in ASCII letters,'
        " digits and underscores",
    )


_NO_TAGS: Final[frozenset[Tag]] = frozenset()


def checked_tags(name: str, tags: Iterable[Tag] | Tag) -> frozenset[Tag]:
    """Return the tags of an operator as a set; raise for anything else."""
    listed = items_of(tags)
    found: list[Any] = [tags] if listed is None else listed
    for tag in found:
        if not isinstance(tag, Tag):
            names = [str(t) for t in Tag]
            near = did_you_mean(f"Tag.{tag}", names) if isinstance(tag, str) else ""
            raise RegistrationError(
                f"{name}: {shown(tag)} is not a tag{near}",
                do=f"use one of {', '.join(str(t) for t in Tag)}",
                op=name,
            )
    return frozenset(found) if found else _NO_TAGS


config.on_change(tables_changed)
