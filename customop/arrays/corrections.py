"""Corrections of a user's expression that needs the value of a traced or fake array.

The instruction that runs has a place in the source, which is that of one node of its
syntax tree. Nothing of the user's is called: values are found by their names alone.
"""

from __future__ import annotations

import ast
import linecache
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any, Final, Literal

import numpy as np

from customop.arrays.kinds import is_fake, is_traced
from customop.arrays.refusals import is_installed_at
from customop.arrays.trampolines import is_hooked
from customop.errors import is_ours


def correction(error: BaseException | None = None) -> str | None:
    """Return what to write in place of the user's expression that runs, or has raised.

    Parameters
    ----------
    error : exception, optional
        One that the expression has raised.

    Returns
    -------
    str or None
        Such as "write np.sin(x) in place of math.sin(x)"; None if the source is not
        known, or nothing is known for such an expression.
    """
    between: list[FrameType] = []
    site = _running(between) if error is None else _raised(error)
    if site is None:
        return None
    advice = _of_package(site, between) if any(map(_is_foreign, between)) else None
    advice = _advice(site) if advice is None and not between else advice
    if advice is None and any(map(_is_adapted, between)):
        advice = f"make an operator, with custom_op, of the function: {_UNREACHED}"
    return None if advice is None or len(advice) > _LONGEST else advice


def explain_foreign(error: Exception) -> None:
    """Add advice to an error that compiled code of another package raises."""
    site = _raised(error)
    if site is None or not isinstance(site.node, ast.Call):
        return
    if _is_python(_called(site, site.node.func)) or site.traced_name(site.node) is None:
        return
    advice = _of_package(site, [])
    note = f"  do: {advice}"
    if advice is not None and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


# Longer code would be hard to read in a message.
_LONGEST: Final = 400


def result_correction(fn: Any, changes: Sequence[str], has_aux: bool) -> str:
    """Return what a function can return in place of its value.

    Parameters
    ----------
    fn : callable
    changes : sequence of str
        Templates for what is made of the value, such as "{np}.sum({value})".
    has_aux : bool
        Whether `fn` returns the value and something else.

    Returns
    -------
    str
        With the expression that `fn` returns. If there are several, or its source is not
        known, with a call of `fn`.
    """
    while isinstance(fn, FunctionType) and is_ours(fn.__globals__):
        fn = getattr(fn, "__wrapped__", None)
    plain = getattr(fn, "__func__", fn)
    if not isinstance(plain, FunctionType):
        return _changed(changes, "value", "np")
    names = plain.__globals__
    known = next((name for name, value in names.items() if value is np), "np")
    node = _returned(plain)
    if has_aux:
        node = node.elts[0] if isinstance(node, ast.Tuple) else None
    if node is not None and len(_text(node)) < _LONGEST // 4:
        return f"{_changed(changes, node, known)} in place of {_text(node)}"
    if has_aux or not plain.__name__.isidentifier():
        return _changed(changes, "value", known)
    code = plain.__code__
    given = code.co_varnames[plain is not fn : code.co_argcount] or ("...",)
    return _changed(changes, f"{plain.__name__}({', '.join(given)})", known)


def _changed(changes: Sequence[str], value: Any, numpy: str) -> str:
    whole, operand = (
        (value, value) if isinstance(value, str) else (_text(value), _operand(value))
    )
    texts = [c.format(np=numpy, value=whole, operand=operand) for c in changes]
    return f"return {' or '.join(texts)}"


def _returned(fn: FunctionType) -> Any:
    """Return the node of the only expression that a function returns, or None."""
    code = fn.__code__
    tree = _tree("".join(linecache.getlines(code.co_filename, fn.__globals__)))
    places: list[Any] = [(a, c, b, d) for a, b, c, d in code.co_positions() if c or d]
    places = [place for place in places if None not in place]
    found: Any = None
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.Lambda):
            if all(_holds(node.body, place) for place in places):
                found = node
        elif isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
            found = node if first == code.co_firstlineno else found
    if isinstance(found, ast.Lambda):
        return found.body if code.co_name == "<lambda>" else None
    returns = [] if found is None else [*_returns(found.body)]
    return returns[0].value if len(returns) == 1 else None


