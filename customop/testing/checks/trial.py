"""What all checks share: running an operator on a sample, and comparing results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.convert import to_host
from customop.arrays.dtypes import is_inexact
from customop.arrays.kinds import has_device, is_array, kind_of
from customop.arrays.nested import children, flat, map_nested, steps
from customop.core.proof import Proof, written_of
from customop.core.samples import Sample
from customop.errors import OpCheckError
from customop.schema.tags import Tag
from customop.testing.close import assert_close
from customop.testing.inputs.memory import fresh

__all__ = [
    "Fault",
    "Run",
    "Trial",
    "floats_of",
    "host",
    "is_floats",
    "kind_among",
    "named_floats",
    "named_leaves",
    "outputs_of",
    "placer",
    "prove",
    "same_bits",
    "split_call",
]


class Fault(Exception):
    """What a check has found.

    Parameters
    ----------
    what : str
        The fault, with the values seen.
    *where : str
        Lines that place it.
    do : str
        The remedy.
    parameter : str
        Name of the parameter concerned, or nothing.
    """

    def __init__(
        self, what: str, *where: str, do: str = "", parameter: str = ""
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.do = do
        self.parameter = parameter


class Run(NamedTuple):
    """What one call has done: results and written arguments, by their names."""

    out: list[Any]
    effects: list[tuple[str, Any]]


# Seed of NumPy's global state before each run of an operator that draws from it.
_SEED = 20


class Trial:
    """One run of opcheck on an operator.

    Attributes
    ----------
    op : Operator
    samples : list of Sample
        What the checks run on, smallest first.
    rtol, atol : float or None
        How close results must be; by their dtypes where None.
    known : dict
        What several checks work out for a sample: what and identity -> sample and it.
    notes : list of str
        What the check that is at work leaves open, for the table.
    """

    __slots__ = ("atol", "known", "notes", "op", "rtol", "samples")

    def __init__(
        self,
        op: Any,
        samples: Sequence[Sample],
        rtol: float | None = None,
        atol: float | None = None,
    ) -> None:
        self.op: Any = op
        self.samples: list[Sample] = list(samples)
        self.rtol: float | None = rtol
        self.atol: float | None = atol
        self.known: dict[tuple[str, int], tuple[Sample, Any]] = {}
        self.notes: list[str] = []

    # ---- running ----

    def bound(self, sample: Sample) -> list[Any]:
        """The values of all parameters in a call with a sample, not to be written."""
        return list(self.op.bind(*sample.args, **sample.kwargs))

    def values(self, sample: Sample) -> list[Any]:
        """The values of all parameters, for one call: copies of the same layout."""
        return self.bound(fresh(sample))

    def call(
        self, values: Sequence[Any], kernel: Callable[..., Any] | None = None
    ) -> Run:
        """Run a kernel bare, the one that a call would take unless told."""
        op = self.op
        if op.sees_seed:
            np.random.seed(_SEED)  # noqa: NPY002  # what operators may use
        chosen, positional, keywords, proof = op.select(values)
        given = [*positional, *keywords.values()]
        if isinstance(proof, Proof):
            given = list(proof.args)
        out = split_call(op, chosen if kernel is None else kernel, given)
        return self.run_of(out, given)

    def run_of(self, out: Any, values: Sequence[Any]) -> Run:
        """The results of a call, and what it has written."""
        outs = outputs_of(self.op, out)
        names = [
            f"output {i}" if len(outs) > 1 else "the output" for i in range(len(outs))
        ]
        effects = [
            pair
            for name, value in zip(names, outs, strict=True)
            for pair in named_leaves(name, value)
        ]
        if self.op.schema.written:
            written = written_of(self.op.schema, values)
            pairs = zip(self.op.schema.written, written, strict=True)
            effects += [
                pair
                for name, value in pairs
                for pair in named_leaves(f"argument '{name}'", value)
            ]
        return Run(outs, effects)

    def expected(self, sample: Sample) -> Run:
        """What the operator does with a sample; worked out once."""
        return self.once("run", sample, lambda: self.call(self.values(sample)))  # type: ignore[no-any-return]

    def once(self, what: str, sample: Sample, work: Callable[[], Any]) -> Any:
        """What `work` gives for a sample, worked out by the first check that asks."""
        key = (what, id(sample))
        if key not in self.known:
            # The sample is kept, so that no other gets its identity.
            self.known[key] = (sample, work())
        return self.known[key][1]

    # ---- comparing ----

    def compare(
        self,
        found: Run,
        expected: Run,
        what: str,
        *,
        do: str,
        dtypes: bool = True,
        exact: bool = False,
    ) -> None:
        """Raise unless two runs did the same.

        `what` says in which two ways the operator ran, as in ``"between two calls"``.
        """
        pairs = (found.effects, expected.effects)
        if len(pairs[0]) != len(pairs[1]):
            counts = f"{len(pairs[0])} and {len(pairs[1])}"
            raise Fault(f"gives {counts} results {what}", do=do)
        for (name, a), (_, b) in zip(*pairs, strict=True):
            self.compare_leaf(name, a, b, what, do=do, dtypes=dtypes, exact=exact)

    def compare_leaf(
        self,
        name: str,
        a: Any,
        b: Any,
        what: str,
        *,
        do: str,
        dtypes: bool = True,
        exact: bool = False,
    ) -> None:
        """Raise unless two results are the same."""
        if same_bits(a, b):
            return
        if not is_array(a) or not is_array(b):
            if is_number(a) and is_number(b) and not exact:
                a, b, dtypes = np.asarray(a), np.asarray(b), False
            elif a is b or a == b:
                return
            else:
                raise Fault(f"{name} differs {what}: {a!r} and {b!r}", do=do)
        is_exact = exact and Tag.nondeterministic_bitwise not in self.op.tags
        try:
            assert_close(
                a,
                b,
                rtol=0.0 if is_exact else self.rtol,
                atol=0.0 if is_exact else self.atol,
                equal_nan=True,
                check_dtype=dtypes,
                check_device=False,
            )
        except OpCheckError as error:
            text = error.what.removeprefix("assert_close: ")
            raise Fault(f"{name} differs {what}: {text}", *error.where, do=do) from None


# ---- calling ----


def split_call(op: Any, kernel: Callable[..., Any], values: Sequence[Any]) -> Any:
    """Call a kernel with the values of all parameters."""
    positional, keywords = op.schema.split(values)
    return kernel(*positional, **keywords)


def kind_among(values: Sequence[Any]) -> str:
    """Kind of the arrays of a call."""
    kinds = (kind_of[type(leaf)] for leaf in flat(list(values)))
    return next((k.name for k in kinds if k is not None and k.has_device), "cpu")


def outputs_of(op: Any, out: Any) -> list[Any]:
    """Results one by one."""
    if not op.schema.returns:
        return []
    return list(out) if op.schema.is_tuple and isinstance(out, tuple) else [out]


def prove(
    op: Any, values: Sequence[Any], fake: Callable[..., Any] | None = None
) -> tuple[Proof, Any]:
    """Run the kernel of a call under proof; the proof, still to be read, and the result."""
    kernel, positional, keywords, first = op.select(values)
    given = [*positional, *keywords.values()]
    if isinstance(first, Proof):  # its views are read-only, which hides who writes
        given = list(first.args)
    proof = Proof(op, kernel, kind_among(given), given, fake, lambda _: None)
    try:
        return proof, split_call(op, kernel, proof.values)
    except Exception as error:
        if not proof.concerns(error):
            raise
        again = proof.copies(error)
    return proof, split_call(op, kernel, again)


# ---- values ----


def named_leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a value, each with its place: ``output 0[1]``."""
    found = children(value)
    if found is None:
        yield name, value
        return
    for step, item in zip(steps(value), found, strict=True):
        yield from named_leaves(f"{name}[{step!r}]", item)


