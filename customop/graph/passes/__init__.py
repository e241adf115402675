"""Passes: functions that take a graph and return a new one.

Start reading in ``apply``, through which all of them go. Those that trace functions lie
in ``customop.transforms.trace``.
"""
