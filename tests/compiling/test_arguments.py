"""Arguments of a compiled function that are unusual: order of keys, classes of arrays."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.compiling.programs import observe

ONES = np.ones(2)


def first_value(d: Any) -> Any:
    return next(iter(d.values())) * 2.0


@pytest.mark.parametrize("make", [dict, lambda d: defaultdict(int, d)])
def test_the_order_of_keys_is_looked_at(make) -> None:
    f = co.compile(lambda items: first_value(items[0]))
    for _ in range(2):
        assert f([make({"a": ONES, "b": ONES * 5.0})])[0] == 2.0
        assert f([make({"b": ONES * 5.0, "a": ONES})])[0] == 10.0
    assert len(f.graphs) == 2
    assert "the order of keys changed" in str(f.explain())


def test_results_have_the_order_of_keys_of_the_arguments() -> None:
    f = co.compile(lambda d: {k: v * 2.0 for k, v in d.items()})
    for keys in ("ab", "ba", "ab"):
        assert [*f(dict.fromkeys(keys, ONES))] == [*keys]


def test_the_order_of_keywords_is_looked_at_where_they_have_any_names() -> None:
    f = co.compile(lambda **named: first_value(named))
    g = co.compile(lambda *, a, b: a * b)
    for _ in range(2):
        assert f(a=ONES, b=ONES * 5.0)[0] == 2.0
        assert f(b=ONES * 5.0, a=ONES)[0] == 10.0
        assert g(a=ONES, b=ONES)[0] == g(b=ONES, a=ONES)[0] == 1.0
    assert len(f.graphs) == 2
    assert len(g.graphs) == 1


def test_dicts_in_registered_classes_have_an_order() -> None:
    @dataclasses.dataclass(frozen=True)
    class Layer:
        weights: dict[str, Any]

    co.register_dataclass(Layer)
    f = co.compile(lambda layer: first_value(layer.weights))
    assert f(Layer({"a": ONES, "b": ONES * 5.0}))[0] == 2.0
    assert f(Layer({"b": ONES * 5.0, "a": ONES}))[0] == 10.0


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("cls", [np.matrix, np.ma.MaskedArray])
def test_classes_with_arithmetic_of_their_own_are_refused(cls) -> None:
    x = cls(np.eye(2))
    with pytest.raises(co.GraphError, match=f"an argument is a {cls.__name__}, whose"):
        co.compile(np.sum)(x)
    found = co.compile(lambda x: x * x + x.sum(axis=1), fallback=True)(x)
    assert type(found) is cls
    assert np.array_equal(found, x * x + x.sum(axis=1))


def test_a_masked_sum_runs_as_it_is_with_fallback() -> None:
    x = np.ma.MaskedArray([1.0, 2.0], mask=[False, True])
    assert co.compile(lambda x: np.sum(x) + 1.0, fallback=True)(x) == 2.0


def test_arrays_of_objects_are_refused() -> None:
    x = np.array([1, 2.5], dtype=object)
    with pytest.raises(co.GraphError, match="an array of Python objects, of which"):
        co.compile(lambda x: np.sum(x) + 1)(x)
    assert co.compile(lambda x: np.sum(x) + 1, fallback=True)(x) == 4.5


@pytest.mark.parametrize(
    "f",
    [lambda x: (x * n for n in (1, 2)), lambda x: [iter([x])]],
    ids=["generator", "iterator"],
)
def test_a_result_that_runs_after_the_call_is_refused(f) -> None:
    with pytest.raises(co.GraphError, match="which runs after the call"):
        co.compile(f)(ONES)


# ---- pickles ----


@co.compile
def doubled(x: Any) -> Any:
    return x * 2.0


def test_a_decorated_function_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert copy.deepcopy(doubled) is doubled
    f = co.compile(first_value)
    again = pickle.loads(pickle.dumps(f))
    assert again is not f
    assert again({"a": ONES})[0] == 2.0


# ---- np.errstate inside of a function ----


def guarded(x: Any) -> Any:
    y = np.sqrt(x) + 1.0
    with np.errstate(divide="ignore", invalid="raise"):
        z = 1.0 / x + 2.0
        z[0] *= 2.0
        w = np.log(x.reshape(-1, 1)[:, 0])
    return z * y + w / x


def outcome(f: Any, x: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = f(x).tobytes()
        except FloatingPointError as error:
            found = str(error)
    return found, [str(w.message) for w in caught]


@pytest.mark.parametrize("backend", ["numpy", "native", "eager"])
def test_errstate_of_the_function_holds_for_its_calls(backend) -> None:
    f = co.compile(guarded, backend=backend)
    values = ([1.0, 2.0], [0.0, 2.0], [-1.0, 2.0], [-1.0, 0.0], [1.0, 2.0, 0.0])
    for value in values * 2:
        x = np.array(value)
        assert outcome(f, x) == outcome(guarded, x)
        with np.errstate(all="ignore"):
            assert outcome(f, x) == outcome(guarded, x)
    assert len(f.graphs) == 2


def test_errstate_holds_for_calls_of_operators_and_of_control_flow() -> None:
    def f(x: Any) -> Any:
        with np.errstate(all="ignore"):
            out, _ = co.scan(lambda c, v: (c + np.log(v), c), np.zeros(()), x)
            parts = np.frexp(1.0 / x)
        return out + parts[0]

    x = np.array([0.0, -1.0, 2.0])
    compiled = co.compile(f)
    for _ in range(2):
        assert outcome(compiled, x) == outcome(f, x)
        assert outcome(compiled, x)[1] == []


# ---- containers that the function changes ----


CHANGES = {
    "append": lambda d: d["list"].append(d["a"] * 2.0),
    "update": lambda d: d.update(a=d["a"] * 2.0),
    "pop": lambda d: d.pop("a"),
    "reverse": lambda d: d["list"].reverse(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changing_a_container_that_is_an_argument_is_refused(change) -> None:
    def f(d: Any) -> Any:
        change(d)
        return d["list"][0] * 2.0

    d = {"a": ONES, "list": [ONES, ONES * 3.0]}
    with pytest.raises(
        co.GraphError, match="f changes a container that is an argument"
    ):
        co.compile(f)(d)
    expected = copy.deepcopy(d)
    assert np.array_equal(co.compile(f, fallback=True)(d), f(expected))
    assert d.keys() == expected.keys()
    assert len(d["list"]) == len(expected["list"])


def test_arrays_in_containers_are_written_in_place() -> None:
    @co.compile
    def f(d: Any) -> Any:
        d["a"] -= 0.5
        return d["a"] * 2.0

    d = {"a": np.ones(2)}
    for value in (0.5, 0.0):
        assert np.array_equal(f(d), np.full(2, 2.0 * value))
        assert np.array_equal(d["a"], np.full(2, value))


@pytest.mark.parametrize("value", [1e300, math.nan, 300, -1, 2**70, 2.5, True])
@pytest.mark.parametrize("dtype", ["u1", "i8", "f4", "?"])
def test_a_number_is_written_as_numpy_writes_it(value: Any, dtype: str) -> None:
    def fn(x: Any, y: Any) -> Any:
        x[0] = y
        return x * 2

    compiled = co.compile(fn)
    with warnings.catch_warnings(action="ignore"):  # also in capturing
        for given in (1, value, value):
            seen = [
                observe(f, [np.ones(3, dtype), given], "ignore") for f in (fn, compiled)
            ]
            assert seen[0].result == seen[1].result
            assert seen[0].error == seen[1].error


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\ud800", ""])
def test_functions_may_have_any_name(name: str) -> None:
    """Their names are in the file names of generated code, which holds no NUL."""

    def double(x: Any) -> Any:
        return x * 2.0

    double.__name__ = name
    assert co.compile(double)(ONES).tolist() == [2.0, 2.0]
    assert co.make_fx(double)(ONES)(ONES).tolist() == [2.0, 2.0]
