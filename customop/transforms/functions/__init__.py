"""Plain functions with derivatives of their own: custom_vjp, custom_jvp, checkpoint.

A call of such a function is handled like that of an operator: `function_calls` makes it
a table of rules, and `custom` derives what a rule for one mode leaves out.
"""
