"""How the calls of NumPy's operators are written, and which kernels are the original ones."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from customop.arrays.fake import FakeArray
from customop.core.table import RuleTable, changing
from customop.graph.node import Node
from customop.graph.replay import can_be_direct, kernel_of
from customop.graph.writer import GraphLines
from customop.shapes.sizes import same_shape

# ---- kernels of NumPy's operators, and whether they are still the original ones ----


class _KnownKernel(NamedTuple):
    """The kernel of an operator of NumPy as long as no table of rules changes."""

    changes: int
    builtin: Callable[..., Any] | None = None
    ufunc: np.ufunc | None = None


# Passes ask ten times for each node; operators of NumPy are never deleted.
_kernels: dict[RuleTable, _KnownKernel] = {}


def _kernel(op: object) -> _KnownKernel:
    if not isinstance(op, RuleTable) or op.namespace != "np":
        return _NONE
    known = _kernels.get(op)
    if known is None or known.changes != changing.count:
        known = _kernels[op] = _look_up(op)
    return known


_NONE: Final = _KnownKernel(0)


def _look_up(op: RuleTable) -> _KnownKernel:
    changes = changing.count  # before the kernel, which another thread may replace
    kernel = kernel_of(op)
    if isinstance(kernel, np.ufunc):
        if kernel.__name__ != op.name:
            return _KnownKernel(changes)
        return _KnownKernel(changes, kernel, kernel if can_be_direct(op) else None)
    module = getattr(kernel, "__module__", None) or ""
    is_own = module.startswith("customop.numpy.")
    return _KnownKernel(changes, kernel if is_own else None)


def builtin_kernel(op: object) -> Callable[..., Any] | None:
    """Return the kernel of an operator of NumPy, if it is the one of the package."""
    return _kernel(op).builtin


def is_builtin(op: object) -> bool:
    """Return whether an operator is one of NumPy, with the kernel of the package."""
    return _kernel(op).builtin is not None


def ufunc_of(op: RuleTable) -> np.ufunc | None:
    """Return the ufunc that is the kernel of an operator, or None."""
    return _kernel(op).ufunc


# ---- how the calls of NumPy's operators are written ----
# The shortest text of the same call.
#
# Each writer is for one operator with the kernel of the package. It gives the text of
# an expression, or None where the kernel is to be called.


def is_array_node(value: Any) -> bool:
    """Return whether an argument is an array with axes, not a scalar."""
    is_array = isinstance(value, Node) and isinstance(value.val, FakeArray)
    return is_array and len(value.val.shape) > 0


# ---- ufuncs ----

# Operators of Python on arrays are the ufuncs, and take less time to call.
_SYMBOLS: Mapping[np.ufunc, str] = {
    np.add: "+",
    np.subtract: "-",
    np.multiply: "*",
    np.divide: "/",
    np.equal: "==",
    np.not_equal: "!=",
    np.less: "<",
    np.less_equal: "<=",
    np.greater: ">",
    np.greater_equal: ">=",
    np.bitwise_and: "&",
    np.bitwise_or: "|",
    np.bitwise_xor: "^",
}
# What Python does for ``x += y``, in half of the time of a call with ``out=``.
_IN_PLACE: Mapping[np.ufunc, Callable[[Any, Any], Any]] = {
    np.add: operator.iadd,
    np.subtract: operator.isub,
    np.multiply: operator.imul,
    np.divide: operator.itruediv,
}
# Name of a ufunc -> the operator of Python that calls it for arrays. NumPy's scalars have
# arithmetic of their own.
OF_SCALARS: Final[Mapping[str, Callable[..., Any]]] = {
    "absolute": operator.abs,
    "add": operator.add,
    "divide": operator.truediv,
    "equal": operator.eq,
    "floor_divide": operator.floordiv,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "less": operator.lt,
    "less_equal": operator.le,
    "multiply": operator.mul,
    "negative": operator.neg,
    "not_equal": operator.ne,
    "power": operator.pow,
    "remainder": operator.mod,
    "subtract": operator.sub,
}
# Of NumPy's scalars these have the same results, in a tenth of the time.
_SAME_OF_SCALARS = frozenset((np.add, np.subtract, np.multiply, np.divide))


def out_of(node: Node) -> Node | None:
    """Return the array that a call writes its result to, in place of a new one."""
    out: Node | None = node.fact("out")
    return out


def _is_in(array: Node, value: Any) -> bool:
    """Return whether a value is an array, or was written to it."""
    return isinstance(value, Node) and (value is array or out_of(value) is array)


def ufunc_text(
    lines: GraphLines, ufunc: np.ufunc, node: Node, out: Node | None = None
) -> str:
    """Return the call of a ufunc, which may write to an array."""
    operands: Sequence[Any] = node.values()
    if node.written:
        return node.written.format(*[_operand(lines.value(v)) for v in operands])
    has_array = any(map(is_array_node, operands))
    if has_array:
        operands = strong_operands(ufunc, operands)
    texts = [lines.value(v) for v in operands]
    given = out_of(node)
    if given is not None and ufunc in _IN_PLACE and _is_in(given, operands[0]):
        update = _IN_PLACE[ufunc]
        return f"{lines.bind(update.__name__, update)}({', '.join(texts)})"
    if given is not None:
        texts.append(f"out={lines.value(given)}")
    elif out is not None:
        # NumPy 2.4 warns of three positional arguments of these.
        name = "out=" if ufunc in (np.maximum, np.minimum) else ""
        texts.append(f"{name}{lines.value(out)}")
    symbol = _SYMBOLS.get(ufunc) if given is None and out is None else None
    # A function of scalars warns in other words than their operators do. Products of
    # complex ones have nan of other signs, and those of Python's are Python's.
    is_same = (
        ufunc in _SAME_OF_SCALARS and not node.must_run and node.val.dtype.kind != "c"
    )
    if symbol and (has_array or is_same):
        return f"{_operand(texts[0])} {symbol} {_operand(texts[1])}"
    return f"{lines.bind(ufunc.__name__, ufunc)}({', '.join(texts)})"


def _operand(text: str) -> str:
    """Return the text of an operand beside an operator, in brackets where it needs them."""
    return (
        text if text.replace(".", "").isalnum() or text.isidentifier() else f"({text})"
    )


def strong_operands(ufunc: np.ufunc, operands: Sequence[Any]) -> Sequence[Any]:
    """Return the operands with arrays without axes in the place of Python's numbers.

    They have the dtype to which NumPy would convert the numbers, in a third of the time of
    a call.
    """
    numbers = [v for v in operands if not isinstance(v, Node)]
    if not numbers:
        return operands
    kinds = tuple([_kind(v) for v in operands])
    if any(kind is None for kind in kinds):  # a dtype may equal None
        return operands
    found = _strong(ufunc, kinds, tuple([_Exact(v) for v in numbers]))
    if found is None:
        return operands
    arrays = iter(found)
    return [v if isinstance(v, Node) else next(arrays) for v in operands]


class _Exact:
    """A number as a key: equal ones may not be the same, such as 0.0 and -0.0."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.value: Any = value
        self.key: Any = value if type(value) is int else repr(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Exact) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=1024)
