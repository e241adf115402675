"""The back end "native": a graph as a table of NumPy's own inner loops, without Python.

Start with ``native_code.py``: a graph is planned for the arguments of a call
(``planning.py``, ``operator_rows.py``, ``reduction_rows.py``), in the order in which NumPy
goes over items (``iteration.py``), on memory that is used again (``memory.py``). The rows
of the table (``tables.py``) are loops of NumPy (``ufunc_loops.py``) and others with the same
bits (``own_loops.py``, ``fused_loops.py``); ``driver.py`` runs them.
"""
