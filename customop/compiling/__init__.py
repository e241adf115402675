"""`co.compile`: a function is captured once for each kind of arguments, and its graph is run.

It may import `graph`, the transforms, and all below them. Start with ``compile.py``, the
compiled function, and ``entries.py``, its graphs; ``level_graphs.py`` has what a transform adds,
and ``backends.py`` the names of back ends, which turn a graph into code.
"""
