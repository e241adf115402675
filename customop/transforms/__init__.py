"""Functions of functions: one file or folder for each of grad, jvp, vmap, fake and more.

May import `library`, `core` and all below them. Start with `vmap`, a whole transform in
one file; a new transform is a new file here with an `Interpreter` and a `RuleKind`.
"""
