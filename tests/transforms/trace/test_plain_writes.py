"""Arrays from outside that a function writes with the bytes that they hold already.

The oracle is the function itself, after somebody else has written the array.
"""

from __future__ import annotations

import operator
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays.trampolines import IS_KNOWN

pytestmark = pytest.mark.skipif(not IS_KNOWN, reason="this Python's code is not known")

X = np.ones(2)
table = np.zeros(2)
space = SimpleNamespace(table=table, inner=SimpleNamespace(table=table))


class Model:
    """Holds an array, which it writes."""

    def __init__(self) -> None:
        self.table: np.ndarray = table

    def clear(self) -> None:
        self.table[...] = 0.0

    def __call__(self, x: Any) -> Any:
        self.table[:] = 0.0
        return x + self.table

    def by_method(self, x: Any) -> Any:
        self.clear()
        return x + self.table


model = Model()


def clear() -> None:
    table[:] = 0.0


def by_name(x: Any) -> Any:
    table[:] = 0.0
    return x + table


def by_item(x: Any) -> Any:
    table[0] = 0.0
    table[1] = 0.0
    return x + table


def by_attribute(x: Any) -> Any:
    space.inner.table[...] = 0.0
    return x + table[::-1]


def after_a_branch(x: Any, n: int = 2) -> Any:
    y = x
    if n > 1:
        y = y * n
    for _ in range(n):
        y = y + 1.0
    table[:] = 0.0 if n > 3 else 0.0 * n
    return y + table


def by_filling(x: Any) -> Any:
    table.fill(0.0)
    return x + table


def by_part(x: Any) -> Any:
    table[0:1] = 0.0
    return x + table


def by_sorting(x: Any) -> Any:
    space.table.sort()
    return x + table


def by_function(x: Any) -> Any:
    clear()
    return x + table


def by_method(x: Any) -> Any:
    model.clear()
    return x + model.table


def _closing() -> Callable[..., Any]:
    kept = table

    def wipe() -> None:
        kept[:] = 0.0

    def by_closure(x: Any) -> Any:
        wipe()
        return x + kept

    return by_closure


def in_a_loop_that_runs(x: Any) -> Any:
    for _ in range(len(x)):
        table[:] = 0.0
    return x + table


def in_a_branch_that_runs(x: Any) -> Any:
    if len(x) == 2:
        table[...] = 0.0
    return x + table


def after_a_handler_that_is_left(x: Any) -> Any:
    try:
        _ = [0][len(x)]
    except IndexError:
        x = x * 1.0
    with np.errstate(all="ignore"):
        table[:] = 0.0
    return x + table


def by_another_name(x: Any) -> Any:
    other = [table][0]
    other[:] = 0.0
    return x + table


def by_a_function_inside(x: Any) -> Any:
    def inner() -> None:
        table[:] = 0.0

    inner()
    return x + table


def by_all_items(x: Any) -> Any:
    for i in range(len(table)):
        table[i] = 0.0
    return x + table


def by_parts(x: Any) -> Any:
    table[:1] = 0.0
    table[1:] = 0.0
    return x + table


def by_out(x: Any) -> Any:
    np.add(0.0, [0.0, 0.0], out=table)
    return x + table


def by_copyto(x: Any) -> Any:
    np.copyto(table, 0.0)
    return x + table


def by_a_view_of_all(x: Any) -> Any:
    table[::-1][:] = 0.0
    return x + table


def between_two_uses(x: Any) -> Any:
    y = x * (1.0 + 0.0 * table)
    table[:] = 0.0
    return y + table


def by_a_view(x: Any) -> Any:
    first = table[:1]
    first[0] = 0.0
    return x + table


def by_a_factor(x: Any) -> Any:
    same = table
    same *= 0.5
    return x + table


def by_copyto_of_some(x: Any) -> Any:
    np.copyto(table, 0.0, where=[True, False])
    return x + table


def after_a_use(x: Any) -> Any:
    y = x + table
    table[:] = 0.0
    return y


def after_a_function(x: Any) -> Any:
    y = by_use(x)
    clear()
    return y


def by_use(x: Any) -> Any:
    return x + table


def twice(x: Any) -> Any:
    model.table[...] = 2.0
    table[:] = 0.0
    return x + table


