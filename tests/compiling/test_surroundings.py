"""What a compiled function uses without getting it as an argument."""

from __future__ import annotations

import operator
import random
import sys
from collections import ChainMap, UserDict, deque
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.surroundings import Surroundings

rate = 0.5
table = np.array([1.0, 2.0])
settings = {"scale": 2.0, "inner": [1.0]}


def _helper(x: Any) -> Any:
    return x * rate


def _uses_globals(x: Any) -> Any:
    return _helper(x) + table * settings["scale"] + settings["inner"][0]


def test_globals_of_all_functions_that_run_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = co.compile(_uses_globals)
    x = np.ones(2)

    def check(count: int) -> None:
        for _ in range(2):
            assert np.array_equal(f(x), _uses_globals(x))
        assert len(f.graphs) == count

    check(1)
    monkeypatch.setitem(globals(), "rate", 0.25)
    check(2)
    assert "the global 'rate' is 0.25, was 0.5" in str(f.explain())
    monkeypatch.setitem(globals(), "rate", 1.0 / 4.0)  # another object, the same number
    check(2)
    monkeypatch.setitem(settings, "scale", 3.0)
    check(3)
    monkeypatch.setitem(settings, "inner", [4.0])
    check(4)
    settings["inner"].append(0.0)
    check(5)
    monkeypatch.setitem(globals(), "table", np.array([0.0, 1.0]))
    check(6)
    monkeypatch.setitem(globals(), "_helper", lambda x: x - rate)
    check(7)


def test_what_is_written_into_an_array_of_a_closure_is_seen() -> None:
    w = np.ones(2)
    f = co.compile(lambda x: x * w)
    assert f(np.ones(2)).tolist() == [1, 1]
    w[:] = 3.0
    assert f(np.ones(2)).tolist() == [3, 3]
    w = np.zeros(2)
    assert f(np.ones(2)).tolist() == [0, 0]
    assert len(f.graphs) == 2


class Layer:
    """Has parameters as attributes, and a compiled method."""

    bias = 1.0

    def __init__(self, w: Any) -> None:
        self.w = w
        self.calls = 0

    @property
    def double(self) -> Any:
        return 2.0 * self.w

    @co.compile
    def apply(self, x: Any, *, power: int = 1) -> Any:
        return (x @ self.double + self.bias) ** power

    @co.compile
    def counts(self, x: Any) -> Any:
        self.calls += 1
        return x

    def __call__(self, x: Any) -> Any:
        return np.tanh(x @ self.w)


def test_methods_and_attributes() -> None:
    x = np.ones((2, 3))
    layer, other = Layer(np.ones((3, 2))), Layer(np.zeros((3, 2)))
    for _ in range(2):
        assert np.array_equal(layer.apply(x), np.full((2, 2), 7.0))
        assert np.array_equal(other.apply(x, power=2), np.full((2, 2), 1.0))
    layer.w = np.zeros((3, 2))
    layer.bias = 3.0
    assert np.array_equal(layer.apply(x), np.full((2, 2), 3.0))


def test_objects_that_are_called_and_given_as_arguments() -> None:
    layer = Layer(np.full((3, 2), 0.1))
    x = np.ones((2, 3))
    for f in (co.compile(layer), co.compile(lambda x: layer(x))):
        assert np.array_equal(f(x), layer(x))
        layer.w = layer.w * 2
        assert np.array_equal(f(x), layer(x))
    given = co.compile(lambda layer, x: layer(x))
    for w in (1.0, 2.0):
        layer.w = np.full((3, 2), w)
        assert np.array_equal(given(layer, x), layer(x))


@dataclass(frozen=True)
class Frozen:
    """Equal ones are the same."""

    rate: float


@dataclass
class Open:
    """Compared by its attributes."""

    rate: float


def test_config_objects_as_arguments() -> None:
    f = co.compile(lambda x, config: x * config.rate)
    x = np.ones(1)
    assert [f(x, Frozen(r))[0] for r in (1.0, 2.0, 1.0)] == [1, 2, 1]
    assert len(f.graphs) == 2
    config = Open(3.0)
    assert f(x, config)[0] == 3
    config.rate = 4.0
    assert f(x, config)[0] == 4


def test_assigning_what_a_graph_does_not_assign_is_refused() -> None:
    layer = Layer(np.ones(2))
    with pytest.raises(co.GraphError) as error:
        layer.counts(np.ones(2))
    text = str(error.value)
    assert "compile: 'counts' assigns self.calls, which its graph would not do" in text
    assert layer.calls == 0
    count = 0

    def f(x: Any) -> Any:
        nonlocal count
        count += 1
        return x

    with pytest.raises(co.GraphError, match="'count' of the closure of f"):
        co.compile(f)(np.ones(1))
    eager = co.compile(f, fallback=True)
    assert count == 0
    eager(np.ones(1)), eager(np.ones(1))
    assert count == 2


