"""Measure everything and print the table; further arguments go to pytest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# In one process: other workers would disturb the measurement.
_ALONE = ("-p", "benchmark", "-n", "0")

if __name__ == "__main__":
    here = str(Path(__file__).parent)
    sys.exit(pytest.main([here, *_ALONE, "--benchmark-quiet", *sys.argv[1:]]))
