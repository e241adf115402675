"""Check operators on the same values in other layouts and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from customop.arrays.fake import to_fake
from customop.arrays.kinds import FAKE, is_array, is_fake
from customop.arrays.nested import flat
from customop.core.dispatch import find_kernel
from customop.core.samples import Sample
from customop.errors import ContractError, DataDependentError
from customop.schema.tags import Tag
from customop.testing.checks.behavior_checks import (
    POISONS,
    check_determinism,
    check_equal,
    poisoned,
)
from customop.testing.checks.contract_checks import call_noted, compare_fake
from customop.testing.checks.precision_checks import (
    SINGLE,
    is_explained,
    is_precise,
    shaken,
    size_of,
)
from customop.testing.checks.session import (
    Run,
    Session,
    arrays_of,
    host,
    outputs_of,
    same_bits,
    same_runs,
)
from customop.testing.faults import Fault
from customop.testing.inputs.sample_values import CONSTANT, copy_leaf, map_values
from customop.testing.inputs.search import Oracle, announced, outcome_of
from customop.testing.inputs.variations import byte_order_note, dtypes, layouts

# ---- test_layouts ----


def in_layouts(session: Session, sample: Sample) -> Iterator[Sample]:
    """Yield the sample in other layouts.

    The shapes of a call's arguments belong together, unless the operator declares which
    others it takes.
    """
    op = session.op
    declares = op.schema.has_shapes or op.tags.intersection(_OF_ANY_SHAPE)
    keeps_shapes = session.keeps_shapes and not declares
    return layouts(op, sample, session.oracle(sample), keeps_shapes=keeps_shapes)


# Tags of operators that take arrays of any shape.
_OF_ANY_SHAPE = (Tag.pointwise, Tag.reduction)


def check_layouts(session: Session, sample: Sample) -> str:
    """Check that results do not depend on the memory layout of the arrays."""
    values = session.bound(sample)
    if not all(map(_stays, flat(list(values)))):
        values = session.values(sample)
    plain = map_values(_in_c_order, values)
    try:
        expected, is_usual = _noted_once(session, plain)
    except Exception:  # noqa: BLE001  # it refuses these values in every layout
        return "the kernel refuses these values"
    arrays = arrays_of(values)
    is_shared = len({id(x) for x in arrays}) < len(arrays)
    if all(map(_is_plain, arrays)) and not is_shared:  # another shape, but in C order
        _check_filled(session, sample, arrays, expected)
        return _check_fake_of(session, sample, arrays, expected)
    try:  # again, because the first call used up numbers of a Generator
        found, fault = call_noted(session, session.values(sample))
    except Exception:  # noqa: BLE001  # refused, which is not a wrong answer
        return "the kernel refuses this layout"
    if fault is not None and is_usual is None:
        raise fault
    if not same_runs(found, expected):
        try:
            session.compare(
                found,
                expected,
                f"between {sample.note or 'this layout'} and C order",
                do="go through arrays by their strides, as NumPy does, or tag the"
                f" operator with {Tag.needs_contiguous}",
            )
        except Fault:
            if _is_unsteady(session, sample):
                return _UNSTEADY
            raise
    return _check_fake_of(session, sample, arrays, found)


def _check_filled(
    session: Session, sample: Sample, arrays: Sequence[Any], expected: Run
) -> None:
    """Raise if results for empty arrays hold what was in their memory before."""
    is_empty = any(x.size == 0 for x in arrays)
    has_result = any(np.size(out) for out in expected.out if is_array(out))
    if is_empty and has_result and session.is_steady(sample):
        check_equal(session, *(poisoned(session, sample, byte) for byte in POISONS))


def _noted_once(session: Session, values: Sequence[Any]) -> tuple[Run, Fault | None]:
    """Run on values that most variations of a sample share; remember the result."""
    key = _content(values)
    if key is None:
        return call_noted(session, values)
    known = session.by_content
    if key not in known:
        if len(known) > _MOST_KNOWN:
            known.clear()
        known[key] = call_noted(session, values)
    found: tuple[Run, Fault | None] = known[key]
    return found


_MOST_BYTES = 1 << 14
_MOST_KNOWN = 8


def _content(values: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return a dict key for small arrays and constants; None for other values."""
    parts: list[Any] = []
    for leaf in values:
        if type(leaf) is np.ndarray and leaf.nbytes <= _MOST_BYTES:
            if leaf.dtype.hasobject:
                return None
            parts.append((leaf.shape, leaf.dtype, leaf.tobytes()))
        elif type(leaf) in CONSTANT:
            parts.append((type(leaf), leaf))
        else:
            return None
    return tuple(parts)