FIRST: dict[str, Callable[..., Any]] = {
    "name": by_name,
    "attribute": by_attribute,
    "twice": twice,
    "fill": by_filling,
    "function": by_function,
    "method of an object": by_method,
    "closure": _closing(),
    "object": model,
    "own method": model.by_method,
    "item": by_item,
    "after a branch": after_a_branch,
    "loop": in_a_loop_that_runs,
    "branch": in_a_branch_that_runs,
    "handler": after_a_handler_that_is_left,
    "other name": by_another_name,
    "function inside": by_a_function_inside,
    "all items": by_all_items,
    "parts": by_parts,
    "out": by_out,
    "copyto": by_copyto,
    "view of all": by_a_view_of_all,
    "between two uses": between_two_uses,
}
# What is left in the array, or its order, depends on what it held; or it is used before.
OTHERS: dict[str, Callable[..., Any]] = {
    "part": by_part,
    "view": by_a_view,
    "factor": by_a_factor,
    "copyto of some": by_copyto_of_some,
    "sort": by_sorting,
    "after a use": after_a_use,
    "after a function": after_a_function,
}
CERTAIN = {**FIRST, **OTHERS}


@contextmanager
def _kept(values: Any = 0.0) -> Iterator[None]:
    table[:] = values
    try:
        yield
    finally:
        table[:] = 0.0


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", FIRST)
def test_graphs_keep_what_is_written(name: str, mode: Any) -> None:
    fn = FIRST[name]
    graph = co.make_fx(fn, mode)(X)
    again = co.make_fx(fn, mode)(X)  # the second capture of a function watches less
    for values in (0.0, [3.0, 5.0]):
        with _kept(values):
            found = graph(X), again(X)
            expected = fn(X)
        np.testing.assert_array_equal(found, [expected, expected])


def test_graphs_look_up_what_is_not_written() -> None:
    """The other elements of an array of which a part is written are those of its owner."""
    part = table[:1]

    def padded(x: Any) -> Any:
        table[0] = 0.0
        return x + table

    def of_a_view(x: Any) -> Any:
        part[:] = 0.0
        return x + table

    for fn in (padded, of_a_view, after_a_use, after_a_function):
        graph = co.make_fx(fn)(X)
        with _kept([0.0, 5.0]):
            found = graph(X)  # before the function writes it
            np.testing.assert_array_equal(found, fn(X))


@pytest.mark.parametrize("name", CERTAIN)
def test_compiled_functions_refuse_it(name: str) -> None:
    with pytest.raises(co.GraphError, match=r"writes to .* do not depend on its arg"):
        co.compile(CERTAIN[name])(X)
    assert not table.any()


@pytest.mark.parametrize("name", CERTAIN)
def test_the_functions_have_their_code_again(name: str) -> None:
    codes = [fn.__code__ for fn in (clear, by_use, Model.clear, Model.__call__)]
    with suppress(co.GraphError):
        co.compile(CERTAIN[name])(X)
    co.make_fx(CERTAIN[name])(X)
    after = [fn.__code__ for fn in (clear, by_use, Model.clear, Model.__call__)]
    assert all(map(operator.is_, codes, after))


def test_large_arrays_are_seen() -> None:
    """Their bytes are not compared: that would take long."""
    large = np.zeros((1 << 21) + 1)

    def same(x: Any) -> Any:
        large[:] = 0.0
        return x + large[0]

    def other(x: Any) -> Any:
        large[1] = 2.0
        return x + large[0]

    for fn in (same, other):
        with pytest.raises(co.GraphError, match="writes to 'large' of the closure"):
            co.compile(fn)(X)


def test_a_capture_inside_of_another_one() -> None:
    """Both see what a function writes that they share."""
    seen: list[Any] = []

    def outer(x: Any) -> Any:
        seen.append(co.make_fx(by_name)(X))
        return by_name(x)

    seen.append(co.make_fx(outer)(X))
    with _kept([3.0, 5.0]):
        assert [graph(X).tolist() for graph in seen] == [[1.0, 1.0]] * 2