def test_a_list_that_the_function_appends_to_is_not_looked_at() -> None:
    seen = []

    @co.compile
    def f(x: Any) -> Any:
        seen.append(len(seen))
        return x

    f(np.ones(1)), f(np.ones(1)), f(np.ones(2))
    assert seen == [0, 1]


def test_generators_draw_anew_in_each_call() -> None:
    def noise(x: Any, rng: Any) -> Any:
        return x + rng.normal(size=x.shape)

    own = np.random.default_rng(1)
    f, g = co.compile(noise), co.compile(lambda x: noise(x, own))
    x = np.zeros(3)
    first, second = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(3):
        expected = noise(x, first)
        assert np.array_equal(f(x, second), expected)
        assert np.array_equal(g(x), expected)
    assert len(f.graphs) == len(g.graphs) == 1


def test_a_closure_over_a_value_of_a_transform_runs_the_function() -> None:
    def outer(w: Any) -> Any:
        inner = co.compile(lambda x: np.sum(x * w))
        return inner(np.arange(3.0)) * w.sum()

    w = np.ones(3)
    assert np.array_equal(co.grad(outer)(w), 3 * np.arange(3.0) + 3)


def test_recursion_and_compiled_functions_in_each_other() -> None:
    @co.compile
    def power(x: Any, n: int) -> Any:
        return x if n == 1 else x * power(x, n - 1)

    @co.compile
    def both(x: Any) -> Any:
        return power(x, 3) + power(x, 2)

    x = np.array([2.0])
    assert power(x, 5) == 32
    assert both(x) == both(x) == 12
    assert len(both.graphs) == 1
    assert len(power.graphs) == 1


def test_writing_to_an_array_from_outside_without_arguments_is_refused() -> None:
    counts = np.zeros(2)

    def f(x: Any) -> Any:
        counts[0] += 1.0
        return x * counts

    with pytest.raises(co.GraphError) as error:
        co.compile(f)(np.ones(2))
    assert "compile: 'f' writes to 'counts' of the closure of f by values" in str(
        error.value
    )
    assert counts.tolist() == [0.0, 0.0]


# ---- what code reads in other ways than by a name ----


class Model:
    """Has an attribute of the class that objects replace, and one that is a slot."""

    __slots__ = ("__dict__", "size")
    training = True

    def __init__(self) -> None:
        self.size = 2.0
        self._scale = 1.0

    def __getitem__(self, key: int) -> float:
        return self._scale * key

    def grown(self, x: Any) -> Any:
        return x * 2.0


