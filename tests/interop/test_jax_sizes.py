"""Programs of `jax.export`: for arrays of any size, and loaded by another process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co

jax = pytest.importorskip("jax", reason="JAX is not installed")
numba = pytest.importorskip("numba", reason="numba is not installed")
jnp = jax.numpy

from customop.interop.jax import export, register_kernels  # noqa: E402

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("default"),  # JAX has deprecations of its own
]

ROOT = Path(__file__).parents[2]
SIZES = (1, 2, 5, 8)


@pytest.fixture(autouse=True, scope="module")
def wide(own_kinds: None) -> Iterator[None]:
    """Numbers of 64 bits."""
    with jax.enable_x64(True):
        yield


def _saving(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


@co.custom_op(
    "sizes_tests::shifted",
    mutates_args=(),
    schema="(Array x, Array y, *, float k=2.0) -> Array",
    tags=(co.Tag.pointwise,),
)
@numba.njit
def shifted(x, y, *, k):
    return x * k + y


@co.custom_op(
    "sizes_tests::product",
    mutates_args=(),
    schema="(Array[*batch,n,k] x, Array[k] y) -> Array[*batch,n]",
)
@numba.guvectorize("(n,k),(k)->(n)")
def product(x, y, out):
    for i in range(x.shape[0]):
        out[i] = 0
        for j in range(x.shape[1]):
            out[i] += x[i, j] * y[j]


product.register_autograd(
    lambda ctx, g: (
        g[..., None] * ctx.saved_arrays[1],
        np.sum(g[..., None] * ctx.saved_arrays[0], axis=(*range(g.ndim),)),
    ),
    setup_context=_saving,
)


def _pairs() -> Any:
    """Return an operator whose results have other sizes than its argument."""

    @co.custom_op(
        "sizes_tests::pairs", mutates_args=(), schema="(Array x) -> (Array, Array)"
    )
    @numba.njit
    def pairs(x: Any) -> Any:
        n = x.shape[0]
        return np.concatenate((x, x)), x[n // 2 :].copy()

    return pairs


def _shapes_of_pairs(x: Any) -> Any:
    n = x.shape[0]
    return co.fake_like(x, shape=(2 * n,)), co.fake_like(x, shape=(n - n // 2,))


pairs = _pairs()
pairs.register_fake(_shapes_of_pairs)


@co.custom_op(
    "sizes_tests::hosted",
    mutates_args=(),
    schema="(Array x) -> Array",
    tags=(co.Tag.pointwise,),
)
def hosted(x: Any) -> Any:
    return np.sin(x)


hosted.register_autograd(
    lambda ctx, g: g * np.cos(ctx.saved_arrays[0]), setup_context=_saving
)


def _cut(name: str) -> Any:
    return co.custom_op(
        f"sizes_tests::{name}",
        numba.njit(lambda x: x[1:].copy()),
        mutates_args=(),
        schema="(Array x) -> Array",
    )


asking, counting = _cut("asking"), _cut("counting")
asking.register_fake(
    lambda x: co.fake_like(x, shape=(x.shape[0] - 1,) if x.shape[0] > 4 else (0,))
)
counting.register_fake(
    lambda x: co.fake_like(x, shape=(len([*range(x.shape[0])]) - 1,))
)

# JAX does not know these targets.
EVERY = [jax.export.DisabledSafetyCheck.custom_call("ALL")]


def program(fn: Callable[..., Any], *shapes: str, constraints: Any = ()) -> Any:
    """Export a function of arrays whose shapes are texts."""
    scope = jax.export.SymbolicScope(constraints)
    specs = [
        jax.ShapeDtypeStruct(
            jax.export.symbolic_shape(text, scope=scope), jnp.float64.dtype
        )
        for text in shapes
    ]
    return jax.export.export(jax.jit(fn), disabled_checks=EVERY)(*specs)


def arrays_of(*shapes: tuple[int, ...]) -> list[Any]:
    draw = np.random.default_rng(3)
    return [draw.uniform(0.2, 1.0, shape) for shape in shapes]


def assert_same(found: Any, expected: Any) -> None:
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14)


def _loss(product: Any) -> Any:
    return lambda x, y: jnp.sum(product(x, y) ** 2)


def _matvec(x: Any, y: Any) -> Any:
    return x @ y


PROGRAMS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "pointwise": (export(shifted), lambda x, y: x * 2.0 + y, ("b, 3", "3")),
    "keyword": (
        lambda x, y: export(shifted)(x, y, k=0.5),
        lambda x, y: x * 0.5 + y,
        ("b, 3", "b, 3"),
    ),
    "two sizes": (export(product), _matvec, ("b, k", "k")),
    "calculated": (
        lambda x, y: export(shifted)(jnp.concatenate([x, x])[1:], y),
        lambda x, y: jnp.concatenate([x, x])[1:] * 2.0 + y,
        ("b, 3", "3"),
    ),
    "divided": (
        lambda x: export(shifted)(x[: x.shape[0] // 2], jnp.ones(())),
        lambda x: x[: x.shape[0] // 2] * 2.0 + 1.0,
        ("b, 3",),
    ),
    "sizes of results": (
        export(pairs),
        lambda x: (jnp.concatenate([x, x]), x[x.shape[0] // 2 :]),
        ("b",),
    ),
    "gradient": (
        jax.value_and_grad(_loss(export(product)), (0, 1)),
        jax.value_and_grad(_loss(_matvec), (0, 1)),
        ("b, k", "k"),
    ),
    "tangent of a gradient": (
        lambda x, y: jax.jvp(
            lambda y: jax.grad(_loss(export(product)), 1)(x, y), (y,), (y,)
        )[1],
        lambda x, y: 2.0 * x.T @ x @ y,
        ("b, k", "k"),
    ),
    "rows": (jax.vmap(export(product), (0, None)), _matvec, ("b, 2, k", "k")),
    "gradient of rows": (
        jax.grad(lambda x, y: jnp.sum(jax.vmap(export(product), (0, None))(x, y) ** 2)),
        jax.grad(lambda x, y: jnp.sum((x @ y) ** 2)),
        ("b, 2, k", "k"),
    ),
    "formula of an operator of the host": (
        jax.grad(lambda x: jnp.sum(export(hosted)(x))),
        jnp.cos,
        ("b, k",),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_runs_for_all_sizes(name: str) -> None:
    fn, plain, shapes = PROGRAMS[name]
    made = program(fn, *shapes)
    for n in SIZES:
        known = {"b": n, "k": 4}
        given = arrays_of(
            *[
                tuple(
                    [known.get(part.strip()) or int(part) for part in text.split(",")]
                )
                for text in shapes
            ]
        )
        assert_same(made.call(*given), plain(*map(jnp.asarray, given)))


def _formula(draw: np.random.Generator) -> Callable[[Any, Any], Any]:
    """Return a random formula of a cotangent and an array, of the shape of the array."""
    steps: list[Callable[[Any, Any], Any]] = [
        lambda v, x: np.sin(v) * x,
        lambda v, x: v * x.shape[0],
        lambda v, x: v / (x.shape[0] + x.shape[1]),
        lambda v, x: v - np.mean(v, axis=0),
        lambda v, x: v + np.sum(x, axis=1, keepdims=True),
        lambda v, x: np.reshape(np.reshape(v, (-1,)) * 2.0, x.shape),
        lambda v, x: np.concatenate([v, x])[: x.shape[0]],
        lambda v, x: np.concatenate([v[1:], x[:1]]),
        lambda v, x: (v.T * np.sum(v, axis=1)).T,
        lambda v, x: np.where(v > 0.3, v, x),
        lambda v, x: v @ (x.T @ x) / x.size,
        lambda v, x: np.maximum(v, np.max(x, axis=0)) * v,
        lambda v, x: v + np.zeros_like(x) + np.float64(0.5),
        lambda v, x: np.stack([v, x])[1] * v,
        lambda v, x: np.broadcast_to(v[None], (2, *x.shape))[1] + v,
        lambda v, x: np.cumsum(v, axis=0) * 0.1,
    ]
    chosen = draw.choice(len(steps), size=draw.integers(1, 5))

    def formula(g: Any, x: Any) -> Any:
        for i in chosen:
            g = steps[i](g, x)
        return g

    return formula


def check_formula(seed: int) -> int:
    """Check a random backward formula as a program for all sizes, against NumPy."""
    formula = _formula(np.random.default_rng(seed))
    op = co.custom_op(
        f"sizes_tests::random_{seed}",
        lambda x: np.sin(x),
        mutates_args=(),
        schema="(Array x) -> Array",
        tags=(co.Tag.pointwise,),
    )
    op.register_autograd(
        lambda ctx, g: formula(g, ctx.saved_arrays[0]), setup_context=_saving
    )
    fn = export(op)
    made = program(lambda x, g: jax.vjp(fn, x)[1](g)[0], "b, k", "b, k")
    for n, k in ((1, 1), (1, 3), (4, 1), (5, 3), (2, 7)):
        x, g = arrays_of((n, k), (n, k))
        assert_same(made.call(x, g), np.asarray(formula(g, x)))
    return 5


@pytest.mark.parametrize("seed", range(6))
def test_random_formulas_equal_numpy(seed: int) -> None:
    check_formula(seed)


# ---- what has no answer for all sizes ----


@pytest.mark.parametrize(
    ("fn", "shapes", "text"),
    [
        (
            export(asking),
            ("b",),
            r"asking, traced for all sizes: whether b > 4 is asked",
        ),
        (export(counting), ("b",), r"counting, traced for all sizes: the number b is"),
        (export(product), ("b, k", "q"), r"product, traced for all .* k == q is asked"),
        (export(shifted), ("b", "q"), r"shifted, traced for all .* b == q is asked"),
    ],
)
def test_questions_without_an_answer_are_errors(
    fn: Any, shapes: tuple[str, ...], text: str
) -> None:
    with pytest.raises(co.ArgumentError, match=rf"{text}[\s\S]*constraints="):
        program(fn, *shapes)


CALCULATED: dict[str, Callable[[Any], Any]] = {
    "power": lambda n: n**0.5,
    "absolute": lambda n: abs(n / 2 - 5),
    "logarithm": np.log,
    "exponential": lambda n: np.exp(-n / 3),
}


@pytest.mark.parametrize("name", [*CALCULATED])
def test_numbers_are_calculated_from_sizes(name: str) -> None:
    """NumPy's functions of a size are JAX's in the program; their sizes stay open."""
    factor = CALCULATED[name]

    def kernel(x: Any) -> Any:
        return x * factor(x.shape[0])

    op: co.Operator[..., Any] = co.custom_op(
        f"jax_sizes::by_{name}", kernel, mutates_args=(), schema="(Array x) -> Array"
    )
    op.register_fake(lambda x: co.fake_like(x))
    op.register_autograd(lambda ctx, g: g * factor(g.shape[0]))
    gradient = jax.grad(lambda x: jnp.sum(export(op)(x)))
    every = jax.export.DisabledSafetyCheck.custom_call("ALL")
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), jnp.float64.dtype)
    made = jax.export.export(jax.jit(gradient), disabled_checks=[every])(spec)
    for n in (1, 5, 12):
        expected = np.full(n, factor(n))
        found = made.call(np.ones(n))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_question_about_a_calculated_number_is_an_error() -> None:
    def kernel(x: Any) -> Any:
        return x.copy()

    op: co.Operator[..., Any] = co.custom_op(
        "jax_sizes::asks", kernel, mutates_args=(), schema="(Array x) -> Array"
    )
    op.register_fake(lambda x: co.fake_like(x) if np.log(x.shape[0]) > 2 else x)
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), jnp.float64.dtype)
    with pytest.raises(co.ArgumentError, match=r"whether np\.log\(n\) > 2 is asked"):
        jax.export.export(jax.jit(export(op)))(spec)


def test_constraints_answer_questions() -> None:
    made = program(export(asking), "b", constraints=["b >= 6"])
    (x,) = arrays_of((8,))
    assert_same(made.call(x), jnp.asarray(x[1:]))


def test_operators_of_the_host_are_named() -> None:
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b"), jnp.float64.dtype)
    fn = jax.jit(export(hosted))
    assert str(jax.eval_shape(fn, spec).shape) == "(b,)"
    with pytest.raises(
        ValueError, match="customop_sizes_tests_hosted_runs_on_the_host"
    ):
        jax.export.export(fn)(spec)
    made = program(export(hosted), "b")
    with pytest.raises(co.MissingRuleError, match=r"sizes_tests_hosted.*on the host"):
        register_kernels(made)
    with pytest.raises(Exception, match="sizes_tests_hosted_runs_on_the_host"):
        made.call(np.ones(3))


def test_register_kernels_takes_programs_of_jax_export() -> None:
    made = program(lambda x, y: export(shifted)(export(shifted)(x, y), y), "b", "b")
    assert register_kernels(made) == [shifted]
    given: Any = b"bytes"
    with pytest.raises(co.ArgumentError, match=r"got bytes[\s\S]*deserialize"):
        register_kernels(given)


# ---- another process ----

MODULE = """
import numba, customop as co

