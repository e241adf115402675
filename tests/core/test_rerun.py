"""A name that is defined again: a line that runs again, or a second operator."""

from __future__ import annotations

import functools
import gc
import importlib
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core import redefine
from customop.core.redefine import is_held
from customop.core.registry import namespaces, operators

X = np.ones(2)


def scale(k: float) -> Any:
    """A factory whose operators all have one name."""

    @co.custom_op("rerun::scale", mutates_args=())
    def scaled(x: np.ndarray) -> np.ndarray:
        return x * k

    return scaled


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    gc.collect()


def test_two_operators_of_one_factory() -> None:
    """The second is refused, and the first goes on as it was."""
    first = scale(2.0).register_fake(co.fake_like)
    before = dict(operators), dict(namespaces["rerun"]["scale"])
    with pytest.raises(co.RegistrationError) as caught:
        scale(3.0)
    line = scale.__code__.co_firstlineno + 3
    assert str(caught.value) == (
        "rerun::scale is defined already, with another value of 'k', and still in use\n"
        f"  both definitions are at {__file__}:{line}: 'k' is float 3.0 in the second, and"
        " float 2.0 in the first\n"
        '  do: give each its own name, such as custom_op(f"rerun::scale_{number}", ...),'
        " or make 'k' a parameter"
    )
    assert first(X).tolist() == [2.0, 2.0]
    assert first(co.FakeArray((2,))).shape == (2,)
    assert before == (operators, namespaces["rerun"]["scale"])


def test_one_operator_after_the_other() -> None:
    """A name is free again once nobody holds its operator, as in tests with parameters."""
    for k in (2.0, 3.0, 4.0):
        assert scale(k)(X).tolist() == [k, k]
    op = scale(5.0)
    pull = co.vjp(op.register_autograd(lambda ctx, g: g * 5.0), X)[1]
    del op
    with pytest.raises(co.RegistrationError, match="still in use"):
        scale(6.0)
    assert pull(X)[0].tolist() == [5.0, 5.0]


def test_the_same_again_is_the_same_operator() -> None:
    """With equal values, the two do the same."""
    first = scale(2.0)
    assert scale(2.0) is first
    assert first(X).tolist() == [2.0, 2.0]


class Scaler:
    def __init__(self, k: float) -> None:
        self.k = k

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x * self.k

    def method(self, x: np.ndarray) -> np.ndarray:
        return x * self.k


def _times(x: np.ndarray, *, k: float) -> np.ndarray:
    return x * k


def _plain(x: np.ndarray) -> np.ndarray:
    return x


def _by_wraps(k: float) -> Callable[..., Any]:
    @functools.wraps(_plain)
    def wrapper(x: Any) -> Any:
        return _times(x, k=k)

    return wrapper


def _by_default(k: float) -> Callable[..., Any]:
    def fn(x: np.ndarray, by: float = k) -> np.ndarray:
        return x * by

    return fn


def _by_inner(k: float) -> Callable[..., Any]:
    def inner(x: Any) -> Any:
        return x * k if x.ndim else inner(x)

    return lambda x: inner(x)


