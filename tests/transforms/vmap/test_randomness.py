"""vmap: randomness and chunks, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co
from customop import vmap
from tests.transforms.vmap._operators import (
    X,
    Y,
    copy_into,
    define,
    looped,
    loops,
)

# ---- randomness ----

noise = define(
    "(Array x, Generator g) -> Array", lambda x, g: x + g.normal(size=x.shape)
)
legacy = define(
    "(int n) -> Array",
    lambda n: np.random.normal(size=n),  # noqa: NPY002  # the state that the tag is for
    tags=co.Tag.nondeterministic_seeded,
)


def twins() -> tuple[np.random.Generator, np.random.Generator]:
    """Two generators of one state."""
    return np.random.default_rng(7), np.random.default_rng(7)


@pytest.mark.parametrize("batched", [True, False])
def test_randomness_error(batched: bool) -> None:
    """By default a random operator is refused, and draws nothing."""
    g, h = twins()
    with pytest.raises(co.VmapError, match="is random under vmap"):
        vmap(lambda x: noise(x if batched else X[0], g) + x)(X)
    with pytest.raises(co.VmapError, match="is random under vmap"):
        vmap(lambda x: x + legacy(3))(X)
    assert g.normal() == h.normal()


@pytest.mark.parametrize("batched", [True, False])
def test_randomness_same(batched: bool) -> None:
    """All rows draw the same numbers, and the generator has moved on by one draw."""
    g, h = twins()
    base = np.zeros((4, 3))
    out = vmap(lambda x: noise(x if batched else base[0], g) + x, randomness="same")(
        base
    )
    np.testing.assert_array_equal(out, np.stack([h.normal(size=3)] * 4))
    assert g.normal() == h.normal()


@pytest.mark.parametrize("batched", [True, False])
def test_randomness_different(batched: bool) -> None:
    """Every row draws its own numbers, in the order of the rows."""
    g, h = twins()
    base = np.zeros((4, 3))
    out = vmap(
        lambda x: noise(x if batched else base[0], g) + x, randomness="different"
    )(base)
    np.testing.assert_array_equal(out, h.normal(size=(4, 3)))
    assert g.normal() == h.normal()


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_seeded_operators_draw_from_the_global_state(randomness: str) -> None:
    """The same holds for operators without arrays that have the tag."""
    np.random.seed(3)  # noqa: NPY002
    drawn = np.random.normal(size=(4, 3))  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    out = vmap(lambda x: x + legacy(3), randomness=randomness)(np.zeros((4, 3)))
    expected = drawn if randomness == "different" else np.stack([drawn[0]] * 4)
    np.testing.assert_array_equal(out, expected)


def test_random_rule_decides_itself() -> None:
    """A rule reads info.randomness."""
    seen = []
    op = define("(Array x, Generator g) -> Array", lambda x, g: x * 1)
    op.register_vmap(lambda info, in_dims, x, g: seen.append(info.randomness) or (x, 0))
    for randomness in ("same", "different"):
        vmap(lambda x: op(x, np.random.default_rng()), randomness=randomness)(X)
    assert seen == ["same", "different"]
    with pytest.raises(co.VmapError, match="is random"):
        vmap(lambda x: op(x, np.random.default_rng()))(X)


@pytest.mark.parametrize(
    ("outer", "inner", "count"),
    [
        ("different", "different", 4),
        ("same", "different", 2),
        ("same", "same", 1),
        ("different", "same", 2),
    ],
)
@pytest.mark.parametrize("batched", ["none", "outer", "inner", "both"])
def test_nested_randomness(outer: str, inner: str, count: int, batched: str) -> None:
    """Each level says for its own rows whether draws are the same or different."""
    g = np.random.default_rng(0)
    zeros = np.zeros((2, 2, 3))

    def row(a: Any, b: Any) -> Any:
        given = {"none": zeros[0, 0], "outer": a[0], "inner": b, "both": a[0] + b}
        return noise(given[batched], g) + b

    out = vmap(
        lambda a: (
            vmap(lambda b: row(a, b), randomness=inner)(
                a if batched == "both" else zeros[0]
            )
            + a
        ),
        randomness=outer,
    )(zeros)
    draws = out.reshape(4, 3)
    assert len({tuple(draw) for draw in draws}) == count
    if outer == "same":
        np.testing.assert_array_equal(out[0], out[1])
    if inner == "same":
        np.testing.assert_array_equal(out[:, 0], out[:, 1])


def test_random_operators_outside_are_free() -> None:
    """After a vmap, and outside it, random operators run."""
    g = np.random.default_rng(0)
    vmap(lambda x: x)(X)
    assert noise(X, g).shape == X.shape


def test_bad_settings() -> None:
    """Settings are checked when vmap is called, not later."""
    for kwargs in (
        {"randomness": "none"},
        {"chunk_size": 0},
        {"chunk_size": -1},
        {"chunk_size": 2.0},
    ):
        with pytest.raises(co.VmapError):
            vmap(np.sin, **kwargs)  # type: ignore[arg-type]


# ---- chunks ----


@loops
@pytest.mark.parametrize("chunk_size", [1, 2, 3, 4, 5, None])
def test_chunks(chunk_size: int | None) -> None:
    """Chunks give the same results, also where the last chunk is shorter."""
    sizes = []

    def fn(a: Any, b: Any, k: float) -> Any:
        sizes.append(1)
        return {"p": looped(a, b, k), "q": (np.sum(a), 2.0), "r": k, "n": None}

    dims = {"p": 1, "q": (0, 0), "r": None, "n": None}
    out = vmap(fn, in_dims=(0, 1, None), out_dims=dims, chunk_size=chunk_size)(
        X, Y, 3.0
    )
    np.testing.assert_allclose(out["p"], (X * 3 + Y.T).T)
    np.testing.assert_allclose(out["q"][0], X.sum(1))
    assert (out["q"][1].tolist(), out["r"], out["n"]) == ([2.0] * 4, 3.0, None)
    assert len(sizes) == -(-4 // (chunk_size or 4))


def test_chunks_of_no_rows() -> None:
    """A batch without rows is one empty chunk."""
    assert vmap(np.sin, chunk_size=2)(X[:0]).shape == (0, 3)


def test_chunks_write_into_the_batch() -> None:
    """A chunk is a view of the batch."""
    op = define("(Array(a!) x, Array y) -> ()", copy_into, ("x",))
    op.register_vmap(lambda info, in_dims, x, y: (op(x, y), None))
    x = np.zeros((4, 3))
    vmap(op, chunk_size=3)(x, X)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("randomness", ["same", "different"])
@pytest.mark.parametrize("kind", ["generator", "global"])
def test_randomness_in_chunks(randomness: str, kind: str) -> None:
    """Rows draw the same numbers with chunks and without."""
    outs = []
    for chunk_size in (None, 1, 3):
        g = np.random.default_rng(7)
        np.random.seed(7)  # noqa: NPY002
        outs.append(
            vmap(
                lambda x, g=g: noise(x, g) if kind == "generator" else x + legacy(3),
                randomness=randomness,
                chunk_size=chunk_size,
            )(np.zeros((4, 3)))
        )
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])
    assert len({tuple(row) for row in outs[0]}) == (1 if randomness == "same" else 4)
