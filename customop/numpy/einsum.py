"""The operator einsum."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    ShapeError,
    custom_op,
    fake_like,
    register_numpy_function,
)
from customop.numpy.arguments import (
    OF_NUMPY,
    as_array,
    as_dtype,
    as_order,
    broadcast,
    cast,
    copied,
    dtype_of,
    in_c_order,
    is_one,
    refuse,
    same_shape,
    spread,
    typical,
)
from customop.numpy.arrange import writable_diagonal
from customop.numpy.create import eye
from customop.numpy.matrices import transposed
from customop.numpy.rules import fit, order_of, sum_of

# string.ascii_letters, without the import of that module.
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@custom_op(
    "np::einsum",
    mutates_args=(),
    schema="(str subscripts, Array[] operands, bool optimize=False) -> Array",
)
def einsum(subscripts: str, operands: Any, optimize: bool = False) -> Any:
    out = np.einsum(subscripts, *operands, optimize=optimize)
    if not out.shape:
        return out  # a scalar
    # NumPy may return a view of one operand.
    if len(operands) == 1:
        return copied(out, "C")
    return in_c_order(out) if optimize else out


@lru_cache(maxsize=1024)

# ---- the operator, its fake kernel and its rules ----


def _terms(subscripts: str, ranks: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """Return the letters of operands and result, with letters for each ellipsis."""
    text = subscripts.replace(" ", "")
    given, arrow, result = text.partition("->")
    terms = given.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(
            f"np.einsum: '{subscripts}' names {len(terms)} operands, got {len(ranks)}",
            do="give a term for each operand",
        )
    spare = _spare_letters(text)
    counts = [r - len(t.replace("...", "")) for t, r in zip(terms, ranks, strict=True)]
    wide = spare[
        : max((n for t, n in zip(terms, counts, strict=True) if "..." in t), default=0)
    ]
    for term, count in zip(terms, counts, strict=True):
        if count < 0 or (count and "..." not in term):
            raise ShapeError(
                f"np.einsum: '{term}' in '{subscripts}' does not fit an operand of"
                f" {count + len(term.replace('...', ''))} axes",
                do="name each axis once, or write '...' for the rest",
            )
    pairs = zip(terms, counts, strict=True)
    full = tuple(t.replace("...", wide[len(wide) - max(n, 0) :]) for t, n in pairs)
    if arrow:
        return full, result.replace("...", wide)
    letters = given.replace("...", "").replace(",", "")
    return full, wide + "".join(sorted(c for c in letters if letters.count(c) == 1))


def _spare_letters(text: str) -> str:
    return "".join(c for c in _LETTERS if c not in text)


def _ranks(operands: Sequence[Any]) -> tuple[int, ...]:
    return tuple([len(x.shape) for x in operands])


def _joined(terms: Sequence[str], result: str) -> str:
    return f"{','.join(terms)}->{result}"


@einsum.register_fake
def _(subscripts: Any, operands: Any, optimize: Any) -> FakeArray:
    terms, result = _terms(subscripts, _ranks(operands))
    lengths: dict[str, Any] = {}
    for term, x in zip(terms, operands, strict=True):
        own: dict[str, Any] = {}
        for letter, length in zip(term, x.shape, strict=True):
            if own.setdefault(letter, length) != length:
                raise _unequal(letter, subscripts, own[letter], length)
            known = lengths.setdefault(letter, length)
            if known is not length:
                lengths[letter] = _joint(known, length, letter, subscripts)
    dtype = np.result_type(*(x.dtype for x in operands))
    shape = [lengths[letter] for letter in result]
    if optimize or len(operands) == 1:
        return FakeArray(shape, dtype, device=fake_like(operands[0]).device)
    return _in_order_of(operands, terms, result, lengths, dtype)


def _in_order_of(
    operands: Sequence[Any],
    terms: Sequence[str],
    result: str,
    lengths: dict[str, Any],
    dtype: Any,
) -> FakeArray:
    """Return a result whose axes lie in memory in the order that fits the operands.

    NumPy goes over the letters of the result, then over those that are summed, as over
    the axes of an elementwise operation. Source: ``order="K"`` in `numpy.einsum`.
    """
    summed = sorted({c for term in terms for c in term} - {*result})
    letters = [*result, *summed]
    strides = [
        _steps(x, term, letters) for x, term in zip(operands, terms, strict=True)
    ]
    own = [at for at in order_of(len(letters), tuple(strides)) if at < len(result)]
    shape = [lengths[c] for c in result]
    device = fake_like(operands[0]).device
    return FakeArray(shape, dtype, device=device, order=own)


def _steps(x: Any, term: str, letters: Sequence[str]) -> tuple[int, ...]:
    """Return the stride of an operand along each letter; 0 where it has one element."""
    steps = dict.fromkeys(letters, 0)
    for letter, n, step in zip(term, typical(x.shape), typical(x.strides), strict=True):
        steps[letter] += 0 if n == 1 else step
    return tuple(steps.values())


def _joint(known: Any, length: Any, letter: str, subscripts: str) -> Any:
    """Return the length of a letter in the result, of those of two axes."""
    try:
        return broadcast((known,), (length,))[0]
    except ValueError:
        raise _unequal(letter, subscripts, known, length) from None


def _unequal(letter: str, subscripts: str, first: int, second: int) -> ShapeError:
    return ShapeError(
        f"np.einsum: '{letter}' in '{subscripts}' is {first} and {second} long",
        do="use one letter only for axes of one length",
    )


def _note_einsum(ctx: Any, inputs: Any, output: Any) -> None:
    subscripts, operands, ctx.optimize = inputs
    ctx.terms, ctx.result = _terms(subscripts, _ranks(operands))
    ctx.save_for_backward(*operands)


def _einsum_backward(ctx: Any, g: Any) -> tuple[Any, ...]:
    operands = ctx.saved_arrays
    grads = [
        fit(_operand_grad(g, i, operands, ctx), x) if asked else None
        for i, (x, asked) in enumerate(
            zip(operands, ctx.needs_input_grad[1], strict=True)
        )
    ]
    return None, grads, None


def _operand_grad(g: Any, index: int, operands: Sequence[Any], ctx: Any) -> Any:
    """Return the gradient of one operand: an einsum of the cotangent and the others.

    It is broadcast along letters that nothing else has, and lies on the diagonal for a
    letter that the operand repeats.
    """
    term, x = ctx.terms[index], operands[index]
    text, reached, letters = _pulled(ctx.terms, ctx.result, index)
    arrays = [g, *operands[:index], *operands[index + 1 :]]
    if len(arrays) > 1:
        found = _of_several(text, arrays, ctx.optimize)
    elif text == f"{ctx.result}->{ctx.result}":
        (found,) = arrays
    else:
        found = einsum.run(text, arrays, ctx.optimize)
    if reached == term and (
        (found.shape == x.shape) is True or same_shape(found.shape, x.shape)
    ):
        return found
    return _on_diagonal(_filled(found, reached, letters, term, x), letters, term)


def _of_several(text: str, arrays: Sequence[Any], optimize: bool) -> Any:
    """Compute an einsum of several arrays, by faster functions if there are any."""
    keys = _product_keys(text)
    if keys is None:
        if len(arrays) == 2:
            return _by_matmul(text, arrays, optimize)
        return einsum.run(text, arrays, optimize)
    found = _placed(arrays[0], *keys[0])
    for x, key in zip(arrays[1:], keys[1:], strict=True):
        found = np.multiply(found, _placed(x, *key))
    return found


def _placed(x: Any, axes: Any, key: Any) -> Any:
    """Return an array with its axes in an order, and new ones where a key has None."""
    if axes is not None:
        x = np.transpose(x, axes)
    if key is None:
        return x
    if type(x) is np.ndarray:
        return x[key]
    return np.expand_dims(x, tuple([i for i, k in enumerate(key) if k is None]))


@lru_cache(maxsize=1024)
def _product_keys(text: str) -> list[Any] | None:
    """Return how the operands become arrays to multiply, if that is all; or None.

    Then no letter is summed or repeated. For each operand the order of its axes, and a key
    that adds those of the result which it lacks; None where it stays as it is.
    """
    given, _, result = text.partition("->")
    found = []
    for term in given.split(","):
        turned = "".join([c for c in result if c in term])
        if len(turned) != len(term) or {*turned} != {*term}:
            return None
        axes = None if turned == term else tuple([term.index(c) for c in turned])
        own = result[len(result) - len(result.lstrip("".join({*result} - {*term}))) :]
        key = tuple([slice(None) if c in term else None for c in own])
        found.append((axes, key if None in key else None))
    return found


def _by_matmul(text: str, arrays: Sequence[Any], optimize: bool) -> Any:
    """Compute an einsum of two arrays, as a product of matrices if it is one.

    That takes a tenth of the time for matrices of 100 rows, and sums in another order.
    """
    is_of_blas = dtype_of(arrays[0]).char in "fdFD"
    if not is_of_blas or arrays[0].dtype != arrays[1].dtype:
        return einsum.run(text, arrays, optimize)
    turns = _matrix_turns(text)
    if turns is None:
        return _by_tensordot(text, arrays, optimize)
    first, second = (
        transposed(x) if t else x for x, t in zip(arrays, turns[:2], strict=True)
    )
    if not same_shape(first.shape[-1:], second.shape[-2:-1]):
        return einsum.run(text, arrays, optimize)
    if not turns[2]:
        return np.matmul(first, second)
    # The transposed product is that of the transposed matrices in the other order.
    return np.matmul(transposed(second), transposed(first))


def _by_tensordot(text: str, arrays: Sequence[Any], optimize: bool) -> Any:
    """Compute an einsum of two arrays without a common batch as `numpy.tensordot`."""
    plan = _summed_axes(text)
    if plan is None:
        return einsum.run(text, arrays, optimize)
    first, second = arrays
    axes, order = plan
    lengths = (
        tuple([x.shape[i] for i in at]) for x, at in zip(arrays, axes, strict=True)
    )
    if not same_shape(*lengths):
        return einsum.run(text, arrays, optimize)
    found = np.tensordot(first, second, axes)
    return found if order is None else np.transpose(found, order)


@lru_cache(maxsize=1024)
def _summed_axes(text: str) -> tuple[tuple[list[int], list[int]], Any] | None:
    """Return the summed axes of both operands and the order of the axes left; or None.

    Each letter is in two of both terms and the result, and in no term twice.
    """
    given, _, result = text.partition("->")
    first, second = given.split(",")
    letters = first + second + result
    if any(len({*term}) < len(term) for term in (first, second, result)):
        return None
    if any(letters.count(c) != 2 for c in letters) or not {*first} & {*second}:
        return None
    summed = [c for c in first if c in second]
    left = [c for c in first + second if c not in summed]
    order = tuple([left.index(c) for c in result])
    axes = [first.index(c) for c in summed], [second.index(c) for c in summed]
    return axes, None if order == (*range(len(order)),) else order


@lru_cache(maxsize=1024)
def _matrix_turns(text: str) -> tuple[bool, bool, bool] | None:
    """Return which of both factors and the result to transpose; or None.

    The letters of a batch come first, in one order; one letter more is summed, and one of
    each operand is left.
    """
    given, _, result = text.partition("->")
    first, second = given.split(",")
    terms = (first, second, result)
    if any(len(set(term)) < len(term) or len(term) < 2 for term in terms):
        return None
    if len({term[:-2] for term in terms}) > 1:
        return None
    shared = {*first[-2:]} & {*second[-2:]}
    if len(shared) != 1 or shared & {*result}:
        return None
    is_turned = first[-2] in shared, second[-1] in shared
    row, column = first[-1 if is_turned[0] else -2], second[-2 if is_turned[1] else -1]
    if {*result[-2:]} != {row, column}:
        return None
    return *is_turned, result[-2:] != row + column


@lru_cache(maxsize=1024)
def _pulled(terms: tuple[str, ...], result: str, index: int) -> tuple[str, str, str]:
    """Return the subscripts of an operand's gradient, its letters, and all of them."""
    others = [*terms[:index], *terms[index + 1 :]]
    known = set("".join([result, *others]))
    letters = "".join(dict.fromkeys(terms[index]))
    reached = "".join(c for c in letters if c in known)
    return _joined([result, *others], reached), reached, letters


