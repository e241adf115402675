"""Modes that run fake kernels, cast float arguments, or find the source of a nan."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, ParamSpec, TypeVar, overload

import numpy as np

from customop.arrays.array import ArrayT, dtype_of
from customop.arrays.fake import FakeArray, make_fake, to_fake, with_sizes
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
from customop.arrays.stand_ins import entered
from customop.core.builtin_kinds import AUTOCAST
from customop.core.contract import finish_fake
from customop.core.dispatch import kernel_for
from customop.core.fake_context import FakeCall, has_sizes, own_context
from customop.core.interpreter import Interpreter, Mode, current_mode, run_inside
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
from customop.transforms.autograd.tape import GradNode, Output

# ---- FakeMode and eval_shape: run code on fake arrays ----


P = ParamSpec("P")
R = TypeVar("R")


def _with_numbers_moved(values: list[Any]) -> list[Any]:
    """Move the fakes of NumPy's scalars to the device of the arrays, as a call does."""

    def is_number(value: Any) -> bool:
        return type(value) is FakeArray and not value.shape and value.device == "cpu"

    devices = {v.device for v in values if type(v) is FakeArray and not is_number(v)}
    if len(devices) != 1:
        return values
    (device,) = devices
    return [make_fake((), v.dtype, (), device) if is_number(v) else v for v in values]


class FakeMode(Mode):
    """A mode in which every operator runs its fake kernel.

    Only the shape, dtype and device of real arrays are used.

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
        # The contexts of symbolic sizes, made on demand.
        self.contexts: list[Any] = []

    @has_sizes
    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the fake kernel."""
        values = [v if type(v) is FakeArray else map_nested(v, to_fake) for v in args]
        fakes = [v for v in values if type(v) is FakeArray]
        if len(fakes) > 1 and len({v.device for v in fakes}) > 1:
            values = _with_numbers_moved(values)
        slots = (*op.array_slots, *op.nested_slots)
        if fakes or any(is_array(v) for slot in slots for v in flat(values[slot])):
            return op.invoke(values)
        # Without an array argument the call would not be dispatched to the fake kernel.
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
            Device of the fake array; by default the device of `x`.
        sizes : sequence of str, int or None, optional
            For each axis, a name if its size is symbolic, or None or the length itself
            if it is a number. Axes with the same name have the same size.

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
        """Return a fake array with symbolic sizes of these names."""
        context = own_context(self.contexts)
        named: FakeArray = with_sizes(fake, names, "x", context)
        return named


def _run_fake(op: RuleTable, values: Sequence[Any]) -> Any:
    """Run the fake kernel and check its result."""
    kernel = kernel_for(op, FAKE)
    return finish_fake(op, kernel, FakeCall(op, values).run(kernel))


def _plain_fake(value: Any) -> Any:
    """Return a fake array for a real one; raise for np.matrix, which has its own rules."""
    if isinstance(value, np.matrix):
        raise ArgumentError(
            f"a fake array of a {type(value).__name__}, whose own arithmetic would be"
            " lost",
            do=PLAIN,
        )
    return to_fake(value)


# The overloads take either arguments as `fn` declares them, or a fake array first, for
# which the hints of `fn` may ask for a real one, and then anything.
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
    """Compute the shapes and dtypes that a function would return, but not the values.

    Parameters
    ----------
    fn : callable
        A function that calls operators and NumPy functions.
    *args, **kwargs : pytree
        Arguments of `fn`. Only the shape and dtype of real arrays are used.

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
        If `fn` needs the value of an array.

    Notes
    -----
    A fake array without axes behaves like a NumPy scalar, which most functions return:
    ``x += y`` makes a new one, with the dtype of ``x + y``. A NumPy array without axes
    would keep its dtype there; give it an axis if that matters.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.eval_shape(np.matmul, np.zeros((2, 3)), np.zeros((3, 4)))
    FakeArray(f64[2, 4], device='cpu')
    """
    check_function("eval_shape", fn)
    given, named = map_leaves(_plain_fake, (args, kwargs))
    out: Any = run_inside(FakeMode(), entered(fn), *given, **named)
    for leaf in flatten(out)[0]:
        getattr(leaf, "shape", None)  # raises if the number of elements is unknown
    return map_leaves(to_fake, out)


