"""Fake kernels, derivatives and batches of exported operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from customop.arrays.fake import FakeArray, make_fake
from customop.arrays.kinds import is_array
from customop.errors import GradientError, VmapError
from customop.interop.steps import Batch, Pull, Push, Step, steps_of, text_of_steps
from customop.interop.torch.framework import (
    BelowAutograd,
    TransformType,
    add_batch_axis,
    batch_level,
    has_tangents,
    remove_batch_axis,
    torch,
    transform_of_torch,
    unwrap_batched,
)
from customop.interop.torch.tensors import dtype_of_numpy, dtype_of_torch
from customop.interop.torch.torch_schema import TorchLeaf
from customop.interop.torch.torch_sizes import TorchSizes
from customop.transforms.vmap import vmap

if TYPE_CHECKING:
    from customop.interop.torch.torch_export import Exported

# ---- fake kernels, for torch's fake and meta tensors ----


class TorchFakeCall:
    """Converts arguments and results between torch and a fake kernel, for one call."""

    def __init__(self, keeps_strides: bool = False) -> None:
        self.sizes: TorchSizes = TorchSizes()
        self._keeps_strides = keeps_strides
        self._device: Any = None

    # ---- arguments ----

    def argument(self, leaf: TorchLeaf, value: Any) -> Any:
        """Convert the value of a leaf to an argument of our fake kernel."""
        if isinstance(value, list | tuple):
            return [self.argument(leaf, item) for item in value]
        if isinstance(value, torch.Tensor):
            return self.fake(value)
        if isinstance(value, torch.SymInt):
            return self.sizes.ours(value)
        if isinstance(value, torch.SymFloat):
            return float(value)
        return bool(value) if isinstance(value, torch.SymBool) else plain(value)

    @property
    def device(self) -> Any:
        """The device of the results, which is that of the first tensor."""
        return self._device or "cpu"

    def fake(self, x: Any) -> FakeArray:
        """Return a fake array for a tensor."""
        if self._device is None:
            self._device = x.device
        dtype = dtype_of_numpy(x.dtype)
        ours = self.sizes.ours
        shape = tuple([ours(n) for n in x.shape])
        strides = tuple([ours(n) * dtype.itemsize for n in x.stride()])
        kind = "cpu" if x.device.type == "meta" else str(x.device)
        return make_fake(shape, dtype, strides, kind)

    # ---- results ----

    def result(self, value: Any) -> Any:
        """Convert a result of our fake kernel to torch."""
        if isinstance(value, list | tuple):
            return [self.result(item) for item in value]
        if not is_array(value):
            return self.sizes.torchs(value)
        torchs = self.sizes.torchs
        dtype = dtype_of_torch(np.dtype(value.dtype))
        shape = [torchs(n) for n in value.shape]
        if not self._keeps_strides:
            return torch.empty(shape, dtype=dtype, device=self.device)
        size = value.dtype.itemsize
        strides = [torchs(n // size) for n in value.strides]
        return torch.empty_strided(shape, strides, dtype=dtype, device=self.device)

    def finish(self) -> None:
        """Tell torch what the fake kernel assumed about its sizes."""
        self.sizes.tell()


def plain(value: Any) -> Any:
    """Convert torch's dtypes and devices to ours, in lists too; return other values unchanged."""
    if isinstance(value, list | tuple):
        return [*map(plain, value)]
    if isinstance(value, torch.dtype):
        return dtype_of_numpy(value)
    if isinstance(value, torch.device):
        return "cpu" if value.type in ("cpu", "meta") else str(value)
    return value


# ---- calls of exported operators that torch differentiates or batches ----


