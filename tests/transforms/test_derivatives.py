"""Matrices of derivatives: jacrev, jacfwd, hessian."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import customop as co

X = np.array([1.0, 2.0, 3.0])
Y = np.array([0.5, -1.0, 4.0])
W = np.array([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])
JACOBIANS = {"jacrev": co.jacrev, "jacfwd": co.jacfwd}
_numbers = itertools.count()
both = pytest.mark.parametrize("name", JACOBIANS)


def define(fn: Callable[..., Any], backward: Any, schema: str) -> Any:
    """Make a pointwise operator with a backward formula that keeps its inputs."""
    op = co.custom_op(
        f"matrices::op_{next(_numbers)}",
        fn,
        mutates_args=(),
        schema=schema,
        tags=co.Tag.pointwise,
    )
    return op.register_autograd(
        backward,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )


cube = define(
    lambda x: x * x * x,
    lambda ctx, g: 3.0 * g * ctx.saved_arrays[0] * ctx.saved_arrays[0],
    "(Array x) -> Array",
)
product = define(
    lambda x, y: x * y,
    lambda ctx, g: (g * ctx.saved_arrays[1], g * ctx.saved_arrays[0]),
    "(Array x, Array y) -> Array",
)


def differences(fn: Callable[[Any], Any], x: Any) -> Any:
    """Jacobian by central differences, of shape output + input."""
    shape = np.shape(fn(x))
    found = np.zeros((*shape, *x.shape))
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = 1e-6
        found[(..., *index)] = (fn(x + step) - fn(x - step)) / 2e-6
    return found


def same_tree(actual: Any, expected: Any) -> None:
    """Assert that two trees have one structure and near leaves of one shape."""
    assert optree.tree_structure(actual) == optree.tree_structure(expected)
    for a, b in zip(
        optree.tree_leaves(actual), optree.tree_leaves(expected), strict=True
    ):
        assert np.shape(a) == np.shape(b)
        assert_allclose(a, b, rtol=1e-12, atol=1e-15)


# ---- closed forms ----


@both
def test_jacobian_of_a_linear_map(name: str) -> None:
    """The Jacobian of W x is W."""
    assert_array_equal(JACOBIANS[name](lambda x: W @ x)(X), W)


@both
def test_jacobian_of_a_pointwise_operator(name: str) -> None:
    """It is diagonal: of x^3."""
    assert_allclose(JACOBIANS[name](cube)(X), np.diag(3.0 * X**2))


@both
@pytest.mark.parametrize("mode", ["keyword", "position"])
def test_jacobian_by_both_arguments(name: str, mode: str) -> None:
    """A tuple of argnums gives a tuple of Jacobians."""
    made = (
        JACOBIANS[name](product, argnums=(0, 1))
        if mode == "keyword"
        else JACOBIANS[name](product, (0, 1))
    )
    by_x, by_y = made(X, Y)
    assert_allclose(by_x, np.diag(Y))
    assert_allclose(by_y, np.diag(X))


FUNCTIONS = {
    "cumulative": lambda x: np.cumsum(cube(x)),
    "outer": lambda x: np.outer(np.sin(x), cube(x)),
    "scalar": lambda x: np.sum(cube(x) * np.exp(-x)),
    "reversed": lambda x: cube(x)[::-1] * x[0],
    "mixed": lambda x: np.stack([np.sin(x), cube(x)], axis=1),
}


@both
@pytest.mark.parametrize("function", FUNCTIONS)
def test_jacobians_equal_central_differences(name: str, function: str) -> None:
    """Entries and shape, for outputs of zero, one and two axes."""
    fn = FUNCTIONS[function]
    found = JACOBIANS[name](fn)(X)
    expected = differences(fn, X)
    assert found.shape == expected.shape
    assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_both_modes_agree(function: str) -> None:
    """Reverse and forward give one matrix."""
    fn = FUNCTIONS[function]
    assert_allclose(co.jacrev(fn)(X), co.jacfwd(fn)(X), rtol=1e-12, atol=1e-14)


@both
@pytest.mark.parametrize(
    ("shape", "fn", "expected"),
    [
        ((2, 3), lambda x: np.sum(x, axis=0), (3, 2, 3)),
        ((2, 3), lambda x: np.sum(x), (2, 3)),
        ((2, 3), lambda x: x.T * 2.0, (3, 2, 2, 3)),
        ((), lambda x: x * X, (3,)),
        ((), lambda x: x * x, ()),
        ((1,), lambda x: x[0], (1,)),
    ],
    ids=["axis", "sum", "transpose", "scalar in", "scalars", "one"],
)
def test_shapes(name: str, shape: Any, fn: Any, expected: Any) -> None:
    """Axes of the output come first, those of the input after them."""
    assert JACOBIANS[name](fn)(np.ones(shape)).shape == expected


@both
def test_entries_of_a_matrix_function(name: str) -> None:
    """d(x^T)_ij / dx_kl is 1 where i = l and j = k."""
    found = JACOBIANS[name](lambda x: x.T * 1.0)(np.ones((2, 3)))
    expected = np.einsum("il,jk->ijkl", np.eye(3), np.eye(2))
    assert_array_equal(found, expected)


# ---- empty arrays and numbers ----


@both
@pytest.mark.parametrize(
    ("shape", "fn", "expected"),
    [
        ((0,), cube, (0, 0)),
        ((0, 2), lambda x: np.sum(x), (0, 2)),
        ((3,), lambda x: x[:0], (0, 3)),
        ((0,), lambda x: np.sum(x) + X, (3, 0)),
    ],
    ids=["both", "input", "output", "wide"],
)
def test_empty_arrays(name: str, shape: Any, fn: Any, expected: Any) -> None:
    """An empty input or output gives an empty matrix of the right shape."""
    assert JACOBIANS[name](fn)(np.zeros(shape)).shape == expected


def test_hessian_of_an_empty_array() -> None:
    """It has no rows and no columns."""
    assert co.hessian(lambda x: np.sum(cube(x)))(np.zeros(0)).shape == (0, 0)


@both
@pytest.mark.parametrize("value", [2.0, np.float64(2.0), np.array(2.0)], ids=repr)
def test_numbers(name: str, value: Any) -> None:
    """A float is an array without axes."""
    found = JACOBIANS[name](lambda x: x * x * x)(value)
    assert (np.shape(found), found) == ((), 12.0)


@pytest.mark.parametrize("value", [2.0, np.float64(2.0), np.array(2.0)], ids=repr)
def test_hessian_of_numbers(value: Any) -> None:
    """The second derivative of x^3 is 6 x."""
    found = co.hessian(lambda x: x * x * x)(value)
    assert (np.shape(found), found) == ((), 12.0)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtypes_are_kept(name: str, dtype: Any) -> None:
    """Matrices have the dtype of the values."""
    assert JACOBIANS[name](cube)(X.astype(dtype)).dtype == dtype
    assert co.hessian(lambda x: np.sum(x * x * x))(X.astype(dtype)).dtype == dtype


# ---- pytrees ----

Pair = collections.namedtuple("Pair", "first second")  # noqa: PYI024  # as users write

D = np.diag
Z = np.zeros((3, 3))


@both
def test_a_tree_of_inputs(name: str) -> None:
    """The matrix is nested as the input."""
    found = JACOBIANS[name](lambda p: p["a"] * p["b"][0])({"a": X, "b": [Y, None]})
    same_tree(found, {"a": D(Y), "b": [D(X), None]})


@both
def test_a_tree_of_outputs(name: str) -> None:
    """The matrix is nested as the output."""
    found = JACOBIANS[name](lambda x: {"s": np.sum(x * x), "t": (cube(x), None)})(X)
    same_tree(found, {"s": 2.0 * X, "t": (D(3.0 * X**2), None)})


@both
def test_trees_of_both(name: str) -> None:
    """It is nested as the output, then as the input."""
    found = JACOBIANS[name](lambda p: Pair(p.first * p.second, np.sum(p.first)))(
        Pair(X, Y)
    )
    same_tree(found, Pair(Pair(D(Y), D(X)), Pair(np.ones(3), np.zeros(3))))


@both
def test_arrays_of_several_shapes(name: str) -> None:
    """Blocks of several sizes come apart at the right places."""

    def f(p: Any) -> Any:
        return [p["w"] @ p["x"], p["k"] * np.sum(p["x"]), p["w"] * p["k"]]

    k = np.array(2.0)
    first, second, third = JACOBIANS[name](f)({"w": W, "x": X, "k": k})
    assert_allclose(first["w"], np.einsum("ij,k->ijk", np.eye(2), X))
    assert_allclose(first["x"], W)
    assert_allclose(first["k"], np.zeros(2))
    assert_allclose(second["w"], np.zeros((2, 3)))
    assert_allclose(second["x"], np.full(3, 2.0))
    assert_allclose(second["k"], 6.0)
    assert_allclose(third["w"], 2.0 * np.einsum("ik,jl->ijkl", np.eye(2), np.eye(3)))
    assert_allclose(third["x"], np.zeros((2, 3, 3)))
    assert_allclose(third["k"], W)


@both
def test_a_tuple_of_argnums_with_trees(name: str) -> None:
    """For each output a tuple over the arguments, each nested as the argument."""
    found = JACOBIANS[name](lambda p, z: {"o": p["a"] * z}, argnums=(0, 1))({"a": X}, Y)
    same_tree(found, {"o": ({"a": D(Y)}, D(X))})


@both
@pytest.mark.parametrize(
    ("argnums", "expected"),
    [(1, D(X)), (-1, D(X)), (-2, D(Y)), ((1,), (D(X),)), ([1, 0], (D(X), D(Y)))],
    ids=repr,
)
def test_argnums(name: str, argnums: Any, expected: Any) -> None:
    """An int gives one matrix, a sequence a tuple, negative ones count from the end."""
    same_tree(JACOBIANS[name](product, argnums)(X, Y), expected)


TRANSFORMS = {**JACOBIANS, "hessian": co.hessian}
every = pytest.mark.parametrize("name", TRANSFORMS)


@every
@pytest.mark.parametrize("argnums", [2, -3, (0, 2)], ids=repr)
def test_argnums_outside(name: str, argnums: Any) -> None:
    """A position that the call does not have is named."""
    with pytest.raises(co.GradientError, match="the call has 2 positional arguments"):
        TRANSFORMS[name](lambda x, y: np.sum(x * y), argnums)(X, Y)


@every
@pytest.mark.parametrize("argnums", [(0, 0), (0, -2), "x", 1.0, (0, "y")], ids=repr)
def test_argnums_that_mean_nothing(name: str, argnums: Any) -> None:
    """Positions are ints, each once."""
    with pytest.raises(co.GradientError, match="argnums"):
        TRANSFORMS[name](lambda x, y: np.sum(x * y), argnums)(X, Y)


@both
def test_has_aux(name: str) -> None:
    """Aux comes second: arrays as they are, other things too."""
    jacobian, aux = JACOBIANS[name](
        lambda x: (cube(x), {"y": x * 2.0, "s": "s", "n": None}), has_aux=True
    )(X)
    assert_allclose(jacobian, D(3.0 * X**2))
    assert_array_equal(aux["y"], 2.0 * X)
    assert type(aux["y"]) is np.ndarray
    assert (aux["s"], aux["n"]) == ("s", None)


@both
def test_has_aux_of_a_constant(name: str) -> None:
    """Aux that depends on nothing has the shape that the function gave it."""
    _, aux = JACOBIANS[name](lambda x: (cube(x), W), has_aux=True)(X)
    assert_array_equal(aux, W)


@both
def test_has_aux_needs_a_pair(name: str) -> None:
    """Anything else is refused."""
    with pytest.raises(co.GradientError, match=r"must return \(output, aux\)"):
        JACOBIANS[name](cube, has_aux=True)(X)


@both
@pytest.mark.parametrize("chunk_size", [1, 2, 3, 4, 100])
def test_chunk_size(name: str, chunk_size: int) -> None:
    """Rows in parts give the same matrix."""
    made = JACOBIANS[name](lambda x: np.cumsum(cube(x)), chunk_size=chunk_size)
    assert_allclose(made(X), np.tril(np.ones((3, 3))) * 3.0 * X**2)


@both
def test_chunk_size_with_trees_and_aux(name: str) -> None:
    """Parts are joined for every array of a tree; aux comes once."""
    made = JACOBIANS[name](
        lambda p: ([p["a"] * p["b"], np.sum(p["a"])], W), has_aux=True, chunk_size=2
    )
    jacobian, aux = made({"a": X, "b": Y})
    same_tree(jacobian, [{"a": D(Y), "b": D(X)}, {"a": np.ones(3), "b": np.zeros(3)}])
    assert_array_equal(aux, W)


@both
@pytest.mark.parametrize("chunk_size", [0, -1, 1.5, "a"], ids=repr)
def test_chunk_sizes_are_positive_numbers(name: str, chunk_size: Any) -> None:
    """Anything else is refused by name."""
    with pytest.raises(co.CustomOpError, match="chunk_size"):
        JACOBIANS[name](cube, chunk_size=chunk_size)(X)


@both
def test_chunk_size_of_an_empty_matrix(name: str) -> None:
    """A matrix without rows needs no chunks."""
    assert JACOBIANS[name](cube, chunk_size=2)(np.zeros(0)).shape == (0, 0)


@both
def test_trees_without_arrays(name: str) -> None:
    """No inputs, or no outputs, give a tree without arrays."""
    assert JACOBIANS[name](lambda p: {"o": X})({}) == {"o": {}}
    assert JACOBIANS[name](lambda x: {})(X) == {}
    assert JACOBIANS[name](lambda x: None)(X) is None


@both
@pytest.mark.parametrize("result", [Y, 3.0], ids=["array", "float"])
def test_outputs_that_depend_on_nothing(name: str, result: Any) -> None:
    """Their matrix is zeros."""
    found = JACOBIANS[name](lambda x: result)(X)
    assert_array_equal(found, np.zeros((*np.shape(result), 3)))


@both
def test_matrices_may_be_written(name: str) -> None:
    """The results are neither read-only nor shared."""
    first, second = JACOBIANS[name](lambda x, y: x + y, argnums=(0, 1))(X, Y)
    first += 1.0
    assert_array_equal(second, np.eye(3))
    constant = JACOBIANS[name](lambda x: Y)(X)
    constant += 1.0
    assert_array_equal(constant, np.ones((3, 3)))
    flat = co.hessian(np.sum)(X)
    flat += 1.0
    assert_array_equal(flat, np.ones((3, 3)))


@both
def test_inputs_that_are_not_used(name: str) -> None:
    """Their block is zeros, of the shape of output and input."""
    found = JACOBIANS[name](lambda x, y: cube(x), argnums=(0, 1))(X, W)
    assert_array_equal(found[1], np.zeros((3, 2, 3)))


@both
def test_keywords_pass_through(name: str) -> None:
    """Keyword arguments are constants."""

    def f(x: Any, *, power: int, other: Any) -> Any:
        assert type(other) is np.ndarray
        return x**power * other

    assert_allclose(JACOBIANS[name](f)(X, power=2, other=Y), D(2.0 * X * Y))


@every
def test_names_and_docstrings_stay(name: str) -> None:
    """The result of a transform has the name of its function."""

    def energy(x: Any) -> Any:
        """Half of the square."""
        return 0.5 * np.sum(x * x)

    made = TRANSFORMS[name](energy)
    assert (made.__name__, made.__doc__) == ("energy", "Half of the square.")


# ---- what is refused ----


@every
@pytest.mark.parametrize(
    "value", [np.arange(3), np.array([True]), 3, "s", {"a": X, "b": 3}], ids=repr
)
def test_inputs_without_derivatives_are_refused(name: str, value: Any) -> None:
    """Integers and values that are not arrays have no derivative."""
    with pytest.raises(co.GradientError) as caught:
        TRANSFORMS[name](lambda x: np.sum(x))(value)
    assert caught.value.do


@both
def test_an_output_that_is_no_array_is_refused(name: str) -> None:
    """A string has no derivative."""
    with pytest.raises(co.GradientError):
        JACOBIANS[name](lambda x: "s")(X)


def test_jacrev_refuses_complex_outputs_of_real_inputs() -> None:
    """Reverse mode would give the real part alone; the advice is to take jacfwd."""
    with pytest.raises(co.GradientError, match=r"complex|c128") as caught:
        co.jacrev(lambda x: x * x * 1j)(X)
    assert "jacfwd" in str(caught.value)
    assert_allclose(co.jacfwd(lambda x: x * x * 1j)(X), D(2j * X))


def test_jacfwd_refuses_real_outputs_of_complex_inputs() -> None:
    """Forward mode would see the real direction alone; the advice is to take jacrev."""
    z = X + 1j * Y
    with pytest.raises(co.GradientError, match=r"complex|c128") as caught:
        co.jacfwd(lambda z: np.real(z * z))(z)
    assert "jacrev" in str(caught.value)
    assert_allclose(co.jacrev(lambda z: np.real(z * z))(z), D(2.0 * z))


@both
def test_holomorphic_functions(name: str) -> None:
    """From complex to complex the matrix is the complex derivative."""
    z = X + 1j * Y
    assert_allclose(JACOBIANS[name](lambda z: z * z * z)(z), D(3.0 * z**2))
    assert_allclose(JACOBIANS[name](cube)(z), D(3.0 * z**2))


@both
def test_integer_outputs_are_refused(name: str) -> None:
    """Integers have no derivative; the message says what to do with them."""
    with pytest.raises(co.GradientError) as caught:
        JACOBIANS[name](lambda x: np.argmax(x))(X)
    assert str(caught.value) == (
        f"{name} of <lambda>: the output is i64[], must be an array of floats\n"
        "  do: leave out what makes it an integer or a bool, such as argmax, astype(int) or"
        " x > 0, or use has_aux=True for other results"
    )


@every
def test_an_operator_without_rules_is_refused(name: str) -> None:
    """A missing rule is an error and never gives zeros."""
    bare = co.custom_op(
        "matrices::bare",
        lambda x: 2.0 * x,
        mutates_args=(),
        schema="(Array x) -> Array",
        tags=co.Tag.pointwise,
    )
    with pytest.raises(co.MissingRuleError, match="matrices::bare has no"):
        TRANSFORMS[name](lambda x: np.sum(bare(x)))(X)


@every
def test_an_exception_leaves_the_transform_usable(name: str) -> None:
    """An error of the function is raised unchanged."""
    fails = [True]

    def f(x: Any) -> Any:
        if fails[0]:
            raise KeyError("mine")
        return np.sum(x * x)

    made = TRANSFORMS[name](f)
    with pytest.raises(KeyError, match="mine"):
        made(X)
    fails[0] = False
    assert np.all(np.isfinite(made(X)))


def test_a_branch_on_the_value_is_taken() -> None:
    """The function runs once on concrete values in reverse mode."""
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return cube(x) if np.sum(x) > 0.0 else x

    assert_allclose(co.jacrev(f)(X), D(3.0 * X**2))
    assert len(calls) == 1


# ---- hessian ----


def test_hessian_of_a_quadratic_form() -> None:
    """Of x^T A x it is A + A^T."""
    a = np.random.default_rng(0).normal(size=(3, 3))
    assert_allclose(co.hessian(lambda x: x @ a @ x)(X), a + a.T)


def test_hessian_of_an_operator() -> None:
    """Of a sum of x^3 it is diagonal."""
    assert_allclose(co.hessian(lambda x: np.sum(cube(x)))(X), D(6.0 * X))


def test_hessian_equals_differences_of_the_gradient() -> None:
    """Against central differences of grad."""
    fn = FUNCTIONS["scalar"]
    found = co.hessian(fn)(X)
    assert_allclose(found, differences(co.grad(fn), X), rtol=1e-6, atol=1e-6)
    assert_allclose(found, found.T, rtol=1e-12)


def test_hessian_of_a_matrix() -> None:
    """Axes of the input come twice."""
    found = co.hessian(lambda x: np.sum(cube(x)))(W)
    expected = 6.0 * np.einsum("ij,ik,jl->ijkl", W, np.eye(2), np.eye(3))
    assert found.shape == (2, 3, 2, 3)
    assert_allclose(found, expected)


def test_hessian_of_a_tree() -> None:
    """It is nested twice as the input: of a^2 b."""
    found = co.hessian(lambda p: np.sum(p["a"] * p["a"] * p["b"]))({"a": X, "b": Y})
    same_tree(
        found,
        {"a": {"a": D(2.0 * Y), "b": D(2.0 * X)}, "b": {"a": D(2.0 * X), "b": Z}},
    )


def test_hessian_by_two_arguments() -> None:
    """Blocks of second derivatives, mixed ones off the diagonal: of x^2 y."""
    found = co.hessian(lambda x, y: np.sum(x * x * y), argnums=(0, 1))(X, Y)
    same_tree(found, ((D(2.0 * Y), D(2.0 * X)), (D(2.0 * X), Z)))


def test_hessian_by_the_last_argument() -> None:
    """Negative argnums count from the end."""
    assert_allclose(
        co.hessian(lambda x, y: np.sum(x * cube(y)), argnums=-1)(X, Y), D(6.0 * X * Y)
    )


def test_hessian_of_a_vector_function() -> None:
    """An output with axes has them first."""
    found = co.hessian(cube)(X)
    assert_allclose(found, np.einsum("i,ij,ik->ijk", 6.0 * X, np.eye(3), np.eye(3)))


@pytest.mark.parametrize(
    "fn",
    [np.sum, lambda x: np.float64(3.0), lambda x: 3.0],
    ids=["linear", "constant", "float"],
)
def test_hessian_of_zeros(fn: Any) -> None:
    """A linear and a constant function have a Hessian of zeros."""
    assert_array_equal(co.hessian(fn)(X), Z)


def test_hessian_of_native() -> None:
    """An operator whose body is its formula has second derivatives."""
    op = co.custom_op(
        "matrices::native",
        lambda x: np.sin(x) * x,
        mutates_args=(),
        schema="(Array x) -> Array",
        tags=co.Tag.pointwise,
    )
    op.register_autograd(co.native)
    found = co.hessian(lambda x: np.sum(op(x)))(X)
    assert_allclose(found, D(2.0 * np.cos(X) - X * np.sin(X)))


def test_hessian_under_vmap() -> None:
    """Each row has its own."""
    rows = np.stack([X, Y])
    found = co.vmap(co.hessian(lambda x: np.sum(cube(x))))(rows)
    assert_allclose(found, np.stack([D(6.0 * X), D(6.0 * Y)]))


@pytest.mark.parametrize("outer", JACOBIANS)
@pytest.mark.parametrize("inner", JACOBIANS)
def test_second_derivatives_by_every_mode(outer: str, inner: str) -> None:
    """Forward and reverse nest in any order: of x^3 elementwise."""
    found = JACOBIANS[outer](JACOBIANS[inner](cube))(X)
    assert_allclose(found, np.einsum("i,ij,ik->ijk", 6.0 * X, np.eye(3), np.eye(3)))


@pytest.mark.parametrize(
    "word", list(itertools.product(JACOBIANS, repeat=3)), ids="-".join
)
def test_third_derivatives_by_every_mode(word: tuple[str, ...]) -> None:
    """Of x^3, 6 at the place where all indices are one."""
    f: Any = cube
    for name in word:
        f = JACOBIANS[name](f)
    expected = np.zeros((2, 2, 2, 2))
    expected[0, 0, 0, 0] = expected[1, 1, 1, 1] = 6.0
    assert_allclose(f(X[:2]), expected)


def test_a_jacobian_of_variables() -> None:
    """A matrix of derivatives can itself be differentiated backwards."""
    x = co.variable(X)
    np.sum(co.jacrev(cube)(x)).backward()
    assert_allclose(x.grad, 6.0 * X)


# ---- against others ----

SHARED = {
    "polynomial": lambda m, x: (x**3 - 2.0 * x) * x[0],
    "mixed": lambda m, x: m.sin(x) * m.exp(x[::1]),
    "logarithm": lambda m, x: m.log(1.0 + m.exp(x)),
    "quotient": lambda m, x: x / (1.0 + (x * x).sum()),
    "squashed": lambda m, x: m.tanh(x * x[1]),
}


@pytest.mark.exhaustive
@both
@pytest.mark.parametrize("function", SHARED)
def test_jacobians_equal_those_of_torch(name: str, function: str) -> None:
    """The same function has the same Jacobian in torch.autograd.functional."""
    torch = pytest.importorskip("torch", reason="torch is the other side of this test")
    expected = torch.autograd.functional.jacobian(
        lambda x: SHARED[function](torch, x), torch.tensor(Y)
    )
    found = JACOBIANS[name](lambda x: SHARED[function](np, x))(Y)
    assert_allclose(found, expected.numpy(), rtol=1e-12, atol=1e-15)


@pytest.mark.exhaustive
@pytest.mark.parametrize("function", SHARED)
def test_hessians_equal_those_of_torch(function: str) -> None:
    """The same function has the same Hessian in torch.autograd.functional."""
    torch = pytest.importorskip("torch", reason="torch is the other side of this test")
    expected = torch.autograd.functional.hessian(
        lambda x: SHARED[function](torch, x).sum(), torch.tensor(Y)
    )
    found = co.hessian(lambda x: np.sum(SHARED[function](np, x)))(Y)
    assert_allclose(found, expected.numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.exhaustive
@pytest.mark.parametrize("function", SHARED)
def test_hessians_equal_those_of_jax(function: str) -> None:
    """The same function has the same Hessian in JAX, to its single precision."""
    jax = pytest.importorskip("jax", reason="jax is the other side of this test")
    expected = jax.hessian(lambda x: SHARED[function](jax.numpy, x).sum())(
        jax.numpy.asarray(Y, dtype=np.float32)
    )
    found = co.hessian(lambda x: np.sum(SHARED[function](np, x)))(Y)
    assert_allclose(found, np.asarray(expected), rtol=1e-4, atol=1e-4)


@both
@pytest.mark.parametrize("function", ["polynomial", "mixed", "quotient", "logarithm"])
def test_jacobians_equal_the_complex_step(name: str, function: str) -> None:
    """Im f(x + ih) / h for h = 1e-200 has no cancellation."""
    steps = Y + 1e-200j * np.eye(3)
    columns = [np.imag(SHARED[function](np, row)) / 1e-200 for row in steps]
    found = JACOBIANS[name](lambda x: SHARED[function](np, x))(Y)
    assert_allclose(found, np.stack(columns, axis=1), rtol=1e-12, atol=1e-15)


# ---- numbers for operators ----


def _cubed(name: str, annotation: Any) -> Any:
    def cube(x: Any) -> Any:
        return np.asarray(x) ** 3

    cube.__annotations__ = {"x": annotation, "return": np.ndarray}
    op: Any = co.custom_op(f"numbers::{name}", cube, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x))
    op.register_autograd(
        lambda ctx, g: g * 3.0 * ctx.saved_arrays[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    op.register_vmap(lambda info, in_dims, x: (op(x), in_dims[0]))
    return op


NUMBER_CALLS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda op: op(2.0),
    "grad": lambda op: co.grad(op)(2.0),
    "value_and_grad": lambda op: co.value_and_grad(op)(2.0),
    "vjp": lambda op: co.vjp(op, 2.0),
    "jvp": lambda op: co.jvp(op, (2.0,), (1.0,)),
    "linearize": lambda op: co.linearize(op, 2.0),
    "jacrev": lambda op: co.jacrev(op)(2.0),
    "jacfwd": lambda op: co.jacfwd(op)(2.0),
    "hessian": lambda op: co.hessian(op)(2.0),
    "hvp": lambda op: co.hvp(op, 2.0, 1.0),
    "grad of grad": lambda op: co.grad(co.grad(op))(2.0),
    "vmap": lambda op: co.vmap(lambda y: op(2.0) * y)(np.ones(2)),
    "make_fx": lambda op: co.make_fx(op)(2.0),
    "compile": lambda op: co.compile(op)(2.0),
    "compiled grad": lambda op: co.compile(co.grad(op))(2.0),
}


@pytest.mark.parametrize("name", NUMBER_CALLS)
def test_an_operator_of_arrays_refuses_numbers(name: str) -> None:
    """In every transform as in a call; with the annotation of the remedy it takes them."""
    number = next(_numbers)
    with pytest.raises(
        co.ArgumentError, match=r"expects Array, got float 2\.0"
    ) as caught:
        NUMBER_CALLS[name](_cubed(f"array{number}", np.ndarray))
    assert caught.value.do == (
        "pass an array, such as np.asarray(x), or declare x: np.ndarray | float"
    )
    NUMBER_CALLS[name](_cubed(f"both{number}", np.ndarray | float))
    assert co.grad(lambda x: co.ops.np.sin(x))(0.0) == 1.0
