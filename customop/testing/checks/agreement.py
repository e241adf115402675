"""Checks that kernels and fake kernels agree, and that sizes depend on shapes alone."""

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
from customop.arrays.nested import flat, map_nested
from customop.core.contract.results import check_returns
from customop.core.derived.find import missing_fake
from customop.core.dispatch import find_kernel, select
from customop.core.fake_context import FakeCall
from customop.core.kinds import COMPOSITE
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import DataDependentError, place
from customop.schema.tags import BY_DATA, Tag
from customop.testing.checks.session import (
    Run,
    Session,
    arrays_of,
    host,
    prove,
    split_call,
)
from customop.testing.fault import Fault
from customop.testing.inputs.memory import map_values
from customop.testing.inputs.places import leaves_in
from customop.testing.inputs.specials import SPECIAL, specials

__all__ = [
    "check_faketensor",
    "check_kernels_agree",
    "check_sizes",
    "compare_fake",
    "has_other_kinds",
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
    """The results of a registered fake kernel are fake, new, and made without values."""
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
    """Shapes of results depend on shapes of arguments alone.

    Or a tag says otherwise, or the fake kernel announces sizes that depend on data.
    """
    op = session.op
    if Tag.dynamic_output_shape in op.tags:
        return f"{Tag.dynamic_output_shape} lets sizes depend on data"
    values = session.values(sample)
    others = map_values(_with_one_value, values)
    if all(a is b for a, b in zip(flat(values), flat(others), strict=True)):
        return "no array holds values to change"
    run = session.expected(sample)
    try:
        again = session.call(others)
    except Exception:  # noqa: BLE001  # the kernel takes no such values
        return "the kernel refuses other values"
    shapes = [_shapes(r) for r in (run, again)]
    if not _same_but(shapes, _free_sizes(session, values)):
        raise Fault(
            f"returns the shapes {shapes[0]} and {shapes[1]} for arguments of the same"
            " shapes and other values",
            do="ask for such a size in the fake kernel, get_ctx().new_dynamic_size(), tag"
            f" the operator with {Tag.dynamic_output_shape}, or pad the results",
        )
    return ""


def _shapes(run: Run) -> list[tuple[Any, ...] | None]:
    return [tuple(v.shape) if is_array(v) else None for _, v in run.effects]


def _free_sizes(session: Session, values: Sequence[Any]) -> set[tuple[int, int]]:
    """Results and axes whose sizes depend on data, as the fake kernel announces."""
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
    """Whether two lists of shapes are equal, apart from these axes."""
    kept = [
        [
            shape and tuple(-1 if (i, k) in free else n for k, n in enumerate(shape))
            for i, shape in enumerate(each)
        ]
        for each in shapes
    ]
    return kept[0] == kept[1]


def _with_one_value(leaf: Any) -> Any:
    """An array with its first value everywhere."""
    if not isinstance(leaf, np.ndarray) or leaf.size < 2 or not leaf.flags.writeable:
        return leaf
    return np.full_like(leaf, leaf.flat[0])


# ---- test_kernels_agree ----


def special_values(session: Session, sample: Sample) -> Iterator[Sample]:
    """The sample with special values, if there are several kernels to compare."""
    if _other_kernels(session.op):
        yield from specials(session.op, sample, SPECIAL)


def check_kernels_agree(session: Session, sample: Sample) -> str:
    """Every kernel that can run here does what the kernel of a plain call does."""
    op = session.op
    others = _other_kernels(op)
    wanted = [kind for kind in known_kinds() if _is_meant_for(op, kind)]
    if all(sample is not given for given in session.samples):
        # It is made up, so this may be a forked child, where CUDA does not work.
        wanted = [kind for kind in wanted if kind != "cuda"]
    kinds = [kind for kind in wanted if find_kind(kind).can_be_made()]
    if not others and not kinds:
        missing = [kind for kind in wanted if kind in op.rows]
        if missing:
            return f"no array of the kind '{missing[0]}' can be made here"
        return "only one kernel"
    if sample.note and not _is_taken(session, sample):
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


def _is_taken(session: Session, sample: Sample) -> bool:
    try:
        session.expected(sample)
    except Exception:  # noqa: BLE001  # values that the kernel does not take
        return False
    return True


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


def has_other_kinds(op: Operator[..., Any]) -> bool:
    """Whether arrays of other kinds than NumPy's can be passed to an operator here."""
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
