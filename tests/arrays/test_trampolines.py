"""Copies of code with hooks do what the code does, on each version of Python."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from customop.arrays.trampolines import (
    IS_KNOWN,
    Hook,
    hooked,
    is_hooked,
    noting,
    without_notes,
)

pytestmark = pytest.mark.skipif(not IS_KNOWN, reason="this Python's code is not known")


class Counts:
    """Hooks that count and do nothing else."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.gets = self.puts = self.grows = 0

    def call(self, f: Any) -> Any:
        self.seen.append(f)
        return f

    def get(self, c: Any, key: Any) -> Any:
        self.gets += 1
        return c[key]

    def put(self, value: Any, c: Any, key: Any) -> Any:
        self.puts += 1
        c[key] = value
        return c

    def grow(self, c: Any, value: Any, *holders: Any) -> Any:
        self.grows += 1
        return value, c

    def copy(self, code: CodeType) -> CodeType:
        call, get, put = Hook(self.call), Hook(self.get), Hook(self.put)
        return hooked(code, call, get, put, Hook(self.grow))


def copied(fn: Any, counts: Counts) -> Any:
    made = FunctionType(
        counts.copy(fn.__code__),
        fn.__globals__,
        fn.__name__,
        fn.__defaults__,
        fn.__closure__,
    )
    made.__kwdefaults__ = fn.__kwdefaults__
    return made


# ---- modules of the standard library ----


def _difflib(m: Any) -> Any:
    a = [f"line {i * 7 % 13}" for i in range(40)]
    b = [f"line {i * 5 % 11}" for i in range(40)]
    near = m.get_close_matches("appel", ["ape", "apple", "peach"])
    return [*m.unified_diff(a, b)], near, [*m.ndiff(a[:9], b[:9])]


def _configparser(m: Any) -> Any:
    parser = m.ConfigParser()
    parser.read_string("[a]\nx=1\ny=%(x)s2\n[b]\nz=3")
    try:
        parser.get("a", "nope")
    except m.NoOptionError as error:
        return [dict(parser[s]) for s in parser.sections()], str(error)
    return None


def _argparse(m: Any) -> Any:
    parser = m.ArgumentParser(prog="p")
    parser.add_argument("--n", type=int, default=3)
    parser.add_argument("f", nargs="*")
    return vars(parser.parse_args(["--n", "4", "a", "b"])), parser.format_help()


USES: dict[str, Callable[[Any], Any]] = {
    "difflib": _difflib,
    "configparser": _configparser,
    "argparse": _argparse,
    "textwrap": lambda m: m.fill("word " * 50, 33) + m.dedent("  a\n   b\n"),
    "statistics": lambda m: (m.stdev([1, 2, 3.5, 9]), m.quantiles([1, 2, 4, 8, 9])),
    "fractions": lambda m: str(m.Fraction(3, 7) ** 3 + m.Fraction("1/3")),
    "calendar": lambda m: (m.month(2024, 2), m.monthrange(2024, 2)[1]),
    "string": lambda m: m.Formatter().format("{0[a]} {1}", {"a": 1}, 2),
    "random": lambda m: [m.Random(1).sample(range(99), 5), m.Random(2).gauss(0, 1)],
    "json.encoder": lambda m: m.JSONEncoder(indent=1).encode({"a": [1, {"b": True}]}),
    "json.decoder": lambda m: m.JSONDecoder().decode('{"a": [1, {"b": "x"}], "c": 2.5}'),
    "heapq": lambda m: [*m.merge([1, 4], [2, 3]), *m.nlargest(2, [3, 1, 2])],
    "collections": lambda m: (m.Counter("abca").most_common(1), m.ChainMap({1: 2})[1]),
    "tokenize": lambda m: [
        t.string
        for t in m.generate_tokens(iter(["x = f(1)\n", "if x: y\n"]).__next__)
    ],
    "ast": lambda m: m.unparse(m.parse("def f(a, *b, c=1): return [x[0] for x in b]")),
    "shlex": lambda m: m.split("a 'b c' --d=\"e f\""),
    "bisect": lambda m: m.bisect([1, 3, 5], 4),
}  # fmt: skip


def fresh(name: str) -> ModuleType:
    """Load a module once more, apart from that of the program."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
    return module


def functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions and methods of a module."""
    for value in [*vars(module).values()]:
        if getattr(value, "__module__", None) != module.__name__:
            continue
        for member in [value, *getattr(value, "__dict__", {}).values()]:
            inner = getattr(member, "__func__", member)
            inner = getattr(inner, "fget", inner)
            if isinstance(inner, FunctionType):
                yield inner


