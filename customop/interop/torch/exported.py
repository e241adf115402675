"""One operator among torch's: its definition, and a kernel for each of torch's keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from customop.arrays.kinds import CPU
from customop.arrays.nested import flat
from customop.core.kinds import AUTOCAST, AUTOGRAD
from customop.core.operator import Operator
from customop.errors import DeviceMismatchError, GradientError, RegistrationError
from customop.interop.steps import Step, run_steps, steps_of
from customop.interop.torch.calls import TorchCall, functions_of, run_batch
from customop.interop.torch.fakes import TorchFakeCall, plain
from customop.interop.torch.framework import (
    AFTER_AUTOGRAD,
    BelowAutograd,
    any_requires_grad,
    destroy,
    is_forward_mode,
    no_autocast,
    torch,
)
from customop.interop.torch.rows import rows_of, run_written
from customop.interop.torch.signature import Signature, signature_of
from customop.interop.torch.values import (
    as_array,
    as_tensor,
    as_written_array,
    check_written,
    dtype_of_torch,
    fresh_tensors,
)
from customop.schema.tags import Tag

__all__ = ["Exported"]

_TAGS = {
    Tag.nondeterministic_seeded: "nondeterministic_seeded",
    Tag.nondeterministic_bitwise: "nondeterministic_bitwise",
    Tag.data_dependent_output: "data_dependent_output",
    Tag.dynamic_output_shape: "dynamic_output_shape",
    Tag.needs_exact_strides: "needs_exact_strides",
}


class Exported:
    """An operator that torch knows.

    Attributes
    ----------
    op : Operator
    name : str
        Its name in torch.
    signature : Signature
    overload : OpOverload
        The torch operator.
    derived : OpOverload or None
        The torch operator for all its derivatives and batches; None if it writes.
    functions : tuple of type
        Of torch's autograd: for plain gradients, and for functional transforms.
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
        """Take everything out of torch's registry."""
        destroy(self._library)

    @property
    def knows_results(self) -> bool:
        """Whether the gradient takes the results: then the operator runs once."""
        rule = self.op.find_rule(AUTOGRAD)
        is_plain = all(leaf.type == "Tensor" for leaf in self.signature.outputs)
        return is_plain and getattr(rule, "is_formula", False)

    # ---- leaves and their tensors ----

    def taken_out(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Leaves without their tensors, and these in a flat list."""
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
        """Leaves with tensors or arrays in their places, and those that are left."""
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
            # Kernels take any strides, and results are in C order.
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
        """The name of a companion: ``"mylib::_scale_derived"``."""
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
        """Define the operator for derivatives and batches."""
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
        torch.library.register_fake(name, self._fake_derived, lib=self._library)

    def _define_rows(self) -> None:
        """Define the operator for batches of an operator that writes."""
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
        else:
            impl(name, self._kernel(), "CompositeExplicitAutograd")
        torch.library.register_fake(name, self._fake, lib=self._library)
        if self.op.schema.written:
            impl(name, self._refuse_gradient, "Autograd", with_keyset=True)
            for key in ("Conjugate", "Negative"):  # torch's own handling says nothing
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
        """The kernel for tensors in main memory."""
        keeps = self._keeps_strides
        found: dict[str, Any] = {
            "_op": self.op,
            "_array": as_array,
            "_written": as_written_array,
            "_tensor": (lambda x: as_tensor(x, keeps_strides=True))
            if keeps
            else as_tensor,
            "_plain": _plain,
            "_wrote": _wrote,
            "_results": self.signature.results,
            "_join": self.signature.joins,
            **self.signature.defaults,
        }
        exec(self.signature.kernel, found)  # noqa: S102  # texts of this package
        return found[self.op.name]  # type: ignore[no-any-return]  # the function defined above

    def refuse_device(self, *args: Any, **keywords: Any) -> Any:
        """Say what to do with tensors of a GPU, whose memory NumPy cannot read.

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

    def _call(self, leaves: Sequence[Any]) -> list[Any]:
        """TorchCall the operator; the arrays of its result, and None for other parts."""
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
        """The arrays that the operator gives after some steps, of flat arrays."""

        def call(given: Sequence[Any]) -> list[Any]:
            return self._call(self.filled(leaves, given)[0])

        return run_steps(steps, call, arrays, self.op)

    def _run_derived(self, steps: str, extra: Sequence[Any], *values: Any) -> list[Any]:
        leaves, tensors = self.taken_out(values)
        arrays = [None if x is None else as_array(x) for x in (*tensors, *extra)]
        plain_leaves = [_plain(value) for value in leaves]
        found = self.evaluate(steps_of(steps), plain_leaves, arrays)
        return fresh_tensors(found, arrays)

    def _run_rows(self, steps: str, *values: Any) -> None:
        for i in self.signature.written:
            for x in flat([values[i]]):
                if x is not None:
                    check_written(x)
        leaves, tensors = self.taken_out(values)
        arrays = [None if x is None else as_array(x) for x in tensors]
        run_written(self, steps_of(steps), [_plain(v) for v in leaves], arrays)
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
        """Run under torch.func.grad, jvp or vmap."""
        leaves, tensors = self.taken_out(self.signature.values(*args, **keywords))
        call = TorchCall(self, (), leaves)
        return call.nested(self.functions[1].apply(call, *tensors))

    def _transform_derived(self, steps: str, extra: Sequence[Any], *values: Any) -> Any:
        leaves, tensors = self.taken_out(values)
        call = TorchCall(self, steps_of(steps), leaves)
        return call.nested(self.functions[1].apply(call, *tensors, *extra))

    def _batch(self, *args: Any, **keywords: Any) -> Any:
        """Run under the vmap of torch.autograd.grad(is_grads_batched=True)."""
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
        """The kernel under torch.autocast: floats but float64 are cast to a dtype."""

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
    """Whether a call is differentiated."""
    if torch.is_grad_enabled():
        if any_requires_grad(*args, **keywords):
            return True
        # Torch overlooks lists with None in them.
        for value in args:
            if type(value) is list and None in value and _requires_grad(value):
                return True
    return is_forward_mode()


def _requires_grad(values: Sequence[Any]) -> bool:
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in values)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return plain(value)


def _nothing(call: TorchFakeCall) -> Any:
    return torch.empty(0, dtype=torch.bool, device=call.device)


def _wrote(value: Any) -> None:
    """Count a write, so that torch's autograd notices it."""
    if isinstance(value, list | tuple):
        for item in value:
            _wrote(item)
    elif value is not None and not value.is_inference():
        torch.autograd.graph.increment_version(value)
