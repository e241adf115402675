"""Shapes in the guard of the fast path."""

from __future__ import annotations

import pytest

from tests.shapes._define import definer

define = definer("guards::f")

# ---- without shapes nothing changes ----

SOURCES = {
    "(Array x, float k=1.0) -> Array": """\
def NAME(x, k=1.0):
    try:
        if _type(x) is _array and _type(k) is _float and not _modes:
            return _kernel(x, k)
        if not (_type(k) is _float): k = _coerce_k(k)
        _plan = _plans.get(_type(x))
        if _plan is not None and not _modes:
            _top = x.interpreter
            if _top.runs_plans:
                return _plan(_top, (x, k, ))
        return _dispatch(_op, (x, k, ))
    except Exception as _error:
        _shorten(_error)
        raise
""",
    "(Array x, Array|Scalar y, Array? z=None, *, Array[] xs) -> ()": """\
def NAME(x, y, z=None, *, xs):
    try:
        if _type(xs) is not _list: xs = _coerce_xs(xs)
        if _type(x) is _array and (_type(y) is _array or _type(y) in _numbers) and (z is\
 None or _type(z) is _array) and _all_arrays(xs) and not _modes:
            return _kernel(x, y, z, xs=xs)
        return _dispatch(_op, (x, y, z, xs, ))
    except Exception as _error:
        _shorten(_error)
        raise

def _run(x, y, z, xs, ):
    try:
        if _type(x) is _array and (_type(y) is _array or _type(y) in _numbers) and (z is\
 None or _type(z) is _array) and _all_arrays(xs) and not _modes:
            return _kernel(x, y, z, xs=xs)
        return _dispatch(_op, (x, y, z, xs, ))
    except Exception as _error:
        _shorten(_error)
        raise
""",
}


@pytest.mark.parametrize(("schema", "text"), SOURCES.items())
def test_a_schema_without_shapes_makes_the_call_that_it_made(
    schema: str, text: str
) -> None:
    """The generated code has no shape checks if the schema has no shapes.

    Where arguments are coerced there is a second function, for values that were.
    """
    names = schema.partition(")")[0].count(",")
    fn = (lambda x, k=1.0: x) if names == 1 else (lambda x, y, z=None, *, xs: None)
    op = define(schema, fn)
    assert op.source == text.replace("NAME", op.name)


def test_shapes_are_compared_in_the_guard_of_the_fast_path() -> None:
    """With shapes in the schema, the generated code compares them before the kernel."""
    op = define("(float[m,k] x, float[k,n+1] y) -> ()", lambda x, y: None)
    assert op.source.splitlines()[2] == (
        "        if _type(x) is _array and _type(y) is _array and not _modes and"
        " _len(_shape0 := x.shape) == 2 and (x.dtype is _float64 or x.dtype in"
        " _float_dtypes) and _len(_shape1 := y.shape) == 2 and _shape1[0] == _shape0[1]"
        " and _shape1[1] >= 1 and (y.dtype is _float64 or y.dtype in _float_dtypes):"
    )
