"""What an operator is to Python: a function with a name, a signature and a pickle."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import itertools
import linecache
import pickle
import pydoc
import threading
import traceback
import types
import typing
import weakref
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.codegen import generate

_numbers = itertools.count()
X = np.arange(6.0).reshape(2, 3)


def define(
    schema: str, fn: Callable[..., Any], written: tuple[str, ...] = (), **kwargs: Any
) -> co.Operator[..., Any]:
    """Make an operator of a new name."""
    name = f"operators::op{next(_numbers)}"
    return co.custom_op(name, fn, mutates_args=written, schema=schema, **kwargs)


def blend(
    x: np.ndarray,
    /,
    y: co.Array | float = 2.0,
    *,
    k: float = float("inf"),
    s: str = "a'b",
) -> np.ndarray:
    """Blend two arrays.

    At length.
    """
    return x + y


op = co.custom_op("operators::blend", blend, mutates_args=())


# ---- looking like the function ----


def test_names() -> None:
    """Names are those of the function, and those of the definition."""
    assert op.__name__ == "blend"
    assert op.__qualname__ == "blend"
    assert op.__module__ == __name__
    assert (op.qualname, op.namespace, op.name, op.overload) == (
        "operators::blend",
        "operators",
        "blend",
        "",
    )


def test_overload_name() -> None:
    """An overload is named behind a dot, and is another operator."""
    other = co.custom_op(
        "operators::blend.scalar",
        lambda x, k: x * k,
        mutates_args=(),
        schema="(Array x, float k) -> Array",
    )
    assert (other.name, other.overload) == ("blend", "scalar")
    assert other is not op
    np.testing.assert_array_equal(other(X, 2.0), 2 * X)


def test_signature() -> None:
    """inspect.signature gives that of the function, defaults included."""
    assert inspect.signature(op) == inspect.signature(blend)


def test_signature_without_hints() -> None:
    """An operator of a schema string has that schema's parameters."""
    made = define("(Array x, *, float k=1.5) -> Array", lambda x, *, k=1.5: x * k)
    assert str(inspect.signature(made)).startswith("(x, *, k=1.5)")


def test_type_hints() -> None:
    """typing.get_type_hints reads those of the function."""
    assert typing.get_type_hints(op) == typing.get_type_hints(blend)


def test_doc_and_wrapped() -> None:
    """The docstring and the function itself are there."""
    assert op.__doc__ == blend.__doc__
    assert op.__wrapped__ is blend
    assert inspect.unwrap(op) is blend
    assert inspect.getdoc(op) == "Blend two arrays.\n\nAt length."


def test_help_text() -> None:
    """help() shows signature and docstring, and no class of ours."""
    text = pydoc.render_doc(op, renderer=pydoc.plaintext)
    # Python 3.13 writes a parameter a line.
    assert "blend(x: " in " ".join(text.split()).replace("( ", "(")
    assert "Blend two arrays." in text
    assert "register_kernel" not in text


def test_repr_shows_the_schema() -> None:
    """Its repr is short and holds name and schema."""
    made = define("(Array x, float k=1.0) -> Array", lambda x, k=1.0: x * k)
    expected = f"<Operator {made.qualname}(Array x, float k=1.0) -> Array>"
    assert repr(made) == str(made) == expected


def test_wraps_and_partial() -> None:
    """Tools of functools take an operator as a function."""
    assert functools.wraps(op)(lambda *a: None).__name__ == "blend"
    np.testing.assert_array_equal(functools.partial(op, y=1.0)(X), X + 1)
    np.testing.assert_array_equal(functools.reduce(op, [X, X, X]), 3 * X)


def test_is_an_operator() -> None:
    """Its class derives from Operator, and it is callable."""
    assert isinstance(op, co.Operator)
    assert callable(op)


def test_attribute_of_a_class() -> None:
    """As an attribute of a class it is itself and takes no self."""

    class Holder:
        blend = op

    assert Holder.blend is Holder().blend is op
    np.testing.assert_array_equal(Holder().blend(X, 1.0), X + 1)


def test_as_a_cached_value() -> None:
    """It can be a key, it equals itself alone, and weak references hold."""
    other = define("(Array x) -> Array", lambda x: x * 1)
    assert {op: 1, other: 2}[op] == 1
    assert op == op  # noqa: PLR0124
    assert op != other
    assert weakref.ref(op)() is op


