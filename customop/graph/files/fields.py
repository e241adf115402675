"""JSON fields with an exact form: numbers, dtypes, classes and generators."""

from __future__ import annotations

import enum
import math
import re
import struct
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from customop.arrays.nested import TreeRules, registered_nodes
from customop.errors import GraphFileError, quoted, shown
from customop.schema.config_classes import ClassFields, fields_of, is_config_class
from customop.schema.types import classes

# ---- the error for values that a graph file cannot hold ----


class NotWritable(Exception):
    """Raised for a value that files have no form for; the text says why."""


# ---- checks of JSON fields ----
# Each function returns the value, or raises an error that names the field.


def as_list(value: Any, what: str, length: int | None = None) -> list[Any]:
    """Return a list, after checking its length if one is given."""
    if not isinstance(value, list):
        raise GraphFileError(f"{what} is {shown(value)}, must be a list")
    if length is not None and len(value) != length:
        raise GraphFileError(f"{what} has {len(value)} items, must have {length}")
    return value


def as_text(value: Any, what: str) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise GraphFileError(f"{what} is {shown(value)}, must be a string")
    return value


def as_line(value: Any, what: str) -> str:
    """Return a string of one line, which is safe in a comment of generated code."""
    text = as_text(value, what)
    if text != one_line(text):
        raise GraphFileError(f"{what} is {shown(text)}, must be one line")
    return text


def one_line(text: str) -> str:
    """Return a text with its lines joined by spaces."""
    return " ".join(text.splitlines())


def as_integer(value: Any, what: str, below: int = 2**63, least: int = 0) -> int:
    """Return a whole number that is at least `least` and below `below`."""
    if type(value) is not int:
        raise GraphFileError(f"{what} is {shown(value)}, must be a whole number")
    if not least <= value < below:
        raise GraphFileError(
            f"{what} is {shown(value)}, must be from {least} to {below - 1}"
        )
    return value


def as_object(value: Any, what: str) -> dict[str, Any]:
    """Return a JSON object with any entries."""
    if not isinstance(value, dict):
        raise GraphFileError(f"{what} is {shown(value)}, must be an object of JSON")
    return value


def as_entries(value: Any, what: str, needed: str, allowed: str = "") -> dict[str, Any]:
    """Return a JSON object with all `needed` and perhaps some `allowed` entries."""
    as_object(value, what)
    names, known = _entries(needed, allowed)
    found: dict[str, Any] = value
    if found.keys() <= known and found.keys() >= names:
        return found
    for name in needed.split():
        if name not in found:
            raise GraphFileError(f"{what} has no entry '{name}'")
    unknown = next(name for name in found if name not in known)
    raise GraphFileError(f"{what} has an unknown entry {shown(unknown)}")


@cache
def _entries(needed: str, allowed: str) -> tuple[frozenset[str], frozenset[str]]:
    names = frozenset(needed.split())
    return names, names.union(allowed.split())


def entry_of(table: Sequence[Any], index: Any, what: str) -> Any:
    """Return the table entry that has this number in the file."""
    if type(index) is not int or not 0 <= index < len(table):
        raise GraphFileError(f"there is no {what} {shown(index)}")
    return table[index]


# ---- numbers ----
# Numbers without an exact JSON form become an object with one string.


# Programs that read JSON numbers as floats round numbers above this.
_LARGEST = 2**53
# Most digits of a number that is read. Reading 20 bytes of it takes as long as a node.
_MOST_DIGITS = 10_000
_NAN = struct.pack(">d", math.nan)


def written_number(value: Any) -> Any:
    """Return the JSON form of an int or float."""
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": _float_text(value)}
    return value if abs(value) < _LARGEST else {"int": hex(value)}


def _float_text(value: float) -> str:
    """Return ``"inf"``, ``"-inf"``, ``"nan"``, or the bits of another nan."""
    bits = struct.pack(">d", value)
    return str(value) if math.isinf(value) or bits == _NAN else bits.hex()


def read_int(written: Any) -> int:
    """Return a whole number from its JSON form."""
    if type(written) is int:
        return written
    if isinstance(written, dict) and written.keys() == {"int"}:
        text = written["int"]
        if isinstance(text, str) and len(text) <= _MOST_DIGITS:
            try:
                return int(text, 16)
            except ValueError:
                pass
    raise GraphFileError(f"{shown(written)} is not a whole number")


def read_float(written: Any) -> float:
    """Return a float from its JSON form: a number with a point, or an object."""
    if type(written) is float:
        return written
    if isinstance(written, dict) and written.keys() == {"float"}:
        text = written["float"]
        if text in ("inf", "-inf", "nan"):
            return float(text)
        if isinstance(text, str) and len(text) == 16:
            try:
                return float(struct.unpack(">d", bytes.fromhex(text))[0])
            except ValueError:
                pass
    raise GraphFileError(f"{shown(written)} is not a float")


