"""Random number generators in a graph file: the state of NumPy's bit generators.

NumPy does not check a state that it is given, and reads outside of its memory where a
position is too large. So each number is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.errors import GraphFileError, shown
from customop.graph.files.fields import as_entries, as_integer, as_list

__all__ = ["read_generator", "written_generator"]

# Name of a bit generator -> the entries of its state, each with the number that its
# values stay below; and for an array its length.
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
    """The JSON of a generator.

    Raises
    ------
    ValueError
        If it is not one of NumPy's own.
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
    if type(seed) is np.random.SeedSequence:  # what its spawn() goes on from
        entropy: Any = seed.entropy
        found["seed"] = {
            "entropy": _plain(entropy),
            "spawn_key": _plain(seed.spawn_key),
            "pool_size": seed.pool_size,
            "children": seed.n_children_spawned,
        }
    return found


def _plain(value: Any) -> Any:
    """Numbers as JSON: those above 64 bits as hexadecimal text."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(item) for item in value]
    if value is None:
        return None
    number = int(value)
    return number if abs(number) < 2**63 else hex(number)


def read_generator(written: Any) -> np.random.Generator:
    """The generator of its JSON."""
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
