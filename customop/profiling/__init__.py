"""What the operators of a program cost.

May import everything up to `transforms`. Start with `profile`, the context manager.
"""
