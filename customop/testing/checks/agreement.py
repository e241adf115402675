"""Checks that several ways to one result agree: kernels, fakes, layouts, dtypes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from customop.arrays.convert import as_kind, devices_at_hand
from customop.arrays.fake import to_fake
from customop.arrays.kinds import (
    DEFAULT,
    FAKE,
    is_array,
    is_fake,
    kind_name,
    known_kinds,
)
from customop.arrays.nested import flat, map_nested
from customop.core.contract.results import check_returns
from customop.core.derived.find import missing_fake
from customop.core.dispatch import find_kernel, select
from customop.core.kinds import COMPOSITE
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import ContractError, DataDependentError, place
from customop.schema.tags import BY_DATA, Tag
from customop.testing.checks.behaviour import check_determinism
from customop.testing.checks.session import (
    Run,
    Session,
    arrays_of,
    host,
    outputs_of,
    prove,
    split_call,
)
from customop.testing.fault import Fault
from customop.testing.inputs.places import leaves_in
from customop.testing.inputs.variations import dtypes, layouts

__all__ = [
    "check_dtypes",
    "check_faketensor",
    "check_kernels_agree",
    "check_layouts",
    "check_sizes",
    "in_dtypes",
    "in_layouts",
]


# ---- test_faketensor ----


def check_faketensor(session: Session, sample: Sample) -> str:
    """The fake kernel announces what the kernel returns, and reads no values for it."""
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
    _compare_fake(session, values, fake)
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


def _compare_fake(session: Session, values: Sequence[Any], fake: Any) -> None:
    """Raise unless a fake kernel announces what the kernel returns."""
    proof, out = prove(session.op, values, fake)
    proof.compare_fake(check_returns(session.op, proof.kernel, out, proof.kind))


def _check_fake_results(
    op: Operator[..., Any], fake: Callable[..., Any], values: Sequence[Any]
) -> str:
    """The results of a registered fake kernel are fake, new, and made without values."""
    where = f"fake kernel at {place(fake)}"
    fakes = [map_nested(value, to_fake) for value in values]
    try:
        out = split_call(op, fake, fakes)
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
    """Shapes of results depend on shapes of arguments alone, or a tag says so."""
    op = session.op
    if Tag.dynamic_output_shape in op.tags:
        return f"{Tag.dynamic_output_shape} lets sizes depend on data"
    values = session.values(sample)
    others = [map_nested(value, _with_one_value) for value in values]
    if all(a is b for a, b in zip(flat(values), flat(others), strict=True)):
        return "no array holds values to change"
    run = session.expected(sample)
    try:
        again = session.call(others)
    except Exception:  # noqa: BLE001  # the kernel takes no such values
        return "the kernel refuses other values"
    shapes = [
        [tuple(leaf.shape) if is_array(leaf) else None for _, leaf in r.effects]
        for r in (run, again)
    ]
    if shapes[0] != shapes[1]:
        raise Fault(
            f"returns the shapes {shapes[0]} and {shapes[1]} for arguments of the same"
            " shapes and other values",
            do=f"tag it: tags={Tag.dynamic_output_shape}, or pad the results",
        )
    return ""


def _with_one_value(leaf: Any) -> Any:
    """An array with its first value everywhere."""
    if not isinstance(leaf, np.ndarray) or leaf.size < 2 or not leaf.flags.writeable:
        return leaf
    return np.full_like(leaf, leaf.flat[0])


# ---- test_kernels_agree ----


def check_kernels_agree(session: Session, sample: Sample) -> str:
    """Every kernel that can run here does what the kernel of a plain call does."""
    op = session.op
    others = _other_kernels(op)
    wanted = [kind for kind in known_kinds() if _is_meant_for(op, kind)]
    kinds = [kind for kind in wanted if kind in devices_at_hand()]
    if not others and not kinds:
        missing = [kind for kind in wanted if kind in op.rows]
        if missing:
            return f"no array of the kind '{missing[0]}' can be made here"
        return "one kernel alone"
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
    """The kernels for NumPy's arrays that calls do not take, each once."""
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
    """Whether an operator has a kernel that takes arrays of another kind."""
    if kind in ("cpu", FAKE) or find_kernel(op, kind) is None:
        return False
    # CuPy takes half a second to import: too long for a default kernel alone.
    return kind in op.rows or kind != "cuda" or "cupy" in sys.modules


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
    try:
        found = session.run_of(split_call(op, kernel, given), given)
    except Exception:
        if kind in op.rows:
            raise
        # Nobody has said that the default kernel is for arrays of this kind.
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
    session.compare(
        _on_host(found),
        _on_host(run),
        f"between the '{kind}' and the 'cpu' kernel",
        do=f"make the kernels agree; the '{kind}' kernel is at {place(kernel)}",
    )
    return ""


