"""Prepare and check the inputs and outputs of transforms.

The first-order formulas of operators run plain ``np.`` code on the arrays themselves, which
is fastest for NumPy and CuPy. For arrays of another kind, such code would bypass the
kernels of their kind: it would compute at once, or convert them to NumPy. So a
transform of such arrays runs on carriers, which are tracers of a transform that does
nothing, below all others. Carriers are removed from the results. For NumPy and CuPy
arrays this costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from operator import index
from types import FunctionType
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import numpy as np
from typing_extensions import ParamSpec

from customop.arrays.array import in_byte_order, is_inexact
from customop.arrays.kinds import (
    PLAIN_OF_CLASS,
    check_own_rules,
    decides_ufuncs,
    has_memory,
    has_own_rules,
    is_array,
    is_traced,
    kind_of,
)
from customop.arrays.nested import (
    Structure,
    abbreviated,
    flatten,
    map_leaves,
    show,
    structure_text,
)
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.stand_ins import entered
from customop.core.builtin_kinds import AUTOGRAD, JVP
from customop.core.call_arguments import check_no_array
from customop.core.interpreter import Interpreter, explain_read_only, given_by_name
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.core.tracer import Pinned, Tracer, frozen
from customop.errors import GradientError, counted, is_ours

# ---- carriers, for arrays whose plain NumPy code must reach operators ----


P = ParamSpec("P")
R = TypeVar("R")


class NeedsCarrier(Exception):
    """Raised if an input of a transform needs a carrier."""


def check_carried(value: Any) -> None:
    """Raise `NeedsCarrier` if an array needs a carrier."""
    kind = kind_of[type(value)]
    if kind is not None and kind.is_carried:
        raise NeedsCarrier


class Carried(Tracer):
    """A tracer around an array, which makes plain NumPy code call operators."""

    __slots__ = ()


class Carrier(Interpreter):
    """A transform that does nothing but run operators."""

    kind: ClassVar[RuleKind] = RuleKind("carrier")
    tracer_class: ClassVar[type[Tracer]] = Carried
    is_lasting: ClassVar[bool] = True

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator on the arrays themselves."""
        return self.wrap(op.invoke(self.unwrap(args)))

    def carry(self, tree: Any) -> Any:
        """Put carriers around the arrays of a pytree that need one."""
        return map_leaves(self._carry, tree)

    def _carry(self, value: Any) -> Any:
        kind = kind_of[type(value)]
        return Carried(self, value) if kind is not None and kind.is_carried else value

    def uncarry(self, tree: Any) -> Any:
        """Remove the carriers of this transform from a pytree."""
        return map_leaves(self.take_out, tree)


def uncarried(value: Any) -> Any:
    """Return the array in a carrier; return other values unchanged."""
    return value.below if type(value) is Carried else value


def carry_for(*values: Any) -> Carrier | None:
    """Return a carrier for the gradients if some result needs one, otherwise None.

    This happens if a function of NumPy arrays uses arrays of another kind from its
    closure. The formulas then start from a carried gradient, so that most of their code
    calls operators.
    """
    for value in values:
        kind = kind_of[type(value)]
        if kind is not None and kind.is_carried:
            return Carrier()
    return None


