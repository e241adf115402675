"""Ufuncs that write their result into an array: ``np_out::add`` for ``np::add``.

Graphs call them where the memory of an operand is used again, see `reuse_buffers`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import Tag, custom_op, ops

_OUT = "*, Array(a!) out) -> Array(a!)"
# Schema of an operator -> the schema of the one that writes.
_SCHEMAS = {
    "(Array x) -> Array": f"(Array x, {_OUT}",
    "(Array|Scalar x1, Array|Scalar x2) -> Array": (
        f"(Array|Scalar x1, Array|Scalar x2, {_OUT}"
    ),
}


def _define(name: str, schema: str) -> None:
    ufunc: Any = getattr(np, name)

    def kernel(*inputs: Any, out: Any) -> Any:
        ufunc(*inputs, out=out)
        return out

    custom_op(
        f"np_out::{name}", kernel, mutates_args=("out",), schema=schema, tags=Tag.out
    )


for _name in dir(ops.np):
    _op = getattr(ops.np, _name).default
    _schema = _SCHEMAS.get(str(_op.schema))
    _ufunc = getattr(np, _name, None)
    if _schema and Tag.pointwise in _op.tags and isinstance(_ufunc, np.ufunc):
        _define(_name, _schema)
