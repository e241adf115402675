"""Tracers: values as one running transform sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from customop.arrays.attributes import refuse_setting
from customop.arrays.describe import describe
from customop.arrays.draws import instead_of_draw
from customop.arrays.kinds import TRACED, add_array_class, device_of
from customop.arrays.lost import (
    SETITEM,
    Refusal,
    asked_by_setitem,
    called_method,
    installed_caller,
    instead_of_caller,
)
from customop.arrays.numpy_protocol import ArrayMethods
from customop.arrays.pytree import add_leaf_class
from customop.core import boxes, overlaps
from customop.errors import DataDependentError

if TYPE_CHECKING:  # an interpreter makes tracers, and a tracer knows its interpreter
    from customop.core.interpreter import Interpreter

__all__ = ["Tracer"]


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
    # Of an up-to-date tracer and of a stale view, see `boxes`.
    box_fresh_class: ClassVar[type[Tracer]]
    box_stale_class: ClassVar[type[Tracer]]
    box_is_stale: ClassVar[bool] = False
    # Whether Python may branch on the value.
    is_concrete: ClassVar[bool] = True

    if TYPE_CHECKING:
        # What came in as an argument of the transform.
        box_origin: Any

    def __init__(self, interpreter: Interpreter, value: Any) -> None:
        self.interpreter: Interpreter = interpreter
        self.below: Any = value
        # Where a view comes from, or what is known of an array of its own: see `boxes`.
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
        """Whether NumPy's value would be a scalar, which never changes."""
        return boxes.is_scalar(self)

    def box_write(self, new: Any) -> None:
        """Write a whole new value, of this shape and dtype."""
        boxes.write(self, new)

    def box_like(self, constant: Any) -> Any:
        """A constant as a box that takes values like this one."""
        return boxes.box_of(self, constant)

    def box_pin(self) -> None:
        """Note that NumPy's value would be an array, although it has no axes."""
        boxes.pin(self)

    def box_shares(self, other: Any) -> bool:
        """Whether NumPy's value would lie in the memory of another traced one."""
        return overlaps.share(self, other)

    def row_strides(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        """Strides of this value, from those of the value below."""
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
        return bool(self.below)

    def _lost(self, asked: str, instead: str) -> DataDependentError:
        if asked_by_setitem() and "index" not in asked:
            asked, instead = SETITEM
        elif (draw := instead_of_draw(method := called_method() or "")) is not None:
            asked, instead = f"{method}() of a random generator is given", draw
        error = self._refused(asked, instead)
        self.interpreter.refused = Refusal(error)
        return error

    def _refused(self, asked: str, instead: str) -> DataDependentError:
        return DataDependentError(
            f"{asked} {describe(self)}, a value of {self.interpreter.describe()}",
            self.interpreter.where(),
            "the transform would lose track of it",
            do=f"use {instead}, or stop_gradient(x) for the value alone",
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
        """Refused: the transform would lose track of the value."""
        raise self._lost("item() of", "the array itself in place of a number")

    def tolist(self) -> NoReturn:
        """Refused: the transform would lose track of the values."""
        raise self._lost("tolist() of", "the array as it is")

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.__copy__()

    def __reduce__(self) -> NoReturn:
        raise self._lost("pickling", "the plain array that goes in")

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._lost(f"format({spec!r}) of", "print(x)")
        return repr(self)


def _renewed(view: Tracer, name: str) -> Any:
    """Return an attribute that a stale view lacks: its content or its interpreter."""
    if name in view.content or name == "interpreter":
        boxes.renew(view)
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
