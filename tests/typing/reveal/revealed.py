"""Types that the checkers print for operators and transformed functions.

The functions take FakeArray, since the text of NumPy's classes differs between versions.
"""

from __future__ import annotations

from typing import reveal_type

import customop as co
from customop import FakeArray


@co.custom_op("typing::shown", mutates_args=())
def shown(x: FakeArray, k: int = 1, *, name: str = "") -> FakeArray:
    return x


@co.custom_op("typing::generic", mutates_args=())
def generic(x: co.ArrayT, /, y: co.ArrayT) -> co.ArrayT:
    return x


shown.register_autograd(lambda ctx, grad: (grad, None))
generic.register_autograd(lambda ctx, grad: (grad, grad))


def loss(x: FakeArray, k: int = 1, *, name: str = "") -> float:
    return float(k)


def of_one(x: FakeArray) -> FakeArray:
    return x


class Layer:
    op = shown


array = FakeArray((2, 3))

# ---- operators ----

reveal_type(shown)
# by mypy: Operator[[x: FakeArray, k: int =, *, name: str =], FakeArray]
# by pyright: Operator[(x: FakeArray, k: int = 1, *, name: str = ""), FakeArray]
reveal_type(shown.call)
# by mypy: def (x: FakeArray, k: int =, *, name: str =) -> FakeArray
# by pyright: (x: FakeArray, k: int = 1, *, name: str = "") -> FakeArray
reveal_type(Layer.op)
# by mypy: Operator[[x: FakeArray, k: int =, *, name: str =], FakeArray]
# by pyright: Operator[(x: FakeArray, k: int = 1, *, name: str = ""), FakeArray]
reveal_type(generic)
# by mypy: Operator[[R, y: R], R]
# by pyright: Operator[(x: ArrayT@generic, /, y: ArrayT@generic), ArrayT@generic]
reveal_type(generic.register_fake(lambda x, y: co.fake_like(x)))
# by mypy: Operator[[R, y: R], R]
# by pyright: Operator[(x: ArrayT@generic, /, y: ArrayT@generic), ArrayT@generic]
reveal_type(shown.register_kernel("cuda"))
# by mypy: def [FnT <: def (*Any, **Any) -> Any] (FnT) -> FnT
# by pyright: (FnT@register_kernel) -> FnT@register_kernel
reveal_type(co.register_fake(shown, shown))
# by mypy: Operator[[x: FakeArray, k: int =, *, name: str =], FakeArray]
# by pyright: Operator[(x: FakeArray, k: int = 1, *, name: str = ""), FakeArray]
reveal_type(co.register_array_dispatch(shown, FakeArray, shown))
# by mypy: Operator[[x: FakeArray, k: int =, *, name: str =], FakeArray]
# by pyright: Operator[(x: FakeArray, k: int = 1, *, name: str = ""), FakeArray]

# Only the plugin knows the types of an operator that is found by name.
reveal_type(co.register_fake("typing::shown", shown))
# by mypy: Operator[..., Any]
# by pyright: Operator[..., Any]
# by plugin: Operator[[x: FakeArray, k: int =, *, name: str =], FakeArray]
reveal_type(co.register_fake("typing::shown"))
# by mypy: def [FnT <: def (*Any, **Any) -> Any] (FnT) -> FnT
# by pyright: (FnT@register_fake) -> FnT@register_fake

# A kernel for NumPy's arrays takes and returns what the operator does.
reveal_type(co.get_kernel(shown, "cpu"))
# by mypy: def (x: FakeArray, k: int =, *, name: str =) -> FakeArray
# by pyright: (x: FakeArray, k: int = 1, *, name: str = "") -> FakeArray
reveal_type(co.get_kernel(shown, "vmap"))
# by mypy: def (*Any, **Any) -> Any
# by pyright: (...) -> Any

# ---- transforms ----

