"""opcheck: arguments, results and messages."""

from __future__ import annotations

import mmap
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray

import customop as co
from customop.testing import OpCheckResult, Sample, opcheck
from customop.testing.checks import behavior_checks, check_runs
from customop.testing.checks import session as session_module
from customop.testing.checks.check_jobs import CHECKS
from customop.testing.checks.session import Session
from customop.testing.inputs import input_patterns, search
from customop.testing.opcheck import _fewer
from customop.testing.quiet import OutOfTimeError

HERE = Path(__file__)


def _product(x: Any, factor: float) -> Any:
    return np.result_type(x.dtype, factor)


@co.custom_op("checked::scale", mutates_args=())
def scale(x: np.ndarray, factor: float) -> np.ndarray:
    """Scale by a number, without faults."""
    return x * factor


scale.register_fake(lambda x, factor: co.fake_like(x, dtype=_product(x, factor)))
scale.register_vmap(lambda info, in_dims, x, factor: (scale(x, factor), in_dims[0]))


def keep_factor(ctx: Any, inputs: Any, output: Any) -> None:
    """Keep what the gradient needs."""
    ctx.factor = inputs[1]


scale.register_autograd(
    lambda ctx, g: (g * ctx.factor, None), setup_context=keep_factor
)


@co.custom_op("checked::stretch", mutates_args=())
def stretch(x: np.ndarray, factor: float) -> np.ndarray:
    """Scale by a number, with a gradient that forgets the factor."""
    return x * factor


stretch.register_fake(lambda x, factor: co.fake_like(x, dtype=_product(x, factor)))
stretch.register_autograd(lambda ctx, g: (g, None))


@co.custom_op("checked::drift", mutates_args=())
def drift(x: np.ndarray) -> np.ndarray:
    """Multiply by one; the two kernels differ by a thousandth."""
    return x * 1.0


drift.register_kernel("cpu", lambda x: x * 1.001)
drift.register_fake(lambda x: co.fake_like(x, dtype=(np.ones(0, x.dtype) * 1.0).dtype))

X = np.array([1.0, 2.0])
NAMES = tuple(check.name for check in CHECKS)


# ---- results ----


def test_result_is_a_table() -> None:
    """The result prints as a table with a line for each check."""
    assert str(opcheck(scale, (X, 3.0))) == (
        "checked::scale\n"
        "  test_schema                 SUCCESS\n"
        "  test_mutation               SUCCESS\n"
        "  test_autograd_registration  SUCCESS\n"
        "  test_faketensor             SUCCESS\n"
        "  test_sizes                  SUCCESS\n"
        "  test_kernels_agree          SKIPPED  only one kernel\n"
        "  test_vmap                   SUCCESS\n"
        "  test_jvp                    SKIPPED  no jvp rule: it follows from the autograd"
        " rule, see test_gradients\n"
        "  test_gradients              SUCCESS\n"
        "  test_aot_dispatch_static    SUCCESS\n"
        "  test_aot_dispatch_dynamic   SUCCESS\n"
        "  test_layouts                SUCCESS\n"
        "  test_dtypes                 SUCCESS\n"
        "  test_determinism            SUCCESS\n"
        "  test_out_variant            SKIPPED  there is no scale.out, scale_out"
        " or scale_\n"
        "  test_pickle                 SUCCESS\n"
        "  test_threads                SUCCESS"
    )


def test_result_is_a_dict() -> None:
    """The result is a dict with the values that torch uses."""
    found = opcheck(scale, (X, 3.0), test_utils=("test_schema", "test_kernels_agree"))
    assert found == {
        "test_schema": "SUCCESS",
        "test_kernels_agree": "SKIPPED: only one kernel",
    }
    assert isinstance(found, OpCheckResult)
    assert (found.op, found.failed) == ("checked::scale", [])
    assert found.seconds.keys() == found.keys()


def test_failures_stand_in_the_table() -> None:
    """With raise_exception=False the table shows the faults."""
    utils = ("test_schema", "test_gradients")
    found = opcheck(stretch, (X, 3.0), raise_exception=False, test_utils=utils)
    assert str(found) == (
        "checked::stretch\n"
        "  test_schema     SUCCESS\n"
        "  test_gradients  FAILED   checked::stretch: test_gradients: has a wrong"
        " gradient, in 1 of 1 derivatives"
    )
    assert found.failed == ["test_gradients"]
    assert isinstance(found["test_gradients"], co.OpCheckError)