# ---- autocast: cast the float arguments of operators to a chosen dtype ----


class autocast(Mode):  # noqa: N801  # written as a call, as in torch
    """A mode in which operators compute in the dtype registered for autocast.

    If an operator has a dtype from `register_autocast`, its float arrays of that kind
    are cast to it, except float64 and longer floats. The operator then runs with
    autocast off. All other operators run as usual. Operators called inside a kernel are
    not cast.

    Parameters
    ----------
    device_type : str
        The kind of array to cast, such as ``"cpu"``.
    enabled : bool
        False switches autocast off for a block inside another one.

    Raises
    ------
    ArgumentError
        If `device_type` is not a known kind of array, or `enabled` not a bool.

    Notes
    -----
    It is applied before all transforms, wherever it was opened. So gradients flow back
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
        # The settings of this block and of the blocks around it, by kind of array.
        self.settings: dict[str, bool] = {}

    def _on_open(self) -> None:
        """Take the settings of the blocks around it."""
        around = self._before[0]
        while around is not None and not isinstance(around, autocast):
            around = around.outer
        known = {} if around is None else around.settings
        self.settings = {**known, self.device_type: self.enabled}
        # The level is above every tracer, as in torch, so that transforms see the
        # casts.
        self.level: float = math.inf  # type: ignore[assignment]  # an int elsewhere

    def find_outer(self) -> Mode | None:
        """Return the next outer mode that is not autocast.

        This mode includes the settings of all autocasts around it.

        Returns
        -------
        Mode or None
            None where only autocasts are open.
        """
        found = current_mode.get()
        while isinstance(found, autocast):
            found = found.outer
        return found

    def describe(self) -> str:
        """Return the name of the mode in messages."""
        return f"autocast({self.device_type!r})"

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Cast the arguments, and call the operator outside autocast."""
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
    """Cast a float array to the dtype for its kind; return other values unchanged."""
    if not is_array(value) or not _is_short_float(dtype_of(value)):
        return value
    dtype = dtypes.get(device_kind(device_of(value)))
    if dtype is None or dtype_of(value) == dtype:
        return value
    return call_numpy(np.astype, value, dtype)


def _is_short_float(dtype: np.dtype[Any]) -> bool:
    # Tested by name, because floats of other packages, such as bfloat16, have kind "V".
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


# ---- check_nans: find the first call or formula whose result has a nan ----
# `config.check_nans` opens an observer of all threads. It sees kernels inside
# transforms and rules, so errors name the innermost call that makes a nan.


class _Nans(Observer):
    """An observer that raises if a result has a nan and the arguments have none."""

    def __init__(self) -> None:
        super().__init__(threads=True)

    def enter(
        self,
        op: RuleTable,
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
    ) -> None:
        """Do nothing: `around` is used instead."""

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
    """Switch the search for nan on or off."""
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
        # An array that the kernel writes to may have had a nan before.
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
    """Record the place of a call in its node, for errors of its backward formula."""
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
    """Yield a line of text with the least and greatest element of each argument."""
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
        # Read before it runs, because a node loses its saved values when it is freed.
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


# ---- arrays inside values ----


def _has_nan(values: Any) -> bool:
    return any(_is_nan(part) for _, part in _parts(values))


def _is_nan(value: Any) -> bool:
    return value.dtype.kind in "fc" and bool(np.isnan(value).any())


def _parts(values: Any) -> Iterator[tuple[str, Any]]:
    """Yield the NumPy arrays in nested and traced values, each as a value or a tangent."""
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
