"""All exceptions of the package, and how they show what, where and what to do."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from importlib import import_module
from types import (
    CodeType,
    FrameType,
    FunctionType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any, TypeVar

from customop.later import later

difflib: ModuleType = later(import_module, "difflib")
FnT = TypeVar("FnT", bound=Callable[..., Any])


class CustomOpError(Exception):
    """An error that says what is wrong, where, and what to do.

    Parameters
    ----------
    what : str
        The fault, with the value or type seen.
    *where : str
        Lines that say where: the schema with a caret, a file and line.
    do : str
        The remedy; the call to write, if possible.
    op : str or None
        Qualified name of the operator concerned.
    parameter : str or None
        Name of the parameter concerned.
    kind : str or None
        Name of the rule kind concerned.
    """

    def __init__(
        self,
        what: str,
        *where: str,
        do: str = "",
        op: str | None = None,
        parameter: str | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.do = do
        self.op = op
        self.parameter = parameter
        self.kind = kind

    def __str__(self) -> str:
        lines = [line for block in self.where for line in block.splitlines()]
        if self.do:
            lines.append(f"do: {self.do}")
        shown = [shortened(line, _LONGEST) for line in [self.what, *lines]]
        return printable("\n  ".join(shown))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.__dict__))


# The longest line of a message. Only one that quotes a name of a user can be longer.
_LONGEST = 1500


class SchemaError(CustomOpError, ValueError, TypeError):
    """A schema cannot be inferred or parsed, or does not fit its function."""


class ArgumentError(CustomOpError, TypeError):
    """An argument of a call does not fit the schema of the operator."""


class ShapeError(CustomOpError, ValueError):
    """Shapes or axes do not fit together."""


class SizeError(CustomOpError, RuntimeError):
    """A size cannot stay symbolic, or the sizes of a call do not fit a graph."""


class DeviceMismatchError(CustomOpError, TypeError):
    """A call mixes arrays of different kinds."""


class RegistrationError(CustomOpError, RuntimeError):
    """A kernel, rule, operator or kind of array cannot be registered."""


class UnknownNameError(CustomOpError, AttributeError):
    """There is no namespace, operator or overload of this name."""


class MissingRuleError(CustomOpError, NotImplementedError):
    """An operator has no kernel or rule for a call."""


class ContractError(CustomOpError, RuntimeError):
    """A kernel or rule does not do what its schema says."""


class GradientError(CustomOpError, ValueError):
    """A gradient cannot be computed, or does not fit its array."""


class NoDerivativeError(GradientError):
    """An operator has no derivative by an argument, or none at these values.

    Raise it in a formula: `opcheck` then checks the derivatives by the other arguments, or
    at other values, and says so.
    """


class GraphFileError(CustomOpError, ValueError):
    """A graph cannot be saved, or a file is not a graph that can be loaded here."""


class NanError(CustomOpError, FloatingPointError):
    """A result has nan and nothing that it was computed from has one."""


class VmapError(CustomOpError, ValueError):
    """Batch axes do not fit, or a call cannot be batched."""


class DataDependentError(CustomOpError, TypeError):
    """The value of an array is needed, but only its shape and dtype are known."""


class LeakedTracerError(CustomOpError, RuntimeError):
    """A traced value is used after the transform that made it has ended."""


class GraphError(CustomOpError, ValueError):
    """A graph is wrong, or cannot be made of a function."""


class GuardError(CustomOpError, ValueError):
    """A captured graph is called with other arguments than it was made for."""


class GuessError(GuardError):
    """A graph was made for other values: a dtype or shape would not be NumPy's."""


class OpCheckError(CustomOpError, AssertionError):
    """A check has found a fault.

    Attributes
    ----------
    sample : Sample or None
        The smallest input for which `opcheck` found the fault.
    repro : str
        Code that shows the fault again.
    """

    sample: Any = None
    repro: str = ""


class CustomOpWarning(UserWarning):
    """Something works, but could work better."""


def _rebuild(
    cls: type[CustomOpError], what: str, where: tuple[str, ...], fields: dict[str, Any]
) -> CustomOpError:
    error = cls(what, *where)
    error.__dict__.update(fields)
    return error


def place(fn: Callable[..., Any]) -> str:
    """Return file and line where `fn` is defined, or its type if Python has none."""
    code = getattr(innermost(fn), "__code__", None)
    if code is None:
        return f"{type(fn).__name__} {getattr(fn, '__name__', None) or shown(fn)}"
    return f"{code.co_filename}:{code.co_firstlineno}"


def innermost(fn: Any) -> Any:
    """Return the function inside decorators, partials, methods and callable objects."""
    if _is_bare(fn):  # most functions: 5 us less
        return fn
    while True:
        if hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, MethodType):
            fn = fn.__func__
        else:
            break
    call = inspect.getattr_static(type(fn), "__call__", None)
    is_object = not isinstance(fn, FunctionType | type)
    return call if is_object and isinstance(call, FunctionType) else fn


def _is_bare(fn: Any) -> bool:
    """Return whether a function has nothing wrapped around it."""
    return type(fn) is FunctionType and not fn.__dict__


_PACKAGE = __name__.partition(".")[0]


def user_frame() -> FrameType:
    """Return the innermost running frame outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_ours(frame.f_globals):
        frame = frame.f_back
    return frame


def caller_place() -> str:
    """Return file and line of the innermost frame outside of this package and NumPy."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_inner(frame.f_globals):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_inner(names: dict[str, Any]) -> bool:
    """Return whether a frame is of this package, or of NumPy that calls it."""
    return is_ours(names) or str(names.get("__name__")).partition(".")[0] == "numpy"