def _changes() -> dict[str, tuple[Any, Any, Any]]:
    """What reads it, the function, and what changes it between the calls."""
    weights, mask, number = np.ones(3), np.array([True, False, True]), np.array(2.0)
    model, shadowed, other, item = Model(), Model(), Model(), Model()
    variable: ContextVar[float] = ContextVar("rate", default=1.0)
    keywords = partial(lambda x, by: x * by, by=1.0)
    queue, table, held = deque([1.0]), UserDict(a=1.0), ChainMap({}, {"a": 1.0})
    inner = [1.0]
    compiled = co.compile(lambda x: x * inner[0])
    get = attrgetter("size")

    def imports(x: Any) -> Any:
        from tests.compiling import test_surroundings as module  # noqa: PLC0415, PLW0406  # a module of the user

        return x * module.rate

    helper_scope: dict[str, Any] = {"__name__": __name__}
    exec("def helper(x): return x * 2.0", helper_scope)
    exec("def reloaded(x): return x * 5.0", helper_scope)
    helper = helper_scope["helper"]
    return {
        "element of an array": (
            lambda x: x * weights[0],
            lambda: operator.iadd(weights, 1.0),
            None,
        ),
        "sum of an array": (
            lambda x: x * np.sum(weights),
            lambda: operator.iadd(weights, 1.0),
            None,
        ),
        "array without axes": (
            lambda x: x * number.item(),
            lambda: operator.iadd(number, 1.0),
            None,
        ),
        "mask": (lambda x: x[mask], lambda: np.put(mask, 1, True), None),
        "attribute that shadows": (
            lambda x: x * 2.0 if shadowed.training else x,
            lambda: setattr(shadowed, "training", False),
            None,
        ),
        "slot": (lambda x: x * model.size, lambda: setattr(model, "size", 5.0), None),
        "getattr": (
            lambda x: x * getattr(model, "_scale"),  # noqa: B009
            lambda: setattr(model, "_scale", 3.0),
            None,
        ),
        "vars": (
            lambda x: x * vars(other)["_scale"],
            lambda: setattr(other, "_scale", 3.0),
            None,
        ),
        "attrgetter": (
            lambda x: x * get(other),
            lambda: setattr(other, "size", 7.0),
            None,
        ),
        "special method": (
            lambda x: x * item[2],
            lambda: setattr(item, "_scale", 3.0),
            None,
        ),
        "method": (
            lambda x: model.grown(x),
            lambda: setattr(Model, "grown", lambda _self, x: x * 9.0),
            lambda: setattr(Model, "grown", lambda _self, x: x * 2.0),
        ),
        "context variable": (
            lambda x: x * variable.get(),
            lambda: variable.set(3.0),
            None,
        ),
        "keyword of a partial": (
            lambda x: keywords(x),
            lambda: operator.setitem(keywords.keywords, "by", 3.0),
            None,
        ),
        "deque": (lambda x: x * queue[-1], lambda: queue.append(4.0), None),
        "UserDict": (
            lambda x: x * table["a"],
            lambda: operator.setitem(table, "a", 3.0),
            None,
        ),
        "ChainMap": (
            lambda x: x * held["a"],
            lambda: operator.setitem(held, "a", 3.0),
            None,
        ),
        "compiled function": (
            lambda x: compiled(x),
            lambda: operator.setitem(inner, 0, 3.0),
            None,
        ),
        "import": (
            imports,
            lambda: setattr(sys.modules[__name__], "rate", 3.0),
            None,
        ),
        "reloaded code": (
            lambda x: helper(x),
            lambda: setattr(helper, "__code__", helper_scope["reloaded"].__code__),
            None,
        ),
    }


@pytest.mark.parametrize("name", _changes())
def test_what_code_reads_in_other_ways_is_looked_at(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "rate", 0.5)
    fn, change, undo = _changes()[name]
    x, fast = np.array([0.5, -1.0, 2.0]), co.compile(fn)
    try:
        first = fast(x)
        assert np.array_equal(fast(x), fn(x))
        assert len(fast.graphs) == 1
        change()
        assert np.array_equal(fast(x), fn(x))
        assert not np.array_equal(fast(x), first)
    finally:
        if undo is not None:
            undo()


def test_explain_names_an_array_that_was_written() -> None:
    weights = np.ones(3)
    fast = co.compile(lambda x: x * weights[0])
    fast(np.ones(3))
    weights[0] = 2.0
    fast(np.ones(3))
    assert "'weights' of the closure of <lambda> was written" in str(fast.explain())


def test_arrays_that_calls_take_are_not_compared() -> None:
    """They are looked up in each call, so that what is written into them costs nothing."""
    weights = np.ones(3)
    fast = co.compile(lambda x: x * weights + weights[1:2])
    for step in range(3):
        weights[:] = step
        assert np.array_equal(fast(np.ones(3)), weights * 2.0)
    assert len(fast.graphs) == 1


def test_draws_of_python_are_refused() -> None:
    """They would be constants of the graph, as those of np.random."""
    with pytest.raises(
        co.GraphError, match="draws from Python's random, whose numbers"
    ):
        co.compile(lambda x: x * random.random())(np.ones(2))
    rng = random.Random(0)
    with pytest.raises(co.GraphError, match="draws from a Random, whose numbers"):
        co.make_fx(lambda x: x * rng.random())(np.ones(2))
    with pytest.raises(co.VmapError, match="draws from Python's random, with"):
        co.vmap(lambda x: x * random.random())(np.ones(2))
    noisy = co.checkpoint(lambda x: np.sin(x) * random.random())
    random.seed(0)
    slope = co.grad(noisy)(0.0)
    random.seed(0)
    assert slope == random.random()


class _Part:
    """One of many objects that a function can reach."""

    def __init__(self, weight: float) -> None:
        self.weight = weight


def _by_constant(part: Any) -> Any:
    try:
        return part.weight + part.a1 + part.a2 + part.a3 + part.a4 + part.a5 + part.a6
    except AttributeError:
        return part.weight * (1 if part.weight else part.b1.b2.b3.b4.b5.b6.b7.b8.b9.b10)


def _by_text(part: Any) -> Any:
    return getattr(part, "wei" + "ght", 1.0) if hasattr(part, "gain") else part.weight


