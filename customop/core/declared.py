"""Operators that are defined by a schema alone."""

from __future__ import annotations

import inspect
from typing import Any

from customop.arrays.kinds import DEFAULT
from customop.core.registry import operators
from customop.core.rule_kind import COMPOSITE
from customop.errors import MissingRuleError
from customop.schema.parameters import (
    KEYWORD_ONLY,
    MISSING,
    POSITIONAL,
    POSITIONAL_ONLY,
)
from customop.schema.schema import Schema

__all__ = ["Declared"]


class Declared:
    """The function of an operator that was defined by a schema alone."""

    def __init__(self, qualname: str, schema: Schema) -> None:
        self._qualname = qualname
        self.__name__: str = qualname.partition("::")[2].partition(".")[0]
        self.__qualname__ = self.__name__
        self.__doc__ = schema.show(qualname)
        self.__signature__: inspect.Signature = _signature(schema)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the default kernel or the body; called while a kernel is disabled."""
        op = operators[self._qualname]
        row = op.rows.get(DEFAULT) or op.rows.get(COMPOSITE)
        if row is None:
            raise MissingRuleError(
                f"{op.qualname} has no default kernel: it was defined by its schema alone",
                op.schema.show(op.qualname),
                f"at {op.definition.place}",
                do=f'impl("{op.qualname}", "default", fn)',
                op=op.qualname,
            )
        return row.fn(*args, **kwargs)


_PARAMETER_KINDS = {
    POSITIONAL_ONLY: inspect.Parameter.POSITIONAL_ONLY,
    POSITIONAL: inspect.Parameter.POSITIONAL_OR_KEYWORD,
    KEYWORD_ONLY: inspect.Parameter.KEYWORD_ONLY,
}


def _signature(schema: Schema) -> inspect.Signature:
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(
                p.name,
                _PARAMETER_KINDS[p.kind],
                default=empty if p.default is MISSING else p.default,
            )
            for p in schema.parameters
        ]
    )
