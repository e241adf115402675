"""Schemas: what an operator takes and gives, and what follows for its calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from customop.errors import ArgumentError, CustomOpError, SchemaError, ShapeError, shown
from customop.frozen import Frozen, cached
from customop.later import later
from customop.schema.coerce import Mismatch, coerce, exact_test, remedy
from customop.schema.infer import infer, key_of, outline_of
from customop.schema.types import (
    DEVICE,
    GENERATOR,
    KEYWORD_ONLY,
    MISSING,
    POSITIONAL_ONLY,
    ListOf,
    Parameter,
    Return,
    has_shape,
    holds_arrays,
    is_array_type,
    is_single_array,
    parts,
    places_of_shapes,
    shapes_in,
)
from customop.shapes.notation import Shape, least_sizes

if TYPE_CHECKING:
    from customop.pages.html import Child, Element

# Only notebooks need it.
html: ModuleType = later(import_module, "customop.pages.html")
parsing: ModuleType = later(import_module, "customop.schema.parse")


# ---- what the parameters and results of an operator say of its calls ----


class Facts(Frozen):
    """The parameters and results of an operator, and what follows from them.

    Each fact is computed when it is first asked for.

    Attributes
    ----------
    parameters : tuple of Parameter
    returns : tuple of Return
    is_tuple : bool
    """

    parameters: tuple[Parameter, ...]
    returns: tuple[Return, ...]
    is_tuple: bool = False

    def __init__(
        self,
        parameters: tuple[Parameter, ...],
        returns: tuple[Return, ...],
        is_tuple: bool = False,
    ) -> None:
        super().__init__(parameters, returns, is_tuple)

    @cached
    def positional(self) -> tuple[Parameter, ...]:
        """Return parameters that can be passed by position."""
        return tuple(p for p in self.parameters if p.kind != KEYWORD_ONLY)

    @cached
    def keyword_only(self) -> tuple[Parameter, ...]:
        """Return parameters that can only be passed by name."""
        return tuple(p for p in self.parameters if p.kind == KEYWORD_ONLY)

    @cached
    def array_slots(self) -> tuple[int, ...]:
        """Return positions of the parameters that are one array each."""
        return tuple(
            i for i, p in enumerate(self.parameters) if is_single_array(p.type)
        )

    @cached
    def nested_slots(self) -> tuple[int, ...]:
        """Return positions of the parameters with arrays inside lists, dicts or objects."""
        return tuple(
            i
            for i, p in enumerate(self.parameters)
            if holds_arrays(p.type) and not is_single_array(p.type)
        )

    @cached
    def written(self) -> tuple[str, ...]:
        """Return names of the parameters that the operator writes."""
        return tuple(p.name for p in self.parameters if p.is_written)

    @cached
    def single_return(self) -> bool:
        """Return whether the result is one array."""
        return (
            len(self.returns) == 1
            and not self.is_tuple
            and is_array_type(self.returns[0].type)
        )

    @cached
    def gives_new_array(self) -> bool:
        """Return whether a call writes nothing, and its result is one array of its own."""
        return (
            len(self.returns) == 1
            and not self.is_tuple
            and not self.written
            and self.returns[0].alias is None
        )

    @cached
    def device_slot(self) -> int | None:
        """Position of the parameter that names the device, if there is one."""
        for i, p in enumerate(self.parameters):
            if DEVICE in (p.type, getattr(p.type, "item", None)) and p.name == "device":
                return i
        return None

    @cached
    def is_plain(self) -> bool:
        """Return whether a call is arrays in, one array out, as most calls are."""
        return (
            self.single_return
            and not self.nested_slots
            and not self.written
            and not self.keyword_only
        )

    @cached
    def is_unary(self) -> bool:
        """Return whether its only array comes first, and all else has defaults."""
        return self.array_slots == (0,) and all(
            p.default is not MISSING for p in self.parameters[1:]
        )

    @cached
    def is_factory(self) -> bool:
        """Return whether it makes arrays on the device that a parameter names."""
        return self.device_slot is not None and not any(
            is_array_type(part) for p in self.parameters for part in parts(p.type)
        )

    @cached
    def has_generator(self) -> bool:
        """Return whether a parameter takes a random generator."""
        return any(GENERATOR in parts(p.type) for p in self.parameters)

    @cached
    def list_slot(self) -> int:
        """Position of the list with all arrays of a call with one result; else -1."""
        if self.array_slots or not self.single_return or self.keyword_only:
            return -1
        if len(self.nested_slots) != 1 or self.written:
            return -1
        (slot,) = self.nested_slots
        declared = self.parameters[slot].type
        if not isinstance(declared, ListOf) or declared.is_tuple:
            return -1
        return slot if is_array_type(declared.item) else -1

    @cached
    def view_slot(self) -> int:
        """Position of the array that results are views of; -1 if they are fresh."""
        for r in self.returns:
            if r.alias is not None and not r.alias.is_write:
                for slot in self.array_slots:
                    alias = self.parameters[slot].alias
                    if alias is not None and alias.name == r.alias.name:
                        return slot
        return -1

    @cached
    def keyword_names(self) -> tuple[str, ...]:
        """Return names of the parameters that can only be passed by name."""
        return tuple(p.name for p in self.keyword_only)


# ---- schemas: what an operator takes and gives ----


ErrorT = TypeVar("ErrorT", bound=CustomOpError)


class Schema(Facts):
    """The parameters and results of an operator.

    Attributes
    ----------
    parameters : tuple of Parameter
        Positional ones first, then keyword-only ones.
    returns : tuple of Return
        Empty where the operator returns None.
    is_tuple : bool
        Whether the results are a tuple: false for a single result or none.

    Notes
    -----
    Types are written as torch writes them, with ``Array`` for ``Tensor``. An array may
    have a class of elements and a shape, ``float[m,k]``:

    - the class is ``Array`` for any, ``bool``, ``int``, ``uint``, ``integer``, ``float``,
      ``complex``, ``inexact``, ``real``, ``num``, or a dtype such as ``float32``;
    - an axis is a name, a number, ``_`` for any length, or names and numbers joined by
      ``+``, ``-``, ``*`` and ``//``; with ``#`` before it, the length may also be 1;
    - one entry may be ``...`` or ``*batch``, for any number of axes; ``*#batch`` may
      also be axes that NumPy broadcasts to the others of that name;
    - ``float[()]`` has no axes, and ``float[3,]`` one of length 3, since ``float[3]`` is
      a list of three numbers; ``float[m,k][]`` is a list of arrays.

    A name has one length in all arguments and results of a call. The name of an ``int``
    parameter is the value of that argument.

    Examples
    --------
    >>> import customop as co
    >>> schema = co.Schema.parse("(Array(a!) x, int y=1, *, float? z=None) -> ()")
    >>> print(schema)
    (Array(a!) x, int y=1, *, float? z=None) -> ()
    >>> [p.name for p in schema.parameters if p.is_written]
    ['x']
    """

    @cached
    def has_shapes(self) -> bool:
        """Return whether a type has a shape or elements for an array."""
        types = [*[p.type for p in self.parameters], *[r.type for r in self.returns]]
        return any(map(has_shape, types))

    @cached
    def least_sizes(self) -> dict[str, int]:
        """Return names in the shapes of parameters, each with its least length.

        In the order of the schema. Names of `int` parameters can be among them.
        """
        return least_sizes([s for p in self.parameters for s in shapes_in(p.type)])

    @cached
    def loop_names(self) -> tuple[str, ...]:
        """Return names such as ``*batch`` in the shapes of parameters; empty for ``...``."""
        shapes = [s for p in self.parameters for s in shapes_in(p.type)]
        return tuple(dict.fromkeys(s.loop.name for s in shapes if s.loop))

    def shapes_for(
        self,
        sizes: Mapping[str, int],
        loops: Mapping[str, tuple[int, ...]] | tuple[int, ...] = (),
    ) -> dict[str, tuple[int, ...]]:
        """Return shapes of arrays that fit the schema, for given lengths of its names.

        Parameters
        ----------
        sizes : mapping of str to int
            A length for each name of `least_sizes`, and at least that.
        loops : tuple of int, or mapping of str to tuple
            The axes of ``...`` and ``*batch``: the same for all, or by name.

        Returns
        -------
        dict of str to tuple
            Parameter -> shape, for each array with a shape, or list or dict of them. An
            array in an object or a tuple is named by how it is reached:
            ``"camera.matrix"``, ``"pair[0]"``. An unnamed axis has the length 1.

        Raises
        ------
        ShapeError
            If a name has no length, or a sum gives a negative one.

        Examples
        --------
        >>> import customop as co
        >>> schema = co.Schema.parse("(float[...,n+1] x, float[n,3] y) -> float[...]")
        >>> schema.shapes_for({"n": 4}, (2, 5))
        {'x': (2, 5, 5), 'y': (4, 3)}
        """
        if isinstance(loops, tuple):
            loops = dict.fromkeys(self.loop_names, loops)
        return {
            place: self._lengths(place, shape, sizes, loops)
            for p in self.parameters
            for place, shape in places_of_shapes(p.type, p.name)
        }

    def _lengths(
        self,
        name: str,
        shape: Shape,
        sizes: Mapping[str, int],
        loops: Mapping[str, tuple[int, ...]],
    ) -> tuple[int, ...]:
        try:
            lengths = shape.lengths(sizes, loops)
        except KeyError as error:
            missing = error.args[0] or "..."
            raise ShapeError(
                f"shapes_for: no length for '{missing}' of '{name}'",
                str(self),
                do=f"give one: {{'{missing}': 3}}",
            ) from None
        if min(lengths, default=0) < 0:
            raise ShapeError(
                f"shapes_for: '{name}' would have the shape {lengths}",
                str(self),
                do=f"give lengths of at least {self.least_sizes}",
            )
        return lengths

    def split(self, values: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Split the values of all parameters into positional and keyword-only ones.

        Parameters
        ----------
        values : sequence
            A value for each of `parameters`, in their order.

        Returns
        -------
        tuple
            The positional values, in a sequence of the class of `values`, and a dict of
            the keyword-only ones by name.

        Examples
        --------
        >>> import customop as co
        >>> schema = co.Schema.parse("(Array x, int n, *, float? eps=None) -> Array")
        >>> schema.split(["x", 2, None])
        (['x', 2], {'eps': None})
        """
        names = self.keyword_names
        if not names:
            return values, {}
        count = len(self.positional)
        return values[:count], dict(zip(names, values[count:], strict=True))

    def index(self, name: str) -> int:
        """Return the position of a parameter."""
        return [p.name for p in self.parameters].index(name)

    def __str__(self) -> str:
        return f"({', '.join(self.parameter_texts())}) -> {self.returns_text()}"

    def _repr_html_(self) -> str:
        return _page_of(self)

    def parameter_texts(self) -> list[str]:
        """Return the parameters as they are printed, with ``/`` and ``*`` between them."""
        texts: list[str] = []
        previous = ""
        for p in self.parameters:
            if previous == POSITIONAL_ONLY and p.kind != POSITIONAL_ONLY:
                texts.append("/")
            if p.kind == KEYWORD_ONLY and previous != KEYWORD_ONLY:
                texts.append("*")
            texts.append(str(p))
            previous = p.kind
        return [*texts, "/"] if previous == POSITIONAL_ONLY else texts

    def returns_text(self) -> str:
        """Return the results as they are printed after the arrow."""
        if not self.is_tuple and len(self.returns) == 1:
            text = str(self.returns[0])
            needs_parentheses = text.startswith("(") or " " in text
            return f"({text})" if needs_parentheses else text
        inside = ", ".join(str(r) for r in self.returns)
        return f"({inside},)" if len(self.returns) == 1 else f"({inside})"

    def error(
        self,
        cls: type[ErrorT],
        qualname: str,
        what: str,
        *where: str,
        do: str,
        parameter: str | None = "",
        kind: str | None = None,
    ) -> ErrorT:
        """Build an error that names the operator and shows its schema.

        Parameters
        ----------
        cls : type of CustomOpError
        qualname : str
        what : str
            The fault. It follows the operator's name and a colon, or the name alone
            where it begins with a space.
        *where : str
            Lines below the schema.
        do : str
            The remedy.
        parameter : str or None
            The parameter to mark in the schema. None leaves the schema out.
        kind : str or None
            Name of the rule kind concerned.

        Returns
        -------
        CustomOpError
            It is not raised.

        Examples
        --------
        >>> import customop as co
        >>> schema = co.Schema.parse("(Array x, int n) -> Array")
        >>> raise schema.error(
        ...     co.ArgumentError, "mylib::take", "'n' is -1", do="pass n >= 0", parameter="n"
        ... )
        Traceback (most recent call last):
            ...
        customop.ArgumentError: mylib::take: 'n' is -1
          mylib::take(Array x, int n) -> Array
                               ^^^^^
          do: pass n >= 0
        """
        joint = "" if what.startswith(" ") else ": "
        shown = () if parameter is None else (self.show(qualname, parameter),)
        return cls(
            f"{qualname}{joint}{what}",
            *shown,
            *where,
            do=do,
            op=qualname,
            parameter=parameter or None,
            kind=kind,
        )

    def show(self, qualname: str, parameter: str = "") -> str:
        """Return the schema on one line, with carets under a parameter if one is named.

        Parameters
        ----------
        qualname : str
            The name of the operator, written before the schema.
        parameter : str
            A parameter, or ``"return"`` for the results.

        Returns
        -------
        str

        Examples
        --------
        >>> import customop as co
        >>> print(co.Schema.parse("(Array x, int n) -> Array").show("mylib::take", "n"))
        mylib::take(Array x, int n) -> Array
                             ^^^^^
        """
        text = f"{qualname}{self}"
        if parameter == "return":
            width = len(self.returns_text())
            return f"{text}\n{' ' * (len(text) - width)}{'^' * width}"
        for p in self.parameters:
            if p.name == parameter:
                texts = self.parameter_texts()
                before = texts[: texts.index(str(p))]
                at = len(qualname) + 1 + len("".join(f"{part}, " for part in before))
                return f"{text}\n{' ' * at}{'^' * len(str(p))}"
        return text

    @classmethod
    def parse(cls, text: str) -> Schema:
        """Read a schema in torch's grammar, with `Array` or `Tensor` for arrays.

        Parameters
        ----------
        text : str
            Such as ``"(Array x, int[] shape, *, float? eps=None) -> Array"``.

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            If the text does not follow the grammar; a caret shows the place.

        Examples
        --------
        >>> import customop as co
        >>> schema = co.Schema.parse("(Array x, int[] shape) -> Array")
        >>> [p.name for p in schema.parameters]
        ['x', 'shape']
        >>> co.Schema.parse("(Array x, integer n) -> Array")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        customop.SchemaError: ...
        """
        if not isinstance(text, str):
            raise SchemaError(
                f"a schema is a string, got {shown(text)}",
                do='write "(Array x) -> Array"',
            )
        # A name of a class can mean another class now, so such texts are not cached.
        return Schema(*parsing.parse(text)) if "." in text else _parsed(text)

    @classmethod
    def infer(
        cls,
        fn: Callable[..., Any],
        mutates_args: Iterable[str] | str = (),
        scope: FrameType | None = None,
    ) -> Schema:
        """Infer a schema from type hints; see `infer_schema`, which returns its text.

        Parameters
        ----------
        fn : callable
            A function with type hints for every parameter and the result.
        mutates_args : iterable of str, or "unknown"
            Names of the array parameters that the function writes; ``"unknown"`` for all.
        scope : frame, optional
            Hints that are strings may use names of the frames from this one outwards, if
            their code contains the function.

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            If a hint is missing or has no schema type, a default does not fit, or
            `mutates_args` names something other than an array parameter.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> def scale(x: np.ndarray, factor: float = 2.0) -> np.ndarray: ...
        >>> print(co.Schema.infer(scale))
        (Array x, float factor=2.0) -> Array
        """
        outline = outline_of(fn, scope)
        key = None if outline is None else key_of(outline, mutates_args)
        if not key:
            return cls(*infer(fn, mutates_args, scope))
        known = _inferred.get(key)
        if known is None:
            if len(_inferred) > _MOST_INFERRED:
                _inferred.clear()
            known = _inferred.setdefault(key, cls(*infer(fn, mutates_args, scope)))
        return known


