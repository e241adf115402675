"""NumPy's own tests, with the calls of its functions routed through transforms.

Each test of NumPy runs as it is. Where it calls a function that has operators with arrays
of numbers, the same call is made again through a transform, and compared with NumPy.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from customop.arrays.numpy_functions import FUNCTIONS, load_all

load_all()

# Values that depend on data in their dtype or shape: a graph has complex numbers where
# NumPy has real ones, residuals of a low rank, and one shape for all rows.
LEFT_OUT = frozenset(
    (
        *("eig", "eigvals", "poly", "roots", "lstsq", "polyfit"),
        *("may_share_memory", "shares_memory", "result_type", "can_cast", "empty_like"),
    )
)
# Tests that take long, or much memory.
SKIPPED = (
    *("large", "memory", "thread", "leak", "refcount", "overflow", "big", "slow"),
    *(
        "Fraction",
        "fraction",
        "all_any",
        "blas64",
        "object",
        "test_full",
        "cases",
        "property",
    ),
)
MODULES = (
    *("lib.tests.test_function_base", "lib.tests.test_twodim_base"),
    *("lib.tests.test_shape_base", "lib.tests.test_arraysetops"),
    *("lib.tests.test_nanfunctions", "lib.tests.test_polynomial"),
    *("lib.tests.test_arraypad", "lib.tests.test_stride_tricks"),
    *("lib.tests.test_histograms", "lib.tests.test_index_tricks"),
    *("_core.tests.test_numeric", "_core.tests.test_shape_base"),
    *("_core.tests.test_einsum", "_core.tests.test_function_base"),
    *("linalg.tests.test_linalg", "fft.tests.test_helper", "fft.tests.test_pocketfft"),
)

# ---- ways: each gives what NumPy gives for the same arrays ----

Program = Callable[..., Any]
Arrays = Sequence[np.ndarray]


def _of_rows(program: Program, arrays: Arrays) -> Any:
    """Take the second row of a batch of two."""
    found = co.vmap(program)(*(np.stack([a, a]) for a in arrays))
    return optree.tree_map(lambda batch: batch[1], found)


def _primal(program: Program, arrays: Arrays) -> Any:
    return co.jvp(program, tuple(arrays), tuple(map(np.zeros_like, arrays)))[0]


def _value(program: Program, arrays: Arrays) -> Any:
    return co.vjp(program, *arrays)[0]


WAYS: dict[str, Callable[[Program, Arrays], Any]] = {
    "make_fx": lambda program, arrays: co.make_fx(program)(*arrays)(*arrays),
    "symbolic": lambda program, arrays: co.make_fx(program, "symbolic")(*arrays)(
        *arrays
    ),
    "compile": lambda program, arrays: co.compile(program)(*arrays),
    "vmap": _of_rows,
    "jvp": _primal,
    "vjp": _value,
}


class Router:
    """Makes calls again through a transform, and keeps what differs from NumPy.

    Attributes
    ----------
    ways : sequence of str
        Of which each call takes one at random.
    most : int
        Calls of one function, chosen at random among those of NumPy's tests.
    outcomes : Counter
    faults : list of str
    """

    def __init__(self, ways: Sequence[str], seed: int, most: int) -> None:
        self.ways = ways
        self.most = most
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self._draw = random.Random(seed)
        self._counts: Counter[str] = Counter()
        self._is_inside = False

    def routed(self, fn: Any) -> Any:
        """Return a NumPy function whose calls are compared."""
        name = fn.__name__

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._is_inside or "out" in kwargs or not self._is_chosen(name):
                return fn(*args, **kwargs)
            given: Any = (args, kwargs)
            before = optree.tree_map(_copied, given)
            expected = fn(*args, **kwargs)
            self._is_inside = True
            try:
                self._compare(fn, before, expected)
            finally:
                self._is_inside = False
            return expected

        return call

    def _is_chosen(self, name: str) -> bool:
        return self._counts[name] < self.most and self._draw.random() < _SHARE

    def _compare(self, fn: Any, given: Any, expected: Any) -> None:
        leaves, structure = optree.tree_flatten(given)
        way = self._draw.choice(self.ways)
        places = [i for i, leaf in enumerate(leaves) if _is_routed(leaf, way)]
        if not places or not all(_is_plain(leaf) for leaf in leaves):
            return
        self._counts[fn.__name__] += 1

        def program(*arrays: Any) -> Any:
            values = [*leaves]
            for place, array in zip(places, arrays, strict=True):
                values[place] = array
            args, kwargs = optree.tree_unflatten(structure, values)
            return fn(*args, **kwargs)

        arrays = [leaves[i] for i in places]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                found = WAYS[way](program, arrays)
            except co.CustomOpError as error:
                self.outcomes[type(error).__name__] += 1
                return
            except Exception as error:  # noqa: BLE001  # a fault, whatever it is
                what = f"{type(error).__name__}: {error}"
            else:
                what = _difference(found, expected, is_exact=way in _EXACT)
        self.outcomes["wrong" if what else "right"] += 1
        if what:
            shown = [f"{a.dtype}{list(a.shape)}" for a in arrays]
            kept = [str(v)[:40] for i, v in enumerate(leaves) if i not in places]
            self.faults.append(f"{fn.__name__}({shown}, {kept}), {way}: {what}")


# Of the calls that NumPy's tests make.
_SHARE = 0.5
_EXACT = ("make_fx", "symbolic", "compile")


def _copied(leaf: Any) -> Any:
    return leaf.copy("K") if type(leaf) is np.ndarray else leaf


def _is_plain(leaf: Any) -> bool:
    """Return whether a leaf is of a class that graphs take."""
    if isinstance(leaf, np.ndarray):  # long doubles in parameters become floats
        is_known = leaf.dtype.kind in "biufc" and leaf.dtype.char not in "gG"
        return type(leaf) is np.ndarray and is_known
    return isinstance(leaf, np.generic | bool | int | float | complex | str | type) or (
        leaf is None or isinstance(leaf, np.dtype) or callable(leaf)
    )


def _is_routed(leaf: Any, way: str) -> bool:
    kinds = "fc" if way in ("jvp", "vjp") else "iufc"
    if type(leaf) is not np.ndarray or leaf.dtype.char in "gG" or not leaf.size:
        return False
    is_small = leaf.size < 1000 and leaf.dtype.isnative
    return is_small and leaf.dtype.kind in kinds


def _difference(found: Any, expected: Any, *, is_exact: bool) -> str:
    """Return what differs; empty if nothing does."""
    a, b = _leaves(found), _leaves(expected)
    if len(a) != len(b):
        return f"{len(a)} results for {len(b)}"
    for x, wanted in zip(a, b, strict=True):
        if not isinstance(wanted, np.ndarray | np.generic):
            continue
        y: Any = wanted
        if np.shape(x) != y.shape:
            return f"shape {np.shape(x)} for {y.shape}"
        if np.asarray(x).dtype != y.dtype:
            return f"dtype {np.asarray(x).dtype} for {y.dtype}"
        # Weighted quantiles are scalars where there is a nan, else arrays without axes.
        is_nan = y.dtype.kind in "fc" and not y.ndim and bool(np.isnan(y))
        if is_exact and type(x) is not type(y) and not is_nan:
            return f"class {type(x).__name__} for {type(y).__name__}"
        if y.dtype.kind not in "fc":
            is_near = np.array_equal(x, y)
        else:
            bound = 64 * np.finfo(y.dtype).eps
            size = np.max(np.abs(y[np.isfinite(y)]), initial=0.0) if y.ndim else 0.0
            is_near = np.allclose(x, y, bound, float(bound * size), equal_nan=True)
        if not is_near:
            return f"{str(x)[:80]} for {str(y)[:80]}"
    return ""


def _leaves(result: Any) -> list[Any]:
    return optree.tree_leaves(result, none_is_leaf=True)


# ---- NumPy's tests, with other functions in their names ----


class Namespace:
    """NumPy, or a module of it, with routed functions."""

    def __init__(self, module: ModuleType, router: Router) -> None:
        self._module, self._router = module, router

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if found is np.linalg or found is np.fft:
            return Namespace(found, self._router)
        return _routed(found, self._router)


def _routed(value: Any, router: Router) -> Any:
    if isinstance(value, np.ufunc | type) or not callable(value):
        return value
    is_known = value in FUNCTIONS and value.__name__ not in LEFT_OUT
    return router.routed(value) if is_known else value


def _tests_of(module: ModuleType) -> Iterator[Callable[[], Any]]:
    """Yield the tests of a module, with the parameters that they are marked with."""
    for name, value in [*vars(module).items()]:
        if name.startswith("test") and isinstance(value, FunctionType):
            yield from _runs(name, value, lambda: ())
        elif name.startswith("Test") and isinstance(value, type):
            for key in dir(value):
                fn = getattr(value, key)
                if key.startswith("test") and isinstance(fn, FunctionType):
                    yield from _runs(key, fn, lambda cls=value: (_instance(cls),))


def _instance(cls: type) -> Any:
    made = cls()
    if hasattr(made, "setup_method"):
        made.setup_method()
    return made


def _runs(
    name: str, fn: FunctionType, before: Callable[[], tuple[Any, ...]]
) -> Iterator[Callable[[], Any]]:
    marks = [*getattr(fn, "pytestmark", ())]
    if any(word in name for word in SKIPPED) or any(m.name == "slow" for m in marks):
        return
    choices = [_choices(m) for m in marks if m.name == "parametrize"]
    for chosen in itertools.islice(itertools.product(*choices), 12):
        named = {key: value for one in chosen for key, value in one.items()}
        yield lambda named=named: fn(*before(), **named)


def _choices(mark: Any) -> list[dict[str, Any]]:
    given = dict(zip(("argnames", "argvalues"), mark.args, strict=False)) | mark.kwargs
    names = given["argnames"]
    keys = [n.strip() for n in names.split(",")] if isinstance(names, str) else names
    found = []
    for value in given["argvalues"]:
        row = value.values if hasattr(value, "marks") else value
        is_one = len(keys) == 1 and not hasattr(value, "marks")
        found.append(dict(zip(keys, [row] if is_one else row, strict=True)))
    return found


def run(
    ways: Sequence[str], seed: int, most: int, modules: Sequence[str] = MODULES
) -> Router:
    """Run NumPy's tests with a router, whatever comes of them."""
    router = Router(ways, seed, most)
    for name in modules:
        module = importlib.import_module(f"numpy.{name}")
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for key, value in [*vars(module).items()]:
                routed = (
                    Namespace(value, router)
                    if isinstance(value, ModuleType)
                    and value in (np, np.linalg, np.fft)
                    else _routed(value, router)
                )
                if routed is not value:
                    patch.setattr(module, key, routed)
            for test in _tests_of(module):
                # Some need what pytest gives, and some look at NumPy's own objects.
                with contextlib.suppress(Exception, pytest.skip.Exception):
                    test()
    return router


# Marks of NumPy's tests, which pytest must know.
_MARKS = "slow thread_unsafe parallel_threads_limit leaks_references valgrind_error"


@pytest.mark.exhaustive
def test_calls_of_numpys_tests_are_the_same_through_transforms(
    pytestconfig: pytest.Config,
) -> None:
    for mark in _MARKS.split():
        pytestconfig.addinivalue_line("markers", f"{mark}: of NumPy's tests")
    router = run([*WAYS], seed=0, most=6)
    assert not router.faults, "\n".join(router.faults[:20])
    assert router.outcomes["right"] > 300