def test_writes_of_other_threads_are_theirs() -> None:
    def outer(x: Any) -> Any:
        thread = threading.Thread(target=by_name, args=(X,))
        thread.start()
        thread.join()
        return x + table

    fast = co.compile(outer)
    assert fast(X).tolist() == [1.0, 1.0]
    with _kept([3.0, 5.0]):
        assert fast(X).tolist() == [4.0, 6.0]


# ---- what runs only sometimes ----


def _later() -> Iterator[int]:
    table[:] = 0.0
    yield 1


def _holder() -> None:
    table[:] = 0.0


_holder.count = lambda *numbers: len(numbers)  # type: ignore[attr-defined]  # any name


def in_a_branch(x: Any) -> Any:
    if len(x) > 5:
        table[:] = 0.0
    return x + table


def in_a_loop(x: Any) -> Any:
    for _ in range(len(x) - 2):
        table[:] = 0.0
    return x + table


def after_a_return(x: Any) -> Any:
    if len(x) == 2:
        return x + table
    table[:] = 0.0
    return x


def after_a_return_in_a_loop(x: Any) -> Any:
    for i in range(len(x)):
        if i:
            return x + table
    table[:] = 0.0
    return x


def by_a_short_cut(x: Any) -> Any:
    _ = len(x) > 5 and table.__setitem__(0, 0.0)
    return x + table


def by_a_choice(x: Any) -> Any:
    (clear if len(x) > 5 else dict)()
    return x + table


def where_it_fails(x: Any) -> Any:
    try:
        _ = [0][len(x)]
        table[:] = 0.0
    except IndexError:
        pass
    return x + table


def after_a_handler(x: Any) -> Any:
    try:
        _ = [0][len(x)]
    except IndexError:
        return x + table
    table[:] = 0.0
    return x


def of_a_local(x: Any) -> Any:
    def inner() -> None:
        table[:] = 0.0

    space = SimpleNamespace(table=np.zeros(2))
    space.table[:] = 0.0
    return x + globals()["table"] + len(inner.__name__)


def of_a_generator(x: Any) -> Any:
    _later()
    return x + table


def of_an_attribute(x: Any) -> Any:
    return x + table + _holder.count(*(1, 2))  # type: ignore[attr-defined]  # as above


def _chosen(x: Any, place: Any = table) -> Any:
    (place if len(x) < 5 else np.zeros(2)).sum()
    (np.zeros(2) if len(x) < 5 else table)[:] = 0.0
    return x + place


UNCERTAIN: list[Callable[..., Any]] = [
    *(in_a_branch, in_a_loop, after_a_return, after_a_return_in_a_loop),
    *(by_a_short_cut, by_a_choice, where_it_fails, after_a_handler, of_a_local),
    *(of_a_generator, of_an_attribute, _chosen),
]


@pytest.mark.parametrize("fn", UNCERTAIN)
def test_what_runs_only_sometimes_is_no_write(fn: Callable[..., Any]) -> None:
    graph, compiled = co.make_fx(fn)(X), co.compile(fn)
    for values in (0.0, [3.0, 5.0]):
        with _kept(values):
            expected = fn(X)
            for call in (graph, compiled):
                np.testing.assert_array_equal(call(X), expected)


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_traced_values_are_not_stored_into_arrays_from_outside(mode: Any) -> None:
    """So a store into one is one of plain values, which no graph has."""

    def store(x: Any) -> Any:
        table[:] = x
        return x + table

    def fill(x: Any) -> Any:
        table.fill(x[0])
        return x + table

    def put(x: Any) -> Any:
        table.put(0, x[0])
        return x + table

    for fn in (store, fill, put):
        with pytest.raises(co.CustomOpError):
            co.make_fx(fn, mode)(X)
        with pytest.raises(co.CustomOpError):
            co.compile(fn)(X)
        assert not table.any()


# ---- random programs ----
# What they write are zeros, into an array of zeros. Whether one writes is seen by running it
# while the array holds other numbers.

