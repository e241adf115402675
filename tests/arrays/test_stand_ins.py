"""Programs of plain NumPy code, as they are, in the copies that `traceable` runs."""

from __future__ import annotations

import functools
import math
import operator
import pickle
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays import stand_ins

X = np.array([1.1, 2.6, 3.1])
TABLE = np.arange(10.0) ** 2
A = np.arange(9.0).reshape(3, 3)


class Model:
    """An object with methods that plain code calls."""

    __scale = 2.0

    def __init__(self, w: Any) -> None:
        self.w = np.asarray(w)

    def loss(self, x: Any) -> Any:
        return np.sum(self.inner(np.array([x[0], x[1]]))) * self.__scale

    def inner(self, v: Any) -> Any:
        return np.asarray(v) ** 2 * self.w[0]

    def __call__(self, *args: Any) -> Any:
        return self.loss(*args)


class Steeper(Model):
    def loss(self, x: Any) -> Any:
        return super().loss(x) + np.sum(np.array([x[1]]))


def doubled(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return 2.0 * fn(*args, **kwargs)

    return call


@doubled
def decorated(x: Any, *, k: float = 1.0) -> Any:
    return np.sum(np.array([x[0], k]))


def halved(v: Any) -> Any:
    return np.array([v, v]).sum() / 4.0


def recursive(x: Any, n: int = 3) -> Any:
    return np.array([x[0]]) if n == 0 else recursive(x, n - 1) * x[1]


def table_of_integers(x: Any) -> Any:
    i = (x * 2.0).astype(int)
    return np.sum(TABLE[i] * x)


def filled(x: Any) -> Any:
    out = np.zeros((2, 3))
    out[0] = x
    out[1, :] = x**2
    out[1, 1:] += x[0]
    out *= 2.0
    return np.sum(out**2)


def filled_copy(x: Any) -> Any:
    out = TABLE + 1.0
    for i in range(3):
        out[i] = x[i] ** 2
    return np.sum(out[:4] * TABLE[:4])


def summed(x: Any) -> Any:
    total = TABLE[:3] + 1.0
    total *= x
    for i in range(2):
        total += x**i
    return np.sum(total**2)


def filled_slices(x: Any) -> Any:
    out, n = TABLE + 0.0, 4
    out[1:3] = x[:2]
    out[:3] += x
    out[n:] = x[0]
    out[n + 1 :] *= x[1]
    return np.sum(out**2)


def summed_items(x: Any) -> Any:
    out, rows, i = TABLE + 0.0, A + 1.0, 2
    out[i] += x[0]
    out[[3, 4]] *= x[1]
    rows[1] += x
    rows[:2, 0] /= x[:2]
    held = [TABLE[:3] * 1.0]
    held[0] += x
    return np.sum(out**2) + np.sum(rows**2) + np.sum(held[0])


def rounded(x: Any) -> Any:
    return (
        x[0] * TABLE[math.floor(x[1])]
        + x[1] * TABLE[-math.ceil(x[2])]
        + math.trunc(x[0])
    )


def filled_in_a_closure(x: Any) -> Any:
    out = TABLE + 1.0

    def total() -> Any:
        return np.sum(out)

    out[1] = x[0] * x[1]
    return total()


def lists_that_are_not_arrays(x: Any) -> Any:
    out: Any = (None, np.zeros_like(x))
    rest, _ = np.modf(x, out=out)
    bins: Any = [np.sort(x[:2]), 3]
    edges = np.histogram2d(A[0], A[1], bins=bins)[1]
    return np.sum(rest * x) + np.sum(edges**2)


def generated(x: Any) -> Any:
    def items() -> Iterator[Any]:
        for i in range(3):
            yield np.array([x[i], x[0]])

    return np.sum([np.sum(v) for v in items()])


def through_values(x: Any) -> Any:
    functions = {"a": [math.sin, lambda v: np.array([v]).sum()]}
    return functions["a"][0](x[0]) * functions["a"][1](x[1])


def by_class(x: Any) -> Any:
    return np.sum(Model([x[0], 1.0]).w) + Steeper([x[1]])(x)


def starred(x: Any) -> Any:
    model, args = Model([2.0]), (x,)
    return model.loss(*args) + math.hypot(*(x[0], x[1])) + model(*args)


def matched(x: Any) -> Any:
    match x.shape:
        case (3,):
            return np.sum([y := x[0], y * 2.0])
    return 0.0


def tried(x: Any) -> Any:
    try:
        value = {"a": 1}["b"]
    except KeyError as error:
        value = len(str(error))
    finally:
        x = np.asarray(x)
    return x[0] * value


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "np.array": lambda x: np.sum(np.array([x[0], x[1]]) ** 2),
    "np.asarray": lambda x: np.sum(np.asarray(x) ** 2),
    "np.sum of a list": lambda x: np.sum([x[0], x[1]]) * x[2],
    "np.mean of a list": lambda x: np.mean([x[0] ** 2, x[1]]),
    "np.max of a list": lambda x: np.max([x[0], x[1] ** 2]),
    "a norm of a list": lambda x: np.linalg.norm([x[0], x[1]]),
    "np.dot of lists": lambda x: np.dot([x[0], x[1]], [1.0, 2.0]),
    "joined lists": lambda x: np.sum(np.concatenate([x, [x[0], 1.0]]) ** 2),
    "stacked arrays": lambda x: np.sum(np.stack([x, 2.0 * x]) ** 2),
    "a table": lambda x: TABLE[np.argmax(x)] * x[0],
    "a table by integers": table_of_integers,
    "a row": lambda x: np.sum(A[np.argmin(x), :] * x),
    "a method": lambda x: np.sum(A.dot(x) ** 2),
    "math": lambda x: math.sin(x[0]) + math.exp(x[1]) * math.atan2(x[0], x[1]),
    "float": lambda x: float(x[0]) ** 2 + float(np.sum(x)),
    "np.r_": lambda x: np.sum(np.r_[x, x[0], 3.0, 0:3] ** 2),
    "np.c_": lambda x: np.sum(np.c_[x, x**2] ** 2),
    "isinstance": lambda x: x[0] if isinstance(x, np.ndarray) else x[1],
    "isinstance of a number": lambda x: x[0] if isinstance(x[0], float) else x[1],
    "not finite": lambda x: np.sum(np.asarray_chkfinite(x) ** 2),
    "np.full": lambda x: np.sum(np.full(3, x[0]) * x),
    "map": lambda x: np.sum([*map(halved, x)]),
    "partial": functools.partial(lambda a, x: np.sum(np.array([x[0], a])), 2.0),
    "partial inside": lambda x: functools.partial(operator.mul, 2.0)(x[0]),
    "a comprehension": lambda x: np.sum([v * w for v in x for w in [1.0, x[0]]]),
    "a class": by_class,
    "an object": Model([2.0, 3.0]).loss,
    "decorated": lambda x: decorated(x, k=x[1]) + decorated(x),
    "recursive": lambda x: np.sum(recursive(x)),
    "filled": filled,
    "a filled copy": filled_copy,
    "summed": summed,
    "filled slices": filled_slices,
    "summed items": summed_items,
    "whole numbers": rounded,
    "a keyword that is a list": lambda x: np.average(x, weights=[x[0], 1.0, x[1]]),
    "np.r_ of rows": lambda x: np.sum(np.r_[A * x, A[:1]] * A[:1]),
    "filled in a closure": filled_in_a_closure,
    "lists that are not arrays": lists_that_are_not_arrays,
    "a generator": generated,
    "functions as values": through_values,
    "starred": starred,
    "matched": matched,
    "tried": tried,
}  # fmt: skip


