"""opcheck calls kernels with what their schemas admit, and with nothing else."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.testing import opcheck

_numbers = itertools.count()


def _operator(schema: str, dtype: Any) -> Any:
    """Make an operator whose kernel ends its process at other dtypes, as C code may."""

    def double(x: Any) -> Any:
        if x.dtype != dtype or not x.dtype.isnative:
            os.abort()
        return x * 2

    name = f"admitted::double_{next(_numbers)}"
    op = co.custom_op(name, double, mutates_args=(), schema=schema)
    op.register_fake(lambda x: co.fake_like(x))
    return op


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "complex128"])
@pytest.mark.parametrize("shape", ["...", "n", "m,n"])
def test_kernels_get_the_dtype_of_their_schema(dtype: str, shape: str) -> None:
    op = _operator(f"({dtype}[{shape}] x) -> {dtype}[{shape}]", dtype)
    assert opcheck(op, raise_exception=False).failed == []


def test_vmap_rules_of_one_dtype_are_no_false_alarm() -> None:
    op = co.custom_op(
        f"admitted::double_{next(_numbers)}",
        lambda x: x * 2,
        mutates_args=(),
        schema="(float64[...] x) -> float64[...]",
    )
    op.register_fake(lambda x: co.fake_like(x))
    op.register_vmap(lambda info, in_dims, x: (op(x), in_dims[0]))
    found = opcheck(op, raise_exception=False)
    assert found.failed == []
    assert found["test_vmap"] == "SUCCESS"


def test_the_name_of_a_dtype_means_native_byte_order() -> None:
    op = _operator("(float64[n] x) -> float64[n]", "float64")
    with pytest.raises(
        co.ArgumentError, match=r"expects float64\[n\], got .* >f8"
    ) as seen:
        op(np.ones(3, ">f8"))
    assert 'x.astype("float64")' in str(seen.value)
    assert opcheck(op, raise_exception=False).failed == []


def test_a_class_of_dtypes_has_any_byte_order() -> None:
    op = co.custom_op(
        f"admitted::double_{next(_numbers)}",
        lambda x: x * 2,
        mutates_args=(),
        schema="(float[n] x) -> float[n]",
    )
    np.testing.assert_array_equal(op(np.arange(3, dtype=">f8")), [0.0, 2.0, 4.0])


def test_kernels_may_refuse_flags_that_are_all_true() -> None:
    """Flags get no other values at the end of a page if the kernel takes none."""

    def first(x: Any, is_left_out: Any) -> Any:
        if is_left_out.all():
            raise ValueError("nothing is left")
        return x * 2

    op = co.custom_op(
        f"admitted::first_{next(_numbers)}",
        first,
        mutates_args=(),
        schema="(Array x, Array is_left_out) -> Array",
    )
    op.register_fake(lambda x, is_left_out: co.fake_like(x))
    sample = (np.array([1.4, -0.7]), np.array([True, False]))
    op.register_sample_inputs(lambda: [sample])
    assert opcheck(op, test_utils="test_mutation", raise_exception=False).failed == []
