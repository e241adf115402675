"""How a call finds the kernel or rule that it runs; read from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import numpy as np

from customop.arrays.fake import to_fake
from customop.arrays.kinds import (
    CPU,
    DEFAULT,
    FAKE,
    TRACED,
    find_kind,
    handler_of,
    hosts,
    is_array,
    is_traced,
    kind_of,
    may_wrap,
    standard_kinds,
)
from customop.arrays.nested import map_nested
from customop.core.builtin_kinds import ARRAY_CLASS
from customop.core.call_arguments import (
    as_kernel_takes,
    check_alive,
    check_writable,
    in_c_order,
    kind_of_call,
)
from customop.core.contract import COMPOSITE_RULE, check_returns
from customop.core.derived_rules import find_fake, missing_fake
from customop.core.interpreter import (
    current_mode,
    highest,
    leaked,
    mode_for,
    nested_leaves,
    top_interpreter,
)
from customop.core.kernel_proof import AfterCall, FakeProof, Proof, proof_of
from customop.core.observe import observed, observers, open_modes
from customop.core.rule_kind import COMPOSITE, Row
from customop.core.table import Plans, RuleTable
from customop.core.tracer import handle_boxes
from customop.errors import CustomOpError, MissingRuleError, quoted, runs_kernels
from customop.frozen import Frozen
from customop.later import later
from customop.shapes.sizes import has_sizes, made

standard: ModuleType = later(import_module, "customop.arrays.standard")

# ---- a call ----
# `dispatch` asks the arguments who handles the call. Without a transform or mode
# `select` takes the kernel for their kind of array.


@runs_kernels
def dispatch(op: RuleTable, args: Sequence[Any]) -> Any:  # noqa: C901, PLR0912  # one frame
    """Call an operator by the slow path, which is the specification of the fast one.

    Parameters
    ----------
    op : Operator
    args : sequence
        Coerced values of all parameters, in the order of the schema.
    """
    top: Any = None
    is_mixed = False
    watched_by: Sequence[Any] = ()
    if open_modes or op.sees_seed:
        top = None if current_mode.get() is None else mode_for(op)
        watched_by = observers
    for slot in op.array_slots:
        value = args[slot]
        kind = kind_of[type(value)]
        if kind is None and type(value) not in _PLAIN:
            wrapper = find_wrapper(op, args)
            if wrapper is not None:
                return wrapper.handle(op, args)
        if kind is TRACED:
            interpreter = value.interpreter
            if top is None:
                top = interpreter
            elif interpreter is not top:
                is_mixed = True
                if interpreter.level > top.level:
                    top = interpreter
    if op.nested_slots:
        wrapper = find_wrapper(op, args) if may_wrap() else None
        if wrapper is not None:
            return wrapper.handle(op, args)
        leaves = nested_leaves(op, args)
        top = highest(top, leaves)
        is_mixed = is_mixed or any(
            is_traced(v) and v.interpreter is not top for v in leaves
        )
    if top is None:
        # The kernel is called here, so that few frames are above it.
        try:
            kernel, values, keywords, proof = select(op, args)
        except CustomOpError as error:
            # Hide internal frames from the caller.
            raise error.with_traceback(None) from error.__cause__
        if watched_by:
            kernel = observed(op, "kernel", kernel, args, proof)
        try:
            if proof is None:
                return kernel(*values, **keywords)
            return proof.run(kernel, values, keywords)
        except (NotImplementedError, TypeError) as error:
            lacking = _lacking(op, kernel, args, error)
            if lacking is None:
                raise
            raise lacking from error
    if not top.alive:
        raise leaked(op, top)
    handle = observed(op, top, top.handle, args) if watched_by else top.handle
    if is_mixed or op.has_aliases:
        return handle_boxes(handle, top, op, args)
    return handle(op, args)


@runs_kernels
def dispatch_composite(op: RuleTable, args: Sequence[Any]) -> Any:
    """Call an operator with a body that transforms and modes see; see `dispatch`."""
    top = top_interpreter(op, args)
    row = op.rows.get(COMPOSITE)
    if top is None or row is None or not top.alive or not top.opens(op):
        return dispatch(op, args)
    if may_wrap() and find_wrapper(op, args) is not None:
        return dispatch(op, args)
    positional, keywords = op.schema.split(args)
    body = observed(op, top, row.fn, args) if observers else row.fn
    out = body(*positional, **keywords)
    if not op.schema.single_return or not is_array(out):
        check_returns(op, row.fn, out, COMPOSITE_RULE)
    return out


# Classes of values that may be given for an array and are not one.
_PLAIN = frozenset((type(None), float, int, bool, complex))


# ---- which kernel ----


def select(
    op: RuleTable, args: Sequence[Any]
) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any], Any]:
    """Choose the kernel of a call: with positional and keyword values, and a proof or None."""
    known = op.plans.kernel
    if known is not None and (not made or _CONCRETE.issuperset(map(type, args))):
        has_scalar = False
        for slot in op.array_slots:
            cls = type(args[slot])
            if cls is not np.ndarray:
                if cls not in SCALARS:
                    break
                has_scalar = True
        else:  # as below, in a fifth of the time
            return known, _as_arrays(op, args) if has_scalar else args, {}, None
    return _selected(op, args)


def _as_arrays(
    op: RuleTable, args: Sequence[Any], make: Callable[[Any], Any] = np.asarray
) -> list[Any]:
    """Replace NumPy's scalars among the values of a call by arrays that `make` makes."""
    slots = op.array_slots
    return [
        make(v) if isinstance(v, np.generic) and i in slots else v
        for i, v in enumerate(args)
    ]


