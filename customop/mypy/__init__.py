r"""Plugin for mypy: what the program would refuse, said before it runs.

In ``mypy.ini`` or ``setup.cfg``, or below ``[tool.mypy]`` in ``pyproject.toml``::

    [mypy]
    plugins = customop.mypy

Calls, and rules as far as a ``ParamSpec`` goes, need no plugin. The plugin adds what
registration checks when the program runs, in the same words, and types for `ops`. Where
only the running program knows, as for names that are worked out, it is silent. Each code
can be turned off, ``disable_error_code = customop-schema``, or for one line,
``# type: ignore[customop-schema]``.

Error codes
-----------
customop-name
    The name of an operator is no ``namespace::name``::

        co.custom_op("scale", as_it_is, mutates_args=())

customop-schema
    A parameter or the result has no annotation, or one without a schema type; a default
    does not fit; a schema string cannot be read, or disagrees with the function; tags
    contradict the schema::

        @co.custom_op("mylib::scale", mutates_args=())
        def scale(x: np.ndarray, options: dict[int, float]) -> np.ndarray:
            return x * options[0]

customop-shape
    The shape of an annotation or a schema string cannot be read, they have two, or a tag
    or a length contradicts them; a result has a name that no argument tells, and the
    module registers no fake kernel; a kernel has the axes of another shape; an argument
    of a call has a number of axes that cannot fit, where its type tells it::

        @co.custom_op("mylib::mm", mutates_args=())
        def mm(
            x: Annotated[co.Array, "m k"], y: Annotated[co.Array, "k n"]
        ) -> Annotated[co.Array, "m o"]:
            return x @ y

customop-mutates
    `mutates_args` names no parameter, one that is no array, or others than the schema
    string marks::

        @co.custom_op("mylib::clear", mutates_args=("y",))
        def clear(x: np.ndarray) -> None:
            x[...] = 0.0

customop-device
    Kernels are chosen by a kind of array that no argument tells::

        @co.custom_op("mylib::zeros", mutates_args=(), device_types="cpu")
        def zeros(n: int) -> np.ndarray:
            return np.zeros(n)

customop-kernel
    The names, number or types of a kernel's parameters are not the operator's. Arrays may
    be of any class, all else must fit::

        @gauss.register_kernel("cuda")
        def _(x: cp.ndarray, widht: float) -> cp.ndarray:
            return cp.exp(-((x / widht) ** 2))

customop-fake
    The same for a fake kernel::

        @gauss.register_fake
        def _(x: co.FakeArray) -> co.FakeArray:
            return co.fake_like(x)

customop-autograd
    A backward formula does not take a gradient for each result, or returns a tuple that
    has not one for each input; `setup_context` has other parameters than it is given; the
    operator has no gradient, as one that writes its arguments::

        def backward(ctx: Any, grad: np.ndarray) -> Any:
            return (grad,)

        gauss.register_autograd(backward)

customop-vmap
    A batching rule does not take ``(info, in_dims, *inputs)``, or returns a tuple that is
    no pair::

        @gauss.register_vmap
        def _(info: Any, in_dims: Any, x: np.ndarray) -> Any:
            return gauss(x, 1.0), in_dims[0]

customop-jvp
    A forward-mode rule does not take ``(primals, tangents)`` and the keyword-only
    parameters, or returns a tuple that is no pair::

        @gauss.register_jvp
        def _(primals: Any, tangents: Any, width: float) -> Any:
            return primals[0], tangents[0]

customop-rule
    A rule of another kind does not take what its `RuleKind` says::

        inverse = co.RuleKind("inverse", takes="(out, *inputs)")

        @gauss.register(inverse)
        def _(x: np.ndarray, width: float) -> np.ndarray:
            return x

customop-duplicate
    Two operators of one name: in one module, in a module and one that it imports, or in
    two modules that a third one imports. The latter is said where they meet, in modules
    that call operators::

        co.custom_op("mylib::twice", as_it_is, mutates_args=())
        co.custom_op("mylib::twice", as_it_is, mutates_args=())

customop-mixed
    A call is given arrays of NumPy and of CuPy::

        def both(x: np.ndarray, y: cp.ndarray) -> None:
            add(x, y)

Types
-----
``co.ops.mylib.gauss(x, 1.0)``, ``co.ops.mylib.gauss.default`` and overloads have the
types of the operators that the module defines or, through any number of modules, imports.
``co.register_fake("mylib::gauss", fn)`` and the like give the operator of that name.
"""

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


# mypy trusts what it keeps on disk as long as this is the same: 70 files, 4 ms.
__version__ = _digest()


def plugin(version: str) -> type[Plugin]:
    """Give mypy the plugin.

    Parameters
    ----------
    version : str
        That of mypy, which makes no difference.

    Returns
    -------
    type
        The class that mypy makes it of.

    Examples
    --------
    >>> import customop.mypy
    >>> customop.mypy.plugin("2.0").__name__
    'CustomOpPlugin'
    """
    return CustomOpPlugin
