"""Custom operators for NumPy and CuPy."""

from customop.annotations import Array, ArrayT, Device, DType, Scalar
from customop.autograd import grad, native, value_and_grad, vjp
from customop.config import config
from customop.derivatives import hessian, jacfwd, jacrev
from customop.devices import register_array_type
from customop.dispatch import Interpreter, Mode, Tracer
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
    OpCheckError,
    RegistrationError,
    SchemaError,
    ShapeError,
    VmapError,
)
from customop.fake import FakeMode, eval_shape
from customop.fakearray import FakeArray, fake_like
from customop.jvp import jvp
from customop.kinds import RuleKind, Tag
from customop.library import (
    custom_op,
    register,
    register_autograd,
    register_fake,
    register_jvp,
    register_kernel,
    register_vmap,
)
from customop.operator import Operator
from customop.protocols import getitem, register_numpy_function
from customop.reverse import GradTracer
from customop.schema import Schema, infer_schema
from customop.testing import assert_close, gradcheck, gradgradcheck
from customop.variables import (
    backward,
    enable_grad,
    no_grad,
    stop_gradient,
    variable,
)
from customop.vmap import vmap

__all__ = [
    "ArgumentError",
    "Array",
    "ArrayT",
    "ContractError",
    "CustomOpError",
    "CustomOpWarning",
    "DType",
    "DataDependentError",
    "Device",
    "DeviceMismatchError",
    "FakeArray",
    "FakeMode",
    "GradTracer",
    "GradientError",
    "Interpreter",
    "LeakedTracerError",
    "MissingRuleError",
    "Mode",
    "OpCheckError",
    "Operator",
    "RegistrationError",
    "RuleKind",
    "Scalar",
    "Schema",
    "SchemaError",
    "ShapeError",
    "Tag",
    "Tracer",
    "VmapError",
    "assert_close",
    "backward",
    "config",
    "custom_op",
    "enable_grad",
    "eval_shape",
    "fake_like",
    "getitem",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "hessian",
    "infer_schema",
    "jacfwd",
    "jacrev",
    "jvp",
    "native",
    "no_grad",
    "register",
    "register_array_type",
    "register_autograd",
    "register_fake",
    "register_jvp",
    "register_kernel",
    "register_numpy_function",
    "register_vmap",
    "stop_gradient",
    "value_and_grad",
    "variable",
    "vjp",
    "vmap",
]

# Last, since the NumPy operators are registered through the names above.
from customop import numpy as _numpy  # noqa: F401  # isort: skip
