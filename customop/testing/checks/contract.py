"""Checks of what an operator promises by its schema and tags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import to_fake
from customop.arrays.nested import children, flat, map_nested
from customop.core.contract.memory import readonly, shared_results
from customop.core.contract.results import check_returns
from customop.core.derived import pointwise, reduction
from customop.core.operator import Operator
from customop.core.registry import in_namespace
from customop.core.samples import Sample
from customop.errors import ContractError, CustomOpError
from customop.schema.tags import Tag
from customop.testing.checks.session import (
    Run,
    Session,
    outputs_of,
    prove,
)
from customop.testing.fault import Fault
from customop.testing.inputs.memory import CONSTANT, map_values

__all__ = [
    "call_noted",
    "check_mutation",
    "check_never_written",
    "check_out_variant",
    "check_schema",
    "check_views",
    "halves_nothing",
]


# ---- test_schema ----


def check_schema(session: Session, sample: Sample) -> str:
    """Results fit the schema, share only the memory it allows, and keep the tags."""
    op = session.op
    proof, out = prove(op, session.values(sample))
    proof.check_writes()
    values = check_returns(op, proof.kernel, out, proof.kind)
    proof.check_identity(values)
    fault = _shared_fault(session, proof.args, values)
    if fault is not None:
        raise fault
    _check_shape_by_tag(session, proof.args, values)
    if Tag.pointwise in op.tags:
        _check_pointwise(session, sample)
    return ""


def _shared_fault(
    session: Session, args: Sequence[Any], values: Sequence[Any]
) -> Fault | None:
    """The fault of results that share memory which the schema does not allow."""
    for _, name, other in shared_results(session.op.schema, args, values):
        return Fault(
            f"returns {name} that shares memory with {other}, which its schema does"
            " not say",
            do="return a copy: out.copy(), or declare the alias: Array(a) -> Array(a)",
            parameter=other.removeprefix("argument '").removesuffix("'")
            if other.startswith("argument")
            else "",
        )
    return None


def call_noted(session: Session, values: Sequence[Any]) -> tuple[Run, Fault | None]:
    """A run, and its fault if it wrote or returned memory that it must not.

    The contract of `check_schema`, without its proof, which takes three times as long.
    """
    kept = []
    for i, (value, is_kept) in enumerate(zip(values, session.is_kept, strict=True)):
        if is_kept and type(value) not in CONSTANT:
            leaves = (value,) if type(value) is np.ndarray else flat(value)
            kept += [
                (i, leaf, leaf.tobytes())
                for leaf in leaves
                if isinstance(leaf, np.ndarray) and leaf.size
            ]
    run = session.call(values)
    for i, leaf, before in kept:
        if not leaf.dtype.hasobject and leaf.tobytes() != before:
            return run, _undeclared(session, session.op.schema.parameters[i].name)
    for _, out in run.effects:
        if isinstance(out, np.ndarray):
            for _, leaf, _ in kept:
                if _may_share(out, leaf):
                    return run, _shared_fault(session, values, run.out)
    return run, None


def _may_share(a: Any, b: Any) -> bool:
    """Whether arrays may share memory: not where each has memory of its own."""
    is_apart = a is not b and a.flags.owndata and b.flags.owndata
    return not is_apart and np.may_share_memory(a, b)


def halves_nothing(op: Operator[..., Any]) -> bool:
    """Whether `check_schema` calls an operator only with whole arrays."""
    return Tag.pointwise not in op.tags


def check_views(session: Session) -> None:
    """Results that the schema calls views are views, for one sample at least."""
    op = session.op
    declared = {
        (i, p.name)
        for i, r in enumerate(op.schema.returns)
        for p in op.schema.parameters
        if r.alias and p.alias and r.alias.name == p.alias.name
    }
    names = [p.name for p in op.schema.parameters]
    is_seen = False
    for sample in session.samples:
        values = session.values(sample)
        outs = session.call(values).out
        for i, name in list(declared):
            pair = (flat(outs[i]), flat(values[names.index(name)]))
            # A result cannot be a view of one of NumPy's scalars.
            if all(any(map(_has_items, side)) for side in pair):
                is_seen = True
            if _on_one_memory(*pair):
                declared.discard((i, name))
    if declared and is_seen:
        i, name = min(declared)
        raise Fault(
            f"never returns a view of argument '{name}' as output {i}, though its"
            f" schema says so ({op.schema.returns[i]})",
            do="take the alias out of the schema, or return a view",
            parameter=name,
        )


def _has_items(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.size > 0


def _on_one_memory(outs: Sequence[Any], given: Sequence[Any]) -> bool:
    return any(
        isinstance(a, np.ndarray)
        and isinstance(b, np.ndarray)
        and np.may_share_memory(a, b)
        for a in outs
        for b in given
    )


def _check_shape_by_tag(
    session: Session, args: Sequence[Any], values: Sequence[Any]
) -> None:
    """The shapes are those that `Tag.pointwise` or `Tag.reduction` promises."""
    op = session.op
    fake_kernel = pointwise.derive_fake(op) or reduction.derive_fake(op)
    if fake_kernel is None or op.schema.written:
        return
    fakes, keywords = op.schema.split(map_values(to_fake, args))
    try:
        found = fake_kernel(*fakes, **keywords)
    except CustomOpError:
        return
    tag = Tag.pointwise if Tag.pointwise in op.tags else Tag.reduction
    for i, (fake, real) in enumerate(zip(outputs_of(op, found), values, strict=True)):
        if tuple(fake.shape) != tuple(real.shape):
            raise Fault(
                f"returns the shape {tuple(real.shape)} as output {i}, where {tag}"
                f" promises {tuple(fake.shape)}",
                do=f"leave {tag} out, or return that shape",
            )


def _check_pointwise(session: Session, sample: Sample) -> None:
    """Each element depends only on those at its place: halves give halves of the result."""
    values = session.bound(sample)
    arrays = [v for v in values if isinstance(v, np.ndarray)]
    shape = np.broadcast_shapes(*(a.shape for a in arrays)) if arrays else ()
    for axis in range(1, len(shape) + 1):
        length = shape[-axis]
        if length < 2:
            continue
        whole = session.expected(sample)
        for half in (slice(0, length // 2), slice(length // 2, None)):
            part = [_half(v, axis, length, half) for v in session.values(sample)]
            effects = [(n, _half(v, axis, length, half)) for n, v in whole.effects]
            session.compare(
                session.call(part),
                Run(whole.out, effects),
                f"between half of axis {-axis} alone and all of it, which"
                f" {Tag.pointwise} excludes",
                do=f"leave {Tag.pointwise} out",
            )


def _half(value: Any, axis: int, length: int, half: slice) -> Any:
    is_long = isinstance(value, np.ndarray) and value.ndim >= axis
    if not is_long or value.shape[-axis] != length:
        return value
    return value[(Ellipsis, half, *(slice(None),) * (axis - 1))]


# ---- test_mutation ----


def check_mutation(session: Session, sample: Sample) -> str:
    """Only what `mutates_args` names is written; writing equal values counts too."""
    op = session.op
    values = session.values(sample)
    notes = [(p, _note(v)) for p, v in zip(op.schema.parameters, values, strict=True)]
    changed = session.start.effects_of(
        lambda: session.call(values), may_draw=op.sees_seed
    )
    for (p, before), value in zip(notes, values, strict=True):
        if not p.is_written and _note(value) != before:
            raise _undeclared(session, p.name)
    if changed:
        raise _left_behind(changed[0])
    try:
        prove(op, session.values(sample))[0].check_writes()
    except ContractError:
        raise _undeclared(session, _trapped(session, sample)) from None
    return ""


# By what a call changes: what does that for a while, or apart from the program.
_KEPT = {
    "np.geterr()": "write with np.errstate(...): around what needs it",
    "np.get_printoptions()": "write with np.printoptions(...): around what needs it",
    "warnings.filters": "write with warnings.catch_warnings(): around the filter",
    "os.environ": "set it where the program starts, or pass it as an argument",
    "os.getcwd()": "use absolute paths, or contextlib.chdir",
    "np.random.get_state()": "draw from np.random.default_rng(seed), or tag the operator"
    f" with {Tag.nondeterministic_seeded} if its results are random",
    "random.getstate()": "draw from random.Random(seed), or tag the operator with"
    f" {Tag.nondeterministic_seeded} if its results are random",
}


def _left_behind(what: str) -> Fault:
    return Fault(
        f"changes {what} for the whole program",
        "other code computes, prints or draws differently after a call",
        do=_KEPT[what],
    )


def _trapped(session: Session, sample: Sample) -> str:
    """The argument that the kernel refuses if it alone is read-only."""
    for i, p in enumerate(session.op.schema.parameters):
        values = session.values(sample)
        values[i] = map_nested(values[i], readonly)
        if not p.is_written and _refuses(session, values):
            return str(p.name)
    return ""


def _refuses(session: Session, values: Sequence[Any]) -> bool:
    try:
        session.call(values)
    except ValueError:
        return True
    return False


def _undeclared(session: Session, name: str) -> Fault:
    written = f"argument '{name}'" if name else "an argument"
    return Fault(
        f"writes {written}, which mutates_args={session.op.schema.written!r}"
        " does not name",
        do=f"name it in mutates_args, or write into a copy: {name or 'x'}.copy()",
        parameter=name,
    )


def _note(value: Any) -> Any:
    """The content of an argument, in a form that every write changes."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return [id(item) for item in value.flat], [repr(v) for v in value.flat]
        return value.shape, value.flags.writeable, value.tobytes()
    if isinstance(value, np.random.Generator):
        return None
    found = children(value)
    if found is None:
        return value if isinstance(value, int | float | str) else id(value)
    return type(value), len(found), [_note(item) for item in found]