def carried(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a transformed function on carriers, and remove them from its results."""
    with Carrier() as carrier:
        given = [carrier.carry(value) for value in args]
        named = {name: carrier.carry(value) for name, value in kwargs.items()}
        return carrier.uncarry(fn(*given, **named))


def carries(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorate a transform so that it puts carriers around arguments that need them."""

    @wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except NeedsCarrier:
            pass
        return carried(fn, args, kwargs)  # type: ignore[no-any-return]  # as fn

    return call


# ---- arguments that a transform does not follow, which are read-only ----


# The attribute of a partially applied function that holds all arguments of the call.
_ALL = "customop: all arguments"


def note_inputs(fn: Callable[..., Any], inputs: Any) -> None:
    """Record all arguments of a call in `fn`, which fixes some; they may share memory."""
    vars(fn)[_ALL] = inputs


def inputs_of(fn: Callable[..., Any], given: Any) -> Any:
    """Return all recorded arguments of a call of `fn`, or `given` if there are none."""
    return getattr(fn, _ALL, given)


def call_reading(
    fn: Callable[..., Any],
    describe: Callable[[], str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    at: Sequence[int],
    followed: Sequence[Any],
) -> Any:
    """Call a function with read-only views of the arrays that a transform does not follow.

    Parameters
    ----------
    fn : callable
    describe : callable
        Returns the name of the transform, for messages.
    args, kwargs : sequence, mapping
        The arguments of the transformed function.
    at : sequence of int
        Positions of the arguments that the transform follows.
    followed : sequence
        The arguments by position, with tracers at these positions.
    """
    swaps: _Swaps = []
    given = [v if i in at else _unwritten(v, swaps) for i, v in enumerate(followed)]
    named = {key: _unwritten(v, swaps) for key, v in kwargs.items()} if kwargs else {}
    try:
        return entered(fn)(*given, **named)
    except ValueError as error:
        plain = [v for i, v in enumerate(args) if i not in at] + [*kwargs.values()]
        names = _names(given_by_name(fn, args, kwargs), plain)
        way = "differentiate by it too, with argnums"
        explain_read_only(error, describe(), names, way)
        raise
    finally:
        if swaps:
            _put_back(swaps)


def _names(given: Mapping[str, Any], plain: Iterable[Any]) -> list[str]:
    """Return the names of arguments that have arrays and are among these values."""
    known = {id(value) for value in plain}
    return [
        name
        for name, value in given.items()
        if id(value) in known and any(map(is_array, flatten(value)[0]))
    ]


# Pairs of a list or dict, and its temporary views by identity, with the original
# arrays.
_Swaps = list[tuple[Any, dict[int, tuple[Any, Any]]]]


def _unwritten(value: Any, swaps: _Swaps) -> Any:
    """Return a value with read-only views of its arrays.

    Lists and dicts are not copied, since a function may add to them. They hold the
    views until `_put_back`.
    """
    if isinstance(value, np.ndarray):
        return read_only(value)
    if isinstance(value, float | int):
        return value
    if type(value) is tuple:
        return tuple([_unwritten(v, swaps) for v in value])
    if type(value) is list or type(value) is dict:
        swapped = {}
        for key, item in [*_items(value)]:
            if isinstance(item, np.ndarray) and not item.flags.writeable:
                continue  # for example from an outer transform
            view = _unwritten(item, swaps)
            if view is not item:
                swapped[id(view)] = view, item
                value[key] = view
        if swapped:
            swaps.append((value, swapped))
    return value


def read_only(array: Any) -> Any:
    """Return a read-only view of an array; return other values unchanged."""
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.setflags(write=False)
    return view


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if type(value) is dict else enumerate(value)


def _put_back(swaps: _Swaps) -> None:
    """Replace the views in lists and dicts by the arrays, wherever they are now."""
    for value, swapped in swaps:
        for key, item in [*_items(value)]:
            if id(item) in swapped:
                value[key] = swapped[id(item)][1]


# ---- checks of inputs and outputs, and fresh gradients ----


# ---- inputs ----


def as_argument(value: Any) -> str:
    """Say how a value becomes an array or a pytree; empty if it is like neither."""
    cls = type(value)
    if cls.__module__.startswith("xarray.") and cls.__name__ in _LABELLED:
        return "import customop.interop.xarray; its vmap(fn, dim) batches over a dim"
    if hasattr(cls, "__array__") and hasattr(cls, "shape"):  # such as pandas' Series
        return "pass np.asarray(x)"
    return registration_of(value)


# Classes of xarray that its bridge makes pytrees.
_LABELLED = ("DataArray", "Dataset", "Variable")


def registration_of(value: Any) -> str:
    """Return the call that registers the class of a dataclass; empty for other values."""
    cls = type(value)
    found = flatten(value)[0]
    is_leaf = len(found) == 1 and found[0] is value
    if not hasattr(cls, "__dataclass_fields__") or not is_leaf:
        return ""
    return f"put @customop.register_dataclass above class {cls.__name__}"


def check_numbers(fn: Any, args: Sequence[Any]) -> None:
    """Raise if a transform of an operator gets a number that the operator refuses.

    A transform turns numbers into NumPy scalars, which are arrays, so the operator itself
    would not notice.
    """
    while type(fn) is FunctionType:
        inner = fn.__dict__.get("__wrapped__")
        if inner is None or not is_ours(fn.__globals__):
            return
        fn = inner  # of another transform
    if isinstance(fn, RuleTable):
        for slot in fn.array_slots:
            if slot < len(args) and type(args[slot]) in (float, complex):
                check_no_array(fn, slot, args[slot])


# Takes a structure and the number of a leaf; returns the place of the leaf in words.
Place: TypeAlias = Callable[[Structure, int], str]


def as_input(
    value: Any,
    what: str,
    number: int | None = None,
    structure: Structure | None = None,
    place: Place | None = None,
) -> Any:
    """Check an input of a transform; return it as an array of floats.

    Messages call the value `what`. If `number` is given, they add it, or the place of
    the leaf with this number in `structure`.
    """
    if type(value) is np.ndarray and value.dtype.kind in "fc":
        return value
    if isinstance(value, float | complex) and not isinstance(value, np.generic):
        return np.asarray(value)[()]  # a scalar, so that x += 1 makes a new one
    if not is_array(value):
        wanted = "a float" if isinstance(value, int) else "an array of floats"
        raise GradientError(
            f"{_named(what, number, structure, place)} must be an array of floats, got"
            f" {show(value)}",
            do=as_argument(value)
            or f"pass {wanted}, and bind other arguments: lambda x: f(x, n)",
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
            do="pass x.astype(np.float32)"
            if value.dtype.isbuiltin == 2  # of another library, such as bfloat16
            else _AS_FLOATS.get(value.dtype.kind, "pass x.astype(float)"),
        )
    return value


# Remedies for kinds of dtypes for which x.astype(float) is not the right one.
_AS_FLOATS: Final = {
    "V": "pass the fields that are floats as arrays of their own, such as x['name']",
    "M": "pass the time from a start as floats: (x - x[0]) / np.timedelta64(1, 's')",
    "m": "pass the time as floats: x / np.timedelta64(1, 's')",
    **dict.fromkeys(
        "SUT", "pass an array of floats, and bind the text: lambda x: f(x, t)"
    ),
}


# It does not advise a cast to floats, which would hide that nothing before it has a
# derivative.
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
    """Check that a cotangent has the shape and dtype of its output; convert numbers."""
    return _as_like(given, output, what, number, "output", structure)


def as_tangent(
    given: Any,
    primal: Any,
    what: str,
    number: int | None = None,
    structure: Structure | None = None,
    place: Place | None = None,
) -> Any:
    """Check that a tangent has the shape and dtype of its primal; convert numbers."""
    return _as_like(given, primal, what, number, "primal", structure, place)


def _named(
    what: str, number: int | None, structure: Structure | None, place: Place | None
) -> str:
    """Return the name of a value in messages, with its number or its place."""
    if number is None:
        return what
    if structure is None:
        return f"{what} {number}"
    return f"{what}{(place or path_in)(structure, number)}"


def path_in(structure: Structure, number: int) -> str:
    """Return the place of a leaf inside a value, such as ``['w'][0]``."""
    return str(structure.accessors()[number].codify(""))


def position_in(structure: Structure, number: int) -> str:
    """Return the place of a leaf in a tuple of primals, such as `` 1['w']``."""
    accessor = structure.accessors()[number]
    return f" {accessor[0].entry}{accessor[1:].codify('')}"


def check_nested_alike(
    what: str,
    tangents: tuple[Any, ...],
    primals: tuple[Any, ...],
    place: Place,
) -> None:
    """Raise if tangents, called `what` in messages, are not nested like their primals."""
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
                f"{what}{place(items, i)} is nested as {structure_text(own)}, must be as"
                f" {structure_text(wanted)} like the primal, where * is an array",
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
    """Return whether a value is a Python number that fits a dtype."""
    if isinstance(given, complex):
        return not isinstance(given, np.generic) and getattr(dtype, "kind", "c") == "c"
    return isinstance(given, float | int) and not isinstance(given, np.generic)


def positions(what: str, argnums: Any) -> tuple[tuple[int, ...], bool]:
    """Return the positions in `argnums`, and whether it is a single int."""
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
    """Return the positions counted from the front, in a call with `count` arguments."""
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
    """Split the result of a transformed function into the output and `aux`."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise no_pair(name, show(result))
    return result


def no_pair(name: str, got: str) -> GradientError:
    """Return the error for a function that returns no pair, with has_aux=True."""
    return GradientError(
        f"{name}: with has_aux=True the function must return (output, aux), got {got}",
        do="return a pair, or leave has_aux out",
    )


def check_outputs(leaves: Sequence[Any], structure: Structure, name: str) -> None:
    """Raise if a transformed function returned something other than arrays and numbers."""
    for i, leaf in enumerate(leaves):
        if not is_array(leaf) and not isinstance(leaf, int | float | complex):
            raise GradientError(
                f"{name}: the output{path_in(structure, i)} is {show(leaf)}, must be an"
                " array",
                do="return arrays, and other values as aux with has_aux=True",
            )


# ---- gradients ----


def replaced(
    values: Sequence[Any], flags: Sequence[bool], others: Sequence[Any]
) -> list[Any]:
    """Return values, with those whose flags are true replaced by `others`."""
    new = iter(others)
    return [next(new) if flag else v for v, flag in zip(values, flags, strict=True)]


def one_like(value: Any) -> Any:
    """Return the cotangent 1 for a value without axes."""
    while is_traced(value) and value.interpreter.kind in _SMOOTH:
        value = value.below  # the cotangent 1 depends on nothing
    if isinstance(value, np.generic):  # an operator would take 7 us
        return value.dtype.type(1)
    if type(value) is np.ndarray:  # takes a tenth of the time
        return np.ones_like(value)
    return call_numpy(np.ones_like, value)


# The kinds of transforms whose tracers have the shapes and dtypes of their values.
_SMOOTH = frozenset((AUTOGRAD, JVP))


def or_zeros(grad: Any, value: Any) -> Any:
    """Return a gradient, or zeros if the output does not depend on the input."""
    if grad is not None:
        return grad
    if type(value) is np.ndarray:
        return np.zeros_like(value)  # takes a fifth of the time
    zeros = call_numpy(np.zeros_like, value)
    # A graph gives the scalar that plain gradients are, too.
    return zeros if zeros.shape else zeros[()]


def as_scalar(value: Any) -> Any:
    """Convert a NumPy array without axes to a scalar, which most formulas return."""
    return value[()] if type(value) is np.ndarray and not value.shape else value


class Fresh:
    """Makes gradients that share no memory, so that the caller can write to them.

    A formula may return its cotangent itself, return it twice, or broadcast it to a
    read-only view. A formula that returns a saved array without the cotangent as a
    factor would not be linear, so such arrays are not considered here.
    """

    __slots__ = ("_seen",)

    def __init__(self, *given: Any) -> None:
        self._seen = {id(_memory_of(v)[0] if is_traced(v) else v) for v in given}

    def __call__(self, grad: Any) -> Any:
        """Return the gradient, or a copy if its memory may be used elsewhere."""
        # Reading the base of a tracer would raise, so tracers are handled first.
        if type(grad) is not np.ndarray and is_traced(grad):
            return self._of_tracer(grad)
        if getattr(grad, "base", self) is None and id(grad) not in self._seen:
            if not grad.shape:  # it ends here, and another array may get its id
                return as_scalar(grad)
            self._seen.add(id(grad))
            return grad
        return as_scalar(grad.copy()) if has_memory(grad) else grad

    def _of_tracer(self, grad: Any) -> Any:
        """Return a gradient that is a value of an outer transform, or a copy of it."""
        if not grad.shape and not grad.box_is_scalar:
            return grad[()]  # shares no memory
        memory, is_shared = _memory_of(grad)
        if is_shared or id(memory) in self._seen:
            return grad.copy()
        self._seen.add(id(memory))
        # In its first run, a formula gets read-only cotangents.
        is_sealed = type(grad.box_place) is Pinned and grad.box_place.is_sealed
        return frozen(grad) if is_sealed else grad


def _memory_of(value: Any) -> tuple[Any, bool]:
    """Return the array that holds the elements of a tracer, and whether it is a view.

    A capture may have one fake array for all that are alike, but a node for each.
    """
    is_view = False
    sources: tuple[Any, ...] = ()
    while is_traced(value):
        is_view = is_view or type(value.box_place) is tuple
        sources = value.interpreter.strides_sources(value) or sources
        value = value.below
    if not isinstance(value, np.ndarray):
        return (sources[0][1] if sources else value), is_view
    is_view = value.base is not None
    while isinstance(value.base, np.ndarray):
        value = value.base
    return value, is_view
