"""Tracers: values as one running transform sees them, and boxes for writing in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn
from weakref import ref

import numpy as np

from customop.arrays.array import axis_order, dtype_of, packed_strides, strides_of
from customop.arrays.fake import make_fake
from customop.arrays.kinds import (
    FAKE,
    TRACED,
    add_array_class,
    device_of,
    is_fake,
    is_traced,
    kind_of,
)
from customop.arrays.nested import add_leaf_class, describe, flat, map_nested
from customop.arrays.numpy_protocol import ArrayMethods
from customop.arrays.refusals import (
    SETITEM,
    Refusal,
    asked_by_setitem,
    called_method,
    installed_caller,
    instead_of_caller,
    instead_of_draw,
    refuse_setting,
)
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.errors import (
    ArgumentError,
    DataDependentError,
    caller_place,
    warn_caller,
)
from customop.later import later

corrections: ModuleType = later(import_module, "customop.arrays.corrections")

if TYPE_CHECKING:
    from customop.core.interpreter import Interpreter

# ---- tracers: values as one running transform sees them ----


class Tracer(ArrayMethods):
    """A value as one running transform sees it.

    It is a box: code that writes an array in place puts another value in it, so every
    name for it sees the new value. Attributes whose names begin with ``box_`` are the
    package's.

    It is not an instance of ``np.ndarray``, and ``np.isscalar`` is false for it. Code
    that asks for arrays can ask ``isinstance(x, np.ndarray | Tracer)``.

    Parameters
    ----------
    interpreter : Interpreter
        The transform that it belongs to.
    value : array
        The value below, of a lower level.

    Attributes
    ----------
    below : array
        That value.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def f(x):
    ...     print(isinstance(x, co.Tracer), x.shape, x.dtype)
    ...     return np.sum(x * x)
    >>> co.grad(f)(np.ones(2))
    True (2,) float64
    array([2., 2.])
    """

    # Unit libraries take `x.value` for the plain array (astropy 7): a slot of that name
    # would lose track of the value without an error.
    __slots__ = (
        "__weakref__",
        "below",
        "box_origin",
        "box_place",
        "box_views",
        "interpreter",
    )
    # The slots that a write replaces: `below` and those of subclasses.
    content: ClassVar[tuple[str, ...]] = ("below",)
    # Of an up-to-date tracer and of a stale view.
    box_fresh_class: ClassVar[type[Tracer]]
    box_stale_class: ClassVar[type[Tracer]]
    box_is_stale: ClassVar[bool] = False
    # Whether Python may branch on the value.
    is_concrete: ClassVar[bool] = True

    if TYPE_CHECKING:
        # The argument of the transform that the tracer was made for.
        box_origin: Any

    def __init__(self, interpreter: Interpreter, value: Any) -> None:
        self.interpreter: Interpreter = interpreter
        self.below: Any = value
        # Where a view comes from, or what is known of an array that is not a view.
        self.box_place: Any = None
        # Views that are up to date.
        self.box_views: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.box_is_stale:
            return
        own = cls.__dict__.get("__slots__", ())
        cls.content = (*cls.content, *([own] if isinstance(own, str) else own))
        add_leaf_class(cls)
        _add_stale_class(cls)

    # ---- the box ----

    @property
    def box_is_scalar(self) -> bool:
        """True if NumPy's value would be a scalar, which never changes."""
        return is_scalar(self)

    def box_write(self, new: Any) -> None:
        """Write a whole new value, of this shape and dtype."""
        write(self, new)

    def box_like(self, constant: Any) -> Any:
        """Make a box of a constant, which takes values like this one."""
        return box_of(self, constant)

    def box_pin(self) -> None:
        """Note that NumPy's value would be an array, although it has no axes."""
        pin(self)

    def box_shares(self, other: Any) -> bool:
        """Return whether NumPy's value would share memory with another traced one."""
        return share(self, other)

    def row_strides(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        """Return the strides of this value, from those of the value below."""
        return strides

    @property
    def shape(self) -> Any:
        """Lengths of the axes."""
        return self.below.shape

    @shape.setter
    def shape(self, value: Any) -> None:
        refuse_setting(self, "shape")

    @property
    def dtype(self) -> Any:
        """Type of the elements."""
        return self.below.dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        refuse_setting(self, "dtype")

    @property
    def device(self) -> Any:
        """Device that the value lives on."""
        return device_of(self.below)

    @device.setter
    def device(self, value: Any) -> None:
        refuse_setting(self, "device")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(level={self.interpreter.level}, {self.below!r})"

    def __bool__(self) -> bool:
        if not self.is_concrete:
            raise self._lost("bool() of", "np.where(mask, a, b) in place of a branch")
        kind = kind_of[type(self.below)]
        if kind is not None and kind.is_lazy:
            _warn_of_branch(kind.name)
        return bool(self.below)

    def _lost(self, asked: str, instead: str) -> DataDependentError:
        if asked_by_setitem() and "index" not in asked:
            asked, instead = SETITEM
        elif (draw := instead_of_draw(method := called_method() or "")) is not None:
            asked, instead = f"{method}() of a random generator is given", draw
        error = self._refused(asked, corrections.correction() or f"use {instead}")
        self.interpreter.refused = Refusal(error)
        return error

    def _refused(self, asked: str, do: str) -> DataDependentError:
        return DataDependentError(
            f"{asked} {describe(self)}, a value of {self.interpreter.describe()}",
            self.interpreter.where(),
            "the transform would lose track of it",
            do=f"{do}, or stop_gradient(x) for the value alone",
        )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        caller = installed_caller()
        if caller is not None:
            raise self._lost(
                f"np.array(), called by {caller}, is given",
                instead_of_caller(caller),
            )
        raise self._lost(
            "np.array(), or a NumPy kernel, is given",
            "customop.array([...]) in place of np.array([...]), np.asarray(x, like=x) to"
            " convert, getitem(a, i) to index by a value i, custom_op for a kernel",
        )

    def __float__(self) -> float:
        raise self._lost(
            "float() of",
            "np.sin in place of math.sin, and the array itself in place of a number",
        )

    def __int__(self) -> int:
        raise self._lost("int() of", "the array itself in place of a number")

    def __complex__(self) -> complex:
        raise self._lost("complex() of", "the array itself in place of a number")

    def __index__(self) -> int:
        raise self._lost(
            "an index, or range(), of", "getitem(x, key) in place of x[key]"
        )

    def item(self, *args: Any) -> NoReturn:
        """Raise: the transform would lose track of the value."""
        raise self._lost("item() of", "the array itself in place of a number")

    def tolist(self) -> NoReturn:
        """Raise: the transform would lose track of the values."""
        raise self._lost("tolist() of", "the array as it is")

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.__copy__()

    def __reduce__(self) -> NoReturn:
        raise self._lost("pickling", "the plain array that goes in")

    def __format__(self, spec: str) -> str:
        if spec and self.is_concrete and self.shape == ():
            return format(self.below, spec)  # text has no derivative
        if spec:
            raise self._lost(f"format({spec!r}) of", "print(x)")
        return repr(self)


# Lines that branch on lazy arrays: each is warned of once. Python's own memory of warnings
# does not last: to compute an array, dask changes the filters.
_branches: set[str] = set()


def _warn_of_branch(kind: str) -> None:
    line = caller_place()
    if line not in _branches:
        _branches.add(line)
        warn_caller(
            f"a branch needs the value of an array of {kind}, which is computed now, while"
            " a transform runs\n"
            "  do: np.where(mask, a, b) in place of the branch, or compute it before"
        )


def _renewed(view: Tracer, name: str) -> Any:
    """Return an attribute that a stale view lacks: its content or its interpreter."""
    if name in view.content or name == "interpreter":
        renew(view)
        return getattr(view, name)
    found: Any = getattr(super(type(view), view), "__getattr__", None)
    # Without one, this raises again.
    return object.__getattribute__(view, name) if found is None else found(name)


def _add_stale_class(cls: type[Tracer]) -> None:
    """Make the class that a view has from a write to its base until it is read.

    A class with `__getattr__` reads all its slots by a slower path, 16 ns each (Python
    3.11), so only stale views have it.
    """
    cls.box_fresh_class = cls
    names = {"__slots__": (), "__module__": cls.__module__, "box_is_stale": True}
    stale: Any = type(cls.__name__, (cls,), {**names, "__getattr__": _renewed})
    cls.box_stale_class = stale


_add_stale_class(Tracer)
add_array_class(TRACED, Tracer)


# ---- arrays that share memory ----
# Views of one tracer, and arrays that transforms were given.


def root_of(box: Tracer) -> Tracer:
    """Return the array that a box is a view of, or the box itself."""
    while type(box.box_place) is tuple:
        op, args, _ = box.box_place
        box = args[op.view_slot]
    return box


def origins(value: Any) -> list[Any]:
    """Return an argument, and the values that it has in outer transforms."""
    found = []
    while value is not None:
        found.append(value)
        root = root_of(value) if is_traced(value) else None
        value = getattr(root, "box_origin", None)
    return found


def overlap(a: Any, b: Any) -> bool:
    """Return whether two arrays share memory, here or outside of all transforms."""
    return share(a, b) or share(origins(a)[-1], origins(b)[-1])


def share(a: Any, b: Any) -> bool:
    """Return whether two arrays share memory, where both are plain or both are traced."""
    if is_traced(a) and is_traced(b):
        return root_of(a) is root_of(b)
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]  # any int
    except np.exceptions.TooHardError:
        return True


