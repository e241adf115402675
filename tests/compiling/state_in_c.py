"""Kinds of state that objects written in C keep, and that compiled functions read."""

from __future__ import annotations

_EXCEPTION = "e = ValueError(1.0)"
_PARTIAL = (
    "from functools import partial\ndef g(k): return k\ndef h(k): return 3 * k\n"
    "p = partial(g, 1.0)"
)
_ENUM = "from enum import Enum\nclass E(Enum):\n  A = 1; B = 2"
_ARRAY = "import numpy as np\na = np.ones(3)"
_FACTORY = "from collections import defaultdict\nd = defaultdict(lambda: 1.0)"
_SEEDS = "import numpy as np\ns = np.random.SeedSequence(1)"

# Name -> what is there before, the function, and what changes between the calls.
KINDS_IN_C: dict[str, tuple[str, str, str]] = {
    "default_factory": (
        _FACTORY,
        "return x * d.default_factory()",
        "d.default_factory = lambda: 3.0",
    ),
    "args": (_EXCEPTION, "return x * e.args[0]", "e.args = (3.0,)"),
    "text of an exception": (
        _EXCEPTION,
        "return x * float(str(e))",
        "e.args = (3.0,)",
    ),
    "cause": (
        _EXCEPTION,
        "return x * (1.0 if e.__cause__ is None else 3.0)",
        "e.__cause__ = KeyError()",
    ),
    "errno": ("e = OSError(1, 'a')", "return x * e.errno", "e.errno = 3000"),
    "args of a partial": (
        _PARTIAL,
        "return x * p()",
        "p.__setstate__((g, (3.0,), {}, {}))",
    ),
    "func of a partial": (
        _PARTIAL,
        "return x * p()",
        "p.__setstate__((h, (1.0,), {}, {}))",
    ),
    "number of members": (
        _ENUM,
        "return x * len(E)",
        "E._member_names_.append('C')",
    ),
    "member by value": (
        _ENUM,
        "return x * E(1).value",
        "E._value2member_map_[1] = E.B",
    ),
    "member by name": (_ENUM, "return x * E['A'].value", "E._member_map_['A'] = E.B"),
    "value of a member": (_ENUM, "return x * E.A.value", "E.A._value_ = 3"),
    "flags": (
        _ARRAY,
        "return x * (1.0 if a.flags.writeable else 3.0)",
        "a.flags.writeable = False",
    ),
    "flags of an item": (
        _ARRAY + "\nL = [a]",
        "return x * (1.0 if L[0].flags['WRITEABLE'] else 3.0)",
        "a.setflags(write=False)",
    ),
    "annotations of a function": (
        "def g(k: 1.0): return k",
        "return x * g.__annotations__['k']",
        "g.__annotations__['k'] = 3.0",
    ),
    "generic alias": (
        "class A: k = 1.0\nT = list[A]",
        "return x * T.__args__[0].k",
        "A.k = 3.0",
    ),
    "children of a seed": (
        _SEEDS,
        "return x * (1.0 + s.n_children_spawned)",
        "s.spawn(2)",
    ),
    "many children of a seed": (
        _SEEDS + "\ns.spawn(300)",
        "return x * (1.0 + s.n_children_spawned)",
        "s.spawn(300)",
    ),
}
