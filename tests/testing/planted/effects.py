"""Operators that change the state of the program, or depend on it."""

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co

from . import A, define, modeled, planted


class Holder:
    """An object that a kernel keeps something in."""

    def __init__(self, value: Any) -> None:
        self.value = value


# ---- side effects ----


@planted(
    test_mutation="changes np.geterr() for the whole program",
)
def floating_point_errors_are_set(wrong: bool) -> Any:
    def quiet(x: A) -> A:
        if wrong:
            np.seterr(divide="warn")
            return np.tanh(x)
        with np.errstate(divide="warn"):
            return np.tanh(x)

    return define(quiet).register_fake(modeled(np.tanh))


@planted(
    test_mutation="changes np.random.get_state() for the whole program",
)
def global_seed_is_set(wrong: bool) -> Any:
    def noisy(x: A) -> A:
        if wrong:
            np.random.seed(0)  # noqa: NPY002  # the fault
            return x * 1.0 + np.random.rand()  # noqa: NPY002  # the fault
        return x * 1.0 + np.random.RandomState(0).rand()

    return define(noisy).register_fake(modeled(lambda x: x * 1.0))


# ---- state ----


@planted(
    test_dtypes="the output has other values for int64 in all arrays than for the same numbers as float64",
)
def results_are_found_by_shape(wrong: bool) -> Any:
    known: dict[Any, A] = {}

    def doubled(x: A) -> A:
        key = (x.shape, x.dtype) if wrong else (x.shape, x.dtype, x.tobytes())
        if key not in known:
            known[key] = x + x
        return known[key].copy()

    return define(doubled).register_fake(lambda x: co.FakeArray(x.shape, x.dtype))


@planted(test_determinism="")
def weights_of_the_first_call_are_kept(wrong: bool) -> Any:
    model = Holder(None)

    def weighted(x: A, weight: A) -> A:
        if x.ndim != 1 or weight.shape != x.shape:
            raise ValueError("vectors of one length")
        if not wrong:
            return x * (weight * 1.0)
        if model.value is None or model.value.shape != x.shape:
            model.value = weight.copy()
        return x * (model.value * 1.0)

    return define(weighted).register_fake(modeled(lambda x, weight: x * (weight * 1.0)))


# ---- random numbers ----


@planted(
    test_determinism="the output differs between two calls on equal inputs: 1 of 1 elements (100.0 %) are not close",
)
def generator_of_its_own_without_a_tag(wrong: bool) -> Any:
    rng = np.random.default_rng(5)

    def noisy(x: A) -> A:
        return x.astype(float) + rng.normal(size=x.shape)

    tags = () if wrong else (co.Tag.nondeterministic_seeded,)
    tags = (*tags, co.Tag.flexible_layout)
    return define(noisy, tags=tags).register_fake(modeled(lambda x: x.astype(float)))


@planted(
    test_determinism="the output differs between two calls on equal inputs: 1 of 1 elements (100.0 %) are not close",
)
def generator_in_an_object_without_a_tag(wrong: bool) -> Any:
    holder = Holder(np.random.RandomState(5))

    def noisy(x: A) -> A:
        return x.astype(float) + holder.value.normal(size=x.shape)

    tags = () if wrong else (co.Tag.nondeterministic_seeded,)
    tags = (*tags, co.Tag.flexible_layout)
    return define(noisy, tags=tags).register_fake(modeled(lambda x: x.astype(float)))
