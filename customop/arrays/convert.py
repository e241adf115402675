"""Arrays made of others: of another kind, of nested lists; and classes that become kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from customop.arrays.array import Array
from customop.arrays.kinds import (
    CUDA,
    RESERVED,
    add_array_class,
    find_kind,
    find_or_make_kind,
    hosts,
    is_array,
    is_traced,
    kind_name,
    kind_of,
    known_devices,
    registered_kind,
)
from customop.arrays.nested import describe
from customop.arrays.numpy_functions import call_numpy
from customop.errors import (
    ArgumentError,
    RegistrationError,
    ShapeError,
    did_you_mean,
    quoted,
    shown,
)

# ---- arrays of one kind made from arrays of another ----


def to_host(value: Any) -> np.ndarray[Any, Any]:
    """Copy the values of an array of any kind into a NumPy array to read."""
    kind = kind_of[type(value)]
    if kind is not None and kind.to_numpy is not None:
        return np.asarray(kind.to_numpy(value))
    if kind is None or hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.asarray(np.from_dlpack(value))
    raise ArgumentError(
        f"{describe(value)} cannot be converted to NumPy",
        do="give the class a method __array__ or __dlpack__",
    )


def from_host(values: np.ndarray[Any, Any], like: Any) -> Any:
    """Make an array of the kind, dtype and layout of `like`."""
    if isinstance(like, np.ndarray | np.generic):
        out = np.empty_like(like)
        out[...] = values
        return out
    kind = kind_of[type(like)]
    if kind is not None and kind.from_numpy is not None:
        return kind.from_numpy(values)
    # Only the operators of the kind can make an array: one number at a time.
    items = [call_numpy(np.full_like, like, number, shape=[]) for number in values.flat]
    if not items:
        return call_numpy(np.zeros_like, like)
    return call_numpy(np.reshape, call_numpy(np.stack, items), values.shape)


def as_kind(x: Any, kind: str) -> Any:
    """Convert an array to another kind.

    Parameters
    ----------
    x : array
        Of any kind with data.
    kind : str
        One of `devices_at_hand`.

    Returns
    -------
    array
        Of the same values; `x` itself if it is of that kind already.

    Raises
    ------
    ArgumentError
        If arrays of that kind cannot be made here.

    Examples
    --------
    >>> import numpy as np
    >>> from customop.testing import as_kind
    >>> as_kind(np.ones(2), "cpu")
    array([1., 1.])
    """
    if kind_name(x) == kind:
        return x
    make = find_kind(kind).from_numpy if kind in devices_at_hand() else None
    if make is None:
        near = did_you_mean(kind, devices_at_hand())
        raise ArgumentError(
            f"as_kind: no array of the kind '{kind}' can be made here{near}; at hand:"
            f" {quoted(devices_at_hand())}",
            do="install CuPy and a driver that it works with: cupy.show_config()"
            if kind == CUDA.name
            else f'register_array_type("{kind}", cls, from_numpy=...)',
        )
    return make(to_host(x))


def devices_at_hand() -> tuple[str, ...]:
    """Return the name the kinds of array that can be made here.

    Returns
    -------
    tuple of str
        ``"cpu"``; ``"cuda"`` where CuPy is installed and a device answers; and the
        kinds that were registered with ``from_numpy``.

    Examples
    --------
    >>> from customop.testing import devices_at_hand
    >>> "cpu" in devices_at_hand()
    True
    """
    return tuple(name for name in known_devices() if find_kind(name).can_be_made())


# ---- arrays made of nested lists of arrays, numbers and traced values ----


def array(object: Any, dtype: Any = None, *, ndmin: int = 0) -> Array:  # noqa: A002  # NumPy's
    """Make an array of nested lists, which may hold traced values.

    It is `numpy.array`, which cannot take traced values itself: NumPy would ask them for
    their numbers.

    Parameters
    ----------
    object : array, number, or nested list or tuple of them
        Arrays in a list have the same shape, and each becomes a row.
    dtype : dtype, optional
        By default the one that NumPy promotes all values to.
    ndmin : int
        Number of axes that the result has at least; new ones come first.

    Returns
    -------
    array
        An array of its own: a copy where `object` is an array. Traced if any value is.

    Raises
    ------
    ShapeError
        If the values in a list differ in shape.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def rotate(angle, point):
    ...     c, s = np.cos(angle), np.sin(angle)
    ...     return co.array([[c, -s], [s, c]]) @ point
    >>> co.jacfwd(rotate)(np.array(0.0), np.array([1.0, 2.0]))
    array([-2.,  1.])
    >>> co.array([1, 2], dtype=np.float32, ndmin=2)
    array([[1., 2.]], dtype=float32)
    """
    if not _needs_operators(object):
        return np.array(object, dtype=dtype, ndmin=ndmin)
    found = _joined(object)
    found = call_numpy(np.copy, found) if found is object else found
    if dtype is not None and found.dtype != np.dtype(dtype):
        found = call_numpy(np.astype, found, dtype)
    missing = ndmin - len(found.shape)
    if missing > 0:
        found = call_numpy(np.reshape, found, (*(1,) * missing, *found.shape))
        found = call_numpy(np.copy, found)  # not a view, so that it can be written
    if is_traced(found) and not found.shape:
        found.box_pin()
    return found  # type: ignore[no-any-return]  # an array of some kind


def _needs_operators(value: Any) -> bool:
    """Return whether an array that is not NumPy's is among nested values."""
    if isinstance(value, list | tuple):
        return any(_needs_operators(item) for item in value)
    return is_array(value) and not isinstance(value, np.ndarray | np.generic)


