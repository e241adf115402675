"""Calls that XLA makes back to Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from customop.arrays.nested import children
from customop.core.generated import generate
from customop.interop.jax.ffi import is_fixed
from customop.interop.jax.functions import Derived, OperatorCall
from customop.interop.jax.places import ArraySlot

__all__ = ["host_call", "run_on_host"]


def run_on_host(
    fn: Derived, given: Sequence[Any], wanted: Sequence[Any], *arrays: Any
) -> list[np.ndarray[Any, Any]]:
    """Run a function on NumPy's arrays; dtypes are those that JAX says.

    Parameters
    ----------
    fn : Derived
    given, wanted : sequence of array or ShapedArray
        Have the dtypes of the arguments and of the results.
    *arrays : array
    """
    is_copied = (isinstance(fn.base, OperatorCall) and is_fixed(fn.base.op)) or None
    pairs = zip(arrays, given, strict=True)
    found = fn(*[np.array(x, a.dtype, copy=is_copied) for x, a in pairs])
    return [np.asarray(y, a.dtype) for y, a in zip(found, wanted, strict=True)]


def host_call(
    fn: Derived, given: Sequence[Any], wanted: Sequence[Any]
) -> Callable[..., list[np.ndarray[Any, Any]]]:
    """`run_on_host` of these, which a program of JAX calls many times.

    A call of an operator on a few arrays, with one for a result, is one line of generated
    code: in a callback nothing is in the processor's caches, and the walk through the
    values of a call takes 8 us of 60, in place of 3 in a loop.
    """
    whole = partial(run_on_host, fn, given, wanted)
    base = fn.base
    if fn.steps or not isinstance(base, OperatorCall) or is_fixed(base.op):
        return whole
    schema, places = base.op.schema, base.places
    values = places.filled([ArraySlot(i) for i in range(places.count)])
    is_nested = any(children(v) is not None for v in values)
    if is_nested or schema.written or not schema.single_return:
        return whole
    names: dict[str, Any] = {
        "_whole": whole,
        "_op": base.op,
        "_rows": base.op.rows,
        "_array": np.array,
        "_asarray": np.asarray,
        "_out": np.dtype(wanted[0].dtype),
        **{f"_t{i}": np.dtype(a.dtype) for i, a in enumerate(given)},
        **{f"_c{i}": v for i, v in enumerate(values)},
    }
    texts = [
        f"_array(x{v.index}, _t{v.index}, copy=None)"
        if isinstance(v, ArraySlot)
        else f"_c{i}"
        for i, v in enumerate(values)
    ]
    params = ", ".join([f"x{i}" for i in range(len(given))])
    lines = [
        f"def call({params}):",
        # A kernel that was registered since may need copies.
        f"    if _op.rows is not _rows: return _whole({params})",
        f"    return [_asarray(_op.run({', '.join(texts)}), _out)]",
    ]
    made: Callable[..., list[Any]] = generate(
        f"{base} for JAX", "\n".join(lines), "call", names
    )
    return made
