"""Generators whose draws transforms notice, and states for random operators under vmap."""

from __future__ import annotations

import copy
import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from operator import attrgetter
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.arrays.refusals import bits_of, has_bits
from customop.core.interpreter import Interpreter
from customop.core.reach import ValueSearch
from customop.core.table import RuleTable
from customop.errors import ArgumentError, VmapError
from customop.transforms.runs import Subject, is_watched, report, subject_of

# ---- generators ----
# Random numbers that a function draws from NumPy or Python, which no operator sees.


class DrawWatch:
    """Notes the generators whose states change while a function runs.

    These are the generators that the function can reach, and NumPy's global one. Others
    that it makes itself count where nothing gives them a seed. Reading a state takes 1 us,
    and 100 us for a Mersenne Twister (NumPy 2.4).

    Parameters
    ----------
    fn : callable
    args : sequence
        Arguments that may hold generators.

    Attributes
    ----------
    drawn : list
        These generators.
    reaches : bool
        Whether the function can reach a generator.
    arrays : list of np.ndarray
        Arrays that the function can reach, and that are not arguments.
    functions : list of FunctionType
        Functions of the user that it can reach.
    """

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any] = ()) -> None:
        self.drawn: list[Any] = []
        search = ValueSearch(_is_source, [fn, *args])
        self._sources = _distinct(search)
        self.reaches: bool = bool(self._sources)
        self.functions: list[FunctionType] = search.functions
        given = {*map(id, args)}
        self.arrays: list[np.ndarray] = [
            value
            for key, value in search.seen.items()
            if isinstance(value, np.ndarray) and key not in given
        ]
        module = sys.modules.get("numpy.random")
        # Another thread may draw from it, too.
        is_alone = threading.active_count() == 1
        if module is not None and is_alone and module not in self._sources:
            self._sources.append(UNREACHED)
        self._states = self._read()
        self._depth = 0

    def _read(self) -> list[Any]:
        states = [_bits() if s is UNREACHED else _state(s) for s in self._sources]
        return [*states, _seeded()]

    def look(self, *, is_over: bool = True) -> None:
        """Compare the states with those after the last draw that was allowed.

        Before the function is over, an operator may draw from a new generator.
        """
        given = [*self._sources, UNSEEDED] if is_over else self._sources
        triples = zip(given, self._states, self._read(), strict=False)
        self.drawn += [source for source, before, now in triples if before != now]

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let an operator draw; it may call others that draw, too."""
        if not self._depth:
            self.look(is_over=False)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._states = self._read()


class _Unseeded:
    """Random bits of the operating system, such as the seed of a generator."""


class _Unreached:
    """NumPy's global generator, where the walk does not find it."""


UNSEEDED: _Unseeded = _Unseeded()
UNREACHED: _Unreached = _Unreached()


def _bits() -> bytes:
    """Return the state of NumPy's global generator, as it lies in memory.

    It takes 1 us; what `get_state` adds is a second normal number that is kept for later.
    """
    module: Any = np.random  # whose types leave the function out
    bits = module.get_bit_generator()
    size = _TWISTER if type(bits).__name__ == "MT19937" else 0
    if not size:  # another one was set
        return repr(_plain(bits.state)).encode()
    return ctypes.string_at(bits.ctypes.state_address, size)


# Bytes of a Mersenne Twister: 624 words, and the place among them.
_TWISTER = 625 * 4

# How often each thread has asked the operating system, by the module that asks.
_asks: dict[tuple[str, int], int] = {}


def _seeded() -> int:
    """Return how often this thread has asked the operating system for random bits.

    NumPy does for a generator without a seed, and Python for `secrets` and `SystemRandom`.
    """
    return _asked("numpy.random.bit_generator", "randbits") + _asked(*_OF_PYTHON)


_OF_PYTHON = ("random", "_urandom")


