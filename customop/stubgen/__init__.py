"""Writes `.pyi` files, so that type checkers know the operators in `ops`.

May import everything up to `transforms`. Start with `stubs`; `types` writes one type.
"""
