"""Generators whose draws transforms notice, and random operators under vmap."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

import numpy as np

from customop.arrays.nested import flat, map_outline
from customop.arrays.refusals import bits_of, has_bits
from customop.core.builtin_kinds import VMAP
from customop.core.interpreter import Interpreter, Mode, current_mode, next_level
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.core.tracer import Tracer
from customop.errors import VmapError
from customop.transforms.runs import Subject, is_watched, report, within_reach

if TYPE_CHECKING:
    from customop.transforms.vmap_interpreter import BatchInterpreter


# ---- generators ----
# Random numbers that a function draws from NumPy or Python, which no operator sees.


class DrawWatch:
    """Notes the generators whose states change.

    Reading the states takes 1 us for each generator, and 30 us for a Mersenne Twister
    (NumPy 2.4).

    Attributes
    ----------
    drawn : list
        These generators.
    """

    def __init__(self, found: Sequence[Any]) -> None:
        self.drawn: list[Any] = []
        self._sources = found
        self._states = self._read()

    def _read(self) -> list[str]:
        return [repr(_state(source)) for source in self._sources]

    def look(self) -> None:
        """Compare the states with those of the last `restart`."""
        triples = zip(self._sources, self._states, self._read(), strict=True)
        self.drawn += [source for source, before, now in triples if before != now]

    def restart(self) -> None:
        """Take the states as they are."""
        self._states = self._read()


def watched(fn: Callable[..., Any], subject: Subject, name: str) -> Callable[..., Any]:
    """The function; one that watches its run, if `config.checks` wants that of it."""
    return watching(fn, subject, lambda source: _drawn(name, source))


def watching(
    fn: Callable[..., Any],
    subject: Subject,
    error: Callable[[Any], VmapError],
    begin: Callable[[DrawWatch], None] | None = None,
) -> Callable[..., Any]:
    """As `watched`, with an error for a generator, and what to do with the watch first."""
    if not is_watched(subject):
        return fn
    is_sampled = subject.is_sampled

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        watch = DrawWatch(sources(fn, (*args, *kwargs.values())))
        if begin is not None:
            begin(watch)
        out = fn(*args, **kwargs)
        watch.look()
        for source in {id(source): source for source in watch.drawn}.values():
            report(error(source), is_sampled=is_sampled)
        subject.note_watched()
        return out

    return run


def _drawn(name: str, source: Any) -> VmapError:
    return VmapError(
        f"vmap of {name}: the function draws from {name_of(source)}, with"
        " randomness='error'",
        "NumPy draws once, so all rows get the same numbers",
        do="draw a batch outside and pass it, or write vmap(f, randomness='same') if"
        " the same numbers are meant",
    )


def name_of(source: Any) -> str:
    """A generator for messages."""
    if isinstance(source, ModuleType):
        return "np.random" if source is np.random else f"Python's {source.__name__}"
    return f"a {type(source).__name__}"


def _state(source: Any) -> Any:
    """A state that can be compared by its repr."""
    state = _raw_state(source)
    return [*map(_plain, state)] if source is np.random else _plain(state)


def _raw_state(source: Any) -> Any:
    if source is np.random:
        return np.random.get_state()  # noqa: NPY002  # what is watched
    if hasattr(source, "getstate"):  # Python's
        return source.getstate()
    known = bits_of(source)
    return known.get_state() if hasattr(known, "get_state") else known.state


@contextmanager
def restored(states: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """Draw again from the states of some generators; after it they are as before."""
    before = states_of([source for source, _ in states])
    set_states(states)
    try:
        yield
    finally:
        set_states(before)


def states_of(found: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Generators with their states, for `restored`."""
    return [(source, copy.deepcopy(_raw_state(source))) for source in found]


def set_states(states: Sequence[tuple[Any, Any]]) -> None:
    """Set generators to states from `states_of`."""
    for source, state in states:
        if hasattr(source, "set_state"):  # np.random, or a RandomState
            source.set_state(state)
        elif hasattr(source, "setstate"):  # Python's
            source.setstate(state)
        else:
            bits_of(source).state = copy.deepcopy(state)


def _plain(state: Any) -> Any:
    """A state with bytes in place of arrays, of which repr leaves the middle out."""
    if isinstance(state, dict):
        return {key: _plain(item) for key, item in state.items()}
    if isinstance(state, tuple | list):
        return [_plain(item) for item in state]
    return state.tobytes() if isinstance(state, np.ndarray) else state


