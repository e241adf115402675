"""The pages of the API reference: every public name, on one page.

A test compares this table with `__all__` of the public modules.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GROUPS", "THEMES", "Theme"]


@dataclass(frozen=True, slots=True)
class Theme:
    """A page: its title, a sentence, pages of the guide, and names by section.

    A section is a heading and names of `module`; a name may have dots. `modules` are
    documented by their docstrings, before the names.
    """

    title: str
    about: str
    guide: str
    sections: dict[str, str]
    module: str = "customop"
    modules: str = ""


# The index of the reference: names of pages; that of NumPy's functions has no theme.
GROUPS = {
    "Operators": "operators operator rules formulas schemas errors",
    "Transforms": "gradients batching shapes sizes trees arrays transforms",
    "Graphs": "graphs passes compile",
    "Checks": "checking strategies profiling",
    "Libraries": "numpy scipy_special scipy_linalg scipy_sparse scipy_fft scipy_signal"
    " scipy_stats torch jax xarray dask numba",
}

THEMES = {
    "operators": Theme(
        "Operators",
        "Make operators, and call them by name.",
        "rules schema",
        {"": "custom_op define Library fallthrough_kernel OperatorPacket ops"},
    ),
    "operator": Theme(
        "The operator object",
        "What an operator has, and which rule a call takes.",
        "rules schema",
        {
            "": "Operator",
            "Which rule does a call take?": "Explanation Candidate",
        },
    ),
    "rules": Theme(
        "Registering rules",
        "Kernels of an operator, and what it computes on. Each function is also a method of `Operator`.",
        "rules shapes",
        {
            "Kernels": "register_kernel get_kernel register_fake get_ctx"
            " register_autocast register_array_dispatch impl register",
            "Samples": "register_sample_inputs",
        },
    ),
    "formulas": Theme(
        "Formulas and batching rules",
        "Derivatives of an operator, and rules for a batch of rows.",
        "gradients batching",
        {
            "Gradients": "register_autograd register_jvp Context Formula native partials"
            " prepared",
            "Batches": "register_vmap BatchInfo axis_rule broadcast_rule",
        },
    ),
    "schemas": Theme(
        "Schemas and annotations",
        "What an operator takes and returns, from type hints or as text.",
        "schema typing",
        {
            "Schemas": "Schema infer_schema Tag",
            "Annotations": "Array ArrayT Device DType Scalar register_config_type",
        },
    ),
    "gradients": Theme(
        "Derivatives",
        "Of functions of arrays and of nested lists, dicts and dataclasses of arrays.",
        "gradients",
        {
            "Reverse mode": "grad value_and_grad vjp jacrev",
            "Forward mode": "jvp jacfwd linearize",
            "Second derivatives": "hessian hvp",
            "Functions with their own derivatives": "custom_vjp custom_jvp"
            " custom_root custom_fixed_point checkpoint stop_gradient",
            "Variables": "variable backward no_grad enable_grad",
        },
    ),
    "batching": Theme(
        "vmap and loops",
        "Functions over the rows of a batch, and loops and branches that every transform sees.",
        "batching control_flow",
        {
            "Batches": "vmap",
            "Control flow": "cond while_loop fori_loop scan map associative_scan",
        },
    ),
    "arrays": Theme(
        "Arrays",
        "Kinds of array, arrays of traced values, and NumPy functions for them.",
        "rules gradients",
        {
            "Kinds of array": "array_kind register_array_type register_array_wrapper",
            "Traced values": "array getitem traceable",
            "NumPy's functions": "register_numpy_function",
            "Precision": "autocast",
        },
    ),
    "shapes": Theme(
        "Fake arrays",
        "Fake arrays have a shape and a dtype, and no numbers. Sizes may be symbolic.",
        "shapes sizes",
        {
            "Fake arrays": "eval_shape fake_like FakeArray FakeMode",
            "Symbolic sizes": "check SymInt SymFloat SymBool",
        },
    ),
    "sizes": Theme(
        "Questions about sizes",
        "Functions for fake kernels, which take numbers and symbolic sizes.",
        "sizes",
        {"": "*"},
        "customop.sizes",
        "customop.sizes",
    ),
    "trees": Theme(
        "Trees",
        "Nested lists, tuples, dicts and dataclasses of arrays.",
        "gradients",
        {"": "*", "Your own classes": "customop.register_dataclass"},
        "customop.tree",
        "customop.tree",
    ),
    "graphs": Theme(
        "make_fx and GraphModule",
        "Capture a function as a graph: print, run, differentiate and save it.",
        "graphs graph_files graph_pictures",
        {
            "Capture": "make_fx decompose functionalize",
            "Run, print, draw, save": "GraphModule load_graph",
        },
    ),
    "passes": Theme(
        "Nodes and passes",
        "Look at the calls of a graph, and change them.",
        "graphs",
        {
            "Nodes": "Graph Node",
            "Change": "replace_pattern eliminate_common_subexpressions eliminate_dead_code"
            " fold_constants reuse_buffers fuse_nodes split_graph inline_graphs",
            "Walk": "walk_graph walk_graph_back",
        },
    ),
    "compile": Theme(
        "compile and back ends",
        "The same numbers in less time.",
        "compile",
        {"": "compile Compiled register_backend ufunc_from_loops"},
    ),
    "checking": Theme(
        "opcheck and gradcheck",
        "Compare all rules of an operator with its kernel.",
        "checking",
        {
            "Checks": "opcheck gradcheck gradgradcheck assert_close",
            "Results and samples": "customop.testing.OpCheckResult customop.testing.Sample",
            "Devices": "customop.testing.devices_at_hand customop.testing.as_kind",
        },
    ),
    "profiling": Theme(
        "Settings and profiles",
        "How calls are checked, and what operators cost.",
        "checking profiling",
        {"Settings": "config", "Profiles": "profile Observer"},
    ),
    "strategies": Theme(
        "Strategies",
        "Inputs of operators as strategies of hypothesis.",
        "checking",
        {"": "*"},
        "customop.testing.strategies",
        "customop.testing.strategies",
    ),
    "transforms": Theme(
        "Transforms of your own",
        "Rule kinds, interpreters and modes: what the built-in transforms are made of.",
        "rules",
        {
            "Rule kinds": "RuleKind is_view write_back",
            "Interpreters": "Interpreter Mode Tracer GradTracer GraphTracer",
        },
    ),
    "errors": Theme(
        "Errors and warnings",
        "Each error is also an exception of Python that you would expect.",
        "errors checking",
        {
            "": "CustomOpError CustomOpWarning",
            "Definitions": "RegistrationError SchemaError UnknownNameError",
            "Calls": "ArgumentError ShapeError DeviceMismatchError ContractError NanError",
            "Transforms": "MissingRuleError NoDerivativeError LeakedTracerError"
            " DataDependentError VmapError",
            "Graphs and sizes": "GraphError GraphFileError GuardError SizeError",
            "Checks": "OpCheckError GradientError",
        },
    ),
    "scipy_special": Theme(
        "customop.scipy.special",
        "Its functions, for arrays, traced values and fake arrays.",
        "scipy",
        {"": "*"},
        "customop.scipy.special",
        "customop.scipy.special",
    ),
    "scipy_linalg": Theme(
        "customop.scipy.linalg",
        "Its functions, for arrays, traced values and fake arrays.",
        "scipy",
        {"": "*"},
        "customop.scipy.linalg",
        "customop.scipy.linalg",
    ),
    "scipy_sparse": Theme(
        "customop.scipy.sparse",
        "Products with sparse matrices whose numbers may be traced.",
        "scipy",
        {"": "*"},
        "customop.scipy.sparse",
        "customop.scipy.sparse",
    ),
    "scipy_fft": Theme(
        "customop.scipy.fft",
        "Its functions, for arrays, traced values and fake arrays.",
        "scipy",
        {"": "*"},
        "customop.scipy.fft",
        "customop.scipy.fft",
    ),
    "scipy_signal": Theme(
        "customop.scipy.signal",
        "Its functions, for arrays, traced values and fake arrays.",
        "scipy",
        {"": "*"},
        "customop.scipy.signal",
        "customop.scipy.signal",
    ),
    "scipy_stats": Theme(
        "customop.scipy.stats",
        "Distributions, for arrays, traced values and fake arrays.",
        "scipy",
        {"": "*"},
        "customop.scipy.stats",
        "customop.scipy.stats",
    ),
    "torch": Theme(
        "customop.interop.torch",
        "Operators in torch, operators of torch here, and tensors as arrays.",
        "torch",
        {"": "*"},
        "customop.interop.torch",
        "customop.interop.torch",
    ),
    "jax": Theme(
        "customop.interop.jax",
        "Operators as functions of JAX, and its arrays as arrays.",
        "jax",
        {"": "*"},
        "customop.interop.jax",
        "customop.interop.jax",
    ),
    "xarray": Theme(
        "customop.interop.xarray",
        "Operators and transforms on DataArrays and Datasets.",
        "xarray",
        {"": "*"},
        "customop.interop.xarray",
        "customop.interop.xarray",
    ),
    "dask": Theme(
        "customop.interop.dask",
        "Operators on dask arrays.",
        "larger_than_memory",
        {"": "*"},
        "customop.interop.dask",
        "customop.interop.dask",
    ),
    "numba": Theme(
        "customop.interop.numba",
        "Functions of numba as operators, and operators in its code.",
        "numba",
        {"": "*"},
        "customop.interop.numba",
        "customop.interop.numba",
    ),
}
