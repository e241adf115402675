"""Operators with wrong vmap rules."""

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co

from . import A, define, modeled, planted

# ---- vmap ----


def with_vmap(rule: Any, fn: Any = None) -> Any:
    """Make a sum over the last axis with a vmap rule."""

    def last(x: A) -> A:
        if x.ndim < 1:
            raise ValueError("an axis at least")
        return np.sum(x, -1, dtype=x.dtype)

    op = define(last)
    op.register_fake(lambda x: co.FakeArray(x.shape[:-1], x.dtype))
    return op.register_vmap(lambda info, in_dims, x: rule(op, in_dims, x))


@planted(
    test_vmap="the vmap rule returned an output of shape (1,) with out_dims=0, but the batch has 2 rows",
)
def vmap_rule_for_axis_0_alone(wrong: bool) -> Any:
    def rule(op, in_dims, x):
        x = x if wrong else np.moveaxis(x, in_dims[0], 0)
        return op(x), 0

    return with_vmap(rule)


@planted(
    test_vmap="the vmap rule returned an output of shape (1,) with out_dims=0, but the batch has 2 rows",
)
def vmap_rule_sums_the_batch(wrong: bool) -> Any:
    def rule(op, in_dims, x):
        if not wrong:
            return op(np.moveaxis(x, in_dims[0], 0)), 0
        return op(x), min(in_dims[0], x.ndim - 2)

    return with_vmap(rule)


@planted(
    test_vmap="the vmap rule returned an output of shape (1, 2) with out_dims=0, but the batch has 2 rows",
)
def vmap_rule_of_wrong_out_dims(wrong: bool) -> Any:
    def squared(x: A) -> A:
        return x * x

    op = define(squared).register_fake(lambda x: co.fake_like(x))
    return op.register_vmap(
        lambda info, in_dims, x: (op(x), 0 if wrong else in_dims[0])
    )


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(1, 2) and that row alone: shapes (1, 2) and (1, 1) differ",
)
def vmap_rule_of_a_product(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        if x.ndim < 2 or y.ndim < 2:
            raise ValueError("two axes at least")
        return np.matmul(x, y)

    def fake(x, y):
        return co.FakeArray(
            (np.zeros(x.shape, bool) @ np.zeros(y.shape, bool)).shape,
            np.result_type(x.dtype, y.dtype),
        )

    op = define(product).register_fake(fake)

    def rule(info, in_dims, x, y):
        dx, dy = in_dims
        x = x if dx is None else np.moveaxis(x, dx, 0)
        if wrong:
            return op(x, y), 0
        y = y if dy is None else np.moveaxis(y, dy, 0)
        return op(x, y), 0

    op.register_vmap(rule)
    return op.register_sample_inputs(lambda: [(np.ones((2, 3)), np.ones((3, 2)))])


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(0) and that row alone: 1 of 1 elements (100.0 %) are not close",
)
def vmap_rule_centers_the_batch(wrong: bool) -> Any:
    def centered(x: A) -> A:
        if x.dtype != np.float64:
            raise TypeError("float64")
        return x - np.mean(x)

    op = define(centered).register_fake(lambda x: co.fake_like(x))

    def rule(info, in_dims, x):
        (dim,) = in_dims
        axes = tuple(i for i in range(x.ndim) if i != dim)
        return (op(x) if wrong else x - np.mean(x, axes, keepdims=True)), dim

    return op.register_vmap(rule)


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(0, 0) and that row alone: 1 of 1 elements (100.0 %) are not close",
)
def vmap_rule_pairs_rows_with_columns(wrong: bool) -> Any:
    def added(x: A, y: A) -> A:
        if x.ndim != 1 or y.shape != x.shape:
            raise ValueError("two of a length")
        return x + y

    op = define(added).register_fake(
        lambda x, y: co.FakeArray(
            np.broadcast_shapes(x.shape, y.shape), np.result_type(x.dtype, y.dtype)
        )
    )

    def rule(info, in_dims, x, y):
        rows = [
            v if d is None else np.moveaxis(v, d, 0)
            for v, d in zip((x, y), in_dims, strict=False)
        ]
        if wrong and None not in in_dims:
            rows[1] = np.flip(rows[1], 0)
        return rows[0] + rows[1], 0

    op.register_vmap(rule)
    return op.register_sample_inputs(lambda: [(np.arange(3.0), np.arange(3.0) + 5)])


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(1) and that row alone: 1 of 2 elements (50.0 %) are not close",
)
def vmap_rule_of_a_list(wrong: bool) -> Any:
    def total(arrays: list[A]) -> A:
        if len({x.shape for x in arrays}) > 1:
            raise ValueError("one shape")
        return np.sum(np.stack(arrays), 0)

    op = define(total).register_fake(modeled(total))

    def rule(info, in_dims, arrays):
        rows = [
            np.broadcast_to(x, (info.batch_size, *x.shape))
            if d is None
            else x
            if wrong
            else np.moveaxis(x, d, 0)
            for x, d in zip(arrays, in_dims[0], strict=True)
        ]
        return sum(rows[1:], rows[0]), 0

    op.register_vmap(rule)
    return op.register_sample_inputs(lambda: [([np.ones((2, 3)), np.eye(2, 3)],)])


@planted(
    test_vmap="output 0 differs between rows of equal values with randomness='same': 1 of 1 elements (100.0 %) are not close",
)
def random_rule_draws_for_each_row(wrong: bool) -> Any:
    def noisy(x: A) -> A:
        return x + np.random.normal(size=x.shape)  # noqa: NPY002

    op = define(noisy, tags=(co.Tag.nondeterministic_seeded, co.Tag.flexible_layout))
    op.register_fake(modeled(noisy))

    def rule(info, in_dims, x):
        rows = np.moveaxis(x, in_dims[0], 0)
        is_same = info.randomness == "same" and not wrong
        shape = rows.shape[1:] if is_same else rows.shape
        return rows + np.random.normal(size=shape), 0  # noqa: NPY002

    return op.register_vmap(rule)


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(0) and that row alone: 2 of 4 elements (50.0 %) are not close",
)
def vmap_rule_of_a_matrix_with_a_condition(wrong: bool) -> Any:
    def root(x: A) -> A:
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError("square matrices")
        return np.linalg.cholesky(x.astype(np.float64))

    op = define(root).register_fake(lambda x: co.FakeArray(x.shape, float))

    def rule(info, in_dims, x):
        rows = np.moveaxis(x, in_dims[0], 0)
        found = op(rows)
        return np.swapaxes(found, 1, 2) if wrong else found, 0

    op.register_vmap(rule)
    spread = np.array([[2.0, 0.5], [0.5, 1.0]])
    return op.register_sample_inputs(lambda: [(spread,)])
