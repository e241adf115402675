"""What a kernel promises by its schema, proven while it runs."""

from __future__ import annotations

import itertools
import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.annotations import (
    ARRAY,
    OPERAND,
    Base,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
)
from customop.coerce import exact_class, show
from customop.devices import FAKE, NUMPY_SCALAR, TRACED, kind_of
from customop.dispatch import flat, map_nested
from customop.errors import ContractError, CustomOpError, DataDependentError, place
from customop.fakearray import (
    FakeArray,
    axis_order,
    device_of,
    dtype_of,
    make_fake,
    strides_of,
)
from customop.protocols import abbreviated, describe
from customop.schema import Schema

__all__ = ["Proof", "finish_fake", "note_writes", "to_fake", "writes"]


class Proof:
    """One call of a kernel under proof.

    The kernel gets read-only views of the arrays that it must not write; its results
    are compared with the schema, with the memory of the arguments, and with what the
    fake kernel says.
    """

    __slots__ = (
        "args",
        "done",
        "error",
        "fake",
        "kernel",
        "kind",
        "op",
        "sums",
        "values",
        "views",
    )

    def __init__(
        self,
        op: Any,
        kernel: Callable[..., Any],
        kind: str,
        args: Sequence[Any],
        fake: Callable[..., Any] | None,
        done: Callable[[], None],
    ) -> None:
        self.op = op
        self.kernel = kernel
        self.kind = kind
        self.args = args
        self.fake = fake
        self.done = done
        self.error: Exception | None = None
        self.sums = self._checksums()
        self.views = args
        # What a result may alias must stay writable: the result is handed out.
        free = {r.alias.name for r in op.schema.returns if r.alias}
        given = zip(op.schema.parameters, args, strict=True)
        self.values = [
            v
            if p.is_written or (p.alias and p.alias.name in free)
            else map_nested(v, readonly)
            for p, v in given
        ]

    def _checksums(self) -> list[tuple[str, int]]:
        """Checksums of the arrays that must not be written, by parameter.

        Beside the read-only views, since `np.add.at` writes those too (NumPy 2.4), and
        code in C may.
        """
        pairs = zip(self.op.schema.parameters, self.args, strict=True)
        return [
            (p.name, zlib.crc32(np.ascontiguousarray(leaf).view(np.uint8).data))
            for p, value in pairs
            if not p.is_written
            for leaf in flat(value)
            if isinstance(leaf, np.ndarray) and leaf.size and not leaf.dtype.hasobject
        ]

    def _check_unwritten(self) -> None:
        for (name, before), (_, after) in zip(
            self.sums, self._checksums(), strict=True
        ):
            if before != after:
                raise self._undeclared(name)

    def _undeclared(self, name: str) -> ContractError:
        return self._breach(
            f"writes argument '{name}'" if name else "writes an argument",
            f"that mutates_args={self.op.schema.written!r} does not name",
            do=f"name it in mutates_args, or write into {name or 'x'}.copy()",
            parameter=name,
        )

    # ---- a kernel that refuses read-only arrays ----

    def concerns(self, error: Exception) -> bool:
        """Whether a kernel fails because the proof made an array read-only."""
        text = str(error).lower()
        if not any(word in text for word in ("read-only", "readonly", "writeable")):
            return False
        pairs = zip(flat(list(self.args)), flat(list(self.values)), strict=True)
        return any(mine is not view for mine, view in pairs)

    def copies(self, error: Exception) -> list[Any]:
        """Writable copies to run the kernel on again.

        Compiled kernels may refuse read-only arrays though they write none: what they
        do to copies tells.
        """
        self.error = error
        self.views = self.args
        self.args = [map_nested(v, _copy) for v in self.args]
        return self.args

    def _check_copies(self) -> None:
        """Raise if the kernel wrote what it must not; bring back what it may write."""
        changed = self._changed(self.args)
        if changed or str(self.error) in _WRITES:
            raise self._undeclared(changed) from self.error
        pairs = zip(flat(list(self.views)), flat(list(self.args)), strict=True)
        for mine, theirs in pairs:
            if isinstance(mine, np.ndarray) and not _equal(mine, theirs):
                mine[...] = theirs

    def _changed(self, copies: Sequence[Any]) -> str:
        for p, mine, theirs in zip(
            self.op.schema.parameters, self.views, copies, strict=True
        ):
            if p.is_written:
                continue
            pairs = zip(flat(mine), flat(theirs), strict=True)
            if not all(_equal(a, b) for a, b in pairs):
                return str(p.name)
        return ""

    # ---- results ----

    def check(self, out: Any) -> Any:
        """The result, once it is proven."""
        schema = self.op.schema
        if self.error is None:
            self._check_unwritten()
        else:
            self._check_copies()
        values = check_returns(self.op, self.kernel, out, self.kind)
        self._check_memory(schema, values)
        if self.fake is not None:
            self._check_fake(values)
        if schema.written:
            note_writes(self.views)
        self.done()
        return out

    def _check_memory(self, schema: Schema, values: Sequence[Any]) -> None:
        """Raise for memory that results share without the schema saying so."""
        seen = [
            (f"argument '{p.name}'", p.alias, array)
            for p, value in zip(schema.parameters, self.args, strict=True)
            for _, array in _named(p.name, value)
        ]
        for i, (r, value) in enumerate(zip(schema.returns, values, strict=True)):
            for name, array in _named(f"output {i}", value):
                for other, alias, earlier in seen:
                    declared = r.alias and alias and r.alias.name == alias.name
                    if not declared and _share(array, earlier):
                        raise self._shares(name, other)
                seen.append((name, r.alias, array))

    def _shares(self, name: str, other: str) -> ContractError:
        return self._breach(
            f"returns {name} that shares memory with {other}",
            "which its schema does not say",
            do="return a copy: out.copy()",
        )

    def _check_fake(self, values: Sequence[Any]) -> None:
        assert self.fake is not None
        schema = self.op.schema
        fakes = [map_nested(v, to_fake) for v in self.args]
        try:
            told = _call(schema, self.fake, fakes)
        except DataDependentError:
            return
        except CustomOpError:
            raise
        except Exception as error:
            raise self._breach(
                f"succeeds where the fake kernel raises {type(error).__name__}: {error}",
                f"fake kernel at {place(self.fake)}",
                do="make the fake kernel accept what the kernel accepts",
            ) from error
        expected = check_returns(self.op, self.fake, told, FAKE)
        ordered = not any(_is_broadcast(v) for v in flat(list(self.args)))
        for i, (real, fake) in enumerate(zip(values, expected, strict=True)):
            reals, fakes = flat(real), flat(fake)
            kinds = [[kind_of[type(v)] is None for v in vs] for vs in (reals, fakes)]
            if kinds[0] != kinds[1]:
                raise self._breach(
                    f"returns {_outline(reals)} as output {i}, its fake kernel"
                    f" {_outline(fakes)}",
                    f"fake kernel at {place(self.fake)}",
                    do="return as many arrays, and None in the same places",
                )
            for r, f in zip(reals, fakes, strict=True):
                self._compare(i, r, f, ordered)

    def _compare(self, index: int, real: Any, fake: Any, ordered: bool) -> None:
        if kind_of[type(real)] is None or kind_of[type(fake)] is None:
            return
        told = (tuple(fake.shape), fake.dtype, device_of(fake))
        seen = (tuple(real.shape), dtype_of(real), device_of(real))
        # Some libraries tell no strides, and copy what NumPy views and broadcasts.
        ordered = ordered and hasattr(real, "strides") and not _is_broadcast(fake)
        if told == seen and not (ordered and _other_order(real, fake)):
            return
        names = ("shape", "dtype", "device")
        wrong = [n for n, a, b in zip(names, told, seen, strict=True) if a != b]
        what = " and ".join(wrong) or "order of axes in memory"
        raise self._breach(
            f"returns {abbreviated(real)} with strides {strides_of(real)} on"
            f" {device_of(real)} as output {index}, its fake kernel"
            f" {abbreviated(fake)} with strides {strides_of(fake)} on {device_of(fake)}",
            f"they differ in {what}; fake kernel at"
            f" {place(self.fake) if self.fake else ''}",
            do="return fake_like(x, shape=..., dtype=...) with what the kernel returns"
            if wrong
            else 'let the kernel return np.asarray(out, order="C"), or the fake kernel the'
            " order that the kernel has: FakeArray(shape, dtype, strides)",
        )

    def _breach(
        self, what: str, *where: str, do: str, parameter: str = ""
    ) -> ContractError:
        return ContractError(
            f"{self.op.qualname}: the '{self.kind}' kernel {what}",
            *where,
            self.op.schema.show(self.op.qualname, parameter),
            f"kernel at {place(self.kernel)}",
            do=do,
            op=self.op.qualname,
            parameter=parameter or None,
            kind=self.kind,
        )