def _on_host(run: Run) -> Run:
    return Run(run.out, [(name, host(leaf)) for name, leaf in run.effects])


# ---- test_layouts ----


def in_layouts(session: Session, sample: Sample) -> Iterator[Sample]:
    """The sample in other layouts."""
    return layouts(session.op, sample)


def check_layouts(session: Session, sample: Sample) -> str:
    """A call does the same however its arrays lie in memory."""
    plain = [map_nested(value, _in_c_order) for value in session.values(sample)]
    try:
        expected = session.call(plain)
    except Exception:  # noqa: BLE001  # it refuses these values in any layout
        return "the kernel refuses these values"
    try:
        found = session.call(session.values(sample))
    except Exception:  # noqa: BLE001  # refused, which is not a wrong answer
        return "the kernel refuses this layout"
    try:
        session.compare(
            found,
            expected,
            f"between {sample.note or 'this layout'} and C order",
            do="go through arrays by their strides, as NumPy does, or tag the operator"
            f" with {Tag.needs_contiguous}",
        )
    except Fault:
        if _is_unsteady(session, sample):
            return _UNSTEADY
        raise
    return _check_fake_of(session, sample, found)


_UNSTEADY = "equal calls give other results, see test_determinism"


def _is_unsteady(session: Session, sample: Sample) -> bool:
    """Whether results differ without another layout or dtype."""
    try:
        check_determinism(session, sample)
    except Fault:
        return True
    return False


def _in_c_order(leaf: Any) -> Any:
    return leaf.copy(order="C") if isinstance(leaf, np.ndarray) else leaf


def _check_fake_of(session: Session, sample: Sample, found: Run) -> str:
    """The fake kernel, if there is one, is right for a variation too."""
    fake = find_kernel(session.op, FAKE)
    values = session.bound(sample)
    arrays = arrays_of(values)
    # NumPy returns results in the machine's byte order, which fake kernels cannot know.
    is_native = all(x.dtype.isnative for x in arrays if isinstance(x, np.ndarray))
    if fake is None or not arrays or not is_native:
        return ""
    if not _matches(session, fake, values, found):
        _compare_fake(session, session.values(sample), fake)
    return ""


def _matches(session: Session, fake: Any, values: Sequence[Any], found: Run) -> bool:
    """Whether results have the outlines of their fakes: 30 us less than the proof."""
    try:
        out = split_call(session.op, fake, [map_nested(v, to_fake) for v in values])
    except Exception:  # noqa: BLE001  # the proof says what is wrong
        return False
    reals, fakes = flat(found.out), flat(outputs_of(session.op, out))
    return len(reals) == len(fakes) and all(map(_has_outline, reals, fakes))


def _has_outline(real: Any, fake: Any) -> bool:
    return (
        is_array(real)
        and is_fake(fake)
        and fake.shape == real.shape
        and fake.dtype == real.dtype
        and fake.strides == real.strides
    )


# ---- test_dtypes ----


def in_dtypes(session: Session, sample: Sample) -> Iterator[Sample]:
    """The sample in other dtypes, with a note where the fake kernel is wrong for one.

    Most kernels on floats turn integers into floats, and most of their fake kernels
    are `fake_like`. This is worth a note, and not a fault.
    """
    left_out: list[Sample] = []
    yield from dtypes(session.op, sample, left_out)
    session.notes += [
        f"for {other.note} the kernel returns another dtype than its fake kernel"
        for other in left_out[:1]
    ]