# ---- writing in place: a tracer is a box whose content is replaced ----
# A write computes the new value with operators and puts it in the box, so every name
# for the box sees it. No array is written, so what formulas saved stays what it was.
# This needs one rule: nothing inside the package keeps a box that a user may write; it
# keeps a snapshot (`frozen`).
#
# A result of an operator that returns a view of its argument knows its place: the
# operator and the arguments. Writing to it writes to that argument, by the operator's
# `write_back` rule. Writing to the argument empties its views, which get another class;
# reading an empty view takes it again. So reading costs nothing where nothing is
# written.
#
# Code that asks for the exact class of a tracer reads its `interpreter` first, or calls
# `isinstance`: an empty view has a subclass.


# Kinds of rule: lower case, since users see them as `customop.write_back`.
# How a view is written: gives the array that it is a view of, with the view replaced.
write_back: RuleKind = RuleKind(
    "write_back", "(new, *inputs)", "the viewed array, rewritten"
)
# Whether NumPy's result would be a view, where that depends on the arguments or on the
# strides of the array.
is_view: RuleKind = RuleKind("is_view", "(strides, *inputs)", "a bool")

# Where a view comes from: the operator, its arguments, and which of its results it is.
Place = tuple[RuleTable, Sequence[Any], int]


class Pinned:
    """Marks a box that is an array of its own, not a view or a scalar.

    Attributes
    ----------
    strides : tuple of int
        Those of NumPy's array. A write may change the order of the content in memory.
    is_sealed : bool
        Whether it cannot be written.
    sources : tuple
        What the strides follow from, see `strides_sources`.
    """

    __slots__ = ("is_sealed", "sources", "strides")

    def __init__(
        self,
        strides: tuple[int, ...],
        sources: tuple[Any, ...] = (),
        *,
        is_sealed: bool = False,
    ) -> None:
        self.strides: tuple[int, ...] = strides
        self.sources: tuple[Any, ...] = sources
        self.is_sealed: bool = is_sealed