# ---- dtypes ----
# They are written as NumPy's own text. Dtypes with Python objects are refused.


# Byte order, kind, size, and the unit of times: "<f8", "|b1", "<M8[25s]".
_SIMPLE = re.compile(r"[<>|][biufcmMSUV]\d{1,9}(\[\d{0,9}[a-zA-Zμ]{1,7}(/\d{1,9})?\])?")
# How deep structured dtypes may be nested.
_DEEPEST = 16
# NumPy knows the dtypes of this package (bfloat16, float8_e4m3fn) once it is imported.
_EXTENSION = "ml_dtypes"


def written_dtype(dtype: np.dtype[Any]) -> Any:
    """Return the JSON form of a dtype.

    Raises
    ------
    ValueError
        If files have no form for the dtype; the text says why.
    """
    if dtype.hasobject:
        raise ValueError(f"its dtype {dtype} holds Python objects")
    if dtype.itemsize == 0 or dtype.kind == "T":
        raise ValueError(f"its dtype {dtype} has no elements of a fixed size")
    if type(dtype).__module__ == _EXTENSION or dtype.type.__module__ == _EXTENSION:
        return {"name": f"{_EXTENSION}.{dtype.name}"}
    try:
        written = _as_lists(np.lib.format.dtype_to_descr(_bare(dtype)))
        if read_dtype(written) == dtype:
            return written
    except ValueError:  # for example, fields that overlap
        pass
    raise ValueError(f"files have no form for its dtype {shown(dtype)}")


