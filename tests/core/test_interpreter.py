"""Modes that are opened and closed, also where an interrupt comes between."""

import pytest

import customop as co
from customop.core.interpreter import current_mode
from customop.core.observe import open_modes


def _interrupted() -> None:
    with co.FakeMode():
        co.FakeMode().__enter__()  # its block does not begin
        raise KeyboardInterrupt


def _closed_too_early() -> None:
    with co.FakeMode() as outer:
        co.FakeMode().__enter__()
        outer.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("program", "error"),
    [(_interrupted, KeyboardInterrupt), (_closed_too_early, co.RegistrationError)],
)
def test_an_error_leaves_no_mode_open(
    program: object, error: type[BaseException]
) -> None:
    """An interrupt may come after a mode was opened and before its block has begun."""
    assert callable(program)
    with pytest.raises(error):
        program()
    assert current_mode.get() is None
    assert not open_modes