# ---- views ----


def connect(out: Any, op: RuleTable, args: Sequence[Any], number: int = 0) -> None:
    """Note that a tracer is a view, by this call of an operator."""
    out.box_place = (op, args, number)
    _note(args[op.view_slot], out)


def _note(parent: Any, view: Any) -> None:
    """Note a view that is up to date in what it is a view of."""
    views = parent.box_views
    if views is None:
        views = parent.box_views = {}
    views[id(view)] = ref(view)


def handle_boxes(
    handle: Callable[..., Any], top: Any, op: RuleTable, given: Sequence[Any]
) -> Any:
    """Let an interpreter handle a call with tracers of others, or one that gives views.

    What the interpreter keeps of values of other levels must not change, so it gets
    snapshots of them.
    """

    def freeze(value: Any) -> Any:
        if is_traced(value) and value.interpreter is not top:
            return frozen(value)
        return value

    if top.written_inputs:  # snapshots do not show whose they are
        top.check_written(op, given)
    args = list(given)
    for slot in op.array_slots:
        args[slot] = freeze(args[slot])
    for slot in op.nested_slots:
        args[slot] = map_nested(args[slot], freeze)
    out = handle(op, tuple(args))
    if op.view_slot >= 0:
        connect_results(op, given, args, out)
    return _with_written(op, given, out) if op.schema.written else out


