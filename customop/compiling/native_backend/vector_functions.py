"""Functions of floating-point numbers for some items at once, for ``compile(exact=False)``.

Each is within 4 units in the last place of the function, and of NumPy's loop on what needs
care: infinities, NaN and arguments that are out of range are given to that loop, which
raises its own flags, too. Numbers of 32 bits are computed with 64.

Source: range reduction by Cody and Waite, Software Manual for the Elementary Functions
(1980); log and log1p as in Muller, Elementary Functions, 3rd ed., sections 6.3 and 11.2. The
polynomials interpolate at Chebyshev's nodes on the reduced range.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from customop.compiling.native_backend.driver import (
    flag_declarations,
    raise_flags,
    read_flags,
)
from customop.compiling.native_backend.machine_code import (
    MachineFunction,
    splat,
    vector,
)
from customop.compiling.native_backend.object_layout import pointer
from customop.compiling.native_backend.own_loops import elementwise_loop
from customop.compiling.native_backend.tables import InnerLoop
from customop.compiling.native_backend.ufunc_loops import loop_for

# ---- arithmetic on lanes ----


class Lanes:
    """Writes arithmetic on some numbers of 64 bits at once."""

    __slots__ = ("bits", "code", "lanes", "reals", "words")

    def __init__(self, code: MachineFunction, lanes: int) -> None:
        self.code: MachineFunction = code
        self.lanes: int = lanes
        self.reals: str = vector("double", lanes)
        self.words: str = vector("i64", lanes)
        self.bits: str = vector("i1", lanes)

    def number(self, value: float) -> str:
        """Return a constant."""
        (word,) = struct.unpack("<Q", struct.pack("<d", value))
        return splat("double", f"0x{word:016X}", self.lanes)

    def word(self, value: int) -> str:
        """Return a constant of 64 bits."""
        return splat("i64", str(value), self.lanes)

    def add(self, a: str, b: str) -> str:
        """Return ``a + b``."""
        return self.code.let(f"fadd {self.reals} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        """Return ``a - b``."""
        return self.code.let(f"fsub {self.reals} {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        """Return ``a * b``."""
        return self.code.let(f"fmul {self.reals} {a}, {b}")

    def div(self, a: str, b: str) -> str:
        """Return ``a / b``."""
        return self.code.let(f"fdiv {self.reals} {a}, {b}")

    def fused(self, a: str, b: str, c: str) -> str:
        """Return ``a * b + c``, rounded once or twice."""
        kind = self.reals
        given = f"{kind} {a}, {kind} {b}, {kind} {c}"
        return self.code.let(f"call {kind} @llvm.fmuladd.{self._short}({given})")

    def polynomial(self, x: str, factors: Sequence[float]) -> str:
        """Return a polynomial, given its factors from the lowest power on."""
        found = self.number(factors[-1])
        for factor in reversed(factors[:-1]):
            found = self.fused(found, x, self.number(factor))
        return found

    def word_of(self, x: str) -> str:
        """Return the 64 bits of numbers."""
        return self.code.let(f"bitcast {self.reals} {x} to {self.words}")

    def real_of(self, word: str) -> str:
        """Return the numbers that have these bits."""
        return self.code.let(f"bitcast {self.words} {word} to {self.reals}")

    def on_words(self, instruction: str, a: str, b: str) -> str:
        """Return the result of an instruction on integers."""
        return self.code.let(f"{instruction} {self.words} {a}, {b}")

    def test(self, how: str, a: str, b: str) -> str:
        """Return the bits of a comparison of integers."""
        return self.code.let(f"icmp {how} {self.words} {a}, {b}")

    def either(self, a: str, b: str) -> str:
        """Return the bits that are set in one of two."""
        return self.code.let(f"or {self.bits} {a}, {b}")

    def choose(self, bits: str, a: str, b: str) -> str:
        """Return one number where a bit is set, and another one elsewhere."""
        given = f"{self.reals} {a}, {self.reals} {b}"
        return self.code.let(f"select {self.bits} {bits}, {given}")

    def magnitude(self, x: str) -> str:
        """Return the bits of absolute values."""
        return self.on_words("and", self.word_of(x), self.word(_ALL_BUT_SIGN))

    def signed_as(self, x: str, like: str) -> str:
        """Return numbers with the signs of others."""
        sign = self.on_words("and", self.word_of(like), self.word(_SIGN))
        return self.real_of(self.on_words("or", self.magnitude(x), sign))

    def power_of_two(self, exponent: str) -> str:
        """Return 2 to the power of integers from -1022 to 1023."""
        raised = self.on_words("add", exponent, self.word(1023))
        return self.real_of(self.on_words("shl", raised, self.word(52)))

    def rounded(self, x: str) -> tuple[str, str]:
        """Return the nearest integers of small numbers, as numbers and as integers."""
        shifted = self.add(x, self.number(_SHIFT))
        whole = self.sub(shifted, self.number(_SHIFT))
        word = self.on_words("sub", self.word_of(shifted), self.word(_word(_SHIFT)))
        return whole, word

    def any(self, bits: str) -> str:
        """Return the bit that says whether one of these is set."""
        if self.lanes == 1:
            return bits
        name = f"@llvm.vector.reduce.or.v{self.lanes}i1"
        return self.code.let(f"call i1 {name}({self.bits} {bits})")

    @property
    def _short(self) -> str:
        return "f64" if self.lanes == 1 else f"v{self.lanes}f64"


def _word(value: float) -> int:
    """Return the bits of a number, as a signed integer."""
    (word,) = struct.unpack("<q", struct.pack("<d", value))
    return int(word)


# Adding this number rounds others to integers, which its last bits have then.
_SHIFT: Final = 1.5 * 2.0**52
_SIGN: Final = -(1 << 63)
_ALL_BUT_SIGN: Final = (1 << 63) - 1
_INFINITY: Final = _word(float("inf"))
_NEGATIVE_INFINITY: Final = _word(float("-inf"))

# What functions in which these are used have to declare.
VECTOR_DECLARATIONS: Final = flag_declarations() + "".join(
    [
        *(
            f"declare {kind} @llvm.fmuladd.{short}({kind}, {kind}, {kind})\n"
            for lanes, short in ((1, "f64"), (8, "v8f64"), (16, "v16f64"))
            for kind in [vector("double", lanes)]
        ),
        *(
            f"declare i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1>)\n"
            for lanes in (8, 16)
        ),
    ]
)

# ---- the functions ----
# Each returns the values, and the bits of those that NumPy's loop has to compute.

_Found = tuple[str, str]

_LOG2_E: Final = 1.4426950408889634
# Parts of log(2) and of pi / 2: products of the first ones with an integer are exact.
_LOG_2: Final = (0.6931471804855391, 7.440617110012397e-11)
_HALF_PI: Final = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_TWO_BY_PI: Final = 0.6366197723675814

# (exp(r) - 1 - r) / r**2 for abs(r) <= log(2) / 2.
_EXP: Final = (
    0.5000000000000001,
    0.16666666666666669,
    0.04166666666662413,
    0.008333333333330062,
    0.0013888888917213717,
    0.00019841269863053618,
    2.4801521295954376e-05,
    2.7557268459997064e-06,
    2.7620088445409746e-07,
    2.510038549551032e-08,
)
# (2 atanh(s) / s - 2) / s**2, in powers of s**2, for s up to (sqrt(2) - 1) / (sqrt(2) + 1).
_LOG: Final = (
    0.666666666666667,
    0.3999999999989938,
    0.28571428626031065,
    0.2222221112572281,
    0.18182889786191042,
    0.15331699633543858,
    0.14616721179861816,
)
# (sin(r) / r - 1) / r**2 and (cos(r) - 1 + r**2 / 2) / r**4, in powers of r**2, for r up
# to pi / 4.
_SIN: Final = (
    -0.16666666666666666,
    0.008333333333330948,
    -0.00019841269836756774,
    2.7557316101617874e-06,
    -2.505113165023518e-08,
    1.5918115263265974e-10,
)
_COS: Final = (
    0.041666666666666664,
    -0.0013888888888887398,
    2.480158729876456e-05,
    -2.7557317271145144e-07,
    2.087614614655861e-09,
    -1.1382623647474604e-11,
)


def _less_one(v: Lanes, x: str) -> tuple[str, str]:
    """Return ``exp(x - n log(2)) - 1``, and the integer n that makes it small."""
    whole, n = v.rounded(v.mul(x, v.number(_LOG2_E)))
    r = v.fused(whole, v.number(-_LOG_2[0]), x)
    r = v.fused(whole, v.number(-_LOG_2[1]), r)
    return v.fused(v.mul(r, r), v.polynomial(r, _EXP), r), n


def _scaled(v: Lanes, x: str, n: str) -> str:
    """Return x times 2 to the power n, in two steps: the result may be subnormal."""
    half = v.on_words("ashr", n, v.word(1))
    rest = v.on_words("sub", n, half)
    return v.mul(v.mul(x, v.power_of_two(half)), v.power_of_two(rest))


def _at_least(v: Lanes, x: str, least: float) -> str:
    """Return numbers that are not below a negative bound, given no negative NaN."""
    below = v.test("ugt", v.word_of(x), v.word(_word(least)))
    return v.choose(below, v.number(least), x)


def _is_nan(v: Lanes, x: str) -> str:
    return v.test("sgt", v.magnitude(x), v.word(_INFINITY))


def _exp(v: Lanes, x: str) -> _Found:
    high = v.test("sgt", v.word_of(x), v.word(_word(709.0)))
    small, n = _less_one(v, _at_least(v, x, -1000.0))
    found = _scaled(v, v.add(small, v.number(1.0)), n)
    return found, v.either(high, _is_nan(v, x))


def _expm1(v: Lanes, x: str) -> _Found:
    high = v.test("sgt", v.word_of(x), v.word(_word(709.0)))
    small, n = _less_one(v, _at_least(v, x, -40.0))
    power = v.power_of_two(n)
    found = v.fused(power, small, v.sub(power, v.number(1.0)))
    return v.signed_as(found, x), v.either(high, _is_nan(v, x))


def _tanh(v: Lanes, x: str) -> _Found:
    magnitude = v.magnitude(x)
    low = v.test("slt", magnitude, v.word(_word(22.0)))
    small, n = _less_one(
        v,
        v.mul(v.choose(low, v.real_of(magnitude), v.number(22.0)), v.number(2.0)),
    )
    power = v.power_of_two(n)
    grown = v.fused(power, small, v.sub(power, v.number(1.0)))
    found = v.div(grown, v.add(grown, v.number(2.0)))
    return v.signed_as(found, x), _is_nan(v, x)


def _log_of_sum(v: Lanes, x: str, rest: str) -> str:
    """Return the logarithm of ``x + rest``, where the rest is small; x is normal."""
    start = v.word(_word(0.5**0.5))
    n = v.on_words("ashr", v.on_words("sub", v.word_of(x), start), v.word(52))
    m = v.real_of(
        v.on_words("sub", v.word_of(x), v.on_words("shl", n, v.word(52)))
    )  # from sqrt(1 / 2) to sqrt(2)
    f = v.sub(m, v.number(1.0))
    if rest:
        back = v.power_of_two(v.on_words("sub", v.word(0), n))
        f = v.fused(rest, back, f)
    s = v.div(f, v.add(f, v.number(2.0)))
    z = v.mul(s, s)
    half = v.mul(v.mul(f, f), v.number(0.5))
    inner = v.fused(z, v.polynomial(z, _LOG), half)
    whole = v.code.let(f"sitofp {v.words} {n} to {v.reals}")
    # The small terms come first, so that the large one is rounded once.
    low = v.fused(s, inner, v.mul(whole, v.number(_LOG_2[1])))
    near = v.sub(f, v.sub(half, low))
    return v.fused(whole, v.number(_LOG_2[0]), near)


def _log(v: Lanes, x: str) -> _Found:
    least = v.word(1 << 52)
    odd = v.test(
        "uge",
        v.on_words("sub", v.word_of(x), least),
        v.word(_INFINITY - (1 << 52)),
    )
    return _log_of_sum(v, x, ""), odd


def _log1p(v: Lanes, x: str) -> _Found:
    word = v.word_of(x)
    high = v.test("sgt", word, v.word(_word(1e300)))
    low = v.test("uge", word, v.word(_word(-1.0)))
    one = v.number(1.0)
    u = v.add(x, one)
    below = v.test("slt", word, v.word(_word(1.0)))
    rest = v.choose(below, v.sub(x, v.sub(u, one)), v.sub(one, v.sub(u, x)))
    return v.signed_as(_log_of_sum(v, u, rest), x), v.either(high, low)


def _logaddexp(v: Lanes, a: str, b: str) -> _Found:
    odd = [v.test("sge", v.magnitude(x), v.word(_INFINITY)) for x in (a, b)]
    apart = v.sub(a, b)
    second = v.test("slt", v.word_of(apart), v.word(0))
    larger = v.choose(second, b, a)
    down = v.real_of(v.on_words("or", v.word_of(apart), v.word(_SIGN)))
    small, n = _less_one(v, _at_least(v, down, -1000.0))
    y = _scaled(v, v.add(small, v.number(1.0)), n)
    one = v.number(1.0)
    u = v.add(y, one)
    found = _log_of_sum(v, u, v.sub(y, v.sub(u, one)))
    return v.add(larger, found), v.either(*odd)


def _turned(quarters: int) -> Callable[[Lanes, str], _Found]:
    """Return the sine of an argument that is some right angles larger."""

    def write(v: Lanes, x: str) -> _Found:
        far = v.test("sgt", v.magnitude(x), v.word(_word(1e4)))
        whole, n = v.rounded(v.mul(x, v.number(_TWO_BY_PI)))
        r = x
        for part in _HALF_PI:
            r = v.fused(whole, v.number(-part), r)
        z = v.mul(r, r)
        one = v.number(1.0)
        sine = v.mul(r, v.fused(z, v.polynomial(z, _SIN), one))
        half = v.fused(z, v.number(-0.5), one)
        cosine = v.fused(v.mul(z, z), v.polynomial(z, _COS), half)
        if quarters:
            n = v.on_words("add", n, v.word(quarters))
        odd = v.test("ne", v.on_words("and", n, v.word(1)), v.word(0))
        found = v.choose(odd, cosine, sine)
        sign = v.on_words("shl", v.on_words("and", n, v.word(2)), v.word(62))
        return v.real_of(v.on_words("xor", v.word_of(found), sign)), far

    return write


_WRITERS: Final[dict[str, Callable[..., _Found]]] = {
    "cos": _turned(1),
    "exp": _exp,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "logaddexp": _logaddexp,
    "sin": _turned(0),
    "tanh": _tanh,
}

# ---- functions beside NumPy's loops ----


class VectorFunction(NamedTuple):
    """A function of numbers of one kind, and NumPy's loop for what it leaves out."""

    name: str
    kind: str
    # Address, context and further argument of NumPy's loop.
    function: int
    context: int
    auxdata: int
    owner: Any

    def write(self, code: MachineFunction, lanes: int, values: Sequence[str]) -> str:
        """Write the function for some items; return their values."""
        v = Lanes(code, lanes)
        given, wide = vector(self.kind, lanes), v.reals
        is_wide = self.kind == "double"
        operands = [
            x if is_wide else code.let(f"fpext {given} {x} to {wide}") for x in values
        ]
        found, odd = _WRITERS[self.name](v, *operands)
        if not is_wide:
            found = code.let(f"fptrunc {wide} {found} to {given}")
        result = code.variable(given, found)
        with code.when(v.any(odd)):
            size = 8 if is_wide else 4
            data = code.room("ptr", len(values) + 1)
            rooms = [code.room(given, 1) for _ in range(len(values) + 1)]
            sizes = code.room("i64", len(rooms))
            length = code.room("i64", 1)
            code.store("i64", lanes, length)
            for i, room in enumerate(rooms):
                code.set_word(data, i, room, "ptr")
                code.set_word(sizes, i, size)
            note = f", align {size}"
            for x, room in zip(values, rooms, strict=False):
                code.store(given, x, room, note)
            arguments = (
                f"ptr {pointer(self.context)}, ptr {data}, ptr {length}, "
                f"ptr {sizes}, ptr {pointer(self.auxdata)}"
            )
            # NumPy's loop may lower flags that steps before this one have raised.
            flags = code.room("i32", 1)
            before = read_flags(code, flags)
            code.call("i32", pointer(self.function), arguments)
            raise_flags(code, flags, before)
            right = code.load(given, rooms[-1], note)
            chosen = f"select {v.bits} {odd}, {given} {right}, {given} {found}"
            code.store(given, code.let(chosen), result)
        return code.load(given, result)


