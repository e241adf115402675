"""Symbolic sizes: arithmetic, questions, and fake arrays that have them."""

from typing import Any

import numpy as np
import pytest

import customop as co
from customop.shapes.size_context import SizeContext


def test_arithmetic_has_one_form() -> None:
    """Equal expressions are the same expression, and constants are ints."""
    n = SizeContext().input_size(4, "x.shape[0]")
    assert str((6 * n + 5) // 3) == "2*s0 + 1"
    assert (n + 1) - n == 1
    assert type((n + 1) - n) is int
    assert str(n % 2) == "s0 % 2"
    assert (n - n % 3) % 3 == 0


def test_a_question_about_an_input_is_a_guard() -> None:
    """It is answered by the size of the call, and recorded once with its line."""
    context = SizeContext()
    n = context.input_size(4, "x.shape[0]")
    for _ in range(2):
        assert n > 2
    (guard,) = context.guards
    assert (guard.text, guard.holds({"s0": 3}), guard.holds({"s0": 2})) == (
        "s0 > 2",
        True,
        False,
    )
    assert __file__ in guard.place


def test_a_question_about_data_is_an_error() -> None:
    """Until a check has said the answer."""
    n = SizeContext().new_dynamic_size(max=9)
    with pytest.raises(co.DataDependentError, match=r"whether u0 == 3 is asked"):
        bool(n == 3)
    assert n < 10
    co.check(n > 3)
    assert n != 3


def test_a_named_size_stays_symbolic() -> None:
    """At any value, also 0, 1 and that of another size."""
    x = co.FakeMode().from_array(np.zeros((1, 3)), sizes=("batch", 3))
    y = x * 2.0 + np.ones(3)
    assert repr(y) == "FakeArray(f64[batch, 3], device='cpu')"
    with pytest.raises(co.SizeError, match="whether batch == 1 is asked"):
        bool(x.shape[0] == 1)


def test_a_fake_kernel_asks_for_sizes() -> None:
    """Real results are compared with their bounds."""

    @co.custom_op("symtest::positive", mutates_args=())
    def positive(x: np.ndarray) -> np.ndarray:
        return x[x > 0]

    @positive.register_fake
    def _(x: co.FakeArray) -> co.FakeArray:
        return co.fake_like(x, shape=(co.get_ctx().new_dynamic_size(max=2),))

    with pytest.raises(co.ContractError, match="a size 3, and the fake kernel says"):
        positive(np.ones(3))
    assert positive(np.array([1.0, -1.0, 2.0])).shape == (2,)
    out = positive(co.FakeArray((5,)))
    assert str(out.shape[0]).startswith("u")
    with pytest.raises(co.RegistrationError, match="outside of a fake kernel"):
        co.get_ctx()


def test_numpy_converts_a_size_to_a_number() -> None:
    """Never to an object; the conversion is a guard, or an error that says what works."""
    context = SizeContext()
    n = context.input_size(3, "x.shape[0]")
    assert np.array([n, 2]).dtype == np.int64
    assert np.arange(n).tolist() == [0, 1, 2]
    assert [guard.text for guard in context.guards] == ["s0 == 3"]
    assert str(context.guards[0]).startswith("s0 == 3  at ")
    batch = context.input_size(3, "y.shape[0]", "batch")
    with pytest.raises(co.SizeError) as error:
        range(batch)
    assert str(error.value) == (
        "the number batch is asked, and batch may be any size\n"
        f"  at {__file__}:{error.traceback[0].lineno + 1}\n"
        "  batch: the size of y.shape[0], at least 0, now 3\n"
        "  do: keep the size: np.arange(n, like=x) and np.zeros(n, like=x) with an array"
        " x of the function, math.prod(x.shape), co.fori_loop(0, n, ...)"
    )


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (lambda n: -8 * n <= -8, "s0 >= 1"),
        (lambda n: 6 * n + 3 > 9, "2*s0 + 1 > 3"),
        (lambda n: n % 2 == 0, "s0 % 2 == 0"),
        (lambda n: n // 2 + 1 == 3, "s0//2 + 1 == 3"),
        (lambda n: n**0.5 < 3, "s0 ** 0.5 < 3"),
        (lambda n: (n > 1) & (n < 9), "s0 > 1 and s0 < 9"),
        (lambda n: (n > 9) | (n == 4), "s0 > 9 or s0 == 4"),
    ],
)
def test_guards_read_as_python(question: Any, text: str) -> None:
    """Without common factors and needless minus signs, and they can be run."""
    context = SizeContext()
    assert question(context.input_size(4, "x.shape[0]"))
    (guard,) = context.guards
    assert guard.text == text
    for n in range(12):
        assert eval(guard.text, {}, {"s0": n}) == guard.holds({"s0": n}) == question(n)