def test_free_names_of_one_function() -> None:
    """One function may be two operators."""
    first, second = (define("(Array x) -> Array", np.negative) for _ in range(2))
    assert first.qualname != second.qualname
    np.testing.assert_array_equal(first(X), second(X))


# ---- pickle and copy ----


def test_pickle_is_by_name() -> None:
    """The same operator comes back, whatever it holds."""
    local = define("(Array x) -> Array", lambda x: x * 1)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(op, protocol)) is op
        assert pickle.loads(pickle.dumps([local], protocol))[0] is local


def test_copies_are_the_operator() -> None:
    """Copying gives the operator itself."""
    assert copy.copy(op) is op
    assert copy.deepcopy({"op": [op]})["op"][0] is op


def test_pickle_to_a_spawned_process() -> None:
    """A process that has imported nothing finds the operator by its module."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        out = pool.submit(op, X, 1.0).result()
    np.testing.assert_array_equal(out, X + 1)


def test_unpickling_an_unknown_operator() -> None:
    """A name that no module defines is an error with the near names."""
    text = pickle.dumps(op, 0).replace(b"operators::blend", b"operators::blendy")
    with pytest.raises(co.MissingRuleError, match="did you mean 'operators::blend'"):
        pickle.loads(text)


# ---- definition and redefinition ----


def test_redefinition_by_a_file_that_runs_again(tmp_path: Path) -> None:
    """The old handle goes on with the new definition."""
    first = run_file(tmp_path / "one.py", "again", 2.0)["op"]
    first.register_fake(lambda x: co.fake_like(x))
    np.testing.assert_array_equal(first(X), 2 * X)
    call = first.call
    second = run_file(tmp_path / "one.py", "again", 3.0)["op"]
    assert second is first
    np.testing.assert_array_equal(first(X), 3 * X)
    np.testing.assert_array_equal(first(X), 3 * X)
    with pytest.raises(co.MissingRuleError):
        first(co.FakeArray((2,)))
    assert call is not first.call


def test_redefinition_with_another_schema(tmp_path: Path) -> None:
    """The schema is the new one, for the call and for the signature."""

    def run(schema: str, fn: str) -> Any:
        text = f"import customop as co\nop = co.custom_op('operators::other', {fn},"
        names: dict[str, Any] = {"__name__": "one"}
        text += f" mutates_args=(), schema='{schema}')"
        exec(compile(text, str(tmp_path / "one.py"), "exec"), names)
        return names["op"]

    first = run("(Array x) -> Array", "lambda x: x * 2")
    first(X)
    run("(Array x, float k) -> Array", "lambda x, k: x * k")
    np.testing.assert_array_equal(first(X, 5.0), 5 * X)
    with pytest.raises(TypeError, match="missing 1 required"):
        first(X)
    assert str(first.schema) == "(Array x, float k) -> Array"


def test_failing_redefinition_leaves_the_old_one() -> None:
    """A definition that is refused changes nothing."""

    def make(schema: str, **kwargs: Any) -> Any:
        return co.custom_op(
            "operators::kept", lambda x: x * 2, mutates_args=(), schema=schema, **kwargs
        )

    made = make("(Array x) -> Array")
    made.register_fake(lambda x: co.fake_like(x))
    for schema, kwargs, error in [
        ("(Array x", {}, co.SchemaError),
        ("(Array x, Array y) -> Array", {}, co.SchemaError),
        ("(Array x) -> Array", {"device_types": "gpu"}, co.RegistrationError),
        ("(Array x) -> Array", {"tags": "pointwise"}, co.RegistrationError),
    ]:
        with pytest.raises(error):
            make(schema, **kwargs)
    np.testing.assert_array_equal(made(X), 2 * X)
    assert made(co.FakeArray((2,))).shape == (2,)


def test_failing_definition_leaves_no_name() -> None:
    """A first definition that is refused leaves the name free."""
    with pytest.raises(co.SchemaError):
        co.custom_op(
            "operators::never",
            lambda x: x,
            mutates_args=("y",),
            schema="(Array x) -> Array",
        )
    with pytest.raises(co.MissingRuleError, match="no operator is named"):
        co.register_fake("operators::never", lambda x: x)


SOURCE = """
import customop as co
op = co.custom_op("operators::{name}", lambda x: x * {k}, mutates_args=(),
                  schema="(Array x) -> Array")
