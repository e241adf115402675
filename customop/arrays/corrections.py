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
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any, Final

import numpy as np

from customop.arrays.expressions import (
    UserExpression,
    call_text,
    holds,
    instead_of,
    is_adapted,
    is_extension,
    is_foreign,
    is_virtual,
    operand_text,
    raised_at,
    range_of,
    running,
    site_at,
    text_of,
    tree_of,
)
from customop.arrays.refusals import is_installed_at
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
    site = running(between) if error is None else raised_at(error)
    if site is None:
        return None
    advice = _of_package(site, between) if any(map(is_foreign, between)) else None
    advice = _advice(site) if advice is None and not between else advice
    if advice is None and any(map(is_adapted, between)):
        advice = f"make an operator, with custom_op, of the function: {_UNREACHED}"
    return None if advice is None or len(advice) > _LONGEST else advice


def explain_foreign(error: Exception) -> None:
    """Add advice to an error that compiled code of another package raises, or a dict."""
    site = raised_at(error)
    if site is None:
        return
    if type(error) is TypeError:
        advice = _of_unhashable(site)
    elif isinstance(site.node, ast.Call) and site.traced_name(site.node) is not None:
        is_python = _is_python(_called(site, site.node.func))
        advice = None if is_python else _of_package(site, [])
    else:
        return
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
    if node is not None and len(text_of(node)) < _LONGEST // 4:
        return f"{_changed(changes, node, known)} in place of {text_of(node)}"
    if has_aux or not plain.__name__.isidentifier():
        return _changed(changes, "value", known)
    code = plain.__code__
    given = code.co_varnames[plain is not fn : code.co_argcount] or ("...",)
    return _changed(changes, f"{plain.__name__}({', '.join(given)})", known)


def _changed(changes: Sequence[str], value: Any, numpy: str) -> str:
    whole, operand = (
        (value, value)
        if isinstance(value, str)
        else (text_of(value), operand_text(value))
    )
    texts = [c.format(np=numpy, value=whole, operand=operand) for c in changes]
    return f"return {' or '.join(texts)}"


def _returned(fn: FunctionType) -> Any:
    """Return the node of the only expression that a function returns, or None."""
    code = fn.__code__
    tree = tree_of("".join(linecache.getlines(code.co_filename, fn.__globals__)))
    places: list[Any] = [(a, c, b, d) for a, b, c, d in code.co_positions() if c or d]
    places = [place for place in places if None not in place]
    found: Any = None
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.Lambda):
            if all(holds(node.body, place) for place in places):
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


def _advice(site: UserExpression) -> str | None:
    node = site.node
    if _is_stored(site):
        return _of_store(site)
    for cls, correct in _CORRECTIONS.items():
        if isinstance(node, cls) and (advice := correct(site)) is not None:
            return advice
    return _of_test(site)


# ---- values of an array by a traced key ----


def _of_subscript(site: UserExpression) -> str | None:
    node = site.node
    owner = node.value
    if isinstance(owner, ast.Attribute) and owner.attr in ("r_", "c_"):
        return _of_grid(site)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    asked = [part for part in parts if _holds_traced(site, part)]
    is_cut = asked and all(isinstance(part, ast.Slice) for part in asked)
    if is_cut and isinstance(site.value(owner), np.ndarray | list | tuple):
        bounds = ast.iter_child_nodes(asked[0])
        bound = text_of(next(b for b in bounds if _holds_traced(site, b)))
        return _of_size(site, bound, bound)
    return _of_element(site, _key(site, node.slice))


def _of_element(site: UserExpression, key: str) -> str | None:
    """Correct ``table[x]``, given the text of a traced key."""
    node = site.node
    owner = node.value
    table, value = text_of(owner), site.value(owner)
    if isinstance(value, dict) or isinstance(owner, ast.Dict):
        return _of_dict(site, value or {}, key)
    if is_virtual(value):
        return instead_of(node, f"{table}[{key}]")
    if value is not None and not isinstance(value, np.ndarray | list | tuple):
        return None
    if isinstance(value, list | tuple) or isinstance(owner, ast.List | ast.Tuple):
        table = call_text(site.numpy("array"), [table])
    return instead_of(node, call_text(site.ours("getitem"), [table, key]))