def place_of_call(*values: object) -> str:
    """Return file and line that called a function of this package with these variables.

    Empty if no running function of this thread has all of them.
    """
    wanted = {*map(id, values)}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (
        is_ours(frame.f_globals) and wanted <= {*map(id, frame.f_locals.values())}
    ):
        frame = frame.f_back
    while frame is not None and is_ours(frame.f_globals):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def is_ours(names: dict[str, Any]) -> bool:
    """Return whether the globals of a frame are those of a module of this package."""
    module = str(names.get("__name__", _PACKAGE))  # generated code has no name
    return module == _PACKAGE or module.startswith(_PACKAGE + ".")


def shorten(error: BaseException) -> None:
    """Take the frames of this package below the caller's out of a traceback.

    They stay where the package itself has failed.
    """
    trace = error.__traceback__
    if trace is None:
        return
    last, below = trace, trace.tb_next
    while below is not None and is_ours(below.tb_frame.f_globals):
        last, below = below, below.tb_next
    if below is not None or isinstance(error, CustomOpError) or _runs_kernels(last):
        trace.tb_next = below


def _runs_kernels(trace: TracebackType) -> bool:
    """Return whether an error that ends in this package is one of a kernel in C."""
    code = trace.tb_frame.f_code
    return code in _runners or code.co_filename.startswith(GENERATED)


def runs_kernels(fn: FnT) -> FnT:
    """Mark a function that calls kernels: errors of those in C have its frame last."""
    _runners.add(fn.__code__)
    return fn


_runners: set[CodeType] = set()
# The file names of generated functions begin so.
GENERATED = "<customop "


def warn_caller(text: str) -> None:
    """Warn with the place of the innermost running frame outside of this package."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and is_ours(frame.f_globals):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(text, CustomOpWarning, stacklevel=depth)


def check_function(name: str, fn: object) -> None:
    """Raise unless a transform is given a function."""
    if not callable(fn):
        raise no_function(name, repr(fn))


def no_function(name: str, got: str) -> ArgumentError:
    """Return the error of a transform that is given something else."""
    return ArgumentError(
        f"{name}: {got} is not a function", do=f"write {name}(f) with a function f"
    )


def check_flag(name: str, value: object) -> None:
    """Raise unless an option is True or False."""
    if not isinstance(value, bool):
        raise ArgumentError(
            f"{name}={shown(value)} is neither True nor False", do=f"write {name}=True"
        )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Write `` (did you mean 'near'?)``, or nothing if no known name is near."""
    # A dict of many names is not walked.
    given = known if isinstance(known, dict) else dict.fromkeys(known)
    names = _likely(name, given) if len(given) > _MANY else [*given]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
    # A longer word for the same: grad for gradient.
    near = near or [k for k in names if len(k) > 3 and name.startswith(k)]
    near = near or difflib.get_close_matches(name, names, n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""


# So many names are compared with each, which takes 3 us for a name.
_MANY = 1000


def _likely(name: str, names: dict[str, Any]) -> list[str]:
    """Return the names one edit away; else the start of `name`, or some as long as it."""
    letters = "abcdefghijklmnopqrstuvwxyz_0123456789"
    places = [(name[:i], name[i:]) for i in range(len(name) + 1)]
    edits = {a + b[1:] for a, b in places}
    edits |= {a + b[1::-1] + b[2:] for a, b in places}
    edits |= {
        f"{a}{c}{b[skip:]}" for a, b in places for c in letters for skip in (0, 1)
    }
    starts = [a for a, _ in places]
    found = [k for k in edits if k in names] or [k for k in starts if k in names]
    if found:
        return sorted(found, key=lambda k: (-len(k), k))
    length = len(name)
    near = [k for k in names if -3 < len(k) - length < 3 and k[:1] == name[:1]]
    return near[:_MANY]


def caret(text: str, fragment: str, start: int = 0) -> str:
    """Put carets under the first whole word `fragment` of a text from `start` on."""
    found = re.compile(rf"(?<!\w){re.escape(fragment)}(?!\w)").search(text, start)
    if found is None or not fragment:
        return text
    return f"{text}\n{' ' * found.start()}{'^' * len(fragment)}"


def shown(value: object, most: int = 200) -> str:
    """Write the repr of a user's value: not too long, and whatever its class does."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # code of a user; ValueError for long ints
        return f"<{type(value).__name__} object>"
    return shortened(text, most)


def shortened(text: str, most: int = 200) -> str:
    """Put dots into the middle of a text that is too long."""
    if len(text) <= most:
        return text
    return f"{text[: most - 40]}...{text[-37:]}"


def printable(text: str) -> str:
    """Escape lone surrogates, which cannot be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()


def items_of(value: object) -> list[Any] | None:
    """Return the items of an iterable other than a string; None for anything else.

    Arrays without axes are iterable by their class alone.
    """
    if isinstance(value, str | bytes):
        return None
    try:
        found = iter(value)  # type: ignore[call-overload]  # a TypeError is the answer
    except TypeError:
        return None
    return [*found]


def quoted(names: Iterable[object]) -> str:
    """Write names in quotes, with commas between."""
    return ", ".join(f"'{name}'" for name in names)


def with_article(noun: str) -> str:
    """Put ``a`` or ``an`` before a noun: ``"an autograd rule"``."""
    word = noun.lstrip("'\"<").lower()
    has_vowel = word.startswith(("ndarray", *"aeiou"))
    says_you = word.startswith(("ufunc", "uint", "uni", "use"))
    return f"{'an' if has_vowel and not says_you else 'a'} {noun}"


def counted(number: int, noun: str) -> str:
    """Write a number and its noun: ``"1 call"``, ``"2 calls"``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
