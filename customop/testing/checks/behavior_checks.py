"""Checks of an operator in programs: repeated, pickled, in threads, captured."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import chain
from types import FrameType
from typing import Any, Literal

import numpy as np

from customop.arrays.kinds import FAKE, has_device, is_array
from customop.arrays.nested import flat
from customop.core.builtin_kinds import AUTOGRAD
from customop.core.dispatch import find_kernel, select
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import (
    CustomOpError,
    DataDependentError,
    GuardError,
    NoDerivativeError,
    innermost,
)
from customop.graph.module import GraphModule
from customop.graph.walk import run_once
from customop.schema.tags import BY_DATA
from customop.schema.types import GENERATOR, ClassOf, Maybe, place_in, typed_items
from customop.testing.checks.session import (
    Run,
    Session,
    arrays_of,
    floats_of,
    is_floats,
    placer,
    same_bits,
    same_runs,
)
from customop.testing.checks.smooth import (
    gradients_of,
    is_float_array,
    ones_like,
    why_no_derivative,
)
from customop.testing.faults import Fault
from customop.testing.inputs.sample_values import map_values
from customop.testing.quiet import OutOfTimeError
from customop.transforms.autograd.grad import vjp
from customop.transforms.trace.make_fx import graph_of

# ---- test_determinism ----

# Freed memory is filled with these bytes. As float64 they are 1.2e+161 and -3.7e-103,
# which kernels would hardly return.
POISONS = (0x61, 0xAA)


def check_determinism(session: Session, sample: Sample) -> str:
    """Check that equal inputs give equal results in new memory, after other calls."""
    if not session.is_steady(sample):
        return "it draws from a random state that cannot be set from here"
    first, second = (poisoned(session, sample, poison) for poison in POISONS)
    check_equal(session, first, second)
    kept = [(name, copy.copy(leaf)) for name, leaf in first.effects]
    later = _on_others(session, sample)
    third = poisoned(session, sample, POISONS[0])
    session.compare(third, first, "after a call on other inputs", do=_FILL, exact=True)
    for (name, before), (_, now) in zip(kept, first.effects, strict=True):
        if is_array(now) and not same_bits(before, now):
            raise _shared(name)
    for (name, a), (_, b) in zip(first.effects, third.effects, strict=True):
        if _is_written(name):
            continue
        if isinstance(a, np.ndarray) and a.size and np.may_share_memory(a, b):
            raise _shared(name)
    _check_replayed(session, sample, third, later)
    return ""


def check_equal(session: Session, first: Run, second: Run) -> None:
    """Raise unless two calls on equal inputs did the same."""
    what = "between two calls on equal inputs"
    session.compare(second, first, what, do=_FILL, exact=True)


_FILL = (
    "fill every element of arrays from np.empty, and keep no state between calls; tag"
    " random operators with Tag.nondeterministic_seeded"
)


def _check_replayed(
    session: Session, sample: Sample, third: Run, later: Sequence[Run | None]
) -> None:
    """Check that calls give the same when repeated from the kernel's first state."""
    do = "keep no results of earlier calls, or find them by all values that they depend on"
    with session.start.rewound() as has_state:
        if not has_state:
            return
        replayed = _on_others(session, sample)
        last = poisoned(session, sample, POISONS[0])
    what = "between a call and the same call after others"
    pairs = [*zip(replayed, later, strict=True), (last, third)]
    for early, late in pairs:
        if early is not None and late is not None:
            session.compare(late, early, what, do=do, exact=True)


def check_generators(session: Session) -> None:
    """Check that some result depends on each Generator that the operator takes."""
    op = session.op
    for i, p in enumerate(op.schema.parameters):
        if p.type != GENERATOR or not session.samples:
            continue
        if all(_is_ignored(session, sample, i) for sample in session.samples):
            raise Fault(
                f"gives the same results for every Generator '{p.name}'",
                f"seen over {len(session.samples)} inputs, with {_SEEDS} seeds each",
                do=f"draw from {p.name}, not from a generator of the kernel's own",
                parameter=p.name,
            )


_SEEDS = 8


