"""Check calls of transforms, and give types to NumPy functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from mypy.nodes import (
    ARG_NAMED,
    ARG_NAMED_OPT,
    ARG_OPT,
    ARG_POS,
    ARG_STAR,
    ARG_STAR2,
    ArgKind,
    Context,
    Decorator,
    Expression,
    LambdaExpr,
    ListExpr,
    RefExpr,
    StarExpr,
    TupleExpr,
    TypeInfo,
    Var,
)
from mypy.plugin import FunctionContext, FunctionSigContext, MethodContext
from mypy.subtypes import find_member
from mypy.types import (
    AnyType,
    CallableType,
    FunctionLike,
    Instance,
    NoneType,
    Overloaded,
    ProperType,
    TupleType,
    Type,
    TypeOfAny,
    TypeVarType,
    UnionType,
    UnpackType,
    get_proper_type,
)

from customop.core.registry import in_namespace
from customop.errors import CustomOpError, MissingRuleError, no_function
from customop.mypy import records
from customop.mypy.definitions import overloads_of
from customop.mypy.hints import SEQUENCES, constant_or, is_array
from customop.mypy.program import is_operator, signature_of
from customop.mypy.records import Call, Record, checker, recall
from customop.mypy.source import Survey, defined_by
from customop.schema.schema import Schema
from customop.schema.tags import Tag
from customop.schema.types import (
    KEYWORD_ONLY,
    MISSING,
    POSITIONAL,
    POSITIONAL_ONLY,
)
from customop.transforms.values import chosen, no_pair
from customop.transforms.vmap import other_length

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

# ---- calls of transforms ----
# Checks positions of arguments, entries of `in_dims`, and missing gradients.

# Function with an argument `argnums` -> whether it needs a gradient.
TRANSFORMS = {
    "grad": True,
    "value_and_grad": True,
    "jacrev": True,
    "jacfwd": False,
    "hessian": True,
}
# At runtime these call another transform, which words their errors.
_SPOKEN = {"value_and_grad": "grad", "hessian": "jacrev"}


def result_of_transform(
    api: TypeChecker, call: Call, transform: str, default: Type
) -> Type:
    """Return the type of a transformed function, with all overloads of the function.

    mypy only uses the first overload, and a ufunc's first overload takes no arrays.
    """
    given, made = call.get(0), get_proper_type(default)
    overloads = None if given is None else _overloads(given.type)
    if overloads is None:
        return _derivative(api, call, transform) or default
    if not isinstance(made, CallableType | Instance):
        return default
    items = [_transformed(item, transform) for item in overloads.items]
    return Overloaded(items)


def is_refused(api: TypeChecker, transform: str, context: FunctionSigContext) -> bool:
    """Return whether no overload can fit a call, after a report of the reason."""
    default = context.default_signature
    given = dict(zip(default.arg_names, context.args, strict=True))
    if not given.get("fn"):
        return False
    expression = given["fn"][0]
    if isinstance(expression, LambdaExpr):
        return False
    with api.msg.filter_errors(), api.local_type_map:
        found = get_proper_type(api.expr_checker.accept(expression))
    what = _SPOKEN.get(transform, transform)
    has_aux = any(constant_or(e, None) is True for e in given.get("has_aux", ()))
    error: CustomOpError | None = None
    if _is_no_function(found):
        error = no_function(what, _text(found))
    elif has_aux and isinstance(found, CallableType):
        result = get_proper_type(found.ret_type)
        if isinstance(result, Instance) and not _may_be_pair(result.type):
            error = no_pair(what, _text(result))
    if error is not None:
        records.report(api, error, expression, records.TRANSFORM)
    return error is not None


def _is_no_function(found: ProperType) -> bool:
    if isinstance(found, Instance):
        return find_member("__call__", found, found) is None
    return isinstance(found, TupleType | NoneType)


def _may_be_pair(info: TypeInfo) -> bool:
    names = [base.fullname for base in info.mro]
    return "builtins.tuple" in names or info.is_protocol or len(names) == 1


def _text(found: ProperType) -> str:
    return found.type.name if isinstance(found, Instance) else str(found)


def for_any_call(overload: CallableType) -> CallableType:
    """Return an overload that fits every call, and whose result is not known."""
    return overload.copy_modified(
        arg_types=[_UNKNOWN, _UNKNOWN],
        arg_kinds=[ARG_STAR, ARG_STAR2],
        arg_names=[None, None],
        ret_type=_UNKNOWN,
        variables=(),
    )


def _overloads(mypy_type: Type) -> Overloaded | None:
    proper = get_proper_type(mypy_type)
    kept = overloads_of(proper)
    if kept is None and isinstance(proper, Instance):
        call = find_member("__call__", proper, proper)
        return None if call is None else _overloads(call)
    return proper if isinstance(proper, Overloaded) else kept


def _transformed(item: CallableType, transform: str) -> CallableType:
    """Return the type of a function under a transform; only vmap keeps its result."""
    is_same = transform == "vmap"
    result = item.ret_type if is_same else AnyType(TypeOfAny.special_form)
    return item.copy_modified(ret_type=result, name=None, definition=None)


def check_positions(api: TypeChecker, call: Call, transform: str) -> None:
    """Report an `argnums` beyond the positional parameters of the function."""
    limits, given = _limits(call), call.expression("argnums")
    wanted = call.constant("argnums", None)
    wanted = (wanted,) if isinstance(wanted, int) else wanted
    if limits is None or given is None or not _are_ints(wanted):
        return
    what = f"{_SPOKEN.get(transform, transform)} of {_name(call)}"
    try:
        chosen(what, tuple(wanted), limits[1])
    except CustomOpError as error:
        records.report(api, error, given, records.TRANSFORM)


def _are_ints(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(type(item) is int for item in value)


def check_vmap(api: TypeChecker, call: Call) -> None:
    """Report `in_dims` with more or fewer entries than the function can have."""
    limits, given = _limits(call), call.expression("in_dims")
    count = _length(given)
    if limits is None or given is None or count is None:
        return
    fewest, most = limits
    if not fewest <= count <= most:
        error = other_length(_name(call), count, most if count > most else fewest)
        records.report(api, error, given, records.TRANSFORM)


def _length(given: Expression | None) -> int | None:
    """Return the number of entries of a literal tuple or list, or None."""
    if not isinstance(given, TupleExpr | ListExpr):
        return None
    is_open = any(isinstance(item, StarExpr) for item in given.items)
    return None if is_open else len(given.items)


def _name(call: Call) -> str:
    """Return the function's name as messages show it at runtime."""
    given = call.get(0)
    record = None if given is None else recall(given.type)
    if record is not None:
        return record.name.partition("::")[2].replace(".", "_")
    proper = get_proper_type(given.type) if given is not None else None
    name = proper.name if isinstance(proper, CallableType) else None
    return (name or "<lambda>").partition(" of ")[0]


