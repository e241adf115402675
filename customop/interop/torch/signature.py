"""The schema of an operator in torch's words, and the functions between the two."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from customop.core.table import RuleTable
from customop.errors import RegistrationError
from customop.interop.torch.codec import Codec, TorchLeaf, Untranslatable, codec_of
from customop.interop.torch.framework import torch
from customop.schema.parameters import KEYWORD_ONLY, MISSING, Parameter
from customop.schema.schema import Schema

__all__ = ["Signature", "signature_of"]


class Signature(NamedTuple):
    """The signature for torch: leaves in place of parameters and results.

    Attributes
    ----------
    leaves, outputs : tuple of TorchLeaf
        Those of all parameters, and of all results.
    text : str
        The schema in torch's grammar, without a name.
    is_same : bool
        Whether calls of the operator and of torch's are written in the same way.
    arguments : callable
        Positional and keyword arguments of the operator, of the values of all leaves.
    values : callable
        Values of all leaves, of the arguments that torch gives; defaults filled in.
    results : callable
        Values of all output leaves, in a list, of the result of the operator.
    joined : callable
        The result of the operator, of the values of all output leaves.
    source, kernel : str
        Code of a function with the parameters of the operator, which calls torch's as
        `_torch`; and of a kernel for torch, which calls the operator as `_op`.
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
        """How many values torch's operator returns: "", "one" or "many"."""
        return ("", "one", "many")[min(len(self.outputs), 2)]

    def split(self, values: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Positional and keyword arguments of torch's operator, of all leaves."""
        if not self.keyword_count:
            return values, {}
        at = len(values) - self.keyword_count
        names = [leaf.name for leaf in self.leaves[at:]]
        return values[:at], dict(zip(names, values[at:], strict=True))


def signature_of(op: RuleTable) -> Signature:
    """The signature of an operator for torch.

    Raises
    ------
    RegistrationError
        If torch has nothing for one of its types.
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
    """Whether results are the written arguments, which torch wants to see no more."""
    schema = op.schema
    return bool(schema.written) and any(
        r.alias is not None and r.alias.is_write for r in schema.returns
    )


def _written(rows: Sequence[tuple[Parameter, Codec]]) -> tuple[int, ...]:
    """Positions of the leaves that the operator writes."""
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
    # Torch wants defaults last, so one that it cannot write takes those before away.
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
    """Whether torch can write the default of a parameter, if it has one."""
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


# ---- functions between the two, generated ----


def _arguments(
    rows: Sequence[tuple[Parameter, Codec]],
) -> Callable[..., tuple[list[Any], dict[str, Any]]]:
    """Make the function that joins leaves, arrays in place of tensors, to arguments."""
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
    """Parameters of a function that torch calls, and the values of their defaults."""
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
            else:  # torch gives it always
                needs = has_default and not has_star
                texts.append(f"{leaf.name}=None" if needs else leaf.name)
    return texts, defaults


def _values(rows: Sequence[tuple[Parameter, Codec]]) -> Callable[..., tuple[Any, ...]]:
    """Make the function that gives the values of all leaves of a call by torch."""
    texts, found = _head(rows)
    names = [leaf.name for p, codec in rows for leaf in _named(p.name, codec)]
    listed = "".join(f"{name}, " for name in names)
    source = f"def values({', '.join(texts)}):\n    return ({listed})"
    exec(source, found)  # noqa: S102  # names of parameters, which are identifiers
    return found["values"]  # type: ignore[no-any-return]  # the function defined above


def _kernel(
    op: RuleTable, rows: Sequence[tuple[Parameter, Codec]], outs: Sequence[Codec]
) -> str:
    """Code of a kernel: tensors to arrays, the operator, arrays to tensors."""
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
    """The text of a leaf as the operator takes it; `array` makes one of a tensor."""
    name = leaf.name
    if not leaf.is_array:
        kind = leaf.type.removesuffix("?").removesuffix("[]")
        return f"_plain({name})" if kind in ("ScalarType", "Device") else name
    item = f"{array}(v)"
    if "?[]" in leaf.type:
        item = f"(None if v is None else {item})"
    text = f"[{item} for v in {name}]" if leaf.is_list else f"{array}({name})"
    return f"(None if {name} is None else {text})" if leaf.type.endswith("?") else text


# How numbers are given to torch, which takes none of NumPy.
_NUMBERS = {"SymInt": "int", "int": "int", "float": "float", "bool": "bool"}


def _raised(leaf: TorchLeaf, text: str, is_copied: bool) -> str:
    """The text of a result as torch takes it."""
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
    """Make the function that joins output leaves to a result."""
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
    """Make the function that takes a result apart into output leaves."""
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
    """Code of a function with the parameters of the operator, which calls torch's."""
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
