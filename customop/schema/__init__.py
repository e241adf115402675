"""Schemas: the types of an operator's parameters and results, and its tags.

May import `arrays` and all below it. Start with `types` (the schema types) and `schema`;
`config_classes` has the fields of classes whose objects are arguments.
`annotations` has their hints and names, `infer` reads functions, `parse` reads text,
`coerce` checks and converts values and checks defaults, `tags` has the promises of an operator.
"""