def slopes(fn: Callable[[Any], Any]) -> Any:
    """The gradient by central differences."""
    steps = 1e-6 * np.eye(3)
    return np.array([(fn(X + h) - fn(X - h)) / 2e-6 for h in steps])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str) -> None:
    """Each transform gives the values and slopes of the plain program."""
    plain = PROGRAMS[name]
    fn = co.traceable(plain)
    expected, gradient = plain(X), slopes(plain)
    rows = np.stack([X, X[::-1]])
    close: Any = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    close(co.grad(fn)(X), gradient)
    close(co.jvp(fn, (X,), (np.ones(3),))[1], gradient.sum())
    close(co.vmap(fn)(rows), [plain(row) for row in rows])
    close(co.vmap(co.grad(fn))(rows)[0], gradient)
    close(co.compile(fn)(X), expected)
    close(co.make_fx(co.grad(fn))(X)(X), gradient)
    assert co.eval_shape(fn, X).shape == np.shape(expected)


# ---- what must not work in silence ----


def aliased(x: Any) -> Any:
    out = TABLE + 1.0
    other = out
    out[0] = x[0]
    return np.sum(other)


def viewed(x: Any) -> Any:
    out = TABLE + 1.0
    other = out[:2]
    out[0] = x[0]
    return np.sum(other)


