"""gradcheck and gradgradcheck find wrong derivatives, and pass right ones."""
# ruff: noqa: ISC004 - a message stands in the table line by line

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import customop as co
from tests.strict_arrays import KIND

try:
    import torch
except ImportError:  # of the extra 'bench'
    torch = None

# Dictionaries keyed by dtypes compare keys of one hash, and strict dtypes hash as
# NumPy's: array_api_strict warns of the comparison, which says unequal as it should.
pytestmark = pytest.mark.filterwarnings(
    "ignore:You are comparing a array_api_strict dtype:UserWarning"
)

RNG = np.random.default_rng(7)
X = RNG.uniform(0.3, 2.0, (2, 3))
Y = RNG.uniform(0.3, 2.0, 3)
Z = RNG.standard_normal(3) + 1j * RNG.standard_normal(3)
ALL = {"check_forward_ad": True, "check_batched_grad": True}
ALL_SECOND = {
    "check_fwd_over_rev": True,
    "check_batched_grad": True,
    "check_grad_dtypes": True,
}
numbers = itertools.count()


def operator(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    schema: str = "(Array x) -> Array",
) -> Any:
    """Make an operator whose backward formula takes the gradient and the inputs."""
    op = co.custom_op(
        f"testing_test::op{next(numbers)}", forward, mutates_args=(), schema=schema
    )
    return op.register_autograd(
        lambda ctx, g: backward(g, *ctx.saved_arrays),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )


