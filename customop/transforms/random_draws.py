"""Draws from NumPy's generators as calls of operators, also with a row for each of vmap.

In a graph the operator draws again whenever the graph runs; under vmap it draws for each
row. Where NumPy returns a Python number, as `rng.normal()` does, the draw is an array
without axes: of float64 or int64 also beside arrays of float32, as with ``size=()``.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Container, Sequence
from functools import cache, lru_cache, wraps
from types import CellType, FunctionType
from typing import Any, ClassVar, NoReturn

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_fake, is_traced
from customop.arrays.nested import flatten, unflatten
from customop.arrays.refusals import bits_of, instead_of_draw
from customop.core.interpreter import current_mode
from customop.core.operator import Operator
from customop.errors import ArgumentError, CustomOpError, VmapError, caller_place, shown
from customop.graph.graph import Flaw, call_checks
from customop.library.define import custom_op
from customop.schema.tags import Tag
from customop.transforms.generators import (
    DrawWatch,
    is_generator,
    name_of,
    plain_generator,
    watching,
)
from customop.transforms.runs import Subject
from customop.transforms.vmap_interpreter import RandomnessMode

# Generators of NumPy whose draws are calls of an operator, which transforms can see.


# ---- the operator ----


def _draw(
    generator: np.random.Generator,
    method: str,
    size: Sequence[int] | None,
    dtype: Any,
    arguments: str,
) -> Any:
    if method not in _METHODS:
        raise ArgumentError(
            f"customop::draw: {shown(method)} is not a method that draws an array",
            do="write one of NumPy's, such as 'normal'",
        )
    named = {**_read(arguments)}
    if size is not None:
        named["size"] = tuple(size)
    if dtype is not None:
        named["dtype"] = dtype
    return getattr(generator, method)(**named)


# Reading takes longer than most draws.
_read: Callable[[str], Any] = lru_cache(maxsize=256)(ast.literal_eval)

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
# Each draw of these takes the next numbers alone, so that many draws are one of many.
_ONE_BY_ONE = frozenset(
    (
        *("beta", "binomial", "chisquare", "exponential", "f", "gamma", "geometric"),
        *("gumbel", "hypergeometric", "laplace", "logistic", "lognormal", "logseries"),
        *("negative_binomial", "noncentral_chisquare", "noncentral_f", "normal"),
        *("pareto", "poisson", "power", "random", "rayleigh", "standard_cauchy"),
        *("standard_exponential", "standard_gamma", "standard_normal", "standard_t"),
        *("triangular", "uniform", "vonmises", "wald", "weibull", "zipf"),
    )
)
# All methods of a generator that a graph may call.
_METHODS = frozenset(
    (*_VECTORS, *_ONE_BY_ONE, *("integers", "permutation", "permuted"))
)


def outline_of_draw(
    generator: Any, method: str, size: Any, dtype: Any, arguments: str
) -> FakeArray:
    """Return a fake array with the shape and dtype of a draw."""
    other = np.random.default_rng(0)
    one = np.asarray(_draw(other, method, None, dtype, arguments))
    # Without a size many methods return a Python number, in no dtype.
    made = one.dtype if dtype is None else np.dtype(dtype)
    if size is None:
        return FakeArray(one.shape, made)
    is_vector = method in _VECTORS
    event = _draw(other, method, (), dtype, arguments).shape if is_vector else ()
    return FakeArray((*size, *event), made)


draw.register_fake(outline_of_draw)


def _flaw_of_draw(values: Sequence[Any]) -> Flaw | None:
    """Return what is wrong with the arguments of a call of `draw`, which a file may hold."""
    _, method, size, dtype, arguments = values
    if method not in _METHODS:
        return Flaw(f"draws by {shown(method)}", "write a method such as 'normal'")
    if any(type(n) is int and n < 0 for n in size or ()):
        return Flaw(f"draws an array of the shape {size}", "write lengths from 0 on")
    given = {"size": size, "dtype": dtype}
    try:
        named = {k: v for k, v in given.items() if v is not None}
        named |= _named_in(arguments, given)
        inspect.signature(getattr(np.random.Generator, method)).bind(None, **named)
    except (MemoryError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        what = f"draws by {method} with {shown(arguments)}: {error}"
        return Flaw(what, f"write the parameters of {method} as the text of a dict")
    return None


def _named_in(arguments: str, others: Container[str]) -> dict[str, Any]:
    """Return the parameters in the text of a call of `draw`."""
    named = ast.literal_eval(arguments)
    if type(named) is not dict or any(k == "out" or k in others for k in named):
        raise TypeError("it is not a dict of parameters other than size, dtype and out")
    return named


call_checks[draw.qualname] = _flaw_of_draw


# ---- generators ----

# Methods that do something other than to return an array of draws.
_OTHERS = ("bytes", "shuffle", "spawn")


@cache
def drawing_class() -> type[Any]:
    """Return the class, made when there is a generator: NumPy imports them late."""

    class DrawingGenerator(np.random.Generator):
        """A generator whose draws are calls of `draw`.

        Attributes
        ----------
        when : str
            Where it draws, for messages.
        state : str
            Why its state cannot be read there.
        error_class : type of CustomOpError
        source : Generator
            The generator of the user, or the copy that tracing draws from.
        """

        when: ClassVar[str]
        state: ClassVar[str]
        error_class: ClassVar[type[CustomOpError]]
        source: np.random.Generator

        @property
        def plain(self) -> Any:
            """Return the generator to give to operators."""
            return self

        def begin(self, name: str) -> None:
            """Raise where it cannot draw any more."""

        def run(self, name: str, size: Any, dtype: Any, arguments: str) -> Any:
            """Draw."""
            return draw.run(self, name, size, dtype, arguments)

        def __str__(self) -> str:
            return str(self.source)

        @property
        def bit_generator(self) -> NoReturn:
            raise refused(
                self,
                "bit_generator",
                f"{self.when}: {self.state}",
                "draw with a method; for raw bits write"
                " rng.integers(2**64 - 1, size=(), dtype=np.uint64, endpoint=True)",
            )

    for name, method in vars(np.random.Generator).items():
        if not name.startswith("_") and callable(method):
            setattr(DrawingGenerator, name, _method(name))
    return DrawingGenerator


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.begin(name)
        if name in _OTHERS:
            instead = instead_of_draw(name)
            do = "call it outside" if instead is None else f"write {instead}"
            raise refused(self, name, self.when, do)
        signature = inspect.signature(getattr(np.random.Generator, name))
        named = signature.bind(None, *args, **kwargs).arguments
        return _call(self, name, dict([*named.items()][1:]))

    method.__name__ = name
    return method


def _call(generator: Any, name: str, named: dict[str, Any]) -> Any:
    size, dtype = named.pop("size", None), named.pop("dtype", None)
    if named.pop("out", None) is not None:
        raise refused(generator, f"{name}(out=...)", generator.when, "x[...] = draw")
    if size is not None:
        size = [*size] if isinstance(size, list | tuple) else [size]
    given = {key: _plain(generator, name, value) for key, value in named.items()}
    text = repr(given)
    dtype = None if dtype is None else np.dtype(dtype)
    if size is None and not isinstance(
        _draw(np.random.default_rng(0), name, None, dtype, text),
        np.ndarray | np.generic,
    ):
        size = []  # an array without axes in place of a Python number
    return generator.run(name, size, dtype, text)


# Methods whose results are items of their first argument.
_OF_ITEMS = ("choice", "permutation", "permuted")


def _plain(generator: Any, name: str, value: Any) -> Any:
    """Return a parameter of a draw as a literal."""
    if is_traced(value) or is_fake(value):
        instead = instead_of_draw(name) or "plain numbers"
        raise refused(
            generator, f"{name}()", "with a traced parameter", f"write {instead}"
        )
    if isinstance(value, np.ndarray | np.generic):
        if value.ndim and name in _OF_ITEMS:
            raise refused(
                generator, f"{name}()", "of an array", f"write {instead_of_draw(name)}"
            )
        value = value.tolist()
    text = repr(value)
    try:
        if ast.literal_eval(text) == value:
            return value
    except (ValueError, SyntaxError):
        pass
    raise refused(
        generator,
        f"{name}()",
        f"with the parameter {text}",
        "use numbers, strings and lists",
    )


def refused(generator: Any, what: str, when: str, do: str) -> CustomOpError:
    """Return the error for a method of a generator."""
    error: type[CustomOpError] = generator.error_class
    return error(f"rng.{what} {when}", f"at {caller_place()}", do=do)


# ---- generators in closures ----


def with_generators(fn: Any, change: Callable[[Any], Any]) -> Any:
    """Return the function with other generators in its closure and defaults."""
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


# NumPy draws once for all rows, where each row should have its own numbers. So the
# function gets generators that draw for each row. Other draws are errors: random
# operators draw for each row too, so the states of generators are compared between
# their calls.


# ---- generators that draw for each row ----


def drawing_rows(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with generators that draw for each row.

    They stand for those among its arguments and defaults and in its closure.
    """

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        mode = current_mode.get()
        assert isinstance(mode, RandomnessMode)

        def change(leaf: Any) -> Any:
            return _rows_of(mode, leaf) if is_generator(leaf) else leaf

        leaves, structure = flatten((args, kwargs))
        if any(map(is_generator, leaves)):
            args, kwargs = unflatten(structure, [*map(change, leaves)])
        return with_generators(fn, change)(*args, **kwargs)

    return run


