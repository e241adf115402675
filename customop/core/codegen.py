"""Source of the function that a call runs, made from the schema."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from customop.arrays.kinds import TRACED, kind_of
from customop.config import config
from customop.core.contract import note_writes
from customop.core.observe import open_modes
from customop.core.table import Never, Plans, RuleTable
from customop.errors import GENERATED, shorten
from customop.frozen import Frozen
from customop.later import later
from customop.schema.coerce import exact_class, needs_guard
from customop.schema.schema import coercion
from customop.schema.types import (
    KEYWORD_ONLY,
    MISSING,
    POSITIONAL_ONLY,
    SCALAR,
    ArrayType,
    ListOf,
    Maybe,
    Parameter,
    SchemaType,
    holds_arrays,
    is_array_type,
    is_single_array,
    parts,
    print_value,
)
from customop.shapes.sizes import has_sizes, made

# Few operators have shapes in their schemas.
shape_check: ModuleType = later(import_module, "customop.schema.shape_check")
shape_guards: ModuleType = later(import_module, "customop.core.shape_guards")


# ---- functions made of source text, whose lines tracebacks and debuggers show ----


def generate(
    title: str, text: str, name: str, names: dict[str, Any], starts: Iterable[int] = ()
) -> Any:
    """Run source text and return one name that it defines; tracebacks show its lines.

    At the lines in `starts`, counted from 0, long text is cut into pieces that are compiled
    one after the other, which takes less memory.
    """
    # A NUL is an error, and a line break ends a line of tracebacks.
    if not title.isprintable():
        title = repr(title)[1:-1]
    filename = f"{GENERATED}{title} {next(_versions)}>"
    lines = text.splitlines(True)
    for first, end in itertools.pairwise((0, *starts, len(lines))):
        piece = text if end - first == len(lines) else "".join(lines[first:end])
        compiled = _compiled if len(piece) < _SHORT else _compiled.__wrapped__
        exec(_placed(compiled(piece), filename, first), names)  # noqa: S102  # text of our own
    linecache.cache[filename] = (len(text), None, lines, filename)
    made = names[name]
    weakref.finalize(made, _gone.append, filename).atexit = False
    with suppress(IndexError):  # there are no more
        while True:
            linecache.cache.pop(_gone.popleft(), None)
    return made


_versions = itertools.count(1)
# Files of functions that are gone. A function may go at any time, also while the standard
# library goes over the files, which fails if one is missing then (Python 3.11).
_gone: deque[str] = deque()


# Texts of more characters are of graphs, of which few are alike.
_SHORT = 10_000


@lru_cache(maxsize=256)
def _compiled(text: str) -> CodeType:
    """Return the code of a text: operators whose schemas are alike have the same texts.

    To compile one takes 300 us, to give its code another file 5.
    """
    return compile(text, GENERATED, "exec")


def _placed(code: CodeType, filename: str, first: int) -> CodeType:
    """Return code, with all code in it, of a file where it begins so many lines later."""
    parts = [
        _placed(c, filename, first) if type(c) is CodeType else c
        for c in code.co_consts
    ]
    line = code.co_firstlineno + first
    return code.replace(
        co_consts=tuple(parts), co_filename=filename, co_firstlineno=line
    )


class GlobalNames:
    """The names that a generated function uses.

    Parameters
    ----------
    taken : iterable of str
        Those of its parameters.

    Attributes
    ----------
    names : dict
        Name -> value.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self.names: dict[str, Any] = {}
        self.taken: set[str] = {*taken}

    def bind(self, name: str, value: Any) -> str:
        """Return a name for a value that no parameter hides."""
        while name in self.taken:
            name = f"_{name}"
        self.names[name] = value
        return name


# ---- the functions of a call ----
# They have the operator's own parameters. One guard, made of exact types, leads straight
# to the cpu kernel; all else is coerced and goes to `dispatch`, which is the
# specification. Measured on CPython 3.11.7: 40 ns over the kernel as a plain function,
# 80 ns as a call of the operator object.


class GeneratedCall(Frozen):
    """The generated functions of an operator.

    Attributes
    ----------
    call : callable
        Takes the arguments of a call.
    run : callable
        Takes the values of all parameters, in the order of the schema and as `call`
        coerces them.
    text : str
        The source of both.
    """

    call: Callable[..., Any]
    run: Callable[..., Any]
    text: str


def compile_call(
    op: RuleTable, dispatch: Callable[[Any, tuple[Any, ...]], Any], share: float
) -> GeneratedCall:
    """Generate the functions of a call.

    Where `share` is not zero, that share of calls leaves the fast path by chance.
    """
    source = _CallSource(op, dispatch)
    text, run = source.write(share)
    call = generate(op.qualname, text, op.name, source.names)
    call.__module__ = __name__
    # Python's errors about missing, extra and unknown arguments begin with this, so they
    # show what the operator takes. To catch them would cost each call 10 to 30 ns.
    shown = source.parameters(lambda p: print_value(p.default, p.type))
    call.__qualname__ = f"{op.qualname}({shown}): {op.name}"
    return GeneratedCall(call, source.names[run], text)


