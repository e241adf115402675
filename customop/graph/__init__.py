"""Captured programs: graphs of operator calls, and how they are edited and run.

May import `library`, `core` and all below them. Start with `graph`, the data; `module` has
the callable around a graph and `replay` the Python code that is generated from it.
"""