# Functions with the same parameters have one schema, with all that is known of it. To
# infer one takes 50 us, to find one 8.
_inferred: dict[Any, Schema] = {}
_MOST_INFERRED = 512


@lru_cache(maxsize=512)
def _parsed(text: str) -> Schema:
    return Schema(*parsing.parse(text))


def infer_schema(
    fn: Callable[..., Any],
    /,
    *,
    mutates_args: Iterable[str] | str,
    op_name: str | None = None,
) -> str:
    """Return the schema string of a function with type hints.

    Parameters
    ----------
    fn : callable
        A function with type hints for every parameter and the result. Hints may be
        strings, which are evaluated where the function was defined.
    mutates_args : iterable of str, or "unknown"
        Names of the array parameters that the function writes; ``"unknown"`` for all.
    op_name : str, optional
        Written in front of the schema, as `Library.define` takes it.

    Returns
    -------
    str

    Raises
    ------
    SchemaError
        If a hint is missing or has no schema type, a default does not fit, or
        `mutates_args` names something other than an array parameter.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def scale(x: np.ndarray, factor: float = 2.0) -> np.ndarray: ...
    >>> co.infer_schema(scale, mutates_args=())
    '(Array x, float factor=2.0) -> Array'
    >>> co.infer_schema(scale, mutates_args=(), op_name="scale")
    'scale(Array x, float factor=2.0) -> Array'
    """
    if op_name is not None and not isinstance(op_name, str):
        raise SchemaError(
            f"infer_schema: op_name={shown(op_name)} is not a name",
            do='write op_name="scale", or leave it out',
        )
    return f"{op_name or ''}{Schema.infer(fn, mutates_args, sys._getframe(1))}"


