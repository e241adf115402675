"""opcheck looks at a second length of a user's sample, where rules can be wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.testing import Sample, opcheck
from customop.testing.inputs.shrink import Longer, longer

X = np.array([0.1, 0.2, 0.5])
NUMBERS = count()


def operator(kernel: Callable[..., Any], schema: str = "(Array x) -> Array") -> Any:
    name = f"lengths::op{next(NUMBERS)}"
    return co.custom_op(name, kernel, mutates_args=(), schema=schema)


# ---- longer samples ----


def shapes_of(sample: Sample | None) -> list[tuple[int, ...]]:
    assert sample is not None
    return [x.shape for x in sample.args if isinstance(x, np.ndarray)]


SHAPES: dict[str, tuple[Callable[..., Any], str, tuple[Any, ...], Any, bool]] = {
    # kernel, schema, arguments, new shapes, whether the schema declares them
    "vector": (np.sin, "(Array x) -> Array", (X,), [(4,)], False),
    "name": (np.sin, "(float[n] x) -> float[n]", (X,), [(4,)], True),
    "fixed": (np.sin, "(float[n,3] x) -> float[n,3]", (np.eye(3),), [(4, 3)], True),
    "loop": (
        lambda x: x[..., 0],
        "(float[...,3] x) -> float[...]",
        (np.ones((3, 2, 3)),),
        [(4, 3, 3)],
        False,
    ),
    "sum of names": (
        lambda x, y: x[1:] + y,
        "(float[n+1] x, float[n] y) -> float[n]",
        (X, X[:2]),
        [(4,), (3,)],
        True,
    ),
    "number": (  # the length is an argument
        lambda x, n: x,
        "(float[n] x, int n) -> float[n]",
        (X, 3),
        None,
        False,
    ),
    "product": (
        np.matmul,
        "(Array x, Array y) -> Array",
        (np.ones((2, 3)), np.ones((3, 4))),
        [(3, 4), (4, 5)],
        False,
    ),
    "matrix": (
        np.linalg.cholesky,
        "(Array x) -> Array",
        (np.array([[2.0, 1.0], [1.0, 3.0]]),),
        [(3, 3)],
        False,
    ),
    "broadcast": (
        np.add,
        "(Array x, Array y) -> Array",
        (np.ones((1, 3)), np.ones((2, 3))),
        [(1, 4), (3, 4)],
        False,
    ),
    "points": (  # three columns
        lambda p: np.cross(p, p + 1),
        "(Array p) -> Array",
        (np.ones((5, 3)),),
        [(6, 3)],
        False,
    ),
    "powers of two": (
        lambda x: x.reshape(-1, 4),
        "(Array x) -> Array",
        (np.ones(8),),
        [(16,)],
        False,
    ),
    "quaternion": (lambda q: q.reshape(4) + 0, "(Array q) -> Array", (np.ones(4),), None, False),
    "number without axes": (np.sin, "(Array x) -> Array", (np.array(2.0),), None, False),
    "empty": (np.sin, "(Array x) -> Array", (X[:0],), None, False),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_lengths_that_the_schema_or_the_kernel_leaves_open_get_longer(
    name: str,
) -> None:
    """Those of one name together, and those that are equal."""
    kernel, schema, args, expected, is_declared = SHAPES[name]
    found = longer(operator(kernel, schema), Sample(args))
    if expected is None:
        assert found is None
        return
    assert isinstance(found, Longer)
    assert shapes_of(found) == expected
    assert found.is_declared is is_declared
    for x, y in zip(args, found.args, strict=True):
        start = y[tuple(slice(n) for n in x.shape)]
        np.testing.assert_allclose(start, x, rtol=0.1)


def test_axes_that_other_samples_vary_stay() -> None:
    """Their rules are checked at two lengths already."""
    op = operator(lambda x: np.sin(x))
    first, second = Sample((np.ones((2, 3)),)), Sample((np.ones((2, 5)),))
    assert shapes_of(longer(op, first, [first, second])) == [(3, 3)]
    assert longer(op, first, [first, Sample((np.ones((4, 5)),))]) is None


def test_longer_lists_keep_their_lengths() -> None:
    """Arrays in a list are arrays as others."""
    op = operator(lambda xs: xs[0] + xs[1], "(Array[] xs) -> Array")
    found = longer(op, Sample(([X, X],)))
    assert found is not None
    assert [x.shape for x in found.args[0]] == [(4,), (4,)]


# ---- planted faults ----


def keeps(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.x = inputs[0]


def mean(length: Callable[[Any], Any]) -> Any:
    """The mean; its gradient and tangent divide by `length`."""
    op = operator(lambda x: np.asarray(np.mean(x, dtype=x.dtype)), "(Array x) -> Array")
    op.register_fake(lambda x: co.fake_like(x, shape=()))
    op.register_autograd(
        lambda ctx, g: g / length(ctx.x) * np.ones_like(ctx.x), setup_context=keeps
    )
    return op


def tangent_of_mean(length: Callable[[Any], Any]) -> Any:
    op = mean(len)

    def rule(primals: Any, tangents: Any) -> Any:
        return op(*primals), np.sum(tangents[0]) / length(*primals)

    op.register_jvp(rule)
    return op


def rows_of_squares(length: Callable[[Any], Any]) -> Any:
    """Squares; the rule for rows knows how long they are."""
    op = operator(lambda x: x * x, "(Array x) -> Array")
    op.register_fake(lambda x: co.fake_like(x))

    def rule(info: Any, in_dims: Any, x: Any) -> Any:
        rows = np.moveaxis(x, in_dims[0], 0)
        if rows.ndim == 1:
            return op(rows), 0
        kept = np.arange(rows.shape[-1]) < length(rows.T)
        return op(rows) * kept, 0

    op.register_vmap(rule)
    return op


PLANTED: dict[str, tuple[Callable[..., Any], str]] = {
    "gradient": (mean, "test_gradients"),
    "tangent": (tangent_of_mean, "test_jvp"),
    "rows": (rows_of_squares, "test_vmap"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_rules_that_are_right_at_one_length_alone_are_found(name: str) -> None:
    """The error shows a call of another length; the right rule passes."""
    build, check = PLANTED[name]
    found = opcheck(build(lambda x: 3), (X,), test_utils=check, raise_exception=False)
    assert isinstance(found[check], co.OpCheckError)
    assert "f64[3]" not in str(found[check]).partition("to repeat it")[0]
    found = opcheck(build(len), (X,), test_utils=check)
    assert found[check] == "SUCCESS"
    assert found.notes == {}


def test_the_message_shows_the_longer_call() -> None:
    """Where no smaller call has the fault."""
    op = rows_of_squares(lambda x: 3)
    with pytest.raises(co.OpCheckError, match=r"longer axes: 4 for 3") as caught:
        opcheck(op, (X,), test_utils="test_vmap")
    assert shapes_of(caught.value.sample) == [(4,)]


def square(schema: str) -> Any:
    """The gradient is made for three numbers, and raises for others."""
    op = operator(lambda x: x[:3] ** 2, schema)
    op.register_fake(lambda x: co.fake_like(x, shape=(3,)))
    op.register_autograd(lambda ctx, g: 2 * ctx.x[:3] * g, setup_context=keeps)
    return op


def test_rules_may_refuse_lengths_that_only_the_kernel_takes() -> None:
    """A kernel for three columns may take four; the table says so."""
    op = square("(Array x) -> Array")
    found = opcheck(op, (X,), test_utils="test_gradients")
    says = f"at {op.name}(f64[4]) a rule raises GradientError"
    assert found.notes == {"test_gradients": says}


def test_rules_must_take_the_lengths_that_the_schema_declares() -> None:
    """The schema says that there may be any number."""
    with pytest.raises(co.OpCheckError, match="longer axes: 4 for 3"):
        opcheck(square("(float[n] x) -> float[3,]"), (X,), test_utils="test_gradients")


@pytest.mark.exhaustive
def test_kernels_that_are_slow_for_long_arrays_are_no_fault() -> None:
    """The check is left out, and the table says on which arrays the kernel is slow."""

    def slow(x: Any) -> Any:
        if x.size > 500:
            threading.Event().wait(60)
        return x * 2.0

    op = operator(slow, "(Array x) -> Array")
    op.register_fake(lambda x: co.fake_like(x, dtype=np.result_type(x.dtype, 1.0)))
    found = opcheck(op, test_utils="test_sizes")
    assert "too slow for long arrays" in str(found["test_sizes"])
