r"""Plugin for mypy: reports wrong operators, rules and calls before the program runs.

In ``mypy.ini`` or ``setup.cfg``, or below ``[tool.mypy]`` in ``pyproject.toml``::

    [mypy]
    plugins = customop.mypy

Calls of operators are typed without the plugin, and rules as far as a ``ParamSpec`` can
say. The plugin makes the checks of registration before the program runs, with the same
messages, and gives types to `ops`. It reports nothing where only the running program knows
the answer, such as a name that is computed.

Each check has a code. ``disable_error_code = customop-schema`` turns it off for a program,
``# type: ignore[customop-schema]`` for a line.

Error codes
-----------
customop-name
    The name of an operator is not ``namespace::name``, or is one letter off the name of a
    known operator and belongs to none::

        co.custom_op("scale", as_it_is, mutates_args=())

customop-schema
    A parameter or the result has no annotation, or one without a schema type. A default
    does not fit its type. A schema string cannot be read, or disagrees with the function.
    An overload allows calls that the operator does not take. Tags contradict the schema::

        @co.custom_op("mylib::scale", mutates_args=())
        def scale(x: np.ndarray, options: dict[int, float]) -> np.ndarray:
            return x * options[0]

customop-shape
    The shape in an annotation or a schema string cannot be read, the two disagree, or a
    tag contradicts it. A result has an axis that no argument has, and the module registers
    no fake kernel. A kernel has other axes than the operator. An argument of a call has a
    number of axes that cannot fit, according to its type::

        @co.custom_op("mylib::mm", mutates_args=())
        def mm(
            x: Annotated[co.Array, "m k"], y: Annotated[co.Array, "k n"]
        ) -> Annotated[co.Array, "m o"]:
            return x @ y

customop-mutates
    `mutates_args` names something that is not a parameter or not an array, or other
    parameters than the schema string marks as written::

        @co.custom_op("mylib::clear", mutates_args=("y",))
        def clear(x: np.ndarray) -> None:
            x[...] = 0.0

customop-device
    The operator has kernels for some kinds of array, but no argument selects one::

        @co.custom_op("mylib::zeros", mutates_args=(), device_types="cpu")
        def zeros(n: int) -> np.ndarray:
            return np.zeros(n)

customop-kernel
    The parameters of a kernel have other names or types than the operator's, or there are
    more or fewer. Only the class of arrays may differ. A kind of array is ``"gpu"``, or is
    written in capitals::

        @gauss.register_kernel("cuda")
        def _(x: cp.ndarray, widht: float) -> cp.ndarray:
            return cp.exp(-((x / widht) ** 2))

customop-fake
    The same for a fake kernel::

        @gauss.register_fake
        def _(x: co.FakeArray) -> co.FakeArray:
            return co.fake_like(x)

customop-autograd
    A backward formula does not take one gradient for each result, or returns a tuple
    without one gradient for each input, or with one for a number. `setup_context` has the wrong parameters. The
    formula reads an attribute of `ctx` that nothing sets. The operator cannot have a
    gradient because it writes its arguments, or `grad` gets it in its own module, which
    registers none::

        def backward(ctx: Any, grad: np.ndarray) -> Any:
            return (grad,)

        gauss.register_autograd(backward)

customop-vmap
    A batching rule does not take ``(info, in_dims, *inputs)``, or returns a tuple that is
    not a pair::

        @gauss.register_vmap
        def _(info: Any, in_dims: Any, x: np.ndarray) -> Any:
            return gauss(x, 1.0), in_dims[0]

customop-jvp
    A forward-mode rule does not take ``(primals, tangents)`` and the keyword-only
    parameters, or returns a tuple that is not a pair::

        @gauss.register_jvp
        def _(primals: Any, tangents: Any, width: float) -> Any:
            return primals[0], tangents[0]

customop-rule
    A rule of another kind does not take the parameters that its `RuleKind` names::

        inverse = co.RuleKind("inverse", takes="(out, *inputs)")

        @gauss.register(inverse)
        def _(x: np.ndarray, width: float) -> np.ndarray:
            return x

customop-duplicate
    Two operators have the same name: in one module, in a module and one that it imports,
    or in two modules that a third one imports. mypy reports the last case in the module
    that imports both, if it calls an operator::

        co.custom_op("mylib::twice", as_it_is, mutates_args=())
        co.custom_op("mylib::twice", as_it_is, mutates_args=())

customop-transform
    `argnums` names a position that the function does not have. `in_dims` has more or fewer
    entries than the function has positional parameters::

        co.grad(as_it_is, argnums=1)

customop-mixed
    A call mixes arrays of NumPy and of CuPy::

        def both(x: np.ndarray, y: cp.ndarray) -> None:
            add(x, y)

Types
-----
``co.ops.mylib.gauss(x, 1.0)``, ``co.ops.mylib.gauss.default`` and other overloads have the
types of the operators that the module defines or imports, directly or through other
modules. ``co.register_fake("mylib::gauss", fn)`` and the like return the operator of that
name with its type. Derivatives have the types of the arguments that `argnums` names. A
function with `typing.overload` becomes an operator whose calls have
all its overloads.
"""

# May import every folder but `cli` and `pytest`. Start with `hooks`, which mypy calls.
# `definitions` reads operators; `rule_checks` and `kernel_checks` check what is
# registered for them.

from hashlib import blake2b
from pathlib import Path

from mypy.plugin import Plugin

from customop.mypy.hooks import CustomOpPlugin

__all__ = ["plugin"]


def _digest() -> str:
    found = blake2b(digest_size=8)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


# mypy keeps its cache as long as this stays the same. Hashing 160 files takes 10 ms.
__version__ = _digest()


def plugin(version: str) -> type[Plugin]:
    """Return the class of the plugin; mypy calls this.

    Parameters
    ----------
    version : str
        The version of mypy. It is not used.

    Returns
    -------
    type of Plugin

    Examples
    --------
    >>> import customop.mypy
    >>> customop.mypy.plugin("2.0").__name__
    'CustomOpPlugin'
    """
    return CustomOpPlugin