def _bare(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype without user metadata, about which NumPy would warn."""
    return np.lib.format.drop_metadata(dtype)


def _as_lists(described: Any) -> Any:
    if isinstance(described, tuple | list):
        return [_as_lists(item) for item in described]
    return described


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that an array has in its npy part."""
    if dtype.type.__module__ == _EXTENSION:
        return np.dtype(f"<u{dtype.itemsize}")
    return _bare(dtype)


def read_dtype(written: Any) -> np.dtype[Any]:
    """Return a dtype from its JSON form."""
    if isinstance(written, dict):
        return _extension(written)
    try:
        found = np.lib.format.descr_to_dtype(_described(written, 0))
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise _unknown(written) from error
    if found.hasobject or found.itemsize == 0:
        raise _unknown(written)
    return found


def _described(written: Any, depth: int) -> Any:
    """Return a dtype description for NumPy, if it has only safe parts."""
    if isinstance(written, str):
        if _SIMPLE.fullmatch(written) is None:
            raise _unknown(written)
        return written
    if depth > _DEEPEST or not as_list(written, "a dtype"):
        raise _unknown(written)
    return [_field(field, depth) for field in written]


def _field(written: Any, depth: int) -> tuple[Any, ...]:
    field = as_list(written, "a field of a dtype")
    if len(field) not in (2, 3):
        raise _unknown(written)
    name = field[0]
    if isinstance(name, list):  # with a title
        name = tuple(as_text(part, "a name of a field") for part in name)
    else:
        as_text(name, "a name of a field")
    inner = _described(field[1], depth + 1)
    if len(field) == 2:
        return (name, inner)
    shape = as_list(field[2], "the shape of a field")
    if not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise _unknown(written)
    return (name, inner, tuple(shape))


def _extension(written: dict[Any, Any]) -> np.dtype[Any]:
    package, _, name = as_text(written.get("name"), "the name of a dtype").partition(
        "."
    )
    if package != _EXTENSION or len(written) != 1:
        raise _unknown(written)
    if package not in sys.modules:
        raise GraphFileError(
            f"the dtype {name} is one of {package}, which is not imported",
            do=f"import {package} first",
        )
    try:
        return np.dtype(vars(sys.modules[package]).get(name))
    except TypeError:
        raise _unknown(written) from None


def _unknown(written: Any) -> GraphFileError:
    return GraphFileError(f"{shown(written)} is not a dtype that files have")


# ---- classes, by name ----
# Reading a file never imports a module or runs its code.


class KnownClass:
    """How objects of a class are split into parts for a file, and made again.

    Attributes
    ----------
    cls : type
    form : str
        ``"enum"``, ``"tuple"`` for a NamedTuple, ``"fields"`` for config objects and
        dataclasses, ``"pytree"`` for classes that a user registered with optree.
    names : sequence of str
        Names of the fields, or of the members of an Enum; empty for a pytree.
    fields : ClassFields or None
    registered : TreeRules or None
    """

    __slots__ = ("cls", "fields", "form", "names", "registered")

    def __init__(
        self,
        cls: type,
        form: str,
        names: Sequence[str],
        fields: ClassFields | None = None,
        registered: TreeRules | None = None,
    ) -> None:
        self.cls: type = cls
        self.form: str = form
        self.names: Sequence[str] = names
        self.fields: ClassFields | None = fields
        self.registered: TreeRules | None = registered

    def parts(self, value: Any) -> tuple[list[Any], Any]:
        """Return the parts of an object to write, and anything else that it needs."""
        if self.fields is not None:
            return self.fields.items(value), self.fields.keeps_more(value)
        if self.registered is not None:
            found, constant, *_ = self.registered.flatten_func(value)
            return list(found), constant
        return list(value), None

    def make(self, items: list[Any], rest: Any) -> Any:
        """Make an object from its parts."""
        if self.fields is not None:
            _check_count(self, items)
            # The constructor is called only if an object keeps more than its fields.
            made = self.fields.like if rest is True else self.fields.outline
            return made(None, items)
        if self.registered is not None:
            return self.registered.unflatten_func(rest, items)
        _check_count(self, items)
        return tuple.__new__(self.cls, items)


def _check_count(known: KnownClass, items: Sequence[Any]) -> None:
    if len(items) != len(known.names):
        raise GraphFileError(
            f"an object of {name_of(known.cls)} has {len(items)} parts in the file, and"
            f" the class has {len(known.names)}"
        )


def name_of(cls: type) -> str:
    """Return the qualified name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def known_class(cls: type) -> KnownClass | None:
    """Return how objects of a class are written, or None if files cannot."""
    declared = classes.get(name_of(cls))
    if issubclass(cls, enum.Enum):
        return KnownClass(cls, "enum", [*cls.__members__])
    if is_graph_class(cls):
        return None
    if declared is not None and declared.cls is cls and not declared.fields.is_dict:
        return _by_fields(declared.fields)
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return KnownClass(cls, "tuple", vars(cls).get("_fields", ()))
    return _by_registration(cls)


def _by_registration(cls: type) -> KnownClass | None:
    registered = registered_nodes().get(cls)
    if registered is None:
        return None
    if is_config_class(cls):
        return _by_fields(fields_of(cls, {}))
    return KnownClass(cls, "pytree", (), registered=registered)


def _by_fields(fields: ClassFields) -> KnownClass:
    return KnownClass(fields.cls, "fields", [*fields.hints], fields)


def is_graph_class(cls: type) -> bool:
    """Return whether a class is a graph class; files keep graphs in their own table."""
    return callable(getattr(cls, "recompile", None))


def class_entry(known: KnownClass) -> dict[str, Any]:
    """Return the JSON form of a class."""
    return {"name": name_of(known.cls), "form": known.form, "fields": [*known.names]}


def read_class(written: Any) -> KnownClass:
    """Return the class that an entry of the file names."""
    entry = as_entries(written, "a class", "name form fields")
    name, form = as_text(entry["name"], "the name of a class"), entry["form"]
    names = [as_text(n, "a field") for n in as_list(entry["fields"], "the fields")]
    found = find_known(name)
    if found.form != form:
        raise GraphFileError(
            f"{name} has the form {shown(form)} in the file, and here {found.form!r}"
        )
    missing = [n for n in names if n not in found.names]
    if form == "enum" and not missing:
        return found
    if names != [*found.names]:
        raise GraphFileError(
            f"{name} has other fields than when the graph was saved",
            f"in the file: {quoted(names)}",
            f"here: {quoted(found.names)}",
            do="load the graph where the class is as it was, or capture it again",
        )
    return found


def find_known(name: str) -> KnownClass:
    """Return the class with a qualified name, among those known in this process."""
    declared = classes.get(name)
    candidates: list[Any] = [] if declared is None else [declared.cls]
    candidates += [cls for cls in registered_nodes() if name_of(cls) == name]
    candidates += [_in_modules(name)]
    for cls in candidates:
        if isinstance(cls, type):
            found = known_class(cls)
            if found is not None:
                return found
    raise GraphFileError(
        f"the class {shown(name)} is not known here", do=_remedy(name, candidates)
    )


def _remedy(name: str, candidates: Sequence[Any]) -> str:
    if candidates[-1] is not None:
        return "register it, as it was where the graph was saved"
    module = name.rpartition(".")[0]
    if module == "__main__" or "<locals>" in name:
        return "define the class in a module, import that, and capture the graph again"
    return f"import {shown(module)[1:-1]} first"


def _in_modules(name: str) -> Any:
    """Return the object with a qualified name in the imported modules, or None.

    Names are looked up in dicts, because attributes of a module may run code.
    """
    module, _, rest = name.rpartition(".")
    path = [rest]
    while module and module not in sys.modules:
        module, _, outer = module.rpartition(".")
        path.insert(0, outer)
    found: Any = sys.modules.get(module)
    for part in path:
        found = getattr(found, "__dict__", {}).get(part)
        if found is None:
            return None
    return found


# ---- random generators ----
# The file keeps the state of NumPy's bit generators.
#
# NumPy does not check a state that it is given, and reads outside its memory if a
# position is too large. So each number is checked here.


# Name of a bit generator -> the entries of its state. Each entry has the bound that its
# values stay below, and for an array its length.
_HALF = {"has_uint32": (2, 0), "uinteger": (2**32, 0)}
_PCG = {"state": {"state": (2**128, 0), "inc": (2**128, 0)}, **_HALF}
_STATES: dict[str, dict[str, Any]] = {
    "MT19937": {"state": {"key": (2**32, 624), "pos": (625, 0)}},
    "PCG64": _PCG,
    "PCG64DXSM": _PCG,
    "Philox": {
        "state": {"counter": (2**64, 4), "key": (2**64, 2)},
        "buffer": (2**64, 4),
        "buffer_pos": (5, 0),
        **_HALF,
    },
    "SFC64": {"state": {"state": (2**64, 4)}, **_HALF},
}
_SEED = "entropy spawn_key pool_size children"


def written_generator(rng: np.random.Generator) -> dict[str, Any]:
    """Return the JSON form of a generator.

    Raises
    ------
    ValueError
        If it is not one of NumPy's own generators.
    """
    bits = rng.bit_generator
    name = type(bits).__name__
    if type(rng) is not np.random.Generator or type(bits).__module__.partition(".")[
        0
    ] != ("numpy"):
        raise ValueError("it is not a numpy.random.Generator of NumPy's own")
    if name not in _STATES:
        raise ValueError(f"files have no form for its bit generator {name}")
    state = dict(bits.state)
    del state["bit_generator"]
    found = {"bit_generator": name, "state": _plain(state)}
    seed = bits.seed_seq
    if type(seed) is np.random.SeedSequence:  # its spawn() continues from this
        entropy: Any = seed.entropy
        found["seed"] = {
            "entropy": _plain(entropy),
            "spawn_key": _plain(seed.spawn_key),
            "pool_size": seed.pool_size,
            "children": seed.n_children_spawned,
        }
    return found


def _plain(value: Any) -> Any:
    """Return numbers as JSON, those above 64 bits as hexadecimal text."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(item) for item in value]
    if value is None:
        return None
    number = int(value)
    return number if abs(number) < 2**63 else hex(number)


def read_generator(written: Any) -> np.random.Generator:
    """Return a generator from its JSON form."""
    entries = as_entries(written, "a generator", "bit_generator state", "seed")
    name = entries["bit_generator"]
    if not isinstance(name, str) or name not in _STATES:
        raise GraphFileError(f"{shown(name)} is not a bit generator of NumPy")
    state = _read_state(entries["state"], _STATES[name])
    bits = getattr(np.random, name)(_read_seed(entries.get("seed")))
    bits.state = {"bit_generator": name, **state}
    return np.random.Generator(bits)


def _read_state(written: Any, expected: dict[str, Any]) -> dict[str, Any]:
    entries = as_entries(written, "the state of a generator", " ".join(expected))
    return {
        name: _read_state(entries[name], form)
        if isinstance(form, dict)
        else _read_numbers(entries[name], name, *form)
        for name, form in expected.items()
    }


def _read_numbers(written: Any, name: str, below: int, length: int) -> Any:
    if not length:
        return _read_number(written, name, below)
    found = [_read_number(item, name, below) for item in as_list(written, name, length)]
    return np.array(found, np.uint32 if below == 2**32 else np.uint64)


def _read_number(written: Any, name: str, below: int = 2**4096) -> int:
    if isinstance(written, str) and len(written) <= 1100:
        try:
            written = int(written, 16)
        except ValueError:
            written = None
    return as_integer(written, f"'{name}' of a generator", below)


def _read_seed(written: Any) -> np.random.SeedSequence:
    if written is None:
        return np.random.SeedSequence(0)
    entries = as_entries(written, "the seed of a generator", _SEED)
    return np.random.SeedSequence(
        _read_entropy(entries["entropy"]),
        spawn_key=_read_entropy(as_list(entries["spawn_key"], "spawn_key")),
        pool_size=as_integer(entries["pool_size"], "pool_size", 1025, 4),
        n_children_spawned=_read_number(entries["children"], "children", 2**32),
    )


def _read_entropy(written: Any) -> Any:
    if isinstance(written, list):
        return [_read_number(item, "entropy") for item in written]
    return None if written is None else _read_number(written, "entropy")
