"""The definition of an operator as code, from the sources of its functions."""

from __future__ import annotations

import ast
import builtins
import linecache
import textwrap
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from customop.arrays.kinds import CPU, DEFAULT, FAKE
from customop.arrays.python_text import PythonText
from customop.core.builtin_kinds import AUTOGRAD, JVP, SAMPLE_INPUTS, VMAP
from customop.core.code_names import all_names_in
from customop.core.operator import Operator
from customop.errors import SchemaError, is_ours
from customop.schema.schema import Schema


class NoTextError(Exception):
    """A definition cannot be written as code, and why."""


def definition_text(
    op: Operator[..., Any],
    script: PythonText,
    variants: Sequence[Operator[..., Any]] = (),
    *,
    with_samples: bool = False,
) -> str:
    """Return code that defines an operator and registers its rules.

    Values that its functions hold are written too. `script` gets the imports. The code
    defines `variants` of the operator, too, and registers its sample inputs if asked.

    Raises
    ------
    NoTextError
        If a function has no source, or holds something that no code makes.
    """
    named: dict[str, Any] = {"np": np, "co": import_module("customop"), "op": op}
    text: list[str] = []
    for i, each in enumerate([op, *variants]):
        made = _DefinitionText(each, f"variant{i}" if i else "op", script, named)
        lines = [*made.registrations(with_samples=with_samples and not i)]
        text += [*made.blocks, *lines]
    return "\n".join(text)