# ---- arguments of calls, coerced one by one ----


def coercion(
    qualname: str, schema: Schema, parameter: Parameter
) -> Callable[[Any], Any]:
    """Make a function that coerces one argument and names it in errors."""
    declared, name = parameter.type, parameter.name
    fits = exact_test(declared) or (lambda value: False)

    def coerce_argument(value: Any) -> Any:
        if fits(value):
            return value
        try:
            return coerce(value, declared)
        except Mismatch as error:
            raise schema.error(
                ArgumentError,
                qualname,
                f"argument '{name}' {error}",
                do=remedy(declared, value, name),
                parameter=name,
            ) from None

    return coerce_argument


# ---- schemas in notebooks ----


def _page_of(schema: Schema) -> str:
    """Write a schema as HTML for notebooks."""
    blocks = [html.title("Schema", ""), signature(schema), *parameter_tables(schema)]
    return str(html.in_notebook(html.card(*blocks)))


def signature(schema: Schema, qualname: str = "") -> Element:
    """Color the text of a schema that `Schema.show` writes."""
    by_text = {str(p): p for p in schema.parameters}
    parts: list[Child] = [html.element("span", qualname, class_="parameter"), "("]
    for number, text in enumerate(schema.parameter_texts()):
        parts += [", "] if number else []
        parts += _colored(by_text[text]) if text in by_text else [_mark(text)]
    parts += [") ", _mark("->"), " "]
    parts.append(html.element("span", schema.returns_text(), class_="type"))
    found: Element = html.element("code", *parts, class_="signature")
    return found


