"""Refusals of traced and fake arrays: values, attributes, draws, and some functions."""

from __future__ import annotations

import dis
import operator
import re
import sys
from types import CodeType, FrameType
from typing import Any, Final, NoReturn

import numpy as np

from customop.arrays.nested import describe
from customop.arrays.trampolines import runs_put
from customop.errors import (
    CustomOpError,
    DataDependentError,
    MissingRuleError,
    UnknownNameError,
    is_ours,
    user_frame,
)
from customop.frozen import Frozen

# ---- NumPy or Python asks a traced or fake array for its value, which is refused ----


# The refused action and the advice where a user writes into an array.
SETITEM = (
    "out[key] = value, with a plain array out, is given",
    "np.stack([...]) to join values, or make out with np.zeros_like(x) or np.zeros(n,"  # noqa: ISC004  # one text
    " like=x) of such an x",
)

# Class of NumPy whose methods convert values -> its name for users.
_CLASSES = {
    "ABCPolyBase": "np.polynomial.Polynomial",
    "AxisConcatenator": "np.r_ or np.c_",
    "MaskedArray": "np.ma.array",
    "matrix": "np.matrix",
    "nd_grid": "np.mgrid or np.ogrid",
    "ndenumerate": "np.ndenumerate",
    "vectorize": "np.vectorize",
}
# NumPy's name -> what to write instead, where `traceable` does not help.
_INSTEAD = {
    "np.full": "np.full(shape, x, like=x)",
    "np.lib.stride_tricks.as_strided": "slices and reshape, np.broadcast_to for strides of"
    " 0, or np.lib.stride_tricks.sliding_window_view(x, n)[::step] for windows",
    "np.ma.array": "np.where(mask, 0, x), and keep the mask in an array of its own",
    "np.matrix": "the array x itself, and @ for the product of matrices",
    "np.mgrid or np.ogrid": "np.meshgrid(np.linspace(a, b, n), indexing='ij')",
    "np.ndenumerate": "for i in np.ndindex(x.shape), and x[i]",
    "np.polynomial.Polynomial": "np.polynomial.polynomial.polyval(x, coefficients), or the"
    " functions for the other bases",
    "np.r_ or np.c_": "np.concatenate([...]) for np.r_, np.stack([...], axis=-1) for np.c_",
    "np.vectorize": "f(x) itself where f computes with arrays, vmap(f)(x), or map(f, x)",
}
_TRACEABLE = "customop.traceable(f) for the function f that converts its arguments"

_LOADS = ("LOAD_ATTR", "LOAD_METHOD")
_SETITEM = {dis.opmap[n] for n in ("STORE_SUBSCR", "STORE_SLICE") if n in dis.opmap}


def _position() -> tuple[CodeType, int]:
    """Return code and instruction of the innermost frame outside of this package."""
    frame = user_frame()
    return frame.f_code, frame.f_lasti


def installed_caller() -> str | None:
    """Return the function that asks, if it is one of an installed package.

    In NumPy it is the one that the user calls, by the name that users know: 'np.full',
    which itself calls others.
    """
    frame = user_frame()
    if not is_installed_at(frame.f_code.co_filename):
        return None
    function = frame.f_code.co_qualname.partition(".<locals>")[0]
    name = f"{frame.f_globals.get('__name__')}.{function}"
    outer: FrameType | None = frame
    while outer is not None and (_is_numpy(outer) or is_ours(outer.f_globals)):
        name = _public_name(outer.f_code) or name
        outer = outer.f_back
    return name


def instead_of_caller(caller: str) -> str:
    """Return advice for a function of an installed package that asks for a value."""
    return _INSTEAD.get(caller, _TRACEABLE)


def is_installed_at(path: str) -> bool:
    """Return whether a file belongs to an installed package."""
    # Not by pathlib, which takes 3 ms to import.
    return not _INSTALLED.isdisjoint(re.split(r"[\\/]", path))