def _limits(call: Call) -> tuple[int, int] | None:
    """Return the fewest and most positional arguments of the function, or None."""
    fn = _signature(call)
    if fn is None or any(found.is_star() for found in fn.arg_kinds):
        return None
    positional = [found for found in fn.arg_kinds if found.is_positional()]
    required = [found for found in positional if found.is_required()]
    return len(required), len(positional)


def _signature(call: Call) -> CallableType | None:
    """Return the type of the function that is passed, if its parameters are known."""
    given = call.get(0)
    proper = get_proper_type(given.type) if given is not None else None
    if isinstance(proper, Instance) and is_operator(proper):
        proper = signature_of(proper)
    if not isinstance(proper, CallableType) or proper.is_type_obj():
        return None
    if proper.is_ellipsis_args or proper.param_spec() is not None:
        return None
    return proper


def check_rule(api: TypeChecker, survey: Survey, call: Call, context: Context) -> None:
    """Report an operator of this module that needs a gradient and has none.

    Only an operator passed by its own name counts. A function around it may be meant
    for a time when another module has registered the gradient.
    """
    given, expression = call.get(0), call.expression(0)
    record = None if given is None else recall(given.type)
    node = expression.node if isinstance(expression, RefExpr) else None
    if record is None or not record.has_schema:
        return
    is_here = record.origin.rpartition("#")[0] == api.tree.fullname
    if not is_here or not isinstance(node, Decorator | Var):
        return
    if _may_have_gradient(survey, node, record):
        return
    error = MissingRuleError(
        f"{record.name} has no 'autograd' rule", do=f"@{node.name}.register_autograd"
    )
    records.report(api, error, expression or context, records.AUTOGRAD)