reveal_type(co.grad(loss))
# by mypy: def (FakeArray, k: int =, *, name: str =) -> FakeArray
# by pyright: (FakeArray, k: int = 1, *, name: str = "") -> FakeArray
reveal_type(co.grad(generic))
# by mypy: def [T <: Array] (T, y: T) -> T
# by pyright: (ArrayT@generic, y: ArrayT@generic) -> ArrayT@generic
# by plugin: def [R <: Array] (R, y: R) -> R
reveal_type(co.grad(shown))
# by mypy: def (FakeArray, k: int =, *, name: str =) -> FakeArray
# by pyright: (FakeArray, k: int = 1, *, name: str = "") -> FakeArray
reveal_type(co.grad(loss, 1))
# by mypy: def (FakeArray, int, *, name: str =) -> int
# by pyright: (FakeArray, int, *, name: str = "") -> int
reveal_type(co.grad(loss, (0, 1)))
# by mypy: def (FakeArray, int, *, name: str =) -> tuple[FakeArray, int]
# by pyright: (FakeArray, int, *, name: str = "") -> tuple[FakeArray, int]
reveal_type(co.value_and_grad(loss))
# by mypy: def (FakeArray, k: int =, *, name: str =) -> tuple[float, FakeArray]
# by pyright: (FakeArray, k: int = 1, *, name: str = "") -> tuple[float, FakeArray]
reveal_type(co.value_and_grad(loss, (0, 1)))
# by mypy: def (FakeArray, int, *, name: str =) -> tuple[float, tuple[FakeArray, int]]
# by pyright: (FakeArray, int, *, name: str = "") -> tuple[float, tuple[FakeArray, int]]
reveal_type(co.vjp(of_one, array))
# by mypy: tuple[FakeArray, def (FakeArray) -> tuple[FakeArray]]
# by pyright: tuple[FakeArray, (FakeArray) -> tuple[FakeArray]]
reveal_type(co.vjp(generic, array, array))
# by mypy: tuple[FakeArray, def (FakeArray) -> tuple[FakeArray, FakeArray]]
# by pyright: tuple[FakeArray, (FakeArray) -> tuple[FakeArray, FakeArray]]
reveal_type(co.jvp(generic, (array, array), (array, array)))
# by mypy: tuple[FakeArray, FakeArray]
# by pyright: tuple[FakeArray, FakeArray]
reveal_type(co.jacrev(loss))
# by mypy: Jacobian[[FakeArray, k: int =, *, name: str =], FakeArray, float]
# by pyright: Jacobian[(FakeArray, k: int = 1, *, name: str = ""), FakeArray, float]
# by plugin: def (FakeArray, k: int =, *, name: str =) -> FakeArray
reveal_type(co.jacfwd(loss))
# by mypy: Jacobian[[FakeArray, k: int =, *, name: str =], float, FakeArray]
# by pyright: Jacobian[(FakeArray, k: int = 1, *, name: str = ""), float, FakeArray]
# by plugin: def (FakeArray, k: int =, *, name: str =) -> FakeArray
reveal_type(co.hessian(generic))
# by mypy: Jacobian[[A, y: A], A, A]
# by pyright: Jacobian[(ArrayT@generic, y: ArrayT@generic), ArrayT@generic, ArrayT@generic]
# by plugin: def [R <: Array] (R, y: R) -> Any
reveal_type(co.jacrev(of_one)(array))
# by mypy: FakeArray
# by pyright: FakeArray
reveal_type(co.jacrev(loss)(array, 2))
# by mypy: FakeArray
# by pyright: FakeArray
reveal_type(co.vmap(loss))
# by mypy: def (x: FakeArray, k: int =, *, name: str =) -> float
# by pyright: (x: FakeArray, k: int = 1, *, name: str = "") -> float
reveal_type(co.vmap(generic))
# by mypy: def [R <: Array] (R, y: R) -> R
# by pyright: (x: ArrayT@generic, /, y: ArrayT@generic) -> ArrayT@generic
reveal_type(co.no_grad()(loss))
# by mypy: def (x: FakeArray, k: int =, *, name: str =) -> float
# by pyright: (x: FakeArray, k: int = 1, *, name: str = "") -> float
