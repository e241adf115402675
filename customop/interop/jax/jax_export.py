"""`export`: make a JAX function of an operator or a NumPy function."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial, update_wrapper
from importlib import import_module
from types import ModuleType
from typing import Any, TypeGuard

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from customop.arrays.array import is_inexact
from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.arrays.nested import (
    children,
    flatten,
    map_outline,
)
from customop.core.builtin_kinds import AUTOGRAD
from customop.core.codegen import generate
from customop.core.operator import Operator
from customop.core.table import changing
from customop.errors import ArgumentError, DataDependentError, check_function, shown
from customop.interop.jax.jax_calls import (
    ArraySlot,
    CallPlaces,
    Derived,
    NumpyCall,
    OperatorCall,
)
from customop.interop.jax.jax_sizes import JaxSizes, has_symbols
from customop.interop.jax.mesh_axes import alike, varying
from customop.interop.jax.xla_targets import call_target, has_target, is_fixed
from customop.interop.steps import Batch, Pull, Push
from customop.later import later

# It makes JAX arrays a kind, so it is imported with the first rule.
rule_programs: ModuleType = later(import_module, "customop.interop.jax.rule_programs")

# ---- export ----


def export(op: Callable[..., Any]) -> JaxFunction:
    """Make a JAX function of an operator or of a NumPy function.

    It runs on the host; inside ``jax.jit`` it is a callback. Shapes and dtypes of its
    results come from the fake kernel. Derivatives in both modes and to any order, and
    batches for ``jax.vmap``, come from the operator's rules; XLA runs those for which JAX
    has all functions.

    Parameters
    ----------
    op : Operator or callable
        An operator, or a function of arrays that uses operators and NumPy functions.

    Returns
    -------
    JaxFunction
        Takes the arguments of `op`, with JAX arrays in the place of NumPy arrays, and
        returns JAX arrays. Other arguments are constants of the compiled program. JAX
        arrays never change: if `op` writes to an argument, the new array is returned
        after the results of `op`, in the order of ``op.schema.written``.

    Raises
    ------
    ArgumentError
        If `op` is not a function, or draws random numbers.

    Notes
    -----
    Without ``jax_enable_x64`` JAX has no 64-bit numbers: it passes 32-bit arrays to
    `op`, and results are rounded to 32 bits. dtypes that NumPy lacks, such as bfloat16,
    are refused.

    Examples
    --------
    >>> import customop as co, jax, jax.numpy as jnp, numpy as np
    >>> from customop.interop.jax import export
    >>> @co.custom_op("jax_docs::cube", mutates_args=(), tags=(co.Tag.pointwise,))
    ... def cube(x: co.Array) -> co.Array:
    ...     return x * x * x
    >>> op = cube.register_autograd(co.native)  # the gradient of its own code
    >>> jax_cube = export(cube)
    >>> float(jax.jit(jax.grad(jax_cube))(2.0))
    12.0
    """
    check_function("export", op)
    if isinstance(op, Operator) and op.sees_seed:
        raise ArgumentError(
            f"export: {op.qualname} draws random numbers, and JAX calls a function as often"
            " as it likes",
            do="draw before the call, and pass the numbers as an array",
        )
    return JaxFunction(op)


class JaxFunction:
    """A function that `export` returns.

    Attributes
    ----------
    op : Operator or callable
    """

    def __init__(self, op: Callable[..., Any]) -> None:
        self.op: Callable[..., Any] = op
        update_wrapper(self, op, updated=())

    def __repr__(self) -> str:
        return f"<{self._name()} for JAX>"

    def _name(self) -> str:
        named = getattr(self.op, "__qualname__", self.op)
        return str(getattr(self.op, "qualname", named))

    def _checked(self, array: Any) -> np.dtype[Any]:
        check_not_key(self._name(), array)
        dtype: np.dtype[Any] = np.dtype(array.dtype)
        if dtype.isbuiltin == 2:  # registered by another library
            raise ArgumentError(
                f"{self._name()}: an array of {dtype}, which NumPy does not have",
                do="convert it: x.astype(np.float32)",
            )
        return dtype

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the operator, or add the call to the program that JAX traces."""
        arrays: list[Any] = []
        fakes: dict[int, int] = {}
        sizes = JaxSizes()

        def mark(leaf: Any) -> Any:
            if not isinstance(leaf, jax.Array | np.ndarray):
                return leaf
            fake = FakeArray([*map(sizes.ours, leaf.shape)], self._checked(leaf))
            fakes[id(fake)] = len(arrays)
            arrays.append(leaf)
            return fake

        def slot(leaf: Any) -> Any:
            return ArraySlot(fakes[id(leaf)]) if id(leaf) in fakes else leaf

        fn: OperatorCall | NumpyCall
        if isinstance(self.op, Operator):
            marked: Any = map_outline((args, kwargs), mark)
            try:
                with sizes.asking(self._name()):
                    values = self.op.bind(*marked[0], **marked[1])
            except ArgumentError as error:
                _say_jax(error)
                raise
            fn = OperatorCall(
                self.op, CallPlaces([map_outline(v, slot) for v in values])
            )
        else:
            leaves, spec = flatten((args, kwargs))
            fn = NumpyCall(self.op, CallPlaces([slot(mark(v)) for v in leaves]), spec)
        types = _types(arrays)
        try:
            if has_symbols([shape for shape, _ in types]):
                example = _symbolic_example(fn, types)
            else:
                example = _example(fn, types, changing.count)
        except ArgumentError as error:
            _say_jax(error)  # an operator in a function got the fake array
            raise
        return fn.rebuilt(example, call(Derived(fn, ()), arrays))


