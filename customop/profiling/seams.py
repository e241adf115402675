"""How calls are seen while somebody watches them.

Nothing on the way of a call asks whether it is watched. While somebody watches, in any
thread, fast paths are closed as they are for a mode, and functions of this module stand
in for those that call kernels, rules and formulas: see `_SEAMS`. So a call costs nothing
more when nobody does, and who watches one thread makes others slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol

from numpy import ndarray

from customop.arrays.kinds import DEFAULT, FAKE, kind_of
from customop.arrays.nested import flat
from customop.config import config
from customop.core.array_classes import find_array_rule
from customop.core.derived.find import find_fake
from customop.core.dispatch import Mode, dispatch, highest, mode_for, open_modes
from customop.core.kernels import dispatch_composite, has_own_rule, kind_of_call
from customop.core.kinds import AUTOGRAD, COMPOSITE, JVP, VMAP
from customop.core.operator import Operator, route_calls
from customop.profiling.tree import Track, arrays_of
from customop.transforms.autograd import interpreter as reverse
from customop.transforms.autograd import node
from customop.transforms.autograd.interpreter import GradInterpreter, GradTracer
from customop.transforms.autograd.node import Node

__all__ = ["unwatch", "watch"]


class Watcher(Protocol):
    """Who watches calls, in this thread or task or in all of them."""

    is_open: bool
    _sees_all: bool

    def _track(self) -> Track:
        """What the running thread does."""
        ...


# Those that watch this thread or task. A context copied from here may hold closed ones;
# no token of an opening is kept, so that generators may close theirs in any order.
_here: ContextVar[tuple[Watcher, ...]] = ContextVar("customop_watchers", default=())
# Those that watch anything, and those of them that watch everything. Replaced whole.
_all: tuple[Watcher, ...] = ()
_everywhere: tuple[Watcher, ...] = ()


def watch(watcher: Watcher) -> None:
    """Show calls to a watcher; the first one closes all fast paths."""
    if not _all:
        _put_stand_ins()
    _set_watchers((*_all, watcher))
    open_modes.append(watcher)
    if not watcher._sees_all:
        _here.set((*_others(watcher), watcher))


def unwatch(watcher: Watcher) -> None:
    """Show it no more calls; the last one opens the fast paths again."""
    open_modes.remove(watcher)
    _set_watchers(tuple(w for w in _all if w is not watcher))
    _here.set(_others(watcher))
    if not _all:
        _take_stand_ins()


def _others(watcher: Watcher) -> tuple[Watcher, ...]:
    """The open watchers of this thread or task but for one."""
    return tuple(w for w in _here.get() if w is not watcher and w.is_open)


def _set_watchers(watchers: tuple[Watcher, ...]) -> None:
    global _all, _everywhere  # noqa: PLW0603  # of the process, as open modes are
    _all = watchers
    _everywhere = tuple(w for w in watchers if w._sees_all)


def _watchers() -> Sequence[Watcher]:
    """The open watchers that see this thread."""
    found = _here.get()
    if _everywhere:
        found = (*found, *_everywhere)
    for watcher in found:
        if not watcher.is_open:
            return [w for w in found if w.is_open]
    return found


# ---- one call ----


def _run(
    watchers: Sequence[Watcher],
    names: tuple[str, str],
    values: Sequence[Any],
    is_mended: Callable[[Any], bool] | None,
    fn: Callable[..., Any],
) -> Callable[..., Any]:
    """A function that calls `fn` while watchers look, the first of them outside."""
    if len(watchers) == 1:  # as most are: a loop takes 100 ns more
        return partial(watchers[0]._track().run, names, values, is_mended, fn)
    for watcher in watchers[::-1]:
        fn = partial(watcher._track().run, names, values, is_mended, fn)
    return fn


def _hide(error: BaseException) -> None:
    """Take the frames that watching adds below the caller's out of a traceback."""
    trace = error.__traceback__
    below = None if trace is None else trace.tb_next
    while below is not None and below.tb_frame.f_code in _HIDDEN:
        below = below.tb_next
    if trace is not None:
        trace.tb_next = below


# ---- what stands in for what ----


