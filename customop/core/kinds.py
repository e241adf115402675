"""The kinds of rules that the package has; a user's own are made in the same way."""

from __future__ import annotations

from typing import ClassVar

from customop.core.derived.find import derive_vmap
from customop.core.table import MergedKind, RuleKind

__all__ = [
    "ARRAY_CLASS",
    "AUTOCAST",
    "AUTOGRAD",
    "COMPOSITE",
    "JVP",
    "MERGED",
    "SAMPLE_INPUTS",
    "VMAP",
]


class BodyKind(RuleKind):
    """A kind whose rules run where an operator has no kernel."""

    __slots__ = ()
    is_kernel: ClassVar[bool] = True


AUTOGRAD = RuleKind("autograd", returns="gradients of the positional inputs")
JVP = RuleKind("jvp", "(primals, tangents, **keywords)", "(output, tangent)")
VMAP = RuleKind(
    "vmap", "(info, in_dims, *inputs)", "(output, out_dims)", derive=derive_vmap
)
# Kind of array -> dtype that `autocast` casts the floats of the operator to.
AUTOCAST = MergedKind("autocast", returns="dtypes by kind of array")
# Class of arrays -> what the operator does with arrays of it.
ARRAY_CLASS = MergedKind(
    "array_class", "(op, args, kwargs)", "what the operator returns"
)
# The body of an operator, made of operators: what every transform sees in place of an
# operator that has no rule for it, and the last resort of every kind of array.
COMPOSITE = BodyKind("composite", "(*inputs)", "what the operator returns")
# Inputs to check the operator with.
SAMPLE_INPUTS = RuleKind("sample_inputs", "()", "samples, or a strategy of them")
# Kinds whose rows are tables of their own: all of them count, newer entries first.
MERGED = (AUTOCAST, ARRAY_CLASS)
