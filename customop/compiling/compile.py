"""`compile`: a function that runs as the graph of its operators."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from functools import update_wrapper
from types import MethodType
from typing import (
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Self,
    TypeVar,
    overload,
)

import numpy as np

from customop.arrays.kinds import is_fake, is_traced
from customop.arrays.nested import flatten, unflatten
from customop.compiling.backends import (
    Backend,
    default_backend,
    find_backend,
    returns_lists,
)
from customop.compiling.call_code import (
    MISS,
    CallArguments,
    Original,
    strict_settings,
)
from customop.compiling.entries import (
    Entry,
    EntryStore,
    capturing,
    holds_traced,
)
from customop.compiling.joint_graphs import GradGraph
from customop.compiling.level_graphs import (
    JvpGraph,
    LevelGraph,
    Tracers,
    VmapGraph,
    is_own,
    is_pinned,
    like,
    nests,
)
from customop.compiling.repeated_steps import MANY, repeated_steps
from customop.compiling.report import CompileReport, EntryFacts, facts_of, reason_for
from customop.compiling.surroundings import Surroundings
from customop.config import config
from customop.core.builtin_kinds import AUTOGRAD, JVP, VMAP
from customop.core.collector import patient
from customop.core.interpreter import current_mode, highest, run_under
from customop.core.observe import current_observers
from customop.core.rule_kind import RuleKind
from customop.core.tracer import frozen
from customop.errors import (
    ArgumentError,
    DataDependentError,
    GraphError,
    GuessError,
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
from customop.synonyms import takes_names_of_others

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


# ---- `compile`: make a function that runs as the graph of its operators ----

_IS_STATIC = (
    "leave it out: what is not an array is a constant where the code asks for its value, "
    "and another value is another graph"
)


@overload
def compile(  # noqa: A001  # the usual name
    fn: Callable[P, R],
    *,
    backend: str | Backend | None = ...,
    sizes: Mapping[str, Any] | None = ...,
    fallback: bool = ...,
    limit: int = ...,
    exact: bool = ...,
    verbose: bool = ...,
) -> Compiled[P, R]: ...
@overload
def compile(  # noqa: A001  # the usual name
    *,
    backend: str | Backend | None = ...,
    sizes: Mapping[str, Any] | None = ...,
    fallback: bool = ...,
    limit: int = ...,
    exact: bool = ...,
    verbose: bool = ...,
) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...
@takes_names_of_others(
    static_argnums=_IS_STATIC,
    static_argnames=_IS_STATIC,
    donate_argnums="leave it out: memory of values that are not needed is used again",
    donate_argnames="leave it out: memory of values that are not needed is used again",
    fullgraph="leave it out: a function is one graph, or fallback=True runs it as it is",
    dynamic='write sizes={"x": ("n", None)} for lengths that vary from the first call on',
    nopython="leave it out: what cannot be captured is an error",
    mode='leave it out, or write backend="numpy" for code that is made in less time',
)
def compile(  # noqa: A001  # the usual name
    fn: Callable[..., Any] | None = None,
    *,
    backend: str | Backend | None = None,
    sizes: Mapping[str, Any] | None = None,
    fallback: bool = False,
    limit: int = 64,
    exact: bool = True,
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
    backend : str or callable, optional
        ``"native"``, ``"numpy"``, ``"eager"``, or one of `register_backend`. Without it,
        ``"native"`` where that runs: llvmlite is installed, and NumPy is one of 2.3 to 2.5;
        else ``"numpy"``.
    sizes : mapping, optional
        Names for sizes that are symbolic from the first call on, as for `make_fx`:
        ``{"x": ("batch", None)}``.
    fallback : bool
        Whether a function that cannot be captured runs as it is.
    limit : int
        How many graphs are kept. One more, and a warning says why.
    exact : bool
        Whether results have the bits that NumPy gives. With False the back end
        ``"native"`` may compute in a faster way: each function and power within 4 units
        in the last place, sums and products of matrices in another order. Other back ends
        do the same in either case.
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

    One graph for batches of any size, from the first call on:

    >>> rows = co.compile(lambda x: np.sum(x, axis=1), sizes={"x": ("batch", None)})
    >>> rows(np.ones((2, 3))), rows(np.ones((4, 3)))
    (array([3., 3.]), array([3., 3., 3., 3.]))
    >>> len(rows.graphs)
    1

    A function that branches on its values cannot be captured; it may run as it is:

    >>> sign = co.compile(lambda x: 1.0 if x > 0 else -1.0, fallback=True)
    >>> sign(np.array(2.0))
    1.0

    Another back end:

    >>> co.compile(np.sin, backend="eager")(np.zeros(2))
    array([0., 0.])
    """
    check_flag("compile: fallback", fallback)
    check_flag("compile: exact", exact)
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
        return Compiled(fn, backend, sizes, fallback, limit, verbose, exact=exact)

    return make if fn is None else make(fn)


