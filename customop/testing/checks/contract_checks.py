"""Check what schema and tags promise, and that fake kernels agree with kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from customop.arrays.convert import as_kind
from customop.arrays.fake import to_fake
from customop.arrays.kinds import (
    DEFAULT,
    FAKE,
    find_kind,
    is_array,
    is_fake,
    kind_name,
    known_kinds,
)
from customop.arrays.nested import children, flat, map_nested
from customop.core import tag_rules
from customop.core.contract import check_returns, readonly, shared_results
from customop.core.derived_rules import missing_fake
from customop.core.dispatch import find_kernel, select
from customop.core.fake_context import FakeCall
from customop.core.operator import Operator
from customop.core.registry import in_namespace
from customop.core.rule_kind import COMPOSITE
from customop.core.samples import Sample
from customop.errors import ContractError, CustomOpError, DataDependentError, place
from customop.schema.tags import BY_DATA, Tag
from customop.testing.checks.session import (
    Run,
    Session,
    arrays_of,
    host,
    outputs_of,
    prove,
    split_call,
)
from customop.testing.faults import Fault
from customop.testing.inputs.sample_values import CONSTANT, leaves_in, map_values
from customop.testing.inputs.variations import SPECIAL, specials

# ---- test_schema ----


def check_schema(session: Session, sample: Sample) -> str:
    """Check that results fit schema and tags, and share only allowed memory."""
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
    """Return a fault if results share memory that the schema does not allow."""
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
    """Return a run, with a fault if it wrote or returned memory that it must not.

    This is a part of `check_schema` without its proof, which takes three times as long.
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
    """Return whether two arrays may share memory. Two owners of memory cannot."""
    is_apart = a is not b and a.flags.owndata and b.flags.owndata
    return not is_apart and np.may_share_memory(a, b)


def halves_nothing(op: Operator[..., Any]) -> bool:
    """Return whether `check_schema` calls the operator only with whole arrays."""
    return Tag.pointwise not in op.tags


def check_views(session: Session) -> None:
    """Check that results which the schema calls views are views, at least once."""
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
            # A result cannot be a view of a NumPy scalar.
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
    """Check that shapes are as `Tag.pointwise` or `Tag.reduction` promises."""
    op = session.op
    fake_kernel = tag_rules.fake_of_pointwise(op) or tag_rules.fake_of_reduction(op)
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
    """Check that half of the arrays gives half of the result, along each axis."""
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
    """Check that a call writes only what `mutates_args` names; equal values count."""
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


