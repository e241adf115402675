"""Operators with kernels of numba, and the table in the guide of what passes.

``python -m tests.interop.numba_table`` writes the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

import customop as co

PAGE = Path(__file__).parents[2] / "examples" / "guide" / "numba.md"
X = np.linspace(-1.0, 2.0, 6).reshape(2, 3)
W = np.array([1.0, -2.0, 3.0])


class Case(NamedTuple):
    """An operator with a kernel of numba.

    Attributes
    ----------
    op : Operator
    args : tuple
        Of a call.
    expected : callable
        The same in NumPy.
    dtypes : tuple of str
        Of arrays for which both give the same dtype.
    """

    op: Any
    args: tuple[Any, ...]
    expected: Any
    dtypes: tuple[str, ...]


@co.custom_op(
    "numba_tests::scaled", mutates_args=(), schema="(Array x, float k=2.0) -> Array"
)
@numba.njit
def scaled(x, k):
    return x * k


@co.custom_op("numba_tests::hinted", mutates_args=())
@numba.njit
def hinted(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    return x * k


@co.custom_op(
    "numba_tests::signed", mutates_args=(), schema="(float64[n,m] x) -> float64[n,m]"
)
@numba.njit("f8[:,:](f8[:,:])")
def signed(x):
    return x * 3.0


@co.custom_op(
    "numba_tests::product",
    mutates_args=(),
    schema="(Array x, Array y) -> Array",
    tags=(co.Tag.pointwise,),
)
@numba.vectorize
def product(x, y):
    return x * y


@co.custom_op("numba_tests::moments", mutates_args=())
@numba.guvectorize("(n),(n)->(),(n)")
def moments(x, w, total, part):
    total[0] = 0
    for i in range(len(x)):
        part[i] = x[i] * w[i]
        total[0] += part[i]


@co.custom_op("numba_tests::root_sum", mutates_args=())
@numba.guvectorize(["f4[:], f4[:]", "f8[:], f8[:]"], "(n)->()")
def root_sum(x, out):
    out[0] = np.sqrt(np.sum(x * x))


for _op in (scaled, hinted, signed):
    _op.register_fake(lambda x, *rest: co.fake_like(x))
_ALL = ("f4", "f8", "i8", "c16")
CASES: dict[str, Case] = {
    "`njit` with a schema": Case(scaled, (X, 3.0), lambda x, k: x * k, ("f8", "c16")),
    "`njit` with hints": Case(hinted, (X, 3.0), lambda x, k: x * k, ("f8", "c16")),
    "`njit` with a signature": Case(signed, (X,), lambda x: x * 3.0, ("f8",)),
    "`vectorize`": Case(product, (X, W), lambda x, w: x * w, ("f8", "c16")),
    "`guvectorize`": Case(moments, (X, W), lambda x, w: (x @ w, x * w), _ALL),
    "`guvectorize` with signatures": Case(
        root_sum, (X,), lambda x: np.sqrt(np.sum(x * x, axis=-1)), ("f4", "f8")
    ),
}


def table() -> str:
    """A row for each kernel of the tests."""
    rows = [["kernel", "dtypes", "in `njit`", "in JAX"], ["---"] * 4]
    for name, case in CASES.items():
        in_njit = "" if name.startswith("`guv") else "yes"
        names = ", ".join(np.dtype(t).name for t in case.dtypes)
        rows.append([name, names, in_njit, "yes"])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8").partition("\n| kernel |")[0].rstrip()
    PAGE.write_text(f"{before}\n\n{table()}", encoding="utf-8")
