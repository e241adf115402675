"""What the parameters and results of an operator say of its calls."""

from __future__ import annotations

from customop.frozen import Frozen, cached
from customop.schema.parameters import KEYWORD_ONLY, MISSING, Parameter, Return
from customop.schema.types import (
    DEVICE,
    GENERATOR,
    ListOf,
    holds_arrays,
    is_array_type,
    is_single_array,
    parts,
)

__all__ = ["Facts"]


class Facts(Frozen):
    """The parameters and results of an operator, and what follows from them.

    Each fact is worked out when it is first asked for.

    Attributes
    ----------
    parameters : tuple of Parameter
    returns : tuple of Return
    is_tuple : bool
    """

    parameters: tuple[Parameter, ...]
    returns: tuple[Return, ...]
    is_tuple: bool = False

    def __init__(
        self,
        parameters: tuple[Parameter, ...],
        returns: tuple[Return, ...],
        is_tuple: bool = False,
    ) -> None:
        super().__init__(parameters, returns, is_tuple)

    @cached
    def positional(self) -> tuple[Parameter, ...]:
        """Parameters that can be passed by position."""
        return tuple(p for p in self.parameters if p.kind != KEYWORD_ONLY)

    @cached
    def keyword_only(self) -> tuple[Parameter, ...]:
        """Parameters that can only be passed by name."""
        return tuple(p for p in self.parameters if p.kind == KEYWORD_ONLY)

    @cached
    def array_slots(self) -> tuple[int, ...]:
        """Positions of the parameters that are one array each."""
        return tuple(
            i for i, p in enumerate(self.parameters) if is_single_array(p.type)
        )

    @cached
    def nested_slots(self) -> tuple[int, ...]:
        """Positions of the parameters with arrays inside lists, dicts or objects."""
        return tuple(
            i
            for i, p in enumerate(self.parameters)
            if holds_arrays(p.type) and not is_single_array(p.type)
        )

    @cached
    def written(self) -> tuple[str, ...]:
        """Names of the parameters that the operator writes."""
        return tuple(p.name for p in self.parameters if p.is_written)

    @cached
    def single_return(self) -> bool:
        """Whether the result is one array."""
        return (
            len(self.returns) == 1
            and not self.is_tuple
            and is_array_type(self.returns[0].type)
        )

    @cached
    def device_slot(self) -> int | None:
        """Position of the parameter that names the device, if there is one."""
        for i, p in enumerate(self.parameters):
            if DEVICE in (p.type, getattr(p.type, "item", None)) and p.name == "device":
                return i
        return None

    @cached
    def is_plain(self) -> bool:
        """Whether a call is arrays in, one array out: most calls of most programs."""
        return (
            self.single_return
            and not self.nested_slots
            and not self.written
            and not self.keyword_only
        )

    @cached
    def is_unary(self) -> bool:
        """Whether its only array comes first, all else having defaults."""
        return self.array_slots == (0,) and all(
            p.default is not MISSING for p in self.parameters[1:]
        )

    @cached
    def is_factory(self) -> bool:
        """Whether it makes arrays on the device that a parameter names."""
        return self.device_slot is not None and not any(
            is_array_type(part) for p in self.parameters for part in parts(p.type)
        )

    @cached
    def has_generator(self) -> bool:
        """Whether a parameter takes a random generator."""
        return any(GENERATOR in parts(p.type) for p in self.parameters)

    @cached
    def list_slot(self) -> int:
        """Position of the list that has all arrays of a call with one result; -1 for none."""
        if self.array_slots or not self.single_return or self.keyword_only:
            return -1
        if len(self.nested_slots) != 1 or self.written:
            return -1
        (slot,) = self.nested_slots
        declared = self.parameters[slot].type
        if not isinstance(declared, ListOf) or declared.is_tuple:
            return -1
        return slot if is_array_type(declared.item) else -1

    @cached
    def view_slot(self) -> int:
        """Position of the array that results are views of; -1 if they are fresh."""
        for r in self.returns:
            if r.alias is not None and not r.alias.is_write:
                for slot in self.array_slots:
                    alias = self.parameters[slot].alias
                    if alias is not None and alias.name == r.alias.name:
                        return slot
        return -1

    @cached
    def keyword_names(self) -> tuple[str, ...]:
        """Names of the parameters that can only be passed by name."""
        return tuple(p.name for p in self.keyword_only)
