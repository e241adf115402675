"""What kernels must keep: results that fit the schema, memory, and layouts."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.lib.array_utils import byte_bounds

from customop.arrays.array import axis_order, strides_of
from customop.arrays.fake import FakeArray, to_fake
from customop.arrays.kinds import (
    CPU,
    FAKE,
    SCALAR,
    TRACED,
    has_device,
    has_memory,
    is_array,
    is_traced,
    kind_of,
)
from customop.arrays.nested import children, describe, flat, map_nested, show, steps
from customop.core.table import RuleTable
from customop.core.tracer import sealed
from customop.errors import ContractError, place
from customop.later import later
from customop.schema.coerce import Mismatch, NestedType, Visitor, exact_class
from customop.schema.schema import Schema
from customop.schema.types import (
    Alias,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    SchemaType,
    TupleOf,
)

zlib: ModuleType = later(import_module, "zlib")
shape_check: ModuleType = later(import_module, "customop.schema.shape_check")

# ---- the results of kernels and rules, compared with the schema ----


VMAP_RULE, JVP_RULE, COMPOSITE_RULE = "vmap rule", "jvp rule", "rule"
_RULES = (VMAP_RULE, JVP_RULE, COMPOSITE_RULE)


def check_returns(
    op: RuleTable, kernel: Callable[..., Any], out: Any, kind: str
) -> list[Any]:
    """Check that results fit the schema in number, type and kind; return them one by one.

    `kind` is the kind of the kernel's arrays, or one of `_RULES`, whose arrays may be of
    any kind.
    """
    schema: Schema = op.schema
    if not schema.returns:
        if out is not None:
            raise _wrong_return(
                op, kernel, kind, f"returns {show(out)}, must return None"
            )
        return []
    if not schema.is_tuple:
        values = [out]
    elif isinstance(out, tuple) and len(out) == len(schema.returns):
        values = list(out)
    else:
        got = f"{len(out)} items" if isinstance(out, tuple) else show(out)
        reason = f"returns {got}, must return a tuple of {len(schema.returns)}"
        raise _wrong_return(op, kernel, kind, reason)
    checker = _Results(kind)
    for i, (r, value) in enumerate(zip(schema.returns, values, strict=True)):
        reason = checker.fault(value, r.type)
        if reason:
            raise _wrong_return(op, kernel, kind, f"returns output {i} {reason}")
    return values


def check_shapes(
    op: RuleTable, kernel: Callable[..., Any], kind: str, args: Sequence[Any], out: Any
) -> None:
    """Raise unless results, which fit the schema in number and type, fit its shapes."""
    schema: Schema = op.schema
    values = list(out) if schema.is_tuple else [out] if schema.returns else []
    reason = shape_check.check_results(schema, args, values)
    if reason:
        raise _wrong_return(op, kernel, kind, f"returns {reason}")


def _wrong_return(
    op: RuleTable, kernel: Callable[..., Any], kind: str, reason: str
) -> ContractError:
    is_rule = kind in _RULES
    name = kind if is_rule else f"'{kind}' kernel"
    return op.error(
        ContractError,
        f"the {name} {reason}",
        f"{'rule' if is_rule else 'kernel'} at {place(kernel)}",
        do="return what the schema says"
        if is_rule
        else "return what the schema says, or change the annotation of the result",
        kind=kind,
    )


class _Results(Visitor):
    """Results of a kernel for one kind of array, or of a rule."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def array(self, value: Any, declared: ArrayType) -> None:
        found = kind_of[type(value)]
        if found is None:
            raise Mismatch(f"as {show(value)}, must be an array")
        # NumPy reductions and operators on 0-d arrays give NumPy scalars.
        if (
            self.kind in _RULES
            or found is TRACED
            or found.name == self.kind
            or (found is SCALAR and self.kind == "cpu")
            or (found in (CPU, SCALAR) and self.kind == FAKE)
        ):
            return
        raise Mismatch(
            f"as {describe(value)} of the kind '{found}', must be of the kind"
            f" '{self.kind}'"
        )

    def base(self, value: Any, declared: Base) -> None:
        exact = exact_class(declared)
        if isinstance(value, exact) and not (exact is int and isinstance(value, bool)):
            return
        if not isinstance(value, _FITTING.get(declared.name, ())):
            raise _unfit(value, declared)

    def choice(self, value: Any, declared: Choice) -> None:
        options = declared.options
        if type(value) is not type(options[0]) or value not in options:
            raise _unfit(value, declared)

    def member(self, value: Any, declared: ClassOf) -> None:
        if not isinstance(value, declared.cls):
            raise _unfit(value, declared)

    def open(self, value: Any, declared: NestedType) -> Any:
        if not _is_nested_as(value, declared):
            raise _unfit(value, declared)
        count = len(declared.items) if isinstance(declared, TupleOf) else None
        count = declared.length if isinstance(declared, ListOf) else count
        if count is not None and count != len(value):
            raise Mismatch(f"with {len(value)} items, must be {declared}")
        return value