# What a call changes -> how to change it for a while, or how to do without.
_KEPT = {
    "np.geterr()": "write with np.errstate(...): around what needs it",
    "np.get_printoptions()": "write with np.printoptions(...): around what needs it",
    "warnings.filters": "write with warnings.catch_warnings(): around the filter",
    "os.environ": "set it where the program starts, or pass it as an argument",
    "how the processor rounds": "restore the state of the processor: with fesetenv, or"
    " _mm_setcsr, and without -ffast-math, whose start code sets it",
    "gc.isenabled()": "call gc.enable() again, in a finally block",
    "sys.getrecursionlimit()": "set the limit where the program starts",
    "locale.setlocale(LC_ALL)": "restore the locale, or use functions that take one",
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
    """Return the name of the argument whose write fails if only it is read-only."""
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
    """Return the content of an argument, in a form that changes with every write."""
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
    """Check that each argument in `mutates_args` is written for at least one sample."""
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
    """Return whether the kernel writes equal values: it fails on read-only arrays."""
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
    """Check that the out and in-place variants write what the operator returns."""
    op = session.op
    if Tag.out in op.tags:
        _check_overwrites(session, sample)
    pairs = list(variants_of(op))
    for other in pairs:
        _check_variant(session, sample, other)
    if not pairs and Tag.out not in op.tags:
        return f"there is no {op.name}.out, {op.name}_out or {op.name}_"
    return ""


def variants_of(op: Operator[..., Any]) -> Iterator[Any]:
    """Yield the in-place and out variants of an operator, found by their names."""
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
    """Return whether the result has the shape and dtype of the written array."""
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
    """Check that the earlier contents of `out` do not change the results."""
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


# Checks that kernels and fake kernels agree, and that sizes depend on shapes alone.


# ---- test_faketensor ----


def check_faketensor(session: Session, sample: Sample) -> str:
    """Check that the fake kernel announces the results, and reads no values."""
    op = session.op
    fake = find_kernel(op, FAKE)
    if fake is None:
        return _without_fake(op)
    values = session.values(sample)
    if not arrays_of(values):
        return "no argument is an array"
    row = op.rows.get(FAKE)
    is_registered = row is not None and row.fn is fake
    if is_registered:
        reason = _check_fake_results(op, fake, values)
        if reason:
            return reason
    compare_fake(session, values, fake)
    return ""


def _without_fake(op: Operator[..., Any]) -> str:
    by_data = [str(tag) for tag in BY_DATA if tag in op.tags]
    if by_data:
        return f"no fake kernel, as {by_data[0]} allows"
    why = missing_fake(op)
    text = "" if why is None else why.what.partition(": ")[2]
    raise Fault(
        text or "has no fake kernel",
        do=f"@{op.name}.register_fake, a function that returns fake_like(...)",
    )


def compare_fake(session: Session, values: Sequence[Any], fake: Any) -> None:
    """Raise unless a fake kernel announces what the kernel returns."""
    proof, out = prove(session.op, values, fake)
    proof.compare_fake(check_returns(session.op, proof.kernel, out, proof.kind))


def _check_fake_results(
    op: Operator[..., Any], fake: Callable[..., Any], values: Sequence[Any]
) -> str:
    """Check that a fake kernel returns new fake arrays and does not read values."""
    where = f"fake kernel at {place(fake)}"
    fakes = map_values(to_fake, values)
    try:
        out = FakeCall(op, fakes).run(fake)
    except DataDependentError as error:
        if op.tags.intersection(BY_DATA):
            return "the fake kernel needs data, as its tags allow"
        raise Fault(
            f"has a fake kernel that reads data: {error.what}",
            where,
            do="compute shapes and dtypes from x.shape and x.dtype alone, or tag the"
            f" operator with {Tag.dynamic_output_shape}",
        ) from None
    may_alias = any(r.alias for r in op.schema.returns)
    for name, leaf in leaves_in(out, "the output"):
        if is_array(leaf) and not is_fake(leaf):
            raise Fault(
                f"has a fake kernel that returns an array with data as {name}",
                where,
                do="return fake_like(x, shape=..., dtype=...)",
            )
        if not may_alias and any(leaf is x for x in flat(fakes) if is_fake(x)):
            raise Fault(
                f"has a fake kernel that returns its input itself as {name}",
                where,
                do="return fake_like(x)",
            )
    return ""


# ---- test_sizes ----


def check_sizes(session: Session, sample: Sample) -> str:
    """Check that shapes of results depend on nothing but shapes of arguments.

    Tags and fake kernels may declare sizes that depend on data.
    """
    op = session.op
    if Tag.dynamic_output_shape in op.tags:
        return f"{Tag.dynamic_output_shape} lets sizes depend on data"
    values = session.values(sample)
    reason = "no array holds values to change"
    for change in (_with_first, _with_largest, _in_pairs):
        others = map_values(change, values)
        if all(a is b for a, b in zip(flat(values), flat(others), strict=True)):
            continue
        run = session.expected(sample)
        try:
            again = session.call(others)
        except Exception:  # noqa: BLE001  # the kernel does not accept such values
            reason = reason and "the kernel refuses other values"
            continue
        reason = ""
        shapes = [_shapes(r) for r in (run, again)]
        if not _same_but(shapes, _free_sizes(session, values)):
            raise Fault(
                f"returns the shapes {shapes[0]} and {shapes[1]} for arguments of the"
                " same shapes and other values",
                do="ask for such a size in the fake kernel,"
                " get_ctx().new_dynamic_size(), tag the operator with"
                f" {Tag.dynamic_output_shape}, or pad the results",
            )
    return reason


def _shapes(run: Run) -> list[tuple[Any, ...] | None]:
    return [tuple(v.shape) if is_array(v) else None for _, v in run.effects]


def _free_sizes(session: Session, values: Sequence[Any]) -> set[tuple[int, int]]:
    """Return the (result, axis) pairs whose sizes the fake kernel leaves to the data."""
    if find_kernel(session.op, FAKE) is None:
        return set()
    fakes = map_values(to_fake, values)
    try:
        found = session.run_of(session.op.invoke(fakes), fakes)
    except Exception:  # noqa: BLE001  # test_faketensor reports it
        return set()
    return {
        (i, axis)
        for i, shape in enumerate(_shapes(found))
        for axis, size in enumerate(shape or ())
        if type(size) is not int
    }


def _same_but(
    shapes: Sequence[Sequence[tuple[Any, ...] | None]], free: set[tuple[int, int]]
) -> bool:
    """Return whether two lists of shapes are equal, ignoring the free axes."""
    kept = [
        [
            shape and tuple(-1 if (i, k) in free else n for k, n in enumerate(shape))
            for i, shape in enumerate(each)
        ]
        for each in shapes
    ]
    return kept[0] == kept[1]


# Other values for an array. Counts and indices are often found as a permutation: their
# sum, their greatest number and how many differ are as many as they are.


def _with_first(leaf: Any) -> Any:
    """Fill an array with its first value."""
    return np.full_like(leaf, leaf.flat[0]) if _may_change(leaf) else leaf


def _with_largest(leaf: Any) -> Any:
    """Fill an array of integers or flags with its greatest value."""
    is_whole = _may_change(leaf) and leaf.dtype.kind in "iub"
    return np.full_like(leaf, leaf.max()) if is_whole else leaf


def _in_pairs(leaf: Any) -> Any:
    """Repeat each second value of an array in the place after it."""
    if not _may_change(leaf):
        return leaf
    out = leaf.copy()
    out.flat = leaf.flat[np.arange(leaf.size) // 2 * 2]
    return out


def _may_change(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.size > 1 and leaf.flags.writeable


# ---- test_kernels_agree ----


def special_values(session: Session, sample: Sample) -> Iterator[Sample]:
    """Yield samples with special values, if there are several kernels to compare."""
    if _other_kernels(session.op):
        yield from specials(session.op, sample, SPECIAL)


def check_kernels_agree(session: Session, sample: Sample) -> str:
    """Check that every kernel that can run here agrees with that of a plain call."""
    op = session.op
    others = _other_kernels(op)
    wanted = [kind for kind in known_kinds() if _is_meant_for(op, kind)]
    if all(sample is not given for given in session.samples):
        # For made-up samples this may be a forked child, where CUDA does not work.
        wanted = [kind for kind in wanted if kind != "cuda"]
    kinds = [kind for kind in wanted if find_kind(kind).can_be_made()]
    if not others and not kinds:
        missing = [kind for kind in wanted if kind in op.rows]
        if missing:
            return f"no array of the kind '{missing[0]}' can be made here"
        return "only one kernel"
    if sample.note and not session.accepts(sample):
        return "the kernel refuses these values"
    run = session.expected(sample)
    for name, kernel in others:
        session.compare(
            session.call(session.values(sample), kernel),
            run,
            f"between the {name} and the 'cpu' kernel",
            do=f"make the kernels agree; the {name} is at {place(kernel)}",
        )
    reasons = [_check_kind(session, sample, kind, run) for kind in kinds]
    return "" if others or not all(reasons) else reasons[0]


def _other_kernels(op: Operator[..., Any]) -> list[tuple[str, Callable[..., Any]]]:
    """Return the other kernels for NumPy arrays, which calls do not use, each once."""
    found = [find_kernel(op, "cpu")]
    rows = [
        ("default kernel", op.rows.get(DEFAULT)),
        ("composite body", op.rows.get(COMPOSITE)),
        ("disabled 'cpu' kernel", op.rows.get("cpu")),
    ]
    others = [(name, row.fn) for name, row in rows if row is not None]
    if "cpu" in op.rows and op.__wrapped__ is op.definition.fn:
        others.append(("function it was made from", op.__wrapped__))
    kept = []
    for name, fn in others:
        if fn not in found:
            kept.append((name, fn))
            found.append(fn)
    return kept


def _is_meant_for(op: Operator[..., Any], kind: str) -> bool:
    """Return whether an operator has a kernel for arrays of another kind."""
    if kind in ("cpu", FAKE) or find_kernel(op, kind) is None:
        return False
    # Importing CuPy takes half a second, too long for a default kernel.
    return kind in op.rows or kind != "cuda" or "cupy" in sys.modules


def has_other_kinds(op: Operator[..., Any]) -> bool:
    """Return whether an operator takes arrays of other kinds than NumPy's here."""
    return any(_is_meant_for(op, kind) for kind in known_kinds())


def _check_kind(session: Session, sample: Sample, kind: str, run: Run) -> str:
    op = session.op
    values = [
        map_nested(v, lambda leaf: as_kind(leaf, kind) if is_array(leaf) else leaf)
        for v in session.values(sample)
    ]
    if not arrays_of(values):
        return "no argument is an array"
    kernel, positional, keywords, _ = select(op, values)
    given = [*positional, *keywords.values()]
    if op.sees_seed:
        session.seed()
    try:
        found = session.run_of(split_call(op, kernel, given), given)
    except Exception:
        if kind in op.rows:
            raise
        # The default kernel was not declared for arrays of this kind.
        return f"the default kernel refuses '{kind}' arrays"
    for name, leaf in found.effects:
        if kind_name(leaf) not in (None, kind):
            if kind not in op.rows:
                return f"the default kernel does not return '{kind}' arrays"
            raise Fault(
                f"returns {name} of the kind '{kind_name(leaf)}' from the '{kind}' kernel",
                f"kernel at {place(kernel)}",
                do=f"return arrays of the kind '{kind}'",
            )
    if op.sees_seed:
        _compare_outlines(_on_host(found), _on_host(run), kind)
        return ""
    session.compare(
        _on_host(found),
        _on_host(run),
        f"between the '{kind}' and the 'cpu' kernel",
        do=f"make the kernels agree; the '{kind}' kernel is at {place(kernel)}",
    )
    return ""


def _compare_outlines(found: Run, expected: Run, kind: str) -> None:
    """Compare shapes and dtypes; another kind of array draws other random numbers."""
    for (name, a), (_, b) in zip(found.effects, expected.effects, strict=True):
        pairs = [(getattr(v, "shape", None), getattr(v, "dtype", None)) for v in (a, b)]
        if pairs[0] != pairs[1]:
            raise Fault(
                f"{name} is of {pairs[0][1]} and shape {pairs[0][0]} from the '{kind}'"
                f" kernel, of {pairs[1][1]} and shape {pairs[1][0]} from the 'cpu' kernel",
                do="make the kernels agree in dtypes and shapes",
            )


def _on_host(run: Run) -> Run:
    return Run(run.out, [(name, host(leaf)) for name, leaf in run.effects])
