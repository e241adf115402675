"""Capture a function as a graph: `make_fx`.

This folder may import `graph`, the other transforms, and everything below them. Start
with `make_fx`, which runs the function. `recorder` handles the calls of operators while
it runs. `graph_tracer` has the values that the function gets instead of arrays.
"""