def a_view(x: Any) -> Any:
    other = TABLE + 1.0
    out = other[:2]
    out[0] = x[0]
    return np.sum(other)


def listed(x: Any) -> Any:
    every = [TABLE + 1.0]
    out = every[0]
    out[0] = x[0]
    return np.sum(every[0])


def an_argument(x: Any) -> Any:
    buffer = TABLE + 1.0
    written(buffer, x)
    return np.sum(buffer)


def written(out: Any, x: Any) -> None:
    out[0] = x[0]


def aliased_sum(x: Any) -> Any:
    out = TABLE[:3] + 1.0
    other = out
    out += x
    return np.sum(other)


def shared_sum(x: Any) -> Any:
    out = TABLE[:3] + 1.0
    named = {"a": out}
    named["a"] += x
    return np.sum(out)


def aliased_items(x: Any) -> Any:
    out = TABLE + 1.0
    other = out
    out[:3] += x
    return np.sum(other)


@pytest.mark.parametrize(
    "fn",
    [
        *(aliased, viewed, a_view, listed, an_argument),
        *(aliased_sum, shared_sum, aliased_items),
    ],
)
def test_an_array_with_other_names_refuses_traced_values(fn: Any) -> None:
    """The other names would not see the write."""
    wanted = r"^out\[key\] = value|^np.add\(out=...\) would write"
    with pytest.raises(co.CustomOpError, match=wanted):
        co.grad(co.traceable(fn))(X)


# ---- what stays as it is ----

count = 0


def counting(x: Any) -> Any:
    global count  # noqa: PLW0603  # what is tested
    count += 1
    return np.sum(np.array([x[0]]))


def test_global_names_are_written() -> None:
    """The globals are those of the function, so a write is not lost."""
    before = count
    co.grad(co.traceable(counting))(X)
    assert count == before + 1


def test_names_of_outer_functions_are_written_once() -> None:
    log: list[int] = []
    n = 0

    def fn(x: Any) -> Any:
        nonlocal n
        n += 1
        log.append(n)
        return np.sum(np.array([x[0]])) * n

    followed = co.traceable(fn)
    assert co.grad(followed)(X)[0] == 1.0
    assert co.grad(followed)(X)[0] == 2.0
    assert (n, log) == (2, [1, 2])


def helper(x: Any) -> Any:
    return np.asarray(x)


def test_functions_as_values_are_the_originals() -> None:
    """`f is g`, pickling and caches by function hold inside."""
    alias, found = helper, []

    def fn(x: Any) -> Any:
        found.extend([helper is alias, np.array is PLAIN, pickle.dumps(helper), helper])
        return np.sum(helper(x))

    co.grad(co.traceable(fn))(X)
    assert found == [True, True, pickle.dumps(helper), helper]


PLAIN = np.array


def test_a_function_changed_meanwhile_is_seen() -> None:
    def scaled(x: Any, k: float = 2.0) -> Any:
        return np.sum(np.asarray(x)) * k

    fn = co.traceable(lambda x: scaled(x))
    module_level = co.traceable(changed)
    assert co.grad(fn)(X)[0] == 2.0
    assert co.grad(module_level)(X)[0] == 1.0
    scaled.__defaults__ = (3.0,)
    changed.__code__ = (lambda x: np.sum(np.asarray(x)) * 5.0).__code__
    assert co.grad(fn)(X)[0] == 3.0
    assert co.grad(module_level)(X)[0] == 5.0