def _may_have_gradient(survey: Survey, node: Decorator | Var, record: Record) -> bool:
    if isinstance(node, Decorator):
        return survey.may_have_gradient(node.func)
    # The full name of a variable inside a function has no dots.
    values = survey.assigned(node.name) if "." in node.fullname else []
    is_here = any(record.name in defined_by(value) for value in values)
    return not is_here or survey.may_have_gradients()


# ---- types of derivatives ----
# Overloads in the package cover the most frequent calls. Here are the types of all that
# name their `argnums` and `has_aux` in the source.

_UNKNOWN = AnyType(TypeOfAny.special_form)
_JACOBIANS = ("jacrev", "jacfwd", "hessian")
# A function with more parameters keeps the type that mypy knows, if positions count from
# the end: there is one overload for each number of arguments.
_MOST_OVERLOADS = 8


def _derivative(api: TypeChecker, call: Call, transform: str) -> Type | None:
    """Return the type of a function made by `grad` or the like, or None if unknown."""
    if transform not in TRANSFORMS:
        return None
    fn, wanted = _signature(call), call.constant("argnums", None)
    has_aux = call.constant("has_aux", False)
    if call.get("argnums") is None:
        wanted = 0
    is_single = type(wanted) is int
    wanted = (wanted,) if is_single else wanted
    is_lambda = isinstance(call.expression(0), LambdaExpr)
    if fn is None or is_lambda or not _are_ints(wanted) or not wanted:
        return None
    value, aux = _value_and_aux(fn.ret_type, has_aux)
    if value is None:
        return None

    def made(inputs: list[Type]) -> Type:
        by = inputs[0] if is_single else _tuple_of(api, inputs)
        if transform == "value_and_grad":
            return _tuple_of(api, [fn.ret_type, by])
        result = by
        if transform in _JACOBIANS:
            result = _JacobianType(api, transform).of(value, by)
        return result if aux is None else _tuple_of(api, [result, aux])

    items = [
        called.copy_modified(ret_type=made(inputs))
        for called, inputs in _by_position(fn, tuple(wanted))
    ]
    if not items:
        return None
    return items[0] if len(items) == 1 else Overloaded(items)


def _value_and_aux(result: Type, has_aux: object) -> tuple[Type | None, Type | None]:
    """Return the types of the value and of `aux`; no value if they are not known."""
    if has_aux is False:
        return result, None
    proper = get_proper_type(result)
    if has_aux is not True or not isinstance(proper, TupleType):
        return None, None
    is_pair = len(proper.items) == 2 and not any(map(_is_unpacked, proper.items))
    return (proper.items[0], proper.items[1]) if is_pair else (None, None)


def _is_unpacked(item: Type) -> bool:
    return isinstance(get_proper_type(item), UnpackType)


def _tuple_of(api: TypeChecker, items: list[Type]) -> TupleType:
    return TupleType(items, api.named_generic_type("builtins.tuple", [_UNKNOWN]))


