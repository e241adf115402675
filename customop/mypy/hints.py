"""Convert names, constants and types in the source to what Python has at runtime.

mypy knows a function as ``customop.library.define.custom_op``. The plugin only compares
the last part, ``custom_op``, so that a definition can move to another module.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
import sys
import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import typing_extensions
from mypy.nodes import (
    VARIANCE_NOT_READY,
    CallExpr,
    ComplexExpr,
    Expression,
    FloatExpr,
    IntExpr,
    ListExpr,
    MemberExpr,
    MypyFile,
    NameExpr,
    RefExpr,
    SetExpr,
    StrExpr,
    SymbolTable,
    TupleExpr,
    TypeInfo,
    UnaryExpr,
    Var,
)
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    LiteralType,
    NoneType,
    ProperType,
    TupleType,
    Type,
    TypeAliasType,
    TypedDictType,
    TypeList,
    TypeOfAny,
    TypeType,
    TypeVarType,
    UnboundType,
    UnionType,
    get_proper_type,
)

from customop.arrays.array import Array
from customop.schema.annotations import CLASSES, Device, Scalar
from customop.schema.dtype_hints import DType
from customop.schema.tags import Tag

# ---- names of this package, without their modules ----

# Functions that define an operator with a given name.
DEFINING = ("custom_op", "define")

# What the plugin appends to the name of a function, so that no program can use it.
HIDDEN = "-overloaded"

PACKAGE = __name__.partition(".")[0]
_FOLDER = Path(__file__).parents[1]


def is_ours(fullname: str) -> bool:
    """Return whether a module, or a name in one, belongs to this package."""
    return fullname == PACKAGE or fullname.startswith(f"{PACKAGE}.")


def _module_of(fullname: str) -> str:
    module = fullname
    while not _is_module(module):
        module = module.rpartition(".")[0]
    return module


@cache
def _is_module(name: str) -> bool:
    """Return whether a module of the package has this name, imported or not."""
    if name in sys.modules:
        return True
    path = _FOLDER.joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_name(f"{path.name}.py").exists()


@cache
def own_name(fullname: str) -> str:
    """Return a name of this package such as ``Operator.register``, or "".

    Parameters
    ----------
    fullname : str
        The name as mypy knows it, with the module that defines it.

    Examples
    --------
    >>> own_name("customop.core.operator.Operator.register")
    'Operator.register'
    >>> own_name("numpy.ndarray")
    ''
    """
    if not is_ours(fullname):
        return ""
    return fullname.removeprefix(_module_of(fullname)).removeprefix(".")


# ---- convert mypy's types to runtime annotations ----
# Then `customop.schema.annotations` decides which annotations have a schema type, and
# words the errors for the others.


def annotation_of(mypy_type: Type, module: str) -> Any:
    """Return the runtime annotation for a type, as seen from a module.

    Raises
    ------
    Unfamiliar
        If only the running program knows what a part of it means.
    """
    if isinstance(mypy_type, TypeAliasType):
        name = _short(mypy_type.alias.fullname) if mypy_type.alias is not None else ""
        if name in _ALIASES:
            return _ALIASES[name]
        if isinstance(get_proper_type(mypy_type), AnyType):
            raise Unfamiliar  # the alias may be Any only for type checkers
    proper = get_proper_type(mypy_type)
    for cls, make in _FORMS.items():
        if isinstance(proper, cls):
            return make(proper, module)
    raise Unfamiliar


class Unfamiliar(Exception):
    """Raised for a type, value or function that the plugin cannot judge."""


def _full_names(cls: type) -> list[str]:
    # mypy knows the abstract classes of collections by their names in typing.
    is_abstract = cls.__module__ == "collections.abc"
    modules = [cls.__module__, *(["typing"] if is_abstract else [])]
    return [f"{module}.{cls.__qualname__}" for module in modules]


_CLASSES: dict[str, Any] = {name: cls for cls in CLASSES for name in _full_names(cls)}
# Name of an alias, without the module if it is ours -> its runtime value.
_ALIASES: dict[str, Any] = {
    "DType": DType,
    "Device": Device,
    "Scalar": Scalar,
    "numpy._typing._dtype_like.DTypeLike": npt.DTypeLike,
    "numpy._typing._array_like.ArrayLike": npt.ArrayLike,
}
_TUPLE: Any = tuple
# Full name of an array class -> the kind of array that messages name.
DEVICES = {
    "numpy.ndarray": "cpu",
    "cupy.ndarray": "cuda",
    "cupy._core.core.ndarray": "cuda",
}
_ARRAYS = (*DEVICES, "Array", "Computed", "FakeArray", "Tracer")
SEQUENCES = ("builtins.list", "builtins.tuple", "typing.Sequence")
_GENERATORS = ("numpy.random._generator.Generator", "cupy.random.Generator")
# NumPy scalar classes with a width argument -> the start of their names.
_WIDTHS = {
    "numpy.floating": "float",
    "numpy.signedinteger": "int",
    "numpy.unsignedinteger": "uint",
    "numpy.complexfloating": "complex",
}


def is_array(info: TypeInfo) -> bool:
    """Return whether instances of a class are known to be arrays."""
    return any(_short(base.fullname) in _ARRAYS for base in info.mro)


def _short(fullname: str) -> str:
    """Return the name of a class or alias, without the module if it is ours."""
    return own_name(fullname) or fullname


def device_of(spelled: Type | None, mypy_type: Type, names: SymbolTable) -> Any:
    """Return the annotation of a type that is written as `Device`, else None.

    mypy replaces that alias by str, so its name is looked up in `names`.
    """
    proper = get_proper_type(mypy_type)
    items = proper.items if isinstance(proper, UnionType) else [proper]
    texts = [_is_text(item) for item in items]
    if not any(texts) or spelled is None:
        return None
    words = [*words_of(spelled)]
    if not any(own_name(_full_name(word, names)) == "Device" for word in words):
        return None
    others = [i for i in items if not _is_text(i) and not isinstance(i, NoneType)]
    if others or texts.count(True) > 1:
        raise Unfamiliar
    return Device if len(items) == 1 else typing.Optional[Device]  # noqa: UP045  # an alias


def _is_text(mypy_type: Type) -> bool:
    proper = get_proper_type(mypy_type)
    return isinstance(proper, Instance) and proper.type.fullname == "builtins.str"


def words_of(spelled: Type) -> Iterator[str]:
    """Yield the names that an annotation contains, but no words in its strings."""
    if isinstance(spelled, UnboundType):
        yield spelled.name
        form = spelled.name.rpartition(".")[2]
        if form != "Literal":
            for argument in spelled.args[: 1 if form == "Annotated" else None]:
                yield from words_of(argument)
    elif isinstance(spelled, UnionType | TypeList):
        for item in spelled.items:
            yield from words_of(item)


def _full_name(word: str, names: SymbolTable) -> str:
    """Return the full name of a dotted name in a module."""
    first, *rest = word.split(".")
    symbol = names.get(first)
    for part in rest:
        node = None if symbol is None else symbol.node
        symbol = node.names.get(part) if isinstance(node, MypyFile) else None
    return (symbol.fullname or "") if symbol is not None else ""


def _of_any(proper: AnyType, module: str) -> Any:
    if proper.type_of_any == TypeOfAny.explicit:
        return Any
    raise Unfamiliar


def _of_none(proper: NoneType, module: str) -> Any:
    return None


def _of_literal(proper: LiteralType, module: str) -> Any:
    names = ("builtins.str", "builtins.int", "builtins.bool")
    if proper.fallback.type.fullname not in names:
        raise Unfamiliar
    return typing.Literal[proper.value]


def _of_union(proper: UnionType, module: str) -> Any:
    items = [annotation_of(item, module) for item in proper.items]
    literals = [i for i in items if typing.get_origin(i) is typing.Literal]
    rest = [item for item in items if item not in literals]
    if literals:
        values = tuple(v for item in literals for v in typing.get_args(item))
        rest.insert(0, typing.Literal[values])
    return typing.Union[tuple(rest)]  # noqa: UP007  # of a tuple


def _of_variable(proper: TypeVarType, module: str) -> Any:
    if proper.id.is_self():
        raise Unfamiliar
    # mypy only accepts `TypeVar(name)` if it is assigned to that name.
    make: Any = typing_extensions.TypeVar
    if proper.values:
        options = [annotation_of(value, module) for value in proper.values]
        is_bare = proper.variance == VARIANCE_NOT_READY
        return make(proper.name, *options, infer_variance=is_bare)
    bound = get_proper_type(proper.upper_bound)
    if isinstance(bound, Instance) and bound.type.fullname == "builtins.object":
        # A variable in a function's brackets prints as its bare name.
        is_bare = proper.variance == VARIANCE_NOT_READY
        return make(proper.name, infer_variance=is_bare)
    given = annotation_of(proper.upper_bound, module)
    return make(proper.name, bound=given)


def _of_tuple(proper: TupleType, module: str) -> Any:
    info = proper.partial_fallback.type
    items = [annotation_of(item, module) for item in proper.items]
    if info.fullname == "builtins.tuple":
        return _TUPLE[tuple(items)]
    return _named_tuple(info, items)


def _named_tuple(info: TypeInfo, items: list[Any]) -> Any:
    if not info.is_named_tuple or "namedtuple" not in info.metadata:
        raise Unfamiliar
    names = info.metadata["namedtuple"]["fields"]
    pairs = list(zip(names, items, strict=True))
    make: Any = typing.NamedTuple
    return _placed(make(info.name, pairs), info)


def _of_typed_dict(proper: TypedDictType, module: str) -> Any:
    fields = {name: annotation_of(item, module) for name, item in proper.items.items()}
    info = proper.fallback.type
    make: Any = typing.TypedDict
    return _placed(make(info.name, fields), info)


def _of_callable(proper: CallableType, module: str) -> Any:
    given = [annotation_of(item, module) for item in proper.arg_types]
    result = annotation_of(proper.ret_type, module)
    make: Any = Callable
    return make[..., result] if proper.is_ellipsis_args else make[given, result]


def _of_type(proper: TypeType, module: str) -> Any:
    return type[annotation_of(proper.item, module)]


# ---- classes ----


def _of_instance(proper: Instance, module: str) -> Any:
    info = proper.type
    if is_array(info):
        is_any = own_name(info.fullname) == Array.__name__
        return Array if is_any else _array_of(proper)
    if info.fullname in _GENERATORS:
        return np.random.Generator
    if any(base.fullname == "numpy.generic" for base in info.mro):
        return _numpy_scalar(proper)
    if info.fullname in _CLASSES:
        return _generic(_CLASSES[info.fullname], proper, module)
    return _config_class(info, module)


def _array_of(proper: Instance) -> Any:
    """Return the array class, with the class of elements if the annotation has one."""
    last = get_proper_type(proper.args[-1]) if proper.args else None
    inside = get_proper_type(last.args[0]) if isinstance(last, Instance) else None
    if proper.type.fullname != "numpy.ndarray" or not isinstance(inside, Instance):
        return np.ndarray
    array, of_elements = typing.cast("Any", (np.ndarray, np.dtype))
    return array[Any, of_elements[_numpy_scalar(inside)]]


def _numpy_scalar(proper: Instance) -> Any:
    name = proper.type.name
    if proper.type.fullname in _WIDTHS and proper.args:
        width = get_proper_type(proper.args[0])
        bits = width.type.name.strip("_Bit") if isinstance(width, Instance) else ""
        count = int(bits) * (2 if "complex" in name else 1) if bits.isdecimal() else ""
        name = f"{_WIDTHS[proper.type.fullname]}{count}" if count else name
    found = getattr(np, name, None)
    if not isinstance(found, type) or not issubclass(found, np.generic):
        raise Unfamiliar
    return found


def _generic(cls: Any, proper: Instance, module: str) -> Any:
    """Return a class, with type arguments if the annotation has any."""
    given = [get_proper_type(arg) for arg in proper.args]
    left_out = (TypeOfAny.from_omitted_generics, TypeOfAny.unannotated)
    if not hasattr(cls, "__class_getitem__") or any(
        isinstance(arg, AnyType) and arg.type_of_any in left_out for arg in given
    ):
        return cls
    if proper.type.fullname == "builtins.tuple":
        return _TUPLE[annotation_of(proper.args[0], module), ...]
    items = tuple(annotation_of(arg, module) for arg in proper.args)
    return cls[items] if items else cls


def _config_class(info: TypeInfo, module: str) -> Any:
    if info.is_newtype:
        return annotation_of(info.bases[0], module)
    if info.is_enum:
        return _enumeration(info)
    if "dataclass" in info.metadata:
        return _dataclass(info, module)
    raise Unfamiliar


def plain_class(mypy_type: Type, module: str) -> Any:
    """Return a plain class of the module that cannot have a schema type, else None."""
    proper = get_proper_type(mypy_type)
    if not isinstance(proper, Instance) or proper.type.module_name != module:
        return None
    info = proper.type
    is_special = info.is_protocol or info.is_abstract or info.fallback_to_any
    is_made = info.metadata or info.defn.decorators or info.metaclass_type
    bases = [base.type.fullname for base in info.bases]
    if is_special or is_made or proper.args or bases != ["builtins.object"]:
        return None
    return _placed(type(info.name, (), {}), info)


def _enumeration(info: TypeInfo) -> Any:
    members = [
        name
        for name, symbol in info.names.items()
        if isinstance(symbol.node, Var) and not name.startswith("_")
    ]
    return _placed(enum.Enum(info.name, members), info)


def _dataclass(info: TypeInfo, module: str) -> Any:
    frozen = info.metadata["dataclass"]["frozen"]
    if not frozen and info.module_name != module:
        raise Unfamiliar  # its module may register the class
    if info.metadata.get("customop") or _is_registered(info):
        raise Unfamiliar
    fields = []
    for attribute in info.metadata["dataclass"]["attributes"]:
        symbol = info.names.get(attribute["name"])
        node = symbol.node if symbol is not None else None
        if attribute["is_init_var"] or not isinstance(node, Var) or node.type is None:
            raise Unfamiliar
        fields.append((attribute["name"], annotation_of(node.type, module)))
    return _placed(dataclasses.make_dataclass(info.name, fields, frozen=frozen), info)


def _is_registered(info: TypeInfo) -> bool:
    """Return whether `register_config_type` decorates a class; mypy has no hook."""
    given = [d.callee if isinstance(d, CallExpr) else d for d in info.defn.decorators]
    names = [own_name(d.fullname) for d in given if isinstance(d, RefExpr)]
    return "register_config_type" in names


def _placed(cls: Any, info: TypeInfo) -> Any:
    """Give a class made here the name and module of the user's class."""
    # The file name of a script can be any text. mypy adds the line to a local class.
    cls.__module__ = re.sub(r"(^|\.)(?=\d)|-", r"\1_", info.module_name)
    name = info.fullname.removeprefix(f"{info.module_name}.")
    cls.__qualname__ = re.sub(r"@\d+", "", name)
    return cls


