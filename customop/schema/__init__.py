"""Schemas: the types of an operator's parameters and results, and its tags.

May import `arrays` and `shapes`. Start with `types` (the schema types) and `schema`;
`infer` reads annotations, `parse` reads text, `fit` and `coerce` check and convert
values, `tags` has the promises of an operator and their checks.
"""
