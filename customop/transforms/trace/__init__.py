"""Capturing a function as a graph: `make_fx`.

May import `graph`, the other transforms, and all below them. Start with `make_fx`, which
runs the function; `recorder` has what a call of an operator does while it runs,
`graph_tracer` what the function gets in the place of arrays.
"""
