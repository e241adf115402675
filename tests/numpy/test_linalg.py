"""np.linalg under transforms: classes of results, degenerate matrices, other libraries.

Values, derivatives and batches are checked in tests/conformance/samples_decompositions.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.linalg import LinAlgError
from numpy.testing import assert_allclose, assert_array_equal

import customop as co

RNG = np.random.default_rng(5)
A = RNG.standard_normal((3, 3))
TALL = RNG.standard_normal((4, 2))
# Symmetric, with the eigenvalues 1, 2 and 4.
_V = np.linalg.qr(A)[0]
S = (_V * [1.0, 2.0, 4.0]) @ _V.T
S = (S + S.T) / 2
# Singular, of rank 2 and of rank 1.
RANK2 = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
RANK1 = np.outer([1.0, 2.0, -1.0], [3.0, 1.0, 2.0])


def seen(fn: Callable[[Any], Any], x: Any) -> list[Any]:
    """The results of a function of traced and fake arrays, as it sees them."""
    found: list[Any] = []

    def note(y: Any) -> Any:
        found.append(fn(y))
        return np.sum(y)

    co.grad(note)(x)
    co.jvp(note, (x,), (x,))
    co.vmap(note)(np.stack([x, x]))
    co.eval_shape(note, x)
    return found


# ---- classes of results ----


@pytest.mark.parametrize("name", ["svd", "eigh", "eig", "qr", "slogdet"])
def test_results_have_the_class_of_numpy(name: str) -> None:
    """Their parts have names: ``np.linalg.svd(x).S``."""
    fn = getattr(np.linalg, name)
    expected = fn(S)
    for out in seen(fn, S):
        assert type(out) is type(expected)
        assert [getattr(out, f).shape for f in out._fields] == [
            np.shape(x) for x in expected
        ]


def test_eig_of_real_matrices_is_real_where_values_are_known() -> None:
    """The dtype depends on data: it is complex for fake arrays.

    Since NumPy 2.5 it is always complex.
    """
    known = np.linalg.eigvals(S).dtype.kind
    for fn in (lambda x: np.linalg.eig(x)[0], np.linalg.eigvals):
        kinds = [out.dtype.kind for out in seen(fn, S)]
        assert kinds == [known, known, known, "c"]
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    assert {out.dtype.kind for out in seen(np.linalg.eigvals, turn)} == {"c"}


# ---- singular matrices ----


@pytest.mark.parametrize("x", [RANK2, RANK1, np.zeros((3, 3))], ids=["2", "1", "0"])
def test_gradient_of_det_is_the_cofactors(x: Any) -> None:
    """Also of singular matrices, up to the second derivative."""
    cofactors = np.zeros((3, 3))
    for i, j in np.ndindex(3, 3):
        minor: Any = np.delete(np.delete(x, i, 0), j, 1)
        cofactors[i, j] = (-1) ** (i + j) * (
            minor[0, 0] * minor[1, 1] - minor[0, 1] * minor[1, 0]
        )
    assert_allclose(co.grad(np.linalg.det)(x), cofactors, atol=1e-12)
    # d2 det / dx[0, 0] dx[1, 1] = x[2, 2], and the same for other pairs.
    second = co.hessian(np.linalg.det)(x)
    assert_allclose(second[0, 0, 1, 1], x[2, 2], atol=1e-12)
    assert_allclose(second[0, 1, 1, 0], -x[2, 2], atol=1e-12)
    assert_allclose(second[2, 0, 0, 1], x[1, 2], atol=1e-12)
    assert_allclose(second[0, 0, 0, 1], 0.0, atol=1e-12)


def test_third_derivative_of_det() -> None:
    """That of regular matrices, which for 3 x 3 is a table of signs."""
    third = co.jacfwd(co.hessian(np.linalg.det))(A)
    assert_allclose(third[0, 0, 1, 1, 2, 2], 1.0, atol=1e-10)
    assert_allclose(third[0, 1, 1, 0, 2, 2], -1.0, atol=1e-10)
    assert_allclose(third[0, 0, 0, 1, 2, 2], 0.0, atol=1e-10)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 30])
def test_cofactors_of_near_singular_matrices(n: int) -> None:
    """They do not go through an inverse that has lost its digits."""
    x = np.random.default_rng(n).standard_normal((n, n))
    if n > 1:
        x[-1] = x[0] * (1.0 + 1e-14)
    grad = co.grad(np.linalg.det)(x)
    # Along a row the determinant is linear, so differences are exact.
    for i, j in [(0, 0), (n - 1, n // 2)] if n else []:
        ahead = x.copy()
        ahead[i, j] += 1.0
        size = np.prod(np.linalg.norm(x, axis=1)) + 1.0
        slope = np.linalg.det(ahead) - np.linalg.det(x)
        assert_allclose(grad[i, j], slope, rtol=1e-9, atol=1e-13 * size)


@pytest.mark.parametrize("name", ["inv", "solve", "slogdet", "cholesky"])
def test_singular_matrices_raise_what_numpy_raises(name: str) -> None:
    """LinAlgError, of the function or of its gradient."""
    fns: dict[str, Callable[[Any], Any]] = {
        "inv": lambda x: np.sum(np.linalg.inv(x)),
        "solve": lambda x: np.sum(np.linalg.solve(x, np.ones(2))),
        "slogdet": lambda x: np.linalg.slogdet(x).logabsdet,
        "cholesky": lambda x: np.sum(np.linalg.cholesky(x)),
    }
    zeros = np.zeros((2, 2))
    for run in (co.grad(fns[name]), lambda x: co.jvp(fns[name], (x,), (x,))):
        with pytest.raises(LinAlgError):
            run(zeros)


# ---- triangles ----


def test_gradients_lie_in_the_triangle_that_is_read() -> None:
    """A function of (a + a.T) / 2 has the symmetric gradient."""

    def log_det(a: Any) -> Any:
        return 2.0 * np.sum(np.log(np.diagonal(np.linalg.cholesky(a))))

    inverse = np.linalg.inv(S)
    expected = np.tril(inverse) + np.tril(inverse, -1)
    assert_allclose(co.grad(log_det)(S), expected)
    assert_allclose(co.grad(lambda a: log_det((a + a.T) / 2))(S), inverse)
    upper = co.grad(lambda a: np.sum(np.log(np.linalg.eigvalsh(a, "U"))))(S)
    assert_allclose(upper, expected.T)


# ---- equal eigenvalues and singular values ----


def test_symmetric_functions_of_equal_eigenvalues() -> None:
    """Gradients of eigenvalues need no gap between them."""
    eye = np.eye(3)
    for fn in (np.linalg.eigvalsh, lambda x: np.linalg.eigh(x)[0], np.linalg.svdvals):
        found = co.grad(lambda x, fn=fn: np.sum(fn(x) ** 2))(eye)
        assert_allclose(found, 2.0 * eye, atol=1e-14)


def test_eigenvectors_of_equal_eigenvalues_have_the_gradient_nan() -> None:
    """So have singular vectors."""
    weights = RNG.standard_normal((3, 3))
    eye = np.eye(3)
    by_eigh = co.grad(lambda x: np.sum(weights * np.linalg.eigh(x)[1]))(eye)
    by_svd = co.grad(lambda x: np.sum(weights * np.linalg.svd(x)[0]))(eye)
    assert np.isnan(by_eigh).any()
    assert np.isnan(by_svd).any()


def test_vectors_that_are_not_used_need_no_gap() -> None:
    """The first component of data of a low rank: the rest of the spectrum is rounding."""
    data = RNG.standard_normal((3, 8))
    data[1] = 0.2 * data[0] - 0.4 * data[2]

    def by_eigh(x: Any) -> Any:
        first = np.linalg.eigh(x.T @ x)[1][:, -1]
        return first[0] * first[1]

    def by_svd(x: Any) -> Any:
        first = np.linalg.svd(x)[2][0]
        return first[0] * first[1]

    def by_power(x: Any) -> Any:
        v = np.ones(8)
        for _ in range(200):
            v = x.T @ (x @ v)
            v = v / np.linalg.norm(v)
        return v[0] * v[1]

    expected = co.grad(by_power)(data)
    assert_allclose(co.grad(by_eigh)(data), expected, atol=1e-10)
    assert_allclose(co.grad(by_svd)(data), expected, atol=1e-10)


def test_a_near_gap_of_vectors_in_use_is_not_rounding_turned_large() -> None:
    """The gradient through eigenvalues that differ by rounding is nan, not a number."""
    near = np.diag([1.0, 1.0 + 4e-16, 2.0])

    def power(x: Any) -> Any:
        w, v = np.linalg.eigh(x)
        return np.sum(((v * w**3) @ v.T) * A)

    assert np.isnan(co.grad(power)(near)).any()


# ---- phases and completions ----


def test_gradients_that_depend_on_a_phase_are_refused() -> None:
    """Under vmap and in second derivatives too."""
    part = lambda v: np.real(v[2, 0]) + np.imag(v[2, 0])
    z = A + 1j * RNG.standard_normal((3, 3))
    hermitian = z + z.conj().T
    fns: list[tuple[Callable[[Any], Any], Any]] = [
        (lambda x: part(np.linalg.eigh(x)[1]), hermitian),
        (lambda x: part(np.linalg.svd(x)[0]), z),
        (lambda x: part(np.linalg.eig(x)[1]), z),
        (lambda x: np.linalg.svd(x)[0][0, 3], TALL),
        (lambda x: np.linalg.qr(x, "complete")[0][0, 3], TALL),
    ]
    for fn, x in fns:
        with pytest.raises(co.GradientError, match="arbitrary"):
            co.grad(fn)(x)
        with pytest.raises(co.GradientError, match="arbitrary"):
            co.vmap(co.grad(fn))(np.stack([x, x]))
        with pytest.raises(co.GradientError, match="arbitrary"):
            co.hvp(fn, (x,), (x,))


def _difference(fn: Callable[[Any], Any], a: Any, t: Any) -> Any:
    """Central differences of complex vectors without a turn of their phases."""
    step = 1e-6
    here = fn(a)
    ends = [fn(a + h * t) for h in (step, -step)]
    # The vectors of one pair share their phase: that of both products together.
    for end in ends:
        both = zip(here, end, strict=True)
        overlap = np.prod([np.sum(x.conj() * y, 0) for x, y in both], 0)
        turn = (np.abs(overlap) / overlap) ** (1 / len(here))
        end[:] = [x * turn for x in end]
    return [(x - y) / (2 * step) for x, y in zip(*ends, strict=True)]


VECTORS: dict[str, Callable[[Any], Any]] = {
    "eigh": lambda x: [np.linalg.eigh(x)[1]],
    "eig": lambda x: [np.linalg.eig(x)[1]],
    "svd": lambda x: [
        np.linalg.svd(x)[0],
        np.swapaxes(np.linalg.svd(x)[2], -1, -2).conj(),
    ],
}


@pytest.mark.parametrize("name", VECTORS)
def test_tangents_do_not_turn_phases(name: str) -> None:
    """Forward mode cannot refuse what comes later: it gives the tangent without a turn."""
    rng = np.random.default_rng(11)
    z, t = (
        rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3)) for _ in "zt"
    )
    if name == "eigh":
        z, t = z + z.conj().T, t + t.conj().T
    fn = VECTORS[name]
    found = co.jvp(fn, (z,), (t,))[1]
    for one, expected in zip(found, _difference(fn, z, t), strict=True):
        assert_allclose(one, expected, atol=1e-6)


def test_no_phase_is_seen_near_an_optimum() -> None:
    """A gradient of rounding alone is not taken for one that depends on a phase."""
    z = A + 1j * RNG.standard_normal((3, 3))
    target = np.linalg.eigh(z + z.conj().T)[1]
    target = target[:, :1] @ target[:, :1].conj().T

    def loss(x: Any) -> Any:
        v = np.linalg.eigh(x)[1][:, :1]
        return np.sum(np.abs(v @ v.conj().T - target) ** 2)

    found = co.grad(loss)(z + z.conj().T)
    assert_allclose(found, np.zeros((3, 3)), atol=1e-12)


# ---- norms at zero ----


@pytest.mark.parametrize("order", [None, 1, 2, 3, np.inf, "fro"])
def test_norms_have_the_gradient_zero_at_zero(order: Any) -> None:
    """The subgradient 0, also of rows that are zero among others."""
    rows = np.array([[0.0, 0.0], [3.0, 4.0]])
    axis: Any = (-2, -1) if order == "fro" else -1
    if order == "fro":
        rows = np.stack([0.0 * rows, rows])
    found = co.grad(lambda x: np.sum(np.linalg.norm(x, order, axis)))(rows)
    assert_array_equal(found[0], 0.0 * rows[0])
    assert np.isfinite(found).all()
    assert np.any(found[1])


# ---- least squares ----


def test_residuals_of_dependent_columns() -> None:
    """NumPy leaves them out; under vmap, where rows have one shape, they are nan."""
    low, b = np.ones((4, 2)), np.arange(4.0)
    full = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    for a in (low, full):
        expected = np.linalg.lstsq(a, b)
        found: list[Any] = []

        def keep(x: Any, found: list[Any] = found) -> Any:
            out = np.linalg.lstsq(x, b)
            found.append(co.stop_gradient(out))
            return np.sum(out[0])

        co.grad(keep)(a)
        for mine, numpys in zip(found[0], expected, strict=True):
            assert_allclose(mine, numpys, atol=1e-13)
    x, residuals, rank, _ = co.vmap(lambda a: np.linalg.lstsq(a, b))(
        np.stack([low, full])
    )
    assert_allclose(x, [np.linalg.lstsq(a, b)[0] for a in (low, full)], atol=1e-13)
    assert_array_equal(rank, [1, 2])
    assert_array_equal(np.isnan(residuals), [[True], [False]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("a", [np.ones((4, 2)), np.ones((2, 3)), np.eye(4, 2)])
def test_the_operator_of_lstsq_has_all_residuals(a: np.ndarray, dtype: type) -> None:
    """Those that NumPy leaves out are sums of squares, too; a batch has the same."""
    a, b = a.astype(dtype), (np.arange(len(a) * 2.0).reshape(-1, 2) - 1).astype(dtype)
    for side in (b, b[:, 0]):
        x, found, _, _ = co.ops.np.lstsq(a, side, 1e-6)
        rest = np.absolute(side - a @ x) ** 2
        assert found.dtype == np.linalg.lstsq(a, side)[3].dtype
        assert_allclose(found, np.atleast_1d(rest.sum(0)), atol=1e-5)
        rows = co.vmap(lambda a, b: co.ops.np.lstsq(a, b, 1e-6)[1])(a[None], side[None])
        assert_allclose(rows, found[None], atol=1e-5)


def test_graphs_of_lstsq_run_without_residuals_for_wide_matrices() -> None:
    """A wide matrix has none, whatever its rank, so that nothing is checked."""

    def solve(a: Any, b: Any) -> Any:
        return tuple(np.linalg.lstsq(a, b))

    tall, wide, low = np.eye(4, 2), np.ones((2, 3)), np.ones((4, 2))
    names = (("m", "n"), ("m",))
    graph = co.make_fx(solve, "symbolic", sizes={"a": names[0], "b": names[1]})(
        tall, np.arange(4.0)
    )
    for a in (tall, wide):
        b = np.arange(float(len(a)))
        for mine, numpys in zip(graph(a, b), solve(a, b), strict=True):
            assert np.shape(mine) == np.shape(numpys)
            assert_allclose(mine, numpys, atol=1e-13)
    with pytest.raises(co.GuardError, match="full rank, which is False here"):
        graph(low, np.arange(4.0))


def test_lstsq_at_constant_rank() -> None:
    """The derivative along matrices of the same rank is the difference."""
    left, right = RNG.standard_normal((4, 2)), RNG.standard_normal((2, 3))
    b = RNG.standard_normal(4)
    solve: list[Callable[[Any], Any]] = [
        lambda m: np.linalg.lstsq(m @ right, b, rcond=1e-10)[0],
        lambda m: np.linalg.pinv(m @ right, rcond=1e-10) @ b,
    ]
    t = RNG.standard_normal(left.shape)
    for fn in solve:
        _, moved = co.jvp(fn, (left,), (t,))
        slope = (fn(left + 1e-5 * t) - fn(left - 1e-5 * t)) / 2e-5
        assert_allclose(moved, slope, rtol=1e-7, atol=1e-8)
        jacobian = co.jacrev(fn)(left)
        assert_allclose(np.einsum("ijk,jk->i", jacobian, t), slope, atol=1e-7)


def test_a_cutoff_of_larger_singular_values_is_refused() -> None:
    """Formulas at constant rank do not hold for values that are dropped but not zero."""
    x = np.diag([1.0, 0.1, 1e-12])
    assert np.isfinite(co.grad(lambda a: np.sum(np.linalg.pinv(a, 1e-6)))(x)).all()
    for fn in (
        lambda a: np.sum(np.linalg.pinv(a, 0.5)),
        lambda a: np.sum(np.linalg.pinv(a, rtol=np.array(0.5))),
        lambda a: np.sum(np.linalg.lstsq(a, np.ones(3), 0.5)[0]),
    ):
        with pytest.raises(co.GradientError, match="rcond drops singular values"):
            co.grad(fn)(x)


def test_condition_of_singular_matrices() -> None:
    """It is inf, as in NumPy, and a batch has one number each."""
    stack = np.stack([np.diag([2.0, 0.0]), np.diag([2.0, 1.0])])
    for p in (None, -2, 1, "fro", np.inf):
        fn = lambda x, p=p: np.linalg.cond(x, p)
        assert_array_equal(co.vmap(fn)(stack), np.linalg.cond(stack, p))
        for out in seen(fn, stack)[:1]:
            assert out.shape == (2,)
        grad = co.grad(lambda x, p=p: np.linalg.cond(x, p))(stack[1])
        assert np.isfinite(grad).all()


# ---- einsum ----


def test_paths_of_einsum_depend_on_shapes_alone() -> None:
    """So they are known for traced and fake arrays, in either form."""
    operands = ("ij,jk,kl", A, A, np.ones((3, 2)))
    expected = np.einsum_path(*operands)[0]

    def path(x: Any) -> Any:
        assert np.einsum_path("ij,jk,kl", x, x, np.ones((3, 2)))[0] == expected
        lists = np.einsum_path(x, [0, 1], x, [1, 2], np.ones((3, 2)), [2, 3])
        assert lists[0] == expected
        return np.zeros(1)

    seen(path, A)


# ---- other libraries ----

# Each result of a library's functions of a matrix, or of two.
SAME: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "inv": (lambda lib, x: [lib.inv(x)], (A,)),
    "det": (lambda lib, x: [lib.det(x)], (A,)),
    "slogdet": (lambda lib, x: [lib.slogdet(x)[1]], (A,)),
    "solve": (lambda lib, x, b: [lib.solve(x, b)], (A, TALL[:3])),
    "cholesky": (lambda lib, x: [lib.cholesky((x + x.T) / 2)], (S,)),
    "qr": (lambda lib, x: list(lib.qr(x)), (TALL,)),
    "svd": (lambda lib, x: list(lib.svd(x, full_matrices=False)), (TALL,)),
    "svdvals": (lambda lib, x: [lib.svd(x, full_matrices=False)[1]], (RANK1,)),
    "eigh": (lambda lib, x: list(lib.eigh((x + x.T) / 2)), (S,)),
    "pinv": (lambda lib, x: [lib.pinv(x)], (TALL,)),
    "lstsq": (lambda lib, x, b: [lib.lstsq(x, b)[0]], (TALL, TALL[::-1] ** 2)),
    "matrix_power": (lambda lib, x: [lib.matrix_power(x, -3)], (A,)),
    "norm": (lambda lib, x: [lib.norm(x, "nuc"), lib.norm(x, 2)], (TALL,)),
    "cond": (lambda lib, x: [lib.cond(x)], (A,)),
    "multi_dot": (lambda lib, x, y: [lib.multi_dot([x, y, x.T])], (TALL, TALL[:2])),
    "tensorsolve": (
        lambda lib, x, b: [lib.tensorsolve(x.reshape(3, 1, 3), b)],
        (A, np.ones((3, 1))),
    ),
}


def weighted(parts: Any, xp: Any) -> Any:
    """A number that depends on each element of some results."""
    total = 0.0
    for part in parts:
        flat = part.reshape(-1)
        total = total + xp.sum(flat * xp.sin(flat) + 0.3 * flat)
    return total


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SAME)
def test_gradients_are_those_of_torch(name: str) -> None:
    """Signs of vectors are the same, since both call LAPACK."""
    torch = pytest.importorskip("torch", reason="torch is the other side of this test")
    fn, args = SAME[name]
    places = tuple(range(len(args)))
    found = co.grad(lambda *x: weighted(fn(np.linalg, *x), np), places)(*args)
    theirs = [torch.tensor(np.array(x), requires_grad=True) for x in args]
    weighted(fn(torch.linalg, *theirs), torch).backward()
    for mine, x in zip(found, theirs, strict=True):
        assert_allclose(mine, x.grad.numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SAME)
def test_gradients_are_those_of_jax(name: str) -> None:
    """In double precision."""
    jax = pytest.importorskip("jax", reason="jax is the other side of this test")
    fn, args = SAME[name]
    places = tuple(range(len(args)))
    found = co.grad(lambda *x: weighted(fn(np.linalg, *x), np), places)(*args)
    jnp = jax.numpy
    with jax.enable_x64(True):
        given = [jnp.asarray(np.array(x)) for x in args]
        theirs = jax.grad(lambda *x: weighted(fn(jnp.linalg, *x), jnp), places)(*given)
        for mine, x in zip(found, theirs, strict=True):
            assert_allclose(mine, np.asarray(x), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("order", [2, -2, "nuc", "fro", 1, -np.inf])
@pytest.mark.parametrize("keepdims", [False, True])
def test_fake_norms_of_stacks_lie_in_memory_as_norms(
    order: Any, keepdims: bool
) -> None:
    """Strides too are NumPy's."""
    x = RNG.standard_normal((2, 3, 4, 4))
    norms = np.linalg.matrix_norm(x, ord=order, keepdims=keepdims)
    fake = co.eval_shape(
        lambda x: np.linalg.matrix_norm(x, ord=order, keepdims=keepdims), x
    )
    assert fake.shape == norms.shape
    assert fake.strides[:2] == norms.strides[:2]
    assert_allclose(
        co.vmap(lambda x: np.linalg.matrix_norm(x, ord=order, keepdims=keepdims))(x),
        norms,
    )
