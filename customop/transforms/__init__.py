"""Functions of functions: grad, jvp, vmap, fake mode, autocast and more.

May import `library`, `core` and all below them. Start with `jvp`, a whole transform in
one file. A new transform is a new file here with an `Interpreter` and a `RuleKind`.
"""
