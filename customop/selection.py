"""Which kernel a call takes: by the kind of its arrays, or by its device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.annotations import ARRAY, OPERAND, ListOf, Maybe, SchemaType, TupleOf
from customop.codegen import set_fast_kernel
from customop.coerce import show
from customop.config import config
from customop.contracts import Proof, finish_fake, note_writes
from customop.devices import DEFAULT, FAKE, NUMPY_SCALAR, device_kind, kind_of
from customop.dispatch import nested_leaves
from customop.errors import (
    ArgumentError,
    DeviceMismatchError,
    MissingRuleError,
    quoted,
)
from customop.fakearray import device_of
from customop.table import changing

__all__ = ["kernel_for", "misfit", "select"]


def select(
    op: Any, args: Sequence[Any]
) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any], Any]:
    """Kernel, positional and keyword values, and the proof of a call, or None."""
    kind, has_scalar = _kind_of_call(op, args)
    kernel = kernel_for(op, kind)
    if has_scalar and kind != FAKE:
        slots = op.array_slots
        args = [_as_array(v) if i in slots else v for i, v in enumerate(args)]
    proof: Any = None
    if kind == FAKE:
        proof = FakeProof(op, kernel)
    elif kind not in op._proven or config.checks == "always":
        proof = _proof(op, kernel, kind, args)
        if isinstance(proof, Proof):
            args = proof.values
    elif op.schema.written:
        proof = AfterWrite(args)
    count = len(op.schema.positional)
    if count == len(args):
        return kernel, args, {}, proof
    names = [p.name for p in op.schema.keyword_only]
    return kernel, args[:count], dict(zip(names, args[count:], strict=True)), proof


def _proof(op: Any, kernel: Callable[..., Any], kind: str, args: Sequence[Any]) -> Any:
    if config.checks == "never":
        _proved(op, kind, kernel)
        return AfterWrite(args) if op.schema.written else None
    fake = op._table.get(FAKE)

    def done() -> None:
        _proved(op, kind, kernel)

    return Proof(op, kernel, kind, args, None if fake is None else fake.fn, done)


def _proved(op: Any, kind: str, kernel: Callable[..., Any]) -> None:
    with changing:
        # A kernel registered meanwhile has not been proven by this call.
        if kernel_for(op, kind) is not kernel:
            return
        op._proven |= {kind}
        if kind == "cpu" and config.checks != "always":
            set_fast_kernel(op.call, kernel)


def _kind_of_call(op: Any, args: Sequence[Any]) -> tuple[str, bool]:
    """Kind of the arrays of a call, and whether a NumPy scalar is among them."""
    kinds: list[str] = []
    has_scalar = False
    for slot in op.array_slots:
        value = args[slot]
        kind = kind_of[type(value)]
        if kind is None:
            _check_no_array(op, slot, value)
        elif kind == NUMPY_SCALAR:
            has_scalar = True
        elif kind not in kinds:
            kinds.append(kind)
    for leaf in nested_leaves(op, args) if op.nested_slots else ():
        kind = kind_of[type(leaf)]
        if kind is None:
            _check_nested(op, args)
        elif kind != NUMPY_SCALAR and kind not in kinds:
            kinds.append(kind)
    is_one = len(op.array_slots) == 1 and not op.nested_slots
    if len(kinds) == 1 and (is_one or kinds[0] != FAKE):
        return kinds[0], has_scalar
    return _kind_of_mixture(op, args, kinds), has_scalar


def _check_no_array(op: Any, slot: int, value: Any) -> None:
    parameter = op.schema.parameters[slot]
    reason = misfit(value, parameter.type)
    if reason:
        name = parameter.name
        remedy = "pass an array, such as np.asarray(x)"
        if value is None:
            remedy = f"pass an array, or declare {name}: Array | None"
        raise ArgumentError(
            f"{op.qualname}: argument '{name}' {reason}",
            op.schema.show(op.qualname, name),
            do=remedy,
            op=op.qualname,
            parameter=name,
        )


def _check_nested(op: Any, args: Sequence[Any]) -> None:
    """Raise unless lists of arrays hold arrays, with None and numbers in place."""
    for slot in op.nested_slots:
        parameter = op.schema.parameters[slot]
        reason = misfit(args[slot], parameter.type)
        if reason:
            raise ArgumentError(
                f"{op.qualname}: argument '{parameter.name}' {reason}",
                op.schema.show(op.qualname, parameter.name),
                do="pass arrays, such as [np.asarray(x), ...]",
                op=op.qualname,
                parameter=parameter.name,
            )


def _kind_of_mixture(op: Any, args: Sequence[Any], kinds: list[str]) -> str:
    """Kind of a call without arrays, or with arrays of several kinds."""
    if not kinds:
        slot = op.schema.device_slot
        if slot is None or args[slot] is None:
            return "cpu"
        return device_kind(args[slot])
    if FAKE in kinds:
        values = [args[slot] for slot in op.array_slots]
        values += nested_leaves(op, args)
        arrays = [v for v in values if kind_of[type(v)] not in (None, NUMPY_SCALAR)]
        if _is_one_device([device_of(v) for v in arrays]):
            return FAKE
    raise _mismatch(op, args)


def _is_one_device(names: Sequence[str]) -> bool:
    """Whether devices can be one: ``"cuda"`` is any of them."""
    numbered = {name for name in names if ":" in name}
    return len({device_kind(name) for name in names}) == 1 and len(numbered) < 2


def _mismatch(op: Any, args: Sequence[Any]) -> DeviceMismatchError:
    seen = []
    for slot in (*op.array_slots, *op.nested_slots):
        values = args[slot] if isinstance(args[slot], list | tuple) else [args[slot]]
        name = op.schema.parameters[slot].name
        seen += [
            f"'{name}' is on {device_of(v)}"
            for v in values
            if kind_of[type(v)] not in (None, NUMPY_SCALAR)
        ]
    return DeviceMismatchError(
        f"{op.qualname}: arrays of different kinds: {', '.join(seen)}",
        op.schema.show(op.qualname),
        do="bring them to one device: cupy.asarray(x), or x.get()",
        op=op.qualname,
    )


def kernel_for(op: Any, kind: str) -> Any:
    """The kernel for a kind of array."""
    row = op._table.get(kind)
    if kind in op._disabled:
        return op.__wrapped__
    if row is None and kind != FAKE:
        row = op._table.get(DEFAULT)
    if row is not None:
        return row.fn
    if kind == FAKE:
        raise MissingRuleError(
            f"{op.qualname} has no fake kernel",
            op.schema.show(op.qualname),
            f"at {op._definition.place}",
            do=f"@{op.name}.register_fake, a function that returns fake_like(...)",
            op=op.qualname,
            kind=FAKE,
        )
    has = [k for k in op._table if isinstance(k, str)]
    raise MissingRuleError(
        f"{op.qualname} has no kernel for '{kind}'; it has {quoted(has) or 'none'}",
        op.schema.show(op.qualname),
        f"at {op._definition.place}",
        do=f'@{op.name}.register_kernel("{kind}")',
        op=op.qualname,
        kind=kind,
    )


def _as_array(value: Any) -> Any:
    """A NumPy scalar as an array without axes, which every kernel can take."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def misfit(value: Any, kind: SchemaType) -> str:
    """Why a value that may hold arrays does not fit its type, or nothing."""
    if isinstance(kind, Maybe):
        return "" if value is None else misfit(value, kind.item)
    if isinstance(kind, ListOf | TupleOf):
        kinds = kind.items if isinstance(kind, TupleOf) else (kind.item,) * len(value)
        found = [misfit(v, k) for v, k in zip(value, kinds, strict=True)]
        wrong = [(i, reason) for i, reason in enumerate(found) if reason]
        return f"at index {wrong[0][0]} {wrong[0][1]}" if wrong else ""
    fits_number = kind == OPERAND and isinstance(value, int | float | complex)
    if kind not in (ARRAY, OPERAND) or fits_number or kind_of[type(value)] is not None:
        return ""
    return f"expects {kind}, got {show(value)}"


# ---- what is done with the results of kernels that need no proof ----


class FakeProof:
    """Makes the result of a fake kernel fake throughout."""

    __slots__ = ("kernel", "op")

    def __init__(self, op: Any, kernel: Callable[..., Any]) -> None:
        self.op = op
        self.kernel = kernel

    def concerns(self, error: Exception) -> bool:
        """No fault of a fake kernel is mended."""
        return False

    def check(self, out: Any) -> Any:
        """The result with its arrays fake."""
        return finish_fake(self.op, self.kernel, out)


class AfterWrite:
    """Notes what an operator has written."""

    __slots__ = ("args",)

    def __init__(self, args: Sequence[Any]) -> None:
        self.args = args

    def concerns(self, error: Exception) -> bool:
        """No fault of a proven kernel is mended."""
        return False

    def check(self, out: Any) -> Any:
        """The result, with the versions of the arguments raised."""
        note_writes(self.args)
        return out