"""


def run_file(path: Path, name: str, k: float) -> dict[str, Any]:
    """Run a file that defines an operator."""
    text = SOURCE.format(name=name, k=k)
    path.write_text(text)
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(text, str(path), "exec"), names)
    return names


def test_definition_from_another_file(tmp_path: Path) -> None:
    """A second file cannot take a name; the error names both places."""
    first = run_file(tmp_path / "one.py", "fight", 2.0)["op"]
    with pytest.raises(co.RegistrationError) as caught:
        run_file(tmp_path / "two.py", "fight", 3.0)
    assert str(tmp_path / "one.py") in str(caught.value)
    assert str(tmp_path / "two.py") in str(caught.value)
    np.testing.assert_array_equal(first(X), 2 * X)


def test_module_loaded_again(tmp_path: Path) -> None:
    """A file that is run again replaces its operators in place."""
    first = run_file(tmp_path / "one.py", "reloaded", 2.0)["op"]
    second = run_file(tmp_path / "one.py", "reloaded", 3.0)["op"]
    assert first is second
    np.testing.assert_array_equal(first(X), 3 * X)


def test_many_operators() -> None:
    """A thousand operators keep apart."""
    made = [_adder(i) for i in range(1000)]
    for i, each in enumerate(made):
        assert each(np.zeros(1))[0] == i
        assert pickle.loads(pickle.dumps(each)) is each


def _adder(number: int) -> co.Operator[..., Any]:
    return co.custom_op(
        f"operators::many{number}",
        lambda x: x + number,
        mutates_args=(),
        schema="(Array x) -> Array",
    )


def test_redefinition_frees_the_old_kernel() -> None:
    """What the old definition held is let go."""

    class Weight:
        pass

    def make() -> weakref.ref[Weight]:
        weight = Weight()

        def kernel(x: np.ndarray) -> np.ndarray:
            assert weight
            return x * 1

        co.custom_op(
            "operators::freed", kernel, mutates_args=(), schema="(Array x) -> Array"
        )(X)
        return weakref.ref(weight)

    old = make()
    make()
    gc.collect()
    assert old() is None


# ---- the first call ----


def test_threads_call_for_the_first_time_at_once() -> None:
    """Many threads may make the first call together."""
    for _ in range(20):
        made = define("(Array x, float k=2.0) -> Array", lambda x, k=2.0: x * k)
        barrier = threading.Barrier(6)

        def call(i: int, made: Any = made, barrier: Any = barrier) -> Any:
            barrier.wait()
            return made(np.full(2, float(i)), i)

        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(call, range(6)))
        for i, out in enumerate(results):
            assert out.tolist() == [i * i, i * i]


def test_first_call_through_every_door() -> None:
    """op, op.call, op.dispatch and op.invoke may each be the first."""
    doors: list[Callable[[Any], Any]] = [
        lambda made: made(X),
        lambda made: made.call(X),
        lambda made: made.dispatch(X),
        lambda made: made.invoke([X]),
    ]
    for door in doors:
        made = define("(Array x) -> Array", lambda x: x * 2)
        np.testing.assert_array_equal(door(made), 2 * X)


def test_call_kept_from_before_the_first_call() -> None:
    """op.call taken from an operator never called works, and goes on to work."""
    made = define("(Array x) -> Array", lambda x: x * 2)
    call = made.call
    for _ in range(3):
        np.testing.assert_array_equal(call(X), 2 * X)


def test_recursive_kernel() -> None:
    """A kernel may call its own operator on other arguments."""

    def power(x: np.ndarray, n: int) -> np.ndarray:
        return x * 1 if n <= 1 else x * made(x, n - 1)

    made = define("(Array x, int n) -> Array", power)
    np.testing.assert_array_equal(made(X, 4), X**4)
    np.testing.assert_array_equal(made(X, 3), X**3)


# ---- rules ----


def test_rule_reads_back_what_was_registered() -> None:
    """op.rule gives the function registered for a kind."""
    made = define("(Array x) -> Array", np.negative)
    kind = co.RuleKind("twin", takes="(out, *inputs)")
    rule = lambda out, x: out
    fake = lambda x: co.fake_like(x)
    assert made.register(kind, rule) is made.register_fake(fake) is made
    assert made.rule(kind) is rule
    assert made.rule("fake") is fake
    assert made.rule("cpu") is np.negative


def test_second_rule_is_refused_unless_it_overrides() -> None:
    """Of two rules of one kind the second names the place of the first."""
    made = define("(Array x) -> Array", np.negative)

    def first(x: Any) -> Any:
        return co.fake_like(x)

    def second(x: Any) -> Any:
        return co.fake_like(x)

    made.register_fake(first)
    line = first.__code__.co_firstlineno
    with pytest.raises(co.RegistrationError, match=f"test_operator.py:{line}"):
        made.register_fake(second)
    assert made.rule("fake") is first
    made.register_fake(second, override=True)
    assert made.rule("fake") is second


def test_rule_of_the_same_place_replaces() -> None:
    """A line that runs again replaces its registration."""
    made = define("(Array x) -> Array", np.negative)
    for _ in range(2):
        made.register_fake(lambda x: co.fake_like(x))
    assert made(co.FakeArray((3,))).shape == (3,)


def test_missing_rule() -> None:
    """A kind without a rule is an error that says how to register one."""
    made = define("(Array x) -> Array", np.negative)
    with pytest.raises(co.MissingRuleError) as caught:
        made.rule(co.RuleKind("inverse"))
    error = caught.value
    assert (error.op, error.kind) == (made.qualname, "inverse")
    assert "register(inverse)" in error.do


# ---- typed errors ----

BAD_CALLS = [
    (lambda o: o("a"), co.ArgumentError),
    (lambda o: o(None), co.ArgumentError),
    (lambda o: o([1.0]), co.ArgumentError),
    (lambda o: o(X, "a"), co.ArgumentError),
    (lambda o: o(X, None), co.ArgumentError),
    (lambda o: o(), TypeError),
    (lambda o: o(X, 1.0, 2.0), TypeError),
    (lambda o: o(X, j=2.0), TypeError),
    (lambda o: o(X, x=X), TypeError),
]


@pytest.mark.parametrize("index", range(len(BAD_CALLS)))
def test_bad_call(index: int) -> None:
    """A call that does not fit is a TypeError, before and after the first good one."""
    call, error = BAD_CALLS[index]
    made = define("(Array x, float k=1.0) -> Array", lambda x, k=1.0: x * k)
    for _ in range(2):
        with pytest.raises(error) as caught:
            call(made)
        assert isinstance(caught.value, TypeError)
        made(X)


def test_argument_error_names_operator_and_parameter() -> None:
    """The error carries them as fields."""
    made = define("(Array x, float k=1.0) -> Array", lambda x, k=1.0: x * k)
    with pytest.raises(co.ArgumentError) as caught:
        made(X, "a")
    assert (caught.value.op, caught.value.parameter) == (made.qualname, "k")
    assert "expects float, got str 'a'" in str(caught.value)


def test_missing_argument_names_it() -> None:
    """Python's own message names the parameter and the operator."""
    made = define("(Array x, Array weight) -> Array", lambda x, weight: x * weight)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"op\d+\(\) missing .*'weight'"):
            made(X)


