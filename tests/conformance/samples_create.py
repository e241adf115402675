"""Samples of the operators that make arrays."""

from __future__ import annotations

import numpy as np

from customop.numpy.create import from_list
from tests.conformance.samples import Sample

_rng = np.random.default_rng(17)
_X = _rng.standard_normal((2, 3))

SAMPLES: list[Sample] = [
    Sample("zeros_like", np.zeros_like, (_X,), diff=(0,)),
    Sample("ones_like", np.ones_like, (_X.T,), diff=(0,)),
    Sample("ones_like-dtype", lambda x: np.ones_like(x, dtype=int), (_X,)),
    Sample(
        "zeros_like-shape", lambda x: np.zeros_like(x, shape=(4,)), (_X,), diff=(0,)
    ),
    Sample("full_like", lambda x: np.full_like(x, 2.5), (_X,), diff=(0,)),
    Sample(
        "full_like-rank-3",
        np.ones_like,
        (_rng.standard_normal((2, 3, 4)).transpose(2, 0, 1),),
    ),
    Sample(
        "from_list", lambda x: from_list(x, [2, 0, 1], [3, 1], np.dtype(int)), (_X,)
    ),
    Sample("full_like-times", lambda x: np.full_like(x, 2.5) * x, (_X,), diff=(0,)),
]
