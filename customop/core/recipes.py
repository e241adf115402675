"""Operators that travel: what is sent of one, and how another process finds or makes it.

Plain pickle sends the name of an operator. cloudpickle, which engines such as dask use
between machines, sends a recipe:

- for an operator of a module its name, and what proves that both sides mean the same one:
  the schema, and a digest of each kernel and rule that runs there;
- for an operator of a script, a notebook or a function all of it, as cloudpickle's bytes.
  These bring the operators along that its kernels and rules call, itself among them, and
  the recipes of those that they take from modules, as ``module.op``.
"""

from __future__ import annotations

import ast
import dis
import functools
import importlib.util
import inspect
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
from customop.core.reach import ValueSearch
from customop.core.redefine import contents
from customop.core.registry import (
    PICKLERS,
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
        checked = _checked.get((self, kernel_alone))
        if checked is not None and _is_as_checked(*checked):
            return checked[0]
        try:
            found: Any = find_operator(self.qualname, self.module)
        except CustomOpError:
            raise
        except Exception as error:
            name = self.module.rpartition(".")[2]
            raise MissingRuleError(
                f"{self.qualname} is defined in the module '{self.module}', which cannot"
                f" be imported here: {type(error).__name__}: {error}",
                *_here(),
                do="install the module on every worker, or send it:"
                f' client.upload_file("{name}.py") of dask, or'
                f' ray.init(runtime_env={{"py_modules": [{name}]}})',
                op=self.qualname,
            ) from error
        if isinstance(found, AbsentOperator):
            raise found.error(self.why_not)
        op: Operator[..., Any] = found
        # The recipe of an operator of a script has a body in place of what proves it.
        own = recipe_by_name(op) if kernel_alone else recipe_of(op)
        self._check(own, 1 if kernel_alone else len(self.rows))
        looked_up = _looked_up(op)
        if looked_up is not None:
            _checked[self, kernel_alone] = op, op.rows, op.disabled, looked_up
            while len(_checked) > _MOST:
                _checked.pop(next(iter(_checked)), None)
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


# Names that the functions of an operator look up: the globals, the name, and its value.
_Names = list[tuple[dict[str, Any], str, Any]]
# Recipes that an operator of this process was compared with, its table then, and what its
# functions looked up. Each task brings its recipe: to compare it anew takes 45 us and more.
_checked: dict[
    tuple[Recipe, bool], tuple[Operator[..., Any], Any, frozenset[str], _Names]
] = {}


def _is_as_checked(
    op: Operator[..., Any], rows: Any, disabled: frozenset[str], names: _Names
) -> bool:
    """Return whether an operator is the one that was compared, with the same content."""
    if operators.get(op.qualname) is not op or op.rows is not rows:
        return False
    same = all(known.get(name) is value for known, name, value in names)
    return same and op.disabled == disabled


def _looked_up(op: RuleTable) -> _Names | None:
    """Return what the functions of an operator look up; None if it may change inside.

    Numbers, texts and functions change only when a name gets another one.
    """
    own = _top(op.definition.module)
    seen: dict[int, tuple[int, Any]] = {}
    for _, fn in _rows(op):
        _text(fn, own, seen)
    found: _Names = []
    for _, value in seen.values():
        if isinstance(value, Formula | GradFunction):
            continue
        if not isinstance(value, FunctionType):
            return None
        names, known = _names(value.__code__), value.__globals__
        package = str(known.get("__package__") or "")
        modules = [*_imported(value.__code__, package)]
        for name in names.intersection(known):
            if isinstance(known[name], ModuleType):
                modules.append(known[name].__name__)
            found.append((known, name, known[name]))
        if "ops" in names or any(_is_followed(name, own) for name in modules):
            return None
    return found


def _here() -> tuple[str, ...]:
    socket = sys.modules.get("socket")
    host = f" on {socket.gethostname()}" if socket is not None else ""
    return (f"in process {os.getpid()}{host}",)


def recipe_of(op: RuleTable | AbsentOperator) -> Recipe:
    """Return what other processes get of an operator."""
    if isinstance(op, AbsentOperator):
        return op.recipe or Recipe(op.qualname, "__main__", "", "", ())
    known = _known(op)
    # Others are looked at anew each time: what their functions refer to may have changed.
    if known is not None and (op in brought or _top(op.definition.module) == _OURS):
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


def recipe_by_name(op: RuleTable) -> Recipe:
    """Return a recipe without a body, that proves what kernel an operator has."""
    schema = op.schema.show(op.qualname)
    module = op.definition.module
    return Recipe(op.qualname, module, schema, _PYTHON, _proof(op)[:1])


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
        given = _cloudpickle().dumps(_inline(op)[1:3])
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


def _teach_cloudpickle() -> None:
    for pickler in filter(None, map(sys.modules.get, PICKLERS)):
        cls: Any = pickler.CloudPickler
        if _Sent not in cls.dispatch_table:
            cls.dispatch_table[_Sent] = _reduce_sent
            cls._dynamic_function_reduce = _reduced_with(cls._dynamic_function_reduce)


def compare_functions() -> None:
    """Let functions of a script bring the recipes of the operators of modules they use.

    cloudpickle sends such a function whole, but modules by name.
    """
    _cloudpickle()
    _teach_cloudpickle()


def _reduced_with(reduced: Callable[..., Any]) -> Callable[..., Any]:
    """Return cloudpickle's reduction of a function of a script, with recipes.

    The method is replaced since cloudpickle asks none of its tables for functions.
    """

    def reduce(pickler: Any, fn: FunctionType) -> tuple[Any, ...]:
        found: tuple[Any, ...] = reduced(pickler, fn)
        # The body of an operator brings the recipes for all of its functions.
        used = [] if _bodies.is_open else _of_modules([fn])
        if not used:
            return found
        make, args, state, items, pairs, set_state = found
        more = state, set_state, [recipe_of(op) for op in used]
        return make, args, more, items, pairs, _set_compared

    return reduce


def _set_compared(fn: FunctionType, state: tuple[Any, ...]) -> None:
    """Complete a function that was sent; if an operator differs here, it raises when called."""
    own, set_state, recipes = state
    set_state(fn, own)
    try:
        for recipe in recipes:
            recipe.find()
    except Exception as error:  # noqa: BLE001  # whatever the import of a module raises
        error.add_note(f"  used by {fn.__qualname__}")
        fn.__code__ = _raising.__code__.replace(co_freevars=fn.__code__.co_freevars)
        fn.__defaults__, fn.__kwdefaults__ = None, {"customop_error": error}


def _raising(*_: Any, customop_error: Exception, **__: Any) -> Any:
    raise customop_error.with_traceback(None)


def _cloudpickle() -> Any:
    found = [name for name in PICKLERS if name in sys.modules]
    return importlib.import_module((*found, *PICKLERS)[0])


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
            return _cloudpickle().dumps(op), ""
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
    functions = [] if is_importable(op) else [fn, *[rule for _, rule, _ in rows]]
    used = _of_modules(functions)
    made = (given.qualname, given.schema, given.tags, given.place, given.module)
    return _begin, made, (fn, rows, op.disabled, used), None, None, _complete


def _of_modules(functions: Sequence[Any]) -> list[RuleTable]:
    """Return the operators of modules that functions of a script use.

    Functions take modules along by name. So without these nothing would tell whether
    ``module.op`` is the same operator in another process.
    """
    found = ValueSearch(lambda value: isinstance(value, RuleTable), functions).found
    return [
        op
        for op in dict.fromkeys(found)
        if _top(op.definition.module) != _OURS and is_importable(op)
    ]


def _begin(
    qualname: str, schema: Schema, tags: frozenset[Tag], place: str, module: str
) -> Operator[..., Any]:
    fn = Declared(qualname, schema)
    return new_operator(Definition(qualname, fn, schema, tags, place, module))


def _complete(op: Operator[..., Any], state: tuple[Any, ...]) -> None:
    fn, rows, disabled, used = state
    for other in used:
        if isinstance(other, AbsentOperator):
            other.recipe.find()  # it raises, and says why
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
        except RegistrationError as error:
            error.add_note(f"  used by {recipe.qualname}")
            raise
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
    own = _top(op.definition.module)
    return tuple([(name, _digest(_text(fn, own, {}))) for name, fn in _rows(op)])


def _rows(op: RuleTable) -> list[tuple[str, Any]]:
    rules = [(k.name, op.rows[k].fn) for k in _KINDS.values() if k in op.rows]
    return [("kernel", find_kernel(op, CPU.name)), *rules]


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _text(value: Any, own: str, seen: dict[int, tuple[int, Any]]) -> str:
    """Return a text that is equal in two processes for what computes the same.

    Functions are told apart by code, constants, defaults, closed-over values and by what
    they reach in modules: functions, classes, operators and constants. Of an installed
    library other than the package `own` only names count. `seen` numbers what is met
    again, as a function that calls itself, and keeps it alive.
    """
    parts = _parts(value, own)
    if isinstance(parts, str):
        return parts
    # Which of these are one object depends on how the code was compiled or loaded.
    if not isinstance(value, tuple | frozenset | CodeType):
        if id(value) in seen:
            return f"#{seen[id(value)][0]}"
        seen[id(value)] = len(seen), value
    texts = [_text(part, own, seen) for part in parts]
    if isinstance(value, set | frozenset | dict):
        texts.sort()
    # An operator gets a class of its own at its first call.
    kind = "operator" if isinstance(value, RuleTable) else type(value).__name__
    return f"{kind}({', '.join(texts)})"


def _parts(value: Any, own: str) -> Sequence[Any] | str:
    """Return the values that decide what a value does, or its text."""
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, FunctionType):
        return _parts_of_function(value, own)
    for classes, parts in _PARTS:
        if isinstance(value, classes):
            return parts(value)
    for name in ("py_func", "__wrapped__", "pyfunc"):  # of numba, functools and numpy
        # An object that answers every name, such as `customop.ops`, has none of these.
        if inspect.getattr_static(value, name, None) is not None:
            return [getattr(value, name)]
    named = value if isinstance(value, _NAMED) else type(value)
    if isinstance(named, type) and _is_followed(named.__module__, own):
        return _parts_of_class(named) if named is value else [named, _state(value)]
    name = getattr(named, "__qualname__", named.__name__)
    return f"{getattr(named, '__module__', '')} {name}"


