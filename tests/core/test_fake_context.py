"""`get_ctx`: sizes that depend on data, in the fake kernels of custom operators."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop import Operator
from customop.core.fake_context import has_sizes, runs_fake_kernels


def nonzero(name: str, low: Any = 0, high: Any = None) -> Operator[..., Any]:
    """Make an operator whose result has as many rows as there are elements."""

    @co.custom_op(f"ctxtest::{name}", mutates_args=())
    def op(x: np.ndarray) -> np.ndarray:
        return np.stack(np.nonzero(x), axis=1)

    @op.register_fake
    def _(x: Any) -> co.FakeArray:
        most = high(x) if callable(high) else high
        size = co.get_ctx().new_dynamic_size(min=low, max=most)
        return co.FakeArray((size, x.ndim), np.int64)

    return op


def test_each_call_has_a_size_of_its_own() -> None:
    """Their names differ while they are in use, in one thread and outside of modes."""
    op = nonzero("own")
    gc.collect()
    first, second = op(co.FakeArray((5,))), op(co.FakeArray((5,)))
    assert first.shape[0].context is second.shape[0].context
    assert str(first.shape[0]) != str(second.shape[0])
    with pytest.raises(co.DataDependentError):
        first + second
    co.check(first.shape[0] == second.shape[0])
    assert (first + second).shape == first.shape


def test_modes_and_eval_shape_begin_anew() -> None:
    """A size belongs to the mode, or to the arrays that a call gets."""
    op = nonzero("modes")
    for _ in range(2):
        assert (
            repr(co.eval_shape(op, np.ones(3))) == "FakeArray(i64[u0, 1], device='cpu')"
        )
    mode = co.FakeMode()
    x = mode.from_array(np.ones((2, 3)), sizes=("n", 3))
    with mode:
        found = [op(x), op(np.ones(3)), op(np.ones(3))]
    assert [str(y.shape[0]) for y in found] == ["u0", "u1", "u2"]
    assert {id(y.shape[0].context) for y in found} == {id(x.shape[0].context)}


def test_fake_kernels_may_call_operators() -> None:
    """The sizes of the inner call come from the same context."""
    inner = nonzero("inner")

    @co.custom_op("ctxtest::outer", mutates_args=())
    def outer(x: np.ndarray) -> np.ndarray:
        return np.asarray(inner(x)[:, 0])

    @outer.register_fake
    def _(x: Any) -> Any:
        before = co.get_ctx().new_dynamic_size()
        rows = inner(x)
        after = co.get_ctx().new_dynamic_size()
        assert before.context is rows.shape[0].context is after.context
        return rows[:, 0]

    assert repr(co.eval_shape(outer, np.ones(3))) == "FakeArray(i64[u1], device='cpu')"
    assert outer(np.ones(3)).shape == (3,)


def test_threads_have_sizes_of_their_own() -> None:
    """Also while a fake kernel of another thread runs."""
    op = nonzero("threads")
    found: list[Any] = []

    def call() -> None:
        found.append(op(co.FakeArray((5,))))
        found.append(outcome(co.get_ctx))

    mine = op(co.FakeArray((5,)))
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert str(found[0].shape[0]) == "u0"
    assert found[0].shape[0].context is not mine.shape[0].context
    assert found[1] is co.RegistrationError


def outcome(fn: Callable[[], Any]) -> Any:
    """Return a result, or the class of an error."""
    try:
        return fn()
    except Exception as error:  # noqa: BLE001  # the test compares its class
        return type(error)


def test_outside_of_a_fake_kernel_there_is_no_context() -> None:
    """Not in a kernel of real arrays either."""
    with pytest.raises(co.RegistrationError) as error:
        co.get_ctx()
    assert str(error.value) == (
        "get_ctx() is called outside of a fake kernel\n"
        f"  at {__file__}:{error.traceback[0].lineno + 1}\n"
        "  do: call it in the function that is given to register_fake"
    )

    @co.custom_op("ctxtest::real", mutates_args=())
    def real(x: np.ndarray) -> np.ndarray:
        return np.ones(co.get_ctx().new_dynamic_size())

    with pytest.raises(co.RegistrationError):
        real(np.ones(3))


def test_a_bound_may_be_symbolic() -> None:
    """It is a fact about the new size."""
    op = nonzero("bound", high=lambda x: x.size)
    x = co.FakeMode().from_array(np.ones((2, 3)), sizes=("n", 3))
    size = op(x).shape[0]
    assert size <= 3 * x.shape[0]
    assert size < 3 * x.shape[0] + 1
    assert [guard.text for guard in size.context.checks] == ["u0 <= 3*n"]
    assert op(np.ones((2, 3))).shape == (6, 2)


@pytest.mark.parametrize(
    ("low", "high", "fault"),
    [
        (0, 2, "a size 3, and the fake kernel says at most 2"),
        (4, None, "a size 3, and the fake kernel says at least 4"),
    ],
)
def test_real_results_are_within_the_bounds(low: int, high: Any, fault: str) -> None:
    """Otherwise the first call of the kernel raises."""
    op = nonzero(f"bounds_{low}", low, high)
    with pytest.raises(co.ContractError) as error:
        op(np.ones(3))
    lines = str(error.value).splitlines()
    assert lines[0] == f"ctxtest::bounds_{low}: the 'cpu' kernel returns {fault}"
    assert lines[1].startswith("  fake kernel at ")
    assert lines[-1] == (
        "  do: give new_dynamic_size(min=..., max=...) the bounds that results have"
    )


def test_a_size_is_the_same_in_all_results() -> None:
    """Real results that have two lengths for one size break the contract."""

    @co.custom_op("ctxtest::pair", mutates_args=())
    def pair(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x[x > 0], x[x > 1]

    @pair.register_fake
    def _(x: Any) -> tuple[Any, Any]:
        size = co.get_ctx().new_dynamic_size()
        return co.fake_like(x, shape=(size,)), co.fake_like(x, shape=(size,))

    with pytest.raises(co.ContractError, match="they differ in shape"):
        pair(np.array([1.0, 2.0]))
    assert pair(np.array([2.0, 2.0]))[1].shape == (2,)


def test_a_rename_breaks_nothing() -> None:
    """The call is found by the code that runs it, whatever its variables are called."""

    class Own:
        """A call of a fake kernel from elsewhere."""

        def __init__(self) -> None:
            self.op = co.ops.np.nonzero.default
            self.values: list[Any] = []
            self.sizes: list[Any] = []

        @runs_fake_kernels
        def other(renamed: Any, kernel: Any) -> Any:  # noqa: N805  # the point
            return kernel()

    class Around:
        """A mode."""

        def __init__(self) -> None:
            self.contexts: list[Any] = []

        @has_sizes
        def other(renamed: Any, kernel: Any) -> Any:  # noqa: N805  # the point
            return kernel()

    def ask() -> Any:
        return co.get_ctx().new_dynamic_size()

    call, mode = Own(), Around()
    assert call.other(ask).context is call.sizes[0]
    with pytest.raises(co.RegistrationError, match="outside of a fake kernel"):
        mode.other(ask)
    call.sizes = None  # type: ignore[assignment]  # as a call without sizes of its own
    size = mode.other(lambda: call.other(ask))
    assert size.context is mode.contexts[0]
    outer = Own()
    assert outer.other(lambda: call.other(ask)).context is outer.sizes[0]