def _joined(value: Any) -> Any:
    if is_array(value):
        return value
    if not _needs_operators(value):
        return np.asarray(value)
    rows = [_joined(item) for item in value]
    shapes = list(dict.fromkeys(tuple(row.shape) for row in rows))
    if len(shapes) > 1:
        raise ShapeError(
            f"array: a list has values of the shapes {shapes[0]} and {shapes[1]}",
            do="give all values in a list the same shape",
        )
    return call_numpy(np.stack, rows)


# ---- registering classes of arrays, so that operators can have kernels for them ----


def register_array_type(
    kind: str,
    cls_or_path: type | str,
    *,
    from_numpy: Callable[[Any], Any] | None = None,
    to_numpy: Callable[[Any], Any] | None = None,
    accepts: Iterable[str] = (),
    immutable: bool = False,
    lazy: bool = False,
    derive: Callable[[Any], Callable[..., Any] | None] | None = None,
    checked: bool = True,
) -> None:
    """Return the name a class of arrays, so that kernels can be registered for it.

    Parameters
    ----------
    kind : str
        Name of the kind: the `device_types` of its kernels. A kind may have
        several classes.
    cls_or_path : type or str
        The class, or ``"module.Class"``, which is looked up once that
        module is imported. Subclasses are of the same kind.
    from_numpy : callable, optional
        Makes an array of the kind from a NumPy array, of the same values, shape and
        dtype. With it, checks can run on arrays of the kind.
    to_numpy : callable, optional
        Makes a NumPy array from an array of the kind. It may be left out for classes
        that have ``__array__`` or ``__dlpack__``.
    accepts : iterable of str
        Kinds whose arrays may stand beside arrays of this kind in a call, such as
        ``("cpu",)`` for NumPy's. Kernels of the kind get them as they are.
    immutable : bool
        Whether arrays of the kind cannot be written. Results may then share memory.
    lazy : bool
        Whether the elements of an array are computed later, on demand. NumPy
        functions then do not look at values, and do what is right for all of them.
    derive : callable, optional
        ``derive(op)`` gives the kernel of an operator that has none registered for the
        kind, or None. It is asked before the default kernel is taken, once for each
        operator as long as its rules stay as they are.
    checked : bool
        Whether opcheck makes arrays of the kind and compares its kernels. It runs them in
        a forked process, which some libraries with threads do not survive.

    Raises
    ------
    RegistrationError
        If the kind is not an identifier, the class is not a class or belongs to
        another kind, or a conversion or `derive` is not a function.

    Examples
    --------
    >>> import customop as co
    >>> class Column:
    ...     shape = (3,)
    >>> co.register_array_type("column", Column)
    """
    if not isinstance(kind, str) or not kind.isidentifier() or kind in RESERVED:
        raise RegistrationError(
            f"register_array_type: {shown(kind)} cannot be the name of a kind of array",
            do="use an identifier, such as 'strict' or 'tpu'",
        )
    _check_class(kind, cls_or_path)
    others = _accepted(kind, accepts)
    functions: dict[str, object] = {
        "from_numpy": from_numpy,
        "to_numpy": to_numpy,
        "derive": derive,
    }
    for name, fn in functions.items():
        if fn is not None and not callable(fn):
            takes = "an operator" if name == "derive" else "one array"
            raise RegistrationError(
                f"register_array_type: {name}={shown(fn)} is not a function",
                do=f"pass a function of {takes}: {name}=convert",
            )
    known = find_or_make_kind(kind)
    add_array_class(known, cls_or_path)
    known.accepts += tuple(name for name in others if name not in known.accepts)
    if known.accepts:
        hosts.add(kind)
    known.is_lazy = known.is_lazy or lazy
    known.is_checked = known.is_checked and checked
    known.has_memory = known.has_memory and not immutable
    known.from_numpy = known.from_numpy if from_numpy is None else from_numpy
    known.to_numpy = known.to_numpy if to_numpy is None else to_numpy
    known.derive = known.derive if derive is None else derive


def _accepted(kind: str, accepts: Iterable[str]) -> tuple[str, ...]:
    """Check the names of other kinds and return them."""
    names = (accepts,) if isinstance(accepts, str) else tuple(accepts)
    for name in names:
        if name not in known_devices() or name == kind:
            raise RegistrationError(
                f"register_array_type: accepts={shown(name)} is not another kind of array;"
                f" known: {quoted(known_devices())}",
                do='write accepts=("cpu",) for NumPy arrays',
            )
    return names


def _check_class(kind: str, cls_or_path: object) -> None:
    if isinstance(cls_or_path, str):
        parts = cls_or_path.split(".")
        if len(parts) < 2 or not all(part.isidentifier() for part in parts):
            raise RegistrationError(
                f"register_array_type: {shown(cls_or_path)} is not the path of a class",
                do='write "module.Class"',
            )
        return
    if not isinstance(cls_or_path, type):
        raise RegistrationError(
            f"register_array_type: {shown(cls_or_path)} is neither a class nor a path",
            do='pass the class, or "module.Class"',
        )
    if issubclass(cls_or_path, np.generic) or cls_or_path.__module__ == "builtins":
        raise RegistrationError(
            f"register_array_type: {cls_or_path.__qualname__} is not a class of arrays",
            do="pass the class that has shape and dtype",
        )
    known = registered_kind(cls_or_path)
    if known is not None and known.name != kind:
        raise RegistrationError(
            f"register_array_type: {cls_or_path.__qualname__} is already of the kind"
            f" '{known}'",
            do=f"register kernels for '{known}', or a class of your own",
        )
