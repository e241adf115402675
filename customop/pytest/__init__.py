"""The pytest plugin: opcheck on every operator call that tests make.

It may import every folder but `cli` and `mypy`. Start with `plugin`, the only file that
each run of pytest loads; then `checked_tests`, which runs the checks.
"""
