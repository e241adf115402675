"""Polynomials by their coefficients, and their roots.

NumPy leaves out leading zeros of products and remainders. Under vmap these keep their
zeros. A graph is for values with as many zeros as it was made for, see `guesses`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any

import numpy as np
from numpy.polynomial import polynomial

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    Tracer,
    getitem,
    jvp,
    partials,
    register_numpy_function,
    traceable,
    vjp,
)
from customop.numpy.arguments import (
    as_array,
    cast,
    dtype_of,
    has_none,
    is_below,
    is_known,
    is_one,
    is_symbolic,
    larger,
    numpy_refuses,
    shape_of,
    size_of,
    smaller,
    typical,
    value_of,
    warn_user,
    whole,
)
from customop.numpy.fft import convolve
from customop.numpy.guesses import fact, real_values, seen
from customop.numpy.index_operators import constant, numbers
from customop.numpy.rules import (
    batch_first,
    device_of,
    fit,
    is_complex,
    keep_order,
    numpy_operator,
    padded_rows,
    result_dtype,
    sum_of,
    whole_operator,
)

# ---- polynomials by their coefficients, the highest power first ----


def coefficients(p: Any) -> Any:
    """Return the coefficients of a polynomial as an array of one axis or more."""
    array = as_array(p.coeffs if isinstance(p, np.poly1d) else p)
    return np.reshape(array, (1,)) if array.ndim == 0 else array


def _wrapped(value: Any, *given: Any) -> Any:
    """Return a polynomial object where one was given, as in NumPy."""
    return np.poly1d(value) if any(isinstance(p, np.poly1d) for p in given) else value


def _powers_of(highest: int, like: Any, lowest: int = 0) -> Any:
    """Return the numbers from `highest` down to `lowest`."""
    if type(highest) is int:
        return constant(np.arange(highest, lowest - 1, -1), like)
    return highest - numbers(0, highest - lowest + 1, like)


def _zeros_before(name: str, p: Any, most: Any) -> tuple[int, Any]:
    """Return the number of leading zeros, up to a number, and the polynomial.

    A graph is for polynomials that begin with as many zeros. Rows keep theirs.
    """
    _, is_later, is_row = known = seen(p)
    if is_row or (is_later and (most <= 0) is True):
        return 0, p
    value = known.example
    found = 0 if value is None else _zeros_at_start(value, most)
    if not is_later:
        return found, p
    if found == 0:
        flag = np.not_equal(p[0], 0)
    else:
        begins = np.not_equal(p[: found + 1], 0)
        flag = np.equal(begins, np.arange(begins.shape[0]) == found)
        flag = flag[:found] if found == most else flag
    return found, fact(
        flag,
        True,
        f"np.{name}: the length of the result depends on whether the polynomial has"
        f" {found or 'no'} leading zeros",
        "cut leading zeros off before, by a slice of fixed length",
        may_differ=False,
    ).then(p)


def _zeros_at_start(value: Any, most: int) -> int:
    """Return how many zeros an array begins with, up to a number."""
    found = 0
    while found < most and not np.not_equal(value[found], 0):
        found += 1
    return found


# ---- values: np.polyval ----


def _horner(p: Any, x: Any) -> Any:
    """Evaluate polynomials; their axes behind the first one are broadcast."""
    y = np.zeros_like(x)
    for i in range(p.shape[0]):
        y = y * x + p[i]
    return y


polyval: Operator[..., Any] = numpy_operator(
    "polyval", "(Array p, Array x) -> Array", _horner
)

# Powers of larger numbers leave differences few digits.
polyval.register_sample_inputs(
    lambda: [
        (np.array([1.4]), np.array(0.6)),
        (np.array([0.8, 2.3, -0.6]), np.array([0.7, -0.3])),
        (np.array([[0.8, 2.3], [-0.6, 1.1]]), np.array([[0.7, -0.3]])),
    ]
)


@polyval.register_fake
def _(p: Any, x: Any) -> FakeArray:
    if is_known(p.shape[0], 0):
        return keep_order([x], x.dtype)
    each = FakeArray(p.shape[1:], p.dtype, p.strides[1:])
    power = result_dtype(np.multiply, (x.dtype, x.dtype))
    return keep_order([x, each], result_dtype(np.add, (power, p.dtype)))


def slopes(p: Any) -> Any:
    """Return the coefficients of the derivative."""
    turn = _powers_of(p.shape[0] - 1, p, 1)
    return p[:-1] * np.reshape(turn, (-1, *(1,) * (p.ndim - 1)))


def _polyval_by_p(g: Any, shape: Sequence[int], x: Any) -> Any:
    count, inner = shape[0], len(shape) - 1
    wide = np.broadcast_to(x, g.shape)
    exponents = np.reshape(_powers_of(count - 1, wide), (-1, *(1,) * wide.ndim))
    found = g * wide**exponents
    return np.sum(found, tuple(range(1, 1 + g.ndim - inner)))


polyval.register_autograd(
    partials(
        {
            "p": (_polyval_by_p, ["p_shape", "x"]),
            "x": lambda g, p, x: g * polyval(slopes(p), x),
        }
    )
)


@polyval.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (p, x), (tp, tx) = primals, tangents
    y = polyval(p, x)
    parts = [] if tp is None else [np.broadcast_to(polyval(tp, x), y.shape)]
    if tx is not None:
        parts.append(np.broadcast_to(tx * polyval(slopes(p), x), y.shape))
    return y, sum_of(parts, y)


@polyval.register_vmap
def _(info: Any, in_dims: Any, p: Any, x: Any) -> Any:
    dim_p, dim_x = in_dims
    rank = max(p.ndim - 1 - (dim_p is not None), x.ndim - (dim_x is not None))
    if dim_x is not None:
        x = padded_rows(batch_first(x, dim_x), rank)
    if dim_p is not None:
        rows = np.moveaxis(p, dim_p, 1)
        ones = (1,) * (rank - (rows.ndim - 2))
        p = np.reshape(rows, (*rows.shape[:2], *ones, *rows.shape[2:]))
    if dim_x is None and dim_p is not None:
        x = np.broadcast_to(x, (info.batch_size, *(1,) * (rank - x.ndim), *x.shape))
    return polyval(p, x), 0


@register_numpy_function(np.polyval)
def _(p: Any, x: Any) -> Any:
    if not isinstance(x, np.poly1d):
        if not shape_of(p) and not isinstance(p, np.poly1d | list | tuple):
            raise TypeError("np.polyval: iteration over a 0-d array")
        return polyval(coefficients(p), as_array(x))
    y: Any = 0
    for each in coefficients(p):
        y = y * x + each
    return y


# ---- sums, products, quotients ----


def _aligned(a1: Any, a2: Any) -> tuple[Any, Any]:
    """Return two polynomials with as many coefficients."""
    p, q = coefficients(a1), coefficients(a2)
    count = larger(p.shape[0], q.shape[0])
    return _lengthened(p, count), _lengthened(q, count)


def _lengthened(p: Any, count: int) -> Any:
    """Return a polynomial with zeros before it, to so many coefficients."""
    missing = count - p.shape[0]
    return p if is_known(missing, 0) else np.pad(p, (missing, 0))


@register_numpy_function(np.polyadd)
def _(a1: Any, a2: Any) -> Any:
    p, q = _aligned(a1, a2)
    return _wrapped(p + q, a1, a2)


@register_numpy_function(np.polysub)
def _(a1: Any, a2: Any) -> Any:
    p, q = _aligned(a1, a2)
    return _wrapped(p - q, a1, a2)


@register_numpy_function(np.polymul)
def _(a1: Any, a2: Any) -> Any:
    p, q = coefficients(a1), coefficients(a2)
    zeros, p = _zeros_before("polymul", p, p.shape[0] - 1)
    more, q = _zeros_before("polymul", q, q.shape[0] - 1)
    # Cut from the product: what is left has a derivative by leading zeros, too.
    return _wrapped(convolve(p, q, "full")[zeros + more :], a1, a2)


@register_numpy_function(np.polydiv)
def _(u: Any, v: Any) -> Any:
    p, q = coefficients(u) + 0.0, coefficients(v) + 0.0
    quotient, whole = _divide(p, q)
    rest = _cut_remainder(whole, p.shape[0], q.shape[0])
    return _wrapped(quotient, u, v), _wrapped(rest, u, v)


def _cut_remainder(whole: Any, count: Any, by: Any) -> Any:
    """Leave out what NumPy does of a remainder: numbers near 0 before the last one."""
    kept = smaller(count, larger(by - 1, 1))
    known = seen(whole)
    if isinstance(known.example, np.ndarray):
        is_small = np.isclose(known.example, 0, rtol=1e-14)
        kept = count - _zeros_at_start(~is_small, count - 1)
    found = whole[count - kept :]
    if not known.is_later or known.is_row:
        return found
    is_near = np.isclose(whole, 0, rtol=1e-14)
    starts_so = np.all(is_near[: count - kept])
    # NumPy leaves one coefficient in any case.
    is_last = is_one(kept) if type(kept) is int else np.equal(as_array(kept), 1)
    has_more = np.logical_or(np.logical_not(is_near[count - kept]), is_last)
    return fact(
        np.logical_and(starts_so, has_more),
        True,
        "np.polydiv: the length of the remainder depends on whether it has"
        f" {kept} coefficients that are not near 0",
        "compute (u - np.convolve(v, q))[-n:], which has n coefficients",
        may_differ=False,
    ).then(found)


def _divide_steps(p: Any, q: Any) -> tuple[Any, Any]:
    """Return the quotient, and the remainder with as many coefficients as `p`."""
    if is_symbolic((p.shape[0], q.shape[0])):
        return _divided(p, q)
    dtype = np.result_type(dtype_of(p), dtype_of(q))
    rest, scale = cast(p, dtype), 1.0 / q[0]
    count = q.shape[0]
    factors, left = [], []
    for _ in range(p.shape[0] - count + 1):
        factor = scale * rest[0]
        taken = rest[:count] - factor * q
        factors.append(factor)
        left.append(taken[:1])
        rest = np.concatenate([taken[1:], rest[count:]])
    quotient = np.stack(factors) if factors else np.zeros_like(rest, shape=(1,))
    return quotient, np.concatenate([*left, rest])


def _divide_kernel(p: Any, q: Any) -> tuple[Any, Any]:
    """Divide in place, by the steps of NumPy."""
    count, dtype = q.shape[0], np.result_type(p.dtype, q.dtype)
    scale, rest = 1.0 / q[0], p.astype(dtype)
    quotient = np.zeros(max(p.shape[0] - count + 1, 1), dtype)
    for k in range(p.shape[0] - count + 1):
        quotient[k] = factor = scale * rest[k]
        rest[k : k + count] -= factor * q
    return quotient, rest


_divide = whole_operator(
    "polydiv",
    "(Array p, Array q) -> (Array quotient, Array rest)",
    _divide_steps,
    _divide_kernel,
)


# With p = s * q + r, where * is the product of polynomials, the tangents of s and r are
# quotient and remainder of p' - s * q'. The transpose of a division is one, too: its
# polynomials run backward. So graphs for any sizes have the bits of those for one.


# Arrays of other kinds run the body of the operator, and so do its derivatives.


def _has_products(x: Any) -> bool:
    return str(device_of(x)).partition(":")[0] in ("cpu", "cuda")


def _note_division(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs, output[0])


def _divide_backward(ctx: Any, by_quotient: Any, by_rest: Any) -> tuple[Any, Any]:
    p, q, quotient = ctx.saved_arrays
    if not _has_products(p):
        found: tuple[Any, Any] = vjp(_divide_steps, p, q)[1]((by_quotient, by_rest))
        return found
    count, degree = by_rest.shape[0], larger(q.shape[0] - 1, 0)
    steps = larger(count - degree, 0)

    def part(x: Any, start: Any, length: Any) -> Any:
        return getitem(x, _counted_up(start, start + length, by_rest, q))

    moved = part(convolve(by_rest, q[::-1], "full"), degree, steps)
    turned = (part(by_quotient, 0, steps) - moved)[::-1]
    first = part(_divide(np.pad(turned, (0, degree)), q)[0], 0, steps)
    by_p = by_rest + np.pad(first[::-1], (0, count - steps))
    taken = convolve(by_p, quotient[::-1], "full")
    taken = np.pad(taken, (0, larger(degree + 1 - count, 0)))
    by_q = -part(taken, quotient.shape[0] - 1, q.shape[0])
    return fit(by_p, p), fit(by_q, q)


_divide.register_autograd(_divide_backward, setup_context=_note_division)


@_divide.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    p, q = primals
    moved, by_q = tangents
    if not _has_products(p):
        pairs = zip(primals, tangents, strict=True)
        given = tuple(np.zeros_like(x) if t is None else t for x, t in pairs)
        return jvp(_divide_steps, (p, q), given)
    quotient, rest = _divide(p, q)
    if by_q is not None:
        taken = convolve(quotient, by_q, "full")
        part = taken[taken.shape[0] - p.shape[0] :]
        moved = -part if moved is None else moved - part
    return (quotient, rest), tuple(map(fit, _divide(moved, q), (quotient, rest)))


def _divided(p: Any, q: Any) -> tuple[Any, Any]:
    """Divide polynomials of any sizes: the first coefficients are a linear system."""
    count, degree = p.shape[0], q.shape[0] - 1
    steps = larger(count - degree, 0)
    place = _counted_up(0, steps, p, q)
    shift = place[:, None] - place
    is_met = (shift >= 0) & (shift <= degree)
    matrix = np.where(is_met, getitem(q, np.where(is_met, shift, 0)), 0.0)
    first = np.linalg.solve(matrix, getitem(p, place))
    # The quotient of a polynomial of smaller degree is [0].
    quotient = np.pad(first, (0, larger(1 - steps, 0)))
    taken = convolve(quotient, q, "full")
    before = taken.shape[0] - count
    return quotient, p - getitem(taken, _counted_up(before, before + count, p, q))


def _counted_up(start: Any, stop: Any, p: Any, q: Any) -> Any:
    """Return the numbers of a range, traced as one of two polynomials is."""
    return numbers(start, stop, p if isinstance(p, Tracer | FakeArray) else q)


# ---- derivatives and integrals ----


@register_numpy_function(np.polyder)
def _(p: Any, m: Any = 1) -> Any:
    m = int(m)
    if m < 0:
        numpy_refuses(np.polyder, [0.0], m, do="call np.polyint(p, m) for integrals")
    found = coefficients(p)
    for _ in range(m):
        found = slopes(found)
    return _wrapped(found, p)


@register_numpy_function(np.polyint)
def _(p: Any, m: Any = 1, k: Any = None) -> Any:
    m = int(m)
    if m < 0:
        numpy_refuses(np.polyint, [0.0], m, do="call np.polyder(p, m) for derivatives")
    found = coefficients(p)
    constants = _constants(k, m, found)
    for i in range(m):
        powers = _powers_of(found.shape[0], found, 1)
        found = np.concatenate([found / powers, constants[i, None]])
    return _wrapped(found, p)


def _constants(k: Any, m: int, like: Any) -> Any:
    """Return the constant of each integration."""
    if k is None:
        return constant(np.zeros(m, int), like).astype(np.float64)
    given = np.reshape(as_array(k), (-1,))
    if is_one(given.shape[0]):
        return np.broadcast_to(given, (max(m, 1),))
    if is_below(given.shape[0], m):
        numpy_refuses(
            np.polyint, [0.0], m, given, do="give a constant for each integration"
        )
    return given


# ---- roots ----


def _roots(p: Any, skipped: int) -> Any:
    """Return the roots of polynomials along the last axis, as complex numbers."""
    shape = (*p.shape[:-1], p.shape[-1] - 1 - skipped)
    dtype = _root_dtype(p.dtype)
    if p.ndim == 1:
        return _counted(np.roots(p[skipped:]), shape[-1]).astype(dtype)
    found = np.zeros_like(p, shape=shape, dtype=dtype, order="C")
    for row in np.ndindex(p.shape[:-1]):
        found[row] = _counted(np.roots(p[row]), shape[-1])
    return found


def _counted(roots: Any, count: int) -> Any:
    """Raise for a row that has a root less than its length says."""
    if roots.shape[0] != count:
        raise ShapeError(
            f"np.roots: a polynomial has {roots.shape[0]} roots, not {count}, since it"
            " begins with zeros",
            do="leave out leading zeros: rows need as many roots each",
        )
    return roots


def _root_dtype(dtype: Any) -> Any:
    """Return the complex dtype of roots."""
    return np.result_type(dtype if dtype.kind in "fc" else np.float64, np.complex64)


roots: Operator[..., Any] = numpy_operator(
    "roots",
    "(Array p, int skipped) -> Array",
    _roots,
    device_types=("cpu", "cuda"),
)


@roots.register_fake
def _(p: Any, skipped: int) -> FakeArray:
    shape = (*p.shape[:-1], larger(p.shape[-1] - 1 - skipped, 0))
    return FakeArray(shape, _root_dtype(p.dtype), device=device_of(p))


@roots.register_vmap
def _(info: Any, in_dims: Any, p: Any, skipped: int) -> Any:
    return roots(batch_first(p, in_dims[0]), skipped), 0


roots.register_sample_inputs(
    lambda: [
        (np.array([1.4, -0.7]), 0),
        (np.array([0.8, 2.3, -0.6]), 0),
        (np.array([0.9, -0.4, 1.2, 1.9]), 0),
    ]
)


def _moved_by(t: Any, p: Any, y: Any) -> Any:
    """Return minus the value of `t` over the slope of `p` at the roots.

    A root moves by -t(y) / p'(y). A root that is met twice has no derivative: the slope
    is 0 there.
    """
    first, slope = (np.expand_dims(np.moveaxis(c, -1, 0), -1) for c in (t, p))
    return -polyval(first, y) / polyval(slopes(slope), y)


def _roots_pull(g: Any, p: Any, out: Any) -> Any:
    slope = np.expand_dims(np.moveaxis(p, -1, 0), -1)
    share = -g / polyval(slopes(slope), out)
    powers = np.expand_dims(out, -1) ** _powers_of(p.shape[-1] - 1, out)
    return np.matmul(np.expand_dims(share, -2), powers)[..., 0, :]


roots.register_autograd(partials({"p": _roots_pull}))


@roots.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    y = roots(*primals)
    return y, fit(_moved_by(tangents[0], primals[0], y), y)


@register_numpy_function(np.roots)
def _(p: Any) -> Any:
    p = coefficients(p)
    if p.ndim != 1:
        numpy_refuses(np.roots, p, do="use customop.vmap for rows")
    value = value_of(p)
    if value is None:
        return _later_roots(p)
    length = int(p.shape[0])
    before = _zeros_at_start(value, length)
    after = _zeros_at_start(np.flip(value), length - before)
    if before >= length - 1:
        return np.zeros_like(p, shape=(0,), dtype=np.float64)
    found = roots(p, before)
    if before + after == length - 1:
        # Roots at 0 only; NumPy makes them in double precision.
        return cast(np.real(found), np.dtype(np.float64))
    if is_complex(p) or np.any(np.not_equal(value_of(found).imag, 0)):
        return found
    return found.real


def _later_roots(p: Any) -> Any:
    """Return the roots of a polynomial whose coefficients are not known."""
    if has_none(p.shape):
        return np.zeros_like(p, dtype=np.float64)
    before, p = _zeros_before("roots", p, p.shape[0])
    if is_below(p.shape[0] - before, 2):
        return np.zeros_like(p, shape=(0,), dtype=np.float64)
    if _root_dtype(dtype_of(p)) != np.complex128 or is_complex(p):
        has_more = fact(
            np.any(np.not_equal(p[before + 1 :], 0)),
            True,
            "np.roots: the dtype of the result depends on whether a root is not 0",
            "cut zeros at the end off before, by a slice of fixed length",
            may_differ=False,
        )
        p = has_more.then(p)
        if not has_more.is_so:
            return cast(np.real(roots(p, before)), np.dtype(np.float64))
    found = roots(p, before)
    if is_complex(p):
        return found
    are_real = real_values("np.roots", found, "np.roots(p + 0j)")
    found = are_real.then(found)
    # NumPy joins real ones to as many zeros as there are at the end.
    return np.copy(np.real(found)) if are_real.is_so else found


def _multiply_factors(zeros: Any) -> Any:
    found = np.ones_like(zeros, shape=(1,))
    for i in range(zeros.shape[0]):
        # Not times a padded array: nan times 0 is nan.
        found = np.pad(found, (0, 1)) - np.pad(zeros[i] * found, (1, 0))
    return found


def _convolve_factors(zeros: Any) -> Any:
    """Multiply by the steps of NumPy, which have other last bits for complex numbers."""
    found = np.ones(1, zeros.dtype)
    for zero in zeros:
        found = np.convolve(found, np.array([1, -zero], zeros.dtype))
    return found


_with_zeros = whole_operator(
    "with_zeros", "(Array zeros) -> Array", _multiply_factors, _convolve_factors
)
# Few zeros: coefficients of many overflow in half precision, in which NumPy has none.
_with_zeros.register_sample_inputs(
    lambda: [
        (np.array([1.4]),),
        (np.array([0.8, 2.3, -0.6]),),
        (np.array([0.9, -0.4, 1.2, 1.9]),),
        (np.array([0.9 + 1.1j, -0.4 - 0.3j]),),
    ]
)


@register_numpy_function(np.poly)
def _(seq_of_zeros: Any) -> Any:
    zeros = coefficients(seq_of_zeros)
    shape = tuple(zeros.shape)
    is_real = len(shape) == 2 and not is_complex(zeros)
    if len(shape) == 2 and shape[0] == shape[1] and not is_known(shape[0], 0):
        zeros = np.linalg.eigvals(zeros)
    elif len(shape) != 1:
        numpy_refuses(np.poly, zeros, do="give zeros, or a matrix")
    else:
        zeros = cast(zeros, np.dtype(np.mintypecode(dtype_of(zeros).char)))
    if is_known(zeros.shape[0], 0):
        return 1.0
    found = _with_zeros(zeros)
    if not is_complex(found):
        return found
    if is_real:  # complex eigenvalues of a real matrix come in pairs
        return np.copy(np.real(found))
    are_paired = fact(
        np.equal(np.sort(zeros), np.sort(np.conjugate(zeros))),
        False,
        "np.poly: the dtype of the result depends on whether all of its zeros come with"
        " their conjugates",
        "multiply by np.convolve, whose results are complex for all values",
    )
    found = are_paired.then(found)
    return np.copy(np.real(found)) if are_paired.is_so else found


# ---- fits ----


@register_numpy_function(np.vander)
def _vander(x: Any, N: Any = None, increasing: bool = False) -> Any:  # noqa: N803  # NumPy's name
    x = as_array(x)
    if x.ndim != 1:
        numpy_refuses(np.vander, x, do="use customop.vmap for rows")
    count = x.shape[0] if N is None else whole(N)
    if is_below(count, 0):
        numpy_refuses(np.vander, [0.0], count, do="give a number of columns")
    return _columns(
        cast(x, np.promote_types(dtype_of(x), int)), count, bool(increasing)
    )


def _columns_of_powers(x: Any, count: Any, increasing: bool) -> Any:
    powers = _powers_of(count - 1, x)
    return np.expand_dims(x, 1) ** (powers[::-1] if increasing else powers)


_columns = whole_operator(
    "vander",
    "(Array x, int count, bool increasing) -> Array",
    _columns_of_powers,
    lambda x, count, increasing: np.vander(x, count, increasing),
)


@register_numpy_function(np.polyfit)
def _(
    x: Any,
    y: Any,
    deg: Any,
    rcond: Any = None,
    full: bool = False,
    w: Any = None,
    cov: Any = False,
) -> Any:
    x, y = as_array(x) + 0.0, as_array(y) + 0.0
    count = size_of(deg) + 1
    _check_points(x, y, count)
    if rcond is None:
        eps: Any = np.finfo(dtype_of(x)).eps
        rcond = x.shape[0] * (eps if type(x.shape[0]) is int else float(eps))
    columns, sides = _vander(x, count), y
    if w is not None:
        w = np.expand_dims(_checked_weights(w, y), 1)
        columns, sides = columns * w, sides * (w if y.ndim == 2 else w[:, 0])
    scale = np.sqrt(np.sum(columns * columns, 0))
    columns = columns / scale
    c, misses, rank, s = np.linalg.lstsq(columns, sides, rcond)
    c = (c.T / scale).T
    known = value_of(rank)
    if known is not None and known != count and not full:
        warn_user("Polyfit may be poorly conditioned", np.exceptions.RankWarning)
    if full:
        return c, misses, rank, s, rcond
    return (c, _covariance(columns, scale, misses, x, y, cov)) if cov else c


def _check_points(x: Any, y: Any, count: int) -> None:
    """Return raise, in NumPy's words, for points that have no fit."""
    is_wrong = is_below(count, 1) or x.ndim != 1 or y.ndim not in (1, 2)
    if is_wrong or is_known(x.shape[0], 0) or x.shape[0] != y.shape[0]:
        numpy_refuses(np.polyfit, x, y, count - 1)