def without_signature(call: Callable[..., Any], error: TypeError) -> str:
    """Return the text of Python's error about the arguments of a call, without its name."""
    signature, space, _ = getattr(call, "__qualname__", "").rpartition(" ")
    return str(error).removeprefix(signature + space)


def has_fast_path(op: RuleTable) -> bool:
    """Return whether a kernel may run without `dispatch`."""
    return not (op.sees_seed or op.is_factory or op.needs_contiguous)


# Names in the text that are the same for all operators: no parameter may have one.
RESERVED = (
    "_array",
    "_kernel",
    "_dispatch",
    "_op",
    "_modes",
    "_plans",
    "_type",
    "_list",
    "_tuple",
)


# ---- changes of a generated call ----


def set_fast_kernel(op: RuleTable, kernel: Any) -> None:
    """Open the fast path of the calls of an operator to a kernel, or close it with None."""
    assert isinstance(op.call, FunctionType)
    names = op.call.__globals__
    # Closed first, and the kernel never removed: a thread that is past the guard
    # calls the old kernel or the new one, never None.
    names["_array"] = Never
    op.fast.set(kernel)
    if kernel is not None:
        names["_kernel"] = kernel
        names["_array"] = np.ndarray


def is_open(call: Callable[..., Any]) -> bool:
    """Return whether the fast path of a call is open."""
    return isinstance(call, FunctionType) and (
        call.__globals__.get("_array") is np.ndarray
    )


def replace_code(call: Callable[..., Any], other: Callable[..., Any]) -> None:
    """Give a call the code of another one for the same schema."""
    assert isinstance(call, FunctionType)
    assert isinstance(other, FunctionType)
    names = call.__globals__
    for name, value in other.__globals__.items():
        names.setdefault(name, value)
    call.__code__ = other.__code__


def set_dispatch(call: Callable[..., Any], dispatch: Any) -> None:
    """Give a call another slow path."""
    assert isinstance(call, FunctionType)
    call.__globals__["_dispatch"] = dispatch


def set_plans(call: Callable[..., Any], plans: Plans) -> None:
    """Let a call find its plans."""
    assert isinstance(call, FunctionType)
    call.__globals__["_plans"] = plans.by_tracer


# ---- the text of a call ----


class Drawn(tuple[Any, ...]):
    """Values of a call that the fast path has drawn for a proof."""

    __slots__ = ()


# The text of the way to plans grows with the square of the number of arrays.
_MOST_ARRAYS = 3


