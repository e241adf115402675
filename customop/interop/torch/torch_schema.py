"""Translate schemas and values of operators to torch.

Torch has no config objects, tuples, dicts, enums or lists of lists. Each of them is
split into leaves of types that torch has: an object into its fields, a dict into keys
and values, a list of lists into one list and lengths. The code that splits a value is
text, so that it becomes part of one short function that torch.compile can trace.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from customop.core.table import RuleTable
from customop.errors import RegistrationError
from customop.interop.torch.framework import torch
from customop.schema.schema import Schema
from customop.schema.types import (
    KEYWORD_ONLY,
    MISSING,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    Parameter,
    SchemaType,
    TupleOf,
)

# ---- signatures ----
# The schema of an operator for torch, and functions that convert between the two.


def signature_of(op: RuleTable) -> Signature:
    """Return the signature of an operator for torch.

    Raises
    ------
    RegistrationError
        If one of its types cannot be passed to torch.
    """
    schema = op.schema
    rows = [(p, _codec(op, p.name, p.type)) for p in schema.parameters]
    returns = () if _returns_written(op) else schema.returns
    outs = [_codec(op, "return", r.type) for r in returns]
    leaves = tuple(leaf for p, codec in rows for leaf in _named(p.name, codec))
    outputs = tuple(leaf for codec in outs for leaf in codec.leaves)
    keyword_count = sum(
        len(codec.leaves) for p, codec in rows if p.kind == KEYWORD_ONLY
    )
    texts = _parameter_texts(rows)
    shown = ", ".join(leaf.type for leaf in outputs)
    is_same = (
        all(c.is_same for _, c in rows)
        and all(c.is_same for c in outs)
        and all(_has_default(p, c) for p, c in rows)
        and not (schema.returns and not returns)
        and schema.is_tuple is (len(returns) > 1)
    )
    return Signature(
        leaves,
        outputs,
        _written(rows),
        keyword_count,
        f"({', '.join(texts)}) -> {shown if len(outputs) == 1 else f'({shown})'}",
        is_same,
        _arguments(rows),
        _values(rows),
        _results(outs, schema),
        _joined(outs, schema),
        _source(op, rows, outs),
        _kernel(op, rows, outs),
        tuple(codec.join for _, codec in rows),
        _head(rows)[1],
    )


class Signature(NamedTuple):
    """The signature of an operator for torch, with leaves for parameters and results.

    Attributes
    ----------
    leaves, outputs : tuple of TorchLeaf
        The leaves of all parameters, and of all results.
    text : str
        The schema in torch's grammar, without a name.
    is_same : bool
        Whether the operator and the torch operator are called in the same way.
    arguments : callable
        Takes the values of all leaves; returns positional and keyword arguments of the
        operator.
    values : callable
        Takes the arguments that torch passes; returns the values of all leaves, with
        defaults filled in.
    results : callable
        Takes the result of the operator; returns a list of the values of all output
        leaves.
    joined : callable
        Takes the values of all output leaves; returns the result of the operator.
    source, kernel : str
        The code of two functions. The first has the parameters of the operator and
        calls the torch operator as `_torch`. The second is a kernel for torch that
        calls the operator as `_op`.
    """

    leaves: tuple[TorchLeaf, ...]
    outputs: tuple[TorchLeaf, ...]
    written: tuple[int, ...]
    keyword_count: int
    text: str
    is_same: bool
    arguments: Callable[..., tuple[list[Any], dict[str, Any]]]
    values: Callable[..., tuple[Any, ...]]
    results: Callable[[Any], list[Any]]
    joined: Callable[[Sequence[Any]], Any]
    source: str
    kernel: str
    joins: tuple[Any, ...]
    defaults: dict[str, Any]

    @property
    def returned(self) -> str:
        """Return how many values the torch operator returns: "", "one" or "many"."""
        return ("", "one", "many")[min(len(self.outputs), 2)]

    def split(self, values: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Split the values of all leaves into positional and keyword arguments."""
        if not self.keyword_count:
            return values, {}
        at = len(values) - self.keyword_count
        names = [leaf.name for leaf in self.leaves[at:]]
        return values[:at], dict(zip(names, values[at:], strict=True))


