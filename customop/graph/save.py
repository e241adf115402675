"""Saving graphs: the description of a graph as JSON, and its arrays beside it in a zip.

The format is described in ``examples/guide/graph_files.md``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.nested import Structure, unflatten
from customop.core.collector import patient
from customop.core.table import CallWriter, RuleTable
from customop.errors import GraphFileError
from customop.graph.files.archive import (
    ArchiveWriter,
    can_be_outside,
    described_array,
    npy_chunks,
    npy_size,
    replacing,
    write_weights,
    writing,
)
from customop.graph.files.fields import NotWritable, one_line, written_generator
from customop.graph.files.file_values import LeafMark, ValueWriter
from customop.graph.node import CALL, CONSTANT, ITEM, PLACEHOLDER, Node, nodes_in

if TYPE_CHECKING:  # it saves itself by the function below
    from customop.graph.module import GraphModule


FORMAT = "customop graph"
VERSION = 1


def save(
    module: GraphModule,
    target: str | os.PathLike[str] | IO[bytes],
    weights: str | os.PathLike[str] | None = None,
) -> None:
    """Write a graph to a file: see `GraphModule.save`."""
    document = _Document(outside=weights is not None)
    with ExitStack() as stack:
        stack.enter_context(patient())
        document.add_graph(module)
        document.check_writes()
        if weights is not None:
            document.weights = Path(weights).name
            file = stack.enter_context(replacing(weights))
            write_weights(file, document.outside)
        document.write(stack.enter_context(writing(target)))


class _Document:
    """The tables of a graph file."""

    def __init__(self, *, outside: bool) -> None:
        self.values = ValueWriter(self.add_graph)
        self.weights: str | None = None
        # Name -> array, for those that are written to a file of their own.
        self.outside: dict[str, np.ndarray[Any, Any]] = {}
        self._has_outside = outside
        self._inside: list[np.ndarray[Any, Any]] = []
        self._operators: dict[str, int] = {}
        self._operator_entries: list[dict[str, Any]] = []
        self._objects: dict[int, int] = {}
        self._object_entries: list[Any] = []
        # They are found by their ids, so they must not be freed.
        self._kept: list[Any] = []
        # All arrays by name, and the names of those that a node writes into.
        self._arrays: list[tuple[str, np.ndarray[Any, Any]]] = []
        self._written: list[tuple[Node, np.ndarray[Any, Any]]] = []
        self._places: dict[str, int] = {}
        self._vals: dict[str, int] = {}
        # The same for fake arrays without symbols: most nodes have such facts.
        self._fakes: dict[Any, int] = {}
        self._val_entries: list[Any] = []
        self._graphs: dict[int, int] = {}
        # Calls of functions with derivatives of their own: their keys, graphs by key, and
        # the keys of those whose graphs are being written.
        self._keys: dict[Any, str] = {}
        self._functions: dict[str, Any] = {}
        self._writing: list[str] = []
        self._graph_entries: list[Any] = []

    def write(self, archive: ArchiveWriter) -> None:
        """Write the parts of the zip."""
        text = json.dumps(self._as_json(), separators=(",", ":"), allow_nan=False)
        coded = text.encode("ascii")
        archive.add("graph.json", iter([coded]), len(coded))
        for number, array in enumerate(self._inside):
            archive.add(f"arrays/{number}.npy", npy_chunks(array), npy_size(array))

    def _as_json(self) -> dict[str, Any]:
        found = {
            "format": FORMAT,
            "version": VERSION,
            "operators": self._operator_entries,
            "classes": self.values.classes,
            "contexts": self.values.sizes.contexts,
            "sizes": self.values.sizes.sizes,
            "constants": self._object_entries,
            "places": [*self._places],
            "values": self._val_entries,
            "graphs": self._graph_entries,
        }
        if self.weights is not None:
            found["weights"] = self.weights
        return found

    # ---- graphs ----

    def add_graph(self, module: GraphModule) -> int:
        """Return the number of a graph, which follows those of the graphs inside it."""
        known = self._graphs.get(id(module))
        if known == _OPEN:
            raise NotWritable("a graph is inside itself")
        if known is not None:
            return known
        self._graphs[id(module)] = _OPEN
        self._kept.append(module)
        outer = self.values.nodes
        entry = self._graph_entry(module)
        self.values.nodes = outer
        self._graphs[id(module)] = len(self._graph_entries)
        self._graph_entries.append(entry)
        return self._graphs[id(module)]

    def _graph_entry(self, module: GraphModule) -> dict[str, Any]:
        graph = module.graph
        graph.lint()
        self.values.nodes = {node: i for i, node in enumerate(graph.nodes)}
        constants = {
            name: self._constant(name, value, module)
            for name, value in graph.constants.items()
        }
        with _naming(f"the structure of {module.__name__}", module.place):
            entry = {
                "name": one_line(str(module.__name__)),
                "place": self._place(module.place),
                "inputs": self._structure(module.in_spec),
                "outputs": self._structure(module.out_spec),
            }
        if graph.sizes is not None:
            entry["sizes"] = self.values.sizes.context(graph.sizes)
        return {
            **entry,
            "constants": constants,
            "nodes": [self._node(node) for node in graph.nodes],
        }

    def _structure(self, spec: Structure | None) -> Any:
        if spec is None:
            return None
        leaves = [LeafMark() for _ in spec.accessors()]
        return {"tree": self.values(unflatten(spec, leaves))}

    def _place(self, place: str | None) -> int | None:
        if place is None:
            return None
        return self._places.setdefault(one_line(place), len(self._places))

    # ---- nodes ----

    def _node(self, node: Node) -> dict[str, Any]:
        found: dict[str, Any] = {"op": node.op, "name": node.name}
        try:
            self._add_call(found, node)
        except NotWritable as error:
            raise _named(error, f"the node '{node.name}'", node.place) from None
        self._add_facts(found, node)
        return found

    def _add_call(self, found: dict[str, Any], node: Node) -> None:
        """Add what a node calls or names, and its arguments."""
        if node.op == CALL:
            writer = self._writer_of(node)
            if writer is not None:
                found |= self._function(node, writer)
                return
            if isinstance(node.target, RuleTable):
                found["target"] = self._operator(node.target)
            else:  # a graph module
                found["target"] = self.values(node.target)
            self._note_writes(node)
        elif node.op in (PLACEHOLDER, CONSTANT) and node.target != node.name:
            found["target"] = node.target
        if node.args:
            found["args"] = [self.values(value) for value in node.args]
        if node.kwargs:
            found["kwargs"] = {k: self.values(v) for k, v in node.kwargs.items()}

    def _writer_of(self, node: Node) -> CallWriter | None:
        """Return what writes a call of a function that has derivatives of its own."""
        if not isinstance(node.target, RuleTable):
            return None
        return node.target.writer(node.args, node.graph.sizes)

    def _function(self, node: Node, writer: CallWriter) -> dict[str, Any]:
        """Return the operator and the arguments of such a call."""
        name = node.target.qualname
        key = self._keys.setdefault(writer.identity, f"{name}#{len(self._keys)}")
        if len(self._writing) > _DEPTH:
            raise NotWritable(f"the rules of {name} call functions again and again")
        if key in self._writing:
            op, given = writer.again(key)
        else:
            op, given = self._captured(key, name, writer)
        self._writing.append(key)
        try:
            args = [self.values(value) for value in (node.args[0], *given)]
        finally:
            self._writing.pop()
        return {"target": self._operator(op), "args": args}

    def _captured(self, key: str, name: str, writer: CallWriter) -> Any:
        """Return the graphs of a call, which are captured once."""
        if key not in self._functions:
            try:
                self._functions[key] = writer.operator(key)
            except Exception as error:  # whatever the user's functions raise
                why = getattr(error, "what", f"{type(error).__name__}: {error}")
                raise NotWritable(
                    f"{writer.part} of {name} cannot be captured: {why}"
                ) from error
        return self._functions[key]

    def _add_facts(self, found: dict[str, Any], node: Node) -> None:
        place, val = node.place, node.val
        if place is not None:
            found["place"] = self._place(str(place))
        is_itself = node.op == CONSTANT and val is node.graph.constants[node.target]
        if val is not None and not is_itself:
            try:
                found["value"] = self._val(val)
            except NotWritable as error:
                what = f"the value of the node '{node.name}'"
                raise _named(error, what, place) from None
        for name, fact in node.more_facts().items():
            do = f"del node.meta[{name!r}]"
            with _naming(f"meta[{name!r}] of the node '{node.name}'", place, do):
                found.setdefault("meta", {})[str(name)] = self.values(fact)

    def _val(self, val: Any) -> int:
        """Return the number of a fact about a value: many nodes have the same one."""
        key = _key_of(val)
        if key in self._fakes:
            return self._fakes[key]
        written = self.values(val)
        text = json.dumps(written)
        number = self._vals.setdefault(text, len(self._val_entries))
        if number == len(self._val_entries):
            self._val_entries.append(written)
        if key is not None:
            self._fakes[key] = number
        return number

    def _operator(self, op: RuleTable) -> int:
        number = self._operators.setdefault(op.qualname, len(self._operators))
        if number == len(self._operator_entries):
            module = op.definition.module
            entry = {"name": op.qualname, "schema": str(op.schema), "module": module}
            self._operator_entries.append(entry)
        return number

    # ---- constants ----

    def _constant(self, name: str, value: Any, module: GraphModule) -> int:
        """Return the number of a constant; one object has one number."""
        number = self._objects.setdefault(id(value), len(self._object_entries))
        if number == len(self._object_entries):
            self._kept.append(value)
            with _naming(f"the constant '{name}'", _first_place(module, name)):
                self._object_entries.append(self._object(name, value))
        return number

    def _object(self, name: str, value: Any) -> Any:
        try:
            if isinstance(value, np.memmap) or type(value) is np.ndarray:
                return self._array(name, np.asarray(value))
            if isinstance(value, np.random.Generator):
                return {"generator": written_generator(value)}
        except ValueError as error:
            raise NotWritable(str(error)) from None
        return {"value": self.values(value)}

    def _array(self, name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
        entry = described_array(array)
        self._arrays.append((name, array))
        if self._has_outside and can_be_outside(array):
            entry["weights"] = self._name_outside(name)
            self.outside[entry["weights"]] = array
        else:
            entry["part"] = f"arrays/{len(self._inside)}.npy"
            self._inside.append(array)
        return {"array": entry}

    def _note_writes(self, node: Node) -> None:
        """Keep the constants that a call writes into."""
        if not node.target.schema.written:
            return
        bound = node.bound()
        for name in node.target.schema.written:
            for root in _roots(bound[name]):
                constant = root.graph.constants.get(root.target)
                if root.op == CONSTANT and isinstance(constant, np.ndarray):
                    self._written.append((node, constant))

    def check_writes(self) -> None:
        """Raise if a write changes two constants, which files have apart."""
        for node, array in self._written:
            for name, other in self._arrays:
                if other is not array and np.may_share_memory(array, other):
                    place = node.meta.get("place")
                    raise GraphFileError(
                        f"the node '{node.name}' cannot be saved: what it writes into"
                        f" shares its memory with the constant '{name}', and files have"
                        " each array apart",
                        *([f"traced at {place}"] if place else []),
                        do="use one of the arrays in the function, and slice it there",
                    )

    def _name_outside(self, name: str) -> str:
        """Return a name that no outer graph uses for an array."""
        found, number = name, 1
        while found in self.outside:
            number += 1
            found = f"{name}_{number}"
        return found


def _roots(value: Any) -> list[Node]:
    """Return the nodes whose memory a value has: itself, if it is not a view."""
    found: list[Node] = []
    waiting = nodes_in([value])
    while waiting:
        node = waiting.pop()
        is_view = node.op == ITEM or (
            node.op == CALL and any(r.alias for r in node.target.schema.returns)
        )
        if is_view:
            waiting += node.inputs
        else:
            found.append(node)
    return found


# The number of a graph that is being written.
_OPEN = -1
# How deep functions with derivatives of their own may call each other.
_DEPTH = 40


def _key_of(val: Any) -> Any:
    """Return a key that is equal for fake arrays that are written alike; or None."""
    if type(val) is not FakeArray or not _INTS.issuperset(map(type, val.shape)):
        return None
    if not _INTS.issuperset(map(type, val.strides)):
        return None
    # Equal dtypes of other libraries may be others of NumPy.
    return val.shape, type(val.dtype), val.dtype, val.strides, val.device


_INTS = frozenset((int,))


def _first_place(module: GraphModule, name: str) -> str | None:
    """Return where the program first uses a constant."""
    for node in module.graph.nodes:
        if node.op == CONSTANT and node.target == name:
            places = [user.meta.get("place") for user in (node, *node.users)]
            return next((str(place) for place in places if place), None)
    return None


def _named(error: NotWritable, what: str, place: Any, do: str = "") -> GraphFileError:
    """Return the error that says where a value is that cannot be written."""
    return GraphFileError(
        f"{what} cannot be saved: {error}",
        *([f"traced at {place}"] if place else []),
        do=do or "capture a function without it, or pass it as an input",
    )


@contextmanager
def _naming(what: str, place: Any, do: str = "") -> Iterator[None]:
    """Say of a value that cannot be written where it is."""
    try:
        yield
    except NotWritable as error:
        raise _named(error, what, place, do) from None