# What NumPy says when code of its own is about to write a read-only array, NumPy 2.4.
_WRITES = (
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


def _call(schema: Schema, kernel: Callable[..., Any], args: Sequence[Any]) -> Any:
    count = len(schema.positional)
    names = [p.name for p in schema.keyword_only]
    return kernel(*args[:count], **dict(zip(names, args[count:], strict=True)))


def readonly(value: Any) -> Any:
    """A read-only view of an array of NumPy's; all else as it is."""
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, np.ndarray):
        return True
    return bool(
        np.array_equal(a.view(np.ndarray), b.view(np.ndarray)) or _same_bytes(a, b)
    )


def _same_bytes(a: Any, b: Any) -> bool:
    """Whether arrays are equal with nan equal to nan."""
    return bool(np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes())


def _named(name: str, value: Any) -> list[tuple[str, Any]]:
    """Arrays of a value, each with its name among lists."""
    if type(value) in (list, tuple):
        items = enumerate(value)
        return [pair for i, v in items for pair in _named(f"{name}, item {i}", v)]
    has_memory = kind_of[type(value)] not in (None, NUMPY_SCALAR, TRACED, FAKE)
    return [(name, value)] if has_memory else []


def _share(a: Any, b: Any) -> bool:
    """Whether two arrays lie on one memory; arrays with no element lie on none.

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


def owner(array: Any) -> Any:
    """The array whose memory a view looks at, for NumPy's arrays and CuPy's."""
    base = getattr(array, "base", None)
    while base is not None and kind_of[type(base)] is not None:
        array, base = base, getattr(base, "base", None)
    return array


def _outline(values: Sequence[Any]) -> str:
    return f"[{', '.join('array' if kind_of[type(v)] else repr(v) for v in values)}]"


def _is_broadcast(value: Any) -> bool:
    if kind_of[type(value)] in (None, NUMPY_SCALAR):
        return False
    pairs = zip(value.shape, strides_of(value), strict=True)
    return any(stride == 0 and length > 1 for length, stride in pairs)


def _other_order(real: Any, fake: Any) -> bool:
    """Whether the axes longer than one lie in another order in memory."""
    if kind_of[type(real)] == NUMPY_SCALAR or not real.size:
        return False
    shape = tuple(real.shape)
    orders = [axis_order(shape, strides_of(x)) for x in (real, fake)]
    first, second = ([axis for axis in order if shape[axis] > 1] for order in orders)
    return first != second


# ---- results against the schema ----

VMAP_RULE, JVP_RULE = "vmap rule", "jvp rule"
_RULES = (VMAP_RULE, JVP_RULE)


def check_returns(
    op: Any, kernel: Callable[..., Any], out: Any, kind: str
) -> list[Any]:
    """Results one by one, proven to fit the schema in number, type and kind.

    `kind` is that of the kernel's arrays, or one of `_RULES`, whose arrays may be of
    any.
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
    for i, (r, value) in enumerate(zip(schema.returns, values, strict=True)):
        reason = _misfit(value, r.type, kind)
        if reason:
            raise _wrong_return(op, kernel, kind, f"returns output {i} {reason}")
    return values