def _codec(op: RuleTable, name: str, declared: Any) -> Codec:
    try:
        return codec_of(declared)
    except Untranslatable as why:
        place = "a result" if name == "return" else f"'{name}'"
        raise op.error(
            RegistrationError,
            f"export to torch: {place} is {declared}: {why}",
            do="export an operator that takes numbers, arrays, and lists or objects of"
            " them",
            parameter=name,
        ) from None


def _named(name: str, codec: Codec) -> Iterable[TorchLeaf]:
    return [TorchLeaf(f"{name}{leaf.name}", leaf.type) for leaf in codec.leaves]


def _returns_written(op: RuleTable) -> bool:
    """Return whether the results are the written arguments, which torch does not return."""
    schema = op.schema
    return bool(schema.written) and any(
        r.alias is not None and r.alias.is_write for r in schema.returns
    )


def _written(rows: Sequence[tuple[Parameter, Codec]]) -> tuple[int, ...]:
    """Return the positions of the leaves that the operator writes to."""
    found, at = [], 0
    for p, codec in rows:
        for leaf in codec.leaves:
            if p.is_written and leaf.is_array:
                found.append(at)
            at += 1
    return tuple(found)


# ---- the text of the schema ----


def _parameter_texts(rows: Sequence[tuple[Parameter, Codec]]) -> list[str]:
    texts: list[str] = []
    has_star = False
    letters = iter("abcdefghijklmnopqrstuvwxyz" * 4)
    positional = [row for row in rows if row[0].kind != KEYWORD_ONLY]
    # Torch allows defaults only at the end. If it cannot write the default of a
    # parameter, all parameters before it lose theirs.
    first = 0
    for i, (p, codec) in enumerate(positional):
        if p.default is MISSING or not _has_default(p, codec):
            first = i + 1
    for i, (p, codec) in enumerate(rows):
        is_keyword = p.kind == KEYWORD_ONLY
        if is_keyword and not has_star:
            texts.append("*")
            has_star = True
        shows = p.default is not MISSING and _has_default(p, codec)
        default = _default(p) if shows and (is_keyword or i >= first) else None
        for leaf in _named(p.name, codec):
            type_text = leaf.type
            if p.is_written and leaf.is_array:
                type_text = type_text.replace("Tensor", f"Tensor({next(letters)}!)", 1)
            texts.append(
                f"{type_text} {leaf.name}{'' if default is None else f'={default}'}"
            )
    return texts


def _has_default(p: Parameter, codec: Codec) -> bool:
    """Return whether a parameter has no default, or one that torch can write."""
    if p.default is MISSING or (p.default is None and codec.is_same):
        return True
    return codec.is_same and _default(p) is not None


def _default(p: Parameter) -> str | None:
    value = p.default
    if value is None or isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, str) and value.isprintable() and value.isascii():
        plain_text = value.replace("\\", "").replace('"', "")
        return f'"{value}"' if value == plain_text else None
    if isinstance(value, list | tuple) and all(
        isinstance(v, int | float) and math.isfinite(v) for v in value
    ):
        return f"[{', '.join(map(repr, value))}]"
    return None


# ---- generated functions that convert ----


