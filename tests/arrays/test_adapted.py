"""Transforms that run plain code as it is, with `config.adapt`."""

from __future__ import annotations

import asyncio
import doctest
import functools
import sys
import threading
import types
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays.trampolines import IS_KNOWN
from tests.arrays.test_stand_ins import PROGRAMS, A, X, slopes

pytestmark = [
    pytest.mark.skipif(not IS_KNOWN, reason="this Python's code is not known"),
    pytest.mark.usefixtures("adapted"),
]
# `traceable` makes all new arrays boxes; here those of a single local variable are.
RUNS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: co.grad(f)(X),
    "jvp": lambda f: co.jvp(f, (X,), (np.ones(3),))[1],
    "vmap": lambda f: co.vmap(f)(X[None])[0],
    "compile": lambda f: co.compile(f)(X),
    "make_fx": lambda f: co.make_fx(co.grad(f))(X)(X),
    "eval_shape": lambda f: np.zeros(co.eval_shape(f, X).shape),
}


def expected_of(run: str, plain: Callable[[Any], Any]) -> Any:
    if run == "eval_shape":
        return np.zeros(np.shape(plain(X)))
    if run in ("vmap", "compile"):
        return plain(X)
    found = slopes(plain)
    return found.sum() if run == "jvp" else found


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_as_it_is(name: str) -> None:
    """Each transform gives the values and slopes of the plain program."""
    plain = PROGRAMS[name]
    for run, call in RUNS.items():
        np.testing.assert_allclose(
            call(plain), expected_of(run, plain), rtol=1e-5, atol=1e-6, err_msg=run
        )


def _logsumexp(x: Any) -> Any:
    return np.log(np.sum(np.exp(x)))


def test_rules_written_by_hand_are_plain_code() -> None:
    """Hessians of log sum exp are diag(p) - p p^T for the softmax p."""
    p = np.exp(X) / np.exp(X).sum()
    reverse, forward, one = (
        co.custom_vjp(_logsumexp),
        co.custom_jvp(_logsumexp),
        co.custom_jvp(_logsumexp),
    )

    def fwd(x: Any) -> Any:
        y = np.log(np.sum([np.exp(v) for v in x]))
        return y, (x, y)

    def bwd(kept: Any, g: Any) -> Any:
        x, y = kept
        return (np.full(x.shape, g) * np.exp(x - np.full(x.shape, y)),)

    def push(primals: Any, tangents: Any) -> Any:
        y = _logsumexp(*primals)
        terms = [t * np.exp(x - y) for x, t in zip(*primals, *tangents, strict=True)]
        return y, np.sum(terms)

    reverse.defvjp(fwd, bwd)
    forward.defjvp(push)
    one.defjvps(lambda t, y, x: np.sum([t[i] * np.exp(x[i] - y) for i in range(3)]))
    for f in (reverse, forward, one):
        np.testing.assert_allclose(co.grad(f)(X), p)
        for twice in (co.hessian(f), co.jacrev(co.grad(f)), co.jacfwd(co.jacfwd(f))):
            np.testing.assert_allclose(twice(X), np.diag(p) - np.outer(p, p))


def listed(x: Any) -> Any:
    return np.sum(np.array([x[0], x[1]]) ** 2)


def stepped(carry: Any, v: Any) -> Any:
    return carry + listed([v, carry]), np.array([v])[0]


def below(carry: Any) -> Any:
    return np.array([carry])[0] < 9.0


def doubled(carry: Any) -> Any:
    return np.array([carry, carry]).sum()


def test_bodies_of_loops_and_branches() -> None:
    """Functions of a module that a transformed function gives to loops and branches."""
    ones = np.ones(3)
    total = lambda f: lambda x: np.sum(f(x)[0])
    scanned = lambda x: co.scan(stepped, 0.0, x)
    plain = total(scanned)
    np.testing.assert_allclose(co.grad(plain)(X / 9), _slopes(plain, X / 9), 1e-5)
    for run in (co.compile, co.make_fx):
        loop = lambda x: co.while_loop(below, doubled, x[0])
        found = run(loop)(X)
        assert (found if run is co.compile else found(X)) == 17.6
    branch = lambda x: co.cond(x[0] > 0, listed, np.sum, x)
    np.testing.assert_allclose(co.grad(branch)(ones), [2.0, 2.0, 0.0])
    rule = co.checkpoint(listed)
    np.testing.assert_allclose(co.grad(lambda x: rule(x))(ones), [2.0, 2.0, 0.0])


def _slopes(fn: Callable[[Any], Any], x: Any) -> Any:
    return np.array([(fn(x + h) - fn(x - h)) / 2e-6 for h in 1e-6 * np.eye(3)])


def test_the_setting_is_read_at_each_call() -> None:
    fn = co.grad(listed)
    assert fn(X).tolist() == [2.2, 5.2, 0.0]
    co.config.adapt = False
    with pytest.raises(co.DataDependentError):
        fn(X)
    with pytest.raises(co.ArgumentError, match=r"^config.adapt is 1\n"):
        co.config.adapt = 1  # type: ignore[assignment]  # what is tested
    co.config.adapt = True
    assert fn(X).tolist() == [2.2, 5.2, 0.0]


