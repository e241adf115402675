"""Measure everything and print the table; further arguments go to pytest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    here = str(Path(__file__).parent)
    sys.exit(pytest.main([here, "-p", "benchmark", "--benchmark-quiet", *sys.argv[1:]]))
