"""The registrations of an open library, and the owners of namespaces."""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Any

from customop.core.changes import changing
from customop.core.define import remove_operator, tables_changed
from customop.core.operator import Operator
from customop.core.registry import forget_registrations, operators
from customop.core.table import fallbacks
from customop.errors import RegistrationError
from customop.library.define import place_of

__all__ = ["Scope", "claim", "owners"]


class Scope:
    """Everything that a library has registered, while it is open."""

    def __init__(self, namespace: str, kind: str, frame: FrameType) -> None:
        self.namespace: str = namespace
        self.kind: str = kind
        self.place: str = place_of(frame)
        self.code: CodeType = frame.f_code
        self.defined: list[Operator[..., Any]] = []
        # Qualified names that it has registered kernels or rules for.
        self.names: set[str] = set()
        self.is_open: bool = True

    def close(self) -> None:
        """Remove all registrations and definitions."""
        with changing:
            if not self.is_open:
                return
            self.is_open = False
            if owners.get(self.namespace) is self:
                del owners[self.namespace]
            for name in self.names:
                self._leave(name)
            for op in self.defined:
                remove_operator(op)
            self._leave_fallbacks()
            self.defined.clear()
            self.names.clear()

    def _leave(self, qualname: str) -> None:
        forget_registrations(qualname, self)
        op = operators.get(qualname)
        if op is not None:
            op.leave(self)

    def _leave_fallbacks(self) -> None:
        mine = [
            k for k, rows in fallbacks.items() if any(r.owner is self for r in rows)
        ]
        for kind in mine:
            fallbacks[kind] = tuple(r for r in fallbacks[kind] if r.owner is not self)
        if mine:
            tables_changed()


# Namespace -> the open DEF library that owns it.
owners: dict[str, Scope] = {}


def claim(scope: Scope) -> None:
    """Make a DEF library the owner of its namespace, unless another one is."""
    known = owners.get(scope.namespace)
    if (
        known is not None
        and known.place == scope.place
        and known.code is not scope.code
    ):
        # The same line with a new code object: a module or cell is running again.
        known.close()
        known = None
    if known is not None:
        raise RegistrationError(
            f"the namespace '{scope.namespace}' is defined already, at {known.place}",
            f"the second definition is at {scope.place}",
            do=f'Library("{scope.namespace}", "FRAGMENT") adds to it; or close the first',
        )
    owners[scope.namespace] = scope