def _with_written(op: RuleTable, given: Sequence[Any], out: Any) -> Any:
    """Put the written arguments into a result that returns them: they are the same arrays."""
    schema = op.schema
    written = {
        p.alias.name: value
        for p, value in zip(schema.parameters, given, strict=True)
        if p.alias is not None and p.alias.is_write and is_traced(value)
    }
    parts = list(out) if schema.is_tuple else [out]
    for i, (r, part) in enumerate(zip(schema.returns, parts, strict=False)):
        if r.alias is not None and r.alias.name in written and is_traced(part):
            parts[i] = written[r.alias.name]
    return tuple(parts) if schema.is_tuple else parts[0]


def connect_results(
    op: RuleTable, given: Sequence[Any], args: Sequence[Any], out: Any
) -> None:
    """Connect the results of a call that returns views.

    `given` has the boxes of the user, `args` what the interpreter got.
    """
    slot = op.view_slot
    parent = given[slot]
    if not is_traced(parent):
        return
    leaves = flat(list(out) if op.schema.is_tuple else [out])
    for number, leaf in enumerate(leaves):
        if not is_traced(leaf) or leaf.interpreter is not parent.interpreter:
            continue
        place = leaf.box_place
        if type(place) is not tuple or place[1][slot] is not parent:
            connect(leaf, op, (*args[:slot], parent, *args[slot + 1 :]), number)


def views_another(box: Tracer, known: dict[int, Any] | None = None) -> bool:
    """Return whether NumPy's array would be a view of another one, where it matters.

    `known` has strides that were worked out before, see `strides_of_box`.
    """
    found = _is_view(box, known)
    _show_strides(box)
    return found


def _show_strides(box: Tracer) -> None:
    """Show captures the strides that have decided whether a box is a view."""
    if type(box.box_place) is tuple:
        op, args, _ = box.box_place
        parent, rule = args[op.view_slot], op.find_rule(is_view)
        sources = () if rule is None else strides_sources(parent)
        if sources and _depends_on_strides(rule, parent, args):
            for interpreter, source in sources:
                interpreter.see_strides(source)


def _depends_on_strides(rule: Any, parent: Tracer, args: Sequence[Any]) -> bool:
    """Return whether the answer differs between a dense array and one with gaps."""
    shape, step = tuple(parent.shape), dtype_of(parent).itemsize
    lengths = shape, tuple([n + 1 for n in shape])
    dense, apart = [packed_strides(n, range(len(n)), step) for n in lengths]
    return bool(rule(dense, *args)) != bool(rule(apart, *args))


def _is_view(box: Tracer, known: dict[int, Any] | None = None) -> bool:
    place = box.box_place
    if type(place) is not tuple:
        return False
    op, args, _ = place
    if is_scalar(args[op.view_slot]):
        return False  # NumPy copies scalars
    rule = op.find_rule(is_view)
    if rule is None:
        return True
    return bool(rule(strides_of_box(args[op.view_slot], known), *args))


def place_of(view: Tracer) -> Place:
    """Return where a view comes from."""
    place = view.box_place
    assert type(place) is tuple
    return place


