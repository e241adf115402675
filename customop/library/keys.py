"""Torch's names of dispatch keys, and the kinds that they mean here."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from customop.arrays.kinds import DEFAULT, FAKE, is_known_device, known_kinds
from customop.core.kinds import AUTOGRAD, COMPOSITE, JVP, VMAP
from customop.core.rule_kind import RuleKind
from customop.errors import RegistrationError, quoted, shown
from customop.later import later

__all__ = ["KEYS", "kind_of_key"]

difflib: ModuleType = later(import_module, "difflib")

KEYS: dict[str, str | RuleKind] = {
    "CPU": "cpu",
    "CUDA": "cuda",
    "Meta": FAKE,
    "Fake": FAKE,
    "default": DEFAULT,
    "CompositeExplicitAutograd": DEFAULT,
    "CompositeImplicitAutograd": COMPOSITE,
    "composite": COMPOSITE,
    "Autograd": AUTOGRAD,
    "FuncTorchBatched": VMAP,
    "vmap": VMAP,
    "jvp": JVP,
}
_BY_LOWER = {name.lower(): kind for name, kind in KEYS.items()}


def kind_of_key(what: str, key: Any) -> str | RuleKind:
    """Return the kind that a dispatch key names; letter case does not matter."""
    if isinstance(key, RuleKind) or (isinstance(key, str) and key in known_kinds()):
        return key
    found = _BY_LOWER.get(key.lower()) if isinstance(key, str) else None
    if found is None and isinstance(key, str) and is_known_device(key):
        return key
    if found is None:
        names = [*KEYS, *(k for k in known_kinds() if k.lower() not in _BY_LOWER)]
        lower = {name.lower(): name for name in names}
        close = (
            difflib.get_close_matches(key.lower(), lower)
            if isinstance(key, str)
            else ()
        )
        near = f" (did you mean '{lower[close[0]]}'?)" if close else ""
        raise RegistrationError(
            f"{what}: unknown dispatch key {shown(key)}{near}",
            f"known: {quoted(names)}",
            do="use a known one, a RuleKind, or register_array_type first",
        )
    return found