def _strong(
    ufunc: np.ufunc, kinds: tuple[Any, ...], numbers: tuple[_Exact, ...]
) -> list[Any] | None:
    """Return an array for each number; None where these would not give the same.

    Nobody writes the arrays, so that all calls may have the same ones.
    """
    found = resolved(ufunc, kinds)
    if found is None:
        return None
    at = [i for i, kind in enumerate(kinds) if not isinstance(kind, np.dtype)]
    pairs = zip(at, numbers, strict=True)
    new = [as_dtype(number.value, found[i]) for i, number in pairs]
    kinds = tuple(
        [k if isinstance(k, np.dtype) else found[i] for i, k in enumerate(kinds)]
    )
    if any(v is None for v in new) or resolved(ufunc, kinds) != found:
        return None
    return new


def resolved_dtypes(
    ufunc: np.ufunc, operands: Sequence[Any]
) -> Sequence[np.dtype[Any]] | None:
    """Return the dtypes that a ufunc takes for its operands and gives, or None."""
    kinds = [np.dtype(bool) if type(v) is bool else _kind(v) for v in operands]
    return None if any(kind is None for kind in kinds) else resolved(ufunc, kinds)


def _kind(value: Any) -> Any:
    """Return the dtype of an operand, or the class of a number of Python."""
    if isinstance(value, Node):
        return value.val.dtype if isinstance(value.val, FakeArray) else None
    return type(value) if type(value) in (int, float, complex) else None


