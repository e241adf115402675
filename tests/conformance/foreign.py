"""The samples on arrays of another library: NumPy's values, or an error that is listed.

A file ``refused_NAME.txt`` lists the samples that end in an error, each with the ways in
which it does. All others must give NumPy's values, and those of the list must not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import optree
import pytest

import customop as co
from tests.cases import cases
from tests.conformance import checks
from tests.conformance.samples import Sample

SAMPLES = [s for s in checks.all_samples() if checks.array_positions(s)]
BATCHED = [s for s in SAMPLES if s.vmap]
DIFFERENTIABLE = [s for s in SAMPLES if s.diff]

# Ways in which the values of a sample are compared with NumPy's.
WAYS = ("kernel", "vjp", "jvp", "vmap")


def ways_of(sample: Sample) -> tuple[str, ...]:
    """Return the ways in which a sample with arrays can be compared."""
    derivatives = ("vjp", "jvp") if sample.diff else ()
    return ("kernel", *derivatives, *["vmap"] * sample.vmap)


class Library:
    """Arrays of another library.

    Parameters
    ----------
    name : str
        Of the list of what is refused.
    cls : type
        Their class.
    enclose : callable
        Makes one of an array of NumPy.
    to_numpy : callable
        The array of NumPy with the elements of one.
    watch : callable, optional
        Makes, for a sample, a context in which it runs.
    all_to_numpy : callable, optional
        As `to_numpy`, for a list in which other values may be, if that is faster.
    """

    def __init__(
        self,
        name: str,
        cls: type,
        enclose: Callable[[Any], Any],
        to_numpy: Callable[[Any], Any],
        watch: Callable[[Sample], AbstractContextManager[Any]] = nullcontext,
        all_to_numpy: Callable[[Sequence[Any]], Sequence[Any]] | None = None,
    ) -> None:
        self.cls = cls
        self.enclose = enclose
        self.to_numpy = to_numpy
        self.watch = watch
        self.all_to_numpy = all_to_numpy or (lambda xs: [*map(self.numbers, xs)])
        self.refused = dict(listed(name))

    def of(self, value: Any) -> Any:
        """An array of NumPy as one of the library; other values as they are."""
        return self.enclose(value) if isinstance(value, np.ndarray) else value

    def numbers(self, value: Any) -> Any:
        """An array of either library as one of NumPy."""
        return np.asarray(
            self.to_numpy(value) if isinstance(value, self.cls) else value
        )

    def check(self, sample: Sample, ways: Sequence[str] = WAYS) -> None:
        """Raise unless a sample gives NumPy's values in each way, or is listed for it."""
        with cases() as case:
            for way in ways:
                if way in ways_of(sample):
                    with case(way):
                        self._check(way, sample)

    def _check(self, way: str, sample: Sample) -> None:
        run, expected = getattr(self, f"_{way}")(sample)
        is_listed = way in self.refused.get(sample.name, ())
        try:
            with self.watch(sample):
                out = checks.leaves(run())
            found = [np.asarray(x) for x in self.all_to_numpy(out)]
        except Exception as error:
            if is_listed:
                return
            if isinstance(error, ModuleNotFoundError) and error.name == "scipy":
                pytest.skip("dask needs SciPy for this function")
            raise
        assert not is_listed, (
            f"{sample.name} is no longer refused: take it off the list"
        )
        # A function may be of shapes alone; a derivative is an array of the library.
        assert way == "kernel" or all(isinstance(x, self.cls) for x in out)
        for x, w in zip(found, checks.leaves(expected), strict=True):
            np.testing.assert_allclose(x, w, rtol=1e-10, atol=1e-10)

    def _kernel(self, sample: Sample) -> tuple[Callable[[], Any], Any]:
        def run() -> Any:
            with checks.Identity() as identity:
                given = [
                    identity.wrap(self.of(a)) if isinstance(a, np.ndarray) else a
                    for a in sample.args
                ]
                return optree.tree_map(identity.lower, checks.call(sample, *given))

        return run, _numpys("kernel", sample, lambda: checks.call(sample, *sample.args))

    def _vjp(self, sample: Sample) -> tuple[Callable[[], Any], Any]:
        def numpys() -> Any:
            fn, primals = checks.partial_of(sample), checks.primals_of(sample)
            out, pullback = co.vjp(fn, *primals)
            return out, pullback(checks.random_like(out, 1))

        out, expected = _numpys("vjp", sample, numpys)
        cotangent = checks.random_like(out, 1)

        def run() -> Any:
            fn, primals = self._enclosed(sample)
            return co.vjp(fn, *primals)[1](optree.tree_map(self.of, cotangent))

        return run, expected

    def _jvp(self, sample: Sample) -> tuple[Callable[[], Any], Any]:
        primals = tuple(checks.primals_of(sample))
        tangents = checks.random_like(primals, 1)

        def run() -> Any:
            fn, given = self._enclosed(sample)
            return co.jvp(fn, tuple(given), optree.tree_map(self.of, tangents))

        def numpys() -> Any:
            return co.jvp(checks.partial_of(sample), primals, tangents)

        return run, _numpys("jvp", sample, numpys)

    def _vmap(self, sample: Sample) -> tuple[Callable[[], Any], Any]:
        args, dims = checks.batched_args(sample, checks.array_positions(sample), 2, 0)
        batched = co.vmap(lambda *a: checks.call(sample, *a), in_dims=dims)
        expected = _numpys("vmap", sample, lambda: batched(*args))
        return lambda: batched(*map(self.of, args)), expected

    def _enclosed(self, sample: Sample) -> tuple[Any, list[Any]]:
        """A sample as a function of arrays of the library, and these."""
        args = tuple(map(self.of, sample.args))
        other = Sample(sample.name, sample.fn, args, sample.kwargs, sample.diff)
        return checks.partial_of(other), checks.primals_of(other)


def _numpys(way: str, sample: Sample, compute: Callable[[], Any]) -> Any:
    """Return the result on arrays of NumPy, which all libraries are compared with."""
    key = (way, sample.name)
    if key not in _RESULTS:
        _RESULTS[key] = compute()
    return _RESULTS[key]


_RESULTS: dict[tuple[str, str], Any] = {}


def share(name: str, way: str) -> int:
    """How many of a hundred samples of NumPy's functions give values in a way."""
    refused = dict(listed(name))
    samples = DIFFERENTIABLE if way == "vjp" else SAMPLES
    numpys = [s.name for s in samples if not s.name.startswith(_SCIPY)]
    given = [name for name in numpys if way not in refused.get(name, ())]
    return round(100 * len(given) / len(numpys))


def errors_table(name: str, arrays: str) -> str:
    """How many samples end in an error on arrays of a library, in words of the guide."""
    refused = [way for _, ways in listed(name) for way in ways]
    rows = [[f"samples on {arrays}", "that end in an error"], ["---"] * 2]
    rows += [[way, str(refused.count(way))] for way in ("kernel", "vjp", "jvp", "vmap")]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


# How names of samples of SciPy's functions begin.
_SCIPY = ("linalg ", "special ", "multigammaln", "scipyfft ", "signal ", "stats ")


def listed(name: str) -> list[tuple[str, set[str]]]:
    """The samples that are refused, each with the ways in which it is."""
    path = Path(__file__).parent / f"refused_{name}.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [line.split(": ", 1) for line in lines if not line.startswith("#")]
    return [(sample, set(ways.split())) for ways, sample in pairs]
