"""Operators: a schema, a table of rules, and which rule a call takes.

Imports arrays, schema and below. Start with table.py (the table), then dispatch.py (how
a call picks a row), rule_kind.py and kinds.py (what can be a row), registration.py (how
rows enter) and operator.py (the public object; its methods that register are in
operator_rules.py and operator_kernels.py). contract/ checks what kernels return,
derived/ makes rules from tags and shapes.
"""