@pytest.mark.parametrize("name", USES)
def test_a_module_of_the_standard_library(name: str) -> None:
    """All its functions with hooks give what they give without."""
    module = fresh(name)
    expected = USES[name](module)
    counts = Counts()
    for fn in functions(module):
        fn.__code__ = counts.copy(fn.__code__)
        assert is_hooked(fn.__code__)
    assert repr(USES[name](module)) == repr(expected)
    assert counts.seen or name in ("bisect", "heapq")


# Parts of NumPy that are Python, as modules that write arrays.
NUMPYS: dict[str, Callable[[Any], Any]] = {
    "numpy.lib._function_base_impl": lambda m: (
        m.trim_zeros(np.array([0.0, 1.0, 0.0])),
        m.gradient(np.arange(5.0) ** 2, 2.0),
        m.median(np.arange(6.0).reshape(2, 3), axis=1),
        m.percentile(np.arange(6.0), [10, 90], out=np.zeros(2)),
        m.insert(np.arange(4), [1, 2], 9),
        m.unwrap(np.arange(4.0) * 3),
    ),
    "numpy.lib._arraypad_impl": lambda m: m.pad(np.arange(4.0), 2, "linear_ramp"),
    "numpy.lib._nanfunctions_impl": lambda m: (
        m.nanmedian(np.array([[1.0, np.nan], [2.0, 3.0]]), axis=0),
        m.nanvar(np.array([1.0, np.nan, 3.0]), out=np.zeros(())),
    ),
}


@pytest.mark.parametrize("name", [*USES, *NUMPYS])
def test_a_module_that_tells_what_it_stores_into(name: str) -> None:
    module = fresh(name)
    use = (USES | NUMPYS)[name]
    expected = use(module)
    seen: list[Any] = []
    note = Hook(seen.append)
    ask = Hook(lambda asked: None)
    codes = [(fn, fn.__code__) for fn in functions(module)]
    for fn, code in codes:
        fn.__code__ = noting(code, note, ask)
        assert without_notes(fn.__code__) is code
    assert repr(use(module)) == repr(expected)
    arrays = [stored for stored in seen if isinstance(stored[0], np.ndarray)]
    assert arrays or name not in NUMPYS
    assert all(len(stored) >= 2 for stored in seen)


# ---- which operations are hooked ----


def test_calls_that_are_hooked() -> None:
    """Calls of names, attributes, methods, local functions and computed ones."""

    def fn(local: Any, table: Any) -> Any:
        def inner() -> Any:
            return local([1])

        one_of, two_of = abs, -1
        one = len([1]) + abs(local([2, 3])) * pow(one_of(two_of), 1)
        two = sys.intern("a") + str.join("b", ["c", local([2]) * "d"])
        three = table["sum"]([1, 2]) + table["both"](max)([3, 4])
        four = sys.modules["sys"].intern(*("e",)) + two.join(*([["f"]]))
        return one, two, three, four, inner()

    def both(f: Any) -> Any:
        return f

    counts = Counts()
    given = len, {"sum": sum, "both": both}
    assert copied(fn, counts)(*given) == fn(*given)
    names = [getattr(f, "__name__", "") for f in counts.seen]
    wanted = [
        "len",
        "abs",
        "len",
        "pow",
        "abs",
        "intern",
        "join",
        "len",
        "sum",
        "both",
        "max",
    ]
    # Calls with a star, and the local function.
    wanted += ["intern", "join", "inner", "len"]
    assert names == wanted


def test_only_what_is_called_is_hooked() -> None:
    """A container or object from which a function is taken is not called."""

    def fn(table: Any, which: bool) -> Any:
        first = table.inner[0 if which else 1](2 if which else 3)
        second = TABLE["a" if which else "b"](4, *[5] if which else [6])
        return first, second, table.inner[1](abs(-1 if which else 1))

    table = SimpleNamespace(inner=[float, complex])
    for which in (True, False):
        counts = Counts()
        assert copied(fn, counts)(table, which) == fn(table, which)
        assert all(map(callable, counts.seen))
        one, other = (float, max) if which else (complex, min)
        assert counts.seen == [one, other, complex, abs]


TABLE = {"a": max, "b": min}


