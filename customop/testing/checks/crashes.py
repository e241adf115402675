"""The fault of an operator that ends the process it runs in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.schema.tags import Tag
from customop.testing.apart.crash import Crash
from customop.testing.fault import Fault
from customop.testing.inputs.places import Array, arrays_in

__all__ = ["crash_fault"]


def crash_fault(
    op: Operator[..., Any], crash: Crash, sample: Sample, usual: Sample | None
) -> Fault:
    """The fault for a crash, and how to say what the operator takes.

    Parameters
    ----------
    op : Operator
    crash : Crash
    sample : Sample
        The last one before the crash.
    usual : Sample or None
        One that the operator takes.
    """
    new = {p: x for p, x, _ in arrays_in(op, sample)}
    old = {} if usual is None else {p: x for p, x, _ in arrays_in(op, usual)}
    on = ", ".join(f"'{place}' of shape {x.shape}" for place, x in new.items())
    changed = [p for p in new if p in old and _outline(new[p]) != _outline(old[p])]
    return Fault(
        f"the kernel {crash.how}{on and f' on {on}'}",
        *crash.lines,
        do=_advice(op, new, old),
        parameter=changed[0] if len(changed) == 1 else "",
    )


_REFUSE = "raise a ValueError in the kernel for arguments that it does not take"


def _advice(
    op: Operator[..., Any], new: Mapping[str, Array], old: Mapping[str, Array]
) -> str:
    """Say what to write so that the kernel does not get such arrays again."""
    names = {p.name for p in op.schema.parameters}
    shared = [place for place in new if place in old and place in names]
    changed = [p for p in shared if _outline(new[p]) != _outline(old[p])]
    if changed:
        letters = _letters([old[p] for p in shared])
        types = [f"{_type(new[p], old[p], letters)} {p}" for p in changed]
        return f"{_REFUSE}, or say in the schema what it takes: {', '.join(types)}"
    if any(new[p].strides != old[p].strides for p in shared):
        return f"tag the operator with {Tag.needs_contiguous}, or use the strides"
    return f"{_REFUSE}, and keep to the memory of its arrays"


def _outline(x: Array) -> tuple[Any, ...]:
    return x.shape, x.dtype


def _letters(arrays: Sequence[Array]) -> dict[int, str]:
    """A letter for each length."""
    lengths = dict.fromkeys(n for x in arrays for n in x.shape)
    return dict(zip(lengths, "nmkpqrst", strict=False))


def _type(new: Array, old: Array, letters: Mapping[int, str]) -> str:
    """A type that takes the second array and not the first: ``float64[n+1,m]``."""
    element = "Array" if new.dtype == old.dtype else old.dtype.name
    if new.shape == old.shape:
        return f"{element}[...]"
    axes = [letters.get(n, str(n)) for n in old.shape]
    if len(new.shape) == len(axes):
        pairs = enumerate(zip(new.shape, old.shape, strict=True))
        for i, (length, usual) in pairs:
            if length != usual:
                axes[i] = str(usual) if length else f"{axes[i]}+1"
    text = ",".join(axes)
    # A number alone would be the length of a list.
    return (
        f"{element}[{text}{',' if text.isdigit() else ''}]"
        if text
        else f"{element}[()]"
    )