def _by_position(
    fn: CallableType, wanted: tuple[int, ...]
) -> Iterator[tuple[CallableType, list[Type]]]:
    """Yield signatures of the derivative, and the types of the chosen arguments.

    Positions from the end depend on how many arguments a call passes by position, so
    there is one signature for each such number.
    """
    most = sum(kind.is_positional() for kind in fn.arg_kinds)
    has_more = ARG_STAR in fn.arg_kinds
    fewest = max(wanted) + 1
    if min(wanted) >= 0:
        counts = [fewest] if fewest <= most or has_more else []
    else:
        is_few = most <= _MOST_OVERLOADS and not has_more
        counts = [*range(most, 0, -1)] if is_few else []
    for count in counts:
        try:
            at = chosen("", wanted, count)
        except CustomOpError:
            continue
        called = _with_positions(fn, count, keeps_others=min(wanted) >= 0)
        if called is not None:
            yield called, [called.arg_types[i] for i in at]


def _with_positions(
    fn: CallableType, count: int, *, keeps_others: bool
) -> CallableType | None:
    """Return a signature whose first parameters are passed by position, in each call.

    The others are passed by name, unless they keep what they are.
    """
    types: list[Type] = []
    kinds: list[ArgKind] = []
    names: list[str | None] = []
    for at, (given, found, name) in enumerate(
        zip(fn.arg_types, fn.arg_kinds, fn.arg_names, strict=True)
    ):
        is_first = found.is_positional() and at < count
        if found == ARG_STAR:
            missing = range(len(types), count)
            types += [given for _ in missing]
            kinds += [ARG_POS for _ in missing]
            names += [None for _ in missing]
        is_by_name = found.is_positional() and not is_first and not keeps_others
        if is_by_name and name is None:
            if found == ARG_POS:
                return None
            continue
        named = ARG_NAMED if found == ARG_POS else ARG_NAMED_OPT
        types.append(given)
        kinds.append(ARG_POS if is_first else named if is_by_name else found)
        names.append(None if is_first else name)
    return fn.copy_modified(
        arg_types=types, arg_kinds=kinds, arg_names=names, name=None, definition=None
    )


class _JacobianType:
    """Types of Jacobians: nested like the output, then like the input."""

    def __init__(self, api: TypeChecker, transform: str) -> None:
        self._api = api
        self._transform = transform

    def of(self, value: Type, by: Type) -> Type:
        """Return the type of the derivative of a value by inputs."""
        if self._transform != "hessian":
            return self._nested(value, lambda out: self._nested(by, self._leaf(out)))
        first = _JacobianType(self._api, "jacrev").of(value, by)
        return _JacobianType(self._api, "jacfwd").of(first, by)

    def _nested(self, tree: Type, leaf: Callable[[Instance], Type]) -> Type:
        """Return the type of a tree with other leaves; Any for what is not known."""
        proper = get_proper_type(tree)
        if isinstance(proper, TupleType):
            is_plain = proper.partial_fallback.type.fullname == "builtins.tuple"
            if not is_plain or any(map(_is_unpacked, proper.items)):
                return _UNKNOWN
            items = [self._nested(item, leaf) for item in proper.items]
            return _tuple_of(self._api, items)
        if not isinstance(proper, Instance):
            return _UNKNOWN
        if proper.type.fullname in _TREES and proper.args:
            *keys, item = proper.args
            return proper.copy_modified(args=[*keys, self._nested(item, leaf)])
        return leaf(proper)

    def _leaf(self, out: Instance) -> Callable[[Instance], Type]:
        """Return a function from the class of an input to that of its Jacobian."""

        def by(given: Instance) -> Type:
            # jvp's tangents have the dtype of the output, gradients that of the input.
            dtype_of = out if self._transform == "jacfwd" else given
            if not _may_vary(out) or not _may_vary(given):
                return _UNKNOWN
            arrays = [leaf for leaf in (out, given) if is_array(leaf.type)]
            if not arrays:
                return dtype_of
            if len({array.type.fullname for array in arrays}) > 1:
                return _UNKNOWN
            return self._array(arrays[0], dtype_of)

        return by

    def _array(self, array: Instance, dtype_of: Instance) -> Type:
        """Return the type of an array of other axes, with the dtype of a leaf."""
        if len(array.args) != 2:
            return array if not array.args else _UNKNOWN
        if is_array(dtype_of.type):
            dtype = dtype_of.args[-1]
        else:
            name = _FLOATS.get(dtype_of.type.fullname)
            scalar = self._api.named_type(name) if name is not None else dtype_of
            dtype = self._api.named_generic_type("numpy.dtype", [scalar])
        axes = self._api.named_generic_type("builtins.tuple", [_UNKNOWN])
        return array.copy_modified(args=[axes, dtype])