_UNSTEADY = "equal calls give other results, see test_determinism"


def _is_unsteady(session: Session, sample: Sample) -> bool:
    """Return whether results differ even without another layout or dtype."""
    if not session.is_steady(sample):
        return True
    try:
        check_determinism(session, sample)
    except Fault:
        return True
    return False


def _stays(leaf: Any) -> bool:
    """Return whether a leaf is copied later, or cannot change."""
    return type(leaf) in CONSTANT or isinstance(leaf, np.ndarray)


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.flags.carray and leaf.dtype.isnative


def _in_c_order(leaf: Any) -> Any:
    return leaf.copy(order="C") if isinstance(leaf, np.ndarray) else leaf


def _check_fake_of(
    session: Session, sample: Sample, arrays: Sequence[Any], found: Run
) -> str:
    """Check the fake kernel, if there is one, against the results for these arrays."""
    fake = find_kernel(session.op, FAKE)
    # NumPy returns results in the machine's byte order, which fake kernels cannot know.
    if fake is None or not arrays or not all(map(_is_native, arrays)):
        return ""
    if not _matches(session, fake, sample, found):
        compare_fake(session, session.values(sample), fake)
    return ""


def _matches(session: Session, fake: Any, sample: Sample, found: Run) -> bool:
    """Return whether results match their fakes; saves 30 us compared with the proof."""
    out, error = _announced(session, sample, fake)
    if error is not None:  # the proof says what is wrong
        return False
    if len(found.out) == 1 and is_fake(out):
        return _has_outline(found.out[0], out)
    reals, fakes = flat(found.out), flat(outputs_of(session.op, out))
    return len(reals) == len(fakes) and all(map(_has_outline, reals, fakes))


def _announced(
    session: Session, sample: Sample, fake: Any
) -> tuple[Any, Exception | None]:
    """Return what the fake kernel announces for a sample, or its error; cached."""
    known: tuple[Any, Exception | None] = session.once(
        "announced", sample, lambda: _asked(session, sample, fake)
    )
    return known


def _asked(session: Session, sample: Sample, fake: Any) -> tuple[Any, Exception | None]:
    values = map_values(to_fake, session.bound(sample))
    try:
        out, sizes = announced(session.op, fake, values)
    except Exception as error:  # noqa: BLE001  # whatever it raises
        return None, error
    if sizes:  # only the proof can compare these with the results
        return None, DataDependentError("it announces sizes that depend on data")
    return out, None


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
    """Yield the sample in other dtypes, and itself in short floats or swapped bytes."""
    arrays = arrays_of(session.bound(sample))
    if not all(map(_is_native, arrays)):
        note = byte_order_note(session.op, sample)
        yield Sample(sample.args, sample.kwargs, note)
    elif any(x.dtype.char in "efF" for x in arrays):
        yield sample
    oracle = _NotingOracle(session)
    if not oracle.fits_sample(sample):
        oracle.fake = None
    yield from dtypes(session.op, sample, oracle)


