"""Errors for what cannot be known of sizes while a function is captured."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import Final

from customop.errors import DataDependentError, SizeError, caller_place
from customop.shapes.expressions import LargeSize
from customop.shapes.guards import Size
from customop.shapes.proofs import Knowledge

__all__ = ["FOR_NUMBERS", "check_askable", "too_large"]

_FOR_DATA: Final = (
    "say the answer before, by co.check(...) of what holds for all data, or use"
    " np.where or cond"
)
_FOR_NAMES: Final = (
    "say the answer before, by co.check(...) of what holds for all sizes that you mean,"
    " or leave out the name: then the answer becomes a guard"
)
# What to do where the number itself is asked.
FOR_NUMBERS: Final = (
    "keep the size: np.arange(n, like=x) and np.zeros_like(x, shape=(n,)) with an array x"
    " of the function, math.prod(x.shape); co.sizes.broadcast_sizes(s, t) in place of"
    " np.broadcast_shapes(s, t); co.scan(f, init, x) and co.fori_loop(0, n, ...) in place"
    " of a loop"
)


def check_askable(
    asked: str,
    names: Collection[str],
    sizes: Mapping[str, Size],
    knowledge: Knowledge,
    do: str = "",
) -> None:
    """Raise unless the answer to a question about sizes may become a guard."""
    kinds = {sizes[name].kind for name in names}
    known = sorted(names)
    if not ("data" in kinds or kinds == {"named"}):
        return
    data = [name for name in known if sizes[name].kind == "data"]
    places = [f"at {caller_place()}"]
    places += [_described(sizes[name], knowledge) for name in data or known]
    if data:
        why = "which depends on the values of arrays"
        raise DataDependentError(f"{asked}, {why}", *places, do=do or _FOR_DATA)
    why = f"and {' and '.join(known)} may be any size"
    raise SizeError(f"{asked}, {why}", *places, do=do or _FOR_NAMES)


def _described(size: Size, knowledge: Knowledge) -> str:
    low, high = knowledge.bounds[size.name]
    most = "" if high == inf else f", at most {high}"
    where = f" of {size.origin}" if size.origin else ""
    now = "" if size.hint is None else f", now {size.hint}"
    return f"{size.name}: the size{where}, at least {low}{most}{now}"


def too_large(error: LargeSize) -> SizeError:
    """The error for an expression of too many terms."""
    return SizeError(
        str(error),
        f"at {caller_place()}",
        do="compute it with arrays, or from int(n): then the graph is only for this size",
    )
