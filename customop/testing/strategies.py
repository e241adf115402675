"""Hypothesis strategies for arguments of operators.

They need the package hypothesis: `pip install 'customop[check]'`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import ArgumentError, did_you_mean, quoted
from customop.schema.annotations import schema_type
from customop.schema.coerce import examples_of
from customop.schema.schema import Schema
from customop.schema.types import (
    GENERATOR,
    MISSING,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    Parameter,
    SchemaType,
    TupleOf,
)
from customop.testing.inputs.input_patterns import Pattern, patterns_of
from customop.testing.inputs.search import Oracle
from customop.testing.inputs.templates import OMITTED, Filling, call_of
from customop.testing.inputs.variations import LAYOUTS
from customop.testing.quiet import strict_numbers

try:
    from hypothesis import assume
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp
except ImportError as _error:
    raise ImportError(
        "customop.testing.strategies needs hypothesis\n"
        "  do: pip install 'customop[check]'"
    ) from _error

__all__ = ["arguments", "arrays", "from_schema", "generators", "scalars", "values"]

_Strategy: TypeAlias = st.SearchStrategy[Any]


# ---- arguments that an operator accepts ----


def arguments(op: Operator[..., Any]) -> st.SearchStrategy[Sample]:
    """Return a strategy for arguments that an operator accepts.

    Parameters
    ----------
    op : Operator

    Returns
    -------
    strategy of Sample
        Those of `Operator.register_sample_inputs`. Without them, arrays of all numbers
        of axes, lengths and options that the kernels accept. They shrink to small
        arrays of simple numbers.

    Raises
    ------
    ArgumentError
        If no arguments are found.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from hypothesis import given
    >>> from customop.testing import strategies
    >>> @given(strategies.arguments(co.ops.np.matmul.default))
    ... def test(sample):
    ...     x, y = sample.args
    ...     assert x.shape[-1] == y.shape[-2 if y.ndim > 1 else 0]
    >>> test()
    """
    given = op.sample_inputs()
    if given:
        return st.sampled_from(given)
    patterns = patterns_of(op).patterns
    oracle = Oracle(op, uses_fake=False)
    with strict_numbers():
        # Accept noisy arguments only if there are no others.
        worst = oracle.outcome(patterns[0].trial)
    return _arguments(oracle, patterns, worst)


@st.composite
def _arguments(
    draw: st.DrawFn, oracle: Oracle, patterns: Sequence[Pattern], worst: int
) -> Sample:
    pattern = draw(st.sampled_from(patterns))
    lengths = [draw(st.sampled_from(sorted(g.lengths))) for g in pattern.groups]
    trial = pattern.at(lengths)
    seed = draw(st.integers(0, 9))
    arrays = [
        _drawn(draw, filling, array, trial.index_limit)
        for filling, array in zip(trial.fillings, trial.arrays(seed), strict=True)
    ]
    sample = call_of(oracle.op.schema, trial.row(arrays, seed))
    assume(oracle.takes(sample, worst))
    return sample


# Family of numbers -> which numbers of _GRID belong to it.
_FITS: dict[str, Callable[[float], bool]] = {
    "wide": lambda v: True,
    "unit": lambda v: abs(v) < 1,
    "positive": lambda v: 0 < v < 1,
    "above one": lambda v: v > 1,
}


def _drawn(draw: st.DrawFn, filling: Filling, array: Any, limit: int) -> Any:
    """Draw an array of numbers of the same family, or return the array itself."""
    letter, family = filling.dtype.kind, filling.family
    elements: _Strategy
    if letter == "f" and family in _FITS:
        numbers = [v for v in _GRID if _FITS[family](v)]
        if array.size > len(numbers):
            return array
        elements = st.sampled_from(numbers)
    elif letter == "b":
        elements = st.booleans()
    elif family in ("index", "count"):
        elements = st.integers(1, 5) if family == "count" else st.integers(0, limit - 1)
    else:
        return array
    # Equal floats may lie on a kink.
    made = hnp.arrays(
        filling.dtype,
        filling.shape,
        elements=elements,
        fill=st.nothing(),
        unique=letter == "f",
    )
    return draw(made)


# ---- arguments that fit a schema ----


def from_schema(schema: Schema | str, array: Any = None) -> st.SearchStrategy[Sample]:
    """Return a strategy for arguments that fit a schema, accepted by kernels or not.

    Parameters
    ----------
    schema : Schema or str
    array : strategy, optional
        Of the arrays; `arrays` by default.

    Returns
    -------
    strategy of Sample

    Raises
    ------
    SchemaError
        If a string is not a schema.

    Examples
    --------
    >>> import customop as co
    >>> from hypothesis import given
    >>> from customop.testing import strategies
    >>> @given(strategies.from_schema("(Array x, *, int n=1) -> Array"))
    ... def test(sample):
    ...     assert len(sample.args) == 1
    ...     assert set(sample.kwargs) <= {"n"}
    >>> test()
    """
    found = Schema.parse(schema) if isinstance(schema, str) else schema
    chosen = arrays() if array is None else array
    columns = [_argument(p, chosen) for p in found.parameters]
    return st.tuples(*columns).map(lambda row: call_of(found, row))


def _argument(p: Parameter, array: _Strategy) -> _Strategy:
    given = _of(p.type, array)
    return given if p.default is MISSING else st.one_of(st.just(OMITTED), given)


# ---- values of other types ----

_SCALARS: dict[str, Callable[[], _Strategy]] = {
    "int": lambda: st.integers(-4, 4),
    "float": lambda: st.sampled_from([0.5, 1.0, 2.0, -0.75, 0.0, 1e-3]),
    "complex": lambda: st.sampled_from([0.5 + 0.25j, 1j, 2.0 + 0j]),
    "bool": st.booleans,
    "str": lambda: st.text("abc", max_size=3),
    "Scalar": lambda: st.sampled_from([1, 2.0, 0.5, -0.75, True]),
}


def _plain(declared: Base) -> _Strategy:
    make = _SCALARS.get(declared.name)
    return st.sampled_from(examples_of(declared)) if make is None else make()


def scalars(annotation: Any) -> _Strategy:
    """Return a strategy for the numbers, strings or dtypes of an annotation.

    Parameters
    ----------
    annotation : type
        ``int``, ``float``, ``complex``, ``bool``, ``str``, `Scalar`, `DType`,
        `Device`, a ``Literal``, an ``Enum``, or ``Optional`` of these.

    Returns
    -------
    strategy

    Raises
    ------
    SchemaError
        If the annotation has no schema type.

    Examples
    --------
    >>> from typing import Literal
    >>> from customop.testing import strategies
    >>> strategies.scalars(Literal["same", "valid"])
    sampled_from(('same', 'valid'))
    """
    return _of(schema_type(annotation), arrays())


def values(annotation: Any, array: Any = None) -> _Strategy:
    """Return a strategy for any annotation that a parameter of an operator can have.

    Parameters
    ----------
    annotation : type
        Also of lists, tuples, dicts and config objects.
    array : strategy, optional
        Of the arrays in it; `arrays` by default.

    Returns
    -------
    strategy

    Raises
    ------
    SchemaError
        If the annotation has no schema type.

    Examples
    --------
    >>> from hypothesis import given
    >>> from customop.testing import strategies
    >>> @given(strategies.values(list[int]))
    ... def test(numbers):
    ...     assert all(isinstance(n, int) for n in numbers)
    >>> test()
    """
    return _of(schema_type(annotation), arrays() if array is None else array)


def generators() -> st.SearchStrategy[np.random.Generator]:
    """Return a strategy for random generators with small seeds.

    Returns
    -------
    strategy of numpy.random.Generator

    Examples
    --------
    >>> from hypothesis import given
    >>> from customop.testing import strategies
    >>> @given(strategies.generators())
    ... def test(rng):
    ...     assert 0.0 <= rng.random() < 1.0
    >>> test()
    """
    return st.builds(np.random.default_rng, st.integers(0, 99))


def _of(declared: SchemaType, array: _Strategy) -> _Strategy:
    if declared == GENERATOR:
        return generators()
    if isinstance(declared, ArrayType):
        return st.one_of(array, _SCALARS["Scalar"]()) if declared.or_number else array
    return _MAKERS[type(declared)](declared, array)


def _of_list(declared: ListOf, array: _Strategy) -> _Strategy:
    item = _of(declared.item, array)
    low, high = (0, 3) if declared.length is None else (declared.length,) * 2
    found = st.lists(item, min_size=low, max_size=high)
    return found.map(tuple) if declared.is_tuple else found


def _of_dict(declared: DictOf, array: _Strategy) -> _Strategy:
    return st.dictionaries(
        st.text("abc", min_size=1), _of(declared.item, array), max_size=3
    )


def _of_class(declared: ClassOf, array: _Strategy) -> _Strategy:
    if declared.is_enum:
        members: Any = declared.cls
        return st.sampled_from(members)
    fields = {name: _of(t, array) for name, t in declared.items.items()}
    if declared.fields.is_dict:
        needed = {n: s for n, s in fields.items() if n in declared.fields.required}
        rest = {n: s for n, s in fields.items() if n not in needed}
        return st.fixed_dictionaries(needed, optional=rest)
    items = st.tuples(*fields.values()).map(list)
    return items.map(lambda found: declared.fields.like(None, found))


_MAKERS: dict[type, Callable[[Any, _Strategy], _Strategy]] = {
    Base: lambda declared, array: _plain(declared),
    Choice: lambda declared, array: st.sampled_from(declared.options),
    Maybe: lambda declared, array: st.one_of(st.none(), _of(declared.item, array)),
    ListOf: _of_list,
    TupleOf: lambda declared, array: st.tuples(
        *(_of(t, array) for t in declared.items)
    ),
    DictOf: _of_dict,
    ClassOf: _of_class,
}


# ---- arrays ----

# Numbers that are not near zero or any multiple of a half, the simplest first.
_GRID = [
    round(sign * (whole + part), 2)
    for whole in (1, 0, 2)
    for part in (0.25, 0.75, 0.2, 0.7, 0.3, 0.8, 0.15, 0.65, 0.35, 0.85)
    for sign in (1, -1)
]


def _elements(dtype: np.dtype[Any]) -> _Strategy:
    if dtype.kind == "f":
        return st.sampled_from(_GRID)
    if dtype.kind == "c":
        return st.builds(complex, st.sampled_from(_GRID), st.sampled_from(_GRID))
    if dtype.kind == "b":
        return st.booleans()
    return hnp.from_dtype(dtype) if dtype.kind not in "iu" else _whole(dtype)


def _whole(dtype: np.dtype[Any]) -> _Strategy:
    return st.integers(0 if dtype.kind == "u" else -9, 9)


def arrays(
    dtype: Any = np.float64,
    shape: Any = None,
    *,
    elements: Any = None,
    layouts: Sequence[str] = ("contiguous",),
) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """Return a strategy for arrays, in any layout.

    Parameters
    ----------
    dtype : dtype, or strategy of them
    shape : tuple of int, strategy of them, or None
        None for at most three axes, of lengths 1 to 4.
    elements : strategy, optional
        Of numbers. By default small ones, away from zero and from other points where
        common functions have no gradient.
    layouts : sequence of str
        ``"contiguous"``, ``"non-contiguous"``, ``"negative strides"``, ``"Fortran
        order"``, ``"read-only"``, ``"unaligned"``, ``"broadcast"``, ... The first ones
        count as simpler. Arrays stay contiguous where the shape cannot have a layout.

    Returns
    -------
    strategy of ndarray

    Raises
    ------
    ArgumentError
        If a layout is unknown.

    Examples
    --------
    >>> from hypothesis import given
    >>> from customop.testing import strategies
    >>> @given(strategies.arrays(layouts=["contiguous", "negative strides"]))
    ... def test(x):
    ...     assert (-x).sum() == -x.sum()
    >>> test()
    """
    for name in layouts:
        if name != "contiguous" and name not in LAYOUTS:
            raise ArgumentError(
                f"strategies.arrays: unknown layout {name!r}"
                f"{did_you_mean(name, LAYOUTS)}",
                f"known: {quoted(['contiguous', *LAYOUTS])}",
                do="use known ones",
            )
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)
    made = _filled(dtype, shapes if shape is None else shape, elements)
    return st.builds(_laid_out, made, st.sampled_from(list(layouts)))


def _filled(dtype: Any, shape: Any, elements: Any) -> _Strategy:
    if isinstance(dtype, st.SearchStrategy):
        return dtype.flatmap(lambda found: _filled(found, shape, elements))
    chosen = np.dtype(dtype)
    items = _elements(chosen) if elements is None else elements
    return hnp.arrays(chosen, shape, elements=items, fill=st.nothing())


def _laid_out(x: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    if layout == "contiguous":
        return x
    made = LAYOUTS[layout][0](x)
    return x if made is None else made
