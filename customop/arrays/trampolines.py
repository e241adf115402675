"""Copies of code objects in which calls, subscripts and writes go through hooks.

No instruction moves. One that is to be hooked becomes a jump to a stub behind the end of
the code, which does the work and jumps back. So jumps, lines and exception handlers stay
as they are, and the source is not needed.

A stub calls its hook by an operator, ``hook @ f`` or ``(a, b) @ hook``, since the
instructions that prepare a call differ from version to version: BUILD_TUPLE, LOAD_CONST,
BINARY_OP.
Source: the CPython sources of 3.11.7, 3.12.1 and 3.13.0, ``Objects/locations.md`` and
``Objects/exception_handling_notes.txt``.
"""

from __future__ import annotations

import dis
import opcode
import operator
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import CodeType
from typing import Any, Final

VERSION: Final = sys.version_info[:2]
# The versions whose bytecode is known here. On others code stays as it is.
IS_KNOWN: Final = (3, 11) <= VERSION <= (3, 13) and sys.implementation.name == "cpython"

_OPS = dis.opmap
_caches: Any = getattr(opcode, "_inline_cache_entries", {})
_MATMUL: Final = 4  # the argument of BINARY_OP
# Whether a call has its null above the function.
_NULL_AFTER: Final = VERSION >= (3, 13)
_HAS_METHOD_BIT: Final = VERSION >= (3, 12)  # LOAD_METHOD is LOAD_ATTR with a bit
# Two instructions in one, of 3.13.
_PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
}
_METHOD_LOADS = ("LOAD_METHOD", "LOAD_ATTR")
_LOADS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_FAST_CHECK")


class Hook:
    """A constant of a copy; stubs call its function."""

    __slots__ = ("fn",)
    __array_ufunc__ = None

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn: Callable[..., Any] = fn

    def __matmul__(self, arg: Any) -> Any:
        return self.fn(arg)

    def __rmatmul__(self, args: tuple[Any, ...]) -> Any:
        return self.fn(*args)


def is_hooked(code: CodeType) -> bool:
    """Return whether code is such a copy."""
    return code.co_consts[-1:] != () and isinstance(code.co_consts[-1], Hook)


def runs_put(code: CodeType, at: int) -> bool:
    """Return whether an instruction of a copy is a hook for ``c[key] = value``."""
    index = len(code.co_consts) + _PUT
    before = (code.co_code[at - 2], code.co_code[at - 1]) if at > 1 else None
    return is_hooked(code) and before == (_OPS["LOAD_CONST"], index & 255)


def hooked(
    code: CodeType,
    call: Hook,
    get: Hook,
    put: Hook,
    grow: Hook,
    kind: Callable[[str, str], str] = lambda name, attribute: "",
    own: frozenset[str] = frozenset(),
) -> CodeType:
    """Make a copy of code, and of the code of functions inside of it.

    Parameters
    ----------
    code : code
    call : Hook
        ``call(f)`` returns what is called in place of `f`.
    get : Hook
        ``get(c, key)`` returns ``c[key]``.
    put : Hook
        ``put(value, c, key)`` writes ``c[key] = value`` and returns the new value of the
        local variable that holds `c`.
    grow : Hook
        ``grow(c, value)`` returns `value` and what takes the place of `c` in
        ``c += value``, of a local variable and of each such operator. In
        ``a[key] += value`` it is ``grow(c, value, a)``, and `c` is ``a[key]``.
    kind : callable
        ``kind("np", "sin")`` says what ``np.sin`` is: "elementwise" or "numpy", functions
        of NumPy whose calls have a hook for lists only, so that they have none if the
        code shows that they get an array.
    own : frozenset of str
        The variables of functions outside of this one that may be given a new value,
        since those functions are copies, too.

    Returns
    -------
    code
        `code` itself for versions of Python that are not known.
    """
    if not IS_KNOWN or is_hooked(code):
        return code
    own = own.intersection(code.co_freevars).union(code.co_cellvars)
    consts = [
        hooked(c, call, get, put, grow, kind, own) if isinstance(c, CodeType) else c
        for c in code.co_consts
    ]
    return _Copy(code, [*consts, call, get, put, grow], kind, own).made()