def _asked(name: str, function: str) -> int:
    """Return how often this thread has called a module's function for random bits."""
    module: Any = sys.modules.get(name)
    ask = getattr(module, function, None)
    if ask is not None and not hasattr(ask, "counts"):

        def counted(count: int) -> Any:
            asks = sys._getframe(1).f_globals.get("__name__")
            keys = [
                (name, threading.get_ident()),
                (_OF_PYTHON[0], threading.get_ident()),
            ]
            before = {key: _asks.get(key, 0) for key in keys}
            out = ask(count)
            spec: Any = getattr(sys.modules.get("numpy.random"), "__spec__", None)
            is_imported = getattr(spec, "_initializing", False)  # its global generator
            if is_imported or asks == "numpy.random._pickle":  # a copy gets a state
                _asks.update(before)
            else:
                _asks[keys[0]] = before[keys[0]] + 1
            return out

        vars(counted)["counts"] = True
        setattr(module, function, counted)
    return _asks.get((name, threading.get_ident()), 0)


def watched(fn: Callable[..., Any], subject: Subject, name: str) -> Callable[..., Any]:
    """Return the function, or one that watches its run if `config.checks` says so."""
    return watching(fn, subject, lambda source: _drawn(name, source))


def draw_subject(fn: Callable[..., Any], randomness: str, classes: str = "") -> Subject:
    """Return the subject that a function is for its draws."""
    return subject_of(fn, f"draws, {randomness} {classes}")


def subject_with(
    subject: Subject, fn: Callable[..., Any], randomness: str, args: Sequence[Any]
) -> Subject:
    """Return the subject of a call: another one for each class of generators given."""
    found = args and [v for v in args if type(v) is not np.ndarray and _is_source(v)]
    if not found:
        return subject
    classes = {type(_known(source)).__name__ for source in found}
    return draw_subject(fn, randomness, " ".join(sorted(classes)))


def watching(
    fn: Callable[..., Any],
    subject: Subject,
    error: Callable[[Any], VmapError],
    begin: Callable[[DrawWatch], None] | None = None,
) -> Callable[..., Any]:
    """Do as `watched`, with an error for each generator, and a first step with the watch."""
    if not is_watched(subject):
        return fn
    is_sampled = subject.is_sampled

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        watch = DrawWatch(fn, (*args, *kwargs.values()))
        if begin is not None:
            begin(watch)
        out = fn(*args, **kwargs)
        watch.look()
        for source in {id(source): source for source in watch.drawn}.values():
            report(error(source), is_sampled=is_sampled)
        subject.reaches = subject.reaches or watch.reaches
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
    """Return the text for a generator in messages."""
    if source is UNSEEDED:
        return "a generator that it makes without a seed, or the operating system"
    if source is UNREACHED:
        return "np.random"
    if isinstance(source, ModuleType):
        return "np.random" if source is np.random else f"Python's {source.__name__}"
    return f"a {type(source).__name__}"


def _state(source: Any) -> Any:
    """Return a state that can be compared; for a source without one, how often it drew."""
    if _is_system(source):
        # `gauss` draws two numbers at once, and keeps one.
        return _asked(*_OF_PYTHON), source.gauss_next
    seeds = getattr(bits_of(source), "seed_seq", None)
    spawned = getattr(seeds, "n_children_spawned", 0)  # each has other numbers
    return _plain(_raw_state(source)), spawned


def _is_system(source: Any) -> bool:
    """Return whether each draw asks the operating system."""
    python: Any = sys.modules.get("random")
    return python is not None and isinstance(source, python.SystemRandom)


def _raw_state(source: Any) -> Any:
    if _is_system(source):
        raise _cannot_repeat(source)
    if source is np.random:
        return np.random.get_state()  # noqa: NPY002  # what is watched
    if hasattr(source, "getstate"):  # Python's
        return source.getstate()
    known = bits_of(source)
    return known.get_state() if hasattr(known, "get_state") else known.state


def _cannot_repeat(source: Any) -> ArgumentError:
    return ArgumentError(
        f"the function can reach {name_of(source)}, whose draws cannot be repeated",
        do="use random.Random(), or draw outside and pass the numbers",
    )


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
    """Return generators with their states, for `restored`."""
    return [(source, copy.deepcopy(_raw_state(source))) for source in found]


