"""What a recorder records, and that it does not change results."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.pytest.findings import RecordedCall, Recorder
from customop.pytest.options import is_named


@co.custom_op("recording::scale", mutates_args=())
def scale(x: np.ndarray, k: float = 2.0, *, axis: int = 0) -> np.ndarray:
    return x * k


scale.register_fake(lambda x, k=2.0, *, axis=0: co.fake_like(x))
scale.register_autograd(
    lambda ctx, g: (g * ctx.k, None),
    setup_context=lambda ctx, inputs, keyword_only_inputs, output: setattr(
        ctx, "k", inputs[1]
    ),
)


@scale.register_vmap
def _(info, in_dims, x, k, *, axis):
    return scale(x, k, axis=axis), in_dims[0]


@co.custom_op("recording::bump", mutates_args=("x",))
def bump(x: np.ndarray) -> None:
    x += 1


@co.custom_op("recording::positive", mutates_args=())
def positive(x: np.ndarray) -> np.ndarray:
    if x.size and x.min() < 0:
        raise ValueError("negative")
    return x.copy()


@co.custom_op("recording::total", mutates_args=())
def total(xs: list[np.ndarray]) -> np.ndarray:
    return sum((x.sum() for x in xs), np.zeros(()))


@co.custom_op("recording::draw", mutates_args=())
def draw(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.standard_normal(n)


@co.custom_op("recording::outer", mutates_args=())
def outer(x: np.ndarray) -> np.ndarray:
    return scale(x) + 1


co.define("recording::body", "(Array x) -> Array")
co.define("recording::double_body", "(Array x) -> Array")


@co.impl("recording::body", "CompositeImplicitAutograd")
def _(x):
    return scale(x)


@co.impl("recording::double_body", "CompositeImplicitAutograd")
def _(x):
    return body(body(x))


body = co.ops.recording.body.default
double_body = co.ops.recording.double_body.default


@pytest.fixture
def log() -> Recorder:
    """A recorder for the operators of this file."""
    return Recorder(lambda name: is_named(name, "recording"))


def calls(log: Recorder) -> list[RecordedCall]:
    """Return the recorded calls in order."""
    return list(log.calls.values())


def names(log: Recorder) -> list[str]:
    """Return the operators in the order in which they first returned."""
    return [call.op.name for call in calls(log)]


# ---- which calls are seen ----


def test_similar_calls_are_one(log: Recorder) -> None:
    """The calls of a loop are one recorded call with a count."""
    with log:
        for i in range(1000):
            scale(np.full(3, float(i)), 1.0 + i)
    (call,) = calls(log)
    assert call.count == 1000
    np.testing.assert_array_equal(call.sample.args[0], np.zeros(3))
    assert (call.sample.args[1], dict(call.sample.kwargs)) == (1.0, {"axis": 0})


BASE = (np.ones((4, 4)), 2.0, 0)
frozen = np.ones((4, 4))
frozen.flags.writeable = False
DIFFERENT: dict[str, tuple[Any, Any, Any]] = {
    "shape": (np.ones((4, 5)), 2.0, 0),
    "dtype": (np.ones((4, 4), np.float32), 2.0, 0),
    "strides": (np.ones((4, 4)).T, 2.0, 0),
    "class": (np.ones((4, 4)).view(np.matrix), 2.0, 0),
    "sign of a float": (np.ones((4, 4)), -2.0, 0),
    "zero": (np.ones((4, 4)), 0.0, 0),
    "not a number": (np.ones((4, 4)), np.nan, 0),
    "small integer": (np.ones((4, 4)), 2.0, 1),
    "large integer": (np.ones((4, 4)), 2.0, 1000),
}
SIMILAR: dict[str, tuple[Any, Any, Any]] = {
    "read-only": (frozen, 2.0, 0),
    "elements": (np.zeros((4, 4)), 2.0, 0),
    "size of a float": (np.ones((4, 4)), 7.0, 0),
}


@pytest.mark.parametrize("name", [*DIFFERENT, *SIMILAR])
def test_calls_that_differ(log: Recorder, name: str) -> None:
    """Calls differ by shapes, dtypes, strides, classes and most numbers."""
    with log:
        for x, k, axis in (BASE, DIFFERENT.get(name) or SIMILAR[name]):
            scale(x, k, axis=axis)
    assert len(calls(log)) == (2 if name in DIFFERENT else 1)


def test_nested_arrays_differ(log: Recorder) -> None:
    """Calls differ by the arrays in lists and by the lengths of lists."""
    with log:
        total([np.ones(2), np.ones(3)])
        total([np.zeros(2), np.zeros(3)])
        total([np.ones(3), np.ones(2)])
        total([np.ones(2)])
    assert [call.count for call in calls(log)] == [2, 1, 1]


def test_one_array_in_two_places(log: Recorder) -> None:
    """A call with one array twice differs from a call with two; its copy does too."""
    x = np.ones(2)
    with log:
        total([np.ones(2), np.ones(2)])
        total([x, x])
    (apart,), (same,) = (call.sample.args for call in calls(log))
    assert apart[0] is not apart[1]
    assert same[0] is same[1]
    assert same[0] is not x


def test_generators_are_similar(log: Recorder) -> None:
    """Calls do not differ by random generators, which are copied."""
    with log:
        for seed in range(5):
            draw(np.random.default_rng(seed), 3)
    (call,) = calls(log)
    copy = call.sample.args[0]
    np.testing.assert_array_equal(
        copy.standard_normal(3), np.random.default_rng(0).standard_normal(3)
    )


def test_arguments_are_as_before_the_call(log: Recorder) -> None:
    """The copies do not change when the operator or later code writes."""
    x = np.zeros(3)
    with log:
        bump(x)
    x[...] = 7
    (call,) = calls(log)
    np.testing.assert_array_equal(call.sample.args[0], np.zeros(3))


def test_copies_keep_the_layout(log: Recorder) -> None:
    """Copies have the strides and flags of the arrays."""
    x = np.broadcast_to(np.arange(6.0)[::-2], (2, 3))
    with log:
        scale(x)
    (copy, _) = calls(log)[0].sample.args
    assert (copy.strides, copy.flags.writeable) == (x.strides, False)
    np.testing.assert_array_equal(copy, x)
    assert not np.shares_memory(copy, x)


def test_unwanted_operators() -> None:
    """Only wanted operators are recorded."""
    log = Recorder(lambda name: is_named(name, "recording::bump"))
    with log:
        scale(np.ones(2))
        bump(np.ones(2))
    assert names(log) == ["bump"]


def test_calls_that_raise_are_counted(log: Recorder) -> None:
    """A call that raises is counted; a similar call that returns is recorded."""
    with log:
        with pytest.raises(ValueError, match="negative"):
            positive(-np.ones(2))
        positive(np.ones(2))
    (call,) = calls(log)
    assert (call.count, log.raised) == (1, 1)
    np.testing.assert_array_equal(call.sample.args[0], np.ones(2))


def test_a_kernel_that_refuses_read_only_arrays(log: Recorder) -> None:
    """A kernel that runs again on copies is one call, and does not count as raised."""

    @co.custom_op("recording::picky", mutates_args=())
    def picky(x: np.ndarray) -> np.ndarray:
        if not x.flags.writeable:
            raise ValueError("buffer source array is read-only")
        return x.copy()

    with log:
        picky(np.ones(2))
    assert [(call.count, log.raised) for call in calls(log)] == [(1, 0)]


def test_a_rule_that_raises(log: Recorder) -> None:
    """Only kernels that raise are counted, not rules."""

    @co.custom_op("recording::unbatched", mutates_args=())
    def unbatched(x: np.ndarray) -> np.ndarray:
        return x.copy()

    @unbatched.register_vmap
    def _(info, in_dims, x):
        raise ValueError("no rows")

    with log, pytest.raises(ValueError, match="no rows"):
        co.vmap(unbatched)(np.ones((2, 2)))
    assert (calls(log), log.raised) == ([], 0)


def test_calls_inside_a_kernel(log: Recorder) -> None:
    """Calls inside a kernel are not recorded."""
    with log:
        outer(np.ones(2))
    assert names(log) == ["outer"]


def test_calls_inside_a_body(log: Recorder) -> None:
    """An operator with a body is recorded, and so are the calls of the body."""
    with log:
        out = double_body(np.ones(2))
    assert names(log) == ["scale", "body", "double_body"]
    assert [call.count for call in calls(log)] == [2, 2, 1]
    np.testing.assert_array_equal(out, np.full(2, 4.0))


def test_calls_after_the_block(log: Recorder) -> None:
    """Calls after the block are not recorded."""
    with log:
        scale(np.ones(2))
    scale(np.ones(3))
    assert [call.sample.args[0].shape for call in calls(log)] == [(2,)]


# ---- transforms ----


def test_calls_under_grad(log: Recorder) -> None:
    """Under grad the calls on values are recorded, also those of backward rules."""
    with log:
        slope = co.grad(lambda x: np.sum(scale(scale(x))))(np.ones(3))
    (call,) = calls(log)
    assert (type(call.sample.args[0]), call.count) == (np.ndarray, 2)
    np.testing.assert_array_equal(slope, np.full(3, 4.0))


def test_calls_under_vmap(log: Recorder) -> None:
    """Under vmap the calls of the rule are recorded."""
    with log:
        co.vmap(scale)(np.ones((4, 3)))
    assert [call.sample.args[0].shape for call in calls(log)] == [(4, 3)]


def test_fake_arrays(log: Recorder) -> None:
    """A call with fake arrays is counted, not recorded."""
    with log:
        co.eval_shape(scale, np.ones(3))
        with co.FakeMode() as mode:
            scale(mode.from_array(np.ones(3)))
    assert (calls(log), log.without_values) == ([], 2)


def test_a_transform_around_the_recording(log: Recorder) -> None:
    """Under a transform that began before the recording, its kernels are recorded."""

    def recorded(x: Any) -> Any:
        with log:
            return scale(x)

    np.testing.assert_array_equal(
        co.vmap(recorded)(np.ones((2, 3))), np.full((2, 3), 2)
    )
    (call,) = calls(log)
    assert (call.sample.args[0].shape, log.without_values) == ((2, 3), 0)


def test_variables(log: Recorder) -> None:
    """A variable is recorded as its array."""
    v = co.variable(np.ones(3))
    with log:
        co.backward(np.sum(scale(v)))
    (call,) = calls(log)
    assert type(call.sample.args[0]) is np.ndarray
    np.testing.assert_array_equal(v.grad, np.full(3, 2.0))


def test_autocast(log: Recorder) -> None:
    """Inside autocast a call is recorded with the cast arrays."""

    @co.custom_op("recording::cast", mutates_args=())
    def cast(x: np.ndarray) -> np.ndarray:
        return x + 1

    cast.register_autocast("cpu", np.float16)
    with log, co.autocast("cpu"):
        cast(np.ones(2, np.float32))
    assert [call.sample.args[0].dtype for call in calls(log)] == [np.float16]


# ---- threads ----


def test_threads(log: Recorder) -> None:
    """Calls in threads and pools are recorded."""
    with log:
        thread = threading.Thread(target=scale, args=(np.ones(2),))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(scale, [np.ones(3)] * 50))
    assert {c.sample.args[0].shape: c.count for c in calls(log)} == {(2,): 1, (3,): 50}


def test_a_subclass_of_thread(log: Recorder) -> None:
    """A subclass of Thread is recorded, and keeps its attributes."""

    class Worker(threading.Thread):
        def run(self) -> None:
            self.out = scale(np.ones(2))

    with log:
        worker = Worker()
        worker.start()
        worker.join()
    assert names(log) == ["scale"]
    np.testing.assert_array_equal(worker.out, np.full(2, 2.0))


def test_a_thread_may_outlive_the_block(log: Recorder) -> None:
    """Calls of a thread after the block are not recorded."""
    go = threading.Event()
    found: list[Any] = []

    def work() -> None:
        go.wait()
        found.append(scale(np.ones(2)))

    with log:
        thread = threading.Thread(target=work)
        thread.start()
    go.set()
    thread.join()
    np.testing.assert_array_equal(found, [np.full(2, 2.0)])
    assert calls(log) == []


# ---- nothing changes ----


def gradient() -> Any:
    return co.grad(lambda x: np.sum(scale(x, 3.0)))(np.arange(3.0))


def mutation() -> Any:
    x = np.zeros(2)
    bump(x)
    return x


def randomness() -> Any:
    return draw(np.random.default_rng(3), 4)


def batch() -> Any:
    return co.vmap(co.grad(lambda x: np.sum(scale(x) * x)))(np.ones((2, 3)))


@pytest.mark.parametrize("program", [gradient, mutation, randomness, batch])
def test_results_are_the_same(log: Recorder, program: Any) -> None:
    """A program gives the same numbers with and without a recorder."""
    expected = program()
    with log:
        np.testing.assert_array_equal(program(), expected)


def test_errors_are_the_same(log: Recorder) -> None:
    """An error is the same with and without a recorder."""
    with pytest.raises(co.ArgumentError) as plain:
        scale("text")
    with log, pytest.raises(co.ArgumentError) as recorded:
        scale("text")
    assert str(recorded.value) == str(plain.value)


def with_kernel(op: Any) -> Any:
    op.register_kernel("cpu", lambda x: x * 10)


def with_default_kernel(op: Any) -> Any:
    op.register_kernel(None, lambda x: x * 20)


def with_gradient(op: Any) -> Any:
    op.register_autograd(lambda ctx, g: g * 30)


def with_class_rule(op: Any) -> Any:
    op.register_array_dispatch(np.ma.MaskedArray, lambda op, args, kwargs: args[0] * 40)


@pytest.mark.parametrize(
    "add", [with_kernel, with_default_kernel, with_gradient, with_class_rule]
)
def test_rules_go_before_a_body(log: Recorder, add: Any) -> None:
    """Kernels and rules go before the body of an operator, as without a recorder."""
    with co.Library("recording", "FRAGMENT") as lib:
        lib.define("gives_way(Array x) -> Array")
        lib.impl("gives_way", lambda x: scale(x), "CompositeImplicitAutograd")
        op = co.ops.recording.gives_way.default
        add(op)

        def program() -> Any:
            x = np.ones(2)
            slope = co.grad(lambda x: np.sum(op(x)))(x)
            v = co.variable(x)
            co.backward(np.sum(op(v)))
            return op(x), slope, v.grad, op(np.ma.MaskedArray(x, [True, False]))

        expected = program()
        with log:
            found = program()
        for actual, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(actual, wanted)
            assert type(actual) is type(wanted)


def test_a_copied_context(log: Recorder) -> None:
    """A context copied in the block runs operators after the block."""
    with log:
        context = copy_context()
    np.testing.assert_array_equal(context.run(scale, np.ones(2)), np.full(2, 2.0))
    with Recorder(lambda name: True):
        np.testing.assert_array_equal(context.run(scale, np.ones(2)), np.full(2, 2.0))
    assert calls(log) == []


# ---- operators that go ----


@pytest.fixture
def library() -> Iterator[co.Library]:
    """A library with one operator, closed after the test."""
    with co.Library("recording", "FRAGMENT") as lib:
        lib.define("passing(Array x) -> Array")
        lib.impl("passing", lambda x: x * 2, "CPU")
        yield lib


def test_an_operator_that_is_gone(log: Recorder, library: co.Library) -> None:
    """A recorded call knows that its operator was taken back."""
    with log:
        co.ops.recording.passing(np.ones(2))
    (call,) = calls(log)
    assert call.gone == ""
    library.close()
    assert call.gone == "taken back before the test ended"


def test_a_kernel_that_is_gone(log: Recorder) -> None:
    """A recorded call knows that its operator lost a kernel."""
    co.define("recording::bare", "(Array x) -> Array")
    with co.Library("recording", "IMPL") as lib:
        lib.impl("bare", lambda x: x * 2, "CPU")
        with log:
            co.ops.recording.bare(np.ones(2))
        co.ops.recording.bare.default.register_fake(lambda x: co.fake_like(x))
        (call,) = calls(log)
        assert call.gone == ""
    expected = "left without its rule for 'cpu' before the test ended"
    assert call.gone == expected


def test_an_operator_that_is_defined_again(log: Recorder) -> None:
    """A recorded call knows that its operator was defined again."""

    def define() -> Any:
        @co.custom_op("recording::again", mutates_args=())
        def again(x: np.ndarray) -> np.ndarray:
            return x + 1

        return again

    with log:
        define()(np.ones(2))
        define()(np.ones(2))
    assert [call.gone for call in calls(log)] == ["defined again after the call", ""]


def test_an_old_definition_is_freed(log: Recorder) -> None:
    """A recorder does not keep old kernels alive."""

    class Weight:
        pass

    found = []

    def old_and_new() -> None:
        for _ in range(2):
            weight = Weight()
            found.append(weakref.ref(weight))

            @co.custom_op("recording::heavy", mutates_args=())
            def heavy(x: np.ndarray) -> np.ndarray:
                assert weight is not None  # noqa: B023  # of this very definition
                return x + 1

            heavy(np.ones(2))

    with log:
        old_and_new()
    gc.collect()
    assert [reference() is None for reference in found] == [True, False]


# ---- names ----


@pytest.mark.parametrize(
    ("qualname", "pattern", "expected"),
    [
        ("lib::f", "lib", True),
        ("lib::f", "li", False),
        ("lib::f", "li*", True),
        ("lib::f", "lib::f", True),
        ("lib::f", "lib::*", True),
        ("lib::f", "lib::g", False),
        ("lib::f", "lib::f.default", True),
        ("lib::f.out", "lib::f", True),
        ("lib::f.out", "lib::f.out", True),
        ("lib::f.out", "lib::f.default", False),
        ("lib::f", "ALL", True),
        ("np::sin", "ALL", False),
        ("customop::stop_gradient", "ALL", False),
        ("np::sin", "np", True),
        ("np::sin", "np::sin", True),
    ],
)
def test_names_of_operators(qualname: str, pattern: str, expected: bool) -> None:
    """A pattern is a namespace, a name or an overload, with wildcards."""
    assert is_named(qualname, pattern) is expected