# ---- generated source ----


def test_source_is_what_runs() -> None:
    """op.source is the text of op.call, and tracebacks and pdb find its lines."""
    made = define("(Array x, float k=1.0) -> Array", lambda x, k=1.0: x * k)
    text = made.source
    assert text.startswith(f"def {made.name}(x, k=1.0):")
    assert inspect.getsource(made.call) == text
    assert isinstance(made.call, types.FunctionType)
    filename = made.call.__code__.co_filename
    assert "".join(linecache.getlines(filename)) == text
    linecache.checkcache()
    assert "".join(linecache.getlines(filename)) == text


def test_lines_go_when_the_next_function_is_made() -> None:
    """Not when the collector runs: Python may be going over the files at that moment."""
    filename = generate("one", "def f(): pass", "f", {}).__code__.co_filename
    gc.collect()
    assert filename in linecache.cache
    generate("two", "def f(): pass", "f", {})
    assert filename not in linecache.cache


def test_traceback_shows_generated_lines() -> None:
    """A traceback of a failing kernel shows the generated line that called it."""

    def bad(x: np.ndarray) -> np.ndarray:
        raise KeyError(1)

    made = define("(Array x) -> Array", bad)
    with pytest.raises(KeyError) as caught:
        made(X)
    (frame,) = (
        frame
        for frame in traceback.extract_tb(caught.value.__traceback__)
        if frame.filename.startswith("<customop")
    )
    assert frame.line
    assert frame.line in made.source
