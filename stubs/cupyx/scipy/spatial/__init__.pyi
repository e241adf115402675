"""Types of cupyx.scipy.spatial."""

# ---- written by stubs/generate.py ----

from cupy import _ArrayLike, _Operand, ndarray
from typing import Any
from cupyx.scipy.spatial import distance as distance
from cupyx.scipy.spatial.distance import distance_matrix as distance_matrix

class Delaunay:  # CuPy 14
    def __init__(
        self, points: Any, furthest_site: bool = False, incremental: bool = False
    ) -> None: ...
    def find_simplex(
        self, xi: ndarray, bruteforce: bool = False, tol: _Operand | None = None
    ) -> Any: ...
    def vertex_neighbor_vertices(self) -> Any: ...

class KDTree:  # CuPy 14
    def __init__(
        self,
        data: Any,
        leafsize: Any = 10,
        compact_nodes: bool = True,
        copy_data: bool = False,
        balanced_tree: bool = True,
        boxsize: Any = None,
    ) -> None: ...
    def query(
        self,
        x: _ArrayLike,
        k: Any = 1,
        eps: Any = 0.0,
        p: Any = 2.0,
        distance_upper_bound: Any = ...,
    ) -> Any: ...
    def query_ball_point(
        self,
        x: _ArrayLike,
        r: _ArrayLike,
        p: Any = 2.0,
        eps: Any = 0,
        return_sorted: bool | None = None,
        return_length: bool = False,
    ) -> Any: ...
    def query_ball_tree(
        self, other: Any, r: _Operand, p: Any = 2.0, eps: _Operand = 0.0
    ) -> list[ndarray]: ...
    def query_pairs(
        self, r: Any, p: Any = 2.0, eps: _Operand = 0, output_type: str = "ndarray"
    ) -> ndarray: ...
    def count_neighbors(
        self,
        other: Any,
        r: _ArrayLike,
        p: Any = 2.0,
        weights: _ArrayLike | None = None,
        cumulative: bool = True,
    ) -> Any: ...
    def sparse_distance_matrix(
        self,
        other: Any,
        max_distance: Any,
        p: Any = 2.0,
        output_type: str = "coo_matrix",
    ) -> Any: ...