def test_error_says_all() -> None:
    """An error names check, operator, argument, smallest input, and how to repeat it."""
    with pytest.raises(co.OpCheckError) as caught:
        opcheck(stretch, (X, 3.0), test_utils="test_gradients")
    assert str(caught.value) == (
        "checked::stretch: test_gradients: has a wrong gradient, in 1 of 1 derivatives\n"
        "  checked::stretch(Array x, float factor) -> Array\n"
        "                   ^^^^^^^\n"
        "  worst: d output[0] / d x is 1, by differences 0: off by 1, allowed 1e-05"
        " (atol=1e-05, rtol=0.001)\n"
        "  evaluated at x = 1\n"
        "  input:\n"
        "    x = f64[] 1\n"
        "    factor = 0.0\n"
        "  to repeat it:\n"
        "    import numpy as np\n"
        "    import customop as co\n"
        "    import customop.testing\n"
        "    import tests.testing.test_opcheck  # defines checked::stretch\n"
        "    x = np.array(1.0, 'float64')\n"
        "    co.testing.opcheck(\n"
        "        co.ops.checked.stretch.default,\n"
        "        (x, 0.0),\n"
        "        {},\n"
        "        test_utils='test_gradients',\n"
        "    )\n"
        "  do: correct the formula of @stretch.register_autograd"
    )


def test_error_has_fields() -> None:
    """The parts of an error are fields too."""
    with pytest.raises(co.OpCheckError) as caught:
        opcheck(stretch, (X, 3.0), test_utils="test_gradients")
    error = caught.value
    assert (error.op, error.kind, error.parameter) == (
        "checked::stretch",
        "test_gradients",
        "x",
    )
    assert isinstance(error.sample, Sample)
    assert error.sample.args == (np.array(1.0), 0.0)


def test_error_can_be_repeated() -> None:
    """The code in an error finds the same fault again."""
    with pytest.raises(co.OpCheckError) as caught:
        opcheck(stretch, test_utils="test_gradients")
    with pytest.raises(co.OpCheckError, match="has a wrong gradient"):
        exec(caught.value.repro, {})


def test_first_fault_raises() -> None:
    """Checks run in the order of the table, not in the order of `test_utils`."""

    def same(x: np.ndarray) -> np.ndarray:
        return x

    op = co.custom_op("checked::same", same, mutates_args=())
    with pytest.raises(co.OpCheckError) as caught:
        opcheck(op, (X,), test_utils=("test_faketensor", "test_schema"))
    assert caught.value.kind == "test_schema"


def test_error_of_the_kernel_is_told() -> None:
    """An exception of a rule is reported, and is the cause of the error."""

    def fails(info: Any, in_dims: Any, x: Any) -> Any:
        raise KeyError("missing")

    op = co.custom_op("checked::keyed", lambda x: x + 1, mutates_args=(), schema=_ONE)
    op.register_vmap(fails)
    with pytest.raises(co.OpCheckError) as caught:
        opcheck(op, (X,), test_utils="test_vmap")
    assert caught.value.what == (
        "checked::keyed: test_vmap: raises KeyError under vmap with in_dims=(0), and not"
        " for each row alone: 'missing'"
    )
    assert isinstance(caught.value.__cause__, KeyError)


_ONE = "(Array x) -> Array"


def test_error_of_the_call_is_told() -> None:
    """A kernel that raises for the arguments given fails the first check."""

    def picky(x: np.ndarray) -> np.ndarray:
        raise ValueError("never")

    op = co.custom_op("checked::picky", picky, mutates_args=())
    with pytest.raises(co.OpCheckError) as caught:
        opcheck(op, (X,))
    line = picky.__code__.co_firstlineno + 1
    assert caught.value.what == "checked::picky: test_schema: raises ValueError: never"
    assert caught.value.where[1] == f"at {__file__}:{line}"
    assert caught.value.do == (
        "make it accept this input, or refuse it where the kernel does"
    )


# ---- arguments ----


def test_names_of_checks() -> None:
    """The names and the order of the checks are fixed."""
    assert NAMES == (
        "test_schema",
        "test_mutation",
        "test_autograd_registration",
        "test_faketensor",
        "test_sizes",
        "test_kernels_agree",
        "test_vmap",
        "test_jvp",
        "test_gradients",
        "test_aot_dispatch_static",
        "test_aot_dispatch_dynamic",
        "test_layouts",
        "test_dtypes",
        "test_determinism",
        "test_out_variant",
        "test_pickle",
        "test_threads",
    )


