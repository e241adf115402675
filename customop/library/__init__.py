"""Making operators and registering by name: `custom_op`, `define`, `Library`, `ops`.

May import `core` and all below it. Start with `functions`; `entry` is one registration.
"""