class _CallSource(GlobalNames):
    """Source text of the functions of one operator under construction."""

    def __init__(self, op: RuleTable, dispatch: Any) -> None:
        super().__init__([op.name, *(p.name for p in op.schema.parameters)])
        self.op = op
        self.schema = op.schema
        self.values = "".join(f"{p.name}, " for p in op.schema.parameters)
        plans = op.plans.by_tracer
        # Renamed, since a parameter may be called `type` or `list`.
        fixed = (Never, None, dispatch, op, open_modes, plans, type, list, tuple)
        self.names |= zip(RESERVED, fixed, strict=True)

    def write(self, share: float) -> tuple[str, str]:
        """Return the text, and the name in it of the function without coercions."""
        early, late = self._coercions()
        fast, slow = self._fast_path(share), self._slow_path()
        name, parameters = self.op.name, self.parameters(self._default)
        text = self._function(name, parameters, [*early, *fast, *late, *slow])
        if not early and not self.schema.keyword_only:
            return text, name
        run = self.bind("_run", None)
        return f"{text}\n{self._function(run, self.values, [*fast, *slow])}", run

    def _function(self, name: str, parameters: str, body: list[str]) -> str:
        error = self.bind("_error", None)
        return "\n".join(
            [
                f"def {name}({parameters}):",
                "    try:",
                *[f"        {line}" for line in body],
                f"    except Exception as {error}:",
                f"        {self.bind('_shorten', shorten)}({error})",
                "        raise\n",
            ]
        )

    def parameters(self, default: Callable[[Parameter], str]) -> str:
        """Return the text of the parameters, with defaults as `default` writes them."""
        texts: list[str] = []
        previous = ""
        for p in self.schema.parameters:
            if previous == POSITIONAL_ONLY and p.kind != POSITIONAL_ONLY:
                texts.append("/")
            if p.kind == KEYWORD_ONLY and previous != KEYWORD_ONLY:
                texts.append("*")
            has_none = p.default is MISSING
            texts.append(p.name if has_none else f"{p.name}={default(p)}")
            previous = p.kind
        return ", ".join([*texts, "/"] if previous == POSITIONAL_ONLY else texts)

    def _default(self, p: Parameter) -> str:
        value = p.default
        plain = value is None or type(value) in (int, bool, str)
        if plain or (type(value) is float and value - value == 0.0):
            return repr(value)
        return self.bind(f"_default_{p.name}", value)

    def _coercions(self) -> tuple[list[str], list[str]]:
        """Return lines before the guard and behind it.

        Before it are those that a guard on the class cannot replace: lists, dtypes,
        devices.
        """
        early, late = [], []
        for p in self.schema.parameters:
            if is_single_array(p.type):
                continue
            coerce = coercion(self.op.qualname, self.schema, p)
            line = f"{p.name} = {self.bind(f'_coerce_{p.name}', coerce)}({p.name})"
            if needs_guard(p.type):
                late.append(f"if not ({self._guard(p)}): {line}")
                continue
            if isinstance(p.type, ListOf) and _is_list_of_arrays(p.type):
                own = "_tuple" if p.type.is_tuple else "_list"
                line = f"if _type({p.name}) is not {own}: {line}"
            is_maybe = isinstance(p.type, Maybe)
            early.append(f"if {p.name} is not None: {line}" if is_maybe else line)
        return early, late

    # ---- arrays of NumPy ----

    def _fast_path(self, share: float) -> list[str]:
        types = [p.type for p in self.schema.parameters]
        if not has_fast_path(self.op) or not all(map(_has_guard, types)):
            return []
        guard = " and ".join([*self._guards(), "not _modes", *self._shape_guards()])
        lines = [f"if {guard}:"]
        if share:
            draw = f"{self.bind('_random', config.random)}() < {share!r}"
            drawn = f"{self.bind('_drawn', Drawn)}(({self.values}))"
            lines.append(f"    if {draw}: return _dispatch(_op, {drawn})")
        return [*lines, *(f"    {line}" for line in self._kernel_call())]

    def _kernel_call(self) -> list[str]:
        schema = self.schema
        keywords = [f"{p.name}={p.name}" for p in schema.keyword_only]
        call = (
            f"_kernel({', '.join([*(p.name for p in schema.positional), *keywords])})"
        )
        if not schema.written:
            return [f"return {call}"]
        out = self.bind("_out", None)
        done = self.bind("_after_write", note_writes)
        written = "".join(f"{name}, " for name in schema.written)
        return [f"{out} = {call}", f"{done}(({written}))", f"return {out}"]

    def _guards(self) -> list[str]:
        types = [p.type for p in self.schema.parameters]
        found = [text for text in map(self._guard, self.schema.parameters) if text]
        names = [p.name for p in self.schema.parameters if _may_hold_sizes(p.type)]
        found += sizes_guard(names, self.bind)
        if not any(map(is_array_type, types)):
            # No other guard shows whether the fast path is open.
            found.insert(0, f"_array is not {self.bind('_never', Never)}")
        return found

    def _guard(self, p: Parameter) -> str:
        text = self._guard_of(p.name, _present(p.type))
        is_maybe = isinstance(p.type, Maybe) and text
        return f"({p.name} is None or {text})" if is_maybe else text

    def _guard_of(self, name: str, declared: SchemaType) -> str:
        if isinstance(declared, ArrayType):
            if not declared.or_number:
                return f"_type({name}) is _array"
            numbers = self.bind("_numbers", NUMBERS)
            return f"(_type({name}) is _array or _type({name}) in {numbers})"
        if isinstance(declared, ListOf) and _is_list_of_arrays(declared):
            fits = _arrays_or_none if isinstance(declared.item, Maybe) else _all_arrays
            return f"{self.bind(fits.__name__, fits)}({name})"
        if not needs_guard(declared):
            return ""
        if declared == SCALAR:
            return f"_type({name}) in {self.bind('_numbers', NUMBERS)}"
        exact = exact_class(declared)  # type: ignore[arg-type]  # a Base: needs_guard says so
        return f"_type({name}) is {self.bind(f'_{exact.__name__}', exact)}"

    def _shape_guards(self) -> list[str]:
        if not self.schema.has_shapes:
            return []
        name, schema = self.op.qualname, self.schema
        found: list[str] = shape_guards.shape_guards(
            schema,
            self.bind,
            lambda args: shape_check.argument_fault(name, schema, args) is None,
        )
        return found

    # ---- all other arguments ----

    def _slow_path(self) -> list[str]:
        lines = []
        schema, slot = self.schema, self.op.list_slot
        check = schema.has_shapes and shape_guards.argument_check(
            self.op.qualname, schema
        )
        if check:
            lines.append(f"{self.bind('_check_shapes', check)}(({self.values}))")
        if has_fast_path(self.op):
            lines += self._to_plans() if slot < 0 else self._to_list_plan(slot)
        return [*lines, f"return _dispatch(_op, ({self.values}))"]

    def _to_plans(self) -> list[str]:
        """With tracers of one transform it is known: go straight to its plan.

        200 ns less than by `dispatch`, where modes, the dead and first calls still go.
        """
        schema = self.schema
        arrays = [schema.parameters[slot].name for slot in schema.array_slots]
        nested = [schema.parameters[slot] for slot in schema.nested_slots]
        gives_views = any(r.alias is not None for r in schema.returns)
        most = 1 if gives_views or nested else _MOST_ARRAYS
        fits = all(_is_list_of_arrays(p.type) for p in nested)
        if not fits or not 1 <= len(arrays) <= most:
            return []
        plan, top = self.bind("_plan", None), self.bind("_top", None)
        lists = [
            f"{self.bind('_all_constants', all_constants)}({p.name})" for p in nested
        ]
        lines = []
        for name in arrays:
            rest = [self._is_alike(other, name) for other in arrays if other != name]
            tests = [f"{top}.runs_plans", *rest, *lists]
            lines += [
                f"{plan} = _plans.get(_type({name}))",
                f"if {plan} is not None and not _modes:",
                f"    {top} = {name}.interpreter",
                f"    if {' and '.join(tests)}:",
                f"        return {plan}({top}, ({self.values}))",
            ]
        return lines

    def _is_alike(self, name: str, tracer: str) -> str:
        """Return the condition that an argument is a constant, or of a tracer's transform."""
        return (
            f"(_type({name}) in {self.bind('_constants', _constants)}"
            f" or _type({name}) is _type({tracer})"
            f" and {name}.interpreter is {self.bind('_top', None)})"
        )

    def _to_list_plan(self, slot: int) -> list[str]:
        """Do as `_to_plans`, for tracers in a list."""
        plan, top = self.bind("_plan", None), self.bind("_top", None)
        top_of = self.bind("_top_of", _top_of)
        return [
            f"{top} = None if _modes else {top_of}({self.schema.parameters[slot].name})",
            f"if {top} is not None:",
            f"    {plan} = _plans.get({top}.tracer_class)",
            f"    if {plan} is not None: return {plan}({top}, ({self.values}))",
        ]