def _filled(found: Any, reached: str, letters: str, term: str, x: Any) -> Any:
    """Broadcast a gradient with missing axes to the operand."""
    own = [x.shape[term.index(c)] for c in letters]
    if not reached and isinstance(found, OF_NUMPY):  # a third of the time
        return spread(found, tuple(own), None, keepdims=True)
    lengths = dict(zip(reached, found.shape, strict=True))
    wide = np.reshape(found, [lengths.get(c, 1) for c in letters])
    shape = [m if is_one(n) else n for m, n in zip(wide.shape, own, strict=True)]
    if same_shape(wide.shape, shape):
        return wide
    return spread(wide, tuple(shape), None, keepdims=True)


def _on_diagonal(found: Any, letters: str, term: str) -> Any:
    """Spread a gradient over the axes of repeated letters, zero off the diagonal."""
    if letters == term:
        return found
    spare = iter(_spare_letters(term))
    terms, arrays, result = [letters], [found], ""
    for letter in term:
        if letter not in result:
            result += letter
            continue
        twin = next(spare)
        length = found.shape[letters.index(letter)]
        device = fake_like(found).device
        terms.append(letter + twin)
        arrays.append(eye(length, None, 0, found.dtype, device))
        result += twin
    return einsum(_joined(terms, result), arrays)


