"""Arguments of NumPy's functions and methods: each is used, or refused by name."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from customop.arrays.numpy_functions import FUNCTIONS
from customop.arrays.numpy_protocol import ArrayMethods
from tests.cases import cases
from tests.numpy import _examples
from tests.numpy import _matrix_arguments as matrices
from tests.numpy import _signal_arguments as signals
from tests.numpy_functions import is_registered

X = np.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]])
ROWS = np.stack([X, X])

# How a call is made: the result, for one row under vmap.
WAYS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda fn: under_grad(fn),
    "vmap": lambda fn: optree.tree_map(lambda rows: rows[1], co.vmap(fn)(ROWS)),
    "fake": lambda fn: co.eval_shape(fn, X),
}

# Arguments of an example, where they are not just the array.
EXAMPLES: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "append": lambda x: (x, X),
    "array_split": lambda x: (x, 2),
    "astype": lambda x: (x, np.float32),
    "broadcast_arrays": lambda x: (x, X[0]),
    "broadcast_to": lambda x: (x, (2, 2, 3)),
    "choose": lambda x: (X > 2, [x, X]),
    "clip": lambda x: (x, 1.0, 3.0),
    "compress": lambda x: ([True, False], x),
    "concatenate": lambda x: ([x, X],),
    "dot": lambda x: (x, X.T),
    "dsplit": lambda x: (np.expand_dims(x, 2), 1),
    "einsum": lambda x: ("ij->ji", x),
    "expand_dims": lambda x: (x, 0),
    "eye": lambda x: (3,),
    "full": lambda x: ((2, 3), 1.5),
    "full_like": lambda x: (x, 1.5),
    "getitem": lambda x: (x, 0),
    "hsplit": lambda x: (x, 3),
    "inner": lambda x: (x, X),
    "kron": lambda x: (x, X),
    "matrix_transpose": lambda x: (x,),
    "meshgrid": lambda x: (x[0], X[1]),
    "moveaxis": lambda x: (x, 0, 1),
    "ones": lambda x: ((2, 3),),
    "outer": lambda x: (x, X),
    "pad": lambda x: (x, 1),
    "nanpercentile": lambda x: (x, 30.0),
    "nanquantile": lambda x: (x, 0.3),
    "percentile": lambda x: (x, 30.0),
    "quantile": lambda x: (x, 0.3),
    "repeat": lambda x: (x, 2),
    "reshape": lambda x: (x, (3, 2)),
    "result_type": lambda x: (x, X),
    "roll": lambda x: (x, 1),
    "rollaxis": lambda x: (x, 1),
    "select": lambda x: ([X > 1, X > 2], [x, X]),
    "split": lambda x: (x, 2),
    "swapaxes": lambda x: (x, 0, 1),
    "take": lambda x: (x, [1, 0]),
    "take_along_axis": lambda x: (x, np.zeros((2, 3), int)),
    "tensordot": lambda x: (x, X),
    "tile": lambda x: (x, 2),
    "vdot": lambda x: (x, X),
    "vsplit": lambda x: (x, 2),
    "where": lambda x: (X > 1, x, X),
    "zeros": lambda x: ((2, 3),),
} | {
    name: (lambda x: ([x, X],))
    for name in ("stack", "vstack", "hstack", "dstack", "column_stack")
}

# Examples of the arguments that have a default, by their names.
VALUES: dict[str, tuple[Any, ...]] = {
    "M": (2,),
    "a_max": (3.0, None),
    "a_min": (1.0, None),
    "aweights": (np.array([0.5, 1.0, 2.0]), np.array([1.0, 2.0])),
    "axes": (0, 1, (1, 0), ((0, 1), (0, 1))),
    "axis": (0, 1, -1, None, (0, 1), (1,)),
    "axis1": (1,),
    "axis2": (0,),
    "b": (X,),
    "bias": (True,),
    "casting": ("no", "safe", "unsafe"),
    "constant_values": (2.0, ((1, 2), (3, 4))),
    "copy": (True, False),
    "correction": (1, 1.5),
    "ddof": (1, 0.5),
    "decimals": (1,),
    "default": (7.0, X),
    "descending": (True, False, None),
    "device": ("cpu",),
    "dtype": (np.float32, "f4", np.int64, bool, complex),
    "end_values": (2.0,),
    "fweights": (np.array([2, 1, 3]),),
    "include_initial": (True,),
    "indexing": ("ij",),
    "initial": (True, 1, 9.0, 0),
    "k": (1, -1),
    "keepdims": (True, False),
    "kind": ("stable", "heapsort"),
    "max": (3.0,),
    "mean": (True, 2.0, X.mean()),
    "method": ("lower", "inverted_cdf", "none"),
    "min": (1.0,),
    "mode": ("wrap", "clip", "edge", "mean", "same", "complete", "r", "raw"),
    "offset": (1, -1),
    "optimize": (True, "greedy"),
    "ord": (1, 2, "fro", np.inf, 3),
    "order": ("F", "C", "A", "K"),
    "overwrite_input": (True,),
    "reflect_type": ("odd",),
    "returned": (True,),
    "rowvar": (False,),
    "shape": ((3, 2), 4),
    "sparse": (True,),
    "stable": (True,),
    "start": (1, 2),
    "stat_length": (1,),
    "subok": (True, False),
    "weights": (X, X[0]),
    "where": (X > 1, np.True_, False),
    "y": (X, X[0]),
}
EXAMPLES |= signals.EXAMPLES
VALUES |= signals.VALUES
EXAMPLES |= _examples.EXAMPLES
VALUES |= _examples.VALUES
EXAMPLES |= matrices.EXAMPLES
VALUES |= matrices.VALUES
# What `np.f(..., **kwargs)` takes.
HIDDEN = {
    "clip": ("where", "dtype", "casting", "order", "subok"),
    "einsum": ("dtype", "order", "casting"),
    "pad": ("constant_values", "end_values", "reflect_type", "stat_length"),
}
UFUNC = ("where", "dtype", "casting", "order", "subok")
# `like` picks the library that makes an array, and is the traced array here.
FIXED = {"out", "like", "signature"}
_BY_NAME = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def under_grad(fn: Callable[[Any], Any]) -> Any:
    """The result of a function of traced values."""
    found: list[Any] = []

    def note(x: Any) -> Any:
        found.append(optree.tree_map(co.stop_gradient, fn(x)))
        return np.sum(x)

    co.grad(note)(X)
    return found[0]


# Functions that write an array and return nothing: see test_in_place_functions.py.
WRITERS = {np.copyto, np.fill_diagonal, np.place, np.put, np.put_along_axis, np.putmask}


def functions() -> list[Any]:
    """All functions of NumPy that have an operator, each once."""
    plain = [f for f in FUNCTIONS if not isinstance(f, tuple) and is_registered(f)]
    methods = [f for f in FUNCTIONS if isinstance(f, tuple) and f[1] != "at"]
    return [f for f in plain if f not in WRITERS] + methods


# The values of an empty array, and what NumPy 2.4 gets wrong (see `_REDUCED_WRONGLY`).
WITHOUT_VALUES = {np.empty_like, (np.power, "reduce"), (np.arctan2, "reduce")}


def name_of(function: Any) -> str:
    """``add.reduce`` for that method of a ufunc, ``linalg.trace`` beside ``np.trace``."""
    if isinstance(function, tuple):
        return f"{function[0].__name__}.{function[1]}"
    name = str(function.__name__)
    module = getattr(function, "__module__", None)  # ufuncs have one since NumPy 2.2
    is_twin = module == "numpy.linalg" and hasattr(np, name)
    return f"linalg.{name}" if is_twin else name


def callable_of(function: Any) -> Any:
    """The function that a key of the table stands for."""
    return getattr(*function) if isinstance(function, tuple) else function


@cache
def parameters_of(function: Any) -> list[inspect.Parameter]:
    """The parameters of a function; those of its operator for a C function of NumPy 2.3."""
    try:
        found = inspect.signature(callable_of(function))
    except ValueError:
        found = inspect.signature(FUNCTIONS[function])
    return list(found.parameters.values())


def example(function: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gives arguments without a default, for an array."""
    if isinstance(function, np.ufunc):
        return lambda x: (x, X)[: function.nin]
    if isinstance(function, tuple) and function[1] in ("outer", "reduceat"):
        return lambda x: (x, X if function[1] == "outer" else [0, 1])
    return EXAMPLES.get(name_of(function), lambda x: (x,))