def _returns(block: Sequence[ast.AST]) -> Iterator[ast.Return]:
    """Yield the return statements of a function, without those of functions in it."""
    for node in block:
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield from _returns([*ast.iter_child_nodes(node)])


# ---- the expression that runs ----


def _running(between: list[FrameType]) -> _UserExpression | None:
    """Return the expression that runs in the innermost frame of a user's code.

    Frames of other packages inside of it are added to a list, but not NumPy's.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (owner := _owner(frame)) != "user":
        if owner == "other":
            between.append(frame)
        frame = frame.f_back
    return None if frame is None else _site_at(frame, frame.f_lasti)


def _raised(error: BaseException) -> _UserExpression | None:
    """Return the expression in the innermost frame of a user's code that raised."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if _owner(trace.tb_frame) == "user":
            found = trace
        trace = trace.tb_next
    return None if found is None else _site_at(found.tb_frame, found.tb_lasti)


def _owner(frame: FrameType) -> Literal["user", "inner", "other"]:
    """Return whose code a frame runs; that of NumPy and this package is inner."""
    module = str(frame.f_globals.get("__name__")).partition(".")[0]
    if is_ours(frame.f_globals) or module == "numpy":
        return "inner"
    is_standard = module in sys.stdlib_module_names and module != "__main__"
    return "other" if is_standard or _is_foreign(frame) else "user"


def _is_adapted(frame: FrameType) -> bool:
    """Return whether a frame runs a copy that `traceable` has made."""
    return is_hooked(frame.f_code)


def _is_foreign(frame: FrameType) -> bool:
    return is_installed_at(frame.f_code.co_filename)


@lru_cache(8)
def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # the file has changed
        return None