def check_dtypes(session: Session, sample: Sample) -> str:
    """A call on another dtype refuses it, or gives the same numbers."""
    values = session.values(sample)
    try:
        found = session.call(values)
    except Exception:  # noqa: BLE001  # refused, which is not a wrong answer
        return "the kernel refuses this dtype"
    kinds = {leaf.dtype.kind for leaf in flat(values) if isinstance(leaf, np.ndarray)}
    wider = [(kinds & {"f", "c"}, _wide_floats), (kinds & {"i"}, _wide_numbers)]
    for wide in (fn for is_used, fn in wider if is_used):
        others = [map_nested(value, wide) for value in session.values(sample)]
        try:
            _compare_numbers(session, sample, found, others)
        except Fault:
            if _is_unsteady(session, sample):
                return _UNSTEADY
            raise
    try:
        return _check_fake_of(session, sample, found)
    except ContractError as error:
        if "dtype" not in error.where[0]:
            raise
        raise Fault(
            error.what.removeprefix(f"{session.op.qualname}: "),
            *error.where[:1],
            do="give the fake kernel the dtype that the kernel returns, such as"
            " np.result_type(x, float), or raise a TypeError in both for dtypes that"
            " the operator does not take",
        ) from None


def _wide_floats(leaf: Any) -> Any:
    """Short floats as float64, short complex numbers as complex128."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "fc":
        return leaf
    wide = np.result_type(leaf.dtype, np.float64)
    return leaf.astype(wide) if wide.itemsize > leaf.dtype.itemsize else leaf


def _wide_numbers(leaf: Any) -> Any:
    """Signed integers as floats too; unsigned ones, which wrap around, stay."""
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "i":
        return leaf.astype(np.float64)
    return _wide_floats(leaf)


# Elements that a message shows.
_SHOWN = 10


def _compare_numbers(
    session: Session, sample: Sample, found: Run, others: Sequence[Any]
) -> None:
    """The same numbers as float64 give the same results, as far as dtypes can hold."""
    if session.op.schema.written:  # a written array keeps its dtype
        return
    try:
        expected = session.call(others)
    except Exception:  # noqa: BLE001  # integers that are indices, say
        return
    for (name, a), (_, b) in zip(found.effects, expected.effects, strict=True):
        short, wide = host(a), host(b)
        if _same_numbers(short, wide):
            continue
        raise Fault(
            f"{name} has other values for {sample.note or 'this dtype'} than for"
            " the same numbers as float64",
            f"{short.tolist()} and {wide.tolist()}"
            if short.size < _SHOWN
            else f"{short.dtype} and {wide.dtype}",
            do="compute in the dtype of the arguments, or raise a TypeError for"
            " dtypes that the kernel does not take",
        )


def _same_numbers(short: Any, wide: Any) -> bool:
    """Whether results are equal, as far as the dtype of the first can hold."""
    if not (is_array(short) and is_array(wide)):
        return True
    if short.dtype.kind not in "ifc" or not short.dtype.isnative:
        return True
    if short.shape != wide.shape or wide.dtype.kind not in "ifc":
        return bool(short.shape == wide.shape)
    if short.dtype.kind == wide.dtype.kind == "f":
        wide = wide.astype(short.dtype)  # too large a number becomes infinite
    if np.array_equal(short, wide):
        return True
    finite = wide[np.isfinite(wide)]
    scale = max(1.0, float(np.abs(finite).max(initial=0.0)))
    bound = _bound(short.dtype)
    return bool(
        np.allclose(short, wide, rtol=bound, atol=bound * scale, equal_nan=True)
    )


# How far results may be off, relative to the greatest of them; integers by one. Loose:
# memory that is read as another dtype is off by far.
_LOOSE = {2: 1e-1, 4: 1e-2}


def _bound(dtype: np.dtype[Any]) -> float:
    if dtype.kind == "i":
        return 1.0
    return _LOOSE.get(dtype.itemsize // (2 if dtype.kind == "c" else 1), 1e-3)