def _checked_weights(w: Any, y: Any) -> Any:
    w = as_array(w) + 0.0
    if w.ndim != 1 or w.shape[0] != y.shape[0]:
        numpy_refuses(np.polyfit, y, y, 0, w=w)
    return w


def _covariance(columns: Any, scale: Any, misses: Any, x: Any, y: Any, cov: Any) -> Any:
    """Return the covariance of the coefficients."""
    count = scale.shape[0]
    base = np.linalg.inv(np.matmul(columns.T, columns)) / np.outer(scale, scale)
    factor: Any = 1
    if not (isinstance(cov, str) and cov == "unscaled"):
        if is_below(x.shape[0], count + 1):
            line = np.arange(float(typical([x.shape[0]])[0]))
            instead = 'give more points, or cov="unscaled"'
            numpy_refuses(np.polyfit, line, line, count - 1, cov=True, do=instead)
        factor = misses / (x.shape[0] - count)
    return base * factor if y.ndim == 1 else np.expand_dims(base, 2) * factor


# ---- functions of numpy.polynomial that NumPy hands over ----
# Polyval2d, polygrid2d, polyvalnd.
#
# NumPy's own code runs, since it is made of other functions that have operators. All
# other functions of numpy.polynomial are called through `customop.traceable`.


for _name in ("polyval2d", "polygrid2d", "polyvalnd"):
    _function = getattr(polynomial, _name, None)  # polyvalnd is new in NumPy 2.5
    # Before NumPy 2.2 they were plain functions, which nobody else sees.
    if _function is not None and not isinstance(_function, FunctionType):
        register_numpy_function(_function, traceable(_function))
