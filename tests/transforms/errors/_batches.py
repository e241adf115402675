"""Messages about batches and kernels."""

# ruff: noqa: ISC004 - messages are written line by line

from __future__ import annotations

import numpy as np

import customop as co
from tests.transforms.errors._operators import (
    PAIR,
    F,
    M,
    Table,
    X,
    as_many,
    as_many_items,
    at,
    bare,
    bare_op,
    batched,
    draw_op,
    fake_none,
    fake_same,
    fake_single,
    fake_there,
    fake_word,
    first,
    gives_fake,
    gives_few,
    gives_none,
    gives_number,
    gives_numbers,
    gives_short_tuple,
    gives_text,
    loss,
    made,
    mixed,
    refuses,
    same,
    same_list,
    turned,
    twice,
    vmap_alone,
    vmap_far,
    vmap_number,
    vmap_one_dim,
    vmap_short,
    vmap_word,
    words,
)

# ---- batches ----

BATCHES: Table = {
    "vmap of no function": (
        lambda: co.vmap(3),
        co.ArgumentError,
        TypeError,
        "vmap: 3 is not a function\n"
        "  do: write vmap(f) with a function f",
    ),
    "unknown randomness": (
        lambda: co.vmap(loss, randomness="equal"),
        co.VmapError,
        ValueError,
        "vmap: unknown randomness='equal'\n"
        "  do: use 'error', 'same' or 'different'",
    ),
    "chunks of no rows": (
        lambda: co.vmap(loss, chunk_size=0),
        co.VmapError,
        ValueError,
        "vmap: chunk_size=0 is not a positive int\n"
        "  do: use a number of rows such as 64, or None for all at once",
    ),
    "chunks by text": (
        lambda: co.vmap(loss, chunk_size="2"),
        co.VmapError,
        ValueError,
        "vmap: chunk_size='2' is not a positive int\n"
        "  do: use a number of rows such as 64, or None for all at once",
    ),
    "axes for other arguments": (
        lambda: co.vmap(loss, (0, 0))(M),
        co.VmapError,
        ValueError,
        "vmap of loss: in_dims has 2 entries, the call 1 positional arguments\n"
        "  do: write one entry for each argument, None where it is not batched",
    ),
    "axes of another structure": (
        lambda: co.vmap(loss, ({"a": 0},))(M),
        co.VmapError,
        ValueError,
        "vmap of loss: the axes ({'a': 0},) do not fit the structure PyTreeSpec((*,))\n"
        "  do: write one axis, or axes nested as the value is",
    ),
    "text for an axis": (
        lambda: co.vmap(loss, "0")(M),
        co.VmapError,
        ValueError,
        "vmap of loss: '0' in in_dims is not an axis\n"
        "  do: use an int or None",
    ),
    "bool for an axis": (
        lambda: co.vmap(loss, True)(M),
        co.VmapError,
        ValueError,
        "vmap of loss: True in in_dims is not an axis\n"
        "  do: use an int or None",
    ),
    "axis out of reach": (
        lambda: co.vmap(loss, 2)(M),
        co.VmapError,
        ValueError,
        "vmap of loss: in_dims is 2 for an array of shape (2, 2)\n"
        "  do: use an axis from -2 to 1",
    ),
    "axis of a number": (
        lambda: co.vmap(loss)(3.0),
        co.VmapError,
        ValueError,
        "vmap of loss: in_dims is 0 for float 3.0, which has no axes\n"
        "  do: use None in in_dims for it",
    ),
    "keyword array without axes under vmap": (
        lambda: co.vmap(lambda x, k: x)(M, k=np.array(3.0)),
        co.VmapError,
        ValueError,
        "vmap of <lambda>: in_dims is 0 for an array of shape ()\n"
        "  do: use None for an array without axes",
    ),
    "axis of an array without axes": (
        lambda: co.vmap(loss)(np.array(3.0)),
        co.VmapError,
        ValueError,
        "vmap of loss: in_dims is 0 for an array of shape ()\n"
        "  do: use None for an array without axes",
    ),
    "nothing is batched": (
        lambda: co.vmap(loss, None)(M),
        co.VmapError,
        ValueError,
        "vmap of loss: no argument is batched\n"
        "  do: give at least one argument an axis in in_dims",
    ),
    "no argument at all": (
        lambda: co.vmap(loss)(),
        co.VmapError,
        ValueError,
        "vmap of loss: no argument is batched\n"
        "  do: give at least one argument an axis in in_dims",
    ),
    "batches of different lengths": (
        lambda: co.vmap(np.dot)(M, np.ones((3, 2))),
        co.VmapError,
        ValueError,
        "vmap of dot: batches of different lengths: f64[2, 2] along 0, f64[3, 2] along 0\n"
        "  do: batch all arguments by the same number of rows",
    ),
    "text as a result": (
        lambda: batched(words),
        co.VmapError,
        ValueError,
        "vmap of words: returned str 'words', must be arrays\n"
        "  do: return arrays, or out_dims=None for that result",
    ),
    "no axis for a batch": (
        lambda: co.vmap(loss, out_dims=None)(M),
        co.VmapError,
        ValueError,
        "vmap of loss: out_dims is None for a result that differs between rows\n"
        "  do: write the axis for the batch, such as 0",
    ),
    "axis of the result out of reach": (
        lambda: co.vmap(loss, out_dims=1)(M),
        co.VmapError,
        ValueError,
        "vmap of loss: out_dims is 1 for a row of 0 axes\n"
        "  do: use an axis from -1 to 0",
    ),
    "text for an axis of the result": (
        lambda: co.vmap(loss, out_dims="0")(M),
        co.VmapError,
        ValueError,
        "vmap of loss: out_dims is '0' for a row of 0 axes\n"
        "  do: use an axis from -1 to 0",
    ),
    "axes of another structure for the result": (
        lambda: co.vmap(loss, out_dims=(0, 0))(M),
        co.VmapError,
        ValueError,
        "vmap of loss: the axes (0, 0) do not fit the structure PyTreeSpec(*)\n"
        "  do: write one axis, or axes nested as the value is",
    ),
    "random operator": (
        lambda: batched(draw_op),
        co.VmapError,
        ValueError,
        "texts::draw is random under vmap(draw) with randomness='error'\n"
        "  texts::draw(Array x) -> Array\n"
        "  vmap(draw) is called at FILE:N\n"
        "  do: vmap(f, randomness='same') or vmap(f, randomness='different')",
    ),
    "random operator on the same for all rows": (
        lambda: batched(lambda x: draw_op(X)),
        co.VmapError,
        ValueError,
        "texts::draw is random under vmap(<lambda>) with randomness='error'\n"
        "  texts::draw(Array x) -> Array\n"
        "  vmap(<lambda>) is called at FILE:N\n"
        "  do: vmap(f, randomness='same') or vmap(f, randomness='different')",
    ),
    "write to one array for all rows": (
        lambda: co.vmap(made(mixed, "(Array(a!) x, Array y) -> ()", mutates_args=("x",)), (None, 0))(X, M),
        co.VmapError,
        ValueError,
        "texts::op writes its argument 'x' under vmap(mixed), which is one array for all rows\n"
        "  texts::op(Array(a!) x, Array y) -> ()\n"
        "            ^^^^^^^^^^^\n"
        "  vmap(mixed) is called at FILE:N\n"
        "  do: batch 'x' too, or use an operator that returns a new array",
    ),
    "rows of different shapes": (
        lambda: batched(made(as_many)),
        co.VmapError,
        ValueError,
        "texts::op: under vmap(as_many) the rows return arrays f64[1], f64[3], which cannot be stacked\n"
        "  texts::op(Array x) -> Array\n"
        "  vmap(as_many) is called at FILE:N\n"
        "  do: return arrays of one shape for all rows",
    ),
    "rows of different lengths": (
        lambda: batched(made(as_many_items, "(Array x) -> Array[]")),
        co.VmapError,
        ValueError,
        "texts::op: under vmap(as_many_items) the rows return lists of [1, 3] items, which cannot be stacked\n"
        "  texts::op(Array x) -> Array[]\n"
        "  vmap(as_many_items) is called at FILE:N\n"
        "  do: return arrays of one shape for all rows",
    ),
    "rows of different numbers": (
        lambda: batched(made(first, "(Array x) -> int")),
        co.VmapError,
        ValueError,
        "texts::op: under vmap(first) the rows return the values int 1, int 3, which cannot be stacked\n"
        "  texts::op(Array x) -> int\n"
        "  vmap(first) is called at FILE:N\n"
        "  do: return arrays of one shape for all rows",
    ),
    "rule that does not return a pair": (
        lambda: batched(made(same, vmap=vmap_alone)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returned ndarray of shape (2, 2) instead of a pair\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(vmap_alone)}\n"
        "  do: return (output, out_dims), with an axis or None for each output",
    ),
    "rule with an axis out of reach": (
        lambda: batched(made(same, vmap=vmap_far)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returned out_dims=3 for an output of shape (2, 2)\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(vmap_far)}\n"
        "  do: return (output, out_dims), with an axis or None for each output",
    ),
    "rule that loses a row": (
        lambda: batched(made(same, vmap=vmap_short)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returned an output of shape (1, 2) with out_dims=0, but the batch has 2 rows\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(vmap_short)}\n"
        "  do: return (output, out_dims), with an axis or None for each output",
    ),
    "rule with text for an axis": (
        lambda: batched(made(same, vmap=vmap_word)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returned out_dims='0' for the output ndarray of shape (2, 2)\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(vmap_word)}\n"
        "  do: return (output, out_dims), with an axis or None for each output",
    ),
    "rule with one axis for two outputs": (
        lambda: batched(made(twice, PAIR, vmap=vmap_one_dim)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returned out_dims=0 for 2 outputs\n"
        "  texts::op(Array x) -> (Array, Array)\n"
        f"  rule at {at(vmap_one_dim)}\n"
        "  do: return (output, out_dims), with an axis or None for each output",
    ),
    "rule that returns a number": (
        lambda: batched(made(same, vmap=vmap_number)),
        co.ContractError,
        RuntimeError,
        "texts::op: the vmap rule returns output 0 as int 3, must be an array\n"
        "  texts::op(Array x) -> Array\n"
        f"  rule at {at(vmap_number)}\n"
        "  do: return what the schema says",
    ),
    "no rows and no fake kernel": (
        lambda: batched(bare_op, np.ones((0, 2))),
        co.MissingRuleError,
        NotImplementedError,
        "texts::bare has no fake kernel\n"
        "  texts::bare(Array x) -> Array\n"
        f"  at {at(bare)}\n"
        "  do: @bare.register_fake, a function that returns fake_like(...)",
    ),
}  # fmt: skip

# ---- kernels ----

KERNELS: Table = {
    "number for an optional array": (
        lambda: made(gives_number, "(Array x) -> Array?")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 as int 3, must be an array\n"
        "  texts::op(Array x) -> Array?\n"
        f"  kernel at {at(gives_number)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "number among arrays": (
        lambda: made(gives_numbers, "(Array x) -> Array[]")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 at index 1 as int 3, must be an array\n"
        "  texts::op(Array x) -> Array[]\n"
        f"  kernel at {at(gives_numbers)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "array for a list": (
        lambda: made(same, "(Array x) -> Array[]")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 as ndarray of shape (2,), must be Array[]\n"
        "  texts::op(Array x) -> Array[]\n"
        f"  kernel at {at(same)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "one for a list of two": (
        lambda: made(gives_few, "(Array x) -> Array[2]")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 with 1 items, must be Array[2]\n"
        "  texts::op(Array x) -> Array[2]\n"
        f"  kernel at {at(gives_few)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "one for a pair": (
        lambda: made(gives_short_tuple, "(Array x) -> ((Array, Array), Array)")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 with 1 items, must be (Array, Array)\n"
        "  texts::op(Array x) -> ((Array, Array), Array)\n"
        f"  kernel at {at(gives_short_tuple)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "fake array of a kernel": (
        lambda: made(gives_fake)(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 as FakeArray f64[2] of the kind 'fake', must be of the kind 'cpu'\n"
        "  texts::op(Array x) -> Array\n"
        f"  kernel at {at(gives_fake)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "None for a number": (
        lambda: made(gives_none, "(Array x) -> float")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 as None, must be float\n"
        "  texts::op(Array x) -> float\n"
        f"  kernel at {at(gives_none)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "text for a number": (
        lambda: made(gives_text, "(Array x) -> Scalar")(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns output 0 as str '1', must be Scalar\n"
        "  texts::op(Array x) -> Scalar\n"
        f"  kernel at {at(gives_text)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "write that NumPy refuses": (
        lambda: made(refuses)(X.copy()),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel writes argument 'x'\n"
        "  that mutates_args=() does not name\n"
        "  texts::op(Array x) -> Array\n"
        "            ^^^^^^^\n"
        f"  kernel at {at(refuses)}\n"
        "  do: name it in mutates_args, or write into x.copy()",
    ),
    "fake kernel of another dtype": (
        lambda: made(same, fake=fake_single)(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns f64[2] with strides (8,) on cpu as output 0, its fake kernel f32[2] with strides (4,) on cpu\n"
        f"  they differ in dtype; fake kernel at {at(fake_single)}\n"
        "  texts::op(Array x) -> Array\n"
        f"  kernel at {at(same)}\n"
        "  do: return fake_like(x, shape=..., dtype=...) with what the kernel returns",
    ),
    "fake kernel on another device": (
        lambda: made(same, fake=fake_there)(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns f64[2] with strides (8,) on cpu as output 0, its fake kernel f64[2] with strides (8,) on cuda:0\n"
        f"  they differ in device; fake kernel at {at(fake_there)}\n"
        "  texts::op(Array x) -> Array\n"
        f"  kernel at {at(same)}\n"
        "  do: return fake_like(x, shape=..., dtype=...) with what the kernel returns",
    ),
    "fake kernel with the axes in another order": (
        lambda: made(turned, fake=fake_same)(M),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns f64[2, 2] with strides (8, 16) on cpu as output 0, its fake kernel f64[2, 2] with strides (16, 8) on cpu\n"
        f"  they differ in order of axes in memory; fake kernel at {at(fake_same)}\n"
        "  texts::op(Array x) -> Array\n"
        f"  kernel at {at(turned)}\n"
        '  do: let the kernel return np.asarray(out, order="C"), or the fake kernel the order that the kernel has: FakeArray(shape, dtype, strides)',
    ),
    "fake kernel without an array": (
        lambda: made(same, "(Array x) -> Array?", fake=fake_none)(X),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'cpu' kernel returns [array] as output 0, its fake kernel [None]\n"
        f"  fake kernel at {at(fake_none)}\n"
        "  texts::op(Array x) -> Array?\n"
        f"  kernel at {at(same)}\n"
        "  do: return as many arrays, and None in the same places",
    ),
    "fake kernel of text": (
        lambda: made(same, fake=fake_word)(F),
        co.ContractError,
        RuntimeError,
        "texts::op: the 'fake' kernel returns output 0 as str 'shape', must be an array\n"
        "  texts::op(Array x) -> Array\n"
        f"  kernel at {at(fake_word)}\n"
        "  do: return what the schema says, or change the annotation of the result",
    ),
    "text for an array or number": (
        lambda: made(same, "(Array|Scalar x) -> Array")("x"),
        co.ArgumentError,
        TypeError,
        "texts::op: argument 'x' expects Array|Scalar, got str 'x'\n"
        "  texts::op(Array|Scalar x) -> Array\n"
        "            ^^^^^^^^^^^^^^\n"
        "  do: pass an array, such as np.asarray(x)",
    ),
    "text in a tuple": (
        lambda: made(same_list, "((Array, Array) xs) -> Array")((X, "x")),
        co.ArgumentError,
        TypeError,
        "texts::op: argument 'xs' at index 1 expects Array, got str 'x'\n"
        "  texts::op((Array, Array) xs) -> Array\n"
        "            ^^^^^^^^^^^^^^^^^\n"
        "  do: pass arrays, such as [np.asarray(x), ...]",
    ),
}  # fmt: skip
