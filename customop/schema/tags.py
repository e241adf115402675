"""Tags: what an operator promises beyond its schema, and how they are checked."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from customop.errors import SchemaError, quoted
from customop.later import later
from customop.schema.schema import Schema
from customop.schema.types import (
    Alias,
    Base,
    ListOf,
    Maybe,
    Parameter,
    Return,
    holds_arrays,
    is_array_type,
    shapes_in,
)
from customop.shapes.notation import Shape

shape_check: ModuleType = later(import_module, "customop.schema.shape_check")


class Tag(enum.Enum):
    """A promise of an operator that its schema cannot express.

    Attributes
    ----------
    inplace
        It writes its first array and returns that array, as ``x += y`` does. The tag
        gives the aliases in the schema, the fake kernel and the vmap rule.
    out
        It writes its keyword-only arrays, and returns them in
        order. The tag gives the same as `inplace`.
    pointwise
        Each output element depends only on the input elements at its place, with
        NumPy broadcasting. The tag gives the vmap rule. If no fake kernel is
        registered, it gives one with the broadcast shape and the dtype of NumPy's
        promotion, which is dropped if the first call of a kernel shows otherwise.
    reduction
        It reduces the axes in its parameter `axis`, or all for None, and keeps them
        with the length 1 if it has a parameter `keepdims` that is true. The tag gives
        the vmap rule and, as for `pointwise`, a fake kernel with the input's dtype.
    nondeterministic_seeded
        The result depends on a random state: vmap asks for its `randomness`.
    nondeterministic_bitwise
        Two calls on the same values may differ in rounding: compare with a tolerance.
    data_dependent_output
        Numbers that it returns depend on the values of its arrays. It has no fake
        kernel unless one is registered.
    dynamic_output_shape
        The shape of a result depends on the values of its arrays, as in
        ``np.nonzero``. It has no fake kernel unless one is registered.
    needs_contiguous
        Kernels get every array in C order, aligned and in the byte order of the
        machine, as code in C reads it: as a copy if needed.
    needs_exact_strides
        A fake kernel must give the exact strides of the result.
    flexible_layout
        A fake kernel need not give the order of the axes in memory.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::clamp", mutates_args=(), tags=(co.Tag.pointwise,))
    ... def clamp(x: np.ndarray, low: float) -> np.ndarray:
    ...     return np.maximum(x, low)
    >>> clamp(co.FakeArray((4, 3)), 0.0)  # the fake kernel comes from the tag
    FakeArray(f64[4, 3], device='cpu')
    """

    inplace = "inplace"
    out = "out"
    pointwise = "pointwise"
    reduction = "reduction"
    nondeterministic_seeded = "nondeterministic_seeded"
    nondeterministic_bitwise = "nondeterministic_bitwise"
    data_dependent_output = "data_dependent_output"
    dynamic_output_shape = "dynamic_output_shape"
    needs_contiguous = "needs_contiguous"
    needs_exact_strides = "needs_exact_strides"
    flexible_layout = "flexible_layout"


# Tags of operators whose results have a shape or a number that depends on data.
BY_DATA = (Tag.data_dependent_output, Tag.dynamic_output_shape)
_EXCLUSIVE = (
    (Tag.inplace, Tag.out),
    (Tag.needs_exact_strides, Tag.flexible_layout),
    (Tag.pointwise, Tag.reduction),
    (Tag.pointwise, Tag.dynamic_output_shape),
    (Tag.reduction, Tag.dynamic_output_shape),
)


def apply_tags(qualname: str, schema: Schema, tags: frozenset[Tag]) -> Schema:
    """Check the tags of an operator, and add the aliases that they give to its schema.

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
        If two tags exclude each other, a tag does not fit the schema, the shapes in
        the schema cannot be checked, or a result shares the memory of an argument
        that may be missing.
    """
    # Most operators have no tags: 2 of the 85 us of a definition.
    for pair in _EXCLUSIVE if len(tags) > 1 else ():
        if tags.issuperset(pair):
            what = f"{pair[0]} and {pair[1]} exclude each other"
            raise schema.error(SchemaError, qualname, what, do="keep one of them")
    if Tag.reduction in tags:
        _check_axis(qualname, schema)
    if schema.has_shapes:
        shape_check.check_definition(qualname, schema)
    check_shapes_of_tags(qualname, schema, tags)
    if Tag.inplace in tags:
        _check_inplace(qualname, schema)
        return _with_aliases(qualname, schema, schema.written)
    if Tag.out in tags:
        _check_out(qualname, schema)
        return _with_aliases(qualname, schema, schema.written)
    for r in schema.returns:
        _check_return(qualname, schema, r)
    return schema


# ---- axes and shapes ----

_INT, _BOOL = Base("int"), Base("bool")


def _check_axis(qualname: str, schema: Schema) -> None:
    """Raise unless a reduction has the parameters that its derived rules read."""
    types = {p.name: p.type for p in schema.parameters}
    axis = types.get("axis")
    inner = axis.item if isinstance(axis, Maybe) else axis
    inner = inner.item if isinstance(inner, ListOf) else inner
    if not schema.positional or not is_array_type(schema.positional[0].type):
        what = "its first parameter is not an array"
    elif inner != _INT:
        what = f"its parameter 'axis' is {axis or 'missing'}"
    elif types.get("keepdims", _BOOL) != _BOOL:
        what = "its parameter 'keepdims' is not a bool"
    else:
        return
    raise schema.error(
        SchemaError,
        qualname,
        f"Tag.reduction, but {what}",
        do="write (x: Array, axis: int | None = None, keepdims: bool = False), or leave"
        " the tag out",
    )


def check_shapes_of_tags(qualname: str, schema: Schema, tags: frozenset[Tag]) -> None:
    """Raise if a tag and a shape disagree on where the axes of a batch can be.

    Raises
    ------
    SchemaError
        If an array has a fixed number of axes, or axes that must be the same.
    """
    for tag in tags.intersection((Tag.pointwise, Tag.reduction)):
        for p in schema.parameters:
            for shape in shapes_in(p.type):
                if not _allows(tag, shape):
                    raise schema.error(
                        SchemaError,
                        qualname,
                        f"{tag} takes arrays of any shape, but '{p.name}' is {p.type}",
                        do="leave the tag out, since the rules follow from"
                        f" {shape.text!r}; or write '...'",
                        parameter=p.name,
                    )


def _allows(tag: Tag, shape: Shape) -> bool:
    loop = shape.loop
    if loop is None:
        return False
    if tag is Tag.reduction:  # which axes are left depends on `axis`
        return not shape.axes and not loop.name
    # A pointwise operator broadcasts. Axes with a name do so only with a "#".
    return shape.leads and (loop.is_broadcast or not loop.name)


# ---- what is written and returned ----


def _check_inplace(qualname: str, schema: Schema) -> None:
    arrays = [p for p in schema.positional if holds_arrays(p.type)]
    if not arrays or not is_array_type(arrays[0].type):
        raise schema.error(
            SchemaError,
            qualname,
            "Tag.inplace, but the first array that it takes by position is"
            f" {arrays[0].type if arrays else 'missing'}",
            do="write the array that it returns as its first parameter: x: Array",
            parameter=arrays[0].name if arrays else "",
        )
    first = arrays[0].name
    if schema.written != (first,):
        raise schema.error(
            SchemaError,
            qualname,
            f"Tag.inplace, but mutates_args names {quoted(schema.written) or 'nothing'},"
            f" must name its first array '{first}' alone",
            do=f"write mutates_args=('{first}',), or leave the tag out",
            parameter=first,
        )


def _check_out(qualname: str, schema: Schema) -> None:
    if not schema.written:
        raise schema.error(
            SchemaError,
            qualname,
            "Tag.out, but mutates_args names nothing",
            do="name the keyword-only arrays that it writes: mutates_args=('out',)",
        )
    for p in schema.parameters:
        if not p.is_written:
            continue
        if isinstance(p.type, Maybe):
            raise _maybe_out(qualname, schema, p)
        is_array = is_array_type(p.type)
        if p not in schema.keyword_only or not is_array:
            what = "can come by position" if is_array else "is not a single array"
            raise schema.error(
                SchemaError,
                qualname,
                f"Tag.out, but the argument '{p.name}' that it writes {what}",
                do=f"take it by keyword only: *, {p.name}: Array",
                parameter=p.name,
            )


def _maybe_out(qualname: str, schema: Schema, p: Parameter) -> SchemaError:
    """Make the error for a result that is a fresh array in some calls only."""
    return schema.error(
        SchemaError,
        qualname,
        f"returns '{p.name}' where it is given, and a fresh array where it is None",
        do=f"split it: {qualname} without '{p.name}' returns a fresh array, and"
        f" {qualname}_out with tags=Tag.out takes *, {p.name}: Array",
        parameter=p.name,
    )


def _with_aliases(qualname: str, schema: Schema, written: Sequence[str]) -> Schema:
    """Return the schema whose results are the written parameters, in order."""
    aliases = [p.alias for p in schema.parameters if p.is_written]
    fits = schema.is_tuple is (len(written) > 1) and len(schema.returns) == len(written)
    if not fits or not all(map(_can_be, schema.returns, aliases)):
        arrays = "Array" if len(written) == 1 else f"tuple of {len(written)} arrays"
        raise schema.error(
            SchemaError,
            qualname,
            f"must return what it writes, {quoted(written)}, and nothing else",
            do=f"return {', '.join(written)}, and annotate the result as {arrays}",
        )
    pairs = zip(schema.returns, aliases, strict=True)
    return schema.replaced(returns=tuple(r.replaced(alias=a) for r, a in pairs))


def _can_be(r: Return, alias: Alias | None) -> bool:
    """Return whether a result can be a written argument."""
    return is_array_type(r.type) and r.alias in (None, alias)


def _check_return(qualname: str, schema: Schema, r: Return) -> None:
    """Raise for a result on an argument that does not exist or may be missing."""
    if r.alias is None:
        return
    sources = [p for p in schema.parameters if p.alias and p.alias.name == r.alias.name]
    if not sources:
        raise schema.error(
            SchemaError,
            qualname,
            f"the result {r} is marked ({r.alias.name}), but no argument is",
            do=f"mark the argument: Array({r.alias.name}) x",
        )
    for p in sources:
        if p.is_written and isinstance(p.type, Maybe) and not isinstance(r.type, Maybe):
            raise _maybe_out(qualname, schema, p)
