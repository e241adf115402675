"""Operators of torch as ours: values, derivatives, batches, fake arrays, errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import customop as co

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
bridge: Any = pytest.importorskip("customop.interop.torch")

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]

_numbers = itertools.count()
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 2))
Y = RNG.standard_normal((2, 4))


def imported(torch_op: Any) -> Any:
    """Import an operator under a new name."""
    return bridge.from_torch(torch_op, f"fromtorch::op_{next(_numbers)}")


@pytest.fixture(scope="module")
def cube() -> Iterator[Any]:
    """An operator that is written in Python, with a gradient and no batching rule."""

    def body(x: torch.Tensor, k: float = 1.0) -> torch.Tensor:
        return x * x * x * k

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    def backward(ctx: Any, g: Any) -> Any:
        return 3 * ctx.saved_tensors[0] ** 2 * g * ctx.k, None

    made = torch.library.custom_op(
        "fromtorch::cube",
        body,
        mutates_args=(),
        schema="(Tensor x, float k=1.0) -> Tensor",
    )
    made.register_fake(lambda x, k=1.0: torch.empty_like(x))
    made.register_autograd(backward, setup_context=setup)
    yield made
    made._lib._destroy()


def test_values_and_memory() -> None:
    """Torch gets the memory of the array, also where it must not be written."""
    op = imported("aten::sin")
    assert str(op.schema) == "(Array self) -> Array"
    np.testing.assert_allclose(op(X), np.sin(X), rtol=1e-15)
    still = X.copy()
    still.flags.writeable = False
    for x in (still, X.T, X[::-1], X[::2, 1:], X.astype(">f8"), np.array(1.0), X[:0]):
        np.testing.assert_allclose(op(x), np.sin(x), rtol=1e-15)


def test_derivatives_of_all_orders() -> None:
    """By torch's formulas; forward mode is the transpose."""
    sine, product = imported("aten::sin"), imported(torch.ops.aten.mm)

    def loss(x: Any) -> Any:
        return np.sum(sine(product(x, Y)) ** 2)

    def plain(x: Any) -> Any:
        return np.sum(np.sin(x @ Y) ** 2)

    for transform in (co.grad, co.hessian):
        np.testing.assert_allclose(
            transform(loss)(X), transform(plain)(X), rtol=1e-10, atol=1e-12
        )
    np.testing.assert_allclose(
        co.jvp(co.grad(loss), (X,), (X,))[1],
        co.jvp(co.grad(plain), (X,), (X,))[1],
        rtol=1e-10,
    )
    third = co.grad(lambda x: co.grad(lambda y: co.grad(sine)(y))(x))(np.array(0.5))
    np.testing.assert_allclose(third, -np.cos(0.5), rtol=1e-12)


def test_batches() -> None:
    """torch.vmap runs them; rows of operators in Python one by one."""
    sine = imported("aten::sin")
    np.testing.assert_allclose(co.vmap(sine, 1, 1)(X), np.sin(X), rtol=1e-15)
    rows = co.vmap(co.grad(lambda r: np.sum(sine(r) * r)))(X)
    np.testing.assert_allclose(rows, np.cos(X) * X + np.sin(X), rtol=1e-12)


def test_operators_in_python(cube: Any) -> None:
    """Of torch.library, which functional transforms of torch refuse."""
    op = imported(cube)
    np.testing.assert_allclose(co.grad(lambda x: np.sum(op(x)))(X), 3 * X * X)
    second = co.hessian(lambda x: np.sum(op(x, 2.0)))(X[0])
    np.testing.assert_allclose(second, np.diag(12 * X[0]))
    rows = co.vmap(co.grad(lambda r: np.sum(op(r))))(X)
    np.testing.assert_allclose(rows, 3 * X * X)