@pytest.mark.parametrize(
    ("test_utils", "names"),
    [
        ("ALL", NAMES),
        ("test_schema", ("test_schema",)),
        (("test_vmap", "test_schema"), ("test_schema", "test_vmap")),
        (["test_vmap"], ("test_vmap",)),
        ((), ()),
    ],
)
def test_checks_by_name(test_utils: Any, names: tuple[str, ...]) -> None:
    """`test_utils` takes one name, several, or all."""
    assert tuple(opcheck(scale, (X, 3.0), test_utils=test_utils)) == names


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"test_utils": "test_shcema"},
            (
                "opcheck: no check is named 'test_shcema' (did you mean 'test_schema'?)\n"
                f"  known: {', '.join(repr(name) for name in NAMES)}\n"
                '  do: write test_utils="test_schema", several in a tuple, or "ALL"'
            ),
        ),
        (
            {"rtol": 1e-3},
            (
                "opcheck: rtol is given without atol\n"
                "  do: pass both, as atol=0.0, or none"
            ),
        ),
        (
            {"atol": 1e-3},
            (
                "opcheck: atol is given without rtol\n"
                "  do: pass both, as rtol=0.0, or none"
            ),
        ),
        (
            {"rtol": -1.0, "atol": 0.0},
            "opcheck: rtol=-1.0 is out of range\n  do: pass rtol >= 0",
        ),
        (
            {"args": X},
            (
                "opcheck: args is ndarray, must be a tuple of arguments\n"
                "  do: write opcheck(op, (x,))"
            ),
        ),
        (
            {"args": (X,), "kwargs": {"factor": "far"}},
            (
                "checked::scale: argument 'factor' expects float, got str 'far'\n"
                "  checked::scale(Array x, float factor) -> Array\n"
                "                          ^^^^^^^^^^^^\n"
                "  do: pass a value of type float"
            ),
        ),
    ],
)
def test_settings_are_refused(settings: dict[str, Any], says: str) -> None:
    """Wrong settings are refused before anything runs."""
    with pytest.raises(co.ArgumentError) as caught:
        opcheck(scale, **{"args": (X, 3.0), **settings})
    assert str(caught.value) == says


def test_only_operators_are_checked() -> None:
    """A function that is not an operator is refused."""
    with pytest.raises(co.ArgumentError) as caught:
        opcheck(len)
    assert str(caught.value) == (
        "opcheck: <built-in function len> is not an operator\n"
        "  do: pass what custom_op returns, or co.ops.namespace.name.default"
    )


def test_packet_of_one_overload() -> None:
    """A packet with one overload is checked."""
    assert opcheck(co.ops.checked.scale, (X, 3.0)).op == "checked::scale"


def test_packet_of_several_overloads() -> None:
    """A packet with several overloads is refused."""
    with co.Library("checked", "FRAGMENT") as lib:
        lib.define("many.one(Array x) -> Array")
        lib.define("many.two(Array x, int n) -> Array")
        with pytest.raises(co.ArgumentError) as caught:
            opcheck(co.ops.checked.many)
    assert str(caught.value) == (
        "opcheck: checked::many has several overloads: 'one', 'two'\n"
        "  do: pass one of them: co.ops.checked.many.one"
    )


def test_closed_operator() -> None:
    """An operator whose library has closed is refused."""
    with co.Library("checked", "FRAGMENT") as lib:
        lib.define("gone(Array x) -> Array")
        op = co.ops.checked.gone.default
    with pytest.raises(co.MissingRuleError, match="checked::gone was removed"):
        opcheck(op)


def test_arguments_by_name() -> None:
    """Arguments can be given by name, and must be if they are keyword-only."""

    def shifted(x: np.ndarray, *, by: np.ndarray) -> np.ndarray:
        return x + by

    def fake(x: Any, *, by: Any) -> Any:
        shape = np.broadcast_shapes(x.shape, by.shape)
        return co.FakeArray(shape, np.result_type(x.dtype, by.dtype))

    op = co.custom_op(
        "checked::shifted", shifted, mutates_args=(), tags=co.Tag.flexible_layout
    )
    op.register_fake(fake).register_vmap(
        lambda info, in_dims, x, *, by: (
            (_rows(x, in_dims[0]) + _rows(by, in_dims[-1]), 0)
            if len(in_dims) > 1
            else (_rows(x, in_dims[0]) + by, 0)
        )
    )
    assert opcheck(op, kwargs={"x": X, "by": X}).failed == []
    assert opcheck(op, (X,), {"by": X}).failed == []


def _rows(x: Any, dim: int | None) -> Any:
    return x if dim is None else np.moveaxis(x, dim, 0)


def test_tolerances_are_taken() -> None:
    """Kernels may differ by as much as `rtol` and `atol` allow."""
    assert opcheck(drift, (X,), raise_exception=False).failed == ["test_kernels_agree"]
    assert opcheck(drift, (X,), rtol=1e-2, atol=0.0).failed == []