def _site_at(frame: FrameType, at: int) -> _UserExpression | None:
    """Return the node of an instruction, and the nodes around it from the outermost."""
    places = [*frame.f_code.co_positions()]
    line, end_line, column, end = places[at // 2]
    text = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    if line is None or end_line is None or column is None or end is None or not text:
        return None
    wanted = (line, column, end_line, end)
    node: Any = _tree(text)
    around: list[Any] = []
    while node is not None:
        if _range(node) == wanted and not isinstance(node, ast.Expr):
            return _UserExpression(frame, node, around)
        around.append(node)
        node = next((n for n in _children(node) if _holds(n, wanted)), None)
    return None


def _children(node: Any) -> list[Any]:
    """Return the nodes in a node that have places."""
    found: list[Any] = []
    for child in ast.iter_child_nodes(node):
        found += [child] if hasattr(child, "lineno") else _children(child)
    return found


def _range(node: Any) -> tuple[int, int, int, int] | None:
    if not hasattr(node, "lineno"):
        return None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _holds(node: Any, place: tuple[int, int, int, int]) -> bool:
    """Return whether a place is inside a node."""
    start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    # Decorators stand above their function.
    above = [d.lineno for d in getattr(node, "decorator_list", ())]
    return min([start, *[(n, 0) for n in above]]) <= place[:2] and place[2:] <= end


class _UserExpression:
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
        virtual = [n for n in names if n in found and _is_virtual(found[n])]
        return max(virtual, key=lambda n: _level(found[n]), default=None)

    def within(self, *classes: type) -> Any:
        """Return the innermost node of such a class that is the expression or around it."""
        return next(
            (n for n in reversed([*self.around, self.node]) if isinstance(n, classes)),
            None,
        )


def _level(value: Any) -> int:
    return getattr(getattr(value, "interpreter", None), "level", -1)


def _is_virtual(value: Any) -> bool:
    return is_traced(value) or is_fake(value)


def _advice(site: _UserExpression) -> str | None:
    node = site.node
    if _is_stored(site):
        return _of_store(site)
    for cls, correct in _CORRECTIONS.items():
        if isinstance(node, cls) and (advice := correct(site)) is not None:
            return advice
    return _of_test(site)


def _instead(old: Any, new: str) -> str:
    return f"write {new} in place of {old if isinstance(old, str) else _text(old)}"


def _text(node: Any) -> str:
    return ast.unparse(node)


def _operand(node: Any) -> str:
    """Write an expression that an operator or a dot can follow."""
    simple = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
    return _text(node) if isinstance(node, simple) else f"({_text(node)})"


def _call(name: str, args: Sequence[str], keywords: Sequence[ast.keyword] = ()) -> str:
    return f"{name}({', '.join([*args, *map(_text, keywords)])})"


# ---- values of an array by a traced key ----


def _of_subscript(site: _UserExpression) -> str | None:
    node = site.node
    owner = node.value
    if isinstance(owner, ast.Attribute) and owner.attr in ("r_", "c_"):
        return _of_grid(site)
    table, value = _text(owner), site.value(owner)
    if value is not None and not isinstance(value, np.ndarray | list | tuple):
        return None
    if isinstance(value, list | tuple) or isinstance(owner, ast.List | ast.Tuple):
        table = _call(site.numpy("array"), [table])
    return _instead(node, _call(site.ours("getitem"), [table, _key(site, node.slice)]))


def _key(site: _UserExpression, key: Any) -> str:
    parts = key.elts if isinstance(key, ast.Tuple) else [key]
    if any(isinstance(part, ast.Slice) for part in parts):
        text = ", ".join([_text(part) for part in parts])
        return f"{site.numpy('s_')}[{text}]"
    return _text(key)


def _of_grid(site: _UserExpression) -> str | None:
    """Correct ``np.r_[...]`` and ``np.c_[...]``."""
    node = site.node
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if any(isinstance(item, ast.Slice) for item in items):
        return None
    if node.value.attr == "c_":
        columns = ", ".join([_text(item) for item in items])
        return _instead(node, f"{site.numpy('column_stack')}([{columns}])")
    parts = [_row(item) for item in items]
    return _instead(node, f"{site.numpy('hstack')}([{', '.join(parts)}])")


def _row(item: Any) -> str:
    """Write an item of ``np.r_`` for ``np.hstack``."""
    return f"[{_text(item)}]" if isinstance(item, ast.Constant) else _text(item)


# ---- traced values written into plain arrays ----


def _is_stored(site: _UserExpression) -> bool:
    """Return whether the expression is the target of an assignment."""
    node = site.node
    if isinstance(node, ast.AugAssign):
        return True
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)


def _of_store(site: _UserExpression) -> str | None:
    statement = site.within(ast.Assign, ast.AugAssign, ast.AnnAssign)
    target = statement.target if isinstance(site.node, ast.AugAssign) else site.node
    if isinstance(target, ast.Name):
        value = ast.BinOp(target, statement.op, statement.value)
        return _instead(statement, f"{target.id} = {_text(value)}")
    owner = target
    while isinstance(owner, ast.Subscript):
        owner = owner.value
    like = site.traced_name(statement.value) if statement is not None else None
    like = like or site.traced_name(target)
    if not isinstance(owner, ast.Name) or like is None:
        return None
    return _of_buffer(site, owner, like)