def test_lists_options_and_several_results() -> None:
    """With gradients through each of them."""
    joined = imported("aten::cat")
    grad = co.grad(lambda x: np.sum(joined([x, 2 * x], 1) ** 2))(X)
    np.testing.assert_allclose(grad, 10 * X)
    parts = imported(torch.ops.aten.split.Tensor)
    assert [p.shape for p in parts(X, 2)] == [(2, 2), (1, 2)]
    grad = co.grad(lambda x: np.sum(parts(x, 2)[1] ** 2))(X)
    np.testing.assert_allclose(grad, [[0, 0], [0, 0], 2 * X[2]])
    largest = imported(torch.ops.aten.max.dim)
    values, places = largest(X, 1)
    np.testing.assert_array_equal(values, X.max(1))
    np.testing.assert_array_equal(places, X.argmax(1))
    grad = co.grad(lambda x: np.sum(largest(x, 1)[0]))(X)
    np.testing.assert_array_equal(grad, X.max(1, keepdims=True) == X)
    picked = imported(torch.ops.aten.index.Tensor)
    grad = co.grad(lambda x: np.sum(picked(x, [np.array([0, 0])])))(X)
    np.testing.assert_array_equal(grad, [[2, 2], [0, 0], [0, 0]])


def test_complex_gradients_have_our_convention() -> None:
    """Torch's are the complex conjugates."""
    op = imported("aten::exp")
    z = np.array([0.3 + 0.7j, -1.0 + 0.2j])
    pull = co.vjp(op, z)[1]
    np.testing.assert_allclose(pull(np.ones(2) + 0j)[0], np.exp(z), rtol=1e-14)


def test_writes() -> None:
    """In place and into out=, on the memory of the arrays."""
    add = imported(torch.ops.aten.add_.Tensor)
    x = X.copy()
    assert add(x, X, alpha=2.0) is x
    np.testing.assert_allclose(x, 3 * X)
    sine = imported(torch.ops.aten.sin.out)
    out = np.empty_like(X)
    assert sine(X, out=out) is out
    np.testing.assert_allclose(out, np.sin(X))


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros(3),
        lambda: np.zeros(3)[::-1],
        lambda: np.zeros(6)[::-2],
        lambda: np.zeros(6)[::2],
        lambda: np.zeros(3, ">f8"),
        lambda: np.zeros(3, [("a", "i1"), ("b", "f8")])["b"],
    ],
    ids=[
        "plain",
        "reversed",
        "each second, reversed",
        "each second",
        ">f8",
        "odd step",
    ],
)
def test_writes_to_memory_that_torch_cannot_read(make: Any) -> None:
    """Torch gets a copy of the array, which is copied back."""
    x = make()
    add = imported(torch.ops.aten.index_add_)
    assert add(x, 0, np.array([0, 2]), np.array([1.0, 2.0])) is x
    np.testing.assert_array_equal(x, [1.0, 0.0, 2.0])
    out = make()
    assert imported(torch.ops.aten.sin.out)(x, out=out) is out
    np.testing.assert_allclose(out, np.sin([1.0, 0.0, 2.0]))


def _locked() -> Any:
    x = np.zeros(3)
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_locked, "read-only"),
        (lambda: _locked()[::-1], "read-only"),
        (lambda: np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,)), "one place"),
        (
            lambda: np.lib.stride_tricks.as_strided(np.zeros(1, ">f8"), (3,), (0,)),
            "one place",
        ),
    ],
    ids=["read-only", "read-only, reversed", "one place", "one place, >f8"],
)
def test_arrays_that_torch_must_not_write(make: Any, message: str) -> None:
    """They stay as they are, also where torch would write to their memory."""
    x = make()
    with pytest.raises(co.ArgumentError, match=message):
        imported(torch.ops.aten.index_add_)(x, 0, np.array([0]), np.array([1.0]))
    np.testing.assert_array_equal(x, np.zeros(3))


def test_writes_to_several_arrays() -> None:
    """Each gets its own; two that share memory are refused if torch gets a copy of one."""
    extremes = imported("aten::aminmax.out")
    low, both = np.zeros(4)[::-2], np.zeros(4)
    table = np.array([[1.0, 2.0], [4.0, 3.0]])
    high = np.zeros(2, ">f8")
    extremes(table, dim=1, min=low, max=high)
    np.testing.assert_array_equal([low, high], [[1.0, 3.0], [2.0, 4.0]])
    extremes(table, dim=1, min=both[::-2], max=both[::2])  # of the same array
    np.testing.assert_array_equal(both, [2.0, 3.0, 4.0, 1.0])
    with pytest.raises(co.ArgumentError, match="shares memory with another"):
        extremes(table, dim=1, min=both[2:][::-1], max=both[1:3])


