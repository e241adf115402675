"""`from_torch`: make an operator of this package of a torch operator."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.core.operator import Operator
from customop.core.rule_types import BatchInfo, Context
from customop.errors import ArgumentError, RegistrationError, shown
from customop.interop.steps import (
    Batch,
    Pull,
    Step,
    over_given,
    steps_of,
    text_of_steps,
)
from customop.interop.torch.framework import (
    OpOverload,
    OpOverloadPacket,
    fake_tensor_module,
    has_batching_rule,
    is_dispatched,
    name_of_overload,
    schema_of,
    torch,
)
from customop.interop.torch.tensors import (
    as_array,
    dtype_of_numpy,
    dtype_of_torch,
    shares_memory,
    tensor_of,
)
from customop.interop.torch.torch_sizes import OwnSizes
from customop.library.define import custom_op

# ---- from_torch ----


def from_torch(torch_op: Any, name: str | None = None) -> Operator[..., Any]:
    """Make an operator for NumPy arrays of a torch operator.

    Parameters
    ----------
    torch_op : OpOverload, OpOverloadPacket, CustomOpDef or str
        The torch operator, such as ``torch.ops.aten.sin.default``, or its name, such as
        ``"aten::sin"``.
    name : str, optional
        The name of the new operator; by default the name in torch.

    Returns
    -------
    Operator
        Its kernel, fake kernel, gradient and batching rule call torch. Arrays share
        memory with the tensors that torch gets. A result that is a view is copied.

    Raises
    ------
    ArgumentError
        If `torch_op` is not a torch operator, or it has several overloads and none is
        chosen.
    RegistrationError
        If one of its types has no schema type.

    Notes
    -----
    Forward mode is the transpose of the gradient, since torch operators written in
    Python have no tangents. Arguments of a type that only torch has, such as a memory
    format, keep their default.

    Examples
    --------
    >>> import numpy as np, torch, customop as co
    >>> from customop.interop.torch import from_torch
    >>> sinc = from_torch("aten::special_sinc", "doc::sinc")
    >>> sinc
    <Operator doc::sinc(Array self) -> Array>
    >>> np.round(co.grad(sinc)(np.array(0.5)), 4)
    np.float64(-1.2732)
    """
    overload = _overload(torch_op)
    return _Imported(overload, name or name_of_overload(overload)).op


def _overload(given: Any) -> Any:
    """Return the overload that an argument of `from_torch` names."""
    found: Any = given
    if isinstance(given, str) and "::" in given:
        namespace, _, rest = given.partition("::")
        found = getattr(torch.ops, namespace)
        for part in rest.split("."):
            found = getattr(found, part, None)
    found = getattr(found, "_opoverload", found)  # from torch.library.custom_op
    if isinstance(found, OpOverloadPacket):
        names = [n for n in found.overloads() if is_dispatched(getattr(found, n))]
        if len(names) == 1 or "default" in names:
            return getattr(found, names[0] if len(names) == 1 else "default")
        raise ArgumentError(
            f"from_torch: {found} has the overloads {', '.join(names)}",
            do=f"pass one of them: torch.ops.{found}.{names[0]}",
        )
    if not isinstance(found, OpOverload):
        raise ArgumentError(
            f"from_torch: {shown(given)} is not an operator of torch",
            do='pass torch.ops.mylib.name.default, or "mylib::name"',
        )
    return found


class _Imported:
    """A torch operator, and the operators that are made from it."""

    def __init__(self, overload: Any, name: str) -> None:
        self.overload = overload
        self.name = name
        schema = ImportSchema(overload)
        self.arguments = schema.arguments
        self.returns = schema.returns
        self._aliases = schema.aliases
        self.op = custom_op(
            name,
            self._kernel,
            mutates_args=[a.name for a in self.arguments if a.is_written],
            schema=schema.text,
        )
        self.op.register_fake(self._fake)
        # Whether torch's functional transforms work on it, as on all operators in C++.
        self._is_functional = overload.namespace == "aten"
        self._has_rule = has_batching_rule(overload)
        if not self.op.schema.written and any(a.is_array for a in self.arguments):
            self._derive()

    # ---- kernels ----

    def _split(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        keywords: dict[str, Any] = {}
        for a, value in zip(self.arguments, values, strict=True):
            if a.is_keyword:
                keywords[a.name] = value
            else:
                args.append(value)
        return args, keywords

    def _all(self, args: Sequence[Any], keywords: dict[str, Any]) -> list[Any]:
        """Return the values of all arguments, in order."""
        given = iter(args)
        return [
            keywords[a.name] if a.is_keyword else next(given) for a in self.arguments
        ]

    def _kernel(self, *args: Any, **keywords: Any) -> Any:
        values = self._all(args, keywords)
        tensors = [lowered(v, tensor_of) for v in values]
        given, named = self._split(tensors)
        with torch.no_grad():
            result = self.overload(*given, **named)
        for a, value, tensor in zip(self.arguments, values, tensors, strict=True):
            # Torch cannot read each array, and writes to a copy of such a one.
            if a.is_written and is_array(value) and not shares_memory(value):
                value[...] = tensor.numpy()
        memory = [x for v in values for x in arrays_in(v)]
        found = self._parts(result)
        return self._whole([raised(v, memory) for v in found], values)

    def _parts(self, result: Any) -> Sequence[Any]:
        count = len(self.returns)
        return result if count > 1 else (result,) if count else ()

    def _whole(self, parts: Sequence[Any], values: Sequence[Any]) -> Any:
        """Return the result of our operator, with the written arguments in their places."""
        names = [a.name for a in self.arguments]
        aliases = {
            alias: values[names.index(name)] for name, alias in self._aliases.items()
        }
        pairs = zip(parts, self.returns, strict=True)
        found = [aliases[alias] if alias else part for part, (_, alias) in pairs]
        return tuple(found) if len(found) > 1 else found[0] if found else None

    def _fake(self, *args: Any, **keywords: Any) -> Any:
        values = self._all(args, keywords)
        lent = FakeTensors()
        with lent:
            given, named = self._split([lowered(v, lent.tensor) for v in values])
            result = self.overload(*given, **named)
        found = [lent.returned(v) for v in self._parts(result)]
        lent.sizes.tell_ours()
        return self._whole(found, values)

    # ---- derivatives and batches ----

    def _derive(self) -> None:
        """Define the operator for all derivatives and batches, and the rules that call it."""
        namespace, _, rest = self.name.partition("::")
        short, dot, overload = rest.partition(".")
        plain = [a for a in self.arguments if not a.is_array]
        texts = "".join(f", {a.type} {a.name}" for a in plain)
        self.derived = custom_op(
            f"{namespace}::_{short}_derived{dot}{overload}",
            self._run_derived,
            mutates_args=(),
            schema=f"(str steps, Array?[] arrays, int[] counts{texts}) -> Array?[]",
        )
        self.derived.register_fake(self._fake_derived)
        self.derived.register_autograd(
            self._derived_backward, setup_context=_keep_derived
        )
        self.derived.register_vmap(self._derived_rows)
        self.op.register_autograd(self._backward, setup_context=_keep(self))
        self.op.register_vmap(self._rows)

    def flat(self, values: Sequence[Any]) -> tuple[list[Any], list[int], list[Any]]:
        """Return the arrays, the lengths of lists (-1 for others), and the other values."""
        arrays: list[Any] = []
        counts: list[int] = []
        rest: list[Any] = []
        for a, value in zip(self.arguments, values, strict=True):
            if not a.is_array:
                rest.append(value)
            elif a.is_list and value is not None:
                counts.append(len(value))
                arrays += value
            else:
                counts.append(-1)
                arrays.append(value)
        return arrays, counts, rest

    def _unflat(
        self, arrays: Sequence[Any], counts: Sequence[int], rest: Sequence[Any]
    ) -> list[Any]:
        lengths, others, at = iter(counts), iter(rest), 0
        values: list[Any] = []
        for a in self.arguments:
            if not a.is_array:
                values.append(next(others))
                continue
            count = next(lengths)
            values.append(arrays[at] if count < 0 else list(arrays[at : at + count]))
            at += max(count, 1) if count < 0 else count
        return values

    def _evaluate(
        self,
        steps: Sequence[Step],
        tensors: Sequence[Any],
        counts: Sequence[int],
        rest: Sequence[Any],
    ) -> list[Any]:
        """Run the torch operator under some steps and return its tensors."""
        if not steps:
            given, named = self._split(self._unflat(tensors, counts, rest))
            found: list[Any] = []
            for part in self._parts(self.overload(*given, **named)):
                found += part if isinstance(part, list | tuple) else [part]
            return [v if isinstance(v, torch.Tensor) else None for v in found]
        *before, step = steps

        def inner(given: Sequence[Any]) -> list[Any]:
            return self._evaluate(before, given, counts, rest)

        if isinstance(step, Pull):
            return pulled(inner, step, tensors, is_functional=self._is_functional)
        assert isinstance(step, Batch)
        has_rule = self._is_functional or (self._has_rule and not before)
        return batched_rows(inner, step, tensors, is_functional=has_rule)

    def _run_derived(
        self, steps: str, arrays: Sequence[Any], counts: Sequence[int], *rest: Any
    ) -> list[Any]:
        tensors = [None if x is None else tensor_of(x) for x in arrays]
        others = [lowered(v, tensor_of) for v in rest]
        found = self._evaluate(steps_of(steps), tensors, counts, others)
        return [raised(v, arrays) for v in found]

    def _fake_derived(
        self, steps: str, arrays: Sequence[Any], counts: Sequence[int], *rest: Any
    ) -> list[Any]:
        lent = FakeTensors()
        with lent:
            tensors = [None if x is None else lent.tensor(x) for x in arrays]
            others = [lowered(v, lent.tensor) for v in rest]
            found = self._evaluate(steps_of(steps), tensors, counts, others)
        results = [lent.returned(v) for v in found]
        lent.sizes.tell_ours()
        return results

    def _pull(
        self,
        steps: tuple[Step, ...],
        needs: Sequence[bool],
        grads: Sequence[Any],
        saved: tuple[Sequence[Any], Sequence[int], Sequence[Any]],
    ) -> list[Any]:
        """Return the gradients of a flat list of arrays; None if one is not needed."""
        arrays, counts, rest = saved
        wanted = tuple(i for i, need in enumerate(needs) if need)
        outputs = tuple(i for i, g in enumerate(grads) if g is not None)
        found: list[Any] = [None] * len(arrays)
        if wanted and outputs:
            text = text_of_steps((*steps, Pull(wanted, outputs, is_conjugate=True)))
            given = [*arrays, *[grads[i] for i in outputs]]
            results = self.derived(text, given, list(counts), *rest)
            for i, grad in zip(wanted, results, strict=True):
                found[i] = grad
        return found

    def _backward(self, ctx: Context, *grads: Any) -> dict[str, Any]:
        flat: list[Any] = []
        for grad in grads:
            flat += grad if isinstance(grad, list) else [grad]
        given = (ctx.saved_arrays, ctx.counts, ctx.rest)
        found = self._pull((), ctx.needs, flat, given)
        values = self._unflat(found, ctx.counts, ctx.rest)
        return {
            a.name: value
            for a, value in zip(self.arguments, values, strict=True)
            if a.is_array
        }

    def _derived_backward(self, ctx: Context, grads: Sequence[Any]) -> tuple[Any, ...]:
        needs = [bool(need) for need in ctx.needs_input_grad[1]]
        given = (ctx.saved_arrays, ctx.counts, ctx.rest)
        found = self._pull(steps_of(ctx.steps), needs, list(grads), given)
        return (None, found, None, *[None] * len(ctx.rest))

    def _rows(self, info: BatchInfo, in_dims: Any, *args: Any, **keywords: Any) -> Any:
        values = self._all(args, keywords)
        names = [a.name for a in self.arguments]
        given = dict(zip([a.name for a in self.arguments if not a.is_keyword], in_dims))  # noqa: B905  # shorter
        dims = [given.get(name) for name in names]
        arrays, counts, rest = self.flat(values)
        axes, _, _ = self.flat(
            [
                [None] * len(v) if d is None and isinstance(v, list) else d
                for v, d in zip(values, dims, strict=True)
            ]
        )
        text = text_of_steps((Batch(tuple(axes), info.randomness),))
        found = self.derived(text, arrays, counts, *rest)
        if len(self.returns) == 1 and "[]" in self.returns[0][0]:
            return found, [0] * len(found)
        whole = tuple(found) if len(found) > 1 else found[0]
        return whole, (0,) * len(found) if len(found) > 1 else 0

    def _derived_rows(
        self,
        info: BatchInfo,
        in_dims: Any,
        steps: str,
        arrays: Sequence[Any],
        counts: Sequence[int],
        *rest: Any,
    ) -> Any:
        axes = in_dims[1] or [None] * len(arrays)
        step = Batch(tuple(axes), info.randomness)
        text = text_of_steps((*steps_of(steps), step))
        found = self.derived(text, list(arrays), list(counts), *rest)
        return found, [None if v is None else 0 for v in found]


def _keep(imported: _Imported) -> Callable[..., None]:
    """Return the function that saves what the gradient needs."""

    def setup(
        ctx: Context,
        inputs: tuple[Any, ...],
        output: Any,
        keyword_only_inputs: dict[str, Any] | None = None,
    ) -> None:
        values = imported._all(inputs, keyword_only_inputs or {})  # noqa: SLF001  # of this file
        arrays, ctx.counts, ctx.rest = imported.flat(values)
        ctx.save_for_backward(*arrays)
        ctx.set_materialize_grads(False)
        ctx.needs = [
            x is not None and is_array(x) and np.dtype(x.dtype).kind in "fc"
            for x in arrays
        ]

    return setup


def _keep_derived(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.steps, arrays, ctx.counts, *ctx.rest = inputs
    ctx.save_for_backward(*arrays)
    ctx.set_materialize_grads(False)


# ---- schemas of torch operators, translated to ours ----


class ImportSchema:
    """The schema of a torch operator, translated to ours.

    Attributes
    ----------
    arguments : list of TorchArgument
        The arguments whose types can be translated; the others keep their defaults.
    returns : list of (str, str)
        The type of each result, and the name of its memory if it is a written argument.
    aliases : dict
        Name of a written argument -> the name of its memory.
    text : str
        The schema.
    """

    def __init__(self, overload: Any) -> None:
        self._overload = overload
        schema = schema_of(overload)
        self.arguments: list[TorchArgument] = self._arguments(schema)
        self.returns: list[tuple[str, str]] = [
            self._returned(r) for r in schema.returns
        ]
        self.aliases: dict[str, str] = {
            a.name: self._memory_of(a, f"'{a.name}'")
            for a in schema.arguments
            if a.alias_info is not None and a.alias_info.is_write
        }
        self.text: str = self._schema_text()

    def _arguments(self, schema: Any) -> list[TorchArgument]:
        found = []
        for a in schema.arguments:
            text = _type_text(str(a.real_type))
            if text is None and a.has_default_value():
                continue
            if text is None:
                raise self._untranslatable(f"'{a.name}' is {a.real_type}")
            default = _default(a, text)
            is_written = a.alias_info is not None and a.alias_info.is_write
            found.append(TorchArgument(a.name, text, a.kwarg_only, default, is_written))
        return found

    def _untranslatable(self, what: str) -> RegistrationError:
        return RegistrationError(
            f"from_torch: {schema_of(self._overload)}: {what}, which has no schema type",
            do="write an operator around it: custom_op(name, fn)",
        )

    def _returned(self, r: Any) -> tuple[str, str]:
        """Return the type of a result, and the name of its memory if it is written."""
        text = _type_text(str(r.real_type))
        if text is None:
            raise self._untranslatable(f"a result is {r.real_type}")
        info = r.alias_info
        if info is None or not info.is_write:
            return text, ""
        return text, self._memory_of(r, "a result")

    def _memory_of(self, a: Any, what: str) -> str:
        """Return the name of the memory of an argument that is written."""
        names = list(a.alias_info.before_set)
        if not names:  # as of a list: torch names the memory of each of its items
            raise RegistrationError(
                f"from_torch: {schema_of(self._overload)}: {what} is {a.real_type} that"
                " is written in place, which is not supported",
                do="import the operator that returns new tensors, or write an operator"
                " around it: custom_op(name, fn, mutates_args=...)",
            )
        return str(names[0])

    def _schema_text(self) -> str:
        texts, has_star = [], False
        for a in self.arguments:
            if a.is_keyword and not has_star:
                texts.append("*")
                has_star = True
            alias = f"Array({self.aliases[a.name]}!)" if a.is_written else "Array"
            texts.append(f"{a.type.replace('Array', alias, 1)} {a.name}{a.default}")
        results = [
            t.replace("Array", f"Array({alias}!)", 1) if alias else t
            for t, alias in self.returns
        ]
        shown_results = results[0] if len(results) == 1 else f"({', '.join(results)})"
        return f"({', '.join(texts)}) -> {shown_results}"


class TorchArgument(NamedTuple):
    """An argument of a torch operator, with our schema type."""

    name: str
    type: str
    is_keyword: bool
    default: str
    is_written: bool

    @property
    def is_array(self) -> bool:
        """Return whether the argument is an array, an optional array or a list of arrays."""
        return self.type.startswith("Array")

    @property
    def is_list(self) -> bool:
        """Return whether the argument is a list."""
        return "[]" in self.type


# Types of torch's schemas -> our schema types.
_TYPES: Final = {
    "Tensor": "Array",
    "int": "int",
    "SymInt": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "number": "Scalar",
    "complex": "complex",
    "ScalarType": "dtype",
    "Device": "device",
}


def _type_text(given: str) -> str | None:
    """Translate a torch type to our schema type; return None if there is none."""
    for outer, suffix in (("Optional", "?"), ("List", "[]")):
        match = re.fullmatch(rf"{outer}\[(.*)\]", given)
        if match:
            inner = _type_text(match[1])
            return None if inner is None else f"{inner}{suffix}"
    return _TYPES.get(given)


def _default(argument: Any, text: str) -> str:
    """Return the text of a default in a schema string, such as ``=1``."""
    if not argument.has_default_value():
        return ""
    value = argument.default_value
    if value is None or isinstance(value, bool):
        return f"={value}"
    if isinstance(value, str):
        return f'="{value}"' if text.startswith("str") else ""
    if isinstance(value, list):
        return f"=[{', '.join(map(repr, value))}]"
    return f"={value!r}" if isinstance(value, int | float | complex) else ""


# ---- arguments and results of imported operators ----


def lowered(value: Any, tensor: Callable[[Any], Any]) -> Any:
    """Convert an argument to torch."""
    if isinstance(value, list | tuple):
        return [lowered(item, tensor) for item in value]
    if is_array(value):
        return tensor(value)
    if isinstance(value, np.dtype):
        return dtype_of_torch(value)
    return value


def raised(value: Any, memory: Sequence[Any]) -> Any:
    """Convert a result from torch, copying it if it shares memory with an argument."""
    if isinstance(value, list | tuple):
        return [raised(item, memory) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    array = np.asarray(as_array(value.detach().resolve_conj().resolve_neg()), order="C")
    shares = any(np.may_share_memory(array, x) for x in memory if x is not None)
    return array.copy() if shares else array


def arrays_in(value: Any) -> list[Any]:
    """Return all arrays in a value, which may be a nested list."""
    if isinstance(value, list | tuple):
        return [x for item in value for x in arrays_in(item)]
    return [value] if is_array(value) else []


class FakeTensors:
    """Converts fake arrays to fake tensors and back, for one call of torch."""

    def __init__(self) -> None:
        self.sizes: OwnSizes = OwnSizes()
        fakes: Any = fake_tensor_module()
        self._mode: Any = fakes.FakeTensorMode(
            shape_env=self.sizes.shapes, allow_non_fake_inputs=True
        )

    def __enter__(self) -> None:
        self._mode.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._mode.__exit__(*exc)

    def tensor(self, x: Any) -> Any:
        """Return a fake tensor for a fake array."""
        lent = self.sizes.lent
        size = x.dtype.itemsize
        return torch.empty_strided(
            [lent(n) for n in x.shape],
            [lent(n // size) for n in x.strides],
            dtype=dtype_of_torch(np.dtype(x.dtype)),
        )

    def returned(self, value: Any) -> Any:
        """Return a fake array for a fake tensor; convert the sizes in other results."""
        if isinstance(value, list | tuple):
            return [self.returned(item) for item in value]
        ours = self.sizes.ours
        if not isinstance(value, torch.Tensor):
            return ours(value)
        shape = tuple(ours(n) for n in value.shape)
        return FakeArray(shape, dtype_of_numpy(value.dtype))


# ---- derivatives and batches of torch operators ----
# Torch computes them; they follow our conventions.


def pulled(
    inner: Callable[[Sequence[Any]], list[Any]],
    step: Pull,
    tensors: Sequence[Any],
    *,
    is_functional: bool,
) -> list[Any]:
    """Return the gradients of inputs; the last tensors are the gradients of outputs.

    They are computed by torch's functional transforms if `is_functional`, otherwise by
    torch.autograd.
    """
    count = len(tensors) - len(step.outputs)
    primals, grads = list(tensors[:count]), tensors[count:]
    # Torch's gradients are the complex conjugates of ours.
    cotangents = [g.conj() for g in grads]

    def of_wanted(*wanted: Any) -> list[Any]:
        for i, value in zip(step.wanted, wanted, strict=True):
            primals[i] = value
        results = inner(primals)
        return [results[i] for i in step.outputs]

    given = [primals[i] for i in step.wanted]
    if is_functional:
        found = torch.func.vjp(of_wanted, *given)[1](cotangents)
    else:
        found = _by_autograd(of_wanted, given, cotangents)
    return [None if g is None else g.conj() for g in found]


def _by_autograd(
    fn: Callable[..., list[Any]], given: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """Compute gradients by torch.autograd, as operators written in Python need."""
    is_inner = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [
            x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
            for x in given
        ]
        pairs = zip(fn(*leaves), cotangents, strict=True)
        moving = [(y, g) for y, g in pairs if y.requires_grad]
        if not moving:
            return [None] * len(leaves)
        results, grads = zip(*moving, strict=True)
        found: Sequence[Any] = torch.autograd.grad(
            results, leaves, grads, create_graph=is_inner, allow_unused=True
        )
    return found


def batched_rows(
    inner: Callable[[Sequence[Any]], list[Any]],
    step: Batch,
    tensors: Sequence[Any],
    *,
    is_functional: bool,
) -> list[Any]:
    """Run a batch by torch.vmap or row by row; results have its axis in front."""

    def batch(fn: Any, axes: tuple[int | None, ...], rows: Sequence[Any]) -> Any:
        if not is_functional:
            return _looped(fn, axes, rows)
        return torch.vmap(fn, in_dims=axes, randomness=step.randomness)(*rows)

    return over_given(inner, step.axes, tensors, batch)


def _looped(
    fn: Callable[..., tuple[Any, ...]],
    axes: Sequence[int | None],
    tensors: Sequence[Any],
) -> list[Any]:
    """Run a batch row by row, for operators without a batching rule in torch."""
    pairs = list(zip(tensors, axes, strict=True))
    size = next(x.shape[axis] for x, axis in pairs if axis is not None)
    rows = [
        fn(*[x if axis is None else x.select(axis, i) for x, axis in pairs])
        for i in range(size)
    ]
    return [torch.stack(column) for column in zip(*rows, strict=True)]