class _DefinitionText:
    """The code of the functions of an operator, each with the names that it reads."""

    def __init__(
        self,
        op: Operator[..., Any],
        name: str,
        script: PythonText,
        named: dict[str, Any],
    ) -> None:
        self.op = op
        self.name = name
        self.script = script
        self.blocks: list[str] = []
        # The kernel that the call of custom_op gets.
        self._first: Any = None
        # Name -> the value that the code gives it, for all operators of the script.
        self._named = named

    def registrations(self, *, with_samples: bool) -> Iterator[str]:
        """Yield the statements that define the operator and register its rules."""
        op = self.op
        schema = _schema_text(op)
        rows = {kind: row.fn for kind, row in op.rows.items()}
        first = DEFAULT if DEFAULT in rows else CPU.name
        if first not in rows:
            raise NoTextError("it has neither a default kernel nor one for NumPy")
        self._named[self.name] = op
        self._first = _of_user(rows[first])
        given = [
            repr(op.qualname),
            self._function(rows.pop(first), "kernel", is_kernel=True),
            f"mutates_args={tuple(op.schema.written)!r}",
            f"schema={schema!r}",
        ]
        if first == CPU.name:
            given.append(f"device_types={first!r}")
        if op.tags:
            tags = sorted(f"co.{tag}" for tag in op.tags)
            given.append(f"tags=[{', '.join(tags)}]")
        called = ",\n    ".join(given)
        names = " = ".join(dict.fromkeys([self.name, *self._names_of_op()]))
        later = [
            self._registration(kind, fn)
            for kind, fn in rows.items()
            if (with_samples or kind is not SAMPLE_INPUTS)
            and not _is_derived(_of_user(fn))
        ]
        yield f"{names} = co.custom_op(\n    {called},\n)"
        yield from later

    def _names_of_op(self) -> list[str]:
        return [name for name, value in self._named.items() if value is self.op]

    def _registration(self, kind: Any, fn: Any) -> str:
        if kind is AUTOGRAD:
            return self._autograd(fn)
        names: dict[Any, str] = {FAKE: "fake", VMAP: "vmap", JVP: "jvp"}
        names[SAMPLE_INPUTS] = "sample_inputs"
        if kind in names:
            rule = self._rule(fn, names[kind])
            return f"{self.name}.register_{names[kind]}({rule})"
        if kind == CPU.name:
            rule = self._rule(fn, "for_cpu")
            return f"{self.name}.register_kernel({kind!r})({rule})"
        raise NoTextError(f"it has a row for {kind}")

    def _autograd(self, rule: Any) -> str:
        setup = getattr(rule, "setup_context", None)
        if not rule.is_formula or not isinstance(rule.backward, FunctionType):
            raise NoTextError("its autograd rule is not a formula")
        given = [self._rule(rule.backward, "backward")]
        if setup is not None:
            given.append(f"setup_context={self._rule(setup, 'setup')}")
        return f"{self.name}.register_autograd({', '.join(given)})"

    # ---- functions ----

    def _rule(self, fn: Any, usual: str) -> str:
        """Write a function that is registered, which may be the kernel; its name."""
        is_kernel = _of_user(fn) is self._first
        return f"{self.name}.__wrapped__" if is_kernel else self._function(fn, usual)

    def _function(self, fn: Any, usual: str, *, is_kernel: bool = False) -> str:
        """Write a function and what it reads; return its name in the code."""
        fn = _of_user(fn)
        if not isinstance(fn, FunctionType):
            raise NoTextError(f"{usual} is {type(fn).__name__}, not a plain function")
        node, text = _source_of(fn)
        read = dict(_read_by(fn))
        # The name of the kernel becomes that of the operator, as with a decorator.
        value = self.op if is_kernel else fn
        name = first = usual if isinstance(node, ast.Lambda) else node.name
        while self._named.get(name, value) is not value and first not in read:
            name += "_"
        is_new = self._takes(name, value)
        if not is_new and not is_kernel:
            return name
        for inner, held in read.items():
            self._write(inner, held)
        if isinstance(node, ast.Lambda):
            text = f"{name} = (\n{textwrap.indent(text, '    ')}\n)"
        elif name != first:
            text = text.replace(f"def {first}", f"def {name}", 1)
        self.blocks.append(f"{text}\n")
        return name

    def _takes(self, name: str, value: Any) -> bool:
        """Give a name to a value; return whether it is new."""
        if name in self._named:
            if self._named[name] is not value:
                raise NoTextError(f"two of its functions read other values as {name}")
            return False
        if name in self.script.taken:
            raise NoTextError(f"{name} is also an argument of the call")
        self._named[name] = value
        return True

    def _write(self, name: str, value: Any) -> None:
        """Write what a function reads by a name."""
        if not self._takes(name, value) or value is self.op:
            return
        if isinstance(value, ModuleType):
            more = "" if value.__name__ == name else f" as {name}"
            self.script.needs(f"import {value.__name__}{more}")
        elif isinstance(value, FunctionType) and not _has_path(value):
            del self._named[name]
            found = self._function(value, name)
            if found != name:
                self.blocks.append(f"{name} = {found}\n")
        elif isinstance(value, FunctionType | BuiltinFunctionType | type | np.ufunc):
            self._import(name, value)
        elif isinstance(value, Operator):
            raise NoTextError(f"it calls another operator, {value.qualname}")
        else:
            _check_plain(name, value)
            text = self.script.value(value, name)
            if text != name:
                self.blocks.append(f"{name} = {text}\n")

    def _import(self, name: str, value: Any) -> None:
        if not _has_path(value):
            raise NoTextError(f"it reads {name}, which no module has")
        module = value.__module__ or "numpy"
        more = "" if value.__name__ == name else f" as {name}"
        self.script.needs(f"from {module} import {value.__name__}{more}")


def _of_user(fn: Any) -> Any:
    """Return the user's function inside one that the package has put around it."""
    while _is_derived(fn) and "__wrapped__" in vars(fn):
        fn = vars(fn)["__wrapped__"]
    return fn


def _is_derived(fn: Any) -> bool:
    """Return whether the package has made a rule by itself, as it will again."""
    return isinstance(fn, FunctionType) and is_ours(fn.__globals__)


def _schema_text(op: Operator[..., Any]) -> str:
    text = str(op.schema)
    try:
        is_same = str(Schema.parse(text)) == text
    except SchemaError:
        is_same = False
    if not is_same:
        raise NoTextError("its schema has classes of its own")
    return text


_PLAIN = (
    *(int, float, complex, str, bytes, type(None)),
    *(np.generic, np.dtype, np.random.Generator),
)


