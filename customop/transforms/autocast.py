"""A mode that casts the float arguments of operators to a chosen dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from customop.arrays.dtypes import dtype_of
from customop.arrays.kinds import device_kind, device_of, is_array
from customop.arrays.nested import map_nested
from customop.arrays.numpy_functions import call_numpy
from customop.core.definition import check_device_types
from customop.core.interpreter import Mode, current_mode
from customop.core.kinds import AUTOCAST
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.errors import ArgumentError, RegistrationError, check_flag, shown

__all__ = ["autocast"]


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