@cache
def _vector_function(name: str, dtype: np.dtype[Any]) -> VectorFunction:
    """Return the function of a ufunc for float64 or float32."""
    ufunc: np.ufunc = getattr(np, name)
    loop = loop_for(ufunc, (dtype,) * ufunc.nin)
    kind = "double" if dtype.char == "d" else "float"
    return VectorFunction(
        name, kind, loop.function, loop.context, loop.auxdata, loop.owner
    )


# ---- powers ----

# The steps that make a power by products: "s" squares, "x" multiplies by x; "r" begins with
# 1 / x. These are all that stay within 4 units in the last place.
_CHAINS: Final[dict[float, str]] = {
    -3.0: "rsx",
    -2.0: "rs",
    -1.0: "r",
    1.0: "",
    2.0: "s",
    3.0: "sx",
    4.0: "ss",
    5.0: "ssx",
    6.0: "sxs",
}


def _power(exponent: float) -> NearOperation:
    def write(
        code: MachineFunction, kind: str, lanes: int, values: Sequence[str]
    ) -> str:
        items = vector(kind, lanes)
        base = found = values[0]
        for step in _CHAINS[exponent]:
            if step == "r":
                one = splat(kind, "1.0", lanes)
                base = found = code.let(f"fdiv {items} {one}, {base}")
            else:
                factor = found if step == "s" else base
                found = code.let(f"fmul {items} {found}, {factor}")
        return found

    return write


