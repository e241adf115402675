"""`compile`: a function that runs as the graph of its operators."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import numpy as np

from customop.arrays.kinds import is_fake, is_traced
from customop.compiling.backends import Backend, find_backend, returns_lists
from customop.compiling.call_code import (
    MISS,
    Parameters,
    parameters_of,
    strict_settings,
)
from customop.compiling.capture import CapturedCall
from customop.compiling.entries import (
    CallArguments,
    Entry,
    captured_alone,
    capturing,
    eager_entry,
    fixed_numbers,
    free_axes,
    free_numbers,
    make_entry,
    outside_of_modes,
)
from customop.compiling.levels import Levels
from customop.compiling.report import CompileReport, EntryFacts, facts_of, reason_for
from customop.compiling.surroundings import Surroundings
from customop.config import config
from customop.core.interpreter import current_mode
from customop.core.observe import current_observers
from customop.errors import (
    ArgumentError,
    DataDependentError,
    GraphError,
    LeakedTracerError,
    MissingRuleError,
    SizeError,
    check_flag,
    check_function,
    shown,
    warn_caller,
)
from customop.graph.module import GraphModule
from customop.progress import node_channel, progress

# ---- a function that runs as the graph of its operators ----


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")

# So many entries that are not kept any more are explained.
_MOST_FORGOTTEN = 100


def _read_settings() -> None:
    """Note the settings with which each operator is called as such."""
    asked = {
        "config.checks": config.checks == "always",
        "config.check_nans": config.check_nans,
        "config.sample_checks": config.sample_checks > 0,
    }
    strict_settings[:] = [name for name, is_on in asked.items() if is_on]


config.on_change(_read_settings)
_read_settings()


class Compiled(Generic[P, R]):
    """A function that `compile` returns. It takes and returns what the function does.

    Attributes
    ----------
    backend : str or callable
        The back end, or its name.
    graphs : list of GraphModule
        The graphs that were captured and are kept, in order.
    code : str
        The Python code of all graphs.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> f = co.compile(lambda x: np.sin(x) + 1.0)
    >>> type(f) is co.Compiled
    True
    >>> f(np.zeros(2)), f(np.zeros((2, 2))).shape, len(f.graphs)
    (array([1., 1.]), (2, 2), 2)
    """

    def __init__(
        self,
        fn: Callable[P, R],
        backend: str | Backend,
        sizes: Mapping[str, Any] | None,
        fallback: bool,
        limit: int,
        verbose: bool = False,
    ) -> None:
        update_wrapper(self, fn)
        self._fn: Callable[P, R] = fn
        self._backend: str | Backend = backend
        self._build: Backend = find_backend(backend)
        self._sizes: Mapping[str, Any] | None = sizes
        self._fallback: bool = fallback
        self._limit: int = limit
        self._verbose: bool = verbose
        self._parameters: Parameters = parameters_of(fn)
        self._bind: Callable[..., Any] = self._parameters.binder()
        # Family -> its entries, the last one first. The lists are replaced, not changed.
        # Where ints and floats of Python may be any, the kind of arguments is the family.
        self._families: dict[Any, list[Entry]] = {}
        # Kind of arguments -> all entries for it, the last one first.
        self._kinds: dict[Any, list[Entry]] = {}
        self._entries: list[Entry] = []
        # The last entries for plain values and under each transform.
        self._recent: dict[str, Entry] = {}
        # What it has for tracers.
        self._levels: Levels = self._new_levels(is_lift=False)
        # How often it was compiled, and facts of the last entries that were forgotten.
        self._count: int = 0
        self._forgotten: deque[EntryFacts] = deque(maxlen=_MOST_FORGOTTEN)
        self._has_warned: bool = False

    def __repr__(self) -> str:
        return f"<compiled {getattr(self._fn, '__qualname__', self._fn)}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the code for such arguments; capture the function if there is none."""
        found: R = self._slow(*self._bind(*args, **kwargs))
        return found

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: Compiled[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        name = getattr(self._fn, "__qualname__", "")
        if _found(getattr(self._fn, "__module__", None), name) is self:
            return (
                name  # it has the place of its function, as a decorator puts it there
            )
        options: tuple[Any, ...] = (self.backend, self._sizes, self._fallback)
        options += (self._limit, self._verbose)
        return Compiled, (self._fn, *options)

    # ---- what it has compiled ----

    @property
    def backend(self) -> str | Backend:
        """The back end, or its name."""
        return self._backend

    @property
    def graphs(self) -> list[GraphModule]:
        """The graphs that were captured and are kept, in order."""
        return [entry.module for entry in self._entries if entry.module is not None]

    @property
    def code(self) -> str:
        """The Python code of all graphs."""
        entries = [*self._entries, *self._levels.entries]
        return "\n".join([entry.text for entry in entries if entry.text])

    def explain(self) -> CompileReport:
        """Report what was compiled, and why more than once; print it.

        Returns
        -------
        CompileReport

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> f = co.compile(lambda x: np.sin(x) + 1.0)
        >>> f(np.zeros(2))
        array([1., 1.])
        >>> print(f.explain())
        <lambda>, back end 'numpy', compiled once
          1. x = f64[2]: 2 calls
        """
        entries, forgotten = tuple(self._entries), tuple(self._forgotten)
        return CompileReport(
            self._title(),
            self.backend,
            entries,
            forgotten,
            self._count,
            tuple(self._levels.entries),
        )

    def clear(self) -> None:
        """Forget what was compiled: the next call captures the function again.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> f = co.compile(np.sin)
        >>> _ = f(np.zeros(2))
        >>> f.clear()
        >>> f.graphs
        []
        """
        with capturing:
            self._families, self._kinds, self._entries = {}, {}, []
            self._recent = {}
            self._count = 0
            self._forgotten.clear()
            self._levels = self._new_levels(is_lift=self._levels.is_lift)
            if type(self) is not Compiled:
                self.__class__ = Compiled

    def _new_levels(self, *, is_lift: bool) -> Levels:
        return Levels(
            self._fn,
            self._title(),
            self._build,
            self._sizes,
            self._limit,
            self._parameters,
            self._slow,
            self._lift,
            is_checked=not returns_lists(self.backend),
            is_lift=is_lift,
        )

    def _lift(self, fn: Callable[..., Any]) -> Compiled[..., Any]:
        """The function of a graph without draws, compiled with the same options."""
        found = Compiled(fn, self.backend, None, fallback=True, limit=self._limit)
        found._levels.is_lift = True
        return found

    def _title(self) -> str:
        return getattr(self._fn, "__name__", type(self._fn).__name__)

    # ---- calls ----

    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose arguments do not meet the guards of the last entry."""
        if _is_for_function():
            return self._fn(*args, **kwargs)
        for entry in self._recent.values():
            out = entry.tried(*args, **kwargs)
            if out is not MISS:
                return out
        given = CallArguments(args, kwargs)
        if any(map(is_traced, given.leaves)):
            out, level = self._levels.call(given)
            if level is not None:
                self._use(level)
            return self._fn(*args, **kwargs) if out is MISS else out
        if any(map(is_fake, given.leaves)):
            return self._fn(*args, **kwargs)
        is_in_vmap = current_mode.get() is not None
        if is_in_vmap and not self._levels.is_lift:
            return self._fn(*args, **kwargs)  # it may draw, of which vmap must know
        out = self._tried(given)
        return self._compiled(given) if out is MISS else out

    def _compiled(self, given: CallArguments) -> Any:
        """A call for which there is no code yet."""
        with capturing, outside_of_modes():
            out = self._tried(given)
            if out is not MISS:  # another thread has compiled it
                return out
            if self._verbose:
                with progress(f"compile {self._title()}", channel=node_channel):
                    entry = self._new_entry(given)
            else:
                entry = self._new_entry(given)
        if entry is None:
            return self._fn(*given.args, **given.kwargs)
        return entry.run(given)

    def _tried(self, given: CallArguments) -> Any:
        """The result of an entry that there is, or MISS."""
        for family in dict.fromkeys((given.family, given.kind)):
            for entry in self._families.get(family, ()):
                out = entry.tried(*given.args, **given.kwargs)
                if out is not MISS:
                    self._use(entry)
                    return out
        return MISS

    def _use(self, entry: Entry) -> None:
        """Let the next call look at the guards of this entry first."""
        self._recent = {**self._recent, entry.word: entry}
        if type(self) is Compiled:  # a class of its own, since Python asks the class
            self.__class__ = type("Compiled", (Compiled,), {"__module__": "customop"})
        type(self).__call__ = staticmethod(entry.call)  # type: ignore[method-assign]  # of the same parameters

    # ---- new entries ----

    def _new_entry(self, given: CallArguments) -> Entry | None:
        """Compile for new arguments; None where the function itself must run."""
        surroundings = Surroundings([(self._fn, ""), *given.objects(self._fn)])
        if not surroundings.is_plain:
            return None
        entries = self._kinds.get(given.kind, [])
        why = reason_for(self._entries, entries, given, self._fn)
        found = self._captured(entries, given, surroundings)
        if isinstance(found, CapturedCall):
            if any(is_traced(v) for v in found.module.constants.values()):
                return None
            if not all(_is_writable(given.leaves[i]) for i in found.written):
                return None  # it raises where it writes
            entry = make_entry(
                given,
                found,
                surroundings,
                self._parameters,
                self._fn,
                self._build,
                self._slow,
                is_checked=not returns_lists(self.backend),
            )
        else:
            entry = eager_entry(
                given, found, surroundings, self._parameters, self._fn, self._slow
            )
        entry.why = why
        self._enter(given.kind, entry)
        return entry

    def _enter(self, kind: Any, entry: Entry) -> None:
        family = entry.family
        self._count += 1
        entry.number = self._count
        self._entries = [*self._entries, entry]
        self._families[family] = [entry, *self._families.get(family, [])]
        self._kinds[kind] = [entry, *self._kinds.get(kind, [])]
        if len(self._entries) > self._limit:
            self._forget(self._entries[0])
            if not self._has_warned:
                self._has_warned = True
                warn_caller(
                    f"compile: '{self._title()}' was compiled {self._limit + 1} times, and"
                    f" keeps {self._limit}\n{self.explain()}\n  do: pass what changes as"
                    " arrays, or limit=... for more"
                )
        self._use(entry)

    def _forget(self, entry: Entry) -> None:
        self._entries = [e for e in self._entries if e is not entry]
        self._forgotten.append(facts_of(entry))
        self._recent = {w: e for w, e in self._recent.items() if e is not entry}
        for table in (self._families, self._kinds):
            for key, found in [*table.items()]:
                if entry in found:
                    table[key] = [e for e in found if e is not entry]

    def _captured(
        self, entries: Sequence[Entry], given: CallArguments, surroundings: Surroundings
    ) -> CapturedCall | BaseException:
        """Capture the function; the error if it cannot be and may run eagerly."""
        free = free_axes(entries, given.shapes)
        numbers = free_numbers(entries, given.numbers)
        try:
            found = captured_alone(
                self._fn, self._title(), given, surroundings, self._sizes, free, numbers
            )
        except Exception as error:  # noqa: BLE001  # any of the function
            refused = error
        else:
            return found._replace(fixed={**fixed_numbers(entries), **found.fixed})
        if not isinstance(refused, _REFUSALS):
            self._run_to_fail(given)
        if self._fallback:
            return refused
        refused.add_note(
            f"  compile: '{self._title()}' cannot be captured; with"
            " compile(f, fallback=True) it runs as it is"
        )
        raise refused

    def _run_to_fail(self, given: CallArguments) -> None:
        """Run the function if it raises: its own error, where capturing has another."""
        trial = given.copied()
        asked: Any = np.geterr()
        # It warns in the run below.
        quiet: Any = {k: v if v == "raise" else "ignore" for k, v in asked.items()}
        try:
            with np.errstate(**quiet):
                self._fn(*trial.args, **trial.kwargs)
        except Exception:  # noqa: BLE001  # the run below raises it again
            is_failing = True
        else:
            is_failing = False
        if is_failing:
            self._fn(*given.args, **given.kwargs)


# What capturing alone raises: the function itself would not.
_REFUSALS = (
    DataDependentError,
    GraphError,
    LeakedTracerError,
    MissingRuleError,
    SizeError,
)


def _is_for_function() -> bool:
    """Whether the function itself runs: under a mode, an observer or strict settings.

    The mode of a vmap sees draws alone.
    """
    mode = current_mode.get()
    while mode is not None:
        if mode.alive and mode.sees_all:
            return True
        mode = mode.outer
    return bool(strict_settings or current_observers())


def _found(module: str | None, name: str) -> Any:
    """Find an object by its module and dotted name; None if it does not exist."""
    value: Any = sys.modules.get(module or "")
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _is_writable(leaf: Any) -> bool:
    return not isinstance(leaf, np.ndarray) or leaf.flags.writeable


# ---- `compile`: make a function that runs as the graph of its operators ----


@overload
def compile(  # noqa: A001  # the usual name
    fn: Callable[P, R],
    *,
    backend: str | Backend = ...,
    sizes: Mapping[str, Any] | None = ...,
    fallback: bool = ...,
    limit: int = ...,
    verbose: bool = ...,
) -> Compiled[P, R]: ...
@overload
def compile(  # noqa: A001  # the usual name
    *,
    backend: str | Backend = ...,
    sizes: Mapping[str, Any] | None = ...,
    fallback: bool = ...,
    limit: int = ...,
    verbose: bool = ...,
) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...
def compile(  # noqa: A001  # the usual name
    fn: Callable[..., Any] | None = None,
    *,
    backend: str | Backend = "numpy",
    sizes: Mapping[str, Any] | None = None,
    fallback: bool = False,
    limit: int = 64,
    verbose: bool = False,
) -> Any:
    """Make a function run as the graph of its operators, with the same results.

    The first call with arguments of new shapes and dtypes captures the function; later
    calls run the code that was made of its graph. A length that differs between calls is
    symbolic from its second value on. Under `grad`, `vmap`, `jvp` and their nestings it
    runs compiled graphs, too. Under a mode or an observer the function itself runs.

    Parameters
    ----------
    fn : callable
        Takes and returns pytrees. Without it, a decorator is returned.
    backend : str or callable
        ``"numpy"``, ``"eager"``, or one of `register_backend`.
    sizes : mapping, optional
        Names for sizes that are symbolic from the first call on, as for `make_fx`:
        ``{"x": ("batch", None)}``.
    fallback : bool
        Whether a function that cannot be captured runs as it is.
    limit : int
        How many graphs are kept. One more, and a warning says why.
    verbose : bool
        Whether to show on standard error how far it is while it compiles, for functions
        of many operators.

    Returns
    -------
    Compiled
        Takes and returns what `fn` does, and has `explain`.

    Raises
    ------
    ArgumentError
        If `fn` is not a function, the back end is unknown, or an option is wrong.
    DataDependentError, GraphError
        From the function, if it cannot be captured.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> f = co.compile(lambda x: np.sin(x) + 1.0)
    >>> f(np.zeros(2))
    array([1., 1.])
    """
    check_flag("compile: fallback", fallback)
    check_flag("compile: verbose", verbose)
    if sizes is not None and not isinstance(sizes, Mapping):
        raise ArgumentError(
            f"compile: sizes={shown(sizes)} is not a mapping",
            do='write sizes={"x": ("n",)}, by the names of parameters',
        )
    if type(limit) is not int or limit < 1:
        raise ArgumentError(
            f"compile: limit={shown(limit)} is not a number of graphs",
            do="write limit=64",
        )

    def make(fn: Callable[..., Any]) -> Any:
        check_function("compile", fn)
        return Compiled(fn, backend, sizes, fallback, limit, verbose)

    return make if fn is None else make(fn)
