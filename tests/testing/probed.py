"""Functions to find inputs for, and the axes of a sample that must be found.

The functions check their arguments as careful ones do, with NumPy alone. `axes` names
the axes of the arrays of one sample that must be among those found: axes of one letter
are equal, those of different letters differ, digits are lengths.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np

import customop as co

Arr = np.ndarray
Case = tuple[Callable[..., Any], Callable[..., Any] | None, str]


def need(holds: object, text: str = "does not fit") -> None:
    if not holds:
        raise ValueError(text)


# ---- linear algebra ----


def matmul(x: Arr, y: Arr) -> Arr:
    need(x.ndim == 2)
    need(y.ndim == 2)
    return x @ y


def batched_matmul(a: Arr, b: Arr) -> Arr:
    return np.einsum("bij,bjk->bik", a, b)


def dot(x: Arr, y: Arr) -> Arr:
    need(x.ndim == 1)
    need(x.shape == y.shape)
    return np.asarray(np.dot(x, y))


def outer(x: Arr, y: Arr) -> Arr:
    need(x.ndim == y.ndim == 1)
    return np.outer(x, y)


def kron(a: Arr, b: Arr) -> Arr:
    need(a.ndim == b.ndim == 2)
    return np.kron(a, b)


def cholesky(x: Arr) -> Arr:
    return np.linalg.cholesky(x)


def solve(a: Arr, b: Arr) -> Arr:
    need(b.ndim == 1)
    return np.linalg.solve(a, b)


def inverse(x: Arr) -> Arr:
    return np.linalg.inv(x)


def bilinear(x: Arr, weight: Arr, y: Arr) -> Arr:
    need(x.ndim == y.ndim == 1)
    need(weight.ndim == 2)
    return np.asarray(x @ weight @ y)


def attention(q: Arr, k: Arr, v: Arr) -> Arr:
    need(q.ndim == k.ndim == v.ndim == 3)
    scores = np.einsum("bqd,bkd->bqk", q, k) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bqk,bkd->bqd", weights / weights.sum(-1, keepdims=True), v)


def mlp(x: Arr, w1: Arr, b1: Arr, w2: Arr, b2: Arr) -> Arr:
    need([a.ndim for a in (x, w1, b1, w2, b2)] == [2, 2, 1, 2, 1])
    need(b1.shape == w1.shape[1:])
    need(b2.shape == w2.shape[1:])
    return np.tanh(x @ w1 + b1) @ w2 + b2


# ---- lengths that an operator fixes ----


def cross(a: Arr, b: Arr) -> Arr:
    need(a.shape == b.shape)
    need(a.shape[-1:] == (3,), "last axis of length 3")
    return np.cross(a, b)


def quaternion_multiply(p: Arr, q: Arr) -> Arr:
    need(p.shape == q.shape)
    need(p.shape[-1:] == (4,), "quaternions have 4 components")
    a, b, c, d = np.moveaxis(p, -1, 0)
    e, f, g, h = np.moveaxis(q, -1, 0)
    parts = [a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g]
    parts += [a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e]
    return np.stack(parts, -1)


def rotate(rotation: Arr, points: Arr) -> Arr:
    need(rotation.shape == (3, 3))
    need(points.ndim == 2)
    need(np.allclose(rotation @ rotation.T, np.eye(3)), "no rotation")
    return points @ rotation.T


def homography(h: Arr, points: Arr) -> Arr:
    need(h.shape == (3, 3))
    need(points.ndim == 2)
    need(points.shape[1] == 2)
    ones = np.ones((len(points), 1))
    mapped = np.concatenate([points, ones], 1) @ h.T
    return mapped[:, :2] / (np.abs(mapped[:, 2:]) + 0.1)


def affine(matrix: Arr, points: Arr) -> Arr:
    need(matrix.shape == (4, 4))
    need(points.ndim == 2)
    need(points.shape[1] == 3)
    return points @ matrix[:3, :3].T + matrix[:3, 3]


def nms(boxes: Arr, scores: Arr, threshold: float = 0.5) -> Arr:
    need(boxes.ndim == 2)
    need(boxes.shape[1:] == (4,))
    need(scores.shape == boxes.shape[:1])
    return np.argsort(-scores, kind="stable")


def stairs(values: Arr, edges: Arr) -> Arr:
    need(values.ndim == edges.ndim == 1)
    need(len(edges) == len(values) + 1, "one edge more")
    return values * np.diff(edges)


# ---- signals ----


def conv1d(x: Arr, kernel: Arr) -> Arr:
    return np.convolve(x, kernel, "valid")


def conv2d(x: Arr, weight: Arr) -> Arr:
    need(x.ndim == weight.ndim == 4, "images and kernels have four axes")
    need(x.shape[1] == weight.shape[1], "channels differ")
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight)


def fft(x: Arr) -> Arr:
    return np.fft.fft(x)


def interp(x: Arr, xp: Arr, fp: Arr) -> Arr:
    need(np.all(np.diff(xp) > 0), "xp must increase")
    return np.interp(x, xp, fp)


def histogram(x: Arr, bins: int) -> Arr:
    return np.histogram(x, bins)[0]


def searchsorted(edges: Arr, x: Arr) -> Arr:
    need(edges.ndim == 1)
    need(np.all(edges[1:] >= edges[:-1]), "edges must be sorted")
    return np.asarray(np.searchsorted(edges, x))


def digitize(x: Arr, edges: Arr) -> Arr:
    return np.asarray(np.digitize(x, edges))


def resize(x: Arr, size: int) -> Arr:
    need(x.ndim == 1)
    need(size > 0)
    return x[np.arange(size) * len(x) // size]


# ---- indices, masks ----


def embedding(table: Arr, ids: Arr) -> Arr:
    need(table.ndim == 2)
    need(ids.dtype.kind == "i", "ids are whole numbers")
    return table[ids]


def gather(x: Arr, where_: Arr) -> Arr:
    return np.take_along_axis(x, where_, -1)


def one_hot(labels: Arr, n: int) -> Arr:
    need(labels.ndim == 1)
    out = np.zeros((len(labels), n))
    out[np.arange(len(labels)), labels] = 1.0
    return out


def segment_sum(values: Arr, segment_ids: Arr, num_segments: int) -> Arr:
    need(values.ndim == segment_ids.ndim == 1)
    need(len(values) == len(segment_ids))
    out = np.zeros(num_segments)
    np.add.at(out, segment_ids, values)
    return out


def cross_entropy(logits: Arr, labels: Arr) -> Arr:
    need(logits.ndim == 2)
    need(labels.shape == logits.shape[:1])
    picked = logits[np.arange(len(labels)), labels]
    return np.log(np.exp(logits).sum(-1)) - picked


def masked_mean(x: Arr, mask: Arr) -> Arr:
    need(mask.dtype == bool, "mask is of booleans")
    need(mask.shape == x.shape)
    return np.asarray(np.where(mask, x, 0.0).sum() / max(mask.sum(), 1))


def parity(x: Arr) -> Arr:
    need(x.dtype.kind in "iu", "whole numbers")
    return x & 1


def phase(z: Arr) -> Arr:
    need(z.dtype.kind == "c", "complex numbers")
    return np.angle(z)


def interference(z: Arr, w: Arr) -> Arr:
    need(z.dtype.kind == w.dtype.kind == "c", "complex numbers")
    need(z.shape == w.shape)
    return np.abs(z + w) ** 2


# ---- numbers that an operator wants ----


def log_checked(x: Arr) -> Arr:
    need((x > 0).all(), "positive numbers")
    return np.log(x)


def arcsin(x: Arr) -> Arr:
    return np.arcsin(x)


def arccosh(x: Arr) -> Arr:
    return np.arccosh(x)


def entropy(p: Arr) -> Arr:
    need(np.allclose(p.sum(-1), 1.0), "probabilities")
    return -(p * np.log(p)).sum(-1)


def clip(x: Arr, lo: float, hi: float) -> Arr:
    need(lo <= hi)
    return np.clip(x, lo, hi)


def huber(x: Arr, delta: float) -> Arr:
    need(delta > 0)
    return np.where(np.abs(x) < delta, 0.5 * x * x, delta * (np.abs(x) - 0.5 * delta))


def batch_norm(x: Arr, mean: Arr, var: Arr, eps: float = 1e-5) -> Arr:
    need(x.ndim == 2)
    need(mean.shape == var.shape == x.shape[1:])
    need((var > 0).all())
    return (x - mean) / np.sqrt(var + eps)


# ---- axes, shapes, lists ----


def softmax(x: Arr, axis: int) -> Arr:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def roll(x: Arr, shifts: int, axis: int) -> Arr:
    return np.roll(x, shifts, axis)


def permute(x: Arr, axes: list[int]) -> Arr:
    return np.transpose(x, axes).copy()


def reshape(x: Arr, shape: list[int]) -> Arr:
    return x.reshape(shape).copy()


def tile(x: Arr, times: tuple[int, ...]) -> Arr:
    return np.tile(x, times)


def stack(arrays: list[np.ndarray], axis: int = 0) -> Arr:
    return np.stack(arrays, axis)


def concat(arrays: list[np.ndarray], axis: int) -> Arr:
    return np.concatenate(arrays, axis)


def pad(x: Arr, widths: list[tuple[int, int]]) -> Arr:
    need(len(widths) == x.ndim)
    return np.pad(x, widths)


def top_k(x: Arr, k: int) -> Arr:
    need(0 < k <= x.shape[-1])
    return np.sort(x, -1)[..., -k:].copy()


def group_norm(x: Arr, groups: int) -> Arr:
    need(x.ndim == 2)
    need(x.shape[1] % groups == 0)
    parts = x.reshape(len(x), groups, -1)
    return (parts - parts.mean(-1, keepdims=True)).reshape(x.shape)


# ---- optional arguments, and arguments that are not arrays ----


def layer_norm(x: Arr, weight: Arr | None = None, bias: Arr | None = None) -> Arr:
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    y = (x - mean) / np.sqrt(var + 1e-5)
    for a in (weight, bias):
        need(a is None or a.shape == x.shape[-1:])
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def bias_add(x: Arr, bias: Arr) -> Arr:
    need(bias.shape == x.shape[-1:])
    return x + bias


def dropout(x: Arr, p: float, rng: np.random.Generator) -> Arr:
    need(0 <= p < 1)
    return np.where(rng.random(x.shape) < p, 0.0, x / (1 - p))


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Arr:
    return rng.normal(size=shape)


def cast(x: Arr, dtype: co.DType) -> Arr:
    need(np.dtype(dtype).kind == "f")
    return x.astype(dtype)


def reduce(x: Arr, how: Literal["sum", "mean"]) -> Arr:
    return np.asarray(x.sum() if how == "sum" else x.mean())


class Side(enum.Enum):
    LEFT = "left"
    RIGHT = "right"


def one_sided(x: Arr, side: Side) -> Arr:
    need(isinstance(side, Side))
    return x[..., ::-1].copy() if side is Side.RIGHT else x.copy()


@dataclass(frozen=True)
class Window:
    taps: np.ndarray
    shift: int = 0
    gain: float = 1.0


def smooth(x: Arr, window: Window) -> Arr:
    need(x.ndim == 1)
    need(window.taps.ndim == 1)
    full = np.convolve(x, window.taps, "full")
    return window.gain * np.roll(full, window.shift)


class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray


def pair_sum(pair: Pair) -> Arr:
    need(pair.first.shape == pair.second.shape)
    return pair.first + pair.second


class Limits(TypedDict):
    low: float
    high: float


def squeeze_into(x: Arr, limits: Limits) -> Arr:
    need(limits["low"] < limits["high"])
    return np.clip(x, limits["low"], limits["high"])


def weighted(parts: dict[str, np.ndarray]) -> Arr:
    need(len(parts) == 2)
    a, b = parts.values()
    need(a.shape == b.shape)
    return a - b


def split_pair(xs: tuple[np.ndarray, np.ndarray]) -> Arr:
    need(xs[0].ndim == xs[1].ndim == 2)
    return xs[0] @ xs[1]


def polynomial(x: Arr, coefficients: list[float]) -> Arr:
    need(coefficients)
    return np.polyval(coefficients, x)


def scale(x: Arr, factor: co.Scalar) -> Arr:
    return x * factor


def indexed(x: Arr, places: list[np.ndarray | None]) -> Arr:
    need(places)
    key = tuple(slice(None) if p is None else p for p in places)
    return np.array(x[key])


# Each with the fake kernel that a careful author writes, or None; and the axes.
def same(_x: Any, *_: Any) -> Any:
    return co.fake_like(_x)


def _fake_matmul(x: Any, y: Any) -> Any:
    need(x.ndim == y.ndim == 2)
    need(x.shape[1] == y.shape[0])
    return co.fake_like(x, shape=(x.shape[0], y.shape[1]))


def _fake_batched(a: Any, b: Any) -> Any:
    (n, i, j), (m, h, k) = a.shape, b.shape
    need((n, j) == (m, h))
    return co.fake_like(a, shape=(n, i, k))


def _fake_attention(q: Any, k: Any, v: Any) -> Any:
    (b, n, d), (c, m, e), (f, h, g) = q.shape, k.shape, v.shape
    need(b == c == f)
    need(d == e)
    need(m == h)
    return co.fake_like(q, shape=(b, n, g))


def _fake_conv2d(x: Any, weight: Any) -> Any:
    (n, c, h, w), (o, d, i, j) = x.shape, weight.shape
    need(c == d)
    return co.FakeArray((n, o, h - i + 1, w - j + 1), x.dtype)


def _fake_embedding(table: Any, ids: Any) -> Any:
    need(table.ndim == 2)
    return co.FakeArray((*ids.shape, table.shape[1]), table.dtype)


def _fake_mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    need(x.shape[1:] == w1.shape[:1])
    need(w1.shape[1:] == b1.shape == w2.shape[:1])
    need(w2.shape[1:] == b2.shape)
    return co.FakeArray((x.shape[0], w2.shape[1]), x.dtype)


def _fake_solve(a: Any, b: Any) -> Any:
    need(a.ndim == 2)
    need(a.shape == (b.shape[0],) * 2)
    return co.fake_like(b)


def _fake_quaternion(p: Any, q: Any) -> Any:
    need(p.shape == q.shape)
    need(p.shape[-1] == 4)
    return co.FakeArray(p.shape, p.dtype)


CASES: dict[str, Case] = {
    fn.__name__: (fn, fake, axes)
    for fn, fake, axes in [
        (matmul, _fake_matmul, "ab,bc"),
        (batched_matmul, _fake_batched, "abc,acd"),
        (dot, None, "a,a"),
        (outer, None, "a,b"),
        (kron, None, "ab,cd"),
        (cholesky, same, "aa"),
        (solve, _fake_solve, "aa,a"),
        (inverse, same, "aa"),
        (bilinear, None, "a,ab,b"),
        (attention, _fake_attention, "abc,adc,ade"),
        (mlp, _fake_mlp, "ab,bc,c,cd,d"),
        (cross, same, "3,3"),
        (quaternion_multiply, _fake_quaternion, "a4,a4"),
        (rotate, None, "33,a3"),
        (homography, None, "33,a2"),
        (affine, None, "44,a3"),
        (nms, None, "a4,a"),
        (stairs, None, "3,4"),
        (conv1d, None, "a,b"),
        (conv2d, _fake_conv2d, "2233,2223"),
        (fft, None, "ab"),
        (interp, None, "a,b,b"),
        (histogram, None, "a"),
        (searchsorted, None, "a,b"),
        (digitize, None, "a,b"),
        (resize, None, "a"),
        (embedding, _fake_embedding, "ab,c"),
        (gather, None, "ab,ac"),
        (one_hot, None, "a"),
        (segment_sum, None, "a,a"),
        (cross_entropy, None, "ab,a"),
        (masked_mean, None, "ab,ab"),
        (parity, same, "a"),
        (phase, None, "ab"),
        (interference, None, "ab,ab"),
        (log_checked, same, "ab"),
        (arcsin, same, "ab"),
        (arccosh, same, "ab"),
        (entropy, None, "ab"),
        (clip, same, "ab"),
        (huber, same, "ab"),
        (batch_norm, same, "ab,b,b"),
        (softmax, same, "ab"),
        (roll, same, "ab"),
        (permute, None, "ab"),
        (reshape, None, "33"),
        (tile, None, "ab"),
        (stack, None, "ab,ab"),
        (concat, None, "ab,ac"),
        (pad, None, "ab"),
        (top_k, None, "ab"),
        (group_norm, same, "ab"),
        (layer_norm, same, "ab,b,b"),
        (bias_add, same, "ab,b"),
        (dropout, same, "ab"),
        (normal, None, ""),
        (cast, None, "ab"),
        (reduce, None, "ab"),
        (one_sided, same, "ab"),
        (smooth, None, "a,b"),
        (pair_sum, None, "ab,ab"),
        (squeeze_into, same, "ab"),
        (weighted, None, "ab,ab"),
        (split_pair, None, "ab,bc"),
        (polynomial, None, "ab"),
        (scale, same, "ab"),
        (indexed, None, "ab,c"),
    ]
}
