"""Rules that follow from an operator's tags and shapes when none is registered.

Start with `find`, which asks the others in turn.
"""
