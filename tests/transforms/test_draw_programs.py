"""Draws that no operator sees, under every transform and behind every kind of wrapper."""

from __future__ import annotations

import random
import secrets
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache, partial, partialmethod, wraps
from operator import methodcaller
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([0.5, -1.0, 2.0])
ROWS = np.arange(6.0).reshape(2, 3) + 1.0

Noise = Callable[[], float]
Function = Callable[[Any], Any]


class Model:
    """Draws through a method of a part that it holds."""

    kept: Any = None

    def __init__(self, rng: Any) -> None:
        self.parts = [{"rng": rng}]

    def noise(self) -> Any:
        return self.parts[0]["rng"].normal()

    def _scaled(self, by: float) -> Any:
        return self.noise() * by

    scaled = partialmethod(_scaled, 2.0)

    def __call__(self) -> Any:
        return self.noise()


class Slots:
    """Holds a generator in a slot."""

    __slots__ = ("rng",)

    def __init__(self, rng: Any) -> None:
        self.rng = rng

    @property
    def noise(self) -> Any:
        return self.rng.normal()


def _draw(held: Any) -> Any:
    return held.rng.normal()


def _of_class(rng: Any) -> Noise:
    holder = type("Holder", (Model,), {"kept": rng})
    return lambda: holder.kept.normal()


def _of_helpers(rng: Any) -> Noise:
    """The last of 40 functions, each of which names the next."""
    scope: dict[str, Any] = {"rng": rng, "__name__": "helpers"}
    exec("def f0(): return rng.normal()", scope)
    for i in range(1, 40):
        exec(f"def f{i}(): return f{i - 1}() + 0.0", scope)
    found: Noise = scope["f39"]
    return found


def _of_variable(rng: Any) -> Noise:
    variable: ContextVar[Any] = ContextVar("variable")
    variable.set(rng)
    return lambda: variable.get().normal()


def _of_thread(rng: Any) -> Noise:
    local = threading.local()
    local.rng = rng
    return lambda: local.rng.normal()


def _of_cache(rng: Any) -> Noise:
    @lru_cache
    def get() -> Any:
        return rng

    return lambda: get().normal()


def _of_steps(rng: Any) -> Noise:
    def steps() -> Iterator[float]:
        mine = rng
        while True:
            yield mine.normal()

    found = steps()
    next(found)
    return lambda: next(found)


def _wrapped(rng: Any) -> Noise:
    def noise() -> Any:
        return rng.normal()

    @wraps(noise)
    def outer() -> Any:
        return noise()

    return outer


def _inner(rng: Any) -> Noise:
    def noise() -> Any:
        def inner() -> Any:
            return rng.normal()

        return inner()

    return noise


def _imported(_: Any) -> Noise:
    def noise() -> Any:
        import random as other  # noqa: PLC0415  # what is tried

        return other.gauss(0.0, 1.0)

    return noise


def _in_array(rng: Any) -> Any:
    held = np.empty(1, dtype=object)
    held[0] = rng
    return held


def _by_module(rng: Any) -> Noise:
    module = ModuleType("holder_of_rng")
    vars(module)["rng"] = rng
    sys.modules["holder_of_rng"] = module
    return lambda: sys.modules["holder_of_rng"].rng.normal()


def _by_weak_dict(rng: Any) -> Noise:
    model = Model(rng)
    held = weakref.WeakValueDictionary({"model": model})
    # The default keeps the model alive; it is not what draws.
    return lambda kept=(held, [model]): kept[0]["model"].noise()


def _by_global(rng: Any) -> Noise:
    globals()["rng_by_text"] = rng
    return lambda: globals()["rng_by_text"].normal()


