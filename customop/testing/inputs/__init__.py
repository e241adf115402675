"""Arguments for an operator that is to be checked: found, varied and made smaller.

Start with `find`.
"""