class _Copy:
    """The parts of a copy while it is made."""

    def __init__(
        self,
        code: CodeType,
        consts: list[Any],
        kind: Callable[[str, str], str],
        own: frozenset[str],
    ) -> None:
        self.code = code
        self.own = own
        self.kind = kind
        self.consts = consts
        self.raw = bytearray(code.co_code)
        self.stubs = b""
        self.lines = b""
        self.handlers = b""
        self.redirected = 0  # the end of the last instruction that is a jump
        self.line: int = _last_line(code.co_linetable, code.co_firstlineno)
        parse: Any = getattr(dis, "_parse_exception_table")  # noqa: B009  # not in stubs
        self.entries: Any = parse(code)

    def made(self) -> CodeType:
        steps = [*dis.get_instructions(self.code)]
        callees = self._hooked_callees(steps)
        quiet = self._quiet_calls(steps)
        prefix = 0
        seen: list[dis.Instruction] = []
        for step in steps:
            if step.opname == "EXTENDED_ARG":
                prefix += 2
                continue
            start, size = step.offset - prefix, prefix + self._size_of(step)
            is_callee = step.offset in callees
            body = None
            if step.offset not in quiet:
                body = self._body(step, seen, is_callee=is_callee)
            if not prefix and (load := _local_callee(step, seen, callees)):
                start, size, body = seen[-1].offset, 4, self._called(load)
            elif step.opname in _SHORT and not step.is_jump_target:
                start, body = self._with_last(step, start, seen)
                size += step.offset - prefix - start
            seen.append(step)
            prefix = 0
            if body is not None and size >= 4:
                self._redirect(step, start, size, body)
                self.redirected = start + size
        return self.code.replace(
            co_code=bytes(self.raw) + self.stubs,
            co_consts=tuple(self.consts),
            co_stacksize=self.code.co_stacksize + 3,
            co_linetable=self.code.co_linetable + self.lines,
            co_exceptiontable=self.code.co_exceptiontable + self.handlers,
        )

    def _hooked_callees(self, steps: Sequence[dis.Instruction]) -> set[int]:
        """Return the offsets of the instructions that complete what is then called."""
        return _callees(steps)

    def _size_of(self, step: dis.Instruction) -> int:
        """Return the length of what a stub does in place of an instruction."""
        return 2 + 2 * _cache_of(step.opname)

    def _body(
        self,
        step: dis.Instruction,
        seen: Sequence[dis.Instruction],
        *,
        is_callee: bool,
    ) -> bytes | None:
        """Return the stub of an instruction, or None."""
        name, arg = step.opname, step.arg or 0
        call = self._call()
        if name == "LOAD_GLOBAL" and arg & 1:
            return self._called(step) if is_callee else None
        if name == "LOAD_METHOD" or _is_method(step):
            load = "LOAD_ATTR" if name == "LOAD_METHOD" else name
            index = arg & ~1 if _HAS_METHOD_BIT else arg
            body = _unit(load, index) + call + _unit("PUSH_NULL")
            return body if _NULL_AFTER else body + _unit("SWAP", 2)
        if name == "BINARY_SUBSCR" and not _is_constant(step, seen):
            return self._hook(2, _GOT) + (call if is_callee else b"")
        if name == "STORE_SUBSCR" and (store := self._store_of_local(seen, 1)):
            return self._hook(3, _PUT) + store
        if name == "BINARY_OP" and step.argrepr.endswith("="):
            return self._grown(step, seen)
        return _unit(name, arg) + call if is_callee and name in _COMPUTED else None

    def _quiet_calls(self, steps: Sequence[dis.Instruction]) -> set[int]:
        """Return the offsets of the loads of functions that are seen to get no list."""
        found: set[int] = set()
        for i, (module, load) in enumerate(pairwise(steps)):
            if module.opname != "LOAD_GLOBAL" or load.opname not in _METHOD_LOADS:
                continue
            kind = self.kind(module.argval, load.argval)
            given = _arguments(steps[i + 2 :]) if kind else []
            lists = [step for step in given if "LIST" in step.opname]
            if given and not lists and (kind == "elementwise" or _is_sum(given)):
                found.add(load.offset)
        return found

    def _with_last(
        self, step: dis.Instruction, start: int, seen: Sequence[dis.Instruction]
    ) -> tuple[int, bytes | None]:
        """Return start and stub of an instruction, with the one before it.

        By itself it is too short for a jump.
        """
        last = seen[-1]
        at = last.offset
        is_plain = last.opcode not in dis.hasjrel and not last.is_jump_target
        body = self._short_body(step, seen)
        if (
            body is None
            or not is_plain
            or at < self.redirected
            or (last.arg or 0) > 255
        ):
            return start, None
        return at, bytes(self.raw[at:start]) + body

    def _short_body(
        self, step: dis.Instruction, seen: Sequence[dis.Instruction]
    ) -> bytes | None:
        """Return the stub of such an instruction, without the one before it."""
        store = self._store_of_local(seen, 2) if step.opname == "STORE_SLICE" else None
        if store is None:
            return None
        return _unit("BUILD_SLICE", 2) + self._hook(3, _PUT) + store

    def _grown(
        self, step: dis.Instruction, seen: Sequence[dis.Instruction]
    ) -> bytes | None:
        """Return the stub of ``c += value``, if `c` is a local variable or an item."""
        found = place_under(seen, 1)
        if found is None:
            return None
        below = seen[found[0]]
        height = {"BINARY_SUBSCR": 4, "BINARY_SLICE": 5}.get(below.opname)
        if height is not None and seen[found[0] - 1].opname == "COPY":
            hook = _unit("COPY", height) + self._hook(3, _GROWN)
        elif self._store_like(below, is_first=found[1]):
            hook = self._hook(2, _GROWN)
        else:
            return None
        return hook + _unit("UNPACK_SEQUENCE", 2) + _unit("BINARY_OP", step.arg or 0)

    def _store_of_local(
        self, seen: Sequence[dis.Instruction], keys: int
    ) -> bytes | None:
        """Return the instruction that stores the container of ``container[key] = value``.

        None if the container is not a local variable, or the key has jumps inside. A slice
        is two keys.
        """
        if keys < len(seen) and seen[-1].opname == "SWAP":  # container[key] += value
            sum_ = seen[-1 - keys - 1]
            found = (
                place_under(seen[: -1 - keys - 1], 1)
                if sum_.opname == "BINARY_OP"
                else None
            )
            if found is None or found[0] <= keys or seen[found[0] - 1].opname != "COPY":
                return None
            seen = seen[: found[0] - 1 - keys]
        under = place_under(seen, keys)
        return (
            None
            if under is None
            else self._store_like(seen[under[0]], is_first=under[1])
        )

    def _store_like(self, load: dis.Instruction, *, is_first: bool) -> bytes | None:
        """Return the instruction that stores the local variable that another one loads.

        None for a variable of a function outside, which others see.
        """
        arg = load.arg or 0
        if load.opname == "LOAD_FAST_LOAD_FAST":
            return _unit("STORE_FAST", arg >> 4 if is_first else arg & 15)
        if load.opname == "STORE_FAST_LOAD_FAST":
            return _unit("STORE_FAST", arg & 15)
        is_cell = load.opname == "LOAD_DEREF"
        if load.opname not in _LOADS or (is_cell and load.argval not in self.own):
            return None
        return _unit("STORE_DEREF" if is_cell else "STORE_FAST", arg)

    def _called(self, load: dis.Instruction) -> bytes:
        """Return the stub of a call of a name, which loads the null of the call, too."""
        arg = load.arg or 0
        if load.opname in _PAIRS:
            first, second = _PAIRS[load.opname]
            body = _unit(first, arg >> 4) + _unit(second, arg & 15)
        else:
            is_global = load.opname == "LOAD_GLOBAL"
            body = _unit(load.opname, arg & ~1 if is_global else arg)
        body += self._call()
        null = _unit("PUSH_NULL")
        return body + null if _NULL_AFTER else null + body

    def _call(self) -> bytes:
        index = len(self.consts) + _CALLED
        operator = _unit("SWAP", 2) + _unit("BINARY_OP", _MATMUL)
        return _unit("LOAD_CONST", index) + operator

    def _hook(self, count: int, which: int) -> bytes:
        index = len(self.consts) + which
        return (
            _unit("BUILD_TUPLE", count)
            + _unit("LOAD_CONST", index)
            + _unit("BINARY_OP", _MATMUL)
        )

    def _redirect(
        self, step: dis.Instruction, start: int, size: int, body: bytes
    ) -> None:
        """Let an instruction jump to a stub, which jumps back behind it."""
        at = len(self.raw) + len(self.stubs)
        there = (at - (start + 4)) // 2
        back = _jump_size(_BACK)
        here = (at + len(body) + back - (start + size)) // 2
        if max(there, here) > _FARTHEST:
            return
        nothing = bytes([_OPS["NOP"], 0]) * ((size - 4) // 2)
        self.raw[start : start + size] = _jump("JUMP_FORWARD", there) + nothing
        body += _jump(_BACK, here)
        self.stubs += body
        self._locate(step, len(body) // 2)
        for entry in self.entries:
            if entry.start <= step.offset < entry.end:
                self.handlers += (
                    _exception_number(at // 2, is_first=True)
                    + _exception_number(len(body) // 2)
                    + _exception_number(entry.target // 2)
                    + _exception_number(entry.depth << 1 | entry.lasti)
                )

    def _locate(self, step: dis.Instruction, count: int) -> None:
        """Give a stub the place of its instruction in the source."""
        place = step.positions
        while count:
            units = min(count, 8)
            count -= units
            if place is None or None in place:
                self.lines += bytes([128 | _NO_PLACE << 3 | units - 1])
                continue
            line, end_line, column, end = place
            assert line is not None
            assert end_line is not None
            assert column is not None
            assert end is not None
            self.lines += bytes([128 | _LONG_PLACE << 3 | units - 1])
            self.lines += _signed(line - self.line) + _number(end_line - line)
            self.lines += _number(column + 1) + _number(end + 1)
            self.line = line


# ---- copies that tell what they store into ----


class Noted:
    """The last constant of a copy that tells what it stores into: the code itself."""

    __slots__ = ("code",)

    def __init__(self, code: CodeType) -> None:
        self.code: CodeType = code


def without_notes(code: CodeType) -> CodeType:
    """Return the code that such a copy is made of; other code as it is."""
    last = code.co_consts[-1] if code.co_consts else None
    return last.code if type(last) is Noted else code


def noting(code: CodeType, note: Hook, ask: Hook) -> CodeType:
    """Make a copy of code, and of functions inside of it, that tells what it stores into.

    Parameters
    ----------
    code : code
    note : Hook
        ``note((c, key))`` comes before ``c[key] = value`` and before methods of arrays that
        write them, and ``note((c, key, *values))`` before ``c += value`` and calls with
        ``out=c``, with all that goes into it. The key is None if that is not known.
    ask : Hook
        ``ask((value, classes))`` comes before ``isinstance(value, classes)`` in code that
        names `ndarray`.

    Returns
    -------
    code
        `code` itself if it does neither, or for versions of Python that are not known.
    """
    if not IS_KNOWN or without_notes(code) is not code or is_hooked(code):
        return code
    consts = [
        noting(c, note, ask) if isinstance(c, CodeType) else c for c in code.co_consts
    ]
    is_same = all(map(operator.is_, consts, code.co_consts))
    if is_same and not (_may_store(code) or asks_class(code)):
        return code
    return _NotingCopy(code, [*consts, note, ask, ..., None]).made()


def asks_class(code: CodeType) -> bool:
    """Return whether code itself may ask whether a value is an array."""
    return "isinstance" in code.co_names and "ndarray" in code.co_names


def _may_store(code: CodeType) -> bool:
    """Return whether code itself has instructions that may write an array."""
    steps = zip(code.co_code[::2], code.co_code[1::2], strict=True)
    return (
        any(
            op in _STORING or (op == _OPERATOR and arg in _IN_PLACE)
            for op, arg in steps
        )
        or not _NAMED_WRITERS.isdisjoint(code.co_names)
        or any(isinstance(c, tuple) and "out" in c for c in code.co_consts)
    )


# The places of the hooks among the constants, from the end.
_NOTED: Final = -4
_ASKED: Final = -3


class _NotingCopy(_Copy):
    """The parts of a copy that tells what it stores into, while it is made."""

    def __init__(self, code: CodeType, consts: list[Any]) -> None:
        super().__init__(code, consts, lambda name, attribute: "", frozenset())
        self._most = 3
        self._asks: bool = asks_class(code)

    def made(self) -> CodeType:
        copy = super().made()
        return copy.replace(
            co_consts=(*copy.co_consts, Noted(self.code)),
            co_stacksize=self.code.co_stacksize + self._most,
        )

    def _hooked_callees(self, steps: Sequence[dis.Instruction]) -> set[int]:
        return set()

    def _size_of(self, step: dis.Instruction) -> int:
        size = super()._size_of(step)
        # In 3.11 one that is specialized goes on behind the call.
        is_first = step.opname == "PRECALL"
        return size + 2 + 2 * _cache_of("CALL") if is_first else size

    def _body(
        self,
        step: dis.Instruction,
        seen: Sequence[dis.Instruction],
        *,
        is_callee: bool,
    ) -> bytes | None:
        name, arg = step.opname, step.arg or 0
        if name == "STORE_SUBSCR":
            return _unit("COPY", 2) * 2 + self._note(2) + _unit(name)
        if name == "BINARY_OP" and step.argrepr.endswith("="):
            return self._noted(2, 2) + _unit(name, arg)
        if name in _METHOD_LOADS and step.argval in _METHODS:
            is_whole = step.argval == "fill"
            return self._noted(1, 0, is_whole=is_whole) + _unit(name, arg)
        if name in ("PRECALL", "CALL") and (name == "PRECALL") is not _HAS_METHOD_BIT:
            call = _unit("CALL", arg) if name == "PRECALL" else b""
            noted = self._noted_argument(arg, seen, ()) if arg < 256 else None
            return noted and noted + _unit(name, arg) + call
        return None

    def _short_body(
        self, step: dis.Instruction, seen: Sequence[dis.Instruction]
    ) -> bytes | None:
        if step.opname == "STORE_SLICE":
            copies = _unit("COPY", 3) * 3 + _unit("BUILD_SLICE", 2)
            return copies + self._note(2) + _unit("STORE_SLICE")
        names = seen[-1].argval if seen[-1].opname == "LOAD_CONST" else None
        if not isinstance(names, tuple):
            return None
        count = step.arg or 0
        noted = self._noted_argument(count, seen[:-1], names, above=1)
        return noted and noted + _unit("CALL_KW", count)

    def _noted_argument(
        self,
        count: int,
        seen: Sequence[dis.Instruction],
        names: tuple[str, ...],
        above: int = 0,
    ) -> bytes | None:
        """Return the steps that tell of the argument that a call writes, or None."""
        if seen and seen[-1].opname == "KW_NAMES":
            names, seen = self.code.co_consts[seen[-1].arg or 0], seen[:-1]
        is_whole = "where" not in names
        if "out" in names:
            place = len(names) - names.index("out")
            return self._noted(place, count, above, is_whole=is_whole)
        found = place_under(seen, count + above) if count > len(names) else None
        at = 0 if found is None else found[0] - (seen[found[0]].opname == "PUSH_NULL")
        name = seen[at].argval
        if name == "isinstance" and self._asks and count == 2:
            return _unit("COPY", 2) * 2 + self._note(2, _ASKED)
        if name not in _FUNCTIONS:
            return None
        is_whole = is_whole and name == "copyto" and count < 4
        return self._noted(count, count, above, is_whole=is_whole)

    def _noted(
        self, place: int, count: int, above: int = 0, *, is_whole: bool = False
    ) -> bytes:
        """Return the steps that tell of the value that lies so deep, and of `count` values.

        Both are counted below `above` others.
        """
        self._most = max(self._most, count + 2)
        key = _unit("LOAD_CONST", len(self.consts) - (2 if is_whole else 1))
        values = _unit("COPY", count + 2 + above) * count
        return _unit("COPY", place + above) + key + values + self._note(count + 2)

    def _note(self, count: int, which: int = _NOTED) -> bytes:
        hook = _unit("LOAD_CONST", len(self.consts) + which) + _unit("SWAP", 2)
        tuple_ = _unit("BUILD_TUPLE", count)
        return tuple_ + hook + _unit("BINARY_OP", _MATMUL) + _unit("POP_TOP")


# Instructions too short for a jump.
_SHORT: Final = ("STORE_SLICE", "CALL_KW")
_STORING: Final = {
    _OPS[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in _OPS
}
_OPERATOR: Final = _OPS["BINARY_OP"]
_IN_PLACE: Final = range(13, 26)  # its arguments for ``c += value`` and the like
# Methods that write their array, and functions that write their first argument.
_METHODS: Final = ("fill", "sort", "partition", "put", "__setitem__")
_FUNCTIONS: Final = ("copyto", "putmask", "put_along_axis", "fill_diagonal")
_NAMED_WRITERS: Final = frozenset((*_METHODS, *_FUNCTIONS))

# ---- the places of constants, and kinds of instructions ----

# The places of the hooks among the constants, from the end.
_CALLED: Final = -4
_GOT: Final = -3
_PUT: Final = -2
_GROWN: Final = -1
# Kinds of entries in tables of places.
_NO_PLACE: Final = 15
_LONG_PLACE: Final = 14
# From 3.12 on, debuggers take this jump for no new turn of a loop.
_BACK: Final = "JUMP_BACKWARD_NO_INTERRUPT"
# A jump has one extended argument.
_FARTHEST: Final = 0xFFFF


# Instructions that may compute what is then called.
_COMPUTED: Final = ("LOAD_ATTR", "LOAD_GLOBAL", "CALL", "BINARY_SUBSCR")


# ---- which instructions are calls ----
# A call takes a null, what is called, and the arguments. Up to 3.12 the null is pushed
# before anything else: that of ``functions[i](x)`` stands before the load of the list.


def _callees(steps: Sequence[dis.Instruction]) -> set[int]:
    """Return the offsets of the instructions that complete what is then called."""
    found = set()
    for i, step in enumerate(steps):
        is_global = step.opname == "LOAD_GLOBAL" and (step.arg or 0) & 1 == 1
        if not is_global and step.opname != "PUSH_NULL":
            continue
        if _NULL_AFTER:
            last: dis.Instruction | None = step if is_global else steps[i - 1]
        else:
            # LOAD_GLOBAL pushes the null, too.
            last = _callee_after(steps[i + (not is_global) :], -1 if is_global else 0)
        found |= {last.offset} if last is not None else set()
    return found


def _callee_after(
    steps: Sequence[dis.Instruction], start: int
) -> dis.Instruction | None:
    """Return the instruction that completes the callee whose null is below it.

    It is the last one that leaves one value, before the call takes that.
    """
    height: int | None = start
    found = None
    heights: dict[int, int] = {}
    for step in steps:
        height = heights.get(step.offset, height)
        if height is None:
            return None
        if step.opcode in dis.hasjrel:
            heights.setdefault(step.argval, height + _effect(step, is_jump=True))
        height += _effect(step)
        if step.opname == "PRECALL":  # 3.11 takes the arguments away in two steps
            continue
        if height < 1 and found is not None:
            return found
        if height == 1 and step.opcode not in dis.hasjrel:
            found = step
        if step.opname.startswith(("JUMP_FORWARD", "RETURN", "RAISE", "RERAISE")):
            height = None
    return None


def _local_callee(
    step: dis.Instruction, seen: Sequence[dis.Instruction], callees: set[int]
) -> dis.Instruction | None:
    """Return the load of a local function, if its null stands directly beside it."""
    if not seen or step.is_jump_target or seen[-1].offset + 2 != step.offset:
        return None
    null, load = (step, seen[-1]) if _NULL_AFTER else (seen[-1], step)
    is_load = load.opname in (*_LOADS, *_PAIRS) and load.offset in callees
    return load if is_load and null.opname == "PUSH_NULL" else None


def _is_constant(step: dis.Instruction, seen: Sequence[dis.Instruction]) -> bool:
    """Return whether the key of a subscript is a constant."""
    return not step.is_jump_target and seen[-1].opname == "LOAD_CONST"


def _is_method(step: dis.Instruction) -> bool:
    """Return whether an attribute is loaded as a method to call, with its null."""
    is_attribute = step.opname in ("LOAD_ATTR", "LOAD_SUPER_ATTR")
    return is_attribute and _HAS_METHOD_BIT and (step.arg or 0) & 1 == 1


def _arguments(steps: Sequence[dis.Instruction]) -> Sequence[dis.Instruction]:
    """Return the instructions of the arguments of a call, if they are plain to see."""
    if _NULL_AFTER and steps and steps[0].opname == "PUSH_NULL":
        steps = steps[1:]
    height = 0
    for i, step in enumerate(steps):
        if step.opcode in dis.hasjrel or step.is_jump_target:
            return ()
        if step.opname in ("PRECALL", "CALL") and height == (step.arg or 0):
            return steps[:i]
        if step.opname.startswith(("CALL_", "RETURN", "RAISE")):
            return ()
        height += _effect(step)
    return ()


def _is_sum(given: Sequence[dis.Instruction]) -> bool:
    """Return whether arguments are a single one, the result of an operator."""
    return given[-1].opname == "BINARY_OP"


def _effect(step: dis.Instruction, *, is_jump: bool = False) -> int:
    """Return by how much an instruction changes the height of the stack."""
    has_arg = step.opcode >= dis.HAVE_ARGUMENT
    return dis.stack_effect(step.opcode, step.arg if has_arg else None, jump=is_jump)


def place_under(seen: Sequence[dis.Instruction], count: int) -> tuple[int, bool] | None:
    """Return the place of the instruction of the value below the topmost ones.

    And whether it is the first of the two values of that instruction. None if the
    topmost values have jumps inside.
    """
    height = 0
    for j in range(len(seen) - 1, 0, -1):
        step = seen[j]
        if step.is_jump_target or step.opcode in dis.hasjrel:
            return None
        if step.opname.startswith(("SWAP", "COPY", "RAISE", "RETURN")):
            return None
        height -= _effect(step)
        if height == -count - 1 and step.opname == "LOAD_FAST_LOAD_FAST":
            return j, True
        if height < -count:
            return None
        if height == -count:
            return j - 1, False
    return None


# ---- bytes ----


def _cache_of(name: str) -> int:
    """Return the number of cache units that follow an instruction."""
    found: int = (
        _caches.get(name, 0) if isinstance(_caches, dict) else _caches[_OPS[name]]
    )
    return found


def _unit(name: str, arg: int = 0) -> bytes:
    prefix = bytes([_OPS["EXTENDED_ARG"], arg >> 8]) if arg > 255 else b""
    return prefix + bytes([_OPS[name], arg & 255]) + bytes(2 * _cache_of(name))


def _jump(name: str, arg: int) -> bytes:
    """Write a jump, always of the same length."""
    prefix = bytes([_OPS["EXTENDED_ARG"], arg >> 8])
    return prefix + bytes([_OPS[name], arg & 255]) + bytes(2 * _cache_of(name))


def _jump_size(name: str) -> int:
    return 4 + 2 * _cache_of(name)


def _number(value: int) -> bytes:
    """Write a number for the table of places, the lowest six bits first."""
    found = []
    while value >= 64:
        found.append(64 | value & 63)
        value >>= 6
    return bytes([*found, value])


def _signed(value: int) -> bytes:
    return _number((-value << 1) | 1 if value < 0 else value << 1)


def _exception_number(value: int, *, is_first: bool = False) -> bytes:
    """Write a number for the table of handlers, the highest six bits first."""
    parts = [value & 63]
    while value >= 64:
        value >>= 6
        parts.append(value & 63)
    parts.reverse()
    found = [part | 64 for part in parts[:-1]] + [parts[-1]]
    found[0] |= 128 if is_first else 0
    return bytes(found)


def _last_line(table: bytes, line: int) -> int:
    """Return the line that the last entry of a table of places counts from."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            part = table[at]
            at += 1
            value |= (part & 63) << shift
            shift += 6
            if not part & 64:
                return value

    while at < len(table):
        kind = table[at] >> 3 & 15
        at += 1
        if kind in (13, _LONG_PLACE):
            moved = number()
            line += -(moved >> 1) if moved & 1 else moved >> 1
            for _ in range(3 if kind == _LONG_PLACE else 0):
                number()
        elif kind in (10, 11, 12):
            line += kind - 10
            at += 2
        elif kind != _NO_PLACE:
            at += 1
    return line
