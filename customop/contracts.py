"""What a kernel promises by its schema, proven while it runs."""

from __future__ import annotations

import weakref
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
from customop.parameters import Return
from customop.protocols import abbreviated, describe
from customop.schema import Schema

__all__ = ["Proof", "bump_versions", "finish_fake", "to_fake", "version_of", "versions"]


class Proof:
    """One call of a kernel under proof.

    The kernel gets read-only views of the arrays that it must not write; its results
    are compared with the schema, with the memory of the arguments, and with what the
    fake kernel says.
    """

    __slots__ = ("args", "done", "fake", "kernel", "kind", "op", "values")

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
        written = [p.is_written for p in op.schema.parameters]
        pairs = zip(args, written, strict=True)
        self.values = [v if w else map_nested(v, _readonly) for v, w in pairs]

    # ---- a kernel that fails ----

    def concerns(self, error: Exception) -> bool:
        """Whether a kernel fails because an array is read-only."""
        text = str(error).lower()
        return "read-only" in text or "readonly" in text

    def again(self, error: Exception) -> Any:
        """Run a kernel that refuses read-only arrays on copies instead.

        Compiled kernels may refuse such arrays though they write none: copies tell.
        """
        copies = [map_nested(v, _copy) for v in self.args]
        try:
            out = _call(self.op.schema, self.kernel, copies)
        except Exception:
            raise error from None
        changed = self._changed(copies)
        if changed or "destination is read-only" in str(error):
            raise self._breach(
                f"writes argument '{changed}'" if changed else "writes an argument",
                f"that mutates_args={self.op.schema.written!r} does not name",
                do=f"name it in mutates_args, or write into a copy: {changed or 'x'}.copy()",
                parameter=changed,
            ) from error
        for mine, theirs in zip(flat(self.args), flat(copies), strict=True):
            if isinstance(mine, np.ndarray) and not _equal(mine, theirs):
                mine[...] = theirs
        return self.check(out)

    def _changed(self, copies: Sequence[Any]) -> str:
        for p, mine, theirs in zip(
            self.op.schema.parameters, self.args, copies, strict=True
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
        values = check_returns(self.op, self.kernel, out, self.kind)
        self._check_memory(schema, values)
        if self.fake is not None:
            self._check_fake(values)
        self.done()
        return out

    def _check_memory(self, schema: Schema, values: Sequence[Any]) -> None:
        inputs = [
            (p, leaf)
            for p, value in zip(schema.parameters, self.args, strict=True)
            for leaf in flat(value)
            if isinstance(leaf, np.ndarray)
        ]
        outputs: list[tuple[int, Return, Any]] = [
            (i, r, leaf)
            for i, (r, value) in enumerate(zip(schema.returns, values, strict=True))
            for leaf in flat(value)
            if isinstance(leaf, np.ndarray)
        ]
        for at, (i, r, leaf) in enumerate(outputs):
            for p, array in inputs:
                same_name = r.alias and p.alias and r.alias.name == p.alias.name
                if not same_name and _share(leaf, array):
                    raise self._shares(i, f"argument '{p.name}'")
            for j, other, array in outputs[:at]:
                same_name = r.alias and other.alias and r.alias.name == other.alias.name
                if not same_name and _share(leaf, array):
                    raise self._shares(i, f"output {j}")

    def _shares(self, index: int, what: str) -> ContractError:
        return self._breach(
            f"returns output {index} that shares memory with {what}",
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
        for i, (real, fake) in enumerate(
            zip(flat(values), flat(expected), strict=False)
        ):
            self._compare(i, real, fake, ordered)

    def _compare(self, index: int, real: Any, fake: Any, ordered: bool) -> None:
        if kind_of[type(real)] is None or kind_of[type(fake)] is None:
            return
        told = (tuple(fake.shape), fake.dtype, device_of(fake))
        seen = (tuple(real.shape), dtype_of(real), device_of(real))
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
            do="return fake_like(x, shape=..., dtype=...) with what the kernel returns",
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


def _call(schema: Schema, kernel: Callable[..., Any], args: Sequence[Any]) -> Any:
    count = len(schema.positional)
    names = [p.name for p in schema.keyword_only]
    return kernel(*args[:count], **dict(zip(names, args[count:], strict=True)))


def _readonly(value: Any) -> Any:
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


def _share(a: Any, b: Any) -> bool:
    """Whether two arrays lie on one memory; arrays with no element lie on none.

    Disjoint views of one buffer count as sharing, as they do for torch: a write to
    the buffer reaches both.
    """
    if not a.size or not b.size:
        return False
    return owner(a) is owner(b) or bool(np.may_share_memory(a, b))


def owner(array: Any) -> Any:
    """The array whose memory a view looks at."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


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


def check_returns(
    op: Any, kernel: Callable[..., Any], out: Any, kind: str
) -> list[Any]:
    """Results one by one, proven to fit the schema in number, type and kind."""
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
    return ContractError(
        f"{op.qualname}: the '{kind}' kernel {reason}",
        op.schema.show(op.qualname),
        f"kernel at {place(kernel)}",
        do="return what the schema says, or change the annotation of the result",
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
    if found in (device, TRACED) or (found == NUMPY_SCALAR and device == "cpu"):
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
    if kind.name in ("int", "bool") and isinstance(value, np.integer | np.bool_):
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


# ---- versions of arrays that operators write ----

# Memory written by an operator -> (weak reference, how often). Empty where no operator
# has written anything, which is all that a reader of saved arrays asks.
versions: dict[int, tuple[weakref.ref[Any], int]] = {}


def bump_versions(values: Sequence[Any]) -> None:
    """Note that an operator has written these arrays."""
    for leaf in flat(list(values)):
        if isinstance(leaf, np.ndarray):
            _bump(owner(leaf))


def _bump(array: Any) -> None:
    key = id(array)
    known = versions.get(key)
    if known is not None and known[0]() is array:
        versions[key] = (known[0], known[1] + 1)
        return
    reference = weakref.ref(array, lambda _: versions.pop(key, None))
    versions[key] = (reference, 1)


def version_of(array: Any) -> int:
    """How often operators have written the memory of an array."""
    if not versions or not isinstance(array, np.ndarray):
        return 0
    known = versions.get(id(owner(array)))
    return known[1] if known is not None else 0