# Where the generator is -> the function that draws from it.
HOLDERS: dict[str, Callable[[Any], Noise]] = {
    "closure": lambda rng: lambda: rng.normal(),
    "default": lambda rng: lambda mine=rng: mine.normal(),
    "keyword default": lambda rng: lambda *, mine=rng: mine.normal(),
    "bound method": lambda rng: rng.normal,
    "partial": lambda rng: partial(lambda mine: mine.normal(), rng),
    "keyword of a partial": lambda rng: partial(lambda mine: mine.normal(), mine=rng),
    "model": lambda rng: Model(rng),
    "method of a model": lambda rng: Model(rng).noise,
    "slot": lambda rng: partial(lambda held: held.noise, Slots(rng)),
    "namespace": lambda rng: partial(_draw, SimpleNamespace(rng=rng)),
    "class": _of_class,
    "function attribute": lambda rng: partial(_draw, _with(rng)),
    "list": lambda rng: lambda held=[rng]: held[0].normal(),
    "tuple in a dict": lambda rng: lambda held={"a": (rng,)}: held["a"][0].normal(),
    "deque": lambda rng: lambda held=deque([rng]): held[0].normal(),
    "set": lambda rng: lambda held={rng}: next(iter(held)).normal(),
    "helpers": _of_helpers,
    "context variable": _of_variable,
    "thread": _of_thread,
    "cache": _of_cache,
    "steps": _of_steps,
    "wrapped": _wrapped,
    "inner function": _inner,
    "object array": lambda rng: partial(lambda held: held[0].normal(), _in_array(rng)),
    "vectorize": lambda rng: partial(np.vectorize(lambda v: v * rng.normal()), 1.0),
    "frompyfunc": lambda rng: partial(
        np.frompyfunc(lambda v: v * rng.normal(), 1, 1), 1.0
    ),
    "methodcaller": lambda rng: partial(methodcaller("normal"), rng),
    "partialmethod": lambda rng: Model(rng).scaled,
    "weak dict": _by_weak_dict,
    "module by text": _by_module,
    "global by text": _by_global,
}
# Those that need no generator.
GLOBALS: dict[str, Callable[[Any], Noise]] = {
    "np.random": lambda _: lambda: np.random.normal(),  # noqa: NPY002  # what is tried
    "np.random by name": lambda _: lambda: getattr(np.random, "normal")(),  # noqa: B009
    "method of np.random": lambda _: np.random.normal,
    "random": lambda _: lambda: random.gauss(0.0, 1.0),
    "random, imported inside": _imported,
    "without a seed": lambda _: lambda: np.random.default_rng().normal(),
    "seeded by nobody": lambda _: (
        lambda: np.random.Generator(np.random.PCG64()).normal()
    ),
    "older, without a seed": lambda _: lambda: np.random.RandomState().normal(),
    "system": lambda _: lambda: random.SystemRandom().random(),
    "secrets": lambda _: lambda: secrets.randbelow(1 << 20) / 3.0,
    "spawn": lambda _: partial(
        lambda rng: rng.spawn(1)[0].normal(), np.random.default_rng(0)
    ),
}


def _with(rng: Any) -> Any:
    def fn() -> None:
        """Has an attribute."""

    fn.rng = rng  # type: ignore[attr-defined]  # functions may have any
    return fn


def with_noise(noise: Noise) -> Function:
    return lambda v: np.sum(v * v) * noise()


def without_noise(noise: Noise) -> Function:
    """Hold what draws, and do not draw."""
    return lambda v: np.sum(v * v) * (1.0 if callable(noise) else 0.0)


def _value_and_grad(fn: Function) -> Function:
    return lambda v: co.value_and_grad(fn)(v)[1]


