"""Random NumPy programs as text, run eagerly and compiled, and compared to the last bit.

`Program(seed)` has the source of a function, and makes new arguments for each run: numbers,
NumPy scalars and arrays of many dtypes, shapes and layouts, some of which share memory.
`observe` runs a function and notes all that a caller can see: classes, dtypes, shapes,
strides, bits, shared memory, what was written to the arguments, warnings and errors.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import customop as co

FLOATS = ("f8", "f8", "f8", "f4", "c16", "f2")
INTS = ("i8", "i4", "i1", "u1", "?")
SHAPES = ((4, 3), (4, 3), (3,), (4, 1), (1, 3), (), (1,), (0, 3))
LAYOUTS = ("c", "c", "c", "f", "step", "flip", "inner", "spread")

UNARY = (
    *("-{a}", "np.sin({a})", "np.exp({a})", "np.sqrt({a})", "np.abs({a})", "{a} ** 2"),
    *("np.tanh({a})", "np.log({a})", "np.square({a})", "np.floor({a})", "np.sign({a})"),
    *("np.isfinite({a})", "1.5 * {a}", "{a} + 1", "{a} / 3", "2 - {a}", "{a} ** 0.5"),
    *("np.reciprocal({a})", "{a} % 2", "{a} * np.float32(3)", "~({a} > 0)", "{a} // 2"),
    *("np.real({a})", "np.conj({a})", "np.exp2({a})", "np.expm1({a})", "1 / {a}"),
)
BINARY = (
    *("{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "{a} * {b} + {a}"),
    *("np.maximum({a}, {b})", "{a} > {b}", "{a} == {b}", "{a} // {b}", "{a} ** {b}"),
    *("np.where({a} > 0, {a}, {b})", "np.arctan2({a}, {b})", "np.hypot({a}, {b})"),
    *("np.minimum({a}, {b})", "{a} % {b}", "np.logaddexp({a}, {b})", "{a} & {b}"),
    *("np.logical_and({a}, {b})", "np.fmod({a}, {b})", "np.copysign({a}, {b})"),
)
REDUCTIONS = (
    *("np.sum({a})", "{a}.sum(axis=0)", "{a}.mean()", "np.max({a}, axis=-1)"),
    *("{a}.sum(axis=-1, keepdims=True)", "np.prod({a})", "np.cumsum({a}, axis=0)"),
    *("np.std({a})", "np.any({a} > 0)", "np.argmax({a}, axis=0)", "{a}.min()"),
    *("np.sort({a}, axis=-1)", "{a} @ {a}.T", "np.trace({a})"),
)
VIEWS = (
    *("{a}.T", "{a}.reshape(-1)", "{a}[None]", "{a}[..., ::-1]", "{a}[1:]", "{a}[0]"),
    *("np.ravel({a})", "{a}[..., :1]", "np.squeeze({a})", "np.swapaxes({a}, 0, -1)"),
    *("{a}[:, 0]", "np.broadcast_to({a}, (2, *{a}.shape))", "np.atleast_2d({a})"),
    *("{a}.reshape({a}.shape[::-1])", "{a}[...]", "{a}.real"),
)
COPIES = (
    *(
        "{a}.copy()",
        "{a}.astype('f8')",
        "{a}.astype('f4')",
        "np.concatenate([{a}, {a}])",
    ),
    *("np.stack([{a}, {a}])", "np.zeros_like({a})", "np.ones_like({a}, dtype='f8')"),
    *("np.clip({a}, -1, 1)", "np.roll({a}, 1)", "{a}[[0, -1]]", "np.full_like({a}, 2)"),
    *("np.repeat({a}, 2)", "np.tile({a}, 2)", "np.diff({a})"),
    *("np.ascontiguousarray({a})", "np.flatnonzero({a} > 0)", "{a}.astype('i4')"),
)
# The third is drawn less often, since NumPy refuses it for most pairs of dtypes.
WRITES = (
    *("{a} += {b}", "{a} *= 2", "{a}[...] = {b}", "{a}[0] = {b}", "{a}[..., 0] -= 1"),
    *("{a}[1:] = {a}[:-1]", "np.add({a}, {b}, out={a})", "np.exp({a}, out={a})"),
    *("{a}[{a} > 0] = 0", "{a} -= {a}", "{a}.T[0] += 1", "{a}.reshape(-1)[0] = 7"),
    *("{a} /= 2", "np.negative({a}, out={b})", "{a}[::-1] += {b}", "{a}[[0]] = {b}"),
)
KINDS = ((UNARY, 5), (BINARY, 6), (REDUCTIONS, 2), (VIEWS, 3), (COPIES, 2), (WRITES, 3))

# What a program may use without getting it as an argument.
WORLD = {
    "np": np,
    "co": co,
    "weights": np.linspace(-1.0, 1.0, 3),
    "table": np.arange(12, dtype="f4").reshape(4, 3),
    "scale": 0.75,
    "count": np.int64(3),
}
# Constants that a program may use.
OTHERS = ("weights", "table", "scale", "count", "2.5")
# Errors of the package, which say that a function cannot be captured.
REFUSALS = tuple(
    kind.__name__
    for kind in vars(co).values()
    if isinstance(kind, type) and issubclass(kind, co.CustomOpError)
)


def array(rng: np.random.Generator, dtype: str, shape: Any, layout: str) -> Any:
    """An array of a layout, with a few special values."""
    if layout == "scalar":
        return np.dtype(dtype).type(rng.integers(0, 3))
    values = np.asarray(rng.normal(0, 2, shape))
    if dtype[0] in "iu?":
        values *= 30
    elif values.size and rng.random() < 0.15:
        values.flat[0] = rng.choice([np.nan, np.inf, 0.0, -0.0, 1e300])
    with np.errstate(all="ignore"):
        found = np.asarray(values + (1j if dtype == "c16" else 0)).astype(dtype)
    return _laid_out(found, layout)


def _laid_out(found: Any, layout: str) -> Any:
    if not found.ndim or layout == "c":
        return found
    if layout == "f":
        return np.asfortranarray(found)
    if layout == "step":
        return np.repeat(found, 2, axis=0)[::2]
    if layout == "flip":
        return found[::-1].copy()[::-1]
    if layout == "inner":
        return np.repeat(found, 3, axis=-1)[..., 1::3]
    return np.broadcast_to(found[:1], found.shape)  # read-only


class Program:
    """A random program.

    Attributes
    ----------
    seed : int
    text : str
        The source of ``f``.
    fn : callable
    """

    def __init__(
        self,
        seed: int,
        *,
        kinds: Any = KINDS,
        shapes: Any = SHAPES,
        dtypes: Any = None,
        lines: int = 8,
        others: Any = OTHERS,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.kinds, self.shapes, self.others = kinds, shapes, others
        known = dtypes or (FLOATS if self.rng.random() < 0.6 else FLOATS + INTS)
        self.inputs = self._inputs(known)
        self.names = [name for name, _ in self.inputs]
        self.numbers = {name for name, how in self.inputs if how[0] == "number"}
        for name, (kind, first, *_) in self.inputs:
            if kind in ("again", "view") and first in self.numbers:
                self.numbers.add(name)
        body = self._body(self.rng.randint(2, lines))
        self.text = "\n".join([f"def f({', '.join(self.names)}):", *body, ""])
        space = dict(WORLD)
        exec(self.text, space)
        self.fn: Callable[..., Any] = space["f"]

    # ---- arguments ----

    def _inputs(self, dtypes: Any) -> list[tuple[str, Any]]:
        rng, found = self.rng, []
        same = rng.choice(dtypes) if rng.random() < 0.6 else None
        for name in "xyz"[: rng.choice((1, 2, 2, 3))]:
            draw = rng.random()
            if draw < 0.1 and found:
                made: Any = ("number", rng.choice((2, -1.5, True, 3, 0.5j)))
            elif draw < 0.14 and found:
                made = ("again", rng.choice(found)[0])
            elif draw < 0.19 and found:
                made = ("view", rng.choice(found)[0])
            else:
                layout = "scalar" if rng.random() < 0.08 else rng.choice(LAYOUTS)
                made = ("array", same or rng.choice(dtypes), self._shape(), layout)
            found.append((name, made))
        return found

    def _shape(self) -> Any:
        return self.rng.choice(self.shapes)

    def arguments(
        self, offset: int = 0, lengths: Mapping[int, int] | None = None
    ) -> list[Any]:
        """New arguments, which share memory in the same places.

        For an offset with other numbers; with `lengths` in the place of lengths.
        """
        rng = np.random.default_rng(self.seed + 1_000_003 * offset)
        found: dict[str, Any] = {}
        for name, (kind, *how) in self.inputs:
            if kind == "number":
                found[name] = how[0]
            elif kind == "again":
                found[name] = found[how[0]]
            elif kind == "view":
                whole = found[how[0]]
                found[name] = whole.T if isinstance(whole, np.ndarray) else whole
            else:
                dtype, shape, layout = how
                new = tuple([(lengths or {}).get(n, n) for n in shape])
                found[name] = array(rng, dtype, new, layout)
        return list(found.values())

    # ---- lines ----

    def _body(self, count: int) -> list[str]:
        """Lines that mostly run: each is tried on arguments."""
        space = dict(WORLD) | dict(zip(self.names, self.arguments(), strict=True))
        known, lines = [*self.names], []
        for _ in range(4 * count):
            if len(lines) == count:
                break
            line, new = self._line(known)
            if self._runs(line, space, new) or self.rng.random() < 0.004:
                lines.append(f"    {line}")
                known += [new] if new else []
        leaves = [*dict.fromkeys([known[-1], *self.rng.choices(known, k=2)])]
        forms = ["({},)", "[{}]", "{{'r': ({},)}}"]
        result = self.rng.choice(forms).format(", ".join(leaves))
        if self.rng.random() < 0.4:
            result = known[-1]
        return [*lines, f"    return {result}"]

    def _line(self, known: list[str]) -> tuple[str, str]:
        rng = self.rng
        tables, weights = zip(*self.kinds, strict=True)
        table = rng.choices(tables, weights)[0]
        recent = [*known, *known[-3:], *known[-3:]]
        # What is computed of numbers alone is a constant of the graph.
        arrays = [name for name in recent if name not in self.numbers] or ["weights"]
        others = [*recent, *self.others]
        text = rng.choice(table).format(a=rng.choice(arrays), b=rng.choice(others))
        if table is WRITES:
            return text, ""
        new = f"v{len(known)}"
        return f"{new} = {text}", new

    def _runs(self, line: str, space: dict[str, Any], new: str) -> bool:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(line, space)
            except Exception:  # noqa: BLE001  # NumPy's, of many classes
                return False
        return not new or getattr(space[new], "size", 0) < 500


# ---- what a caller can see ----


class Seen(NamedTuple):
    """What a caller sees of a call."""

    result: Any
    arguments: Any
    shared: Any
    warned: list[str]
    error: Any


def observe(fn: Callable[..., Any], arguments: list[Any], errors: str = "warn") -> Seen:
    """Run a function under ``np.errstate(all=errors)``, and note all that can be seen."""
    result = error = None
    with np.errstate(all=errors), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = fn(*arguments)
        except Exception as found:  # noqa: BLE001  # it is compared
            error = found
    leaves = co.tree.leaves(result)
    outside = [v for v in (*arguments, *WORLD.values()) if isinstance(v, np.ndarray)]
    return Seen(
        [bits(v) for v in leaves],
        [bits(v) for v in arguments],
        _shared(leaves, outside),
        [str(w.message) for w in caught],
        error and (type(error).__name__, str(error)),
    )


def bits(value: Any) -> Any:
    """All of a value that can be compared; nan is equal to nan."""
    if isinstance(value, np.ndarray):
        pairs = zip(value.shape, value.strides, strict=True)
        strides = [n for size, n in pairs if size > 1 and value.size]
        flags = value.flags.writeable
        return ("array", value.dtype.str, value.shape, strides, flags, value.tobytes())
    if isinstance(value, np.generic):
        return (type(value).__name__, value.dtype.str, value.tobytes())
    return (type(value).__name__, repr(value))


def _shared(leaves: list[Any], outside: list[Any]) -> list[Any]:
    """Which results are, or share memory with, arguments and other results."""
    arrays = [v for v in leaves if isinstance(v, np.ndarray)]
    known = [*outside, *arrays]
    return [[(a is b, np.shares_memory(a, b)) for b in known] for a in arrays]


def differences(
    program: Program,
    compiled: Callable[..., Any],
    errors: str = "warn",
    offset: int = 0,
    *,
    lengths: Mapping[int, int] | None = None,
) -> list[str]:
    """What differs between a program and its compiled function; empty if nothing does.

    A refusal to capture is one difference, which begins with ``refused``.

    Parameters
    ----------
    program : Program
    compiled : callable
    errors : str
        For `np.errstate`.
    offset : int
        Other numbers in the arguments.
    lengths : mapping, optional
        Lengths of axes in the place of others.
    """
    expected = observe(program.fn, program.arguments(offset, lengths), errors)
    found = observe(compiled, program.arguments(offset, lengths), errors)
    if found.error and found.error[0] in REFUSALS and found.error != expected.error:
        return [f"refused: {found.error[1].splitlines()[0]}"]
    if expected.error and found.error:  # writes to arguments may have come or not
        found = found._replace(arguments=expected.arguments)
    pairs = zip(Seen._fields, expected, found, strict=True)
    return [f"{name}: {a} became {b}" for name, a, b in pairs if a != b]
