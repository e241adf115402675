"""Kinds of array, the classes of each kind, names of devices, and classes of other libraries.

A kind is one `ArrayKind` object. Code asks it for facts (`kind.has_memory`), or asks
one of the functions below about a value (`has_memory(x)`).
"""

from __future__ import annotations

import numbers
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from customop.errors import (
    ArgumentError,
    CustomOpError,
    RegistrationError,
    did_you_mean,
    quoted,
    shown,
)
from customop.forks import importing
from customop.later import later
from customop.plugins import KINDS, load, plugins_of
from customop.shapes.sizes import Symbolic, SymShape

importlib_util: ModuleType = later(import_module, "importlib.util")


# ---- kinds of array, the classes of each kind, and names of devices ----


# Rows of an operator's table: the fake kernel, and the kernel for all kinds.
FAKE = "fake"
DEFAULT = "default"


class ArrayKind:
    """Everything that is known about one kind of array.

    Attributes
    ----------
    name : str
        The name that users write: ``"cpu"``.
    has_data : bool
        Whether arrays have elements: false for fake and traced arrays.
    has_memory : bool
        Whether arrays have memory that can be shared and written: false for NumPy
        scalars too.
    has_device : bool
        Whether arrays fix the device of a call. NumPy scalars go with all devices.
    from_numpy : callable or None
        Makes an array of a NumPy array.
    to_numpy : callable or None
        Makes a NumPy array of an array.
    accepts : tuple of str
        Kinds whose arrays may stand beside its own in a call.
    is_carried : bool
        Whether transforms send also the plain code of formulas on such arrays to
        operators, so that the kernels of the kind run. NumPy and CuPy need no kernels of
        their own.
    is_lazy : bool
        Whether the elements of an array are computed later, on demand.
    is_checked : bool
        Whether opcheck runs kernels on such arrays.
    derive : callable or None
        Makes the kernel of an operator that has none registered for the kind.
    """

    __slots__ = (
        "_device",
        "_is_at_hand",
        "accepts",
        "derive",
        "from_numpy",
        "has_data",
        "has_device",
        "has_memory",
        "is_carried",
        "is_checked",
        "is_lazy",
        "name",
        "to_numpy",
    )

    def __init__(
        self,
        name: str,
        *,
        has_data: bool = True,
        has_memory: bool = True,
        has_device: bool = True,
        device: Callable[[Any], str] | None = None,
        from_numpy: Callable[[Any], Any] | None = None,
        to_numpy: Callable[[Any], Any] | None = None,
        is_at_hand: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name: str = name
        self.has_data: bool = has_data
        self.has_memory: bool = has_memory
        self.has_device: bool = has_device
        self.from_numpy: Callable[[Any], Any] | None = from_numpy
        self.to_numpy: Callable[[Any], Any] | None = to_numpy
        self.accepts: tuple[str, ...] = ()
        self.is_carried: bool = False
        self.is_lazy: bool = False
        self.is_checked: bool = True
        self.derive: Callable[[Any], Callable[..., Any] | None] | None = None
        self._device = device
        self._is_at_hand = is_at_hand

    def __repr__(self) -> str:
        return f"ArrayKind({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def device(self, x: Any) -> str:
        """Return the device of an array of this kind."""
        return self.name if self._device is None else self._device(x)

    def can_be_made(self) -> bool:
        """Return whether checks can turn NumPy arrays into arrays of this kind here."""
        return self.is_checked and self.from_numpy is not None and self._is_at_hand()


@cache
def _cuda_answers() -> bool:
    """Return whether CuPy is installed and finds a device."""
    if importlib_util.find_spec("cupy") is None:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns where it finds no CUDA
        cupy = import_module("cupy")
    try:
        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def _to_cuda(x: Any) -> Any:
    """Copy an array of NumPy to the device."""
    cupy = sys.modules["cupy"]
    # A kernel gets a number by value: a recorded graph cannot copy from the host.
    return cupy.asarray(x) if x.shape else cupy.full((), x[()], x.dtype)


def _own_device(x: Any) -> str:
    return str(x.device)


CPU = ArrayKind("cpu", from_numpy=np.asarray, to_numpy=np.asarray)
CUDA = ArrayKind(
    "cuda",
    device=lambda x: f"cuda:{x.device.id}",
    from_numpy=_to_cuda,
    to_numpy=lambda x: x.get(),
    is_at_hand=_cuda_answers,
)
# Their classes enter themselves where they are defined.
FAKE_ARRAY = ArrayKind(FAKE, has_data=False, has_memory=False, device=_own_device)
TRACED = ArrayKind("traced", has_data=False, has_memory=False, device=_own_device)
# The class of every NumPy scalar.
SCALAR = ArrayKind(
    "numpy scalar",
    has_memory=False,
    has_device=False,
    device=lambda _: "cpu",
    to_numpy=np.asarray,
)

_NOT_FOR_KERNELS = (TRACED.name, SCALAR.name)
# Names that no registered kind may have.
RESERVED = (*_NOT_FOR_KERNELS, FAKE, DEFAULT)

# Name -> kind.
_kinds: dict[str, ArrayKind] = {
    kind.name: kind for kind in (SCALAR, CPU, CUDA, FAKE_ARRAY, TRACED)
}
# Class -> the first kind that named it.
_by_class: dict[type, ArrayKind] = {np.generic: SCALAR, np.ndarray: CPU}
# Module -> name of a class in it -> kind, until the module is imported.
_by_path: dict[str, dict[str, ArrayKind]] = {"cupy": {"ndarray": CUDA}}


# Names of the kinds that accept others.
hosts: set[str] = set()


# Names of the kinds whose arrays have the array API standard, but not NumPy's protocols.
standard_kinds: set[str] = set()


def speaks_standard_only(cls: type) -> bool:
    """Return whether arrays of a class have a namespace, but not NumPy's protocols."""
    return hasattr(cls, "__array_namespace__") and not any(
        hasattr(cls, name) for name in ("__array_ufunc__", "__array_function__")
    )


class _Classes(dict[type, ArrayKind | None]):
    """Class -> kind, found on a miss through base classes and named classes."""

    def __missing__(self, cls: type) -> ArrayKind | None:
        base = registered_base(cls)
        kind = None if base is None else _by_class[base]
        if kind is not None and speaks_standard_only(cls):
            standard_kinds.add(kind.name)
        # Python's own classes are never arrays; others may be registered later.
        if (
            kind is not None
            or getattr(cls, "__module__", "") == "builtins"  # classes of ctypes lack it
            or issubclass(cls, np.dtype)
        ):
            self[cls] = kind
        return kind


# Every call looks up here. Registering a class clears it.
kind_of: _Classes = _Classes()


def registered_base(cls: type) -> type | None:
    """Return the class of a known kind that `cls` is or derives from, or None."""
    base = _registered(cls)
    # One attribute alone: each value that is not an array comes here.
    is_possible = (
        base is None and hasattr(cls, "shape") and not issubclass(cls, np.dtype)
    )
    if is_possible and not _plugins_loaded:
        load_kinds()  # 20 ms: names of plug-ins are in the metadata of all packages
        base = _registered(cls)
    return base


def registered_kind(cls: type) -> ArrayKind | None:
    """Return the kind of a class or of its base, without loading a plug-in for it."""
    base = _registered(cls)
    return None if base is None else _by_class[base]


def _registered(cls: type) -> type | None:
    if _by_path:
        _read_paths()
    for base in cls.__mro__:
        if base in _by_class:
            return base
    return None


def _read_paths() -> None:
    """Enter the classes of paths whose modules are imported by now.

    The paths stay: a module that is imported again has new classes.
    """
    # Copies: other threads may register paths meanwhile.
    for module in [name for name in [*_by_path] if name in sys.modules]:
        for name, kind in [*_by_path[module].items()]:
            found = getattr(sys.modules[module], name, None)
            if found is not None:  # the module may be importing still
                _by_class.setdefault(found, kind)


# ---- kinds of plug-ins ----

_plugins_loaded = False


def load_kinds() -> None:
    """Load all plug-ins for kinds of array: their names do not say their classes."""
    global _plugins_loaded  # noqa: PLW0603  # so that later misses cost nothing
    for name in plugins_of(KINDS):
        load_kind(name)
    _plugins_loaded = True


def load_kind(name: str) -> bool:
    """Load the plug-in for a kind of array; return whether there is such a kind now."""
    return load(KINDS, name, _kinds.__contains__)


# ---- questions about a value ----


def is_array(value: Any) -> bool:
    """Return whether a value is an array: also fake, traced, or a NumPy scalar."""
    return kind_of[type(value)] is not None


def is_fake(value: Any) -> bool:
    """Return whether a value is a fake array."""
    return kind_of[type(value)] is FAKE_ARRAY


def is_traced(value: Any) -> bool:
    """Return whether a transform follows a value."""
    return kind_of[type(value)] is TRACED


def has_data(value: Any) -> bool:
    """Return whether a value is neither a fake nor a traced array."""
    kind = kind_of[type(value)]
    return kind is None or kind.has_data


def has_memory(value: Any) -> bool:
    """Return whether a value is an array whose memory can be shared and written."""
    kind = kind_of[type(value)]
    return kind is not None and kind.has_memory


def has_device(value: Any) -> bool:
    """Return whether a value is an array that fixes the device of a call."""
    kind = kind_of[type(value)]
    return kind is not None and kind.has_device


def kind_name(value: Any) -> str | None:
    """Return the name of the kind of a value; None for what is not an array."""
    kind = kind_of[type(value)]
    return None if kind is None else kind.name


def device_of(x: Any) -> str:
    """Return the name of the device of an array of any kind; "cpu" for other values."""
    kind = kind_of[type(x)]
    return "cpu" if kind is None else kind.device(x)


def is_array_class(annotation: object) -> bool:
    """Return whether an annotation is a class of arrays of a known kind."""
    return isinstance(annotation, type) and kind_of[annotation] is not None


# ---- the tables ----


def add_array_class(kind: ArrayKind, cls_or_path: type | str) -> None:
    """Enter a class without the checks for users."""
    if isinstance(cls_or_path, str):
        module, _, name = cls_or_path.rpartition(".")
        _by_path.setdefault(module, {}).setdefault(name, kind)
    else:
        _by_class.setdefault(cls_or_path, kind)
    kind_of.clear()


def array_kind(x: Any) -> ArrayKind:
    """Find the kind of an array, or the kind that has a name.

    Parameters
    ----------
    x : array or str
        An array, whose device tells the kind if it is traced or fake; or the name of a
        kind or device.

    Returns
    -------
    ArrayKind

    Raises
    ------
    ArgumentError
        If `x` is neither.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.array_kind(np.zeros(3)).name
    'cpu'
    """
    name = x if isinstance(x, str) else device_of(x) if is_array(x) else None
    if name is None:
        raise ArgumentError(
            f"array_kind: {shown(x)} is not an array",
            do='pass an array, or the name of a kind such as "cpu"',
        )
    return _kinds[device_kind(normalize_device(name))]


def find_kind(name: str) -> ArrayKind:
    """Return the kind of a name that `known_kinds` has."""
    return _kinds[name]


def find_or_make_kind(name: str) -> ArrayKind:
    """Return the kind of a name, a new one if no kind has it."""
    new = ArrayKind(name)
    new.is_carried = True
    return _kinds.setdefault(name, new)


def known_kinds() -> tuple[str, ...]:
    """Return the names of all kinds that a kernel can be registered for."""
    return tuple(name for name in _kinds if name not in _NOT_FOR_KERNELS)


# ---- devices ----


def known_devices() -> list[str]:
    """Return the names of all kinds that are devices: `known_kinds` without 'fake'."""
    return [name for name in known_kinds() if name != FAKE]


def is_known_device(name: str) -> bool:
    """Return whether a device has this name; load its plug-in where needed."""
    return name not in RESERVED and (name in _kinds or load_kind(name))


def normalize_device(device: Any) -> str:
    """Return the full name of a device, such as ``"cpu"`` or ``"cuda:1"``.

    Parameters
    ----------
    device : str or device object
        A name, with or without a number after a colon, or CuPy's device object.

    Returns
    -------
    str

    Raises
    ------
    ArgumentError
        If no kind of array has that name.
    """
    if not isinstance(device, str) and hasattr(device, "id"):
        device = f"cuda:{device.id}"
    text = str(device) if isinstance(device, str) else shown(device)
    kind, colon, number = text.partition(":")
    is_known = is_known_device(kind)
    known = known_devices()
    if not is_known or (colon and not number.isdecimal()):
        near = "" if is_known else did_you_mean(kind, known)
        raise ArgumentError(
            f"unknown device {shown(device)}{near}; known: {quoted(known)}",
            do="use a known one, or register_array_type first",
        )
    return str(device)


def device_kind(device: str) -> str:
    """Return the kind of array that lives on a device: ``"cuda"`` for ``"cuda:1"``."""
    return device.partition(":")[0]


# ---- classes of other libraries beside arrays of ours ----
# They decide which side computes an operation.


_MISSING = object()


class _AtHome(dict[type, bool]):
    """Class -> whether its values are for operators: arrays of known kinds and numbers.

    Other classes are not kept: they may be registered later, or die.
    """

    def __missing__(self, cls: type) -> bool:
        if issubclass(cls, Symbolic | SymShape):
            return True
        if issubclass(cls, list | tuple):
            return False  # they are joined first
        is_known = registered_base(cls) is not None or cls.__module__ == "builtins"
        found = is_known and not _decides(cls, "__array_ufunc__")
        found = found and not has_own_rules(cls)
        if found:
            self[cls] = True
        return found


# Every binary operator on a traced array looks up here.
at_home: _AtHome = _AtHome()


def _decides(cls: type, protocol: str) -> bool:
    """Return whether a class has a protocol of a library that is not known here."""
    mine = getattr(cls, protocol, _MISSING)
    return mine is not _MISSING and mine is not getattr(
        registered_base(cls) or np.ndarray, protocol, _MISSING
    )


def joined(value: Any, like: Any) -> Any:
    """Return an operand that is a list as an array, as NumPy makes one of it."""
    return np.asarray(value, like=like) if isinstance(value, list | tuple) else value


def others_decide(inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a value of another library takes part in a call of a ufunc."""
    given = inputs
    if kwargs:
        given = (*inputs, *(kwargs.get("out") or ()), kwargs.get("where"))
    for value in given:  # 0.3 us less than any()
        cls = type(value)
        if not at_home[cls] and (_decides(cls, "__array_ufunc__") or _is_refused(cls)):
            return True
    return False


def any_foreign(classes: Iterable[type], protocol: str) -> bool:
    """Return whether a value of another library takes part, which then decides.

    Source: NEP 13 and NEP 18: an implementation that does not know all the classes
    returns NotImplemented.
    """
    for cls in classes:  # any() takes 0.3 us more
        if not at_home[cls] and (_decides(cls, protocol) or _is_refused(cls)):
            return True
    return False


# ---- subclasses of NumPy's arrays with arithmetic of their own ----


def has_own_rules(cls: type) -> bool:
    """Return whether ``x * y`` means something else for a class than for NumPy.

    np.matrix and masked arrays do.
    """
    if cls is np.ndarray:
        return False
    return issubclass(cls, np.ndarray) and cls.__mul__ is not np.ndarray.__mul__


def decides_ufuncs(cls: type) -> bool:
    """Return whether a class that is not registered has ufuncs of its own."""
    return issubclass(cls, np.ndarray) and _decides(cls, "__array_ufunc__")


def check_own_rules(value: Any, what: str, error: type[CustomOpError]) -> None:
    """Raise if the class of a value, which messages call `what`, has its own arithmetic.

    A result would be right for its elements, and wrong for a matrix or a mask.
    """
    if has_own_rules(type(value)):
        raise error(
            f"{what} is a {type(value).__name__}, whose own arithmetic would be lost",
            do=PLAIN,
        )


def _is_refused(cls: type) -> bool:
    """Return False, or raise for a class whose own arithmetic would be lost."""
    if has_own_rules(cls):
        raise ArgumentError(
            f"a {cls.__name__} beside a traced or fake array: its own arithmetic would"
            " be lost",
            do=PLAIN,
        )
    return False


def refuse_own_rules(values: Iterable[Any]) -> None:
    """Raise if the class of a value has arithmetic of its own."""
    for value in values:
        if not at_home[type(value)]:
            _is_refused(type(value))


PLAIN_OF_CLASS = "pass np.asarray(x), and make the class of the results again"
PLAIN = (
    "pass np.asarray(x); of a masked array x.filled(0), with the mask as an array beside"
    " it"
)

# The answer of a class that does not take part: the operator raises.
UNDECIDED = object()


def answer(ufunc: np.ufunc, method: str, other: Any, x: Any, y: Any) -> Any:
    """Return what another library answers to ``x op y``; `other` is one of the two.

    Parameters
    ----------
    ufunc : ufunc
    method : str
        The method of `other` that Python has not tried yet, such as ``"__radd__"``;
        empty if it has tried all.
    other, x, y : object

    Returns
    -------
    object
        The result, NotImplemented to leave it to that method, or `UNDECIDED`.
    """
    cls: Any = type(other)
    if _decides(cls, "__array_ufunc__"):
        ask = cls.__array_ufunc__
        # None means: my own methods alone. Source: NEP 13.
        return NotImplemented if ask is None else ask(other, ufunc, "__call__", x, y)
    _is_refused(cls)
    if cls.__module__ == "builtins" or isinstance(other, numbers.Number):
        return UNDECIDED
    return NotImplemented if method and hasattr(cls, method) else UNDECIDED


# ---- wrappers: objects that hold arrays ----
# Classes of objects that hold arrays and are not arrays themselves, as xarray's do.
#
# Such an object is never a leaf: a transform would take it for a constant, and what it
# holds would have a gradient of zero. So a call of an operator with one is handed over
# whole, before any transform or mode sees it, to a function that calls the operator on
# what it holds.


Handler: TypeAlias = Callable[[Any, Sequence[Any]], Any]

# Class -> the function that calls operators on its objects.
_handlers: dict[type, Handler] = {}
# Module -> class in it -> the same, or its path: ``"module:function"``.
_handlers_by_path: dict[str, dict[str, Handler | str]] = {
    "xarray": dict.fromkeys(
        ("DataArray", "Dataset", "DataTree", "Variable"),
        "customop.interop.xarray.labels:call_operator",
    )
}


def register_array_wrapper(cls_or_path: type | str, handler: Handler) -> None:
    """Say how operators are called on objects of a class that hold arrays.

    An operator that gets such an object calls `handler`, before transforms and modes see
    the call. What it holds may be traced: its gradient is kept, since `handler` calls the
    operator on it. A rule of the operator for the class comes first.

    Parameters
    ----------
    cls_or_path : type or str
        The class, or ``"module.Class"``, which is looked up once that module is imported.
        Subclasses are of the same kind.
    handler : callable
        ``handler(op, values)`` takes the operator and the values of all its parameters,
        in the order of the schema. It calls ``op.run(*values)`` with arrays in place of
        such objects, and returns a result for the caller.

    Raises
    ------
    RegistrationError
        If `cls_or_path` is neither a class nor a path, or `handler` is not a function.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> class Meters:
    ...     def __init__(self, values):
    ...         self.values = values
    >>> def call(op, values):
    ...     inner = [v.values if isinstance(v, Meters) else v for v in values]
    ...     return Meters(op.run(*inner))
    >>> co.register_array_wrapper(Meters, call)
    >>> co.ops.np.negative(Meters(np.ones(2))).values
    array([-1., -1.])
    """
    if not callable(handler):
        raise RegistrationError(
            f"register_array_wrapper: {shown(handler)} is not a function",
            do="pass a function of an operator and the values of its parameters",
        )
    if isinstance(cls_or_path, type):
        _handlers[cls_or_path] = handler
        return
    module, dot, name = str(cls_or_path).rpartition(".")
    if not isinstance(cls_or_path, str) or not dot or not name.isidentifier():
        raise RegistrationError(
            f"register_array_wrapper: {shown(cls_or_path)} is neither a class nor a path",
            do='pass the class, or "module.Class"',
        )
    _handlers_by_path.setdefault(module, {})[name] = handler


def may_wrap() -> bool:
    """Return whether such an object can exist: its module is imported."""
    return bool(_handlers) or not sys.modules.keys().isdisjoint(_handlers_by_path)


def handler_of(cls: type) -> Handler | None:
    """Return the function that calls operators on objects of a class, or None."""
    if cls.__module__ == "builtins" or not may_wrap():
        return None
    for module in [name for name in [*_handlers_by_path] if name in sys.modules]:
        for name, handler in [*_handlers_by_path[module].items()]:
            found = getattr(sys.modules[module], name, None)
            if isinstance(found, type):  # the module may be importing still
                _handlers.setdefault(found, _loader(found, handler))
    return next(
        (_handlers[base] for base in cls.__mro__ if base in _handlers),
        None,
    )


def _loader(cls: type, handler: Handler | str) -> Handler:
    """Return the handler of a path, which is imported with the first call."""
    if not isinstance(handler, str):
        return handler
    module, _, name = handler.partition(":")

    def call_imported(target: Any, values: Sequence[Any]) -> Any:
        found: Handler = getattr(importing(import_module, module), name)
        _handlers[cls] = found
        return found(target, values)

    return call_imported
