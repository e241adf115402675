"""Kinds of state that compiled functions read, each changed between two calls."""

from __future__ import annotations

import builtins
import decimal
import gc
import io
import locale
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.compiling.state_in_c import KINDS_IN_C
from tests.compiling.state_kinds import MORE_KINDS, REFUSED_KINDS
from tests.compiling.state_of_libraries import (
    KINDS_OF_LIBRARIES,
    REFUSED_OF_LIBRARIES,
    SETTERS,
    WRITERS,
)

X = np.array([0.5, -1.0, 2.0])

# Name -> what is there before, the function, and what changes between the calls. Each is
# run in a module of its own.
KINDS: dict[str, tuple[str, str, str]] = {
    # ---- names that are added later ----
    "getattr with a default": (
        "class M: pass\nm = M()",
        "return x * getattr(m, 'k', 1.0)",
        "m.k = 3.0",
    ),
    "getattr with a default, on the class": (
        "class M: pass\nm = M()",
        "return x * getattr(m, 'k', 1.0)",
        "M.k = 3.0",
    ),
    "getattr with a default, on a module": (
        "from state_kinds_module import m",
        "return x * getattr(m, 'k', 1.0)",
        "m.k = 3.0",
    ),
    "hasattr": (
        "class M: pass\nm = M()",
        "return x * (3.0 if hasattr(m, 'k') else 1.0)",
        "m.k = 3.0",
    ),
    "hasattr, removed": (
        "class M: pass\nm = M(); m.k = 1.0",
        "return x * (3.0 if hasattr(m, 'k') else 1.0)",
        "del m.k",
    ),
    "except AttributeError": (
        "class M: pass\nm = M()",
        "try:\n    return x * m.k\nexcept AttributeError:\n    return x",
        "m.k = 3.0",
    ),
    "except AttributeError of another function": (
        "class M: pass\nm = M()\ndef read(x): return x * m.k",
        "try:\n    return read(x)\nexcept AttributeError:\n    return x",
        "m.k = 3.0",
    ),
    "bare except": (
        "class M: pass\nm = M()",
        "try:\n    return x * m.k\nexcept:\n    return x",
        "m.k = 3.0",
    ),
    "suppress": (
        "from contextlib import suppress\nclass M: pass\nm = M()",
        "k = 1.0\nwith suppress(AttributeError):\n    k = m.k\nreturn x * k",
        "m.k = 3.0",
    ),
    "in vars": (
        "class M: pass\nm = M()",
        "return x * (3.0 if 'k' in vars(m) else 1.0)",
        "m.k = 3.0",
    ),
    "in __dict__": (
        "class M: pass\nm = M()",
        "return x * (3.0 if 'k' in m.__dict__ else 1.0)",
        "m.k = 3.0",
    ),
    "SimpleNamespace": (
        "from types import SimpleNamespace\nm = SimpleNamespace()",
        "return x * getattr(m, 'k', 1.0)",
        "m.k = 3.0",
    ),
    "a slot that is empty": (
        "class M: __slots__ = ('k',)\nm = M()",
        "return x * getattr(m, 'k', 1.0)",
        "m.k = 3.0",
    ),
    "__getattr__": (
        "class M:\n  def __getattr__(self, name): return 1.0\nm = M()",
        "return x * m.k",
        "m.k = 3.0",
    ),
    "a subclass that begins to shadow": (
        "class A: k = 1.0\nclass B(A): pass\nm = B()",
        "return x * m.k",
        "B.k = 3.0",
    ),
    "a subclass that begins to shadow a method": (
        "class A:\n  def k(self): return 1.0\nclass B(A): pass\nm = B()",
        "return x * m.k()",
        "B.k = lambda self: 3.0",
    ),
    "an object that begins to shadow a method": (
        "class A:\n  def k(self): return 1.0\nm = A()",
        "return x * m.k()",
        "m.k = lambda: 3.0",
    ),
    "an object that begins to shadow": (
        "class A: k = 1.0\nm = A()",
        "return x * m.k",
        "m.k = 3.0",
    ),
    "a global defined later": (
        "",
        "try:\n    return x * K\nexcept NameError:\n    return x",
        "K = 3.0",
    ),
    "a builtin that a global hides": (
        "",
        "return x * abs(-1.0)",
        "abs = lambda v: 3.0",
    ),
    "setdefault": (
        "D = {}",
        "return x * D.setdefault('k', 1.0)",
        "D['k'] = 3.0",
    ),
    "setdefault of a dict of an object": (
        "class M:\n  def __init__(self): self.d = {}\nm = M()",
        "return x * m.d.setdefault('k', 1.0)",
        "m.d['k'] = 3.0",
    ),
    "defaultdict": (
        "from collections import defaultdict\nD = defaultdict(lambda: 1.0)",
        "return x * D['k']",
        "D['k'] = 3.0",
    ),
    "a memo": (
        "D = {}",
        "if 'k' not in D:\n    D['k'] = 1.0\nreturn x * D['k']",
        "D['k'] = 3.0",
    ),
    "a list that is filled once": (
        "L = []",
        "if not L:\n    L.append(1.0)\nreturn x * L[0]",
        "L[0] = 3.0",
    ),
    "a set": (
        "S = set()",
        "return x * (3.0 if 'k' in S else 1.0)",
        "S.add('k')",
    ),
    # ---- functions ----
    "function attribute": (
        "def f(x): return x * f.k\nf.k = 1.0",
        "return f(x)",
        "f.k = 3.0",
    ),
    "function attribute of a helper": (
        "def g(): pass\ng.k = 1.0",
        "return x * g.k",
        "g.k = 3.0",
    ),
    "function attribute added later": (
        "def g(): pass",
        "return x * getattr(g, 'k', 1.0)",
        "g.k = 3.0",
    ),
    "defaults of a helper": (
        "def g(x, k=1.0): return x * k",
        "return g(x)",
        "g.__defaults__ = (3.0,)",
    ),
    "keyword defaults of a helper": (
        "def g(x, *, k=1.0): return x * k",
        "return g(x)",
        "g.__kwdefaults__ = {'k': 3.0}",
    ),
    "an item of the keyword defaults": (
        "def g(x, *, k=1.0): return x * k",
        "return g(x)",
        "g.__kwdefaults__['k'] = 3.0",
    ),
    "defaults of a method": (
        "class M:\n  def g(self, x, k=1.0): return x * k\nm = M()",
        "return m.g(x)",
        "M.g.__defaults__ = (3.0,)",
    ),
    "code of a helper": (
        "def g(x): return x\ndef h(x): return x * 3.0",
        "return g(x)",
        "g.__code__ = h.__code__",
    ),
    "a cell": (
        (
            "def make():\n  k = 1.0\n  def get(): return k\n  def put(v):\n"
            "    nonlocal k\n    k = v\n  return get, put\nget, put = make()"
        ),
        "return x * get()",
        "put(3.0)",
    ),
    "a bound method of a dict": (
        "D = {'k': 1.0}\nget = D.get",
        "return x * get('k')",
        "D['k'] = 3.0",
    ),
    "lru_cache": (
        "from functools import lru_cache\nk = 1.0\n@lru_cache\ndef get(): return k",
        "return x * get()",
        "k = 3.0; get.cache_clear()",
    ),
    "wraps": (
        (
            "from functools import wraps\nk = 1.0\ndef inner(): return k\n"
            "@wraps(inner)\ndef get(): return inner()"
        ),
        "return x * get()",
        "k = 3.0",
    ),
    "partial of a partial": (
        (
            "from functools import partial\nd = {'k': 1.0}\n"
            "get = partial(partial(lambda d, n: d[n], d), 'k')"
        ),
        "return x * get()",
        "d['k'] = 3.0",
    ),
    "__call__ of a class": (
        "class M:\n  def __call__(self): return 1.0\nm = M()",
        "return x * m()",
        "M.__call__ = lambda self: 3.0",
    ),
    # ---- names as texts ----
    "globals": ("k = 1.0", "return x * globals()['k']", "k = 3.0"),
    "globals with a default": (
        "",
        "return x * globals().get('k', 1.0)",
        "k = 3.0",
    ),
    "eval": ("k = 1.0", "return x * eval('k * 2')", "k = 3.0"),
    "exec": (
        "k = 1.0",
        "d = {}\nexec('j = k', globals(), d)\nreturn x * d['j']",
        "k = 3.0",
    ),
    "sys.modules": (
        "import sys, state_kinds_module as m\nm.k = 1.0",
        "return x * sys.modules['state_kinds_module'].k",
        "m.k = 3.0",
    ),
    "import_module": (
        "from importlib import import_module\nimport state_kinds_module as m\nm.k = 1.0",
        "return x * import_module('state_kinds_module').k",
        "m.k = 3.0",
    ),
    "import": (
        "import state_kinds_module as m\nm.k = 1.0",
        "from state_kinds_module import k\nreturn x * k",
        "m.k = 3.0",
    ),
    # ---- classes ----
    "a class attribute": ("class M: k = 1.0", "return x * M.k", "M.k = 3.0"),
    "an inherited class attribute": (
        "class A: k = 1.0\nclass M(A): pass",
        "return x * M.k",
        "A.k = 3.0",
    ),
    "a class that shadows its base": (
        "class A: k = 1.0\nclass M(A): pass",
        "return x * M.k",
        "M.k = 3.0",
    ),
    "a property of a metaclass": (
        (
            "k = 1.0\nclass T(type):\n  @property\n  def k(cls): return k\n"
            "class M(metaclass=T): pass"
        ),
        "return x * M.k",
        "k = 3.0",
    ),
    "an attribute of a metaclass": (
        "class T(type): k = 1.0\nclass M(metaclass=T): pass",
        "return x * M.k",
        "T.k = 3.0",
    ),
    "a property": (
        "k = 1.0\nclass M:\n  @property\n  def k(self): return k\nm = M()",
        "return x * m.k",
        "k = 3.0",
    ),
    "a property that is replaced": (
        "class M:\n  @property\n  def k(self): return 1.0\nm = M()",
        "return x * m.k",
        "M.k = property(lambda self: 3.0)",
    ),
    "a cached property": (
        (
            "from functools import cached_property\nk = 1.0\nclass M:\n"
            "  @cached_property\n  def k(self): return k\nm = M()"
        ),
        "return x * m.k",
        "k = 3.0; m.__dict__.pop('k', None)",
    ),
    "a descriptor": (
        (
            "class D:\n  k = 1.0\n  def __get__(self, o, t): return self.k\nclass M: k = D()"
            "\nm = M()"
        ),
        "return x * m.k",
        "D.k = 3.0",
    ),
    "classmethod": (
        "class M:\n  v = 1.0\n  @classmethod\n  def k(cls): return cls.v",
        "return x * M.k()",
        "M.v = 3.0",
    ),
    "super": (
        (
            "class A:\n  v = 1.0\n  def k(self): return self.v\n"
            "class B(A):\n  def k(self): return super().k()\nm = B()"
        ),
        "return x * m.k()",
        "A.v = 3.0",
    ),
    "a dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass M: k: float = 1.0\nm = M()",
        "return x * m.k",
        "m.k = 3.0",
    ),
    "an Enum member's attribute": (
        "import enum\nclass E(enum.Enum):\n  A = 1\nE.A.k = 1.0",
        "return x * E.A.k",
        "E.A.k = 3.0",
    ),
}