def changed(x: Any) -> Any:
    return np.sum(np.asarray(x))


def test_tracebacks_show_the_lines_of_the_user() -> None:
    def bad(x: Any) -> Any:
        y = np.array([x[0]])
        return np.sum(y) / {}["missing"]

    with pytest.raises(KeyError) as caught:
        co.grad(co.traceable(bad))(X)
    frames = traceback.extract_tb(caught.value.__traceback__)
    own = [frame for frame in frames if frame.name == "bad"]
    assert [frame.line for frame in own] == ['return np.sum(y) / {}["missing"]']
    if hasattr(own[0], "colno"):
        line = '        return np.sum(y) / {}["missing"]'
        assert (own[0].colno, own[0].end_colno) == (line.index("{}"), len(line))


def test_copies_do_not_keep_functions() -> None:
    """A copy of a function that is gone goes, too."""

    def make() -> Any:
        names: dict[str, Any] = {"np": np}
        exec("def fn(x):\n    return np.sum(np.asarray(x))", names)
        return names.pop("fn")

    fn = make()
    key, gone = id(fn), weakref.ref(fn)
    assert stand_ins.adapted(fn) is stand_ins.adapted(fn)
    assert key in stand_ins._functions
    del fn
    assert gone() is None
    assert key not in stand_ins._functions


def test_functions_of_no_module() -> None:
    """Code made of text may have no name for its module, inside of other code, too."""
    names: dict[str, Any] = {"np": np}
    source = (
        "def inner(x):\n    return np.asarray(x)\ndef fn(x):\n    return inner(x)[0]"
    )
    exec(source, names)
    assert co.grad(co.traceable(names["fn"]))(X).tolist() == [1.0, 0.0, 0.0]


def test_threads() -> None:
    found: list[bool] = []

    def run() -> None:
        for _ in range(20):
            fn = co.traceable(lambda x: np.sum(np.array([x[0], x[1]])))
            found.append(co.grad(fn)(X).tolist() == [1.0, 1.0, 0.0])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80


def test_new_arrays_are_plain_after_the_call() -> None:
    """A function that gets out of the call makes plain arrays again."""
    made: list[Any] = []

    def fn(x: Any) -> Any:
        made.append(lambda: np.zeros(2))
        return np.sum(made[-1]() + x[0])

    co.grad(co.traceable(fn))(X)
    assert type(made[0]()) is np.ndarray


# ---- other packages ----


# Name -> the module of SciPy, and the call.
SCIPY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "logsumexp": ("special", lambda m, x: m.logsumexp(x)),
    "softmax": ("special", lambda m, x: np.sum(m.softmax(x) * x)),
    "logpdf": ("stats", lambda m, x: m.norm.logpdf(x[0])),
    "skew": ("stats", lambda m, x: m.skew(x)),
    "trapezoid": ("integrate", lambda m, x: m.trapezoid(x**2)),
    "simpson": ("integrate", lambda m, x: m.simpson(x**2)),
    "interp1d": ("interpolate", lambda m, x: m.interp1d(X, x)(1.5)),
    "convolve": (
        "signal",
        lambda m, x: np.sum(m.convolve(x, x, method="direct") ** 2),
    ),
    "newton": (
        "optimize",
        lambda m, x: m.newton(lambda v: v**2 - x[1], 1.0, lambda v: 2.0 * v),
    ),
    "solve_ivp": (
        "integrate",
        lambda m, x: m.solve_ivp(lambda t, y: -x[0] * y, (0.0, 1.0), x[1:]).y[0, -1],
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SCIPY)
def test_functions_of_scipy(name: str) -> None:
    """Gradients through SciPy's Python code are those by differences."""
    module, call = SCIPY[name]
    package = pytest.importorskip(f"scipy.{module}", reason="SciPy is not installed")
    plain = lambda x: call(package, x)
    found = co.grad(co.traceable(plain))(X)
    np.testing.assert_allclose(found, slopes(plain), rtol=1e-3, atol=1e-6)