def check_not_key(name: str, array: Any) -> None:
    """Raise for a key of jax.random, which is not an array of numbers."""
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        raise ArgumentError(
            f"{name}: a key of jax.random, which is not an array of numbers",
            do="pass jax.random.key_data(key)",
        )


def _say_jax(error: ArgumentError) -> None:
    """Change an error that names a fake array, so that it names the JAX array instead."""
    if "FakeArray" in error.what:
        error.what = error.what.replace("FakeArray", "an array of JAX")
        error.do = (
            f"pass a number of Python, with jax.jit(f, static_argnames='{error.parameter}')"
            f" where JAX traces it; or declare {error.parameter}: Array"
        )


@lru_cache(maxsize=4096)
def _example(
    fn: OperatorCall | NumpyCall, types: Sequence[tuple[Any, Any]], changes: int
) -> Any:
    """Return a result without data.

    `changes` is part of the cache key, so that new rules are taken into account.
    """
    found = fn.result([FakeArray(shape, dtype) for shape, dtype in types])
    for leaf in fn.leaves(found):
        _check_result(fn, leaf)
    return found


def _symbolic_example(
    fn: OperatorCall | NumpyCall, types: Sequence[tuple[Any, Any]]
) -> Any:
    """Return a result without data, for arrays of any size."""
    sizes = JaxSizes()
    with sizes.asking(str(fn)):
        found = fn.result(sizes.fakes(types))
    for leaf in fn.leaves(found):
        known = isinstance(leaf, FakeArray)
        shape = [*map(sizes.jaxs, leaf.shape)] if known else ()
        _check_result(fn, FakeArray([1] * len(shape), leaf.dtype) if known else leaf)
    return found


def _check_result(fn: OperatorCall | NumpyCall, leaf: Any) -> None:
    """Raise if a result is not an array of a known shape, as JAX requires."""
    if not is_array(leaf):
        raise ArgumentError(
            f"{fn} returns {shown(leaf)}, JAX's functions return arrays",
            do="return np.asarray(...) of it",
        )
    if any(type(n) is not int for n in leaf.shape):
        raise DataDependentError(
            f"{fn} gives {leaf}, and JAX must know shapes before it has values",
            do="give results of a fixed length, or call it outside of JAX's programs",
        )


# ---- two JAX primitives: the call of a function, and its differential ----
# The differential is linear in the tangents. Forward mode runs it; reverse mode
# transposes it into a call of the pullback. So one export has both modes, to any order,
# and an operator without a rule for one mode works in the other.

