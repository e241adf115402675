"""The pytest plugin: runs opcheck on every operator call that tests make.

It may import every folder but `cli` and `mypy`. Start with `plugin`, the only file that
every run of pytest loads. Then read `checked_tests`, which runs the checks.
"""
