"""Rule kinds: the names of the rows of an operator's table, and operator tags."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from customop.errors import RegistrationError, did_you_mean, place, quoted

if TYPE_CHECKING:
    from customop.schema import Schema

__all__ = ["RuleKind", "Tag"]


class Tag(enum.Enum):
    """What an operator promises beyond its schema.

    Attributes
    ----------
    inplace
        It writes its first array and returns that array: ``x += y`` as an operator.
        Gives the schema its aliases, the fake kernel and the vmap rule.
    out
        It writes the arrays that it takes by keyword alone, and returns them in
        order. Gives what `inplace` gives.
    pointwise
        Each output element depends on the input elements at its place only, with
        NumPy broadcasting. Gives the vmap rule; where no fake kernel is registered,
        also one that tells the broadcast shape and the dtype of NumPy's promotion.
        It is withdrawn when the first call of a kernel proves it wrong.
    reduction
        It reduces the axes that its parameter `axis` names, all for None, and keeps
        them as axes of length one where it has a parameter `keepdims` that is true.
        Gives the vmap rule and, as for `pointwise`, a fake kernel: of the input's
        dtype.
    nondeterministic_seeded
        The result depends on a random state: vmap asks for its `randomness`.
    nondeterministic_bitwise
        Two calls on the same values may differ in rounding: compare with a tolerance.
    data_dependent_output
        Numbers that it returns depend on the values of its arrays: it has no fake
        kernel unless one is registered.
    dynamic_output_shape
        The shape of a result depends on the values of its arrays, as that of
        ``np.nonzero``: as above.
    needs_contiguous
        Kernels are given every array in C order: a copy where it is not.
    needs_exact_strides
        A fake kernel must tell the very strides of the result.
    flexible_layout
        A fake kernel need not tell the order of the axes in memory.
    """

    inplace = "inplace"
    out = "out"
    pointwise = "pointwise"
    reduction = "reduction"
    nondeterministic_seeded = "nondeterministic_seeded"
    nondeterministic_bitwise = "nondeterministic_bitwise"
    data_dependent_output = "data_dependent_output"
    dynamic_output_shape = "dynamic_output_shape"
    needs_contiguous = "needs_contiguous"
    needs_exact_strides = "needs_exact_strides"
    flexible_layout = "flexible_layout"


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


def check_callable(qualname: str, what: str, fn: Any, *, kind: str = "") -> None:
    """Raise unless `fn` can be called."""
    if not callable(fn):
        raise RegistrationError(
            f"{qualname}: the {what} must be a function, got {fn!r}",
            do="pass a function, or use the method as a decorator",
            op=qualname,
            kind=kind or what,
        )


def check_parameters(
    what: str,
    fn: Callable[..., Any],
    positional: Sequence[str],
    keywords: Sequence[str],
    *,
    free: int = 0,
    do: str = "",
) -> None:
    """Raise unless `fn` takes these parameters.

    The first `free` names are the rule's own to choose. A parameter that is
    positional-only or whose name starts with an underscore may have any name.
    """
    if has_exactly(fn, positional, keywords, free):
        return
    given = parameters_of(fn)
    if given is None:
        return
    problem = mismatch(given, positional, keywords, free)
    if problem:
        raise RegistrationError(f"{what} {problem}", f"at {place(fn)}", do=do)


_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def has_exactly(
    fn: object, positional: Sequence[str], keywords: Sequence[str], free: int = 0
) -> bool:
    """Whether a plain function has these parameters and no defaults, by its code.

    Half a microsecond, where `inspect.signature` takes 15.
    """
    # What may tell another signature stands in `__dict__`: `__wrapped__` and the like.
    if type(fn) is not FunctionType or fn.__dict__:
        return False
    if fn.__defaults__ or fn.__kwdefaults__ or fn.__code__.co_flags & _VARIADIC:
        return False
    count, names = fn.__code__.co_argcount, fn.__code__.co_varnames
    end = count + fn.__code__.co_kwonlyargcount
    return (
        count == len(positional)
        and list(names[free:count]) == list(positional[free:])
        and sorted(names[count:end]) == sorted(keywords)
    )


def parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Parameters of a function, or None where it does not tell their names.

    Builtins and ufuncs do not: their first call proves them.
    """
    if isinstance(fn, np.ufunc):
        return None
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return None


# ---- parameters of a function against what it is given ----


def mismatch(
    parameters: list[inspect.Parameter],
    positional: Sequence[str],
    keywords: Sequence[str],
    free: int = 0,
) -> str:
    """How the parameters of a function differ from what it is given, or nothing."""
    return _positional_mismatch(
        parameters, positional, keywords, free
    ) or _keyword_mismatch(parameters, positional, keywords)


def _positional_mismatch(
    parameters: list[inspect.Parameter],
    positional: Sequence[str],
    keywords: Sequence[str],
    free: int,
) -> str:
    by_place = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    own = [p for p in parameters if p.kind in by_place]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    rest = [p.name for p in own[len(positional) :] if p.default is p.empty]
    too_many = any(name not in keywords for name in rest)
    if too_many or (len(own) < len(positional) and not takes_any):
        has = ", ".join(p.name for p in own)
        return f"takes ({has}) by position, is given ({', '.join(positional)})"
    for index, (mine, name) in enumerate(zip(own, positional, strict=False)):
        if index >= free and mine.name != name and not _may_differ(mine):
            where = f"'{name}' (position {index})"
            return f"has the parameter '{mine.name}' where the schema has {where}"
    return ""


def _keyword_mismatch(
    parameters: list[inspect.Parameter],
    positional: Sequence[str],
    keywords: Sequence[str],
) -> str:
    by_name = {p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    needed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    extra = [name for name in needed if name not in keywords]
    required = [p.name for p in parameters if p.name in extra and p.default is p.empty]
    if required:
        near = did_you_mean(required[0], [*keywords, *positional])
        return (
            f"needs the keyword-only parameter '{required[0]}', not in the schema{near}"
        )
    missing = [name for name in keywords if name not in by_name]
    if missing and not takes_any:
        other = f", has {quoted(extra)}" if extra else ""
        return f"lacks the keyword-only parameter '{missing[0]}' of the schema{other}"
    return ""


def _may_differ(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.POSITIONAL_ONLY or parameter.name.startswith("_")
