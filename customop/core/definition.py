"""The definition of an operator, and the rows of its table."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple, NoReturn, TypeVar

from customop.errors import CustomOpError, MissingRuleError
from customop.schema.schema import Schema
from customop.schema.tags import Tag

__all__ = [
    "Definition",
    "ErrorT",
    "Row",
    "Site",
    "fallthrough_kernel",
    "is_interactive",
    "same_place",
]

ErrorT = TypeVar("ErrorT", bound=CustomOpError)


class Site(NamedTuple):
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


class Definition(NamedTuple):
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


class Row(NamedTuple):
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

    fn: Any
    place: str
    owner: object = None


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
