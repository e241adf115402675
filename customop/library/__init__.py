"""How users make operators and register by name: `custom_op`, `define`, `Library`, `ops`.

May import `core` and the folders below it. Start with `define`, then `register`
(by name) and `library` (registrations that can be removed).
"""

import sys
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        public = name in sys.modules["customop"].__all__
        advice = f"\n  do: write co.{name}, after import customop as co"
        raise AttributeError(
            f"module 'customop.library' has no attribute '{name}'{advice * public}"
        )