FORMS: dict[str, Callable[[float], Any]] = {
    "partial": lambda k: functools.partial(_times, k=k),
    "object": Scaler,
    "method": lambda k: Scaler(k).method,
    "wraps": _by_wraps,
    "default": _by_default,
    "inner function": _by_inner,
    "lambda": lambda k: lambda x: x * k,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_function(form: str) -> None:
    """Each holds its value elsewhere."""

    def make(fn: Any) -> Any:
        is_bare = form in ("inner function", "lambda", "partial")
        schema = "(Array x) -> Array" if is_bare else None
        return co.custom_op("rerun::form", fn, mutates_args=(), schema=schema)

    fn = FORMS[form](2.0)
    first = make(fn)
    assert make(fn) is first
    with pytest.raises((co.RegistrationError, co.SchemaError)):
        make(FORMS[form](3.0))
    assert first(X).tolist() == [2.0, 2.0]


def test_two_functions_of_one_file() -> None:
    """They need two names, whichever lines they come from."""

    def make(fn: Any) -> Any:
        return co.custom_op(
            "rerun::two", fn, mutates_args=(), schema="(Array x) -> Array"
        )

    first = make(lambda x: x * 2.0)
    with pytest.raises(co.RegistrationError, match="rerun::two is defined already, at"):
        make(lambda x: x * 3.0)
    assert first(X).tolist() == [2.0, 2.0]


def test_two_schemas_of_one_function() -> None:
    """One would be called by the schema of the other."""
    first = co.define("rerun::schema", "(Array x) -> Array")
    assert co.define("rerun::schema", "(Array x) -> Array") is first
    with pytest.raises(co.RegistrationError, match="is defined already, at"):
        co.define("rerun::schema", "(Array x, int n) -> Array")
    assert str(first.schema) == "(Array x) -> Array"


# ---- what runs again ----

FACTORY = """
import numpy as np, customop as co
def make(k):
    @co.custom_op("rerun::cell", mutates_args=())
    def f(x: np.ndarray) -> np.ndarray:
        return x * k
    return f
"""


def run(text: str, file: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run a cell or a file."""
    names = {"__name__": "__main__"} if names is None else names
    exec(compile(text, file, "exec"), names)
    return names


CELL = "/tmp/ipykernel_7/{}.py"


def test_a_cell_that_runs_again() -> None:
    """The operator is replaced in place, wherever its factory stands."""
    names = run(FACTORY, CELL.format(1))
    first = run("op = make(2.0)", CELL.format(2), names)["op"]
    assert run("op = make(2.0)", CELL.format(2), names)["op"] is first
    run(FACTORY, CELL.format(3), names)
    assert run("op = make(2.0)", CELL.format(2), names)["op"] is first
    assert first(X).tolist() == [2.0, 2.0]


def test_a_cell_that_was_edited_or_another_one() -> None:
    """Nobody can tell which, so the operator is replaced, and a warning says so."""
    names = run(FACTORY, CELL.format(1))
    first = run("op = make(2.0)", CELL.format(2), names)["op"]
    with pytest.warns(co.CustomOpWarning) as caught:
        assert run("op = make(3.0)", CELL.format(4), names)["op"] is first
    assert str(caught[0].message) == (
        "rerun::cell was defined in another cell, at /tmp/ipykernel_7/1.py:4: the operator"
        " made there runs this function too from now on. If you mean two operators, give"
        " each its own name"
    )
    assert first(X).tolist() == [3.0, 3.0]


def test_two_of_one_factory_in_one_cell() -> None:
    """One run of a cell defines two operators."""
    names = run(FACTORY, CELL.format(1))
    with pytest.raises(co.RegistrationError, match="still in use"):
        run("a = make(2.0)\nb = make(3.0)", CELL.format(2), names)
    with pytest.raises(co.RegistrationError, match="still in use"):
        run("every = [make(k) for k in (2.0, 3.0)]", CELL.format(3), names)


def test_code_that_is_executed_twice() -> None:
    """In another namespace it is another run; in the same one its functions are equal."""
    code = compile(FACTORY + "op = make(2.0)", CELL.format(1), "exec")
    one: dict[str, Any] = {"__name__": "one"}
    two: dict[str, Any] = {"__name__": "two"}
    exec(code, one)
    exec(code, one)
    exec(code, two)
    assert one["op"] is two["op"]


def test_a_module_that_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its import, and in a function that is called later."""
    text = (
        FACTORY.replace("cell", "module")
        + "op = make(2.0)\ndef later():\n    return make(2.0)\n"
    )
    path = tmp_path / "rerun_module.py"
    path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("rerun_module")
    first = module.op
    path.write_text("# longer\n" + text.replace("x * k", "x * (k + 1.0)"))
    importlib.reload(module)
    assert module.op is first
    assert first(X).tolist() == [3.0, 3.0]
    held = module.later()
    path.write_text("# still longer\n" + text.replace("x * k", "x * (k + 2.0)"))
    importlib.reload(module)
    assert module.later() is held
    assert held(X).tolist() == [4.0, 4.0]
    del sys.modules["rerun_module"]


def test_files_that_share_a_factory(tmp_path: Path) -> None:
    """Two modules that want different operators of one name get an error."""
    factory = run(FACTORY.replace("cell", "files"), str(tmp_path / "factory.py"))
    make = {"make": factory["make"]}
    first = run("op = make(2.0)", str(tmp_path / "one.py"), dict(make))["op"]
    same = run("op = make(2.0)", str(tmp_path / "two.py"), dict(make))["op"]
    assert same is first
    with pytest.raises(co.RegistrationError, match="still in use"):
        run("op = make(3.0)", str(tmp_path / "three.py"), dict(make))


# ---- who holds an operator ----


def _cycle(op: Any) -> Any:
    ring: list[Any] = [op]
    ring.append(ring)
    return None


def _generator(op: Any) -> Any:
    running = (op for _ in range(2))
    next(running)
    return running


def _raised(op: Any) -> Any:
    try:
        op("text")
    except co.ArgumentError as error:
        return error
    return None


HOLDERS: list[Callable[[Any], Any]] = [
    lambda op: None,
    weakref.ref,
    _cycle,
    lambda op: op,
    lambda op: [[op]],
    lambda op: {"a": (op,)},
    lambda op: lambda x: op(x),
    lambda op: functools.partial(op, X),
    lambda op: type("Holder", (), {"op": op}),
    lambda op: types.SimpleNamespace(op=op),
    lambda op: op.call,
    lambda op: type(op),
    lambda op: op.definition.fn,
    lambda op: op.schema,
    lambda op: co.vjp(op, X)[1],
    lambda op: co.vmap(op),
    _generator,
    _raised,
]
USES: list[Callable[[Any], Any]] = [
    lambda op: op(X),
    lambda op: op.source,
    lambda op: op(co.FakeArray((2,))),
    lambda op: co.grad(lambda x: op(x).sum())(X),
    lambda op: co.vmap(op)(np.ones((3, 2))),
    lambda op: co.jvp(op, (X,), (X,)),
    lambda op: op.explain(X),
    lambda op: op.dispatch(X),
    lambda op: op.register_kernel("cpu", lambda x: (op, x * 2.0)[1]),
    lambda op: op.register_vmap(lambda info, dims, x: (op(x), dims[0])),
]


def test_a_name_is_free_while_another_thread_collects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python skips a collection that is asked for while finalizers of another one wait."""
    begun, may_end = threading.Event(), threading.Event()

    class Waits:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            begun.set()
            may_end.wait(60)

    def collect() -> None:
        Waits()
        gc.collect()

    def define(factor: float) -> co.Operator[..., Any]:
        fn = lambda x: x * factor
        schema = "(Array x) -> Array"
        return co.custom_op("rerun::free", fn, mutates_args=(), schema=schema)

    def lost() -> None:
        held: list[Any] = [define(2.0)]
        held.append(held)

    thread = threading.Thread(target=collect)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        may_end.set()
        thread.join()

    monkeypatch.setattr(redefine, "sleep", wait)
    lost()
    thread.start()
    begun.wait(60)
    assert define(3.0)(X).tolist() == [3.0, 3.0]
    assert len(waits) == 1


@pytest.fixture
def _few_objects() -> None:
    """Collections that go over what a test makes alone: other objects do not hold it."""
    gc.collect()
    gc.freeze()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_few_objects")
@pytest.mark.filterwarnings("ignore::customop.CustomOpWarning")
def test_who_holds_an_operator_is_known_as_by_a_collection() -> None:
    """Whatever was done with it, and whoever holds it: the collector is the oracle."""
    rng = random.Random(7)
    for number in range(100):
        name = f"rerun::held{number}"
        op = co.custom_op(
            name, lambda x: x * 2.0, mutates_args=(), schema="(Array x) -> Array"
        )
        op.register_fake(co.fake_like)
        op.register_autograd(lambda ctx, g: g * 2.0)
        for use in rng.sample(range(len(USES)), rng.randrange(5)):
            USES[use](op)
        holder = HOLDERS[number % len(HOLDERS)](op)
        ref = weakref.ref(op)
        del op
        found = is_held(operators, name)
        del operators[name]
        del namespaces["rerun"][name.partition("::")[2]]
        gc.collect()
        assert found is (ref() is not None), (number, holder)
