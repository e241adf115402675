"""Operators that travel: what is sent of one, and how another process finds or makes it.

Plain pickle sends the name of an operator. cloudpickle, which engines such as dask use
between machines, sends a recipe:

- for an operator of a module its name, and what proves that both sides mean the same one:
  the schema, and a digest of each kernel and rule that runs there;
- for an operator of a script, a notebook or a function all of it, as cloudpickle's bytes.
  These bring the operators along that its kernels and rules call, itself among them.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.kinds import CPU, DEFAULT, FAKE
from customop.core.builtin_kinds import (
    ARRAY_CLASS,
    AUTOCAST,
    AUTOGRAD,
    JVP,
    VMAP,
    Formula,
    GradFunction,
)
from customop.core.dispatch import find_kernel
from customop.core.operator import Operator
from customop.core.redefine import contents
from customop.core.registry import (
    AbsentOperator,
    Declared,
    adopt,
    brought,
    find_operator,
    new_operator,
    operators,
)
from customop.core.rule_kind import COMPOSITE, Definition, Row, RuleKind
from customop.core.table import RuleTable
from customop.errors import CustomOpError, MissingRuleError, RegistrationError
from customop.schema.schema import Schema
from customop.schema.tags import Tag

# ---- what is sent of an operator ----


class Recipe(NamedTuple):
    """What other processes get of an operator.

    Attributes
    ----------
    qualname, module, schema : str
        Its name, the module that defines it, and the text of its schema.
    python : str
        The version of Python's bytecode. Digests of different versions say nothing.
    rows : tuple of (str, str)
        The name and the digest of each kernel and rule; the kernel for ``"cpu"`` is first.
    body : bytes
        The whole operator, where it cannot be imported.
    why_not : str
        Why there is no body in its place.
    """

    qualname: str
    module: str
    schema: str
    python: str
    rows: tuple[tuple[str, str], ...]
    body: bytes = b""
    why_not: str = ""

    def find(self, *, kernel_alone: bool = False) -> Operator[..., Any]:
        """Return the operator: the one that is here, or one made of the body.

        Parameters
        ----------
        kernel_alone : bool
            Whether only the kernel will run, so that other rules may differ.

        Raises
        ------
        MissingRuleError
            If it is not here and cannot be imported.
        RegistrationError
            If the one that is here is another one.
        """
        if self.body:
            return _made(self)
        try:
            found: Any = find_operator(self.qualname, self.module)
        except CustomOpError:
            raise
        except Exception as error:
            raise MissingRuleError(
                f"{self.qualname} is defined in the module '{self.module}', which cannot"
                f" be imported here: {type(error).__name__}: {error}",
                *_here(),
                do="install the module on every worker, or send it:"
                f' client.upload_file("{self.module.rpartition(".")[2]}.py")',
                op=self.qualname,
            ) from error
        if isinstance(found, AbsentOperator):
            raise found.error(self.why_not)
        op: Operator[..., Any] = found
        self._check(recipe_of(op), 1 if kernel_alone else len(self.rows))
        return op

    def _check(self, own: Recipe, count: int) -> None:
        """Raise unless the operator of this process is the one that was sent."""
        if self.schema and own.schema != self.schema:  # else only the name came
            raise self._differs(
                "its schema", f"sent: {self.schema}", f"here: {own.schema}"
            )
        if own.python != self.python:
            return
        known = dict(own.rows)
        for name, digest in self.rows[:count]:
            if known.get(name) != digest:
                what = (
                    "does not have" if name not in known else "has another version of"
                )
                text = f"this process {what} the {name} that was sent"
                raise self._differs(f"its {name}", text)

    def _differs(self, what: str, *where: str) -> RegistrationError:
        """Build the error for another operator of that name in this process."""
        return RegistrationError(
            f"{self.qualname} is another operator in this process than where the task"
            f" comes from: {what} differs",
            *where,
            *_here(),
            do=f"bring the same version of '{self.module}' to all workers and start them"
            " again, or define the operator and its kernels in the script",
            op=self.qualname,
        )

    @property
    def token(self) -> str:
        """Return a text that differs where operators do."""
        return _digest(repr(self))


def _here() -> tuple[str, ...]:
    socket = sys.modules.get("socket")
    host = f" on {socket.gethostname()}" if socket is not None else ""
    return (f"in process {os.getpid()}{host}",)


def recipe_of(op: RuleTable | AbsentOperator) -> Recipe:
    """Return what other processes get of an operator."""
    if isinstance(op, AbsentOperator):
        return op.recipe or Recipe(op.qualname, "__main__", "", "", ())
    known = _known(op)
    # A body is written anew each time: what its functions refer to may have changed.
    if known is not None and (not known.body or op in brought):
        return known
    module = op.definition.module
    found = Recipe(op.qualname, module, op.schema.show(op.qualname), _PYTHON, ())
    if is_importable(op):
        found = found._replace(rows=_proof(op))
    else:
        body, why_not = _body(op)
        found = found._replace(body=body, why_not=why_not)
    _remember(op, found)
    return found


def _remember(op: RuleTable, recipe: Recipe) -> None:
    # With the operator, which its rows refer to: a table of all would keep it alive.
    vars(op)["_recipe"] = (op.rows, op.disabled, recipe)


def _known(op: RuleTable) -> Recipe | None:
    """Return the latest recipe of an operator if its rows are still the same."""
    rows, disabled, recipe = vars(op).get("_recipe", (None, None, None))
    return recipe if rows is op.rows and disabled == op.disabled else None


def is_importable(op: RuleTable) -> bool:
    """Return whether other processes find the operator by importing its module."""
    definition = op.definition
    name = getattr(definition.fn, "__qualname__", "")
    return definition.module not in _SCRIPTS and "<locals>" not in name


_SCRIPTS = ("__main__", "__mp_main__")


def token_of(op: Operator[..., Any]) -> str:
    """Return a text that changes with the kernels and rules of an operator."""
    given = b""
    with _bodies.open(), suppress(Exception):
        given = importlib.import_module("cloudpickle").dumps(_inline(op)[1:3])
    return _digest(f"{recipe_of(op).token} {given!r}")


# ---- how pickle and cloudpickle send it ----


def reduce_operator(op: Operator[..., Any]) -> tuple[Any, ...]:
    """Reduce an operator for pickle: its name, and a recipe that cloudpickle alone writes."""
    if _bodies.is_open:
        return (received, (recipe_of(op),)) if is_importable(op) else _inline(op)
    _teach_cloudpickle()
    return find_or_receive, (op.qualname, op.definition.module, _Sent(op))


class _Sent:
    """The place of a recipe: cloudpickle sends the recipe, plain pickle a text."""

    __slots__ = ("op",)

    def __init__(self, op: RuleTable) -> None:
        self.op = op

    def __reduce__(self) -> tuple[Any, ...]:
        # dask pickles by cloudpickle what has this text in its plain pickle.
        return str, ("__main__",)


def _reduce_sent(sent: _Sent) -> tuple[Any, ...]:
    return Recipe, tuple(recipe_of(sent.op))


@functools.cache
def _teach_cloudpickle() -> None:
    cloudpickle: Any = importlib.import_module("cloudpickle")
    cloudpickle.CloudPickler.dispatch_table[_Sent] = _reduce_sent


def find_or_receive(qualname: str, module: str, sent: Any) -> Any:
    """Return the operator of a recipe, or of the name if there is none."""
    return find_operator(qualname, module) if isinstance(sent, str) else received(sent)


def received(recipe: Recipe) -> Any:
    """Return the operator of a recipe, or what raises at its first use.

    An error while a task is read would end a worker process, not the task.
    """
    try:
        return recipe.find()
    except Exception:  # noqa: BLE001  # whatever the import of a module raises
        return AbsentOperator(recipe.qualname, recipe)


# ---- the body of an operator that cannot be imported ----


class _Bodies(threading.local):
    """Whether this thread writes a body: then operators are written in full."""

    is_open: bool = False

    @contextmanager
    def open(self) -> Iterator[None]:
        before, self.is_open = self.is_open, True
        try:
            yield
        finally:
            self.is_open = before


_bodies = _Bodies()

# Kernels for other kinds of array may need libraries that a worker lacks.
_BROUGHT = (DEFAULT, CPU.name, FAKE)
_KINDS: dict[str, RuleKind] = {
    kind.name: kind for kind in (COMPOSITE, AUTOGRAD, JVP, VMAP, AUTOCAST, ARRAY_CLASS)
}


def _body(op: RuleTable) -> tuple[bytes, str]:
    """Return an operator as bytes; or no bytes, and why cloudpickle fails."""
    try:
        with _bodies.open():
            return importlib.import_module("cloudpickle").dumps(op), ""
    except Exception as error:  # noqa: BLE001  # whatever __reduce__ of an object raises
        return b"", f"it cannot be sent: {type(error).__name__}: {error}"


def _inline(op: RuleTable) -> tuple[Any, ...]:
    """Reduce an operator to an empty one, which its own rules may refer to, and its rows."""
    given = op.definition
    fn = None if isinstance(given.fn, Declared) else given.fn
    rows = [
        (name, row.fn, row.place)
        for kind, row in op.rows.items()
        for name in [kind if isinstance(kind, str) else kind.name]
        if (name in _BROUGHT if isinstance(kind, str) else _KINDS.get(name) is kind)
    ]
    made = (given.qualname, given.schema, given.tags, given.place, given.module)
    return _begin, made, (fn, rows, op.disabled), None, None, _complete


def _begin(
    qualname: str, schema: Schema, tags: frozenset[Tag], place: str, module: str
) -> Operator[..., Any]:
    fn = Declared(qualname, schema)
    return new_operator(Definition(qualname, fn, schema, tags, place, module))


def _complete(op: Operator[..., Any], state: tuple[Any, ...]) -> None:
    fn, rows, disabled = state
    if fn is not None:
        op.define(op.definition.replaced(fn=fn))
    for name, rule, place in rows:
        op.enter(name if name in _BROUGHT else _KINDS[name], Row(rule, place))
    for name in disabled:
        op.set_disabled(name, True)
    adopt(op)


# Digest of a body -> its operator; the latest ones, since a notebook sends new versions.
_latest: dict[bytes, Operator[..., Any]] = {}
_MOST = 500


def _made(recipe: Recipe) -> Operator[..., Any]:
    """Return the operator of a body: the one that it was made from, or is made of it."""
    own = operators.get(recipe.qualname)
    if own is not None and _known(own) == recipe:
        return own
    key = sha256(recipe.body).digest()
    op = _latest.get(key)
    if op is None:
        try:
            op = pickle.loads(recipe.body)  # noqa: S301  # as dask reads tasks
        except Exception as error:
            raise MissingRuleError(
                f"{recipe.qualname} comes from a script or a function, and what it needs is"
                f" not here: {type(error).__name__}: {error}",
                *_here(),
                do="install on every worker what its kernels and rules import",
                op=recipe.qualname,
            ) from error
        op = _latest.setdefault(key, op)
        _remember(op, recipe)
        while len(_latest) > _MOST:
            _latest.pop(next(iter(_latest)), None)
    return op


# ---- what proves that two processes mean the same operator ----


# Bytecode is compared between equal versions, and equal options, alone.
_PYTHON = f"{importlib.util.MAGIC_NUMBER.hex()} {sys.flags.optimize}"


def _proof(op: RuleTable) -> tuple[tuple[str, str], ...]:
    """Return the name and the digest of each kernel and rule that runs on a worker."""
    rules = [(k.name, op.rows[k].fn) for k in _KINDS.values() if k in op.rows]
    named = [("kernel", find_kernel(op, CPU.name)), *rules]
    return tuple([(name, _digest(_text(fn, {}))) for name, fn in named])


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _text(value: Any, seen: dict[int, int]) -> str:
    """Return a text that is equal in two processes for what computes the same.

    Functions are told apart by code, constants, defaults, closed-over values and the
    functions of their module that they call; other objects by their class. `seen` numbers what is met again, as a function that calls
    itself.
    """
    parts = _parts(value)
    if isinstance(parts, str):
        return parts
    # Which of these are one object depends on how the code was compiled or loaded.
    if not isinstance(value, tuple | frozenset | CodeType):
        if id(value) in seen:
            return f"#{seen[id(value)]}"
        seen[id(value)] = len(seen)
    texts = [_text(part, seen) for part in parts]
    if isinstance(value, set | frozenset | dict):
        texts.sort()
    return f"{type(value).__name__}({', '.join(texts)})"


def _parts(value: Any) -> Sequence[Any] | str:
    """Return the values that decide what a value does, or its text."""
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, Operator):
        return f"operator {value.schema.show(value.qualname)}"
    for classes, parts in _PARTS:
        if isinstance(value, classes):
            return parts(value)
    if hasattr(value, "py_func"):  # numba's
        return [value.py_func]
    named = value if isinstance(value, _NAMED) else type(value)
    name = getattr(named, "__qualname__", named.__name__)
    return f"{getattr(named, '__module__', '')} {name}"


def _parts_of_function(fn: FunctionType) -> Sequence[Any]:
    own = [fn.__code__, fn.__defaults__, fn.__kwdefaults__, fn.__closure__]
    known = fn.__globals__
    called = [known.get(name) for name in sorted(_names(fn.__code__))]
    helpers = [
        f for f in called if isinstance(f, FunctionType) and f.__globals__ is known
    ]
    return [*own, *helpers]


def _names(code: CodeType) -> set[str]:
    """Return the names that a function and those inside it may look up."""
    inner = [_names(const) for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*inner)


def _parts_of_code(code: CodeType) -> Sequence[Any]:
    # Not its file and lines, which differ between machines.
    names = code.co_names, code.co_varnames, code.co_freevars
    return [code.co_code, code.co_consts, code.co_exceptiontable, *names]


def _parts_of_array(x: Any) -> Sequence[Any]:
    return [
        str(x.dtype),
        x.shape,
        "" if x.dtype.hasobject else sha256(x.tobytes()).digest(),
    ]


_PLAIN = (
    *(int, float, complex, str, bytes, bool, type(None), type(...), slice),
    *(np.dtype, np.generic),
)
_NAMED = (type, ModuleType, BuiltinFunctionType, np.ufunc)
_PARTS: tuple[tuple[Any, Callable[[Any], Sequence[Any]]], ...] = (
    (FunctionType, _parts_of_function),
    (CodeType, _parts_of_code),
    (CellType, contents),
    (functools.partial, lambda value: [value.func, value.args, value.keywords]),
    (MethodType, lambda value: [value.__func__, value.__self__]),
    (dict, lambda value: [*value.items()]),
    ((tuple, list, set, frozenset), list),
    (np.ndarray, _parts_of_array),
    (Row, lambda value: [value.fn]),
    ((Formula, GradFunction), lambda value: [*vars(value).values()]),
)
