"""Two primitives of JAX: the call of a function, and its differential.

The differential is linear in the tangents. Forward mode runs it; reverse mode transposes
it into the call of the pullback. So one export has both modes, to any order, and an
operator without rules for one of them works in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from customop.arrays.fake import FakeArray
from customop.core.changes import changing
from customop.interop.jax.functions import (
    Batched,
    Differential,
    Function,
    Pullback,
    is_inexact,
)

__all__ = ["call"]

_call = Primitive("customop_call")
_call.multiple_results = True
_differential = Primitive("customop_differential")
_differential.multiple_results = True


def call(fn: Function, arrays: Sequence[Any]) -> list[Any]:
    """Call a function with arrays of JAX, concrete or traced."""
    found: list[Any] = _call.bind(*arrays, fn=fn)
    return found


# ---- values ----


def _run(*arrays: Any, fn: Function) -> list[Any]:
    avals = [jax.typeof(x) for x in arrays]
    found = _on_host(fn, avals, _results(fn, avals), *arrays)
    return [jax.numpy.asarray(y) for y in found]


def _on_host(
    fn: Function, given: Sequence[Any], wanted: Sequence[Any], *arrays: Any
) -> list[np.ndarray[Any, Any]]:
    """Run a function on NumPy's arrays; dtypes are those that JAX says."""
    inputs = [np.asarray(x, a.dtype) for x, a in zip(arrays, given, strict=True)]
    found = fn(*inputs)
    return [np.asarray(y, a.dtype) for y, a in zip(found, wanted, strict=True)]


def _results(fn: Function, avals: Sequence[Any]) -> Sequence[Any]:
    """Shapes and dtypes of the results."""
    given = tuple([(a.shape, np.dtype(a.dtype)) for a in avals])
    return _result_types(fn, given, changing.count, jax.config.read("jax_enable_x64"))


@lru_cache(maxsize=4096)
def _result_types(
    fn: Function, given: Sequence[tuple[Any, Any]], changes: int, is_wide: bool
) -> Sequence[Any]:
    """The same; asked again after a rule was registered."""
    found = fn(*[FakeArray(shape, dtype) for shape, dtype in given])
    dtypes = [jax.dtypes.canonicalize_dtype(y.dtype) for y in found]
    return [ShapedArray(y.shape, t) for y, t in zip(found, dtypes, strict=True)]


_call.def_impl(_run)
_call.def_abstract_eval(lambda *avals, fn: [*_results(fn, avals)])


def _lowered(*arrays: Any, fn: Function) -> Any:
    avals = [jax.typeof(x) for x in arrays]
    wanted = _results(fn, avals)
    results = [jax.ShapeDtypeStruct(y.shape, y.dtype) for y in wanted]
    return jax.pure_callback(partial(_on_host, fn, avals, wanted), results, *arrays)


mlir.register_lowering(_call, mlir.lower_fun(_lowered, multiple_results=True))

# ---- the differential ----


def _differential_results(*avals: Any, fn: Function, wanted: tuple[bool, ...]) -> Any:
    """Those of the function: a rule for forward mode is not needed to know them."""
    found = _results(fn, avals[: len(wanted)])
    return [aval for aval in found if is_inexact(aval.dtype)]


_differential.def_abstract_eval(_differential_results)
_differential.def_impl(
    lambda *arrays, fn, wanted: _run(*arrays, fn=Differential(fn, wanted))
)
mlir.register_lowering(
    _differential,
    mlir.lower_fun(
        lambda *arrays, fn, wanted: _lowered(*arrays, fn=Differential(fn, wanted)),
        multiple_results=True,
    ),
)

# ---- derivatives ----


def _call_jvp(primals: Any, tangents: Any, *, fn: Function) -> Any:
    results = _call.bind(*primals, fn=fn)
    wanted = tuple([not _is_zero(t) for t in tangents])
    if not any(wanted):
        return results, [_zero(y) for y in results]
    given = [t for t in tangents if not _is_zero(t)]
    found = iter(_differential.bind(*primals, *given, fn=fn, wanted=wanted))
    return results, [next(found) if is_inexact(y.dtype) else _zero(y) for y in results]


def _is_zero(tangent: Any) -> bool:
    if isinstance(tangent, ad.Zero):
        return True
    return bool(jax.typeof(tangent).dtype == jax.dtypes.float0)


def _zero(value: Any) -> Any:
    return ad.Zero(jax.typeof(value).to_tangent_aval())


def _differential_jvp(
    primals: Any, tangents: Any, *, fn: Function, wanted: tuple[bool, ...]
) -> Any:
    count = len(wanted)
    results = _differential.bind(*primals, fn=fn, wanted=wanted)
    found = [_zero(y) for y in results]
    if not all(map(_is_zero, tangents[count:])):
        given = [ad.instantiate_zeros(t) for t in tangents[count:]]
        found = _differential.bind(*primals[:count], *given, fn=fn, wanted=wanted)
    changed = tuple([not _is_zero(t) for t in tangents[:count]])
    if any(changed):
        given = [t for t in tangents[:count] if not _is_zero(t)]
        rest = (False,) * (len(primals) - count)
        more = _differential.bind(
            *primals, *given, fn=Differential(fn, wanted), wanted=(*changed, *rest)
        )
        found = [ad.add_tangents(x, y) for x, y in zip(found, more, strict=True)]
    return results, found


def _transposed(
    cotangents: Any, *arrays: Any, fn: Function, wanted: tuple[bool, ...]
) -> Any:
    count = len(wanted)
    given = [ad.instantiate_zeros(ct) for ct in cotangents]
    found = _call.bind(*arrays[:count], *given, fn=Pullback(fn, wanted))
    return [*[None] * count, *found]


ad.primitive_jvps[_call] = _call_jvp
ad.primitive_jvps[_differential] = _differential_jvp
ad.primitive_transposes[_differential] = _transposed

# ---- rows ----


def _call_batch(arrays: Any, dims: Any, *, fn: Function) -> Any:
    rows = [_first(x, d) for x, d in zip(arrays, dims, strict=True)]
    axes = tuple([None if d is None else 0 for d in dims])
    found = _call.bind(*rows, fn=Batched(fn, axes))
    return found, [0] * len(found)


def _differential_batch(
    arrays: Any, dims: Any, *, fn: Function, wanted: tuple[bool, ...]
) -> Any:
    """The differential of the function of rows; an argument has rows as its tangent has."""
    count = len(wanted)
    size = next(x.shape[d] for x, d in zip(arrays, dims, strict=True) if d is not None)
    places = [i for i, is_wanted in enumerate(wanted) if is_wanted]
    has_rows = [d is not None for d in dims]
    for i, place in enumerate(places):
        either = has_rows[place] or has_rows[count + i]
        has_rows[place] = has_rows[count + i] = either
    given = [
        _rows(x, d, size) if has else x
        for x, d, has in zip(arrays, dims, has_rows, strict=True)
    ]
    axes = tuple([0 if has else None for has in has_rows[:count]])
    found = _differential.bind(*given, fn=Batched(fn, axes), wanted=wanted)
    return found, [0] * len(found)


def _first(array: Any, dim: Any) -> Any:
    return array if dim in (None, 0) else jax.numpy.moveaxis(array, dim, 0)


def _rows(array: Any, dim: Any, size: int) -> Any:
    if dim is not None:
        return _first(array, dim)
    return jax.numpy.broadcast_to(array, (size, *array.shape))


batching.primitive_batchers[_call] = _call_batch
batching.primitive_batchers[_differential] = _differential_batch
