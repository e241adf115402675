"""Source of the function that a call runs, made from the schema."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from customop.arrays.kinds import TRACED, kind_of
from customop.core.table import Never, Plans, RuleTable
from customop.errors import GENERATED, shorten
from customop.frozen import Frozen
from customop.later import later
from customop.schema.coerce import coercion, exact_class, needs_guard
from customop.schema.schema import Schema
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


_versions = itertools.count(1)
# Files of functions that are gone. A function may go at any time, also while the standard
# library goes over the files, which fails if one is missing then (Python 3.11).
_gone: deque[str] = deque()


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
        """A name for a value that no parameter hides."""
        while name in self.taken:
            name = f"_{name}"
        self.names[name] = value
        return name


def generate(title: str, text: str, name: str, names: dict[str, Any]) -> Any:
    """Run source text and return one name that it defines; tracebacks show its lines."""
    # A NUL is an error, and a line break ends a line of tracebacks.
    if not title.isprintable():
        title = repr(title)[1:-1]
    filename = f"{GENERATED}{title} {next(_versions)}>"
    exec(compile(text, filename, "exec"), names)  # noqa: S102  # text of our own
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    made = names[name]
    weakref.finalize(made, _gone.append, filename).atexit = False
    _forget_files()
    return made


def _forget_files() -> None:
    with suppress(IndexError):  # there are no more
        while True:
            linecache.cache.pop(_gone.popleft(), None)


# ---- source of the function that a call runs, made from the schema ----
# The function has the operator's own parameters. One guard, made of exact types, leads
# straight to the cpu kernel; all else is coerced and goes to `dispatch`, which is the
# specification. Measured on CPython 3.11.7: 40 ns over the kernel as a plain function,
# 80 ns as a call of the operator object.


_numbers = frozenset((float, int, bool, complex))
# Classes of arguments that no transform tracks.
_constants = frozenset((np.ndarray, *_numbers, np.float64, np.float32, type(None)))
_only_arrays = {np.ndarray}
_arrays_and_scalars = {np.ndarray, np.float64, np.float32, np.complex128}
_arrays_and_none = {np.ndarray, type(None)}


class Drawn(tuple[Any, ...]):
    """Values of a call that the fast path has drawn for a proof."""

    __slots__ = ()


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


def _all_arrays(values: Any) -> bool:
    """Whether a list or tuple holds at least one array, and only plain ones or scalars."""
    return bool(values) and _arrays_and_scalars.issuperset(map(type, values))


def _arrays_or_none(values: Any) -> bool:
    """Whether a list or tuple holds at least one array, and only plain arrays and None."""
    return _only_arrays <= {*map(type, values)} <= _arrays_and_none


def all_constants(values: Any) -> bool:
    """Whether a list or tuple holds nothing that a transform tracks."""
    return _constants.issuperset(map(type, values))


class _Source(GlobalNames):
    """Source text of one call under construction, and the names it uses."""

    def __init__(self, name: str, qualname: str, schema: Schema) -> None:
        super().__init__([name, *(p.name for p in schema.parameters)])
        self.name = name
        self.qualname = qualname
        self.schema = schema


def compile_call(
    qualname: str,
    name: str,
    schema: Schema,
    dispatch: Callable[[Any, tuple[Any, ...]], Any],
    op: RuleTable,
    *,
    modes: list[Any],
    has_fast_path: bool,
    after_write: Callable[[tuple[Any, ...]], None],
    share: float,
    random: Callable[[], float] | None,
) -> GeneratedCall:
    """The functions of a call.

    Where `share` is not zero, that share of calls leaves the fast path by chance.
    """
    source = _Source(name, qualname, schema)
    text, run = _write(source, has_fast_path, after_write, share, random, op.list_slot)
    # Renamed, since a parameter may be called `type` or `list`.
    source.names["_type"] = type
    source.names["_list"] = list
    source.names["_tuple"] = tuple
    source.names["_dispatch"] = dispatch
    source.names["_op"] = op
    source.names["_modes"] = modes
    source.names["_plans"] = op.plans.by_tracer
    source.names.setdefault("_array", Never)
    source.names.setdefault("_kernel", None)
    call = generate(qualname, text, name, source.names)
    call.__module__ = __name__
    # Python's errors about missing, extra and unknown arguments begin with this, so they
    # show what the operator takes. To catch them would cost each call 10 to 30 ns.
    call.__qualname__ = f"{qualname}({_parameters(source, _shown_default)}): {name}"
    return GeneratedCall(call, source.names[run], text)


def without_signature(call: Callable[..., Any], error: TypeError) -> str:
    """The text of Python's error about the arguments of a call, for beside a schema."""
    signature, space, _ = getattr(call, "__qualname__", "").rpartition(" ")
    return str(error).removeprefix(signature + space)


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


def is_open(call: Callable[..., Any]) -> bool:
    """Whether the fast path of a call is open."""
    return isinstance(call, FunctionType) and (
        call.__globals__.get("_array") is np.ndarray
    )


