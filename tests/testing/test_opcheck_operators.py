"""opcheck passes operators that are right: natural ones, NumPy's, those of the course."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.core.registry import all_operators, find_operator
from customop.testing import opcheck
from tests.tiers import fifth_of

HERE = Path(__file__)
X = np.array([1.0, 2.0])


# ---- operators as people write them ----


def _needs(*conditions: bool) -> None:
    if not all(conditions):
        raise ValueError("of other shapes")


def _fake_of_rows(x: Any, axis: int) -> Any:
    _needs(-x.ndim <= axis < x.ndim)
    shape = [*x.shape]
    del shape[axis]
    return co.fake_like(x, shape=shape, dtype=np.sum(np.empty(0, x.dtype)).dtype)


def _fake_of_distances(x: Any, y: Any) -> Any:
    _needs(x.ndim == y.ndim == 2, x.shape[1:] == y.shape[1:])
    dtype = np.result_type(x.dtype, y.dtype, 1.0)
    return co.fake_like(x, shape=(x.shape[0], y.shape[0]), dtype=dtype)


def _fake_of_full(x: Any, y: Any) -> Any:
    _needs(x.ndim == y.ndim == 1, 0 not in x.shape + y.shape)
    dtype = np.result_type(x.dtype, y.dtype)
    return co.fake_like(x, shape=(x.shape[0] + y.shape[0] - 1,), dtype=dtype)


def _fake_of_sum(x: Any, y: Any) -> Any:
    shape = np.broadcast_shapes(x.shape, y.shape)
    return co.fake_like(x, shape=shape, dtype=np.result_type(x.dtype, y.dtype))


def _fake_of_image(x: Any) -> Any:
    _needs(x.dtype == np.uint8)
    return co.fake_like(x)


def inverted(x: np.ndarray) -> np.ndarray:
    if x.dtype != np.uint8:
        raise TypeError("of uint8")
    return 255 - x


def picked(x: np.ndarray, idx: np.ndarray) -> np.ndarray:
    return np.take(x, idx, axis=0)


def row_sums(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.sum(x, axis=axis)


def full(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.convolve(x, y)


def summed_up(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x + y


def copied(x: np.ndarray) -> np.ndarray:
    return x.copy()


def turned(x: np.ndarray) -> np.ndarray:
    return x.T.copy()


def rolled(x: np.ndarray, shift: int) -> np.ndarray:
    return np.roll(x, shift)


def distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.sqrt(((x[:, None] * 1.0 - y[None]) ** 2).sum(-1))


# Correct kernels, each with the fake kernel that comes to mind.
NATURAL = (
    (copied, lambda x: co.fake_like(x)),
    (turned, lambda x: co.fake_like(x, shape=x.shape[::-1])),
    (rolled, lambda x, shift: co.fake_like(x)),
    (row_sums, _fake_of_rows),
    (distances, _fake_of_distances),
    (full, _fake_of_full),
    (summed_up, _fake_of_sum),
    (inverted, _fake_of_image),
    (picked, lambda x, idx: co.fake_like(x, shape=(*idx.shape, *x.shape[1:]))),
)


@pytest.mark.parametrize(
    ("kernel", "fake"), NATURAL, ids=lambda fn: getattr(fn, "__name__", "")
)
def test_natural_operator(kernel: Any, fake: Any) -> None:
    """Right operators pass, whatever memory order NumPy chooses for their results."""
    op = co.custom_op(f"natural::{kernel.__name__}", kernel, mutates_args=())
    op.register_fake(fake)
    found = opcheck(op, raise_exception=False)
    assert found.failed == [], "\n".join(str(found[name]) for name in found.failed)


def test_formula_with_one_derivative() -> None:
    """If a formula cannot be traced, only first gradients are checked, with a note."""

    def backward(ctx: Any, grad: Any) -> Any:
        x, y = (np.conjugate(v) for v in ctx.saved_arrays)  # it conjugates the second
        if np.shares_memory(grad, x):  # of plain arrays only
            grad = grad.copy()
        return np.correlate(grad, y, "valid"), np.correlate(grad, x, "valid")

    op = co.custom_op("natural::convolved", full, mutates_args=())
    op.register_fake(_fake_of_full)
    op.register_autograd(
        backward,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    found = opcheck(op, (X, np.array([1.0, -2.0, 0.5])), test_utils="test_gradients")
    assert str(found) == (
        "natural::convolved\n"
        "  test_gradients  SUCCESS  first gradients alone, their formula:"
        " np.shares_memory has no operator: a traced or fake array has no memory of its"
        " own"
    )


def test_formula_with_one_derivative_that_is_wrong() -> None:
    """A wrong first gradient is found even if second ones cannot be taken."""

    def backward(ctx: Any, grad: Any) -> Any:
        return np.correlate(grad, np.ones(1)) * 3.0

    op = co.custom_op("natural::doubled", copied, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x)).register_autograd(backward)
    found = opcheck(op, (X,), test_utils="test_gradients", raise_exception=False)
    assert "has a wrong gradient" in str(found)


@pytest.mark.parametrize("check", ["test_layouts", "test_dtypes"])
def test_chance_is_no_fault_of_layouts_and_dtypes(check: str) -> None:
    """Results that differ between equal calls are a fault of test_determinism alone."""
    calls = [0]

    def counted(x: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return x * calls[0]

    op = co.custom_op("natural::counted", counted, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x, dtype=np.result_type(x.dtype, 1)))
    found = opcheck(
        op, (X,), test_utils=(check, "test_determinism"), raise_exception=False
    )
    assert found.failed == ["test_determinism"]


def test_views_of_numpy_scalars() -> None:
    """A NumPy scalar has no memory, so a missing view of it is not a fault."""
    scalar = np.complex128(2.0 + 1.0j)
    found = opcheck(co.ops.np.real.default, (scalar,), test_utils="test_schema")
    assert found == {"test_schema": "SUCCESS"}


# ---- operators that are there ----

NUMPY = [op for op in all_operators().values() if op.namespace == "np"]
_DERIVATIVES = {"test_jvp", "test_gradients"}
# Operator -> checks that it fails on purpose; its waivers say why.
WAIVED = {
    "np::argpartition": {"test_dtypes"},
    "np::eig": _DERIVATIVES,
    "np::eigh": _DERIVATIVES,
    "np::interp": {"test_gradients"},
    "np::moved_cofactors": _DERIVATIVES,
    "np::qr": _DERIVATIVES,
    "np::searchsorted": {"test_vmap"},
    "np::svd": _DERIVATIVES,
}


@pytest.mark.parametrize("op", fifth_of(NUMPY, lambda op: op.qualname))
@pytest.mark.exhaustive
def test_numpy_operator(op: Any) -> None:
    """Every NumPy operator passes every check, but those that it fails on purpose."""
    found = opcheck(op, raise_exception=False)
    assert found.waived.keys() == WAIVED.get(op.qualname, set())
    assert found.failed == [], "\n".join(str(found[name]) for name in found.failed)


OWN = ["lay_out", "stop_gradient", "assign", "set_slice", "number"]


@pytest.mark.parametrize("name", OWN)
@pytest.mark.exhaustive
def test_operator_of_graphs_and_gradients(name: str) -> None:
    """The package's own operators pass; zeros for the identity are waived."""
    co.stop_gradient(np.ones(2))  # defines the operator
    found = opcheck(find_operator(f"customop::{name}"), raise_exception=False)
    assert found.waived.keys() == (_DERIVATIVES if name == "stop_gradient" else set())
    assert found.failed == [], "\n".join(str(found[name]) for name in found.failed)


