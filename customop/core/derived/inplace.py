"""What `Tag.inplace` and `Tag.out` say, and what follows from it.

An in-place operator writes its first array and returns it; an out operator writes the
arrays that it takes by keyword alone and returns them in order. So their results are
arguments: the schema says it, a fake kernel and a batching rule need nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from customop.core.derived.pointwise import align, rank_of_rows
from customop.core.derived.rows import pairs_of, run_rows
from customop.core.table import RuleTable
from customop.errors import SchemaError, quoted
from customop.schema.parameters import Parameter, Return
from customop.schema.schema import Schema
from customop.schema.tags import Tag
from customop.schema.types import Maybe, holds_arrays, is_array_type

__all__ = [
    "check_aliases",
    "derive_fake",
    "derive_vmap",
    "returned_slots",
]


def check_aliases(qualname: str, schema: Schema, tags: frozenset[Tag]) -> Schema:
    """The schema with the aliases that the tags say; raise where they contradict it.

    Parameters
    ----------
    qualname : str
    schema : Schema
    tags : frozenset of Tag

    Returns
    -------
    Schema
        `schema` itself without `Tag.inplace` and `Tag.out`.

    Raises
    ------
    SchemaError
        If what is written and returned is not what a tag says, or a result is said to
        lie on an argument that may be missing.
    """
    if Tag.inplace in tags:
        _check_inplace(qualname, schema)
        return _with_aliases(qualname, schema, schema.written)
    if Tag.out in tags:
        _check_out(qualname, schema)
        return _with_aliases(qualname, schema, schema.written)
    for r in schema.returns:
        _check_return(qualname, schema, r)
    return schema


def _fault(
    qualname: str, schema: Schema, what: str, do: str, name: str = ""
) -> SchemaError:
    return SchemaError(
        f"{qualname}: {what}",
        schema.show(qualname, name),
        do=do,
        op=qualname,
        parameter=name or None,
    )


def _check_inplace(qualname: str, schema: Schema) -> None:
    arrays = [p for p in schema.positional if holds_arrays(p.type)]
    if not arrays or not is_array_type(arrays[0].type):
        raise _fault(
            qualname,
            schema,
            "Tag.inplace, but the first array that it takes by position is"
            f" {arrays[0].type if arrays else 'missing'}",
            "write the array that it returns as its first parameter: x: Array",
            arrays[0].name if arrays else "",
        )
    first = arrays[0].name
    if schema.written != (first,):
        raise _fault(
            qualname,
            schema,
            f"Tag.inplace, but mutates_args names {quoted(schema.written) or 'nothing'},"
            f" must name its first array '{first}' alone",
            f"write mutates_args=('{first}',), or leave the tag out",
            first,
        )


def _check_out(qualname: str, schema: Schema) -> None:
    written = [p for p in schema.parameters if p.is_written]
    if not written:
        raise _fault(
            qualname,
            schema,
            "Tag.out, but mutates_args names nothing",
            "name the keyword-only arrays that it writes: mutates_args=('out',)",
        )
    for p in written:
        if isinstance(p.type, Maybe):
            raise _maybe_out(qualname, schema, p)
        is_array = is_array_type(p.type)
        if p not in schema.keyword_only or not is_array:
            what = "can come by position" if is_array else "is no single array"
            raise _fault(
                qualname,
                schema,
                f"Tag.out, but the argument '{p.name}' that it writes {what}",
                f"take it by keyword alone: *, {p.name}: Array",
                p.name,
            )


def _maybe_out(qualname: str, schema: Schema, p: Parameter) -> SchemaError:
    """Whether it returns a fresh array or an argument would change from call to call."""
    return _fault(
        qualname,
        schema,
        f"returns '{p.name}' where it is given, and a fresh array where it is None",
        f"split it: {qualname} without '{p.name}' returns a fresh array, and"
        f" {qualname}_out with tags=Tag.out takes *, {p.name}: Array",
        p.name,
    )


def _with_aliases(qualname: str, schema: Schema, written: Sequence[str]) -> Schema:
    """The schema whose results are the written parameters, in order."""
    aliases = [p.alias for p in schema.parameters if p.is_written]
    told = [r.alias for r in schema.returns]
    fits = len(schema.returns) == len(written) and all(
        is_array_type(r.type) for r in schema.returns
    )
    fits = fits and schema.is_tuple is (len(written) > 1)
    if not fits or any(a not in (None, b) for a, b in zip(told, aliases, strict=True)):
        arrays = "Array" if len(written) == 1 else f"tuple of {len(written)} arrays"
        raise _fault(
            qualname,
            schema,
            f"must return what it writes, {quoted(written)}, and nothing else",
            f"return {', '.join(written)}, and annotate the result as {arrays}",
        )
    pairs = zip(schema.returns, aliases, strict=True)
    return replace(schema, returns=tuple(replace(r, alias=a) for r, a in pairs))


def _check_return(qualname: str, schema: Schema, r: Return) -> None:
    """Raise for a result on an argument that does not exist or may be missing."""
    if r.alias is None:
        return
    sources = [p for p in schema.parameters if p.alias and p.alias.name == r.alias.name]
    if not sources:
        raise _fault(
            qualname,
            schema,
            f"the result {r} lies on the memory ({r.alias.name}) of no argument",
            f"mark the argument: Array({r.alias.name}) x",
        )
    for p in sources:
        if p.is_written and isinstance(p.type, Maybe) and not isinstance(r.type, Maybe):
            raise _maybe_out(qualname, schema, p)


# ---- what follows ----


def returned_slots(op: RuleTable) -> list[int]:
    """Places of the arguments that are the results; none without the tags."""
    if Tag.inplace not in op.tags and Tag.out not in op.tags:
        return []
    return [i for i, p in enumerate(op.schema.parameters) if p.is_written]


def _returned(op: RuleTable, values: Sequence[Any]) -> Any:
    """The arguments among these values that are the result, as it is returned."""
    found = tuple(values[slot] for slot in returned_slots(op))
    return found if op.schema.is_tuple else found[0]


def derive_fake(op: RuleTable) -> Callable[..., Any] | None:
    """A fake kernel of an operator that returns its arguments, or nothing at all."""
    if returned_slots(op):
        return lambda *args, **keywords: _returned(op, (*args, *keywords.values()))
    return None if op.schema.returns else _return_nothing


def _return_nothing(*args: Any, **keywords: Any) -> None:
    """The fake kernel of an operator without a result."""


def derive_vmap(op: RuleTable) -> Callable[..., Any] | None:
    """The batching rule of an operator that returns its arguments, or None."""
    if not returned_slots(op) or op.sees_seed:
        return None
    return partial(_batch, op)


def _batch(
    op: RuleTable, info: Any, in_dims: Sequence[Any], *args: Any, **keywords: Any
) -> tuple[Any, Any]:
    """Write all rows, and return the very arrays that were given."""
    pairs = pairs_of(in_dims, args, keywords)
    if Tag.pointwise in op.tags and not op.nested_slots:
        rank = rank_of_rows(pairs)
        op.invoke([align(value, dim, rank) for value, dim in pairs])
    else:
        run_rows(op, pairs, info.batch_size)
    values, dims = zip(*pairs, strict=True)
    return _returned(op, values), _returned(op, dims)