class _NotingOracle(Oracle):
    """An oracle that remembers its runs, so that the check can use them."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.op)
        self.session: Session = session

    def run(self, sample: Sample) -> tuple[int, Any]:
        """Return how the kernel takes a sample in `strict_numbers`, and its results."""
        return outcome_of(lambda: _noted(self.session, sample)[0].out)

    def fits_sample(self, sample: Sample) -> bool:
        """Return whether annotations and fake kernel accept a sample."""
        if self.op.schema.has_shapes or self.fake is not find_kernel(self.op, FAKE):
            return super().fits_sample(sample)
        error = _announced(self.session, sample, self.fake)[1]
        return error is None or isinstance(error, DataDependentError)


_NOTED = "noted"


def _noted(session: Session, sample: Sample) -> tuple[Run, Fault | None]:
    """Return the run on a sample; later calls return the same run."""
    found: tuple[Run, Fault | None] = session.once(
        _NOTED, sample, lambda: call_noted(session, session.values(sample))
    )
    return found


def _is_native(leaf: Any) -> bool:
    return not isinstance(leaf, np.ndarray) or leaf.dtype.isnative


def check_dtypes(session: Session, sample: Sample) -> str:
    """Check that a call in another dtype is refused, or gives the same numbers."""
    try:
        found, fault = _noted(session, sample)
    except Exception:  # noqa: BLE001  # refused, which is not a wrong answer
        return "the kernel refuses this dtype"
    values = session.bound(sample)
    arrays = arrays_of(values)
    given = [x.dtype for x in arrays]
    for widen in _WIDER:
        others = map_values(partial(_in_own_memory, widen), values)
        if given == [x.dtype for x in arrays_of(others)]:
            continue
        if fault is not None and not _has_fault(session, others):
            raise fault
        try:
            if _are_compared(session, sample, found, others, given):
                break
        except Fault:
            if _is_unsteady(session, sample):
                return _UNSTEADY
            raise
    try:
        return _check_fake_of(session, sample, arrays, found)
    except ContractError as error:
        if "dtype" not in error.where[0]:
            raise
        raise Fault(
            error.what.removeprefix(f"{session.op.qualname}: "),
            *error.where[:1],
            "the first call on it raises a ContractError",
            do=_remedy(session, sample),
        ) from None


def _has_fault(session: Session, values: Sequence[Any]) -> bool:
    """Return whether these values, too, are written to or returned as they are."""
    try:
        return call_noted(session, values)[1] is not None
    except Exception:  # noqa: BLE001  # a dtype that it refuses
        return False


# ---- what to do about a wrong dtype ----

# Text for the dtype of a result -> that dtype, from the dtype of an argument.
_FORMULAS: dict[str, Callable[[np.dtype[Any]], np.dtype[Any]]] = {
    "np.result_type(x.dtype, 1.0)": lambda d: np.result_type(d, 1.0),
    "np.result_type(x.dtype, np.float16)": lambda d: np.result_type(d, np.float16),
    "np.result_type(x.dtype, np.float64)": lambda d: np.result_type(d, np.float64),
    "np.result_type(x.dtype, 1)": lambda d: np.result_type(d, 1),
    "np.sum(np.empty(0, x.dtype)).dtype": lambda d: np.sum(np.empty(0, d)).dtype,
    "np.empty(0, x.dtype).real.dtype": lambda d: np.real(np.empty(0, d)).dtype,
    "x.dtype": lambda d: d,
}
_TRIED = ("f8", "f4", "f2", "i8", "i4", "i1", "u1", "?", "c16")


def _remedy(session: Session, sample: Sample) -> str:
    """Return advice: the dtype that the kernel returns, or how to refuse this one."""
    return (
        "give the fake kernel the dtype of the result,"
        f" dtype={_formula(session, sample)}; or refuse this dtype:"
        f" {_to_refuse(session)}"
    )


def _to_refuse(session: Session) -> str:
    parameters = session.op.schema.parameters
    slots = session.op.array_slots
    name = parameters[slots[0]].name if slots else "x"
    # A class of elements is only checked together with a shape.
    declared = str(parameters[slots[0]].type) if slots else ""
    shape = declared.partition("[")[2].rstrip("]?").replace(",", " ") or "..."
    return (
        f"annotate '{name}' as Annotated[NDArray[np.floating], \"{shape}\"], or raise a"
        " TypeError in the kernel"
    )


def _formula(session: Session, sample: Sample) -> str:
    seen = list(_seen_dtypes(session, sample))
    kinds = {out for _, out in seen}
    if len(kinds) == 1:
        return f"np.{next(iter(kinds)).name.replace('bool', 'bool_')}"
    for text, formula in _FORMULAS.items():
        if all(formula(given) == out for given, out in seen):
            return text
    return "np.result_type(x.dtype, float), or what fits"


def _seen_dtypes(
    session: Session, sample: Sample
) -> Iterator[tuple[np.dtype[Any], np.dtype[Any]]]:
    """Yield dtypes that the kernel accepts, each with the dtype of the result."""
    for dtype in map(np.dtype, _TRIED):
        values = map_values(partial(_in_dtype, dtype), session.values(sample))
        try:
            out = arrays_of(session.call(values).out)
        except Exception:  # noqa: BLE001, S112  # a dtype that it refuses
            continue
        yield dtype, out[0].dtype


def _in_dtype(dtype: np.dtype[Any], leaf: Any) -> Any:
    return leaf.astype(dtype) if isinstance(leaf, np.ndarray) else leaf


# ---- comparing the numbers ----
# Results of short dtypes are compared with those of wide ones, as far as they can agree.


def same_numbers(short: Any, wide: Any, given: Sequence[np.dtype[Any]]) -> bool:
    """Return whether results are equal, as far as the dtype of the first can express.

    `given` are the dtypes of the arguments: a result may be wider than its inputs.
    """
    if not (is_array(short) and is_array(wide)):
        return True
    if short.dtype.kind not in "iufc":
        return True
    if short.shape != wide.shape or wide.dtype.kind not in "iufc":
        return bool(short.shape == wide.shape)
    if short.dtype.kind in "iu":
        return np.array_equal(short, wide) or _are_near(*_held(short, wide))
    if short.dtype.kind == wide.dtype.kind == "f":
        with np.errstate(over="ignore"):
            wide = wide.astype(short.dtype)  # large numbers become infinite
    if same_bits(short, wide) or np.array_equal(short, wide):
        return True
    bound = max(map(_loosest, [short.dtype, *given]))
    return _are_close(short, wide.astype(np.result_type(short, wide)), bound)


def _are_near(short: Any, wide: Any) -> bool:
    """Return whether integers differ by at most one, from rounding."""
    return bool(np.all(np.abs(short - wide) <= 1.0 + 1e-12 * np.abs(wide)))


def _are_close(short: Any, wide: Any, bound: float) -> bool:
    """Return whether numbers are close, relative to the greatest of them."""
    finite = np.isfinite(wide)
    scale = np.abs(wide[finite]).max(initial=1.0)
    with np.errstate(all="ignore"):
        apart = np.abs(short - wide)
    is_nan = np.isnan(wide)
    same = np.where(finite, apart <= bound * scale, (short == wide) | is_nan)
    return bool(np.all(same & (np.isnan(short) == is_nan)))


def _held(short: Any, wide: Any) -> tuple[Any, Any]:
    """Return the elements that fit into the integers of `short`; others wrap around.

    As a float, the greatest integer of eight bytes is rounded up.
    """
    limits = np.iinfo(short.dtype)
    most = min(int(limits.max), _NO_OVERFLOW)
    fits = (wide >= max(int(limits.min), -_NO_OVERFLOW)) & (wide <= most)
    return short[fits].astype(np.float64), wide[fits].astype(np.float64)


# Integers of eight bytes may wrap around above, in a sum or in its terms.
_NO_OVERFLOW = 1 << 62


# How far results may be off, relative to the greatest of them; integers may be off by
# one. This is loose, because memory that is read with a wrong dtype gives wild values.
_LOOSE = {2: 1e-1, 4: 1e-2}


def _loosest(dtype: np.dtype[Any]) -> float:
    if dtype.kind not in "fc":
        return 0.0
    return _LOOSE.get(dtype.itemsize // (2 if dtype.kind == "c" else 1), 1e-3)


def _as_float(leaf: Any) -> Any:
    """Convert floats and integers to float64, and complex numbers to complex128."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "ifc":
        return leaf
    return leaf.astype(_wide(leaf.dtype))


