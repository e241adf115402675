"""Arguments to check an operator with: found, varied and made smaller.

Start with `find`. `templates` lists values for each schema type, `search` asks an
`oracle` which of them the kernels accept, `patterns` finds which axes go together.
`variations` and `shrink` change a sample.
"""
