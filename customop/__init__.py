"""Custom operators for NumPy and CuPy."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from customop.arrays.array import Array, ArrayT
from customop.arrays.fake import FakeArray, fake_like
from customop.arrays.kinds import array_kind, register_array_wrapper
from customop.arrays.numpy_functions import (
    add_modules,
    getitem,
    register_numpy_function,
)
from customop.config import config
from customop.core.builtin_kinds import Formula
from customop.core.interpreter import Interpreter, Mode
from customop.core.observe import Observer
from customop.core.operator import Operator
from customop.core.rule_kind import RuleKind, fallthrough_kernel
from customop.core.tracer import Tracer, is_view, write_back
from customop.errors import (
    ArgumentError,
    ContractError,
    CustomOpError,
    CustomOpWarning,
    DataDependentError,
    DeviceMismatchError,
    GradientError,
    GraphError,
    GraphFileError,
    GuardError,
    LeakedTracerError,
    MissingRuleError,
    NanError,
    NoDerivativeError,
    OpCheckError,
    RegistrationError,
    SchemaError,
    ShapeError,
    SizeError,
    UnknownNameError,
    VmapError,
    did_you_mean,
)
from customop.forks import importing
from customop.library.define import custom_op
from customop.library.ops import OperatorPacket, ops
from customop.numpy import MODULES
from customop.schema.annotations import Device, Scalar, register_config_type
from customop.schema.schema import Schema, infer_schema
from customop.schema.tags import Tag
from customop.synonyms import written_here

__all__ = [
    "ArgumentError",
    "Array",
    "ArrayT",
    "BatchInfo",
    "Candidate",
    "Compiled",
    "Context",
    "ContractError",
    "CustomOpError",
    "CustomOpWarning",
    "DType",
    "DataDependentError",
    "Device",
    "DeviceMismatchError",
    "Explanation",
    "FakeArray",
    "FakeMode",
    "Formula",
    "GradTracer",
    "GradientError",
    "Graph",
    "GraphError",
    "GraphFileError",
    "GraphModule",
    "GraphTracer",
    "GuardError",
    "Interpreter",
    "LeakedTracerError",
    "Library",
    "MissingRuleError",
    "Mode",
    "NanError",
    "NoDerivativeError",
    "Node",
    "Observer",
    "OpCheckError",
    "Operator",
    "OperatorPacket",
    "RegistrationError",
    "RuleKind",
    "Scalar",
    "Schema",
    "SchemaError",
    "ShapeError",
    "SizeError",
    "SymBool",
    "SymFloat",
    "SymInt",
    "Tag",
    "Tracer",
    "UnknownNameError",
    "VmapError",
    "array",
    "array_kind",
    "assert_close",
    "associative_scan",
    "autocast",
    "axis_rule",
    "backward",
    "broadcast_rule",
    "check",
    "checkpoint",
    "compile",
    "cond",
    "config",
    "custom_fixed_point",
    "custom_jvp",
    "custom_op",
    "custom_root",
    "custom_vjp",
    "decompose",
    "define",
    "eliminate_common_subexpressions",
    "eliminate_dead_code",
    "enable_grad",
    "eval_shape",
    "fake_like",
    "fallthrough_kernel",
    "fold_constants",
    "fori_loop",
    "functionalize",
    "fuse_nodes",
    "get_ctx",
    "get_kernel",
    "getitem",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "hessian",
    "hvp",
    "impl",
    "infer_schema",
    "inline_graphs",
    "is_view",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "load_graph",
    "make_fx",
    "map",
    "native",
    "no_grad",
    "opcheck",
    "ops",
    "partials",
    "prepared",
    "profile",
    "register",
    "register_array_dispatch",
    "register_array_type",
    "register_array_wrapper",
    "register_autocast",
    "register_autograd",
    "register_backend",
    "register_config_type",
    "register_dataclass",
    "register_fake",
    "register_jvp",
    "register_kernel",
    "register_numpy_function",
    "register_sample_inputs",
    "register_vmap",
    "replace_pattern",
    "reuse_buffers",
    "scan",
    "sizes",
    "split_graph",
    "stop_gradient",
    "traceable",
    "tree",
    "ufunc_from_loops",
    "value_and_grad",
    "variable",
    "vjp",
    "vmap",
    "walk_graph",
    "walk_graph_back",
    "while_loop",
    "write_back",
]

__version__ = "0.1.0"

# Module -> public names in it. Defining an operator needs none of them, so they are
# imported at the first access: the import takes 19 ms and not 32.
_LATER: dict[str, str] = {
    "customop.arrays.convert": "array register_array_type",
    "customop.arrays.traceable": "traceable",
    "customop.arrays.tree": "tree",
    "customop.compiling.backends": "register_backend",
    "customop.compiling.compile": "compile Compiled",
    "customop.control.associative": "associative_scan",
    "customop.control.flow": "cond fori_loop map scan while_loop",
    "customop.core.explain": "Candidate Explanation",
    "customop.core.fake_context": "get_ctx",
    "customop.core.rule_makers": "axis_rule partials prepared",
    "customop.core.tag_rules": "broadcast_rule",
    "customop.core.rule_types": "BatchInfo Context",
    "customop.graph.graph": "Graph",
    "customop.graph.load": "load_graph",
    "customop.graph.module": "GraphModule",
    "customop.graph.node": "Node",
    "customop.graph.passes": "eliminate_common_subexpressions eliminate_dead_code fold_constants"
    " reuse_buffers",
    "customop.graph.subgraphs": "fuse_nodes inline_graphs split_graph",
    "customop.graph.walk": "walk_graph walk_graph_back",
    "customop.library.c_loops": "ufunc_from_loops",
    "customop.library.declare": "define get_kernel impl",
    "customop.library.library": "Library",
    "customop.library.register": "register_array_dispatch register_autocast register_fake register_kernel"
    " register register_autograd register_jvp register_sample_inputs register_vmap",
    "customop.profiling.profile": "profile",
    "customop.schema.config_classes": "register_dataclass",
    "customop.schema.dtype_hints": "DType",
    "customop.shapes.size_context": "check",
    "customop.shapes.sizes": "sizes",
    "customop.shapes.symbolic": "SymBool SymFloat SymInt",
    "customop.testing": "assert_close gradcheck gradgradcheck opcheck",
    "customop.transforms.autograd.grad": "grad value_and_grad vjp native",
    "customop.transforms.autograd.tape": "GradTracer",
    "customop.transforms.autograd.variables": "backward enable_grad no_grad stop_gradient variable",
    "customop.transforms.derivatives": "hessian jacfwd jacrev hvp linearize",
    "customop.transforms.functions.checkpoint": "checkpoint",
    "customop.transforms.functions.custom": "custom_vjp custom_jvp",
    "customop.transforms.functions.implicit": "custom_root custom_fixed_point",
    "customop.transforms.jvp": "jvp",
    "customop.transforms.modes": "autocast FakeMode eval_shape",
    "customop.transforms.trace.functionalize": "functionalize",
    "customop.transforms.trace.graph_tracer": "GraphTracer",
    "customop.transforms.trace.make_fx": "make_fx",
    "customop.transforms.trace.rewrite": "decompose replace_pattern",
    "customop.transforms.vmap": "vmap",
}

if TYPE_CHECKING:
    from customop.arrays import tree
    from customop.arrays.convert import array, register_array_type
    from customop.arrays.traceable import traceable
    from customop.compiling.backends import register_backend
    from customop.compiling.compile import (
        Compiled,
        compile,  # noqa: A004  # torch's name
    )
    from customop.control.associative import associative_scan
    from customop.control.flow import (
        cond,
        fori_loop,
        map,  # noqa: A004  # JAX's name
        scan,
        while_loop,
    )
    from customop.core.explain import Candidate, Explanation
    from customop.core.fake_context import get_ctx
    from customop.core.rule_makers import axis_rule, partials, prepared
    from customop.core.rule_types import BatchInfo, Context
    from customop.core.tag_rules import broadcast_rule
    from customop.graph.graph import Graph
    from customop.graph.load import load_graph
    from customop.graph.module import GraphModule
    from customop.graph.node import Node
    from customop.graph.passes import (
        eliminate_common_subexpressions,
        eliminate_dead_code,
        fold_constants,
        reuse_buffers,
    )
    from customop.graph.subgraphs import fuse_nodes, inline_graphs, split_graph
    from customop.graph.walk import walk_graph, walk_graph_back
    from customop.library.c_loops import ufunc_from_loops
    from customop.library.declare import define, get_kernel, impl
    from customop.library.library import Library
    from customop.library.register import (
        register,
        register_array_dispatch,
        register_autocast,
        register_autograd,
        register_fake,
        register_jvp,
        register_kernel,
        register_sample_inputs,
        register_vmap,
    )
    from customop.profiling.profile import profile
    from customop.schema.config_classes import register_dataclass
    from customop.schema.dtype_hints import DType
    from customop.shapes import sizes
    from customop.shapes.size_context import check
    from customop.shapes.symbolic import SymBool, SymFloat, SymInt

    # Each from its own file: mypy 2.4 may take the files for the functions of their names.
    from customop.testing.close import assert_close
    from customop.testing.gradcheck import gradcheck, gradgradcheck
    from customop.testing.opcheck import opcheck
    from customop.transforms.autograd.grad import grad, native, value_and_grad, vjp
    from customop.transforms.autograd.tape import GradTracer
    from customop.transforms.autograd.variables import (
        backward,
        enable_grad,
        no_grad,
        stop_gradient,
        variable,
    )
    from customop.transforms.derivatives import hessian, hvp, jacfwd, jacrev, linearize
    from customop.transforms.functions.checkpoint import checkpoint
    from customop.transforms.functions.custom import custom_jvp, custom_vjp
    from customop.transforms.functions.implicit import custom_fixed_point, custom_root
    from customop.transforms.jvp import jvp
    from customop.transforms.modes import FakeMode, autocast, eval_shape
    from customop.transforms.trace.functionalize import functionalize
    from customop.transforms.trace.graph_tracer import GraphTracer
    from customop.transforms.trace.make_fx import make_fx
    from customop.transforms.trace.rewrite import decompose, replace_pattern
    from customop.transforms.vmap import vmap
else:
    _MODULE_OF = {
        name: module for module, names in _LATER.items() for name in names.split()
    }

    # Type checkers do not see this function: with it, they accept every misspelled name.
    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            near = written_here(name) or did_you_mean(
                name, [] if name.startswith("_") else __all__
            )
            raise AttributeError(f"module 'customop' has no attribute '{name}'{near}")
        module = importing(importlib.import_module, _MODULE_OF[name])
        found = getattr(module, name, module)
        globals()[name] = found
        for other, its_module in _MODULE_OF.items():  # they may be imported now too
            _make_public(vars(sys.modules.get(its_module, module)).get(other))
        return found


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))


def _make_public(value: Any) -> None:
    """Have tracebacks and pickles use the public name of a class."""
    if isinstance(value, type) and value.__module__.startswith("customop."):
        value.__module__ = "customop"


for _name in __all__:
    _make_public(globals().get(_name))

# Its modules register NumPy's operators through the names above, when one is needed.
add_modules("np", "customop.numpy", MODULES)
add_modules(
    "np_out",
    "customop.numpy",
    {
        "outs": "",
    },
)
# Graphs that are loaded may call these.
add_modules(
    "customop",
    "customop.transforms",
    {
        "autograd.variables": "",
        "random_draws": "",
        "trace.graph_tracer": "",
    },
)
add_modules(
    "control",
    "customop.control",
    {
        "operators": "",
    },
)
add_modules(
    "functions",
    "customop.transforms.functions",
    {
        "function_operators": "",
    },
)
