"""Plain functions with their own derivatives: custom_vjp, custom_jvp, checkpoint.

Transforms handle a call of such a function like a call of an operator: `function_calls`
gives each call a table of rules, and `custom` derives the rule for the other mode.
"""