# ---- guards: values that the fast path, or a plan, takes ----


NUMBERS = frozenset((float, int, bool, complex))
# Classes of arguments that no transform tracks.
_constants = frozenset((np.ndarray, *NUMBERS, np.float64, np.float32, type(None)))
_only_arrays = {np.ndarray}
_arrays_and_scalars = {np.ndarray, np.float64, np.float32, np.complex128}
_arrays_and_none = {np.ndarray, type(None)}


def sizes_guard(names: Iterable[str], bind: Callable[[str, Any], str]) -> list[str]:
    """Return the condition that values hold no symbolic sizes, which kernels do not know."""
    test = " or ".join([f"{bind('_has_sizes', has_sizes)}({name})" for name in names])
    return [f"not ({bind('_made', made)} and ({test}))"] if test else []


def all_constants(values: Any) -> bool:
    """Return whether a list or tuple holds nothing that a transform tracks."""
    return _constants.issuperset(map(type, values))


def _all_arrays(values: Any) -> bool:
    """Return whether a list holds at least one array, and only plain ones or scalars."""
    return bool(values) and _arrays_and_scalars.issuperset(map(type, values))


def _arrays_or_none(values: Any) -> bool:
    """Return whether a list holds at least one array, and only plain ones and None."""
    return _only_arrays <= {*map(type, values)} <= _arrays_and_none


def _top_of(values: Any) -> Any:
    """Return the transform of all tracers in a list, if it runs plans; else None."""
    top = None
    for value in values:
        if type(value) not in _constants:
            if kind_of[type(value)] is not TRACED:
                return None
            if top is None:
                top = value.interpreter
            elif value.interpreter is not top:
                return None
    return top if top is not None and top.runs_plans else None


# ---- schema types as guards see them ----


def _has_guard(declared: SchemaType) -> bool:
    """Return whether the fast path can take a parameter of this type."""
    is_one = not holds_arrays(declared) or is_single_array(declared)
    return is_one or _is_list_of_arrays(declared)


def _is_list_of_arrays(declared: SchemaType) -> bool:
    """Return whether a type is a list of arrays, also with None in place of some."""
    return isinstance(declared, ListOf) and is_array_type(_present(declared.item))


def _present(declared: SchemaType) -> SchemaType:
    """Return the type of a value that is not None."""
    return declared.item if isinstance(declared, Maybe) else declared


def _may_hold_sizes(declared: SchemaType) -> bool:
    """Return whether a value of this type may be a list of symbolic sizes."""
    return not needs_guard(declared) and any(map(needs_guard, parts(declared)))