def test_layout_that_would_lose_numbers_is_refused() -> None:
    """Elements that overlap cannot hold the values of an array."""
    lay_out = find_operator("customop::lay_out")
    with pytest.raises(ValueError, match="let elements of complex128 overlap"):
        lay_out(np.ones(3, complex), [8])
    assert lay_out(np.ones(3, np.float32), [8]).strides == (8,)


# Operator -> checks that fail on purpose in the course.
_NO_FAKE = {"test_faketensor"}
SHOWN = {
    "shop::first_half": {
        "test_schema",
        *_NO_FAKE,
    },  # returns a view, which opcheck reports
    "shop::distance": {"test_dtypes", *_NO_FAKE},  # uint8 wraps around
    "shop::mix": {"test_dtypes", *_NO_FAKE},  # int8 wraps around
    "shop::norm": {"test_kernels_agree", *_NO_FAKE},  # one kernel is less exact
    "shop::root": {"test_jvp", "test_gradients", *_NO_FAKE},  # diverges far away
    "shop::halves": {
        "test_faketensor",
        "test_aot_dispatch_static",
        "test_aot_dispatch_dynamic",
        "test_layouts",
        "test_dtypes",
    },  # a wrong fake
}
EXAMPLES = sorted((HERE.parents[2] / "examples").glob("[0-9]*.py"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The operators of the course only have the faults that the course shows."""
    names = runpy.run_path(str(path), run_name="shown").values()
    for op in {op for op in names if isinstance(op, co.Operator)}:
        if op.namespace == "np":
            continue
        found = opcheck(op, raise_exception=False)
        allowed = SHOWN.get(op.qualname, _NO_FAKE)
        wrong = [name for name in found.failed if name not in allowed]
        assert wrong == [], "\n".join(str(found[name]) for name in wrong)
