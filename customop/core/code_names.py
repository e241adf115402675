"""The names that code uses, and the methods that it calls without naming them."""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from functools import cache
from types import CodeType
from typing import Any, NamedTuple

# ---- the names in code ----


class CodeNames(NamedTuple):
    """The names in a code object and in those inside it.

    Attributes
    ----------
    globals, attributes, modules : frozenset of str
    asked : frozenset of str
        Attributes that it names by texts, so that they may be missing.
    takes_any : bool
        Whether it names attributes by texts.
    catches : bool
        Whether it catches errors, so that any attribute may be missing.
    computes_names : bool
        Whether it computes texts that name attributes.
    special : frozenset of str
        Special methods that it calls, of those that code seldom calls.
    unbounded : frozenset of str
        Names of what may read anything, such as `eval`.
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    modules: frozenset[str]
    asked: frozenset[str]
    takes_any: bool
    catches: bool
    computes_names: bool = False
    special: frozenset[str] = frozenset()
    unbounded: frozenset[str] = frozenset()


@cache
def names_in(code: CodeType) -> CodeNames:
    """Return the names in a code object and in those inside it."""
    names: set[str] = set()
    attributes: set[str] = set()
    modules: set[str] = set()
    computed: set[str] = set()
    steps = [*dis.get_instructions(code)]
    for i, step in enumerate(steps):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(step.argval)
        elif step.opname in _ATTRIBUTES:
            attributes.add(step.argval)
        elif step.opname == "IMPORT_NAME":
            modules.add(step.argval)
        if step.argval in _WITH_CONSTANTS and not _names_constant(steps, i):
            computed.add(step.argval)
    opnames = {step.opname for step in steps}
    constants = [v for v in code.co_consts if isinstance(v, tuple)]
    texts = {v for v in code.co_consts if isinstance(v, str)}
    asked: set[str] = set()
    named = names | attributes
    if "MATCH_CLASS" in opnames:
        named.add("MATCH_CLASS")
        attributes.add("__match_args__")
        texts.update(v for names in constants for v in names if isinstance(v, str))
    takes_any = not BY_TEXT.isdisjoint(named)
    if takes_any:
        asked = {*filter(str.isidentifier, texts)}
    if "globals" in names:
        names |= {*filter(str.isidentifier, texts)}
    if not _MODULES_BY_TEXT.isdisjoint(named):
        modules |= texts
    is_named = not _CAUGHT.isdisjoint(names)
    is_bare = "PUSH_EXC_INFO" in opnames and opnames.isdisjoint(_NAMED)
    unbounded = (_UNBOUNDED & named) | ({"globals"} & computed)
    special = {v for name in named | opnames for v in _CALLERS.get(name, ())}
    parts = [names_in(v) for v in code.co_consts if isinstance(v, CodeType)]
    return CodeNames(
        frozenset(names.union(*(part.globals for part in parts))),
        frozenset((attributes | asked).union(*(part.attributes for part in parts))),
        frozenset(modules.union(*(part.modules for part in parts))),
        frozenset(asked.union(*(part.asked for part in parts))),
        takes_any or any(part.takes_any for part in parts),
        is_named or is_bare or any(part.catches for part in parts),
        bool(computed - {"globals"} or not _COMPUTING.isdisjoint(named))
        or any(part.computes_names for part in parts),
        frozenset(special.union(*(part.special for part in parts))),
        frozenset(unbounded.union(*(part.unbounded for part in parts))),
    )


def _names_constant(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Return whether a call names an attribute, or an item of what it returns, by a constant."""
    before, name = steps[at - 1] if at else steps[at], steps[at].argval
    end, second = at, None
    if steps[at].opname not in _ATTRIBUTES:
        # How many arguments are complete; with jumps between them that is not known.
        count = 0
        for end in range(at + 1, len(steps)):  # the last one counts
            step, earlier = steps[end], count
            if "JUMP" in step.opname or "FOR_ITER" in step.opname:
                return False
            if not (step.opname == "PUSH_NULL" and end == at + 1):
                count += dis.stack_effect(step.opcode, step.arg)
            if step.opname in ("PRECALL", "CALL") and count <= 0:
                break
            if count == 2:  # where the second one begins or goes on
                second = step if earlier < count else None
    if name in _ASKING:
        return second is not None and _is_text(second)
    rest = [
        s for s in steps[end + 1 : end + 6] if s.opname not in ("CALL", "PUSH_NULL")
    ]
    if len(rest) < 2:  # a name and its use
        return False
    if rest[0].opname in _ATTRIBUTES:
        return rest[0].argval in _OF_ONE and _is_text(rest[1])
    is_asked = rest[0].opname == "CONTAINS_OP" and _is_text(before)
    return is_asked or (_is_text(rest[0]) and rest[1].opname == "BINARY_SUBSCR")