# ---- what belongs to others ----


def test_arrays_of_outer_functions_refuse_traced_values() -> None:
    """The outer function would get a traced value in the place of its array."""
    out, total = np.zeros(3), np.zeros(3)

    def fn(x: Any) -> Any:
        out[0] = x[0]
        return np.sum(out)

    def adding(x: Any) -> Any:
        nonlocal total
        total += x
        return np.sum(total)

    for each in (fn, adding):
        with pytest.raises(co.CustomOpError):
            co.grad(each)(X)
    assert type(out) is type(total) is np.ndarray
    assert not out.any()
    assert not total.any()


def test_arrays_of_the_function_itself_take_them_inside() -> None:
    def fn(x: Any) -> Any:
        out = np.zeros(3)

        def write() -> None:
            out[0] = x[0]
            out[1:] += x[1:]

        write()
        return np.sum(out**2)

    np.testing.assert_allclose(co.grad(fn)(X), 2.0 * X)


def test_arrays_of_objects_take_values_as_they_do() -> None:
    def fn(x: Any) -> Any:
        out = np.empty(2, dtype=object)
        out[0] = x[0]
        return out[0] * 2.0

    assert co.grad(fn)(X).tolist() == [2.0, 0.0, 0.0]


def test_calls_of_other_packages_without_traced_values(tmp_path: Path) -> None:
    """They run as they are; with a traced value they are adapted, and new arrays boxes."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    text = (
        "import numpy as np\nseen = []\nclass Solver:\n"
        "    def __init__(self, y):\n        self.k = np.zeros(2)\n        self.y = y\n"
        "    def run(self):\n        self.k[0] = np.asarray(self.y)[0]\n"
        "        return self.k.sum()\n"
        "def table(n):\n    out = np.zeros(n)\n    seen.append(type(out))\n    return out\n"
        "def solve(y):\n    return Solver(y).run()\n"
    )
    path = folder / "other_package.py"
    path.write_text(text, encoding="utf-8")
    module: Any = types.ModuleType("other_package")
    exec(compile(text, path, "exec"), vars(module))
    fn = lambda x: module.solve(x) * np.sum(module.table(2) + 1.0)
    assert co.grad(fn)(X).tolist() == [2.0, 0.0, 0.0]
    assert module.seen == [np.ndarray]
    assert co.grad(module.solve)(X).tolist() == [1.0, 0.0, 0.0]
    model = lambda x: module.Solver(x).run()
    assert co.vmap(model)(X[None]).tolist() == [1.1]
    held = lambda x: functools.partial(module.solve, [x[0], 1.0])()
    assert co.grad(held)(X).tolist() == [1.0, 0.0, 0.0]


# ---- what watches code ----


def test_debuggers_and_coverage_see_the_lines() -> None:
    """Lines that run are those of the source, in order.

    Python 3.11 tells of a line again after a hook in it: it does at each jump back.
    """
    seen: list[list[int]] = []
    first = watched.__code__.co_firstlineno

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_name != "watched":
            return None
        if event == "line":
            seen[-1].append(frame.f_lineno - first)
        return trace

    before = sys.gettrace()
    for call in (lambda: watched(X), lambda: co.grad(watched)(X)):
        seen.append([])
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(before)
    if sys.version_info < (3, 12):
        seen = [[line for line, _ in groupby(lines)] for lines in seen]
    assert seen[0] == seen[1]
    assert len(seen[0]) > 6


def watched(x: Any) -> Any:
    out = np.zeros(2)
    for i in range(2):
        out[i] = x[i]
        if i:
            out += x[0]
    return np.sum(
        [out[0], out[1]]
    )  # fmt: skip


def documented(x: Any) -> Any:
    """Do what `listed` does.

    >>> bool(co.grad(lambda x: np.sum(np.array([x[0]])))(np.ones(2))[0] == 1.0)
    True
    """
    return listed(x)


def test_doctests() -> None:
    names = {"co": co, "np": np}
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(verbose=False)
    for test in finder.find(documented, globs=names):
        runner.run(test)
    assert runner.summarize() == (0, 1)


def test_coroutines_and_threads() -> None:
    async def item(x: Any) -> Any:
        await asyncio.sleep(0)
        return np.array([x[0], 1.0]).sum()

    def fn(x: Any) -> Any:
        return asyncio.run(item(x))

    assert co.grad(fn)(X).tolist() == [1.0, 0.0, 0.0]
    found: list[Any] = []

    def run() -> None:
        found.extend([co.grad(listed)(X).tolist() for _ in range(20)])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[2.2, 5.2, 0.0]] * 80


def test_rules_of_operators_and_rows_of_matrices() -> None:
    rows = lambda x: A[np.argmax(x)] @ x
    np.testing.assert_allclose(co.vmap(co.grad(rows))(X[None])[0], A[2])
