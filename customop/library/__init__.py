"""How users make operators and register by name: `custom_op`, `define`, `Library`, `ops`.

May import `core` and the folders below it. Start with `define`, then `register`
(by name) and `library` (registrations that can be removed).
"""
