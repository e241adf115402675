"""Profiles: the cost of the operators of a program.

May import everything up to `transforms`. Start with `profile`, the context manager.
"""