# Type -> further classes of results.
_FITTING: dict[str, tuple[type, ...]] = {
    "Scalar": (int, float, complex, np.number),
    "int": (np.integer,),
    "bool": (np.bool_,),
}


def _unfit(value: Any, declared: SchemaType) -> Mismatch:
    return Mismatch(f"as {show(value)}, must be {declared}")


def _is_nested_as(value: Any, declared: NestedType) -> bool:
    """Return whether a result is a list or tuple as its type is."""
    if isinstance(declared, ListOf | TupleOf):
        return isinstance(value, list | tuple)
    if isinstance(declared, DictOf):
        return type(value) is dict and all(isinstance(key, str) for key in value)
    if declared.fields.is_dict:
        keys = set(value) if type(value) is dict else {None}
        return declared.fields.required <= keys <= set(declared.items)
    return type(value) is declared.cls


def finish_fake(op: RuleTable, kernel: Callable[..., Any], out: Any) -> Any:
    """Check the number and types of fake results, and make all their arrays fake."""
    if type(out) is FakeArray and op.schema.single_return:
        return out
    check_returns(op, kernel, out, FAKE)
    return map_nested(out, to_fake) if out is not None else None


# ---- layouts of arrays: the order of their axes in memory, and their strides ----


def has_certain_order(leaves: Sequence[Any]) -> bool:
    """Return whether a fake kernel can know the order of the axes of a result.

    It can if all arguments lie in C order and none is broadcast against another. For
    other arguments each of NumPy's functions has its own rule: ``x.copy()`` gives C
    order, and ``x * 2`` the order of `x`.
    """
    arrays = [v for v in leaves if has_device(v)]
    if any(is_broadcast(v) or not _in_c_order(v) for v in arrays):
        return False
    shapes = {tuple(v.shape) for v in arrays if len(v.shape)}
    return len(shapes) < 2 or not _fit_together(shapes)


def _in_c_order(value: Any) -> bool:
    order = _long_axes(tuple(value.shape), strides_of(value))
    return order == sorted(order)


def _fit_together(shapes: Iterable[tuple[int, ...]]) -> bool:
    """Return whether two of these shapes broadcast against each other."""
    return any(
        all(a == b or 1 in (a, b) for a, b in zip(x[::-1], y[::-1], strict=False))
        for x, y in itertools.combinations(shapes, 2)
    )


def is_broadcast(value: Any) -> bool:
    """Return whether elements share memory, because the stride of an axis is 0."""
    if not has_device(value):
        return False
    pairs = zip(value.shape, strides_of(value), strict=True)
    return any(stride == 0 and length > 1 for length, stride in pairs)