def test_writes_to_memory_that_is_read() -> None:
    """The copy that torch gets is one of what the array held before the write."""
    table = np.arange(6.0).reshape(2, 3)
    imported(torch.ops.aten.add_.Tensor)(table[:, ::-1], table)
    np.testing.assert_array_equal(table, [[2.0, 2.0, 2.0], [8.0, 8.0, 8.0]])


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_changes_that_are_no_writes() -> None:
    """Torch changes the shape of a tensor in place; an array would not notice."""
    table = np.arange(4.0).reshape(2, 2)
    with pytest.raises(co.ArgumentError, match="cannot get"):
        imported("aten::t_")(table)
    with pytest.raises(co.ArgumentError, match=r"\(3, 1\).*\(3,\)"):
        imported("aten::squeeze_")(np.zeros((3, 1)))
    with pytest.raises(co.ArgumentError, match="cannot get"):
        imported(torch.ops.aten.sin.out)(np.zeros(2), out=np.zeros(5))
    point = np.array(1.0)
    assert imported(torch.ops.aten.neg_)(point) is point
    assert point == -1


def test_fake_arrays_and_symbolic_sizes() -> None:
    """Fake kernels are torch's; questions that torch asks become guards."""
    product = imported("aten::mm")
    assert co.eval_shape(product, X, Y).shape == (3, 4)
    mode = co.FakeMode()
    x, y = (mode.from_array(v, sizes=s) for v, s in ((X, ("n", 2)), (Y, (2, "k"))))
    assert str(product(x, y).shape) == "(n, k)"
    traced = co.make_fx(lambda x, y: product(x, y) * 2, tracing_mode="symbolic")(X, Y)
    wide = RNG.standard_normal((5, 2)), RNG.standard_normal((2, 7))
    np.testing.assert_allclose(traced(*wide), 2 * wide[0] @ wide[1])
    with pytest.raises(co.GuardError):
        traced(RNG.standard_normal((5, 3)), wide[1])
    found = co.eval_shape(imported("aten::nonzero"), X)
    assert str(found.shape) == "(u0, 2)"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten::sin", (X,)),
        ("aten::mm", (X, Y)),
        ("aten::cat", ([X, X],)),
        ("aten::_softmax", (X, 1, False)),
        ("aten::_fft_r2c", (X, [0], 0, True)),
    ],
)
def test_opcheck_finds_no_fault(name: str, args: Any) -> None:
    """Our own checks pass, among them gradients by differences and captures."""
    co.opcheck(imported(name), args)


def test_there_and_back() -> None:
    """An operator of ours that goes to torch and comes back."""

    @co.custom_op("fromtorch::gauss", mutates_args=())
    def gauss(x: np.ndarray, width: float = 1.0) -> np.ndarray:
        return np.exp(-((x / width) ** 2))

    gauss.register_autograd(co.native)
    gauss.register_fake(lambda x, width: co.fake_like(x))
    exported = bridge.export(gauss)
    op = imported(exported)
    np.testing.assert_allclose(
        co.grad(lambda x: np.sum(op(x, 2.0)))(X),
        co.grad(lambda x: np.sum(gauss(x, 2.0)))(X),
    )
    bridge.remove_export(exported)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.sin, "is not an operator of torch"),
        ("aten::nothing_such", "is not an operator of torch"),
        ("aten::add", "has the overloads Tensor, Scalar"),
    ],
    ids=["function", "unknown", "overloads"],
)
def test_what_is_not_one_operator(given: Any, message: str) -> None:
    with pytest.raises(co.ArgumentError, match=message):
        bridge.from_torch(given)


def test_types_that_we_lack() -> None:
    """Without a default they are refused by name."""
    with torch.library._scoped_library("fromtorch", "FRAGMENT") as library:
        library.define("layouts(Tensor x, Layout y) -> Tensor")
        with pytest.raises(co.RegistrationError, match="'y' is Layout, which has no"):
            bridge.from_torch("fromtorch::layouts")


def test_lists_that_torch_writes() -> None:
    """Operators that write lists of tensors are refused by name."""
    for name, argument in (
        ("_foreach_add_.Scalar", "self"),
        ("_foreach_exp.out", "out"),
    ):
        with pytest.raises(
            co.RegistrationError, match=f"'{argument}' is List.*written"
        ):
            bridge.from_torch(f"aten::{name}")