def check_never_written(session: Session) -> None:
    """Each argument in `mutates_args` is written, for one sample at least."""
    op = session.op
    left = set(op.schema.written)
    for sample in session.samples:
        if left:
            left -= set(_written_by(session, sample))
    for name in sorted(left):
        if not _traps_write(session, name):
            raise Fault(
                f"never writes argument '{name}', which mutates_args names",
                f"seen over {len(session.samples)} inputs",
                do=f"take '{name}' out of mutates_args",
                parameter=name,
            )


def _written_by(session: Session, sample: Sample) -> Iterator[str]:
    values = session.values(sample)
    before = [_note(v) for v in values]
    session.call(values)
    triples = zip(session.op.schema.parameters, before, values, strict=True)
    for p, note, value in triples:
        is_none = all(leaf is None for leaf in flat(value))
        if p.is_written and (is_none or _note(value) != note):
            yield p.name


def _traps_write(session: Session, name: str) -> bool:
    """Whether the kernel refuses a read-only array there: then it writes equal values."""
    at = session.op.schema.index(name)
    for sample in session.samples:
        values = session.values(sample)
        for leaf in flat(values[at]):
            if isinstance(leaf, np.ndarray):
                leaf.flags.writeable = False
        if _refuses(session, values):
            return True
    return not session.samples


