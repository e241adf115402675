"""Facts about values on which a dtype or shape of NumPy's results depends.

NumPy gives real eigenvalues a real dtype, and leaves leading zeros of a product out. A
graph has one dtype and shape for all its runs. So a capture takes such a fact for true
or false, and the graph checks it in each run: `GuardError` where it is otherwise, and a
compiled function then captures again, or runs as it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from customop import Tracer, partials, sizes
from customop.numpy.arguments import dtype_of, has_none, value_of
from customop.numpy.rules import keep_order, numpy_operator


class SeenValue(NamedTuple):
    """Hold what is known of the values of an array.

    Attributes
    ----------
    value : array or None
        Those of all rows of a batch, and of the example while values are traced.
    is_later : bool
        Whether a graph computes it, or it is a row.
    is_row : bool
    """

    value: Any
    is_later: bool
    is_row: bool

    @property
    def example(self) -> Any:
        """The value, or that of the example; None for a row, and where it is not known."""
        return None if self.is_row else self.value


def seen(x: Any) -> SeenValue:
    """Return what is known of the values of an array."""
    is_later = is_row = False
    while isinstance(x, Tracer):
        is_later = is_later or not x.is_concrete
        is_row = is_row or len(x.shape) != len(x.below.shape)
        x = x.below
    return SeenValue(value_of(x), is_later, is_row)


class Fact(NamedTuple):
    """A fact about values, as it is known or taken to be.

    Attributes
    ----------
    flag : array of bool
        The fact is true if all elements are, in all rows of a batch.
    is_so : bool
        Whether it is true here, or taken to be.
    is_checked : bool
        Whether a graph must check it.
    what : str
        What depends on the fact, for messages.
    do : str
        The remedy in a message.
    """

    flag: Any
    is_so: bool
    is_checked: bool
    what: str
    do: str

    def then(self, x: Any) -> Any:
        """Return an array; in a graph, only if the fact is as it was taken."""
        if not self.is_checked:
            return x
        return _guessed(x, self.flag, self.is_so, self.what, self.do)


def fact(
    flag: Any, usual: bool, what: str, do: str, *, may_differ: bool = True
) -> Fact:
    """Ask for a fact about values; it is `usual` where none are known.

    Parameters
    ----------
    flag : array of bool
    usual : bool
    what, do : str
        As for `Fact`.
    may_differ : bool
        Whether a graph can be made for values for which it is not usual.
    """
    value, is_later, _ = seen(flag)
    if has_none(flag.shape):
        return Fact(flag, True, False, what, do)
    if value is None:
        is_so = sizes.guess(usual, may_differ=may_differ)
    else:
        is_so = bool(np.all(value))
    return Fact(flag, is_so, is_later, what, do)


def real_values(name: str, x: Any, complex_call: str) -> Fact:
    """Ask whether complex results are real numbers, of which NumPy makes real ones."""
    return fact(
        np.equal(np.imag(x), 0),
        False,
        f"{name}: the dtype of the result depends on whether all of its values are real",
        f"write {complex_call}, whose result is complex for all values",
    )


def _kernel(x: Any, flag: Any, expected: bool, what: str, do: str) -> Any:
    if bool(np.all(flag)) is not expected:
        sizes.refuse_guess(what, expected, do)
    return x.copy("K") if isinstance(x, np.ndarray) else x.copy()


_guessed = numpy_operator(
    "guessed",
    "(Array x, Array flag, bool expected, str what, str do) -> Array",
    _kernel,
)
_guessed.register_fake(lambda x, flag, expected, what, do: keep_order([x], dtype_of(x)))
_guessed.register_autograd(partials({"x": lambda g: g, "flag": None}))


@_guessed.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    return _guessed(*primals), tangents[0]


@_guessed.register_vmap
def _(info: Any, in_dims: Any, x: Any, flag: Any, *rest: Any) -> Any:
    # The fact is about all rows.
    return _guessed(x, flag, *rest), in_dims[0]


_guessed.register_sample_inputs(
    lambda: [
        (np.array([1.4, -0.7]), np.array(True), True, "a fact", "nothing"),
        (np.array([[0.8], [2.3]]), np.array([True, False]), False, "a fact", "nothing"),
        (np.array([[[1.9, -0.6]]]), np.array([[True]]), True, "a fact", "nothing"),
    ]
)
