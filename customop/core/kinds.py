"""The kinds of rules that the package has; your own kinds work in the same way."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from customop.arrays.kinds import FAKE_ARRAY, TRACED, kind_of
from customop.core.definition import Definition, Row, check_device_types, same_place
from customop.core.derived.find import derive_vmap
from customop.core.grad_rules import GradRule, as_rule
from customop.core.rule_kind import COMPOSITE, MergedKind, OwnKind, RuleKind
from customop.core.table import RuleTable
from customop.errors import RegistrationError, caller_place, place, shown
from customop.later import later
from customop.schema.signatures import check_callable, check_parameters
from customop.schema.tags import Tag

__all__ = [
    "ARRAY_CLASS",
    "AUTOCAST",
    "AUTOGRAD",
    "COMPOSITE",
    "JVP",
    "SAMPLE_INPUTS",
    "VMAP",
]


partials: ModuleType = later(import_module, "customop.core.partials")

# ---- transforms ----


class AutogradKind(RuleKind):
    """Rules of reverse mode: a `GradRule`, or a function in place of the operator."""

    shorter: ClassVar[str] = (
        ", or {name}.register_autograd(co.native) if the kernel is made of NumPy functions"
    )

    __slots__ = ()
    falls_through: ClassVar[bool] = True
    call_title: ClassVar[str] = "autograd forward"

    def check_given(self, qualname: str, fn: Any) -> None:
        """Raise unless `fn` can be registered for some operator."""
        if not isinstance(fn, GradRule):
            super().check_given(qualname, fn)

    def check(self, definition: Definition, fn: Any) -> None:
        """Raise unless `fn` can be the rule of the operator."""
        as_rule(fn).check(definition)

    def place_of(self, fn: Any) -> str:
        """File and line of the first function."""
        return fn.places[0] if isinstance(fn, GradRule) else place(fn)

    def entries(self, row: Row) -> list[tuple[str, tuple[str, ...]]]:
        """The rule, with the places of all its functions."""
        return [("", row.fn.places)]

    def accept(self, op: RuleTable, fn: Any, *, with_below: bool) -> Any:
        """The rule, made of a function where that was registered."""
        return as_rule(fn, with_below)


class JvpKind(RuleKind):
    """Rules of forward mode."""

    __slots__ = ()

    returns_pair: ClassVar[bool] = True
    how_instead: ClassVar[str] = "it is transposed for jvp"

    def check(self, definition: Definition, fn: Any) -> None:
        """Raise unless `fn` can be the rule of the operator."""
        if not isinstance(fn, partials.Partials):
            super().check(definition, fn)
            return
        fn.check(definition)
        if Tag.pointwise not in definition.tags:
            raise definition.error(
                RegistrationError,
                "register_jvp takes partials for pointwise operators only: elsewhere a"
                " formula for gradients is not one for tangents",
                do="say tags=Tag.pointwise, or register def jvp(primals, tangents)",
                parameter=None,
                kind=self.name,
            )

    def place_of(self, fn: Any) -> str:
        """File and line of the rule, or of the first formula."""
        return fn.places[0] if isinstance(fn, partials.Partials) else place(fn)

    def accept(self, op: RuleTable, fn: Any, *, with_below: bool) -> Any:
        """The rule, made of partial derivatives where these were registered."""
        if isinstance(fn, partials.Partials):
            return partials.Pushforward(op, fn)
        return super().accept(op, fn, with_below=with_below)

    @property
    def instead(self) -> RuleKind | None:
        """The kind of backward formulas."""
        return AUTOGRAD


class VmapKind(RuleKind):
    """Batching rules."""

    __slots__ = ()
    last_resort: ClassVar[str] = "loop over the rows"
    returns_pair: ClassVar[bool] = True


AUTOGRAD = AutogradKind("autograd", returns="gradients of the positional inputs")
JVP = JvpKind("jvp", "(primals, tangents, **keywords)", "(output, tangent)")
VMAP = VmapKind(
    "vmap", "(info, in_dims, *inputs)", "(output, out_dims)", derive=derive_vmap
)


# ---- dtypes by kind of array ----


class AutocastKind(MergedKind):
    """Dtypes that `autocast` casts floats to. A row is a dict: kind of array -> dtype.

    Registered as a pair of both.
    """

    __slots__ = ()

    def check_given(self, qualname: str, fn: Any) -> None:
        """A pair is checked with the operator."""

    def check(self, definition: Definition, fn: Any) -> None:
        """Raise unless the operator can run on floats that were cast to the dtype."""
        device_type, dtype = fn
        if not isinstance(device_type, str):
            raise _refused(
                definition,
                f"takes one kind of array, got {shown(device_type)}",
                'write register_autocast("cpu", np.float32)',
            )
        check_device_types(definition.qualname, device_type)
        schema = definition.schema
        bound = [p.name for p in schema.parameters if p.alias is not None]
        if bound:
            why = "writes" if schema.written else "returns a view of"
            name = (schema.written or bound)[0]
            raise definition.error(
                RegistrationError,
                f"register_autocast: it {why} its argument '{name}', in place of which"
                " a cast would hand over a copy",
                do="register autocast on an operator that returns fresh arrays",
                parameter=name,
                kind=self.name,
            )
        if not _is_float(dtype):
            raise _refused(
                definition,
                f": {shown(dtype)} is not a floating-point dtype",
                "pass one, such as np.float16 or np.float32",
            )

    def place_of(self, fn: Any) -> str:
        """File and line of the call that registers."""
        return caller_place()

    def accept(self, op: RuleTable, fn: Any, *, with_below: bool) -> Any:
        """The pair as a dict."""
        device_type, dtype = fn
        return {device_type: np.dtype(dtype)}

    def entries(self, row: Row) -> list[tuple[str, tuple[str, ...]]]:
        """Each dtype with its kind of array."""
        return [(f"{name}:{dtype}", (row.place,)) for name, dtype in row.fn.items()]


def _refused(definition: Definition, what: str, do: str) -> RegistrationError:
    joint = "" if what.startswith(":") else " "
    return definition.error(
        RegistrationError,
        f"register_autocast{joint}{what}",
        do=do,
        parameter=None,
        kind="autocast",
    )


def _is_float(dtype: Any) -> bool:
    """Whether something names a floating-point dtype.

    By name: the floats of other packages, such as bfloat16, are of kind "V".
    """
    try:
        return dtype is not None and "float" in np.dtype(dtype).name
    except Exception:  # noqa: BLE001  # NumPy evaluates text, and asks the object
        return False


# ---- classes of arrays ----


class ArrayClassKind(MergedKind):
    """Rules for classes of arrays. A row is a dict: class -> row of a rule.

    Registered as a pair of both.
    """

    __slots__ = ()

    @property
    def title(self) -> str:
        """How messages call a rule."""
        return "array rule"

    def why_not(self, array_kind: str | None) -> str:
        """Why a call of a kernel for some kind of array does not take this row."""
        return "no argument is of its classes"

    def check_given(self, qualname: str, fn: Any) -> None:
        """A pair is checked with the operator."""

    def check(self, definition: Definition, fn: Any) -> None:
        """Raise unless a call can tell the class, and the rule takes what it is given."""
        array_class, rule = fn
        _check_class(definition, array_class)
        check_callable(definition.qualname, self.title, rule, kind=self.name)
        check_parameters(
            f"{definition.qualname}: the {self.title}",
            rule,
            ["op", "args", "kwargs"],
            [],
            free=3,
            do=lambda: "write def rule(op, args, kwargs): ...",
        )

    def place_of(self, fn: Any) -> str:
        """File and line of the rule."""
        return place(fn[1])

    def accept(self, op: RuleTable, fn: Any, *, with_below: bool) -> Any:
        """The pair as a dict."""
        array_class, rule = fn
        return {array_class: Row(rule, place(rule))}

    def entries(self, row: Row) -> list[tuple[str, tuple[str, ...]]]:
        """Each class with the place of its rule."""
        return [(_named(cls), (rule.place,)) for cls, rule in row.fn.items()]

    def check_new(self, op: RuleTable, new: Row) -> None:
        """Raise for a second rule of a class from another place."""
        row = op.rows.get(self)
        for array_class, rule in new.fn.items():
            known = None if row is None else row.fn.get(array_class)
            if known is not None and not same_place(known.place, rule.place):
                raise self.second(op, f"a rule for {_named(array_class)}", known, rule)


def _named(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _check_class(definition: Definition, cls: Any) -> None:
    if not isinstance(cls, type):
        what = f"{shown(cls)} is not a class"
        do = "pass the class of the arrays: np.ma.MaskedArray"
    elif issubclass(np.ndarray, cls):
        what = f"{_named(cls)} is the class of plain arrays, or above it"
        do = f'use @{definition.name}.register_kernel("cpu")'
    elif kind_of[cls] in (TRACED, FAKE_ARRAY):
        what = f"{_named(cls)} is not a class of arrays with data"
        do = "register a rule for the transform, or register_fake"
    elif issubclass(cls, np.generic) or cls.__module__ == "builtins":
        what = f"{_named(cls)} is not a class of arrays"
        do = "pass the class of the arrays: np.ma.MaskedArray"
    else:
        return
    raise definition.error(
        RegistrationError,
        f"register_array_dispatch: {what}",
        do=do,
        parameter=None,
        kind="array_class",
    )


AUTOCAST = AutocastKind("autocast", returns="dtypes by kind of array")
ARRAY_CLASS = ArrayClassKind(
    "array_class", "(op, args, kwargs)", "what the operator returns"
)
# Inputs to check the operator with.
SAMPLE_INPUTS = OwnKind("sample_inputs", "()", "samples, or a strategy of them")