# ---- loops ----

# Writes the code for some items, given the kind of item, how many there are and the
# operands; returns the values.
NearOperation = Callable[[MachineFunction, str, int, Sequence[str]], str]


class NearLoop(NamedTuple):
    """An inner loop that takes the place of one of NumPy's.

    Attributes
    ----------
    name : str
        Of the operation, for `near_operation`.
    operands : int
        How many of the operands it reads, the first ones.
    loop : InnerLoop
    """

    name: str
    operands: int
    loop: InnerLoop


def near_loop(
    name: str, dtypes: Sequence[np.dtype[Any]], numbers: Sequence[Any]
) -> NearLoop | None:
    """Return the loop to use instead of that of a ufunc; None where NumPy's is as good.

    Parameters
    ----------
    name : str
        Of the ufunc.
    dtypes : sequence of dtype
        Of the operands and the result, as NumPy's loop takes them.
    numbers : sequence
        The operands that are numbers of Python; None for the others.
    """
    char = dtypes[0].char
    if char not in "fd" or any(dtype.char != char for dtype in dtypes):
        return None
    if name == "power":
        exponent = numbers[1]
        if type(exponent) not in (int, float) or exponent not in _CHAINS:
            return None
        name, count = f"near power {float(exponent)}", 1
    elif name in _WRITERS and (char == "d" or name == "logaddexp"):
        # NumPy has good loops of its own for the others with 32 bits.
        name, count = f"near {name}", len(dtypes) - 1
    else:
        return None
    return NearLoop(name, count, _loop(name, char, count))


@cache
def _loop(name: str, char: str, count: int) -> InnerLoop:
    kind, size = ("double", 8) if char == "d" else ("float", 4)
    operation = near_operation(name)
    assert operation is not None

    def body(code: MachineFunction, places: list[str], lanes: int) -> None:
        items, note = vector(kind, lanes), f", align {size}"
        *inputs, target = places
        values = [code.load(items, place, note) for place in inputs]
        code.store(items, operation(code, kind, lanes, values), target, note)

    sizes = (size,) * (count + 1)
    return InnerLoop(elementwise_loop("near", sizes, body, VECTOR_DECLARATIONS))


@cache
def near_operation(name: str) -> NearOperation | None:
    """Return the operation of a name that `near_loop` has given."""
    first, _, rest = name.partition(" ")
    if first != "near":
        return None
    if rest.startswith("power "):
        return _power(float(rest.partition(" ")[2]))

    def write(
        code: MachineFunction, kind: str, lanes: int, values: Sequence[str]
    ) -> str:
        dtype = np.dtype("f8" if kind == "double" else "f4")
        return _vector_function(rest, dtype).write(code, lanes, values)

    return write
