"""Operators: a schema, a table of rules, and which rule a call takes.

Imports arrays, schema and below. Start with table.py (the table), then dispatch.py (how
a call picks a row), rule_kind.py and builtin_kinds.py (what can be a row), registration.py
(how rows enter), operator.py (the public object) and registry.py (all operators by name).
contract.py and kernel_proof.py check what kernels return; derived_rules.py finds the rule
that follows from tags (tag_rules.py) or shapes (shape_rules.py).
"""
