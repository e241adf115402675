"""Write `.pyi` files, so that type checkers know the operators in `ops`.

It may import everything up to `transforms`. Start with `stubs`.
"""