def _wrong_return(
    op: Any, kernel: Callable[..., Any], kind: str, reason: str
) -> ContractError:
    is_rule = kind in _RULES
    name = kind if is_rule else f"'{kind}' kernel"
    return ContractError(
        f"{op.qualname}: the {name} {reason}",
        op.schema.show(op.qualname),
        f"{'rule' if is_rule else 'kernel'} at {place(kernel)}",
        do="return what the schema says"
        if is_rule
        else "return what the schema says, or change the annotation of the result",
        op=op.qualname,
        kind=kind,
    )


def _misfit(value: Any, kind: SchemaType, device: str) -> str:
    """Why a result does not fit its type, or nothing."""
    if isinstance(kind, Maybe):
        return "" if value is None else _misfit(value, kind.item, device)
    if isinstance(kind, ListOf | TupleOf):
        return _misfit_items(value, kind, device)
    if kind in (ARRAY, OPERAND):
        return _misfit_array(value, device)
    return _misfit_scalar(value, kind)


def _misfit_items(value: Any, kind: ListOf | TupleOf, device: str) -> str:
    if not isinstance(value, list | tuple):
        return f"as {show(value)}, must be {kind}"
    kinds = kind.items if isinstance(kind, TupleOf) else (kind.item,) * len(value)
    if len(kinds) != len(value):
        return f"with {len(value)} items, must be {kind}"
    if isinstance(kind, ListOf) and kind.length not in (None, len(value)):
        return f"with {len(value)} items, must be {kind}"
    for i, (v, k) in enumerate(zip(value, kinds, strict=True)):
        reason = _misfit(v, k, device)
        if reason:
            return f"with item {i} {reason}"
    return ""