_call = Primitive("customop_call")
_call.multiple_results = True
_differential = Primitive("customop_differential")
_differential.multiple_results = True


def call(fn: Derived, arrays: Sequence[Any]) -> list[Any]:
    """Call a function with JAX arrays, concrete or traced."""
    found: list[Any] = _call.bind(*alike(arrays), fn=fn)
    return found


# ---- values ----


def _run(*arrays: Any, fn: Derived) -> list[Any]:
    if not fn.steps and has_own_kernel(fn.base):
        return run_own_kernel(fn.base, arrays)
    avals = [jax.typeof(x) for x in arrays]
    found = run_on_host(fn, avals, _results(fn, avals), *arrays)
    return [jax.numpy.asarray(y) for y in found]


def _results(fn: Derived, avals: Sequence[Any]) -> Sequence[Any]:
    """Return the shapes and dtypes of the results."""
    types = _types(avals)
    if has_symbols([shape for shape, _ in types]):
        return _symbolic_result_types(fn, types)
    is_wide = jax.config.read("jax_enable_x64")
    return _result_types(fn, types, changing.count, is_wide)


def _symbolic_result_types(
    fn: Derived, given: Sequence[tuple[Any, Any]]
) -> Sequence[Any]:
    """Return what `_results` does, for arrays of any size."""
    sizes = JaxSizes()
    with sizes.asking(str(fn.base)):
        found = fn(*sizes.fakes(given))
    shapes = [tuple(map(sizes.jaxs, y.shape)) for y in found]
    dtypes = [jax.dtypes.canonicalize_dtype(y.dtype) for y in found]
    return [ShapedArray(s, t) for s, t in zip(shapes, dtypes, strict=True)]


@lru_cache(maxsize=4096)
def _result_types(
    fn: Derived, given: Sequence[tuple[Any, Any]], changes: int, is_wide: bool
) -> Sequence[Any]:
    """Return what `_results` does.

    `changes` is part of the cache key, so that new rules are taken into account.
    """
    found = fn(*[FakeArray(shape, dtype) for shape, dtype in given])
    dtypes = [jax.dtypes.canonicalize_dtype(y.dtype) for y in found]
    return [ShapedArray(y.shape, t) for y, t in zip(found, dtypes, strict=True)]


_call.def_impl(_run)
_call.def_abstract_eval(lambda *avals, fn: varying(avals, _results(fn, avals)))


def _lowered(is_on_cpu: bool, *arrays: Any, fn: Derived) -> Any:
    """Put a call into a JAX program: as operations of XLA if it can, or as a callback."""
    avals = [jax.typeof(x) for x in arrays]
    wanted = _results(fn, avals)
    results = [jax.ShapeDtypeStruct(y.shape, y.dtype) for y in wanted]
    base = fn.base
    found: list[Any] | None = None
    if fn.steps:
        found = _inlined(is_on_cpu, fn, arrays)
    elif has_own_kernel(base):
        found = run_own_kernel(base, arrays)
    elif is_on_cpu and has_target(base):
        found = call_target(base, arrays, results)
    if found is not None:
        return [x.astype(y.dtype) for x, y in zip(found, results, strict=True)]
    if has_symbols([x.shape for x in (*avals, *results)]):
        # JAX calls nothing on the host for them. It keeps calls whose results nobody uses
        # until here, and drops this one; a call that stays is an error that has this name.
        name = "_".join(re.findall(r"\w+", str(base)))
        called = jax.ffi.ffi_call(f"customop_{name}_runs_on_the_host", results)
        return [*called(*arrays)]
    return jax.pure_callback(host_call(fn, avals, wanted), results, *arrays)


