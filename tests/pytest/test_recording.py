"""What a recording sees of the calls of a block, and that it changes nothing."""

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
from customop.pytest.recording import RecordedCall, Recorder
from customop.pytest.requests import is_named


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
    """A log of the operators of this file."""
    return Recorder(lambda name: is_named(name, "recording"))


def calls(log: Recorder) -> list[RecordedCall]:
    """Return the calls of a log, in order."""
    return list(log.calls.values())


def names(log: Recorder) -> list[str]:
    """Return the operators of a log, by the order in which they first returned."""
    return [call.op.name for call in calls(log)]


# ---- which calls are seen ----


def test_alike_calls_are_one(log: Recorder) -> None:
    """A loop is one call, which says how often it was made."""
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
OTHERS: dict[str, tuple[Any, Any, Any]] = {
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
ALIKE: dict[str, tuple[Any, Any, Any]] = {
    "read-only": (frozen, 2.0, 0),
    "elements": (np.zeros((4, 4)), 2.0, 0),
    "size of a float": (np.ones((4, 4)), 7.0, 0),
}


@pytest.mark.parametrize("name", [*OTHERS, *ALIKE])
def test_what_tells_calls_apart(log: Recorder, name: str) -> None:
    """Calls differ by shapes, dtypes, strides, classes and most numbers."""
    with log:
        for x, k, axis in (BASE, OTHERS.get(name) or ALIKE[name]):
            scale(x, k, axis=axis)
    assert len(calls(log)) == (2 if name in OTHERS else 1)


def test_nested_arrays_tell_calls_apart(log: Recorder) -> None:
    """Arrays in a list count as others do, and so does how many there are."""
    with log:
        total([np.ones(2), np.ones(3)])
        total([np.zeros(2), np.zeros(3)])
        total([np.ones(3), np.ones(2)])
        total([np.ones(2)])
    assert [call.count for call in calls(log)] == [2, 1, 1]


def test_one_array_in_two_places_tells_calls_apart(log: Recorder) -> None:
    """A call with one array twice differs from one with two, and its copy keeps that."""
    x = np.ones(2)
    with log:
        total([np.ones(2), np.ones(2)])
        total([x, x])
    (apart,), (same,) = (call.sample.args for call in calls(log))
    assert apart[0] is not apart[1]
    assert same[0] is same[1]
    assert same[0] is not x


def test_generators_are_alike(log: Recorder) -> None:
    """Random generators do not tell calls apart, and are copied as they were."""
    with log:
        for seed in range(5):
            draw(np.random.default_rng(seed), 3)
    (call,) = calls(log)
    copy = call.sample.args[0]
    np.testing.assert_array_equal(
        copy.standard_normal(3), np.random.default_rng(0).standard_normal(3)
    )


def test_arguments_are_as_before_the_call(log: Recorder) -> None:
    """What the operator writes, and what is written later, is not in the copies."""
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


def test_unwanted_operators_are_left_out() -> None:
    """Only operators that are asked for are noted."""
    log = Recorder(lambda name: is_named(name, "recording::bump"))
    with log:
        scale(np.ones(2))
        bump(np.ones(2))
    assert names(log) == ["bump"]


def test_calls_that_raise_are_counted(log: Recorder) -> None:
    """A call that raises is no call to check; one like it that returns is."""
    with log:
        with pytest.raises(ValueError, match="negative"):
            positive(-np.ones(2))
        positive(np.ones(2))
    (call,) = calls(log)
    assert (call.count, log.raised) == (1, 1)
    np.testing.assert_array_equal(call.sample.args[0], np.ones(2))


def test_calls_inside_a_kernel_are_part_of_it(log: Recorder) -> None:
    """What a kernel calls is not seen, as with all modes."""
    with log:
        outer(np.ones(2))
    assert names(log) == ["outer"]


def test_bodies_are_seen_and_seen_into(log: Recorder) -> None:
    """An operator with a body is noted, and what its body calls too, at any depth."""
    with log:
        out = double_body(np.ones(2))
    assert names(log) == ["scale", "body", "double_body"]
    assert [call.count for call in calls(log)] == [2, 2, 1]
    np.testing.assert_array_equal(out, np.full(2, 4.0))


def test_nothing_is_seen_afterwards(log: Recorder) -> None:
    """The block has an end."""
    with log:
        scale(np.ones(2))
    scale(np.ones(3))
    assert [call.sample.args[0].shape for call in calls(log)] == [(2,)]


# ---- transforms ----


def test_grad_is_seen_with_values(log: Recorder) -> None:
    """Under grad, what is seen is the call on values, of the backward rule too."""
    with log:
        slope = co.grad(lambda x: np.sum(scale(scale(x))))(np.ones(3))
    (call,) = calls(log)
    assert (type(call.sample.args[0]), call.count) == (np.ndarray, 2)
    np.testing.assert_array_equal(slope, np.full(3, 4.0))


def test_vmap_is_seen_by_what_its_rule_calls(log: Recorder) -> None:
    """Under vmap, what is seen are the calls of the rule, here one for the batch."""
    with log:
        co.vmap(scale)(np.ones((4, 3)))
    assert [call.sample.args[0].shape for call in calls(log)] == [(4, 3)]


def test_fake_arrays_are_no_values(log: Recorder) -> None:
    """A call on fake arrays is counted and not noted."""
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


def test_variables_are_seen_with_their_values(log: Recorder) -> None:
    """A variable stands for its array."""
    v = co.variable(np.ones(3))
    with log:
        co.backward(np.sum(scale(v)))
    (call,) = calls(log)
    assert type(call.sample.args[0]) is np.ndarray
    np.testing.assert_array_equal(v.grad, np.full(3, 2.0))


def test_casts_are_seen(log: Recorder) -> None:
    """Inside autocast the call is seen with the arrays that are cast."""

    @co.custom_op("recording::cast", mutates_args=())
    def cast(x: np.ndarray) -> np.ndarray:
        return x + 1

    cast.register_autocast("cpu", np.float16)
    with log, co.autocast("cpu"):
        cast(np.ones(2, np.float32))
    assert [call.sample.args[0].dtype for call in calls(log)] == [np.float16]


# ---- threads ----


def test_threads_of_the_block_are_seen(log: Recorder) -> None:
    """Calls in threads and pools that the block starts are seen."""
    with log:
        thread = threading.Thread(target=scale, args=(np.ones(2),))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(scale, [np.ones(3)] * 50))
    assert {c.sample.args[0].shape: c.count for c in calls(log)} == {(2,): 1, (3,): 50}