def is_number(value: Any) -> bool:
    """Whether a value is a number of Python's or NumPy's."""
    return isinstance(value, int | float | complex | np.number)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two results are equal to the bit, nan included."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, np.ndarray | np.generic):
        return False
    if a.shape != b.shape or a.dtype != b.dtype or a.dtype.hasobject:
        return False
    return bool(a.tobytes() == b.tobytes())


def floats_of(values: Sequence[Any]) -> list[Any]:
    """The arrays of floats or complex numbers among the arguments, nested or not."""
    return [leaf for leaf in flat(list(values)) if is_floats(leaf)]


def named_floats(op: Any, values: Sequence[Any]) -> list[tuple[str, Any]]:
    """As `floats_of`, each with its place: ``arrays[0]``."""
    return [
        (name, leaf)
        for p, value in zip(op.schema.parameters, values, strict=True)
        for name, leaf in named_leaves(p.name, value)
        if is_floats(leaf)
    ]


def is_floats(leaf: Any) -> bool:
    """Whether a leaf is an array that has derivatives."""
    return has_device(leaf) and is_inexact(leaf.dtype)


def placer(
    values: Sequence[Any], is_wanted: Callable[[Any], bool]
) -> Callable[[Sequence[Any]], list[Any]]:
    """A function that gives the arguments with others in the places of some leaves."""
    if any(children(value) is not None for value in values):
        return lambda arrays: _placed(values, is_wanted, iter(arrays))
    slots = [i for i, value in enumerate(values) if is_wanted(value)]

    def put(arrays: Sequence[Any]) -> list[Any]:
        given = list(values)
        for slot, array in zip(slots, arrays, strict=True):
            given[slot] = array
        return given

    return put


def _placed(
    values: Sequence[Any], is_wanted: Callable[[Any], bool], left: Iterator[Any]
) -> list[Any]:
    return [
        map_nested(value, lambda leaf: next(left) if is_wanted(leaf) else leaf)
        for value in values
    ]


def host(value: Any) -> Any:
    """An array of any kind as NumPy's; all else as it is."""
    return to_host(value) if is_array(value) else value
