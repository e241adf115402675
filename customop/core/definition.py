"""The definition of an operator, and the rows of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any, NoReturn, TypeVar

from customop.arrays.kinds import DEFAULT, FAKE, is_known_device, known_devices
from customop.errors import (
    CustomOpError,
    MissingRuleError,
    RegistrationError,
    did_you_mean,
    items_of,
    quoted,
    shown,
)
from customop.frozen import Frozen
from customop.schema.schema import Schema
from customop.schema.tags import Tag
from customop.schema.types import holds_arrays

__all__ = [
    "Definition",
    "ErrorT",
    "Row",
    "Site",
    "check_device_types",
    "check_factory",
    "fallthrough_kernel",
    "is_interactive",
    "same_place",
]

ErrorT = TypeVar("ErrorT", bound=CustomOpError)


class Site(Frozen):
    """The run of a module, script or cell in which an operator is defined.

    Attributes
    ----------
    code : CodeType
        Its code. A module that is reloaded and a cell that runs again have a new one.
    namespace : int
        The identity of its globals.
    """

    code: CodeType
    namespace: int

    @classmethod
    def of(cls, frame: FrameType) -> Site:
        """The site of a running frame; in a thread, the function that the thread runs."""
        while frame.f_code.co_name != "<module>" and frame.f_back is not None:
            frame = frame.f_back
        return cls(frame.f_code, id(frame.f_globals))


class Definition(Frozen, compare=()):
    """The definition of an operator."""

    qualname: str
    fn: Callable[..., Any]
    schema: Schema
    tags: frozenset[Tag]
    place: str
    module: str
    site: Site | None = None

    @property
    def name(self) -> str:
        """The name without namespace and overload."""
        return self.qualname.partition("::")[2].partition(".")[0]

    def error(
        self,
        cls: type[ErrorT],
        what: str,
        *where: str,
        do: str,
        parameter: str | None = "",
        kind: str | None = None,
    ) -> ErrorT:
        """Build an error about the operator; see `Schema.error`."""
        return self.schema.error(
            cls, self.qualname, what, *where, do=do, parameter=parameter, kind=kind
        )

    def show(self, *parameters: str) -> str:
        """The schema with the name in front, and carets under parameters."""
        return self.schema.show(self.qualname, *parameters)


class Row:
    """A registration: one row of an operator's table.

    Attributes
    ----------
    fn : object
        The kernel or rule.
    place : str
        File and line that messages name.
    owner : object
        Whose closing takes it back; None where it stays.
    """

    __slots__ = ("fn", "owner", "place")

    def __init__(self, fn: Any, place: str, owner: object = None) -> None:
        self.fn: Any = fn
        self.place: str = place
        self.owner: object = owner


def fallthrough_kernel(*args: Any, **kwargs: Any) -> NoReturn:
    """Mark a row to skip: a call goes on to the next row.

    Register it; it is never called. For a kind of array the default kernel follows,
    then the composite body. For autograd the operator below follows, and its result is
    not tracked.

    Parameters
    ----------
    *args, **kwargs : object
        Never read.

    Raises
    ------
    MissingRuleError
        Always.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::halve", mutates_args=())
    ... def halve(x: np.ndarray) -> np.ndarray:
    ...     return x / 2
    >>> with co.Library("doc", "IMPL", "CPU") as lib:
    ...     lib.impl("halve", lambda x: x * 0)
    ...     lib.impl("halve", co.fallthrough_kernel)
    ...     print(halve(np.ones(2)))
    [0.5 0.5]
    """
    raise MissingRuleError(
        "fallthrough_kernel is called: it only marks a row to skip",
        do='register it: lib.impl("name", fallthrough_kernel, "CPU")',
    )


def same_place(first: str, second: str) -> bool:
    """Whether two places are the same, so that a line has run again.

    Any two cells of notebooks count as the same place, since their files change.
    """
    return first == second or (is_interactive(first) and is_interactive(second))


def is_interactive(where: str) -> bool:
    """Whether a place is in a notebook or typed at a prompt, which no file keeps."""
    return where.startswith("<") or "ipykernel_" in where


# ---- kinds of array that have kernels ----


def check_device_types(
    qualname: str, device_types: str | Iterable[str] | None
) -> tuple[str, ...]:
    """Names of kinds of array, each known; the default for None."""
    if device_types is None:
        return (DEFAULT,)
    kinds = [device_types] if isinstance(device_types, str) else items_of(device_types)
    if kinds is None:
        raise RegistrationError(
            f"{qualname}: device_types={shown(device_types)} does not name a kind of array",
            do='write "cpu", ("cpu", "cuda"), or None for all kinds',
            op=qualname,
        )
    if not kinds:
        raise RegistrationError(
            f"{qualname}: device_types is empty, so the kernel would serve nothing",
            do='write "cpu", ("cpu", "cuda"), or None for all kinds',
            op=qualname,
        )
    for kind in kinds:
        if not isinstance(kind, str) or not is_known_device(kind):
            known = known_devices()
            hint = did_you_mean(kind, known) if isinstance(kind, str) else ""
            raise RegistrationError(
                f"{qualname}: unknown device type {shown(kind)}{hint}",
                f"known: {quoted(known)}",
                do="register_fake for a fake kernel"
                if isinstance(kind, str) and kind == FAKE
                else "use a known one, or register_array_type first",
                op=qualname,
            )
    return tuple(kinds)


def check_factory(name: str, schema: Schema, kinds: tuple[str, ...]) -> None:
    """Raise if there are kernels by kind of array, but nothing to choose one by."""
    has_array = any(holds_arrays(p.type) for p in schema.parameters)
    if has_array or schema.device_slot is not None or kinds == (DEFAULT,):
        return
    raise RegistrationError(
        f"{name}: has kernels for {', '.join(kinds)}, but no array and no 'device' to"
        " choose by",
        schema.show(name),
        do="add a parameter device: Device, or name no kinds of array",
        op=name,
    )