def test_a_class_of_threads_is_seen(log: Recorder) -> None:
    """A thread with a `run` of its own is seen, and keeps its context."""

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
    """Later calls of such a thread run as ever, and are not noted."""
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
    """A program gives the same numbers with a recorder and without."""
    expected = program()
    with log:
        np.testing.assert_array_equal(program(), expected)


def test_errors_are_the_same(log: Recorder) -> None:
    """What raises goes on to raise the same error."""
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
def test_a_body_gives_way_as_without(log: Recorder, add: Any) -> None:
    """Kernels and rules of its own go before the body of an operator as ever."""
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


def test_a_copied_context_goes_on(log: Recorder) -> None:
    """A context copied in the block runs operators after it, also in another block."""
    with log:
        context = copy_context()
    np.testing.assert_array_equal(context.run(scale, np.ones(2)), np.full(2, 2.0))
    with Recorder(lambda name: True):
        np.testing.assert_array_equal(context.run(scale, np.ones(2)), np.full(2, 2.0))
    assert calls(log) == []


# ---- operators that go ----


@pytest.fixture
def library() -> Iterator[co.Library]:
    """A library of one operator, closed after the test at the latest."""
    with co.Library("recording", "FRAGMENT") as lib:
        lib.define("passing(Array x) -> Array")
        lib.impl("passing", lambda x: x * 2, "CPU")
        yield lib


def test_an_operator_may_be_gone(log: Recorder, library: co.Library) -> None:
    """A call says that its operator was taken back since."""
    with log:
        co.ops.recording.passing(np.ones(2))
    (call,) = calls(log)
    assert call.gone == ""
    library.close()
    assert call.gone == "taken back before the test ended"


def test_a_kernel_may_be_gone(log: Recorder) -> None:
    """A call says that its operator has lost a kernel since; new ones do not matter."""
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


def test_an_operator_may_be_another(log: Recorder) -> None:
    """A call says that its operator was defined anew since; new calls are others."""

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
    """A recording keeps no kernel alive that the operator has no more."""

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
    """A pattern is a namespace, a name, an overload, or stands for several."""
    assert is_named(qualname, pattern) is expected
