"""Draws from NumPy's generators under ``vmap(f, randomness="different")``.

NumPy draws once for all rows, where each row should have its own numbers. So the function
gets generators that draw for each row. Other draws are errors: random operators draw for
each row too, so the states of generators are compared between their calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import numpy as np

from customop.arrays.bits import bits_of
from customop.arrays.pytree import flatten, unflatten
from customop.core.interpreter import current_mode
from customop.errors import VmapError
from customop.transforms.drawing import (
    draw,
    drawing_class,
    outline_of_draw,
    with_generators,
)
from customop.transforms.generators import (
    DrawWatch,
    is_generator,
    name_of,
    plain_generator,
    watching,
)
from customop.transforms.randomness import RandomnessMode
from customop.transforms.runs import Subject

__all__ = ["drawing_rows", "watched_between"]


# ---- generators that draw for each row ----


def drawing_rows(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which gets generators that draw for each row.

    They stand for those among its arguments and defaults and in its closure.
    """

    @wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        mode = current_mode.get()
        assert isinstance(mode, RandomnessMode)

        def change(leaf: Any) -> Any:
            return _rows_of(mode, leaf) if is_generator(leaf) else leaf

        leaves, structure = flatten((args, kwargs))
        if any(map(is_generator, leaves)):
            args, kwargs = unflatten(structure, [*map(change, leaves)])
        return with_generators(fn, change)(*args, **kwargs)

    return run


def _rows_of(mode: RandomnessMode, generator: Any) -> Any:
    """A generator that draws for each row."""
    source = plain_generator(generator)
    made = _class()(bits_of(source))
    made.mode, made.source = mode, source
    return made


# Each draw of these takes the next numbers alone, so that many draws are one of many.
_ONE_BY_ONE = frozenset(
    (
        *("beta", "binomial", "chisquare", "exponential", "f", "gamma", "geometric"),
        *("gumbel", "hypergeometric", "laplace", "logistic", "lognormal", "logseries"),
        *("negative_binomial", "noncentral_chisquare", "noncentral_f", "normal"),
        *("pareto", "poisson", "power", "random", "rayleigh", "standard_cauchy"),
        *("standard_exponential", "standard_gamma", "standard_normal", "standard_t"),
        *("triangular", "uniform", "vonmises", "wald", "weibull", "zipf"),
    )
)


@cache
def _class() -> type[Any]:
    class RowsGenerator(drawing_class()):  # type: ignore[misc]  # made at run time
        """A generator whose draws differ between the rows of a vmap."""

        when = "under vmap(f, randomness='different')"
        state = "its bits and its state are one for all rows"
        error_class = VmapError
        mode: RandomnessMode

        @property
        def plain(self) -> Any:
            return self.source

        def run(self, name: str, size: Any, dtype: Any, arguments: str) -> Any:
            given = (self.source, name, size, dtype, arguments)
            # Inside of another vmap, or where the value was kept, it is a draw like others.
            if current_mode.get() is not self.mode:
                return draw.run(*given)
            batch = self.mode.batch
            count, outline = batch.info.batch_size, outline_of_draw(*given)
            shape = (count, *outline.shape)
            if name in _ONE_BY_ONE:
                return self.mode.draw_rows(
                    lambda: draw.run(self.source, name, shape, dtype, arguments)
                )
            if count:
                return draw.run(*given)
            return batch.wrap(np.zeros(shape, outline.dtype), 0)

    return RowsGenerator


# ---- other draws ----


def watched_between(
    fn: Callable[..., Any], subject: Subject, name: str
) -> Callable[..., Any]:
    """The function; one that watches its run, if `config.checks` wants that of it."""
    return watching(fn, subject, lambda source: _drawn(name, source), _let_mode_look)


def _let_mode_look(watch: DrawWatch) -> None:
    """Have the mode look before each random operator, and restart after it."""
    mode = current_mode.get()
    if isinstance(mode, RandomnessMode):
        mode.watch = watch


def _drawn(name: str, source: Any) -> VmapError:
    return VmapError(
        f"vmap of {name}: the function draws from {name_of(source)}, with"
        " randomness='different'",
        "NumPy draws once, so all rows get the same numbers",
        do="draw from a np.random.Generator that is an argument, with None in in_dims; or"
        " draw a batch outside and pass it",
    )
