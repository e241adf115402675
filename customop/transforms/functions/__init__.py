"""Plain functions with derivatives of their own: custom_vjp, custom_jvp, checkpoint.

A call of such a function is handled like that of an operator: `call` makes it a table of
rules, `one_rule` derives what a rule for one mode leaves out, and `rows` serves vmap. Start
with `call`, then `custom`.
"""