# Classes of trees whose last argument is the type of the items.
_TREES = ("builtins.list", "builtins.tuple", "builtins.dict")


# Python's numbers -> the scalars of NumPy that transforms make of them.
_FLOATS = {
    "builtins.float": "numpy.float64",
    "builtins.complex": "numpy.complex128",
}


def _may_vary(leaf: Instance) -> bool:
    """Return whether a leaf is an array or a number that can have a derivative."""
    is_inexact = any(base.fullname == "numpy.inexact" for base in leaf.type.mro)
    return is_array(leaf.type) or is_inexact or leaf.type.fullname in _FLOATS


# ---- results of NumPy functions that NumPy's stubs do not know ----
# The stubs return an ndarray or Any for arguments of any class. At runtime the class of
# the arguments decides, through NumPy's protocols (NEP 13 and 18). For an ndarray with
# unknown elements several overloads fit, and mypy then returns Any.

_NDARRAY = "numpy.ndarray"
# Functions that make an ndarray of any argument, or refuse it.
_CONVERTING = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
_ARITHMETIC = {
    f"{_NDARRAY}.__{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
}
_Call: TypeAlias = FunctionContext | MethodContext


def is_ufunc_call(fullname: str) -> bool:
    """Return whether a method is `__call__` of a ufunc class in NumPy's stubs."""
    return fullname.startswith("numpy._typing._ufunc.") and fullname.endswith(
        ".__call__"
    )


def is_numpy_function(fullname: str) -> bool:
    """Return whether a name is a NumPy function that keeps its arguments' class."""
    is_numpy = fullname.startswith("numpy.")
    return is_numpy and fullname.rpartition(".")[2] not in _CONVERTING


def is_arithmetic(fullname: str) -> bool:
    """Return whether a method is an arithmetic operator of ndarrays."""
    return fullname in _ARITHMETIC


def result_of_arithmetic(context: MethodContext) -> Type:
    """Return the result type of arithmetic: an ndarray for two ndarrays."""
    default, array = context.default_return_type, get_proper_type(context.type)
    if not _is_any(default) or not isinstance(array, Instance):
        return default
    if not any(_is_ndarray(found) for found in _arrays(context)):
        return default
    unknown = AnyType(TypeOfAny.special_form)
    return array.copy_modified(args=[unknown] * len(array.args))


def result_of_ufunc(context: _Call) -> Type:
    """Return the result type of a ufunc: ndarray, or the class of an argument."""
    found = _arrays(context)
    others = [array for array in found if not _is_ndarray(array)]
    default = context.default_return_type
    if others:
        return _of_class(others[0], default)
    return found[0] if found and _may_be_any(default) else default


def result_of_function(context: _Call) -> Type:
    """Return the result type of a NumPy function: the class of its argument."""
    others = [array for array in _arrays(context) if not _is_ndarray(array)]
    default = context.default_return_type
    return _of_class(others[0], default) if others else default


def _of_class(array: Type, default: Type) -> Type:
    proper = get_proper_type(default)
    items = proper.items if isinstance(proper, UnionType) else [default]
    return (
        array if all(_is_any(item) or _is_ndarray(item) for item in items) else default
    )


def _is_any(mypy_type: Type) -> bool:
    return isinstance(get_proper_type(mypy_type), AnyType)


