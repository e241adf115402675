"""The default back end: a graph as Python code that calls NumPy, with eager's numbers.

It may import `graph` and all below it. Start with ``build.py``: a graph is simplified
(``simplify.py``), written as one call after the other (``straight.py``, ``calls.py``,
``reuse.py``), and large elementwise calls in it run over blocks (``runs.py``, ``body.py``,
``blocks.py``), which threads share (``plans.py``).
"""
