"""An operator: a schema and a table of rules; how operators are defined and removed."""

from __future__ import annotations

import inspect
import keyword
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from customop.arrays.kinds import FAKE
from customop.arrays.numpy_functions import load_namespace
from customop.config import config
from customop.core.codegen import (
    RESERVED,
    GeneratedCall,
    compile_call,
    replace_code,
    set_dispatch,
    set_fast_kernel,
    set_plans,
)
from customop.core.contract import note_writes
from customop.core.dispatch import dispatch, dispatch_composite, kernel_for
from customop.core.observe import open_modes
from customop.core.operator_methods import OperatorRules
from customop.core.registry import (
    find_operator,
    forget_registrations,
    namespaces,
    operators,
    registrations,
    table_kernel,
    taken,
)
from customop.core.rule_kind import (
    COMPOSITE,
    Definition,
    Row,
    RuleKind,
    check_device_types,
    check_kind,
    same_place,
)
from customop.core.table import FastKernel, changing
from customop.errors import (
    RegistrationError,
    SchemaError,
    UnknownNameError,
    did_you_mean,
    items_of,
    shown,
    warn_caller,
)
from customop.later import later
from customop.schema.infer import signature_of
from customop.schema.schema import Schema
from customop.schema.tags import Tag, apply_tags

if TYPE_CHECKING:
    from customop.core.explain import Explanation

explaining: ModuleType = later(import_module, "customop.core.explain")
page: ModuleType = later(import_module, "customop.core.explain")
# For names that are defined again.
redefine: ModuleType = later(import_module, "customop.core.redefine")


# ---- an operator: a schema and a table of rules ----


P = ParamSpec("P")
R = TypeVar("R")
FnT = TypeVar("FnT", bound=Callable[..., Any])


class _FirstCall:
    """Generates the function of a call when it is first needed, and is replaced by it.

    It is a descriptor: a function would show in the traceback of the first call.
    """

    def __init__(self, name: str = "call") -> None:
        self.name = name

    def __get__(self, op: Operator[..., Any] | None, owner: Any = None) -> Any:
        if op is None:
            return self
        op.compile()
        return op.__dict__[self.name]