# Each makes of a function of an array with a scalar result another one.
WRAPPERS: dict[str, Callable[[Function], Function]] = {
    "lambda": lambda fn: lambda v: fn(v),
    "wraps": lambda fn: wraps(fn)(lambda v: fn(v)) if hasattr(fn, "__name__") else fn,
    "checkpoint": co.checkpoint,
    "partial": lambda fn: partial(fn),
    "grad": lambda fn: lambda v: np.sum(co.grad(fn)(v)),
    "grad of checkpoint": lambda fn: lambda v: np.sum(co.grad(co.checkpoint(fn))(v)),
    "jvp": lambda fn: lambda v: co.jvp(fn, (v,), (v,))[1],
    "vjp": lambda fn: lambda v: co.vjp(fn, v)[0],
    "linearize": lambda fn: lambda v: co.linearize(fn, v)[0],
}
LAST: dict[str, Callable[[Function], Function]] = {
    "itself": lambda fn: fn,
    "grad": co.grad,
    "value_and_grad": co.value_and_grad,
    "jacrev": co.jacrev,
    "jacfwd": co.jacfwd,
    "hessian": co.hessian,
    "checkpoint": co.checkpoint,
    "compile": lambda fn: co.compile(fn, fallback=True),
    "grad of compile": lambda fn: co.grad(co.compile(fn, fallback=True)),
}
USES: dict[str, Callable[[Function], Any]] = {
    "compile": lambda fn: co.compile(fn)(X),
    "make_fx": lambda fn: co.make_fx(fn)(X),
    "vmap": lambda fn: co.vmap(fn)(ROWS),
    "vmap, different": lambda fn: co.vmap(fn, randomness="different")(ROWS),
    "vmap, two arguments": lambda fn: co.vmap(
        lambda v, k: fn(v * k), (0, None), randomness="different"
    )(ROWS, 1.0),
}


def program(seed: int) -> tuple[str, Noise, Callable[[Function], Any]]:
    """A place of a generator, and a use of it behind some wrappers."""
    choose = random.Random(seed)
    makers = {**HOLDERS, **GLOBALS}
    name = choose.choice([*makers])
    kinds = [np.random.default_rng, np.random.RandomState]
    noise = makers[name](choose.choice(kinds)(seed))
    names = [choose.choice([*WRAPPERS]) for _ in range(choose.randrange(3))]
    last, use = choose.choice([*LAST]), choose.choice([*USES])
    if name == "steps" and use == "compile":  # it refuses an iterator as such
        use = "make_fx"

    def run(fn: Function) -> Any:
        for wrapper in names:
            fn = WRAPPERS[wrapper](fn)
        return USES[use](LAST[last](fn))

    return " / ".join([name, *names, last, use]), noise, run


def check(seed: int) -> None:
    text, noise, run = program(seed)
    run(without_noise(noise))  # a false alarm would raise
    with pytest.raises((co.VmapError, co.GraphError, co.GradientError)) as caught:
        run(with_noise(noise))
    found = str(caught.value)
    # A checkpoint inside may notice it first.
    assert "the function draws from" in found or "other values the second" in found, (
        text
    )


@pytest.mark.parametrize("name", [*HOLDERS, *GLOBALS])
def test_a_generator_is_found_wherever_it_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Threads that other tests have left draw nothing; those of a user might.
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    for use_name, use in USES.items():
        noise = {**HOLDERS, **GLOBALS}[name](np.random.default_rng(0))
        if (name, use_name) == ("steps", "compile"):  # it refuses an iterator as such
            continue
        with pytest.raises((co.VmapError, co.GraphError), match="draws from"):
            use(with_noise(noise))
        use(without_noise(noise))


@pytest.mark.parametrize("name", LAST)
def test_a_generator_is_found_through_transforms(name: str) -> None:
    for use in USES.values():
        noise = Model(np.random.default_rng(0))
        with pytest.raises((co.VmapError, co.GraphError), match="draws from"):
            use(LAST[name](with_noise(noise)))
        use(LAST[name](without_noise(noise)))


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:compile")
@pytest.mark.parametrize("seed", range(0, 300, 100))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Threads that other tests have left draw nothing; those of a user might.
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    for number in range(seed, seed + 100):
        check(number)


# ---- draws after a run that drew nothing ----

ONCE: dict[str, Callable[[Function], Any]] = {
    "make_fx": lambda fn: co.make_fx(fn)(X),
    "vmap": lambda fn: co.vmap(fn)(ROWS),
    "vmap, different": lambda fn: co.vmap(fn, randomness="different")(ROWS),
}


class Dropout:
    """Draws only while it has a generator."""

    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def __call__(self, v: Any) -> Any:
        total = np.sum(v * v)
        return total if self.rng is None else total * self.rng.normal()


def _of_flag(rng: Any) -> Function:
    held, draws = [np.random.default_rng(0)], rng is not None
    return lambda v: np.sum(v * v) * (held[0].normal() if draws else 1.0)


