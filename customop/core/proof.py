"""What a kernel promises by its schema, proven while it runs."""

from __future__ import annotations

import itertools
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from customop.arrays.describe import abbreviated, describe, show
from customop.arrays.dtypes import dtype_of
from customop.arrays.fake import FakeArray, axis_order, strides_of, to_fake
from customop.arrays.kinds import (
    CPU,
    FAKE,
    SCALAR,
    TRACED,
    device_of,
    has_device,
    has_memory,
    is_array,
    kind_of,
)
from customop.arrays.nested import children, flat, map_nested, steps
from customop.config import config
from customop.core.table import RuleTable
from customop.errors import (
    ContractError,
    CustomOpError,
    DataDependentError,
    place,
    warn_caller,
)
from customop.schema.coerce import exact_class
from customop.schema.fit import Mismatch, NestedType, Visitor
from customop.schema.parameters import Alias
from customop.schema.schema import Schema
from customop.schema.shape_check import check_results
from customop.schema.tags import Tag
from customop.schema.types import (
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
)

__all__ = [
    "AfterCall",
    "Guess",
    "Proof",
    "SampledProof",
    "Witness",
    "check_shapes",
    "finish_fake",
    "note_writes",
    "writes",
]


class Proof:
    """One call of a kernel under proof.

    The kernel gets read-only views of the arrays that it must not write; its results
    are compared with the schema, with the memory of the arguments, and with what the
    fake kernel says.
    """

    __slots__ = (
        "args",
        "before",
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
        op: RuleTable,
        kernel: Callable[..., Any],
        kind: str,
        args: Sequence[Any],
        fake: Callable[..., Any] | None,
        done: Callable[[bool], None],
    ) -> None:
        self.op: RuleTable = op
        self.kernel: Callable[..., Any] = kernel
        self.kind: str = kind
        self.args: Sequence[Any] = args
        self.fake: Callable[..., Any] | None = fake
        self.done: Callable[[bool], None] = done
        self.error: Exception | None = None
        self.sums: list[tuple[str, int]] = self._checksums()
        self.views: Sequence[Any] = args
        # What may be written as it was, should the kernel have to run once more.
        self.before: list[Any] = [map_nested(v, _copy) for v in self._written()]
        # What a result may alias must stay writable: the result is handed out.
        free = {r.alias.name for r in op.schema.returns if r.alias}
        given = zip(op.schema.parameters, args, strict=True)
        self.values: list[Any] = [
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
        # An array that a caller passes twice may change where one of its places may.
        written = [v for v in flat(self._written()) if isinstance(v, np.ndarray)]
        return [
            (p.name, zlib.crc32(np.ascontiguousarray(leaf).view(np.uint8).data))
            for p, value in pairs
            if not p.is_written
            for leaf in flat(value)
            if isinstance(leaf, np.ndarray) and leaf.size and not leaf.dtype.hasobject
            if not any(_share(leaf, v) for v in written)
        ]

    def _written(self) -> list[Any]:
        """The arguments that the schema lets the kernel write."""
        return written_of(self.op.schema, self.args)

    def check_writes(self) -> None:
        """Raise if the kernel wrote what it must not."""
        if self.error is None:
            self._check_unwritten()
        else:
            self._check_copies()

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
        pairs = zip(flat(self._written()), flat(self.before), strict=True)
        for mine, earlier in pairs:
            if isinstance(mine, np.ndarray) and mine.flags.writeable:
                mine[...] = earlier
        named = zip(self.op.schema.parameters, self.args, strict=True)
        self.args = [v if p.is_written else map_nested(v, _copy) for p, v in named]
        return self.args

    def _check_copies(self) -> None:
        """Raise if the kernel wrote what it must not."""
        changed = self._changed(self.args)
        if changed or str(self.error) in _WRITES:
            raise self._undeclared(changed) from self.error

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
        self.check_writes()
        values = check_returns(self.op, self.kernel, out, self.kind)
        if schema.has_shapes:
            check_shapes(self.op, self.kernel, self.kind, self.args, out)
        self.check_identity(values)
        shared = self._shared(schema, values)
        if self.fake is not None:
            self._check_fake(values)
        if schema.written:
            note_writes(written_of(schema, self.views))
        self.done(bool(shared) and config.aliasing == "copy")
        return _without(out, shared) if config.aliasing == "copy" else out

    def check_identity(self, values: Sequence[Any]) -> None:
        """Raise unless a tagged operator returns the very arrays that it writes."""
        if Tag.inplace not in self.op.tags and Tag.out not in self.op.tags:
            return
        tag = Tag.inplace if Tag.inplace in self.op.tags else Tag.out
        names = self.op.schema.written
        written = zip(names, self._written(), values, strict=True)
        for i, (name, mine, value) in enumerate(written):
            if value is not mine:
                raise self._breach(
                    f"returns output {i} that is not its argument '{name}' itself",
                    f"as {tag} says",
                    do=f"write into {name}, then return {', '.join(names)}",
                    parameter=name,
                )

    def _shared(self, schema: Schema, values: Sequence[Any]) -> list[int]:
        """Results on memory that the schema does not say; raise as `config` says."""
        found = list(shared_results(schema, self.args, values))
        for _, name, other in found:
            error = self._shares(name, other)
            if config.aliasing == "error":
                raise error
            if config.aliasing == "warn":
                warn_caller(str(error))
        return [number for number, _, _ in found]

    def _shares(self, name: str, other: str) -> ContractError:
        return self._breach(
            f"returns {name} that shares memory with {other}",
            "which its schema does not say",
            do=self._apart(other),
        )

    def _apart(self, other: str) -> str:
        """What to do about a result that shares memory with an argument."""
        for p in self.op.schema.parameters:
            if other == f"argument '{p.name}'" and p.is_written:
                if isinstance(p.type, Maybe):
                    return (
                        f"split it: an operator without '{p.name}' returns a fresh"
                        f" array, one with tags=Tag.out takes *, {p.name}: Array"
                    )
                return f"return None, or say tags=Tag.inplace or tags=Tag.out for '{p.name}'"
        return "return a copy: out.copy()"

    def _check_fake(self, values: Sequence[Any]) -> None:
        """Compare with the fake kernel; a guess that nobody was told is withdrawn."""
        guess = self.fake if isinstance(self.fake, Guess) else None
        was_told = guess is not None and guess.is_told
        try:
            self.compare_fake(values)
        except CustomOpError as error:
            if guess is None or was_told:
                raise
            guess.fault = error.what.partition(": ")[2]
        if guess is not None:
            guess.is_told = was_told

    def compare_fake(self, values: Sequence[Any]) -> None:
        """Raise unless results are as the fake kernel tells."""
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
        exact = Tag.needs_exact_strides in self.op.tags
        ordered = exact or not (
            isinstance(self.fake, Guess)
            or Tag.flexible_layout in self.op.tags
            or not _order_follows(flat(list(self.args)))
        )
        for i, (real, fake) in enumerate(zip(values, expected, strict=True)):
            reals, fakes = flat(real), flat(fake)
            if list(map(is_array, reals)) != list(map(is_array, fakes)):
                raise self._breach(
                    f"returns {_outline(reals)} as output {i}, its fake kernel"
                    f" {_outline(fakes)}",
                    f"fake kernel at {place(self.fake)}",
                    do="return as many arrays, and None in the same places",
                )
            for r, f in zip(reals, fakes, strict=True):
                self._compare(i, r, f, ordered)

    def _compare(self, index: int, real: Any, fake: Any, ordered: bool) -> None:
        if not is_array(real) or not is_array(fake):
            return
        told = (tuple(fake.shape), fake.dtype, device_of(fake))
        seen = (tuple(real.shape), dtype_of(real), device_of(real))
        exact = Tag.needs_exact_strides in self.op.tags
        # Some libraries tell no strides, and copy what NumPy views and broadcasts.
        tells = hasattr(real, "strides") and (exact or not _is_broadcast(fake))
        differ = _other_strides if exact else _other_order
        if told == seen and not (ordered and tells and differ(real, fake)):
            return
        names = ("shape", "dtype", "device")
        wrong = [n for n, a, b in zip(names, told, seen, strict=True) if a != b]
        layout = "strides" if exact else "order of axes in memory"
        what = " and ".join(wrong) or layout
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


class SampledProof(Proof):
    """A proof of one of the calls after the first, drawn by chance."""

    __slots__ = ()

    def check(self, out: Any) -> Any:
        """The result, once it is proven; an error says that the call was drawn."""
        try:
            return super().check(out)
        except CustomOpError as error:
            raise with_sampling(error) from error.__cause__


class Witness(SampledProof):
    """Looks on at a drawn call, and warns: the call does what it does without proof."""

    __slots__ = ()

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.values: list[Any] = list(self.args)

    def check(self, out: Any) -> Any:
        """The result as it is, after a warning where it breaks the contract."""
        try:
            return super().check(out)
        except CustomOpError as error:
            warn_caller(str(error))
        return AfterCall(self.op, self.args, copies=False).check(out)


def with_sampling(error: CustomOpError) -> CustomOpError:
    """An error that says that a sampled check has found it."""
    setting = f"config.sample_checks = {config.sample_checks}"
    error.where = (*error.where, f"found by a sampled check: {setting}")
    return error


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
    positional, keywords = schema.split(args)
    return kernel(*positional, **keywords)


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
    """Arrays of a value, each with its name among lists and config objects."""
    found = children(value)
    if found is not None:
        items = zip(steps(value), found, strict=True)
        return [pair for i, v in items for pair in _named(f"{name}, item {i}", v)]
    return [(name, value)] if has_memory(value) else []


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
    while base is not None and is_array(base):
        array, base = base, getattr(base, "base", None)
    return array


def _outline(values: Sequence[Any]) -> str:
    return f"[{', '.join('array' if is_array(v) else repr(v) for v in values)}]"


def _is_broadcast(value: Any) -> bool:
    if not has_device(value):
        return False
    pairs = zip(value.shape, strides_of(value), strict=True)
    return any(stride == 0 and length > 1 for length, stride in pairs)


def _order_follows(leaves: Sequence[Any]) -> bool:
    """Whether arguments leave a result one order of axes that a fake kernel can tell.

    They do where all lie in C order, and none is broadcast against another. From other
    arguments NumPy's functions choose for themselves: ``x.copy()`` gives C order, and
    ``x * 2`` that of `x`.
    """
    arrays = [v for v in leaves if has_device(v)]
    if any(_is_broadcast(v) or not _in_c_order(v) for v in arrays):
        return False
    shapes = {tuple(v.shape) for v in arrays if len(v.shape)}
    return len(shapes) < 2 or not _fit_together(shapes)


def _in_c_order(value: Any) -> bool:
    order = _long_axes(tuple(value.shape), strides_of(value))
    return order == sorted(order)


def _fit_together(shapes: Iterable[tuple[int, ...]]) -> bool:
    """Whether arrays of some two of these shapes broadcast against one another."""
    return any(
        all(a == b or 1 in (a, b) for a, b in zip(x[::-1], y[::-1], strict=False))
        for x, y in itertools.combinations(shapes, 2)
    )


def _long_axes(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """The axes longer than one, in the order in which they lie in memory."""
    return [axis for axis in axis_order(shape, strides) if shape[axis] > 1]


def _other_order(real: Any, fake: Any) -> bool:
    """Whether the axes longer than one lie in another order in memory."""
    if not has_device(real) or not real.size:
        return False
    shape = tuple(real.shape)
    first, second = (_long_axes(shape, strides_of(x)) for x in (real, fake))
    return first != second


def _other_strides(real: Any, fake: Any) -> bool:
    """Whether axes longer than one have other strides."""
    if not has_device(real) or not real.size:
        return False
    triples = zip(real.shape, strides_of(real), strides_of(fake), strict=True)
    return any(length > 1 and a != b for length, a, b in triples)


class Guess:
    """A fake kernel that tags or shapes give: right until a call of a kernel disproves it.

    Attributes
    ----------
    fault : str
        How a call disproved it, or nothing.
    is_told : bool
        Whether it has answered: what somebody was told must not turn out wrong.
    """

    __slots__ = ("__wrapped__", "fault", "is_told")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.__wrapped__: Callable[..., Any] = fn
        self.fault: str = ""
        self.is_told: bool = False

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Tell what the tag says of the result."""
        told = self.__wrapped__(*args, **keywords)
        self.is_told = True
        return told


# ---- results on the memory of others ----


def shared_results(
    schema: Schema, args: Sequence[Any], values: Sequence[Any]
) -> Iterator[tuple[int, str, str]]:
    """Results that share memory without the schema saying so.

    The number of each among the arrays of all results, what messages call it, and
    what it shares memory with.
    """
    named = [
        (f"argument '{p.name}'", p.alias, array)
        for p, value in zip(schema.parameters, args, strict=True)
        for _, array in _named(p.name, value)
    ]
    seen = list(named)
    for i, (r, value) in enumerate(zip(schema.returns, values, strict=True)):
        # What a caller passes twice is told by either of its places.
        free = [a for _, alias, a in named if _is_same(r.alias, alias)]
        for name, array in _named(f"output {i}", value):
            for other, alias, earlier in seen:
                if _is_same(r.alias, alias) or not _share(array, earlier):
                    continue
                if not any(_share(earlier, a) for a in free):
                    yield len(seen) - len(named), name, other
                    break
            seen.append((name, r.alias, array))


def _is_same(first: Alias | None, second: Alias | None) -> bool:
    return first is not None and second is not None and first.name == second.name


def _without(out: Any, shared: Sequence[int]) -> Any:
    """A result with copies in place of the arrays of these numbers."""
    numbers = itertools.count()

    def own(value: Any) -> Any:
        return value.copy() if next(numbers) in shared else value

    return map_nested(out, lambda v: own(v) if has_memory(v) else v)


class AfterCall:
    """What is done after each call of a kernel that has proven its contract.

    It notes what the operator has written; where a kernel was found to return memory
    of others, and `config.aliasing` is ``"copy"``, it copies such results.
    """

    __slots__ = ("args", "copies", "op")

    def __init__(self, op: RuleTable, args: Sequence[Any], *, copies: bool) -> None:
        self.op: RuleTable = op
        self.args: Sequence[Any] = args
        self.copies: bool = copies

    def concerns(self, error: Exception) -> bool:
        """No fault of a proven kernel is mended."""
        return False

    def check(self, out: Any) -> Any:
        """The result, with the versions of what is written raised."""
        schema = self.op.schema
        if schema.written:
            note_writes(written_of(schema, self.args))
        if not self.copies:
            return out
        values = list(out) if schema.is_tuple else [out]
        found = shared_results(schema, self.args, values)
        return _without(out, [number for number, _, _ in found])


# ---- results against the schema ----

VMAP_RULE, JVP_RULE, COMPOSITE_RULE = "vmap rule", "jvp rule", "rule"
_RULES = (VMAP_RULE, JVP_RULE, COMPOSITE_RULE)


def check_returns(
    op: RuleTable, kernel: Callable[..., Any], out: Any, kind: str
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
    reason = check_results(schema, args, values)
    if reason:
        raise _wrong_return(op, kernel, kind, f"returns {reason}")


def _wrong_return(
    op: RuleTable, kernel: Callable[..., Any], kind: str, reason: str
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


class _Results(Visitor):
    """Results of a kernel for one kind of array, or of a rule."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def array(self, value: Any, kind: ArrayType) -> None:
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

    def base(self, value: Any, kind: Base) -> None:
        exact = exact_class(kind)
        if isinstance(value, exact) and not (exact is int and isinstance(value, bool)):
            return
        if not isinstance(value, _FITTING.get(kind.name, ())):
            raise _unfit(value, kind)

    def choice(self, value: Any, kind: Choice) -> None:
        if type(value) is not type(kind.options[0]) or value not in kind.options:
            raise _unfit(value, kind)

    def member(self, value: Any, kind: ClassOf) -> None:
        if not isinstance(value, kind.cls):
            raise _unfit(value, kind)

    def open(self, value: Any, kind: NestedType) -> Any:
        if not _is_nested_as(value, kind):
            raise _unfit(value, kind)
        count = len(kind.items) if isinstance(kind, TupleOf) else None
        count = kind.length if isinstance(kind, ListOf) else count
        if count is not None and count != len(value):
            raise Mismatch(f"with {len(value)} items, must be {kind}")
        return value


# Type -> further classes of results.
_FITTING: dict[str, tuple[type, ...]] = {
    "Scalar": (int, float, complex, np.number),
    "int": (np.integer,),
    "bool": (np.bool_,),
}


def _unfit(value: Any, kind: SchemaType) -> Mismatch:
    return Mismatch(f"as {show(value)}, must be {kind}")


def _is_nested_as(value: Any, kind: NestedType) -> bool:
    """Whether a result is of the class that its type is made of."""
    if isinstance(kind, ListOf | TupleOf):
        return isinstance(value, list | tuple)
    if isinstance(kind, DictOf):
        return type(value) is dict and all(isinstance(key, str) for key in value)
    if kind.fields.is_dict:
        keys = set(value) if type(value) is dict else {None}
        return kind.fields.required <= keys <= set(kind.items)
    return type(value) is kind.cls


# ---- results of fake kernels ----


def finish_fake(op: RuleTable, kernel: Callable[..., Any], out: Any) -> Any:
    """The result of a fake kernel: right in number and type, and fake throughout."""
    if type(out) is FakeArray and op.schema.single_return:
        return out
    check_returns(op, kernel, out, FAKE)
    return map_nested(out, to_fake) if out is not None else None


# ---- which arrays operators have written, and when ----


def written_of(schema: Schema, args: Sequence[Any]) -> list[Any]:
    """The arguments of a call that the schema marks as written."""
    pairs = zip(schema.parameters, args, strict=True)
    return [value for p, value in pairs if p.is_written]


# Counts nodes of reverse mode and writes alike: what has the higher number came later.
moments: itertools.count[int] = itertools.count(1)

# Memory written by an operator -> (weak reference, moment of the last write). Empty
# where no operator has written anything, which is all that most readers ask.
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
    """Moment when an operator last wrote the memory of an array; 0 for never."""
    if not has_memory(array):
        return 0
    known = writes.get(id(owner(array)))
    return known[1] if known is not None else 0