def _key(site: UserExpression, key: Any) -> str:
    parts = key.elts if isinstance(key, ast.Tuple) else [key]
    if any(isinstance(part, ast.Slice) for part in parts):
        text = ", ".join([text_of(part) for part in parts])
        return f"{site.numpy('s_')}[{text}]"
    return text_of(key)


def _of_grid(site: UserExpression) -> str | None:
    """Correct ``np.r_[...]`` and ``np.c_[...]``."""
    node = site.node
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if any(isinstance(item, ast.Slice) for item in items):
        return None
    if node.value.attr == "c_":
        columns = ", ".join([text_of(item) for item in items])
        return instead_of(node, f"{site.numpy('column_stack')}([{columns}])")
    parts = [_row(item) for item in items]
    return instead_of(node, f"{site.numpy('hstack')}([{', '.join(parts)}])")


def _row(item: Any) -> str:
    """Write an item of ``np.r_`` for ``np.hstack``."""
    return f"[{text_of(item)}]" if isinstance(item, ast.Constant) else text_of(item)


# ---- what must be a plain number: sizes, numbers of turns, keys of a dict ----


def _of_int(site: UserExpression) -> str:
    """Correct ``int(x)`` with what is around it, which may ask for a plain number."""
    number = part = site.node
    old, new = text_of(number), f"{operand_text(number.args[0])}.astype(int)"
    for node in reversed(site.around):
        if isinstance(node, ast.BinOp | ast.UnaryOp) and not _repeats_list(node):
            part = node
        elif not isinstance(node, ast.Tuple | ast.List | ast.keyword):
            advice = _of_user_of_number(site.with_node(node), part, old, new)
            return advice or instead_of(number, new)
    return instead_of(number, new)


def _of_user_of_number(
    site: UserExpression, part: Any, old: str, new: str
) -> str | None:
    """Correct an expression of which a part must be a plain number, if it must."""
    node, place = site.node, range_of(part)
    assert place is not None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key = _key(site, node.slice).replace(old, new)
        return _of_element(site, key) if holds(node.slice, place) else None
    if isinstance(node, ast.Call) and site.value(node.func) is range:
        return _of_range(site, [text_of(a).replace(old, new) for a in node.args])
    is_size = isinstance(node, ast.Slice | ast.BinOp)
    if isinstance(node, ast.Call):
        is_size = any(holds(size, place) for size in _sizes(site))
    size = text_of(part)
    return _of_size(site, size, size.replace(old, new)) if is_size else None


def _repeats_list(node: Any) -> bool:
    """Return whether an expression is ``[x] * n``."""
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return is_product and (_is_list(node.left) or _is_list(node.right))


def _of_range(site: UserExpression, args: Sequence[str]) -> str | None:
    ends = ["0", *args] if len(args) == 1 else args
    loop = call_text(site.ours("fori_loop"), [*ends[:2], "body", "state"])
    hint = "where body(i, state) returns the next state"
    return f"{instead_of(site.node, loop)}, {hint}" if len(ends) == 2 else None


def _of_size(site: UserExpression, size: str, value: str) -> str:
    """Advise for a size that only a run knows."""
    plain = f"a size must be known: pass {size} as a plain number, from outside"
    if any(site.value(getattr(site.node, "func", None)) is f for f in _DIVIDING):
        return plain
    mask = f"{site.numpy('arange')}(n) < {value}"
    masked = call_text(site.numpy("where"), [mask, "y", "0"])
    return f"{plain}; or make y of the largest size n, and use {masked}"


# Their results are not the first rows of larger ones.
_DIVIDING = (np.linspace, np.logspace, np.geomspace)


