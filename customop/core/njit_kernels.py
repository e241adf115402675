"""Kernels of ``numba.njit``, which must not see arrays in another byte order.

numba 0.68 refuses such an array, or takes it for one in the machine's order and reads
wrong numbers from it: that depends on which arrays the process has shown to it before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

import numpy as np

from customop.arrays.nested import flat, map_nested
from customop.core.codegen import GlobalNames, generate
from customop.core.table import RuleTable
from customop.errors import ArgumentError
from customop.schema.schema import Schema
from customop.schema.types import Parameter, holds_arrays, is_array_type


def compiled_of(kernel: Any) -> Any:
    """The function that numba has compiled of a kernel; another kernel as it is."""
    return getattr(kernel, "compiled", kernel)


def in_native_order(op: RuleTable, fn: Any) -> Any:
    """A kernel of njit that gets arrays in the machine's byte order.

    Arrays in another one are converted, and refused where the kernel would write to them.
    The test takes 25 ns for an array of floats, and 25 ns for the call.

    Parameters
    ----------
    op : Operator
    fn : callable
        A kernel of it, made by njit.

    Returns
    -------
    callable
        Has the function of njit as its attribute ``compiled``.
    """
    schema = op.schema
    names = [p.name for p in schema.parameters]
    at = len(names) - len(schema.keyword_only)
    scope = GlobalNames(names)
    kernel = scope.bind("compiled", fn)
    # By name, so that the kernel can be sent where the operator is not known.
    convert = scope.bind("converted", partial(_call_converted, op.qualname, schema))
    tests = [_test_of(p, scope) for p in schema.parameters if holds_arrays(p.type)]
    given = ", ".join([*names[:at], *[f"{n}={n}" for n in names[at:]]])
    lines = [
        f"def kernel({', '.join([*names[:at], *['*'][: len(names) - at], *names[at:]])}):",
        f"    if {' and '.join(tests) or 'True'}:",
        f"        return {kernel}({given})",
        f"    return {convert}({kernel}, [{', '.join(names)}])",
    ]
    made: Callable[..., Any] = generate(
        f"{op.qualname} for njit", "\n".join(lines), "kernel", scope.names
    )
    update_wrapper(made, fn, updated=())  # its dict has weak references
    made.compiled = fn  # type: ignore[attr-defined]  # as `compiled_of` reads
    return made


def _is_native(value: Any) -> bool:
    return all(map(_is_native_leaf, flat(value)))


def _is_native_leaf(leaf: Any) -> bool:
    # Arrays of other libraries have dtypes of their own, in the machine's order.
    return bool(getattr(getattr(leaf, "dtype", None), "isnative", True))


def _test_of(p: Parameter, scope: GlobalNames) -> str:
    """Whether numba can be given the value of a parameter, as text."""
    if p.is_written:
        return f"{scope.bind('can_be_written', _can_be_written)}({p.name})"
    test = f"{scope.bind('is_native', _is_native)}({p.name})"
    if not is_array_type(p.type):
        return test
    dtypes = [scope.bind(f"f{8 * d.itemsize}", d) for d in _USUAL]
    return f"({' or '.join([*[f'{p.name}.dtype is {d}' for d in dtypes], test])})"


_USUAL = (np.dtype(np.float64), np.dtype(np.float32))


def _can_be_written(value: Any) -> bool:
    """Also whether arrays are not read-only: numba writes to those by ``x.flat``."""
    return _is_native(value) and all(
        x.flags.writeable for x in flat(value) if isinstance(x, np.ndarray)
    )


def _call_converted(
    name: str, schema: Schema, kernel: Callable[..., Any], values: list[Any]
) -> Any:
    given = []
    for p, value in zip(schema.parameters, values, strict=True):
        if p.is_written and not _can_be_written(value):
            what, do = _why_not_written(p.name, value)
            raise schema.error(
                ArgumentError, name, what, do=do, parameter=p.name, kind="cpu"
            )
        given.append(map_nested(value, _as_native))
    positional, keywords = schema.split(given)
    return kernel(*positional, **keywords)


def _why_not_written(name: str, value: Any) -> tuple[str, str]:
    """The problem with arrays that numba cannot write to, and what to do."""
    for x in flat(value):
        if not _is_native_leaf(x):
            what = f"numba cannot write to an array of {x.dtype}, which is not in the"
            do = f"pass {name}.astype({name}.dtype.newbyteorder('='))"
            return f"{what} machine's byte order", do
    return "numba cannot write to a read-only array", f"pass {name}.copy()"


def _as_native(leaf: Any) -> Any:
    if _is_native_leaf(leaf):
        return leaf
    return leaf.astype(leaf.dtype.newbyteorder("="))