def renew(view: Tracer) -> None:
    """Take an empty view again from what it is a view of."""
    chain: list[Any] = []
    while view.box_is_stale:
        chain.append(view)
        op, args, _ = place_of(view)
        view = args[op.view_slot]
    interpreter = view.interpreter
    for box in reversed(chain):
        op, args, number = place_of(box)
        _show_strides(box)
        found = flat(interpreter.again(op, args))[number]
        box.__class__ = box.box_fresh_class
        box.interpreter = interpreter
        fill(box, _adopted(box, found))
        _note(args[op.view_slot], box)


def _empty(view: Any) -> None:
    """Mark a view as stale: it is computed again before it is read."""
    for name in (*view.content, "interpreter"):
        delattr(view, name)
    view.__class__ = view.box_stale_class


def empty_views(box: Tracer) -> None:
    """Mark all views of a box as stale, and the views of these."""
    known: dict[int, Any] = {}
    found: list[Any] = []
    parents: list[Any] = [box]
    while parents:
        parent = parents.pop()
        views = parent.box_views
        if views is None:
            continue
        parent.box_views = None
        for view in [alive() for alive in views.values()]:
            if view is None or view.box_is_stale:
                continue
            if not _is_view(view, known):
                _show_strides(view)
                view.box_place = None
                continue
            found.append(view)
            parents.append(view)
    for view in found:
        _empty(view)


# ---- scalars and strides: what NumPy's array would be ----


def is_scalar(box: Any) -> bool:
    """Return whether NumPy's value would be a scalar, which never changes and has no views."""
    if tuple(box.shape) != () or not is_traced(box):
        return is_fake(box) and not box.shape
    place = box.box_place
    if place is not None and (type(place) is Pinned or _is_view(box)):
        return False
    if type(place) is tuple and is_scalar(place[1][place[0].view_slot]):
        return True  # as NumPy's methods of scalars return
    if not box.is_concrete:
        return True
    below = box.below
    if is_traced(below):  # a transform around it knows whether it is an array
        return is_scalar(below)
    return isinstance(below, np.generic) or is_fake(below)


def strides_of_box(box: Tracer, known: dict[int, Any] | None = None) -> tuple[int, ...]:
    """Return the strides that NumPy's array would have.

    They decide whether a reshape is a view. A written array keeps those it had before.
    `known` keeps them by the identity of a box, for the next question in one write.
    """
    known = {} if known is None else known
    chain = []
    while type(box.box_place) is tuple and id(box) not in known:
        chain.append(box)
        op, args, _ = box.box_place
        box = args[op.view_slot]
    if id(box) not in known:
        place = box.box_place
        known[id(box)] = place.strides if type(place) is Pinned else _own_strides(box)
    for view in reversed(chain):
        known[id(view)] = _strides_of_view(view, known)
        box = view
    found: tuple[int, ...] = known[id(box)]
    return found


def strides_sources(box: Any) -> tuple[Any, ...]:
    """Return the facts from which the strides of a box follow.

    These are pairs of a capture and its node, whose array lay in memory as NumPy's does.
    For other arguments the graph may be run with other strides.
    """
    found: tuple[Any, ...] = ()
    while is_traced(box):
        box = root_of(box)
        place = box.box_place
        if type(place) is Pinned:
            return (*found, *place.sources)
        found += box.interpreter.strides_sources(box)
        box = box.below
    return found


def _strides_of_view(view: Tracer, known: dict[int, Any]) -> tuple[int, ...]:
    """Return the strides that the fake kernel gives a view, from those of its base."""
    op, args, number = place_of(view)
    slot = op.view_slot
    parent = args[slot]
    row = op.rows.get(FAKE)
    if row is None:
        return _own_strides(view)
    like = make_fake(parent.shape, dtype_of(parent), known[id(parent)], "cpu")
    found = row.fn(*args[:slot], like, *args[slot + 1 :])
    return strides_of(flat(found)[number])


def _own_strides(box: Tracer) -> tuple[int, ...]:
    """Return the strides of the value below; rows of a batch count as packed arrays."""
    below = box.below
    strides = strides_of_box(below) if is_traced(below) else strides_of(below)
    shape = tuple(box.shape)
    if len(strides) == len(shape):
        return strides
    rows = box.row_strides(strides)
    order = axis_order(shape, rows)
    return packed_strides(shape, order, dtype_of(box).itemsize)


