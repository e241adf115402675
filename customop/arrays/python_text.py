"""Values as Python text that makes them again: numbers, arrays, config objects."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from customop.arrays.convert import to_host
from customop.arrays.kinds import CPU, is_array, kind_of
from customop.arrays.nested import nests, steps
from customop.later import later

base64: ModuleType = later(import_module, "base64")
dataclasses: ModuleType = later(import_module, "dataclasses")
zlib: ModuleType = later(import_module, "zlib")

# Elements that are written as numbers; larger arrays are written as packed bytes.
_MOST = 100
# The byte around arrays. Floats and integers made of it do not occur otherwise.
FILLER = 0x5A


class PythonText:
    """Lines of Python that make values, and the text for each value.

    Attributes
    ----------
    imports : list of str
        The statements that the lines need, without those of NumPy.
    lines : list of str
        The lines that make arrays and generators.
    uses_special : bool
        Whether the names `inf` and `nan` are used.
    """

    def __init__(self) -> None:
        self.imports: list[str] = []
        self.lines: list[str] = []
        self.uses_special: bool = False
        self._known: dict[int, str] = {}
        self.taken: set[str] = {"np", "co", "inf", "nan", "customop"}

    def value(self, value: Any, name: str) -> str:
        """Write a value, and add the lines that it needs."""
        own = self.leaf(value, name)
        if own is not None:
            return own
        if isinstance(value, np.ndarray) or is_array(value):
            return self.write_array(value, name)
        for cls, write in _WRITERS.items():
            if isinstance(value, cls):
                return write(self, value, name)
        if type(value) in nests or hasattr(value, "__dict__") or _is_slotted(value):
            return self.write_object(value, name)
        return self.number(value)

    def leaf(self, value: Any, name: str) -> str | None:
        """Write a value that a subclass writes in its own way, or return None."""
        return None

    def number(self, value: Any) -> str:
        """Write a number, with `inf` and `nan` as names."""
        text = repr(value)
        is_special = "inf" in text or "nan" in text
        if isinstance(value, float | complex) and is_special:
            self.uses_special = True
        if isinstance(value, complex) and (is_special or "-0" in text):
            # Python has no text for it: nanj is a name, and -0 in a sum is 0.
            return f"complex({value.real!r}, {value.imag!r})"
        return text

    def add(self, name: str, lines: Callable[[str], list[str]], value: Any) -> str:
        """Add lines that make a value, once; its name."""
        if id(value) not in self._known:
            free = name if name.isidentifier() and name not in self.taken else ""
            number = len(self._known)
            chosen = free or f"{name if name.isidentifier() else 'value'}_{number}"
            self.taken.add(chosen)
            self._known[id(value)] = chosen
            self.lines += lines(chosen)
        return self._known[id(value)]

    # ---- arrays ----

    def write_array(self, value: Any, name: str) -> str:
        """Write an array of any kind, with its layout."""
        array_kind = kind_of[type(value)]
        if isinstance(value, np.generic):
            return f"np.{type(value).__name__}({self.number(value.item())})"
        if array_kind is None or array_kind is CPU:
            return self.add(name, lambda n: self._array_lines(value, n), value)
        host = to_host(value)
        self.needs("import customop.testing")

        def lines(n: str) -> list[str]:
            made = self._array_lines(host, n)
            return [*made, f"{n} = co.testing.as_kind({n}, {array_kind.name!r})"]

        return self.add(name, lines, value)

    def needs(self, line: str) -> None:
        """Import a module, once."""
        if line not in self.imports:
            self.imports.append(line)

    def _array_lines(self, x: np.ndarray[Any, Any], name: str) -> list[str]:
        lines = self._layout_lines(x, name)
        if not x.flags.writeable and not (0 in x.strides and x.size > 1):
            lines.append(f"{name}.flags.writeable = False")
        return lines

    def _layout_lines(self, x: np.ndarray[Any, Any], name: str) -> list[str]:
        values = self._values(x)
        if x.flags.c_contiguous and x.flags.aligned:
            return [f"{name} = {values}"]
        if x.flags.f_contiguous and x.flags.aligned:
            return [f"{name} = np.asfortranarray({values})"]
        once = tuple(slice(0, 1) if s == 0 else slice(None) for s in x.strides)
        if x[once].size < x.size:
            row = self._layout_lines(x[once], name)
            return [*row, f"{name} = np.broadcast_to({name}, {x.shape})"]
        low, high = reach(x.shape, x.strides)
        start = margin(x) + x.ctypes.data % x.dtype.alignment - low
        size, dtype = start + high + x.dtype.itemsize + margin(x), dtype_text(x.dtype)
        return [
            f"memory = np.full({size}, {FILLER}, np.uint8)",
            f"{name} = np.ndarray({x.shape}, {dtype}, memory, {start}, {x.strides})",
            f"{name}[...] = {values}",
        ]

    def _values(self, x: np.ndarray[Any, Any]) -> str:
        dtype = dtype_text(x.dtype)
        is_plain = (
            x.dtype.kind in "biufc" and x.dtype.itemsize <= _LONGEST[x.dtype.kind]
        )
        if x.size == 0:
            return f"np.zeros({x.shape}, {dtype})"
        if is_plain and x.size <= _MOST and not _has_special_parts(x):
            if x.dtype.kind == "f" and not np.isfinite(x).all():
                self.uses_special = True
            return f"np.array({x.tolist()!r}, {dtype})"
        self.needs("import base64")
        self.needs("import zlib")
        packed = base64.b64encode(zlib.compress(x.tobytes())).decode()
        return (
            f"np.frombuffer(zlib.decompress(base64.b64decode({packed!r})),"
            f" {dtype}).reshape({x.shape}).copy()"
        )

    # ---- values that hold others ----

    def _items(self, value: Any, name: str) -> list[str]:
        return [self.value(v, f"{name}_{i}") for i, v in enumerate(value)]

    def write_list(self, value: list[Any], name: str) -> str:
        """Write a list."""
        return f"[{', '.join(self._items(value, name))}]"

    def write_tuple(self, value: tuple[Any, ...], name: str) -> str:
        """Write a tuple or NamedTuple."""
        if hasattr(value, "_fields"):
            return self.write_object(value, name)
        items = self._items(value, name)
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    def write_dict(self, value: dict[str, Any], name: str) -> str:
        """Write a dict."""
        items = [f"{k!r}: {self.value(v, f'{name}_{k}')}" for k, v in value.items()]
        return f"{{{', '.join(items)}}}"

    def write_object(self, value: Any, name: str) -> str:
        """Write a config object as a call of its constructor."""
        fields = getattr(nests.get(type(value)), "by_call", None) or (
            getattr(value, "_fields", None) or _field_names(value)
        )
        given = [f"{n}={self.value(getattr(value, n), f'{name}_{n}')}" for n in fields]
        return f"{self.class_name(type(value))}({', '.join(given)})"

    def class_name(self, cls: type) -> str:
        """Write the name of a class, whose module is imported."""
        self.needs(f"import {cls.__module__}")
        return f"{cls.__module__}.{cls.__qualname__}"

    def write_member(self, value: enum.Enum, name: str) -> str:
        """Write a member of an Enum."""
        cls = self.class_name(type(value))
        if value.name not in type(value).__members__:  # several flags at once
            return f"{cls}({value.value!r})"
        return f"{cls}[{value.name!r}]"

    def write_dtype(self, value: np.dtype[Any], name: str) -> str:
        """Write a dtype."""
        return f"np.dtype({dtype_text(value)})"

    def write_generator(self, value: Any, name: str) -> str:
        """Write a generator in its present state."""
        bits = type(value.bit_generator).__name__
        state = value.bit_generator.state

        def lines(n: str) -> list[str]:
            text = self.value(state, n)
            made = f"{n} = np.random.Generator(np.random.{bits}())"
            return [made, f"{n}.bit_generator.state = {text}"]

        return self.add(name, lines, value)


# The longest items of dtypes whose values Python's numbers hold exactly.
_LONGEST = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}

# Class -> the method that writes its values; the first that fits counts.
_WRITERS: dict[type, Callable[[PythonText, Any, str], str]] = {
    enum.Enum: PythonText.write_member,
    bool: lambda script, value, name: repr(value),
    list: PythonText.write_list,
    tuple: PythonText.write_tuple,
    dict: PythonText.write_dict,
    np.dtype: PythonText.write_dtype,
    np.random.Generator: PythonText.write_generator,
}


def _has_special_parts(x: np.ndarray[Any, Any]) -> bool:
    """Return whether a complex array has parts that Python cannot write in a sum."""
    if x.dtype.kind != "c":
        return False
    parts = np.stack([x.real, x.imag])
    return bool((~np.isfinite(parts) | (np.signbit(parts) & (parts == 0))).any())


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Write the text from which `np.dtype` makes a dtype."""
    if dtype.names is not None:
        return repr(np.lib.format.dtype_to_descr(dtype))
    is_plain = dtype.isnative and dtype.kind in "biufc"
    return repr(dtype.name if is_plain else dtype.str)


def _is_slotted(value: Any) -> bool:
    """Return whether a value is an object of a dataclass with slots."""
    return hasattr(type(value), "__dataclass_fields__")


def _field_names(value: Any) -> list[str]:
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if field.init]
    found = nests.get(type(value))
    return [str(s) for s in (steps(value) if found else vars(value))]


# ---- memory around arrays ----


def reach(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Return the bytes from the first element to the lowest and to the highest."""
    found = [s * (n - 1) for s, n in zip(strides, shape, strict=True) if n]
    return sum(s for s in found if s < 0), sum(s for s in found if s > 0)


def margin(values: np.ndarray[Any, Any]) -> int:
    """Return the bytes before and after an array: its own size, rounded up."""
    size: int = max(values.nbytes, values.dtype.itemsize)
    return -(-size // 64) * 64
