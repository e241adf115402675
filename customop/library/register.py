"""Functions that register kernels and rules for an operator or for its name.

Each is derived from the method of `Operator` with its name. Written here are its first
line and its types, which no type checker could follow through a derivation: the result
of a method with overloads, for a name, is not the type of its first argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, overload

from customop.core.operator import Operator
from customop.core.registration import RegistrationMethods
from customop.core.registry import find_operator
from customop.core.rule_kind import RuleKind
from customop.errors import RegistrationError, shown
from customop.library.library import Library, check_library
from customop.library.ops import OperatorPacket

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from customop.core.rule_types import (
        BackwardFn,
        ContextT,
        JvpFn,
        KernelFn,
        SetupFn,
        ShortBackwardFn,
        ShortKernelFn,
        ShortVmapFn,
        VmapFn,
    )

# ---- a function made of a method ----


AnyOp = Operator[..., Any]
Named = OperatorPacket | str
AnyOperator = AnyOp | Named


def by_name(method: Callable[..., Any]) -> Callable[[FnT], FnT]:
    """Return a decorator that puts an operator or its name in front of a method.

    Of the decorated function only the name and the first line of its docstring count.
    """

    def derive(declared: FnT) -> FnT:
        @wraps(declared)
        def registering(
            op: AnyOperator,
            /,
            *args: Any,
            lib: Library | None = None,
            **options: Any,
        ) -> Any:
            found = resolve(op)
            if lib is None:
                return method(found, *args, **options)
            check_library(lib)
            target = _InLibrary(found, lib)
            answer = method(target, *args, **options)
            return found if answer is target else answer

        _describe(registering, method)
        derived: Any = registering
        return derived  # type: ignore[no-any-return]  # of the type that is declared

    return derive


def resolve(op: AnyOperator) -> AnyOp:
    """Return an operator, the default overload of a packet, or the operator of a name."""
    if isinstance(op, str):
        return find_operator(op)
    if isinstance(op, Operator):
        return op
    if isinstance(op, OperatorPacket):
        return op.default
    raise RegistrationError(
        f"expected an operator or its name, got {shown(op)}",
        do='pass "namespace::name"',
    )


class _InLibrary(RegistrationMethods):
    """The methods of an operator for registrations that a library removes."""

    def __init__(self, op: AnyOp, lib: Library) -> None:
        self.qualname = op.qualname
        self._lib = lib

    def add(self, key: RuleKind | str, fn: Any, *, override: bool) -> None:
        self._lib.add(self.qualname, key, fn, override=override)


# ---- its signature and docstring ----


# Section of a docstring -> what stands in it before or after the method's own text.
_FIRST = """
op : Operator, OperatorPacket or str
    The operator, or its name: ``"namespace::name"``, with ``".overload"`` if it
    has one."""
_LAST = {
    "Returns": """
lib : Library, optional
    Removes the registration when it closes.""",
    "Examples": """