# ---- results written into arrays ----


_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD


def test_out_is_refused() -> None:
    """A function with `out` never runs without it, wherever it is given."""
    with cases() as case:
        for (name, call), way in itertools.product(outs(), WAYS):
            with case(f"{name} under {way}"):
                _check_refused(way, call)


def _check_refused(way: str, call: Callable[[Any], Any]) -> None:
    with pytest.raises(co.ArgumentError, match=r"\(out=\.\.\.\) would write"):
        WAYS[way](call)


def outs() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield calls with `out`, by name and by position."""
    for function in functions():
        names = [p.name for p in parameters_of(function)]
        if "out" not in names or name_of(function) == "eye":
            continue
        yield f"{name_of(function)} by name", with_out(function, None)
        at = names.index("out")
        by_position = parameters_of(function)[at].kind is _EITHER
        # NumPy itself warns about a third argument of these two.
        if by_position and function not in (np.maximum, np.minimum):
            yield f"{name_of(function)} by position", with_out(function, at)


def with_out(function: Any, at: int | None) -> Callable[[Any], Any]:
    """A call of a function with an array as `out`, at a place if one is given."""
    # Found here: vmap looks for generators in all that its function can reach.
    args_of, called = example(function), callable_of(function)
    defaults = [p.default for p in parameters_of(function)]

    def call(x: Any) -> Any:
        args = args_of(x)
        if at is None:
            out = np.zeros((2, 3))
            has_two = isinstance(function, np.ufunc) and function.nout == 2
            return called(*args, out=(out, out) if has_two else out)
        return called(*args[:at], *defaults[len(args) : at], np.zeros((2, 3)))

    return call


OUT = np.zeros(3)
# Methods with `out`, by position.
METHODS: dict[str, Callable[[Any], Any]] = {
    "all": lambda x: x.all(0, OUT),
    "any": lambda x: x.any(0, OUT),
    "argmax": lambda x: x.argmax(0, OUT),
    "argmin": lambda x: x.argmin(0, OUT),
    "clip": lambda x: x.clip(0, 1, OUT),
    "compress": lambda x: x.compress([True, False], 0, OUT),
    "cumprod": lambda x: x.cumprod(0, None, OUT),
    "cumsum": lambda x: x.cumsum(0, None, OUT),
    "dot": lambda x: x.dot(X.T, OUT),
    "max": lambda x: x.max(0, OUT),
    "mean": lambda x: x.mean(0, None, OUT),
    "min": lambda x: x.min(0, OUT),
    "prod": lambda x: x.prod(0, None, OUT),
    "round": lambda x: x.round(1, OUT),
    "std": lambda x: x.std(0, None, OUT),
    "sum": lambda x: x.sum(0, None, OUT),
    "take": lambda x: x.take([1], 0, OUT),
    "trace": lambda x: x.trace(0, 0, 1, None, OUT),
    "var": lambda x: x.var(0, None, OUT),
}


def test_out_of_methods_is_refused() -> None:
    """So are methods."""
    with cases() as case:
        for name, way in itertools.product(METHODS, WAYS):
            with case(f"{name} under {way}"):
                _check_refused(way, METHODS[name])


def test_all_methods_with_out_are_in_the_table() -> None:
    """The table above has every method of tracers that NumPy gives an `out`."""
    known = {
        name
        for name in vars(ArrayMethods)
        if not name.startswith("_")
        and " out " in (getattr(np.ndarray, name, None).__doc__ or "").replace("=", " ")
    }
    assert known - {"choose"} <= set(METHODS)  # its array is of integers


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_out_of_none_is_no_out(way: Any) -> None:
    """None at the place of `out` is NumPy's default."""
    expected = np.shape(X.clip(1.0, 2.0).sum(0))
    assert way(lambda x: x.clip(1.0, 2.0, None).sum(0, None, None)).shape == expected


