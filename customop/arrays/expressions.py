"""The expression of a user's code that runs or has raised, as a node of its syntax tree."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from types import FrameType, ModuleType
from typing import Any, Literal

import numpy as np

from customop.arrays.kinds import is_fake, is_traced
from customop.arrays.refusals import is_installed_at
from customop.arrays.trampolines import is_hooked
from customop.errors import is_ours


def running(between: list[FrameType]) -> UserExpression | None:
    """Return the expression that runs in the innermost frame of a user's code.

    Frames of other packages inside of it are added to a list, but not NumPy's.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (owner := _owner(frame)) != "user":
        if owner == "other":
            between.append(frame)
        frame = frame.f_back
    return None if frame is None else site_at(frame, frame.f_lasti)


def raised_at(error: BaseException) -> UserExpression | None:
    """Return the expression in the innermost frame of a user's code that raised."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if _owner(trace.tb_frame) == "user":
            found = trace
        trace = trace.tb_next
    return None if found is None else site_at(found.tb_frame, found.tb_lasti)


def _owner(frame: FrameType) -> Literal["user", "inner", "other"]:
    """Return whose code a frame runs: inner is that of NumPy and of this package."""
    module = str(frame.f_globals.get("__name__")).partition(".")[0]
    if is_ours(frame.f_globals) or module == "numpy":
        return "inner"
    is_standard = module in sys.stdlib_module_names and module != "__main__"
    return "other" if is_standard or is_foreign(frame) else "user"


def is_adapted(frame: FrameType) -> bool:
    """Return whether a frame runs a copy that `traceable` has made."""
    return is_hooked(frame.f_code)


def is_foreign(frame: FrameType) -> bool:
    """Return whether a frame runs code of an installed package."""
    return is_installed_at(frame.f_code.co_filename)


def is_extension(value: Any) -> bool:
    """Return whether a value is a compiled module of an installed package."""
    path = getattr(value, "__file__", None) if isinstance(value, ModuleType) else None
    is_compiled = str(path).endswith(tuple(EXTENSION_SUFFIXES))
    return is_compiled and is_installed_at(str(path))


@lru_cache(8)
def tree_of(text: str) -> ast.Module | None:
    """Parse a source; return None if it is not Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # the file has changed
        return None


def site_at(frame: FrameType, at: int) -> UserExpression | None:
    """Return the node of an instruction, and the nodes around it from the outermost."""
    places = [*frame.f_code.co_positions()]
    line, end_line, column, end = places[at // 2]
    text = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    if line is None or end_line is None or column is None or end is None or not text:
        return None
    wanted = (line, column, end_line, end)
    node: Any = tree_of(text)
    around: list[Any] = []
    while node is not None:
        if range_of(node) == wanted and not isinstance(node, ast.Expr):
            return UserExpression(frame, node, around)
        around.append(node)
        node = next((n for n in _children(node) if holds(n, wanted)), None)
    return None


def _children(node: Any) -> list[Any]:
    """Return the nodes in a node that have places."""
    found: list[Any] = []
    for child in ast.iter_child_nodes(node):
        found += [child] if hasattr(child, "lineno") else _children(child)
    return found


def range_of(node: Any) -> tuple[int, int, int, int] | None:
    """Return the first and last line of a node, each with its column."""
    if not hasattr(node, "lineno"):
        return None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def holds(node: Any, place: tuple[int, int, int, int]) -> bool:
    """Return whether a place is inside a node."""
    start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    # Decorators stand above their function.
    above = [d.lineno for d in getattr(node, "decorator_list", ())]
    return min([start, *[(n, 0) for n in above]]) <= place[:2] and place[2:] <= end


class UserExpression:
    """An expression that runs, with its frame and the nodes around it."""

    def __init__(self, frame: FrameType, node: Any, around: list[Any]) -> None:
        self.frame = frame
        self.node: Any = node
        self.around = around

    def value(self, node: Any) -> Any:
        """Return the value of a name or of an attribute of one; None if not known."""
        if isinstance(node, ast.Name):
            frame = self.frame
            for names in (frame.f_locals, frame.f_globals, frame.f_builtins):
                if node.id in names:
                    return names[node.id]
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            return getattr(owner, "__dict__", {}).get(node.attr)
        return None

    def name_of(self, value: Any) -> str | None:
        """Return the name that the user's code has for a value."""
        for names in (self.frame.f_locals, self.frame.f_globals):
            for name, found in names.items():
                if found is value:
                    return name
        return None

    def numpy(self, name: str) -> str:
        """Write the name of a function of NumPy as the user's code has it."""
        return f"{self.name_of(np) or 'np'}.{name}"

    def ours(self, name: str) -> str:
        """Write the name of a function of this package as the user's code has it."""
        package = sys.modules["customop"]
        own = self.name_of(vars(package).get(name, package))
        if own is not None and name in vars(package):
            return own
        return f"{self.name_of(package) or 'customop'}.{name}"

    def traced_name(self, node: Any) -> str | None:
        """Return a name in an expression whose value is traced or fake."""
        names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        found = self.frame.f_locals
        virtual = [n for n in names if n in found and is_virtual(found[n])]
        return max(virtual, key=lambda n: _level(found[n]), default=None)

    def within(self, *classes: type) -> Any:
        """Return the innermost node of such a class that is the expression or around it."""
        return next(
            (n for n in reversed([*self.around, self.node]) if isinstance(n, classes)),
            None,
        )

    def with_node(self, node: Any) -> UserExpression:
        """Return another expression of the same frame, one that is around this one."""
        at = self.around.index(node)
        return UserExpression(self.frame, node, self.around[:at])


def _level(value: Any) -> int:
    return getattr(getattr(value, "interpreter", None), "level", -1)


def is_virtual(value: Any) -> bool:
    """Return whether a value is a traced or fake array."""
    return is_traced(value) or is_fake(value)


# ---- its text ----


def instead_of(old: Any, new: str) -> str:
    """Write the advice to replace a node, or a text."""
    return f"write {new} in place of {old if isinstance(old, str) else text_of(old)}"


def text_of(node: Any) -> str:
    """Write a node as code."""
    return ast.unparse(node)


def operand_text(node: Any) -> str:
    """Write an expression that an operator or a dot can follow."""
    simple = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
    return text_of(node) if isinstance(node, simple) else f"({text_of(node)})"


def call_text(
    name: str, args: Sequence[str], keywords: Sequence[ast.keyword] = ()
) -> str:
    """Write a call."""
    return f"{name}({', '.join([*args, *map(text_of, keywords)])})"
