"""How long operators and registrations live: closing, reloading, processes, threads."""

from __future__ import annotations

import gc
import importlib
import itertools
import linecache
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core import registry, table
from customop.core.registry import find_operator
from customop.library import library

X = np.array([1.0, 2.0])


def defined(lib: co.Library, add: float) -> co.Operator[..., Any]:
    """Define an operator that adds a number."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x + add, "CPU")
    found = getattr(co.ops, lib.ns).f.default
    assert isinstance(found, co.Operator)
    return found


# ---- operators of closed libraries ----


@pytest.mark.exhaustive
def test_ten_thousand_operators_leave_nothing() -> None:
    """Ten thousand operators that were used and closed leave no objects behind."""
    sizes = lambda: (
        len(registry.operators),
        len(registry.namespaces),
        len(registry.registrations),
        len(registry._retired),
        len(library.owners),
        len(table.fallbacks),
    )
    co.grad(lambda x: (x + 1.0).sum())(X)  # it brings operators of NumPy
    gc.collect()
    before, lines = sizes(), len(linecache.cache)
    made: list[weakref.ref[Any]] = []
    for i in range(100):
        with co.Library(f"lifetime{i}", "DEF", "CPU") as lib:
            for j in range(100):
                lib.define(f"f{j}(Array x) -> Array")
                lib.impl(f"f{j}", lambda x: x + 1)
                op = getattr(getattr(co.ops, lib.ns), f"f{j}").default
                op(X)  # from its first call on it has a class of its own
                made += [weakref.ref(op), weakref.ref(type(op))]
            lib.impl("f99", co.Formula(lambda ctx, g: g, None), "Autograd")
            co.grad(lambda x, op=op: op(x).sum())(X)
            del op
    del lib
    gc.collect()
    assert len(made) == 20_000
    assert [ref for ref in made if ref() is not None] == []
    assert sizes() == before
    with co.Library("lifetime", "DEF", "CPU") as lib:
        defined(lib, 1.0)(X)  # the next one: then the files of the others go
    assert len(linecache.cache) <= lines + 5


def test_a_closed_library_frees_what_it_registered() -> None:
    """Closing a library frees its kernels and rules, also those for other operators."""

    class Weight:
        pass

    def using(weight: Any) -> Callable[..., Any]:
        return lambda x: x if weight else None

    weights = [Weight() for _ in range(3)]
    refs = [weakref.ref(weight) for weight in weights]
    with co.Library("np", "IMPL") as lib:
        lib.impl("sin", using(weights[0]), "CPU")
        lib.impl("never_defined", using(weights[1]), "CPU")
        with co.Library("_", "IMPL") as every:
            every.fallback(using(weights[2]), "CUDA")
    del weights
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3


def test_a_handle_of_a_closed_operator_says_so() -> None:
    """Using a closed operator raises: call, rule, registration and pickle."""
    lib = co.Library("lifetime_closed", "DEF")
    op = defined(lib, 1)
    op(X)
    call = op.call
    where = op.definition.place
    lib.close()
    text = (
        "lifetime_closed::f was removed: the library that defined it is closed\n"
        "  lifetime_closed::f(Array x) -> Array\n"
        f"  defined at {where}\n"
        "  do: keep the library open while its operators are used, or define it again"
    )
    acts: list[Callable[[], Any]] = [
        lambda: op(X),
        lambda: call(X),
        lambda: op.dispatch(X),
        lambda: op.rule("cpu"),
        lambda: op.rule(co.FakeMode.kind),
        lambda: co.eval_shape(op, X),
        lambda: co.grad(lambda x: op(x).sum())(X),
    ]
    for act in acts:
        with pytest.raises(co.MissingRuleError) as caught:
            act()
        assert str(caught.value) == text
    with pytest.raises(co.MissingRuleError, match="no operator is named"):
        pickle.loads(pickle.dumps(op))
    kernel = lambda x: x
    with pytest.raises(co.RegistrationError) as refused:
        op.register_kernel("cpu", kernel)
    assert str(refused.value) == (
        "lifetime_closed::f was removed: the library that defined it is closed\n"
        f"  the registration is at {__file__}:{kernel.__code__.co_firstlineno}\n"
        "  do: define it again first"
    )


def test_a_new_definition_revives_old_handles() -> None:
    """Defining the name again makes old references usable."""
    with co.Library("lifetime_again", "DEF") as lib:
        op = defined(lib, 1)
        call = op.compile()
    with co.Library("lifetime_again", "DEF") as lib:
        assert defined(lib, 2) is op
        np.testing.assert_array_equal(op(X), X + 2)
    with pytest.raises(co.MissingRuleError):
        call(X)


def test_a_call_that_runs_while_its_library_closes() -> None:
    """A kernel may close its own library; the call finishes and the next one raises."""
    lib = co.Library("lifetime_inside", "DEF")
    lib.define("f(Array x) -> Array")

    def kernel(x: Any) -> Any:
        lib.close()
        return x + 1

    lib.impl("f", kernel, "CPU")
    op = co.ops.lifetime_inside.f.default
    np.testing.assert_array_equal(op(X), X + 1)
    with pytest.raises(co.MissingRuleError, match="was removed"):
        op(X)


def test_libraries_in_a_cycle_close_when_collected() -> None:
    """The garbage collector closes libraries in reference cycles."""
    base = co.Library("lifetime_cycle", "DEF")
    op = defined(base, 0)
    for k in range(200):
        lost: list[Any] = [co.Library("lifetime_cycle", "IMPL")]
        lost[0].impl("f", lambda x, k=k: x + k, "CPU")
        lost.append(lost)
        del lost
        if k % 10 == 0:
            gc.collect(0)
    gc.collect()
    assert len(op.stacks["cpu"]) == 1
    np.testing.assert_array_equal(op(X), X)
    base.close()


# ---- modules ----


def test_a_reloaded_module_replaces_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After importlib.reload, old references call the new kernels."""
    path = tmp_path / "lifetime_module.py"
    text = """
        import customop as co
        lib = co.Library("lifetime_module", "DEF")
        lib.define("f(Array x) -> Array")
        lib.impl("f", lambda x: x + {k}, "CPU")
        co.define("lifetime_module_free::g", "(Array x) -> Array")
        co.impl("lifetime_module_free::g", "CPU", lambda x: x * {k})
    """
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path.write_text(textwrap.dedent(text.format(k=2)))
    module = importlib.import_module("lifetime_module")
    f = co.ops.lifetime_module.f.default
    g = co.ops.lifetime_module_free.g.default
    np.testing.assert_array_equal(f(X) + g(X), X + 2 + X * 2)
    path.write_text(textwrap.dedent(text.format(k=30)))
    importlib.reload(module)
    assert co.ops.lifetime_module.f.default is f
    np.testing.assert_array_equal(f(X) + g(X), X + 30 + X * 30)
    module.lib.close()
    del sys.modules["lifetime_module"]


