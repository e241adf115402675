"""Random generators in a captured function: their draws are calls in the graph.

A generator is an input or a constant of the graph, and each draw the call of an operator.
So the graph draws again whenever it runs, in the same order. Tracing draws from a copy.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cache
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from customop.arrays.draws import instead_of_draw
from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_fake, is_traced
from customop.core.operator import Operator
from customop.errors import GraphError, caller_place
from customop.library.define import custom_op
from customop.schema.tags import Tag
from customop.transforms.generators import DrawWatch, name_of, sources

if TYPE_CHECKING:
    from customop.transforms.trace.interpreter import Trace

__all__ = [
    "check_undrawn",
    "is_generator",
    "traced_generator",
    "watch_of",
    "with_generators",
]


def is_generator(value: Any) -> bool:
    """Whether a value is a generator of NumPy."""
    module: Any = sys.modules.get("numpy.random")  # imported by whoever has one
    return module is not None and isinstance(value, module.Generator)


# ---- the operator ----


def _draw(
    generator: np.random.Generator,
    method: str,
    size: Sequence[int] | None,
    dtype: Any,
    arguments: str,
) -> Any:
    named = ast.literal_eval(arguments)
    if size is not None:
        named["size"] = tuple(size)
    if dtype is not None:
        named["dtype"] = dtype
    return getattr(generator, method)(**named)


draw: Operator[..., Any] = custom_op(
    "customop::draw",
    _draw,
    mutates_args=(),
    schema="(Generator generator, str method, int[]? size, dtype? dtype,"
    " str arguments) -> Array",
    tags=Tag.nondeterministic_seeded,
)

# Distributions of vectors, and `choice`: a draw has axes behind those of `size`.
_VECTORS = frozenset(
    (
        *("choice", "dirichlet", "multinomial"),
        *("multivariate_hypergeometric", "multivariate_normal"),
    )
)


@draw.register_fake
def _(generator: Any, method: str, size: Any, dtype: Any, arguments: str) -> Any:
    other = np.random.default_rng(0)
    one = np.asarray(_draw(other, method, None, dtype, arguments))
    if size is None:
        return FakeArray(one.shape, one.dtype)
    is_vector = method in _VECTORS
    event = _draw(other, method, (), dtype, arguments).shape if is_vector else ()
    return FakeArray((*size, *event), one.dtype)


# ---- generators that note their draws ----

# Methods that do something other than to return an array of draws.
_OTHERS = ("bytes", "shuffle", "spawn")


@cache
def _class() -> type[Any]:
    """The class, made when there is a generator: NumPy imports them late."""

    class TracedGenerator(np.random.Generator):
        """A generator whose draws are calls of `draw`."""

        trace: Trace
        node: Any
        copy: np.random.Generator

        def __str__(self) -> str:
            return str(self.copy)

        @property
        def bit_generator(self) -> NoReturn:
            _refuse_bits()

    for name, method in vars(np.random.Generator).items():
        if not name.startswith("_") and callable(method):
            setattr(TracedGenerator, name, _method(name))
    return TracedGenerator


def traced_generator(trace: Trace, node: Any, copy: np.random.Generator) -> Any:
    """A generator of a trace.

    Parameters
    ----------
    trace : Trace
    node : Node
        The input or constant.
    copy : Generator
        Draws what tracing needs.
    """
    made = _class()(copy.bit_generator)
    made.trace, made.node, made.copy = trace, node, copy
    return made


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.trace.alive:
            raise _refused(
                name, "after the trace has ended", "use the generator itself"
            )
        if name in _OTHERS:
            raise _refused(name, "while a graph is traced", _instead(name))
        signature = inspect.signature(getattr(self.copy, name))
        named = signature.bind(*args, **kwargs).arguments
        return _call(self, name, named)

    method.__name__ = name
    return method


def _refuse_bits() -> NoReturn:
    raise _refused(
        "bit_generator",
        "while a graph is traced: its bits and its state would be constants of the graph",
        "draw with a method; for raw bits write"
        " rng.integers(2**64 - 1, size=(), dtype=np.uint64, endpoint=True)",
    )


def _call(generator: Any, name: str, named: dict[str, Any]) -> Any:
    size, dtype = named.pop("size", None), named.pop("dtype", None)
    if named.pop("out", None) is not None:
        raise _refused(f"{name}(out=...)", "while a graph is traced", "x[...] = draw")
    if size is not None:
        size = [*size] if isinstance(size, list | tuple) else [size]
    text = repr({key: _plain(name, value) for key, value in named.items()})
    dtype = None if dtype is None else np.dtype(dtype)
    if size is None and not isinstance(
        _draw(np.random.default_rng(0), name, None, dtype, text),
        np.ndarray | np.generic,
    ):
        raise _refused(
            f"{name}()",
            "while a graph is traced: the result is a Python number",
            f"write rng.{name}(size=()), which is an array without axes",
        )
    return draw.run(generator, name, size, dtype, text)


# Methods whose results are items of their first argument.
_OF_ITEMS = ("choice", "permutation", "permuted")


def _plain(name: str, value: Any) -> Any:
    """A parameter of a draw as a literal."""
    if is_traced(value) or is_fake(value):
        instead = instead_of_draw(name) or "plain numbers"
        raise _refused(f"{name}()", "with a traced parameter", f"write {instead}")
    if isinstance(value, np.ndarray | np.generic):
        if value.ndim and name in _OF_ITEMS:
            raise _refused(f"{name}()", "of an array", f"write {instead_of_draw(name)}")
        value = value.tolist()
    text = repr(value)
    try:
        if ast.literal_eval(text) == value:
            return value
    except (ValueError, SyntaxError):
        pass
    raise _refused(
        f"{name}()", f"with the parameter {text}", "use numbers, strings and lists"
    )


def _instead(name: str) -> str:
    return "x = rng.permutation(len(x))" if name == "shuffle" else "call it outside"


def _refused(what: str, when: str, do: str) -> GraphError:
    return GraphError(f"rng.{what} {when}", f"at {caller_place()}", do=do)


# ---- other draws ----


def watch_of(fn: Callable[..., Any], leaves: Sequence[Any]) -> DrawWatch:
    """Notes generators that are drawn from so that no operator sees it."""
    return DrawWatch(sources(fn, leaves))


def check_undrawn(watch: DrawWatch, what_runs: str) -> None:
    """Raise for draws that would be constants of the graph.

    `what_runs` is such as ``make_fx of loss``.
    """
    watch.look()
    if watch.drawn:
        what = name_of(watch.drawn[0])
        raise GraphError(
            f"{what_runs}: the function draws from {what}, whose numbers would be"
            " constants of the graph",
            do="pass a np.random.Generator as an argument, and draw from it",
        )


# ---- generators in closures ----


def with_generators(fn: Any, change: Callable[[Any], Any]) -> Any:
    """The function with other generators in its closure and defaults."""
    if type(fn) is not FunctionType:
        return fn
    cells = fn.__closure__ or ()
    changed = tuple([_cell(cell, change) for cell in cells])
    defaults = tuple([_changed(v, change) for v in fn.__defaults__ or ()])
    named = {k: _changed(v, change) for k, v in (fn.__kwdefaults__ or {}).items()}
    pairs = zip((*changed, *defaults), (*cells, *(fn.__defaults__ or ())), strict=True)
    if all(a is b for a, b in pairs) and named == (fn.__kwdefaults__ or {}):
        return fn
    made = FunctionType(fn.__code__, fn.__globals__, fn.__name__, defaults, changed)
    made.__kwdefaults__ = named
    return made


def _cell(cell: CellType, change: Callable[[Any], Any]) -> CellType:
    try:
        value = cell.cell_contents
    except ValueError:  # not assigned yet
        return cell
    return CellType(change(value)) if is_generator(value) else cell


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    return change(value) if is_generator(value) else value
