"""Modes: fake arrays, casts of float arguments, and the place where a nan comes from."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, ParamSpec, Self, TypeVar, overload

import numpy as np

from customop.arrays.array import ArrayT, dtype_of
from customop.arrays.fake import FakeArray, make_fake, to_fake
from customop.arrays.kinds import (
    FAKE,
    PLAIN,
    device_kind,
    device_of,
    is_array,
    is_fake,
    is_traced,
    normalize_device,
)
from customop.arrays.nested import (
    abbreviated,
    flat,
    flatten,
    map_leaves,
    map_nested,
    show,
)
from customop.arrays.numpy_functions import call_numpy
from customop.core.builtin_kinds import AUTOCAST
from customop.core.contract import finish_fake
from customop.core.dispatch import kernel_for
from customop.core.fake_context import FakeCall, has_sizes, own_context
from customop.core.interpreter import Interpreter, Mode, current_mode
from customop.core.observe import Observer
from customop.core.rule_kind import OwnKind, RuleKind, check_device_types
from customop.core.table import RuleTable
from customop.errors import (
    ArgumentError,
    NanError,
    RegistrationError,
    caller_place,
    check_flag,
    check_function,
    runs_kernels,
    shown,
)
from customop.later import later
from customop.transforms.autograd.tape import GradNode, Output

fake_sizes: ModuleType = later(import_module, "customop.arrays.fake_sizes")


# ---- run code on fake arrays: `FakeMode` and `eval_shape` ----


P = ParamSpec("P")
R = TypeVar("R")


class FakeMode(Mode):
    """While it is open, every operator runs its fake kernel.

    Of real arrays only the shape, dtype and device are used.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::negate", mutates_args=())
    ... def negate(x: np.ndarray) -> np.ndarray:
    ...     return -x
    >>> _ = negate.register_fake(lambda x: co.fake_like(x))
    >>> with co.FakeMode() as mode:
    ...     x = mode.from_array(np.zeros((2, 3)))
    ...     y = negate(x)
    >>> y
    FakeArray(f64[2, 3], device='cpu')
    """

    kind: ClassVar[RuleKind] = OwnKind("fake")

    def __init__(self) -> None:
        super().__init__()
        # The sizes of its calls, made when they are asked for.
        self.contexts: list[Any] = []

    @has_sizes
    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the fake kernel."""
        values = [map_nested(value, to_fake) for value in args]
        slots = (*op.array_slots, *op.nested_slots)
        if any(is_array(v) for slot in slots for v in flat(values[slot])):
            return op.invoke(values)
        # Without an array the call would not be dispatched as fake.
        return _run_fake(op, values)

    def from_array(
        self,
        x: Any,
        device: str | None = None,
        *,
        sizes: Sequence[str | int | None] | None = None,
    ) -> FakeArray:
        """Make a fake array like a real one.

        Parameters
        ----------
        x : array
        device : str, optional
            Device of the fake array; that of `x` by default.
        sizes : sequence of str, int or None, optional
            Names for sizes that stay symbolic, by axis. Axes with the same name have one
            size. None, or the length itself, for an axis whose length is a number.

        Returns
        -------
        FakeArray
            It has the same dtype and order of axes, and the same shape, with a `SymInt`
            for each name.

        Raises
        ------
        ArgumentError
            If `x` is not an array with data, or a name cannot be used.
        ShapeError
            If `sizes` do not fit the shape of `x`.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> x = co.FakeMode().from_array(np.zeros((4, 3)), sizes=("batch", 3))
        >>> np.matmul(x, np.ones((3, 2)))
        FakeArray(f64[batch, 2], device='cpu')
        """
        if not is_array(x) or is_traced(x):
            raise ArgumentError(
                f"FakeMode.from_array: {show(x)} is not an array with data",
                do="pass an array, such as np.asarray(x)",
            )
        fake: FakeArray = _plain_fake(x)
        if sizes is not None:
            fake = self._named(fake, sizes)
        if device is None:
            return fake
        where = normalize_device(device)
        return make_fake(fake.shape, fake.dtype, fake.strides, where)

    def _named(self, fake: FakeArray, names: Sequence[str | int | None]) -> FakeArray:
        """A fake array with names for its sizes."""
        context = own_context(self.contexts)
        named: FakeArray = fake_sizes.with_sizes(fake, names, "x", context)
        return named