def _watched(usual: Callable[..., Any]) -> Callable[..., Any]:
    """Dispatch under watch."""

    def watched(op: Any, args: Sequence[Any]) -> Any:
        watchers = _watchers()
        if not watchers:
            return usual(op, args)
        values = arrays_of(op, args)
        mode = mode_for(op)
        try:
            known = _fast_kernel(op, values) if mode is None else None
            if known is not None:
                kernel, names = known
                call = _run(watchers, names, values, None, kernel)
                positional, keywords = op.schema.split(args)
                return call(*positional, **keywords)
            top = highest(mode, values)
            if top is None:
                return usual(op, args)
            return _run(watchers, _rule_name(op, top), values, None, usual)(op, args)
        except BaseException as error:
            _hide(error)
            raise

    return watched


def _fast_kernel(op: Any, values: Sequence[Any]) -> Any:
    """The kernel that a call would go straight to if nobody watched, with its names.

    None where it would go by the slow path. Spares most calls 1 us of what they are
    watched for.
    """
    for value in values:
        if type(value) is not ndarray:
            return None
    names = op.call.__globals__
    if names.get("_array") is not ndarray or config.sample_checks:
        return None
    kernel = names["_kernel"]
    known = op.plans.watched.get("fast")
    if known is None or known[0] is not kernel:
        if not op.array_slots or op.schema.written or op.needs_contiguous:
            return None
        known = kernel, _kernel_name(op, kernel, "cpu")
        op.plans.watched["fast"] = known
    return known


def _select(op: Any, args: Sequence[Any]) -> tuple[Any, Sequence[Any], Any, Any]:
    """The kernel of a call, under watch."""
    kernel, values, keywords, proof = _usual_select(op, args)
    watchers = _watchers()
    if watchers:
        given = arrays_of(op, args)
        if find_array_rule(op, args) is not None:
            names = op.qualname, "array rule"
        else:
            names = _kernel_name(op, kernel, _kind_of(op, args, given))
        is_mended = None if proof is None else proof.concerns
        kernel = _run(watchers, names, given, is_mended, kernel)
    return kernel, values, keywords, proof


def _kind_of(op: Any, args: Sequence[Any], values: Sequence[Any]) -> str:
    """Kind of the arrays of a call that has a kernel."""
    if len(values) == 1:
        kind = kind_of[type(values[0])]
        return "cpu" if kind is None or not kind.has_device else kind.name
    return kind_of_call(op, args)[0]


def _set_up(
    interpreter: Any, op: Any, ctx: Any, setup: Any, values: Any, out: Any
) -> None:
    """The setup function of an operator of any form, under watch."""
    _usual_set_up(interpreter, op, ctx, _WatchedSetup(op, setup), values, out)


def _plain_plan(op: Any, rule: Any, nodes: Any) -> Any:
    """The plan of a plain operator, its setup function under watch."""
    plan = _usual_plain_plan(op, rule, nodes)
    _watch_plan(op, plan)
    return plan


def _watch_plan(op: Any, plan: Any) -> None:
    """Have the setup function of a written plan watched."""
    names = getattr(plan, "__globals__", {})
    if names.get("op") is op and names["setup"] is not None:
        names["setup"] = _WatchedSetup(op, _unwatched(names["setup"]))


def _leave_plan(op: Any, plan: Any) -> None:
    names = getattr(plan, "__globals__", {})
    if names.get("op") is op:
        names["setup"] = _unwatched(names["setup"])


def _unwatched(setup: Any) -> Any:
    return setup.setup if type(setup) is _WatchedSetup else setup


class _WatchedSetup:
    """Stands for a setup function, whose time is noted."""

    __slots__ = ("op", "setup")

    def __init__(self, op: Any, setup: Callable[..., Any]) -> None:
        self.op = op
        self.setup = setup

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        watchers = _watchers()
        if not watchers:
            return self.setup(*args, **keywords)
        op = self.op
        # All by place, or all by name.
        inputs, out = args[1:] or (keywords["inputs"], keywords["output"])
        named = keywords.get("keyword_only_inputs", {})
        values = [*arrays_of(op, (*inputs, *named.values())), *flat(out)]
        names = op.qualname, "setup_context"
        return _run(watchers, names, values, None, self.setup)(*args, **keywords)


