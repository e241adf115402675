"""Which kernel a call takes: by the kind of its arrays, or by its device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import to_c_order
from customop.arrays.kinds import (
    DEFAULT,
    FAKE,
    FAKE_ARRAY,
    SCALAR,
    ArrayKind,
    device_kind,
    device_of,
    has_device,
    is_array,
    is_fake,
    kind_of,
)
from customop.arrays.nested import flat, map_nested
from customop.config import config
from customop.core.array_classes import find_array_rule
from customop.core.changes import changing
from customop.core.codegen import Drawn, set_fast_kernel
from customop.core.definition import Definition
from customop.core.derived.find import find_fake, missing_fake
from customop.core.dispatch import (
    dispatch,
    highest,
    mode_for,
    nested_leaves,
)
from customop.core.kinds import COMPOSITE
from customop.core.observe import observed, observers, open_modes
from customop.core.proof import (
    COMPOSITE_RULE,
    AfterCall,
    Guess,
    Proof,
    SampledProof,
    Witness,
    check_returns,
    check_shapes,
    finish_fake,
)
from customop.core.table import RuleTable
from customop.errors import (
    ArgumentError,
    CustomOpError,
    DeviceMismatchError,
    MissingRuleError,
    quoted,
)
from customop.schema.fit import ARGUMENTS

__all__ = [
    "different_kinds",
    "dispatch_composite",
    "kernel_for",
    "kind_of_call",
    "select",
    "top_interpreter",
]


def select(
    op: RuleTable, args: Sequence[Any]
) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any], Any]:
    """Kernel, positional and keyword values, and the proof of a call, or None."""
    rule = find_array_rule(op, args)
    if rule is not None:
        positional, keywords = op.schema.split(args)
        return rule, (op, tuple(positional), keywords), {}, None
    kind, has_scalar = kind_of_call(op, args)
    kernel = find_kernel(op, kind)
    if kernel is None:
        raise missing_kernel(op, kind)
    if has_scalar and kind != FAKE:
        if op.schema.written:
            _check_writable(op, args)
        slots = op.array_slots
        args = [_as_array(v) if i in slots else v for i, v in enumerate(args)]
    if op.needs_contiguous:
        args = _in_c_order(op, args)
    proof: Any = None
    if kind == FAKE:
        proof = FakeProof(op, kernel, args)
    elif kind in op.proven:
        proof = _after_call(op, kind, args)
    else:
        proof = _proof(op, kernel, kind, args)
        if isinstance(proof, Proof):
            args = proof.values
    if not op.schema.keyword_only:
        return kernel, args, {}, proof
    positional, keywords = op.schema.split(args)
    return kernel, positional, keywords, proof


def _proof(
    op: RuleTable, kernel: Callable[..., Any], kind: str, args: Sequence[Any]
) -> Any:
    """The proof of a call, or what is done after one that needs none."""
    proves: type[Proof] = Proof
    if config.checks != "always" and kind in op.sampled:
        if type(args) is not Drawn and not config.draws():
            return _after_call(op, kind, args)
        proves = SampledProof if config.on_breach == "error" else Witness
    elif config.checks == "never":
        _proved(op, kind, kernel, copies=False)
        return _after_call(op, kind, args)

    def done(copies: bool) -> None:
        _proved(op, kind, kernel, copies=copies)

    return proves(op, kernel, kind, args, find_fake(op), done)


def _after_call(op: RuleTable, kind: str, args: Sequence[Any]) -> AfterCall | None:
    """What is done after a call of a proven kernel, or None."""
    copies = kind in op.copied
    return AfterCall(op, args, copies=copies) if copies or op.schema.written else None


def _proved(
    op: RuleTable, kind: str, kernel: Callable[..., Any], *, copies: bool
) -> None:
    with changing:
        # A kernel registered meanwhile has not been proven by this call.
        if find_kernel(op, kind) is not kernel:
            return
        # One call of those drawn may find what the others do not show.
        copies = copies or (kind in op.sampled and kind in op.copied)
        op.copied = op.copied | {kind} if copies else op.copied - {kind}
        if config.checks == "always":
            return
        if config.sample_checks:
            op.sampled |= {kind}
        else:
            op.proven |= {kind}
        if kind == "cpu":
            set_fast_kernel(op.call, None if copies else kernel)


def kind_of_call(op: RuleTable, args: Sequence[Any]) -> tuple[str, bool]:
    """Kind of the arrays of a call, and whether a NumPy scalar is among them."""
    kinds: list[ArrayKind] = []
    has_scalar = False
    for slot in op.array_slots:
        value = args[slot]
        kind = kind_of[type(value)]
        if kind is None:
            _check_no_array(op, slot, value)
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


def _check_no_array(op: RuleTable, slot: int, value: Any) -> None:
    parameter = op.schema.parameters[slot]
    reason = ARGUMENTS.fault(value, parameter.type)
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


def _check_nested(op: RuleTable, args: Sequence[Any]) -> None:
    """Raise unless lists of arrays hold arrays, with None and numbers in place."""
    for slot in op.nested_slots:
        parameter = op.schema.parameters[slot]
        reason = ARGUMENTS.fault(args[slot], parameter.type)
        if reason:
            raise ArgumentError(
                f"{op.qualname}: argument '{parameter.name}' {reason}",
                op.schema.show(op.qualname, parameter.name),
                do="pass arrays, such as [np.asarray(x), ...]"
                if "index" in reason
                else "pass arrays in it, such as np.asarray(x)",
                op=op.qualname,
                parameter=parameter.name,
            )


def _kind_of_mixture(op: RuleTable, args: Sequence[Any], kinds: list[ArrayKind]) -> str:
    """Kind of a call without arrays, or with arrays of several kinds."""
    if not kinds:
        slot = op.schema.device_slot
        if slot is None or args[slot] is None:
            return "cpu"
        return device_kind(args[slot])
    if FAKE_ARRAY in kinds:
        values = [args[slot] for slot in op.array_slots]
        values += nested_leaves(op, args)
        arrays = [v for v in values if has_device(v)]
        if _is_one_device([device_of(v) for v in arrays]):
            return FAKE
    raise _mismatch(op, args)


def _is_one_device(names: Sequence[str]) -> bool:
    """Whether devices can be one: ``"cuda"`` is any of them."""
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
    """The error for arrays of different kinds: names of arguments, with devices."""
    where = ", ".join(f"'{name}' is on {device}" for name, device in seen)
    return definition.error(
        DeviceMismatchError,
        f"arrays of different kinds: {where}",
        do="bring them to one device: cupy.asarray(x), or x.get()",
    )


def find_kernel(op: RuleTable, kind: str) -> Callable[..., Any] | None:
    """The kernel for a kind of array, or None."""
    table = op.rows
    if kind in op.disabled:
        return op.definition.fn
    row = table.get(kind)
    if row is None and kind != FAKE:
        row = table.get(DEFAULT)
    if row is None:
        row = table.get(COMPOSITE)
    if row is not None:
        return row.fn  # type: ignore[no-any-return]
    found = find_fake(op) if kind == FAKE and not op.closed else None
    return op.fallback_for(kind) if found is None else found


def kernel_for(op: RuleTable, kind: str) -> Callable[..., Any]:
    """The kernel for a kind of array; an error says what to register."""
    found = find_kernel(op, kind)
    if found is None:
        raise missing_kernel(op, kind)
    return found


def missing_kernel(op: RuleTable, kind: str) -> CustomOpError:
    """The error for a kind of array that an operator has no kernel for."""
    if op.closed:
        return op.closed_error()
    if kind == FAKE:
        why = missing_fake(op)
        if why is not None:
            return why
        return MissingRuleError(
            f"{op.qualname} has no fake kernel",
            op.schema.show(op.qualname),
            f"at {op.definition.place}",
            do=f"@{op.name}.register_fake, a function that returns fake_like(...)",
            op=op.qualname,
            kind=FAKE,
        )
    has = [k for k in op.rows if isinstance(k, str)]
    return MissingRuleError(
        f"{op.qualname} has no kernel for '{kind}'; it has {quoted(has) or 'none'}",
        op.schema.show(op.qualname),
        f"at {op.definition.place}",
        do=f'@{op.name}.register_kernel("{kind}")',
        op=op.qualname,
        kind=kind,
    )


# ---- operators made of operators ----


def top_interpreter(op: RuleTable, args: Sequence[Any]) -> Any:
    """The mode or transform that a call goes to, or None."""
    top = mode_for(op) if open_modes or op.sees_seed else None
    values = [args[slot] for slot in op.array_slots]
    return highest(top, [*values, *nested_leaves(op, args)])


def dispatch_composite(op: RuleTable, args: Sequence[Any]) -> Any:
    """As `dispatch`, for an operator with a body that transforms and modes see."""
    top = top_interpreter(op, args)
    row = op.rows.get(COMPOSITE)
    if top is None or row is None or not top.alive or top.kind.has_rule(op):
        return dispatch(op, args)
    positional, keywords = op.schema.split(args)
    body = observed(op, top, row.fn, args) if observers else row.fn
    out = body(*positional, **keywords)
    if not op.schema.single_return or not is_array(out):
        check_returns(op, row.fn, out, COMPOSITE_RULE)
    return out


def _in_c_order(op: RuleTable, args: Sequence[Any]) -> list[Any]:
    """The arguments with their arrays in C order, as `Tag.needs_contiguous` asks."""
    ordered = [map_nested(value, to_c_order) for value in args]
    triples = zip(op.schema.parameters, args, ordered, strict=True)
    for p, mine, copied in triples:
        pairs = zip(flat(mine), flat(copied), strict=True)
        is_real = any(a is not b and not is_fake(a) for a, b in pairs)
        if p.alias is not None and is_real:
            what = "is written" if p.is_written else "is returned as a view"
            raise ArgumentError(
                f"{op.qualname}: argument '{p.name}' is not in C order, and {what}: a"
                " copy in C order would be used in its place",
                op.schema.show(op.qualname, p.name),
                do=f"pass np.ascontiguousarray({p.name}) and use that array",
                op=op.qualname,
                parameter=p.name,
            )
    return ordered


def _check_writable(op: RuleTable, args: Sequence[Any]) -> None:
    """Raise for a NumPy scalar that is to be written: a write would be lost."""
    for p, value in zip(op.schema.parameters, args, strict=True):
        if p.is_written and isinstance(value, np.generic):
            raise ArgumentError(
                f"{op.qualname}: argument '{p.name}' is written, got the NumPy scalar"
                f" {value!r}, which cannot be",
                op.schema.show(op.qualname, p.name),
                do=f"pass an array without axes: np.asarray({p.name})",
                op=op.qualname,
                parameter=p.name,
            )


def _as_array(value: Any) -> Any:
    """A NumPy scalar as an array without axes, which every kernel can take."""
    return np.asarray(value) if isinstance(value, np.generic) else value


# ---- what is done with the results of kernels that need no proof ----


class FakeProof:
    """Makes the result of a fake kernel fake throughout."""

    __slots__ = ("args", "kernel", "op")

    def __init__(
        self, op: RuleTable, kernel: Callable[..., Any], args: Sequence[Any]
    ) -> None:
        self.op: RuleTable = op
        self.kernel: Callable[..., Any] = kernel
        self.args: Sequence[Any] = args

    def concerns(self, error: Exception) -> bool:
        """No fault of a fake kernel is mended."""
        return False

    def check(self, out: Any) -> Any:
        """The result with its arrays fake."""
        found = finish_fake(self.op, self.kernel, out)
        op = self.op
        if op.schema.has_shapes and not isinstance(self.kernel, Guess):
            is_proven = FAKE in op.proven and config.checks != "always"
            if not is_proven and config.checks != "never":
                check_shapes(op, self.kernel, FAKE, self.args, found)
                _proved(op, FAKE, self.kernel, copies=False)
        return found