class TorchCall:
    """A call of an operator, or of its derivatives and batches, without the tensors.

    Attributes
    ----------
    exported : Exported
    steps : tuple of Step
        Empty for the operator itself.
    leaves : list
        The values of all leaves. A list of tensors is replaced by its length.
    keyset : object
        The dispatch keys below autograd, if the call continues there; None to dispatch
        again from the top.
    """

    __slots__ = ("counts", "exported", "keyset", "leaves", "steps")

    def __init__(
        self, exported: Exported, steps: tuple[Step, ...], leaves: list[Any]
    ) -> None:
        self.exported: Exported = exported
        self.steps: tuple[Step, ...] = steps
        self.leaves: list[Any] = leaves
        self.keyset: Any = None
        # Lengths of results that are lists, and -1 for other results.
        self.counts: list[int] = []

    def then(self, step: Step) -> TorchCall:
        """Return the call under one more step."""
        return TorchCall(self.exported, (*self.steps, step), self.leaves)

    def run(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Run the call and return its results in a flat tuple."""
        leaves, extra = self.exported.filled(self.leaves, tensors)
        if self.steps:
            return tuple(self._run_derived(leaves, extra))
        positional, keywords = self.exported.signature.split(leaves)
        return self.flat(self._run(self.exported.overload, positional, keywords))

    def _run(self, overload: Any, args: Sequence[Any], keywords: Any) -> Any:
        if self.keyset is None:
            return overload(*args, **keywords)
        with BelowAutograd():
            return overload.redispatch(self.keyset, *args, **keywords)

    def _run_derived(self, leaves: Sequence[Any], extra: Sequence[Any]) -> Any:
        text = text_of_steps(self.steps)
        args = (text, list(extra), *leaves)
        return self._run(self.exported.derived, args, {})

    # ---- results ----

    def flat(self, result: Any) -> tuple[Any, ...]:
        """Put the results of the operator into one flat tuple; `nested` is the inverse."""
        returned = self.exported.signature.returned
        parts = result if returned == "many" else (result,) if returned else ()
        found: list[Any] = []
        self.counts = []
        for part in parts:
            is_list = isinstance(part, list | tuple)
            self.counts.append(len(part) if is_list else -1)
            found += part if is_list else (part,)
        return tuple(found)

    def nested(self, found: Sequence[Any]) -> Any:
        """Return the results as the torch operator returns them, from a flat tuple."""
        if self.steps:
            return list(found)
        parts, at = [], 0
        for count in self.counts:
            parts.append(found[at] if count < 0 else list(found[at : at + count]))
            at += max(count, 1) if count < 0 else count
        returned = self.exported.signature.returned
        return tuple(parts) if returned == "many" else parts[0] if parts else None

    def note_batched(self, total: int) -> None:
        """Record the lengths of results after a batch of the operator."""
        outputs = self.exported.signature.outputs
        lists = [leaf for leaf in outputs if leaf.is_list]
        if len(lists) > 1 or not all(leaf.is_array for leaf in outputs):
            seen = "several lists" if len(lists) > 1 else "a number"
            raise self.exported.op.error(
                VmapError,
                f" returns {seen}, which torch.vmap cannot batch",
                do="return arrays, or one list of arrays",
                parameter="return",
            )
        rest = total - (len(outputs) - len(lists))
        self.counts = [rest if leaf.is_list else -1 for leaf in outputs]


# ---- torch.autograd.Function ----


def functions_of(name: str) -> tuple[Any, Any]:
    """Return two subclasses of torch.autograd.Function; torch shows `name` as ``grad_fn``.

    The second is for functional transforms, which need a separate setup. The first
    takes half the time, because torch does not bind a signature for it (torch 2.13).
    """
    shared = {"backward": staticmethod(_backward), "jvp": staticmethod(_jvp)}
    alone = {**shared, "forward": staticmethod(_forward_alone)}
    parts = {
        **shared,
        "forward": staticmethod(_forward),
        "setup_context": staticmethod(_setup_context),
        "vmap": staticmethod(_vmap),
    }
    bases = (torch.autograd.Function,)
    return type(name, bases, alone), type(name, bases, parts)


def _forward_alone(ctx: Any, call: TorchCall, *tensors: Any) -> tuple[Any, ...]:
    output = call.run(tensors)
    _keep(ctx, call, tensors, output)
    return output


def _forward(call: TorchCall, *tensors: Any) -> tuple[Any, ...]:
    return call.run(tensors)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    _keep(ctx, inputs[0], inputs[1:], output)


def _keep(
    ctx: Any, call: TorchCall, tensors: tuple[Any, ...], output: tuple[Any, ...]
) -> None:
    """Save what gradients and tangents are computed from."""
    ctx.call = call
    ctx.set_materialize_grads(False)
    # If results are saved, a formula does not run the operator a second time.
    known = output if not call.steps and call.exported.knows_results else ()
    ctx.known = len(known)
    ctx.save_for_backward(*tensors, *known)
    if has_tangents():
        ctx.save_for_forward(*tensors, *known)
    whole = [v for v in output if isinstance(v, torch.Tensor) and not _moves(v)]
    if whole:
        ctx.mark_non_differentiable(*whole)


def _moves(x: Any) -> bool:
    return bool(x.is_floating_point() or x.is_complex())


def _backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
    needs = ctx.needs_input_grad[1:]
    found: list[Any] = [None] * len(needs)
    wanted = tuple([i for i, need in enumerate(needs) if need])
    outputs = tuple([i for i, grad in enumerate(grads) if grad is not None])
    if wanted and outputs:
        step = Pull(wanted, outputs, ctx.known, is_conjugate=True)
        given = (*ctx.saved_tensors, *[grads[i] for i in outputs])
        pulled = ctx.call.then(step)
        grads_in = pulled.exported.codes.run(pulled, given)
        if grads_in is None:
            grads_in = [_or_none(grad) for grad in pulled.run(given)]
        for i, grad in zip(wanted, grads_in, strict=True):
            found[i] = grad
    return (None, *found)


def _or_none(value: Any) -> Any:
    """Return a result of a derivative, or None, which is passed as a tensor of bools."""
    return None if value.dtype is torch.bool else value


def _jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
    moving = tuple([i for i, t in enumerate(tangents[1:]) if t is not None])
    tensors = ctx.saved_tensors
    tensors = tensors[: len(tensors) - ctx.known]
    given = (*tensors, *[tangents[i + 1] for i in moving])
    pushed = ctx.call.then(Push(moving))
    found = pushed.exported.codes.run(pushed, given)
    if found is None:
        found = [_or_none(tangent) for tangent in pushed.run(given)]
    return tuple(found)


def _vmap(
    info: Any, in_dims: tuple[Any, ...], call: TorchCall, *tensors: Any
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    step = Batch(tuple(in_dims[1:]), info.randomness)
    found = call.then(step).run(tensors)
    if not call.steps:
        call.note_batched(len(found))
    return found, tuple([0] * len(found))


# ---- the vmap inside torch.autograd ----


def run_batch(call: TorchCall, tensors: Sequence[Any]) -> Any:
    """Run a call on the batched tensors of torch.autograd.grad(is_grads_batched=True)."""
    level = batch_level()
    # The axis of the batch comes first. An unbatched tensor gets an axis of length 1.
    rows = [None if x is None else remove_batch_axis(x, level, 1, 0) for x in tensors]
    size = max(x.shape[0] for x in rows if x is not None)
    axes = [0 if x is not None and x.shape[0] == size else None for x in rows]
    given = [
        x if x is None or axis == 0 else x[0]
        for x, axis in zip(rows, axes, strict=True)
    ]
    found = call.then(Batch(tuple(axes), "error")).run(given)
    if not call.steps:
        call.note_batched(len(found))
    return call.nested([add_batch_axis(x, 0, level) for x in found])


# ---- operators that write to their arguments, under torch.vmap ----


def run_written(
    exported: Exported,
    steps: Sequence[Step],
    leaves: Sequence[Any],
    arrays: Sequence[Any],
) -> None:
    """Run a batch of an operator, and copy the new values into the written arrays."""
    for at, new in zip(
        _written_arrays(exported, leaves),
        _new(exported, steps, leaves, arrays),
        strict=True,
    ):
        if arrays[at] is None:
            continue
        target = arrays[at]
        for step in reversed(steps):
            assert isinstance(step, Batch)
            axis = step.axes[at]
            assert axis is not None
            target = np.moveaxis(target, axis, 0)
            break
        target[...] = new


def rows_of(exported: Exported, *, is_first: bool) -> Callable[..., Any]:
    """Return the kernel of a writing operator for torch's functional transforms."""

    def transform(*args: Any, **keywords: Any) -> None:
        interpreter = transform_of_torch()
        if interpreter.key() != TransformType.Vmap:
            raise exported.op.error(
                GradientError,
                f" writes '{exported.op.schema.written[0]}' under torch.func: a write has"
                " no derivative",
                do="use an operator that returns a new array",
                parameter=exported.op.schema.written[0],
            )
        if is_first:
            steps: tuple[Step, ...] = ()
            values = exported.signature.values(*args, **keywords)
        else:
            steps, values = steps_of(args[0]), args[1:]
        leaves, tensors = exported.taken_out(values)
        level = interpreter.level()
        unwrap = unwrap_batched
        pairs = [(x, None) if x is None else unwrap(x, level) for x in tensors]
        with interpreter.lower():
            below = [value for value, _ in pairs]
            if all(axis is None for _, axis in pairs):
                _call_again(exported, steps, leaves, below)
                return
            for at in _written_arrays(exported, leaves):
                if tensors[at] is not None and pairs[at][1] is None:
                    raise _unbatched(exported)
            step = Batch(tuple(axis for _, axis in pairs), interpreter.randomness())
            _call_again(exported, (*steps, step), leaves, below)

    return transform


def _written_arrays(exported: Exported, leaves: Sequence[Any]) -> list[int]:
    """Return the indices of the written arrays in the flat list."""
    found: list[int] = []
    at = 0
    for i, leaf in enumerate(exported.signature.leaves):
        if leaf.is_array:
            count = (leaves[i] or 0) if leaf.is_list else 1
            if i in exported.signature.written:
                found += range(at, at + count)
            at += count
    return found


def _new(
    exported: Exported,
    steps: Sequence[Step],
    leaves: Sequence[Any],
    arrays: Sequence[Any],
) -> Sequence[Any]:
    """Return the new values of the written arrays, with the last batch axis in front."""
    written = _written_arrays(exported, leaves)
    if not steps:
        args, keywords = exported.signature.arguments(
            exported.filled(leaves, arrays)[0]
        )
        exported.op(*args, **keywords)
        return [arrays[at] for at in written]
    *before, step = steps
    assert isinstance(step, Batch)
    given = [i for i, value in enumerate(arrays) if value is not None]

    def of_rows(*rows: Any) -> tuple[Any, ...]:
        all_rows: list[Any] = [None] * len(arrays)
        for i, row in zip(given, rows, strict=True):
            all_rows[i] = row
        found = _new(exported, before, leaves, all_rows)
        return tuple(value for value in found if value is not None)

    axes = tuple(step.axes[i] for i in given)
    randomness: Any = step.randomness
    found = iter(
        vmap(of_rows, in_dims=axes, randomness=randomness)(*[arrays[i] for i in given])
    )
    return [None if arrays[at] is None else next(found) for at in written]


def _call_again(
    exported: Exported, steps: tuple[Step, ...], leaves: Sequence[Any], tensors: Any
) -> None:
    filled, _ = exported.filled(leaves, tensors)
    if steps:
        exported.rows(text_of_steps(steps), *filled)
        return
    positional, keywords = exported.signature.split(filled)
    exported.overload(*positional, **keywords)


def _unbatched(exported: Exported) -> VmapError:
    name = exported.op.schema.written[0]
    return exported.op.error(
        VmapError,
        f" writes '{name}', which is the same for all rows, under torch.vmap",
        do="give what is written an axis in in_dims",
        parameter=name,
    )