# ---- all other arguments ----


def arguments(function: Any) -> Iterator[inspect.Parameter]:
    """Yield the arguments of a function that have a default."""
    name = name_of(function)
    hidden = UFUNC if isinstance(function, np.ufunc) else HIDDEN.get(name, ())
    for p in parameters_of(function):
        is_fixed = p.name in (*FIXED, *hidden) or p.kind not in _BY_NAME
        if p.default is not p.empty and not is_fixed:
            yield p
    for keyword in hidden:
        yield inspect.Parameter(keyword, inspect.Parameter.KEYWORD_ONLY)


@pytest.mark.parametrize(
    "function", [f for f in functions() if any(arguments(f))], ids=name_of
)
@np.errstate(invalid="ignore")  # arccos(2)
def test_arguments_are_used_or_refused(function: Any) -> None:
    """With each argument NumPy's result comes out, or an error that names it."""
    with cases() as case:
        for p in arguments(function):
            for value in VALUES[p.name]:
                call = with_argument(function, p, value)
                expected = outcome(lambda call: call(X), call, Exception)
                for way in WAYS:
                    with case(f"{p.name}={value!r} under {way}"):
                        _check_argument(function, p.name, call, way, expected)


def _check_argument(
    function: Any, name: str, call: Callable[[Any], Any], way: str, expected: Any
) -> None:
    run = WAYS[way]
    if isinstance(expected, RuntimeWarning) and way == "fake":
        return  # fake arrays have no values to warn of
    if isinstance(expected, Exception):  # NumPy warns, or refuses the value
        is_warning = isinstance(expected, RuntimeWarning)
        with pytest.raises(RuntimeWarning if is_warning else Exception):
            run(call)
        return
    if function in _examples.UNEVEN and way == "fake":
        _check_uneven(run, call, expected)
        return
    if function in _examples.UNEVEN and way == "vmap":
        with pytest.raises(co.DataDependentError):
            run(call)
        return
    found = outcome(run, call, TypeError)
    if isinstance(found, Exception):
        assert name in str(found)
    else:
        # Some functions of matrices are sums in another order.
        is_solved = name_of(function) in (*matrices.ROUNDED, "polyfit")
        rounding = 1e-13 if is_solved else 0.0
        values = function not in WITHOUT_VALUES
        assert_same(found, expected, rounding, values=values)


