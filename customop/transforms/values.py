"""The values that go into derivatives and come out: checks, and fresh gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any, Final, TypeAlias

import numpy as np

from customop.arrays.describe import abbreviated, show
from customop.arrays.dtypes import in_byte_order, is_inexact
from customop.arrays.foreign import (
    PLAIN_OF_CLASS,
    check_own_rules,
    decides_ufuncs,
    has_own_rules,
)
from customop.arrays.kinds import has_memory, is_array, is_traced
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.pytree import Structure, flatten, outline
from customop.core.boxes import Pinned, frozen
from customop.core.kinds import AUTOGRAD, JVP
from customop.errors import GradientError, counted
from customop.transforms.carrier import check_carried

__all__ = [
    "Fresh",
    "Place",
    "as_cotangent",
    "as_input",
    "as_scalar",
    "as_tangent",
    "check_nested_alike",
    "check_outputs",
    "chosen",
    "one_like",
    "or_zeros",
    "path_in",
    "position_in",
    "positions",
    "split_aux",
]


# ---- inputs ----

# A structure and the number of a leaf -> its place in words.
Place: TypeAlias = Callable[[Structure, int], str]


def as_input(
    value: Any,
    what: str,
    number: int | None = None,
    structure: Structure | None = None,
    place: Place | None = None,
) -> Any:
    """An input of a transform: an array of floats, or a Python float as one.

    Messages call it `what`, with its number if there are several, or with its place in
    the `structure` of which it is the leaf of this number.
    """
    if type(value) is np.ndarray and value.dtype.kind in "fc":
        return value
    if isinstance(value, float | complex) and not isinstance(value, np.generic):
        return np.asarray(value)[()]  # a scalar, which x += 1 does not write
    if not is_array(value):
        wanted = "a float" if isinstance(value, int) else "an array of floats"
        raise GradientError(
            f"{_named(what, number, structure, place)} must be an array of floats, got"
            f" {show(value)}",
            do=f"pass {wanted}, and bind other arguments: lambda x: f(x, n)",
        )
    cls = type(value)
    if has_own_rules(cls):
        check_own_rules(value, _named(what, number, structure, place), GradientError)
    if decides_ufuncs(cls):
        raise GradientError(
            f"{_named(what, number, structure, place)} is a {cls.__name__}, whose"
            " __array_ufunc__ computes what NumPy's rules do not know",
            do=PLAIN_OF_CLASS,
        )
    if cls is not np.ndarray:
        check_carried(value)
    if not is_inexact(value.dtype):
        raise GradientError(
            f"{_named(what, number, structure, place)} has dtype {value.dtype}, which has no"
            " derivative",
            do=_AS_FLOATS.get(value.dtype.kind, "pass x.astype(float)"),
        )
    return value


# How to make floats of arrays for which x.astype(float) is not the answer.
_AS_FLOATS: Final = {
    "V": "pass the fields that are floats as arrays of their own, such as x['name']",
    "M": "pass the time from a start as floats: (x - x[0]) / np.timedelta64(1, 's')",
    "m": "pass the time as floats: x / np.timedelta64(1, 's')",
    **dict.fromkeys(
        "SUT", "pass an array of floats, and bind the text: lambda x: f(x, t)"
    ),
}


# A cast to floats at the end would hide that nothing before it has a derivative.
NO_INTEGERS: Final = (
    "leave out what makes it an integer or a bool, such as argmax, astype(int) or x > 0"
)


def as_cotangent(
    given: Any,
    output: Any,
    what: str,
    number: int | None = None,
    structure: Structure | None = None,
) -> Any:
    """A cotangent of the shape and dtype of an output; numbers become arrays."""
    return _as_like(given, output, what, number, "output", structure)


def as_tangent(
    given: Any,
    primal: Any,
    what: str,
    number: int | None = None,
    structure: Structure | None = None,
    place: Place | None = None,
) -> Any:
    """A tangent of the shape and dtype of its primal; numbers become arrays."""
    return _as_like(given, primal, what, number, "primal", structure, place)


def _named(
    what: str, number: int | None, structure: Structure | None, place: Place | None
) -> str:
    """How messages call a value: with its number, or its place among several leaves."""
    if number is None:
        return what
    if structure is None:
        return f"{what} {number}"
    return f"{what}{(place or path_in)(structure, number)}"


def path_in(structure: Structure, number: int) -> str:
    """The place of a leaf inside of a value: ``['w'][0]``."""
    return str(structure.accessors()[number].codify(""))


def position_in(structure: Structure, number: int) -> str:
    """The place of a leaf of a tuple of primals, as users count them: `` 1['w']``."""
    accessor = structure.accessors()[number]
    return f" {accessor[0].entry}{accessor[1:].codify('')}"


def check_nested_alike(
    what: str,
    tangents: tuple[Any, ...],
    primals: tuple[Any, ...],
    place: Place,
) -> None:
    """Raise unless tangents, which messages call `what`, are nested as their primals."""
    title = what.partition(":")[0]
    if len(tangents) != len(primals):
        raise GradientError(
            f"{title}: {counted(len(tangents), 'tangent')} for"
            f" {counted(len(primals), 'primal')}",
            do="pass a tangent for each primal: np.zeros_like(x) for one that stays",
        )
    items = flatten(tuple(range(len(primals))))[1]
    for i, (tangent, primal) in enumerate(zip(tangents, primals, strict=True)):
        own, wanted = flatten(tangent)[1], flatten(primal)[1]
        if own != wanted:
            raise GradientError(
                f"{what}{place(items, i)} is nested as {outline(own)}, must be as"
                f" {outline(wanted)} like the primal, where * is an array",
                do="pass a tangent for each array of the primal",
            )


def _as_like(
    given: Any,
    model: Any,
    what: str,
    number: int | None,
    role: str,
    structure: Structure | None = None,
    place: Place | None = None,
) -> Any:
    is_plain = type(given) is type(model) is np.ndarray
    if is_plain and given.shape == model.shape and given.dtype == model.dtype:
        return given
    shape, dtype = getattr(model, "shape", ()), getattr(model, "dtype", None)
    if _is_number_of(given, dtype):
        given = np.asarray(given, dtype)
    if is_array(given):
        if has_own_rules(type(given)):
            check_own_rules(
                given, _named(what, number, structure, place), GradientError
            )
        given = in_byte_order(given, dtype)
    if (
        not is_array(given)
        or tuple(given.shape) != tuple(shape)
        or given.dtype != dtype
    ):
        seen = abbreviated(given) if is_array(given) else show(given)
        want = abbreviated(model) if is_array(model) else show(model)
        raise GradientError(
            f"{_named(what, number, structure, place)} is {seen}, must be {want} like"
            f" the {role}",
            do=f"pass an array of the shape and dtype of the {role}",
        )
    return given


def _is_number_of(given: object, dtype: Any) -> bool:
    """Whether it is a number of Python that a dtype can hold."""
    if isinstance(given, complex):
        return not isinstance(given, np.generic) and getattr(dtype, "kind", "c") == "c"
    return isinstance(given, float | int) and not isinstance(given, np.generic)


def positions(what: str, argnums: Any) -> tuple[tuple[int, ...], bool]:
    """The positions that `argnums` names, and whether it is a single one."""
    try:
        return (index(argnums),), True
    except TypeError:
        pass
    try:
        return tuple(index(position) for position in argnums), False
    except TypeError:
        raise GradientError(
            f"{what}: argnums={argnums!r} must be an int or a sequence of ints",
            do="write argnums=0, or argnums=(0, 1)",
        ) from None


def chosen(what: str, wanted: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The positions in a call of `count` positional arguments, from the front."""
    for position in wanted:
        if not -count <= position < count:
            raise GradientError(
                f"{what}: argnums names argument {position}, the call has"
                f" {count} positional arguments",
                do="pass that argument by position, or change argnums",
            )
    found = tuple([p + count if p < 0 else p for p in wanted])
    if len(found) > 1 and len(set(found)) < len(found):
        raise GradientError(
            f"{what}: argnums={wanted} names an argument twice",
            do="name each argument once",
        )
    return found


