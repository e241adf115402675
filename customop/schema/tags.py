"""What an operator promises beyond its schema."""

from __future__ import annotations

import enum

__all__ = ["Tag"]


class Tag(enum.Enum):
    """What an operator promises beyond its schema.

    Attributes
    ----------
    inplace
        It writes its first array and returns that array: ``x += y`` as an operator.
        Gives the schema its aliases, the fake kernel and the vmap rule.
    out
        It writes the arrays that it takes by keyword alone, and returns them in
        order. Gives what `inplace` gives.
    pointwise
        Each output element depends on the input elements at its place only, with
        NumPy broadcasting. Gives the vmap rule; where no fake kernel is registered,
        also one that tells the broadcast shape and the dtype of NumPy's promotion.
        It is withdrawn when the first call of a kernel proves it wrong.
    reduction
        It reduces the axes that its parameter `axis` names, all for None, and keeps
        them as axes of length one where it has a parameter `keepdims` that is true.
        Gives the vmap rule and, as for `pointwise`, a fake kernel: of the input's
        dtype.
    nondeterministic_seeded
        The result depends on a random state: vmap asks for its `randomness`.
    nondeterministic_bitwise
        Two calls on the same values may differ in rounding: compare with a tolerance.
    data_dependent_output
        Numbers that it returns depend on the values of its arrays: it has no fake
        kernel unless one is registered.
    dynamic_output_shape
        The shape of a result depends on the values of its arrays, as that of
        ``np.nonzero``: as above.
    needs_contiguous
        Kernels are given every array in C order: a copy where it is not.
    needs_exact_strides
        A fake kernel must tell the very strides of the result.
    flexible_layout
        A fake kernel need not tell the order of the axes in memory.
    """

    inplace = "inplace"
    out = "out"
    pointwise = "pointwise"
    reduction = "reduction"
    nondeterministic_seeded = "nondeterministic_seeded"
    nondeterministic_bitwise = "nondeterministic_bitwise"
    data_dependent_output = "data_dependent_output"
    dynamic_output_shape = "dynamic_output_shape"
    needs_contiguous = "needs_contiguous"
    needs_exact_strides = "needs_exact_strides"
    flexible_layout = "flexible_layout"
