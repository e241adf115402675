"""Fake arrays with symbolic sizes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from customop.arrays.array import all_plain, axis_order
from customop.arrays.fake import FakeArray, dense_fake, make_fake
from customop.arrays.kinds import is_array, is_fake
from customop.arrays.nested import abbreviated, add_own_node, flat, map_nested
from customop.errors import ArgumentError, ShapeError, shown
from customop.shapes.size_context import SizeContext, fault_of, solve_names, with_values
from customop.shapes.sizes import SymShape


def with_sizes(
    fake: FakeArray,
    names: Sequence[str | int | None],
    source: str,
    context: SizeContext,
) -> FakeArray:
    """A fake array with symbolic sizes for the axes that have names.

    Parameters
    ----------
    fake : FakeArray
    names : sequence of str, int or None
        None, or the length itself, for an axis whose length is a number.
    source : str
        The array in messages and generated code, such as ``x``.
    context : SizeContext
        The sizes of the capture.

    Returns
    -------
    FakeArray
        Dense, with the same order of axes.

    Raises
    ------
    ShapeError
        If the names do not fit the shape.
    ArgumentError
        If a name cannot be used.
    """
    if len(names) != len(fake.shape):
        raise ShapeError(
            f"sizes={shown(names)} has {len(names)}"
            f" {'entry' if len(names) == 1 else 'entries'} for {abbreviated(fake)}",
            do="give one for each axis, None where it is a number",
        )
    found = [
        _size(context, f"{source}.shape[{axis}]", length, name)
        for axis, (length, name) in enumerate(zip(fake.shape, names, strict=True))
    ]
    return _with_shape(fake, tuple(found))


def _size(context: SizeContext, source: str, length: int, name: Any) -> Any:
    if name is None:
        return length
    if isinstance(name, str):
        return context.input_size(length, source, name)
    if type(name) is not int:
        raise ArgumentError(
            f"{shown(name)} is not a size", do='give a name such as "batch", or None'
        )
    if name != length:
        raise ShapeError(
            f"{source} is {length}, and sizes say {name}",
            do=f"write {length}, None or a name",
        )
    return length


def symbolic_like(
    fake: FakeArray,
    source: str,
    context: SizeContext,
    axes: Collection[int] | None = None,
) -> FakeArray:
    """A fake array with a symbolic size without a name for each axis, or for some."""
    found = [
        context.input_size(length, f"{source}.shape[{axis}]")
        if axes is None or axis in axes
        else length
        for axis, length in enumerate(fake.shape)
    ]
    return _with_shape(fake, tuple(found))


def _with_shape(fake: FakeArray, shape: tuple[Any, ...]) -> FakeArray:
    """A dense array of another shape, with the order of axes of `fake`."""
    if 0 in fake.shape:  # NumPy gives no strides there
        order = list(range(len(shape)))
    else:
        order = axis_order(fake.shape, fake.strides)
    sizes = shape if all_plain(shape) else as_sizes(shape)
    return dense_fake(sizes, fake.dtype, order, fake.device)


# ---- dynamic sizes and the sizes of real results ----


# As a pytree it is a tuple: its sizes are leaves.
add_own_node(SymShape, lambda shape: (tuple(shape), None), lambda _, sizes: (*sizes,))


def as_sizes(lengths: Sequence[Any]) -> SymShape:
    """The shape of an array that has symbolic sizes."""
    return SymShape(lengths)


def all_known(real: Any) -> bool:
    """Whether an array has lengths; lazy ones may have nan in the place of one."""
    return all(n == n for n in real.shape)  # noqa: PLR0124  # nan differs from itself


def with_numbers(
    reals: Sequence[Any], expected: Any, context: SizeContext
) -> tuple[Any, str]:
    """Fake results with the sizes of real ones in the place of dynamic sizes.

    Also the fault of a size that is not within its bounds, or empty.
    """
    fakes = [v for v in flat(expected) if is_fake(v)]
    arrays = [v for v in reals if is_array(v)]
    shapes = [
        (fake.shape, tuple(real.shape))
        for fake, real in zip(fakes, arrays, strict=False)
        if len(fake.shape) == len(real.shape) and all_known(real)
    ]
    pairs = [pair for fake, real in shapes for pair in zip(fake, real, strict=True)]
    numbers = solve_names(pairs)
    fault = fault_of(context, numbers)

    def numbered(value: Any) -> Any:
        if not is_fake(value):
            return value
        shape = tuple(with_values(context, n, numbers) for n in value.shape)
        strides = tuple(with_values(context, n, numbers) for n in value.strides)
        if any(type(n) is int and n == 0 for n in shape):
            strides = (0,) * len(shape)
        return make_fake(shape, value.dtype, strides, value.device)

    return map_nested(expected, numbered), fault