@co.custom_op(
    "apart_jax::scaled", mutates_args=(),
    schema="(Array x, *, float k, complex z=1j, str how='up', (int, float) w=(1, 0.5)) -> Array",
)
@numba.njit
def scaled(x, *, k, z, how, w):
    return x * k * {factor} * w[1] * z.imag * len(how)

scaled.register_fake(lambda x, **constants: co.fake_like(x))

"""

LOADED = """
import sys
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from customop.interop.jax import register_kernels

made = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
if sys.argv[2] == "registered":
    print(register_kernels(made))
print(made.call(np.arange(3.0)).tolist(), made.call(np.ones(1)).tolist())
"""


@pytest.mark.parametrize("way", ["registered", "missing", "other"])
def test_another_process_loads_a_program(tmp_path: Path, way: str) -> None:
    """It imports the module of the operator; another kernel there is an error."""
    pytest.importorskip("flatbuffers", reason="flatbuffers is not installed")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    (tmp_path / "apart_jax.py").write_text(MODULE.format(factor=2.0))
    (tmp_path / "load.py").write_text(LOADED)
    (tmp_path / "make.py").write_text(
        "import jax, sys; jax.config.update('jax_enable_x64', True)\n"
        "import apart_jax; from customop.interop.jax import export\n"
        "every = [jax.export.DisabledSafetyCheck.custom_call('ALL')]\n"
        "fn = jax.jit(lambda x: export(apart_jax.scaled)(x, k=3.0))\n"
        "spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape('n'), 'float64')\n"
        "made = jax.export.export(fn, disabled_checks=every)(spec)\n"
        "open(sys.argv[1], 'wb').write(made.serialize())\n"
    )

    def run(*args: str) -> Any:
        return subprocess.run(
            [sys.executable, *args],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    done = run("make.py", "program")
    assert done.returncode == 0, done.stderr
    if way == "other":
        (tmp_path / "apart_jax.py").write_text(MODULE.format(factor=5.0))
    done = run("load.py", "program", "" if way == "missing" else "registered")
    if way == "registered":
        assert done.stdout.endswith("[0.0, 6.0, 12.0] [6.0]\n"), done.stderr
        return
    text = {
        "missing": "No FFI handler registered for customop_apart_jax_scaled",
        "other": "apart_jax::scaled is another operator in this process",
    }
    assert text[way] in done.stderr


def test_a_script_registers_the_kernels_of_its_own_program(tmp_path: Path) -> None:
    """Its operators cannot be imported from a module."""
    (tmp_path / "script.py").write_text(
        MODULE.format(factor=2.0)
        + "import jax, numpy as np; jax.config.update('jax_enable_x64', True)\n"
        "from customop.interop.jax import export, register_kernels\n"
        "every = [jax.export.DisabledSafetyCheck.custom_call('ALL')]\n"
        "fn = jax.jit(lambda x: export(scaled)(x, k=3.0))\n"
        "spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape('n'), 'float64')\n"
        "made = jax.export.export(fn, disabled_checks=every)(spec)\n"
        "assert register_kernels(made) == [scaled]\n"
        "print(made.call(np.arange(3.0)).tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "[0.0, 6.0, 12.0]\n", done.stderr