def test_given_arguments_stay() -> None:
    """The given arrays are not written."""
    x, before = X.copy(), X.copy()

    def double_(x: np.ndarray) -> np.ndarray:
        x += x
        return x

    op = co.custom_op(
        "checked::double_", double_, mutates_args=("x",), tags=co.Tag.inplace
    )
    assert opcheck(op, (x,)).failed == []
    assert np.array_equal(x, before)


@pytest.mark.exhaustive
def test_large_arrays() -> None:
    """Only some derivatives of a large array are checked."""
    found = opcheck(scale, (np.ones(100_000), 3.0))
    assert found["test_gradients"] == "SUCCESS"


def test_fault_in_a_large_array() -> None:
    """A wrong gradient of a large array is found, and shown for a single element."""
    utils = "test_gradients"
    found = opcheck(
        stretch, (np.ones(100_000), 3.0), test_utils=utils, raise_exception=False
    )
    assert found[utils].sample.args[0].shape == ()  # type: ignore[union-attr]


_Real = Annotated[NDArray[np.floating], "n"]
_Inexact = Annotated[NDArray[np.inexact], "n"]


def _product_of(name: str, by_y: Callable[[Any, Any], Any]) -> Any:
    """Multiply real x and any y, with a gradient by y that is given."""

    def product(x: _Real, y: _Inexact) -> _Inexact:
        return x * y

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    def pull(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_arrays
        return np.real(g * y), by_y(g, x)

    op = co.custom_op(f"checked::{name}", product, mutates_args=())
    op.register_fake(lambda x, y: co.fake_like(x, dtype=np.result_type(x, y)))
    op.register_autograd(pull, setup_context=keep)
    return op


def test_annotations_that_exclude_complex_numbers() -> None:
    """Gradients are checked at complex numbers where the annotations admit them."""
    right = _product_of("product", lambda g, x: g * x)
    wrong = _product_of("conjugated", lambda g, x: np.conjugate(g) * x)
    args = np.ones(2), np.ones(2)
    assert opcheck(right, args, test_utils="test_gradients").failed == []
    found = opcheck(wrong, args, test_utils="test_gradients", raise_exception=False)
    assert found.failed == ["test_gradients"]


# ---- operators of other kinds ----


def test_operator_without_arrays() -> None:
    """Without arrays most checks are skipped with a reason."""

    def power(x: float, n: int) -> float:
        return x**n

    op = co.custom_op("checked::power", power, mutates_args=())
    op.register_fake(lambda x, n: x**n)
    found = opcheck(op, (2.0, 3))
    skipped = {name: v[9:] for name, v in found.items() if v.startswith("SKIPPED")}
    assert skipped == {
        "test_autograd_registration": "no autograd rule",
        "test_faketensor": "no argument is an array",
        "test_sizes": "no array holds values to change",
        "test_aot_dispatch_static": "no argument is an array",
        "test_aot_dispatch_dynamic": "no argument is an array",
        "test_kernels_agree": "only one kernel",
        "test_vmap": "no vmap rule: a loop is exact",
        "test_jvp": "no jvp rule, and no autograd rule to transpose",
        "test_gradients": "no autograd rule",
        "test_layouts": "no array to vary",
        "test_dtypes": "no array to vary",
        "test_out_variant": "there is no power.out, power_out or power_",
        "test_pickle": "it is made inside of a function: other processes do not find it",
    }


def test_kinks_are_no_faults() -> None:
    """At a kink the gradient is checked nearby, or skipped if there are many kinks."""

    def clipped(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0.0)

    def in_steps(x: np.ndarray) -> np.ndarray:
        return np.round(x * 1e5) / 1e5

    def gradient(fn: Any, x: list[float]) -> Any:
        op = co.custom_op(f"checked::{fn.__name__}", fn, mutates_args=())
        op.register_autograd(
            lambda ctx, g: g * (ctx.x > 0),
            setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0]),
        )
        found = opcheck(op, (np.array(x),), test_utils="test_gradients")
        return found["test_gradients"]

    assert gradient(clipped, [1.0, 1e-5, -2.0]) == "SUCCESS"
    assert gradient(clipped, [1.0, 0.0]) == "SUCCESS"
    assert gradient(in_steps, [1.0, 2.0]) == (
        "SKIPPED: differences from both sides disagree: it has a kink, a jump or an edge there"
    )


def test_the_reported_input_is_one_that_the_operator_takes() -> None:
    """A kernel that would run on None does not make it the smallest input."""

    def same(x: np.ndarray) -> np.ndarray:
        return x

    op = co.custom_op("checked::returned", same, mutates_args=())
    found = opcheck(op, (X,), raise_exception=False)["test_faketensor"]
    assert isinstance(found, co.OpCheckError)
    assert isinstance(found.sample.args[0], np.ndarray)


