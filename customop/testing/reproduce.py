"""A sample as text: a line for each argument, or a script that repeats a check."""

from __future__ import annotations

import base64
import enum
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.convert import to_host
from customop.arrays.describe import abbreviated
from customop.arrays.kinds import CPU, is_array, kind_of
from customop.arrays.nested import nests, steps
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.testing.inputs.memory import FILLER, margin, reach

__all__ = ["repro", "show_sample"]

# Elements that are written as numbers; larger arrays are written as packed bytes.
_MOST = 100


def repro(op: Operator[..., Any], sample: Sample, check: str = "") -> str:
    """A script that repeats a check of an operator on a sample.

    Parameters
    ----------
    op : Operator
    sample : Sample
    check : str
        Name of the check, for `test_utils`; without it the operator is called.

    Returns
    -------
    str
        Python that runs where the module that defines the operator can be imported.
        Arrays keep dtype, strides, order and whether they can be written.
    """
    script = _Script()
    args = tuple(
        script.value(value, name)
        for value, name in zip(sample.args, _names(op, sample), strict=True)
    )
    named = {name: script.value(value, name) for name, value in sample.kwargs.items()}
    call = _call_text(op, args, named, check)
    if check:
        script.needs("import customop.testing")
    first = _definition(op, script)
    parts = [*_import_blocks(script), first, "\n".join(script.lines), call]
    return "\n\n".join(part for part in parts if part) + "\n"


_STANDARD = ("import base64", "import enum", "import runpy", "import zlib")


def _import_blocks(script: _Script) -> list[str]:
    """Imports in the usual order: standard library, NumPy, customop."""
    special = ["from numpy import inf, nan"] if script.uses_special else []
    standard = [line for line in _STANDARD if line in script.imports]
    own = [line for line in script.imports if line not in _STANDARD]
    blocks = [
        standard,
        ["import numpy as np", *special],
        ["import customop as co", *own],
    ]
    return ["\n".join(block) for block in blocks]


def _names(op: Operator[..., Any], sample: Sample) -> list[str]:
    return [p.name for p in op.schema.positional][: len(sample.args)]


def _call_text(
    op: Operator[..., Any], args: Sequence[str], named: dict[str, str], check: str
) -> str:
    target = f"co.ops.{op.namespace}.{op.name}.{op.overload or 'default'}"
    if not check:
        keywords = [f"{name}={text}" for name, text in named.items()]
        return f"print({target}({', '.join([*args, *keywords])}))"
    positional = f"({', '.join(args)}{',' if len(args) == 1 else ''})"
    keywords = [f"{name!r}: {text}" for name, text in named.items()]
    return (
        f"co.testing.opcheck(\n    {target},\n    {positional},\n"
        f"    {{{', '.join(keywords)}}},\n    test_utils={check!r},\n)"
    )


def _definition(op: Operator[..., Any], script: _Script) -> str:
    """Lines that define the operator, or import the module that does."""
    module, where = op.definition.module, op.definition.place
    if "<locals>" in getattr(op.__wrapped__, "__qualname__", ""):
        return (
            f"# {op.qualname} is defined within a function: call it first, at {where}"
        )
    if where.startswith("<"):
        return f"# {op.qualname} is defined at {where}: run that first"
    if module == "__main__":
        script.needs("import runpy")
        file = where.rpartition(":")[0]
        return f"runpy.run_path({file!r})  # defines {op.qualname}"
    if module.partition(".")[0] != "customop":
        script.needs(f"import {module}  # defines {op.qualname}")
    return ""


