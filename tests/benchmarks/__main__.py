"""Measure everything and print the table; further arguments go to pytest.

With ``--update`` first, the run is stored too, and the figures in the pages are its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pages
import pytest

# In one process: other workers would disturb the measurement.
_ALONE = ("-p", "benchmark", "-n", "0")

if __name__ == "__main__":
    here, arguments = str(Path(__file__).parent), sys.argv[1:]
    update = arguments[:1] == ["--update"]
    if update:
        arguments[:1] = ["--benchmark-json-table", str(pages.RUN)]
    code = pytest.main([here, *_ALONE, "--benchmark-quiet", *arguments])
    if update and code == 0:
        pages.update()
    sys.exit(code)