def test_random_operator() -> None:
    """A tagged random operator runs from one random state, which is restored."""

    def jitter(x: np.ndarray) -> np.ndarray:
        return x + np.random.normal(size=x.shape)  # noqa: NPY002

    op = co.custom_op(
        "checked::jitter",
        jitter,
        mutates_args=(),
        tags=co.Tag.nondeterministic_seeded,
    )
    op.register_fake(
        lambda x: co.FakeArray(x.shape, np.result_type(x.dtype, np.float64), x.strides)
    )
    np.random.seed(7)  # noqa: NPY002
    expected = np.random.uniform()  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    assert opcheck(op, (X,)).failed == []
    assert np.random.uniform() == expected  # noqa: NPY002


def test_random_operator_with_a_gradient() -> None:
    """The formula of an operator that draws random numbers is checked in one call."""

    def dropout(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return x * 1.0 * (rng.random(x.shape) > 0.5)

    op = co.custom_op("checked::dropout", dropout, mutates_args=())
    op.register_fake(lambda x, rng: co.fake_like(x, dtype=np.result_type(x, 1.0)))
    op.register_autograd(
        lambda ctx, grad: (grad * (ctx.saved_arrays[0] != 0), None),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
    )
    found = opcheck(op, (X, np.random.default_rng(3)))
    assert found["test_autograd_registration"] == "SUCCESS"
    assert found.failed == []


def test_rounding_that_differs() -> None:
    """Tag.nondeterministic_bitwise allows other rounding in each call."""
    calls = [0]

    def summed(x: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return np.asarray(np.sum(x, dtype=float) * (1.0 + 1e-12 * (calls[0] % 2)))

    def make(name: str, **settings: Any) -> Any:
        op = co.custom_op(f"checked::{name}", summed, mutates_args=(), **settings)
        return op.register_fake(lambda x: co.FakeArray((), np.float64))

    tag = co.Tag.nondeterministic_bitwise
    utils = "test_determinism"
    loose = opcheck(make("loose", tags=tag), (X,), test_utils=utils)
    strict = opcheck(make("strict"), (X,), test_utils=utils, raise_exception=False)
    assert (loose.failed, strict.failed) == ([], [utils])


def test_equal_values_may_be_written() -> None:
    """Writing equal values counts as writing."""

    def touch(x: np.ndarray) -> None:
        x[...] = x.copy()

    op = co.custom_op("checked::touch", touch, mutates_args=("x",))
    assert opcheck(op, (X,)).failed == []


def test_written_objects_are_seen() -> None:
    """A write into an array of objects is found."""

    def tidy(x: np.ndarray) -> np.ndarray:
        x[0] = "other"
        return np.ones(2)

    op = co.custom_op("checked::tidy", tidy, mutates_args=())
    words = np.array(["one", "two"], object)
    found = opcheck(op, (words,), test_utils="test_mutation", raise_exception=False)
    assert found["test_mutation"].what == (  # type: ignore[union-attr]
        "checked::tidy: test_mutation: writes argument 'x', which mutates_args=() does"
        " not name"
    )


def test_variant_of_another_shape_is_left_out() -> None:
    """An in-place variant is skipped where the result does not fit its argument."""

    def widened(x: np.ndarray) -> np.ndarray:
        return x * 1.5

    def widened_(x: np.ndarray) -> np.ndarray:
        x[...] = (x * 1.5).astype(x.dtype)
        return x

    op = co.custom_op("checked::widened", widened, mutates_args=())
    co.custom_op(
        "checked::widened_", widened_, mutates_args=("x",), tags=co.Tag.inplace
    )
    found = opcheck(op, (np.array([1, 2]),), test_utils="test_out_variant")
    assert found == {"test_out_variant": "SUCCESS"}


def test_compiled_kernel() -> None:
    """A compiled kernel is checked with another thread too."""
    op = co.custom_op("checked::negative", np.negative, mutates_args=(), schema=_ONE)
    assert opcheck(op, (X,), test_utils="test_threads") == {"test_threads": "SUCCESS"}


def test_lock_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that does not release its lock is a fault."""
    monkeypatch.setattr(behavior_checks, "_LONGEST", 0.01)
    lock = threading.RLock()
    made: list[Any] = []

    def kept(x: np.ndarray) -> np.ndarray:
        lock.acquire()
        made.append(x)
        return x + x

    op = co.custom_op("checked::kept", kept, mutates_args=())
    utils = "test_threads"
    found = opcheck(op, (X,), test_utils=utils, raise_exception=False)
    assert found[utils].what == (  # type: ignore[union-attr]
        "checked::kept: test_threads: does not end within 0 s during a call in another"
        " thread"
    )
    for _ in range(len(made)):
        lock.release()


def test_error_in_another_thread() -> None:
    """A kernel that needs what one thread alone has is found."""
    local = threading.local()
    local.factor = 2.0
    op = co.custom_op(
        "checked::local", lambda x: x * local.factor, mutates_args=(), schema=_ONE
    )
    utils = "test_threads"
    found = opcheck(op, (X,), test_utils=utils, raise_exception=False)
    assert found[utils].what == (  # type: ignore[union-attr]
        "checked::local: test_threads: raises AttributeError in another thread:"
        " '_thread._local' object has no attribute 'factor'"
    )


def test_search_for_inputs_that_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result says that there may be other inputs."""

    def check(name: str) -> OpCheckResult:
        op = co.custom_op(name, np.negative, mutates_args=(), schema=_ONE)
        return opcheck(op, test_utils="test_schema")

    says = "the kernel is slow: the search for inputs ended early"
    whole = check("checked::searched")
    assert not whole.notes
    monkeypatch.setattr(search, "_SECONDS", 0.0)
    cut = check("checked::cut")
    assert cut["test_schema"] == "SUCCESS"
    assert cut.notes["test_schema"].startswith(says)
    assert len(cut.inputs) < len(whole.inputs)


def test_search_for_a_smaller_input_that_ends_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error says that there may be one."""
    monkeypatch.setattr(check_runs, "_TO_SHRINK", 0.0)
    args = (np.arange(1.0, 30.0), 2.0)
    utils = "test_gradients"
    found = opcheck(stretch, args, test_utils=utils, raise_exception=False)
    assert "the kernel is slow: a smaller input was sought" in str(found[utils])
    assert found[utils].sample.args[0].size == 29  # type: ignore[union-attr]


def test_time_that_is_over_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running out of time is not taken for a lock that the kernel keeps."""
    monkeypatch.setattr(co.config, "opcheck_seconds", 1e-9)
    utils = "test_threads"
    found = opcheck(scale, (X, 2.0), test_utils=utils, raise_exception=False)
    assert found.failed == []


def test_kernel_for_short_floats_alone() -> None:
    """Derivatives are skipped for a kernel that refuses float64."""

    def short(x: np.ndarray) -> np.ndarray:
        if x.dtype != np.float32:
            raise TypeError("float32")
        return x + x

    op = co.custom_op("checked::short", short, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x)).register_autograd(lambda ctx, g: g + g)
    found = opcheck(op, (X.astype(np.float32),))
    assert found["test_gradients"] == (
        "SKIPPED: the kernel takes no float64, which differences need"
    )


def test_empty_arrays_have_no_derivative() -> None:
    """Derivatives are skipped for arrays without elements."""
    found = opcheck(scale, (np.zeros(0), 2.0))
    assert found["test_gradients"] == (
        "SKIPPED: arrays without elements have no derivative"
    )


# ---- side effects ----


def test_slow_kernel_is_called_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check stops between two calls when its time is up, and says what is left out."""
    monkeypatch.setattr(co.config, "opcheck_seconds", 1e-9)
    found = opcheck(scale, (X, 3.0), test_utils=("test_layouts", "test_sizes"))
    assert found["test_layouts"] == (
        "SKIPPED: the kernel is slow: stopped within input 1 of its inputs; those after"
        " it are left out"
    )


def test_slow_kernel_is_called_less_by_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search for inputs ends with the first, and each check before its first call."""
    calls = np.frombuffer(mmap.mmap(-1, 8), np.int64)  # children write to it, too

    def counted(x: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return x * 2

    op = co.custom_op("checked::counted", counted, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x))
    opcheck(op, test_utils=("test_layouts", "test_determinism"))
    usual = int(calls[0])
    monkeypatch.setattr(co.config, "opcheck_seconds", 1e-9)
    op = co.custom_op("checked::counted_less", counted, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x))
    calls[0] = 0
    found = opcheck(op, test_utils=("test_layouts", "test_determinism"))
    assert "stopped within input 1" in str(found["test_determinism"])
    assert 0 < calls[0] < 20 < usual