def sources(fn: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    """Generators among the arguments and within reach of a function."""
    return within_reach((fn, *args), _is_source)


def is_generator(value: Any) -> bool:
    """Whether a value is a generator of NumPy."""
    module: Any = sys.modules.get("numpy.random")  # imported by whoever has one
    return module is not None and isinstance(value, module.Generator)


def plain_generator(value: Any) -> Any:
    """The user's generator, given one that draws for each row; other values unchanged."""
    return getattr(value, "plain", value)


def _is_source(item: Any) -> bool:
    if item is None:
        return False
    python: Any = sys.modules.get("random")
    if python is not None and (item is python or isinstance(item, python.Random)):
        return True
    # NumPy imports it at the first use, which takes 10 ms: before, nothing can draw.
    module: Any = sys.modules.get("numpy.random")
    if module is None:
        return False
    classes = (module.Generator, module.RandomState, module.BitGenerator)
    return item is module or isinstance(item, classes)


# ---- random operators under vmap ----


def random_error(op: RuleTable, interpreter: Interpreter) -> VmapError:
    """The error for a random operator where `randomness` does not allow one."""
    return op.error(
        VmapError,
        f" is random under {interpreter.describe()} with randomness='error'",
        interpreter.where(),
        do="vmap(f, randomness='same') or vmap(f, randomness='different')",
        kind="vmap",
    )


class RandomnessMode(Mode):
    """Handles random operators whose arguments are the same for all rows."""

    kind: ClassVar[RuleKind] = VMAP
    sees_all = False
    # Of the class, since most runs of vmap set none of these: that takes 200 ns.
    alive = True
    runs_plans = False
    # Arrays of transforms outside that were written for all rows at once.
    written: Sequence[ref[Tracer]] = ()
    # Looks for draws outside of random operators, if this run is watched.
    watch: DrawWatch | None = None

    def __init__(self, batch: BatchInterpreter) -> None:
        self.level: int = next_level()
        self.batch = batch
        self.outer: Mode | None = current_mode.get()

    def describe(self) -> str:
        """How messages name it: by the vmap it belongs to."""
        return self.batch.describe()

    def where(self) -> str:
        """The call of that vmap."""
        return self.batch.where()

    def see_write(self, box: Tracer) -> None:
        """Note a write to an array that may come from outside."""
        if box.interpreter.level < self.batch.level:
            self.written = [*self.written, ref(box)]

    def check_writes(self) -> None:
        """Raise if such an array is still there: it was not made inside."""
        if any(box() is not None for box in self.written):
            raise VmapError(
                "an array from outside is written in place inside"
                f" {self.describe()}, where each row would write it",
                do="return the value from the function, and write it outside",
            )

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run a random operator as `randomness` says."""
        args = [plain_generator(value) for value in args]
        if not op.sees_seed:
            return self._run(op, args)
        return self._unwatched(lambda: self._run(op, args))

    def draw_rows(self, draw: Callable[[], Any]) -> Any:
        """What a function draws for all rows along axis 0, seen only outside of them."""
        token = current_mode.set(self.outer)
        try:
            found = self._unwatched(draw)
        finally:
            current_mode.reset(token)
        return self.batch.wrap(found, 0)

    def _unwatched(self, draw: Callable[[], Any]) -> Any:
        """Draw so that the watch takes it for right."""
        if self.watch is None:
            return draw()
        self.watch.look()
        try:
            return draw()
        finally:
            self.watch.restart()

    def _run(self, op: RuleTable, args: Sequence[Any]) -> Any:
        batch = self.batch
        if not op.sees_seed or any(
            batch.dim_of(v) is not None for v in flat(list(args))
        ):
            return op.invoke(args)
        if batch.draws is not None:
            batch.draws.start(args)()
            return op.invoke(args)
        if batch.info.randomness == "error":
            raise random_error(op, batch)
        dims = [map_outline(value, lambda _: None) for value in args]
        return batch.loop(op, args, dims)


class Draws:
    """The random states at the start of each call, for ``randomness="same"``.

    Every row of a call starts from the state of the first row, and every chunk of a
    batch from the states of the first chunk. The state is that of the generators among
    the arguments; without generators it is NumPy's global one.
    """

    def __init__(self) -> None:
        self._states: list[Any] = []
        self._calls = 0

    def again(self) -> Draws:
        """The same states for another chunk, from the first call on."""
        self._calls = 0
        return self

    def start(self, values: Sequence[Any]) -> Callable[[], None]:
        """Note or look up the state of a call; return a function that restores it."""
        leaves = flat(list(values))
        bits = [bits_of(v) for v in leaves if has_bits(v)]
        if self._calls == len(self._states):
            self._states.append(_states(bits))
        states = self._states[self._calls]
        self._calls += 1

        def rewind() -> None:
            if not bits:
                np.random.set_state(states)  # noqa: NPY002  # operators may use it
            for bit, state in zip(bits, states, strict=False):
                bit.state = copy.deepcopy(state)

        return rewind


def _states(bits: Sequence[Any]) -> Any:
    if not bits:
        return np.random.get_state()  # noqa: NPY002  # operators may use it
    return [copy.deepcopy(bit.state) for bit in bits]
