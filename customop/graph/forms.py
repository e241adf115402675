"""Operators that compute the same: fresh arrays, in place, and into an array given.

They are found by their names, as in ``mylib::scale``, ``mylib::scale_`` with `Tag.inplace`
and ``mylib::scale.out``, ``mylib::scale_out`` or ``mylib_out::scale`` with `Tag.out`.
"""

from __future__ import annotations

from collections.abc import Sequence

from customop.core.operator import Operator
from customop.core.registry import in_namespace
from customop.core.table import RuleTable
from customop.schema.parameters import Parameter
from customop.schema.tags import Tag

__all__ = ["functional_form", "writing_form"]


def functional_form(op: RuleTable) -> Operator[..., object] | None:
    """The operator that returns fresh arrays where another one writes, or None."""
    if Tag.inplace in op.tags and op.name.endswith("_"):
        found = _named(op.namespace, op.name[:-1], op.overload)
        given = op.schema.parameters
    elif Tag.out in op.tags:
        found = _without_out(op)
        given = tuple([p for p in op.schema.parameters if not p.is_written])
    else:
        return None
    if found is None or found.schema.written or found.sees_seed:
        return None
    same = _plain(found.schema.parameters) == _plain(given)
    returns = [str(r.type) for r in op.schema.returns]
    own = [str(r.type) for r in found.schema.returns if r.alias is None]
    return found if same and own == returns else None


def writing_form(op: RuleTable, tag: Tag) -> Operator[..., object] | None:
    """The operator with a tag that writes what this one returns, or None."""
    if tag is Tag.inplace:
        places = [(op.namespace, f"{op.name}_", op.overload)]
    else:
        places = [
            (op.namespace, op.name, "out"),
            (op.namespace, f"{op.name}_out", op.overload),
            (f"{op.namespace}_out", op.name, op.overload),
        ]
    for namespace, name, overload in places:
        found = _named(namespace, name, overload)
        if found is not None and tag in found.tags and functional_form(found) is op:
            return found
    return None


def _without_out(op: RuleTable) -> Operator[..., object] | None:
    if op.overload == "out":
        return _named(op.namespace, op.name, "")
    if op.name.endswith("_out"):
        return _named(op.namespace, op.name[: -len("_out")], op.overload)
    if op.namespace.endswith("_out"):
        return _named(op.namespace[: -len("_out")], op.name, op.overload)
    return None


def _named(namespace: str, name: str, overload: str) -> Operator[..., object] | None:
    return in_namespace(namespace).get(name, {}).get(overload)


def _plain(parameters: Sequence[Parameter]) -> list[tuple[str, str, str, str]]:
    """Parameters without what is said of memory."""
    return [(p.name, str(p.type), p.kind, repr(p.default)) for p in parameters]