class _Planned:
    """A time that passes only where a test says so."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.used = 0.0

    def left(self) -> float:
        return self.seconds - self.used


def _slow_session(pace: float, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(Session, "_note_pace", lambda session: None)
    samples = [Sample((X, float(k))) for k in range(3)]
    session = Session(scale, samples, pace=pace, began=0.0)
    session.plan([check.cost(scale) for check in CHECKS])
    return session


def test_time_of_a_slow_kernel_goes_to_the_checks_that_find_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has the calls for one input, in this order; the others say what they need."""
    monkeypatch.setattr(session_module, "Allowance", _Planned)
    monkeypatch.setattr(co.config, "opcheck_seconds", 20.0)
    session = _slow_session(0.12, monkeypatch)  # half the time is left: 83 calls
    assert len(session.samples) == 1
    reasons = {}
    for check in CHECKS:
        cost = check.cost(scale)
        try:
            with session.timed(cost):
                assert isinstance(session.allowed, _Planned)
                needed = session.pace * cost.calls
                assert session.allowed.seconds > 0.99 * needed
                session.allowed.used = needed
        except OutOfTimeError as error:
            reasons[check.name] = str(error)
    assert reasons == {"test_dtypes": "a call takes 0.12 s, and one input 20 calls"}


def test_quick_kernel_has_time_for_all_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is left out."""
    session = _slow_session(0.001, monkeypatch)
    assert (len(session.samples), session.left_out) == (3, "")


def test_compiler_in_a_first_call_is_no_slow_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time of a call is that of the second one."""
    now = [100.0]
    monkeypatch.setattr(session_module, "perf_counter", lambda: now[0])
    seconds = [5.0, 0.25]

    def compiled(x: np.ndarray) -> np.ndarray:
        now[0] += seconds.pop(0)
        return x * 2

    op = co.custom_op("checked::compiled", compiled, mutates_args=())
    session = Session(op, [Sample((X,))], pace=3.0, is_given=False, began=now[0])
    session.plan([check.cost(op) for check in CHECKS])
    assert session.pace == 0.25


