"""Operators: a schema, a table of rules, and which rule a call takes.

Imports arrays, schema and below. Start with table.py (the table), then dispatch.py (how
a call picks a row), rule_kind.py and builtin_kinds.py (what can be a row), registry.py (how
rows enter) and operator.py (the public object; its methods that register are in
operator_methods.py). contract.py and kernel_proof.py check what kernels return,
derived_rules.py and shape_rules.py make rules from tags and shapes.
"""