def set_states(states: Sequence[tuple[Any, Any]]) -> None:
    """Set generators to states from `states_of`."""
    for source, state in states:
        if hasattr(source, "set_state"):  # np.random, or a RandomState
            source.set_state(state)
        elif hasattr(source, "setstate"):  # Python's
            source.setstate(state)
        elif hasattr(source, "spawn_key"):  # a sequence of seeds
            if source.state != state:
                raise _cannot_repeat(source)
        else:
            bits_of(source).state = copy.deepcopy(state)


def _plain(state: Any) -> Any:
    """Return a state with bytes in place of arrays, so that it can be compared."""
    if isinstance(state, dict):
        return {key: _plain(item) for key, item in state.items()}
    if isinstance(state, tuple | list):
        return [_plain(item) for item in state]
    return state.tobytes() if isinstance(state, np.ndarray) else state


def sources(fn: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    """Return the generators among the arguments and within reach of a function."""
    return _distinct(ValueSearch(_is_source, [fn, *args]))


class KnownSources:
    """The generators within reach of a function, for each call of it."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self._last: ValueSearch | None = None

    def now(self, args: Sequence[Any]) -> list[Any]:
        """Return these, and those among arguments; look again only after a change."""
        last = self._last
        if last is None or not last.is_same():
            last = ValueSearch(_is_source, [self._fn])
            self._last = last if last.is_fixed else None
        others = [value for value in args if not is_array(value)]
        return sources(_nothing, [*last.found, *others]) if others else _distinct(last)


def _nothing() -> None:
    """Reach nothing."""


def _distinct(search: ValueSearch) -> list[Any]:
    found = [*search.found]
    if search.reads_texts and threading.active_count() == 1:
        found += _existing()
    return list({id(source): source for source in map(_known, found)}.values())


def _existing() -> list[Any]:
    """List all generators that exist. It takes 10 ms, and only odd code needs it."""
    python: Any = sys.modules.get("random")
    module: Any = sys.modules.get("numpy.random")
    kinds = [] if python is None else [python.Random]
    kinds += [] if module is None else [module.Generator, module.RandomState]
    return [item for item in gc.get_objects() if type(item) in kinds]


def _known(source: Any) -> Any:
    """Return the module of a global generator, which is how users know it."""
    for module, name in (("numpy.random", "mtrand._rand"), ("random", "_inst")):
        found = sys.modules.get(module)
        if found is not None and source is attrgetter(name)(found):
            return found
    return source


def is_generator(value: Any) -> bool:
    """Return whether a value is a generator of NumPy."""
    module: Any = sys.modules.get("numpy.random")  # imported by whoever has one
    return module is not None and isinstance(value, module.Generator)


def plain_generator(value: Any) -> Any:
    """Return the user's generator for one that draws for each row; other values as is."""
    return getattr(value, "plain", value)


def _is_source(item: Any) -> bool:
    # The class is asked for by `type`: a proxy of an object that is gone has no other.
    cls = type(item)
    if cls in _NO_SOURCES:
        return False
    python: Any = sys.modules.get("random")
    if python is not None and (item is python or issubclass(cls, python.Random)):
        return True
    # NumPy imports it at the first use, which takes 10 ms: before, nothing can draw.
    module: Any = sys.modules.get("numpy.random")
    if module is None:
        return False
    classes = (module.Generator, module.RandomState, module.BitGenerator)
    # What a sequence of seeds spawns depends on how much it has spawned.
    return item is module or issubclass(cls, (*classes, module.SeedSequence))


# Classes of most values that a search meets: a third of its time.
_NO_SOURCES = frozenset((type(None), FunctionType, dict, list, tuple, type))


# ---- random operators under vmap ----


def random_error(op: RuleTable, interpreter: Interpreter) -> VmapError:
    """Return the error for a random operator that `randomness` does not allow."""
    return op.error(
        VmapError,
        f" is random under {interpreter.describe()} with randomness='error'",
        interpreter.where(),
        do="vmap(f, randomness='same') or vmap(f, randomness='different')",
        kind="vmap",
    )


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
        """Return the same states for another chunk, from the first call on."""
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
