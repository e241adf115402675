"""Calls by `ops` that are right, as both checkers see with the stubs."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

import numpy as np
import numpy.typing as npt
from signals import Edge, Parts, Window

import customop as co
from customop.transforms.vmap_interpreter import BatchTracer

F64 = npt.NDArray[np.float64]
signals = co.ops.signals


def packets(x: F64, y: npt.NDArray[np.float32], fake: co.FakeArray) -> None:
    assert_type(signals.scale(x), F64)
    assert_type(signals.scale(y, factor=3), npt.NDArray[np.float32])
    assert_type(signals.scale(fake, 2.0), co.FakeArray)
    assert_type(signals.mean(y), npt.NDArray[np.float32])
    assert_type(signals.cut(x, 1, 2, limits={"start": 0, "stop": 1}), F64)
    assert_type(signals.smooth(x, Window(), "mean", edge=Edge.WRAP), F64)
    assert_type(signals.split([x, x], {"a": x}), Parts)
    assert_type(signals.split((x, x), {}).low, F64)
    signals.fill(x, 1j, dtype=np.float32)
    assert_type(signals.noise([3], device="cpu"), tuple[F64, list[F64]])


def overloads(x: F64) -> None:
    assert_type(signals.shift(x, x), F64)
    assert_type(signals.shift(x, 1), npt.NDArray[np.int64])
    assert_type(signals.shift(x, 1.0), F64)
    assert_type(signals.shift.int(x, 1), npt.NDArray[np.int64])
    assert_type(signals.shift.default(x, by=x), F64)
    assert_type(signals.turn(x, 90.0), F64)
    assert_type(signals.turn(self=x, by=90.0), F64)
    assert_type(signals.turn.degrees(x, 90.0), F64)


def operators(x: F64) -> None:
    assert_type(signals.scale.default(x, 3.0), F64)
    assert_type(signals.scale.default.call(x, 3.0), F64)
    assert_type(signals.scale.resolve(x)(x, 3.0), F64)
    assert_type(signals.scale.overloads(), list[str])
    assert_type(signals.scale.qualname, str)
    co.register_fake(signals.cut, cut_fake)
    co.register_fake(signals.shift.int, shift_fake)


def cut_fake(x: co.FakeArray, at: int, step: int, *, limits: object) -> co.FakeArray:
    return co.fake_like(x)


def shift_fake(x: co.FakeArray, by: int) -> co.FakeArray:
    return co.fake_like(x, dtype=np.int64)


def transforms(x: F64) -> None:
    """The rest of customop is as it is without the stubs."""
    assert_type(co.vmap(signals.scale)(x), F64)
    assert_type(co.grad(signals.scale.default)(x), F64)
    tracers: list[BatchTracer] = []
    assert not tracers


def others(x: F64) -> None:
    """Namespaces without stubs stay open."""
    packet: co.OperatorPacket = co.ops.np.sin
    op: co.Operator[..., object] = packet.default
    assert op.namespace == "np"
    assert packet(x) is not None


ones, singles = np.ones(3), np.ones(3, np.float32)
for check in (overloads, operators, others):
    check(ones)
packets(ones, singles, co.fake_like(ones)) if TYPE_CHECKING else None
