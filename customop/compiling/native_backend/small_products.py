"""Products of many small matrices, for ``compile(exact=False)``.

Calls of BLAS take more time than the products of small matrices themselves. A matrix that is
the same for all products makes them one large product; others have a loop of their own,
which keeps a tile of the result in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from customop.compiling.native_backend.driver import LOOP_PARAMETERS
from customop.compiling.native_backend.iteration import LoopAxis
from customop.compiling.native_backend.machine_code import (
    MachineFunction,
    build,
    vector,
)
from customop.compiling.native_backend.tables import InnerLoop

# Multiplications of a product from which on BLAS is as good.
_LARGE: Final = 1 << 15
# Columns below which most of a group of items is not used, which is right for few numbers.
_NARROW: Final = 3
_TINY: Final = 64


class Product(NamedTuple):
    """Products of matrices, (n, k) times (k, m).

    Attributes
    ----------
    n, k, m : int
    a, b, out : pair of int
        Steps in bytes along both axes.
    outer : tuple of LoopAxis
        Axes around: one product for each place.
    """

    n: int
    k: int
    m: int
    a: tuple[int, int]
    b: tuple[int, int]
    out: tuple[int, int]
    outer: tuple[LoopAxis, ...]

    @property
    def dims(self) -> list[int]:
        """The lengths as loops take them."""
        return [1, self.n, self.k, self.m]

    @property
    def strides(self) -> list[int]:
        """The steps as loops take them."""
        return [0, 0, 0, *self.a, *self.b, *self.out]

    def turned(self) -> Product:
        """Return the same as a product of the transposed matrices."""
        a, b, out = ((second, first) for first, second in (self.a, self.b, self.out))
        outer = [LoopAxis(n, (b, a, c)) for n, (a, b, c) in self.outer]
        return Product(self.m, self.k, self.n, b, a, out, (*outer,))


def joined_product(product: Product) -> Product:
    """Return fewer, larger products that are the same: of a matrix that does not change."""
    while product.outer:
        (length, (a, b, out)), *rest = product.outer
        if b == 0 and product.n == 1:
            product = product._replace(n=length, a=(a, product.a[1]))
            product = product._replace(out=(out, product.out[1]), outer=(*rest,))
        elif (
            b == 0
            and a == product.n * product.a[0]
            and out == product.n * product.out[0]
        ):
            product = product._replace(n=length * product.n, outer=(*rest,))
        elif a == 0 and product.m == 1:
            product = product._replace(m=length, b=(product.b[0], b))
            product = product._replace(out=(product.out[0], out), outer=(*rest,))
        else:
            break
    return product


def small_loop(product: Product, char: str) -> tuple[InnerLoop, Product, bool] | None:
    """Return a loop for products, and the same as this loop takes them.

    Parameters
    ----------
    product : Product
    char : str
        "d" or "f".

    Returns
    -------
    tuple or None
        The loop; the product, maybe of the transposed matrices; and whether it is that. None
        where NumPy's loop is as good.
    """
    size = 8 if char == "d" else 4
    work = product.n * product.k * product.m
    fitting = [
        (given, is_turned)
        for given, is_turned in ((product, False), (product.turned(), True))
        if given.out[1] == size and given.b[1] == size
        if given.m >= _NARROW or work <= _TINY
    ]
    if work > _LARGE or not fitting:
        return None
    given, is_turned = max(fitting, key=lambda pair: pair[0].m)
    return _tiles(char), given, is_turned


# Rows of a tile, and groups of items in each.
_ROWS: Final = 4
_GROUPS: Final = 2


@cache
def _tiles(char: str) -> InnerLoop:  # noqa: PLR0915  # one nest of loops
    """Return the loop; items of b and of the result are contiguous along m."""
    kind, size, lanes = ("double", 8, 8) if char == "d" else ("float", 4, 16)
    code = MachineFunction("products", LOOP_PARAMETERS)
    a, b, out = code.words("%data", ("ptr", "ptr", "ptr"))
    n, k, m = (code.word("%dims", i) for i in (1, 2, 3))
    a_n, a_k, b_k = (code.word("%strides", i) for i in (3, 4, 5))
    out_n = code.word("%strides", 7)
    items, bits = vector(kind, lanes), vector("i1", lanes)
    short = f"v{lanes}{'f64' if char == 'd' else 'f32'}"
    numbers = ", ".join(f"i64 {i}" for i in range(lanes))
    zero = "zeroinitializer"

    def mask(first: str) -> str:
        """Return the bits of the items that exist, from a first one on."""
        left = code.sub(m, first)
        start = code.let(f"insertelement <{lanes} x i64> poison, i64 {left}, i64 0")
        all_left = code.let(
            f"shufflevector <{lanes} x i64> {start}, <{lanes} x i64> poison, "
            f"<{lanes} x i32> zeroinitializer"
        )
        return code.let(f"icmp slt <{lanes} x i64> <{numbers}>, {all_left}")

    def tile(rows: int, groups: int, i: str, j: str) -> None:
        """Write the code for some rows from i on, and groups of items from j on."""
        starts = [code.add(j, g * lanes) for g in range(groups)]
        masks = [mask(start) for start in starts]
        sums = [
            [code.variable(items, zero) for _ in range(groups)] for _ in range(rows)
        ]
        for own in (v for row in sums for v in row):
            code.store(items, zero, own)
        lines = [code.moved(a, code.mul(code.add(i, r), a_n)) for r in range(rows)]
        columns = [code.moved(b, code.mul(start, size)) for start in starts]
        with code.each(k) as step:
            given = [
                code.let(
                    f"call {items} @llvm.masked.load.{short}.p0(ptr "
                    f"{code.moved(column, code.mul(step, b_k))}, i32 {size}, "
                    f"{bits} {mask_}, {items} {zero})"
                )
                for column, mask_ in zip(columns, masks, strict=True)
            ]
            at = code.mul(step, a_k)
            for line, row in zip(lines, sums, strict=True):
                one = code.load(kind, code.moved(line, at), f", align {size}")
                first = code.let(f"insertelement {items} poison, {kind} {one}, i64 0")
                factor = code.let(
                    f"shufflevector {items} {first}, {items} poison, "
                    f"<{lanes} x i32> zeroinitializer"
                )
                for value, own in zip(given, row, strict=True):
                    old = code.load(items, own)
                    arguments = f"{items} {factor}, {items} {value}, {items} {old}"
                    more = code.call(items, f"@llvm.fmuladd.{short}", arguments)
                    code.store(items, more, own)
        for r, row in enumerate(sums):
            line = code.moved(out, code.mul(code.add(i, r), out_n))
            for start, own, mask_ in zip(starts, row, masks, strict=True):
                place = code.moved(line, code.mul(start, size))
                code.do(
                    f"call void @llvm.masked.store.{short}.p0({items} "
                    f"{code.load(items, own)}, ptr {place}, i32 {size}, {bits} {mask_})"
                )

    def band(rows: int, i: str) -> None:
        """Write the code for some rows from i on."""
        wide = lanes * _GROUPS
        whole = code.let(f"udiv i64 {code.add(m, lanes - 1)}, {wide}")
        with code.each(whole) as part:
            tile(rows, _GROUPS, i, code.mul(part, wide))
        done = code.mul(whole, wide)
        with code.when(code.test("slt", done, m)):
            tile(rows, 1, i, done)

    whole = code.let(f"udiv i64 {n}, {_ROWS}")
    with code.each(whole) as part:
        band(_ROWS, code.mul(part, _ROWS))
    done = code.mul(whole, _ROWS)
    with code.each(code.sub(n, done)) as rest:
        band(1, code.add(done, rest))
    code.give("i32", 0)
    declared = (
        f"declare {items} @llvm.masked.load.{short}.p0(ptr, i32, {bits}, {items})\n"
        f"declare void @llvm.masked.store.{short}.p0({items}, ptr, i32, {bits})\n"
        f"declare {items} @llvm.fmuladd.{short}({items}, {items}, {items})\n"
    )
    return InnerLoop(build([code], further=declared)["products"])


def near_product(
    loop: InnerLoop, product: Product, char: str, places: Sequence[int]
) -> tuple[InnerLoop, list[int], Product]:
    """Return the loop, the addresses of operands and the product for the row.

    Parameters
    ----------
    loop : InnerLoop
        NumPy's.
    product : Product
    char : str
        Of the dtype.
    places : sequence of int
        Where a, b and the result lie.
    """
    product = joined_product(product)
    small = small_loop(product, char) if char in "fd" else None
    if small is None:
        return loop, [*places], product
    loop, product, is_turned = small
    a, b, out = places
    return loop, [b, a, out] if is_turned else [a, b, out], product