def _of_buffer(site: _UserExpression, owner: ast.Name, like: str) -> str | None:
    """Correct the line that makes a local array which a traced value is written into."""
    array = site.value(owner)
    if isinstance(array, list):
        return _instead(
            site.node, f"{owner.id} = {site.numpy('array')}({owner.id}, like={like})"
        ).replace(" in place of ", " above ", 1)
    scope = site.within(ast.FunctionDef, ast.AsyncFunctionDef)
    for made in ast.walk(scope) if scope is not None else ():
        if not isinstance(made, ast.Assign) or made.lineno > site.node.lineno:
            continue
        is_target = isinstance(made.targets[0], ast.Name)
        if is_target and made.targets[0].id == owner.id:  # type: ignore[attr-defined]  # a Name
            call = made.value
            if isinstance(call, ast.Call) and _makes_arrays(site, call):
                others = [k for k in call.keywords if k.arg != "like"]
                arguments = [*map(_text, call.args)]
                new = _call(
                    _text(call.func), [*arguments, *map(_text, others), f"like={like}"]
                )
                line = f"{_text(made)} (line {made.lineno})"
                return _instead(line, f"{owner.id} = {new}")
    if type(array) is not np.ndarray or array.dtype.kind not in "biufc":
        return None
    copied = _call(site.numpy("array"), [owner.id, f"like={like}"])
    line = _text(site.within(ast.stmt))
    code = site.frame.f_code
    if owner.id in (*code.co_varnames, *code.co_cellvars):
        return f"write {owner.id} = {copied} before the line {line}"
    # A name of an outer scope cannot be assigned here.
    return f"write new = {copied}, and new in place of {owner.id} in the line {line}"


def _makes_arrays(site: _UserExpression, call: ast.Call) -> bool:
    return any(site.value(call.func) is maker for maker in _MAKERS)


_MAKERS = (
    np.zeros,
    np.ones,
    np.empty,
    np.full,
    np.array,
    np.arange,
    np.eye,
    np.asarray,
)


# ---- calls ----


def _of_call(site: _UserExpression) -> str | None:
    node = site.node
    called = site.value(node.func)
    if any(isinstance(a, ast.Starred) for a in node.args) or not node.args:
        return _of_method(site, called)
    if getattr(called, "__module__", None) in ("math", "cmath"):
        return _of_math(site, called.__name__)
    for correct in (_of_builtin, _of_numpy, _of_method):
        advice = correct(site, called)
        if advice is not None:
            return advice
    return _of_package(site, [])


def _of_math(site: _UserExpression, name: str) -> str | None:
    node = site.node
    args = [_text(a) for a in node.args]
    if name == "log" and len(args) == 2:
        log = site.numpy("log")
        return _instead(node, f"{log}({args[0]}) / {log}({args[1]})")
    if name in _SPECIAL:
        new = _call(f"scipy.special.{_SPECIAL[name]}", args)
        return f"{_instead(node, new)}, after import customop.scipy"
    other = _MATH.get(name, name)
    if not isinstance(getattr(np, other, None), np.ufunc):
        return None
    return _instead(node, _call(site.numpy(other), args))


# Names of `math` that NumPy or SciPy spells otherwise.
_MATH = {
    "pow": "power",
    **{name: name.replace("a", "arc", 1) for name in ("asin", "acos", "atan", "atan2")},
    **{name: name.replace("a", "arc", 1) for name in ("asinh", "acosh", "atanh")},
}
_SPECIAL = {"erf": "erf", "erfc": "erfc", "gamma": "gamma", "lgamma": "gammaln"}


def _of_builtin(site: _UserExpression, called: Any) -> str | None:
    """Correct a call of a function of Python."""
    node = site.node
    args = [_text(a) for a in node.args]
    name = _named(_CLASSES, called)
    if name is not None and len(args) == 1:
        owner = _operand(node.args[0])
        return _instead(node, f"{owner}.astype({name})" if name else args[0])
    if called is range:
        ends = ["0", *args] if len(args) == 1 else args
        loop = _call(site.ours("fori_loop"), [*ends[:2], "body", "state"])
        hint = "where body(i, state) returns the next state"
        return f"{_instead(node, loop)}, {hint}" if len(ends) == 2 else None
    name = _named(_REDUCTIONS, called)
    if name is None or node.keywords:
        return None
    array = args[0] if _is_virtual(site.value(node.args[0])) else None
    listed = args[0] if len(args) == 1 else f"[{', '.join(args)}]"
    array = array or _call(site.ours("array"), [listed])
    return _instead(node, _call(site.numpy(name), [array]))


