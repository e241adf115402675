"""Kernels of numba: functions of ``njit`` and of ``guvectorize``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.nested import flat, map_nested
from customop.core.codegen import GlobalNames, generate
from customop.core.table import RuleTable
from customop.errors import ArgumentError, RegistrationError, quoted
from customop.schema.schema import Schema
from customop.schema.types import Parameter, holds_arrays, is_array_type

# ---- njit: arrays in another byte order are converted ----
# numba 0.68 refuses such an array, or takes it for one in the machine's order and reads
# wrong numbers from it: that depends on which arrays the process has shown to it before.


def compiled_of(kernel: Any) -> Any:
    """Return the function that numba compiled of a kernel; another kernel unchanged."""
    return getattr(kernel, "compiled", kernel)


def in_native_order(op: RuleTable, fn: Any) -> Any:
    """Make a kernel that gives a function of njit arrays in the machine's byte order.

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
    """Write the test whether numba can take the value of a parameter."""
    if p.is_written:
        return f"{scope.bind('can_be_written', _can_be_written)}({p.name})"
    test = f"{scope.bind('is_native', _is_native)}({p.name})"
    if not is_array_type(p.type):
        return test
    dtypes = [scope.bind(f"f{8 * d.itemsize}", d) for d in _USUAL]
    return f"({' or '.join([*[f'{p.name}.dtype is {d}' for d in dtypes], test])})"


_USUAL = (np.dtype(np.float64), np.dtype(np.float32))


def _can_be_written(value: Any) -> bool:
    """Return whether arrays are native and writable: ``x.flat`` would write read-only ones."""
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
    """Return why numba cannot write to arrays, and what to do."""
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


# ---- guvectorize: the kernel allocates the results, which numba takes as arguments ----


def of_gufunc(fn: Any) -> GufuncKernel:
    """Return the kernel that a function of `numba.guvectorize` is."""
    if fn.gufunc_builder.writable_args:
        raise RegistrationError(
            f"{fn.__name__} is a function of guvectorize that writes its inputs",
            do="leave writable_args out, and give what it writes as a result",
        )
    return GufuncKernel(fn)


class GufuncKernel:
    """A kernel of a gufunc, which allocates the results.

    Attributes
    ----------
    gufunc : numba GUFunc
    schema : str
        The schema of an operator with this kernel: names and shapes of the gufunc.
    """

    def __init__(self, gufunc: Any) -> None:
        self.gufunc: Any = gufunc
        self.__name__: str = gufunc.__name__
        self.__doc__ = gufunc.__doc__
        self.__wrapped__: Any = gufunc.gufunc_builder.py_func
        self._inputs, self._outputs = map(_cores, gufunc.signature.split("->"))
        self._names = [*inspect.signature(self.__wrapped__).parameters][
            : len(self._inputs)
        ]
        pairs = zip(self._names, self._inputs, strict=True)
        typed = ", ".join([f"{_type(core)} {name}" for name, core in pairs])
        results = ", ".join(map(_type, self._outputs))
        is_single = len(self._outputs) == 1
        self.schema: str = f"({typed}) -> {results if is_single else f'({results})'}"

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(n, kind) for n in self._names])

    def __repr__(self) -> str:
        return f"<kernel of {self.__name__}>"

    def __call__(self, *arrays: Any) -> Any:
        """Compute the results."""
        loops: list[Any] = []
        sizes: dict[str, int] = {}
        for x, core in zip(arrays, self._inputs, strict=True):
            loops.append(x.shape[: x.ndim - len(core)])
            sizes.update(zip(core, x.shape[x.ndim - len(core) :], strict=True))
        loop = np.broadcast_shapes(*loops)
        dtypes = self.dtypes(arrays)
        shapes = [(*loop, *[sizes[axis] for axis in core]) for core in self._outputs]
        out = [np.empty(n, t) for n, t in zip(shapes, dtypes, strict=True)]
        self.gufunc(*arrays, *out)
        return out[0] if len(out) == 1 else tuple(out)

    @property
    def has_loops(self) -> bool:
        """True if the dtypes are fixed; otherwise numba compiles for all dtypes."""
        return not self.gufunc.is_dynamic

    def dtypes(self, arrays: Sequence[Any]) -> list[np.dtype[Any]]:
        """Return the dtypes of the results, as the first loop that takes the arrays gives them."""
        given = [np.dtype(x.dtype) for x in arrays]
        if not self.has_loops:
            return [np.result_type(*given)] * len(self._outputs)
        for loop in self.gufunc.types:
            inputs, outputs = loop.split("->")
            if all(map(np.can_cast, given, inputs)):
                return [np.dtype(letter) for letter in outputs]
        raise ArgumentError(
            f"{self.__name__} has no loop for {quoted(map(str, given))}; it has"
            f" {', '.join(self.gufunc.types)}",
            do="convert the arguments: x.astype(np.float64)",
        )

    def fake(self, derived: Callable[..., Any]) -> Callable[..., Any]:
        """Make the fake kernel from one that knows the shapes alone."""

        def kernel(*arrays: Any) -> Any:
            found = derived(*arrays)
            results = (found,) if len(self._outputs) == 1 else found
            pairs = zip(results, self.dtypes(arrays), strict=True)
            made = [FakeArray(y.shape, dtype, device=y.device) for y, dtype in pairs]
            return made[0] if len(made) == 1 else tuple(made)

        kernel.__signature__ = self.__signature__  # type: ignore[attr-defined]  # as inspect reads
        return kernel


def _cores(text: str) -> list[list[str]]:
    """Return the axes in each bracket of one side of a signature."""
    return [
        [axis.strip() for axis in part.split(",") if axis.strip()]
        for part in re.findall(r"\(([^)]*)\)", text)
    ]


def _type(core: Sequence[str]) -> str:
    return f"Array[{','.join(['...', *core])}]"