# ---- outputs ----


def split_aux(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    """The result of a transformed function, and what is not to be differentiated."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise GradientError(
            f"{name}: with has_aux=True the function must return (output, aux), got"
            f" {show(result)}",
            do="return a pair, or leave has_aux out",
        )
    return result


def check_outputs(leaves: Sequence[Any], structure: Structure, name: str) -> None:
    """Raise unless a transformed function returned arrays."""
    for i, leaf in enumerate(leaves):
        if not is_array(leaf) and not isinstance(leaf, int | float | complex):
            raise GradientError(
                f"{name}: the output{path_in(structure, i)} is {show(leaf)}, must be an"
                " array",
                do="return arrays, and other values as aux with has_aux=True",
            )


# ---- gradients ----


def one_like(value: Any) -> Any:
    """The cotangent one of a value without axes."""
    while is_traced(value) and value.interpreter.kind in _SMOOTH:
        value = value.below  # the one depends on nothing
    if isinstance(value, np.generic):  # from a reduction; an operator takes 7 us
        return value.dtype.type(1)
    if type(value) is np.ndarray:  # a tenth of the time
        return np.ones_like(value)
    return call_numpy(np.ones_like, value)


# The kinds of transforms whose tracers have the shapes and dtypes of their values.
_SMOOTH = frozenset((AUTOGRAD, JVP))


def or_zeros(grad: Any, value: Any) -> Any:
    """A gradient; zeros for an input that the output does not depend on."""
    if grad is not None:
        return grad
    if type(value) is np.ndarray:
        return np.zeros_like(value)  # a fifth of the time
    return call_numpy(np.zeros_like, value)


def as_scalar(value: Any) -> Any:
    """An array of NumPy without axes as the scalar that most formulas give."""
    return value[()] if type(value) is np.ndarray and not value.shape else value


class Fresh:
    """Makes gradients that share no memory, so that the caller can write to them.

    A formula may return its cotangent itself, twice, or broadcast to a read-only view.
    A formula that returns a saved array without the cotangent as a factor is not linear;
    such an array is not copied here.
    """

    __slots__ = ("_seen",)

    def __init__(self, *given: Any) -> None:
        self._seen = {id(_memory_of(v)[0] if is_traced(v) else v) for v in given}

    def __call__(self, grad: Any) -> Any:
        """The gradient, or a copy where its memory may be used elsewhere."""
        # To ask a tracer for its base makes an error.
        if type(grad) is not np.ndarray and is_traced(grad):
            return self._of_tracer(grad)
        if getattr(grad, "base", self) is None and id(grad) not in self._seen:
            self._seen.add(id(grad))
            return grad if grad.shape else as_scalar(grad)
        return as_scalar(grad.copy()) if has_memory(grad) else grad

    def _of_tracer(self, grad: Any) -> Any:
        """The same of a value in an outer transform, whose results are arrays later."""
        memory, is_shared = _memory_of(grad)
        if is_shared or id(memory) in self._seen:
            return grad.copy()
        self._seen.add(id(memory))
        # The first run of a formula gets cotangents that cannot be written.
        is_sealed = type(grad.box_place) is Pinned and grad.box_place.is_sealed
        return frozen(grad) if is_sealed else grad


def _memory_of(value: Any) -> tuple[Any, bool]:
    """The array that holds the elements of a tracer, and whether they are not its own.

    They are not where the array is broadcast, or the view of an array without data.
    """
    is_view = False
    while is_traced(value):
        is_view = is_view or type(value.box_place) is tuple
        value = value.below
    if not isinstance(value, np.ndarray):
        return value, is_view
    axes = zip(value.shape, value.strides, strict=True)
    is_broadcast = any(stride == 0 and length > 1 for length, stride in axes)
    while isinstance(value.base, np.ndarray):
        value = value.base
    return value, is_broadcast
