"""Schemas of operators now, against those that a graph was saved with."""

from __future__ import annotations

from customop.core.table import RuleTable
from customop.errors import GraphFileError
from customop.schema.parameters import MISSING
from customop.schema.schema import Schema

__all__ = ["check_schema"]


def check_schema(op: RuleTable, saved: str) -> None:
    """Raise unless an operator takes the calls that were saved as it took them then.

    It may have more parameters than then, if they come last and have defaults.
    """
    now = op.schema
    if saved not in (str(schema) for schema in _earlier(now)):
        raise GraphFileError(
            f"the schema of {op.qualname} has changed since the graph was saved",
            f"in the file: {op.qualname}{saved}",
            f"here:        {op.qualname}{now}",
            do="load it with the operator as it was, or capture the function again",
            op=op.qualname,
        )


def _earlier(schema: Schema) -> list[Schema]:
    """The schema, and those that it may have grown from."""
    found = [schema]
    parameters = [*schema.parameters]
    while parameters and _is_optional(parameters[-1]):
        parameters.pop()
        found.append(Schema(tuple(parameters), schema.returns, schema.is_tuple))
    return found


def _is_optional(parameter: object) -> bool:
    return getattr(parameter, "default", MISSING) is not MISSING