@lru_cache(maxsize=64)
def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.result_type(dtype, np.float64).newbyteorder("=")


def _as_integer(leaf: Any) -> Any:
    """Convert integers to int64, which does not overflow where short ones do."""
    is_whole = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu"
    return leaf.astype(np.int64) if is_whole else leaf


def _in_own_memory(widen: Callable[[Any], Any], leaf: Any) -> Any:
    made = widen(leaf)
    return copy_leaf(leaf) if made is leaf else made


_WIDER = (_as_float, _as_integer)
# How many elements a message shows.
_SHOWN = 10


def _are_compared(
    session: Session,
    sample: Sample,
    found: Run,
    others: Sequence[Any],
    given: Sequence[np.dtype[Any]],
) -> bool:
    """Return whether wider dtypes were comparable; raise if they give other results.

    `given` are the dtypes of the arrays of the sample.
    """
    if session.op.schema.written:  # a written array keeps its dtype
        return True
    try:
        expected, _ = _noted_once(session, others)
    except Exception:  # noqa: BLE001  # for example, integers that are indices
        return False
    for (name, a), (_, b) in zip(found.effects, expected.effects, strict=True):
        short, wide = host(a), host(b)
        if same_numbers(short, wide, given):
            _check_precise(session, sample, name, (short, wide), others)
            continue
        is_whole = is_array(short) and short.dtype.kind in "iu"
        if is_whole and any(map(_has_ties, arrays_of(others))):
            continue
        if _is_sensitive(session, name, (short, wide), others, given):
            continue
        wider = next(x.dtype.name for x in arrays_of(others) if x.dtype.kind in "ifc")
        raise Fault(
            f"{name} has other values for {sample.note or 'this dtype'} than for"
            f" the same numbers as {wider}",
            f"{short.tolist()} and {wide.tolist()}"
            if short.size < _SHOWN
            else f"{short.dtype} and {wide.dtype}",
            do=_to_compute(session, sample),
        )
    return True