_KEYS = (int, float, str, bytes, type(None))


def _check_plain(name: str, value: Any) -> None:
    """Raise unless a value is a number, a text, an array, or a tree of them."""
    left = [value]
    for item in left:
        if isinstance(item, list | tuple):
            left += item
        elif isinstance(item, dict):
            left += item.values()
            if not all(isinstance(key, _KEYS) for key in item):
                raise NoTextError(f"it reads {name}, which has keys of other classes")
        elif type(item) is not np.ndarray and not isinstance(item, _PLAIN):
            raise NoTextError(f"it reads {name}, which holds {type(item).__name__}")


def _has_path(value: Any) -> bool:
    """Return whether a value can be imported by its name."""
    module = getattr(value, "__module__", None) or "numpy"
    is_main = module == "__main__"
    name = getattr(value, "__qualname__", value.__name__)
    return not is_main and "<" not in name and "." not in name


def _read_by(fn: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the closure and the globals that a function reads."""
    code: CodeType = fn.__code__
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            raise NoTextError(f"it reads {name}, which has no value") from None
    for name in sorted(all_names_in(code)[1]):
        if name in fn.__globals__ and name not in vars(builtins):
            yield name, fn.__globals__[name]


# ---- the source of a function ----


def _source_of(fn: FunctionType) -> tuple[ast.FunctionDef | ast.Lambda, str]:
    """Return the node of a function in its file, and its text without decorators."""
    code = fn.__code__
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    if not lines:
        raise NoTextError(f"there is no source of {fn.__code__.co_name}")
    tree = _tree(tuple(lines))
    around = _functions_at(code.co_firstlineno, tree)
    found = [node for node in around if _is_of(node, code)]
    if len(found) != 1:
        raise NoTextError(f"the source of {fn.__code__.co_name} has changed")
    (node,) = found
    given = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    if not all(map(_is_literal, given)):
        raise NoTextError(f"the defaults of {fn.__code__.co_name} are not constants")
    if any(isinstance(inner, ast.Nonlocal) for inner in ast.walk(node)):
        raise NoTextError(
            f"{fn.__code__.co_name} writes names of the function around it"
        )
    if isinstance(node, ast.Lambda):
        return node, _segment(lines, node)
    text = textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno]))
    return node, text.rstrip()


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _segment(lines: Sequence[str], node: ast.expr) -> str:
    """Return the text of an expression; the standard library splits the whole file again."""
    rows = [line.encode() for line in lines[node.lineno - 1 : node.end_lineno]]
    rows[-1] = rows[-1][: node.end_col_offset]
    rows[0] = rows[0][node.col_offset :]
    return b"".join(rows).decode()


@lru_cache(maxsize=8)
def _tree(lines: tuple[str, ...]) -> ast.Module:
    """Return the tree of a source; an empty one if it is no longer Python."""
    try:
        return ast.parse("".join(lines))
    except SyntaxError:
        return ast.Module([], [])


def _functions_at(line: int, tree: ast.AST) -> Iterator[ast.FunctionDef | ast.Lambda]:
    """Yield the functions in a tree that a line is part of, also of their decorators.

    The rest of a file of thousands of lines is not looked at.
    """
    for node in ast.iter_child_nodes(tree):
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = min([getattr(node, "lineno", line), *(d.lineno for d in decorators)])
        if first <= line <= getattr(node, "end_lineno", line):
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                yield node
            yield from _functions_at(line, node)


def _is_of(node: ast.FunctionDef | ast.Lambda, code: CodeType) -> bool:
    """Return whether code was made of the function at a node."""
    if isinstance(node, ast.Lambda):
        if code.co_name != "<lambda>" or node.lineno != code.co_firstlineno:
            return False
        body = node.body
        start = body.lineno, body.col_offset
        end = body.end_lineno, body.end_col_offset
        places = [(p[0], p[2], p[1], p[3]) for p in code.co_positions() if p[3]]
        return (
            bool(places)
            and max(p[2:] for p in places) == end
            and start in [p[:2] for p in places]
        )
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return code.co_name == node.name and code.co_firstlineno == first
