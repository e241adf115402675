"""Loading graphs: files are read part by part, and nothing in them is trusted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from pathlib import Path
from typing import IO, Any

import numpy as np

from customop.arrays.nested import Structure, flatten, show, unflatten
from customop.core.collector import patient
from customop.core.registry import find_operator
from customop.core.table import RuleTable
from customop.errors import (
    ArgumentError,
    CustomOpError,
    GraphFileError,
    MissingRuleError,
    shown,
)
from customop.graph.files.archive import (
    ArchiveReader,
    WeightsReader,
    laid_out,
    read_npy,
    read_shape,
    read_strides,
    reading,
)
from customop.graph.files.fields import (
    as_entries,
    as_line,
    as_list,
    as_object,
    as_text,
    entry_of,
    read_class,
    read_dtype,
    read_generator,
)
from customop.graph.files.file_sizes import read_context, read_size
from customop.graph.files.file_values import LeafMark, ValueReader
from customop.graph.graph import Graph
from customop.graph.guards import AnyGenerator
from customop.graph.module import GraphModule
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, PLACEHOLDER, Node
from customop.graph.save import FORMAT, VERSION
from customop.schema.coerce import Mismatch, NestedType, Visitor
from customop.schema.schema import Schema
from customop.schema.types import (
    GENERATOR,
    MISSING,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Parameter,
    SchemaType,
    TupleOf,
)
from customop.shapes.symbolic import SymBool, SymFloat, SymInt

# ---- schemas of operators now, against those that a graph was saved with ----


def check_schema(op: RuleTable, saved: str) -> None:
    """Raise unless an operator takes the calls that were saved as it took them then.

    It may have more parameters than then, if they come last and have defaults.
    """
    now = op.schema
    if saved not in (str(schema) for schema in _earlier(now)):
        raise GraphFileError(
            f"the schema of {op.qualname} has changed since the graph was saved",
            f"in the file: {op.qualname}{saved}",
            f"here:        {op.qualname}{now}",
            do="load it with the operator as it was, or capture the function again",
            op=op.qualname,
        )


def _earlier(schema: Schema) -> list[Schema]:
    """Return the schema, and those that it may have grown from."""
    found = [schema]
    parameters = [*schema.parameters]
    while parameters and _is_optional(parameters[-1]):
        parameters.pop()
        found.append(Schema(tuple(parameters), schema.returns, schema.is_tuple))
    return found


def _is_optional(parameter: object) -> bool:
    return getattr(parameter, "default", MISSING) is not MISSING


# ---- arguments of calls that come from a file, against the schema of the operator ----
# A kernel in C may rely on the classes of its arguments, and the code of a graph does
# not check them again.


# Name of a type without parts -> the classes of its values in graphs.
_CLASSES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float,),
    "bool": (bool,),
    "complex": (complex,),
    "str": (str,),
    "Scalar": (int, float, bool, complex),
    "dtype": (np.dtype,),
    "device": (str,),
}
# Name of a type -> the symbolic numbers that fit it.
_SYMBOLIC: dict[str, tuple[type, ...]] = {
    "int": (SymInt,),
    "float": (SymInt, SymFloat),
    "complex": (SymInt, SymFloat),
    "Scalar": (SymInt, SymFloat, SymBool),
    "bool": (SymBool,),
}


def check_arguments(
    op: RuleTable, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise unless a call has values of the right types for all its parameters."""
    schema = op.schema
    if not kwargs and _is_usual(schema, args):
        return
    if len(args) > len(schema.positional):
        raise GraphFileError(
            f"a call of {op.qualname} has {len(args)} arguments",
            schema.show(op.qualname),
            op=op.qualname,
        )
    given = dict(zip((p.name for p in schema.positional), args, strict=False))
    known = {p.name for p in schema.keyword_only}
    for name, value in kwargs.items():
        if name not in known:
            raise GraphFileError(
                f"a call of {op.qualname} has the keyword {name!r}",
                schema.show(op.qualname),
                op=op.qualname,
            )
        given[name] = value
    for p in schema.parameters:
        reason = _reason(p, given)
        if reason:
            raise GraphFileError(
                f"a call of {op.qualname} has a wrong '{p.name}': it {reason}",
                schema.show(op.qualname, p.name),
                op=op.qualname,
                parameter=p.name,
            )


