"""The back end "numpy": a graph as Python code that calls NumPy, with eager's numbers.

It may import `graph` and all below it. Start with ``build.py``: a graph is simplified
(``simplify.py``), written as one call after the other (``call_text.py``), and large
elementwise calls in it run over blocks (``elementwise_runs.py``, ``run_plans.py``,
``blocks.py``).
"""
