"""Samples of products of matrices and arrays, and of norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.samples import Sample

_rng = np.random.default_rng(37)


def _real(*shape: int) -> Any:
    size = _rng.uniform(0.2, 1.5, shape)
    return np.asarray(size * _rng.choice([-1.0, 1.0], shape))


def _complex(*shape: int) -> Any:
    return _real(*shape) + 1j * _real(*shape)


# Shapes of the factors of a matrix product.
_MATMUL = (
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 2)),
    ((2, 2, 3), (2, 3, 2)),
    ((2, 3), (5, 3, 2)),
    ((5, 2, 3), (3, 2)),
    ((2, 1, 2, 3), (4, 3, 2)),
    ((1, 2, 3), (4, 3, 1)),
)
_DOT = (
    ((), ()),
    ((), (2, 3)),
    ((3,), ()),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3, 2)),
    ((2, 2, 3), (3,)),
    ((2, 3), (2, 3, 2)),
    ((2, 2, 3), (3, 3, 2)),
)
_INNER = (
    ((3,), (3,)),
    ((2, 3), (4, 3)),
    ((2, 3), (3,)),
    ((2, 1, 3), (2, 3)),
    ((), (2,)),
)
_TENSORDOT: tuple[tuple[Any, Any, Any], ...] = (
    ((2, 3), (3, 4), 1),
    ((2, 3), (2, 3), 2),
    ((2,), (3,), 0),
    ((2, 3, 4), (4, 3), ((1, 2), (1, 0))),
    ((2, 3, 4), (3, 2, 5), ((0, -2), (-2, 0))),
    ((4, 2, 3), (5, 4), (0, 1)),
)
_EINSUM: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("ij,jk", ((2, 3), (3, 4))),
    ("ij->ji", ((2, 3),)),
    ("ba", ((2, 3),)),
    ("ij->", ((2, 3),)),
    ("ij->j", ((2, 3),)),
    ("ii->i", ((3, 3),)),
    ("ii", ((3, 3),)),
    ("iij->ij", ((2, 2, 3),)),
    ("iji->j", ((2, 3, 2),)),
    ("i,j->ij", ((2,), (3,))),
    ("i,i->", ((3,), (3,))),
    ("ij,j->i", ((2, 3), (3,))),
    ("bij,bjk->bik", ((2, 2, 3), (2, 3, 2))),
    ("ij,jk,kl->il", ((2, 3), (3, 2), (2, 4))),
    ("i,ij,j->", ((2,), (2, 3), (3,))),
    ("ij,kl->ik", ((2, 3), (2, 4))),
    ("ii,ij->j", ((2, 2), (2, 3))),
    ("...ij,...jk->...ik", ((2, 2, 3), (3, 2))),
    ("...ij->...ji", ((2, 2, 3),)),
    ("i...->...", ((2, 3),)),
    ("...i,...i", ((2, 3), (3,))),
    ("...,...->...", ((2, 1), (3,))),
    ("ij,ij->ij", ((1, 3), (2, 3))),
    ("ij,ij->j", ((1, 3), (2, 3))),
    (" i j , j -> i ", ((2, 3), (3,))),
    (",i->i", ((), (3,))),
)


def _products(name: str, fn: Callable[..., Any], shapes: Any) -> list[Sample]:
    found = []
    for first, second in shapes:
        which = f"{name}-{'x'.join(map(str, first))}-{'x'.join(map(str, second))}"
        found.append(Sample(which, fn, (_real(*first), _real(*second)), diff=(0, 1)))
    return found


def _tensordots() -> list[Sample]:
    found = []
    for first, second, axes in _TENSORDOT:
        fn = lambda a, b, axes=axes: np.tensordot(a, b, axes)
        args = (_real(*first), _real(*second))
        found.append(
            Sample(f"tensordot-{first}-{second}-{axes}", fn, args, diff=(0, 1))
        )
    return found


def _einsums() -> list[Sample]:
    found = []
    for subscripts, shapes in _EINSUM:
        fn = lambda *operands, text=subscripts: np.einsum(text, *operands)
        args = tuple(_real(*shape) for shape in shapes)
        diff = tuple(range(len(args)))
        found.append(Sample(f"einsum '{subscripts}'", fn, args, diff=diff))
    return found


def _norms() -> list[Sample]:
    vector, matrix, rank3 = _real(4), _real(3, 2), _real(2, 3, 2)
    calls: dict[str, tuple[Any, dict[str, Any]]] = {
        "vector": (vector, {}),
        "matrix": (matrix, {}),
        "rank-3": (rank3, {}),
        "axis": (rank3, {"axis": 1}),
        "axes-kept": (rank3, {"axis": (0, -1), "keepdims": True}),
        "all-kept": (rank3, {"keepdims": True}),
        "two": (vector, {"ord": 2}),
        "one": (vector, {"ord": 1}),
        "three": (matrix, {"ord": 3, "axis": 0}),
        "inf": (vector, {"ord": np.inf}),
        "minus-inf": (matrix, {"ord": -np.inf, "axis": -1}),
        "zero": (vector, {"ord": 0}),
        "fro": (matrix, {"ord": "fro"}),
        "matrix-one": (matrix, {"ord": 1}),
        "matrix-inf": (rank3, {"ord": np.inf, "axis": (0, 2), "keepdims": True}),
        "matrix-minus-one": (rank3, {"ord": -1, "axis": (2, 1)}),
        "matrix-two": (matrix, {"ord": 2}),
        "matrix-minus-two": (rank3, {"ord": -2, "axis": (2, 0), "keepdims": True}),
        "nuclear": (matrix, {"ord": "nuc"}),
        "nuclear-complex": (_complex(2, 3), {"ord": "nuc"}),
        "complex": (_complex(3), {}),
        "complex-one": (_complex(3), {"ord": 1}),
    }
    return [
        Sample(
            f"norm-{name}",
            lambda x, keywords=keywords: np.linalg.norm(x, **keywords),
            (x,),
            diff=(0,),
        )
        for name, (x, keywords) in calls.items()
    ]


def _standard() -> list[Sample]:
    """Functions that np.linalg has under its own names, and products of vectors."""
    a, b, c = _real(2, 3), _real(3, 2), _complex(2, 3)
    vector, square = np.linalg.vector_norm, _real(2, 3, 3)
    calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "vecdot": (np.vecdot, (a, _real(3))),
        "vecdot-complex": (np.linalg.vecdot, (c, _complex(3))),
        "vecdot-axis": (lambda x, y: np.linalg.vecdot(x, y, axis=0), (a, _real(2, 1))),
        "matvec": (lambda x, y: np.matvec(x, y), (_real(2, 2, 3), a)),
        "vecmat": (lambda x, y: np.vecmat(x, y), (c, _complex(3, 2))),
        "matmul_linalg": (np.linalg.matmul, (a, b)),
        "tensordot_linalg": (lambda x, y: np.linalg.tensordot(x, y, axes=1), (a, b)),
        "outer_linalg": (np.linalg.outer, (_real(2), _real(3))),
        "cross_linalg": (lambda x, y: np.linalg.cross(x, y, axis=0), (b, _real(3, 1))),
        "trace_linalg": (lambda x: np.linalg.trace(x, offset=1), (square,)),
        "diagonal_linalg": (np.linalg.diagonal, (square,)),
        "transpose_linalg": (np.linalg.matrix_transpose, (a,)),
        "matrix_norm": (lambda x: np.linalg.matrix_norm(x, ord=2), (square,)),
        "vector_norm": (vector, (a,)),
        "vector_norm-axes": (
            lambda x: vector(x, axis=(0, -1), ord=3, keepdims=True),
            (square,),
        ),
        "multi_dot": (lambda *x: np.linalg.multi_dot(x), (a[0], b, a, _real(3))),
        "multi_dot-three": (lambda *x: np.linalg.multi_dot(x), (a, b, _real(2, 1))),
    }
    return [
        Sample(name, fn, args, diff=tuple(range(len(args))))
        for name, (fn, args) in calls.items()
        if name not in ("matvec", "vecmat") or hasattr(np, name)  # since NumPy 2.2
    ]


def _others() -> list[Sample]:
    a, b = _real(2, 3), _real(3, 2)
    whole = np.array([[1, 2], [3, 4]])
    return [
        Sample("vdot", np.vdot, (a, _real(2, 3)), diff=(0, 1)),
        Sample("vdot-complex", np.vdot, (_complex(3), _complex(3)), diff=(0, 1)),
        Sample("outer", np.outer, (a, _real(2)), diff=(0, 1)),
        Sample("kron", np.kron, (a, b), diff=(0, 1)),
        Sample("kron-ranks", np.kron, (_real(2), b), diff=(0, 1)),
        Sample("matmul-operator", lambda x, y: x @ y, (a, b), diff=(0, 1)),
        Sample("matmul-whole", np.matmul, (whole, whole)),
        Sample("matmul-mixed", np.matmul, (whole, _real(2, 2)), diff=(1,)),
        Sample(
            "matmul-complex", np.matmul, (_complex(2, 3), _complex(3, 2)), diff=(0, 1)
        ),
        Sample(
            "matmul-real-complex", np.matmul, (_real(2, 3), _complex(3)), diff=(0, 1)
        ),
        Sample(
            "matmul-ordered", np.matmul, (_real(3, 2).T, _real(2, 3).T), diff=(0, 1)
        ),
        Sample(
            "matmul-batches-ordered",
            np.matmul,
            (
                _real(2, 3, 2, 2).transpose(1, 0, 2, 3),
                _real(3, 2, 2).transpose(1, 2, 0),
            ),
            diff=(0, 1),
        ),
        Sample(
            "matmul-batches-reversed",
            np.matmul,
            (_real(2, 3, 2, 3).T, _real(3, 2, 2, 3).T),
            diff=(0, 1),
        ),
        Sample("matmul-self", lambda x: x @ x.T, (a,), diff=(0,)),
        Sample(
            "matmul-empty", np.matmul, (np.ones((2, 0)), np.ones((0, 3))), diff=(0, 1)
        ),
        Sample("dot-method", lambda x: x.dot(x.T), (a,), diff=(0,)),
        Sample(
            "tensordot-complex",
            np.tensordot,
            (_complex(2, 2), _complex(2, 2)),
            diff=(0, 1),
        ),
        Sample(
            "tensordot-real-complex",
            np.tensordot,
            (_real(2, 2), _complex(2, 2)),
            diff=(0, 1),
        ),
        Sample(
            "einsum-complex",
            lambda x, y: np.einsum("ij,j->i", x, y),
            (_complex(2, 3), _complex(3)),
            diff=(0, 1),
        ),
        Sample(
            "einsum-real-complex",
            lambda x, y: np.einsum("ij,ij->i", x, y),
            (_real(2, 3), _complex(2, 3)),
            diff=(0, 1),
        ),
        Sample(
            "einsum-optimize",
            lambda x, y, z: np.einsum("ij,jk,kl->il", x, y, z, optimize=True),
            (a, b, a),
            diff=(0, 1, 2),
        ),
        Sample(
            "einsum-lists",
            lambda x, y: np.einsum(x, [..., 27, 0], y, [..., 0], [27, ...]),
            (a, _real(4, 3)),
            diff=(0, 1),
        ),
        Sample("einsum-lists-implicit", lambda x: np.einsum(x, [30, 2]), (a,)),
        Sample(
            "einsum-order",
            lambda x, y: np.einsum("ij,jk", x, y, order="F", optimize="greedy"),
            (a, b),
            diff=(0, 1),
        ),
        Sample(
            "einsum-dtype",
            lambda x: np.einsum("ij->j", x, dtype=complex),
            (a,),
            diff=(0,),
        ),
        Sample("einsum-whole", lambda x: np.einsum("ij->j", x), (whole,)),
    ]


SAMPLES: list[Sample] = [
    *_products("matmul", np.matmul, _MATMUL),
    *_products("dot", np.dot, _DOT),
    *_products("inner", np.inner, _INNER),
    *_tensordots(),
    *_einsums(),
    *_norms(),
    *_standard(),
    *_others(),
]
