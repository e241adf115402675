"""Settings of the package."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import customop as co
from customop.config import Config


@pytest.fixture
def settings() -> Config:
    return Config()


@pytest.fixture
def checks() -> Iterator[None]:
    before = co.config.checks
    yield
    co.config.checks = before


def test_the_first_call_is_checked_by_default(settings: Config) -> None:
    """By default, a kernel's contract is checked on its first call."""
    assert settings.checks == "first"


@pytest.mark.parametrize("value", ["first", "always", "never"])
def test_each_setting_is_taken(settings: Config, value: str) -> None:
    """The setting accepts its three values."""
    settings.checks = value
    assert repr(settings) == (
        f"config(checks={value!r}, aliasing='error', sample_checks=0.0,"
        " sample_seed=None, on_failure='error', check_nans=False,"
        " compile_threads=None, opcheck_seconds=10.0, opcheck_memory=1073741824,"
        " adapt=False)"
    )


@pytest.mark.parametrize("value", ["sometimes", 3, None, ["first"]])
def test_a_refused_setting_changes_nothing(settings: Config, value: object) -> None:
    """Another value raises and leaves the setting unchanged."""
    settings.checks = "never"
    with pytest.raises(co.ArgumentError):
        settings.checks = value  # type: ignore[assignment]
    assert settings.checks == "never"


@pytest.mark.parametrize("name", ["opcheck_seconds", "opcheck_memory"])
@pytest.mark.parametrize("value", [0, -1, "many", True, float("nan")])
def test_bounds_of_opcheck_are_positive(
    settings: Config, name: str, value: object
) -> None:
    """The bounds of opcheck take numbers above 0 only."""
    setattr(settings, name, 20)
    assert getattr(settings, name) == 20
    with pytest.raises(co.ArgumentError, match="must be a number above 0"):
        setattr(settings, name, value)
    assert getattr(settings, name) == 20


def test_listeners_hear_of_each_change(settings: Config) -> None:
    """Listeners are called once for each change."""
    seen: list[str] = []
    settings.on_change(lambda: seen.append(settings.checks))
    settings.checks = "always"
    settings.checks = "never"
    assert seen == ["always", "never"]


def test_a_misspelt_setting_is_an_error(settings: Config) -> None:
    """An unknown setting can be neither read nor set, and near names are offered."""
    with pytest.raises(co.UnknownNameError) as read:
        settings.check  # type: ignore[attr-defined]
    with pytest.raises(co.UnknownNameError) as written:
        settings.check = "never"  # type: ignore[attr-defined]
    assert str(written.value) == str(read.value)
    assert str(read.value) == (
        "config has no setting 'check' (did you mean 'checks'?)\n"
        "  do: use one of 'adapt', 'aliasing', 'check_nans', 'checks', 'compile_threads',"
        " 'on_failure', 'opcheck_memory', 'opcheck_seconds', 'sample_checks',"
        " 'sample_seed'"
    )


@pytest.mark.usefixtures("checks")
def test_always_proves_each_call() -> None:
    """Under "always" a kernel that breaks its contract later is still caught."""
    calls: list[int] = []

    @co.custom_op("config_test::turncoat", mutates_args=())
    def turncoat(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return x.copy() if len(calls) == 1 else x

    co.config.checks = "always"
    turncoat(np.zeros(2))
    with pytest.raises(co.ContractError):
        turncoat(np.zeros(2))


@pytest.mark.usefixtures("checks")
def test_never_proves_nothing() -> None:
    """Under "never" a kernel may return its argument."""

    @co.custom_op("config_test::same", mutates_args=())
    def same(x: np.ndarray) -> np.ndarray:
        return x

    co.config.checks = "never"
    x = np.zeros(2)
    assert same(x) is x


def test_the_number_of_threads_of_compiled_functions(settings: Config) -> None:
    """A number from one on, or None for as many as there are processors."""
    settings.compile_threads = 3
    assert settings.compile_threads == 3
    for value in (0, 1.5, True, "2"):
        with pytest.raises(co.ArgumentError) as error:
            settings.compile_threads = value  # type: ignore[assignment]  # on purpose
        assert str(error.value) == (
            f"config.compile_threads is {value!r}, must be an int above 0 or None\n"
            "  do: set it to 1 for no more threads, None for one for each processor"
        )
    settings.compile_threads = None
    assert settings.compile_threads is None
