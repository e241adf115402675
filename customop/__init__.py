"""Custom operators for NumPy and CuPy."""

import importlib
from typing import TYPE_CHECKING, Any

from customop.arrays.array import Array, ArrayT
from customop.arrays.fake import FakeArray, fake_like
from customop.arrays.kinds import register_array_type
from customop.arrays.numpy_protocol import getitem, register_numpy_function
from customop.arrays.on_demand import add_modules
from customop.config import config
from customop.core.boxes import is_view, write_back
from customop.core.definition import fallthrough_kernel
from customop.core.explain import Candidate, Explanation
from customop.core.grad_rules import Formula
from customop.core.interpreter import Interpreter, Mode
from customop.core.observe import Observer
from customop.core.operator import Operator
from customop.core.partials import partials
from customop.core.rule_kind import RuleKind
from customop.core.rule_types import BatchInfo, Context
from customop.core.tracer import Tracer
from customop.errors import (
    ArgumentError,
    ContractError,
    CustomOpError,
    CustomOpWarning,
    DataDependentError,
    DeviceMismatchError,
    GradientError,
    LeakedTracerError,
    MissingRuleError,
    NanError,
    OpCheckError,
    RegistrationError,
    SchemaError,
    ShapeError,
    UnknownNameError,
    VmapError,
    did_you_mean,
)
from customop.library.by_schema import define, get_kernel, impl
from customop.library.define import custom_op
from customop.library.functions import (
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
from customop.library.library import Library
from customop.library.ops import OperatorPacket, ops
from customop.numpy import MODULES
from customop.schema.annotations import Device, DType, Scalar, register_config_type
from customop.schema.schema import Schema, infer_schema
from customop.schema.tags import Tag
from customop.transforms.autocast import autocast
from customop.transforms.autograd.grad import grad, value_and_grad, vjp
from customop.transforms.autograd.native import native
from customop.transforms.autograd.tracer import GradTracer
from customop.transforms.autograd.variables import (
    backward,
    enable_grad,
    no_grad,
    stop_gradient,
    variable,
)
from customop.transforms.derivatives import hessian, jacfwd, jacrev
from customop.transforms.fake_mode import FakeMode, eval_shape
from customop.transforms.jvp import jvp
from customop.transforms.vmap import vmap

__all__ = [
    "ArgumentError",
    "Array",
    "ArrayT",
    "BatchInfo",
    "Candidate",
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
    "Interpreter",
    "LeakedTracerError",
    "Library",
    "MissingRuleError",
    "Mode",
    "NanError",
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
    "Tag",
    "Tracer",
    "UnknownNameError",
    "VmapError",
    "array",
    "assert_close",
    "autocast",
    "backward",
    "checkpoint",
    "config",
    "custom_jvp",
    "custom_op",
    "custom_vjp",
    "define",
    "enable_grad",
    "eval_shape",
    "fake_like",
    "fallthrough_kernel",
    "get_kernel",
    "getitem",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "hessian",
    "hvp",
    "impl",
    "infer_schema",
    "is_view",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "native",
    "no_grad",
    "opcheck",
    "ops",
    "partials",
    "profile",
    "register",
    "register_array_dispatch",
    "register_array_type",
    "register_autocast",
    "register_autograd",
    "register_config_type",
    "register_dataclass",
    "register_fake",
    "register_jvp",
    "register_kernel",
    "register_numpy_function",
    "register_sample_inputs",
    "register_vmap",
    "stop_gradient",
    "tree",
    "value_and_grad",
    "variable",
    "vjp",
    "vmap",
    "write_back",
]

__version__ = "0.1.0"

# Most programs do not need these names: they are imported at the first access, which
# saves 6 ms of 50.
_LATER = {
    "array": "customop.arrays.making",
    "assert_close": "customop.testing",
    "checkpoint": "customop.transforms.functions.checkpoint",
    "custom_jvp": "customop.transforms.functions.custom",
    "custom_vjp": "customop.transforms.functions.custom",
    "gradcheck": "customop.testing",
    "gradgradcheck": "customop.testing",
    "hvp": "customop.transforms.linear",
    "linearize": "customop.transforms.linear",
    "opcheck": "customop.testing",
    "profile": "customop.profiling.profile",
    "register_dataclass": "customop.schema.dataclass_trees",
    "tree": "customop.arrays.tree",  # the module itself
}

if TYPE_CHECKING:
    from customop.arrays import tree
    from customop.arrays.making import array
    from customop.profiling.profile import profile
    from customop.schema.dataclass_trees import register_dataclass
    from customop.testing import assert_close, gradcheck, gradgradcheck, opcheck
    from customop.transforms.functions.checkpoint import checkpoint
    from customop.transforms.functions.custom import custom_jvp, custom_vjp
    from customop.transforms.linear import hvp, linearize
else:
    # Type checkers do not see this function: with it, they accept every misspelled name.
    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            near = did_you_mean(name, [] if name.startswith("_") else __all__)
            raise AttributeError(f"module 'customop' has no attribute '{name}'{near}")
        module = importlib.import_module(_LATER[name])
        found = getattr(module, name, module)
        globals()[name] = found
        _make_public(found)
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
