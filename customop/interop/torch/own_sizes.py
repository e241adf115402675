"""Our symbolic sizes as torch's, and back, for fake kernels of imported operators."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from customop.core.fake_context import get_ctx
from customop.interop.torch.sizes import TorchSizes
from customop.shapes.conditions import names_in_side
from customop.shapes.expressions import symbol
from customop.shapes.symbolic import SymInt, as_side, make_int

__all__ = ["OwnSizes"]


class OwnSizes(TorchSizes):
    """The sizes of one call of an operator of torch on our fake arrays."""

    def __init__(self) -> None:
        super().__init__()
        shapes: Any = import_module("torch.fx.experimental.symbolic_shapes")
        self.shapes: Any = shapes.ShapeEnv(specialize_zero_one=False, duck_shape=False)
        self._library = shapes

    def lent(self, size: Any) -> Any:
        """An int or size of ours as an int or size of torch."""
        if not isinstance(size, SymInt):
            return size
        self.adopt(size.context)
        for name in sorted(names_in_side(as_side(size))):  # type: ignore[arg-type]  # of a size
            if not self.knows(name):
                self._lend(name)
        return self.torchs(size)

    def _lend(self, name: str) -> None:
        hint = self.context.sizes[name].hint
        if hint is None:
            made = self.shapes.create_unbacked_symint()
        else:
            constant: Any = import_module("torch._dynamo.source").ConstantSource(name)
            dim = self._library.DimDynamic.DYNAMIC
            found = self.shapes.create_symbol(hint, constant, dynamic_dim=dim)
            made = self.shapes.create_symintnode(found, hint=hint, source=constant)
        self.pair(name, made, make_int(self.context, symbol(name), hint))

    def data_size(self, low: int, high: int | None, expr: Any) -> Any:
        """A new size of the fake kernel that runs."""
        made = get_ctx().new_dynamic_size(low, high)
        self.adopt(made.context)
        return made

    def tell_ours(self) -> None:
        """Ask our sizes what torch asked, so that the capture makes guards of it."""
        for guard in self.shapes.guards:
            compare = _COMPARED.get(type(guard.expr).__name__)
            if compare is not None:
                left, right = (self.expressed(v, self.shapes) for v in guard.expr.args)
                bool(compare(left, right))


_COMPARED: Final[dict[str, Any]] = {
    "Equality": lambda a, b: a == b,
    "Unequality": lambda a, b: a != b,
    "StrictLessThan": lambda a, b: a < b,
    "LessThan": lambda a, b: a <= b,
    "StrictGreaterThan": lambda a, b: a > b,
    "GreaterThan": lambda a, b: a >= b,
}
