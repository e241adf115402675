"""The back end "native": a graph as a table of NumPy's own inner loops, without Python.

Start with ``native_code.py``: a graph is planned for the arguments of a call
(``planning.py``; ``operator_rows.py``, ``reduction_rows.py``, ``written_rows.py`` and
``control_rows.py`` have the rules of operators), in the order in which NumPy goes over
items (``iteration.py``), on memory that is used again (``memory.py``). The rows of a table (``tables.py``) are loops of
NumPy (``ufunc_loops.py``) and others with the same bits (``own_loops.py``,
``fused_loops.py``, ``blocked_rows.py``). ``driver.py`` runs them, ``door.py`` takes the
arguments of a call, and ``result_layout.py`` makes results that share memory.
"""
