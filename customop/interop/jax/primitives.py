"""Two primitives of JAX: the call of a function, and its differential.

The differential is linear in the tangents. Forward mode runs it; reverse mode transposes
it into the call of the pullback. So one export has both modes, to any order, and an
operator without rules for one of them works in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from customop.arrays.dtypes import is_inexact
from customop.arrays.fake import FakeArray
from customop.core.changes import changing
from customop.errors import DataDependentError
from customop.interop.jax.ffi import (
    call_target,
    has_own_kernel,
    has_target,
    run_own_kernel,
)
from customop.interop.jax.functions import Derived
from customop.interop.jax.host import host_call, run_on_host
from customop.interop.steps import Batch, Pull, Push
from customop.transforms.carrier import carried

__all__ = ["call"]

_call = Primitive("customop_call")
_call.multiple_results = True
_differential = Primitive("customop_differential")
_differential.multiple_results = True


def call(fn: Derived, arrays: Sequence[Any]) -> list[Any]:
    """Call a function with arrays of JAX, concrete or traced."""
    found: list[Any] = _call.bind(*arrays, fn=fn)
    return found


# ---- values ----


def _run(*arrays: Any, fn: Derived) -> list[Any]:
    if not fn.steps and has_own_kernel(fn.base):
        return run_own_kernel(fn.base, arrays)
    avals = [jax.typeof(x) for x in arrays]
    found = run_on_host(fn, avals, _results(fn, avals), *arrays)
    return [jax.numpy.asarray(y) for y in found]


def _results(fn: Derived, avals: Sequence[Any]) -> Sequence[Any]:
    """Shapes and dtypes of the results."""
    given = tuple([(a.shape, np.dtype(a.dtype)) for a in avals])
    return _result_types(fn, given, changing.count, jax.config.read("jax_enable_x64"))


@lru_cache(maxsize=4096)
def _result_types(
    fn: Derived, given: Sequence[tuple[Any, Any]], changes: int, is_wide: bool
) -> Sequence[Any]:
    """The same; asked again after a rule was registered."""
    found = fn(*[FakeArray(shape, dtype) for shape, dtype in given])
    dtypes = [jax.dtypes.canonicalize_dtype(y.dtype) for y in found]
    return [ShapedArray(y.shape, t) for y, t in zip(found, dtypes, strict=True)]


_call.def_impl(_run)
_call.def_abstract_eval(lambda *avals, fn: [*_results(fn, avals)])


def _lowered(is_on_cpu: bool, *arrays: Any, fn: Derived) -> Any:
    """The call in a program: of functions that XLA calls, or back to Python."""
    avals = [jax.typeof(x) for x in arrays]
    wanted = _results(fn, avals)
    results = [jax.ShapeDtypeStruct(y.shape, y.dtype) for y in wanted]
    base = fn.base
    found: list[Any] | None = None
    if has_own_kernel(base) or (is_on_cpu and has_target(base)):
        if fn.steps:
            found = _inlined(fn, arrays, results)
        elif has_own_kernel(base):
            found = run_own_kernel(base, arrays)
        else:
            found = call_target(base, arrays, results)
    if found is not None:
        return [x.astype(y.dtype) for x, y in zip(found, results, strict=True)]
    return jax.pure_callback(host_call(fn, avals, wanted), results, *arrays)


def _inlined(fn: Derived, arrays: Sequence[Any], results: Sequence[Any]) -> Any:
    """Derivatives and rows as a program, in which the operator is called.

    None if a rule asks for the values of its arrays: it is then run on the host.
    """
    # Late, since arrays of JAX become a kind, on which rules run.
    import_module("customop.interop.jax.kind").register_jax_arrays()
    try:
        found = carried(fn, arrays, {})
    except (DataDependentError, jax.errors.ConcretizationTypeError):
        return None
    # A rule may give a constant of NumPy.
    return [jax.numpy.asarray(x, y.dtype) for x, y in zip(found, results, strict=True)]


def _register(primitive: Primitive, of_call: Callable[..., Any]) -> None:
    """Tell JAX how a primitive becomes a program."""
    for platform in (None, "cpu"):
        lowered = partial(_lowered, platform is not None)
        rule = mlir.lower_fun(partial(of_call, lowered), multiple_results=True)
        mlir.register_lowering(primitive, rule, platform=platform)


_register(_call, lambda lowered, *arrays, fn: lowered(*arrays, fn=fn))

# ---- the differential ----


def _differential_results(*avals: Any, fn: Derived, wanted: tuple[bool, ...]) -> Any:
    """Shapes and dtypes of the results: no rule for forward mode is needed for them."""
    found = _results(fn, avals[: len(wanted)])
    return [aval for aval in found if is_inexact(aval.dtype)]


_differential.def_abstract_eval(_differential_results)
_differential.def_impl(
    lambda *arrays, fn, wanted: _run(*arrays, fn=_pushed(fn, wanted))
)
_register(
    _differential,
    lambda lowered, *arrays, fn, wanted: lowered(*arrays, fn=_pushed(fn, wanted)),
)


def _pushed(fn: Derived, wanted: Sequence[bool]) -> Derived:
    """From arguments and tangents of some of them to tangents of the results."""
    return fn.then(Push(_places(wanted), is_dense=True))


def _places(wanted: Sequence[bool]) -> tuple[int, ...]:
    return tuple([i for i, is_wanted in enumerate(wanted) if is_wanted])


# ---- derivatives ----


def _call_jvp(primals: Any, tangents: Any, *, fn: Derived) -> Any:
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
    primals: Any, tangents: Any, *, fn: Derived, wanted: tuple[bool, ...]
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
            *primals, *given, fn=_pushed(fn, wanted), wanted=(*changed, *rest)
        )
        found = [ad.add_tangents(x, y) for x, y in zip(found, more, strict=True)]
    return results, found


def _transposed(
    cotangents: Any, *arrays: Any, fn: Derived, wanted: tuple[bool, ...]
) -> Any:
    count = len(wanted)
    given = [ad.instantiate_zeros(ct) for ct in cotangents]
    results = _results(fn, [jax.typeof(x) for x in arrays[:count]])
    outputs = _places([is_inexact(y.dtype) for y in results])
    step = Pull(_places(wanted), outputs, is_dense=True)
    found = _call.bind(*arrays[:count], *given, fn=fn.then(step))
    return [*[None] * count, *found]


ad.primitive_jvps[_call] = _call_jvp
ad.primitive_jvps[_differential] = _differential_jvp
ad.primitive_transposes[_differential] = _transposed

# ---- rows ----


def _call_batch(arrays: Any, dims: Any, *, fn: Derived) -> Any:
    rows = [_first(x, d) for x, d in zip(arrays, dims, strict=True)]
    axes = tuple([None if d is None else 0 for d in dims])
    found = _call.bind(*rows, fn=fn.then(Batch(axes)))
    return found, [0] * len(found)


def _differential_batch(
    arrays: Any, dims: Any, *, fn: Derived, wanted: tuple[bool, ...]
) -> Any:
    """The differential of the function of rows; an argument has rows as its tangent has."""
    count = len(wanted)
    size = next(x.shape[d] for x, d in zip(arrays, dims, strict=True) if d is not None)
    places = _places(wanted)
    has_rows = [d is not None for d in dims]
    for i, place in enumerate(places):
        either = has_rows[place] or has_rows[count + i]
        has_rows[place] = has_rows[count + i] = either
    given = [
        _rows(x, d, size) if has else x
        for x, d, has in zip(arrays, dims, has_rows, strict=True)
    ]
    axes = tuple([0 if has else None for has in has_rows[:count]])
    found = _differential.bind(*given, fn=fn.then(Batch(axes)), wanted=wanted)
    return found, [0] * len(found)


def _first(array: Any, dim: Any) -> Any:
    return array if dim in (None, 0) else jax.numpy.moveaxis(array, dim, 0)


def _rows(array: Any, dim: Any, size: int) -> Any:
    if dim is not None:
        return _first(array, dim)
    return jax.numpy.broadcast_to(array, (size, *array.shape))


batching.primitive_batchers[_call] = _call_batch
batching.primitive_batchers[_differential] = _differential_batch