def _of_key(rng: Any) -> Function:
    held = {"rng": rng}

    def fn(v: Any) -> Any:
        total = np.sum(v * v)
        return total if held["rng"] is None else total * held["rng"].normal()

    return fn


@pytest.mark.parametrize("make", [Dropout, _of_flag, _of_key])
@pytest.mark.parametrize("use", ONCE)
@pytest.mark.parametrize("around", [lambda fn: fn, co.checkpoint, partial])
def test_a_run_without_draws_says_nothing_of_others(
    make: Callable[[Any], Function], use: str, around: Callable[[Function], Function]
) -> None:
    ONCE[use](around(make(None)))
    with pytest.raises((co.VmapError, co.GraphError), match="draws from"):
        ONCE[use](around(make(np.random.default_rng(0))))


def test_a_wrapper_is_watched_for_itself() -> None:
    """A generator in a closure draws for each row; one behind a wrapper does not."""
    rng = np.random.default_rng(0)

    def fn(v: Any) -> Any:
        return np.sum(v * rng.normal(size=3))

    assert len({*co.vmap(fn, randomness="different")(ROWS * 0.0 + 1.0)}) == len(ROWS)
    for wrapped in (co.compile(fn), co.checkpoint(fn)):
        with pytest.raises(co.VmapError, match="draws from a Generator"):
            co.vmap(wrapped, randomness="different")(ROWS)


# ---- draws that are allowed ----


def test_draws_of_a_generator_with_a_seed_are_the_same_each_time() -> None:
    """A function that makes it itself computes the same each time, also as a graph."""

    def fn(x: Any) -> Any:
        return x * np.random.default_rng(3).normal(size=3)

    for run in (co.compile(fn), co.make_fx(fn)(X), lambda x: co.vmap(fn)(x[None])[0]):
        np.testing.assert_array_equal(run(X), fn(X))


def test_copies_of_generators_are_no_new_ones() -> None:
    rng = np.random.default_rng(3)

    def fn(x: Any) -> Any:
        from copy import deepcopy  # noqa: PLC0415  # what is tried

        return x * deepcopy(rng).normal(size=3)

    expected = X * np.random.default_rng(3).normal(size=3)
    for run in (co.compile(fn), lambda x: co.vmap(fn)(x[None])[0]):
        np.testing.assert_array_equal(run(X), expected)


def test_another_thread_may_draw_meanwhile() -> None:
    """From NumPy's global generator, which the function cannot reach."""
    waits, goes = threading.Event(), threading.Event()

    def draw() -> None:
        waits.wait()
        np.random.normal()  # noqa: NPY002  # what is tried
        goes.set()

    thread = threading.Thread(target=draw)
    thread.start()

    def fn(x: Any) -> Any:
        waits.set()
        goes.wait()
        return x * 2.0

    np.testing.assert_array_equal(co.vmap(fn)(X), X * 2.0)
    thread.join()


def test_a_generator_elsewhere_is_watched_for_itself() -> None:
    """An argument draws for each row; one in a partial does not, and is an error."""

    def fn(v: Any, gen: Any) -> Any:
        return np.sum(v * gen.normal(size=()))

    rng = np.random.default_rng(0)
    rows = co.vmap(lambda v, g: fn(v, g), (0, None), randomness="different")
    rows(ROWS, rng)
    co.vmap(fn, (0, None), randomness="different")(ROWS, rng)
    with pytest.raises(co.VmapError, match="draws from a Generator"):
        co.vmap(partial(fn, gen=rng), randomness="different")(ROWS)
    older = np.random.RandomState(0)
    with pytest.raises(co.VmapError, match="draws from a RandomState"):
        rows(ROWS, older)


def test_a_proxy_of_an_object_that_is_gone_holds_nothing() -> None:
    held = [weakref.proxy(Model(None))]  # the model is gone at once

    def fn(x: Any) -> Any:
        return x * len(held)

    np.testing.assert_array_equal(co.make_fx(fn)(X)(X), X)
    np.testing.assert_array_equal(co.compile(fn)(X), X)
    np.testing.assert_array_equal(co.vmap(fn)(ROWS), ROWS)