def _of_sized(site: UserExpression, called: Any) -> str | None:
    """Correct a call of NumPy's function with a traced size."""
    sizes = _sizes(site) if called is not None else []
    found = [text_of(size) for size in sizes if _holds_traced(site, size)]
    return _of_size(site, found[0], found[0]) if found else None


def _sizes(site: UserExpression) -> list[Any]:
    """Return the arguments of a call of NumPy's function that are sizes."""
    called = site.value(site.node.func)
    name = getattr(called, "__name__", "")
    first, last = _SIZES.get(name, (0, 0))
    if getattr(np, name, None) is not called:
        return []
    named = [k.value for k in site.node.keywords if k.arg in _SIZE_NAMES]
    return [*site.node.args[first:last], *(named if last else ())]


# Function of NumPy -> which of its arguments say how large the result is.
_SIZES = {
    **dict.fromkeys(("zeros", "ones", "empty", "full", "identity", "indices"), (0, 1)),
    **dict.fromkeys(("eye", "tri"), (0, 2)),
    "arange": (0, 3),
    **dict.fromkeys(("linspace", "logspace", "geomspace"), (2, 3)),
    **dict.fromkeys(("reshape", "broadcast_to", "resize", "tile", "repeat"), (1, 2)),
}
_SIZE_NAMES = ("shape", "num", "N", "M", "reps", "repeats")


def _holds_traced(site: UserExpression, node: Any) -> bool:
    """Return whether the value of an expression depends on a traced one, not on its shape."""
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "size", "ndim"):
        return False
    if isinstance(node, ast.Call) and site.value(node.func) is len:
        return False
    if isinstance(node, ast.Name):
        return is_virtual(site.value(node))
    return any(_holds_traced(site, child) for child in ast.iter_child_nodes(node))


def _of_dict(site: UserExpression, table: dict[Any, Any], key: str) -> str:
    """Correct ``d[x]``: a dict looks keys up by their values."""
    node = site.node
    name, getitem = text_of(node.value), site.ours("getitem")
    numbers = [v for v in table.values() if isinstance(v, int | float | complex)]
    if [*table] == [*range(len(table))] and len(numbers) == len(table) > 0:
        values = call_text(site.numpy("array"), [f"[*{name}.values()]"])
        return instead_of(node, call_text(getitem, [values, key]))
    return (
        f"put the values of {name} in an array a, one row for each key, and write"
        f" {getitem}(a, i) for the row i in place of {text_of(node)}, since the key of a"
        " dict must be known"
    )


def _of_unhashable(site: UserExpression) -> str | None:
    """Correct ``d[x]``, which asks for the hash of a traced key."""
    node = site.node
    if not isinstance(node, ast.Subscript) or not _holds_traced(site, node.slice):
        return None
    table = site.value(node.value)
    key = text_of(node.slice)
    return _of_dict(site, table, key) if isinstance(table, dict) else None


# ---- traced values written into plain arrays ----


def _is_stored(site: UserExpression) -> bool:
    """Return whether the expression is the target of an assignment."""
    node = site.node
    if isinstance(node, ast.AugAssign):
        return True
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)


def _of_store(site: UserExpression) -> str | None:
    statement = site.within(ast.Assign, ast.AugAssign, ast.AnnAssign)
    target = statement.target if isinstance(site.node, ast.AugAssign) else site.node
    if isinstance(target, ast.Name):
        value = ast.BinOp(target, statement.op, statement.value)
        return instead_of(statement, f"{target.id} = {text_of(value)}")
    owner = target
    while isinstance(owner, ast.Subscript):
        owner = owner.value
    like = site.traced_name(statement.value) if statement is not None else None
    like = like or site.traced_name(target)
    if not isinstance(owner, ast.Name) or like is None:
        return None
    return _of_buffer(site, owner, like)