def _misfit_array(value: Any, device: str) -> str:
    found = kind_of[type(value)]
    if found is None:
        return f"as {show(value)}, must be an array"
    # NumPy reductions and operators on 0-d arrays give NumPy scalars.
    if (
        device in _RULES
        or found in (device, TRACED)
        or (found == NUMPY_SCALAR and device == "cpu")
    ):
        return ""
    if device == FAKE and found in ("cpu", NUMPY_SCALAR):
        return ""
    return f"as {describe(value)} of the kind '{found}', must be of the kind '{device}'"


def _misfit_scalar(value: Any, kind: Base) -> str:
    exact = exact_class(kind)
    if isinstance(value, exact) and not (exact is int and isinstance(value, bool)):
        return ""
    if kind.name == "Scalar" and isinstance(value, int | float | complex | np.number):
        return ""
    if isinstance(value, {"int": np.integer, "bool": np.bool_}.get(kind.name, ())):
        return ""
    return f"as {show(value)}, must be {kind}"


# ---- fake arrays of real ones ----


def to_fake(value: Any) -> Any:
    """The fake array of a real one; all else as it is."""
    kind = kind_of[type(value)]
    if kind is None or kind in (FAKE, TRACED):
        return value
    return make_fake(
        tuple(value.shape), dtype_of(value), tuple(strides_of(value)), device_of(value)
    )


def finish_fake(op: Any, kernel: Callable[..., Any], out: Any) -> Any:
    """The result of a fake kernel: right in number and type, and fake throughout."""
    if type(out) is FakeArray and op.schema.single_return:
        return out
    check_returns(op, kernel, out, FAKE)
    return map_nested(out, to_fake) if out is not None else None


# ---- which arrays operators have written, and when ----

# Counts nodes of reverse mode and writes alike: what has the higher number came later.
moments = itertools.count(1)

# Memory written by an operator -> (weak reference, moment of the last write). Empty
# where no operator has written anything, which is all that most readers ask.
writes: dict[int, tuple[weakref.ref[Any], int]] = {}


def note_writes(values: Sequence[Any]) -> None:
    """Note that an operator has written these arrays."""
    for leaf in flat(list(values)):
        if kind_of[type(leaf)] not in (None, NUMPY_SCALAR, TRACED, FAKE):
            _note(owner(leaf))


def _note(array: Any) -> None:
    key = id(array)
    reference = weakref.ref(array, lambda _: writes.pop(key, None))
    writes[key] = (reference, next(moments))


def last_write(array: Any) -> int:
    """Moment when an operator last wrote the memory of an array; 0 for never."""
    if kind_of[type(array)] in (None, NUMPY_SCALAR, TRACED, FAKE):
        return 0
    known = writes.get(id(owner(array)))
    return known[1] if known is not None else 0
