"""The default back end: a graph as Python code that calls NumPy, with eager's numbers.

It may import `graph` and all below it. Start with ``build.py``.
"""