_CLASSES: dict[Any, str] = {float: "", int: "int", complex: "complex"}
_REDUCTIONS: dict[Any, str] = {
    max: "max",
    min: "min",
    sorted: "sort",
    any: "any",
    all: "all",
    math.fsum: "sum",
}


def _named(names: dict[Any, str], called: Any) -> str | None:
    """Look up a value that may not be hashable."""
    return next((name for value, name in names.items() if value is called), None)


def _of_numpy(site: _UserExpression, called: Any) -> str | None:
    """Correct a call of a function of NumPy."""
    node = site.node
    module = str(getattr(called, "__module__", "")).partition(".")[0]
    if module != "numpy" and not isinstance(called, np.ufunc):
        return None
    keywords = {k.arg: k for k in node.keywords}
    if "out" in keywords:
        return _of_out(site, keywords["out"])
    if "like" in keywords:
        return None
    if called is np.full and len(node.args) > 1:
        like = site.traced_name(node.args[1]) or _text(node.args[1])
        return _instead(node, _with_like(node, like))
    if called is np.take and len(node.args) == 2:
        return _of_take(site, *node.args)
    is_conversion = any(called is function for function in _CONVERSIONS)
    return _of_conversion(site, called) if is_conversion else _of_lists(site)


def _of_out(site: _UserExpression, out: ast.keyword) -> str | None:
    """Correct a call that writes its result into a plain array."""
    node = site.node
    if any(k.arg == "where" for k in node.keywords):
        return None  # the other elements come from the array
    others = [k for k in node.keywords if k is not out]
    new = _call(_text(node.func), [*map(_text, node.args)], others)
    is_named = isinstance(out.value, ast.Name)
    return _instead(node, f"{_text(out.value)} = {new}" if is_named else new)


def _of_conversion(site: _UserExpression, called: Any) -> str:
    """Correct ``np.array(...)``, ``np.asarray(...)`` and the like."""
    node = site.node
    if called is not np.array and _is_virtual(site.value(node.args[0])):
        return _instead(node, _with_like(node, _text(node.args[0])))
    args = [_text(a) for a in node.args]
    return _instead(node, _call(site.ours("array"), args, node.keywords))


def _with_like(node: ast.Call, like: str) -> str:
    args = [*map(_text, node.args), *map(_text, node.keywords)]
    return _call(_text(node.func), [*args, f"like={like}"])


_CONVERSIONS = (
    *(np.array, np.asarray, np.asanyarray),
    *(np.ascontiguousarray, np.asfortranarray),
)


def _of_lists(site: _UserExpression) -> str | None:
    """Correct a call of NumPy's function that has traced values in a list."""
    node = site.node
    first = node.args[0]
    joins = isinstance(first, ast.List | ast.Tuple) and any(map(_is_list, first.elts))
    if joins and getattr(site.value(node.func), "__name__", "") in _JOINS:
        items = [_as_array(site, item) for item in first.elts]
        args = [f"[{', '.join(items)}]", *map(_text, node.args[1:])]
    else:
        args = [_as_array(site, a) for a in node.args]
    if args == [*map(_text, node.args)]:
        return None
    return _instead(node, _call(_text(node.func), args, node.keywords))


_JOINS = ("concatenate", "stack", "hstack", "vstack", "column_stack", "dstack")


def _is_list(node: Any) -> bool:
    return isinstance(node, ast.List | ast.Tuple | ast.ListComp)


def _as_array(site: _UserExpression, node: Any) -> str:
    """Write an argument; one that holds traced values in a list as an array."""
    found = site.value(node)
    if isinstance(found, list | tuple):
        has_traced = any(map(_is_virtual, _leaves(found)))
    else:
        has_traced = _is_list(node) and not _is_plain(site, node)
    return _call(site.ours("array"), [_text(node)]) if has_traced else _text(node)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _is_plain(site: _UserExpression, node: Any) -> bool:
    """Return whether a list has no name of a traced value."""
    is_made = isinstance(node, ast.ListComp)
    return not is_made and site.traced_name(node) is None


