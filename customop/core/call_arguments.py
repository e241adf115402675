"""Arguments of a call: their kind of array, and their form for a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray, fake_like, to_c_order
from customop.arrays.kinds import (
    FAKE,
    FAKE_ARRAY,
    SCALAR,
    ArrayKind,
    device_kind,
    device_of,
    find_kind,
    has_device,
    hosts,
    is_fake,
    kind_of,
)
from customop.arrays.nested import flat, map_nested
from customop.core.interpreter import nested_leaves
from customop.core.rule_kind import Definition
from customop.core.table import RuleTable
from customop.errors import (
    ArgumentError,
    DeviceMismatchError,
    LeakedTracerError,
    is_ours,
)
from customop.schema.coerce import ARGUMENTS
from customop.shapes.sizes import Symbolic


def kind_of_call(op: RuleTable, args: Sequence[Any]) -> tuple[str, bool]:
    """Return the kind of the arrays of a call, and whether a NumPy scalar is among them."""
    kinds: list[ArrayKind] = []
    has_scalar = False
    for slot in op.array_slots:
        value = args[slot]
        kind = kind_of[type(value)]
        if kind is None:
            check_no_array(op, slot, value)
        elif kind is SCALAR:
            has_scalar = True
        elif kind not in kinds:
            kinds.append(kind)
    if op.nested_slots:
        _add_nested_kinds(op, args, kinds)
    is_one = len(op.array_slots) == 1 and not op.nested_slots
    if len(kinds) == 1 and (is_one or kinds[0] is not FAKE_ARRAY):
        return kinds[0].name, has_scalar
    return _kind_of_mixture(op, args, kinds), has_scalar


def _add_nested_kinds(
    op: RuleTable, args: Sequence[Any], kinds: list[ArrayKind]
) -> None:
    has_others = False
    for leaf in nested_leaves(op, args):
        kind = kind_of[type(leaf)]
        if kind is None:
            has_others = True
        elif kind.has_device and kind not in kinds:
            kinds.append(kind)
    if has_others:
        _check_nested(op, args)


def check_no_array(op: RuleTable, slot: int, value: Any) -> None:
    """Raise unless an argument may be something else than an array."""
    parameter = op.schema.parameters[slot]
    reason = ARGUMENTS.fault(value, parameter.type)
    if reason:
        name = parameter.name
        remedy = "pass an array, such as np.asarray(x)"
        if value is None:
            remedy = f"pass an array, or declare {name}: Array | None"
        elif type(value).__name__ == "PRNGKeyArray":  # which NumPy cannot convert
            remedy = "pass np.asarray(jax.random.key_data(x)): a key has no numbers"
        elif type(value) in (int, float) and str(parameter.type) == "Array":
            own = getattr(op.definition.fn, "__globals__", {})
            if not is_ours(own):
                kind = type(value).__name__
                remedy += f", or declare {name}: np.ndarray | {kind}"
        raise op.error(
            ArgumentError, f"argument '{name}' {reason}", do=remedy, parameter=name
        )


def _check_nested(op: RuleTable, args: Sequence[Any]) -> None:
    """Raise unless lists of arrays hold arrays, with None and numbers in place."""
    for slot in op.nested_slots:
        parameter = op.schema.parameters[slot]
        reason = ARGUMENTS.fault(args[slot], parameter.type)
        if reason:
            raise op.error(
                ArgumentError,
                f"argument '{parameter.name}' {reason}",
                do="pass arrays, such as [np.asarray(x), ...]"
                if "index" in reason
                else "pass arrays in it, such as np.asarray(x)",
                parameter=parameter.name,
            )


def _kind_of_mixture(op: RuleTable, args: Sequence[Any], kinds: list[ArrayKind]) -> str:
    """Return the kind of a call without arrays, or with arrays of several kinds."""
    if not kinds:
        slot = op.schema.device_slot
        if slot is None or args[slot] is None:
            return "cpu"
        return device_kind(args[slot])
    if FAKE_ARRAY in kinds:
        values = [args[slot] for slot in op.array_slots]
        values += nested_leaves(op, args)
        # In most calls all are fake arrays of one device, which is quicker to see.
        devices = {v.device if type(v) is FakeArray else None for v in values}
        if len(devices) == 1 and None not in devices:
            return FAKE
        arrays = [v for v in values if has_device(v)]
        if _is_one_device([device_of(v) for v in arrays]):
            return FAKE
        names = {device_kind(device_of(v)) for v in arrays}
        if len(names) > 1 and accepting(names):
            return FAKE
    elif host := accepting({kind.name for kind in kinds}):
        return host
    raise _mismatch(op, args)


def accepting(names: set[str]) -> str:
    """Return the kind that accepts all the others, or an empty string."""
    for name in names:
        if all(other == name or other in find_kind(name).accepts for other in names):
            return name
    return ""


# Classes of values that hold no fake arrays.
_CONSTANT = frozenset((float, int, bool, str, type(None), np.ndarray))


def on_one_device(args: Sequence[Any]) -> Sequence[Any]:
    """Move fake arguments of accepted kinds to the device of the kind that accepts them."""
    known: str | None = None
    for value in args:
        if type(value) is FakeArray:
            if known is not None and value.device != known:
                break
            known = value.device
        elif type(value) not in _CONSTANT:
            break
    else:  # as below, in a fifth of the time
        return args
    fakes = [v for value in args for v in flat(value) if is_fake(v)]
    devices = {v.device for v in fakes}
    if len(devices) == 1:
        return args
    host = accepting({device_kind(device) for device in devices})
    device = next((d for d in devices if device_kind(d) == host), None)
    return [map_nested(value, lambda v: _fake_on(v, device)) for value in args]


def _fake_on(value: Any, device: str | None) -> Any:
    return fake_like(value, device=device) if is_fake(value) else value


def _is_one_device(names: Sequence[str]) -> bool:
    """Return whether names may mean one device: ``"cuda"`` is any CUDA device."""
    numbered = {name for name in names if ":" in name}
    return len({device_kind(name) for name in names}) == 1 and len(numbered) < 2


def _mismatch(op: RuleTable, args: Sequence[Any]) -> DeviceMismatchError:
    seen = []
    for slot in (*op.array_slots, *op.nested_slots):
        values = flat(args[slot])
        name = op.schema.parameters[slot].name
        seen += [(name, device_of(v)) for v in values if has_device(v)]
    return different_kinds(op.definition, seen)


def different_kinds(
    definition: Definition, seen: Iterable[tuple[str, str]]
) -> DeviceMismatchError:
    """Build the error for arrays of different kinds, which lists arguments and devices."""
    where = ", ".join(f"'{name}' is on {device}" for name, device in seen)
    return definition.error(
        DeviceMismatchError,
        f"arrays of different kinds: {where}",
        do="bring them to one device: cupy.asarray(x), or x.get()",
    )


# ---- arguments as kernels take them ----


def as_kernel_takes(kind: str, args: Sequence[Any]) -> Sequence[Any]:
    """Put fake arguments on one device; replace symbolic numbers by values for real arrays."""
    if kind == FAKE:
        return on_one_device(args) if hosts else args
    for value in args:
        if isinstance(value, Symbolic):
            return [map_nested(v, _as_number) for v in args]
    return args


def check_alive(op: RuleTable, args: Sequence[Any]) -> None:
    """Raise for a size of a capture that has ended, among real arrays."""
    for leaf in flat(args):
        if isinstance(leaf, Symbolic) and leaf.context.has_ended:
            raise op.error(
                LeakedTracerError,
                f" gets the size {leaf} of a capture that has ended",
                do="take the size inside of the function, from an array that it gets:"
                " x.shape[0]",
                parameter=None,
            )


def _as_number(value: Any) -> Any:
    return value.value if isinstance(value, Symbolic) else value


def check_writable(op: RuleTable, args: Sequence[Any]) -> None:
    """Raise for a NumPy scalar that is to be written: a write would be lost."""
    for p, value in zip(op.schema.parameters, args, strict=True):
        if p.is_written and isinstance(value, np.generic):
            raise op.error(
                ArgumentError,
                f"argument '{p.name}' is written, got the NumPy scalar {value!r}, which"
                " cannot be",
                do=f"pass an array without axes: np.asarray({p.name})",
                parameter=p.name,
            )


def in_c_order(op: RuleTable, args: Sequence[Any]) -> list[Any]:
    """Copy arrays to C order where needed, as `Tag.needs_contiguous` asks."""
    ordered = [map_nested(value, to_c_order) for value in args]
    triples = zip(op.schema.parameters, args, ordered, strict=True)
    for p, mine, copied in triples:
        pairs = zip(flat(mine), flat(copied), strict=True)
        changed = [a for a, b in pairs if a is not b and not is_fake(a)]
        if p.alias is not None and changed:
            what = "is written" if p.is_written else "is returned as a view"
            lacking, do = _lacking(changed[0])
            raise op.error(
                ArgumentError,
                f"argument '{p.name}' is not {lacking}, and {what}: the kernel would"
                f" get a copy {lacking}",
                do=f"pass {do.format(p.name)} and use that array",
                parameter=p.name,
            )
    return ordered


def _lacking(value: Any) -> tuple[str, str]:
    """Return the property that C code needs and an array lacks, and the call that gives it."""
    if not value.flags.c_contiguous:
        return "in C order", "np.ascontiguousarray({})"
    if not value.flags.aligned:
        return "aligned", "{}.copy()"
    return "in the machine's byte order", "{0}.astype({0}.dtype.newbyteorder('='))"