def _is_usual(schema: Schema, args: Sequence[Any]) -> bool:
    """Return whether a call has results of calls and numbers for all its arrays alone."""
    parameters = schema.parameters
    if len(args) > len(schema.positional):
        return False
    for value, p in zip(args, parameters, strict=False):
        if type(p.type) is not ArrayType:
            return False
        if type(value) is Node:
            if value.op not in _COMPUTED:
                return False  # it may be a generator
        elif type(value) not in _PLAIN_NUMBERS:
            return False
    rest = parameters[len(args) :]
    return not rest or all(p.default is not MISSING for p in rest)


_COMPUTED = (CALL, ITEM)
_PLAIN_NUMBERS = frozenset((int, float, complex))


def _reason(p: Parameter, given: Mapping[str, Any]) -> str:
    if p.name not in given:
        return "is missing" if p.default is MISSING else ""
    return _FITS.fault(given[p.name], p.type)


class _Fits(Visitor):
    """Checks values that are not coerced any more, with nodes in the places of arrays."""

    def base(self, value: Any, declared: Base) -> Any:
        classes = _CLASSES.get(declared.name, ())
        if declared == GENERATOR:
            if type(value) is Node and _is_generator(value):
                return value
        elif declared.name not in _CLASSES and type(value) is not Node:
            return value  # of a type that another part of the package has added
        if isinstance(value, np.dtype) and declared.name == "dtype":
            return value
        if type(value) not in (*classes, *_SYMBOLIC.get(declared.name, ())):
            raise Mismatch(f"expects {declared}, got {show(value)}")
        return value

    def array(self, value: Any, declared: ArrayType) -> Any:
        is_node = type(value) is Node and not _is_generator(value)
        if not is_node and not isinstance(value, _NUMBERS):
            raise Mismatch(f"expects {declared}, got {show(value)}")
        return value

    def choice(self, value: Any, declared: Choice) -> Any:
        if value not in declared.options or type(value) not in _CLASSES[declared.name]:
            raise Mismatch(f"expects {declared}, got {show(value)}")
        return value

    def member(self, value: Any, declared: ClassOf) -> Any:
        if not isinstance(value, declared.cls):
            raise Mismatch(f"expects {declared}, got {show(value)}")
        return value

    def open(self, value: Any, declared: NestedType) -> Any:
        if not _is_open(value, declared):
            raise Mismatch(f"expects {declared}, got {show(value)}")
        return value


def _is_generator(node: Node) -> bool:
    """Return whether a node is an input or a constant that is a random generator."""
    if node.op == CONSTANT:
        return isinstance(node.graph.constants.get(node.target), np.random.Generator)
    return node.op == PLACEHOLDER and isinstance(node.val, AnyGenerator)


_FITS: Visitor = _Fits()
_NUMBERS = (int, float, complex, SymInt, SymFloat, SymBool)


def _is_open(value: Any, declared: SchemaType) -> bool:
    """Return whether a value can be taken apart as its type says."""
    if isinstance(declared, ListOf):
        is_long = (
            declared.length not in (None, len(value)) if _is_sequence(value) else 0
        )
        return _is_sequence(value) and not is_long
    if isinstance(declared, TupleOf):
        return type(value) is tuple and len(value) == len(declared.items)
    if isinstance(declared, DictOf):
        return type(value) is dict and all(type(key) is str for key in value)
    assert isinstance(declared, ClassOf)
    if not declared.fields.is_dict:
        return isinstance(value, declared.cls)
    return (
        type(value) is dict
        and declared.items.keys() >= value.keys() >= declared.fields.required
    )


def _is_sequence(value: Any) -> bool:
    return type(value) in (list, tuple)


# ---- loading graphs: files are read part by part, and nothing in them is trusted ----


_LIMIT = 2**28
_TABLES = "operators classes contexts sizes constants places values graphs"