def _of_buffer(site: UserExpression, owner: ast.Name, like: str) -> str | None:
    """Correct the line that makes a local array which a traced value is written into."""
    array = site.value(owner)
    if isinstance(array, list):
        return instead_of(
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
                arguments = [*map(text_of, call.args)]
                new = call_text(
                    text_of(call.func),
                    [*arguments, *map(text_of, others), f"like={like}"],
                )
                line = f"{text_of(made)} (line {made.lineno})"
                return instead_of(line, f"{owner.id} = {new}")
    if type(array) is not np.ndarray or array.dtype.kind not in "biufc":
        return None
    copied = call_text(site.numpy("array"), [owner.id, f"like={like}"])
    line = text_of(site.within(ast.stmt))
    code = site.frame.f_code
    if owner.id in (*code.co_varnames, *code.co_cellvars):
        return f"write {owner.id} = {copied} before the line {line}"
    # A name of an outer scope cannot be assigned here.
    return f"write new = {copied}, and new in place of {owner.id} in the line {line}"


def _makes_arrays(site: UserExpression, call: ast.Call) -> bool:
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


def _of_call(site: UserExpression) -> str | None:
    node = site.node
    called = site.value(node.func)
    if any(isinstance(a, ast.Starred) for a in node.args) or not node.args:
        return _of_method(site, called)
    if getattr(called, "__module__", None) in ("math", "cmath"):
        return _of_math(site, called.__name__)
    for correct in (_of_builtin, _of_sized, _of_numpy, _of_method):
        advice = correct(site, called)
        if advice is not None:
            return advice
    return _of_package(site, [])


def _of_math(site: UserExpression, name: str) -> str | None:
    node = site.node
    args = [text_of(a) for a in node.args]
    if name == "log" and len(args) == 2:
        log = site.numpy("log")
        return instead_of(node, f"{log}({args[0]}) / {log}({args[1]})")
    if name in _SPECIAL:
        new = call_text(f"scipy.special.{_SPECIAL[name]}", args)
        return f"{instead_of(node, new)}, after import customop.scipy"
    other = _MATH.get(name, name)
    if not isinstance(getattr(np, other, None), np.ufunc):
        return None
    return instead_of(node, call_text(site.numpy(other), args))


# Names of `math` that NumPy or SciPy spells otherwise.
_MATH = {
    "pow": "power",
    **{name: name.replace("a", "arc", 1) for name in ("asin", "acos", "atan", "atan2")},
    **{name: name.replace("a", "arc", 1) for name in ("asinh", "acosh", "atanh")},
}
_SPECIAL = {"erf": "erf", "erfc": "erfc", "gamma": "gamma", "lgamma": "gammaln"}


def _of_builtin(site: UserExpression, called: Any) -> str | None:
    """Correct a call of a function of Python."""
    node = site.node
    args = [text_of(a) for a in node.args]
    name = _named(_CLASSES, called)
    if name is not None and len(args) == 1:
        if called is int:
            return _of_int(site)
        owner = operand_text(node.args[0])
        return instead_of(node, f"{owner}.astype({name})" if name else args[0])
    if called is range:
        return _of_range(site, args)
    name = _named(_REDUCTIONS, called)
    if name is None or node.keywords:
        return None
    array = args[0] if is_virtual(site.value(node.args[0])) else None
    listed = args[0] if len(args) == 1 else f"[{', '.join(args)}]"
    array = array or call_text(site.ours("array"), [listed])
    return instead_of(node, call_text(site.numpy(name), [array]))


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


def _of_numpy(site: UserExpression, called: Any) -> str | None:
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
        like = site.traced_name(node.args[1]) or text_of(node.args[1])
        return instead_of(node, _with_like(node, like))
    if called is np.take and len(node.args) == 2:
        return _of_take(site, *node.args)
    is_conversion = any(called is function for function in _CONVERSIONS)
    return _of_conversion(site, called) if is_conversion else _of_lists(site)


def _of_out(site: UserExpression, out: ast.keyword) -> str | None:
    """Correct a call that writes its result into a plain array."""
    node = site.node
    if any(k.arg == "where" for k in node.keywords):
        return None  # the other elements come from the array
    others = [k for k in node.keywords if k is not out]
    new = call_text(text_of(node.func), [*map(text_of, node.args)], others)
    is_named = isinstance(out.value, ast.Name)
    return instead_of(node, f"{text_of(out.value)} = {new}" if is_named else new)


def _of_conversion(site: UserExpression, called: Any) -> str:
    """Correct ``np.array(...)``, ``np.asarray(...)`` and the like."""
    node = site.node
    if called is not np.array and is_virtual(site.value(node.args[0])):
        return instead_of(node, _with_like(node, text_of(node.args[0])))
    args = [text_of(a) for a in node.args]
    return instead_of(node, call_text(site.ours("array"), args, node.keywords))


def _with_like(node: ast.Call, like: str) -> str:
    args = [*map(text_of, node.args), *map(text_of, node.keywords)]
    return call_text(text_of(node.func), [*args, f"like={like}"])


_CONVERSIONS = (
    *(np.array, np.asarray, np.asanyarray),
    *(np.ascontiguousarray, np.asfortranarray),
)


def _of_lists(site: UserExpression) -> str | None:
    """Correct a call of NumPy's function that has traced values in a list."""
    node = site.node
    first = node.args[0]
    joins = isinstance(first, ast.List | ast.Tuple) and any(map(_is_list, first.elts))
    if joins and getattr(site.value(node.func), "__name__", "") in _JOINS:
        items = [_as_array(site, item) for item in first.elts]
        args = [f"[{', '.join(items)}]", *map(text_of, node.args[1:])]
    else:
        args = [_as_array(site, a) for a in node.args]
    if args == [*map(text_of, node.args)]:
        return None
    return instead_of(node, call_text(text_of(node.func), args, node.keywords))


_JOINS = ("concatenate", "stack", "hstack", "vstack", "column_stack", "dstack")


def _is_list(node: Any) -> bool:
    return isinstance(node, ast.List | ast.Tuple | ast.ListComp)


def _as_array(site: UserExpression, node: Any) -> str:
    """Write an argument; one that holds traced values in a list as an array."""
    found = site.value(node)
    if isinstance(found, list | tuple):
        has_traced = any(map(is_virtual, _leaves(found)))
    else:
        has_traced = _is_list(node) and not _is_plain(site, node)
    return (
        call_text(site.ours("array"), [text_of(node)]) if has_traced else text_of(node)
    )


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _is_plain(site: UserExpression, node: Any) -> bool:
    """Return whether a list has no name of a traced value."""
    is_made = isinstance(node, ast.ListComp)
    return not is_made and site.traced_name(node) is None


def _of_method(site: UserExpression, called: Any) -> str | None:
    """Correct a call of a method of a plain or traced array."""
    node = site.node
    if not isinstance(node.func, ast.Attribute) or called is not None:
        return None
    name, owner, value = node.func.attr, node.func.value, site.value(node.func.value)
    if name == "item" and not node.args and not node.keywords:
        return _of_item(site, owner)
    if not isinstance(value, np.ndarray | None):
        return None
    args = [text_of(a) for a in node.args]
    if name == "dot" and len(args) == 1:
        return instead_of(node, f"{operand_text(owner)} @ {operand_text(node.args[0])}")
    if name == "take" and len(args) == 1:
        return _of_take(site, owner, node.args[0])
    new = call_text(site.numpy(name), [text_of(owner), *args], node.keywords)
    return instead_of(node, new) if name in ("clip", "searchsorted") else None


def _of_item(site: UserExpression, owner: Any) -> str | None:
    """Correct ``x.item()``."""
    value = site.value(owner)
    if is_virtual(value) and value.size != 1:
        return None  # as in NumPy, which raises for it
    is_scalar = is_virtual(value) and value.shape == ()
    new = text_of(owner) if is_scalar else f"{operand_text(owner)}.reshape(())"
    return instead_of(site.node, new)


def _of_take(site: UserExpression, array: Any, indices: Any) -> str | None:
    """Correct ``np.take(array, indices)`` and ``array.take(indices)``."""
    value = site.value(array)
    axes = [text_of(k.value) for k in site.node.keywords if k.arg == "axis"]
    if len(axes) != len(site.node.keywords) or axes not in ([], ["0"]):
        return None
    is_flat = bool(axes) or getattr(value, "ndim", 0) == 1
    table = text_of(array) if is_flat else f"{operand_text(array)}.ravel()"
    return instead_of(
        site.node, call_text(site.ours("getitem"), [table, text_of(indices)])
    )


# ---- calls of other packages ----


def _of_package(site: UserExpression, between: Sequence[FrameType]) -> str | None:
    """Advise for a call of another package: a counterpart, a copy of it, or an operator."""
    node = site.node
    called = _called(site, node.func) if isinstance(node, ast.Call) else None
    package = _package_of(called)
    outermost = between[-1].f_globals.get("__name__") if between else ""
    if "xarray" in (package, str(outermost).partition(".")[0]):
        return _of_xarray(site)
    if not package:
        return None
    name = text_of(node.func)
    if (counterpart := _counterpart(called)) is not None:
        args = [*map(text_of, node.args)]
        new = call_text(counterpart, args, node.keywords)
        return f"{instead_of(node, new)}, after import customop.scipy"
    reason = _unreached(called, between)
    if reason is not None:
        return (
            f"make an operator, with custom_op, of the code that calls {name}{reason}"
        )
    new = call_text(site.ours("traceable"), [name])
    if isinstance(called, type):
        traceable = call_text(site.ours("traceable"), ["f"])
        return f"call {name} in a function f(x), and write {traceable}(x)"
    return instead_of(node, call_text(new, [*map(text_of, node.args)], node.keywords))


def _of_xarray(site: UserExpression) -> str:
    """Advise for a call of xarray, in whose objects `traceable` sees no traced arrays."""
    func = getattr(site.node, "func", None)
    owner = func.value if isinstance(func, ast.Attribute) else None
    is_module = isinstance(site.value(owner), ModuleType)
    x = owner.id if isinstance(owner, ast.Name) and not is_module else "x"
    if getattr(func, "attr", "") not in ("interp", "interp_like"):
        return f"compute with the array {x}.data, by functions of NumPy"
    nan = site.numpy("nan")
    args = ["places", f"{x}[dim].data", f"{x}.data", f"left={nan}", f"right={nan}"]
    call = call_text(site.numpy("interp"), args)
    return f"write {call} for one dim, row by row if {x} has others"


def _unreached(called: Any, between: Sequence[FrameType]) -> str | None:
    """Return why `traceable` doesn't help for a call, with the frames inside of it."""
    if not _is_python(called):
        return ", which is not written in Python"
    if between and _calls_compiled(between[0]):
        return ", which calls code that is not written in Python"
    return f": {_UNREACHED}" if any(map(is_adapted, between)) else None


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
    site = site_at(frame, frame.f_lasti)
    if site is None or not isinstance(site.node, ast.Call):
        return False
    called = _called(site, site.node.func)
    # What it calls later, with the arrays that it converts.
    later = [frame.f_globals.get(name) for name in frame.f_code.co_names]
    is_compiled = isinstance(called, BuiltinFunctionType) and _package_of(called) != ""
    return is_compiled or any(map(is_extension, later))


_UNREACHED = "traceable does not reach code in C"


def _is_python(called: Any) -> bool:
    start = vars(called).get("__init__") if isinstance(called, type) else called
    return isinstance(start, FunctionType | MethodType)


def _called(site: UserExpression, func: Any) -> Any:
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


def _of_text(site: UserExpression) -> str | None:
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
    return instead_of(node, text_of(ast.JoinedStr(values)))


# ---- branches and loops ----


def _of_test(site: UserExpression) -> str | None:
    """Correct a test of a value: a loop, a branch, or a comparison."""
    node = site.node
    place = range_of(node)
    tests = (ast.While, ast.If, ast.IfExp)
    holder = site.within(*tests)
    if holder is None or place is None or not holds(holder.test, place):
        return _of_operands(site)
    if isinstance(holder, ast.While):
        return _of_while(site, holder)
    if isinstance(holder, ast.IfExp):
        parts = [_mask(site, holder.test), text_of(holder.body), text_of(holder.orelse)]
        return instead_of(holder, call_text(site.numpy("where"), parts))
    return _of_if(site, holder)


def _of_operands(site: UserExpression) -> str | None:
    """Correct ``p and q``, ``p or q``, ``not p`` and ``a < x < b``."""
    tests = [n for n in [*site.around, site.node] if _is_joined(n)]
    return instead_of(tests[0], _mask(site, tests[0])) if tests else None


def _is_joined(node: Any) -> bool:
    """Return whether a test asks for the value of a part of it."""
    is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    is_chain = isinstance(node, ast.Compare) and len(node.ops) > 1
    return is_not or is_chain or isinstance(node, ast.BoolOp)


def _mask(site: UserExpression, test: Any) -> str:
    """Write a test so that it asks for no value."""
    if isinstance(test, ast.BoolOp):
        sign = " & " if isinstance(test.op, ast.And) else " | "
        return sign.join([f"({_mask(site, v)})" for v in test.values])
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return call_text(site.numpy("logical_not"), [_mask(site, test.operand)])
    if not isinstance(test, ast.Compare) or len(test.ops) == 1:
        return text_of(test)
    lefts = [test.left, *test.comparators]
    triples = zip(lefts, test.ops, test.comparators, strict=False)
    pairs = [text_of(ast.Compare(left, [op], [right])) for left, op, right in triples]
    return " & ".join([f"({pair})" for pair in pairs])


def _of_while(site: UserExpression, loop: ast.While) -> str | None:
    """Correct ``while x > 1:``."""
    nodes = [n for statement in loop.body for n in ast.walk(statement)]
    names = [n for n in nodes if isinstance(n, ast.Name)]
    stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    state = sorted(stored & set(site.frame.f_locals))
    if not state:
        return None
    test, more = text_of(loop.test), _mask(site, loop.test)
    is_one = len(state) == 1
    carried = state[0] if is_one else f"({', '.join(state)})"
    # The function for a test takes the state as one argument.
    given = state[0] if is_one else "state"
    loop_call = call_text(site.ours("while_loop"), ["more", "body", carried])
    return (
        f"{instead_of(f'while {test}:', f'{carried} = {loop_call}')}, where"
        f" more({given}) returns {more} and body({given}) the next {carried}"
    )


def _of_if(site: UserExpression, branch: ast.If) -> str | None:
    """Correct ``if x > 1:``."""
    test, mask = text_of(branch.test), _mask(site, branch.test)
    pair = _branches(site, branch)
    if pair is None:
        cond = call_text(site.ours("cond"), [mask, "f", "g", "x"])
        hint = "where f(x) and g(x) return the results of the two branches"
        return f"{instead_of(f'if {test}:', cond)}, {hint}"
    start, a, b = pair
    where = call_text(site.numpy("where"), [mask, text_of(a), text_of(b)])
    return instead_of(f"if {test}:", f"{start}{where}")


def _branches(site: UserExpression, branch: ast.If) -> tuple[str, Any, Any] | None:
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
    same = isinstance(other, ast.Assign) and text_of(other.targets[0]) == name
    return (f"{name} = ", one.value, other.value) if same else None


def _next(site: UserExpression, statement: ast.stmt) -> Any:
    """Return the statement that follows one of the same block."""
    for node in site.around:
        block = getattr(node, "body", None)
        if isinstance(block, list) and statement in block[:-1]:
            return block[block.index(statement) + 1]
    return None


_CORRECTIONS: dict[Any, Callable[[UserExpression], str | None]] = {
    ast.Subscript: _of_subscript,
    ast.Call: _of_call,
    (ast.JoinedStr, ast.FormattedValue): _of_text,
}