def test_few_inputs_of_a_slow_kernel_show_most() -> None:
    """Those with two axes come first, and the largest is one of them."""
    shapes = [(), (1, 1, 1), (3,), (3, 2), (2, 3, 4)]
    samples = [Sample((np.ones(shape), 2.0)) for shape in shapes]
    patterns = scale.plans.patterns
    try:
        scale.plans.patterns = input_patterns.Patterns([], seconds_a_call=1.0)
        few, note = _fewer(scale, samples)
    finally:
        scale.plans.patterns = patterns
    assert [sample.args[0].shape for sample in few] == [(3, 2), (3,), (2, 3, 4)]
    assert note == "the kernel is slow: 3 of 5 inputs are checked"


def test_large_arrays_have_no_variations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of arrays that do not fit into the memory of opcheck are not made."""
    monkeypatch.setattr(co.config, "opcheck_memory", 100)
    found = opcheck(scale, (X, 3.0), test_utils=("test_layouts",))
    assert found.notes["test_layouts"].endswith("config.opcheck_memory is 0 MB")


@pytest.mark.exhaustive
def test_gradient_of_a_long_array() -> None:
    """One wrong number among 70,000 is found, without a matrix of all derivatives."""

    def wrong(ctx: Any, g: Any) -> Any:
        out = 2.0 * g * ctx.x
        return np.where(np.arange(out.size) == 66_000, 0.0, out)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.x = inputs[0]

    op = co.custom_op("checked::long", lambda x: x * x, mutates_args=(), schema=_ONE)
    op.register_fake(lambda x: co.fake_like(x))
    op.register_autograd(wrong, setup_context=keep)
    x = np.random.default_rng(0).uniform(1.0, 2.0, 70_000)
    found = opcheck(op, (x,), test_utils="test_gradients", raise_exception=False)
    assert found.failed == ["test_gradients"]


_ONE = "(Array x) -> Array"


@pytest.mark.parametrize("numbers", [[0.0, 2.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
def test_edges_and_ties_are_no_faults(numbers: list[float]) -> None:
    """At the edge of a domain, and where numbers are equal, right gradients pass."""

    def middle(x: np.ndarray) -> np.ndarray:
        if (x < 0).any():
            raise ValueError("negative")
        return np.median(x) * x**1.5

    op = co.custom_op(
        f"checked::middle{len(numbers)}_{numbers[0]:.0f}", middle, mutates_args=()
    )
    op.register_fake(lambda x: co.fake_like(x)).register_autograd(co.native)
    found = opcheck(
        op, (np.array(numbers),), test_utils="test_gradients", raise_exception=False
    )
    assert found.failed == [], found["test_gradients"]


def test_nothing_is_left_behind() -> None:
    """Settings, tables and warning filters are restored, also after a fault."""
    before = (co.config.checks, co.config.aliasing, stretch.rows, stretch.disabled)
    filters = list(warnings.filters)
    assert opcheck(stretch, raise_exception=False).failed != []
    after = (co.config.checks, co.config.aliasing, stretch.rows, stretch.disabled)
    assert after == before
    assert warnings.filters == filters


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_settings_change_nothing(checks: str) -> None:
    """A fault is found whatever `config.checks` says."""

    def same(x: np.ndarray) -> np.ndarray:
        return x

    op = co.custom_op(f"checked::same_{checks}", same, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x))
    co.config.checks = checks
    found = opcheck(op, (X,), test_utils="test_schema", raise_exception=False)
    assert found.failed == ["test_schema"]


# ---- config objects ----


@dataclass(frozen=True)
class Gain:
    """A config object without arrays."""

    db: float = 3.0


def test_config_objects_pass() -> None:
    """An operator with a config object passes, with given and with found inputs."""

    def amplified(x: np.ndarray, gain: Gain) -> np.ndarray:
        return x * 10.0 ** (gain.db / 20.0)

    op = co.custom_op("checked::amplified", amplified, mutates_args=())
    op.register_fake(
        lambda x, gain: co.fake_like(x, dtype=(np.ones(0, x.dtype) * 1.0).dtype)
    )
    assert opcheck(op, (X, Gain(6.0))).failed == []
    assert opcheck(op).failed == []


# ---- arrays of other kinds ----


class Cell:
    """An array class that is not NumPy's."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: self.values.ndim)
    device = "cell"