def _inlined(is_on_cpu: bool, fn: Derived, arrays: Sequence[Any]) -> Any:
    """Write derivatives and batches as a JAX program.

    Return None if a rule needs the values of its arrays, or an operator that runs on
    the host; the rule then runs there.
    """
    types, sizes = _types(arrays), JaxSizes()
    if has_symbols([shape for shape, _ in types]):
        with sizes.asking(str(fn.base)):
            graph = rule_programs.traced_rule(fn, sizes.fakes(types))
    else:
        graph = rule_programs.graph_of_rule(fn, types, changing.count)
    if graph is None:
        return None
    calls_xla = has_own_kernel(fn.base) or (is_on_cpu and has_target(fn.base))
    if calls_xla or rule_programs.is_native(graph):
        return rule_programs.run_graph(graph, arrays, sizes)
    return None


def _types(arrays: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    return tuple([(x.shape, np.dtype(x.dtype)) for x in arrays])


def _register(primitive: Primitive, of_call: Callable[..., Any]) -> None:
    """Tell JAX how to lower a primitive."""
    for platform in (None, "cpu"):
        lowered = partial(_lowered, platform is not None)
        rule = mlir.lower_fun(partial(of_call, lowered), multiple_results=True)
        mlir.register_lowering(primitive, rule, platform=platform)


_register(_call, lambda lowered, *arrays, fn: lowered(*arrays, fn=fn))


# ---- the differential ----
# Its arguments are those of the function, then the results of the function if the
# backward formula reads them, then the tangents.


def _differential_results(
    *avals: Any, fn: Derived, wanted: tuple[bool, ...], known: int
) -> Any:
    """Return the shapes and dtypes of the results, without using a forward-mode rule."""
    found = _results(fn, avals[: len(wanted)])
    return varying(avals, [aval for aval in found if is_inexact(aval.dtype)])


def _as_push(
    run: Callable[..., Any],
    *arrays: Any,
    fn: Derived,
    wanted: tuple[bool, ...],
    known: int,
) -> Any:
    """Run a differential as the forward mode of its function."""
    count = len(wanted)
    return run(*arrays[:count], *arrays[count + known :], fn=_pushed(fn, wanted))


_differential.def_abstract_eval(_differential_results)
_differential.def_impl(partial(_as_push, _run))
_register(_differential, _as_push)


def _pushed(fn: Derived, wanted: Sequence[bool]) -> Derived:
    """Return the function from arguments and some tangents to tangents of the results."""
    return fn.then(Push(_places(wanted), is_dense=True))


def _places(wanted: Sequence[bool]) -> tuple[int, ...]:
    return tuple([i for i, is_wanted in enumerate(wanted) if is_wanted])


# ---- derivatives ----


def _call_jvp(primals: Any, tangents: Any, *, fn: Derived) -> Any:
    results = _call.bind(*primals, fn=fn)
    wanted = tuple([not _is_zero(t) for t in tangents])
    if not any(wanted):
        return results, [_zero(y) for y in results]
    given = [t for t in tangents if not _is_zero(t)]
    is_wide = jax.config.read("jax_enable_x64")
    types = _types([jax.typeof(x) for x in primals])
    # A program for all sizes calls the operator again, which is right in any case.
    reads = not has_symbols([shape for shape, _ in types]) and _reads(
        fn, types, wanted, changing.count, is_wide
    )
    known = results if reads else []
    found = iter(
        _differential.bind(
            *primals, *known, *given, fn=fn, wanted=wanted, known=len(known)
        )
    )
    return results, [next(found) if is_inexact(y.dtype) else _zero(y) for y in results]


@lru_cache(maxsize=4096)
def _reads(
    fn: Derived,
    given: tuple[tuple[Any, Any], ...],
    wanted: tuple[bool, ...],
    changes: int,
    is_wide: bool,
) -> bool:
    """Return whether a backward formula reads the results, so that JAX passes them to it.

    `changes` is part of the cache key, so that new rules are taken into account.
    """
    base = fn.base
    if not isinstance(base, OperatorCall) or base.op.schema.written:
        return False
    if not all(isinstance(step, Batch) for step in fn.steps):
        return False
    if not getattr(base.op.find_rule(AUTOGRAD), "is_formula", False):
        return False
    if fn.steps:
        results = rule_programs.returned_call(fn, base.op, given, changes)
    else:
        found = base.result([FakeArray(shape, dtype) for shape, dtype in given])
        results = found if base.op.schema.is_tuple else (found,)
    # JAX may have rounded the results to 32 bits, and a formula gets those of the kernel.
    if not all(is_array(y) and _is_jaxs(y.dtype) for y in results):
        return False
    outputs = _places([is_inexact(y.dtype) for y in results])
    step = Pull(_places(wanted), outputs, is_dense=True)
    types = (*given, *_types([results[i] for i in outputs]))
    graph = rule_programs.graph_of_rule(fn.then(step), types, changes)
    return graph is None or any(n.target is base.op for n in graph.graph.nodes)


def _is_jaxs(dtype: Any) -> bool:
    return bool(jax.dtypes.canonicalize_dtype(dtype) == dtype)


def _is_zero(tangent: Any) -> bool:
    if isinstance(tangent, ad.Zero):
        return True
    return bool(jax.typeof(tangent).dtype == jax.dtypes.float0)


def _zero(value: Any) -> Any:
    return ad.Zero(jax.typeof(value).to_tangent_aval())


def _differential_jvp(
    primals: Any, tangents: Any, *, fn: Derived, wanted: tuple[bool, ...], known: int
) -> Any:
    count, first = len(wanted), len(wanted) + known
    same = partial(_differential.bind, fn=fn, wanted=wanted, known=known)
    results = same(*primals)
    found = [_zero(y) for y in results]
    if not all(map(_is_zero, tangents[first:])):
        given = [ad.instantiate_zeros(t) for t in tangents[first:]]
        found = same(*primals[:first], *given)
    changed = tuple([not _is_zero(t) for t in tangents[:count]])
    if any(changed):
        # Known results follow from the arguments, whose tangents say all.
        given = [t for t in tangents[:count] if not _is_zero(t)]
        moving = primals[first:]
        more = _differential.bind(
            *primals[:count],
            *moving,
            *given,
            fn=_pushed(fn, wanted),
            wanted=(*changed, *[False] * len(moving)),
            known=0,
        )
        found = [ad.add_tangents(x, y) for x, y in zip(found, more, strict=True)]
    return results, found


def _transposed(
    cotangents: Any, *arrays: Any, fn: Derived, wanted: tuple[bool, ...], known: int
) -> Any:
    count, first = len(wanted), len(wanted) + known
    given = [ad.instantiate_zeros(ct) for ct in cotangents]
    results = _results(fn, [jax.typeof(x) for x in arrays[:count]])
    outputs = _places([is_inexact(y.dtype) for y in results])
    step = Pull(_places(wanted), outputs, known, is_dense=True)
    found = _call.bind(*arrays[:first], *given, fn=fn.then(step))
    return [*[None] * first, *found]


ad.primitive_jvps[_call] = _call_jvp
ad.primitive_jvps[_differential] = _differential_jvp
ad.primitive_transposes[_differential] = _transposed


# ---- rows ----


def _call_batch(arrays: Any, dims: Any, *, fn: Derived) -> Any:
    rows = [_first(x, d) for x, d in zip(arrays, dims, strict=True)]
    axes = tuple([None if d is None else 0 for d in dims])
    found = _call.bind(*rows, fn=fn.then(Batch(axes)))
    return found, [0] * len(found)


def _differential_batch(
    arrays: Any, dims: Any, *, fn: Derived, wanted: tuple[bool, ...], known: int
) -> Any:
    """Batch the differential; an argument is batched if its tangent is, and vice versa."""
    count = len(wanted)
    # A batch of calls is another call, which does not know its results.
    arrays = [*arrays[:count], *arrays[count + known :]]
    dims = [*dims[:count], *dims[count + known :]]
    size = next(x.shape[d] for x, d in zip(arrays, dims, strict=True) if d is not None)
    places = _places(wanted)
    has_rows = [d is not None for d in dims]
    for i, place in enumerate(places):
        either = has_rows[place] or has_rows[count + i]
        has_rows[place] = has_rows[count + i] = either
    given = [
        _rows(x, d, size) if has else x
        for x, d, has in zip(arrays, dims, has_rows, strict=True)
    ]
    axes = tuple([0 if has else None for has in has_rows[:count]])
    batched = fn.then(Batch(axes))
    found = _differential.bind(*given, fn=batched, wanted=wanted, known=0)
    return found, [0] * len(found)


def _first(array: Any, dim: Any) -> Any:
    return array if dim in (None, 0) else jax.numpy.moveaxis(array, dim, 0)


def _rows(array: Any, dim: Any, size: int) -> Any:
    if dim is not None:
        return _first(array, dim)
    return jax.numpy.broadcast_to(array, (size, *array.shape))


batching.primitive_batchers[_call] = _call_batch
batching.primitive_batchers[_differential] = _differential_batch


# ---- kernels for JAX arrays ----

# The kind of JAX arrays.
_KIND = "jax"


def has_own_kernel(call: object) -> TypeGuard[OperatorCall]:
    """Return whether the operator of a call has a kernel for JAX arrays."""
    return isinstance(call, OperatorCall) and _KIND in call.op.rows


def run_own_kernel(call: OperatorCall, arrays: Sequence[Any]) -> list[Any]:
    """Run the operator's kernel for JAX arrays and return its results as a list."""
    positional, keywords = call.op.schema.split(call.places.filled(arrays))
    return call.leaves(call.op.rows[_KIND].fn(*positional, **keywords))


# ---- callbacks from XLA to Python ----


def host_call(
    fn: Derived, given: Sequence[Any], wanted: Sequence[Any]
) -> Callable[..., list[np.ndarray[Any, Any]]]:
    """Return `run_on_host` of these arguments, for a JAX program that calls it many times.

    If the operator takes plain arrays and returns one, the function is a line of
    generated code. In a callback the processor's caches are cold: walking through the
    values of a call would take 8 us of 60, where it takes 3 us in a loop.
    """
    whole = partial(run_on_host, fn, given, wanted)
    base = fn.base
    if fn.steps or not isinstance(base, OperatorCall) or is_fixed(base.op):
        return whole
    schema, places = base.op.schema, base.places
    values = places.filled([ArraySlot(i) for i in range(places.count)])
    is_nested = any(children(v) is not None for v in values)
    if is_nested or schema.written or not schema.single_return:
        return whole
    names: dict[str, Any] = {
        "_whole": whole,
        "_op": base.op,
        "_rows": base.op.rows,
        "_array": np.array,
        "_asarray": np.asarray,
        "_out": np.dtype(wanted[0].dtype),
        **{f"_t{i}": np.dtype(a.dtype) for i, a in enumerate(given)},
        **{f"_c{i}": v for i, v in enumerate(values)},
    }
    texts = [
        f"_array(x{v.index}, _t{v.index}, copy=None)"
        if isinstance(v, ArraySlot)
        else f"_c{i}"
        for i, v in enumerate(values)
    ]
    params = ", ".join([f"x{i}" for i in range(len(given))])
    lines = [
        f"def call({params}):",
        # A kernel registered since then may need copies.
        f"    if _op.rows is not _rows: return _whole({params})",
        f"    return [_asarray(_op.run({', '.join(texts)}), _out)]",
    ]
    made: Callable[..., list[Any]] = generate(
        f"{base} for JAX", "\n".join(lines), "call", names
    )
    return made


def run_on_host(
    fn: Derived, given: Sequence[Any], wanted: Sequence[Any], *arrays: Any
) -> list[np.ndarray[Any, Any]]:
    """Run a function on NumPy arrays, with the dtypes that JAX expects.

    Parameters
    ----------
    fn : Derived
    given, wanted : sequence of array or ShapedArray
        They have the dtypes of the arguments and of the results.
    *arrays : array
    """
    is_copied = (isinstance(fn.base, OperatorCall) and is_fixed(fn.base.op)) or None
    pairs = zip(arrays, given, strict=True)
    found = fn(*[np.array(x, a.dtype, copy=is_copied) for x, a in pairs])
    return [np.asarray(y, a.dtype) for y, a in zip(found, wanted, strict=True)]
