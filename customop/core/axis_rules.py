"""Batching rules of operators of one array: other axes or lengths on the whole batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.numpy_functions import call_numpy
from customop.core.prepared import has_arrays_first
from customop.core.table import RuleTable
from customop.errors import RegistrationError
from customop.schema.signatures import check_parameters

__all__ = ["AxisRule", "axis_rule"]

# move(shape, dim, *constants): the constants for the batch, and the axis of the rows in
# the result; None if the rows must come first.
Move = Callable[..., tuple[Sequence[Any], int] | None]


class AxisRule:
    """The batching rule of an operator of one array; see `axis_rule`."""

    __slots__ = ("__signature__", "__wrapped__", "move", "op")

    def __init__(self, op: RuleTable, move: Move) -> None:
        self.op: RuleTable = op
        self.move: Move = move
        # Messages name the place of the function.
        self.__wrapped__: Any = move
        self.__signature__: inspect.Signature = _SIGNATURE

    def __call__(self, info: Any, in_dims: Any, x: Any, /, *constants: Any) -> Any:
        """Run the operator on the whole batch."""
        found = self.move(x.shape, in_dims[0], *constants)
        if found is None:
            x = call_numpy(np.moveaxis, x, in_dims[0], 0)
            found = self.move(x.shape, 0, *constants)
        assert found is not None, "an axis rule wants the rows first, where they are"
        moved, dim = found
        return self.op.run(x, *moved), dim


_SIGNATURE = inspect.signature(lambda info, in_dims, x, /, *constants: None)


def axis_rule(op: RuleTable, move: Move, /) -> AxisRule:
    """Make a batching rule that runs the same operator with other axes or lengths.

    `vmap` asks it once for each shape and each set of constants, and then calls the
    kernel. So this is the fastest rule for an operator of one array.

    Parameters
    ----------
    op : Operator
        Its first parameter is its only array.
    move : callable
        ``move(shape, dim, *constants)``: the shape of the batch, the axis of the rows in
        it, and the values of all other parameters. Returns a sequence of these values for
        the batch, and the axis of the rows in the result. Where it returns None, the rows
        are put first and it is asked again, with `dim` 0. It is a pure function.

    Returns
    -------
    AxisRule
        For `register_vmap`.

    Raises
    ------
    RegistrationError
        If the operator has other arrays, or parameters by name only, or `move` does not
        take these parameters.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::flip", mutates_args=())
    ... def flip(x: np.ndarray, axis: int) -> np.ndarray:
    ...     return np.flip(x, axis).copy()
    >>> def move(shape, dim, axis):
    ...     axis %= len(shape) - 1
    ...     return [axis + (axis >= dim)], dim
    >>> _ = flip.register_vmap(co.axis_rule(flip, move))
    >>> co.vmap(lambda row: flip(row, 0))(np.arange(4.0).reshape(2, 2))
    array([[1., 0.],
           [3., 2.]])
    """
    if not callable(move) or op.array_slots != (0,) or not has_arrays_first(op):
        raise RegistrationError(
            f"{op.qualname}: axis_rule is for operators whose only array comes first",
            op.schema.show(op.qualname),
            do="write a rule of info, in_dims and the inputs for register_vmap",
        )
    names = ["shape", "dim", *[p.name for p in op.schema.parameters[1:]]]
    check_parameters(
        f"{op.qualname}: the function of axis_rule",
        move,
        names,
        [],
        free=2,
        do=lambda: f"write def move({', '.join(names)}): ...",
    )
    return AxisRule(op, move)