def _is_ignored(session: Session, sample: Sample, at: int) -> bool:
    runs = []
    for seed in range(_SEEDS):
        values = session.values(sample)
        if values[at] is None:
            return True
        values[at] = np.random.default_rng(seed)
        try:
            runs.append(session.call(values))
        except Exception:  # noqa: BLE001  # other numbers that the kernel cannot use
            return False
    return all(same_runs(run, runs[0]) for run in runs)


def _is_written(name: str) -> bool:
    return name.startswith("argument")


def _shared(name: str) -> Fault:
    return Fault(
        f"returns {name} in memory that a later call uses again",
        do="return a new array from each call: out.copy()",
    )


def poisoned(session: Session, sample: Sample, poison: int) -> Run:
    """Run the operator while memory from `np.empty` is filled with this byte."""
    values = session.values(sample)
    sizes = {leaf.nbytes for leaf in flat(values) if isinstance(leaf, np.ndarray)}
    for _, leaf in session.expected(sample).effects:
        sizes |= {getattr(leaf, "nbytes", 0)}
    for size in sizes:
        _leave_behind(min(size, _MOST_POISONED), poison)
    return session.call(values)


_MOST_POISONED = 1 << 20


def _leave_behind(size: int, poison: int) -> None:
    # NumPy caches blocks below 1 KiB by size; malloc keeps larger ones.
    held = [np.full(size, poison, np.uint8) for _ in range(3)]
    held.clear()


def _on_others(session: Session, sample: Sample) -> list[Run | None]:
    """Run the operator on other inputs; an item is None if it refuses them."""
    return [_attempt(session, others) for others in _others(session, sample)]


def _attempt(session: Session, values: Sequence[Any]) -> Run | None:
    try:
        return session.call(values)
    except Exception:  # noqa: BLE001  # values it does not take
        return None


def _others(session: Session, sample: Sample) -> Iterator[list[Any]]:
    """Yield other arguments: the values of the sample reversed, then another sample."""
    yield map_values(_reversed, session.values(sample))
    others = [other for other in session.samples if other is not sample]
    if others:
        yield session.values(others[0])


def _reversed(leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray) or leaf.size < 2:
        return _shifted(leaf)
    out = leaf.reshape(-1)[::-1].reshape(leaf.shape).copy()
    return out if (out != leaf).any() else _shifted(out)


def _shifted(leaf: Any) -> Any:
    """Return other numbers for an array whose elements are all equal."""
    is_float = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fc"
    return leaf * 0.5 if is_float else leaf


# ---- test_pickle ----


def check_pickle(session: Session, sample: Sample) -> str:
    """Check that the operator and its config objects survive pickling and copying."""
    op = session.op
    for way, made in (("pickle", _pickled(op)), ("deepcopy", copy.deepcopy(op))):
        if made is not op:
            raise Fault(
                f"is another operator after {way}",
                do="keep operators of one name to one module",
            )
    hidden = ""
    for p, value in zip(op.schema.parameters, session.values(sample), strict=True):
        declared = p.type.item if isinstance(p.type, Maybe) else p.type
        if isinstance(declared, ClassOf) and not declared.is_enum and value is not None:
            hidden = hidden or _check_object(value, declared)
    if hidden:
        return hidden
    if "<locals>" in getattr(innermost(op.__wrapped__), "__qualname__", ""):
        return "it is made inside of a function: other processes do not find it"
    return ""


def _pickled(value: Any) -> Any:
    try:
        return pickle.loads(pickle.dumps(value))  # noqa: S301  # our own bytes
    except (pickle.PickleError, TypeError, AttributeError, CustomOpError) as error:
        raise Fault(
            f"{type(value).__name__} does not pickle: {error}",
            do="define classes and operators at the top level of a module",
        ) from error


def _check_object(value: Any, declared: ClassOf) -> str:
    """Check that a config object has the same value after pickling and copying."""
    cls = declared.cls
    if _found_by_name(cls) is not cls:
        return f"{cls.__qualname__} is not found by its name in {cls.__module__}"
    for way, made in (("pickle", _pickled(value)), ("deepcopy", copy.deepcopy(value))):
        items, others = (typed_items(v, declared) for v in (value, made))
        for (step, before, _), (_, after, _) in zip(items, others, strict=True):
            pairs = zip(flat(before), flat(after), strict=True)
            if not all(_is_equal(a, b) for a, b in pairs):
                place = place_in(declared, step)
                raise Fault(
                    f"takes {cls.__qualname__}, whose {place} is another after {way}",
                    f"{before!r} before, {after!r} after",
                    do="let __reduce__, or __getstate__, keep all fields",
                )
    return ""