def _parts_of_operator(op: RuleTable) -> Sequence[Any]:
    rows = _rows(op) if _top(op.definition.module) != _OURS else []
    return [op.schema.show(op.qualname), *rows]


def _parts_of_function(fn: FunctionType, own: str) -> Sequence[Any]:
    held = [fn.__code__, fn.__defaults__, fn.__kwdefaults__, fn.__closure__]
    return [*held, *_reached(fn, own)]


def _parts_of_class(cls: type) -> Sequence[Any]:
    found = [
        (name, _defined(cls.__module__, (*cls.__qualname__.split("."), name), value))
        for name, value in sorted(vars(cls).items())
        if name not in _OF_EVERY_CLASS
    ]
    return [cls.__qualname__, cls.__bases__, *found]


def _state(value: Any) -> Any:
    """Return what pickle would write of an object, without properties computed once."""
    try:
        state = value.__getstate__()
    except TypeError:  # of an extension type
        return None
    if not isinstance(state, dict):
        return state
    own = type(value)
    return {
        name: item
        for name, item in state.items()
        if not isinstance(getattr(own, name, None), functools.cached_property)
    }


# ---- what a function reaches in modules ----


def _top(module: str) -> str:
    return module.partition(".")[0]


# Operators of this package keep their proof: nobody changes what they refer to.
_OURS = "customop"


