"""Results of kernels, compared with those of fake kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.core._contracts import define, fresh, numbered


def with_fake(kernel: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """An operator of one array with a fake kernel."""
    return define("(Array x) -> Array", kernel).register_fake(fake)


FAKES = [
    (lambda x: co.fake_like(x, shape=(3, 2)), "they differ in shape"),
    (lambda x: co.fake_like(x, dtype=np.float32), "they differ in dtype"),
    (lambda x: co.fake_like(x, device="cuda"), "they differ in device"),
    (lambda x: co.fake_like(x, shape=6, dtype=int), "they differ in shape and dtype"),
    (lambda x: co.FakeArray((2, 3), float, (8, 16)), "order of axes in memory"),
]


@pytest.mark.parametrize(("fake", "said"), numbered(FAKES))
def test_fake_kernel_that_disagrees(fake: Callable[..., Any], said: str) -> None:
    """A fake kernel that disagrees with the kernel is an error."""
    op = with_fake(lambda x: x * 2, fake)
    with pytest.raises(co.ContractError, match=said):
        op(fresh())


def test_fake_kernel_that_agrees() -> None:
    """Agreement passes, also for arrays in Fortran order."""
    op = with_fake(lambda x: x * 2, lambda x: co.fake_like(x))
    for x in (fresh(), np.asfortranarray(fresh()), fresh()[::-1], fresh()[:0]):
        co.config.checks = "always"
        np.testing.assert_array_equal(op(x), x * 2)


def test_order_of_axes_is_not_compared_for_broadcast_inputs() -> None:
    """NumPy's own choice for broadcast arrays is left to it."""
    op = with_fake(lambda x: np.array(x, order="F"), lambda x: co.FakeArray(x.shape))
    assert op(np.broadcast_to(np.arange(3.0), (2, 3))).shape == (2, 3)
    with pytest.raises(co.ContractError, match="order of axes"):
        with_fake(lambda x: np.array(x, order="F"), lambda x: co.FakeArray(x.shape))(
            fresh()
        )


@pytest.mark.parametrize(
    ("kernel", "x"),
    [
        (lambda x: x.copy(), np.asfortranarray(fresh())),
        (lambda x: x * 2, np.asfortranarray(fresh())),
        (lambda x: np.sum(x, axis=0), np.ones((4, 3, 2)).T),
        (lambda x: np.sort(x), np.ones((4, 3, 2)).swapaxes(1, 2)),
    ],
    ids=["copy", "double", "sum", "sort"],
)
def test_order_of_axes_is_not_compared_for_inputs_in_other_orders(
    kernel: Any, x: Any
) -> None:
    """NumPy's functions choose for themselves: no `fake_like` can be right for all."""
    for order in ("C", "F"):

        def fake(x: Any, order: str = order) -> Any:
            shape = kernel(np.zeros(x.shape)).shape
            return co.FakeArray(shape, float, np.empty(shape, order=order).strides)

        op = with_fake(kernel, lambda x, fake=fake: fake(x))
        np.testing.assert_array_equal(op(x), kernel(x))


ADD = "(Array x, Array y) -> Array"


def turned(x: Any, y: Any) -> Any:
    """Axes in reverse order in memory."""
    return np.zeros((2, 3), order="F")


@pytest.mark.parametrize(
    ("shapes", "is_compared"),
    [
        (((2, 3), (2, 3)), True),
        (((2, 3), (3,)), False),
        (((2, 1), (1, 3)), False),
        (((2, 3), ()), True),
        (((2, 3), (4, 5)), True),
    ],
    ids=str,
)
def test_order_of_axes_for_several_inputs(shapes: Any, is_compared: bool) -> None:
    """The order is compared unless inputs of different shapes broadcast."""
    op = define(ADD, turned).register_fake(lambda x, y: co.FakeArray((2, 3)))
    given = [np.ones(shape) for shape in shapes]
    if is_compared:
        with pytest.raises(co.ContractError, match="order of axes"):
            op(*given)
    else:
        assert op(*given).shape == (2, 3)


def test_exact_strides_are_compared_for_any_inputs() -> None:
    """`Tag.needs_exact_strides` is of inputs in any order, broadcast or not."""
    op = define(ADD, turned, tags=co.Tag.needs_exact_strides)
    op.register_fake(lambda x, y: co.FakeArray((2, 3)))
    with pytest.raises(co.ContractError, match="they differ in strides"):
        op(np.ones((2, 3), order="F"), np.ones(3))


def test_axes_of_length_one_have_no_order() -> None:
    """Strides of axes of length 1 are not compared."""
    op = with_fake(lambda x: np.zeros((3, 1)).T, lambda x: co.FakeArray((1, 3)))
    assert op(np.zeros((1, 3))).shape == (1, 3)


def test_fake_kernel_that_fails() -> None:
    """A fake kernel that fails where the kernel works is an error with its cause."""

    def fake(x: Any) -> Any:
        raise IndexError("lost")

    with pytest.raises(co.ContractError, match="raises IndexError: lost") as caught:
        with_fake(lambda x: x * 2, fake)(fresh())
    assert isinstance(caught.value.__cause__, IndexError)


def test_fake_kernel_that_asks_for_data_proves_nothing() -> None:
    """Results that depend on data are not compared."""
    op = with_fake(lambda x: x[x > 0], lambda x: co.fake_like(x, shape=(int(x.sum()),)))
    assert op(fresh()).shape == (5,)


def test_fake_kernel_of_too_many_results() -> None:
    """A fake kernel is held to the schema as a kernel is."""
    op = with_fake(lambda x: x * 2, lambda x: (co.fake_like(x), co.fake_like(x)))
    with pytest.raises(co.ContractError, match="'fake' kernel returns"):
        op(fresh())


def test_fake_items_of_lists_are_compared() -> None:
    """Every item of a list has its shape compared."""
    op = define("(Array x) -> Array[]", lambda x: [x * 1, x[0] * 1])
    op.register_fake(lambda x: [co.fake_like(x), co.fake_like(x)])
    with pytest.raises(co.ContractError, match="shape"):
        op(fresh())


def test_fake_list_of_another_length() -> None:
    """A fake list that is longer or shorter than the real one is an error."""
    op = define("(Array x) -> Array[]", lambda x: [x * 1, x * 2])
    op.register_fake(lambda x: [co.fake_like(x)])
    with pytest.raises(co.ContractError):
        op(fresh())


def test_fake_none_for_an_array() -> None:
    """A fake kernel that returns None instead of an array is an error."""
    op = define("(Array x) -> Array?", lambda x: x * 1).register_fake(lambda x: None)
    with pytest.raises(co.ContractError):
        op(fresh())