# ---- processes ----


MODULE = """
    import customop as co

    lib = co.Library("lifetime_spawn", "DEF")
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x + 5, "CPU")
    op = co.ops.lifetime_spawn.f.default
    packet = co.ops.lifetime_spawn.f
"""


def run(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with a directory on its path."""
    entries = [str(path), *sys.path]
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, entries))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_an_operator_is_pickled_into_a_new_process(tmp_path: Path) -> None:
    """Unpickling imports the module that defines the operator."""
    (tmp_path / "lifetime_spawn_module.py").write_text(textwrap.dedent(MODULE))
    dump = "import lifetime_spawn_module as m, pickle; print(pickle.dumps(m.op).hex())"
    dumped = run(dump, tmp_path)
    assert dumped.returncode == 0, dumped.stderr
    load = f"""
        import pickle, numpy as np
        op = pickle.loads(bytes.fromhex("{dumped.stdout.strip()}"))
        print(op(np.ones(1)))
    """
    loaded = run(load, tmp_path)
    assert loaded.stdout == "[6.]\n", loaded.stderr


def test_an_operator_goes_to_a_spawned_worker(tmp_path: Path) -> None:
    """Spawned worker processes can call an operator that they receive."""
    (tmp_path / "lifetime_spawn_module.py").write_text(textwrap.dedent(MODULE))
    program = """
        import multiprocessing
        import numpy as np
        import lifetime_spawn_module as m

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(m.op, [np.zeros(1), np.ones(1)]))
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    entries = [str(tmp_path), *sys.path]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, entries))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "[array([5.]), array([6.])]\n", done.stderr