@pytest.fixture
def cell(built_in_kinds: None) -> None:
    """Register the kind of array `cell`."""
    co.register_array_type("cell", Cell, from_numpy=Cell, to_numpy=lambda c: c.values)


@pytest.mark.usefixtures("cell")
def test_arrays_of_another_kind_are_brought_to_numpy() -> None:
    """Given arrays of another kind are checked as NumPy arrays and as they are."""

    def twice(x: np.ndarray) -> np.ndarray:
        return x + x

    op = co.custom_op("checked::twice", twice, mutates_args=(), device_types="cpu")
    op.register_kernel("cell", lambda x: Cell(x.values + x.values))
    op.register_fake(lambda x: co.fake_like(x))
    found = opcheck(op, (Cell(X),))
    assert found["test_kernels_agree"] == "SUCCESS"
    assert found["test_layouts"] == "SUCCESS"


@pytest.mark.usefixtures("cell")
def test_operator_of_another_kind_alone() -> None:
    """Without a kernel for NumPy arrays, some checks still run."""

    def twice(x: Any) -> Any:
        return Cell(x.values + x.values)

    op = co.custom_op(
        "checked::cells", twice, mutates_args=(), device_types="cell", schema=_ONE
    )
    op.register_fake(lambda x: co.fake_like(x))
    found = opcheck(op, (Cell(X),))
    assert (found["test_schema"], found["test_faketensor"]) == ("SUCCESS", "SUCCESS")
    assert found["test_vmap"] == (
        "SKIPPED: the operator has no kernel for NumPy's arrays"
    )


@pytest.mark.usefixtures("built_in_kinds")
def test_kind_that_cannot_be_made() -> None:
    """A kernel for arrays that cannot be made here is skipped with a reason."""
    co.register_array_type("cell", Cell)

    def twice(x: np.ndarray) -> np.ndarray:
        return x + x

    op = co.custom_op("checked::far", twice, mutates_args=(), device_types="cpu")
    op.register_kernel("cell", lambda x: Cell(x.values + x.values))
    utils = "test_kernels_agree"
    assert opcheck(op, (X,), test_utils=utils) == {
        utils: "SKIPPED: no array of the kind 'cell' can be made here"
    }


def test_arrays_without_data() -> None:
    """Fake arrays are refused."""
    with pytest.raises(co.ArgumentError) as caught:
        opcheck(scale, (co.FakeArray((2,)), 2.0))
    assert str(caught.value) == (
        "opcheck: argument 'x' is FakeArray f64[2], which has no data\n"
        "  do: pass arrays with data"
    )


def test_memory_is_poisoned() -> None:
    """`np.empty` returns other bytes in each call, so unfilled results differ."""

    def unfilled(x: np.ndarray) -> np.ndarray:
        return np.empty(x.shape, np.uint8)

    op = co.custom_op("checked::unfilled", unfilled, mutates_args=())
    x = np.ones(700)
    found = opcheck(op, (x,), test_utils="test_determinism", raise_exception=False)
    seen = " ".join(found["test_determinism"].where)  # type: ignore[union-attr]
    assert "(170 and 97)" in seen