def _pull(self: Any, grads: Sequence[Any], retain: bool) -> Any:
    """The backward formula of a call, under watch, with what fits its gradients."""
    watchers = _watchers()
    if not watchers:
        return _usual_pull(self, grads, retain)
    found: list[Any] = []
    names = self._op.qualname, "autograd backward"
    pull = _run(watchers, names, grads, None, _gradients)
    try:
        pull(found, self, grads, retain)
    except BaseException as error:
        _hide(error)
        raise
    return found


def _gradients(pairs: list[Any], *given: Any) -> list[Any]:
    """The gradients of a formula alone, for their bytes; into `pairs` all of it."""
    pairs += _usual_pull(*given)
    return [grad for _, grad in pairs]


def _pull_alone(call: Any, grad: Any, retain: bool) -> Any:
    """In place of what runs several formulas of one array in one go."""
    return call._pull((grad,), retain)


_usual_select = Operator.select
_usual_set_up = GradInterpreter._set_up
_usual_plain_plan = reverse._plain_plan
_usual_pull = Node._pull
_usual_chain = node._chain

# Where calls come by: owner, name, what stands there, what does under watch.
_SEAMS: tuple[tuple[Any, str, Any, Any], ...] = (
    (Operator, "select", _usual_select, _select),
    (GradInterpreter, "_set_up", _usual_set_up, _set_up),
    (reverse, "_plain_plan", _usual_plain_plan, _plain_plan),
    (Node, "_pull", _usual_pull, _pull),
    (node, "_chain", _usual_chain, _pull_alone),
)
_STAND_INS = {usual: _watched(usual) for usual in (dispatch, dispatch_composite)}
_OURS = (Track.run, dispatch, dispatch_composite, _gradients, _usual_pull)
_HIDDEN = {fn.__code__ for fn in _OURS}


def _put_stand_ins() -> None:
    for owner, name, _, under_watch in _SEAMS:
        setattr(owner, name, under_watch)
    for op in route_calls(_STAND_INS):
        _watch_plan(op, op.plans.by_tracer.get(GradTracer))


def _take_stand_ins() -> None:
    for owner, name, usual, _ in _SEAMS:
        setattr(owner, name, usual)
    for op in route_calls({}):
        _leave_plan(op, op.plans.by_tracer.get(GradTracer))


# ---- what ran ----


def _kernel_name(op: Any, kernel: Any, kind: str) -> tuple[str, str]:
    """What rows call an operator and its kernel."""
    key = ("kernel", kind, id(kernel))
    plans = op.plans.watched  # a new dict for a new table
    if key not in plans:
        plans[key] = op.qualname, _name_kernel(op, kernel, kind)
    return plans[key]  # type: ignore[no-any-return]


def _name_kernel(op: Any, kernel: Any, kind: str) -> str:
    if kind in op.disabled:
        return "wrapped function"
    table = op.rows
    names: dict[Any, str] = {kind: f"{kind} kernel", DEFAULT: "default kernel"}
    names[COMPOSITE] = "composite body"
    for key, name in names.items():
        if key in table and table[key].fn is kernel:
            return name
    if kind == FAKE and kernel is find_fake(op):
        return "fake kernel"
    return f"{kind} fallback"


def _rule_name(op: Any, top: Any) -> tuple[str, str]:
    """What rows call an operator and that which an interpreter does with an operator."""
    key = ("rule", type(top), top.kind)
    plans = op.plans.watched
    if key not in plans:
        plans[key] = op.qualname, _name_rule(op, top)
    return plans[key]  # type: ignore[no-any-return]


def _name_rule(op: Any, top: Any) -> str:
    kind = top.kind
    if COMPOSITE in op.rows and not has_own_rule(op, kind):
        return "composite body"
    if isinstance(top, Mode):
        return f"{kind.name} mode"
    if kind is AUTOGRAD:
        return "autograd forward"
    if op.find_rule(kind) is not None:
        return f"{kind.name} rule"
    return _WITHOUT_RULE.get(kind, f"{kind.name} interpreter")


# What runs where an operator has no rule for a transform.
_WITHOUT_RULE: dict[Any, str] = {VMAP: "vmap loop", JVP: "jvp by autograd"}
