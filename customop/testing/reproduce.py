"""A sample as text: a line for each argument, or a script that repeats a check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop.arrays.describe import abbreviated
from customop.arrays.python_text import PythonText
from customop.core.definition import is_interactive
from customop.core.operator import Operator
from customop.core.samples import Sample

__all__ = ["repro", "show_sample"]


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
    script = PythonText()
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


def _import_blocks(script: PythonText) -> list[str]:
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


def _definition(op: Operator[..., Any], script: PythonText) -> str:
    """Lines that define the operator, or import the module that does."""
    module, where = op.definition.module, op.definition.place
    if "<locals>" in getattr(op.__wrapped__, "__qualname__", ""):
        return (
            f"# {op.qualname} is defined within a function: call it first, at {where}"
        )
    if is_interactive(where):
        cell = "in a cell of a notebook" if "ipykernel_" in where else f"at {where}"
        return f"# {op.qualname} is defined {cell}: run that first"
    if module == "__main__":
        script.needs("import runpy")
        file = where.rpartition(":")[0]
        return f"runpy.run_path({file!r})  # defines {op.qualname}"
    if module.partition(".")[0] != "customop":
        script.needs(f"import {module}  # defines {op.qualname}")
    return ""


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