def resolved(ufunc: np.ufunc, kinds: Sequence[Any]) -> Sequence[np.dtype[Any]] | None:
    """Return the dtypes that a ufunc takes and gives for dtypes and classes, or None."""
    return _resolved(ufunc, tuple(kinds))


@lru_cache(maxsize=1024)
def _resolved(
    ufunc: np.ufunc, kinds: tuple[Any, ...]
) -> Sequence[np.dtype[Any]] | None:
    try:
        return ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout))
    except (TypeError, ValueError):  # the call raises, as it should
        return None


def as_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number as a 0-d array; None if NumPy may warn, raise or round twice."""
    if dtype.kind not in "iufc" or (isinstance(value, float) and dtype.kind in "iu"):
        return None
    try:
        if isinstance(value, int) and dtype.kind in "fc":
            return np.array(value, dtype) if abs(value) <= _exact_up_to(dtype) else None
        with np.errstate(all="raise"):
            return np.array(value, dtype)
    except (OverflowError, TypeError, FloatingPointError):
        return None


@cache
def _exact_up_to(dtype: np.dtype[Any]) -> int:
    """Return the integers up to this are the same number in a dtype of floats."""
    return int(2 ** (np.finfo(dtype).nmant + 1))


# ---- other operators ----


def _slice(lines: GraphLines, node: Node) -> str | None:
    x, key = node.values()
    if not all(type(n) is int or n is None for entry in key for n in entry):
        return None
    made = [slice(*e) if len(e) == 3 else e[0] if len(e) == 1 else None for e in key]
    return f"{lines.value(x)}[{lines.bind('key', tuple(made))}]"


def _expand_dims(lines: GraphLines, node: Node) -> str | None:
    x, axes = node.values()
    key: list[Any] = [slice(None)] * (len(node.val.shape))
    for axis in axes:
        key[axis] = None
    return f"{lines.value(x)}[{lines.bind('key', tuple(key))}]"


def _squeeze(lines: GraphLines, node: Node) -> str | None:
    x, axes = node.values()
    if not (is_array_node(x) and is_array_node(node)):
        return None  # an index for each axis would give a scalar
    ones = {axis % len(x.val.shape) for axis in axes}
    key = tuple([0 if i in ones else slice(None) for i in range(len(x.val.shape))])
    return f"{lines.value(x)}[{lines.bind('key', key)}]"


def _transpose(lines: GraphLines, node: Node) -> str | None:
    x, axes = node.values()
    if [*axes] == [*range(len(axes))][::-1]:
        return f"{lines.value(x)}.T"
    return f"{lines.value(x)}.transpose({tuple(axes)})"


def _method(name: str) -> Callable[[GraphLines, Node], str | None]:
    """Return the method of arrays that a kernel calls with its second argument."""

    def write(lines: GraphLines, node: Node) -> str | None:
        x, given = node.values()
        if type(given) is list:
            given = tuple(given)
        return f"{lines.value(x)}.{name}({lines.value(given)})"

    return write


def _matmul(lines: GraphLines, node: Node) -> str | None:
    a, b = node.values()
    if not (is_array_node(a) and is_array_node(b)):
        return None
    return f"{lines.value(a)} @ {lines.value(b)}"


def _where(lines: GraphLines, node: Node) -> str | None:
    texts = [lines.value(v) for v in node.values()]
    return f"{lines.bind('where', np.where)}({', '.join(texts)})"


def _reduction(ufunc: np.ufunc) -> Callable[[GraphLines, Node], str | None]:
    """Return the reduction by a ufunc, which the kernel calls with keywords."""
    method = ufunc.reduce  # one object, so that it has one name

    def write(lines: GraphLines, node: Node) -> str | None:
        x, axis, keepdims = node.values()
        if not is_array_node(x):
            return None
        axes = None if axis is None else tuple(axis)
        reduce = lines.bind(f"{ufunc.__name__}_reduce", method)
        return f"{reduce}({lines.value(x)}, {axes}, None, None, {keepdims})"

    return write


def _unslice(lines: GraphLines, node: Node) -> str | None:
    g, shape, key = node.values()
    is_fixed = all(type(n) is int for n in shape) and is_array_node(g)
    if not is_fixed or not all(type(n) is int or n is None for e in key for n in e):
        return None
    made = [slice(*e) if len(e) == 3 else e[0] if len(e) == 1 else None for e in key]
    place = lines.bind("placed", _placed)
    dtype = lines.bind("dtype", node.val.dtype)
    at = lines.bind("key", tuple(made))
    return f"{place}({lines.value(g)}, {tuple(shape)}, {dtype}, {at})"


def _placed(
    g: Any, shape: tuple[int, ...], dtype: Any, key: Any, zeros: Any = np.zeros
) -> Any:
    """Return zeros with an array in some place; without axes, a scalar."""
    out = zeros(shape, dtype)
    out[key] = g
    return out if shape else out[()]


def _number(lines: GraphLines, node: Node) -> str:
    value, dtype = node.values()
    convert, kind = lines.bind("converted", _converted), lines.bind("dtype", dtype)
    return f"{convert}({lines.value(value)}, {kind})"


def _converted(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number as a 0-d array; the number itself if NumPy may warn or raise."""
    found = as_dtype(value, dtype)
    return value if found is None else found