def _is_text(step: dis.Instruction) -> bool:
    return step.opname == "LOAD_CONST" and isinstance(step.argval, str)


_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"))
# Names of what takes attributes by texts.
_ASKING = frozenset(("getattr", "hasattr"))
_COMPUTING = frozenset(
    ("dir", "getmembers", "getmembers_static", "getattr_static", "__slots__")
)
BY_TEXT = frozenset(
    (
        *_ASKING,
        *_COMPUTING,
        *("vars", "__dict__", "attrgetter", "methodcaller", "__getattribute__"),
        *("asdict", "astuple", "fields", "replace", "copy", "deepcopy", "MATCH_CLASS"),
    )
)
# Those, and `globals`, whose texts may be constants in the code.
_WITH_CONSTANTS = _ASKING | {"vars", "__dict__", "globals"}
# Methods of a dict that take the name of one item.
_OF_ONE = ("get", "setdefault", "pop", "__contains__", "__getitem__")
_MODULES_BY_TEXT = frozenset(("modules", "import_module", "__import__"))
# Names of what takes globals, modules or frames, so that code may reach anything.
ANY_BY_TEXT = _MODULES_BY_TEXT | frozenset(
    ("globals", "eval", "exec", "_getframe", "currentframe", "get_objects")
)
_UNBOUNDED = frozenset(
    (
        *("eval", "exec", "_getframe", "currentframe", "get_objects", "get_referrers"),
        *("__globals__", "f_globals", "f_locals", "f_builtins", "__subclasses__"),
    )
)
# Names of errors, or of what catches them, that a missing attribute or global raises.
_CAUGHT = frozenset(
    ("AttributeError", "NameError", "LookupError", "Exception", "BaseException")
) | {"suppress"}
# Steps of handlers that name an error, and of ``with``.
_NAMED = ("CHECK_EXC_MATCH", "WITH_EXCEPT_START")


def all_names_in(code: CodeType) -> tuple[CodeType, tuple[str, ...], bool]:
    """Return code, all names in it and in that inside it, and whether it imports."""
    known = _all_names.get(id(code))
    if known is None:
        if len(_all_names) > _MOST_CODES:
            _all_names.clear()
        names = {name for inner in codes_in(code) for name in inner.co_names}
        imports = any(_IMPORT in inner.co_code[::2] for inner in codes_in(code))
        known = _all_names[id(code)] = (code, tuple(names), imports)
    return known


# Identity of a code object -> itself, which stays alive, and its names: a hash of code
# takes longer.
_all_names: dict[int, tuple[CodeType, tuple[str, ...], bool]] = {}
_MOST_CODES = 4096
_IMPORT = dis.opmap["IMPORT_NAME"]


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, and those of the functions inside it."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from codes_in(value)


# ---- methods that run without being named ----

_COMPARISONS = "lt le gt ge eq ne"
_OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
_OTHERS = (
    "call init post_init enter exit get getattr getattribute getitem len iter next"
    " contains bool int float index array neg pos abs invert"
)
CALLED = frozenset(
    [f"__{name}__" for name in (*_OTHERS.split(), *_COMPARISONS.split())]
    + [f"__{kind}{name}__" for name in _OPERATORS.split() for kind in ("", "r", "i")]
)
# Those that dataclasses have by the dozen: nobody replaces them.
UNNOTED = frozenset(f"__{name}__" for name in ("init", *_COMPARISONS.split()))
# Special methods that code seldom calls, although it names many attributes in them. A
# name, or a step, that may call them -> which.
_TEXTS = ("__repr__", "__str__", "__format__")
_COPIES = (
    *("__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__"),
    *("__setstate__", "__getnewargs__", "__getnewargs_ex__", "__replace__"),
)
_CALLERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"), _TEXTS),
    **dict.fromkeys(("str", "repr", "format", "ascii", "print", "map"), _TEXTS),
    **dict.fromkeys(("copy", "deepcopy", "replace", "dumps", "loads"), _COPIES),
    "dir": ("__dir__",),
    "getsizeof": ("__sizeof__",),
}
SELDOM = frozenset(v for names in _CALLERS.values() for v in names) | {"__del__"}


def is_generated(method: Any) -> bool:
    """Return whether a method was made from text, as those of dataclasses are."""
    code = getattr(method, "__code__", None)
    return code is None or code.co_filename == "<string>"
