"""Run code on fake arrays: `FakeMode` and `eval_shape`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, ParamSpec, TypeVar, overload

import numpy as np

from customop.arrays.array import ArrayT
from customop.arrays.describe import show
from customop.arrays.fake import FakeArray, make_fake, to_fake
from customop.arrays.foreign import PLAIN
from customop.arrays.kinds import FAKE, is_array, is_traced, normalize_device
from customop.arrays.nested import flat, map_nested
from customop.arrays.pytree import flatten, map_leaves
from customop.core.contract.results import finish_fake
from customop.core.dispatch import kernel_for
from customop.core.fake_context import FakeCall, has_sizes, own_context
from customop.core.interpreter import Mode
from customop.core.rule_kind import OwnKind, RuleKind
from customop.core.table import RuleTable
from customop.errors import ArgumentError, check_function
from customop.later import later

__all__ = ["FakeMode", "eval_shape"]

size_arrays: ModuleType = later(import_module, "customop.arrays.sizes")

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
        named: FakeArray = size_arrays.with_sizes(fake, names, "x", context)
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
