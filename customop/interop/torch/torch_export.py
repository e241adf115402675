"""`export`: make a torch operator of an operator of this package."""

from __future__ import annotations

import inspect
import linecache
import threading
from collections.abc import Callable, Sequence
from typing import Any

from customop.arrays.kinds import CPU, FAKE
from customop.arrays.nested import flat
from customop.core.builtin_kinds import AUTOCAST, AUTOGRAD
from customop.core.dispatch import find_kernel, missing_kernel
from customop.core.operator import Operator
from customop.core.registry import find_operator
from customop.errors import (
    ArgumentError,
    DeviceMismatchError,
    GradientError,
    RegistrationError,
    shown,
    warn_caller,
)
from customop.forks import free_after_fork
from customop.interop.steps import Step, run_steps, steps_of
from customop.interop.torch.framework import (
    AFTER_AUTOGRAD,
    NOT_STRIDED,
    BelowAutograd,
    any_requires_grad,
    destroy,
    is_forward_mode,
    no_autocast,
    schema_of,
    torch,
    type_of_jagged,
)
from customop.interop.torch.rule_code import RuleCodes
from customop.interop.torch.tensors import (
    as_array,
    as_tensor,
    as_written_array,
    check_layout,
    check_written,
    dtype_of_torch,
    fresh_tensors,
)
from customop.interop.torch.torch_kernels import (
    TorchCall,
    TorchFakeCall,
    functions_of,
    plain,
    rows_of,
    run_batch,
    run_written,
)
from customop.interop.torch.torch_schema import Signature, signature_of
from customop.schema.tags import Tag
from customop.schema.types import MISSING

# ---- export ----


def export(op: Operator[..., Any] | str, name: str | None = None) -> Any:
    """Make a torch operator of an operator, for tensors on the CPU.

    Parameters
    ----------
    op : Operator or str
        The operator, or its name.
    name : str, optional
        The name in torch, such as ``"mylib::scale"``; by default the operator's name.

    Returns
    -------
    OpOverload or TorchOperator
        The torch operator, such as ``torch.ops.mylib.scale.default``. If torch lacks
        one of the types, or the operator returns an argument that it writes to, a
        `TorchOperator` around it, which takes the arguments of the operator.

    Raises
    ------
    RegistrationError
        If one of the types cannot be expressed in torch, torch refuses the name, or the
        name is taken.

    Warns
    -----
    CustomOpWarning
        If the operator has no fake kernel yet.

    Notes
    -----
    Arguments and results of kernels share memory with the tensors. Results that are
    views or are not in C order are copied. Gradients of any order, forward mode and
    batches come from the operator's own rules. If the operator was exported before and
    its schema has changed, it is replaced.

    Examples
    --------
    >>> import customop as co, numpy as np, torch
    >>> from customop.interop.torch import export
    >>> @co.custom_op("torch_docs::cube", mutates_args=(), tags=(co.Tag.pointwise,))
    ... def cube(x: np.ndarray) -> np.ndarray:
    ...     return x * x * x
    >>> _ = cube.register_autograd(co.native)
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> export(cube)(x).sum().backward()
    >>> x.grad
    tensor([ 3., 12.])

    Under another name in torch:

    >>> export(cube, name="torch_docs::third_power")(torch.ones(2))
    tensor([1., 1.])
    """
    found = find_operator(op) if isinstance(op, str) else op
    if not isinstance(found, Operator):
        raise ArgumentError(
            f"export: {shown(op)} is not an operator",
            do='pass an operator, or its name such as "mylib::scale"',
        )
    where = _checked_name(found, found.qualname if name is None else name)
    with _lock:
        before = _exports.get(where)
        if before is not None:
            if before.op is found and before.schema == found.schema:
                return _public(before)
            if before.op is not found and not before.op.closed:
                raise found.error(
                    RegistrationError,
                    f"torch has {where} already, exported from {before.op.qualname}",
                    do="give one of them another name: export(op, name=...)",
                    parameter=None,
                )
            remove_export(where)
        made = _exports[where] = Exported(found, where)
    if find_kernel(found, FAKE) is None:
        why = missing_kernel(found, FAKE)
        warn_caller(
            f"export: {why.what}; torch.compile, torch.export and meta tensors need one\n"
            f"  do: {why.do}"
        )
    return _public(made)