def load_graph(
    source: str | os.PathLike[str] | IO[bytes],
    *,
    weights: str | os.PathLike[str] | None = None,
    limit: int = _LIMIT,
) -> GraphModule:
    """Load a graph that was written by `GraphModule.save`.

    A file can hold no code, so it may come from a stranger. The operators that it calls
    are found by their names, so import the modules that define them first.

    Parameters
    ----------
    source : path or file
        A file must be open for reading bytes.
    weights : path, optional
        The file of the arrays that were saved apart; by default the one beside `source`
        with the name that it had. Their elements are read when they are used.
    limit : int, bytes
        The largest size of the description of the graph, and of parts that were
        compressed by other programs. Reading takes up to 30 times as much memory.

    Returns
    -------
    GraphModule

    Raises
    ------
    ArgumentError
        If `source` is neither a path nor a file, or `limit` is not a number.
    GraphFileError
        If the file is not a graph, is damaged, or names an operator or class that is not
        known here or has changed since; the message names it.
    FileNotFoundError
        If there is no such file.

    Examples
    --------
    >>> import io, numpy as np, customop as co
    >>> file = io.BytesIO()
    >>> co.make_fx(lambda x: np.sin(x) + 1.0)(np.zeros(2)).save(file)
    >>> co.load_graph(file)(np.zeros(2))
    array([1., 1.])
    """
    if type(limit) is not int or limit < 0:
        raise ArgumentError(
            f"load_graph: limit={shown(limit)} is not a number of bytes",
            do="pass a whole number, such as limit=2**30",
        )
    try:
        with patient(), reading(source, limit) as archive:
            document = _read_json(archive, limit)
            outside = _find_weights(document, source, weights)
            return _Loader(document, archive, outside).load()
    except GraphFileError as error:
        if isinstance(source, str | os.PathLike):
            error.where += (f"in the file {shown(os.fspath(source))}",)
        error.do = (
            error.do or "the file is damaged or was changed: save the graph again"
        )
        raise


# ---- the document ----