_FORMS: dict[type[ProperType], Callable[[Any, str], Any]] = {
    AnyType: _of_any,
    NoneType: _of_none,
    LiteralType: _of_literal,
    UnionType: _of_union,
    TypeVarType: _of_variable,
    TupleType: _of_tuple,
    TypedDictType: _of_typed_dict,
    CallableType: _of_callable,
    TypeType: _of_type,
    Instance: _of_instance,
}


# ---- values of expressions in the source ----


def constant(expression: Expression) -> Any:
    """Return the value of an expression.

    Raises
    ------
    Unfamiliar
        If the value is not visible in the source.
    """
    if isinstance(expression, StrExpr | IntExpr | FloatExpr | ComplexExpr):
        return expression.value
    if isinstance(expression, NameExpr | MemberExpr):
        return _of_name(expression)
    if isinstance(expression, UnaryExpr) and expression.op == "-":
        value = constant(expression.expr)
        if type(value) in (int, float, complex):
            return -value
    make = _SEQUENCES.get(type(expression))
    if make is None:
        raise Unfamiliar
    return make([constant(item) for item in expression.items])  # type: ignore[attr-defined]  # all three have it


def constant_or(expression: Expression | None, otherwise: Any) -> Any:
    """Return the value of an expression, or `otherwise` if it is not visible."""
    if expression is None:
        return otherwise
    try:
        return constant(expression)
    except Unfamiliar:
        return otherwise


def _of_name(expression: NameExpr | MemberExpr) -> Any:
    if expression.fullname in _NAMED:
        return _NAMED[expression.fullname]
    if isinstance(expression, MemberExpr) and isinstance(expression.expr, RefExpr):
        # mypy gives members of an Enum no full name.
        owner = own_name(expression.expr.fullname)
        if owner == Tag.__name__ and expression.name in Tag.__members__:
            return Tag[expression.name]
    node = expression.node
    if isinstance(node, Var) and node.is_final and node.final_value is not None:
        return node.final_value
    raise Unfamiliar


_NAMED: dict[str, Any] = {
    "builtins.True": True,
    "builtins.False": False,
    "builtins.None": None,
    **{
        f"{module}.{name}": getattr(math, name)
        for module in ("math", "numpy")
        for name in ("inf", "nan", "pi", "e")
    },
}
_SEQUENCES: dict[type[Expression], Any] = {
    ListExpr: list,
    TupleExpr: tuple,
    SetExpr: set,
}