@pytest.mark.parametrize("read", [_by_constant, _by_text])
def test_notes_on_many_objects_are_few(read: Any) -> None:
    """They grow with the objects, not with the objects and all names in the code."""
    parts = [_Part(float(i)) for i in range(2000)]

    def f(x: Any) -> Any:
        return np.sum(x * read(parts[3]))

    around = Surroundings([(f, "f")])
    assert len(around.slots) + len(around.missing) + len(around.spaces) < 8 * len(parts)
    compiled = co.compile(f)
    assert compiled(np.ones(2)) == 6.0
    parts[3].weight = 5.0
    assert compiled(np.ones(2)) == 10.0
    parts[3].a1 = 1.0  # type: ignore[attr-defined]  # a name that code looks for
    assert compiled(np.ones(2)) == f(np.ones(2))


def test_names_that_are_computed_beside_many_objects_are_refused() -> None:
    """They may be those of any object, and there are too many to watch."""
    parts = [_Part(float(i)) for i in range(6000)]
    name = ["weight"]

    def f(x: Any) -> Any:
        return np.sum(x * getattr(parts[3], name[0]))

    with pytest.raises(
        co.GraphError, match=r"'f' uses getattr\(\), which may read any"
    ):
        co.compile(f)(np.ones(2))
    free = co.compile(f, fallback=True)
    assert free(np.ones(2)) == 6.0
    parts[3].weight = 5.0
    assert free(np.ones(2)) == 10.0
    del parts[100:]
    assert co.compile(f)(np.ones(2)) == 10.0


def test_containers_that_are_looked_at_together() -> None:
    """A change in any of them is seen, also one that keeps all lengths or all items."""
    numbers, table, members = [1.0, 2.0], {"a": 3.0, "b": 4.0}, {5.0}
    queue, fixed = deque([6.0]), MappingProxyType({"c": 7.0})

    def f(x: Any) -> Any:
        both = x * numbers[0] + table["a"] + next(iter(table.values())) + sum(numbers)
        return both + sum(members) + queue[0] * fixed["c"] + len(numbers)

    compiled = co.compile(f)
    for change in (
        lambda: numbers.reverse(),
        lambda: table.update(a=8.0),
        lambda: table.update(a=table.pop("a")),
        lambda: (members.clear(), members.add(9.0)),
        lambda: queue.append(queue.pop() + 1.0),
        lambda: queue.appendleft(numbers.pop()),
        lambda: table.update(d=1.0),
    ):
        assert compiled(2.0) == f(2.0)
        change()
        assert compiled(2.0) == f(2.0)


@pytest.mark.parametrize("has_slots", [False, True])
def test_methods_of_frozen_dataclasses_that_refuse(has_slots: bool) -> None:
    """Their code is not looked at; what is assigned in spite of them is seen."""

    @dataclass(frozen=True, slots=has_slots)
    class Settings:
        rate: float
        other: float = 1.0

    settings = Settings(2.0)

    def f(x: Any) -> Any:
        return x * settings.rate

    found = Surroundings([(f, "f")])
    assert not {"__setattr__", "__delattr__", "__repr__"} & {
        fn.__name__ for fn in found.functions
    }
    compiled = co.compile(f)
    assert compiled(np.ones(1)) == 2.0
    object.__setattr__(settings, "rate", 3.0)
    assert compiled(np.ones(1)) == 3.0


# ---- wrappers of this package ----


def test_wrappers_of_transforms_are_not_watched() -> None:
    """`grad` and the like do not change, although they have the module of the function."""

    def f(x: Any) -> Any:
        return np.sum(x * rate)

    fn = co.vmap(co.value_and_grad(f))
    plain, wrapped = (Surroundings([(value, "f")]) for value in (f, fn))
    assert wrapped.functions == plain.functions == [f]
    labels = [[slot.label for slot in found.slots] for found in (plain, wrapped)]
    assert labels[0] == labels[1]


def test_attributes_of_wrappers_of_transforms() -> None:
    """Those that the user has set there are watched, and so is what the function reads."""
    scales = [2.0]

    def f(x: Any) -> Any:
        return np.sum(x) * fn.scale * scales[0]  # type: ignore[attr-defined]

    fn = co.grad(f)
    fn.scale = 3.0  # type: ignore[attr-defined]
    compiled = co.compile(fn)
    assert compiled(np.ones(1)) == 6.0
    fn.scale = 5.0  # type: ignore[attr-defined]
    assert compiled(np.ones(1)) == 10.0
    scales[0] = 7.0
    assert compiled(np.ones(1)) == 35.0