def _read_json(archive: ArchiveReader, limit: int) -> dict[str, Any]:
    """Return the description of the graph."""
    size = archive.size("graph.json")
    if size > limit:
        raise GraphFileError(
            f"graph.json has {size} bytes, more than the limit of {limit}",
            do=f"if you trust the file: load_graph(path, limit={size})",
        )
    try:
        coded = archive.read("graph.json")
        has_long = _MANY_DIGITS in coded.translate(_DIGITS)
        document = json.loads(
            coded.decode("ascii"),
            parse_int=_parse_int if has_long else None,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique,
        )
    except GraphFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise GraphFileError(f"graph.json is not JSON: {shown(error)}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise GraphFileError("the file is a zip, but not one of a graph")
    if document.get("version") != VERSION:
        raise GraphFileError(
            f"the file has version {shown(document.get('version'))} of the format, and"
            f" this is a customop of version {VERSION}",
            do="install a newer customop, or save the graph with this one",
        )
    return as_entries(document, "graph.json", f"format version {_TABLES}", "weights")


# Without so many digits in a row no number is too long, and Python reads numbers in C.
_MANY_DIGITS = b"0" * 20
_DIGITS = bytes.maketrans(b"123456789", b"000000000")


def _parse_int(text: str) -> int:
    if len(text) > 20:  # Python takes long for long ones
        raise GraphFileError(f"graph.json has a number of {len(text)} digits")
    return int(text)


def _refuse_constant(text: str) -> None:
    raise GraphFileError(f"graph.json has the number {text}, which JSON does not have")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise GraphFileError("graph.json has an object with the same entry twice")
    return found


def _find_weights(
    document: Mapping[str, Any], source: Any, given: Any
) -> WeightsReader | None:
    """Return the file of the arrays that were saved apart."""
    named = document.get("weights")
    if named is None:
        if given is not None:
            raise GraphFileError(
                "the graph has all its arrays in its own file",
                do="leave weights= out",
            )
        return None
    name = as_text(named, "weights")
    if given is not None:
        return WeightsReader(given)
    if name in ("", ".", "..") or {*name} & {*"/\\:\0"}:
        raise GraphFileError(f"the weights are in {shown(name)}, which is not a name")
    if hasattr(source, "read"):
        raise GraphFileError(
            f"the arrays of the graph are in another file, {shown(name)}",
            do=f"give its path: load_graph(file, weights={name!r})",
        )
    return WeightsReader(Path(source).parent / name)


# ---- tables ----


class _Loader:
    """Reads the tables of a document, each after those that it refers to."""

    def __init__(
        self,
        document: dict[str, Any],
        archive: ArchiveReader,
        outside: WeightsReader | None,
    ) -> None:
        self._document = document
        self._archive = archive
        self._outside = outside
        self._graphs: list[GraphModule] = []
        self._parts = {"graph.json"}
        self._weights: set[str] = set()
        self._values: ValueReader = ValueReader([], [], self._graphs)

    def load(self) -> GraphModule:
        """Return the last graph, which holds all others."""
        self._operators = [self._operator(entry) for entry in self._table("operators")]
        self._places = [as_line(place, "a place") for place in self._table("places")]
        classes = [read_class(entry) for entry in self._table("classes")]
        self._contexts = [read_context(entry) for entry in self._table("contexts")]
        sizes = [read_size(entry, self._contexts) for entry in self._table("sizes")]
        self._values = ValueReader(classes, sizes, self._graphs)
        self._constants = [self._constant(entry) for entry in self._table("constants")]
        self._check_complete()
        self._vals = [self._values(val) for val in self._table("values")]
        for entry in self._table("graphs"):
            self._graphs.append(self._graph(entry))
        if not self._graphs:
            raise GraphFileError("the file has no graph")
        return self._graphs[-1]

    def _table(self, name: str) -> list[Any]:
        return as_list(self._document[name], f"the table of {name}")

    def _check_complete(self) -> None:
        more = set(self._archive.parts) - self._parts
        if more:
            raise GraphFileError(f"no constant is in the part {shown(min(more))}")
        if self._outside is not None:
            self._outside.check_names(self._weights)

    def _operator(self, written: Any) -> RuleTable:
        entry = as_entries(written, "an operator", "name schema module")
        name, schema, module = (
            as_text(entry[part], f"the {part} of an operator")
            for part in ("name", "schema", "module")
        )
        try:
            found = find_operator(name)
        except MissingRuleError as error:
            raise GraphFileError(
                f"the graph calls {shown(name)[1:-1]}, which is not defined here",
                f"it was saved with {shown(name)[1:-1]}{schema}",
                do=_import_of(module),
                op=name,
            ) from error
        check_schema(found, schema)
        return found

    # ---- constants ----

    def _constant(self, written: Any) -> Any:
        if isinstance(written, dict) and len(written) == 1:
            ((form, inner),) = written.items()
            if form == "array":
                return self._array(inner)
            if form == "generator":
                return read_generator(inner)
            if form == "value":
                return self._values(inner)
        raise GraphFileError(f"{shown(written)} is not a constant")

    def _array(self, written: Any) -> Any:
        entry = as_entries(written, "an array", "dtype shape", "strides part weights")
        described = {k: v for k, v in entry.items() if k not in ("part", "weights")}
        if "weights" in entry:
            return self._outside_array(described, as_text(entry["weights"], "weights"))
        part = as_text(entry.get("part"), "the part of an array")
        if part in self._parts:
            raise GraphFileError(f"two constants are in the part {shown(part)}")
        self._parts.add(part)
        with self._archive.open(part) as read:
            return read_npy(described, self._archive.size(part), read)

    def _outside_array(self, written: dict[str, Any], name: str) -> Any:
        if self._outside is None or name in self._weights:
            raise GraphFileError(f"there are no weights for {shown(name)}")
        self._weights.add(name)
        dtype, shape = read_dtype(written["dtype"]), read_shape(written["shape"])
        strides = read_strides(written.get("strides"), shape, dtype.itemsize)
        return laid_out(self._outside.read(name, dtype, shape), shape, strides)

    # ---- graphs ----

    def _graph(self, written: Any) -> GraphModule:
        entry = as_entries(
            written, "a graph", "name place inputs outputs constants nodes", "sizes"
        )
        graph = Graph()
        if "sizes" in entry:
            graph.sizes = entry_of(self._contexts, entry["sizes"], "context")
        for name, number in as_object(entry["constants"], "the constants").items():
            found = entry_of(self._constants, number, "constant")
            graph.constants[_identifier(name)] = found
        self._values.nodes = []
        for node in as_list(entry["nodes"], "the nodes"):
            self._values.nodes.append(self._node(graph, node))
        specs = self._structure(entry["inputs"]), self._structure(entry["outputs"])
        name = as_line(entry["name"], "the name of a graph")
        made = GraphModule(graph, *specs, name=name, place=self._place(entry))
        self._check_graph(made)
        return made

    def _place(self, entry: Mapping[str, Any]) -> str:
        found: str = entry_of(self._places, entry["place"], "place")
        return found

    def _structure(self, written: Any) -> Structure | None:
        if written is None:
            return None
        tree = as_entries(written, "a structure", "tree")["tree"]
        self._values.nodes = []
        leaves, spec = flatten(self._values(tree))
        if not all(type(leaf) is LeafMark for leaf in leaves):
            raise GraphFileError("a structure has values in the places of leaves")
        return spec

    def _check_graph(self, module: GraphModule) -> None:
        try:
            module.graph.lint()
        except CustomOpError as error:
            raise GraphFileError(f"the graph is not well made: {error.what}") from error
        inputs, outputs = module.graph.inputs, module.graph.output_node.args[0]
        for spec, count in (
            (module.in_spec, len(inputs)),
            (module.out_spec, len(outputs)),
        ):
            if spec is not None and len(spec.accessors()) != count:
                raise GraphFileError(
                    f"a structure has {len(spec.accessors())} leaves for {count} nodes"
                )
        spec = module.in_spec
        if spec is not None and not _is_of_arguments(unflatten(spec, inputs)):
            raise GraphFileError("the structure of the inputs is not one of arguments")

    # ---- nodes ----

    def _node(self, graph: Graph, written: Any) -> Node:
        entry = as_entries(
            written, "a node", "op name", "target args kwargs place value meta"
        )
        op, name = entry["op"], _identifier(entry["name"])
        args = tuple(self._values.items(entry.get("args", []), "the arguments", 0))
        named = as_object(entry.get("kwargs", {}), "the keywords")
        kwargs = {k: self._values(v) for k, v in named.items()}
        target = self._target(op, name, args, entry)
        if op == CALL:
            check_arguments(target, args, kwargs)
        elif kwargs:
            raise GraphFileError(f"the node '{name}' has keywords")
        node = graph.make(op, target, args, kwargs, name)
        if node.name != name:
            raise GraphFileError(f"two nodes have the name '{name}'")
        return self._with_facts(node, entry)

    def _target(
        self, form: Any, name: str, args: Sequence[Any], entry: Mapping[str, Any]
    ) -> Any:
        """Return the target of a node, whose arguments must be those of its kind."""
        written = entry.get("target")
        if form == CALL:
            return self._called(written)
        if form in (PLACEHOLDER, CONSTANT) and not args:
            return name if written is None else as_text(written, "a target")
        if form == ITEM and len(args) == 2 and type(args[1]) in (int, str):
            return None
        if form == OUTPUT and len(args) == 1 and type(args[0]) is list:
            return None
        if form not in (PLACEHOLDER, CONSTANT, ITEM, OUTPUT):
            raise GraphFileError(f"{shown(form)} is not a kind of node")
        raise GraphFileError(f"the node '{name}' has the arguments {shown(args)}")

    def _called(self, written: Any) -> Any:
        """Return an operator, or a graph."""
        if not isinstance(written, dict):
            return entry_of(self._operators, written, "operator")
        found = self._values(written)
        if not isinstance(found, GraphModule):
            raise GraphFileError(f"{shown(written)} is neither an operator nor a graph")
        return found

    def _with_facts(self, node: Node, entry: Mapping[str, Any]) -> Node:
        val = entry.get("value")
        if val is not None:
            val = entry_of(self._vals, val, "value")
        elif node.op == CONSTANT:
            val = node.graph.constants.get(node.target)
        place = self._place(entry) if "place" in entry else None
        node.note(val, place)
        if "meta" in entry:
            facts = as_object(entry["meta"], "the facts of a node")
            node.meta.update({k: self._values(v) for k, v in facts.items()})
        return node


def _identifier(written: Any) -> str:
    """Return a name that may stand in generated code."""
    name = as_text(written, "a name")
    if not name.isidentifier() or iskeyword(name) or not name.isascii():
        raise GraphFileError(f"{shown(name)} is not a name for a node")
    return name


def _import_of(module: str) -> str:
    if module == "__main__":
        return "define it in a module, import that, and capture the graph again"
    return f"import {shown(module)[1:-1]} first"


def _is_of_arguments(found: Any) -> bool:
    """Return whether the inputs of a graph are a tuple and a dict, as of a call."""
    if type(found) is not tuple or [*map(type, found)] != [tuple, dict]:
        return False
    return all(type(name) is str and name.isidentifier() for name in found[1])