@pytest.fixture(autouse=True)
def _a_module_of_a_user() -> Iterator[None]:
    module: Any = types.ModuleType("state_kinds_module")
    module.m = types.ModuleType("state_kinds_other")
    before = {**vars(builtins)}
    sys.modules[module.__name__] = module
    yield
    del sys.modules[module.__name__]
    for name in vars(builtins).keys() - before.keys():
        delattr(builtins, name)


def made(before: str, body: str, scope: dict[str, Any]) -> Callable[[Any], Any]:
    """The function `f` of a program; one that `before` defines itself counts, too."""
    exec(compile(before, "state", "exec", dont_inherit=True), scope)
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    exec(f"def run(x):\n{lines}", scope)
    found: Callable[[Any], Any] = scope["run"]
    return found


@pytest.mark.parametrize("has_name", [True, False], ids=["named", "nameless"])
@pytest.mark.parametrize("name", KINDS)
def test_a_change_is_noticed_or_refused(name: str, has_name: bool) -> None:
    _notices(name, *KINDS[name], has_name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("has_name", [True, False], ids=["named", "nameless"])
@pytest.mark.parametrize("name", MORE_KINDS)
def test_further_changes_are_noticed(name: str, has_name: bool) -> None:
    _notices(name, *MORE_KINDS[name], has_name)


@pytest.mark.parametrize("name", KINDS_IN_C)
def test_changes_of_objects_written_in_c_are_noticed(name: str) -> None:
    _notices(name, *KINDS_IN_C[name], has_name=True)


@pytest.mark.parametrize("name", REFUSED_KINDS)
def test_what_may_read_anything_or_is_used_up_is_refused(name: str) -> None:
    fn = made(*REFUSED_KINDS[name], {"__name__": "state_kinds"})
    with pytest.raises(co.GraphError, match=r"may read any name|the same items again"):
        co.compile(fn)(X)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of its own, and the settings as they were afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    size, limit, is_on = np.getbufsize(), sys.getrecursionlimit(), gc.isenabled()
    letters = locale.setlocale(locale.LC_CTYPE)
    with (
        decimal.localcontext(),
        np.printoptions(),
        warnings.catch_warnings(action="ignore", category=ResourceWarning),
    ):
        yield
    locale.setlocale(locale.LC_CTYPE, letters)
    np.setbufsize(size)
    sys.setrecursionlimit(limit)
    (gc.enable if is_on else gc.disable)()


@pytest.mark.parametrize("name", KINDS_OF_LIBRARIES)
@pytest.mark.usefixtures("settings")
def test_changes_of_files_and_settings_are_noticed(name: str) -> None:
    _notices(name, *KINDS_OF_LIBRARIES[name], has_name=True)


@pytest.mark.parametrize("name", REFUSED_OF_LIBRARIES)
@pytest.mark.usefixtures("settings")
def test_what_a_capture_reads_otherwise_is_refused(name: str) -> None:
    with _closed({"__name__": "state_kinds"}) as scope:
        fast = co.compile(made(*REFUSED_OF_LIBRARIES[name], scope))
        with pytest.raises(
            co.GraphError, match=r"constants of its|other settings|same bytes"
        ):
            fast(X)


@pytest.mark.parametrize("name", SETTERS)
@pytest.mark.usefixtures("settings")
def test_settings_before_are_refused_where_they_are_read(name: str) -> None:
    body, is_read = SETTERS[name]
    fast = co.compile(made("import numpy as np", body, {"__name__": "state_kinds"}))
    if is_read:
        with pytest.raises(co.GraphError, match=r"np\.seterr\(\).* other settings"):
            fast(X)
    else:
        assert np.array_equal(fast(X), 2.0 * X)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.usefixtures("settings")
def test_files_that_are_written_are_allowed(name: str) -> None:
    with _closed({"__name__": "state_kinds"}) as scope:
        fast = co.compile(made(*WRITERS[name], scope))
        assert np.array_equal(fast(X), 2.0 * X)
        assert np.array_equal(fast(X), 2.0 * X)
        assert len(fast.graphs) == 1


CLOCKS = {
    "time": ("import time", "t = time.time()\nreturn x * 2.0"),
    "perf_counter": (
        "from time import perf_counter as clock",
        "t = clock()\nreturn x * 2.0",
    ),
    "perf_counter by its name": (
        "from time import perf_counter",
        "t = perf_counter()\nreturn x * 2.0",
    ),
    "of a helper": (
        "import time\ndef g():\n  return time.monotonic_ns()",
        "g()\nreturn x * 2.0",
    ),
    "datetime": (
        "from datetime import datetime",
        "t = datetime.now()\nreturn x * 2.0",
    ),
    "date": ("import datetime", "t = datetime.date.today()\nreturn x * 2.0"),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_question_for_the_time_is_told_once(name: str) -> None:
    before, body = CLOCKS[name]
    scope: dict[str, Any] = {"__name__": "state_kinds"}
    exec(compile(before, f"clocks of {name}", "exec", dont_inherit=True), scope)
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = compile(f"def run(x):\n{lines}", f"clock of {name}", "exec")
    exec(text, scope)
    with pytest.warns(
        co.CustomOpWarning, match=f"for the time at clocks? of {name}:[23]"
    ):
        co.compile(scope["run"])(X)
    assert np.array_equal(co.compile(scope["run"])(X), 2.0 * X)


def test_modules_that_tell_the_time_may_be_used_otherwise() -> None:
    scope: dict[str, Any] = {"__name__": "state_kinds"}
    fn = made(
        "import time, datetime\nd = datetime.date(2000, 1, 2)",
        "time.sleep(0)\nreturn x * d.day",
        scope,
    )
    assert np.array_equal(co.compile(fn)(X), 2.0 * X)


@contextmanager
def _closed(scope: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A scope whose files are closed at the end."""
    with ExitStack() as stack:
        yield scope
        for value in scope.values():
            if isinstance(value, io.IOBase):
                stack.enter_context(value)


def _notices(name: str, before: str, body: str, change: str, has_name: bool) -> None:
    scope: dict[str, Any] = {"__name__": "state_kinds"} if has_name else {}
    fn = made(before, body, scope)
    fast = co.compile(fn)
    if name in ("eval", "exec"):
        with pytest.raises(
            co.GraphError, match=r"uses (eval|exec)\(\), which may read"
        ):
            fast(X)
        return
    first = fast(X)
    assert np.array_equal(first, fn(X))
    assert np.array_equal(fast(X), first)
    exec(change, scope)
    assert not np.array_equal(fn(X), first), "the change changes nothing"
    assert np.array_equal(fast(X), fn(X))
    count = len(fast.graphs)
    assert np.array_equal(fast(X), fn(X))
    assert len(fast.graphs) == count, "it was compiled again without a change"


# ---- arrays of other libraries ----


class _Table:
    """As an array of another library: NumPy converts it."""

    __module__ = "pandas.pretended"

    def __init__(self, *values: float) -> None:
        self.values = [*values]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.values, dtype)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    pretended = types.ModuleType("pandas")
    pretended.__file__ = "/lib/site-packages/pandas/__init__.py"
    monkeypatch.setitem(sys.modules, "pandas", pretended)
    return _Table(1.0, 2.0, 3.0)


def _scaled(x: Any, by: Any) -> Any:
    return x * np.asarray(by).sum()


def test_an_array_of_another_library_is_refused(table: Any) -> None:
    """Nobody sees when its numbers change."""
    with pytest.raises(
        co.GraphError, match="'_scaled' uses by, a _Table, whose numbers"
    ):
        co.compile(_scaled)(X, table)
    with pytest.raises(co.GraphError, match="make_fx: argument by is a _Table, whose"):
        co.make_fx(_scaled)(X, table)
    with pytest.raises(co.GraphError, match=r"uses 'table' of the closure .* a _Table"):
        co.compile(lambda x: _scaled(x, table))(X)


@pytest.mark.parametrize("use", ["itself", "grad", "vmap", "jvp"])
def test_with_an_array_of_another_library_the_function_runs(
    use: str, table: Any
) -> None:
    run = _USES[use](co.compile(lambda x: _scaled(x, table), fallback=True))
    eager = _USES[use](lambda x: _scaled(x, table))
    for value in (9.0, 4.0):
        table.values[0] = value
        np.testing.assert_array_equal(run(X), eager(X))


# ---- random programs ----

# How the main function reaches the others.
_WAYS: dict[str, Callable[[list[Any]], Callable[[Any], Any]]] = {
    "closure": lambda fns: lambda x: sum(fn(x) for fn in fns),
    "attributes": lambda fns: _sum_of(
        types.SimpleNamespace(first=fns[0], rest=fns[1:])
    ),
    "dict": lambda fns: _items_of(dict(enumerate(fns))),
    "nested": lambda fns: _nested(fns),
}
_USES: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "itself": lambda fn: fn,
    "grad": lambda fn: co.grad(lambda x: np.sum(fn(x))),
    "vmap": lambda fn: lambda x: co.vmap(fn)(np.stack([x, x + 1.0])),
    "jvp": lambda fn: lambda x: co.jvp(fn, (x,), (x,)),
}


def _sum_of(held: Any) -> Callable[[Any], Any]:
    return lambda x: held.first(x) + sum(fn(x) for fn in held.rest)


def _items_of(held: dict[int, Any]) -> Callable[[Any], Any]:
    return lambda x: sum(held[i](x) for i in range(len(held)))


def _nested(fns: list[Any]) -> Callable[[Any], Any]:
    first, rest = fns[0], fns[1:]
    if not rest:
        return lambda x: first(x)
    inner = _nested(rest)
    return lambda x: first(x) + inner(x)


def check(seed: int) -> None:
    """Change the states of a program one after the other; compare with the function."""
    choose = Random(seed)
    of_users = {**KINDS, **MORE_KINDS}
    kinds = {**of_users, **KINDS_IN_C, **KINDS_OF_LIBRARIES}
    names = choose.sample([n for n in kinds if n not in ("eval", "exec")], 3)
    if any("module" in kinds[name][0] for name in names[1:]):
        names = names[:1]  # one module for all
    if "present folder" in names:  # the files of the others are not there
        names = ["present folder"]
    are_named = [n not in of_users or choose.random() < 0.8 for n in names]
    scopes: list[dict[str, Any]] = [
        {"__name__": "state_kinds"} if is_named else {} for is_named in are_named
    ]
    pairs = zip(names, scopes, strict=True)
    fns = [made(*kinds[name][:2], scope) for name, scope in pairs]
    way, use = choose.choice([*_WAYS]), choose.choice([*_USES])
    text = f"{seed}: {names} / {way} / {use}"
    main = _WAYS[way](fns)
    # Two that share the state: what one captures may fill what the other reads.
    fast = [_USES[use](co.compile(main)) for _ in range(2)]
    eager = _USES[use](main)
    order = choose.sample(range(len(names)), len(names))
    for i in (None, *order):
        if i is not None:
            exec(kinds[names[i]][2], scopes[i])
        for run in (*fast, *fast):
            found, expected = run(X), eager(X)
            assert np.array_equal(np.asarray(found), np.asarray(expected)), text


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(0, 60, 12))
@pytest.mark.usefixtures("settings")
def test_random_programs(seed: int) -> None:
    for number in range(seed, seed + 12):
        check(number)
