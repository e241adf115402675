"""A forked child that runs what may crash: `child`, and what it needs.

May import `testing/inputs` and all below it. Start with `Child`.
"""
