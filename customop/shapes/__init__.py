"""Lengths of axes, as text (``"n 3"``) and as numbers.

May import `config` and `errors`. Start with `notation`, which reads the text; `solve`
finds the lengths that the arrays of a call give to the names.
"""