def _long_axes(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Return the axes longer than one, in their order in memory."""
    return [axis for axis in axis_order(shape, strides) if shape[axis] > 1]


def differ_in_order(real: Any, fake: Any) -> bool:
    """Return whether the axes longer than one have different orders in memory."""
    if not has_device(real) or not real.size:
        return False
    shape = tuple(real.shape)
    first, second = (_long_axes(shape, strides_of(x)) for x in (real, fake))
    return first != second


def differ_in_strides(real: Any, fake: Any) -> bool:
    """Return whether the axes longer than one have different strides."""
    if not has_device(real) or not real.size:
        return False
    triples = zip(real.shape, strides_of(real), strides_of(fake), strict=True)
    return any(length > 1 and a != b for length, a, b in triples)


# A global of ours is found faster than an attribute of NumPy.
_ndarray = np.ndarray


# ---- values that are protected, copied and compared ----


def readonly(value: Any) -> Any:
    """Protect a value from writes: NumPy's arrays become read-only views, tracers are sealed."""
    if type(value) is not _ndarray:
        if is_traced(value):
            return sealed(value)
        if not isinstance(value, np.ndarray):
            return value
    if not value.flags.writeable:
        return value
    view = value.view()
    view.setflags(write=False)
    return view


def copied(value: Any) -> Any:
    """Copy a NumPy array in its memory order; return other values unchanged."""
    return value.copy("K") if isinstance(value, np.ndarray) else value


def equal(a: Any, b: Any) -> bool:
    """Return whether two NumPy arrays are equal; other values always are."""
    if not isinstance(a, np.ndarray):
        return True
    return bool(
        np.array_equal(a.view(np.ndarray), b.view(np.ndarray)) or _same_bytes(a, b)
    )


def _same_bytes(a: Any, b: Any) -> bool:
    """Return whether arrays have the same bytes, so that nan equals nan."""
    return bool(np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes())


def checksum(value: Any) -> int | None:
    """Return a checksum of an array's bytes; None for a value that is not compared.

    Not compared are values whose memory neither NumPy nor a copy on the host can read,
    and arrays of objects, which may change while their bytes stay the same.
    """
    if not isinstance(value, np.ndarray):
        kind = kind_of[type(value)]
        if kind is None or not kind.has_memory or kind.to_numpy is None:
            return None
        value = kind.to_numpy(value)
    if value.dtype.hasobject or not value.size:
        return None
    return int(zlib.crc32(np.ascontiguousarray(value).view(np.uint8).data))


# ---- arrays that share memory ----


def shared_results(
    schema: Schema, args: Sequence[Any], values: Sequence[Any]
) -> Iterator[tuple[int, str, str]]:
    """Yield results that share memory although the schema does not say so.

    Each comes as its number among the arrays of all results, its name in messages, and
    the name of what it shares memory with.
    """
    named = [
        (f"argument '{p.name}'", p.alias, array)
        for p, value in zip(schema.parameters, args, strict=True)
        for _, array in _arrays_in(p.name, value)
    ]
    results = [
        (name, r.alias, array)
        for i, (r, value) in enumerate(zip(schema.returns, values, strict=True))
        for name, array in _arrays_in(f"output {i}", value)
    ]
    every = [array for *_, array in (*named, *results)]
    groups = memory_groups(every) if len(every) > _FEW else [0] * len(every)
    # Group -> alias -> its arrays so far. Arrays of one alias may share memory.
    seen: dict[int, dict[str | None, list[tuple[str, Any]]]] = {}
    for i, (name, alias, array) in enumerate((*named, *results)):
        key = alias.name if alias else None
        near = seen.setdefault(groups[i], {})
        if i >= len(named):
            for other, earlier in _of_other_alias(near, key):
                if not share_memory(array, earlier):
                    continue
                # For an array that is passed twice, either parameter may name the alias.
                if not any(
                    _is_same(alias, free) and share_memory(earlier, argument)
                    for _, free, argument in named
                ):
                    yield i - len(named), name, other
                    break
        near.setdefault(key, []).append((name, array))


# So many arrays are compared in less time than they are put into groups.
_FEW = 4


def _of_other_alias(
    near: Mapping[str | None, Iterable[tuple[str, Any]]], key: str | None
) -> Iterator[tuple[str, Any]]:
    """Yield the arrays that a result of this alias must not share memory with."""
    for alias, arrays in near.items():
        if key is None or alias != key:
            yield from arrays


def _is_same(first: Alias | None, second: Alias | None) -> bool:
    return first is not None and second is not None and first.name == second.name


def with_copies(out: Any, shared: Collection[int]) -> Any:
    """Copy the arrays of a result that have these numbers."""
    shared = frozenset(shared)
    numbers = itertools.count()

    def own(value: Any) -> Any:
        return value.copy() if next(numbers) in shared else value

    return map_nested(out, lambda v: own(v) if has_memory(v) else v)


def _arrays_in(name: str, value: Any) -> list[tuple[str, Any]]:
    """List the arrays inside a value, each with its path in lists and config objects."""
    found = children(value)
    if found is not None:
        items = zip(steps(value), found, strict=True)
        return [pair for i, v in items for pair in _arrays_in(f"{name}, item {i}", v)]
    return [(name, value)] if has_memory(value) else []


def share_memory(a: Any, b: Any) -> bool:
    """Return whether two arrays share memory; arrays without elements never do.

    Disjoint views of one buffer count as sharing, as they do for torch: a write to
    the buffer reaches both.
    """
    if 0 in a.shape or 0 in b.shape:
        return False
    if owner(a) is owner(b):
        return True
    return (
        isinstance(a, np.ndarray)
        and isinstance(b, np.ndarray)
        and bool(np.may_share_memory(a, b))
    )


def memory_groups(arrays: Sequence[Any]) -> list[int]:
    """Return the number of a group for each array; only arrays of one group share memory.

    To compare each of 4,000 arrays with each other takes seconds. Arrays are in one group
    if they have one owner, or if their ranges of addresses are connected.
    """
    # Each group is a tree of positions; the root is the number of the group.
    parents = list(range(len(arrays)))

    def root(i: int) -> int:
        while parents[i] != i:
            parents[i] = i = parents[parents[i]]
        return i

    owners: dict[int, int] = {}
    ranges = []
    for i, array in enumerate(arrays):
        parents[i] = owners.setdefault(id(owner(array)), i)
        if isinstance(array, np.ndarray) and array.size:
            ranges.append((*byte_bounds(array), i))
    ranges.sort()
    end = last = 0
    for low, high, i in ranges:
        if low < end:
            parents[root(i)] = root(last)
        if high > end:
            end, last = high, i
    return [root(i) for i in range(len(arrays))]


def owner(array: Any) -> Any:
    """Return the array that owns the memory of a view, for NumPy and CuPy."""
    base = getattr(array, "base", None)
    while base is not None and is_array(base):
        array, base = base, getattr(base, "base", None)
    return array


# ---- which arrays operators have written, and when ----


def written_of(schema: Schema, args: Sequence[Any]) -> list[Any]:
    """Return the arguments of a call that the schema marks as written."""
    pairs = zip(schema.parameters, args, strict=True)
    return [value for p, value in pairs if p.is_written]


# Numbers the nodes of reverse mode and the writes: later ones have higher numbers.
moments: itertools.count[int] = itertools.count(1)

# Memory written by an operator -> (weak reference, moment of the last write). Most
# readers only ask whether it is empty.
writes: dict[int, tuple[weakref.ref[Any], int]] = {}


def note_writes(values: Sequence[Any]) -> None:
    """Note that an operator has written these arrays."""
    for leaf in flat(list(values)):
        if has_memory(leaf):
            _note(owner(leaf))


def _note(array: Any) -> None:
    key = id(array)
    reference = weakref.ref(array, lambda _: writes.pop(key, None))
    writes[key] = (reference, next(moments))


def last_write(array: Any) -> int:
    """Return when an operator last wrote to the memory of an array; 0 means never."""
    if not has_memory(array):
        return 0
    known = writes.get(id(owner(array)))
    return known[1] if known is not None else 0


# NumPy's own messages where code writes to a read-only array (NumPy 2.4).
WRITE_ERRORS: Final = (
    "assignment destination is read-only",
    "output array is read-only",
    "sort array is read-only",
    "partition array is read-only",
    "array is read-only",
    "underlying array is read-only",
    "array to be byte-swapped is read-only",
    "operand array with iterator write flag set is read-only",
    "WRITEBACKIFCOPY base is read-only",
    "put: output array is read-only",
    "putmask: output array is read-only",
    "cannot modify read-only memory",
)