# ---- test_out_variant ----


def check_out_variant(session: Session, sample: Sample) -> str:
    """Variants that write into `out` or in place write what the operator returns."""
    op = session.op
    if Tag.out in op.tags:
        _check_overwrites(session, sample)
    pairs = list(_variants(op))
    for other in pairs:
        _check_variant(session, sample, other)
    if not pairs and Tag.out not in op.tags:
        return f"there is no {op.name}.out, {op.name}_out or {op.name}_"
    return ""


def _variants(op: Operator[..., Any]) -> Iterator[Any]:
    """In-place and out operators named after an operator, with the same arguments."""
    if op.schema.written:
        return
    by_name = in_namespace(op.namespace)
    found = [
        *by_name.get(op.name, {}).values(),
        *by_name.get(f"{op.name}_out", {}).values(),
        *by_name.get(f"{op.name}_", {}).values(),
    ]
    for other in found:
        taken = [p for p in other.schema.parameters if not _is_out(other, p)]
        given = op.schema.parameters
        is_tagged = Tag.out in other.tags or Tag.inplace in other.tags
        same = [(p.name, p.type) for p in taken] == [(p.name, p.type) for p in given]
        if is_tagged and same and len(other.schema.returns) == len(op.schema.returns):
            yield other


def _is_out(op: Operator[..., Any], p: Any) -> bool:
    return bool(p.is_written) and Tag.out in op.tags


def _check_variant(session: Session, sample: Sample, other: Any) -> None:
    run = session.expected(sample)
    values = session.values(sample)
    if Tag.out in other.tags:
        outs = iter([_filled(leaf, 7) for leaf in run.out])
        taken = iter(values)
        values = [
            next(outs) if _is_out(other, p) else next(taken)
            for p in other.schema.parameters
        ]
    elif not _fits_in_place(other, values, run):
        return
    found = Session(other, [sample]).call(values).out
    session.compare(
        Run(found, [(f"output {i}", value) for i, value in enumerate(found)]),
        Run(run.out, [(f"output {i}", value) for i, value in enumerate(run.out)]),
        f"between {other.qualname} and {session.op.qualname}",
        do=f"let {other.qualname} write what {session.op.qualname} returns",
    )


def _fits_in_place(op: Operator[..., Any], values: Sequence[Any], run: Run) -> bool:
    """Whether the result has the shape and dtype of the array that is written."""
    first = values[op.array_slots[0]]
    (out,) = run.out
    return bool(first.shape == out.shape and first.dtype == out.dtype)


def _is_floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fc"


def _one(session: Session, sample: Sample) -> str:
    pairs = zip(session.op.schema.parameters, session.bound(sample), strict=True)
    return "nan" if any(p.is_written and _is_floats(v) for p, v in pairs) else "1"


def _filled(like: Any, number: float) -> Any:
    return np.full_like(np.asarray(like), number)


def _check_overwrites(session: Session, sample: Sample) -> None:
    """The earlier contents of `out` do not change the results."""
    runs = []
    for number in (0, 1):
        values = [
            _filled(v, np.nan if number and _is_floats(v) else number)
            if p.is_written
            else v
            for p, v in zip(
                session.op.schema.parameters, session.values(sample), strict=True
            )
        ]
        runs.append(session.call(values))
    names = " and ".join(f"'{name}'" for name in session.op.schema.written)
    session.compare(
        runs[0],
        runs[1],
        f"between {names} filled with 0 and with {_one(session, sample)} before the call",
        do=f"write every element of {names}, and add to none",
        exact=True,
    )