def test_message_of_an_operator_that_is_not_imported() -> None:
    """The error for an operator that is not imported says what to import."""
    with pytest.raises(co.MissingRuleError) as caught:
        find_operator("0::~", "os")
    assert str(caught.value) == ("no operator is named '0::~'\n  do: import os first")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_goes_on() -> None:
    """A forked child can call and register while a thread of the parent registers."""
    program = """
        import os, sys, threading, warnings
        import numpy as np, customop as co
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads
        lib = co.Library("lifetime_fork", "DEF")
        lib.define("f(Array x) -> Array")
        lib.impl("f", lambda x: x + 1, "CPU")
        f = co.ops.lifetime_fork.f
        going = True
        def register():
            while going:
                with co.Library("lifetime_fork", "IMPL") as other:
                    other.impl("f", lambda x: x + 2, "CPU")
        thread = threading.Thread(target=register)
        thread.start()
        codes = []
        for _ in range(20):
            child = os.fork()
            if child == 0:
                with co.Library("lifetime_fork", "IMPL") as mine:
                    mine.impl("f", lambda x: x + 3, "CPU")
                    os._exit(0 if f(np.zeros(1))[0] == 3 else 1)
            codes.append(os.waitpid(child, 0)[1])
        going = False
        thread.join()
        print(set(codes))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "{0}\n", done.stderr


# ---- threads ----


def test_registrations_and_calls_from_many_threads() -> None:
    """A call sees the table before or after a change, never between."""
    base = co.Library("lifetime_threads", "DEF")
    op = defined(base, 0)
    base.impl("f", co.Formula(lambda ctx, g: g, None), "Autograd")
    allowed = set(range(9))
    wrong: list[Any] = []
    ready = threading.Barrier(12)

    def register(k: int) -> None:
        ready.wait()
        for _ in range(50):
            with co.Library("lifetime_threads", "IMPL") as mine:
                mine.impl("f", lambda x: x + k, "CPU")
                mine.impl("f", co.Formula(lambda ctx, g: g * k, None), "Autograd")

    def call(_: int) -> None:
        ready.wait()
        for _ in range(200):
            out = op(np.zeros(1))[0]
            slope = co.grad(lambda x: op(x).sum())(np.zeros(1))[0]
            wrong.extend(v for v in (out, slope) if v not in allowed)

    with ThreadPoolExecutor(12) as pool:
        jobs = [pool.submit(register, k) for k in range(1, 9)]
        jobs += [pool.submit(call, k) for k in range(4)]
        for job in jobs:
            job.result()
    assert wrong == []
    assert [len(rows) for rows in op.stacks.values()] == [1, 1]
    np.testing.assert_array_equal(op(X), X)
    base.close()


def test_definitions_from_many_threads() -> None:
    """Definitions from several threads are all kept."""
    numbers = itertools.count()
    ready = threading.Barrier(8)
    base = co.Library("lifetime_many", "DEF")

    def define(_: int) -> None:
        ready.wait()
        for _ in range(50):
            name = base.define(f"f{next(numbers)}(Array x) -> Array")
            base.impl(name, lambda x: x + 1, "CPU")
            getattr(co.ops.lifetime_many, name)(X)

    with ThreadPoolExecutor(8) as pool:
        for job in [pool.submit(define, k) for k in range(8)]:
            job.result()
    assert set(dir(co.ops.lifetime_many)) == {f"f{k}" for k in range(400)}
    base.close()
    assert "lifetime_many" not in dir(co.ops)


def test_first_calls_from_many_threads() -> None:
    """If several threads make the first call, one function is generated."""
    for _ in range(20):
        with co.Library("lifetime_first", "DEF") as lib:
            op = defined(lib, 1)
            ready = threading.Barrier(4)

            def call(op: Any = op, ready: Any = ready) -> Any:
                ready.wait()
                return op.compile(), op(X)

            with ThreadPoolExecutor(4) as pool:
                jobs = [pool.submit(call) for _ in range(4)]
                found = [job.result() for job in jobs]
            assert len({id(made) for made, _ in found}) == 1
            for _, out in found:
                np.testing.assert_array_equal(out, X + 1)
