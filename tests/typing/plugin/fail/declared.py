"""Kernels and rules for operators that are defined by a schema alone."""

from __future__ import annotations

import numpy as np

import customop as co


def scale(x: np.ndarray, k: float) -> np.ndarray:
    return x * k


def wrong_name(x: np.ndarray, by: float) -> np.ndarray:
    return x * by


def wrong_number(x: np.ndarray) -> np.ndarray:
    return x


def wrong_type(x: np.ndarray, k: str) -> np.ndarray:  # plugin: customop-kernel
    return x


library = co.Library("plugin_declared", "FRAGMENT")
library.define("scale(Array x, float k) -> Array")
library.impl("scale", scale)
library.impl("scale", scale, "CPU")
library.impl("scale", wrong_name, "CPU")  # plugin: customop-kernel
library.impl("scale", wrong_number, "CPU")  # plugin: customop-kernel
library.impl("scale", wrong_number)  # plugin: customop-kernel
library.impl("scale", wrong_type, "CPU")
library.impl("plugin_declared::scale", lambda x: x, "CUDA")  # plugin: customop-kernel

with co.Library("plugin_declared_with", "DEF") as opened:
    opened.define("scale(Array x, float k=1.0) -> Array")
    opened.impl("scale", scale, "CPU")
    opened.impl("scale", wrong_number, "CPU")  # plugin: customop-kernel


def inside() -> None:
    local = co.Library("plugin_declared_local", "DEF")
    local.define("scale(Array x, float k=1.0) -> Array")
    local.impl("scale", scale, "CPU")
    local.impl("scale", wrong_name, "CPU")  # plugin: customop-kernel


co.define("plugin_declared::halve", "(Array x) -> Array")
co.impl("plugin_declared::halve", "CPU", wrong_number)
co.impl("plugin_declared::halve", "CPU", scale)  # plugin: customop-kernel
co.register_kernel("plugin_declared::halve", "cpu", scale)  # plugin: customop-kernel
kept = co.define("plugin_declared::kept", "(Array x, float k) -> Array")
kept.register_kernel("cpu", scale)
kept.register_kernel("cpu", wrong_number)  # plugin: customop-kernel


@co.custom_op("plugin_declared::made", mutates_args=())
def made(x: np.ndarray, k: float) -> np.ndarray:
    return x * k


library.impl("made", scale, "CPU")
library.impl("made", wrong_number, "CPU")  # plugin: customop-kernel
library.impl("made", wrong_type, "CPU")  # plugin: customop-kernel
library.impl("made", wrong_type)  # plugin: customop-kernel