def _on_kind(op: RuleTable, args: Sequence[Any], kind: str) -> list[Any]:
    """Replace NumPy's scalars by arrays of a kind, which need not take those of NumPy."""
    found = find_kind(kind)
    make = found.from_numpy
    if make is None or kind == CPU.name or CPU.name in found.accepts:
        return _as_arrays(op, args)

    def made(value: Any) -> Any:
        return make(np.asarray(value)) if isinstance(value, np.generic) else value

    arrays = _as_arrays(op, args, made)
    for slot in op.nested_slots:
        arrays[slot] = map_nested(arrays[slot], made)
    return arrays


# The classes of most scalars of NumPy, as ``x[0]`` gives them.
SCALARS: Final = frozenset((np.float64, np.float32, np.complex128, np.int64, np.bool_))
# Classes of arguments that neither are symbolic sizes nor contain any.
_CONCRETE = frozenset(
    (np.ndarray, *SCALARS, float, int, bool, complex, str, type(None))
)


def _selected(
    op: RuleTable, args: Sequence[Any]
) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any], Any]:
    rule = find_array_rule(op, args)
    if rule is not None:
        positional, keywords = op.schema.split(args)
        return rule, (op, tuple(positional), keywords), {}, None
    kind, has_scalar = kind_of_call(op, args)
    if made and kind != FAKE and not op.schema.written and any(map(has_sizes, args)):
        # Together with symbolic sizes, real arrays are constants of a fake call.
        check_alive(op, args)
        kind, args = FAKE, [map_nested(value, to_fake) for value in args]
    args = as_kernel_takes(kind, args) if made or hosts else args
    # Read before the kernel: a proof counts only while the operator has these plans.
    plans = op.plans
    kernel = find_kernel(op, kind)
    if kernel is None:
        raise missing_kernel(op, kind)
    if has_scalar and kind != FAKE:
        if op.schema.written:
            check_writable(op, args)
        args = _on_kind(op, args, kind)
    if op.needs_contiguous:
        args = in_c_order(op, args)
    proof: FakeProof | Proof | AfterCall | None
    if kind == FAKE:
        proof = FakeProof(op, plans, kernel, args)
    else:
        proof = proof_of(op, plans, kernel, kind, args)
        if proof is not None:
            args = proof.values
        else:
            _settle(op, plans, kind, kernel)
    if not op.schema.keyword_only:
        return kernel, args, {}, proof
    positional, keywords = op.schema.split(args)
    return kernel, positional, keywords, proof


def _settle(op: RuleTable, plans: Plans, kind: str, kernel: Any) -> None:
    """Keep a kernel if the classes of the arrays decide alone about the next call."""
    is_plain = op.is_plain and op.array_slots and not op.needs_contiguous
    if kind == CPU.name and is_plain and kind not in op.sampled:
        plans.kernel = kernel


def kernel_for(op: RuleTable, kind: str) -> Callable[..., Any]:
    """Return the kernel for a kind of array, or raise an error that says what to register."""
    found = find_kernel(op, kind)
    if found is None:
        raise missing_kernel(op, kind)
    return found


def find_kernel(op: RuleTable, kind: str) -> Callable[..., Any] | None:
    """Return the kernel for a kind of array, or None."""
    table = op.rows
    if kind in op.disabled:
        return op.definition.fn
    row = table.get(kind)
    if row is None and kind != FAKE:
        derived = op.derived_for(kind)
        if derived is not None:
            return derived
        row = table.get(DEFAULT)
    if row is None:
        row = table.get(COMPOSITE)
    if row is not None:
        kernel: Callable[..., Any] = row.fn
        is_own = kind in table or kind == FAKE
        if kind in standard_kinds and not is_own:
            return standard.on_standard(kernel)  # type: ignore[no-any-return]  # a kernel
        return kernel
    if kind not in (FAKE, CPU.name) and op.is_factory:
        return _made_for(op, kind)
    found = find_fake(op) if kind == FAKE and not op.closed else None
    return op.fallback_for(kind) if found is None else found


