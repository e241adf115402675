"""The checks of `opcheck`, by theme.

A check is a function of a `Session` and a sample. It raises `Fault` for a fault of the
operator; it returns a reason where it could prove nothing, and "" where it did.
"""
