"""Rule kinds: the names of the rows of an operator's table, and operator tags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from customop.errors import RegistrationError
from customop.schema.signatures import check_callable, check_parameters

if TYPE_CHECKING:
    from customop.schema.schema import Schema

__all__ = ["RuleKind"]


class RuleKind:
    """Name a kind of rule and describe the functions that can serve as one.

    Parameters
    ----------
    name : str
        What error messages and tables call it.
    takes : str
        Parameters of a rule. `*inputs` stands for the positional parameters of the
        operator, after which its keyword-only parameters follow by name;
        `**keywords` stands for the latter alone. Rules are checked against this when
        they are registered. ``"(...)"`` checks nothing.
    returns : str
        What a rule returns, in words.
    derive : callable, optional
        ``derive(op)`` gives a rule for an operator that has none, or None.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> inverse = co.RuleKind("inverse", takes="(out, *inputs)", returns="input 0")
    >>> @co.custom_op("doc::my_exp", mutates_args=())
    ... def my_exp(x: np.ndarray) -> np.ndarray:
    ...     return np.exp(x)
    >>> @my_exp.register(inverse)
    ... def _(out, x):
    ...     return np.log(out)
    >>> my_exp.rule(inverse)(np.array([1.0]), None)
    array([0.])
    """

    __slots__ = (
        "derive",
        "leading",
        "name",
        "returns",
        "takes",
        "with_inputs",
        "with_keywords",
    )

    def __init__(
        self,
        name: str,
        takes: str = "(...)",
        returns: str = "anything",
        *,
        derive: Callable[[Any], Any] | None = None,
    ) -> None:
        _check_kind(name, takes, derive)
        self.name: str = name
        self.takes: str = takes
        self.returns: str = returns
        self.derive: Callable[[Any], Any] | None = derive
        names = [part.strip() for part in takes.strip("() ").split(",") if part.strip()]
        self.with_inputs: bool = "*inputs" in names
        self.with_keywords: bool = self.with_inputs or "**keywords" in names
        self.leading: tuple[str, ...] | None = (
            None if names == ["..."] else _leading(name, takes, names)
        )

    def __repr__(self) -> str:
        return (
            f"RuleKind({self.name!r}, takes={self.takes!r}, returns={self.returns!r})"
        )

    def check(self, qualname: str, schema: Schema, fn: Any) -> None:
        """Raise unless `fn` can be called as a rule of this kind for the operator."""
        check_callable(qualname, f"{self.name} rule", fn, kind=self.name)
        if self.leading is None:
            return
        positional = list(self.leading)
        keywords: list[str] = []
        if self.with_inputs:
            positional += [p.name for p in schema.positional]
        if self.with_keywords:
            keywords = [p.name for p in schema.keyword_only]
        # Leading names are the library's words: users call them as they like.
        check_parameters(
            f"{qualname}: the {self.name} rule",
            fn,
            positional,
            keywords,
            free=len(self.leading),
            do=f"write def {_signature_text(positional, keywords)}",
        )


def _check_kind(name: object, takes: object, derive: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise RegistrationError(
            f"{name!r} is no name for a kind of rule",
            do='use an identifier: RuleKind("inverse", takes="(out, *inputs)")',
        )
    if not isinstance(takes, str):
        raise RegistrationError(
            f"rule kind '{name}': takes={takes!r} is no string",
            do='write the parameters of a rule: takes="(out, *inputs)"',
            kind=name,
        )
    if derive is not None:
        check_callable(f"rule kind '{name}'", "derive", derive, kind=name)


def _leading(name: str, takes: str, names: list[str]) -> tuple[str, ...]:
    starred = ("*inputs", "**keywords")
    if not all(part in starred or part.isidentifier() for part in names):
        raise RegistrationError(
            f"rule kind '{name}': cannot read takes={takes!r}",
            do='write names and "*inputs", as in "(out, *inputs)", or "(...)"',
            kind=name,
        )
    return tuple(part for part in names if part not in starred)


def _signature_text(positional: Sequence[str], keywords: Sequence[str]) -> str:
    names = [*positional, *(["*", *keywords] if keywords else [])]
    return f"rule({', '.join(names)}): ..."


# ---- parameters of a function against what it is given ----