def _made_for(op: RuleTable, kind: str) -> Callable[..., Any] | None:
    """Make a kernel that runs NumPy's and converts its result to the kind."""
    slot, make = op.schema.device_slot, find_kind(kind).from_numpy
    row = op.rows.get(CPU.name, op.rows.get(DEFAULT))
    if row is None or slot is None or make is None or not find_kind(kind).is_carried:
        return op.fallback_for(kind)
    name = op.schema.parameters[slot].name

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = [CPU.name if i == slot else v for i, v in enumerate(args)]
        if name in kwargs:
            kwargs[name] = CPU.name
        return map_nested(row.fn(*given, **kwargs), make)

    return kernel


def missing_kernel(op: RuleTable, kind: str) -> CustomOpError:
    """Build the error for a kind of array without a kernel."""
    if op.closed:
        return op.closed_error()
    if kind == FAKE:
        why = missing_fake(op)
        if why is not None:
            return why
        return op.error(
            MissingRuleError,
            " has no fake kernel",
            f"at {op.definition.place}",
            do=f"@{op.name}.register_fake, a function that returns fake_like(...)",
            kind=FAKE,
        )
    has = [k for k in op.rows if isinstance(k, str)]
    return op.error(
        MissingRuleError,
        f" has no kernel for '{kind}'; it has {quoted(has) or 'none'}",
        f"at {op.definition.place}",
        do=f'@{op.name}.register_kernel("{kind}")',
        kind=kind,
    )


# How NumPy and CuPy say that a library lacks a function (NumPy 2.4, CuPy 14.2).
_LACKING = (
    "returned NotImplemented from __array_ufunc__",
    "no implementation found for 'numpy.",
    "is not supported yet",
)


def _lacking(
    op: RuleTable, kernel: Any, args: Sequence[Any], error: Exception
) -> CustomOpError | None:
    """Return the error for a kernel in NumPy's terms that calls what a library lacks."""
    text = str(error)
    if isinstance(error, CustomOpError) or not any(part in text for part in _LACKING):
        return None
    kind, _ = kind_of_call(op, args)
    row, default = op.rows.get(kind), op.rows.get(DEFAULT)
    is_general = default is not None and default.fn is kernel
    if kind == CPU.name or not (is_general or op.qualname.startswith("np::")):
        return None  # the author of a kernel for this kind knows what it calls
    more = "" if row is None else ", override=True"
    return op.error(
        MissingRuleError,
        f" cannot run on '{kind}', whose library lacks what the kernel calls:"
        f" {text.splitlines()[0]}",
        f"at {op.definition.place}",
        do=f'compute it with other functions, or @{op.name}.register_kernel("{kind}"{more})',
        kind=kind,
    )


# ---- array classes ----
# Rules for classes of arrays, such as masked arrays, and of objects that hold arrays.


def find_array_rule(op: RuleTable, args: Sequence[Any]) -> Callable[..., Any] | None:
    """Return the rule for the classes of a call, or None.

    The exact class counts first, then its bases. Of several arrays with a rule the first
    one decides, unless another is of a subclass of its class.
    """
    row = op.rows.get(ARRAY_CLASS)
    if row is None:
        return None
    rules: Mapping[type, Row] = row.fn
    chosen: type | None = None
    for leaf in [*[args[slot] for slot in op.array_slots], *nested_leaves(op, args)]:
        cls = type(leaf)
        if _match(rules, cls) is None:
            continue
        if chosen is None or (issubclass(cls, chosen) and cls is not chosen):
            chosen = cls
    return None if chosen is None else _match(rules, chosen)


def _match(rules: Mapping[type, Row], cls: type) -> Callable[..., Any] | None:
    if cls is np.ndarray:
        return None
    return next((rules[base].fn for base in cls.__mro__ if base in rules), None)


class Wrapper(Frozen):
    """The function that handles calls with objects of a class that hold arrays.

    Attributes
    ----------
    cls : type
        The class of the object.
    handle : callable
    """

    cls: type
    handle: Callable[[RuleTable, Any], Any]


def find_wrapper(op: RuleTable, args: Sequence[Any]) -> Wrapper | None:
    """Find the handler of a call with an object that holds arrays; None without such one.

    A rule of the operator for its class comes first.
    """
    for leaf in [*[args[slot] for slot in op.array_slots], *nested_leaves(op, args)]:
        if is_array(leaf):
            continue
        handle = handler_of(type(leaf))
        if handle is not None:
            has_rule = find_array_rule(op, args) is not None
            return None if has_rule else Wrapper(type(leaf), handle)
    return None