def _of_method(site: _UserExpression, called: Any) -> str | None:
    """Correct a call of a method of a plain or traced array."""
    node = site.node
    if not isinstance(node.func, ast.Attribute) or called is not None:
        return None
    name, owner, value = node.func.attr, node.func.value, site.value(node.func.value)
    if name == "item" and not node.args and not node.keywords:
        return _of_item(site, owner)
    if not isinstance(value, np.ndarray | None):
        return None
    args = [_text(a) for a in node.args]
    if name == "dot" and len(args) == 1:
        return _instead(node, f"{_operand(owner)} @ {_operand(node.args[0])}")
    if name == "take" and len(args) == 1:
        return _of_take(site, owner, node.args[0])
    new = _call(site.numpy(name), [_text(owner), *args], node.keywords)
    return _instead(node, new) if name in ("clip", "searchsorted") else None


def _of_item(site: _UserExpression, owner: Any) -> str | None:
    """Correct ``x.item()``."""
    value = site.value(owner)
    if _is_virtual(value) and value.size != 1:
        return None  # as in NumPy, which raises for it
    is_scalar = _is_virtual(value) and value.shape == ()
    new = _text(owner) if is_scalar else f"{_operand(owner)}.reshape(())"
    return _instead(site.node, new)


def _of_take(site: _UserExpression, array: Any, indices: Any) -> str | None:
    """Correct ``np.take(array, indices)`` and ``array.take(indices)``."""
    value = site.value(array)
    axes = [_text(k.value) for k in site.node.keywords if k.arg == "axis"]
    if len(axes) != len(site.node.keywords) or axes not in ([], ["0"]):
        return None
    is_flat = bool(axes) or getattr(value, "ndim", 0) == 1
    table = _text(array) if is_flat else f"{_operand(array)}.ravel()"
    return _instead(site.node, _call(site.ours("getitem"), [table, _text(indices)]))


# ---- calls of other packages ----


def _of_package(site: _UserExpression, between: Sequence[FrameType]) -> str | None:
    """Advise for a call of another package: a counterpart, a copy of it, or an operator."""
    node = site.node
    called = _called(site, node.func) if isinstance(node, ast.Call) else None
    package = _package_of(called)
    outermost = between[-1].f_globals.get("__name__") if between else ""
    if "xarray" in (package, str(outermost).partition(".")[0]):
        return _of_xarray(site)
    if not package:
        return None
    name = _text(node.func)
    if (counterpart := _counterpart(called)) is not None:
        args = [*map(_text, node.args)]
        new = _call(counterpart, args, node.keywords)
        return f"{_instead(node, new)}, after import customop.scipy"
    reason = _unreached(called, between)
    if reason is not None:
        return (
            f"make an operator, with custom_op, of the code that calls {name}{reason}"
        )
    new = _call(site.ours("traceable"), [name])
    if isinstance(called, type):
        traceable = _call(site.ours("traceable"), ["f"])
        return f"call {name} in a function f(x), and write {traceable}(x)"
    return _instead(node, _call(new, [*map(_text, node.args)], node.keywords))


def _of_xarray(site: _UserExpression) -> str:
    """Advise for a call of xarray, in whose objects `traceable` sees no traced arrays."""
    func = getattr(site.node, "func", None)
    owner = func.value if isinstance(func, ast.Attribute) else None
    is_module = isinstance(site.value(owner), ModuleType)
    x = owner.id if isinstance(owner, ast.Name) and not is_module else "x"
    if getattr(func, "attr", "") not in ("interp", "interp_like"):
        return f"compute with the array {x}.data, by functions of NumPy"
    nan = site.numpy("nan")
    args = ["places", f"{x}[dim].data", f"{x}.data", f"left={nan}", f"right={nan}"]
    call = _call(site.numpy("interp"), args)
    return f"write {call} for one dim, row by row if {x} has others"