def _may_be_any(mypy_type: Type) -> bool:
    proper = get_proper_type(mypy_type)
    items = proper.items if isinstance(proper, UnionType) else [proper]
    return any(_is_any(item) for item in items)


def _is_ndarray(mypy_type: Type) -> bool:
    proper = get_proper_type(mypy_type)
    return isinstance(proper, Instance) and proper.type.fullname == _NDARRAY


def _arrays(context: _Call) -> list[Type]:
    return [array for found in _given(context) for array in _arrays_in(found)]


def _given(context: _Call) -> Iterator[Type]:
    """Yield the types of the arguments, and of the items of a literal list.

    mypy would give such a list the type that the stubs accept.
    """
    api = checker(context)
    for types, expressions in zip(context.arg_types, context.args, strict=True):
        for given, expression in zip(types, expressions, strict=True):
            if isinstance(expression, ListExpr | TupleExpr):
                yield from (api.lookup_type(item) for item in expression.items)
            else:
                yield given


def _arrays_in(given: Type) -> Iterator[Type]:
    """Yield the array types in a type: itself, or items of lists and tuples."""
    proper = get_proper_type(given)
    bound = proper.upper_bound if isinstance(proper, TypeVarType) else proper
    found = get_proper_type(bound)
    if isinstance(found, Instance) and is_array(found.type):
        yield proper
    elif isinstance(proper, TupleType):
        for item in proper.items:
            yield from _arrays_in(item)
    elif isinstance(proper, Instance) and proper.type.fullname in SEQUENCES:
        for item in proper.args:
            yield from _arrays_in(item)


# ---- calls of the operators of this package: `ops.np.sin` ----
# They have no definition that mypy sees. Their schemas say which arguments they take. The
# results of pointwise ones are arrays of the class of the arguments; a reduction may give
# a number.


def signature_of_own(name: str, default: FunctionLike) -> FunctionLike | None:
    """Return the call signature of an operator of this package, or None."""
    namespace, _, short = name.partition("::")
    found = in_namespace(namespace).get(short, {})
    items = [_signature_of(op.schema, default.items[0]) for op in found.values()]
    return items[0] if len(items) == 1 else Overloaded(items) if items else None


def _signature_of(schema: Schema, plain: CallableType) -> CallableType:
    kinds = [_KINDS[p.kind][p.default is not MISSING] for p in schema.parameters]
    is_named = [p.kind != POSITIONAL_ONLY for p in schema.parameters]
    return plain.copy_modified(
        arg_types=[_UNKNOWN for _ in kinds],
        arg_kinds=kinds,
        arg_names=[
            p.name if named else None
            for p, named in zip(schema.parameters, is_named, strict=True)
        ],
    )


# Kind of a parameter -> the kinds that mypy has for it, without and with a default.
_KINDS: dict[str, tuple[ArgKind, ArgKind]] = {
    POSITIONAL_ONLY: (ARG_POS, ARG_OPT),
    POSITIONAL: (ARG_POS, ARG_OPT),
    KEYWORD_ONLY: (ARG_NAMED, ARG_NAMED_OPT),
}


def result_of_own(name: str, context: _Call) -> Type:
    """Return the result type of a call of an operator of this package."""
    namespace, _, short = name.partition("::")
    found = [*in_namespace(namespace).get(short, {}).values()]
    classes = {_plain_array(array) for array in _arrays(context)}
    default = context.default_return_type
    if len(found) != 1 or len(classes) != 1 or not _is_any(default):
        return default
    if Tag.pointwise not in found[0].tags:
        return default
    results = [classes.pop()] * len(found[0].schema.returns)
    is_tuple = found[0].schema.is_tuple
    return _tuple_of(checker(context), results) if is_tuple else results[0]


def _plain_array(array: Type) -> Type:
    """Return the class of an array, with any axes and elements."""
    proper = get_proper_type(array)
    if not isinstance(proper, Instance):
        return array
    return proper.copy_modified(args=[_UNKNOWN] * len(proper.args))