def _check_precise(
    session: Session, sample: Sample, name: str, pair: tuple[Any, Any], others: Any
) -> None:
    """Raise if results of float32 are less precise than float32 is."""
    short, wide = pair
    is_single = is_array(short) and short.dtype.char in "fF" and is_array(wide)
    if not is_single or wide.dtype.char not in "dD" or short.shape != wide.shape:
        return
    if any(x.dtype.char == "e" for x in arrays_of(session.bound(sample))):
        return

    def nearby() -> Iterator[Any]:
        return _nearby(session, name, others, shaken(SINGLE))

    if not is_precise(short, wide, size_of(others), nearby):
        raise Fault(
            f"{name} has less precision than its dtype {short.dtype}, compared with"
            f" {wide.dtype}",
            f"{short.tolist()} and {wide.tolist()}" if short.size < _SHOWN else "",
            do="compute in float32 or a wider dtype, not in float16",
        )


def _nearby(
    session: Session,
    name: str,
    values: Sequence[Any],
    changes: Iterable[Callable[[Any], Any]],
) -> Iterator[Any]:
    """Yield a result for changed arguments; None for those that the kernel refuses."""
    for change in changes:
        try:
            run = session.call(map_values(change, values))
        except Exception:  # noqa: BLE001  # numbers that it refuses
            yield None
        else:
            yield next((host(v) for n, v in run.effects if n == name), None)


def _is_sensitive(
    session: Session,
    name: str,
    pair: tuple[Any, Any],
    others: Sequence[Any],
    given: Sequence[np.dtype[Any]],
) -> bool:
    """Return whether rounding errors of the arguments change results by as much.

    In float64 the last bits of products of large integers are lost, and a kernel that
    returns float32 for integers may have rounded these to float32.
    """
    short, wide = pair
    is_number = is_array(short) and is_array(wide) and wide.dtype.kind in "fc"
    if not is_number or short.shape != wide.shape or short.dtype.kind not in "iufc":
        return False
    with np.errstate(all="ignore"):
        apart = np.abs(np.asarray(short, wide.dtype) - wide)
    if short.dtype.kind in "iu":
        apart = apart[np.abs(wide) <= min(int(np.iinfo(short.dtype).max), _NO_OVERFLOW)]
    if not np.isfinite(apart).all():
        return False
    floats = [d for d in (short.dtype, *given, wide.dtype) if d.kind in "fc"]
    by = max(float(np.finfo(d).eps) for d in floats) / 2
    found = _nearby(session, name, others, shaken(by))
    return is_explained(float(apart.max(initial=0.0)), wide, found)


# Up to this length, NumPy's sort is stable for every dtype.
_STABLE = 16


def _has_ties(x: Any) -> bool:
    """Return whether equal numbers may be sorted differently in another dtype."""
    return bool(x.size > _STABLE and np.unique(x).size < x.size)


def _to_compute(session: Session, sample: Sample) -> str:
    if any(x.dtype.kind in "iu" for x in arrays_of(session.bound(sample))):
        return (
            "widen short integers before the kernel computes: x.astype(float); or refuse"
            f" them: {_to_refuse(session)}"
        )
    return (
        "compute in the dtype of the arguments, or raise a TypeError for dtypes that the"
        " kernel does not take"
    )
