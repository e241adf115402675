"""Random operators under vmap."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

import numpy as np

from customop.arrays.bits import bits_of, has_bits
from customop.arrays.nested import flat, map_outline
from customop.core.interpreter import Interpreter, Mode, current_mode, next_level
from customop.core.kinds import VMAP
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.core.tracer import Tracer
from customop.errors import VmapError
from customop.transforms.generators import plain_generator

if TYPE_CHECKING:
    from customop.transforms.batch import BatchInterpreter
    from customop.transforms.generators import DrawWatch

__all__ = ["Draws", "RandomnessMode", "random_error"]


def random_error(op: RuleTable, interpreter: Interpreter) -> VmapError:
    """The error for a random operator where `randomness` does not allow one."""
    return op.error(
        VmapError,
        f" is random under {interpreter.describe()} with randomness='error'",
        interpreter.where(),
        do="vmap(f, randomness='same') or vmap(f, randomness='different')",
        kind="vmap",
    )


class RandomnessMode(Mode):
    """Handles random operators whose arguments are the same for all rows."""

    kind: ClassVar[RuleKind] = VMAP
    sees_all = False
    # Of the class, since most runs of vmap set none of these: that takes 200 ns.
    alive = True
    runs_plans = False
    # Arrays of transforms outside that were written for all rows at once.
    written: Sequence[ref[Tracer]] = ()
    # Looks for draws outside of random operators, if this run is watched.
    watch: DrawWatch | None = None

    def __init__(self, batch: BatchInterpreter) -> None:
        self.level: int = next_level()
        self.batch = batch
        self.outer: Mode | None = current_mode.get()

    def describe(self) -> str:
        """How messages name it: by the vmap it belongs to."""
        return self.batch.describe()

    def where(self) -> str:
        """The call of that vmap."""
        return self.batch.where()

    def see_write(self, box: Tracer) -> None:
        """Note a write to an array that may come from outside."""
        if box.interpreter.level < self.batch.level:
            self.written = [*self.written, ref(box)]

    def check_writes(self) -> None:
        """Raise if such an array is still there: it was not made inside."""
        if any(box() is not None for box in self.written):
            raise VmapError(
                "an array from outside is written in place inside"
                f" {self.describe()}, where each row would write it",
                do="return the value from the function, and write it outside",
            )

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run a random operator as `randomness` says."""
        args = [plain_generator(value) for value in args]
        if not op.sees_seed:
            return self._run(op, args)
        return self._unwatched(lambda: self._run(op, args))

    def draw_rows(self, draw: Callable[[], Any]) -> Any:
        """What a function draws for all rows along axis 0, seen only outside of them."""
        token = current_mode.set(self.outer)
        try:
            found = self._unwatched(draw)
        finally:
            current_mode.reset(token)
        return self.batch.wrap(found, 0)

    def _unwatched(self, draw: Callable[[], Any]) -> Any:
        """Draw so that the watch takes it for right."""
        if self.watch is None:
            return draw()
        self.watch.look()
        try:
            return draw()
        finally:
            self.watch.restart()

    def _run(self, op: RuleTable, args: Sequence[Any]) -> Any:
        batch = self.batch
        if not op.sees_seed or any(
            batch.dim_of(v) is not None for v in flat(list(args))
        ):
            return op.invoke(args)
        if batch.draws is not None:
            batch.draws.start(args)()
            return op.invoke(args)
        if batch.info.randomness == "error":
            raise random_error(op, batch)
        dims = [map_outline(value, lambda _: None) for value in args]
        return batch.loop(op, args, dims)


class Draws:
    """The random states at the start of each call, for ``randomness="same"``.

    Every row of a call starts from the state of the first row, and every chunk of a
    batch from the states of the first chunk. The state is that of the generators among
    the arguments; without generators it is NumPy's global one.
    """

    def __init__(self) -> None:
        self._states: list[Any] = []
        self._calls = 0

    def again(self) -> Draws:
        """The same states for another chunk, from the first call on."""
        self._calls = 0
        return self

    def start(self, values: Sequence[Any]) -> Callable[[], None]:
        """Note or look up the state of a call; return a function that restores it."""
        leaves = flat(list(values))
        bits = [bits_of(v) for v in leaves if has_bits(v)]
        if self._calls == len(self._states):
            self._states.append(_states(bits))
        states = self._states[self._calls]
        self._calls += 1

        def rewind() -> None:
            if not bits:
                np.random.set_state(states)  # noqa: NPY002  # operators may use it
            for bit, state in zip(bits, states, strict=False):
                bit.state = copy.deepcopy(state)

        return rewind


def _states(bits: Sequence[Any]) -> Any:
    if not bits:
        return np.random.get_state()  # noqa: NPY002  # operators may use it
    return [copy.deepcopy(bit.state) for bit in bits]
