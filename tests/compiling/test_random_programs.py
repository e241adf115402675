"""Random NumPy programs, compiled and compared with eager runs to the last bit."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.compiling.programs import (
    BINARY,
    COPIES,
    UNARY,
    VIEWS,
    WRITES,
    Program,
    differences,
)

SIZES: tuple[Mapping[int, int], ...] = ({}, {4: 5}, {4: 5, 3: 2}, {4: 6, 3: 7}, {4: 1})


def found_wrong(program: Program, backend: str = "numpy") -> list[str]:
    """What differs in some of six calls of the compiled program."""
    compiled = co.compile(program.fn, backend=backend)
    for errors in ("warn", "ignore", "raise"):
        for _ in range(2):
            wrong = differences(program, compiled, errors)
            if wrong:
                return [f"{program.text} under errstate {errors}", *wrong]
    return []


def wrong_sizes(seed: int, backend: str = "numpy") -> list[str]:
    """What differs for arguments of other lengths."""
    program = Program(seed, others=("2.5", "scale"), lines=6)
    compiled = co.compile(program.fn, backend=backend)
    for lengths in (*SIZES, *SIZES):
        wrong = differences(program, compiled, "ignore", lengths=lengths)
        if wrong:
            return [f"{program.text} for {lengths}", *wrong]
    return []


def check(results: list[list[str]]) -> None:
    """Nothing differs, and few programs are refused."""
    refused = [r for r in results if r and r[1].startswith("refused")]
    assert [r for r in results if r and r not in refused] == []
    assert len(refused) < 0.15 * len(results)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    """Capturing may warn, too: about what is computed of constants."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_random_programs() -> None:
    check([found_wrong(Program(seed)) for seed in range(40)])


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["numpy", "native", "eager"])
def test_many_random_programs(backend: str) -> None:
    check([found_wrong(Program(seed), backend) for seed in range(1000, 1250)])


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_random_programs_that_mostly_write(backend: str) -> None:
    kinds = ((WRITES, 6), (VIEWS, 3), (UNARY, 2), (BINARY, 2), (COPIES, 1))
    programs = (Program(s, kinds=kinds, lines=12) for s in range(4000, 4150))
    check([found_wrong(program, backend) for program in programs])


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_random_programs_of_other_sizes(backend: str) -> None:
    check([wrong_sizes(seed, backend) for seed in range(2000, 2150)])


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_random_programs_in_threads(backend: str) -> None:
    """Eight threads call each program with numbers and lengths of their own."""
    wrong: list[str] = []

    def work(program: Program, compiled: Any, number: int) -> None:
        with np.errstate(all="ignore"):
            for k in range(12):
                args = program.arguments(number, SIZES[k % 3])
                again = program.arguments(number, SIZES[k % 3])
                if repr(compiled(*args)) != repr(program.fn(*again)):
                    wrong.append(program.text)

    programs = [Program(seed, others=("2.5",)) for seed in range(3000, 3060)]
    for program in programs:
        if wrong_sizes(program.seed):  # refused, or it raises
            continue
        compiled = co.compile(program.fn, backend=backend)
        threads = [
            threading.Thread(target=work, args=(program, compiled, n)) for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
