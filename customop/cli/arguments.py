"""Read arguments of operators: Python literals, and arrays such as ``f64[3, 4]``."""

from __future__ import annotations

import ast
import math
import re
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.cli.command import UsageError
from customop.errors import did_you_mean, quoted
from customop.testing import as_kind

__all__ = ["add_call", "add_name", "parse", "ramp", "zeros"]

_HELP = (
    "a Python literal (2.0, None, '[1, 2]', text) or an array by dtype and shape"
    " ('f64[3, 4]', 'i32[]', 'bool[2]', 'fake.f64[3]'); name=VALUE passes by name; write"
    " -- before a first ARG that starts with '-'"
)
# The short names of dtypes in messages.
_DTYPES = {
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"c{bits}": f"complex{bits}" for bits in (64, 128)},
    "bool": "bool",
}
_KNOWN = {**_DTYPES, **{name: name for name in _DTYPES.values()}}
_CONSTANTS = {text: float(text) for text in ("inf", "+inf", "-inf", "nan")}
_KEYWORD = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>[^=].*)", re.DOTALL)

# Makes an array from its shape and dtype.
Fill = Callable[[tuple[int, ...], Any], Any]


def add_name(parser: ArgumentParser) -> None:
    """Add the name of an operator to a parser."""
    parser.add_argument(
        "name", metavar="NAME", help="namespace::name, or namespace::name.overload"
    )


def add_call(parser: ArgumentParser) -> None:
    """Add the name of an operator and its arguments to a parser."""
    add_name(parser)
    parser.add_argument("args", nargs="*", metavar="ARG", help=_HELP)


def zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array of zeros."""
    return np.zeros(shape, dtype)


def ramp(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return numbers from 0.5 to 1.5, where most functions are smooth."""
    size = math.prod(shape)
    values = np.linspace(0.5, 1.5, size) if np.dtype(dtype).kind in "fc" else 1
    return np.broadcast_to(values, (size,)).reshape(shape).astype(dtype)


def parse(texts: Sequence[str], fill: Fill) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments that the texts describe.

    Raises
    ------
    UsageError
        If the dtype or shape of an array cannot be read, or a name is given twice.
    """
    args: list[Any] = []
    keywords: dict[str, Any] = {}
    for text in texts:
        found = _KEYWORD.fullmatch(text)
        if found is None:
            args.append(_value(text, fill))
        elif found["name"] in keywords:
            raise UsageError(f"'{found['name']}' is given twice", do="leave one out")
        else:
            keywords[found["name"]] = _value(found["value"], fill)
    return args, keywords


def _value(text: str, fill: Fill) -> Any:
    """The value of one text; a word that is not a literal is a string."""
    # Python does not allow empty brackets after a name.
    source = re.sub(r"(\w)\[\s*\]", r"\1[()]", text.strip())
    try:
        tree = ast.parse(source, mode="eval")
    # Null bytes, lone surrogates, hundreds of brackets: text too.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    return _read(tree.body, source, fill)


def _read(node: ast.expr, source: str, fill: Fill) -> Any:
    if isinstance(node, ast.Subscript):
        return _array(node, source, fill)
    if isinstance(node, ast.List | ast.Tuple):
        items = [_read(item, source, fill) for item in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict):
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        if len(keys) == len(node.keys):
            values = [_read(value, source, fill) for value in node.values]
            return dict(zip(keys, values, strict=True))
    return _literal(node, source)


def _literal(node: ast.expr, source: str) -> Any:
    """A number, text or constant; anything else is its own text."""
    text = ast.get_source_segment(source, node)
    try:
        return _CONSTANTS[text] if text in _CONSTANTS else ast.literal_eval(node)
    except (ValueError, TypeError):
        return text


def _array(node: ast.Subscript, text: str, fill: Fill) -> Any:
    kind, _, name = ast.unparse(node.value).rpartition(".")
    shape = _shape(node.slice, text)
    if name not in _KNOWN:
        raise UsageError(
            f"{text!r}: '{name}' is not a dtype{did_you_mean(name, _KNOWN)}",
            f"known: {quoted(_DTYPES)}",
            do="write an array as 'f64[3, 4]', and quote text that has brackets",
        )
    if kind == "fake":
        return FakeArray(shape, _KNOWN[name])
    try:
        x = fill(shape, np.dtype(_KNOWN[name]))
    except (MemoryError, ValueError) as error:
        lengths = ", ".join(map(str, shape))
        raise UsageError(
            f"{text!r}: {error}",
            do=f"make it smaller, or write fake.{name}[{lengths}]",
        ) from error
    return as_kind(x, kind) if kind else x


def _shape(node: ast.expr, text: str) -> tuple[int, ...]:
    items = node.elts if isinstance(node, ast.Tuple) else [node]
    lengths = [getattr(item, "value", None) for item in items]
    if all(type(length) is int for length in lengths):
        return tuple(lengths)  # type: ignore[arg-type]  # checked above
    raise UsageError(
        f"{text!r}: '{ast.unparse(node)}' is not a shape",
        do="write whole numbers, as in 'f64[3, 4]'; 'f64[]' has no axes",
    )