einsum.register_autograd(_einsum_backward, setup_context=_note_einsum)


@einsum.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    subscripts, operands, optimize = primals
    y = einsum(subscripts, operands, optimize)
    parts = []
    for i, t in enumerate(tangents[1]):
        if t is not None:
            moved = [*operands[:i], t, *operands[i + 1 :]]
            parts.append(einsum(subscripts, moved, optimize))
    return y, sum_of(parts, y)


@einsum.register_vmap
def _(info: Any, in_dims: Any, subscripts: Any, operands: Any, optimize: Any) -> Any:
    dims = in_dims[1]
    pairs = list(zip(operands, dims, strict=True))
    ranks = tuple(len(x.shape) - (d is not None) for x, d in pairs)
    terms, result = _terms(subscripts, ranks)
    batch = _spare_letters("".join(terms))[0]
    batched = [
        t if d is None else t[:d] + batch + t[d:]
        for t, d in zip(terms, dims, strict=True)
    ]
    text = _joined(batched, batch + result)
    if len(operands) == 2:
        # One product of matrices for all rows, where they meet one.
        return _by_matmul(text, operands, optimize), 0
    return einsum(text, operands, optimize), 0


# ---- the arguments of np.einsum ----

# The letter of each number in a list of axes, in the order in which NumPy sorts them.
_NUMBERED = _LETTERS[26:] + _LETTERS[:26]