def _arguments(
    rows: Sequence[tuple[Parameter, Codec]],
) -> Callable[..., tuple[list[Any], dict[str, Any]]]:
    """Return the function that joins leaves, with arrays for tensors, to arguments."""
    spans = []
    start = 0
    for p, codec in rows:
        end = start + len(codec.leaves)
        spans.append((p.name, p.kind == KEYWORD_ONLY, codec, start, end))
        start = end

    def arguments(leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        keywords: dict[str, Any] = {}
        for name, is_keyword, codec, start, end in spans:
            value = codec.joined(leaves[start:end])
            if is_keyword:
                keywords[name] = value
            else:
                args.append(value)
        return args, keywords

    return arguments


def _head(
    rows: Sequence[tuple[Parameter, Codec]],
) -> tuple[list[str], dict[str, Any]]:
    """Return the parameters of a function that torch calls, and their defaults."""
    texts, has_star, has_default = [], False, False
    defaults: dict[str, Any] = {}
    for p, codec in rows:
        if p.kind == KEYWORD_ONLY and not has_star:
            texts.append("*")
            has_star = True
        for leaf in _named(p.name, codec):
            if p.default is not MISSING and codec.is_same:
                defaults[f"_{leaf.name}"] = p.default
                texts.append(f"{leaf.name}=_{leaf.name}")
                has_default = True
            else:  # torch always passes it
                needs = has_default and not has_star
                texts.append(f"{leaf.name}=None" if needs else leaf.name)
    return texts, defaults


def _values(rows: Sequence[tuple[Parameter, Codec]]) -> Callable[..., tuple[Any, ...]]:
    """Return the function that lists the values of all leaves in a call from torch."""
    texts, found = _head(rows)
    names = [leaf.name for p, codec in rows for leaf in _named(p.name, codec)]
    listed = "".join(f"{name}, " for name in names)
    source = f"def values({', '.join(texts)}):\n    return ({listed})"
    exec(source, found)  # noqa: S102  # names of parameters, which are identifiers
    return found["values"]  # type: ignore[no-any-return]  # the function defined above


def _kernel(
    op: RuleTable, rows: Sequence[tuple[Parameter, Codec]], outs: Sequence[Codec]
) -> str:
    """Return the code of a kernel that runs the operator on tensors."""
    texts, _ = _head(rows)
    given, written = [], []
    for i, (p, codec) in enumerate(rows):
        array = "_written" if p.is_written else "_array"
        parts = [_lowered(leaf, array) for leaf in _named(p.name, codec)]
        text = parts[0] if codec.is_same else f"_join[{i}](({', '.join(parts)},))"
        given.append(f"{p.name}={text}" if p.kind == KEYWORD_ONLY else text)
        if p.is_written:
            names = [leaf.name for leaf in _named(p.name, codec) if leaf.is_array]
            written += [f"    _wrote({name})\n" for name in names]
    call = f"_op({', '.join(given)})"
    head = f"def {op.name}({', '.join(texts)}):\n"
    if not outs:
        return f"{head}    {call}\n{''.join(written)}"
    is_copied = op.view_slot >= 0
    if len(outs) == 1 and outs[0].is_same and not op.schema.is_tuple:
        found = _raised(outs[0].leaves[0], "result", is_copied)
        lines = f"    result = {call}\n{''.join(written)}    return {found}\n"
        return f"{head}{lines}"
    leaves = [leaf for out in outs for leaf in out.leaves]
    raised = [_raised(leaf, f"leaf[{i}]", is_copied) for i, leaf in enumerate(leaves)]
    shown = raised[0] if len(raised) == 1 else f"({', '.join(raised)},)"
    return f"{head}    leaf = _results({call})\n{''.join(written)}    return {shown}\n"


def _lowered(leaf: TorchLeaf, array: str) -> str:
    """Return the code that converts a leaf for the operator; `array` converts a tensor."""
    name = leaf.name
    if not leaf.is_array:
        kind = leaf.type.removesuffix("?").removesuffix("[]")
        return f"_plain({name})" if kind in ("ScalarType", "Device") else name
    item = f"{array}(v)"
    if "?[]" in leaf.type:
        item = f"(None if v is None else {item})"
    text = f"[{item} for v in {name}]" if leaf.is_list else f"{array}({name})"
    return f"(None if {name} is None else {text})" if leaf.type.endswith("?") else text


# How numbers are passed to torch, which does not take NumPy scalars.
_NUMBERS = {"SymInt": "int", "int": "int", "float": "float", "bool": "bool"}


def _raised(leaf: TorchLeaf, text: str, is_copied: bool) -> str:
    """Return the code that converts a result for torch."""
    kind = leaf.type.removesuffix("?").removesuffix("[]").removesuffix("?")
    item = "v" if leaf.is_list else text
    if kind in _NUMBERS:
        item = f"{_NUMBERS[kind]}({item})"
    elif leaf.is_array:
        item = f"_tensor({item}{'.copy()' if is_copied else ''})"
    if "?[]" in leaf.type:
        item = f"(None if v is None else {item})"
    found = f"[{item} for v in {text}]" if leaf.is_list else item
    return (
        f"(None if {text} is None else {found})" if leaf.type.endswith("?") else found
    )


def _joined(outs: Sequence[Codec], schema: Schema) -> Callable[[Sequence[Any]], Any]:
    """Return the function that joins output leaves to a result."""
    spans = []
    start = 0
    for codec in outs:
        spans.append((codec, start, start + len(codec.leaves)))
        start += len(codec.leaves)

    def joined(leaves: Sequence[Any]) -> Any:
        found = [codec.joined(leaves[start:end]) for codec, start, end in spans]
        return tuple(found) if schema.is_tuple else found[0] if found else None

    return joined


def _results(outs: Sequence[Codec], schema: Schema) -> Callable[[Any], list[Any]]:
    """Return the function that splits a result into output leaves."""
    if not outs:
        return lambda result: []
    if len(outs) == 1 and not schema.is_tuple:
        texts = outs[0].apart("result")
    else:
        texts = [t for i, out in enumerate(outs) for t in out.apart(f"result[{i}]")]
    found: dict[str, Any] = {"_Tensor": torch.Tensor}
    source = f"def results(result):\n    return [{', '.join(texts)}]"
    exec(source, found)  # noqa: S102  # texts of this package
    return found["results"]  # type: ignore[no-any-return]  # the function defined above


def _source(
    op: RuleTable, rows: Sequence[tuple[Parameter, Codec]], outs: Sequence[Codec]
) -> str:
    """Return the code of a function with the operator's parameters that calls torch."""
    schema = op.schema
    texts, given, has_star, previous = [], [], False, ""
    for p, codec in rows:
        if previous == "positional_only" and p.kind != previous:
            texts.append("/")
        if p.kind == KEYWORD_ONLY and not has_star:
            texts.append("*")
            has_star = True
        previous = p.kind
        texts.append(
            p.name if p.default is MISSING else f"{p.name}=_defaults[{p.name!r}]"
        )
        parts = codec.apart(p.name)
        if p.kind == KEYWORD_ONLY:
            parts = [
                f"{leaf.name}={part}"
                for leaf, part in zip(_named(p.name, codec), parts, strict=True)
            ]
        given += parts
    if previous == "positional_only":
        texts.append("/")
    call = f"_torch({', '.join(given)})"
    head = f"def {op.name}({', '.join(texts)}):\n"
    written = [p.name for p in schema.parameters if p.is_written]
    if _returns_written(op):
        shown = written[0] if not schema.is_tuple else f"({', '.join(written)},)"
        return f"{head}    {call}\n    return {shown}"
    if all(c.is_same for c in outs) and schema.is_tuple is (len(outs) > 1):
        return f"{head}    return {call}"
    count = sum(len(c.leaves) for c in outs)
    found = f"[{call}]" if count == 1 else call
    return f"{head}    return _joined({found})"


# ---- codecs ----
# A codec says how values of a schema type are passed to torch: as one or several plain
# arguments.


class Untranslatable(Exception):
    """Raised for a type that cannot be passed to torch; its text is the reason."""


class TorchLeaf(NamedTuple):
    """One argument or result of a torch operator.

    Attributes
    ----------
    name : str
        The suffix that is added to the parameter's name, such as ``"_width"`` for a
        field.
    type : str
        The type in torch's schema.
    """

    name: str
    type: str

    @property
    def is_array(self) -> bool:
        """Return whether the leaf is a tensor, an optional tensor or a list of tensors."""
        return self.type.startswith("Tensor")

    @property
    def is_list(self) -> bool:
        """Return whether the leaf is a list."""
        return "[]" in self.type


class Codec(NamedTuple):
    """How values of one type are split into leaves and joined again.

    Attributes
    ----------
    leaves : tuple of TorchLeaf
    apart : callable
        Takes the text of an expression for a value; returns the text for each leaf.
    join : callable or None
        Takes the values of the leaves; returns the value. None if the value is the
        leaf.
    """

    leaves: tuple[TorchLeaf, ...]
    apart: Callable[[str], list[str]]
    join: Callable[[Sequence[Any]], Any] | None = None

    @property
    def is_same(self) -> bool:
        """Return whether torch takes the value unchanged."""
        return self.join is None

    def joined(self, leaves: Sequence[Any]) -> Any:
        """Join leaves to the value."""
        return leaves[0] if self.join is None else self.join(leaves)


def _alone(name: str) -> Codec:
    return Codec((TorchLeaf("", name),), lambda text: [text])


def _generator(leaves: Sequence[Any]) -> np.random.Generator:
    """Return a NumPy generator with a seed that is drawn from torch's generator."""
    seed = torch.randint(2**63 - 1, (), generator=leaves[0])
    return np.random.default_rng(int(seed))


# An int is passed as SymInt, since it may be a symbolic size while torch traces.
_BASES: Final[dict[str, Codec]] = {
    "int": _alone("SymInt"),
    "float": _alone("float"),
    "bool": _alone("bool"),
    "str": _alone("str"),
    "complex": _alone("complex"),
    "Scalar": _alone("Scalar"),
    "dtype": _alone("ScalarType"),
    "device": _alone("Device"),
    "Generator": Codec((TorchLeaf("", "Generator"),), lambda text: [text], _generator),
}


def codec_of(declared: SchemaType, depth: int = 0) -> Codec:
    """Return the codec of a schema type.

    Raises
    ------
    Untranslatable
        If the type cannot be passed to torch.
    """
    alone = _alone_of(declared)
    if alone is not None:
        return alone
    if isinstance(declared, Maybe):
        return _optional(codec_of(declared.item, depth))
    if isinstance(declared, ListOf):
        return _listed(declared, codec_of(declared.item, depth + 1), f"v{depth}")
    if isinstance(declared, DictOf):
        return _keyed(codec_of(declared.item, depth + 1), f"v{depth}")
    return _fixed(declared, depth)


def _alone_of(declared: SchemaType) -> Codec | None:
    """Return the codec of a type without parts; None for other types."""
    if isinstance(declared, ArrayType):
        return _OPERAND if declared.or_number else _alone("Tensor")
    if isinstance(declared, Base):
        return _BASES.get(declared.name)
    # The operator checks the value.
    return _alone(declared.name) if isinstance(declared, Choice) else None


def _fixed(declared: SchemaType, depth: int) -> Codec:
    """Return the codec of a tuple, an object or a member of an enum."""
    if isinstance(declared, TupleOf):
        names = [f"_{i}" for i in range(len(declared.items))]
        places = [f"[{i}]" for i in range(len(names))]
        return _record(
            [codec_of(item, depth) for item in declared.items], names, places, tuple
        )
    if isinstance(declared, ClassOf):
        return _member(declared) if declared.is_enum else _object(declared, depth)
    raise Untranslatable(f"torch has no type for {declared}")


# ---- an array or a number ----


def _array_or_number(leaves: Sequence[Any]) -> Any:
    array, number = leaves
    return number if array is None else array


_OPERAND: Final = Codec(
    (TorchLeaf("", "Tensor?"), TorchLeaf("_number", "Scalar?")),
    lambda text: [
        f"({text} if isinstance({text}, _Tensor) else None)",
        f"(None if isinstance({text}, _Tensor) else {text})",
    ],
    _array_or_number,
)


# ---- optional values ----


def _optional(item: Codec) -> Codec:
    if len(item.leaves) == 1 and not item.leaves[0].type.endswith("?"):
        (leaf,) = item.leaves

        def join_one(leaves: Sequence[Any]) -> Any:
            return None if leaves[0] is None else item.joined(leaves)

        return Codec(
            (TorchLeaf(leaf.name, f"{leaf.type}?"),),
            (lambda text: [text])
            if item.is_same
            else lambda text: [f"(None if {text} is None else {item.apart(text)[0]})"],
            None if item.is_same else join_one,
        )
    rest = tuple(
        TorchLeaf(n, t if t.endswith("?") else f"{t}?") for n, t in item.leaves
    )

    def apart(text: str) -> list[str]:
        parts = [f"(None if {text} is None else {part})" for part in item.apart(text)]
        return [f"({text} is not None)", *parts]

    def join(leaves: Sequence[Any]) -> Any:
        return item.joined(leaves[1:]) if leaves[0] else None

    return Codec((TorchLeaf("_given", "bool"), *rest), apart, join)


# ---- lists and dicts: a list for each leaf ----


def _column(leaf: TorchLeaf) -> tuple[TorchLeaf, ...]:
    """Return the leaves for a list of a leaf; a list of lists is one list and lengths."""
    if leaf.type.endswith("[]?"):
        raise Untranslatable(f"torch has no list of {leaf.type}")
    if leaf.is_list:
        return leaf, TorchLeaf(f"{leaf.name}_lengths", "SymInt[]")
    return (TorchLeaf(leaf.name, f"{leaf.type}[]"),)


def _columns(item: Codec, each: str) -> Callable[[str], list[str]]:
    """Return the function that splits a sequence into one list for each leaf."""

    def apart(text: str) -> list[str]:
        found = []
        for leaf, part in zip(item.leaves, item.apart(each), strict=True):
            if leaf.is_list:
                found.append(f"[{each}w for {each} in {text} for {each}w in {part}]")
                found.append(f"[len({part}) for {each} in {text}]")
            else:
                found.append(f"[{part} for {each} in {text}]")
        return found

    return apart


def _rows(item: Codec, columns: Sequence[Any]) -> list[Any]:
    """Join columns to a list of values."""
    given = iter(columns)
    parts = []
    for leaf in item.leaves:
        values = next(given)
        parts.append(_cut(values, next(given)) if leaf.is_list else values)
    return [item.joined(row) for row in zip(*parts, strict=True)]


def _cut(values: Sequence[Any], lengths: Sequence[int]) -> list[Any]:
    """Cut one list into lists of the given lengths."""
    rows, start = [], 0
    for length in lengths:
        rows.append(list(values[start : start + length]))
        start += length
    return rows


def _listed(declared: ListOf, item: Codec, each: str) -> Codec:
    leaves = tuple(column for leaf in item.leaves for column in _column(leaf))
    make = tuple if declared.is_tuple else list
    if len(leaves) == 1 and item.is_same:
        join = tuple if declared.is_tuple else None
        return Codec(leaves, lambda text: [text], join and (lambda v: make(v[0])))
    return Codec(leaves, _columns(item, each), lambda given: make(_rows(item, given)))


def _keyed(item: Codec, each: str) -> Codec:
    columns = tuple(column for leaf in item.leaves for column in _column(leaf))
    texts = _columns(item, each)

    def join(leaves: Sequence[Any]) -> Any:
        return dict(zip(leaves[0], _rows(item, leaves[1:]), strict=True))

    return Codec(
        (TorchLeaf("_keys", "str[]"), *columns),
        lambda text: [f"list({text})", *texts(f"{text}.values()")],
        join,
    )


# ---- objects and tuples: a leaf for each field ----


def _record(
    items: Sequence[Codec],
    names: Sequence[str],
    places: Sequence[str],
    make: Callable[[list[Any]], Any],
) -> Codec:
    leaves = tuple(
        TorchLeaf(f"{name}{leaf.name}", leaf.type)
        for name, item in zip(names, items, strict=True)
        for leaf in item.leaves
    )

    def apart(text: str) -> list[str]:
        pairs = zip(items, places, strict=True)
        return [t for item, place in pairs for t in item.apart(f"{text}{place}")]

    def join(given: Sequence[Any]) -> Any:
        values, start = [], 0
        for item in items:
            values.append(item.joined(given[start : start + len(item.leaves)]))
            start += len(item.leaves)
        return make(values)

    return Codec(leaves, apart, join)


def _object(declared: ClassOf, depth: int) -> Codec:
    fields = declared.fields
    if fields.required != {*fields.hints}:
        raise Untranslatable(
            f"{declared.name} has keys that may be missing, and torch has no such type"
        )
    is_dict = fields.is_dict
    return _record(
        [codec_of(item, depth) for item in declared.items.values()],
        [f"_{name}" for name in declared.items],
        [f"[{n!r}]" if is_dict else f".{n}" for n in declared.items],
        (lambda v: dict(zip(declared.items, v, strict=True)))
        if is_dict
        else lambda v: fields.like(None, v),
    )


def _member(declared: ClassOf) -> Codec:
    cls: Any = declared.cls
    if issubclass(cls, enum.Flag):  # a flag with several bits may have no name
        return Codec(
            (TorchLeaf("", "int"),), lambda text: [f"{text}.value"], lambda v: cls(v[0])
        )
    return Codec(
        (TorchLeaf("", "str"),), lambda text: [f"{text}.name"], lambda v: cls[v[0]]
    )
