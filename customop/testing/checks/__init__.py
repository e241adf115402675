"""The checks of `opcheck`, by theme.

A check is a function of a `Session` and a sample. It raises `Fault` for a fault of the
operator. It returns "", or a reason if it could prove nothing. Start with `session`; a
new check is a function in the file of its theme and a row in the table of `opcheck`.
"""