class TorchOperator:
    """A torch operator that takes the arguments of the exported operator.

    Torch has no config objects, dicts, tuples and enums, and its operators do not
    return the arguments that they write to. This function splits such arguments into plain
    ones and joins the results again; torch.compile traces through it.

    Attributes
    ----------
    op : Operator
        The operator that was exported.
    overload : OpOverload
        The torch operator with plain arguments, for ``torch.library.opcheck``.
    call : callable
        The function itself.

    Examples
    --------
    >>> from customop.interop.torch import TorchOperator
    >>> TorchOperator.__name__
    'TorchOperator'
    """

    def __init__(self, exported: Exported) -> None:
        self.op: Operator[..., Any] = exported.op
        self.overload: Any = exported.overload
        self.call: Callable[..., Any] = _written(exported)
        self.__name__: str = exported.op.name
        self.__doc__ = exported.op.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.op)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the operator on tensors."""
        return self.call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<TorchOperator {schema_of(self.overload)}>"


def _public(exported: Exported) -> Any:
    if exported.signature.is_same:
        return exported.overload
    return TorchOperator(exported)


def _written(exported: Exported) -> Callable[..., Any]:
    """Return a function with the operator's parameters that calls the torch operator."""
    signature, op = exported.signature, exported.op
    filename = f"<customop {exported.name} for torch>"
    found: dict[str, Any] = {
        "_torch": exported.overload,
        "_joined": signature.joined,
        "_Tensor": torch.Tensor,
        "_defaults": {
            p.name: p.default for p in op.schema.parameters if p.default is not MISSING
        },
    }
    lines = signature.source.splitlines(keepends=True)
    linecache.cache[filename] = (len(signature.source), None, lines, filename)
    exec(compile(signature.source, filename, "exec"), found)  # noqa: S102  # as above
    return found[op.name]  # type: ignore[no-any-return]  # the function defined there


_RESERVED = ("aten", "prim", "prims")


def _checked_name(op: Operator[..., Any], name: str) -> str:
    namespace, colons, rest = name.partition("::")
    short, dot, overload = rest.partition(".")
    parts = [namespace, short, *([overload] if dot else [])]
    if not colons or not all(p.isidentifier() and p.isascii() for p in parts):
        raise op.error(
            RegistrationError,
            f"{name!r} cannot be the name of a torch operator",
            do='give it a name of ASCII letters: export(op, name="mylib::name")',
            parameter=None,
        )
    if namespace in _RESERVED:
        raise op.error(
            RegistrationError,
            f"the namespace '{namespace}' belongs to torch",
            do=f'give it another one: export(op, name="mylib::{short}")',
            parameter=None,
        )
    return name


# Name in torch -> the operator that was exported under it.
_exports: dict[str, Exported] = {}
_lock = free_after_fork(threading.RLock())


def remove_export(exported: Any) -> None:
    """Remove an exported operator from torch's registry.

    Parameters
    ----------
    exported : OpOverload, TorchOperator, Operator or str
        The result of `export`, or the operator, or its name in torch.

    Raises
    ------
    ArgumentError
        If the operator is not exported.

    Examples
    --------
    >>> import customop as co, numpy as np, torch
    >>> from customop.interop.torch import export, remove_export
    >>> @co.custom_op("torch_docs::half", mutates_args=(), tags=(co.Tag.pointwise,))
    ... def half(x: np.ndarray) -> np.ndarray:
    ...     return x / 2
    >>> _ = export(half)
    >>> remove_export(half)
    >>> hasattr(torch.ops.torch_docs, "half")
    False
    """
    with _lock:
        names = [name for name, made in _exports.items() if _is(made, name, exported)]
        if not names:
            raise ArgumentError(
                f"remove_export: {shown(exported)} is not exported to torch",
                do="pass what export(op) has returned",
            )
        for name in names:
            _exports.pop(name).close()