def _assign(lines: GraphLines, node: Node) -> str:
    target, value = node.values()
    write = lines.bind("setitem", operator.setitem)
    return f"{write}({lines.value(target)}, ..., {lines.value(value)})"


def _set_slice(lines: GraphLines, node: Node) -> str | None:
    target, value, key = node.values()
    if not all(type(n) is int or n is None for entry in key for n in entry):
        return None
    made = [slice(*e) if len(e) == 3 else e[0] if len(e) == 1 else None for e in key]
    write, at = lines.bind("setitem", operator.setitem), lines.bind("key", tuple(made))
    return f"{write}({lines.value(target)}, {at}, {lines.value(value)})"


def _index(lines: GraphLines, node: Node) -> str | None:
    x, indices, packed = node.values()
    if packed or not is_array_node(x) or not all(map(_is_list_of_places, indices)):
        return None
    texts = [lines.value(v) for v in indices]
    if len(texts) == 1 and len(x.val.shape) > 1:
        return f"{lines.bind('rows', _rows)}({lines.value(x)}, {texts[0]})"
    same = all(same_shape(v.val.shape, indices[0].val.shape) for v in indices)
    return f"{lines.value(x)}[{', '.join(texts)}]" if same else None


def _is_list_of_places(value: Any) -> bool:
    """Return whether an index is an array of integers with one axis."""
    return (
        is_array_node(value)
        and len(value.val.shape) == 1
        and value.val.dtype.kind == "i"
    )


def _rows(x: Any, places: Any) -> Any:
    """Index the first axis; `take` is quicker for arrays in C order."""
    return x.take(places, 0) if x.size and x.flags.c_contiguous else x[places]


def _flip(lines: GraphLines, node: Node) -> str | None:
    x, axes = node.values()
    if not is_array_node(x):
        return None
    key = [slice(None)] * len(x.val.shape)
    for axis in axes:
        key[axis] = slice(None, None, -1)
    return f"{lines.value(x)}[{lines.bind('key', tuple(key))}]"


def _concatenate(lines: GraphLines, node: Node) -> str | None:
    arrays, axis = node.values()
    join = lines.bind("concatenate", np.concatenate)
    return f"{join}([{', '.join([lines.value(a) for a in arrays])}], {axis})"


# Operators that only graphs have -> what writes their calls.
WRITING: Mapping[str, Callable[[GraphLines, Node], str | None]] = {
    "customop::number": _number,
    "customop::assign": _assign,
    "customop::set_slice": _set_slice,
}

# Name of an operator -> what writes its calls.
WRITERS: Mapping[str, Callable[[GraphLines, Node], str | None]] = {
    "np::slice": _slice,
    "np::index": _index,
    "np::flip": _flip,
    "np::concatenate": _concatenate,
    "np::expand_dims": _expand_dims,
    "np::reshape": _method("reshape"),
    "np::transpose": _transpose,
    "np::squeeze": _squeeze,
    "np::astype": _method("astype"),
    "np::matmul": _matmul,
    "np::where": _where,
    "np::sum": _reduction(np.add),
    "np::max": _reduction(np.maximum),
    "np::min": _reduction(np.minimum),
    "np::unslice": _unslice,
}
