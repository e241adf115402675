"""Graph files that are broken at random: in their bytes, and in the JSON inside."""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from collections.abc import Iterator
from typing import Any

# What takes the place of a value in the JSON.
ODD: list[Any] = [
    *(None, True, -1, 0, 1, 7, 2**40, 2**70, 1.5, -0.0, "", "x", "s0", "__import__"),
    *([], {}, [[]], [None], {"node": 0}, {"node": 99}, {"tuple": []}, {"size": 0}),
    *({"dict": [[{"dict": []}, 1]]}, {"int": "0x" + "f" * 300}, {"float": "nan"}),
    *({"object": [0, [], None]}, {"member": [0, ["x"]]}, {"graph": 0}, {"leaf": None}),
    *({"fake": {"shape": [2**62], "dtype": "<f8"}}, "<f8", "|O", "O", "<U999999999"),
    *({"slice": [1, 2, 3]}, {"deque": [0, [1]]}, {"range": [0, 1, 0]}, [10**12]),
    *("arrays/0.npy", "../../etc/passwd", "np::sin", "call", "output", "constant"),
]


def parts_of(data: bytes) -> dict[str, bytes]:
    """The parts of a zip."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of these parts."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        for name, data in parts.items():
            made.writestr(name, data)
    return file.getvalue()


def broken_bytes(data: bytes, rng: random.Random) -> bytes:
    """A file with some bytes changed, cut off, repeated or taken out."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, end = sorted(rng.randrange(len(found) + 1) for _ in range(2))
        way = rng.randrange(6)
        if way == 0:
            del found[at:]
        elif way == 1:
            del found[at : min(end, at + 9)]
        elif way == 2:
            found[at:at] = found[at : min(end, at + 50)]
        else:
            for _ in range(rng.choice((1, 4))):
                if found:
                    # Most of a zip that is not checked by a sum is at its end.
                    near = len(found) - 1 - int(rng.random() ** 2 * len(found))
                    found[max(near, 0)] = rng.choice((0, 255, rng.randrange(256)))
        if not found:
            break
    return bytes(found)


def broken_json(data: bytes, rng: random.Random) -> bytes:
    """A file with some values of its JSON replaced, swapped, taken out or repeated."""
    parts = parts_of(data)
    document = json.loads(parts["graph.json"])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = rng.choice([*_places(document)])
        way = rng.randrange(6)
        if way == 0:
            del holder[key]
        elif way == 1:
            other, its_key = rng.choice([*_places(document)])
            holder[key] = copy.deepcopy(other[its_key])
        elif way == 2 and isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
        elif way == 3 and isinstance(holder[key], int):
            holder[key] += rng.choice((-1, 1, 1000))
        else:
            holder[key] = copy.deepcopy(rng.choice(ODD))
    parts["graph.json"] = json.dumps(document).encode()
    return zipped(parts)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where values are in JSON: a list or dict, and an index or key."""
    if isinstance(value, dict | list):
        keys = [*value] if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield value, key
            yield from _places(value[key])