def _found_by_name(cls: type) -> object:
    """Return the object that pickle finds by the name of this class."""
    found: object = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found


def _is_equal(a: Any, b: Any) -> bool:
    return same_bits(a, b) if isinstance(a, np.ndarray) else bool(a == b) or a is b


# ---- test_threads ----

# Seconds to wait for a call in another thread, which may wait for a lock of the kernel.
_PATIENCE = 0.2
# Seconds after which a call in another thread counts as blocked forever.
_LONGEST = 20.0
# How many lines of a kernel are interrupted by another call, at most.
_MOST_LINES = 24


def check_threads(session: Session, sample: Sample) -> str:
    """Check that calls in several threads do not disturb each other."""
    if session.op.sees_seed:
        return "it draws from a random state, which threads share"
    expected = session.expected(sample)
    others = next(_others(session, sample))
    try:
        session.call(map_values(_copied, others))
    except Exception:  # noqa: BLE001  # values it does not take
        others = session.values(sample)
    found = _interleaved(session, sample, others)
    session.compare(
        found,
        expected,
        "between a call alone and one during a call in another thread",
        do="use new arrays in each call, or keep scratch memory in a threading.local()",
        exact=True,
    )
    return ""


def _copied(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _interleaved(session: Session, sample: Sample, others: Sequence[Any]) -> Run:
    """Run a kernel with a call in another thread before each of its lines.

    Threads switch at random; here they switch before every line.
    """
    kernel = select(session.op, session.values(sample))[0]
    code = getattr(innermost(kernel), "__code__", None)
    if code is None:
        return _with_other_calls(session, sample, others)
    before = sys.gettrace()  # a debugger or a coverage tool
    elsewhere = _OtherThread(session, others)

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            elsewhere.call()
        return on_line

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        return on_line if frame.f_code.co_filename == code.co_filename else None

    values = session.values(sample)
    elsewhere.call()
    alone = elsewhere.error
    sys.settrace(on_call)
    try:
        run = session.call(values)
    finally:
        sys.settrace(before)
        elsewhere.end()
    if alone is not None:
        raise Fault(
            f"raises {type(alone).__name__} in another thread: {alone}",
            do="make what each thread needs in the kernel: a threading.local() is empty"
            " in every other thread",
        ) from alone
    return run


class _OtherThread:
    """Runs calls of an operator in another thread, one at a time."""

    def __init__(self, session: Session, others: Sequence[Any]) -> None:
        self.session = session
        self.others = others
        self.left = _MOST_LINES
        # Bare locks and a bare thread take a third of the time of an Event and a
        # Thread. To request a call, `wanted` is released. A call holds `running`.
        self.wanted, self.running = threading.Lock(), threading.Lock()
        self.wanted.acquire()
        self.has_begun = self.is_over = False
        # The error of the first call, before which nobody has begun another.
        self.error: Exception | None = None

    def call(self) -> None:
        """Start a call and wait for it, but only for a while: a lock may block it."""
        if self.left == 0 or not self.running.acquire(blocking=False):
            return
        self.left -= 1
        self.wanted.release()
        if not self.has_begun:
            self.has_begun = True
            start_new_thread(self._run, ())
        self._has_ended(_PATIENCE)

    def _has_ended(self, patience: float) -> bool:
        """Wait for the call, and return whether it has ended."""
        is_free = self.running.acquire(timeout=patience)
        if is_free:
            self.running.release()
        return is_free

    def _run(self) -> None:
        while True:
            self.wanted.acquire()
            if self.is_over:
                return
            error = _error_of(self.session.call, map_values(_copied, self.others))
            self.error = error if self.left == _MOST_LINES - 1 else self.error
            self.running.release()

    def end(self) -> None:
        """Wait for the last call, which any lock should have released by now."""
        is_held = not self._has_ended(_LONGEST)
        self.is_over = True
        self.wanted.release()
        if is_held:
            raise Fault(
                f"does not end within {_LONGEST:.0f} s during a call in another thread",
                do="release every lock that the kernel takes: with lock: ...",
            )


def _error_of(call: Callable[[Any], Any], values: Any) -> Exception | None:
    """Make a call in this thread; return its error, if it has one."""
    try:
        call(values)
    except OutOfTimeError:  # the thread that checks the operator will see it too
        return None
    except Exception as error:  # noqa: BLE001  # raised in the other thread
        return error
    return None


def _with_other_calls(session: Session, sample: Sample, others: Sequence[Any]) -> Run:
    """Run a kernel several times while another thread runs it too."""
    copies = map_values(_copied, others)

    def keep_calling() -> None:
        for _ in range(_REPEATS):
            _error_of(session.call, copies)

    thread = threading.Thread(target=keep_calling, daemon=True)
    thread.start()
    runs = [session.call(session.values(sample)) for _ in range(_REPEATS)]
    thread.join()
    expected = session.expected(sample)
    wrong = [r for r in runs if not same_runs(r, expected)]
    return wrong[0] if wrong else runs[0]


_REPEATS = 20


# ---- checks that an operator and its gradient can be captured as graphs ----


def check_static(session: Session, sample: Sample) -> str:
    """Check that graphs of the operator and of its gradient give what calls give."""
    return _check(session, sample, "fake")


def check_dynamic(session: Session, sample: Sample) -> str:
    """Do as `check_static` with symbolic sizes, and run graphs on other sizes."""
    return _check(session, sample, "symbolic")


_Mode = Literal["fake", "symbolic"]


def _check(session: Session, sample: Sample, mode: _Mode) -> str:
    if find_kernel(session.op, FAKE) is None:
        return "no fake kernel"
    values = session.values(sample)
    if not arrays_of(values):
        return "no argument is an array"
    known: dict[Any, Sequence[_Captured]] = session.by_content.setdefault(mode, {})
    key = _outline(values)
    if key in known and mode == "fake":
        return "a graph for such arrays is checked already"
    if key in known:
        return _run_again(session, sample, known[key])
    if len(known) >= _MOST:
        return f"{_MOST} graphs are checked already"
    return _check_new(session, sample, mode, known)


def _check_new(
    session: Session,
    sample: Sample,
    mode: _Mode,
    known: dict[Any, Sequence[_Captured]],
) -> str:
    """Capture graphs, check that they give what calls give, and remember them."""
    session.expected(sample)
    graphs = _captured(session, sample, mode)
    try:
        first = next(graphs)
    except DataDependentError:
        if session.op.tags.intersection(BY_DATA):
            return "the fake kernel needs data, as its tags allow"
        raise
    found = []
    for graph in chain([first], graphs):
        graph.compare(session, sample)
        found.append(graph)
    known[_outline(session.bound(sample))] = found
    return ""


# How many graphs are made of an operator; each takes as long as fifty calls.
_MOST = 2


def _outline(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return everything that a graph of symbolic sizes fixes: all but the sizes."""
    leaves = flat(list(values))
    return tuple(
        (leaf.dtype, len(leaf.shape)) if is_array(leaf) else (type(leaf), repr(leaf))
        for leaf in leaves
    )


def _run_again(session: Session, sample: Sample, graphs: Sequence[_Captured]) -> str:
    """Run graphs with symbolic sizes on arrays of other sizes."""
    try:
        for graph in graphs:
            graph.compare(session, sample)
    except GuardError:
        return "the graph is for other sizes, as its guards say"
    return ""


# ---- capturing ----


class _Captured:
    """A graph of a call, of its gradient, or of both as a pair."""

    def __init__(self, module: GraphModule, what: _Captures) -> None:
        self.module: GraphModule = module
        self.what: _Captures = what

    def compare(self, session: Session, sample: Sample) -> None:
        """Raise unless the graph gives what calls give."""
        if not session.is_steady(sample):
            return
        values = session.values(sample)
        session.seed()
        found = run_once(self.module, [*filter(has_device, flat(values))])
        if self.what is not _GRADIENT:
            out = found[0] if self.what is _BOTH else found
            _compare_call(session, sample, session.run_of(out, values))
        if self.what is not _CALL:
            gradients = found[1] if self.what is _BOTH else found
            _compare_gradient(session, sample, gradients)


def _compare_call(session: Session, sample: Sample, found: Run) -> None:
    session.compare(
        found,
        session.expected(sample),
        "between the operator and a graph of its call",
        do="let the kernel compute from its arguments alone",
        exact=True,
    )


def _compare_gradient(session: Session, sample: Sample, found: Sequence[Any]) -> None:
    expected = gradients_of(session, sample)
    for (name, b), a in zip(expected.items(), found, strict=True):
        session.compare_leaf(
            f"the gradient by {name}",
            a,
            b,
            "between the formula and a graph of it",
            do="let the formula compute from ctx and the gradients alone",
        )


def _captured(session: Session, sample: Sample, mode: _Mode) -> Iterator[_Captured]:
    """Yield a graph of call and gradient; if that fails, a graph of each."""
    call = _OfArrays(session, sample)
    if not _has_gradient(session, sample):
        yield call.graph(_CALL, mode)
        return
    try:
        both = call.graph(_BOTH, mode)
    except NoDerivativeError:
        raise
    except Exception:  # noqa: BLE001  # the part that fails raises it again below
        yield call.graph(_CALL, mode)
        try:
            yield call.graph(_GRADIENT, mode)
        except CustomOpError as error:
            raise _untraceable(session, error) from None
    else:
        yield both


def _has_gradient(session: Session, sample: Sample) -> bool:
    op = session.op
    if op.find_rule(AUTOGRAD) is None or op.sees_seed:
        return False
    return not why_no_derivative(session, sample)


class _Captures(Enum):
    """Which values a graph computes."""

    CALL = "call"
    GRADIENT = "gradient"
    BOTH = "both"


_CALL, _GRADIENT, _BOTH = _Captures


class _OfArrays:
    """An operator as a function of the arrays of a sample."""

    def __init__(self, session: Session, sample: Sample) -> None:
        self.op: Operator[..., Any] = session.op
        values = session.values(sample)
        self.put = placer(values, has_device)
        self.arrays: list[Any] = [*filter(has_device, flat(values))]
        places = [i for i, leaf in enumerate(self.arrays) if is_floats(leaf)]
        pairs = zip(places, floats_of(session.op, values), strict=True)
        self.floats: list[int] = [i for i, name in pairs if name not in session.fixed]

    def graph(self, what: _Captures, mode: _Mode) -> _Captured:
        """Capture one of the functions below as a graph."""
        fn = getattr(self, what.value)
        names = [f"arrays[{i}]" for i in range(len(self.arrays))]
        return _Captured(graph_of(fn, mode, self.arrays, names), what)

    def call(self, *arrays: Any) -> Any:
        """Return the results of the operator."""
        return self.op.invoke(self.put(arrays))

    def gradient(self, *arrays: Any) -> Any:
        """Return the gradients by the floating-point arrays."""
        return self.both(*arrays)[1]

    def both(self, *arrays: Any) -> tuple[Any, Any]:
        """Return the results, and the gradients of their sum."""
        given = [*arrays]

        def call(*floats: Any) -> tuple[Any, Any]:
            for i, x in zip(self.floats, floats, strict=True):
                given[i] = x
            out = self.op.invoke(self.put(given))
            return tuple(leaf for leaf in flat(out) if is_float_array(leaf)), out

        floats = [arrays[i] for i in self.floats]
        out, pullback, whole = vjp(call, *floats, has_aux=True)
        return whole, pullback(tuple(map(ones_like, out)))


def _untraceable(session: Session, error: CustomOpError) -> Fault:
    return Fault(
        f"has a gradient that cannot be captured: {error.what}",
        *error.where,
        do=f"make the formula of @{session.op.name}.register_autograd of operators and"
        " np functions, without branches on values; or say that graphs of gradients are"
        f" not meant: {session.op.name}.waive(..., reason=...)",
    )
