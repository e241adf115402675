"""How notebooks show a fake array."""

from __future__ import annotations

from typing import Any

from customop.arrays.array import c_strides
from customop.arrays.fake import FakeArray
from customop.arrays.nested import abbreviated
from customop.errors import counted
from customop.pages.html import Child, card, fact_list, in_notebook, mono, title


def fake_html(x: FakeArray) -> str:
    """A fake array in a notebook, with all that it has."""
    facts: list[tuple[str, Child]] = [
        ("shape", mono(_tuple_text(x.shape))),
        ("dtype", mono(str(x.dtype))),
        ("strides", mono(_tuple_text(x.strides))),
        ("layout", _layout(x)),
        ("size", f"{_count(x.size)}, {_bytes(x)}"),
        ("device", mono(x.device)),
    ]
    return in_notebook(
        card(title(abbreviated(x), "FakeArray, no data"), fact_list(facts))
    )


def _tuple_text(lengths: tuple[Any, ...]) -> str:
    texts = [str(length) for length in lengths]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _count(size: Any) -> str:
    return counted(size, "element") if isinstance(size, int) else f"{size} elements"


def _bytes(x: FakeArray) -> str:
    return f"{x.nbytes:,} bytes" if isinstance(x.nbytes, int) else f"{x.nbytes} bytes"


def _layout(x: FakeArray) -> str:
    """The order of the axes in memory, in words."""
    if len(x.shape) < 2:
        return ""
    if str(x.strides) == str(c_strides(x.shape, x.dtype.itemsize)):
        return "C order: the last axis is dense"
    reverse = c_strides(x.shape[::-1], x.dtype.itemsize)[::-1]
    if str(x.strides) == str(reverse):
        return "Fortran order: the first axis is dense"
    return "neither C nor Fortran order"