def _is_followed(module: str, own: str) -> bool:
    """Return whether the content of a module is compared, rather than its name.

    Installed libraries are not followed: they keep memories of their own, and dask
    compares their versions (``client.get_versions(check=True)``).
    """
    top = _top(module)
    if top == _OURS or top in sys.stdlib_module_names:
        return False
    spec = getattr(sys.modules.get(top), "__spec__", None)
    folders = getattr(spec, "submodule_search_locations", None) or ()
    places = [str(getattr(spec, "origin", "")), *folders]
    is_installed = any(name in place for place in places for name in _INSTALLED)
    return top == own or not is_installed


_INSTALLED = ("site-packages", "dist-packages")


def _reached(fn: FunctionType, own: str) -> list[Any]:
    """Return name and value of what a function looks up in its module and in others."""
    names, known = _names(fn.__code__), fn.__globals__
    module = str(known.get("__name__", ""))
    found: dict[str, Any] = {}
    _look_up(names, module, known, found, own)
    for name in sorted(_imported(fn.__code__, str(known.get("__package__") or ""))):
        if _is_followed(name, own):
            with suppress(ImportError):  # the function may do without
                other = importlib.import_module(name)
                _look_up(names, name, vars(other), found, own)
    if "ops" in names:  # ops.namespace.name
        for qualname, op in sorted(operators.items()):
            if op.namespace in names and op.name.partition(".")[0] in names:
                found[f"ops {qualname}"] = op
    return sorted(found.items())