class Operator(OperatorRules, Generic[P, R]):
    """A function with a schema and a table of rules; made by `custom_op`.

    Attributes
    ----------
    qualname : str
        ``"namespace::name"``, or ``"namespace::name.overload"``.
    schema : Schema
        What it takes and gives.
    tags : frozenset of Tag
        What it promises beyond its schema.
    call : callable
        The plain function behind ``op(...)``; 40 ns cheaper to call.
    run : callable
        As `call`, for the values of all parameters by position, in the order of the
        schema and in the classes that its types name: they are not coerced.
    source : str
        Source text of `call` and `run`, generated from the schema.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def sin(x: np.ndarray) -> np.ndarray:
    ...     return np.sin(x)
    >>> op = co.custom_op("doc::sin", sin, mutates_args=())
    >>> op(np.zeros(2))
    array([0., 0.])
    >>> op
    <Operator doc::sin(Array x) -> Array>
    """

    __name__: str
    __wrapped__: Callable[..., Any]
    _source: str

    def define(self, definition: Definition) -> None:
        """Take this definition, with an empty table."""
        super().define(definition)
        fn = definition.fn
        own = vars(self)
        if "call" in own:
            # Callers that hold the old function must not run the old kernel.
            set_fast_kernel(self, None)
        own.pop("call", None)
        own.pop("run", None)
        if "__call__" in vars(type(self)):  # that of the old function
            type(self).__call__ = _FirstCall()  # type: ignore[assignment]  # a descriptor
        own.update(
            _source="",
            __name__=getattr(fn, "__name__", self.name),
            __qualname__=getattr(fn, "__qualname__", self.name),
            __module__=definition.module,
            __doc__=fn.__doc__,
            __wrapped__=fn,
            __annotations__=getattr(fn, "__annotations__", {}),
            fast=FastKernel(),
            invoke=lambda args: self.run(*args),
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED:
            do = f"call it: op.{name}(...)"
            if name in _GENERATED:
                do = "register a kernel: op.register_kernel(device_types, fn)"
            elif not callable(getattr(Operator, name, None)):
                do = "define another operator"
            raise self.error(
                RegistrationError, f"the attribute '{name}' cannot be assigned", do=do
            )
        object.__setattr__(self, name, value)  # super() takes three times as long

    @property
    def __signature__(self) -> inspect.Signature:
        try:
            return signature_of(self.__wrapped__)
        except SchemaError:
            return inspect.signature(self.compile())

    if TYPE_CHECKING:

        def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
            """Call the operator: the generated function, which its class holds."""
            ...

        call: Callable[P, R]
        run: Callable[..., R]
        invoke: Callable[[Sequence[Any]], Any]
    else:
        __call__ = _FirstCall()
        call = _FirstCall()
        run = _FirstCall("run")

        # Hidden from type checkers, which would accept every misspelled name.
        def __getattr__(self, name: str) -> Any:
            # Notebooks and libraries ask for names such as `_repr_mimebundle_`.
            near = "" if name.startswith("_") else did_you_mean(name, dir(self))
            raise UnknownNameError(
                f"an operator has no attribute '{name}'{near}",
                do="see dir(op) for all names" if not near else "write that name",
                op=self.__dict__.get("qualname"),
            )

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        # As an attribute of a class an operator is not bound to the object.
        return self

    def __repr__(self) -> str:
        return f"<Operator {self.schema.show(self.qualname)}>"

    def _repr_html_(self) -> str:
        return str(page.operator_html(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (find_operator, (self.qualname, self.definition.module))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    # ---- the call ----

    def compile(self) -> Callable[..., Any]:
        """Return the plain function of a call, `call`; it is generated at the first use."""
        with changing:
            return self.call if self._source else self._compile()

    def _compile(self) -> Callable[..., Any]:
        made = self._generate()
        vars(self).update(call=made.call, run=made.run, _source=made.text)
        type(self).__call__ = staticmethod(made.call)  # type: ignore[method-assign]  # generated
        self.route()
        return self.call

    def _generate(self) -> GeneratedCall:
        self._share = config.sample_checks
        self.fast.draw(bool(self._share))
        return compile_call(
            self.qualname,
            self.name,
            self.schema,
            dispatch,
            self,
            modes=open_modes,
            has_fast_path=not (
                self.sees_seed or self.is_factory or self.needs_contiguous
            ),
            after_write=note_writes,
            share=self._share,
            random=config.random if self._share else None,
        )

    def redraw(self) -> None:
        """Let the generated call draw the share of calls that `config` says.

        It does so before its fast path opens: a change of the settings closes the fast
        paths of all operators, and to generate the calls of all takes long.
        """
        if self._source and self._share != config.sample_checks:
            # Kept alive, since the lines of its source go with it.
            self._drawing = self._generate()
            self._source = self._drawing.text
            replace_code(self.call, self._drawing.call)
            if self.run is not self.call:
                replace_code(self.run, self._drawing.run)

    def route(self) -> None:
        """Let transforms and modes see the body of the operator, if it has one."""
        if self._source:
            is_composite = COMPOSITE in self.rows
            set_dispatch(self.call, dispatch_composite if is_composite else dispatch)

    @property
    def source(self) -> str:
        """Source text of the generated call."""
        self.compile()
        return self._source

    def dispatch(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the operator by the slow path, which must agree with the fast one.

        Parameters
        ----------
        *args, **kwargs : object
            Those of a call.

        Returns
        -------
        object
            The result of the call.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> co.ops.np.add.default.dispatch(np.ones(2), 1.0)
        array([2., 2.])
        """
        return self._copy_of_call()(*args, **kwargs)  # type: ignore[no-any-return]  # R, as the call

    def _copy_of_call(self, **names: Any) -> Callable[..., Any]:
        """The generated call with other globals and without a fast path.

        Its list of modes is never empty, so that the guard fails.
        """
        call: Any = self.compile()
        names = {**call.__globals__, "_modes": [None], **names}
        copied = FunctionType(call.__code__, names, self.name, call.__defaults__)
        copied.__kwdefaults__ = call.__kwdefaults__
        copied.__qualname__ = call.__qualname__
        return copied

    def bind(self, /, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """Return the values that a call with these arguments gives to all parameters.

        Parameters
        ----------
        *args, **kwargs : object
            Those of a call. They are checked against the schema and coerced, as in a call.

        Returns
        -------
        sequence
            In the order of the schema.

        Raises
        ------
        ArgumentError
            If the arguments do not fit the schema.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> @co.custom_op("doc::scaled", mutates_args=())
        ... def scaled(x: np.ndarray, factor: float = 2.0) -> np.ndarray:
        ...     return x * factor
        >>> scaled.bind(np.ones(1))
        [array([1.]), 2.0]
        """
        plans = self.plans
        if plans.bind is None:
            plans.bind = self._copy_of_call(_dispatch=lambda op, values: values)
        return plans.bind(*args, **kwargs)

    def explain(self, /, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Say which kernel or rule a call would take, and why not the others.

        Nothing runs. Calls inside a rule are not followed.

        Parameters
        ----------
        *args, **kwargs : object
            Those of the call.

        Returns
        -------
        Explanation
            Prints readably.

        Raises
        ------
        ArgumentError
            If the arguments do not fit the schema.
        ShapeError
            If their shapes do not.
        DeviceMismatchError
            If the arrays are of different kinds.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> why = co.ops.np.sin.default.explain(np.zeros(3))
        >>> why.taken.name
        'default kernel'
        """
        return explaining.explain(self, self.bind(*args, **kwargs))  # type: ignore[no-any-return]  # an Explanation

    # ---- the table ----

    def rule(self, kind: RuleKind | str) -> Any:
        """The rule of a kind: registered, derived, or a fallback.

        Parameters
        ----------
        kind : RuleKind or str
            A kind of rule, or the name of a kind of array for its kernel.

        Returns
        -------
        object
            The rule as it was registered; a `Formula` for autograd.

        Raises
        ------
        MissingRuleError
            If the operator has none.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> co.ops.np.exp.rule("cpu")
        <ufunc 'exp'>
        """
        if isinstance(kind, str):
            (name,) = (
                check_device_types(self.qualname, kind) if kind != FAKE else (kind,)
            )
            return kernel_for(self, name)
        check_kind(self.qualname, kind)
        found = self.find_rule(kind)
        if found is None:
            raise self.missing_rule(kind)
        return found

    def changed(self, *, is_kernel: bool) -> None:
        """Forget what was worked out from the table before."""
        super().changed(is_kernel=is_kernel)
        if self._source:
            set_plans(self.call, self.plans)
        if is_kernel:
            self.route()

    def forget_proofs(self) -> None:
        """Have every kernel prove its contract again, on the slow path."""
        super().forget_proofs()
        if self._source:
            set_fast_kernel(self, None)


# Generated functions: a call of the operator does not go through the attribute.
_GENERATED = frozenset(("call", "run", "invoke"))
# What nobody assigns: what a definition says, generated functions, and methods.
_FIXED = frozenset(
    (
        *("definition", "name", "namespace", "overload", "qualname", "schema", "tags"),
        *_GENERATED,
    )
) | frozenset(
    name
    for name in dir(Operator)
    if not name.startswith("_") and isinstance(getattr(Operator, name), FunctionType)
)


# ---- defining and removing operators ----


_NAME = later(re.compile, r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)

# Operators of closed libraries that are still referenced: a new definition reuses them.
_retired: weakref.WeakValueDictionary[str, Operator[..., Any]] = (
    weakref.WeakValueDictionary()
)


def define_operator(
    definition: Definition, kinds: Iterable[str] = ()
) -> Operator[..., Any]:
    """Make the operator of a definition, or give an old one its new definition.

    A cell run again and a module loaded again replace the operator in place, so that
    every reference to it goes on working. Another definition can take the name only
    when nobody holds the operator any more, and never from a second file. The function
    of the definition becomes the kernel of `kinds`; registrations of open libraries come
    on top.
    """
    name = definition.qualname
    schema = apply_tags(name, definition.schema, definition.tags)
    if schema is not definition.schema:
        definition = definition.replaced(schema=schema)
    load_namespace(name.partition("::")[0], asked_by=definition.module)
    with changing:
        # Nothing here may hold the old operator while its holders are counted.
        is_second = name in operators and _is_second(operators[name], definition)
        if is_second and redefine.is_held(name):
            raise _second(operators[name].definition, definition)
        waiting = registrations.get(name, ())
        for registration in waiting:
            registration.check(definition)
        op = None if is_second else operators.get(name) or _retired.pop(name, None)
        if op is None:
            op = _new_operator(definition)
        else:
            op.define(definition)
        for kind in kinds:
            kernel = table_kernel(op, definition.fn)
            op.enter(kind, Row(kernel, definition.place))
        for registration in tuple(waiting):
            registration.enter(op)
        forget_registrations(name, None)
        operators[name] = op
        by_name = namespaces.setdefault(op.namespace, {})
        by_name.setdefault(op.name, {})[op.overload] = op
    return op


def _is_second(op: Operator[..., Any], new: Definition) -> bool:
    """Whether a definition makes another operator than the one that has its name."""
    old = op.definition
    old_file, new_file = (d.place.rpartition(":")[0] for d in (old, new))
    if old_file != new_file and not same_place(old.place, new.place):
        raise taken(new.qualname, old.place, new.place)
    if redefine.same_definition(old, new):
        return False
    if not redefine.runs_again(old, new):
        return True
    if redefine.is_doubtful(old, new):
        warn_caller(
            f"{new.qualname} was defined in another cell, at {old.place}: the operator"
            " made there runs this function too from now on. If you mean two operators,"
            " give each its own name"
        )
    return False


def _second(old: Definition, new: Definition) -> RegistrationError:
    """The error for two operators of one name that are both in use."""
    other = redefine.difference(old.fn, new.fn)
    if not other:
        return taken(new.qualname, old.place, new.place)
    name = other.split("'")[1]
    return new.error(
        RegistrationError,
        f" is defined already, with another value of '{name}', and still in use",
        f"both definitions are at {new.place}: {other}",
        do=f'give each its own name, such as custom_op(f"{new.qualname}_{{number}}", ...),'
        f" or make '{name}' a parameter",
        parameter=None,
    )


def _new_operator(definition: Definition) -> Operator[..., Any]:
    # help() shows the text of the operator only if its class has another one.
    text = {"__doc__": f"The class of {definition.qualname}."}
    cls = type(definition.qualname.partition("::")[2], (Operator,), text)
    op: Operator[..., Any] = cls(definition)
    return op


def remove_operator(op: Operator[..., Any]) -> None:
    """Free the name of an operator; later calls of the operator raise."""
    with changing:
        if operators.get(op.qualname) is not op:
            return
        del operators[op.qualname]
        by_name = namespaces[op.namespace]
        del by_name[op.name][op.overload]
        if not by_name[op.name]:
            del by_name[op.name]
        if not by_name:
            del namespaces[op.namespace]
        op.close()
        _retired[op.qualname] = op


def tables_changed() -> None:
    """Forget what was worked out for all operators, after a change that concerns all."""
    with changing:
        for op in list(operators.values()):
            op.changed(is_kernel=True)


# ---- checks of definitions ----


def check_names(qualname: str, schema: Schema) -> None:
    """Raise unless the generated call can be written with these names."""
    names = [qualname.partition("::")[2].partition(".")[0]]
    names += [p.name for p in schema.parameters]
    for name in names:
        taken = name in RESERVED or name == "__debug__" or keyword.iskeyword(name)
        if taken or not name.isidentifier():
            raise SchemaError(
                f"{qualname}: '{name}' cannot be a name in a call",
                schema.show(qualname),
                do="use another name",
            )


def check_name(what: str, name: object) -> None:
    """Raise unless `name` can be the qualified name of an operator."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return
    if isinstance(name, str) and "::" not in name:
        raise RegistrationError(
            f"{what}: the name {shown(name)} has no namespace",
            do=f'write "mylib::{name}", with the name of your package',
        )
    raise RegistrationError(
        f"{what}: {shown(name)} cannot be the name of an operator",
        do='write "namespace::name", or "namespace::name.overload", in ASCII letters,'
        " digits and underscores",
    )


def checked_tags(name: str, tags: Iterable[Tag] | Tag) -> frozenset[Tag]:
    """The tags of an operator as a set; raise for anything else."""
    listed = items_of(tags)
    found: list[Any] = [tags] if listed is None else listed
    for tag in found:
        if not isinstance(tag, Tag):
            names = [str(t) for t in Tag]
            near = did_you_mean(f"Tag.{tag}", names) if isinstance(tag, str) else ""
            raise RegistrationError(
                f"{name}: {shown(tag)} is not a tag{near}",
                do=f"use one of {', '.join(str(t) for t in Tag)}",
                op=name,
            )
    return frozenset(found)


config.on_change(tables_changed)
