"""The pytest plugin: opcheck on every operator call that tests make.

May import everything below it. Start with `plugin`, the only file that each pytest run
loads: it imports nothing of the package until an option or a marker asks for it.
"""