def with_argument(
    function: Any, p: inspect.Parameter, value: Any
) -> Callable[[Any], Any]:
    """A call with one more argument."""
    args_of, called, name = example(function), callable_of(function), p.name
    places = [q.name for q in parameters_of(function)]

    def call(x: Any) -> Any:
        args = args_of(x)
        if name in places and places.index(name) < len(args):
            at = places.index(name)
            args = (*args[:at], value, *args[at + 1 :])
            return called(*args)
        like = {"like": x} if "like" in places else {}
        return called(*args, **{name: value}, **like)

    return call


def _check_uneven(way: Any, call: Callable[[Any], Any], expected: Any) -> None:
    """Fake results of a length that depends on data, or an error that says so."""
    try:
        found = optree.tree_leaves(way(call))
    except co.DataDependentError:
        return
    real = [np.asarray(x) for x in optree.tree_leaves(expected)]
    assert [(len(x.shape), x.dtype) for x in found] == [(x.ndim, x.dtype) for x in real]


def outcome(way: Any, call: Callable[[Any], Any], refused: type[Exception]) -> Any:
    """Return the result of a call, or the error that refuses it."""
    try:
        return way(call)
    except refused as error:
        return error


def assert_same(found: Any, expected: Any, rounding: float, *, values: bool) -> None:
    """Results agree in shape, dtype and, unless fake, values."""
    pairs = zip(optree.tree_leaves(found), optree.tree_leaves(expected), strict=True)
    for mine, numpys in pairs:
        if not hasattr(mine, "shape"):
            assert mine == numpys
            continue
        known = np.asarray(numpys)
        assert (mine.shape, mine.dtype) == (known.shape, known.dtype)
        if values and isinstance(mine, np.ndarray | np.generic):
            np.testing.assert_allclose(mine, known, rounding, rounding)