# ---- a function that runs as the graph of its operators ----


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
        backend: str | Backend | None,
        sizes: Mapping[str, Any] | None,
        fallback: bool,
        limit: int,
        verbose: bool = False,
        exact: bool = True,
        *,
        is_lift: bool = False,
    ) -> None:
        update_wrapper(self, fn)
        self._fn: Callable[P, R] = fn
        self._backend: str | Backend | None = backend
        self._sizes: Mapping[str, Any] | None = sizes
        self._fallback: bool = fallback
        self._limit: int = limit
        self._verbose: bool = verbose
        self._exact: bool = exact
        self._original: Original = Original(
            fn,
            find_backend(backend, is_exact=exact),
            sizes,
            self._slow,
            self._lift,
            is_checked=not returns_lists(backend),
            is_lift=is_lift,
        )
        self._bind: Callable[..., Any] = self._original.parameters.binder()
        self.clear()

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
        options: tuple[Any, ...] = (self._backend, self._sizes, self._fallback)
        options += (self._limit, self._verbose, self._exact)
        return Compiled, (self._fn, *options)

    # ---- what it has compiled ----

    @property
    def backend(self) -> str | Backend:
        """The back end, or its name."""
        return default_backend()[0] if self._backend is None else self._backend

    @property
    def graphs(self) -> list[GraphModule]:
        """The graphs that were captured and are kept, in order."""
        return [e.module for e in self._kept.plain.entries if e.module is not None]

    @property
    def code(self) -> str:
        """The Python code of all graphs."""
        entries = [*self._kept.plain.entries, *self._kept.traced.entries]
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
        <lambda>, back end 'native', compiled once
          1. x = f64[2]: 2 calls
             table of 2 rows, 192 bytes
        """
        return CompileReport(
            self._original.title,
            self.backend,
            "" if self._backend is not None else default_backend()[1],
            tuple(self._kept.plain.entries),
            tuple(self._kept.forgotten),
            self._kept.plain.counts.get("", 0),
            tuple(self._kept.traced.entries),
        )

    def clear(self) -> None:
        """Forget what was compiled: the next call captures the function again.

        The memory in which the back end ``"native"`` computes is free then. It is bounded
        without that, too: beyond 1 GiB for all compiled functions together the oldest is
        freed, and made again when its function is called. `explain` shows how much each
        graph holds.

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
            old = getattr(self, "_kept", None)
            self._kept: _EntryStores = _EntryStores(self._limit)
            for entry in (
                [] if old is None else [*old.plain.entries, *old.traced.entries]
            ):
                release = getattr(entry.code_of_backend, "release", None)
                if release is not None:
                    release()
            if type(self) is not Compiled:
                self.__class__ = Compiled

    def _lift(self, fn: Callable[..., Any]) -> Compiled[..., Any]:
        """Compile the function of a graph without draws with the same options."""
        limit, exact = self._limit, self._exact
        return Compiled(
            fn, self._backend, None, True, limit=limit, exact=exact, is_lift=True
        )

    # ---- calls ----

    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call whose arguments do not meet the guards of the last entry."""
        if _is_for_function():
            return self._fn(*args, **kwargs)
        for entry in self._kept.recent.values():
            out = entry.tried(*args, **kwargs)
            if out is not MISS:
                if entry is self._kept.last and type(self).__call__ is not entry.call:
                    self._use(entry)
                self._kept.last = entry
                return out
        request = self._request(CallArguments(args, kwargs))
        out = MISS
        if request is not None:
            out = self._tried(request)
            if out is MISS:
                out = self._compiled(request)
        return self._fn(*args, **kwargs) if out is MISS else out

    def _request(self, given: CallArguments) -> _EntryRequest | None:
        """Return what to look for; None where the function itself must run."""
        if any(map(is_traced, given.leaves)):
            taken = _taken_apart(given)
            return taken and _EntryRequest(self._kept.traced, given, *taken)
        if any(map(is_fake, given.leaves)):
            return None
        if current_mode.get() is not None and not self._original.is_lift:
            return None  # it may draw, of which vmap must know
        return _EntryRequest(self._kept.plain, given, None, given)

    def _tried(self, request: _EntryRequest) -> Any:
        """Return the result of an entry that there is, or MISS."""
        args, kwargs = request.given.args, request.given.kwargs
        for entry in request.store.fitting(request.tracers, request.below):
            out = entry.tried(*args, **kwargs)
            if out is not MISS:
                self._use(entry)
                return out
        return MISS

    def _compiled(self, request: _EntryRequest) -> Any:
        """Compile for a call for which there is no code yet, and return its result."""
        # For later calls, too: the mode of a vmap around this one is not seen.
        with capturing, patient():
            entry, out = run_under(None, self._found_or_new, request)
        if entry is None:
            return out
        return entry.tried(*request.given.args, **request.given.kwargs)

    def _found_or_new(self, request: _EntryRequest) -> tuple[Entry | None, Any]:
        """Return a new entry, or the result of one that another thread has compiled."""
        out = self._tried(request)
        if out is not MISS:
            return None, out
        if self._verbose and request.tracers is None:
            title = f"compile {self._original.title}"
            with progress(title, channel=node_channel):
                return self._new_entry(request), MISS
        return self._new_entry(request), MISS

    def _use(self, entry: Entry) -> None:
        """Let the next call look at the guards of this entry first."""
        self._kept.recent = {**self._kept.recent, entry.place: entry}
        if type(self) is Compiled:  # a class of its own, since Python asks the class
            self.__class__ = type("Compiled", (Compiled,), {"__module__": "customop"})
        type(self).__call__ = staticmethod(entry.call)  # type: ignore[method-assign]  # of the same parameters

    # ---- new entries ----

    def _new_entry(self, request: _EntryRequest) -> Entry | None:
        """Compile for new arguments; return None where the function itself must run."""
        store, given, tracers, below = request
        surroundings = Surroundings([(self._fn, ""), *below.objects(self._fn)])
        if not surroundings.is_plain:
            return None
        level = tracers and tracers.graph_class(self._original, tracers)
        entry = Entry(self._original, level, below, surroundings)
        others = store.of_kind(tracers, below)
        before = [e for e in store.entries if e.word == entry.word]
        entry.why = reason_for(before, others, below, entry.fn)
        refused: Exception | None = None
        try:
            entry.capture(below, others)
            if level is not None:
                entry.build()
        except Exception as error:  # noqa: BLE001  # any of the function
            refused = error
        if refused is not None:
            if level is None:
                self._check_fallback(refused, given)
            entry.refuse(refused)
        if level is None and entry.found is not None and entry.module is not None:
            if holds_traced(entry.module):
                return None
            if not all(_is_writable(given.leaves[i]) for i in entry.found.written):
                return None  # it raises where it writes
            entry.build()
        entry.write(given.args, given.kwargs, below)
        self._enter(request, entry)
        self._warn_of_loop(entry)
        return entry

    def _enter(self, request: _EntryRequest, entry: Entry) -> None:
        """Keep an entry; warn when another one is dropped for the first time."""
        is_first = not request.store.has_dropped
        dropped = request.store.add(request.tracers, request.below, entry)
        if dropped is not None:
            self._kept.recent = {
                w: e for w, e in self._kept.recent.items() if e is not dropped
            }
            if request.tracers is None:
                self._kept.forgotten.append(facts_of(dropped))
            if is_first:
                self._warn_of_limit(entry)
        self._use(entry)

    def _warn_of_limit(self, entry: Entry) -> None:
        what, limit = f"'{self._original.title}'", self._limit
        why = f"\n{self.explain()}"
        if entry.word:
            what, why = f"the {entry.word} of {what}", "; explain() says why"
        warn_caller(
            f"compile: {what} was compiled {entry.number} times, and keeps {limit}{why}"
            "\n  do: pass what changes as arrays, or limit=... for more"
        )

    def _warn_of_loop(self, entry: Entry) -> None:
        """Warn once of a Python loop that has become a large graph."""
        if entry.module is None or self._kept.has_loop or self._original.is_lift:
            return
        count, steps = repeated_steps(entry.module.graph, MANY)
        if steps:
            self._kept.has_loop = True
            warn_caller(
                f"compile: '{self._original.title}' has become a graph of {count} nodes,"
                f" about {steps} times the same steps"
                "\n  do: write the loop as co.scan or co.fori_loop, which are compiled for"
                " one step"
            )

    def _check_fallback(self, refused: BaseException, given: CallArguments) -> None:
        """Raise an error of capturing unless the function may run as it is."""
        if isinstance(refused, GuessError):
            return
        if not isinstance(refused, _REFUSALS):
            self._run_to_fail(given)
        if self._fallback:
            return
        refused.add_note(
            f"  compile: '{self._original.title}' cannot be captured; with"
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


class _EntryStores:
    """What was compiled. A compiled function around this one does not watch slots.

    Attributes
    ----------
    plain, traced : EntryStore
        The entries for plain values, and for tracers.
    recent : dict
        The last entries for plain values and under each transform.
    last : Entry or None
        The one of these that answered last: the second time in a row it is tried first.
    forgotten : deque of EntryFacts
        Facts of the last entries for plain values that were dropped.
    has_loop : bool
        Whether a warning has said that a graph repeats the same steps.
    """

    __slots__ = ("forgotten", "has_loop", "last", "plain", "recent", "traced")

    def __init__(self, limit: int) -> None:
        self.plain: EntryStore = EntryStore(limit)
        self.traced: EntryStore = EntryStore(limit)
        self.recent: dict[Any, Entry] = {}
        self.last: Entry | None = None
        self.forgotten: deque[EntryFacts] = deque(maxlen=_MOST_FORGOTTEN)
        self.has_loop: bool = False


class _EntryRequest(NamedTuple):
    """A call for which an entry is wanted.

    Attributes
    ----------
    store : EntryStore
    given : CallArguments
    tracers : Tracers or None
        None for plain values.
    below : CallArguments
        The arguments with values in place of tracers.
    """

    store: EntryStore
    given: CallArguments
    tracers: Tracers | None
    below: CallArguments


# What capturing alone raises: the function itself would not.
_REFUSALS = (
    DataDependentError,
    GraphError,
    LeakedTracerError,
    MissingRuleError,
    SizeError,
)


def _is_for_function() -> bool:
    """Return whether a mode, an observer or strict settings let the function itself run.

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


