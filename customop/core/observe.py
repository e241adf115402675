"""Observers: objects that see each kernel, rule and formula that operators run.

A call on the fast path never looks for observers. It looks whether `open_modes` is empty,
and an open observer is in that list too. On the slow path `dispatch` and reverse mode pass
what they are about to run through `observed`, again only where a list is not empty. So an
observer costs nothing while it is closed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from customop.core.table import RuleTable, changing, finalized
from customop.errors import RegistrationError, runs_kernels

if TYPE_CHECKING:
    from customop.core.interpreter import Interpreter


# Modes and observers that are open anywhere in the process. The fast path of a call only
# reads whether this list is empty.
open_modes: list[Any] = []
# The observers among them.
observers: list[Observer] = []

# The observers that see all threads. Replaced as a whole.
_everywhere: tuple[Observer, ...] = ()
# Those that this thread or task has opened. A context that was copied may hold closed
# ones. No token of the variable is kept, so that observers can close in any order.
_here: ContextVar[tuple[Observer, ...]] = ContextVar("customop_observers", default=())


class Observer(ABC):
    """An object that sees each kernel, rule and formula that operators run while it is open.

    It is opened and closed by a ``with`` block, as often as you like. It sees what runs
    in the thread or task that opened it, and in tasks started from there. Observers may
    overlap, and close in any order.

    Each `enter` is followed by one `leave` or `fail` in the same thread, with what runs
    inside of it in between. None of the three may raise.

    Parameters
    ----------
    threads : bool
        Whether it sees what runs in all threads of the process.

    Attributes
    ----------
    is_open : bool
        Whether it sees anything now.
    threads : bool
        As given.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> class Names(co.Observer):
    ...     def enter(self, op, by, fn, args):
    ...         print(by if isinstance(by, str) else by.describe(), "of", op.qualname)
    >>> with Names():
    ...     y = np.sin(co.FakeArray((3,)))
    kernel of np::sin
    """

    def __init__(self, *, threads: bool = False) -> None:
        self.is_open: bool = False
        self.threads: bool = threads

    @abstractmethod
    def enter(
        self,
        op: RuleTable,
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
    ) -> Any:
        """Note that something begins.

        Parameters
        ----------
        op : Operator
            The operator that is called, or whose gradient is computed.
        by : str or Interpreter
            ``"kernel"``, ``"setup_context"``, ``"backward"``, or the transform or mode
            that handles the call.
        fn : callable
            The kernel, setup function or formula; for a transform or mode the method
            that handles the call, or the body of a composite operator.
        args : sequence
            Values of all parameters of the operator; for a setup function the inputs
            and the output, for a backward formula the gradients.

        Returns
        -------
        object
            Anything; `leave` or `fail` gets it back.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> class Shapes(co.Observer):
        ...     def enter(self, op, by, fn, args):
        ...         if by == "kernel":
        ...             print(op.qualname, [np.shape(value) for value in args])
        >>> with Shapes():
        ...     y = co.ops.np.outer(np.ones(2), np.ones(3))
        np::outer [(2,), (3,)]
        """

    def leave(self, entered: Any, out: Any) -> None:  # noqa: B027  # not all need it
        """Note that it has returned.

        Parameters
        ----------
        entered : object
            The value that `enter` returned.
        out : object
            The result; of a backward formula the gradients as it returned them.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> class Results(co.Observer):
        ...     def enter(self, op, by, fn, args):
        ...         return op.qualname
        ...     def leave(self, entered, out):
        ...         print(entered, "returned", out)
        >>> with Results():
        ...     y = co.ops.np.add(np.ones(2), 1.0)
        np::add returned [2. 2.]
        """

    def fail(  # noqa: B027  # not all need it
        self, entered: Any, error: BaseException, *, again: bool
    ) -> None:
        """Note that it has raised.

        Parameters
        ----------
        entered : object
            The value that `enter` returned.
        error : BaseException
            The error, which goes on to the caller.
        again : bool
            Whether it will run once more: a kernel that refuses the read-only arrays of
            its proof gets copies.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> class Errors(co.Observer):
        ...     def enter(self, op, by, fn, args):
        ...         return op.qualname
        ...     def fail(self, entered, error, *, again):
        ...         print(entered, "raised", type(error).__name__)
        >>> with Errors():
        ...     try:
        ...         co.ops.np.add(np.ones(2), np.ones(3))
        ...     except ValueError:
        ...         pass
        np::add raised ValueError
        """

    def around(
        self,
        op: RuleTable,
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
        proof: Any,
        run: Callable[..., Any],
    ) -> Callable[..., Any]:
        """Return a function that runs `run` and shows it to the observer."""
        return partial(_run, self, op, by, fn, args, proof, run)

    def __enter__(self) -> Self:
        with finalized, changing:
            if self.is_open:
                raise RegistrationError(
                    f"{type(self).__name__} is opened a second time",
                    do="make a new one for the inner block",
                )
            self.is_open = True
            observers.append(self)
            _note_change()
            open_modes.append(self)
        if not self.threads:
            _here.set((*_others(self), self))
        return self

    def __exit__(self, *exc: object) -> None:
        with finalized, changing:
            if not self.is_open:
                raise RegistrationError(
                    f"{type(self).__name__} is closed, and was not open",
                    do="open it by a with block",
                )
            self.is_open = False
            open_modes.remove(self)
            observers.remove(self)
            _note_change()
        _here.set(_others(self))


def _note_change() -> None:
    global _everywhere  # noqa: PLW0603  # of the process, as open modes are
    _everywhere = tuple(o for o in observers if o.threads)


def _others(observer: Observer) -> tuple[Observer, ...]:
    """Return the open observers of this thread or task without one of them."""
    return tuple(o for o in _here.get() if o is not observer and o.is_open)


def current_observers() -> Sequence[Observer]:
    """Return the open observers that see this thread or task."""
    found = _here.get()
    if _everywhere:
        found = (*found, *_everywhere)
    for observer in found:
        if not observer.is_open:
            return [o for o in found if o.is_open]
    return found


def observed(
    op: RuleTable,
    by: str | Interpreter,
    fn: Callable[..., Any],
    args: Sequence[Any],
    proof: Any = None,
) -> Callable[..., Any]:
    """Return a function that runs `fn` and shows it to the observers of this thread.

    Without observers that is `fn` itself. The `proof` of a kernel says after which errors the
    kernel is called again.
    """
    found = _here.get()
    if len(found) == 1 and not _everywhere:  # as below, in half of the time
        (observer,) = found
        return observer.around(op, by, fn, args, proof, fn) if observer.is_open else fn
    run = fn
    for observer in current_observers()[::-1]:  # the first one sees what others add
        run = observer.around(op, by, fn, args, proof, run)
    return run


@runs_kernels
def _run(
    observer: Observer,
    op: RuleTable,
    by: str | Interpreter,
    fn: Callable[..., Any],
    shown: Sequence[Any],
    proof: Any,
    run: Callable[..., Any],
    /,
    *args: Any,
    **keywords: Any,
) -> Any:
    entered = observer.enter(op, by, fn, shown)
    try:
        out = run(*args, **keywords)
    except BaseException as error:
        again = proof is not None and proof.retries(error)
        observer.fail(entered, error, again=again)
        # Hide this frame: a traceback is the same as without observers.
        trace = error.__traceback__
        error.__traceback__ = None if trace is None else trace.tb_next
        raise
    observer.leave(entered, out)
    return out