def _is(made: Exported, name: str, asked: Any) -> bool:
    overload = getattr(asked, "overload", None)
    return asked == name or asked is made.op or made.overload in (asked, overload)


# ---- one exported operator ----
# It has a definition, and a kernel for each of torch's dispatch keys.

_TAGS = {
    Tag.nondeterministic_seeded: "nondeterministic_seeded",
    Tag.nondeterministic_bitwise: "nondeterministic_bitwise",
    Tag.data_dependent_output: "data_dependent_output",
    Tag.dynamic_output_shape: "dynamic_output_shape",
    Tag.needs_exact_strides: "needs_exact_strides",
}


class Exported:
    """An operator that is registered with torch.

    Attributes
    ----------
    op : Operator
    name : str
        Its name in torch.
    signature : Signature
    overload : OpOverload
        The torch operator.
    derived : OpOverload or None
        The torch operator for all its derivatives and batches. None if the operator
        writes to its arguments.
    functions : tuple of type
        Two subclasses of torch.autograd.Function: for plain gradients, and for
        functional transforms.
    """

    def __init__(self, op: Operator[..., Any], name: str) -> None:
        self.op: Operator[..., Any] = op
        self.name: str = name
        self.schema: Any = op.schema
        self.signature: Signature = signature_of(op)
        self._keeps_strides = Tag.needs_exact_strides in op.tags and op.view_slot < 0
        self._arrays = tuple(
            (i, leaf.is_list)
            for i, leaf in enumerate(self.signature.leaves)
            if leaf.is_array
        )
        self.functions: tuple[Any, Any] = functions_of(op.name)
        self.codes: RuleCodes = RuleCodes(op)
        self.derived: Any = None
        namespace = name.partition("::")[0]
        self._library: Any = torch.library.Library(namespace, "FRAGMENT")
        try:
            self.overload: Any = self._define(name, self.signature.text)
            if op.schema.written:
                self._define_rows()
            else:
                self._define_derived()
            self._add_kernels()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove everything from torch's registry."""
        destroy(self._library)

    @property
    def knows_results(self) -> bool:
        """Return whether the gradient can use saved results: then the operator runs once."""
        rule = self.op.find_rule(AUTOGRAD)
        is_plain = all(leaf.type == "Tensor" for leaf in self.signature.outputs)
        return is_plain and getattr(rule, "is_formula", False)

    # ---- leaves and their tensors ----

    def taken_out(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Take the tensors out of leaves; return the rest, and a flat list of tensors."""
        leaves, tensors = list(values), []
        for i, is_list in self._arrays:
            value = leaves[i]
            if not is_list:
                tensors.append(value)
                leaves[i] = None
            elif value is not None:
                tensors += value
                leaves[i] = len(value)
        return leaves, tensors

    def filled(
        self, leaves: Sequence[Any], tensors: Sequence[Any]
    ) -> tuple[list[Any], Sequence[Any]]:
        """Put tensors or arrays into leaves; return these, and the unused tensors."""
        found, at = list(leaves), 0
        for i, is_list in self._arrays:
            if not is_list:
                found[i] = tensors[at]
                at += 1
            elif found[i] is not None:
                end = at + found[i]
                found[i] = list(tensors[at:end])
                at = end
        return found, tensors[at:]

    # ---- definitions ----

    def _define(self, name: str, text: str) -> Any:
        tags = [
            getattr(torch.Tag, t) for tag, t in _TAGS.items() if tag in self.op.tags
        ]
        if not self._keeps_strides:
            # Kernels accept any strides and return results in C order.
            tags.append(torch.Tag.flexible_layout)
        tags.append(torch.Tag.pt2_compliant_tag)
        try:
            self._library.define(f"{name.partition('::')[2]}{text}", tags=tags)
        except RuntimeError as error:
            raise self.op.error(
                RegistrationError,
                f"torch refuses the operator {name}{text}",
                *[line for line in str(error).splitlines() if line.strip()][:4],
                do='give it another name: export(op, name="mylib::name")',
                parameter=None,
            ) from error
        namespace, _, rest = name.partition("::")
        short, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, namespace), short)
        return getattr(packet, overload or "default")

    def _named(self, what: str) -> str:
        """Return the name of a companion operator, such as ``"mylib::_scale_derived"``."""
        namespace, _, rest = self.name.partition("::")
        short, dot, overload = rest.partition(".")
        return f"{namespace}::_{short}_{what}{dot}{overload}"

    def _leaf_texts(self, written: Sequence[int] = ()) -> str:
        texts = []
        for i, leaf in enumerate(self.signature.leaves):
            text = leaf.type
            if i in written:
                text = text.replace("Tensor", f"Tensor({chr(97 + i % 26)}!)", 1)
            texts.append(f", {text} {leaf.name}")
        return "".join(texts)

    def _define_derived(self) -> None:
        """Define the torch operator for derivatives and batches."""
        name = self._named("derived")
        text = f"(str steps, Tensor?[] extra{self._leaf_texts()}) -> Tensor[]"
        self.derived = self._define(name, text)
        self._library.impl(name, self._run_derived, "CPU")
        self._library.impl(
            name, self._differentiate_derived, "Autograd", with_keyset=True
        )
        self._library.impl(
            name, self._transform_derived, "FuncTorchDynamicLayerFrontMode"
        )
        self._library.impl(name, self._batch_derived, "Batched")
        self._refuse_not_strided(name)
        torch.library.register_fake(name, self._fake_derived, lib=self._library)

    def _define_rows(self) -> None:
        """Define the torch operator for batches of an operator that writes."""
        name = self._named("rows")
        text = f"(str steps{self._leaf_texts(self.signature.written)}) -> ()"
        self.rows: Any = self._define(name, text)
        self._library.impl(name, self._run_rows, "CPU")
        self._library.impl(
            name, rows_of(self, is_first=False), "FuncTorchDynamicLayerFrontMode"
        )
        torch.library.register_fake(name, lambda *args: None, lib=self._library)

    def _add_kernels(self) -> None:
        impl, name = self._library.impl, self.name
        if self._arrays:
            impl(name, self._kernel(), "CPU")
            impl(name, self.refuse_device, "CUDA")
            self._refuse_not_strided(name)
        else:
            impl(name, self._kernel(), "CompositeExplicitAutograd")
        torch.library.register_fake(name, self._fake, lib=self._library)
        if self.op.schema.written:
            impl(name, self._refuse_gradient, "Autograd", with_keyset=True)
            for key in ("Conjugate", "Negative"):  # torch's own handling is silent
                impl(name, torch.library.fallthrough_kernel, key)
            impl(name, rows_of(self, is_first=True), "FuncTorchDynamicLayerFrontMode")
        elif self._arrays:
            impl(name, self._differentiate, "Autograd", with_keyset=True)
            impl(name, self._transform, "FuncTorchDynamicLayerFrontMode")
            impl(name, self._batch, "Batched")
        row = self.op.rows.get(AUTOCAST)
        if row is not None and CPU.name in row.fn:
            dtype = dtype_of_torch(row.fn[CPU.name])
            impl(name, self._autocast(dtype), "AutocastCPU")

    # ---- kernels ----

    def _kernel(self) -> Callable[..., Any]:
        """Return the kernel for tensors on the CPU."""
        keeps = self._keeps_strides
        found: dict[str, Any] = {
            "_op": self.op,
            "_array": as_array,
            "_written": as_written_array,
            "_tensor": (lambda x: as_tensor(x, keeps_strides=True))
            if keeps
            else as_tensor,
            "_plain": plain,
            "_wrote": _wrote,
            "_results": self.signature.results,
            "_join": self.signature.joins,
            **self.signature.defaults,
        }
        exec(self.signature.kernel, found)  # noqa: S102  # texts of this package
        return found[self.op.name]  # type: ignore[no-any-return]  # the function defined above

    def refuse_device(self, *args: Any, **keywords: Any) -> Any:
        """Raise for tensors on a GPU, whose memory NumPy cannot read.

        Raises
        ------
        DeviceMismatchError
        """
        values = [*args, *keywords.values()]
        tensors = [v for v in flat(values) if isinstance(v, torch.Tensor)]
        others = sorted({str(x.device) for x in tensors if x.device.type != "cpu"})
        raise self.op.error(
            DeviceMismatchError,
            f" runs on tensors in main memory, got one on {others[0] if others else 'a GPU'}",
            do="pass x.cpu(), and move the result: out.to(x.device)",
            parameter=None,
        )

    def _refuse_not_strided(self, name: str) -> None:
        """Let a torch operator raise for sparse and nested tensors, which are no arrays."""

        def refuse(*args: Any, **keywords: Any) -> None:
            for x in flat([*args, *keywords.values()]):
                if isinstance(x, torch.Tensor):
                    check_layout(x)

        for key in NOT_STRIDED:
            self._library.impl(name, refuse, key)
        # Without autograd (torch.inference_mode) the class of jagged tensors is asked.
        torch.library.register_torch_dispatch(
            name,
            type_of_jagged(),
            lambda mode, fn, types, args=(), kwargs=None: refuse(*args, **kwargs or {}),
            lib=self._library,
        )

    def _call(self, leaves: Sequence[Any]) -> list[Any]:
        """Call the operator; return the arrays of its result, and None for other parts."""
        args, keywords = self.signature.arguments(leaves)
        found: list[Any] = []
        parts = self.signature.results(self.op(*args, **keywords))
        for leaf, part in zip(self.signature.outputs, parts, strict=True):
            listed = part if leaf.is_list and part is not None else [part]
            found += listed if leaf.is_array else [None] * len(listed)
        return found

    def evaluate(
        self, steps: tuple[Step, ...], leaves: Sequence[Any], arrays: Sequence[Any]
    ) -> list[Any]:
        """Run the operator under some steps, on a flat list of arrays."""

        def call(given: Sequence[Any]) -> list[Any]:
            return self._call(self.filled(leaves, given)[0])

        return run_steps(steps, call, arrays, self.op)

    def _run_derived(self, steps: str, extra: Sequence[Any], *values: Any) -> list[Any]:
        leaves, tensors = self.taken_out(values)
        arrays = [None if x is None else as_array(x) for x in (*tensors, *extra)]
        found = self.evaluate(steps_of(steps), [*map(plain, leaves)], arrays)
        return fresh_tensors(found, arrays)

    def _run_rows(self, steps: str, *values: Any) -> None:
        for i in self.signature.written:
            for x in flat([values[i]]):
                if x is not None:
                    check_written(x)
        leaves, tensors = self.taken_out(values)
        arrays = [None if x is None else as_array(x) for x in tensors]
        run_written(self, steps_of(steps), [*map(plain, leaves)], arrays)
        for i in self.signature.written:
            _wrote(values[i])

    # ---- fake kernels ----

    def _fake(self, *args: Any, **keywords: Any) -> Any:
        call = TorchFakeCall(self._keeps_strides)
        values = self.signature.values(*args, **keywords)
        pairs = zip(self.signature.leaves, values, strict=True)
        given, named = self.signature.arguments([call.argument(p, v) for p, v in pairs])
        result = self.op(*given, **named)
        found = [call.result(v) for v in self.signature.results(result)]
        call.finish()
        returned = self.signature.returned
        return tuple(found) if returned == "many" else found[0] if returned else None

    def _fake_derived(self, steps: str, extra: Sequence[Any], *values: Any) -> Any:
        call = TorchFakeCall()
        pairs = zip(self.signature.leaves, values, strict=True)
        leaves, arrays = self.taken_out([call.argument(p, v) for p, v in pairs])
        arrays += [None if x is None else call.fake(x) for x in extra]
        found = self.evaluate(steps_of(steps), leaves, arrays)
        results = [call.result(v) if v is not None else _nothing(call) for v in found]
        call.finish()
        return results

    # ---- autograd, forward mode and functional transforms ----

    def _differentiate(self, keyset: Any, *args: Any, **keywords: Any) -> Any:
        if not _is_followed(args, keywords):
            with BelowAutograd():
                below = keyset & AFTER_AUTOGRAD
                return self.overload.redispatch(below, *args, **keywords)
        leaves, tensors = self.taken_out(self.signature.values(*args, **keywords))
        call = TorchCall(self, (), leaves)
        call.keyset = keyset & AFTER_AUTOGRAD
        return call.nested(self.functions[0].apply(call, *tensors))

    def _differentiate_derived(
        self, keyset: Any, steps: str, extra: Sequence[Any], *values: Any
    ) -> Any:
        below = keyset & AFTER_AUTOGRAD
        if not _is_followed((extra, *values), {}):
            with BelowAutograd():
                return self.derived.redispatch(below, steps, extra, *values)
        leaves, tensors = self.taken_out(values)
        call = TorchCall(self, steps_of(steps), leaves)
        call.keyset = below
        return call.nested(self.functions[0].apply(call, *tensors, *extra))

    def _transform(self, *args: Any, **keywords: Any) -> Any:
        """Run the operator under torch.func.grad, jvp or vmap."""
        leaves, tensors = self.taken_out(self.signature.values(*args, **keywords))
        call = TorchCall(self, (), leaves)
        return call.nested(self.functions[1].apply(call, *tensors))

    def _transform_derived(self, steps: str, extra: Sequence[Any], *values: Any) -> Any:
        leaves, tensors = self.taken_out(values)
        call = TorchCall(self, steps_of(steps), leaves)
        return call.nested(self.functions[1].apply(call, *tensors, *extra))

    def _batch(self, *args: Any, **keywords: Any) -> Any:
        """Run the operator under the vmap of torch.autograd.grad(is_grads_batched=True)."""
        leaves, tensors = self.taken_out(self.signature.values(*args, **keywords))
        return run_batch(TorchCall(self, (), leaves), tensors)

    def _batch_derived(self, steps: str, extra: Sequence[Any], *values: Any) -> Any:
        leaves, tensors = self.taken_out(values)
        return run_batch(TorchCall(self, steps_of(steps), leaves), [*tensors, *extra])

    def _refuse_gradient(self, keyset: Any, *args: Any, **keywords: Any) -> Any:
        if _is_followed(args, keywords):
            raise self.op.error(
                GradientError,
                f" writes '{self.op.schema.written[0]}', so it has no gradient, and an"
                " argument requires one",
                do="call it under torch.no_grad(), or with x.detach()",
                parameter=self.op.schema.written[0],
            )
        with BelowAutograd():
            below = keyset & AFTER_AUTOGRAD
            return self.overload.redispatch(below, *args, **keywords)

    def _autocast(self, dtype: Any) -> Callable[..., Any]:
        """Return the kernel for autocast, which casts floats except float64 to a dtype."""

        def cast(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [cast(item) for item in value]
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                return value
            return value if value.dtype is torch.float64 else value.to(dtype)

        def autocast(*args: Any, **keywords: Any) -> Any:
            named = {key: cast(value) for key, value in keywords.items()}
            with no_autocast():
                return self.overload(*map(cast, args), **named)

        return autocast


def _is_followed(args: Sequence[Any], keywords: Any) -> bool:
    """Return whether torch differentiates a call."""
    if torch.is_grad_enabled():
        if any_requires_grad(*args, **keywords):
            return True
        # Torch's test ignores lists that contain None.
        for value in args:
            if type(value) is list and None in value and _requires_grad(value):
                return True
    return is_forward_mode()


def _requires_grad(values: Sequence[Any]) -> bool:
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in values)


def _nothing(call: TorchFakeCall) -> Any:
    return torch.empty(0, dtype=torch.bool, device=call.device)


def _wrote(value: Any) -> None:
    """Count a write to a tensor, so that torch's autograd notices it."""
    if isinstance(value, list | tuple):
        for item in value:
            _wrote(item)
    elif value is not None and not value.is_inference():
        torch.autograd.graph.increment_version(value)