def _look_up(
    names: set[str],
    module: str,
    known: dict[str, Any],
    found: dict[str, Any],
    own: str,
) -> None:
    """Collect values of a module that have one of some names; go on in its modules."""
    is_followed = _is_followed(module, own)
    for name in names.intersection(known):
        value = known[name]
        key = f"{module} {name}"
        if key in found:
            continue
        if isinstance(value, ModuleType):
            found[key] = value.__name__
            if _is_followed(value.__name__, own):
                _look_up(names, value.__name__, vars(value), found, own)
        elif is_followed:
            found[key] = _defined(module, (name,), value)
        elif isinstance(value, FunctionType) and value.__globals__ is known:
            found[key] = value


def _names(code: CodeType) -> set[str]:
    """Return the names that a function and those inside it may look up."""
    inner = [_names(const) for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*inner)


def _imported(code: CodeType, package: str) -> set[str]:
    """Return the names of the modules that a function imports when it runs."""
    found: set[str] = set()
    if _IMPORT in code.co_code[::2]:
        steps = list(dis.get_instructions(code))
        for level, _, step in zip(steps, steps[1:], steps[2:], strict=False):
            if step.opname == "IMPORT_NAME":
                name = "." * level.argval + step.argval
                found.add(importlib.util.resolve_name(name, package))
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return found.union(*[_imported(c, package) for c in inner])


_IMPORT = dis.opmap["IMPORT_NAME"]


# ---- values that change while a program runs ----


def _defined(module: str, path: tuple[str, ...], value: Any) -> Any:
    """Return the definition of a value that may be a memory or a counter, else the value.

    Its content then depends on what ran before in this process.
    """
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):  # it has no source
        return value
    known, rebound = _definitions(source)
    is_changing = isinstance(value, dict | list | set) or path[-1] in rebound
    return known.get(path, value) if is_changing else value


@functools.lru_cache(maxsize=50)
def _definitions(source: str) -> tuple[dict[tuple[str, ...], str], set[str]]:
    """Return the code of each assignment of a module, and names that functions rebind."""
    tree = ast.parse(source)
    found: dict[tuple[str, ...], str] = {}
    _collect(tree, (), found)
    rebound = [n.names for n in ast.walk(tree) if isinstance(n, ast.Global)]
    return found, {name for names in rebound for name in names}


def _collect(
    node: Any, path: tuple[str, ...], found: dict[tuple[str, ...], str]
) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            _collect(child, (*path, child.name), found)
        elif isinstance(child, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            for name in [n for t in targets for n in ast.walk(t)]:
                if isinstance(name, ast.Name) and child.value is not None:
                    key = (*path, name.id)
                    found[key] = found.get(key, "") + ast.dump(child.value)
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            _collect(child, path, found)


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
_OF_EVERY_CLASS = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__"),
        *("__firstlineno__", "__static_attributes__", "__annotations__"),
        *("__annotations_cache__", "__annotate_func__"),
    )
)
_NAMED = (type, ModuleType, BuiltinFunctionType, np.ufunc)
_PARTS: tuple[tuple[Any, Callable[[Any], Sequence[Any]]], ...] = (
    (Operator, _parts_of_operator),
    (CodeType, _parts_of_code),
    (CellType, contents),
    (functools.partial, lambda value: [value.func, value.args, value.keywords]),
    (MethodType, lambda value: [value.__func__, value.__self__]),
    ((staticmethod, classmethod), lambda value: [value.__func__]),
    (property, lambda value: [value.fget, value.fset]),
    (dict, lambda value: [*value.items()]),
    ((tuple, list, set, frozenset), list),
    (np.ndarray, _parts_of_array),
    (Row, lambda value: [value.fn]),
    ((Formula, GradFunction), lambda value: [*vars(value).values()]),
)