def _mark(text: str) -> Element:
    found: Element = html.element("span", text, class_="mark")
    return found


def _colored(p: Parameter) -> Iterator[Child]:
    """Color a parameter: its type, its name, and its default."""
    kind, default = _split(p)
    yield html.element("span", kind, class_="type")
    yield " "
    yield html.element("span", p.name, class_="parameter")
    if p.default is not MISSING:
        yield "="
        yield html.element("span", default, class_="value")


def _split(p: Parameter) -> tuple[str, str]:
    """Return the texts of the type, with its alias, and of the default."""
    text = str(p)
    required = text if p.default is MISSING else str(p.replaced(default=MISSING))
    return required[: -len(p.name) - 1], text[len(required) + 1 :]


def parameter_tables(schema: Schema) -> list[Element]:
    """Make tables of the parameters and of the results; empty ones are left out."""
    rows: list[list[Child]] = []
    for p in schema.parameters:
        kind, default = _split(p)
        how = p.kind.replace("_", " ").replace("positional only", "by position only")
        how = {"positional": "", "keyword only": "by name only"}.get(how, how)
        notes = [html.badge("written", "warn")] if p.is_written else []
        rows.append(
            [
                html.mono(p.name),
                html.mono(kind),
                html.mono(default) if default else "",
                _noted(how, notes),
            ]
        )
    tables = (
        [_trimmed(["parameter", "type", "default", "passed"], rows)] if rows else []
    )
    found: list[list[Child]] = [
        [
            html.mono(r.name or f"result {i}"),
            html.mono(str(r).removesuffix(f" {r.name}")),
        ]
        for i, r in enumerate(schema.returns)
    ]
    if len(schema.returns) > 1 or any(r.name for r in schema.returns):
        tables.append(html.grid(["result", "type"], found))
    return tables


def _noted(text: str, notes: list[Element]) -> Child:
    return html.element("span", text, " ", *notes) if notes else text


def _trimmed(columns: list[str], rows: list[list[Child]]) -> Element:
    """Make a table without the columns in which all cells are empty."""
    empty = ("", html.mono(""))
    used = [i for i in range(len(columns)) if any(row[i] not in empty for row in rows)]
    cells = [[row[i] for i in used] for row in rows]
    found: Element = html.grid([columns[i] for i in used], cells)
    return found
