"""An interrupt leaves no mode open and no lock taken."""

from __future__ import annotations

import subprocess
import sys

import pytest

import customop as co
from customop.core.interpreter import current_mode
from customop.core.observe import open_modes


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["places", "times"])
def test_random_interrupts(how: str) -> None:
    """After an interrupt nothing is open, and the next call is right."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.interrupts", "0", "250", how],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_mode_that_does_not_open() -> None:
    """A mode whose opening raises is closed again."""

    class Broken(co.FakeMode):
        def _on_open(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Broken():
        pass
    assert current_mode.get() is None
    assert not open_modes