def _write(
    source: _Source,
    has_fast_path: bool,
    after_write: Callable[..., None],
    share: float,
    random: Callable[[], float] | None,
    list_slot: int,
) -> tuple[str, str]:
    """The source text, and the name in it of the function without coercions."""
    schema = source.schema
    names = "".join(f"{p.name}, " for p in schema.parameters)
    early, late = _early_coercions(source), _late_coercions(source)
    fast = []
    if has_fast_path and all(_has_guard(p.type) for p in schema.parameters):
        guard = " and ".join([*_guards(source), "not _modes", *_shape_guards(source)])
        fast = [f"if {guard}:"]
        if share:
            draw = f"{source.bind('_random', random)}() < {share!r}"
            drawn = f"{source.bind('_drawn', Drawn)}(({names}))"
            fast.append(f"    if {draw}: return _dispatch(_op, {drawn})")
        fast += [f"    {line}" for line in _kernel_call(source, after_write)]
    rest = []
    check = schema.has_shapes and shape_guards.argument_check(source.qualname, schema)
    if check:
        rest.append(f"{source.bind('_check_shapes', check)}(({names}))")
    if has_fast_path and list_slot >= 0:
        rest += _to_list_plan(source, schema.parameters[list_slot].name, names)
    elif has_fast_path and all(
        _is_list_of_arrays(schema.parameters[i].type) for i in schema.nested_slots
    ):
        rest += _to_plans(source, names)
    rest.append(f"return _dispatch(_op, ({names}))")
    text = _function(
        source,
        source.name,
        _parameters(source, _with_default),
        [*early, *fast, *late, *rest],
    )
    if not early and not schema.keyword_only:
        return text, source.name
    run = source.bind("_run", None)
    return text + "\n" + _function(source, run, names, [*fast, *rest]), run


def _function(source: _Source, name: str, parameters: str, body: list[str]) -> str:
    error = source.bind("_error", None)
    return "\n".join(
        [
            f"def {name}({parameters}):",
            "    try:",
            *[f"        {line}" for line in body],
            f"    except Exception as {error}:",
            f"        {source.bind('_shorten', shorten)}({error})",
            "        raise\n",
        ]
    )


def _to_plans(source: _Source, names: str) -> list[str]:
    """With tracers of one transform it is known: go straight to its plan.

    200 ns less than by `dispatch`, where modes, the dead and first calls still go.
    """
    schema = source.schema
    arrays = [schema.parameters[slot].name for slot in schema.array_slots]
    gives_views = any(r.alias is not None for r in schema.returns)
    is_alone = gives_views or schema.nested_slots
    if not 1 <= len(arrays) <= (1 if is_alone else _MOST_ARRAYS):
        return []
    plan, top = source.bind("_plan", None), source.bind("_top", None)
    lists = [
        f"{source.bind('_all_constants', all_constants)}({schema.parameters[i].name})"
        for i in schema.nested_slots
    ]
    lines = []
    for name in arrays:
        rest = [_is_alike(source, other, name) for other in arrays if other != name]
        rest += lists
        lines += [
            f"{plan} = _plans.get(_type({name}))",
            f"if {plan} is not None and not _modes:",
            f"    {top} = {name}.interpreter",
            f"    if {' and '.join([f'{top}.runs_plans', *rest])}:",
            f"        return {plan}({top}, ({names}))",
        ]
    return lines


def _to_list_plan(source: _Source, name: str, names: str) -> list[str]:
    """As `_to_plans`, for tracers in a list."""
    plan, top = source.bind("_plan", None), source.bind("_top", None)
    top_of = source.bind("_top_of", _top_of)
    return [
        f"{top} = None if _modes else {top_of}({name})",
        f"if {top} is not None:",
        f"    {plan} = _plans.get({top}.tracer_class)",
        f"    if {plan} is not None: return {plan}({top}, ({names}))",
    ]


def _top_of(values: Any) -> Any:
    """The transform of all tracers in a list, if it runs plans; else None."""
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


# The text grows with the square of the number of arrays.
_MOST_ARRAYS = 3


def _is_alike(source: _Source, name: str, tracer: str) -> str:
    """The condition that an argument is a constant, or of the transform of a tracer."""
    constants = source.bind("_constants", _constants)
    return (
        f"(_type({name}) in {constants} or _type({name}) is _type({tracer})"
        f" and {name}.interpreter is {source.bind('_top', None)})"
    )


def _parameters(
    source: _Source, with_default: Callable[[_Source, Parameter], str]
) -> str:
    texts: list[str] = []
    previous = ""
    for p in source.schema.parameters:
        if previous == POSITIONAL_ONLY and p.kind != POSITIONAL_ONLY:
            texts.append("/")
        if p.kind == KEYWORD_ONLY and previous != KEYWORD_ONLY:
            texts.append("*")
        texts.append(p.name if p.default is MISSING else with_default(source, p))
        previous = p.kind
    return ", ".join([*texts, "/"] if previous == POSITIONAL_ONLY else texts)