def test_writes_that_are_hooked() -> None:
    """The hook's result is the new value of the local variable."""

    def fn(n: int) -> Any:
        out = [0] * n
        named: dict[Any, Any] = {}
        for i in range(n):
            out[i] = i * 2
            named["k", i + 1] = out[i - 1 if i else 0]

        def inner() -> Any:
            return out

        out[1:3] = [7, 8]
        return out, sorted(named.items()), inner() is out

    counts = Counts()
    assert copied(fn, counts)(6) == fn(6)
    assert counts.puts >= 6

    class Replacing(Counts):
        def put(self, value: Any, c: Any, key: Any) -> Any:
            new = type(c)(c)
            new[key] = value
            return new

    assert copied(fn, Replacing())(6) == fn(6)


def test_operators_in_place_that_are_hooked() -> None:
    """Those of local variables and of items; the hook sees what holds an item."""
    total = 0

    def fn(n: int, obj: Any) -> Any:
        nonlocal total
        out, k, text = [1, 2, 3, 4], 1, "a"
        out += [5, 6]
        out[k] += n
        out[1:3] += [7]
        out[-n:] += (8,)
        text += "b"
        total += n
        obj.value += n
        k += n or 2
        return out, k, text, obj.value

    expected = fn(2, SimpleNamespace(value=1))
    holders: list[Any] = []

    class Seeing(Counts):
        def grow(self, c: Any, value: Any, *given: Any) -> Any:
            holders.append([type(one) for one in given])
            return super().grow(c, value, *given)

    counts = Seeing()
    assert copied(fn, counts)(2, SimpleNamespace(value=1)) == expected
    assert total == 4
    # Not the variable of the outer function, the attribute, or the value with a branch.
    assert holders == [[], [list], [list], [list], []]
    assert counts.puts == 3

    class Replacing(Counts):
        def grow(self, c: Any, value: Any, *given: Any) -> Any:
            return value, type(c)(c)

        def put(self, value: Any, c: Any, key: Any) -> Any:
            new = type(c)(c)
            new[key] = value
            return new

    total = 0
    assert copied(fn, Replacing())(2, SimpleNamespace(value=1)) == expected


def test_writes_of_slices_that_are_hooked() -> None:
    """Their ends may be names, numbers, or computed."""

    def fn(out: Any, n: int, ends: Any) -> Any:
        out[n:] = [1]
        out[:2] = out[1:3]
        out[n - 1 : n + 1] = [n]
        out[len(out) :] = [2]
        out[ends[0] : ends[1]] = [3]
        out[n or 1 :] = [4]
        return out

    counts = Counts()
    assert copied(fn, counts)([5, 6, 7], 2, [0, 1]) == fn([5, 6, 7], 2, [0, 1])
    # On 3.12 and later a slice whose end is an item or has a branch is not hooked.
    assert counts.puts >= 4


def test_errors_keep_their_places() -> None:
    """Lines and columns of a traceback are those of the source; handlers run."""

    def fn(d: Any) -> Any:
        try:
            return d["a"]["b"]
        except TypeError:
            return [1, 2][d["x"](5)]

    places = []
    for run in (fn, copied(fn, Counts())):
        with pytest.raises(IndexError) as caught:
            run({"a": 3, "x": int})
        frame = traceback.extract_tb(caught.value.__traceback__)[1]
        places.append((frame.lineno, frame.line, frame.colno, frame.end_colno))
    assert places[0] == places[1]


def test_generators_and_long_code() -> None:
    """Extended arguments and many stubs do not move anything."""
    lines = [f"    a{i} = f(x[{i % 3}]) + g.get({i}, {i})" for i in range(400)]
    total = " + ".join([f"a{i}" for i in range(400)])
    source = "def fn(f, g, x):\n" + "\n".join(lines) + f"\n    yield {total}\n"
    names: dict[str, Any] = {}
    exec(source, names)
    fn, counts = names["fn"], Counts()
    assert [*copied(fn, counts)(abs, {1: 5}, [1, 2, 3])] == [
        *fn(abs, {1: 5}, [1, 2, 3])
    ]
    assert len(counts.seen) == 800


def test_coroutines() -> None:
    async def item(x: Any) -> Any:
        return x[0]

    async def fn(x: Any) -> Any:
        return await item(x) + sum([v async for v in items(x)])

    async def items(x: Any) -> AsyncIterator[Any]:
        for v in x:
            yield abs(v)

    def run(coroutine: Any) -> Any:
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value
        raise AssertionError

    assert run(copied(fn, Counts())([1, -2])) == run(fn([1, -2])) == 4
