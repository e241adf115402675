"""``python -m customop``: the command line."""

from __future__ import annotations

import sys

from customop.cli import main

if __name__ == "__main__":
    sys.exit(main())
