"""Right code that the plugin cannot judge before it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

import customop
import customop as c
from customop import Operator
from customop import custom_op as op
from customop.core.rule_types import BatchInfo

if TYPE_CHECKING:
    Unknown = Any
else:
    Unknown = np.ndarray

F64 = npt.NDArray[np.float64]
FnT = TypeVar("FnT", bound=Callable[..., Any])
NAMESPACE = "plugin_odd"
mutated: tuple[str, ...] = ("x",)


def as_it_is(x: F64) -> F64:
    return x


# ---- names, schemas and the like that are computed ----

op(f"{NAMESPACE}::one", as_it_is, mutates_args=())
made = [op(f"{NAMESPACE}::two{i}", as_it_is, mutates_args=()) for i in range(2)]
c.custom_op(NAMESPACE + "::three", as_it_is, mutates_args=())
c.custom_op("plugin_odd::four", as_it_is, mutates_args=mutated)
text = "(Array x) -> Array"
customop.custom_op("plugin_odd::five", as_it_is, mutates_args=(), schema=text)
kinds = ["cpu"]
customop.custom_op("plugin_odd::six", as_it_is, mutates_args=(), device_types=kinds)
keywords: dict[str, Any] = {"mutates_args": ()}
customop.custom_op("plugin_odd::seven", as_it_is, **keywords)


# ---- functions whose source is not at hand ----


def decorated(fn: FnT) -> FnT:
    return fn


@op("plugin_odd::eight", mutates_args=())
@decorated
def stacked(x: F64) -> F64:
    return x


@decorated
@op("plugin_odd::nine", mutates_args=())
def outside(x: F64, k: float = 1.0) -> F64:
    return x


def scaled(x: F64, k: float) -> F64:
    return x * k


def any_at_all(*args: Any, **kwargs: Any) -> Any:
    return args[0]


halved: Callable[[F64], F64] = functools.partial(scaled, k=0.5)
outside.register_fake(functools.partial(any_at_all, 2.0))
outside.register_kernel("cpu", np.multiply)
outside.register_kernel("cpu", scaled)


class Kernel:
    def __call__(self, x: F64, k: float) -> F64:
        return x

    def method(self, x: F64, k: float) -> F64:
        return x

    @staticmethod
    def static(x: F64, k: float) -> F64:
        return x * k

    @classmethod
    def of_class(cls, x: F64, k: float) -> F64:
        return x * k


outside.register_kernel("cpu", Kernel())
outside.register_kernel("cpu", Kernel().method)
outside.register_kernel("cpu", Kernel.static)
outside.register_kernel("cpu", Kernel.of_class)
outside.register_kernel("cpu", any_at_all)
outside.register_fake(any_at_all, override=True)
outside.register_autograd(any_at_all, setup_context=any_at_all)
outside.register_vmap(any_at_all)
outside.register_jvp(any_at_all)


# ---- operators of unknown schemas ----


class Has(Protocol):
    op: Operator[[F64], F64]


def register(given: Operator[..., Any], known: Operator[[F64], F64]) -> None:
    @given.register_fake
    def _(a: Any, b: Any) -> Any:
        return a

    known.register_kernel("cpu", as_it_is)
    given.register_vmap(any_at_all, override=True)


class Holder:
    @op("plugin_odd::ten", mutates_args=())
    @staticmethod
    def inner(x: F64) -> F64:
        return x


def within(k: float) -> Operator[[F64], F64]:
    @op("plugin_odd::eleven", mutates_args=())
    def local(x: F64) -> F64:
        return x * k

    return local


# ---- types that only the running program knows ----


class Column:
    shape = (3,)


customop.register_array_type("plugin_column", Column)


@op("plugin_odd::twelve", mutates_args=())
def of_column(x: Column, y: Unknown) -> Column:
    return x


class Options:
    def __init__(self, rate: float) -> None:
        self.rate = rate


customop.register_config_type(Options)


@op("plugin_odd::thirteen", mutates_args=())
def of_options(x: F64, options: Options) -> F64:
    return x


# ---- two operators of one name, of which one is defined ----

if NAMESPACE:

    @op("plugin_odd::fourteen", mutates_args=())
    def here(x: F64) -> F64:
        return x

else:

    @op("plugin_odd::fourteen", mutates_args=())
    def there(x: F64) -> F64:
        return x


def batched(info: BatchInfo, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, int]:
    return args[0], 0


stacked.register_vmap(batched)
customop.register_fake(made[0], as_it_is)
customop.impl("plugin_odd::later", "CPU", as_it_is)
customop.ops.np.sin(np.zeros(2))