# ---- calls with tracers, taken apart at the level of the innermost transform ----
# What is below goes to the code of the graph that the function has inside of that
# transform, and tracers are made of the results. Where there are tracers of further
# transforms below, that graph is a compiled function itself, which takes the next level
# apart.


_GRAPHS: dict[RuleKind, type[LevelGraph]] = {
    AUTOGRAD: GradGraph,
    VMAP: VmapGraph,
    JVP: JvpGraph,
}


def _taken_apart(given: CallArguments) -> tuple[Tracers, CallArguments] | None:
    """Return the tracers, and arguments like the values below; None if that cannot be."""
    leaves = given.leaves
    top: Any = highest(None, leaves)
    graph_class = _GRAPHS.get(top.kind)
    if graph_class is None or not top.runs_plans:
        return None
    own = [is_own(v, top) for v in leaves]
    pairs = [*zip(leaves, own, strict=True)]
    values = [v.below if is_mine else v for v, is_mine in pairs]
    read = graph_class.read(leaves, own)
    if read is None or any(map(is_fake, values)):
        return None
    pattern, more = read
    is_nested = nests(top, (*values, *(more or ())))
    args, kwargs = unflatten(given.structure, [like(frozen(v)) for v in values])
    at, count = len(flatten(args)[0]), len(args)
    if more is not None:
        args = (*args, [like(frozen(v)) for v in more])
    pinned = tuple(
        [i for i, (v, is_mine) in enumerate(pairs) if is_mine and is_pinned(v)]
    )
    tracers = Tracers(graph_class, pattern, pinned, count, at, is_nested)
    return tracers, CallArguments(args, kwargs)
