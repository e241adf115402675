"""A graph as a function: its inputs and outputs are pytrees, and it checks its guards."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from copy import deepcopy
from importlib import import_module
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from customop.arrays.nested import Structure, flatten, show, unflatten
from customop.core.collector import patient
from customop.errors import ArgumentError, GuardError, counted
from customop.graph.code_parts import Pack, Unpack, packer, unpacker
from customop.graph.graph import Graph
from customop.graph.guards import InputGuard, guards_of
from customop.graph.node import CALL, PLACEHOLDER, Node
from customop.graph.replay import GivenCode, Replay, compile_graph
from customop.graph.text import named_constants, readable
from customop.later import later
from customop.schema.config_classes import ClassFields, declare
from customop.schema.schema import Schema
from customop.schema.types import ARRAY, ClassOf, Parameter, Return, classes
from customop.shapes.conditions import Guard

if TYPE_CHECKING:
    from customop.graph.pictures.drawing import Drawing

# Tracing needs none of these, which take half of its import.
drawing: ModuleType = later(import_module, "customop.graph.pictures.drawing")
load: ModuleType = later(import_module, "customop.graph.load")
graph_page: ModuleType = later(import_module, "customop.graph.pictures.graph_page")
saving: ModuleType = later(import_module, "customop.graph.save")


# ---- a graph as a function ----
# Its inputs and outputs are pytrees, and it checks its guards.


class GraphModule:
    """A function that runs a graph.

    Parameters
    ----------
    graph : Graph
    in_spec : Structure, optional
        Of the pair of positional and keyword arguments, whose leaves are the inputs of
        the graph; by default each input is a positional argument.
    out_spec : Structure, optional
        Of the result; by default it is the output, or a list if there are several.
    name : str
        Of the function that was traced.
    place : str
        File and line where it was traced.

    Attributes
    ----------
    graph : Graph
        Call `recompile` after editing it.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> graph = co.make_fx(lambda x: np.sin(x) * 2.0)(np.zeros(3))
    >>> [node.op for node in graph.graph.nodes]
    ['placeholder', 'call', 'call', 'output']
    >>> graph(np.zeros(3))
    array([0., 0., 0.])
    """

    def __init__(
        self,
        graph: Graph,
        in_spec: Structure | None = None,
        out_spec: Structure | None = None,
        *,
        name: str = "graph",
        place: str = "",
    ) -> None:
        self._graph: Graph = graph
        self._in_spec: Structure | None = in_spec
        self._out_spec: Structure | None = out_spec
        self.__name__: str = name
        self.place: str = place
        self._replay: Replay | GivenCode | None = None
        self._schema: Schema | None = None
        self._count: int = 0
        self._is_flat: bool = False
        self._unpack: Unpack | None = None
        # As that, without the check that leaves are leaves.
        self._take: Unpack | None = None
        self._pack: Pack | None = None

    def __repr__(self) -> str:
        return f"<GraphModule {self.__name__} of {counted(self.graph.count, 'node')}>"

    # ---- what it holds ----

    @property
    def graph(self) -> Graph:
        """The graph; one that is assigned takes its place in later calls."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise ArgumentError(
                f"{self.__name__}.graph is {show(graph)}, must be a Graph",
                do="assign the graph of another module: module.graph = other.graph",
            )
        self.recompile()
        self._graph = graph

    @property
    def in_spec(self) -> Structure | None:
        """Return how the arguments are nested."""
        return self._in_spec

    @property
    def out_spec(self) -> Structure | None:
        """Return how the result is nested."""
        return self._out_spec

    @property
    def inputs(self) -> list[Node]:
        """The inputs of the graph, in order."""
        return [node for node in self.graph.nodes if node.op == PLACEHOLDER]

    @property
    def constants(self) -> dict[str, Any]:
        """Name -> array or object that the graph uses; replace them as you like."""
        return self.graph.constants

    @property
    def guards(self) -> Sequence[InputGuard | Guard]:
        """The checks before the graph runs: of each input, then of symbolic sizes."""
        sizes = self.graph.sizes
        return [
            *guards_of(self.inputs, self.place),
            *([] if sizes is None else sizes.guards),
        ]

    @property
    def code(self) -> str:
        """The generated Python."""
        return self._compiled().code

    def print_readable(self, print_output: bool = True) -> str:
        """Print the graph as Python with types: it can be read, and run.

        Parameters
        ----------
        print_output : bool
            False to return the text without printing it.

        Returns
        -------
        str
            The last function in it computes what the graph does. Constants of more than
            100 elements, and those without a text, are taken from a dict `constants`:
            ``exec(text, {"constants": module.named_constants()})``.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> module = co.make_fx(lambda x: np.sin(x) * 2.0)(np.zeros(3))
        >>> text = module.print_readable(print_output=False)
        >>> print(text[text.index("def") :])  # doctest: +ELLIPSIS
        def graph(x: "f64[3]"):  # ...
            sin: "f64[3]" = co.ops.np.sin.default(x); del x  # ...
            multiply: "f64[3]" = co.ops.np.multiply.default(sin, 2.0); del sin  # ...
            return multiply
        <BLANKLINE>
        """
        text = readable(self)
        if print_output:
            print(text)  # noqa: T201  # as its name says
        return text

    def named_constants(self) -> dict[str, Any]:
        """Return the constants that the text of `print_readable` takes by name.

        Returns
        -------
        dict
            Name -> array or object.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> table = np.zeros(200)  # too long to be written out
        >>> module = co.make_fx(lambda x: x + table)(np.zeros(200))
        >>> [(name, value.shape) for name, value in module.named_constants().items()]
        [('constant', (200,))]
        """
        return named_constants(self)

    # ---- running ----

    def recompile(self) -> None:
        """Generate the code again, after the graph was edited.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> module = co.make_fx(lambda x: x * 2.0)(np.zeros(1))
        >>> x, multiply, _ = module.graph.nodes
        >>> multiply.args = (x, 10.0)
        >>> module.recompile()
        >>> module(np.ones(1))
        array([10.])
        """
        self._replay = self._schema = None
        self._unpack = self._take = self._pack = None

    def _compiled(self) -> Replay | GivenCode:
        if self._replay is not None:
            return self._replay
        with patient():
            self.graph.lint()
            self._count = len(self.graph.inputs)
            self._is_flat = self.in_spec is None or self._is_flat_spec()
            title = f"graph of {self.__name__}"
            if self.in_spec is not None and self._unpack is None:
                names = f"arguments of {self.__name__}"
                self._unpack = unpacker(self.in_spec, names)
                self._take = unpacker(self.in_spec, names, checks_leaves=False)
            if self.out_spec is not None and self._pack is None:
                self._pack = packer(self.out_spec, f"result of {self.__name__}")
            self._replay = compile_graph(self.graph, title, self.place)
            return self._replay

    def _is_flat_spec(self) -> bool:
        """Return whether each input is one positional argument."""
        leaves = (*range(self._count),)
        return bool(self.in_spec == flatten((leaves, {}))[1])

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        replay = self._replay or self._compiled()
        try:
            out = None
            leaves = self._taken(args, kwargs)
            if leaves is not None:
                out = replay.run_plain(leaves)
            if out is None:
                out = replay.run(self._leaves(args, kwargs))
        except Exception as error:
            replay.note(error)
            raise
        return self._result(out)

    def consume(self, args: list[Any]) -> Any:
        """Run the graph on arguments that it frees early.

        Parameters
        ----------
        args : list
            The positional arguments. The list is emptied, so that an array which nobody
            else has is freed after its last use. Python keeps the arguments of a usual
            call until it returns.

        Returns
        -------
        object
            As a call does.

        Raises
        ------
        ArgumentError
            If `args` is not a list.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> graph = co.make_fx(lambda x: np.sin(x) + 1.0)(np.zeros(2))
        >>> args = [np.zeros(2)]
        >>> graph.consume(args), args
        (array([1., 1.]), [])
        """
        if type(args) is not list:
            raise ArgumentError(
                f"{self.__name__}.consume: args is {show(args)}, must be a list",
                do="write graph.consume([x, y])",
            )
        replay = self._replay or self._compiled()
        try:
            leaves = self._leaves((*args,), {})
            args.clear()
            out = replay.run(leaves)
        except Exception as error:
            replay.note(error)
            raise
        return self._result(out)

    def _result(self, out: list[Any]) -> Any:
        """Return the result, from its leaves."""
        if self._pack is not None:
            return self._pack(out)
        return out[0] if len(out) == 1 else out

    def _taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Return the leaves of arguments that seem to be nested as they should be."""
        if self._is_flat and not kwargs and len(args) == self._count:
            return [*args]
        return None if self._take is None else self._take(args, kwargs)

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        found = None if self._unpack is None else self._unpack(args, kwargs)
        if found is not None:
            return found
        leaves, spec = flatten((args, kwargs))
        expected = self.in_spec
        if expected is None:
            expected = flatten(((*range(self._count),), {}))[1]
        if spec != expected:
            raise GuardError(
                f"the graph is called as {_call_text(self.__name__, spec)}",
                f"it was traced as {_call_text(self.__name__, expected)}"
                + (f" at {self.place}" if self.place else ""),
                do="call it with arguments that are nested as those",
            )
        return leaves

    # ---- files ----

    def save(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        *,
        weights: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write the graph to a file, which `load_graph` reads in any process.

        The file holds no code: operators are named, and arrays are data. The same graph
        gives the same bytes. An existing file is replaced only once all is written.

        Parameters
        ----------
        target : path or file
            A file must be open for writing bytes.
        weights : path, optional
            Write the arrays to a file of their own, in the format of safetensors.

        Raises
        ------
        GraphFileError
            If the graph holds something that files have no form for, such as a function
            or an array of another library; the message names the node.

        Examples
        --------
        >>> import io, numpy as np, customop as co
        >>> file = io.BytesIO()
        >>> co.make_fx(lambda x: np.sin(x) + 1.0)(np.zeros(2)).save(file)
        >>> co.load_graph(file)(np.zeros(2))
        array([1., 1.])
        """
        saving.save(self, target, weights)

    # ---- as the target of a call in another graph ----

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.__name__

    @property
    def qualname(self) -> str:
        """The same, as operators have one."""
        return self.__name__

    @property
    def sees_seed(self) -> bool:
        """Return whether an operator in the graph draws random numbers."""
        return any(n.op == CALL and n.target.sees_seed for n in self.graph.nodes)

    @property
    def schema(self) -> Schema:
        """Its parameters and results: an array for each input and leaf of the output."""
        if self._schema is None:
            count = len(self.graph.output_node.args[0])
            parameters = tuple([Parameter(node.name, ARRAY) for node in self.inputs])
            returns = tuple([Return(ARRAY) for _ in range(count)])
            self._schema = Schema(parameters, returns, is_tuple=count > 1)
        return self._schema

    def run(self, *leaves: Any) -> Any:
        """Run the graph on the leaves of its inputs.

        Parameters
        ----------
        *leaves
            One for each input, also for those that are not arrays.

        Returns
        -------
        object
            The only leaf of the result, a tuple of several leaves, or None without any.

        Raises
        ------
        GuardError
            If an input is not as it was when the graph was traced.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> module = co.make_fx(lambda pair: {"sum": pair[0] + pair[1]})((1.0, np.ones(2)))
        >>> module.run(1.0, np.ones(2))
        array([2., 2.])
        """
        out = self._compiled().run([*leaves])
        if len(out) == 1:
            return out[0]
        return tuple(out) if out else None

    def run_list(self, *leaves: Any) -> list[Any]:
        """Run the graph on the leaves of its inputs, and return those of its result.

        Parameters
        ----------
        *leaves
            One for each input, also for those that are not arrays.

        Returns
        -------
        list

        Raises
        ------
        GuardError
            If an input is not as it was when the graph was traced.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> module = co.make_fx(lambda x: (x + 1.0, x * 2.0))(np.zeros(1))
        >>> module.run_list(np.ones(1))
        [array([2.]), array([2.])]
        """
        replay = self._replay or self._compiled()
        given = [*leaves]
        del leaves
        try:
            return replay.run(given)
        except Exception as error:
            replay.note(error)
            raise

    # ---- pictures ----

    def draw(self, path: str | os.PathLike[str] | None = None) -> Drawing:
        """Draw the graph: a box for each node, above those that use it.

        Parameters
        ----------
        path : path, optional
            A file to write: ``.svg``; ``.png``, which needs matplotlib; or ``.html``, a
            page that folds and searches, for large graphs.

        Returns
        -------
        Drawing
            Notebooks show it; its text is `Drawing.svg`.

        Raises
        ------
        ArgumentError
            If the path ends in something else, or matplotlib is not installed.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> drawing = co.make_fx(lambda x: np.sin(x) + 1.0)(np.zeros(2)).draw()
        >>> drawing.svg[:4]
        '<svg'
        """
        found: Drawing = drawing.draw(self, path)
        return found

    def _repr_html_(self) -> str:
        return str(graph_page.notebook_html(self))

    # ---- copies ----

    def with_graph(self, graph: Graph) -> GraphModule:
        """Return a module for another graph with the same inputs and outputs.

        Parameters
        ----------
        graph : Graph

        Returns
        -------
        GraphModule

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> module = co.make_fx(lambda x: {"y": x * 2.0})(np.zeros(1))
        >>> copy = module.with_graph(module.graph.copy())
        >>> copy(np.ones(1)), copy.graph is module.graph
        ({'y': array([2.])}, False)
        """
        return GraphModule(
            graph, self.in_spec, self.out_spec, name=self.__name__, place=self.place
        )

    def with_code(self, code: GivenCode) -> GraphModule:
        """Return a module for the same graph that runs by other code."""
        new = self.with_graph(self.graph)
        new._compiled()  # noqa: SLF001  # of the same class
        new._replay = code  # noqa: SLF001  # of the same class
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        file = io.BytesIO()
        self.save(file)
        return _from_bytes, (file.getvalue(),)

    def __copy__(self) -> GraphModule:
        return self.with_graph(self.graph.copy())

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        return self.with_graph(deepcopy(self.graph, memo))


def _from_bytes(content: bytes) -> Any:
    """Return the module of a pickle, which has the content of a file."""
    return load.load_graph(io.BytesIO(content))


class _AnyLeaf:
    """Marks the place of a leaf in the text of a call."""

    def __repr__(self) -> str:
        return "*"


def _call_text(name: str, spec: Structure) -> str:
    """Return a call with arguments of a structure, such as ``f({'a': *}, k=*)``."""
    args, kwargs = unflatten(spec, [_AnyLeaf()] * len(spec.accessors()))
    named = [f"{key}={value!r}" for key, value in kwargs.items()]
    return f"{name}({', '.join([*map(repr, args), *named])})"


# ---- graphs as arguments of operators ----
# Constants, of which no transform sees a part.


# Its name in schemas.
GRAPH = "customop.GraphModule"


def _allow_graphs() -> None:
    GraphModule.__module__ = "customop"
    declare(GraphModule)
    fields = ClassFields(GraphModule, {}, frozenset(), None, False)
    classes[GRAPH] = ClassOf(GRAPH, fields, {})


_allow_graphs()
