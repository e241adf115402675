"""Operators that depend on earlier calls, on threads, or do not pickle."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

import customop as co

from . import A, define, modeled, planted

# ---- determinism ----


@planted(
    test_determinism="the output differs between two calls on equal inputs: 1 of 1 elements (100.0 %) are not close",
)
def random_and_untagged(wrong: bool) -> Any:
    def noisy(x: A) -> A:
        noise = np.random.default_rng(None if wrong else 0).normal(size=x.shape)
        return x * 1.0 + noise

    return define(noisy).register_fake(modeled(noisy))


@planted(
    test_determinism="the output differs between two calls on equal inputs: 1 of 1 elements (100.0 %) are not close",
)
def memory_never_filled(wrong: bool) -> Any:
    def shifted(x: A) -> A:
        if x.ndim != 1 or x.dtype != np.float64 or not x.size:
            raise TypeError("some float64")
        out = np.empty(x.shape)
        out[1:] = x[:-1]
        if not wrong:
            out[0] = 0.0
        return out

    def fake(x):
        if x.ndim != 1:
            raise ValueError("one axis")
        return co.FakeArray(x.shape, np.float64)

    return define(shifted).register_fake(fake)


@planted(
    test_determinism="returns the output in memory that a later call uses again",
)
def one_buffer_for_all_results(wrong: bool) -> Any:
    memory: dict[Any, A] = {}

    def doubled(x: A) -> A:
        out = memory.setdefault((x.shape, x.dtype), np.zeros(x.shape, x.dtype))
        np.add(x, x, out=out)
        return out if wrong else x + x

    return define(doubled).register_fake(lambda x: co.FakeArray(x.shape, x.dtype))


@planted(
    test_determinism="the output differs between two calls on equal inputs: 1 of 1 elements (100.0 %) are not close",
)
def calls_are_counted(wrong: bool) -> Any:
    calls = [0]

    def counted(x: A) -> A:
        calls[0] += 1
        return x * 1.0 + (calls[0] if wrong else 0)

    return define(counted).register_fake(modeled(counted))


@planted(
    test_determinism="the output differs after a call on other inputs: 1 of 1 elements (100.0 %) are not close",
)
def last_input_is_remembered(wrong: bool) -> Any:
    state: dict[str, Any] = {"last": 0.0}

    def smoothed(x: A) -> A:
        before = state["last"] if wrong else 0.0
        state["last"] = float(np.sum(x * np.arange(1.0, x.size + 1).reshape(x.shape)))
        return x * 1.0 + before * (state["last"] != before)

    return define(smoothed).register_fake(modeled(smoothed))


@planted(
    test_determinism="gives 1 and 2 results between two calls on equal inputs",
)
def list_of_another_length(wrong: bool) -> Any:
    calls = itertools.count()

    def parts(x: A) -> list[A]:
        return [x.copy() for _ in range(1 + (next(calls) % 2 if wrong else 0))]

    return define(parts).register_fake(lambda x: [co.fake_like(x)])


@planted(test_determinism="")
def word_that_changes(wrong: bool) -> Any:
    calls = itertools.count()

    def parity(x: A) -> tuple[A, str]:
        return x.copy(), "odd" if wrong and next(calls) % 2 else "even"

    return define(parity).register_fake(lambda x: (co.fake_like(x), "even"))


# ---- pickling ----


@dataclass(frozen=True)
class Forgetful:
    """A config object whose pickle forgets a field."""

    gain: float = 3.0

    def __reduce__(self) -> Any:
        return (Forgetful, ())


@dataclass(frozen=True)
class Faithful:
    """A config object that pickles as it is."""

    gain: float = 3.0


@planted(
    test_pickle="takes Forgetful, whose field 'gain' is another after pickle",
)
def config_object_forgets(wrong: bool) -> Any:
    def amplified(x: A, how: Forgetful) -> A:
        return x * 1.0 * how.gain

    def amplified_well(x: A, how: Faithful) -> A:
        return x * 1.0 * how.gain

    op = define(amplified if wrong else amplified_well)
    cls = Forgetful if wrong else Faithful
    op.register_fake(modeled(op.__wrapped__))
    return op.register_sample_inputs(lambda: [(np.ones(2), cls(5.0))])


@dataclass(frozen=True)
class Shy:
    """A config object that does not pickle."""

    gain: float = 3.0

    def __reduce__(self) -> Any:
        raise TypeError("not from here")


@planted(
    test_pickle="Shy does not pickle: not from here",
)
def config_object_does_not_pickle(wrong: bool) -> Any:
    def louder(x: A, how: Shy) -> A:
        return x * 1.0 * how.gain

    def louder_well(x: A, how: Faithful) -> A:
        return x * 1.0 * how.gain

    op = define(louder if wrong else louder_well)
    op.register_fake(modeled(op.__wrapped__))
    cls = Shy if wrong else Faithful
    return op.register_sample_inputs(lambda: [(np.ones(2), cls(5.0))])


# ---- threads ----


@planted(
    test_threads="the output differs between a call alone and one during a call in another thread: 1 of 1 elements (100.0 %) are not close",
)
def shared_scratch_memory(wrong: bool) -> Any:
    shared: dict[Any, A] = {}
    local = threading.local()

    def scaled(x: A) -> A:
        memory = shared if wrong else vars(local)
        scratch = memory.setdefault(str((x.shape, x.dtype)), np.empty(x.shape, x.dtype))
        np.add(x, x, out=scratch)
        return scratch.copy()

    op = define(scaled)
    return op.register_fake(lambda x: co.FakeArray(x.shape, x.dtype))


@planted(
    test_threads="the output differs between a call alone and one during a call in another thread: 1 of 1 elements (100.0 %) are not close",
)
def state_behind_a_lock(wrong: bool) -> Any:
    state: dict[str, Any] = {}
    lock = threading.Lock()

    def scaled(x: A) -> A:
        if wrong:
            state["x"] = x
            return state["x"] + state["x"]
        with lock:
            state["x"] = x
            return state["x"] + state["x"]

    op = define(scaled)
    return op.register_fake(lambda x: co.fake_like(x))


# What is said first of each fault, by its name and the check that finds it.