def _unreached(called: Any, between: Sequence[FrameType]) -> str | None:
    """Return why `traceable` doesn't help for a call, with the frames inside of it."""
    if not _is_python(called):
        return ", which is not written in Python"
    if between and _calls_compiled(between[0]):
        return ", which calls code that is not written in Python"
    return f": {_UNREACHED}" if any(map(_is_adapted, between)) else None


def _package_of(called: Any) -> str:
    """Return the installed package of a function or class, or of the class of an object."""
    for home in (called, type(called)):
        package = str(getattr(home, "__module__", None) or "").partition(".")[0]
        path = getattr(sys.modules.get(package), "__file__", None) or ""
        if is_installed_at(path) and package not in ("numpy", "customop"):
            return package
    return ""


def _calls_compiled(frame: FrameType) -> bool:
    """Return whether a frame runs compiled code of another package than NumPy."""
    site = _site_at(frame, frame.f_lasti)
    if site is None or not isinstance(site.node, ast.Call):
        return False
    called = _called(site, site.node.func)
    return isinstance(called, BuiltinFunctionType) and _package_of(called) != ""


_UNREACHED = "traceable does not reach code in C"


def _is_python(called: Any) -> bool:
    start = vars(called).get("__init__") if isinstance(called, type) else called
    return isinstance(start, FunctionType | MethodType)


def _called(site: _UserExpression, func: Any) -> Any:
    """Return the function that is called, or the method of the class of an object."""
    found = site.value(func)
    if found is None and isinstance(func, ast.Attribute):
        owner = type(site.value(func.value))
        found = next(
            (vars(c)[func.attr] for c in owner.__mro__ if func.attr in vars(c)), None
        )
    if isinstance(found, FunctionType | MethodType | type) or found is None:
        return found
    call = vars(type(found)).get("__call__")
    return call if isinstance(call, FunctionType) else found


def _counterpart(called: Any) -> str | None:
    """Return the name of a function of `customop.scipy` in the place of one of SciPy."""
    package, _, rest = str(getattr(called, "__module__", "")).partition(".")
    module, name = rest.partition(".")[0], getattr(called, "__name__", "")
    path = f"{__file__.rpartition('arrays')[0]}scipy/{module}.py"
    lines = linecache.getlines(path) if package == "scipy" and module else []
    # Read, since the import changes what SciPy's own functions do.
    listed = "".join(lines).partition("__all__ = [")[2].partition("]")[0]
    return f"customop.scipy.{module}.{name}" if f'"{name}"' in listed else None


# ---- text ----


def _of_text(site: _UserExpression) -> str | None:
    """Correct an f-string that formats a value."""
    node = site.within(ast.JoinedStr)
    if node is None:
        return None
    parts = [v for v in node.values if isinstance(v, ast.FormattedValue)]
    formatted = [v for v in parts if v.format_spec is not None]
    if len(formatted) != 1:
        return None
    one = formatted[0]
    plain = ast.FormattedValue(one.value, one.conversion, None)
    values: list[Any] = [plain if v is one else v for v in node.values]
    return _instead(node, _text(ast.JoinedStr(values)))


# ---- branches and loops ----


def _of_test(site: _UserExpression) -> str | None:
    """Correct a test of a value: a loop, a branch, or a comparison."""
    node = site.node
    place = _range(node)
    tests = (ast.While, ast.If, ast.IfExp)
    holder = site.within(*tests)
    if holder is None or place is None or not _holds(holder.test, place):
        return _of_operands(site)
    if isinstance(holder, ast.While):
        return _of_while(site, holder)
    if isinstance(holder, ast.IfExp):
        parts = [_mask(site, holder.test), _text(holder.body), _text(holder.orelse)]
        return _instead(holder, _call(site.numpy("where"), parts))
    return _of_if(site, holder)


def _of_operands(site: _UserExpression) -> str | None:
    """Correct ``p and q``, ``p or q``, ``not p`` and ``a < x < b``."""
    tests = [n for n in [*site.around, site.node] if _is_joined(n)]
    return _instead(tests[0], _mask(site, tests[0])) if tests else None


