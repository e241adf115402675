"""An operator: a schema and a table of rules, which is called like a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Self, TypeVar

from customop.arrays.kinds import FAKE
from customop.config import config
from customop.core.codegen import (
    GeneratedCall,
    compile_call,
    replace_code,
    set_dispatch,
    set_fast_kernel,
    set_plans,
)
from customop.core.dispatch import dispatch, dispatch_composite, kernel_for
from customop.core.registration import OperatorMethods
from customop.core.rule_kind import (
    COMPOSITE,
    Definition,
    RuleKind,
    check_device_types,
    check_kind,
)
from customop.core.table import FastKernel, changing, finalized
from customop.errors import (
    RegistrationError,
    SchemaError,
    UnknownNameError,
    did_you_mean,
)
from customop.later import later
from customop.schema.infer import signature_of

if TYPE_CHECKING:
    from customop.core.explain import Explanation

explaining: ModuleType = later(import_module, "customop.core.explain")


# ---- an operator: a schema and a table of rules ----


P = ParamSpec("P")
R = TypeVar("R")
FnT = TypeVar("FnT", bound=Callable[..., Any])


class _FirstCall:
    """A descriptor that generates the function of a call at first use, and makes way for it.

    A plain function would show in the traceback of the first call.
    """

    def __init__(self, name: str = "call") -> None:
        self.name = name

    def __get__(self, op: Operator[..., Any] | None, owner: Any = None) -> Any:
        if op is None:
            return self
        op.compile()
        return op.__dict__[self.name]


class Operator(OperatorMethods, Generic[P, R]):
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

    # Whether operators without a call of their own are of this class.
    is_shared: ClassVar[bool] = True

    __name__: str
    __wrapped__: Callable[P, R]
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
        return str(explaining.operator_html(self))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    # ---- the call ----

    def compile(self) -> Callable[..., Any]:
        """Return the plain function of a call, `call`; it is generated at the first use."""
        with finalized, changing:
            return self.call if self._source else self._compile()

    def _compile(self) -> Callable[..., Any]:
        made = self._generate()
        vars(self).update(call=made.call, run=made.run, _source=made.text)
        if type(self).is_shared:
            # A class of its own, since Python asks the class for the call. Operators that
            # are never called save its 2.4 KB.
            names = {"__doc__": f"The class of {self.qualname}.", "is_shared": False}
            name = self.qualname.partition("::")[2]
            object.__setattr__(self, "__class__", type(name, (type(self),), names))
        type(self).__call__ = staticmethod(made.call)  # type: ignore[method-assign]  # generated
        self.route()
        return self.call

    def _generate(self) -> GeneratedCall:
        self._share = config.sample_checks
        self.fast.draw(bool(self._share))
        return compile_call(self, dispatch, self._share)

    def redraw(self) -> None:
        """Let the generated call draw the share of calls that `config` says.

        It does so before its fast path opens: a change of the settings closes the fast
        paths of all operators, and generating all their calls takes long.
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
        """Copy the generated call with other globals and without its fast path.

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
        """Return the rule of a kind: registered, derived, or a fallback.

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
# Attributes that cannot be assigned: of the definition, generated functions, methods.
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
