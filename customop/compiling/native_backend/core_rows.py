"""Rows of loops over whole vectors and matrices: Fourier transforms and LAPACK.

NumPy's generalized ufuncs behind `numpy.fft` and `numpy.linalg` have loops like the others.
What the functions around them do is done when the table is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from customop.compiling.native_backend.iteration import merged_axes, strides_within
from customop.compiling.native_backend.memory import Block, address_of, span_of
from customop.compiling.native_backend.object_layout import floating_point_flags
from customop.compiling.native_backend.planning import AnyArray, TablePlan, loop_of_cast
from customop.compiling.native_backend.triangular import (
    planned_inverse,
    planned_solution,
)
from customop.compiling.native_backend.ufunc_loops import (
    NotNative,
    UfuncLoop,
    core_axes,
    loop_for,
)
from customop.graph.node import Node

# The ufuncs have no public names.
_FFT: Final = import_module("numpy.fft._pocketfft_umath")
_LAPACK: Final = import_module("numpy.linalg._umath_linalg")


def _emit(
    plan: TablePlan,
    loop: UfuncLoop,
    signature: str,
    operands: Sequence[AnyArray],
    *,
    takes_many: bool = False,
    work: int | None = None,
) -> None:
    """Emit the row of a loop; the last axes of the operands are its own.

    Parameters
    ----------
    plan : TablePlan
    loop : UfuncLoop
    signature : str
        Of the ufunc.
    operands : sequence of array
        Those that are given, then the results.
    takes_many : bool
        Whether the loop leaves its pointers alone, so that it may go along an axis itself.
    work : int, optional
        Of one call.
    """
    names = core_axes(signature)
    lengths: dict[str, int] = {}
    for x, own in zip(operands, names, strict=True):
        for name, length in zip(own, x.shape[x.ndim - len(own) :], strict=True):
            lengths.setdefault(name, length)
    stacks = [
        x.shape[: x.ndim - len(own)] for x, own in zip(operands, names, strict=True)
    ]
    lead = np.broadcast_shapes(*stacks)
    steps = [
        strides_within(x, (*lead, *x.shape[x.ndim - len(own) :]))[: len(lead)]
        for x, own in zip(operands, names, strict=True)
    ]
    outer = merged_axes(lead, steps) if lead else []
    count, along = 1, (0,) * len(operands)
    if takes_many and outer:
        count, along = outer.pop(0)
    cores = [
        step
        for x, own in zip(operands, names, strict=True)
        for step in x.strides[x.ndim - len(own) :]
    ]
    plan.table.emit(
        loop,
        [address_of(x) for x in operands],
        [count, *lengths.values()],
        [*along, *cores],
        outer,
        work=work,
    )


def _is_taken(x: Any) -> bool:
    """Return whether NumPy casts an array to numbers of 64 bits or leaves it as it is."""
    return isinstance(x, np.ndarray) and (
        x.dtype.char in "fdFD" or x.dtype.kind in "biu"
    )


# ---- Fourier transforms ----


def _transform(forward: str, last: str, *, at_end: bool) -> Callable[..., None]:
    """Return the rule of a transform over several axes.

    Parameters
    ----------
    forward : str
        The transform along all axes but the last of the list.
    last : str
        That along the last one.
    at_end : bool
        Whether that is done after the others; else the axes are taken from the last on.
    """

    def rule(
        plan: TablePlan,
        node: Node,
        x: AnyArray,
        s: Sequence[int],
        axes: Sequence[int],
        norm: str | None = None,
    ) -> None:
        if not _is_taken(x) or not x.size or not axes:
            raise NotNative(f"a transform of {x.dtype}")
        names = [forward] * (len(axes) - 1) + [last]
        steps = [*zip(names, s, axes, strict=True)]
        block = None
        for name, n, axis in steps if at_end else steps[::-1]:
            if block is not None:
                block.uses += 1
                plan.release_after(block)
            x, block = _along(plan, x, name, n, axis % x.ndim, norm)
        assert block is not None
        plan.take_new(node, x, block)

    return rule


def _along(
    plan: TablePlan, x: AnyArray, name: str, n: int, axis: int, norm: str | None
) -> tuple[AnyArray, Block]:
    """Emit a transform along one axis; return its result, and the new block of that."""
    real = np.result_type(x.real.dtype, 1.0)
    length, ufunc_name, dtype = n, name, np.result_type(x.dtype, 1j)
    if name == "rfft":
        length, ufunc_name = n // 2 + 1, f"rfft_n_{'odd' if n % 2 else 'even'}"
    elif name == "irfft":
        dtype = real
    ufunc = getattr(_FFT, ufunc_name)
    factor = _factor(n, real, norm, is_forward=name in ("fft", "rfft"))
    kind = int if type(factor) is int else factor.dtype
    loop = loop_for(ufunc, (x.dtype, kind, dtype))
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    found, block = plan.new(
        shape, dtype, np.empty_like(x, shape=shape, dtype=dtype).strides
    )
    given = plan.cast(x, loop.dtypes[0])
    target = found
    if loop.dtypes[2] != dtype:
        target = plan.temporary(shape, loop.dtypes[2])
    number = plan.number(factor, loop.dtypes[1])
    ends = [np.moveaxis(v, axis, -1) for v in (given, target)]
    _emit(plan, loop, ufunc.signature, [ends[0], number, ends[1]], takes_many=True)
    if target is not found:
        plan.loop(loop_of_cast(target.dtype, dtype), [target, found])
    return found, block


def _factor(n: int, real: np.dtype[Any], norm: str | None, *, is_forward: bool) -> Any:
    """Return what NumPy multiplies a transform of n items by."""
    if not is_forward:
        norm = {"forward": None, None: "forward", "backward": "forward"}.get(norm, norm)
    if norm == "ortho":
        return np.reciprocal(np.sqrt(n, dtype=real))
    return np.reciprocal(n, dtype=real) if norm == "forward" else 1


# ---- matrices ----


def factored(
    plan: TablePlan, node: Node, ufunc: np.ufunc, operands: Sequence[Any]
) -> None:
    """Emit the row of a ufunc of LAPACK, whose results lie as they were captured."""
    if not all(map(_is_taken, operands)) or not all(x.size for x in operands):
        raise NotNative("matrices without items, or not of numbers")
    is_complex = any(x.dtype.kind == "c" for x in operands)
    wide = np.dtype(np.complex128 if is_complex else np.float64)
    loop = loop_for(ufunc, (wide,) * ufunc.nin)
    given = [plan.cast(x, wide) for x in operands]
    is_one = ufunc.nout == 1
    fakes = [node.val] if is_one else node.val
    results = [_result(plan, fake) for fake in fakes]
    targets = [
        found if found.dtype == dtype else plan.temporary(found.shape, dtype)
        for (found, _), dtype in zip(results, loop.dtypes[ufunc.nin :], strict=True)
    ]
    _emit(
        plan,
        loop,
        str(ufunc.signature),
        [*given, *targets],
        work=prod(given[0].shape[-2:]) * max(given[0].shape[-2:]),
    )
    for target, (found, _) in zip(targets, results, strict=True):
        if target is not found:
            plan.loop(loop_of_cast(target.dtype, found.dtype), [target, found])
    # By this flag LAPACK's loops say that they failed, whatever the settings are.
    plan.program.always_counted |= (floating_point_flags() or {})["invalid"]
    if is_one:
        plan.take_new(node, *results[0])
        return
    for _, block in results:
        block.uses += 1
    arrays = [found for found, _ in results]
    plan.take_all(
        node, arrays, [block for _, block in results], [not x.ndim for x in arrays]
    )


def _result(plan: TablePlan, fake: Any) -> tuple[AnyArray, Block]:
    """Return memory for a result with the strides that were captured."""
    shape, strides = (tuple(map(plan.size, v)) for v in (fake.shape, fake.strides))
    found, block = plan.new(shape, fake.dtype, None)
    if strides != found.strides:
        found = block.array(shape, fake.dtype, strides)
        low, high = span_of(found)
        if low != address_of(found) or high - low > found.nbytes:
            raise NotNative("results with gaps in their memory")
    return found, block


def _named(name: str) -> Callable[..., None]:
    """Return the rule of an operator that is one ufunc."""

    def rule(plan: TablePlan, node: Node, a: AnyArray) -> None:
        factored(plan, node, getattr(_LAPACK, name), [a])

    return rule


def _by_triangle(lower: str, upper: str) -> Callable[..., None]:
    """Return the rule of an operator that reads one triangle, by the name of each."""

    def rule(plan: TablePlan, node: Node, a: AnyArray, is_upper: bool = False) -> None:
        factored(plan, node, getattr(_LAPACK, upper if is_upper else lower), [a])

    return rule


def inverse(
    plan: TablePlan, node: Node, a: AnyArray, nan_if_singular: bool = False
) -> None:
    """Emit `inv`."""
    if nan_if_singular:
        raise NotNative("inverses that may be nan")
    if plan.program.is_exact or not planned_inverse(plan, node, a):
        factored(plan, node, _LAPACK.inv, [a])


def solution(plan: TablePlan, node: Node, a: AnyArray, b: AnyArray) -> None:
    """Emit `solve`, for a vector or for matrices."""
    if plan.program.is_exact or not planned_solution(plan, node, a, b):
        ufunc = _LAPACK.solve1 if b.ndim == 1 else _LAPACK.solve
        factored(plan, node, ufunc, [a, b])


def singular(
    plan: TablePlan, node: Node, a: AnyArray, full_matrices: bool = True
) -> None:
    """Emit `svd`."""
    factored(plan, node, _LAPACK.svd_f if full_matrices else _LAPACK.svd_s, [a])


RULES_OF_CORES: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "np::cholesky": _by_triangle("cholesky_lo", "cholesky_up"),
        "np::det": _named("det"),
        "np::eigh": _by_triangle("eigh_lo", "eigh_up"),
        "np::eigvalsh": _by_triangle("eigvalsh_lo", "eigvalsh_up"),
        "np::fftn": _transform("fft", "fft", at_end=False),
        "np::ifftn": _transform("ifft", "ifft", at_end=False),
        "np::inv": inverse,
        "np::irfftn": _transform("ifft", "irfft", at_end=True),
        "np::rfftn": _transform("fft", "rfft", at_end=False),
        "np::slogdet": _named("slogdet"),
        "np::solve": solution,
        "np::svd": singular,
        "np::svdvals": _named("svd"),
    }
)