def _is_numpy(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__"))
    return module.partition(".")[0] == "numpy"


def _public_name(code: CodeType) -> str | None:
    """Return the name that users call a NumPy function by: 'np.linalg.norm'."""
    cls, dot, _ = code.co_qualname.partition(".")
    if dot and cls in _CLASSES:
        return _CLASSES[cls]
    for prefix in ("np", "np.linalg", "np.fft", "np.lib.stride_tricks"):
        module = sys.modules.get(prefix.replace("np", "numpy", 1))
        found = getattr(module, code.co_name, None)
        if getattr(getattr(found, "__wrapped__", found), "__code__", None) is code:
            return f"{prefix}.{code.co_name}"
    return None


_INSTALLED = {"site-packages", "dist-packages"}


def asked_by_setitem() -> bool:
    """Return whether the user's line is at ``out[key] = value``."""
    code, instruction = _position()
    return code.co_code[instruction] in _SETITEM or runs_put(code, instruction)


def called_method() -> str | None:
    """Return the method that the user's line calls: 'normal' for ``rng.normal(x)``."""
    code, at = _position()
    found: tuple[int, str] | None = None
    start: tuple[int | None, int | None] | None = None
    loads = []
    for step in dis.get_instructions(code):
        where = step.positions
        if where is None or where.end_col_offset is None:
            continue
        if step.offset == at:
            start = (where.lineno, where.col_offset)
        if step.opname in _LOADS:
            place = (where.lineno, where.col_offset)
            loads.append((place, where.end_col_offset, str(step.argval)))
    for place, end, name in loads:
        # The call and its function begin at the same place.
        if place == start and (found is None or end > found[0]):
            found = (end, name)
    return None if found is None else found[1]


class Refusal:
    """An error that was raised for a value, and the instruction that asked for it.

    NumPy replaces the errors of ``__float__`` by a ValueError of its own in
    ``out[0] = x``, with ours as its cause, in ``out.flat[0] = x`` without it, and those
    of ``__array__`` by a TypeError in ``np.nditer(x)`` (NumPy 2.4). Where the function of
    a transform ends, ours comes back.
    """

    __slots__ = ("at", "error")

    def __init__(self, error: DataDependentError) -> None:
        self.error: DataDependentError = error
        self.at: tuple[CodeType, int] = _position()

    def causes(self, error: Exception) -> bool:
        """Return whether another error comes from the instruction that was refused.

        Code in C may go on after ours, and call Python code that fails for no reason of
        its own: the callbacks of SciPy's root finders do (1.17).
        """
        trace = error.__traceback__
        while trace is not None:
            if (trace.tb_frame.f_code, trace.tb_lasti) == self.at:
                return True
            trace = trace.tb_next
        return False


# ---- attributes of arrays that traced and fake ones lack, or cannot set ----


_MEMORY = "make an operator, with custom_op, of the code that reads the memory of x"
_FILE = "return the value from the function, and write it there"
_FIELDS = "split structured arrays into one array for each field before the transform"
_LAYOUT = "leave it out: operators choose how arrays lie in memory"
_NUMBER = "use stop_gradient(x) for the value alone, outside of vmap"

# Attribute of numpy.ndarray or a NumPy scalar -> what to use instead.
ABSENT: dict[str, str] = {
    # ---- memory ----
    "__array_interface__": _MEMORY,
    "__array_struct__": _MEMORY,
    "__dlpack__": _MEMORY,
    "__dlpack_device__": _MEMORY,
    "base": _MEMORY,
    "byteswap": _MEMORY,
    "ctypes": _MEMORY,
    "data": _MEMORY,
    "flags": _LAYOUT,
    "setflags": _LAYOUT,
    "strides": _LAYOUT,
    "view": "use x.astype(dtype) for the numbers in another dtype, x.real and x.imag for the"
    " parts of complex ones, x.reshape(shape) for another shape",
    # ---- files ----
    "dump": _FILE,
    "dumps": _FILE,
    "tobytes": _FILE,
    "tofile": _FILE,
    # ---- fields ----
    "getfield": _FIELDS,
    "setfield": _FIELDS,
    # ---- elements ----
    "resize": "use np.reshape(x, shape), or np.pad(x, width)",
    # ---- scalars ----
    "as_integer_ratio": _NUMBER,
    "fromhex": _NUMBER,
    "hex": _NUMBER,
    "is_integer": "use x == np.floor(x)",
    # ---- other libraries ----
    "at": "use y = x.copy(), and y[i] = value, y[i] += value and the like",
    "clone": "use x.copy()",
    "cpu": "use x itself",
    "detach": "use stop_gradient(x)",
    "double": "use x.astype(np.float64)",
    "float": "use x.astype(np.float32)",
    "norm": "use np.linalg.norm(x)",
    "numpy": "use stop_gradient(x)",
    "permute": "use np.transpose(x, axes)",
    "pow": "use x**n",
    "requires_grad_": "use x itself: grad differentiates by the arguments of the function",
    "unsqueeze": "use np.expand_dims(x, axis)",
    "value": "use stop_gradient(x), or in an interpreter x.below",
}

# Attribute of numpy.ndarray that can be set there and only be read here -> what to use.
FIXED: dict[str, str] = {
    "device": "pass arguments that are on that device",
    "dtype": "use x = x.astype(dtype)",
    "shape": "use x = np.reshape(x, shape)",
    "strides": _LAYOUT,
}


def refuse_setting(value: object, name: str) -> NoReturn:
    """Raise for an attribute that is set, which would change an array without a copy."""
    raise UnknownNameError(
        f"the {name} of {describe(value)} cannot be set", do=FIXED[name]
    )


class AbsentAttribute:
    """An attribute of arrays that a class lacks; reading it raises and says so.

    A `__getattr__` would make the class read all its slots by a slower path.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, value: Any, owner: type) -> NoReturn:
        what = owner.__name__ if value is None else describe(value)
        raise UnknownNameError(
            f"{what} has no attribute '{self._name}'", do=ABSENT[self._name]
        )

    def __set__(self, value: Any, given: Any) -> NoReturn:
        if self._name in FIXED:
            refuse_setting(value, self._name)
        self.__get__(value, type(value))


# ---- advice for a draw with traced parameters: `rng.normal(mean, scale)` ----
# NumPy's generators take plain numbers. A draw that is moved and scaled afterwards has
# the same distribution, and derivatives by its parameters. Source: the formulas of the
# distributions in numpy.random, NumPy 2.4; Kingma and Welling, "Auto-encoding
# variational Bayes", 2014.


_MOVED = "loc + scale * rng.{0}(size=shape)"
_SCALED = "scale * rng.{0}(size=shape)"
_OPERATOR = "an operator of rng.{0} that takes rng as an argument, since its draws "
_FIXED = f"{_OPERATOR}have no derivative by that parameter"
_WHOLE = f"{_OPERATOR}are whole numbers"

# Method of a generator -> what to write.
_INSTEAD_OF_DRAW: dict[str, str] = {
    **dict.fromkeys(("normal", "laplace", "gumbel", "logistic"), _MOVED),
    **dict.fromkeys(("exponential", "rayleigh"), _SCALED),
    "uniform": "low + (high - low) * rng.uniform(size=shape)",
    "lognormal": "np.exp(mean + sigma * rng.normal(size=shape))",
    "weibull": "rng.exponential(size=shape) ** (1 / a)",
    "pareto": "np.expm1(rng.exponential(size=shape) / a)",
    "power": "(-np.expm1(-rng.exponential(size=shape))) ** (1 / a)",
    "multivariate_normal": "mean + np.linalg.cholesky(cov) @ rng.normal(size=len(mean))",
    "gamma": "scale * rng.gamma(k, size=shape) with a plain k",
    # ---- elements of an array ----
    "choice": "x[rng.choice(len(x), size=n)]",
    "permutation": "x[rng.permutation(len(x))]",
    "permuted": "np.take_along_axis(x, np.argsort(rng.random(x.shape), axis), axis)",
    "shuffle": "x[...] = x[rng.permutation(len(x))]",
    # ---- without a derivative ----
    **dict.fromkeys(
        (
            *("beta", "chisquare", "dirichlet", "f", "noncentral_chisquare"),
            *("noncentral_f", "standard_gamma", "standard_t", "triangular"),
            *("vonmises", "wald"),
        ),
        _FIXED,
    ),
    **dict.fromkeys(
        (
            *("binomial", "geometric", "hypergeometric", "integers", "logseries"),
            *("multinomial", "multivariate_hypergeometric", "negative_binomial"),
            *("poisson", "randint", "random_integers", "zipf"),
        ),
        _WHOLE,
    ),
}


def instead_of_draw(method: str) -> str | None:
    """Return advice for a method of a generator that is given a traced array."""
    text = _INSTEAD_OF_DRAW.get(method)
    return None if text is None else text.format(method)


# ---- the bits behind random generators of NumPy and CuPy ----


def has_bits(value: Any) -> bool:
    """Return whether a value is a generator of NumPy, CuPy or a subclass."""
    # The class comes first: a generator of a capture refuses the attribute.
    return hasattr(type(value), "bit_generator") or hasattr(value, "bit_generator")


def bits_of(source: Any) -> Any:
    """Return the bits that a generator draws from; other values as they are."""
    module: Any = sys.modules.get("numpy.random")  # imported where a generator exists
    if module is not None and isinstance(source, module.Generator):
        return module.Generator.bit_generator.__get__(source)
    return getattr(source, "bit_generator", source)


# ---- names of NumPy's functions in messages, and the error where one has no operator ----


def numpy_name(function: Any) -> str:
    """Write the name of a function: ``np.linalg.inv``, ``scipy.special.erf``."""
    if function is operator.getitem:
        return "x[key]"
    if function is operator.setitem:
        return "x[key] = value"
    if isinstance(function, tuple):
        return f"{numpy_name(function[0])}.{function[1]}"
    if isinstance(function, np.ufunc):
        return _ufunc_name(function)
    module = getattr(function, "__module__", None) or "numpy"
    module = module.replace("numpy.lib.scimath", "numpy.emath")
    module = module.replace("numpy", "np", 1)
    return f"{module}.{getattr(function, '__name__', function)}"


def _ufunc_name(ufunc: np.ufunc) -> str:
    """Write the name of a ufunc with its module, which it does not know itself."""
    name = ufunc.__name__
    if getattr(np, name, None) is ufunc:
        return f"np.{name}"
    known = [
        path
        for path, module in list(sys.modules.items())
        if "._" not in f".{path}" and vars(module).get(name) is ufunc
    ]
    if not known:
        return f"the ufunc {name}"
    module = "np.strings" if "numpy.strings" in known else min(known, key=len)
    return f"{module}.{name}"


_IN = "in the call of "


def name_call(error: CustomOpError, function: Any) -> None:
    """Say which function the user has called, if the error names one inside of it.

    The functions around it come later, so the last one to be named is the user's.
    """
    where = [line for line in error.where if not line.startswith(_IN)]
    name = getattr(function, "__name__", "")
    is_named = name in re.findall(r"\w+", error.what)
    if not is_named and not any(re.search(rf"\bnp\.{name}\b", w) for w in where):
        where.insert(0, f"{_IN}{numpy_name(function)}")
    error.where = tuple(where)


def missing(function: Any) -> MissingRuleError:
    """Make the error for a NumPy function that has no operator."""
    name = numpy_name(function)
    reason = reason_of(function)
    if reason is not None:
        return MissingRuleError(
            f"{name} has no operator: {reason.why}", do=reason.instead
        )
    if name.startswith("scipy.") and "customop.scipy" not in sys.modules:
        return MissingRuleError(
            f"{name} has no operator, so it cannot see traced or fake arrays",
            do="import customop.scipy, which has operators for SciPy's functions",
        )
    key = numpy_name(function[0] if isinstance(function, tuple) else function)
    key = "ufunc" if key.startswith("the ufunc ") else key
    if isinstance(function, tuple):
        key = f'({key}, "{function[1]}")'
    return MissingRuleError(
        f"{name} has no operator, so it cannot see traced or fake arrays",
        do=f"wrap it with custom_op, then register_numpy_function({key}, op);"
        " or pass stop_gradient(x) to use the value alone",
    )


# ---- why some functions of NumPy have no operator, and what to use instead ----
# Errors, ``customop coverage`` and the guide say it with these words.


class Reason(Frozen):
    """The reason why a function has no operator.

    Attributes
    ----------
    why : str
        A clause that follows "has no operator:".
    instead : str
        What to do, as errors say it.
    """

    why: str
    instead: str


_TEXT: Final = Reason(
    "text has no derivative",
    "call it outside of the transform, and pass numbers that are made of the text",
)
_DATES: Final = Reason(
    "dates have no derivative",
    "call it outside of the transform, and pass its result as a number",
)
_SAVES: Final = Reason(
    "a file takes values, and a traced or fake array may not have one",
    "return the array from the function, and save it there",
)
_READS: Final = Reason(
    "it reads text, memory or Python values, and never a traced or fake array",
    "leave like= away, and compute with its result",
)
_PRINTS: Final = Reason(
    "a traced or fake array may have no digits to print",
    "use print(x), which shows what is known, or print the result of the function",
)
_NO_MEMORY: Final = Reason(
    "a traced or fake array has no memory of its own",
    "ask it of the plain arrays, outside of the transform",
)

_REASONS: dict[str, Reason] = {
    **dict.fromkeys(("array2string", "array_repr", "array_str"), _PRINTS),
    **dict.fromkeys(("save", "savetxt", "savez", "savez_compressed"), _SAVES),
    **dict.fromkeys(("may_share_memory", "shares_memory"), _NO_MEMORY),
    **dict.fromkeys(
        ("busday_count", "busday_offset", "datetime_as_string", "is_busday"), _DATES
    ),
    **dict.fromkeys(
        ("frombuffer", "fromfile", "fromiter", "fromstring", "genfromtxt", "loadtxt"),
        _READS,
    ),
}


def reason_of(function: Any) -> Reason | None:
    """Return why a function of NumPy has no operator; None without a special reason."""
    name = getattr(function, "__name__", "")
    if getattr(np, name, None) is function:
        return _REASONS.get(name)
    # NumPy imports this module at its first use.
    text = sys.modules.get("numpy.strings")
    return _TEXT if getattr(text, name, None) is function else None