MissingRuleError
    If no operator has this name.""",
}


def _describe(function: Any, method: Callable[..., Any]) -> None:
    """Give a function the signature and the docstring of a method, for any operator."""
    old = inspect.signature(method)
    op = inspect.Parameter("op", inspect.Parameter.POSITIONAL_ONLY)
    lib = inspect.Parameter("lib", inspect.Parameter.KEYWORD_ONLY, default=None)
    parameters = [
        op.replace(annotation="AnyOperator"),
        *[*old.parameters.values()][1:],
        lib.replace(annotation="Library | None"),
    ]
    result = old.return_annotation.replace("Self", "AnyOp")
    function.__signature__ = inspect.Signature(parameters, return_annotation=result)
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    function.__annotations__["return"] = result
    if function.__doc__:  # Python leaves docstrings out under -OO
        function.__doc__ = _text(function, inspect.cleandoc(method.__doc__ or ""))


def _text(function: Callable[..., Any], text: str) -> str:
    """Return the docstring of a method as that of the function made of it."""
    _, _, rest = text.partition("\n")
    rest = rest.replace("Parameters\n----------", f"Parameters\n----------{_FIRST}")
    for section, added in _LAST.items():
        rest = rest.replace(f"\n\n{section}\n", f"{added}\n\n{section}\n")
    # The operator of an example has the name of its variable, in the namespace "doc".
    name = function.__name__
    before, _, after = rest.partition(f".{name}")
    op = before.rpartition(" ")[2].removeprefix("@")
    before = before.removesuffix(op)
    after = f", {after[1:]}" if after.startswith("(") else f"){after}"
    return f'{function.__doc__}\n{before}co.{name}("doc::{op}"{after}'


# ---- the functions, with the types that checkers see ----


# Overloads spell out Callable[[FnT], FnT]: in an alias, mypy would not leave FnT generic.
FnT = TypeVar("FnT", bound=Callable[..., Any])
OpT = TypeVar("OpT", bound=AnyOp)
DeviceTypes = str | Iterable[str] | None

if TYPE_CHECKING:

    class LibraryOption(TypedDict, total=False):
        """The option that all functions here take."""

        lib: Library | None

    class RuleOptions(LibraryOption, total=False):
        """Options of the functions that can replace a rule."""

        override: bool

    class FormulaOptions(RuleOptions, Generic[ContextT], total=False):
        """Options of `register_autograd`."""

        setup_context: SetupFn[ContextT] | None


@overload
def register_kernel(
    op: OpT,
    device_types: DeviceTypes,
    fn: ShortKernelFn,
    /,
    **options: Unpack[LibraryOption],
) -> OpT: ...
@overload
def register_kernel(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT,
    device_types: DeviceTypes,
    fn: KernelFn,
    /,
    **options: Unpack[LibraryOption],
) -> OpT: ...
@overload
def register_kernel(
    op: Named,
    device_types: DeviceTypes,
    fn: ShortKernelFn,
    /,
    **options: Unpack[LibraryOption],
) -> AnyOp: ...
@overload
def register_kernel(  # type: ignore[overload-cannot-match]  # a longer one does
    op: Named,
    device_types: DeviceTypes,
    fn: KernelFn,
    /,
    **options: Unpack[LibraryOption],
) -> AnyOp: ...
@overload
def register_kernel(
    op: AnyOperator,
    device_types: DeviceTypes,
    fn: None = None,
    /,
    **options: Unpack[LibraryOption],
) -> Callable[[FnT], FnT]: ...
@by_name(Operator.register_kernel)
def register_kernel(*args: Any, **options: Any) -> Any:
    """Register a kernel by name; see `Operator.register_kernel`."""


@overload
def register_fake(
    op: OpT, fn: ShortKernelFn, /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register_fake(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT, fn: KernelFn, /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register_fake(
    op: Named, fn: ShortKernelFn, /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register_fake(  # type: ignore[overload-cannot-match]  # a longer one does
    op: Named, fn: KernelFn, /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register_fake(
    op: AnyOperator, fn: None = None, /, **options: Unpack[RuleOptions]
) -> Callable[[FnT], FnT]: ...
@by_name(Operator.register_fake)
def register_fake(*args: Any, **options: Any) -> Any:
    """Register a fake kernel by name; see `Operator.register_fake`."""


@overload
def register(
    op: OpT, kind: RuleKind, fn: KernelFn, /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register(
    op: Named, kind: RuleKind, fn: KernelFn, /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register(
    op: AnyOperator, kind: RuleKind, fn: None = None, /, **options: Unpack[RuleOptions]
) -> Callable[[FnT], FnT]: ...
@by_name(Operator.register)
def register(*args: Any, **options: Any) -> Any:
    """Register a rule of any kind by name; see `Operator.register`."""


@overload
def register_autograd(
    op: OpT,
    backward: ShortBackwardFn[ContextT],
    /,
    **options: Unpack[FormulaOptions[ContextT]],
) -> OpT: ...
@overload
def register_autograd(
    op: OpT,
    backward: BackwardFn[ContextT],
    /,
    **options: Unpack[FormulaOptions[ContextT]],
) -> OpT: ...
@overload
def register_autograd(
    op: Named,
    backward: ShortBackwardFn[ContextT],
    /,
    **options: Unpack[FormulaOptions[ContextT]],
) -> AnyOp: ...
@overload
def register_autograd(
    op: Named,
    backward: BackwardFn[ContextT],
    /,
    **options: Unpack[FormulaOptions[ContextT]],
) -> AnyOp: ...
@by_name(Operator.register_autograd)
def register_autograd(*args: Any, **options: Any) -> Any:
    """Register a backward formula by name; see `Operator.register_autograd`."""


@overload
def register_jvp(op: OpT, fn: JvpFn, /, **options: Unpack[RuleOptions]) -> OpT: ...
@overload
def register_jvp(op: Named, fn: JvpFn, /, **options: Unpack[RuleOptions]) -> AnyOp: ...
@overload
def register_jvp(
    op: AnyOperator, fn: None = None, /, **options: Unpack[RuleOptions]
) -> Callable[[FnT], FnT]: ...
@by_name(Operator.register_jvp)
def register_jvp(*args: Any, **options: Any) -> Any:
    """Register a forward-mode rule by name; see `Operator.register_jvp`."""


@overload
def register_vmap(
    op: OpT, fn: ShortVmapFn, /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register_vmap(  # type: ignore[overload-cannot-match]  # a longer one does
    op: OpT, fn: VmapFn, /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register_vmap(
    op: Named, fn: ShortVmapFn, /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register_vmap(  # type: ignore[overload-cannot-match]  # a longer one does
    op: Named, fn: VmapFn, /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register_vmap(
    op: AnyOperator, /, **options: Unpack[RuleOptions]
) -> Callable[[FnT], FnT]: ...
@by_name(Operator.register_vmap)
def register_vmap(*args: Any, **options: Any) -> Any:
    """Register a batching rule by name; see `Operator.register_vmap`."""


@overload
def register_autocast(
    op: OpT, device_type: str, dtype: DTypeLike, /, **options: Unpack[LibraryOption]
) -> OpT: ...
@overload
def register_autocast(
    op: Named, device_type: str, dtype: DTypeLike, /, **options: Unpack[LibraryOption]
) -> AnyOp: ...
@by_name(Operator.register_autocast)
def register_autocast(*args: Any, **options: Any) -> Any:
    """Register a dtype for `autocast` by name; see `Operator.register_autocast`."""


@overload
def register_array_dispatch(
    op: OpT, array_class: type, fn: KernelFn, /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register_array_dispatch(
    op: Named, array_class: type, fn: KernelFn, /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register_array_dispatch(
    op: AnyOperator,
    array_class: type,
    fn: None = None,
    /,
    **options: Unpack[RuleOptions],
) -> Callable[[FnT], FnT]: ...
@by_name(Operator.register_array_dispatch)
def register_array_dispatch(*args: Any, **options: Any) -> Any:
    """Register a rule for a class of arrays by name; see `Operator.register_array_dispatch`."""


@overload
def register_sample_inputs(
    op: OpT, fn: Callable[[], object], /, **options: Unpack[RuleOptions]
) -> OpT: ...
@overload
def register_sample_inputs(
    op: Named, fn: Callable[[], object], /, **options: Unpack[RuleOptions]
) -> AnyOp: ...
@overload
def register_sample_inputs(
    op: AnyOperator, fn: None = None, /, **options: Unpack[RuleOptions]
) -> Callable[[FnT], FnT]: ...
@by_name(Operator.register_sample_inputs)
def register_sample_inputs(*args: Any, **options: Any) -> Any:
    """Register sample inputs by name; see `Operator.register_sample_inputs`."""
