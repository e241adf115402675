"""A profile counts calls, and bytes and kinds of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.profiling._profiled import (
    PROGRAMS,
    X,
    bare,
    both,
    counts,
    define,
    loss,
    made,
    named,
    row_of,
    square,
    through,
    total,
)
from tests.tiers import fifth_of


@pytest.mark.filterwarnings("ignore:profiled..bare has no vmap rule")
@pytest.mark.parametrize("checks", ["first", "always", "never"])
@pytest.mark.parametrize("name", fifth_of(PROGRAMS))
def test_counts_are_those_of_the_program(name: str, checks: str) -> None:
    """Each kernel, rule and formula that runs is counted once, proven or not."""
    program, expected = PROGRAMS[name]
    co.config.checks = checks
    with co.profile() as p:
        program()
    assert counts(p) == expected


@pytest.mark.filterwarnings("ignore:profiled..bare has no vmap rule")
@pytest.mark.parametrize("name", PROGRAMS)
def test_counts_add_up(name: str) -> None:
    """A program that has run before the profile is counted in the same way."""
    program, expected = PROGRAMS[name]
    program()
    with co.profile() as p:
        program()
        program()
    assert counts(p) == {key: 2 * count for key, count in expected.items()}


def test_fallbacks_have_rows() -> None:
    """A library's fallback for operators without a kernel has a row."""
    declared = co.define("profiled::declared", "(Array x) -> Array")
    with co.Library("_", "IMPL", "CPU") as lib:
        lib.fallback(lambda op, *args, **kwargs: args[0] + 1.0)
        with co.profile() as p:
            declared(X)
    assert counts(p) == {("declared", "cpu fallback"): 1}


def test_backward_of_calls_made_before() -> None:
    """A formula is seen even if its call was made before the profile was opened."""
    x = co.variable(X)
    y = np.sum(square(x))
    with co.profile() as p:
        y.backward()
    assert counts(p) == {("square", "autograd backward"): 1}
    np.testing.assert_array_equal(x.grad, 2 * X)


def test_operators_made_inside() -> None:
    """An operator that is defined, called and given a rule inside is counted."""
    with co.profile() as p:
        late = define("late", lambda x: x + 1.0, schema="(Array x) -> Array")
        late(X)
        late.register_kernel("cpu", lambda x: x + 2.0)
        late(X)
        late(X)
    assert counts(p) == {("late", "default kernel"): 1, ("late", "cpu kernel"): 2}


# ---- bytes and kinds ----

M = np.ones((4, 3))
# Operator and rule -> bytes in, bytes out, kinds.
SIZES: dict[str, tuple[Callable[[], Any], tuple[str, str], Any]] = {
    "array": (lambda: square(X), ("square", "default kernel"), (24, 24, ("cpu",))),
    "two": (
        lambda: both(X, M),
        ("both", "cpu kernel"),
        (X.nbytes + M.nbytes, M.nbytes, ("cpu",)),
    ),
    "view": (
        lambda: square(np.ones((6, 2))[::2, 1]),
        ("square", "default kernel"),
        (24, 24, ("cpu",)),
    ),
    "small floats": (
        lambda: bare(np.ones(5, np.float32)),
        ("bare", "default kernel"),
        (20, 20, ("cpu",)),
    ),
    "two results": (
        lambda: named(X, y=X, n=2),
        ("named", "default kernel"),
        (48, 48, ("cpu",)),
    ),
    "list": (
        lambda: total([X, M, M]),
        ("total", "default kernel"),
        (24 + 96 + 96, 96, ("cpu",)),
    ),
    "scalar": (
        lambda: square(np.float64(2)),
        ("square", "default kernel"),
        (8, 8, ("scalar",)),
    ),
    "no array": (lambda: made(3), ("made", "default kernel"), (0, 24, ("cpu",))),
    "fake": (
        lambda: square(co.FakeArray((10, 10), np.float32)),
        ("square", "fake kernel"),
        (400, 400, ("fake",)),
    ),
    "batch": (
        lambda: co.vmap(square)(M),
        ("square", "vmap rule"),
        (96, 96, ("vmap",)),
    ),
    "grad": (
        lambda: co.grad(loss)(X),
        ("square", "autograd forward"),
        (24, 24, ("autograd",)),
    ),
    "backward": (
        lambda: co.grad(loss)(X),
        ("square", "autograd backward"),
        (24, 24, ("cpu",)),
    ),
    "setup": (
        lambda: co.grad(loss)(X),
        ("square", "setup_context"),
        (48, 0, ("cpu",)),
    ),
    "nested": (
        lambda: co.vmap(co.grad(loss))(M),
        ("square", "autograd forward"),
        (96, 96, ("autograd",)),
    ),
    "own kind": (
        lambda: through(square, X),
        ("square", "inverse rule"),
        (24, 24, ("inverse",)),
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_bytes_are_those_of_the_arrays(name: str) -> None:
    """Bytes in and out are those of the arrays; kinds have their names."""
    program, (operator, rule), expected = SIZES[name]
    with co.profile() as p:
        program()
        program()
    row = row_of(p, operator, rule)
    bytes_in, bytes_out, kinds = expected
    assert (row.bytes_in, row.bytes_out) == (2 * bytes_in, 2 * bytes_out)
    assert row.kinds == kinds


def test_kinds_of_other_arrays() -> None:
    """A registered kind has its name, and no bytes if its dtype has no size."""

    class Column:
        shape = (3,)
        dtype = "text"

    co.register_array_type("profiled_column", Column)
    op = define("columns", lambda x: x, schema="(Array(a) x) -> Array(a)")
    op.register_kernel("profiled_column", lambda x: x)
    with co.profile() as p:
        op(Column())
    row = row_of(p, "columns", "profiled_column kernel")
    assert (row.kinds, row.bytes_in) == (("profiled_column",), 0)


def test_a_function_in_two_rows_has_the_name_of_the_row_that_is_taken() -> None:
    """One function as the kernel of two kinds is named by the arrays of the call."""
    tile = type("Tile", (), {"shape": (3,), "dtype": np.dtype(float)})
    co.register_array_type("profiled_tile", tile)
    op = define("shared", lambda x: x, schema="(Array(a) x) -> Array(a)")
    op.register_kernel("profiled_tile", kernel := lambda x: x)
    op.register_kernel("cpu", kernel)
    with co.profile() as p:
        op(tile())
        op(X)
        op.set_kernel_enabled("cpu", False)
        op(X)
    assert counts(p) == {
        ("shared", "profiled_tile kernel"): 1,
        ("shared", "cpu kernel"): 1,
        ("shared", "wrapped function"): 1,
    }