# ---- snapshots ----


def frozen(value: Any) -> Any:
    """Return a value that no later write reaches: for a tracer, a snapshot."""
    if type(value) is np.ndarray or not is_traced(value):
        return value
    interpreter = value.interpreter
    new = object.__new__(type(value))
    new.interpreter = interpreter
    fill(new, value)
    new.box_place = None if value.box_place is None else _pinned(value)
    new.box_views = None
    return new


def _pinned(box: Tracer) -> Pinned | None:
    """Return the strides that a snapshot keeps, if the memory of the box is known.

    A scalar has none.
    """
    is_known = root_of(box).box_place is not None
    return _pin_of(box) if is_known and not is_scalar(box) else None


def _pin_of(box: Tracer) -> Pinned:
    return Pinned(strides_of_box(box), strides_sources(box))


def sealed(value: Any) -> Any:
    """Return a snapshot of a tracer that cannot be written; other values unchanged."""
    if not is_traced(value):
        return value
    new = frozen(value)
    new.box_place = Pinned(strides_of_box(new), strides_sources(new), is_sealed=True)
    return new


def pin(box: Tracer) -> None:
    """Note that NumPy's value would be an array, although it has no axes."""
    if box.box_place is None:
        # A value without axes has no strides to note.
        box.box_place = _pin_of(box) if box.shape else Pinned(())


def fill(box: Any, new: Any) -> None:
    """Give a box the content of another tracer."""
    for name in box.content:
        setattr(box, name, getattr(new, name))


# ---- writing ----


def write(box: Tracer, new: Any) -> None:
    """Write a whole new value of the shape and dtype of a box."""
    known: dict[int, Any] = {}
    while views_another(box, known):
        op, args, _ = place_of(box)
        _check_level(box, new)
        rule = op.find_rule(write_back)
        if rule is None:
            raise op.missing_rule(write_back, "a view that it returned is written")
        new = rule(new, *args)
        box = args[op.view_slot]
    place = box.box_place
    if type(place) is Pinned and place.is_sealed:
        raise ValueError("assignment destination is read-only")
    content = _adopted(box, new)
    origin = getattr(box, "box_origin", None)
    if origin is not None:
        _check_alone(box, origin)
    if type(place) is not Pinned:
        box.box_place = _pin_of(box)
    box.interpreter.replace(box, content)
    box.interpreter.note_write(box)
    if origin is not None:
        box.interpreter.guard(origin)
    empty_views(box)


def box_of(like: Tracer, constant: Any) -> Any:
    """Make a box of a constant, which takes values like those of a tracer."""
    if is_traced(constant) and constant.interpreter.level >= like.interpreter.level:
        if not constant.shape:
            pin(constant)
        return constant
    inner = like.below
    if is_traced(inner):
        constant = box_of(inner, constant)
    found = like.interpreter.constant(constant)
    if is_traced(found) and not found.shape:
        pin(found)
    return found


def _adopted(box: Tracer, new: Any) -> Any:
    """Return a value as a tracer of the interpreter of a box."""
    if is_traced(new) and new.interpreter is box.interpreter:
        return new
    _check_level(box, new)
    return box.interpreter.constant(frozen(new))


def _check_level(box: Tracer, new: Any) -> None:
    """Raise for a value of a transform inside the one that a box belongs to."""
    if is_traced(new) and new.interpreter.level > box.interpreter.level:
        raise ArgumentError(
            f"a value of {new.interpreter.describe()} is written into an array of"
            f" {box.interpreter.describe()}, which is outside of it",
            do="return the value from the inner function, and write it outside",
        )


def _check_alone(box: Tracer, origin: Any) -> None:
    """Raise where an input is written that shares memory with another argument."""
    others = [v for v in box.interpreter.given() if v is not origin]
    twice = sum(v is origin for v in box.interpreter.given()) > 1
    if twice or any(overlap(origin, other) for other in others):
        raise ArgumentError(
            f"an argument of {box.interpreter.describe()} is written in place, and"
            " another argument shares its memory",
            do="pass a copy of one of them",
        )