def _with_default(source: _Source, p: Parameter) -> str:
    value = p.default
    plain = value is None or type(value) in (int, bool, str)
    if plain or (type(value) is float and value - value == 0.0):
        return f"{p.name}={value!r}"
    return f"{p.name}={source.bind(f'_default_{p.name}', value)}"


def _shown_default(_: _Source, p: Parameter) -> str:
    return f"{p.name}={print_value(p.default, p.type)}"


def _coerce_name(source: _Source, p: Parameter) -> str:
    return source.bind(f"_coerce_{p.name}", coercion(source.qualname, source.schema, p))


def _has_guard(declared: SchemaType) -> bool:
    """Whether the fast path can take a parameter of this type."""
    return (
        not holds_arrays(declared)
        or is_single_array(declared)
        or _is_list_of_arrays(declared)
    )


def _is_list_of_arrays(declared: SchemaType) -> bool:
    """Whether a type is a list of arrays, with None in place of some if it says so."""
    return isinstance(declared, ListOf) and is_array_type(_present(declared.item))


def _present(declared: SchemaType) -> SchemaType:
    """The type of a value that is not None."""
    return declared.item if isinstance(declared, Maybe) else declared


def _early_coercions(source: _Source) -> list[str]:
    """Coercions that a guard on the class cannot replace: lists, dtypes, devices."""
    lines = []
    for p in source.schema.parameters:
        if is_single_array(p.type) or needs_guard(p.type):
            continue
        line = f"{p.name} = {_coerce_name(source, p)}({p.name})"
        if isinstance(p.type, ListOf) and _is_list_of_arrays(p.type):
            own = "_tuple" if p.type.is_tuple else "_list"
            line = f"if _type({p.name}) is not {own}: {line}"
        if isinstance(p.type, Maybe):
            line = f"if {p.name} is not None: {line}"
        lines.append(line)
    return lines


def _late_coercions(source: _Source) -> list[str]:
    lines = []
    for p in source.schema.parameters:
        if needs_guard(p.type):
            call = f"{p.name} = {_coerce_name(source, p)}({p.name})"
            lines.append(f"if not ({_guard(source, p)}): {call}")
    return lines


def _guards(source: _Source) -> list[str]:
    guards = [_guard(source, p) for p in source.schema.parameters]
    found = [guard for guard in guards if guard]
    listed = [p.name for p in source.schema.parameters if _may_hold_sizes(p.type)]
    if listed:  # of symbolic sizes a kernel of real arrays knows nothing
        has = source.bind("_has_sizes", has_sizes)
        test = " or ".join(f"{has}({name})" for name in listed)
        found.append(f"not ({source.bind('_made', made)} and ({test}))")
    if not any(is_array_type(p.type) for p in source.schema.parameters):
        # No other guard shows whether the fast path is open.
        found.insert(0, f"_array is not {source.bind('_never', Never)}")
    return found


def _may_hold_sizes(declared: SchemaType) -> bool:
    """Whether a value of this type may be a list of symbolic sizes."""
    return not needs_guard(declared) and any(map(needs_guard, parts(declared)))


def _guard(source: _Source, p: Parameter) -> str:
    text = _guard_of(source, p.name, _present(p.type))
    is_maybe = isinstance(p.type, Maybe) and text
    return f"({p.name} is None or {text})" if is_maybe else text


def _guard_of(source: _Source, name: str, declared: SchemaType) -> str:
    if isinstance(declared, ArrayType):
        if not declared.or_number:
            return f"_type({name}) is _array"
        numbers = source.bind("_numbers", _numbers)
        return f"(_type({name}) is _array or _type({name}) in {numbers})"
    if isinstance(declared, ListOf) and _is_list_of_arrays(declared):
        fits = _arrays_or_none if isinstance(declared.item, Maybe) else _all_arrays
        return f"{source.bind(fits.__name__, fits)}({name})"
    if not needs_guard(declared):
        return ""
    if declared == SCALAR:
        return f"_type({name}) in {source.bind('_numbers', _numbers)}"
    exact = exact_class(declared)  # type: ignore[arg-type]  # a Base: needs_guard says so
    return f"_type({name}) is {source.bind(f'_{exact.__name__}', exact)}"


def _shape_guards(source: _Source) -> list[str]:
    if not source.schema.has_shapes:
        return []
    found: list[str] = shape_guards.shape_guards(
        source.schema,
        source.bind,
        lambda args: (
            shape_check.argument_fault(source.qualname, source.schema, args) is None
        ),
    )
    return found


def _kernel_call(source: _Source, after_write: Callable[..., None]) -> list[str]:
    schema = source.schema
    positional = [p.name for p in schema.positional]
    keywords = [f"{p.name}={p.name}" for p in schema.keyword_only]
    call = f"_kernel({', '.join([*positional, *keywords])})"
    if not schema.written:
        return [f"return {call}"]
    out = source.bind("_out", None)
    done = source.bind("_after_write", after_write)
    written = "".join(f"{name}, " for name in schema.written)
    return [f"{out} = {call}", f"{done}(({written}))", f"return {out}"]
