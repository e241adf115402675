"""The one idea: an operator is a schema and a table of rules, and a call picks one.

May import `schema` and all below it. Start with `operator`, then `dispatch` (which rule
a call takes), `kernels` (which kernel) and `proof` (what a kernel must keep).
"""