def _rows_of(mode: RandomnessMode, generator: Any) -> Any:
    """Return a generator that draws for each row."""
    source = plain_generator(generator)
    made = _class()(bits_of(source))
    made.mode, made.source = mode, source
    return made


@cache
def _class() -> type[Any]:
    class RowsGenerator(drawing_class()):  # type: ignore[misc]  # made at run time
        """A generator whose draws differ between the rows of a vmap."""

        when = "under vmap(f, randomness='different')"
        state = "its bits and its state are one for all rows"
        error_class = VmapError
        mode: RandomnessMode

        @property
        def plain(self) -> Any:
            return self.source

        def run(self, name: str, size: Any, dtype: Any, arguments: str) -> Any:
            given = (self.source, name, size, dtype, arguments)
            # Inside of another vmap, or where the value was kept, it is a draw like others.
            if current_mode.get() is not self.mode:
                return draw.run(*given)
            batch = self.mode.batch
            count, outline = batch.info.batch_size, outline_of_draw(*given)
            shape = (count, *outline.shape)
            if name in _ONE_BY_ONE:
                return self.mode.draw_rows(
                    lambda: draw.run(self.source, name, shape, dtype, arguments)
                )
            if count:
                return draw.run(*given)
            return batch.wrap(np.zeros(shape, outline.dtype), 0)

    return RowsGenerator


# ---- other draws ----


def watched_between(
    fn: Callable[..., Any], subject: Subject, name: str
) -> Callable[..., Any]:
    """Return the function, or one that watches its run if `config.checks` says so."""
    return watching(fn, subject, lambda source: _drawn(name, source), _let_mode_look)


def _let_mode_look(watch: DrawWatch) -> None:
    """Have the mode look before each random operator, and restart after it."""
    mode = current_mode.get()
    if isinstance(mode, RandomnessMode):
        mode.watch = watch


def _drawn(name: str, source: Any) -> VmapError:
    return VmapError(
        f"vmap of {name}: the function draws from {name_of(source)}, with"
        " randomness='different'",
        "NumPy draws once, so all rows get the same numbers",
        do="draw from a np.random.Generator that is an argument, with None in in_dims; or"
        " draw a batch outside and pass it",
    )