def failure(check: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the message of a failing check."""
    with pytest.raises(co.OpCheckError) as caught:
        check(*args, **kwargs)
    return str(caught.value)


def place(fn: Callable[..., Any]) -> str:
    """File and line of a function of this module."""
    return f"{__file__}:{fn.__code__.co_firstlineno}"


# ---- right derivatives pass ----


class Pair(NamedTuple):
    first: Any
    second: Any


RIGHT = {
    "real": (np.sin, (X,)),
    "number of NumPy": (np.sin, (np.float64(0.3),)),
    "no axes": (lambda x: x * x, (np.array(2.0),)),
    "empty input": (lambda x: x * 2.0, (np.zeros((0, 3)),)),
    "empty output": (lambda x: x[:0], (X,)),
    "broadcast": (lambda x, y: x * y, (X, Y)),
    "constant argument": (lambda x, k, name: x * k, (X, 3, "name")),
    "integers out": (lambda x: (x * x, np.argmax(x)), (X,)),
    "constant output": (lambda x: (x * x, np.ones(2)), (X,)),
    "pytree": (
        lambda tree, y: {"a": tree["w"] * y, "b": np.sin(tree["b"][0])},
        ({"w": X, "b": [Y, 2]}, Y),
    ),
    "named tuple": (lambda p: Pair(p.first * p.second, p.first), (Pair(X, Y),)),
    "gaps in memory": (lambda x: x * x, (np.repeat(X, 2, axis=1)[:, ::-2],)),
    "column order": (lambda x: x @ x.T, (np.asfortranarray(X),)),
    "holomorphic": (np.exp, (Z,)),
    "abs": (np.abs, (Z,)),
    "real part": (np.real, (Z,)),
    "imaginary part": (np.imag, (Z,)),
    "conjugate": (np.conj, (Z,)),
    "neither": (lambda z: np.conj(z) * z * z + np.abs(z), (Z,)),
    "real and complex": (lambda x, z: (x * z, np.real(z) * x), (Y, Z)),
}


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", RIGHT)
def test_right_first_derivatives_pass(name: str, fast: bool) -> None:
    """A right function passes all checks, entry by entry and along directions."""
    fn, inputs = RIGHT[name]
    assert co.gradcheck(fn, inputs, fast_mode=fast, **ALL) is True


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", RIGHT)
def test_right_second_derivatives_pass(name: str, fast: bool) -> None:
    """A right function passes all checks of its second derivatives."""
    fn, inputs = RIGHT[name]
    assert co.gradgradcheck(fn, inputs, fast_mode=fast, **ALL_SECOND) is True


@pytest.mark.parametrize("gaps", [False, True])
def test_second_derivatives_with_cotangents_of_any_layout(gaps: bool) -> None:
    """Random cotangents with gaps reach the backward formula with gaps."""
    seen = []

    def backward(g: Any, x: Any) -> Any:
        if type(g) is np.ndarray:
            seen.append(g.strides)
        return g * np.cos(x)

    op = operator(np.sin, backward)
    assert co.gradgradcheck(op, (Y,), gen_non_contig_grad_outputs=gaps)
    assert ((16,) in seen) is gaps


def test_second_derivatives_at_cotangents_given() -> None:
    """Second derivatives are taken at grad_outputs."""
    op = operator(np.sin, lambda g, x: g * np.cos(x))
    assert co.gradgradcheck(op, (Y,), np.ones(3))
    assert co.gradgradcheck(lambda x: (op(x), 1, x), (Y,), (np.ones(3), Y))


def test_small_part_of_a_large_complex_derivative() -> None:
    """A small component is not known better than its complex derivative."""
    assert co.gradcheck(np.exp, (np.array(20.0 + 1e-9j),))


def test_moved_inputs_keep_their_layout() -> None:
    """A kernel gets the same strides at every point."""
    x = np.asfortranarray(X)
    seen = set()

    def fn(x: Any) -> Any:
        seen.add(getattr(x, "strides", None))
        return x * x

    co.gradcheck(fn, (x,), check_undefined_grad=False)
    assert seen == {x.strides, None}


def test_an_array_stands_for_a_tuple_of_it() -> None:
    """A single array may be passed without a tuple."""
    assert co.gradcheck(np.sin, X)


def test_inputs_are_left_as_they_are() -> None:
    """The given arrays are not written."""
    x = X.copy()
    co.gradcheck(np.sin, (x,))
    co.gradgradcheck(np.sin, (x,))
    np.testing.assert_array_equal(x, X)


def test_result_is_read_before_the_next_call() -> None:
    """A function may return the same memory each time."""
    buffer = np.empty(3)
    op = operator(np.sin, lambda g, x: g * np.cos(x))

    def fn(x: Any) -> Any:
        return np.sin(x, out=buffer) if type(x) is np.ndarray else op(x)

    assert co.gradcheck(fn, (Y,))


@pytest.mark.parametrize("fast", [False, True])
def test_derivatives_on_another_kind(strict: Any, fast: bool) -> None:
    """Registered arrays are moved and read through operators alone."""
    right = operator(np.square, lambda g, x: 2.0 * g * x)
    wrong = operator(np.square, lambda g, x: g * x)
    for op in (right, wrong):
        op.register_kernel(KIND, lambda x: x * x)
    x = strict(Y)
    assert co.gradcheck(right, (x,), fast_mode=fast)
    assert co.gradgradcheck(right, (x,), fast_mode=fast)
    assert not co.gradcheck(wrong, (x,), fast_mode=fast, raise_exception=False)


# ---- wrong first derivatives are found ----


def scaled_gradient(g: Any, x: Any) -> Any:
    return 2.0 * g * np.cos(x)


def one_sign_wrong(g: Any, x: Any) -> Any:
    sign = np.ones(x.shape)
    sign[-1] = -1.0
    return sign * g * np.cos(x)


def dropped_broadcast(g: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return g * y, g[0] * x[0]


def swapped(g: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return g * x, g * y


TWO = "(Array x, Array y) -> Array"
WRONG = {
    "factor": (operator(np.sin, scaled_gradient), (Y,)),
    "sign of one entry": (operator(np.sin, one_sign_wrong), (Y,)),
    "nothing": (operator(np.sin, lambda g, x: None), (Y,)),
    "no conjugate": (operator(np.conjugate, lambda g, x: g), (Z,)),
    "conjugate too many": (
        operator(np.exp, lambda g, x: g * np.conjugate(np.exp(x))),
        (Z,),
    ),
    "abs of torch's convention": (
        operator(np.abs, lambda g, x: g * x / np.abs(x)),
        (Z,),
    ),
    "term of a broadcast": (operator(np.multiply, dropped_broadcast, TWO), (X, Y)),
    "order of arguments": (operator(np.multiply, swapped, TWO), (Y, Y + 1.0)),
    "right at one only": (
        operator(np.square, lambda g, x: 2.0 * g),
        (np.array([1.0, 2.0]),),
    ),
    "transposed": (
        operator(lambda x: np.ascontiguousarray(x.T), lambda g, x: g * 1.0),
        (X[:, :2].copy(),),
    ),
    "nan": (operator(np.sin, lambda g, x: g * np.nan), (Y,)),
}


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_backward_is_found(name: str, fast: bool) -> None:
    """A wrong backward formula raises, in both modes."""
    fn, inputs = WRONG[name]
    with pytest.raises(co.OpCheckError, match="wrong backward"):
        co.gradcheck(fn, inputs, fast_mode=fast)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_backward_gives_false(name: str) -> None:
    """Without raise_exception the result is False."""
    fn, inputs = WRONG[name]
    assert co.gradcheck(fn, inputs, raise_exception=False) is False


@pytest.mark.parametrize("fast", [False, True])
def test_wrong_jvp_rule_is_found(fast: bool) -> None:
    """check_forward_ad finds a wrong jvp rule beside a right backward formula."""
    op = operator(np.sin, lambda g, x: g * np.cos(x))
    op.register_jvp(lambda primals, tangents: (op(*primals), tangents[0] * 2.0))
    assert co.gradcheck(op, (Y,), fast_mode=fast)
    with pytest.raises(co.OpCheckError, match="wrong jvp"):
        co.gradcheck(op, (Y,), fast_mode=fast, check_forward_ad=True)


def test_jvp_alone() -> None:
    """check_backward_ad=False leaves a wrong backward formula alone."""
    op = operator(np.sin, scaled_gradient)
    op.register_jvp(
        lambda primals, tangents: (op(*primals), np.cos(*primals) * tangents[0])
    )
    assert co.gradcheck(op, (Y,), check_backward_ad=False, check_forward_ad=True)


def test_backward_that_squares_its_cotangent_is_found() -> None:
    """Unit cotangents cannot tell g * g from g."""
    op = operator(np.sin, lambda g, x: g * g * np.cos(x))
    assert "not linear in its cotangent" in failure(co.gradcheck, op, (Y,))


def test_value_of_a_jvp_rule_is_checked() -> None:
    """A jvp rule that returns another output than the operator is wrong."""
    op = operator(np.sin, lambda g, x: g * np.cos(x))
    op.register_jvp(
        lambda primals, tangents: (np.cos(*primals), np.cos(*primals) * tangents[0])
    )
    text = failure(co.gradcheck, op, (Y,), check_forward_ad=True)
    assert "gives another value under jvp" in text


def test_wrong_vmap_rule_of_a_backward_is_found() -> None:
    """check_batched_grad runs the backward formula on a batch."""
    halved = operator(lambda x: x * 1.0, lambda g, x: g)
    halved.register_vmap(lambda info, in_dims, x: (x * 0.5, in_dims[0]))
    op = operator(np.sin, lambda g, x: halved(g) * np.cos(x))
    assert co.gradcheck(op, (Y,))
    text = failure(co.gradcheck, op, (Y,), check_batched_grad=True)
    assert "a backward that vmap gets wrong" in text


def split(undefined: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
    """Make an operator of two outputs whose backward formula may get None."""
    op = co.custom_op(
        f"testing_test::op{next(numbers)}",
        lambda x: (np.sin(x), np.cos(x)),
        mutates_args=(),
        schema="(Array x) -> (Array, Array)",
    )

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.set_materialize_grads(False)

    def backward(ctx: Any, first: Any, second: Any) -> Any:
        (x,) = ctx.saved_arrays
        first, second = undefined(first, second)
        return first * np.cos(x) - second * np.sin(x)

    return op.register_autograd(backward, setup_context=setup)


def test_undefined_gradients_count_as_zero() -> None:
    """A formula that treats None as one instead of zero is found."""
    right = split(lambda a, b: (0.0 if a is None else a, 0.0 if b is None else b))
    wrong = split(lambda a, b: (0.0 if a is None else a, 1.0 if b is None else b))
    assert co.gradcheck(right, (Y,))
    assert co.gradcheck(wrong, (Y,), check_undefined_grad=False)
    text = failure(co.gradcheck, wrong, (Y,))
    assert "has a wrong backward where output[0] alone is used" in text


# ---- functions that differ from call to call ----


def test_a_random_value_is_found() -> None:
    """The same inputs must give the same value."""
    rng = np.random.default_rng(0)
    noisy = operator(lambda x: x + rng.uniform(1e-9, 2e-9), lambda g, x: g)
    text = failure(co.gradcheck, noisy, (Y,))
    assert "not deterministic: its value differs between two calls" in text


def test_a_random_gradient_is_found() -> None:
    """The same cotangent must give the same gradient."""
    rng = np.random.default_rng(0)
    noisy = operator(np.sin, lambda g, x: g * np.cos(x) * rng.uniform(1.0, 1.0 + 1e-6))
    text = failure(co.gradcheck, noisy, (Y,))
    assert "not deterministic: its gradient differs between two calls" in text
    assert co.gradcheck(noisy, (Y,), nondet_tol=1e-5)


def test_outputs_keep_their_shape() -> None:
    """The number of elements must not depend on the values."""

    def fn(x: Any) -> Any:
        return x[: 2 if co.stop_gradient(x)[0] > Y[0] else 3] * 1.0

    assert "gave outputs f64[3] and then f64[2]" in failure(co.gradcheck, fn, (Y,))


def test_a_function_that_writes_its_input_is_found() -> None:
    """A function that writes its input is found."""

    def fn(x: Any) -> Any:
        x *= 2.0
        return x

    assert "fn writes its input" in failure(co.gradcheck, fn, (Y.copy(),))


# ---- second derivatives ----


@pytest.mark.parametrize("fast", [False, True])
def test_wrong_second_derivative_behind_a_right_first(fast: bool) -> None:
    """A factor that the backward formula hides from tracing is found."""
    op = operator(np.sin, lambda g, x: g * co.stop_gradient(np.cos(x)))
    assert co.gradcheck(op, (Y,), **ALL)
    text = failure(co.gradgradcheck, op, (Y,), fast_mode=fast)
    assert "d gradient by inputs[0]" in text


def test_wrong_forward_over_reverse() -> None:
    """check_fwd_over_rev finds a wrong jvp rule of an operator in backward."""
    factor = operator(np.cos, lambda g, x: -g * np.sin(x))
    factor.register_jvp(lambda primals, tangents: (factor(*primals), tangents[0]))
    op = operator(np.sin, lambda g, x: g * factor(x))
    assert co.gradgradcheck(op, (Y,))
    text = failure(co.gradgradcheck, op, (Y,), check_fwd_over_rev=True)
    assert "has a wrong jvp" in text
    alone = {"check_rev_over_rev": False, "check_fwd_over_rev": True}
    assert co.gradgradcheck(op, (Y,), raise_exception=False, **alone) is False


# ---- agreement with torch ----

PAIRED = {
    "sin": (np.sin, "sin", (Y,)),
    "product": (lambda a, b: a * b, lambda a, b: a * b, (X, Y)),
    "matmul": (lambda a: a @ a.T, lambda a: a @ a.T, (X,)),
    "abs": (np.abs, "abs", (Z,)),
    "conj": (np.conj, "conj_physical", (Z,)),
    "kink": (np.abs, "abs", (np.array([0.0, 1.0]),)),
    "two": (lambda a: (np.sin(a), a * a), lambda a: (a.sin(), a * a), (Y,)),
}


@pytest.mark.skipif(torch is None, reason="torch is in the extra 'bench'")
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", PAIRED)
def test_as_torch_decides(name: str, fast: bool) -> None:
    """torch.autograd's checks of the same function say the same."""
    ours, theirs, arrays = PAIRED[name]
    fn = getattr(torch, theirs) if isinstance(theirs, str) else theirs
    tensors = tuple(torch.from_numpy(a.copy()).requires_grad_() for a in arrays)
    how = {"raise_exception": False, "fast_mode": fast}
    first = torch.autograd.gradcheck(fn, tensors, **how)
    second = torch.autograd.gradgradcheck(fn, tensors, **how)
    assert co.gradcheck(ours, arrays, **how) == first
    assert co.gradgradcheck(ours, arrays, **how) == second


# ---- what the checks say ----


def cubes(x: np.ndarray) -> Any:
    return x**3


def test_words_of_a_wrong_entry() -> None:
    """The message names output, input, entry, both values and the point."""
    op = operator(cubes, lambda g, x: g * 3.0 * x)
    assert failure(lambda: co.gradcheck(op, (np.array([1.0, 2.0]),))) == (
        f"gradcheck: {op.__name__} has a wrong backward, in 1 of 4 derivatives\n"
        "  worst: d output[1] / d inputs[0][1] is 6, by differences 12: off by 6,"
        " allowed 0.01201 (atol=1e-05, rtol=0.001)\n"
        "  evaluated at inputs[0][1] = 2\n"
        f"  function at {place(cubes)}\n"
        "  do: correct the backward formula of an operator in the function; where it"
        " has a kink or a jump near the inputs, move them away"
    )


def test_words_of_several_wrong_entries() -> None:
    """Several wrong entries make a table, the worst first."""
    op = operator(cubes, lambda g, x: g * 3.0 * x)

    def fn(tree: Any) -> Any:
        return {"y": op(tree["x"]), "z": tree["x"] * 1.0}

    text = failure(co.gradcheck, fn, ({"x": np.arange(2.0, 10.0)},))
    assert text.splitlines()[2:10] == [
        "  derivative                              is  by differences  off by",
        "  d output['y'][7] / d inputs[0]['x'][7]  27  243             216",
        "  d output['y'][6] / d inputs[0]['x'][6]  24  192             168",
        "  d output['y'][5] / d inputs[0]['x'][5]  21  147             126",
        "  d output['y'][4] / d inputs[0]['x'][4]  18  108             90",
        "  d output['y'][3] / d inputs[0]['x'][3]  15  75              60",
        "  d output['y'][2] / d inputs[0]['x'][2]  12  48              36",
        "  and 2 more",
    ]


def test_words_of_a_complex_entry() -> None:
    """Complex entries are named by their parts."""
    op = operator(np.conjugate, lambda g, x: g)
    text = failure(co.gradcheck, op, (np.array(1.0 + 2.0j),))
    assert text.splitlines()[1:3] == [
        "  worst: d imaginary part of output / d imaginary part of inputs[0] is 1, by"
        " differences -1: off by 2, allowed 0.00101 (atol=1e-05, rtol=0.001)",
        "  evaluated at imaginary part of inputs[0] = 2",
    ]


def test_words_in_fast_mode() -> None:
    """Random directions name the pair of arrays, and how to learn more."""
    op = operator(np.multiply, lambda g, x, y: (g * y, 2.0 * g * x), TWO)
    text = failure(co.gradcheck, op, (Y, Y), fast_mode=True)
    first, second, third, *_ = text.splitlines()
    assert first.endswith("multiply has a wrong backward")
    assert second.startswith("  d output / d inputs[1] is 0.76")
    assert second.endswith(
        ", by differences 0.380099: the sum with random weights,"
        " along a random direction of 3 numbers"
    )
    assert third == "  fast_mode=False names the entry"


def test_words_of_a_wrong_tangent_in_fast_mode() -> None:
    """A random direction names the entry of the output, and the inputs."""
    op = operator(np.sin, lambda g, x: g * np.cos(x))
    slope = np.array([1.0, 1.0, 2.0])
    op.register_jvp(
        lambda primals, tangents: (op(*primals), slope * np.cos(*primals) * tangents[0])
    )
    text = failure(co.gradcheck, op, (Y,), fast_mode=True, check_forward_ad=True)
    assert "has a wrong jvp, in 1 of 3 derivatives" in text
    assert "worst: d output[2] / d inputs[0] is" in text
    assert "along a random direction" in text


def test_words_of_a_formula_that_is_not_linear_in_fast_mode() -> None:
    """A cotangent that is squared is named as such, also along directions."""
    op = operator(np.sin, lambda g, x: g * g * np.cos(x))
    text = failure(co.gradcheck, op, (Y,), fast_mode=True)
    assert "has a backward that is not linear in its cotangent" in text


def no_floats(x: Any) -> Any:
    return 1


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no function": (
        lambda: co.gradcheck(3, (X,)),  # type: ignore[arg-type]
        co.ArgumentError,
        "gradcheck: 3 is not a function\n  do: write gradcheck(f) with a function f",
    ),
    "no tuple": (
        lambda: co.gradcheck(np.sin, 2.0),
        co.ArgumentError,
        "gradcheck: inputs are a tuple, got float 2.0\n"
        "  do: write gradcheck(f, (x, y))",
    ),
    "integers": (
        lambda: co.gradcheck(np.sin, (np.arange(3),)),
        co.GradientError,
        "gradcheck: no input is an array of floats\n"
        "  do: let the inputs have arrays of float64 or complex128 among them",
    ),
    "no output": (
        lambda: co.gradgradcheck(no_floats, (X,)),
        co.GradientError,
        "gradgradcheck: no output is an array of floats\n"
        "  do: let the outputs have arrays of float64 or complex128 among them",
    ),
    "overlap": (
        lambda: co.gradcheck(np.sin, (X, {"a": np.broadcast_to(Y, (2, 3))})),
        co.GradientError,
        "gradcheck: elements of inputs[1]['a'] (f64[2, 3]) share memory\n"
        "  strides (0, 8)\n"
        "  do: pass x.copy(), so that each element can move alone",
    ),
    "sliding window": (
        lambda: co.gradcheck(
            np.sin, (np.lib.stride_tricks.sliding_window_view(np.arange(4.0), 3),)
        ),
        co.GradientError,
        "gradcheck: elements of inputs[0] (f64[2, 3]) share memory\n"
        "  strides (8, 8)\n"
        "  do: pass x.copy(), so that each element can move alone",
    ),
    "fake": (
        lambda: co.gradcheck(np.sin, (co.FakeArray(3),)),
        co.GradientError,
        "gradcheck: inputs[0] is FakeArray f64[3], which has no values to move\n"
        "  do: call gradcheck outside of transforms, on real arrays",
    ),
    "traced": (
        lambda: co.vjp(lambda x: co.gradcheck(np.sin, (x,)), X),
        co.GradientError,
        "gradcheck: inputs[0] is GradTracer f64[2, 3], which has no values to move\n"
        "  do: call gradcheck outside of transforms, on real arrays",
    ),
    "nothing to check": (
        lambda: co.gradcheck(np.sin, (X,), check_backward_ad=False),
        co.ArgumentError,
        "gradcheck: check_backward_ad and check_forward_ad are both off, so there is"
        " nothing to check\n"
        "  do: leave out check_backward_ad=False",
    ),
    "nothing to check twice": (
        lambda: co.gradgradcheck(np.sin, (X,), check_rev_over_rev=False),
        co.ArgumentError,
        "gradgradcheck: check_rev_over_rev and check_fwd_over_rev are both off, so"
        " there is nothing to check\n"
        "  do: leave out check_rev_over_rev=False",
    ),
    "no step": (
        lambda: co.gradcheck(np.sin, (X,), eps=0.0),
        co.ArgumentError,
        "gradcheck: eps=0.0 is out of range\n  do: pass eps > 0",
    ),
    "negative bound": (
        lambda: co.gradgradcheck(np.sin, (X,), atol=-1.0),
        co.ArgumentError,
        "gradgradcheck: atol=-1.0 is out of range\n  do: pass atol >= 0",
    ),
    "too few cotangents": (
        lambda: co.gradgradcheck(lambda x: (x, x), (X,), (X,)),
        co.GradientError,
        "gradgradcheck: 1 grad_outputs for 2 outputs of floats\n"
        "  do: pass an array for each of them, or leave grad_outputs out",
    ),
    "cotangent of another shape": (
        lambda: co.gradgradcheck(np.sin, (X,), (Y,)),
        co.GradientError,
        "gradgradcheck: grad_outputs[0] is f64[3], must be f64[2, 3] like the output\n"
        "  do: pass an array of the shape and dtype of the output",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_checked_is_refused(name: str) -> None:
    """The message says what is wrong, where, and what to do."""
    call, error, text = REFUSED[name]
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text


def test_refusals_are_raised_in_any_case() -> None:
    """With raise_exception=False, mistakes in the call still raise."""
    with pytest.raises(co.GradientError):
        co.gradcheck(np.sin, (3,), raise_exception=False)


def test_a_missing_rule_is_raised() -> None:
    """An operator without a formula raises in any case."""
    op = co.custom_op(
        f"testing_test::op{next(numbers)}",
        lambda x: x * 1.0,
        mutates_args=(),
        schema="(Array x) -> Array",
    )
    with pytest.raises(co.MissingRuleError):
        co.gradcheck(op, (X,), raise_exception=False)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float16"])
def test_short_floats_warn(dtype: str) -> None:
    """Differences in single precision are too coarse for the tolerances."""
    x = np.array([0.5, 1.0], dtype)
    with pytest.warns(co.CustomOpWarning) as caught:
        co.gradcheck(lambda y, x: x * y[0], (Y, x), eps=1e-2, atol=1e-1)
    short = {"float32": "f32", "complex64": "c64", "float16": "f16"}[dtype]
    assert [str(w.message) for w in caught] == [
        f"gradcheck: inputs[1] is {short}[2], in which differences are coarser than the"
        " tolerances; do: pass float64 or complex128"
    ]
    assert caught[0].filename == __file__