def _run_fake(op: RuleTable, values: Sequence[Any]) -> Any:
    """The result of the fake kernel."""
    kernel = kernel_for(op, FAKE)
    return finish_fake(op, kernel, FakeCall(op, values).run(kernel))


def _plain_fake(value: Any) -> Any:
    """The fake array of a real one; a matrix is refused, whose results have other shapes."""
    if isinstance(value, np.matrix):
        raise ArgumentError(
            f"a fake array of a {type(value).__name__}, whose own arithmetic would be"
            " lost",
            do=PLAIN,
        )
    return to_fake(value)


# Either the arguments of `fn` as it declares them, or a fake array first, where the
# hints of `fn` may ask for a real one, and then anything.
@overload
def eval_shape(
    fn: Callable[P, ArrayT], *args: P.args, **kwargs: P.kwargs
) -> FakeArray: ...
@overload
def eval_shape(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Any: ...
@overload
def eval_shape(
    fn: Callable[..., ArrayT], fake: FakeArray, /, *args: Any, **kwargs: Any
) -> FakeArray: ...
@overload
def eval_shape(
    fn: Callable[..., R], fake: FakeArray, /, *args: Any, **kwargs: Any
) -> Any: ...
def eval_shape(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Compute the shapes and dtypes that a function would return, not the values.

    Parameters
    ----------
    fn : callable
        Made of operators and NumPy functions.
    *args, **kwargs : pytree
        Arguments of `fn`; of real arrays only the shape and dtype are used.

    Returns
    -------
    pytree of FakeArray
        The result of `fn`, with fake arrays in place of arrays.

    Raises
    ------
    ArgumentError
        If `fn` is not a function.
    MissingRuleError
        If an operator has no fake kernel.
    DataDependentError
        If `fn` asks for a value.

    Notes
    -----
    A fake array without axes counts as one of NumPy's scalars, which most functions
    return: ``x += y`` makes a new one, of the dtype of ``x + y``. NumPy's array without
    axes would keep its own dtype there; give it an axis if that matters.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.eval_shape(np.matmul, np.zeros((2, 3)), np.zeros((3, 4)))
    FakeArray(f64[2, 4], device='cpu')
    """
    check_function("eval_shape", fn)
    with FakeMode():
        given, named = map_leaves(_plain_fake, (args, kwargs))
        out = fn(*given, **named)
    for leaf in flatten(out)[0]:
        getattr(leaf, "shape", None)  # raises for elements of an unknown number
    return map_leaves(to_fake, out)


# ---- a mode that casts the float arguments of operators to a chosen dtype ----


class autocast(Mode):  # noqa: N801  # written as a call, as in torch
    """While it is open, operators compute in the dtype registered for autocast.

    An operator with `register_autocast` gets its float arrays of that kind in the
    registered dtype, except float64 and longer floats, and runs with autocast off. All
    other operators run as usual. Operators called inside a kernel are not cast.

    Parameters
    ----------
    device_type : str
        Kind of array to cast, such as ``"cpu"``.
    enabled : bool
        False switches autocast off for a block inside another one.

    Raises
    ------
    ArgumentError
        If `device_type` is not a known kind of array, or `enabled` not a bool.

    Notes
    -----
    It is applied before all transforms, wherever it was opened: gradients flow back
    through the casts and have the dtype of the inputs.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::double", mutates_args=())
    ... def double(x: np.ndarray) -> np.ndarray:
    ...     return x * 2
    >>> _ = double.register_autocast("cpu", np.float16)
    >>> with co.autocast("cpu"):
    ...     double(np.ones(2, np.float32))
    array([2., 2.], dtype=float16)
    """

    kind: ClassVar[RuleKind] = AUTOCAST

    def __init__(self, device_type: str = "cpu", enabled: bool = True) -> None:
        super().__init__()
        self.device_type: str = _known_kind(device_type)
        _check_enabled(enabled)
        self.enabled: bool = enabled
        # Settings inside the block: its own, and those of the blocks around it.
        self.settings: dict[str, bool] = {}

    def __enter__(self) -> Self:
        around = current_mode.get()
        while around is not None and not isinstance(around, autocast):
            around = around.outer
        super().__enter__()
        known = {} if around is None else around.settings
        self.settings = {**known, self.device_type: self.enabled}
        # Above every tracer, as in torch, so that transforms see the casts.
        self.level: float = math.inf  # type: ignore[assignment]  # an int elsewhere
        return self

    def find_outer(self) -> Mode | None:
        """The first mode outside that is not autocast: this one includes the others."""
        found = current_mode.get()
        while isinstance(found, autocast):
            found = found.outer
        return found

    def describe(self) -> str:
        """How messages name it."""
        return f"autocast({self.device_type!r})"

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Cast the arguments, and call the operator outside of autocast."""
        row = op.rows.get(AUTOCAST)
        if row is None:
            return op.invoke(args)
        dtypes = {k: d for k, d in row.fn.items() if self.settings.get(k)}
        return op.invoke([map_nested(v, lambda x: _cast(x, dtypes)) for v in args])


def _check_enabled(enabled: object) -> None:
    if isinstance(enabled, type | np.dtype):  # as in torch.autocast
        raise ArgumentError(
            f"autocast: enabled={shown(enabled)} is a dtype, which each operator"
            " registers for itself",
            do='write op.register_autocast("cpu", dtype), and autocast("cpu")',
        )
    check_flag("autocast: enabled", enabled)


def _cast(value: Any, dtypes: dict[str, Any]) -> Any:
    """A float array in the dtype of its kind; other values as they are."""
    if not is_array(value) or not _is_short_float(dtype_of(value)):
        return value
    dtype = dtypes.get(device_kind(device_of(value)))
    if dtype is None or dtype_of(value) == dtype:
        return value
    return call_numpy(np.astype, value, dtype)


def _is_short_float(dtype: np.dtype[Any]) -> bool:
    # By name, because floats of other packages, such as bfloat16, have kind "V".
    is_float = dtype.kind == "f" or "float" in dtype.name
    return is_float and dtype.itemsize < np.dtype(np.float64).itemsize


def _known_kind(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise ArgumentError(
            f"autocast: device_type={device_type!r} is not a name of a kind of array",
            do='write autocast("cpu")',
        )
    try:
        check_device_types("autocast", device_type)
    except RegistrationError as error:
        raise ArgumentError(error.what, *error.where, do=error.do) from None
    return device_type


# ---- where a nan comes from: the first call or formula whose result has one ----
# It is an observer of all threads, which `config.check_nans` opens. Kernels are seen
# inside of transforms and rules, so the innermost call that makes a nan is the one that
# is named.


class _Nans(Observer):
    """Raises where a result has nan and nothing that it was computed from has one."""

    def __init__(self) -> None:
        super().__init__(threads=True)

    def enter(
        self,
        op: RuleTable,
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
    ) -> None:
        """Not called: see `around`."""

    def around(
        self,
        op: RuleTable,
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
        proof: Any,
        run: Callable[..., Any],
    ) -> Callable[..., Any]:
        if by == "setup_context":
            return run
        check = _checked_backward if by == "backward" else _checked_call
        return check(op, args, run)


_nans = _Nans()


def switch(on: bool) -> None:
    """Look for nan from now on, or no more."""
    if on != _nans.is_open:
        if on:
            _nans.__enter__()
        else:
            _nans.__exit__()


# ---- calls ----


def _checked_call(
    op: RuleTable, args: Sequence[Any], run: Callable[..., Any]
) -> Callable[..., Any]:
    @runs_kernels
    def call(*values: Any, **keywords: Any) -> Any:
        # What a kernel writes may have nan before.
        had_nan = bool(op.schema.written) and _has_nan(args)
        out = run(*values, **keywords)
        results = [out, *_written(op, args)]
        if _has_nan(results) and not had_nan:
            if op.schema.written or not _has_nan(args):
                raise _error(op, args, results)
        else:
            _note_place(out)
        return out

    return call


def _written(op: RuleTable, args: Sequence[Any]) -> list[Any]:
    if not op.schema.written:
        return []
    pairs = zip(op.schema.parameters, args, strict=True)
    return [value for p, value in pairs if p.is_written]


def _note_place(out: Any) -> None:
    """Note in the node of a call where it is, for an error of its backward formula."""
    for value in flat(out):
        node = getattr(value, "node", None) if is_traced(value) else None
        owner = node.node if type(node) is Output else node
        if isinstance(owner, GradNode):
            vars(owner).setdefault("node_place", caller_place())


def _error(op: RuleTable, args: Sequence[Any], results: Sequence[Any]) -> NanError:
    values = [part for kind, part in _parts(results) if kind == "value"]
    what = "returns nan" if any(map(_is_nan, values)) else "has a tangent that is nan"
    return op.error(
        NanError,
        f" {what}, and nothing that it was given has one",
        f"called at {caller_place()}",
        *_ranges(op, args),
        do="keep the arguments where it is defined, such as by np.where(x > 0, x, 1.0)"
        " before the call",
        parameter=None,
    )


def _ranges(op: RuleTable, args: Sequence[Any]) -> Iterator[str]:
    """Lines with the least and greatest elements of each argument."""
    for p, value in zip(op.schema.parameters, args, strict=True):
        arrays = [part for kind, part in _parts([value]) if kind == "value"]
        arrays = [a for a in arrays if a.size and a.dtype.kind in "fiu"]
        if arrays:
            least = min(float(np.min(a)) for a in arrays)
            most = max(float(np.max(a)) for a in arrays)
            yield f"{p.name}: {abbreviated(arrays[0])} from {least:.6g} to {most:.6g}"


# ---- backward formulas ----


def _checked_backward(
    op: RuleTable, grads: Sequence[Any], run: Callable[..., Any]
) -> Callable[..., Any]:
    @runs_kernels
    def backward(node: Any, *given: Any) -> Any:
        # Before it runs: a node that is freed keeps nothing.
        own = [v for name, v in vars(node).items() if name != "node_edges"]
        kept = [*node.saved_arrays, *own]
        found = run(node, *given)
        if _has_nan([found]) and not _has_nan([*given, *kept]):
            raise _backward_error(op, node)
        return found

    return backward


def _backward_error(op: RuleTable, node: Any) -> NanError:
    where = getattr(node, "node_place", "")
    return op.error(
        NanError,
        "the backward formula returns nan, and neither the gradient nor what it saved has"
        " one",
        *([f"the operator was called at {where}"] if where else []),
        f"backward at {node.node_rule.backward_place}",
        do="keep the arguments where the derivative is finite, such as by"
        " np.where(x > 0, x, 1.0) before the call",
        parameter=None,
    )


# ---- arrays inside of values ----


def _has_nan(values: Any) -> bool:
    return any(_is_nan(part) for _, part in _parts(values))


def _is_nan(value: Any) -> bool:
    return value.dtype.kind in "fc" and bool(np.isnan(value).any())


def _parts(values: Any) -> Iterator[tuple[str, Any]]:
    """Arrays of NumPy inside of nested and traced values, each a value or a tangent."""
    for leaf in [leaf for value in values for leaf in flat(value)]:
        if is_traced(leaf):
            yield from _parts([leaf.below])
            tangent = getattr(leaf, "tangent", None)
            yield from (("tangent", part) for _, part in _parts([tangent]))
        elif isinstance(leaf, np.ndarray | np.generic):
            yield "value", leaf
        elif isinstance(leaf, float | complex):
            yield "value", np.asarray(leaf)
        elif is_array(leaf) and not is_fake(leaf):
            # An array of another kind, if NumPy can read it.
            with contextlib.suppress(TypeError):
                yield "value", np.asarray(leaf)
