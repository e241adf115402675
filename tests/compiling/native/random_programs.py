"""Random small programs, run by the native back end and by NumPy, and compared.

``python -m tests.compiling.native.random_programs SEED COUNT`` runs many of them.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import customop as co
from customop.compiling.capture import keep_what_warns
from customop.compiling.native_backend.native_code import build
from customop.compiling.numpy_backend.build import build as build_numpy

UNARY = [
    "sin",
    "cos",
    "exp",
    "tanh",
    "sqrt",
    "abs",
    "negative",
    "square",
    "log1p",
    "floor",
    "sign",
    "arctan",
    "sinh",
    "cbrt",
    "expm1",
    "log",
    "ceil",
    "isnan",
    "rint",
    "reciprocal",
    "log2",
    "exp2",
    "arcsinh",
]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "arctan2",
    "logaddexp",
    "power",
    "hypot",
    "greater",
    "equal",
    "less_equal",
    "fmod",
    "copysign",
    "floor_divide",
    "fmax",
    "add",
    "multiply",
    "subtract",
]
LENGTHS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 65, 130)
NUMBERS = (2, 0.5, 3.0, -1, 1, 2.0, True)


def random_array(rng: np.random.Generator) -> Any:  # noqa: C901  # a list of cases
    """Return an array, or a scalar of NumPy, of random layout, dtype and values."""
    shape = [int(n) for n in rng.choice(LENGTHS, size=rng.integers(0, 4))]
    if rng.random() < 0.02 and shape:
        shape[0] = 0
    while np.prod(shape) > 20000:
        shape = [max(n // 2, 1) for n in shape]
    if rng.random() < 0.02:
        shape = [20011] if rng.random() < 0.5 else [3, 9001]
    x = np.asarray(rng.normal(size=shape) * rng.choice([1.0, 3.0, 0.1]))
    if rng.random() < 0.1:
        x = np.asarray(np.where(rng.random(shape) < 0.3, -0.0, x))
    kind = rng.random()
    for limit, dtype in (
        (0.2, "float32"),
        (0.3, "int64"),
        (0.36, "bool"),
        (0.4, "int32"),
        (0.42, "uint8"),
        (0.45, "complex128"),
        (0.46, "float16"),
    ):
        if kind < limit:
            x = (x * 3).astype(dtype)
            break
    way = rng.random()
    if x.ndim > 1 and way < 0.15:
        x = np.asfortranarray(x)
    elif x.ndim and way < 0.25:
        x = np.repeat(x, 2, axis=-1)[..., ::2]
    elif x.ndim and way < 0.3:
        x = x[::-1]
    elif not x.ndim and way < 0.5:
        return x[()]
    return x


def random_program(rng: np.random.Generator) -> Callable[..., Any]:
    """Return a function of arrays; its decisions are drawn once."""
    seed, steps = int(rng.integers(1 << 40)), int(rng.integers(2, 9))

    def program(*xs: Any) -> Any:
        draw = np.random.default_rng(seed)
        values, made = [*xs], []
        for _ in range(steps):
            try:
                y = _step(draw, values)
            except (ValueError, TypeError, IndexError, np.linalg.LinAlgError):
                continue
            if y is None or y.size > 60000:
                continue
            values.append(y)
            made.append(y)
        count = int(draw.integers(1, 4))
        return made[-count:] if made else [xs[0] + 0]

    return program


def _step(  # noqa: C901, PLR0911, PLR0912  # a list of cases
    draw: np.random.Generator, values: list[Any]
) -> Any:
    kind = draw.random()
    x = values[draw.integers(len(values))] if draw.random() < 0.6 else values[-1]
    other = values[draw.integers(len(values))]
    first, second, share, way = (
        int(draw.integers(len(UNARY))),
        int(draw.integers(len(BINARY))),
        draw.random(),
        int(draw.integers(100)),
    )
    is_float = x.dtype.kind == "f"
    if kind < 0.2:
        return getattr(np, UNARY[first])(x) if is_float else x + 1
    if kind < 0.4:
        operand = other if share < 0.7 else NUMBERS[way % len(NUMBERS)]
        name = BINARY[second] if is_float else ("add", "multiply", "equal")[way % 3]
        if x.ndim and way % 5 == 0:
            return getattr(np, name)(operand, x)
        return getattr(np, name)(x, operand)
    if kind < 0.58:
        axes = tuple(a for a in range(x.ndim) if (way >> a) & 1)
        names = (
            "sum",
            "mean",
            "max",
            "sum",
            "min",
            "prod",
            "any",
            "var",
            "argmax",
            "std",
        )
        axis: Any = axes if axes and share < 0.8 else None
        name = names[first % len(names)]
        if name == "argmax":
            return np.argmax(x, axis=axes[0] if axes else None)
        keeps = bool(way % 2 and share < 0.5)
        return getattr(np, name)(x, axis=axis, keepdims=keeps)
    if kind < 0.68:
        if not x.ndim:
            return None
        parts: tuple[Any, ...] = (
            slice(None),
            slice(None, None, 2),
            slice(1, None),
            slice(None, None, -1),
            slice(0, 2),
            0,
        )
        return x[tuple(parts[(way + 3 * a) % 6] for a in range(x.ndim))]
    if kind < 0.705 and x.ndim and is_float and 0 < len(x) < 40:
        return _loop(draw, x, way)
    if kind < 0.75:
        return np.transpose(x, tuple(np.random.default_rng(way).permutation(x.ndim)))
    if kind < 0.79:
        return np.reshape(x, (-1,)) if share < 0.5 else x[..., None]
    if kind < 0.87:
        if not x.ndim:
            return None
        if share < 0.3:
            return x @ other
        return x @ (np.swapaxes(x, -1, -2) if x.ndim > 1 else x)
    if kind < 0.885:
        return np.where(x > 0, x, other) if x.dtype.kind != "c" else np.conj(x)
    if kind < 0.925:
        return _composed(x, other, int(share * 16), way)
    return _rarer(x, other, (kind - 0.925) / 0.075, way)


def _loop(draw: np.random.Generator, x: Any, way: int) -> Any:
    """Return a result of a loop whose steps are random programs."""
    seed, steps = int(draw.integers(1 << 40)), int(draw.integers(1, 5))

    def body(c: Any, r: Any) -> Any:
        own = np.random.default_rng(seed)
        values = [c, r, x] if way % 3 else [c, r]
        for _ in range(steps):
            y = _step(own, values)
            if y is not None and y.size < 3000:
                values.append(y)
        new = np.tanh(c) + np.mean(values[-1]).astype(c.dtype)
        return (new.T if way % 7 == 0 else new), (values[-1], c)

    start = x[0] if x.ndim else x
    if way % 5 == 0 and x.ndim:
        start = np.sum(x, axis=0)
    if way % 11 == 0:
        return co.fori_loop(0, 3, lambda i, c: body(c, i + 0.5)[0], start)
    last, (ys, carries) = co.scan(body, start, x, reverse=bool(way % 2))
    return (ys, last, carries + 0)[way % 3]


def _composed(  # noqa: C901, PLR0911, PLR0912  # a list of cases
    x: Any, other: Any, kind: int, way: int
) -> Any:
    """Return what NumPy makes of several loops, or writes to parts of an array."""
    axis = way % max(x.ndim, 1)
    if kind == 0:
        return np.clip(x, -1, 2) if x.dtype.kind in "fi" else x
    if kind == 1:
        return np.round(x, way % 4) if x.dtype.kind == "f" else x
    if not x.ndim:
        return None
    if kind > 11:  # NumPy's irfft of no items gives what lies in memory
        return _core(x, other, kind, way) if x.size else None
    places = np.array([0, -1, 0, -1])[: way % 4 + 1]
    if kind == 2:
        return np.diff(x, axis=axis)
    if kind == 3:
        return np.linalg.norm(x, axis=axis, keepdims=bool(way % 2))
    if kind == 4:
        return np.roll(x, way % 7 - 3, axis=axis if way % 2 else None)
    if kind == 5:
        return np.pad(x, [(way % 2, way % 3)] * x.ndim, constant_values=way % 2)
    if kind == 6:
        return np.tile(x, (2, 1)) if way % 2 else np.repeat(x, 2, axis=axis)
    if kind == 7:
        return np.take(x, places, axis=axis) if way % 2 else x[..., places]
    y = x + 0
    if kind == 8:
        y[..., 1:] = y[..., :-1]
        y[0] = other if way % 2 and not other.ndim else 2
    elif kind == 9:
        y[places] = y[places[::-1]] * 2
    elif kind == 10:
        y[::-1] += y
    else:
        y[..., 0] = 1
        y[-1] = y[0]
    return y


def _core(  # noqa: C901, PLR0911  # a list of cases
    x: Any, other: Any, kind: int, way: int
) -> Any:
    """Return a Fourier transform, or what LAPACK makes of matrices."""
    axis, norm = way % x.ndim, (None, "ortho", "forward")[way % 3]
    if kind < 14 or x.ndim < 2:
        names = ("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "irfft2")
        name = names[way % 8]
        if x.dtype.kind == "c" and name.startswith("rfft"):
            name = "fft"
        if name.endswith("2"):
            return getattr(np.fft, name)(x, axes=(-1, 0)[: x.ndim], norm=norm)
        lengths = (None, 1, 4, 7, 12)
        return getattr(np.fft, name)(x, n=lengths[way % 5], axis=axis, norm=norm)
    wide = x @ np.conj(np.swapaxes(x, -1, -2)) / 8
    wide = wide if way % 13 == 0 else wide + np.eye(x.shape[-2]) * 2
    triangle: Any = "UL"[way % 2]
    if way % 9 == 0:
        return np.linalg.cholesky(wide, upper=bool(way % 2))
    if way % 9 == 1:
        return np.linalg.eigh(wide, triangle)[way % 2]
    if way % 9 == 2:
        return np.linalg.svd(x, full_matrices=bool(way % 2))[way % 3]
    if way % 9 == 3:
        return np.linalg.slogdet(wide)[way % 2]
    if way % 9 == 4:
        return np.linalg.solve(wide, x)
    if way % 9 == 5:
        line = other if other.ndim == 1 else wide[0, 0] if wide.ndim > 2 else wide[0]
        return np.linalg.solve(wide, line)
    if way % 9 == 6:
        return np.linalg.eigvalsh(wide, triangle)
    return np.linalg.det(wide) if way % 9 == 7 else np.linalg.inv(wide)


def _rarer(  # noqa: C901, PLR0911, PLR0912  # a list of cases
    x: Any, other: Any, kind: float, way: int
) -> Any:
    if kind < 0.2:
        dtypes = (np.float64, np.float32, np.int64)
        if x.dtype.kind == "f" and way % 3 == 2:
            return np.floor(np.clip(x, -5, 5)).astype(np.int64)
        return x.astype(dtypes[way % 3]) if x.dtype.kind != "c" else x * 1j
    if kind < 0.3 and x.ndim:
        return (np.cumsum, np.cumprod)[way % 2](x, axis=way % x.ndim)
    if kind < 0.4:
        return np.stack([x, x], axis=way % (x.ndim + 1))
    if kind < 0.5 and x.ndim:
        return np.concatenate([x, x], axis=-1)
    if kind < 0.6 and x.ndim:
        y = x + 0
        if way % 2:
            y[0] = 1
        else:
            y += other
        return y
    if kind < 0.7 and x.ndim:
        places = np.array([0, -1, 0]) % x.shape[0]
        return x[places] if way % 2 else x[places[:, None], ..., None]
    if kind < 0.75:
        return np.broadcast_to(x, (2, *x.shape))
    if kind < 0.8 and x.ndim > 1:
        return np.tril(x) if way % 2 else np.diagonal(x)
    if kind < 0.85 and x.ndim:
        return np.flip(x, axis=0) if way % 2 else np.roll(x, 1, axis=0)
    if kind < 0.9 and x.ndim == 2 and x.dtype.kind == "f":
        return np.linalg.norm(x)
    if kind < 0.95 and x.ndim:
        return np.sort(x, axis=-1)
    return np.clip(x, -1, 1) if x.dtype.kind in "fi" else x


def with_gradient(program: Callable[..., Any]) -> Callable[..., Any]:
    """Return the value and the gradient of a program."""

    def total(x: Any, *others: Any) -> Any:
        found = program(x, *others)
        return sum(np.sum(t) for t in found if t.dtype.kind == "f") + 0.0 * np.sum(x)

    return co.value_and_grad(total)


def difference(expected: Any, found: Any) -> str:
    """Return how two results differ; empty if they do not."""
    if type(expected) is not type(found):
        return f"class {type(expected).__name__} {type(found).__name__}"
    if not isinstance(expected, (np.ndarray, np.generic)):
        return "" if expected == found else "another object"
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return f"{expected.dtype}{expected.shape} {found.dtype}{found.shape}"
    steps = zip(expected.strides, found.strides, expected.shape, strict=True)
    if expected.size and any(a != b for a, b, n in steps if n > 1):
        return f"strides {expected.strides} {found.strides}"
    if (
        isinstance(expected, np.ndarray)
        and expected.flags.writeable != found.flags.writeable
    ):
        return "writeable"
    return "" if bits(expected) == bits(found) else "bits"


def bits(x: Any) -> bytes:
    """Return the bytes of an array in C order; all nan are one."""
    x = np.array(x, order="C").reshape(-1)
    if x.dtype.kind in "fc":
        parts = x.view(x.real.dtype)
        parts[np.isnan(parts)] = np.nan
    return x.tobytes()


def sharing(values: list[Any], inputs: list[Any]) -> list[bool]:
    """Return which pairs of results, and of inputs and results, share memory."""
    arrays = [*inputs, *values]
    return [
        isinstance(a, np.ndarray)
        and isinstance(b, np.ndarray)
        and np.may_share_memory(a, b)
        for i, a in enumerate(arrays)
        for b in values[max(0, i - len(inputs) + 1) :]
    ]


def told(run: Callable[..., Any], args: list[Any]) -> tuple[Any, list[str]]:
    """Return the results of a call, or its error, and its warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            found = run(*args)
        except Exception as error:  # noqa: BLE001  # it is compared
            found = f"{type(error).__name__}: {error}"
    return found, [str(w.message) for w in seen]