def _as_text(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return subscripts and arrays from either form: text first, or lists after arrays.

    Text first, or lists after arrays.
    """
    if isinstance(operands[0], str):
        return operands[0], [as_array(x) for x in operands[1:]]
    count = len(operands) // 2
    arrays = [as_array(x) for x in operands[: 2 * count : 2]]
    terms = ",".join(_term(axes) for axes in operands[1 : 2 * count : 2])
    result = f"->{_term(operands[-1])}" if len(operands) % 2 else ""
    return terms + result, arrays


def _term(axes: Sequence[Any]) -> str:
    for axis in axes:
        is_number = isinstance(axis, int | np.integer)
        if axis is not Ellipsis and not (is_number and 0 <= axis < len(_NUMBERED)):
            raise ArgumentError(
                f"np.einsum: {axis!r} in a list of axes", do="number axes from 0 to 51"
            )
    return "".join("..." if i is Ellipsis else _NUMBERED[i] for i in axes)


def _is_rearranged(text: str, arrays: Sequence[Any]) -> bool:
    """Return whether nothing is computed: NumPy 2.4 returns a view without a cast."""
    if len(arrays) > 1:
        return False
    terms, result = _terms(text, _ranks(arrays))
    return len(terms) == 1 and set(terms[0]) == set(result)


def _rearranged(text: str, array: Any) -> Any:
    """Return the view of an array that einsum gives, or None where it gives no view."""
    (term,), result = _terms(text, _ranks([array]))
    letters = list(term)
    if not letters:
        return None  # a scalar
    for letter in dict.fromkeys(term):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            if array.shape[first] != array.shape[second]:
                return None
            array = writable_diagonal(array, first, second)
            letters = [c for i, c in enumerate(letters) if i not in (first, second)]
            letters.append(letter)
    return np.transpose(array, [letters.index(c) for c in result])


def _cast(arrays: Sequence[Any], dtype: Any, casting: Any) -> list[Any]:
    for x in arrays:
        if not np.can_cast(dtype_of(x), dtype, casting):
            raise ArgumentError(
                f"np.einsum: {dtype_of(x)} is not cast to dtype={as_dtype(dtype)} with"
                f" casting={casting!r}",
                do="give casting='unsafe', or leave dtype= away",
            )
    return [cast(x, as_dtype(dtype)) for x in arrays]


@register_numpy_function(np.einsum)
def _(
    *operands: Any,
    out: None = None,
    optimize: Any = False,
    dtype: Any = None,
    casting: Any = "safe",
    order: Any = "K",
) -> Any:
    is_usual = optimize is False and dtype is None and order == "K"
    if is_usual and len(operands) > 2 and type(operands[0]) is str:
        arrays = [x if hasattr(x, "shape") else as_array(x) for x in operands[1:]]
        return einsum.run(operands[0], arrays, False)
    if order != "K":
        order = as_order("np.einsum", order, "K", "C", "F")
    text, arrays = _as_text(operands)
    if _is_rearranged(text, arrays):
        view = _rearranged(text, arrays[0])
        if view is not None:
            return view
    elif dtype is not None:
        arrays = _cast(arrays, dtype, casting)
    if optimize not in (True, False):
        np.einsum_path(text, *arrays, optimize=optimize)  # raises for an unknown path
    if order != "F":
        return einsum.run(text, arrays, bool(optimize))
    # The result with its axes reversed is in C order.
    terms, result = _terms(text, _ranks(arrays))
    found = einsum(_joined(terms, result[::-1]), arrays, bool(optimize))
    return np.transpose(found)


@register_numpy_function(np.einsum_path)
def _(*operands: Any, optimize: Any = "greedy", einsum_call: Any = False) -> Any:
    refuse("einsum_path", einsum_call=einsum_call or None)
    text, arrays = _as_text(operands)
    # A path depends on shapes alone.
    shapes = [np.broadcast_to(0.0, typical(x.shape)) for x in arrays]
    return np.einsum_path(text, *shapes, optimize=optimize)