_WRITES = """\
t[:] = 0.0|t[...] = 0.0|t[0] = 0.0|t[i] = 0.0|t.fill(0.0)|np.copyto(t, 0.0)|t *= 0.0
np.multiply(t, 0.0, out=t)|t[[0, 1]] = 0.0|t[::-1][0] = 0.0|t[t > -1.0] = 0.0|wipe(t)
box.wipe()|np.putmask(t, [True, False], 0.0)|np.add(0.0, 0.0, out=t)|(t[:1])[:] = 0.0
u = t; u[1:] = 0.0|np.put_along_axis(t, np.array([0]), 0.0, 0)|(lambda: t.fill(0.0))()
a, b = t, t; b[0] += 0.0 * b[1] - b[0]|t[0], q = 0.0, 1.0|[t.fill(v) for v in (0.0,)]
np.maximum(t * 0.0, 0.0, out=(t,))|np.cumsum([0.0, 0.0], out=t)|t[0:1], t[1] = [0.0], 0.0"""
_READS = """\
y = y + t|y = y * (1.0 + t.sum())|q = np.zeros(2); q[:] = 1.0|q = t.copy(); q[0] = 1.0
q = [1.0]; q[0] = 2.0|y = y + np.add(t, 1.0, out=np.empty(2))|q = {}; q["t"] = t
q = t + 1.0; q *= 2.0|y = y + sum(float(v) for v in t)|q = t[0]; q += 1.0|t.sum()"""
_AROUND = """\
if x.shape[0] == 2:|if x.shape[0] == 3:|for i in range(2):|for i in range(0):|try:
with np.errstate():|while i < 1:|def g(t=t, x=x, y=y, i=0):|if True:|for t in (t, t):"""
_AFTER = {"try:": "finally: i = 0", "while i < 1:": "    i += 1", "def g": "g()"}
_PLACES = (
    "table",
    "box.table",
    "held['t']",
    "held['l'][0]",
    "kept()",
    "box.inner.table",
)


def _parts(text: str) -> list[str]:
    return text.replace("\n", "|").split("|")


def _program(seed: int) -> tuple[str, dict[str, Any]]:
    """Make the text of a random function, and its names."""
    choose = random.Random(seed)
    lines = ["def run(x):", f"    t, y, i = {choose.choice(_PLACES)}, x, 0"]
    for _ in range(choose.randint(1, 4)):
        kinds = _WRITES if choose.random() < 0.4 else _READS
        body = [choose.choice(_parts(kinds))]
        for _ in range(choose.randint(0, 2)):
            around = choose.choice(_parts(_AROUND))
            after = [v for k, v in _AFTER.items() if around.startswith(k)]
            body = [around, *(f"    {line}" for line in body), *after]
        lines += [f"    {line}" for line in body]
    lines.append("    return y * 1.0")
    array = np.zeros(2)
    scope: dict[str, Any] = {"np": np, "table": array, "__name__": "plain"}
    scope["held"] = {"t": array, "l": [array]}
    helpers = (
        "def wipe(a): a[:] = 0.0\n"
        "def make(t):\n    def kept(): return t\n    return kept\n"
        "class Box:\n    def wipe(self): self.table[0] = self.table[1] = 0.0\n"
        "kept, box = make(table), Box()\nbox.inner = Box()\n"
        "box.table = box.inner.table = table\n"
    )
    text = "\n".join(lines)
    exec(compile(helpers + text, f"program {seed}", "exec", dont_inherit=True), scope)
    return text, scope


def check(seed: int) -> bool:
    """Compare what is refused with what a run writes; return whether that is something."""
    text, scope = _program(seed)
    fn, array = scope["run"], scope["table"]
    codes = {n: v.__code__ for n, v in scope.items() if isinstance(v, FunctionType)}
    expected = fn(X)
    assert not array.any(), text
    array[:] = 7.0, 3.0
    before = array.copy()
    with np.errstate(all="ignore"):
        fn(X)
    writes = not np.array_equal(array, before)
    array[:] = 0.0
    np.testing.assert_array_equal(co.make_fx(fn)(X)(X), expected, text)
    if writes:
        with pytest.raises(co.GraphError, match="do not depend on its arg"):
            co.compile(fn)(X)
    else:
        np.testing.assert_array_equal(co.compile(fn)(X), expected, text)
    assert not array.any(), text
    assert all(scope[name].__code__ is code for name, code in codes.items()), text
    return writes


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_random_programs() -> None:
    found = [check(seed) for seed in range(400)]
    assert 100 < sum(found) < 300