def compare(  # noqa: C901  # each step may find a difference
    seed: int,
) -> tuple[str, Counter[str]]:
    """Run the program of a seed; return the first difference, and why calls are Python."""
    rng = np.random.default_rng(seed)
    args = [random_array(rng) for _ in range(rng.integers(1, 4))]
    program = random_program(rng)
    if rng.random() < 0.3 and args[0].dtype.kind == "f":
        program = with_gradient(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = co.make_fx(program)(*args)
        except Exception as error:  # noqa: BLE001  # NumPy refuses the program
            return "", Counter([f"not captured: {type(error).__name__}"])
    keep_what_warns(module.graph, ())
    run = build(module)
    others = [_changed(x) for x in args]
    by_numpy = build_numpy(module)
    for round_, given in enumerate((args, args, others, args)):
        expected, warned = told(module.run_list, given)
        if warned:  # scalars may be named by other words
            warned = told(by_numpy, given)[1]
        with np.errstate():
            found, seen = told(run, given)
        where = f"seed {seed}, call {round_}: "
        if isinstance(expected, str) or isinstance(found, str):
            if expected != found:
                return f"{where}{str(expected)[:200]} | {str(found)[:300]}", Counter()
            continue
        for k, (a, b) in enumerate(zip(expected, found, strict=True)):
            apart = difference(a, b)
            if apart:
                return f"{where}result {k}: {apart}", Counter()
        if sharing(expected, given) != sharing(found, given):
            return f"{where}memory is shared otherwise", Counter()
        if warned != seen:
            return f"{where}warnings {warned} {seen}", Counter()
    told_of = getattr(run, "explain", list)()
    return "", Counter(_reason(group) for group in told_of)


def _reason(group: Any) -> str:
    if group.done == "call":
        return f"{group.nodes[0].rstrip('0123456789_')}: {group.why}"
    return group.why or "planned"


def _changed(x: Any) -> Any:
    """Return an array of the same layout with other values."""
    if isinstance(x, np.generic):
        zero: Any = x
        return type(x)(zero * 0)
    new = x.copy("K") if x.flags.c_contiguous or x.flags.f_contiguous else None
    if new is None or new.strides != x.strides:
        return x
    if x.dtype.kind == "f":
        new *= 1.5
        new -= 0.25
    return new


def main(seed: int, count: int) -> None:
    """Compare programs and print what differs."""
    reasons: Counter[str] = Counter()
    bad = 0
    for n in range(seed, seed + count):
        apart, why = compare(n)
        reasons.update(why)
        if apart:
            bad += 1
            if bad < 25:
                sys.stdout.write(f"{apart}\n")
    sys.stdout.write(f"{count} programs, {bad} differ\n")
    for name, number in reasons.most_common(45):
        sys.stdout.write(f"{number:7} {name}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
