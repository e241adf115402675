"""Values of a forked child as bytes for its parent."""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from customop.errors import is_ours
from customop.testing.inputs.memory import laid_out

__all__ = [
    "ChildError",
    "child_traceback",
    "dumps",
    "loads",
    "packed",
    "travels",
    "unpacked",
    "use_names_only",
]


class ChildError(Exception):
    """An exception of a child that cannot be pickled, or where it was raised."""


_WHERE = "in a child of this process\n"


def dumps(
    value: Any,
    shared: Mapping[int, Any] = MappingProxyType({}),
    *,
    by_name: bool = False,
) -> bytes:
    """Pickle a value in a child, for `loads` in its parent.

    Arrays keep their layout. Classes need no name, and the values in `shared`, which
    the parent has too, no way to be pickled: their addresses are the same there, if it
    was forked. Else all is pickled `by_name`.
    """
    if by_name or _names_only:
        return _dumped(_ByName, value)
    if not shared:  # most values need no addresses: half of the time
        with suppress(Exception):  # whatever their __reduce__ raises
            return _dumped(_ByName, value)
    return _dumped(partial(_ByAddress, shared), value)


def _dumped(pickler: Callable[[io.BytesIO], pickle.Pickler], value: Any) -> bytes:
    out = io.BytesIO()
    pickler(out).dump(value)
    return out.getvalue()


_names_only: list[bool] = []


def use_names_only() -> None:
    """Let this process, which was not forked, send no addresses."""
    _names_only.append(True)


def loads(block: bytes, shared: Mapping[int, Any] = MappingProxyType({})) -> Any:
    """The value that `dumps` has pickled."""
    return _Unpickler(io.BytesIO(block), shared).load()


def travels(value: Any, *, by_name: bool = False) -> bool:
    """Whether a value can be pickled."""
    try:
        dumps(value, by_name=by_name)
    except Exception:  # noqa: BLE001  # whatever __reduce__ raises
        return False
    return True


# What `persistent_id` returns is pickled too, and asked for its own address.
_IN_ADDRESSES = (int, str)


class _ByName(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)

    def reducer_override(self, obj: Any) -> Any:
        """Keep the layout of arrays."""
        if type(obj) is not np.ndarray or obj.dtype.hasobject:
            return NotImplemented
        if obj.flags.carray:
            # As NumPy does it, in half of the time.
            is_number = obj.dtype.kind in "biufc"
            content = obj.shape, obj.dtype.str, obj.tobytes()
            return (_numbers, content) if is_number else NotImplemented
        once = tuple(slice(0, 1) if s == 0 else slice(None) for s in obj.strides)
        values = np.array(obj[once] if obj.size else obj, order="C")
        shift = obj.ctypes.data % obj.dtype.alignment
        return _array, (values, obj.shape, obj.strides, shift, obj.flags.writeable)


class _ByAddress(_ByName):
    def __init__(self, shared: Mapping[int, Any], file: io.BytesIO) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_id(self, obj: Any) -> tuple[int, str] | None:
        """The address of what the parent has too; for classes also their name."""
        if type(obj) in _IN_ADDRESSES:
            return None
        if id(obj) in self._shared:
            return id(obj), ""
        if isinstance(obj, type) and not _has_name(obj):
            return id(obj), obj.__qualname__
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: Mapping[int, Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: tuple[int, str]) -> Any:
        """The value or class of the parent at that address."""
        address, name = pid
        return _class_at(address, name) if name else self._shared[address]


def _class_at(address: int, name: str) -> type:
    left: list[type] = [object]
    for cls in left:
        if id(cls) == address and cls.__qualname__ == name:
            return cls
        left += type.__subclasses__(cls)
    raise pickle.UnpicklingError(f"no class {name}")


def _has_name(cls: type) -> bool:
    found: object = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls


def _numbers(shape: tuple[int, ...], dtype: str, content: bytes) -> Any:
    return np.ndarray(shape, dtype, content).copy()


def _array(
    values: np.ndarray[Any, Any],
    shape: tuple[int, ...],
    strides: Sequence[int],
    shift: int,
    is_writeable: bool,
) -> np.ndarray[Any, Any]:
    out = laid_out(np.broadcast_to(values, shape), strides, shift)
    out.flags.writeable = is_writeable
    return out


# ---- exceptions ----


def packed(error: BaseException) -> tuple[BaseException, str]:
    """An exception that can be pickled, and the text of the traceback that gets lost."""
    text = _traced(error)
    if _is_same_there(error):
        return error, text
    return ChildError(f"{type(error).__name__}: {error}"), text


def unpacked(error: BaseException, text: str) -> BaseException:
    """The exception of a child, with its traceback as the cause."""
    if text:
        error.__cause__ = ChildError(_WHERE + text)
    return error


def child_traceback(error: BaseException) -> str:
    """The text of the traceback of an exception that comes from a child, or nothing."""
    is_remote = isinstance(error.__cause__, ChildError)
    return str(error.__cause__).removeprefix(_WHERE) if is_remote else ""


def _is_same_there(error: BaseException) -> bool:
    """Whether an exception can be pickled and arrives as it was."""
    try:
        again = loads(dumps(error))
    except Exception:  # noqa: BLE001  # whatever their __reduce__ and __init__ raise
        return False
    return type(again) is type(error) and str(again) == str(error)


def _traced(error: BaseException) -> str:
    """The text of a traceback from the first line of the user's code on."""
    trace = error.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_globals):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace, chain=False)
    return "".join(lines) if trace is not None else ""