class _Script:
    """Lines that make values, and the text for each value."""

    def __init__(self) -> None:
        self.imports: list[str] = []
        self.lines: list[str] = []
        self.uses_special = False
        self._known: dict[int, str] = {}
        self._taken: set[str] = {"np", "co", "inf", "nan", "customop"}

    def value(self, value: Any, name: str) -> str:
        """The text of a value; adds lines that it needs."""
        if isinstance(value, np.ndarray) or is_array(value):
            return self._array(value, name)
        for cls, write in _WRITERS.items():
            if isinstance(value, cls):
                return write(self, value, name)
        if type(value) in nests or hasattr(value, "__dict__"):
            return self._object(value, name)
        return self._number(value)

    def _number(self, value: Any) -> str:
        text = repr(value)
        if isinstance(value, float | complex) and ("inf" in text or "nan" in text):
            self.uses_special = True
        return text

    def _add(self, name: str, lines: Callable[[str], list[str]], value: Any) -> str:
        """Add lines that make a value, once; its name."""
        if id(value) not in self._known:
            free = name if name.isidentifier() and name not in self._taken else ""
            number = len(self._known)
            chosen = free or f"{name if name.isidentifier() else 'value'}_{number}"
            self._taken.add(chosen)
            self._known[id(value)] = chosen
            self.lines += lines(chosen)
        return self._known[id(value)]

    # ---- arrays ----

    def _array(self, value: Any, name: str) -> str:
        array_kind = kind_of[type(value)]
        if isinstance(value, np.generic):
            return f"np.{type(value).__name__}({self._number(value.item())})"
        if array_kind is None or array_kind is CPU:
            return self._add(name, lambda n: self._array_lines(value, n), value)
        host = to_host(value)
        self.needs("import customop.testing")

        def lines(n: str) -> list[str]:
            made = self._array_lines(host, n)
            return [*made, f"{n} = co.testing.as_kind({n}, {array_kind.name!r})"]

        return self._add(name, lines, value)

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
        size, dtype = start + high + x.dtype.itemsize + margin(x), _dtype_text(x.dtype)
        return [
            f"memory = np.full({size}, {FILLER}, np.uint8)",
            f"{name} = np.ndarray({x.shape}, {dtype}, memory, {start}, {x.strides})",
            f"{name}[...] = {values}",
        ]

    def _values(self, x: np.ndarray[Any, Any]) -> str:
        dtype = _dtype_text(x.dtype)
        is_plain = (
            x.dtype.kind in "biufc" and x.dtype.itemsize <= _LONGEST[x.dtype.kind]
        )
        if x.size == 0:
            return f"np.zeros({x.shape}, {dtype})"
        if is_plain and x.size <= _MOST:
            if x.dtype.kind in "fc" and not np.isfinite(x).all():
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
        return f"[{', '.join(self._items(value, name))}]"

    def write_tuple(self, value: tuple[Any, ...], name: str) -> str:
        if hasattr(value, "_fields"):
            return self._object(value, name)
        items = self._items(value, name)
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    def write_dict(self, value: dict[str, Any], name: str) -> str:
        items = [f"{k!r}: {self.value(v, f'{name}_{k}')}" for k, v in value.items()]
        return f"{{{', '.join(items)}}}"

    def _object(self, value: Any, name: str) -> str:
        fields = getattr(nests.get(type(value)), "by_call", None) or (
            getattr(value, "_fields", None) or _field_names(value)
        )
        given = [f"{n}={self.value(getattr(value, n), f'{name}_{n}')}" for n in fields]
        return f"{self._class(type(value))}({', '.join(given)})"

    def _class(self, cls: type) -> str:
        self.needs(f"import {cls.__module__}")
        return f"{cls.__module__}.{cls.__qualname__}"

    def write_member(self, value: enum.Enum, name: str) -> str:
        return f"{self._class(type(value))}[{value.name!r}]"

    def write_dtype(self, value: np.dtype[Any], name: str) -> str:
        return f"np.dtype({_dtype_text(value)})"

    def write_generator(self, value: Any, name: str) -> str:
        bits = type(value.bit_generator).__name__
        state = value.bit_generator.state

        def lines(n: str) -> list[str]:
            text = self.value(state, n)
            made = f"{n} = np.random.Generator(np.random.{bits}())"
            return [made, f"{n}.bit_generator.state = {text}"]

        return self._add(name, lines, value)


# The longest items of dtypes whose values Python's numbers hold exactly.
_LONGEST = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}

# Class -> the method that writes its values; the first that fits counts.
_WRITERS: dict[type, Callable[[_Script, Any, str], str]] = {
    enum.Enum: _Script.write_member,
    bool: lambda script, value, name: repr(value),
    list: _Script.write_list,
    tuple: _Script.write_tuple,
    dict: _Script.write_dict,
    np.dtype: _Script.write_dtype,
    np.random.Generator: _Script.write_generator,
}


def _dtype_text(dtype: np.dtype[Any]) -> str:
    if dtype.names is not None:
        return repr(np.lib.format.dtype_to_descr(dtype))
    is_plain = dtype.isnative and dtype.kind in "biufc"
    return repr(dtype.name if is_plain else dtype.str)


def _field_names(value: Any) -> list[str]:
    found = nests.get(type(value))
    return [str(s) for s in (steps(value) if found else vars(value))]


# ---- a line for each argument ----


def show_sample(op: Operator[..., Any], sample: Sample) -> str:
    """A sample in a few lines: each argument, and what is special about the sample.

    Parameters
    ----------
    op : Operator
    sample : Sample

    Returns
    -------
    str
    """
    pairs = [*zip(_names(op, sample), sample.args, strict=True), *sample.kwargs.items()]
    lines = [f"{name} = {_shown(value)}" for name, value in pairs]
    return "\n".join([*lines, *([f"({sample.note})"] if sample.note else [])])


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return _shown_array(value)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        inside = ", ".join(map(_shown, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {_shown(v)}' for k, v in value.items())}}}"
    return repr(value)


def _short(value: Any) -> str:
    return f"{value:.4g}"


def _shown_array(x: np.ndarray[Any, Any]) -> str:
    short = {"float_kind": _short, "complex_kind": _short}
    text = np.array2string(x, threshold=12, separator=", ", formatter=short)  # type: ignore[arg-type]  # NumPy's own stubs lag behind
    text = " ".join(text.split())
    layout = [
        word
        for word, holds in (
            (f"strides {x.strides}", not x.flags.c_contiguous),
            ("read-only", not x.flags.writeable),
            ("unaligned", not x.flags.aligned),
        )
        if holds
    ]
    return ", ".join([f"{abbreviated(x)} {text}", *layout])