def _is_joined(node: Any) -> bool:
    """Return whether a test asks for the value of a part of it."""
    is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    is_chain = isinstance(node, ast.Compare) and len(node.ops) > 1
    return is_not or is_chain or isinstance(node, ast.BoolOp)


def _mask(site: _UserExpression, test: Any) -> str:
    """Write a test so that it asks for no value."""
    if isinstance(test, ast.BoolOp):
        sign = " & " if isinstance(test.op, ast.And) else " | "
        return sign.join([f"({_mask(site, v)})" for v in test.values])
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _call(site.numpy("logical_not"), [_mask(site, test.operand)])
    if not isinstance(test, ast.Compare) or len(test.ops) == 1:
        return _text(test)
    lefts = [test.left, *test.comparators]
    triples = zip(lefts, test.ops, test.comparators, strict=False)
    pairs = [_text(ast.Compare(left, [op], [right])) for left, op, right in triples]
    return " & ".join([f"({pair})" for pair in pairs])


def _of_while(site: _UserExpression, loop: ast.While) -> str | None:
    """Correct ``while x > 1:``."""
    nodes = [n for statement in loop.body for n in ast.walk(statement)]
    names = [n for n in nodes if isinstance(n, ast.Name)]
    stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    state = sorted(stored & set(site.frame.f_locals))
    if not state:
        return None
    test, more = _text(loop.test), _mask(site, loop.test)
    is_one = len(state) == 1
    carried = state[0] if is_one else f"({', '.join(state)})"
    # The function for a test takes the state as one argument.
    given = state[0] if is_one else "state"
    loop_call = _call(site.ours("while_loop"), ["more", "body", carried])
    return (
        f"{_instead(f'while {test}:', f'{carried} = {loop_call}')}, where"
        f" more({given}) returns {more} and body({given}) the next {carried}"
    )


def _of_if(site: _UserExpression, branch: ast.If) -> str | None:
    """Correct ``if x > 1:``."""
    test, mask = _text(branch.test), _mask(site, branch.test)
    pair = _branches(site, branch)
    if pair is None:
        cond = _call(site.ours("cond"), [mask, "f", "g", "x"])
        hint = "where f(x) and g(x) return the results of the two branches"
        return f"{_instead(f'if {test}:', cond)}, {hint}"
    start, a, b = pair
    where = _call(site.numpy("where"), [mask, _text(a), _text(b)])
    return _instead(f"if {test}:", f"{start}{where}")


def _branches(site: _UserExpression, branch: ast.If) -> tuple[str, Any, Any] | None:
    """Return what both branches return, or assign to the same name."""
    if len(branch.body) != 1 or len(branch.orelse) > 1:
        return None
    one: Any = branch.body[0]
    other: Any = branch.orelse[0] if branch.orelse else _next(site, branch)
    if isinstance(one, ast.Return) and isinstance(other, ast.Return):
        both = (one.value, other.value)
        return ("return ", *both) if None not in both else None
    if not isinstance(one, ast.Assign) or not isinstance(one.targets[0], ast.Name):
        return None
    name = one.targets[0].id
    if not branch.orelse:
        is_known = name in site.frame.f_locals
        return (f"{name} = ", one.value, one.targets[0]) if is_known else None
    same = isinstance(other, ast.Assign) and _text(other.targets[0]) == name
    return (f"{name} = ", one.value, other.value) if same else None


def _next(site: _UserExpression, statement: ast.stmt) -> Any:
    """Return the statement that follows one of the same block."""
    for node in site.around:
        block = getattr(node, "body", None)
        if isinstance(block, list) and statement in block[:-1]:
            return block[block.index(statement) + 1]
    return None


_CORRECTIONS: dict[Any, Callable[[_UserExpression], str | None]] = {
    ast.Subscript: _of_subscript,
    ast.Call: _of_call,
    (ast.JoinedStr, ast.FormattedValue): _of_text,
}
