"""The laws of dispatch: levels, ownership, leaks, state, missing rules, writes."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.interpreter import current_mode
from customop.core.observe import open_modes
from tests.nesting.test_words import Identity, times


class Look(co.Interpreter):
    """Keeps the operators and arguments that it sees."""

    kind = co.RuleKind("look")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[Any]]] = []

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        self.seen.append((op.qualname, list(args)))
        return self.wrap(op.invoke(self.unwrap(args)))


class Watch(co.Mode):
    """Counts operators by name, and runs them."""

    kind = co.RuleKind("watch")

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        self.names.append(op.qualname)
        return op.invoke(args)


# ---- law 1: levels ----


def test_levels_grow_and_are_never_reused() -> None:
    """Interpreters and modes take their levels from one counter and never reuse them."""
    levels = []
    for make in (Identity, Watch, Look, Identity, Watch):
        with make() as interpreter:
            levels.append(interpreter.level)

    assert levels == sorted(set(levels))


def test_the_highest_level_handles_a_call() -> None:
    """Of two interpreters among the arguments, the younger one gets the call."""
    with Look() as outer, Look() as inner:
        times(outer.wrap(np.array(2.0)), inner.wrap(np.array(3.0)))

    assert [name for name, _ in inner.seen] == ["nesting::times"]
    assert [type(a) for a in inner.seen[0][1]] == [co.Tracer, co.Tracer]
    assert len(outer.seen) == 1


# ---- law 2: a tracer holds values of lower levels ----


def test_tracers_hold_lower_levels_only() -> None:
    """Under three nested transforms every value is of a lower level than its tracer."""
    found: list[Any] = []

    def f(x: Any) -> Any:
        y = times(x, x)
        found.append(y)
        return y

    co.grad(lambda a: np.sum(co.vmap(co.grad(f))(a)))(np.array([1.0, 2.0]))
    tracer, levels = found[0], []
    while isinstance(tracer, co.Tracer):
        levels.append(tracer.interpreter.level)
        tracer = tracer.below

    assert len(levels) == 3
    assert levels == sorted(levels, reverse=True)
    assert type(tracer) is np.ndarray


# ---- law 3: only its own tracers ----


def test_another_interpreters_tracer_is_a_constant() -> None:
    """An interpreter leaves tracers of others in place when it unwraps."""
    with Look() as outer, Look() as inner:
        mine, other = inner.wrap(np.array(1.0)), outer.wrap(np.array(2.0))
        unwrapped = inner.unwrap([mine, other, [mine, other]])

    assert unwrapped[0] is mine.below
    assert unwrapped[1] is other
    assert unwrapped[2][1] is other


@pytest.mark.parametrize("order", ["inner", "outer"])
def test_no_perturbation_confusion(order: str) -> None:
    """d/dx x (d/dy (x + y)) is 1 and d/dx x (d/dy x y) at 1 is 2, for any x."""
    if order == "inner":
        value = co.grad(lambda x: x * co.grad(lambda y: x + y)(np.array(1.0)))
        assert value(np.array(3.0)) == 1.0
        return
    value = co.grad(lambda x: x * co.grad(lambda y: x * y)(np.array(1.0)))
    assert value(np.array(1.0)) == 2.0


def test_no_perturbation_confusion_in_forward_mode() -> None:
    """The same with jvp inside jvp."""

    def derivative(f: Any, x: Any) -> Any:
        return co.jvp(
            f, (np.asarray(x) if isinstance(x, float) else x,), (np.array(1.0),)
        )[1]

    assert derivative(lambda x: x * derivative(lambda y: x + y, 1.0), 3.0) == 1.0


# ---- law 4: rules call operators ----


def test_rules_are_seen_by_what_is_nested_outside() -> None:
    """The backward formula of an inner grad runs on operators that an outer one sees."""
    with Look() as look:
        co.grad(lambda x: times(x, x))(look.wrap(np.array(2.0)))

    # Once forward, twice in the backward formula.
    assert [n for n, _ in look.seen].count("nesting::times") == 3


# ---- law 5: tracers die ----


def test_a_tracer_is_dead_after_its_transform() -> None:
    """Using a value that escaped from grad is an error with the transform and the op."""
    escaped: list[Any] = []

    def leak(x: Any) -> Any:
        escaped.append(x)
        return x * x

    co.grad(leak)(np.array(1.0))

    with pytest.raises(co.LeakedTracerError) as caught:
        times(escaped[0], np.array(2.0))

    assert str(caught.value) == (
        "nesting::times gets a value of grad(leak), which has ended\n"
        f"  leak is defined at {__file__}:{leak.__code__.co_firstlineno}\n"
        "  do: return the value from the transformed function instead of storing it"
    )


def test_a_tracer_is_dead_after_an_exception() -> None:
    """An exception ends a transform."""
    escaped: list[Any] = []

    def fail(x: Any) -> Any:
        escaped.append(x)
        raise KeyError("stop")

    with pytest.raises(KeyError):
        co.vmap(fail)(np.ones(2))
    with pytest.raises(co.LeakedTracerError, match="vmap"):
        np.sin(escaped[0])


# ---- law 6: no state but the modes' ----


def test_exceptions_leave_nothing_behind() -> None:
    """After a mode and transforms end by an exception, calls run as before."""
    with pytest.raises(ZeroDivisionError), Watch():
        co.grad(lambda x: 1 // 0)(np.array(1.0))

    assert current_mode.get() is None
    assert open_modes == []
    assert times(np.array(2.0), np.array(3.0)) == 6.0


def test_a_mode_sees_operators_without_tracers() -> None:
    """A mode sees every operator while it is open, and none afterwards."""
    with Watch() as watch:
        times(np.array(2.0), np.array(3.0))
    times(np.array(2.0), np.array(3.0))

    assert watch.names == ["nesting::times"]


def test_the_mode_outside_is_current_while_one_handles_a_call() -> None:
    """Nested modes see a call one after the other, inner first."""
    with Watch() as outer, Watch() as inner:
        times(np.array(2.0), np.array(3.0))

    assert (outer.names, inner.names) == (["nesting::times"], ["nesting::times"])


def test_modes_and_tracers_interleave_by_age() -> None:
    """A mode older than a transform sees what the transform calls; a younger one first."""
    with Watch() as old:
        co.grad(lambda x: times(x, x))(np.array(2.0))
    with Look() as look:
        x = look.wrap(np.array(2.0))
        with Watch() as young:
            times(x, x)

    assert old.names.count("nesting::times") == 3
    assert young.names == ["nesting::times"]
    assert len(look.seen) == 1


def test_a_mode_is_of_its_own_thread() -> None:
    """A mode open in one thread does not see operators of another."""
    with Watch() as watch, ThreadPoolExecutor(1) as pool:
        value = pool.submit(times, np.array(2.0), np.array(3.0)).result()

    assert value == 6.0
    assert watch.names == []


def test_a_mode_is_opened_once() -> None:
    """Opening a mode a second time is an error, and changes nothing."""
    with Watch() as watch, pytest.raises(co.RegistrationError, match="second time"):
        watch.__enter__()

    assert open_modes == []


def test_threads_differentiate_independently() -> None:
    """Eight threads with nested gradients give the derivatives of each."""

    def work(k: int) -> list[float]:
        f = co.grad(co.grad(lambda x: times(times(x, x), x) * float(k)))
        return [float(f(np.array(float(i)))) for i in range(200)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(1, 9)))

    assert found == [[6.0 * k * i for i in range(200)] for k in range(1, 9)]


def test_a_thread_pool_inside_a_differentiated_function() -> None:
    """Calls that a function makes in other threads are part of its gradient."""

    def f(x: Any) -> Any:
        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(lambda k: times(x, x) * float(k), range(1, 5)))
        return sum(parts)

    assert co.grad(f)(np.array(3.0)) == 60.0


def test_generators_keep_their_transform() -> None:
    """Generators that interleave inside two transforms do not mix them up."""

    def powers(x: Any) -> Iterator[Any]:
        y = x
        while True:
            yield y
            y = times(y, x)

    with Identity() as a, Identity() as b:
        left, right = powers(a.wrap(np.array(2.0))), powers(b.wrap(np.array(3.0)))
        pairs = [(next(left), next(right)) for _ in range(3)]
        values = [(float(a.lower(p)), float(b.lower(q))) for p, q in pairs]

    assert values == [(2.0, 3.0), (4.0, 9.0), (8.0, 27.0)]
    assert (a.seen, b.seen) == (2, 2)


def test_closures_over_outer_values() -> None:
    """A function of an inner transform may use values of all outer ones."""

    def f(x: Any) -> Any:
        return co.grad(lambda y: co.grad(lambda z: x * y * y * z * z * z)(x))(x)

    # d/dz at z = x: 3 x^3 y^2 ; d/dy at y = x: 6 x^4 ; d/dx: 24 x^3.
    assert co.grad(f)(np.array(2.0)) == 24.0 * 8.0


# ---- law 7: no leaks into NumPy ----


@pytest.mark.usefixtures("unadapted")
@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (float, "float() of"),
        (int, "int() of"),
        (complex, "complex() of"),
        (np.asarray, "np.array(), or a NumPy kernel, is given"),
        (np.array, "np.array(), or a NumPy kernel, is given"),
        (lambda x: x.item(), "item() of"),
        (lambda x: x.tolist(), "tolist() of"),
    ],
)
def test_a_value_is_never_lost_in_silence(ask: Any, name: str) -> None:
    """An operation that would lose track of a value is an error that says so."""
    with pytest.raises(co.DataDependentError) as caught:
        co.grad(lambda x: x * 1.0 + ask(x))(np.array(2.0))

    assert str(caught.value).startswith(
        f"{name} GradTracer f64[], a value of grad(<lambda>)"
    )
    assert "stop_gradient(x) for the value alone" in str(caught.value)


def test_text_of_a_known_value_has_its_digits() -> None:
    """Text has no derivative."""
    seen: list[str] = []

    def f(x: Any) -> Any:
        seen.append(f"{x:.3f}")
        return x * x

    assert co.grad(co.grad(f))(np.array(2.0)) == 2.0
    assert seen == ["2.000"]


def test_python_may_branch_under_grad_and_jvp() -> None:
    """Comparisons give plain booleans where the value is concrete."""

    def f(x: Any) -> Any:
        return x * x if x > 1.0 else -x

    assert co.grad(f)(np.array(3.0)) == 6.0
    assert co.grad(f)(np.array(0.5)) == -1.0
    assert co.jvp(f, (np.array(0.5),), (np.array(2.0),))[1] == -2.0


def test_python_may_not_branch_under_vmap() -> None:
    """A branch on a batch is refused, with what to write instead."""
    with pytest.raises(co.DataDependentError) as caught:
        co.vmap(lambda x: x if x > 0 else -x)(np.array([1.0, -1.0]))

    assert "each row may have another value" in str(caught.value)
    assert "write np.where(x > 0, x, -x) in place of x if x > 0 else -x" in str(
        caught.value
    )


def test_a_tracer_is_no_ndarray() -> None:
    """No tracer and no fake array is an ndarray."""
    classes = [*co.Tracer.__subclasses__(), co.Tracer, co.FakeArray]

    assert not any(issubclass(cls, np.ndarray) for cls in classes)


# ---- law 8: fake is a kind of array ----


def test_transforms_run_over_fake_arrays() -> None:
    """Grad and vmap of fake arrays need no code of their own."""
    x = co.FakeArray((5, 3), np.float32)

    def loss(v: Any) -> Any:
        return np.sum(np.sin(v) * v)

    out = co.vmap(co.grad(loss))(x)

    assert (type(out), out.shape, out.dtype) == (co.FakeArray, (5, 3), np.dtype("f4"))


# ---- law 10: a missing row never yields a number ----


@pytest.fixture
def bare() -> Any:
    """An operator with a kernel and nothing else."""

    @co.custom_op("nesting::bare", mutates_args=())
    def bare(x: co.Array) -> co.Array:
        return x * 2.0

    return bare


@pytest.mark.parametrize(
    "ask",
    [
        lambda op, x: co.grad(lambda v: np.sum(op(v)))(x),
        lambda op, x: co.jvp(op, (x,), (x,)),
        lambda op, x: op(co.FakeArray((2,))),
        lambda op, x: co.vjp(op, x)[1](x),
    ],
    ids=["grad", "jvp", "fake", "vjp"],
)
def test_a_missing_rule_is_an_error(ask: Any, bare: Any) -> None:
    """Without a rule a transform is an error and never gives zeros."""
    with pytest.raises(co.MissingRuleError, match="nesting::bare"):
        ask(bare, np.ones(2))


def test_a_missing_formula_matters_only_where_a_gradient_flows(bare: Any) -> None:
    """An operator off the path of the gradient needs no formula."""
    value = co.grad(lambda x: np.sum(x * co.stop_gradient(bare(x))))(np.ones(2))

    np.testing.assert_array_equal(value, [2.0, 2.0])


# ---- law 11: tables are replaced whole ----


def test_a_second_rule_from_another_place_names_both(bare: Any) -> None:
    """A second rule of a kind is an error that names both lines, unless it overrides."""
    bare.register_fake(lambda x: co.fake_like(x))
    first = sys._getframe().f_lineno - 1
    with pytest.raises(co.RegistrationError) as caught:
        bare.register_fake(lambda x: x)
    second = sys._getframe().f_lineno - 1
    bare.register_fake(lambda x: x, override=True)

    assert f"from {__file__}:{first}" in str(caught.value)
    assert f"the second is at {__file__}:{second}" in str(caught.value)


def test_calls_meet_the_old_table_or_the_new(bare: Any) -> None:
    """While a thread registers kernels, a call in another uses the old or the new one."""
    stop = threading.Event()
    wrong: list[Any] = []

    def call() -> None:
        x = np.ones(1)
        while not stop.is_set():
            value = float(bare(x)[0])
            if value not in (2.0, 3.0):
                wrong.append(value)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(300):
        factor = 2.0 + i % 2
        bare.register_kernel("cpu", lambda x, _f=factor: x * _f)
    stop.set()
    for thread in threads:
        thread.join()

    assert wrong == []


# ---- law 12: no traced value goes into an untraced array ----


@pytest.fixture
def put() -> Any:
    """Writes its second array into its first."""

    @co.custom_op("nesting::put", mutates_args=("target",))
    def put(target: np.ndarray, value: np.ndarray) -> None:
        target[...] = value

    return put


@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap"])
def test_a_traced_value_is_not_written_into_an_array(transform: str, put: Any) -> None:
    """The error names the argument, and the array is unchanged."""
    target = np.zeros(3)

    def f(x: Any) -> Any:
        put(target, x)
        return np.sum(x)

    x = np.ones(3)
    run = {
        "grad": lambda: co.grad(f)(x),
        "jvp": lambda: co.jvp(f, (x,), (x,)),
        "vmap": lambda: co.vmap(f)(np.ones((2, 3))),
    }[transform]
    with pytest.raises(co.CustomOpError, match="writes its argument 'target'"):
        run()

    np.testing.assert_array_equal(target, np.zeros(3))


@pytest.mark.usefixtures("unadapted")
@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap"])
def test_out_of_numpy_refuses_traced_values(transform: str) -> None:
    """`out=` and `+=` on an array outside refuse traced values, too."""
    target = np.zeros(3)

    def f(x: Any) -> Any:
        nonlocal target
        target += x
        return np.sum(x)

    x = np.ones(3)
    with pytest.raises(co.ArgumentError, match="into a plain array"):
        {
            "grad": lambda: co.grad(f)(x),
            "jvp": lambda: co.jvp(f, (x,), (x,)),
            "vmap": lambda: co.vmap(f)(np.ones((2, 3))),
        }[transform]()


# ---- memory and depth ----


@pytest.mark.exhaustive
def test_a_long_chain_needs_no_recursion() -> None:
    """A chain of 100,000 operators has the gradient of the product it computes."""

    def f(x: Any) -> Any:
        for _ in range(100_000):
            x = x * 1.00001
        return x

    assert co.grad(f)(np.array(1.0)) == pytest.approx(np.exp(100_000 * np.log(1.00001)))


def test_backward_frees_memory_on_the_way() -> None:
    """Saved arrays are freed before the formulas of earlier calls run."""
    alive: list[int] = []
    saved: list[weakref.ref[Any]] = []

    class Big(np.ndarray):
        pass

    @co.custom_op("nesting::step", mutates_args=())
    def step(x: np.ndarray) -> np.ndarray:
        return x * 1.0

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        kept = np.zeros(10).view(Big)
        saved.append(weakref.ref(kept))
        ctx.save_for_backward(kept)

    def back(ctx: Any, g: Any) -> Any:
        alive.append(sum(r() is not None for r in saved))
        return g

    step.register_autograd(back, setup_context=setup)

    def f(x: Any) -> Any:
        for _ in range(50):
            x = step(x)
        return np.sum(x)

    gc.disable()
    try:
        co.grad(f)(np.ones(3))
    finally:
        gc.enable()

    assert alive == list(range(50, 0, -1))
